r"""How far a model of partitioned rows can be from the optimum: two upper bounds of :math:`P(w, b) - P^*`.

*Local* (self-concordant loss, at most a few thousand columns). With :math:`\nu` and :math:`r` of :mod:`glru.regions.local`,
convexity gives :math:`P(w) - P^* \le \nabla P(w)^\top (w - w^*) \le \nu r`. The sums of one expansion are enough.

*Fenchel-Young*, the duality gap with :math:`a_i = -\ell'(z_i)` (:mod:`glru.certificate`), repaired where an intercept or an
unpenalised column asks for it: one pass more, or two.

Sums over rows are rounded in whatever order blocks arrive; ``gamma`` of the problem's ``depth`` covers that.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from glru.certificate import (
    constraint_sums,
    loss_terms,
    move_size,
    penalty_terms,
    proven,
    room_of,
    score_errors,
    weighted_sum,
)
from glru.duality import constraint_columns
from glru.families.gradients import local_radius
from glru.families.removals import rough_top
from glru.linalg import FEW, TINY, Array, Matrix, gamma
from glru.partitioned.census import Most
from glru.partitioned.problem import PartitionedProblem
from glru.partitioned.rows import chunks
from glru.partitioned.sums import Expansion, Model, add_pulls
from glru.problem import Problem
from glru.regions.base import Bounds
from glru.regions.local import ellipsoid_bounds, gradient_slack
from glru.regions.metric import ColumnMetric


def gradient(problem: PartitionedProblem, model: Model, pull: Array) -> Array:
    """The objective's gradient from that of the losses."""
    whole = pull.copy()
    whole[: problem.n_columns] += problem.quadratic * model.coef
    return whole


def penalty_value(problem: PartitionedProblem, model: Model) -> float:
    """The penalty's value."""
    return float(problem.penalty.value(model.coef).sum())


def hessian(problem: PartitionedProblem, gram: Array, factor: float = 1.0) -> Array:
    """The objective's Hessian with the losses' multiplied by a factor; its upper triangle."""
    whole = factor * gram
    whole[np.diag_indices(problem.n_columns)] += problem.quadratic
    return whole


def score_error(problem: PartitionedProblem, model: Model) -> tuple[float, float]:
    """A row's score is off by at most ``|x| first + second``."""
    unit = gamma(problem.n_columns + 3) * (1.0 + gamma(problem.n_columns + 8))
    return unit * float(np.linalg.norm(model.coef)) * (1.0 + gamma(problem.n_columns)), unit * abs(model.intercept)


def largest_score_error(problem: PartitionedProblem, model: Model) -> float:
    """At least the error of any score."""
    first, second = score_error(problem, model)
    return (problem.plain * first + second) * (1.0 + FEW)


def slope_spread(problem: PartitionedProblem, model: Model, mass: float, weight_error: float) -> float:
    """At least ``sqrt(sum_i s_i e_i^2)``: errors of the slopes, of their weights and of sums of them (Minkowski)."""
    first, second = score_error(problem, model)
    off = first * problem.plain_mass + second * float(np.sqrt(problem.weight_sum))
    size = float(np.sqrt(mass)) * (1.0 + gamma(problem.n_rows + 4))
    return ((weight_error + FEW) * size + problem.loss.smoothness * off) * (1.0 + FEW)


@final
@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """All models within a radius of one, in the metric of the Hessian there.

    Attributes
    ----------
    model, metric : Model, ColumnMetric
        The centre and the computed metric there.
    nu, radius : float
        At least the gradient's norm, and how far the optimum is at most; infinite where nothing is proven.
    """

    model: Model
    metric: ColumnMetric
    nu: float
    radius: float

    def score_bounds(self, X: Matrix) -> Bounds:
        """Bounds of scores under the optimum."""
        return ellipsoid_bounds(self.metric, self.radius, X, self.model.coef, self.model.intercept)

    def axis_widths(self) -> Array:
        """How far each coefficient (the intercept last) is at most from the optimal one."""
        norms = self.metric.axis_norms()
        return self.radius * norms * (1.0 + FEW) if np.isfinite(self.radius) else np.full_like(norms, np.inf)

    @property
    def gap(self) -> float:
        """At least the objective's distance from its optimum, with room for a product that underflows."""
        return self.nu * self.radius * (1.0 + FEW) + TINY**2 if np.isfinite(self.radius) else np.inf


@np.errstate(all="ignore")  # overflow ends in an infinite radius: nothing is proven then
def ellipsoid(problem: PartitionedProblem, model: Model, here: Expansion, top: float | None = None) -> Ellipsoid:
    """The ellipsoid at a model, from its expansion; ``top``: at least the largest norm of a row, where that is known."""
    assert here.gram is not None
    matrix = hessian(problem, here.gram)
    metric = ColumnMetric.of_hessian(matrix, problem.fit_intercept, problem.depth, problem.least_curvature)
    constant = problem.loss.self_concordance
    if constant is None or not metric.eta < 1.0:
        return Ellipsoid(model, metric, np.inf, np.inf)
    spread = slope_spread(problem, model, here.mass, gamma(problem.depth + 4))
    slack = gradient_slack(spread, problem.column_norms, problem.quadratic, model.coef)
    # The Hessian was taken at computed scores; at the exact ones it is smaller by at most this factor.
    loosening = float(np.exp(constant * largest_score_error(problem, model))) / (1.0 - metric.eta)
    nu = float(metric.gradient_norm(gradient(problem, model, here.pull), slack) * loosening * (1.0 + FEW))
    if top is None:
        top = rough_top(metric, problem.plain)
    return Ellipsoid(model, metric, nu, float(local_radius(constant, top, np.asarray(nu), np.asarray(0.0))))


@final
@dataclass(frozen=True, eq=False)
class Terms:
    """Sums over the rows for the duality gap, with ``a_i = -l'(z_i)``.

    Attributes
    ----------
    total : float
        At least ``sum_i s_i F_l(y_i; z_i, -a_i)``, for dual variables moved by at most ``moves``.
    pull : array
        ``-sum_i s_i a_i x_i``, the intercept's entry last.
    mass, moves : float
        ``sum_i s_i a_i^2`` and ``sum_i s_i moves_i^2``.
    largest : Most
        The largest move of a dual variable in units of its room.
    """

    total: float
    pull: Array
    mass: float
    moves: float
    largest: Most

    def __add__(self, other: "Terms") -> "Terms":
        return Terms(
            self.total + other.total,
            self.pull + other.pull,
            self.mass + other.mass,
            self.moves + other.moves,
            self.largest + other.largest,
        )


def terms(block: Problem, number: int, start: int, model: Model, size: float | None) -> Terms:
    """The terms of a block; ``size``: of the moves that meet the equality constraints, None where there are none."""
    found = Terms(0.0, np.zeros(block.n_columns + int(block.fit_intercept)), 0.0, 0.0, Most(0.0))
    for _, rows in chunks(block):
        scores, off = rows.scores(model.coef, model.intercept), score_errors(rows, model.coef, model.intercept)
        slopes = rows.loss.gradient(rows.y, scores)
        moves, largest = None, 0.0
        if size is not None:
            # The constraints were summed in an earlier pass, whose slopes may have been others by their errors.
            again = 2.0 * rows.loss.smoothness * off + FEW * np.abs(slopes)
            reach = np.linalg.norm(constraint_columns(rows), axis=1) * size * (1.0 + FEW)
            moves = (room_of(rows.loss, rows.y, -slopes) + again) * reach + again
            largest = float(reach.max(initial=0.0))
        total = weighted_sum(rows.weights, loss_terms(rows.loss, rows.y, scores, off, -slopes, moves))
        pulls, pull = rows.weights * slopes, np.zeros_like(found.pull)
        add_pulls(pull, rows, pulls)
        moved = 0.0 if moves is None else float(rows.weights @ moves**2)
        found = found + Terms(total, pull, float(pulls @ slopes), moved, Most(largest))
    return found


@final
@dataclass(frozen=True, eq=False)
class Constraints:
    """The sums of :func:`glru.certificate.constraint_sums`."""

    residual: Array
    sizes: Array
    gram: Array

    def __add__(self, other: "Constraints") -> "Constraints":
        return Constraints(self.residual + other.residual, self.sizes + other.sizes, self.gram + other.gram)


def constraints(block: Problem, number: int, start: int, model: Model) -> Constraints:
    """What the equality constraints ask of the dual point of a block."""
    size = block.unpenalised.size + int(block.fit_intercept)
    found = Constraints(np.zeros(size), np.zeros(size), np.zeros((size, size)))
    for _, rows in chunks(block):
        dual = -rows.loss.gradient(rows.y, rows.scores(model.coef, model.intercept))
        room = room_of(rows.loss, rows.y, dual)
        found = found + Constraints(*constraint_sums(constraint_columns(rows), rows.weights, dual, room))
    return found


@final
@dataclass(frozen=True, eq=False)
class DualGap:
    """The duality gap of a model and what it was summed from.

    Attributes
    ----------
    value : float
        At least ``P - D``; infinite where no dual feasible point is known.
    correlations : array of shape (n_columns,)
        ``X^T (s o a)``.
    dual_mass, row_total : float
        At least ``sum_i s_i a_i^2`` and ``sum_i s_i F_l(y_i; z_i, -a_i)``.
    """

    value: float
    correlations: Array
    dual_mass: float
    row_total: float


def dual_gap(problem: PartitionedProblem, model: Model) -> DualGap:
    """The duality gap of a model, in one pass, or in two where there are equality constraints."""
    size = None
    if not problem.is_plain:
        sums: Constraints = problem.blocks.total(constraints, problem.layout, model)
        size = move_size(sums.residual, sums.sizes, sums.gram, problem.depth)
    known = size is None or np.isfinite(size)
    found: Terms = problem.blocks.total(terms, problem.layout, model, size if known else 0.0)
    columns, norms = slice(problem.n_columns), problem.column_norms[: problem.n_columns]
    correlations = -found.pull[columns]
    mass = found.mass * (1.0 + gamma(problem.n_rows + 3))
    # With constraints the correlations were summed in another pass than the residual: they differ by the moves at most.
    moved = np.sqrt(found.moves) * (1.0 + gamma(problem.n_rows + 4))
    errors = (gamma(problem.depth + 3) * np.sqrt(mass) + moved) * norms * (1.0 + FEW)
    correlations[problem.unpenalised] = 0.0
    errors[problem.unpenalised] = 0.0
    total = found.total * (1.0 + gamma(problem.n_rows + 2))
    share = penalty_terms(problem.penalty, model.coef, correlations, errors)
    value = (total + float(share.sum())) * (1.0 + gamma(problem.n_columns + 8))
    inside = known and found.largest.value < 1.0 - FEW
    return DualGap(proven(value) if inside else np.inf, correlations, mass, total)
