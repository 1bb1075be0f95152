r"""All leave-one-out removals at once, with the old optimum as the candidate (the paper's bound), in O(n d).

Removing row ``i`` scales the weights of the others by :math:`\varphi_i` (1 for scaling "sum") and turns the
correlations into :math:`\varphi_i (v - s_i a_i x_i)`. For an L2 penalty the Fenchel-Young terms then sum to

.. math:: \tfrac12 \|e_i + \varphi_i s_i a_i x_i\|^2_{\Lambda^{-1}}, \qquad e_i = \Lambda w - \varphi_i v,

which one product with X gives for all rows.
"""

import numpy as np
import scipy.sparse as sp

from glru._numerics import TINY, Array, Matrix, dense, gamma, scaled_columns, squared_row_norms
from glru._products import row_block
from glru.certificate import FEW, absolute, ball_radius, penalty_terms
from glru.problem import Problem
from glru.regions.base import Bounds, intersected, widened
from glru.solution import Solution

CHUNK = 1 << 22
"""Entries of a chunk where the penalty's terms are taken one by one."""


def removal_factors(problem: Problem) -> Array:
    """What the weights of the other rows are multiplied by when a row leaves."""
    if problem.scaling == "sum":
        return np.ones(problem.n_rows)
    left = problem.total_weight - problem.sample_weight
    factors = np.divide(problem.total_weight, left, out=np.full(problem.n_rows, np.inf), where=left > 0.0)
    # Without a row of more than half the weight the difference has lost digits: no bound is built on it.
    return np.where(factors <= 2.0, factors, np.inf)


def weight_error(problem: Problem) -> float:
    """Relative error of a row's new weight: of two sums of the weights and the operations between them."""
    return 8.0 * gamma(problem.n_rows + 9)


def has_carried(problem: Problem) -> bool:
    """Whether the carried dual point stays feasible when a row leaves, and the penalty is strongly convex."""
    return not problem.fit_intercept and problem.penalty.strong_convexity > 0.0


def carried_bounds(solution: Solution, bound: str) -> Bounds:
    """Bounds of every row's score under the model trained without it; ``bound``: "primal", "dual" or both ("auto")."""
    problem, root = solution.problem, solution.certificate
    assert root.loss_terms is not None
    factors = removal_factors(problem)
    known = np.isfinite(factors)
    factors = np.where(known, factors, 1.0)
    own = problem.weights * np.where(problem.weights > 0.0, root.loss_terms, 0.0)
    steady = weight_error(problem)
    losses = factors * (np.maximum(root.row_total - own, 0.0) + steady * root.row_total)
    gaps = (losses + _penalty_sums(solution, factors)) * (1.0 + gamma(problem.n_columns + 8))
    gaps = np.where(np.isfinite(gaps) & known, gaps, np.inf)
    bounds = np.full(problem.n_rows, -np.inf), np.full(problem.n_rows, np.inf)
    if bound in ("primal", "auto"):
        bounds = intersected(bounds, _primal_bounds(solution, gaps))
    if bound in ("dual", "auto") and problem.penalty.smooth and np.isfinite(problem.loss.smoothness):
        bounds = intersected(bounds, _dual_bounds(solution, factors, gaps))
    return bounds


def _inverse(problem: Problem) -> Array:
    return 1.0 / np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))


def row_norms(problem: Problem) -> Array:
    """Squared norms of the rows in the metric of the penalty."""
    lam = problem.penalty.quadratic
    return problem.squared_row_norms / lam if lam.ndim == 0 else squared_row_norms(problem.X, 1.0 / lam)


def shared_part(problem: Problem) -> Matrix:
    """X without the columns that have a value in one row only (looked for in sparse data).

    When that row leaves, the column is empty and its optimal coefficient exactly 0: it plays no part in the row's score.
    """
    X = problem.X
    if not isinstance(X, sp.csr_array):
        return X
    shared = np.bincount(X.indices[X.data != 0.0], minlength=X.shape[1]) != 1
    return X if shared.all() else scaled_columns(X, shared.astype(np.float64))


def shared_norms(problem: Problem, part: Matrix) -> Array:
    """At least the norms of the rows' shared parts in the metric of the penalty."""
    squares = row_norms(problem) if part is problem.X else squared_row_norms(part, _inverse(problem))
    return np.sqrt(squares * (1.0 + gamma(problem.n_columns + 4))) * (1.0 + FEW) + TINY * scale(problem)


def scale(problem: Problem) -> float:
    """At least 1 and the largest ``1 / sqrt(lam_j)``."""
    return 1.0 + 1.0 / float(np.sqrt(problem.penalty.strong_convexity))


def _penalty_sums(solution: Solution, factors: Array) -> Array:
    """At least the penalty's Fenchel-Young sum after each removal."""
    problem, root = solution.problem, solution.certificate
    errors = weight_error(problem) * np.sqrt(root.dual_mass) * root.column_norms
    pulls = problem.weights * solution.dual
    if not problem.penalty.smooth:
        return _penalty_sums_by_row(solution, factors, errors, pulls)
    inverse = _inverse(problem)
    lam_w = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,)) * solution.coef
    # |e_i + p x_i| <= |e_i| + |p| |x_i| is tight enough only if e_i is small; expand the square instead.
    # e_i = (lam w - v) - (phi_i - 1) v: two fixed vectors.
    first, second = lam_w - root.correlations, root.correlations
    extra = factors - 1.0
    a, b, c = (float(u @ (inverse * v)) for u, v in ((first, first), (first, second), (second, second)))
    rest = a - 2.0 * extra * b + extra**2 * c
    along = problem.X @ (inverse[:, None] * np.column_stack([first, second]))
    cross = along[:, 0] - extra * along[:, 1]
    norms = row_norms(problem)
    shift = factors * pulls
    squares = np.maximum(rest + 2.0 * shift * cross + shift**2 * norms, 0.0)
    # Rounding: of the expanded square (each part keeps its own), then of the vectors themselves.
    parts = a + 2.0 * np.abs(extra) * np.sqrt(a * c) + extra**2 * c + shift**2 * norms
    squares = squares + 8.0 * gamma(problem.n_columns + 8) * parts
    noise = errors * np.abs(factors).max() + FEW * (np.abs(lam_w) + np.abs(second))
    off = float(np.sqrt(noise @ (inverse * noise))) + FEW * np.sqrt(shift**2 * norms)
    return 0.5 * np.square(np.sqrt(squares) + off) * (1.0 + FEW)


def _penalty_sums_by_row(solution: Solution, factors: Array, errors: Array, pulls: Array) -> Array:
    problem, root = solution.problem, solution.certificate
    sums = np.empty(problem.n_rows)
    height = max(1, CHUNK // problem.n_columns)
    for start in range(0, problem.n_rows, height):
        stop = min(start + height, problem.n_rows)
        rows = row_block(problem.X, start, stop)
        block = dense(rows)
        moved = factors[start:stop, None] * (root.correlations - pulls[start:stop, None] * block)
        slack = np.abs(factors[start:stop, None]) * (errors + FEW * np.abs(pulls[start:stop, None] * block))
        sums[start:stop] = penalty_terms(problem.penalty, solution.coef, moved, slack).sum(axis=1)
    return sums


def _primal_bounds(solution: Solution, gaps: Array) -> Bounds:
    problem = solution.problem
    part = shared_part(problem)
    scores = solution.scores if part is problem.X else part @ solution.coef
    errors = solution.certificate.score_errors + FEW * np.abs(scores)
    return widened(scores, ball_radius(gaps) * shared_norms(problem, part) * (1.0 + FEW) + errors)


def _dual_bounds(solution: Solution, factors: Array, gaps: Array) -> Bounds:
    """Dual-SCB of an L2 penalty: the box's range of ``x_i . w``, which is linear in its half-widths."""
    problem, root, inverse = solution.problem, solution.certificate, _inverse(solution.problem)
    shift = factors * problem.weights * solution.dual
    norms = row_norms(problem)
    middle = factors * (problem.X @ (inverse * root.correlations)) - shift * norms
    sizes = absolute(problem.X)
    errors = weight_error(problem) * np.sqrt(root.dual_mass) * root.column_norms
    # Terms may cancel in the product with X, so its rounding is that of a sum of absolute values.
    unit = 4.0 * gamma(problem.n_columns + 8)
    rounding = factors * (sizes @ (inverse * (errors + unit * np.abs(root.correlations)))) * (1.0 + unit)
    rounding = rounding + unit * np.abs(shift) * norms + FEW * np.abs(middle)
    reach = ball_radius(problem.loss.smoothness * gaps * factors) * (sizes @ (inverse * root.column_norms))
    return widened(middle, reach * (1.0 + unit + weight_error(problem)) + rounding)
