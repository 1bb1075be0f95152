"""Where each coefficient and dual variable goes when the data changes, and what the new ones start from."""

from functools import singledispatch

import numpy as np

from glru.changes import (
    AddColumns,
    AddRows,
    Change,
    Composite,
    EditValues,
    Relabel,
    RemoveColumns,
    RemoveRows,
    layout_of,
)
from glru.changes.base import column_positions, row_positions
from glru.duality import feasible_dual
from glru.linalg import Array
from glru.penalties import Penalty
from glru.point import Point
from glru.problem import Problem, per_row


def carried_point(problem: Problem, point: Point, change: Change) -> Point:
    """The point carried to the changed problem, its dual variables made feasible there."""
    changed, moved = _moved(problem, point, change)
    assert moved.dual is not None
    dual = -changed.loss.project(changed.y, -moved.dual)
    return Point(moved.coef, moved.intercept, feasible_dual(changed, dual))


def new_coefficients(penalty: Penalty, correlations: Array) -> Array:
    """Coefficients of new columns from the KKT condition ``w_j in d rho_j*(v_j)``; zero where that is not a number."""
    lower, upper = penalty.conjugate_derivative(correlations)
    return np.where(np.isfinite(lower) & np.isfinite(upper), 0.5 * (lower + upper), 0.0)


def _moved(problem: Problem, point: Point, change: Change) -> tuple[Problem, Point]:
    if isinstance(change, Composite):
        for step in change.steps:
            problem, point = _moved(problem, point, step)
        return problem, point
    changed = change.apply(problem)
    coef, dual = _move(change, problem, changed, point)
    return changed, Point(coef, point.intercept, dual)


@singledispatch
def _move(change: Change, problem: Problem, changed: Problem, point: Point) -> tuple[Array, Array]:
    """Coefficients and dual variables after one change; most changes keep both."""
    return point.coef, _dual(point)


@_move.register
def _(change: RemoveRows, problem: Problem, changed: Problem, point: Point) -> tuple[Array, Array]:
    return point.coef, np.delete(_dual(point), row_positions(change.rows, problem.n_rows), axis=0)


@_move.register
def _(change: AddRows, problem: Problem, changed: Problem, point: Point) -> tuple[Array, Array]:
    new = np.arange(problem.n_rows, changed.n_rows)
    return point.coef, np.concatenate([_dual(point), _derivative_dual(changed, point, new)])


@_move.register
def _(change: RemoveColumns, problem: Problem, changed: Problem, point: Point) -> tuple[Array, Array]:
    return np.delete(point.coef, column_positions(change.columns, layout_of(problem)), axis=-1), _dual(point)


@_move.register
def _(change: AddColumns, problem: Problem, changed: Problem, point: Point) -> tuple[Array, Array]:
    correlations = (change.matrix.T @ per_row(problem.weights, _dual(point))).T
    new = new_coefficients(change.new_penalty(layout_of(problem)), correlations)
    return np.concatenate([point.coef, new], axis=-1), _dual(point)


@_move.register(Relabel)
@_move.register(EditValues)
def _(change: Relabel | EditValues, problem: Problem, changed: Problem, point: Point) -> tuple[Array, Array]:
    rows = row_positions(change.rows, problem.n_rows)
    dual = _dual(point).copy()
    dual[rows] = _derivative_dual(changed, point, rows)
    return point.coef, dual


def _derivative_dual(problem: Problem, point: Point, rows: np.ndarray) -> Array:
    scores = problem.matrix[rows] @ point.coef.T + (point.intercept if problem.fit_intercept else 0.0)
    return -problem.loss.gradient(problem.y[rows], scores)


def _dual(point: Point) -> Array:
    assert point.dual is not None
    return point.dual
