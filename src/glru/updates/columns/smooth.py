r"""Columns removed or added, many at once, under the duality gap (L2 on every column, any smooth loss, no intercept).

The Newton equation of the changed problem at the old scores, with :math:`D` the weighted curvatures and
:math:`K = X \Lambda^{-1} X^\top`, is

.. math:: (I + D (K \pm x_j x_j^\top / \lambda_j)) b = D z - s \circ g ,

a rank-one change of one system for all ``j``. As for rows, the candidate is :math:`w = \Lambda^{-1} X^\top b` and the penalty's
Fenchel-Young terms vanish.
"""

from collections.abc import Callable
from typing import Any, final

import numpy as np

from glru.bounds import Bounds, widen
from glru.certificate import ball_radius, loss_terms
from glru.linalg import FEW, TINY, Array, Matrix, gamma, to_host
from glru.linalg.factor import factor_core, solve_cholesky
from glru.problem import Problem
from glru.solution import Solution
from glru.updates.carried_rows import rounded_norms, weight_error
from glru.updates.columns.models import Block, Blocks, ColumnModels
from glru.updates.row_models import Retrained


def has_smooth_columns(problem: Problem) -> bool:
    """Whether :class:`SmoothColumns` applies."""
    return (
        np.isfinite(problem.loss.smoothness)
        and problem.penalty.smooth
        and problem.penalty.strong_convexity > 0.0
        and not problem.fit_intercept
        and problem.n_rows <= problem.largest
    )


@final
class SmoothColumns(ColumnModels):
    """Columns removed from or added to a problem with a loss that is not self-concordant, in the dimension of its rows.

    ``solution``: the old model; ``queries`` (shape (n_queries, n_columns)): rows whose scores are asked about.
    """

    def __init__(self, solution: Solution, queries: Matrix) -> None:
        problem = solution.problem
        super().__init__(problem, queries)
        self.gram = self.side.gram
        self.cross = queries.cross_gram(problem.matrix, self.side.inverse)
        self.largest_norm, self.total_norm = (
            float(self.side.norms.max()),
            float(np.linalg.norm(self.side.norms)) * (1.0 + FEW),
        )
        self.share = np.divide(1.0, problem.weights, out=np.zeros(problem.n_rows), where=problem.weights > 0.0)
        self.query_squares = queries.squared_row_norms(self.side.inverse)
        slopes, curvatures = problem.loss.expand_slope(problem.y, solution.scores)
        d = problem.weights * curvatures
        root = np.sqrt(d)
        # (I + D K)^-1 D, and the solution without any change.
        scale = self.arrays.put(root)
        unit = self.arrays.units(problem.n_rows, np.arange(problem.n_rows))
        self.response = scale[:, None] * solve_cholesky(factor_core(self.gram, root), unit * scale)
        self.base = _newton_dual(self.gram, root, d * solution.scores - problem.weights * slopes)
        self.start = self.place(solution.point)

    def refine_one(self, block: Block, decided: Callable[[Array, Array], bool]) -> Retrained:
        """Bounds for the one candidate of a block, by Newton steps of its model alone, each with a factor of its own."""
        return self.retrain_with(block, self.start, decided)

    def bounds(self, make: Callable[[int, int], Blocks], lam: Array, sign: float) -> tuple[Array, Array]:
        """Bounds of shape (n_queries, n_items), one column per candidate.

        ``make(start, stop)``: the candidates' columns in the data and in the queries; ``lam`` (shape (n_items,)): their penalties; ``sign``: -1 for
        removals, +1 for additions.
        """
        size = self.query_squares.size
        lower, upper = np.empty((size, lam.size)), np.empty((size, lam.size))
        width = max(16, self.arrays.chunk // max(self.problem.n_rows, 1))

        def part(start: int, stop: int) -> None:
            for k in range(start, stop, width):
                end = min(k + width, stop)
                lower[:, k:end], upper[:, k:end] = self._bounds(*make(k, end), lam[k:end], sign)

        self.arrays.run_in_parts(part, lam.size, width)
        return lower, upper

    def _bounds(self, data: Matrix, queries: Matrix, lam: Array, sign: float) -> Bounds:
        columns, asked = data.block(), queries.block()
        images = self.response @ columns
        with np.errstate(all="ignore"):
            along = to_host(self.arrays.put(self.base) @ columns)
            step = along / (lam + sign * self.arrays.inner(columns, images))
        step = np.where(np.isfinite(step), -sign * step, 0.0)
        return self._certified(self._candidates(images, step, columns), columns, asked, lam, sign)

    def _certified(self, candidates: tuple[Any, ...], columns: Any, asked: Any, lam: Array, sign: float) -> Bounds:
        problem, arrays = self.problem, self.arrays
        dual, weighted, inner, size, own = candidates
        scores = self.gram @ weighted
        scores += columns * arrays.put(sign * inner / lam)
        # |K_kl| and its rounding error are at most |x_k| |x_l| and gamma(d) of that, in the metric of the penalty; the sums
        # over the rows are bounded by Cauchy-Schwarz.
        unit = gamma(problem.n_columns + problem.n_rows + 16)
        size = np.sqrt(size) * (1.0 + gamma(problem.n_rows + 4))
        own = np.sqrt(own / lam) * (1.0 + gamma(problem.n_rows + 4))
        norm_sum, own_norm_sum = self.total_norm * size + TINY, own * size + TINY
        errors = unit * (self.largest_norm * norm_sum + own * own_norm_sum) * (1.0 + FEW)
        losses = self._losses(scores, errors, dual) * (1.0 + gamma(problem.n_rows + 8))
        # The stored products of weights and dual variables are off by a unit each, the correlations by as much.
        gaps = (losses + 0.5 * np.square(weight_error(problem) * (norm_sum + own_norm_sum))) * (1.0 + FEW)
        gaps = np.where(np.isfinite(gaps), gaps, np.inf)
        center, asked = to_host(self.cross @ weighted), to_host(asked)
        center = center + asked * (sign * inner / lam)
        share = np.square(asked) / lam
        squares = self.query_squares[:, None] + sign * share
        rounding = gamma(problem.n_columns + 8) * (self.query_squares[:, None] + share)
        norms = rounded_norms(np.maximum(squares + rounding, 0.0), problem)
        length = rounded_norms(self.query_squares, problem)[:, None]
        off = unit * (length * norm_sum + np.sqrt(share) * own_norm_sum) * (1.0 + FEW) + FEW * np.abs(center)
        return widen(center, ball_radius(gaps) * norms * (1.0 + FEW) + off)

    def _candidates(self, images: Any, step: Array, columns: Any) -> tuple[Any, ...]:
        """Dual points, weighted dual points, and per candidate ``x . b``, ``|b|^2`` and ``|x|^2``."""
        loss, arrays = self.problem.loss, self.arrays
        low, high = loss.derivative_range(self.problem.y)
        dual = (arrays.put(self.base)[:, None] + images * arrays.put(step)) * arrays.put(self.share)[:, None]
        dual = arrays.xp.clip(dual, arrays.put(-high)[:, None], arrays.put(-low)[:, None])
        weighted = arrays.put(self.weights)[:, None] * dual
        inner = arrays.inner(columns, weighted)
        return dual, weighted, inner, arrays.inner(weighted, weighted), arrays.inner(columns, columns)

    def _losses(self, scores: Any, errors: Array, dual: Any) -> Array:
        """Upper bounds of the weighted Fenchel-Young terms of the losses, summed for each candidate."""
        problem, arrays = self.problem, self.arrays
        terms = loss_terms(problem.loss, arrays.put(problem.y)[:, None], scores, errors, dual)
        if not self.weights.all():
            terms = arrays.without_rows(terms, self.weights == 0.0)
        return to_host(arrays.put(self.weights) @ terms)


def _newton_dual(gram: Matrix, root: Array, right: Array) -> Array:
    """``(I + D K)^-1`` times a vector."""
    return right - root * solve_cholesky(factor_core(gram, root), root * (gram @ right))
