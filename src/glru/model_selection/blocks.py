"""Leave-one-out of rows in blocks: one pass of bounds, Newton steps of what it leaves open, trainings if asked for."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru._budget import Budget
from glru.bounds import Bounds, ScoreBounds, concatenate, intersect, is_decided, unbounded
from glru.linalg import Array, Matrix
from glru.model_selection.output import Output
from glru.model_selection.progress import Report
from glru.model_selection.result import STAGES, LOOCVResult, RowResults, WrittenRows, count_stages
from glru.problem import Problem, not_in_memory
from glru.regions.summed import Ellipsoid
from glru.rows import MAX_COLUMNS, Memory
from glru.solution import Solution
from glru.solvers.passes import newton_ellipsoids
from glru.sums import chunks
from glru.updates.summed import (
    AnyRemovals,
    LocalRemovals,
    NoRemovals,
    carried_removals,
    has_local_sums,
    local_removals,
)

ROWS_AT_ONCE = 10_000
"""Rows that are brought into memory at once."""

MODELS_AT_ONCE = 128
"""Models that one pass measures."""

OPEN = STAGES.index("undetermined")

Numbers = NDArray[np.int64]


def check_block_options(
    problem: Problem, method: str, bound: str, max_trainings: int, needs_memory: dict[str, object]
) -> None:
    """Refuse what leave-one-out of rows in blocks does not have."""
    for name, value in needs_memory.items():
        if value is not None:
            raise not_in_memory(problem, name)
    if method != "certified" or bound not in ("auto", "local"):
        raise ValueError(
            f"leave-one-out of rows in blocks has method='certified' and bound='auto' only; got {method!r} and {bound!r}."
        )
    if max_trainings < 0:
        raise ValueError(f"max_trainings must be at least 0; got {max_trainings!r}.")
    if not has_local_sums(problem) and not problem.is_strongly_convex:
        raise ValueError(
            "leave-one-out of rows in blocks needs the logistic or squared loss with an L2 penalty and at most "
            f"{MAX_COLUMNS} columns, or a penalty on every column and no intercept; got {problem!r}. "
            "Use fit_intercept=False, or a glru.Problem of data in memory."
        )


@final
@dataclass(frozen=True, eq=False)
class BlockBounds:
    """Bounds of a block's rows; with an output they are in its file, and only the open ones are here.

    Attributes
    ----------
    start, n_rows : int
        The first row and the number of rows.
    lower, upper : array
        Bounds of all rows, or of the open ones.
    y : array
        Their targets.
    places : array of int or None
        The open rows' positions in the block, where the others are in a file.
    errors : tuple of int
        The least and the largest number of held-out errors in the block.
    top : float
        At least the largest norm of a row that counts.
    """

    start: int
    n_rows: int
    lower: Array
    upper: Array
    y: Array | NDArray[np.int8]
    places: Numbers | None
    errors: tuple[int, int]
    top: float

    @property
    def numbers(self) -> Numbers:
        """The numbers of the rows whose bounds are here."""
        return self.start + (np.arange(self.n_rows) if self.places is None else self.places)


def bound_block(
    part: Problem, removals: AnyRemovals, top: float, width: float | None, stage: str, output: Output | None
) -> BlockBounds:
    """Bounds of all rows of a block."""
    lower, upper, highest = np.empty(part.n_rows), np.empty(part.n_rows), 0.0
    # Many short operations per chunk: higher ones leave threads less to wait for.
    for here, rows in chunks(part, times=4):
        lower[here], upper[here], norms = removals.bounds(rows, top)
        highest = max(highest, float(norms[rows.weights > 0.0].max(initial=0.0)) if norms.size else 0.0)
    assert isinstance(part.rows, Memory)
    start, classification = part.rows.start, part.loss.task == "classification"
    y = part.y.astype(np.int8) if classification else part.y
    wrong = ScoreBounds(lower, upper).errors(part.y) if classification else (0, 0)
    if output is None:
        return BlockBounds(start, part.n_rows, lower, upper, y, None, wrong, highest)
    decided = is_decided(lower, upper, width)
    output.write(part.rows.number, start, y, lower, upper, np.where(decided, stage, "undetermined"))
    places = np.flatnonzero(~decided)
    return BlockBounds(start, part.n_rows, lower[places], upper[places], y[places], places, wrong, highest)


def held_out_bounds(
    solution: Solution, rows: range | Numbers, width: float | None, budget: Budget, X: Matrix | None = None
) -> ScoreBounds:
    """Bounds of some rows' scores under the model trained without them: Newton steps under the local certificate.

    The steps end when all rows are decided or the bounds no longer get better. ``X``: the rows, where they are in memory.
    """
    problem = solution.problem
    numbers = np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows
    found = ScoreBounds(*unbounded(numbers.size))
    own = {k: here for k, (here, _) in problem.locate(numbers).items()}
    for region in newton_ellipsoids(problem.without(rows).require_weight(), solution.point):
        if np.isfinite(region.radius):
            parts = [region.score_bounds(X)] if X is not None else problem.map(_bound_rows, region, own=own)
            found = found.intersect(concatenate(parts))
            if np.all(is_decided(*found, width)):
                break
        if budget.spent:
            break
    return found


def _bound_rows(part: Problem, places: Numbers, region: Ellipsoid) -> Bounds:
    """Bounds of the scores of some of a block's rows."""
    rows = part.take(places)
    lower, upper = np.empty(rows.n_rows), np.empty(rows.n_rows)
    for here, chunk in chunks(rows):
        lower[here], upper[here] = region.score_bounds(chunk.matrix)
    return lower, upper


@final
class BlockCascade:
    """The state of a run: results of the first pass, and what is known of the rows it left open."""

    def __init__(
        self, solution: Solution, width: float | None, output: Output | None, budget: Budget, report: Report
    ) -> None:
        self.solution, self.problem = solution, solution.problem
        self.width, self.output, self.budget, self.report = width, output, budget, report
        self.seconds: dict[str, float] = {}
        self.n_trainings = 0
        self.local: LocalRemovals | None = None

    def bounds(self) -> None:
        """The bounds of all rows, in one pass."""
        begin = time.perf_counter()
        stage, removals, top = self._removals()
        self.parts: list[BlockBounds] = self.problem.map(bound_block, removals, top, self.width, stage, self.output)
        self.top = min(top, max(part.top for part in self.parts))
        self.first = stage
        places = [np.flatnonzero(~is_decided(part.lower, part.upper, self.width)) for part in self.parts]
        chosen = list(zip(self.parts, places, strict=True))
        self.rows = np.concatenate([part.numbers[k] for part, k in chosen])
        self.y = np.concatenate([part.y[k] for part, k in chosen]).astype(np.float64)
        self.lower = np.concatenate([part.lower[k] for part, k in chosen])
        self.upper = np.concatenate([part.upper[k] for part, k in chosen])
        self.codes = np.full(self.rows.size, OPEN, dtype=np.int8)
        self.errors = np.sum([part.errors for part in self.parts], axis=0) - self._open_errors()
        self._tell(stage, begin)

    def _removals(self) -> tuple[str, AnyRemovals, float]:
        """What the first pass proves bounds with, and at least the largest norm of a row."""
        if has_local_sums(self.problem):
            found = local_removals(self.solution)
            if found is not None:
                self.local, top = found
                return "local", self.local, top
        if not self.problem.is_strongly_convex:
            return "undetermined", NoRemovals(), np.inf
        return "carry", carried_removals(self.solution), np.inf

    def refine(self) -> None:
        """The closed form with the exact largest norm of a row, then Newton steps with the old Hessian, for open rows."""
        if self.local is None:
            return
        for places in self._batches(ROWS_AT_ONCE):
            begin = time.perf_counter()
            lower, upper, _ = self.local.bounds(self.problem.take(self.rows[places]), self.top)
            self._take_in("local", places, (lower, upper), begin)
        for places in self._batches(MODELS_AT_ONCE):
            begin, numbers = time.perf_counter(), self.rows[places]
            rows = self.problem.take(numbers)
            found = self.local.refined(self.problem, rows, numbers, self.top, self._enough)
            self._take_in("newton", places, found, begin)

    def train(self, most: int) -> None:
        """Newton steps of a row's own problem, for at most this many open rows."""
        if self.local is None:
            return
        for places in islice(self._batches(1), most):
            begin, numbers = time.perf_counter(), self.rows[places]
            X = self.problem.take(numbers).matrix
            found = held_out_bounds(self.solution, numbers, self.width, self.budget, X)
            self.n_trainings += 1
            self._take_in("training", places, found, begin)

    def _batches(self, size: int) -> Iterator[NDArray[np.intp]]:
        """The open rows in batches, while there is time."""
        places = np.flatnonzero(self.codes == OPEN)
        for start in range(0, places.size, size):
            if self.budget.spent:
                return
            yield places[start : start + size]

    def _enough(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        return is_decided(lower, upper, self.width) | self.budget.spent

    def _take_in(self, stage: str, places: NDArray[np.intp], bounds: Bounds, begin: float) -> None:
        known = self.lower[places], self.upper[places]
        self.lower[places], self.upper[places] = intersect(known, bounds)
        done = is_decided(self.lower[places], self.upper[places], self.width)
        self.codes[places[done]] = STAGES.index(stage)
        self._tell(stage, begin)

    def _tell(self, stage: str, begin: float) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - begin
        n_open = int(np.sum(self.codes == OPEN))
        self.report(stage, self.problem.n_rows - n_open, self.problem.n_rows)

    def _open_errors(self) -> Array:
        return np.array(ScoreBounds(self.lower, self.upper).errors(self.y))

    def result(self, n_passes: float) -> LOOCVResult:
        """What was found, with the results of open rows put in their places."""
        return LOOCVResult(
            problem=self.problem,
            method="certified",
            certified=True,
            results=self._rows() if self.output is None else self._written(self.output),
            n_trainings=self.n_trainings,
            seconds=self.seconds,
            n_passes=n_passes,
        )

    def _rows(self) -> RowResults:
        parts = self.parts
        y, lower, upper = (np.concatenate([getattr(part, name) for part in parts]) for name in ("y", "lower", "upper"))
        codes = np.full(self.problem.n_rows, STAGES.index(self.first), dtype=np.int8)
        lower[self.rows], upper[self.rows], codes[self.rows] = self.lower, self.upper, self.codes
        for array in (y, lower, upper, codes):
            array.setflags(write=False)
        return RowResults(y, ScoreBounds(lower, upper), codes)

    def _written(self, output: Output) -> WrittenRows:
        names = np.array(STAGES)[self.codes]
        for k, (here, places) in self.problem.locate(self.rows).items():
            output.amend(k, here, self.lower[places], self.upper[places], names[places])
        errors = self.errors + self._open_errors() if self.problem.loss.task == "classification" else (0, 0)
        counts = np.bincount(self.codes, minlength=len(STAGES))
        counts[STAGES.index(self.first)] += self.problem.n_rows - self.rows.size
        return WrittenRows(output.folder, (int(errors[0]), int(errors[1])), count_stages(counts))
