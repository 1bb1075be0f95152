"""Readers of matrices: NPZ and LIBSVM."""

from itertools import pairwise
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from glru._archives import Archive, opened
from glru.datasets.files import Contents, Place
from glru.linalg import RawMatrix, as_matrix

CSR_PARTS = ("data", "indices", "indptr", "shape")
MOST_COLUMNS = 10_000_000
"""Columns of a matrix file, where the number was not given: a damaged index is taken for no more."""


def read_npz(place: Place) -> Contents:
    """A dense ``X`` or the parts of a CSR matrix, and ``y`` where the file has it."""
    try:
        with place.open() as file:
            _refuse_single_array(file, place)
            with opened(file, packed=True) as archive:
                y = archive.read("y") if "y" in archive.names else None
                X = _matrix(archive)
            if y is not None and y.dtype.kind not in "fiubUS":
                raise ValueError(f"y must hold numbers or text; got dtype {y.dtype}.")
    except ValueError as error:
        raise ValueError(f"{place.path} cannot be read: {error}") from None
    return _contents(place, X, y)


def _refuse_single_array(file: IO[bytes], place: Place) -> None:
    if file.read(6) == np.lib.format.MAGIC_PREFIX:
        raise ValueError("it is a single array, not an NPZ file. Save it with numpy.savez(path, X=..., y=...).")


def _matrix(archive: Archive) -> RawMatrix:
    names = archive.names
    if "X" in names:
        X = archive.read("X")
        if X.ndim != 2:
            raise ValueError(f"X must be two-dimensional, rows by columns; got shape {X.shape}.")
        if X.dtype.kind not in "fiub":
            raise ValueError(f"X must hold real numbers; got dtype {X.dtype}.")
        return X.astype(np.float64)
    if not set(names).issuperset(CSR_PARTS):
        raise ValueError(f"it must hold X, or {', '.join(CSR_PARTS)}; it holds {', '.join(sorted(names))}.")
    data, indices, indptr, shape = (archive.read(name) for name in CSR_PARTS)
    if data.dtype.kind not in "fiub" or any(part.dtype.kind not in "iu" for part in (indices, indptr, shape)):
        raise ValueError(f"data must hold real numbers, {', '.join(CSR_PARTS[1:])} whole ones.")
    if shape.shape != (2,) or indptr.shape != (int(shape[0]) + 1,):
        raise ValueError(
            f"indptr must have one entry per row and one more, of shape {shape.tolist()}; got {indptr.shape}."
        )
    matrix = sp.csr_array((data.astype(np.float64), indices, indptr), shape=(int(shape[0]), int(shape[1])))
    matrix.check_format(full_check=True)
    return matrix


def read_libsvm(place: Place) -> Contents:
    """A sparse matrix and its targets; besides the matrix itself only a line is in memory."""
    from sklearn.datasets import load_svmlight_file

    try:
        with place.open() as file:
            X, y = load_svmlight_file(file, n_features=place.n_columns, zero_based=place.zero_based)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{place.path} is not a LIBSVM file{_where(place)}: {error}") from None
    return _contents(place, sp.csr_array(X), y)


def _contents(place: Place, X: RawMatrix, y: NDArray[Any] | None) -> Contents:
    """The contents of a matrix file; its columns are named by their positions."""
    if 0 in X.shape:
        raise ValueError(f"{place.path} must hold at least one row and one column; it has {X.shape[0]} x {X.shape[1]}.")
    if X.shape[1] > max(MOST_COLUMNS, place.n_columns or 0):
        raise ValueError(
            f"{place.path} must have at most {MOST_COLUMNS} columns; it has {X.shape[1]}. If that is meant, say so: "
            f"n_columns={X.shape[1]}."
        )
    if y is not None and y.shape != (X.shape[0],):
        raise ValueError(f"{place.path}: y must have one entry per row of X, shape ({X.shape[0]},); got {y.shape}.")
    return Contents(place.path, tuple(map(str, range(X.shape[1]))), X=as_matrix(X).data, y=y)


def _where(place: Place) -> str:
    """The first line that cannot be read, if one line alone tells."""
    lowest = 0 if place.zero_based else 1
    with place.open() as file:
        for number, line in enumerate(file, start=1):
            try:
                label, *pairs = line.split(b"#")[0].split() or [b"0"]
                float(label)
                places = []
                for pair in pairs:
                    index, value = pair.split(b":")
                    if index != b"qid":
                        places.append(int(index))
                        float(value)
            except ValueError:
                return f" (line {number}: {line[:40].decode('utf-8', 'replace').strip()!r})"
            if places and min(places) < lowest:
                return f" (line {number} has a column {min(places)}: give zero_based=True where columns are counted from 0)"
            if any(second <= first for first, second in pairwise(places)):
                return f" (line {number}: columns must be in rising order)"
    return ""
