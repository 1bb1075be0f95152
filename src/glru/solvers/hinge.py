r"""Solvers for the hinge, which has no curvature for Newton to use.

* :func:`dual_cd`: dual coordinate ascent, for an L2 penalty on every column and no intercept.
* :func:`proximal_point`: a sequence of smooth problems in which each row's hinge is replaced by
  :class:`~glru.losses.ProximalHinge` around its last dual variable. Each is solved by Newton; as the
  smoothing width shrinks the sequence converges faster than linearly, whatever the penalty.
"""

import numpy as np

from glru import duality
from glru._numerics import Array, squared_row_norms
from glru.losses import ProximalHinge
from glru.problem import Problem
from glru.solution import Point, relative, solution_at
from glru.solvers.common import Run, State, Stop, end
from glru.solvers.newton import newton
from glru.solvers.prox_newton import prox_newton


def dual_cd(problem: Problem, start: Point, stop: Stop) -> Run:
    """Train by dual coordinate ascent in random order (seeded, so that runs repeat)."""
    from glru import _kernels as kernels

    random = np.random.default_rng(0)
    inverse = np.broadcast_to(1.0 / problem.penalty.quadratic, (problem.n_columns,))
    bends = problem.weights * squared_row_norms(problem.X, inverse)
    slopes = np.clip(problem.y * start.dual, 0.0, 1.0) if start.dual is not None else np.zeros(problem.n_rows)
    # A row of zeros has the score 0 under every model: its slope is 1 and it never moves.
    slopes[bends == 0.0] = 1.0
    best: State | None = None
    n_iter = 0
    while True:
        dual = problem.y * slopes
        coef = inverse * problem.correlations(dual)
        state = _state(problem, n_iter, coef, 0.0, dual)
        best = state if best is None or state.gap <= best.gap else best
        status = stop.check(state)
        if status is not None:
            return end(state if status != "max_iter" else best, status)
        order = random.permutation(problem.n_rows)
        common = (problem.y, problem.weights, inverse, bends, order, slopes, coef)
        X = problem.X
        if isinstance(X, np.ndarray):
            kernels.hinge_epoch_dense(X, *common)
        else:
            kernels.hinge_epoch_sparse(X.indptr, X.indices, X.data, *common)
        n_iter += 1


def proximal_point(problem: Problem, start: Point, stop: Stop) -> Run:
    """Train by proximal-point steps on the dual; see the module's text.

    The width of the smoothing shrinks while the smooth problems stay easy, and grows when one is too hard:
    any width converges, a narrow one in fewer steps.
    """
    inner = newton if problem.penalty.smooth else prox_newton
    point = start
    slopes = np.clip(problem.y * start.dual, 0.0, 1.0) if start.dual is not None else np.full(problem.n_rows, 0.5)
    width = 1.0 if start.dual is None else 0.1
    state = best = _proximal_state(problem, 0, point, slopes)
    n_iter = failures = 0
    while True:
        status = stop.check(state)
        if status is not None:
            return end(state if status != "max_iter" else best, status)
        if failures > 10:
            return end(best, "stalled")
        smooth = problem.derive(loss=ProximalHinge(width, slopes))
        target = 1e-2 * min(1.0, relative(state.gap, state.primal_value))
        run = inner(smooth, point, Stop(max(target, 1e-15), None, 50))
        solution = solution_at(smooth, run.point, run.n_iter, run.status, "")
        ahead = np.clip(problem.y * solution.dual, 0.0, 1.0)
        n_iter += 1
        state = _proximal_state(problem, n_iter, solution.point, ahead)
        if run.status == "converged" or state.gap < 0.5 * best.gap:
            point, slopes = solution.point, ahead
            width = max(0.3 * width, 1e-6) if run.n_iter <= 15 else width
            failures = 0 if state.gap < best.gap else failures + 1
        else:
            width, failures = 4.0 * width, failures + 1
        best = state if state.gap <= best.gap else best


def _proximal_state(problem: Problem, n_iter: int, point: Point, slopes: Array) -> State:
    return _state(problem, n_iter, point.coef, point.intercept, duality.feasible_dual(problem, problem.y * slopes))


def _state(problem: Problem, n_iter: int, coef: Array, intercept: float, dual: Array) -> State:
    gap = duality.gap(problem, coef, intercept, dual)
    value = duality.primal_value(problem, coef, gap.scores)
    return State(n_iter, value, gap.value, gap.scores, dual, lambda: (coef, intercept))
