"""Exact Newton steps of the changed problem from the carried point, with the linearised dual point."""

import numpy as np

from glru import duality
from glru.certificate import Certificate, certify
from glru.linalg import Array
from glru.point import Point
from glru.problem import Problem
from glru.solvers.newton import ColumnSpace, RowSpace, length_of, uses_row_space
from glru.solvers.prox_newton import model_step

MAX_STEPS = 5
"""Newton steps of a candidate."""

NO_MORE = 1e-9
"""A gap that is this share of the carried point's is not reduced any further."""


def newton_candidate(
    problem: Problem, point: Point, n_steps: int = 1, damped: bool = False, enough: float = 0.0
) -> Certificate:
    """The certificate after Newton steps from a point of the same problem.

    The dual point is the linearised one of a full step, projected onto the domain of the loss conjugate where it leaves it, or
    the loss derivatives at the new scores, whichever has the smaller gap. A step that does not halve the gap is the last.
    ``damped``: steps that would raise the objective are shortened; without it the certificate tells how good they are.
    ``enough``: a gap that is small enough.
    """
    best = certify(problem, _step(problem, point, damped))
    for _ in range(n_steps - 1):
        if best.gap <= enough:
            break
        after = certify(problem, _step(problem, best.point, damped))
        if not after.gap < 0.5 * best.gap:
            break
        best = after
    return best


def best_candidate(problem: Problem, point: Point, known: Certificate) -> Certificate:
    """The best of a known certificate and those of full and of damped Newton steps: never wider than where it started."""
    enough = NO_MORE * known.gap if np.isfinite(known.gap) else 0.0
    found = [known, newton_candidate(problem, point, MAX_STEPS, enough=enough)]
    if not found[1].gap < 0.1 * known.gap:
        found.append(newton_candidate(problem, point, MAX_STEPS, True, enough))
    return min(found, key=lambda certificate: certificate.gap)


def newton_step(problem: Problem, point: Point) -> Point:
    """The point after one full Newton step, with its linearised dual variables; the penalty must be smooth."""
    return Point(*_smooth_step(problem, point, damped=False))


def _step(problem: Problem, point: Point, damped: bool) -> Point:
    step = _smooth_step(problem, point, damped) if problem.penalty.smooth else _prox_step(problem, point)
    coef, intercept, linear = step
    if not (np.all(np.isfinite(coef)) and np.isfinite(intercept)):
        return point
    plain = -problem.loss.gradient(problem.y, problem.scores(coef, intercept))
    found = [Point(coef, intercept, duality.feasible_dual(problem, plain))]
    if np.all(np.isfinite(linear)):
        projected = duality.feasible_dual(problem, -problem.loss.project(problem.y, -linear))
        found.append(Point(coef, intercept, projected))
    return min(found, key=lambda p: _gap(problem, p))


def _gap(problem: Problem, point: Point) -> float:
    value = duality.gap(problem, point.coef, point.intercept, _dual(point)).value
    return value if np.isfinite(value) else np.inf


def _smooth_step(problem: Problem, point: Point, damped: bool) -> tuple[Array, float, Array]:
    space = RowSpace(problem) if uses_row_space(problem) else ColumnSpace(problem)
    unknowns = space.place(point)
    scores = space.scores(unknowns)
    _, gradient, curvature = problem.loss.expand(problem.y, scores)
    step = space.step(unknowns, gradient, curvature)
    length = length_of(problem, scores, gradient, step) if damped else 1.0
    coef, intercept = space.primal(unknowns + length * step.move)
    if length == 1.0:
        return coef, intercept, space.linear_dual(unknowns, gradient, curvature, step)
    return coef, intercept, np.full(problem.n_rows, np.nan)


def _prox_step(problem: Problem, point: Point) -> tuple[Array, float, Array]:
    _, gradient, curvature = problem.loss.expand(problem.y, problem.scores(point.coef, point.intercept))
    coef, shift, forward = model_step(problem, point.coef, gradient, curvature, problem.n_columns)
    return coef, point.intercept + shift, -(gradient + curvature * forward)


def _dual(point: Point) -> Array:
    assert point.dual is not None
    return point.dual
