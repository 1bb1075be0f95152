"""What a model with one score per class makes of the rows, and sums of it, in memory and in blocks."""

from dataclasses import dataclass
from typing import final

import numpy as np

from glru.certificate import class_score_errors
from glru.linalg import FEW, TINY, Array, gamma, weighted_norm
from glru.losses import Multinomial
from glru.losses.logistic import softmax
from glru.metric.classes import EXPONENTS, loss_hessian
from glru.problem import Point, Problem
from glru.rows import Max
from glru.sums import chunks


@final
@dataclass(frozen=True, eq=False)
class ClassValues:
    """What a model makes of the rows: scores and probabilities, one line per row, and how far a row's scores may be off."""

    scores: Array
    likely: Array
    errors: Array

    @classmethod
    def at(cls, problem: Problem, point: Point) -> "ClassValues":
        """The values of all rows at a point."""
        scores = problem.scores(point.coef, point.intercept)
        return cls(scores, np.ascontiguousarray(softmax(scores)), class_score_errors(problem, point))

    def slopes(self, problem: Problem) -> Array:
        """``p - e_y``."""
        assert isinstance(problem.loss, Multinomial)
        return problem.loss.slopes_of(problem.y, self.likely)


def pack_classes(point: Point, fit_intercept: bool) -> Array:
    """Coefficients and intercepts, one line per class, the intercept last."""
    return np.column_stack([point.coef, point.intercept]) if fit_intercept else point.coef


def unpack_classes(model: Array, fit_intercept: bool) -> Point:
    """The point of coefficients with the intercepts last."""
    return (
        Point(model[:, :-1].copy(), model[:, -1].copy()) if fit_intercept else Point(model.copy(), np.zeros(len(model)))
    )


SUMMED_ROWS = 1 << 10
"""Dense rows whose slopes are summed in one product; these sums are then added, so that rounding does not grow with the number of rows."""


def loss_gradient(problem: Problem, slopes: Array) -> Array:
    """``sum_i s_i g_i x_i^T``, one line per class, the intercept's entry last."""
    weighted, X = problem.weights[:, None] * slopes, problem.matrix
    if problem.n_rows <= SUMMED_ROWS or not (X.stores_zeros and X.arrays.stable):
        gradient, border = X.T @ weighted, weighted.sum(axis=0)
    else:
        parts = [slice(k, k + SUMMED_ROWS) for k in range(0, problem.n_rows, SUMMED_ROWS)]
        gradient, border = (
            sum(X[part].T @ weighted[part] for part in parts),
            sum(weighted[part].sum(axis=0) for part in parts),
        )
    return np.column_stack([gradient.T, border]) if problem.fit_intercept else gradient.T


def gradient_depth(problem: Problem) -> int:
    """An upper bound of the additions that a row's share of :func:`loss_gradient` passes through, or of a sum of these over blocks."""
    if not (problem.in_memory and problem.matrix.stores_zeros and problem.arrays.stable):
        return problem.totals.depth
    return min(problem.totals.depth, SUMMED_ROWS + problem.n_rows // SUMMED_ROWS + 2)


@final
@dataclass(frozen=True, eq=False)
class ClassSums:
    """Sums over the rows at a model with one score per class."""

    value: float  # ``sum_i s_i l_i``
    gradient: Array  # shape (n_classes, n_unknowns): that of the losses, :func:`loss_gradient`
    slope_norms: Array  # shape (n_classes,): ``sqrt(sum_i s_i g_ia^2)``
    error_norm: float  # ``sqrt(sum_i s_i e_i^2)``, ``e_i`` how far the scores of a row may be off
    largest_error: Max  # the largest of these of a row that counts
    # Shape (n_classes, n_unknowns, n_classes, n_unknowns): that of the losses, if it was asked for.
    hessian: Array | None = None

    def __add__(self, other: "ClassSums") -> "ClassSums":
        return ClassSums(
            self.value + other.value,
            self.gradient + other.gradient,
            np.hypot(self.slope_norms, other.slope_norms),
            float(np.hypot(self.error_norm, other.error_norm)),
            self.largest_error + other.largest_error,
            None if self.hessian is None or other.hessian is None else self.hessian + other.hessian,
        )

    @classmethod
    def of(cls, part: Problem, values: ClassValues, slopes: Array, curved: bool = False) -> "ClassSums":
        """The sums over rows in memory whose values are known; ``curved``: with the Hessian."""
        used = part.weights > 0.0
        return cls(
            float(part.weights @ part.loss.value(part.y, values.scores)),
            loss_gradient(part, slopes),
            np.asarray(weighted_norm(part.weights, slopes)),
            float(weighted_norm(part.weights, values.errors)),
            Max(float(values.errors[used].max(initial=0.0))),
            loss_hessian(part, values.likely) if curved else None,
        )

    def slope_error(self, problem: Problem, share: float) -> float:
        """An upper bound of ``sqrt(sum_i s_i e_i^2)``, ``e_i`` what the slope of a row and class at the computed scores, and its part of a sum, may be off.

        ``share``: relative error of a weight and of a sum over the rows.
        """
        size = float(self.slope_norms.max()) * (1.0 + gamma(problem.n_rows + 8))
        # A slope is a probability, or minus the sum of the others: it is off by a share of itself.
        own = gamma(2 * self.slope_norms.size + EXPONENTS) * size
        return (share * size + own) * (1.0 + FEW) + TINY

    def score_error(self, problem: Problem) -> float:
        r"""An upper bound of the norm, in the inverse of the Hessian at the computed scores, of the gradient's error for errors of the scores.

        The slopes of row ``i`` at scores that are off by ``u``, at most ``e_i`` each, are off by :math:`\bar h u` with :math:`\bar h \preceq e^{2 e_i} h`. By Cauchy's inequality
        the sum of :math:`s_i \bar h_i u_i` times the rows has at most the norm :math:`(\sum_i s_i u_i^\top h_i u_i)^{1/2}` times the largest factor, and
        :math:`u^\top h u` is a variance of numbers whose range is at most :math:`2 e_i`.
        """
        unit = 1.0 + gamma(problem.n_rows + 8)
        return float(np.exp(2.0 * self.largest_error.value)) * self.error_norm * unit * (1.0 + FEW) + TINY


def sum_classes(problem: Problem, point: Point) -> ClassSums:
    """The sums at a model in one pass over the rows, with the Hessian."""
    found: ClassSums = problem.sum(_sum_part, point)
    return found


def _sum_part(part: Problem, point: Point) -> ClassSums:
    total: ClassSums | None = None
    for _, rows in chunks(part):
        values = ClassValues.at(rows, point)
        here = ClassSums.of(rows, values, values.slopes(rows), curved=True)
        total = here if total is None else total + here
    assert total is not None
    return total
