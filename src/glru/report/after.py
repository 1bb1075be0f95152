"""The report of a change of the training data."""

from collections.abc import Sequence

import numpy as np

from glru.after import After
from glru.bounds import ScoreBounds
from glru.display.after import verdicts_of
from glru.display.intervals import middle, usual_size
from glru.linalg import Array
from glru.losses import Logistic
from glru.report.format import format_count
from glru.report.loocv import DRAWN, LISTED
from glru.report.page import Provenance, Section, cards, page, table
from glru.report.svg import Axis, Mark, around, intervals

KINDS = {1: ("good", "label unchanged"), -1: ("bad", "label changed"), 0: ("open", "label open")}


def after_page(
    out: After, bounds: ScoreBounds, old_scores: Array, names: Sequence[str], data_name: str, origin: Provenance
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
    drawn = order[:DRAWN]
    scores = middle(bounds)
    ranks = np.empty(drawn.size)
    ranks[np.argsort(scores[drawn], kind="stable")] = np.arange(drawn.size)
    marks = [
        Mark(ranks[place], lower[k], upper[k], KINDS[int(verdicts[k])][0], tips[k]) for place, k in enumerate(drawn)
    ]
    unit = "log-odds" if isinstance(out.solution.problem.loss, Logistic) else "score"
    if classification:
        edge = usual_size(bounds)
        y = Axis(-edge, edge, f"retrained score ({unit})")
    else:
        y = around(np.concatenate([lower, upper]).tolist(), "retrained prediction", zero=True)
    legend = {
        kind: f"{name} ({n:,})" for (kind, name), n in zip(KINDS.values(), tally, strict=True) if n and classification
    }
    plot = intervals(Axis(-1.0, drawn.size, "queries, sorted by score"), y, marks, legend)
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
        Section(
            "Retrained scores",
            "Each interval contains the score of the retrained model; the largest scores are drawn at the edge. Hover over one for "
            "details.",
            plot,
        ),
        Section(
            "Queries to inspect",
            "Open labels first, then changed ones. Click a column name to sort.",
            table(header, rows, kinds),
        ),
    ]
    return page(f"The model of {data_name} after the change", summary, cards(numbers), sections, origin)
