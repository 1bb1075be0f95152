"""What is known of a retrained estimator when its data changes: its scores, its labels, whether it needs retraining.

A change of the caller's data becomes one of an adapted problem: shifted columns, signs for classes, weights by class.
"""

from dataclasses import dataclass
from functools import singledispatch
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru.after import After, BoundName, CandidateName, Retraining, after
from glru.bounds import ScoreBounds
from glru.changes import (
    AddRows,
    Change,
    Composite,
    EditValues,
    Relabel,
    RemoveColumns,
    RemoveRows,
    Repenalise,
    Reweight,
    layout_of,
    matched_columns,
    row_positions,
)
from glru.linalg import Array, Matrix
from glru.sklearn.adapted import Adapted, prepared
from glru.sklearn.objectives import penalty_of
from glru.solution import Solution


def translated(adapted: Adapted, k: int, change: Change) -> Change:
    """The change of the ``k``-th problem that a change of the caller's data means.

    Labels are those of the estimator, columns those of the caller's data, weights before any class weights.
    """
    if not isinstance(change, Change):
        raise TypeError(f"change must be a glru change such as glru.RemoveRows([3]); got {change!r}.")
    if adapted.shifts is not None:
        raise ValueError(
            f"when the data changes, {adapted.shifts}, which is more than the change itself. "
            "Scale or weight the data first and give the model alone."
        )
    steps = change.steps if isinstance(change, Composite) else (change,)
    if len(steps) > 1 and adapted.targets.class_weight is not None:
        rows = any(isinstance(step, RemoveRows | AddRows) for step in steps)
        if rows and any(isinstance(step, Reweight | Relabel) for step in steps):
            raise ValueError(
                "with class weights a change may not both add or remove rows and reweight or relabel some: which classes "
                "those rows have is only known after the first part. Make two changes."
            )
    moved = [_translate(step, adapted, k) for step in steps]
    return moved[0] if len(moved) == 1 else Composite(tuple(moved))


@singledispatch
def _translate(change: Change, adapted: Adapted, k: int) -> Change:
    return change


@_translate.register
def _(change: AddRows, adapted: Adapted, k: int) -> Change:
    count = change.matrix.shape[0]
    weight = (
        np.ones(count) if change.sample_weight is None else _inputs.as_vector(change.sample_weight, count, "weights")
    )
    y = adapted.targets.check(change.y, count)
    X, names = change.X, adapted.problems[0].column_names
    if adapted.objective.constant is not None:
        known = None if names is None else names[adapted.offset :]
        named = known is not None and change.names is not None and len(known) == len(change.names)
        matrix = matched_columns(change.matrix, change.names, known) if named else change.matrix
        X = prepared(matrix, adapted.objective.constant)
    return AddRows(X, adapted.targets.values(k, y), adapted.targets.weighted(k, y, weight))


@_translate.register
def _(change: Relabel, adapted: Adapted, k: int) -> Change:
    y = adapted.targets.check(change.y, np.size(change.rows))
    relabelled = Relabel(change.rows, adapted.targets.values(k, y))
    if adapted.targets.class_weight is None:
        return relabelled
    rows = row_positions(change.rows, adapted.problems[0].n_rows)
    return relabelled + Reweight(rows, adapted.targets.weighted(k, y, adapted.targets.sample_weight[rows]))


@_translate.register
def _(change: Reweight, adapted: Adapted, k: int) -> Change:
    if adapted.targets.class_weight is None:
        return change
    rows = row_positions(change.rows, adapted.problems[0].n_rows)
    weight = change.new_weights(rows.size)
    return Reweight(rows, adapted.targets.weighted(k, adapted.targets.y[rows], weight))


@_translate.register
def _(change: EditValues, adapted: Adapted, k: int) -> Change:
    return EditValues(change.rows, _columns(change.columns, adapted), change.values)


@_translate.register
def _(change: RemoveColumns, adapted: Adapted, k: int) -> Change:
    return RemoveColumns(_columns(change.columns, adapted))


@_translate.register
def _(change: Repenalise, adapted: Adapted, k: int) -> Change:
    if adapted.offset == 0 or getattr(change.penalty, "n_columns", None) is None:
        return change
    # The column of a penalised intercept comes first, and keeps the strength that it has.
    own, new = adapted.problems[k].penalty, change.penalty
    n_columns = adapted.problems[k].n_columns - adapted.offset
    quadratic, absolute = (
        np.append(np.ravel(mine)[:1], np.broadcast_to(theirs, (n_columns,)))
        for mine, theirs in ((own.quadratic, new.quadratic), (own.absolute, new.absolute))
    )
    return Repenalise(penalty_of(quadratic, absolute))


def _columns(columns: Any, adapted: Adapted) -> Any:
    """Columns of the data as columns of the problem; names stay."""
    places = np.atleast_1d(np.asarray(columns))
    if adapted.offset == 0 or places.dtype.kind not in "iu":
        return columns
    n_columns = adapted.problems[0].n_columns - adapted.offset
    if np.any(places < 0):
        raise ValueError(f"columns must be positions from 0 to {n_columns - 1}; got {places.min()}.")
    return places + adapted.offset


@final
@dataclass(frozen=True, eq=False, repr=False)
class ModelAfter:
    """What is proven of the estimator that refitting to the changed data would give.

    Made by :func:`glru.after`. Scores are shaped as the estimator's ``decision_function`` (``predict`` in a regression).

    Attributes
    ----------
    adapted : Adapted
        The estimator's problems and classes.
    parts : tuple of After
        What is proven of each of its problems; coefficients, intercepts and dual variables are asked for there.

    Examples
    --------
    >>> import numpy as np, glru
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> model = glru.GLRUClassifier(C=0.1).fit(X, X[:, 0] > 0.3)
    >>> model.after(glru.RemoveRows([0])).needs_retraining(X[:5]).verdict
    'no'
    """

    adapted: Adapted
    parts: tuple[After, ...]

    @property
    def gap(self) -> float:
        """Upper bound of the duality gap of the worst problem's best candidate."""
        return max(part.gap for part in self.parts)

    @property
    def radius(self) -> float:
        """No refitted coefficient vector is farther than this from its best candidate; inf where that is unknown."""
        return max(part.radius for part in self.parts)

    def score_bounds(self, X: Any) -> ScoreBounds:
        """Lower and upper bounds of the refitted scores.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries, with the columns of the changed data.
        """
        return self._answer(X)[1]

    def _answer(self, X: Any, train: bool = True) -> tuple[ScoreBounds, ScoreBounds]:
        """Bounds of the refitted scores before any training, and after the trainings that labels need."""
        queries = self._queries(X)
        asked = self.parts[0].match_queries(queries)
        found = [part.untrained_bounds(asked) for part in self.parts]
        first = last = self.adapted.bounds(found)
        for k, part in enumerate(self.parts):
            rows = np.flatnonzero(~last.decided)
            if not (train and rows.size) or self.adapted.classes is None:
                break
            known = [one.take(rows) for one in found]

            def all_decided(lower: Array, upper: Array, known: list[ScoreBounds] = known, k: int = k) -> bool:
                return bool(self.adapted.bounds([*known[:k], ScoreBounds(lower, upper), *known[k + 1 :]]).decided.all())

            found[k] = found[k].put(rows, part.narrow(asked[rows], known[k], all_decided))
            last = self.adapted.bounds(found)
        return first, last

    @property
    def n_steps(self) -> int:
        """Newton steps and iterations of trainings that the questions asked so far have taken, of all problems together."""
        return sum(part.n_steps for part in self.parts)

    def decided_by(self, X: Any) -> dict[str, int]:
        """How many of the refitted labels each stage decides.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries, with the columns of the changed data.

        Returns
        -------
        dict
            Stages as in :meth:`glru.results.After.decided_by`.
        """
        self._classes()
        first, last = self._answer(X)
        return self.parts[0].count_stages(first.decided, last.decided)

    def decided(self, X: Any) -> NDArray[np.bool_]:
        """Which of the refitted labels are proven: those of a class that beats every other one."""
        self._classes()
        return self.score_bounds(X).decided

    def determination_rate(self, X: Any) -> float:
        """The share of queries whose refitted label is proven."""
        return float(np.mean(self.decided(X)))

    def labels(self, X: Any) -> NDArray[Any]:
        """The refitted labels; a masked array where some are not proven, masked there."""
        return self.score_bounds(X).labels(self._classes())

    def needs_retraining(self, X: Any, within: float | None = None) -> Retraining:
        """Whether refitting would change what the present model says of some queries; never trains.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries, with the columns of the data, which a change must leave as they are.
        within : float, default=None
            How far a prediction may move and still count as the same; for a regression only, and needed there.

        Returns
        -------
        Retraining
        """
        _check_within(within, self.adapted)
        rows = self.adapted.rows(X)
        present = self.adapted.stacked([rows @ p.solution.coef.T + p.solution.intercept for p in self.parts])
        return Retraining.of(self._answer(X, train=False)[1], present, within)

    def retrain(self, tol: float = 1e-6) -> tuple[Solution, ...]:
        """Train the changed problems, each from its best candidate."""
        return tuple(part.retrain(tol) for part in self.parts)

    def _queries(self, X: Any) -> Matrix | Any:
        constant = self.adapted.objective.constant
        if constant is None:
            return X
        matrix, names = _inputs.as_matrix(X, "the queries")
        part = self.parts[0]
        known = part.change.check(layout_of(part.solution.problem)).column_names
        return prepared(matched_columns(matrix, names, None if known is None else known[1:]), constant)

    def _classes(self) -> NDArray[Any]:
        if self.adapted.classes is None:
            raise ValueError("a regression has no labels. Use score_bounds.")
        return self.adapted.classes

    def __repr__(self) -> str:
        return (
            f"ModelAfter({type(self.adapted.estimator).__name__}, {self.parts[0].change!r}, gap={self.gap:.3g}, "
            f"radius={self.radius:.3g})"
        )


def after_models(
    adapted: Adapted,
    solutions: tuple[Solution, ...],
    change: Change,
    candidate: CandidateName = "auto",
    bound: BoundName = "auto",
    max_steps: int | None = None,
    max_seconds: float | None = None,
) -> ModelAfter:
    """What is proven of an estimator's problems after a change of the caller's data."""
    return ModelAfter(
        adapted,
        tuple(
            after(solution, translated(adapted, k, change), candidate, bound, max_steps, max_seconds)
            for k, solution in enumerate(solutions)
        ),
    )


def _check_within(within: float | None, adapted: Adapted) -> None:
    if adapted.classes is None and (within is None or not within >= 0.0):
        raise ValueError(
            f"within must be a number >= 0 for a regression: how far a prediction may move and still count as the same; "
            f"got {within!r}."
        )
    if adapted.classes is not None and within is not None:
        raise ValueError(f"within is for regressions; labels are the same or not. Leave it out; got {within!r}.")
