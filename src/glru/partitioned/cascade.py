"""The stages of leave-one-out over blocks: the pass of bounds, Newton steps of what it leaves open, trainings if asked for."""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import final

import numpy as np

from glru._budget import Budget
from glru.families.carried import Carried, removal_factors
from glru.families.removals import Measured, with_ones
from glru.linalg import Array, Matrix, gamma
from glru.model_selection.progress import Report
from glru.model_selection.result import STAGES
from glru.partitioned.base import factor_range, gradient_norms, settled
from glru.partitioned.census import MOST_COLUMNS, Sample
from glru.partitioned.gap import Ellipsoid, largest_score_error
from glru.partitioned.output import Output
from glru.partitioned.problem import PartitionedProblem
from glru.partitioned.removing import (
    AnyRemovals,
    CarriedRemovals,
    Found,
    LocalRemovals,
    NoRemovals,
    Places,
    bounds_of,
    errors_of,
    is_decided,
    slopes_of,
    take,
)
from glru.partitioned.result import PartitionedLOOCVResult, RowResults
from glru.partitioned.retraining import pursue
from glru.partitioned.rows import Absent, Rows, at_rows
from glru.partitioned.solution import PartitionedSolution
from glru.problem import Problem
from glru.regions.base import Bounds, intersected

STEPS = 30
"""Newton steps with the old Hessian, for all open rows together."""

TAKEN = 10_000
"""Rows that are brought home at once."""

MODELS = 128
"""Models that one pass measures."""


def has_local(problem: PartitionedProblem) -> bool:
    """Whether the local certificate applies and its Hessian is small enough to sum."""
    return problem.loss.self_concordance is not None and problem.penalty.smooth and problem.n_columns <= MOST_COLUMNS


@final
class Run:
    """The state of a run: results of the first pass, and what is known of the rows it left open."""

    def __init__(
        self, solution: PartitionedSolution, width: float | None, output: Output | None, budget: Budget, report: Report
    ) -> None:
        self.solution, self.problem = solution, solution.problem
        self.width, self.output, self.budget, self.report = width, output, budget, report
        self.seconds: dict[str, float] = {}
        self.n_trainings = 0
        self.local: LocalRemovals | None = None

    def bounds(self) -> None:
        """The bounds of all rows, in one pass."""
        begin, problem = time.perf_counter(), self.problem
        stage, removals, top = self._removals()
        parts = problem.blocks.map(bounds_of, problem.layout, removals, top, self.width, stage, self.output)
        self.top = min(top, max(part.top for part in parts))
        self.first, self.parts = stage, parts
        chosen = [_open_places(part, self.width) for part in parts]
        self.rows = np.concatenate([part.start + _numbers(part)[k] for part, k in zip(parts, chosen, strict=True)])
        self.y = np.concatenate([part.y[k] for part, k in zip(parts, chosen, strict=True)]).astype(np.float64)
        self.lower = np.concatenate([part.lower[k] for part, k in zip(parts, chosen, strict=True)])
        self.upper = np.concatenate([part.upper[k] for part, k in zip(parts, chosen, strict=True)])
        self.codes = np.full(self.rows.size, STAGES.index("undetermined"), dtype=np.int8)
        self.errors = np.sum([part.errors for part in parts], axis=0) - self._open_errors()
        self._told(stage, begin)

    def _removals(self) -> tuple[str, AnyRemovals, float]:
        """What the first pass proves bounds with, and at least the largest norm of a row."""
        if has_local(self.problem):
            found = settled(self.solution)
            if found is not None:
                self.local, top = found
                return "local", self.local, top
        if not self.problem.is_plain:
            return "undetermined", NoRemovals(), np.inf
        gap = self.solution.dual_gap
        carried = Carried(
            depth=self.problem.depth,
            coef=self.solution.coef,
            correlations=gap.correlations,
            column_norms=self.problem.column_norms,
            dual_mass=gap.dual_mass,
            row_total=gap.row_total,
            largest=factor_range(self.problem)[1],
            shared=self.problem.shared,
        )
        return "carry", CarriedRemovals(carried, self.solution.model), np.inf

    def refine(self) -> None:
        """The largest norm as it is, then Newton steps with the old Hessian, for open rows under the local certificate."""
        if self.local is None:
            return
        for places in self._batches(TAKEN):
            begin = time.perf_counter()
            lower, upper, _ = self.local.bounds(self._taken(places), self.top)
            self._take_in("local", places, (lower, upper), begin)
        for places in self._batches(MODELS):
            begin = time.perf_counter()
            self._take_in("newton", places, self._stepped(self._taken(places), self.rows[places]), begin)

    def _batches(self, size: int) -> Iterator[Places]:
        """The open rows, so many at a time, while there is time."""
        places = np.flatnonzero(self.codes == STAGES.index("undetermined"))
        for start in range(0, places.size, size):
            if self.budget.spent:
                return
            yield places[start : start + size]

    def _stepped(self, rows: Problem, numbers: Places) -> Bounds:
        """Bounds of some rows after Newton steps of their removals, measured on all blocks."""
        problem, local = self.problem, self.local
        assert local is not None
        removals, known = local.removals(rows)
        chosen = np.flatnonzero(known & (removals.rest > 0.0))
        lower, upper = np.full(rows.n_rows, -np.inf), np.full(rows.n_rows, np.inf)
        if not chosen.size:
            return lower, upper
        rows, numbers = _pick(rows, chosen), numbers[chosen]
        norms, factors = gradient_norms(problem, local.base.metric), removal_factors(rows)
        plain = np.sqrt(rows.squared_row_norms) * (1.0 + gamma(problem.n_columns + 4))
        block = with_ones(rows.matrix, problem.fit_intercept)
        off = largest_score_error(problem, local.model)

        def measure(models: Array, active: Places) -> Measured:
            own = self.problem.blocks.places(numbers[active])
            sums = problem.blocks.total_of(slopes_of, problem.layout, own, models, local.model)
            gradient, nu = norms.at(models, factors[active] * sums.pulls, factors[active] * sums.masses)
            first, second = norms.score_errors(models)
            centers = np.einsum("ij,ji->i", block[active], models)
            moved = sums.moved + problem.plain * first + second + off
            return Measured(centers, gradient, nu, moved, plain[active] * first + second)

        def decided(low: Array, high: Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
            return is_decided(self.width, low, high) | self.budget.spent

        found = local.base.stepped(removals.take(chosen), block, local.starts(rows), self.top, measure, decided, STEPS)
        lower[chosen], upper[chosen] = found
        return lower, upper

    def train(self, most: int) -> None:
        """Newton steps of a row's own problem, for at most so many open rows."""
        if self.local is None:
            return
        for places in islice(self._batches(1), most):
            begin = time.perf_counter()
            rows = self._taken(places)
            without = self.problem.changed(absent=Absent(self.rows[places]))
            found = pursue(without, self.solution.model, 1, partial(_asked, rows.matrix), self._is_settled, self.budget)
            self.n_trainings += 1
            self._take_in("training", places, found, begin)

    def _is_settled(self, lower: Array, upper: Array) -> bool:
        return bool(np.all(is_decided(self.width, lower, upper)))

    def _taken(self, places: Places) -> Problem:
        """Open rows, brought home as a part of the problem."""
        own = {k: where for k, (where, _) in self.problem.blocks.places(self.rows[places]).items()}
        found = self.problem.blocks.map_of(take, self.problem.layout, own)
        X, y, weight = Sample(tuple((part.X, part.y, part.sample_weight) for part in found)).joined()
        layout = replace(self.problem.layout, classes=None, absent=None)
        return layout.problem(Rows(X, y, weight, None), 0)

    def _take_in(self, stage: str, places: Places, bounds: Bounds, begin: float) -> None:
        known = self.lower[places], self.upper[places]
        self.lower[places], self.upper[places] = intersected(known, bounds)
        done = is_decided(self.width, self.lower[places], self.upper[places])
        self.codes[places[done]] = STAGES.index(stage)
        self._told(stage, begin)

    def _told(self, stage: str, begin: float) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - begin
        n_open = int(np.sum(self.codes == STAGES.index("undetermined")))
        self.report(stage, self.problem.n_rows - n_open, self.problem.n_rows)

    def _open_errors(self) -> Array:
        return np.array(errors_of(self.y, self.lower, self.upper))

    def result(self, n_passes: float) -> PartitionedLOOCVResult:
        """What was found, with the results of open rows put in their places."""
        counts = np.bincount(self.codes, minlength=len(STAGES))
        counts[STAGES.index(self.first)] += self.problem.n_rows - self.rows.size
        errors = self.errors + self._open_errors() if self.problem.loss.task == "classification" else (0, 0)
        home = None
        if self.output is None:
            y, lower, upper = (
                np.concatenate([getattr(part, name) for part in self.parts]) for name in ("y", "lower", "upper")
            )
            codes = np.full(self.problem.n_rows, STAGES.index(self.first), dtype=np.int8)
            lower[self.rows], upper[self.rows], codes[self.rows] = self.lower, self.upper, self.codes
            for array in (y, lower, upper, codes):
                array.setflags(write=False)
            home = RowResults(y, lower, upper, codes)
        else:
            names = np.array(STAGES)[self.codes]
            for k, (_, places) in self.problem.blocks.places(self.rows).items():
                start = self.problem.blocks.starts[k]
                bounds = self.lower[places], self.upper[places]
                self.output.amend(k, start, self.rows[places], *bounds, names[places])
        return PartitionedLOOCVResult(
            problem=self.problem,
            rows=home,
            errors=(int(errors[0]), int(errors[1])),
            decided_by={stage: int(n) for stage, n in zip(STAGES, counts, strict=True) if n},
            n_trainings=self.n_trainings,
            n_passes=n_passes,
            seconds=self.seconds,
            output=None if self.output is None else self.output.folder,
        )


def _numbers(part: Found) -> Places:
    """The places in its block of what a part holds."""
    return np.arange(part.n_rows) if part.places is None else part.places


def _open_places(part: Found, width: float | None) -> Places:
    """Where a part's bounds are not decided."""
    return np.flatnonzero(~is_decided(width, part.lower, part.upper))


def _asked(X: Matrix, region: Ellipsoid) -> Bounds:
    return region.score_bounds(X)


def _pick(rows: Problem, places: Places) -> Problem:
    return rows if places.size == rows.n_rows else at_rows(rows, places)
