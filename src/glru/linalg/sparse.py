"""Sparse matrices: rows in compressed form (CSR), and their columns (CSC) once somebody asks for these."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from glru.linalg.arrays import CALL, HOST, SMALL, Array, Arrays, gammas, run_in_parts, total
from glru.linalg.matrix import DenseMatrix, Matrix


@final
class SparseMatrix(Matrix):
    """A CSR array in canonical format: sorted, without duplicates. ``k`` in rounding errors counts stored entries."""

    data: sp.csr_array

    stores_zeros = False

    @cached_property
    def by_column(self) -> sp.csc_array:
        """The columns in compressed form."""
        return sp.csc_array(self.data)

    @property
    def n_stored(self) -> int:
        return int(self.data.nnz)

    @property
    def arrays(self) -> Arrays:
        return HOST

    @property
    def layout(self) -> str:
        return " (sparse)"

    @property
    def parts(self) -> dict[str, NDArray[Any]]:
        shape = np.array(self.data.shape, dtype=np.int64)
        return {"data": self.data.data, "indices": self.data.indices, "indptr": self.data.indptr, "shape": shape}

    @property
    def product_cost(self) -> float:
        return CALL + 4.0 * self.n_stored

    @property
    def gram_cost(self) -> float:
        n_rows, n_columns = self.shape
        if n_rows < n_columns:
            # A product per pair of entries in a column, five times as many as if all columns had equally many.
            return CALL + 15.0 * float(self.n_stored) ** 2 / n_columns + 1.0 * n_rows**2
        return CALL + 1.5 * float(np.square(np.diff(self.data.indptr), dtype=np.float64).sum()) + 1.0 * n_columns**2

    @property
    def is_thin(self) -> bool:
        return self.data.nnz**2 < 0.1 * self.data.shape[0] ** 2 * self.data.shape[1] ** 2

    def chunk_height(self, times: int = 1) -> int:
        return max(1, 8 * SMALL * self.data.shape[0] // max(self.data.nnz, 1))

    def _product(self, other: Any) -> Any:
        return self.data @ other

    def _transposed_product(self, other: Any) -> Any:
        return self._transpose @ other

    @cached_property
    def _transpose(self) -> sp.csc_array:
        """The arrays of the transposed matrix: the same numbers, read as columns."""
        return self.data.T

    def absolute_product(self, v: Array) -> Array:
        return abs(self) @ v

    def _column_gram(self, weights: Array) -> Array:
        n_rows, n_columns = self.data.shape
        if n_columns == 0:
            return np.zeros((0, 0))
        from glru.linalg import kernels

        def part(start: int, stop: int) -> Array:
            gram = np.zeros((n_columns, n_columns))
            kernels.csr_weighted_gram(*self._rows, weights, start, stop, gram)
            return gram

        return total(run_in_parts(part, n_rows, 1 + 10 * n_columns))

    def _row_gram(self, column_weights: Array, center: Array | None) -> DenseMatrix:
        from glru.linalg import kernels

        n_rows, columns = self.data.shape[0], self.by_column
        gram = np.zeros((n_rows, n_rows))
        both = (*self._rows, columns.indptr, columns.indices, columns.data)
        run_in_parts(lambda start, stop: kernels.csr_row_gram(*both, column_weights, start, stop, gram), n_rows, 100)
        return DenseMatrix(gram)

    def cross_gram(self, other: Matrix, column_weights: Array) -> DenseMatrix:
        scaled = self.scale_columns(column_weights)
        if isinstance(other, SparseMatrix):
            return DenseMatrix((scaled.data @ other.data.T).toarray())
        return DenseMatrix(scaled @ other.dense().T)

    def curvature_product(self, weights: Array) -> Callable[[Array], tuple[Array, Array]]:
        n_rows = self.data.shape[0]

        def product(v: Array) -> tuple[Array, Array]:
            forward = np.empty(n_rows)

            def part(start: int, stop: int) -> Array:
                rows = self if stop - start == n_rows else self[start:stop]
                forward[start:stop] = rows @ v
                return rows.T @ (weights[start:stop] * forward[start:stop])

            return forward, total(run_in_parts(part, n_rows, 1 + n_rows * 50_000 // max(self.data.nnz, 1)))

        return product

    def quadratic_forms(self, symmetric: Array) -> Array:
        from glru.linalg import kernels

        out = np.empty(self.data.shape[0])
        run_in_parts(
            lambda start, stop: kernels.csr_quadratic_forms(*self._rows, symmetric, start, stop, out), out.size, 10_000
        )
        return out

    def dual_pass(self, *state: Any) -> None:
        from glru.linalg import kernels

        indptr, indices, data = self._rows
        unsigned = indices.view(np.uint32 if indices.dtype.itemsize == 4 else np.uint64)
        kernels.dual_pass_sparse(indptr, unsigned, data, *state)

    def _squared_row_norms(self, column_weights: Array | None) -> Array:
        return self._squares @ (np.ones(self.data.shape[1]) if column_weights is None else column_weights)

    def squared_column_norms(self, weights: Array) -> Array:
        return self._squares.T @ weights

    @property
    def _rows(self) -> tuple[NDArray[Any], NDArray[Any], Array]:
        return self.data.indptr, self.data.indices, self.data.data

    @property
    def _squares(self) -> sp.csr_array:
        return self._with_values(np.square(self.data.data))

    def _with_values(self, values: Array) -> sp.csr_array:
        return sp.csr_array((values, self.data.indices, self.data.indptr), shape=self.data.shape)

    def depths(self, extra: int) -> Array:
        return gammas(np.diff(self.data.indptr) + extra)

    def filled_columns(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        stored = np.repeat(rows, np.diff(self.data.indptr)) & (self.data.data != 0.0)
        return np.bincount(self.data.indices[stored], minlength=self.data.shape[1]) > 0

    def column_counts(self) -> NDArray[np.intp]:
        return np.bincount(self.data.indices[self.data.data != 0.0], minlength=self.data.shape[1])

    def find_infinite(self) -> tuple[int, int, float, int] | None:
        bad = np.flatnonzero(~np.isfinite(self.data.data))
        if not bad.size:
            return None
        first = int(bad[0])
        row = int(np.searchsorted(self.data.indptr, first, side="right")) - 1
        return row, int(self.data.indices[first]), float(self.data.data[first]), bad.size

    def nonzeros(self) -> Iterator[tuple[NDArray[Any], Array]]:
        indptr, indices, data = self._rows
        for k in range(self.data.shape[0]):
            mine = slice(indptr[k], indptr[k + 1])
            there = data[mine] != 0.0
            columns, values = indices[mine][there], data[mine][there]
            order = np.argsort(columns)
            yield columns[order], values[order]

    def __abs__(self) -> "SparseMatrix":
        return SparseMatrix(self._with_values(np.abs(self.data.data)))

    def __neg__(self) -> "SparseMatrix":
        return SparseMatrix(self._with_values(-self.data.data))

    def positive_part(self) -> "SparseMatrix":
        return SparseMatrix(self._with_values(np.maximum(self.data.data, 0.0)))

    def scale_columns(self, scales: Array) -> "SparseMatrix":
        return SparseMatrix(self._with_values(self.data.data * scales[self.data.indices]))

    def __getitem__(self, key: Any) -> "SparseMatrix":
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        found = self
        if not (isinstance(rows, slice) and rows == slice(None)):
            found = found._select_rows(rows)
        if not (isinstance(columns, slice) and columns == slice(None)):
            found = SparseMatrix(sp.csr_array(found.by_column[:, columns]))
        return found

    def _select_rows(self, rows: Any) -> "SparseMatrix":
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            return SparseMatrix(self.data[rows])
        start, stop, _ = rows.indices(self.data.shape[0])
        stop = max(start, stop)
        low, high = self.data.indptr[start], self.data.indptr[stop]
        edges = self.data.indptr[start : stop + 1] - low
        parts = self.data.data[low:high], self.data.indices[low:high], edges
        return SparseMatrix(sp.csr_array(parts, shape=(stop - start, self.data.shape[1])))

    def dense(self, columns: NDArray[np.intp] | None = None) -> Array:
        if columns is None:
            return self.data.toarray()
        return self.by_column[:, columns].toarray() if columns.size else np.zeros((self.data.shape[0], 0))

    def to_csc(self, columns: NDArray[np.intp]) -> sp.csc_array:
        return self.by_column[:, columns]

    def copy(self) -> "SparseMatrix":
        return SparseMatrix(self.data.copy())

    def convert(self, other: Matrix) -> "SparseMatrix":
        return other if isinstance(other, SparseMatrix) else SparseMatrix(sp.csr_array(other.dense()))

    def concatenate(self, blocks: Sequence[Matrix], axis: int) -> "SparseMatrix":
        stack = sp.hstack if axis else sp.vstack
        return SparseMatrix(sp.csr_array(stack([self.convert(block).data for block in blocks], format="csr")))

    def replace_columns(self, columns: NDArray[np.intp], values: Array) -> "SparseMatrix":
        edited = self.data.tolil()
        edited[:, columns] = values
        return SparseMatrix(sp.csr_array(edited))
