r"""All leave-one-out removals at once, with the old optimum as the candidate (the paper's bound), in O(n d).

Removing row ``i`` scales the weights of the others by :math:`\varphi_i` (1 for scaling "sum") and turns the
correlations into :math:`\varphi_i (v - s_i a_i x_i)`. For an L2 penalty the Fenchel-Young terms then sum to

.. math:: \tfrac12 \|e_i + \varphi_i s_i a_i x_i\|^2_{\Lambda^{-1}}, \qquad e_i = \Lambda w - \varphi_i v,

which one product with X gives for all rows.

An L2 penalty makes the dual objective strongly concave in :math:`v`, too. With :math:`\hat v` the correlations after the removal,
:math:`L` the losses' terms and :math:`E^2 = \|\Lambda w - \hat v\|^2_{\Lambda^{-1}}`, the gap :math:`L + E^2 / 2` is at least
:math:`\tfrac12 \|w^* - w\|^2_\Lambda + \tfrac12 \|w^* - \Lambda^{-1} \hat v\|^2_\Lambda`, so that

.. math:: \|w^* - \tfrac12 (w + \Lambda^{-1} \hat v)\|^2_\Lambda \le L + \tfrac14 E^2 :

a ball inside the paper's one, at an optimum of half its radius.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, intersect, widen
from glru.certificate import ball_radius, loss_terms, penalty_terms, score_errors
from glru.linalg import FEW, HOST, TINY, Array, Matrix, gamma
from glru.problem import Point, Problem
from glru.regions.gap import centers
from glru.solution import Solution

CHUNK_ENTRIES = 1 << 22
"""Entries of a chunk where the penalty's terms are taken one by one."""


def removal_factors(problem: Problem) -> Array:
    """What the weights of the other rows are multiplied by when a row leaves."""
    if problem.scaling == "sum":
        return np.ones(problem.n_rows)
    remaining = problem.total_weight - problem.sample_weight
    factors = np.divide(problem.total_weight, remaining, out=np.full(problem.n_rows, np.inf), where=remaining > 0.0)
    # Without a row of more than half the weight the difference has lost digits: no bound is built on it.
    return np.where(factors <= 2.0, factors, np.inf)


def factor_range(problem: Problem) -> tuple[float, float]:
    """The least and the largest factor of a removal that anything is proven of."""
    if problem.scaling == "sum":
        return 1.0, 1.0
    total, known = problem.total_weight, problem.weight_summary
    low, high = (total / (total - w) if 2.0 * w < total else 2.0 for w in (-known.least.value, known.largest.value))
    return low, high


def weight_error(problem: Problem) -> float:
    """Relative error of a row's new weight, of rows in memory."""
    return sum_error(problem.n_rows)


def sum_error(depth: int) -> float:
    """Relative error of a row's new weight, and of a sum of terms with such weights.

    It is that of two sums of the weights, of the sum of the terms and of the operations between them; ``depth``: at least the
    additions that a row's share passes through in each, their number if nothing else is known.
    """
    return 8.0 * gamma(depth + 9)


def has_carried(problem: Problem) -> bool:
    """Whether the carried dual point stays feasible when a row leaves, and the penalty is strongly convex."""
    return not problem.fit_intercept and problem.penalty.strong_convexity > 0.0


def bound_carried(solution: Solution, bound: str) -> Bounds:
    """Bounds of every row's score under the model trained without it.

    ``bound``: the paper's "primal" or "dual" one or both ("auto"), or "midpoint": of an L2 penalty the smaller ball.
    """
    carried, rows = carried_of(solution)
    return carried.bounds(rows, bound)


def carried_of(solution: Solution) -> "tuple[Carried, Kept]":
    """A solution as what removals are carried through, and its rows."""
    problem, root = solution.problem, solution.certificate
    factors = removal_factors(problem)
    carried = Carried(
        depth=problem.n_rows,
        coef=solution.coef,
        correlations=root.correlations,
        column_norms=root.column_norms,
        dual_norm=root.dual_norm,
        row_total=root.row_total,
        largest=float(factors[np.isfinite(factors)].max(initial=1.0)),
        shared=problem.shared_columns,
    )
    return carried, Kept(problem, factors, solution.dual, 0.0, root.loss_terms, solution.scores, root.score_errors)


@final
@dataclass(frozen=True, eq=False)
class Kept:
    """Rows at the old optimum, an entry each."""

    problem: Problem  # the rows; their weights are those of the whole problem
    # What the weights of the other rows are multiplied by when the row leaves; infinite: nothing is proven.
    factors: Array
    # Their dual variables, and how far these may be from the ones in the sums.
    dual: Array
    dual_errors: Array | float
    terms: Array | None  # their Fenchel-Young terms as they are in the sum; None where they are not worth taking out
    # Their scores and how far each may be from its exact value.
    scores: Array
    score_errors: Array


@final
@dataclass(frozen=True, eq=False)
class Carried:
    """The old optimum and the sums over all rows that the removal of any one is carried through."""

    # An upper bound of the additions a row's share passes through in a sum over all rows: their number, if nothing else is known.
    depth: int
    # Shape (n_columns,): ``w``, ``X^T (s o a)`` and at least ``sqrt(sum_i s_i x_ij^2)``.
    coef: Array
    correlations: Array
    column_norms: Array
    # An upper bound of ``sqrt(sum_i s_i a_i^2)`` and ``sum_i s_i F_l(y_i; z_i, -a_i)``.
    dual_norm: float
    row_total: float
    largest: float  # the largest finite factor of a removal
    # Shape (n_columns,): the columns with values in more than one row, where there are others.
    shared: NDArray[np.bool_] | None

    def bounds(self, rows: Kept, bound: str) -> Bounds:
        """Bounds of the rows' scores under the models trained without them."""
        problem, known = rows.problem, np.isfinite(rows.factors)
        rows = replace(rows, factors=np.where(known, rows.factors, 1.0))
        own: Array | float = 0.0
        if rows.terms is not None:
            own = problem.weights * np.where(problem.weights > 0.0, rows.terms, 0.0)
        losses = rows.factors * (np.maximum(self.row_total - own, 0.0) + sum_error(self.depth) * self.row_total)
        penalties = self._penalty_sums(rows)
        if bound == "midpoint" and problem.penalty.smooth:
            squares = (losses + 0.5 * penalties) * (1.0 + gamma(problem.n_columns + 8))
            return self._bound_midpoint(rows, np.where(np.isfinite(squares) & known, squares, np.inf))
        gaps = (losses + penalties) * (1.0 + gamma(problem.n_columns + 8))
        gaps = np.where(np.isfinite(gaps) & known, gaps, np.inf)
        bounds = np.full(problem.n_rows, -np.inf), np.full(problem.n_rows, np.inf)
        if bound in ("primal", "midpoint", "auto"):
            bounds = intersect(bounds, self._bound_primal(rows, gaps))
        if bound in ("dual", "auto") and problem.penalty.smooth and np.isfinite(problem.loss.smoothness):
            bounds = intersect(bounds, self._bound_dual(rows, gaps))
        return bounds

    @cached_property
    def _errors(self) -> Array:
        """How far the correlations may be off after a removal, before they are scaled by its factor."""
        return sum_error(self.depth) * self.dual_norm * self.column_norms

    def _penalty_sums(self, rows: Kept) -> Array:
        """An upper bound of the penalty's Fenchel-Young sum after each removal."""
        problem, factors = rows.problem, rows.factors
        if not problem.penalty.smooth:
            return self._penalty_sums_by_row(rows)
        inverse = _inverse(problem)
        # |e_i + p x_i| <= |e_i| + |p| |x_i| is tight enough only if e_i is small; expand the square instead.
        (first, second), (a, b, c) = self._residuals(problem)
        extra = factors - 1.0
        rest = a - 2.0 * extra * b + extra**2 * c
        along = problem.matrix @ (inverse[:, None] * np.column_stack([first, second]))
        cross = along[:, 0] - extra * along[:, 1]
        norms = row_norms(problem)
        shift = factors * problem.weights * rows.dual
        # The square of a multiple may underflow where that of a row's own length does not.
        own = np.square(shift * np.sqrt(norms))
        squares = np.maximum(rest + 2.0 * shift * cross + own, 0.0)
        # Rounding: of the expanded square (each part keeps its own), then of the vectors themselves.
        parts = a + 2.0 * np.abs(extra) * np.sqrt(a) * np.sqrt(c) + extra**2 * c + own
        squares = squares + 8.0 * gamma(problem.n_columns + 8) * parts
        off = self._noise(problem) + self._shift_errors(rows, shift) * np.sqrt(norms) * (1.0 + FEW)
        return 0.5 * np.square(np.sqrt(squares) + off) * (1.0 + FEW)

    def _residuals(self, problem: Problem) -> tuple[tuple[Array, Array], tuple[float, float, float]]:
        """``lam w - v`` and ``v``, and their inner products: ``e_i = (lam w - v) - (phi_i - 1) v``."""
        inverse, second = _inverse(problem), self.correlations
        first = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,)) * self.coef - second
        pairs = (first, first), (first, second), (second, second)
        a, b, c = (float(u @ (inverse * v)) for u, v in pairs)
        return (first, second), (a, b, c)

    def _noise(self, problem: Problem) -> float:
        """An upper bound of the norm of the error of ``e_i``, whatever the row."""
        lam_w = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,)) * self.coef
        noise = self._errors * self.largest + FEW * (np.abs(lam_w) + np.abs(self.correlations))
        return float(np.sqrt(noise @ (_inverse(problem) * noise)))

    @staticmethod
    def _shift_errors(rows: Kept, shift: Array) -> Array:
        """How far the multiples ``phi_i s_i a_i`` of the rows may be off."""
        return FEW * np.abs(shift) + rows.factors * rows.problem.weights * rows.dual_errors

    def _penalty_sums_by_row(self, rows: Kept) -> Array:
        problem, factors = rows.problem, rows.factors
        weighted, weighted_errors = problem.weights * rows.dual, problem.weights * rows.dual_errors
        sums = np.empty(problem.n_rows)
        height = max(1, CHUNK_ENTRIES // problem.n_columns)
        for start in range(0, problem.n_rows, height):
            part = slice(start, min(start + height, problem.n_rows))
            block = problem.matrix[part].dense()
            moved = factors[part, None] * (self.correlations - weighted[part, None] * block)
            off = (FEW * np.abs(weighted) + weighted_errors)[part, None] * np.abs(block)
            slack = np.abs(factors[part, None]) * (self._errors + off * (1.0 + FEW))
            sums[part] = penalty_terms(problem.penalty, self.coef, moved, slack).sum(axis=1)
        return sums

    def _bound_primal(self, rows: Kept, gaps: Array) -> Bounds:
        problem = rows.problem
        part = problem.matrix if self.shared is None else problem.matrix.scale_columns(self.shared.astype(np.float64))
        scores = rows.scores if part is problem.matrix else part @ self.coef
        errors = rows.score_errors + FEW * np.abs(scores)
        return widen(scores, ball_radius(gaps) * shared_norms(problem, part) * (1.0 + FEW) + errors)

    def _bound_midpoint(self, rows: Kept, squares: Array) -> Bounds:
        """Bounds from the ball around the middle of ``w`` and ``v / lam``, given at least the squares of its radius.

        That middle scores ``x_i`` by ``z_i - (x_i^T Lambda^-1 e_i + phi_i s_i a_i |x_i|^2) / 2``. A row without values scores exactly 0.
        """
        problem, factors, inverse = rows.problem, rows.factors, _inverse(rows.problem)
        part = problem.matrix if self.shared is None else problem.matrix.scale_columns(self.shared.astype(np.float64))
        (first, second), (a, _, c) = self._residuals(problem)
        products = part @ np.column_stack([inverse * first, inverse * second, self.coef])
        scores = rows.scores if part is problem.matrix else products[:, 2]
        extra, shift = factors - 1.0, factors * problem.weights * rows.dual
        norms = row_norms(problem) if part is problem.matrix else part.squared_row_norms(inverse)
        moved = products[:, 0] - extra * products[:, 1] + shift * norms
        reach, unit = rounded_norms(norms, problem), 4.0 * gamma(problem.n_columns + 8)
        # The product with e_i and the square of the row's norm were rounded, and so were e_i and the multiple of the row.
        off = reach * (unit * (np.sqrt(a) + np.abs(extra) * np.sqrt(c)) + self._noise(problem)) * (1.0 + unit)
        off = off + (unit * np.abs(shift) + self._shift_errors(rows, shift)) * np.square(reach) * (1.0 + FEW)
        errors = rows.score_errors + off + FEW * (np.abs(scores) + np.abs(moved))
        lower, upper = widen(scores - 0.5 * moved, ball_radius(0.5 * squares) * reach * (1.0 + FEW) + errors)
        blank = np.flatnonzero(norms == 0.0)
        blank = blank[part[blank].absolute_product(np.ones(problem.n_columns)) == 0.0] if blank.size else blank
        lower[blank] = upper[blank] = 0.0
        return lower, upper

    def _bound_dual(self, rows: Kept, gaps: Array) -> Bounds:
        """Dual-SCB of an L2 penalty: the box's range of ``x_i . w``, which is linear in its half-widths."""
        problem, factors, inverse = rows.problem, rows.factors, _inverse(rows.problem)
        shift = factors * problem.weights * rows.dual
        norms = row_norms(problem)
        middle = factors * (problem.matrix @ (inverse * self.correlations)) - shift * norms
        sizes = abs(problem.matrix)
        # Terms may cancel in the product with X, so its rounding is that of a sum of absolute values.
        unit = 4.0 * gamma(problem.n_columns + 8)
        rounding = factors * (sizes @ (inverse * (self._errors + unit * np.abs(self.correlations)))) * (1.0 + unit)
        rounding = rounding + (unit * np.abs(shift) + 2.0 * factors * problem.weights * rows.dual_errors) * norms
        rounding = rounding + FEW * np.abs(middle)
        reach = ball_radius(problem.loss.smoothness * gaps * factors) * (sizes @ (inverse * self.column_norms))
        return widen(middle, reach * (1.0 + unit + sum_error(self.depth)) + rounding)


@final
@dataclass(frozen=True, eq=False)
class CarriedRemovals:
    """The removal of any row with the old optimum as the candidate, small enough to be sent to where the rows are."""

    carried: Carried
    point: Point

    def bounds(self, rows: Problem, largest_norm: float) -> tuple[Array, Array, Array]:
        """Bounds of held-out scores; there are no norms."""
        scores = rows.scores(self.point.coef, self.point.intercept)
        errors = score_errors(rows, self.point.coef, self.point.intercept)
        dual = -rows.loss.gradient(rows.y, scores)
        # The sums were made in an earlier pass, whose dual variables may have been others by their errors.
        again = 2.0 * rows.loss.slope_errors(rows.y, scores, errors) + FEW * np.abs(dual)
        kept = Kept(rows, removal_factors(rows), dual, again, None, scores, errors)
        lower, upper = self.carried.bounds(kept, "midpoint")
        return lower, upper, np.zeros(0)


def carried_removals(solution: Solution) -> CarriedRemovals:
    """The removals of all rows from the old optimum, where every dual point is feasible."""
    problem, gap = solution.problem, solution.dual_gap
    carried = Carried(
        depth=problem.totals.depth,
        coef=solution.coef,
        correlations=gap.correlations,
        column_norms=problem.totals.column_norms,
        dual_norm=gap.dual_norm,
        row_total=gap.row_total,
        largest=factor_range(problem)[1],
        shared=problem.shared_columns,
    )
    return CarriedRemovals(carried, solution.point)


@final
@dataclass(frozen=True)
class NoRemovals:
    """Where nothing is proven of any row."""

    def bounds(self, rows: Problem, largest_norm: float) -> tuple[Array, Array, Array]:
        """Infinite bounds; there are no norms."""
        return np.full(rows.n_rows, -np.inf), np.full(rows.n_rows, np.inf), np.zeros(0)


def _inverse(problem: Problem) -> Array:
    return 1.0 / problem.quadratic


def row_norms(problem: Problem) -> Array:
    """Squared norms of the rows in the metric of the penalty."""
    lam = problem.penalty.quadratic
    return problem.squared_row_norms / lam if lam.ndim == 0 else problem.matrix.squared_row_norms(1.0 / lam)


def shared_part(problem: Problem) -> Matrix:
    """X with zeros in all but the shared columns."""
    shared = problem.shared_columns
    return problem.matrix if shared is None else problem.matrix.scale_columns(shared.astype(np.float64))


def shared_norms(problem: Problem, part: Matrix) -> Array:
    """Upper bounds of the norms of the rows' shared parts in the metric of the penalty."""
    return rounded_norms(
        row_norms(problem) if part is problem.matrix else part.squared_row_norms(_inverse(problem)), problem
    )


def rounded_norms(squares: Array, problem: Problem) -> Array:
    """Norms in the metric of the penalty, rounded up, from their squares."""
    return np.sqrt(squares * (1.0 + gamma(problem.n_columns + 4))) * (1.0 + FEW) + TINY * scale(problem)


def scale(problem: Problem) -> float:
    """At least 1 and the largest ``1 / sqrt(lam_j)``."""
    return 1.0 + 1.0 / float(np.sqrt(problem.penalty.strong_convexity))


def carried_columns(solution: Solution, queries: Matrix, columns: NDArray[np.intp]) -> tuple[Array, Array]:
    """The paper's bound (Algorithm 5): Primal-SCB around the old optimum without each column.

    Needs a strongly convex penalty and no intercept.
    """
    problem, root = solution.problem, solution.certificate
    inverse = 1.0 / np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
    queries_squares = queries.squared_row_norms(inverse)
    score, score_off = centers(queries, solution.coef, 0.0)
    kept = penalty_terms(problem.penalty, solution.coef, root.correlations, root.correlation_errors)
    total = float(kept.sum()) * (1.0 + gamma(problem.n_columns + 2))
    lower, upper = np.empty((queries.shape[0], columns.size)), np.empty((queries.shape[0], columns.size))
    width = max(16, HOST.chunk // problem.n_rows)
    for start in range(0, columns.size, width):
        here = columns[start : start + width]
        block = problem.matrix.dense(here)
        moved = block * solution.coef[here]
        scores = solution.scores[:, None] - moved
        errors = root.score_errors[:, None] + 4.0 * FEW * (np.abs(moved) + np.abs(scores))
        terms = loss_terms(problem.loss, problem.y[:, None], scores, errors, solution.dual[:, None])
        terms[problem.weights == 0.0] = 0.0
        losses = (problem.weights @ terms) * (1.0 + gamma(problem.n_rows + 4))
        gaps = (losses + np.maximum(total - kept[here] * (1.0 - FEW), 0.0) + FEW * total) * (1.0 + FEW)
        gaps = np.where(np.isfinite(gaps), gaps, np.inf)
        asked = queries.dense(here)
        shift = asked * solution.coef[here]
        own = np.square(asked) * inverse[here]
        squares = queries_squares[:, None] - own + gamma(problem.n_columns + 8) * (queries_squares[:, None] + own)
        reach = rounded_norms(np.maximum(squares, 0.0), problem)
        off = score_off[:, None] + 4.0 * FEW * (np.abs(score)[:, None] + np.abs(shift))
        part = slice(start, start + width)
        lower[:, part], upper[:, part] = widen(score[:, None] - shift, ball_radius(gaps) * reach * (1.0 + FEW) + off)
    return lower, upper
