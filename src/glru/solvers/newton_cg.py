r"""Trust-region Newton-CG (TRON) for smooth losses with an L2 penalty: only products with X and its transpose.

Each outer iteration minimises the quadratic model within a trust region by preconditioned conjugate
gradients and goes to the objective's minimum along that move. A CG residual ``r`` costs exactly
:math:`\sum_j r_j^2 / (2 \lambda_j)` in the duality gap of the linearised dual point, which tells the
inner iteration when it has done enough.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import numpy as np

from glru import duality
from glru.linalg import UNIT, Array
from glru.point import Point
from glru.problem import Problem
from glru.solvers.common import Run, State, Stop, end, step_length
from glru.solvers.preconditioner import Preconditioner, prepare
from glru.sums import Floor

MAX_INNER = 500
"""Conjugate-gradient steps in one outer iteration."""


@final
@dataclass(frozen=True, eq=False)
class Trial:
    """An approximate minimiser of the quadratic model: the move, its scores, the model's residual and decrease."""

    move: Array
    scores: Array
    residual: Array
    decrease: float
    on_edge: bool


def newton_cg(problem: Problem, start: Point, stop: Stop) -> Run:
    """Train by trust-region Newton-CG; see the module's text."""
    conditioner = prepare(problem, start)
    model = _Model(problem)
    unknowns = model.pack(start.coef, start.intercept)
    scores = problem.scores(start.coef, start.intercept)
    floor = Floor.of(problem.loss)
    values, gradient, curvature = problem.loss.expand(problem.y, scores)
    value = model.value(unknowns, values)
    slope = model.slope(unknowns, gradient)
    radius, sharpness = np.inf, 1.0
    n_iter = quiet = 0
    state = best = model.state(0, value, unknowns, scores, gradient, slope)
    while True:
        status = stop.check(state)
        if status is not None:
            return end(state if status != "max_iter" else best, status, n_iter)
        raised = floor.raised(curvature, scores)
        conditioner = conditioner.at(raised)
        trial = model.minimise(slope, raised, conditioner, sharpness * conditioner.forcing, radius, stop.target(value))
        pull = slope * trial.move
        descent, noise = float(pull.sum()), 8.0 * UNIT * float(np.abs(pull).sum())
        quiet = quiet + 1 if -descent <= noise or trial.decrease <= UNIT * value else 0
        length = step_length(partial(model.slope_along, unknowns, scores, trial), descent, noise)
        if quiet > 5 or (length == 0.0 and floor.highest):
            return end(best, "stalled", n_iter)
        floor, n_iter = floor.after(length), n_iter + 1
        if length == 0.0:
            state = replace(state, n_iter=n_iter)
            continue
        if length < 0.25:
            radius = length * float(np.sqrt(trial.move @ conditioner.product(trial.move)))
        elif trial.on_edge and length >= 1.0:
            radius = 4.0 * radius
        linear = gradient + raised * trial.scores
        unknowns, scores = unknowns + length * trial.move, scores + length * trial.scores
        values, gradient, curvature = problem.loss.expand(problem.y, scores)
        value = model.value(unknowns, values)
        slope = model.slope(unknowns, gradient)
        state = model.state(n_iter, value, unknowns, scores, gradient, slope)
        if length == 1.0 and not trial.on_edge:
            state = model.linear_state(state, linear, trial.residual)
        # Where the gap does not fall the model is solved more sharply: piecewise losses need exact Newton steps.
        if problem.loss.self_concordance is None:
            sharpness = max(0.1 * sharpness, 1e-9) if state.gap > 0.5 * best.gap else min(10.0 * sharpness, 1.0)
        best = state if state.gap <= best.gap else best


@final
class _Model:
    """The objective and its quadratic model in ``(coef, intercept)``."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.lam = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))

    def pack(self, coef: Array, intercept: float) -> Array:
        return np.append(coef, intercept) if self.problem.fit_intercept else coef

    def unpack(self, unknowns: Array) -> tuple[Array, float]:
        if self.problem.fit_intercept:
            return unknowns[:-1], float(unknowns[-1])
        return unknowns, 0.0

    def value(self, unknowns: Array, losses: Array) -> float:
        coef, _ = self.unpack(unknowns)
        return float(self.problem.weights @ losses + 0.5 * (self.lam * coef) @ coef)

    def slope(self, unknowns: Array, gradient: Array) -> Array:
        """Gradient of the objective."""
        pull = self.problem.weights * gradient
        coef, _ = self.unpack(unknowns)
        return self.pack(self.problem.matrix.T @ pull + self.lam * coef, float(pull.sum()))

    def product(self, curvature: Array) -> Callable[[Array], tuple[Array, Array]]:
        """The map from a move to its scores and its Hessian product."""
        bend = self.problem.weights * curvature
        through = self.problem.matrix.curvature_product(bend)
        if not self.problem.fit_intercept:

            def plain(move: Array) -> tuple[Array, Array]:
                forward, back = through(move)
                return forward, back + self.lam * move

            return plain
        border, total = self.problem.matrix.T @ bend, float(bend.sum())

        def bordered(move: Array) -> tuple[Array, Array]:
            coef, shift = move[:-1], move[-1]
            forward, back = through(coef)
            return forward + shift, np.append(back + shift * border + self.lam * coef, border @ coef + shift * total)

        return bordered

    def slope_along(self, unknowns: Array, scores: Array, trial: Trial, length: float) -> float:
        """The objective's derivative along a trial's move."""
        slopes = self.problem.loss.gradient(self.problem.y, scores + length * trial.scores)
        (coef, _), (move, _) = self.unpack(unknowns), self.unpack(trial.move)
        bend = float(self.problem.weights @ (slopes * trial.scores))
        return bend + float((self.lam * (coef + length * move)) @ move)

    def minimise(
        self, slope: Array, curvature: Array, conditioner: Preconditioner, forcing: float, radius: float, target: float
    ) -> Trial:
        """Preconditioned conjugate gradients on the model within ``radius`` (Steihaug)."""
        product = self.product(curvature)
        move, scores = np.zeros_like(slope), np.zeros(self.problem.n_rows)
        residual = slope.copy()
        scaled = conditioner.solve(residual)
        direction = -scaled
        energy = first = float(residual @ scaled)
        on_edge = False
        for _ in range(MAX_INNER):
            if energy <= forcing * first or self.price(residual) <= 0.1 * target:
                break
            forward, bent = product(direction)
            bend = float(direction @ bent)
            if not bend > 0.0:
                break
            length = energy / bend
            beyond = move + length * direction
            if np.isfinite(radius) and beyond @ conditioner.product(beyond) > radius**2:
                length, on_edge = _to_edge(move, direction, conditioner, radius), True
            move, scores = move + length * direction, scores + length * forward
            residual = residual + length * bent
            if on_edge:
                break
            scaled = conditioner.solve(residual)
            energy, old = float(residual @ scaled), energy
            direction = -scaled + (energy / old) * direction
        decrease = -0.5 * float(move @ (slope + residual))
        return Trial(move, scores, residual, decrease, on_edge)

    def price(self, residual: Array) -> float:
        """What a residual of the Newton system costs in the gap of the linearised dual point."""
        columns, shift = self.unpack(residual)
        if shift != 0.0 or self.problem.unpenalised.size:
            return np.inf
        return 0.5 * float(columns @ (columns / self.lam))

    def state(self, n_iter: int, value: float, unknowns: Array, scores: Array, gradient: Array, slope: Array) -> State:
        """The state with the dual point from the loss derivatives."""
        problem, primal = self.problem, partial(self.unpack, unknowns)
        if not problem.fit_intercept and not problem.unpenalised.size:
            return State(n_iter, value, self.price(slope), scores, -gradient, primal)
        dual = duality.feasible_dual(problem, -gradient)
        gap = duality.gap(problem, *self.unpack(unknowns), dual).value
        return State(n_iter, value, gap, scores, dual, primal)

    def linear_state(self, state: State, linear: Array, residual: Array) -> State:
        """The same state with the linearised dual point, if that has the smaller gap."""
        problem, price = self.problem, self.price(residual)
        if price >= state.gap or not np.array_equal(problem.loss.project(problem.y, linear), linear):
            return state
        gap = price + float(duality.row_terms(problem, state.scores, -linear).sum())
        if gap >= state.gap:
            return state
        return State(state.n_iter, state.primal_value, gap, state.scores, -linear, state.primal)


def _to_edge(move: Array, direction: Array, conditioner: Preconditioner, radius: float) -> float:
    """The step along ``direction`` that reaches the trust region's edge."""
    image = conditioner.product(direction)
    a, b = float(direction @ image), float(move @ image)
    c = float(move @ conditioner.product(move)) - radius**2
    root = np.sqrt(max(b * b - a * c, 0.0))
    return (root - b) / a if b <= 0.0 else -c / (b + root)
