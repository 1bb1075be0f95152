"""``glru loocv``: exact leave-one-out cross-validation of a dataset or a file."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import typer

import glru
from glru._options import BoundName, Budget, LOOCVMethod
from glru._results import format_count, list_some
from glru.bounds import ScoreBounds, predicted
from glru.cli import inputs, output
from glru.cli.options import Checkpoint, DataOptions, LossOptions, MaxSeconds, OutputOptions, StrengthOptions
from glru.cli.output import TIME_IS_UP, show_progress
from glru.model_selection.checkpoint import Checkpoint as Store
from glru.model_selection.loocv import ensure_trained
from glru.report import list_loocv_sections
from glru.report.frame import format_interval
from glru.report.quality import (
    auc_caveat,
    coefficients_section,
    count_baseline_errors,
    describe_metric,
    list_metrics,
    measure_baseline,
    name_metric,
    sampling_interval,
)
from glru.report.sections import STAGE_NAMES, describe_open
from glru.sklearn.drop_ins import loocv_adapted

LISTED_ROWS, MAX_COLUMNS = 20, 2000
"""Number of rows in the report's influence table, and the largest number of columns for which it is made."""

CLASS_WIDTH = 1e-4
"""Default width of the scores of more than two classes."""

BRUTE_FORCE_TOL = 1e-9
"""Relative gap of the models that ``--verify`` retrains: their scores are off by about its square root."""

NOTES = {
    "certified": "all held-out numbers hold for the exactly retrained models",
    "glru": "all held-out numbers hold for the exactly retrained models",
    "naive": "nothing is proven: the scores are those of the trained models",
    "approx": "nothing is proven: the scores are those of one Newton step per row",
    "approx-glru": "labels decided by carry are proven, the others are approximate",
}


FitOnce = Annotated[
    bool,
    typer.Option(
        "--fit-once",
        help="Fit scales, filled values and encodings once, to all rows, as the paper does; by default they are fitted again "
        "without each row, and missing values are filled by the mean. Methods that follow the paper fit once.",
    ),
]


def loocv(
    data: DataOptions,
    loss: LossOptions,
    strength: StrengthOptions,
    out: OutputOptions,
    method: Annotated[
        LOOCVMethod,
        typer.Option(
            help="certified: bounds, and training where they do not decide; glru: the paper's algorithm; naive: retrain for "
            "every row; approx: one Newton step per row, unproven."
        ),
    ] = "certified",
    bound: Annotated[BoundName, typer.Option(help="Which bounds may decide.")] = "auto",
    width: Annotated[
        float | None, typer.Option(help="Refine until every held-out score is known to this width.")
    ] = None,
    verify: Annotated[
        int, typer.Option(metavar="N", min=0, help="Retrain without each of N random rows, and compare.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Random seed for the choice of the rows of --verify.")] = 0,
    fit_once: FitOnce = False,
    checkpoint: Checkpoint = None,
    max_seconds: MaxSeconds = None,
) -> None:
    """Run exact leave-one-out cross-validation: predict each row by a model trained without it."""
    output.check(out, inputs.find_files(inputs.find_file(data)), checkpoint)
    begin, budget = time.perf_counter(), Budget(max_seconds)
    fit_once = fit_once or method not in ("certified", "naive")
    with show_progress(out.quiet) as report:
        job = inputs.make_job(data, loss, strength)
        inputs.require_pairs(job)
        if not fit_once:
            job = inputs.refit_steps(job, strength)
        options: dict[str, Any] = {"method": method, "bound": bound, "width": width, "tol": loss.tol}
        limit: dict[str, Any] = {} if max_seconds is None else {"max_seconds": inputs.seconds_left(budget)}
        stored = None if checkpoint is None else Store(checkpoint)
        solution = ensure_trained(job.problem, loss.tol, stored)
        fit = time.perf_counter() - begin - job.seconds
        if job.adapted is None:
            result = glru.loocv(solution, progress=report, checkpoint=stored, **options, **limit)
        else:
            labels_only = job.is_large and width is None and job.problem.loss.task == "classification"
            asked: dict[str, Any] = options | ({"width": "labels"} if labels_only else {})
            if job.problem.loss.several and width is None:
                # Rows are taken one by one there: narrow intervals cost next to nothing more than labels.
                asked["width"] = CLASS_WIDTH
            result = loocv_adapted(job.adapted, [solution], progress=report, checkpoint=stored, **asked, **limit)
        if result.problem.loss.several:
            result = replace(result, known_classes=np.array(job.prepared.targets.classes))
        seconds = {"read": job.seconds, "train": fit} | result.seconds
        check = retrain_rows(job, result, verify, seed, budget, report) if verify else None
    if check:
        seconds["verify"] = check["seconds"]
    seconds["total"] = time.perf_counter() - begin
    output.deliver(make_outcome(job, solution, result, options, check, seconds, budget), out)
    if max_seconds is not None and result.n_undetermined and seconds["total"] >= max_seconds:
        raise typer.Exit(TIME_IS_UP)


def retrain_rows(
    job: inputs.Job, result: glru.results.LOOCVResult, count: int, seed: int, budget: Budget, report: Any
) -> dict[str, Any]:
    """Retrain from scratch without each of ``count`` random rows, until the time is up, and compare."""
    problem = job.problem
    count = min(count, problem.n_rows)
    rows = np.random.default_rng(seed).choice(problem.n_rows, count, replace=False)
    begin, scores = time.perf_counter(), np.empty((count, *result.bounds.lower.shape[1:]))
    for k, row in enumerate(rows):
        if budget.spent:
            rows, scores, count = rows[:k], scores[:k], k
            break
        own = problem.without(rows[k : k + 1]) if job.adapted is None else job.adapted.without(0, int(row))
        model = glru.solve(own, tol=BRUTE_FORCE_TOL)
        scores[k] = model.scores[row]
        report("brute force", k + 1, count)
    seconds = time.perf_counter() - begin
    lower, upper = result.score_lower[rows], result.score_upper[rows]
    outside = np.maximum(np.maximum(lower - scores, scores - upper), 0.0)
    furthest = float(outside.max()) if count else None
    found: dict[str, Any] = {"rows": count, "largest_distance_outside": furthest, "seconds": seconds}
    if result.labels is not None:
        known = result.bounds.take(rows)
        found["labels_compared"] = int(known.decided.sum())
        found["labels_that_agree"] = int(np.sum((predicted(scores) == known.predicted)[known.decided]))
    return found


def make_outcome(
    job: inputs.Job,
    solution: glru.Solution,
    result: glru.results.LOOCVResult,
    options: dict[str, Any],
    check: dict[str, Any] | None,
    seconds: dict[str, float],
    budget: Budget,
) -> output.Outcome:
    """The result of leave-one-out in every output format."""
    problem, facts = (
        job.problem,
        job.facts | {"settings": options | {"fit_once": job.adapted is None, "filled_once": job.filled_once}},
    )
    metrics = list_metrics(result)
    values: dict[str, Any] = {
        "certified": result.certified,
        "errors": None,
        "undetermined": result.n_undetermined,
        "wider_than_asked": result.decided_by.get("wide", 0),
        "limited": int(np.sum(result.limited)),
        "n_trainings": result.n_trainings,
        "n_refits": result.n_refits,
        "decided_by": result.decided_by,
        "metrics": {name: {"lower": low, "upper": high} for name, (low, high) in metrics.items()},
        "verify": check,
    }
    lines = [*describe(job), ("preparation", describe_preparation(job, result))]
    if problem.loss.task == "classification":
        values["errors"] = {"lower": result.errors_lower, "upper": result.errors_upper}
        sampled = sampling_interval(result.errors_lower, result.errors_upper, problem.n_rows)
        values["errors_interval_95"] = dict(zip(("lower", "upper"), sampled, strict=True))
        lines += describe_errors(job, result)
    values["constant_answer"] = _measure_baseline(job)
    if problem.loss.task == "classification":
        values["roc_auc_caveat"] = None if problem.loss.several else auc_caveat(result)
    lines += _describe_result(job, result, metrics, check)
    lines.append(("time", f"{output.format_duration(seconds['total'] - seconds.get('verify', 0.0))} in all"))
    return output.Outcome(
        "loocv",
        f"Leave-one-out cross-validation of {job.prepared.name}",
        lines,
        facts,
        values,
        seconds,
        table=lambda: make_table(job, result),
        display=lambda: (
            glru.display.ConfusionDisplay.from_result(result, job.prepared.ids)
            if result.problem.loss.several
            else glru.display.LOOCVDisplay.from_result(result, find_pair(job))
        ),
        sections=lambda: [
            *list_loocv_sections(
                result, find_pair(job), job.prepared.ids, None if result.unbounded else _rank_rows(solution, budget)
            ),
            _make_coefficients_section(job, solution),
        ],
        prepared=job.prepared,
    )


def _describe_result(
    job: inputs.Job,
    result: glru.results.LOOCVResult,
    metrics: dict[str, tuple[float, float]],
    check: dict[str, Any] | None,
) -> list[tuple[str, str]]:
    """Metrics, stages, trainings, and what is proven."""
    lines = []
    for name, ends in metrics.items():
        remark = describe_metric(result, name, find_pair(job))
        lines.append((name_metric(name), f"{format_interval(*ends)} ({remark})" if remark else format_interval(*ends)))
    stages = ", ".join(f"{STAGE_NAMES.get(stage, stage)} {n}" for stage, n in result.decided_by.items())
    n_rows = job.problem.n_rows
    lines.append(("decided by", stages))
    lines.append(("trainings", f"{result.n_trainings} beyond the first; brute force needs {n_rows:,}"))
    note = "nothing is proven: no held-out score has a bound" if result.unbounded else NOTES[result.method]
    lines.append(("proof", "; ".join([note, *describe_open(result)])))
    if result.limit is not None:
        lines.append(("limit", f"{format_count(int(np.sum(result.limited)), 'row')} given up: {result.limit}"))
    if check:
        lines.append(("brute force", _describe_check(check)))
    return lines


def find_pair(job: inputs.Job) -> tuple[str, str] | None:
    """What -1 and +1 stand for; None for a regression or more than two classes."""
    classes = job.prepared.targets.classes
    return (classes[0], classes[1]) if classes is not None and len(classes) == 2 else None


def _rank_rows(solution: glru.Solution, budget: Budget) -> glru.results.Ranking | None:
    """The rows without which the model changes most; None where that is not known from one factor of a Hessian over the columns."""
    problem = solution.problem
    smooth = problem.loss.self_concordance is not None and problem.penalty.smooth
    if problem.loss.several or not smooth or problem.n_columns > MAX_COLUMNS or budget.spent:
        return None
    return glru.influence(solution, width=0.1, max_seconds=budget.seconds_left).top(min(LISTED_ROWS, problem.n_rows))


def _make_coefficients_section(job: inputs.Job, solution: glru.Solution) -> Any:
    """The section on the coefficients of the model of all rows."""
    scaler = job.prepared.transformer.named_steps.get("scale")
    lower, upper = glru.after(solution, glru.RemoveRows([])).coef_bounds()
    units = None if scaler is None else scaler.scale_
    names, odds = job.prepared.names, job.problem.loss.probabilities
    if lower.ndim == 1:
        return coefficients_section(names, lower, upper, units, odds)
    names = tuple(f"{name}, {label}" for label in job.prepared.targets.classes or () for name in names)
    units = None if units is None else np.tile(units, lower.shape[0])
    return coefficients_section(names, lower.ravel(), upper.ravel(), units, odds)


def describe_steps(job: inputs.Job) -> str:
    """What was done to the columns."""
    prepared = job.prepared
    done = [
        "missing values filled" if prepared.imputed and not job.filled_once else "",
        "text encoded" if set(prepared.names) != set(prepared.origins) else "",
        "columns scaled" if prepared.normalize != "none" else "",
    ]
    return ", ".join(part for part in done if part)


def describe_once(job: inputs.Job) -> list[tuple[str, str]]:
    """A line saying that the columns were prepared once, for commands that do not refit the preparation."""
    what = describe_steps(job)
    return [("preparation", f"{what}: fitted once, to all rows of the data")] if what else []


def describe_preparation(job: inputs.Job, result: glru.results.LOOCVResult) -> str:
    """What was done to the columns, and whether it was fitted again without each row."""
    what = describe_steps(job)
    once = "missing values filled once, by all rows, the held-out row among them, because refilling them without each row would take too long for this many rows"
    if not what:
        return once if job.filled_once else "none"
    if job.adapted is None:
        why = (
            "; refitting without each row would take too long for this many rows"
            if job.is_large and job.problem.loss.several
            else ""
        )
        return f"{what}: fitted once, to all rows, the held-out row among them{why}"
    alone = f" ({result.n_refits} of them one at a time: {result.refit_reason})" if result.n_refits else ""
    return f"{f'{once}; ' if job.filled_once else ''}{what}: refitted without each row{alone}"


def _measure_baseline(job: inputs.Job) -> dict[str, Any]:
    """The result of the baseline, which uses no column."""
    y, classes = job.problem.y, job.prepared.targets.classes
    if classes is None:
        return {"squared_error": measure_baseline("squared_error", y)}
    places = y.astype(np.intp) if len(classes) > 2 else (y > 0.0).astype(np.intp)
    # Of two equally frequent classes the second one.
    counts = np.bincount(places, minlength=len(classes))[::-1]
    found = {"class": classes[len(classes) - 1 - int(counts.argmax())], "errors": count_baseline_errors(y)}
    scores = ("log_loss", "brier") if job.problem.loss.probabilities or job.problem.loss.several else ()
    return found | {name: measure_baseline(name, y) for name in scores}


def describe_errors(job: inputs.Job, result: glru.results.LOOCVResult) -> list[tuple[str, str]]:
    """The held-out errors with their sampling interval, and those of the baseline."""
    n_rows, least, most = job.problem.n_rows, result.errors_lower, result.errors_upper
    share = format_interval(100.0 * least / n_rows, 100.0 * most / n_rows)
    low, high = (f"{100.0 * end:.3g}" for end in sampling_interval(least, most, n_rows))
    constant = _measure_baseline(job)
    count = constant["errors"]
    better = (
        ""
        if most < count
        else ": the model's labels are no better, so judge it by its probabilities"
        if least >= count and job.problem.loss.probabilities
        else ": the model's labels are no better"
        if least >= count
        else ": not proven to be worse"
    )
    return [
        (
            "held-out errors",
            f"{format_interval(least, most)} of {n_rows:,} rows ({share} %; 95 % interval {low} to {high} %)",
        ),
        (
            "baseline",
            f"{count:,} errors ({100.0 * count / n_rows:.3g} %) with {constant['class']} for every row{better}",
        ),
    ]


def _describe_check(check: dict[str, Any]) -> str:
    if not check["rows"]:
        return "no model was retrained: the time was up"
    text = f"{check['rows']} models retrained in {output.format_duration(check['seconds'])}"
    if "labels_compared" in check:
        text += f", {check['labels_that_agree']} of {check['labels_compared']} labels agree"
    return (
        f"{text}; trained to a relative gap of {BRUTE_FORCE_TOL:g}, their scores lie at most "
        f"{check['largest_distance_outside']:.1g} outside the intervals"
    )


def describe(job: inputs.Job) -> list[tuple[str, str]]:
    """Describe data and model in words."""
    data, model = job.facts["data"], job.facts["model"]
    classes = f", regression of {data['target']}" if data["target"] else ""
    if data["classes"] is not None:
        two = find_pair(job)
        classes = f", {two[1]} against {two[0]}" if two else f", {len(data['classes'])} classes"
    normalised = {"none": "as they are", "dense": "standardised", "sparse": "scaled"}[data["normalize"]]
    strength = f"C = {model['C']:g}" if model["C"] is not None else f"lam = {model['lam']:g}"
    kappa = f", kappa = {model['kappa']:g}" if model["kappa"] else ""
    intercept, left_out = "with" if model["intercept"] else "without", job.check.left_out
    gone = list_some(left_out, lambda name: f"{name!r} ({left_out[name]})", 6)
    return [
        ("data", f"{data['rows']:,} rows x {data['columns']:,} columns, {normalised}{classes}"),
        *([("left out", f"{gone}; --keep COLUMN uses one anyway")] if left_out else []),
        *job.check.notes,
        ("model", f"{model['loss']} loss, {strength}{kappa}, {intercept} intercept"),
    ]


def make_table(job: inputs.Job, result: glru.results.LOOCVResult) -> dict[str, Any]:
    """The columns of ``--out``, one entry per row."""
    columns: dict[str, Any] = {"row": np.arange(job.problem.n_rows)}
    if job.prepared.ids:
        columns["id"] = list(job.prepared.ids)
    if result.labels is None:
        columns["y"] = job.problem.y
    elif result.problem.loss.several:
        names, y = job.prepared.targets.classes or (), result.y.astype(np.intp)
        found = make_class_columns(names, result.bounds)
        columns |= {"class": [names[k] for k in y], "held_out_class": found.pop("class")}
        columns["verdict"] = VERDICTS[result.bounds.verdicts(y)].tolist()
        columns |= found
    else:
        pair = find_pair(job)
        columns["y"] = job.problem.y
        columns["class"] = output.name_classes(pair, np.sign(job.problem.y))
        columns["label"] = result.bounds.signs
        columns["held_out_class"] = output.name_classes(pair, result.bounds.signs)
        columns["verdict"] = VERDICTS[result.bounds.verdicts(job.problem.y)].tolist()
    if not result.problem.loss.several:
        columns |= {"score_lower": result.score_lower, "score_upper": result.score_upper}
        columns |= output.bound_probabilities(job.problem, result.bounds)
    columns["decided_by"] = result.stages.tolist()
    return columns


VERDICTS = np.array(["undetermined", "correct", "wrong"])
"""The words for verdicts 0, 1 and -1."""


def make_class_columns(classes: Sequence[str], bounds: ScoreBounds) -> dict[str, Any]:
    """Columns of ``--out`` with more than two classes: the proven label, and the probability of every class."""
    lower, upper = bounds.probabilities()
    columns: dict[str, Any] = {
        "class": [classes[k] if known else None for k, known in zip(bounds.predicted, bounds.decided, strict=True)]
    }
    for k, name in enumerate(classes):
        columns |= {f"probability_lower_{name}": lower[:, k], f"probability_upper_{name}": upper[:, k]}
    return columns
