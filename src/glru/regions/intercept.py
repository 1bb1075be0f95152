r"""Bounds of an unpenalised intercept from bounds of the other part of every training score.

:math:`b^*` is a root of the non-decreasing :math:`\sum_i s_i \ell'(y_i, t_i + b)`, :math:`t_i = x_i^\top w^*`. With all
:math:`t_i` at their upper ends the sum is largest and its root smallest, and the other way round.
"""

import numpy as np

from glru._numerics import Array, gamma
from glru.problem import Problem
from glru.regions.base import Bounds


def intercept_bounds(problem: Problem, parts: Bounds, near: float) -> tuple[float, float]:
    """Lower and upper bound of ``b*``, given bounds of ``x_i . w*`` for every row of the problem."""
    lower, upper = parts
    if not (np.all(np.isfinite(lower)) and np.all(np.isfinite(upper))):
        return -np.inf, np.inf
    return -_end(problem, upper, near, -1.0), _end(problem, lower, near, 1.0)


def _end(problem: Problem, parts: Array, near: float, side: float) -> float:
    """The smallest found ``side * b`` with the derivatives' sum at ``b`` surely beyond zero on that side."""
    weights = problem.weights

    def beyond(place: float) -> bool:
        low, high = problem.loss.derivative(problem.y, parts + side * place)
        terms = weights * (low if side > 0.0 else high)
        # Moving the argument by its own rounding changes nothing but the last digits, which the slack covers.
        slack = (gamma(terms.size + 4) + 8 * gamma(1) * (1.0 + abs(place))) * float(np.abs(terms).sum())
        slack += 8.0 * gamma(1) * float(weights @ (1.0 + np.abs(parts) + abs(place))) * _steepness(problem)
        return side * float(terms.sum()) > slack

    inside, step = side * near, 1e-9 * (1.0 + abs(near))
    while not beyond(inside + step):
        step *= 4.0
        if step > 1e12 * (1.0 + abs(near)):
            return np.inf
    low, high = inside, inside + step
    for _ in range(50):
        middle = 0.5 * (low + high)
        if beyond(middle):
            high = middle
        else:
            low = middle
        if high - low <= 1e-3 * (high - inside):
            break
    return high


def _steepness(problem: Problem) -> float:
    """How much a derivative can change for a unit of score: the smoothness, or a jump of at most 1 for the hinge."""
    return min(problem.loss.smoothness, 1.0 / gamma(1))
