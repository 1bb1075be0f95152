r"""The regions of a duality gap: the primal ball, and the dual ball with the box of coefficients it implies (Theorem 1).

*Primal ball* (i-P), Primal-SCB: :math:`\sum_j \lambda_j (w^*_j - \hat w_j)^2 \le 2 G`. *Dual ball* (ii-D) and the box it implies (ii-P),
Dual-SCB with Remark 2: :math:`\sum_i s_i (a^*_i - \hat a_i)^2 \le 2 \mu G` bounds every correlation,
:math:`|v^*_j - \hat v_j| \le \sqrt{2 \mu G} \sqrt{\sum_i s_i x_{ij}^2}`, and :math:`w^*_j \in \partial \rho_j^*(v^*_j)`.

Either bounds the part of every training score that is not the intercept. An unpenalised :math:`b^*` is a root of the non-decreasing
:math:`\sum_i s_i \ell'(y_i, t_i + b)`, :math:`t_i = x_i^\top w^*`: with all :math:`t_i` at their upper ends the sum is largest and its
root smallest, and the other way round.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, widen
from glru.certificate import Certificate, ball_radius
from glru.linalg import FEW, TINY, UNIT, Array, Matrix, as_matrix, gamma
from glru.problem import Problem

PLACES_TOGETHER, ENTRIES_TOGETHER = 16, 1 << 14
"""Number of points at which the end of an intercept's interval is searched for at once, and the largest number of entries these take with all rows."""

MAX_STEPS = 36
"""The largest number of steps in a search for the end of an intercept's interval: away from the start by factors of 4, then between two of these points."""


class Region(ABC):
    """A set of models that provably holds every optimum of a problem."""

    @abstractmethod
    def score_bounds(self, X: Matrix) -> Bounds:
        """Lower and upper bounds of ``X w* + b*``, possibly infinite."""

    @abstractmethod
    def coef_bounds(self) -> Bounds:
        """Lower and upper bounds of every coefficient, possibly infinite."""

    @abstractmethod
    def intercept_bounds(self) -> tuple[Any, Any]:
        """Lower and upper bound of the intercept, or of those of every class."""


def spread(radius: float, norms: Array) -> Array:
    """``radius * norms``, where either may be infinite: then nothing is proven."""
    known = np.isfinite(norms) & np.isfinite(radius)
    return np.where(known, (radius if np.isfinite(radius) else 0.0) * np.where(known, norms, 0.0), np.inf)


def centers(X: Matrix, coef: Array, intercept: float) -> tuple[Array, Array]:
    """Scores of a model and the rounding error of each."""
    size = X.absolute_product(np.abs(coef)) + abs(intercept)
    return X @ coef + intercept, X.depths(4) * size * (1.0 + 2.0 * gamma(coef.size + 8))


@final
class PrimalBall(Region):
    r"""All models with :math:`\sum_j \lambda_j (w_j - \hat w_j)^2 \le 2 G`; unpenalised columns are free.

    An unpenalised intercept is bounded through the training scores. The rows are centred first: with
    :math:`c` their curvature-weighted mean, :math:`x^\top w + b = (x - c)^\top w + (b + c^\top w)` is the same
    model with a far tighter interval.
    """

    def __init__(self, certificate: Certificate, fit_intercept: bool) -> None:
        self.certificate, self.fit_intercept = certificate, fit_intercept
        self.radius = float(ball_radius(certificate.gap))

    @cached_property
    def inverse(self) -> Array:
        """``1 / lambda_j``; 0 for columns without strong convexity, which are judged apart."""
        lam = self.certificate.penalty.quadratic
        return np.divide(1.0, lam, out=np.zeros(lam.shape), where=lam > 0.0)

    @cached_property
    def free(self) -> NDArray[np.intp]:
        """The columns the ball says nothing about."""
        if np.all(self.inverse > 0.0):
            return np.empty(0, dtype=np.intp)
        return np.flatnonzero(np.broadcast_to(self.inverse == 0.0, self.certificate.coef.shape))

    def score_bounds(self, X: Matrix) -> Bounds:
        coef = self.certificate.coef
        if not self.fit_intercept:
            scores, errors = centers(X, coef, 0.0)
            return widen(scores, spread(self.radius, self._norms(X, None)) + errors + FEW * np.abs(scores))
        lower, upper = self._centred_intercept
        shift = float(self._mean @ coef)
        scores, errors = centers(X, coef, -shift)
        half = spread(self.radius, self._norms(X, self._mean)) + errors + self._shift_error + FEW * np.abs(scores)
        below, above = widen(scores, half)
        return np.nextafter(below + lower, -np.inf), np.nextafter(above + upper, np.inf)

    def coef_bounds(self) -> Bounds:
        half = spread(self.radius, np.sqrt(np.broadcast_to(self.inverse, self.certificate.coef.shape))) * (1.0 + FEW)
        half[self.free] = np.inf
        return widen(self.certificate.coef, half)

    def intercept_bounds(self) -> tuple[float, float]:
        if not self.fit_intercept:
            return 0.0, 0.0
        origin = as_matrix(np.zeros((1, self.certificate.coef.size)))
        lower, upper = self.score_bounds(origin)
        return float(lower[0]), float(upper[0])

    @cached_property
    def _mean(self) -> Array:
        """The curvature-weighted mean row."""
        problem, point = self.certificate.problem, self.certificate.point
        weights = problem.weights * problem.loss.curvature(problem.y, problem.scores(point.coef, point.intercept))
        weights = weights if weights.sum() > 0.0 else problem.weights
        return (problem.matrix.T @ weights) / weights.sum()

    @cached_property
    def _shift_error(self) -> float:
        """Rounding error of ``c . w``."""
        return 2.0 * gamma(self._mean.size + 3) * float(np.abs(self._mean) @ np.abs(self.certificate.coef))

    @cached_property
    def _centred_intercept(self) -> tuple[float, float]:
        """Bounds of ``b* + c . w*``."""
        problem, coef = self.certificate.problem, self.certificate.coef
        shift = float(self._mean @ coef)
        parts, errors = centers(problem.matrix, coef, -shift)
        half = spread(self.radius, self._norms(problem.matrix, self._mean)) + errors + self._shift_error
        return intercept_bounds(problem, widen(parts, half), self.certificate.intercept + shift)

    def _norms(self, X: Matrix, mean: Array | None) -> Array:
        """An upper bound of ``|x - c|`` in the metric of the penalty; infinite where a free column is used."""
        scalar = self.inverse.ndim == 0
        squares = float(self.inverse) * X.squared_row_norms() if scalar else X.squared_row_norms(self.inverse)
        slack = gamma(X.shape[1] + 4) * squares
        if mean is not None:
            cross, own = X @ (self.inverse * mean), float(mean @ (self.inverse * mean))
            # The three parts may cancel; each keeps its own rounding error (Cauchy-Schwarz for the cross term).
            slack = 4.0 * gamma(X.shape[1] + 6) * (squares + own)
            squares = squares - 2.0 * cross + own
        norms = np.sqrt(np.maximum(squares, 0.0) + slack) * (1.0 + FEW) + TINY * float(
            np.sqrt(self.inverse.max(initial=0.0)) + 1.0
        )
        if self.free.size:
            used = X.absolute_product(np.broadcast_to(self.inverse == 0.0, X.shape[1:]).astype(np.float64))
            if mean is not None:
                used = used + np.abs(mean[self.free]).sum()
            norms = np.where(used > 0.0, np.inf, norms)
        return norms


@final
class DualBox(Region):
    """All models whose coefficients lie between the ends that the dual ball allows; they may be infinite (Remark 1)."""

    def __init__(self, certificate: Certificate, fit_intercept: bool) -> None:
        self.certificate, self.fit_intercept = certificate, fit_intercept

    @cached_property
    def radius(self) -> float:
        """Radius of the dual ball in the metric of the weights."""
        smoothness = self.certificate.loss.smoothness
        return float(ball_radius(smoothness * self.certificate.gap))

    @cached_property
    def _box(self) -> Bounds:
        certificate = self.certificate
        penalty = certificate.penalty
        half = spread(self.radius, certificate.column_norms) + certificate.correlation_errors
        half = half * (1.0 + FEW) + FEW * np.abs(certificate.correlations)
        known, domain = certificate.correlation_range, penalty.derivative_range()
        low = np.maximum.reduce([certificate.correlations - half, known[0], np.broadcast_to(domain[0], half.shape)])
        high = np.minimum.reduce([certificate.correlations + half, known[1], np.broadcast_to(domain[1], half.shape)])
        low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
        lower, upper = penalty.conjugate_derivative(low)[0], penalty.conjugate_derivative(high)[1]
        return lower - FEW * np.abs(lower), upper + FEW * np.abs(upper)

    def coef_bounds(self) -> Bounds:
        return self._box

    def score_bounds(self, X: Matrix) -> Bounds:
        lower, upper = linear_range(X, *self._box)
        below, above = self.intercept_bounds()
        if not self.fit_intercept:
            return lower, upper
        return np.nextafter(lower + below, -np.inf), np.nextafter(upper + above, np.inf)

    def intercept_bounds(self) -> tuple[float, float]:
        return self._intercept

    @cached_property
    def _intercept(self) -> tuple[float, float]:
        if not self.fit_intercept:
            return 0.0, 0.0
        problem = self.certificate.problem
        return intercept_bounds(problem, linear_range(problem.matrix, *self._box), self.certificate.intercept)


def linear_range(X: Matrix, lower: Array, upper: Array) -> Bounds:
    """MinLin and MaxLin: the range of ``x . w`` over ``lower <= w <= upper``, rounded outward; ends may be infinite."""
    up, down = X.positive_part(), (-X).positive_part()
    low, high = np.where(np.isfinite(lower), lower, 0.0), np.where(np.isfinite(upper), upper, 0.0)
    least, most = up @ low - down @ high, up @ high - down @ low
    size: Array = np.maximum(np.abs(low), np.abs(high))
    slack = gamma(lower.size + 3) * X.absolute_product(size) * (1.0 + FEW)
    # Where no entry meets a coefficient that may differ from zero, the score is exactly zero.
    exact = (
        X.absolute_product((size > 0.0).astype(np.float64)) == 0.0
        if np.any(slack == 0.0)
        else np.zeros(slack.shape, dtype=bool)
    )
    endless_low, endless_high = np.isneginf(lower) * 1.0, np.isposinf(upper) * 1.0
    open_below = (up @ endless_low + down @ endless_high) > 0.0
    open_above = (up @ endless_high + down @ endless_low) > 0.0
    return (
        np.where(open_below, -np.inf, np.where(exact, 0.0, np.nextafter(least - slack, -np.inf))),
        np.where(open_above, np.inf, np.where(exact, 0.0, np.nextafter(most + slack, np.inf))),
    )


def intercept_bounds(problem: Problem, parts: Bounds, near: float) -> tuple[float, float]:
    """Lower and upper bound of ``b*``, given bounds of ``x_i . w*`` for every row of the problem."""
    lower, upper = parts
    if not (np.all(np.isfinite(lower)) and np.all(np.isfinite(upper))):
        return -np.inf, np.inf
    return -_end(problem, upper, near, -1.0), _end(problem, lower, near, 1.0)


def _end(problem: Problem, parts: Array, near: float, side: float) -> float:
    """The smallest found ``side * b`` with the derivatives' sum at ``b`` surely beyond zero on that side."""
    weights, size = problem.weights, 1.0 + np.abs(parts)
    count = int(np.clip(ENTRIES_TOGETHER // max(parts.size, 1), 1, PLACES_TOGETHER))

    def beyond(places: Array) -> NDArray[np.bool_]:
        # The argument is rounded; the derivative is monotone, so its inner end over that error is on the safe side.
        off = 8.0 * UNIT * (size + np.abs(places)[:, None]) + problem.score_noise
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows or is not a number proves nothing
            low, high = problem.loss.derivative(problem.y, parts + side * (places[:, None] - off))
            terms = low if side > 0.0 else high
            slack = (gamma(parts.size + 4) + 8.0 * UNIT) * (np.abs(terms) @ weights)
            surely: NDArray[np.bool_] = side * (terms @ weights) > slack
        return surely

    inside, unit, low, high = side * near, 1e-9 * (1.0 + abs(near)), 0.0, np.inf
    for first in range(0, MAX_STEPS, count):
        steps: Array = unit * np.power(4.0, np.arange(first, first + count, dtype=np.float64))
        low, high = _narrow(low, high, steps, beyond(inside + steps))
        if high < np.inf:
            break
    for _ in range(MAX_STEPS if high < np.inf else 0):
        if high - low <= 1e-3 * high:
            break
        steps = np.linspace(low, high, count + 2)[1:-1]
        low, high = _narrow(low, high, steps, beyond(inside + steps))
    return inside + high


def _narrow(low: float, high: float, steps: Array, beyond: NDArray[np.bool_]) -> tuple[float, float]:
    """The ends between which a root lies, given increasing steps between them and which are beyond it."""
    k = int(beyond.argmax()) if beyond.any() else steps.size
    return float(steps[k - 1]) if k else low, float(steps[k]) if k < steps.size else high
