"""Exact Newton steps of the changed problem from the carried point, with the linearised dual point."""

import numpy as np

from glru import duality
from glru.certificate import Certificate, certify
from glru.linalg import Array
from glru.point import Point
from glru.problem import Problem
from glru.solvers.newton import ColumnSpace, RowSpace, uses_row_space
from glru.solvers.prox_newton import model_step

MAX_STEPS = 3
"""Newton steps of a candidate; each squares the error, so that more would rarely be seen."""


def newton_candidate(problem: Problem, point: Point, n_steps: int = 1) -> Certificate:
    """The certificate after full Newton steps from a point of the same problem.

    The dual point is the linearised one, projected onto the domain of the loss conjugate where it leaves it, or
    the loss derivatives at the new scores, whichever has the smaller gap. The steps are not shortened: a candidate
    needs no line search, since its certificate tells how good it is. A step that does not halve the gap is the last.
    """
    best = certify(problem, _step(problem, point))
    for _ in range(n_steps - 1):
        after = certify(problem, _step(problem, best.point))
        if not after.gap < 0.5 * best.gap:
            break
        best = after
    return best


def _step(problem: Problem, point: Point) -> Point:
    coef, intercept, linear = _smooth_step(problem, point) if problem.penalty.smooth else _prox_step(problem, point)
    if not (np.all(np.isfinite(coef)) and np.isfinite(intercept)):
        return point
    plain = -problem.loss.gradient(problem.y, problem.scores(coef, intercept))
    best = Point(coef, intercept, duality.feasible_dual(problem, plain))
    if not np.all(np.isfinite(linear)):
        return best
    projected = duality.feasible_dual(problem, -problem.loss.project(problem.y, -linear))
    other = Point(coef, intercept, projected)
    return min(best, other, key=lambda p: duality.gap(problem, p.coef, p.intercept, _dual(p)).value)


def _smooth_step(problem: Problem, point: Point) -> tuple[Array, float, Array]:
    space = RowSpace(problem) if uses_row_space(problem) else ColumnSpace(problem)
    unknowns = space.place(point)
    _, gradient, curvature = problem.loss.expand(problem.y, space.scores(unknowns))
    step = space.step(unknowns, gradient, curvature)
    coef, intercept = space.primal(unknowns + step.move)
    return coef, intercept, space.linear_dual(unknowns, gradient, curvature, step)


def _prox_step(problem: Problem, point: Point) -> tuple[Array, float, Array]:
    _, gradient, curvature = problem.loss.expand(problem.y, problem.scores(point.coef, point.intercept))
    coef, shift, forward = model_step(problem, point.coef, gradient, curvature, problem.n_columns)
    return coef, point.intercept + shift, -(gradient + curvature * forward)


def _dual(point: Point) -> Array:
    assert point.dual is not None
    return point.dual
