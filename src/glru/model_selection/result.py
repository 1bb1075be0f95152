"""What leave-one-out cross-validation found, and what that proves about pooled metrics."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from glru.linalg import TINY, UNIT, Array, gamma
from glru.losses import Loss
from glru.losses.logistic import softplus
from glru.problem import Problem

STAGES = ("carry", "local", "newton", "refine", "training", "approx", "undetermined")


@final
@dataclass(frozen=True, eq=False, repr=False)
class LOOCVResult:
    """Every row's score under the model trained without it.

    Attributes
    ----------
    problem : Problem
        What was validated.
    method : str
        How.
    certified : bool
        Whether the bounds are proven; the methods "naive", "approx" and "approx-glru" prove nothing.
    score_lower, score_upper : array of shape (n_rows,)
        Bounds of each held-out score.
    scores : array of shape (n_rows,)
        The middle of each interval, NaN where that has no end.
    labels : array of shape (n_rows,) or None
        +1, -1, or 0 where float64 cannot separate the score from the threshold; None for regression.
    stage_codes : array of int
        The stage that decided each row, by its place in ``STAGES``; ``stages`` gives the names.
    limited : array of bool
        Undetermined rows that were given up: at the optimum of all rows, trained as far as float64 goes, the rounding of the
        certificate alone leaves intervals wider than what was asked for, and leaving out one row changes that little.
        An estimate that saves trainings, not a proof that none could decide the row.
    finest_width : float or None
        The narrowest of those intervals; None where no row was given up.
    seconds : dict
        Time spent in each stage.

    Examples
    --------
    >>> import numpy as np, glru
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> result = glru.loocv(glru.Problem(X, X[:, 0] > 0.3, penalty=glru.L2(0.1)))
    >>> result.errors_lower == result.errors_upper == result.n_errors
    True
    >>> sum(result.decided_by.values())
    40
    """

    problem: Problem
    method: str
    certified: bool
    score_lower: Array
    score_upper: Array
    scores: Array
    stage_codes: NDArray[np.int8]
    n_trainings: int
    seconds: dict[str, float]
    limited: NDArray[np.bool_]
    finest_width: float | None

    @property
    def labels(self) -> NDArray[np.int8] | None:
        """The held-out labels, 0 where undetermined."""
        if self.problem.loss.task != "classification":
            return None
        return np.where(self.score_lower > 0.0, 1, np.where(self.score_upper < 0.0, -1, 0)).astype(np.int8)

    @property
    def decided_by(self) -> dict[str, int]:
        """How many rows each stage decided."""
        counts = np.bincount(self.stage_codes, minlength=len(STAGES))
        return {stage: int(count) for stage, count in zip(STAGES, counts, strict=True) if count}

    @cached_property
    def stages(self) -> NDArray[np.str_]:
        """The name of the stage that decided each row."""
        return np.array(STAGES)[self.stage_codes]

    @property
    def limit(self) -> str | None:
        """Why the ``limited`` rows were given up, in words; None where there are none."""
        if self.finest_width is None:
            return None
        if not np.isfinite(self.finest_width):
            return "no bound of their scores is known"
        if np.all(self.score_lower[self.limited] == self.score_upper[self.limited]):
            return "their scores are exactly 0, a tie"
        return f"float64 resolves their scores to about {self.finest_width:.2g}"

    @property
    def errors_lower(self) -> int:
        """The least number of held-out errors."""
        labels = self._labels()
        return int(np.sum((labels != 0) & (labels != self.problem.y)))

    @property
    def errors_upper(self) -> int:
        """The largest number of held-out errors."""
        return int(np.sum(self._labels() != self.problem.y))

    @property
    def n_errors(self) -> int:
        """The number of held-out errors; an error where some labels are undetermined."""
        if self.errors_lower != self.errors_upper:
            raise ValueError(
                f"{self.errors_upper - self.errors_lower} held-out labels are undetermined: the number of errors is "
                f"between {self.errors_lower} and {self.errors_upper}. Use errors_lower and errors_upper."
            )
        return self.errors_lower

    def metric_bounds(self, name: str) -> tuple[float, float]:
        """A certified interval of a metric of the pooled held-out scores.

        Parameters
        ----------
        name : {"log_loss", "accuracy", "brier", "roc_auc", "mse", "mae", "r2"}
            The metric. Every row counts once, whatever its weight. Log-loss and Brier score are for the logistic loss.

        Returns
        -------
        tuple of float
            Lower and upper end, inside the range of the metric. Accuracy and ROC AUC are quotients of integers: both ends
            are correctly rounded quotients, and equal where all labels, or the order of all pairs, are proven.
        """
        return metric_interval(name, self.problem.loss, self.problem.y, self.score_lower, self.score_upper)

    def to_frame(self) -> Any:
        """One row a held-out row: target, label, bounds, stage (a pandas DataFrame)."""
        import pandas as pd

        columns: dict[str, Any] = {"y": self.problem.y}
        if self.labels is not None:
            columns["label"] = self.labels
            columns["correct"] = np.where(self.labels == 0, None, self.labels == self.problem.y)
        columns |= {"score_lower": self.score_lower, "score_upper": self.score_upper, "decided_by": self.stages}
        return pd.DataFrame(columns)

    def _labels(self) -> NDArray[np.int8]:
        labels = self.labels
        if labels is None:
            raise ValueError(f"a regression has no error count; got {self.problem.loss!r}. Use metric_bounds.")
        return labels

    def __repr__(self) -> str:
        lines = [f"LOOCVResult({self.method}, {self.problem.n_rows} rows)"]
        if self.problem.loss.task == "classification":
            low, high = self.errors_lower, self.errors_upper
            lines.append(f"  errors       {low}" if low == high else f"  errors       {low} to {high}")
        lines.append("  decided by   " + ", ".join(f"{stage} {count}" for stage, count in self.decided_by.items()))
        if self.limit is not None:
            lines.append(f"  limited      {int(self.limited.sum())} rows: {self.limit}")
        lines.append(f"  trainings    {self.n_trainings}")
        widths = self.score_upper - self.score_lower
        lines.append(f"  widths       median {np.median(widths):.2g}, largest {widths.max():.2g}")
        lines.append("  seconds      " + ", ".join(f"{stage} {time:.3g}" for stage, time in self.seconds.items()))
        return "\n".join(lines)


Interval = tuple[float, float]
Metric = Callable[[Array, Array, Array], Interval]


def _toward(y: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """The least and the largest margin ``y z``."""
    return np.where(y > 0, lower, -upper), np.where(y > 0, upper, -lower)


def _means(least: Array, most: Array) -> Interval:
    """Bounds of a mean of non-negative terms with a relative error of a few units each, rounded outward."""
    unit = gamma(least.size + 32)
    # Terms that underflow are below TINY.
    return float(np.mean(least)) * (1.0 - unit), float(np.mean(most)) * (1.0 + unit) + TINY


def _log_loss(y: Array, lower: Array, upper: Array) -> Interval:
    worst, best = _toward(y, lower, upper)
    return _means(softplus(-best), softplus(-worst))


def _accuracy(y: Array, lower: Array, upper: Array) -> Interval:
    worst, best = _toward(y, lower, upper)
    return int(np.sum(worst > 0.0)) / y.size, int(np.sum(~(best < 0.0))) / y.size


def _brier(y: Array, lower: Array, upper: Array) -> Interval:
    worst, best = _toward(y, lower, upper)
    low, high = _means(expit(-best) ** 2, expit(-worst) ** 2)
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


def _residuals(y: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """The least and the largest absolute residual."""
    far = np.maximum(np.abs(lower - y), np.abs(upper - y))
    near = np.where((lower <= y) & (y <= upper), 0.0, np.minimum(np.abs(lower - y), np.abs(upper - y)))
    return near, far


def _mse(y: Array, lower: Array, upper: Array) -> Interval:
    near, far = _residuals(y, lower, upper)
    return _means(near**2, far**2)


def _mae(y: Array, lower: Array, upper: Array) -> Interval:
    return _means(*_residuals(y, lower, upper))


def _r2(y: Array, lower: Array, upper: Array) -> Interval:
    if np.all(y == y[0]):
        raise ValueError(f"r2 needs targets that differ; all are {float(y[0])!r}. Use 'mse' or 'mae'.")
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


CLASSIFICATION: dict[str, Metric] = {
    "log_loss": _log_loss,
    "accuracy": _accuracy,
    "brier": _brier,
    "roc_auc": _roc_auc,
}
REGRESSION: dict[str, Metric] = {"mse": _mse, "mae": _mae, "r2": _r2}


def metric_interval(name: str, loss: Loss, y: Array, lower: Array, upper: Array) -> Interval:
    """A certified interval of a metric of scores that are known up to bounds.

    Accuracy and ROC AUC are quotients of integers: each end is the correctly rounded quotient. The ends of the other
    metrics are rounded outward; none lies outside the range of its metric.
    """
    metrics = CLASSIFICATION if loss.task == "classification" else REGRESSION
    if name not in metrics:
        raise ValueError(f"metric must be one of {', '.join(metrics)} for this loss; got {name!r}.")
    if name in ("log_loss", "brier"):
        require_probabilities(name, loss)
    low, high = metrics[name](y, lower, upper)
    return float(low), float(high)


def require_probabilities(name: str, loss: Loss) -> None:
    """Refuse a metric of probabilities for a loss whose scores are not log-odds."""
    if not loss.probabilities:
        raise ValueError(
            f"{name!r} needs probabilities, which only the logistic loss gives; got {loss!r}. Count errors instead, or "
            "use glru.Logistic()."
        )
