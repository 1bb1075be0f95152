"""The HTML frame of a report: summary, sections, tables, plots as inline SVG, numbers as text. All text is escaped here."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import final

MAX_PLAIN = 1e9
"""Larger numbers are written with a power of ten."""


def format_count(number: int, what: str) -> str:
    """``1 row``, ``2 rows``, ``1,234 rows``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def format_number(value: float, digits: int = 4) -> str:
    """A number to some digits: ``0.1235``, ``31,840`` (not ``3.184e+04``), ``1.592e+09``."""
    text = f"{value:.{digits}g}"
    if not 1e4 <= abs(float(text)) < MAX_PLAIN:
        return text
    whole, point, rest = (f"{float(text):.0f}" if "e+" in text else text).partition(".")
    return f"{int(whole):,}{point}{rest}"


def format_tick(value: float) -> str:
    """A tick label, short: ``0.25``, ``200k``, ``1.5M``."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if max(unit, 1e4) <= abs(value) < MAX_PLAIN:
            return f"{value / unit:.6g}{name}"
    return f"{value:.6g}"


def format_move(before: float, lower: float, upper: float) -> str:
    """``before to after``, with enough digits (four to ten) to see that they differ."""
    for digits in range(4, 11):
        first, last = format_number(before, digits), format_interval(lower, upper, digits)
        if first != last:
            break
    return f"{first} to {last}"


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
class Provenance:
    """What is needed to repeat a run."""

    command: str  # the command as it was given
    settings: Sequence[tuple[str, str]]  # data and model, in words
    versions: dict[str, str]  # what was installed
    check: Sequence[tuple[str, str]] = ()  # what the look at the data found


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


WIDTH, HEIGHT = 720.0, 340.0
LEFT, RIGHT, TOP, BOTTOM = 70.0, 14.0, 32.0, 48.0


@final
@dataclass(frozen=True)
class Axis:
    """A range of values and what it means."""

    # The ends.
    low: float
    high: float
    label: str  # what is measured, with its unit
    log: bool = False  # whether the scale is logarithmic
    ticks: bool = True  # whether values are written beside it
    whole: bool = False  # whether only whole numbers are

    def share(self, value: float) -> float:
        """The relative position of a value, from 0 to 1; values beyond the ends are moved to the ends."""
        value = min(max(value, self.low), self.high)
        if self.log:
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)

    def marks(self) -> list[float]:
        """Round values for the tick labels."""
        if not self.ticks:
            return []
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            powers = [10.0**power for power in range(first, last + 1)]
            return powers if len(powers) > 1 else [self.low, self.high]
        rough = max((self.high - self.low) / 6.0, 1.0 if self.whole else 0.0)
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= rough)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [step * k for k in range(first, last + 1)]


def fit_axis(values: Sequence[float], label: str, zero: bool = False, log: bool = False) -> Axis:
    """Make an axis that contains all finite values, with a margin."""
    finite = [value for value in values if math.isfinite(value) and (value > 0.0 or not log)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if log:
        return Axis(low / 1.2, high * 1.2, label, log=True)
    margin = 0.06 * (high - low) or 0.5 * max(abs(high), 1e-12)
    return Axis(low if zero and low == 0.0 else low - margin, high + margin, label)


@final
@dataclass(frozen=True)
class Mark:
    """An interval at a place, drawn as a line with a dot in its middle; a triangle at the edge where that is beyond the axis."""

    at: float  # its place on the horizontal axis
    # Its ends on the vertical axis.
    low: float
    high: float
    kind: str  # its colour, a class of the style sheet
    tip: str  # what hovering shows, lines separated by line breaks
    middle: float | None = None  # where the dot is, if not in the middle of the interval

    @property
    def dot(self) -> float:
        if self.middle is not None:
            return self.middle
        if math.isinf(self.low) and math.isinf(self.high):
            return 0.0
        return 0.5 * (self.low + self.high)


def draw_intervals(
    x: Axis,
    y: Axis,
    marks: Sequence[Mark],
    legend: dict[str, str],
    line: str = "zero",
    names: Sequence[tuple[float, str]] = (),
) -> str:
    """Vertical intervals; ``line``: "zero" draws the threshold, "diagonal" where prediction and target agree; ``names`` are written below."""
    if line == "diagonal":
        low, high = max(x.low, y.low), min(x.high, y.high)
        ends = (_x(x, low), _y(y, low), _x(x, high), _y(y, high))
    else:
        ends = (LEFT, _y(y, 0.0), WIDTH - RIGHT, _y(y, 0.0))
    parts = [_line(*ends, "zero"), *(_mark(x, y, mark) for mark in marks)]
    for place, text in names:
        share = x.share(place)
        # Near an edge a centred text would be cut off.
        anchor, at = (
            ("end", WIDTH - RIGHT) if share > 0.85 else ("start", LEFT) if share < 0.15 else ("middle", _x(x, place))
        )
        parts.append(_text(at, HEIGHT - BOTTOM + 18.0, text, anchor))
    return _figure(_axes(x, y) + "".join(parts), legend, f"{y.label} by {x.label}")


def draw_band(
    x: Axis, y: Axis, marks: Sequence[Mark], best: float | None, legend: dict[str, str], diagonal: bool = False
) -> str:
    """The region between lower and upper ends, with a mark at every place and a line at the best one, if there is one."""
    ordered = sorted(marks, key=lambda mark: mark.at)
    upper = [(_x(x, mark.at), _y(y, mark.high)) for mark in ordered]
    lower = [(_x(x, mark.at), _y(y, mark.low)) for mark in reversed(ordered)]
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in upper + lower)
    parts = [f'<polygon class="band" points="{points}"/>']
    if diagonal:
        parts.append(_line(_x(x, x.low), _y(y, y.low), _x(x, x.high), _y(y, y.high), "grid"))
    if best is not None:
        parts.append(_line(_x(x, best), TOP, _x(x, best), HEIGHT - BOTTOM, "best"))
    parts += [_mark(x, y, mark) for mark in ordered]
    return _figure(_axes(x, y) + "".join(parts), legend, f"{y.label} by {x.label}")


def draw_bars(names: Sequence[str], x: Axis, marks: Sequence[Mark], legend: dict[str, str]) -> str:
    """Horizontal intervals, one line for each name; ``at`` of a mark is its line."""
    step, top, left = 20.0, 12.0, 120.0
    height, scale = top + step * len(names) + BOTTOM, WIDTH - RIGHT - left
    parts = []
    for value in x.marks():
        place = left + scale * x.share(value)
        parts.append(_line(place, top, place, height - BOTTOM, "grid"))
        parts.append(_text(place, height - BOTTOM + 18.0, format_tick(value), "middle"))
    for mark in marks:
        middle = top + step * (mark.at + 0.5)
        low, high = left + scale * x.share(mark.low), left + scale * x.share(mark.high)
        name = names[int(mark.at)]
        shown = name if len(name) <= 14 else name[:13] + "…"
        parts.append(_text(left - 8.0, middle + 4.5, shown, "end"))
        parts.append(
            f'<g class="mark {mark.kind}" data-x="{0.5 * (low + high):.1f}" data-y="{middle:.1f}"><title>{escape(mark.tip)}</title>'
            f'<path class="bar" d="M{left:.1f} {middle:.1f}H{0.5 * (low + high):.1f}"/>'
            f'<path d="M{low:.1f} {middle:.1f}H{max(high, low + 0.5):.1f}"/>'
            f'<circle cx="{0.5 * (low + high):.1f}" cy="{middle:.1f}" r="4"/></g>'
        )
    parts.append(_text(0.5 * (left + WIDTH - RIGHT), height - 8.0, x.label, "middle"))
    return _figure("".join(parts), legend, x.label, height)


def _x(axis: Axis, value: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * axis.share(value)


def _y(axis: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * axis.share(value)


def _mark(x: Axis, y: Axis, mark: Mark) -> str:
    place, low, high = _x(x, mark.at), _y(y, mark.low), _y(y, mark.high)
    middle = _y(y, mark.dot)
    dot = f'<circle cx="{place:.1f}" cy="{middle:.1f}" r="2.5"/>'
    if not y.low <= mark.dot <= y.high:
        side = 7.0 if mark.dot > y.high else -7.0
        dot = f'<polygon class="off" points="{place - 4:.1f},{middle + side:.1f} {place + 4:.1f},{middle + side:.1f} {place:.1f},{middle:.1f}"/>'
    return (
        f'<g class="mark {mark.kind}" data-x="{place:.1f}" data-y="{middle:.1f}"><title>{escape(mark.tip)}</title>'
        f'<path d="M{place:.1f} {low:.1f}V{high:.1f}"/>{dot}</g>'
    )


def _axes(x: Axis, y: Axis) -> str:
    parts = []
    for value in y.marks():
        place = _y(y, value)
        parts += [
            _line(LEFT, place, WIDTH - RIGHT, place, "grid"),
            _text(LEFT - 8.0, place + 4.5, format_tick(value), "end"),
        ]
    for value in x.marks():
        place = _x(x, value)
        parts += [_line(place, TOP, place, HEIGHT - BOTTOM, "grid")]
        parts += [_text(place, HEIGHT - BOTTOM + 18.0, format_tick(value), "middle")]
    parts.append(_text(0.5 * (LEFT + WIDTH - RIGHT), HEIGHT - 8.0, x.label, "middle"))
    # Above the axis: beside it, it would stand on long numbers.
    parts.append(_text(4.0, 14.0, y.label, "start"))
    return "".join(parts)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _figure(body: str, legend: dict[str, str], label: str, height: float = HEIGHT) -> str:
    keys = "".join(f'<span class="key {kind}">{escape(name)}</span>' for kind, name in legend.items())
    return (
        f'<figure class="plot"><div class="legend">{keys}</div><div class="scroll"><svg viewBox="0 0 {WIDTH:g} {height:g}" '
        f'role="img" aria-label="{escape(label)}">{body}</svg></div></figure>'
    )
