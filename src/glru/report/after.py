"""The report of a change of the training data."""

from collections.abc import Sequence

import numpy as np

from glru.after import After
from glru.bounds import ScoreBounds
from glru.display.after import verdicts_of
from glru.linalg import Array
from glru.losses import Logistic
from glru.report.format import format_count
from glru.report.loocv import LISTED, draw_agreement, draw_sides
from glru.report.page import Provenance, Section, cards, page, table
from glru.report.svg import around, intervals

KINDS = {1: ("good", "label unchanged"), -1: ("bad", "label changed"), 0: ("open", "label open")}


def after_page(
    out: After,
    bounds: ScoreBounds,
    old_scores: Array,
    names: Sequence[str],
    data_name: str,
    origin: Provenance,
    classes: tuple[str, str] = ("-1", "+1"),
    comparison: Sequence[str] = (),
) -> str:
    """A report of what is proven about some queries after a change.

    Parameters
    ----------
    out : After
        From :func:`glru.after`.
    bounds : ScoreBounds
        Bounds of the retrained scores of the queries.
    old_scores : array of shape (n_queries,)
        Their scores before the change.
    names : sequence of str
        What the queries are called.
    data_name : str
        What the data is called.
    origin : Provenance
        What is needed to repeat the run.
    classes : tuple of str, default=("-1", "+1")
        What -1 and +1 stand for.
    comparison : sequence of str, default=()
        Sentences that compare the models before and after.

    Returns
    -------
    str
        The HTML page.
    """
    lower, upper = bounds
    classification = out.solution.problem.loss.task == "classification"
    verdicts = verdicts_of(bounds, old_scores) if classification else np.ones(lower.size, dtype=np.int8)
    tally = [int(np.sum(verdicts == verdict)) for verdict in KINDS]
    summary = [
        f"This is what is proven about the model of {data_name} retrained on the changed data, {format_count(out.problem.n_rows, 'row')} and {format_count(out.problem.n_columns, 'column')}."
    ]
    if out.remark is not None:
        summary.append(f"Nothing can be proven: {out.remark}")
    summary += comparison
    numbers = [("queries", f"{lower.size:,}")]
    if classification:
        summary.append(
            f"Of {lower.size:,} queries {tally[0]:,} are proven to keep their label and {tally[1]:,} to change it; "
            f"{tally[2]:,} are open."
        )
        numbers += [(name, f"{number:,}") for (_, name), number in zip(KINDS.values(), tally, strict=True)]
    numbers += [("largest interval", f"{bounds.width.max():.3g}"), ("duality gap at most", f"{out.gap:.3g}")]
    tips = [
        f"query {names[k]}\nbefore {old_scores[k]:.5g}\nafter {lower[k]:.6g} to {upper[k]:.6g}"
        + (f"\n{KINDS[int(verdicts[k])][1]}" if classification else "")
        for k in range(lower.size)
    ]
    order = np.lexsort((np.abs(old_scores), verdicts != -1, verdicts != 0))
    unit = "log-odds" if isinstance(out.solution.problem.loss, Logistic) else "score"
    if classification:
        before = (f"before: {classes[0]}", f"before: {classes[1]}")
        picture = draw_sides(
            bounds,
            old_scores,
            verdicts,
            KINDS,
            before,
            f"retrained score ({unit})",
            "Retrained scores",
            tips.__getitem__,
        )
    else:
        axes = (
            around(old_scores.tolist(), "prediction before"),
            around(np.concatenate([lower, upper]).tolist(), "retrained prediction"),
        )
        marks = draw_agreement(old_scores, bounds, tips.__getitem__)
        text = "Each interval contains the prediction of the retrained model. Hover over one for details."
        picture = Section("Retrained predictions", text, intervals(*axes, marks, {}, line="diagonal"))
    rows = [
        [
            names[k],
            float(old_scores[k]),
            float(lower[k]),
            float(upper[k]),
            KINDS[int(verdicts[k])][1] if classification else "",
        ]
        for k in order[:LISTED]
    ]
    header = ["query", "score before", "after from", "after to", "verdict"]
    kinds = [KINDS[int(verdicts[k])][0] for k in order[:LISTED]]
    sections = [
        picture,
        Section(
            "Queries to inspect",
            "Open labels first, then changed ones. Click a column name to sort.",
            table(header, rows, kinds),
        ),
    ]
    return page(f"The model of {data_name} after the change", summary, cards(numbers), sections, origin)
