"""Exact Newton steps of the changed problem from the carried point, with the linearised dual point."""

import numpy as np

from glru import duality
from glru.certificate import Certificate, certify
from glru.linalg import Array
from glru.problem import Point, Problem
from glru.solvers.newton import ColumnSpace, RowSpace, Step, length_of, uses_row_space
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
    return _newton_steps(problem, point, n_steps, damped, enough)[0]


def _newton_steps(problem: Problem, point: Point, n_steps: int, damped: bool, enough: float) -> tuple[Certificate, int]:
    """:func:`newton_candidate`, and how many steps were made."""
    best = certify(problem, _step(problem, point, damped))
    for made in range(1, n_steps):
        if best.gap <= enough:
            return best, made
        after = certify(problem, _step(problem, best.point, damped))
        if not after.gap < 0.5 * best.gap:
            return best, made + 1
        best = after
    return best, n_steps


def best_candidate(
    problem: Problem, point: Point, known: Certificate, n_steps: int | None = None
) -> tuple[Certificate, int]:
    """The best of a known certificate and those of full and of damped Newton steps, and how many steps were made.

    It is never wider than where it started. ``n_steps``: most steps of both kinds together.
    """
    enough = NO_MORE * known.gap if np.isfinite(known.gap) else 0.0
    best, made = known, 0
    for damped in (False, True):
        most = MAX_STEPS if n_steps is None else min(MAX_STEPS, n_steps - made)
        if most < 1 or best.gap < 0.1 * known.gap:
            break
        found, steps = _newton_steps(problem, point, most, damped, enough)
        best, made = min(best, found, key=lambda certificate: certificate.gap), made + steps
    return best, made


def newton_step(problem: Problem, point: Point, damped: bool) -> tuple[Point, float]:
    """The point after one Newton step, and its length: below 1 where it is ``damped`` and the objective would rise.

    The penalty must be smooth. A full step has its linearised dual variables.
    """
    coef, intercept, dual, length = _smooth_step(problem, point, damped)
    return Point(coef, intercept, dual if length == 1.0 else None), length


def length_along(problem: Problem, point: Point, move: Array) -> float:
    """How far to go along a step in the unknowns (the intercept's entry last): all the way unless the objective rises."""
    size, scores = problem.n_columns, problem.scores(point.coef, point.intercept)
    shift = float(move[size]) if problem.fit_intercept else 0.0
    strengths, coef = problem.quadratic, move[:size]
    step = Step(
        move, problem.scores(coef, shift), float((strengths * point.coef) @ coef), float((strengths * coef) @ coef)
    )
    return length_of(problem, scores, problem.loss.gradient(problem.y, scores), step)


def _step(problem: Problem, point: Point, damped: bool) -> Point:
    smooth = problem.penalty.smooth
    coef, intercept, linear = _smooth_step(problem, point, damped)[:3] if smooth else _prox_step(problem, point)
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


def _smooth_step(problem: Problem, point: Point, damped: bool) -> tuple[Array, float, Array, float]:
    space = RowSpace(problem) if uses_row_space(problem) else ColumnSpace(problem)
    unknowns = space.place(point)
    scores = space.scores(unknowns)
    _, gradient, curvature = problem.loss.expand(problem.y, scores)
    step = space.step(unknowns, gradient, curvature)
    length = length_of(problem, scores, gradient, step) if damped else 1.0
    coef, intercept = space.primal(unknowns + length * step.move)
    if length == 1.0:
        return coef, intercept, space.linear_dual(unknowns, gradient, curvature, step), 1.0
    return coef, intercept, np.full(problem.n_rows, np.nan), length


def _prox_step(problem: Problem, point: Point) -> tuple[Array, float, Array]:
    _, gradient, curvature = problem.loss.expand(problem.y, problem.scores(point.coef, point.intercept))
    coef, shift, forward = model_step(problem, point.coef, gradient, curvature, problem.n_columns)
    return coef, point.intercept + shift, -(gradient + curvature * forward)


def _dual(point: Point) -> Array:
    assert point.dual is not None
    return point.dual
