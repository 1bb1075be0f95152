"""Normalisation of columns as in the paper's Appendix E.3."""

from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru.linalg import Array, Matrix, RawMatrix, to_dense, to_host

Strategy = Literal["dense", "sparse", "none"]
STRATEGIES = ("dense", "sparse", "none")

LARGEST = 16 << 30
"""Bytes of the largest dense array that is made of sparse data."""


@final
@dataclass(frozen=True, eq=False)
class Normalization:
    """What is done to every column: learnt from some rows, applied to any.

    Attributes
    ----------
    strategy : {"dense", "sparse", "none"}
        How the columns are normalised.
    kept : array of int
        The columns that have more than one value; the others are left out (all are kept by "none").
    shift, scale : array of shape (n_kept,)
        A value ``z`` becomes ``(z - shift) / scale``.
    """

    strategy: Strategy
    kept: NDArray[np.intp]
    shift: Array
    scale: Array

    @classmethod
    def fit(cls, X: Any, strategy: Strategy) -> "Normalization":
        """The normalisation of a matrix's own columns."""
        if strategy not in STRATEGIES:
            raise ValueError(f"strategy must be 'dense', 'sparse' or 'none'; got {strategy!r}.")
        matrix = _as_float(X)
        n_rows, n_columns = matrix.shape
        if strategy == "none":
            return cls(strategy, np.arange(n_columns), np.zeros(n_columns), np.ones(n_columns))
        highest, lowest = _maxima(matrix), -_maxima(-matrix)
        kept = np.flatnonzero(highest != lowest)
        if kept.size == 0:
            raise ValueError(f"at least one column must have more than one value; all {n_columns} are constant.")
        matrix = _columns(matrix, kept)
        if strategy == "dense":
            values = _dense(matrix)
            shift, scale = values.mean(axis=0), values.std(axis=0)
        else:
            # Of values divided by the largest first, no square over- or underflows.
            largest = np.maximum(highest, -lowest)[kept]
            squares = matrix.scale_columns(1.0 / largest).squared_column_norms(np.full(n_rows, 1.0 / n_rows))
            shift, scale = np.zeros(kept.size), largest * np.sqrt(squares)
        bad = np.flatnonzero(~((scale > 0.0) & np.isfinite(scale)))
        if bad.size:
            raise ValueError(
                f"the values of column {kept[bad[0]]} are too small or too large to be normalised in float64 (its "
                f"scale is {scale[bad[0]]}). Change its unit, or use the strategy 'none'."
            )
        return cls(strategy, kept, shift, scale)

    def apply(self, X: Any) -> RawMatrix:
        """The normalised columns of a matrix."""
        matrix = _as_float(X)
        if self.strategy == "none":
            return matrix.data
        matrix = _columns(matrix, self.kept)
        if self.strategy == "dense":
            return (_dense(matrix) - self.shift) / self.scale
        return matrix.scale_columns(1.0 / self.scale).data


def normalize(X: Any, strategy: Strategy) -> RawMatrix:
    r"""Normalise the columns of a matrix; columns with a single value are left out.

    ``"dense"``: :math:`x_{ij} = (z_{ij} - E[z_j]) / \sqrt{V[z_j]}`, mean 0 and variance 1.
    ``"sparse"``: :math:`x_{ij} = \sqrt{n}\, z_{ij} / \|z_j\|_2`, which keeps zeros. ``"none"``: nothing.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_rows, n_columns)
        Data.
    strategy : {"dense", "sparse", "none"}
        How.

    Returns
    -------
    array or CSR array of shape (n_rows, n_kept)

    Examples
    --------
    >>> normalize([[1.0, 5.0], [3.0, 5.0]], "dense")
    array([[-1.],
           [ 1.]])
    """
    return Normalization.fit(X, strategy).apply(X)


def _as_float(X: Any) -> Matrix:
    matrix, _ = _inputs.convert_values(to_host(X))
    return matrix


def _columns(matrix: Matrix, kept: NDArray[np.intp]) -> Matrix:
    return matrix if kept.size == matrix.shape[1] else matrix[:, kept]


def _maxima(matrix: Matrix) -> Array:
    """The largest entry of every column."""
    return to_dense(matrix.data.max(axis=0)).ravel()


def _dense(matrix: Matrix) -> Array:
    n_rows, n_columns = matrix.shape
    size = 8 * n_rows * n_columns
    if size > LARGEST and not matrix.stores_zeros:
        raise ValueError(
            f"the strategy 'dense' would fill {n_rows} x {n_columns} sparse data up to {size / 2**30:.0f} GiB. "
            "Use 'sparse'."
        )
    return matrix.dense()
