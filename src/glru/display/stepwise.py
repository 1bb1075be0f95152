"""The pictures of a stepwise selection: its path, and one step from the inside."""

from typing import Any, final

import numpy as np

from glru._numerics import Array
from glru.display.intervals import BLUE, GREY, ORANGE, axes
from glru.selection import StepwiseResult

NAMES = {
    "error": "validation errors (rows)",
    "log_loss": "validation log-loss (nats)",
    "mse": "validation squared error",
}

MOST_LABELS = 30
"""Longer paths are numbered instead of named."""


@final
class StepwiseDisplay:
    """The criterion along the path of a stepwise selection, or the bounds of all candidates of one step.

    Parameters
    ----------
    labels : list of str
        What was done at each step, the start first.
    lower, upper : array of shape (n_steps + 1,)
        Bounds of the criterion, the start first.
    steps : list of (first_lower, lower, upper)
        For each step, what every candidate's value was known to be at least after the first stage, and in the end.
    values : array of shape (n_steps,)
        What each step's candidates had to beat.
    criterion, title : str
        What was made small, and what is shown.

    Examples
    --------
    >>> import glru
    >>> data = glru.datasets.load("breast_cancer")
    >>> X = glru.datasets.normalize(data.X, "dense")
    >>> problem = glru.Problem(X[:400], data.y[:400], penalty=glru.L2(0.01))
    >>> result = glru.stepwise(problem, X[400:], data.y[400:])
    >>> glru.StepwiseDisplay.from_result(result).labels[0]
    'start'
    """

    def __init__(
        self,
        labels: list[str],
        lower: Array,
        upper: Array,
        steps: list[tuple[Array, Array, Array]],
        values: Array,
        criterion: str,
        title: str,
    ) -> None:
        self.labels, self.lower, self.upper = labels, lower, upper
        self.steps, self.values, self.criterion, self.title = steps, values, criterion, title

    @classmethod
    def from_result(cls, result: StepwiseResult) -> "StepwiseDisplay":
        """The display of a stepwise selection."""
        moves = [step for step in result.path if step.action != "stop"]
        signs = {"remove": "\N{MINUS SIGN}", "add": "+"}
        labels = ["start", *(f"{signs[step.action]} {_name(step.feature)}" for step in moves)]
        lower = np.array([result.start_value[0], *(step.value_lower for step in moves)])
        upper = np.array([result.start_value[1], *(step.value_upper for step in moves)])
        before = np.array([result.start_value[1], *(step.value_upper for step in result.path)])[: len(result.path)]
        inner = [(step.first_lower, step.lower, step.upper) for step in result.path]
        proof = "every choice proven" if result.certified else "choices not proven"
        title = f"{result.selected.size} columns left, {result.n_trainings} trainings, {proof}"
        return cls(labels, lower, upper, inner, before, result.criterion, title)

    def plot(self, ax: Any = None, step: int | None = None) -> "StepwiseDisplay":
        """Draw the path, or one step.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if not given.
        step : int, default=None
            A step to look into: its candidates in ascending order of their first lower bounds, as they are processed by
            the paper's Algorithm 4, with the bounds they ended with and the value to beat.
        """
        ax = axes(ax, 3.6 if step is not None or len(self.labels) > MOST_LABELS else 5.0)
        if step is None:
            self._plot_path(ax)
        else:
            self._plot_step(ax, step)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _plot_path(self, ax: Any) -> None:
        places = np.arange(len(self.labels))
        ax.fill_between(places, self.lower, self.upper, step="mid", color=BLUE, alpha=0.25, linewidth=0.0)
        ax.plot(places, 0.5 * (self.lower + self.upper), "o-", color=BLUE, markersize=4.0, linewidth=1.2)
        if len(self.labels) <= MOST_LABELS:
            ax.set_xticks(places, self.labels, rotation=60, ha="right")
            ax.set_xlabel("step")
        else:
            ax.set_xlabel("step (number of moves)")
        _count_axis(ax, self.criterion)
        ax.set_ylabel(NAMES[self.criterion])
        ax.set_title(self.title)

    def _plot_step(self, ax: Any, step: int) -> None:
        if not 0 <= step < len(self.steps):
            raise ValueError(f"step must be from 0 to {len(self.steps) - 1}; got {step!r}.")
        first, lower, upper = self.steps[step]
        order = np.argsort(first, kind="stable")
        places = np.arange(order.size)
        shown = np.minimum(upper[order], 1.2 * np.max(upper[np.isfinite(upper)], initial=self.values[step]))
        ax.vlines(places, lower[order], shown, color=GREY, linewidth=0.8, zorder=1)
        ax.plot(places, shown, ".", color=BLUE, markersize=3.0, label="proven value (upper end)", zorder=3)
        ax.plot(places, first[order], color=ORANGE, linewidth=1.4, label="lower bound after the first stage", zorder=2)
        ax.axhline(self.values[step], color="black", linewidth=0.8, linestyle="--", label="to beat")
        ax.set_xlabel("candidates, in ascending order of their lower bounds")
        _count_axis(ax, self.criterion)
        ax.set_ylabel(NAMES[self.criterion])
        ax.set_title(f"step {step + 1}: {order.size} candidates")
        ax.legend(loc="lower right", framealpha=0.9)


def _name(feature: Any) -> str:
    return ", ".join(map(str, feature)) if isinstance(feature, tuple) else str(feature)


def _count_axis(ax: Any, criterion: str) -> None:
    if criterion == "error":
        from matplotlib.ticker import MaxNLocator

        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
