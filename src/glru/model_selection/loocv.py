"""Exact leave-one-out cross-validation of a problem."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np

from glru._budget import UNLIMITED, Budget
from glru.bounds import Bounds, ScoreBounds
from glru.linalg import calm_blas
from glru.losses import Hinge
from glru.model_selection.blocks import BlockCascade, check_block_options
from glru.model_selection.cascade import Cascade, Report, Rows, smallest_batch
from glru.model_selection.checkpoint import Checkpoint
from glru.model_selection.output import open_output
from glru.model_selection.progress import reporter
from glru.model_selection.result import STAGES, LOOCVResult, RowResults
from glru.problem import Problem
from glru.solution import Solution
from glru.solvers import train, warn_if_short
from glru.updates.carried_rows import has_carried
from glru.updates.wide_rows import has_wide_rows

USUAL_MEMORY = 2 << 30
"""Bytes for the work arrays of a batch where no limit is given."""

Method = Literal["certified", "glru", "naive", "approx", "approx-glru"]
Bound = Literal["auto", "primal", "dual", "local"]


@np.errstate(all="ignore")  # overflow ends in infinite bounds: nothing is proven then
def leave_one_out(
    problem: Problem | Solution,
    method: Method = "certified",
    bound: Bound = "auto",
    width: float | None = None,
    progress: bool | Report = False,
    max_memory: int | None = None,
    tol: float = 1e-6,
    checkpoint: str | Path | Checkpoint | None = None,
    max_seconds: float | None = None,
    output: str | Path | None = None,
    max_trainings: int | None = None,
) -> LOOCVResult:
    """Leave-one-out of a problem or of its solution; the parameters are those of :func:`glru.loocv`."""
    data = problem.problem if isinstance(problem, Solution) else problem
    require_problem(data)
    budget = Budget(max_seconds)
    _check(data, method, bound, width)
    if not data.in_memory:
        most = max_trainings or 0
        check_block_options(data, method, bound, most, {"max_memory": max_memory, "checkpoint": checkpoint})
        return _in_blocks(problem, width, progress, tol, budget, output, most)
    if output is not None or max_trainings is not None:
        raise ValueError(
            "output and max_trainings are for rows in blocks; these are in memory. Use result.to_frame(), or max_seconds."
        )
    if isinstance(checkpoint, str | Path):
        checkpoint = Checkpoint(checkpoint)
    max_memory = max(USUAL_MEMORY, smallest_batch(data)) if max_memory is None else max_memory
    _check_memory(data, max_memory)
    solution = trained(problem, tol, checkpoint, budget=budget)
    with reporter(progress) as report, calm_blas(data.work):
        width = usual_width(data) if width is None else width
        cascade = Cascade(solution, bound, width, max_memory, report, budget)
        if checkpoint is not None:
            cascade.recall = checkpoint.recall(budget, solution, method, bound, width, max_memory, tol)
        if method == "certified":
            cascade.certified()
        elif method in ("glru", "approx-glru"):
            if has_carried(solution.problem):
                cascade.run("carry", cascade.open_rows(), cascade.carry)
            if method == "glru":
                cascade.train()
        if method == "naive":
            _naive(cascade, tol)
        elif method in ("approx", "approx-glru"):
            _approximate(cascade)
    if checkpoint is not None:
        checkpoint.save()
    return _result(cascade, method)


def _in_blocks(
    problem: Problem | Solution,
    width: float | None,
    progress: bool | Report,
    tol: float,
    budget: Budget,
    output: str | Path | None,
    max_trainings: int,
) -> LOOCVResult:
    """Leave-one-out in passes over blocks of rows."""
    data = problem.problem if isinstance(problem, Solution) else problem
    place = None if output is None else open_output(output, data.rows.inputs)
    before, begin = data.traffic.passes, time.perf_counter()
    solution = trained(problem, tol, budget=budget)
    with reporter(progress) as report:
        cascade = BlockCascade(solution, usual_width(data) if width is None else width, place, budget, report)
        cascade.seconds["fit"] = time.perf_counter() - begin
        cascade.bounds()
        cascade.refine()
        cascade.train(max_trainings)
        return cascade.result(data.traffic.passes - before)


def usual_width(problem: Problem) -> float | None:
    """The width to refine to where none is asked for; None: until the labels are decided."""
    return 1e-6 * (problem.target_range or 1.0) if problem.loss.task == "regression" else None


def trained(
    problem: Problem | Solution,
    tol: float,
    checkpoint: Checkpoint | None = None,
    start: Solution | None = None,
    budget: Budget = UNLIMITED,
) -> Solution:
    """A solution, trained if a problem was given (or read from a checkpoint)."""
    if isinstance(problem, Solution):
        return problem
    require_problem(problem)

    def fit() -> Solution:
        return warn_if_short(train(problem, tol=tol, start=start, budget=budget), tol)

    return fit() if checkpoint is None else checkpoint.solution(problem, tol, fit)


def require_problem(problem: object) -> None:
    """Refuse what is neither a problem nor a solution."""
    if not isinstance(problem, Problem):
        raise TypeError(f"expected a glru.Problem or a glru.Solution; got {type(problem).__name__}.")


def check_width(width: float | None) -> None:
    """Refuse a width that no interval can have."""
    if width is not None and not width > 0.0:
        raise ValueError(f"width must be above 0; got {width!r}.")


def _check(problem: Problem, method: str, bound: str, width: float | None) -> None:
    methods = ("certified", "glru", "naive", "approx", "approx-glru")
    if method not in methods:
        raise ValueError(f"method must be one of {', '.join(map(repr, methods))}; got {method!r}.")
    if bound not in ("auto", "primal", "dual", "local"):
        raise ValueError(f"bound must be 'auto', 'primal', 'dual' or 'local'; got {bound!r}.")
    check_width(width)
    if method in ("approx", "approx-glru") and isinstance(problem.loss, Hinge):
        raise ValueError("the approximate methods need a smooth loss; the hinge has no curvature.")
    if problem.n_used < 2:
        raise ValueError("leave-one-out needs at least two rows of weight above 0.")
    if problem.loss.task == "classification" and problem.fit_intercept:
        for label, number in problem.weight_summary.labels.counts.items():
            if number < 2:
                raise ValueError(
                    "with an intercept each class needs at least two rows of weight above 0: without its only row "
                    f"the class {label} is gone and the intercept has no optimum. Use fit_intercept=False."
                )


def _check_memory(problem: Problem, max_memory: int) -> None:
    if max_memory < smallest_batch(problem):
        raise ValueError(
            f"max_memory must hold the work arrays of one row, {smallest_batch(problem)} bytes for {problem.n_rows} rows; got "
            f"{max_memory!r}. Give at least that."
        )


def _naive(cascade: Cascade, tol: float) -> None:
    """Algorithm 1 with warm starts; the scores are those of the trained models, without proof."""

    def retrain(rows: Rows) -> Bounds:
        problem, point = cascade.without(int(rows[0]))
        solution = train(problem, tol=tol, start=point)
        return solution.scores[rows], solution.scores[rows]

    cascade.n_trainings = cascade.open_rows().size
    _each(cascade, "training", [np.array([row]) for row in cascade.open_rows()], retrain)


def _approximate(cascade: Cascade) -> None:
    """One Newton step for every open row (Appendix E.2), without proof."""

    def guess(rows: Rows) -> Bounds:
        scores = cascade.guesses(rows)
        return scores, scores

    if cascade.has_families or has_wide_rows(cascade.problem):
        _each(cascade, "approx", cascade.batches(cascade.has_families), guess)
    _each(cascade, "approx", [np.array([row]) for row in cascade.open_rows()], guess)


def _each(cascade: Cascade, stage: str, batches: list[Rows], work: Callable[[Rows], Bounds]) -> None:
    """Take scores as they are for batches of rows; those that are not numbers stay open."""
    begin = time.perf_counter()
    for rows in batches:
        if cascade.budget.spent:
            break
        scores, _ = cascade.recall(rows, work)
        known = np.isfinite(scores)
        cascade.lower[rows[known]] = cascade.upper[rows[known]] = scores[known]
        cascade.stage_codes[rows[known]] = STAGES.index(stage)
        cascade.report(stage, cascade.problem.n_rows - cascade.open_rows().size, cascade.problem.n_rows)
    cascade.seconds[stage] = cascade.seconds.get(stage, 0.0) + time.perf_counter() - begin


def _result(cascade: Cascade, method: str) -> LOOCVResult:
    limited = cascade.limited & (cascade.stage_codes == STAGES.index("undetermined"))
    finest = cascade.upper - cascade.lower if cascade.finest is None else cascade.finest
    for array in (cascade.lower, cascade.upper):
        array.setflags(write=False)
    return LOOCVResult(
        problem=cascade.problem,
        method=method,
        certified=method in ("certified", "glru"),
        results=RowResults(cascade.problem.y, ScoreBounds(cascade.lower, cascade.upper), cascade.stage_codes, limited),
        n_trainings=cascade.n_trainings,
        seconds=cascade.seconds,
        finest_width=float(finest[limited].min()) if limited.any() else None,
    )
