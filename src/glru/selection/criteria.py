"""What a step is judged by: intervals of a criterion from bounds of the validation scores."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import log, pi
from typing import Any, final

import numpy as np
from scipy.special import gammaln, xlogy

from glru.bounds import errors, half_deviances, log_losses, margins, residuals
from glru.linalg import FEW, TINY, UNIT, Array, gamma, get_arrays, namespace, to_host
from glru.losses import Binomial, Logistic, Loss, NegativeBinomial, Poisson, Squared, WithOffset
from glru.losses.base import where_true
from glru.problem import Problem


@final
@dataclass(frozen=True)
class Criterion:
    r"""What is to become small: a sum over validation rows, or such a sum over the training rows with a price on parameters."""

    name: str  # its name
    task: str  # the losses it goes with
    # ``terms(y, lower, upper)``: the least and the largest value of every row's term; ``y`` as a column.
    terms: Callable[[Any, Any, Any], tuple[Any, Any]]
    # Values that differ by less than this share of the present value count as equal; of the total weight of the rows, where parameters have a price.
    resolution: float
    counts: bool  # whether the sum is a number of rows, rather than to be divided by that number
    price: float | None = None  # what one degree of freedom adds; None: the criterion is the sum alone
    total: float = 0.0  # the total weight of the training rows, where degrees of freedom have a price
    # Where parameters have a price: bounds of what :math:`-2 \log L` is above twice the sum; None for the normal distribution at its best variance.
    constant: tuple[float, float] | None = None
    # ``slopes(y, scores)``: the derivatives of the terms in the scores, to a few units; None where terms are not convex, or have none.
    slopes: Callable[[Array, Array], Array] | None = None
    smoothness: float = np.inf  # at least the second derivatives of the terms in the scores
    # The sizes of folds whose accuracies are averaged as scikit-learn does, in float64: a value is then minus that average, rounding included. None: folds
    # are added.
    fold_sizes: tuple[int, ...] | None = None

    @property
    def least(self) -> float:
        """No value is below this."""
        if self.fold_sizes is not None:
            return -1.0
        return 0.0 if self.price is None else -np.inf if self.constant is None else min(self.constant[0], 0.0)

    def width(self, share: float, value: Any) -> Any:
        """How far values near ``value`` are apart if they differ by a share of what they are measured by."""
        if self.counts:
            return 0.0
        return share * (value if self.price is None else self.total)

    def is_known(self, share: float, lower: Any, upper: Any) -> Any:
        """Whether values between these are known up to a share of what they are measured by; nothing is where there is no upper end."""
        return np.isfinite(upper) & (upper - lower <= self.width(share, upper))

    def complete(self, lower: Any, upper: Any, dof: tuple[Any, Any]) -> tuple[Any, Any]:
        r"""Bounds of :math:`-2 \log L` plus the price of the degrees of freedom, from bounds of the sum and of these.

        :math:`L` is the likelihood of a distribution without a parameter besides the mean, or of the normal distribution at its best variance: with ``n`` the
        total weight and ``S`` the sum of squares :math:`n (\log(2 \pi S / n) + 1)`.
        """
        assert self.price is not None
        if self.constant is not None:
            ends = 2.0 * lower + self.constant[0], 2.0 * upper + self.constant[1]
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
        shift = 0.0 if self.constant is None else abs(self.constant[0])
        off_low = FEW * (np.abs(ends[0]) + self.price * dof[0] + shift)
        off_high = FEW * (np.abs(ends[1]) + self.price * dof[1] + shift)
        return np.where(np.isfinite(low), low - off_low, low), np.where(np.isfinite(high), high + off_high, high)

    def sum_bounds(self, y: Array, lower: Any, upper: Any, weights: Array | None = None) -> tuple[Array, Array]:
        """Bounds of the sum over the rows (the first axis), the rounding of the summation included."""
        arrays = get_arrays(lower)
        return self.add_terms(*self.terms(arrays.put(y), lower, upper), weights)

    def add_terms(self, least: Any, most: Any, weights: Array | None = None) -> tuple[Array, Array]:
        """Bounds of the sum from bounds of its terms, wherever these live; sums come to the host."""
        xp = namespace(least)
        # Numbers of rows are added without an error.
        error = 0.0 if self.counts and weights is None else gamma(least.shape[0] + 4)
        if weights is not None:
            factors = get_arrays(least).put(weights.reshape((-1,) + (1,) * (least.ndim - 1)))
            # Rows without a weight have no part in the sum, whatever is known of them.
            least, most = xp.where(factors > 0.0, factors * least, 0.0), xp.where(factors > 0.0, factors * most, 0.0)
        return lower_end(to_host(xp.sum(least, axis=0)) * (1.0 - error)), to_host(xp.sum(most, axis=0)) * (1.0 + error)

    def combine_folds(self, lower: Any, upper: Any) -> tuple[Any, Any]:
        """Bounds of the value from those of the sums of all folds, along the first axis."""
        if self.fold_sizes is not None:
            # Every operation is monotone after rounding, so that ends are mapped to ends.
            low, high = -self._average(np.stack([lower, upper], axis=-1)).T
            return low, high
        # Numbers of rows are added without an error.
        error = 0.0 if self.counts else gamma(len(lower) + 2)
        return lower_end(np.sum(lower, axis=0) * (1.0 - error)), np.sum(upper, axis=0) * (1.0 + error)

    def _average(self, errors: Any) -> Any:
        """The average accuracy of numbers of errors, with the roundings of ``cross_val_score(...).mean()``."""
        sizes = np.array(self.fold_sizes)
        # The order of the additions depends on the layout in memory: the folds of a candidate lie side by side.
        return np.ascontiguousarray((sizes - np.moveaxis(np.asarray(errors), 0, -1)) / sizes).mean(axis=-1)

    @property
    def noise(self) -> float:
        """Values that differ by no more than this may differ by rounding alone."""
        return 0.0 if self.fold_sizes is None else (len(self.fold_sizes) + 8) * UNIT

    def mean_bounds(self, lower: Any, upper: Any, n_rows: int) -> tuple[Any, Any]:
        """Bounds of the criterion from those of its sum: themselves if it counts, else divided by the rows, rounded outward."""
        if self.fold_sizes is not None:
            least, most = n_rows * (1.0 + lower), n_rows * (1.0 + upper)
            if len(set(self.fold_sizes)) == 1:
                # Numbers of errors.
                return np.rint(least), np.rint(most)
            return np.maximum(least - n_rows * self.noise, 0.0), most + n_rows * self.noise
        if self.counts or self.price is not None:
            return lower, upper
        return (lower / n_rows * (1.0 - FEW), upper / n_rows * (1.0 + FEW))


def lower_end(lower: Any) -> Any:
    """A lower end of a sum, which is a number also where the sum overflowed."""
    return np.minimum(lower, np.finfo(np.float64).max)


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


def _half_deviances(loss: Loss, y: Any, lower: Any, upper: Any) -> tuple[Any, Any]:
    # Targets without their offsets come with scores that contain them.
    plain = isinstance(loss, WithOffset) and y.dtype.names is None
    least, most = half_deviances(loss.loss if plain and isinstance(loss, WithOffset) else loss, y, lower, upper)
    return least * (1.0 - FEW), most * (1.0 + FEW) + TINY


def _deviances(loss: Loss, y: Any, lower: Any, upper: Any) -> tuple[Any, Any]:
    least, most = _half_deviances(loss, y, lower, upper)
    return 2.0 * least, 2.0 * most


def _residual_slopes(y: Array, scores: Array) -> Array:
    return 2.0 * (scores - y)


CRITERIA = {
    "error": Criterion("error", "classification", _errors, 0.0, True),
    "log_loss": Criterion(
        "log_loss", "classification", _log_losses, 1e-9, False, slopes=Logistic().gradient, smoothness=0.25
    ),
    "squared_error": Criterion(
        "squared_error", "regression", _squared_errors, 1e-9, False, slopes=_residual_slopes, smoothness=2.0
    ),
}


INFORMATION: dict[str, Callable[[float], float]] = {"aic": lambda total: 2.0, "bic": log}
"""The price of a degree of freedom, given the total weight of the rows."""


def find_criterion(name: str | None, problem: Problem) -> Criterion:
    """The criterion of a name, if it goes with the problem; None: the usual one of its loss."""
    if name is None:
        name = "log_loss" if problem.loss.probabilities else "error"
        name = name if problem.loss.task == "classification" else "squared_error"
        name = name if problem.loss.link == "identity" else "deviance"
    if name in INFORMATION:
        return _information(name, problem)
    if (name == "deviance") != (problem.loss.link != "identity"):
        raise ValueError(
            "losses with a log or logit link are judged by 'deviance', 'aic' or 'bic', and other losses never by 'deviance'; "
            f"got {name!r} with {problem.loss!r}."
        )
    if name == "deviance":
        return Criterion(name, "regression", partial(_deviances, problem.loss), 1e-9, False)
    return _sum_criterion(name, problem)


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
    loss = problem.loss.loss if isinstance(problem.loss, WithOffset) else problem.loss
    if not isinstance(loss, Logistic | Squared | Poisson | NegativeBinomial | Binomial):
        raise ValueError(
            f"the criterion {name!r} needs a likelihood without a dispersion, which Logistic(), Squared(), Poisson(), NegativeBinomial() and Binomial() have; "
            f"got {loss!r}. Use 'deviance' with cv."
            if loss.link != "identity"
            else f"the criterion {name!r} needs a likelihood, which the logistic and the "
            f"squared loss have; got {loss!r}. Use {'log_loss' if loss.several else 'error'!r} with cv."
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
    price = INFORMATION[name](total)
    if loss.link != "identity":
        terms = partial(_half_deviances, problem.loss)
        return Criterion(name, "regression", terms, 1e-9, False, price, total, _bound_saturated(problem, loss))
    if isinstance(loss, Logistic):
        return replace(CRITERIA["log_loss"], name=name, price=price, total=total, constant=(0.0, 0.0))
    return replace(CRITERIA["squared_error"], name=name, price=price, total=total)


def _bound_saturated(problem: Problem, loss: Loss) -> tuple[float, float]:
    r"""Bounds of :math:`-2 \log L` of the model whose means are the targets, weights counted as repeated rows or as trials."""
    used = problem.sample_weight > 0.0
    y, weight = problem.targets[used], problem.sample_weight[used]
    if isinstance(loss, Binomial):
        # Of a share the weight is the number of trials, n! / (k! (n - k)!) of which have k successes.
        parts = [_excess(weight), -_excess(weight * y), -_excess(weight * (1.0 - y))]
    elif isinstance(loss, NegativeBinomial):
        both = y + loss.theta
        parts = [
            _excess(both),
            -_excess(y),
            np.zeros_like(y) - _excess(np.array(loss.theta)),
            -np.log(both / loss.theta),
        ]
        parts = [weight * part for part in parts]
    else:
        parts = [-weight * _excess(y)]
    value = -2.0 * float(np.sum(parts))
    # Each part is off by some units of 100 log(100), of itself and of its weight; a sum by its own.
    off = 2.0 * (64.0 * FEW + gamma(4 * y.size + 8)) * float(np.sum(np.abs(parts)) + 2000.0 * np.sum(weight + 1.0))
    return value - off, value + off


def _excess(x: Array) -> Array:
    r"""``log x! - x log x + x``, which is :math:`\tfrac12 \log(2 \pi x) + \tfrac{1}{12 x} - \tfrac{1}{360 x^3}` to 1e-13 from 100 on."""
    large = np.maximum(x, 100.0)
    stirling = 0.5 * np.log(2.0 * pi * large) + (1.0 - 1.0 / (30.0 * large**2)) / (12.0 * large)
    return np.where(x >= 100.0, stirling, gammaln(x + 1.0) - xlogy(x, x) + x)
