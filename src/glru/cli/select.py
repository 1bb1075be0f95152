"""``glru select``: stepwise selection of features, every choice proven."""

import time
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

import glru
from glru.cli import inputs, output
from glru.cli.commands import INTERRUPTED
from glru.cli.loocv import describe
from glru.cli.options import DataOptions, LossOptions, OutputOptions, StrengthOptions
from glru.cli.progress import bar
from glru.display.stepwise import NAMES, step_name
from glru.report import stepwise_page

STEPS = 15
"""Steps that are printed."""


def select(
    data: DataOptions,
    loss: LossOptions,
    strength: StrengthOptions,
    out: OutputOptions,
    direction: Annotated[
        Literal["backward", "forward", "both"], typer.Option(help="Whether features are removed, added, or both.")
    ] = "backward",
    method: Annotated[
        Literal["certified", "glru", "naive"],
        typer.Option(help="certified: Newton candidates; glru: the paper's; naive: every candidate is trained."),
    ] = "certified",
    criterion: Annotated[
        Literal["error", "log_loss", "squared_error"] | None,
        typer.Option(help="What is to be smallest; by default error for classes, squared_error for a regression."),
    ] = None,
    validation: Annotated[
        Path | None, typer.Option(help="A file with the validation rows; by default a share of DATA.")
    ] = None,
    share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the rows of DATA set aside for validation.")
    ] = 0.2,
    seed: Annotated[int, typer.Option(help="Chooses the validation rows.")] = 0,
    loo: Annotated[bool, typer.Option("--loo", help="Judge by leave-one-out instead of validation rows.")] = False,
    max_steps: Annotated[int | None, typer.Option(min=0, help="Most steps.")] = None,
    min_features: Annotated[int, typer.Option(min=1, help="Where removing ends.")] = 1,
) -> None:
    """Remove or add features while that makes the model better on validation rows, as training every candidate would."""
    output.check(out, inputs.files_of(inputs.file_of(data), validation))
    begin = time.perf_counter()
    with bar(out.quiet) as report:
        job = inputs.make_job(data, loss, strength, fill=validation is not None)
        rule = criterion or ("error" if job.problem.loss.task == "classification" else "squared_error")
        problem, X_val, y_val = _split(job, data, validation, share, seed, loo)
        encoded = len(set(job.prepared.origins)) < len(job.prepared.origins)
        result = glru.stepwise(
            problem,
            X_val=X_val,
            y_val=y_val,
            direction=direction,
            method=method,
            criterion=rule,
            max_steps=max_steps,
            min_features=min_features,
            groups=job.prepared.origins if encoded else None,
            tol=loss.tol,
            progress=lambda what, done, left: report(what, done, done + left),
        )
    seconds = {"read": job.seconds, "total": time.perf_counter() - begin}
    settings: dict[str, Any] = {
        "direction": direction,
        "method": method,
        "criterion": rule,
        "seed": seed,
        "min_features": min_features,
    }
    settings |= {"max_steps": max_steps, "validation": str(validation) if validation else None}
    settings |= {"validation_rows": None if X_val is None else int(X_val.shape[0])}
    output.deliver(outcome(job, result, settings, seconds), out)
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)


def _split(
    job: inputs.Job, data: DataOptions, validation: Path | None, share: float, seed: int, loo: bool
) -> tuple[glru.Problem, Any, Any]:
    """The training problem and the validation rows."""
    problem = job.problem
    if loo:
        return problem, None, None
    if validation is not None:
        return problem, *inputs.new_labelled_rows(validation, data, job.prepared)
    from sklearn.model_selection import train_test_split

    labels = problem.y if problem.loss.task == "classification" else None
    rows = np.arange(problem.n_rows)
    train, test = train_test_split(rows, test_size=share, random_state=seed, stratify=labels)
    train, test = np.sort(train), np.sort(test)
    part = problem.derive(X=problem.matrix[train], y=problem.y[train], sample_weight=problem.sample_weight[train])
    return part, problem.X[test], problem.y[test]


def outcome(
    job: inputs.Job, result: glru.results.StepwiseResult, settings: dict[str, Any], seconds: dict[str, float]
) -> output.Outcome:
    """The selection in every output format."""
    names = job.prepared.names
    steps: list[dict[str, Any]] = [
        {
            "action": step.action,
            "features": [names[column] for column in step.columns],
            "lower": step.value_lower,
            "upper": step.value_upper,
            "n_candidates": step.n_candidates,
            "n_trainings": step.n_trainings,
            "n_open": step.n_open,
            "proven": proven,
            "decided_by": step.decided_by,
            "seconds": round(step.seconds, 6),
        }
        for step, proven in zip(result.path, result.proven, strict=True)
    ]
    values: dict[str, Any] = {
        "selected": [names[column] for column in result.selected],
        "certified": result.certified,
        "interrupted": result.interrupted,
        "start": {"lower": result.start_value[0], "upper": result.start_value[1]},
        "n_trainings": result.n_trainings,
        "path": steps,
    }
    lines = describe(job)
    judged = (
        "leave-one-out" if settings["validation_rows"] is None else f"{settings['validation_rows']} validation rows"
    )
    lines.append(("judged by", f"{NAMES[result.criterion].split(' (')[0].split(' on ')[0]}, {judged}"))
    lines.append(("start", f"{output.interval(*result.start_value)} with {_start_size(result)} features"))
    for place, step in enumerate(result.path[:STEPS]):
        what = "stop" if step.action == "stop" else f"{step.action} {step_name(step, names)}"
        doubt = result.doubt(place)
        value = output.interval(step.value_lower, step.value_upper)
        lines.append((what, f"{value} ({doubt})" if doubt else value))
    if len(result.path) > STEPS:
        unproven = result.proven[STEPS:].count(False)
        more = f"{len(result.path) - STEPS} more steps"
        lines.append(("...", f"{more}, {unproven} of them not proven" if unproven else more))
    lines.append(("selected", f"{result.selected.size} features"))
    candidates = sum(step.n_candidates for step in result.path)
    lines.append(("trainings", f"{result.n_trainings} of {candidates} candidates"))
    proof = (
        "every choice is that of training all candidates"
        if result.certified
        else f"{result.n_unproven} of {len(result.path)} choices are not proven"
    )
    lines.append(("proof", proof + (", up to the interruption" if result.interrupted else "")))
    lines.append(("time", f"{output.duration(seconds['total'])} in all"))
    columns = {
        key: [step[key] for step in steps]
        for key in ("action", "lower", "upper", "n_candidates", "n_trainings", "n_open", "proven")
    }
    columns["features"] = [", ".join(step["features"]) for step in steps]
    return output.Outcome(
        "select",
        f"Stepwise selection of features of {job.prepared.name}",
        lines,
        job.facts | {"settings": settings},
        values,
        seconds,
        table=lambda: columns,
        display=lambda: glru.display.StepwiseDisplay.from_result(result, names),
        page=lambda: stepwise_page(result, names, job.prepared.name, inputs.provenance(job, describe(job))),
    )


def _start_size(result: glru.results.StepwiseResult) -> int:
    moved = sum(len(step.columns) * {"add": 1, "remove": -1, "stop": 0}[step.action] for step in result.path)
    return int(result.selected.size - moved)
