"""Squared norms of rows and columns, and ``|X| v``: what every rounding bound is made of, each from one pass over X."""

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from glru._arrays import DeviceMatrix, home, is_device
from glru._numerics import Array, Matrix
from glru._threads import in_parts

SMALL = 1 << 17
"""Data with fewer entries is left to NumPy and SciPy: compiled loops would not pay for their loading."""


def squared_norms(X: Matrix, weights: Array) -> tuple[Array, Array]:
    """``sum_j x_ij^2`` for every row, and ``sum_i s_i x_ij^2`` for every column."""
    if is_device(X):
        squares = DeviceMatrix(X.array * X.array)
        return home(X.arrays.xp.sum(squares.array, axis=1)), weights @ squares
    if not _compiled(X):
        return _plain_norms(X, weights)
    from glru import _kernels as kernels

    rows, columns = np.empty(X.shape[0]), np.empty(X.shape[1])

    def by_row(start: int, stop: int) -> Array:
        mine = np.zeros(X.shape[1])
        if isinstance(X, np.ndarray):
            kernels.dense_norms(X, weights, start, stop, rows, mine)
        else:
            kernels.csr_norms(X.indptr, X.indices, X.data, weights, start, stop, rows, mine)
        return mine

    def by_column(start: int, stop: int) -> Array:
        mine = np.zeros(X.shape[0])
        kernels.dense_norms_by_column(X, weights, start, stop, mine, columns)
        return mine

    if _has_columns(X):
        return np.sum(in_parts(by_column, X.shape[1], _smallest(X, 1)), axis=0), columns
    return rows, np.sum(in_parts(by_row, X.shape[0], _smallest(X, 0)), axis=0)


def _plain_norms(X: Array | sp.csr_array, weights: Array) -> tuple[Array, Array]:
    if not isinstance(X, np.ndarray):
        squares = sp.csr_array((np.square(X.data), X.indices, X.indptr), shape=X.shape)
        return squares @ np.ones(X.shape[1]), squares.T @ weights
    columns = np.zeros(X.shape[1])
    for rows in _chunks(X):
        columns += weights[rows] @ np.square(X[rows])
    return np.einsum("ij,ij->i", X, X), columns


def absolute_product(X: Matrix, v: Array) -> Array:
    """``|X| v`` for ``v >= 0``."""
    if is_device(X):
        return abs(X) @ v
    if not _compiled(X):
        return _plain_absolute_product(X, v)
    from glru import _kernels as kernels

    out = np.empty(X.shape[0])

    def by_row(start: int, stop: int) -> None:
        if isinstance(X, np.ndarray):
            kernels.dense_absolute_product(X, v, start, stop, out)
        else:
            kernels.csr_absolute_product(X.indptr, X.indices, X.data, v, start, stop, out)

    def by_column(start: int, stop: int) -> Array:
        mine = np.zeros(X.shape[0])
        kernels.dense_absolute_product_by_column(X, v, start, stop, mine)
        return mine

    if _has_columns(X):
        return np.sum(in_parts(by_column, X.shape[1], _smallest(X, 1)), axis=0)
    in_parts(by_row, X.shape[0], _smallest(X, 0))
    return out


def _plain_absolute_product(X: Array | sp.csr_array, v: Array) -> Array:
    if not isinstance(X, np.ndarray):
        return sp.csr_array((np.abs(X.data), X.indices, X.indptr), shape=X.shape) @ v
    out = np.empty(X.shape[0])
    for rows in _chunks(X):
        out[rows] = np.abs(X[rows]) @ v
    return out


def _chunks(X: Array) -> Iterator[slice]:
    """Consecutive rows in chunks of about a megabyte, so that temporaries of their size stay in the cache."""
    height = max(1, SMALL // max(X.shape[1], 1))
    return (slice(start, start + height) for start in range(0, X.shape[0], height))


def _compiled(X: Array | sp.csr_array) -> bool:
    if isinstance(X, np.ndarray):
        return X.size >= SMALL and bool(X.flags.c_contiguous or X.flags.f_contiguous)
    return X.nnz >= SMALL


def _has_columns(X: Array | sp.csr_array) -> bool:
    """Whether dense data is stored column by column."""
    return isinstance(X, np.ndarray) and not X.flags.c_contiguous


def _smallest(X: Array | sp.csr_array, axis: int) -> int:
    """Rows or columns that are worth a thread of their own."""
    size = X.size if isinstance(X, np.ndarray) else X.nnz
    return 1 + SMALL * X.shape[axis] // max(size, 1)
