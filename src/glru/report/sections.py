"""The sections of reports: of leave-one-out, of a change of the training data, of a regularisation path and of a stepwise selection."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glru._results import format_count
from glru.bounds import Bounds, ScoreBounds, predicted, residuals
from glru.deletion import Ranking
from glru.display import AfterDisplay, IntervalsDisplay, LOOCVDisplay, RegularizationPathDisplay, StepwiseDisplay
from glru.display.paths import CRITERIA, name_step
from glru.display.scores import MAX_DOTS, Display, find_verdicts, measure_leads, middle, shorten, sort_sides
from glru.linalg import Array
from glru.losses import Loss
from glru.model_selection import LOOCVPath, LOOCVResult
from glru.report.frame import MAX_LISTED, Cell, Section, draw, format_interval, format_number, table
from glru.report.quality import calibration_section, roc_section
from glru.selection import StepwiseResult

KINDS = {1: ("good", "correct"), -1: ("bad", "wrong"), 0: ("open", "open")}


def _count_labels(result: LOOCVResult, classes: Sequence[str]) -> Section:
    text = "Rows of each class (lines) by their held-out label (columns)."
    return Section("Confusion matrix", text, confusion_table(*result.confusion_matrix(), classes, "class"))


def confusion_table(least: NDArray[np.int64], most: NDArray[np.int64], classes: Sequence[str], corner: str) -> str:
    """The smallest and the largest number of rows of each class (lines) that get each label (columns)."""
    ends = np.stack([least, most], axis=-1).tolist()
    return table([corner, *classes], [[name, *map(tuple, line)] for name, line in zip(classes, ends, strict=True)])


def list_labels(
    bounds: ScoreBounds,
    targets: NDArray[Any],
    classes: Sequence[str],
    ends: Bounds,
    name: Callable[[int], str],
    kinds: dict[int, tuple[str, str]],
    header: Sequence[str],
) -> Section:
    """The rows to inspect, with their classes, their labels, and the ``ends`` of a number of each."""
    verdicts, places = bounds.verdicts(targets), bounds.places(targets)
    (lower, upper), changed = ends, np.select([verdicts == 0, verdicts < 0], [0, 1], 2)
    order = np.lexsort((measure_leads(bounds), changed))[:MAX_LISTED]
    rows: list[list[Cell]] = [
        [
            name(int(row)),
            classes[places[row]],
            classes[bounds.predicted[row]] if bounds.decided[row] else "open",
            (float(lower[row]), float(upper[row])),
            kinds[int(verdicts[row])][1],
        ]
        for row in order
    ]
    text = "Open labels first, then wrong or changed ones, then the least certain. Click a column name to sort."
    return Section("Rows to inspect", text, table(header, rows, [kinds[int(verdicts[row])][0] for row in order]))


def take_own(bounds: ScoreBounds, places: NDArray[np.intp], joint: bool) -> Bounds:
    """Bounds of the probability, or of the score, of one class of each row."""
    rows = np.arange(places.size)
    lower, upper = bounds.probabilities() if joint else bounds
    return lower[rows, places], upper[rows, places]


STAGE_NAMES = {"undetermined": "open", "wide": "wider than asked"}
"""Names of stages in a sentence, where they differ from those in the result."""


def list_loocv_sections(
    result: LOOCVResult,
    classes: tuple[str, str] | None = None,
    row_names: Sequence[str] | None = None,
    influence: Ranking | None = None,
) -> list[Section]:
    """The sections of a report of leave-one-out cross-validation.

    ``classes``: what -1 and +1 stand for; ``row_names``: their positions if not given; ``influence``: the rows of largest Cook's distance.
    """

    def name(row: int) -> str:
        return str(row) if row_names is None else str(row_names[row])

    if result.problem.loss.task == "regression":
        sections = _list_regression_sections(result, name)
    elif result.bounds.lower.ndim == 1:
        sections = _list_score_sections(result, classes or ("-1", "+1"), name)
    else:
        names = [str(label) for label in result.classes]  # type: ignore[union-attr]
        joint = result.problem.loss.several
        header = ["row", "class", "held-out class", f"{'probability' if joint else 'score'} of its class", "verdict"]
        ends = take_own(result.bounds, result.y, joint)
        rows = list_labels(result.bounds, result.y, names, ends, name, KINDS, header)
        sections = [_count_labels(result, names), rows]
    if influence is not None:
        sections.append(_show_influence(influence, result, classes or ("-1", "+1"), name))
    return sections


SIDES = "Where an interval does not touch the line at zero, the class is proven. Every row takes the same space. Hover for details."


def draw_display(display: Display, tip: Callable[[int], str], rows: Iterable[int]) -> str:
    """A display as SVG; hovering over the mark of a row shows its ``tip``, unless there are too many marks for that."""
    figure = display.plot().figure_
    return draw(figure, display.ax_.get_title(loc="left"), [tip(int(row)) for row in islice(rows, MAX_DOTS)])


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
        Section("Held-out scores", SIDES, draw_display(display, tip, sort_sides(result.scores, y))),
        _count_labels(result, classes),
    ]
    if np.ptp(y):
        sections.append(roc_section(result))
    if result.problem.loss.probabilities:
        sections.append(calibration_section(result, classes))
    header = ["row", "class", "held-out class", "score", "verdict"]
    return [*sections, list_labels(result.bounds, y, classes, result.bounds, name, KINDS, header)]


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


def _list_regression_sections(result: LOOCVResult, name: Callable[[int], str]) -> list[Section]:
    """The sections of a regression."""
    y, (lower, upper) = result.y, result.bounds
    residual, _ = residuals(y, lower, upper)
    order = np.argsort(-residual, kind="stable")

    def tip(row: int) -> str:
        known = format_interval(lower[row], upper[row], 6)
        return f"row {name(row)}\ntarget {format_number(y[row], 5)}\nheld-out prediction {known}"

    plot = draw_display(LOOCVDisplay.from_result(result), tip, range(y.size))
    rows: list[list[Cell]] = [
        [name(row), float(y[row]), (float(lower[row]), float(upper[row])), float(residual[row])]
        for row in order[:MAX_LISTED]
    ]
    header = ["row", "target", "prediction", "residual at least"]
    return [
        Section("Held-out predictions", "On the diagonal a prediction is exact. Hover over a row for details.", plot),
        Section("Rows to inspect", "The largest residuals. Click a column name to sort.", table(header, rows)),
    ]


def _show_influence(
    influence: Ranking, result: LOOCVResult, classes: tuple[str, str], name: Callable[[int], str]
) -> Section:
    lower, upper = influence.lower, influence.upper
    labelled = result.problem.loss.task == "classification"
    names = [name(int(row)) for row in influence.rows]

    def tip(k: int) -> str:
        return f"row {names[k]}\nCook's distance {format_interval(lower[k], upper[k], 6)}"

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
    return Section("Most influential rows", text, draw_display(display, tip, range(len(names))) + table(header, rows))


CHANGES = {1: ("good", "label unchanged"), -1: ("bad", "label changed"), 0: ("open", "label open")}


def list_after_sections(
    loss: Loss, bounds: ScoreBounds, old_scores: Array, names: Sequence[str], classes: Sequence[str] = ("-1", "+1")
) -> list[Section]:
    """The sections of a report of what is proven about some queries, with these ``names``, after a change.

    ``classes``: what -1 and +1 stand for, or all classes of a multinomial model.
    """
    if loss.several:
        return _list_changed_classes(bounds, predicted(old_scores), names, classes)
    return _list_changed_scores(loss, bounds, old_scores, names, (classes[0], classes[1]))


def _list_changed_classes(
    bounds: ScoreBounds, before: NDArray[np.intp], names: Sequence[str], classes: Sequence[str]
) -> list[Section]:
    """The labels of a multinomial model before and after, and the queries whose labels are least certain."""
    text = "Queries by their label before the change (lines) and by that of the retrained model (columns)."
    header = ["query", "label before", "label after", "probability of the label before", "verdict"]
    ends = take_own(bounds, before, True)
    return [
        Section("Labels before and after", text, confusion_table(*bounds.confusion(before), classes, "before")),
        list_labels(bounds, before, classes, ends, names.__getitem__, CHANGES, header),
    ]


def _list_changed_scores(
    loss: Loss, bounds: ScoreBounds, old_scores: Array, names: Sequence[str], classes: tuple[str, str]
) -> list[Section]:
    """The scores of a model of two classes or a regression before and after, and the queries to inspect."""
    lower, upper = bounds
    labelled = loss.task == "classification"
    verdicts = find_verdicts(bounds, old_scores) if labelled else np.ones(bounds.n_rows, dtype=np.int8)

    def tip(k: int) -> str:
        text = f"query {names[k]}\nbefore {format_number(old_scores[k], 5)}\nafter {format_interval(lower[k], upper[k], 6)}"
        return f"{text}\n{CHANGES[int(verdicts[k])][1]}" if labelled else text

    order = np.arange(old_scores.size)
    if labelled:
        order = sort_sides(middle(bounds), old_scores)
        title, text, pair = "Retrained scores", SIDES, classes
    else:
        title, pair = "Change of the predictions", None
        text = "By how much each prediction changes; at zero it stays. Hover over one for details."
    display = AfterDisplay.from_bounds(bounds, old_scores, pair)
    picture = Section(title, text, draw_display(display, tip, order))
    return [picture, _list_queries(bounds, old_scores, verdicts, names, labelled)]


def _list_queries(
    bounds: ScoreBounds, old_scores: Array, verdicts: NDArray[np.int8], names: Sequence[str], classification: bool
) -> Section:
    """The queries to inspect: open and changed labels, or the largest moves."""
    lower, upper = bounds
    moves = np.maximum(np.maximum(lower - old_scores, old_scores - upper), 0.0)
    keys = (np.abs(old_scores), verdicts != -1, verdicts != 0) if classification else (-moves,)
    order = np.lexsort(keys)[:MAX_LISTED]
    rows: list[list[Cell]] = [
        [
            names[k],
            float(old_scores[k]),
            (float(lower[k]), float(upper[k])),
            CHANGES[int(verdicts[k])][1] if classification else float(moves[k]),
        ]
        for k in order
    ]
    what, last = ("score", "verdict") if classification else ("prediction", "moves by at least")
    text = "Open labels first, then changed ones." if classification else "Those that move most first."
    colours = [CHANGES[int(verdicts[k])][0] for k in order] if classification else None
    body = table(["query", f"{what} before", "after", last], rows, colours)
    return Section("Queries to inspect", f"{text} Click a column name to sort.", body)


def list_path_sections(path: LOOCVPath, as_C: bool = False) -> list[Section]:
    """The sections of a report of leave-one-out over strengths of the penalty, shown as ``C = 1 / lam`` where ``as_C``."""
    shown = RegularizationPathDisplay.from_path(path, as_C)
    axis = shown.axis
    tips = [
        f"{axis} = {lam:.4g}\nheld-out {CRITERIA[name]}: {format_interval(low, high, 6)}"
        for name, ends in shown.bands.items()
        for lam, low, high in zip(shown.lams, *ends, strict=True)
        if np.isfinite(high)
    ]
    text = "The true value at each strength lies inside its interval. Hover over one for details."
    picture = draw(shown.plot().figure_, shown.title, tips)
    short = [name.replace("_", "-") for name in shown.bands]
    header = [axis, *short, "trainings"]
    rows: list[list[Cell]] = [
        [
            float(lam),
            *((float(lower[k]), float(upper[k])) for lower, upper in shown.bands.values()),
            path.results[k].n_trainings,
        ]
        for k, lam in enumerate(shown.lams)
    ]
    return [
        Section("The criterion at every strength", text, picture),
        Section("All strengths", "Click a column name to sort.", table(header, rows)),
    ]


def list_stepwise_sections(result: StepwiseResult, names: Sequence[str]) -> list[Section]:
    """The sections of a report of a stepwise selection of columns with these names."""
    shown, criterion = StepwiseDisplay.from_result(result, names), CRITERIA[result.criterion]
    chosen: list[list[Cell]] = [[int(column), names[column]] for column in result.selected]
    doubts = ["", *(result.doubt(place) for place in range(len(result.path)))]
    tips = [
        f"step {k}: {what}\n{shown.n_features[k]} columns\n{criterion}: {format_interval(low, high, 6)}\n{doubts[k]}".rstrip()
        for k, (what, low, high) in enumerate(zip(["start", *shown.moves], shown.lower, shown.upper, strict=True))
        if np.isfinite(high)
    ]
    picture = draw(shown.plot().figure_, shown.title, tips)
    return [
        Section("The criterion along the path", "Hover over a step to see what it did.", picture),
        Section(
            "The path", f"Value: {criterion} after the step, proven to the digits shown.", _list_steps(result, names)
        ),
        Section("Selected features", "Click a column name to sort.", table(["column", "feature"], chosen)),
    ]


def _list_steps(result: StepwiseResult, names: Sequence[str]) -> str:
    rows: list[list[Cell]] = [
        [
            k + 1,
            step.action,
            name_step(step, names) if step.columns else "",
            (float(step.value_lower), float(step.value_upper)),
            step.n_candidates,
            step.n_trainings,
            ", ".join(f"{stage} {number}" for stage, number in step.decided_by.items()),
            result.doubt(k) or "proven",
        ]
        for k, step in enumerate(result.path)
    ]
    return table(["step", "action", "feature", "value", "candidates", "trainings", "decided by", "choice"], rows)
