"""Dense matrices of another namespace (PyTorch, CuPy, ...), which stay on their device, as does every product with them."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.linalg.arrays import Array, Arrays, DeviceArrays, is_foreign, to_host
from glru.linalg.matrix import Matrix


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
    def layout(self) -> str:
        return f" on {self.arrays.device}"

    def _product(self, other: Any) -> Any:
        product = self.data @ self.arrays.put(other)
        return product if is_foreign(other) else to_host(product)

    def _transposed_product(self, other: Any) -> Any:
        product = self.arrays.xp.matrix_transpose(self.data) @ self.arrays.put(other)
        return product if is_foreign(other) else to_host(product)

    def absolute_product(self, v: Array) -> Array:
        return abs(self) @ v

    def _column_gram(self, weights: Array) -> Any:
        rows = self.data * self.arrays.put(np.sqrt(weights))[:, None]
        return self.arrays.xp.matrix_transpose(rows) @ rows

    def _row_gram(self, column_weights: Array, center: Array | None) -> "DeviceMatrix":
        scaled = self.data * self.arrays.put(np.sqrt(column_weights))[None, :]
        return DeviceMatrix(scaled @ self.arrays.xp.matrix_transpose(scaled))

    def cross_gram(self, other: Matrix, column_weights: Array) -> "DeviceMatrix":
        there = self.bring(other).data
        return DeviceMatrix(self.scale_columns(column_weights).data @ self.arrays.xp.matrix_transpose(there))

    def curvature_product(self, weights: Array) -> Callable[[Array], tuple[Array, Array]]:
        def product(v: Array) -> tuple[Array, Array]:
            forward = self @ v
            return forward, self.T @ (weights * forward)

        return product

    def dual_pass(self, *state: Any) -> None:
        raise NotImplementedError("dual coordinate ascent reads single rows, which is slow on a device")

    def _squared_row_norms(self, column_weights: Array | None) -> Array:
        squares = self.data * self.data
        if column_weights is None:
            return to_host(self.arrays.xp.sum(squares, axis=1))
        return DeviceMatrix(squares) @ column_weights

    def squared_column_norms(self, weights: Array) -> Array:
        return DeviceMatrix(self.data * self.data).T @ weights

    def filled_columns(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        filled = (self.data != 0.0) & self.arrays.put(rows)[:, None]
        return to_host(self.arrays.xp.any(filled, axis=0)).copy()

    def find_infinite(self) -> tuple[int, int, float, int] | None:
        if bool(self.arrays.xp.all(self.arrays.xp.isfinite(self.data))):
            return None
        return super().find_infinite()

    def __getitem__(self, key: Any) -> "DeviceMatrix":
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        return DeviceMatrix(self._take(self._take(self.data, rows, 0), columns, 1))

    def _take(self, array: Any, key: Any, axis: int) -> Any:
        if isinstance(key, slice):
            # The standard leaves open what ends beyond the last row mean.
            part = slice(*key.indices(array.shape[axis]))
            return array if key == slice(None) else array[part, :] if axis == 0 else array[:, part]
        places = np.flatnonzero(key) if np.asarray(key).dtype == bool else np.asarray(key, dtype=np.int64)
        return self.arrays.xp.take(array, self.arrays.put(places), axis=axis)

    def dense(self, columns: NDArray[np.intp] | None = None) -> Array:
        return to_host(self.block(columns))

    def block(self, columns: NDArray[np.intp] | None = None) -> Any:
        return self.data if columns is None else self._take(self.data, columns, 1)

    def copy(self) -> "DeviceMatrix":
        return DeviceMatrix(self.arrays.xp.asarray(self.data, copy=True))

    def bring(self, other: Matrix) -> "DeviceMatrix":
        return self.convert(other)
