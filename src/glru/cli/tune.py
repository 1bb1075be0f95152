"""``glru tune``: the strength of the penalty by certified leave-one-out cross-validation."""

import time
from typing import Annotated, Any, Literal

import numpy as np
import typer

import glru
from glru._options import Budget
from glru.cli import inputs, output
from glru.cli.loocv import describe, describe_once, to_sentences
from glru.cli.options import (
    Checkpoint,
    DataOptions,
    LossOptions,
    MaxSeconds,
    OutputOptions,
    StrengthOptions,
    parse_number,
)
from glru.cli.output import show_progress
from glru.linalg import Array
from glru.report import path_page
from glru.report.page import format_interval
from glru.report.quality import constant_value

LAMS, CS = "1e-4:1:9", "1e-2:1e2:9"


def tune(
    data: DataOptions,
    loss: LossOptions,
    out: OutputOptions,
    lam: Annotated[
        str | None,
        typer.Option(help=f"Strengths to try: 1,0.1,0.01 or LOW:HIGH:COUNT (geometric), by default {LAMS}."),
    ] = None,
    C: Annotated[
        str | None, typer.Option("--C", help=f"Values of scikit-learn's C to try instead, for example {CS}.")
    ] = None,
    criterion: Annotated[
        Literal["error", "log_loss", "squared_error"] | None,
        typer.Option(help="What to minimise; by default error for classes, squared_error for a regression."),
    ] = None,
    width: Annotated[
        float | None, typer.Option(help="Refine until every held-out score is known to this width.")
    ] = None,
    checkpoint: Checkpoint = None,
    max_seconds: MaxSeconds = None,
) -> None:
    """Find the best strength of the penalty, proven by exact leave-one-out cross-validation at every strength."""
    output.check(out, inputs.find_files(inputs.find_file(data)), checkpoint)
    if lam is not None and C is not None:
        raise typer.BadParameter("--lam and --C are alternatives; give only one of them.")
    begin, budget = time.perf_counter(), Budget(max_seconds)
    values = parse_grid(C if C is not None else lam or LAMS)
    strength = StrengthOptions(C=1.0) if C is not None else StrengthOptions(lam=1.0)
    with show_progress(out.quiet) as report:
        job = inputs.make_job(data, loss, strength)
        inputs.require_pairs(job)
        path = glru.loocv_path(
            job.problem,
            [1.0 / value for value in values] if C is not None else values,
            criterion=criterion,
            width=width,
            tol=loss.tol,
            progress=_count_strengths(report, len(values), budget),
            checkpoint=checkpoint,
        )
    seconds = {"read": job.seconds, "total": time.perf_counter() - begin}
    output.deliver(make_outcome(job, path, C is not None, width, seconds), out)


def parse_grid(text: str) -> list[float]:
    """Numbers separated by commas, or a geometric grid LOW:HIGH:COUNT."""
    parts = text.split(":")
    if len(parts) == 3 and parts[2].isdigit() and int(parts[2]) > 0:
        low, high = parse_number(parts[0]), parse_number(parts[1])
        if min(low, high) > 0.0:
            return np.geomspace(low, high, int(parts[2])).tolist()
    elif len(parts) == 1:
        values = [parse_number(part) for part in inputs.split_list(text)]
        if values and min(values) > 0.0:
            return values
    raise typer.BadParameter(f"strengths must be above 0, as 1,0.1,0.01 or LOW:HIGH:COUNT; got {text!r}.")


def _count_strengths(report: Any, count: int, budget: Budget) -> Any:
    """A progress report that also names the current strength, and stops the run when the time is up."""
    turn, last = 1, 0

    def report_strength(stage: str, done: int, total: int) -> None:
        nonlocal turn, last
        budget.check()
        turn, last = (turn + 1 if done < last else turn), done
        report(f"strength {min(turn, count)} of {count}: {stage}", done, total)

    return report_strength


def make_outcome(
    job: inputs.Job, path: glru.results.LOOCVPath, as_C: bool, width: float | None, seconds: dict[str, float]
) -> output.Outcome:
    """The path in every output format."""
    name = "C" if as_C else "lam"
    strengths = 1.0 / path.lams if as_C else path.lams
    best = float(strengths[path.best_index])
    facts = job.facts | {"settings": {"criterion": path.criterion, "width": width}}
    facts["model"] = job.facts["model"] | {"lam": None, "C": None}
    values: dict[str, Any] = {
        "strength": name,
        "criterion": path.criterion,
        "best": best,
        "certified": path.certified,
        "n_trainings": sum(result.n_trainings for result in path.results),
        "constant_answer": constant_value(path.criterion, job.problem.y),
        "path": [
            {name: float(value), "lower": low, "upper": high, "n_trainings": result.n_trainings}
            for value, low, high, result in zip(strengths, path.lower, path.upper, path.results, strict=True)
        ],
    }
    model = ("model", f"{job.facts['model']['loss']} loss, {strengths.size} values of {name}")
    lines = [*describe(job)[:-1], model, *describe_once(job)]
    described = list(lines)
    remarks = _make_remarks(job, path, name, strengths)
    lines += _describe_path(path, name, strengths)
    lines += remarks
    lines.append(("trainings", f"{values['n_trainings']} beyond one for each value"))
    lines.append(("time", f"{output.format_duration(seconds['total'])} in all"))
    return output.Outcome(
        "tune",
        f"Choice of {name} for {job.prepared.name} by leave-one-out cross-validation",
        lines,
        facts,
        values,
        seconds,
        table=lambda: {name: strengths, "lower": path.lower, "upper": path.upper},
        display=lambda: glru.display.RegularizationPathDisplay.from_path(path, as_C),
        page=lambda: path_page(
            path, job.prepared.name, inputs.make_provenance(job, described), as_C, to_sentences(remarks)
        ),
    )


def _describe_path(path: glru.results.LOOCVPath, name: str, strengths: Array) -> list[tuple[str, str]]:
    """The criterion at every strength, and the best one."""
    best, shown = float(strengths[path.best_index]), _name_criterion(path)
    lines = []
    for value, low, high in zip(strengths, path.lower, path.upper, strict=True):
        mark = "  <- best" if value == best else ""
        lines.append((f"{name} = {value:.4g}", f"{shown} {format_interval(low, high)}{mark}"))
    proof = (
        "none of the other values can be better"
        if path.certified
        else "the intervals overlap, so the best value is not known"
    )
    return [*lines, ("best", f"{name} = {best:.6g}: {proof}")]


def _name_criterion(path: glru.results.LOOCVPath) -> str:
    return {"error": "errors"}.get(path.criterion, path.criterion.replace("_", " "))


def _make_remarks(job: inputs.Job, path: glru.results.LOOCVPath, name: str, strengths: Array) -> list[tuple[str, str]]:
    """The constant prediction to compare with, and whether the best value is at the end of the grid."""
    found, worth = [], path.upper[path.best_index]
    constant = constant_value(path.criterion, job.problem.y)
    if constant is not None:
        better = "" if worth < constant else "; no value of the list is proven to do better"
        what = (
            f"{_name_criterion(path)} {format_interval(constant, constant)} with the same answer for every row{better}"
        )
        found.append(("constant answer", what))
    best = strengths[path.best_index]
    if path.criterion == "error" and constant is not None and worth >= constant and job.problem.loss.probabilities:
        found.append(("suggestion", "the number of errors cannot distinguish these values; try --criterion log_loss"))
    elif strengths.size > 1 and best in (strengths.min(), strengths.max()):
        end = "smallest" if best == strengths.min() else "largest"
        found.append(("suggestion", f"the best value is the {end} of the list: try a --{name} beyond it"))
    return found
