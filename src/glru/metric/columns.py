"""The Hessian's inverse metric over the columns (the intercept's last), with outward rounding: factored, bounded, or on a device."""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.linalg import LinAlgError
from scipy.linalg.blas import dtrmm

from glru.linalg import (
    CHUNK_BYTES,
    FEW,
    HOST,
    TINY,
    Array,
    Arrays,
    Matrix,
    as_matrix,
    gamma,
    get_arrays,
    length,
    move_like,
    powers_of_two,
    to_host,
)
from glru.linalg.factor import (
    cholesky,
    factor_on_host,
    invert_triangular,
    solve_cholesky,
    solve_triangular,
    solve_upper,
)
from glru.problem import Problem
from glru.rows import Totals

LOST_DIGITS = 1e-3
"""If a metric of dense rows is farther than this from the Hessian, it is made from the rows instead, which takes several times as long."""

MIN_SQUARE = 1e-200
"""Squared lengths of columns that are decomposed are above this, and below its inverse."""


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


class ColumnMetric(Metric):
    """The metric from a Cholesky factor of the Hessian.

    ``hessian``: its upper triangle, a sum over rows in which a row's share passes through at most ``depth`` additions; ``fit_intercept``: whether its last
    row and column are those of an intercept; ``least``: no eigenvalue of the exact Hessian is below it.
    """

    factor: Any
    inverse: Any
    arrays: Arrays = HOST
    """Operations on the matrices that the metric is asked about."""

    def __init__(self, hessian: Any, fit_intercept: bool, depth: int, least: float) -> None:
        self.fit_intercept, self.least = fit_intercept, least
        self.eta = self.tau = np.inf
        self._asked: tuple[Matrix, Array] | None = None
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows leaves ``eta`` or ``tau`` infinite
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
            factor = factor_on_host(matrix)
        except LinAlgError:
            return
        # Solved column by column, so that R V = I + E with |E| <= gamma |R| |V|: a bound on the side where
        # x^T R^-1 = (x^T V) (I + E)^-1 keeps it relative. An inverse by LAPACK's dtrtri bounds V R - I instead.
        inverse = invert_triangular(factor)
        self.factor, self.inverse = factor / scales, inverse * scales[:, None]
        rounded = 1.0 + 2.0 * gamma(size * size + 8)
        # |R| |V| is the same with and without the scales.
        norms = float(np.linalg.norm(factor)), float(np.linalg.norm(inverse))
        self.tau = gamma(size + 8) * norms[0] * norms[1] * rounded
        if not self.tau < 0.125:
            return
        # Forming and factoring err by at most gamma d_i d_j in each entry, d_i^2 = h_ii: as a form in R^-1 y, |R^-1| <= |V| / (1 - tau), by at
        # most gamma times the squared length of |V|^T d.
        spread = float(np.linalg.norm(np.abs(inverse).T @ np.sqrt(np.diagonal(matrix)))) * rounded / (1.0 - self.tau)
        # A product of Python's floats overflows to infinity, a power of them is an error.
        eta = gamma(depth + 4 * size + 16) * (spread * spread)
        self.eta = eta if np.isfinite(eta) else np.inf

    @property
    def size(self) -> int:
        """Number of coefficients, the intercept counted."""
        return int(self.factor.shape[0])

    @cached_property
    @np.errstate(over="ignore")  # with an infinite norm nothing is proven
    def inverse_norm(self) -> float:
        """The Frobenius norm of the inverse factor."""
        return float(np.linalg.norm(self.inverse))

    @property
    def largest(self) -> float:
        """An upper bound of the norm in the inverse metric of any vector of length 1."""
        found = self.inverse_norm * (1.0 + self.solve_error)
        # The Hessian, never below ``least``, is at most 1 + eta times the metric.
        return min(found, float(np.sqrt((1.0 + self.eta) / self.least)) * (1.0 + FEW)) if self.least > 0.0 else found

    @property
    def tiny(self) -> float:
        """What every norm is raised by, for squares that underflow."""
        return TINY * (1.0 + self.inverse_norm)

    def solve(self, vector: Any) -> Any:
        """The inverse of the metric times a vector or a matrix."""
        return solve_cholesky(self.factor, vector)

    @cached_property
    def solve_error(self) -> float:
        """Relative error of the norm of a product with the inverse factor, or of a triangular solve."""
        # Either errs by tau of the exact norm when it is computed, the inverse by another tau.
        return 2.0 * self.tau / (1.0 - 2.0 * self.tau) + FEW

    def norms(self, X: Matrix) -> Array:
        # Ellipsoids that are carried along steps ask about the same rows again.
        asked = self._asked  # read once: another thread may ask about other rows
        if asked is None or asked[0] is not X:
            found = self._sparse_norms(X) if X.is_thin else self._dense_norms(X)
            found.flags.writeable = False
            asked = self._asked = X, found
        return asked[1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_asked": None}  # the rows do not travel with the metric

    def _dense_norms(self, X: Matrix) -> Array:
        (n_rows, n_columns), squares = X.shape, np.empty(X.shape[0])
        height, inverse = max(64, CHUNK_BYTES // (8 * max(self.size, 32))), self.inverse[:n_columns, :n_columns]
        for start in range(0, n_rows, height):
            here = slice(start, start + height)
            block = X[here].dense()
            # The product with the inverse factor errs as little as a triangular solve here, and is far quicker.
            turned = np.array(block, order="C").T  # a copy, which the product is written to
            solved = dtrmm(1.0, inverse.T, turned, lower=1, overwrite_b=1) if n_columns else turned
            squares[here] = np.einsum("ij,ij->j", solved, solved)
            if self.fit_intercept:
                squares[here] += np.square(block @ self.inverse[:n_columns, -1] + self.inverse[-1, -1])
        return np.sqrt(squares) * (1.0 + self.solve_error) + self.tiny

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
        # Squares underflow.
        return float(np.linalg.norm(solved)) * (1.0 + self.solve_error) + self.error_norm(slack)

    def error_norm(self, slack: Array) -> float:
        """An upper bound of the norm of a vector whose entries are at most ``slack``."""
        # Entry by entry: |R^-T e| <= |R^-T| |e|.
        outer = float(np.linalg.norm(as_matrix(self.inverse.T).absolute_product(slack)))
        return self._least_of(outer, slack) * (1.0 + self.solve_error) + TINY

    def _least_of(self, outer: float, slack: Array) -> float:
        """The smaller of two bounds of the norm of an error: one entry by entry, one by its length."""
        size = float(np.linalg.norm(slack)) * (1.0 + gamma(slack.size + 4)) + TINY
        return min(outer, self.largest * size)

    def gradient_norms(self, gradients: Any) -> Array:
        """Norms of gradients, one per column."""
        solved = self.inverse.T @ gradients
        return np.sqrt(np.einsum("ij,ij->j", solved, solved)) * (1.0 + self.solve_error)

    def axis_norms(self) -> Array:
        return length(self.inverse, axis=1) * (1.0 + self.solve_error)


@final
class OrthogonalMetric(ColumnMetric):
    r"""The metric from a QR decomposition of dense rows, the error of which grows with the condition of the data and not with its square.

    Let :math:`A` be the rows over the roots of their weighted curvatures, those of the penalty below, so that :math:`H = A^\top A`. Nothing is assumed of
    the decomposition: with the computed :math:`R` and :math:`V \approx R^{-1}`, both :math:`E = V^\top H V - I`, by a product :math:`Q = A V`, and
    :math:`R V - I` are bounded, and :math:`R^{-\top} H R^{-1} = (R V)^{-\top} (I + E) (R V)^{-1}`. ``curvatures``: those of the rows, weighted.
    """

    def __init__(self, rows: Array, curvatures: Array, totals: Totals) -> None:
        roots = np.sqrt(curvatures)[:, None]
        below = np.diag(np.sqrt(totals.quadratic))
        matrix = np.vstack([roots * rows, below])
        if totals.fit_intercept:
            matrix = np.column_stack([matrix, np.append(roots, np.zeros(len(below)))])
        super().__init__(matrix, totals.fit_intercept, totals.depth, totals.least_curvature)

    def _factor(self, matrix: Any, depth: int) -> None:
        n_rows, size = matrix.shape
        self.factor = self.inverse = np.eye(size)
        with np.errstate(all="ignore"):
            squares = np.einsum("ij,ij->j", matrix, matrix)
            # Columns in whose units an entry that underflows would count are left alone.
            if n_rows < size or not np.all((squares > MIN_SQUARE) & (squares < 1.0 / MIN_SQUARE)):
                return
            scales = powers_of_two(squares)
            matrix = matrix * scales
            factor: Array = np.asarray(np.linalg.qr(matrix, mode="r"))
            if not np.diagonal(factor).all():
                return
            inverse = invert_triangular(factor)
            self.factor, self.inverse = factor / scales, inverse * scales[:, None]
            rounded = 1.0 + gamma(n_rows * size + size * size + 16)
            self.tau = gamma(size + 8) * float(np.linalg.norm(factor)) * float(np.linalg.norm(inverse)) * rounded
            if not self.tau < 0.125:
                return
            made = matrix @ inverse
            # Entries of A err by a few units, those of Q by gamma |A| |V|, and those of Q^T Q by gamma |Q|^T |Q|.
            off = gamma(size + 16) * float(np.linalg.norm(np.abs(matrix) @ np.abs(inverse))) * rounded
            length = float(np.linalg.norm(made)) * rounded
            apart = float(np.linalg.norm(made.T @ made - np.eye(size))) * rounded + gamma(n_rows + 16) * length**2
            eta = (1.0 + apart + off * (2.0 * length + off)) / (1.0 - self.tau) ** 2 * (1.0 + FEW) - 1.0 + FEW
            self.eta = eta if np.isfinite(eta) else np.inf


@final
class DiagonalMetric(Metric):
    r"""The metric of the penalty and of the losses along the intercept, for a problem whose columns are all penalised.

    It costs no more than a product with the data. With strengths :math:`\Lambda > 0` on all columns, weighted curvatures
    :math:`D` with the sum :math:`\sigma` and the mean row :math:`m = X^\top D 1 / \sigma`, the part of the losses that the weighted mean leaves is positive semidefinite, so that

    .. math:: \|(v, v_0)\|^2_{H^{-1}} \le \sum_j (v_j - m_j v_0)^2 / \lambda_j + v_0^2 / \sigma ,

    and without an intercept :math:`\|v\|^2_{H^{-1}} \le \sum_j v_j^2 / \lambda_j`. No row has a norm above :math:`d_k^{-1/2}`, as
    :math:`H \succeq d_k x_k x_k^\top`.
    """

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
        """An upper bound of the norm of a vector in the penalised coordinates."""
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
        """Upper bounds of the norms of the problem's own rows."""
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


def make_column_metric(totals: Totals, hessian: Any) -> ColumnMetric:
    """The metric of a Hessian given by its upper triangle, a sum over all rows, where it lives."""
    return factor_hessian(hessian, totals.fit_intercept, totals.depth, totals.least_curvature)


def closest_metric(problem: Problem, hessian: Any, curvatures: Array) -> ColumnMetric:
    """The metric of a Hessian over the rows; of dense rows in memory whose Hessian loses too many digits, from the rows themselves.

    ``curvatures``: weighted, what the Hessian was summed with.
    """
    metric = make_column_metric(problem.totals, hessian)
    dense = problem.in_memory and problem.arrays is HOST and problem.matrix.stores_zeros
    if metric.eta <= LOST_DIGITS or not dense or problem.loss.piecewise:
        return metric
    found = OrthogonalMetric(problem.matrix.dense(), curvatures, problem.totals)
    return found if found.eta < metric.eta else metric


def factor_hessian(hessian: Any, fit_intercept: bool, depth: int, least: float) -> ColumnMetric:
    """The metric of a Hessian, see :class:`ColumnMetric`, factored where it lives."""
    kind = ColumnMetric if get_arrays(hessian).stable else DeviceMetric
    return kind(hessian, fit_intercept, depth, least)


@final
class DeviceMetric(ColumnMetric):
    r"""The metric from a Cholesky factor that stays on the device.

    How a device's library factors and solves is not relied upon: with the computed :math:`R` and :math:`V \approx R^{-1}`, the
    residuals :math:`R^\top R - H` and :math:`R V - I` are formed by products, whose rounding is known in any order of
    summation, and their norms enter the bounds. Everything after that is a product with :math:`V`.
    """

    def _factor(self, matrix: Any, depth: int) -> None:
        self.arrays = get_arrays(matrix)
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
        # The spectral norm of V V^T is at most its largest sum of a row, whose entries err by gamma |v_i| |v_j|; for many columns that is far
        # below the squared Frobenius norm of V.
        squares = norms[1] * norms[1]
        lines = float(xp.max(xp.sum(xp.abs(inverse @ xp.matrix_transpose(inverse)), axis=1)))
        squares = min(squares, lines + gamma(size + 8) * float(np.sqrt(size)) * squares)
        # A product of Python's floats overflows to infinity, a power of them is an error.
        eta = error * (squares * rounded * rounded) / (1.0 - self.tau) / (1.0 - self.tau)
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
        solved = to_host(self.arrays.xp.matrix_transpose(self.inverse) @ self.arrays.put(gradient))
        return float(np.linalg.norm(solved)) * (1.0 + self.solve_error) + self.error_norm(slack)

    def error_norm(self, slack: Array) -> float:
        sizes = self.arrays.xp.abs(self.arrays.xp.matrix_transpose(self.inverse))
        outer = float(np.linalg.norm(to_host(sizes @ self.arrays.put(slack))))
        return self._least_of(outer, slack) * (1.0 + self.solve_error) + TINY

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
