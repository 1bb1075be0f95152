r"""Wide problems with one score per class in the space of their rows: other rows, as many columns as rows, with the same scores.

With :math:`K = X \Lambda^{-1} X^\top` (rows centred where there is an intercept), :math:`w^* = \Lambda^{-1} X^\top b`, :math:`b = -s \circ \ell'(z^*)`, one column per class. Let
:math:`L L^\top = K + E`, ``L`` as it is stored. The problem of the rows ``L`` under a penalty of strength 1 has the model :math:`w = L^\top b`, with the scores :math:`z^* + E b` and
the gradient :math:`\tilde L^\top e`, :math:`e = s \circ (\ell'(z^* + E b) - \ell'(z^*))`: what it would have if the scores of the rows ``L`` were off by :math:`E b`. So whatever is proven
of the optimum of that problem for scores that may be off by as much, its slopes and its queries alike, is proven of the scores of the wide one.
:math:`|b_{ia}| \le s_i` wherever the optimum is, so that :math:`|E b|` is bounded once for all rows, removals and folds.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from glru.linalg import FEW, TINY, UNIT, Array, gamma
from glru.linalg.matrix import DenseMatrix
from glru.penalties import L2
from glru.problem import Point, Problem
from glru.solution import Solution

COLUMNS = 128
"""Number of columns at a time in products of dense rows."""


@final
@dataclass(frozen=True, eq=False)
class ClassSpace:
    """A wide problem in the space of its rows."""

    problem: Problem  # the problem of the rows that stand for those of the wide one
    # Shape (n_columns,): what is taken from every row of the wide problem; the intercepts of such a model are ``b + c . w``.
    center: Array | None

    def place(self, solution: Solution) -> Point:
        """A model of the wide problem near its optimum, in this space."""
        duals = solution.problem.weights[:, None] * solution.dual
        coef = duals.T @ self.problem.matrix.dense()
        shift = 0.0 if self.center is None else solution.coef @ self.center
        return Point(coef, solution.intercept + shift)


def has_cheap_space(problem: Problem) -> bool:
    """Whether data is wide and products are cheaper in the space of its rows."""
    if 2 * problem.n_rows > problem.n_columns or problem.unpenalised.size or problem.matrix.noise is not None:
        return False
    # Nanoseconds of a product for one class, roughly: four products with a triangle, against those of X and operations on every coefficient.
    return 0.08 * problem.n_rows**2 < 2.0 * problem.matrix.n_stored + 12.0 * problem.n_columns


def has_class_space(problem: Problem, times: int = 2) -> bool:
    """Whether a problem with one score per class is worked on in the space of its rows: wide data of at least so many times as many columns as rows, every column penalised."""
    if not (problem.loss.several and problem.in_memory and problem.arrays.stable):
        return False
    small = problem.n_scores * (problem.n_rows + 1) <= problem.largest and times * problem.n_rows <= problem.n_columns
    return small and problem.unpenalised.size == 0 and problem.matrix.noise is None


def class_space(problem: Problem) -> ClassSpace | None:
    """The space of the rows of a problem; None where the products of the rows have no factor."""
    center = problem.matrix.mean_row() if problem.fit_intercept else None
    gram, unit = _products(problem, center)
    norms = np.sqrt(np.diagonal(gram)) * (1.0 + 2.0 * unit + FEW) + TINY
    raised = gram + np.diag((8.0 * len(gram) * UNIT) * np.square(norms) + TINY)
    try:
        rows = np.linalg.cholesky(raised)
    except np.linalg.LinAlgError:
        return None
    lengths = np.sqrt(np.square(rows).sum(axis=1)) * (1.0 + gamma(len(gram) + 4))
    # What the stored factor misses of the stored products, the rounding of that difference, and the error of the products.
    off = np.abs(rows @ rows.T - gram) * (1.0 + 4.0 * UNIT)
    off += gamma(len(gram) + 4) * np.outer(lengths, lengths) + unit * np.outer(norms, norms) + TINY
    noise = off.max(axis=1) if problem.scaling == "mean" else off @ problem.weights
    noise = noise * (1.0 + gamma(len(gram) + 16)) + TINY
    if not np.all(np.isfinite(noise)):
        return None
    matrix = DenseMatrix(rows)
    matrix.noise = noise
    return ClassSpace(problem.derive(X=matrix, penalty=L2(1.0), column_names=None), center)


def _products(problem: Problem, center: Array | None) -> tuple[Array, float]:
    """``K``, and at most what an entry is off, as a share of the product of the norms of two rows.

    Dense rows are multiplied a few columns at a time, so that rounding does not grow with their number.
    """
    inverse, X = 1.0 / problem.quadratic, problem.matrix
    if not X.stores_zeros:
        return np.asarray(X.row_gram(inverse).dense()), gamma(X.shape[1] + 16)
    gram, roots = np.zeros((X.shape[0], X.shape[0])), np.sqrt(inverse)
    for part, block in X.centre_chunks(np.zeros(X.shape[1]) if center is None else center):
        scaled = block * roots[part]
        for start in range(0, scaled.shape[1], COLUMNS):
            some = scaled[:, start : start + COLUMNS]
            gram += some @ some.T
    # Centring, the root of a quotient and the product with it round an entry of a row four times.
    return gram, gamma(COLUMNS + X.shape[1] // COLUMNS + X.shape[1] // 64 + 24)
