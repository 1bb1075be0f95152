"""Arrays of other namespaces (PyTorch, CuPy, ...): what the array API standard lacks, and matrices that stay where they are.

Vectors with one number a row or a column live on the host, in NumPy. Matrices stay on their device, and so does every
product with them: :class:`DeviceMatrix` takes host vectors and returns host vectors. Batches of models are matrices, too;
code for them is written once against :class:`Arrays`, whose NumPy form does nothing but call NumPy.
"""

from functools import cached_property
from typing import Any, TypeGuard, final

import numpy as np
import scipy.sparse as sp
from numpy.linalg import LinAlgError
from numpy.typing import NDArray
from scipy.linalg import cho_solve

SPACING, SMALLEST = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).smallest_subnormal)

Entries = tuple[NDArray[np.intp], NDArray[np.intp]]
Host = NDArray[np.float64]


def is_foreign(X: object) -> bool:
    """Whether an object is an array of a namespace other than NumPy's."""
    if isinstance(X, (np.ndarray, np.generic)) or sp.issparse(X):
        return False
    return hasattr(X, "__array_namespace__") or type(X).__module__.partition(".")[0] in ("torch", "cupy")


def namespace(*arrays: Any) -> Any:
    """The namespace that some arrays have in common: NumPy, or that of the first which is not NumPy's."""
    for array in arrays:
        if is_foreign(array):
            return _compat().array_namespace(array)
    return np


def home(array: Any) -> Any:
    """An array as NumPy's, on the host; anything that is not foreign as it is."""
    if not is_foreign(array):
        return array
    if type(array).__module__.partition(".")[0] == "torch":
        return array.detach().cpu().numpy()
    compat = _compat()
    if type(array).__module__.partition(".")[0] == "cupy":
        return compat.to_device(array, "cpu")
    return np.asarray(compat.to_device(array, _host_device(array)))


def _host_device(array: Any) -> Any:
    devices = namespace(array).__array_namespace_info__().devices()
    return next((device for device in devices if device is not None and "cpu" in str(device).lower()), devices[0])


def _compat() -> Any:
    try:
        import array_api_compat
    except ImportError:
        raise ImportError(
            "arrays of PyTorch, CuPy and other namespaces need the package array-api-compat; "
            'install glru with "pip install glru[arrays]", or pass NumPy arrays.'
        ) from None
    return array_api_compat


@final
class Arrays:
    """Operations on matrices in one namespace and on one device; of NumPy if no array is given."""

    def __init__(self, like: Any = None) -> None:
        self.xp = namespace(like)
        self.foreign = like is not None and is_foreign(like)
        self.device = _compat().device(like) if self.foreign else None

    def put(self, array: Any) -> Any:
        """A host array in this namespace, on this device."""
        if not self.foreign or is_foreign(array):
            return array
        # PyTorch warns of NumPy arrays that must not be written to; a copy may be.
        return self.xp.asarray(np.array(array), device=self.device)

    def zeroed(self, matrix: Any, entries: Entries) -> Any:
        """A matrix with some entries, at most one a column, set to zero; in place where that can be."""
        if not self.foreign:
            matrix[entries] = 0.0
            return matrix
        return self.xp.where(self._marks(matrix, entries), 0.0, matrix)

    def added(self, matrix: Any, values: Host, entries: Entries) -> Any:
        """A copy of a matrix with values added to some entries, at most one a column."""
        if not self.foreign:
            matrix = matrix.copy()
            matrix[entries] += values
            return matrix
        spread = np.zeros(matrix.shape[1])
        spread[entries[1]] = values
        return matrix + self.xp.where(self._marks(matrix, entries), self.put(spread)[None, :], 0.0)

    def placed(self, matrix: Any, columns: Any, places: NDArray[np.intp]) -> Any:
        """A matrix with some columns replaced; in place where that can be."""
        if not self.foreign:
            matrix[:, places] = columns
            return matrix
        order = np.zeros(matrix.shape[1], dtype=np.int64)
        order[places] = np.arange(places.size)
        mark = np.zeros(matrix.shape[1], dtype=bool)
        mark[places] = True
        return self.xp.where(self.put(mark)[None, :], self.take(columns, order), matrix)

    def without_rows(self, matrix: Any, rows: NDArray[np.bool_]) -> Any:
        """A matrix with some rows set to zero; in place where that can be."""
        if not self.foreign:
            matrix[rows] = 0.0
            return matrix
        return self.xp.where(self.put(rows)[:, None], 0.0, matrix)

    def entries(self, matrix: Any, entries: Entries) -> Host:
        """One entry of every column, as a host vector."""
        if not self.foreign:
            return matrix[entries]
        return home(self.xp.sum(self.xp.where(self._marks(matrix, entries), matrix, 0.0), axis=0))

    def _marks(self, matrix: Any, entries: Entries) -> Any:
        rows, columns = entries
        where = np.full(matrix.shape[1], -1)
        where[columns] = rows
        return self.xp.arange(matrix.shape[0], device=self.device)[:, None] == self.put(where)[None, :]

    def units(self, size: int, places: NDArray[np.intp]) -> Any:
        """Unit vectors as columns."""
        if not self.foreign:
            units = np.zeros((size, places.size))
            units[places, np.arange(places.size)] = 1.0
            return units
        marks = self.xp.arange(size, device=self.device)[:, None] == self.put(places)[None, :]
        return self.xp.astype(marks, self.xp.float64)

    def take(self, matrix: Any, columns: NDArray[Any]) -> Any:
        """Some columns, by number or by mask."""
        if not self.foreign:
            return matrix[:, columns]
        places = np.flatnonzero(columns) if columns.dtype == bool else columns
        return self.xp.take(matrix, self.put(places), axis=1)

    def inner(self, first: Any, second: Any) -> Host:
        """The inner products of the columns of two matrices, as a host vector."""
        if not self.foreign:
            return np.einsum("ij,ij->j", first, second)
        return home(self.xp.sum(first * second, axis=0))

    def absolute(self, matrix: Any) -> Any:
        """Absolute values, in place where that can be."""
        return self.xp.abs(matrix) if self.foreign else np.abs(matrix, out=matrix)

    def stacked(self, matrix: Any, row: Any) -> Any:
        """A matrix with one row more."""
        return self.xp.concat([matrix, row[None, :]], axis=0) if self.foreign else np.vstack([matrix, row])

    def size(self, matrix: Any) -> float:
        """The largest absolute value."""
        if not self.foreign:
            return float(np.abs(matrix).max(initial=0.0))
        return float(self.xp.max(self.xp.abs(matrix)))

    def largest_of(self, matrix: Any, used: NDArray[np.bool_]) -> Host:
        """The largest entry of every column over some rows of a non-negative matrix, as a host vector."""
        if used.all():
            return home(self.xp.max(matrix, axis=0))
        if not self.foreign:
            return matrix[used].max(axis=0)
        return home(self.xp.max(self.xp.where(self.put(used)[:, None], matrix, 0.0), axis=0))


NUMPY = Arrays()


@final
class DeviceMatrix:
    """A dense float64 matrix of another namespace, which meets host vectors and matrices in products.

    A product with a NumPy array is computed where the matrix lives and returned as NumPy's; a product with an array of the
    matrix's own namespace stays there.
    """

    __array_ufunc__ = None
    ndim = 2

    def __init__(self, array: Any) -> None:
        self.array = array

    @cached_property
    def arrays(self) -> Arrays:
        """The operations of its namespace."""
        return Arrays(self.array)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return int(self.array.shape[0]), int(self.array.shape[1])

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.shape[0] * self.shape[1]

    @property
    def T(self) -> "DeviceMatrix":
        """The transpose."""
        return DeviceMatrix(self.arrays.xp.matrix_transpose(self.array))

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, DeviceMatrix):
            return DeviceMatrix(self.array @ other.array)
        product = self.array @ self.arrays.put(other)
        return product if is_foreign(other) else home(product)

    def __rmatmul__(self, other: Any) -> Any:
        product = self.arrays.put(other) @ self.array
        return product if is_foreign(other) else home(product)

    def __getitem__(self, key: Any) -> "DeviceMatrix":
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        return DeviceMatrix(self._taken(self._taken(self.array, rows, 0), columns, 1))

    def _taken(self, array: Any, key: Any, axis: int) -> Any:
        if isinstance(key, slice):
            return array if key == slice(None) else array[key, :] if axis == 0 else array[:, key]
        places = np.flatnonzero(key) if np.asarray(key).dtype == bool else np.asarray(key, dtype=np.int64)
        return self.arrays.xp.take(array, self.arrays.put(places), axis=axis)

    def __neg__(self) -> "DeviceMatrix":
        return DeviceMatrix(-self.array)

    def __abs__(self) -> "DeviceMatrix":
        return DeviceMatrix(self.arrays.xp.abs(self.array))

    def __repr__(self) -> str:
        return f"DeviceMatrix({self.shape[0]} x {self.shape[1]}, {self.arrays.xp.__name__}, {self.arrays.device})"


def is_device(X: object) -> TypeGuard[DeviceMatrix]:
    """Whether a matrix is a :class:`DeviceMatrix`."""
    return isinstance(X, DeviceMatrix)


def placed(X: Any, like: Any) -> Any:
    """A host matrix where another matrix lives; a sparse one becomes dense on a device."""
    if not is_device(like) or is_device(X):
        return X
    return DeviceMatrix(like.arrays.put(X if isinstance(X, np.ndarray) else X.toarray()))


def raw(X: Any) -> Any:
    """The array of a matrix, in whatever namespace."""
    return X.array if isinstance(X, DeviceMatrix) else X


def arrays_of(X: Any) -> Arrays:
    """The operations for dense matrices made from a matrix: of its namespace, NumPy's for sparse data."""
    return X.arrays if isinstance(X, DeviceMatrix) else NUMPY


def same_arrays(matrix: Any) -> Arrays:
    """The operations of a matrix's own namespace."""
    return Arrays(matrix) if is_foreign(matrix) else NUMPY


def returned(values: Any, like: Any) -> Any:
    """Host values where another array lives; names of classes and masked values, which only NumPy has, stay on the host."""
    stays = values.dtype.kind not in "fiub" or isinstance(values, np.ma.MaskedArray)
    return values if stays else same_arrays(like).put(values)


def outward(array: Any, end: float) -> Any:
    """At least one float64 number further in the direction of an end, entry by entry."""
    xp = namespace(array)
    # Neighbours are at most SPACING times a number apart, or the smallest number where that underflows.
    step = xp.abs(array)
    step *= SPACING
    step += SMALLEST
    return array + step if end > 0.0 else array - step


def cholesky(matrix: Any) -> Any:
    """Upper Cholesky factor of a foreign matrix; ``LinAlgError`` where it is not positive definite."""
    xp = namespace(matrix)
    try:
        # Libraries form the lower factor without a copy; the upper one is its transpose.
        lower = xp.linalg.cholesky(matrix)
    except (LinAlgError, RuntimeError) as error:
        raise LinAlgError(str(error)) from None
    if not bool(xp.isfinite(xp.sum(lower))):
        raise LinAlgError("the matrix is not positive definite")
    return xp.matrix_transpose(lower)


def solve_upper(factor: Any, right: Any) -> Any:
    """``R^-1`` times a foreign matrix, ``R`` upper triangular."""
    return _solve_triangular(factor, right, False)


def _solve_triangular(factor: Any, right: Any, lower: bool) -> Any:
    library = type(factor).__module__.partition(".")[0]
    if 0 in right.shape:
        return right
    if library == "torch":
        import torch

        return torch.linalg.solve_triangular(factor, right, upper=not lower)
    if library == "cupy":
        from cupyx.scipy.linalg import solve_triangular

        return solve_triangular(factor, right, lower=lower)
    return _substituted(factor, right, lower)


def _substituted(factor: Any, right: Any, lower: bool) -> Any:
    """Substitution row by row, for namespaces without a triangular solve."""
    xp, size = namespace(factor), factor.shape[0]
    solved = xp.zeros_like(right)
    for k in range(size) if lower else range(size - 1, -1, -1):
        known = factor[k : k + 1, :] @ solved
        solved[k, :] = (right[k, :] - known[0, :]) / factor[k, k]
    return solved


def cholesky_solve(factor: Any, right: Any) -> Any:
    """``(R^T R)^-1`` times a vector or a matrix; a host array comes back to the host."""
    if not is_foreign(factor):
        return cho_solve((factor, False), right, check_finite=False)
    arrays = Arrays(factor)
    matrix = arrays.put(right)
    columns = matrix if matrix.ndim == 2 else matrix[:, None]
    half = _solve_triangular(arrays.xp.matrix_transpose(factor), columns, True)
    solved = _solve_triangular(factor, half, False)
    solved = solved if matrix.ndim == 2 else solved[:, 0]
    return solved if is_foreign(right) else home(solved)
