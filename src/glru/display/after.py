"""The picture of a change: the scores that queries get from the retrained model."""

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.after import After
from glru.bounds import ScoreBounds
from glru.display.intervals import BLUE, GREY, ORANGE, Groups, draw_agreement, draw_sides, make_axes, middle, sort_sides
from glru.linalg import Array

GROUPS: Groups = {1: ("label unchanged", BLUE), -1: ("label changed", ORANGE), 0: ("open", GREY)}


@final
class AfterDisplay:
    """Intervals of the retrained scores: of classes by the label before, coloured by whether it is proven to stay; of a regression by how much predictions change.

    Parameters
    ----------
    lower, upper : array of shape (n_queries,)
        Bounds of the retrained scores, in the order they are drawn.
    old_scores : array of shape (n_queries,)
        The scores before the change, in the same order.
    title : str
        What is shown.
    classes : tuple of str or None, default=None
        What -1 and +1 stand for; None for a regression.

    Examples
    --------
    >>> import glru
    >>> data = glru.datasets.load("breast_cancer")
    >>> X = glru.datasets.prepare(data).X
    >>> solution = glru.solve(glru.Problem(X[:500], data.y[:500], penalty=glru.L2(0.1)))
    >>> out = glru.after(solution, glru.RemoveRows([3, 17]))
    >>> display = glru.display.AfterDisplay.from_after(out, X[500:])
    >>> display.title
    '69 queries after the change: 69 labels unchanged, 0 changed, 0 open'
    """

    def __init__(
        self, lower: Array, upper: Array, old_scores: Array, title: str, classes: tuple[str, str] | None = None
    ) -> None:
        self.lower, self.upper, self.old_scores, self.title, self.classes = lower, upper, old_scores, title, classes

    @property
    def verdicts(self) -> NDArray[np.int8]:
        """1 unchanged, -1 changed, 0 open, for classes."""
        return find_verdicts(ScoreBounds(self.lower, self.upper), self.old_scores)

    @classmethod
    def from_after(cls, out: After, X: Any, old_scores: Array | None = None) -> "AfterDisplay":
        """Make the display of what is proven about some queries.

        Parameters
        ----------
        out : After
            From :func:`glru.after`.
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries, with the columns of the changed problem.
        old_scores : array of shape (n_queries,), default=None
            Their scores before the change; if not given, ``out.present_scores(X)``, where the change leaves the columns as they are.
        """
        bounds = out.score_bounds(X)
        if bounds.lower.ndim == 2:
            raise ValueError(
                "AfterDisplay shows one score per query; got one per class. Use ConfusionDisplay.from_bounds."
            )
        classes = None if out.classes is None else (str(out.classes[0]), str(out.classes[1]))
        return cls.from_bounds(bounds, out.present_scores(X) if old_scores is None else old_scores, classes)

    @classmethod
    def from_bounds(
        cls, bounds: ScoreBounds, old_scores: Array, classes: tuple[str, str] | None = ("-1", "+1")
    ) -> "AfterDisplay":
        """Make the display from bounds of the retrained scores."""
        if classes is None:
            title = f"{bounds.n_rows:,} queries after the change, median width {np.median(bounds.width):.2g}"
            return cls(bounds.lower, bounds.upper, old_scores, title)
        verdicts = find_verdicts(bounds, old_scores)
        order = sort_sides(middle(bounds), old_scores)
        counts = [int(np.sum(verdicts == verdict)) for verdict in GROUPS]
        title = (
            f"{bounds.n_rows:,} queries after the change: {counts[0]:,} labels unchanged, {counts[1]:,} changed, "
            f"{counts[2]:,} open"
        )
        return cls(*bounds.take(order), old_scores[order], title, classes)

    def plot(self, ax: Any = None) -> "AfterDisplay":
        """Draw the intervals.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if not given.
        """
        ax = make_axes(ax)
        bounds = ScoreBounds(self.lower, self.upper)
        if self.classes is None:
            moves = ScoreBounds(self.lower - self.old_scores, self.upper - self.old_scores)
            draw_agreement(ax, self.old_scores, moves, diagonal=False)
            ax.set_xlabel("prediction before the change")
            ax.set_ylabel("retrained prediction minus that before")
        else:
            before = (f"before: {self.classes[0]}", f"before: {self.classes[1]}")
            draw_sides(ax, bounds, self.verdicts, GROUPS, int(np.sum(self.old_scores <= 0)), before)
            ax.set_xlabel("queries by their label before the change, sorted by retrained score")
            ax.set_ylabel("retrained score")
        ax.set_title(self.title, loc="left", fontsize=11)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def find_verdicts(bounds: ScoreBounds, old_scores: Array) -> NDArray[np.int8]:
    """1 where the label is proven to stay, -1 where it is proven to change, 0 where nothing is proven."""
    changes, stays = bounds.changes(old_scores)
    return stays.astype(np.int8) - changes
