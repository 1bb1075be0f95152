"""``glru select`` chooses features by stepwise selection, ``glru tune`` the strength of the penalty by leave-one-out; every choice proven."""

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from sklearn.base import clone

import glru
from glru._options import Budget, Direction, OutOfTime, SearchMethod
from glru._results import format_count, list_some
from glru.bounds import ScoreBounds
from glru.cli import inputs, output
from glru.cli.loocv import FitOnce, describe, describe_once, describe_preparation
from glru.cli.options import (
    Checkpoint,
    DataOptions,
    LossOptions,
    MaxSeconds,
    OutputOptions,
    StrengthOptions,
    parse_number,
)
from glru.cli.output import INTERRUPTED, TIME_IS_UP, show_progress
from glru.display.paths import CRITERIA, name_step
from glru.linalg import Array
from glru.model_selection.loocv import validate_strengths
from glru.report import list_path_sections, list_stepwise_sections
from glru.report.frame import format_interval
from glru.report.quality import measure_baseline, sampling_interval
from glru.selection.criteria import INFORMATION
from glru.sklearn.adapt import adapt_again
from glru.updates.refits import Refits

PRINTED_STEPS, PRINTED_NAMES = 15, 12
"""Steps and names that are printed."""


def select(
    data: DataOptions,
    loss: LossOptions,
    strength: StrengthOptions,
    out: OutputOptions,
    direction: Annotated[Direction, typer.Option(help="Whether features are removed, added, or both.")] = "backward",
    method: Annotated[
        SearchMethod,
        typer.Option(help="certified: Newton candidates; glru: the paper's; naive: every candidate is trained."),
    ] = "certified",
    criterion: Annotated[
        Literal["error", "log_loss", "squared_error", "aic", "bic"] | None,
        typer.Option(
            help="What to minimise; by default error for classes, squared_error for a regression. aic and bic judge by all rows, "
            "without validation rows."
        ),
    ] = None,
    validation: Annotated[
        Path | None, typer.Option(help="A file with the validation rows; by default a share of DATA.")
    ] = None,
    share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the rows of DATA set aside for validation.")
    ] = 0.2,
    seed: Annotated[int, typer.Option(help="Random seed for the choice of the validation rows.")] = 0,
    loo: Annotated[bool, typer.Option("--loo", help="Judge by leave-one-out instead of by validation rows.")] = False,
    max_steps: Annotated[int | None, typer.Option(min=0, help="Largest number of steps.")] = None,
    min_features: Annotated[int, typer.Option(min=1, help="Stop removing at this number of features.")] = 1,
    nested: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="K",
            help="Repeat the whole selection without each of K folds, to estimate the error on unseen rows.",
        ),
    ] = 0,
    checkpoint: Checkpoint = None,
    max_seconds: MaxSeconds = None,
) -> None:
    """Remove or add features while that improves the model on validation rows, exactly as if every candidate were trained."""
    output.check(out, inputs.find_files(inputs.find_file(data), validation), checkpoint)
    if nested == 1 or (nested and validation is not None):
        raise typer.BadParameter("--nested needs at least 2 folds of DATA, and no --validation.")
    if criterion in INFORMATION and (loo or validation is not None):
        raise typer.BadParameter(
            f"--criterion {criterion} judges by the training rows: leave --loo and --validation out."
        )
    begin, budget = time.perf_counter(), Budget(max_seconds)
    with show_progress(out.quiet) as report:
        job = inputs.make_job(data, loss, strength, fill=validation is not None)
        rule = criterion or ("error" if job.problem.loss.task == "classification" else "squared_error")
        on_all_rows = loo or rule in INFORMATION
        if loo:
            inputs.require_pairs(job)
        problem, X_val, y_val = _split(job, data, validation, share, seed, on_all_rows)
        encoded = len(set(job.prepared.origins)) < len(job.prepared.origins)
        options: dict[str, Any] = {
            "direction": direction,
            "method": method,
            "criterion": rule,
            "max_steps": max_steps,
            "min_features": min_features,
            "groups": job.prepared.origins if encoded else None,
            "tol": loss.tol,
        }
        result = glru.stepwise(
            problem,
            X_val=X_val,
            y_val=y_val,
            max_seconds=inputs.seconds_left(budget),
            checkpoint=checkpoint,
            progress=lambda what, done, left: report(what, done, done + left),
            **options,
        )
        unseen, cut = None, result.interrupted
        if nested and not cut:
            with suppress(OutOfTime):
                unseen = estimate_nested_error(job.problem, nested, (share, seed, on_all_rows), options, budget, report)
            cut = unseen is None
    seconds = {"read": job.seconds, "total": time.perf_counter() - begin}
    settings = {name: options[name] for name in ("direction", "method", "criterion", "max_steps", "min_features")}
    settings |= {"seed": seed, "validation": str(validation) if validation else None, "nested": nested}
    settings["validation_rows"] = None if X_val is None else int(X_val.shape[0])
    output.deliver(make_outcome(job, result, job.problem.y if y_val is None else y_val, settings, seconds, unseen), out)
    if cut:
        raise typer.Exit(INTERRUPTED if max_seconds is None else TIME_IS_UP)


def estimate_nested_error(
    problem: glru.Problem, k: int, split: tuple[float, int, bool], options: dict[str, Any], budget: Budget, report: Any
) -> dict[str, Any]:
    """The error on rows that neither selection nor training has seen: the selection is repeated without each of k folds."""
    from sklearn.model_selection import KFold, StratifiedKFold

    share, seed, loo = split
    labelled = problem.loss.task == "classification"
    folds = (StratifiedKFold if labelled else KFold)(k, shuffle=True, random_state=seed)
    total, sizes = 0.0, []
    for fold, (train, test) in enumerate(folds.split(np.zeros(problem.n_rows), problem.y)):
        budget.check()
        part = _take_rows(problem, train)
        fitted, X_val, y_val = (part, None, None) if loo else _hold_out(part, share, seed)
        chosen = glru.stepwise(fitted, X_val=X_val, y_val=y_val, max_seconds=budget.seconds_left, **options).selected
        own = part.derive(X=part.matrix[:, chosen]) if chosen.size < part.n_columns else part
        model = glru.solve(own, tol=options["tol"])
        scores = problem.X[test][:, chosen] @ model.coef.T + model.intercept
        exact = ScoreBounds(scores, scores)
        total += float(exact.errors(problem.y[test])[1] if labelled else np.sum((scores - problem.y[test]) ** 2))
        sizes.append(int(chosen.size))
        report("nested selection", fold + 1, k)
    found: dict[str, Any] = {"folds": k, "n_features": sizes}
    return found | ({"errors": int(total)} if labelled else {"squared_error": total / problem.n_rows})


def _split(
    job: inputs.Job, data: DataOptions, validation: Path | None, share: float, seed: int, loo: bool
) -> tuple[glru.Problem, Any, Any]:
    """The training problem and the validation rows."""
    problem = job.problem
    if loo:
        return problem, None, None
    if validation is not None:
        return problem, *inputs.read_labelled_rows(validation, data, job)
    return _hold_out(problem, share, seed)


def _hold_out(problem: glru.Problem, share: float, seed: int) -> tuple[glru.Problem, Any, Any]:
    """A problem without some of its rows, and these rows."""
    from sklearn.model_selection import train_test_split

    labels = problem.y if problem.loss.task == "classification" else None
    try:
        train, test = train_test_split(np.arange(problem.n_rows), test_size=share, random_state=seed, stratify=labels)
    except ValueError:
        if labels is None:
            raise
        raise ValueError(
            f"every class needs rows to train on and rows to validate on; with {problem.n_rows} rows and --share {share:g} there are too few. Give "
            "another --share, or a file of rows (--validation)."
        ) from None
    train, test = np.sort(train), np.sort(test)
    return _take_rows(problem, train), problem.X[test], problem.y[test]


def _take_rows(problem: glru.Problem, rows: Any) -> glru.Problem:
    return problem.derive(X=problem.matrix[rows], y=problem.y[rows], sample_weight=problem.sample_weight[rows])


def make_outcome(
    job: inputs.Job,
    result: glru.results.StepwiseResult,
    judging: Array,
    settings: dict[str, Any],
    seconds: dict[str, float],
    unseen: dict[str, Any] | None,
) -> output.Outcome:
    """The selection in every output format; ``judging`` are the targets of the validation rows."""
    names, constant = job.prepared.names, None
    if result.criterion not in INFORMATION:
        constant = measure_baseline(result.criterion, judging, left_out=settings["validation_rows"] is None)
    steps = _list_steps(result, names)
    values: dict[str, Any] = {
        "selected": [names[column] for column in result.selected],
        "certified": result.certified,
        "interrupted": result.interrupted,
        "start": {"lower": result.start_value[0], "upper": result.start_value[1]},
        "n_trainings": result.n_trainings,
        "nested": unseen,
        "suggestion": suggest(result),
        "path": steps,
        "constant_answer": constant,
    }
    worth = f"{format_interval(constant, constant)} with the same answer for every row" if constant is not None else ""
    lines = [
        *describe(job),
        *describe_once(job),
        ("judged by", _describe_judge(job, result, settings["validation_rows"])),
        *([("baseline", worth)] if worth else []),
        *_describe_path(job, result),
        ("error on unseen rows", _describe_unseen(job, unseen)),
        *([("suggestion", values["suggestion"])] if values["suggestion"] else []),
        *_describe_proof(result),
        ("time", f"{output.format_duration(seconds['total'])} in all"),
    ]
    keys = ("action", "lower", "upper", "n_candidates", "n_trainings", "n_open", "proven")
    columns = {key: [step[key] for step in steps] for key in keys}
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
        sections=lambda: list_stepwise_sections(result, names),
        prepared=job.prepared,
    )


def _list_steps(result: glru.results.StepwiseResult, names: Sequence[str]) -> list[dict[str, Any]]:
    return [
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


def _describe_judge(job: inputs.Job, result: glru.results.StepwiseResult, n_validation: int | None) -> str:
    rows = "leave-one-out"
    if n_validation is not None:
        rows = f"{n_validation:,} validation rows"
    elif result.criterion in INFORMATION:
        rows = f"all {job.problem.n_rows:,} rows"
    return f"{CRITERIA[result.criterion].split(' (')[0]}, {rows}"


def _describe_path(job: inputs.Job, result: glru.results.StepwiseResult) -> list[tuple[str, str]]:
    """The start, the first steps, and the features that were selected."""
    moved = sum(len(step.columns) * {"add": 1, "remove": -1, "stop": 0}[step.action] for step in result.path)
    columns = format_count(int(result.selected.size - moved), "column")
    lines = [("start", f"{format_interval(*result.start_value)} with {columns}")]
    for place, step in enumerate(result.path[:PRINTED_STEPS]):
        what = "stop" if step.action == "stop" else f"{step.action} {name_step(step, job.prepared.names)}"
        doubt, value = result.doubt(place), format_interval(step.value_lower, step.value_upper)
        lines.append((what, f"{value} ({doubt})" if doubt else value))
    if len(result.path) > PRINTED_STEPS:
        unproven = result.proven[PRINTED_STEPS:].count(False)
        more = f"{len(result.path) - PRINTED_STEPS} more steps"
        lines.append(("...", f"{more}, {unproven} of them not proven" if unproven else more))
    levels = Counter(job.prepared.origins[column] for column in result.selected)
    chosen = [name if count == 1 else f"{name} ({count} levels)" for name, count in levels.items()]
    lines.append(("selected", f"{format_count(len(chosen), 'feature')}: {list_some(chosen, most=PRINTED_NAMES)}"))
    return lines


def _describe_proof(result: glru.results.StepwiseResult) -> list[tuple[str, str]]:
    proof = (
        "every choice is the same as if all candidates were trained"
        if result.certified
        else f"{result.n_unproven} of {len(result.path)} choices are not proven"
    )
    n_candidates = sum(step.n_candidates for step in result.path)
    return [
        ("trainings", f"{result.n_trainings} of {n_candidates} candidates"),
        ("proof", proof + (", up to the interruption" if result.interrupted else "")),
    ]


def suggest(result: glru.results.StepwiseResult) -> str | None:
    """What to try if the number of errors cannot distinguish the features."""
    if result.criterion != "error" or not result.path:
        return None
    first = result.path[0]
    levels = np.unique(first.upper[np.isfinite(first.upper)]).size
    if first.action != "stop" and levels > max(3, first.n_candidates // 4):
        return None
    other = " or --direction forward" if result.direction == "backward" else ""
    shown = "all make the same number of errors" if levels == 1 else f"make only {levels} different numbers of errors"
    return f"the {first.n_candidates} candidates of the first step {shown}, too few to distinguish the features; try --criterion log_loss{other}"


def _describe_unseen(job: inputs.Job, unseen: dict[str, Any] | None) -> str:
    """Say which rows the criterion is about, and the error on unseen rows if it is known."""
    if unseen is None:
        return "unknown: the values above are for the rows that chose the features, and so are optimistic; --nested 5 repeats the selection without each of 5 folds"
    sizes = f"{min(unseen['n_features'])} to {max(unseen['n_features'])} columns"
    if "errors" not in unseen:
        return f"squared error {unseen['squared_error']:.4g} on rows that no selection saw ({unseen['folds']} folds, {sizes}; not certified)"
    n_rows = job.problem.n_rows
    low, high = (f"{100.0 * end:.3g}" for end in sampling_interval(unseen["errors"], unseen["errors"], n_rows))
    return (
        f"{unseen['errors']:,} of {n_rows:,} rows that no selection saw ({100.0 * unseen['errors'] / n_rows:.3g} %; 95 % interval {low} to {high} %; "
        f"{unseen['folds']} folds, {sizes}; trained models, not certified)"
    )


LAMS, CS = "1e-4:1:9", "1e-2:1e2:9"


def tune(
    data: DataOptions,
    loss: LossOptions,
    out: OutputOptions,
    lam: Annotated[
        str | None, typer.Option(help=f"Strengths to try: 1,0.1,0.01 or LOW:HIGH:COUNT (geometric), by default {LAMS}.")
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
    fit_once: FitOnce = False,
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
        if not fit_once:
            job = inputs.refit_steps(job, strength)
        path = validate_strengths(
            partial(_strengthen, job),
            [1.0 / value for value in values] if C is not None else values,
            criterion,
            width,
            loss.tol,
            _count_strengths(report, len(values), budget),
            checkpoint,
        )
    seconds = {"read": job.seconds, "total": time.perf_counter() - begin}
    output.deliver(make_tune_outcome(job, path, C is not None, width, seconds), out)


def _strengthen(job: inputs.Job, lam: float) -> tuple[glru.Problem, Refits | None]:
    """The problem of a job under another strength, and what leaving out a row changes of its preparation."""
    if job.adapted is None:
        return job.problem.derive(penalty=glru.L2(lam)), None
    model = clone(job.adapted.estimator)
    model.set_params(**({"lam": lam} if model.lam is not None else {"C": 1.0 / lam}))
    again = adapt_again(job.adapted, model)
    return again.problems[0], again.refits[0]


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


def make_tune_outcome(
    job: inputs.Job, path: glru.results.LOOCVPath, as_C: bool, width: float | None, seconds: dict[str, float]
) -> output.Outcome:
    """The path in every output format."""
    name = "C" if as_C else "lam"
    strengths = 1.0 / path.lams if as_C else path.lams
    best = float(strengths[path.best_index])
    settings = {"criterion": path.criterion, "width": width}
    facts = job.facts | {"settings": settings | {"fit_once": job.adapted is None, "filled_once": job.filled_once}}
    facts["model"] = job.facts["model"] | {"lam": None, "C": None}
    values: dict[str, Any] = {
        "strength": name,
        "criterion": path.criterion,
        "best": best,
        "certified": path.certified,
        "n_trainings": sum(result.n_trainings for result in path.results),
        "constant_answer": measure_baseline(path.criterion, job.problem.y),
        "path": [
            {name: float(value), "lower": low, "upper": high, "n_trainings": result.n_trainings}
            for value, low, high, result in zip(strengths, path.lower, path.upper, path.results, strict=True)
        ],
    }
    model = ("model", f"{job.facts['model']['loss']} loss, {strengths.size} values of {name}")
    lines = [*describe(job)[:-1], model, ("preparation", describe_preparation(job, path.best))]
    lines += _describe_strengths(path, name, strengths)
    lines += _remark_on_strengths(job, path, name, strengths)
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
        sections=lambda: list_path_sections(path, as_C),
        prepared=job.prepared,
    )


def _describe_strengths(path: glru.results.LOOCVPath, name: str, strengths: Array) -> list[tuple[str, str]]:
    best, lines = float(strengths[path.best_index]), []
    for value, low, high in zip(strengths, path.lower, path.upper, strict=True):
        mark = "  <- best" if value == best else ""
        lines.append((f"{name} = {value:.4g}", f"{_describe_criterion(path, low, high)}{mark}"))
    proof = (
        "none of the other values can be better"
        if path.certified
        else "the intervals overlap, so the best value is not known"
    )
    return [*lines, ("best", f"{name} = {best:.6g}: {proof}")]


def _describe_criterion(path: glru.results.LOOCVPath, low: float, high: float) -> str:
    value = format_interval(low, high)
    return f"{value} errors" if path.criterion == "error" else f"{path.criterion.replace('_', ' ')} {value}"


def _remark_on_strengths(
    job: inputs.Job, path: glru.results.LOOCVPath, name: str, strengths: Array
) -> list[tuple[str, str]]:
    """The baseline to compare with, and whether the best value is at the end of the grid."""
    found, worth = [], path.upper[path.best_index]
    constant = measure_baseline(path.criterion, job.problem.y)
    if constant is not None:
        better = "" if worth < constant else "; no value of the list is proven to do better"
        what = _describe_criterion(path, constant, constant)
        found.append(("baseline", f"{what} with the same answer for every row{better}"))
    best = strengths[path.best_index]
    if path.criterion == "error" and constant is not None and worth >= constant and job.problem.loss.probabilities:
        found.append(("suggestion", "the number of errors cannot distinguish these values; try --criterion log_loss"))
    elif strengths.size > 1 and best in (strengths.min(), strengths.max()):
        end = "smallest" if best == strengths.min() else "largest"
        found.append(("suggestion", f"the best value is the {end} of the list: try a --{name} beyond it"))
    return found
