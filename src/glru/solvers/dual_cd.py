r"""Dual coordinate ascent, for the hinge and the logistic loss with an L2 penalty on every column and no intercept.

One dual variable at a time is maximised exactly while :math:`v = X^\top (s \circ a)` is kept up to date. On wide
sparse data whose rows overlap little it needs only a few passes over the data.
"""

from functools import partial

import numpy as np

from glru import duality
from glru.linalg import Array
from glru.losses import Logistic
from glru.point import Point
from glru.problem import Problem
from glru.solvers.newton import Run, State, Stop, end


def dual_cd(problem: Problem, start: Point, stop: Stop) -> Run:
    """Train by passes in random order (seeded, so that runs repeat); the gap is taken after every pass."""
    logistic = isinstance(problem.loss, Logistic)
    lam = problem.penalty.quadratic
    # Columns of unequal strength are scaled to one strength in a copy of X.
    scale = float(1.0 / lam) if lam.ndim == 0 else 1.0
    columns = np.ones(problem.n_columns) if lam.ndim == 0 else 1.0 / np.sqrt(lam)
    X = problem.matrix if lam.ndim == 0 else problem.matrix.scale_columns(columns)
    bends = scale * problem.weights * X.squared_row_norms()
    slopes = _starting_slopes(problem, start)
    # A row of zeros has the score 0 under every model, so its dual variable is known and never moves.
    slopes[bends == 0.0] = 0.5 if logistic else 1.0
    v = X.T @ (problem.weights * problem.y * slopes)
    random = np.random.default_rng(0)
    best: State | None = None
    n_iter = 0
    while True:
        scores, dual = scale * (X @ v), problem.y * slopes
        gap = float(duality.row_terms(problem, scores, dual).sum())
        losses = float(problem.weights @ problem.loss.value(problem.y, scores))
        state = State(
            n_iter, losses + 0.5 * scale * float(v @ v), gap, scores, dual, partial(_primal, v.copy(), scale * columns)
        )
        best = state if best is None or gap <= best.gap else best
        status = stop.check(state)
        if status is not None:
            return end(state if status != "max_iter" else best, status, n_iter)
        order = random.permutation(problem.n_rows)
        X.dual_epoch(problem.y, problem.weights, scale, bends, order, logistic, slopes, v)
        n_iter += 1


def _primal(v: Array, scales: Array) -> tuple[Array, float]:
    return scales * v, 0.0


def _starting_slopes(problem: Problem, start: Point) -> Array:
    if start.dual is not None:
        return np.clip(problem.y * start.dual, 0.0, 1.0)
    if not start.coef.any():
        return np.zeros(problem.n_rows)
    return np.clip(-problem.y * problem.loss.gradient(problem.y, problem.scores(start.coef)), 0.0, 1.0)
