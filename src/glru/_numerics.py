"""Float64 facts and the few matrix operations that dense and sparse data do not share."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from glru._arrays import DeviceMatrix, home, is_device

Array = NDArray[np.float64]
Matrix = NDArray[np.float64] | sp.csr_array
"""What data is stored in; functions for it take a :class:`~glru._arrays.DeviceMatrix` as well."""

UNIT = float(np.finfo(np.float64).eps) / 2
"""Unit roundoff of float64."""


TINY = 1e-150
"""Added to norms: squares of numbers below it underflow, and the root of all that is lost so is far smaller."""


def gamma(k: int) -> float:
    """Relative error of a sum of ``k`` rounded products in any order: ``k u / (1 - k u)``."""
    return k * UNIT / (1.0 - k * UNIT)


def is_sparse(X: object) -> bool:
    """Whether ``X`` is a SciPy sparse matrix or array."""
    return bool(sp.issparse(X))


def squared_row_norms(X: Matrix, column_weights: Array | None = None) -> Array:
    """``sum_j c_j x_ij^2`` for every row."""
    if column_weights is not None and column_weights.size and np.all(column_weights == column_weights[0]):
        return float(column_weights[0]) * squared_row_norms(X)
    if isinstance(X, np.ndarray):
        if column_weights is None:
            return np.einsum("ij,ij->i", X, X)
        return np.concatenate([np.square(rows) @ column_weights for rows in _chunks(X)])
    if is_device(X):
        squares = DeviceMatrix(X.array * X.array)
        return home(X.arrays.xp.sum(squares.array, axis=1)) if column_weights is None else squares @ column_weights
    return _squares(X) @ (np.ones(X.shape[1]) if column_weights is None else column_weights)


def _chunks(X: Array) -> Iterator[Array]:
    """Consecutive rows in chunks of about a megabyte, so that temporaries of their size stay in the cache."""
    height = max(1, (1 << 17) // max(X.shape[1], 1))
    return (X[start : start + height] for start in range(0, X.shape[0], height))


def _squares(X: sp.csr_array) -> sp.csr_array:
    return sp.csr_array((np.square(X.data), X.indices, X.indptr), shape=X.shape)


def scaled_columns(X: Matrix, scales: Array) -> Matrix:
    """``X diag(scales)``, a copy."""
    if isinstance(X, np.ndarray):
        return X * scales
    if is_device(X):
        scaled: Any = DeviceMatrix(X.array * X.arrays.put(scales))
        return scaled
    return sp.csr_array((X.data * scales[X.indices], X.indices, X.indptr), shape=X.shape)


def dense_columns(X: Matrix | sp.csc_array, columns: NDArray[np.intp]) -> Array:
    """Some columns as a dense host array."""
    return dense(X[:, columns])


def dense(X: Any) -> Array:
    """A matrix as a dense host array."""
    if is_device(X):
        return home(X.array)
    return X if isinstance(X, np.ndarray) else X.toarray()
