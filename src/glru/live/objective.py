"""What a live model minimises: the adapters' objective and targets, with the present column names, in a form that can be stored."""

from dataclasses import asdict, dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru.changes import Layout, column_positions, rows_of
from glru.linalg import Array, Matrix
from glru.losses import (
    Gamma,
    Hinge,
    Huber,
    Logistic,
    Loss,
    Multinomial,
    Poisson,
    SmoothedHinge,
    Squared,
    SquaredHinge,
    Tweedie,
)
from glru.problem import Problem
from glru.regions.classes import has_classes
from glru.sklearn import Adapted
from glru.sklearn.objectives import Objective
from glru.sklearn.targets import Targets

LOSSES: dict[str, type[Loss]] = {
    kind.__name__: kind
    for kind in (Squared, Huber, Logistic, Multinomial, SquaredHinge, SmoothedHinge, Hinge, Poisson, Gamma, Tweedie)
}
"""Every loss by the name it is stored under."""

LABELS = (
    "str",
    "object",
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float32",
    "float64",
)
"""The dtypes that labels can have."""


@final
@dataclass(frozen=True, eq=False)
class ModelSpec:
    """The objective of a live model, its classes and its column names.

    Attributes
    ----------
    objective : Objective
        What the estimator minimises.
    targets : Targets
        The classes and their weights, without any rows.
    column_names : tuple of str or None
        The names of the user's columns, where they have names.
    """

    objective: Objective
    targets: Targets
    column_names: tuple[str, ...] | None

    @classmethod
    def of(cls, adapted: Adapted) -> "ModelSpec":
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
            require_hessian(adapted.problems[0])
        if objective.quadratic == 0.0 and (objective.absolute > 0.0 or objective.loss.self_concordance is None):
            raise ValueError(
                "a live model needs a penalty with squares in it, or none at all with a smooth loss (logistic, squared, log link): otherwise "
                "nothing is proven after a change. Use an L2 penalty, or an elastic net with l1_ratio below 1."
            )
        factors = (1.0, 1.0)
        if classes is not None:
            _require_plain(classes)
            factors = tuple(adapted.targets.weighted(0, classes, np.ones(classes.size)).tolist())
        names = adapted.problems[0].column_names
        return cls(objective, _targets(objective, classes, factors), None if names is None else names[adapted.offset :])

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

    def count(self, y: Array, weight: Array) -> tuple[int, ...]:
        """Rows of weight above 0, by class; of a regression those with negative targets and the others."""
        places = y.astype(np.intp) if self.objective.loss.several else (y >= 0.0).astype(np.intp)
        return tuple(np.bincount(places[weight > 0.0], minlength=self.n_classes).tolist())

    @property
    def offset(self) -> int:
        """Where the user's columns start in the problem: 1 behind a constant column, else 0."""
        return int(self.objective.constant is not None)

    def rows(self, X: Any, n_columns: int, what: str) -> Matrix:
        """Rows of the user in the ``n_columns`` columns of the problem; errors call them ``what``."""
        return rows_of(X, what, n_columns, self.column_names, self.objective.constant)

    def labelled(self, y: Any, sample_weight: Any, count: int) -> tuple[Array, Array]:
        """Targets and weights of rows as the problem has them: -1 and +1 for two classes, places for more; weights times those of the classes."""
        labels = self.targets.check(y, count)
        weight = np.ones(count)
        if sample_weight is not None:
            weight = _inputs.as_vector(sample_weight, count, "sample_weight")
            _inputs.require_non_negative(weight)
        values = labels
        if self.classes is not None and self.objective.loss.several:
            values = np.searchsorted(self.classes, labels).astype(np.intp)
        elif self.classes is not None:
            values = self.targets.signs(0, labels)
        if self.classes is None:
            self.objective.loss.check_targets(values)
        return values, self.targets.weighted(0, labels, weight)

    def columns(self, columns: Any, n_columns: int) -> NDArray[np.intp]:
        """Columns of the user, by position or name, as columns of the problem."""
        layout = Layout(
            1, n_columns - self.offset, self.column_names, None, self.objective.penalty(n_columns), self.objective.loss
        )
        return column_positions(columns, layout) + self.offset

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
        """The specification as JSON values."""
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
        """The specification that :meth:`to_json` wrote; an error where the value is something else."""
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
        loss = LOSSES[parameters.pop("name")](**parameters)
        names = value["column_names"]
        if value["scaling"] not in ("mean", "sum"):
            raise ValueError("scaling must be 'mean' or 'sum'")
        if value["targets"] not in (("numbers",) if value["classes"] is None else ("labels", "signs")):
            raise ValueError("targets do not fit the classes")
        if (loss.task == "classification") != (value["targets"] == "labels"):
            raise ValueError("targets do not fit the loss")
        if classes is not None and (classes.size > 2) != loss.several:
            raise ValueError("there must be two classes, or more for a multinomial model")
        objective = Objective(
            loss=loss,
            quadratic=strengths[0],
            absolute=strengths[1],
            scaling=value["scaling"],
            intercept=value["intercept"] is True,
            constant=constant,
            targets=value["targets"],
            probabilities=loss.probabilities,
        )
        targets = _targets(objective, classes, tuple(strengths[2:]))
        return cls(objective, targets, None if names is None else tuple(str(name) for name in names))


def require_hessian(problem: Problem) -> None:
    """Refuse a multinomial problem whose Hessian is too large to form."""
    if not has_classes(problem):
        raise ValueError(
            f"a live model with {problem.loss!r} forms a Hessian over classes and columns, of at most {problem.largest} unknowns; got "
            f"{problem.n_scores} classes of {problem.n_columns} columns. Use fewer columns, or one live model per class."
        )


def _targets(objective: Objective, classes: NDArray[Any] | None, factors: tuple[float, ...]) -> Targets:
    """The targets of no rows, which tell what further rows become."""
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
    _require_plain(labels)
    if labels.ndim != 1 or labels.size < 2 or np.unique(labels).size != labels.size:
        raise ValueError("there must be two classes or more, all different")
    if labels.size > 2 and not np.array_equal(np.unique(labels), labels):
        raise ValueError("classes must be in order")
    return labels


def _require_plain(classes: NDArray[Any]) -> None:
    """Labels have to survive as JSON."""
    known = classes.dtype.kind == "U" or classes.dtype.name in LABELS
    if not known or not all(isinstance(label, str | int | float) for label in classes.tolist()):
        raise ValueError(
            f"labels of a live model must be text, numbers or booleans; got {classes.tolist()} of dtype {classes.dtype}. "
            "Encode them first."
        )
