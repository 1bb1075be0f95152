"""The state of a live model: what it minimises, the stored model, the net effect of the changes since its training, and digests.

The cost of a change grows with its own size and that of the pending changes, not with the size of the data. Every change gives a
new state or an error.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru._results import list_some
from glru.changes import (
    AddColumns,
    AddRows,
    Change,
    Composite,
    Layout,
    RemoveColumns,
    RemoveRows,
    locate_columns,
    locate_rows,
    rows_of,
)
from glru.linalg import Array, Matrix, as_matrix
from glru.live.queries import Proofs
from glru.losses import LOSSES
from glru.penalties import Penalty
from glru.problem import Problem
from glru.regions.classes import has_classes
from glru.sklearn import Adapted
from glru.sklearn.objectives import EstimatorObjective, Targets
from glru.solution import Solution

Key = str | int | float | bool | None
Positions = NDArray[np.intp]

STORED_LOSSES = {kind.__name__: kind for kind in LOSSES.values()}
"""The losses by the names that files and receipts have for them."""

INTEGERS = (f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
LABELS = ("str", "object", "bool", *INTEGERS, "float32", "float64")
"""The dtypes that labels can have."""


@final
@dataclass(frozen=True, eq=False)
class ModelSpec:
    """The objective of a live model, its classes and its column names."""

    objective: EstimatorObjective  # what the estimator minimises
    targets: Targets  # the classes and their weights, without any rows
    column_names: tuple[str, ...] | None  # the names of the user's columns, where they have names

    @classmethod
    def from_adapted(cls, adapted: Adapted) -> "ModelSpec":
        """The specification of an estimator; an error where its objective would change with the data."""
        if adapted.shifts is not None:
            raise ValueError(
                f"a live model needs an objective that stays when the data changes, but here {adapted.shifts}. "
                "Scale or weight the data first and give the model alone."
            )
        classes, objective = adapted.classes, adapted.objective
        if classes is not None and classes.size != 2 and not objective.loss.several:
            raise ValueError(
                f"a live model is one problem: a regression, two classes, or a multinomial model; got one problem for each of {classes.size} classes. "
                "Keep one live model per class, each with that class against the rest, or use glru.GLRUClassifier('multinomial')."
            )
        if objective.loss.several:
            problem = adapted.problems[0]
            if not has_classes(problem):
                raise ValueError(
                    f"a live model with {problem.loss!r} forms a Hessian over classes and columns, of at most {problem.largest} unknowns; got "
                    f"{problem.n_scores} classes of {problem.n_columns} columns. Use fewer columns, or one live model per class."
                )
        if objective.quadratic == 0.0 and (objective.absolute > 0.0 or objective.loss.self_concordance is None):
            raise ValueError(
                "a live model needs a penalty with squares in it, or none at all with a smooth loss (logistic, squared, log link): otherwise "
                "nothing is proven after a change. Use an L2 penalty, or an elastic net with l1_ratio below 1."
            )
        factors = (1.0, 1.0)
        if classes is not None:
            _require_json_labels(classes)
            factors = tuple(adapted.targets.apply_class_weights(0, classes, np.ones(classes.size)).tolist())
        names = adapted.problems[0].column_names
        return cls(
            objective, _empty_targets(objective, classes, factors), None if names is None else names[adapted.offset :]
        )

    @property
    def classes(self) -> NDArray[Any] | None:
        """The labels that -1 and +1, or the places of more classes, stand for; None for a regression."""
        return self.targets.classes

    @property
    def factors(self) -> tuple[float, ...]:
        """Factors of the sample weights in the classes."""
        return tuple((self.targets.class_weight or dict.fromkeys(range(self.n_classes), 1.0)).values())

    @property
    def n_classes(self) -> int:
        """The number of classes; 2 for a regression, whose targets are counted as negative and others."""
        return 2 if self.classes is None else int(self.classes.size)

    def count_rows(self, y: Array, weight: Array) -> tuple[int, ...]:
        """Rows of weight above 0, by class; of a regression those with negative targets and the others."""
        places = y.astype(np.intp) if self.objective.loss.several else (y >= 0.0).astype(np.intp)
        return tuple(np.bincount(places[weight > 0.0], minlength=self.n_classes).tolist())

    @property
    def offset(self) -> int:
        """Where the user's columns start in the problem: 1 behind a constant column, else 0."""
        return int(self.objective.constant is not None)

    def convert_rows(self, X: Any, n_columns: int, what: str) -> Matrix:
        """Rows of the user in the ``n_columns`` columns of the problem; errors call them ``what``."""
        return rows_of(X, what, n_columns, self.column_names, self.objective.constant)

    def convert_targets(self, y: Any, sample_weight: Any, count: int) -> tuple[Array, Array]:
        """Targets and weights of rows as the problem has them: -1 and +1 for two classes, places for more; weights times those of the classes."""
        values = labels = self.targets.check(y, count)
        weight = _inputs.as_row_weights(sample_weight, count)
        if self.classes is None:
            self.objective.loss.check_targets(values)
        elif self.objective.loss.several:
            values = np.searchsorted(self.classes, labels).astype(np.intp)
        else:
            values = self.targets.signs(0, labels)
        return values, self.targets.apply_class_weights(0, labels, weight)

    def find_columns(self, columns: Any, n_columns: int) -> NDArray[np.intp]:
        """Columns of the user, by position or name, as columns of the problem."""
        layout = Layout(
            1, n_columns - self.offset, self.column_names, None, self.objective.penalty(n_columns), self.objective.loss
        )
        return locate_columns(columns, layout) + self.offset

    def without_columns(self, columns: NDArray[np.intp]) -> "ModelSpec":
        """The specification when some columns of the problem are gone."""
        if self.column_names is None:
            return self
        gone = set((columns - self.offset).tolist())
        return replace(self, column_names=tuple(name for j, name in enumerate(self.column_names) if j not in gone))

    def with_columns(self, names: tuple[str, ...] | None, count: int, n_columns: int) -> "ModelSpec":
        """The specification with ``count`` more columns behind ``n_columns`` of the problem."""
        if self.column_names is None:
            return self
        new = names or tuple(f"column {n_columns - self.offset + k}" for k in range(count))
        twice = sorted(set(new) & set(self.column_names)) or sorted({name for name in new if new.count(name) > 1})
        if twice:
            raise ValueError(f"new columns must have new names; got {', '.join(twice)} again.")
        return replace(self, column_names=self.column_names + new)

    def to_json(self) -> dict[str, Any]:
        classes = None
        if self.classes is not None:
            kind = "str" if self.classes.dtype.kind == "U" else self.classes.dtype.name
            classes = {"dtype": kind, "values": self.classes.tolist()}
        objective = self.objective
        return {
            "loss": {"name": type(objective.loss).__name__, **asdict(objective.loss)},  # type: ignore[call-overload]
            "quadratic": objective.quadratic,
            "absolute": objective.absolute,
            "scaling": objective.scaling,
            "intercept": objective.intercept,
            "constant": objective.constant,
            "targets": objective.targets,
            "classes": classes,
            "factors": list(self.factors),
            "column_names": None if self.column_names is None else list(self.column_names),
        }

    @classmethod
    def from_json(cls, value: Any) -> "ModelSpec":
        """The specification that :meth:`to_json` wrote; an error if the value is not one."""
        try:
            return cls._read(value)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ValueError(f"the terms of the model cannot be read: {error!r}.") from None

    @classmethod
    def _read(cls, value: Any) -> "ModelSpec":
        parameters = dict(value["loss"])
        strengths = [float(value["quadratic"]), float(value["absolute"]), *map(float, value["factors"])]
        constant = None if value["constant"] is None else float(value["constant"])
        finite = np.all(np.isfinite([*strengths, constant or 0.0]))
        classes = _read_classes(value["classes"])
        if len(strengths) != (4 if classes is None else 2 + classes.size) or not finite or min(strengths) < 0.0:
            raise ValueError("strengths must be finite and at least 0")
        loss = STORED_LOSSES[parameters.pop("name")](**parameters)
        names = value["column_names"]
        if value["scaling"] not in ("mean", "sum"):
            raise ValueError("scaling must be 'mean' or 'sum'")
        if value["targets"] not in (("numbers",) if value["classes"] is None else ("labels", "signs")):
            raise ValueError("targets do not fit the classes")
        if (loss.task == "classification") != (value["targets"] == "labels"):
            raise ValueError("targets do not fit the loss")
        if classes is not None and (classes.size > 2) != loss.several:
            raise ValueError("there must be two classes, or more for a multinomial model")
        objective = EstimatorObjective(
            loss=loss,
            quadratic=strengths[0],
            absolute=strengths[1],
            scaling=value["scaling"],
            intercept=value["intercept"] is True,
            constant=constant,
            targets=value["targets"],
            probabilities=loss.probabilities,
        )
        targets = _empty_targets(objective, classes, tuple(strengths[2:]))
        return cls(objective, targets, None if names is None else tuple(str(name) for name in names))


def _empty_targets(objective: EstimatorObjective, classes: NDArray[Any] | None, factors: tuple[float, ...]) -> Targets:
    """Targets without any rows; they convert the targets of new rows."""
    weights = None
    if classes is not None and set(factors) != {1.0}:
        weights = dict(zip(classes.tolist(), factors, strict=True))
    joint = objective.loss.several
    return Targets(np.empty(0), np.empty(0), classes, weights, "class", objective.targets == "signs", joint)


def _read_classes(value: Any) -> NDArray[Any] | None:
    if value is None:
        return None
    if value["dtype"] not in LABELS:
        raise ValueError(f"labels must be of a dtype among {', '.join(LABELS)}")
    labels = np.array(value["values"], dtype=value["dtype"])
    _require_json_labels(labels)
    if labels.ndim != 1 or labels.size < 2 or np.unique(labels).size != labels.size:
        raise ValueError("there must be two classes or more, all different")
    if labels.size > 2 and not np.array_equal(np.unique(labels), labels):
        raise ValueError("classes must be in order")
    return labels


def _require_json_labels(classes: NDArray[Any]) -> None:
    """Labels have to survive as JSON."""
    known = classes.dtype.kind == "U" or classes.dtype.name in LABELS
    if not known or not all(isinstance(label, str | int | float) for label in classes.tolist()):
        raise ValueError(
            f"labels of a live model must be text, numbers or booleans; got {classes.tolist()} of dtype {classes.dtype}. "
            "Encode them first."
        )


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """Rows as the problem has them: data, targets, weights; and the user's keys, None where rows have none."""

    X: Matrix
    y: Array
    weight: Array
    keys: tuple[Key, ...] | None

    def select(self, positions: Positions) -> "Rows":
        keys = None if self.keys is None else tuple(self.keys[place] for place in positions.tolist())
        return Rows(self.X[positions], self.y[positions], self.weight[positions], keys)


def concatenate(blocks: Sequence[Rows]) -> Rows:
    """Blocks of rows as one."""
    if len(blocks) == 1:
        return blocks[0]
    return Rows(
        blocks[0].X.concatenate([rows.X for rows in blocks], axis=0),
        np.concatenate([rows.y for rows in blocks]),
        np.concatenate([rows.weight for rows in blocks]),
        None if blocks[0].keys is None else sum((rows.keys or () for rows in blocks), ()),
    )


@final
@dataclass(frozen=True, eq=False)
class NewColumns:
    """Columns that came after the training: their values in those trained rows that were there then."""

    rows: Positions
    X: Matrix
    penalty: Penalty | None

    def select(self, columns: Positions) -> "NewColumns":
        return NewColumns(self.rows, self.X[:, columns], None if self.penalty is None else self.penalty.select(columns))

    def values(self, rows: Positions) -> Matrix:
        """The values in some trained rows; zero in rows that were gone when the columns came."""
        there = np.isin(rows, self.rows)
        places = np.searchsorted(self.rows, rows[there])
        nothing = as_matrix(np.zeros((1, self.X.shape[1])))
        order = np.where(there, np.cumsum(there) - 1, places.size)
        return self.X.concatenate([self.X[places], nothing], axis=0)[order]


FORGOTTEN: Any = object()
"""Stands for the key of a removed row that is not kept any more."""


@final
class TrainedKeys:
    """The keys of the rows of a training; shared by all states until the next one, so that a change copies no keys."""

    def __init__(self, keys: tuple[Key, ...]) -> None:
        self.keys = keys  # one per trained row, ``FORGOTTEN`` for some that are gone

    @cached_property
    def places(self) -> dict[Key, int]:
        return {key: place for place, key in enumerate(self.keys) if key is not FORGOTTEN}

    def forget(self, gone: Positions) -> "TrainedKeys":
        kept = list(self.keys)
        for place in gone.tolist():
            kept[place] = FORGOTTEN
        return TrainedKeys(tuple(kept))


def _no_positions() -> Positions:
    return np.empty(0, dtype=np.intp)


@final
@dataclass(frozen=True, eq=False)
class Pending:
    """A trained problem and the net effect of the changes since.

    The present rows are the trained ones that are left, in their order, then the new ones; the same holds for columns.
    """

    base: Problem  # the problem of the last training
    keys: TrainedKeys | None = None  # the keys of its rows; None where rows have none
    # Trained rows and columns that were removed, in order.
    gone_rows: Positions = field(default_factory=_no_positions)
    gone_columns: Positions = field(default_factory=_no_positions)
    new_rows: tuple[Rows, ...] = ()  # rows that came, in the present columns
    new_columns: tuple[NewColumns, ...] = ()  # columns that came

    @property
    def n_kept_rows(self) -> int:
        """Number of trained rows that are left."""
        return self.base.n_rows - self.gone_rows.size

    @property
    def n_kept_columns(self) -> int:
        """Number of trained columns that are left."""
        return self.base.n_columns - self.gone_columns.size

    @property
    def n_rows(self) -> int:
        return self.n_kept_rows + sum(rows.y.size for rows in self.new_rows)

    @property
    def n_columns(self) -> int:
        return self.n_kept_columns + sum(block.X.shape[1] for block in self.new_columns)

    @property
    def moves_columns(self) -> bool:
        """Whether columns came or went."""
        return bool(self.gone_columns.size or self.new_columns)

    @property
    def empty(self) -> bool:
        return not (self.gone_rows.size or self.new_rows or self.moves_columns)

    @cached_property
    def arrived(self) -> Rows | None:
        """All new rows in one block; None if there are none."""
        return concatenate(self.new_rows) if self.new_rows else None

    @cached_property
    def change(self) -> Change:
        """What happened to the trained problem, as one change in as few steps as possible."""
        everything = np.arange(self.base.n_rows) if self.new_columns else _no_positions()
        steps: list[Change] = [AddColumns(block.values(everything), block.penalty) for block in self.new_columns]
        if self.gone_columns.size:
            steps.append(RemoveColumns(self.gone_columns))
        if self.arrived is not None:
            steps.append(AddRows(self.arrived.X, self.arrived.y, self.arrived.weight))
        if self.gone_rows.size:
            steps.append(RemoveRows(self.gone_rows))
        return steps[0] if len(steps) == 1 else Composite(tuple(steps))

    @cached_property
    def present_keys(self) -> tuple[Key, ...] | None:
        """The keys of the present rows in their order; None where rows have none."""
        if self.keys is None:
            return None
        gone = set(self.gone_rows.tolist())
        kept = tuple(key for place, key in enumerate(self.keys.keys) if place not in gone)
        return kept if self.arrived is None else kept + (self.arrived.keys or ())

    @cached_property
    def _new_places(self) -> dict[Key, int]:
        keys = () if self.arrived is None else self.arrived.keys or ()
        return {key: place for place, key in enumerate(keys)}

    def find_position(self, key: Key) -> int | None:
        """The present position of a key; None where no present row has it."""
        if key in self._new_places:
            return self.n_kept_rows + self._new_places[key]
        place = None if self.keys is None else self.keys.places.get(key)
        if place is None:
            return None
        before = int(np.searchsorted(self.gone_rows, place))
        gone = before < self.gone_rows.size and self.gone_rows[before] == place
        return None if gone else place - before

    def find_positions(self, rows: Any, keys: Any) -> Positions:
        """Present positions of rows named either by position or by key."""
        if (rows is None) == (keys is None):
            raise TypeError("name rows either by position, remove_rows([3]), or by key, remove_rows(keys=['a']).")
        if keys is None:
            return locate_rows(rows, self.n_rows)
        if self.keys is None:
            raise ValueError("rows have no keys: the model was fitted without keys=. Name them by position.")
        named = as_keys(keys)
        found = [self.find_position(key) for key in named]
        unknown = [key for key, place in zip(named, found, strict=True) if place is None]
        if unknown:
            raise ValueError(f"keys must be those of present rows; got {list_some(unknown, repr)}.")
        return np.array(found, dtype=np.intp)

    def check_new_keys(self, keys: Any, count: int) -> tuple[Key, ...] | None:
        """The keys of ``count`` new rows, checked: new, and given if and only if the other rows have some."""
        if self.keys is None:
            if keys is not None:
                raise ValueError("new rows cannot have keys where the others have none: fit with keys= first.")
            return None
        if keys is None:
            raise ValueError("new rows need keys, as the others have them; give keys=.")
        named = as_keys(keys, count)
        taken = [key for key in named if self.find_position(key) is not None]
        if taken:
            raise ValueError(f"keys of new rows must be new; got {list_some(taken, repr)} again.")
        return named

    def to_trained(self, positions: Positions) -> Positions:
        """Present positions of trained rows as positions in the training."""
        return _positions_before(positions, self.gone_rows)

    def take_rows(self, positions: Positions) -> Rows:
        """Present rows, in the present columns, in the given order."""
        old, new = positions < self.n_kept_rows, positions >= self.n_kept_rows
        origin = self.to_trained(positions[old])
        X = self.base.matrix[origin]
        if self.moves_columns:
            kept = np.delete(np.arange(self.base.n_columns), self.gone_columns)
            X = X.concatenate([X[:, kept], *(block.values(origin) for block in self.new_columns)], axis=1)
        keys = None if self.keys is None else tuple(self.keys.keys[place] for place in origin.tolist())
        found = Rows(X, self.base.y[origin], self.base.sample_weight[origin], keys)
        if self.arrived is not None and new.any():
            found = concatenate([found, self.arrived.select(positions[new] - self.n_kept_rows)])
        order = np.concatenate([np.flatnonzero(old), np.flatnonzero(new)])
        return found.select(np.argsort(order))

    def without_rows(self, positions: Positions) -> "Pending":
        """The changes when some present rows are gone too."""
        new = positions[positions >= self.n_kept_rows] - self.n_kept_rows
        gone = np.union1d(self.gone_rows, self.to_trained(positions[positions < self.n_kept_rows])).astype(np.intp)
        rows = self.new_rows
        if new.size:
            assert self.arrived is not None
            kept = np.delete(np.arange(self.arrived.y.size), new)
            rows = (self.arrived.select(kept),) if kept.size else ()
        return replace(self, gone_rows=gone, new_rows=rows)

    def with_rows(self, rows: Rows) -> "Pending":
        return replace(self, new_rows=(*self.new_rows, replace(rows, X=self._convert(rows.X))))

    def without_columns(self, columns: Positions) -> "Pending":
        """The changes when some present columns are gone too."""
        gone = _positions_before(columns[columns < self.n_kept_columns], self.gone_columns)
        kept = np.delete(np.arange(self.n_columns), columns)
        blocks, start = [], self.n_kept_columns
        for block in self.new_columns:
            mine = kept[(kept >= start) & (kept < start + block.X.shape[1])] - start
            start += block.X.shape[1]
            if mine.size:
                blocks.append(block.select(mine))
        rows = () if self.arrived is None else (replace(self.arrived, X=self.arrived.X[:, kept]),)
        return replace(
            self,
            gone_columns=np.union1d(self.gone_columns, gone).astype(np.intp),
            new_rows=rows,
            new_columns=tuple(blocks),
        )

    def with_columns(self, X: Matrix, penalty: Penalty | None) -> "Pending":
        """The changes with more columns, given in all present rows."""
        X = self._convert(X)
        kept = np.delete(np.arange(self.base.n_rows), self.gone_rows)
        block = NewColumns(kept, X[: kept.size], penalty)
        rows = self.new_rows
        if self.arrived is not None:
            rows = (replace(self.arrived, X=X.concatenate([self.arrived.X, X[kept.size :]], axis=1)),)
        return replace(self, new_rows=rows, new_columns=(*self.new_columns, block))

    def _convert(self, X: Matrix) -> Matrix:
        """Data stored as the trained data is, and apart from what the user may still edit."""
        return self.base.matrix.convert(X).copy()


@final
@dataclass(frozen=True, eq=False)
class State:
    """The state of a live model between two calls."""

    spec: ModelSpec  # what is minimised, and the present column names
    solution: Solution  # the stored model
    pending: Pending  # the changes since it was trained
    revision: int  # how many trainings led to the stored model
    # Present rows of weight above 0, by class; of a regression those with negative targets and the others.
    n_weighted: tuple[int, ...]
    digest: str  # the digest of the stored model
    exhausted: bool  # whether the stored model was trained to the limits of float64

    @classmethod
    def from_pending(
        cls, spec: ModelSpec, solution: Solution, pending: Pending, revision: int, exhausted: bool
    ) -> "State":
        """The state with some changes since a training, counted and digested afresh."""
        kept = np.delete(np.arange(pending.base.n_rows), pending.gone_rows)
        counts = spec.count_rows(pending.base.y[kept], pending.base.sample_weight[kept])
        if pending.arrived is not None:
            counts = _add_counts(counts, spec.count_rows(pending.arrived.y, pending.arrived.weight))
        digest = digest_model(spec.to_json(), solution.coef, solution.intercept)
        return cls(spec, solution, pending, revision, counts, digest, exhausted)

    @cached_property
    def proofs(self) -> Proofs:
        """What is proven about the retrained model."""
        return Proofs(self.solution, self.pending.change, bool(self.pending.gone_rows.size))

    @property
    def n_columns(self) -> int:
        return self.pending.n_columns - self.spec.offset

    @cached_property
    def stored_coef(self) -> Array:
        """The stored coefficients in the present columns; new columns have none yet."""
        kept = np.delete(self.solution.coef, self.pending.gone_columns, axis=-1)
        return np.concatenate([kept, np.zeros((*kept.shape[:-1], self.pending.n_columns - kept.shape[-1]))], axis=-1)

    def with_rows(self, X: Any, y: Any, sample_weight: Any, keys: Any) -> "State":
        matrix = self.spec.convert_rows(X, self.pending.n_columns, "new rows")
        target, weight = self.spec.convert_targets(y, sample_weight, matrix.shape[0])
        named = self.pending.check_new_keys(keys, target.size)
        return replace(
            self,
            pending=self.pending.with_rows(Rows(matrix, target, weight, named)),
            n_weighted=_add_counts(self.n_weighted, self.spec.count_rows(target, weight)),
        )

    def without_rows(self, positions: Positions, rows: Rows) -> "State":
        """The state without some present rows, which are also given in full."""
        if positions.size == self.pending.n_rows:
            raise ValueError(f"at least one row must be left; got the removal of all {positions.size}.")
        left = _add_counts(self.n_weighted, tuple(-number for number in self.spec.count_rows(rows.y, rows.weight)))
        if sum(left) == 0:
            raise ValueError("a row of weight above 0 must be left; got the removal of all of them.")
        if self.spec.classes is not None and 0 in left:
            raise ValueError(
                f"{'both classes' if len(left) == 2 else 'all classes'} must be left; got the removal of every row of class {self.spec.classes.tolist()[left.index(0)]!r} "
                "that has a weight above 0. Add others of it first."
            )
        return replace(self, pending=self.pending.without_rows(positions), n_weighted=left)

    def with_columns(self, X: Any) -> "State":
        matrix, names = _inputs.as_matrix(X, "new columns")
        if matrix.shape[0] != self.pending.n_rows:
            raise ValueError(
                f"new columns must have {self.pending.n_rows} rows, as there are now; got {matrix.shape[0]}."
            )
        count = matrix.shape[1]
        penalty = self.spec.objective.penalty(count)
        return replace(
            self,
            spec=self.spec.with_columns(names, count, self.pending.n_columns),
            pending=self.pending.with_columns(matrix, None if penalty.n_columns is None else penalty),
        )

    def without_columns(self, columns: Positions) -> "State":
        """The state without some present columns of the problem."""
        if columns.size == self.n_columns:
            raise ValueError(f"at least one column must be left; got the removal of all {columns.size}.")
        return replace(self, spec=self.spec.without_columns(columns), pending=self.pending.without_columns(columns))

    def with_solution(self, solution: Solution, exhausted: bool) -> "State":
        """The state after a training of the present problem."""
        keys = self.pending.present_keys
        pending = Pending(solution.problem, None if keys is None else TrainedKeys(keys))
        return State.from_pending(self.spec, solution, pending, self.revision + 1, exhausted)

    def forget_keys(self) -> "State":
        """The state without the keys of removed rows that the training had."""
        keys = self.pending.keys
        if keys is None or not self.pending.gone_rows.size:
            return self
        return replace(self, pending=replace(self.pending, keys=keys.forget(self.pending.gone_rows)))


def _add_counts(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(one + other for one, other in zip(first, second, strict=True))


def as_keys(keys: Any, count: int | None = None) -> tuple[Key, ...]:
    """Keys as JSON scalars, distinct, and as many as there are rows."""
    if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
        raise TypeError(f"keys must be a sequence with one key per row; got {keys!r}.")
    named = tuple(key.item() if isinstance(key, np.generic) else key for key in keys)
    for key in named:
        if not (key is None or isinstance(key, str | int | float)) or key != key or key in (np.inf, -np.inf):
            raise TypeError(f"keys must be text, finite numbers, booleans or None; got {key!r}.")
    if count is not None and len(named) != count:
        raise ValueError(f"keys must have one entry per row, {count}; got {len(named)}.")
    if len(set(named)) != len(named):
        seen: set[Key] = set()
        twice = [key for key in named if key in seen or seen.add(key)]  # type: ignore[func-returns-value]
        raise ValueError(f"keys must be distinct; got {list_some(twice, repr)} more than once.")
    return named


def _positions_before(positions: Positions, gone: Positions) -> Positions:
    """Positions among what is left as positions before the ordered ``gone`` ones went."""
    return positions + np.searchsorted(gone - np.arange(gone.size), positions, side="right")


# Digests: SHA-256 over bytes that do not depend on how data is stored; docs/receipts.md says which bytes.


def parse_json(text: str | bytes) -> Any:
    """The value of JSON text in which no object has a key twice: readers differ in which of the two they take."""
    return json.loads(text, object_pairs_hook=_require_distinct)


def _require_distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"each key of an object must be there once; got {key[:50]!r} again")
        found[key] = value
    return found


def digest_json(value: Any) -> str:
    """The digest of a JSON value: keys in order, no spaces, UTF-8."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_rows(X: Matrix, y: Array, weight: Array) -> list[str]:
    """One digest per row: number of columns, columns and values that are not zero, target, weight."""
    found = []
    width = np.array([X.shape[1]], dtype="<i8").tobytes()
    ends = np.column_stack([y, weight]).astype("<f8") + 0.0
    for k, (columns, values) in enumerate(X.nonzeros()):
        row = hashlib.sha256(b"glru-row/1" + width)
        row.update(columns.astype("<i8").tobytes())
        row.update(values.astype("<f8").tobytes())
        row.update(ends[k].tobytes())
        found.append(row.hexdigest())
    return found


def digest_data(rows: list[str]) -> str:
    """The digest of a set of rows, independent of their order, from the digests of the rows."""
    return hashlib.sha256("".join(sorted(rows)).encode()).hexdigest()


def digest_model(spec: dict[str, Any], coef: Array, intercept: Any) -> str:
    """The digest of a model: its specification without the names of columns, its coefficients, class by class, and its intercepts."""
    nameless = {key: value for key, value in spec.items() if key != "column_names"}
    model = {"coef": coef.ravel().tolist(), "intercept": np.asarray(intercept, dtype=np.float64).tolist()}
    return digest_json({"terms": nameless} | model)
