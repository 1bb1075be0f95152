"""The command-line application with all of its commands."""

import functools
import inspect
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

import glru
from glru import datasets
from glru._options import OutOfTime, check_options
from glru.cli import inputs, output
from glru.cli.check import certify, verify
from glru.cli.choose import select, tune
from glru.cli.loocv import loocv
from glru.cli.output import BAD_INPUT, INTERRUPTED, TIME_IS_UP, list_versions, write_log
from glru.cli.whatif import whatif

GRACE = 1.2, 2.0
"""A command is stopped after ``--max-seconds`` times the first number plus the second, in seconds, if it has not ended before."""


def spread_options(function: Callable[..., None]) -> Callable[..., None]:
    """A function whose parameters of a dataclass as type are replaced by one parameter for each of its fields."""
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
        write_log(log, output.join_command_line())
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


def data(
    name: Annotated[str | None, typer.Argument(help="A dataset to describe; by default all are listed.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """List the datasets that are known by name, or describe one."""
    if name is None:
        _list_datasets(as_json)
    else:
        _describe_dataset(name, as_json)


def _list_datasets(as_json: bool) -> None:
    entries = datasets.list()
    if as_json:
        _print_json({"datasets": [asdict(entry) for entry in entries]})
        return
    sizes = [f"{entry.shape[0]:,} rows x {entry.shape[1]:,} columns, " if entry.shape else "" for entry in entries]
    output.show("Datasets", [(entry.name, size + entry.source) for entry, size in zip(entries, sizes, strict=True)])


def _describe_dataset(name: str, as_json: bool) -> None:
    found = datasets.load(name)
    prepared = datasets.prepare(found)
    several = found.classes is not None and len(found.classes) > 2
    facts = {
        "name": found.name,
        "rows": int(found.X.shape[0]),
        "columns": int(found.X.shape[1]),
        "varying_columns": len(prepared.names),
        "task": found.task,
        "positive": int((found.y > 0).sum()) if found.task == "classification" and not several else None,
        "classes": inputs.describe_classes(found.classes),
        "normalize": prepared.normalize,
        "source": found.source,
    }
    if as_json:
        _print_json({"dataset": facts})
        return
    named = found.classes or ()
    shown = facts | {"classes": ", ".join(named) if several else f"{named[1]} against {named[0]}" if named else None}
    lines = [(key.replace("_", " "), str(value)) for key, value in shown.items() if value is not None]
    output.show(f"Dataset {name}", lines)


def print_version(asked: bool) -> None:
    """Print the version and exit, if asked to."""
    if asked:
        sys.stdout.write(f"glru {glru.__version__}\n")
        raise typer.Exit


def version(as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False) -> None:
    """Print the versions of glru and of its dependencies."""
    if as_json:
        _print_json({"versions": list_versions()}, "version")
    else:
        for name, value in list_versions().items():
            sys.stdout.write(f"{name:<14}{value}\n")


def _print_json(values: dict[str, object], command: str = "data") -> None:
    header = {"schema": output.SCHEMA, "command": command, "version": glru.__version__}
    sys.stdout.write(json.dumps(header | values, indent=2) + "\n")


app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def main(
    show: Annotated[
        bool, typer.Option("--version", is_eager=True, help="Print the version of glru.", callback=print_version)
    ] = False,
) -> None:
    """Compute and prove how a linear model changes when its training data changes, without retraining it."""


for function in (loocv, select, whatif, tune, certify, verify, data, version):
    app.command()(spread_options(function))
