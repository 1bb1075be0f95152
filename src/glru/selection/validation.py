"""A model judged on validation rows."""

from functools import cached_property
from math import fsum
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.certificate import Certificate, certify
from glru.linalg import Array, Matrix
from glru.point import Point
from glru.problem import Problem
from glru.refine import NEWTON_STEPS, certified_bounds, refine
from glru.regions import EVERY, PAPER
from glru.regions.gap import centers
from glru.selection.criteria import Criterion
from glru.selection.judge import Check, Columns, Enough, Judge, Model, Move, Screened, Worth, same_columns
from glru.solvers import solve
from glru.updates.carried_rows import has_carried
from glru.updates.columns import (
    LocalColumns,
    WideColumns,
    carried_columns,
    has_local_columns,
    has_wide_columns,
)

WIDEST = 1000
"""Additions are handled in the dimension of the rows up to so many rows, or as many as there are columns."""

BATCH_STEPS = 6
"""Steps with the old Hessian for removals that share one metric."""


@final
class ValidationJudge(Judge):
    """A model judged on validation rows."""

    def __init__(self, model: Model, X: Matrix, y: Array, criterion: Criterion) -> None:
        self.model, self.X, self.y, self.criterion = model, X, y, criterion
        self._local: LocalColumns | None = None

    @property
    def n_rows(self) -> int:
        return int(self.y.size)

    def value(self) -> Worth:
        solution = self.model.solution
        return self._pursued(
            self.model.problem, solution.point, self.model.chosen, lambda *_: False, certificate=solution.certificate
        )

    def _pursued(
        self,
        problem: Problem,
        point: Point,
        chosen: Columns,
        enough: Enough,
        newton: bool = True,
        certificate: Certificate | None = None,
    ) -> Worth:
        queries, zero = self._queries(chosen), self._zero(chosen)

        def settled(lower: Array, upper: Array) -> bool:
            low, high = self._sums(lower, upper, zero)
            return high - low <= self._fine or enough(low, high)

        found = refine(problem, point, queries, settled, EVERY if newton else PAPER, certificate)
        return Worth(*self._sums(found.lower, found.upper, zero), found.stage, self._guess(queries, found.point, zero))

    def _guess(self, queries: Matrix, point: Point, zero: NDArray[np.bool_]) -> float:
        """The sum of a model as it is; a score within its rounding error of zero counts as an error."""
        middle, off = centers(queries, point.coef, point.intercept)
        return self._sums(middle - off, middle + off, zero)[1]

    def screen(self, moves: list[Move], method: str, check: Check) -> Screened:
        lower = np.full((self.n_rows, len(moves)), -np.inf)
        upper = np.full((self.n_rows, len(moves)), np.inf)
        alone = np.ones(len(moves), dtype=bool)
        for add in (False, True):
            places = np.array([k for k, m in enumerate(moves) if m.add == add and len(m.columns) == 1], dtype=np.intp)
            columns = np.array([moves[k].columns[0] for k in places], dtype=np.intp)
            bounds = self._family(columns, add, method, check) if places.size else None
            if bounds is not None:
                lower[:, places], upper[:, places] = bounds
                alone[places] = False
        for k in np.flatnonzero(alone).tolist():
            check()
            problem, point, chosen = self.model.trial(moves[k], carried=True)
            lower[:, k], upper[:, k] = certified_bounds(certify(problem, point), self._queries(chosen))
        zero = self._zero_after(moves)
        lower[zero] = upper[zero] = 0.0
        low, high = self.criterion.terms(self.y[:, None], lower, upper)
        with np.errstate(invalid="ignore"):
            certain = high - low <= self._fine / max(self.n_rows, 1)
        family = not alone.all() and method == "certified"
        return Screened(*self.criterion.added(low, high), certain.sum(axis=0), "newton" if family else "carry")

    def _family(self, columns: Columns, add: bool, method: str, check: Check) -> tuple[Array, Array] | None:
        """Bounds of the queries' scores for moves of single columns; None where no family applies."""
        problem, whole = self.model.problem, self.model.whole
        queries = self._queries(self.model.chosen)
        if method != "certified":
            if method == "glru" and not add and has_carried(problem) and problem.penalty.smooth:
                return carried_columns(self.model.solution, queries, np.searchsorted(self.model.chosen, columns))
        elif self._has_wide(columns) and self._rows_are_few(add):
            lam = np.broadcast_to(whole.penalty.quadratic, (whole.n_columns,))[columns]

            def make(start: int, stop: int) -> tuple[Array, Array]:
                check()
                here = columns[start:stop]
                return whole.matrix.block(here), self.X.block(here)

            return self._wide.bounds(make, lam, 1.0 if add else -1.0, columns.size)
        elif not add and has_local_columns(problem):
            local = self._local = LocalColumns(problem, self.model.near, queries)

            def settled(lower: Array, upper: Array) -> NDArray[np.bool_]:
                check()
                return self._columns_settled(lower, upper)

            return local.bounds(np.searchsorted(self.model.chosen, columns), settled, BATCH_STEPS)
        return None

    def _has_wide(self, columns: Columns) -> bool:
        """Whether :class:`WideColumns` applies to moves of some columns: those that come need squares alone, too."""
        penalty = self.model.whole.penalty.select(columns)
        return has_wide_columns(self.model.problem) and penalty.smooth and penalty.strong_convexity > 0.0

    @cached_property
    def _wide(self) -> WideColumns:
        return WideColumns(self.model.solution, self._queries(self.model.chosen))

    def _rows_are_few(self, add: bool) -> bool:
        n_rows = self.model.problem.n_rows
        if add:
            return n_rows <= max(WIDEST, self.model.whole.n_columns)
        return n_rows < self.model.problem.n_columns or not has_local_columns(self.model.problem)

    def _columns_settled(self, lower: Any, upper: Any) -> NDArray[np.bool_]:
        """Which removals are known well enough, or worse than another."""
        low, high = self.criterion.sums(self.y[:, None], lower, upper)
        return (high - low <= self._fine) | (low > high.min(initial=np.inf))

    def look(self, move: Move, enough: Enough, method: str, tol: float) -> Worth:
        alone = len(move.columns) == 1 and self._has_wide(np.array(move.columns, dtype=np.intp))
        if method == "certified" and "_wide" in self.__dict__ and alone:
            low, high, done = self._refined(move, enough)
            if done:
                return Worth(low, high, "refine", high)
        problem, point, chosen = self.model.trial(move)
        if method == "naive":
            value = self._guess(self._queries(chosen), solve(problem, tol=tol, start=point).point, self._zero(chosen))
            return Worth(value, value, "training", value)
        return self._pursued(problem, point, chosen, enough, newton=method == "certified")

    def _refined(self, move: Move, enough: Enough) -> tuple[float, float, bool]:
        """More Newton steps for one move in the dimension of the rows, and whether they settled it."""
        (column,) = move.columns
        whole, zero = self.model.whole, self._zero_after([move])[:, 0]

        def settled(lower: Array, upper: Array) -> bool:
            low, high = self._sums(lower, upper, zero)
            return high - low <= self._fine or enough(low, high)

        place = np.array([column])
        lam = float(np.broadcast_to(whole.penalty.quadratic, (whole.n_columns,))[column])
        vectors = whole.matrix.dense(place)[:, 0], self.X.dense(place)[:, 0]
        bounds = self._wide.refined(*vectors, lam, 1.0 if move.add else -1.0, settled, NEWTON_STEPS)
        return *self._sums(*bounds, zero), settled(*bounds)

    def after(self, move: Move) -> "ValidationJudge":
        start = None
        if self._local is not None and len(move.columns) == 1 and not move.add:
            start = self._local.candidate(int(np.searchsorted(self.model.chosen, move.columns[0])))
        return ValidationJudge(self.model.after(move, start), self.X, self.y, self.criterion)

    def ties(self, moves: list[Move], check: Check) -> list[int]:
        whole = self.model.whole
        if whole.matrix.only_products:
            return super().ties(moves, check)
        labels = same_columns(moves, [whole.matrix, self.X], whole.penalty)
        for k, move in enumerate(moves):
            check()
            labels[k] = 0 if self.model.leaves_all_scores(move) else labels[k]
        return labels

    @cached_property
    def _fine(self) -> float:
        """A sum known up to this is known well enough; the present model's sum tells the scale."""
        if self.criterion.counts:
            return 0.0
        solution = self.model.solution
        scores = self._queries(self.model.chosen) @ solution.coef + solution.intercept
        return 0.05 * self.criterion.resolution * float(self.criterion.terms(self.y, scores, scores)[1].sum())

    def _sums(self, lower: Array, upper: Array, zero: NDArray[np.bool_]) -> tuple[float, float]:
        low, high = self.criterion.sums(self.y, np.where(zero, 0.0, lower), np.where(zero, 0.0, upper))
        return float(low), float(high)

    def _queries(self, chosen: Columns) -> Matrix:
        return self.X if chosen.size == self.X.shape[1] else self.X[:, chosen]

    @cached_property
    def _filled(self) -> NDArray[np.bool_]:
        """Which entries of the validation rows can contribute to a score."""
        return (self.X.dense() != 0.0) & ~self.model.whole.dead_columns

    def _zero(self, chosen: Columns) -> NDArray[np.bool_]:
        """Rows whose score is exactly zero whatever the coefficients."""
        if self.model.whole.fit_intercept:
            return np.full(self.n_rows, chosen.size == 0 and self._is_balanced)
        return np.asarray(~self._filled[:, chosen].any(axis=1))

    @cached_property
    def _is_balanced(self) -> bool:
        """Whether the optimal intercept without any column is exactly zero: two classes of equal weight.

        The losses treat both classes alike, so the slopes at zero cancel; a curvature there makes the optimum unique.
        """
        problem = self.model.whole
        balanced = bool(np.all(np.abs(problem.y) == 1.0)) and fsum(problem.weights * problem.y) == 0.0
        return balanced and float(problem.loss.curvature(1.0, 0.0)) > 0.0

    def _zero_after(self, moves: list[Move]) -> NDArray[np.bool_]:
        """The same after each move, a column a move."""
        found = np.zeros((self.n_rows, len(moves)), dtype=bool)
        if self.model.whole.fit_intercept:
            return found
        now = self._filled[:, self.model.chosen].sum(axis=1)
        most = max(len(move.columns) for move in moves)
        for row in np.flatnonzero(now <= most):
            own = [np.count_nonzero(self._filled[row, list(move.columns)]) for move in moves]
            signs = [1 if move.add else -1 for move in moves]
            found[row] = now[row] + np.array(signs) * np.array(own) == 0
        return found
