r"""The primal ball (Theorem 1 (i-P), Primal-SCB): :math:`\sum_j \lambda_j (w^*_j - \hat w_j)^2 \le 2 G`."""

from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, widen
from glru.certificate import Certificate, ball_radius
from glru.linalg import FEW, TINY, Array, Matrix, as_matrix, gamma
from glru.regions.base import Region, centers, spread
from glru.regions.intercept import intercept_bounds


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
        """At least ``|x - c|`` in the metric of the penalty; infinite where a free column is used."""
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
