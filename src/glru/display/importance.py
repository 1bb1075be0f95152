"""The picture of what features are worth."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from glru.display.intervals import BLUE, GREY, axes
from glru.display.stepwise import NAMES
from glru.linalg import Array
from glru.selection import FeatureImportance

SHOWN = 30
"""Features that are drawn."""


@final
class ImportanceDisplay:
    """Certified intervals of how much worse the model is without each feature, the most important one on top.

    Parameters
    ----------
    lower, upper : array of shape (n_features,)
        Ends of the increases, in the order in which they are drawn.
    names : sequence of str
        What the features are called.
    criterion : str
        What increases.

    Examples
    --------
    >>> import glru
    >>> data = glru.datasets.load("breast_cancer")
    >>> X = glru.datasets.prepare(data).X
    >>> problem = glru.Problem(X[:400], data.y[:400], penalty=glru.L2(0.01))
    >>> result = glru.feature_importance(problem, X_val=X[400:], y_val=data.y[400:])
    >>> len(glru.display.ImportanceDisplay.from_result(result).names)
    30
    """

    def __init__(self, lower: Array, upper: Array, names: Sequence[str], criterion: str) -> None:
        self.lower, self.upper, self.names, self.criterion = lower, upper, names, criterion

    @classmethod
    def from_result(cls, result: FeatureImportance) -> "ImportanceDisplay":
        """Make the display of a result.

        Parameters
        ----------
        result : FeatureImportance
            From :func:`glru.feature_importance`.
        """
        order = result.order[:SHOWN]
        names = [
            ", ".join(map(str, name)) if isinstance(name, tuple) else str(name)
            for name in (result.features[k] for k in order)
        ]
        return cls(result.lower[order], result.upper[order], names, result.criterion)

    def plot(self, ax: Any = None) -> "ImportanceDisplay":
        """Draw it.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            Where to draw; a new figure if not given.
        """
        self.ax_ = ax = axes(ax, height=1.2 + 0.24 * len(self.names))
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
        ax.set_xlabel(f"increase without the feature: {NAMES[self.criterion]}")
        return self
