"""An estimator and its data as problems: one, or one per class, and the way back to labels and coefficients."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from glru import _inputs
from glru.bounds import Bounds, ScoreBounds, predicted
from glru.changes.base import matched_columns
from glru.linalg import Array, Matrix, as_matrix, to_dense, to_host
from glru.point import Point
from glru.problem import Problem
from glru.sklearn.objectives import Objective, penalty_of
from glru.sklearn.targets import Targets

CONSTANT = "(intercept)"
"""The name of the column whose coefficient is a penalised intercept."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class Adapted:
    """An estimator's objective on its data, as problems of this library.

    Made by :func:`glru.sklearn.adapt`. A penalised intercept is the coefficient of a constant first column, so column
    ``j`` of the data is column ``j + offset`` of the problems. Behind a scaler the columns are the scaled ones.

    Attributes
    ----------
    estimator : estimator
        The linear model, out of its pipeline or wrapper.
    objective : Objective
        What it minimises.
    problems : tuple of Problem
        One problem; one per class where there are more than two.
    targets : Targets
        The classes, and what each problem sees of y and of the weights.
    scaler : StandardScaler or None
        The scaler in front of the model, fitted on the data.
    """

    estimator: Any
    objective: Objective
    problems: tuple[Problem, ...]
    targets: Targets
    scaler: Any = None
    X: Any = None

    @property
    def classes(self) -> NDArray[Any] | None:
        """The classes in sorted order; None for a regression."""
        return self.targets.classes

    @property
    def offset(self) -> int:
        """Where the columns of the data start in the problems: 1 behind a constant column, else 0."""
        return 0 if self.objective.constant is None else 1

    @property
    def shifts(self) -> str | None:
        """Why leaving out a row changes more than that row; None where it does not."""
        if self.scaler is not None:
            return "the StandardScaler in the pipeline is fitted anew"
        if self.targets.balanced:
            return "class_weight='balanced' weights every row anew"
        return None

    def named(self, names: tuple[str, ...]) -> "Adapted":
        """The same with names for the columns of the data."""
        known = (CONSTANT, *names) if self.offset else names
        return replace(self, problems=tuple(problem.derive(column_names=known) for problem in self.problems))

    def rows(self, X: Any) -> Matrix:
        """Rows of the caller's data (queries, new rows) in the columns of the problems."""
        first = self.problems[0]
        known = None if first.column_names is None else first.column_names[self.offset :]
        return rows_of(X, "rows", first.n_columns, known, self.objective.constant, self.scaler)

    def fold(self, k: int, train: NDArray[np.intp]) -> Problem:
        """The ``k``-th problem of an estimator fitted to some rows only, in the rows and columns of this one.

        Rows that are left out have weight zero. A scaler fitted to fewer rows scales by other factors ``f_j``: in the
        present columns that is the penalty of ``w_j / f_j``, and a shift that an unpenalised intercept takes up.
        """
        problem = self.problems[k]
        weight = np.zeros(problem.n_rows)
        np.add.at(weight, train, self.targets.weights(k, train))
        penalty = problem.penalty
        if self.scaler is not None and self.scaler.with_std:
            from sklearn.base import clone

            ratio = np.ones(problem.n_columns)
            ratio[self.offset :] = clone(self.scaler).fit(self.X[train]).scale_ / self.scaler.scale_
            penalty = penalty_of(penalty.quadratic * ratio**2, penalty.absolute * ratio)
        return problem.derive(sample_weight=weight, penalty=penalty)

    def points(self, fitted: Any) -> tuple[Point, ...]:
        """The fitted coefficients of the estimator as points of the problems."""
        coef, intercept = self._fitted(fitted)
        if coef.shape != (len(self.problems), self.problems[0].n_columns - self.offset):
            raise ValueError(
                f"the estimator must have been fitted to this data: {len(self.problems)} model(s) of "
                f"{self.problems[0].n_columns - self.offset} coefficients; got coefficients of shape {coef.shape}."
            )
        if self.objective.constant is not None:
            column = (intercept / self.objective.constant)[:, None]
            return tuple(Point(row) for row in np.hstack([column, coef]))
        return tuple(Point(row, float(b)) for row, b in zip(coef, intercept, strict=True))

    def _fitted(self, fitted: Any) -> tuple[Array, Array]:
        """Coefficients and intercepts of a fitted estimator in the columns of the problems, one row a problem."""
        scaler = None
        if is_a(fitted, "Pipeline"):
            scaler, fitted = scaler_of(fitted), fitted.steps[-1][1]
        models = fitted.estimators_ if is_a(fitted, "OneVsRestClassifier") else [fitted]
        coef = np.vstack([np.atleast_2d(to_dense(model.coef_)) for model in models]).astype(np.float64)
        intercept = np.concatenate(
            [np.atleast_1d(np.asarray(to_host(model.intercept_), dtype=np.float64)) for model in models]
        )
        intercept = np.broadcast_to(intercept, (coef.shape[0],))
        if scaler is None:
            return coef, intercept
        # Out of the coordinates of the scaler the model was fitted behind, into those of the present one.
        raw = coef / _factors(scaler)
        intercept = intercept - raw @ _shifts(scaler, coef.shape[1])
        return raw * _factors(self.scaler), intercept + raw @ _shifts(self.scaler, coef.shape[1])

    def coefficients(self, points: tuple[Point, ...]) -> tuple[Array, Array]:
        """``coef_`` and ``intercept_`` as the estimator has them, one row a problem."""
        coef = np.vstack([point.coef[self.offset :] for point in points])
        if self.objective.constant is not None:
            return coef, np.array([point.coef[0] * self.objective.constant for point in points])
        return coef, np.array([point.intercept for point in points])

    def stacked(self, columns: list[Array]) -> Array:
        """One array a problem in the shape of ``decision_function`` (or of ``predict`` in a regression)."""
        return columns[0] if len(columns) == 1 else np.column_stack(columns)

    def bounds(self, parts: Sequence[Bounds]) -> ScoreBounds:
        """Bounds of the scores of every problem in the shape of ``decision_function``."""
        lower, upper = (self.stacked([part[end] for part in parts]) for end in (0, 1))
        return ScoreBounds(lower, upper)

    def labels(self, scores: Array) -> NDArray[Any]:
        """The classes that scores stand for, as ``predict`` gives them."""
        assert self.classes is not None
        return self.classes[predicted(scores)]

    def targets_of(self, y: NDArray[Any]) -> NDArray[Any]:
        """Targets as :class:`~glru.bounds.ScoreBounds` takes them: -1 and +1, or places of classes."""
        assert self.classes is not None
        return self.targets.signs(0, y) if len(self.problems) == 1 else np.searchsorted(self.classes, y)

    def probabilities(self, scores: Array) -> Array:
        """The probabilities that scores stand for, as ``predict_proba`` gives them."""
        self.require_probabilities()
        return probabilities_of(scores)

    def require_probabilities(self) -> None:
        """Refuse an estimator whose scores are not log-odds."""
        if not self.objective.probabilities:
            raise ValueError(
                f"probabilities need the logistic loss; {type(self.estimator).__name__} has another one. "
                "Use decision_function."
            )

    def __repr__(self) -> str:
        return f"Adapted({type(self.estimator).__name__}, {len(self.problems)} x {self.problems[0]!r})"


def rows_of(
    X: Any, what: str, n_columns: int, names: tuple[str, ...] | None, constant: float | None, scaler: Any = None
) -> Matrix:
    """Rows of the caller's data (queries, new rows) in the ``n_columns`` columns of a problem.

    Parameters
    ----------
    X : array, sparse matrix or frame
        The rows; the columns of a frame are matched by name.
    what : str
        What errors call them.
    n_columns : int
        Columns of the problem, a constant one included.
    names : tuple of str or None
        The names of the caller's columns.
    constant, scaler : float or None, StandardScaler or None
        As in :func:`prepared`.
    """
    matrix, given = _inputs.as_matrix(X, what)
    expected = n_columns - int(constant is not None)
    if matrix.shape[1] != expected:
        raise ValueError(f"{what} must have {expected} columns, as the model has; got {matrix.shape[1]}.")
    return prepared(matched_columns(matrix, given, names), scaler, constant)


def probabilities_of(scores: Array) -> Array:
    """The probability of every class from log-odds; those of several classes are one-vs-rest, normalised."""
    likely = expit(scores)
    if scores.ndim == 1:
        return np.column_stack([1.0 - likely, likely])
    return likely / likely.sum(axis=1, keepdims=True)


def prepared(matrix: Matrix, scaler: Any, constant: float | None) -> Matrix:
    """Rows scaled and with a constant first column, as far as the model has these."""
    if scaler is not None:
        matrix.require_host("behind a scaler rows must be on the host")
        matrix = as_matrix(scaler.transform(matrix.data))
    if constant is None:
        return matrix
    column = as_matrix(np.full((matrix.shape[0], 1), constant))
    return matrix.concatenate([column, matrix], axis=1)


def is_a(estimator: Any, name: str) -> bool:
    """Whether an estimator is scikit-learn's of that name; no subclass, which may do something else."""
    return type(estimator).__name__ == name and type(estimator).__module__.startswith("sklearn.")


def scaler_of(pipeline: Any) -> Any:
    """The scaler of a pipeline that has nothing else in front of its model; None where there is none."""
    steps = [step for _, step in pipeline.steps[:-1] if step is not None and step != "passthrough"]
    if len(steps) > 1 or not all(is_a(step, "StandardScaler") for step in steps):
        shown = ", ".join(type(step).__name__ for step in steps)
        raise ValueError(
            f"a pipeline may have one StandardScaler in front of its model; got {shown}. Such steps are fitted anew in "
            "every fold, and what that changes is not known here. Transform the data first and give the model alone."
        )
    return steps[0] if steps else None


def _factors(scaler: Any) -> Array | float:
    return scaler.scale_ if scaler is not None and scaler.with_std else 1.0


def _shifts(scaler: Any, n_columns: int) -> Array:
    return scaler.mean_ if scaler is not None and scaler.with_mean else np.zeros(n_columns)
