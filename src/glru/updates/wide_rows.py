r"""Models of the same wide data with other weights, in the dimension of the rows: all leave-one-out removals at once, or one by one.

Candidates are pairs :math:`(b, \beta)` of :class:`~glru.metric.rows.RowSide`. Without row ``i`` the Newton step from the old model is
:math:`\delta + c_i H^{-1} x_i`, with :math:`\delta` the step that all removals share,
:math:`c_i = s'_i (g_i + h_i \delta z_i) / (1 - \ell_i)` and :math:`\ell_i = s'_i h_i Q_{ii}`. Every candidate is written down in full, and
what is certified is the gradient there: the next Newton step gives both the bound of its norm and the next candidate.

A loss that is not self-concordant is certified by the duality gap: the candidate's dual point is :math:`a = b / s'`, so that the
penalty's Fenchel-Young terms vanish.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, intersect, widen
from glru.certificate import ball_radius, loss_terms
from glru.linalg import FEW, TINY, UNIT, Array, Entries, gamma, to_host
from glru.metric.rows import RowMetric, RowSide, uses_rows
from glru.problem import Problem
from glru.regions.local import local_radius
from glru.solution import Solution
from glru.solvers.newton import step_length
from glru.sums import Floor
from glru.updates.batch import SLOW, Certified, Decided, tighten
from glru.updates.carried_rows import removal_factors, shared_norms, shared_part, weight_error

Rows = NDArray[np.intp]
Errors = tuple[Array, Array]

MOST_STEPS = 30
"""Newton steps of a single model, each with a factor of its own."""


CHEAP_ROWS = 128
"""Below this number of rows a step in a batch and a training differ by more than their arithmetic: by their overhead."""


def has_wide_rows(problem: Problem) -> bool:
    """Whether models with other weights are found and certified in the dimension of the rows, and that is the smaller one."""
    return uses_rows(problem) and has_row_models(problem)


def has_row_models(problem: Problem) -> bool:
    """Whether :class:`RowModels` certifies models: a self-concordant loss, or a smooth one without free coordinates."""
    free = problem.fit_intercept or problem.unpenalised.size > 0
    certified = problem.loss.self_concordance is not None or (np.isfinite(problem.loss.smoothness) and not free)
    return certified and problem.penalty.smooth and problem.n_rows <= problem.largest


@final
@dataclass(frozen=True, eq=False)
class Images:
    """``H^-1 x`` of some rows: what it does to the scores, and how well it is known.

    Attributes
    ----------
    scores, change : array of shape (n_rows, n_images), (n_free, n_images)
        The image's scores and its unpenalised part.
    errors : pair of array
        The error of row ``k``'s score is at most ``norms[k] first + second``.
    norms, rest : array of shape (n_images,)
        At least the norms of the rows, and of what the image misses of them.
    """

    scores: Any
    change: Array
    errors: Errors
    norms: Array
    rest: Array


@final
@dataclass(frozen=True, eq=False)
class Retrained:
    """Bounds of some rows' scores under a model, the Newton steps it took, and whether rounding allows no narrower ones.

    ``gap``: at least how far the objective of the candidate that gave the last bounds is above its optimum; ``duals`` and
    ``free``: the last candidate.
    """

    lower: Array
    upper: Array
    n_steps: int
    exhausted: bool
    gap: float
    duals: Array
    free: Array


class RowModels:
    """Models of a problem's rows and columns with any weights, and their certificates over the rows.

    ``side``: that of the problem, or one with more rows, which have no weight and are asked about.
    """

    def __init__(self, problem: Problem, side: RowSide | None = None) -> None:
        self.problem, self.arrays, self.side = problem, problem.arrays, RowSide(problem) if side is None else side
        self.y = np.append(problem.y, np.ones(self.side.norms.size - problem.n_rows))
        self.local = problem.loss.self_concordance is not None
        self.constant = float(problem.loss.self_concordance or 0.0)

    def place(self, solution: Solution) -> tuple[Array, Array, Array]:
        """A solution as ``b`` and ``beta``, and its scores."""
        free = solution.coef[self.problem.unpenalised]
        if self.problem.fit_intercept:
            free = np.append(free, self.side.intercept(solution.coef, solution.intercept))
        duals = solution.problem.weights * solution.dual
        return duals, free, self.scores(duals, free)

    def scores(self, duals: Array, free: Array) -> Array:
        """The scores of one model."""
        return to_host(self.side.scores(self.arrays.put(duals[:, None]), free[:, None]))[:, 0]

    def forces(self, weights: Any, duals: Any, scores: Any, without: Entries | None) -> tuple[Any, Any]:
        """``e = s o l'(z) + b``, and the sizes of its parts."""
        arrays = self.arrays
        pulls = weights * self.problem.loss.gradient(arrays.put(self.y)[:, None], scores)
        if without is not None:
            pulls = arrays.zeroed(pulls, without)
        forces = pulls + duals
        sizes = arrays.absolute(pulls)
        sizes += arrays.xp.abs(duals)
        return forces, sizes

    def masses(self, sizes: Any) -> Errors:
        """The norms of the rows and of the border summed over the sizes of forces."""
        return to_host(self.arrays.put(self.side.norms) @ sizes), to_host(
            self.arrays.put(self.side.border_norms) @ sizes
        )

    def reach(self, moved: Array, errors: Errors, used: NDArray[np.bool_]) -> Array:
        """The logarithm of what the exact curvatures may differ by from those of the metric.

        ``moved``: how far a score is at most from where these were taken.
        """
        off = float(self.side.norms[used].max(initial=0.0)) * errors[0] + errors[1]
        return (self.constant * (moved + off) + weight_error(self.problem)) * (1.0 + FEW) + FEW

    def rounding(
        self, metric: RowMetric, sizes: Errors, errors: Errors, reach: Array, free_norms: Array | float
    ) -> Array:
        """At least the norm of the gradient's error: of its parts and their weights, and of slopes at scores that are off."""
        parts = self.unit * (sizes[0] + np.where(sizes[1] > 0.0, sizes[1] * free_norms, 0.0))
        # The slopes are off by at most the curvature on the way times the score's error, and D^(1/2) Q D^(1/2) <= 1.
        return parts + np.exp(reach) * metric.spread(errors) * (1.0 + FEW)

    @property
    def unit(self) -> float:
        """Relative error of the gradient's parts: of their weights, their evaluation and their sum."""
        return 2.0 * (weight_error(self.problem) + FEW)

    def corrected(
        self, images: "Images", forces: Any, duals: Any, sizes: Any, errors: Errors, reach: Array, bends: Array
    ) -> Errors:
        """How much higher than at the optimum the images' rows score to first order, and how far that may be off.

        ``x^T H^-1`` times the gradient, which is given by forces and duals, a column for each image or one for all;
        ``sizes``: of the forces' parts.
        """
        arrays, side = self.arrays, self.side
        known = arrays.xp.abs(images.scores)
        moved = arrays.inner(images.scores, forces)
        off = arrays.inner(known, sizes) * (self.unit + gamma(bends.size + 8)) * (1.0 + FEW)
        total = to_host(arrays.put(side.norms) @ sizes)
        off = off + images.errors[0] * total + images.errors[1] * to_host(arrays.xp.sum(sizes, axis=0)) * (1.0 + FEW)
        seen = to_host(arrays.put(bends) @ known), to_host(arrays.put(bends * side.norms) @ known)
        off = off + np.exp(reach) * (errors[0] * seen[1] + errors[1] * seen[0]) * (1.0 + FEW)
        if side.n_free:
            left = to_host(arrays.put(side.border.T) @ duals)
            moved = moved - (images.change * left).sum(axis=0)
            most = to_host(arrays.put(np.abs(side.border.T)) @ arrays.xp.abs(duals))
            off = off + gamma(bends.size + side.n_free + 8) * (np.abs(images.change) * most).sum(axis=0)
        return moved, off * (1.0 + FEW) + FEW * np.abs(moved)

    def gaps(self, weights: Any, duals: Any, without: Entries | None) -> tuple[Any, Any, Array]:
        """Duals that lie in the domain of the loss conjugate, their scores, and at least the gaps there."""
        arrays, loss = self.arrays, self.problem.loss
        y, xp = arrays.put(self.y)[:, None], arrays.xp
        used = weights > 0.0
        dual = -loss.project(self.y[:, None], -duals / xp.where(used, weights, 1.0))
        pulls = xp.where(used, weights * dual, 0.0)
        if without is not None:
            pulls = arrays.zeroed(pulls, without)
        scores, errors = self.side.gram @ pulls, self.side.score_errors(pulls, np.zeros((0, pulls.shape[1])))
        off = arrays.put(self.side.norms)[:, None] * arrays.put(errors[0])
        terms = xp.where(used, loss_terms(loss, y, scores, off, dual), 0.0)
        if without is not None:
            terms = arrays.zeroed(terms, without)
        losses = to_host(xp.sum(weights * terms, axis=0)) * (1.0 + weight_error(self.problem))
        # The exact weights differ from those used here, so the exact correlations from the candidate's coefficients.
        mass = to_host(arrays.put(self.side.norms) @ xp.abs(pulls))
        penalty = 0.5 * np.square((weight_error(self.problem) + FEW) * mass)
        return pulls, scores, (losses + penalty) * (1.0 + FEW)

    def images(self, metric: RowMetric, rows: Rows) -> Images:
        """``H^-1 x`` of some rows."""
        arrays, side = self.arrays, self.side
        units = arrays.units(self.y.size, rows)
        change, moves = metric.step(-units, np.zeros((side.n_free, rows.size)))
        pulls = -(arrays.put(metric.bends)[:, None] * moves)
        norms, missed, left, image = metric.force_norms(units, pulls, -arrays.inner(pulls, moves))
        off = missed * metric.free if side.n_free else np.zeros(rows.size)
        scores = image + arrays.put(side.border @ change) if side.n_free else image
        errors = side.score_errors(left, change)
        wrong = arrays.put(metric.root)[:, None] * (moves - scores)
        rest = np.sqrt(arrays.inner(wrong, wrong)) + metric.spread(errors) + off
        rest = rest + 8.0 * UNIT * to_host(arrays.put(side.norms) @ arrays.xp.abs(left))
        return Images(scores, change, errors, (norms + off) * (1.0 + FEW), rest * (1.0 + FEW))

    def ellipsoid(
        self,
        images: Images,
        centers: Array,
        off: Array,
        moved: Errors,
        nu: Array,
        reach: Array,
        top: Array | float,
    ) -> Bounds:
        """Bounds of the images' rows under the local certificate.

        The scores are within ``|x|`` times the radius of those at the optimum. Also, with ``g`` the gradient, the mean Hessian on the
        way there is within a factor ``1 + r`` of the image's, ``r = e^(T + kappa radius) - 1``: the score moves by ``-x^T H^-1 g``
        up to ``r |x| |g|``.
        """
        radius = local_radius(self.constant, top, nu, reach)
        plain = self.widened(centers, images.norms * radius + off)
        loose = np.expm1(reach + self.constant * top * radius * (1.0 + FEW)) * (1.0 + FEW)
        half = (loose * images.norms + images.rest) * nu + moved[1] + off
        return intersect(plain, self.widened(centers - moved[0], np.where(np.isfinite(radius), half, np.inf)))

    def widened(self, centers: Array, half: Array) -> Bounds:
        """``centers -/+ half``; nothing where a centre is not a number."""
        known = np.isfinite(centers)
        half = half * (1.0 + FEW) + FEW * np.abs(centers)
        return widen(np.where(known, centers, 0.0), np.where(known, half, np.inf))

    def retrained(
        self,
        weights: Array,
        start: tuple[Array, Array, Array],
        queries: Rows,
        settled: Callable[[Array, Array], bool],
        n_steps: int = MOST_STEPS,
    ) -> "Retrained":
        """Bounds of some rows' scores under the model with some weights.

        Each Newton step has a factor of its own and a line search.

        Parameters
        ----------
        weights : array of shape (n_rows,)
            The weights.
        start : tuple of array
            ``b``, ``beta`` and the scores of a model near it.
        queries : array of int
            The rows that are asked about.
        settled : callable
            ``settled(lower, upper)``: whether the bounds are good enough.
        n_steps : int, default=MOST_STEPS
            Most steps.
        """
        problem, arrays = self.problem, self.arrays
        found = np.full(queries.size, -np.inf), np.full(queries.size, np.inf)
        duals, free, scores = start
        floor, before, steps, exhausted, gap = Floor.of(problem.loss), np.inf, 0, False, np.array([np.inf])
        while steps < n_steps:
            steps += 1
            _, _, bends = problem.loss.expand(self.y, scores)
            metric = RowMetric(self.side, weights * floor.raised(bends, scores))
            column = arrays.put(duals[:, None])
            errors = self.side.score_errors(column, free[:, None])
            forces, sizes = self.forces(arrays.put(weights[:, None]), column, arrays.put(scores[:, None]), None)
            change, moves = metric.step(forces, (self.side.border.T @ duals)[:, None])
            pulls = arrays.put(metric.bends[:, None]) * moves
            norms, missed, left, image = metric.force_norms(forces, pulls, arrays.inner(pulls, moves), column)
            reach = self.reach(np.zeros(1), errors, weights > 0.0)
            rounding = self.rounding(metric, self.masses(sizes), errors, reach, metric.free)
            nu = (norms + missed * metric.free + rounding) * (1.0 + FEW)
            if not np.isfinite(nu[0]):
                break
            # A floor raises the metric above the Hessian: it gives a step, and proves nothing.
            proven = floor.share == 0.0
            if self.local and proven:
                top = (self.side.norms + self.side.border_norms * metric.free)[weights > 0.0].max(initial=0.0)
                if self.constant * top * nu[0] < 0.9:
                    images = self.images(metric, queries)
                    moved = self.corrected(images, forces, column, sizes, errors, reach, metric.bends)
                    off = self.side.norms[queries] * errors[0] + errors[1]
                    top = float(top) * (1.0 + FEW)
                    bounds = self.ellipsoid(images, scores[queries], off, moved, nu, reach, top)
                    found = intersect(found, bounds)
                    # By convexity, as for a local ellipsoid.
                    gap = nu * local_radius(self.constant, top, nu, reach) * (1.0 + FEW) + TINY**2
            elif not self.local:
                pulls, there, gap = self.gaps(arrays.put(weights[:, None]), column, None)
                errors = self.side.score_errors(pulls, free[:, None])
                half = ball_radius(gap) * self.side.norms[queries] + self.side.norms[queries] * errors[0] + errors[1]
                found = intersect(found, self.widened(to_host(there)[queries, 0], half * (1.0 + FEW)))
            exhausted = proven and bool(nu[0] <= 8.0 * rounding[0]) and not nu[0] < 0.5 * before
            if settled(*found) or exhausted:
                break
            before = min(before, float(nu[0]))
            left, image, change = to_host(left)[:, 0], to_host(image)[:, 0], change[:, 0]
            length = self._length(weights, duals, scores, left, image, self.side.border @ change - image)
            if length == 0.0 and floor.highest:
                break
            floor = floor.after(length)
            if length > 0.0:
                duals, free = duals - length * left, free + length * change
                scores = self.scores(duals, free)
        return Retrained(*found, steps, exhausted, float(gap[0]), duals, free)

    def _length(self, weights: Array, duals: Array, scores: Array, left: Array, image: Array, moved: Array) -> float:
        """How far to go along a step."""
        loss, y = self.problem.loss, self.y
        slope, bend = -float(duals @ image), float(left @ image)
        pulls = weights * loss.gradient(y, scores) * moved
        noise = 8.0 * UNIT * (float(np.abs(pulls).sum()) + abs(slope))

        def derivative(length: float) -> float:
            return float(weights @ (loss.gradient(y, scores + length * moved) * moved)) + slope + length * bend

        return step_length(derivative, float(pulls.sum()) + slope, noise)


@final
class WideRows(RowModels):
    """The removal of single rows, many at once, with the old Hessian."""

    def __init__(self, solution: Solution) -> None:
        super().__init__(solution.problem)
        problem = solution.problem
        self.start = self.duals, self.free, self.base = self.place(solution)
        _, self.slopes, self.bends = problem.loss.expand(problem.y, self.base)
        self.factors = removal_factors(problem)
        known = self.factors[np.isfinite(self.factors)]
        self.factor = float(np.median(known)) if known.size else 1.0
        self.weights = self.factor * problem.weights
        self.used = self.weights > 0.0

    def alone(self, row: int, settled: Callable[[Array, Array], bool], n_steps: int = MOST_STEPS) -> Retrained:
        """Bounds of a row's score under the model without it, by Newton steps of that model alone."""
        weights, rows = self.factors[row] * self.problem.weights, np.array([row])
        weights[row] = 0.0
        return self.retrained(weights, self._nearest(rows), rows, settled, n_steps)

    def _nearest(self, rows: Rows) -> tuple[Array, Array, Array]:
        """The candidate one Newton step from the old model, or that model where there is no such step."""
        models, change, _, _ = self._first(rows)
        duals, free = to_host(models)[:, 0], change[:, 0]
        # Computed afresh: those of the family are sums of two, with the errors of both.
        found = duals, free, self.scores(duals, free)
        near = np.abs(found[2] - self.base)[self.used].max(initial=0.0) < 4.0
        return found if near else self.start

    @cached_property
    def metric(self) -> RowMetric:
        """The metric at the old scores with the new weights on all rows."""
        return RowMetric(self.side, self.weights * self.bends)

    @cached_property
    def top(self) -> float:
        """At least the largest norm of a row that counts."""
        return float(self.metric.leverages.norms[self.used].max(initial=0.0))

    def removed(self, rows: Rows) -> Images:
        """The images of some rows, each in the metric without itself."""
        known, grown = self.metric.leverages, 1.0 / self.metric.leverages.left[rows]
        # No force acts on the row itself: its own score does not matter.
        scores = self.arrays.take(known.scores, rows) * self.arrays.put(grown)
        scores = self.arrays.zeroed(scores, (rows, np.arange(rows.size)))
        errors = known.errors[0][rows] * grown, known.errors[1][rows] * grown
        return Images(scores, known.free[:, rows] * grown, errors, known.alone[rows], known.rest_alone[rows])

    @cached_property
    def ball_norms(self) -> Array:
        """At least the norms of the rows in the metric of the penalty.

        A column with a value in one row only gets the coefficient exactly 0 when that row leaves, in the candidate as at
        the optimum: it does not widen the row's bounds.
        """
        return shared_norms(self.problem, shared_part(self.problem))

    def guesses(self, rows: Rows) -> Array:
        """The removed rows' scores after one Newton step each, without proof."""
        _, _, scores, _ = self._first(rows)
        return self.arrays.entries(scores, (rows, np.arange(rows.size)))

    def quick_bounds(self, rows: Rows) -> Bounds:
        """Bounds of the removed rows' scores after one Newton step each, without a product more than the candidates take."""
        lower, upper = np.full(rows.size, -np.inf), np.full(rows.size, np.inf)
        places = self._usable(rows)
        duals, free, scores, errors = self._first(rows[places])
        entries = rows[places], np.arange(places.size)
        if self.local:
            lower[places], upper[places] = self._quickly(entries, duals, scores, errors)
        else:
            duals, scores, gaps = self.gaps(self._weights(entries[0]), duals, entries)
            lower[places], upper[places] = self._ball(entries, scores, self.side.score_errors(duals, free), gaps)
        return lower, upper

    def _usable(self, rows: Rows) -> Rows:
        """The places of the rows whose removal leaves something of the metric."""
        usable = np.isfinite(self.factors[rows]) & np.isfinite(self.metric.free)
        return np.flatnonzero(usable & np.isfinite(self.metric.leverages.alone[rows]))

    def _weights(self, rows: Rows) -> Any:
        """The weights of the models without each row, a column each; their own is not set to zero."""
        ratios = self.factors[rows] / self.factor
        if np.all(ratios == 1.0):
            return self.arrays.put(self.weights)[:, None]
        return self.arrays.put(self.weights)[:, None] * self.arrays.put(ratios)

    def bounds(self, rows: Rows, decided: Decided, n_steps: int) -> Bounds:
        """Bounds of the removed rows' scores after Newton steps with the old Hessian; rows leave as they are decided."""
        lower, upper = np.full(rows.size, -np.inf), np.full(rows.size, np.inf)
        places = self._usable(rows)
        if places.size:
            found = tighten(ChordSteps(self, rows[places], *self._first(rows[places])), decided, n_steps)
            lower[places], upper[places] = found.lower, found.upper
        return lower, upper

    def _ball(self, entries: Entries, scores: Any, errors: Errors, gaps: Array) -> Bounds:
        rows = entries[0]
        half = ball_radius(gaps) * self.ball_norms[rows] + self.side.norms[rows] * errors[0] + errors[1]
        return self.widened(self.arrays.entries(scores, entries), half)

    @cached_property
    def _shared_step(self) -> tuple[Array, Array, Array, Errors]:
        """The model after the step that all removals share, its scores, and their errors."""
        arrays, side = self.arrays, self.side
        force = self.weights * self.slopes + self.duals
        change, moves = self.metric.step(arrays.put(force[:, None]), (side.border.T @ self.duals)[:, None])
        duals, free = -self.weights * (self.slopes + self.bends * to_host(moves)[:, 0]), self.free + change[:, 0]
        errors = side.score_errors(arrays.put(duals[:, None]), free[:, None])
        return duals, free, self.scores(duals, free), errors

    def _first(self, rows: Rows) -> tuple[Any, Array, Any, Errors]:
        """The candidates one Newton step from the old model, their scores, and the errors of these."""
        arrays, known = self.arrays, self.metric.leverages
        duals, free, scores, errors = self._shared_step
        fed = -duals[rows] / known.left[rows]
        fed = np.where(np.isfinite(fed), fed, 0.0)
        models = arrays.put(duals)[:, None] + arrays.take(known.duals, rows) * arrays.put(fed)
        moved = arrays.put(scores)[:, None] + arrays.take(known.scores, rows) * arrays.put(fed)
        # The removed row's own entry is zero but for its rounding.
        own = 8.0 * UNIT * np.abs(duals[rows]) * self.side.norms[rows]
        sizes = self.side.norms.max(initial=0.0) * (errors[0] + np.abs(fed) * known.errors[0][rows])
        first = errors[0] + np.abs(fed) * known.errors[0][rows] + own
        second = (
            errors[1]
            + np.abs(fed) * known.errors[1][rows]
            + FEW * (sizes + arrays.largest_of(arrays.absolute(moved * 1.0), self.used))
        )
        models = arrays.zeroed(models, (rows, np.arange(rows.size)))
        return models, free[:, None] + known.free[:, rows] * fed, moved, (first * (1.0 + FEW), second * (1.0 + FEW))

    def _quickly(self, entries: Entries, duals: Any, scores: Any, errors: Errors) -> Bounds:
        """Bounds from the sizes of the forces alone: ``|g|^2 <= sum_k e_k^2 / d_k``, and ``|g| <= sum_k |e_k| |x_k|``."""
        arrays, side, metric, rows = self.arrays, self.side, self.metric, entries[0]
        known, strong = metric.leverages, metric.strong
        forces, sizes, reach = self._pulled(entries, duals, scores, errors)
        free_norms = metric.free * known.grown[rows] if side.n_free else np.zeros(rows.size)
        scaled = np.divide(1.0, metric.bends, out=np.zeros(strong.size), where=strong)
        squares = to_host(arrays.put(scaled) @ (forces * forces)) * (1.0 + gamma(strong.size + 8))
        nu = np.sqrt(squares) + self._border_norms(duals, free_norms)
        if not strong.all():
            weak = arrays.xp.abs(forces)
            nu = nu + to_host(arrays.put(np.where(strong, 0.0, side.norms)) @ weak) * (1.0 + FEW)
            nu = nu + to_host(arrays.put(np.where(strong, 0.0, side.border_norms)) @ weak) * free_norms * (1.0 + FEW)
        nu = (nu + self.rounding(metric, self.masses(sizes), errors, reach, free_norms)) * (1.0 + FEW) + TINY
        radius = local_radius(self.constant, self.top * known.grown[rows], nu, reach)
        half = known.alone[rows] * radius + side.norms[rows] * errors[0] + errors[1]
        return self.widened(arrays.entries(scores, entries), half)

    def _pulled(self, entries: Entries, duals: Any, scores: Any, errors: Errors) -> tuple[Any, Any, Array]:
        """The forces of models without a row each, the sizes of their parts, and how far the curvatures may be off."""
        arrays, rows = self.arrays, entries[0]
        forces, sizes = self.forces(self._weights(rows), duals, scores, entries)
        away = arrays.zeroed(arrays.absolute(scores - arrays.put(self.base)[:, None]), entries)
        reach = self.reach(arrays.largest_of(away, self.used), errors, self.used)
        return forces, sizes, reach + np.abs(np.log(self.factors[rows] / self.factor)) * (1.0 + FEW)

    def _certified(self, entries: Entries, duals: Any, scores: Any, errors: Errors) -> tuple[Any, Certified]:
        """The forces of models without a row each, and bounds of the row's score."""
        arrays, side, metric, rows = self.arrays, self.side, self.metric, entries[0]
        known = metric.leverages
        forces, sizes, reach = self._pulled(entries, duals, scores, errors)
        free_norms = metric.free * known.grown[rows] if side.n_free else np.zeros(rows.size)
        nu = self._norms(entries, forces) + self._border_norms(duals, free_norms)
        rounding = self.rounding(metric, self.masses(sizes), errors, reach, free_norms)
        nu = (nu + rounding) * (1.0 + FEW)
        images = self.removed(rows)
        moved = self.corrected(images, forces, duals, sizes, errors, reach, metric.bends)
        off = side.norms[rows] * errors[0] + errors[1]
        center, top = arrays.entries(scores, entries), self.top * known.grown[rows]
        bounds = self.ellipsoid(images, center, off, moved, nu, reach, top)
        # Where scores moved far, exact steps have a metric in which the same errors are smaller.
        return forces, Certified(*bounds, nu, np.where(reach < 1.0, rounding, 0.0))

    def _border_norms(self, duals: Any, free_norms: Array) -> Array:
        """At least the norms of what ``U^T b`` leaves of the gradient."""
        arrays, side = self.arrays, self.side
        if not side.n_free:
            return free_norms
        off = np.abs(to_host(arrays.put(side.border.T) @ duals))
        off += gamma(self.weights.size + 8) * to_host(arrays.put(np.abs(side.border.T)) @ arrays.xp.abs(duals))
        return np.linalg.norm(off, axis=0) * free_norms * (1.0 + FEW)

    def _norms(self, entries: Entries, forces: Any) -> Array:
        """At least the norms of gradients in the metrics without a row each, from the leverages of all rows."""
        arrays, side, metric, rows = self.arrays, self.side, self.metric, entries[0]
        known = metric.leverages
        image, sizes = known.scores @ forces, arrays.xp.abs(forces)
        mass, total = to_host(arrays.put(side.norms) @ sizes), to_host(arrays.xp.sum(sizes, axis=0))
        first, second, rest = (to_host(arrays.put(v) @ sizes) for v in (*known.errors, known.rest))
        rounding = gamma(self.weights.size + 8) * arrays.inner(sizes, arrays.xp.abs(image))
        # Twice: the entries of Q are off, and so are its products with the forces, by a share of the same sums.
        square = np.abs(arrays.inner(forces, image)) + 2.0 * (mass * first + total * second) + rounding
        norms = (np.sqrt(square) + rest) * (1.0 + FEW) + TINY
        # In the metric without row i: |g|^2 + d_i (x_i^T H^-1 g)^2 / (1 - l_i).
        summed = rest + gamma(self.weights.size + 8) * self.top * total
        own = np.abs(arrays.entries(image, entries)) + known.norms[rows] * summed + side.norms[rows] * first + second
        return np.hypot(norms, metric.root[rows] * known.grown[rows] * own) * (1.0 + FEW)

    def _step(self, entries: Entries, forces: Any, duals: Any) -> tuple[Any, Array]:
        """The next Newton steps: what they take from ``b``, and what they add to ``beta``."""
        arrays, metric, rows = self.arrays, self.metric, entries[0]
        known = metric.leverages
        moves = -(known.scores @ forces)
        change = metric.take_out(to_host(arrays.put(self.side.border.T) @ duals))
        if self.side.n_free:
            moves = moves + arrays.put(metric.border_scores @ change)
            change = change - to_host(arrays.put(known.free) @ forces)
        # The metric without the row, by the Sherman-Morrison formula.
        fed = metric.bends[rows] * arrays.entries(moves, entries) / known.left[rows]
        moves = arrays.zeroed(moves + arrays.take(known.scores, rows) * arrays.put(fed), entries)
        return forces + arrays.put(metric.bends)[:, None] * moves, change + known.free[:, rows] * fed


@final
@dataclass(frozen=True, eq=False)
class ChordSteps:
    """Models without one row each, one per column, which step with the old Hessian."""

    family: WideRows
    rows: Rows
    duals: Any
    free: Array
    scores: Any
    errors: Errors

    contraction: ClassVar[float] = SLOW

    @property
    def cost(self) -> float:
        """A step takes a few products of the size of the rows, a training factors of that size."""
        return 4.0 / max(self.family.problem.n_rows, CHEAP_ROWS)

    def certify(self) -> Certified:
        """Bounds of the removed rows' scores."""
        return self._certificate[1]

    @cached_property
    def _certificate(self) -> tuple[Any, Certified, "ChordSteps"]:
        """The forces at the candidates, and what they prove."""
        family, entries = self.family, (self.rows, np.arange(self.rows.size))
        if family.local:
            return *family._certified(entries, self.duals, self.scores, self.errors), self
        duals, scores, gaps = family.gaps(family._weights(self.rows), self.duals, entries)
        errors = family.side.score_errors(duals, self.free)
        forces, found = family._certified(entries, duals, scores, errors)
        lower, upper = family._ball(entries, scores, errors, gaps)
        return (
            forces,
            found._replace(lower=lower, upper=upper),
            replace(self, duals=duals, scores=scores, errors=errors),
        )

    def step(self, members: NDArray[np.bool_]) -> "ChordSteps":
        """The candidates of some rows after one more step."""
        forces, _, here = self._certificate
        family, side, arrays = self.family, self.family.side, self.family.arrays
        entries = self.rows[members], np.arange(np.count_nonzero(members))
        duals, scores, forces = (arrays.take(matrix, members) for matrix in (here.duals, here.scores, forces))
        left, change = family._step(entries, forces, duals)
        duals, scores = arrays.zeroed(duals - left, entries), scores - side.scores(left, -change)
        more, mass = side.score_errors(left, change), to_host(arrays.put(side.norms) @ arrays.xp.abs(duals))
        size = to_host(arrays.xp.max(arrays.xp.abs(scores), axis=0))
        # The errors of the scores add up, and the sums were rounded.
        first = (here.errors[0][members] + more[0] + 8.0 * UNIT * mass) * (1.0 + FEW)
        second = (here.errors[1][members] + more[1] + 8.0 * UNIT * size) * (1.0 + FEW)
        return ChordSteps(family, entries[0], duals, self.free[:, members] + change, scores, (first, second))

    def exact(self, members: NDArray[np.bool_]) -> None:
        """Rows whose Hessian is another are stepped on one by one."""
        return
