"""The HTML frame of a report: summary, sections, tables, pictures as inline SVG, numbers as text. All text is escaped here."""

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, final

from glru._extras import require
from glru.display.scores import MARKS

MAX_PLAIN, MAX_LISTED = 1e9, 200
"""Larger numbers are written with a power of ten; and the largest number of lines in a table."""


def format_number(value: float, digits: int = 4) -> str:
    """A number to some digits: ``0.1235``, ``31,840`` (not ``3.184e+04``), ``1.592e+09``."""
    text = f"{value:.{digits}g}"
    if not 1e4 <= abs(float(text)) < MAX_PLAIN:
        return text
    whole, point, rest = (f"{float(text):.0f}" if "e+" in text else text).partition(".")
    return f"{int(whole):,}{point}{rest}"


def format_move(before: float, lower: float, upper: float) -> str:
    """``before -> after``, with enough digits (four to ten) to see that they differ; ends next to zero are not written down."""
    if lower < 0.0 < upper and upper - lower < 1e-4 * abs(before):
        return f"{format_number(before)} -> about 0"
    for digits in range(4, 11):
        first, last = format_number(before, digits), format_interval(lower, upper, digits)
        if first != last:
            break
    return f"{first} -> {last}"


def format_interval(lower: float, upper: float, digits: int = 4) -> str:
    """An interval as text: a single number where both ends agree to the digits shown; whole numbers in full."""
    if all(float(end).is_integer() and abs(end) < 1e15 for end in (lower, upper)):
        return f"{lower:,.0f}" if lower == upper else f"{lower:,.0f} to {upper:,.0f}"
    if not math.isfinite(lower) and not math.isfinite(upper):
        return "unknown"
    low, high = format_number(lower, digits), format_number(upper, digits)
    return low if low == high else f"{low} to {high}"


CERTIFIED = (
    "A certified interval or label comes with a mathematical proof that it holds for the exactly retrained model. The proof "
    "is computed from a duality gap and accounts for the rounding errors of that computation. What cannot be proven is "
    "called open; nothing is guessed."
)


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


def page(
    title: str,
    lines: Sequence[tuple[str, str]],
    sections: Sequence[Section],
    command: str,
    settings: Sequence[tuple[str, str]],
    versions: dict[str, str],
) -> str:
    """A whole report: the lines that are printed, pictures and tables, and what is needed to repeat the ``command``.

    ``settings``: where the data came from, and when; ``versions``: what is installed.
    """
    parts = [
        f"<section><h2>{escape(section.title)}</h2><p>{escape(section.text)}</p>{section.body}</section>"
        for section in sections
    ]
    summary, origin = (
        "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in part)
        for part in (lines, settings)
    )
    installed = ", ".join(f"{name} {value}" for name, value in versions.items())
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{escape(title)}</title>
<style>
{_asset("style.css")}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<dl class="summary">{summary}</dl>
{"".join(parts)}
<section><h2>What certified means</h2><p>{escape(CERTIFIED)}</p></section>
<section class="origin"><h2>How to repeat this run</h2><pre>{escape(command)}</pre><dl>{origin}</dl><p>{escape(installed)}</p></section>
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


def draw(figure: Any, label: str, tips: Sequence[str] = ()) -> str:
    """A matplotlib figure as SVG; ``tips``: what hovering over its marks shows, in their order, lines separated by line breaks."""
    plt = require("matplotlib.pyplot", "plot", "a picture")
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "glru"}), io.StringIO() as file:
        figure.savefig(file, format="svg", transparent=True)
        plt.close(figure)
        svg = file.getvalue().partition("<svg ")[2]
    texts = iter(tips)

    def add_tip(mark: re.Match[str]) -> str:
        text = next(texts, None)
        return mark[0] if text is None else f'{mark[1]} class="mark"><title>{escape(text)}</title></use>'

    # A group ends at the tag with its indentation.
    group = rf'\n( *)<g id="{MARKS}">.*?\n\1</g>'
    svg = re.sub(group, lambda found: re.sub("(<use [^>]*)/>", add_tip, found[0]), svg, flags=re.DOTALL)
    # Several pictures of one page would share their ids.
    svg = re.sub(r'<metadata>.*?</metadata>|(?<=<g) id="[^"]*"', "", svg, flags=re.DOTALL)
    return f'<figure class="scroll"><svg role="img" aria-label="{escape(label)}" {svg}</figure>'
