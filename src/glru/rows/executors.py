"""How a task runs on every block: in threads of this process, or by dask.

Blocks that were dask objects, and any blocks while a dask ``Client`` is open, are dask's to schedule: results are added up in
a tree, and workers keep the blocks they have read. Other blocks are read by threads of this process, a few at a time.
"""

import errno
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import count
from operator import add
from typing import Any, final

import numpy as np

from glru.linalg import calm_blas, n_threads
from glru.rows.block import Block, Places, read_block
from glru.rows.sources import Sources, make_change_error

FAN_IN = 8
"""Number of results that one task adds up."""

Task = Callable[..., Any]
"""Called with a :class:`Block`, the argument for this block (if any), and the arguments for all blocks."""


@final
@dataclass(frozen=True, eq=False)
class Place:
    """What is known about a block.

    Attributes
    ----------
    start : int
        The number of its first row.
    checksum : bytes or None
        The check-sum of its rows; None where they have not been read yet.
    absent : slice, array of int or None
        Rows that have weight 0, whatever their own.
    """

    start: int = 0
    checksum: bytes | None = None
    absent: Places | None = None


UNKNOWN = Place()
"""The entry of a block that has not been read."""


@final
@dataclass(frozen=True, eq=False)
class Pass:
    """A task for some blocks.

    Attributes
    ----------
    task : callable
        What to do with each block.
    places : mapping
        Which blocks, by number, and what is known about each.
    own : mapping or None
        An argument for each block.
    shared : tuple
        Arguments for all blocks.
    """

    task: Task
    places: Mapping[int, Place]
    own: Mapping[int, Any] | None
    shared: tuple[Any, ...]

    def details(self, number: int) -> tuple[Place, tuple[Any, ...]]:
        """What is known about one block, and the arguments that are meant for it alone."""
        return self.places[number], () if self.own is None else (self.own[number],)


def run_task(
    task: Task, parts: Any, number: int, details: tuple[Place, tuple[Any, ...]], shared: tuple[Any, ...]
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

        join = dask.delayed(_sum, pure=False)
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


def _sum(results: list[Any]) -> Any:
    return reduce(add, results)


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
    if not sources.from_dask and not cluster:
        return Threads(parts)
    import dask

    read = dask.delayed(read_block, pure=False)
    blocks = [read(*part) for part in parts]
    # Workers of a cluster keep their blocks; a lost one is made again from its source.
    return Dask(dask.persist(*blocks) if cluster or _find_client() is not None else tuple(blocks))
