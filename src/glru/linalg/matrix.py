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

from glru.linalg.arrays import SMALL, Array, Arrays, gamma

CALL = 2e4
"""Nanoseconds of a product that has next to nothing to multiply."""

RawMatrix = NDArray[np.float64] | sp.csr_array
"""What data in memory is stored in."""


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
    """How far the scores of rows may be off beside rounding, where the rows stand for others up to rounding; None: not at all."""

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

    @abstractmethod
    def __matmul__(self, other: Any) -> Any:
        """``X v`` for a vector or a batch; a row errs by ``gamma(k) |x| . |v|``."""

    @abstractmethod
    def _transposed_product(self, other: Any) -> Any: ...

    @property
    def T(self) -> "Transpose":
        """The transpose, for products: ``X.T @ v`` errs by ``gamma(k) |X|^T |v|``."""
        return Transpose(self)

    @abstractmethod
    def absolute_product(self, v: Array) -> Array:
        """``|X| v`` for ``v >= 0``, of relative error ``gamma(k)``."""

    @abstractmethod
    def column_gram(self, weights: Array) -> Any:
        """Upper triangle of ``X^T diag(weights) X``, ``weights >= 0``; the lower triangle holds anything.

        A dense array where the matrix lives. Entry ``(i, j)`` errs by ``gamma(n_rows + 4)`` times the root of the product of
        the exact entries ``(i, i)`` and ``(j, j)``.
        """

    def row_gram(self, column_weights: Array, center: Array | None = None) -> "Matrix":
        """``X diag(column_weights) X^T`` in full, ``column_weights >= 0``, where the matrix lives.

        ``X X^T`` is kept. Entry ``(i, j)`` errs by ``gamma(k + 5)`` times the product of the norms of the rows in
        the metric of the weights. ``center``: :meth:`mean_row`, or part of it, is taken from every row first.
        """
        if column_weights.size and np.all(column_weights == column_weights[0]):
            name = "row_gram" if center is None else "centred_row_gram"
            if name not in self.shared:
                self.shared[name] = self._row_gram(np.ones_like(column_weights), center)
            gram = self.shared[name]
            return type(gram)(float(column_weights[0]) * gram.data)
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

    def squared_norms(self, weights: Array) -> tuple[Array, Array]:
        """The squared norms of the rows and the weighted ones of the columns, from one pass where that pays."""
        return self.squared_row_norms(), self.squared_column_norms(weights)

    def column_maxima(self) -> Array:
        """The largest entry of every column; exact."""
        return self.dense().max(axis=0)

    def column_norms(self) -> Array:
        """Euclidean norms of the columns, of values divided by the largest first so that no square over- or underflows."""
        largest = np.maximum(self.column_maxima(), (-self).column_maxima())
        return largest * np.linalg.norm(self.dense() / largest, axis=0)

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

    def divide_columns(self, scales: Array) -> "Self":
        """``X diag(1 / scales)``, a copy."""
        return type(self)(self.data / self.arrays.put(scales))

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
        return self.matrix._transposed_product(other)


def dense_height(n_columns: int) -> int:
    """Rows of a dense chunk: temporaries stay in the cache, and rows of many columns keep BLAS busy."""
    return max(SMALL // max(n_columns, 1) + 1, n_columns)
