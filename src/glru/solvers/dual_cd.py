r"""Dual coordinate ascent, for the hinge and the logistic loss with an L2 penalty on every column.

One dual variable at a time is maximised while :math:`v = X^\top (s \circ a)` is kept up to date. A round is a pass over all
rows, which tells what each of them adds to the duality gap, and a few passes over those that matter. On sparse data whose
rows overlap little, few rounds are enough; where the gap falls too slowly, the first ones tell.

An intercept (logistic loss only) is held by a proximal term: around an intercept :math:`b_k` that follows it after every
pass, :math:`\mu (b - b_k)^2 / 2` makes it one more penalised coefficient, :math:`b = b_k + \sum_i s_i a_i / \mu`.
"""

import numpy as np

from glru import duality
from glru.linalg import Array
from glru.losses import Logistic
from glru.problem import Point, Problem
from glru.solvers.newton import Run, Stop, end, state_at

PROXIMAL_SHARE = 0.01
"""The proximal term of the intercept, as a share of the losses' curvature in its direction."""

FIRST_ROUNDS = 5
"""Number of rounds after which the decrease of the gap is judged."""

EXTRA_PASSES, SMALL_SHARE = 4, 0.03
"""Passes of a round over the rows whose share of the gap is at least this much of the mean; the others stay as they are."""


def dual_cd(problem: Problem, start: Point, stop: Stop) -> Run:
    """Train by rounds of passes in random order (seeded, so that runs repeat)."""
    logistic, weights, y = isinstance(problem.loss, Logistic), problem.weights, problem.y
    lam = problem.penalty.quadratic
    # Columns of unequal strength are scaled to one strength in a copy of X.
    scale = float(1.0 / lam) if lam.ndim == 0 else 1.0
    X = problem.matrix if lam.ndim == 0 else problem.matrix.scale_columns(1.0 / np.sqrt(lam))
    curvatures = steps = scale * weights * X.squared_row_norms()
    slopes = _starting_slopes(problem, start)
    # A row of zeros has the score 0 under every model, so its dual variable is known and never moves.
    slopes[curvatures == 0.0] = 0.5 if logistic else 1.0
    v = X.T @ (weights * y * slopes)
    shift = np.array([start.intercept, 0.0, float(weights @ (y * slopes))])

    def point() -> Point:
        return Point(scale * v if lam.ndim == 0 else v / np.sqrt(lam), float(shift[0]), y * slopes)

    random = np.random.default_rng(0)
    gaps: list[float] = []
    shares = np.zeros(problem.n_rows)
    value, n_iter = float(weights @ problem.loss.value(y, np.zeros(problem.n_rows))), 0
    # A state costs as much as a few passes: unless somebody asks for all of them, the rounds' own sums tell when to end.
    always = stop.until is not None or not logistic or start.dual is not None
    while True:
        slow = n_iter >= stop.max_iter or _count_rounds_left(gaps, stop.target(value)) > stop.patience
        here = point() if always or slow or (gaps and gaps[-1] <= stop.target(value)) else None
        if here is not None and always:
            state = state_at(problem, n_iter, here.coef, here.intercept, y * slopes)
            value, status = state.primal_value, stop.check(state)
            if status is not None or slow:
                return end(state, status or "max_iter", n_iter)
        elif here is not None:
            value = duality.primal_value(problem, here.coef, problem.scores(here.coef, here.intercept))
            if slow or gaps[-1] <= stop.target(value):
                return Run(here, n_iter, "max_iter" if slow else "converged")
        first = gaps[-1] if gaps else np.inf
        skip = SMALL_SHARE * first / problem.n_rows if gaps else 0.0
        for k in range(1 + EXTRA_PASSES if gaps else 1):
            if problem.fit_intercept:
                seen, most = float(weights @ (slopes * (1.0 - slopes))), 0.25 * float(weights.sum())
                # Where all dual variables are on the edge, as in the beginning, there is none to be seen.
                curvature = seen if seen > 1e-9 * most else most
                shift[1] = 1.0 / (PROXIMAL_SHARE * curvature)
                steps = curvatures + shift[1] * weights
            order = random.permutation(problem.n_rows if k == 0 else np.flatnonzero(shares > skip))
            X.dual_pass(y, weights, scale, steps, order, logistic, skip, slopes, v, shift, shares)
            gap = float(shares.sum())
            if problem.fit_intercept:
                shift[0] += shift[1] * shift[2]
                # What the constraint will cost, met by moves of the dual variables in proportion to their curvatures.
                gap += 0.5 * float(shift[2] * (shift[2] / curvature))
            first = gap if k == 0 else first
            if gap <= max(SMALL_SHARE * first, stop.target(value)):
                break
        gaps.append(gap)
        n_iter += 1


def _count_rounds_left(gaps: list[float], target: float) -> float:
    """How many more rounds the gap needs at the rate of the last half of them; 0 while that is unknown."""
    if len(gaps) < FIRST_ROUNDS or gaps[-1] <= target:
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
