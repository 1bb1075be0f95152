"""Training of multinomial models in arbitrary precision: Newton steps on the precise gradient until all requested digits are stable."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import as_matrix
from glru.problem import Problem
from glru.verify.precise import Objects, Precise, precise, precise_problem

Floats = NDArray[np.float64]

LEAST_CONTRACTION = 0.1
"""A step with a float64 factor must be at most this share of the one before; otherwise the Hessian is factored again at the current model."""

MOST_STEPS = 200
"""Steps after which a training that has not converged gives up."""


@final
@dataclass(frozen=True, eq=False)
class TrainedClasses:
    """An optimum in arbitrary precision, with one score per class; coefficients and intercepts sum to zero over the classes.

    Attributes
    ----------
    model : array of objects of shape (n_classes, n_columns + 1)
        The coefficients, and behind them the intercepts, zeros if there are none.
    doubts : array of objects of shape (n_classes, n_columns + 1)
        How far each of them may be from the exact one.
    likely : array of objects of shape (n_used, n_classes)
        The probabilities of the rows of positive weight.
    likely_doubts : array of objects of shape (n_used,)
        How far each of a row's may be off.
    y : array of objects of shape (n_used,)
        The places of these rows' classes.
    mp : mpmath context
        The arithmetic they live in.
    """

    model: Objects
    doubts: Objects
    likely: Objects
    likely_doubts: Objects
    y: Objects
    mp: Any

    def scores(self, X: Any) -> list[list[tuple[Any, Any]]]:
        """The scores of some rows, one per class, and how far each may be from the exact one."""
        found = []
        for row in as_matrix(X).dense():
            entries = np.append(precise(self.mp, row), self.mp.one)
            found.append(
                [
                    (self.mp.fdot(entries, line), self.mp.fdot(abs(entries), off))
                    for line, off in zip(self.model, self.doubts, strict=True)
                ]
            )
        return found

    def dual(self, place: int, k: int) -> tuple[Any, Any]:
        """A dual variable, ``[k = y] - p_k``, and how far it may be off."""
        own = self.mp.one if int(self.y[place]) == k else self.mp.zero
        return own - self.likely[place, k], self.likely_doubts[place]


def retrain_classes(problem: Problem, digits: int = 50) -> TrainedClasses | None:
    """The optimum of a multinomial problem; None where steps do not converge to it."""
    exact = precise_problem(problem, digits + 15)
    n_scores = problem.n_scores
    if exact.intercept and len({int(place) for place in exact.y}) < n_scores:
        return None
    training = _Training(exact, n_scores)
    with np.errstate(all="ignore"):
        start = training.start()
    found = None if start is None else training.polish(start, digits)
    if found is None:
        return None
    model, doubts = found
    mp, scales = exact.mp, np.append(exact.scales, [exact.mp.one] * int(exact.intercept))
    likely = training.probabilities(model)
    # No probability moves by more than half of what a score does.
    off = np.array([max(mp.fdot(abs(row), line) for line in doubts) for row in training.design], dtype=object)
    model, doubts = model * scales, doubts * scales
    if not exact.intercept:
        zeros = np.full((n_scores, 1), mp.zero, dtype=object)
        model, doubts = np.hstack([model, zeros]), np.hstack([doubts, zeros])
    return TrainedClasses(model, doubts, likely, off, exact.y, mp)


class _Training:
    """Newton steps of one problem."""

    def __init__(self, exact: Precise, n_scores: int) -> None:
        self.exact, self.n_scores = exact, n_scores
        ones = np.full((len(exact.y), 1), exact.mp.one, dtype=object)
        self.design = np.hstack([exact.X, ones]) if exact.intercept else exact.X
        self.lam = np.append(exact.lam, [exact.mp.zero] * int(exact.intercept))
        self.X, self.s = self.design.astype(np.float64), exact.weights.astype(np.float64)
        self.strengths = self.lam.astype(np.float64)
        self.own = np.equal.outer(exact.y.astype(np.float64), np.arange(float(n_scores))).astype(np.float64)

    def start(self) -> Floats | None:
        """A damped Newton method in float64; None if it ends with NaN."""
        model = np.zeros((self.n_scores, self.X.shape[1]))
        for _ in range(200):
            likely = self._likely(model)
            gradient = (self.s[:, None] * (likely - self.own)).T @ self.X + self.strengths * model
            move = -self._inverse(likely) @ gradient.ravel()
            if not np.all(np.isfinite(move)):
                return None
            move = move.reshape(model.shape)
            first, length = float(np.vdot(gradient, move)), 1.0
            for _ in range(60):
                ahead = model + length * move
                slope = (self.s[:, None] * (self._likely(ahead) - self.own)).T @ self.X + self.strengths * ahead
                if np.vdot(slope, move) <= 0.5 * abs(first):
                    break
                length *= 0.5
            model = model + length * move
            if np.all(np.abs(length * move) <= 1e-12 * (1.0 + np.abs(model))):
                break
        return model

    def _likely(self, model: Floats) -> Floats:
        z = self.X @ model.T
        likely = np.exp(z - z.max(axis=1, keepdims=True))
        found: Floats = likely / likely.sum(axis=1, keepdims=True)
        return found

    def _inverse(self, likely: Floats) -> Floats:
        """The inverse of the Hessian in float64, made regular in the directions that change no loss."""
        size = self.X.shape[1]
        curvatures = likely[:, :, None] * np.eye(self.n_scores) - likely[:, :, None] * likely[:, None, :]
        hessian = np.einsum("i,iab,ij,ik->ajbk", self.s, curvatures, self.X, self.X, optimize=True)
        shift = np.einsum("ajaj->j", hessian) + self.strengths + 1e-300
        for j in range(size):
            hessian[:, j, :, j] += shift[j] + self.strengths[j] * np.eye(self.n_scores)
        matrix = hessian.reshape(self.n_scores * size, -1)
        scale = 1.0 / np.sqrt(np.diag(matrix))
        found: Floats = np.linalg.pinv(matrix * scale * scale[:, None], hermitian=True) * scale * scale[:, None]
        return found

    def probabilities(self, model: Objects) -> Objects:
        """The probabilities of all rows in full precision."""
        mp = self.exact.mp
        found = np.empty((len(self.design), self.n_scores), dtype=object)
        for i, row in enumerate(self.design):
            scores = [mp.fdot(row, line) for line in model]
            top = max(scores)
            likely = [mp.exp(score - top) for score in scores]
            total = mp.fsum(likely)
            found[i] = [value / total for value in likely]
        return found

    def _gradient(self, model: Objects) -> Objects:
        """The objective's gradient in full precision."""
        mp, slopes = self.exact.mp, self.probabilities(model)
        for i, place in enumerate(self.exact.y):
            k = int(place)
            # A probability near 1 less 1 keeps its digits as minus the sum of the others.
            slopes[i, k] = -mp.fsum(value for j, value in enumerate(slopes[i]) if j != k)
        found = np.empty_like(model)
        for k in range(self.n_scores):
            weighted = self.exact.weights * slopes[:, k]
            found[k] = [mp.fdot(column, weighted) for column in self.design.T] + self.lam * model[k]
        return found

    def polish(self, start: Floats, digits: int) -> tuple[Objects, Objects] | None:
        """The model after steps on the precise gradient, and how far each number may be off; None without convergence.

        The factor is rounded, the gradient is not: each step leaves the same small share of the error.
        """
        mp, model = self.exact.mp, precise(self.exact.mp, start)
        small, before = mp.mpf(10) ** -digits, mp.inf
        with np.errstate(all="ignore"):
            inverse, fresh = self._inverse(self._likely(start)), True
        for _ in range(MOST_STEPS):
            gradient = self._gradient(model)
            size = max(abs(value) for value in gradient.ravel())
            if size == 0:
                return model, np.full(model.shape, small, dtype=object)
            move = precise(mp, inverse @ (gradient / size).astype(np.float64).ravel()).reshape(model.shape) * -size
            move = move - move.sum(axis=0) / self.n_scores
            length = max(abs(value) for value in move.ravel())
            model = model + move
            model = model - model.sum(axis=0) / self.n_scores
            floor = small * (1 + max(abs(value) for value in model.ravel()))
            contracts = length <= LEAST_CONTRACTION * before
            if contracts and length <= floor:
                return model, np.full(model.shape, 1000 * floor, dtype=object)
            if not contracts and not fresh:
                with np.errstate(all="ignore"):
                    inverse = self._inverse(self._likely(model.astype(np.float64)))
            fresh = not contracts and not fresh
            before = length
        return None
