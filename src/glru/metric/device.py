r"""The Hessian's inverse metric where the data lives on a device.

How a device's library factors and solves is not relied upon: with the computed :math:`R` and :math:`V \approx R^{-1}`, the
residuals :math:`R^\top R - H` and :math:`R V - I` are formed by products, whose rounding is known in any order of
summation, and their norms enter the bounds. Everything after that is a product with :math:`V`.
"""

from functools import cached_property
from typing import Any, final

import numpy as np
from scipy.linalg import LinAlgError

from glru.linalg import FEW, TINY, Array, Matrix, arrays_of, gamma, move_like, to_host
from glru.linalg.factor import cholesky, solve_upper
from glru.metric.columns import ColumnMetric, powers_of_two
from glru.rows import Totals


def column_metric(totals: Totals, hessian: Any) -> ColumnMetric:
    """The metric of a Hessian given by its upper triangle, a sum over all rows, where it lives."""
    kind = ColumnMetric if arrays_of(hessian).stable else DeviceMetric
    return kind(hessian, totals.fit_intercept, totals.depth, totals.least_curvature)


@final
class DeviceMetric(ColumnMetric):
    """The metric from a Cholesky factor that stays on the device."""

    def _factor(self, matrix: Any, depth: int) -> None:
        self.arrays = arrays_of(matrix)
        xp = self.arrays.xp
        unit = xp.eye(matrix.shape[0], dtype=matrix.dtype, device=self.arrays.device)
        self.factor = self.inverse = unit
        if not bool(xp.isfinite(xp.sum(matrix))):
            return
        scales = self.arrays.put(powers_of_two(to_host(xp.linalg.diagonal(matrix))))
        matrix = matrix * scales[None, :] * scales[:, None]
        try:
            factor = cholesky(matrix)
        except LinAlgError:
            return
        inverse = solve_upper(factor, unit)
        self.factor, self.inverse = factor / scales[None, :], inverse * scales[:, None]
        self._judge(depth, matrix, factor, inverse)

    def _judge(self, depth: int, matrix: Any, factor: Any, inverse: Any) -> None:
        """``tau`` and ``eta`` from the residuals of the inverse and of the factor of the scaled matrix."""
        xp, size = self.arrays.xp, self.size
        unit = xp.eye(size, dtype=matrix.dtype, device=self.arrays.device)
        rounded = 1.0 + 2.0 * gamma(size * size + 8)
        norms = _frobenius(xp, factor), _frobenius(xp, inverse)
        self.tau = (inverse_residual(xp, factor, inverse, unit) + gamma(size + 8) * norms[0] * norms[1]) * rounded
        if not self.tau < 0.125:
            return
        # Products R^T R err by gamma |r_i| |r_j| in an entry, in Frobenius norm gamma |R|_F^2.
        factored = factor_residual(xp, factor, matrix) + gamma(size + 8) * (norms[0] * norms[0])
        trace = float(xp.linalg.trace(matrix))
        error = (factored + gamma(depth + 4 * size + 16) * trace) * rounded
        inverse_norm = norms[1] * rounded / (1.0 - self.tau)
        # A product of Python's floats overflows to infinity, a power of them is an error.
        eta = error * (inverse_norm * inverse_norm)
        self.eta = eta if np.isfinite(eta) else np.inf

    @property
    def size(self) -> int:
        return int(self.factor.shape[0])

    @cached_property
    def inverse_norm(self) -> float:
        return _frobenius(self.arrays.xp, self.inverse)

    def solve(self, vector: Any) -> Any:
        there = self.arrays.put(vector)
        solved = self.inverse @ (self.arrays.xp.matrix_transpose(self.inverse) @ there)
        return move_like(solved, vector)

    @cached_property
    def solve_error(self) -> float:
        # Half a solve errs by tau for V, by another for the product; the second half by tau more for what it is asked about.
        return 3.0 * self.tau / (1.0 - 3.0 * self.tau) + FEW

    def norms(self, X: Matrix) -> Array:
        array = self.arrays.put(X.block())
        block = self.arrays.with_ones(array) if self.fit_intercept else array
        solved = block @ self.inverse
        norms = np.sqrt(to_host(self.arrays.xp.sum(solved * solved, axis=1)))
        return norms * (1.0 + self.solve_error) + self.tiny

    def gradient_norm(self, gradient: Array, slack: Array) -> float:
        transposed = self.arrays.xp.matrix_transpose(self.inverse)
        solved = to_host(transposed @ self.arrays.put(gradient))
        # Entry by entry: |R^-T e| <= |R^-T| |e|.
        outer = float(np.linalg.norm(to_host(self.arrays.xp.abs(transposed) @ self.arrays.put(slack))))
        return (float(np.linalg.norm(solved)) + self._least_of(outer, slack)) * (1.0 + self.solve_error) + TINY

    def gradient_norms(self, gradients: Any) -> Array:
        solved = self.arrays.xp.matrix_transpose(self.inverse) @ gradients
        return np.sqrt(self.arrays.inner(solved, solved)) * (1.0 + self.solve_error)

    def axis_norms(self) -> Array:
        squares = to_host(self.arrays.xp.sum(self.inverse * self.inverse, axis=1))
        return np.sqrt(squares) * (1.0 + self.solve_error)


def inverse_residual(xp: Any, factor: Any, inverse: Any, unit: Any) -> float:
    """The Frobenius norm of ``R V - I``, as computed."""
    return _frobenius(xp, factor @ inverse - unit)


def factor_residual(xp: Any, factor: Any, matrix: Any) -> float:
    """The Frobenius norm of ``R^T R - H``, as computed."""
    return _frobenius(xp, xp.matrix_transpose(factor) @ factor - matrix)


def _frobenius(xp: Any, matrix: Any) -> float:
    with np.errstate(all="ignore"):  # namespaces that are made of NumPy warn as it does
        return float(xp.linalg.vector_norm(matrix))
