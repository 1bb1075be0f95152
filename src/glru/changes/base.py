"""What a change of the training data is: it can be checked against a layout and applied to a problem."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import Matrix
from glru.losses import Loss
from glru.penalties import Penalty
from glru.problem import Problem


@final
@dataclass(frozen=True)
class Layout:
    """What a change has to fit: the shape, names, labels, penalty and loss of a problem, without its data."""

    n_rows: int
    n_columns: int
    column_names: tuple[str, ...] | None
    classes: NDArray[Any] | None
    penalty: Penalty
    loss: Loss


def layout_of(problem: Problem) -> Layout:
    """The layout of a problem."""
    return Layout(
        problem.n_rows, problem.n_columns, problem.column_names, problem.classes, problem.penalty, problem.loss
    )


class Change(ABC):
    """A change of the training data. ``first + second`` is the change that does both, left to right.

    Examples
    --------
    >>> import glru
    >>> change = glru.RemoveRows([3]) + glru.RemoveColumns([0])
    >>> isinstance(change, glru.Change)
    True
    """

    @abstractmethod
    def check(self, layout: Layout) -> Layout:
        """The layout after the change; an error where the change does not fit."""

    @abstractmethod
    def apply(self, problem: Problem) -> Problem:
        """The changed problem."""

    def __add__(self, other: "Change") -> "Change":
        if not isinstance(other, Change):
            return NotImplemented
        mine = self.steps if isinstance(self, Composite) else (self,)
        theirs = other.steps if isinstance(other, Composite) else (other,)
        return Composite(mine + theirs)


@final
@dataclass(frozen=True, eq=False)
class Composite(Change):
    """Several changes, applied left to right; each names rows and columns as the ones before it left them."""

    steps: tuple[Change, ...]

    def check(self, layout: Layout) -> Layout:
        for step in self.steps:
            layout = step.check(layout)
        return layout

    def apply(self, problem: Problem) -> Problem:
        for step in self.steps:
            problem = step.apply(problem)
        return problem

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.steps))


def matched_columns(X: Matrix, names: tuple[str, ...] | None, expected: tuple[str, ...] | None) -> Matrix:
    """The columns of a frame in the expected order; an error where its names are others."""
    if names is None or expected is None or names == expected:
        return X
    if set(names) != set(expected) or len(names) != len(expected):
        missing = ", ".join(sorted(set(expected) - set(names)))
        raise ValueError(f"a frame must have the problem's columns; missing: {missing}.")
    return X[:, [names.index(name) for name in expected]]


def row_positions(rows: Any, n_rows: int) -> NDArray[np.intp]:
    """Row positions as given, checked to exist and to be distinct."""
    return _positions(rows, n_rows, "row")


def column_positions(columns: Any, layout: Layout) -> NDArray[np.intp]:
    """Positions of columns given by position or by name, checked to exist and to be distinct."""
    items = np.atleast_1d(np.asarray(columns, dtype=object)).tolist()
    if not any(isinstance(item, str) for item in items):
        return _positions(columns, layout.n_columns, "column")
    if layout.column_names is None:
        raise ValueError(f"columns can be named only where X came as a frame; got {items!r}. Give positions.")
    places = {name: place for place, name in enumerate(layout.column_names)}
    unknown = [item for item in items if item not in places]
    if unknown:
        known = ", ".join(layout.column_names[:10]) + (", ..." if len(places) > 10 else "")
        raise ValueError(f"columns must be among those of the problem ({known}); got {', '.join(map(repr, unknown))}.")
    if len(set(items)) != len(items):
        raise ValueError(f"columns must be named once each; got {items!r}.")
    return np.array([places[item] for item in items], dtype=np.intp)


def _positions(items: Any, size: int, what: str) -> NDArray[np.intp]:
    places = np.atleast_1d(np.asarray(items))
    if places.size == 0:
        return np.empty(0, dtype=np.intp)
    if places.dtype.kind not in "iu" or places.ndim != 1:
        raise ValueError(f"{what}s must be given as integer positions; got {items!r}.")
    wrong = places[(places < 0) | (places >= size)]
    if wrong.size:
        raise ValueError(f"{what}s must be positions from 0 to {size - 1}; got {', '.join(map(str, wrong[:5]))}.")
    if np.unique(places).size != places.size:
        raise ValueError(f"{what}s must be named once each; got {items!r}.")
    return places.astype(np.intp)
