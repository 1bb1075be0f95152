"""The terms a live model is trained under: what it minimises, and how rows and labels of the user become its own."""

from dataclasses import asdict, dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru.bounds import predicted
from glru.changes.base import Layout, column_positions, matched_columns
from glru.linalg import Array, Matrix
from glru.losses import Hinge, Huber, Logistic, Loss, SmoothedHinge, Squared, SquaredHinge
from glru.problem import Problem
from glru.sklearn import Adapted
from glru.sklearn.adapted import prepared
from glru.sklearn.objectives import Objective

LOSSES: dict[str, type[Loss]] = {
    kind.__name__: kind for kind in (Squared, Huber, Logistic, SquaredHinge, SmoothedHinge, Hinge)
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
class Terms:
    """What a live model minimises, in values that can be stored as JSON.

    Attributes
    ----------
    objective : Objective
        The objective of the estimator.
    classes : array of shape (2,) or None
        The labels that -1 and +1 stand for; None for a regression.
    factors : tuple of float
        Factors of the sample weights in the two classes.
    column_names : tuple of str or None
        The names of the user's columns, where they have names.
    """

    objective: Objective
    classes: NDArray[Any] | None
    factors: tuple[float, float]
    column_names: tuple[str, ...] | None

    @classmethod
    def of(cls, adapted: Adapted) -> "Terms":
        """The terms of an estimator on its first data; an error where they would shift with the data."""
        if adapted.shifts is not None:
            raise ValueError(
                f"a live model needs an objective that stays when the data changes, but here {adapted.shifts}. "
                "Scale or weight the data first and give the model alone."
            )
        classes = adapted.classes
        if classes is not None and classes.size != 2:
            raise ValueError(
                f"a live model needs two classes or a regression; got {classes.size} classes. "
                "Keep one live model a class, each with that class against the rest."
            )
        objective = adapted.objective
        if objective.quadratic == 0.0 and (objective.absolute > 0.0 or objective.loss.self_concordance is None):
            raise ValueError(
                "a live model needs a penalty with squares in it, or none at all with a logistic or squared loss: otherwise "
                "nothing is proven after a change. Use an L2 penalty, or an elastic net with l1_ratio below 1."
            )
        factors = (1.0, 1.0)
        if classes is not None:
            _require_plain(classes)
            low, high = adapted.targets.weighted(0, classes, np.ones(2)).tolist()
            factors = (low, high)
        names = adapted.problems[0].column_names
        return cls(objective, classes, factors, None if names is None else names[adapted.offset :])

    @property
    def offset(self) -> int:
        """Where the user's columns start in the problem: 1 behind a constant column, else 0."""
        return 0 if self.objective.constant is None else 1

    def problem(self, X: Matrix, y: Array, weight: Array) -> Problem:
        """The problem of rows that are already in its terms."""
        return Problem(
            X,
            y,
            loss=self.objective.loss,
            penalty=self.objective.penalty(X.shape[1]),
            fit_intercept=self.objective.intercept,
            scaling=self.objective.scaling,
            sample_weight=weight,
        )

    def rows(self, X: Any, n_columns: int, what: str) -> Matrix:
        """Rows of the user in the columns of the problem, of which there are ``n_columns``."""
        matrix, names = _inputs.as_matrix(X, what)
        expected = n_columns - self.offset
        if matrix.shape[1] != expected:
            raise ValueError(f"{what} must have {expected} columns, as the model has now; got {matrix.shape[1]}.")
        return prepared(matched_columns(matrix, names, self.column_names), None, self.objective.constant)

    def targets(self, y: Any, count: int) -> Array:
        """Targets of the user as the problem has them: numbers, or -1 and +1 for the two classes."""
        if self.classes is None:
            return _inputs.as_vector(y, count, "y")
        raw = np.atleast_1d(_inputs.as_array(y, "y"))
        raw = raw[:, 0] if raw.ndim == 2 and raw.shape[1] == 1 else raw
        if raw.shape != (count,):
            raise ValueError(f"y must have one label a row, shape ({count},); got shape {raw.shape}.")
        known = [(label == self.classes[0]) or (label == self.classes[1]) for label in raw.tolist()]
        if not all(known):
            unknown = sorted({str(label) for label, fine in zip(raw.tolist(), known, strict=True) if not fine})
            raise ValueError(f"labels must be among {self.classes.tolist()}; got {', '.join(unknown[:5])}.")
        return np.where(raw == self.classes[1], 1.0, -1.0)

    def weights(self, y: Array, sample_weight: Any) -> Array:
        """Weights of rows with targets ``y`` in the problem: sample weights times the factors of their classes."""
        weight = np.ones(y.size)
        if sample_weight is not None:
            weight = _inputs.as_vector(sample_weight, y.size, "sample_weight")
            if np.any(weight < 0.0):
                raise ValueError(f"sample_weight must be at least 0; got {weight.min()}.")
        return weight if self.classes is None else weight * np.where(y > 0.0, self.factors[1], self.factors[0])

    def columns(self, columns: Any, n_columns: int) -> NDArray[np.intp]:
        """Columns of the user, by position or name, as columns of the problem."""
        layout = Layout(1, n_columns - self.offset, self.column_names, None, self.objective.penalty(n_columns))
        return column_positions(columns, layout) + self.offset

    def without_columns(self, columns: NDArray[np.intp]) -> "Terms":
        """The terms when some columns of the problem are gone."""
        if self.column_names is None:
            return self
        gone = set((columns - self.offset).tolist())
        return replace(self, column_names=tuple(name for j, name in enumerate(self.column_names) if j not in gone))

    def with_columns(self, names: tuple[str, ...] | None, count: int, n_columns: int) -> "Terms":
        """The terms with ``count`` more columns behind ``n_columns`` of the problem."""
        if self.column_names is None:
            return self
        new = names or tuple(f"column {n_columns - self.offset + k}" for k in range(count))
        twice = sorted(set(new) & set(self.column_names)) or sorted({name for name in new if new.count(name) > 1})
        if twice:
            raise ValueError(f"new columns must have new names; got {', '.join(twice)} again.")
        return replace(self, column_names=self.column_names + new)

    def labels(self, scores: Array) -> NDArray[Any]:
        """The classes that scores stand for, as ``predict`` gives them; the scores themselves for a regression."""
        return scores if self.classes is None else self.classes[predicted(scores)]

    def to_json(self) -> dict[str, Any]:
        """The terms as JSON values."""
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
    def from_json(cls, value: Any) -> "Terms":
        """The terms that :meth:`to_json` wrote; an error where they are not that."""
        try:
            return cls._read(value)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ValueError(f"the terms of the model cannot be read: {error!r}.") from None

    @classmethod
    def _read(cls, value: Any) -> "Terms":
        parameters = dict(value["loss"])
        strengths = [float(value["quadratic"]), float(value["absolute"]), *map(float, value["factors"])]
        constant = None if value["constant"] is None else float(value["constant"])
        finite = np.all(np.isfinite([*strengths, constant or 0.0]))
        if len(strengths) != 4 or not finite or min(strengths) < 0.0:
            raise ValueError("strengths must be finite and at least 0")
        loss = LOSSES[parameters.pop("name")](**parameters)
        classes, names = value["classes"], value["column_names"]
        if value["scaling"] not in ("mean", "sum"):
            raise ValueError("scaling must be 'mean' or 'sum'")
        if value["targets"] not in (("numbers",) if classes is None else ("labels", "signs")):
            raise ValueError("targets do not fit the classes")
        if (loss.task == "classification") != (value["targets"] == "labels"):
            raise ValueError("targets do not fit the loss")
        labels = None
        if classes is not None:
            if classes["dtype"] not in LABELS:
                raise ValueError(f"labels must be of a dtype among {', '.join(LABELS)}")
            labels = np.array(classes["values"], dtype=classes["dtype"])
            _require_plain(labels)
            if labels.shape != (2,) or labels[0] == labels[1]:
                raise ValueError("there must be two classes")
        objective = Objective(
            loss=loss,
            quadratic=strengths[0],
            absolute=strengths[1],
            scaling=value["scaling"],
            intercept=value["intercept"] is True,
            constant=constant,
            targets=value["targets"],
        )
        return cls(
            objective, labels, (strengths[2], strengths[3]), None if names is None else tuple(str(n) for n in names)
        )


def _require_plain(classes: NDArray[Any]) -> None:
    """Labels have to survive as JSON."""
    known = classes.dtype.kind == "U" or classes.dtype.name in LABELS
    if not known or not all(isinstance(label, str | int | float) for label in classes.tolist()):
        raise ValueError(
            f"labels of a live model must be text, numbers or booleans; got {classes.tolist()} of dtype {classes.dtype}. "
            "Encode them first."
        )
