"""Passes over rows: a source of blocks with ``map`` and ``sum``, rows in memory as a source of one block, and sums over all of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import TINY, Array, Matrix, gamma
from glru.losses import Loss
from glru.losses.base import Task
from glru.penalties import Penalty
from glru.rows.block import Block, Places, summation_depth
from glru.rows.executors import UNKNOWN, Executor, Pass, Place, make_executor
from glru.rows.sources import open_sources
from glru.rows.summary import Summary, check_block, check_shapes, summarize, weigh

Located = dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]]
"""For some blocks the positions of rows in the block, and the places of these rows in a list of numbers."""


@final
@dataclass
class Traffic:
    """What passes over the data have cost so far.

    Attributes
    ----------
    passes : float
        Passes over the data; one that reads some of the blocks counts as their share.
    down, up : int
        Bytes of what every task is given and gives back, summed over all tasks.
    """

    passes: float = 0.0
    down: int = 0
    up: int = 0


@final
@dataclass(frozen=True, eq=False)
class Absent:
    """Rows that are left out: a range of row numbers, or sorted numbers."""

    rows: range | NDArray[np.int64]

    def places(self, start: int, stop: int) -> Places | None:
        """The positions of those rows in the block from ``start`` to ``stop``; None where it has none of them."""
        if isinstance(self.rows, range):
            low, high = max(self.rows.start, start), min(self.rows.stop, stop)
            return slice(low - start, high - start) if high > low else None
        low, high = (int(k) for k in np.searchsorted(self.rows, [start, stop]))
        return self.rows[low:high] - start if high > low else None


@final
@dataclass(frozen=True)
class Memory:
    """Rows that are in memory: all of a problem's, or those of one of its blocks.

    Attributes
    ----------
    number, start : int
        Which block they are, and the number of the first one.
    """

    number: int = 0
    start: int = 0
    n_blocks: ClassVar[int] = 1
    inputs: ClassVar[tuple[str, ...]] = ()

    @property
    def traffic(self) -> Traffic:
        """Nothing moves, and no pass is counted."""
        return Traffic()


@final
@dataclass(frozen=True, eq=False)
class Blocks:
    """Rows that are read block by block, again in every pass.

    Attributes
    ----------
    executor : Executor
        Who reads the blocks and does the work.
    summary : Summary
        What the first pass found. After a change it still bounds all sizes from above.
    column_names : tuple of str or None
        The names of the columns.
    inputs : tuple of str
        The files and folders that are known to be read.
    absent : Absent or None
        Rows that have weight 0, whatever their own.
    columns : array of int or None
        The columns of the blocks that count; None: all of them.
    traffic : Traffic
        What the passes have cost.
    """

    executor: Executor
    summary: Summary
    column_names: tuple[str, ...] | None
    inputs: tuple[str, ...]
    absent: Absent | None = None
    columns: NDArray[np.intp] | None = None
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.summary.lengths.values)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.summary.n_rows

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return int(self.summary.squares.size)

    @cached_property
    def depth(self) -> int:
        """An upper bound of the number of additions that a row's share of a sum over all rows passes through, in any order.

        Sums are made chunk by chunk, block by block and then over the blocks, so that their rounding does not grow with the
        number of rows: this takes its place in ``gamma``.
        """
        summary, lengths = self.summary, self.summary.lengths.values.values()
        sparse, n_columns = summary.n_sparse > 0, summary.squares.size
        return max(summation_depth(n, n_columns, sparse) for n in lengths) + len(lengths) + 8

    @cached_property
    def places(self) -> dict[int, Place]:
        """What is known about every block that has rows."""
        lengths, checksums = self.summary.lengths.values, self.summary.checksums.values
        ordered = [lengths[k] for k in range(len(lengths))]
        starts = accumulate(ordered, initial=0)
        return {
            k: Place(start, checksums[k], None if self.absent is None else self.absent.places(start, start + length))
            for k, (start, length) in enumerate(zip(starts, ordered, strict=False))
            if length
        }

    def locate(self, numbers: NDArray[np.int64]) -> Located:
        """For every block that has some of the rows, their positions in it and in ``numbers`` (which are sorted)."""
        found = {}
        for k, place in self.places.items():
            low, high = np.searchsorted(numbers, [place.start, place.start + self.summary.lengths.values[k]])
            if high > low:
                found[k] = numbers[low:high] - place.start, np.arange(low, high)
        return found

    def sum(self, task: Callable[..., Any], *args: Any, own: Mapping[int, Any] | None = None) -> Any:
        """The sum of ``task(block, *args)`` over all blocks.

        ``own``: where it is given, ``task(block, own[number], *args)``, with None for blocks that are not in it.
        """
        mine = None if own is None else {k: own.get(k) for k in self.places}
        found = self.executor.sum(Pass(task, self.places, mine, args))
        self._count(len(self.places), args, len(self.places) * size_of(found))
        return found

    def map(self, task: Callable[..., Any], *args: Any, own: Mapping[int, Any] | None = None) -> list[Any]:
        """``task(block, *args)`` of every block in order, or ``task(block, own[number], *args)`` of those in ``own``."""
        places = self.places if own is None else {k: self.places[k] for k in own}
        found = self.executor.map(Pass(task, places, own, args))
        self._count(len(places), args, sum(map(size_of, found)))
        return found

    def without(self, absent: Absent, task: Task) -> "Blocks":
        """These blocks with weight 0 for some (more) rows; a pass sums the remaining weights."""
        if self.absent is not None:
            absent = Absent(np.union1d(np.asarray(self.absent.rows), np.asarray(absent.rows)).astype(np.int64))
        left = replace(self, absent=absent)
        return replace(left, summary=replace(self.summary, weights=left.sum(weigh, task)))

    def select_columns(self, columns: NDArray[np.intp]) -> "Blocks":
        """These blocks restricted to some columns; this takes no pass, because the sizes of all columns bound those of some."""
        names = self.column_names
        return replace(
            self,
            summary=self.summary.select_columns(columns),
            column_names=None if names is None else tuple(names[j] for j in columns),
            columns=columns if self.columns is None else self.columns[columns],
        )

    def extend(self, block: Block, task: Task) -> "Blocks":
        """These blocks and one more, which is in memory and has valid numbers."""
        summary = summarize(replace(block, number=self.n_blocks, start=self.n_rows), task, 1)
        return replace(self, executor=self.executor.extend(block), summary=self.summary + summary)

    def _count(self, n_tasks: int, args: Any, up: int) -> None:
        self.traffic.passes += n_tasks / max(1, len(self.places))
        self.traffic.down += n_tasks * size_of(args)
        self.traffic.up += up


Rows = Memory | Blocks
"""Where the rows of a problem come from."""


def read_rows(X: Any, y: Any, sample_weight: Any, task: Task, block_bytes: int) -> Blocks:
    """The blocks of data that is not held in memory, after a first pass that looks at every number."""
    if not block_bytes > 0:
        raise ValueError(f"block_bytes must be above 0; got {block_bytes!r}.")
    sources = open_sources(X, y, sample_weight, block_bytes)
    if not sources.X:
        raise ValueError("X must have at least one row and one column; got no blocks.")
    executor, n_blocks = make_executor(sources), len(sources.X)
    first = Pass(summarize, dict.fromkeys(range(n_blocks), UNKNOWN), None, (task, n_blocks))
    rows = Blocks(executor, executor.sum(first), sources.column_names, sources.inputs)
    check_shapes(rows.summary)
    rows._count(len(rows.places), first.shared, n_blocks * size_of(rows.summary))
    _raise_faults(rows, task)
    return rows


def _raise_faults(rows: Blocks, task: Task) -> None:
    """Check the blocks that failed once more: the rows are numbered now, so the error can name the first one."""
    for k in sorted(k for k, fault in rows.summary.faults.values.items() if fault):
        rows.map(check_block, own={k: task})


def size_of(value: Any) -> int:
    """Bytes of the arrays in a value."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Matrix):
        return sum(part.nbytes for part in value.parts.values())
    if is_dataclass(value) and not isinstance(value, type):
        return sum(size_of(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, tuple | list):
        return sum(map(size_of, value))
    if isinstance(value, dict):
        return sum(map(size_of, value.values()))
    if hasattr(value, "__dict__"):
        return sum(map(size_of, vars(value).values()))
    return 8 if isinstance(value, int | float | np.number) else 0


@final
@dataclass(frozen=True, eq=False)
class Totals:
    """A problem's loss and penalty, and upper bounds of sums over its rows.

    Attributes
    ----------
    loss, penalty, fit_intercept : Loss, Penalty, bool
        As in the problem.
    n_rows, n_columns : int
        Sizes; the intercept is not counted.
    depth : int
        At least the additions that a row's share of any sum over all rows passes through.
    score_noise : float
        What the evaluation of the losses does to slopes, as an error of the scores.
    weight_sum : float
        At least the sum of the weights ``s``.
    column_norms : array
        At least ``sqrt(sum_i s_i x_ij^2)`` for every column, and ``sqrt(sum_i s_i)`` for an intercept.
    largest_norm : float
        At least the largest Euclidean norm of a row whose weight is above 0.
    """

    loss: Loss
    penalty: Penalty
    fit_intercept: bool
    n_rows: int
    n_columns: int
    depth: int
    score_noise: float
    weight_sum: float
    column_norms: Array
    largest_norm: float

    @cached_property
    def quadratic(self) -> Array:
        """The penalty's strengths, one per column."""
        return np.broadcast_to(self.penalty.quadratic, (self.n_columns,))

    @property
    def least_curvature(self) -> float:
        """A lower bound of the eigenvalues of the Hessian at any point."""
        return 0.0 if self.fit_intercept else self.penalty.strong_convexity

    @property
    def norm(self) -> float:
        """At least ``sqrt(sum_i s_i |x_i|^2)``."""
        return float(np.linalg.norm(self.column_norms[: self.n_columns])) * (1.0 + gamma(self.n_columns + 8))

    def select(self, columns: NDArray[np.intp]) -> "Totals":
        """The totals of a problem with some of the columns."""
        places = np.append(columns, [self.n_columns] if self.fit_intercept else []).astype(np.intp)
        return replace(
            self,
            penalty=self.penalty.select(columns),
            n_columns=int(columns.size),
            column_norms=self.column_norms[places],
        )


def sum_totals(
    rows: Blocks, loss: Loss, penalty: Penalty, fit_intercept: bool, scaling: str, total_weight: float
) -> Totals:
    """The totals of rows in blocks, from the first pass over them."""
    summary = rows.summary
    n_rows, n_columns = summary.n_rows, int(summary.squares.size)
    weight_sum = (1.0 if scaling == "mean" else total_weight) * (1.0 + gamma(n_rows + 8))
    unit = total_weight if scaling == "mean" else 1.0
    norms = (np.sqrt(summary.squares / unit) + TINY) * (1.0 + gamma(n_rows + 8))
    return Totals(
        loss=loss,
        penalty=penalty,
        fit_intercept=fit_intercept,
        n_rows=n_rows,
        n_columns=n_columns,
        depth=rows.depth,
        score_noise=loss.score_noise,
        weight_sum=weight_sum,
        column_norms=np.append(norms, np.sqrt(weight_sum)) if fit_intercept else norms,
        largest_norm=float(np.sqrt(summary.largest_square.value)) * (1.0 + gamma(n_columns + 8)) + TINY,
    )
