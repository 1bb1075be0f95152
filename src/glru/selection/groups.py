"""Columns that leave and come together, and columns that stay."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glru.changes import layout_of
from glru.changes.base import column_positions
from glru.problem import Problem

Columns = NDArray[np.intp]


def column_groups(problem: Problem, groups: Sequence[Any] | None) -> list[Columns]:
    """The groups in the order of their lowest column; every column is in exactly one."""
    n_columns = problem.n_columns
    if groups is None:
        return [np.array([j]) for j in range(n_columns)]
    if len(groups) and all(isinstance(group, (list, np.ndarray)) for group in groups):
        found = [np.sort(column_positions(group, layout_of(problem))) for group in groups]
        named = np.concatenate(found)
        if np.unique(named).size != named.size:
            raise ValueError("a column can be in one group only; some are in several.")
        found += [np.array([j]) for j in np.setdiff1d(np.arange(n_columns), named)]
    else:
        labels = list(groups)
        if len(labels) != n_columns:
            raise ValueError(
                f"groups must have one label a column, {n_columns} of them, or be a list of lists of columns; "
                f"got {len(labels)} labels."
            )
        places: dict[Any, list[int]] = {}
        for column, label in enumerate(labels):
            places.setdefault(label, []).append(column)
        found = [np.array(columns) for columns in places.values()]
    return sorted(found, key=lambda group: int(group[0]))


def kept_columns(problem: Problem, keep: Sequence[Any]) -> Columns:
    """The places of the columns that always stay."""
    if len(keep) == 0:
        return np.empty(0, dtype=np.intp)
    return np.sort(column_positions(keep, layout_of(problem)))
