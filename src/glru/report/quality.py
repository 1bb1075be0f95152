"""Sections on the quality and the content of a model: metrics, confusion matrix, ROC, calibration, coefficients."""

from collections.abc import Sequence

import numpy as np
from scipy.special import expit

from glru.linalg import Array
from glru.model_selection import LOOCVResult
from glru.report.format import format_count, format_interval
from glru.report.metrics import constant_errors, describe_metric, list_metrics, name_metric, sampling_interval
from glru.report.page import Cell, Section, table
from glru.report.svg import Axis, Mark, draw_band, draw_intervals

ROC_POINTS = 50
"""Number of points at which a ROC curve is drawn."""

CALIBRATION_BINS = 10
"""Groups of rows in the calibration plot."""

MOST_LISTED = 200
"""Coefficients in the table."""


def metrics_section(result: LOOCVResult, classes: tuple[str, str] | None) -> Section:
    """All metrics, with the errors of the constant prediction and sampling intervals."""
    rows: list[list[Cell]] = [
        [name_metric(name), format_interval(*ends), describe_metric(result, name, classes)]
        for name, ends in list_metrics(result).items()
    ]
    if result.classes is not None:
        n_rows = result.y.size
        low, high = sampling_interval(result.errors_lower, result.errors_upper, n_rows)
        rows.insert(
            0,
            [
                "error rate",
                format_interval(result.errors_lower / n_rows, result.errors_upper / n_rows),
                f"95 % interval {100 * low:.3g} to {100 * high:.3g} %",
            ],
        )
        rows.insert(
            1,
            [
                "error rate of the constant answer",
                f"{constant_errors(result.y) / n_rows:.4g}",
                "always the most frequent class",
            ],
        )
    return Section(
        "Metrics",
        "Of the held-out scores; each value is proven to the digits shown.",
        table(["metric", "value", ""], rows),
    )


def roc_section(result: LOOCVResult) -> Section:
    """The ROC curve, between the worst and the best order that the intervals allow."""
    positive, negative = result.y > 0.0, result.y < 0.0
    (lower, upper), grid = result.bounds, np.linspace(0.0, 1.0, ROC_POINTS + 1)
    low = _recall_at(lower[positive], upper[negative], grid)
    high = _recall_at(upper[positive], lower[negative], grid)
    marks = [
        Mark(at, a, b, "good", f"at most {100 * at:.3g} % false alarms\n{100 * a:.4g} to {100 * b:.4g} % recognised")
        for at, a, b in zip(grid.tolist(), low.tolist(), high.tolist(), strict=True)
    ]
    axes = Axis(0.0, 1.0, "false-positive rate"), Axis(0.0, 1.0, "true-positive rate")
    area = format_interval(*result.metric_bounds("roc_auc"))
    text = f"The true curve lies in the band, which is often as thin as a line; the area below it is {area}."
    return Section("ROC curve", text, draw_band(*axes, marks, None, {"good": "certified band"}, diagonal=True))


def _recall_at(positive: Array, negative: Array, grid: Array) -> Array:
    """The largest share of positive rows above a threshold that lets through at most a given share of the negative ones."""
    ordered = np.sort(negative)[::-1]
    allowed = np.floor(grid * ordered.size + 1e-9).astype(np.intp)
    threshold = np.append(ordered, -np.inf)[allowed]
    return np.array([np.mean(positive > value) for value in threshold])


def calibration_section(result: LOOCVResult, classes: tuple[str, str]) -> Section:
    """Predicted probabilities against observed shares, in groups of equal size."""
    order = np.argsort(result.scores, kind="stable")
    marks: list[Mark] = []
    rows: list[list[Cell]] = []
    for part in np.array_split(order, min(CALIBRATION_BINS, order.size)):
        low, high = (float(np.mean(expit(ends[part]))) for ends in result.bounds)
        count = int(np.sum(result.y[part] > 0.0))
        least, most = sampling_interval(count, count, part.size)
        said = f"predicted {format_interval(low, high)}\nobserved {count} of {part.size} ({count / part.size:.3g}; 95 % interval {least:.3g} to {most:.3g})"
        marks.append(Mark(0.5 * (low + high), least, most, "good", said, count / part.size))
        rows.append([(low, high), f"{count:,} of {part.size:,}", count / part.size, f"{least:.3g} to {most:.3g}"])
    edge = 1.05 * max(max(mark.high for mark in marks), max(mark.at for mark in marks))
    axes = Axis(0.0, edge, f"predicted probability of {classes[1]}"), Axis(0.0, edge, "observed share")
    plot = draw_intervals(*axes, marks, {"good": "observed, with the 95 % interval of sampling"}, line="diagonal")
    header = ["predicted", "observed", "share", "95 % interval"]
    text = "Rows are grouped by their held-out score; the mean predicted probability of each group is certified. On the diagonal a model is calibrated."
    return Section("Calibration", text, plot + table(header, rows))


def coefficients_section(names: Sequence[str], lower: Array, upper: Array, units: Array | None, odds: bool) -> Section:
    """Coefficients of the model of all rows with certified intervals; odds ratios for the logistic loss.

    ``units`` are the scales of the columns: a coefficient is per one of them.
    """
    middles = 0.5 * (lower + upper)
    order = np.argsort(-np.abs(np.nan_to_num(middles)), kind="stable")[:MOST_LISTED]
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
        f"The {MOST_LISTED} largest of {format_count(len(names), 'coefficient')}. " if len(names) > MOST_LISTED else ""
    )
    per = "per standard deviation of the column" if units is not None else "per unit of the column"
    text = (
        f"{shown}Of the model of all rows, {per}. The intervals are proven to hold the optimum of the penalised objective; they are not confidence "
        "intervals, and the penalty shrinks the coefficients."
    )
    return Section("Coefficients", text, table(header, rows))
