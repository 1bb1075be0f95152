r"""A lower bound of the Hessian that costs no more than a product with the data: the penalty, and the losses along the intercept.

With strengths :math:`\Lambda > 0` on all columns, weighted curvatures :math:`D` with the sum :math:`\sigma` and the mean row
:math:`m = X^\top D 1 / \sigma`, the part of the losses that the weighted mean leaves is positive semidefinite, so that

.. math:: \|(v, v_0)\|^2_{H^{-1}} \le \sum_j (v_j - m_j v_0)^2 / \lambda_j + v_0^2 / \sigma ,

and without an intercept :math:`\|v\|^2_{H^{-1}} \le \sum_j v_j^2 / \lambda_j`. No row has a norm above :math:`d_k^{-1/2}`, as
:math:`H \succeq d_k x_k x_k^\top`.
"""

from functools import cached_property
from typing import final

import numpy as np

from glru.linalg import FEW, TINY, Array, Matrix, gamma
from glru.metric.base import Metric
from glru.problem import Problem


@final
class DiagonalMetric(Metric):
    """The metric of the penalty and of the losses along the intercept, for a problem whose columns are all penalised."""

    def __init__(self, problem: Problem, curvatures: Array) -> None:
        self.problem, self.curvatures = problem, curvatures
        self.inverse = 1.0 / problem.quadratic
        # The curvatures' own evaluation and their weights.
        self.eta = gamma(problem.n_rows + 16)
        self.mean, self.mean_error, self.total = np.zeros(problem.n_columns), 0.0, np.inf
        if problem.fit_intercept:
            unit = gamma(problem.n_rows + 8)
            total = float(curvatures.sum())
            self.total = total * (1.0 - unit)
            if not self.total > 0.0:
                self.eta = np.inf
                return
            self.mean = (problem.matrix.T @ curvatures) / total
            sizes = (abs(problem.matrix).T @ curvatures) / total
            self.mean_error = 3.0 * unit * self._length(sizes) + TINY

    def _length(self, vector: Array) -> float:
        """At least the norm of a vector in the penalised coordinates."""
        squares = float(np.square(vector) @ self.inverse)
        return float(np.sqrt(squares)) * (1.0 + gamma(vector.size + 8)) + TINY * float(np.sqrt(self.inverse.max()))

    @cached_property
    def _mean_length(self) -> float:
        return self._length(self.mean)

    def norms(self, X: Matrix) -> Array:
        unit = gamma(X.shape[1] + 16)
        squares = X.squared_row_norms(self.inverse)
        lengths = np.sqrt(squares) * (1.0 + unit) + TINY * float(np.sqrt(self.inverse.max()))
        if not self.problem.fit_intercept:
            return lengths
        # The parts cancel; each is off by a share of (|x| + |m|)^2.
        squares = squares - 2.0 * (X @ (self.mean * self.inverse)) + self._mean_length**2
        squares = np.maximum(squares, 0.0) + 4.0 * unit * np.square(lengths + self._mean_length)
        found = np.sqrt(squares + 1.0 / self.total) + self.mean_error
        return found * (1.0 + FEW)

    def row_norms(self) -> Array:
        """At least the norms of the problem's own rows."""
        with np.errstate(divide="ignore"):
            return np.minimum(self.norms(self.problem.matrix), (1.0 + FEW) / np.sqrt(self.curvatures))

    def gradient_norm(self, gradient: Array, slack: Array) -> float:
        size = self.problem.n_columns
        if not self.problem.fit_intercept:
            return self._length(np.abs(gradient) + slack) * (1.0 + FEW)
        shift = abs(float(gradient[size])) + float(slack[size])
        along = np.abs(gradient[:size] - self.mean * gradient[size]) * (1.0 + FEW) + FEW * np.abs(gradient[:size])
        along += FEW * np.abs(self.mean * gradient[size]) + slack[:size] + np.abs(self.mean) * slack[size]
        first = self._length(along) + shift * self.mean_error
        return float(np.hypot(first, shift / np.sqrt(self.total))) * (1.0 + FEW) + TINY

    def axis_norms(self) -> Array:
        found = np.sqrt(self.inverse) * (1.0 + FEW)
        if not self.problem.fit_intercept:
            return found
        last = float(np.hypot(self._mean_length + self.mean_error, 1.0 / np.sqrt(self.total))) * (1.0 + FEW)
        return np.append(found, last)
