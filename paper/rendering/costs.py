"""The page and the picture of Figure 3: what one training costs in leave-one-out."""

from typing import Any

from paper.record import Record
from paper.rendering.markdown import duration, heading, strength, table
from paper.rendering.shown import Shown

NOTES = """
Mean time of one training, after the removal of one row: (A) Exact-GLRU, which trains only for rows whose label the bound
leaves open, and stops once the label is certain; (B) Exact-Naive, all rows; (B1) of these the rows that the bound decides;
(B2) the others. The same runs as for [Table 3](loocv.md)."""

LINES = (
    ("A", "(A) Exact-GLRU", "#d95f02", "o"),
    ("B", "(B) Exact-Naive, all rows", "#1b1b1b", "s"),
    ("B1", "(B1) rows the bound decides", "#1b9e77", "^"),
    ("B2", "(B2) rows it leaves open", "#7570b3", "v"),
)


def page(what: Shown) -> list[str]:
    """The figure, and its numbers."""
    lines = [*NOTES.strip().splitlines(), "", "![Cost of a training](figures/costs.png)", ""]
    for record in what.records:
        rows = []
        for result in record.results:
            values = costs(result)
            rows.append([strength(result["log2_lam"]), *(duration(values[name]) for name, *_ in LINES)])
        lines += [*heading(record), *table(["lam", *(title for _, title, *_ in LINES)], rows), ""]
    return lines


def costs(result: dict[str, Any]) -> dict[str, float | None]:
    """The four lines at one strength."""
    naive, glru = result["methods"]["naive"], result["methods"]["glru"]
    return {
        "A": glru["mean_seconds"],
        "B": naive["seconds"] / naive["trainings"],
        "B1": naive["mean_seconds_settled"],
        "B2": naive["mean_seconds_open"],
    }


def figures(what: Shown) -> dict[str, Any]:
    """One panel a dataset."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(what.records), 4.6), layout="constrained")
    panels = figure.subplots(1, len(what.records), squeeze=False)[0]
    for panel, record in zip(panels, what.records, strict=True):
        _panel(panel, record)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    panels[0].set_ylabel("mean time of a training (ms)")
    return {"costs.png": figure}


def _panel(panel: Any, record: Record) -> None:
    powers = [result["log2_lam"] for result in record.results]
    for name, title, color, marker in LINES:
        values = [costs(result)[name] for result in record.results]
        points = [(power, 1000.0 * value) for power, value in zip(powers, values, strict=True) if value is not None]
        panel.plot(*zip(*points, strict=True), color=color, marker=marker, markersize=4, label=title)
    panel.set_title(record.source["title"])
    panel.set_xlabel("log2(lam)")
    panel.invert_xaxis()
    panel.set_ylim(bottom=0.0)
    panel.grid(alpha=0.3)
