"""Scores that are known up to bounds, and what the bounds prove: labels, errors, ties and metrics.

Every rule about the sign of a score is here and nowhere else:

* The label of a score is its sign. It is *decided* where the bounds leave one sign, or where the score is known exactly.
* A score of exactly zero is a *tie*, on neither side: its sign is 0, and it is an error for either target. Where a class
  has to be named, as by ``predict``, it is the first one, as in scikit-learn.
* With one score per class the largest wins; a class is right only where it is above every other one. One-vs-rest models prove that by the ends of
  all scores. A model of all classes at once bounds differences of scores more narrowly than the scores themselves: its bounds name the
  ``winners`` that the differences prove, from *queries*, the scores of a row and by how much one class, the reference, leads each of the others.

The functions take arrays of lower and upper ends; :class:`ScoreBounds` is a pair of such arrays that knows them all.
"""

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from glru.linalg import FEW, SMALLEST, TINY, UNIT, Array, gamma, namespace, outward
from glru.losses import CUT_OFF, Loss, WithOffset
from glru.losses.logistic import softplus

LARGEST = float(np.finfo(np.float64).max)
"""The largest number: what overflows is above it."""

Bounds = tuple[Array, Array]
Interval = tuple[float, float]
Decisions = NDArray[np.bool_]


def unbounded(size: int | tuple[int, ...]) -> Bounds:
    """Bounds of scores that nothing is known of."""
    return np.full(size, -np.inf), np.full(size, np.inf)


def widen(center: Any, half: Any) -> Bounds:
    """``center -/+ half``, rounded outward; a half-width that is not a number proves nothing."""
    xp = namespace(half)
    with np.errstate(invalid="ignore", over="ignore"):
        lower, upper = outward(center - half, -np.inf), outward(center + half, np.inf)
        if xp is np and np.isfinite(np.sum(lower) + np.sum(upper)):
            return lower, upper
        half = xp.where(xp.isnan(half), np.inf, half)
        lower, upper = outward(center - half, -np.inf), outward(center + half, np.inf)
    return xp.where(xp.isnan(lower), -np.inf, lower), xp.where(xp.isnan(upper), np.inf, upper)


def intersect(first: Bounds, second: Bounds) -> Bounds:
    """The bounds that two valid pairs of bounds imply together."""
    xp = namespace(first[0])
    return xp.maximum(first[0], second[0]), xp.minimum(first[1], second[1])


def concatenate(parts: Sequence[Bounds]) -> "ScoreBounds":
    """The bounds of several sets of rows, one after the other."""
    winners = [part.winners for part in parts if isinstance(part, ScoreBounds) and part.winners is not None]
    return ScoreBounds(
        np.concatenate([part[0] for part in parts]),
        np.concatenate([part[1] for part in parts]),
        np.concatenate(winners) if len(winners) == len(parts) else None,
    )


def convert_queries(lower: Array, upper: Array) -> "ScoreBounds":
    """The bounds of scores, one per class, that bounds of queries hold, and the winners that these prove.

    A line of queries is the ``K`` scores of a row and ``K`` differences: that of its reference and itself is exactly zero, at both ends.
    """
    n_scores = lower.shape[1] // 2
    own = (lower[:, n_scores:] == 0.0) & (upper[:, n_scores:] == 0.0)
    leads = ((lower[:, n_scores:] > 0.0) | own).all(axis=1) & (own.sum(axis=1) == 1)
    winners = np.where(leads, own.argmax(axis=1), -1)
    return ScoreBounds(lower[:, :n_scores], upper[:, :n_scores], winners)


def is_decided(lower: Any, upper: Any, width: float | None = None) -> Decisions:
    """Whether bounds are as tight as was asked for: to a width, or, where it is None, to a label."""
    if width is not None:
        narrow = upper - lower <= width
        return narrow if lower.ndim < 2 else narrow.all(axis=1)
    if lower.ndim < 2:
        return (lower > 0.0) | (upper < 0.0) | (lower == upper)
    lead, _ = class_margins(lower.argmax(axis=1), lower, upper)
    return (lead > 0.0) | (lower == upper).all(axis=1)


def shift(bounds: "ScoreBounds", offset: Array) -> "ScoreBounds":
    """Bounds of scores to which an offset is added, rounded outward."""
    return ScoreBounds(outward(bounds.lower + offset, -np.inf), outward(bounds.upper + offset, np.inf))


def widths_of_rows(lower: Array, upper: Array) -> Array:
    """The width of every row's interval; with queries, the largest of its scores'."""
    widths = upper - lower
    return widths if widths.ndim == 1 else widths[:, : widths.shape[1] // 2].max(axis=1)


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


def half_deviances(loss: Loss, y: Any, lower: Array, upper: Array) -> Bounds:
    """Bounds of losses with a log or logit link, from bounds of scores (without the offset that a target brings); to a few units of themselves."""
    offset: Any = 0.0
    if isinstance(loss, WithOffset):
        loss, y, offset = loss.loss, y["y"], y["offset"]
    with np.errstate(divide="ignore"):
        best = np.log(y) if loss.link == "log" else logit(y)
    size = np.abs(np.where(np.isfinite(best), best, 0.0)) + np.abs(offset)
    outer = []
    for side, end in ((-1.0, lower), (1.0, upper)):
        z = np.clip(end, -1e150, 1e150)
        # A value is that of a score which is off by some units of the numbers involved, and off by a few units itself.
        outer.append(z + offset + side * (FEW * (2.0 + np.abs(z) + size) + loss.score_noise))
    inside = (outer[0] <= best) & (best <= outer[1])
    values = [loss.value(y, z) for z in outer]
    known = np.isfinite(lower) & np.isfinite(upper)
    most = np.maximum(*values)
    return np.where(inside, 0.0, np.minimum(*values)), np.where(known & (most < CUT_OFF), most, np.inf)


def errors(least: Any, most: Any) -> tuple[Any, Any]:
    """Where a label is certainly wrong, and where it may be, from bounds of its margin: right is a margin above zero."""
    return most <= 0.0, ~(least > 0.0)


def log_losses(y: Any, lower: Any, upper: Any) -> tuple[Any, Any]:
    """The least and the largest log-loss of every row, as they are computed."""
    if lower is upper:
        loss = softplus(-y * lower)
        return loss, loss
    least, most = margins(y, lower, upper)
    return softplus(-most), softplus(-least)


def residuals(y: Any, lower: Any, upper: Any) -> tuple[Any, Any]:
    """The least and the largest absolute residual of every row, as they are computed."""
    xp = namespace(lower)
    ends = xp.abs(y - lower), xp.abs(y - upper)
    inside = (lower <= y) & (y <= upper)
    return xp.where(inside, 0.0, xp.minimum(*ends)), xp.maximum(*ends)


@final
class ScoreBounds(tuple[Array, Array]):
    """Lower and upper ends of scores.

    A pair of arrays: ``lower, upper = bounds`` unpacks it.

    Attributes
    ----------
    lower, upper : array of shape (n_rows,) or (n_rows, n_classes)
        The ends, possibly infinite. With one score per class, targets are places of classes; else they are -1 and +1.
    winners : array of int or None
        The place of the class that is proven to be above all others by bounds of differences, -1 where there is none; None where the ends are all that is
        known.
    """

    winners: NDArray[np.intp] | None

    def __new__(cls, lower: Array, upper: Array, winners: NDArray[np.intp] | None = None) -> "ScoreBounds":
        new = super().__new__(cls, (lower, upper))
        new.winners = winners
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        return ScoreBounds, (self.lower, self.upper, self.winners)

    @property
    def lower(self) -> Array:
        """The lower ends."""
        return self[0]

    @property
    def upper(self) -> Array:
        """The upper ends."""
        return self[1]

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
        return (self.lower > 0.0).astype(np.int8) - (self.upper < 0.0)

    @property
    def decided(self) -> Decisions:
        """Where the label is known."""
        known = is_decided(self.lower, self.upper)
        return known if self.winners is None else known | (self.winners >= 0)

    @property
    def ties(self) -> Decisions:
        """Where the score is known to be exactly zero."""
        return (self.lower == 0.0) & (self.upper == 0.0)

    def enough(self, width: float | None) -> Decisions:
        """Where intervals are at most ``width`` wide, or the label is known where no width is given."""
        return self.decided if width is None else is_decided(self.lower, self.upper, width)

    def intersect(self, other: Bounds) -> "ScoreBounds":
        """What both prove together."""
        known = [part.winners for part in (self, other) if isinstance(part, ScoreBounds) and part.winners is not None]
        # Two proofs name the same winner, or one of them none.
        return ScoreBounds(*intersect(self, other), np.maximum.reduce(known) if known else None)

    def take(self, rows: Any) -> "ScoreBounds":
        """The bounds of some rows."""
        return ScoreBounds(self.lower[rows], self.upper[rows], None if self.winners is None else self.winners[rows])

    def put(self, rows: Any, other: "ScoreBounds") -> "ScoreBounds":
        """These bounds with those of some rows replaced."""
        lower, upper, winners = self.lower.copy(), self.upper.copy(), self.winners
        lower[rows], upper[rows] = other
        if other.winners is not None:
            winners = np.full(self.n_rows, -1, dtype=np.intp) if winners is None else winners.copy()
            winners[rows] = other.winners
        return ScoreBounds(lower, upper, winners)

    @property
    def predicted(self) -> NDArray[np.intp]:
        """The places of the classes that ``predict`` names, where the label is decided."""
        # A decided label is that of the lower ends: they are above zero or not, or the largest beats all upper ends.
        found = predicted(self.lower)
        return found if self.winners is None else np.where(self.winners >= 0, self.winners, found)

    def labels(self, classes: NDArray[Any]) -> NDArray[Any]:
        """The classes that ``predict`` names; a masked array where some labels are open, masked there."""
        found, decided = classes[self.predicted], self.decided
        return found if decided.all() else np.ma.masked_array(found, mask=~decided)

    def columns(self, classes: NDArray[Any] | None) -> dict[str, Array]:
        """The ends as columns of a table; one pair per class where there is one score per class."""
        if self.lower.ndim == 1:
            return {"score_lower": self.lower, "score_upper": self.upper}
        assert classes is not None
        names = [f"score_{end}_{label}" for label in classes.tolist() for end in ("lower", "upper")]
        return dict(zip(names, np.stack(self, axis=-1).reshape(self.n_rows, -1).T, strict=True))

    def margins(self, targets: NDArray[Any]) -> Bounds:
        """The least and the largest margin of every row: ``y z``, or by how much the row's class leads all others."""
        rule = margins if self.lower.ndim == 1 else class_margins
        return rule(targets, self.lower, self.upper)

    def verdicts(self, targets: NDArray[Any]) -> NDArray[np.int8]:
        """1 where the label is proven right, -1 where it is proven wrong, 0 where that is open."""
        wrong, doubtful = self.find_errors(targets)
        return np.where(doubtful, np.where(wrong, -1, 0), 1).astype(np.int8)

    def errors(self, targets: NDArray[Any]) -> tuple[int, int]:
        """The least and the largest number of labels that are wrong."""
        wrong, doubtful = self.find_errors(targets)
        return int(np.count_nonzero(wrong)), int(np.count_nonzero(doubtful))

    def find_errors(self, targets: NDArray[Any]) -> tuple[Decisions, Decisions]:
        """Where a label is certainly wrong, and where it may be."""
        wrong, doubtful = errors(*self.margins(targets))
        if self.winners is None:
            return wrong, doubtful
        known = self.winners >= 0
        return np.where(known, self.winners != targets, wrong), np.where(known, self.winners != targets, doubtful)

    def changes(self, scores: Array, within: float | None = None) -> tuple[Decisions, Decisions]:
        """Where the label that scores stand for is proven to change, and where it is proven to stay.

        ``within``: how far a number may move and still count as the same, where there are no labels.
        """
        if within is not None:
            moves = (scores < self.lower - within) | (scores > self.upper + within)
            return moves, _is_within(self.upper, scores, within) & _is_within(scores, self.lower, within)
        same, decided = self.predicted == predicted(scores), self.decided
        return decided & ~same, decided & same

    @np.errstate(over="ignore")  # ends that overflow are infinite
    def metric(self, name: str, loss: Loss, y: NDArray[Any], labelled: bool | None = None) -> Interval:
        """A certified interval of a metric, in which every row counts once.

        Accuracy and ROC AUC are quotients of integers: each end is the correctly rounded quotient. The ends of the other
        metrics are rounded outward; none lies outside the range of its metric.

        Parameters
        ----------
        name : {"deviance", "log_loss", "accuracy", "brier", "roc_auc", "squared_error", "absolute_error", "r2", "balanced_accuracy", "macro_f1"}
            The metric; log-loss and Brier score are for losses whose scores are log-odds, "deviance" is the mean unit deviance of losses with a log or
            logit link, whose other metrics are those of the means. With one score per class the Brier score sums over the classes, and
            "roc_auc" is the mean over the classes, each against the rest.
        loss : Loss
            The loss of the model.
        y : array of shape (n_rows,)
            Targets: -1 and +1, places of classes where there is one score per class, or numbers.
        labelled : bool, default=None
            Whether y stands for labels; if not given, as the loss takes them.
        """
        labelled = loss.task == "classification" if labelled is None else labelled
        metrics = CLASSIFICATION if labelled else REGRESSION
        if self.lower.ndim == 2 or (labelled and name in CLASSES):
            return self._class_metric(name, loss, y)
        if loss.link != "identity" and name == "deviance":
            return self._deviance(loss, y)
        if name not in metrics:
            known = [*metrics, *(CLASSES if labelled else ())]
            raise ValueError(f"metric must be one of {', '.join(known)} for this loss; got {name!r}.")
        if name in ("log_loss", "brier"):
            require_probabilities(name, loss)
        low, high = metrics[name](y, *(self if loss.link == "identity" else self.means(loss)))
        return float(low), float(high)

    def means(self, loss: Loss) -> Bounds:
        """Bounds of the means that a loss predicts at the scores."""
        mean = np.exp if loss.link == "log" else expit
        with np.errstate(over="ignore"):
            return mean(self.lower) * (1.0 - FEW), mean(self.upper) * (1.0 + FEW)

    def _deviance(self, loss: Loss, y: Array) -> Interval:
        """The mean unit deviance: twice the loss, which is convex in the score and zero where the mean is the target."""
        least, most = half_deviances(loss.loss if isinstance(loss, WithOffset) else loss, y, self.lower, self.upper)
        slack = gamma(y.size + 8) + FEW
        return 2.0 * float(least.mean()) * (1.0 - slack), 2.0 * float(most.mean()) * (1.0 + slack) + TINY

    def _class_metric(self, name: str, loss: Loss, y: NDArray[np.intp]) -> Interval:
        known = CLASSES | (CLASS_PROBABILITIES if loss.several else {})
        if name not in known:
            raise ValueError(f"metric must be one of {', '.join(known)} for this loss; got {name!r}.")
        low, high = known[name](self, y)
        return float(low), float(high)

    def confusion(self, targets: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The least and the largest number of rows of each class (lines) that get each label (columns)."""
        places, decided = self.places(targets), self.decided
        n_classes = 2 if self.lower.ndim == 1 else self.lower.shape[1]
        lower = np.zeros((n_classes, n_classes), dtype=np.int64)
        np.add.at(lower, (places[decided], self.predicted[decided]), 1)
        upper = lower.copy()
        # An open row may get every label that no other class is proven to beat; of one score, both.
        for row in np.flatnonzero(~decided):
            upper[places[row], self.upper[row] >= self.lower[row].max()] += 1
        return lower, upper

    def places(self, targets: NDArray[Any]) -> NDArray[np.intp]:
        """The places of the classes that targets stand for, -1 and +1 where there is one score."""
        return (targets > 0.0).astype(np.intp) if self.lower.ndim == 1 else targets

    def probabilities(self) -> Bounds:
        """Bounds of the probability of every class, one column each, from log-odds or from the scores of one model of all classes."""
        if self.lower.ndim == 1:
            # Of the first class and of the second; the smallest ones underflow.
            ends = ScoreBounds(np.column_stack([-self.upper, self.lower]), np.column_stack([-self.lower, self.upper]))
            return expit(ends.lower) * (1.0 - FEW), np.minimum(expit(ends.upper) * (1.0 + FEW) + TINY, 1.0)
        n_scores = self.lower.shape[1]
        lower, upper = np.empty_like(self.lower), np.empty_like(self.lower)
        for k in range(n_scores):
            others = np.arange(n_scores) != k
            with np.errstate(over="ignore", invalid="ignore"):
                most = np.exp(self.upper[:, others] - self.lower[:, k, None]).sum(axis=1)
                least = np.exp(self.lower[:, others] - self.upper[:, k, None]).sum(axis=1)
            lower[:, k], upper[:, k] = 1.0 / (1.0 + most), 1.0 / (1.0 + least)
        # The differences are rounded by a share of the numbers, at most 1600 where an exponential does not underflow.
        unit = gamma(n_scores + 1600)
        lower, upper = lower * (1.0 - unit), np.minimum(upper * (1.0 + unit) + TINY, 1.0)
        return np.where(np.isnan(lower), 0.0, lower), np.where(np.isnan(upper), 1.0, upper)


def _is_within(high: Array, low: Array, distance: float) -> Decisions:
    """Where ``high - low`` is at most a distance, by the exact difference: a rounded one may hide that it is more."""
    with np.errstate(invalid="ignore"):
        rounded = high - low
        # The rounding error of a difference is itself a number of float64 (Knuth).
        back = rounded - high
        missing = (high - (rounded - back)) - (low + back)
    return (rounded < distance) | ((rounded == distance) & ~(missing > 0.0))


def require_probabilities(name: str, loss: Loss, one_vs_rest: bool = False) -> None:
    """Refuse probabilities of a loss whose scores are not log-odds, or of one such model per class."""
    if not loss.probabilities or one_vs_rest:
        raise ValueError(
            f"{name!r} needs probabilities, which only the logistic and the multinomial loss give; got "
            f"{'one-vs-rest models' if one_vs_rest else repr(loss)}. Count errors instead, or use glru.Logistic() or glru.Multinomial()."
        )


def require_exact_count(low: int, high: int, remedy: str = "") -> int:
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
    # Terms that underflow are below TINY, and off by less than the smallest number. Lower ends do not overflow.
    low = float(np.mean(np.minimum(least, 0.5 * LARGEST / least.size)))
    return max(low * (1.0 - unit) - 4.0 * SMALLEST, 0.0), float(np.mean(most)) * (1.0 + unit) + TINY


def _accuracy(bounds: ScoreBounds, y: NDArray[np.intp]) -> Interval:
    low, high = bounds.errors(y)
    return (y.size - high) / y.size, (y.size - low) / y.size


def _balanced_accuracy(bounds: ScoreBounds, y: NDArray[np.intp]) -> Interval:
    """The mean over the classes of the share of their rows that is right."""
    parts = [bounds.verdicts(y)[y == k] for k in np.unique(y)]
    return _bound_mean([float(np.mean(part > 0)) for part in parts], [float(np.mean(part >= 0)) for part in parts])


def _macro_f1(bounds: ScoreBounds, y: NDArray[np.intp]) -> Interval:
    """The mean over the classes of ``2 TP / (2 TP + FP + FN)``; a class that has neither rows nor labels does not count, as in scikit-learn."""
    (least, most), places = bounds.confusion(y), bounds.places(y)
    low, high = [], []
    for k in np.unique(places):
        others = np.arange(len(least)) != k
        total = np.count_nonzero(places == k)
        right, wrong = least[k, k], most[others, k].sum()
        low.append(2.0 * right / (right + total + wrong) if right else 0.0)
        right, wrong = most[k, k], least[others, k].sum()
        high.append(2.0 * right / (right + total + wrong) if right else 0.0)
    # Classes without rows count as 0 where a row has their label.
    absent = ~np.isin(np.arange(len(least)), places)
    low, high = (
        ends + [0.0] * np.count_nonzero(absent & found.any(axis=0)) for ends, found in ((low, most), (high, least))
    )
    return _bound_mean(low, high)


def _bound_mean(low: Sequence[float], high: Sequence[float]) -> Interval:
    """Bounds of a mean of quotients, rounded outward unless both are the same number."""
    least, most = float(np.mean(low)), float(np.mean(high))
    unit = gamma(len(low) + 8)
    return least * (1.0 - unit), min(most * (1.0 + unit), 1.0)


def _class_log_loss(bounds: ScoreBounds, y: NDArray[np.intp]) -> Interval:
    rows = np.arange(y.size)
    others = np.arange(bounds.lower.shape[1]) != y[:, None]
    with np.errstate(over="ignore", invalid="ignore"):
        most = np.where(others, bounds.upper - bounds.lower[rows, y][:, None], -np.inf)
        least = np.where(others, bounds.lower - bounds.upper[rows, y][:, None], -np.inf)
    ends = []
    for gaps, sign in ((least, -1.0), (most, 1.0)):
        top = np.maximum(gaps.max(axis=1), 0.0)
        with np.errstate(invalid="ignore"):
            values = top + np.log(np.exp(-top) + np.exp(gaps - top[:, None]).sum(axis=1))
        # Near zero the logarithm is that of a number next to 1: log1p keeps its digits.
        small = gaps.max(axis=1) < -1.0
        values[small] = np.log1p(np.exp(gaps[small]).sum(axis=1))
        values = np.where(np.isnan(values), np.inf if sign > 0.0 else 0.0, values)
        # Differences are rounded by units of the scores, and exponentials by at most 1600 units of themselves.
        sizes = np.where(np.isfinite(gaps), np.abs(gaps), 0.0).max(axis=1) + np.abs(bounds.upper[rows, y])
        slack = gamma(bounds.lower.shape[1] + 1600) * values + 8.0 * UNIT * np.where(small, 0.0, 1.0 + sizes)
        ends.append(np.maximum(values + sign * np.where(np.isfinite(values), slack, 0.0), 0.0))
    return _means(*ends)


def _class_brier(bounds: ScoreBounds, y: NDArray[np.intp]) -> Interval:
    """The mean over the rows of ``sum_k (p_k - [k = y])^2``."""
    lower, upper = bounds.probabilities()
    own = np.arange(lower.shape[1]) == y[:, None]
    # Each is off by the rounding of a difference from 1, which is below 2 units.
    near, far = np.where(own, 1.0 - upper, lower), np.where(own, 1.0 - lower, upper)
    near, far = np.maximum(near - 2.0 * UNIT, 0.0), far + 2.0 * UNIT
    low, high = _means(np.square(near).sum(axis=1), np.square(far).sum(axis=1))
    return low * (1.0 - gamma(lower.shape[1])), min(high * (1.0 + gamma(lower.shape[1])), 2.0)


def _class_auc(bounds: ScoreBounds, y: NDArray[np.intp]) -> Interval:
    """The mean over the classes of the area under the curve of the class against the rest, by probabilities."""
    lower, upper = bounds.probabilities()
    n_scores = lower.shape[1]
    counts = np.bincount(y, minlength=n_scores)
    if np.any(counts == 0) or np.any(counts == y.size):
        raise ValueError("roc_auc needs held-out rows of every class; use 'accuracy', or other rows.")
    low = [_auc(lower[y == k, k], upper[y != k, k]) for k in range(n_scores)]
    high = [_auc(upper[y == k, k], lower[y != k, k]) for k in range(n_scores)]
    return _bound_mean(low, high)


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


def _r2(y: Array, lower: Array, upper: Array) -> Interval:
    if np.all(y == y[0]):
        raise ValueError(
            f"r2 needs targets that differ; all are {float(y[0])!r}. Use 'squared_error' or 'absolute_error'."
        )
    # In a unit, a power of 2, in which the squares are numbers.
    power = -int(np.frexp(np.abs(y).max())[1])
    y, lower, upper = (np.ldexp(part, power) for part in (y, lower, upper))
    # Around a mean that is off by ``off`` the squares are larger by at most off^2, and never smaller.
    unit = gamma(2 * y.size + 8)
    most = float(np.mean((y - y.mean()) ** 2)) * (1.0 + unit)
    off = unit * float(np.mean(np.abs(y)))
    least = most * (1.0 - 2.0 * unit) - off**2
    low, high = _mse(y, lower, upper)
    if not least > 0.0:
        return -np.inf, 1.0
    worst, best = 1.0 - high / least, max(1.0 - low / most, -LARGEST)
    # The quotient and the difference are rounded.
    return worst - 4.0 * UNIT * (1.0 + abs(worst)), min(best + 4.0 * UNIT * (1.0 + abs(best)), 1.0)


Metric = Callable[[Array, Array, Array], Interval]
CLASSIFICATION: dict[str, Metric] = {
    "log_loss": lambda y, lower, upper: _means(*log_losses(y, lower, upper)),
    "brier": _brier,
    "roc_auc": _roc_auc,
}
CLASSES: dict[str, Callable[[ScoreBounds, NDArray[np.intp]], Interval]] = {
    "accuracy": _accuracy,
    "balanced_accuracy": _balanced_accuracy,
    "macro_f1": _macro_f1,
}
"""Metrics of labels."""

CLASS_PROBABILITIES: dict[str, Callable[[ScoreBounds, NDArray[np.intp]], Interval]] = {
    "log_loss": _class_log_loss,
    "brier": _class_brier,
    "roc_auc": _class_auc,
}
"""Metrics of the probabilities of one model of all classes."""

REGRESSION: dict[str, Metric] = {
    "squared_error": _mse,
    "absolute_error": lambda y, lower, upper: _means(*residuals(y, lower, upper)),
    "r2": _r2,
}
