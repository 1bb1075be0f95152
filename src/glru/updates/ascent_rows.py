"""Leave-one-out removals by dual coordinate ascent from the old optimum, a few passes over X for each open row.

Without a row, the other rows' dual variables are nearly as they were: where X is sparse, passes over them cost far less than a factor in the
dimension of the rows. The passes only propose dual points. What is proven is the duality gap of each at the coefficients that it gives,
by products with X for many rows at once.
"""

from collections.abc import Callable
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, intersect, unbounded
from glru.linalg import Array
from glru.losses import Hinge, Logistic
from glru.metric.rows import RowSide
from glru.problem import Problem
from glru.solution import Solution
from glru.solvers.dual_cd import PROXIMAL_SHARE
from glru.updates.batch import Decided
from glru.updates.carried_rows import removal_factors
from glru.updates.centred_rows import Balls
from glru.updates.row_models import RowModels

Rows = NDArray[np.intp]
Start = Callable[[Rows], tuple[Array, Array]]

ROUNDS = (2, 2, 4, 8, 16)
"""Passes between certificates; what all of them leave open is left to other steps."""

USUAL_PASSES = 16.0
"""Passes that a row takes, its certificates included."""

SMALL_SHARE = 0.03
"""Rows whose share of the gap is below this much of the mean stay as they are in a pass."""

LEAST_CURVATURE = 1e-9
"""The curvature that the losses have in the intercept is taken for at least this share of their weights."""

CERTIFIED_ENTRIES = 1 << 20
"""Entries of the arrays of dual points that are certified at once."""


def has_ascent(problem: Problem) -> bool:
    """Whether there is a pass: the logistic loss, or the hinge loss without an intercept, and an L2 penalty on every column."""
    penalised = problem.penalty.smooth and problem.penalty.strong_convexity > 0.0
    known = isinstance(problem.loss, Logistic) or (isinstance(problem.loss, Hinge) and not problem.fit_intercept)
    return penalised and known and problem.arrays.stable


def estimate_ascent_cost(problem: Problem, n_rows: int) -> float:
    """What some rows cost, as a product with X costs."""
    return USUAL_PASSES * n_rows * problem.matrix.product_cost


@final
class AscentRows(RowModels):
    """The removal of single rows, each by passes of its own."""

    def __init__(self, solution: Solution) -> None:
        problem = solution.problem
        super().__init__(problem, RowSide.of_products(problem))
        self.factors = removal_factors(problem)
        self.logistic = isinstance(problem.loss, Logistic)
        self.slopes = np.clip(problem.y * solution.dual, 0.0, 1.0)
        lam = problem.penalty.quadratic
        self.scale = float(1.0 / lam) if lam.ndim == 0 else 1.0
        self.X = problem.matrix if lam.ndim == 0 else problem.matrix.scale_columns(1.0 / np.sqrt(lam))
        self.squares = self.scale * self.X.squared_row_norms()
        self.order = np.random.default_rng(0).permutation(problem.n_rows)
        curvatures = (
            problem.weights * problem.loss.curvature(problem.y, solution.scores) if self.logistic else np.zeros(0)
        )
        self.intercept = float(solution.intercept)
        self.curvature = max(float(curvatures.sum()), LEAST_CURVATURE * float(problem.weights.sum()))
        self.balls = Balls(self, solution.scores, curvatures, self.factors)

    def bounds(self, rows: Rows, decided: Decided, start: Start | None = None) -> Bounds:
        """Bounds of the removed rows' scores; rows leave as they are decided.

        ``start``: ``b`` and ``beta`` of some rows' models, one per column, to start from instead of the old one.
        """
        lower, upper = unbounded(rows.size)
        width = max(1, CERTIFIED_ENTRIES // max(self.problem.n_rows, self.problem.n_columns))
        for first in range(0, rows.size, width):
            here = np.arange(first, min(first + width, rows.size))
            here = here[np.isfinite(self.factors[rows[here]])]
            lower[here], upper[here] = self._together(rows[here], decided, start)
        return lower, upper

    def _starts(self, rows: Rows, start: Start | None) -> tuple[Array, Array]:
        """The signed dual variables and the intercepts to start from, one row each."""
        problem, slopes, intercepts = (
            self.problem,
            np.tile(self.slopes, (rows.size, 1)),
            np.full(rows.size, self.intercept),
        )
        if start is not None:
            duals, free = start(rows)
            near = (problem.y[:, None] * duals).T / np.where(problem.weights > 0.0, problem.weights, np.inf)
            near /= self.factors[rows][:, None]
            slopes = np.where(np.isfinite(near), np.clip(near, 0.0, 1.0), slopes)
            if problem.fit_intercept:
                intercepts = np.where(np.isfinite(free[0]), free[0], intercepts)
        slopes[np.arange(rows.size), rows] = 0.0
        return slopes, intercepts

    def _together(self, rows: Rows, decided: Decided, start: Start | None) -> Bounds:
        found, places, (slopes, intercepts) = unbounded(rows.size), np.arange(rows.size), self._starts(rows, start)
        for n_passes in ROUNDS if rows.size else ():
            for k, row in enumerate(rows[places]):
                intercepts[k] = self._ascend(int(row), slopes[k], intercepts[k], n_passes)
            weights = self.problem.weights[:, None] * self.factors[rows[places]]
            entries = rows[places], np.arange(places.size)
            duals, free = weights * (self.problem.y[:, None] * slopes.T), intercepts[None, :]
            free = free if self.problem.fit_intercept else free[:0]
            duals, scores, gaps = self.gaps(weights, duals, entries, free)
            half, _ = self.balls.half_widths(rows[places], duals, scores, free, gaps)
            ball = self.widened(self.arrays.entries(scores, entries), half)
            lower, upper = intersect((found[0][places], found[1][places]), ball)
            found[0][places], found[1][places] = lower, upper
            left = ~decided(lower, upper)
            places, slopes, intercepts = places[left], slopes[left], intercepts[left]
            if not places.size:
                break
        return found

    def _ascend(self, row: int, slopes: Array, intercept: float, n_passes: int) -> float:
        """Passes over the other rows' dual variables, in place; returns the intercept, which a proximal term holds."""
        problem, order = self.problem, self.order[self.order != row]
        weights = self.factors[row] * problem.weights
        slant = 1.0 / (PROXIMAL_SHARE * self.curvature) if problem.fit_intercept else 0.0
        steps, signed = weights * (self.squares + slant), weights * problem.y * slopes
        shift = np.array([intercept, slant, float(signed.sum())])
        # A row of zeros has the score 0 under every model.
        steps[row] = 0.0
        v, shares, skip = self.X.T @ signed, np.zeros(problem.n_rows), 0.0
        for _ in range(n_passes):
            self.X.dual_pass(
                problem.y, weights, self.scale, steps, order, self.logistic, skip, slopes, v, shift, shares
            )
            skip = SMALL_SHARE * float(shares.sum()) / problem.n_rows
            shift[0] += slant * shift[2]
        return float(shift[0])
