"""``glru whatif``: what a model becomes when rows or columns come or go, without retraining it."""

import time
from functools import reduce
from operator import add
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import glru
from glru._options import BoundName, Budget, CandidateName
from glru._results import format_count, list_some
from glru.bounds import ScoreBounds, predicted
from glru.cli import inputs, output
from glru.cli.loocv import describe, describe_once, find_pair, make_class_columns
from glru.cli.options import Checkpoint, DataOptions, LossOptions, MaxSeconds, OutputOptions, StrengthOptions
from glru.cli.output import show_progress
from glru.display.scores import find_verdicts
from glru.linalg import Array, RawMatrix
from glru.model_selection.checkpoint import Checkpoint as Store
from glru.model_selection.loocv import ensure_trained
from glru.report import list_after_sections
from glru.report.frame import format_interval, format_move
from glru.report.quality import name_metric
from glru.solvers import train

MAX_PRINTED = 10
"""At most this many coefficients and names are printed."""


def whatif(
    data: DataOptions,
    loss: LossOptions,
    strength: StrengthOptions,
    out: OutputOptions,
    remove_rows: Annotated[
        str, typer.Option(help="Rows to remove by position, counted from 0: 3,17,20:30 (20 to 29).")
    ] = "",
    remove_ids: Annotated[
        str, typer.Option(help="Rows to remove by id: P01456,P01460, or a file with one id per line (see --id).")
    ] = "",
    add_rows: Annotated[
        Path | None, typer.Option(help="A file with rows to add, in the columns of DATA and with its target.")
    ] = None,
    remove_columns: Annotated[
        str, typer.Option(help="Columns to remove by name, separated by commas, as for --drop.")
    ] = "",
    query: Annotated[
        Path | None, typer.Option(help="A file with rows to predict; by default the training rows that remain.")
    ] = None,
    bound: Annotated[BoundName, typer.Option(help="Which bounds are used.")] = "auto",
    candidate: Annotated[CandidateName, typer.Option(help="carry: the old model, quickest; newton: tighter.")] = "auto",
    retrain: Annotated[bool, typer.Option("--retrain", help="Retrain as well, and compare.")] = False,
    checkpoint: Checkpoint = None,
    max_seconds: MaxSeconds = None,
) -> None:
    """Show what is proven about the model that retraining on changed data would give."""
    output.check(out, inputs.find_files(inputs.find_file(data), add_rows, query), checkpoint)
    if not (remove_rows or remove_ids or add_rows or remove_columns):
        raise typer.BadParameter("say what changes: --remove-rows, --remove-ids, --add-rows or --remove-columns.")
    begin, budget = time.perf_counter(), Budget(max_seconds)
    with show_progress(out.quiet):
        job = inputs.make_job(data, loss, strength, fill=True)
        removed = sorted({*parse_positions(remove_rows, job.problem.n_rows), *find_rows(job, remove_ids)})
        change, kept_columns = _make_change(job, data, removed, add_rows, remove_columns)
        store = None if checkpoint is None else Store(checkpoint)
        solution = ensure_trained(job.problem, loss.tol, store)
        fit = time.perf_counter()
        after = glru.after(solution, change, candidate=candidate, bound=bound, max_seconds=inputs.seconds_left(budget))
        if store is not None and candidate != "carry" and after.remark is None:
            after = _keep_model(after, store, loss.tol, budget)
        X, names, strange = _read_queries(job, data, query, removed)
        old = X @ solution.coef.T + solution.intercept
        queries = X if len(kept_columns) == X.shape[1] else X[:, kept_columns]
        bounds = after.score_bounds(queries)
        done = time.perf_counter()
        model = after.retrain(tol=loss.tol) if retrain else None
        new = None if model is None else queries @ model.coef.T + model.intercept
    seconds = {"read": job.seconds, "train": fit - begin - job.seconds, "bounds": done - fit}
    if model is not None:
        seconds["retrain"] = time.perf_counter() - done
    seconds["total"] = time.perf_counter() - begin
    settings: dict[str, Any] = {
        "remove_rows": removed,
        "unknown_categories": strange,
        "add_rows": str(add_rows) if add_rows else None,
    }
    settings |= {"remove_columns": inputs.split_list(remove_columns), "query": str(query) if query else None}
    settings |= {"bound": bound, "candidate": candidate}
    y = None if query is not None else np.delete(job.problem.y, removed)
    compared = compare(job, solution, after, kept_columns, (old, bounds), y, names)
    output.deliver(make_outcome(job, after, names, (old, bounds, new), compared, settings, seconds), out)


def _keep_model(after: glru.results.After, store: Store, tol: float, budget: Budget) -> glru.results.After:
    """The answer at a trained model of the changed problem, which is stored in a checkpoint or read from it."""

    def fit() -> glru.Solution:
        return train(after.problem, tol=tol, start=after.point, budget=budget)

    model = store.solution(after.problem, tol, fit)
    return glru.after(
        model, glru.RemoveRows([]), after.part.candidate, after.part.bound, max_seconds=inputs.seconds_left(budget)
    )


def parse_positions(text: str, n_rows: int) -> list[int]:
    """Row positions from 3,17,20:30."""
    found: list[int] = []
    for part in inputs.split_list(text):
        first, mark, last = part.partition(":")
        try:
            found += range(int(first), int(last)) if mark else [int(first)]
        except ValueError:
            raise typer.BadParameter(f"--remove-rows must be positions such as 3,17,20:30; got {part!r}.") from None
    wrong = [row for row in found if not 0 <= row < n_rows]
    if wrong:
        raise ValueError(f"rows must be positions from 0 to {n_rows - 1}; got {wrong[0]}.")
    return sorted(set(found))


def find_rows(job: inputs.Job, text: str) -> list[int]:
    """The rows of some ids, given as a list or as a file with one id per line."""
    if not text:
        return []
    if job.prepared.ids is None:
        raise ValueError(f"--remove-ids needs a column of ids in {job.prepared.source}; name it with --id.")
    path = Path(text)
    wanted = path.read_text(encoding="utf-8-sig").splitlines() if path.is_file() else inputs.split_list(text)
    places: dict[str, list[int]] = {}
    for row, name in enumerate(job.prepared.ids):
        places.setdefault(name, []).append(row)
    wanted = [name.strip() for name in wanted if name.strip()]
    strange = [name for name in wanted if name not in places]
    if strange:
        raise ValueError(f"ids must be among those of {job.prepared.source}; got {list_some(strange, repr)}.")
    return [row for name in wanted for row in places[name]]


def _make_change(
    job: inputs.Job, data: DataOptions, removed: list[int], add_rows: Path | None, remove_columns: str
) -> tuple[glru.Change, list[int]]:
    """The change, and the columns that it leaves."""
    steps: list[glru.Change] = []
    if removed:
        steps.append(glru.RemoveRows(removed))
    if add_rows is not None:
        steps.append(glru.AddRows(*inputs.read_labelled_rows(add_rows, data, job)))
    gone = job.prepared.find_columns(inputs.split_list(remove_columns))
    if gone:
        steps.append(glru.RemoveColumns(gone))
    return reduce(add, steps), sorted(set(range(job.problem.n_columns)) - set(gone))


def _read_queries(
    job: inputs.Job, data: DataOptions, query: Path | None, removed: list[int]
) -> tuple[RawMatrix, list[str], dict[str, list[str]]]:
    """The rows to predict, their names, and their categories that are not in the training data."""
    if query is not None:
        return inputs.read_new_rows(query, data, job)
    kept = np.setdiff1d(np.arange(job.problem.n_rows), removed)
    return job.problem.X[kept], [job.row_name(int(row)) for row in kept], {}


def compare(
    job: inputs.Job,
    solution: glru.Solution,
    after: glru.results.After,
    kept_columns: list[int],
    scores: tuple[Array, ScoreBounds],
    y: Array | None,
    names: list[str],
) -> dict[str, Any]:
    """Compare the model before the change with the retrained one: errors, AUC, coefficients, changed labels."""
    (old, bounds), loss = scores, job.problem.loss
    found: dict[str, Any] = {"before": {}, "after": {}}
    exact, labelled = ScoreBounds(old, old), loss.task == "classification"
    if y is not None:
        y = y.astype(np.intp) if loss.several else y
        found["before"]["rows"] = int(y.size)
        if labelled:
            found["before"]["errors"] = exact.errors(y)[0]
            found["after"]["errors"] = dict(zip(("lower", "upper"), bounds.errors(y), strict=True))
        metric = "roc_auc" if labelled else "squared_error"
        if not labelled or np.unique(y).size == len(job.prepared.targets.classes or ()):
            found["before"][metric] = exact.metric(metric, loss, y)[0]
            found["after"][metric] = dict(zip(("lower", "upper"), bounds.metric(metric, loss, y), strict=True))
    columns = [job.prepared.names[k] for k in kept_columns]
    if loss.several:
        columns = [f"{column} for {label}" for label in job.prepared.targets.classes or () for column in columns]
    coef, lower, upper = (np.ravel(part) for part in (solution.coef[..., kept_columns], *after.coef_bounds()))
    # Each coefficient moves by at least this much.
    moves = np.maximum(np.maximum(lower - coef, coef - upper), 0.0)
    order = np.argsort(-np.nan_to_num(moves), kind="stable")[:MAX_PRINTED]
    found["coefficients"] = [
        {"column": columns[k], "before": float(coef[k]), "lower": float(lower[k]), "upper": float(upper[k])}
        for k in order
    ]
    if labelled:
        found["changed"] = [names[k] for k in np.flatnonzero(find_verdicts(bounds, old) == -1)]
    return found


def describe_change(job: inputs.Job, after: glru.results.After, settings: dict[str, Any]) -> str:
    """What came and went, in words."""
    n_removed, n_added = len(settings["remove_rows"]), after.problem.n_rows - job.problem.n_rows
    parts = [f"{format_count(n_removed, 'row')} removed"] if n_removed else []
    if settings["add_rows"]:
        parts.append(f"{format_count(n_added + n_removed, 'row')} of {settings['add_rows']} added")
    if settings["remove_columns"]:
        parts.append(f"without {', '.join(settings['remove_columns'])}")
    return ", ".join(parts)


def describe_comparison(compared: dict[str, Any]) -> list[tuple[str, str]]:
    """The comparison in words."""
    before, after = compared["before"], compared["after"]
    lines = []
    rows = f"on the {before['rows']:,} training rows that remain" if "rows" in before else ""
    for name in ("errors", "roc_auc", "squared_error"):
        if name in before:
            ends = format_interval(after[name]["lower"], after[name]["upper"])
            lines.append(
                (name_metric(name), f"{format_interval(before[name], before[name])} before, {ends} after, {rows}")
            )
    shown = [
        f"{entry['column']} {format_move(entry['before'], entry['lower'], entry['upper'])}"
        for entry in compared["coefficients"][:3]
    ]
    if shown:
        lines.append(("coefficients", f"those that change most: {'; '.join(shown)}"))
    if compared.get("changed"):
        lines.append(("rows whose label changes", list_some(compared["changed"], most=MAX_PRINTED)))
    return lines


def make_outcome(
    job: inputs.Job,
    after: glru.results.After,
    names: list[str],
    scores: tuple[Array, ScoreBounds, Array | None],
    compared: dict[str, Any],
    settings: dict[str, Any],
    seconds: dict[str, float],
) -> output.Outcome:
    """The result of the change in every output format."""
    old, bounds, new = scores
    classes, what = job.prepared.targets.classes, describe_change(job, after, settings)
    outside = None if new is None else float(np.maximum(np.maximum(bounds.lower - new, new - bounds.upper), 0.0).max())
    counts = None
    if job.problem.loss.task == "classification":
        verdicts = find_verdicts(bounds, old)
        counts = [int(np.sum(verdicts == verdict)) for verdict in (1, -1, 0)]
    values: dict[str, Any] = {
        "queries": bounds.n_rows,
        "gap": after.gap,
        "radius": after.radius,
        "widths": {"median": float(np.median(bounds.width)), "largest": float(bounds.width.max())},
        "labels": counts and dict(zip(("unchanged", "changed", "undetermined"), counts, strict=True)),
        "remark": after.remark,
        "retrained_outside": outside,
        **compared,
    }
    lines = [
        *describe(job),
        *describe_once(job),
        ("changed data", f"{after.problem.n_rows:,} rows x {after.problem.n_columns:,} columns: {what}"),
        *_describe_unknown(settings["unknown_categories"]),
        *([("nothing proven", after.remark)] if after.remark is not None else []),
        *describe_comparison(compared),
        *_describe_proof(after, bounds, counts, outside, "queries" if settings["query"] else "rows"),
        ("time", f"{output.format_duration(seconds['bounds'])} beyond the first training"),
    ]
    return output.Outcome(
        "whatif",
        f"The model of {job.prepared.name} after the change",
        lines,
        job.facts | {"settings": settings},
        values,
        seconds,
        table=lambda: _make_table(job, names, old, bounds, new),
        display=lambda: (
            glru.display.ConfusionDisplay.from_bounds(bounds, old, classes or (), names)
            if job.problem.loss.several
            else glru.display.AfterDisplay.from_bounds(bounds, old, find_pair(job))
        ),
        sections=lambda: list_after_sections(job.problem.loss, bounds, old, names, classes or ("-1", "+1")),
        prepared=job.prepared,
    )


def _describe_unknown(values: dict[str, list[str]]) -> list[tuple[str, str]]:
    """The categories of the queries that the training data does not have."""
    if not values:
        return []
    listed = "; ".join(f"{name!r}: {', '.join(map(repr, found[:MAX_PRINTED]))}" for name, found in values.items())
    return [("new in the queries", f"{listed} (not in the training data; each counts as none of the known values)")]


def _describe_proof(
    after: glru.results.After, bounds: ScoreBounds, counts: list[int] | None, outside: float | None, rows: str
) -> list[tuple[str, str]]:
    """What is proven about labels, coefficients and scores, and how a retrained model compares."""
    lines = []
    if counts is not None:
        still_open = f", {counts[2]:,} are open" if counts[2] else ""
        text = f"{counts[0]:,} of {bounds.n_rows:,} {rows} keep their label, {counts[1]:,} change it{still_open}"
        lines.append(("labels", text))
    known = f"the retrained coefficients lie within {after.radius:.3g} of the computed ones"
    lines.append(("certificate", f"{known}; the duality gap is at most {after.gap:.3g}"))
    widths = f"median width {np.median(bounds.width):.3g}, largest {bounds.width.max():.3g}"
    lines.append(("score intervals", widths))
    if outside is not None:
        where = "inside" if outside == 0.0 else f"at most {outside:.1g} outside"
        lines.append(("retrained", f"all scores are {where} their intervals (the training stops at --tol)"))
    if after.remark is None:
        lines.append(("proof", "all of this holds for the exactly retrained model"))
    return lines


def _make_table(
    job: inputs.Job, names: list[str], old: Array, bounds: ScoreBounds, new: Array | None
) -> dict[str, Any]:
    """The columns of ``--out``, one entry per query."""
    classes, loss = job.prepared.targets.classes or (), job.problem.loss
    columns: dict[str, Any] = {"query": names}
    if loss.several:
        columns |= {"old_class": [classes[k] for k in predicted(old)], **make_class_columns(classes, bounds)}
    else:
        columns |= {"old_score": old, "score_lower": bounds.lower, "score_upper": bounds.upper}
    if loss.task == "classification":
        if not loss.several:
            columns["class"] = output.name_classes(find_pair(job), bounds.signs)
            columns |= output.bound_probabilities(job.problem, bounds)
            columns["label"] = bounds.signs
        columns["verdict"] = VERDICTS[find_verdicts(bounds, old)].tolist()
    if new is not None and not loss.several:
        columns["retrained_score"] = new
    return columns


VERDICTS = np.array(["undetermined", "unchanged", "changed"])
"""The words for verdicts 0, 1 and -1."""
