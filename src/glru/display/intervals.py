"""What displays share: colours, axes, and intervals of scores around the threshold."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from glru._extras import require
from glru.bounds import ScoreBounds
from glru.linalg import Array

BLUE, ORANGE, GREY, GREEN = "#0072B2", "#D55E00", "#999999", "#009E73"
"""Colours of the Okabe-Ito palette, which colour-blind readers can tell apart."""

Groups = dict[int, tuple[str, str]]
"""Name and colour of the rows that share a verdict."""

MOST_DOTS = 3000
"""Most rows that are drawn as dots; more are drawn as a curve, or by density."""


def make_axes(ax: Any, height: float = 3.6) -> Any:
    """The axes to draw on; those of a new figure where none are given."""
    if ax is not None:
        return ax
    plt = require("matplotlib.pyplot", "plot", "a picture")
    return plt.subplots(figsize=(8.0, height), layout="constrained")[1]


def middle(bounds: ScoreBounds) -> Array:
    """The middle of every interval; 0 where it has no end."""
    return np.nan_to_num(bounds.middle)


def find_usual_range(scores: Array) -> tuple[float, float]:
    """An axis that holds 0 and all scores, or, where a few of them are far out, all but these."""
    if scores.size == 0:
        return -1.0, 1.0
    low, high = np.quantile(scores, [0.005, 0.995])
    far = high - low
    low, high = max(low - far, scores.min()), min(high + far, scores.max())
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    room = 0.06 * (high - low) or 1.0
    return low - room, high + room


def sort_sides(scores: Array, sides: NDArray[Any]) -> NDArray[np.intp]:
    """The rows of the side -1 by score, then those of the side +1."""
    return np.lexsort((scores, sides > 0))


def draw_sides(
    ax: Any,
    bounds: ScoreBounds,
    verdicts: NDArray[np.int8],
    groups: Groups,
    n_first: int,
    names: tuple[str, str],
) -> None:
    """Intervals side by side around the threshold 0, coloured by their verdicts; the first ``n_first`` of them are of the first name.

    Every row takes the same room, so that the width of a colour is its share of the rows. Rows beyond the axis are marked at its edge.
    """
    n_rows = bounds.n_rows
    gap = 0.02 * n_rows
    places = np.arange(n_rows) + np.where(np.arange(n_rows) < n_first, 0.0, gap)
    scores = middle(bounds)
    low, high = find_usual_range(scores)
    bottom, top = np.clip(bounds.lower, low, high), np.clip(bounds.upper, low, high)
    size = float(np.clip(400.0 / max(n_rows, 1), 2.0, 4.0))
    for verdict, (name, color) in groups.items():
        mine = np.flatnonzero(verdicts == verdict)
        if mine.size == 0:
            continue
        label = f"{name} ({mine.size:,})"
        ax.vlines(places[mine], bottom[mine], top[mine], linewidth=1.2, color=color, zorder=2)
        inside = mine[(scores[mine] >= low) & (scores[mine] <= high)]
        ax.plot(
            places[inside], scores[inside], "o", markersize=size, color=color, label=label, zorder=3, markeredgewidth=0
        )
    for marker, edge, beyond in (("v", low, scores < low), ("^", high, scores > high)):
        if beyond.any():
            text = f"beyond the axis ({int(beyond.sum()):,})"
            ax.plot(
                places[beyond],
                np.full(beyond.sum(), edge),
                marker,
                color="black",
                markersize=1.5 * size,
                label=text,
                zorder=4,
                clip_on=False,
            )
    ax.axhline(0.0, color="black", linewidth=0.8, zorder=1)
    ax.set_ylim(low, high)
    counts = (n_first, n_rows - n_first)
    ticks = [(n_first / 2.0, 0), (n_first + gap + counts[1] / 2.0, 1)]
    shown = [(place, f"{shorten(names[k])}: {counts[k]:,} rows") for place, k in ticks if counts[k]]
    ax.set_xticks([place for place, _ in shown], [text for _, text in shown])
    if 0 < n_first < n_rows:
        ax.axvline(n_first + 0.5 * gap - 0.5, color=GREY, linewidth=0.8, linestyle=":", zorder=1)
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), markerscale=4.0 / size)


def draw_agreement(ax: Any, known: Array, bounds: ScoreBounds, diagonal: bool = True) -> None:
    """Predictions over what they are compared with, and where both agree; intervals as lines, and a density where there are many.

    ``diagonal``: whether they agree on the diagonal, or, of differences, at zero.
    """
    scores = middle(bounds)
    if known.size > MOST_DOTS:
        shades = ax.hexbin(known, scores, gridsize=70, bins="log", mincnt=1, cmap="Blues")
        ax.figure.colorbar(shades, ax=ax, label="rows")
    else:
        ends = np.clip(bounds.lower, scores.min(), None), np.clip(bounds.upper, None, scores.max())
        ax.vlines(known, *ends, color=BLUE, linewidth=1.2)
        size = float(np.clip(400.0 / max(known.size, 1), 2.0, 4.0))
        ax.plot(known, scores, "o", color=BLUE, markersize=size, markeredgewidth=0)
    _separate_thousands(ax)
    if diagonal:
        both = np.array([max(known.min(), scores.min()), min(known.max(), scores.max())])
        ax.plot(both, both, color="black", linewidth=0.8)
    else:
        ax.axhline(0.0, color="black", linewidth=0.8)


def _separate_thousands(ax: Any) -> None:
    """Write tick labels in full, as 250,000, if they are not too long."""
    for axis in (ax.xaxis, ax.yaxis):
        if 1e4 <= np.abs(axis.get_view_interval()).max() < 1e9:
            axis.set_major_formatter("{x:,.0f}")


def shorten(name: str, most: int = 24) -> str:
    """A name, cut to a length that fits beside its axis."""
    return name if len(name) <= most else name[: most - 1] + "…"
