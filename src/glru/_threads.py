"""Sharing a loop over rows between the cores: compiled kernels and BLAS release the interpreter lock."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

Result = TypeVar("Result")


@cache
def n_threads() -> int:
    """Cores this process may use, at most ``OMP_NUM_THREADS`` where that is set."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores, int(limit))) if limit.isdigit() else cores


def in_parts(work: Callable[[int, int], Result], n_items: int, smallest: int) -> list[Result]:
    """``work(start, stop)`` over consecutive parts of ``range(n_items)``, at least ``smallest`` items each."""
    n_parts = max(1, min(n_threads(), n_items // max(smallest, 1)))
    if n_parts == 1:
        return [work(0, n_items)]
    edges = [k * n_items // n_parts for k in range(n_parts + 1)]
    return list(_pool().map(work, edges[:-1], edges[1:]))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads(), thread_name_prefix="glru")


# Threads do not survive a fork; a child starts its own on first use.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)
