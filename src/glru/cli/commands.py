"""Turning functions into commands: option dataclasses are spread out, errors become messages and exit codes."""

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints

import typer

BAD_INPUT, INTERRUPTED = 1, 130


def command(app: typer.Typer, name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a function to the command line; a parameter whose type is a dataclass brings all fields of it as options."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        app.command(name)(_spread(function))
        return function

    return decorate


def _spread(function: Callable[..., None]) -> Callable[..., None]:
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
        arguments = {
            key: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for key, group in groups.items()
        }
        with _plain_errors():
            function(**arguments, **values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Print a message instead of a traceback where the user can correct the cause."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output has closed it; typer ends the process quietly.
        raise
    except (ValueError, OSError, ModuleNotFoundError) as error:
        sys.stderr.write(f"error: {_reason(error)}\n")
        raise typer.Exit(BAD_INPUT) from None
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise typer.Exit(INTERRUPTED) from None


def _reason(error: Exception) -> str:
    """An error's message; one of the operating system that names no file is about the standard output."""
    if not isinstance(error, OSError) or error.filename is not None or error.strerror is None:
        return str(error)
    # The rest of the buffer would fail again when the process ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return f"the result could not be printed ({error.strerror}). Free space, or print it elsewhere."
