"""The page of Table 4."""

from paper.record import Record
from paper.rendering.markdown import duration, factor, heading, percent, span, strength, table
from paper.rendering.shown import Published, Shown

NOTES = """
The paper does not publish which rows validate, so its counts cannot be repeated: a tenth of the rows is drawn here with
each of several seeds, and the range over the seeds is shown (times: first seed). "glru" is the number of trainings of
Algorithm 4, counted from its lower bounds and the certified errors of every removal, without the hours of training; columns of
equal lower bound are taken in the order of their places. Exact-Naive is timed on a random sample of columns and scaled up
(`~`), and Exact-GLRU is its own bounds and as many of those trainings as it counts. "outside": errors of the sampled
trainings that are not within the certified bounds."""


def page(what: Shown) -> list[str]:
    """Counts and times of every dataset."""
    lines = [*NOTES.strip().splitlines(), ""]
    for record in what.records:
        lines += heading(record)
        lines += [*_counts(record, what.published), "", *_times(record, what.published), ""]
    return lines


def _counts(record: Record, published: Published) -> list[str]:
    seeds = record.settings["seeds"]
    rows_left = record.results[0]["validation_rows"]
    header = ["lam", f"errors of {rows_left} before", "after", "paper's", f"trainings: glru, seed {seeds[0]}"]
    header += [f"seeds {span(seeds)}", "share of columns", "paper's", "paper's share", "certified", "undecided columns"]
    rows = []
    for result in record.results:
        paper, runs = published.get((record.dataset, result["log2_lam"])), result["seeds"]
        counts = [end for run in runs for end in run["glru_trainings"]]
        shares = [percent(count / record.data["columns"]) for count in (min(counts), max(counts))]
        rows.append(
            [
                strength(result["log2_lam"]),
                span([run["errors_before"] for run in runs]),
                span([end for run in runs for end in run["errors_after"]]),
                "-" if paper is None else f"{paper['test_errors']:.0f}",
                span(runs[0]["glru_trainings"]),
                span(counts),
                " to ".join(dict.fromkeys(shares)),
                "-" if paper is None else f"{paper['n_trainings']:.0f}",
                "-" if paper is None else percent(paper["trainings_pct"] / 100.0),
                span([run["certified_trainings"] for run in runs]),
                span([run["undecided_columns"] for run in runs]),
            ]
        )
    return table(header, rows)


def _times(record: Record, published: Published) -> list[str]:
    header = [
        "lam",
        "fit",
        "Exact-Naive",
        "Exact-GLRU",
        "paper",
        "its bound",
        "certified",
        "naive / certified",
        "outside",
    ]
    rows = []
    for result in record.results:
        paper, naive = published.get((record.dataset, result["log2_lam"])), result["naive"]
        rows.append(
            [
                strength(result["log2_lam"]),
                duration(result["fit_seconds"]),
                duration(naive["seconds"], naive["extrapolated"]),
                f"{duration(result['glru_seconds'], True)} ({percent(result['glru_seconds'] / naive['seconds'], True)})",
                "-" if paper is None else percent(paper["glru_s"] / paper["naive_s"]),
                duration(result["glru_bound_seconds"]),
                duration(result["certified_seconds"]),
                factor(naive["seconds"] / result["certified_seconds"], naive["extrapolated"]),
                f"{naive['errors_outside']} of {naive['timed']}",
            ]
        )
    return table(header, rows)
