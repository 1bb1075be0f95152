r"""Models of the same rows and columns with any weights, found and certified in the dimension of the rows (wide data).

A model is a pair :math:`(b, \beta)` of :class:`~glru.metric.rows.RowSide`. What is certified is the gradient of a model that is
written down in full: the next Newton step gives both the bound of its norm and the next model.

A loss that is not self-concordant is certified by the duality gap: the dual point is :math:`a = b / s`, so that the penalty's
Fenchel-Young terms vanish.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

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
from glru.updates.carried_rows import weight_error

Rows = NDArray[np.intp]
Errors = tuple[Array, Array]

MOST_STEPS = 30
"""Newton steps of a single model, each with a factor of its own."""


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
    norms, residual_norms : array of shape (n_images,)
        At least the norms of the rows, and of what the image misses of them.
    """

    scores: Any
    change: Array
    errors: Errors
    norms: Array
    residual_norms: Array


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
        self.y = np.append(problem.y, np.ones(self.side.norms.size - problem.n_rows, dtype=problem.y.dtype))
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

    def score_errors(self, duals: Any, free: Array) -> Errors:
        """The error of row ``k``'s score under model ``j`` is at most ``norms[k] first[j] + second[j]``, that of its evaluation included."""
        first, second = self.side.score_errors(duals, free)
        return first, second + self.problem.score_noise

    def forces(self, weights: Any, duals: Any, scores: Any, without: Entries | None) -> tuple[Any, Any]:
        """``e = s o l'(z) + b``, and the sizes of its parts."""
        arrays = self.arrays
        slopes = weights * self.problem.loss.gradient(arrays.put(self.y)[:, None], scores)
        if without is not None:
            slopes = arrays.zero_out(slopes, without)
        forces = slopes + duals
        sizes = arrays.absolute(slopes)
        sizes += arrays.xp.abs(duals)
        return forces, sizes

    def norm_sums(self, sizes: Any) -> Errors:
        """The norms of the rows and of the border summed over the sizes of forces."""
        return to_host(self.arrays.put(self.side.norms) @ sizes), to_host(
            self.arrays.put(self.side.border_norms) @ sizes
        )

    def exponent(self, moved: Array, errors: Errors, used: NDArray[np.bool_]) -> Array:
        """The logarithm of what the exact curvatures may differ by from those of the metric.

        ``moved``: how far a score is at most from where these were taken.
        """
        off = float(self.side.norms[used].max(initial=0.0)) * errors[0] + errors[1]
        return (self.constant * (moved + off) + weight_error(self.problem)) * (1.0 + FEW) + FEW

    def rounding(self, spread: Array, sizes: Errors, exponent: Array, free_norms: Array | float) -> Array:
        """At least the norm of the gradient's error: of its parts and their weights, and of slopes at scores that are off.

        ``spread``: ``sqrt(sum_k d_k e_k^2)`` for the errors of the scores.
        """
        parts = self.unit * (sizes[0] + np.where(sizes[1] > 0.0, sizes[1] * free_norms, 0.0))
        # The slopes are off by at most the curvature on the way times the score's error, and D^(1/2) Q D^(1/2) <= 1.
        return parts + np.exp(exponent) * spread * (1.0 + FEW)

    @property
    def unit(self) -> float:
        """Relative error of the gradient's parts: of their weights, their evaluation and their sum."""
        return 2.0 * (weight_error(self.problem) + FEW)

    def corrected(
        self, images: "Images", forces: Any, duals: Any, sizes: Any, errors: Errors, exponent: Array, curvatures: Array
    ) -> Errors:
        """How much higher than at the optimum the images' rows score to first order, and how far that may be off.

        ``x^T H^-1`` times the gradient, which is given by forces and duals, a column for each image or one for all;
        ``sizes``: of the forces' parts.
        """
        arrays, side = self.arrays, self.side
        known = arrays.xp.abs(images.scores)
        moved = arrays.inner(images.scores, forces)
        off = arrays.inner(known, sizes) * (self.unit + gamma(curvatures.size + 8)) * (1.0 + FEW)
        total = to_host(arrays.put(side.norms) @ sizes)
        off = off + images.errors[0] * total + images.errors[1] * to_host(arrays.xp.sum(sizes, axis=0)) * (1.0 + FEW)
        seen = to_host(arrays.put(curvatures) @ known), to_host(arrays.put(curvatures * side.norms) @ known)
        off = off + np.exp(exponent) * (errors[0] * seen[1] + errors[1] * seen[0]) * (1.0 + FEW)
        if side.n_free:
            border_sums = to_host(arrays.put(side.border.T) @ duals)
            moved = moved - (images.change * border_sums).sum(axis=0)
            most = to_host(arrays.put(np.abs(side.border.T)) @ arrays.xp.abs(duals))
            off = off + gamma(curvatures.size + side.n_free + 8) * (np.abs(images.change) * most).sum(axis=0)
        return moved, off * (1.0 + FEW) + FEW * np.abs(moved)

    def gaps(self, weights: Any, duals: Any, without: Entries | None) -> tuple[Any, Any, Array]:
        """Duals that lie in the domain of the loss conjugate, their scores, and at least the gaps there."""
        arrays, loss = self.arrays, self.problem.loss
        y, xp = arrays.put(self.y)[:, None], arrays.xp
        used = weights > 0.0
        dual = -loss.project(self.y[:, None], -duals / xp.where(used, weights, 1.0))
        projected = xp.where(used, weights * dual, 0.0)
        if without is not None:
            projected = arrays.zero_out(projected, without)
        scores, errors = (
            self.side.gram @ projected,
            self.side.score_errors(projected, np.zeros((0, projected.shape[1]))),
        )
        off = arrays.put(self.side.norms)[:, None] * arrays.put(errors[0])
        terms = xp.where(used, loss_terms(loss, y, scores, off, dual), 0.0)
        if without is not None:
            terms = arrays.zero_out(terms, without)
        losses = to_host(xp.sum(weights * terms, axis=0)) * (1.0 + weight_error(self.problem))
        # The exact weights differ from those used here, so the exact correlations from the candidate's coefficients.
        norm_sum = to_host(arrays.put(self.side.norms) @ xp.abs(projected))
        penalty = 0.5 * np.square((weight_error(self.problem) + FEW) * norm_sum)
        return projected, scores, (losses + penalty) * (1.0 + FEW)

    def images(self, metric: RowMetric, rows: Rows) -> Images:
        """``H^-1 x`` of some rows."""
        arrays, side = self.arrays, self.side
        units = arrays.units(self.y.size, rows)
        change, moves = metric.step(-units, np.zeros((side.n_free, rows.size)))
        responses = -(arrays.put(metric.curvatures)[:, None] * moves)
        norms, missed, residuals, image = metric.force_norms(units, responses, -arrays.inner(responses, moves))
        off = missed * metric.free_norm if side.n_free else np.zeros(rows.size)
        scores = image + arrays.put(side.border @ change) if side.n_free else image
        errors = side.score_errors(residuals, change)
        wrong = arrays.put(metric.root)[:, None] * (moves - scores)
        residual_norms = np.sqrt(arrays.inner(wrong, wrong)) + metric.spread(errors) + off
        residual_norms = residual_norms + 8.0 * UNIT * to_host(arrays.put(side.norms) @ arrays.xp.abs(residuals))
        return Images(scores, change, errors, (norms + off) * (1.0 + FEW), residual_norms * (1.0 + FEW))

    def ellipsoid(
        self,
        images: Images,
        centers: Array,
        off: Array,
        moved: Errors,
        nu: Array,
        exponent: Array,
        largest_norm: Array | float,
        drop: Array | None = None,
    ) -> Bounds:
        """Bounds of the images' rows under the local certificate.

        The scores are within ``|x|`` times the radius of those at the optimum. Also, with ``g`` the gradient, the mean Hessian on the
        way there is within a factor ``1 + r`` of the image's, ``r = e^(T + kappa radius) - 1``: the score moves by ``-x^T H^-1 g``
        up to ``r |x| |g|``.
        """
        radius = local_radius(self.constant, largest_norm, nu, exponent if drop is None else drop)
        plain = self.widened(centers, images.norms * radius + off)
        loose = np.expm1(exponent + self.constant * largest_norm * radius * (1.0 + FEW)) * (1.0 + FEW)
        half = (loose * images.norms + images.residual_norms) * nu + moved[1] + off
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
        decided: Callable[[Array, Array], bool],
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
        decided : callable
            ``decided(lower, upper)``: whether the bounds are good enough.
        n_steps : int, default=MOST_STEPS
            Most steps.
        """
        problem, arrays = self.problem, self.arrays
        found = np.full(queries.size, -np.inf), np.full(queries.size, np.inf)
        duals, free, scores = start
        floor, before, steps, exhausted, gap = Floor.of(problem.loss), np.inf, 0, False, np.array([np.inf])
        while steps < n_steps:
            steps += 1
            _, _, curvatures = problem.loss.expand(self.y, scores)
            metric = RowMetric(self.side, weights * floor.raise_floor(curvatures, scores))
            column = arrays.put(duals[:, None])
            errors = self.score_errors(column, free[:, None])
            forces, sizes = self.forces(arrays.put(weights[:, None]), column, arrays.put(scores[:, None]), None)
            change, moves = metric.step(forces, (self.side.border.T @ duals)[:, None])
            responses = arrays.put(metric.curvatures[:, None]) * moves
            norms, missed, residuals, image = metric.force_norms(
                forces, responses, arrays.inner(responses, moves), column
            )
            exponent = self.exponent(np.zeros(1), errors, weights > 0.0)
            rounding = self.rounding(metric.spread(errors), self.norm_sums(sizes), exponent, metric.free_norm)
            nu = (norms + missed * metric.free_norm + rounding) * (1.0 + FEW)
            if not np.isfinite(nu[0]):
                break
            # A floor raises the metric above the Hessian: it gives a step, and proves nothing.
            proven = floor.share == 0.0
            if self.local and proven:
                largest_norm = (self.side.norms + self.side.border_norms * metric.free_norm)[weights > 0.0].max(
                    initial=0.0
                )
                if self.constant * largest_norm * nu[0] < 0.9:
                    images = self.images(metric, queries)
                    moved = self.corrected(images, forces, column, sizes, errors, exponent, metric.curvatures)
                    off = self.side.norms[queries] * errors[0] + errors[1]
                    largest_norm = float(largest_norm) * (1.0 + FEW)
                    bounds = self.ellipsoid(images, scores[queries], off, moved, nu, exponent, largest_norm)
                    found = intersect(found, bounds)
                    # By convexity, as for a local ellipsoid.
                    gap = nu * local_radius(self.constant, largest_norm, nu, exponent) * (1.0 + FEW) + TINY**2
            elif not self.local:
                projected, there, gap = self.gaps(arrays.put(weights[:, None]), column, None)
                errors = self.side.score_errors(projected, free[:, None])
                half = ball_radius(gap) * self.side.norms[queries] + self.side.norms[queries] * errors[0] + errors[1]
                found = intersect(found, self.widened(to_host(there)[queries, 0], half * (1.0 + FEW)))
            exhausted = proven and bool(nu[0] <= 8.0 * rounding[0]) and not nu[0] < 0.5 * before
            if decided(*found) or exhausted:
                break
            before = min(before, float(nu[0]))
            residuals, image, change = to_host(residuals)[:, 0], to_host(image)[:, 0], change[:, 0]
            length = self._length(weights, duals, scores, residuals, image, self.side.border @ change - image)
            if length == 0.0 and floor.highest:
                break
            floor = floor.after(length)
            if length > 0.0:
                duals, free = duals - length * residuals, free + length * change
                scores = self.scores(duals, free)
        return Retrained(*found, steps, exhausted, float(gap[0]), duals, free)

    def _length(
        self, weights: Array, duals: Array, scores: Array, residuals: Array, image: Array, moved: Array
    ) -> float:
        """How far to go along a step."""
        loss, y = self.problem.loss, self.y
        slope, curvature = -float(duals @ image), float(residuals @ image)
        terms = weights * loss.gradient(y, scores) * moved
        noise = 8.0 * UNIT * (float(np.abs(terms).sum()) + abs(slope))

        def derivative(length: float) -> float:
            return float(weights @ (loss.gradient(y, scores + length * moved) * moved)) + slope + length * curvature

        return step_length(derivative, float(terms.sum()) + slope, noise)
