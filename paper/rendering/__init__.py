"""From runs to Markdown pages and pictures."""

from functools import partial
from pathlib import Path
from typing import Any

from glru._files import write_atomically
from paper.configuration import Catalogue
from paper.record import read_records, write_text
from paper.rendering import behaviour, beyond, costs, loocv, stepwise, tightness
from paper.rendering.markdown import origin
from paper.rendering.shown import Shown, shown

PAGES: dict[str, Any] = {
    "loocv": loocv,
    "costs": costs,
    "stepwise": stepwise,
    "stepwise-behaviour": behaviour,
    "tightness-rows": tightness,
    "tightness-columns": tightness,
    "beyond": beyond,
}
"""What shows each experiment: modules with ``page(shown)`` and, where there is a picture, ``figures(shown)``."""

CITATION = (
    "Hanada, Hashimoto, Taji, Takeuchi: Generalized Low-Rank Update: Model Parameter Bounds for Low-Rank Training Data "
    "Modifications, 2023, [arXiv:2306.12670](https://arxiv.org/abs/2306.12670)"
)


def render(catalogue: Catalogue, out: Path) -> list[Path]:
    """Turn the runs of a folder into its pages and pictures.

    Parameters
    ----------
    catalogue : Catalogue
        The experiments.
    out : Path
        The folder of the results.

    Returns
    -------
    list of Path
        What was written.
    """
    records = read_records(out)
    if any(record.quick != catalogue.quick for record in records):
        kind, remedy = ("full", "Leave out --quick") if catalogue.quick else ("quick", "Add --quick")
        raise ValueError(f"{out} holds {kind} runs. {remedy}, or use a folder of its own for each kind (--out).")
    written = []
    for experiment in catalogue.experiments:
        what = shown(catalogue, experiment, records)
        if not what.records:
            continue
        path = out / f"{experiment.name}.md"
        write_text(path, page(what))
        written.append(path)
        if hasattr(PAGES[experiment.name], "figures"):
            written += _draw(PAGES[experiment.name].figures(what), out / "figures")
    return written


def page(what: Shown) -> str:
    """The text of an experiment's page."""
    experiment = what.experiment
    where = f"{experiment.shows} of the paper" if experiment.shows[0].isupper() else experiment.shows
    lines = [f"# {experiment.title} ({where})", "", f"Paper: {CITATION}.", ""]
    lines += [
        f"Repeat it with `python -m paper run {experiment.command}` and `python -m paper render`, which made this page.",
        "",
    ]
    if what.absent:
        lines += [f"Not run, for lack of the data: {', '.join(what.absent)}.", ""]
    lines += [*PAGES[experiment.name].page(what), "## Runs", ""]
    lines += [f"- {record.source['title']}: {origin(record)}" for record in what.records]
    return "\n".join(lines) + "\n"


def _draw(figures: dict[str, Any], folder: Path) -> list[Path]:
    for name, figure in figures.items():
        write_atomically(folder / name, partial(figure.savefig, dpi=110), make_folder=True)
    return [folder / name for name in figures]
