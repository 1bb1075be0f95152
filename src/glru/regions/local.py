r"""The local ellipsoid of a self-concordant loss: no strong convexity needed, an intercept and lam = 0 included.

The loss has :math:`|\ell'''| \le M \ell''`. With :math:`H` the Hessian at the candidate :math:`\hat w` (intercept
included), :math:`\nu = \|\nabla P(\hat w)\|_{H^{-1}}` and :math:`\kappa \ge M \max_k \|x_k\|_{H^{-1}}`, the Hessian on the way to
:math:`w^*` is at least :math:`e^{-\tau \kappa r} H`, :math:`r = \|w^* - \hat w\|_H`. Integrating gives
:math:`\nu \ge (1 - e^{-\kappa r}) / \kappa`, so if :math:`\kappa \nu < 1`

.. math:: r \le -\log(1 - \kappa \nu) / \kappa, \qquad |x^\top (w^* - \hat w)| \le \|x\|_{H^{-1}} r \text{ for every } x.

Where the Hessian is only known to be at least :math:`(1 - \eta)` times the metric used, :math:`\nu` grows by
:math:`1 / (1 - \eta)`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, final

import numpy as np

from glru.bounds import Bounds, widen
from glru.certificate import score_errors
from glru.linalg import FEW, TINY, Array, Matrix, gamma
from glru.metric.base import Metric
from glru.metric.columns import ColumnMetric
from glru.metric.device import column_metric
from glru.metric.rows import RowMetric, RowSide, uses_rows
from glru.problem import Problem
from glru.regions.base import Region, centers


def has_local(problem: Problem) -> bool:
    """Whether the theory applies (a self-concordant loss, a smooth penalty) and the metric is small enough to form.

    On a device it is formed over the columns only.
    """
    if uses_rows(problem) and not problem.arrays.stable:
        return False
    size = problem.n_rows if uses_rows(problem) else problem.n_columns
    return problem.loss.self_concordance is not None and problem.penalty.smooth and size <= problem.largest


def gradient_slack(spread: float, columns: Array, quadratic: Array, coef: Array) -> Array:
    """Error of every entry of a gradient (the intercept's last).

    Parameters
    ----------
    spread : float
        At least ``sqrt(sum_i s_i e_i^2)``, ``e`` the errors of the loss slopes and of their weights.
    columns : array
        At least ``sqrt(sum_i s_i x_ij^2)``, and ``sqrt(sum_i s_i)`` for the intercept.
    quadratic, coef : array
        The penalty's strengths and the coefficients, for the rounding of their product.
    """
    slack = spread * columns
    slack[: coef.size] += FEW * quadratic * np.abs(coef)
    return slack * (1.0 + FEW)


def ellipsoid_bounds(metric: Metric, radius: float, X: Matrix, coef: Array, intercept: float) -> Bounds:
    """Bounds of scores under all models within a radius of one."""
    scores, errors = centers(X, coef, intercept)
    if not np.isfinite(radius):
        return np.full_like(scores, -np.inf), np.full_like(scores, np.inf)
    return widen(scores, radius * metric.norms(X) + errors + FEW * np.abs(scores))


class Candidate(Protocol):
    """A model of a problem; a certificate is one."""

    @property
    def problem(self) -> Problem: ...

    @property
    def coef(self) -> Array: ...

    @property
    def intercept(self) -> float: ...


@final
@dataclass(frozen=True, eq=False)
class Plain:
    """A candidate and nothing more: the ellipsoid needs no dual point."""

    problem: Problem
    coef: Array
    intercept: float


@final
class LocalEllipsoid(Region):
    """All models within a radius of the candidate in the metric of the Hessian there."""

    def __init__(self, candidate: Candidate, fit_intercept: bool) -> None:
        self.candidate, self.fit_intercept = candidate, fit_intercept

    @cached_property
    def _scores(self) -> Array:
        return self.candidate.problem.scores(self.candidate.coef, self.candidate.intercept)

    @cached_property
    def metric(self) -> Metric:
        """The inverse metric of the Hessian at the candidate."""
        problem = self.candidate.problem
        bend = problem.weights * problem.loss.curvature(problem.y, self._scores)
        return RowMetric(RowSide(problem), bend) if uses_rows(problem) else column_metric(problem, bend)

    @cached_property
    def nu(self) -> float:
        """At least the norm of the gradient in the inverse of the Hessian; infinite where there is no metric."""
        if not self.metric.eta < 1.0:
            return np.inf
        problem = self.candidate.problem
        errors = score_errors(problem, self.candidate.coef, self.candidate.intercept, self._scores)
        # The Hessian was taken at computed scores; at the exact ones it is smaller by at most this factor.
        worst = self._constant * float(errors[problem.weights > 0.0].max())
        loosening = float(np.exp(worst)) / (1.0 - self.metric.eta)
        return float(self.metric.gradient_norm(*self._gradient(errors)) * loosening * (1.0 + FEW))

    @property
    def _constant(self) -> float:
        return float(self.candidate.problem.loss.self_concordance or 0.0)

    @cached_property
    def radius(self) -> float:
        """The bound ``r``; infinite where the ellipsoid proves nothing."""
        nu, problem = self.nu, self.candidate.problem
        if not np.isfinite(nu):
            return np.inf
        kappa = self._constant * float(self.metric.norms(problem.matrix)[problem.weights > 0.0].max()) * (1.0 + FEW)
        product = kappa * nu
        if not product < 1.0:
            return np.inf
        growth = -np.log1p(-product) / product if product > 1e-8 else 1.0 + product
        return float(nu * growth * (1.0 + FEW))

    @property
    def gap(self) -> float:
        """At least the objective's distance from its optimum: by convexity at most ``nu`` times the radius."""
        return self.nu * self.radius * (1.0 + FEW) + TINY**2 if np.isfinite(self.radius) else np.inf

    def _gradient(self, errors: Array) -> tuple[Array, Array]:
        """The objective's gradient at the candidate (the intercept's entry last) and the error of each entry."""
        problem, coef = self.candidate.problem, self.candidate.coef
        slopes = problem.loss.gradient(problem.y, self._scores)
        pull = problem.weights * slopes
        lam = np.broadcast_to(problem.penalty.quadratic, coef.shape)
        gradient = problem.matrix.T @ pull + lam * coef
        # Errors: of the sum, of the slopes at scores that are off by ``errors``, of the penalty's own product.
        off = problem.loss.smoothness * errors + FEW * np.abs(slopes)
        spread = gamma(problem.n_rows + 4) * float(np.sqrt(problem.weights @ slopes**2))
        spread += float(np.sqrt(problem.weights @ off**2))
        columns = problem.column_norms * (1.0 + gamma(problem.n_rows + 4))
        if problem.fit_intercept:
            gradient = np.append(gradient, pull.sum())
            columns = np.append(columns, np.sqrt(problem.weights.sum()) * (1.0 + FEW))
        return gradient, gradient_slack(spread, columns, problem.penalty.quadratic, coef)

    def stepped(self) -> tuple[Array, float]:
        """The model one Newton step further; for a metric over the columns."""
        assert isinstance(self.metric, ColumnMetric)
        problem, coef = self.candidate.problem, self.candidate.coef
        pull = problem.weights * problem.loss.gradient(problem.y, self._scores)
        gradient = problem.matrix.T @ pull + problem.penalty.quadratic * coef
        if not problem.fit_intercept:
            return coef - self.metric.solve(gradient), 0.0
        step = self.metric.solve(np.append(gradient, pull.sum()))
        return coef - step[:-1], self.candidate.intercept - float(step[-1])

    def score_bounds(self, X: Matrix) -> Bounds:
        return ellipsoid_bounds(self.metric, self.radius, X, self.candidate.coef, self.candidate.intercept)

    def coef_bounds(self) -> Bounds:
        return widen(self.candidate.coef, self._axis_widths[: self.candidate.coef.size])

    def intercept_bounds(self) -> tuple[float, float]:
        if not self.fit_intercept:
            return 0.0, 0.0
        lower, upper = widen(np.array([self.candidate.intercept]), self._axis_widths[-1:])
        return float(lower[0]), float(upper[0])

    @cached_property
    def _axis_widths(self) -> Array:
        size = self.candidate.coef.size + int(self.fit_intercept)
        return self.radius * self.metric.axis_norms() if np.isfinite(self.radius) else np.full(size, np.inf)
