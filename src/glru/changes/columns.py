"""Changes of columns: removed and added."""

from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from glru import _inputs
from glru.changes.base import Change, Layout, column_positions, layout_of
from glru.linalg import Matrix
from glru.penalties import Penalty
from glru.problem import Problem


@final
@dataclass(frozen=True, eq=False)
class RemoveColumns(Change):
    """Remove some columns.

    Parameters
    ----------
    columns : sequence of int or str
        Their positions, or their names where X came as a frame.

    Examples
    --------
    >>> import numpy as np, glru
    >>> problem = glru.Problem(np.eye(3), [0.0, 1.0, 2.0], loss=glru.Squared())
    >>> glru.RemoveColumns([0, 2]).apply(problem).n_columns
    1
    """

    columns: Any

    def check(self, layout: Layout) -> Layout:
        gone = column_positions(self.columns, layout)
        if gone.size == layout.n_columns:
            raise ValueError(f"a change must leave at least one column; got the removal of all {gone.size}.")
        names, penalty = layout.column_names, layout.penalty
        if names is not None or penalty.n_columns is not None:
            kept = np.delete(np.arange(layout.n_columns), gone)
            names = None if names is None else tuple(names[j] for j in kept)
            penalty = penalty.select(kept)
        return replace(layout, n_columns=layout.n_columns - gone.size, column_names=names, penalty=penalty)

    def apply(self, problem: Problem) -> Problem:
        before = layout_of(problem)
        kept = np.delete(np.arange(problem.n_columns), column_positions(self.columns, before))
        after = self.check(before)
        return problem.derive(X=problem.matrix[:, kept], penalty=after.penalty, column_names=after.column_names)


@final
@dataclass(frozen=True, eq=False)
class AddColumns(Change):
    """Add columns behind the present ones.

    Parameters
    ----------
    X : array, sparse matrix or frame of shape (n_rows, n_new)
        Their data.
    penalty : Penalty, default=None
        Their penalty, of the kind the problem has; the problem's own if not given, which needs the
        same strength on all columns.

    Examples
    --------
    >>> import numpy as np, glru
    >>> problem = glru.Problem(np.eye(2), [0.0, 1.0], loss=glru.Squared())
    >>> glru.AddColumns([[1.0], [2.0]]).apply(problem).n_columns
    3
    """

    X: Any
    penalty: Penalty | None = None
    matrix: Matrix = field(init=False, repr=False)
    names: tuple[str, ...] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        matrix, names = _inputs.as_matrix(self.X)
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "names", names)

    def check(self, layout: Layout) -> Layout:
        n_rows, n_new = self.matrix.shape
        if n_rows != layout.n_rows:
            raise ValueError(f"new columns must have {layout.n_rows} rows, as the problem has; got {n_rows}.")
        return replace(
            layout,
            n_columns=layout.n_columns + n_new,
            column_names=self._all_names(layout),
            penalty=layout.penalty.extended(layout.n_columns, self.new_penalty(layout), n_new),
        )

    def new_penalty(self, layout: Layout) -> Penalty:
        """The penalty of the new columns."""
        if self.penalty is None:
            if layout.penalty.n_columns is not None:
                raise ValueError(
                    "new columns need strengths of their own where the problem's differ from column to column; "
                    "give penalty=."
                )
            return layout.penalty
        if type(self.penalty) is not type(layout.penalty):
            raise ValueError(f"penalty must be of the problem's kind, {layout.penalty!r}; got {self.penalty!r}.")
        if self.penalty.n_columns not in (None, self.matrix.shape[1]):
            raise ValueError(f"penalty must have one strength a new column; got {self.penalty.n_columns}.")
        return self.penalty

    def _all_names(self, layout: Layout) -> tuple[str, ...] | None:
        if layout.column_names is None:
            return None
        new = self.names or tuple(f"column {layout.n_columns + k}" for k in range(self.matrix.shape[1]))
        twice = sorted(set(new) & set(layout.column_names))
        if twice:
            raise ValueError(f"new columns must have new names; got {', '.join(twice)} again.")
        return layout.column_names + new

    def apply(self, problem: Problem) -> Problem:
        after = self.check(layout_of(problem))
        X = problem.matrix.concatenate([problem.matrix, self.matrix], axis=1)
        return problem.derive(X=X, penalty=after.penalty, column_names=after.column_names)
