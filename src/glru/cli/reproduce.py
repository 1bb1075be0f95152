"""``glru reproduce``: the paper's experiments, and what is beyond it."""

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from glru import experiments
from glru._files import refuse_input
from glru.cli import output
from glru.cli.progress import bar
from glru.experiments.running import data_in

RESULTS, QUICK_RESULTS = Path("docs", "results"), Path("reproduce-quick")
"""Where the results go in a source checkout."""


def reproduce(
    experiment: Annotated[
        Literal["loocv", "stepwise", "tightness", "costs", "stepwise-behaviour", "beyond", "all"] | None,
        typer.Argument(
            metavar="EXPERIMENT", help="loocv, stepwise, tightness, costs, stepwise-behaviour, beyond or all."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small versions, in moments; the results go to reproduce-quick.")
    ] = False,
    render: Annotated[
        bool,
        typer.Option("--render", help="Make tables and pictures of the runs (after running EXPERIMENT, if given)."),
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="The folder with the datasets, in place of GLRU_DATA; nothing is downloaded.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the results; by default docs/results of the source checkout.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Run the paper's experiments, one JSON a run, or make their tables and pictures (--render)."""
    if experiment is None and not render:
        raise typer.BadParameter("say what to run, such as loocv or all, or --render to make the tables and pictures.")
    root = experiments.source_tree()
    catalogue = experiments.Catalogue(root / "experiments", quick)
    folder = out or root / (QUICK_RESULTS if quick else RESULTS)
    if experiment is not None:
        refuse_input(folder, "--out", [data or os.environ.get("GLRU_DATA")])
    begin, lines = time.perf_counter(), []
    if experiment is not None:
        with bar(quiet) as report, data_in(data):
            written, absent = experiments.run(catalogue, experiment, folder, report)
        lines += [("run", path.name) for path in written]
        if absent:
            lines.append(("not run", f"{', '.join(absent)}: the data is not on this machine (see: glru data)"))
    if render:
        lines += [("rendered", str(path.relative_to(folder))) for path in experiments.render(catalogue, folder)]
    lines.append(("folder", str(folder)))
    lines.append(("time", output.duration(time.perf_counter() - begin)))
    if not quiet:
        output.show(f"Reproduction of the paper: {experiment or 'tables and pictures'}", lines)
    if not any(name in ("run", "rendered") for name, _ in lines):
        sys.stderr.write(
            "error: nothing was run: none of the datasets is on this machine. Name their folder with --data.\n"
        )
        raise typer.Exit(1)
