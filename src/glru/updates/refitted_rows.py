r"""All leave-one-out removals at once where preprocessing is fitted again without each row (:class:`~glru.updates.refits.Refits`).

Candidates are written down in full, one model per column, and certified by the exact gradients of their own problems in the metric of
the model of all rows. With :math:`M_i` that metric without row ``i``, the Hessian of row ``i``'s problem at the same curvatures is

.. math:: H_i \succeq \min(1, \min_j \rho_{ij}, u_i) (1 - \theta_i)^2 M_i, \qquad
          \theta_i \ge \sup_v \|D^{1/2} (m \operatorname{diag} f_i) v\| / \|v\|_{M_i},

since the stacked vectors :math:`(D^{1/2} X_i v, \Lambda^{1/2} v)` differ by no more than the moved fills. Chord steps with
:math:`M_i` then converge as fast as the changes are small, whatever the loss.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from glru.bounds import Bounds, intersect, unbounded, widen
from glru.linalg import FEW, HOST, TINY, Array, gamma, to_host, weighted_norm
from glru.linalg.factor import solve_shifted
from glru.metric.columns import ColumnMetric
from glru.metric.rows import RowSide
from glru.problem import Problem
from glru.regions.local import local_radius, measure_piece_depths, piece_radius
from glru.solution import Solution
from glru.sums import assemble_gradient
from glru.updates.batch import SLOW, Certified, Decided, tighten
from glru.updates.gradients import Descent, Gradients, compute_model_scores, find_lengths
from glru.updates.local_rows import CHORD_STEPS, LocalRows, Removals, has_local_rows, has_piece_rows, newton_remainders
from glru.updates.moments import ThirdDerivatives
from glru.updates.refits import Refits
from glru.updates.row_models import Errors, Rows, has_wide_rows
from glru.updates.wide_rows import WideRows

Mask = NDArray[np.bool_]

MIN_SHARE = 1e-6
"""Rows whose removal leaves less than this share of a factor are left to their own steps."""


SHARE_OF_SLOPE = 0.1
"""Share of the derivative along a step that a line search over kinks may leave."""

LARGEST_MIX = 4.0
"""The largest share of the previous step in an accelerated one: this makes up for steps that leave up to four fifths of an error."""

SPARSE_MASK = 0.2
"""Share of filled values up to which products with their mask skip the others."""

WORTH_EXPANDING = 4.0
"""Third derivatives are formed only if the products of all rows with all candidates cost this many times as much."""

FEW_PAIRS = 1 << 17
"""Up to this many pairs of rows and candidates, products cost less than third derivatives whatever the operation counts say."""

TIGHT_ETA = 1e-6
"""If the relative error of the metric is above this, expansions to second order start from a base one step closer."""

MAX_ENTRIES = 1 << 21
"""Entries of a work array that holds the coefficients of the candidates bounded together."""

MAX_KEPT = 10_000_000
"""Centred rows of wide data are kept for all steps if they have at most this many entries (80 MB)."""


def has_refitted_rows(problem: Problem) -> bool:
    """Whether the removals are made in batches: data in memory on the host, a smooth penalty, a self-concordant loss or, on tall data, a piecewise one."""
    if not (problem.in_memory and problem.arrays is HOST):
        return False
    if problem.loss.self_concordance is None:
        return has_piece_rows(problem) and not has_wide_rows(problem)
    return has_wide_rows(problem) or has_local_rows(problem)


@final
class TallRefits:
    """The removal of single rows with refitted preprocessing, over the columns; the losses are summed, not averaged."""

    def __init__(self, start: Solution | LocalRows, refits: Refits) -> None:
        self.family, self.refits, self.problem = LocalRows(start, 1.0), refits, start.problem

    @cached_property
    def closer(self) -> "TallRefits":
        """The bounds from a base one Newton step closer, where the error of the metric would matter in narrow intervals."""
        return self if self.family.eta <= TIGHT_ETA else TallRefits(self.family, self.refits)

    def bound_quickly(self, rows: Rows, decided: Decided) -> Bounds:
        """Bounds of the rows' scores without a product of the rows with every model; none where a loss has kinks."""
        lower, upper = unbounded(rows.size)
        if self.problem.loss.piecewise:
            return lower, upper
        size = max(1, MAX_ENTRIES // (self.problem.n_columns + 1))
        for start in range(0, rows.size, size):
            places, first = self.find_first_candidates(rows[start : start + size])
            if first is not None:
                lower[start + places], upper[start + places] = first.bound_quickly()
        left = np.flatnonzero(~decided(lower, upper))
        if self.has_second_order(left.size):
            for start in range(0, left.size, size):
                mine = left[start : start + size]
                places, first = self.closer.find_first_candidates(rows[mine])
                if first is not None:
                    mine = mine[places]
                    found = intersect((lower[mine], upper[mine]), first.bound_to_second_order())
                    lower[mine], upper[mine] = found
        return lower, upper

    def has_second_order(self, n_rows: int) -> bool:
        """Whether bounds by third derivatives are expected to be cheaper than the gradients of all candidates, for some rows."""
        problem = self.problem
        size = problem.n_columns + 1
        wide = size + self.refits.filled_columns.size
        known = (
            n_rows > 0
            and self.family.usable
            and problem.loss.fourth_constant is not None
            and self.family.base.constant > 0.0
        )
        # They spare the gradients of about half of the candidates, a few steps of each.
        work, pairs = (problem.n_rows + 2 * n_rows) * wide**2 * (wide + 4), problem.n_rows * n_rows
        cheap = pairs > FEW_PAIRS and WORTH_EXPANDING * work < pairs * (2 * size + 30)
        return known and cheap and not problem.matrix.is_thin

    @cached_property
    def third(self) -> ThirdDerivatives:
        """Third derivatives of all rows' losses at the base, along steps and moved fills."""
        problem, mask = self.problem, self.refits.mask
        if not mask.shape[1]:
            return self.family.third
        third = problem.loss.third_derivative(problem.y, self.family.values.scores)
        return ThirdDerivatives(problem, self.family.base.metric, problem.weights * third, mask)

    @cached_property
    def curved_sums(self) -> tuple[float, float, float]:
        """An upper bound of ``sum_k s_k h_k kappa_k^p`` for ``p`` of 0, 1 and 2, ``kappa`` the norms of the rows."""
        every = self.family.removals(np.arange(self.problem.n_rows))
        curvatures = (
            self.problem.weights * every.curvatures * ((1.0 + self.family.eta) * (1.0 + gamma(every.norms.size + 8)))
        )
        norms = np.where(self.problem.weights > 0.0, every.norms, 0.0)
        return float(curvatures.sum()), float(curvatures @ norms), float(curvatures @ np.square(norms))

    def bounds(self, rows: Rows, decided: Decided, n_steps: int) -> Bounds:
        """Bounds of the rows' scores under the models trained without them; rows leave as they are decided."""
        lower, upper = unbounded(rows.size)
        places, first = self.find_first_candidates(rows)
        if first is not None:
            found = tighten(first, decided, n_steps)
            lower[places], upper[places] = found.lower, found.upper
        return lower, upper

    def find_first_candidates(self, rows: Rows) -> "tuple[Rows, TallCandidates | None]":
        """The places of the rows of which something is proven, and the first candidates without them."""
        if not self.family.usable:
            return np.empty(0, dtype=np.intp), None
        removals = self.family.removals(rows)
        shares, thetas = self.shares(rows, removals)
        usable = (shares > 0.0) & (shares > MIN_SHARE * removals.metric_shares)
        if self.problem.loss.piecewise and self.penalty_gradients is not None:
            usable |= self.refits.together[rows] & (self.refits.smallest[rows] > 0.0)
        places = np.flatnonzero(usable)
        if not places.size:
            return places, None
        return places, TallCandidates.first(self, rows[places], removals.take(places), shares[places], thetas[places])

    def shares(self, rows: Rows, removals: Removals) -> tuple[Array, Array]:
        """What share of the metric the Hessians without each row have at least, and at least the norms of moved fills."""
        refits, shares = self.refits, removals.metric_shares
        fills = self.fill_norms(rows)
        with np.errstate(all="ignore"):
            thetas = (fills @ self.filled_spread) / np.sqrt(shares) * (1.0 + gamma(fills.shape[1] + 16))
            found = refits.smallest[rows] * np.square(np.maximum(1.0 - thetas, 0.0)) * shares * (1.0 - FEW)
        usable = (shares > 0.0) & (refits.smallest[rows] > 0.0) & (thetas < 1.0) & refits.together[rows]
        return np.where(usable, found, 0.0), fills.sum(axis=1) * (1.0 + gamma(fills.shape[1] + 4))

    def fill_norms(self, rows: Rows, axes: Array | None = None) -> Array:
        """Upper bounds of the norms of every moved fill as a vector with one entry, a row per removal; ``axes``: those of the filled columns, if in another metric."""
        refits, columns = self.refits, self.refits.filled_columns
        if not columns.size:
            return np.zeros((rows.size, 0))
        assert refits.fills is not None
        axes = self.fill_axes if axes is None else axes
        return (np.abs(refits.fills[np.ix_(rows, columns)]) + self.fill_errors) * axes * (1.0 + FEW)

    @cached_property
    def fill_axes(self) -> Array:
        """The norms of the axes of the columns with fills."""
        return self.family.base.metric.axis_norms()[self.refits.filled_columns]

    @cached_property
    def fill_errors(self) -> Array:
        """How far a fill may be off, one entry per column with fills."""
        return self.refits.error * np.abs(self.problem.matrix.dense(self.refits.filled_columns)).max(
            axis=0, initial=0.0
        )

    @cached_property
    def filled_spread(self) -> Array:
        """An upper bound of ``sqrt(sum_k d_k m_kj)``."""
        curvatures = self.problem.weights * self.family.values.curvatures * (1.0 + self.family.eta)
        return np.sqrt(curvatures @ self.refits.mask * (1.0 + gamma(curvatures.size + 8)))

    @cached_property
    def fill_products(self) -> "FillProducts":
        """Products of the columns with fills and the data at the base."""
        problem, values, mask = self.problem, self.family.values, self.refits.mask
        forces, curvatures = problem.weights * values.slopes, problem.weights * values.curvatures
        bent = curvatures[:, None] * mask
        across = problem.matrix.T @ bent
        lengths = to_host(problem.matrix.squared_column_norms(curvatures))
        if problem.fit_intercept:
            across, lengths = np.vstack([across, bent.sum(axis=0)]), np.append(lengths, curvatures.sum())
        lengths = np.sqrt(lengths * (1.0 + self.family.eta)) * (1.0 + gamma(problem.n_rows + 8)) + TINY
        every = self.family.removals(np.arange(problem.n_rows))
        return FillProducts(
            across,
            mask.T @ bent,
            forces @ mask,
            np.abs(forces) @ mask * (1.0 + gamma(problem.n_rows + 8)),
            (problem.weights * (every.slope_errors + FEW * np.abs(values.slopes))) @ mask,
            lengths,
            self.family.base.metric.error_norm(lengths),
            float(mask.sum(axis=1).max(initial=0.0)),
        )

    @cached_property
    def gradients(self) -> Gradients:
        """What bounds the rounding of gradients."""
        factors = self.refits.class_factors
        largest = 1.0 if factors is None else float(factors.max()) * (1.0 + FEW + self.refits.error)
        return Gradients(self.problem, self.family.base.metric, self.family.point, self.family.largest_error, largest)

    @cached_property
    def penalty_gradients(self) -> Gradients | None:
        """The same in the metric of the penalty, in which no row has to stay on its piece; None with an intercept or a column without a penalty."""
        problem, strengths = self.problem, self.problem.quadratic
        if problem.fit_intercept or not strengths.all():
            return None
        metric = ColumnMetric(np.diag(strengths), False, 0, float(strengths.min(initial=np.inf)))
        return Gradients(problem, metric, self.family.point, self.family.largest_error, self.gradients.largest_factor)

    @property
    def factor_error(self) -> float:
        """An upper bound of the relative error of a class factor."""
        return 0.0 if self.refits.class_factors is None else self.refits.error

    @cached_property
    def curved_lengths(self) -> tuple[float, float]:
        """An upper bound of ``(sum_k s_k h_k |x_k|^2)^(1/2)`` and ``(sum_k s_k h_k)^(1/2)``, times the largest factor of a weight."""
        problem, grown = self.problem, (1.0 + self.family.eta) * (1.0 + gamma(self.problem.n_rows + 16))
        curvatures = problem.weights * self.family.values.curvatures
        sums = float(curvatures @ problem.squared_row_norms), float(curvatures.sum())
        lengths, spread = (float(np.sqrt(grown * part)) * grown * self.gradients.largest_factor for part in sums)
        return lengths * (1.0 + gamma(problem.n_columns + 8)), spread

    @cached_property
    def fill_sums(self) -> tuple[float, float]:
        """The norms as gradients that slopes of size 1 (in the metric of the weights) have through the moved fills and their errors."""
        return self.sum_fills(self.family.base.metric)

    def sum_fills(self, metric: ColumnMetric) -> tuple[float, float]:
        """:attr:`fill_sums` in any metric."""
        columns = self.refits.filled_columns
        if not columns.size:
            return 0.0, 0.0
        assert self.refits.fills is not None
        spread = np.sqrt(self.problem.weights @ self.refits.mask * self.gradients.largest_factor) * (1.0 + FEW)
        found = []
        for sizes in (np.abs(self.refits.fills[:, columns]).max(axis=0), self.fill_errors):
            slack = np.zeros(metric.size)
            slack[columns] = sizes * spread * (1.0 + gamma(self.problem.n_rows + 8))
            found.append(metric.error_norm(slack))
        return found[0] + found[1], found[1]

    @cached_property
    def base_gradient(self) -> Array:
        """The gradient at the base."""
        problem, values, point = self.problem, self.family.values, self.family.point
        return assemble_gradient(problem.totals, point, self.loss_gradient(problem.weights * values.slopes))

    @cached_property
    def base_size(self) -> float:
        """An upper bound of the sum of the norms of the rows' shares in that gradient, and of the penalty's."""
        problem, values, norms = self.problem, self.family.values, self.family.largest_norm
        shares = float(problem.weights @ np.abs(values.slopes)) * norms
        return shares + float(np.sqrt(problem.quadratic @ np.square(self.family.point.coef)))

    def loss_gradient(self, forces: Array) -> Array:
        """The gradient of forces on the rows."""
        found = self.problem.matrix.T @ forces
        return np.append(found, forces.sum()) if self.problem.fit_intercept else found

    @cached_property
    def class_gradients(self) -> Array:
        """The gradients of the losses of each group of rows at the base, one column each."""
        assert self.refits.class_factors is not None
        forces, groups = self.problem.weights * self.family.values.slopes, self.refits.list_groups(self.problem)
        each = range(self.refits.class_factors.shape[1])
        return np.column_stack([self.loss_gradient(np.where(groups == group, forces, 0.0)) for group in each])

    def first_gradients(self, rows: Rows) -> Array:
        """What the refits add to the gradients at the base, to first order, a column per removal."""
        refits, problem = self.refits, self.problem
        base = self.family.point.coef
        found = np.zeros((self.family.base.metric.size, rows.size))
        if refits.strengths is not None:
            found[: base.size] += (problem.quadratic * base)[:, None] * (refits.strengths[rows].T - 1.0)
        if refits.class_factors is not None:
            found += self.class_gradients @ (refits.class_factors[rows].T - 1.0)
        columns = refits.filled_columns
        if columns.size:
            assert refits.fills is not None
            fills, known = refits.fills[np.ix_(rows, columns)].T, self.fill_products
            found += known.across @ (fills * base[columns][:, None])
            found[columns] += fills * known.forces[:, None]
        return found


@final
@dataclass(frozen=True, eq=False)
class FillProducts:
    """With ``m`` the mask of the filled values, ``d`` the weighted curvatures and ``g`` the weighted slopes at the base.

    ``across``: ``X~^T D m``; ``inner``: ``m^T D m``; ``forces``: ``m^T g``; ``sizes``: at least ``m^T |g|``; ``errors``: how far ``m^T g`` may be
    off for the errors of the slopes; ``lengths``: at least ``sqrt(sum_k d_k x_kj^2)`` of every column; ``length_norm``: the norm of these as
    a gradient; ``most``: filled values of a row.
    """

    across: Array
    inner: Array
    forces: Array
    sizes: Array
    errors: Array
    lengths: Array
    length_norm: float
    most: float


class Linear(NamedTuple):
    """Gradients at candidates with the slopes of the losses to first order, a column or an entry per removal."""

    # The gradients in the coordinates of the metric, and at least the norms of their errors
    left: Array
    slack: Array
    own: Array  # the left-out rows' scores
    # The steps from the base in these coordinates, at least their norms, and at least the norms of their errors
    image: Array
    length: Array
    off: Array
    moved: Array  # at least ``(sum_k s_k h_k t_k^2)^(1/2)``, ``t`` the moves of the scores
    # An upper bound of what moved fills do to one score, and their norms
    farthest: Array
    thetas: Array
    exponents: Array  # curvatures are within ``e^exponent`` of those at the base
    # An upper bound of the relative change of a weight, and the largest factor of one
    changed: Array
    largest_factor: float


@final
@dataclass(frozen=True, eq=False)
class TallCandidates:
    """Models without one row each, one column each, under their own preprocessing."""

    owner: TallRefits
    rows: Rows
    removals: Removals
    shares: Array
    fill_sizes: Array
    block: Array
    images: Array
    models: Array
    descent: Descent = field(default_factory=lambda: Descent(HOST))
    n_steps: int = 0

    cost: ClassVar[float] = 0.0

    @property
    def contraction(self) -> float:
        # Steps over kinks contract unevenly, and only trainings follow.
        return np.inf if self.owner.problem.loss.piecewise else SLOW

    @classmethod
    def first(
        cls, owner: TallRefits, rows: Rows, removals: Removals, shares: Array, fill_sizes: Array
    ) -> "TallCandidates":
        """The candidates one Newton step from the base."""
        base, problem = owner.family.base, owner.problem
        block = problem.matrix[rows].dense().T
        if problem.fit_intercept:
            block = np.vstack([block, np.ones(rows.size)])
        images = base.metric.solve(block)
        start = base.point.pack(problem.fit_intercept) + base.step
        models = start[:, None] + images * removals.multipliers
        new = cls(owner, rows, removals, shares, fill_sizes, block, images, models)
        return replace(new, models=models - new.steps(owner.first_gradients(rows)))

    def steps(self, gradients: Array) -> Array:
        """The metric without each row, inverted, times gradients: by the Sherman-Morrison formula."""
        removals = self.removals
        solved = self.owner.family.base.metric.solve(gradients)
        with np.errstate(all="ignore"):
            share = removals.weights * removals.curvatures / (1.0 - removals.leverages)
        return solved + self.images * (share * np.einsum("ij,ij->j", self.block, solved))

    @cached_property
    def fills(self) -> Array:
        """The moves of the fills, a column per removal."""
        refits = self.owner.refits
        return (
            np.zeros((0, self.rows.size))
            if refits.fills is None
            else refits.fills[np.ix_(self.rows, refits.filled_columns)].T
        )

    def problem_scores(self, models: Array) -> Array:
        """Scores of all rows under models of the candidates' problems."""
        problem, refits = self.owner.problem, self.owner.refits
        scores: Array = compute_model_scores(problem.matrix, models, problem.fit_intercept)
        if refits.filled_columns.size:
            scores += refits.mask @ (self.fills * models[refits.filled_columns])
        return scores

    def certify(self) -> Certified:
        """Bounds of the left-out rows' scores."""
        return self._certificate[0]

    @cached_property
    def _certificate(self) -> tuple[Certified, Array]:
        """What is proven, and the gradients."""
        owner, problem, refits, rows, base = (
            self.owner,
            self.owner.problem,
            self.owner.refits,
            self.rows,
            self.owner.family.base,
        )
        columns, own = refits.filled_columns, (rows, np.arange(rows.size))
        scores = self.problem_scores(self.models)
        centers, (first, second) = scores[own], self._score_errors()
        pieces = self._piece_depths(scores, (first, second)) if problem.loss.piecewise else None
        curved = np.zeros(rows.size)
        if np.isfinite(problem.loss.smoothness):
            slopes = problem.loss.gradient(problem.y[:, None], scores)
        else:
            slopes, curvatures = problem.loss.expand_slope(problem.y[:, None], scores)
            curvatures[own] = 0.0
            curved = weighted_norm(problem.weights, curvatures)
        slopes[own] = 0.0
        scores -= owner.family.values.scores[:, None]
        scores[own] = 0.0
        if not problem.weights.all():
            scores[problem.weights == 0.0] = 0.0
        moved = np.abs(scores).max(axis=0)
        weighted = problem.weights[:, None] * slopes
        sizes = weighted_norm(problem.weights, slopes, weighted)
        if refits.class_factors is not None:
            factors = refits.weight_factors(problem, rows)
            weighted *= factors
            sizes = sizes * np.sqrt(factors.max(axis=0)) * (1.0 + FEW)
        gradients = problem.matrix.T @ weighted
        if columns.size:
            gradients[columns] += self.fills * (owner.refits.mask.T @ weighted)
        if problem.fit_intercept:
            gradients = np.vstack([gradients, weighted.sum(axis=0)])
        penalty = np.zeros(gradients.shape)
        penalty[: problem.n_columns] = problem.quadratic[:, None] * self.models[: problem.n_columns]
        if refits.strengths is not None:
            penalty[: problem.n_columns] *= refits.strengths[rows].T
        gradients += penalty
        moved = moved + problem.totals.largest_norm * first + second + owner.family.largest_error
        exponents = base.constant * moved * (1.0 + FEW)
        errors = first, second
        nu = self._norms(owner.gradients, gradients, penalty, sizes, curved, errors, exponents)
        if pieces is not None:
            distances = (self.removals.norms + self.fill_sizes) * self._piece_radii(pieces, nu)
            ball = owner.penalty_gradients
            if ball is not None:
                norms = self._norms(ball, gradients, penalty, sizes, curved, errors, exponents)
                distances = np.fmin(distances, self._ball_distances(ball, norms))
            bounds = self._around(centers, distances, errors)
        else:
            nu = nu / np.sqrt(self.shares)
            bounds = self._bounds(centers, nu, exponents, errors)
        return Certified(*bounds, nu, np.zeros(nu.size)), gradients

    def _bounds(self, centers: Array, nu: Array, exponents: Array, errors: Errors) -> Bounds:
        """Bounds from the gradients' norms in the metrics without each row."""
        family, root = self.owner.family, np.sqrt(self.shares)
        radius = local_radius(family.base.constant, (family.largest_norm + self.fill_sizes) / root, nu, exponents)
        return self._around(centers, (self.removals.norms + self.fill_sizes) * (radius / root), errors)

    def _piece_depths(self, scores: Array, errors: Errors) -> Array:
        """Lower bounds of the depths of all rows in their curved pieces under each model, as multiples of their norms in the metric; not of the row that is left out."""
        problem, family = self.owner.problem, self.owner.family
        lengths = np.sqrt(problem.squared_row_norms) * (1.0 + gamma(problem.n_columns + 4)) + TINY
        depths = measure_piece_depths(
            problem.loss, problem.y[:, None], scores, lengths[:, None] * errors[0] + errors[1]
        )
        depths[self.rows, np.arange(self.rows.size)] = np.inf
        norms = family.removals(np.arange(problem.n_rows)).norms[:, None] + self.fill_sizes
        with np.errstate(all="ignore"):
            return np.where(norms > 0.0, depths / norms * (1.0 - FEW), np.inf)

    def _piece_radii(self, depths: Array, nu: Array) -> Array:
        """Upper bounds of the distances in the metric from the candidates to the optima, by the rows that stay in their curved pieces."""
        owner, family = self.owner, self.owner.family
        norms = family.removals(np.arange(owner.problem.n_rows)).norms[:, None] + self.fill_sizes
        # What a row carries of the metric, with its fills moved and its weight changed.
        shares = (owner.problem.weights * family.values.curvatures * (1.0 + family.eta))[:, None] * np.square(norms)
        shares *= owner.gradients.largest_factor * (1.0 + gamma(owner.problem.n_rows + 16))

        def lost(radii: Array) -> Array:
            return np.einsum("ij,ij->j", shares, depths <= radii)

        return piece_radius(nu, self.shares, lost)

    def _ball_distances(self, ball: Gradients, norms: Array) -> Array:
        """Upper bounds of the distances of the left-out rows' scores from those of the optima, from the gradients' norms in the metric of the penalty.

        Without row ``i`` the objective is strongly convex in the metric of its strengths, which are at least ``min_j rho_ij`` times those of all rows.
        """
        owner, metric = self.owner, ball.metric
        columns = owner.refits.filled_columns
        with np.errstate(all="ignore"):
            shares = owner.refits.smallest[self.rows] * (1.0 - metric.eta) * (1.0 - FEW)
            fills = owner.fill_norms(self.rows, metric.axis_norms()[columns]).sum(axis=1)
            own = metric.norms(owner.problem.matrix[self.rows]) + fills * (1.0 + gamma(columns.size + 4))
            return np.where(shares > 0.0, own * norms / shares * (1.0 + FEW), np.inf)

    def _around(self, centers: Array, distances: Array, errors: Errors) -> Bounds:
        """Intervals around the scores of the left-out rows, given at least the distances of the exact ones from those at the optima."""
        problem = self.owner.problem
        lengths = np.sqrt(problem.squared_row_norms[self.rows]) * (1.0 + gamma(problem.n_columns + 4)) + TINY
        half = distances * (1.0 + FEW) + lengths * errors[0] + errors[1]
        half = half + FEW * np.abs(centers)
        usable = np.isfinite(half) & np.isfinite(centers)
        return widen(np.where(usable, centers, 0.0), np.where(usable, half, np.inf))

    def bound_quickly(self) -> Bounds:
        """Bounds of the left-out rows' scores from the Newton equation, without a product of the rows with every model.

        With ``delta`` the step from the base, the gradient is what the step leaves of the Newton equation, computed here, and the
        remainder of the losses, which the closed form of :class:`~glru.updates.local_rows.RowRemovals` bounds as well.
        """
        known = self._linear
        with np.errstate(all="ignore"):
            left = np.sqrt(np.einsum("ij,ij->j", known.left, known.left)) * (1.0 + gamma(len(known.left) + 8))
            remainder = newton_remainders(known.exponents) * known.moved
            return self._bound_closed(left, remainder)

    def bound_to_second_order(self) -> Bounds:
        """Bounds after one more step, from the third derivatives of the losses (:mod:`glru.updates.second_order`)."""
        metric, removals = self.owner.family.base.metric, self.removals
        with np.errstate(all="ignore"):
            gradients = self._linear.left + self._half_third[0]
            places = metric.inverse.T @ self.block
            back = removals.weights * removals.curvatures / (1.0 - removals.leverages)
            steps = gradients + places * (back * np.einsum("ij,ij->j", places, gradients))
            steps = np.where(np.isfinite(steps).all(axis=0), metric.inverse @ steps, 0.0)
            return replace(self, models=self.models - steps)._second_order_here()

    def _second_order_here(self) -> Bounds:
        """Bounds from the second-order expansion of the losses at the candidates."""
        known, problem = self._linear, self.owner.problem
        half, errors, fourths = self._half_third
        gradients = known.left + half
        left = np.sqrt(np.einsum("ij,ij->j", gradients, gradients)) * (1.0 + gamma(len(half) + 8)) + errors
        farthest = known.exponents / self.owner.family.base.constant
        remainder = float(problem.loss.fourth_constant or 0.0) / 6.0 * np.exp(known.exponents) * farthest * fourths
        return self._bound_closed(left, remainder * (1.0 + FEW))

    def _bound_closed(self, left: Array, remainder: Array) -> Bounds:
        """Bounds from the norms of what is left of an expanded gradient, and of the remainder in units of the weighted curvatures."""
        known, shares = self._linear, self.removals.metric_shares
        remainder = known.largest_factor * remainder * (1.0 + known.thetas / np.sqrt(shares))
        nu = remainder / np.sqrt(self.shares / shares) + (left + known.slack) / np.sqrt(self.shares)
        return self._bounds(known.own, nu * (1.0 + FEW), known.exponents, self._score_errors())

    @cached_property
    def _linear(self) -> "Linear":
        """The gradients at the candidates, the slopes of the losses taken to first order from the base."""
        owner, family, refits, removals = self.owner, self.owner.family, self.owner.refits, self.removals
        problem, base, metric = owner.problem, family.base, family.base.metric
        filled, block = refits.filled_columns, self.block
        if filled.size:
            block = block.copy()
            block[filled] += self.fills * refits.mask[self.rows].T
        n_columns, eta, own = problem.n_columns, family.eta, np.einsum("ij,ij->j", block, self.models)
        errors = self._score_errors()
        steps = self.models - base.point.pack(problem.fit_intercept)[:, None]
        moves = own - removals.scores
        weights = removals.weights
        if refits.class_factors is not None:
            weights = weights * refits.class_factors[self.rows, refits.list_groups(problem)[self.rows]]
        forces = weights * (removals.slopes + removals.curvatures * moves)
        gradients = owner.base_gradient[:, None] - block * forces
        changed, unsure, most = np.zeros(self.rows.size), np.zeros(self.rows.size), 1.0
        if refits.class_factors is not None:
            factors = refits.class_factors[self.rows]
            gradients += owner.class_gradients @ (factors.T - 1.0)
            unsure = refits.error * factors.max(axis=1)
            changed = np.abs(factors - 1.0).max(axis=1) + unsure
            most = max(1.0, float(factors.max()) * (1.0 + refits.error + FEW))
        coefs, held = self.models[:n_columns], np.ones((1, self.rows.size))
        if refits.strengths is not None:
            factors = refits.strengths[self.rows].T
            gradients[:n_columns] += problem.quadratic[:, None] * (factors - 1.0) * coefs
            held = np.maximum(factors, 1.0)
        image = metric.factor @ steps
        length = np.sqrt(np.einsum("ij,ij->j", image, image))
        # Rounding of the step and of its image, entry by entry.
        unit = gamma(metric.size + 8)
        off = np.abs(metric.factor) @ (unit * np.abs(steps) + FEW * np.abs(self.models))
        summed = 1.0 + gamma(metric.size + 8)
        off = np.sqrt(np.einsum("ij,ij->j", off, off)) * summed
        length = (length + off) * summed
        delta = length * (np.sqrt(1.0 + eta) * (1.0 + FEW))
        moved, farthest, thetas = delta, np.zeros(self.rows.size), np.zeros(self.rows.size)
        if filled.size:
            gradients += self._filled_gradients(steps)
            length_of_fills, farthest, thetas = self._filled_moves()
            moved = moved + length_of_fills
        left = metric.inverse.T @ gradients
        wrong = np.sqrt(np.einsum("ij,ij->j", left, left))
        left += image
        # Errors of the base's gradient (with other weights, of its parts), of the row's own slope, and of the strengths.
        score_errors = removals.score_errors + self._own_errors(errors)
        slack = removals.curvatures * score_errors + removals.slope_errors * (1.0 + base.constant * np.abs(moves))
        slack = weights * (slack + FEW * (np.abs(removals.slopes) + removals.curvatures * np.abs(moves)))
        slack = (slack + (FEW + refits.error) * np.abs(forces)) * (removals.norms + self.fill_sizes)
        sizes = np.sqrt(problem.quadratic @ np.square(held * coefs)) * np.sqrt(1.0 + eta) * (1.0 + gamma(n_columns + 8))
        slack = slack + 2.0 * metric.solve_error * wrong + off + (FEW + refits.error) * sizes
        slack = slack + (FEW + unsure) * owner.base_size * (1.0 + FEW)
        slack = slack + (1.0 + changed) * base.error_norm + (eta + changed) * delta + changed * FEW * owner.base_size
        with np.errstate(all="ignore"):
            exponents = base.constant * (family.largest_norm * length + farthest) * (1.0 + FEW)
            if filled.size:
                slack = slack + most * self._fill_slack(steps, moved, thetas, exponents, changed)
        return Linear(left, slack, own, image, length, off, moved, farthest, thetas, exponents, changed, most)

    @property
    def _half_third(self) -> tuple[Array, Array, Array]:
        """Half the third derivatives along the steps, as gradients in the coordinates of the metric; their errors; the roots of the fourth moments.

        With ``t`` the moves of the other rows' scores, the last is at least ``(sum_k s_k h_k t_k^4)^(1/2)``.
        """
        owner, family, known, removals = self.owner, self.owner.family, self._linear, self.removals
        metric, refits, constant = family.base.metric, owner.refits, family.base.constant
        columns, moments, error = refits.filled_columns, family.all_moments, family.base.metric.solve_error
        directions = known.image
        if columns.size:
            directions = np.vstack([directions, self.fills * self.models[columns]])
        found = owner.third.along(directions.T).T
        moves = known.own - removals.scores
        half = 0.5 * owner.third.weighted[self.rows] * np.square(moves)
        found[: metric.size] -= (metric.inverse.T @ self.block) * half
        through = found[: metric.size]
        if columns.size:
            own = refits.mask[self.rows].T * half
            through = through + metric.inverse[columns].T @ (self.fills * (found[metric.size :] - own))
        root = float(np.sqrt(moments.total))
        fills = np.sqrt(known.farthest * np.maximum(known.moved - known.length, 0.0))
        spread = known.length * (moments.sizes(directions[: metric.size].T, known.length) + root * known.off)
        fourths = np.square(np.sqrt(spread) + fills) * (1.0 + FEW)
        crude = np.square(known.length * np.sqrt(root) + fills) * (1.0 + FEW)
        outer = 1.0 + known.thetas
        # Third derivatives at computed scores, and moves by coordinates that err by shares of their norms.
        share = 2.0 * float(owner.problem.loss.fourth_constant or 0.0) * family.largest_error + FEW + 8.0 * error
        wrong = (
            share * crude
            + 4.0 * known.off * root * (known.length + known.off)
            + 4.0 * np.sqrt(crude * root) * known.off
        )
        wrong = (wrong + 0.5 * constant * known.changed * crude) * outer
        # Rounding of the sums over the rows, of which each move is at most kappa |d| and the farthest move of a fill.
        unit = gamma(owner.problem.n_rows + 2 * directions.shape[0] ** 2 + 32) * constant
        cubes = np.square(known.length) * family.cubes + np.square(known.farthest) * owner.curved_sums[1]
        squares = np.square(known.length) * owner.curved_sums[2] + np.square(known.farthest) * owner.curved_sums[0]
        wrong = wrong + 2.0 * unit * (cubes + self.fill_sizes * squares)
        sizes, own_errors = np.abs(moves), removals.score_errors + self._own_errors(self._score_errors())
        mine = constant * removals.weights * removals.curvatures * (removals.norms + self.fill_sizes)
        wrong = wrong + mine * (sizes + own_errors) * (own_errors + (8.0 * error + FEW + share) * sizes)
        # The coordinates of the fills are products with the inverse factor.
        return through, (wrong + 2.0 * error * self.fill_sizes * squares * constant) * (1.0 + FEW), fourths

    def _filled_gradients(self, steps: Array) -> Array:
        """What moved fills add to the gradients at the candidates, the losses taken to second order."""
        known, columns = self.owner.fill_products, self.owner.refits.filled_columns
        pulled = self.fills * self.models[columns]
        found = known.across @ pulled
        found[columns] += self.fills * (known.forces[:, None] + known.across.T @ steps + known.inner @ pulled)
        return found

    def _filled_moves(self) -> tuple[Array, Array, Array]:
        """Upper bounds of the norms of what moved fills do to the scores of all rows, what they do to one score, and their own norms."""
        owner, columns = self.owner, self.owner.refits.filled_columns
        moves = (np.abs(self.fills) + owner.fill_errors[:, None]) * np.abs(self.models[columns]) * (1.0 + FEW)
        unit = 1.0 + gamma(columns.size + 8)
        farthest = np.minimum(moves.sum(axis=0), owner.fill_products.most * moves.max(axis=0)) * unit
        return owner.filled_spread @ moves * unit, farthest, owner.fill_norms(self.rows) @ owner.filled_spread * unit

    def _fill_slack(self, steps: Array, moved: Array, thetas: Array, exponents: Array, changed: Array) -> Array:
        """Upper bounds of the norms of the errors of :meth:`_filled_gradients`, and of what fills within their errors change.

        ``changed``: relative change of the weights.
        """
        owner, known, columns = self.owner, self.owner.fill_products, self.owner.refits.filled_columns
        norms, spread, sizes = owner.fill_norms(self.rows), owner.filled_spread, np.abs(self.models[columns])
        lengths = spread @ (np.abs(self.fills) * sizes)
        unit = gamma(owner.problem.n_rows + owner.problem.n_columns + columns.size + 16)
        rounding = (
            lengths * known.length_norm + norms @ known.sizes + thetas * (known.lengths @ np.abs(steps) + lengths)
        )
        wrong = (owner.family.eta + changed) * (lengths * (1.0 + thetas) + thetas * moved)
        wrong = wrong + changed * (norms @ known.sizes) + norms @ known.errors
        # Fills that are off move the scores and the rows; the curvatures on the way have grown by the exponential.
        growth, axes = np.exp(exponents), owner.fill_errors * owner.fill_axes
        off = growth * (spread @ (owner.fill_errors[:, None] * sizes)) * (1.0 + thetas)
        off = off + axes @ (known.sizes + known.errors) + growth * (axes @ spread) * moved
        return (unit * rounding + wrong + off) * (1.0 + gamma(columns.size + 16))

    def _own_errors(self, errors: Errors) -> Array:
        lengths = np.sqrt(self.owner.problem.squared_row_norms[self.rows])
        return (lengths * (1.0 + gamma(self.owner.problem.n_columns + 4)) + TINY) * errors[0] + errors[1]

    def _score_errors(self) -> Errors:
        """The error of a row's score under each model is at most ``|x| first + second``."""
        first, second = self.owner.gradients.score_errors(self.models)
        columns = self.owner.refits.filled_columns
        if columns.size:
            sizes = np.abs(self.models[columns])
            unit = gamma(columns.size + self.models.shape[0] + 8)
            second = second + (unit * np.einsum("ij,ij->j", np.abs(self.fills), sizes) + self.owner.fill_errors @ sizes)
        return first, second * (1.0 + FEW)

    def _norms(
        self,
        known: Gradients,
        gradients: Array,
        penalty: Array,
        sizes: Array,
        curved: Array,
        errors: Errors,
        exponents: Array,
    ) -> Array:
        """Upper bounds of the norms of the gradients in an inverse metric, whatever their rounding and that of the refits."""
        owner, problem = self.owner, self.owner.problem
        coefs, usual = self.models[: problem.n_columns], known is owner.gradients
        fill_sums = owner.fill_sums if usual else owner.sum_fills(known.metric)
        rounding = known.rounding(penalty, sizes, curved, errors, fill_sums[0])
        if problem.loss.self_concordance is not None:
            # Slopes at scores that are off are off by curvatures on the way, and X^T D X is at most the metric; with moved fills, four times that.
            lengths, spread = owner.curved_lengths
            slopes = 2.0 * np.exp(exponents) * (lengths * errors[0] + spread * errors[1])
            nothing = np.zeros(sizes.size), np.zeros(sizes.size)
            rounding = np.fmin(
                rounding, known.rounding(penalty, sizes, curved, nothing, fill_sums[0]) + slopes * (1.0 + FEW)
            )
        nu = (known.metric.gradient_norms(gradients) + rounding) * (1.0 + FEW) + TINY
        slack = (
            sizes
            * (1.0 + gamma(problem.n_rows + 16))
            * (fill_sums[1] + owner.factor_error * (known.slope_norm + fill_sums[0]))
        )
        # Either metric is at least the penalty's: |Lam v| <= |Lam^(1/2) v| in its inverse.
        factors = (
            np.ones(coefs.shape)
            if owner.refits.strengths is None
            else np.maximum(owner.refits.strengths[self.rows].T, 1.0)
        )
        eta = owner.family.eta if usual else known.metric.eta
        held = np.sqrt(problem.quadratic @ np.square(factors * coefs)) * np.sqrt(1.0 + eta)
        held = held * (1.0 + gamma(problem.n_columns + 8))
        return (nu + slack + owner.refits.error * held) * (1.0 + FEW)

    def newton(self, models: Array, gradients: Array) -> Array:
        """Newton steps with the Hessians of the rows' own problems, to where their objectives are lowest."""
        problem, refits, columns = self.owner.problem, self.owner.refits, self.owner.refits.filled_columns
        scores, y = self.problem_scores(models), problem.y[:, None]
        weights = np.repeat(problem.weights[:, None], self.rows.size, axis=1)
        weights[self.rows, np.arange(self.rows.size)] = 0.0
        if refits.class_factors is not None:
            weights *= refits.weight_factors(problem, self.rows)
        curvatures = weights * problem.loss.curvature(y, scores)
        strengths = np.zeros(models.shape)
        strengths[: problem.n_columns] = problem.quadratic[:, None]
        if refits.strengths is not None:
            strengths[: problem.n_columns] *= refits.strengths[self.rows].T
        places, found = np.arange(problem.n_columns), np.empty(models.shape)
        for k in range(self.rows.size):
            hessian = problem.hessian(curvatures[:, k])
            hessian[places, places] += strengths[places, k] - problem.quadratic
            if columns.size:
                hessian = np.triu(hessian) + np.triu(hessian, 1).T
                bent = curvatures[:, k, None] * refits.mask
                across = problem.matrix.T @ bent
                if problem.fit_intercept:
                    across = np.vstack([across, bent.sum(axis=0)])
                across *= self.fills[:, k]
                hessian[:, columns] += across
                hessian[columns] += across.T
                hessian[np.ix_(columns, columns)] += self.fills[:, k, None] * (refits.mask.T @ bent) * self.fills[:, k]
            found[:, k] = -solve_shifted(hessian, gradients[:, k])
        start, growth = (np.einsum("ij,ij->j", strengths * part, found) for part in (models, found))
        with np.errstate(all="ignore"):
            moves = self.problem_scores(found)
            full = np.zeros(self.rows.size, dtype=np.bool_)
            lengths = find_lengths(problem.loss, y, scores, moves, weights, start, growth, full, SHARE_OF_SLOPE)
            return found * lengths

    def step(self, members: Mask) -> "TallCandidates":
        """Some of the candidates after one more step, with the old Hessian or, over kinks, with their own."""
        mine, nothing = self.take(np.flatnonzero(members)), np.zeros(self.rows.size)
        own = mine.newton if self.owner.problem.loss.piecewise and self.n_steps >= CHORD_STEPS else None
        models, descent = self.descent.next(members, self.models, self._certificate[1], nothing, mine.steps, own)
        return replace(mine, models=models, descent=descent, n_steps=self.n_steps + 1)

    def take(self, places: Rows) -> "TallCandidates":
        """Some of the candidates."""
        return TallCandidates(
            self.owner,
            self.rows[places],
            self.removals.take(places),
            self.shares[places],
            self.fill_sizes[places],
            self.block[:, places],
            self.images[:, places],
            self.models[:, places],
        )


@final
class RefittedSide:
    """What the dimension of the rows knows of the data and of the penalties without each row.

    Models are columns of ``duals`` and ``free``, each without the row of its own in ``rows``; a row may have several.
    """

    def __init__(self, side: RowSide, refits: Refits) -> None:
        self.side, self.problem, self.refits = side, side.problem, refits

    def scores(self, rows: Rows, duals: Array, free: Array) -> Array:
        """The scores of all rows, through the data and the penalty of every model."""
        side, refits, columns = self.side, self.refits, self.refits.filled_columns
        if refits.strengths is None and not columns.size:
            return to_host(side.scores(duals, free))
        scores = side.border @ free
        extra = np.zeros((rows.size, side.inverse.size if columns.size else 0))
        if columns.size:
            moves = self.get_fills(rows)
            extra[:, columns] = moves * (self.mask.T @ duals).T
        # A row of images per removal, as strengths are stored.
        for part, block in self.blocks():
            images = duals.T @ block
            if columns.size:
                images += extra[:, part]
            images *= self.invert_factor(rows, part)
            scores = scores + block @ images.T
            if columns.size:
                extra[:, part] = images
        if columns.size:
            scores += self.mask @ (moves * extra[:, columns]).T
        return scores

    def score_errors(self, rows: Rows, norms: Array, duals: Array, free: Array) -> tuple[Errors, Array]:
        """The error of row ``k``'s score is at most ``norms[k] first + second`` (``norms``: those of the side); that of the left-out row.

        ``norms``: :meth:`norms` of the rows.
        """
        side, own = self.side, (rows, np.arange(rows.size))
        fills, sizes = self.own_fill_norms[rows], np.abs(duals)
        second = side.score_errors(duals, free)[1] + self.problem.score_noise
        # A score is a product of two vectors of the columns' dimension, the norms of which are those of its row and of the model.
        norm_sum = (np.einsum("ij,ij->j", norms, sizes) + fills * sizes.sum(axis=0)) * (1.0 + FEW)
        ratios = norms / side.norms[:, None]
        ratios[own] = 0.0
        first = side.unit * norm_sum * ratios.max(axis=0, initial=0.0)
        second = second + side.unit * norm_sum * fills
        if self.refits.filled_columns.size:
            # Fills that are off move the row, and the model through the other rows.
            off = self.own_fill_errors[rows]
            first = first + off * sizes.sum(axis=0) * ratios.max(axis=0, initial=0.0)
            second = second + off * (norm_sum + fills * sizes.sum(axis=0))
        largest = first * (1.0 + FEW), second * (1.0 + FEW)
        # The left-out row itself may be far longer there than in the metric of all rows.
        ratio = norms[own] / side.norms[rows]
        with np.errstate(all="ignore"):
            mine = np.where(ratios.max(axis=0) > 0.0, first * ratio / ratios.max(axis=0), np.inf)
        return largest, side.norms[rows] * mine + second

    def strength_errors(self, rows: Rows, duals: Array, norm_sum: Array) -> Array:
        """Upper bounds of the norms of gradients of the penalty, in the metric of each row's own, for factors that are off.

        ``norm_sum``: the norms of the rows, fills moved, summed over the sizes of the duals, or more.
        """
        side, refits = self.side, self.refits
        # Factors that are off: the model's norm in the metric of the penalty times their relative error.
        held = np.einsum("ij,ij->j", duals, side.gram @ duals) + 2.0 * side.unit * np.square(norm_sum)
        held = np.sqrt(np.maximum(held, 0.0)) + self.fill_norms[rows] * np.abs(duals).sum(axis=0)
        return np.asarray(refits.error * held / refits.smallest[rows] ** 1.5 * (1.0 + FEW))

    @cached_property
    def fill_norms(self) -> Array:
        """Upper bounds of the norms of the moved fills in the metric of the penalty, one entry per removal."""
        return np.linalg.norm(self.scaled_fills, axis=1) * (1.0 + gamma(self.scaled_fills.shape[1] + 8))

    @cached_property
    def scaled_fills(self) -> Array:
        """Upper bounds of the moves of the fills, in the metric of the penalty; infinite in an unpenalised column."""
        refits, columns = self.refits, self.refits.filled_columns
        if not columns.size:
            return np.zeros((self.problem.n_rows, 0))
        assert refits.fills is not None
        inverse = self.side.inverse[columns]
        errors = refits.error * np.abs(self.problem.matrix.dense(columns)).max(axis=0, initial=0.0)
        moves = np.abs(refits.fills[:, columns]) + errors
        return np.where((inverse == 0.0) & (moves > 0.0), np.inf, moves * np.sqrt(inverse)) * (1.0 + FEW)

    @cached_property
    def mask(self) -> Any:
        """Which values of the columns with fills are filled, as numbers; sparse where these are few."""
        mask = self.refits.mask
        return sp.csr_array(mask) if mask.sum() < SPARSE_MASK * mask.size else mask

    def get_fills(self, rows: Rows) -> Array:
        """The moves of the fills without some rows, one row each."""
        return self._fills if rows.size == len(self._fills) else self._fills[rows]

    @cached_property
    def _fills(self) -> Array:
        fills, columns = self.refits.fills, self.refits.filled_columns
        assert fills is not None
        return fills if columns.size == fills.shape[1] else fills[:, columns]

    @cached_property
    def own_growth(self) -> Array:
        """An upper bound of what norms in each removal's own metric of the penalty grow by for the errors of its strengths."""
        refits = self.refits
        if refits.strengths is None or not refits.error:
            return np.full(self.problem.n_rows, 1.0 + FEW)
        off = refits.error * np.maximum(1.0, refits.strengths.max(axis=1))
        with np.errstate(all="ignore"):
            return np.where(refits.smallest > 0.0, np.sqrt(1.0 + off / refits.smallest), np.inf) * (1.0 + FEW)

    def _own_norms(self, scaled: Array) -> Array:
        """Upper bounds of the norms of moves of the fills in each removal's own metric; ``scaled``: in that of the penalty, one row each or one for all."""
        columns, strengths = self.refits.filled_columns, self.refits.strengths
        squares = np.square(scaled) / (1.0 if strengths is None else strengths[:, columns])
        norms = np.sqrt(squares.sum(axis=1)) * (1.0 + gamma(columns.size + 8))
        return np.broadcast_to(norms, self.problem.n_rows) * self.own_growth

    @cached_property
    def own_fill_norms(self) -> Array:
        """Upper bounds of the norms of the moved fills in each removal's own metric of the penalty."""
        return self._own_norms(self.scaled_fills)

    @cached_property
    def own_fill_errors(self) -> Array:
        """Upper bounds of the norms of the errors of the fills in each removal's own metric of the penalty."""
        columns = self.refits.filled_columns
        errors = np.abs(self.problem.matrix.dense(columns)).max(axis=0, initial=0.0)
        return self._own_norms(self.refits.error * errors[None, :] * np.sqrt(self.side.inverse[columns]))

    @cached_property
    def inverse(self) -> Array:
        """The inverse of the strengths without each row, one row each; one row where they stay."""
        inverse, strengths = self.side.inverse[None, :], self.refits.strengths
        return inverse if strengths is None else inverse / strengths

    def invert_factor(self, rows: Rows, columns: slice) -> Array:
        """The inverse of some columns' strengths without some rows, one row each; one row where they stay."""
        found = self.inverse[:, columns]
        return found if len(found) == 1 or np.array_equal(rows, np.arange(len(found))) else found[rows]

    def blocks(self) -> Iterable[tuple[slice, Array]]:
        """The rows about their centre in chunks of columns, kept where they are small."""
        return self._kept_blocks if self.problem.n_rows * self.problem.n_columns <= MAX_KEPT else self._chunks()

    @cached_property
    def _kept_blocks(self) -> list[tuple[slice, Array]]:
        return list(self._chunks())

    def _chunks(self) -> Iterator[tuple[slice, Array]]:
        side = self.side
        center = np.zeros(side.inverse.size) if side.center is None else side.center
        return self.problem.matrix.centre_chunks(center)

    def norms(self, rows: Rows) -> Array:
        """Upper bounds of the norms of all rows in the metric of each removal's own penalty, a column per removal; fills not moved."""
        side, strengths = self.side, self.refits.strengths
        if strengths is None:
            return np.broadcast_to(side.norms[:, None], (side.norms.size, rows.size))
        squares = np.zeros((side.norms.size, rows.size))
        for part, block in self.blocks():
            squares += np.square(block) @ self.invert_factor(rows, part).T
        squares *= 1.0 + FEW
        scale = 1.0 / np.sqrt(self.refits.smallest[rows])
        return np.sqrt(squares * (1.0 + gamma(side.inverse.size + 8))) * (1.0 + FEW) + side.tiny * scale

    @cached_property
    def growth(self) -> Array:
        """An upper bound of the largest squared norm without each row of a gradient whose norm is 1 in the metric of all strengths and weights as they were."""
        with np.errstate(all="ignore"):
            return np.where(self.refits.smallest > 0.0, 1.0 / self.refits.smallest, np.inf)


@final
class WideRefits:
    """The removal of single rows with refitted preprocessing, over the rows of wide data.

    A model is ``w = (rho Lam)^-1 X_i^T b`` on the penalised columns, so that its gradient is ``X_i^T e``, ``e`` the forces of
    :class:`~glru.updates.row_models.RowModels`; only its scores are those of data and a penalty of its own.
    """

    def __init__(self, start: Solution, refits: Refits) -> None:
        self.family, self.refits, self.problem = WideRows(start), refits, start.problem
        self.sides = RefittedSide(self.family.side, refits)

    def bounds(self, rows: Rows, decided: Decided, n_steps: int) -> Bounds:
        """Bounds of the rows' scores under the models trained without them; rows leave as they are decided."""
        lower, upper = unbounded(rows.size)
        shares = self.shares(rows)
        usable = np.zeros(rows.size, dtype=bool)
        usable[self.family.usable(rows)] = True
        places = np.flatnonzero(usable & (shares > MIN_SHARE))
        if places.size:
            duals, free, _, _ = self.family.first(rows[places])
            first = WideCandidates(self, rows[places], shares[places], self.sides.norms(rows[places]), duals, free)
            found = tighten(first, decided, n_steps)
            lower[places], upper[places] = found.lower, found.upper
        return lower, upper

    def shares(self, rows: Rows) -> Array:
        """What share of the metric without each row the Hessians have at least, in the span of the other rows."""
        refits, sides = self.refits, self.sides
        with np.errstate(all="ignore"):
            spread = self.family.metric.curvatures @ self.refits.mask * (1.0 + gamma(self.problem.n_rows + 8))
            thetas = np.sqrt(np.square(sides.scaled_fills[rows]) @ spread) * (1.0 + gamma(spread.size + 16))
            found = np.square(np.maximum(1.0 - thetas, 0.0)) / sides.growth[rows] * (1.0 - FEW)
        usable = (refits.smallest[rows] > 0.0) & (thetas < 1.0) & refits.together[rows]
        return np.where(usable, found, 0.0)


@final
@dataclass(frozen=True, eq=False)
class WideCandidates:
    """Models ``(b, beta)`` without one row each, one column each, under their own preprocessing."""

    owner: WideRefits
    rows: Rows
    shares: Array
    norms: Array
    duals: Array
    free: Array
    last: tuple[Array, Array, Array] | None = None
    """What the last plain step made of duals and free coordinates, and what it took from the duals."""

    contraction: ClassVar[float] = SLOW
    cost: ClassVar[float] = 0.0

    def certify(self) -> Certified:
        """Bounds of the left-out rows' scores."""
        return self._certificate[0]

    @cached_property
    def _certificate(self) -> tuple[Certified, Array]:
        """What is proven, and the forces."""
        owner, family, side, rows = self.owner, self.owner.family, self.owner.family.side, self.rows
        refits, problem, metric = owner.refits, owner.problem, owner.family.metric
        own, known, sides = (rows, np.arange(rows.size)), metric.leverages, owner.sides
        fills = sides.fill_norms[rows]
        scores = sides.scores(rows, self.duals, self.free)
        errors, own_errors = sides.score_errors(rows, self.norms, self.duals, self.free)
        weights, largest = family.weights[:, None], 1.0
        if refits.class_factors is not None:
            factors = refits.weight_factors(problem, rows)
            weights = weights * factors
            largest = max(1.0, float(factors.max()) * (1.0 + FEW + refits.error))
        forces, sizes = family.forces(weights, self.duals, scores, own)
        away = np.abs(scores - family.base[:, None])
        away[own] = 0.0
        exponent = family.exponent(away[family.used].max(axis=0, initial=0.0), errors, family.used)
        free_norms = metric.free_norm * known.growth[rows] if side.n_free else np.zeros(rows.size)
        nu = family.gradient_norms(own, forces) + family.border_gradients(self.duals, free_norms)
        norm_sum, border = family.norm_sums(sizes)
        total = sizes.sum(axis=0)
        norm_sum = (norm_sum + fills * total) * (1.0 + FEW)
        rounding = largest * family.rounding(metric.spread(errors), (norm_sum, border), exponent, free_norms)
        strengths_off = sides.strength_errors(rows, self.duals, norm_sum)
        if refits.class_factors is not None:
            rounding = rounding + refits.error * (norm_sum + border * free_norms) * (1.0 + FEW)
        if refits.filled_columns.size:
            strengths_off = strengths_off + sides.own_fill_errors[rows] * total
            summed = np.abs(refits.mask.T @ forces)
            summed += gamma(problem.n_rows + 8) * (refits.mask.T @ np.abs(forces))
            moved = sides.scaled_fills[rows].T * summed
            nu = nu + np.linalg.norm(moved, axis=0) * (1.0 + gamma(moved.shape[0] + 8))
        root = np.sqrt(self.shares)
        rounding = rounding / root + strengths_off
        nu = (nu / root + rounding) * (1.0 + FEW) + TINY
        largest_norm = (family.largest_norm * known.growth[rows] + fills) / root * (1.0 + FEW)
        radius = local_radius(family.constant, largest_norm, nu, exponent)
        # The left-out row is not in the span of the others: its norm is at most that in the metric of the penalty, and what the intercept adds.
        own_norms = self.norms[own] * sides.own_growth[rows] + side.border_norms[rows] * free_norms / root
        if refits.filled_columns.size:
            own_norms = own_norms + sides.own_fill_norms[rows]
        half = own_norms * radius * (1.0 + FEW) + own_errors
        return Certified(*family.widened(scores[own], half), nu, rounding), forces

    def step(self, members: Mask) -> "WideCandidates":
        """Some of the candidates after one more step with the old Hessian."""
        rows, family = self.rows[members], self.owner.family
        own, forces = (rows, np.arange(rows.size)), self._certificate[1][:, members]
        residuals, change = family.take_next_step(own, forces, self.duals[:, members])
        duals, free = self.duals[:, members] - residuals, self.free[:, members] + change
        last = duals, free, residuals
        if self.last is not None:
            # Anderson's acceleration: the mix of two steps that leaves least of what they took.
            before = [part[:, members] for part in self.last]
            change = residuals - before[2]
            with np.errstate(all="ignore"):
                share = np.einsum("ij,ij->j", residuals, change) / np.einsum("ij,ij->j", change, change)
            share = np.where(np.abs(share) < LARGEST_MIX, share, 0.0)
            duals, free = duals - share * (duals - before[0]), free - share * (free - before[1])
        duals[own] = 0.0
        return WideCandidates(self.owner, rows, self.shares[members], self.norms[:, members], duals, free, last)
