r"""Trust-region Newton-CG (TRON) for smooth losses with an L2 penalty: only products with X and its transpose.

Each outer iteration minimises the quadratic model within a trust region by preconditioned conjugate
gradients and goes to the objective's minimum along that move. A CG residual ``r`` costs exactly
:math:`\sum_j r_j^2 / (2 \lambda_j)` in the duality gap of the linearised dual point, which tells the
inner iteration when it has done enough. Nothing but the quality of a move depends on its products: of dense data
they are made in single precision.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_solve, cholesky

from glru import duality
from glru.linalg import UNIT, Array
from glru.problem import Point, Problem
from glru.solvers.multinomial import class_conjugate_gradients
from glru.solvers.newton import Run, State, Stop, end, newton, sample_of, step_length
from glru.sums import Floor, hessian_product

MAX_INNER = 500
"""Conjugate-gradient steps in one outer iteration."""

MAX_PRODUCTS = 5000
"""Products with Hessians of rows in blocks, each a pass over the data, after which outer iterations take one each. Runs that converge take fewer."""

LARGE, PANEL = 1 << 17, 1 << 18
"""Entries of dense data from which products in single precision pay for the copy, and entries of rows that stay in the cache between two products."""

SINGLE_ERROR = 64.0 * float(np.finfo(np.float32).eps)
"""Roughly the share of a residual that rounding in single precision leaves."""

LEAST_VARIANCE = 1e-12
"""Variances below this share of second moments are rounding."""

EARLIEST, EARLY_SHARE = 4, 0.1
"""Products after which those to come are foreseen, where one model is solved: at least, and as a share of those that are affordable."""

NEAR_TARGET = 4.0
"""With an intercept, a dual point is made feasible once the estimate of its gap is at most this many times the target."""


class Preconditioner(ABC):
    """A positive definite approximation of the Hessian."""

    forcing: float
    """How far an inner iteration reduces the squared residual, unless the gap needs less."""

    @abstractmethod
    def solve(self, residual: Array) -> Array:
        """Its inverse times a vector."""

    @abstractmethod
    def product(self, move: Array) -> Array:
        """It times a vector."""

    @abstractmethod
    def at(self, total: float, border: Array) -> "Preconditioner":
        """The preconditioner for loss curvatures of some sum, and their products with the columns where there is an intercept."""


@final
class ColumnScales(Preconditioner):
    """The Hessian's diagonal if all rows had their mean curvature, for columns of unequal scale.

    The intercept is eliminated, unless kinks leave few rows with curvature: what columns far from zero have in common with it makes no step small. Under a
    quadratic loss, moves of wide data stay in the span of the rows where the metric is that of the penalty, which alone curves the rest.
    """

    diagonal: Array
    total: float
    means: Array

    def __init__(self, problem: Problem) -> None:
        # Far from the optimum the model of a loss with kinks is not worth more.
        self.forcing = 0.1 if problem.loss.self_concordance is None else 0.02
        self.problem, self.scales = problem, np.zeros(problem.n_columns)
        self.eliminates = problem.fit_intercept and problem.loss.self_concordance is not None
        if problem.loss.self_concordance != 0.0 or problem.n_rows >= problem.n_columns:
            total = float(problem.weights.sum())
            self.scales = problem.column_norms**2 / total
            if self.eliminates:
                means = problem.matrix.T @ problem.weights / total
                self.scales = np.maximum(self.scales - np.square(means), LEAST_VARIANCE * self.scales)

    def at(self, total: float, border: Array) -> "ColumnScales":
        found = copy(self)
        diagonal = total * self.scales + self.problem.quadratic
        found.diagonal, found.total = np.where(diagonal > 0.0, diagonal, 1.0), total or 1.0
        found.means = border / found.total if self.eliminates else np.zeros(border.size)
        return found

    def solve(self, residual: Array) -> Array:
        if not self.problem.fit_intercept:
            return residual / self.diagonal
        move = (residual[:-1] - residual[-1] * self.means) / self.diagonal
        return np.append(move, residual[-1] / self.total - self.means @ move)

    def product(self, move: Array) -> Array:
        if not self.problem.fit_intercept:
            return self.diagonal * move
        force = self.total * (move[-1] + self.means @ move[:-1])
        return np.append(self.diagonal * move[:-1] + force * self.means, force)


@final
class SampleHessian(Preconditioner):
    """The Hessian of a sample of the rows at one point: a few inner iterations then suffice at any conditioning."""

    forcing = 1e-3

    def __init__(self, factor: Array) -> None:
        self.factor = factor

    def solve(self, residual: Array) -> Array:
        return cho_solve((self.factor, False), residual, check_finite=False)

    def product(self, move: Array) -> Array:
        return self.factor.T @ (self.factor @ move)

    def at(self, total: float, border: Array) -> "SampleHessian":
        return self


def prepare(problem: Problem, start: Point) -> Preconditioner:
    """The preconditioner for a training that starts at a point."""
    sample = sample_of(problem)
    if sample is None:
        return ColumnScales(problem)
    curvatures = sample.weights * sample.loss.curvature(sample.y, sample.scores(start.coef, start.intercept))
    try:
        return SampleHessian(np.triu(cholesky(sample.hessian(curvatures), check_finite=False)))
    except LinAlgError:
        return ColumnScales(problem)


@final
@dataclass(frozen=True, eq=False)
class Trial:
    """An approximate minimiser of the quadratic model: the move, its scores, the model's residual and decrease."""

    move: Array
    scores: Array
    residual: Array
    decrease: float
    on_edge: bool


def newton_cg(problem: Problem, start: Point, stop: Stop) -> Run:
    """Train by trust-region Newton-CG; see the module's text."""
    conditioner = prepare(problem, start)
    model = _Model(problem, stop.patience)
    if model.quadratic and problem.fit_intercept and not start.coef.any():
        start = Point(start.coef, float(problem.weights @ problem.targets / problem.weights.sum()))
    unknowns = model.pack(start.coef, start.intercept)
    scores = (
        problem.scores(start.coef, start.intercept) if start.coef.any() else np.full(problem.n_rows, start.intercept)
    )
    floor = Floor.of(problem.loss)
    values, gradient, curvature = problem.loss.expand(problem.y, scores)
    value = model.value(unknowns, values)
    slope = model.slope(unknowns, gradient)
    radius, sharpness = np.inf, 1.0
    n_iter = quiet = 0
    state = best = model.state(0, value, unknowns, scores, gradient, slope, stop)
    while True:
        status = stop.check(state) or ("max_iter" if model.n_products >= model.patience else None)
        if status is not None:
            return end(state if status != "max_iter" else best, status, n_iter)
        raised = floor.raise_floor(curvature, scores)
        conditioner = conditioner.at(*model.bend(raised))
        forcing = 0.0 if model.quadratic else sharpness * conditioner.forcing
        trial = model.minimise(slope, conditioner, forcing, radius, value, stop)
        terms = slope * trial.move
        descent, noise = float(terms.sum()), 8.0 * UNIT * float(np.abs(terms).sum())
        quiet = quiet + 1 if -descent <= noise or trial.decrease <= UNIT * value else 0
        length = step_length(partial(model.slope_along, unknowns, scores, trial), descent, noise)
        if quiet > 5 or (length == 0.0 and floor.highest):
            return end(best, "stalled", n_iter)
        floor, n_iter = floor.after(length), n_iter + 1
        if length == 0.0:
            state = replace(state, n_iter=n_iter)
            continue
        if length < 0.25:
            radius = length * float(np.sqrt(trial.move @ conditioner.product(trial.move)))
        elif trial.on_edge and length >= 1.0:
            radius = 4.0 * radius
        linear, before = gradient + raised * trial.scores, slope
        unknowns, scores = unknowns + length * trial.move, scores + length * trial.scores
        values, gradient, curvature = problem.loss.expand(problem.y, scores)
        value = model.value(unknowns, values)
        slope = model.slope(unknowns, gradient)
        state = model.state(n_iter, value, unknowns, scores, gradient, slope, stop)
        if length == 1.0 and not trial.on_edge:
            state = model.linear_state(state, linear, trial.residual, before, stop)
        # Where the gap does not fall the model is solved more sharply: piecewise losses need exact Newton steps.
        if problem.loss.self_concordance is None:
            sharpness = max(0.1 * sharpness, 1e-9) if state.gap > 0.5 * best.gap else min(10.0 * sharpness, 1.0)
        best = state if state.gap <= best.gap else best


@final
class _Model:
    """The objective and its quadratic model in ``(coef, intercept)``."""

    def __init__(self, problem: Problem, patience: float) -> None:
        self.problem, self.n_products, self.patience = problem, 0, patience
        self.total = problem.loss.smoothness * float(problem.weights.sum())
        self.border = np.zeros(problem.n_columns)
        self.lam = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
        self.single: NDArray[np.float32] | None = None
        self.units = np.ones(problem.n_columns)
        self.quadratic = problem.loss.self_concordance == 0.0
        # One model is solved under a quadratic loss, by few products.
        if problem.matrix.stores_zeros and problem.loss.self_concordance is not None and not self.quadratic:
            self._round(problem)

    def _round(self, problem: Problem) -> None:
        """Keep the data in single precision, with columns of norm 1."""
        norms, data = problem.column_norms / np.sqrt(problem.weights.sum()), problem.matrix.dense()
        if data.size < LARGE:
            return
        # The norm of a column without values is a little above zero.
        self.units = 1.0 / np.where((norms > 1e-140) & (norms < 1e140), norms, 1.0)
        self.single = np.multiply(data, self.units, dtype=np.float32, casting="same_kind", order="C")

    def pack(self, coef: Array, intercept: float) -> Array:
        return np.append(coef, intercept) if self.problem.fit_intercept else coef

    def unpack(self, unknowns: Array) -> tuple[Array, float]:
        if self.problem.fit_intercept:
            return unknowns[:-1], float(unknowns[-1])
        return unknowns, 0.0

    def value(self, unknowns: Array, losses: Array) -> float:
        coef, _ = self.unpack(unknowns)
        return float(self.problem.weights @ losses + 0.5 * (self.lam * coef) @ coef)

    def slope(self, unknowns: Array, gradient: Array) -> Array:
        """Gradient of the objective."""
        forces = self.problem.weights * gradient
        coef, _ = self.unpack(unknowns)
        return self.pack(self.problem.matrix.T @ forces + self.lam * coef, float(forces.sum()))

    def bend(self, curvature: Array) -> tuple[float, Array]:
        """Take in the loss curvatures of the next model: their sum, and their products with the columns where there is an intercept."""
        self.curvature = d = self.problem.weights * curvature
        self.total, self.border = float(d.sum()), np.zeros(self.problem.n_columns)
        if self.problem.fit_intercept and self.single is not None:
            self.border = d.astype(np.float32) @ self.single / self.units
        elif self.problem.fit_intercept:
            self.border = self.problem.matrix.T @ d
        return self.total, self.border

    def product(self) -> Callable[[Array], tuple[Array | None, Array]]:
        """The map from a move to its scores, unless products are rounded, and its Hessian product."""
        if self.single is not None:
            return partial(self._rounded_product, self.single, self.curvature.astype(np.float32))
        through = self.problem.matrix.curvature_product(self.curvature)
        if not self.problem.fit_intercept:

            def plain(move: Array) -> tuple[Array, Array]:
                forward, back = through(move)
                return forward, back + self.lam * move

            return plain
        border, total = self.border, self.total

        def bordered(move: Array) -> tuple[Array, Array]:
            coef, shift = move[:-1], move[-1]
            forward, back = through(coef)
            return forward + shift, np.append(back + shift * border + self.lam * coef, border @ coef + shift * total)

        return bordered

    def _rounded_product(self, data: Any, weights: Any, move: Array) -> tuple[None, Array]:
        """The Hessian product in single precision."""
        coef, shift = self.unpack(move)
        scaled, last = (coef / self.units).astype(np.float32), np.float32(shift)
        back, total, height = np.zeros(scaled.size, dtype=np.float32), 0.0, max(64, PANEL // scaled.size)
        for start in range(0, weights.size, height):
            rows = data[start : start + height]
            forces = weights[start : start + height] * (rows @ scaled + last)
            back += forces @ rows
            total += float(forces.sum())
        return None, self.pack(back / self.units + self.lam * coef, total)

    def slope_along(self, unknowns: Array, scores: Array, trial: Trial, length: float) -> float:
        """The objective's derivative along a trial's move."""
        slopes = self.problem.loss.gradient(self.problem.y, scores + length * trial.scores)
        (coef, _), (move, _) = self.unpack(unknowns), self.unpack(trial.move)
        losses = float(self.problem.weights @ (slopes * trial.scores))
        return losses + float((self.lam * (coef + length * move)) @ move)

    def minimise(
        self,
        slope: Array,
        conditioner: Preconditioner,
        forcing: float,
        radius: float,
        value: float,
        stop: Stop,
    ) -> Trial:
        """Preconditioned conjugate gradients on the model within ``radius`` (Steihaug); ``value``: the objective where it starts."""
        product = self.product()
        move, scores = np.zeros_like(slope), np.zeros(self.problem.n_rows)
        residual = slope.copy()
        scaled = conditioner.solve(residual)
        direction = -scaled
        energy = first = float(residual @ scaled)
        on_edge, prices, goal = False, [self.price(residual)], 0.1 * stop.target(value)
        for _ in range(MAX_INNER):
            if self.quadratic:
                # The model is the objective, whose value falls on the way and is known.
                goal = 0.5 * stop.target(value + 0.5 * float(move @ (slope + residual)))
            if energy <= forcing * first or prices[-1] <= goal:
                break
            if self.quadratic and self._foresee(prices, goal) > 2.0 * self.patience:
                self.patience = 0.0
                break
            forward, bent = product(direction)
            self.n_products += 1
            curvature_along = float(direction @ bent)
            if not curvature_along > 0.0:
                break
            length = energy / curvature_along
            beyond = move + length * direction
            if np.isfinite(radius) and beyond @ conditioner.product(beyond) > radius**2:
                length, on_edge = _to_edge(move, direction, conditioner, radius), True
            move, scores = move + length * direction, scores if forward is None else scores + length * forward
            residual = residual + length * bent
            if on_edge:
                break
            scaled = conditioner.solve(residual)
            prices.append(self.price(residual))
            energy, old = float(residual @ scaled), energy
            direction = -scaled + (energy / old) * direction
        decrease = -0.5 * float(move @ (slope + residual))
        if self.single is not None:
            scores = self.problem.scores(*self.unpack(move))
        return Trial(move, scores, residual, decrease, on_edge)

    def _foresee(self, prices: list[float], goal: float) -> float:
        """Products until the price is at a goal, if it goes on falling as in the later half; it may rise between."""
        if len(prices) <= max(EARLIEST, EARLY_SHARE * self.patience):
            return 0.0
        n_last = max(EARLIEST, len(prices) // 2)
        fall = np.log(prices[-1 - n_last] / prices[-1]) / n_last
        return len(prices) + float(np.log(prices[-1] / goal) / fall) if fall > 0.0 < goal else np.inf

    def price(self, residual: Array) -> float:
        """What a residual of the Newton system costs in the gap of the linearised dual point; with an intercept an estimate.

        The intercept's part is what meeting its constraint costs, by moves of the dual variables in proportion to their curvatures, which
        the columns see as well.
        """
        columns, shift = self.unpack(residual)
        if self.problem.unpenalised.size or (shift != 0.0 and self.total == 0.0):
            return np.inf
        columns = columns - (shift / self.total) * self.border if shift else columns
        return 0.5 * float(columns @ (columns / self.lam)) + (0.5 * shift**2 / self.total if shift else 0.0)

    def trusts_estimates(self, stop: Stop) -> bool:
        """Whether a run may end by an estimate of the gap, which is computed afterwards in any case."""
        return stop.until is None and stop.tol > 0.0 and self.problem.loss.self_concordance is not None

    def state(
        self, n_iter: int, value: float, unknowns: Array, scores: Array, gradient: Array, slope: Array, stop: Stop
    ) -> State:
        """The state with the dual point from the loss derivatives."""
        problem, primal = self.problem, partial(self.unpack, unknowns)
        price = self.price(slope)
        if not problem.fit_intercept and not problem.unpenalised.size:
            return State(n_iter, value, price, scores, -gradient, primal)
        if self.trusts_estimates(stop) and price < np.inf:
            return State(n_iter, value, price, scores, -gradient, primal)
        dual = duality.make_feasible_dual(problem, -gradient)
        gap = duality.gap(problem, *self.unpack(unknowns), dual).value
        return State(n_iter, value, gap, scores, dual, primal)

    def linear_state(self, state: State, linear: Array, residual: Array, slope: Array, stop: Stop) -> State:
        """The state with the linearised dual point, if that has the smaller gap; ``slope``: what the step began with."""
        problem, price = self.problem, self.price(residual)
        if self.single is not None:
            price += SINGLE_ERROR**2 * self.price(slope)
        if price >= state.gap or not np.array_equal(problem.loss.project(problem.y, linear), linear):
            return state
        dual = -linear
        gap = price + float(duality.row_terms(problem, state.scores, dual).sum())
        if problem.fit_intercept and not self.trusts_estimates(stop):
            if not gap <= NEAR_TARGET * stop.target(state.primal_value):
                return state
            dual = duality.make_feasible_dual(problem, dual)
            gap = duality.gap(problem, state.coef, state.intercept, dual).value
        if gap >= state.gap:
            return state
        return State(state.n_iter, state.primal_value, gap, state.scores, dual, state.primal)


def _to_edge(move: Array, direction: Array, conditioner: Preconditioner, radius: float) -> float:
    """The step along ``direction`` that reaches the trust region's edge."""
    image = conditioner.product(direction)
    a, b = float(direction @ image), float(move @ image)
    c = float(move @ conditioner.product(move)) - radius**2
    root = np.sqrt(max(b * b - a * c, 0.0))
    return (root - b) / a if b <= 0.0 else -c / (b + root)


def newton_cg_in_passes(problem: Problem, start: Point, stop: Stop) -> Run:
    """Train by the steps of :func:`~glru.solvers.newton.newton`, whose systems take a pass over the blocks for every product with the Hessian.

    They are solved in front of what the Hessian's diagonal can be at most.
    """
    diagonal = problem.loss.smoothness * problem.totals.column_norms**2
    diagonal[: problem.n_columns] += problem.quadratic
    diagonal[diagonal <= 0.0] = 1.0
    first, n_products = 0.0, 0

    def solve(point: Point, floor: Floor, gradient: Array) -> Array:
        """A Newton direction: the nearer to the optimum, the more accurate."""
        nonlocal first, n_products
        size = float(np.sqrt(gradient @ (gradient / diagonal)))
        first = max(first, size)
        share = np.sqrt(stop.tol) if problem.loss.self_concordance == 0.0 else np.sqrt(size / first) if first else 1.0
        found, taken = class_conjugate_gradients(
            lambda vector: _product_in_passes(problem, point, floor, vector[0, 0])[None, None],
            lambda vector: vector / diagonal,
            -gradient[None, None],
            np.array([np.clip(0.5 * share, 1e-8, 0.5)]),
            int(np.clip(MAX_PRODUCTS - n_products, 1, MAX_INNER)),
        )
        n_products += taken
        return np.asarray(found[0, 0])

    return newton(problem, start, stop, (solve, diagonal))


def _product_in_passes(problem: Problem, point: Point, floor: Floor, vector: Array) -> Array:
    """The Hessian at a point times a vector, in one pass over the blocks."""
    image: Array = problem.sum(hessian_product, point, floor, vector)
    image[: problem.n_columns] += problem.quadratic * vector[: problem.n_columns]
    return image
