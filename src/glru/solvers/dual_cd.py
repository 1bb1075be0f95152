r"""Dual coordinate ascent, for the hinge and the logistic loss with an L2 penalty on every column.

One dual variable at a time is maximised while :math:`v = X^\top (s \circ a)` is kept up to date. On sparse data whose rows
overlap little it needs few passes over the data, and every pass tells what is left of the gap: it ends as soon as that
falls too slowly.

An intercept (logistic loss only) is held by a proximal term: around an intercept :math:`b_k` that follows it after every
pass, :math:`\mu (b - b_k)^2 / 2` makes it one more penalised coefficient, :math:`b = b_k + \sum_i s_i a_i / \mu`.
"""

import numpy as np

from glru.linalg import Array
from glru.losses import Logistic
from glru.point import Point
from glru.problem import Problem
from glru.solvers.newton import Run, State, Stop, end, state_at

HOLD = 0.01
"""The proximal term of the intercept, as a share of the curvature that the losses have in it."""

FIRST_PASSES = 8
"""Passes after which the fall of the gap is judged."""


def dual_cd(problem: Problem, start: Point, stop: Stop) -> Run:
    """Train by passes in random order (seeded, so that runs repeat)."""
    logistic, weights, y = isinstance(problem.loss, Logistic), problem.weights, problem.y
    lam = problem.penalty.quadratic
    # Columns of unequal strength are scaled to one strength in a copy of X.
    scale = float(1.0 / lam) if lam.ndim == 0 else 1.0
    X = problem.matrix if lam.ndim == 0 else problem.matrix.scale_columns(1.0 / np.sqrt(lam))
    bends = steps = scale * weights * X.squared_row_norms()
    slopes = _starting_slopes(problem, start)
    # A row of zeros has the score 0 under every model, so its dual variable is known and never moves.
    slopes[bends == 0.0] = 0.5 if logistic else 1.0
    v = X.T @ (weights * y * slopes)
    shift = np.array([start.intercept, 0.0, float(weights @ (y * slopes))])

    def state() -> State:
        coef = scale * v if lam.ndim == 0 else v / np.sqrt(lam)
        return state_at(problem, n_iter, coef, float(shift[0]), y * slopes)

    random = np.random.default_rng(0)
    gaps: list[float] = []
    value, n_iter = np.inf, 0
    # A state costs as much as a few passes. Unless somebody asks for all of them, the passes' own sums tell when to look.
    always = stop.until is not None or not logistic or start.dual is not None
    while True:
        slow = n_iter >= stop.max_iter or _passes_left(gaps, stop.target(value)) > stop.patience
        if always or slow or (gaps and gaps[-1] <= stop.target(value)):
            here = state()
            value, status = here.primal_value, stop.check(here)
            if status is not None or slow:
                return end(here, status or "max_iter", n_iter)
        curvature = float(weights @ (slopes * (1.0 - slopes))) if gaps else 0.25 * float(weights.sum())
        if problem.fit_intercept:
            shift[1] = 1.0 / (HOLD * curvature)
            steps = bends + shift[1] * weights
        order = random.permutation(problem.n_rows)
        gaps.append(X.dual_epoch(y, weights, scale, steps, order, logistic, slopes, v, shift))
        n_iter += 1
        if problem.fit_intercept:
            shift[0] += shift[1] * shift[2]
            # What the constraint will cost, met by moves of the dual variables in proportion to their curvatures.
            gaps[-1] += 0.5 * float(shift[2]) ** 2 / curvature


def _passes_left(gaps: list[float], target: float) -> float:
    """How many more passes the gap needs at the rate of the last half of them; 0 while that is unknown."""
    if len(gaps) < FIRST_PASSES or gaps[-1] <= target:
        return 0.0
    back = len(gaps) // 2
    rate = np.log(gaps[-1 - back] / gaps[-1]) / back
    return float(np.log(gaps[-1] / target) / rate) if rate > 0.0 and target > 0.0 else np.inf


def _starting_slopes(problem: Problem, start: Point) -> Array:
    if start.dual is not None:
        return np.clip(problem.y * start.dual, 0.0, 1.0)
    if not start.coef.any():
        return np.zeros(problem.n_rows)
    slopes = problem.loss.gradient(problem.y, problem.scores(start.coef, start.intercept))
    return np.clip(-problem.y * slopes, 0.0, 1.0)
