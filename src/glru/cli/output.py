"""What a command prints and writes: its result as a table, JSON or files, progress, the log, versions and exit codes."""

import glob
import hashlib
import importlib.metadata
import io
import json
import math
import platform
import shlex
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

import glru
from glru._extras import require
from glru._files import check_target, refuse_input, write_atomically
from glru.bounds import ScoreBounds
from glru.cli.options import FileOptions, OutputOptions
from glru.datasets import Prepared
from glru.datasets.files import STANDARD_INPUT, expand, read_standard_input
from glru.linalg import as_matrix
from glru.report import page
from glru.report.frame import Section

BAD_INPUT, TIME_IS_UP, REFUTED, INTERRUPTED = 1, 3, 4, 130
"""Exit codes, in addition to 0 (done) and 2 (wrong usage)."""

SCHEMA = "glru/1"
MAX_NAME_WIDTH = 40
"""Width of the first column of the printed table; longer names are folded."""

TABLES, PICTURES = (".csv", ".parquet"), (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Outcome:
    """The result of a command."""

    command: str
    title: str  # what was computed
    lines: list[tuple[str, str]]  # the result for people
    facts: dict[str, Any]  # data and model, for programs
    result: dict[str, Any]  # the result, for programs
    seconds: dict[str, float]  # time spent in each part
    table: Callable[[], dict[str, Any]] | None = None  # makes the columns for ``--out``
    display: Callable[[], Any] | None = None  # makes the picture for ``--plot``
    sections: Callable[[], list[Section]] | None = None  # makes the pictures and tables of ``--html``
    prepared: Prepared | None = None  # the data, for the origin of a report

    def as_json(self) -> str:
        """The result as strict JSON, with null for infinite or unknown values."""
        seconds = {name: round(value, 6) for name, value in self.seconds.items()}
        values = {"schema": SCHEMA, "command": self.command, "version": glru.__version__}
        values |= self.facts | {"result": self.result, "seconds": seconds}
        return json.dumps(_to_json_types(values), indent=2, allow_nan=False)


def check(output: FileOptions, inputs: Iterable[Path | None], checkpoint: Path | None = None) -> None:
    """Before any work, refuse output that cannot be written or would overwrite an input."""
    read = list(inputs)
    if checkpoint is not None:
        refuse_input(checkpoint, "--checkpoint", read)
        read.append(checkpoint)
    for option, suffixes in (("out", TABLES), ("plot", PICTURES), ("html", (".html", ".htm"))):
        path = getattr(output, option, None)
        if path is None:
            continue
        if path.suffix.lower() not in suffixes:
            raise ValueError(f"{path} must end in {' or '.join(suffixes)}.")
        check_target(path, str(path))
        refuse_input(path, f"--{option}", read)
    if isinstance(output, OutputOptions) and (output.plot is not None or output.html is not None):
        require("matplotlib", "plot", "a picture").use("Agg")


def deliver(outcome: Outcome, output: FileOptions) -> None:
    """Write the files that were asked for, then print the result."""
    written = []
    if output.out is not None and outcome.table is not None:
        written.append(_write(output.out, _encode_table(outcome.table(), output.out.suffix.lower())))
    if isinstance(output, OutputOptions):
        if output.plot is not None and outcome.display is not None:
            picture = io.BytesIO()
            figure = outcome.display().plot().figure_
            figure.savefig(picture, format=output.plot.suffix.lower().removeprefix("."), dpi=150)
            written.append(_write(output.plot, picture.getvalue()))
        if output.html is not None and outcome.sections is not None and outcome.prepared is not None:
            origin = [
                ("source", outcome.prepared.source),
                ("SHA-256 of the data", compute_checksum(outcome.prepared)),
                ("date", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
            ]
            parts = outcome.title, outcome.lines, outcome.sections()
            report = page(*parts, join_command_line(), origin, list_versions())
            written.append(_write(output.html, report.encode()))
    lines = outcome.lines + [("written", str(path)) for path in written]
    write_log(output.log, "\n".join([outcome.title, *(f"  {name}: {text}" for name, text in lines)]))
    if output.json:
        sys.stdout.write(outcome.as_json() + "\n")
    elif output.table is not None:
        sys.stdout.write(PAPER_TABLES[output.table](outcome.title, outcome.lines))
    elif not output.quiet:
        show(outcome.title, lines)


def write_log(path: Path | None, text: str) -> None:
    """Add lines to the log, each with the time."""
    if path is not None:
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{now}  {line}\n" for line in text.splitlines())


def _to_markdown(title: str, lines: list[tuple[str, str]]) -> str:
    def cell(text: str) -> str:
        return text.replace("\\", "\\\\").replace("|", "\\|")

    body = "".join(f"| {cell(name)} | {cell(text)} |\n" for name, text in lines)
    return f"**{title}**\n\n| | |\n|---|---|\n{body}"


def _to_latex(title: str, lines: list[tuple[str, str]]) -> str:
    special = {character: f"\\{character}" for character in "&%$#_{}"}
    special |= {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
    }
    table = str.maketrans(special)

    def cell(text: str) -> str:
        # Two hyphens would become a dash.
        return text.translate(table).replace("--", "-{}-")

    body = "".join(f"  {cell(name)} & {cell(text)} \\\\\n" for name, text in lines)
    return f"\\begin{{tabular}}{{lp{{0.7\\linewidth}}}}\n  \\multicolumn{{2}}{{l}}{{{cell(title)}}} \\\\\n  \\hline\n{body}\\end{{tabular}}\n"


def _to_html(title: str, lines: list[tuple[str, str]]) -> str:
    body = "".join(f'  <tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>\n' for name, text in lines)
    return f"<table>\n  <caption>{escape(title)}</caption>\n{body}</table>\n"


PAPER_TABLES = {"md": _to_markdown, "tex": _to_latex, "html": _to_html}


def _write(path: Path, data: bytes) -> Path:
    """Write a file from memory, because other libraries report a full disk with their own errors."""
    write_atomically(path, lambda part: part.write_bytes(data))
    return path


def show(title: str, lines: list[tuple[str, str]]) -> None:
    """Print a short table."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(soft_wrap=not sys.stdout.isatty())
    # A long name, such as that of a group of columns, is folded: it must leave room for what is said of it.
    widest = min(MAX_NAME_WIDTH, console.width // 2)
    table = Table(title=Text(title, style="bold"), title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="cyan", overflow="fold", max_width=widest)
    table.add_column(overflow="fold")
    for name, text in lines:
        table.add_row(Text(name), Text(text))
    console.print(table)


def _encode_table(columns: dict[str, Any], suffix: str) -> bytes:
    pl = require("polars", "cli", "--out")
    frame, data = pl.DataFrame(columns), io.BytesIO()
    if suffix == ".csv":
        frame.write_csv(data)
    else:
        frame.write_parquet(data)
    return data.getvalue()


def _to_json_types(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _to_json_types(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_to_json_types(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def name_classes(classes: tuple[str, str] | None, signs: Any) -> list[str | None]:
    """What labels -1 and +1 stand for; None where a label is open."""
    names = {-1: classes[0], 1: classes[1]} if classes else {-1: "-1", 1: "+1"}
    return [names.get(int(sign)) for sign in signs]


def bound_probabilities(problem: glru.Problem, bounds: ScoreBounds) -> dict[str, Any]:
    """Bounds of the probability of the class +1, for losses that have one; rounded outward."""
    if not problem.loss.probabilities:
        return {}
    lower, upper = bounds.probabilities()
    return {"probability_lower": lower[:, 1], "probability_upper": upper[:, 1]}


def format_duration(seconds: float) -> str:
    """A time as text."""
    if seconds < 1.0:
        return f"{1000.0 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120.0 else f"{seconds / 60.0:.1f} min"


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


PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "polars")


def list_versions() -> dict[str, str]:
    """Return the versions of this package and of its dependencies that are installed."""
    found = {"glru": glru.__version__, "python": platform.python_version(), "platform": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def compute_checksum(prepared: Prepared) -> str:
    """The SHA-256 of the data files (for one file, that of sha256sum), or of the values of a named dataset."""
    digest = hashlib.sha256()
    path = Path(prepared.source)
    if path == STANDARD_INPUT:
        digest.update(read_standard_input())
    elif path.exists() or glob.has_magic(prepared.source):
        for file in expand(path):
            with file.open("rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
    else:
        for part in (*as_matrix(prepared.raw).parts.values(), prepared.y):
            digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def join_command_line() -> str:
    """The command as it was given."""
    return shlex.join(["glru", *sys.argv[1:]])
