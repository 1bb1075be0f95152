"""``solve`` of partitioned rows: choose a start and a solver, run it, and prove how good its model is."""

import warnings
from typing import Any

import numpy as np

from glru._budget import UNLIMITED, Budget
from glru.losses import Hinge
from glru.partitioned.census import MOST_COLUMNS
from glru.partitioned.gap import dual_gap
from glru.partitioned.newton import newton
from glru.partitioned.newton_cg import newton_cg
from glru.partitioned.problem import PartitionedProblem
from glru.partitioned.solution import PartitionedSolution, certified_gap, objective
from glru.partitioned.sums import Model
from glru.point import Point
from glru.solution import Solution, Status, relative
from glru.solvers.common import Stop, zero_point
from glru.solvers.newton import newton as newton_in_memory


def solve(
    problem: PartitionedProblem,
    tol: float = 1e-6,
    solver: str = "auto",
    start: Any = None,
    max_iter: int | None = None,
    budget: Budget = UNLIMITED,
) -> PartitionedSolution:
    """Train a problem until its gap is at most ``tol`` times its value; see :func:`glru.solve`."""
    name = _checked(problem, tol, solver, max_iter)
    before = problem.traffic.passes
    model = _start(problem, start)
    stop = Stop(tol, None, max_iter or (200 if name == "newton" else 500))
    run_solver = newton if name == "newton" else newton_cg
    model, here, n_iter, status = run_solver(problem, model, stop, budget)
    if status == "stalled" and start is not None:
        # The start may be to blame: "stalled" is said only where a training from zero stalls too.
        model, here, more, status = run_solver(problem, Model(np.zeros(problem.n_columns)), stop, budget)
        n_iter += more
    value, gap, dual = objective(problem, model, here), certified_gap(problem, model, here), None
    if not relative(gap, value) <= tol:
        dual = dual_gap(problem, model)
        gap = min(gap, dual.value)
    reached = relative(gap, value) <= tol
    ended: Status = "converged" if reached else "stalled" if status == "converged" else status
    solution = PartitionedSolution(
        problem=problem,
        coef=model.coef,
        intercept=model.intercept,
        primal_value=value,
        gap=gap,
        n_iter=n_iter,
        n_passes=problem.traffic.passes - before,
        status=ended,
        solver=name,
        expansion=here,
    )
    if dual is not None:
        solution.__dict__["dual_gap"] = dual
    if ended in ("max_iter", "stalled"):
        _warn(solution, tol)
    return solution


def _start(problem: PartitionedProblem, start: Any) -> Model:
    """Where to start: a model that was given, that of a sample of the rows, or zero."""
    if isinstance(start, PartitionedSolution | Solution | Point):
        coef = np.array(start.coef, dtype=np.float64)
        if coef.shape != (problem.n_columns,) or not np.all(np.isfinite([*coef, start.intercept])):
            raise ValueError(
                f"start must have {problem.n_columns} finite coefficients, as the problem has columns; got {coef.shape}."
            )
        return Model(coef, float(start.intercept) if problem.fit_intercept else 0.0)
    if start is not None:
        raise TypeError(f"start must be a solution or a glru.Point; got {type(start).__name__}.")
    sample = problem.sample() if problem.n_columns <= MOST_COLUMNS else None
    if sample is None:
        return Model(np.zeros(problem.n_columns))
    point = newton_in_memory(sample, zero_point(sample), Stop(1e-3, None, 50)).point
    return Model(point.coef, point.intercept)


def _checked(problem: PartitionedProblem, tol: float, solver: str, max_iter: int | None) -> str:
    """The solver's name, or an error that says what partitioned data does not have."""
    if not (np.isfinite(tol) and tol >= 0.0):
        raise ValueError(f"tol must be a finite number >= 0; got {tol!r}.")
    if max_iter is not None and max_iter < 1:
        raise ValueError(f"max_iter must be at least 1; got {max_iter!r}.")
    if solver not in ("auto", "newton", "newton-cg"):
        raise ValueError(f"solver must be 'auto', 'newton' or 'newton-cg' for partitioned data; got {solver!r}.")
    if isinstance(problem.loss, Hinge) or not problem.penalty.smooth:
        raise ValueError(
            f"partitioned data is trained with a smooth loss and an L2 penalty; got {problem.loss!r} and "
            f"{problem.penalty!r}. Use glru.SmoothedHinge() for the hinge, or a glru.Problem of data in memory."
        )
    if solver == "newton" and problem.n_columns > MOST_COLUMNS:
        raise ValueError(
            f"solver 'newton' sums a Hessian of at most {MOST_COLUMNS} columns; got {problem.n_columns}. Use 'newton-cg'."
        )
    if solver == "auto":
        return "newton" if problem.n_columns <= MOST_COLUMNS else "newton-cg"
    return solver


def _warn(solution: PartitionedSolution, tol: float) -> None:
    from sklearn.exceptions import ConvergenceWarning

    warnings.warn(
        f"{solution.solver} ended with a relative gap of {relative(solution.gap, solution.primal_value):.2g} above "
        f"tol={tol:g} after {solution.n_iter} iterations ({solution.status}). Raise max_iter or tol, or scale the columns.",
        ConvergenceWarning,
        stacklevel=5,
    )
