"""Sections on the quality and the content of a model: metrics, confusion matrix, ROC, calibration, coefficients."""

from collections.abc import Sequence

import numpy as np
from scipy.special import expit
from scipy.stats import binomtest

from glru._results import format_count
from glru.bounds import Interval
from glru.display.scores import BLUE, GREY, MARKS, new_axes, shorten
from glru.linalg import Array
from glru.model_selection import LOOCVResult
from glru.report.frame import MAX_LISTED, Cell, Section, draw, format_interval, format_number, table

MIN_SPREAD = 10.0
"""Scores must spread over this multiple of the shift of the intercept by one row for a pooled AUC to be trusted."""


NAMES = {"roc_auc": "ROC AUC", "r2": "R²", "macro_f1": "macro F1", "brier": "Brier score"}
"""The names of metrics in text, where they are not the identifiers without underscores."""


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


def count_baseline_errors(y: Array) -> int:
    """The errors of the baseline: always the most frequent class."""
    return int(y.size - np.unique(y, return_counts=True)[1].max())


def measure_baseline(criterion: str, y: Array, left_out: bool = True) -> float | None:
    """The value of a criterion if every row gets the same prediction: the most frequent class, the classes' shares, or the mean.

    ``left_out``: shares and mean are those of the other rows. None for information criteria.
    """
    if criterion == "error":
        return count_baseline_errors(y)
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
    """A remark on a metric: how many rows it is about, and the value of the baseline."""
    if name in RATES and classes is not None:
        least, most, n_rows = _count_recognised(result, RATES[name])
        low, high = sampling_interval(least, most, n_rows)
        count = format_interval(least, most)
        return f"{count} of {n_rows:,} {classes[int(RATES[name] > 0)]}; 95 % interval {100 * low:.3g} to {100 * high:.3g} %"
    if name in ("log_loss", "brier", "squared_error"):
        constant = measure_baseline(name, result.y)
        assert constant is not None
        known = f"baseline: {format_number(constant)}"
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
    if spread >= MIN_SPREAD * shift:
        return None
    return (
        f"misleading here: leaving out a row moves the intercept by about {shift:.2g} away from the row's class, and under so strong a "
        f"penalty the scores differ by {spread:.2g} only, so that the AUC pooled over all rows falls, down to 0. Weaken the "
        "penalty, or judge the order of the scores by folds"
    )


ROC_POINTS = 50
"""Most points at which a ROC curve is drawn."""

CALIBRATION_BINS, MIN_BIN = 10, 5
"""Most groups of rows in the calibration plot, and the number of rows from which on a group has a share worth showing."""


def roc_section(result: LOOCVResult) -> Section:
    """The ROC curve, between the worst and the best order that the intervals allow."""
    positive, negative = result.y > 0.0, result.y < 0.0
    n_negative, (lower, upper) = int(negative.sum()), result.bounds
    # Of few rows every step is shown.
    grid = np.linspace(0.0, 1.0, min(ROC_POINTS, n_negative) + 1)
    steps = "post" if n_negative <= ROC_POINTS else None
    low = _recall_at(lower[positive], upper[negative], grid)
    high = _recall_at(upper[positive], lower[negative], grid)
    tips = [
        f"at most {100 * at:.3g} % false alarms\n{100 * a:.4g} to {100 * b:.4g} % recognised"
        for at, a, b in zip(grid, low, high, strict=True)
    ]
    ax = new_axes(4.4)
    ax.fill_between(grid, low, high, step=steps, color=BLUE, alpha=0.3)
    style = {"drawstyle": f"steps-{steps}"} if steps else {}
    ax.plot(grid, 0.5 * (low + high), "o-", color=BLUE, markersize=3, gid=MARKS, **style)
    ax.plot([0.0, 1.0], [0.0, 1.0], color=GREY, linewidth=0.8)
    ax.set(xlabel="false-positive rate", ylabel="true-positive rate")
    area = format_interval(*result.metric_bounds("roc_auc"))
    text = f"The true curve lies in the band, which is often as thin as a line; the area below it is {area}."
    return Section("ROC curve", text, draw(ax.figure, "ROC curve", tips))


def _recall_at(positive: Array, negative: Array, grid: Array) -> Array:
    """The largest share of positive rows above a threshold that lets through at most a given share of the negative ones."""
    ordered = np.sort(negative)[::-1]
    allowed = np.floor(grid * ordered.size + 1e-9).astype(np.intp)
    threshold = np.append(ordered, -np.inf)[allowed]
    return np.array([np.mean(positive > value) for value in threshold])


def calibration_section(result: LOOCVResult, classes: tuple[str, str]) -> Section:
    """Predicted probabilities against observed shares, in groups of equal size."""
    order = np.argsort(result.scores, kind="stable")
    rows: list[list[Cell]] = []
    tips, marks = [], []
    for part in np.array_split(order, min(CALIBRATION_BINS, max(order.size // MIN_BIN, 1))):
        low, high = (float(np.mean(expit(ends[part]))) for ends in result.bounds)
        count = int(np.sum(result.y[part] > 0.0))
        least, most = sampling_interval(count, count, part.size)
        tip = f"predicted {format_interval(low, high)}\nobserved {count} of {part.size} ({count / part.size:.3g}; 95 % interval {least:.3g} to {most:.3g})"
        tips.append(tip)
        marks.append((0.5 * (low + high), count / part.size, least, most))
        rows.append([(low, high), f"{count:,} of {part.size:,}", count / part.size, f"{least:.3g} to {most:.3g}"])
    at, share, bottom, top = np.transpose(marks)
    ax, edge = new_axes(4.4), max(top.max(), at.max())
    ax.vlines(at, bottom, top, color=BLUE)
    ax.plot(at, share, "o", color=BLUE, gid=MARKS, label="observed, with the 95 % interval of sampling")
    ax.plot([0.0, edge], [0.0, edge], color=GREY, linewidth=0.8)
    ax.set(xlabel=f"predicted probability of {shorten(classes[1])}", ylabel="observed share")
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0))
    header = ["predicted", "observed", "share", "95 % interval"]
    text = "Rows are grouped by their held-out score; the mean predicted probability of each group is certified. On the diagonal a model is calibrated."
    return Section("Calibration", text, draw(ax.figure, "Calibration", tips) + table(header, rows))


def coefficients_section(names: Sequence[str], lower: Array, upper: Array, units: Array | None, odds: bool) -> Section:
    """Coefficients of the model of all rows with certified intervals; odds ratios for the logistic loss.

    ``units`` are the scales of the columns: a coefficient is per one of them.
    """
    middles = 0.5 * (lower + upper)
    order = np.argsort(-np.abs(np.nan_to_num(middles)), kind="stable")[:MAX_LISTED]
    rows: list[list[Cell]] = []
    for k in order:
        line: list[Cell] = [names[k], (float(lower[k]), float(upper[k]))]
        if odds:
            line.append((float(np.exp(lower[k])), float(np.exp(upper[k]))))
        if units is not None:
            line += [float(units[k]), float(middles[k] / units[k])]
        rows.append(line)
    header = ["column", "coefficient", *(["odds ratio"] if odds else [])]
    header += ["standard deviation", "coefficient per unit"] if units is not None else []
    shown = (
        f"The {MAX_LISTED} largest of {format_count(len(names), 'coefficient')}. " if len(names) > MAX_LISTED else ""
    )
    per = "per standard deviation of the column" if units is not None else "per unit of the column"
    text = (
        f"{shown}Of the model of all rows, {per}. The intervals are proven to hold the optimum of the penalised objective; they are not confidence "
        "intervals, and the penalty shrinks the coefficients."
    )
    return Section("Coefficients", text, table(header, rows))
