"""Leave-one-out removals from tall data in batches: Newton candidates written down in full, each with its Fenchel-Young gap.

A batch is a matrix of coefficient vectors; scores and correlations are two products with X. Nothing but products of stored
numbers enters a certificate.
"""

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, widen
from glru.certificate import ball_radius, loss_terms
from glru.linalg import FEW, Array, arrays_of, gamma, to_host
from glru.linalg.factor import cholesky_solve, robust_cholesky
from glru.problem import Problem
from glru.solution import Solution
from glru.updates.carried_rows import rounded_norms, row_norms, sum_error

Rows = NDArray[np.intp]


def has_newton_rows(problem: Problem) -> bool:
    """Whether :class:`TallRows` applies: a smooth loss, an L2 penalty on every column, no intercept."""
    return (
        np.isfinite(problem.loss.smoothness)
        and problem.penalty.smooth
        and problem.penalty.strong_convexity > 0.0
        and not problem.fit_intercept
        and problem.n_columns <= min(problem.n_rows, problem.largest)
    )


def penalty_sums(
    problem: Problem, weights: Array, coefs: Any, correlations: Any, length: Array, moves: Array | float = 0.0
) -> Array:
    """At least the penalty's Fenchel-Young sums, ``(lam w - v)^2 / (2 lam)`` with the largest ``v`` within its error.

    Parameters
    ----------
    problem, weights : Problem, array
        The data, and the new weights of the rows.
    coefs, correlations : array of shape (n_columns, n_models)
        The models and the computed ``v``.
    length : array of shape (n_models,)
        At least ``sqrt(sum_i s_i a_i^2)``.
    moves : array, default=0.0
        At least how far the exact ``v`` may be from what was to be computed, in the inverse metric of the penalty.
    """
    arrays = problem.arrays
    spread = np.sqrt(weights.sum() / problem.weights.sum()) * (1.0 + gamma(problem.n_rows + 8))
    slack = sum_error(problem.n_rows) * spread * problem.column_norms * (1.0 + FEW)
    lam = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
    scaled = arrays.put(lam)[:, None] * coefs
    off = arrays.xp.abs(scaled - correlations) + arrays.put(slack[: problem.n_columns])[:, None] * arrays.put(length)
    off += FEW * (arrays.xp.abs(scaled) + arrays.xp.abs(correlations))
    # Divided first: squares of small correlations may underflow where these terms do not.
    off *= arrays.put(np.sqrt(1.0 / lam))[:, None]
    return 0.5 * np.square(np.sqrt(arrays.inner(off, off)) + moves) * (1.0 + gamma(problem.n_columns + 8) + FEW)


def removal_gaps(
    problem: Problem,
    weights: Array,
    rows: Rows,
    scores: Any,
    errors: Any,
    dual: Any,
    penalty: Array,
    moves: Any = None,
) -> Array:
    """At least the gaps of candidates without a row each, from their scores and dual variables (a column each).

    ``penalty``: at least the penalty's part; ``moves``: at most how far feasible dual variables are from these.
    """
    arrays = arrays_of(scores)
    terms = loss_terms(problem.loss, arrays.put(problem.y)[:, None], scores, errors, dual, moves)
    terms = arrays.zero_out(terms, (rows, np.arange(rows.size)))
    if not weights.all():
        terms = arrays.without_rows(terms, weights == 0.0)
    losses = to_host(arrays.put(weights) @ terms) * (1.0 + sum_error(problem.n_rows))
    gaps = (losses + penalty) * (1.0 + FEW)
    return np.where(np.isfinite(gaps), gaps, np.inf)


@final
class TallRows:
    """Newton candidates for the removal of single rows as coefficient vectors, with weights multiplied by one factor."""

    def __init__(self, solution: Solution, factor: float) -> None:
        problem = self.problem = solution.problem
        self.solution, self.weights = solution, factor * problem.weights
        lam = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
        self.norms = rounded_norms(row_norms(problem), problem)
        _, self.slopes, self.curvatures = problem.loss.expand(problem.y, solution.scores)
        self.factor = robust_cholesky(problem.hessian(self.weights * self.curvatures))
        gradient = problem.matrix.T @ (self.weights * self.slopes) + lam * solution.coef
        self.step = cholesky_solve(self.factor, -gradient)

    def _candidates(self, rows: Rows) -> tuple[Any, Any, NDArray[np.bool_]]:
        """The rows as columns, the coefficients after one Newton step without each, and whether there is such a step."""
        arrays, part = self.problem.arrays, self.problem.matrix[rows]
        block = part.block().T
        images = cholesky_solve(self.factor, block)
        leverage = self.weights[rows] * self.curvatures[rows] * arrays.inner(block, images)
        moves = part @ self.step
        with np.errstate(all="ignore"):
            change = self.weights[rows] * (self.slopes[rows] + self.curvatures[rows] * moves) / (1.0 - leverage)
        usable = np.isfinite(change) & (leverage < 1.0)
        start = arrays.put(self.solution.coef + self.step)[:, None]
        return block, start + images * arrays.put(np.where(usable, change, 0.0)), usable

    def guesses(self, rows: Rows) -> Array:
        """The removed rows' scores after one Newton step each, without proof."""
        block, coefs, usable = self._candidates(rows)
        return np.where(usable, self.problem.arrays.inner(block, coefs), np.nan)

    def bounds(self, rows: Rows) -> Bounds:
        """Bounds of the removed rows' scores after one Newton step each."""
        problem, arrays, X = self.problem, self.problem.arrays, self.problem.matrix
        _, coefs, usable = self._candidates(rows)
        scores = X @ coefs
        moves = scores - arrays.put(self.solution.scores)[:, None]
        dual = self._linear(self.slopes[:, None], self.curvatures[:, None], moves, rows)
        sizes = np.sqrt(arrays.inner(coefs, coefs)) * (1.0 + gamma(problem.n_columns + 8))
        plain = np.sqrt(problem.squared_row_norms) * (1.0 + gamma(problem.n_columns + 4))
        unit = gamma(problem.n_columns + 2)
        errors = arrays.put(unit * plain)[:, None] * arrays.put(sizes)
        weights = arrays.put(self.weights)
        length = np.sqrt(to_host(weights @ (dual * dual))) * (1.0 + gamma(problem.n_rows + 4))
        penalty = penalty_sums(problem, self.weights, coefs, X.T @ (weights[:, None] * dual), length)
        own = unit * plain[rows] * sizes * (1.0 + FEW)
        lower, upper = self._ball(rows, scores, errors, dual, penalty, own)
        return np.where(usable, lower, -np.inf), np.where(usable, upper, np.inf)

    def _ball(self, rows: Rows, scores: Any, errors: Any, dual: Any, penalty: Array, center_error: Array) -> Bounds:
        """Primal-SCB at each removed row, from the scores and dual variables of its candidate (a column each)."""
        gaps = removal_gaps(self.problem, self.weights, rows, scores, errors, dual, penalty)
        center = arrays_of(scores).entries(scores, (rows, np.arange(rows.size)))
        return widen(center, ball_radius(gaps) * self.norms[rows] * (1.0 + FEW) + center_error)

    def _linear(self, slopes: Any, curvatures: Any, moves: Any, rows: Rows) -> Any:
        """The linearised dual points, projected onto the domain, zero at the removed rows."""
        arrays = arrays_of(moves)
        slopes, curvatures = arrays.put(slopes), arrays.put(curvatures)
        dual = -self.problem.loss.project(self.problem.y[:, None], slopes + curvatures * moves)
        return arrays.zero_out(dual, (rows, np.arange(rows.size)))
