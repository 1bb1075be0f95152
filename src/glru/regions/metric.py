r"""The Hessian's inverse metric, from a factor in the smaller of two dimensions, with outward rounding.

:class:`ColumnMetric` factors the Hessian itself (intercept included). :class:`RowMetric` (wide data, every column
penalised) factors :math:`B = I + D^{1/2} K D^{1/2}`, :math:`K = X \Lambda^{-1} X^\top`, and uses

.. math:: x^\top H^{-1} x = x^\top \Lambda^{-1} x - \|R^{-\top} D^{1/2} X \Lambda^{-1} x\|^2, \qquad B = R^\top R.

An intercept adds :math:`(1 - p^\top X \Lambda^{-1} x)^2 / \sigma` with :math:`p = D^{1/2} B^{-1} D^{1/2} 1`,
:math:`\sigma = 1^\top p`.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, final

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular

from glru.linalg import CHUNK_BYTES, FEW, HOST, TINY, Array, Arrays, Matrix, as_matrix, gamma
from glru.linalg.factor import core_factor
from glru.problem import Problem


class Metric(ABC):
    """Norms in the inverse of the Hessian of a problem at some scores; everything is rounded up."""

    eta: float
    """The Hessian is at least ``1 - eta`` times the metric used; ``inf`` where nothing is known."""

    @abstractmethod
    def norms(self, X: Matrix) -> Array:
        """Norms of rows, with a 1 for the intercept."""

    @abstractmethod
    def gradient_norm(self, gradient: Array, slack: Array) -> float:
        """Norm of a gradient whose entries (the intercept's last) are known up to ``slack``."""

    @abstractmethod
    def axis_norms(self) -> Array:
        """Norms of the unit vectors (the intercept's last)."""


def least_curvature(problem: Problem) -> float:
    """A number that no eigenvalue of the problem's Hessian is below, wherever it is taken."""
    return 0.0 if problem.fit_intercept else problem.penalty.strong_convexity


def powers_of_two(diagonal: Array) -> Array:
    """Powers of two that, multiplied to rows and columns, bring a positive diagonal near 1.

    An entry so small that the products in its sum may have underflowed keeps its scale: its relative error is unknown.
    """
    known = (diagonal > 1e-280) & np.isfinite(diagonal)
    return np.ldexp(1.0, -np.round(0.5 * np.log2(np.where(known, diagonal, 1.0))).astype(np.intc))


class ColumnMetric(Metric):
    """The metric from a Cholesky factor of the Hessian."""

    factor: Any
    inverse: Any
    arrays: Arrays = HOST
    """Operations on the matrices that the metric is asked about."""

    def __init__(self, problem: Problem, bend: Array) -> None:
        self._factor(problem.hessian(bend), problem.fit_intercept, problem.n_rows, least_curvature(problem))

    @classmethod
    def of_hessian(cls, matrix: Array, fit_intercept: bool, depth: int, least: float = 0.0) -> "ColumnMetric":
        """The metric of a Hessian given by its upper triangle, a sum in which rows pass through ``depth`` additions.

        ``least``: no eigenvalue of the exact Hessian is below it.
        """
        new = cls.__new__(cls)
        new._factor(matrix, fit_intercept, depth, least)
        return new

    def _factor(self, matrix: Array, fit_intercept: bool, depth: int, least: float) -> None:
        self.fit_intercept, self.least = fit_intercept, least
        size, scales = matrix.shape[0], powers_of_two(np.diagonal(matrix))
        self.eta = self.tau = np.inf
        self.factor = self.inverse = np.eye(size)
        # Scaled by powers of two, which is exact, to a diagonal near 1: no bound below depends on the units of a column.
        matrix = matrix * scales * scales[:, None]
        try:
            factor = np.triu(cholesky(matrix, check_finite=True))
        except (LinAlgError, ValueError):
            return
        # Solved column by column, so that R V = I + E with |E| <= gamma |R| |V|: a bound on the side where
        # x^T R^-1 = (x^T V) (I + E)^-1 keeps it relative. An inverse by LAPACK's dtrtri bounds V R - I instead.
        inverse = np.triu(solve_triangular(factor, np.eye(size), check_finite=False))
        self.factor, self.inverse = factor / scales, inverse * scales[:, None]
        rounded = 1.0 + 2.0 * gamma(size * size + 8)
        # |R| |V| is the same with and without the scales.
        norms = float(np.linalg.norm(factor)), float(np.linalg.norm(inverse))
        self.tau = gamma(size + 8) * norms[0] * norms[1] * rounded
        if not self.tau < 0.125:
            return
        # Forming and factoring err by at most gamma sqrt(h_ii h_jj) in each entry, in Frobenius norm gamma times the trace.
        reach = norms[1] * rounded / (1.0 - self.tau)
        # A product of Python's floats overflows to infinity, a power of them is an error.
        eta = gamma(depth + 4 * size + 16) * float(np.trace(matrix)) * (reach * reach)
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
        return cho_solve((self.factor, False), vector, check_finite=False)

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
        """The same for rows with few entries, as quadratic forms in the inverse."""
        inverse = self.inverse @ self.inverse.T
        size = X.shape[1]
        border = inverse[:size, size:].sum(axis=1)
        squares = X.quadratic_forms(np.ascontiguousarray(inverse[:size, :size]))
        axes = np.sqrt(np.diag(inverse))
        reach = X.absolute_product(axes[:size])
        if self.fit_intercept:
            squares = squares + 2.0 * (X @ border) + inverse[-1, -1]
            reach = reach + axes[-1]
        # |entries of the inverse| <= axes_i axes_j, so that is also the scale of every rounding error.
        squares = np.maximum(squares, 0.0) + gamma(4 * inverse.shape[0] + 16) * reach**2
        return np.sqrt(squares) * (1.0 + self.solve_error) + self.tiny

    def gradient_norm(self, gradient: Array, slack: Array) -> float:
        solved = solve_triangular(self.factor, gradient, trans="T", check_finite=False)
        # Entry by entry: |R^-T e| <= |R^-T| |e|.
        outer = float(np.linalg.norm(as_matrix(self.inverse.T).absolute_product(slack)))
        # Squares underflow in both norms.
        return (float(np.linalg.norm(solved)) + self._least_of(outer, slack)) * (1.0 + self.solve_error) + TINY

    def _least_of(self, outer: float, slack: Array) -> float:
        """The smaller of two bounds of the norm of an error: one entry by entry, one by its length."""
        length = float(np.linalg.norm(slack)) * (1.0 + gamma(slack.size + 4)) + TINY
        return min(outer, self.largest * length)

    def gradient_norms(self, gradients: Any) -> Array:
        """Norms of gradients, a column each."""
        solved = self.inverse.T @ gradients
        return np.sqrt(np.einsum("ij,ij->j", solved, solved)) * (1.0 + self.solve_error)

    def axis_norms(self) -> Array:
        return np.sqrt(np.square(self.inverse).sum(axis=1)) * (1.0 + self.solve_error)


@final
class RowMetric(Metric):
    """The metric from a Cholesky factor in the dimension of the rows; every column must be penalised."""

    def __init__(self, problem: Problem, bend: Array) -> None:
        self.X, self.fit_intercept = problem.matrix, problem.fit_intercept
        lam = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
        self.inverse = 1.0 / lam
        self.root = np.sqrt(bend)
        gram = problem.matrix.row_gram(self.inverse)
        self.trace = float(problem.n_rows + bend @ np.diagonal(gram.data)) * (1.0 + gamma(problem.n_rows + 4))
        self.factor = np.triu(core_factor(gram, self.root))
        # B >= I, so a backward error of Frobenius norm gamma trace(B) is also a relative one.
        self.eta_core = gamma(problem.n_columns + 5 * problem.n_rows + 24) * self.trace
        self.eta = 0.0 if self.eta_core < 0.1 else np.inf
        self.p, self.sigma = np.zeros(problem.n_rows), np.inf
        if problem.fit_intercept:
            half = solve_triangular(self.factor, self.root, trans="T", check_finite=False)
            self.p = self.root * solve_triangular(self.factor, half, check_finite=False)
            self.sigma = float(half @ half) * (1.0 - 3.0 * self.eta_core)
            self.eta = self.eta if self.sigma > 0.0 else np.inf

    def norms(self, X: Matrix) -> Array:
        out = np.empty(X.shape[0])
        height = max(64, 16 * CHUNK_BYTES // (8 * self.root.size))
        for start in range(0, X.shape[0], height):
            rows = X[start : start + height]
            out[start : start + rows.shape[0]] = self._norms(rows)
        return out

    def _norms(self, rows: Matrix) -> Array:
        squares = rows.squared_row_norms(self.inverse) * (1.0 + gamma(rows.shape[1] + 4))
        images = rows.cross_gram(self.X, self.inverse).data.T
        solved = solve_triangular(self.factor, self.root[:, None] * images, trans="T", check_finite=False)
        # The image's rounding error is at most gamma(d) |x_k| |x| a row, in norm gamma(d) sqrt(trace B) |x|.
        off = gamma(rows.shape[1] + 4) * np.sqrt(self.trace * squares)
        shrunk = np.sqrt(np.einsum("ij,ij->j", solved, solved)) * (1.0 - 2.0 * self.eta_core) - off
        squares = squares - np.square(np.maximum(shrunk, 0.0)) * (1.0 - FEW) + FEW * squares
        if self.fit_intercept:
            squares = squares + np.square(np.abs(1.0 - self.p @ images) + self._cross_error(squares, off)) / self.sigma
        return np.sqrt(np.maximum(squares, 0.0)) * (1.0 + FEW) + TINY * float(1.0 + np.sqrt(self.inverse.max()))

    def _cross_error(self, squares: Array, off: Array) -> Array:
        """Error of ``p . X Lambda^-1 x``: of the image, and of ``p`` through the factor."""
        size = np.sqrt(float(self.p.sum())) + 1.0
        return size * (off + 3.0 * self.eta_core * np.sqrt(self.trace * np.maximum(squares, 0.0))) * (1.0 + FEW) + FEW

    def gradient_norm(self, gradient: Array, slack: Array) -> float:
        columns = self.inverse.size
        own = np.abs(gradient[:columns]) + slack[:columns]
        square = float(own @ (self.inverse * own)) * (1.0 + gamma(columns + 4))
        if self.fit_intercept:
            # |p . X Lambda^-1 u| <= sqrt(p^T K p) |u|, and p^T K p <= 1^T p.
            cross = np.sqrt(float(self.p.sum()) * (1.0 + 3.0 * self.eta_core)) * np.sqrt(square)
            square += (abs(float(gradient[-1])) + float(slack[-1]) + cross) ** 2 / self.sigma
        return float(np.sqrt(square)) * (1.0 + FEW) + TINY

    def axis_norms(self) -> Array:
        axes = np.sqrt(self.inverse) * (1.0 + FEW)
        if not self.fit_intercept:
            return axes
        # Of the unit vector of a coefficient: at most its own norm and its share through the intercept.
        cross = np.sqrt(float(self.p.sum()) * (1.0 + 3.0 * self.eta_core) / self.sigma)
        return np.append(axes * np.sqrt(1.0 + cross**2), 1.0 / np.sqrt(self.sigma)) * (1.0 + FEW)
