"""The report of leave-one-out cross-validation."""

from collections.abc import Callable, Iterable, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from glru.bounds import ScoreBounds, residuals
from glru.deletion import Ranking
from glru.display import IntervalsDisplay, LOOCVDisplay
from glru.display.scores import Display, format_counts, rank_least_certain, shorten, sort_sides
from glru.model_selection import LOOCVResult
from glru.report.frame import (
    Cell,
    Provenance,
    Section,
    cards,
    draw,
    format_count,
    format_interval,
    format_number,
    page,
    table,
)
from glru.report.quality import (
    calibration_section,
    constant_errors,
    constant_value,
    metrics_section,
    roc_section,
    sampling_interval,
)

MAX_LISTED = 200
"""Rows in a table."""

KINDS = {1: ("good", "correct"), -1: ("bad", "wrong"), 0: ("open", "open")}


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
        shades = ["none" if most[a, b] == 0 else "good" if a == b else "bad" for b in range(len(names))]
        cells = [
            f'<td class="number {shade}">{format_counts(int(least[a, b]), int(most[a, b]))}</td>'
            for b, shade in enumerate(shades)
        ]
        lines.append(f'<tr><th scope="row">{label}</th>{"".join(cells)}</tr>')
    return (
        f'<div class="scroll"><table class="confusion"><thead><tr><th scope="col">{escape(corner)}</th>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _list_least_certain(result: LOOCVResult, classes: Sequence[str], name: Callable[[int], str]) -> Section:
    joint = result.problem.loss.several
    header = ["row", "class", "held-out class", f"{'probability' if joint else 'score'} of its class", "verdict"]
    text = "Open rows, then those whose held-out class leads the next one least. Click a column name to sort."
    body = least_certain_table(result.bounds, result.y, classes, joint, name, KINDS, header)
    return Section("Least certain rows", text, body)


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
    verdicts, order = bounds.verdicts(places), rank_least_certain(bounds, MAX_LISTED)
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


STAGE_NAMES = {"undetermined": "open", "wide": "wider than asked"}
"""Names of stages in a sentence, where they differ from those in the result."""


def loocv_page(
    result: LOOCVResult,
    data_name: str,
    origin: Provenance,
    classes: tuple[str, str] | None = None,
    row_names: Sequence[str] | None = None,
    influence: Ranking | None = None,
    coefficients: Section | None = None,
) -> str:
    """The HTML page of a report of leave-one-out cross-validation.

    ``classes``: what -1 and +1 stand for; ``row_names``: their positions if not given; ``influence``: the rows of largest Cook's distance;
    ``coefficients``: a section of :func:`glru.report.quality.coefficients_section`.
    """

    def name(row: int) -> str:
        return str(row) if row_names is None else str(row_names[row])

    if result.problem.loss.task == "regression":
        summary, numbers, sections = _regression(result, data_name, name)
    else:
        summary, numbers, sections = _classification(result, data_name, classes or ("-1", "+1"), name)
    sections.append(_stages(result))
    if influence is not None:
        sections.insert(-2, _influence(influence, result, classes or ("-1", "+1"), name))
    if coefficients is not None:
        sections.insert(-2, coefficients)
    title = f"Leave-one-out cross-validation of {data_name}"
    return page(title, [*summary, _describe_proof(result)], cards(numbers), sections, origin)


Parts = tuple[list[str], list[tuple[str, str]], list[Section]]


def _classification(result: LOOCVResult, data_name: str, classes: tuple[str, str], name: Callable[[int], str]) -> Parts:
    several, n_rows = result.bounds.lower.ndim == 2, result.y.size
    errors = format_interval(result.errors_lower, result.errors_upper)
    share = sampling_interval(result.errors_lower, result.errors_upper, n_rows)
    summary = [
        f"Each of the {format_count(n_rows, 'row')} of {data_name} was held out once: {errors} of them get the wrong class from the "
        f"model trained on all other rows; the constant answer, always the most frequent class, gets {constant_errors(result.y):,} wrong.",
        f"For other rows of the same kind, the error rate lies between {100 * share[0]:.3g} and {100 * share[1]:.3g} % (95 % interval).",
    ]
    low, high = result.metric_bounds("accuracy")
    numbers = [("held-out errors", errors), ("held-out accuracy", f"{format_interval(100.0 * low, 100.0 * high)} %")]
    if several:
        numbers.append(("balanced accuracy", format_interval(*result.metric_bounds("balanced_accuracy"), digits=3)))
    if result.problem.loss.probabilities and several == result.problem.loss.several:
        numbers.append(("held-out log-loss", format_interval(*result.metric_bounds("log_loss"), digits=3)))
    numbers.append(("trainings beyond the first", f"{result.n_trainings:,}"))
    if several:
        names = [str(label) for label in result.classes]  # type: ignore[union-attr]
        known = [confusion_section(result, names), metrics_section(result, None)]
        return summary, numbers, [*known, _list_least_certain(result, names, name)]
    return summary, numbers, _list_score_sections(result, classes, name)


SIDES = "Where an interval does not touch the line at zero, the class is proven. Every row takes the same space. Hover for details."


def draw_display(display: Display, tips: Iterable[str]) -> str:
    """A display as SVG; the title of the section stands above it."""
    figure = display.plot().figure_
    return draw(figure, display.ax_.get_title(loc="left"), list(tips))


def _list_score_sections(result: LOOCVResult, classes: tuple[str, str], name: Callable[[int], str]) -> list[Section]:
    """The sections of a classification with one score per row."""
    labels, y = result.bounds.signs, result.y
    verdicts = result.bounds.verdicts(y)

    def class_name(sign: float) -> str:
        return {1: classes[1], -1: classes[0], 0: "open"}[int(sign)]

    def tip(row: int) -> str:
        low, high = result.score_lower[row], result.score_upper[row]
        return (
            f"row {name(row)}\nclass {class_name(y[row])}, held-out {class_name(labels[row])}\n"
            f"score {format_interval(low, high, 5)}\n{KINDS[int(verdicts[row])][1]}, decided by {STAGE_NAMES.get(result.stages[row], result.stages[row])}"
        )

    display = LOOCVDisplay.from_result(result, classes)
    sections = [
        Section("Held-out scores", SIDES, draw_display(display, [tip(row) for row in sort_sides(result.scores, y)])),
        metrics_section(result, classes),
        confusion_section(result, classes),
    ]
    if np.ptp(y):
        sections.append(roc_section(result))
    if result.problem.loss.probabilities:
        sections.append(calibration_section(result, classes))
    return [*sections, _list_rows(result, verdicts, class_name, name)]


def _describe_proof(result: LOOCVResult) -> str:
    if not result.certified:
        return f"The method “{result.method}” proves nothing: these are the scores that it computed."
    if result.unbounded:
        return f"Nothing is proven of these scores: {result.limit or 'the time was up'}."
    text = (
        f"This is proven for the exactly retrained models, with {format_count(result.n_trainings, 'training')} beyond the "
        f"first; brute force needs {result.y.size:,}."
    )
    text += "".join(f" {part}." for part in describe_open(result))
    if result.limit is None:
        return text
    return f"{text} {format_count(int(np.sum(result.limited)), 'row')} given up: {result.limit}."


def describe_open(result: LOOCVResult) -> list[str]:
    """Say how many labels are open, and how many scores are known less precisely than asked."""
    n_open = result.n_undetermined
    n_wide = result.decided_by.get("wide", 0)
    what = "score" if result.classes is None else "label"
    found = [f"{format_count(n_open, what)} {'is' if n_open == 1 else 'are'} open"] if n_open else []
    if n_wide:
        verb = "has a proven label but an interval" if n_wide == 1 else "have proven labels but intervals"
        found.append(f"{format_count(n_wide, 'row')} {verb} wider than asked")
    return found


def _list_rows(
    result: LOOCVResult, verdicts: NDArray[np.int8], class_name: Callable[[float], str], name: Callable[[int], str]
) -> Section:
    """List open and wrong rows, then those nearest to the threshold."""
    (lower, upper), labels = result.bounds, result.bounds.signs
    distance = np.minimum(np.abs(lower), np.abs(upper))
    order = np.lexsort((distance, np.where(verdicts == 0, 0, np.where(verdicts == -1, 1, 2))))[:MAX_LISTED]
    rows: list[list[Cell]] = [
        [
            name(row),
            class_name(result.y[row]),
            class_name(labels[row]),
            (float(lower[row]), float(upper[row])),
            STAGE_NAMES.get(result.stages[row], str(result.stages[row])),
            KINDS[int(verdicts[row])][1],
        ]
        for row in order
    ]
    header = ["row", "class", "held-out class", "score", "decided by", "verdict"]
    kinds = [KINDS[int(verdicts[row])][0] for row in order]
    text = "Open rows, then wrong ones, then those nearest to the threshold. Click a column name to sort."
    return Section("Rows to inspect", text, table(header, rows, kinds))


def _stages(result: LOOCVResult) -> Section:
    meaning = {
        "carry": "a bound around the old model",
        "local": "a Newton candidate under a local certificate",
        "newton": "more Newton steps, in batches",
        "refine": "more Newton steps, row by row",
        "training": "a training, stopped when the row was decided",
        "approx": "one Newton step, without proof",
        "wide": "the label is proven, the interval is wider than asked",
        "undetermined": "not decided",
    }
    rows: list[list[Cell]] = [
        [STAGE_NAMES.get(stage, stage), meaning[stage], number] for stage, number in result.decided_by.items()
    ]
    header = ["stage", "what it is", "rows"]
    return Section("How rows were decided", "The cheapest proof is tried first.", table(header, rows))


def _regression(result: LOOCVResult, data_name: str, name: Callable[[int], str]) -> Parts:
    y, (lower, upper) = result.y, result.bounds
    n_rows = y.size
    r2 = result.metric_bounds("r2")
    root = format_interval(*np.sqrt(result.metric_bounds("squared_error")))
    constant = constant_value("squared_error", y) or 0.0
    summary = [
        f"Each of the {format_count(n_rows, 'row')} of {data_name} was held out once and predicted by the model trained on "
        f"all other rows: the held-out R² is {format_interval(*r2)}; the root mean squared error is {root}, that of the constant "
        f"answer, the mean of the other rows, {format_number(constant**0.5)}."
    ]
    numbers = [
        ("held-out R²", format_interval(*r2)),
        ("root mean squared error", root),
        ("mean absolute error", format_interval(*result.metric_bounds("absolute_error"))),
        ("trainings beyond the first", f"{result.n_trainings:,}"),
    ]
    residual, _ = residuals(y, lower, upper)
    order = np.argsort(-residual, kind="stable")

    def tip(row: int) -> str:
        known = format_interval(lower[row], upper[row], 6)
        return f"row {name(row)}\ntarget {format_number(y[row], 5)}\nheld-out prediction {known}"

    plot = draw_display(LOOCVDisplay.from_result(result), map(tip, range(n_rows)))
    rows: list[list[Cell]] = [
        [name(row), float(y[row]), (float(lower[row]), float(upper[row])), float(residual[row])]
        for row in order[:MAX_LISTED]
    ]
    header = ["row", "target", "prediction", "residual at least"]
    sections = [
        Section("Held-out predictions", "On the diagonal a prediction is exact. Hover over a row for details.", plot),
        metrics_section(result, None),
        Section("Rows to inspect", "The largest residuals. Click a column name to sort.", table(header, rows)),
    ]
    return summary, numbers, sections


def _influence(
    influence: Ranking, result: LOOCVResult, classes: tuple[str, str], name: Callable[[int], str]
) -> Section:
    lower, upper = influence.lower, influence.upper
    labelled = result.problem.loss.task == "classification"
    names = [name(int(row)) for row in influence.rows]
    tips = [f"row {names[k]}\nCook's distance {format_interval(lower[k], upper[k], 6)}" for k in range(len(names))]
    display = IntervalsDisplay(lower, upper, [shorten(text) for text in names], "Cook's distance")
    proof = "it is proven that no other row changes it more" if influence.certified else "other rows may change it more"
    text = (
        f"The {len(names)} rows without which the model changes most, by Cook's distance of the exactly retrained models, which measures the "
        f"change of all coefficients together by the Hessian; {proof}. The columns are prepared once here, by all rows."
    )
    header = ["row", "class" if labelled else "target", "Cook's distance"]
    rows: list[list[Cell]] = [
        [
            names[k],
            classes[int(result.y[row] > 0.0)] if labelled else float(result.y[row]),
            (float(lower[k]), float(upper[k])),
        ]
        for k, row in enumerate(influence.rows)
    ]
    return Section("Most influential rows", text, draw_display(display, tips) + table(header, rows))
