"""What a step is judged by: intervals of a criterion from bounds of the validation scores."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from glru._numerics import UNIT, Array, gamma
from glru.losses.logistic import softplus


@final
@dataclass(frozen=True)
class Criterion:
    """A sum over validation rows that is to become small.

    Attributes
    ----------
    name : str
        Its name.
    task : {"classification", "regression", "any"}
        The losses it goes with.
    terms : callable
        ``terms(y, lower, upper)``: the least and the largest value of every row's term; ``y`` as a column.
    resolution : float
        Values that differ by less than this share of the present value count as equal.
    counts : bool
        Whether the sum is a number of rows, rather than to be divided by that number.
    """

    name: str
    task: str
    terms: Callable[[Array, Array, Array], tuple[Array, Array]]
    resolution: float
    counts: bool

    def sums(self, y: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Bounds of the sum over the rows (the first axis), the rounding of the summation included."""
        low, high = (terms.sum(axis=0) for terms in self.terms(y, lower, upper))
        # Numbers of rows are added without an error.
        off = 0.0 if self.counts else gamma(y.size + 2)
        return low * (1.0 - off), high * (1.0 + off)


def _errors(y: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    # A score that is zero, or cannot be told from it, is an error whatever the label.
    right = np.where(y > 0.0, lower > 0.0, upper < 0.0)
    wrong = np.where(y > 0.0, upper <= 0.0, lower >= 0.0)
    return wrong.astype(np.float64), 1.0 - right


def _log_losses(y: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    best = np.where(y > 0.0, upper, -lower)
    worst = np.where(y > 0.0, lower, -upper)
    slack = 16.0 * UNIT
    return softplus(-best) * (1.0 - slack), softplus(-worst) * (1.0 + slack)


def _squares(y: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    ends = np.square(y - lower), np.square(y - upper)
    inside = (lower <= y) & (y <= upper)
    nearest = np.where(inside, 0.0, np.minimum(*ends))
    slack = 16.0 * UNIT * np.square(np.abs(y) + np.minimum(np.abs(lower), np.abs(upper)))
    wide = 16.0 * UNIT * np.square(np.abs(y) + np.maximum(np.abs(lower), np.abs(upper)))
    return np.maximum(nearest - np.where(np.isfinite(slack), slack, 0.0), 0.0), np.maximum(*ends) + wide


CRITERIA = {
    "error": Criterion("error", "classification", _errors, 0.0, True),
    "log_loss": Criterion("log_loss", "classification", _log_losses, 1e-9, False),
    "mse": Criterion("mse", "any", _squares, 1e-9, False),
}


def checked_criterion(name: str, task: str) -> Criterion:
    """The criterion of a name, where it goes with the loss."""
    if name not in CRITERIA:
        raise ValueError(f"criterion must be one of {', '.join(map(repr, CRITERIA))}; got {name!r}.")
    criterion = CRITERIA[name]
    if criterion.task not in ("any", task):
        raise ValueError(f"the criterion {name!r} is for {criterion.task}; this loss is for {task}. Use 'mse'.")
    return criterion
