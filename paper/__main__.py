"""``python -m paper``: run the paper's experiments, render their results, fetch their data."""

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from glru._files import refuse_input
from glru.cli import output
from glru.cli.app import spread_options
from glru.cli.output import show_progress
from paper.configuration import Catalogue
from paper.datasets import PAPER
from paper.rendering import render as render_runs
from paper.running import data_in
from paper.running import run as run_experiments
from paper.sources import load, stored

ROOT = Path(__file__).parents[1]
RESULTS, QUICK_RESULTS = ROOT / "docs" / "results", ROOT / "reproduce-quick"
"""Where the results go."""

Quick = Annotated[bool, typer.Option("--quick", help="Small versions, in moments; the results go to reproduce-quick.")]
Out = Annotated[Path | None, typer.Option(help="The folder of the results; by default docs/results.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


def run(
    experiment: Annotated[
        Literal["loocv", "stepwise", "tightness", "costs", "stepwise-behaviour", "beyond", "all"],
        typer.Argument(
            metavar="EXPERIMENT", help="loocv, stepwise, tightness, costs, stepwise-behaviour, beyond or all."
        ),
    ],
    quick: Quick = False,
    data: Annotated[
        Path | None, typer.Option(help="The folder with the datasets, in place of GLRU_DATA; nothing is downloaded.")
    ] = None,
    out: Out = None,
    quiet: Quiet = False,
) -> None:
    """Run the paper's experiments, one JSON file per run."""
    folder = out or (QUICK_RESULTS if quick else RESULTS)
    refuse_input(folder, "--out", [data or os.environ.get("GLRU_DATA")])
    begin = time.perf_counter()
    with show_progress(quiet) as report, data_in(data):
        written, absent = run_experiments(Catalogue(quick), experiment, folder, report)
    if not written:
        raise ValueError("nothing was run: none of the datasets is on this machine. Name their folder with --data.")
    lines = [("run", path.name) for path in written]
    if absent:
        lines.append(("not run", f"{', '.join(absent)}: the data is not on this machine (see: python -m paper data)"))
    lines += [("folder", str(folder)), ("time", output.format_duration(time.perf_counter() - begin))]
    if not quiet:
        output.show(f"Reproduction of the paper: {experiment}", lines)


def render(quick: Quick = False, out: Out = None, quiet: Quiet = False) -> None:
    """Make the tables and pictures of the runs."""
    folder = out or (QUICK_RESULTS if quick else RESULTS)
    written = render_runs(Catalogue(quick), folder)
    if not quiet:
        lines = [("rendered", str(path.relative_to(folder))) for path in written]
        output.show("Reproduction of the paper: tables and pictures", [*lines, ("folder", str(folder))])


def data(
    name: Annotated[str | None, typer.Argument(help="A dataset to fetch; by default all are listed.")] = None,
) -> None:
    """List the paper's datasets, or bring one onto this machine."""
    if name is not None and name not in PAPER:
        raise ValueError(f"a dataset of the paper must be one of {', '.join(PAPER)}; got {name!r}.")
    for entry in PAPER.values() if name is None else [PAPER[name]]:
        if name is not None:
            load(name)
        where = stored(entry) or "to download"
        sys.stdout.write(f"{entry.name:<14}{entry.n_rows:>9,} x {entry.n_columns:<9,}  {entry.site:<7} {where}\n")


app = typer.Typer(
    help="The experiments of the paper, repeated.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for function in (run, render, data):
    app.command()(spread_options(function))

if __name__ == "__main__":
    app()
