"""Leave-one-out removals of the hinge loss by dual coordinate ascent from the old optimum, a few passes over X for each open row.

Without a row, the other rows' dual variables are nearly as they were: where X is sparse, passes over them cost far less than a training. The passes only
propose dual points. What is proven is the duality gap of each at the coefficients that it gives, by products with X for many rows at once.
"""

from typing import final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, intersect, unbounded
from glru.linalg import Array
from glru.losses import Hinge
from glru.metric.rows import RowSide
from glru.problem import Problem
from glru.solution import Solution
from glru.updates.batch import Decided
from glru.updates.carried_rows import removal_factors
from glru.updates.centred_rows import Balls
from glru.updates.row_models import RowModels

Rows = NDArray[np.intp]

ROUNDS = (2, 2, 4, 8, 16)
"""Passes between certificates; what all of them leave open is left to other steps."""

SMALL_SHARE = 0.03
"""Rows whose share of the gap is below this much of the mean stay as they are in a pass."""

CERTIFIED_ENTRIES = 1 << 20
"""Entries of the arrays of dual points that are certified at once."""


def has_ascent(problem: Problem) -> bool:
    """Whether there is a pass: the hinge loss without an intercept, and an L2 penalty on every column."""
    penalised = problem.penalty.smooth and problem.penalty.strong_convexity > 0.0
    return penalised and isinstance(problem.loss, Hinge) and not problem.fit_intercept and problem.arrays.stable


@final
class AscentRows(RowModels):
    """The removal of single rows, each by passes of its own."""

    def __init__(self, solution: Solution) -> None:
        problem = solution.problem
        super().__init__(problem, RowSide.of_products(problem))
        self.factors = removal_factors(problem)
        self.slopes = np.clip(problem.y * solution.dual, 0.0, 1.0)
        lam = problem.penalty.quadratic
        self.scale = float(1.0 / lam) if lam.ndim == 0 else 1.0
        self.X = problem.matrix if lam.ndim == 0 else problem.matrix.scale_columns(1.0 / np.sqrt(lam))
        self.squares = self.scale * self.X.squared_row_norms()
        self.order = np.random.default_rng(0).permutation(problem.n_rows)
        self.balls = Balls(self, solution.scores, np.zeros(0), self.factors)

    def bounds(self, rows: Rows, decided: Decided) -> Bounds:
        """Bounds of the removed rows' scores; rows leave as they are decided."""
        lower, upper = unbounded(rows.size)
        width = max(1, CERTIFIED_ENTRIES // max(self.problem.n_rows, self.problem.n_columns))
        for first in range(0, rows.size, width):
            here = np.arange(first, min(first + width, rows.size))
            here = here[np.isfinite(self.factors[rows[here]])]
            lower[here], upper[here] = self._together(rows[here], decided)
        return lower, upper

    def _together(self, rows: Rows, decided: Decided) -> Bounds:
        found, places, slopes = unbounded(rows.size), np.arange(rows.size), np.tile(self.slopes, (rows.size, 1))
        slopes[places, rows] = 0.0
        for n_passes in ROUNDS if rows.size else ():
            for k, row in enumerate(rows[places]):
                self._ascend(int(row), slopes[k], n_passes)
            weights = self.problem.weights[:, None] * self.factors[rows[places]]
            entries = rows[places], np.arange(places.size)
            free = np.zeros((0, places.size))
            duals, scores, gaps = self.gaps(weights, weights * (self.problem.y[:, None] * slopes.T), entries, free)
            half, _ = self.balls.half_widths(rows[places], duals, scores, free, gaps)
            ball = self.widened(self.arrays.entries(scores, entries), half)
            lower, upper = intersect((found[0][places], found[1][places]), ball)
            found[0][places], found[1][places] = lower, upper
            left = ~decided(lower, upper)
            places, slopes = places[left], slopes[left]
            if not places.size:
                break
        return found

    def _ascend(self, row: int, slopes: Array, n_passes: int) -> None:
        """Passes over the other rows' dual variables, in place."""
        problem, order = self.problem, self.order[self.order != row]
        weights = self.factors[row] * problem.weights
        steps, signed = weights * self.squares, weights * problem.y * slopes
        # A row of zeros has the score 0 under every model.
        steps[row] = 0.0
        v, shares, skip = self.X.T @ signed, np.zeros(problem.n_rows), 0.0
        for _ in range(n_passes):
            self.X.dual_pass(problem.y, weights, self.scale, steps, order, False, skip, slopes, v, np.zeros(3), shares)
            skip = SMALL_SHARE * float(shares.sum()) / problem.n_rows
