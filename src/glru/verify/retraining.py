"""Training in arbitrary precision: every model that is returned meets the optimality conditions.

A smoothed problem solved in float64 tells which coefficients are zero and which rows sit on the hinge's kink. With those sets
fixed the conditions are equations, solved by Newton's method with residuals in full precision. Then every condition is
checked; sets that fail it are corrected, and if that does not converge, nothing is returned.
"""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import as_matrix
from glru.losses import Hinge, Huber, SmoothedHinge
from glru.problem import Problem
from glru.verify.precise import Objects, Precise, as_objects, precise, precise_problem

Floats = NDArray[np.float64]

MAX_UNKNOWNS = 60
"""Systems in more unknowns than this are not solved in full precision; float64 factors with precise residuals are used."""


@final
@dataclass(frozen=True, eq=False)
class Trained:
    """An optimum in arbitrary precision."""

    coef: Objects  # the coefficients
    intercept: Any
    doubts: Objects  # how far each coefficient, and behind them the intercept, may be from the exact one
    dual: list[tuple[Any, Any]]  # every row's dual variable and how far it may be off; rows of weight zero are left out
    mp: Any  # the arithmetic they live in

    @property
    def model(self) -> Objects:
        """The coefficients, and behind them the intercept."""
        return np.append(self.coef, self.intercept)

    def dual_at(self, place: int) -> tuple[Any, Any]:
        """A dual variable, and how far it may be off."""
        return self.dual[place]

    def scores(self, X: Any) -> list[tuple[Any, Any]]:
        """The scores of some rows, and how far each may be from the exact one."""
        found = []
        for row in as_matrix(X).dense():
            entries = precise(self.mp, row)
            doubt = self.mp.fdot(abs(entries), self.doubts[:-1]) + self.doubts[-1]
            found.append((self.mp.fdot(entries, self.coef) + self.intercept, doubt))
        return found


def retrain(problem: Problem, digits: int = 50) -> Trained | None:
    """An optimum of a problem; None where none was found that meets every condition."""
    return retrain_precise(precise_problem(problem, digits + 15), digits)


@np.errstate(all="ignore")  # what is not finite ends in None
def retrain_precise(exact: Precise, digits: int) -> Trained | None:
    """An optimum of a problem in arbitrary precision, as :func:`retrain` finds it."""
    start = Start(exact)
    w, b, slopes = start.find()
    if w is None:
        return None
    sets = _Sets(exact, w, b, slopes)
    for _ in range(60):
        solved = _solve(exact, sets, digits)
        if solved is None:
            return None
        if not all(exact.mp.isfinite(number) for number in [*solved[0], solved[1]]):
            return None
        if sets.repair(*solved[:3]):
            dual = _dual(exact, *solved, exact.mp.mpf(10) ** -digits)
            doubts = solved[3] * np.append(exact.scales, exact.mp.one) * 1000
            return Trained(solved[0] * exact.scales, solved[1], doubts, dual, exact.mp)
    return None


def _dual(exact: Precise, w: Objects, b: Any, q: Objects, doubts: Objects, small: Any) -> list[tuple[Any, Any]]:
    """Dual variables: minus the slopes, which follow the scores; of a hinge they were solved for."""
    mp = exact.mp
    if exact.has_kink:
        return [(y * slope, 1000 * small) for y, slope in zip(exact.y, q, strict=True)]
    slopes, curvatures = exact.slopes(exact.scores(w, b))
    if np.isfinite(exact.loss.smoothness):
        curvatures = np.full(len(slopes), mp.mpf(float(exact.loss.smoothness)), dtype=object)
    off = [mp.fdot(abs(row), doubts[:-1]) + doubts[-1] for row in exact.X]
    # Where a curvature vanishes, the rounding of the slope is more than what the doubt of its score moves it by.
    return [
        (-slope, 1000 * h * far + 8 * mp.eps * abs(slope))
        for slope, h, far in zip(slopes, curvatures, off, strict=True)
    ]


class _Sets:
    """Which coefficients are not zero and with which sign, and which rows are on the hinge's kink, beyond it or short of it."""

    def __init__(self, exact: Precise, w: Floats, b: float, slopes: Floats) -> None:
        mp = self.mp = exact.mp
        self.exact, self.w, self.b = exact, precise(mp, w), mp.mpf(b)
        penalised = exact.kappa > 0
        self.signs = np.where(penalised, np.sign(w) * (np.abs(w) > 1e-6), 0.0)
        self.on = ~penalised | (self.signs != 0.0)
        self.w = np.where(self.on, self.w, mp.zero)
        # Of a hinge, 1: short of the margin, 0: beyond it; NaN: on the kink.
        self.sides = np.where((slopes > 1e-9) & (slopes < 1.0 - 1e-9), np.nan, np.round(slopes))
        self.q = precise(mp, np.clip(slopes, 0.0, 1.0))

    def repair(self, w: Objects, b: Any, q: Objects) -> bool:
        """Move what fails a condition to another set; return whether nothing failed."""
        exact, mp = self.exact, self.mp
        self.w, self.b, self.q = w, b, q
        good = True
        scores = exact.scores(w, b)
        g = -exact.y * q if exact.has_kink else exact.slopes(scores)[0]
        gradient = exact.correlations(g) + exact.lam * w
        for j in np.flatnonzero(exact.kappa > 0):
            if self.on[j] and w[j] * self.signs[j] <= 0:
                self.on[j], self.signs[j], self.w[j], good = False, 0.0, mp.zero, False
            elif not self.on[j] and abs(gradient[j]) > exact.kappa[j]:
                self.on[j], self.signs[j], good = True, -float(mp.sign(gradient[j])), False
        if exact.has_kink:
            short = 1 - exact.y * scores
            for i in range(len(short)):
                if np.isnan(self.sides[i]):
                    if not 0 <= q[i] <= 1:
                        self.sides[i], good = float(q[i] > 1), False
                elif short[i] != 0 and (short[i] > 0) != (self.sides[i] == 1.0):
                    self.sides[i], good = np.nan, False
        return good


def _solve(exact: Precise, sets: _Sets, digits: int) -> tuple[Objects, Any, Objects, Objects] | None:
    """Coefficients, intercept and slopes with the sets held, and what a step may still change of the first two."""
    mp = exact.mp
    on = np.flatnonzero(sets.on)
    edge = np.flatnonzero(np.isnan(sets.sides)) if exact.has_kink else np.empty(0, dtype=np.intp)
    w, b = sets.w.copy(), sets.b
    q = sets.q.copy()
    if exact.has_kink:
        known = ~np.isnan(sets.sides)
        q[known] = precise(mp, sets.sides[known])
    one = [len(on)] if exact.intercept else []
    equations = _Equations(exact, on, edge, sets.signs)
    small = mp.mpf(10) ** (-digits)
    for _ in range(150):
        residual, curvatures = equations.residual(w, b, q)
        step = equations.step(residual, curvatures)
        if step is None:
            return None
        length = mp.one if exact.has_kink else equations.length(w, b, q, step)
        w, q = w.copy(), q.copy()
        # Arrays come first in products: mpmath would print an array before it gives up on it.
        w[on] += step[: len(on)] * length
        b = b + length * step[one[0]] if one else b
        q[edge] += step[len(on) + len(one) :] * length
        floors = equations.floors(w, b, q, curvatures) * small
        if length == 1 and all(abs(m) <= f for m, f in zip(step, floors, strict=True)):
            doubts = np.full(len(w) + 1, mp.zero, dtype=object)
            doubts[[*on, *([len(w)] if one else [])]] = floors[: len(on) + len(one)]
            return w, b, q, doubts
    return None


class _Equations:
    """The optimality conditions with the sets held, and Newton steps towards them."""

    def __init__(self, exact: Precise, on: NDArray[np.intp], edge: NDArray[np.intp], signs: Floats) -> None:
        self.exact, self.on, self.edge = exact, on, edge
        self.kinks = precise(exact.mp, signs) * exact.kappa
        ones = np.full((len(exact.y), 1), exact.mp.one, dtype=object)
        self.design = np.hstack([exact.X[:, on], ones]) if exact.intercept else exact.X[:, on]
        self.floats = self.design.astype(np.float64)
        self.before: Any = None
        self.full = False

    def residual(self, w: Objects, b: Any, q: Objects) -> tuple[Objects, Objects]:
        """What is left of every equation, and the curvatures."""
        exact, mp = self.exact, self.exact.mp
        scores = exact.scores(w, b)
        curvatures = np.full(len(scores), mp.zero, dtype=object)
        if exact.has_kink:
            g = -exact.y * q
        else:
            g, curvatures = exact.slopes(scores)
        parts = list((exact.correlations(g) + exact.lam * w + self.kinks)[self.on])
        parts += [mp.fdot(exact.weights, g)] if exact.intercept else []
        parts += [scores[i] - exact.y[i] for i in self.edge]
        return as_objects(parts), curvatures

    def floors(self, w: Objects, b: Any, q: Objects, curvatures: Objects) -> Objects:
        """The size of every unknown, at least that of the terms that cancel in its equation, over its curvature."""
        exact, mp = self.exact, self.exact.mp
        scores = exact.scores(w, b)
        # A slope is itself a difference: of a score and a target where the loss is quadratic.
        g = (
            abs(exact.y * q)
            if exact.has_kink
            else abs(exact.slopes(scores)[0]) + curvatures * (1 + abs(scores) + abs(exact.y) + abs(exact.offset))
        )
        terms, curved = exact.weights * g, exact.weights * curvatures
        found = []
        for k in range(self.design.shape[1]):
            column, j = self.design[:, k], self.on[k] if k < len(self.on) else None
            size, curvature = mp.fdot(abs(column), terms), mp.fdot(column * column, curved)
            here = abs(b)
            if j is not None:
                size, curvature, here = (
                    size + exact.lam[j] * abs(w[j]) + exact.kappa[j],
                    curvature + exact.lam[j],
                    abs(w[j]),
                )
            found.append(max(here, size / curvature) if curvature > 0 else 1 + here)
        return as_objects([*found, *[mp.one] * len(self.edge)])

    def step(self, residual: Objects, curvatures: Objects) -> Objects | None:
        """The Newton step: from float64 factors while that makes residuals small, in full precision otherwise."""
        if not len(residual):
            return residual
        size = max(abs(r) for r in residual)
        if self.before is not None and size > self.before / 1000:
            self.full = True
        self.before = size
        if not self.full or len(residual) > MAX_UNKNOWNS:
            top = size if size > 0 else self.exact.mp.one
            right = np.array([float(r / top) for r in residual])
            try:
                found = np.linalg.solve(
                    self._matrix(self.floats, curvatures.astype(np.float64)).astype(np.float64), -right
                )
            except np.linalg.LinAlgError:
                found = np.full(right.shape, np.nan)
            if np.all(np.isfinite(found)):
                return precise(self.exact.mp, found) * top
            self.full = True
        if len(residual) > MAX_UNKNOWNS:
            return None
        return _solve_system(self.exact.mp, self._matrix(self.design, curvatures), -residual)

    def length(self, w: Objects, b: Any, q: Objects, step: Objects) -> Any:
        """A length at which a step has not overshot."""
        mp, n_on = self.exact.mp, len(self.on)
        first = mp.fdot(self.residual(w, b, q)[0], step)
        length = mp.one
        if not first < 0:
            return length
        for _ in range(60):
            ahead = w.copy()
            ahead[self.on] += step[:n_on] * length
            shift = length * step[n_on] if self.exact.intercept else mp.zero
            if mp.fdot(self.residual(ahead, b + shift, q)[0], step) <= abs(first) / 2:
                break
            length /= 2
        return length

    def _matrix(self, design: NDArray[Any], curvatures: NDArray[Any]) -> Objects:
        """The derivative of the equations, from the design in float64 or in full precision."""
        exact, inner = self.exact, design.shape[1]
        size = inner + len(self.edge)
        matrix = np.full((size, size), exact.mp.zero, dtype=object)
        used = np.flatnonzero(curvatures != 0)
        if used.size:
            weights = exact.weights[used].astype(design.dtype) * curvatures[used]
            matrix[:inner, :inner] = design[used].T @ (weights[:, None] * design[used])
        for place, j in enumerate(self.on):
            matrix[place, place] += exact.lam[j]
        for place, i in enumerate(self.edge, start=inner):
            matrix[:inner, place] = self.design[i] * (-exact.weights[i] * exact.y[i])
            matrix[place, :inner] = self.design[i]
        return matrix


def _solve_system(mp: Any, matrix: Objects, right: Objects) -> Objects | None:
    """The solution of a system of equations; None where the matrix is singular."""
    # Rows of one size: what is singular is judged by the largest of them.
    sizes = np.array([max(map(abs, row)) or mp.one for row in matrix], dtype=object)
    try:
        found = mp.lu_solve(mp.matrix((matrix / sizes[:, None]).tolist()), mp.matrix((right / sizes).tolist()))
        return as_objects(list(found))
    except ZeroDivisionError:
        return None


ROUNDED_WIDTHS = tuple(10.0**-k for k in range(-3, 9))
"""How far kinks are rounded off, coarse to fine."""


FLOATS = SimpleNamespace(mpf=np.float64, exp=np.exp, sign=np.sign, one=np.float64(1.0), zero=np.float64(0.0))
"""The arithmetic of float64 under the names of mpmath."""


@final
class Start:
    """Where retraining starts: a damped Newton method in float64 on a problem whose kinks are rounded off, more and more finely."""

    def __init__(self, exact: Precise) -> None:
        self.exact = exact
        self.X, self.y, self.offset = (part.astype(np.float64) for part in (exact.X, exact.y, exact.offset))
        if exact.intercept:
            self.X = np.column_stack([self.X, np.ones(len(self.y))])
        pad = (0, int(exact.intercept))
        self.s, self.lam, self.kappa = (
            exact.weights.astype(np.float64),
            *(np.pad(a.astype(np.float64), pad) for a in (exact.lam, exact.kappa)),
        )

    def find(self) -> tuple[Floats | None, float, Floats]:
        """Coefficients, intercept and slopes ``-y g`` of the rows."""
        w = np.zeros(self.X.shape[1])
        if self.exact.loss.link == "log" and self.exact.intercept and self.s @ self.y > 0.0:
            w[-1] = np.log(self.s @ self.y / (self.s @ np.exp(self.offset)))
        for width in ROUNDED_WIDTHS:
            for _ in range(100):
                moved = self._step(w, width)
                if moved is None:
                    break
                w = moved
        if not np.all(np.isfinite(w)):
            return None, 0.0, self.y
        slopes = -self.y * self._derivatives(self.X @ w, ROUNDED_WIDTHS[-1])[0]
        return (w[:-1], float(w[-1]), slopes) if self.exact.intercept else (w, 0.0, slopes)

    def _gradient(self, w: Floats, width: float) -> tuple[Floats, Floats, Floats]:
        g, h = self._derivatives(self.X @ w, width)
        rounded = np.abs(w) < width
        kink = self.kappa * np.where(rounded, w / width, np.sign(w))
        return self.X.T @ (self.s * g) + self.lam * w + kink, h, self.kappa * rounded / width

    def _step(self, w: Floats, width: float) -> Floats | None:
        gradient, h, curvature = self._gradient(w, width)
        hessian = self.X.T @ ((self.s * h)[:, None] * self.X) + np.diag(self.lam + curvature)
        # Where the loss is flat the largest curvature it may have sets the scale, so that no step is endless.
        size = np.sqrt(np.diag(hessian) + 1e-3 * (self.s @ self.X**2)) + 1e-30
        scaled = hessian / size[:, None] / size
        if not np.all(np.isfinite(scaled)):
            return None
        damping = 1e-14 + 1e-3 * min(1.0, float(np.abs(gradient / size).max()))
        move = -np.linalg.lstsq(scaled + damping * np.eye(size.size), gradient / size, rcond=None)[0] / size
        first, length = float(gradient @ move), 1.0
        if not first < 0.0 or not np.all(np.isfinite(move)):
            return None
        for _ in range(50):
            if self._gradient(w + length * move, width)[0] @ move <= 0.5 * abs(first):
                break
            length *= 0.5
        new = w + length * move
        return None if np.all(np.abs(new - w) <= 1e-13 * np.abs(w)) else new

    def _derivatives(self, z: Floats, width: float) -> tuple[Floats, Floats]:
        """Slopes and curvatures at scores without the offset; kinks are rounded off over a width."""
        loss = self.exact.loss
        if isinstance(loss, Hinge):
            loss = SmoothedHinge(width)
        elif isinstance(loss, Huber | SmoothedHinge):
            loss = replace(loss, gamma=max(loss.gamma, width))
        rounded: Any = replace(self.exact, mp=FLOATS, y=self.y, offset=self.offset, loss=loss)  # type: ignore[arg-type]
        g, h = rounded.slopes(z)
        return g.astype(np.float64), h.astype(np.float64)


MAX_CONTRACTION = 0.1
"""A step with a float64 factor must be at most this share of the one before; otherwise the Hessian is factored again at the current model."""

MAX_STEPS = 200
"""Steps after which a training that has not converged gives up."""


@final
@dataclass(frozen=True, eq=False)
class TrainedClasses:
    """An optimum in arbitrary precision, with one score per class; coefficients and intercepts sum to zero over the classes."""

    # Shape (n_classes, n_columns + 1): the coefficients, and behind them the intercepts, zeros if there are none.
    model: Objects
    doubts: Objects  # shape (n_classes, n_columns + 1): how far each of them may be from the exact one
    likely: Objects  # shape (n_used, n_classes): the probabilities of the rows of positive weight
    likely_doubts: Objects  # shape (n_used,): how far each of a row's may be off
    y: Objects  # shape (n_used,): the places of these rows' classes
    mp: Any  # the arithmetic they live in

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

    def dual_at(self, place: int, k: int) -> tuple[Any, Any]:
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
        for _ in range(MAX_STEPS):
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
            contracts = length <= MAX_CONTRACTION * before
            if contracts and length <= floor:
                return model, np.full(model.shape, 1000 * floor, dtype=object)
            if not contracts and not fresh:
                with np.errstate(all="ignore"):
                    inverse = self._inverse(self._likely(model.astype(np.float64)))
            fresh = not contracts and not fresh
            before = length
        return None
