"""The figures of a held-out result: certified metrics, the constant answer to compare with, and what sampling leaves open."""

import numpy as np
from scipy.stats import binomtest

from glru.linalg import Array
from glru.model_selection import LOOCVResult

Interval = tuple[float, float]

CLEAR = 10.0
"""Scores must spread over so many times the shift of the intercept by one row for a pooled AUC to be trusted."""


NAMES = {"roc_auc": "ROC AUC", "r2": "R²", "macro_f1": "macro F1", "brier": "Brier score"}
"""What metrics are called in text, where that is not their name without underscores."""


def name_metric(name: str) -> str:
    """What a metric is called in text."""
    return NAMES.get(name, name.replace("_", " "))


def metrics_of(result: LOOCVResult) -> dict[str, Interval]:
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
        rates = [_recall(result, sign) for sign in (1.0, -1.0)]
        balanced = tuple(0.5 * (first + second) for first, second in zip(*rates, strict=True))
        found["balanced_accuracy"] = (balanced[0], balanced[1])
        found |= {"sensitivity": rates[0], "specificity": rates[1]}
    names = ["roc_auc", "log_loss", "brier"]
    return found | {
        name: result.metric_bounds(name) for name in names if name == "roc_auc" or result.problem.loss.probabilities
    }


def _recall(result: LOOCVResult, sign: float) -> Interval:
    """The share of a class that is recognised."""
    rows = np.flatnonzero(result.y == sign)
    least, most = result.bounds.take(rows).errors(result.y[rows])
    return (rows.size - most) / rows.size, (rows.size - least) / rows.size


def confusion(result: LOOCVResult) -> list[list[tuple[int, int]]]:
    """The least and the largest number of rows of the classes -1 and +1 (lines) that get the label -1 and +1 (columns)."""
    table = []
    for sign in (-1.0, 1.0):
        signs = result.bounds.signs[result.y == sign]
        n_open = int(np.sum(signs == 0))
        table.append([(int(np.sum(signs == label)), int(np.sum(signs == label)) + n_open) for label in (-1, 1)])
    return table


def constant_errors(y: Array) -> int:
    """The errors of the constant answer: always the most frequent class."""
    return int(y.size - np.unique(y, return_counts=True)[1].max())


def constant_value(criterion: str, y: Array) -> float | None:
    """The value of a criterion with the same answer for every row; None for information criteria."""
    if criterion == "error":
        return constant_errors(y)
    if criterion == "log_loss":
        shares = np.unique(y, return_counts=True)[1] / y.size
        return float(-np.sum(shares * np.log(shares)))
    return constant_squared_error(y) if criterion == "squared_error" else None


def constant_squared_error(y: Array) -> float:
    """The held-out squared error of the constant answer: the mean of the other rows."""
    return float(np.var(y) * (y.size / (y.size - 1.0)) ** 2) if y.size > 1 else np.inf


def sampling_interval(least: int, most: int, n_rows: int) -> Interval:
    """Wilson's 95 % interval of a share of which between ``least`` and ``most`` of the rows were counted."""
    low = binomtest(least, n_rows).proportion_ci(method="wilson").low
    high = binomtest(most, n_rows).proportion_ci(method="wilson").high
    return float(low), float(high)


def auc_caveat(result: LOOCVResult) -> str | None:
    """Why the pooled AUC misleads: every row's own absence moves the intercept away from its class; None where that is small."""
    share = float(np.mean(result.y > 0.0))
    if not result.problem.fit_intercept or share in (0.0, 1.0):
        return None
    shift = 1.0 / (result.y.size * share * (1.0 - share))
    spread = float(np.std(np.nan_to_num(result.bounds.middle)))
    if spread >= CLEAR * shift:
        return None
    return (
        f"misleading here: leaving out a row moves the intercept by about {shift:.2g} away from the row's class, and under so strong a "
        f"penalty the scores differ by {spread:.2g} only, so that the AUC pooled over all rows falls, down to 0. Weaken the "
        "penalty, or judge the order of the scores by folds"
    )
