"""The page and the picture beyond the paper: exact leave-one-out in units of one fit."""

from typing import Any

from paper.rendering.markdown import duration, factor, table
from paper.rendering.shown import Shown

NOTES = """
Exact leave-one-out of L2-regularised logistic regression, by every method, in units of this library's time for one fit. Time
after the first fit for all but scikit-learn, which fits every time. Trainings are timed on a random sample
and scaled up (`~`). Exact-GLRU and "certified" prove every label; the others trust that their trainings have converged."""

STYLES = {
    "scikit-learn": ("#7570b3", "^"),
    "naive": ("#1b1b1b", "s"),
    "glru": ("#d95f02", "o"),
    "certified": ("#1b9e77", "D"),
}


def page(what: Shown) -> list[str]:
    """The figure, and its numbers."""
    if not what.records:
        return []
    titles = {key: method["title"] for key, method in what.records[0].methods.items()}
    header = [
        "data",
        "size",
        "one fit",
        *titles.values(),
        "trainings: glru",
        "certified",
        "errors",
        "scikit-learn's solver",
    ]
    rows = []
    for record in what.records:
        result = record.results[0]
        methods, fit = result["methods"], result["fit_seconds"]
        errors = methods["certified"]["errors"]
        rows.append(
            [
                record.source["title"],
                f"{record.data['rows']} x {record.data['columns']}",
                duration(fit),
                *(factor(methods[key]["seconds"] / fit, methods[key]["extrapolated"]) for key in titles),
                str(methods["glru"]["trainings"]),
                str(methods["certified"]["trainings"]),
                str(errors[0]) if errors[0] == errors[1] else f"{errors[0]} to {errors[1]}",
                methods["scikit-learn"]["solver"],
            ]
        )
    picture = "![Leave-one-out in units of one fit](figures/beyond.png)"
    lam = f"lam = 2^{what.records[0].results[0]['log2_lam']}."
    return [*NOTES.strip().splitlines(), lam, "", picture, "", *table(header, rows), ""]


def figures(what: Shown) -> dict[str, Any]:
    """One column a dataset, one mark a method; one fit is the line at 1."""
    from matplotlib.figure import Figure

    if not what.records:
        return {}
    figure = Figure(figsize=(1.6 + 1.15 * max(len(what.records), 4), 5.0), layout="constrained")
    panel = figure.subplots()
    for key, (color, marker) in STYLES.items():
        shares = [r.results[0]["methods"][key]["seconds"] / r.results[0]["fit_seconds"] for r in what.records]
        title = what.records[0].methods[key]["title"]
        panel.plot(range(len(shares)), shares, color=color, marker=marker, linewidth=1.0, markersize=7, label=title)
    panel.axhline(1.0, color="0.4", linestyle="--", label="one fit")
    panel.set_yscale("log")
    names = [f"{r.source['title']}\n{r.data['rows']} x {r.data['columns']}" for r in what.records]
    panel.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=9)
    panel.set_ylabel("time of exact leave-one-out (fits)")
    panel.set_title("Exact leave-one-out cross-validation, in units of one fit")
    panel.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    panel.grid(axis="y", alpha=0.3)
    return {"beyond.png": figure}
