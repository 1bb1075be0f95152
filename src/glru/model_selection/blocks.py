"""Leave-one-out of rows in blocks: one pass of bounds, Newton steps of what it leaves open, trainings if asked for."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru._budget import Budget
from glru._numerics import Array, Matrix
from glru.families.summed import (
    AnyRemovals,
    LocalRemovals,
    NoRemovals,
    carried_removals,
    has_local_sums,
    local_removals,
)
from glru.model_selection.output import Output
from glru.model_selection.progress import Report
from glru.model_selection.result import STAGES, LOOCVResult
from glru.problem import Problem
from glru.regions.base import Bounds, intersected
from glru.rows import MAX_COLUMNS
from glru.solution import Solution
from glru.solvers.passes import newton_ellipsoids
from glru.sums import chunks

ROWS_AT_ONCE = 10_000
"""Rows that are brought into memory at once."""

MODELS_AT_ONCE = 128
"""Models that one pass measures."""

OPEN = STAGES.index("undetermined")

Numbers = NDArray[np.int64]


def require_local(problem: Problem, function: str) -> None:
    """Refuse rows in blocks that the local certificate does not apply to."""
    if not has_local_sums(problem):
        raise ValueError(
            f"{function} of rows in blocks needs the logistic or squared loss with an L2 penalty and at most "
            f"{MAX_COLUMNS} columns; got {problem!r}. Use a glru.Problem of data in memory."
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
    start, classification = part.rows.start, part.loss.task == "classification"
    y = part.y.astype(np.int8) if classification else part.y
    wrong = count_errors(part.y, lower, upper) if classification else (0, 0)
    if output is None:
        return BlockBounds(start, part.n_rows, lower, upper, y, None, wrong, highest)
    decided = is_decided(width, lower, upper)
    output.write(part.rows.number, start, y, lower, upper, np.where(decided, stage, "undetermined"))
    places = np.flatnonzero(~decided)
    return BlockBounds(start, part.n_rows, lower[places], upper[places], y[places], places, wrong, highest)


def count_errors(y: Array, lower: Array, upper: Array) -> tuple[int, int]:
    """The least and the largest number of labels that are wrong."""
    positive, above, below = y > 0.0, lower > 0.0, upper < 0.0
    wrong = np.count_nonzero(positive & below) + np.count_nonzero(~positive & above)
    right = np.count_nonzero(positive & above) + np.count_nonzero(~positive & below)
    return int(wrong), int(y.size - right)


def is_decided(width: float | None, lower: Array, upper: Array) -> NDArray[np.bool_]:
    """Whether bounds are as tight as was asked for: a width, or a sign."""
    return upper - lower <= width if width is not None else (lower > 0.0) | (upper < 0.0)


def held_out_bounds(
    solution: Solution, rows: range | Numbers, width: float | None, budget: Budget, X: Matrix | None = None
) -> Bounds:
    """Bounds of some rows' scores under the model trained without them: Newton steps under the local certificate.

    The steps end when all rows are decided or the bounds no longer get better. ``X``: the rows, where they are in memory.
    """
    problem = solution.problem
    numbers = np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows
    found = np.full(numbers.size, -np.inf), np.full(numbers.size, np.inf)
    own = {k: here for k, (here, _) in problem.locate(numbers).items()}
    for region in newton_ellipsoids(problem.without(rows), solution.point):
        if np.isfinite(region.radius):
            parts = [region.score_bounds(X)] if X is not None else problem.map(_bound_rows, region, own=own)
            lower, upper = zip(*parts, strict=True)
            found = intersected(found, (np.concatenate(lower), np.concatenate(upper)))
            if np.all(is_decided(width, *found)):
                break
        if budget.spent:
            break
    return found


def _bound_rows(part: Problem, places: Numbers, region: Ellipsoid) -> Bounds:
    """Bounds of the scores of some of a block's rows."""
    rows = part.take(places)
    lower, upper = np.empty(rows.n_rows), np.empty(rows.n_rows)
    for here, chunk in chunks(rows):
        lower[here], upper[here] = region.score_bounds(chunk.X)
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
        places = [np.flatnonzero(~is_decided(self.width, part.lower, part.upper)) for part in self.parts]
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
            X = self.problem.take(numbers).X
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
        return is_decided(self.width, lower, upper) | self.budget.spent

    def _take_in(self, stage: str, places: NDArray[np.intp], bounds: Bounds, begin: float) -> None:
        known = self.lower[places], self.upper[places]
        self.lower[places], self.upper[places] = intersected(known, bounds)
        done = is_decided(self.width, self.lower[places], self.upper[places])
        self.codes[places[done]] = STAGES.index(stage)
        self._tell(stage, begin)

    def _tell(self, stage: str, begin: float) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - begin
        n_open = int(np.sum(self.codes == OPEN))
        self.report(stage, self.problem.n_rows - n_open, self.problem.n_rows)

    def _open_errors(self) -> Array:
        return np.array(count_errors(self.y, self.lower, self.upper))
