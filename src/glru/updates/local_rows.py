r"""The removal of any single row under the local certificate: a Newton step in closed form, then steps written down in full.

Let :math:`A` be the Hessian at the base model with the new weights :math:`s'` on all rows, :math:`r'` the gradient there,
:math:`Q = X A^{-1} X^\top`, :math:`p = -X A^{-1} r'`. Without row ``i`` a Newton step moves the model by
:math:`\delta = A^{-1}(c_i x_i - r')`, :math:`c_i = s'_i (g_i + h_i p_i) / (1 - \ell_i)`, :math:`\ell_i = s'_i h_i Q_{ii}`, and row ``i``'s score by
:math:`p_i + c_i Q_{ii}`. With :math:`M = A - s'_i h_i x_i x_i^\top \ge (1 - \ell_i) A`, :math:`T \ge \max_k |x_k^\top \delta|` and
:math:`\kappa \ge \max_k \|x_k\|_{M^{-1}}` (times the self-concordance constant),

.. math:: \nu = \tfrac{e^T - 1 - T}{T} \|\delta\|_M \ge \|\nabla P(\hat w)\|_{M^{-1}}, \qquad
          \|w^* - \hat w\|_M \le -\log(1 - \kappa \nu e^T) / \kappa .

That is O(d^2) per row, with no n x n matrix. Without row ``i`` the weights of the others are multiplied by a factor
:math:`\varphi_i`: the gradient at the base is that of a middle factor and :math:`\varphi_i` minus that factor times the gradient of the
losses alone, so that two steps serve all rows; where there is one factor, one does.

Rounding: :math:`\delta` is defined by the computed factor :math:`\tilde A`, with :math:`(1 - \eta) \tilde A \le A \le (1 + \eta) \tilde A`, and by the
computed numbers :math:`c_i` and :math:`r'`. What that leaves of the Newton equation, the error of :math:`r'`, of :math:`c_i` and
:math:`(A - \tilde A) \delta`, is added to :math:`\nu`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, intersect, unbounded, widen
from glru.certificate import score_errors
from glru.linalg import FEW, TINY, UNIT, Array, gamma, to_host
from glru.metric.columns import ColumnMetric, OrthogonalMetric, closest_metric, make_column_metric
from glru.problem import Point, Problem
from glru.regions.local import (
    Kinks,
    bound_row_norm,
    local_radius,
    measure_kink_distances,
    measure_piece_depths,
    piece_radius,
)
from glru.rows import MAX_COLUMNS
from glru.solution import Solution
from glru.sums import (
    NO_ERRORS,
    Expansion,
    Floor,
    RowValues,
    assemble_gradient,
    assemble_hessian,
    expand,
    gradient_errors,
    loss_hessian,
    score_errors_of_rows,
    score_errors_of_totals,
    slope_error_norm,
    sum_closely,
)
from glru.updates.batch import FLOOR_FACTOR, Certified, Decided, tighten
from glru.updates.carried_rows import factor_range, removal_factors, sum_error
from glru.updates.columns.one_step import (
    FOLLOWED_MOVES,
    NormCuts,
    exponential_remainders,
    lost_shares,
    row_norm_cuts,
)
from glru.updates.gradients import (
    Descent,
    Gradients,
    Measured,
    PenaltyBalls,
    compute_model_scores,
    has_balls,
    newton_directions,
)
from glru.updates.moments import SecondMoments, ThirdDerivatives, coordinates

Rows = NDArray[np.intp]

MAX_DRIFT = 0.05
"""The base is found when a Newton step moves no score by more than this (times the self-concordance constant)."""

BASE_STEP_RATIO = 4.0
"""In blocks the base is found when its Newton step is at most this many times as long as a removal's own step."""

SMALL_ETA = 1e-9
"""Up to here a metric is so close to the Hessian that a direct training has found the optimum of a quadratic loss."""

NEGLIGIBLE_MOVE = 1e-9
"""A step that moves no score by more than this (times the self-concordance constant) is not worth a pass."""

MAX_METRICS = 4
"""Hessians that are formed to find the base."""

MAX_ETA = 0.5
"""A metric farther than this from the exact Hessian proves nothing useful."""

PREPARED_ROWS = 1 << 13
"""Number of rows whose removals are prepared at a time."""

FAR_FOLLOWED_MOVES = (6.0, 15.0)
"""Moves of scores up to which curvatures are followed in addition to ``FOLLOWED_MOVES``, for candidates with tiny gradients."""

MAX_EXPONENT = 1.0
"""If curvatures may have changed by more than ``e`` to this power, balls that need no curvatures at the base may be smaller."""

MIN_COMPLEMENT = 1e-6
"""Lower limit of one minus a row's leverage in steps of the model without it, where no bound relies on the steps."""

MAX_LONG_ROWS, OTHER_NORM_RATIO = 64, 0.8
"""The largest number of rows of large norm whose moves are computed one by one, if the norms of the others are below this share of the largest."""

CHORD_STEPS, DIRECTION_ACCURACY, PRODUCTS_PER_DIRECTION = 6, 0.05, 8.0
"""Steps with the Hessian of the base before steps with each model's own; the share of a gradient that the latter may leave, and the products they usually take."""

LOSS_COST, STEP_OVERHEAD = 30.0, 1.5e6
"""Nanoseconds to evaluate a loss with its derivatives, and overhead of one step of a batch."""

ALONE_OVERHEAD, HESSIANS_ALONE = 6e6, 5.0
"""Overhead in nanoseconds of stepping one row's model alone, and the number of Hessians that takes."""

SERIES = 1e-4
"""Up to here ``(e^t - 1 - t) / t`` is replaced by ``t (1/2 + t)``, which is more."""

SERIES_ERROR = 8.0 * UNIT / SERIES
"""Relative error of ``(e^t - 1) - t`` beyond: a few units of ``t`` in a difference of at least ``t^2 / 2``."""


def has_local_rows(problem: Problem, columns_per_row: float = 1.0) -> bool:
    """Whether the theory applies and the Hessian is formed over the columns; of data in memory with so many per row at most, all penalised if that is more than one."""
    per_row = columns_per_row if problem.penalty.strong_convexity > 0.0 else 1.0
    most = min(per_row * problem.n_rows, problem.largest) if problem.in_memory else MAX_COLUMNS
    return problem.loss.self_concordance is not None and problem.penalty.smooth and problem.n_columns <= most


def has_piece_rows(problem: Problem) -> bool:
    """Whether the same steps are proven between the kinks of a piecewise quadratic loss (:mod:`glru.regions.local`)."""
    smooth = problem.loss.piecewise and problem.penalty.smooth
    return (
        smooth
        and problem.in_memory
        and problem.arrays.stable
        and problem.n_columns <= min(problem.n_rows, problem.largest)
    )


def candidate_cost(problem: Problem, n_rows: int) -> float:
    """Nanoseconds, roughly and on one core, of the gradients of candidates for the removal of some rows."""
    entries = (0.1 if problem.matrix.stores_zeros else 1.0) * problem.matrix.n_stored
    return n_rows * (6.0 * problem.n_rows + entries)


def require_local(problem: Problem, function: str) -> None:
    """Refuse rows in blocks that the local certificate does not apply to."""
    if not has_local_rows(problem):
        raise ValueError(
            f"{function} of rows in blocks needs the logistic or squared loss with an L2 penalty and at most "
            f"{MAX_COLUMNS} columns; got {problem!r}. Use a glru.Problem of data in memory."
        )


@final
@dataclass(frozen=True, eq=False)
class Removals:
    """Some rows and the Newton steps of their removals, one entry per row."""

    # What the weights of the other rows are multiplied by, and their own new weights ``s'``.
    factors: Array
    weights: Array
    # Their scores at the base and how far each may be from its exact value.
    scores: Array
    score_errors: Array
    # The loss derivatives there, and how far the slopes may be off for the errors of the scores.
    slopes: Array
    curvatures: Array
    slope_errors: Array
    norms: Array  # at least their norms in the inverse metric
    # What the part of a step that does not depend on the row does to its score, and at least its norm in the metric.
    base_moves: Array
    base_norms: Array
    leverages: Array  # ``l_i``
    # The metric without the row is at least this share of the metric; nothing is proven where it is not above 0.
    metric_shares: Array
    multipliers: Array  # ``c_i``

    def take(self, places: Rows | slice) -> "Removals":
        """Some of them."""
        return Removals(*(getattr(self, field.name)[places] for field in fields(self)))


@final
@dataclass(frozen=True, eq=False)
class RowMoves:
    """What removals do to the other rows: to those of largest norm one by one, to the rest together."""

    # Shape (n_long,): at least their norms in the inverse metric, and their curvatures times the largest of their new weights.
    norms: Array
    curvatures: Array
    other_norm: float  # at least the norm of any other row that counts
    # Shape (n_rows, n_long): inner products of the removed rows and the long ones in the inverse metric.
    products: Array
    own: NDArray[np.bool_]  # shape (n_rows, n_long): where both are the same row
    # Shape (n_rows,): at least the root of ``sum_k s_k h_k kappa_k^2 t_k^2`` over the other rows, ``kappa_k`` their norms and ``t_k`` the moves of their
    # scores under each removal.
    spreads: Array


class Steps(NamedTuple):
    """Newton steps of removals, one entry per row."""

    # What they do to the rows' own scores, and at least how far the scores after them may be off
    shifts: Array
    errors: Array
    # Upper bounds of their norms in the metric, and in that of the exact Hessian
    lengths: Array
    exact_lengths: Array
    residuals: Array  # at least the norms of what they leave of the Newton equation


@final
@dataclass(frozen=True, eq=False)
class RowRemovals:
    """The base that all removals start from, and the closed form of one; small enough to be sent to where the rows are."""

    metric: ColumnMetric  # the computed metric
    eta: float  # the exact Hessian with any of the factors is within ``1 -/+ eta`` times the metric
    constant: float  # the self-concordance constant of the loss
    point: Point  # the base model
    # The least and the largest factor that is covered, and the one between them that the metric and the step are of.
    factors: tuple[float, float]
    middle_factor: float
    error_norm: float  # at least the norm of the gradient's error
    # The Newton step at the base with the middle factor, and at least its norm.
    step: Array
    step_norm: float
    # The Newton step for the gradient of the losses alone, and at least its norm.
    loss_step: Array
    loss_step_norm: float

    def find_own_factors(self, rows: Problem) -> tuple[Array, NDArray[np.bool_]]:
        """The factors of some rows, and whether they are covered; the middle one stands for others."""
        factors = removal_factors(rows)
        covered = (self.factors[0] <= factors) & (factors <= self.factors[1])
        return np.where(covered, factors, self.middle_factor), covered

    def prepare(
        self, rows: Problem, values: RowValues | None = None, errors: Array | None = None, norms: Array | None = None
    ) -> Removals:
        """The removals of some rows; ``values``, ``errors``, ``norms``: their values and score errors at the base, and norms, if known."""
        factors, covered = self.find_own_factors(rows)
        extra = factors - self.middle_factor
        models = [self.step, self.loss_step] if extra.any() else [self.step]
        if values is None:
            models.append(self.point.pack(rows.fit_intercept))
        # One product reads the rows once.
        products = compute_model_scores(rows.matrix, np.column_stack(models), rows.fit_intercept)
        if values is None:
            scores = products[:, -1].copy()
            values = RowValues(scores, *rows.loss.expand_slope(rows.y, scores))
        if errors is None:
            errors = score_errors(rows, self.point.coef, self.point.intercept)
        moves, lengths = products[:, 0].copy(), np.full(rows.n_rows, self.step_norm)
        if extra.any():
            moves += extra * products[:, 1]
            lengths = (lengths + np.abs(extra) * self.loss_step_norm) * (1.0 + FEW)
        weights, norms = factors * rows.weights, self.metric.norms(rows.matrix) if norms is None else norms
        leverages = weights * values.curvatures * norms**2
        shares = np.where(covered, 1.0 - self.eta - leverages * (1.0 + self.eta), 0.0)
        with np.errstate(all="ignore"):
            multipliers = weights * (values.slopes + values.curvatures * moves) / (1.0 - leverages)
        return Removals(
            factors=factors,
            weights=weights,
            scores=values.scores,
            score_errors=errors,
            slopes=values.slopes,
            curvatures=values.curvatures,
            slope_errors=rows.loss.slope_errors(rows.y, values.scores, errors),
            norms=norms,
            base_moves=moves,
            base_norms=lengths,
            leverages=leverages,
            metric_shares=shares,
            multipliers=np.where(np.isfinite(multipliers) & (shares > 0.0), multipliers, 0.0),
        )

    def bounds(self, rows: Problem, largest_norm: float) -> tuple[Array, Array, Array]:
        """Bounds of the rows' scores under the models trained without them, and the rows' norms."""
        removals = self.prepare(rows)
        return *self.closed_form(removals, largest_norm), removals.norms

    def closed_form(self, rows: Removals, largest_norm: float, moves: RowMoves | None = None) -> Bounds:
        """Bounds of the rows' scores under the models trained without them, given at least the largest norm of a row.

        ``moves``: what the removals do to the other rows, where that is known better than by the largest norm.
        """
        steps, nu, exponents = self.remainders(rows, largest_norm, moves)
        return self.bound_by_ellipsoids(rows, largest_norm, rows.scores + steps.shifts, nu, exponents, steps.errors)

    def remainders(
        self, rows: Removals, largest_norm: float, moves: RowMoves | None = None
    ) -> tuple[Steps, Array, Array]:
        """The steps of the closed form, at least the norms of the gradients after them (in the metric without each row), and exponents."""
        steps = self.steps(rows)
        with np.errstate(all="ignore"):
            if self.constant == 0.0:
                # One step is exact but for its rounding.
                return steps, steps.residuals / np.sqrt(rows.metric_shares), np.zeros(())
            largest = largest_norm if moves is None else moves.other_norm
            exponents = self.constant * largest * steps.lengths * (1.0 + FEW)
            nu = newton_remainders(exponents) * steps.exact_lengths
            if moves is not None:
                # With R the function of newton_remainders, R(t) / t grows with t: sum_k s h (t R(t))^2 <= (R(T) / T)^2 sum_k s h t^4.
                quotients = self.constant * exponential_remainders(exponents)
                nu = np.minimum(nu, quotients * steps.lengths * moves.spreads * (1.0 + FEW))
                moved, squares = self._bound_long_moves(rows, moves)
                exponents = np.maximum(exponents, moved)
                nu = np.sqrt(np.square(nu) + squares) * (1.0 + FEW)
            nu = nu + steps.residuals / np.sqrt(rows.metric_shares)
        return steps, nu, exponents

    def steps(self, rows: Removals) -> Steps:
        """The Newton steps of removals, as far as the rows' own scores and norms tell."""
        moves, multipliers, size = rows.base_moves, rows.multipliers, np.abs(rows.multipliers)
        lengths = multipliers * rows.norms
        own_moves = lengths * rows.norms
        shifts = moves + own_moves
        shift_sizes = np.abs(shifts)
        shift_errors = self._shift_errors(rows, size, own_moves)
        parts = rows.base_norms**2 + lengths**2
        length = np.maximum(parts + 2.0 * multipliers * moves, 0.0) + (8.0 * self.metric.solve_error + FEW) * parts
        length = np.sqrt(length) * (1.0 + FEW)
        exact = length * (np.sqrt(1.0 + self.eta) * (1.0 + FEW))
        residuals = self._residuals(rows, size, shifts, shift_sizes, shift_errors, exact)
        return Steps(shifts, shift_errors + rows.score_errors + FEW * shift_sizes, length, exact, residuals)

    def _bound_long_moves(self, rows: Removals, long: RowMoves) -> tuple[Array, Array]:
        """The largest move of a long row's score (times the constant), and their part of the squared norm of the remainder.

        A row's remainder is at most ``h t R(t)``, ``R`` the function of :func:`newton_remainders`, and the norm of the gradient
        that these make at most the root of the sum of ``s h (t R(t))^2``.
        """
        # The images took two triangular solves and a product.
        off = (4.0 * self.metric.solve_error + FEW) * rows.norms[:, None] * long.norms
        moves = (
            np.abs(rows.multipliers)[:, None] * (np.abs(long.products) + off) + rows.base_norms[:, None] * long.norms
        )
        moves = np.where(long.own, 0.0, moves * (1.0 + FEW))
        exponents = self.constant * moves
        parts = np.square(moves * newton_remainders(exponents)) @ (long.curvatures * (1.0 + self.eta))
        return exponents.max(axis=1, initial=0.0), parts * (1.0 + gamma(long.norms.size + 16))

    def _shift_errors(self, rows: Removals, size: Array, own_moves: Array) -> Array:
        """How far the computed moves of the rows' scores may be off; ``size``: ``|c_i|``, ``own_moves``: ``c_i Q_ii``."""
        error = self.metric.solve_error
        # The step took two triangular solves and a product; the squares are those of norms that were rounded up, by a share
        # of themselves and by what covers underflow.
        errors = rows.norms * (2.0 * error * rows.base_norms + (2.0 * self.metric.tiny) * size)
        errors += (5.0 * error + FEW) * np.abs(own_moves) + FEW * np.abs(rows.base_moves)
        return errors

    def _residuals(
        self, rows: Removals, size: Array, shifts: Array, shift_sizes: Array, shift_errors: Array, delta: Array
    ) -> Array:
        """An upper bound of the norm of what the errors of ``r'``, of ``c_i`` and of the metric leave of the Newton equation."""
        # The row's own slope and curvature were taken at a score that is off, too.
        wrong = rows.curvatures * (shift_errors + FEW * shift_sizes) + FEW * np.abs(rows.slopes)
        wrong += rows.slope_errors * (1.0 + (2.0 * self.constant) * shift_sizes)
        residuals = np.abs(rows.weights * (rows.slopes + rows.curvatures * shifts) - rows.multipliers)
        residuals = residuals + FEW * size + rows.weights * wrong
        return self.error_norm + residuals * rows.norms + self.eta * delta

    def bound_by_ellipsoids(
        self,
        rows: Removals,
        largest_norm: float,
        centers: Array,
        nu: Array,
        exponents: Array,
        errors: Array,
        moves: tuple[Array, Array] | None = None,
    ) -> Bounds:
        """Bounds from the gradients' norms at the candidates, in the metric without each row.

        ``moves``: what the next Newton steps do to the rows' scores, and at least the norms of the gradients' errors.
        """
        here, ahead = self.radii(rows, largest_norm, nu, exponents, None if moves is None else moves[1])
        with np.errstate(all="ignore"):
            bounds = self.widen(centers, rows.norms * here + errors, rows.metric_shares)
            if moves is None:
                return bounds
            half = rows.norms * ahead * (1.0 + FEW) + errors + FEW * np.abs(moves[0])
            return intersect(bounds, self.widen(centers + moves[0], half, rows.metric_shares))

    def radii(
        self, rows: Removals, largest_norm: float, nu: Array, exponents: Array, rounding: Array | None = None
    ) -> tuple[Array, Array]:
        """:func:`removal_radii` of rows' candidates; ``rounding``: at least the norms of the gradients' errors."""
        with np.errstate(all="ignore"):
            theta = self.eta * (1.0 + rows.leverages) / rows.metric_shares
        # The step took two triangular solves and a quotient by 1 - l_i, of which norms that were rounded up are part.
        slack = 8.0 * (self.metric.solve_error + FEW)
        return removal_radii(self.constant, rows.metric_shares, largest_norm, nu, exponents, theta, slack, rounding)

    @staticmethod
    def widen(centers: Array, half: Array, shares: Array) -> Bounds:
        """Intervals around some centres, infinite where nothing is proven."""
        half = half + FEW * np.abs(centers)
        usable = (shares > 0.0) & np.isfinite(half)
        return widen(np.where(usable, centers, 0.0), np.where(usable, half, np.inf))


class Start(NamedTuple):
    """Where the base is looked for, unless that is a solution, or the base of another family."""

    problem: Problem
    point: Point
    expansion: Expansion | None = None
    before: tuple[Array, Array] | None = None  # as in a solution


@final
class LocalRows:
    """The removal of single rows, in memory, on a device or in blocks.

    In memory the base is one Newton step away from the start (``converged``), or a few where the first is not small: that
    takes out what training left, and the factor. The metric is the one before the last step; curvatures differ between the
    two by at most ``e^drift``, ``drift`` the largest move of a score, which is part of ``eta``. In blocks, where a step costs
    a pass over the data, the base is the start itself unless its Newton step is long, and under a quadratic loss where a direct training has ended.

    Parameters
    ----------
    start : Start, Solution or LocalRows
        The model to start from, close to the optimum.
    factor : float, default=None
        The one factor of the removals that are asked about; if not given, those of all rows are covered.
    highest : float, default=None
        Factors from ``factor`` up to this one are covered, too, while the base is that of ``factor``.
    """

    before = None  # no Hessian is kept

    def __init__(
        self, start: "Start | Solution | LocalRows", factor: float | None = None, highest: float | None = None
    ) -> None:
        self.problem: Problem = start.problem
        problem = self.problem
        self.factors = factor_range(problem) if factor is None else (factor, factor if highest is None else highest)
        self._middle = 0.5 * (self.factors[0] + self.factors[1]) if factor is None else factor
        self.point: Point = start.point
        # How far the Hessians with all factors that are covered, and with the middle one, may be from the metric, as shares.
        self.eta = self.middle_eta = np.inf
        self.converged, self._known_norm = False, np.inf
        self._values: RowValues | None = None
        # Of rows that steps have left open, where these ended.
        self.candidates: dict[int, Array] = {}
        self.expansion: Expansion | None = None  # what was summed at the base, of rows in memory; without a Hessian
        self._errors: Array | None = None
        # The rows that second-order terms were last asked of, and these: rows that stay open are asked about again.
        self._known_terms: tuple[Rows, Array] | None = None
        with np.errstate(over="ignore", invalid="ignore"):
            self._find_base(start)
        self.usable = self.eta < MAX_ETA

    def _find_base(self, start: "Start | Solution | LocalRows") -> None:
        """Find the base and its metric."""
        problem, floor, here = self.problem, Floor.of(self.problem.loss), start.expansion
        quadratic = problem.in_memory and problem.loss.self_concordance == 0.0
        if problem.loss.piecewise:
            # The rows in their curved pieces are those at the start: what a step from there crosses is part of the proof.
            here = expand(problem, self.point, Floor(problem.loss, 0.0))
        elif here is None or (here.hessian is None and here.rows is None):
            here = expand(problem, self.point, None if problem.in_memory else floor)
        if here.hessian is None and quadratic and start.before is not None:
            # The training's Hessian is that of every model. Taking the penalty out of it costs a unit of the entry, which the metric's bound has room for.
            here = replace(here, hessian=assemble_hessian(problem.totals, start.before[1], strength=-1.0))
        elif here.hessian is None:
            here = _with_hessian(problem, here)
        before = np.inf
        for k in range(MAX_METRICS):
            metric = self._metric(here, floor)
            if not metric.eta < MAX_ETA:
                return
            if problem.loss.piecewise or (quadratic and start.before is not None and metric.eta <= SMALL_ETA):
                self._place(here, metric, 0.0)
                self.converged = True
                return
            if problem.in_memory:
                there, drift = self._step_on(here, metric)
                self._place(there, metric, drift)
                self.converged = drift <= MAX_DRIFT
                # Long rows move far in the first step, which also changes the weights of all rows.
                if self.converged or not drift <= max(1.0, 0.5 * before):
                    return
                before = drift
                here = _with_hessian(problem, there)
                continue
            self._place(here, metric, 0.0)
            self.converged = True
            if not self.eta < MAX_ETA or k + 1 == MAX_METRICS or self._is_close(here):
                return
            self.point = self.point.move(self.base.step)
            here = expand(problem, self.point, floor)

    def _metric(self, here: Expansion, floor: Floor) -> ColumnMetric:
        """The metric of an expansion."""
        problem, hessian = self.problem, assemble_hessian(self.problem.totals, here.hessian, self._middle)
        if here.rows is None:
            return make_column_metric(problem.totals, hessian)
        curvatures = floor.raise_floor(here.rows.curvatures, here.rows.scores)
        return closest_metric(problem, hessian, self._middle * problem.weights * curvatures)

    def _step_on(self, here: Expansion, metric: ColumnMetric) -> tuple[Expansion, float]:
        """Move the point by its Newton step; the expansion there, and the largest move of a score."""
        problem = self.problem
        gradient = assemble_gradient(problem.totals, self.point, self._middle * here.gradient)
        self.point = self.point.move(-metric.solve(gradient))
        there = expand(problem, self.point)
        assert here.rows is not None and there.rows is not None
        moves = np.abs(there.rows.scores - here.rows.scores)[problem.weights > 0.0]
        return there, float(problem.loss.self_concordance or 0.0) * float(moves.max())

    def _is_close(self, here: Expansion) -> bool:
        """Whether what is left of the Newton step is not much longer than the step of a removal."""
        problem, base = self.problem, self.base
        # The step of a row of the largest weight and a slope of usual size.
        share = problem.weight_summary.largest.value / problem.total_weight
        usual = share * here.slope_norm * float(np.sqrt(problem.totals.weight_sum)) * self.norm_bound
        move = base.constant * self.norm_bound * base.step_norm
        return base.step_norm <= BASE_STEP_RATIO * usual or move < NEGLIGIBLE_MOVE

    def _place(self, here: Expansion, metric: ColumnMetric, drift: float) -> None:
        """Make the point the base, under a metric from which its curvatures have drifted."""
        problem, totals, point, (low, high) = self.problem, self.problem.totals, self.point, self.factors
        constant, middle, share = float(problem.loss.self_concordance or 0.0), self._middle, sum_error(totals.depth)
        if here.rows is None:
            errors = score_errors_of_totals(totals, point)
        else:
            self._values, self.expansion = here.rows, here
            self._errors = score_errors(problem, point.coef, point.intercept, here.rows.scores)
            errors = score_errors_of_rows(problem, self._errors)
        self.largest_error = errors.largest
        # The metric is that of the middle factor, at computed scores.
        grown = (1.0 + metric.eta) * (1.0 + share) * (1.0 + FEW)
        grown = float(grown * np.exp((drift + constant * errors.largest) * (1.0 + FEW)))
        self.middle_eta = grown - 1.0
        self.eta = grown * max(high / middle, middle / low) * (1.0 + FEW) - 1.0
        losses, zero, near = here.gradient, np.zeros_like(here.gradient), math.sqrt(1.0 + self.middle_eta)
        slack, sums = (
            high * gradient_errors(totals, point, here, off, share) * (1.0 + FEW) for off in (errors, NO_ERRORS)
        )
        # Weights up to ``high`` times those of the data, in the metric of ``middle`` times them.
        slopes = slope_error_norm(problem.loss, errors.spread, errors.largest) * high / math.sqrt(middle) * near
        error_norm = min(metric.error_norm(slack), (metric.error_norm(sums) + slopes) * (1.0 + FEW))
        if isinstance(metric, OrthogonalMetric):
            assert here.rows is not None and self._errors is not None
            losses, closer = sum_closely(problem, point, here.rows, self._errors, metric, near, share, (middle, high))
            error_norm = float(np.fmin(error_norm, closer))
        gradient = assemble_gradient(totals, point, middle * losses)
        several = low < high
        self.base = RowRemovals(
            metric=metric,
            eta=self.eta,
            constant=constant,
            point=point,
            factors=self.factors,
            middle_factor=middle,
            error_norm=error_norm,
            step=metric.solve(-gradient),
            step_norm=metric.gradient_norm(gradient, zero),
            loss_step=metric.solve(-losses) if several else zero,
            loss_step_norm=metric.gradient_norm(losses, zero) if several else 0.0,
        )

    @property
    def norm_bound(self) -> float:
        """An upper bound of the largest norm of a row that counts, from the Euclidean norms, which costs nothing."""
        # Asked for while the base is found, too: under whatever metric there is then.
        return bound_row_norm(self.base.metric, self.problem.totals.largest_norm)

    def learn_norm(self, largest: float) -> None:
        """Take in at least the largest norm of a row that counts, which a pass over the blocks has found."""
        self._known_norm = min(self._known_norm, largest)

    @property
    def largest_norm(self) -> float:
        """An upper bound of the largest norm of a row that counts: exact in memory, otherwise as far as it is known."""
        if self._norms is not None and np.isinf(self._known_norm):
            self.learn_norm(float(self._norms[self.problem.weights > 0.0].max()))
        return min(self._known_norm, self.norm_bound)

    @cached_property
    def _norms(self) -> Array | None:
        """Upper bounds of the norms of all rows in the inverse metric, of rows in memory."""
        return self.base.metric.norms(self.problem.matrix) if self.problem.in_memory else None

    @property
    def values(self) -> RowValues:
        """Scores, slopes and curvatures at the base, of rows in memory."""
        assert self._values is not None
        return self._values

    @cached_property
    def every(self) -> Removals:
        """The removals of all rows, which are in memory."""
        return self._prepare(slice(None), self.problem)

    def _prepare(self, rows: Rows | slice, part: Problem) -> Removals:
        known = (None if many is None else many[rows] for many in (self._errors, self._norms))
        return self.base.prepare(part, None if self._values is None else self._values.take(rows), *known)

    def removals(self, rows: Rows, part: Problem | None = None) -> Removals:
        """The removals of some rows; ``part``: the rows, if they were taken."""
        n_rows = self.problem.n_rows
        many = n_rows <= PREPARED_ROWS or 4 * rows.size > n_rows or "every" in self.__dict__
        if self.problem.in_memory and many:
            return self.every if rows.size == n_rows else self.every.take(rows)
        return self._prepare(rows, self.problem.take(rows) if part is None else part)

    def bounds(self, rows: Rows) -> Bounds:
        """Bounds of the rows' scores under the models trained without them, from one Newton step in closed form."""
        if not self.usable:
            return unbounded(rows.size)
        if self.problem.loss.piecewise:
            return self._bound_on_pieces(self.removals(rows))
        if "every" in self.__dict__ or not rows.size == self.problem.n_rows > PREPARED_ROWS:
            return self.base.closed_form(self.removals(rows), self.largest_norm)
        # In parts whose arrays stay in the cache and whose memory is used again: nothing is kept of them but the bounds.
        lower, upper = unbounded(rows.size)
        for start in range(0, rows.size, PREPARED_ROWS):
            here = slice(start, start + PREPARED_ROWS)
            part = self._prepare(here, self.problem.take(here))
            lower[here], upper[here] = self.base.closed_form(part, self.largest_norm)
        return lower, upper

    def _bound_on_pieces(self, removals: Removals) -> Bounds:
        """Bounds from one Newton step in closed form between the kinks of a loss."""
        kinks, steps = self._kinks, self.base.steps(removals)
        nu = kinks.remainders(steps.lengths) + steps.residuals
        radii = piece_radius(nu, removals.metric_shares, lambda radii: kinks.lost(steps.lengths + radii))
        half = removals.norms * radii + steps.errors
        return self.base.widen(removals.scores + steps.shifts, half, removals.metric_shares)

    @cached_property
    def _kinks(self) -> Kinks:
        """All rows by their distances from the kinks at the base."""
        problem, every = self.problem, self.every
        curvatures, norms = self._bound_curvatures(every.norms, np.full(problem.n_rows, problem.loss.smoothness))
        distances = measure_kink_distances(problem.loss, problem.y, every.scores, every.score_errors)
        return Kinks.of(distances, norms, curvatures, every.curvatures > 0.0)

    def bound_by_moves(self, rows: Rows) -> Bounds:
        """Bounds as :meth:`bounds` has them, from what the removals do to the other rows; in memory.

        The moves of rows of largest norm are taken one by one, those of the others by their moments.
        """
        if not self.has_moves:
            return unbounded(rows.size)
        removals = self.removals(rows)
        return self.base.closed_form(removals, self.largest_norm, self.bound_row_moves(rows, removals))

    @property
    def has_moves(self) -> bool:
        """Whether removals are bounded by what they do to the other rows; of a quadratic loss the closed form is exact."""
        return self.usable and self.base.constant > 0.0 and self.problem.arrays.stable

    def bound_row_moves(self, rows: Rows, removals: Removals) -> RowMoves:
        """What removals do to the other rows, in memory."""
        problem, base, every, (chosen, other_norm) = self.problem, self.base, self.every, self._long
        part = problem.take(rows)
        images = base.metric.solve(_with_ones(problem.take(chosen)).T)
        steps, lengths = self.directions(removals, coordinates(part, base.metric))
        return RowMoves(
            norms=every.norms[chosen],
            curvatures=self.factors[1] * problem.weights[chosen] * every.curvatures[chosen] * (1.0 + FEW),
            other_norm=other_norm,
            products=compute_model_scores(part.matrix, images, problem.fit_intercept),
            own=rows[:, None] == chosen,
            spreads=self._other_moments.sizes(steps, lengths),
        )

    def directions(self, removals: Removals, places: Array) -> tuple[Array, Array]:
        """The Newton steps of removals in the coordinates of the metric, and at least the norms of the exact ones.

        ``places``: the rows in these coordinates. The steps err by at most four solve errors of these norms.
        """
        base = self.base
        steps = removals.multipliers[:, None] * places + base.metric.factor @ base.step
        if base.factors[0] < base.factors[1]:
            extra = removals.factors - base.middle_factor
            steps += extra[:, None] * (base.metric.factor @ base.loss_step)
        return steps, (np.abs(removals.multipliers) * removals.norms + removals.base_norms) * (1.0 + FEW)

    def moments(self, norms: Array, unit: float | None = None) -> SecondMoments:
        """The moments with weights ``s h kappa^2``, or ``s h kappa^4 / unit^2``; ``norms``: the rows' norms, 0 where a row is not to count."""
        curvatures, norms = self._bound_curvatures(norms)
        with np.errstate(all="ignore"):
            weights = curvatures * np.square(norms)
            weights = weights if unit is None else weights * np.square(norms / unit)
            return SecondMoments.of(self.problem, self.base.metric, weights, norms)

    def _bound_curvatures(self, norms: Array, curvatures: Array | None = None) -> tuple[Array, Array]:
        """Upper bounds of the exact weighted curvatures of all rows, and their norms; 0 where a row has no weight, however long it is.

        ``curvatures``: others than those at the base.
        """
        # The exact curvatures are within 1 + eta of the computed ones.
        curvatures = self.every.curvatures if curvatures is None else curvatures
        curvatures = self.factors[1] * self.problem.weights * curvatures * ((1.0 + self.eta) * (1.0 + FEW))
        return curvatures, np.where(self.problem.weights > 0.0, norms, 0.0)

    @cached_property
    def shares(self) -> Array:
        """An upper bound of the share of the metric that each row's curvature carries: ``s_k h_k x_k x_k^T`` is at most this times the metric."""
        curvatures, norms = self._bound_curvatures(self.every.norms)
        return curvatures * np.square(norms) * (1.0 + FEW)

    @cached_property
    def norm_cuts(self) -> NormCuts:
        """Largest norms of rows, and the share of the metric that the rows of larger norms carry at most."""
        curvatures, norms = self._bound_curvatures(self.every.norms)
        counted = self.problem.weights > 0.0
        return row_norm_cuts(norms[counted], curvatures[counted])

    @cached_property
    def _other_moments(self) -> SecondMoments:
        """The moments of the rows that are not long."""
        if not self._long[0].size:
            return self.all_moments
        norms = self.every.norms.copy()
        norms[self._long[0]] = 0.0
        return self.moments(norms)

    @cached_property
    def _long(self) -> tuple[Rows, float]:
        """The rows whose norms are much above those of the others, if there are few, and at least the norm of any other."""
        norms = np.where(self.problem.weights > 0.0, self.every.norms, 0.0)
        n_long = min(MAX_LONG_ROWS, norms.size // 8)
        if not n_long:
            return np.empty(0, dtype=np.intp), self.largest_norm
        order = np.argpartition(-norms, n_long)[: n_long + 1]
        order = order[np.argsort(-norms[order], kind="stable")]
        other = float(norms[order[-1]])
        if not other < OTHER_NORM_RATIO * float(norms[order[0]]):
            return order[:0], self.largest_norm
        return np.sort(order[:-1]), other

    def refined(self, rows: Rows, decided: Decided, n_steps: int, n_together: int | None = None) -> Bounds:
        """Bounds after Newton steps, each written down in full and certified by its own gradient.

        Parameters
        ----------
        rows : array of int
            The rows, in ascending order.
        decided : callable
            Says which bounds are good enough.
        n_steps : int
            Most steps; the first candidate counts as one.
        n_together : int, default=None
            The number of rows that are asked about in batches of which this is one; this batch, if not given.
        """
        together = rows.size if n_together is None else n_together
        lower, upper = unbounded(rows.size)
        if not self.usable:
            return lower, upper
        part = self.problem.take(rows)
        removals = self.removals(rows, part)
        places = np.flatnonzero(self._has_certificate(part, removals))
        if places.size < rows.size:
            rows, part, removals = rows[places], part.take(places), removals.take(places)
        if places.size:
            first = RowCandidates.first(self, rows, part, removals, together)
            first.decided = decided
            found = tighten(first, decided, n_steps, self._keep if self.problem.in_memory else None)
            lower[places], upper[places] = found.lower, found.upper
        return lower, upper

    def _has_certificate(self, part: Problem, removals: Removals) -> NDArray[np.bool_]:
        """The rows whose candidates something can be proven of: in the metric without the row, or by balls, which need no metric."""
        usable = removals.metric_shares > 0.0
        return usable if self.balls is None or usable.all() else usable | self.base.find_own_factors(part)[1]

    def _keep(self, batch: "RowCandidates", members: NDArray[np.bool_]) -> None:
        """Keep the candidates of rows that steps have left open."""
        models = to_host(batch.descent.lowest(members, batch.models, batch.gradients, batch.noise))
        good = np.isfinite(models).all(axis=0)
        self.candidates.update(zip(batch.rows[members][good].tolist(), models.T[good], strict=True))

    @property
    def knows_second_order(self) -> bool:
        """Whether there are candidates to second order."""
        problem = self.problem
        known = problem.loss.fourth_constant is not None and self.factors[0] == self.factors[1]
        return self.usable and known and problem.in_memory and problem.arrays.stable

    def second_order_cost(self, n_rows: int) -> float:
        """Nanoseconds, roughly and on one core, of the bounds of some rows to second order."""
        size = self.problem.n_columns + int(self.problem.fit_intercept)
        return 0.025 * (self.problem.n_rows + n_rows) * size**2 * (size + 10.0)

    def has_second_order(self, n_rows: int) -> bool:
        """Whether candidates to second order are expected to be cheaper than the gradients of all candidates, for many rows."""
        return self.knows_second_order and self.second_order_cost(n_rows) < candidate_cost(self.problem, n_rows)

    @cached_property
    def all_moments(self) -> SecondMoments:
        """The moments of all rows."""
        return self.moments(self.every.norms)

    @cached_property
    def fourth_moments(self) -> SecondMoments:
        """The moments of all rows with the fourth powers of their norms, in units of the largest: they underflow no sooner than the second ones."""
        return self.moments(self.every.norms, self.largest_norm)

    @cached_property
    def cubes(self) -> float:
        """An upper bound of ``sum_k s_k h_k kappa_k^3``."""
        curvatures, norms = self._bound_curvatures(self.every.norms)
        with np.errstate(all="ignore"):
            return float(np.sum(curvatures * norms**3)) * (1.0 + gamma(curvatures.size + 8))

    @cached_property
    def third(self) -> ThirdDerivatives:
        """Third derivatives of all rows' losses at the base."""
        problem = self.problem
        third = problem.loss.third_derivative(problem.y, self.values.scores)
        return ThirdDerivatives(problem, self.base.metric, self.factors[0] * problem.weights * third)

    def second_order(self, steps: Array, rows: Rows, places: Array, own: Array, n_steps: int) -> Array:
        """Half the third derivatives of the objectives without one row each, along steps, in the coordinates of the metric.

        ``places``: the rows in these coordinates, ``own``: what the steps do to the rows' own scores, ``n_steps``: how many there are in all batches. All removals have one factor.
        """
        assert self.factors[0] == self.factors[1]
        if self._known_terms is None or not np.isin(rows, self._known_terms[0]).all():
            mine, order = (0.5 * self.third.weighted[rows] * np.square(own))[:, None], np.argsort(rows)
            self._known_terms = rows[order], (self.third.along(steps, n_steps) - places * mine)[order]
        known, found = self._known_terms
        return found[np.searchsorted(known, rows)]

    @cached_property
    def gradients(self) -> Gradients:
        """What measures candidates."""
        return Gradients(self.problem, self.base.metric, self.point, self.largest_error, self.factors[1], self.eta)

    @cached_property
    def balls(self) -> PenaltyBalls | None:
        """Balls around candidates that have moved far from the base; None where they do not apply."""
        return PenaltyBalls(self.gradients) if has_balls(self.problem) else None


@final
class RowCandidates:
    """Models without one row each, written down in full: the candidates of :func:`glru.updates.batch.tighten`."""

    contraction = np.inf

    def __init__(
        self, family: LocalRows, rows: Rows, removals: Removals, factors: Array, lengths: Array, block: Any
    ) -> None:
        self.family, self.rows, self.removals = family, rows, removals
        self.factors, self.lengths, self.block = factors, lengths, block
        self.arrays = family.base.metric.arrays
        self.images: Any = None
        self.models: Any = None
        self.gradients: Any = None
        self.steps: Any = None
        self.noise: Array = np.empty(0)
        self.n_steps, self.n_together = 0, rows.size
        self.descent = Descent(self.arrays)
        # Which bounds need no closer look.
        self.decided: Decided = lambda lower, upper: np.zeros(lower.size, dtype=bool)

    @classmethod
    def first(
        cls, family: LocalRows, rows: Rows, part: Problem, removals: Removals, n_together: int
    ) -> "RowCandidates":
        """The candidates of the closed form."""
        base, arrays, fit_intercept = family.base, family.base.metric.arrays, part.fit_intercept
        block = _with_ones(part).T
        lengths = np.sqrt(part.squared_row_norms) * (1.0 + gamma(part.n_columns + 4)) + TINY
        factors = removals.factors
        new = cls(family, rows, removals, factors, lengths, block)
        new.images, new.n_together = base.metric.solve(block), n_together
        common = base.step[:, None]
        if base.factors[0] < base.factors[1]:
            common = common + base.loss_step[:, None] * (factors - base.middle_factor)
        origin = base.point.pack(fit_intercept)[:, None]
        new.models = arrays.put(origin + common) + new.images * arrays.put(removals.multipliers)
        if family.has_second_order(n_together):
            places = coordinates(part, base.metric)
            steps, _ = family.directions(removals, places)
            own = removals.base_moves + removals.multipliers * removals.norms * removals.norms
            half = family.second_order(steps, rows, places, own, n_together)
            correction = new.solve(base.metric.factor.T @ half.T)
            new.models -= np.where(np.isfinite(correction).all(axis=0), correction, 0.0)
        if arrays.stable and part.in_memory:
            # The Newton equation of the common part, and the row's own share.
            before = -(base.metric.factor.T @ (base.metric.factor @ common)) - block * (
                removals.weights * removals.slopes
            )
            new.descent.last = np.broadcast_to(origin, new.models.shape), new.models - origin, before
        return new

    def newton(self, models: Any, gradients: Any) -> Any:
        """Newton directions with the Hessians of models without these rows."""
        family, left_out = self.family, (self.rows, np.arange(self.rows.size))
        solve = family.base.metric.solve
        return newton_directions(family.problem, models, gradients, solve, left_out, self.factors, DIRECTION_ACCURACY)

    @property
    def cost(self) -> float:
        """A step and its certificate in units of training the row, the calls of both counted; of rows in blocks nothing is better.

        It does not depend on the batch, so that bounds do not either.
        """
        problem = self.family.problem
        if not problem.in_memory:
            return 0.0
        step = problem.matrix.product_cost + LOSS_COST * problem.n_rows
        step = (
            PRODUCTS_PER_DIRECTION * step if self.n_steps >= CHORD_STEPS else step
        ) + STEP_OVERHEAD / self.n_together
        return step / (ALONE_OVERHEAD + HESSIANS_ALONE * problem.matrix.gram_cost)

    def solve(self, vectors: Any) -> Any:
        """The inverses of the Hessians without each row times a vector each, by the Sherman-Morrison formula."""
        solved, removals = self.family.base.metric.solve(vectors), self.removals
        curvatures = removals.weights * removals.curvatures
        # A row whose leverage rounding leaves no telling from 1 is taken out of the Hessian in part; others are not: bounds around the step's end rely on it.
        known, complements = removals.metric_shares > 0.0, 1.0 - removals.leverages
        complements = np.where(known, complements, np.maximum(complements, MIN_COMPLEMENT))
        multipliers = curvatures * self.arrays.inner(self.block, solved) / complements
        return solved + self.images * self.arrays.put(multipliers)

    def certify(self) -> Certified:
        """Bounds of the left-out rows' scores, from the gradients in the metric without the row."""
        found, nu = self.measure()
        centers, (first, second) = self.arrays.inner(self.block, self.models), found.score_errors
        errors = self.lengths * first + second
        if self.family.problem.loss.piecewise:
            half = self.removals.norms * self._piece_radii(found) + errors
            return Certified(*self.family.base.widen(centers, half, self.removals.metric_shares), nu, np.zeros(nu.size))
        moves = self.arrays.inner(self.block, self.steps), found.rounding
        base, largest = self.family.base, self.family.largest_norm
        exponents = base.constant * found.moved
        bounds = base.bound_by_ellipsoids(self.removals, largest, centers, nu, exponents, errors, moves)
        floors = found.rounding / self._share_roots
        widths = np.where(self.decided(*bounds), 0.0, bounds[1] - bounds[0])
        for far, half in self._bound_far(found, widths, nu <= FLOOR_FACTOR * floors):
            closer = base.widen(centers[far], half + errors[far], np.ones(far.size))
            bounds[0][far], bounds[1][far] = intersect((bounds[0][far], bounds[1][far]), closer)
            floors[far] = 0.0
        return Certified(*bounds, nu, floors)

    def _bound_far(self, found: Measured, widths: Array, rounded: NDArray[np.bool_]) -> Iterator[tuple[Rows, Array]]:
        """An upper bound of how far the scores of some left-out rows are from those at the optima, where curvatures may have changed much since the base.

        ``widths``: of the intervals so far, 0 where these are narrow enough; ``rounded``: the candidates whose gradients are rounding in the metric of the base.
        """
        far = self._find_far(found, widths)
        if far.size:
            yield far, self.removals.norms[far] * self._bound_followed_radii(found, far)
        balls = self.family.balls
        if balls is not None:
            moved = rounded | ~np.isfinite(widths) | (self.family.base.constant * found.moved > MAX_EXPONENT)
            far = np.flatnonzero(moved & (widths > 0.0))
            if far.size:
                far = far[balls.find_promising(found.take(far, self.arrays), self.arrays.take(self.models, far))]
            if far.size:
                models = self.arrays.take(self.models, far)
                yield far, balls.half_widths(found.take(far, self.arrays), models, self.rows[far], self.factors[far])

    def _piece_radii(self, found: Measured) -> Array:
        """Upper bounds of the distances in the metric from the candidates to the optima, by the depths of all rows in their curved pieces."""
        family, (first, second) = self.family, found.score_errors
        used = np.flatnonzero(family.shares > 0.0)
        rows, shares, norms = family.problem.take(used), family.shares[used], family.removals(used).norms
        scores = compute_model_scores(rows.matrix, self.models, rows.fit_intercept)
        lengths = np.sqrt(rows.squared_row_norms) * (1.0 + gamma(rows.n_columns + 4)) + TINY
        depths = measure_piece_depths(rows.loss, rows.y[:, None], scores, lengths[:, None] * first + second)
        # A row that is left out is no part of the Hessian.
        mine = np.flatnonzero(family.shares[self.rows] > 0.0)
        depths[np.searchsorted(used, self.rows[mine]), mine] = np.inf
        with np.errstate(invalid="ignore"):  # rows of no norm within infinite radii
            relative = depths / norms[:, None] * (1.0 - FEW)

        def lost(radii: Array) -> Array:
            return lost_shares(shares, -relative, -radii)

        return piece_radius(found.nu, self.removals.metric_shares, lost)

    def _find_far(self, found: Measured, known: Array) -> Rows:
        """The candidates whose radius is infinite (in ``known``) because some row's curvature may have changed much."""
        base, far = self.family.base, np.flatnonzero(~np.isfinite(known))
        if not (far.size and base.constant > 0.0 and self.family.problem.in_memory and self.arrays.stable):
            return far[:0]
        # Beyond this even the rows of the least norm considered, unmoved, would leave the radius infinite.
        least = min((norm for norm, _ in self.family.norm_cuts), default=np.inf)
        return far[base.constant * least * found.nu[far] < self.removals.metric_shares[far]]

    def _bound_followed_radii(self, found: Measured, far: Rows) -> Array:
        """Upper bounds of the distances in the metric from some candidates to the optima, where few rows have moved far or are long.

        The Hessian is at least that of the other rows: those few, left out, cost the share of the metric that their curvatures carry.
        """
        family, removals, constant = self.family, self.removals.take(far), self.family.base.constant
        problem, (first, second) = family.problem, (part[far] for part in found.score_errors)
        away = compute_model_scores(problem.matrix, self.arrays.take(self.models, far), problem.fit_intercept)
        away = np.abs(away - family.values.scores[:, None])
        away[self.rows[far], np.arange(far.size)] = 0.0
        off = problem.totals.largest_norm * first + second + family.largest_error
        ways = [(constant * found.moved[far], np.zeros(far.size))]
        ways += [
            (constant * (most + off) * (1.0 + FEW), lost_shares(family.shares, away, most))
            for most in (*FOLLOWED_MOVES, *FAR_FOLLOWED_MOVES)
        ]
        exponents, lost = (np.array(part) for part in zip(*ways, strict=True))
        norms, longer = (np.array(part)[:, None, None] for part in zip(*family.norm_cuts, strict=True))
        kept = removals.metric_shares - (lost + longer) * (1.0 + FEW)
        with np.errstate(all="ignore"):
            nu = found.nu[far] / np.sqrt(kept) * (1.0 + FEW)
        here, _ = removal_radii(constant, kept, norms, nu, exponents, kept, 0.0, None)
        return here.min(axis=(0, 1))

    def radii(self) -> tuple[Array, Array, Array]:
        """Upper bounds of the distances in the metric from the candidates to the optima, from the next ones, and the gradients' norms."""
        found, nu = self.measure()
        if self.family.problem.loss.piecewise:
            radii = self._piece_radii(found)
            return radii, radii, nu
        base, largest = self.family.base, self.family.largest_norm
        here, ahead = base.radii(self.removals, largest, nu, base.constant * found.moved, found.rounding)
        far = self._find_far(found, here)
        if far.size:
            here[far] = np.minimum(here[far], self._bound_followed_radii(found, far))
        return here, ahead, nu

    def measure(self) -> tuple[Measured, Array]:
        """The gradients of the candidates, which the next steps follow from, and at least their norms in the metrics without the rows."""
        found = self.family.gradients.at(self.models, self.rows, self.factors)
        self.gradients, self.steps = found.gradients, -self.solve(found.gradients)
        self.noise = FLOOR_FACTOR * found.rounding
        return found, found.nu / self._share_roots

    @cached_property
    def _share_roots(self) -> Array:
        """What norms in the metric are divided by for the metric without the row; 1 where nothing is known of that, and nothing proven by it."""
        shares = self.removals.metric_shares
        return np.sqrt(np.where(shares > 0.0, shares, 1.0))

    def step(self, members: NDArray[np.bool_]) -> "RowCandidates":
        """Some of the candidates after one more Newton step."""
        arrays, removals = self.arrays, self.removals.take(np.flatnonzero(members))
        block, images = (arrays.take(matrix, members) for matrix in (self.block, self.images))
        rows, factors = self.rows[members], self.factors[members]
        new = RowCandidates(self.family, rows, removals, factors, self.lengths[members], block)
        new.images, new.n_steps, new.n_together = images, self.n_steps + 1, self.n_together
        new.decided = self.decided
        own = new.newton if new.n_steps > CHORD_STEPS and self.family.problem.in_memory else None
        new.models, new.descent = self.descent.next(members, self.models, self.gradients, self.noise, new.solve, own)
        return new


def removal_radii(
    constant: float,
    shares: Array,
    largest_norm: Array | float,
    nu: Array,
    exponents: Array,
    theta: Array,
    slack: float,
    rounding: Array | None,
) -> tuple[Array, Array]:
    """Upper bounds of the distances in a metric from candidates to the optima without some rows, and from one Newton step further.

    With ``M`` the Hessian without the rows and ``g`` the gradient, the mean Hessian on the way to the optimum is within a factor
    ``e^rho`` of ``M``, ``rho`` the exponent and ``kappa`` times the radius, and the computed ``M`` within a share ``theta`` of it: the
    optimum is at ``-M^-1 g`` from the candidate up to ``(e^rho - 1 + 2 theta) |g|``.

    Parameters
    ----------
    constant : float
        The self-concordance constant.
    shares : array
        The Hessians without the rows, at the base, are at least these shares of the metric.
    largest_norm : float or array
        At least the largest norm of a row in the inverse metric.
    nu, exponents : array
        At least the gradients' norms in the metrics without the rows; curvatures are within ``e^exponent`` of those at the base.
    theta, slack : array, float
        How far the Hessian that a step is computed with may be off, and the relative error of the step, as shares.
    rounding : array or None
        At least the norms in the inverse metric of what the computed gradients err by; None where no next step is asked about.
    """
    with np.errstate(all="ignore"):
        root = np.sqrt(shares)
        radius = local_radius(constant, largest_norm / root, nu, exponents)
        usable = (shares > 0.0) & np.isfinite(radius)
        here = np.where(usable, radius / root * (1.0 + FEW), np.inf)
        if rounding is None:
            return here, here
        rho = exponents + constant * largest_norm / root * radius
        ahead = _mean_hessian_error(rho, theta) * (1.0 + FEW) + slack / shares
        ahead = ahead * nu / root + rounding / shares
        return here, np.where(usable & (theta < 0.5), ahead * (1.0 + FEW), np.inf)


def _mean_hessian_error(rho: Array, theta: Array) -> Array:
    """An upper bound of the norm of ``M^(1/2) (B^-1 - C^-1) M^(1/2)``, ``B`` within a factor ``e^rho`` of ``M`` and ``C`` within ``1 -/+ theta <= 1/2``."""
    return np.expm1(rho * (1.0 + FEW)) * (1.0 + FEW) + 2.0 * theta


def _with_hessian(problem: Problem, here: Expansion) -> Expansion:
    """An expansion of rows in memory, with the Hessian of the losses."""
    assert here.rows is not None
    return replace(here, hessian=loss_hessian(problem, problem.weights * here.rows.curvatures))


def _with_ones(rows: Problem) -> Any:
    """The rows as a dense array where they live, with a column of ones for an intercept."""
    return rows.arrays.with_ones(rows.matrix.block()) if rows.fit_intercept else rows.matrix.block()


def newton_remainders(exponents: Array) -> Array:
    """An upper bound of ``(e^t - 1 - t) / t``."""
    remainders = np.where(
        exponents > SERIES, (np.expm1(exponents) - exponents) / exponents, exponents * (0.5 + exponents)
    )
    return remainders * (1.0 + SERIES_ERROR)
