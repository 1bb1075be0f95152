"""The picture of certified intervals of named quantities, one line each."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from glru.display.intervals import BLUE, GREY, make_axes
from glru.linalg import Array

MOST_DRAWN = 30
"""Quantities that are drawn."""


@final
class IntervalsDisplay:
    """Certified intervals of named quantities, the first one on top: what features are worth, coefficients, the most influential rows.

    Parameters
    ----------
    lower, upper : array of shape (n_quantities,)
        The ends, in the order in which they are drawn; at most 30 are.
    names : sequence of str
        What the quantities are called.
    label : str
        What they measure.

    Examples
    --------
    >>> import glru
    >>> data = glru.datasets.load("breast_cancer")
    >>> X = glru.datasets.prepare(data).X
    >>> problem = glru.Problem(X[:400], data.y[:400], penalty=glru.L2(0.01))
    >>> result = glru.feature_importance(problem, X_val=X[400:], y_val=data.y[400:])
    >>> display = result.plot()
    >>> len(display.names), display.label
    (30, 'increase without the feature: log loss')
    """

    def __init__(self, lower: Array, upper: Array, names: Sequence[str], label: str) -> None:
        self.lower, self.upper, self.names, self.label = (
            lower[:MOST_DRAWN],
            upper[:MOST_DRAWN],
            names[:MOST_DRAWN],
            label,
        )

    def plot(self, ax: Any = None) -> "IntervalsDisplay":
        """Draw it.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            Where to draw; a new figure if not given.
        """
        self.ax_ = ax = make_axes(ax, height=1.2 + 0.24 * len(self.names))
        self.figure_ = ax.figure
        places = np.arange(len(self.names))
        known = np.isfinite(self.lower) & np.isfinite(self.upper)
        lower, upper = np.where(known, self.lower, 0.0), np.where(known, self.upper, 0.0)
        ax.axvline(0.0, color="black", linewidth=0.8, zorder=1)
        ax.hlines(places, lower, upper, color=BLUE, linewidth=3.0, zorder=2)
        ax.plot(0.5 * (lower + upper)[known], places[known], "o", color=BLUE, markersize=4, zorder=3)
        ax.plot(np.zeros(int((~known).sum())), places[~known], "x", color=GREY, markersize=5, zorder=3)
        ax.set_yticks(places, self.names)
        ax.invert_yaxis()
        ax.set_xlabel(self.label)
        return self
