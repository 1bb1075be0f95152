r"""Proximal-point steps for the hinge, which has no curvature for Newton to use.

Each step replaces every row's hinge by :class:`~glru.losses.ProximalHinge` around the row's last dual
variable and solves that smooth problem by Newton. As the smoothing width shrinks the sequence
converges faster than linearly, whatever the penalty.
"""

import numpy as np

from glru.losses import ProximalHinge
from glru.point import Point
from glru.problem import Problem
from glru.solution import relative, solution_at
from glru.solvers.common import Run, Stop, end, state_at
from glru.solvers.newton import newton
from glru.solvers.prox_newton import prox_newton


def proximal_point(problem: Problem, start: Point, stop: Stop) -> Run:
    """Train by proximal-point steps on the dual; see the module's text.

    The width of the smoothing shrinks while the smooth problems stay easy, and grows when one is too hard:
    any width converges, a narrow one in fewer steps.
    """
    inner = newton if problem.penalty.smooth else prox_newton
    point = start
    slopes, width = np.full(problem.n_rows, 0.5), 1.0
    if start.dual is not None:
        slopes, width = np.clip(problem.y * start.dual, 0.0, 1.0), 0.1
    elif start.coef.any():
        slopes = np.abs(problem.loss.gradient(problem.y, problem.scores(start.coef, start.intercept)))
    state = best = state_at(problem, 0, point.coef, point.intercept, problem.y * slopes)
    n_iter = failures = 0
    accuracy = 1e-2
    while True:
        status = stop.check(state)
        if status is not None:
            return end(state if status != "max_iter" else best, status, n_iter)
        if failures > 10:
            return end(best, "stalled", n_iter)
        smooth = problem.derive(loss=ProximalHinge(width, slopes))
        target = accuracy * min(1.0, relative(state.gap, state.primal_value))
        run = inner(smooth, point, Stop(max(target, 1e-15), None, 50))
        solution = solution_at(smooth, run.point, run.n_iter, run.status, "")
        ahead = np.clip(problem.y * solution.dual, 0.0, 1.0)
        n_iter += 1
        state = state_at(problem, n_iter, solution.coef, solution.intercept, problem.y * ahead)
        if run.status == "converged" or state.gap < 0.5 * best.gap:
            point, slopes = solution.point, ahead
            width = max(0.3 * width, 1e-6) if run.n_iter <= 15 else width
            accuracy = accuracy if state.gap < 0.5 * best.gap else 0.1 * accuracy
            failures = 0 if state.gap < best.gap else failures + 1
        else:
            width, failures = 4.0 * width, failures + 1
        best = state if state.gap <= best.gap else best
