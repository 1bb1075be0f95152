"""The Hessian's inverse metric from a Cholesky factor over the columns (the intercept's last), with outward rounding."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from glru.linalg import CHUNK_BYTES, FEW, HOST, TINY, Array, Arrays, Matrix, as_matrix, gamma
from glru.linalg.factor import cholesky_solve, host_cholesky, solve_triangular
from glru.metric.base import Metric


def powers_of_two(diagonal: Array) -> Array:
    """Powers of two that, multiplied to rows and columns, bring a positive diagonal near 1.

    An entry so small that the products in its sum may have underflowed keeps its scale: its relative error is unknown.
    """
    known = (diagonal > 1e-280) & np.isfinite(diagonal)
    return np.ldexp(1.0, -np.round(0.5 * np.log2(np.where(known, diagonal, 1.0))).astype(np.intc))


class ColumnMetric(Metric):
    """The metric from a Cholesky factor of the Hessian.

    Parameters
    ----------
    hessian : array
        Its upper triangle, a sum over rows.
    fit_intercept : bool
        Whether its last row and column are those of an intercept.
    depth : int
        At least the additions that a row's share of the sum passes through.
    least : float
        No eigenvalue of the exact Hessian is below it.
    """

    factor: Any
    inverse: Any
    arrays: Arrays = HOST
    """Operations on the matrices that the metric is asked about."""

    def __init__(self, hessian: Any, fit_intercept: bool, depth: int, least: float) -> None:
        self.fit_intercept, self.least = fit_intercept, least
        self.eta = self.tau = np.inf
        self._factor(hessian, depth)

    def _factor(self, matrix: Any, depth: int) -> None:
        """Factor the Hessian; ``eta`` and ``tau`` stay infinite where that fails."""
        size, scales = matrix.shape[0], powers_of_two(np.diagonal(matrix))
        self.factor = self.inverse = np.eye(size)
        # Scaled by powers of two, which is exact, to a diagonal near 1: no bound below depends on the units of a column.
        matrix = matrix * scales * scales[:, None]
        if not np.isfinite(matrix).all():
            return
        try:
            factor = host_cholesky(matrix)
        except LinAlgError:
            return
        # Solved column by column, so that R V = I + E with |E| <= gamma |R| |V|: a bound on the side where
        # x^T R^-1 = (x^T V) (I + E)^-1 keeps it relative. An inverse by LAPACK's dtrtri bounds V R - I instead.
        inverse = np.triu(solve_triangular(factor, np.eye(size)))
        self.factor, self.inverse = factor / scales, inverse * scales[:, None]
        rounded = 1.0 + 2.0 * gamma(size * size + 8)
        # |R| |V| is the same with and without the scales.
        norms = float(np.linalg.norm(factor)), float(np.linalg.norm(inverse))
        self.tau = gamma(size + 8) * norms[0] * norms[1] * rounded
        if not self.tau < 0.125:
            return
        # Forming and factoring err by at most gamma sqrt(h_ii h_jj) in each entry, in Frobenius norm gamma times the trace.
        inverse_norm = norms[1] * rounded / (1.0 - self.tau)
        # A product of Python's floats overflows to infinity, a power of them is an error.
        eta = gamma(depth + 4 * size + 16) * float(np.trace(matrix)) * (inverse_norm * inverse_norm)
        self.eta = eta if np.isfinite(eta) else np.inf

    @property
    def size(self) -> int:
        """Number of coefficients, the intercept counted."""
        return int(self.factor.shape[0])

    @cached_property
    def inverse_norm(self) -> float:
        """The Frobenius norm of the inverse factor."""
        return float(np.linalg.norm(self.inverse))

    @property
    def largest(self) -> float:
        """At least the norm in the inverse metric of any vector of length 1."""
        found = self.inverse_norm * (1.0 + self.solve_error)
        # The Hessian, never below ``least``, is at most 1 + eta times the metric.
        return min(found, float(np.sqrt((1.0 + self.eta) / self.least)) * (1.0 + FEW)) if self.least > 0.0 else found

    @property
    def tiny(self) -> float:
        """What every norm is raised by, for squares that underflow."""
        return TINY * (1.0 + self.inverse_norm)

    def solve(self, vector: Any) -> Any:
        """The inverse of the metric times a vector or a matrix."""
        return cholesky_solve(self.factor, vector)

    @cached_property
    def solve_error(self) -> float:
        """Relative error of the norm of a product with the inverse factor, or of a triangular solve."""
        # Either errs by tau of the exact norm when it is computed, the inverse by another tau.
        return 2.0 * self.tau / (1.0 - 2.0 * self.tau) + FEW

    def norms(self, X: Matrix) -> Array:
        if X.is_thin:
            return self._sparse_norms(X)
        norms = np.empty(X.shape[0])
        height = max(64, 16 * CHUNK_BYTES // (8 * max(self.factor.shape[0], 1)))
        for start in range(0, X.shape[0], height):
            block = X[start : start + height].dense()
            if self.fit_intercept:
                block = np.column_stack([block, np.ones(block.shape[0])])
            # The product with the inverse factor errs as little as a triangular solve here, and is far quicker.
            solved = block @ self.inverse
            norms[start : start + block.shape[0]] = np.sqrt(np.einsum("ij,ij->i", solved, solved))
        return norms * (1.0 + self.solve_error) + self.tiny

    def _sparse_norms(self, X: Matrix) -> Array:
        """Norms of rows with few entries, as quadratic forms in the inverse."""
        inverse = self.inverse @ self.inverse.T
        size = X.shape[1]
        border = inverse[:size, size:].sum(axis=1)
        squares = X.quadratic_forms(np.ascontiguousarray(inverse[:size, :size]))
        axes = np.sqrt(np.diag(inverse))
        sizes = X.absolute_product(axes[:size])
        if self.fit_intercept:
            squares = squares + 2.0 * (X @ border) + inverse[-1, -1]
            sizes = sizes + axes[-1]
        # |entries of the inverse| <= axes_i axes_j, so that is also the scale of every rounding error: gamma(size + 2) for those of V V^T,
        # gamma(2 k + 4) for the form, 3 units for its sum with the border; what is left of gamma covers the rounding of ``sizes``.
        squares = np.maximum(squares, 0.0) + gamma(4 * inverse.shape[0] + 16) * sizes**2
        return np.sqrt(squares) * (1.0 + self.solve_error) + self.tiny

    def gradient_norm(self, gradient: Array, slack: Array) -> float:
        solved = solve_triangular(self.factor, gradient, transposed=True)
        # Entry by entry: |R^-T e| <= |R^-T| |e|.
        outer = float(np.linalg.norm(as_matrix(self.inverse.T).absolute_product(slack)))
        # Squares underflow in both norms.
        return (float(np.linalg.norm(solved)) + self._least_of(outer, slack)) * (1.0 + self.solve_error) + TINY

    def _least_of(self, outer: float, slack: Array) -> float:
        """The smaller of two bounds of the norm of an error: one entry by entry, one by its length."""
        length = float(np.linalg.norm(slack)) * (1.0 + gamma(slack.size + 4)) + TINY
        return min(outer, self.largest * length)

    def gradient_norms(self, gradients: Any) -> Array:
        """Norms of gradients, one per column."""
        solved = self.inverse.T @ gradients
        return np.sqrt(np.einsum("ij,ij->j", solved, solved)) * (1.0 + self.solve_error)

    def axis_norms(self) -> Array:
        return np.sqrt(np.square(self.inverse).sum(axis=1)) * (1.0 + self.solve_error)
