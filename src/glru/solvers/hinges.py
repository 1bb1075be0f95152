r"""The hinge losses: a primal-dual interior point under an L2 penalty, and proximal-point steps under any penalty.

With :math:`a_i = y_i q_i` the dual of a hinge loss is a quadratic program over the box :math:`0 \le q_i \le u`,

.. math:: \min_q \tfrac{1}{2} \|X^\top (s \circ y \circ q)\|^2_{\Lambda^{-1}} + \sum_i s_i (\tfrac{\gamma}{2} q_i^2 - q_i)

(:math:`u = 1`; the squared hinge has no upper end). A semismooth Newton method has to find out which rows are at an
end of the box, and on nearly separable data it walks through hundreds of guesses. The barrier needs none: multipliers
:math:`\alpha, \beta > 0` of the two ends are kept on the central path :math:`\alpha_i q_i = \beta_i (u - q_i) = \mu`
while :math:`\mu` falls. Each step is a Newton system with the curvature
:math:`1 / (\gamma + \alpha / q + \beta / (u - q))`, which :class:`~glru.solvers.newton.Space` solves as any other.

A proximal-point step replaces every row's hinge by :class:`~glru.losses.ProximalHinge` around the row's last dual
variable and solves that smooth problem by Newton. As the smoothing width shrinks the sequence
converges faster than linearly, whatever the penalty.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from glru.linalg import Array
from glru.losses import Hinge, ProximalHinge, SmoothedHinge, SquaredHinge
from glru.problem import Point, Problem
from glru.solution import make_solution, relative
from glru.solvers.newton import (
    ColumnSpace,
    RowSpace,
    Run,
    Space,
    Stop,
    end,
    newton,
    state_at,
    uses_row_space,
    zero_point,
)
from glru.solvers.prox_newton import prox_newton

TO_BOUNDARY = 0.995
"""The largest share of the distance to the boundary of the box that a step may cover."""

MAX_FAILURES = 10
"""The largest number of consecutive proximal-point steps without progress."""

MAX_IDLE = 6
"""The largest number of consecutive interior-point steps near the target that do not lower the gap: rounding keeps it up."""

CLOSE = 1e-8
"""Relative gap of a start from which a proximal-point run is not begun anew, from zero."""

SHORT_STEP = 1e-8
"""Two consecutive steps shorter than this end the run: rounding dominates their direction."""


@final
@dataclass(frozen=True)
class _Box:
    """The dual of a hinge loss: ``gamma / 2 q^2 - q`` on ``0 <= q <= upper``."""

    gamma: float
    upper: float

    @property
    def bounded(self) -> bool:
        """Whether there is an upper end."""
        return bool(np.isfinite(self.upper))

    def products(self, q: Array, alpha: Array, beta: Array) -> Array:
        """``alpha q + beta (upper - q)``: what each row is away from complementarity."""
        return alpha * q + beta * (self.upper - q) if self.bounded else alpha * q


def find_box(loss: object) -> _Box | None:
    """The box of a hinge loss; None for other losses."""
    if isinstance(loss, SquaredHinge):
        return _Box(0.5, np.inf)
    if isinstance(loss, SmoothedHinge):
        return _Box(loss.gamma, 1.0)
    return _Box(0.0, 1.0) if isinstance(loss, Hinge) else None


def interior_point(problem: Problem, start: Point, stop: Stop) -> Run:
    """Train by primal-dual interior-point steps; see the module's text.

    A start that is good enough is returned as it is; otherwise the run begins at the centre of the box, whatever the start:
    a point on the boundary is the worst of all starts for a barrier.
    """
    box = find_box(problem.loss)
    assert box is not None
    dual = start.dual
    if dual is None:
        dual = -problem.loss.gradient(problem.y, problem.scores(start.coef, start.intercept))
    best = state_at(problem, 0, start.coef, start.intercept, dual)
    status = stop.check(best)
    if status is not None:
        return end(best, status, 0)
    space: Space = RowSpace(problem) if uses_row_space(problem) else ColumnSpace(problem)
    unknowns = np.zeros_like(space.place(zero_point(problem)))
    y, scores = problem.y, np.zeros(problem.n_rows)
    q, alpha = np.full(problem.n_rows, 0.5), np.ones(problem.n_rows)
    beta = np.ones(problem.n_rows) if box.bounded else np.zeros(problem.n_rows)
    # Rows without weight stay at the centre of the box: their ends would shorten the steps of the others.
    used = problem.weights > 0.0
    n_products = np.count_nonzero(used) * (2 if box.bounded else 1)
    n_iter = n_short = n_idle = 0
    sigma = 0.1
    while True:
        slack = box.upper - q
        mu = sigma * box.products(q, alpha, beta).sum(where=used) / n_products
        curvature = 1.0 / (box.gamma + alpha / q + beta / slack)
        residual = (1.0 - y * scores) - box.gamma * q + mu / q - mu / slack
        gradient = -y * (q + curvature * residual)
        step = space.step(unknowns, gradient, curvature)
        dq = np.where(used, y * space.linear_dual(unknowns, gradient, curvature, step) - q, 0.0)
        dalpha = np.where(used, (mu - alpha * dq) / q - alpha, 0.0)
        dbeta = np.where(used, (mu + beta * dq) / slack - beta, 0.0) if box.bounded else np.zeros_like(q)
        length = min(
            _find_longest_step(q, dq),
            _find_longest_step(alpha, dalpha),
            _find_longest_step(slack, -dq),
            _find_longest_step(beta, dbeta),
            1.0,
        )
        if not np.isfinite(length) or not np.all(np.isfinite(step.move)):
            return end(best, "stalled", n_iter)
        n_short = n_short + 1 if length < SHORT_STEP else 0
        q, alpha, beta = q + length * dq, alpha + length * dalpha, beta + length * dbeta
        unknowns = unknowns + length * step.move
        scores = scores + length * step.scores
        sigma = float(np.clip((1.0 - length) ** 2, 0.01, 0.8))
        n_iter += 1
        # The products of the multipliers and their distances are the gap once the point is feasible. Far above the target the
        # exact one is not worth two passes over X, nor is a question; near the end it tells which of the last points is the best.
        rough = float(problem.weights @ box.products(q, alpha, beta))
        far = rough > max(10.0 * stop.target(best.primal_value), 1e-4 * best.primal_value)
        if far and n_short < 2 and n_iter < stop.max_iter:
            continue
        state = state_at(problem, n_iter, *space.primal(unknowns), y * q)
        n_idle = 0 if state.gap < best.gap else n_idle + 1
        best = state if state.gap <= best.gap else best
        status = stop.check(state)
        if status is not None:
            return end(state if status != "max_iter" else best, status, n_iter)
        if n_short >= 2 or n_idle > MAX_IDLE:
            return end(best, "stalled", n_iter)


def _find_longest_step(values: Array, moves: Array) -> float:
    """How far along ``moves`` the positive ``values`` stay positive, and a little less."""
    falling = moves < 0.0
    return TO_BOUNDARY * float((values[falling] / -moves[falling]).min(initial=np.inf))


def proximal_point(problem: Problem, start: Point, stop: Stop) -> Run:
    """Train by proximal-point steps on the dual; see the module's text.

    The width of the smoothing shrinks while the smooth problems stay easy, and grows when one is too hard:
    any width converges, a narrow one in fewer steps.
    """
    inner = newton if problem.penalty.smooth else prox_newton
    point, n_rows, warm = start, problem.n_rows, start.dual is not None
    slopes, width = np.full(n_rows, 0.5), 1.0
    if start.dual is not None:
        slopes, width = np.clip(problem.y * start.dual, 0.0, 1.0), 0.1
    elif start.coef.any():
        slopes = np.abs(problem.loss.gradient(problem.y, problem.scores(start.coef, start.intercept)))
    state = best = state_at(problem, 0, point.coef, point.intercept, problem.y * slopes)
    n_iter = failures = 0
    accuracy, before = 1e-2, best.gap
    while True:
        status = stop.check(state)
        if status is not None:
            return end(state if status != "max_iter" else best, status, n_iter)
        if failures > MAX_FAILURES and not (warm and relative(best.gap, best.primal_value) > CLOSE):
            return end(best, "stalled", n_iter)
        if failures > MAX_FAILURES:
            # A start next to the optimum, its dual variables at the wrong ends, can be worse than none.
            point, slopes, width, accuracy, failures, warm = (
                zero_point(problem),
                np.full(n_rows, 0.5),
                1.0,
                1e-2,
                0,
                False,
            )
            state = state_at(problem, n_iter, point.coef, point.intercept, problem.y * slopes)
            before = state.gap
        smooth = problem.derive(loss=ProximalHinge(width, slopes))
        target = accuracy * min(1.0, relative(state.gap, state.primal_value))
        run = inner(smooth, point, Stop(max(target, 1e-15), None, 50))
        solution = make_solution(smooth, run.point, run.n_iter, run.status, "")
        ahead = np.clip(problem.y * solution.dual, 0.0, 1.0)
        n_iter += 1
        state = state_at(problem, n_iter, solution.coef, solution.intercept, problem.y * ahead)
        if run.status == "converged" or state.gap < 0.5 * before:
            point, slopes = solution.point, ahead
            width = max(0.3 * width, 1e-6) if run.n_iter <= 15 else width
            accuracy = accuracy if state.gap < 0.5 * before else 0.1 * accuracy
            failures = 0 if state.gap < before else failures + 1
        else:
            width, failures = 4.0 * width, failures + 1
        before = min(before, state.gap)
        best = state if state.gap <= best.gap else best
