"""The report of a change of the training data."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from glru.after import After
from glru.bounds import ScoreBounds, predicted
from glru.display.scores import find_verdicts
from glru.linalg import Array
from glru.losses import Logistic
from glru.report.loocv import MOST_LISTED, confusion_table, draw_agreement, draw_sides, least_certain_table
from glru.report.page import (
    Cell,
    Provenance,
    Section,
    cards,
    draw_intervals,
    fit_axis,
    format_count,
    format_interval,
    format_number,
    page,
    table,
)

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
    told = least_certain_table(bounds, before, classes, True, names.__getitem__, KINDS, header)
    return [
        Section("Labels before and after", text, confusion_table(least, most, classes, "before \\ after")),
        Section(
            "Queries to inspect",
            "Open labels first, then those whose class leads the next one least. Click a column name to sort.",
            told,
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

    if loss.task == "classification":
        before = (f"before: {classes[0]}", f"before: {classes[1]}")
        label = f"retrained score ({'log-odds' if isinstance(loss, Logistic) else 'score'})"
        picture = draw_sides(bounds, old_scores, verdicts, KINDS, before, label, "Retrained scores", tip)
    else:
        picture = _draw_changes(old_scores, bounds, tip)
    return [picture, _list_queries(bounds, old_scores, verdicts, names, loss.task == "classification")]


def _draw_changes(old_scores: Array, bounds: ScoreBounds, tip: Callable[[int], str]) -> Section:
    """By how much the predictions of a regression change."""
    change = ScoreBounds(bounds.lower - old_scores, bounds.upper - old_scores)
    axes = (
        fit_axis(old_scores.tolist(), "prediction before"),
        fit_axis(np.concatenate(change).tolist(), "retrained prediction minus that before", zero=True),
    )
    marks = draw_agreement(old_scores, change, tip)
    note = "" if len(marks) == old_scores.size else " Nearby queries share a mark, which is fainter for fewer queries."
    text = f"By how much each prediction changes; at zero it stays. Hover over one for details.{note}"
    return Section("Change of the predictions", text, draw_intervals(*axes, marks, {}))


def _list_queries(
    bounds: ScoreBounds, old_scores: Array, verdicts: NDArray[np.int8], names: Sequence[str], classification: bool
) -> Section:
    """The queries to inspect: open and changed labels, or the largest moves."""
    lower, upper = bounds
    moves = np.maximum(np.maximum(lower - old_scores, old_scores - upper), 0.0)
    keys = (np.abs(old_scores), verdicts != -1, verdicts != 0) if classification else (-moves,)
    order = np.lexsort(keys)[:MOST_LISTED]
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
