"""The picture of a change: the scores that queries get from the retrained model."""

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.after import After
from glru.bounds import ScoreBounds
from glru.display.intervals import BLUE, GREY, ORANGE, Group, axes, draw_intervals, middle
from glru.linalg import Array

GROUPS: dict[int, Group] = {
    1: ("label unchanged", BLUE, 3.0),
    -1: ("label changed", ORANGE, 6.0),
    0: ("open", GREY, 6.0),
}


@final
class AfterDisplay:
    """Intervals of the retrained scores, coloured by whether the label is proven to stay or to change.

    Parameters
    ----------
    lower, upper : array of shape (n_queries,)
        Bounds of the retrained scores, in the order they are drawn.
    verdicts : array of shape (n_queries,)
        1 unchanged, -1 changed, 0 open.
    title : str
        What is shown.

    Examples
    --------
    >>> import glru
    >>> data = glru.datasets.load("breast_cancer")
    >>> X = glru.datasets.prepare(data).X
    >>> solution = glru.solve(glru.Problem(X[:500], data.y[:500], penalty=glru.L2(0.1)))
    >>> out = glru.after(solution, glru.RemoveRows([3, 17]))
    >>> display = glru.display.AfterDisplay.from_after(out, X[500:], X[500:] @ solution.coef)
    >>> display.title
    '69 queries after the change: 69 labels unchanged, 0 changed, 0 open'
    """

    def __init__(self, lower: Array, upper: Array, verdicts: NDArray[np.int8], title: str) -> None:
        self.lower, self.upper, self.verdicts, self.title = lower, upper, verdicts, title

    @classmethod
    def from_after(cls, out: After, X: Any, old_scores: Array) -> "AfterDisplay":
        """Make the display of what is proven about some queries.

        Parameters
        ----------
        out : After
            From :func:`glru.after`, of a classification.
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries, with the columns of the changed problem.
        old_scores : array of shape (n_queries,)
            Their scores before the change.
        """
        if out.solution.problem.loss.task != "classification":
            raise ValueError("AfterDisplay shows classifications; got a regression. Use out.score_bounds(X).")
        return cls.from_bounds(out.score_bounds(X), old_scores)

    @classmethod
    def from_bounds(cls, bounds: ScoreBounds, old_scores: Array) -> "AfterDisplay":
        """Make the display from bounds of the retrained scores."""
        verdicts = verdicts_of(bounds, old_scores)
        order = np.argsort(middle(bounds), kind="stable")
        counts = [int(np.sum(verdicts == verdict)) for verdict in GROUPS]
        title = (
            f"{bounds.n_rows} queries after the change: {counts[0]} labels unchanged, {counts[1]} changed, "
            f"{counts[2]} open"
        )
        return cls(*bounds.take(order), verdicts[order], title)

    def plot(self, ax: Any = None) -> "AfterDisplay":
        """Draw the intervals.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if not given.
        """
        ax = axes(ax)
        draw_intervals(ax, self.lower, self.upper, self.verdicts, GROUPS, "upper left")
        ax.set_xlabel("queries, sorted by score")
        ax.set_ylabel("retrained score (log-odds for logistic)")
        ax.set_title(self.title)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def verdicts_of(bounds: ScoreBounds, old_scores: Array) -> NDArray[np.int8]:
    """1 where the label is proven to stay, -1 where it is proven to change, 0 where nothing is proven."""
    changes, stays = bounds.changes(old_scores)
    return stays.astype(np.int8) - changes
