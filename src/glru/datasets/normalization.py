"""Normalisation of columns as in the paper's Appendix E.3."""

from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from glru import _inputs
from glru._arrays import home
from glru._numerics import Array, Matrix

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
        X = _as_float(X)
        n_rows, n_columns = X.shape
        if strategy == "none":
            return cls(strategy, np.arange(n_columns), np.zeros(n_columns), np.ones(n_columns))
        kept = np.flatnonzero(_largest(X) != -_largest(-X))
        if kept.size == 0:
            raise ValueError(f"at least one column must have more than one value; all {n_columns} are constant.")
        X = _columns(X, kept)
        if strategy == "dense":
            X = _dense(X)
            shift, scale = X.mean(axis=0), X.std(axis=0)
        else:
            shift, scale = np.zeros(kept.size), _norms(X) / np.sqrt(n_rows)
        bad = np.flatnonzero(~((scale > 0.0) & np.isfinite(scale)))
        if bad.size:
            raise ValueError(
                f"the values of column {kept[bad[0]]} are too small or too large to be normalised in float64 (its "
                f"scale is {scale[bad[0]]}). Change its unit, or use the strategy 'none'."
            )
        return cls(strategy, kept, shift, scale)

    def apply(self, X: Any) -> Matrix:
        """The normalised columns of a matrix."""
        X = _as_float(X)
        if self.strategy == "none":
            return X
        X = _columns(X, self.kept)
        if self.strategy == "dense":
            return (_dense(X) - self.shift) / self.scale
        return X / self.scale if isinstance(X, np.ndarray) else sp.csr_array(X.multiply(1.0 / self.scale))


def normalize(X: Any, strategy: Strategy) -> Matrix:
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
    >>> import glru
    >>> glru.datasets.normalize([[1.0, 5.0], [3.0, 5.0]], "dense")
    array([[-1.],
           [ 1.]])
    """
    return Normalization.fit(X, strategy).apply(X)


def _as_float(X: Any) -> Matrix:
    matrix, _ = _inputs.converted(home(X))
    return matrix


def _columns(X: Matrix, kept: NDArray[np.intp]) -> Matrix:
    if kept.size == X.shape[1]:
        return X
    return X[:, kept] if isinstance(X, np.ndarray) else sp.csr_array(sp.csc_array(X)[:, kept])


def _largest(X: Matrix) -> Array:
    return X.max(axis=0) if isinstance(X, np.ndarray) else sp.csc_array(X).max(axis=0).toarray().ravel()


def _norms(X: Matrix) -> Array:
    """Column norms, of values divided by their largest first so that no square overflows or underflows."""
    largest = np.maximum(_largest(X), _largest(-X))
    if isinstance(X, np.ndarray):
        return largest * np.linalg.norm(X / largest, axis=0)
    unit = X.multiply(1.0 / largest)
    return largest * np.sqrt(unit.multiply(unit).sum(axis=0))


def _dense(X: Matrix) -> Array:
    if isinstance(X, np.ndarray):
        return X
    size = 8 * X.shape[0] * X.shape[1]
    if size > LARGEST:
        raise ValueError(
            f"the strategy 'dense' would fill {X.shape[0]} x {X.shape[1]} sparse data up to {size / 2**30:.0f} GiB. "
            "Use 'sparse'."
        )
    return X.toarray()
