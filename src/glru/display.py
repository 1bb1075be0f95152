"""Pictures of results: the constructor stores, ``from_result`` computes, ``plot`` draws."""

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru._numerics import Array
from glru.model_selection import LOOCVResult

CORRECT, WRONG, OPEN = "#0072B2", "#D55E00", "#999999"
"""Colours of the Okabe-Ito palette, which colour-blind readers can tell apart."""


@final
class LOOCVDisplay:
    """Held-out intervals sorted by score, coloured by correct, wrong or undetermined.

    Parameters
    ----------
    lower, upper : array of shape (n_rows,)
        Bounds of the held-out scores, in the order they are drawn.
    verdicts : array of shape (n_rows,)
        1 correct, -1 wrong, 0 undetermined.
    title : str
        What is shown.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> result = glru.loocv(glru.Problem(X, y, penalty=glru.L2(0.01)))
    >>> display = glru.LOOCVDisplay.from_result(result)
    >>> int((display.verdicts == -1).sum())
    10
    """

    def __init__(self, lower: Array, upper: Array, verdicts: NDArray[np.int8], title: str) -> None:
        self.lower, self.upper, self.verdicts, self.title = lower, upper, verdicts, title

    @classmethod
    def from_result(cls, result: LOOCVResult) -> "LOOCVDisplay":
        """The display of a leave-one-out result of a classification."""
        labels = result.labels
        if labels is None:
            raise ValueError("LOOCVDisplay shows classifications; got a regression. Use result.to_frame().")
        order = np.argsort(result.scores, kind="stable")
        verdicts = np.where(labels == 0, 0, np.where(labels == result.problem.y, 1, -1)).astype(np.int8)
        low, high = result.errors_lower, result.errors_upper
        errors = f"{low} errors" if low == high else f"{low} to {high} errors"
        title = f"{labels.size} held-out rows, {errors}, {result.n_trainings} trainings"
        return cls(result.score_lower[order], result.score_upper[order], verdicts[order], title)

    def plot(self, ax: Any = None) -> "LOOCVDisplay":
        """Draw the intervals.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if not given.
        """
        import matplotlib.pyplot as plt

        if ax is None:
            _, ax = plt.subplots(figsize=(8.0, 3.6), layout="constrained")
        places = np.arange(self.lower.size)
        # The few scores far from the threshold are drawn at the edge: the decision is made in the middle.
        edge = 1.1 * max(1e-12, float(np.quantile(np.abs(self._middle()), 0.95)))
        low, high = np.clip(self.lower, -edge, edge), np.clip(self.upper, -edge, edge)
        names = {1: ("correct", CORRECT, 3.0), -1: ("wrong", WRONG, 6.0), 0: ("undetermined", OPEN, 6.0)}
        for order, (verdict, (name, color, size)) in enumerate(names.items()):
            mine = self.verdicts == verdict
            if mine.any():
                style = {"color": color, "zorder": 2 + order}
                ax.vlines(places[mine], low[mine], high[mine], linewidth=1.5, **style)
                label = f"{name} ({int(mine.sum())})"
                ax.plot(places[mine], 0.5 * (low + high)[mine], "o", markersize=size, label=label, **style)
        ax.axhline(0.0, color="black", linewidth=0.8, zorder=1)
        ax.set_ylim(-1.1 * edge, 1.1 * edge)
        ax.set_xlabel("rows, sorted by held-out score")
        ax.set_ylabel("held-out score (log-odds for logistic)")
        ax.set_title(self.title)
        ax.legend(loc="upper left", frameon=False)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _middle(self) -> Array:
        finite = np.isfinite(self.lower) & np.isfinite(self.upper)
        return np.where(finite, 0.5 * (np.where(finite, self.lower, 0.0) + np.where(finite, self.upper, 0.0)), 0.0)
