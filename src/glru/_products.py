"""Second-order products with X, dense or sparse: weighted Gram matrices of columns and of rows, curvature products.

Nothing here forms a temporary of the size of X: dense data is scaled in chunks that stay in the cache.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cholesky
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotri

from glru import _arrays
from glru._arrays import DeviceMatrix, is_device, is_foreign, placed
from glru._numerics import UNIT, Array, Matrix
from glru._threads import in_parts
from glru.problem import Problem

CHUNK_BYTES = 1 << 20
"""Scaled rows are made in chunks of this size: they stay in the second-level cache."""


def hessian(problem: Problem, bend: Array) -> Any:
    """Upper triangle of ``X^T diag(bend) X + Lambda``, the intercept's row and column last; where X lives.

    The lower triangle holds anything.
    """
    X, d = problem.X, problem.n_columns
    matrix = column_gram(X, bend)
    if is_device(X):
        lam = np.broadcast_to(problem.penalty.quadratic, (d,))
        matrix = matrix + X.arrays.put(lam)[None, :] * X.arrays.xp.eye(d, dtype=matrix.dtype, device=X.arrays.device)
    else:
        matrix[np.diag_indices(d)] += problem.penalty.quadratic
    return bordered(matrix, X.T @ bend, float(bend.sum())) if problem.fit_intercept else matrix


def bordered(matrix: Any, border: Array, corner: float) -> Any:
    """A symmetric matrix with one row and column more."""
    if not is_foreign(matrix):
        return np.block([[matrix, border[:, None]], [np.zeros((1, border.size)), np.full((1, 1), corner)]])
    there = _arrays.Arrays(matrix)
    side = there.put(np.append(border, corner))
    return there.xp.concat([there.xp.concat([matrix, side[:-1, None]], axis=1), side[None, :]], axis=0)


def column_gram(X: Matrix, weights: Array) -> Any:
    """Upper triangle of ``X^T diag(weights) X``, ``weights >= 0``; the lower triangle holds anything."""
    n_rows, n_columns = X.shape
    if is_device(X):
        rows = X.array * X.arrays.put(np.sqrt(weights))[:, None]
        return X.arrays.xp.matrix_transpose(rows) @ rows
    if n_columns == 0:
        return np.zeros((0, 0))
    if isinstance(X, np.ndarray):
        parts = in_parts(lambda start, stop: _dense_gram(X, weights, start, stop), n_rows, 20_000)
    else:
        from glru import _kernels as kernels

        def part(start: int, stop: int) -> Array:
            total = np.zeros((n_columns, n_columns))
            kernels.csr_weighted_gram(X.indptr, X.indices, X.data, weights, start, stop, total)
            return total

        parts = in_parts(part, n_rows, 1 + 10 * n_columns)
    return _total(parts)


def _dense_gram(X: Array, weights: Array, start: int, stop: int) -> Array:
    n_columns = X.shape[1]
    height = _chunk_height(n_columns)
    total = np.zeros((n_columns, n_columns), order="F")
    roots = np.sqrt(weights[start:stop])
    chunk = np.empty((min(height, stop - start), n_columns))
    for k in range(start, stop, height):
        rows = chunk[: min(height, stop - k)]
        np.multiply(X[k : k + len(rows)], roots[k - start : k - start + len(rows), None], out=rows)
        total = dsyrk(1.0, rows.T, beta=1.0, c=total, overwrite_c=1)
    return total


def center_of(problem: Problem) -> Array | None:
    """The mean row, where an intercept makes the model of centred rows the same one; None where X is left as it is.

    Dense data is centred: products of centred rows are far smaller where columns are far from zero.
    """
    if not problem.fit_intercept or not isinstance(problem.X, np.ndarray):
        return None
    if "center" not in problem.shared:
        mean = problem.X.sum(axis=0) / max(problem.n_rows, 1)
        problem.shared["center"] = mean if np.all(np.isfinite(mean)) else np.zeros(problem.n_columns)
    return problem.shared["center"]


def centred_chunks(X: Array, center: Array) -> Iterator[tuple[slice, Array]]:
    """``X - c`` in chunks of columns that stay in the cache; every entry is rounded once."""
    width = max(64, 4 * CHUNK_BYTES // (8 * max(X.shape[0], 1)))
    for start in range(0, X.shape[1], width):
        part = slice(start, min(start + width, X.shape[1]))
        yield part, X[:, part] - center[part]


def row_gram(problem: Problem, column_weights: Array, center: Array | None = None) -> Any:
    """``X diag(column_weights) X^T`` in full, ``column_weights >= 0``; ``X X^T`` is kept for problems with the same X.

    ``center``: what :func:`center_of` says is taken from every row. Where X lives on a device, so does the product.
    """
    if column_weights.size == 0:
        return placed(np.zeros((problem.n_rows, problem.n_rows)), problem.X)
    if np.all(column_weights == column_weights[0]):
        name = "row_gram" if center is None else "centred_row_gram"
        if name not in problem.shared:
            problem.shared[name] = _row_gram(problem, np.ones_like(column_weights), center)
        gram = problem.shared[name]
        factor = float(column_weights[0])
        return DeviceMatrix(factor * gram.array) if is_device(gram) else factor * gram
    return _row_gram(problem, column_weights, center)


def _row_gram(problem: Problem, column_weights: Array, center: Array | None) -> Any:
    X = problem.X
    if is_device(X):
        scaled = X.array * X.arrays.put(np.sqrt(column_weights))[None, :]
        return DeviceMatrix(scaled @ X.arrays.xp.matrix_transpose(scaled))
    if isinstance(X, np.ndarray):
        return _dense_row_gram(X, column_weights, center)
    from glru import _kernels as kernels

    columns = problem.X_by_column
    assert isinstance(columns, sp.csc_array)
    gram = np.zeros((X.shape[0], X.shape[0]))

    def part(start: int, stop: int) -> None:
        kernels.csr_row_gram(
            X.indptr,
            X.indices,
            X.data,
            columns.indptr,
            columns.indices,
            columns.data,
            column_weights,
            start,
            stop,
            gram,
        )

    in_parts(part, X.shape[0], 100)
    return gram


def _dense_row_gram(X: Array, column_weights: Array, center: Array | None) -> Array:
    gram = np.zeros((X.shape[0], X.shape[0]), order="F")
    for block in _scaled_chunks(X, column_weights, center):
        transposed = block.T.flags.f_contiguous
        gram = dsyrk(1.0, block.T if transposed else block, beta=1.0, c=gram, trans=int(transposed), overwrite_c=1)
    return np.triu(gram) + np.triu(gram, 1).T


def _scaled_chunks(X: Array, column_weights: Array, center: Array | None) -> Iterator[Array]:
    """``(X - c) diag(sqrt(column_weights))`` in chunks of columns; X itself where nothing is to be done."""
    plain = bool(np.all(column_weights == 1.0))
    if plain and center is None:
        yield X
        return
    for part, block in centred_chunks(X, np.zeros(X.shape[1]) if center is None else center):
        yield block if plain else block * np.sqrt(column_weights[part])


def core_factor(gram: Any, root: Array) -> Any:
    """The Cholesky factor of ``I + D^(1/2) K D^(1/2)``, ``root`` the diagonal of ``D^(1/2)``."""
    if is_device(gram):
        there = gram.arrays
        scale = there.put(root)
        unit = there.xp.eye(root.size, dtype=scale.dtype, device=there.device)
        return robust_cholesky(scale[:, None] * gram.array * scale[None, :] + unit)
    core = gram * root
    core *= root[:, None]
    core[np.diag_indices(root.size)] += 1.0
    return robust_cholesky(core)


def inverse_of(factor: Any) -> Any:
    """``(R^T R)^-1`` of an upper Cholesky factor."""
    if is_foreign(factor):
        there = _arrays.Arrays(factor)
        return _arrays.cholesky_solve(factor, there.xp.eye(factor.shape[0], dtype=factor.dtype, device=there.device))
    inverse, failed = dpotri(factor)
    return np.triu(inverse) + np.triu(inverse, 1).T if failed == 0 else np.full_like(factor, np.nan)


def robust_cholesky(matrix: Any) -> Any:
    """Upper Cholesky factor of a positive semidefinite matrix given by its upper triangle.

    A matrix that is singular to rounding is shifted until it is not. One that overflowed has a factor without numbers: what
    is solved with it is not a number either, which no solver takes for a step and no certificate for a proof.
    """
    if is_foreign(matrix):
        return _robust_device_cholesky(matrix)
    shift, diagonal = 0.0, np.diag_indices(matrix.shape[0])
    while True:
        try:
            return cholesky(matrix, check_finite=False)
        except LinAlgError:
            before, shift = shift, max(10.0 * shift, 8.0 * UNIT * float(np.trace(matrix)), UNIT)
            if not np.isfinite(shift):
                return np.full_like(matrix, np.nan)
            matrix = matrix.copy() if before == 0.0 else matrix
            matrix[diagonal] += shift - before


def _robust_device_cholesky(matrix: Any) -> Any:
    xp, trace, shift = _arrays.namespace(matrix), float(_arrays.namespace(matrix).linalg.trace(matrix)), 0.0
    unit = xp.eye(matrix.shape[0], dtype=matrix.dtype, device=_arrays.Arrays(matrix).device)
    while np.isfinite(trace) and np.isfinite(shift):
        try:
            return _arrays.cholesky(matrix + shift * unit if shift else matrix)
        except LinAlgError:
            shift = max(10.0 * shift, 8.0 * UNIT * trace, UNIT)
    return xp.full_like(matrix, np.nan)


def curvature_product(X: Matrix, weights: Array) -> Callable[[Array], tuple[Array, Array]]:
    """The map from ``v`` to ``X v`` and ``X^T diag(weights) X v``, reading X from memory once."""
    n_rows = X.shape[0]
    if is_device(X):
        return lambda v: _device_curvature(X, weights, v)
    size = X.size if isinstance(X, np.ndarray) else X.nnz
    height = _chunk_height(X.shape[1]) if isinstance(X, np.ndarray) else n_rows

    def product(v: Array) -> tuple[Array, Array]:
        forward = np.empty(n_rows)

        def part(start: int, stop: int) -> Array:
            total = np.zeros(X.shape[1])
            for k in range(start, stop, height):
                rows = row_block(X, k, min(k + height, stop))
                forward[k : k + rows.shape[0]] = rows @ v
                total += rows.T @ (weights[k : k + rows.shape[0]] * forward[k : k + rows.shape[0]])
            return total

        return forward, _total(in_parts(part, n_rows, 1 + n_rows * 50_000 // max(size, 1)))

    return product


def _device_curvature(X: DeviceMatrix, weights: Array, v: Array) -> tuple[Array, Array]:
    forward = X @ v
    return forward, X.T @ (weights * forward)


def row_block(X: Matrix, start: int, stop: int) -> Matrix:
    """Consecutive rows, without copying their values."""
    if not isinstance(X, sp.csr_array):
        return X[start:stop]
    low, high = X.indptr[start], X.indptr[stop]
    edges = X.indptr[start : stop + 1] - low
    return sp.csr_array((X.data[low:high], X.indices[low:high], edges), shape=(stop - start, X.shape[1]))


def _chunk_height(n_columns: int) -> int:
    return max(64, CHUNK_BYTES // (8 * n_columns))


def _total(parts: list[Array]) -> Array:
    for other in parts[1:]:
        parts[0] += other
    return parts[0]
