"""Readers of matrices: NPZ and LIBSVM."""

from itertools import pairwise
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from glru.datasets.contents import Contents, Place, matrix_contents

CSR_PARTS = ("data", "indices", "indptr", "shape")


def read_npz(place: Place) -> Contents:
    """A dense ``X`` or the parts of a CSR matrix, and ``y`` where the file has it."""
    with place.open() as file, _npz(file, place.path) as stored:
        names = set(stored.files)
        try:
            y = stored["y"] if "y" in names else None
            if "X" in names:
                X: Any = stored["X"]
            elif names.issuperset(CSR_PARTS):
                parts = [stored[name] for name in ("data", "indices", "indptr")]
                X = sp.csr_array((parts[0].astype(np.float64), *parts[1:]), shape=tuple(stored["shape"]))
                X.check_format(full_check=True)
            else:
                raise ValueError(f"it must hold X, or {', '.join(CSR_PARTS)}; it holds {', '.join(sorted(names))}.")
            if isinstance(X, np.ndarray):
                if X.ndim != 2:
                    raise ValueError(f"X must be two-dimensional, rows by columns; got shape {X.shape}.")
                if X.dtype.kind not in "fiub":
                    raise ValueError(f"X must hold real numbers; got dtype {X.dtype}.")
                X = X.astype(np.float64)
        except ValueError as error:
            raise ValueError(f"{place.path} cannot be read: {error}") from None
    return matrix_contents(place.path, X, y)


def _npz(file: IO[bytes], path: Any) -> Any:
    try:
        stored = np.load(file, allow_pickle=False)
    except ValueError:
        raise ValueError(f"{path} is not an NPZ file, or it holds pickled objects, which are not read.") from None
    if not hasattr(stored, "files"):
        raise ValueError(f"{path} is a single array, not an NPZ file. Save it with numpy.savez(path, X=..., y=...).")
    return stored


def read_libsvm(place: Place) -> Contents:
    """A sparse matrix and its targets; besides the matrix itself only a line is in memory."""
    from sklearn.datasets import load_svmlight_file

    options = place.options
    try:
        with place.open() as file:
            X, y = load_svmlight_file(file, n_features=options.n_columns, zero_based=options.zero_based)
    except ValueError as error:
        raise ValueError(f"{place.path} is not a LIBSVM file{_where(place)}: {error}") from None
    return matrix_contents(place.path, sp.csr_array(X), y)


def _where(place: Place) -> str:
    """The first line that cannot be read, if one line alone tells."""
    lowest = 0 if place.options.zero_based else 1
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
                return f" (line {number} has a column {min(places)}: say zero_based where columns are counted from 0)"
            if any(second <= first for first, second in pairwise(places)):
                return f" (line {number}: columns must be in rising order)"
    return ""
