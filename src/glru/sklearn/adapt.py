"""An estimator and its data as one problem or one per class, and the way back: scores to labels, points to coefficients."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from glru import _inputs
from glru.bounds import Bounds, ScoreBounds, predicted
from glru.changes import prepend_constant, rows_of
from glru.duality import penalise_dependent_columns
from glru.linalg import UNIT, Array, Matrix, to_dense, to_host
from glru.losses import Multinomial
from glru.losses.logistic import softmax
from glru.problem import Point, Problem
from glru.sklearn.column_maps import ColumnChanges, follow
from glru.sklearn.columns import Splits
from glru.sklearn.objectives import EstimatorObjective, Seen, Targets, objective_of, targets_of
from glru.sklearn.preprocessing import Preprocessing, count_rows, fit_steps, is_a, keep_steps, steps_of
from glru.updates.refits import Refits, Variant, rescale

CONSTANT = "(intercept)"
"""The name of the column whose coefficient is a penalised intercept."""

MIN_VARIANT = 4
"""Rows whose removal changes a filled value in the same way get a shared model if there are at least this many."""

MAX_KEPT = 2**23
"""Entries of refitted columns that are kept from one class to the next."""


@final
@dataclass(frozen=True, eq=False)
class Fold:
    """The problems of a split."""

    problems: tuple[Problem, ...]  # one problem, or one per class; the test rows have weight zero
    test: NDArray[np.intp]  # the places of the test rows in them
    aligned: bool  # whether they have the rows and columns of the problems of all rows


@final
@dataclass(frozen=True, eq=False, repr=False)
class Adapted:
    """An estimator's objective on its data, as problems of this library.

    Made by :func:`glru.sklearn.adapt`. A penalised intercept is the coefficient of a constant first column, so column
    ``j`` of the data is column ``j + offset`` of the problems. In a pipeline the data is what the steps in front of the model make of it.
    """

    estimator: Any  # the linear model, out of its pipeline or wrapper
    objective: EstimatorObjective  # what it minimises
    problems: tuple[Problem, ...]  # one problem; one per class where there are more than two
    targets: Targets  # the classes, and what each problem sees of y and of the weights
    preprocessing: Preprocessing | None = None  # the steps in front of the model, fitted to the data

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
        """Why leaving out a row changes more than that row; None if it does not."""
        if self.preprocessing is not None:
            return f"the steps in front of the model ({self.preprocessing.described}) are refitted"
        if self.targets.balanced:
            return "class_weight='balanced' reweights every row"
        return None

    def with_names(self, names: tuple[str, ...]) -> "Adapted":
        """The adapted estimator with names for the columns of the data."""
        known = (CONSTANT, *names) if self.offset else names
        return replace(self, problems=tuple(problem.derive(column_names=known) for problem in self.problems))

    def rows(self, X: Any) -> Matrix:
        """Convert rows of the caller's data (queries, new rows) to the columns of the problems."""
        if self.preprocessing is not None:
            return prepend_constant(self.preprocessing.transform(X), self.objective.constant)
        first = self.problems[0]
        known = None if first.column_names is None else first.column_names[self.offset :]
        return rows_of(X, "rows", first.n_columns, known, self.objective.constant)

    def find_changes(self, splits: Splits) -> ColumnChanges | None:
        """How fitting the steps to the train rows of each split changes the columns; None without preprocessing steps."""
        return None if self.preprocessing is None else self._follow(splits)

    def folds(self, splits: Splits, changes: ColumnChanges | None = None) -> Iterator["Fold"]:
        """The problems of an estimator fitted to the train rows of each split, in which its test rows have weight zero.

        Steps in front of the model are fitted to the train rows: where what that changes of the columns of all rows is known, as
        a change of the penalty and of filled values, otherwise in the columns that those steps make. ``changes``: those of
        :meth:`find_changes`, if they are known already.
        """
        changes = self.find_changes(splits) if changes is None else changes
        for k, (train, test) in enumerate(splits):
            if changes is None or not changes.alone[k]:
                weights, n_rows = self._weights_of(train), self.targets.y.size
                spread = [np.asarray(np.bincount(train, w, n_rows), dtype=np.float64) for w in weights]
                yield Fold(self.apply_changes(changes, k, spread), test, True)
            else:
                yield self.refit_split(train, test)

    def apply_changes(self, changes: ColumnChanges | None, k: int, weights: Sequence[Array]) -> tuple[Problem, ...]:
        """The problems with the columns as the ``k``-th split changes them."""
        first, n_first = self.problems[0], self.offset
        derived: dict[str, Any] = {}
        if changes is not None and changes.strengths is not None:
            derived["penalty"] = rescale(first.penalty, np.append(np.ones(n_first), changes.strengths[k]))
        if changes is not None and changes.fills is not None and changes.filled is not None:
            places = np.flatnonzero(changes.fills[k])
            values = first.matrix.dense(places + n_first) + changes.filled[:, places] * changes.fills[k, places]
            derived["X"] = first.matrix.replace_columns(places + n_first, values)
        pairs = zip(self.problems, weights, strict=True)
        return tuple(problem.derive(sample_weight=weight, **derived) for problem, weight in pairs)

    def _weights_of(self, train: NDArray[np.intp]) -> list[Array]:
        """The weights of the train rows of a split in every problem."""
        return [self.targets.weights(k, train) for k in range(len(self.problems))]

    def refit_split(self, train: NDArray[np.intp], test: NDArray[np.intp]) -> "Fold":
        """The problems of a split, with columns made by steps fitted to its train rows: its train rows, then its test rows."""
        assert self.preprocessing is not None
        X = prepend_constant(self.preprocessing.split(train, test), self.objective.constant)
        rows, penalty = np.concatenate([train, test]), self.objective.penalty(X.shape[1])
        problems = tuple(
            problem.derive(
                X=X,
                y=problem.y[rows],
                sample_weight=np.append(weight, np.zeros(test.size)),
                penalty=penalty,
                column_names=None,
            )
            for problem, weight in zip(self.problems, self._weights_of(train), strict=True)
        )
        return Fold(problems, train.size + np.arange(test.size), False)

    def without(self, k: int, row: int) -> Problem:
        """The ``k``-th problem of an estimator fitted without a row, which has weight zero there."""
        others = np.delete(np.arange(self.targets.y.size), row)
        weight = np.insert(self.targets.weights(k, others), row, 0.0)
        if self.preprocessing is None:
            return self.problems[k].derive(sample_weight=weight)
        X = self._refit_without(self.preprocessing, row)
        penalty = self.objective.penalty(X.shape[1])
        return self.problems[k].derive(X=X, sample_weight=weight, penalty=penalty, column_names=None)

    def _refit_without(self, steps: Preprocessing, row: int) -> Matrix:
        """The columns that steps fitted without a row make; they are kept for the other classes, whose rows are left out one class after the other."""
        if row in self._kept:
            return self._kept[row]
        X = prepend_constant(steps.without(row), self.objective.constant)
        if len(self.problems) > 1 and (len(self._kept) + 1) * X.shape[0] * X.shape[1] <= MAX_KEPT:
            self._kept[row] = X
        return X

    @cached_property
    def _kept(self) -> dict[int, Matrix]:
        return {}

    @cached_property
    def refits(self) -> "tuple[Refits | None, ...]":
        """What else leaving out a row changes in each problem; None if nothing."""
        return tuple(self._refits(k) for k in range(len(self.problems)))

    def _refits(self, k: int) -> Refits | None:
        columns = self.column_changes
        if columns is None and not self.targets.balanced:
            return None
        return replace(self._refits_of(k, columns), variants=tuple(self._variants(k)))

    def _refits_of(self, k: int, columns: ColumnChanges | None) -> Refits:
        """What leaving out a row changes in the ``k``-th problem, given how it changes the columns."""
        factors, groups = self.targets.compute_factors_without(k) if self.targets.balanced else (None, None)
        alone = np.zeros(self.targets.y.size, dtype=bool) if columns is None else columns.alone
        known = columns is not None and not alone.all()
        first = np.ones((alone.size, self.offset))
        return Refits(
            strengths=_hstack_constant(first, columns.strengths) if known and columns is not None else None,
            fills=_hstack_constant(0.0 * first, columns.fills) if known and columns is not None else None,
            filled=_hstack_constant(first < 0.0, columns.filled) if known and columns is not None else None,
            class_factors=factors,
            groups=groups,
            error=max(0.0 if columns is None else columns.error, 0.0 if factors is None else 8.0 * UNIT),
            alone=alone,
            refit=partial(self.without, k),
        )

    def _variants(self, k: int) -> Iterator[Variant]:
        """Rows whose removal makes imputers fill in other values, grouped by these values."""
        steps, columns = self.preprocessing, self.column_changes
        if steps is None or columns is None or self.problems[k].loss.several:
            return
        for rows, fills in columns.variants(MIN_VARIANT):
            copies: dict[int, Any] = {}
            fitted = deepcopy(steps.fitted, copies)
            for step, j, value in fills:
                copies[id(step)].statistics_[j] = value
            other = replace(steps, fitted=fitted)
            other = replace(other, matrix=other.transform(steps.X))
            changes = self._follow(None, other)
            rows = rows[~changes.alone[rows]]
            if rows.size >= MIN_VARIANT:
                problem = self.problems[k].derive(X=prepend_constant(other.matrix, self.objective.constant))
                refits = self._refits_of(k, changes)
                yield Variant(rows, penalise_dependent_columns(problem, refits.filled_columns), refits)

    @cached_property
    def column_changes(self) -> ColumnChanges | None:
        """How leaving out a row changes the columns; None without preprocessing steps."""
        return None if self.preprocessing is None else self._follow()

    def _follow(self, splits: Splits | None = None, steps: Preprocessing | None = None) -> ColumnChanges:
        objective, steps = self.objective, self.preprocessing if steps is None else steps
        assert steps is not None
        if steps.params:
            apart = np.ones(self.targets.y.size if splits is None else len(splits), dtype=bool)
            reason = f"the steps are fitted with parameters ({', '.join(map(repr, steps.params))})"
            return ColumnChanges(None, None, None, 0.0, apart, reason)
        penalised = objective.quadratic > 0.0 or objective.absolute > 0.0
        return follow(steps.fitted, steps.X, steps.matrix, objective.intercept, penalised, splits)

    @property
    def n_refits(self) -> int:
        """For how many left-out rows the problems are made one at a time."""
        alone = [refits.one_by_one for refits in self.refits if refits is not None]
        return int(np.any(alone, axis=0).sum()) if alone else 0

    @property
    def refit_reason(self) -> str | None:
        """Why the problems for some left-out rows are made one at a time; None if there are no such rows."""
        return None if self.column_changes is None else self.column_changes.reason

    def points(self, fitted: Any) -> tuple[Point, ...]:
        """The fitted coefficients of the estimator as points of the problems."""
        coef, intercept = self._read_coefficients(fitted)
        if self.targets.joint:
            return (self._join_point(coef, intercept),)
        if coef.shape != (len(self.problems), self.problems[0].n_columns - self.offset):
            raise ValueError(
                f"the estimator must have been fitted to this data: {len(self.problems)} model(s) of "
                f"{self.problems[0].n_columns - self.offset} coefficients; got coefficients of shape {coef.shape}."
            )
        if self.objective.constant is not None:
            column = (intercept / self.objective.constant)[:, None]
            return tuple(Point(row) for row in np.hstack([column, coef]))
        return tuple(Point(row, float(b)) for row, b in zip(coef, intercept, strict=True))

    def _join_point(self, coef: Array, intercept: Array) -> Point:
        """The coefficients of one problem of all classes, which sum to zero over these, as the optimum's do."""
        expected = (self.problems[0].n_scores, self.problems[0].n_columns)
        if coef.shape != expected:
            raise ValueError(
                f"the estimator must have been fitted to this data: {expected[0]} classes of {expected[1]} coefficients; "
                f"got coefficients of shape {coef.shape}."
            )
        return Point(coef - coef.mean(axis=0), intercept - intercept.mean())

    def _read_coefficients(self, fitted: Any) -> tuple[Array, Array]:
        """Coefficients and intercepts of a fitted estimator in the columns of the problems, one row per problem."""
        while is_a(fitted, "Pipeline"):
            fitted = fitted.steps[-1][1]
        models = fitted.estimators_ if is_a(fitted, "OneVsRestClassifier") else [fitted]
        coef = np.vstack([np.atleast_2d(to_dense(model.coef_)) for model in models]).astype(np.float64)
        intercept = np.concatenate(
            [np.atleast_1d(np.asarray(to_host(model.intercept_), dtype=np.float64)) for model in models]
        )
        return coef, np.broadcast_to(intercept, (coef.shape[0],))

    def coefficients(self, points: tuple[Point, ...]) -> tuple[Array, Array]:
        """``coef_`` and ``intercept_`` as the estimator stores them, one row per problem or class."""
        if self.targets.joint:
            return points[0].coef, np.broadcast_to(points[0].intercept, len(points[0].coef)).copy()
        coef = np.vstack([point.coef[self.offset :] for point in points])
        if self.objective.constant is not None:
            return coef, np.array([point.coef[0] * self.objective.constant for point in points])
        return coef, np.array([point.intercept for point in points])

    def stack(self, columns: list[Array]) -> Array:
        """Stack one array per problem in the shape of ``decision_function`` (or of ``predict`` in a regression)."""
        return columns[0] if len(columns) == 1 else np.column_stack(columns)

    def bounds(self, parts: Sequence[Bounds]) -> ScoreBounds:
        """Bounds of the scores of every problem in the shape of ``decision_function``."""
        if len(parts) == 1 and isinstance(parts[0], ScoreBounds):
            return parts[0]
        lower, upper = (self.stack([part[end] for part in parts]) for end in (0, 1))
        return ScoreBounds(lower, upper)

    def means(self, scores: Array) -> Array:
        """The predictions of a regression for scores."""
        return np.exp(scores) if self.objective.loss.link == "log" else scores

    def labels(self, scores: Array) -> NDArray[Any]:
        """The classes predicted for scores, as by ``predict``."""
        assert self.classes is not None
        return self.classes[predicted(scores)]

    def targets_of(self, y: NDArray[Any]) -> NDArray[Any]:
        """Targets as :class:`~glru.bounds.ScoreBounds` takes them: -1 and +1, or places of classes."""
        assert self.classes is not None
        return self.targets.signs(0, y) if self.classes.size == 2 else np.searchsorted(self.classes, y)

    def probabilities(self, scores: Array) -> Array:
        """The class probabilities for scores, as by ``predict_proba``."""
        self.require_probabilities()
        return softmax(scores) if self.targets.joint else probabilities_of(scores)

    def require_probabilities(self) -> None:
        """Refuse an estimator whose scores are not log-odds."""
        if not self.objective.probabilities:
            raise ValueError(
                f"probabilities need the logistic loss; {type(self.estimator).__name__} has another one. "
                "Use decision_function."
            )

    def __repr__(self) -> str:
        return f"Adapted({type(self.estimator).__name__}, {len(self.problems)} x {self.problems[0]!r})"


def probabilities_of(scores: Array) -> Array:
    """The probability of every class from log-odds; those of several classes are one-vs-rest, normalised."""
    likely = expit(scores)
    if scores.ndim == 1:
        return np.column_stack([1.0 - likely, likely])
    return likely / likely.sum(axis=1, keepdims=True)


def _hstack_constant(first: NDArray[Any], columns: NDArray[Any] | None) -> Any:
    """Prepend a constant column."""
    return columns if columns is None or not first.shape[1] else np.hstack([first, columns])


def adapt(
    estimator: Any, X: Any, y: Any, sample_weight: Any = None, keep: bool = False, params: dict[str, Any] | None = None
) -> Adapted:
    """An estimator's objective on its data, as problems of this library, and the way back to its labels and coefficients.

    The estimator is a linear model of scikit-learn or of this library, fitted or not, one in a ``OneVsRestClassifier``, or one of these at the end of a
    ``Pipeline``. ``keep``: whether the steps of a fitted pipeline are kept as they are; otherwise copies of them are fitted to the data. ``params``: parameters
    of ``fit`` of these steps, in scikit-learn's spelling.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from glru.sklearn import adapt
    >>> adapt(Ridge(alpha=2.0), np.eye(3), [1.0, 2.0, 3.0]).problems[0]
    Problem(3 rows x 3 columns, Squared(), L2(lam=2.0), fit_intercept=True, scaling='sum')
    """
    model, steps, wrapped = _unwrap(estimator)
    objective = objective_of(model)
    preprocessing = None
    if steps is None:
        matrix, names = _inputs.as_matrix(X)
        n_rows = matrix.shape[0]
    else:
        n_rows = count_rows(X)
    seen: Seen = "side" if wrapped else "positive" if is_a(model, "LinearSVC") else "class"
    targets = targets_of(y, n_rows, sample_weight, objective, seen)
    if targets.n_problems > 1 and objective.multinomial and not wrapped:
        objective, targets = replace(objective, loss=Multinomial()), replace(targets, joint=True)
    elif targets.n_problems > 1 and not (objective.several or wrapped):
        raise ValueError(
            f"{type(model).__name__} with {targets.n_problems} classes and solver={getattr(model, 'solver', None)!r} is one model per class in some "
            "versions of scikit-learn and an error in others. Wrap the estimator in a OneVsRestClassifier, or use another solver."
        )
    if steps is not None:
        preprocessing = keep_steps(steps, X, targets.y) if keep else fit_steps(steps, X, targets.y, params)
        matrix, names = preprocessing.matrix, preprocessing.names
    problems = _problems(objective, targets, prepend_constant(matrix, objective.constant), names)
    return Adapted(model, objective, problems, targets, preprocessing)


def adapt_again(adapted: Adapted, model: Any) -> Adapted:
    """The data and preprocessing steps of an adapted estimator with a model of another strength."""
    objective = objective_of(model)
    problems = tuple(one.derive(penalty=objective.penalty(one.n_columns)) for one in adapted.problems)
    again = Adapted(model, objective, problems, adapted.targets, adapted.preprocessing)
    if "column_changes" in adapted.__dict__:
        again.__dict__["column_changes"] = adapted.column_changes
    return again


def _unwrap(estimator: Any) -> tuple[Any, Any, bool]:
    """The linear model, the steps before it, and whether it is wrapped in a OneVsRestClassifier."""
    if isinstance(estimator, type):
        raise TypeError(
            f"the estimator must be an instance; got the class {estimator.__name__}. Use {estimator.__name__}()."
        )
    steps = None
    if is_a(estimator, "Pipeline"):
        steps, estimator = steps_of(estimator)
    wrapped = is_a(estimator, "OneVsRestClassifier")
    return (estimator.estimator if wrapped else estimator), steps, wrapped


def _problems(
    objective: EstimatorObjective, targets: Targets, X: Any, names: tuple[str, ...] | None
) -> tuple[Problem, ...]:
    everything = np.arange(X.shape[0])
    if objective.constant is not None and names is not None:
        names = (CONSTANT, *names)
    first = objective.problem(X, targets.values(0, targets.y), targets.weights(0, everything)).derive(
        column_names=names
    )
    others = (
        first.derive(y=targets.values(k, targets.y), sample_weight=targets.weights(k, everything))
        for k in range(1, targets.n_problems)
    )
    return first, *others
