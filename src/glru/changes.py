"""Changes of the training data and of the penalty, as values that can be added up."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru._options import suggest_options
from glru._results import list_some
from glru.linalg import Array, Matrix, as_matrix
from glru.losses import Loss, WithOffset, join_targets
from glru.penalties import Penalty
from glru.problem import Problem, as_offset, check_strengths


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


def read_layout(problem: Problem) -> Layout:
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

    def __post_init__(self) -> None:
        # A change is a value, and answers are lazy: neither follows what becomes of the caller's arrays and lists.
        for name, value in vars(self).items():
            if hasattr(value, "copy"):
                object.__setattr__(self, name, value.copy())

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


@dataclass(frozen=True, eq=False)
class NewData(Change):
    """A change that adds data, which is converted and checked at once; X may be changed afterwards."""

    X: Any
    matrix: Matrix = field(init=False, repr=False)
    names: tuple[str, ...] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        matrix, names = _inputs.as_matrix(self.X)
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "names", names)


def match_columns(X: Matrix, names: tuple[str, ...] | None, expected: tuple[str, ...] | None) -> Matrix:
    """The columns of a frame in the expected order; an error where its names are others."""
    if names is None or expected is None or names == expected:
        return X
    if set(names) != set(expected) or len(names) != len(expected):
        missing = ", ".join(sorted(set(expected) - set(names)))
        raise ValueError(f"a frame must have the problem's columns; missing: {missing}.")
    require_unique(expected, expected)
    return X[:, [names.index(name) for name in expected]]


def require_unique(asked: Sequence[str], names: tuple[str, ...]) -> None:
    """Refuse names that several columns have: they do not say which one is meant."""
    counts = Counter(names)
    twice = sorted({name for name in asked if counts[name] > 1})
    if twice:
        raise ValueError(f"a name must belong to one column; several are called {', '.join(twice)}. Give positions.")


def rows_of(X: Any, what: str, n_columns: int, names: tuple[str, ...] | None, constant: float | None) -> Matrix:
    """Rows of the caller's data (queries, new rows) in the ``n_columns`` columns of a problem, a constant one included.

    The columns of a frame are matched by name with the caller's ``names``; errors call the rows ``what``. ``constant``: as in :func:`prepend_constant`.
    """
    matrix, given = _inputs.as_matrix(X, what)
    expected = n_columns - int(constant is not None)
    if matrix.shape[1] != expected:
        raise ValueError(f"{what} must have {expected} columns, as the model has; got {matrix.shape[1]}.")
    return prepend_constant(match_columns(matrix, given, names), constant)


def prepend_constant(matrix: Matrix, constant: float | None) -> Matrix:
    """Rows with a constant first column, where the model has one."""
    if constant is None:
        return matrix
    column = as_matrix(np.full((matrix.shape[0], 1), constant))
    return matrix.concatenate([column, matrix], axis=1)


def locate_rows(rows: Any, n_rows: int) -> NDArray[np.intp]:
    """Row positions as given, checked to exist and to be distinct."""
    return _positions(rows, n_rows, "row")


def locate_columns(columns: Any, layout: Layout) -> NDArray[np.intp]:
    """Positions of columns given by position or by name, checked to exist and to be distinct."""
    items = np.atleast_1d(np.asarray(columns, dtype=object)).tolist()
    if not any(isinstance(item, str) for item in items):
        return _positions(columns, layout.n_columns, "column")
    if layout.column_names is None:
        raise ValueError(f"columns can be named only where X came as a frame; got {items!r}. Give positions.")
    places = {name: place for place, name in enumerate(layout.column_names)}
    unknown = [item for item in items if item not in places]
    if unknown:
        raise ValueError(
            f"columns must be among those of the problem ({list_some(places, most=10)}); got {', '.join(map(repr, unknown))}."
        )
    if len(set(items)) != len(items):
        raise ValueError(f"columns must be named once each; got {items!r}.")
    require_unique(items, layout.column_names)
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


@final
@suggest_options
@dataclass(frozen=True, eq=False)
class RemoveRows(Change):
    """Remove some rows.

    Parameters
    ----------
    rows : sequence of int
        Their positions.

    Examples
    --------
    >>> import numpy as np, glru
    >>> problem = glru.Problem(np.eye(3), [0.0, 1.0, 2.0], loss=glru.Squared())
    >>> glru.RemoveRows([1]).apply(problem).y
    array([0., 2.])
    """

    rows: Any

    def check(self, layout: Layout) -> Layout:
        gone = locate_rows(self.rows, layout.n_rows).size
        if gone == layout.n_rows:
            raise ValueError(f"a change must leave at least one row; got the removal of all {gone}.")
        return replace(layout, n_rows=layout.n_rows - gone)

    def apply(self, problem: Problem) -> Problem:
        kept = np.delete(np.arange(problem.n_rows), locate_rows(self.rows, problem.n_rows))
        weight = problem.sample_weight[kept]
        if not weight.any():
            raise ValueError("a change must leave a row of weight above 0; got the removal of all of them.")
        return problem.derive(X=problem.matrix[kept], y=problem.y[kept], sample_weight=weight)


@final
@suggest_options
@dataclass(frozen=True, eq=False)
class AddRows(NewData):
    """Add rows after the present ones.

    Parameters
    ----------
    X : array, sparse matrix or frame of shape (n_new, n_columns)
        Their data. The columns of a frame are matched by name.
    y : array of shape (n_new,)
        Their targets; labels as the problem had them, or -1 and +1.
    sample_weight : array of shape (n_new,), default=None
        Their weights; ones if not given.
    offset : array of shape (n_new,), default=None
        Their offsets, for a problem that has them.

    Examples
    --------
    >>> import numpy as np, glru
    >>> problem = glru.Problem(np.eye(2), [0.0, 1.0], loss=glru.Squared())
    >>> glru.AddRows([[3.0, 4.0]], [2.0]).apply(problem).n_rows
    3
    """

    y: Any
    sample_weight: Any = None
    offset: Any = None

    def check(self, layout: Layout) -> Layout:
        self.block(layout)
        return replace(layout, n_rows=layout.n_rows + self.matrix.shape[0])

    def block(self, layout: Layout) -> tuple[Matrix, Array, Array]:
        """Data, targets and weights of the new rows in the problem's terms."""
        n_new = self.matrix.shape[0]
        if self.matrix.shape[1] != layout.n_columns:
            raise ValueError(
                f"new rows must have {layout.n_columns} columns, as the problem has; got {self.matrix.shape[1]}."
            )
        matrix = match_columns(self.matrix, self.names, layout.column_names)
        weight = _inputs.as_row_weights(self.sample_weight, n_new, "weights")
        y = targets(self.y, n_new, layout)
        if isinstance(layout.loss, WithOffset) != (self.offset is not None):
            raise ValueError(
                "new rows must have an offset if the problem has one, and none otherwise; got "
                f"offset={'None' if self.offset is None else 'given'}. Use AddRows(X, y, offset=...), or leave it out."
            )
        return matrix, y if self.offset is None else join_targets(y, as_offset(self.offset, n_new)), weight

    def apply(self, problem: Problem) -> Problem:
        matrix, y, weight = self.block(read_layout(problem))
        return problem.derive(
            X=problem.matrix.concatenate([problem.matrix, matrix], axis=0),
            y=np.append(problem.y, y),
            sample_weight=np.append(problem.sample_weight, weight),
        )


@final
@suggest_options
@dataclass(frozen=True, eq=False)
class Relabel(Change):
    """Change the targets of some rows.

    Parameters
    ----------
    rows : sequence of int
        Their positions.
    y : array of shape (n_rows_named,)
        The new targets.

    Examples
    --------
    >>> import numpy as np, glru
    >>> problem = glru.Problem(np.eye(2), ["a", "b"])
    >>> glru.Relabel([0], ["b"]).apply(problem).y
    array([1., 1.])
    """

    rows: Any
    y: Any

    def check(self, layout: Layout) -> Layout:
        targets(self.y, locate_rows(self.rows, layout.n_rows).size, layout)
        return layout

    def apply(self, problem: Problem) -> Problem:
        return problem.derive(y=self.relabel(problem))

    def relabel(self, problem: Problem) -> Array:
        """The targets of all rows after the change; offsets stay as they are."""
        rows = locate_rows(self.rows, problem.n_rows)
        y = np.array(problem.targets)
        y[rows] = targets(self.y, rows.size, read_layout(problem))
        return join_targets(y, problem.offset) if isinstance(problem.loss, WithOffset) else y


@final
@suggest_options
@dataclass(frozen=True, eq=False)
class Reweight(Change):
    """Change the sample weights of some rows.

    Parameters
    ----------
    rows : sequence of int
        Their positions.
    weights : float or array of shape (n_rows_named,)
        The new sample weights, at least 0.

    Examples
    --------
    >>> import numpy as np, glru
    >>> problem = glru.Problem(np.eye(2), [0.0, 1.0], loss=glru.Squared())
    >>> glru.Reweight([1], 3.0).apply(problem).weights
    array([0.25, 0.75])
    """

    rows: Any
    weights: Any

    def check(self, layout: Layout) -> Layout:
        self.new_weights(locate_rows(self.rows, layout.n_rows).size)
        return layout

    def new_weights(self, count: int) -> Array:
        """One valid weight per named row."""
        weights = np.asarray(self.weights)
        return _inputs.as_row_weights(np.full(count, weights) if weights.ndim == 0 else weights, count, "weights")

    def apply(self, problem: Problem) -> Problem:
        rows = locate_rows(self.rows, problem.n_rows)
        weight = problem.sample_weight.copy()
        weight[rows] = self.new_weights(rows.size)
        if not weight.any():
            raise ValueError("a change must leave a row of weight above 0; got weights that are all 0.")
        return problem.derive(sample_weight=weight)


@final
@suggest_options
@dataclass(frozen=True, eq=False)
class EditValues(Change):
    """Replace the values in some rows and columns.

    Parameters
    ----------
    rows : sequence of int
        Row positions.
    columns : sequence of int or str
        Column positions or names.
    values : float or array of shape (n_rows_named, n_columns_named)
        The new values.

    Examples
    --------
    >>> import numpy as np, glru
    >>> problem = glru.Problem(np.eye(2), [0.0, 1.0], loss=glru.Squared())
    >>> glru.EditValues([0], [1], 5.0).apply(problem).X
    array([[1., 5.],
           [0., 1.]])
    """

    rows: Any
    columns: Any
    values: Any

    def check(self, layout: Layout) -> Layout:
        self.block(layout)
        return layout

    def block(self, layout: Layout) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
        """Positions and the finite values for their crossings."""
        rows, columns = locate_rows(self.rows, layout.n_rows), locate_columns(self.columns, layout)
        try:
            values = np.asarray(self.values, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"values must be numeric; got {self.values!r}.") from None
        shape = rows.size, columns.size
        # A line of values for one row is no question; for several, pairs of rows and columns may be meant.
        if values.ndim and values.shape not in (shape, shape[rows.size == 1 :]):
            raise ValueError(
                f"values must have one entry per named row and column, shape {shape}; got shape {values.shape}."
            )
        if not np.all(np.isfinite(values)):
            raise ValueError("values must be finite; got NaN or infinity.")
        return rows, columns, np.array(np.broadcast_to(values, shape))

    def edited_rows(self, problem: Problem) -> tuple[NDArray[np.intp], Matrix]:
        """The named rows as they are after the change."""
        rows, columns, values = self.block(read_layout(problem))
        return rows, problem.matrix[rows].replace_columns(columns, values)

    def apply(self, problem: Problem) -> Problem:
        rows, edited = self.edited_rows(problem)
        order = np.arange(problem.n_rows)
        order[rows] = problem.n_rows + np.arange(rows.size)
        return problem.derive(X=problem.matrix.concatenate([problem.matrix, edited], axis=0)[order])


def targets(y: Any, count: int, layout: Layout) -> Array:
    """Targets in the problem's terms: finite numbers, labels of the problem as -1 and +1, or as places of three classes or more."""
    if layout.classes is None:
        found = _inputs.as_vector(y, count, "y")
        layout.loss.check_targets(found)
        return found
    raw = _inputs.as_column(np.atleast_1d(_inputs.as_array(y, "y")), count, "y")
    if layout.classes.size > 2:
        # Compared in Python: NumPy would take the number 1 for the text "1".
        places = {label: place for place, label in enumerate(layout.classes.tolist())}
        strange = sorted({str(label) for label in raw.tolist() if label not in places})
        if strange:
            raise ValueError(
                f"labels must be among {layout.classes.tolist()}, as in the problem; got {', '.join(strange)}."
            )
        return np.array([places[label] for label in raw.tolist()], dtype=np.intp)
    # Signs are another name of the classes, unless the lower class is itself called 1 or the higher one -1.
    clash = bool(layout.classes[0] == 1) or bool(layout.classes[1] == -1)
    for low, high in (layout.classes,) if clash else (layout.classes, (-1, 1)):
        known = (raw == low) | (raw == high)
        if np.all(known):
            return np.where(raw == high, 1.0, -1.0)
    unknown = sorted({str(v) for v in raw[~np.isin(raw, layout.classes)]})
    raise ValueError(
        f"labels must be {layout.classes[0]} or {layout.classes[1]}, as in the problem; got {', '.join(unknown)}."
    )


@final
@suggest_options
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
        gone = locate_columns(self.columns, layout)
        if gone.size == layout.n_columns:
            raise ValueError(f"a change must leave at least one column; got the removal of all {gone.size}.")
        names, penalty = layout.column_names, layout.penalty
        if names is not None or penalty.n_columns is not None:
            kept = np.delete(np.arange(layout.n_columns), gone)
            names = None if names is None else tuple(names[j] for j in kept)
            penalty = penalty.select(kept)
        return replace(layout, n_columns=layout.n_columns - gone.size, column_names=names, penalty=penalty)

    def apply(self, problem: Problem) -> Problem:
        before = read_layout(problem)
        kept = np.delete(np.arange(problem.n_columns), locate_columns(self.columns, before))
        after = self.check(before)
        return problem.derive(X=problem.matrix[:, kept], penalty=after.penalty, column_names=after.column_names)


@final
@suggest_options
@dataclass(frozen=True, eq=False)
class AddColumns(NewData):
    """Add columns after the present ones.

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

    penalty: Penalty | None = None

    def check(self, layout: Layout) -> Layout:
        n_rows, n_new = self.matrix.shape
        if n_rows != layout.n_rows:
            raise ValueError(f"new columns must have {layout.n_rows} rows, as the problem has; got {n_rows}.")
        return replace(
            layout,
            n_columns=layout.n_columns + n_new,
            column_names=self._collect_names(layout),
            penalty=layout.penalty.extend(layout.n_columns, self.new_penalty(layout), n_new),
        )

    def new_penalty(self, layout: Layout) -> Penalty:
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
            raise ValueError(f"penalty must have one strength per new column; got {self.penalty.n_columns}.")
        return self.penalty

    def _collect_names(self, layout: Layout) -> tuple[str, ...] | None:
        if layout.column_names is None:
            return None
        new = self.names or tuple(f"column {layout.n_columns + k}" for k in range(self.matrix.shape[1]))
        twice = sorted(set(new) & set(layout.column_names))
        if twice:
            raise ValueError(f"new columns must have new names; got {', '.join(twice)} again.")
        return layout.column_names + new

    def apply(self, problem: Problem) -> Problem:
        after = self.check(read_layout(problem))
        X = problem.matrix.concatenate([problem.matrix, self.matrix], axis=1)
        return problem.derive(X=X, penalty=after.penalty, column_names=after.column_names)


@final
@suggest_options
@dataclass(frozen=True, eq=False)
class Repenalise(Change):
    """Change the penalty: to another strength, or to one strength per column.

    Parameters
    ----------
    penalty : Penalty
        The new penalty; strengths that differ by column have one entry per column.

    Examples
    --------
    >>> import numpy as np, glru
    >>> problem = glru.Problem(np.eye(2), [0.0, 1.0], loss=glru.Squared(), penalty=glru.L2(1.0))
    >>> glru.Repenalise(glru.L2([0.5, 2.0])).apply(problem).penalty
    L2(lam=array([0.5, 2. ]))

    A scaler that is fitted again without some rows divides column ``j`` by ``t_j`` times what it was divided by. In the old
    columns that is the removal of the rows and the strength ``t_j ** 2`` times what it was:

    >>> change = glru.RemoveRows([1]) + glru.Repenalise(glru.L2([1.0, 0.81]))
    >>> change.apply(problem).penalty
    L2(lam=array([1.  , 0.81]))
    """

    penalty: Penalty

    def check(self, layout: Layout) -> Layout:
        if not isinstance(self.penalty, Penalty):
            raise TypeError(f"penalty must be a glru penalty such as glru.L2(0.1); got {self.penalty!r}.")
        check_strengths(self.penalty, layout.n_columns)
        return replace(layout, penalty=self.penalty)

    def apply(self, problem: Problem) -> Problem:
        return problem.derive(penalty=self.check(read_layout(problem)).penalty)
