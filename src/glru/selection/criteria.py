"""What a step is judged by: intervals of a criterion from bounds of the validation scores."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from glru.bounds import errors, log_losses, margins, residuals
from glru.linalg import FEW, TINY, UNIT, Array, arrays_of, gamma, namespace, to_host
from glru.losses.base import Loss, where_true


@final
@dataclass(frozen=True)
class Criterion:
    """A sum over validation rows that is to become small.

    Attributes
    ----------
    name : str
        Its name.
    task : {"classification", "regression"}
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
    terms: Callable[[Any, Any, Any], tuple[Any, Any]]
    resolution: float
    counts: bool

    def sum_bounds(self, y: Array, lower: Any, upper: Any) -> tuple[Array, Array]:
        """Bounds of the sum over the rows (the first axis), the rounding of the summation included."""
        arrays = arrays_of(lower)
        return self.add_terms(*self.terms(arrays.put(y), lower, upper))

    def add_terms(self, least: Any, most: Any) -> tuple[Array, Array]:
        """Bounds of the sum from bounds of its terms, wherever these live; sums come to the host."""
        xp = namespace(least)
        # Numbers of rows are added without an error.
        error = 0.0 if self.counts else gamma(least.shape[0] + 2)
        return to_host(xp.sum(least, axis=0)) * (1.0 - error), to_host(xp.sum(most, axis=0)) * (1.0 + error)

    def mean_bounds(self, lower: Any, upper: Any, n_rows: int) -> tuple[Any, Any]:
        """Bounds of the criterion from those of its sum: themselves if it counts, else divided by the rows, rounded outward."""
        return (lower, upper) if self.counts else (lower / n_rows * (1.0 - FEW), upper / n_rows * (1.0 + FEW))


def _errors(y: Any, lower: Any, upper: Any) -> tuple[Any, Any]:
    xp = namespace(lower)
    wrong, doubtful = errors(*margins(y, lower, upper))
    return where_true(xp, wrong, 1.0), where_true(xp, doubtful, 1.0)


def _log_losses(y: Any, lower: Any, upper: Any) -> tuple[Any, Any]:
    slack = 16.0 * UNIT
    least, most = log_losses(y, lower, upper)
    return least * (1.0 - slack), most * (1.0 + slack)


def _squared_errors(y: Any, lower: Any, upper: Any) -> tuple[Any, Any]:
    # A difference of two floats has a relative error of one unit, however much cancels, and its square one of three.
    slack = 8.0 * UNIT
    near, far = residuals(y, lower, upper)
    # Squares that underflow are below TINY.
    return near**2 * (1.0 - slack), far**2 * (1.0 + slack) + TINY


CRITERIA = {
    "error": Criterion("error", "classification", _errors, 0.0, True),
    "log_loss": Criterion("log_loss", "classification", _log_losses, 1e-9, False),
    "squared_error": Criterion("squared_error", "regression", _squared_errors, 1e-9, False),
}


def find_criterion(name: str, loss: Loss, signs: bool = False) -> Criterion:
    """The criterion of a name, if it goes with the loss; ``signs``: a regression on -1 and +1 has errors, too."""
    if name not in CRITERIA:
        raise ValueError(f"criterion must be one of {', '.join(map(repr, CRITERIA))}; got {name!r}.")
    criterion = CRITERIA[name]
    if name == "log_loss" and not loss.probabilities:
        other = "'error'" if loss.task == "classification" or signs else "'squared_error'"
        raise ValueError(
            f"the criterion 'log_loss' needs probabilities, which only the logistic loss gives; got {loss!r}. Use {other}."
        )
    if criterion.task != loss.task and not (name == "error" and signs):
        other = "'error'" if loss.task == "classification" else "'squared_error'"
        raise ValueError(f"the criterion {name!r} is for {criterion.task}; got {loss!r}, for {loss.task}. Use {other}.")
    return criterion
