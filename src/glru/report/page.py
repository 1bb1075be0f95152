"""The HTML frame of a report: summary, sections, tables, and how to repeat the run. All text is escaped here."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import final

from glru.report.format import format_interval, format_number

CERTIFIED = (
    "A certified interval or label comes with a mathematical proof that it holds for the exactly retrained model. The proof "
    "is computed from a duality gap and accounts for the rounding errors of that computation. What cannot be proven is "
    "called open; nothing is guessed."
)


@final
@dataclass(frozen=True)
class Provenance:
    """What is needed to repeat a run.

    Parameters
    ----------
    command : str
        The command as it was given.
    settings : sequence of (str, str)
        Data and model, in words.
    versions : dict
        What was installed.
    check : sequence of (str, str), default=()
        What the look at the data found.
    """

    command: str
    settings: Sequence[tuple[str, str]]
    versions: dict[str, str]
    check: Sequence[tuple[str, str]] = ()


@final
@dataclass(frozen=True)
class Section:
    """A heading, a sentence or two, and finished HTML below it."""

    title: str
    text: str
    body: str


Cell = str | float | int | tuple[float, float]
"""A cell of a table; a pair is an interval."""


def table(header: Sequence[str], rows: Sequence[Sequence[Cell]], kinds: Sequence[str] | None = None) -> str:
    """A table that can be sorted by its columns; ``kinds`` colours the rows."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    lines = []
    for k, row in enumerate(rows):
        cells = "".join(_cell(value) for value in row)
        lines.append(f'<tr class="{kinds[k]}">{cells}</tr>' if kinds else f"<tr>{cells}</tr>")
    return (
        f'<div class="scroll"><table class="sortable"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _cell(value: Cell) -> str:
    if isinstance(value, str):
        return f"<td>{escape(value)}</td>"
    if isinstance(value, tuple):
        ends = f"{value[0]!r} to {value[1]!r}"
        return f'<td class="number" data-value="{value[0]!r}" title="{ends}">{format_interval(*value, digits=5)}</td>'
    shown = f"{value:,}" if isinstance(value, int) else format_number(value, 5)
    return f'<td class="number" data-value="{value!r}">{shown}</td>'


def cards(values: Sequence[tuple[str, str]]) -> str:
    """The most important numbers, in large type."""
    items = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in values)
    return f'<div class="cards">{items}</div>'


def page(title: str, summary: Sequence[str], numbers: str, sections: Sequence[Section], origin: Provenance) -> str:
    """A whole report."""
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in summary)
    parts = [
        f"<section><h2>{escape(section.title)}</h2><p>{escape(section.text)}</p>{section.body}</section>"
        for section in sections
    ]
    settings = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in origin.settings)
    found = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in origin.check)
    if found:
        parts.insert(0, f"<section><h2>Data check</h2><dl>{found}</dl></section>")
    versions = ", ".join(f"{name} {value}" for name, value in origin.versions.items())
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{escape(title)}</title>
<style>
{_asset("style.css")}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<div class="summary">{paragraphs}</div>
{numbers}
{"".join(parts)}
<section><h2>What certified means</h2><p>{escape(CERTIFIED)}</p></section>
<section class="origin"><h2>How to repeat this run</h2><pre>{escape(origin.command)}</pre><dl>{settings}</dl><p>{escape(versions)}</p></section>
</main>
<div id="tip" role="status" hidden></div>
<script>
{_asset("script.js")}</script>
</body>
</html>
"""


@cache
def _asset(name: str) -> str:
    return (files("glru.report") / name).read_text(encoding="utf-8")
