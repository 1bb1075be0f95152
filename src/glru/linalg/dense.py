"""Dense matrices in the host's memory."""

from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from glru.linalg.arrays import HOST, SMALL, Array, Arrays, round_to_bits, subtracts_exactly
from glru.linalg.matrix import Matrix
from glru.linalg.threads import run_in_parts, total

CHUNK_BYTES = 1 << 20
"""Scaled rows are made in chunks of this size: they stay in the second-level cache."""

FAR_MEAN, SHIFT_BITS = 4.0, (20, 8, 3, 1)
"""A mean above this many standard deviations is worth taking from its column, rounded to one of these numbers of bits."""

CACHED = 1 << 15
"""Entries of a panel that stays in the second-level cache while it is made and used."""


@final
class DenseMatrix(Matrix):
    """A NumPy array. No product forms a temporary of its size: rows are scaled in chunks that stay in the cache."""

    data: Array

    @property
    def arrays(self) -> Arrays:
        return HOST

    def __matmul__(self, other: Any) -> Any:
        return self.data @ other

    def _transposed_product(self, other: Any) -> Any:
        return self.data.T @ other

    def absolute_product(self, v: Array) -> Array:
        X = self.data
        if X.size < SMALL:
            return np.abs(X) @ v
        out = np.zeros(X.shape[0])

        def part(start: int, stop: int) -> None:
            for rows, columns, block in _map_panels(np.abs, X, start, stop):
                out[rows] += block @ v[columns]

        run_in_parts(part, X.shape[0], self._smallest)
        return out

    def column_gram(self, weights: Array) -> Array:
        n_rows, n_columns = self.data.shape
        if n_columns == 0:
            return np.zeros((0, 0))
        return total(run_in_parts(lambda start, stop: _gram(self.data, weights, start, stop), n_rows, 20_000))

    def _row_gram(self, column_weights: Array, center: Array | None) -> "DenseMatrix":
        gram = np.zeros((self.data.shape[0], self.data.shape[0]), order="F")
        for block in self._scale_chunks(column_weights, center):
            flat = block.T.flags.f_contiguous
            gram = dsyrk(1.0, block.T if flat else block, beta=1.0, c=gram, trans=int(flat), overwrite_c=1)
        return DenseMatrix(np.triu(gram) + np.triu(gram, 1).T)

    def _scale_chunks(self, column_weights: Array, center: Array | None) -> Iterator[Array]:
        """``(X - c) diag(sqrt(column_weights))`` in chunks of columns; X itself where nothing is to be done."""
        plain = bool(np.all(column_weights == 1.0))
        if plain and center is None:
            yield from [self.data] if column_weights.size else []
            return
        for part, block in self.centre_chunks(np.zeros(self.data.shape[1]) if center is None else center):
            yield block if plain else block * np.sqrt(column_weights[part])

    def mean_row(self) -> Array:
        if "mean_row" not in self.shared:
            mean = self.data.sum(axis=0) / max(self.data.shape[0], 1)
            self.shared["mean_row"] = mean if np.all(np.isfinite(mean)) else np.zeros(mean.shape)
        return self.shared["mean_row"]

    def find_exact_shifts(self) -> Array | None:
        with np.errstate(all="ignore"):
            mean = self.mean_row()
            squares = np.einsum("ij,ij->j", self.data, self.data) / max(self.data.shape[0], 1)
            # The variance is the difference of both.
            far = np.flatnonzero(np.square(mean) * (1.0 + 1.0 / FAR_MEAN**2) > squares)
            shifts = np.zeros(mean.size)
            for bits in SHIFT_BITS:
                if not far.size:
                    break
                tried = round_to_bits(mean[far], bits)
                good = subtracts_exactly(self.data[:, far], tried)
                shifts[far[good]], far = tried[good], far[~good]
        return shifts if shifts.any() else None

    def centre_chunks(self, center: Array) -> Iterator[tuple[slice, Array]]:
        width = max(64, 4 * CHUNK_BYTES // (8 * max(self.data.shape[0], 1)))
        for start in range(0, self.data.shape[1], width):
            part = slice(start, start + width)
            yield part, self.data[:, part] - center[part]

    def cross_gram(self, other: Matrix, column_weights: Array) -> "DenseMatrix":
        # A sparse factor comes first: NumPy does not know it.
        return DenseMatrix((other @ (self.data * column_weights).T).T)

    def curvature_product(self, weights: Array) -> Callable[[Array], tuple[Array, Array]]:
        X, (n_rows, n_columns) = self.data, self.data.shape
        height = _gram_height(n_columns)

        def product(v: Array) -> tuple[Array, Array]:
            forward = np.empty(n_rows)

            def part(start: int, stop: int) -> Array:
                back = np.zeros(n_columns)
                for k in range(start, stop, height):
                    end = min(k + height, stop)
                    forward[k:end] = X[k:end] @ v
                    back += X[k:end].T @ (weights[k:end] * forward[k:end])
                return back

            return forward, total(run_in_parts(part, n_rows, 1 + n_rows * 50_000 // max(X.size, 1)))

        return product

    def dual_pass(self, *state: Any) -> None:
        from glru.linalg import kernels

        kernels.dual_pass_dense(self.data, *state)

    def _squared_row_norms(self, column_weights: Array | None) -> Array:
        X = self.data
        if column_weights is None:
            return np.einsum("ij,ij->i", X, X)
        if X.size < SMALL:
            return np.square(X) @ column_weights
        return np.concatenate([np.square(X[rows]) @ column_weights for rows in _chunks(X)])

    def squared_column_norms(self, weights: Array) -> Array:
        columns = np.zeros(self.data.shape[1])
        for rows in _chunks(self.data):
            columns += weights[rows] @ np.square(self.data[rows])
        return columns

    def squared_norms(self, weights: Array) -> tuple[Array, Array]:
        X = self.data
        if X.size < SMALL:
            return super().squared_norms(weights)
        of_rows, ones = np.zeros(X.shape[0]), np.ones(X.shape[1])

        def part(start: int, stop: int) -> Array:
            of_columns = np.zeros(X.shape[1])
            for rows, columns, block in _map_panels(np.square, X, start, stop):
                of_rows[rows] += block @ ones[columns]
                of_columns[columns] += weights[rows] @ block
            return of_columns

        of_columns = total(run_in_parts(part, X.shape[0], self._smallest))
        return of_rows, of_columns

    @property
    def _smallest(self) -> int:
        """Rows that are worth a thread of their own."""
        return 1 + SMALL * self.data.shape[0] // max(self.data.size, 1)

    def filled_columns(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        filled = np.zeros(self.data.shape[1], dtype=bool)
        for part in _chunks(self.data):
            filled |= (self.data[part] != 0.0)[rows[part]].any(axis=0)
            if filled.all():
                break
        return filled

    def __getitem__(self, key: Any) -> "DenseMatrix":
        found = DenseMatrix(self.data[key])
        if self.noise is not None:
            found.noise = self.noise[key[0] if isinstance(key, tuple) else key]
        return found

    def dense(self, columns: NDArray[np.intp] | None = None) -> Array:
        return self.data if columns is None else self.data[:, columns]

    def by_row(self) -> "DenseMatrix":
        return DenseMatrix(np.ascontiguousarray(self.data))

    def copy(self) -> "DenseMatrix":
        return DenseMatrix(self.data.copy(order="K"))


def _gram(X: Array, weights: Array, start: int, stop: int) -> Array:
    n_columns = X.shape[1]
    height = _gram_height(n_columns)
    gram = np.zeros((n_columns, n_columns), order="F")
    roots = np.sqrt(weights[start:stop])
    chunk = np.empty((min(height, stop - start), n_columns))
    for k in range(start, stop, height):
        rows = chunk[: min(height, stop - k)]
        np.multiply(X[k : k + len(rows)], roots[k - start : k - start + len(rows), None], out=rows)
        gram = dsyrk(1.0, rows.T, beta=1.0, c=gram, overwrite_c=1)
    return gram


def _gram_height(n_columns: int) -> int:
    return max(64, CHUNK_BYTES // (8 * max(n_columns, 1)))


def _map_panels(
    function: Callable[..., Array], X: Array, start: int, stop: int
) -> Iterator[tuple[slice, slice, Array]]:
    """A function of the entries of some rows, in panels that stay in the cache; each overwrites the one before."""
    by_column = X.flags.f_contiguous and not X.flags.c_contiguous
    height = min(stop - start, CACHED // 8 if by_column else max(1, CACHED // max(X.shape[1], 1)))
    width = max(1, CACHED // height) if by_column else X.shape[1]
    buffer = np.empty((height, width), order="F" if by_column else "C")
    for i in range(start, stop, height):
        rows = slice(i, min(i + height, stop))
        for j in range(0, X.shape[1], width):
            columns = slice(j, min(j + width, X.shape[1]))
            yield rows, columns, function(X[rows, columns], out=buffer[: rows.stop - i, : columns.stop - j])


def _chunks(X: Array) -> list[slice]:
    """Consecutive rows in chunks of about a megabyte, so that temporaries of their size stay in the cache."""
    height = max(1, SMALL // max(X.shape[1], 1))
    return [slice(start, start + height) for start in range(0, X.shape[0], height)]
