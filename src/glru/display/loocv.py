"""The picture of cross-validation: leave-one-out and folds."""

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.display.intervals import BLUE, GREY, ORANGE, Group, axes, draw_intervals
from glru.linalg import Array
from glru.model_selection import CrossValResult, LOOCVResult

GROUPS: dict[int, Group] = {1: ("correct", BLUE, 3.0), -1: ("wrong", ORANGE, 6.0), 0: ("open", GREY, 6.0)}


@final
class LOOCVDisplay:
    """Held-out intervals sorted by score, coloured by correct, wrong or open.

    Parameters
    ----------
    lower, upper : array of shape (n_rows,)
        Bounds of the held-out scores, in the order they are drawn.
    verdicts : array of shape (n_rows,)
        1 correct, -1 wrong, 0 open.
    title : str
        What is shown.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> result = glru.loocv(glru.Problem(X, y, penalty=glru.L2(0.01)))
    >>> display = glru.display.LOOCVDisplay.from_result(result)
    >>> int((display.verdicts == -1).sum())
    10
    """

    def __init__(self, lower: Array, upper: Array, verdicts: NDArray[np.int8], title: str) -> None:
        self.lower, self.upper, self.verdicts, self.title = lower, upper, verdicts, title

    @classmethod
    def from_result(cls, result: LOOCVResult | CrossValResult) -> "LOOCVDisplay":
        """Make the display of the held-out scores of a classification."""
        if result.bounds.lower.ndim == 2:
            raise ValueError("LOOCVDisplay shows one score per row; got one per class. Use result.to_frame().")
        if result.labels is None:
            raise ValueError("LOOCVDisplay shows classifications; got a regression. Use result.to_frame().")
        order = np.argsort(result.scores, kind="stable")
        verdicts = result.bounds.verdicts(result.y)
        low, high = result.errors_lower, result.errors_upper
        errors = f"{low} errors" if low == high else f"{low} to {high} errors"
        title = f"{result.y.size} held-out rows, {errors}, {result.n_trainings} trainings beyond the first"
        if isinstance(result, CrossValResult):
            title = f"{result.y.size} held-out rows in {result.folds.max() + 1} folds, {errors}"
        return cls(result.score_lower[order], result.score_upper[order], verdicts[order], title)

    def plot(self, ax: Any = None) -> "LOOCVDisplay":
        """Draw the intervals.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if not given.
        """
        ax = axes(ax)
        draw_intervals(ax, self.lower, self.upper, self.verdicts, GROUPS, "upper left")
        ax.set_xlabel("rows, sorted by held-out score")
        ax.set_ylabel("held-out score (log-odds for logistic)")
        ax.set_title(self.title)
        self.ax_, self.figure_ = ax, ax.figure
        return self
