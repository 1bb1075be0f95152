"""Training over the columns in passes over the rows: smooth losses with an L2 penalty, rows in any number of blocks.

*Newton*: every iteration is one pass that gives value, gradient and Hessian at the next point. All of them are used: the
Hessian at the last point is the metric of its certificate, and of leave-one-out. *Newton-CG*, for many columns: SciPy's
``trust-ncg``, a pass for every value and every product with the Hessian. The columns are scaled by what the Hessian's
diagonal can be at most, and the objective by the total weight.
"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from glru._budget import UNLIMITED, Budget
from glru.linalg import UNIT, Array, gamma
from glru.linalg.factor import solve_shifted
from glru.losses import Hinge
from glru.point import Point
from glru.problem import Problem
from glru.regions.local import LocalEllipsoid
from glru.rows import MAX_COLUMNS
from glru.solution import Solution, Status, relative
from glru.solvers.common import Stop, zero_point
from glru.solvers.newton import newton as newton_in_memory
from glru.solvers.sample import sample_of
from glru.sums import (
    Expansion,
    Floor,
    dual_gap,
    expand,
    hessian_product,
    objective_value,
    slopes_along,
    whole_gradient,
    whole_hessian,
)

SMALL_STEP = 1e-4
"""A full step is taken where the objective falls by this share of what its slope promises."""

LENGTHS: Array = np.exp2(np.arange(-14.0, 2.0))
"""Lengths of a step that one pass looks at."""


@final
@dataclass(frozen=True, eq=False)
class PassRun:
    """Where a training ended: the point, the sums there, iterations and status."""

    point: Point
    here: Expansion
    n_iter: int
    status: Status


def train_in_passes(
    problem: Problem,
    tol: float = 1e-6,
    solver: str = "auto",
    start: Any = None,
    max_iter: int | None = None,
    budget: Budget = UNLIMITED,
) -> Solution:
    """Train a problem until its gap is at most ``tol`` times its value; see :func:`glru.solve`."""
    name, before = _choose(problem, solver), problem.traffic.passes
    stop = Stop(tol, None, max_iter or (200 if name == "newton" else 500))
    run_solver = newton if name == "newton" else newton_cg
    run = run_solver(problem, _start(problem, start), stop, budget)
    n_iter = run.n_iter
    if run.status == "stalled" and start is not None:
        # The start may be to blame: "stalled" is said only where a training from zero stalls too.
        run = run_solver(problem, zero_point(problem), stop, budget)
        n_iter += run.n_iter
    point, here = run.point, run.here
    value, gap, dual = objective_value(problem.totals, point, here), local_gap(problem, point, here), None
    if not relative(gap, value) <= tol:
        dual = dual_gap(problem, point)
        gap = min(gap, dual.value)
    reached = relative(gap, value) <= tol
    solution = Solution(
        problem=problem,
        coef=point.coef,
        intercept=point.intercept,
        primal_value=value,
        gap=gap,
        n_iter=n_iter,
        status="converged" if reached else "stalled" if run.status == "converged" else run.status,
        solver=name,
        expansion=here,
        n_passes=problem.traffic.passes - before,
    )
    if dual is not None:
        solution.__dict__["dual_gap"] = dual
    return solution


def _choose(problem: Problem, solver: str) -> str:
    """The solver's name, or an error that says what training in passes does not have."""
    if solver not in ("auto", "newton", "newton-cg"):
        raise ValueError(f"solver must be 'auto', 'newton' or 'newton-cg' for rows in blocks; got {solver!r}.")
    if isinstance(problem.loss, Hinge) or not problem.penalty.smooth:
        raise ValueError(
            f"rows in blocks are trained with a smooth loss and an L2 penalty; got {problem.loss!r} and "
            f"{problem.penalty!r}. Use glru.SmoothedHinge() for the hinge, or a glru.Problem of data in memory."
        )
    if solver == "newton" and problem.n_columns > MAX_COLUMNS:
        raise ValueError(
            f"solver 'newton' sums a Hessian of at most {MAX_COLUMNS} columns; got {problem.n_columns}. Use 'newton-cg'."
        )
    if solver == "auto":
        return "newton" if problem.n_columns <= MAX_COLUMNS else "newton-cg"
    return solver


def _start(problem: Problem, start: Any) -> Point:
    """Where to start: a model that was given, that of a sample of the rows, or zero."""
    if isinstance(start, Solution | Point):
        coef = np.array(start.coef, dtype=np.float64)
        if coef.shape != (problem.n_columns,) or not np.all(np.isfinite([*coef, start.intercept])):
            raise ValueError(
                f"start must have {problem.n_columns} finite coefficients, as the problem has columns; got {coef.shape}."
            )
        return Point(coef, float(start.intercept) if problem.fit_intercept else 0.0)
    if start is not None:
        raise TypeError(f"start must be a solution or a glru.Point; got {type(start).__name__}.")
    sample = sample_of(problem) if problem.n_columns <= MAX_COLUMNS else None
    if sample is None:
        return zero_point(problem)
    point = newton_in_memory(sample, zero_point(sample), Stop(1e-3, None, 50)).point
    return Point(point.coef, point.intercept)


def local_gap(problem: Problem, point: Point, here: Expansion) -> float:
    """The gap of the local ellipsoid, without a pass over the data; infinite where there is none."""
    if here.hessian is None or problem.loss.self_concordance is None:
        return np.inf
    return LocalEllipsoid.of_sums(problem.totals, point, here).gap


@final
class Goal:
    """Whether a training may end.

    Its certified gap is checked where that costs no pass; otherwise only once the Newton decrement is small.
    """

    def __init__(self, problem: Problem, stop: Stop) -> None:
        self.problem, self.stop, self.share = problem, stop, 1.0

    def is_reached(self, point: Point, here: Expansion, decrease: float) -> bool:
        """Whether the gap is at its target; ``decrease``: what a Newton step promises."""
        problem, totals = self.problem, self.problem.totals
        target = self.stop.target(objective_value(totals, point, here))
        if problem.loss.self_concordance is not None and here.hessian is not None:
            return decrease <= target and local_gap(problem, point, here) <= target
        if problem.is_strongly_convex:
            # The duality gap without the rows' terms, which vanish but for rounding.
            slope = whole_gradient(totals, point, here.gradient)
            return 0.5 * float(slope @ (slope / problem.quadratic)) <= target
        if decrease > self.share * target:
            return False
        self.share *= 0.1
        return dual_gap(problem, point).value <= target


def newton(problem: Problem, point: Point, stop: Stop, budget: Budget) -> PassRun:
    """Newton steps, each with a line search where the full one does not do.

    If the very first step fails, the start was a bad one (a sample misses rare columns), and zero is a better place to
    begin.
    """
    # Under a self-concordant loss the Hessian is the metric of the certificate: no floor is raised under its curvatures.
    fixed, totals = problem.loss.self_concordance is not None, problem.totals
    floor, goal = Floor.of(problem.loss), Goal(problem, stop)
    here = expand(problem, point, floor)
    n_iter = 0
    while True:
        value, slope = objective_value(totals, point, here), whole_gradient(totals, point, here.gradient)
        assert here.hessian is not None
        step = -solve_shifted(whole_hessian(totals, here.hessian), slope)
        descent = float(slope @ step)
        if goal.is_reached(point, here, -descent):
            return PassRun(point, here, n_iter, "converged")
        if budget.spent:
            return PassRun(point, here, n_iter, "stopped")
        if n_iter >= stop.max_iter:
            return PassRun(point, here, n_iter, "max_iter")
        noise = 8.0 * UNIT * float(np.abs(slope) @ np.abs(step)) + UNIT * value
        if not np.all(np.isfinite(step)) or -descent <= noise:
            return PassRun(point, here, n_iter, "stalled")
        floor, before = floor if fixed else floor.after(1.0), floor
        ahead = point.moved(step)
        there = expand(problem, ahead, floor)
        if not objective_value(totals, ahead, there) <= value + SMALL_STEP * descent + gamma(totals.depth) * value:
            if n_iter == 0 and (point.coef.any() or point.intercept):
                ahead, floor = zero_point(problem), before
            else:
                length = line_search(problem, point, step)
                if length == 0.0:
                    return PassRun(point, here, n_iter, "stalled")
                ahead, floor = point.moved(step, length), before if fixed else before.after(length)
            there = expand(problem, ahead, floor)
        point, here = ahead, there
        n_iter += 1


def line_search(problem: Problem, point: Point, step: Array) -> float:
    """A length that takes a descent direction near the objective's minimum along it, in two passes; 0 where there is none."""
    slopes = _slopes(problem, point, step, LENGTHS)
    beyond = np.flatnonzero(~(slopes <= 0.0))
    if not beyond.size:
        return float(LENGTHS[-1])
    high = float(LENGTHS[beyond[0]])
    low = float(LENGTHS[beyond[0] - 1]) if beyond[0] else 0.0
    inside = np.linspace(low, high, LENGTHS.size + 2)[1:-1]
    slopes = _slopes(problem, point, step, inside)
    falling = inside[slopes <= 0.0]
    return float(falling[-1]) if falling.size else low


def _slopes(problem: Problem, point: Point, step: Array, lengths: Array) -> Array:
    """The objective's derivative along a step, at several lengths."""
    move = step[: problem.n_columns]
    losses: Array = problem.sum(slopes_along, point, step, lengths)
    return losses + float(problem.quadratic * point.coef @ move) + lengths * float(problem.quadratic * move @ move)


def newton_cg(problem: Problem, point: Point, stop: Stop, budget: Budget) -> PassRun:
    """Train by trust-region Newton-CG; see the module's text."""
    from scipy import optimize

    minimize: Any = optimize.minimize
    search = _Search(problem, stop, budget)
    minimize(
        search.value,
        point.packed(problem.fit_intercept) * search.scales,
        jac=True,
        hessp=search.product,
        method="trust-ncg",
        callback=search.judge,
        options={"gtol": 0.0, "maxiter": stop.max_iter, "max_trust_radius": 1e6},
    )
    return PassRun(search.point, search.here, search.n_iter, search.status)


@final
class _Search:
    """What SciPy asks for, and the best point so far."""

    def __init__(self, problem: Problem, stop: Stop, budget: Budget) -> None:
        self.problem, self.totals, self.goal, self.budget = problem, problem.totals, Goal(problem, stop), budget
        unit = problem.loss.smoothness * self.totals.column_norms**2
        unit[: problem.n_columns] += problem.quadratic
        self.total = self.totals.weight_sum
        self.scales = np.sqrt(np.where(unit > 0.0, unit, 1.0) / self.total)
        self.floor = Floor(problem.loss, 0.0)
        self.seen: list[tuple[Array, Point, Expansion]] = []
        self.n_iter = 0
        self.status: Status = "max_iter"

    def _point(self, unknowns: Array) -> Point:
        return zero_point(self.problem).moved(unknowns / self.scales)

    def value(self, unknowns: Array) -> tuple[float, Array]:
        """Objective and gradient."""
        point = self._point(unknowns)
        here = expand(self.problem, point)
        self.seen = [*self.seen[-2:], (unknowns.copy(), point, here)]
        if len(self.seen) == 1:
            self.point, self.here = point, here
        slope = whole_gradient(self.totals, point, here.gradient) / self.scales
        return objective_value(self.totals, point, here) / self.total, slope / self.total

    def product(self, unknowns: Array, vector: Array) -> Array:
        """The Hessian times a vector."""
        problem, move = self.problem, vector / self.scales
        image = problem.sum(hessian_product, self._point(unknowns), self.floor, move)
        image[: problem.n_columns] += problem.quadratic * move[: problem.n_columns]
        return image / self.scales / self.total

    def judge(self, unknowns: Array) -> None:
        """Take in a point that SciPy has accepted; end where it is good enough."""
        self.n_iter += 1
        for place, point, here in self.seen:
            if np.array_equal(place, unknowns):
                self.point, self.here = point, here
        slope = whole_gradient(self.totals, self.point, self.here.gradient)
        decrease = float(np.sum((slope / self.scales) ** 2)) / self.total
        if self.goal.is_reached(self.point, self.here, decrease):
            self.status = "converged"
            raise StopIteration
        if self.budget.spent:
            self.status = "stopped"
            raise StopIteration
