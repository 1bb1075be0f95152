"""Exact leave-one-out cross-validation of a problem."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np

from glru._budget import UNLIMITED, Budget
from glru.families.carried import has_carried
from glru.linalg import calm_blas
from glru.losses import Hinge
from glru.model_selection.cascade import Cascade, Report, Rows, smallest_batch
from glru.model_selection.checkpoint import Checkpoint
from glru.model_selection.progress import reporter
from glru.model_selection.result import STAGES, LOOCVResult
from glru.problem import Problem
from glru.regions import Bounds
from glru.solution import Solution
from glru.solvers import solve, train

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
) -> LOOCVResult:
    """Leave-one-out of a problem or of its solution; the parameters are those of :func:`glru.loocv`."""
    if isinstance(checkpoint, str | Path):
        checkpoint = Checkpoint(checkpoint)
    budget = Budget(max_seconds)
    if isinstance(problem, Problem | Solution):
        data = problem if isinstance(problem, Problem) else problem.problem
        max_memory = max(USUAL_MEMORY, smallest_batch(data)) if max_memory is None else max_memory
        _check(data, method, bound, width, max_memory)
    solution = trained(problem, tol, checkpoint, budget=budget)
    if width is None and solution.problem.loss.task == "regression":
        width = 1e-6 * float(np.ptp(solution.problem.y) or 1.0)
    with reporter(progress) as report, calm_blas(solution.problem.work):
        assert max_memory is not None
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
    if not isinstance(problem, Problem):
        raise TypeError(f"expected a glru.Problem or a glru.Solution; got {type(problem).__name__}.")
    until = None if budget.end is None else lambda state: budget.spent
    if checkpoint is not None:
        return checkpoint.solution(problem, tol, lambda: solve(problem, tol=tol, start=start, until=until))
    return solve(problem, tol=tol, start=start, until=until)


def check_width(width: float | None) -> None:
    """Refuse a width that no interval can have."""
    if width is not None and not width > 0.0:
        raise ValueError(f"width must be above 0; got {width!r}.")


def _check(problem: Problem, method: str, bound: str, width: float | None, max_memory: int) -> None:
    methods = ("certified", "glru", "naive", "approx", "approx-glru")
    if method not in methods:
        raise ValueError(f"method must be one of {', '.join(map(repr, methods))}; got {method!r}.")
    if bound not in ("auto", "primal", "dual", "local"):
        raise ValueError(f"bound must be 'auto', 'primal', 'dual' or 'local'; got {bound!r}.")
    check_width(width)
    if problem.n_rows < 2 or np.count_nonzero(problem.sample_weight) < 2:
        raise ValueError("leave-one-out needs at least two rows of weight above 0.")
    if max_memory < smallest_batch(problem):
        raise ValueError(
            f"max_memory must hold the work arrays of one row, {smallest_batch(problem)} bytes for {problem.n_rows} rows; got "
            f"{max_memory!r}. Give at least that."
        )
    if method in ("approx", "approx-glru") and isinstance(problem.loss, Hinge):
        raise ValueError("the approximate methods need a smooth loss; the hinge has no curvature.")
    if problem.loss.task == "classification" and problem.fit_intercept:
        for sign in (-1.0, 1.0):
            if np.count_nonzero((problem.y == sign) & (problem.sample_weight > 0.0)) < 2:
                raise ValueError(
                    "with an intercept each class needs at least two rows of weight above 0: without its only row "
                    f"the class {sign:+.0f} is gone and the intercept has no optimum. Use fit_intercept=False."
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

    if cascade.has_families:
        _each(cascade, "approx", cascade.batches(), guess)
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
    lower, upper = cascade.lower, cascade.upper
    finite = np.isfinite(lower) & np.isfinite(upper)
    scores = np.where(finite, 0.5 * (np.where(finite, lower, 0.0) + np.where(finite, upper, 0.0)), np.nan)
    limited = cascade.limited & (cascade.stage_codes == STAGES.index("undetermined"))
    for array in (lower, upper, scores):
        array.setflags(write=False)
    return LOOCVResult(
        problem=cascade.problem,
        method=method,
        certified=method in ("certified", "glru"),
        score_lower=lower,
        score_upper=upper,
        scores=scores,
        stage_codes=cascade.stage_codes,
        n_trainings=cascade.n_trainings,
        seconds=cascade.seconds,
        limited=limited,
        finest_width=float(cascade.finest[limited].min()) if cascade.finest is not None and limited.any() else None,
    )
