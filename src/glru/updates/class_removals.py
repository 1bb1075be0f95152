r"""The removal of any single row with one score per class, in closed form.

Let :math:`A` be the Hessian at the base model (gauge included, :mod:`glru.metric.classes`), :math:`U_i = I_K \otimes x_i`, :math:`Q = U_i^\top A^{-1} U_i`, ``K`` by ``K``,
:math:`p = -A^{-1} r` the Newton step of the base, :math:`t = U_i^\top p`, and :math:`\omega` the row's weight. Without row ``i`` a Newton step is

.. math:: \delta = p + A^{-1} U_i c, \qquad c = (I - \omega h_i Q)^{-1} \omega (g_i + h_i t).

The Hessian without the row is at least :math:`1 - \ell` times :math:`A`, :math:`\ell` the largest eigenvalue of :math:`\omega h_i Q`, that of
:math:`\omega S^\top Q S`, :math:`h = S S^\top`, of which the Frobenius norm is an upper bound. The closed form bounds the range of every row's move by the norm of :math:`\delta`
(:mod:`glru.updates.local_rows`).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds
from glru.linalg import FEW, TINY, Array, gamma
from glru.metric.classes import EXPONENTS, ClassMetric
from glru.problem import Problem
from glru.regions.class_sums import ClassSums, gradient_depth
from glru.regions.classes import query_norms, widen_queries
from glru.regions.local import local_radius
from glru.rows import Totals
from glru.updates.carried_rows import sum_error
from glru.updates.local_rows import newton_remainders

if TYPE_CHECKING:
    from glru.updates.class_rows import ClassRows

Rows = NDArray[np.intp]

EXACT_LEVERAGE = 0.3
"""From this value, a leverage is the largest eigenvalue; below, it is a Frobenius norm, which is cheaper."""


@final
@dataclass(frozen=True, eq=False)
class ClassBase:
    """The model that all removals start from, and what is proven there, without any rows."""

    totals: Totals  # bounds of sums over all rows
    metric: ClassMetric  # the metric of the removals
    model: Array  # shape (n_classes, n_unknowns): the base
    # The factor of the metric's weights, and the smallest and largest one of a removal that is covered
    middle: float
    least: float
    most: float
    # The exact Hessian at the base, under the factor of any row that is covered, is within ``1 -/+ eta`` times the metric
    eta: float
    share: float  # relative error of a row's new weight and of a sum over the rows
    # An upper bound of the largest error of a row's scores, the root of the weighted sum of their squares, and the norm of the gradient's error
    largest_error: float
    error_size: float
    error_norm: float
    # Shape (n_classes, n_unknowns): the Newton step of the base, and that of the losses alone
    step: Array
    # Upper bounds of their norms
    step_norm: float
    loss_step: Array
    loss_step_norm: float

    @classmethod
    def at(
        cls,
        problem: Problem,
        metric: ClassMetric,
        model: Array,
        here: ClassSums,
        factors: tuple[float, float, float],
        drift: float,
    ) -> "ClassBase":
        """The base at a model from sums there, under a metric from which its probabilities have drifted; ``factors``: middle, least, most."""
        totals, share, (middle, least, most) = problem.totals, weight_share(problem, gradient_depth(problem)), factors
        gradient = middle * here.gradient + metric.strengths * model + metric.gauge * model.sum(axis=0)
        ratio = max(most / middle, middle / least, 1.0)
        grown = (1.0 + metric.eta) * (1.0 + share) * ratio * (1.0 + FEW)
        # Before and after the step scores were computed with errors.
        eta = float(grown * np.exp((drift + 4.0 * here.largest_error.value) * (1.0 + FEW))) - 1.0
        slack = most * here.slope_error(problem, share) * totals.column_norms * (1.0 + FEW)
        sizes = metric.strengths * np.abs(model) + metric.gauge * np.abs(model).sum(axis=0)
        slack = slack + gamma(problem.n_scores + 16) * (sizes + most * np.abs(here.gradient))
        zero = np.zeros(model.size)
        # The metric has the middle factor and is the Hessian at the base up to eta.
        scores = most / np.sqrt(middle) * np.sqrt(1.0 + max(eta, 0.0)) * here.score_error(problem)
        return cls(
            totals=totals,
            metric=metric,
            model=model,
            middle=middle,
            least=least,
            most=most,
            eta=eta,
            share=share,
            largest_error=here.largest_error.value,
            error_size=here.error_norm * (1.0 + gamma(problem.n_rows + 8)),
            error_norm=(metric.gradient_norm(zero, slack.ravel()) + float(scores)) * (1.0 + FEW),
            step=-metric.solve(gradient.ravel()).reshape(model.shape),
            step_norm=metric.gradient_norm(gradient.ravel(), zero),
            loss_step=-metric.solve(here.gradient.ravel()).reshape(model.shape),
            loss_step_norm=metric.gradient_norm(here.gradient.ravel(), zero),
        )


def weight_share(problem: Problem, depth: int) -> float:
    """Relative error of a row's new weight and of a sum over the rows; sums of losses keep their weights as they are.

    ``depth``: at least the additions that a row's share of the sum passes through.
    """
    return sum_error(max(depth, problem.totals.depth)) if problem.scaling == "mean" else gamma(depth + 9)


@final
@dataclass(frozen=True, eq=False)
class ClosedForm:
    """Newton steps of some rows' removals in closed form; every array has one entry or one line per row."""

    reference: Rows  # the class whose lead over the others is bounded
    # The rows' own scores after the step, and how far these may be off.
    scores: Array
    errors: Array
    norms: Array  # shape (n_rows, 2 n_classes): at least the norms of the queries in the inverse of the metric
    # The metric without the row is at least this share of the metric; nothing is proven where it is not above 0.
    shares: Array
    # Upper bounds of the norms of the steps in the metric, and in the exact Hessian without the row.
    step_norms: Array
    deltas: Array
    # Upper bounds of the norms of what is left of the Newton equation, in the inverse of the metric without the row.
    residuals: Array

    def bounds(self, largest_norm: float) -> Bounds:
        """Bounds of the queries, the range of every other row's move bounded by its norm; ``largest_norm``: at least that of any row."""
        with np.errstate(all="ignore"):
            exponents = largest_norm * self.step_norms * (1.0 + FEW)
            remainders = newton_remainders(exponents) * self.deltas
            radius = removal_radius(remainders + self.residuals, exponents, self.shares, largest_norm)
        return widen_queries(self.scores, self.norms * radius[:, None], self.errors, self.reference)


def removal_radius(nu: Array, exponents: Array, shares: Array, largest_norm: float) -> Array:
    """How far the optimum without each row is at most, in the metric.

    ``nu``: at least the norm of the gradient in the inverse of a part of the Hessian without the row, which is at least ``shares`` of the metric.
    ``largest_norm``: of a row in that part, in the metric.
    """
    with np.errstate(all="ignore"):
        root = np.sqrt(shares)
        radius = local_radius(1.0, largest_norm / root, nu, exponents) / root * (1.0 + FEW)
    return np.where((shares > 0.0) & np.isfinite(radius), radius, np.inf)


@final
class ClassRemovals:
    """Some rows and the Newton steps of their removals; every array has one entry or one line per row.

    Attributes
    ----------
    weights : array
        Their new weights.
    forms : array of shape (n_rows, n_classes, n_classes)
        ``Q``.
    curvatures : array of shape (n_rows, n_classes, n_classes)
        ``h``.
    shares : array
        The metric without the row is at least this share of the metric; nothing is proven where it is not above 0.
    smallest, spreads, fill_sizes : array
        At least the least factor of a strength or weight, and 1; at least what moved fills change of scores, times the roots of the curvatures, and of the lead of a class
        over another, both under a model whose norm in the metric is 1.
    moves : array of shape (n_rows, n_classes)
        What the part of a step that does not depend on the row does to its scores.
    multipliers : array of shape (n_rows, n_classes)
        ``c``.
    shifts : array of shape (n_rows, n_classes)
        What the step does to the row's scores.
    """

    def __init__(self, family: "ClassRows", rows: Rows) -> None:
        problem, metric, values = family.problem, family.metric, family.values
        self.family, self.rows = family, rows
        self.factors = np.where(family.covered[rows], family.factors[rows], family.middle)
        self.extra = self.factors - family.middle
        self.weights = self.factors * problem.weights[rows]
        self.scores, self.errors = values.scores[rows], values.errors[rows]
        self.slopes, self.likely = family.slopes[rows], values.likely[rows]
        self.forms = family.forms[rows]
        self.curvatures = compute_curvatures(self.likely)
        self.lengths = np.sqrt(np.einsum("iaa->ia", self.forms)) * (1.0 + metric.unit + FEW) + TINY
        # The Frobenius norm of w S^T Q S, and what the errors of Q add: the trace of h is at most 1.
        roots = np.sqrt(self.likely)
        factors = roots[:, :, None] * np.eye(problem.n_scores) - self.likely[:, :, None] * roots[:, None, :]
        # The weight first: forms alone may be so small that their squares underflow.
        small = np.matmul(np.swapaxes(factors, 1, 2), np.matmul(self.weights[:, None, None] * self.forms, factors))
        size = np.sqrt(np.einsum("iab,iab->i", small, small))
        high = np.flatnonzero((size > EXACT_LEVERAGE) & np.isfinite(size))
        if high.size:
            # The largest eigenvalue itself; LAPACK's is off by less than K units of the norm for each of a few steps per row.
            found = np.linalg.eigvalsh(0.5 * (small[high] + np.swapaxes(small[high], 1, 2)))[:, -1]
            size[high] = found + gamma(64 * problem.n_scores**2) * size[high]
        room = (metric.unit + gamma(8 * problem.n_scores + EXPONENTS)) * np.square(self.lengths.sum(axis=1))
        self.leverages = (size + self.weights * room) * (1.0 + FEW)
        shares = 1.0 - family.eta - self.leverages * (1.0 + family.eta)
        self.shares = np.where(family.covered[rows], shares, 0.0)
        fills, unit = family.fill_norms[:, rows], 1.0 + gamma(family.fill_norms.shape[0] + 16)
        self.smallest = np.where(family.refits.together[rows], family.refits.smallest[rows], 0.0)
        # The norm of a difference of two classes: the sum of two norms is at most the root of two times that of their squares.
        self.spreads, self.fill_sizes = family.filled_spread @ fills * unit, np.sqrt(2.0) * fills.sum(axis=0) * unit
        self.moves = self._base_moves()
        right = self.weights[:, None] * (self.slopes + curved(self.curvatures, self.moves))
        self.multipliers = self.solve(right)
        self.shifts = self.moves + curved(self.forms, self.multipliers)

    def own_shares(self, lost: float = 0.0) -> Array:
        """An upper bound of the shares of the metric that the Hessians of the rows' own problems have; ``lost``: of the metric, what is left out of them."""
        with np.errstate(all="ignore"):
            shares = self.shares - lost
            thetas = self.spreads / np.sqrt(shares)
            found = self.smallest * np.square(np.maximum(1.0 - thetas, 0.0)) * shares * (1.0 - FEW)
        return np.where((shares > 0.0) & (self.smallest > 0.0) & (thetas < 1.0), found, 0.0)

    def take(self, places: NDArray[Any] | slice) -> "ClassRemovals":
        """Some of the rows."""
        found = object.__new__(ClassRemovals)
        lines = {name: value[places] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        found.__dict__.update(lines, family=self.family)
        return found

    def _base_moves(self) -> Array:
        family, problem = self.family, self.family.problem
        X = problem.matrix[self.rows]
        moves = row_scores(X, family.base.step, problem.fit_intercept)
        if self.extra.any():
            moves = moves + self.extra[:, None] * row_scores(X, family.base.loss_step, problem.fit_intercept)
        return moves

    def solve(self, right: Array) -> Array:
        """``(I - w h Q)^-1`` times one vector per row; zeros where nothing is proven."""
        n_scores = right.shape[1]
        systems = np.eye(n_scores) - self.weights[:, None, None] * np.matmul(self.curvatures, self.forms)
        known = self.shares > 0.0
        found = np.zeros_like(right)
        if known.any():
            found[known] = np.linalg.solve(systems[known], right[known][:, :, None])[:, :, 0]
        return np.where(np.isfinite(found), found, 0.0)

    def missed(self, multipliers: Array, slopes: Array, moves: Array) -> Array:
        """An upper bound of the norm of ``U (c - w (g + h t))``, as the numbers are given: what a solution of the small system misses."""
        residual = np.abs(multipliers - self.weights[:, None] * (slopes + curved(self.curvatures, moves)))
        return np.sum(residual * self.lengths, axis=1)

    @cached_property
    def base_norms(self) -> Array:
        """An upper bound of the norm of the part of a step that does not depend on the row."""
        return (self.family.base.step_norm + np.abs(self.extra) * self.family.base.loss_step_norm) * (1.0 + FEW)

    def closed_form(self, reference: Rows) -> "ClosedForm":
        """The rows' queries around the Newton steps, as far as they do not depend on the other rows."""
        shift_errors = self.shift_errors(self.sizes)
        with np.errstate(all="ignore"):
            residuals = self.residuals(shift_errors, self.deltas) / np.sqrt(self.shares)
        return ClosedForm(
            reference,
            self.scores + self.shifts,
            shift_errors + self.errors + FEW * np.abs(self.shifts).max(axis=1),
            self.norms(reference),
            self.shares,
            self.step_norms,
            self.deltas,
            residuals,
        )

    @cached_property
    def sizes(self) -> Array:
        """``sum_a |c_a| |x e_a|``, at least the norm of the part of a step that is the row's own."""
        return np.asarray(np.sum(np.abs(self.multipliers) * self.lengths, axis=1))

    @cached_property
    def step_norms(self) -> Array:
        """Upper bounds of the norms of the steps in the metric."""
        metric, c, norms = self.family.metric, self.multipliers, self.base_norms
        own = np.einsum("ia,ia->i", c, curved(self.forms, c))
        square = np.square(norms) + 2.0 * np.einsum("ia,ia->i", c, self.moves) + own
        room = (8.0 * metric.solve_error + 2.0 * metric.unit + FEW) * np.square(norms + self.sizes)
        return np.asarray(np.sqrt(np.maximum(square, 0.0) + room) * (1.0 + FEW))

    @property
    def deltas(self) -> Array:
        """Upper bounds of the norms of the steps in the exact Hessian without the row."""
        return self.step_norms * np.sqrt(1.0 + self.family.eta) * (1.0 + FEW)

    def shift_errors(self, sizes: Array) -> Array:
        """How far the computed moves of a row's scores may be off; ``sizes``: ``sum_a |c_a| |x e_a|``."""
        metric, longest = self.family.metric, self.lengths.max(axis=1)
        # The step took two triangular solves and a product, the forms are off by their unit.
        errors = longest * (2.0 * metric.solve_error * self.base_norms + (metric.unit + FEW) * sizes)
        return errors + gamma(self.forms.shape[1] + 8) * (np.abs(self.moves).max(axis=1) + longest * sizes)

    def residuals(self, shift_errors: Array, delta: Array) -> Array:
        """An upper bound of the norm of what the errors of ``r``, of ``c`` and of the metric leave of the Newton equation."""
        sizes = np.abs(self.shifts).max(axis=1)
        unit = gamma(4 * self.forms.shape[1] + EXPONENTS)
        # The curvature of a row is at most 1/2 in norm, and at a score that is off by e within a factor of e^(2 e).
        wrong = 0.5 * (shift_errors + unit * sizes) + unit * np.abs(self.slopes).max(axis=1)
        wrong = wrong + 0.5 * self.errors * (1.0 + 4.0 * sizes)
        left = self.missed(self.multipliers, self.slopes, self.shifts)
        left = left + FEW * np.sum(np.abs(self.multipliers) * self.lengths, axis=1)
        # An error of each class's entry at most e has the norm e times the sum of the norms.
        left = left + self.weights * wrong * self.lengths.sum(axis=1)
        return self.family.base.error_norm + left * (1.0 + FEW) + self.family.eta * delta

    def norms(self, reference: Rows) -> Array:
        """Upper bounds of the norms of the rows' queries in the inverse of the metric."""
        return query_norms(self.forms, self.family.metric.unit, reference)


def compute_curvatures(likely: Array) -> Array:
    """``diag(p) - p p^T`` of every row."""
    found = -likely[:, :, None] * likely[:, None, :]
    places = np.arange(likely.shape[1])
    # On the diagonal the sum of the others, without cancellation.
    found[:, places, places] = 0.0
    found[:, places, places] = -found.sum(axis=2)
    return found


def curved(matrices: Array, vectors: Array) -> Array:
    """One matrix times one vector per row."""
    return np.matmul(matrices, vectors[:, :, None])[:, :, 0]


def row_scores(X: Any, model: Array, fit_intercept: bool) -> Array:
    """Scores of rows under one model, one column per class."""
    scores: Array = X @ (model[:, :-1] if fit_intercept else model).T
    return scores + model[:, -1] if fit_intercept else scores
