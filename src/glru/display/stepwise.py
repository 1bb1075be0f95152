"""The pictures of a stepwise selection: the criterion after every step, and one step from the inside."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from glru.display.intervals import BLUE, GREEN, GREY, ORANGE, make_axes, shorten
from glru.linalg import Array
from glru.selection import StepwiseResult

Inside = tuple[Array, Array, Array, float]

MOST_NAMED_STEPS = 30
"""Largest number of steps for which the features are written below the axis."""

NAMES = {
    "error": "wrong labels (rows)",
    "log_loss": "log-loss (nats)",
    "squared_error": "squared error",
    "aic": "AIC",
    "bic": "BIC",
}


@final
class StepwiseDisplay:
    """Certified intervals of the criterion along the path, with the feature that left or came at each step.

    Parameters
    ----------
    lower, upper : array of shape (n_steps + 1,)
        Ends of the criterion before the first step and after each.
    n_features : array of shape (n_steps + 1,)
        How many columns the model has there.
    moves : sequence of str
        What each step did, such as ``- age``.
    criterion : str
        What was minimised.
    proven : array of bool of shape (n_steps,)
        Whether the choice of each step, a last "stop" included, is proven.
    n_trainings : int
        Candidates that needed a training.
    steps : sequence of (first_lower, lower, upper, value)
        Of every step's candidates: what their values were known to be at least after the first stage, what they were
        known to be in the end, and the value to beat.

    Examples
    --------
    >>> import glru
    >>> data = glru.datasets.load("breast_cancer")
    >>> X = glru.datasets.prepare(data).X
    >>> problem = glru.Problem(X[:400], data.y[:400], penalty=glru.L2(0.01))
    >>> result = glru.stepwise(problem, X_val=X[400:], y_val=data.y[400:], max_steps=2)
    >>> glru.display.StepwiseDisplay.from_result(result, data.feature_names).n_features
    array([30, 29])
    """

    def __init__(
        self,
        lower: Array,
        upper: Array,
        n_features: Array,
        moves: Sequence[str],
        criterion: str,
        proven: Sequence[bool],
        n_trainings: int,
        steps: Sequence[Inside],
    ) -> None:
        self.lower, self.upper, self.n_features, self.moves = lower, upper, n_features, moves
        self.criterion, self.n_trainings, self.steps = criterion, n_trainings, steps
        self.proven = np.array(proven, dtype=bool)

    @classmethod
    def from_result(cls, result: StepwiseResult, names: Sequence[str] | None = None) -> "StepwiseDisplay":
        """Make the display of a stepwise selection.

        Parameters
        ----------
        result : StepwiseResult
            From :func:`glru.stepwise`.
        names : sequence of str, default=None
            What the columns are called; the problem's own names or their positions if not given.
        """
        steps = [step for step in result.path if step.action != "stop"]
        ends = np.array([result.start_value, *((step.value_lower, step.value_upper) for step in steps)])
        signs = np.array([1 if step.action == "add" else -1 for step in steps], dtype=np.intp)
        moved = np.cumsum([0, *(signs * [len(step.columns) for step in steps])]).astype(np.intp)
        moves = [("+ " if step.action == "add" else "- ") + name_step(step, names) for step in steps]
        sizes = result.selected.size - moved[-1] + moved
        beaten = [result.start_value[1], *(step.value_upper for step in result.path)]
        inside = [
            (step.first_lower, step.lower, step.upper, value) for step, value in zip(result.path, beaten, strict=False)
        ]
        return cls(ends[:, 0], ends[:, 1], sizes, moves, result.criterion, result.proven, result.n_trainings, inside)

    @property
    def title(self) -> str:
        """What the selection did and whether it is proven."""
        unproven = int(np.sum(~self.proven))
        proof = f"{unproven} of {self.proven.size} choices not proven" if unproven else "every choice proven"
        trainings = f"{self.n_trainings} training" + ("" if self.n_trainings == 1 else "s")
        if not self.moves:
            return f"{self.n_features[0]} features and no step that makes it better, {proof}, {trainings}"
        steps = f"{len(self.moves)} step" + ("" if len(self.moves) == 1 else "s")
        return f"{self.n_features[0]} to {self.n_features[-1]} features in {steps}, {proof}, {trainings}"

    def plot(self, ax: Any = None, step: int | None = None) -> "StepwiseDisplay":
        """Draw the criterion along the path, or the candidates of one step.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if not given.
        step : int, default=None
            A step to look into: its candidates in ascending order of their first lower bounds, in which the paper's
            Algorithm 4 goes through them, with the bounds they ended with and the value to beat.
        """
        if step is None:
            return self._plot_path(ax)
        if not 0 <= step < len(self.steps):
            raise ValueError(f"step must be from 0 to {len(self.steps) - 1}; got {step!r}.")
        return self._plot_step(make_axes(ax), step)

    def _plot_path(self, ax: Any) -> "StepwiseDisplay":
        named = len(self.moves) <= MOST_NAMED_STEPS
        ax = make_axes(ax, height=4.4 if named else 3.6)
        places = np.arange(self.lower.size)
        ax.fill_between(places, self.lower, self.upper, color=BLUE, alpha=0.25, linewidth=0)
        ax.plot(places, self.lower, color=BLUE, marker="^", markersize=4, label="certified lower end")
        ax.plot(places, self.upper, color=GREEN, marker="v", markersize=4, label="certified upper end")
        doubtful = 1 + np.flatnonzero(~self.proven[: len(self.moves)])
        if doubtful.size:
            ax.plot(
                doubtful, self.upper[doubtful], "o", color=ORANGE, markersize=9, fillstyle="none", label="not proven"
            )
        if named:
            labels = ["start", *map(shorten, self.moves)]
            slanted = {"rotation": 60, "ha": "right", "fontsize": 8} if sum(map(len, labels)) > 60 else {}
            ax.set_xticks(places, labels, **slanted)
        ax.set_xlabel("steps: - a feature removed, + a feature added" if named else "steps")
        ax.set_ylabel(NAMES[self.criterion])
        finite = np.concatenate([self.lower, self.upper])
        finite = finite[np.isfinite(finite)]
        if finite.size:
            low, high = (0.0 if self.criterion == "error" else float(finite.min())), float(finite.max())
            room = max(0.08 * (high - low), 0.005 * abs(high), 1e-300)
            ax.set_ylim(low - (room if self.criterion != "error" else 0.0), high + room)
        ax.ticklabel_format(axis="y", useOffset=False)
        ax.locator_params(axis="y", integer=self.criterion == "error", nbins=6)
        ax.legend(frameon=False)
        ax.set_title(self.title, loc="left", fontsize=11)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _plot_step(self, ax: Any, step: int) -> "StepwiseDisplay":
        first, lower, upper, value = self.steps[step]
        order = np.argsort(first, kind="stable")
        places = np.arange(order.size)
        shown = np.minimum(upper[order], 1.2 * np.max(upper[np.isfinite(upper)], initial=value))
        ax.vlines(places, lower[order], shown, color=GREY, linewidth=0.8, zorder=1)
        ax.plot(places, shown, ".", color=BLUE, markersize=3.0, label="certified upper end", zorder=3)
        ax.plot(places, first[order], color=ORANGE, linewidth=1.4, label="lower bound after the first stage", zorder=2)
        ax.axhline(value, color="black", linewidth=0.8, linestyle="--", label="to beat")
        ax.set_xlabel("candidates, in ascending order of their lower bounds")
        ax.set_ylabel(NAMES[self.criterion])
        ax.locator_params(axis="y", integer=self.criterion == "error", nbins=6)
        ax.set_title(f"step {step + 1}: {order.size} candidates")
        ax.legend(loc="lower right", framealpha=0.9)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def name_step(step: Any, names: Sequence[str] | None) -> str:
    """What the columns of a step are called; those of one text column by its name."""
    if names is None:
        return str(step.label)
    own = [names[column] for column in step.columns]
    origins = {name.partition("=")[0] for name in own}
    if len(own) > 1 and len(origins) == 1 and all("=" in name for name in own):
        return f"{origins.pop()} ({len(own)} levels)"
    return ", ".join(own)
