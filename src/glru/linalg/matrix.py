"""What every kind of matrix can do, each with the rounding that its user may rely on.

``gamma(k)`` is the relative error of a sum of ``k`` rounded products in any order (:func:`glru.linalg.gamma`). A product whose
terms may cancel errs by ``gamma(k)`` times the sum of their absolute values; a sum of non-negative terms by ``gamma(k)`` times
itself. ``k`` is the number of entries of the row or column, or of those stored there where only some are.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from glru.linalg.arrays import (
    CALL,
    HOST,
    SMALL,
    Array,
    Arrays,
    add_product,
    add_work,
    gamma,
    round_to_bits,
    run_in_parts,
    subtracts_exactly,
    total,
)

RawMatrix = NDArray[np.float64] | sp.csr_array
"""How data in memory is stored."""


class Matrix(ABC):
    """A matrix of finite float64 numbers.

    It meets host vectors and host batches (a vector per column) in products and returns such. A product with a batch of the
    matrix's own namespace stays there. What is not abstract here is right for a dense array in any namespace.

    Attributes
    ----------
    data : array
        The numbers as they were given: a NumPy array, a CSR array, or an array of another namespace.
    """

    __array_ufunc__ = None  # NumPy must not take a matrix for a scalar object

    data: Any

    largest: ClassVar[int] = 6000
    """Dense systems in more unknowns than this are not formed where the matrix lives."""

    only_products: ClassVar[bool] = False
    """Whether only products of the whole matrix are quick, and methods that read single rows or columns are out of reach."""

    noise: Array | None = None
    """How far the scores of rows may be off in addition to rounding, where the rows stand for others up to rounding; None: not at all."""

    stores_zeros: ClassVar[bool] = True
    """Whether zeros are stored as other numbers are; if not, what keeps zeros keeps the matrix small."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.data,)

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise TypeError("a matrix is no array: take its data, or dense() for all of its entries")

    @cached_property
    def shared(self) -> dict[str, Any]:
        """What others have computed from the matrix alone, by name."""
        return {}

    # What it is.

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        n_rows, n_columns = self.data.shape
        return int(n_rows), int(n_columns)

    @property
    def n_stored(self) -> int:
        """Number of entries that are stored."""
        return self.shape[0] * self.shape[1]

    @property
    @abstractmethod
    def arrays(self) -> Arrays:
        """Operations on dense batches where the matrix lives."""

    @property
    def layout(self) -> str:
        """How it is stored, in words to put behind its shape."""
        return ""

    @property
    def parts(self) -> dict[str, NDArray[Any]]:
        """The host arrays that hold its numbers and their places, by name; without a name where there is one."""
        return {"": self.dense()}

    @property
    def work(self) -> float:
        """Operations of the largest product in a direct solve."""
        return float(self.n_stored) * min(self.shape)

    @property
    def product_cost(self) -> float:
        """Nanoseconds, roughly and on one core, of a product with the matrix and one with its transpose."""
        return CALL + 1.2 * self.n_stored

    @property
    def gram_cost(self) -> float:
        """Nanoseconds, roughly and on one core, of the smaller Gram matrix."""
        return CALL + (3.0 + 0.035 * min(self.shape)) * self.n_stored

    @property
    def is_thin(self) -> bool:
        """Whether rows have so few entries that quadratic forms go over pairs of them."""
        return False

    def chunk_height(self, times: int = 1) -> int:
        """Rows of a chunk whose temporaries stay in the cache; ``times`` as many where nothing is summed over them."""
        return times * dense_height(self.shape[1])

    def require_host(self, reason: str) -> None:
        """Refuse a matrix that is not in the host's memory; ``reason``: the beginning of the error."""
        if self.only_products:
            raise ValueError(f"{reason}; got X{self.layout}. Give it as a NumPy array.")

    # Products.

    def __matmul__(self, other: Any) -> Any:
        """``X v`` for a vector or a batch; a row errs by ``gamma(k) |x| . |v|``."""
        add_product(self.n_stored, self.shape[0], 1 if other.ndim == 1 else other.shape[1])
        return self._product(other)

    @abstractmethod
    def _product(self, other: Any) -> Any: ...

    @abstractmethod
    def _transposed_product(self, other: Any) -> Any: ...

    @property
    def T(self) -> "Transpose":
        """The transpose, for products: ``X.T @ v`` errs by ``gamma(k) |X|^T |v|``."""
        return Transpose(self)

    @abstractmethod
    def absolute_product(self, v: Array) -> Array:
        """``|X| v`` for ``v >= 0``, of relative error ``gamma(k)``."""

    def column_gram(self, weights: Array) -> Any:
        """Upper triangle of ``X^T diag(weights) X``, ``weights >= 0``; the lower triangle holds anything.

        A dense array where the matrix lives. Entry ``(i, j)`` errs by ``gamma(n_rows + 4)`` times the root of the product of
        the exact entries ``(i, i)`` and ``(j, j)``.
        """
        # Of wide data that is the larger of the two Gram matrices.
        add_work(self.gram_cost * max(1.0, self.shape[1] / max(self.shape[0], 1)))
        return self._column_gram(weights)

    @abstractmethod
    def _column_gram(self, weights: Array) -> Any: ...

    def row_gram(self, column_weights: Array, center: Array | None = None) -> "Matrix":
        """``X diag(column_weights) X^T`` in full, ``column_weights >= 0``, where the matrix lives.

        ``X X^T`` is kept. Entry ``(i, j)`` errs by ``gamma(k + 5)`` times the product of the norms of the rows in
        the metric of the weights. ``center``: :meth:`mean_row`, or part of it, is taken from every row first.
        """
        if column_weights.size and np.all(column_weights == column_weights[0]):
            # Counted the same whether it was kept before or not.
            add_work(float(self.shape[0]) ** 2)
            name = "row_gram" if center is None else "centred_row_gram"
            if name not in self.shared:
                self.shared[name] = self._row_gram(np.ones_like(column_weights), center)
            gram = self.shared[name]
            return type(gram)(float(column_weights[0]) * gram.data)
        add_work(self.gram_cost * max(1.0, self.shape[0] / max(self.shape[1], 1)))
        return self._row_gram(column_weights, center)

    @abstractmethod
    def _row_gram(self, column_weights: Array, center: Array | None) -> "Matrix": ...

    def mean_row(self) -> Array | None:
        """The mean of the rows where taking it from them is cheap; None where the rows are left as they are."""
        return None

    def find_exact_shifts(self) -> Array | None:
        """Numbers near the columns' means whose differences from all entries are float64 numbers; None where no column has one that matters."""
        return None

    def centre_chunks(self, center: Array) -> Iterator[tuple[slice, Array]]:
        """``X - c`` in chunks of columns, for a matrix with a :meth:`mean_row`; every entry is rounded once."""
        yield slice(None), self.dense() - center

    @abstractmethod
    def cross_gram(self, other: "Matrix", column_weights: Array) -> "Matrix":
        """``X diag(column_weights) Y^T`` as a dense matrix where they live; errs as :meth:`row_gram`."""

    @abstractmethod
    def curvature_product(self, weights: Array) -> Callable[[Array], tuple[Array, Array]]:
        """The map from ``v`` to ``X v`` and ``X^T diag(weights) X v``, reading the matrix from memory once."""

    def quadratic_forms(self, symmetric: Array) -> Array:
        """``x_i^T S x_i`` for every row; errs by ``gamma(2 k + 4)`` times the sum of the absolute values of its terms."""
        rows = self.dense()
        return np.einsum("ij,ij->i", rows @ symmetric, rows)

    @abstractmethod
    def dual_pass(self, *state: Any) -> None:
        """One pass of dual coordinate ascent over some rows, in place; see :func:`glru.linalg.kernels.dual_pass_dense`."""

    # Norms and counts.

    def squared_row_norms(self, column_weights: Array | None = None) -> Array:
        """``sum_j c_j x_ij^2`` for every row, of relative error ``gamma(k + 1)``; squares may underflow."""
        if column_weights is not None and column_weights.size and np.all(column_weights == column_weights[0]):
            return float(column_weights[0]) * self._squared_row_norms(None)
        return self._squared_row_norms(column_weights)

    @abstractmethod
    def _squared_row_norms(self, column_weights: Array | None) -> Array: ...

    @abstractmethod
    def squared_column_norms(self, weights: Array) -> Array:
        """``sum_i s_i x_ij^2`` for every column, of relative error ``gamma(k + 1)``; squares may underflow."""

    def depths(self, extra: int) -> Array | float:
        """``gamma`` of the entries in the product of each row with a vector, and of ``extra`` operations more."""
        return gamma(self.shape[1] + extra)

    @abstractmethod
    def filled_columns(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The columns that have a value other than zero in one of the rows."""

    def column_counts(self) -> NDArray[np.intp] | None:
        """In how many rows each column has a value other than zero; None where that is not worth counting."""
        return None

    def find_infinite(self) -> tuple[int, int, float, int] | None:
        """Row, column and value of the first number that is not finite, and how many there are; None if there are none."""
        values = self.dense()
        # A finite sum proves that every entry is finite; only otherwise is it worth looking at each.
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(values.sum()):
                return None
        rows, columns = np.nonzero(~np.isfinite(values))
        if not rows.size:
            return None
        return int(rows[0]), int(columns[0]), float(values[rows[0], columns[0]]), rows.size

    def nonzeros(self) -> Iterator[tuple[NDArray[Any], Array]]:
        """For each row the columns with a value other than zero, in order, and the values."""
        for row in self.dense():
            columns = np.flatnonzero(row)
            yield columns, row[columns]

    # Entry by entry; each is exact or errs by a unit per entry.

    def __abs__(self) -> "Self":
        return type(self)(self.arrays.xp.abs(self.data))

    def __neg__(self) -> "Self":
        return type(self)(-self.data)

    def positive_part(self) -> "Self":
        """``max(X, 0)``."""
        return type(self)(self.arrays.xp.maximum(self.data, 0.0))

    def scale_columns(self, scales: Array) -> "Self":
        """``X diag(scales)``, a copy."""
        return type(self)(self.data * self.arrays.put(scales))

    # Parts, copies and other forms.

    @abstractmethod
    def __getitem__(self, key: Any) -> "Self":
        """Rows ``X[rows]`` or columns ``X[:, columns]``, by slice, number or mask; consecutive rows are not copied."""

    @abstractmethod
    def dense(self, columns: NDArray[np.intp] | None = None) -> Array:
        """All entries, or those of some columns, as a dense array on the host."""

    def block(self, columns: NDArray[np.intp] | None = None) -> Any:
        """All entries, or those of some columns, as a dense array where the matrix lives."""
        return self.dense(columns)

    def to_csc(self, columns: NDArray[np.intp]) -> sp.csc_array:
        """Some columns in compressed form on the host."""
        return sp.csc_array(self.dense(columns))

    def by_row(self) -> "Matrix":
        """The matrix with its rows one after the other in memory."""
        return self

    @abstractmethod
    def copy(self) -> "Self":
        """A matrix that shares no memory with this one."""

    def convert(self, other: "Matrix") -> "Self":
        """Another matrix stored as this one is."""
        return other if isinstance(other, type(self)) else type(self)(self.arrays.put(other.dense()))

    def bring(self, other: "Matrix") -> "Matrix":
        """Another matrix where this one lives, stored as it is or as it has to be there."""
        return other

    def concatenate(self, blocks: Sequence["Matrix"], axis: int) -> "Self":
        """Blocks on top of each other (axis 0) or side by side (axis 1), stored as this matrix is."""
        return type(self)(self.arrays.concatenate([self.convert(block).data for block in blocks], axis))

    def replace_columns(self, columns: NDArray[np.intp], values: Array) -> "Self":
        """A copy with other values in some columns."""
        edited = np.array(self.dense())
        edited[:, columns] = values
        return type(self)(self.arrays.put(edited))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape[0]} rows x {self.shape[1]} columns{self.layout})"


@final
class Transpose:
    """The transpose of a matrix, in products only."""

    __array_ufunc__ = None

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix

    def __matmul__(self, other: Any) -> Any:
        X = self.matrix
        add_product(X.n_stored, X.shape[1], 1 if other.ndim == 1 else other.shape[1])
        return X._transposed_product(other)


def dense_height(n_columns: int) -> int:
    """Rows of a dense chunk: temporaries stay in the cache, and rows of many columns keep BLAS busy."""
    return max(SMALL // max(n_columns, 1) + 1, n_columns)


CHUNK_BYTES = 1 << 20
"""Scaled rows are made in chunks of this size: they stay in the second-level cache."""

FAR_MEAN, SHIFT_BITS = 4.0, (20, 8, 3, 1)
"""A mean above this many standard deviations is subtracted from its column, rounded to one of these numbers of bits."""


@final
class DenseMatrix(Matrix):
    """A NumPy array. No product forms a temporary of its size: rows are scaled in chunks that stay in the cache."""

    data: Array

    @property
    def arrays(self) -> Arrays:
        return HOST

    def _product(self, other: Any) -> Any:
        return self.data @ other

    def _transposed_product(self, other: Any) -> Any:
        return self.data.T @ other

    def absolute_product(self, v: Array) -> Array:
        X = self.data
        if X.size < SMALL:
            return np.abs(X) @ v
        if _is_wide_by_column(X):
            return total([np.abs(X[:, part]) @ v[part] for part in _chunks(X.T)])
        return np.concatenate([np.abs(X[rows]) @ v for rows in _chunks(X)])

    def _column_gram(self, weights: Array) -> Array:
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
            # A product, since sums of few long columns stored by rows take ten times as long.
            mean = np.ones(self.data.shape[0]) @ self.data / max(self.data.shape[0], 1)
            self.shared["mean_row"] = mean if np.all(np.isfinite(mean)) else np.zeros(mean.shape)
        return self.shared["mean_row"]

    def find_exact_shifts(self) -> Array | None:
        with np.errstate(all="ignore"):
            mean = self.mean_row()
            squares = self.squared_column_norms(np.ones(self.data.shape[0])) / max(self.data.shape[0], 1)
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
        X = self.data
        if X.size < SMALL:
            return weights @ np.square(X)
        if _is_wide_by_column(X):
            return np.concatenate([weights @ np.square(X[:, part]) for part in _chunks(X.T)])
        return total([weights[rows] @ np.square(X[rows]) for rows in _chunks(X)])

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
    rows, weights, n_columns = X[start:stop], weights[start:stop], X.shape[1]
    # Of larger weights, products that underflow before they are multiplied could pass for accurate ones afterwards.
    if weights.size and weights[0] < 1e6 and np.all(weights == weights[0]):
        return weights[0] * (rows.T @ rows)
    height, gram, roots = _gram_height(n_columns), np.zeros((n_columns, n_columns)), np.sqrt(weights)[:, None]
    chunk = np.empty((min(height, len(rows)), n_columns))
    for k in range(0, len(rows), height):
        part = np.multiply(rows[k : k + height], roots[k : k + height], out=chunk[: len(rows) - k])
        gram += part.T @ part
    return gram


def _gram_height(n_columns: int) -> int:
    return max(64, CHUNK_BYTES // (8 * max(n_columns, 1)))


def _is_wide_by_column(X: Array) -> bool:
    """Whether X has columns that lie one after the other, and are so short that many of them are a chunk."""
    return X.flags.f_contiguous and not X.flags.c_contiguous and X.shape[0] <= X.shape[1]


def _chunks(X: Array) -> list[slice]:
    """Consecutive rows in chunks of about a megabyte, so that temporaries of their size stay in the cache."""
    height = max(1, SMALL // max(X.shape[1], 1))
    return [slice(start, start + height) for start in range(0, X.shape[0], height)]
