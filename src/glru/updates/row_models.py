r"""Models of the same rows and columns with any weights, found and certified in the dimension of the rows (wide data).

A model is a pair :math:`(b, \beta)` of :class:`~glru.metric.rows.RowSide`. What is certified is the gradient of a model that is
written down in full: the next Newton step gives both the bound of its norm and the next model.

A loss that is not self-concordant is certified by the duality gap: the dual point is :math:`a = b / s`, so that the penalty's
Fenchel-Young terms vanish.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, intersect, unbounded, widen
from glru.certificate import ball_radius, loss_terms
from glru.linalg import FEW, TINY, UNIT, Array, Entries, Matrix, as_matrix, gamma, length, to_host
from glru.metric.rows import RowMetric, RowSide, uses_rows
from glru.problem import Point, Problem
from glru.regions.gap import Region
from glru.regions.local import local_radius
from glru.solvers.newton import step_length
from glru.sums import Floor
from glru.updates.carried_rows import weight_error

Rows = NDArray[np.intp]
Errors = tuple[Array, Array]

MAX_STEPS = 30
"""The largest number of Newton steps of a single model, each with its own factor."""

HOPEFUL = 1e-3
"""The square of a gradient's norm, as a share of the objective, below which a quadratic model is asked for bounds: a step from elsewhere ends nearer."""

NARROW = 1e-7
"""Query intervals of at most this share of the scores' range are left as they are: narrower ones cost products with all rows."""


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
    """``H^-1 x`` of some rows: what it does to the scores, and how well it is known."""

    # Shape (n_rows, n_images), (n_free, n_images): the image's scores and its unpenalised part.
    scores: Any
    change: Array
    errors: Errors  # the error of row ``k``'s score is at most ``norms[k] first + second``
    # Shape (n_images,): at least the norms of the rows, and of what the image misses of them.
    norms: Array
    residual_norms: Array


@final
@dataclass(frozen=True, eq=False)
class Retrained:
    """Bounds of some rows' scores under a model, the Newton steps it took, and whether rounding allows no narrower ones.

    ``duals`` and ``free``: the last candidate.
    """

    lower: Array
    upper: Array
    n_steps: int
    exhausted: bool
    duals: Array
    free: Array


@final
@dataclass(frozen=True, eq=False)
class RowEllipsoid(Region):
    r"""All models within a radius of one that is given by its dual variables, in the metric of the Hessian there.

    The model is :math:`w_P = \Lambda_P^{-1} X_P^\top b`, :math:`\beta`, exactly. Its gradient is :math:`\tilde X^\top e` with forces
    :math:`e = s \circ \ell'(z) + b`, which vanish at the optimum row by row: no sum over the rows cancels, so that the gradient's norm is known
    far more accurately than from the gradient of stored coefficients.
    """

    models: "RowModels"  # the rows, and more of them that are asked about
    weights: Array  # shape (n_rows,): the weights of the rows
    # ``b``, ``beta`` and the scores of the model.
    duals: Array
    free: Array
    scores: Array
    metric: RowMetric  # the metric at these scores
    # Shape (n_rows, 1): ``e`` and the sizes of its parts, where they live.
    forces: Any
    sizes: Any
    errors: Errors  # shape (1,) each: the error of row ``k``'s score is at most ``norms[k] first + second``
    # An upper bound of the gradient's norm in the inverse metric, and the part of it that is rounding.
    nu: float
    rounding: float
    exponent: float  # the logarithm of what the exact curvatures may differ by from those of the metric
    proven: bool  # whether the metric is that of the Hessian, so that anything is proven

    @classmethod
    def at(
        cls,
        models: "RowModels",
        weights: Array,
        model: tuple[Array, Array, Array],
        metric: RowMetric,
        forces: Any,
        sizes: Any,
        norms: Array,
        missed: Array,
        proven: bool,
    ) -> "RowEllipsoid":
        """The ellipsoid at a model, from its forces and what :meth:`~glru.metric.rows.RowMetric.force_norms` says of them."""
        errors = models.score_errors(models.arrays.put(model[0][:, None]), model[1][:, None])
        exponent = models.exponent(np.zeros(1), errors, weights > 0.0)
        rounding = models.rounding(metric.spread(errors), models.norm_sums(sizes), exponent, metric.free_norm)
        nu = (norms + missed * metric.free_norm + rounding) * (1.0 + FEW)
        numbers = float(nu[0]), float(rounding[0]), float(exponent[0])
        return cls(models, weights, *model, metric, forces, sizes, errors, *numbers, proven)

    @cached_property
    def largest_norm(self) -> float:
        """An upper bound of the largest norm of a row that has a weight, from ``H >= Lambda`` and ``H >= d x x^T``."""
        side, used = self.models.side, self.weights > 0.0
        norms = side.norms + side.border_norms * self.metric.free_norm
        with np.errstate(divide="ignore"):
            norms = np.minimum(norms, 1.0 / self.metric.root)
        return float(norms[used].max(initial=0.0)) * (1.0 + FEW)

    @property
    def is_close(self) -> bool:
        """Whether the model is near enough to the optimum for the certificate."""
        return self.proven and bool(self.models.constant * self.largest_norm * self.nu < 0.9)

    @cached_property
    def radius(self) -> float:
        """How far the optimum is at most; infinite where nothing is proven."""
        if not (self.proven and np.isfinite(self.nu)):
            return np.inf
        return float(local_radius(self.models.constant, self.largest_norm, np.asarray(self.nu), self.exponent))

    @property
    def gap(self) -> float:
        """An upper bound of the distance of the objective at :attr:`point` from its optimum: by convexity, as for a local ellipsoid."""
        if not np.isfinite(self.radius):
            return np.inf
        side, curvatures, point = self.models.side, self.metric.curvatures, self.point
        # The stored coefficients are off in the metric of the penalty, and the intercept by the sum that it is made of: so are the scores.
        off, shift = side.unit * self._norm_sum, 0.0
        if side.center is not None:
            shift = side.unit * (float(np.abs(side.center) @ np.abs(point.coef)) + abs(float(self.free[-1])))
        moves = np.where(self.weights > 0.0, side.norms * off + shift, 0.0) * (1.0 + FEW)
        moved = float(np.sqrt(off**2 + curvatures @ np.square(moves))) * (1.0 + gamma(moves.size + 16)) + TINY
        grown = float(np.exp(self.models.constant * moves.max(initial=0.0) + self.exponent)) * moved
        return (self.nu + grown) * (self.radius + moved) * (1.0 + FEW) + TINY**2

    @property
    def coef_radius(self) -> float:
        """No optimal coefficient vector is farther than this from that of :attr:`point`; infinite where a column is not penalised."""
        strength = self.models.problem.penalty.strong_convexity
        far = (self.radius + self.models.side.unit * self._norm_sum) * (1.0 + FEW) + TINY
        return far / float(np.sqrt(strength)) * (1.0 + FEW) if strength > 0.0 else np.inf

    def bound_rows(self, rows: Rows) -> Bounds:
        """Bounds of the scores of some of the rows, corrected to first order."""
        models, column = self.models, self.models.arrays.put(self.duals[:, None])
        images, exponent, nu = models.images(self.metric, rows), np.array([self.exponent]), np.array([self.nu])
        moved = models.corrected(images, self.forces, column, self.sizes, self.errors, exponent, self.metric.curvatures)
        off = models.side.norms[rows] * self.errors[0] + self.errors[1]
        return models.ellipsoid(images, self.scores[rows], off, moved, nu, exponent, self.largest_norm)

    @cached_property
    def _norm_sum(self) -> float:
        """An upper bound of ``sum_k |b_k| |x_k|``, so also the norm of the penalised coefficients in the metric of the penalty."""
        norms = self.models.side.norms
        return float(norms @ np.abs(self.duals)) * (1.0 + gamma(norms.size + 4))

    @cached_property
    def _centred(self) -> Array:
        """The coefficients, with the unpenalised ones, of the model of centred rows."""
        side, n_rows = self.models.side, self.models.problem.n_rows
        coef = side.inverse * side.transposed_product(self.duals[:n_rows])
        coef[self.models.problem.unpenalised] = self.free[: self.models.problem.unpenalised.size]
        return coef

    @cached_property
    def point(self) -> Point:
        """The centre, rounded."""
        problem, coef = self.models.problem, self._centred
        last = float(self.free[-1]) if problem.fit_intercept else 0.0
        intercept = self.models.side.intercept(coef, last, -1.0) if problem.fit_intercept else 0.0
        return Point(coef.copy(), intercept)

    def score_bounds(self, X: Matrix) -> Bounds:
        if not np.isfinite(self.radius):
            return unbounded(X.shape[0])
        lower, upper = np.empty(X.shape[0]), np.empty(X.shape[0])
        height = X.chunk_height(16)
        for start in range(0, X.shape[0], height):
            here = slice(start, start + height)
            lower[here], upper[here] = self._bound(X[here])
        return lower, upper

    def _bound(self, X: Matrix) -> Bounds:
        side, problem = self.models.side, self.models.problem
        rows, border = side.rows(X), np.abs(side.free_part(X))
        scores = rows @ self._centred
        if problem.fit_intercept:
            scores = scores + self.free[-1]
        squares = rows.squared_row_norms(side.inverse)
        lengths = np.sqrt(squares) * (1.0 + gamma(X.shape[1] + 4)) + side.tiny
        # Coefficients err by gamma(n) of the sums of their terms, the score by gamma(d) more: both are shares of |x| sum_k |b_k| |x_k|.
        errors = side.unit * (lengths * self._norm_sum + border @ np.abs(self.free)) * (1.0 + FEW)
        # H >= Lambda, and what a row has in the free coordinates costs their norm.
        norms = lengths + length(border, axis=1) * self.metric.free_norm * (1.0 + FEW)
        wide = np.flatnonzero(norms * self.radius > NARROW * float(np.ptp(self.scores)))
        if wide.size:
            norms[wide] = np.minimum(norms[wide], self.metric.norms(X[wide]))
        return self.models.widened(scores, norms * self.radius * (1.0 + FEW) + errors)

    def coef_bounds(self) -> Bounds:
        side, places = self.models.side, self.models.problem.unpenalised
        if not np.isfinite(self.radius):
            return unbounded(self.models.problem.n_columns)
        # A coefficient errs by gamma(n) sum_k |b_k x_kj| / lam_j <= gamma(n) sum_k |b_k| |x_k| / sqrt(lam_j).
        half = np.sqrt(side.inverse) * (self.radius + side.unit * self._norm_sum) * (1.0 + FEW)
        half[places] = self.radius * self.metric.free_norm if places.size else 0.0
        return self.models.widened(self._centred, half)

    def intercept_bounds(self) -> tuple[float, float]:
        if not self.models.problem.fit_intercept:
            return 0.0, 0.0
        # The intercept is the score of a row of zeros.
        lower, upper = self.score_bounds(as_matrix(np.zeros((1, self.models.problem.n_columns))))
        return float(lower[0]), float(upper[0])


class RowModels:
    """Models of a problem's rows and columns with any weights, and their certificates over the rows.

    ``side``: that of the problem, or one with more rows, which have no weight and are asked about.
    """

    def __init__(self, problem: Problem, side: RowSide | None = None) -> None:
        self.problem, self.arrays, self.side = problem, problem.arrays, RowSide(problem) if side is None else side
        self.y = np.append(problem.y, np.ones(self.side.norms.size - problem.n_rows, dtype=problem.y.dtype))
        self.local = problem.loss.self_concordance is not None
        self.constant = float(problem.loss.self_concordance or 0.0)

    def place(self, point: Point, weights: Array | None = None) -> tuple[Array, Array, Array]:
        """A point, or what stands for it, as ``b`` and ``beta``, and the scores of that.

        A dual point need not belong to its primal point: of the known ones, that where the objective is lowest.

        Parameters
        ----------
        point : Point
            The point; rows that its dual point does not have come behind those that it has.
        weights : array, default=None
            The weights that its dual point belongs to, if not the problem's: with those of the old problem, an old model is met exactly.
        """
        problem = self.problem
        free = point.coef[problem.unpenalised]
        if problem.fit_intercept:
            free = np.append(free, self.side.intercept(point.coef, point.intercept))
        weighted = [np.zeros(0)]
        if point.dual is not None:
            weighted.append((problem.weights if weights is None else weights)[: point.dual.size] * point.dual)
        else:
            scores = problem.scores(point.coef, point.intercept)
            weighted.append(-problem.weights * problem.loss.gradient(problem.y, scores))
        models = []
        for known in weighted:
            duals = np.append(known, np.zeros(self.y.size - known.size))
            models.append((duals, free, self.scores(duals, free)))
        return min(models, key=self._objective)

    def _objective(self, model: tuple[Array, Array, Array]) -> float:
        """The objective of a model, without proof; infinite where it overflows."""
        duals, free, scores = model
        losses = self.problem.loss.value(self.y, scores)[: self.problem.n_rows]
        value = float(self.problem.weights @ losses) + 0.5 * float(duals @ (scores - self.side.border @ free))
        return value if np.isfinite(value) else np.inf

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
        """An upper bound of the norm of the gradient's error: of its parts and their weights, and of slopes at scores that are off.

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

    def gaps(
        self, weights: Any, duals: Any, without: Entries | None, free: Array | None = None
    ) -> tuple[Any, Any, Array]:
        """Duals that lie in the domain of the loss conjugate, their scores, and at least the Fenchel-Young terms there, summed.

        Without free coordinates the sums are the duality gaps. With them, duals whose ``U^T b`` is not 0 are not feasible, and the
        objective at the model is above that at another one by at most the sum plus ``(U^T b) . (beta_other - beta)``.
        """
        arrays, loss, side = self.arrays, self.problem.loss, self.side
        y, xp = arrays.put(self.y)[:, None], arrays.xp
        used = weights > 0.0
        dual = -loss.project(self.y[:, None], -duals / xp.where(used, weights, 1.0))
        projected = xp.where(used, weights * dual, 0.0)
        if without is not None:
            projected = arrays.zero_out(projected, without)
        free = np.zeros((side.n_free, projected.shape[1])) if free is None else free
        scores, (first, second) = side.scores(projected, free), side.score_errors(projected, free)
        off = arrays.put(side.norms)[:, None] * arrays.put(first)
        off = off + arrays.put(second) if side.n_free else off
        terms = xp.where(used, loss_terms(loss, y, scores, off, dual), 0.0)
        if without is not None:
            terms = arrays.zero_out(terms, without)
        losses = to_host(xp.sum(weights * terms, axis=0)) * (1.0 + weight_error(self.problem))
        # The exact weights differ from those used here, so the exact correlations from the candidate's coefficients.
        norm_sum = to_host(arrays.put(side.norms) @ xp.abs(projected))
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
    ) -> Bounds:
        """Bounds of the images' rows under the local certificate.

        The scores are within ``|x|`` times the radius of those at the optimum. Also, with ``g`` the gradient, the mean Hessian on the
        way there is within a factor ``1 + r`` of the image's, ``r = e^(T + kappa radius) - 1``: the score moves by ``-x^T H^-1 g``
        up to ``r |x| |g|``.
        """
        radius = local_radius(self.constant, largest_norm, nu, exponent)
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
        n_steps: int = MAX_STEPS,
    ) -> "Retrained":
        """Bounds of some rows' scores under the model with some weights.

        Each Newton step has a factor of its own and a line search.

        ``weights`` (shape (n_rows,)): the weights; ``start``: ``b``, ``beta`` and the scores of a model near it; ``queries``: the rows that are asked
        about; ``decided(lower, upper)``: whether the bounds are good enough; ``n_steps``: most steps.
        """
        found = np.full(queries.size, -np.inf), np.full(queries.size, np.inf)
        before, steps, exhausted = np.inf, 0, False
        for here in self.follow(weights, start, n_steps):
            steps += 1
            if not np.isfinite(here.nu):
                break
            if not self.local:
                found = intersect(found, self._bound_by_gap(here, queries))
            elif here.is_close and (
                self.constant > 0.0 or here.nu**2 < HOPEFUL * self._objective((here.duals, here.free, here.scores))
            ):
                found = intersect(found, here.bound_rows(queries))
            # Below two roundings a step cannot halve the norm.
            exhausted = here.nu <= 2.0 * here.rounding or (
                here.nu <= 8.0 * here.rounding and not here.nu < 0.5 * before
            )
            exhausted = here.proven and exhausted
            if decided(*found) or exhausted:
                break
            before = min(before, here.nu)
        return Retrained(*found, steps, exhausted, here.duals, here.free)

    def _bound_by_gap(self, here: "RowEllipsoid", queries: Rows) -> Bounds:
        """Bounds of some rows' scores from the duality gap of a model without free coordinates."""
        norms, weights = self.side.norms[queries], self.arrays.put(here.weights[:, None])
        projected, there, gap = self.gaps(weights, self.arrays.put(here.duals[:, None]), None)
        errors = self.side.score_errors(projected, here.free[:, None])
        half = ball_radius(gap) * norms + norms * errors[0] + errors[1]
        return self.widened(to_host(there)[queries, 0], half * (1.0 + FEW))

    def follow(
        self, weights: Array, start: tuple[Array, Array, Array], n_steps: int = MAX_STEPS
    ) -> Iterator["RowEllipsoid"]:
        """Certified models of some weights: one near the optimum, and those after Newton steps from it, while these go on.

        Each step has a factor of its own and a line search. The parameters are those of :meth:`retrained`.
        """
        problem, arrays = self.problem, self.arrays
        duals, free, scores = start
        # The pieces that a penalised model sees lead to the optimum in fewer steps than a quadratic above the loss, and with a search in finitely many.
        pieces = problem.loss.piecewise and not self.side.n_free
        floor = first = Floor.of(problem.loss, pieces)
        for _ in range(n_steps):
            _, curvatures = problem.loss.expand_slope(self.y, scores)
            # A floor raises the metric above the Hessian: it gives a step, and proves nothing.
            metric, proven = RowMetric(self.side, weights * floor.raise_floor(curvatures, scores)), floor.share == 0.0
            column = arrays.put(duals[:, None])
            forces, sizes = self.forces(arrays.put(weights[:, None]), column, arrays.put(scores[:, None]), None)
            change, step = metric.solve(forces, (self.side.border.T @ duals)[:, None])
            moves = self.side.scores(step, change)
            responses = arrays.put(metric.curvatures[:, None]) * moves
            norms, missed, _, _ = metric.force_norms(forces, responses, arrays.inner(responses, moves), column)
            here = RowEllipsoid.at(self, weights, (duals, free, scores), metric, forces, sizes, norms, missed, proven)
            yield here
            if not np.isfinite(here.nu):
                return
            # The step as it was solved for: as ``-e - D dz`` it loses digits where ``K`` is large.
            step, moves, change = to_host(step)[:, 0], to_host(moves)[:, 0], change[:, 0]
            length = self._length(weights, duals, scores, step, moves - self.side.border @ change, moves)
            if length == 0.0 and floor.highest:
                return
            floor = first if pieces and length > 0.0 else floor.after(length)
            if length > 0.0:
                duals, free = duals + length * step, free + length * change
                scores = self.scores(duals, free)

    def _length(self, weights: Array, duals: Array, scores: Array, step: Array, image: Array, moved: Array) -> float:
        """How far to go along a step; ``image``: ``K`` times it."""
        loss, y = self.problem.loss, self.y
        slope, curvature = float(duals @ image), float(step @ image)
        terms = weights * loss.gradient(y, scores) * moved
        noise = 8.0 * UNIT * (float(np.abs(terms).sum()) + abs(slope))

        def derivative(length: float) -> float:
            return float(weights @ (loss.gradient(y, scores + length * moved) * moved)) + slope + length * curvature

        return step_length(derivative, float(terms.sum()) + slope, noise)
