"""Dense matrices of another namespace (PyTorch, CuPy, ...), which stay on their device, as does every product with them."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.linalg.arrays import Array, Arrays, DeviceArrays, is_foreign, to_host
from glru.linalg.dense import DenseMatrix, dense_height
from glru.linalg.matrix import Matrix
from glru.linalg.rounding import gamma


@final
class DeviceMatrix(Matrix):
    """A dense float64 array of another namespace.

    A product with a NumPy array is computed where the matrix lives and returned as NumPy's; a product with an array of the
    matrix's own namespace stays there. A sum may be taken in any order, which ``gamma`` covers.
    """

    largest = 40_000
    only_products = True

    @cached_property
    def arrays(self) -> Arrays:
        return DeviceArrays(self.data)

    @property
    def n_stored(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def layout(self) -> str:
        return f" on {self.arrays.device}"

    @property
    def buffers(self) -> tuple[NDArray[Any], ...]:
        return (self.dense(),)

    @property
    def members(self) -> dict[str, NDArray[Any]]:
        return {"": self.dense()}

    def chunk_height(self, times: int = 1) -> int:
        return times * dense_height(self.shape[1])

    def __matmul__(self, other: Any) -> Any:
        product = self.data @ self.arrays.put(other)
        return product if is_foreign(other) else to_host(product)

    def _transposed_product(self, other: Any) -> Any:
        product = self.arrays.xp.matrix_transpose(self.data) @ self.arrays.put(other)
        return product if is_foreign(other) else to_host(product)

    def absolute_product(self, v: Array) -> Array:
        return abs(self) @ v

    def column_gram(self, weights: Array) -> Any:
        rows = self.data * self.arrays.put(np.sqrt(weights))[:, None]
        return self.arrays.xp.matrix_transpose(rows) @ rows

    def _row_gram(self, column_weights: Array) -> "DeviceMatrix":
        scaled = self.data * self.arrays.put(np.sqrt(column_weights))[None, :]
        return DeviceMatrix(scaled @ self.arrays.xp.matrix_transpose(scaled))

    def cross_gram(self, other: Matrix, column_weights: Array) -> "DeviceMatrix":
        there = self.placed(other).data
        return DeviceMatrix(self.scale_columns(column_weights).data @ self.arrays.xp.matrix_transpose(there))

    def curvature_product(self, weights: Array) -> Callable[[Array], tuple[Array, Array]]:
        def product(v: Array) -> tuple[Array, Array]:
            forward = self @ v
            return forward, self.T @ (weights * forward)

        return product

    def quadratic_forms(self, symmetric: Array) -> Array:
        return to_host(self.arrays.xp.sum((self.data @ self.arrays.put(symmetric)) * self.data, axis=1))

    def dual_epoch(self, *state: Any) -> None:
        raise NotImplementedError("dual coordinate ascent reads single rows, which is slow on a device")

    def squared_row_norms(self, column_weights: Array | None = None) -> Array:
        squares = self.data * self.data
        if column_weights is None:
            return to_host(self.arrays.xp.sum(squares, axis=1))
        if column_weights.size and np.all(column_weights == column_weights[0]):
            return float(column_weights[0]) * to_host(self.arrays.xp.sum(squares, axis=1))
        return DeviceMatrix(squares) @ column_weights

    def squared_column_norms(self, weights: Array) -> Array:
        return DeviceMatrix(self.data * self.data).T @ weights

    def column_maxima(self) -> Array:
        return to_host(self.arrays.xp.max(self.data, axis=0))

    def column_norms(self) -> Array:
        return DenseMatrix(self.dense()).column_norms()

    def depths(self, extra: int) -> float:
        return gamma(self.shape[1] + extra)

    def filled_columns(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        filled = (self.data != 0.0) & self.arrays.put(rows)[:, None]
        return to_host(self.arrays.xp.any(filled, axis=0)).copy()

    def column_counts(self) -> None:
        return None

    def first_infinite(self) -> tuple[int, int, float, int] | None:
        if bool(self.arrays.xp.all(self.arrays.xp.isfinite(self.data))):
            return None
        return DenseMatrix(self.dense()).first_infinite()

    def nonzeros(self) -> Iterator[tuple[NDArray[Any], Array]]:
        return DenseMatrix(self.dense()).nonzeros()

    def __abs__(self) -> "DeviceMatrix":
        return DeviceMatrix(self.arrays.xp.abs(self.data))

    def __neg__(self) -> "DeviceMatrix":
        return DeviceMatrix(-self.data)

    def positive_part(self) -> "DeviceMatrix":
        return DeviceMatrix(self.arrays.xp.maximum(self.data, 0.0))

    def divide_columns(self, scales: Array) -> "DeviceMatrix":
        return DeviceMatrix(self.data / self.arrays.put(scales))

    def scale_columns(self, scales: Array) -> "DeviceMatrix":
        return DeviceMatrix(self.data * self.arrays.put(scales))

    def __getitem__(self, key: Any) -> "DeviceMatrix":
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        return DeviceMatrix(self._taken(self._taken(self.data, rows, 0), columns, 1))

    def _taken(self, array: Any, key: Any, axis: int) -> Any:
        if isinstance(key, slice):
            return array if key == slice(None) else array[key, :] if axis == 0 else array[:, key]
        places = np.flatnonzero(key) if np.asarray(key).dtype == bool else np.asarray(key, dtype=np.int64)
        return self.arrays.xp.take(array, self.arrays.put(places), axis=axis)

    def dense(self, columns: NDArray[np.intp] | None = None) -> Array:
        return to_host(self.block(columns))

    def block(self, columns: NDArray[np.intp] | None = None) -> Any:
        return self.data if columns is None else self._taken(self.data, columns, 1)

    def copy(self) -> "DeviceMatrix":
        return DeviceMatrix(self.arrays.xp.asarray(self.data, copy=True))

    def stored_alike(self, other: Matrix) -> "DeviceMatrix":
        return other if isinstance(other, DeviceMatrix) else DeviceMatrix(self.arrays.put(other.dense()))

    def placed(self, other: Matrix) -> "DeviceMatrix":
        return self.stored_alike(other)

    def concatenate(self, blocks: Sequence[Matrix], axis: int) -> "DeviceMatrix":
        return DeviceMatrix(self.arrays.xp.concat([self.stored_alike(block).data for block in blocks], axis=axis))

    def spread_rows(self, rows: NDArray[np.intp], n_rows: int) -> "DeviceMatrix":
        places = np.full(n_rows, self.shape[0])
        places[rows] = np.arange(rows.size)
        padded = self.arrays.stacked(self.data, self.arrays.put(np.zeros(self.shape[1])))
        return DeviceMatrix(padded)[places]

    def replace_block(self, columns: NDArray[np.intp], values: Array) -> "DeviceMatrix":
        return self.stored_alike(DenseMatrix(self.dense()).replace_block(columns, values))
