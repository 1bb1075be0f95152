"""The sections of reports of a change of the training data, of a regularisation path, and of a stepwise selection."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from glru.bounds import ScoreBounds, predicted
from glru.display import AfterDisplay, RegularizationPathDisplay, StepwiseDisplay
from glru.display.paths import CRITERIA, name_step
from glru.display.scores import find_verdicts, middle, sort_sides
from glru.linalg import Array
from glru.losses import Loss
from glru.model_selection import LOOCVPath
from glru.report.frame import Cell, Section, draw, format_interval, format_number, table
from glru.report.loocv import MAX_LISTED, SIDES, confusion_table, draw_display, list_labels, take_own
from glru.selection import StepwiseResult

KINDS = {1: ("good", "label unchanged"), -1: ("bad", "label changed"), 0: ("open", "label open")}


def list_after_sections(
    loss: Loss, bounds: ScoreBounds, old_scores: Array, names: Sequence[str], classes: Sequence[str] = ("-1", "+1")
) -> list[Section]:
    """The sections of a report of what is proven about some queries, with these ``names``, after a change.

    ``classes``: what -1 and +1 stand for, or all classes of a multinomial model.
    """
    if loss.several:
        return _list_class_sections(bounds, predicted(old_scores), names, classes)
    return _list_score_sections(loss, bounds, old_scores, names, (classes[0], classes[1]))


def _list_class_sections(
    bounds: ScoreBounds, before: NDArray[np.intp], names: Sequence[str], classes: Sequence[str]
) -> list[Section]:
    """The labels of a multinomial model before and after, and the queries whose labels are least certain."""
    text = "Queries by their label before the change (lines) and by that of the retrained model (columns)."
    header = ["query", "label before", "label after", "probability of the label before", "verdict"]
    ends = take_own(bounds, before, True)
    return [
        Section("Labels before and after", text, confusion_table(*bounds.confusion(before), classes, "before")),
        list_labels(bounds, before, classes, ends, names.__getitem__, KINDS, header),
    ]


def _list_score_sections(
    loss: Loss, bounds: ScoreBounds, old_scores: Array, names: Sequence[str], classes: tuple[str, str]
) -> list[Section]:
    """The scores of a model of two classes or a regression before and after, and the queries to inspect."""
    lower, upper = bounds
    labelled = loss.task == "classification"
    verdicts = find_verdicts(bounds, old_scores) if labelled else np.ones(bounds.n_rows, dtype=np.int8)

    def tip(k: int) -> str:
        text = f"query {names[k]}\nbefore {format_number(old_scores[k], 5)}\nafter {format_interval(lower[k], upper[k], 6)}"
        return f"{text}\n{KINDS[int(verdicts[k])][1]}" if labelled else text

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
            KINDS[int(verdicts[k])][1] if classification else float(moves[k]),
        ]
        for k in order
    ]
    what, last = ("score", "verdict") if classification else ("prediction", "moves by at least")
    text = "Open labels first, then changed ones." if classification else "Those that move most first."
    colours = [KINDS[int(verdicts[k])][0] for k in order] if classification else None
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
