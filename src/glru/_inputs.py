"""Convert user input (arrays, frames, sparse matrices) to float64 data, or raise a clear error."""

import datetime
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from glru import linalg
from glru._results import list_some
from glru.linalg import Array, Matrix, is_foreign, namespace, to_host

TEMPORAL = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
"""Dates, times and durations; those of pandas are derived from them."""

DATES = (
    "Turn dates, times and durations into numbers first, such as days since a start, (t - t0) / np.timedelta64(1, 'D'), or "
    "leave them out."
)
"""Advice for such columns: converted to float64 they would become nanoseconds or days since 1970."""


def as_matrix(X: Any, name: str = "X") -> tuple[Matrix, tuple[str, ...] | None]:
    """Float64 data as a matrix, without copying where possible, and the column names of a frame."""
    matrix, names = convert_values(X, name)
    require_entries(*matrix.shape, name)
    require_finite(matrix, name, names)
    return matrix, names


def convert_values(X: Any, name: str = "X") -> tuple[Matrix, tuple[str, ...] | None]:
    """:func:`as_matrix` without checking the numbers."""
    X = X.data if isinstance(X, Matrix) else X
    names = read_column_names(X)
    if is_sparse_frame(X):
        X = X.sparse.to_coo()
    if is_foreign(X):
        return linalg.as_matrix(_convert_foreign(X, name)), names
    return linalg.as_matrix(_convert_sparse(X, name) if sp.issparse(X) else _convert_dense(X, name, names)), names


def require_entries(n_rows: int, n_columns: int, name: str = "X") -> None:
    """Refuse data without a row or a column."""
    if n_rows == 0 or n_columns == 0:
        raise ValueError(f"{name} must have at least one row and one column; got shape {n_rows} x {n_columns}.")


def as_vector(values: Any, length: int, name: str) -> Array:
    """A finite float64 vector of the given length (a copy, so that later edits of the input change nothing)."""
    return as_finite_vector(as_column(values, length, name), name)


def as_column(values: Any, length: int, name: str) -> NDArray[Any]:
    """One entry per row, of whatever type; a single column is one, too."""
    raw = as_array(values, name)
    raw = raw[:, 0] if raw.ndim == 2 and raw.shape[1] == 1 else raw
    if raw.shape != (length,):
        raise ValueError(f"{name} must have one entry per row, shape ({length},); got shape {raw.shape}.")
    return raw


def as_array(values: Any, name: str) -> NDArray[Any]:
    """Targets or weights as an array on the host, of whatever type; masked entries are refused."""
    refuse_masks(values, name)
    found = np.asarray(to_host(values))
    _refuse_complex(found, name)
    return found


def _refuse_complex(values: NDArray[Any], name: str) -> None:
    if values.dtype.kind == "c":
        raise ValueError(f"{name} must be real; got complex numbers. Use their real or imaginary parts, {name}.real.")


def refuse_masks(values: Any, name: str) -> None:
    """Refuse masked entries: NumPy drops masks silently, which would reveal the hidden values."""
    if isinstance(values, list | tuple) and any(isinstance(part, np.ma.MaskedArray) for part in values):
        values = np.ma.stack(values)
    if not isinstance(values, np.ma.MaskedArray) or not np.ma.is_masked(values):
        return
    masked = np.ma.getmaskarray(values)
    where = f", the first column with some is {int(np.flatnonzero(masked.any(axis=0))[0])}" if masked.ndim == 2 else ""
    raise ValueError(
        f"{name} must have no masked entries; {int(masked.sum())} are masked{where}. Remove or impute them first, or unmask "
        "them with .data."
    )


def as_numeric_vector(raw: NDArray[Any], name: str) -> Array:
    """A float64 copy of a vector; text, dates and the like are refused."""
    try:
        if raw.dtype.kind in "Mm":
            raise _TemporalError(str(raw.dtype))
        return _parse_numbers(raw) if raw.dtype.kind == "O" else np.array(raw, dtype=np.float64)
    except _TemporalError as error:
        raise ValueError(f"{name} must be numeric; got {error}. {DATES}") from None
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be numeric; got dtype {raw.dtype}. Turn its entries into numbers first."
        ) from None


def as_finite_vector(raw: NDArray[Any], name: str, first_row: int = 0) -> Array:
    """A finite float64 copy of a vector; ``first_row``: the number of its first entry, for messages."""
    vector = as_numeric_vector(raw, name)
    bad = np.flatnonzero(~np.isfinite(vector))
    if bad.size:
        raise ValueError(
            f"{name} must be finite; entry {first_row + bad[0]} is {vector[bad[0]]}. Remove or impute such rows first."
        )
    return vector


def as_labels(values: Any, length: int, several: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """Labels as -1/+1 (the second class, in sorted order, is +1) or as places of three classes or more, and the classes."""
    raw = as_column(values, length, "y")
    classes = find_classes(raw)
    require_classes(classes, several)
    return (np.searchsorted(classes, raw) if several else np.where(raw == classes[1], 1.0, -1.0)), classes


def find_classes(raw: NDArray[Any], first_row: int = 0) -> NDArray[Any]:
    """The different labels, sorted; ``first_row``: the number of the first one, for messages."""
    missing = _find_nonfinite(raw)
    if missing.size:
        raise ValueError(
            f"y must be finite; entry {first_row + missing[0]} is {raw[missing[0]]}. Remove or impute such rows first."
        )
    try:
        return np.unique(raw)
    except TypeError:
        raise ValueError(
            "y must hold labels of one type; got a mixture that cannot be sorted. Turn all of them into text."
        ) from None


def require_classes(classes: NDArray[Any], several: bool) -> None:
    """Refuse fewer than three classes of a loss for several, and anything but two of another loss."""
    if several and classes.size < 3:
        raise ValueError(
            f"y must have at least three classes for Multinomial(); got {classes.size}: {classes.tolist()}. "
            "Two classes are a problem of one score: use glru.Logistic()."
        )
    if not several and classes.size != 2:
        raise ValueError(
            f"y must have exactly two classes for a classification loss; got {classes.size} ({list_some(classes)}). "
            "Use glru.Multinomial() for more classes, a regression loss such as glru.Squared() for numbers."
        )


def _find_nonfinite(labels: NDArray[Any]) -> NDArray[np.intp]:
    """Where labels are NaN, infinite or missing."""
    if labels.dtype.kind == "f":
        return np.flatnonzero(~np.isfinite(labels))
    if labels.dtype.kind in "Mm":
        return np.flatnonzero(np.isnat(labels))
    if labels.dtype.kind == "O":
        return np.flatnonzero([_is_missing(label) for label in labels])
    return np.empty(0, dtype=np.intp)


def as_weights(values: Any, length: int) -> Array:
    """Finite, non-negative sample weights that are not all zero; ones where none are given."""
    weights = as_row_weights(values, length)
    require_weight(float(weights.max()))
    if not weights.max() <= np.finfo(float).max / length:
        raise ValueError(
            f"sample_weight must have a finite sum; the largest of {length} is {weights.max()}. Divide all by that."
        )
    return weights


def as_row_weights(values: Any, length: int, name: str = "sample_weight") -> Array:
    """Finite, non-negative weights of some rows; ones where none are given."""
    weights = np.ones(length) if values is None else as_vector(values, length, name)
    require_non_negative(weights, name=name)
    return weights


def require_non_negative(weights: Array, first_row: int = 0, name: str = "sample_weight") -> None:
    """Refuse negative weights; ``first_row``: the number of the first one, for messages."""
    if np.any(weights < 0.0):
        bad = int(np.argmin(weights))
        raise ValueError(f"{name} must be at least 0; entry {first_row + bad} is {weights[bad]}.")


def require_weight(largest: float) -> None:
    """Refuse weights that are all zero."""
    if not largest > 0.0:
        raise ValueError(
            "sample_weight must have an entry above 0; every weight is zero, so there is nothing to train on."
        )


def read_column_names(X: Any) -> tuple[str, ...] | None:
    """The column names of a pandas or polars frame; None for anything without names."""
    # Lazy frames have columns that warn of being asked for.
    columns = getattr(X, "columns", None) if hasattr(X, "to_numpy") else None
    return None if columns is None else tuple(str(c) for c in columns)


def is_sparse_frame(X: Any) -> bool:
    """Whether every column of a pandas frame is stored sparsely."""
    dtypes = () if read_column_names(X) is None else X.dtypes
    return len(dtypes) > 0 and all(type(t).__name__ == "SparseDtype" for t in dtypes)


def _is_missing(value: Any) -> bool:
    """Whether a Python value is missing or not finite."""
    if isinstance(value, float):
        return not np.isfinite(value)
    # pandas is not imported for its missing values, pd.NA and pd.NaT.
    return value is None or type(value).__name__ in ("NAType", "NaTType")


class _TemporalError(TypeError):
    """A date, a time or a duration where a number should be."""


def _parse_numbers(values: NDArray[Any]) -> Array:
    """Python objects as float64, missing ones as NaN; dates, times and durations are refused, even those that would convert."""
    entries = values.tolist()
    kinds = set(map(type, entries))
    temporal = [kind for kind in kinds if issubclass(kind, TEMPORAL)]
    if temporal:
        raise _TemporalError(temporal[0].__name__)
    if any(kind.__name__ == "NAType" for kind in kinds):
        entries = [np.nan if _is_missing(entry) else entry for entry in entries]
    return np.array(entries, dtype=np.float64)


def refuse_dates(X: Any, name: str) -> None:
    """Refuse columns of a frame, and arrays, whose type is that of dates, times or durations."""
    names = read_column_names(X)
    if names is not None:
        found = [
            f"{column!r} ({kind})"
            for column, kind in zip(names, X.dtypes, strict=True)
            if getattr(kind, "kind", "") in ("M", "m") or (hasattr(kind, "is_temporal") and kind.is_temporal())
        ]
        if found:
            raise ValueError(f"{name} must be numeric; dates or times are in {list_some(found)}. {DATES}")
    elif isinstance(X, np.ndarray) and X.dtype.kind in "Mm":
        where = " in all columns" if X.ndim == 2 else ""
        raise ValueError(f"{name} must be numeric; got {X.dtype}{where}. {DATES}")


def _convert_objects(raw: NDArray[Any], name: str, names: tuple[str, ...] | None) -> Array:
    """A matrix of Python objects as float64; an error names the columns that hold anything but numbers."""
    matrix = np.empty(raw.shape)
    text, temporal = [], []
    for k in range(raw.shape[1]):
        title = repr(names[k]) if names is not None else f"column {k}"
        try:
            matrix[:, k] = _parse_numbers(raw[:, k])
        except _TemporalError as error:
            temporal.append(f"{title} ({error})")
        except (TypeError, ValueError):
            text.append(title)
    if temporal:
        raise ValueError(f"{name} must be numeric; dates or times are in {list_some(temporal)}. {DATES}")
    if text:
        raise ValueError(
            f"{name} must be numeric; got dtype {raw.dtype}. Not numeric: {list_some(text)}. Encode such columns first, for example by a OneHotEncoder in a pipeline."
        )
    return matrix


def _convert_dense(X: Any, name: str, names: tuple[str, ...] | None) -> Array:
    refuse_masks(X, name)
    refuse_dates(X, name)
    try:
        raw = X.to_numpy() if names is not None else np.asarray(X)
    except ValueError:
        raise ValueError(
            f"{name} must have rows of one length; got a {type(X).__name__} of unequal ones. Fill the gaps."
        ) from None
    if raw.ndim != 2:
        remedy = (
            "Reshape a single column with X.reshape(-1, 1)."
            if raw.ndim
            else "Give an array or a data frame; collect a lazy one."
        )
        found = f"{raw.ndim} dimension(s)" if raw.ndim else f"a {type(X).__name__}"
        raise ValueError(f"{name} must be two-dimensional, rows by columns; got {found}. {remedy}")
    _refuse_complex(raw, name)
    refuse_dates(raw, name)
    if raw.dtype.kind == "O":
        raw = _convert_objects(raw, name, names)
    try:
        matrix = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be numeric; got dtype {raw.dtype}. Encode such columns first, for example by a OneHotEncoder in a pipeline."
        ) from None
    if not (matrix.flags.c_contiguous or matrix.flags.f_contiguous):
        matrix = np.ascontiguousarray(matrix)
    view = matrix.view()
    view.setflags(write=False)
    return view


def _convert_foreign(X: Any, name: str) -> Any:
    xp = namespace(X)
    if X.ndim != 2:
        raise ValueError(f"{name} must be two-dimensional, rows by columns; got {X.ndim} dimension(s).")
    if not xp.isdtype(X.dtype, ("real floating", "integral", "bool")):
        raise ValueError(f"{name} must be real and numeric; got dtype {X.dtype}.")
    array = X if X.dtype == xp.float64 else xp.astype(X, xp.float64)
    if array.dtype != xp.float64:
        raise ValueError(
            f"{name} must be float64 to prove anything; {xp.__name__} made {array.dtype} of it. Switch float64 on there."
        )
    return array


def _convert_sparse(X: Any, name: str) -> sp.csr_array:
    if X.ndim != 2:
        raise ValueError(f"{name} must be two-dimensional, rows by columns; got {X.ndim} dimension(s).")
    if np.dtype(X.dtype).kind not in "fiub":
        raise ValueError(f"{name} must be real and numeric; got dtype {X.dtype}.")
    rows = sp.csr_array(X, dtype=np.float64)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def require_finite(matrix: Matrix, name: str, names: tuple[str, ...] | None, first_row: int = 0) -> None:
    """Refuse numbers that are not finite; ``first_row``: the number of the first row, for messages."""
    found = matrix.find_infinite()
    if found is None:
        return
    row, column, value, count = found
    where = f"column {names[column]!r}" if names is not None else f"column {column}"
    raise ValueError(
        f"{name} must be finite; row {first_row + row}, {where} is {value} ({count} such entries in all). "
        "Remove or impute them first."
    )
