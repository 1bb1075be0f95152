"""Passes over blocks of rows: the same work on every block, the results added up or brought home one by one.

Blocks that were dask objects, and any blocks while a dask ``Client`` is open, are dask's to schedule: results are added up in
a tree, and workers keep the blocks they have read. Other blocks are read by threads of this process, a few at a time.
"""

import errno
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, is_dataclass
from functools import reduce
from itertools import count
from operator import add
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import Matrix, calm_blas, n_threads
from glru.partitioned.rows import Layout, Rows, rows_of
from glru.partitioned.sources import Sources, data_changed

FAN_IN = 8
"""Results that one task adds up."""

Work = Callable[..., Any]
"""Called with a block (a problem, or its rows where there is no layout yet), its number, its first row and the arguments."""


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
@dataclass(frozen=True)
class Place:
    """What is known of a block's rows: the number of the first one, and their check-sum (None: not yet)."""

    start: int = 0
    checksum: bytes | None = None


UNKNOWN = Place()
"""The place of a block that has not been counted."""

Places = dict[int, Place]


class Crew(ABC):
    """Whoever runs tasks on blocks."""

    @abstractmethod
    def map(self, work: Work, layout: Layout | None, blocks: Sequence[int], places: Places, args: Any) -> Any:
        """The results of the blocks, in order."""

    @abstractmethod
    def total(self, work: Work, layout: Layout | None, blocks: Sequence[int], places: Places, args: Any) -> Any:
        """The sum of the results, in any order."""


def perform(work: Work, layout: Layout | None, rows: Any, number: int, place: Place, extra: Any, args: Any) -> Any:
    """Work on one block; overflow ends in infinite bounds, and one thread a task is enough."""
    try:
        with calm_blas(0.0), np.errstate(all="ignore"):
            block = rows if isinstance(rows, Rows) else rows_of(*rows)
            own = () if extra is None else (extra,)
            found = work(
                block if layout is None else layout.problem(block, place.start), number, place.start, *own, *args
            )
            # After the work: rows of a memory map can change while it is done.
            if place.checksum is not None and block.checksum() != place.checksum:
                raise data_changed(f"block {number}, which begins with row {place.start},")
            return found
    except (MemoryError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.ENOMEM:
            raise
        raise MemoryError(
            f"a block of rows must fit into memory a few times over, in every thread; block {number} did not ({error}). "
            "Make blocks smaller: block_bytes of glru.PartitionedProblem, for dask rechunk or repartition."
        ) from None


@final
class Threads(Crew):
    """Threads of this process; each reads a block, works on it and lets it go."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

    def _task(self, work: Work, layout: Layout | None, k: int, places: Places, args: Any) -> Any:
        parts = self.sources
        rows = parts.X[k], parts.y[k], None if parts.weight is None else parts.weight[k]
        shared, own = args
        return perform(work, layout, rows, k, places.get(k, UNKNOWN), own.get(k), shared)

    def map(self, work: Work, layout: Layout | None, blocks: Sequence[int], places: Places, args: Any) -> Any:
        with ThreadPoolExecutor(min(n_threads(), max(1, len(blocks)))) as pool:
            return list(pool.map(lambda k: self._task(work, layout, k, places, args), blocks))

    def total(self, work: Work, layout: Layout | None, blocks: Sequence[int], places: Places, args: Any) -> Any:
        place = count()

        def some(_: int) -> Any:
            found = None
            while (here := next(place)) < len(blocks):
                result = self._task(work, layout, blocks[here], places, args)
                found = result if found is None else found + result
            return found

        n_workers = min(n_threads(), len(blocks))
        with ThreadPoolExecutor(n_workers) as pool:
            return reduce(add, [part for part in pool.map(some, range(n_workers)) if part is not None])


@final
class Dask(Crew):
    """Dask's scheduler: threads, processes or a cluster, whatever is active."""

    def __init__(self, sources: Sources) -> None:
        import dask

        assemble = dask.delayed(rows_of, pure=False)
        weights = sources.weight or (None,) * len(sources.X)
        rows = [assemble(*parts) for parts in zip(sources.X, sources.y, weights, strict=True)]
        # Workers of a cluster keep their blocks; a lost one is made again from its source.
        self.rows = dask.persist(*rows) if _client() is not None else tuple(rows)

    def map(self, work: Work, layout: Layout | None, blocks: Sequence[int], places: Places, args: Any) -> Any:
        import dask

        with _large_graphs():
            return list(dask.compute(*self._tasks(work, layout, blocks, places, args)))

    def total(self, work: Work, layout: Layout | None, blocks: Sequence[int], places: Places, args: Any) -> Any:
        import dask

        join = dask.delayed(_joined, pure=False)
        tasks = self._tasks(work, layout, blocks, places, args)
        while len(tasks) > 1:
            tasks = [join(tasks[k : k + FAN_IN]) for k in range(0, len(tasks), FAN_IN)]
        with _large_graphs():
            return dask.compute(tasks[0])[0]

    def _tasks(self, work: Work, layout: Layout | None, blocks: Sequence[int], places: Places, args: Any) -> list[Any]:
        import dask

        shared, own = args
        # Each of these is one node of the graph, sent to a worker once.
        common = [dask.delayed(value, traverse=False, pure=False) for value in (work, layout, shared)]
        run = dask.delayed(perform, pure=False)
        extras = {k: dask.delayed(value, traverse=False, pure=False) for k, value in own.items()}
        return [
            run(common[0], common[1], self.rows[k], k, places.get(k, UNKNOWN), extras.get(k), common[2]) for k in blocks
        ]


def _joined(results: list[Any]) -> Any:
    return reduce(add, results)


def _client() -> Any:
    """The client of a dask cluster, if that is where dask computes."""
    from dask.base import get_scheduler

    return getattr(get_scheduler(), "__self__", None)


def _large_graphs() -> Any:
    import dask

    # A model of a few thousand columns is a large graph to dask, and has to be sent all the same.
    return dask.config.set({"distributed.admin.large-graph-warning-threshold": "4GB"})


def crew_of(sources: Sources) -> Crew:
    """Dask for what comes from dask, and for anything while a client is open; otherwise threads."""
    cluster = "distributed" in sys.modules and _client() is not None
    return Dask(sources) if sources.from_dask or cluster else Threads(sources)


@final
class Blocks:
    """The blocks of a problem, and passes over them.

    Parameters
    ----------
    crew : Crew
        Who does the work.
    n_blocks : int
        Their number.
    """

    def __init__(self, crew: Crew, n_blocks: int) -> None:
        self.crew, self.n_blocks = crew, n_blocks
        self.starts: dict[int, int] = {}
        self._places: Places = {}
        self.lengths: dict[int, int] = {}
        self.traffic = Traffic()

    def place(self, lengths: dict[int, int], checksums: dict[int, bytes]) -> None:
        """Number the rows, once the blocks' lengths are known; from now on, rows of another check-sum are an error."""
        ordered = [lengths[k] for k in range(self.n_blocks)]
        edges = np.concatenate([[0], np.cumsum(ordered, dtype=np.int64)])
        self.starts = {k: int(edges[k]) for k in range(self.n_blocks)}
        self.lengths = dict(enumerate(ordered))
        self._places = {k: Place(start, checksums[k]) for k, start in self.starts.items()}

    def places(self, numbers: NDArray[np.int64]) -> dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """For every block that has some of the rows, their places in it and in ``numbers`` (which are sorted)."""
        found = {}
        for k, start in self.starts.items():
            low, high = np.searchsorted(numbers, [start, start + self.lengths[k]])
            if high > low:
                found[k] = numbers[low:high] - start, np.arange(low, high)
        return found

    @property
    def _all(self) -> list[int]:
        return [k for k in range(self.n_blocks) if self.lengths.get(k) != 0]

    def total(self, work: Work, layout: Layout | None, *args: Any) -> Any:
        """The sum of ``work(block, number, start, *args)`` over all blocks."""
        found = self.crew.total(work, layout, self._all, self._places, (args, {}))
        self._count(len(self._all), args, len(self._all) * size_of(found))
        return found

    def total_of(self, work: Work, layout: Layout | None, own: dict[int, Any], *args: Any) -> Any:
        """The same for ``work(block, number, start, own, *args)``; blocks without an entry in ``own`` get None."""
        extras = {k: own.get(k, NOTHING) for k in self._all}
        found = self.crew.total(work, layout, self._all, self._places, (args, extras))
        self._count(len(self._all), args, len(self._all) * size_of(found))
        return found

    def map(self, work: Work, layout: Layout | None, *args: Any) -> list[Any]:
        """``work(block, number, start, *args)`` of every block that has rows, in order."""
        found = self.crew.map(work, layout, self._all, self._places, (args, {}))
        self._count(len(self._all), args, sum(map(size_of, found)))
        return found

    def map_of(self, work: Work, layout: Layout | None, own: dict[int, Any], *args: Any) -> list[Any]:
        """``work(block, number, start, own, *args)`` of the blocks that have an entry in ``own``, in its order."""
        found = self.crew.map(work, layout, list(own), self._places, (args, own))
        self._count(len(own), args, sum(map(size_of, found)))
        return found

    def _count(self, n_tasks: int, args: Any, up: int) -> None:
        self.traffic.passes += n_tasks / max(1, len(self._all))
        self.traffic.down += n_tasks * size_of(args)
        self.traffic.up += up


NOTHING: tuple[()] = ()
"""What a block is given that has nothing of its own."""


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
