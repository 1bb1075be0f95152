r"""Balls around the models of a batch in the metric of the penalty: no Hessian, and no base that a model must be near.

Let every column be penalised, :math:`\Lambda` the strengths and :math:`h` the curvatures at a model :math:`\hat w` over the rows that it is
trained on, with :math:`S = \sum_k s_k h_k`, ``c`` the mean of these rows under the weights :math:`s h`, and :math:`L \ge \|x_k\|_{\Lambda^{-1}}` for each.
Then :math:`H \succeq \Lambda + S \tilde c \tilde c^\top`, and as :math:`\|c\|_{\Lambda^{-1}} \le L`,

.. math:: \|\tilde x\|^2_{H^{-1}} \le (\|x\|_{\Lambda^{-1}} + L)^2 + 1 / S, \qquad
          \|(G, G_\beta)\|_{H^{-1}} \le \|G\|_{\Lambda^{-1}} + |G_\beta| \, (L + S^{-1/2}) ;

without an intercept :math:`\|x\|_{\Lambda^{-1}}` and :math:`\|G\|_{\Lambda^{-1}}`. The radius of :func:`glru.regions.local.local_radius` needs no more than such
bounds of norms. They are far above the norms themselves: what makes the radius small is a gradient that is.

Rounding: a slope at a score that is off by at most ``e`` errs by at most :math:`e \, e^{M e} h_k`, and errors :math:`\epsilon` of the slopes make a
gradient of at most :math:`\|S^{1/2} X \Lambda^{-1/2}\|_2 \|S^{1/2} \epsilon\|`, where the spectral norm is at most the root of the Frobenius norm of
the Gram matrix.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import FEW, TINY, Array, Entries, gamma, weighted_norm
from glru.problem import Problem
from glru.regions.local import local_radius
from glru.updates.carried_rows import rounded_norms, row_norms, sum_error
from glru.updates.gradients import Gradients, Measured, compute_model_scores, split_models


def has_balls(problem: Problem) -> bool:
    """Whether the theory applies: a self-concordant loss that is not quadratic, an L2 penalty on every column, rows in memory on the host."""
    penalty = problem.penalty
    known = bool(problem.loss.self_concordance) and penalty.smooth and not penalty.linear.any()
    return known and penalty.strong_convexity > 0.0 and problem.in_memory and problem.arrays.stable


@final
@dataclass(frozen=True, eq=False)
class PenaltyBalls:
    """Balls around models of a problem without one row each."""

    gradients: Gradients  # what has measured the models

    @property
    def problem(self) -> Problem:
        """All rows."""
        return self.gradients.problem

    @cached_property
    def lengths(self) -> Array:
        """At least the norms of the rows in the metric of the penalty."""
        return rounded_norms(row_norms(self.problem), self.problem)

    @cached_property
    def longest(self) -> float:
        """The largest of these, of rows that count."""
        return float(self.lengths[self.problem.weights > 0.0].max(initial=0.0))

    @cached_property
    def _column_norm(self) -> float:
        """At least the Frobenius norm of ``S^(1/2) X Lambda^(-1/2)``, at the largest factor."""
        totals = self.gradients.totals
        columns = totals.column_norms[: totals.n_columns] / np.sqrt(totals.quadratic)
        root = float(np.sqrt(self.gradients.largest_factor))
        return float(np.linalg.norm(columns)) * root * (1.0 + gamma(columns.size + 8))

    @cached_property
    def _spectral_norm(self) -> float:
        """At least the spectral norm of the same matrix."""
        problem, frobenius = self.problem, self._column_norm
        roots = np.sqrt(self.gradients.totals.quadratic)
        gram = np.triu(problem.matrix.column_gram(problem.weights)) / roots / roots[:, None]
        square = 2.0 * float(np.sum(np.square(gram))) - float(np.sum(np.square(np.diagonal(gram))))
        # The entries err by gamma times the products of the columns' norms, in the Frobenius norm by gamma times that of X squared.
        error = gamma(self.gradients.totals.depth + gram.shape[0] + 16) * frobenius**2
        found = float(np.sqrt(square)) * (1.0 + gamma(gram.size + 8)) * self.gradients.largest_factor + error
        return min(frobenius, float(np.sqrt(found)) * (1.0 + FEW))

    def gradient_norms(self, found: Measured, models: Any) -> tuple[Array, Array]:
        """At least the norms of computed gradients in the penalised columns, and the sizes of their entries for the intercept; slopes may still be off."""
        problem, totals = self.problem, self.gradients.totals
        columns, borders = split_models(found.gradients, problem.fit_intercept)
        coefs, _ = split_models(models, problem.fit_intercept)
        strengths = totals.quadratic[:, None]
        unit = 1.0 + gamma(totals.n_columns + 8)
        norms = np.sqrt(np.sum(np.square(columns) / strengths, axis=0)) * unit
        norms = norms + FEW * np.sqrt(np.sum(strengths * np.square(coefs), axis=0)) * unit
        # Sums over the rows, and the slopes' own evaluation.
        spread = (sum_error(totals.depth) + FEW) * found.slope_norms * (1.0 + gamma(2 * totals.depth + 8))
        norms = norms + spread * self._column_norm + TINY * (1.0 + float(strengths.min()) ** -0.5)
        return norms * (1.0 + FEW), (np.abs(borders) + spread * self._border_norm) * (1.0 + FEW) + TINY

    @property
    def _border_norm(self) -> float:
        """At least the root of the sum of the weights, at the largest factor; 0 without an intercept."""
        root = float(np.sqrt(self.gradients.totals.weight_sum * self.gradients.largest_factor))
        return root * (1.0 + FEW) if self.problem.fit_intercept else 0.0

    def find_promising(self, found: Measured, models: Any) -> NDArray[np.bool_]:
        """The models whose gradients are small enough for a finite radius."""
        norms, borders = self.gradient_norms(found, models)
        constant, longest = float(self.problem.loss.self_concordance or 0.0), self.longest
        return constant * longest * (norms + borders * longest) < 1.0

    def half_widths(self, found: Measured, models: Any, rows: NDArray[np.intp], factors: Array) -> Array:
        """At least how far the scores of the left-out rows are from those at the optima; infinite where nothing is proven.

        Parameters
        ----------
        found : Measured
            What was measured of the models.
        models : array of shape (n_unknowns, n_models)
            The models.
        rows : array of int of shape (n_models,)
            The row that each is trained without.
        factors : array of shape (n_models,)
            What the weights of each model's rows are multiplied by.
        """
        problem, totals, longest = self.problem, self.gradients.totals, self.longest
        constant, own = float(problem.loss.self_concordance or 0.0), self.lengths[rows]
        norms, borders = self.gradient_norms(found, models)
        off = totals.largest_norm * found.score_errors[0] + found.score_errors[1]
        with np.errstate(all="ignore"):
            near = np.exp(constant * off) * (1.0 + FEW)
            sums, curved = self._sum_curvatures(models, (rows, np.arange(rows.size)))
            # Errors of the slopes, with the weights of the largest factor.
            root = float(np.sqrt(self.gradients.largest_factor))
            wrong = curved * off * near * (root * (1.0 + gamma(2 * problem.n_rows + 16)))
            nu = (norms + wrong * self._spectral_norm) * (1.0 + FEW)
            free = np.zeros(rows.size)
            if problem.fit_intercept:
                # Curvatures that underflow are not known to a few units of themselves.
                sums = sums * (1.0 - gamma(problem.n_rows + 16)) - problem.n_rows * TINY * totals.weight_sum
                held = factors * sums * ((1.0 - sum_error(totals.depth)) / near) * (1.0 - FEW)
                free = np.where(held > 0.0, 1.0 / np.sqrt(held), np.inf) * (1.0 + FEW)
                nu = (nu + (borders + wrong * self._border_norm) * (longest + free)) * (1.0 + FEW)
                own = np.hypot(own + longest, free) * (1.0 + FEW)
                longest = np.hypot(2.0 * longest, free) * (1.0 + FEW)
            return own * local_radius(constant, longest, nu, 0.0) * (1.0 + FEW)

    def _sum_curvatures(self, models: Any, left_out: Entries) -> tuple[Array, Array]:
        """``sum_k s_k h_k`` of each model and the root of ``sum_k s_k h_k^2``, without the left-out rows."""
        problem = self.problem
        scores = compute_model_scores(problem.matrix, models, problem.fit_intercept)
        curvatures = problem.loss.curvature(problem.y[:, None], scores)
        curvatures = problem.arrays.zero_out(curvatures, left_out)
        return problem.weights @ curvatures, weighted_norm(problem.weights, curvatures)
