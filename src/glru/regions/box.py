r"""The dual ball and the box it implies (Theorem 1 (ii-D) and (ii-P), Dual-SCB, with Remark 2).

:math:`\sum_i s_i (a^*_i - \hat a_i)^2 \le 2 \mu G` bounds every correlation,
:math:`|v^*_j - \hat v_j| \le \sqrt{2 \mu G} \sqrt{\sum_i s_i x_{ij}^2}`, and :math:`w^*_j \in \partial \rho_j^*(v^*_j)`.
"""

from functools import cached_property
from typing import final

import numpy as np

from glru.bounds import Bounds
from glru.certificate import Certificate, ball_radius
from glru.linalg import FEW, Array, Matrix, gamma
from glru.regions.base import Region, spread
from glru.regions.intercept import intercept_bounds


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
        reach, domain = certificate.reach, penalty.derivative_range()
        low = np.maximum.reduce([certificate.correlations - half, reach[0], np.broadcast_to(domain[0], half.shape)])
        high = np.minimum.reduce([certificate.correlations + half, reach[1], np.broadcast_to(domain[1], half.shape)])
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
