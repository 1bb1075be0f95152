"""The picture of cross-validation with one score per class: the confusion matrix, and the rows whose labels are least certain."""

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru._extras import require
from glru.display.intervals import BLUE, GREY, ORANGE, shorten
from glru.linalg import Array
from glru.model_selection import CrossValResult, LOOCVResult

LISTED = 15
"""Rows in the panel of those that are least certain."""

COLORS = {1: ("correct", BLUE), -1: ("wrong", ORANGE), 0: ("open", GREY)}


def least_certain(result: LOOCVResult | CrossValResult, most: int) -> NDArray[np.intp]:
    """The held-out rows whose labels are least certain: open ones, then those whose class leads the next one least."""
    bounds = result.bounds
    ordered = np.sort(np.nan_to_num(bounds.middle, nan=0.0), axis=1)
    margins = np.where(bounds.decided, ordered[:, -1] - ordered[:, -2], -1.0)
    return np.argsort(margins, kind="stable")[:most]


def format_counts(least: int, most: int) -> str:
    """A number of rows that is known, or its two ends."""
    return f"{least}" if least == most else f"{least}-{most}"


@final
class ConfusionDisplay:
    """A certified confusion matrix, and the rows whose held-out labels are least certain.

    Parameters
    ----------
    least, most : array of shape (n_classes, n_classes)
        The least and the largest number of rows of each class (lines) that get each label (columns).
    classes : sequence of str
        What the classes are called.
    rows : array of int
        The rows that are least certain, the least certain one first.
    lower, upper : array of shape (n_listed,)
        Bounds of the probability (or, where there are none, the score) of each of these rows' own class.
    verdicts : array of shape (n_listed,)
        1 correct, -1 wrong, 0 open.
    quantity : str
        What the bounds are of.
    title : str
        What is shown.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> display = glru.display.ConfusionDisplay.from_result(glru.loocv(LogisticRegression(), X, y))
    >>> display.least.diagonal()
    array([50, 47, 48])
    """

    def __init__(
        self,
        least: NDArray[np.int64],
        most: NDArray[np.int64],
        classes: list[str],
        rows: NDArray[np.intp],
        lower: Array,
        upper: Array,
        verdicts: NDArray[np.int8],
        quantity: str,
        title: str,
    ) -> None:
        self.least, self.most, self.classes, self.rows = least, most, classes, rows
        self.lower, self.upper, self.verdicts = lower, upper, verdicts
        self.quantity, self.title = quantity, title

    @classmethod
    def from_result(cls, result: LOOCVResult | CrossValResult) -> "ConfusionDisplay":
        """Make the display of the held-out scores of a classification with one score per class."""
        bounds, classes = result.bounds, result.classes
        if bounds.lower.ndim == 1 or classes is None:
            raise ValueError("ConfusionDisplay shows one score per class; got one score per row. Use LOOCVDisplay.")
        places = np.asarray(result.y)
        listed = least_certain(result, LISTED)
        joint = result.problem.loss.several
        ends = bounds.take(listed).probabilities() if joint else (bounds.lower[listed], bounds.upper[listed])
        own = np.arange(listed.size), places[listed]
        low, high = result.errors_lower, result.errors_upper
        errors = f"{low} errors" if low == high else f"{low} to {high} errors"
        rows = np.asarray(result.rows)[listed] if isinstance(result, CrossValResult) else listed
        return cls(
            *result.confusion_matrix(),
            [str(label) for label in classes],
            rows,
            ends[0][own],
            ends[1][own],
            bounds.verdicts(places)[listed],
            "probability of the row's own class" if joint else "score of the row's own class",
            f"{bounds.n_rows} held-out rows, {errors}",
        )

    def plot(self, ax: Any = None) -> "ConfusionDisplay":
        """Draw the confusion matrix and, in a new figure, the rows that are least certain beside it.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw the confusion matrix alone; a new figure of both if not given.
        """
        if ax is None:
            plt = require("matplotlib.pyplot", "plot", "a picture")
            size = max(3.6, 0.34 * len(self.classes) + 1.2)
            _, (ax, beside) = plt.subplots(1, 2, figsize=(size + 5.4, max(size, 3.8)), layout="constrained")
            self._draw_rows(beside)
        self._draw_matrix(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _draw_matrix(self, ax: Any) -> None:
        n_classes = len(self.classes)
        totals = np.maximum(self.most.sum(axis=1, keepdims=True), 1)
        ax.imshow(self.most / totals, cmap="Blues", vmin=0.0, vmax=1.0)
        for (a, b), most in np.ndenumerate(self.most):
            if most > 0:
                color = "white" if most > 0.5 * totals[a, 0] else (BLUE if a == b else ORANGE)
                text = format_counts(int(self.least[a, b]), int(most))
                ax.text(b, a, text, ha="center", va="center", color=color, fontsize=9 if n_classes <= 12 else 7)
        names = [shorten(name) for name in self.classes]
        slanted = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if max(map(len, names)) > 3 else {}
        ax.set_xticks(range(n_classes), names, **slanted)
        ax.set_yticks(range(n_classes), names)
        ax.set_xlabel("held-out label")
        ax.set_ylabel("class")
        ax.set_title(self.title)

    def _draw_rows(self, ax: Any) -> None:
        places = np.arange(self.rows.size)
        for verdict, (name, color) in COLORS.items():
            mine = self.verdicts == verdict
            if mine.any():
                low, high = self.lower[mine], self.upper[mine]
                ax.hlines(places[mine], low, high, color=color, linewidth=2.0)
                ax.plot(0.5 * (low + high), places[mine], "o", color=color, markersize=5.0, label=name)
        ax.set_yticks(places, [str(row) for row in self.rows])
        ax.invert_yaxis()
        ax.set_xlabel(f"held-out {self.quantity}")
        ax.set_ylabel("row")
        ax.set_title("least certain rows")
        ax.legend(frameon=False)
