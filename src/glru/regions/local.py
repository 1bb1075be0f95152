r"""The local ellipsoid of a self-concordant loss: no strong convexity needed, an intercept and lam = 0 included.

The loss has :math:`|\ell'''| \le M \ell''`. With :math:`H` the Hessian at the candidate :math:`\hat w` (intercept
included), :math:`\nu = \|\nabla P(\hat w)\|_{H^{-1}}` and :math:`\kappa \ge M \max_k \|x_k\|_{H^{-1}}`, the Hessian on the way to
:math:`w^*` is at least :math:`e^{-\tau \kappa r} H`, :math:`r = \|w^* - \hat w\|_H`. Integrating gives
:math:`\nu \ge (1 - e^{-\kappa r}) / \kappa`, so if :math:`\kappa \nu < 1`

.. math:: r \le -\log(1 - \kappa \nu) / \kappa, \qquad |x^\top (w^* - \hat w)| \le \|x\|_{H^{-1}} r \text{ for every } x.

Where the Hessian is only known to be at least :math:`(1 - \eta)` times the metric used, :math:`\nu` grows by
:math:`1 / (1 - \eta)`. Convexity gives :math:`P(\hat w) - P^* \le \nabla P(\hat w)^\top (\hat w - w^*) \le \nu r`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, intersect, unbounded, widen
from glru.certificate import score_errors
from glru.linalg import FEW, TINY, Array, Matrix, gamma
from glru.losses import Loss
from glru.metric.columns import (
    ColumnMetric,
    DiagonalMetric,
    Metric,
    OrthogonalMetric,
    closest_metric,
    factor_hessian,
    make_column_metric,
)
from glru.metric.rows import RowMetric, RowSide, uses_rows
from glru.problem import Point, Problem
from glru.regions.gap import Region, centers
from glru.rows import Totals
from glru.sums import (
    NO_ERRORS,
    Expansion,
    Floor,
    RowValues,
    ScoreErrors,
    assemble_gradient,
    assemble_hessian,
    expand,
    gradient_errors,
    score_errors_of_rows,
    score_errors_of_totals,
    slope_error_norm,
    sum_closely,
)

RADII = (1.25, 3.0, 16.0)
"""Radii of ellipsoids to try, in units of the radius that would hold if no row were near a kink."""


def piece_radius(nu: Array, shares: Array, lost: Callable[[Array], Array]) -> Array:
    """Upper bounds of the distances to the optima in the metric; infinite where nothing is proven.

    ``nu``: at least the gradients' norms in the inverse metric; ``shares``: the Hessians of the rows in their curved pieces, all of them, are at least these
    shares of the metric; ``lost(radii)``: at least the share of the metric of the rows that may leave their curved pieces within the radii.
    """
    found = np.full(nu.size, np.inf)
    with np.errstate(all="ignore"):
        for times in RADII:
            tried = times * nu / shares * (1.0 + FEW)
            kept = shares - lost(tried) * (1.0 + FEW)
            radius = nu / kept * (1.0 + FEW)
            found = np.where((kept > 0.0) & (radius < tried), np.minimum(found, radius), found)
    return found


def measure_piece_depths(loss: Loss, y: Array, scores: Array, errors: Array) -> Array:
    """Lower bounds of the depths of the exact scores inside the curved pieces, for scores that are off by at most ``errors``."""
    depths = loss.piece_depth(y, scores)
    # The evaluation is a product and one or two differences of numbers of these sizes.
    return depths - errors - FEW * (np.abs(depths) + np.abs(scores) + loss.target_size(y))


def measure_kink_distances(loss: Loss, y: Array, scores: Array, errors: Array) -> Array:
    """Lower bounds of the distances of the exact scores from the nearest kinks, for scores that are off by at most ``errors``."""
    depths = np.abs(loss.piece_depth(y, scores))
    return np.maximum(depths * (1.0 - FEW) - errors - FEW * (np.abs(scores) + loss.target_size(y)), 0.0)


@final
@dataclass(frozen=True, eq=False)
class Kinks:
    """The rows in the order of their distances from a kink at one model, as multiples of their norms; cumulative sums of them.

    A model at the distance ``D`` from that one (in the metric) moves the score of row ``k`` by at most ``D |x_k|``.
    """

    distances: Array  # shape (n_rows,): at most the distances over the norms, in ascending order
    # Shape (n_rows + 1,): at least the sums over the first rows: of the shares ``s c |x|^2`` of those in their curved pieces, of the shares of all of them,
    # and at most that of the shares times the distances.
    curved: Array
    carried: Array
    moments: Array

    @classmethod
    def of(cls, distances: Array, norms: Array, curvatures: Array, is_curved: NDArray[np.bool_]) -> "Kinks":
        """``curvatures``: at least the rows' weighted curvatures where they are curved, 0 for rows that do not count."""
        counted = (curvatures > 0.0) & (norms > 0.0)
        relative = distances[counted] / norms[counted] * (1.0 - FEW)
        order = np.argsort(relative, kind="stable")
        shares = (curvatures[counted] * np.square(norms[counted]))[order] * (1.0 + FEW)
        relative, up = relative[order], 1.0 + gamma(order.size + 4)
        return cls(
            relative,
            _cumulative(np.where(is_curved[counted][order], shares, 0.0)) * up,
            _cumulative(shares) * up,
            _cumulative(shares * relative) * (2.0 - up),
        )

    def lost(self, radius: Array) -> Array:
        """An upper bound of the share of the metric of the curved rows that a model within ``radius`` may see cross a kink."""
        return self.curved[np.searchsorted(self.distances, radius, side="right")]

    def remainders(self, lengths: Array) -> Array:
        """Upper bounds of the norms of what steps of these lengths leave of the Newton equation: ``sum_k s c |x_k| (D |x_k| - distance)_+``.

        Beyond a kink a slope differs from its linearisation by at most ``c`` times the way beyond it.
        """
        places = np.searchsorted(self.distances, lengths)
        sizes = lengths * self.carried[places]
        return np.maximum(sizes * (1.0 + FEW) - self.moments[places], 0.0) + FEW * sizes


def _cumulative(values: Array) -> Array:
    return np.concatenate([[0.0], np.cumsum(values)])


def has_local(problem: Problem) -> bool:
    """Whether the theory applies (a self-concordant loss, a smooth penalty) and the metric is small enough to form.

    On a device it is formed over the columns only.
    """
    if uses_rows(problem) and not problem.arrays.stable:
        return False
    size = problem.n_rows if uses_rows(problem) else problem.n_columns
    return problem.loss.self_concordance is not None and problem.penalty.smooth and size <= problem.largest


def has_pieces(problem: Problem) -> bool:
    """Whether the ellipsoid between kinks applies (:mod:`glru.regions.local`): a piecewise quadratic loss, a smooth penalty, rows in memory."""
    size = problem.n_rows if uses_rows(problem) else problem.n_columns
    smooth = problem.loss.piecewise and problem.penalty.smooth
    return smooth and problem.in_memory and problem.arrays.stable and size <= problem.largest


def has_support(problem: Problem) -> bool:
    """Whether the theory applies: absolute values in the penalty, a smooth loss that is self-concordant or piecewise quadratic, all rows in memory."""
    loss = problem.loss
    known = loss.self_concordance is not None or loss.piecewise
    smooth = known and bool(np.isfinite(loss.smoothness)) and not loss.several
    return smooth and not problem.penalty.smooth and problem.in_memory and problem.arrays.stable


def local_radius(constant: float, largest_norm: Array | float, nu: Array, exponent: Array | float) -> Array:
    """The radius ``r`` in the metric; infinite where the certificate proves nothing.

    ``constant``: the self-concordance constant ``M``; ``largest_norm``, ``nu``: at least the largest norm of a row and that of the gradient in the inverse
    metric, which was taken where curvatures differ by a factor of at most ``e^exponent``.
    """
    with np.errstate(all="ignore"):
        # The exponent is a short chain of operations; its relative error counts as often as it is large.
        grown = nu * np.exp(exponent * (1.0 + FEW)) * (1.0 + FEW)
        if constant == 0.0:
            return np.where(np.isfinite(grown), grown, np.inf)
        product = constant * largest_norm * grown * (1.0 + FEW)
        radius = grown * np.where(product > 1e-8, -np.log1p(-product) / product, 1.0 + product) * (1.0 + FEW)
    return np.where((product < 1.0) & np.isfinite(radius), radius, np.inf)


CLOSE = 0.1
"""Where ``kappa nu`` is below this with a rough ``kappa``, the radius is at most 5.4 % larger than with the exact one."""


def bound_row_norm(metric: ColumnMetric, length: float) -> float:
    """An upper bound of the largest norm of a row in the inverse metric, from the largest Euclidean one, which costs nothing."""
    length = float(np.hypot(length, 1.0)) if metric.fit_intercept else length
    return length * metric.largest * (1.0 + FEW)


@final
@dataclass(frozen=True, eq=False)
class LocalEllipsoid(Region):
    """All models within a radius of one, in the metric of the Hessian there."""

    totals: Totals  # bounds of sums over the rows
    point: Point  # the centre
    metric: Metric  # the inverse metric of the Hessian there
    gradient: Array  # the objective's gradient there, the intercept's entry last
    nu: float  # at least its norm in the inverse of the exact Hessian; infinite where nothing is known
    rows: Problem | None  # the rows, where they are in memory
    base: Array | None = None  # shape (n_rows,): the scores that the metric was taken at, of rows in memory
    # The curvatures at the centre differ from those of the metric by a factor of at most ``e^exponent``.
    exponent: float = 0.0
    share: float = 0.0  # the relative error of the penalty's strengths up to which all this holds
    # A lower bound of how deep the rows of a piecewise quadratic loss are inside their curved pieces; infinite where these are no part of the metric.
    depths: Array | None = None

    @classmethod
    def at(
        cls, problem: Problem, point: Point, diagonal: bool = False, share: float = 0.0, hessian: Any = None
    ) -> "LocalEllipsoid":
        """The ellipsoid at a model of a problem, from one pass over its rows.

        ``diagonal``: in the metric of the penalty, which costs a few products of rows in memory and is wide unless the gradient is
        tiny; all columns must be penalised. ``share``: it holds the optima of all penalties whose strengths and slopes are within this relative error.
        ``hessian``: the losses' Hessian of rows in memory, summed in any order, if it is known.
        """
        by_rows = problem.in_memory and uses_rows(problem)
        floor = Floor(problem.loss, 0.0) if problem.loss.piecewise else Floor.of(problem.loss)
        here = expand(problem, point, None if by_rows or diagonal or hessian is not None else floor)
        if here.rows is None:
            return cls.of_sums(problem.totals, point, here)
        metric: Metric
        if hessian is not None:
            whole, depth = assemble_hessian(problem.totals, hessian), problem.totals.depth + problem.n_rows
            metric = factor_hessian(whole, problem.fit_intercept, depth, problem.totals.least_curvature)
        elif diagonal:
            metric = DiagonalMetric(problem, problem.weights * here.rows.curvatures)
        elif by_rows:
            metric = RowMetric(RowSide(problem), problem.weights * here.rows.curvatures)
        else:
            hessian = assemble_hessian(problem.totals, here.hessian)
            metric = closest_metric(problem, hessian, problem.weights * here.rows.curvatures)
        made = _make(problem.totals, point, here, metric, _bound_errors(problem, point, here.rows.scores), share)
        if isinstance(metric, OrthogonalMetric) and share == 0.0:
            made = _make_closely(problem, point, here.rows, metric)
        depths = None
        if problem.loss.piecewise:
            curved = (problem.weights > 0.0) & (here.rows.curvatures > 0.0)
            errors = score_errors(problem, point.coef, point.intercept, here.rows.scores)
            depths = np.where(curved, measure_piece_depths(problem.loss, problem.y, here.rows.scores, errors), np.inf)
        return cls(problem.totals, point, *made, problem, here.rows.scores, share=share, depths=depths)

    def carry_to(self, point: Point) -> "LocalEllipsoid":
        """The ellipsoid at another model of the same rows, which are in memory, in the metric of this one: two products, no Hessian."""
        problem, base = self.rows, self.base
        assert problem is not None and base is not None
        constant, here = problem.loss.self_concordance, expand(problem, point)
        assert here.rows is not None and constant is not None
        moved = float(np.abs(here.rows.scores - base)[problem.weights > 0.0].max(initial=0.0)) * (1.0 + FEW)
        exponent = constant * moved * (1.0 + FEW)
        errors = _bound_errors(problem, point, here.rows.scores)
        made = _make(problem.totals, point, here, self.metric, errors, self.share, moved)
        return LocalEllipsoid(problem.totals, point, *made, problem, base, exponent, self.share)

    @classmethod
    def of_sums(cls, totals: Totals, point: Point, here: Expansion) -> "LocalEllipsoid":
        """The ellipsoid at a point, from its expansion with a Hessian over the columns."""
        return cls(totals, point, *_make(totals, point, here, None, score_errors_of_totals(totals, point)), None)

    @cached_property
    def radius(self) -> float:
        """How far the optimum is at most; infinite where nothing is proven."""
        if not np.isfinite(self.nu):
            return np.inf
        if self.totals.loss.piecewise:
            return self._piece_radius()
        constant = float(self.totals.loss.self_concordance or 0.0)
        norm = self._norm_bound
        with np.errstate(over="ignore"):  # curvatures that say nothing about those at the point
            if not constant * norm * self.nu * np.exp(self.exponent) < CLOSE:
                norm = self.largest_norm
        return float(local_radius(constant, norm, np.asarray(self.nu), self.exponent))

    def _piece_radius(self) -> float:
        """The radius where the loss has kinks: exact norms are asked for where a row may come to one."""
        if self.depths is None or self.rows is None:
            return np.inf
        depths, rows, nu = self.depths, self.rows, np.array([self.nu])
        radius = piece_radius(nu, np.ones(1), lambda radii: np.where(depths.min() > radii * self._norm_bound, 0.0, 1.0))
        if np.isfinite(radius[0]):
            return float(radius[0])
        norms, at_most = self.metric.norms(rows.matrix), (1.0 + FEW) / (1.0 - self.metric.eta) / (1.0 - self.share)
        shares = rows.weights * rows.loss.smoothness * np.square(norms) * at_most * (1.0 + gamma(rows.n_rows + 8))
        return float(piece_radius(nu, np.ones(1), lambda radii: shares.sum(where=~(depths > radii * norms))[None])[0])

    @cached_property
    def largest_norm(self) -> float:
        """An upper bound of the largest norm of a row in the inverse metric."""
        if self.rows is None:
            return self._norm_bound
        metric = self.metric
        norms = metric.row_norms() if isinstance(metric, DiagonalMetric) else metric.norms(self.rows.matrix)
        return float(norms[self.rows.weights > 0.0].max())

    @property
    def _norm_bound(self) -> float:
        """An upper bound of the largest norm of a row in the inverse metric, without a product with the rows."""
        metric = self.metric
        if isinstance(metric, DiagonalMetric):
            return self.largest_norm
        if isinstance(metric, RowMetric):
            # The Hessian is at least the penalty, so a row's norm is at most that in the penalty's metric and the border's.
            return float((metric.side.norms + metric.side.border_norms * metric.free_norm).max()) * (1.0 + FEW)
        assert isinstance(metric, ColumnMetric)
        return bound_row_norm(metric, self.totals.largest_norm)

    @property
    def gap(self) -> float:
        """An upper bound of the objective's distance from its optimum, with room for a product that underflows."""
        return self.nu * self.radius * (1.0 + FEW) + TINY**2 if np.isfinite(self.radius) else np.inf

    @cached_property
    def step(self) -> Array:
        """The Newton step at the centre, for a metric over the columns."""
        assert isinstance(self.metric, ColumnMetric)
        step: Array = -self.metric.solve(self.gradient)
        return step

    def take_step(self, length: float = 1.0) -> Point:
        """The model one Newton step further, for a metric over the columns."""
        return self.point.move(self.step, length)

    def score_bounds(self, X: Matrix) -> Bounds:
        if not np.isfinite(self.radius):
            return unbounded(X.shape[0])
        norms, found = self.metric.norms(X), unbounded(X.shape[0])
        for point, radius, times in [(self.point, self.radius, 1.0), *self._after_step]:
            scores, errors = centers(X, point.coef, point.intercept)
            found = intersect(found, widen(scores, radius * norms + times * errors + FEW * np.abs(scores)))
        return found

    @cached_property
    def _after_step(self) -> list[tuple[Point, float, float]]:
        r"""The model one Newton step further, and at least the optimum's distance from it in the metric; nothing where that is no closer.

        On the way to the optimum curvatures change by a factor of at most :math:`e^{\tau E}`, :math:`E = M \kappa r`, so the mean Hessian is between
        :math:`(1 - e^{-E}) / E = 1 / g` and :math:`(e^E - 1) / E \le 1 / (2 - g)` times that of the centre: the step misses the optimum by at most
        :math:`(g - 1) \nu`, and by what the gradient and the metric may be off by, which is what :math:`\nu` has more than the computed norm.
        The last number: how often the rounding of scores counts, once for the products and once for the sum of model and step.
        """
        metric, constant = self.metric, self.totals.loss.self_concordance
        if constant is None or not isinstance(metric, ColumnMetric):
            return []
        norm = self._norm_bound
        if not constant * norm * self.radius < CLOSE:
            norm = self.largest_norm
        size = metric.gradient_norm(self.gradient, np.zeros_like(self.gradient))
        with np.errstate(all="ignore"):
            exponent = constant * norm * self.radius * (1.0 + FEW) + TINY
            grown = np.exp(self.exponent * (1.0 + FEW)) * exponent / -np.expm1(-exponent) * (1.0 + FEW)
            # Both triangular solves of the step err by shares of the norm.
            radius = float(self.nu * grown - size * (1.0 - 8.0 * metric.solve_error)) * (1.0 + FEW)
            after = self.point.move(self.step)
        known = np.all(np.isfinite(after.coef)) and np.isfinite(after.intercept)
        return [(after, radius, 2.0)] if known and radius < self.radius else []

    def coef_bounds(self) -> Bounds:
        return widen(self.point.coef, self._axis_widths[: self.point.coef.size])

    def intercept_bounds(self) -> tuple[float, float]:
        if not self.totals.fit_intercept:
            return 0.0, 0.0
        lower, upper = widen(np.array([self.point.intercept]), self._axis_widths[-1:])
        return float(lower[0]), float(upper[0])

    @cached_property
    def _axis_widths(self) -> Array:
        """How far each coefficient (the intercept last) is at most from the optimal one."""
        if not np.isfinite(self.radius):
            return np.full(self.gradient.size, np.inf)
        return self.radius * self.metric.axis_norms() * (1.0 + FEW)


def _bound_errors(problem: Problem, point: Point, scores: Array) -> ScoreErrors:
    """What is known about the errors of the scores of rows in memory."""
    return score_errors_of_rows(problem, score_errors(problem, point.coef, point.intercept, scores))


def _make_closely(problem: Problem, point: Point, rows: RowValues, metric: ColumnMetric) -> tuple[Metric, Array, float]:
    """The same as :func:`_make`, of dense rows in memory whose columns are nearly dependent: sums in entries of the gradient lose too much there."""
    errors = score_errors(problem, point.coef, point.intercept, rows.scores)
    share = gamma(problem.totals.depth + 4)
    losses, error_norm = sum_closely(problem, point, rows, errors, metric, float(np.sqrt(1.0 + metric.eta)), share)
    gradient, constant = assemble_gradient(problem.totals, point, losses), float(problem.loss.self_concordance or 0.0)
    # The Hessian was taken at computed scores: at the exact ones it is within this factor.
    near = float(np.exp(constant * errors[problem.weights > 0.0].max(initial=0.0)))
    nu = (metric.gradient_norm(gradient, np.zeros_like(gradient)) + error_norm * near) * near / (1.0 - metric.eta)
    return metric, gradient, nu * (1.0 + FEW) if metric.eta < 1.0 else np.inf


def _make(
    totals: Totals,
    point: Point,
    here: Expansion,
    metric: Metric | None,
    errors: ScoreErrors,
    share: float = 0.0,
    moved: float = 0.0,
) -> tuple[Metric, Array, float]:
    """The metric (over the columns, if none is given), the gradient, and at least its norm, for all penalties within a relative error.

    ``moved``: at least the distance of a score from the one that the metric was taken at.
    """
    with np.errstate(all="ignore"):  # overflow ends in an infinite norm: nothing is proven then
        if metric is None:
            metric = make_column_metric(totals, assemble_hessian(totals, here.hessian))
        gradient, constant = assemble_gradient(totals, point, here.gradient), totals.loss.self_concordance
        if (constant is None and not totals.loss.piecewise) or not metric.eta < 1.0:
            return metric, gradient, np.inf
        penalty, n_columns, wrong = totals.penalty, point.coef.size, []
        for off in (errors, NO_ERRORS):
            slack = gradient_errors(totals, point, here, off, gamma(totals.depth + 4))
            slack[:n_columns] += share * (penalty.quadratic * np.abs(point.coef) + np.abs(penalty.linear)) * (1.0 + FEW)
            wrong.append(slack)
        # The Hessian was taken at computed scores; at the exact ones it is smaller by at most this factor; between kinks it is the same.
        # Another penalty's Hessian is at least ``1 - share`` times this one: roots of that in the norms of the gradient and of the rows.
        loosening = float(np.exp((constant or 0.0) * errors.largest)) / (1.0 - metric.eta) / (1.0 - share)
        nu = metric.gradient_norm(gradient, wrong[0]) * loosening
        slopes = slope_error_norm(totals.loss, errors.spread, errors.largest + moved) * loosening
        if slopes < nu:
            nu = min(nu, metric.gradient_norm(gradient, wrong[1]) * loosening + slopes)
        return metric, gradient, float(nu * (1.0 + FEW))
