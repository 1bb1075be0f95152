"""The path of a stepwise selection."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru._results import Shown, find_display, format_count, make_frame, show_interval
from glru.linalg import Array

MAX_PRINTED = 10
"""The largest number of steps to print."""


@final
@dataclass(frozen=True, eq=False)
class Step:
    """One step of the path."""

    action: str  # "remove", "add" or "stop", the last step of a search that ended by itself
    columns: tuple[int, ...]  # the columns that left or came, by their places in the problem
    feature: Any  # their names, or their places if there are no names
    # Proven bounds of the criterion after the step; equal if it is a count that is decided.
    value_lower: float
    value_upper: float
    n_candidates: int  # how many moves there were
    n_trainings: int  # how many of them needed a training
    # Values that the choice depends on whose bounds stayed open, so that the trained model's value was taken, unproven (a tie, an optimum that is not
    # unique, an L1 penalty, which bounds no score).
    n_open: int
    decided_by: dict[str, int]  # how many candidates each stage decided, as far as the step needed it
    seconds: float
    # The moves, in the order in which ties are broken. From 2,000,000 candidates of a path on, later steps list those that their first lower bound did
    # not rule out; the arrays below are of the same.
    candidates: tuple[tuple[str, tuple[int, ...]], ...]
    # Proven bounds of each move's value when the step was decided; with the method "naive" the values themselves.
    lower: Array
    upper: Array
    # The bounds after the first stage, and how many validation rows were certain then. With the criterion "error" ``first_lower`` is ``I`` of
    # Algorithm 5, ``first_certain - I`` is ``C`` and the rest of the rows ``Z``.
    first_lower: Array
    first_upper: Array
    first_certain: Array

    @property
    def label(self) -> str:
        """The columns that left or came, as text; empty for a stop."""
        return ", ".join(map(str, self.feature)) if isinstance(self.feature, tuple) else str(self.feature)

    @property
    def value(self) -> float:
        """The criterion after the step (the middle of its bounds)."""
        return 0.5 * (self.value_lower + self.value_upper)


@final
@dataclass(frozen=True, eq=False, repr=False)
class StepwiseResult(Shown):
    """What a stepwise selection chose, and how.

    Attributes
    ----------
    selected : array of int
        The columns chosen, by their places in the problem.
    names : tuple or None
        Their names; None if the problem has no names.
    path : tuple of Step
        Every step.
    start_value : tuple of float
        Bounds of the criterion before the first step.
    direction, method, criterion : str
        As given.
    interrupted : bool
        Whether the search was ended by ``max_seconds`` or from the keyboard; the path so far is as good as any.
    n_rows : int
        Rows the criterion counts over.

    Examples
    --------
    >>> import numpy as np, glru
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> y = X[:, 0] > 0.3
    >>> result = glru.stepwise(glru.Problem(X[:40], y[:40], penalty=glru.L2(0.1)), X_val=X[40:], y_val=y[40:])
    >>> result.certified, result.n_trainings
    (True, 0)
    >>> result
    StepwiseResult(backward by error: 2 columns selected in 1 step, 0 trainings)
      start        error 2
      remove 2     error 1
    """

    selected: NDArray[np.intp]
    names: tuple[Any, ...] | None
    path: tuple[Step, ...]
    start_value: tuple[float, float]
    direction: str
    method: str
    criterion: str
    interrupted: bool
    n_rows: int

    def with_names(self, names: Any) -> "StepwiseResult":
        """The same path, its columns named by those of the problem."""

        def show(columns: tuple[int, ...]) -> Any:
            return names[columns[0]] if len(columns) == 1 else tuple(names[j] for j in columns)

        path = tuple(replace(step, feature=show(step.columns)) for step in self.path)
        return replace(self, names=tuple(names[j] for j in self.selected), path=path)

    @property
    def n_trainings(self) -> int:
        """Candidates that needed a training."""
        return sum(step.n_trainings for step in self.path)

    @property
    def decided_by(self) -> dict[str, int]:
        """How many candidates of all steps each stage decided, as far as the steps needed it."""
        return dict(sum((Counter(step.decided_by) for step in self.path), Counter()))

    @property
    def certified(self) -> bool:
        """Whether every choice is proven."""
        return all(self.proven) and self.method != "naive"

    @property
    def proven(self) -> tuple[bool, ...]:
        """Whether each step is that of training all candidates, given the columns it started from; never with "naive"."""
        return tuple(self.method != "naive" and step.n_open == 0 for step in self.path)

    @property
    def n_unproven(self) -> int:
        """Steps whose choice is not proven."""
        return self.proven.count(False)

    def doubt(self, place: int) -> str:
        """Why the choice of a step is not proven; empty where it is."""
        if self.proven[place]:
            return ""
        if self.method == "naive":
            return "not proven: trained, without bounds"
        n_open = self.path[place].n_open
        return f"not proven: {n_open} value{'' if n_open == 1 else 's'} open"

    @property
    def criterion_bounds(self) -> tuple[float, float]:
        """Proven bounds of the criterion for the selected columns."""
        if not self.path:
            return self.start_value
        return self.path[-1].value_lower, self.path[-1].value_upper

    def to_frame(self) -> Any:
        """One row per step: what it did, the criterion after it, and how it was decided (pandas or polars)."""
        columns: dict[str, list[Any]] = {
            "action": [step.action for step in self.path],
            "feature": [step.label for step in self.path],
        }
        for name in ("value_lower", "value_upper", "n_candidates", "n_trainings", "n_open", "seconds"):
            columns[name] = [getattr(step, name) for step in self.path]
        return make_frame(columns | {"proven": list(self.proven)})

    def plot(self, ax: Any = None, step: int | None = None) -> Any:
        """Draw the criterion along the path, or the candidates of one step; returns a :class:`glru.display.StepwiseDisplay`.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if not given.
        step : int, default=None
            The step whose candidates are drawn; the whole path if not given.
        """
        return find_display("StepwiseDisplay").from_result(self).plot(ax, step)

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        n_moves = sum(step.action != "stop" for step in self.path)
        proof = f", {self.n_unproven} of {len(self.path)} choices not proven" if self.n_unproven else ""
        criterion, way = (
            self.criterion.replace("_", " "),
            "" if self.method == "certified" else f", method {self.method!r}",
        )
        found = f"{format_count(self.selected.size, 'column')} selected in {format_count(n_moves, 'step')}"
        trainings = format_count(self.n_trainings, "training")
        title = f"StepwiseResult({self.direction} by {criterion}{way}: {found}, {trainings}{proof})"
        lines = [("start", f"{criterion} {show_interval(*self.start_value)}")]
        for place, step in enumerate(self.path[:MAX_PRINTED]):
            doubt = self.doubt(place)
            if step.action != "stop" or doubt:
                what = "stop" if step.action == "stop" else f"{step.action} {step.label}"
                value = show_interval(step.value_lower, step.value_upper)
                lines.append((what, f"{criterion} {value}{doubt and f'  ({doubt})'}"))
        rest = self.proven[MAX_PRINTED:]
        if rest:
            lines.append(("...", f"{len(rest)} more" + (f", {rest.count(False)} not proven" if not all(rest) else "")))
        return title, lines
