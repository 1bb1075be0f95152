"""The reports of a change of the training data, of a regularisation path, and of a stepwise selection."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from glru.after import After
from glru.bounds import ScoreBounds, predicted
from glru.display import AfterDisplay, RegularizationPathDisplay, StepwiseDisplay
from glru.display.paths import PATH_CRITERIA, STEP_CRITERIA, name_step
from glru.display.scores import find_verdicts, middle, sort_sides
from glru.linalg import Array
from glru.model_selection import LOOCVPath
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
from glru.report.loocv import MAX_LISTED, SIDES, confusion_table, draw_display, least_certain_table
from glru.selection import StepwiseResult

KINDS = {1: ("good", "label unchanged"), -1: ("bad", "label changed"), 0: ("open", "label open")}


def after_page(
    out: After,
    bounds: ScoreBounds,
    old_scores: Array,
    names: Sequence[str],
    data_name: str,
    origin: Provenance,
    classes: Sequence[str] = ("-1", "+1"),
    comparison: Sequence[str] = (),
    change: str = "",
) -> str:
    """The HTML page of a report of what is proven about some queries, with these ``names``, after a ``change`` in words.

    ``classes``: what -1 and +1 stand for, or all classes of a multinomial model; ``comparison``: sentences that compare the models before and after.
    """
    n_queries, classification = bounds.n_rows, out.solution.problem.loss.task == "classification"
    verdicts = find_verdicts(bounds, old_scores) if classification else np.ones(n_queries, dtype=np.int8)
    tally = [int(np.sum(verdicts == verdict)) for verdict in KINDS]
    summary = [
        f"This is what is proven about the model of {data_name} retrained on the changed data, {format_count(out.problem.n_rows, 'row')} and "
        f"{format_count(out.problem.n_columns, 'column')}{f' ({change})' if change else ''}; the duality gap is at most {out.gap:.3g}."
    ]
    if out.remark is not None:
        summary.append(f"Nothing can be proven: {out.remark}")
    summary += comparison
    numbers = [("queries", f"{n_queries:,}")]
    if classification:
        summary.append(
            f"Of {n_queries:,} queries {tally[0]:,} are proven to keep their label and {tally[1]:,} to change it; "
            f"{tally[2]:,} are open."
        )
        numbers += [(name, f"{number:,}") for (_, name), number in zip(KINDS.values(), tally, strict=True)]
    numbers.append(("largest interval", f"{bounds.width.max():.3g}"))
    sections = (
        _class_sections(bounds, predicted(old_scores), names, classes)
        if out.solution.problem.loss.several
        else _score_sections(out, bounds, old_scores, verdicts, names, (classes[0], classes[1]))
    )
    return page(f"The model of {data_name} after the change", summary, cards(numbers), sections, origin)


def _class_sections(
    bounds: ScoreBounds, before: NDArray[np.intp], names: Sequence[str], classes: Sequence[str]
) -> list[Section]:
    """The labels of a multinomial model before and after, and the queries whose labels are least certain."""
    least, most = bounds.confusion(before)
    known = "All counts are proven." if np.array_equal(least, most) else "Where labels are open, a count has two ends."
    text = f"Queries by their label before the change (lines) and by that of the retrained model (columns). {known}"
    header = ["query", "label before", "label after", "probability of the label before", "verdict"]
    body = least_certain_table(bounds, before, classes, True, names.__getitem__, KINDS, header)
    return [
        Section("Labels before and after", text, confusion_table(least, most, classes, "before \\ after")),
        Section(
            "Queries to inspect",
            "Open labels first, then those whose class leads the next one least. Click a column name to sort.",
            body,
        ),
    ]


def _score_sections(
    out: After,
    bounds: ScoreBounds,
    old_scores: Array,
    verdicts: NDArray[np.int8],
    names: Sequence[str],
    classes: tuple[str, str],
) -> list[Section]:
    """The scores of a model of two classes or a regression before and after, and the queries to inspect."""
    lower, upper = bounds
    loss = out.solution.problem.loss

    def tip(k: int) -> str:
        text = f"query {names[k]}\nbefore {format_number(old_scores[k], 5)}\nafter {format_interval(lower[k], upper[k], 6)}"
        return f"{text}\n{KINDS[int(verdicts[k])][1]}" if loss.task == "classification" else text

    order = np.arange(old_scores.size)
    if loss.task == "classification":
        order = sort_sides(middle(bounds), old_scores)
        title, text, pair = "Retrained scores", SIDES, classes
    else:
        title, pair = "Change of the predictions", None
        text = "By how much each prediction changes; at zero it stays. Hover over one for details."
    display = AfterDisplay.from_bounds(bounds, old_scores, pair)
    picture = Section(title, text, draw_display(display, [tip(int(k)) for k in order]))
    return [picture, _list_queries(bounds, old_scores, verdicts, names, loss.task == "classification")]


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


def path_page(
    path: LOOCVPath, data_name: str, origin: Provenance, as_C: bool = False, remarks: Sequence[str] = ()
) -> str:
    """The HTML page of a report of leave-one-out over strengths of the penalty, shown as ``C = 1 / lam`` where ``as_C``; ``remarks``: more sentences."""
    shown = RegularizationPathDisplay.from_path(path, as_C)
    axis, best = shown.axis, float(shown.lams[shown.best])
    value = format_interval(path.lower[path.best_index], path.upper[path.best_index])
    proof = (
        "No other strength in the list can do better; this is proven."
        if path.certified
        else "The certified intervals overlap, so another strength may do as well or better."
    )
    criterion = PATH_CRITERIA[path.criterion]
    summary = [
        f"Of {format_count(path.lams.size, 'strength')} of the penalty tried on {data_name}, {axis} = {best:.4g} is best by {criterion}: "
        f"{value} under exact leave-one-out cross-validation.",
        proof,
        *remarks,
    ]
    trainings = sum(result.n_trainings for result in path.results)
    numbers = [(f"best {axis}", f"{best:.4g}"), (criterion, value), ("trainings beyond the first", f"{trainings:,}")]
    tips = [
        f"{axis} = {lam:.4g}\n{PATH_CRITERIA[name]}: {format_interval(low, high, 6)}"
        for name, ends in shown.bands.items()
        for lam, low, high in zip(shown.lams, *ends, strict=True)
        if np.isfinite(high)
    ]
    text = "The true value at each strength lies inside its interval. Hover over one for details."
    picture = draw(shown.plot().figure_, shown.title, tips)
    sections = [Section("The criterion at every strength", text, picture)]
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
    sections.append(Section("All strengths", "Click a column name to sort.", table(header, rows)))
    return page(f"Choice of {axis} for {data_name}", summary, cards(numbers), sections, origin)


def stepwise_page(
    result: StepwiseResult, names: Sequence[str], data_name: str, origin: Provenance, remarks: Sequence[str] = ()
) -> str:
    """The HTML page of a report of a stepwise selection of columns with these names; ``remarks``: more sentences for the summary."""
    shown = StepwiseDisplay.from_result(result, names)
    criterion, n_candidates = STEP_CRITERIA[result.criterion], sum(step.n_candidates for step in result.path)
    first, last = format_interval(shown.lower[0], shown.upper[0]), format_interval(shown.lower[-1], shown.upper[-1])
    proof = (
        f"Every choice is proven to be the one that training all {n_candidates:,} candidates would make; "
        f"{result.n_trainings:,} of them were trained."
        if result.certified
        else f"{result.n_unproven:,} of {format_count(len(result.path), 'choice')} are not proven; the table marks them."
    )
    summary = [
        f"The {result.direction} search went from {format_count(int(shown.n_features[0]), 'column')} of {data_name} to "
        f"{int(shown.n_features[-1]):,} in {format_count(len(shown.moves), 'step')}; {criterion}: {first} before, {last} after.",
        proof + (" The search was interrupted." if result.interrupted else ""),
        *remarks,
    ]
    numbers = [
        ("columns selected", f"{result.selected.size:,}"),
        (f"{criterion}, before", first),
        (f"{criterion}, after", last),
        ("candidates trained", f"{result.n_trainings:,} of {n_candidates:,}"),
    ]
    chosen: list[list[Cell]] = [[int(column), names[column]] for column in result.selected]
    doubts = ["", *(result.doubt(place) for place in range(len(result.path)))]
    tips = [
        f"step {k}: {what}\n{shown.n_features[k]} columns\n{criterion}: {format_interval(low, high, 6)}\n{doubts[k]}".rstrip()
        for k, (what, low, high) in enumerate(zip(["start", *shown.moves], shown.lower, shown.upper, strict=True))
        if np.isfinite(high)
    ]
    picture = draw(shown.plot().figure_, shown.title, tips)
    sections = [
        Section("The criterion along the path", "Hover over a step to see what it did.", picture),
        Section(
            "The path", f"Value: {criterion} after the step, proven to the digits shown.", _list_steps(result, names)
        ),
        Section("Selected features", "Click a column name to sort.", table(["column", "feature"], chosen)),
    ]
    return page(f"Stepwise selection of features of {data_name}", summary, cards(numbers), sections, origin)


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
