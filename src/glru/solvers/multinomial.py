r"""Newton's method for the multinomial loss: with a Cholesky factor of all classes and columns, or by conjugate gradients.

The Newton system couples the classes. Directly it is formed and factored (:func:`glru.metric.classes.class_hessian`); by conjugate gradients only products with
it are made, :math:`X^\top [s (P \circ T - P (P \cdot T))] + \Lambda V`, :math:`T = X V`, in front of its diagonal blocks, one per class, or of its diagonal where
these are too large. Both are globalised by a line search along the scores.

A full step ends with the linearised dual point :math:`q = p + h t`: then the penalty's Fenchel-Young terms are those of what the system's solution missed.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, final

import numpy as np
from scipy.linalg import solve_triangular

from glru import duality
from glru.linalg import UNIT, Array, gamma
from glru.linalg.factor import robust_cholesky, solve_cholesky
from glru.losses import Multinomial
from glru.losses.logistic import softmax
from glru.metric.classes import class_hessian, read_strengths
from glru.penalties import L2
from glru.problem import Point, Problem
from glru.regions.class_sums import pack_classes, sum_classes, unpack_classes
from glru.regions.classes import ClassEllipsoid
from glru.solvers.newton import Run, State, Stop, end, step_length

MAX_PRODUCTS = 400
"""Products with the Hessian in one step of conjugate gradients."""

STALE = 12
"""After this many products in a step the preconditioner blocks are formed again."""

BLOCK_ROWS = 40
"""The first preconditioner blocks of dense data use this many rows per column: they are cheap and cost about one more product per step."""

PROMISING = 0.1
"""The gap is computed once the decrement of a step is at most this share of the root of the target, relative to the objective."""

DIRECT_UNKNOWNS = 2500
"""Systems with more unknowns than this are not factored to train a model."""

ROW_SPACE, ROW_SPACE_TOL = 1000, 1e-9
"""Wide data with more rows than this is not trained in the space of its rows, nor is any data to smaller gaps: eigenvalues of the Gram matrix err by units of the largest."""

ROW_SPACE_RAISED = 1e-12
"""The Gram matrix is raised by this share of its diagonal before it is factored, a few hundred times its rounding error."""

BLOCK_COLUMNS = 1500
"""Diagonal blocks of more columns than this are not factored."""


def direct_is_cheaper(problem: Problem, rounds: float = 3.0) -> bool:
    """Whether factoring the whole system is expected to take less time than conjugate gradients; ``rounds``: of products with all classes, beside the blocks."""
    n_scores, width = problem.n_scores, problem.n_columns + int(problem.fit_intercept)
    size = n_scores * width
    if problem.matrix.only_products:
        return size <= problem.largest
    if size > min(DIRECT_UNKNOWNS, problem.largest):
        return False
    # Nanoseconds, roughly: a Gram matrix for each pair of classes and the factor, against one for each class and a few products: the blocks
    # serve several steps, and most of these take 3 to 12 products.
    pairs = 0.5 * n_scores * (n_scores - 1)
    direct = pairs * problem.matrix.gram_cost + 0.02 * float(size) ** 3
    return direct < n_scores * problem.matrix.gram_cost + rounds * (n_scores * problem.matrix.product_cost + 1e5)


def class_newton(problem: Problem, start: Point, stop: Stop) -> Run:
    """Newton steps with a factor of the whole system."""
    return _run(problem, start, stop, _Direct(problem))


def class_newton_cg(problem: Problem, start: Point, stop: Stop) -> Run:
    """Newton steps by conjugate gradients, or in the space of the rows where that is far smaller."""
    if _is_wide(problem) and stop.tol >= ROW_SPACE_TOL:
        return _row_space_newton(problem, start, stop)
    return _run(problem, start, stop, _Products(problem))


def approach_classes(problem: Problem, start: Point, stop: Stop, solve: Callable[[Array], Array]) -> Point:
    """The point after Newton steps from a model near the optimum until the gap is about small enough; it is not computed.

    ``solve``: what stands in front of the system where that is not factored, made for another problem much like this one.
    """
    solver = _Direct(problem) if direct_is_cheaper(problem) else _Products(problem, solve)
    return _run(problem, start, stop, solver, proven=False).point


def class_newton_in_passes(problem: Problem, start: Point, stop: Stop) -> Run:
    """Newton steps over rows in blocks: a pass sums value, gradient and Hessian at a model, and the local certificate there proves its gap."""
    strengths, fit_intercept = read_strengths(problem), problem.fit_intercept
    model = pack_classes(start, fit_intercept)
    model = model - model.mean(axis=0)
    value, descent, length, step, run = np.inf, 0.0, 1.0, np.zeros_like(model), None
    while True:
        there = model + length * step
        point = unpack_classes(there, fit_intercept)
        here = sum_classes(problem, point)
        found = here.value + 0.5 * float(np.sum(strengths * np.square(there)))
        if run is not None and not found <= value + 1e-4 * length * descent + gamma(problem.totals.depth) * found:
            # A step of Newton's that leads up is shortened, at the price of a pass.
            length *= 0.25
            if length < 1e-6:
                return run
            continue
        n_iter, value, model, length = 0 if run is None else run.n_iter + 1, found, there, 1.0
        region, run = ClassEllipsoid.of_sums(problem, point, here), Run(point, n_iter, "stalled", class_sums=here)
        # The norms of all rows take a pass: they are asked for where the gap is about to be small enough.
        gap = region.gap if region.is_close or region.nu**2 <= 4.0 * stop.target(value) else np.inf
        nothing, known = np.empty(0), partial(lambda *pair: pair, point.coef, point.intercept)
        status = stop.check(State(n_iter, value, gap, nothing, nothing, known))
        step = -region.metric.solve(region.gradient.ravel()).reshape(model.shape)
        step = step - step.mean(axis=0)
        descent = float(np.vdot(region.gradient, step))
        if status is not None:
            return replace(run, status=status)
        if not -descent > 4.0 * UNIT * value:
            return run


def _is_wide(problem: Problem) -> bool:
    """Whether the rows span few of the columns, all of which are penalised."""
    penalised = bool(np.all(problem.quadratic > 0.0)) and problem.matrix.stores_zeros and problem.arrays.stable
    return penalised and 2 * problem.n_rows <= min(problem.n_columns, 2 * ROW_SPACE)


def _row_space_newton(problem: Problem, start: Point, stop: Stop) -> Run:
    r"""Newton steps in coordinates of the space :math:`\Lambda^{-1} X^\top` that holds the optimum.

    With :math:`K = X \Lambda^{-1} X^\top = L L^\top` the rows are ``L`` there, under a penalty of strength 1. ``K`` is raised by a share of each row's own
    square, far below what its gaps show, so that rows of all lengths keep their digits.
    """
    X, inverse = problem.matrix, 1.0 / problem.quadratic
    gram = X.row_gram(inverse).dense()
    if not (np.all(np.isfinite(gram)) and float(np.trace(gram)) > 1e-280):
        return _run(problem, start, stop, _Products(problem))
    gram += np.diag(ROW_SPACE_RAISED * np.diagonal(gram) + 1e-290)
    rows = np.linalg.cholesky(gram)
    small = problem.derive(X=rows, penalty=L2(1.0), column_names=None)
    coef = solve_triangular(rows, problem.scores(start.coef), lower=True).T
    solver = _Direct(small) if direct_is_cheaper(small) else _Products(small)

    def widen(coef: Array) -> Array:
        return np.asarray((X.T @ solve_triangular(rows, coef.T, lower=True, trans=1)).T * inverse)

    def until(state: State) -> bool:
        assert stop.until is not None
        return stop.until(replace(state, primal=lambda: (widen(state.coef), state.intercept)))

    ask = stop if stop.until is None else replace(stop, until=until)
    run = _run(small, Point(coef, start.intercept, start.dual), ask, solver)
    return replace(run, point=replace(run.point, coef=widen(run.point.coef)))


@final
class _Direct:
    """Newton directions from a Cholesky factor."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.n_products = problem, 0

    def direction(self, likely: Array, gradient: Array, accuracy: float) -> Array:
        hessian, _ = class_hessian(self.problem, likely)
        found: Array = -solve_cholesky(robust_cholesky(hessian), gradient.ravel()).reshape(gradient.shape)
        return found


@final
class _Products:
    """Newton directions by conjugate gradients in front of the diagonal blocks, or of the diagonal."""

    def __init__(self, problem: Problem, solve: Callable[[Array], Array] | None = None) -> None:
        self.problem, self.n_products, self.last, self.is_shared = problem, 0, 0, solve is not None
        self.strengths = read_strengths(problem)
        self.solve = solve

    def direction(self, likely: Array, gradient: Array, accuracy: float) -> Array:
        if self.solve is None:
            self.solve = self.blocks(likely, sampled=True)
        elif self.last > STALE and not self.is_shared:
            self.solve = self.blocks(likely)
        solve = self.solve
        found, self.last = class_conjugate_gradients(
            lambda vectors: self._product(likely, vectors[0])[None],
            lambda vectors: np.asarray(solve(vectors[0]))[None],
            -gradient[None],
            np.array([accuracy]),
            MAX_PRODUCTS,
        )
        self.n_products += self.last
        return np.asarray(found[0])

    def blocks(self, likely: Array, sampled: bool = False) -> Callable[[Array], Array]:
        """The inverses of the diagonal blocks at some probabilities, or of the diagonal; ``sampled``: those of some of the rows will do."""
        problem, strengths, weights = self.problem, self.strengths, self.problem.weights
        some = np.arange(0, problem.n_rows, max(1, problem.n_rows // (BLOCK_ROWS * max(problem.n_columns, 1))))
        if sampled and problem.matrix.stores_zeros and problem.arrays.stable and weights[some].any():
            problem, likely = problem.take(some), likely[some]
            weights = weights[some] * (float(weights.sum()) / float(weights[some].sum()))
        curvatures = weights[:, None] * likely * (1.0 - likely)
        width = problem.n_columns
        if width > BLOCK_COLUMNS or (not problem.matrix.stores_zeros and width > 300):
            squares = [problem.matrix.squared_column_norms(curvatures[:, k]) for k in range(likely.shape[1])]
            diagonal = np.array(squares)
            if problem.fit_intercept:
                diagonal = np.column_stack([diagonal, curvatures.sum(axis=0)])
            diagonal = np.maximum(diagonal + strengths, 1e-12 * max(float(diagonal.max()), 1e-300))
            return lambda vector: vector / diagonal
        same = bool(np.all(likely == likely[0, 0]))
        n_blocks = 1 if same else likely.shape[1]
        factors = [robust_cholesky(problem.hessian(curvatures[:, k])) for k in range(n_blocks)]
        if same:
            return lambda vector: solve_cholesky(factors[0], np.asfortranarray(vector.T)).T
        return lambda vector: np.array([solve_cholesky(f, line) for f, line in zip(factors, vector, strict=True)])

    def _product(self, likely: Array, vector: Array) -> Array:
        problem = self.problem
        weighted = problem.weights[:, None] * _apply_curvature(likely, _scores(problem, vector))
        return _gradient(problem, weighted) + self.strengths * vector


def class_conjugate_gradients(
    product: Callable[[Any], Any], solve: Callable[[Any], Any], right: Any, inexact: Array, most: int
) -> tuple[Any, int]:
    """Solutions of one system per model (models, classes, unknowns), up to a share of each right side in the norm of what stands in front, and the number of products, at most ``most``."""
    left, found, count = right, np.zeros_like(right), 0
    step = solve(left)
    size = np.einsum("fak,fak->f", left, step)
    goal = np.square(inexact) * size
    while count < most and np.any(going := size > goal):
        image, count = product(step), count + 1
        curvature = np.einsum("fak,fak->f", step, image)
        length = np.divide(size, curvature, out=np.zeros_like(size), where=going & (curvature > 0.0))
        found = found + length[:, None, None] * step
        left = left - length[:, None, None] * image
        ahead = solve(left)
        before, size = size, np.where(length > 0.0, np.einsum("fak,fak->f", left, ahead), 0.0)
        step = ahead + np.divide(size, before, out=np.zeros_like(size), where=before > 0.0)[:, None, None] * step
    return found, count


def _scores(problem: Problem, model: Array) -> Array:
    """Scores under coefficients with the intercepts last."""
    return problem.scores(model[:, :-1], model[:, -1]) if problem.fit_intercept else problem.scores(model)


def _gradient(problem: Problem, weighted: Array) -> Array:
    """``sum_i v_i x_i^T``, one line per class, the intercept's entry last."""
    gradient = (problem.matrix.T @ weighted).T
    return np.column_stack([gradient, weighted.sum(axis=0)]) if problem.fit_intercept else gradient


def _apply_curvature(likely: Array, moves: Array) -> Array:
    """``h t`` of every row."""
    mean = np.einsum("ij,ij->i", likely, moves)
    return likely * (moves - mean[:, None])


def _run(problem: Problem, start: Point, stop: Stop, solver: "_Direct | _Products", proven: bool = True) -> Run:
    """Newton steps from a point until its gap is small enough; not ``proven``: until the last step says that it is."""
    loss, strengths, weights = problem.loss, read_strengths(problem), problem.weights
    assert isinstance(loss, Multinomial)
    rows = np.arange(problem.n_rows)
    model = pack_classes(start, problem.fit_intercept)
    model = model - model.mean(axis=0)
    scores = _scores(problem, model)
    dual: Array | None = start.dual
    n_iter, decrement = 0, np.inf
    likely = softmax(scores)
    while True:
        slopes = loss.slopes_of(problem.y, likely)
        gradient = _gradient(problem, weights[:, None] * slopes) + strengths * model
        value = float(weights @ loss.value(problem.y, scores)) + 0.5 * float(np.sum(strengths * np.square(model)))
        state = None
        # The gap after a full step is about the square of its decrement.
        promising = max(stop.target(value), PROMISING * np.sqrt(stop.tol) * value)
        if not proven and (decrement <= promising or n_iter >= stop.max_iter):
            return Run(unpack_classes(model, problem.fit_intercept), n_iter, "converged")
        if stop.until is not None or decrement <= promising or n_iter >= stop.max_iter:
            state = _state(problem, n_iter, value, model, scores, dual, slopes, stop)
            status = stop.check(state)
            if status is not None:
                return end(state, status, n_iter)
        # The error of an inexact step is that share of the next gradient: the rate stays better than linear.
        accuracy = min(0.1, max(0.3 * np.sqrt(min(decrement / max(value, 1e-300), 1.0)), 1e-6))
        if n_iter > 0 and decrement <= 10.0 * stop.target(value):
            accuracy = min(accuracy, 1e-4)
        step = solver.direction(likely, gradient, accuracy)
        step = step - step.mean(axis=0)
        descent, moves = float(np.vdot(gradient, step)), _scores(problem, step)
        penalty, penalty_curvature = float(np.sum(strengths * model * step)), float(np.sum(strengths * np.square(step)))
        length, ahead = _length(problem, scores, moves, descent, penalty, penalty_curvature, rows)
        before, decrement = decrement, -0.5 * descent
        if (
            not np.isfinite(descent)
            or length == 0.0
            or (decrement >= 0.5 * before and before < 1e-14 * max(value, 1e-300))
        ):
            state = state or _state(problem, n_iter, value, model, scores, dual, slopes, stop)
            return end(state, stop.check(state) or "stalled", n_iter)
        dual = -(slopes + _apply_curvature(likely, moves)) if length == 1.0 else None
        model, n_iter = model + length * step, n_iter + 1
        scores, likely = scores + length * moves, ahead
        # Near the end a step of length 1 leaves a gap of the fourth order: its own decrement says when it is worth asking.
        decrement = max(decrement, 0.0) if length == 1.0 else np.inf
        if solver.n_products > stop.patience:
            state = _state(problem, n_iter, value, model, scores, dual, None, stop)
            return end(state, stop.check(state) or "max_iter", n_iter)


def _length(
    problem: Problem, scores: Array, moves: Array, descent: float, penalty: float, penalty_curvature: float, rows: Any
) -> tuple[float, Array]:
    """The length of a step, by the derivative of the objective along it, and the probabilities there."""
    weights, own = problem.weights, moves[rows, problem.y]
    seen: dict[float, Array] = {}

    def derivative(length: float) -> float:
        seen[length] = likely = softmax(scores + length * moves)
        return float(weights @ (np.einsum("ij,ij->i", likely, moves) - own)) + penalty + length * penalty_curvature

    noise = 1e-14 * (float(weights @ np.abs(moves).max(axis=1)) + abs(penalty))
    length = step_length(derivative, descent, noise)
    return length, seen[length] if length in seen else softmax(scores + length * moves)


def _state(
    problem: Problem,
    n_iter: int,
    value: float,
    model: Array,
    scores: Array,
    dual: Array | None,
    slopes: Array | None,
    stop: Stop,
) -> State:
    """The state at a model with the linearised dual point, or that of the model's own slopes where this one ends nothing and that is better."""
    point = unpack_classes(model, problem.fit_intercept)
    if slopes is None:
        slopes = problem.loss.gradient(problem.y, scores)
        value = duality.primal_value(problem, point.coef, scores)
    best: tuple[float, Array] | None = None
    for candidate in (dual, -slopes):
        if candidate is None:
            continue
        feasible = duality.make_feasible_dual(problem, candidate)
        gap = duality.gap(problem, point.coef, point.intercept, feasible).value
        gap = gap if np.isfinite(gap) else np.inf
        if best is None or gap < best[0]:
            best = gap, feasible
        if gap <= stop.target(value):
            break
    assert best is not None
    return State(n_iter, value, best[0], scores, best[1], lambda: (point.coef, point.intercept))
