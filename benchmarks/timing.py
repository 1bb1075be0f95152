"""Timing and printing, shared by all benchmarks."""

import platform
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info


def best_time(work: Callable[[], object], repeats: int = 3, enough: float = 5.0) -> float:
    """The shortest of some runs, in seconds; fewer runs where they take long."""
    best, spent = np.inf, 0.0
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        best, spent = min(best, time.perf_counter() - begin), spent + time.perf_counter() - begin
        if spent > enough:
            break
    return best


def machine() -> str:
    """The machine, the BLAS libraries and their threads, in a line."""
    blas = {(i["internal_api"], i["num_threads"]) for i in threadpool_info() if i["user_api"] == "blas"}
    threads = ", ".join(f"{name} with {count} threads" for name, count in sorted(blas))
    return f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, {threads}"


def peak_memory() -> int:
    """The largest memory this process has held, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage counts what a parent held before the fork
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table with aligned columns."""
    widths = [max(len(str(row[k])) for row in [header, *rows]) for k in range(len(header))]
    print(f"\n{title}")
    for row in [header, ["-" * w for w in widths], *rows]:
        print(
            "  ".join(
                str(cell).rjust(w) if k else str(cell).ljust(w)
                for k, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
        )
