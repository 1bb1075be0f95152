"""The page of Table 3."""

from typing import Any

from paper.record import Record
from paper.rendering.markdown import duration, factor, heading, percent, strength, table
from paper.rendering.shown import Published, Shown

NOTES = """
Times are seconds after the first fit, shares of Exact-Naive in the same run in brackets. The paper's shares are of its
own Exact-Naive, on its machine and with its solver. `~`: some of the trainings were done (a random sample, in equal numbers
of the rows that the paper's bound decides and of the others), the rest is scaled up. Approx-Naive and Approx-GLRU need no
preparation here: what takes the paper hours (inverting a matrix of all columns) is a system of as many unknowns as there
are rows, and part of the time shown. "labels that differ": held-out labels of an exact method, of those computed, that
are not the certified ones. "no early stop": Exact-GLRU without Remark 3, its bounds and as many full trainings."""


def page(what: Shown) -> list[str]:
    """Counts and times of every dataset."""
    lines = [*NOTES.strip().splitlines(), ""]
    for record in what.records:
        lines += heading(record)
        lines += [*_counts(record, what.published), "", *_times(record, what.published), ""]
    return lines


def _counts(record: Record, published: Published) -> list[str]:
    header = ["lam", "errors: naive", "glru", "certified", "trainings: naive", "glru", "paper's glru", "difference"]
    header += ["certified", "labels that differ: naive", "glru"]
    rows = []
    for result in record.results:
        methods, paper = result["methods"], published.get((record.dataset, result["log2_lam"]))
        ours = methods["glru"]["trainings"]
        told = ["-", "-"] if paper is None else [f"{paper['n_trainings']:.0f}", f"{ours - paper['n_trainings']:+.0f}"]
        rows.append(
            [
                strength(result["log2_lam"]),
                *(_errors(methods[name]) for name in ("naive", "glru", "certified")),
                str(methods["naive"]["trainings"]),
                str(ours),
                *told,
                str(methods["certified"]["trainings"]),
                *(_differ(methods[name]) for name in ("naive", "glru")),
            ]
        )
    return table(header, rows)


def _errors(method: dict[str, Any]) -> str:
    return "-" if method["errors"] is None else str(method["errors"])


def _differ(method: dict[str, Any]) -> str:
    sampled = f" of {method['timed']} timed" if method["extrapolated"] else ""
    return f"{method['labels_that_differ']}{sampled}"


def _times(record: Record, published: Published) -> list[str]:
    header = ["lam", "fit", "Exact-Naive", "Exact-GLRU", "paper", "no early stop", "its bound", "Approx-Naive", "paper"]
    header += ["Approx-GLRU", "paper", "certified", "naive / certified"]
    rows = []
    for result in record.results:
        methods, paper = result["methods"], published.get((record.dataset, result["log2_lam"]))
        naive, certified = methods["naive"], methods["certified"]
        cells = [strength(result["log2_lam"]), duration(result["fit_seconds"])]
        cells.append(duration(naive["seconds"], naive["extrapolated"]))
        for name, column in (("glru", "glru_exact_s"), ("approx", "naive_approx_s"), ("approx-glru", "glru_approx_s")):
            guessed = naive["extrapolated"]
            share = percent(methods[name]["seconds"] / naive["seconds"], guessed)
            cells.append(f"{duration(methods[name]['seconds'], methods[name].get('extrapolated', False))} ({share})")
            cells.append("-" if paper is None else percent(paper[column] / paper["naive_exact_s"]))
            if name == "glru":
                full = methods[name]["bound_seconds"] + methods[name]["trainings"] * (naive["mean_seconds_open"] or 0.0)
                cells.append(f"{duration(full, guessed)} ({percent(full / naive['seconds'], guessed)})")
                cells.append(duration(methods[name]["bound_seconds"]))
        share = percent(certified["seconds"] / naive["seconds"], naive["extrapolated"])
        cells.append(f"{duration(certified['seconds'])} ({share})")
        cells.append(factor(naive["seconds"] / certified["seconds"], naive["extrapolated"]))
        rows.append(cells)
    return table(header, rows)
