r"""All leave-one-out removals at once from the old optimum, with an unpenalised intercept, in a few products with X.

Let :math:`G` be the gradient without row ``i`` at the old optimum, :math:`\bar H` the mean Hessian on the way from there to the new one, and
``B`` some of the other rows. Suppose that no score of ``B`` moves by more than :math:`T / M` on the way, ``M`` the self-concordance constant.
Then the curvatures of these rows are at least :math:`e^{-T} d_k`, and with :math:`S = e^{-T} \sum_B d_k` and ``c`` the mean of the rows of ``B``
under the weights ``d``

.. math:: \bar H \succeq \Lambda + e^{-T} \sum_B d_k \tilde x_k \tilde x_k^\top \quad\Rightarrow\quad
          \|\tilde x\|^2_{\bar H^{-1}} \le A^2(x) = \|x - c\|^2_{\Lambda^{-1}} + 1 / S .

The way is at most :math:`\|G\|_{\bar H^{-1}} \le \nu` long in :math:`\bar H`, so scores of ``B`` move by at most :math:`A(x_k) \nu`. Where that is below
:math:`T / M` for all of ``B``, the supposition holds: it holds near the old optimum, and on the part of the way on which it does, the directional
derivative of the convex objective is negative and the same bound holds, so that no score reaches :math:`T / M` first.

With :math:`G = r - s_i \ell'_i \tilde x_i` the row's own score moves by :math:`s_i \ell'_i \tilde x_i^\top \bar H^{-1} \tilde x_i - \tilde x_i^\top \bar H^{-1} r`:
towards the other side by at most :math:`s_i |\ell'_i| A^2(x_i)`, and by at most :math:`A(x_i) \|r\|` for what training left and for the other rows' new weights.
"""

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, intersect, unbounded, widen
from glru.linalg import FEW, Array, gamma
from glru.problem import Problem
from glru.solution import Solution
from glru.updates.carried_rows import removal_factors, rounded_norms, row_norms, weight_error

SETS = (0.25, 0.75)
"""Shares of the curvature in the intercept that the rows of ``B`` have, those nearest to the mean first."""

EXPONENTS = (0.5, 2.0, 4.0, 7.0, 10.0)
"""Values of ``T`` that are tried: a large one is met by more rows, and weakens the hold of the losses on the intercept."""


def has_centred(problem: Problem) -> bool:
    """Whether the theory applies: an intercept, every column penalised, a self-concordant loss that is not quadratic."""
    loss, strength = problem.loss, problem.penalty.strong_convexity
    return (
        problem.fit_intercept
        and problem.penalty.smooth
        and strength > 0.0
        and bool(loss.self_concordance)
        and not loss.several
    )


def centred_bounds(solution: Solution) -> Bounds:
    """Bounds of every row's score under the model trained without it."""
    problem, found = solution.problem, unbounded(solution.problem.n_rows)
    inverse = 1.0 / np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
    weights, scores, errors = problem.weights, solution.scores, solution.certificate.score_errors
    with np.errstate(all="ignore"):
        _, slopes, curvatures = problem.loss.expand(problem.y, scores)
        held = weights * curvatures
        lengths = rounded_norms(row_norms(problem), problem)
        center = problem.matrix.T @ held / held.sum()
        order = np.argsort(_distances(problem, inverse, lengths, center)[0], kind="stable")
        order = order[held[order] > 0.0]
        shares = np.cumsum(held[order])
        # What is left of the gradient: of training, and of the weights that grow.
        sums = problem.matrix.T @ (weights * slopes)
        border = float(weights @ slopes)
        slope_errors = problem.loss.slope_errors(problem.y, scores, errors)
        off = weights * (slope_errors + (gamma(problem.n_rows + 8) + FEW) * np.abs(slopes))
        off = off + weight_error(problem) * weights * np.abs(slopes)
        rest = _norm(inverse, problem.penalty.quadratic * solution.coef + sums) + 2.0 * float(off @ lengths)
        rest = rest + FEW * _norm(inverse, problem.penalty.quadratic * solution.coef)
        growing = _norm(inverse, sums) + float(off @ lengths)
        left = rest, growing, abs(border) + 2.0 * float(off.sum())
        for share in SETS if shares.size else ():
            members = order[: 1 + int(np.searchsorted(shares, share * shares[-1]))]
            bounds = _bounds(problem, inverse, lengths, (scores, slopes, errors), held, members, left)
            for lower, upper in bounds:
                found = intersect(found, (lower, upper))
    return found


def _norm(inverse: Array, vector: Array) -> float:
    """At least a norm in the inverse metric of the penalty."""
    return float(np.sqrt(vector @ (inverse * vector))) * (1.0 + gamma(vector.size + 8))


def _distances(problem: Problem, inverse: Array, lengths: Array, center: Array) -> tuple[Array, float]:
    """At least the distances of the rows from a centre in the metric of the penalty, and its own length."""
    length = _norm(inverse, center)
    squares = row_norms(problem) - 2.0 * (problem.matrix @ (inverse * center)) + length**2
    # The parts cancel; each is off by a share of (|x| + |c|)^2.
    squares = np.maximum(squares, 0.0) + 4.0 * gamma(problem.n_columns + 16) * np.square(lengths + length)
    return np.sqrt(squares) * (1.0 + FEW), length


def _bounds(
    problem: Problem,
    inverse: Array,
    lengths: Array,
    rows: tuple[Array, Array, Array],
    held: Array,
    members: NDArray[np.intp],
    left: tuple[float, float, float],
) -> list[Bounds]:
    """Bounds of all rows for one choice of ``B`` and every exponent; infinite where the supposition is not proven.

    ``rows``: scores, slopes and errors of the scores; ``held``: the weighted curvatures; ``left``: at least the norms of the gradient of all
    rows, of its part that grows with the factors, and of its entry for the intercept.
    """
    scores, slopes, errors = rows
    constant, factors = float(problem.loss.self_concordance or 0.0), removal_factors(problem)
    known = np.isfinite(factors)
    factors = np.where(known, factors, 1.0)
    chosen = np.zeros(problem.n_rows)
    chosen[members] = held[members]
    total, unit = float(chosen.sum()), gamma(problem.n_rows + 16)
    center = problem.matrix.T @ chosen / total
    distances, length = _distances(problem, inverse, lengths, center)
    # The centre was rounded: so far it is at most from the mean.
    distances = distances + 2.0 * unit * float(chosen @ lengths) / total
    length = length + 2.0 * unit * float(chosen @ lengths) / total
    # Without row i, if it is one of B, the mean is another: x_i - c_i = (x_i - c) S / (S - d_i).
    others = (total - chosen) * (1.0 - unit) - unit * total
    others = np.where(others > 0.0, others, 0.0)
    shift = chosen / others * distances * (1.0 + FEW)
    own, highest = distances + shift, float(distances[members].max()) + shift
    pulls = factors * problem.weights
    size = pulls * np.abs(slopes)
    # The slope and the weight of the row itself are off, too.
    size_off = pulls * problem.loss.slope_errors(problem.y, scores, errors) + (weight_error(problem) + FEW) * size
    found = []
    for exponent in EXPONENTS:
        weakened = np.exp(-exponent - constant * float(errors[members].max())) * (1.0 - FEW)
        hold = factors * others * weakened * (1.0 - weight_error(problem) - FEW)
        free = 1.0 / np.sqrt(hold) * (1.0 + FEW)
        squares = (np.square(own) + np.square(free)) * (1.0 + FEW)
        reach = np.sqrt(squares) * (1.0 + FEW)
        rest = left[0] + (np.abs(factors - 1.0) * (1.0 + FEW) + weight_error(problem)) * left[1]
        rest = (rest + factors * left[2] * (length + shift + free)) * (1.0 + FEW)
        nu = (size + size_off) * reach + rest
        holds = known & (constant * (highest + free) * nu * (1.0 + FEW) < exponent)
        middle = 0.5 * pulls * slopes * squares
        half = 0.5 * size * squares + size_off * squares + reach * rest + errors
        half = half * (1.0 + FEW) + FEW * (np.abs(scores) + np.abs(middle))
        holds &= np.isfinite(half) & np.isfinite(middle)
        found.append(widen(np.where(holds, scores + middle, 0.0), np.where(holds, half, np.inf)))
    return found
