r"""Training on partitioned rows: Newton with the Hessian summed over all blocks, or trust-region Newton-CG.

Every iteration of :func:`newton` is one pass that brings home value, gradient and Hessian at the next model, all of which are
used: the Hessian at the last model is the metric of its certificate. :func:`newton_cg` is SciPy's ``trust-ncg`` in columns
scaled by the Hessian's diagonal, a pass for every value and every product.
"""

import warnings
from collections.abc import Callable
from typing import Any, final

import numpy as np

from glru._budget import UNLIMITED, Budget
from glru._numerics import UNIT, Array, gamma
from glru.losses import Hinge
from glru.partitioned.census import MOST_COLUMNS
from glru.partitioned.gap import dual_gap, gradient, hessian, penalty_value
from glru.partitioned.problem import PartitionedProblem
from glru.partitioned.solution import PartitionedSolution, certified_gap, objective
from glru.partitioned.sums import Expansion, Model, hessian_product, slope_along
from glru.point import Point
from glru.solution import Solution, Status, relative
from glru.solvers.common import Floor, Stop, step_length, zero_point
from glru.solvers.newton import newton as newton_in_memory
from glru.solvers.newton import solve_upper

SMALL_STEP = 1e-4
"""A full step is taken where the objective falls by this share of what its slope promises."""

State = tuple[Model, Expansion]


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
    if name == "newton":
        model, here, n_iter, status = newton(problem, model, Stop(tol, None, max_iter or 200), budget)
    else:
        model, here, n_iter, status = newton_cg(problem, model, Stop(tol, None, max_iter or 500), budget)
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


def newton(
    problem: PartitionedProblem, model: Model, stop: Stop, budget: Budget
) -> tuple[Model, Expansion, int, Status]:
    """Newton steps, each with a line search where the full one does not do."""
    floor, goal = Floor(problem.loss), _Goal(problem, stop)
    here: Expansion = problem.expansion(model, floor)
    n_iter = 0
    while True:
        value, slope = objective(problem, model, here), gradient(problem, model, here.pull)
        assert here.gram is not None
        step = -solve_upper(hessian(problem, here.gram), slope)
        descent = float(slope @ step)
        if goal.reached(model, here, -descent):
            return model, here, n_iter, "converged"
        if budget.spent:
            return model, here, n_iter, "stopped"
        if n_iter >= stop.max_iter:
            return model, here, n_iter, "max_iter"
        noise = 8.0 * UNIT * float(np.abs(slope) @ np.abs(step)) + UNIT * value
        if not np.all(np.isfinite(step)) or -descent <= noise:
            return model, here, n_iter, "stalled"
        ahead, there = _full(problem, model, step, floor)
        length = 1.0
        if not objective(problem, ahead, there) <= value + SMALL_STEP * descent + gamma(problem.n_rows) * value:
            length = step_length(_along(problem, model, step), descent, noise)
            if length == 0.0:
                return model, here, n_iter, "stalled"
            floor = floor.after(length)
            ahead = model.moved(step, length)
            there = problem.expansion(ahead, floor)
        else:
            floor = floor.after(1.0)
        model, here = ahead, there
        n_iter += 1


def _full(problem: PartitionedProblem, model: Model, step: Array, floor: Floor) -> State:
    ahead = model.moved(step)
    return ahead, problem.expansion(ahead, floor.after(1.0))


def _along(problem: PartitionedProblem, model: Model, step: Array) -> Callable[[float], float]:
    """The objective's derivative along a step."""
    move = step[: problem.n_columns]

    def derivative(length: float) -> float:
        losses = float(problem.blocks.total(slope_along, problem.layout, model, step, length))
        return losses + float(problem.quadratic * (model.coef + length * move) @ move)

    return derivative


@final
class _Goal:
    """Whether a training is done: proven where that costs no pass, otherwise asked for where the steps say it is near."""

    def __init__(self, problem: PartitionedProblem, stop: Stop) -> None:
        self.problem, self.stop, self.share = problem, stop, 1.0

    def reached(self, model: Model, here: Expansion, decrease: float) -> bool:
        """Whether the gap is at its target; ``decrease``: what a Newton step promises."""
        problem, target = self.problem, self.stop.target(objective(self.problem, model, here))
        if problem.loss.self_concordance is not None and here.gram is not None:
            return decrease <= target and certified_gap(problem, model, here) <= target
        if problem.is_plain:
            # The duality gap without the rows' terms, which vanish but for rounding.
            slope = gradient(problem, model, here.pull)
            return 0.5 * float(slope @ (slope / problem.quadratic)) <= target
        if decrease > self.share * target:
            return False
        self.share *= 0.1
        return dual_gap(problem, model).value <= target


def newton_cg(
    problem: PartitionedProblem, model: Model, stop: Stop, budget: Budget
) -> tuple[Model, Expansion, int, Status]:
    """Trust-region Newton-CG by SciPy, in scaled unknowns and units of the total weight."""
    from scipy import optimize

    minimize: Any = optimize.minimize
    search = _Search(problem, stop, budget)
    begin = model.packed(problem.fit_intercept) * search.scales
    minimize(
        search.value,
        begin,
        jac=True,
        hessp=search.product,
        method="trust-ncg",
        callback=search.judge,
        options={"gtol": 0.0, "maxiter": stop.max_iter, "max_trust_radius": 1e6},
    )
    return search.model, search.here, search.n_iter, search.status


@final
class _Search:
    """What SciPy asks for, and the best model so far."""

    def __init__(self, problem: PartitionedProblem, stop: Stop, budget: Budget) -> None:
        self.problem, self.goal, self.budget = problem, _Goal(problem, stop), budget
        norms = problem.column_norms
        unit = problem.loss.smoothness * norms**2
        unit[: problem.n_columns] += problem.quadratic
        self.total = problem.weight_sum
        self.scales = np.sqrt(np.where(unit > 0.0, unit, 1.0) / self.total)
        self.floor = Floor(problem.loss, 0.0)
        self.seen: list[tuple[Array, Model, Expansion]] = []
        self.n_iter = 0
        self.status: Status = "max_iter"

    def _model(self, unknowns: Array) -> Model:
        return Model(np.zeros(self.problem.n_columns)).moved(unknowns / self.scales)

    def value(self, unknowns: Array) -> tuple[float, Array]:
        """Objective and gradient."""
        model = self._model(unknowns)
        here: Expansion = self.problem.expansion(model, None)
        self.seen = [*self.seen[-2:], (unknowns.copy(), model, here)]
        if len(self.seen) == 1:
            self.model, self.here = model, here
        slope = gradient(self.problem, model, here.pull) / self.scales
        return (here.value + penalty_value(self.problem, model)) / self.total, slope / self.total

    def product(self, unknowns: Array, vector: Array) -> Array:
        """The Hessian times a vector."""
        problem, way = self.problem, vector / self.scales
        bent = problem.blocks.total(hessian_product, problem.layout, self._model(unknowns), self.floor, way)
        bent[: problem.n_columns] += problem.quadratic * way[: problem.n_columns]
        return bent / self.scales / self.total

    def judge(self, unknowns: Array) -> None:
        """Take in a model that SciPy has accepted; end where it is good enough."""
        self.n_iter += 1
        for place, model, here in self.seen:
            if np.array_equal(place, unknowns):
                self.model, self.here = model, here
        problem = self.problem
        slope = gradient(problem, self.model, self.here.pull)
        decrease = float(np.sum((slope / self.scales) ** 2)) / self.total
        if self.goal.reached(self.model, self.here, decrease):
            self.status = "converged"
            raise StopIteration
        if self.budget.spent:
            self.status = "stopped"
            raise StopIteration


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
