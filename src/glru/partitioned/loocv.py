"""Exact leave-one-out of partitioned rows: one pass of bounds, then passes for the few rows that it leaves open."""

import time
from pathlib import Path

import numpy as np

from glru._budget import Budget
from glru.model_selection.loocv import check_width
from glru.model_selection.progress import Report, reporter
from glru.partitioned.cascade import Run, has_local
from glru.partitioned.census import MOST_COLUMNS
from glru.partitioned.output import prepared
from glru.partitioned.problem import PartitionedProblem
from glru.partitioned.result import PartitionedLOOCVResult
from glru.partitioned.solution import PartitionedSolution
from glru.partitioned.training import solve


def loocv(
    model: PartitionedProblem | PartitionedSolution,
    method: str = "certified",
    bound: str = "auto",
    width: float | None = None,
    progress: bool | Report = False,
    tol: float = 1e-6,
    max_seconds: float | None = None,
    output: str | Path | None = None,
    max_trainings: int = 0,
) -> PartitionedLOOCVResult:
    """Leave-one-out of a problem or of its solution; see :func:`glru.loocv`."""
    problem = model if isinstance(model, PartitionedProblem) else model.problem
    _check(problem, method, bound, width, max_trainings)
    place = None if output is None else prepared(output, problem.inputs)
    budget, before, begin = Budget(max_seconds), problem.traffic.passes, time.perf_counter()
    solution = solve(model, tol=tol, budget=budget) if isinstance(model, PartitionedProblem) else model
    if width is None and problem.loss.task == "regression":
        width = 1e-6 * ((problem.census.highest.value + problem.census.lowest.value) or 1.0)
    with reporter(progress) as report, np.errstate(all="ignore"):
        run = Run(solution, width, place, budget, report)
        run.seconds["fit"] = time.perf_counter() - begin
        run.bounds()
        run.refine()
        run.train(max_trainings)
        return run.result(problem.traffic.passes - before)


def require_local(problem: PartitionedProblem, function: str) -> None:
    """Refuse problems that the local certificate does not apply to."""
    if not has_local(problem):
        raise ValueError(
            f"{function} of partitioned data needs the logistic or squared loss with an L2 penalty and at most "
            f"{MOST_COLUMNS} columns; got {problem!r}. Use a glru.Problem of data in memory."
        )


def _check(problem: PartitionedProblem, method: str, bound: str, width: float | None, max_trainings: int) -> None:
    if method != "certified" or bound not in ("auto", "local"):
        raise ValueError(
            "leave-one-out of partitioned data has method='certified' and bound='auto' only; "
            f"got {method!r} and {bound!r}."
        )
    check_width(width)
    if max_trainings < 0:
        raise ValueError(f"max_trainings must be at least 0; got {max_trainings!r}.")
    if not has_local(problem) and not problem.is_plain:
        raise ValueError(
            "leave-one-out of partitioned data needs the logistic or squared loss with an L2 penalty and at most "
            f"{MOST_COLUMNS} columns, or a penalty on every column and no intercept; got {problem!r}. "
            "Use fit_intercept=False, or a glru.Problem of data in memory."
        )
    if problem.census.n_used < 2:
        raise ValueError("leave-one-out needs at least two rows of weight above 0.")
    if problem.classes is not None and problem.fit_intercept:
        for label, number in problem.census.labels.counts.items():
            if number < 2:
                raise ValueError(
                    "with an intercept each class needs at least two rows of weight above 0: without its only row "
                    f"the class {label} is gone and the intercept has no optimum. Use fit_intercept=False."
                )
