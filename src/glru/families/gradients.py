r"""Gradients of many models at once, and the radius that the local certificate makes of their norms.

With :math:`\nu \ge \|\nabla P(\hat w)\|_{M^{-1}}`, scores that are within ``reach`` (times the self-concordance constant) of
where the Hessian :math:`M` was taken, and :math:`\kappa` at least that constant times the norm of any row in :math:`M^{-1}`,

.. math:: \|w^* - \hat w\|_M \le -\log(1 - \kappa \nu e^{T}) / \kappa .
"""

from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru._numerics import TINY, Array, gamma
from glru.certificate import FEW
from glru.families.carried import weight_error
from glru.problem import Problem
from glru.regions.metric import ColumnMetric

SLOW = 0.6
"""Steps with the old Hessian end where a step leaves more than this of the gradient: an exact step is then cheaper."""

Entries = tuple[NDArray[np.intp], NDArray[np.intp]]


def local_radius(constant: float, top: Array | float, nu: Array, reach: Array) -> Array:
    """The radius in the metric; infinite where the certificate proves nothing."""
    with np.errstate(all="ignore"):
        grown = nu * np.exp(reach) * (1.0 + FEW)
        product = constant * top * grown * (1.0 + FEW)
        radius = grown * np.where(product > 1e-8, -np.log1p(-product) / product, 1.0 + product) * (1.0 + FEW)
    return np.where((product < 1.0) & np.isfinite(radius), radius, np.inf)


@final
class Gradients:
    """Scores and gradients of models (a column each, the intercept last) and what rounding does to them."""

    def __init__(self, problem: Problem, weights: Array, metric: ColumnMetric) -> None:
        self.problem, self.weights, self.metric = problem, weights, metric

    @cached_property
    def plain(self) -> Array:
        """At least the Euclidean norms of the rows."""
        return np.sqrt(self.problem.squared_row_norms) * (1.0 + gamma(self.problem.n_columns + 4)) + TINY

    @cached_property
    def plain_mass(self) -> float:
        """At least ``sqrt(sum_i s_i |x_i|^2)``."""
        return float(np.sqrt(self.weights @ self.plain**2)) * (1.0 + gamma(self.problem.n_rows + 4))

    @cached_property
    def steady(self) -> float:
        """The norm that errors of size 1 in every row's slope (in the metric of the weights) can have as a gradient."""
        problem, total = self.problem, self.weights.sum()
        columns = np.sqrt(total / problem.weights.sum()) * problem.column_norms
        if problem.fit_intercept:
            columns = np.append(columns, np.sqrt(total))
        columns = columns * (1.0 + gamma(problem.n_rows + 8))
        return self.metric.gradient_norm(np.zeros_like(columns), columns)

    def at(
        self, models: Array, without: Entries | None = None, fixed: Entries | None = None
    ) -> tuple[Array, Array, Array, tuple[Array, Array]]:
        """Scores, gradients, at least the gradients' norms in the inverse metric, and the scores' errors.

        ``without``: pairs of a row and a model that is trained without it. ``fixed``: pairs of a column and a model that
        does not have it. The error of row ``k``'s score under model ``i`` is at most ``plain[k] * first[i] + second[i]``.
        """
        problem, weights = self.problem, self.weights
        coefs = models[:-1] if problem.fit_intercept else models
        shifts = models[-1] if problem.fit_intercept else np.zeros(models.shape[1])
        scores = problem.X @ coefs
        if problem.fit_intercept:
            scores += shifts
        unit = gamma(problem.n_columns + 3) * (1.0 + gamma(problem.n_columns + 8))
        first, second = unit * np.linalg.norm(coefs, axis=0), unit * np.abs(shifts)
        slopes = problem.loss.gradient(problem.y[:, None], scores)
        if without is not None:
            slopes[without] = 0.0
        size = np.sqrt(weights @ np.square(slopes)) * (1.0 + gamma(problem.n_rows + 4))
        slopes *= weights[:, None]
        lam = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))[:, None]
        gradient = problem.X.T @ slopes + lam * coefs
        if fixed is not None:
            gradient[fixed] = 0.0
        # Errors: of the sums, of the slopes at scores that are off, of the slopes' own evaluation (Minkowski's inequality).
        wrong = problem.loss.smoothness * (first * self.plain_mass + second * np.sqrt(weights.sum())) + FEW * size
        spread = weight_error(problem) * size + wrong * (1.0 + FEW)
        if problem.fit_intercept:
            gradient = np.vstack([gradient, slopes.sum(axis=0)])
        outer = float(np.linalg.norm(self.metric.inverse)) * FEW * np.linalg.norm(lam * coefs, axis=0)
        solved = self.metric.inverse.T @ gradient
        norms = np.sqrt(np.einsum("ij,ij->j", solved, solved)) * (1.0 + self.metric.solve_error)
        return scores, gradient, (norms + spread * self.steady + outer) * (1.0 + FEW) + TINY, (first, second)
