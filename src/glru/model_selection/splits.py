"""The rows of every split, from whatever scikit-learn takes for ``cv``."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]


def is_leave_one_out(cv: Any) -> bool:
    """Whether ``cv`` leaves out every row in turn."""
    from sklearn.model_selection import LeaveOneOut

    return isinstance(cv, LeaveOneOut)


def split_rows(cv: Any, y: NDArray[Any], groups: Any, classification: bool) -> Iterator[tuple[Rows, Rows]]:
    """Train and test rows of every split, one split at a time."""
    from sklearn.model_selection import check_cv

    if isinstance(cv, Iterable) and not hasattr(cv, "split"):
        found = iter(cv)
    else:
        splitter = check_cv(cv, y, classifier=classification)
        found = splitter.split(np.zeros((y.size, 1)), y, groups)
    for train, test in found:
        yield _row_numbers(train, y.size), _row_numbers(test, y.size)


def _row_numbers(rows: Any, n_rows: int) -> Rows:
    """Rows of a split, given as a mask or as positions, as positions."""
    places = np.asarray(rows)
    if places.size == 0:
        return np.empty(0, dtype=np.intp)
    if places.dtype == np.bool_:
        if places.shape != (n_rows,):
            raise ValueError(f"a mask of rows must have shape ({n_rows},); got {places.shape}.")
        return np.flatnonzero(places)
    if places.dtype.kind not in "iu" or places.ndim != 1 or np.any((places < 0) | (places >= n_rows)):
        raise ValueError(f"the rows of a split must be a mask or positions from 0 to {n_rows - 1}; got {rows!r}.")
    return places.astype(np.intp)
