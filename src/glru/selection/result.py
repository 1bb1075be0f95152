"""The path of a stepwise selection."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import Array


@final
@dataclass(frozen=True, eq=False)
class Step:
    """One step of the path.

    Attributes
    ----------
    action : {"remove", "add", "stop"}
        What was done; the last step of a search that ended by itself is a "stop".
    columns : tuple of int
        The columns that left or came, by their places in the problem.
    feature : str, int or tuple
        The same by name, where there are names.
    value_lower, value_upper : float
        Proven bounds of the criterion after the step; equal where it is a count that is decided.
    n_candidates, n_trainings, n_vague : int
        Moves there were; those that needed a training; values on which the choice depends and whose bounds stayed open, so
        that the trained model's value was taken, unproven (a tie, an optimum that is not unique, an L1 penalty, which
        bounds no score).
    decided_by : dict
        How many candidates each stage settled, as far as the step needed it.
    seconds : float
        Time of the step.
    candidates : tuple of (action, columns)
        The moves, in the order in which ties are broken.
    lower, upper : array of shape (n_candidates,)
        Proven bounds of each move's value when the step was decided; with the method "naive" the values themselves.
    first_lower, first_upper, first_certain : array of shape (n_candidates,)
        The same after the first stage, and how many validation rows were certain then. With the criterion "error"
        ``first_lower`` is ``I`` of Algorithm 5, ``first_certain - I`` is ``C`` and the rest of the rows ``Z``.
    """

    action: str
    columns: tuple[int, ...]
    feature: Any
    value_lower: float
    value_upper: float
    n_candidates: int
    n_trainings: int
    n_vague: int
    decided_by: dict[str, int]
    seconds: float
    candidates: tuple[tuple[str, tuple[int, ...]], ...]
    lower: Array
    upper: Array
    first_lower: Array
    first_upper: Array
    first_certain: Array

    @property
    def value(self) -> float:
        """The criterion after the step (the middle of its bounds)."""
        return 0.5 * (self.value_lower + self.value_upper)


@final
@dataclass(frozen=True, eq=False, repr=False)
class StepwiseResult:
    """What a stepwise selection chose, and how.

    Attributes
    ----------
    selected : array of int
        The columns chosen, by their places in the problem.
    selected_names : tuple or None
        Their names, where there are names.
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
    >>> result = glru.stepwise(glru.Problem(X[:40], y[:40], penalty=glru.L2(0.1)), X[40:], y[40:])
    >>> result.certified, result.n_trainings
    (True, 0)
    """

    selected: NDArray[np.intp]
    selected_names: tuple[Any, ...] | None
    path: tuple[Step, ...]
    start_value: tuple[float, float]
    direction: str
    method: str
    criterion: str
    interrupted: bool
    n_rows: int

    @property
    def n_trainings(self) -> int:
        """Candidates that needed a training."""
        return sum(step.n_trainings for step in self.path)

    @property
    def certified(self) -> bool:
        """Whether every choice is proven."""
        return all(self.proven) and self.method != "naive"

    @property
    def proven(self) -> tuple[bool, ...]:
        """Whether each step is that of training all candidates, given the columns it started from; never with "naive"."""
        return tuple(self.method != "naive" and step.n_vague == 0 for step in self.path)

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
        n_open = self.path[place].n_vague
        return f"not proven: {n_open} value{'' if n_open == 1 else 's'} open"

    def to_frame(self) -> Any:
        """One row a step (a pandas DataFrame)."""
        import pandas as pd

        names = ("action", "feature", "value_lower", "value_upper", "n_candidates", "n_trainings", "n_vague", "seconds")
        frame = pd.DataFrame([{name: getattr(step, name) for name in names} for step in self.path], columns=list(names))
        return frame.assign(proven=np.array(self.proven, dtype=bool))

    def __repr__(self) -> str:
        n_moves = sum(step.action != "stop" for step in self.path)
        proof = f", {self.n_unproven} of {len(self.path)} choices not proven" if self.n_unproven else ""
        lines = [
            f"StepwiseResult({self.direction}, {self.method!r}, {self.criterion!r}: {self.selected.size} columns "
            f"selected in {n_moves} steps, {self.n_trainings} trainings{proof})",
            f"  {'start':<24} {self.criterion} {_interval(*self.start_value)}",
        ]
        for place, step in enumerate(self.path[:10]):
            doubt = self.doubt(place)
            if step.action == "stop" and not doubt:
                continue
            what = "stop" if step.action == "stop" else f"{step.action} {step.feature}"
            value = _interval(step.value_lower, step.value_upper)
            lines.append(f"  {what:<24} {self.criterion} {value}" + (f"  ({doubt})" if doubt else ""))
        rest = self.proven[10:]
        if rest:
            lines.append(f"  ... and {len(rest)} more" + (f", {rest.count(False)} not proven" if not all(rest) else ""))
        return "\n".join(lines)


def _interval(lower: float, upper: float) -> str:
    return f"{lower:.6g}" if upper - lower <= 1e-6 * max(1.0, abs(lower)) else f"between {lower:.6g} and {upper:.6g}"
