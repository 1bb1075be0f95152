"""What a command found, and the forms in which it is told: a table, JSON, files."""

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import glru
from glru._files import write_atomically
from glru.cli.options import OutputOptions

SCHEMA = "glru/1"
TABLES, PICTURES = (".csv", ".parquet"), (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Outcome:
    """What a command found.

    Attributes
    ----------
    command : str
        Its name.
    title : str
        What was computed.
    lines : list of (str, str)
        The result for people.
    facts : dict
        Data and model, for programs.
    result : dict
        The result, for programs.
    seconds : dict
        Time spent in each part.
    table : callable or None
        Makes the columns for ``--out``.
    display : callable or None
        Makes the picture for ``--plot``.
    page : callable or None
        Makes the report for ``--html``.
    """

    command: str
    title: str
    lines: list[tuple[str, str]]
    facts: dict[str, Any]
    result: dict[str, Any]
    seconds: dict[str, float]
    table: Callable[[], dict[str, Any]] | None = None
    display: Callable[[], Any] | None = None
    page: Callable[[], str] | None = None

    def as_json(self) -> str:
        """The result as strict JSON: what is infinite or unknown is null."""
        seconds = {name: round(value, 6) for name, value in self.seconds.items()}
        values = {"schema": SCHEMA, "command": self.command, "version": glru.__version__}
        values |= self.facts | {"result": self.result, "seconds": seconds}
        return json.dumps(_plain(values), indent=2, allow_nan=False)


def check(output: OutputOptions) -> None:
    """Refuse output that could not be written, before any work."""
    for path, suffixes in ((output.out, TABLES), (output.plot, PICTURES), (output.html, (".html", ".htm"))):
        if path is None:
            continue
        if path.suffix.lower() not in suffixes:
            raise ValueError(f"{path} must end in {' or '.join(suffixes)}.")
        if not path.parent.is_dir():
            raise ValueError(f"{path} must lie in a folder that exists; {path.parent} does not.")
    if output.plot is not None:
        _matplotlib()


def _matplotlib() -> Any:
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        raise ModuleNotFoundError("a picture needs matplotlib. Install it with: pip install 'glru[plot]'") from None
    mpl.use("Agg")
    return mpl


def deliver(outcome: Outcome, output: OutputOptions) -> None:
    """Write the files that were asked for, then print the result."""
    written = []
    if output.out is not None and outcome.table is not None:
        write_atomically(output.out, _table_writer(outcome.table()))
        written.append(output.out)
    if output.plot is not None and outcome.display is not None:
        _matplotlib()
        figure = outcome.display().plot().figure_
        write_atomically(output.plot, lambda part: figure.savefig(part, dpi=150))
        written.append(output.plot)
    if output.html is not None and outcome.page is not None:
        page = outcome.page().encode()
        write_atomically(output.html, lambda part: _write(part, page))
        written.append(output.html)
    if output.json:
        sys.stdout.write(outcome.as_json() + "\n")
    elif not output.quiet:
        show(outcome.title, outcome.lines + [("written", str(path)) for path in written])


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def show(title: str, lines: list[tuple[str, str]]) -> None:
    """Print a short table."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title, style="bold"), title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in lines:
        table.add_row(Text(name), Text(text))
    Console(soft_wrap=not sys.stdout.isatty()).print(table)


def _table_writer(columns: dict[str, Any]) -> Callable[[Path], None]:
    import polars as pl

    frame = pl.DataFrame(columns)

    def write(path: Path) -> None:
        if path.suffix.lower() == ".csv":
            frame.write_csv(path)
        else:
            frame.write_parquet(path)

    return write


def _plain(value: Any) -> Any:
    """Values as JSON knows them."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def duration(seconds: float) -> str:
    """A time for people."""
    if seconds < 1.0:
        return f"{1000.0 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120.0 else f"{seconds / 60.0:.1f} min"


def interval(lower: float, upper: float) -> str:
    """An interval for people: one number where its ends agree to as many digits as are shown."""
    low, high = f"{lower:.6g}", f"{upper:.6g}"
    return low if low == high else f"{low} to {high}"
