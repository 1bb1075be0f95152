"""What a step is judged by: intervals of a criterion from bounds of the validation scores."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import lcm, log, pi
from typing import Any, final

import numpy as np

from glru.bounds import errors, log_losses, margins, residuals
from glru.linalg import FEW, TINY, UNIT, Array, arrays_of, gamma, namespace, to_host
from glru.losses import Logistic, Squared
from glru.losses.base import where_true
from glru.problem import Problem


@final
@dataclass(frozen=True)
class Criterion:
    """What is to become small: a sum over validation rows, or such a sum over the training rows with a price on parameters.

    Attributes
    ----------
    name : str
        Its name.
    task : {"classification", "regression"}
        The losses it goes with.
    terms : callable
        ``terms(y, lower, upper)``: the least and the largest value of every row's term; ``y`` as a column.
    resolution : float
        Values that differ by less than this share of the present value count as equal; of the total weight of the rows, where
        parameters have a price.
    counts : bool
        Whether the sum is a number of rows, rather than to be divided by that number.
    price : float or None
        What one degree of freedom adds; None: the criterion is the sum alone.
    total : float
        The total weight of the training rows, where degrees of freedom have a price.
    unit : float
        What a sum of numbers of rows is multiplied by to be shown: 1, unless rows count differently.
    """

    name: str
    task: str
    terms: Callable[[Any, Any, Any], tuple[Any, Any]]
    resolution: float
    counts: bool
    price: float | None = None
    total: float = 0.0
    unit: float = 1.0

    @property
    def least(self) -> float:
        """No value is below this."""
        return 0.0 if self.price is None or self.task == "classification" else -np.inf

    def width(self, share: float, value: float) -> float:
        """How far values near ``value`` are apart if they differ by a share of what they are measured by."""
        if self.counts:
            return 0.0
        return share * (value if self.price is None else self.total)

    def complete(self, lower: Any, upper: Any, dof: tuple[Any, Any]) -> tuple[Any, Any]:
        r"""Bounds of :math:`-2 \log L` plus the price of the degrees of freedom, from bounds of the sum and of these.

        :math:`L` is the likelihood of the Bernoulli distribution, or of the normal distribution at its best variance: with ``n`` the
        total weight and ``S`` the sum of squares :math:`n (\log(2 \pi S / n) + 1)`.
        """
        assert self.price is not None
        if self.task == "classification":
            ends = 2.0 * lower, 2.0 * upper
        else:
            logs = np.log(lower / self.total), np.log(upper / self.total)
            # A relative error of a few units in S / n, and one of a few units in its logarithm.
            off = [self.total * 2.0 * FEW * (4.0 + np.where(np.isfinite(part), np.abs(part), 0.0)) for part in logs]
            ends = (
                self.total * (logs[0] + log(2.0 * pi) + 1.0) - off[0],
                self.total * (logs[1] + log(2.0 * pi) + 1.0) + off[1],
            )
        low, high = ends[0] + self.price * dof[0], ends[1] + self.price * dof[1]
        # Errors of the two additions, relative to what is added.
        off_low = FEW * (np.abs(ends[0]) + self.price * dof[0])
        off_high = FEW * (np.abs(ends[1]) + self.price * dof[1])
        return np.where(np.isfinite(low), low - off_low, low), np.where(np.isfinite(high), high + off_high, high)

    def sum_bounds(self, y: Array, lower: Any, upper: Any, weights: Array | None = None) -> tuple[Array, Array]:
        """Bounds of the sum over the rows (the first axis), the rounding of the summation included."""
        arrays = arrays_of(lower)
        return self.add_terms(*self.terms(arrays.put(y), lower, upper), weights)

    def add_terms(self, least: Any, most: Any, weights: Array | None = None) -> tuple[Array, Array]:
        """Bounds of the sum from bounds of its terms, wherever these live; sums come to the host."""
        xp = namespace(least)
        # Numbers of rows are added without an error.
        exact = self.counts and (weights is None or bool(np.all(weights == np.rint(weights))))
        error = 0.0 if exact else gamma(least.shape[0] + 4)
        if weights is not None:
            factors = arrays_of(least).put(weights.reshape((-1,) + (1,) * (least.ndim - 1)))
            # Rows without a weight have no part in the sum, whatever is known of them.
            least, most = xp.where(factors > 0.0, factors * least, 0.0), xp.where(factors > 0.0, factors * most, 0.0)
        return to_host(xp.sum(least, axis=0)) * (1.0 - error), to_host(xp.sum(most, axis=0)) * (1.0 + error)

    def mean_bounds(self, lower: Any, upper: Any, n_rows: int) -> tuple[Any, Any]:
        """Bounds of the criterion from those of its sum: themselves if it counts, else divided by the rows, rounded outward."""
        if self.counts and self.unit != 1.0:
            return lower * self.unit * (1.0 - FEW), upper * self.unit * (1.0 + FEW)
        if self.counts or self.price is not None:
            return lower, upper
        return (lower / n_rows * (1.0 - FEW), upper / n_rows * (1.0 + FEW))


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


def weigh_folds(criterion: Criterion, sizes: list[int]) -> tuple[Criterion, list[float]]:
    """The criterion whose value is the mean over folds of their means, and what each row of a fold counts.

    Numbers of rows are multiplied by whole numbers, so that their sums stay exact.
    """
    n_rows, whole = sum(sizes), lcm(*sizes)
    if criterion.counts and whole <= MOST_WHOLE:
        return replace(criterion, unit=n_rows / (len(sizes) * whole)), [float(whole // size) for size in sizes]
    return criterion, [n_rows / (len(sizes) * size) for size in sizes]


MOST_WHOLE = 10**9
"""Rows count at most this as whole numbers; their sums are then exact."""

INFORMATION: dict[str, Callable[[float], float]] = {"aic": lambda total: 2.0, "bic": log}
"""The price of a degree of freedom, given the total weight of the rows."""

NAMES = (*CRITERIA, *INFORMATION)
"""The names of all criteria."""


def find_criterion(name: str | None, problem: Problem) -> Criterion:
    """The criterion of a name, if it goes with the problem; None: the usual one of its loss."""
    if name is None:
        name = "log_loss" if problem.loss.probabilities else "error"
        name = name if problem.loss.task == "classification" else "squared_error"
    if name not in NAMES:
        raise ValueError(f"criterion must be one of {', '.join(map(repr, NAMES))}; got {name!r}.")
    if problem.loss.link != "identity":
        raise ValueError(
            f"stepwise selection has no criterion for losses with a log or logit link; got {problem.loss!r}. Use glru.Squared() or a classification loss."
        )
    return _information(name, problem) if name in INFORMATION else _sum_criterion(name, problem)


def _sum_criterion(name: str, problem: Problem) -> Criterion:
    loss, criterion = problem.loss, CRITERIA[name]
    # A regression on -1 and +1 has errors, too.
    signs = problem.in_memory and loss.task == "regression" and bool(np.all(np.abs(problem.targets) == 1.0))
    if name == "log_loss" and not loss.probabilities:
        other = "'error'" if loss.task == "classification" or signs else "'squared_error'"
        raise ValueError(
            f"the criterion 'log_loss' needs probabilities, which only the logistic loss gives; got {loss!r}. Use {other}."
        )
    if criterion.task != loss.task and not (name == "error" and signs):
        other = "'error'" if loss.task == "classification" else "'squared_error'"
        raise ValueError(f"the criterion {name!r} is for {criterion.task}; got {loss!r}, for {loss.task}. Use {other}.")
    return criterion


def _information(name: str, problem: Problem) -> Criterion:
    """AIC or BIC of a problem's loss, if that is a likelihood and its penalty, if any, one of squares."""
    loss = problem.loss
    if not isinstance(loss, Logistic | Squared):
        raise ValueError(
            f"the criterion {name!r} needs a likelihood, which the logistic and the squared loss have; got {loss!r}."
        )
    if not problem.in_memory:
        raise ValueError(f"the criterion {name!r} needs rows in memory. Give X_val and y_val, and another criterion.")
    if not problem.penalty.smooth:
        raise ValueError(
            f"the criterion {name!r} counts the degrees of freedom of models with a penalty of squares or none; "
            f"got {problem.penalty!r}."
        )
    total = float(problem.sample_weight.sum())
    if name == "bic" and total < 1.0:
        raise ValueError(f"the criterion 'bic' counts rows by their weights, at least 1 in total; got {total!r}.")
    base = CRITERIA["log_loss" if isinstance(loss, Logistic) else "squared_error"]
    return replace(base, name=name, price=INFORMATION[name](total), total=total)
