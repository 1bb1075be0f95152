r"""Sums over the rows of a problem at a point, each made in one pass: what training and certificates are built from.

*Expansion*: value, gradient and Hessian of the losses, with bounds of what rounding does to them. *Dual gap*: the duality gap with :math:`a_i = -\ell'(z_i)`
(:mod:`glru.certificate`), repaired where an intercept or an unpenalised column asks for it: one pass, or two.

Sums over rows are rounded in whatever order blocks arrive; ``gamma`` of the problem's ``totals.depth`` covers that.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.certificate import bound_or_inf, loss_terms, penalty_terms, score_errors, weighted_sum
from glru.duality import measure_slack, move_sizes, stack_constraint_columns, sum_constraints
from glru.linalg import FEW, Array, gamma, get_arrays, weighted_norm
from glru.losses import Loss
from glru.metric.columns import ColumnMetric
from glru.problem import Point, Problem
from glru.rows import Max, Totals


@final
@dataclass(frozen=True)
class Floor:
    """A floor under the curvature of the losses, where a Newton model would promise too much.

    The floor is a share of the curvature of a quadratic that lies above the loss. It sinks by ten with every good step
    until it is gone, and rises when the line search has to shorten one a lot. A Newton step with raised curvature stays
    a descent direction, and its linearised dual point stays feasible.
    """

    loss: Loss
    share: float

    @classmethod
    def of(cls, loss: Loss, pieces: bool = False) -> "Floor":
        """The floor to begin with: none under a self-concordant loss, the highest under one that is flat in places; ``pieces``: none under a piecewise quadratic one either."""
        return cls(loss, 0.0 if loss.self_concordance is not None or (pieces and loss.piecewise) else 1.0)

    @property
    def highest(self) -> bool:
        """Whether the model lies above the objective, so that its minimiser is no worse than where it stands."""
        return self.share == 1.0

    def raise_floor(self, curvature: Array, scores: Array) -> Array:
        """The curvature at some scores with the floor under it."""
        if self.share == 0.0:
            return curvature
        return np.maximum(curvature, self.share * self.loss.majorant_curvature(scores))

    def after(self, length: float) -> "Floor":
        """The floor after a step of some length; no quadratic lies above a loss whose curvature has no bound."""
        if (self.share == 0.0 and length >= 0.1) or not np.isfinite(self.loss.smoothness):
            return self
        if length >= 0.1:
            share = 0.1 * self.share
            return replace(self, share=share if share > 1e-4 else 0.0)
        return replace(self, share=min(max(10.0 * self.share, 1e-3), 1.0))


def chunks(part: Problem, times: int = 1) -> Iterator[tuple[slice, Problem]]:
    """Rows in memory in consecutive chunks; ``times`` as high where nothing is summed over their rows."""
    n_rows, height = part.n_rows, part.matrix.chunk_height(times)
    if n_rows <= height:
        yield slice(0, n_rows), part
        return
    for start in range(0, n_rows, height):
        here = slice(start, min(start + height, n_rows))
        yield here, Problem.of_rows(part.objective, part.matrix[here], part.y[here], part.sample_weight[here])


@final
@dataclass(frozen=True, eq=False)
class RowValues:
    """What a model makes of rows in memory: their scores, and slopes and curvatures of their losses, one entry per row."""

    scores: Array
    slopes: Array
    curvatures: Array

    def take(self, places: NDArray[np.intp] | slice) -> "RowValues":
        """The values of some rows."""
        return RowValues(self.scores[places], self.slopes[places], self.curvatures[places])


@final
@dataclass(frozen=True, eq=False)
class Expansion:
    """Sums over the rows at a point."""

    value: float  # ``sum_i s_i l_i``
    gradient: Array  # ``sum_i s_i l'_i x_i``, the intercept's entry last
    slope_norm: float  # ``sqrt(sum_i s_i l'_i^2)``
    hessian: Any  # upper triangle of ``sum_i s_i l''_i x_i x_i^T``, where X lives; the lower one holds anything
    rows: RowValues | None = None  # what was summed, of rows in memory
    curvature_norm: float = 0.0  # ``sqrt(sum_i s_i l''_i^2)`` of a loss without smoothness

    def __add__(self, other: "Expansion") -> "Expansion":
        hessian = None if self.hessian is None or other.hessian is None else self.hessian + other.hessian
        return Expansion(
            self.value + other.value,
            self.gradient + other.gradient,
            float(np.hypot(self.slope_norm, other.slope_norm)),
            hessian,
            curvature_norm=float(np.hypot(self.curvature_norm, other.curvature_norm)),
        )


def expand(problem: Problem, point: Point, floor: Floor | None = None) -> Expansion:
    """The expansion at a point, in one pass; with the Hessian where there is a floor under its curvatures."""
    found: Expansion = problem.sum(expand_part, point, floor, problem.in_memory)
    return found


@final
class Expansions(tuple[Expansion, ...]):
    """Expansions at several points, summed up together."""

    __slots__ = ()

    def __add__(self, other: Any) -> "Expansions":
        return Expansions(mine + theirs for mine, theirs in zip(self, other, strict=True))


def expand_sets(problem: Problem, sets: Sequence[tuple[NDArray[np.intp], Point]], floor: Floor) -> Expansions:
    """The expansions, with Hessians, of the models of several sets of columns at a point each, in one pass over the rows."""
    found: Expansions = problem.sum(_expand_sets, tuple(sets), floor)
    return found


def _expand_sets(part: Problem, sets: Sequence[tuple[NDArray[np.intp], Point]], floor: Floor) -> Expansions:
    def select(columns: NDArray[np.intp]) -> Problem:
        # A part of the rows keeps the weights that these have among all rows.
        objective = replace(part.objective, penalty=part.penalty.select(columns))
        return Problem.of_rows(objective, part.matrix[:, columns], part.y, part.sample_weight)

    return Expansions(expand_part(select(columns), point, floor) for columns, point in sets)


def expand_part(part: Problem, point: Point, floor: Floor | None, keep: bool = False) -> Expansion:
    """The expansion of a part of the rows; ``keep``: with what was summed, and in one product for all rows."""
    gradient, value, size, curved = np.zeros(part.n_columns + int(part.fit_intercept)), 0.0, 0.0, 0.0
    hessian: Any = None
    # The Gram matrix of a sparse part is quickest in one product.
    at_once = part.is_sparse and not keep
    collected = np.empty(part.n_rows if at_once and floor is not None else 0)
    for here, rows in [(slice(0, part.n_rows), part)] if keep else chunks(part):
        scores = rows.scores(point.coef, point.intercept)
        total, _, slopes, curvatures = rows.loss.expand_sum(rows.weights, rows.y, scores, rows.loss_constant)
        value += total
        weighted = rows.weights * slopes
        size = float(np.hypot(size, weighted_norm(rows.weights, slopes, weighted)))
        if not np.isfinite(rows.loss.smoothness):
            curved = float(np.hypot(curved, weighted_norm(rows.weights, curvatures)))
        _add_gradient(gradient, rows, weighted)
        if floor is None:
            continue
        raised = rows.weights * floor.raise_floor(curvatures, scores)
        if at_once:
            collected[here] = raised
        elif hessian is None:
            hessian = loss_hessian(rows, raised)
        else:
            hessian += loss_hessian(rows, raised)
    if at_once and floor is not None:
        hessian = loss_hessian(part, collected)
    return Expansion(value, gradient, size, hessian, RowValues(scores, slopes, curvatures) if keep else None, curved)


def _add_gradient(gradient: Array, rows: Problem, weighted: Array) -> None:
    """Add ``X^T v``, and the sum of ``v`` for the intercept."""
    gradient[: rows.n_columns] += rows.matrix.T @ weighted
    if rows.fit_intercept:
        gradient[-1] += weighted.sum()


def loss_hessian(rows: Problem, curvatures: Array) -> Any:
    """Upper triangle of the losses' Hessian from weighted curvatures, the intercept's row and column last, where X lives."""
    gram = rows.matrix.column_gram(curvatures)
    if not rows.fit_intercept:
        return gram
    return rows.arrays.add_border(gram, rows.matrix.T @ curvatures, float(curvatures.sum()))


def assemble_gradient(totals: Totals, point: Point, gradient: Array) -> Array:
    """The objective's gradient from that of the losses."""
    whole = gradient.copy()
    whole[: totals.n_columns] += totals.quadratic * point.coef + totals.penalty.linear
    return whole


def assemble_hessian(totals: Totals, hessian: Any, factor: float = 1.0, strength: float = 1.0) -> Any:
    """The objective's Hessian with the losses' and the penalty's multiplied by a factor each; its upper triangle."""
    strengths = np.append(totals.quadratic, 0.0) if totals.fit_intercept else totals.quadratic
    return get_arrays(hessian).add_diagonal(factor * hessian, strength * strengths)


@final
@dataclass(frozen=True)
class ScoreErrors:
    """How far computed scores may be from their exact values, over all rows."""

    largest: float  # at least the largest error of a row whose weight is above 0
    spread: float  # at least ``sqrt(sum_i s_i e_i^2)``


NO_ERRORS = ScoreErrors(0.0, 0.0)


def score_errors_of_totals(totals: Totals, point: Point) -> ScoreErrors:
    """The errors of all scores at a point, without a pass: that of a row is at most ``gamma`` of ``|x| |w| + |b|``."""
    unit = gamma(totals.n_columns + 3) * (1.0 + gamma(totals.n_columns + 8))
    with np.errstate(over="ignore"):  # an infinite error: nothing is proven then
        length = unit * float(np.linalg.norm(point.coef)) * (1.0 + gamma(totals.n_columns))
    shift = unit * abs(point.intercept) + totals.score_noise
    return ScoreErrors(
        (totals.largest_norm * length + shift) * (1.0 + FEW),
        length * totals.norm + shift * float(np.sqrt(totals.weight_sum)),
    )


def score_errors_of_rows(problem: Problem, errors: Array) -> ScoreErrors:
    """The errors of all scores from those of the rows, which are in memory."""
    spread = float(weighted_norm(problem.weights, errors)) * (1.0 + gamma(problem.n_rows + 8))
    return ScoreErrors(float(errors[problem.weights > 0.0].max()), spread)


def gradient_errors(totals: Totals, point: Point, here: Expansion, errors: ScoreErrors, share: float) -> Array:
    """How far each entry of the objective's gradient (the intercept's last) may be off.

    The errors are those of the slopes, at scores that are off and by their own evaluation, of their weights and of sums of
    them (Minkowski's inequality), and of the penalty's product. Column by column they follow from Cauchy-Schwarz. ``here``: the sums at the point;
    ``errors``: those of the scores; ``share``: the relative error of a weight and of a sum over the rows.
    """
    size = here.slope_norm * (1.0 + gamma(2 * totals.n_rows + 8))
    slopes = slope_spread(totals, errors.spread, errors.largest, here.curvature_norm)
    spread = ((share + FEW) * size + slopes) * (1.0 + FEW)
    slack = spread * totals.column_norms
    slack[: totals.n_columns] += FEW * (totals.quadratic * np.abs(point.coef) + np.abs(totals.penalty.linear))
    return slack * (1.0 + FEW)


def sum_closely(
    problem: Problem,
    point: Point,
    rows: RowValues,
    errors: Array,
    metric: ColumnMetric,
    near: float,
    share: float,
    factors: tuple[float, float] = (1.0, 1.0),
) -> tuple[Array, float]:
    r"""The gradient of the losses, summed in NumPy's long double, and at least the norm of the error of the whole gradient.

    Errors :math:`\epsilon` of the weighted slopes are no larger in the metric than over the roots of the curvatures, however near to dependent the columns are:
    :math:`\|X^\top \epsilon\|_{H^{-1}} \le \|D^{-1/2} \epsilon\|`, since :math:`H \succeq X^\top D X`. Only what the sums lose is an error of entries of the gradient.

    The rows are dense and in memory. ``rows``, ``errors``: the values of the model, and at least the errors of its scores; ``near``: at least the norm in the
    inverse of the metric of a vector whose norm in that of the exact Hessian is 1; ``share``: the relative error of a weight; ``factors``: what the weights are
    multiplied by in the Hessian, and at most in the objective.
    """
    (middle, high), totals, used, X = factors, problem.totals, problem.weights > 0.0, problem.matrix.dense()
    forces = problem.weights * rows.slopes
    summed = X.astype(np.longdouble).T @ forces.astype(np.longdouble)
    sizes = np.abs(X).T @ np.abs(forces)
    if problem.fit_intercept:
        summed = np.append(summed, forces.astype(np.longdouble).sum())
        sizes = np.append(sizes, np.abs(forces).sum())
    losses = summed.astype(np.float64)
    unit = 4.0 * (problem.n_rows + 16) * float(np.finfo(np.longdouble).eps)
    slack = high * (unit * sizes + FEW * np.abs(losses))
    slack[: problem.n_columns] += FEW * (totals.quadratic * np.abs(point.coef) + np.abs(totals.penalty.linear))
    constant = float(problem.loss.self_concordance or 0.0)
    with np.errstate(all="ignore"):
        weights, slopes, curvatures = problem.weights[used], rows.slopes[used], rows.curvatures[used]
        # Relative errors of weights and slopes; slopes at scores that are off differ by the curvatures on the way.
        relative = (share + FEW) * float(np.sqrt(weights @ (np.square(slopes) / curvatures)))
        moved = float(np.sqrt((weights * curvatures) @ np.square(errors[used])))
        moved *= float(np.exp(constant * errors[used].max(initial=0.0))) * (1.0 + FEW)
        found = metric.error_norm(slack * (1.0 + FEW))
        found += high / np.sqrt(middle) * (relative + moved) * near
    return losses, float(found * (1.0 + gamma(problem.n_rows + 32)))


def slope_spread(totals: Totals, spread: Any, largest: Any, curvature_norm: Any) -> Any:
    """An upper bound of ``sqrt(sum_i s_i e_i^2)`` for the errors of slopes at scores that are off, one entry per model.

    ``spread``, ``largest``: the same of the scores, and their largest error; ``curvature_norm``: ``sqrt(sum_i s_i l''_i^2)``, which serves where the
    loss has no smoothness (:meth:`~glru.losses.Loss.slope_errors`).
    """
    loss = totals.loss
    if np.isfinite(loss.smoothness) or loss.self_concordance is None:
        return loss.smoothness * spread
    size = curvature_norm * (1.0 + gamma(2 * totals.n_rows + 8))
    return size * largest * np.exp(loss.self_concordance * largest) * (1.0 + FEW)


def slope_error_norm(loss: Loss, spread: Any, moved: Any) -> Any:
    r"""An upper bound of the norm in the inverse Hessian :math:`H` of what errors :math:`e` of the scores add to the gradient, one entry per model.

    .. math:: \|X^\top S \epsilon\|_{H^{-1}} \le \Bigl(\sum_k s_k \epsilon_k^2 / h_k\Bigr)^{1/2}
              \le \Bigl(\mu e^{M t} \sum_k s_k e_k^2\Bigr)^{1/2} ,

    since :math:`H \succeq X^\top S \operatorname{diag}(h) X`, and the slope of a row is off by :math:`|\epsilon_k| \le h(\xi_k) e_k` with a curvature
    that is at most :math:`\mu`, and at most :math:`e^{M t}` times the one in the Hessian. No norm of a column is in it, so that rows of huge norm
    and tiny curvature cost nothing. Infinite for a loss without both constants, its smoothness ``mu`` and self-concordance ``M``.

    ``spread``: at least ``sqrt(sum_k s_k e_k^2)``, with the weights that the slopes and the curvatures of the Hessian have; ``moved``: ``t``, at least the
    distance of any score, exact or computed, from the one that the Hessian was taken at.
    """
    if loss.self_concordance is None or not np.isfinite(loss.smoothness):
        return np.inf * spread
    with np.errstate(over="ignore"):
        return spread * np.sqrt(loss.smoothness * np.exp(loss.self_concordance * moved * (1.0 + FEW))) * (1.0 + FEW)


def objective_value(totals: Totals, point: Point, here: Expansion) -> float:
    """``P`` at a point."""
    return here.value + float(totals.penalty.value(point.coef).sum())


def hessian_product(part: Problem, point: Point, floor: Floor, vector: Array) -> Array:
    """The losses' Hessian at a point times a vector."""
    total, move = np.zeros_like(vector), Point(np.zeros_like(point.coef)).move(vector)
    for _, rows in chunks(part):
        scores = rows.scores(point.coef, point.intercept)
        curvatures = floor.raise_floor(rows.loss.curvature(rows.y, scores), scores)
        _add_gradient(total, rows, rows.weights * curvatures * rows.scores(move.coef, move.intercept))
    return total


@final
@dataclass(frozen=True, eq=False)
class DualTerms:
    """Sums over the rows for the duality gap, with ``a_i = -l'(z_i)``."""

    total: float  # at least ``sum_i s_i F_l(y_i; z_i, -a_i)``, for dual variables moved by at most ``moves``
    gradient: Array  # ``-sum_i s_i a_i x_i``, the intercept's entry last
    # ``sqrt(sum_i s_i a_i^2)`` and ``sqrt(sum_i s_i moves_i^2)``.
    dual_norm: float
    moves: float
    largest: Max  # the largest move of a dual variable, as a share of its distance to the edge of the domain

    def __add__(self, other: "DualTerms") -> "DualTerms":
        return DualTerms(
            self.total + other.total,
            self.gradient + other.gradient,
            float(np.hypot(self.dual_norm, other.dual_norm)),
            float(np.hypot(self.moves, other.moves)),
            self.largest + other.largest,
        )


def dual_terms(part: Problem, point: Point, sizes: Array | None) -> DualTerms:
    """The terms of a part; ``sizes``: of the moves that meet the equality constraints, None where there are none."""
    found = DualTerms(0.0, np.zeros(part.n_columns + int(part.fit_intercept)), 0.0, 0.0, Max(0.0))
    for _, rows in chunks(part):
        scores, off = rows.scores(point.coef, point.intercept), score_errors(rows, point.coef, point.intercept)
        slopes = rows.loss.gradient(rows.y, scores)
        moves, largest = None, 0.0
        if sizes is not None:
            # The constraints were summed in an earlier pass, whose slopes may have been others by their errors.
            again = 2.0 * rows.loss.slope_errors(rows.y, scores, off) + FEW * np.abs(slopes)
            share = np.linalg.norm(stack_constraint_columns(rows) * sizes, axis=1) * (1.0 + FEW)
            moves = (measure_slack(rows.loss, rows.y, -slopes) + again) * share + again
            largest = float(share.max(initial=0.0))
        total = weighted_sum(rows.weights, loss_terms(rows.loss, rows.y, scores, off, -slopes, moves))
        weighted, gradient = rows.weights * slopes, np.zeros_like(found.gradient)
        _add_gradient(gradient, rows, weighted)
        moved = 0.0 if moves is None else float(weighted_norm(rows.weights, moves))
        size_here = float(weighted_norm(rows.weights, slopes, weighted))
        found = found + DualTerms(total, gradient, size_here, moved, Max(largest))
    return found


@final
@dataclass(frozen=True, eq=False)
class Constraints:
    """The sums of :func:`glru.duality.sum_constraints`."""

    residual: Array
    sizes: Array
    gram: Array

    def __add__(self, other: "Constraints") -> "Constraints":
        return Constraints(self.residual + other.residual, self.sizes + other.sizes, self.gram + other.gram)


def constraints(part: Problem, point: Point) -> Constraints:
    """What the equality constraints ask of the dual point of a part."""
    size = part.unpenalised.size + int(part.fit_intercept)
    found = Constraints(np.zeros(size), np.zeros(size), np.zeros((size, size)))
    for _, rows in chunks(part):
        dual = -rows.loss.gradient(rows.y, rows.scores(point.coef, point.intercept))
        slack = measure_slack(rows.loss, rows.y, dual)
        found = found + Constraints(*sum_constraints(stack_constraint_columns(rows), rows.weights, dual, slack))
    return found


@final
@dataclass(frozen=True, eq=False)
class DualGap:
    """The duality gap of a point and what it was summed from."""

    value: float  # at least ``P - D``; infinite where no dual feasible point is known
    correlations: Array  # shape (n_columns,): ``X^T (s o a)``
    # An upper bound of ``sqrt(sum_i s_i a_i^2)`` and ``sum_i s_i F_l(y_i; z_i, -a_i)``.
    dual_norm: float
    row_total: float


def dual_gap(problem: Problem, point: Point) -> DualGap:
    """The duality gap of a point, in one pass, or in two where there are equality constraints."""
    sizes, totals = None, problem.totals
    if not problem.is_strongly_convex:
        sums: Constraints = problem.sum(constraints, point)
        sizes = move_sizes(sums.residual, sums.sizes, sums.gram, totals.depth)
    known = sizes is None or bool(np.isfinite(sizes).all())
    found: DualTerms = problem.sum(dual_terms, point, sizes if sizes is None or known else np.zeros_like(sizes))
    columns, norms = slice(totals.n_columns), totals.column_norms[: totals.n_columns]
    correlations = -found.gradient[columns]
    dual_norm = found.dual_norm * (1.0 + gamma(2 * totals.n_rows + 8))
    # With constraints the correlations were summed in another pass than the residual: they differ by the moves at most.
    moved = found.moves * (1.0 + gamma(2 * totals.n_rows + 8))
    errors = (gamma(totals.depth + 3) * dual_norm + moved) * norms * (1.0 + FEW)
    correlations[problem.unpenalised] = 0.0
    errors[problem.unpenalised] = 0.0
    total = found.total * (1.0 + gamma(totals.n_rows + 2))
    share = penalty_terms(problem.penalty, point.coef, correlations, errors)
    value = (total + float(share.sum())) * (1.0 + gamma(totals.n_columns + 8))
    inside = known and found.largest.value < 1.0 - FEW
    return DualGap(bound_or_inf(value) if inside else np.inf, correlations, dual_norm, total)
