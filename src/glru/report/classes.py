"""The parts of a report of leave-one-out with one score per class: the confusion matrix, and rows to inspect."""

from collections.abc import Callable, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from glru.bounds import ScoreBounds
from glru.display.classes import format_counts, rank_least_certain
from glru.model_selection import LOOCVResult
from glru.report.format import format_count, format_interval
from glru.report.metrics import constant_errors, sampling_interval
from glru.report.page import Cell, Section, table
from glru.report.quality import metrics_section

MOST_LISTED = 200
"""Number of rows in the table of rows to inspect."""

KINDS = {1: ("good", "correct"), -1: ("bad", "wrong"), 0: ("open", "open")}


def class_parts(
    result: LOOCVResult, data_name: str, name: Callable[[int], str]
) -> tuple[str, list[tuple[str, str]], list[Section]]:
    """The first sentence of the summary, the numbers, and the sections."""
    errors = format_interval(result.errors_lower, result.errors_upper)
    n_rows = result.bounds.n_rows
    share = sampling_interval(result.errors_lower, result.errors_upper, n_rows)
    summary = (
        f"Each of the {format_count(n_rows, 'row')} of {data_name} was held out once: {errors} of them get the wrong one of "
        f"{result.bounds.lower.shape[1]} classes from the model trained on all other rows; the constant answer, always the most frequent class, gets "
        f"{constant_errors(result.y):,} wrong. For other rows of the same kind, the error rate lies between {100 * share[0]:.3g} and "
        f"{100 * share[1]:.3g} % (95 % interval)."
    )
    low, high = result.metric_bounds("accuracy")
    numbers = [("held-out errors", errors), ("held-out accuracy", f"{format_interval(100.0 * low, 100.0 * high)} %")]
    numbers.append(("balanced accuracy", format_interval(*result.metric_bounds("balanced_accuracy"), digits=3)))
    if result.problem.loss.several:
        numbers.append(("held-out log-loss", format_interval(*result.metric_bounds("log_loss"), digits=3)))
    numbers.append(("trainings beyond the first", f"{result.n_trainings:,}"))
    classes = [] if result.classes is None else [str(label) for label in result.classes]
    return summary, numbers, [confusion_section(result, classes), metrics_section(result, None), _rows(result, name)]


def confusion_section(result: LOOCVResult, classes: Sequence[str]) -> Section:
    """How many rows of each class get each label."""
    least, most = result.confusion_matrix()
    known = "All counts are proven." if np.array_equal(least, most) else "Where labels are open, a count has two ends."
    body = confusion_table(least, most, classes, "class \\ label")
    return Section("Confusion matrix", f"Rows of each class (lines) by their held-out label (columns). {known}", body)


def confusion_table(least: NDArray[np.int64], most: NDArray[np.int64], classes: Sequence[str], corner: str) -> str:
    """The smallest and the largest number of rows of each class (lines) that get each label (columns)."""
    names = [escape(label) for label in classes]
    head = "".join(f'<th scope="col">{label}</th>' for label in names)
    lines = []
    for a, label in enumerate(names):
        cells = [
            f'<td class="number {_shade(a == b, int(most[a, b]))}">{format_counts(int(least[a, b]), int(most[a, b]))}</td>'
            for b in range(len(names))
        ]
        lines.append(f'<tr><th scope="row">{label}</th>{"".join(cells)}</tr>')
    return (
        f'<div class="scroll"><table class="confusion"><thead><tr><th scope="col">{escape(corner)}</th>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _shade(right: bool, most: int) -> str:
    return "none" if most == 0 else "good" if right else "bad"


def _rows(result: LOOCVResult, name: Callable[[int], str]) -> Section:
    """The rows whose labels are least certain."""
    joint = result.problem.loss.several
    assert result.classes is not None
    what = "probability" if joint else "score"
    header = ["row", "class", "held-out class", f"{what} of its class", "verdict"]
    text = "Open rows, then those whose held-out class leads the next one least. Click a column name to sort."
    classes = [str(label) for label in result.classes]
    return Section(
        "Least certain rows", text, least_certain_table(result.bounds, result.y, classes, joint, name, KINDS, header)
    )


def least_certain_table(
    bounds: ScoreBounds,
    places: NDArray[np.intp],
    classes: Sequence[str],
    joint: bool,
    name: Callable[[int], str],
    kinds: dict[int, tuple[str, str]],
    header: Sequence[str],
) -> str:
    """The rows whose labels are least certain, with bounds of the probability (or score) of the class that each is compared with."""
    verdicts, order = bounds.verdicts(places), rank_least_certain(bounds, MOST_LISTED)
    lower, upper = bounds.probabilities() if joint else bounds
    rows: list[list[Cell]] = [
        [
            name(int(row)),
            classes[places[row]],
            classes[bounds.predicted[row]] if bounds.decided[row] else "open",
            (float(lower[row, places[row]]), float(upper[row, places[row]])),
            kinds[int(verdicts[row])][1],
        ]
        for row in order
    ]
    return table(header, rows, [kinds[int(verdicts[row])][0] for row in order])
