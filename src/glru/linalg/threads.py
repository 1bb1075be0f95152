"""Sharing work between the cores: loops over rows in threads of our own, and BLAS on one thread where more would wait."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

SMALL_WORK = 1e9
"""Below this number of operations in the largest product, waking the threads of BLAS costs more than they save."""

Result = TypeVar("Result")


_asked: ContextVar[int | None] = ContextVar("_asked", default=None)
"""How many threads the call that is running asked for."""


def n_threads() -> int:
    """Threads to use: as many as were asked for, otherwise one per core or ``OMP_NUM_THREADS``."""
    return _asked.get() or _count_usual_threads()


@contextmanager
def use_threads(n_jobs: int | None) -> Iterator[None]:
    """Work on n_jobs threads inside, BLAS included; negative numbers count back from the cores, None changes nothing."""
    if n_jobs is None:
        yield
        return
    count = int(n_jobs) if n_jobs > 0 else max(1, _cores() + 1 + int(n_jobs))
    token = _asked.set(count)
    try:
        with _blas().limit(limits=count):
            yield
    finally:
        _asked.reset(token)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _count_usual_threads() -> int:
    """Cores this process may use, at most ``OMP_NUM_THREADS`` where that is set."""
    cores = _cores()
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores, int(limit))) if limit.isdigit() else cores


def run_in_parts(work: Callable[[int, int], Result], n_items: int, smallest: int) -> list[Result]:
    """``work(start, stop)`` over consecutive parts of ``range(n_items)``, at least ``smallest`` items each."""
    n_parts = max(1, min(n_threads(), n_items // max(smallest, 1)))
    if n_parts == 1:
        return [work(0, n_items)]
    edges = [k * n_items // n_parts for k in range(n_parts + 1)]
    # Each part in a copy of the caller's context, where NumPy keeps what to do about overflow.
    contexts = [copy_context() for _ in edges[1:]]
    return list(_pool().map(lambda context, *ends: context.run(work, *ends), contexts, edges[:-1], edges[1:]))


def total(parts: list[Any]) -> Any:
    """The sum of arrays, in the first of them."""
    for other in parts[1:]:
        parts[0] += other
    return parts[0]


@contextmanager
def calm_blas(work: float) -> Iterator[None]:
    """BLAS on one thread inside, where the largest product is small; nested and concurrent uses share one limit."""
    if work > SMALL_WORK:
        yield
        return
    use = object()
    try:
        try:
            _calm.enter(use)
            yield
        finally:
            _calm.leave(use)
    finally:
        # Where Ctrl-C came on the way out.
        _calm.leave(use)


class _Calm:
    """The limit, set by whoever comes first and lifted by whoever leaves last; both may be interrupted anywhere and leaving be repeated."""

    def __init__(self) -> None:
        # A garbage collection inside may end another use in the same thread.
        self._lock, self._uses = threading.RLock(), set[object]()
        self._lowered: list[tuple[Any, int]] = []  # libraries that had more threads, and how many

    def enter(self, use: object) -> None:
        with self._lock:
            self._uses.add(use)
            if len(self._uses) > 1:
                return
            for library in _blas().lib_controllers:
                count = library.get_num_threads()
                if count is not None and count > 1:
                    self._lowered.append((library, count))
                    library.set_num_threads(1)

    def leave(self, use: object) -> None:
        with self._lock:
            self._uses.discard(use)
            while self._lowered and not self._uses:
                library, count = self._lowered[-1]
                library.set_num_threads(count)
                self._lowered.pop()


_calm = _Calm()


@cache
def _blas() -> Any:
    return ThreadpoolController().select(user_api="blas")


@cache
def _pool() -> ThreadPoolExecutor:
    # Threads are started only as parts wait for them, so that the limit may be generous.
    return ThreadPoolExecutor(max(_cores(), _count_usual_threads()), thread_name_prefix="glru")


# Threads do not survive a fork; a child starts its own on first use.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)
