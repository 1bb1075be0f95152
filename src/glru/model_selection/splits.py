"""The rows of every split, from whatever scikit-learn takes for ``cv``."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]

SMALL_RANGE = 64
"""Labels that are whole numbers in such a range are told apart without sorting."""


def is_leave_one_out(cv: Any) -> bool:
    """Whether ``cv`` leaves out every row in turn."""
    from sklearn.model_selection import LeaveOneOut

    return isinstance(cv, LeaveOneOut)


def split_rows(cv: Any, y: NDArray[Any], groups: Any, classification: bool) -> Iterator[tuple[Rows, Rows]]:
    """Train and test rows of every split, one split at a time."""
    from sklearn.model_selection import check_cv

    n_folds = 5 if cv is None else cv
    owners = _fold_of_rows(int(n_folds), y, classification) if isinstance(n_folds, int | np.integer) else None
    if owners is not None:
        for k in range(n_folds):
            mine = owners == k
            yield np.flatnonzero(~mine), np.flatnonzero(mine)
        return
    if isinstance(cv, Iterable) and not hasattr(cv, "split"):
        found = iter(cv)
    else:
        splitter = check_cv(cv, y, classifier=classification)
        found = splitter.split(np.zeros((y.size, 1)), y, groups)
    for train, test in found:
        yield _to_positions(train, y.size), _to_positions(test, y.size)


def _fold_of_rows(n_folds: int, y: NDArray[Any], classification: bool) -> Rows | None:
    """Which fold tests which row, as scikit-learn has it for a number of folds, without its checks; None where they have something to say."""
    if not 2 <= n_folds <= y.size or y.ndim != 1:
        return None
    if not classification:
        return np.repeat(np.arange(n_folds), y.size // n_folds + (np.arange(n_folds) < y.size % n_folds))
    if y.dtype.kind not in "biuf" or not np.array_equal(y, np.trunc(y)):
        return None
    if float(y.max()) - float(y.min()) < SMALL_RANGE:
        codes = y.astype(np.intp) - int(y.min())
        counts = np.bincount(codes)
        first = np.array([np.argmax(codes == k) if counts[k] else y.size for k in range(counts.size)])
    else:
        _, first, codes, counts = np.unique(y, return_index=True, return_inverse=True, return_counts=True)
    if counts[counts > 0].min() < n_folds:
        return None
    # Classes in the order in which they appear. Their rows, one class after the other, are dealt out to the folds in turn, which tells
    # how many of a class each fold gets: the first ones, the next ones, and so on.
    codes = np.argsort(np.argsort(first, kind="stable"))[codes]
    owners = np.empty(y.size, dtype=np.intp)
    # Short numbers are sorted in one pass.
    short = np.int16 if n_folds * counts.size < 1 << 15 else np.intp
    order = np.argsort(codes.astype(short), kind="stable")
    dealt = n_folds * codes[order] + np.arange(y.size) % n_folds
    owners[order] = np.sort(dealt.astype(short), kind="stable") % n_folds
    return owners


def _to_positions(rows: Any, n_rows: int) -> Rows:
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
