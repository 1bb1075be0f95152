"""The picture of cross-validation: leave-one-out and folds."""

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import ScoreBounds
from glru.display.intervals import BLUE, GREY, ORANGE, Groups, draw_agreement, draw_sides, make_axes, middle, sort_sides
from glru.linalg import Array
from glru.model_selection import CrossValResult, LOOCVResult

GROUPS: Groups = {1: ("correct", BLUE), -1: ("wrong", ORANGE), 0: ("open", GREY)}


@final
class LOOCVDisplay:
    """Held-out intervals: of classes sorted by class and score and coloured by correct, wrong or open; of a regression over the targets.

    Parameters
    ----------
    lower, upper : array of shape (n_rows,)
        Bounds of the held-out scores, in the order they are drawn.
    y : array of shape (n_rows,)
        Targets in the same order; -1 and +1 for classes.
    title : str
        What is shown.
    classes : tuple of str or None, default=None
        What -1 and +1 stand for; None for a regression.
    score_name : str, default="held-out score"
        What the vertical axis of classes shows.

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

    def __init__(
        self,
        lower: Array,
        upper: Array,
        y: Array,
        title: str,
        classes: tuple[str, str] | None = None,
        score_name: str = "held-out score",
    ) -> None:
        self.lower, self.upper, self.y, self.title, self.classes = lower, upper, y, title, classes
        self.score_name = score_name

    @property
    def verdicts(self) -> NDArray[np.int8]:
        """1 correct, -1 wrong, 0 open, for classes."""
        return ScoreBounds(self.lower, self.upper).verdicts(self.y)

    @classmethod
    def from_result(
        cls, result: LOOCVResult | CrossValResult, classes: tuple[str, str] | None = None
    ) -> "LOOCVDisplay":
        """Make the display of held-out scores.

        Parameters
        ----------
        result : LOOCVResult or CrossValResult
            From :func:`glru.loocv` or :func:`glru.cross_validate`.
        classes : tuple of str, default=None
            What -1 and +1 stand for; the result's own classes if not given.
        """
        if result.bounds.lower.ndim == 2:
            raise ValueError("LOOCVDisplay shows one score per row; got one per class. Use ConfusionDisplay.")
        rows = f"{result.y.size:,} held-out rows"
        if isinstance(result, CrossValResult):
            rows += f" in {result.folds.max() + 1} folds"
        if result.labels is None:
            found = f"R² {result.metric_bounds('r2')[0]:.4g}" if np.ptp(result.y) else "constant targets"
            return cls(result.score_lower, result.score_upper, result.y, f"{rows}, {found}")
        if classes is None:
            first, second = np.unique(
                np.asarray(result.classes if isinstance(result, LOOCVResult) else result.problem.classes)
            )
            classes = (str(first), str(second))
        low, high = result.errors_lower, result.errors_upper
        errors = f"{low:,} errors" if low == high else f"{low:,} to {high:,} errors"
        more = f", {result.n_trainings} trainings beyond the first" if isinstance(result, LOOCVResult) else ""
        order = sort_sides(middle(result.bounds), result.y)
        name = f"held-out {'log-odds' if result.problem.loss.probabilities else 'score'}"
        return cls(*result.bounds.take(order), result.y[order], f"{rows}, {errors}{more}", classes, name)

    def plot(self, ax: Any = None) -> "LOOCVDisplay":
        """Draw the intervals.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if not given.
        """
        ax = make_axes(ax)
        bounds = ScoreBounds(self.lower, self.upper)
        if self.classes is None:
            draw_agreement(ax, self.y, bounds)
            ax.set_xlabel("target")
            ax.set_ylabel("held-out prediction")
        else:
            draw_sides(ax, bounds, self.verdicts, GROUPS, int(np.sum(self.y < 0)), self.classes)
            ax.set_xlabel("rows of each class, sorted by held-out score")
            ax.set_ylabel(self.score_name)
        ax.set_title(self.title, loc="left", fontsize=11)
        self.ax_, self.figure_ = ax, ax.figure
        return self
