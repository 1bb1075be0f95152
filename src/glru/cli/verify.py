"""``glru verify``: a sample of proven held-out scores against models retrained in arbitrary precision."""

import time
from typing import Annotated, Any

import typer

import glru
from glru._budget import Budget
from glru.cli import inputs, output
from glru.cli.commands import REFUTED, TIME_IS_UP
from glru.cli.loocv import describe
from glru.cli.options import DataOptions, FileOptions, LossOptions, MaxSeconds, StrengthOptions
from glru.cli.progress import show_progress


def verify(
    data: DataOptions,
    loss: LossOptions,
    strength: StrengthOptions,
    out: FileOptions,
    sample: Annotated[int, typer.Option(min=1, help="Held-out scores to check: half of them nearest to zero.")] = 20,
    digits: Annotated[int, typer.Option(min=30, help="Digits of the retraining.")] = 50,
    seed: Annotated[int, typer.Option(help="Random seed for the choice of the other half.")] = 0,
    max_seconds: MaxSeconds = None,
) -> None:
    """Check a sample of proven held-out scores against models retrained in arbitrary precision by independent code."""
    output.check(out, inputs.find_files(inputs.find_file(data)))
    begin, budget = time.perf_counter(), Budget(max_seconds)
    with show_progress(out.quiet) as report:
        job = inputs.make_job(data, loss, strength)
        inputs.require_pairs(job)
        result = glru.loocv(job.problem, tol=loss.tol, progress=report, max_seconds=inputs.seconds_left(budget))
        found = glru.verify(
            result,
            job.problem,
            sample=sample,
            digits=digits,
            seed=seed,
            max_seconds=inputs.seconds_left(budget),
            progress=report,
        )
    seconds = {"read": job.seconds, "total": time.perf_counter() - begin}
    settings = {"sample": sample, "digits": digits, "seed": seed}
    output.deliver(make_outcome(job, found, settings, seconds), out)
    if found.n_wrong:
        raise typer.Exit(REFUTED)
    if budget.spent and (found.unchecked or found.undetermined):
        raise typer.Exit(TIME_IS_UP)


def make_outcome(
    job: inputs.Job, found: glru.results.Verification, settings: dict[str, Any], seconds: dict[str, float]
) -> output.Outcome:
    """What was found, in every output format."""
    values: dict[str, Any] = {
        "checked": found.checked,
        "wrong": list(found.wrong),
        "unchecked": found.unchecked,
        "undetermined": found.undetermined,
        "tightest": found.tightest,
        "digits": found.digits,
    }
    lines = describe(job)
    lines.append(("preparation", "fitted once, to all rows; the held-out scores of these columns are checked"))
    lines.append(("checked", f"{found.checked} bounds, by models retrained to {found.digits} digits"))
    lines.append(("wrong", f"{found.n_wrong}" + ("; please report this" if found.n_wrong else "")))
    lines += [("wrong bound", text) for text in found.wrong]
    if found.unchecked:
        lines.append(("not checked", f"{found.unchecked}, for lack of time, precision or an optimum"))
    if found.undetermined:
        lines.append(("without bounds", f"{found.undetermined} numbers"))
    if found.checked:
        lines.append(
            (
                "nearest to an end",
                f"{found.tightest:.3g} of the half-width of its interval (1: in the middle, 0: at the end)",
            )
        )
    lines.append(("time", f"{output.format_duration(seconds['total'])} in all"))
    table = {"wrong": list(found.wrong)}
    return output.Outcome(
        "verify",
        f"Held-out scores of {job.prepared.name} against retraining in {found.digits} digits",
        lines,
        job.facts | {"settings": settings},
        values,
        seconds,
        table=lambda: table,
    )
