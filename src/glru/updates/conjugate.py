"""Newton steps of many models at once, each with its own Hessian: conjugate gradients in front of one factored metric."""

from collections.abc import Callable
from typing import Any

import numpy as np

from glru.linalg import Array, Arrays, Entries
from glru.problem import Problem
from glru.updates.gradients import split_models

ACCURACY = 1e-3
"""Share of a gradient's norm (in the inverse metric) that a step may leave; Newton's own error is of the same kind."""

MOST_PRODUCTS = 40
"""Products with the Hessians in a step."""

EXACT_STEPS = 12
"""Steps with Hessians of their own; each squares the error."""

Map = Callable[[Any], Any]


def newton_directions(
    problem: Problem, weights: Array, models: Any, gradients: Any, solve: Map, without: Entries | None = None
) -> Any:
    """Newton directions of models, a column each.

    Parameters
    ----------
    problem : Problem
        The data, the loss and the penalty.
    weights : array of shape (n_rows,)
        The weights of the rows.
    models, gradients : array of shape (n_unknowns, n_models)
        The models (the intercept last) and their gradients.
    solve : callable
        The inverse of a metric that is close to every Hessian, times a matrix.
    without : pair of arrays, default=None
        A row and a model that is trained without it, for every model.
    """
    arrays, X = problem.arrays, problem.matrix
    coefs, shifts = split_models(models, problem.fit_intercept)
    scores = X @ coefs
    if problem.fit_intercept:
        scores += shifts
    bends = problem.loss.curvature(arrays.put(problem.y)[:, None], scores)
    bends *= arrays.put(weights)[:, None]
    if without is not None:
        bends = arrays.zeroed(bends, without)
    lam = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
    strengths = arrays.put(np.append(lam, 0.0) if problem.fit_intercept else lam)[:, None]

    def hessians(directions: Any) -> Any:
        along, shift = split_models(directions, problem.fit_intercept)
        seen = X @ along
        if problem.fit_intercept:
            seen += shift
        seen *= bends
        pulls = X.T @ seen
        if problem.fit_intercept:
            pulls = arrays.stacked(pulls, arrays.xp.sum(seen, axis=0))
        return pulls + strengths * directions

    return -conjugate_gradients(arrays, hessians, solve, gradients)


def conjugate_gradients(arrays: Arrays, product: Map, solve: Map, right: Any) -> Any:
    """Solutions of linear systems, a column each, up to ``ACCURACY`` in the norm of the preconditioner."""
    left = right
    direction = solve(left)
    found = 0.0 * direction
    size = arrays.inner(left, direction)
    target = ACCURACY**2 * size
    for _ in range(MOST_PRODUCTS):
        image = product(direction)
        length = arrays.put(_quotient(size, arrays.inner(direction, image)))
        found = found + direction * length
        left = left - image * length
        solved = solve(left)
        before, size = size, arrays.inner(left, solved)
        if np.all(size <= target):
            break
        direction = solved + direction * arrays.put(_quotient(size, before))
    return found


def _quotient(above: Array, below: Array) -> Array:
    """``above / below``; 0 where nothing is left to do, or nothing more can be done."""
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(above / below) & (below > 0.0), above / below, 0.0)
