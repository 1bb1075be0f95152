"""The old primal and dual point, carried through a change of the data (Section 4.2 of the paper), and Newton steps from there.

Where no equality constraint has to be repaired and the penalty is strongly convex, the gap is updated
from cached sums: O(d) for a changed row, O(n) for a changed column, and the changed problem is formed
only if somebody asks for it. Everything else is evaluated afresh on the changed problem.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru import duality
from glru.certificate import (
    Certificate,
    Columns,
    bound_or_inf,
    certify,
    correlation_range,
    loss_terms,
    penalty_terms,
    weighted_sum,
)
from glru.changes import (
    AddColumns,
    AddRows,
    Change,
    Composite,
    EditValues,
    Relabel,
    RemoveColumns,
    RemoveRows,
    Reweight,
    locate_columns,
    locate_rows,
    read_layout,
)
from glru.duality import make_feasible_dual
from glru.linalg import FEW, TINY, UNIT, Array, Matrix, gamma
from glru.penalties import Penalty
from glru.problem import Point, Problem, per_row
from glru.solution import Solution
from glru.solvers.newton import ColumnSpace, RowSpace, Step, choose_length, uses_row_space
from glru.solvers.prox_newton import step_on_model
from glru.updates.carried_rows import sum_error


def carry(solution: Solution, change: Change) -> Certificate:
    """The certificate of the old point on the changed problem."""
    problem = solution.problem
    if is_plain(problem):
        swap = _as_exchange(problem, change)
        if swap is not None and 2.0 * float(problem.sample_weight[swap.leaving].sum()) <= problem.total_weight:
            return _carry_rows(solution, change, swap)
        if isinstance(change, RemoveColumns):
            return _without_columns(solution, change)
        if isinstance(change, AddColumns) and change.new_penalty(read_layout(problem)).strong_convexity > 0.0:
            return _with_columns(solution, change)
    changed, point = move_point(problem, solution.point, change)
    return certify(changed, make_feasible(changed, point))


def is_plain(problem: Problem) -> bool:
    """Whether there is one score, every column's penalty is strongly convex and there is no intercept: every dual point is feasible."""
    return not problem.loss.several and not problem.fit_intercept and problem.penalty.strong_convexity > 0.0


@final
@dataclass(frozen=True, eq=False)
class _Swap:
    """Rows that leave and rows that come instead, or behind the others; ``place`` puts their dual variables in."""

    leaving: NDArray[np.intp]
    X: Matrix
    y: Array
    sample_weight: Array
    place: Callable[[Array, Array], Array]


def _as_exchange(problem: Problem, change: Change) -> _Swap | None:
    """A change of rows as an exchange; None for any other change."""
    if isinstance(change, RemoveRows):
        rows = locate_rows(change.rows, problem.n_rows)
        return _Swap(rows, problem.matrix[:0], problem.y[:0], np.empty(0), lambda old, new: np.delete(old, rows))
    if isinstance(change, AddRows):
        X, y, weight = change.block(read_layout(problem))
        return _Swap(np.empty(0, dtype=np.intp), X, y, weight, np.append)
    if isinstance(change, Relabel):
        rows = locate_rows(change.rows, problem.n_rows)
        return _Swap(
            rows, problem.matrix[rows], change.relabel(problem)[rows], problem.sample_weight[rows], _putter(rows)
        )
    if isinstance(change, Reweight):
        rows = locate_rows(change.rows, problem.n_rows)
        return _Swap(rows, problem.matrix[rows], problem.y[rows], change.new_weights(rows.size), _putter(rows))
    if isinstance(change, EditValues):
        rows, edited = change.edited_rows(problem)
        return _Swap(rows, edited, problem.y[rows], problem.sample_weight[rows], _putter(rows))
    if isinstance(change, Composite):
        return _exchange(problem, change.steps)
    return None


def _exchange(problem: Problem, steps: tuple[Change, ...]) -> _Swap | None:
    """Rows added and old rows removed, in this order, or neither; None for any other steps."""
    if not steps:
        return _as_exchange(problem, RemoveRows([]))
    if len(steps) != 2 or not (isinstance(steps[0], AddRows) and isinstance(steps[1], RemoveRows)):
        return None
    X, y, weight = steps[0].block(read_layout(problem))
    rows = locate_rows(steps[1].rows, problem.n_rows + y.size)
    if np.any(rows >= problem.n_rows):
        return None
    return _Swap(rows, X, y, weight, lambda old, new: np.append(np.delete(old, rows), new))


def _putter(rows: NDArray[np.intp]) -> Callable[[Array, Array], Array]:
    def put(old: Array, new: Array) -> Array:
        out = old.copy()
        out[rows] = new
        return out

    return put


def _carry_rows(solution: Solution, change: Change, swap: _Swap) -> Certificate:
    """O(d) a row: the sums over the rows that stay are scaled to the new weights, the others are put in or out."""
    problem, root, coef = solution.problem, solution.certificate, solution.coef
    assert root.loss_terms is not None
    leaving, n_moved = swap.leaving, swap.leaving.size + swap.y.size
    total = problem.total_weight - float(problem.sample_weight[leaving].sum()) + float(swap.sample_weight.sum())
    if not total > 0.0:
        raise ValueError("a change must leave a row of weight above 0; got the removal of all of them.")
    unit = total if problem.scaling == "mean" else 1.0
    factor = compute_weight_factor(problem, total)

    scores = swap.X @ coef
    dual = -problem.loss.gradient(swap.y, scores)
    weights = swap.sample_weight / unit
    norms = np.sqrt(swap.X.squared_row_norms()) * float(np.linalg.norm(coef))
    errors = gamma(problem.n_columns + 2) * norms * (1.0 + gamma(2 * problem.n_columns + 8))
    arriving = weighted_sum(weights, loss_terms(problem.loss, swap.y, scores, errors, dual))

    gone = factor * problem.weights[leaving]
    duals_out, duals_in = gone * solution.dual[leaving], weights * dual
    old = problem.matrix[leaving]
    correlations = factor * root.correlations - old.T @ duals_out + swap.X.T @ duals_in
    # The sums over all rows were rounded when they were made, so were the old and the new total weight (at least half of
    # the old weight stays, so their difference loses at most a digit), and every term again by its new weight; Cauchy-Schwarz
    # bounds that column by column.
    steady = sum_error(problem.n_rows + n_moved) * factor
    moved = abs(old).T @ np.abs(duals_out) + abs(swap.X).T @ np.abs(duals_in)
    slack = steady * root.dual_norm * root.column_norms + gamma(n_moved + 8) * moved

    staying = max(factor * root.row_total - float(gone @ root.loss_terms[leaving]), 0.0)
    rows = staying * (1.0 + FEW) + steady * root.row_total + arriving
    terms = penalty_terms(problem.penalty, coef, correlations, slack)
    gap = (rows + float(terms.sum())) * (1.0 + gamma(problem.n_columns + 8))

    def columns() -> Columns:
        squares = factor * root.column_norms**2 - old.squared_column_norms(gone) + swap.X.squared_column_norms(weights)
        squares = squares + steady * root.column_norms**2 + gamma(n_moved + 8) * swap.X.squared_column_norms(weights)
        norms = np.sqrt(np.maximum(squares, 0.0)) * (1.0 + FEW)
        arrived = abs(swap.X).T @ np.ones(swap.y.size) > 0.0
        return Columns(correlations, slack, norms, root.columns.dead & ~arrived)

    def new_range() -> tuple[Array, Array]:
        if not np.all(np.isfinite(root.correlation_range)):
            return root.correlation_range
        out = correlation_range(old, problem.loss, problem.y[leaving], gone)
        into = correlation_range(swap.X, problem.loss, swap.y, weights)
        loose = steady * np.maximum(np.abs(root.correlation_range[0]), np.abs(root.correlation_range[1]))
        # Zero lies between the ends. What leaves was rounded away from zero and is subtracted: turn that round.
        inward = 1.0 - 8.0 * gamma(n_moved + 8)
        lower = factor * root.correlation_range[0] - inward * out[0] + into[0] - loose
        upper = factor * root.correlation_range[1] - inward * out[1] + into[1] + loose
        return lower, upper

    return Certificate(
        loss=problem.loss,
        penalty=problem.penalty,
        coef=coef,
        intercept=0.0,
        gap=bound_or_inf(gap),
        loss_terms=None,
        make_columns=columns,
        make_problem=lambda: change.apply(problem),
        make_dual=lambda: swap.place(solution.dual, dual),
        make_range=new_range,
    )


def compute_weight_factor(problem: Problem, total_weight: float) -> float:
    """What the weights of the rows that stay are multiplied by when all weights sum to ``total_weight``."""
    return problem.total_weight / total_weight if problem.scaling == "mean" else 1.0


def _without_columns(solution: Solution, change: RemoveColumns) -> Certificate:
    """O(n) per column: the scores lose its share, the other columns' correlations stay."""
    problem, root = solution.problem, solution.certificate
    gone = locate_columns(change.columns, read_layout(problem))
    block = problem.matrix.dense(gone)
    scores = solution.scores - block @ solution.coef[gone]
    share = penalty_terms(
        problem.penalty.select(gone), solution.coef[gone], root.correlations[gone], root.correlation_errors[gone]
    )
    columns = max(root.column_total - float(share.sum()), 0.0) + FEW * root.column_total
    return _update_scores(
        solution,
        change,
        scores,
        np.abs(block) @ np.abs(solution.coef[gone]),
        gone.size,
        columns,
        problem.penalty.select(np.delete(np.arange(problem.n_columns), gone))
        if problem.penalty.n_columns
        else problem.penalty,
        lambda arrays: tuple(np.delete(array, gone) for array in arrays),
    )


def _with_columns(solution: Solution, change: AddColumns) -> Certificate:
    """O(n) per column: its coefficient follows from its correlation, and its share is added to the scores."""
    problem, root = solution.problem, solution.certificate
    penalty, block = change.new_penalty(read_layout(problem)), change.matrix
    correlations = block.T @ (problem.weights * solution.dual)
    norms = (np.sqrt(block.squared_column_norms(problem.weights)) + TINY) * (1.0 + gamma(problem.n_rows + 4))
    errors = gamma(problem.n_rows + 3) * root.dual_norm * norms * (1.0 + FEW)
    coef = compute_new_coefficients(penalty, correlations)
    share = penalty_terms(penalty, coef, correlations, errors)
    columns = (root.column_total + float(share.sum())) * (1.0 + gamma(coef.size + 1))

    def with_new(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        own: tuple[Array, ...] = (correlations, errors, norms, abs(block).T @ np.ones(problem.n_rows) == 0.0)
        if len(arrays) == 1:
            own = (coef,)
        elif len(arrays) == 2:
            own = correlation_range(block, problem.loss, problem.y, problem.weights)
        return tuple(np.append(array, new) for array, new in zip(arrays, own, strict=True))

    return _update_scores(
        solution,
        change,
        solution.scores + block @ coef,
        block.absolute_product(np.abs(coef)),
        coef.size,
        columns,
        problem.penalty.extend(problem.n_columns, penalty, coef.size),
        with_new,
    )


def _update_scores(
    solution: Solution,
    change: Change,
    scores: Array,
    moved: Array,
    n_moved: int,
    columns: float,
    penalty: Penalty,
    edit: Callable[[tuple[Array, ...]], tuple[Array, ...]],
) -> Certificate:
    """The certificate after a change of columns, from the changed scores; ``edit`` edits arrays of one entry per column."""
    problem, root = solution.problem, solution.certificate
    errors = root.score_errors + gamma(n_moved + 3) * moved + 4.0 * UNIT * np.abs(scores)
    terms = loss_terms(problem.loss, problem.y, scores, errors, solution.dual)
    gap = (weighted_sum(problem.weights, terms) + columns) * (1.0 + gamma(problem.n_columns + 8))
    (coef,) = edit((solution.coef,))

    def known() -> Columns:
        old = root.columns
        correlations, errors, norms, dead = edit((old.correlations, old.errors, old.norms, old.dead.astype(float)))
        return Columns(correlations, errors, norms, dead > 0.0)

    def new_range() -> tuple[Array, Array]:
        lower, upper = edit(root.correlation_range)
        return lower, upper

    return Certificate(
        loss=problem.loss,
        penalty=penalty,
        coef=coef,
        intercept=0.0,
        gap=bound_or_inf(gap),
        loss_terms=terms,
        make_columns=known,
        make_problem=lambda: change.apply(problem),
        make_dual=lambda: solution.dual,
        make_range=new_range,
    )


def carry_point(problem: Problem, point: Point, change: Change) -> Point:
    """The point carried to the changed problem, its dual variables made feasible there."""
    return make_feasible(*move_point(problem, point, change))


def make_feasible(problem: Problem, point: Point) -> Point:
    """A point with its dual variables made feasible."""
    assert point.dual is not None
    dual = -problem.loss.project(problem.y, -point.dual)
    return Point(point.coef, point.intercept, make_feasible_dual(problem, dual))


def compute_new_coefficients(penalty: Penalty, correlations: Array) -> Array:
    """Coefficients of new columns from the KKT condition ``w_j in d rho_j*(v_j)``; zero where that is not a number."""
    lower, upper = penalty.conjugate_derivative(correlations)
    return np.where(np.isfinite(lower) & np.isfinite(upper), 0.5 * (lower + upper), 0.0)


def move_point(problem: Problem, point: Point, change: Change) -> tuple[Problem, Point]:
    """The changed problem, and a point carried to it, whose dual variables need not be feasible there."""
    if isinstance(change, Composite):
        for step in change.steps:
            problem, point = move_point(problem, point, step)
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
    return point.coef, np.delete(_dual(point), locate_rows(change.rows, problem.n_rows), axis=0)


@_move.register
def _(change: AddRows, problem: Problem, changed: Problem, point: Point) -> tuple[Array, Array]:
    new = np.arange(problem.n_rows, changed.n_rows)
    return point.coef, np.concatenate([_dual(point), _derivative_dual(changed, point, new)])


@_move.register
def _(change: RemoveColumns, problem: Problem, changed: Problem, point: Point) -> tuple[Array, Array]:
    return np.delete(point.coef, locate_columns(change.columns, read_layout(problem)), axis=-1), _dual(point)


@_move.register
def _(change: AddColumns, problem: Problem, changed: Problem, point: Point) -> tuple[Array, Array]:
    correlations = (change.matrix.T @ per_row(problem.weights, _dual(point))).T
    new = compute_new_coefficients(change.new_penalty(read_layout(problem)), correlations)
    return np.concatenate([point.coef, new], axis=-1), _dual(point)


@_move.register(Relabel)
@_move.register(EditValues)
def _(change: Relabel | EditValues, problem: Problem, changed: Problem, point: Point) -> tuple[Array, Array]:
    rows = locate_rows(change.rows, problem.n_rows)
    dual = _dual(point).copy()
    dual[rows] = _derivative_dual(changed, point, rows)
    return point.coef, dual


def _derivative_dual(problem: Problem, point: Point, rows: np.ndarray) -> Array:
    scores = problem.matrix[rows] @ point.coef.T + (point.intercept if problem.fit_intercept else 0.0)
    return -problem.loss.gradient(problem.y[rows], scores)


def _dual(point: Point) -> Array:
    assert point.dual is not None
    return point.dual


MAX_STEPS = 5
"""Newton steps of a candidate."""

NO_MORE = 1e-9
"""A gap that is this share of the carried point's is not reduced any further."""


def find_newton_candidate(problem: Problem, point: Point, n_steps: int = 1) -> Certificate:
    """The certificate after Newton steps from a point of the same problem.

    The dual point is the linearised one of a full step, projected onto the domain of the loss conjugate where it leaves it, or
    the loss derivatives at the new scores, whichever has the smaller gap. A step that does not halve the gap is the last.
    """
    return _newton_steps(problem, point, n_steps, False, 0.0)[0]


def _newton_steps(problem: Problem, point: Point, n_steps: int, damped: bool, enough: float) -> tuple[Certificate, int]:
    """:func:`find_newton_candidate`, and how many steps were made.

    ``damped``: steps that would raise the objective are shortened; without it the certificate tells how good they are.
    ``enough``: a gap that is small enough.
    """
    best = certify(problem, _step(problem, point, damped))
    for made in range(1, n_steps):
        if best.gap <= enough:
            return best, made
        after = certify(problem, _step(problem, best.point, damped))
        if not after.gap < 0.5 * best.gap:
            return best, made + 1
        best = after
    return best, n_steps


def find_best_candidate(
    problem: Problem, point: Point, known: Certificate, n_steps: int | None = None
) -> tuple[Certificate, int]:
    """The best of a known certificate and those of full and of damped Newton steps, and how many steps were made.

    It is never wider than where it started. ``n_steps``: most steps of both kinds together.
    """
    enough = NO_MORE * known.gap if np.isfinite(known.gap) else 0.0
    best, made = known, 0
    for damped in (False, True):
        most = MAX_STEPS if n_steps is None else min(MAX_STEPS, n_steps - made)
        if most < 1 or best.gap < 0.1 * known.gap:
            break
        found, steps = _newton_steps(problem, point, most, damped, enough)
        best, made = min(best, found, key=lambda certificate: certificate.gap), made + steps
    return best, made


def newton_step(problem: Problem, point: Point, damped: bool) -> tuple[Point, float]:
    """The point after one Newton step, and its length: below 1 where it is ``damped`` and the objective would rise.

    The penalty must be smooth. A full step has its linearised dual variables.
    """
    coef, intercept, dual, length = _smooth_step(problem, point, damped)
    return Point(coef, intercept, dual if length == 1.0 else None), length


def choose_length_along(problem: Problem, point: Point, move: Array) -> float:
    """How far to go along a step in the unknowns (the intercept's entry last): all the way unless the objective rises."""
    size, scores = problem.n_columns, problem.scores(point.coef, point.intercept)
    shift = float(move[size]) if problem.fit_intercept else 0.0
    strengths, coef = problem.quadratic, move[:size]
    step = Step(
        move, problem.scores(coef, shift), float((strengths * point.coef) @ coef), float((strengths * coef) @ coef)
    )
    return choose_length(problem, scores, problem.loss.gradient(problem.y, scores), step)


def _step(problem: Problem, point: Point, damped: bool) -> Point:
    smooth = problem.penalty.smooth
    coef, intercept, linear = _smooth_step(problem, point, damped)[:3] if smooth else _prox_step(problem, point)
    if not (np.all(np.isfinite(coef)) and np.isfinite(intercept)):
        return point
    plain = -problem.loss.gradient(problem.y, problem.scores(coef, intercept))
    found = [Point(coef, intercept, duality.make_feasible_dual(problem, plain))]
    if np.all(np.isfinite(linear)):
        projected = duality.make_feasible_dual(problem, -problem.loss.project(problem.y, -linear))
        found.append(Point(coef, intercept, projected))
    return min(found, key=lambda p: _gap(problem, p))


def _gap(problem: Problem, point: Point) -> float:
    value = duality.gap(problem, point.coef, point.intercept, _dual(point)).value
    return value if np.isfinite(value) else np.inf


def _smooth_step(problem: Problem, point: Point, damped: bool) -> tuple[Array, float, Array, float]:
    space = RowSpace(problem) if uses_row_space(problem) else ColumnSpace(problem)
    unknowns = space.place(point)
    scores = space.scores(unknowns)
    gradient, curvature = problem.loss.expand_slope(problem.y, scores)
    step = space.step(unknowns, gradient, curvature)
    length = choose_length(problem, scores, gradient, step) if damped else 1.0
    coef, intercept = space.primal(unknowns + length * step.move)
    if length == 1.0:
        return coef, intercept, space.linear_dual(unknowns, gradient, curvature, step), 1.0
    return coef, intercept, np.full(problem.n_rows, np.nan), length


def _prox_step(problem: Problem, point: Point) -> tuple[Array, float, Array]:
    gradient, curvature = problem.loss.expand_slope(problem.y, problem.scores(point.coef, point.intercept))
    coef, shift, forward = step_on_model(problem, point.coef, gradient, curvature, problem.n_columns)
    return coef, point.intercept + shift, -(gradient + curvature * forward)
