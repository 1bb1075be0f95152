"""Exact leave-one-out cross-validation."""

import time
import warnings
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from glru._budget import Budget
from glru._threads import calm_blas
from glru.families.carried import has_carried
from glru.losses import Hinge
from glru.model_selection.cascade import Cascade, Report
from glru.model_selection.progress import reporter
from glru.model_selection.result import STAGES, LOOCVResult
from glru.problem import Problem
from glru.solution import Solution
from glru.solvers import solve

Method = Literal["certified", "glru", "naive", "approx", "approx-glru"]


@np.errstate(all="ignore")  # overflow ends in infinite bounds: nothing is proven then
def loocv(
    problem: Problem | Solution,
    method: Method = "certified",
    bound: Literal["auto", "primal", "dual", "local"] = "auto",
    width: float | None = None,
    progress: bool | Report = False,
    max_memory: int = 2 << 30,
    tol: float = 1e-6,
    max_seconds: float | None = None,
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
    max_seconds : float, default=None
        Start nothing new after so many seconds: rows that are not decided by then stay undetermined, and every bound
        holds all the same. A stage that is under way ends first.

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
    budget = Budget(max_seconds)
    solution = trained(problem, tol, budget)
    _check(solution.problem, method, bound, width)
    if width is None and solution.problem.loss.task == "regression":
        width = 1e-6 * float(np.ptp(solution.problem.y) or 1.0)
    with reporter(progress) as report, calm_blas(solution.problem.work):
        cascade = Cascade(solution, bound, width, max_memory, report, budget)
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
    return _result(cascade, method)


def trained(problem: Problem | Solution, tol: float, budget: Budget) -> Solution:
    """A solution, trained if a problem was given."""
    if isinstance(problem, Solution):
        return problem
    if not isinstance(problem, Problem):
        raise TypeError(f"expected a glru.Problem or a glru.Solution; got {type(problem).__name__}.")
    return solve(problem, tol=tol, until=None if budget.end is None else lambda state: budget.spent)


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
    begin = time.perf_counter()
    for row in range(cascade.problem.n_rows):
        if cascade.budget.spent:
            break
        problem, point = cascade.without(row)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            solution = solve(problem, tol=tol, start=point)
        cascade.lower[row] = cascade.upper[row] = solution.scores[row]
        cascade.stage_codes[row] = STAGES.index("training")
        cascade.n_trainings += 1
        cascade.report("training", row + 1, cascade.problem.n_rows)
    cascade.seconds["training"] = time.perf_counter() - begin


def _approximate(cascade: Cascade) -> None:
    """One Newton step for every open row (Appendix E.2), without proof."""
    begin = time.perf_counter()

    def take(rows: NDArray[np.intp]) -> None:
        if cascade.budget.spent:
            return
        scores = cascade.guesses(rows)
        known = np.isfinite(scores)
        cascade.lower[rows[known]] = cascade.upper[rows[known]] = scores[known]
        cascade.stage_codes[rows[known]] = STAGES.index("approx")

    if cascade.has_families:
        for batch in cascade.batches():
            take(batch)
    for row in cascade.open_rows():
        take(np.array([row]))
    cascade.seconds["approx"] = time.perf_counter() - begin


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
        stage_codes=cascade.stage_codes,
        n_trainings=cascade.n_trainings,
        seconds=cascade.seconds,
    )
