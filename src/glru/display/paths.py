"""Pictures of named quantities, of a regularisation path, and of a stepwise selection."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np

from glru._results import format_count
from glru.display.scores import BLUE, GREEN, GREY, MARKS, ORANGE, Display, new_axes, shorten
from glru.linalg import Array
from glru.model_selection import LOOCVPath
from glru.selection import StepwiseResult

MAX_DRAWN, MAX_NAME = 30, 40
"""Quantities that are drawn, and characters of their names."""


@final
class IntervalsDisplay(Display):
    """Certified intervals of named quantities, the first one on top: what features are worth, coefficients, the most influential rows.

    Parameters
    ----------
    lower, upper : array of shape (n_quantities,)
        The ends, in the order in which they are drawn; at most 30 are.
    names : sequence of str
        What the quantities are called.
    label : str
        What they measure.

    Examples
    --------
    >>> import glru
    >>> data = glru.datasets.load("breast_cancer")
    >>> X = glru.datasets.prepare(data).X
    >>> problem = glru.Problem(X[:400], data.y[:400], penalty=glru.L2(0.01))
    >>> result = glru.feature_importance(problem, X_val=X[400:], y_val=data.y[400:])
    >>> display = result.plot()
    >>> len(display.names), display.label
    (30, 'increase without the feature: log loss')
    """

    def __init__(self, lower: Array, upper: Array, names: Sequence[str], label: str) -> None:
        self.lower, self.upper, self.names = lower[:MAX_DRAWN], upper[:MAX_DRAWN], names[:MAX_DRAWN]
        self.label, self.n_quantities = label, len(names)

    def _height(self) -> float:
        return 1.2 + 0.24 * len(self.names)

    def _draw(self, ax: Any) -> None:
        places = np.arange(len(self.names))
        known = np.isfinite(self.lower) & np.isfinite(self.upper)
        lower, upper = np.where(known, self.lower, 0.0), np.where(known, self.upper, 0.0)
        ax.axvline(0.0, color="black", linewidth=0.8, zorder=1)
        ax.hlines(places, lower, upper, color=BLUE, linewidth=3.0, zorder=2)
        ax.plot(0.5 * (lower + upper)[known], places[known], "o", color=BLUE, markersize=4, zorder=3, gid=MARKS)
        ax.plot(np.zeros(int((~known).sum())), places[~known], "x", color=GREY, markersize=5, zorder=3)
        ax.set_yticks(places, [shorten(name, MAX_NAME) for name in self.names])
        ax.invert_yaxis()
        ax.set_xlabel(self.label)
        if len(self.names) < self.n_quantities:
            ax.set_title(f"the first {len(self.names)} of {self.n_quantities}")


Bands = dict[str, tuple[Array, Array]]


@final
@dataclass(eq=False, repr=False)
class RegularizationPathDisplay(Display):
    """Leave-one-out errors and losses over the strength of the penalty, with the best one marked.

    Parameters
    ----------
    lams : array of shape (n_lams,)
        The strengths.
    bands : dict of (array, array)
        Lower and upper ends of each quantity at every strength, by name.
    best : int
        The position of the best strength.
    criterion : str
        The name of the quantity that decided.
    certified : bool
        Whether no other strength can be better.
    axis : str, default="lam"
        What the strengths are called.

    Examples
    --------
    >>> import glru
    >>> data = glru.datasets.load("breast_cancer")
    >>> X = glru.datasets.prepare(data).X
    >>> path = glru.loocv_path(glru.Problem(X, data.y, penalty=glru.L2(1.0)), [1.0, 0.1, 0.01, 0.001])
    >>> display = glru.display.RegularizationPathDisplay.from_path(path)
    >>> display.title
    'best lam: 0.01, certified (10 errors)'
    """

    lams: Array
    bands: Bands
    best: int
    criterion: str
    certified: bool
    axis: str = "lam"

    @classmethod
    def from_path(cls, path: LOOCVPath, as_C: bool = False) -> "RegularizationPathDisplay":
        """Make the display of a leave-one-out path.

        Parameters
        ----------
        path : LOOCVPath
            From :func:`glru.loocv_path`.
        as_C : bool, default=False
            Show ``C = 1 / lam``, for problems with scaling "sum".
        """
        bands: Bands = {}
        if path.criterion in ("error", "log_loss"):
            counts = [(result.errors_lower, result.errors_upper) for result in path.results]
            bands["error"] = _split_ends(counts)
            if type(path.results[0].problem.loss).__name__ == "Logistic":
                bands["log_loss"] = _split_ends([result.metric_bounds("log_loss") for result in path.results])
        else:
            bands[path.criterion] = (path.lower, path.upper)
        strengths = 1.0 / path.lams if as_C else path.lams
        return cls(strengths, bands, path.best_index, path.criterion, path.certified, "C" if as_C else "lam")

    @property
    def title(self) -> str:
        """The best strength and whether it is proven to be."""
        low, high = (ends[self.best] for ends in self.bands[self.criterion])
        if self.criterion == "error":
            value = f"{low:.0f} errors" if low == high else f"{low:.0f} to {high:.0f} errors"
        else:
            value = f"{self.criterion.replace('_', ' ')} at most {high:.4g}"
        proof = "certified" if self.certified else "not certified"
        return f"best {self.axis}: {self.lams[self.best]:.4g}, {proof} ({value})"

    def _new_axes(self) -> Any:
        n_panels = len(self.bands)
        return new_axes(1.2 + 2.1 * n_panels, nrows=n_panels, sharex=True, squeeze=False)

    def _draw(self, ax: Any) -> None:
        self.ax_ = panels = np.ravel(ax)
        for panel, (name, (lower, upper)) in zip(panels, self.bands.items(), strict=True):
            finite = np.isfinite(upper)
            top = 1.1 * float(upper[finite].max()) if finite.any() else 1.0
            draw_band(panel, self.lams, lower, np.where(finite, upper, np.nan), np.where(finite, upper, top))
            label = f"best {self.axis}" + ("" if self.certified else ", not certified")
            panel.axvline(self.lams[self.best], color=ORANGE, linestyle="--", linewidth=1.5, label=label)
            panel.set_ylabel(f"held-out {CRITERIA[name]}")
            panel.set_xscale("log")
            panel.ticklabel_format(axis="y", useOffset=False)
            panel.locator_params(axis="y", integer=name == "error", nbins=6)
            panel.legend(frameon=False)
        panels[0].set_title(self.title, loc="left", fontsize=11)
        panels[-1].set_xlabel("strength of the penalty, lam" if self.axis == "lam" else "C")


def draw_band(ax: Any, x: Any, lower: Array, upper: Array, edge: Array) -> None:
    """Certified ends over an axis; the band between them reaches to ``edge``. Ends that agree everywhere are one line."""
    if np.array_equal(lower, upper):
        ax.plot(x, lower, color=BLUE, marker="o", markersize=4, label="certified value", gid=MARKS)
        return
    ax.fill_between(x, lower, edge, color=BLUE, alpha=0.25, linewidth=0)
    ax.plot(x, lower, color=BLUE, marker="^", markersize=4, label="certified lower end")
    ax.plot(x, upper, color=GREEN, marker="v", markersize=4, label="certified upper end", gid=MARKS)


def _split_ends(pairs: Any) -> tuple[Array, Array]:
    array = np.array(pairs, dtype=np.float64)
    return array[:, 0], array[:, 1]


Inside = tuple[Array, Array, Array, float]

MAX_NAMED_STEPS = 30
"""Largest number of steps for which the features are written below the axis."""

CRITERIA = {
    "error": "errors (rows)",
    "log_loss": "log-loss (nats)",
    "squared_error": "squared error",
    "deviance": "mean deviance",
    "aic": "AIC",
    "bic": "BIC",
}


@final
@dataclass(eq=False, repr=False)
class StepwiseDisplay(Display):
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
        For the candidates of every step: lower bounds of their values after the first stage, their final
        bounds, and the value to beat.

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

    lower: Array
    upper: Array
    n_features: Array
    moves: Sequence[str]
    criterion: str
    proven: Any
    n_trainings: int
    steps: Sequence[Inside]

    def __post_init__(self) -> None:
        self.proven = np.array(self.proven, dtype=bool)

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
        trainings = format_count(self.n_trainings, "training")
        if not self.moves:
            return f"{self.n_features[0]} features and no step that makes it better, {proof}, {trainings}"
        sizes = f"{self.n_features[0]} to {self.n_features[-1]} features"
        return f"{sizes} in {format_count(len(self.moves), 'step')}, {proof}, {trainings}"

    def plot(self, ax: Any = None, step: int | None = None) -> Self:
        """Draw the criterion along the path, or the candidates of one step.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if not given.
        step : int, default=None
            A step to look into: its candidates in ascending order of their first lower bounds, in which the paper's
            Algorithm 4 goes through them, with the bounds they ended with and the value to beat.
        """
        if step is not None and not 0 <= step < len(self.steps):
            raise ValueError(f"step must be from 0 to {len(self.steps) - 1}; got {step!r}.")
        self._step = step
        return super().plot(ax)

    def _height(self) -> float:
        return 4.4 if self._step is None and len(self.moves) <= MAX_NAMED_STEPS else 3.6

    def _draw(self, ax: Any) -> None:
        if self._step is not None:
            self._draw_step(ax, self._step)
            return
        named = len(self.moves) <= MAX_NAMED_STEPS
        places = np.arange(self.lower.size)
        draw_band(ax, places, self.lower, self.upper, self.upper)
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
        ax.set_ylabel(CRITERIA[self.criterion])
        finite = np.concatenate([self.lower, self.upper])
        finite = finite[np.isfinite(finite)]
        if finite.size:
            low, high = (0.0 if self.criterion == "error" else float(finite.min())), float(finite.max())
            margin = max(0.08 * (high - low), 0.005 * abs(high), 1e-300)
            ax.set_ylim(low - (margin if self.criterion != "error" else 0.0), high + margin)
        ax.ticklabel_format(axis="y", useOffset=False)
        ax.locator_params(axis="y", integer=self.criterion == "error", nbins=6)
        ax.legend(frameon=False)
        ax.set_title(self.title, loc="left", fontsize=11)

    def _draw_step(self, ax: Any, step: int) -> None:
        first, lower, upper, value = self.steps[step]
        order = np.argsort(first, kind="stable")
        places = np.arange(order.size)
        shown = np.minimum(upper[order], 1.2 * np.max(upper[np.isfinite(upper)], initial=value))
        ax.vlines(places, lower[order], shown, color=GREY, linewidth=0.8, zorder=1)
        ax.plot(places, shown, ".", color=BLUE, markersize=3.0, label="certified upper end", zorder=3)
        ax.plot(places, first[order], color=ORANGE, linewidth=1.4, label="lower bound after the first stage", zorder=2)
        ax.axhline(value, color="black", linewidth=0.8, linestyle="--", label="to beat")
        ax.set_xlabel("candidates, in ascending order of their lower bounds")
        ax.set_ylabel(CRITERIA[self.criterion])
        ax.locator_params(axis="y", integer=self.criterion == "error", nbins=6)
        ax.set_title(f"step {step + 1}: {order.size} candidates")
        ax.legend(loc="lower right", framealpha=0.9)


def name_step(step: Any, names: Sequence[str] | None) -> str:
    """What the columns of a step are called; those of one text column by its name."""
    if names is None:
        return str(step.label)
    own = [names[column] for column in step.columns]
    origins = {name.partition("=")[0] for name in own}
    if len(own) > 1 and len(origins) == 1 and all("=" in name for name in own):
        return f"{origins.pop()} ({len(own)} levels)"
    return ", ".join(own)
