"""Passes over rows: a source of blocks with ``map`` and ``sum``, rows in memory as a source of one block, and sums over all of them.

Blocks that were dask objects, and any blocks while a dask ``Client`` is open, are dask's to schedule: results are added up in
a tree, and workers keep the blocks they have read. Other blocks are read by threads of this process, a few at a time.
"""

import errno
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from itertools import chain, count
from operator import add
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import TINY, Array, calm_blas, gamma, n_threads
from glru.losses import Loss
from glru.losses.base import Task
from glru.penalties import Penalty
from glru.rows.block import (
    Block,
    Places,
    Summary,
    check_block,
    check_shapes,
    read_block,
    summarize,
    summation_depth,
    weigh,
)
from glru.rows.sources import Sources, is_delayed, make_change_error, open_sources

FAN_IN = 8
"""Number of results that one task adds up."""

BlockTask = Callable[..., Any]
"""Called with a :class:`Block`, the argument for this block (if any), and the arguments for all blocks."""


@final
@dataclass(frozen=True, eq=False)
class Place:
    """What is known about a block."""

    start: int = 0  # the number of its first row
    checksum: bytes | None = None  # the check-sum of its rows; None where they have not been read yet
    absent: Places | None = None  # rows that have weight 0, whatever their own


UNKNOWN = Place()
"""The entry of a block that has not been read."""


@final
@dataclass(frozen=True, eq=False)
class Pass:
    """A task for some blocks."""

    task: BlockTask  # what to do with each block
    places: Mapping[int, Place]  # which blocks, by number, and what is known about each
    own: Mapping[int, Any] | None  # an argument for each block
    shared: tuple[Any, ...]  # arguments for all blocks

    def details(self, number: int) -> tuple[Place, tuple[Any, ...]]:
        """What is known about one block, and the arguments that are meant for it alone."""
        return self.places[number], () if self.own is None else (self.own[number],)


def run_task(
    task: BlockTask, parts: Any, number: int, details: tuple[Place, tuple[Any, ...]], shared: tuple[Any, ...]
) -> Any:
    """The result of one block; overflow ends in infinite bounds, and one thread per task is enough."""
    place, own = details
    try:
        with calm_blas(0.0), np.errstate(all="ignore"):
            block = parts if isinstance(parts, Block) else read_block(*parts)
            placed = replace(block, number=number, start=place.start)
            found = task(placed.without(place.absent), *own, *shared)
            # After the work: rows of a memory map can change while it is done.
            if place.checksum is not None and block.checksum() != place.checksum:
                raise make_change_error(f"block {number}, which begins with row {place.start},")
            return found
    except (MemoryError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.ENOMEM:
            raise
        raise MemoryError(
            f"a block of rows must fit into memory a few times over, in every thread; block {number} did not ({error}). "
            "Make blocks smaller: block_bytes of glru.Problem, for dask rechunk or repartition."
        ) from None


class Executor(ABC):
    """Runs tasks on blocks."""

    @abstractmethod
    def map(self, work: Pass) -> list[Any]:
        """The results of the blocks, in order."""

    @abstractmethod
    def sum(self, work: Pass) -> Any:
        """The sum of the results, in any order."""

    @abstractmethod
    def extend(self, block: Block) -> "Executor":
        """The executor of these blocks and one more, which is in memory."""


@final
@dataclass(frozen=True, eq=False)
class Threads(Executor):
    """Threads of this process; parts are read by the thread that needs them."""

    parts: tuple[Any, ...]

    def map(self, work: Pass) -> list[Any]:
        numbers = list(work.places)
        with ThreadPoolExecutor(min(n_threads(), max(1, len(numbers)))) as pool:
            return list(pool.map(lambda k: self._run(work, k), numbers))

    def sum(self, work: Pass) -> Any:
        numbers, place = list(work.places), count()

        def some(_: int) -> Any:
            found = None
            while (here := next(place)) < len(numbers):
                result = self._run(work, numbers[here])
                found = result if found is None else found + result
            return found

        n_workers = min(n_threads(), len(numbers))
        with ThreadPoolExecutor(n_workers) as pool:
            return reduce(add, [part for part in pool.map(some, range(n_workers)) if part is not None])

    def extend(self, block: Block) -> "Threads":
        return Threads((*self.parts, block))

    def _run(self, work: Pass, k: int) -> Any:
        return run_task(work.task, self.parts[k], k, work.details(k), work.shared)


@final
@dataclass(frozen=True, eq=False)
class Dask(Executor):
    """Dask's scheduler: threads, processes or a cluster, whatever is active."""

    parts: tuple[Any, ...]

    def map(self, work: Pass) -> list[Any]:
        import dask

        with _large_graphs():
            return list(dask.compute(*self._tasks(work)))

    def sum(self, work: Pass) -> Any:
        import dask

        join = dask.delayed(partial(reduce, add), pure=False)
        tasks = self._tasks(work)
        while len(tasks) > 1:
            tasks = [join(tasks[k : k + FAN_IN]) for k in range(0, len(tasks), FAN_IN)]
        with _large_graphs():
            return dask.compute(tasks[0])[0]

    def extend(self, block: Block) -> "Dask":
        import dask

        return Dask((*self.parts, dask.delayed(block, traverse=False, pure=False)))

    def _tasks(self, work: Pass) -> list[Any]:
        import dask

        def node(value: Any) -> Any:
            """One node of the graph, sent to a worker once."""
            return dask.delayed(value, traverse=False, pure=False)

        run, task, shared = dask.delayed(run_task, pure=False), node(work.task), node(work.shared)
        # What is known about a block is small enough to be a part of its task.
        details = {k: work.details(k) if work.own is None else node(work.details(k)) for k in work.places}
        return [run(task, self.parts[k], k, details[k], shared) for k in work.places]


def _find_client() -> Any:
    """The client of a dask cluster, if that is where dask computes."""
    from dask.base import get_scheduler

    return getattr(get_scheduler(), "__self__", None)


def _large_graphs() -> AbstractContextManager[Any]:
    import dask

    # A model of a few thousand columns is a large graph to dask, and has to be sent all the same.
    return dask.config.set({"distributed.admin.large-graph-warning-threshold": "4GB"})


def make_executor(sources: Sources) -> Executor:
    """Dask for what comes from dask, and for anything while a client is open; otherwise threads."""
    weights = sources.weight or (None,) * len(sources.X)
    parts = tuple(zip(sources.X, sources.y, weights, strict=True))
    cluster = "distributed" in sys.modules and _find_client() is not None
    if not cluster and not any(map(is_delayed, chain.from_iterable(parts))):
        return Threads(parts)
    import dask

    read = dask.delayed(read_block, pure=False)
    blocks = [read(*part) for part in parts]
    # Workers of a cluster keep their blocks; a lost one is made again from its source.
    return Dask(dask.persist(*blocks) if cluster or _find_client() is not None else tuple(blocks))


Located = dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]]
"""For some blocks the positions of rows in the block, and the places of these rows in a list of numbers."""


@final
@dataclass
class Traffic:
    """What passes over the data have cost so far."""

    passes: float = 0.0  # passes over the data; one that reads some of the blocks counts as their share


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
    """Rows that are in memory: all of a problem's, or those of one of its blocks."""

    # Which block they are, and the number of the first one.
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
    """Rows that are read block by block, again in every pass."""

    executor: Executor  # who reads the blocks and does the work
    summary: Summary  # What the first pass found. After a change it still bounds all sizes from above.
    column_names: tuple[str, ...] | None  # the names of the columns
    inputs: tuple[str, ...]  # the files and folders that are known to be read
    absent: Absent | None = None  # rows that have weight 0, whatever their own
    columns: NDArray[np.intp] | None = None  # the columns of the blocks that count; None: all of them
    traffic: Traffic = field(default_factory=Traffic)  # what the passes have cost

    @property
    def n_blocks(self) -> int:
        return len(self.summary.blocks)

    @property
    def n_rows(self) -> int:
        return self.summary.n_rows

    @property
    def n_columns(self) -> int:
        return int(self.summary.squares.size)

    @cached_property
    def depth(self) -> int:
        """An upper bound of the number of additions that a row's share of a sum over all rows passes through, in any order.

        Sums are made chunk by chunk, block by block and then over the blocks, so that their rounding does not grow with the
        number of rows: this takes its place in ``gamma``.
        """
        summary, lengths = self.summary, [block.n_rows for block in self.summary.blocks.values()]
        sparse, n_columns = summary.n_sparse > 0, summary.squares.size
        return max(summation_depth(n, n_columns, sparse) for n in lengths) + len(lengths) + 8

    @cached_property
    def places(self) -> dict[int, Place]:
        """What is known about every block that has rows."""
        found, start = {}, 0
        for k in range(self.n_blocks):
            block = self.summary.blocks[k]
            if block.n_rows:
                absent = None if self.absent is None else self.absent.places(start, start + block.n_rows)
                found[k] = Place(start, block.checksum, absent)
            start += block.n_rows
        return found

    def locate(self, numbers: NDArray[np.int64]) -> Located:
        """For every block that has some of the rows, their positions in it and in ``numbers`` (which are sorted)."""
        found = {}
        for k, place in self.places.items():
            low, high = np.searchsorted(numbers, [place.start, place.start + self.summary.blocks[k].n_rows])
            if high > low:
                found[k] = numbers[low:high] - place.start, np.arange(low, high)
        return found

    def sum(self, task: Callable[..., Any], *args: Any, own: Mapping[int, Any] | None = None) -> Any:
        """The sum of ``task(block, *args)`` over all blocks.

        ``own``: where it is given, ``task(block, own[number], *args)``, with None for blocks that are not in it.
        """
        mine = None if own is None else {k: own.get(k) for k in self.places}
        self.traffic.passes += 1.0
        return self.executor.sum(Pass(task, self.places, mine, args))

    def map(self, task: Callable[..., Any], *args: Any, own: Mapping[int, Any] | None = None) -> list[Any]:
        """``task(block, *args)`` of every block in order, or ``task(block, own[number], *args)`` of those in ``own``."""
        places = self.places if own is None else {k: self.places[k] for k in own}
        self.traffic.passes += len(places) / max(1, len(self.places))
        return self.executor.map(Pass(task, places, own, args))

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
    rows.traffic.passes += 1.0
    _raise_faults(rows, task)
    return rows


def _raise_faults(rows: Blocks, task: Task) -> None:
    """Check the blocks that failed once more: the rows are numbered now, so the error can name the first one."""
    for k in sorted(k for k, block in rows.summary.blocks.items() if block.fault):
        rows.map(check_block, own={k: task})


@final
@dataclass(frozen=True, eq=False)
class Totals:
    """A problem's loss and penalty, and upper bounds of sums over its rows."""

    # As in the problem.
    loss: Loss
    penalty: Penalty
    fit_intercept: bool
    # Sizes; the intercept is not counted.
    n_rows: int
    n_columns: int
    depth: int  # at least the additions that a row's share of any sum over all rows passes through
    score_noise: float  # what the evaluation of the losses does to slopes, as an error of the scores
    weight_sum: float  # at least the sum of the weights ``s``
    # An upper bound of ``sqrt(sum_i s_i x_ij^2)`` for every column, and ``sqrt(sum_i s_i)`` for an intercept.
    column_norms: Array
    largest_norm: float  # at least the largest Euclidean norm of a row whose weight is above 0

    @cached_property
    def quadratic(self) -> Array:
        return np.broadcast_to(self.penalty.quadratic, (self.n_columns,))

    @property
    def least_curvature(self) -> float:
        """A lower bound of the eigenvalues of the Hessian at any point."""
        return 0.0 if self.fit_intercept else self.penalty.strong_convexity

    @property
    def norm(self) -> float:
        """An upper bound of ``sqrt(sum_i s_i |x_i|^2)``."""
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
    # Squares underflow, and so do their products with weights.
    tiny = TINY * (1.0 + float(np.sqrt((1.0 + summary.weights.largest.value) / unit)))
    norms = (np.sqrt(summary.squares / unit) + tiny) * (1.0 + gamma(n_rows + 8))
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
