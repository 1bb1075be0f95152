r"""Direct Newton for smooth losses with an L2 penalty, globalised by a line search.

Each step solves the Newton system exactly, in the smaller of two spaces:

* :class:`ColumnSpace`: the unknowns are the coefficients; Cholesky of a d x d matrix.
* :class:`RowSpace` (n < d): :math:`w = \Lambda^{-1} X^\top \beta`; Cholesky of an n x n matrix, and X is touched
  only to form :math:`K = X \Lambda^{-1} X^\top` and, at the end, the coefficients.

A full step ends at :math:`w + \delta` with the *linearised* dual point :math:`-a = g + h \circ t`,
:math:`t = X \delta`. That point meets every equality constraint and makes the penalty's Fenchel-Young
terms vanish, so the gap after a step costs O(n) and no product with X.

Piecewise quadratic losses make this a semismooth Newton method.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
from scipy.linalg import lstsq

from glru import duality
from glru.linalg import UNIT, Array
from glru.linalg.factor import cholesky_solve, core_factor, solve_shifted
from glru.metric.rows import RowSide
from glru.point import Point
from glru.problem import Problem
from glru.solution import dual_of
from glru.solvers.common import Run, State, Stop, end, step_length
from glru.sums import Floor


@final
@dataclass(frozen=True, eq=False)
class Step:
    """A Newton direction: ``move`` in the space's unknowns, ``scores`` in the scores.

    ``slope`` and ``bend`` describe the penalty along it: ``penalty(step) = penalty + step slope + step^2 bend / 2``.
    """

    move: Array
    scores: Array
    slope: float
    bend: float


class Space(ABC):
    """The unknowns a Newton system is solved in."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @abstractmethod
    def place(self, point: Point) -> Array:
        """The unknowns that stand for a point, or near it."""

    @abstractmethod
    def primal(self, unknowns: Array) -> tuple[Array, float]:
        """Coefficients and intercept."""

    @abstractmethod
    def scores(self, unknowns: Array) -> Array:
        """Scores of all rows."""

    @abstractmethod
    def penalty(self, unknowns: Array) -> float:
        """Value of the penalty."""

    @abstractmethod
    def step(self, unknowns: Array, gradient: Array, curvature: Array) -> Step:
        """The Newton direction, from the loss derivatives at the current scores."""

    def linear_dual(self, unknowns: Array, gradient: Array, curvature: Array, step: Step) -> Array:
        """The linearised dual point of a full step from ``unknowns``."""
        return -(gradient + curvature * step.scores)


@final
class ColumnSpace(Space):
    """Unknowns: the coefficients, and the intercept behind them."""

    def place(self, point: Point) -> Array:
        return np.append(point.coef, point.intercept) if self.problem.fit_intercept else point.coef.copy()

    def primal(self, unknowns: Array) -> tuple[Array, float]:
        if self.problem.fit_intercept:
            return unknowns[:-1].copy(), float(unknowns[-1])
        return unknowns, 0.0

    def scores(self, unknowns: Array) -> Array:
        return self.problem.scores(*self.primal(unknowns))

    def penalty(self, unknowns: Array) -> float:
        return float(self.problem.penalty.value(self.primal(unknowns)[0]).sum())

    def step(self, unknowns: Array, gradient: Array, curvature: Array) -> Step:
        problem = self.problem
        lam = problem.penalty.quadratic
        coef, _ = self.primal(unknowns)
        pull, bend = problem.weights * gradient, problem.weights * curvature
        slope = problem.matrix.T @ pull + lam * coef
        if problem.fit_intercept:
            slope = np.append(slope, pull.sum())
        move = -solve_shifted(problem.hessian(bend), slope)
        delta, shift = self.primal(move)
        return Step(move, problem.scores(delta, shift), float(lam * coef @ delta), float(lam * delta @ delta))


@final
class RowSpace(Space):
    r"""Unknowns: :math:`\beta`, one a row, then the unpenalised coefficients and the intercept.

    Needs a penalty above zero on all but a few columns. Rows of weight zero take no part.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.side = RowSide(problem)
        self.gram, self.border = self.side.gram, self.side.border

    def place(self, point: Point) -> Array:
        problem = self.problem
        if not point.coef.any():
            return np.zeros(problem.n_rows + self.border.shape[1])
        free = point.coef[problem.unpenalised]
        tail = np.append(free, self.side.intercept(point.coef, point.intercept)) if problem.fit_intercept else free
        duals = [dual_of(problem, problem.scores(point.coef, point.intercept)), np.zeros(problem.n_rows)]
        duals = duals if point.dual is None else [point.dual, *duals]
        # A dual point need not belong to its primal point: of those at hand, start where the objective is lowest.
        places = [np.concatenate([problem.weights * dual, tail]) for dual in duals]
        return min(places, key=self._objective)

    def _objective(self, unknowns: Array) -> float:
        losses = self.problem.loss.value(self.problem.y, self.scores(unknowns))
        return float(self.problem.weights @ losses) + self.penalty(unknowns)

    def primal(self, unknowns: Array) -> tuple[Array, float]:
        problem, n = self.problem, self.problem.n_rows
        coef = self.side.inverse * self.side.pulled(unknowns[:n])
        coef[problem.unpenalised] = unknowns[n : n + problem.unpenalised.size]
        return coef, self.side.intercept(coef, float(unknowns[-1]), -1.0) if problem.fit_intercept else 0.0

    def scores(self, unknowns: Array) -> Array:
        n = self.problem.n_rows
        return self.gram @ unknowns[:n] + self.border @ unknowns[n:]

    def penalty(self, unknowns: Array) -> float:
        beta = unknowns[: self.problem.n_rows]
        return 0.5 * float(beta @ (self.gram @ beta))

    def step(self, unknowns: Array, gradient: Array, curvature: Array) -> Step:
        problem, n = self.problem, self.problem.n_rows
        beta = unknowns[:n]
        bend = problem.weights * curvature
        # Rows without curvature are left out.
        active = np.flatnonzero(bend > 0.0)
        root = np.sqrt(bend[active])
        factor = core_factor(self.gram if active.size == n else self.gram[active][:, active], root)

        def through(v: Array) -> Array:
            """``(I + D K)^-1 v`` with ``D`` the weighted curvature."""
            out = v.copy()
            out[active] -= root * cholesky_solve(factor, root * (self.gram @ v)[active])
            return out

        move = -through(problem.weights * gradient + beta)
        if self.border.shape[1]:
            # (I + D K)^-1 D U in a form without the cancellation that large D would bring to `through`.
            bordered = np.zeros_like(self.border)
            bordered[active] = root[:, None] * cholesky_solve(factor, root[:, None] * self.border[active])
            right, system = self.border.T @ (beta + move), self.border.T @ bordered
            # Of what overflowed LAPACK makes an error; here it is no step.
            tail = np.full(right.shape, np.nan)
            if np.all(np.isfinite(system)) and np.all(np.isfinite(right)):
                tail = lstsq(system, right, check_finite=False)[0]
                # Once more with what rounding left of the constraint: a dual that misses it has to be repaired.
                missed = self.border.T @ (beta + move - bordered @ tail)
                tail = tail + lstsq(system, missed, check_finite=False)[0]
            move = np.concatenate([move - bordered @ tail, tail])
        image = self.gram @ move[:n]
        return Step(move, image + self.border @ move[n:], float(beta @ image), float(move[:n] @ image))

    def linear_dual(self, unknowns: Array, gradient: Array, curvature: Array, step: Step) -> Array:
        # In exact arithmetic s o a = beta. Taking beta leaves the rounding of the solve to the losses; the other form
        # would leave it to the penalty, which multiplies it by 1 / lam.
        problem = self.problem
        linear = super().linear_dual(unknowns, gradient, curvature, step)
        beta = (unknowns + step.move)[: problem.n_rows]
        dual = np.divide(beta, problem.weights, out=linear.copy(), where=problem.weights > 0.0)
        # A row without curvature keeps its derivative, which may stand on the edge of the domain.
        return np.where(curvature > 0.0, dual, linear)


def newton(problem: Problem, start: Point, stop: Stop) -> Run:
    """Train by direct Newton steps; see the module's text."""
    space = RowSpace(problem) if uses_row_space(problem) else ColumnSpace(problem)
    unknowns = space.place(start)
    scores, penalty = space.scores(unknowns), space.penalty(unknowns)
    cold = not start.coef.any()
    linear: Array | None = None
    best: State | None = None
    n_iter = quiet = 0
    floor = Floor.of(problem.loss)
    while True:
        values, gradient, curvature = problem.loss.expand(problem.y, scores)
        curvature = floor.raised(curvature, scores)
        value = float(problem.weights @ values) + penalty
        if linear is None and (stop.until is not None or (n_iter == 0 and not cold)):
            linear = duality.feasible_dual(problem, -gradient)
            gap = duality.gap(problem, *space.primal(unknowns), linear).value
        else:
            gap = np.inf if linear is None else float(duality.row_terms(problem, scores, linear).sum())
        state = State(
            n_iter, value, gap, scores, -gradient if linear is None else linear, partial(space.primal, unknowns)
        )
        best = state if best is None or gap <= best.gap else best
        status = stop.check(state)
        if status is not None:
            return end(state, status, n_iter)

        step = space.step(unknowns, gradient, curvature)
        pull = problem.weights * gradient * step.scores
        descent = float(pull.sum()) + step.slope
        # A descent smaller than the rounding of its own sum cannot be seen: a few such steps end the run.
        noise = 8.0 * UNIT * (float(np.abs(pull).sum()) + abs(step.slope))
        quiet = quiet + 1 if -descent <= noise else 0
        length = step_length(partial(_slope_along, problem, scores, step), descent, noise)
        if quiet > 5 or (length == 0.0 and floor.highest):
            better = best.primal_value <= state.primal_value + noise
            return end(best if quiet and better else state, "stalled", n_iter)
        floor, n_iter = floor.after(length), n_iter + 1
        if length == 0.0:
            # Once more from here with more curvature. The step may hold no numbers: it is not added, not even zero times.
            linear = None
            continue
        linear = _linear_dual(space, unknowns, gradient, curvature, step, stop, value) if length == 1.0 else None
        unknowns = unknowns + length * step.move
        scores = scores + length * step.scores
        penalty += length * step.slope + 0.5 * length**2 * step.bend


def uses_row_space(problem: Problem) -> bool:
    """Whether the n x n system is the smaller one, and enough columns are penalised to use it."""
    return problem.n_rows < problem.n_columns and 4 * problem.unpenalised.size < problem.n_rows


def length_of(problem: Problem, scores: Array, gradient: Array, step: Step) -> float:
    """How far to go along a Newton direction: all the way unless the objective rises; 0 where there is no descent."""
    values = [problem.loss.value(problem.y, scores + length * step.scores) for length in (0.0, 1.0)]
    if float(problem.weights @ (values[1] - values[0])) + step.slope + 0.5 * step.bend <= 0.0:
        return 1.0
    pull = problem.weights * gradient * step.scores
    noise = 8.0 * UNIT * (float(np.abs(pull).sum()) + abs(step.slope))
    return step_length(partial(_slope_along, problem, scores, step), float(pull.sum()) + step.slope, noise)


def _slope_along(problem: Problem, scores: Array, step: Step, length: float) -> float:
    """The objective's derivative along a step."""
    slopes = problem.loss.gradient(problem.y, scores + length * step.scores)
    return float(problem.weights @ (slopes * step.scores)) + step.slope + length * step.bend


def _linear_dual(
    space: Space, unknowns: Array, gradient: Array, curvature: Array, step: Step, stop: Stop, value: float
) -> Array | None:
    """The linearised dual point of a full step, or None where it leaves the domain or the gap is sure to be too large."""
    problem = space.problem
    constant = problem.loss.self_concordance
    if constant is not None and stop.until is None:
        # To leading order F_l = (M t^2 h / 2)^2 / (2 h): far above the target, the exact sum is not worth its price.
        estimate = constant**2 / 8.0 * float(problem.weights @ (curvature * np.square(np.square(step.scores))))
        if estimate > 100.0 * stop.target(value):
            return None
    dual = space.linear_dual(unknowns, gradient, curvature, step)
    projected = -problem.loss.project(problem.y, -dual)
    # Rounding may carry a dual variable over the edge of the domain; its price shows when the gap is taken afresh.
    return projected if np.abs(projected - dual).max() <= 1e-9 * np.abs(dual).max() else None
