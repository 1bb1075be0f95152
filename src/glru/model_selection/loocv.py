"""Exact leave-one-out cross-validation."""

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np

from glru.families.carried import has_carried
from glru.losses import Hinge
from glru.model_selection.cascade import Cascade, Report, Rows
from glru.model_selection.checkpoint import Checkpoint
from glru.model_selection.progress import reporter
from glru.model_selection.result import LOOCVResult
from glru.problem import Problem
from glru.regions import Bounds
from glru.solution import Solution
from glru.solvers import solve
from glru.solvers.newton import ColumnSpace, RowSpace, uses_row_space

Method = Literal["certified", "glru", "naive", "approx", "approx-glru"]


def loocv(
    problem: Problem | Solution,
    method: Method = "certified",
    bound: Literal["auto", "primal", "dual", "local"] = "auto",
    width: float | None = None,
    progress: bool | Report = False,
    max_memory: int = 2 << 30,
    tol: float = 1e-6,
    checkpoint: str | Path | Checkpoint | None = None,
) -> LOOCVResult:
    """Every row's score under the model trained without it, proven, for about the price of one training.

    Parameters
    ----------
    problem : Problem or Solution
        What to validate. A problem is trained first; a solution is used as it is, converged or not.
    method : {"certified", "glru", "naive", "approx", "approx-glru"}, default="certified"
        ``"certified"``: the cascade of the old optimum's bound, Newton candidates under a certificate, and training
        only for what that leaves open. ``"glru"``: the paper's Algorithm 2, with early stopping. ``"naive"``: one
        warm-started training a row. ``"approx"``: one Newton step a row, unproven. ``"approx-glru"``: the paper's
        bound, then one Newton step for the rest.
    bound : {"auto", "primal", "dual", "local"}, default="auto"
        Which bounds may decide; "auto" uses all that apply.
    width : float, default=None
        Refine until every interval is at most this wide. If not given, a classification is refined until every label is
        decided, a regression to a width of 1e-6 times the spread of the targets.
    progress : bool or callable, default=False
        Show progress on the terminal, or call ``progress(stage, n_decided, n_rows)``.
    max_memory : int, default=2 GiB
        Limit in bytes for the work arrays of a batch.
    tol : float, default=1e-6
        Relative gap of the trainings of "naive", and of the first training where a problem is given.
    checkpoint : str or Path, default=None
        A file that keeps finished work. A run that was killed goes on from it and gives the same result.

    Returns
    -------
    LOOCVResult
        Bounds of every held-out score, labels, error counts, who decided what.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> result = glru.loocv(glru.Problem(X, y, penalty=glru.L2(0.01)))
    >>> result.n_errors, result.n_trainings
    (10, 0)
    """
    if isinstance(checkpoint, str | Path):
        checkpoint = Checkpoint(checkpoint)
    solution = trained(problem, tol, checkpoint)
    _check(solution.problem, method, bound, width)
    if width is None and solution.problem.loss.task == "regression":
        width = 1e-6 * float(np.ptp(solution.problem.y) or 1.0)
    with reporter(progress) as report:
        cascade = Cascade(solution, bound, width, max_memory, report)
        if checkpoint is not None:
            cascade.recall = checkpoint.recall(solution, method, bound, width, max_memory, tol)
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
    problem: Problem | Solution, tol: float, checkpoint: Checkpoint | None = None, start: Solution | None = None
) -> Solution:
    """A solution, trained if a problem was given (or read from a checkpoint)."""
    if isinstance(problem, Solution):
        return problem
    if not isinstance(problem, Problem):
        raise TypeError(f"expected a glru.Problem or a glru.Solution; got {type(problem).__name__}.")
    if checkpoint is not None:
        return checkpoint.solution(problem, tol, lambda: solve(problem, tol=tol, start=start))
    return solve(problem, tol=tol, start=start)


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
    if problem.n_rows < 2 or np.count_nonzero(problem.sample_weight) < 2:
        raise ValueError("leave-one-out needs at least two rows of weight above 0.")
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

    def train(rows: Rows) -> Bounds:
        problem, point = cascade.without(int(rows[0]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            solution = solve(problem, tol=tol, start=point)
        return solution.scores[rows], solution.scores[rows]

    cascade.n_trainings = _each(cascade, "training", train)


def _approximate(cascade: Cascade) -> None:
    """One Newton step for every open row (Appendix E.2), without proof."""

    def step(rows: Rows) -> Bounds:
        problem, point = cascade.without(int(rows[0]))
        space = RowSpace(problem) if uses_row_space(problem) else ColumnSpace(problem)
        unknowns = space.place(point)
        _, gradient, curvature = problem.loss.expand(problem.y, space.scores(unknowns))
        scores = (space.scores(unknowns) + space.step(unknowns, gradient, curvature).scores)[rows]
        return scores, scores

    _each(cascade, "approx", step)


def _each(cascade: Cascade, stage: str, work: Callable[[Rows], Bounds]) -> int:
    """Take a score as it is for every open row, and say how many there were."""
    begin, rows = time.perf_counter(), cascade.open_rows()
    for row in rows:
        cascade.lower[row], cascade.upper[row] = (ends[0] for ends in cascade.recall(np.array([row]), work))
        cascade.stages[row] = stage
        cascade.report(stage, int(np.sum(cascade.stages != "undetermined")), cascade.problem.n_rows)
    cascade.seconds[stage] = time.perf_counter() - begin
    return int(rows.size)


def _result(cascade: Cascade, method: str) -> LOOCVResult:
    lower, upper = cascade.lower, cascade.upper
    finite = np.isfinite(lower) & np.isfinite(upper)
    scores = np.where(
        finite, 0.5 * (np.where(finite, lower, 0.0) + np.where(finite, upper, 0.0)), cascade.solution.scores
    )
    for array in (lower, upper, scores):
        array.setflags(write=False)
    return LOOCVResult(
        problem=cascade.problem,
        method=method,
        certified=method in ("certified", "glru"),
        score_lower=lower,
        score_upper=upper,
        scores=scores,
        stages=cascade.stages,
        n_trainings=cascade.n_trainings,
        seconds=cascade.seconds,
    )
