"""The picture with one score per class: a matrix of classes by labels, and the rows whose labels are least certain."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru._extras import require
from glru.bounds import ScoreBounds, predicted
from glru.display.intervals import BLUE, GREY, ORANGE, shorten
from glru.linalg import Array
from glru.model_selection import CrossValResult, LOOCVResult

MOST_LISTED = 15
"""Rows in the panel of those that are least certain."""

COLORS = {1: BLUE, -1: ORANGE, 0: GREY}
HELD_OUT, CHANGED = ("class", "held-out label"), ("label before the change", "label after the change")
"""What the lines and columns of the matrix are."""


def rank_least_certain(bounds: ScoreBounds, most: int) -> NDArray[np.intp]:
    """The rows whose labels are least certain: open ones, then those whose class leads the next one least."""
    ordered = np.sort(np.nan_to_num(bounds.middle, nan=0.0), axis=1)
    margins = np.where(bounds.decided, ordered[:, -1] - ordered[:, -2], -1.0)
    return np.argsort(margins, kind="stable")[:most]


def format_counts(least: int, most: int) -> str:
    """A count, or its two ends if it is not known exactly."""
    return f"{least}" if least == most else f"{least}-{most}"


@final
class ConfusionDisplay:
    """A certified matrix of the rows of each class by their labels, and the rows whose labels are least certain.

    Parameters
    ----------
    least, most : array of shape (n_classes, n_classes)
        The smallest and the largest number of rows of each class (lines) that get each label (columns).
    classes : sequence of str
        What the classes are called.
    rows : sequence
        What the rows that are least certain are called, the least certain one first.
    lower, upper : array of shape (n_listed,)
        Bounds of the probability (or, where there are none, the score) of each of these rows' own class.
    verdicts : array of shape (n_listed,)
        1 where the label is proven to be that class, -1 where it is proven to be another one, 0 open.
    quantity : str
        What the bounds are of.
    title : str
        What is shown.
    sides : tuple of str, default=("class", "held-out label")
        What lines and columns are.

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
        classes: Sequence[str],
        rows: Sequence[Any] | NDArray[np.intp],
        lower: Array,
        upper: Array,
        verdicts: NDArray[np.int8],
        quantity: str,
        title: str,
        sides: tuple[str, str] = HELD_OUT,
    ) -> None:
        self.least, self.most, self.classes, self.rows = least, most, classes, rows
        self.lower, self.upper, self.verdicts = lower, upper, verdicts
        self.quantity, self.title, self.sides = quantity, title, sides

    @classmethod
    def from_result(
        cls, result: LOOCVResult | CrossValResult, row_names: Sequence[str] | None = None
    ) -> "ConfusionDisplay":
        """Make the display of the held-out scores of a classification with one score per class.

        Parameters
        ----------
        result : LOOCVResult or CrossValResult
            From :func:`glru.loocv` or :func:`glru.cross_validate`.
        row_names : sequence of str, default=None
            What the rows are called; their positions if not given.
        """
        bounds, classes = result.bounds, result.classes
        if bounds.lower.ndim == 1 or classes is None:
            raise ValueError("ConfusionDisplay shows one score per class; got one score per row. Use LOOCVDisplay.")
        low, high = result.errors_lower, result.errors_upper
        errors = f"{low:,} errors" if low == high else f"{low:,} to {high:,} errors"
        rows = np.asarray(result.rows) if isinstance(result, CrossValResult) else np.arange(bounds.n_rows)
        names = rows if row_names is None else [row_names[row] for row in rows]
        joint, title = result.problem.loss.several, f"{bounds.n_rows:,} held-out rows, {errors}"
        return cls._make(bounds, np.asarray(result.y), [str(label) for label in classes], names, joint, title, HELD_OUT)

    @classmethod
    def from_bounds(
        cls,
        bounds: ScoreBounds,
        old_scores: Array,
        classes: Sequence[str],
        names: Sequence[Any],
        joint: bool = True,
    ) -> "ConfusionDisplay":
        """Make the display of a change: the labels of queries before it by those of the retrained model.

        Parameters
        ----------
        bounds : ScoreBounds
            Bounds of the retrained scores of the queries.
        old_scores : array of shape (n_queries, n_classes)
            Their scores before the change.
        classes : sequence of str
            What the classes are called.
        names : sequence of str
            What the queries are called.
        joint : bool, default=True
            Whether the model is multinomial, so that scores stand for probabilities.
        """
        changes, stays = bounds.changes(old_scores)
        n_open = bounds.n_rows - int(changes.sum() + stays.sum())
        title = f"{bounds.n_rows:,} queries after the change:\n{stays.sum():,} labels unchanged, {changes.sum():,} changed, {n_open:,} open"
        return cls._make(bounds, predicted(old_scores), list(classes), names, joint, title, CHANGED)

    @classmethod
    def _make(
        cls,
        bounds: ScoreBounds,
        places: NDArray[np.intp],
        classes: list[str],
        names: Any,
        joint: bool,
        title: str,
        sides: tuple[str, str],
    ) -> "ConfusionDisplay":
        listed = rank_least_certain(bounds, MOST_LISTED)
        shown = bounds.take(listed)
        lower, upper = shown.probabilities() if joint else shown
        own = np.arange(listed.size), places[listed]
        what = f"{'held-out' if sides is HELD_OUT else 'retrained'} {'probability' if joint else 'score'}"
        return cls(
            *bounds.confusion(places),
            classes,
            names[listed] if isinstance(names, np.ndarray) else [names[row] for row in listed],
            lower[own],
            upper[own],
            shown.verdicts(places[listed]),
            f"{what} of the row's {'own class' if sides is HELD_OUT else 'label before'}",
            title,
            sides,
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
        ax.set_xlabel(self.sides[1])
        ax.set_ylabel(self.sides[0])
        ax.set_title(self.title)

    def _draw_rows(self, ax: Any) -> None:
        places = np.arange(len(self.rows))
        names = ("correct", "wrong") if self.sides == HELD_OUT else ("label unchanged", "label changed")
        for name, (verdict, color) in zip((*names, "open"), COLORS.items(), strict=True):
            mine = self.verdicts == verdict
            if mine.any():
                low, high = self.lower[mine], self.upper[mine]
                ax.hlines(places[mine], low, high, color=color, linewidth=2.0)
                ax.plot(0.5 * (low + high), places[mine], "o", color=color, markersize=5.0, label=name)
        ax.set_yticks(places, [shorten(str(row), 16) for row in self.rows])
        ax.invert_yaxis()
        ax.set_xlabel(self.quantity)
        ax.set_ylabel("row")
        ax.set_title("least certain rows")
        ax.legend(frameon=False)
