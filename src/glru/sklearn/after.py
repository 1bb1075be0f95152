"""Changes of an estimator's data as changes of its problems.

A change of the caller's data becomes one of an adapted problem: shifted columns, signs for classes, weights by class.
"""

from functools import singledispatch
from typing import Any

import numpy as np

from glru import _inputs
from glru.after import After, Origin
from glru.changed import BoundName, CandidateName, change_model
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
    locate_rows,
    match_columns,
    prepend_constant,
)
from glru.sklearn.adapted import Adapted
from glru.sklearn.objectives import penalty_of
from glru.solution import Solution


def translate_change(adapted: Adapted, k: int, change: Change) -> Change:
    """Translate a change of the caller's data to the ``k``-th problem.

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
        matrix = match_columns(change.matrix, change.names, known) if named else change.matrix
        X = prepend_constant(matrix, adapted.objective.constant)
    return AddRows(X, adapted.targets.values(k, y), adapted.targets.apply_class_weights(k, y, weight))


@_translate.register
def _(change: Relabel, adapted: Adapted, k: int) -> Change:
    y = adapted.targets.check(change.y, np.size(change.rows))
    relabelled = Relabel(change.rows, adapted.targets.values(k, y))
    if adapted.targets.class_weight is None:
        return relabelled
    rows = locate_rows(change.rows, adapted.problems[0].n_rows)
    return relabelled + Reweight(rows, adapted.targets.apply_class_weights(k, y, adapted.targets.sample_weight[rows]))


@_translate.register
def _(change: Reweight, adapted: Adapted, k: int) -> Change:
    if adapted.targets.class_weight is None:
        return change
    rows = locate_rows(change.rows, adapted.problems[0].n_rows)
    weight = change.new_weights(rows.size)
    return Reweight(rows, adapted.targets.apply_class_weights(k, adapted.targets.y[rows], weight))


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


def change_models(
    adapted: Adapted,
    solutions: tuple[Solution, ...],
    change: Change,
    candidate: CandidateName = "auto",
    bound: BoundName = "auto",
    max_steps: int | None = None,
    max_seconds: float | None = None,
) -> After:
    """What is proven about an estimator's problems after a change of the caller's data."""
    parts = tuple(
        change_model(solution, translate_change(adapted, k, change), candidate, bound, max_steps, max_seconds)
        for k, solution in enumerate(solutions)
    )
    name, constant = type(adapted.estimator).__name__, adapted.objective.constant
    return After(Origin(change, adapted.classes, name, constant), parts)
