"""A progress bar on the terminal for runs of more than two seconds."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

DELAY = 2.0
"""Seconds before the bar appears."""

Report = Callable[[str, int, int], None]


@contextmanager
def show_progress(quiet: bool, console: Any = None) -> Iterator[Report]:
    """Yield a function that shows progress; call it with the task, the amount done and the total."""
    if console is None:
        if quiet or not sys.stderr.isatty():
            yield lambda what, done, total: None
            return
        from rich.console import Console

        console = Console(stderr=True)
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    shown = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    task = shown.add_task("reading and training", total=None, rate="")
    timer = threading.Timer(DELAY, shown.start)
    timer.daemon = True
    timer.start()

    def report(what: str, done: int, total: int) -> None:
        speed = shown.tasks[0].speed
        shown.update(
            task, description=what, completed=done, total=total, rate=f"{speed:.0f}/s" if speed is not None else ""
        )

    try:
        yield report
    finally:
        timer.cancel()
        timer.join()
        shown.stop()
