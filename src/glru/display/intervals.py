"""What displays share: colours, axes, and intervals of scores around the threshold."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from glru._extras import require
from glru.bounds import ScoreBounds
from glru.linalg import Array

BLUE, ORANGE, GREY, GREEN = "#0072B2", "#D55E00", "#999999", "#009E73"
"""Colours of the Okabe-Ito palette, which colour-blind readers can tell apart."""

Group = tuple[str, str, float]
"""Name, colour and size of the marks of rows that share a verdict."""


def axes(ax: Any, height: float = 3.6) -> Any:
    """The axes to draw on; those of a new figure where none are given."""
    if ax is not None:
        return ax
    plt = require("matplotlib.pyplot", "plot", "a picture")
    return plt.subplots(figsize=(8.0, height), layout="constrained")[1]


def middle(bounds: ScoreBounds) -> Array:
    """The middle of every interval; 0 where it has no end."""
    return np.nan_to_num(bounds.middle)


def usual_size(bounds: ScoreBounds) -> float:
    """The 95 % quantile of the absolute scores, plus a tenth; larger scores are drawn at the edge."""
    return 1.1 * max(1e-12, float(np.quantile(np.abs(middle(bounds)), 0.95)))


def draw_intervals(
    ax: Any, lower: Array, upper: Array, verdicts: NDArray[np.int8], groups: dict[int, Group], legend: str
) -> None:
    """Intervals side by side around the threshold 0, coloured by their verdicts."""
    places = np.arange(lower.size)
    edge = usual_size(ScoreBounds(lower, upper))
    low, high = np.clip(lower, -edge, edge), np.clip(upper, -edge, edge)
    for order, (verdict, (name, color, size)) in enumerate(groups.items()):
        mine = verdicts == verdict
        if mine.any():
            style = {"color": color, "zorder": 2 + order}
            ax.vlines(places[mine], low[mine], high[mine], linewidth=1.5, **style)
            label = f"{name} ({int(mine.sum())})"
            ax.plot(places[mine], 0.5 * (low + high)[mine], "o", markersize=size, label=label, **style)
    ax.axhline(0.0, color="black", linewidth=0.8, zorder=1)
    ax.set_ylim(-1.1 * edge, 1.1 * edge)
    ax.legend(loc=legend, frameon=False)
