"""Progress of long runs: a line on the terminal, a callable of the user's, or nothing."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str, int, int], None]


@contextmanager
def reporter(progress: bool | Report) -> Iterator[Report]:
    """A function to call with the stage, the number of rows decided and the number of rows."""
    if callable(progress):
        yield progress
        return
    if not progress or not sys.stderr.isatty():
        yield lambda stage, done, total: None
        return
    begin = last = time.perf_counter()

    def show(stage: str, done: int, total: int) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - begin > 2.0 and now - last > 0.1:
            last = now
            sys.stderr.write(f"\r{stage}: {done} of {total} rows decided, {now - begin:.0f} s ")
            sys.stderr.flush()

    try:
        yield show
    finally:
        if last > begin:
            sys.stderr.write("\n")
