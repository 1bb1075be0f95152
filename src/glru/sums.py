r"""Sums over the rows of a problem at a point, each made in one pass: what training and certificates are built from.

*Expansion*: value, gradient and Hessian of the losses. *Dual gap*: the duality gap with :math:`a_i = -\ell'(z_i)`
(:mod:`glru.certificate`), repaired where an intercept or an unpenalised column asks for it: one pass, or two.

Sums over rows are rounded in whatever order blocks arrive; ``gamma`` of the problem's ``totals.depth`` covers that.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
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
from glru.linalg import FEW, Array, gamma
from glru.losses import Loss
from glru.point import Point
from glru.problem import Problem
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
    def of(cls, loss: Loss) -> "Floor":
        """The floor to begin with: none under a self-concordant loss, the highest under one that is flat in places."""
        return cls(loss, 0.0 if loss.self_concordance is not None else 1.0)

    @property
    def highest(self) -> bool:
        """Whether the model lies above the objective, so that its minimiser is no worse than where it stands."""
        return self.share == 1.0

    def raised(self, curvature: Array, scores: Array) -> Array:
        """The curvature at some scores with the floor under it."""
        if self.share == 0.0:
            return curvature
        return np.maximum(curvature, self.share * self.loss.majorant_curvature(scores))

    def after(self, length: float) -> "Floor":
        """The floor after a step of some length."""
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
class Expansion:
    """Sums over the rows at a point.

    Attributes
    ----------
    value : float
        ``sum_i s_i l_i``.
    gradient : array
        ``sum_i s_i l'_i x_i``, the intercept's entry last.
    square : float
        ``sum_i s_i l'_i^2``.
    hessian : array or None
        Upper triangle of ``sum_i s_i l''_i x_i x_i^T``; the lower one holds anything.
    """

    value: float
    gradient: Array
    square: float
    hessian: Array | None

    def __add__(self, other: "Expansion") -> "Expansion":
        hessian = None if self.hessian is None or other.hessian is None else self.hessian + other.hessian
        return Expansion(self.value + other.value, self.gradient + other.gradient, self.square + other.square, hessian)


def expand(problem: Problem, point: Point, floor: Floor | None = None) -> Expansion:
    """The expansion at a point, in one pass; with the Hessian where there is a floor under its curvatures."""
    found: Expansion = problem.sum(expand_part, point, floor)
    return found


def expand_part(part: Problem, point: Point, floor: Floor | None) -> Expansion:
    """The expansion of a part of the rows."""
    size = part.n_columns + int(part.fit_intercept)
    gradient, value, square = np.zeros(size), 0.0, 0.0
    hessian = None if floor is None else np.zeros((size, size))
    sparse = part.is_sparse
    curvatures = np.empty(part.n_rows if sparse and floor is not None else 0)
    for here, rows in chunks(part):
        scores = rows.scores(point.coef, point.intercept)
        values, slopes, bends = rows.loss.expand(rows.y, scores)
        value += float(rows.weights @ values)
        weighted = rows.weights * slopes
        square += float(weighted @ slopes)
        _add_gradient(gradient, rows, weighted)
        if floor is not None:
            bends = rows.weights * floor.raised(bends, scores)
            if sparse:
                curvatures[here] = bends
            else:
                _add_hessian(hessian, rows, bends)
    if sparse and floor is not None:
        _add_hessian(hessian, part, curvatures)
    return Expansion(value, gradient, square, hessian)


def _add_gradient(gradient: Array, rows: Problem, weighted: Array) -> None:
    """Add ``X^T v``, and the sum of ``v`` for the intercept."""
    gradient[: rows.n_columns] += rows.matrix.T @ weighted
    if rows.fit_intercept:
        gradient[-1] += weighted.sum()


def _add_hessian(hessian: Array | None, rows: Problem, curvatures: Array) -> None:
    assert hessian is not None
    size = rows.n_columns
    hessian[:size, :size] += rows.matrix.column_gram(curvatures)
    if rows.fit_intercept:
        hessian[:size, size] += rows.matrix.T @ curvatures
        hessian[size, size] += curvatures.sum()


def whole_gradient(totals: Totals, point: Point, gradient: Array) -> Array:
    """The objective's gradient from that of the losses."""
    whole = gradient.copy()
    whole[: totals.n_columns] += totals.quadratic * point.coef
    return whole


def whole_hessian(totals: Totals, hessian: Array, factor: float = 1.0) -> Array:
    """The objective's Hessian with the losses' multiplied by a factor; its upper triangle."""
    whole = factor * hessian
    whole[np.diag_indices(totals.n_columns)] += totals.quadratic
    return whole


def objective_value(totals: Totals, point: Point, here: Expansion) -> float:
    """``P`` at a point."""
    return here.value + float(totals.penalty.value(point.coef).sum())


def slopes_along(part: Problem, point: Point, step: Array, lengths: Array) -> Array:
    """The derivative of the losses along a step, at several lengths."""
    total, move = np.zeros(lengths.size), Point(np.zeros_like(point.coef)).moved(step)
    for _, rows in chunks(part):
        scores, moves = rows.scores(point.coef, point.intercept), rows.scores(move.coef, move.intercept)
        weighted = rows.weights * moves
        for k, length in enumerate(lengths):
            total[k] += float(weighted @ rows.loss.gradient(rows.y, scores + length * moves))
    return total


def hessian_product(part: Problem, point: Point, floor: Floor, vector: Array) -> Array:
    """The losses' Hessian at a point times a vector."""
    total, move = np.zeros_like(vector), Point(np.zeros_like(point.coef)).moved(vector)
    for _, rows in chunks(part):
        scores = rows.scores(point.coef, point.intercept)
        bends = floor.raised(rows.loss.curvature(rows.y, scores), scores)
        _add_gradient(total, rows, rows.weights * bends * rows.scores(move.coef, move.intercept))
    return total


@final
@dataclass(frozen=True, eq=False)
class DualTerms:
    """Sums over the rows for the duality gap, with ``a_i = -l'(z_i)``.

    Attributes
    ----------
    total : float
        At least ``sum_i s_i F_l(y_i; z_i, -a_i)``, for dual variables moved by at most ``moves``.
    gradient : array
        ``-sum_i s_i a_i x_i``, the intercept's entry last.
    square, moves : float
        ``sum_i s_i a_i^2`` and ``sum_i s_i moves_i^2``.
    largest : Max
        The largest move of a dual variable, as a share of its distance to the edge of the domain.
    """

    total: float
    gradient: Array
    square: float
    moves: float
    largest: Max

    def __add__(self, other: "DualTerms") -> "DualTerms":
        return DualTerms(
            self.total + other.total,
            self.gradient + other.gradient,
            self.square + other.square,
            self.moves + other.moves,
            self.largest + other.largest,
        )


def dual_terms(part: Problem, point: Point, size: float | None) -> DualTerms:
    """The terms of a part; ``size``: of the moves that meet the equality constraints, None where there are none."""
    found = DualTerms(0.0, np.zeros(part.n_columns + int(part.fit_intercept)), 0.0, 0.0, Max(0.0))
    for _, rows in chunks(part):
        scores, off = rows.scores(point.coef, point.intercept), score_errors(rows, point.coef, point.intercept)
        slopes = rows.loss.gradient(rows.y, scores)
        moves, largest = None, 0.0
        if size is not None:
            # The constraints were summed in an earlier pass, whose slopes may have been others by their errors.
            again = 2.0 * rows.loss.smoothness * off + FEW * np.abs(slopes)
            share = np.linalg.norm(constraint_columns(rows), axis=1) * size * (1.0 + FEW)
            moves = (room_of(rows.loss, rows.y, -slopes) + again) * share + again
            largest = float(share.max(initial=0.0))
        total = weighted_sum(rows.weights, loss_terms(rows.loss, rows.y, scores, off, -slopes, moves))
        weighted, gradient = rows.weights * slopes, np.zeros_like(found.gradient)
        _add_gradient(gradient, rows, weighted)
        moved = 0.0 if moves is None else float(rows.weights @ moves**2)
        found = found + DualTerms(total, gradient, float(weighted @ slopes), moved, Max(largest))
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


def constraints(part: Problem, point: Point) -> Constraints:
    """What the equality constraints ask of the dual point of a part."""
    size = part.unpenalised.size + int(part.fit_intercept)
    found = Constraints(np.zeros(size), np.zeros(size), np.zeros((size, size)))
    for _, rows in chunks(part):
        dual = -rows.loss.gradient(rows.y, rows.scores(point.coef, point.intercept))
        room = room_of(rows.loss, rows.y, dual)
        found = found + Constraints(*constraint_sums(constraint_columns(rows), rows.weights, dual, room))
    return found


@final
@dataclass(frozen=True, eq=False)
class DualGap:
    """The duality gap of a point and what it was summed from.

    Attributes
    ----------
    value : float
        At least ``P - D``; infinite where no dual feasible point is known.
    correlations : array of shape (n_columns,)
        ``X^T (s o a)``.
    dual_square, row_total : float
        At least ``sum_i s_i a_i^2`` and ``sum_i s_i F_l(y_i; z_i, -a_i)``.
    """

    value: float
    correlations: Array
    dual_square: float
    row_total: float


def dual_gap(problem: Problem, point: Point) -> DualGap:
    """The duality gap of a point, in one pass, or in two where there are equality constraints."""
    size, totals = None, problem.totals
    if not problem.is_strongly_convex:
        sums: Constraints = problem.sum(constraints, point)
        size = move_size(sums.residual, sums.sizes, sums.gram, totals.depth)
    known = size is None or np.isfinite(size)
    found: DualTerms = problem.sum(dual_terms, point, size if known else 0.0)
    columns, norms = slice(totals.n_columns), totals.column_norms[: totals.n_columns]
    correlations = -found.gradient[columns]
    square = found.square * (1.0 + gamma(totals.n_rows + 3))
    # With constraints the correlations were summed in another pass than the residual: they differ by the moves at most.
    moved = np.sqrt(found.moves) * (1.0 + gamma(totals.n_rows + 4))
    errors = (gamma(totals.depth + 3) * np.sqrt(square) + moved) * norms * (1.0 + FEW)
    correlations[problem.unpenalised] = 0.0
    errors[problem.unpenalised] = 0.0
    total = found.total * (1.0 + gamma(totals.n_rows + 2))
    share = penalty_terms(problem.penalty, point.coef, correlations, errors)
    value = (total + float(share.sum())) * (1.0 + gamma(totals.n_columns + 8))
    inside = known and found.largest.value < 1.0 - FEW
    return DualGap(proven(value) if inside else np.inf, correlations, square, total)
