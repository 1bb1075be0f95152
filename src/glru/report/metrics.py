"""The numbers of a held-out result: certified metrics, the constant prediction to compare with, and sampling intervals."""

import numpy as np
from scipy.stats import binomtest

from glru.linalg import Array
from glru.model_selection import LOOCVResult
from glru.report.format import format_interval, format_number

Interval = tuple[float, float]

LEAST_SPREAD = 10.0
"""Scores must spread over this multiple of the shift of the intercept by one row for a pooled AUC to be trusted."""


NAMES = {"roc_auc": "ROC AUC", "r2": "R²", "macro_f1": "macro F1", "brier": "Brier score"}
"""The names of metrics in text, where these are not the identifiers without underscores."""


RATES = {"sensitivity": 1, "specificity": -1}
"""Shares of the rows of one class that are recognised, and the class."""


def name_metric(name: str) -> str:
    """The name of a metric in text."""
    return NAMES.get(name, name.replace("_", " "))


def list_metrics(result: LOOCVResult) -> dict[str, Interval]:
    """Certified intervals of the metrics of the held-out scores, by name; sensitivity is that of the class +1."""
    if result.classes is None:
        names = ["squared_error", "absolute_error", "r2"]
        return {name: result.metric_bounds(name) for name in names if name != "r2" or np.ptp(result.y)}
    found = {"accuracy": result.metric_bounds("accuracy")}
    if result.bounds.lower.ndim == 2:
        shared = ["balanced_accuracy", "macro_f1"]
        found |= {name: result.metric_bounds(name) for name in shared}
        if not result.problem.loss.several:
            return found
    else:
        found["balanced_accuracy"] = result.metric_bounds("balanced_accuracy")
        for name, sign in RATES.items():
            least, most, n_rows = _count_recognised(result, sign)
            found[name] = (least / n_rows, most / n_rows)
    names = ["roc_auc", "log_loss", "brier"]
    return found | {
        name: result.metric_bounds(name) for name in names if name == "roc_auc" or result.problem.loss.probabilities
    }


def _count_recognised(result: LOOCVResult, sign: int) -> tuple[int, int, int]:
    """The least and the largest number of rows of a class whose label is right, and how many rows it has."""
    verdicts = result.bounds.verdicts(result.y)[result.y == sign]
    return int(np.sum(verdicts > 0)), int(np.sum(verdicts >= 0)), verdicts.size


def constant_errors(y: Array) -> int:
    """The errors of the constant answer: always the most frequent class."""
    return int(y.size - np.unique(y, return_counts=True)[1].max())


def constant_value(criterion: str, y: Array, left_out: bool = True) -> float | None:
    """The value of a criterion if every row gets the same prediction: the most frequent class, the classes' shares, or the mean.

    ``left_out``: shares and mean are those of the other rows. None for information criteria.
    """
    if criterion == "error":
        return constant_errors(y)
    if left_out and y.size == 1:
        return np.inf
    n_others = y.size - float(left_out)
    if criterion == "squared_error":
        return float(np.var(y) * (y.size / n_others) ** 2)
    if criterion not in ("log_loss", "brier"):
        return None
    counts = np.unique(y, return_counts=True)[1]
    own = np.eye(counts.size)
    # One line per class of a row: the shares of the classes that it is given.
    shares = (counts - left_out * own) / n_others
    with np.errstate(divide="ignore"):
        losses = -np.log(np.diag(shares))
    if criterion == "brier":
        losses = np.sum((shares - own) ** 2, axis=1) / (2.0 if counts.size == 2 else 1.0)
    return float(counts @ losses / y.size)


def describe_metric(result: LOOCVResult, name: str, classes: tuple[str, str] | None) -> str:
    """A remark on a metric: how many rows it is about, and the value of the constant prediction."""
    if name in RATES and classes is not None:
        least, most, n_rows = _count_recognised(result, RATES[name])
        low, high = sampling_interval(least, most, n_rows)
        count = format_interval(least, most)
        return f"{count} of {n_rows:,} {classes[int(RATES[name] > 0)]}; 95 % interval {100 * low:.3g} to {100 * high:.3g} %"
    if name in ("log_loss", "brier", "squared_error"):
        constant = constant_value(name, result.y)
        assert constant is not None
        known = f"constant answer: {format_number(constant)}"
        if name != "squared_error":
            return known
        roots = np.sqrt(result.metric_bounds(name))
        return f"root {format_interval(*roots)}; {known}, root {format_number(constant**0.5)}"
    if name == "roc_auc":
        several = result.bounds.lower.ndim == 2
        return "mean over the classes, each against the rest" if several else auc_caveat(result) or ""
    return ""


def sampling_interval(least: int, most: int, n_rows: int) -> Interval:
    """Wilson's 95 % interval of a share of which between ``least`` and ``most`` of the rows were counted."""
    low = binomtest(least, n_rows).proportion_ci(method="wilson").low
    high = binomtest(most, n_rows).proportion_ci(method="wilson").high
    return float(low), float(high)


def auc_caveat(result: LOOCVResult) -> str | None:
    """Why the pooled AUC misleads: leaving out a row moves the intercept away from its class; None if that effect is small."""
    share = float(np.mean(result.y > 0.0))
    if not result.problem.fit_intercept or share in (0.0, 1.0) or result.unbounded:
        return None
    shift = 1.0 / (result.y.size * share * (1.0 - share))
    spread = float(np.std(np.nan_to_num(result.bounds.middle)))
    if spread >= LEAST_SPREAD * shift:
        return None
    return (
        f"misleading here: leaving out a row moves the intercept by about {shift:.2g} away from the row's class, and under so strong a "
        f"penalty the scores differ by {spread:.2g} only, so that the AUC pooled over all rows falls, down to 0. Weaken the "
        "penalty, or judge the order of the scores by folds"
    )
