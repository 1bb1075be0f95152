r"""Single columns removed or added, many at once: bounds of the scores of some queries under each retrained model.

:class:`WideColumns` (L2 on every column, a smooth loss, no intercept) works in the dimension of the rows. The Newton
equation of the changed problem at the old scores, with :math:`D` the weighted curvatures and :math:`K = X \Lambda^{-1} X^\top`, is

.. math:: (I + D (K \pm x_j x_j^\top / \lambda_j)) b = D z - s \circ g ,

a rank-one change of one system for all ``j``. As for rows, the candidate is :math:`w = \Lambda^{-1} X^\top b` and the penalty's
Fenchel-Young terms vanish.

:class:`LocalColumns` (removals; logistic or squared loss with an L2 penalty, also an intercept or ``lam = 0``) works over the
columns. With :math:`A` the Hessian of all columns and :math:`q` its Newton step, the candidate without column ``j`` is
:math:`w + q - A^{-1}_{:j} (w_j + q_j) / A^{-1}_{jj}`. Its Hessian :math:`M_j` is :math:`A` without row and column ``j``, so
:math:`\|u\|_{M_j^{-1}} \le \|u\|_{A^{-1}}` for rows of the data (with any entry ``j``) and for gradients (with a zero there): one
metric serves all candidates.
"""

from collections.abc import Callable
from typing import final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from glru._numerics import TINY, UNIT, Array, Matrix, gamma, squared_row_norms
from glru._products import robust_cholesky, row_gram
from glru._sizes import SMALL
from glru._threads import calm_blas, in_parts
from glru.certificate import FEW, ball_radius, loss_terms, penalty_terms, quick_loss_terms, score_errors
from glru.families.carried import row_norms, scale, weight_error
from glru.families.gradients import Gradients, local_radius
from glru.losses import Logistic
from glru.point import Point
from glru.problem import Problem
from glru.regions.base import Bounds, centers, intersected, widened
from glru.regions.metric import ColumnMetric
from glru.solution import Solution

Columns = NDArray[np.intp]

LARGEST = 6000
"""Systems in more dimensions than this are not formed."""

CHUNK = 1 << 18
"""Entries of the arrays that a thread works on at a time: they stay in the cache."""


def has_wide_columns(problem: Problem) -> bool:
    """Whether :class:`WideColumns` applies."""
    return (
        np.isfinite(problem.loss.smoothness)
        and problem.penalty.smooth
        and problem.penalty.strong_convexity > 0.0
        and not problem.fit_intercept
        and problem.n_rows <= LARGEST
    )


def has_local_columns(problem: Problem) -> bool:
    """Whether :class:`LocalColumns` applies."""
    return problem.loss.self_concordance is not None and problem.penalty.smooth and 1 < problem.n_columns <= LARGEST


@final
class WideColumns:
    """Columns removed from or added to a problem, in the dimension of its rows.

    Parameters
    ----------
    solution : Solution
        The old model.
    queries : array or sparse array of shape (n_queries, n_columns)
        Rows whose scores are asked about.
    """

    def __init__(self, solution: Solution, queries: Matrix) -> None:
        problem = self.problem = solution.problem
        lam = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
        inverse = 1.0 / lam
        self.gram = row_gram(problem, inverse)
        scaled = queries * inverse if isinstance(queries, np.ndarray) else queries.multiply(inverse).tocsr()
        cross = scaled @ problem.X.T
        self.cross = cross if isinstance(cross, np.ndarray) else cross.toarray()
        norms = _rounded_norms(row_norms(problem), problem)
        self.top, self.total_norm = float(norms.max()), float(np.linalg.norm(norms)) * (1.0 + FEW)
        self.share = np.divide(1.0, problem.weights, out=np.zeros(problem.n_rows), where=problem.weights > 0.0)
        self.query_squares = squared_row_norms(queries, inverse)
        _, slopes, bends = problem.loss.expand(problem.y, solution.scores)
        bend = problem.weights * bends
        root = np.sqrt(bend)
        # (I + D K)^-1 D, and the solution without any change.
        self.response = root[:, None] * cho_solve(_core_factor(self.gram, root), np.diag(root), check_finite=False)
        self.base = _newton_dual(self.gram, root, bend * solution.scores - problem.weights * slopes)
        self.scores = solution.scores

    def bounds(
        self, make: Callable[[int, int], tuple[Array, Array]], lam: Array, sign: float, n_items: int
    ) -> tuple[Array, Array]:
        """Bounds of shape (n_queries, n_items), a column a candidate.

        Parameters
        ----------
        make : callable
            ``make(start, stop)``: the candidates' columns in the data and in the queries, as dense arrays.
        lam : array of shape (n_items,)
            Their penalties.
        sign : float
            -1 for removals, +1 for additions.
        n_items : int
            Number of candidates.
        """
        size = self.query_squares.size
        lower, upper = np.empty((size, n_items)), np.empty((size, n_items))
        width = max(16, CHUNK // max(self.problem.n_rows, 1))

        def part(start: int, stop: int) -> None:
            for k in range(start, stop, width):
                end = min(k + width, stop)
                lower[:, k:end], upper[:, k:end] = self._bounds(*make(k, end), lam[k:end], sign)

        with calm_blas(0.0):
            in_parts(part, n_items, width)
        return lower, upper

    def _bounds(self, columns: Array, asked: Array, lam: Array, sign: float) -> Bounds:
        images = self.response @ columns
        with np.errstate(all="ignore"):
            step = (self.base @ columns) / (lam + sign * np.einsum("ij,ij->j", columns, images))
        step = np.where(np.isfinite(step), -sign * step, 0.0)
        return self._certified(self._candidates(images, step, columns), columns, asked, lam, sign)

    def refined(
        self,
        column: Array,
        asked: Array,
        lam: float,
        sign: float,
        settled: Callable[[Array, Array], bool],
        n_steps: int,
    ) -> Bounds:
        """Bounds for one candidate after exact Newton steps, each with a factor of its own."""
        problem = self.problem
        gram = self.gram + np.outer(sign / lam * column, column)
        columns, queries, lams = column[:, None], asked[:, None], np.array([lam])
        scores = self.scores
        best = np.full(asked.size, -np.inf), np.full(asked.size, np.inf)
        for _ in range(n_steps):
            _, slopes, bends = problem.loss.expand(problem.y, scores)
            bend = problem.weights * bends
            solved = _newton_dual(gram, np.sqrt(bend), bend * scores - problem.weights * slopes)
            candidates = self._candidates(solved[:, None], np.ones(1), columns, np.zeros(problem.n_rows))
            lower, upper = self._certified(candidates, columns, queries, lams, sign)
            best = intersected(best, (lower[:, 0], upper[:, 0]))
            if settled(*best):
                break
            scores = gram @ candidates[1][:, 0]
        return best

    def _certified(
        self, candidates: tuple[Array, ...], columns: Array, asked: Array, lam: Array, sign: float
    ) -> Bounds:
        problem = self.problem
        dual, pulls, inner, size, own = candidates
        scores = self.gram @ pulls
        scores += columns * (sign * inner / lam)
        # |K_kl| and its rounding error are at most |x_k| |x_l| and gamma(d) of that, in the metric of the penalty; the sums
        # over the rows are bounded by Cauchy-Schwarz.
        unit = gamma(problem.n_columns + problem.n_rows + 16)
        size = np.sqrt(size) * (1.0 + gamma(problem.n_rows + 4))
        own = np.sqrt(own / lam) * (1.0 + gamma(problem.n_rows + 4))
        mass, own_mass = self.total_norm * size + TINY, own * size + TINY
        errors = unit * (self.top * mass + own * own_mass) * (1.0 + FEW)
        losses = self._losses(scores, errors, dual) * (1.0 + gamma(problem.n_rows + 8))
        # The stored products of weights and dual variables are off by a unit each, the correlations by as much.
        gaps = (losses + 0.5 * np.square(weight_error(problem) * (mass + own_mass))) * (1.0 + FEW)
        gaps = np.where(np.isfinite(gaps), gaps, np.inf)
        center = self.cross @ pulls + asked * (sign * inner / lam)
        share = np.square(asked) / lam
        squares = self.query_squares[:, None] + sign * share
        rounding = gamma(problem.n_columns + 8) * (self.query_squares[:, None] + share)
        reach = _rounded_norms(np.maximum(squares + rounding, 0.0), problem)
        length = np.sqrt(self.query_squares)[:, None] * (1.0 + gamma(problem.n_columns + 4))
        off = unit * (length * mass + np.sqrt(share) * own_mass) * (1.0 + FEW) + FEW * np.abs(center)
        return widened(center, ball_radius(gaps) * reach * (1.0 + FEW) + off)

    def _candidates(self, images: Array, step: Array, columns: Array, base: Array | None = None) -> tuple[Array, ...]:
        """Dual points, weighted dual points, and per candidate ``x . b``, ``|b|^2`` and ``|x|^2``."""
        problem, weights = self.problem, self.problem.weights
        base = self.base if base is None else base
        low, high = problem.loss.derivative_range(problem.y)
        if images.size < SMALL:
            dual = (base[:, None] + images * step) * self.share[:, None]
            dual = np.clip(dual, -high[:, None], -low[:, None])
            pulls = weights[:, None] * dual
            squares = np.einsum("ij,ij->j", pulls, pulls), np.einsum("ij,ij->j", columns, columns)
            return dual, pulls, np.einsum("ij,ij->j", columns, pulls), *squares
        from glru import _kernels as kernels

        dual, pulls, sums = np.empty_like(images), np.empty_like(images), np.zeros((3, step.size))
        kernels.dual_candidates(images, step, base, self.share, weights, -high, -low, columns, dual, pulls, sums)
        return dual, pulls, *sums

    def _losses(self, scores: Array, errors: Array, dual: Array) -> Array:
        """At least the weighted Fenchel-Young terms of the losses, summed for each candidate."""
        problem, weights = self.problem, self.problem.weights
        if scores.size < SMALL or not isinstance(problem.loss, Logistic):
            terms = quick_loss_terms(problem.loss, problem.y[:, None], scores, errors, dual)
            terms[weights == 0.0] = 0.0
            return weights @ terms
        from glru import _kernels as kernels

        wide = errors + 8.0 * UNIT * (1.0 + float(np.abs(scores).max()))
        tails = np.abs(scores)
        np.negative(tails, out=tails)
        np.exp(tails, out=tails)
        total = np.zeros(scores.shape[1])
        kernels.logistic_chi_square(
            problem.y, weights, scores, tails, dual, problem.loss.smoothness * wide + FEW, total
        )
        return total * np.exp(wide) * (1.0 + FEW)


@final
class LocalColumns:
    """Columns removed from a problem, under the local certificate.

    Parameters
    ----------
    solution : Solution
        The old model.
    queries : array or sparse array of shape (n_queries, n_columns)
        Rows whose scores are asked about.
    """

    def __init__(self, solution: Solution, queries: Matrix) -> None:
        problem = self.problem = solution.problem
        self.queries, self.scores = queries, solution.scores
        self.constant = float(problem.loss.self_concordance or 0.0)
        self.used = problem.weights > 0.0
        _, slopes, bends = problem.loss.expand(problem.y, solution.scores)
        self.metric = ColumnMetric(problem, problem.weights * bends)
        off = score_errors(problem, solution.coef, solution.intercept)
        self.off = float(off[self.used].max())
        # Curvatures were taken at computed scores.
        self.eta = self.metric.eta + 2.0 * self.constant * self.off + weight_error(problem)
        self.usable = self.eta < 0.5
        if not self.usable:
            return
        pulls = problem.weights * slopes
        lam = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
        gradient = problem.X.T @ pulls + lam * solution.coef
        start = solution.coef
        if problem.fit_intercept:
            gradient, start = np.append(gradient, pulls.sum()), np.append(start, solution.intercept)
        self.start = start - self.metric.solve(gradient)
        self.gradients = Gradients(problem, problem.weights, self.metric)
        self.top = float(self.metric.norms(problem.X)[self.used].max())
        self.query_norms = self.metric.norms(queries)
        self._candidates: dict[int, Array] = {}

    def candidate(self, column: int) -> Point | None:
        """The last candidate without a column, if there is one."""
        model = self._candidates.get(column) if self.usable else None
        if model is None:
            return None
        size = self.problem.n_columns
        return Point(np.delete(model[:size], column), float(model[-1]) if self.problem.fit_intercept else 0.0)

    def bounds(
        self, columns: Columns, settled: Callable[[Array, Array], NDArray[np.bool_]], n_steps: int
    ) -> tuple[Array, Array]:
        """Bounds of shape (n_queries, n_removals); each removal is stepped on until ``settled`` or no longer getting better."""
        shape = (self.query_norms.size if self.usable else self.queries.shape[0], columns.size)
        lower, upper = np.full(shape, -np.inf), np.full(shape, np.inf)
        if not self.usable:
            return lower, upper
        width = max(16, 32 * CHUNK // self.problem.n_rows)
        for k in range(0, columns.size, width):
            part = slice(k, k + width)
            lower[:, part], upper[:, part] = self._bounds(columns[part], settled, n_steps)
        return lower, upper

    def _bounds(
        self, columns: Columns, settled: Callable[[Array, Array], NDArray[np.bool_]], n_steps: int
    ) -> tuple[Array, Array]:
        size = self.metric.factor.shape[0]
        units = np.zeros((size, columns.size))
        units[columns, np.arange(columns.size)] = 1.0
        images = self.metric.solve(units)
        images /= images[columns, np.arange(columns.size)]
        models = self.start[:, None] - images * self.start[columns]
        shape = (self.query_norms.size, columns.size)
        lower, upper = np.full(shape, -np.inf), np.full(shape, np.inf)
        active, before = np.arange(columns.size), np.full(columns.size, np.inf)
        for _ in range(n_steps):
            here, places = columns[active], np.arange(active.size)
            mine = models[:, active]
            mine[here, places] = 0.0
            self._candidates.update(zip(here.tolist(), mine.T, strict=True))
            low, high, gradient, nu = self._certified(mine, here)
            lower[:, active], upper[:, active] = np.maximum(lower[:, active], low), np.minimum(upper[:, active], high)
            going = ~settled(lower[:, active], upper[:, active]) & (nu < 0.9 * before[active])
            before[active] = nu
            active = active[going]
            if not active.size:
                break
            here, places = columns[active], np.arange(active.size)
            solved = self.metric.solve(gradient[:, going])
            models[:, active] -= solved - images[:, active] * solved[here, places]
        return lower, upper

    def _certified(self, models: Array, columns: Columns) -> tuple[Array, Array, Array, Array]:
        """Bounds of the queries' scores, gradients, and at least their norms in the metric without each column."""
        places = np.arange(columns.size)
        scores, gradient, nu, error = self.gradients.at(models, fixed=(columns, places))
        np.abs(scores - self.scores[:, None], out=scores)
        moved = scores.max(axis=0) if self.used.all() else scores[self.used].max(axis=0)
        reach = self.constant * (moved + float(self.gradients.plain.max()) * error[0] + error[1] + self.off)
        rest = np.sqrt(1.0 - self.eta)
        nu = nu / rest * (1.0 + FEW)
        radius = local_radius(self.constant, self.top / rest, nu, reach * (1.0 + FEW))
        coefs, shifts = (models[:-1], models[-1]) if self.problem.fit_intercept else (models, np.zeros(columns.size))
        center, off = _many_centers(self.queries, coefs, shifts)
        with np.errstate(invalid="ignore"):
            half = self.query_norms[:, None] / rest * radius * (1.0 + FEW) + off
        low, high = widened(np.where(np.isfinite(half), center, 0.0), np.where(np.isfinite(half), half, np.inf))
        return low, high, gradient, nu


def carried_columns(solution: Solution, queries: Matrix, columns: Columns) -> tuple[Array, Array]:
    """The paper's bound (Algorithm 5): Primal-SCB around the old optimum without each column.

    Needs a strongly convex penalty and no intercept.
    """
    problem, root = solution.problem, solution.certificate
    by_column = problem.X_by_column
    inverse = 1.0 / np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
    queries_squares = squared_row_norms(queries, inverse)
    score, score_off = centers(queries, solution.coef, 0.0)
    kept = penalty_terms(problem.penalty, solution.coef, root.correlations, root.correlation_errors)
    total = float(kept.sum()) * (1.0 + gamma(problem.n_columns + 2))
    lower, upper = np.empty((queries.shape[0], columns.size)), np.empty((queries.shape[0], columns.size))
    width = max(16, CHUNK // problem.n_rows)
    for start in range(0, columns.size, width):
        here = columns[start : start + width]
        block = dense_block(by_column, here)
        moved = block * solution.coef[here]
        scores = solution.scores[:, None] - moved
        errors = root.score_errors[:, None] + 4.0 * FEW * (np.abs(moved) + np.abs(scores))
        terms = loss_terms(problem.loss, problem.y[:, None], scores, errors, solution.dual[:, None])
        terms[problem.weights == 0.0] = 0.0
        losses = (problem.weights @ terms) * (1.0 + gamma(problem.n_rows + 4))
        gaps = (losses + np.maximum(total - kept[here] * (1.0 - FEW), 0.0) + FEW * total) * (1.0 + FEW)
        gaps = np.where(np.isfinite(gaps), gaps, np.inf)
        asked = dense_block(queries, here)
        shift = asked * solution.coef[here]
        own = np.square(asked) * inverse[here]
        squares = queries_squares[:, None] - own + gamma(problem.n_columns + 8) * (queries_squares[:, None] + own)
        reach = _rounded_norms(np.maximum(squares, 0.0), problem)
        off = score_off[:, None] + 4.0 * FEW * (np.abs(score)[:, None] + np.abs(shift))
        part = slice(start, start + width)
        lower[:, part], upper[:, part] = widened(score[:, None] - shift, ball_radius(gaps) * reach * (1.0 + FEW) + off)
    return lower, upper


def dense_block(X: Matrix | sp.csc_array, columns: Columns) -> Array:
    """Some columns as a dense array."""
    block = X[:, columns]
    return block if isinstance(block, np.ndarray) else block.toarray()


def _core_factor(gram: Array, root: Array) -> tuple[Array, bool]:
    """The Cholesky factor of ``I + D^(1/2) K D^(1/2)``."""
    core = root[:, None] * gram * root
    core[np.diag_indices(root.size)] += 1.0
    return robust_cholesky(core), False


def _newton_dual(gram: Array, root: Array, right: Array) -> Array:
    """``(I + D K)^-1`` times a vector."""
    inner = cho_solve(_core_factor(gram, root), root * (gram @ right), check_finite=False)
    return right - root * inner


def _rounded_norms(squares: Array, problem: Problem) -> Array:
    return np.sqrt(squares * (1.0 + gamma(problem.n_columns + 4))) * (1.0 + FEW) + TINY * scale(problem)


def _many_centers(X: Matrix, coefs: Array, shifts: Array) -> tuple[Array, Array]:
    """Scores of several models, and the rounding error of each."""
    norms = np.sqrt(squared_row_norms(X)) * (1.0 + gamma(X.shape[1] + 4))
    sizes = norms[:, None] * np.linalg.norm(coefs, axis=0) + np.abs(shifts)
    return X @ coefs + shifts, gamma(X.shape[1] + 8) * sizes * (1.0 + FEW)
