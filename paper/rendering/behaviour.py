"""The page and the picture of Figure 4: how Algorithm 4 omits trainings."""

from typing import Any

import numpy as np

from glru.linalg import Array
from paper.rendering.markdown import heading, percent, span, strength, table
from paper.rendering.shown import Shown

NOTES = """
Columns in the order in which Algorithm 4 takes them: ascending lower bound of the validation errors without the column
(blue), ties by their places. Orange: the true errors, known without training any (an upper bound for the few
columns that the certified step need not decide). Algorithm 4 trains until the lower bound reaches the least error found so far, and omits the rest (grey). The paper's split is
not published, so where the omission begins differs from its figure; why it begins there is the same."""


def page(what: Shown) -> list[str]:
    """The figure, and where the omission begins."""
    lines = NOTES.strip().splitlines()
    for record in what.records:
        lines += ["", *heading(record), f"![Omitted trainings](figures/behaviour-{record.dataset}.png)", ""]
        header = ["lam", "errors before", "least error of a removal", "trainings", "share of columns"]
        rows = []
        for result in record.results:
            count = result["glru_trainings"]
            least = [int(expanded(result[name]).min()) for name in ("errors_lower", "errors_upper")]
            share = percent(count[1] / result["columns"])
            rows.append([strength(result["log2_lam"]), str(result["errors_before"]), span(least), span(count), share])
        lines += table(header, rows)
    return [*lines, ""]


def expanded(runs: list[list[int]]) -> Array:
    """Whole numbers from pairs of a value and how often it follows itself."""
    values, counts = zip(*runs, strict=True)
    return np.repeat(values, counts)


def figures(what: Shown) -> dict[str, Any]:
    """One figure a dataset, one panel a strength."""
    from matplotlib.figure import Figure

    found = {}
    for record in what.records:
        figure = Figure(figsize=(3.8 * len(record.results), 4.2), layout="constrained")
        panels = figure.subplots(1, len(record.results), squeeze=False, sharey=True)[0]
        for panel, result in zip(panels, record.results, strict=True):
            _panel(panel, result)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
        panels[0].set_ylabel(f"validation errors, of {record.data['rows'] // 10} rows")
        figure.suptitle(f"{record.source['title']}: trainings of the first elimination")
        found[f"behaviour-{record.dataset}.png"] = figure
    return found


def _panel(panel: Any, result: dict[str, Any]) -> None:
    bounds, errors = expanded(result["lower_bounds"]), expanded(result["errors_upper"])
    place, last = np.arange(1, bounds.size + 1), result["glru_trainings"][1]
    panel.axvspan(last + 0.5, bounds.size + 0.5, color="0.88", label="omitted by Algorithm 4")
    panel.step(place, errors, where="mid", color="#ff7f0e", linewidth=0.8, label="true errors")
    panel.step(place, bounds, where="mid", color="#1f77b4", linewidth=2.0, label="lower bounds")
    panel.set_title(f"lam = 2^{result['log2_lam']}: {last} trainings")
    panel.set_xlabel("columns in the order they are taken")
    panel.set_xlim(0.5, bounds.size + 0.5)
    panel.set_ylim(-0.1, max(errors.max(), bounds.max()) + 0.4)
    panel.yaxis.get_major_locator().set_params(integer=True)
