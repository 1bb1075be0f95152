r"""The local ellipsoid from the sums of one expansion (:mod:`glru.sums`), wherever the rows are.

With :math:`\nu` and :math:`r` of :mod:`glru.regions.local`, convexity gives
:math:`P(w) - P^* \le \nabla P(w)^\top (w - w^*) \le \nu r`: a gap that needs no pass of its own.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from glru.bounds import Bounds, widen
from glru.linalg import FEW, TINY, Array, Matrix, gamma
from glru.metric.columns import ColumnMetric
from glru.point import Point
from glru.regions.base import Region
from glru.regions.local import ellipsoid_bounds, gradient_slack
from glru.rows import Totals
from glru.sums import Expansion, whole_gradient, whole_hessian


def local_radius(constant: float, top: Array | float, nu: Array, reach: Array) -> Array:
    """The radius in the metric; infinite where the certificate proves nothing."""
    with np.errstate(all="ignore"):
        grown = nu * np.exp(reach) * (1.0 + FEW)
        product = constant * top * grown * (1.0 + FEW)
        radius = grown * np.where(product > 1e-8, -np.log1p(-product) / product, 1.0 + product) * (1.0 + FEW)
    return np.where((product < 1.0) & np.isfinite(radius), radius, np.inf)


def rough_top(metric: ColumnMetric, plain: float) -> float:
    """At least the largest norm of a row in the inverse metric, from the largest Euclidean one, which costs nothing."""
    plain = float(np.hypot(plain, 1.0)) if metric.fit_intercept else plain
    return plain * metric.largest * (1.0 + FEW)


def score_error(totals: Totals, point: Point) -> tuple[float, float]:
    """A row's score is off by at most ``|x| first + second``."""
    unit = gamma(totals.n_columns + 3) * (1.0 + gamma(totals.n_columns + 8))
    return unit * float(np.linalg.norm(point.coef)) * (1.0 + gamma(totals.n_columns)), unit * abs(point.intercept)


def largest_score_error(totals: Totals, point: Point) -> float:
    """At least the error of any score."""
    first, second = score_error(totals, point)
    return (totals.largest_norm * first + second) * (1.0 + FEW)


def slope_spread(totals: Totals, point: Point, square: float, weight_error: float) -> float:
    """At least ``sqrt(sum_i s_i e_i^2)``: errors of the slopes, of their weights and of sums of them (Minkowski)."""
    first, second = score_error(totals, point)
    off = first * totals.norm + second * float(np.sqrt(totals.weight_sum))
    size = float(np.sqrt(square)) * (1.0 + gamma(totals.n_rows + 4))
    return ((weight_error + FEW) * size + totals.loss.smoothness * off) * (1.0 + FEW)


@final
@dataclass(frozen=True, eq=False)
class Ellipsoid(Region):
    """All models within a radius of one, in the metric of the Hessian there.

    Attributes
    ----------
    point, metric : Point, ColumnMetric
        The centre and the computed metric there.
    nu, radius : float
        At least the gradient's norm, and how far the optimum is at most; infinite where nothing is proven.
    """

    point: Point
    metric: ColumnMetric
    nu: float
    radius: float

    def score_bounds(self, X: Matrix) -> Bounds:
        return ellipsoid_bounds(self.metric, self.radius, X, self.point.coef, self.point.intercept)

    def coef_bounds(self) -> Bounds:
        return widen(self.point.coef, self._axis_widths[: self.point.coef.size])

    def intercept_bounds(self) -> tuple[float, float]:
        if not self.metric.fit_intercept:
            return 0.0, 0.0
        lower, upper = widen(np.array([self.point.intercept]), self._axis_widths[-1:])
        return float(lower[0]), float(upper[0])

    @cached_property
    def _axis_widths(self) -> Array:
        """How far each coefficient (the intercept last) is at most from the optimal one."""
        norms = self.metric.axis_norms()
        return self.radius * norms * (1.0 + FEW) if np.isfinite(self.radius) else np.full_like(norms, np.inf)

    @property
    def gap(self) -> float:
        """At least the objective's distance from its optimum, with room for a product that underflows."""
        return self.nu * self.radius * (1.0 + FEW) + TINY**2 if np.isfinite(self.radius) else np.inf


@np.errstate(all="ignore")  # overflow ends in an infinite radius: nothing is proven then
def ellipsoid(totals: Totals, point: Point, here: Expansion, kappa: float | None = None) -> Ellipsoid:
    """The ellipsoid at a point, from its expansion; ``kappa``: at least the largest norm of a row, where that is known."""
    assert here.hessian is not None
    matrix = whole_hessian(totals, here.hessian)
    metric = ColumnMetric.of_hessian(matrix, totals.fit_intercept, totals.depth, totals.least_curvature)
    constant = totals.loss.self_concordance
    if constant is None or not metric.eta < 1.0:
        return Ellipsoid(point, metric, np.inf, np.inf)
    spread = slope_spread(totals, point, here.square, gamma(totals.depth + 4))
    slack = gradient_slack(spread, totals.column_norms, totals.quadratic, point.coef)
    # The Hessian was taken at computed scores; at the exact ones it is smaller by at most this factor.
    loosening = float(np.exp(constant * largest_score_error(totals, point))) / (1.0 - metric.eta)
    nu = float(metric.gradient_norm(whole_gradient(totals, point, here.gradient), slack) * loosening * (1.0 + FEW))
    if kappa is None:
        kappa = rough_top(metric, totals.largest_norm)
    return Ellipsoid(point, metric, nu, float(local_radius(constant, kappa, np.asarray(nu), np.asarray(0.0))))
