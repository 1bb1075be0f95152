"""Matrices and what is known about their rounding: dense, sparse and on a device behind one small set of products.

Nothing outside this package asks what kind of matrix it is given: :func:`as_matrix` looks at what the user gave, once.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp

from glru.linalg.arrays import (
    FEW,
    HOST,
    SMALL,
    SMALL_WORK,
    SMALLEST,
    TINY,
    UNIT,
    Array,
    Arrays,
    Entries,
    add_work,
    calm_blas,
    counted,
    floats,
    gamma,
    get_arrays,
    is_foreign,
    length,
    move_like,
    n_threads,
    namespace,
    outward,
    powers_of_two,
    run_in_parts,
    subtracts_exactly,
    to_dense,
    to_host,
    uncounted,
    unify,
    use_threads,
    weighted_norm,
)
from glru.linalg.device import DeviceMatrix
from glru.linalg.matrix import CHUNK_BYTES, DenseMatrix, Matrix, RawMatrix, dense_height
from glru.linalg.sparse import SparseMatrix


def as_matrix(data: Any) -> Matrix:
    """The matrix of float64 data as it is stored: a NumPy array, a sparse array, an array of another namespace.

    Examples
    --------
    >>> import numpy as np
    >>> from glru.linalg import as_matrix
    >>> as_matrix(np.eye(2)).T @ np.array([1.0, 2.0])
    array([1., 2.])
    """
    if isinstance(data, np.ndarray):
        return DenseMatrix(data)
    if isinstance(data, Matrix):
        return data
    if sp.issparse(data):
        return SparseMatrix(data if isinstance(data, sp.csr_array) else sp.csr_array(data))  # type: ignore[call-overload]
    if is_foreign(data):
        return DeviceMatrix(data)
    raise TypeError(f"a matrix must be an array or a sparse array; got {type(data).__name__}.")
