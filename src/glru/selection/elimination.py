"""Elimination of features by the size of their coefficients, every choice and every score proven."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru._options import Budget
from glru.bounds import Bounds, intersect, unbounded
from glru.linalg import Array, Matrix
from glru.problem import Point, Problem
from glru.refine import newton_ellipsoids
from glru.regions import list_regions
from glru.regions.gap import Region, centers
from glru.regions.local import has_local
from glru.selection.criteria import Criterion
from glru.selection.judge import ROUGH
from glru.selection.moves import Columns, Model
from glru.solvers import train

TRAINING_SHARES = (1e-3, 1e-6, 1e-9)
"""Models without a local certificate are trained to these shares of the tolerance, one after the other, while anything is open."""


@final
@dataclass(frozen=True, eq=False)
class Stage:
    """The model of some columns in the course of an elimination."""

    # Its columns, and those of them that leave next: the ones of the smallest coefficients, of equal ones the first.
    columns: Columns
    gone: Columns
    # Proven bounds of the criterion's sum over the rows that judge, and the sum at the trained model.
    lower: float
    upper: float
    guess: float
    proven: bool  # whether the columns that leave are proven to be these


@final
class Judged:
    """Rows that judge the models of an elimination."""

    def __init__(self, X: Matrix, y: Array, criterion: Criterion) -> None:
        self.X, self.y, self.criterion = X, y, criterion

    def sum_bounds(self, lower: Array, upper: Array) -> tuple[float, float]:
        """Bounds of the criterion's sum."""
        low, high = self.criterion.sum_bounds(self.y, lower, upper)
        return float(low), float(high)


def eliminate(
    problem: Problem, n_left: list[int], n_kept: int, tol: float, budget: Budget, judged: Judged | None = None
) -> Iterator[Stage]:
    """The models of an elimination from all columns on, whose numbers of columns besides those that stay are ``n_left``.

    The first ``n_kept`` columns always stay.
    """
    chosen, start = np.arange(problem.n_columns), None
    for size, following in zip(n_left, [*n_left[1:], n_left[-1]], strict=True):
        model = Model(problem, chosen, tol, start, budget)
        here = Narrowed(model, size - following, n_kept, judged)
        yield here.stage
        kept = ~np.isin(chosen, here.stage.gone)
        chosen = chosen[kept]
        start = Point(here.point.coef[kept], here.point.intercept, model.solution.dual) if not kept.all() else None


@final
class Narrowed:
    """One model of an elimination, its coefficients and scores bounded until what is asked for is proven or bounds get no tighter."""

    def __init__(self, model: Model, n_gone: int, n_kept: int, judged: Judged | None) -> None:
        self.model, self.n_gone, self.n_kept, self.judged = model, n_gone, n_kept, judged
        X = None if judged is None else judged.X
        self.queries = None if X is None else X if model.chosen.size == X.shape[1] else X[:, model.chosen]
        self.coef: Bounds = unbounded(model.chosen.size)
        self.scores: Bounds = unbounded(0 if self.queries is None else self.queries.shape[0])
        self.point = model.solution.point
        self._narrow()
        self.stage = self._stage()

    def _narrow(self) -> None:
        problem, model = self.model.problem, self.model
        if has_local(problem):
            for ellipsoid in newton_ellipsoids(problem, self.point):
                self._take(ellipsoid)
                if self._is_decided():
                    return
                model.budget.check()
            return
        solution = model.solution
        for share in (1.0, *TRAINING_SHARES):
            if share < 1.0:
                solution = train(problem, tol=share * model.tol, start=solution, budget=model.budget)
                self.point = solution.point
            for region in list_regions(solution.certificate, problem.fit_intercept):
                self._take(region)
            model.budget.check()
            if self._is_decided():
                return

    def _take(self, region: Region) -> None:
        self.coef = intersect(self.coef, region.coef_bounds())
        if self.queries is not None:
            self.scores = intersect(self.scores, region.score_bounds(self.queries))

    def _is_decided(self) -> bool:
        return self._order()[1] and self._sum_is_known()

    def _sum_is_known(self) -> bool:
        if self.judged is None:
            return True
        low, high = self.judged.sum_bounds(*self.scores)
        return bool(self.judged.criterion.is_known(ROUGH, low, high))

    def _order(self) -> tuple[NDArray[np.intp], bool]:
        """The places of the columns that leave, and whether they are proven to be those of the smallest coefficients."""
        lower, upper = self.coef
        places = np.arange(self.n_kept, lower.size)
        order = places[np.argsort(np.abs(self.point.coef[places]), kind="stable")]
        gone, rest = order[: self.n_gone], order[self.n_gone :]
        largest = np.maximum(np.abs(lower), np.abs(upper))[gone].max(initial=0.0)
        smallest = np.maximum(np.maximum(lower, -upper), 0.0)[rest].min(initial=np.inf)
        return gone, bool(self.n_gone == 0 or largest < smallest)

    def _stage(self) -> Stage:
        gone, proven = self._order()
        low = high = guess = 0.0
        if self.judged is not None and self.queries is not None:
            low, high = self.judged.sum_bounds(*self.scores)
            middle, off = centers(self.queries, self.point.coef, self.point.intercept)
            guess = float(np.clip(self.judged.sum_bounds(middle - off, middle + off)[1], low, high))
            guess = guess if np.isfinite(guess) else low
        return Stage(self.model.chosen, self.model.chosen[gone], low, high, guess, proven)


def sizes_of(n_columns: int, step: float, n_least: int) -> list[int]:
    """The numbers of columns of an elimination: ``step`` of them leave at a time, or that share of all."""
    n_gone = max(1, int(step * n_columns)) if 0.0 < step < 1.0 else int(step)
    sizes = [n_columns]
    while sizes[-1] > n_least:
        sizes.append(max(sizes[-1] - n_gone, n_least))
    return sizes
