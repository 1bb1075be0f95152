"""Leave-one-out of rows in blocks with one score each, in passes over the data."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, ScoreBounds, is_decided
from glru.cascade import BATCH_STEPS, Output, Removals, Rows, Step, Written, to_train
from glru.linalg import Array
from glru.problem import Problem
from glru.removals.single import OneScore
from glru.rows import Memory
from glru.sums import chunks
from glru.updates.carried_rows import CarriedRemovals, NoRemovals, carried_removals
from glru.updates.local_rows import LocalRows, RowRemovals, has_local_rows

ROWS_AT_ONCE, MODELS_AT_ONCE = 10_000, 128
"""Rows of blocks brought into memory at once, and models measured by one pass."""

AnyRemovals = RowRemovals | CarriedRemovals | NoRemovals


@final
@dataclass(frozen=True, eq=False)
class BlockBounds:
    """Bounds of a block's rows; with an output they are in its file, and only the open ones are here."""

    numbers: Rows  # the numbers of the rows
    # Their targets and the bounds of their scores.
    y: Array | NDArray[np.int8]
    lower: Array
    upper: Array
    n_written: int  # how many rows are in the file alone
    errors: tuple[int, int]  # the least and the largest number of held-out errors among these
    n_unlabelled: int  # how many of these are narrow enough, but without a label
    norm_bound: float  # at least the largest norm of a row of the block that counts


def bound_block(
    part: Problem, removals: AnyRemovals, norm_bound: float, width: float | None, stage: str, output: Output | None
) -> BlockBounds:
    """Bounds of all rows of a block."""
    lower, upper, highest = np.empty(part.n_rows), np.empty(part.n_rows), 0.0
    # Many short operations per chunk: higher ones leave threads less to wait for.
    for here, rows in chunks(part, times=4):
        lower[here], upper[here], norms = removals.bounds(rows, norm_bound)
        highest = max(highest, float(norms[rows.weights > 0.0].max(initial=0.0)) if norms.size else 0.0)
    assert isinstance(part.rows, Memory)
    start, classification = part.rows.start, part.loss.task == "classification"
    y = part.y.astype(np.int8) if classification else part.y
    numbers = np.arange(start, start + part.n_rows)
    if output is None:
        return BlockBounds(numbers, y, lower, upper, 0, (0, 0), 0, highest)
    done = is_decided(lower, upper, width)
    output.write(part.rows.number, start, y, lower, upper, np.where(done, stage, "undetermined"))
    written = ScoreBounds(lower[done], upper[done])
    wrong = written.errors(part.y[done]) if classification else (0, 0)
    unlabelled = int(np.count_nonzero(~written.decided)) if classification else 0
    return BlockBounds(numbers[~done], y[~done], lower[~done], upper[~done], written.n_rows, wrong, unlabelled, highest)


@final
class BlockRemovals(OneScore):
    """Removals of single rows in blocks."""

    @property
    def steps(self) -> Mapping[str, tuple[Step[Any], ...]]:
        return STEPS

    @cached_property
    def family(self) -> LocalRows | None:
        """The removals under the local certificate, if it proves anything."""
        if not has_local_rows(self.problem):
            return None
        family = LocalRows(self.solution)
        return family if family.usable else None

    @property
    def local_family(self) -> LocalRows:
        """The removals under the local certificate, which are there."""
        assert self.family is not None
        return self.family

    def has_family(self) -> bool:
        """Whether the local certificate proves something of the removals."""
        return self.family is not None

    def lacks_family(self) -> bool:
        """Whether the local certificate proves nothing of the removals."""
        return self.family is None

    def sweep_local(self, places: Rows) -> Bounds:
        """Bound all rows by the closed form."""
        return self._sweep(self.local_family.base, self.local_family.largest_norm, "local")

    def sweep_carry(self, places: Rows) -> Bounds:
        """Bound all rows from the old optimum."""
        removals = carried_removals(self.solution) if self.problem.is_strongly_convex else NoRemovals()
        return self._sweep(removals, np.inf, "carry")

    def _sweep(self, removals: AnyRemovals, norm_bound: float, stage: str) -> Bounds:
        run = self.run
        parts: list[BlockBounds] = self.problem.map(bound_block, removals, norm_bound, run.width, stage, run.output)
        numbers, y, lower, upper = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("numbers", "y", "lower", "upper")
        )
        run.hold(numbers, y, (lower, upper))
        if self.family is not None:
            self.family.learn_norm(max(part.norm_bound for part in parts))
        low, high = np.sum([part.errors for part in parts], axis=0)
        run.written = Written(
            stage,
            sum(part.n_written for part in parts),
            (int(low), int(high)),
            sum(part.n_unlabelled for part in parts),
        )
        return lower, upper

    def local(self, places: Rows) -> Bounds:
        """The closed form with the exact largest norm of a row."""
        return self.local_family.bounds(self.run.numbers[places])

    def newton(self, places: Rows) -> Bounds:
        """Newton steps with the old Hessian, a pass over the data each."""
        return self.local_family.refined(self.run.numbers[places], self.run.enough, BATCH_STEPS)

    def refine(self, rows: Rows) -> Bounds:
        work, point = self.refinement(int(rows[0]))
        work.newton(point)
        return work.found


def split_open(removals: Removals, size: int) -> list[Rows]:
    """The open rows, ``size`` at a time."""
    places = removals.run.open_rows()
    return [places[start : start + size] for start in range(0, places.size, size)]


STEPS: Mapping[str, tuple[Step[Any], ...]] = {
    "certified": (
        Step(
            "local",
            "a self-concordant loss, a smooth penalty, few columns; one pass, with a Hessian",
            BlockRemovals.has_family,
            None,
            BlockRemovals.sweep_local,
        ),
        Step(
            "carry",
            "rows of which the local step proves nothing; bounded under a strongly convex penalty without an intercept; one pass",
            BlockRemovals.lacks_family,
            None,
            BlockRemovals.sweep_carry,
        ),
        Step(
            "local",
            "as the local step; reads the open rows",
            BlockRemovals.has_family,
            lambda removals: split_open(removals, ROWS_AT_ONCE),
            BlockRemovals.local,
        ),
        Step(
            "newton",
            "as the local step; a pass for each step",
            BlockRemovals.has_family,
            lambda removals: split_open(removals, MODELS_AT_ONCE),
            BlockRemovals.newton,
        ),
        Step(
            "training",
            "as the local step; Newton steps of each row's own problem, one pass each",
            BlockRemovals.has_family,
            to_train,
            BlockRemovals.refine,
        ),
    ),
}
"""The steps in the order of their price. A new bound of rows in blocks is a new entry here."""
