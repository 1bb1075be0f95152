r"""Bounds of an unpenalised intercept from bounds of the other part of every training score.

:math:`b^*` is a root of the non-decreasing :math:`\sum_i s_i \ell'(y_i, t_i + b)`, :math:`t_i = x_i^\top w^*`. With all
:math:`t_i` at their upper ends the sum is largest and its root smallest, and the other way round.
"""

import numpy as np

from glru.bounds import Bounds
from glru.linalg import UNIT, Array, gamma
from glru.problem import Problem


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
        # The argument is rounded; the derivative is monotone, so its inner end over that error is on the safe side.
        inner = parts + side * place - side * 8.0 * UNIT * (1.0 + np.abs(parts) + abs(place))
        low, high = problem.loss.derivative(problem.y, inner)
        terms = weights * (low if side > 0.0 else high)
        slack = (gamma(terms.size + 4) + 8.0 * UNIT) * float(np.abs(terms).sum())
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
