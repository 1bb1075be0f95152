r"""Gradients of many models at once, and the radius that the local certificate makes of their norms.

With :math:`\nu \ge \|\nabla P(\hat w)\|_{M^{-1}}`, scores that are within ``reach`` (times the self-concordance constant) of
where the Hessian :math:`M` was taken, and :math:`\kappa` at least that constant times the norm of any row in :math:`M^{-1}`,

.. math:: \|w^* - \hat w\|_M \le -\log(1 - \kappa \nu e^{T}) / \kappa .
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from glru.linalg import FEW, TINY, Array, Entries, gamma, to_host
from glru.metric.columns import ColumnMetric
from glru.problem import Problem
from glru.updates.carried_rows import sum_error

SLOW = 0.6
"""Steps with the old Hessian end where a step leaves more than this of the gradient: an exact step is then cheaper."""


@final
@dataclass(frozen=True, eq=False)
class GradientNorms:
    """Gradients of models from sums over all rows, and at least their norms in the inverse metric.

    Attributes
    ----------
    metric : ColumnMetric
        The metric.
    depth : int
        At least the additions a row's share passes through in a sum over all rows: their number, if nothing else is known.
    smoothness : float
        Of the loss.
    quadratic : array of shape (n_columns,)
        The penalty's strengths.
    total : float
        Sum of the weights.
    plain_mass : float
        At least ``sqrt(sum_i s_i |x_i|^2)``.
    columns : array
        At least ``sqrt(sum_i s_i x_ij^2)``, and ``sqrt(total)`` for an intercept.
    """

    metric: ColumnMetric
    depth: int
    smoothness: float
    quadratic: Array
    total: float
    plain_mass: float
    columns: Array

    @cached_property
    def steady(self) -> float:
        """The norm that errors of size 1 in every row's slope (in the metric of the weights) can have as a gradient."""
        return self.metric.gradient_norm(np.zeros_like(self.columns), self.columns)

    def score_errors(self, models: Any) -> tuple[Array, Array]:
        """The error of row ``k``'s score under model ``i`` is at most ``|x_k| first[i] + second[i]``."""
        coefs, shifts = split_models(models, self.metric.fit_intercept)
        unit = gamma(coefs.shape[0] + 3) * (1.0 + gamma(coefs.shape[0] + 8))
        lengths = np.sqrt(self.metric.arrays.inner(coefs, coefs)) * (1.0 + FEW)
        return unit * lengths, unit * np.abs(to_host(shifts))

    def at(self, models: Any, pulls: Any, masses: Array, fixed: Entries | None = None) -> tuple[Any, Array]:
        """Gradients and at least their norms, from the sums of :func:`slope_sums`; ``fixed`` as in :class:`Gradients`."""
        arrays = self.metric.arrays
        first, second = self.score_errors(models)
        size = np.sqrt(masses) * (1.0 + gamma(self.depth + 4))
        # The intercept has no strength.
        lam = np.append(self.quadratic, 0.0) if self.metric.fit_intercept else self.quadratic
        pull = arrays.put(lam)[:, None] * models
        gradient = pulls + pull
        if fixed is not None:
            gradient = arrays.zeroed(gradient, fixed)
        # Errors: of the sums, of the slopes at scores that are off, of the slopes' own evaluation (Minkowski's inequality).
        wrong = self.smoothness * (first * self.plain_mass + second * np.sqrt(self.total)) + FEW * size
        spread = sum_error(self.depth) * size + wrong * (1.0 + FEW)
        outer = self.metric.inverse_norm * FEW * np.sqrt(arrays.inner(pull, pull)) * (1.0 + FEW)
        norms = self.metric.gradient_norms(gradient)
        return gradient, (norms + spread * self.steady + outer) * (1.0 + FEW) + TINY


def split_models(models: Any, fit_intercept: bool) -> tuple[Any, Any]:
    """Coefficients and intercepts of models, a column each."""
    return (models[:-1, :], models[-1, :]) if fit_intercept else (models, np.zeros(models.shape[1]))


def slope_sums(problem: Problem, weights: Array, models: Any, without: Entries | None = None) -> tuple[Any, Any, Array]:
    """Scores under models, ``X^T (s o l')`` (the intercept's sum last) and ``sum_i s_i l'_i^2``, a column for each."""
    arrays, X = problem.arrays, problem.matrix
    coefs, shifts = split_models(models, problem.fit_intercept)
    scores = X @ coefs
    if problem.fit_intercept:
        scores += shifts
    slopes = problem.loss.gradient(arrays.put(problem.y)[:, None], scores)
    if without is not None:
        slopes = arrays.zeroed(slopes, without)
    there = arrays.put(weights)
    masses = to_host(there @ (slopes * slopes))
    slopes *= there[:, None]
    pulls = X.T @ slopes
    return scores, arrays.stacked(pulls, arrays.xp.sum(slopes, axis=0)) if problem.fit_intercept else pulls, masses


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
    def norms(self) -> GradientNorms:
        """What bounds the norms of the gradients."""
        problem, total = self.problem, float(self.weights.sum())
        columns = np.sqrt(total / problem.weights.sum()) * problem.column_norms
        if problem.fit_intercept:
            columns = np.append(columns, np.sqrt(total))
        return GradientNorms(
            metric=self.metric,
            depth=problem.n_rows,
            smoothness=problem.loss.smoothness,
            quadratic=np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,)),
            total=total,
            plain_mass=float(np.sqrt(self.weights @ self.plain**2)) * (1.0 + gamma(problem.n_rows + 4)),
            columns=columns * (1.0 + gamma(problem.n_rows + 8)),
        )

    def at(
        self, models: Any, without: Entries | None = None, fixed: Entries | None = None
    ) -> tuple[Any, Any, Array, tuple[Array, Array]]:
        """Scores, gradients, at least the gradients' norms in the inverse metric, and the scores' errors.

        ``without``: pairs of a row and a model that is trained without it. ``fixed``: pairs of a column and a model that
        does not have it. The error of row ``k``'s score under model ``i`` is at most ``plain[k] * first[i] + second[i]``.
        """
        scores, pulls, masses = slope_sums(self.problem, self.weights, models, without)
        gradient, nu = self.norms.at(models, pulls, masses, fixed)
        return scores, gradient, nu, self.norms.score_errors(models)
