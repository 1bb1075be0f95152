"""Turning functions into commands: option dataclasses are spread out, errors become messages and exit codes."""

import functools
import inspect
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_type_hints

import typer

from glru._budget import OutOfTime
from glru._options import check_options

BAD_INPUT, TIME_IS_UP, REFUTED, INTERRUPTED = 1, 3, 4, 130
"""Exit codes, in addition to 0 (done) and 2 (wrong usage)."""

GRACE = 1.2, 2.0
"""A command is stopped after ``--max-seconds`` times the first number plus the second, in seconds, if it has not ended before."""


def add_command(app: typer.Typer, name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a function to the command line; a parameter whose type is a dataclass brings all fields of it as options."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        app.command(name)(_spread_options(function))
        return function

    return decorate


def _spread_options(function: Callable[..., None]) -> Callable[..., None]:
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {key: hint for key, hint in hints.items() if is_dataclass(hint)}
    parameters = []
    for key, parameter in inspect.signature(function).parameters.items():
        if key not in groups:
            parameters.append(parameter.replace(annotation=hints[key], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        types = get_type_hints(groups[key], include_extras=True)
        for field in fields(groups[key]):
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            parameters.append(
                inspect.Parameter(
                    field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[field.name]
                )
            )

    @functools.wraps(function)
    def run(**values: Any) -> None:
        given = dict(values)
        arguments = {
            key: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for key, group in groups.items()
        }
        log = next((group.log for group in arguments.values() if getattr(group, "log", None)), None)
        with _report_errors(log):
            check_options(function.__name__, given, lambda name: f"--{name.replace('_', '-')}")
            with _limit_time(given.get("max_seconds")):
                function(**arguments, **values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def write_log(path: Path | None, text: str) -> None:
    """Add lines to the log, each with the time."""
    if path is not None:
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{now}  {line}\n" for line in text.splitlines())


@contextmanager
def _limit_time(seconds: float | None) -> Iterator[None]:
    """Stop work that does not check the clock, such as reading or drawing, shortly after the time is up."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise OutOfTime

    # A thread rings, as Windows has no alarm; elsewhere the signal also ends a call that waits.
    number: signal.Signals = getattr(signal, "SIGALRM", None) or signal.Signals["SIGBREAK"]
    main = threading.main_thread().ident

    def ring() -> None:
        if hasattr(signal, "pthread_kill"):
            signal.pthread_kill(main or 0, number)
        else:
            signal.raise_signal(number)

    before = signal.signal(number, stop)
    timer = threading.Timer(GRACE[0] * seconds + GRACE[1], ring)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        signal.signal(number, before)


@contextmanager
def _report_errors(log: Path | None) -> Iterator[None]:
    """Print a message instead of a traceback where the user can correct the cause."""
    try:
        write_log(log, shlex.join(["glru", *sys.argv[1:]]))
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output has closed it; typer ends the process quietly.
        raise
    except (ValueError, OSError, ModuleNotFoundError) as error:
        reason = _explain(error)
        sys.stderr.write(f"error: {reason}\n")
        if not (isinstance(error, OSError) and error.filename == str(log)):
            write_log(log, f"error: {reason}")
        raise typer.Exit(BAD_INPUT) from None
    except OutOfTime:
        message = "the time is up, and no result is complete; --checkpoint keeps what is finished"
        sys.stderr.write(f"error: {message}\n")
        write_log(log, f"error: {message}")
        raise typer.Exit(TIME_IS_UP) from None
    except KeyboardInterrupt:
        write_log(log, "interrupted")
        sys.stderr.write("interrupted\n")
        raise typer.Exit(INTERRUPTED) from None


def _explain(error: Exception) -> str:
    """The message of an error; an operating-system error without a file name concerns the standard output."""
    if not isinstance(error, OSError) or error.filename is not None or error.strerror is None:
        return str(error)
    # The rest of the buffer would fail again when the process ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return f"the result could not be printed ({error.strerror}). Free space, or print it elsewhere."
