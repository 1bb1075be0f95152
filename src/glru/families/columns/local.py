r"""Columns removed, many at once, under the local certificate (logistic or squared loss with an L2 penalty).

An intercept or ``lam = 0`` are covered. With :math:`A` the Hessian of all columns and :math:`q` its Newton step, the candidate
without column ``j`` is :math:`w + q - A^{-1}_{:j} (w_j + q_j) / A^{-1}_{jj}`. Its Hessian :math:`M_j` is :math:`A` without row and
column ``j``, so :math:`\|u\|_{M_j^{-1}} \le \|u\|_{A^{-1}}` for rows of the data (with any entry ``j``) and for gradients (with a
zero there): one metric serves all candidates.
"""

from collections.abc import Callable
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru._numerics import TINY, Array, Matrix, gamma, squared_row_norms
from glru.certificate import FEW, score_errors
from glru.families.carried import weight_error
from glru.families.columns.common import CHUNK, LARGEST, Columns
from glru.families.gradients import SLOW, Gradients, local_radius
from glru.point import Point
from glru.problem import Problem
from glru.regions.base import widened
from glru.regions.metric import ColumnMetric


def has_local_columns(problem: Problem) -> bool:
    """Whether :class:`LocalColumns` applies."""
    return problem.loss.self_concordance is not None and problem.penalty.smooth and 1 < problem.n_columns <= LARGEST


@final
class LocalColumns:
    """Columns removed from a problem, under the local certificate.

    Parameters
    ----------
    problem : Problem
        The problem with all columns.
    point : Point
        The old model, close to the optimum; a Newton step from it comes before everything.
    queries : array or sparse array of shape (n_queries, n_columns)
        Rows whose scores are asked about.
    """

    def __init__(self, problem: Problem, point: Point, queries: Matrix) -> None:
        self.problem, self.queries = problem, queries
        self.scores = problem.scores(point.coef, point.intercept)
        self.constant = float(problem.loss.self_concordance or 0.0)
        self.used = problem.weights > 0.0
        _, slopes, bends = problem.loss.expand(problem.y, self.scores)
        self.metric = ColumnMetric(problem, problem.weights * bends)
        off = score_errors(problem, point.coef, point.intercept)
        self.off = float(off[self.used].max())
        # Curvatures were taken at computed scores.
        self.eta = self.metric.eta + 2.0 * self.constant * self.off + weight_error(problem)
        self.usable = self.eta < 0.5
        if not self.usable:
            return
        pulls = problem.weights * slopes
        lam = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
        gradient = problem.X.T @ pulls + lam * point.coef
        start = point.coef
        if problem.fit_intercept:
            gradient, start = np.append(gradient, pulls.sum()), np.append(start, point.intercept)
        self.start = start - self.metric.solve(gradient)
        self.gradients = Gradients(problem, problem.weights, self.metric)
        self.top = float(self.metric.norms(problem.X)[self.used].max())
        self.query_norms = self.metric.norms(queries)
        self._candidates: dict[int, Array] = {}

    def candidate(self, column: int) -> Point | None:
        """The last candidate without a column, if there is one."""
        model = self._candidates.get(column) if self.usable else None
        if model is None:
            return None
        size = self.problem.n_columns
        return Point(np.delete(model[:size], column), float(model[-1]) if self.problem.fit_intercept else 0.0)

    def bounds(
        self, columns: Columns, settled: Callable[[Array, Array], NDArray[np.bool_]], n_steps: int
    ) -> tuple[Array, Array]:
        """Bounds of shape (n_queries, n_removals); each removal is stepped on until ``settled`` or no longer getting better."""
        shape = (self.query_norms.size if self.usable else self.queries.shape[0], columns.size)
        lower, upper = np.full(shape, -np.inf), np.full(shape, np.inf)
        if not self.usable:
            return lower, upper
        width = max(16, 32 * CHUNK // self.problem.n_rows)
        for k in range(0, columns.size, width):
            part = slice(k, k + width)
            lower[:, part], upper[:, part] = self._bounds(columns[part], settled, n_steps)
        return lower, upper

    def _bounds(
        self, columns: Columns, settled: Callable[[Array, Array], NDArray[np.bool_]], n_steps: int
    ) -> tuple[Array, Array]:
        size = self.metric.factor.shape[0]
        units = np.zeros((size, columns.size))
        units[columns, np.arange(columns.size)] = 1.0
        images = self.metric.solve(units)
        images /= images[columns, np.arange(columns.size)]
        models = self.start[:, None] - images * self.start[columns]
        shape = (self.query_norms.size, columns.size)
        lower, upper = np.full(shape, -np.inf), np.full(shape, np.inf)
        active, before = np.arange(columns.size), np.full(columns.size, np.inf)
        for _ in range(n_steps):
            here, places = columns[active], np.arange(active.size)
            mine = models[:, active]
            mine[here, places] = 0.0
            self._candidates.update(zip(here.tolist(), mine.T, strict=True))
            low, high, gradient, nu = self._certified(mine, here)
            lower[:, active], upper[:, active] = np.maximum(lower[:, active], low), np.minimum(upper[:, active], high)
            going = ~settled(lower[:, active], upper[:, active]) & (nu < SLOW * before[active])
            before[active] = nu
            active = active[going]
            if not active.size:
                break
            here, places = columns[active], np.arange(active.size)
            solved = self.metric.solve(gradient[:, going])
            models[:, active] -= solved - images[:, active] * solved[here, places]
        return lower, upper

    def _certified(self, models: Array, columns: Columns) -> tuple[Array, Array, Array, Array]:
        """Bounds of the queries' scores, gradients, and at least their norms in the metric without each column."""
        places = np.arange(columns.size)
        scores, gradient, nu, error = self.gradients.at(models, fixed=(columns, places))
        np.abs(scores - self.scores[:, None], out=scores)
        moved = scores.max(axis=0) if self.used.all() else scores[self.used].max(axis=0)
        reach = self.constant * (moved + float(self.gradients.plain.max()) * error[0] + error[1] + self.off)
        rest = np.sqrt(1.0 - self.eta)
        nu = nu / rest * (1.0 + FEW)
        radius = local_radius(self.constant, self.top / rest, nu, reach * (1.0 + FEW))
        coefs, shifts = (models[:-1], models[-1]) if self.problem.fit_intercept else (models, np.zeros(columns.size))
        center, off = _many_centers(self.queries, coefs, shifts)
        with np.errstate(invalid="ignore"):
            half = self.query_norms[:, None] / rest * radius * (1.0 + FEW) + off
        low, high = widened(np.where(np.isfinite(half), center, 0.0), np.where(np.isfinite(half), half, np.inf))
        return low, high, gradient, nu


def _many_centers(X: Matrix, coefs: Array, shifts: Array) -> tuple[Array, Array]:
    """Scores of several models, and the rounding error of each."""
    norms = np.sqrt(squared_row_norms(X)) * (1.0 + gamma(X.shape[1] + 4)) + TINY
    sizes = norms[:, None] * np.linalg.norm(coefs, axis=0) + np.abs(shifts)
    return X @ coefs + shifts, gamma(X.shape[1] + 8) * sizes * (1.0 + FEW)
