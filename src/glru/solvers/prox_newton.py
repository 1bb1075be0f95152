r"""Proximal Newton with working sets, for smooth losses with any penalty.

Each outer iteration replaces the loss by its second-order expansion and

1. picks a working set: the columns in use and those whose optimality is violated most;
2. minimises the model plus the penalty over it by coordinate descent;
3. fixes the signs that came out and solves the remaining smooth system exactly, so that
   coordinate descent only has to find the support, not the digits.

A line search on the true objective makes it globally convergent.
"""

from functools import partial

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from glru import duality
from glru.linalg import UNIT, Array, add_work
from glru.linalg.factor import solve_shifted
from glru.problem import Point, Problem
from glru.solvers.newton import Run, State, Stop, end, step_length
from glru.sums import Floor

MAX_EPOCHS = 200
"""Passes of coordinate descent over the working set in one outer iteration."""

ACTIVE_WORK = 3e8
"""The largest number of operations in the search for the signs of one model."""

DESCENT_EPOCHS = 10
"""Passes over a working set that count as the work of a typical descent."""

MAX_GRAM = 3000
"""Coordinate descent uses the Gram matrix of working sets up to this size, and the columns of larger ones."""


def prox_newton(problem: Problem, start: Point, stop: Stop) -> Run:
    """Train by proximal Newton steps; see the module's text."""
    penalty = problem.penalty
    coef, intercept = start.coef.copy(), float(start.intercept)
    scores = problem.scores(coef, intercept) if coef.any() else np.full(problem.n_rows, intercept)
    linear: Array | None = None
    best: State | None = None
    n_iter = quiet = 0
    n_working, floor = 100, Floor.of(problem.loss)
    # The model of a quadratic loss is the objective itself, whatever the start.
    quadratic = problem.loss.self_concordance == 0.0
    cold = stop.until is None and start.dual is None and stop.max_iter > 0
    if quadratic and cold and problem.matrix.stores_zeros and problem.arrays.stable and not problem.unpenalised.size:
        run = _descend_by_columns(problem, start, scores, stop)
        if run.status == "converged" or stop.max_iter == 1:
            return run
        if np.all(np.isfinite(run.point.coef)):
            coef, intercept, n_iter = run.point.coef, float(run.point.intercept), 1
            scores = problem.scores(coef, intercept)
    while True:
        values, gradient, curvature = problem.loss.expand(problem.y, scores)
        curvature = floor.raise_floor(curvature, scores)
        value = float(problem.weights @ values) + float(penalty.value(coef).sum())
        duals = [-gradient, None if quadratic else linear]
        state = _choose_best_state(problem, n_iter, value, coef, intercept, scores, duals)
        best = state if best is None or state.gap <= best.gap else best
        status = stop.check(state)
        if status is not None:
            return end(state, status, n_iter)

        ahead, shift, forward = step_on_model(problem, coef, gradient, curvature, n_working)
        n_working = max(n_working, 2 * int(np.count_nonzero(ahead)))
        length, moves = find_length(problem, scores, gradient, coef, ahead, forward)
        quiet = 0 if moves else quiet + 1
        if quiet > 5 or (length == 0.0 and floor.highest):
            return end(best, "stalled", n_iter)
        floor, n_iter = floor.after(length if forward.any() else 0.0), n_iter + 1
        if length == 0.0:
            linear = None
            continue
        linear = -problem.loss.project(problem.y, gradient + curvature * forward) if length == 1.0 else None
        coef = ahead if length == 1.0 else coef + length * (ahead - coef)
        intercept += length * shift
        scores = scores + length * forward


def _descend_by_columns(problem: Problem, start: Point, scores: Array, stop: Stop) -> Run:
    """Coordinate descent on the columns of dense data under a quadratic loss until the gap is about small enough, or that takes too long."""
    from glru.linalg import kernels

    X, weights, fit_intercept = problem.matrix.data, problem.weights, problem.fit_intercept
    total, gradient = float(weights.sum()), problem.loss.gradient(problem.y, scores)
    # The objective is divided by the weight of a row where all have the same, and the columns are centred instead of an intercept.
    unit = float(weights[0]) if weights.min() == weights.max() else 1.0
    center = (weights @ X) / total if fit_intercept else np.zeros(problem.n_columns)
    shift = float(weights @ gradient) / total if fit_intercept else 0.0
    forces = gradient - shift
    columns = np.subtract(X.T, center[:, None], order="C")
    if unit == 1.0:
        roots = np.sqrt(weights)
        columns *= roots
        forces = roots * forces
    lam = np.broadcast_to(problem.penalty.quadratic / unit, center.shape)
    kappa = np.broadcast_to(problem.penalty.absolute / unit, center.shape)
    coef, linear = start.coef.copy(), columns @ forces
    losses = float(weights @ problem.loss.value(problem.y, scores)) - 0.5 * total * shift**2
    constant = losses / unit - float(linear @ coef)
    visits = kernels.column_descent(
        columns, linear, lam, kappa, coef, np.zeros(problem.n_rows), constant, stop.margin * stop.tol
    )
    add_work(0.25 * problem.n_rows * abs(visits))
    intercept = float(start.intercept) - shift - float(center @ (coef - start.coef))
    return Run(Point(coef, intercept if fit_intercept else 0.0), 1, "converged" if visits > 0 else "max_iter")


def find_length(
    problem: Problem, scores: Array, gradient: Array, coef: Array, ahead: Array, forward: Array
) -> tuple[float, bool]:
    """How far to go along a step, by the derivative of the objective, and whether that is more than rounding at its beginning."""
    along = partial(_slope_along, problem, scores, forward, coef, ahead - coef)
    descent, terms = along(0.0), problem.weights * gradient * forward
    noise = 8.0 * UNIT * (float(np.abs(terms).sum()) + float(problem.penalty.value(ahead).sum()))
    return step_length(along, descent, noise), -descent > noise


def step_on_model(
    problem: Problem, coef: Array, gradient: Array, curvature: Array, n_working: int
) -> tuple[Array, float, Array]:
    """The minimiser of the model plus penalty over a working set: coefficients, the intercept's move, the scores' move."""
    model = _Model(problem, gradient, curvature)
    working = model.choose_working_set(coef, n_working)
    ahead = coef.copy()
    ahead[working], shift = model.minimise(coef[working], working)
    return ahead, shift, problem.matrix @ (ahead - coef) + shift


class _Model:
    """The second-order expansion of the loss at the current scores."""

    def __init__(self, problem: Problem, gradient: Array, curvature: Array) -> None:
        self.problem = problem
        self.forces = problem.weights * gradient
        self.curvatures = problem.weights * curvature
        self.slope = problem.matrix.T @ self.forces
        self.lam = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
        self.kappa = np.broadcast_to(problem.penalty.absolute, (problem.n_columns,))

    def choose_working_set(self, coef: Array, size: int) -> NDArray[np.intp]:
        """The columns in use, the unpenalised ones, and the ``size`` worst violators among the others; all columns where there are so few."""
        if coef.size <= size:
            return np.arange(coef.size)
        used = (coef != 0.0) | ((self.lam == 0.0) & (self.kappa == 0.0))
        violation = np.where(used, 0.0, np.abs(self.slope) - self.kappa)
        worst = np.argpartition(-violation, min(size, violation.size - 1))[:size]
        used[worst[violation[worst] > 0.0]] = True
        return np.flatnonzero(used)

    def minimise(self, coef: Array, working: NDArray[np.intp]) -> tuple[Array, float]:
        """The working columns' minimisers of the model plus penalty, and the intercept's move."""
        if working.size > MAX_GRAM:
            return self._minimise_by_columns(coef, working)
        from glru.linalg import kernels

        data = self._symmetric_gram(working)
        extra = data.shape[0] - working.size
        kappa = np.append(self.kappa[working], np.zeros(extra))
        lam = np.append(self.lam[working], np.zeros(extra))
        x = np.append(coef, np.zeros(extra))
        linear = np.append(self.slope[working], [self.forces.sum()] * extra) - data @ x
        data[np.diag_indices_from(data)] += lam
        scale = float(np.abs(linear) @ np.abs(x)) + float(self.problem.weights.sum()) * UNIT
        add_work(DESCENT_EPOCHS * float(x.size) ** 2)
        x = kernels.quadratic_descent(data, linear, kappa, x, MAX_EPOCHS, 1e-10 * scale)
        x = _minimise_by_active_set(data, linear, kappa, x)
        return x[: working.size], float(x[-1]) if extra else 0.0

    def _symmetric_gram(self, working: NDArray[np.intp]) -> Array:
        """``[X_W, 1]^T diag(d) [X_W, 1]``, without the ones where there is no intercept."""
        X = self.problem.matrix[:, working]
        upper = np.triu(X.column_gram(self.curvatures))
        gram = upper + np.triu(upper, 1).T
        if not self.problem.fit_intercept:
            return gram
        border = X.T @ self.curvatures
        return np.block([[gram, border[:, None]], [border[None, :], np.full((1, 1), self.curvatures.sum())]])

    def _minimise_by_columns(self, coef: Array, working: NDArray[np.intp]) -> tuple[Array, float]:
        from glru.linalg import kernels

        X = self.problem.matrix.to_csc(working)
        extra = int(self.problem.fit_intercept)
        if extra:
            X = sp.csc_array(sp.hstack([X, sp.csc_array(np.ones((X.shape[0], 1)))]))
        kappa = np.append(self.kappa[working], np.zeros(extra))
        lam = np.append(self.lam[working], np.zeros(extra))
        x, fitted = np.append(coef, np.zeros(extra)), np.zeros(X.shape[0])
        linear = np.append(self.slope[working], [self.forces.sum()] * extra)
        diagonal = X.multiply(X).T @ self.curvatures
        scale = float(np.abs(linear) @ np.abs(x)) + float(self.problem.weights.sum()) * UNIT
        kernels.csc_quadratic_descent(
            X.indptr,
            X.indices,
            X.data,
            self.curvatures,
            diagonal,
            lam,
            linear,
            kappa,
            x,
            fitted,
            MAX_EPOCHS,
            1e-10 * scale,
        )
        support = np.flatnonzero((x != 0.0) | (kappa + lam == 0.0))
        signs = np.where(kappa[support] > 0.0, np.sign(x[support]), 0.0)
        part, penalty_curvature = X[:, support], lam[support]

        def product(v: Array) -> Array:
            return part.T @ (self.curvatures * (part @ v)) + penalty_curvature * v

        # In terms of the move from what coordinate descent found, so that the iteration starts at its residual.
        residual = (
            linear[support]
            + part.T @ (self.curvatures * fitted)
            + penalty_curvature * x[support]
            + kappa[support] * signs
        )
        operator = LinearOperator((support.size, support.size), matvec=product, dtype=np.float64)
        inverse = 1.0 / np.maximum(diagonal[support] + penalty_curvature, UNIT)
        move, _ = cg(operator, -residual, rtol=1e-12, maxiter=500, M=sp.diags_array(inverse))
        exact = x[support] + move
        x[support] = np.where(_has_same_signs(exact, signs), exact, x[support])
        return x[: working.size], float(x[-1]) if extra else 0.0


def _minimise_by_active_set(data: Array, linear: Array, kappa: Array, x: Array) -> Array:
    """The minimiser of ``x^T data x / 2 + linear . x + kappa . |x|``, from a point near it.

    On the support the signs are held and the smooth system is solved exactly. A step that would turn a sign ends where the
    first entry becomes zero, which then leaves the support; at a minimiser on the support, the entry that violates
    optimality most joins. Every round lowers the objective, so that stopping early costs digits only.
    """
    free = kappa == 0.0
    used = (x != 0.0) | free
    # Each entry joins and leaves once or twice; where rounding makes one come and go, more rounds gain nothing.
    affordable = int(ACTIVE_WORK / (1.0 + float(used.sum()) ** 3))
    for _ in range(max(1, min(affordable, 4 * x.size + 10))):
        support = np.flatnonzero(used)
        signs = np.where(free[support], 0.0, np.sign(x[support]))
        exact = solve_shifted(data[np.ix_(support, support)], -linear[support] - kappa[support] * signs)
        if not np.all(np.isfinite(exact)):
            break
        turning = np.flatnonzero(exact * signs < 0.0)
        if turning.size:
            here = x[support]
            lengths = here[turning] / (here[turning] - exact[turning])
            first = turning[int(np.argmin(lengths))]
            x[support] = here + lengths.min() * (exact - here)
            x[support[first]] = 0.0
            used = (x != 0.0) | free
            continue
        x[support] = exact
        gradient = data @ x + linear
        violation = np.where(used | (np.diagonal(data) <= 0.0), 0.0, np.abs(gradient) - kappa)
        if not np.any(violation > 1e-12 * (np.abs(linear) + kappa)):
            break
        worst = int(np.argmax(violation))
        x[worst] = -np.sign(gradient[worst]) * violation[worst] / data[worst, worst]
        used[worst] = True
    return x


def _has_same_signs(x: Array, signs: Array) -> bool:
    """Whether no penalised entry left its orthant."""
    return bool(np.all(np.isfinite(x)) and np.all(x * signs >= 0.0))


def _slope_along(problem: Problem, scores: Array, forward: Array, coef: Array, move: Array, length: float) -> float:
    """The objective's right derivative along a step."""
    add_work(10 * problem.n_rows)
    slopes = problem.loss.gradient(problem.y, scores + length * forward)
    ahead = coef + length * move
    signed = np.where(ahead == 0.0, np.abs(move), np.sign(ahead) * move)
    penalty = problem.penalty
    return float(
        problem.weights @ (slopes * forward)
        + (penalty.quadratic * ahead * move).sum()
        + (penalty.absolute * signed).sum()
    )


def _choose_best_state(
    problem: Problem, n_iter: int, value: float, coef: Array, intercept: float, scores: Array, duals: list[Array | None]
) -> State:
    """The state with the best of some dual points, each made feasible first."""
    gap, chosen = np.inf, duals[0]
    for dual in duals:
        if dual is not None:
            feasible = duality.make_feasible_dual(problem, dual)
            size = duality.gap(problem, coef, intercept, feasible).value
            if size < gap:
                gap, chosen = size, feasible
    assert chosen is not None
    return State(n_iter, value, gap, scores, chosen, lambda: (coef, intercept))
