"""Stepwise selection of the columns of rows in blocks, judged on validation rows that are in memory.

One pass sums the Hessian over all columns. A model of some columns is a point of the whole problem with zeros elsewhere, so its own
gradient and Hessian are parts of those sums, and so are the Newton equations of every model a move away.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, solve

from glru.bounds import ScoreBounds, unbounded
from glru.linalg import FEW, Array, as_matrix
from glru.point import Point
from glru.problem import Problem
from glru.regions.local import LocalEllipsoid
from glru.rows import Totals
from glru.selection.criteria import Criterion
from glru.selection.judge import Enough, Judge, Move, Screened, Worth
from glru.sums import Expansion, Floor, expand, objective_value, whole_gradient, whole_hessian

Columns = NDArray[np.intp]

MAX_PASSES = 30
"""Passes for one model at most: Newton steps, shortened where the objective would rise."""


@final
@dataclass(frozen=True, eq=False)
class SomeColumns:
    """Some columns of a problem: what certificates have to know of them, and their share of the sums over all columns."""

    whole: Problem
    chosen: Columns

    @cached_property
    def totals(self) -> Totals:
        """Upper bounds of sums over the rows."""
        return self.whole.totals.select(self.chosen)

    @cached_property
    def places(self) -> Columns:
        """The columns, and the intercept's place behind them."""
        last = [self.whole.n_columns] if self.whole.fit_intercept else []
        return np.append(self.chosen, last).astype(np.intp)

    def select(self, here: Expansion) -> Expansion:
        """The part of an expansion of the whole."""
        assert here.hessian is not None
        return replace(
            here, gradient=here.gradient[self.places], hessian=here.hessian[np.ix_(self.places, self.places)]
        )

    def restrict(self, point: Point) -> Point:
        """A point of the whole as one of the part."""
        return Point(point.coef[self.chosen], point.intercept)

    def pad(self, point: Point) -> Point:
        """A point of the part as one of the whole."""
        coef = np.zeros(self.whole.n_columns)
        coef[self.chosen] = point.coef
        return Point(coef, point.intercept)


@final
class BlockJudge(Judge):
    """The model of some columns, judged on validation rows; every model it looks at costs passes of its own, one to three as a rule."""

    def __init__(self, whole: Problem, chosen: Columns, X: Array, y: Array, criterion: Criterion, start: Point) -> None:
        self.whole, self.chosen, self.X, self.y, self.criterion = whole, chosen, X, y, criterion
        self.point = start
        self.here: Expansion | None = None
        self._starts: dict[Move, Point] = {}

    @property
    def n_rows(self) -> int:
        return int(self.y.size)

    def value(self) -> Worth:
        worth, self.point, self.here = self._pursued(self.chosen, self.point, lambda low, high: False, 0.0)
        return worth

    def screen(self, moves: list[Move], method: str, check: Callable[[], None]) -> Screened:
        """Nothing: a move is known once it is looked at."""
        count = len(moves)
        return Screened(np.zeros(count), np.full(count, np.inf), np.zeros(count), "newton")

    def look(self, move: Move, enough: Enough, method: str, tol: float) -> Worth:
        worth, self._starts[move], _ = self._pursued(self._after(move), self._started(move), enough, self._fine)
        return worth

    def after(self, move: Move) -> "BlockJudge":
        start = self._starts[move] if move in self._starts else self._started(move)
        return BlockJudge(self.whole, self._after(move), self.X, self.y, self.criterion, start)

    def _after(self, move: Move) -> Columns:
        changed = np.array(move.columns, dtype=np.intp)
        return np.union1d(self.chosen, changed) if move.add else np.setdiff1d(self.chosen, changed)

    @property
    def _fine(self) -> float:
        """A sum known up to this is known well enough; the present model's sum tells the scale."""
        if self.criterion.counts:
            return 0.0
        return 0.05 * self.criterion.resolution * self._guess(self.chosen, self.point)

    def _expanded(self) -> Expansion:
        if self.here is None:
            self.here = expand(self.whole, self.point, Floor.of(self.whole.loss))
        return self.here

    def _started(self, move: Move) -> Point:
        """Where the quadratic model of the whole problem at the present model is least on the columns after a move."""
        part, here, totals = SomeColumns(self.whole, self._after(move)), self._expanded(), self.whole.totals
        assert here.hessian is not None
        upper = whole_hessian(totals, here.hessian)
        full: Array = np.triu(upper) + np.triu(upper, 1).T
        gradient = whole_gradient(totals, self.point, here.gradient)
        gone = np.setdiff1d(self.chosen, part.chosen)
        right = full[np.ix_(part.places, gone)] @ self.point.coef[gone] - gradient[part.places]
        step: Array
        try:
            step = solve(full[np.ix_(part.places, part.places)], right, assume_a="pos", check_finite=False)
        except (LinAlgError, ValueError):
            step = np.zeros(part.places.size)
        return part.pad(part.restrict(self.point).moved(step))

    def _pursued(self, chosen: Columns, point: Point, enough: Enough, fine: float) -> tuple[Worth, Point, Expansion]:
        """The worth of a model of some columns after Newton steps, where they ended and the sums there."""
        part, before, value, length = SomeColumns(self.whole, chosen), np.inf, np.inf, 1.0
        last, direction = part.restrict(point), np.zeros(part.places.size)
        queries, zero = as_matrix(self.X[:, chosen]), self._zero(chosen)
        found = ScoreBounds(*unbounded(self.n_rows))
        for step in range(MAX_PASSES):
            here = expand(self.whole, point, Floor.of(self.whole.loss))
            if not part.places.size:
                found = ScoreBounds(np.zeros(self.n_rows), np.zeros(self.n_rows))
                break
            mine, sums = part.restrict(point), part.select(here)
            now = objective_value(part.totals, mine, sums)
            if not now <= value + FEW * abs(value):
                length *= 0.25
                point = part.pad(last.moved(direction, length))
                continue
            region = LocalEllipsoid.of_sums(part.totals, mine, sums)
            if np.isfinite(region.radius):
                found = found.intersect(region.score_bounds(queries))
                low, high = self._sums(*found, zero)
                if high - low <= fine * (1.0 - FEW) or enough(low, high):
                    break
            if (not region.nu < before and not now < value) or step == MAX_PASSES - 1:
                break
            before, value, last, length = region.nu, now, mine, 1.0
            direction = region.step
            point = part.pad(mine.moved(direction))
        stage = "newton" if step == 0 else "refine"
        return Worth(*self._sums(*found, zero), stage, self._guess(chosen, point)), point, here

    def _zero(self, chosen: Columns) -> NDArray[np.bool_]:
        """Rows whose score is exactly zero whatever the coefficients."""
        if self.whole.fit_intercept:
            return np.zeros(self.n_rows, dtype=bool)
        return np.asarray(~(self.X[:, chosen] != 0.0).any(axis=1))

    def _sums(self, lower: Array, upper: Array, zero: NDArray[np.bool_]) -> tuple[float, float]:
        low, high = self.criterion.sums(self.y, np.where(zero, 0.0, lower), np.where(zero, 0.0, upper))
        return float(low), float(high)

    def _guess(self, chosen: Columns, point: Point) -> float:
        """The sum of a model as it is."""
        scores = self.X[:, chosen] @ point.coef[chosen] + point.intercept
        return self._sums(scores, scores, self._zero(chosen))[1]
