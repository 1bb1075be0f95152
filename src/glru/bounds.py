"""Scores that are known up to bounds, and what the bounds prove: labels, errors, ties and metrics.

Every rule about the sign of a score is here and nowhere else:

* The label of a score is its sign. It is *decided* where the bounds leave one sign, or where the score is known exactly.
* A score of exactly zero is a *tie*, on neither side: its sign is 0, and it is an error for either target. Where a class
  has to be named, as by ``predict``, it is the first one, as in scikit-learn.
* With one score per class the largest wins; a class is right only where it is above every other one.

The functions take arrays of lower and upper ends; :class:`ScoreBounds` is a pair of such arrays that knows them all.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from glru.linalg import TINY, UNIT, Array, gamma, namespace, outward
from glru.losses import Loss
from glru.losses.logistic import softplus

Bounds = tuple[Array, Array]
Interval = tuple[float, float]
Decisions = NDArray[np.bool_]


def unbounded(size: int) -> Bounds:
    """Bounds of scores that nothing is known of."""
    return np.full(size, -np.inf), np.full(size, np.inf)


def widen(center: Any, half: Any) -> Bounds:
    """``center -/+ half``, rounded outward; a half-width that is not a number proves nothing."""
    xp = namespace(half)
    half = xp.where(xp.isnan(half), np.inf, half)
    with np.errstate(invalid="ignore"):
        lower, upper = outward(center - half, -np.inf), outward(center + half, np.inf)
    return xp.where(xp.isnan(lower), -np.inf, lower), xp.where(xp.isnan(upper), np.inf, upper)


def intersect(first: Bounds, second: Bounds) -> Bounds:
    """The bounds that two valid pairs of bounds imply together."""
    xp = namespace(first[0])
    return xp.maximum(first[0], second[0]), xp.minimum(first[1], second[1])


def concatenate(parts: Sequence[Bounds]) -> "ScoreBounds":
    """The bounds of several sets of rows, one after the other."""
    return ScoreBounds(np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]))


def is_decided(lower: Any, upper: Any, width: float | None = None) -> Decisions:
    """Whether bounds are as tight as was asked for: to a width, or, where it is None, to a label."""
    if width is not None:
        return upper - lower <= width
    if lower.ndim < 2:
        return (lower > 0.0) | (upper < 0.0) | (lower == upper)
    lead, _ = class_margins(lower.argmax(axis=1), lower, upper)
    return (lead > 0.0) | (lower == upper).all(axis=1)


def signs(lower: Array, upper: Array) -> NDArray[np.int8]:
    """+1 or -1 where that sign is proven, 0 for ties and where the sign is open."""
    return (lower > 0.0).astype(np.int8) - (upper < 0.0)


def predicted(scores: Array) -> NDArray[np.intp]:
    """The place of the class that ``predict`` names for scores, one score or one per class; a tie goes to the first."""
    return (scores > 0.0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)


def margins(y: Any, lower: Any, upper: Any) -> tuple[Any, Any]:
    """The least and the largest margin ``y z`` of scores, for targets -1 and +1."""
    xp, positive = namespace(lower), y > 0.0
    return xp.where(positive, lower, -upper), xp.where(positive, upper, -lower)


def class_margins(places: NDArray[np.intp], lower: Array, upper: Array) -> Bounds:
    """By how much one class leads all others at least and at most, for one score per class."""
    rows, others = np.arange(places.size), np.arange(lower.shape[1]) != places[:, None]
    most, least = (np.where(others, end, -np.inf).max(axis=1) for end in (upper, lower))
    return lower[rows, places] - most, upper[rows, places] - least


def errors(least: Any, most: Any) -> tuple[Any, Any]:
    """Where a label is certainly wrong, and where it may be, from bounds of its margin: right is a margin above zero."""
    return most <= 0.0, ~(least > 0.0)


def log_losses(y: Any, lower: Any, upper: Any) -> tuple[Any, Any]:
    """The least and the largest log-loss of every row, as they are computed."""
    least, most = margins(y, lower, upper)
    return softplus(-most), softplus(-least)


def residuals(y: Any, lower: Any, upper: Any) -> tuple[Any, Any]:
    """The least and the largest absolute residual of every row, as they are computed."""
    xp = namespace(lower)
    ends = xp.abs(y - lower), xp.abs(y - upper)
    inside = (lower <= y) & (y <= upper)
    return xp.where(inside, 0.0, xp.minimum(*ends)), xp.maximum(*ends)


@final
class ScoreBounds(NamedTuple):
    """Lower and upper ends of scores.

    A pair of arrays: ``lower, upper = bounds`` unpacks it.

    Attributes
    ----------
    lower, upper : array of shape (n_rows,) or (n_rows, n_classes)
        The ends, possibly infinite. With one score per class, targets are places of classes; else they are -1 and +1.
    """

    lower: Array
    upper: Array

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.lower.shape[0])

    @property
    def bounded(self) -> Decisions:
        """Where both ends are finite."""
        return np.isfinite(self.lower) & np.isfinite(self.upper)

    @property
    def middle(self) -> Array:
        """The middle of every interval, NaN where it has no end."""
        with np.errstate(invalid="ignore"):
            return np.where(self.bounded, 0.5 * (self.lower + self.upper), np.nan)

    @property
    def width(self) -> Array:
        """The width of every interval."""
        return self.upper - self.lower

    @property
    def signs(self) -> NDArray[np.int8]:
        """+1 or -1 where that sign is proven, 0 for ties and where the sign is open."""
        return signs(self.lower, self.upper)

    @property
    def decided(self) -> Decisions:
        """Where the label is known."""
        return is_decided(self.lower, self.upper)

    @property
    def ties(self) -> Decisions:
        """Where the score is known to be exactly zero."""
        return (self.lower == 0.0) & (self.upper == 0.0)

    def enough(self, width: float | None) -> Decisions:
        """Where intervals are at most ``width`` wide, or the label is known where no width is given."""
        return is_decided(self.lower, self.upper, width)

    def intersect(self, other: Bounds) -> "ScoreBounds":
        """What both prove together."""
        return ScoreBounds(*intersect(self, other))

    def take(self, rows: Any) -> "ScoreBounds":
        """The bounds of some rows."""
        return ScoreBounds(self.lower[rows], self.upper[rows])

    def labels(self, classes: NDArray[Any]) -> NDArray[Any]:
        """The classes that ``predict`` names; a masked array where some labels are open, masked there."""
        # A decided label is that of the lower ends: they are above zero or not, or the largest beats all upper ends.
        found, decided = classes[predicted(self.lower)], self.decided
        return found if decided.all() else np.ma.masked_array(found, mask=~decided)

    def margins(self, targets: NDArray[Any]) -> Bounds:
        """The least and the largest margin of every row: ``y z``, or by how much the row's class leads all others."""
        rule = margins if self.lower.ndim == 1 else class_margins
        return rule(targets, self.lower, self.upper)

    def verdicts(self, targets: NDArray[Any]) -> NDArray[np.int8]:
        """1 where the label is proven right, -1 where it is proven wrong, 0 where that is open."""
        wrong, doubtful = errors(*self.margins(targets))
        return np.where(doubtful, np.where(wrong, -1, 0), 1).astype(np.int8)

    def errors(self, targets: NDArray[Any]) -> tuple[int, int]:
        """The least and the largest number of labels that are wrong."""
        wrong, doubtful = errors(*self.margins(targets))
        return int(np.count_nonzero(wrong)), int(np.count_nonzero(doubtful))

    def changes(self, scores: Array, within: float | None = None) -> tuple[Decisions, Decisions]:
        """Where the label that scores stand for is proven to change, and where it is proven to stay.

        ``within``: how far a number may move and still count as the same, where there are no labels.
        """
        if within is not None:
            moves = (scores < self.lower - within) | (scores > self.upper + within)
            return moves, np.maximum(self.upper - scores, scores - self.lower) <= within
        same, decided = predicted(self.lower) == predicted(scores), self.decided
        return decided & ~same, decided & same

    def metric(self, name: str, loss: Loss, y: NDArray[Any], labelled: bool | None = None) -> Interval:
        """A certified interval of a metric, in which every row counts once.

        Accuracy and ROC AUC are quotients of integers: each end is the correctly rounded quotient. The ends of the other
        metrics are rounded outward; none lies outside the range of its metric.

        Parameters
        ----------
        name : {"log_loss", "accuracy", "brier", "roc_auc", "squared_error", "absolute_error", "r2"}
            The metric; log-loss and Brier score are for losses whose scores are log-odds.
        loss : Loss
            The loss of the model.
        y : array of shape (n_rows,)
            Targets: -1 and +1, places of classes where there is one score per class, or numbers.
        labelled : bool, default=None
            Whether y stands for labels; if not given, as the loss takes them.
        """
        labelled = loss.task == "classification" if labelled is None else labelled
        metrics = CLASSIFICATION if labelled else REGRESSION
        if self.lower.ndim == 2:
            metrics = {"accuracy": _accuracy_of_classes}
        if name not in metrics:
            raise ValueError(f"metric must be one of {', '.join(metrics)} for this loss; got {name!r}.")
        if name in ("log_loss", "brier"):
            require_probabilities(name, loss)
        low, high = metrics[name](y, self.lower, self.upper)
        return float(low), float(high)


def require_probabilities(name: str, loss: Loss) -> None:
    """Refuse a metric of probabilities for a loss whose scores are not log-odds."""
    if not loss.probabilities:
        raise ValueError(
            f"{name!r} needs probabilities, which only the logistic loss gives; got {loss!r}. Count errors instead, or "
            "use glru.Logistic()."
        )


def exact_count(low: int, high: int, remedy: str = "") -> int:
    """The number of errors where both ends agree; a ``ValueError`` where they do not."""
    if low != high:
        raise ValueError(
            f"{high - low} held-out labels are undetermined: the number of errors is between {low} and {high}. "
            f"Use errors_lower and errors_upper{remedy}."
        )
    return low


def _means(least: Array, most: Array) -> Interval:
    """Bounds of a mean of non-negative terms with a relative error of a few units each, rounded outward."""
    unit = gamma(least.size + 32)
    # Terms that underflow are below TINY.
    return float(np.mean(least)) * (1.0 - unit), float(np.mean(most)) * (1.0 + unit) + TINY


def _log_loss(y: Array, lower: Array, upper: Array) -> Interval:
    return _means(*log_losses(y, lower, upper))


def _accuracy(y: Array, lower: Array, upper: Array) -> Interval:
    wrong, doubtful = errors(*margins(y, lower, upper))
    return np.count_nonzero(~doubtful) / y.size, np.count_nonzero(~wrong) / y.size


def _accuracy_of_classes(y: NDArray[Any], lower: Array, upper: Array) -> Interval:
    wrong, doubtful = errors(*class_margins(y, lower, upper))
    return np.count_nonzero(~doubtful) / y.size, np.count_nonzero(~wrong) / y.size


def _brier(y: Array, lower: Array, upper: Array) -> Interval:
    least, most = margins(y, lower, upper)
    low, high = _means(expit(-most) ** 2, expit(-least) ** 2)
    return low, min(high, 1.0)


def _roc_auc(y: Array, lower: Array, upper: Array) -> Interval:
    if not (np.any(y > 0) and np.any(y < 0)):
        raise ValueError(
            f"roc_auc needs held-out rows of both classes; all {y.size} are of one. Use 'accuracy', or other rows."
        )
    return _auc(lower[y > 0], upper[y < 0]), _auc(upper[y > 0], lower[y < 0])


def _auc(positive: Array, negative: Array) -> float:
    """The share of pairs in the right order, ties counted as half: a quotient of integers."""
    ordered = np.sort(negative)
    below = int(np.searchsorted(ordered, positive, side="left").sum())
    not_above = int(np.searchsorted(ordered, positive, side="right").sum())
    return (below + not_above) / (2 * positive.size * negative.size)


def _mse(y: Array, lower: Array, upper: Array) -> Interval:
    near, far = residuals(y, lower, upper)
    return _means(near**2, far**2)


def _mae(y: Array, lower: Array, upper: Array) -> Interval:
    return _means(*residuals(y, lower, upper))


def _r2(y: Array, lower: Array, upper: Array) -> Interval:
    if np.all(y == y[0]):
        raise ValueError(
            f"r2 needs targets that differ; all are {float(y[0])!r}. Use 'squared_error' or 'absolute_error'."
        )
    # Around a mean that is off by ``off`` the squares are larger by at most off^2, and never smaller.
    unit = gamma(2 * y.size + 8)
    most = float(np.mean((y - y.mean()) ** 2)) * (1.0 + unit)
    off = unit * float(np.mean(np.abs(y)))
    least = most * (1.0 - 2.0 * unit) - off**2
    low, high = _mse(y, lower, upper)
    if not least > 0.0:
        return -np.inf, 1.0
    worst, best = 1.0 - high / least, 1.0 - low / most
    # The quotient and the difference are rounded.
    return worst - 4.0 * UNIT * (1.0 + abs(worst)), min(best + 4.0 * UNIT * (1.0 + abs(best)), 1.0)


Metric = Callable[[Array, Array, Array], Interval]
CLASSIFICATION: dict[str, Metric] = {
    "log_loss": _log_loss,
    "accuracy": _accuracy,
    "brier": _brier,
    "roc_auc": _roc_auc,
}
REGRESSION: dict[str, Metric] = {"squared_error": _mse, "absolute_error": _mae, "r2": _r2}
