"""The removal of any single row from sums over all rows: bounds of the rows of a block, wherever the blocks are.

The closed form is that of :mod:`glru.updates.removals`, the paper's bound that of :mod:`glru.updates.carried_rows`. Here the base
that all removals start from comes from an expansion (:mod:`glru.sums`), for rows of any weight.
"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds
from glru.certificate import score_errors
from glru.linalg import FEW, Array, gamma
from glru.metric.columns import ColumnMetric
from glru.point import Point
from glru.problem import Problem
from glru.regions.local import gradient_slack
from glru.regions.summed import largest_score_error, rough_top, slope_spread
from glru.rows import MAX_COLUMNS
from glru.solution import Solution
from glru.sums import Expansion, Floor, chunks, expand, whole_gradient, whole_hessian
from glru.updates.carried_rows import Carried, Kept, removal_factors, sum_error
from glru.updates.gradients import GradientNorms, slope_sums
from glru.updates.removals import Base, Decided, Measured, Removals, with_ones

Rows = NDArray[np.int64]

MAX_BASE_STEPS = 3
"""Newton steps to find the base."""

CLOSE = 4.0
"""The base is found when what is left of its Newton step is at most this many times as long as a removal's own step."""

NEGLIGIBLE_MOVE = 1e-9
"""A step that moves no score by more than this (times the self-concordance constant) is not worth a pass."""

MAX_STEPS = 30
"""Newton steps with the old Hessian, for all open rows together."""


def has_local_sums(problem: Problem) -> bool:
    """Whether the local certificate applies and its Hessian is small enough to sum over blocks."""
    return problem.loss.self_concordance is not None and problem.penalty.smooth and problem.n_columns <= MAX_COLUMNS


def require_local(problem: Problem, function: str) -> None:
    """Refuse rows in blocks that the local certificate does not apply to."""
    if not has_local_sums(problem):
        raise ValueError(
            f"{function} of rows in blocks needs the logistic or squared loss with an L2 penalty and at most "
            f"{MAX_COLUMNS} columns; got {problem!r}. Use a glru.Problem of data in memory."
        )


def factor_range(problem: Problem) -> tuple[float, float]:
    """The least and the largest factor of a removal that anything is proven of."""
    if problem.scaling == "sum":
        return 1.0, 1.0
    total, known = problem.total_weight, problem.weight_summary
    low, high = (total / (total - w) if 2.0 * w < total else 2.0 for w in (-known.least.value, known.largest.value))
    return low, high


@final
@dataclass(frozen=True, eq=False)
class LocalRemovals:
    """The removal of any row from a model, under the local certificate, for rows of any weight.

    Without row ``i`` the weights of the others are multiplied by ``phi_i``, so the gradient at the base is that of a middle
    factor and ``phi_i - middle`` times that of the losses alone: two steps serve all rows.

    Attributes
    ----------
    base : Base
        The metric with the middle factor; its ``eta`` and slack cover all others.
    point : Point
        The base model.
    middle : float
        The middle factor.
    step, step_norm : array, float
        Newton's step at the base with the middle factor, and at least its norm.
    drift, drift_norm : array, float
        The same for the gradient of the losses alone.
    """

    base: Base
    point: Point
    middle: float
    step: Array
    step_norm: float
    drift: Array
    drift_norm: float

    def removals(self, rows: Problem) -> tuple[Removals, NDArray[np.bool_]]:
        """The removals of some rows, and whether anything is known of each."""
        coef, intercept = self.point.coef, self.point.intercept
        factors = removal_factors(rows)
        known = np.isfinite(factors)
        factors = np.where(known, factors, self.middle)
        extra = factors - self.middle
        zero = Point(np.zeros_like(coef))
        directions = [self.point, zero.moved(self.step), zero.moved(self.drift)][: 3 if extra.any() else 2]
        # One product reads the rows once.
        images = rows.matrix @ np.column_stack([direction.coef for direction in directions])
        if rows.fit_intercept:
            images = images + np.array([direction.intercept for direction in directions])
        scores, moves, lengths = images[:, 0].copy(), images[:, 1].copy(), np.full(rows.n_rows, self.step_norm)
        _, slopes, bends = rows.loss.expand(rows.y, scores)
        if len(directions) == 3:
            moves = moves + extra * images[:, 2]
            lengths = (lengths + np.abs(extra) * self.drift_norm) * (1.0 + FEW)
        weights, off = factors * rows.weights, score_errors(rows, coef, intercept)
        norms = self.base.metric.norms(rows.matrix)
        return self.base.removals(weights, scores, off, slopes, bends, norms, moves, lengths), known

    def bounds(self, rows: Problem, top: float) -> tuple[Array, Array, Array]:
        """Bounds of held-out scores, and the rows' norms."""
        removals, known = self.removals(rows)
        lower, upper = self.base.bounds(removals, top)
        return np.where(known, lower, -np.inf), np.where(known, upper, np.inf), removals.norms

    def starts(self, rows: Problem) -> Array:
        """The base after the step that a removal shares, one row per removal."""
        packed = self.point.packed(rows.fit_intercept)
        factors = removal_factors(rows)
        extra = np.where(np.isfinite(factors), factors, self.middle) - self.middle
        return packed + self.step + extra[:, None] * self.drift

    def refined(self, whole: Problem, rows: Problem, numbers: Rows, top: float, decided: Decided) -> Bounds:
        """Bounds of some rows after Newton steps of their removals, measured on the whole problem.

        Parameters
        ----------
        whole : Problem
            All rows.
        rows, numbers : Problem, array of int
            The rows in question, and their numbers in the whole.
        top : float
            At least the largest norm of a row.
        decided : callable
            Says which bounds are good enough.
        """
        removals, known = self.removals(rows)
        chosen = np.flatnonzero(known & (removals.rest > 0.0))
        lower, upper = np.full(rows.n_rows, -np.inf), np.full(rows.n_rows, np.inf)
        if not chosen.size:
            return lower, upper
        rows, numbers = rows if chosen.size == rows.n_rows else rows.take(chosen), numbers[chosen]
        norms, factors = gradient_norms(whole, self.base.metric), removal_factors(rows)
        plain = np.sqrt(rows.squared_row_norms) * (1.0 + gamma(whole.n_columns + 4))
        block, totals = with_ones(rows.matrix, whole.fit_intercept), whole.totals
        off = largest_score_error(totals, self.point)

        def measure(models: Array, active: NDArray[np.intp]) -> Measured:
            own = whole.locate(numbers[active])
            sums: SlopeSums = whole.sum(slope_sums_without, models, self.point, own=own)
            gradient, nu = norms.at(models, factors[active] * sums.gradients, factors[active] * sums.squares)
            first, second = norms.score_errors(models)
            centers = np.einsum("ij,ji->i", block[active], models)
            moved = sums.moved + totals.largest_norm * first + second + off
            return Measured(centers, gradient, nu, moved, plain[active] * first + second)

        starts = self.starts(rows)
        lower[chosen], upper[chosen] = self.base.stepped(
            removals.take(chosen), block, starts, top, measure, decided, MAX_STEPS
        )
        return lower, upper


@final
@dataclass(frozen=True, eq=False)
class CarriedRemovals:
    """The removal of any row with the old optimum as the candidate."""

    carried: Carried
    point: Point

    def bounds(self, rows: Problem, top: float) -> tuple[Array, Array, Array]:
        """Bounds of held-out scores; there are no norms."""
        scores = rows.scores(self.point.coef, self.point.intercept)
        off = score_errors(rows, self.point.coef, self.point.intercept)
        dual = -rows.loss.gradient(rows.y, scores)
        # The sums were made in an earlier pass, whose dual variables may have been others by their errors.
        again = 2.0 * rows.loss.smoothness * off + FEW * np.abs(dual)
        lower, upper = self.carried.bounds(Kept(rows, removal_factors(rows), dual, again, None, scores, off), "primal")
        return lower, upper, np.zeros(0)


@final
@dataclass(frozen=True)
class NoRemovals:
    """Where nothing is proven of any row."""

    def bounds(self, rows: Problem, top: float) -> tuple[Array, Array, Array]:
        """Infinite bounds; there are no norms."""
        return np.full(rows.n_rows, -np.inf), np.full(rows.n_rows, np.inf), np.zeros(0)


AnyRemovals = LocalRemovals | CarriedRemovals | NoRemovals


def local_removals(solution: Solution) -> tuple[LocalRemovals, float] | None:
    """The removals of all rows and at least the largest norm of one; None where the local certificate proves nothing."""
    problem, point, here = solution.problem, solution.point, solution.expansion
    if here is None or here.hessian is None:
        here = expand(problem, point, Floor.of(problem.loss))
    n_steps = 0
    while True:
        found = _removals_at(problem, point, here)
        if found is None:
            return None
        top = rough_top(found.base.metric, problem.totals.largest_norm)
        # The step of a row of the largest weight and a slope of usual size.
        share = problem.weight_summary.largest.value / problem.total_weight
        usual = share * float(np.sqrt(here.square * problem.totals.weight_sum)) * top
        move = found.base.constant * top * found.step_norm
        if n_steps == MAX_BASE_STEPS or found.step_norm <= CLOSE * usual or move < NEGLIGIBLE_MOVE:
            return found, top
        point, n_steps = point.moved(found.step), n_steps + 1
        here = expand(problem, point, Floor.of(problem.loss))


def _removals_at(problem: Problem, point: Point, here: Expansion) -> LocalRemovals | None:
    assert here.hessian is not None
    low, high = factor_range(problem)
    middle, totals = 0.5 * (low + high), problem.totals
    matrix = whole_hessian(totals, here.hessian, middle)
    metric = ColumnMetric.of_hessian(matrix, totals.fit_intercept, totals.depth, totals.least_curvature)
    constant = float(problem.loss.self_concordance or 0.0)
    weight_error = sum_error(totals.depth)
    # The metric is that of the middle factor, at computed scores.
    grown = (1.0 + metric.eta) * (1.0 + weight_error) * max(high / middle, middle / low) * (1.0 + FEW)
    eta = float(grown * np.exp(constant * largest_score_error(totals, point) * (1.0 + FEW))) - 1.0
    if not eta < 0.5:
        return None
    spread = high * slope_spread(totals, point, here.square, weight_error) * (1.0 + FEW)
    slack = gradient_slack(spread, totals.column_norms, totals.quadratic, point.coef)
    slack_norm = metric.gradient_norm(np.zeros_like(slack), slack)
    whole = whole_gradient(totals, point, middle * here.gradient)
    return LocalRemovals(
        base=Base(metric, eta, constant, problem.loss.smoothness, slack_norm),
        point=point,
        middle=middle,
        step=metric.solve(-whole),
        step_norm=metric.gradient_norm(whole, np.zeros_like(whole)),
        drift=metric.solve(-here.gradient),
        drift_norm=metric.gradient_norm(here.gradient, np.zeros_like(whole)),
    )


def carried_removals(solution: Solution) -> CarriedRemovals:
    """The removals of all rows from the old optimum, where every dual point is feasible."""
    problem, gap = solution.problem, solution.dual_gap
    carried = Carried(
        depth=problem.totals.depth,
        coef=solution.coef,
        correlations=gap.correlations,
        column_norms=problem.totals.column_norms,
        dual_mass=gap.dual_square,
        row_total=gap.row_total,
        largest=factor_range(problem)[1],
        shared=problem.shared_columns,
    )
    return CarriedRemovals(carried, solution.point)


def gradient_norms(problem: Problem, metric: ColumnMetric) -> GradientNorms:
    """What bounds the norms of gradients without a row, whatever its factor."""
    (_, high), totals = factor_range(problem), problem.totals
    root = float(np.sqrt(high)) * (1.0 + FEW)
    return GradientNorms(
        metric=metric,
        depth=totals.depth,
        smoothness=problem.loss.smoothness,
        quadratic=totals.quadratic,
        total=totals.weight_sum * high * (1.0 + FEW),
        plain_mass=totals.norm * root,
        columns=totals.column_norms * root,
    )


@final
@dataclass(frozen=True, eq=False)
class SlopeSums:
    """Sums over the rows at several models, a column each: those of :func:`glru.updates.gradients.slope_sums`.

    Attributes
    ----------
    gradients, squares : array
        ``X^T (s o l')`` (the intercept's sum last) and ``sum_i s_i l'_i^2``.
    moved : array
        The largest move of a score from the base.
    """

    gradients: Array
    squares: Array
    moved: Array

    def __add__(self, other: "SlopeSums") -> "SlopeSums":
        moved = np.maximum(self.moved, other.moved)
        return SlopeSums(self.gradients + other.gradients, self.squares + other.squares, moved)


def slope_sums_without(part: Problem, own: Any, models: Array, base: Point) -> SlopeSums:
    """The sums of a part; ``own``: rows of it, and for each the model that is trained without it."""
    n_models = models.shape[1]
    found = SlopeSums(np.zeros(models.shape), np.zeros(n_models), np.zeros(n_models))
    places, owners = own or (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    for here, rows in chunks(part):
        mine = (places >= here.start) & (places < here.stop)
        without = places[mine] - here.start, owners[mine]
        scores, gradients, squares = slope_sums(rows, rows.weights, models, without)
        scores -= rows.scores(base.coef, base.intercept)[:, None]
        scores[without] = 0.0
        if not rows.weights.all():
            scores[rows.weights == 0.0] = 0.0
        found = found + SlopeSums(gradients, squares, np.abs(scores).max(axis=0))
    return found
