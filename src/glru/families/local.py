r"""All leave-one-out removals at once, with Newton candidates and the local certificate: O(d^2) a row, no n x n matrix.

Let :math:`A` be the Hessian at the old optimum with the new weights :math:`s'` on all rows, :math:`r'` the gradient there,
:math:`Q = X A^{-1} X^\top`, :math:`p = -X A^{-1} r'`. Without row ``i`` a Newton step moves the model by
:math:`\delta = A^{-1}(c_i x_i - r')`, :math:`c_i = s'_i (g_i + h_i p_i) / (1 - \ell_i)`, :math:`\ell_i = s'_i h_i Q_{ii}`, and row ``i``'s score by
:math:`p_i + c_i Q_{ii}`. With :math:`M = A - s'_i h_i x_i x_i^\top \ge (1 - \ell_i) A`, :math:`T \ge \max_k |x_k^\top \delta|` and
:math:`\kappa \ge \max_k \|x_k\|_{M^{-1}}` (times the self-concordance constant),

.. math:: \nu = \tfrac{e^T - 1 - T}{T} \|\delta\|_M \ge \|\nabla P(\hat w)\|_{M^{-1}}, \qquad
          \|w^* - \hat w\|_M \le -\log(1 - \kappa \nu e^T) / \kappa .

Rounding: :math:`\delta` is defined by the computed factor :math:`\tilde A`, with :math:`(1 - \eta) \tilde A \le A \le (1 + \eta) \tilde A`, and by the
computed numbers :math:`c_i` and :math:`r'`. What that leaves of the Newton equation, the error of :math:`r'`, of :math:`c_i` and
:math:`(A - \tilde A) \delta`, is added to :math:`\nu`.
"""

from collections.abc import Callable
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru._numerics import Array, gamma
from glru.certificate import FEW, score_errors
from glru.families.carried import weight_error
from glru.problem import Problem
from glru.regions.base import Bounds, widened
from glru.regions.metric import ColumnMetric
from glru.solution import Solution

Rows = NDArray[np.intp]

LARGEST = 6000
"""The factor is not formed in more dimensions than this."""


def has_local_rows(problem: Problem) -> bool:
    """Whether the theory applies and the Hessian is formed over the columns."""
    return (
        problem.loss.self_concordance is not None
        and problem.penalty.smooth
        and problem.n_columns <= min(problem.n_rows, LARGEST)
    )


@final
class LocalRows:
    """The removal of every single row under the local certificate, for weights multiplied by one factor."""

    def __init__(self, solution: Solution, factor: float) -> None:
        problem = self.problem = solution.problem
        self.solution, self.weights = solution, factor * problem.weights
        self.used = self.weights > 0.0
        self.constant = float(problem.loss.self_concordance or 0.0)
        self.slopes = problem.loss.gradient(problem.y, solution.scores)
        self.bends = problem.loss.curvature(problem.y, solution.scores)
        self.off = score_errors(problem, solution.coef, solution.intercept)
        self.metric = ColumnMetric(problem, self.weights * self.bends)
        # Slopes and curvatures were taken at computed scores; the exact curvature differs by at most this share.
        self.eta = self.metric.eta + 2.0 * self.constant * float(self.off[self.used].max()) + weight_error(problem)
        self.usable = self.eta < 0.5
        if self.usable:
            self._prepare()

    def _prepare(self) -> None:
        problem, metric = self.problem, self.metric
        self.norms = metric.norms(problem.X)
        self.top = float(self.norms[self.used].max())
        gradient, slack = _base_gradient(self.solution, self.weights, self.slopes, self.off)
        self.slack_norm = metric.gradient_norm(np.zeros_like(gradient), slack)
        self.step = metric.solve(-gradient)
        self.step_norm = metric.gradient_norm(gradient, np.zeros_like(gradient))
        self.moves = problem.scores(*_split(problem, self.step))
        self.leverage = self.weights * self.bends * self.norms**2
        self.rest = 1.0 - self.eta - self.leverage
        with np.errstate(all="ignore"):
            change = self.weights * (self.slopes + self.bends * self.moves) / (1.0 - self.leverage)
        self.change = np.where(np.isfinite(change) & (self.rest > 0.0), change, 0.0)
        self.plain = np.sqrt(problem.squared_row_norms) * (1.0 + gamma(problem.n_columns + 4))
        self.plain_mass = float(np.sqrt(self.weights @ self.plain**2)) * (1.0 + gamma(problem.n_rows + 4))
        # The norm that errors of size 1 in every row's slope (in the metric of the weights) can have as a gradient.
        columns = np.sqrt(self.weights.sum() / problem.weights.sum()) * problem.column_norms
        if problem.fit_intercept:
            columns = np.append(columns, np.sqrt(self.weights.sum()))
        self.steady = metric.gradient_norm(np.zeros_like(columns), columns * (1.0 + gamma(problem.n_rows + 8)))

    def bounds(self) -> Bounds:
        """Bounds of every row's score under the model trained without it, from one Newton step in closed form."""
        n_rows = self.problem.n_rows
        if not self.usable:
            return np.full(n_rows, -np.inf), np.full(n_rows, np.inf)
        norms, change, moves, weights, bends = self.norms, self.change, self.moves, self.weights, self.bends
        error, step_norm = self.metric.solve_error, self.step_norm
        squares = norms**2
        shifts = moves + change * squares
        shift_error = (error * norms * step_norm + 3.0 * error * np.abs(change) * squares) + FEW * (
            np.abs(moves) + np.abs(change) * squares
        )
        length = step_norm**2 + 2.0 * change * moves + change**2 * squares
        length = np.maximum(length, 0.0) + (8.0 * error + FEW) * (step_norm**2 + change**2 * squares)
        delta = np.sqrt(length * (1.0 + self.eta)) * (1.0 + FEW)
        left_over = np.abs(weights * (self.slopes + bends * shifts) - change) + FEW * np.abs(change)
        left_over += weights * (bends * shift_error + FEW * (np.abs(self.slopes) + np.abs(bends * shifts)))
        residual = self.slack_norm + left_over * norms + self.eta * delta
        with np.errstate(all="ignore"):
            # Two bounds of the largest move of any score; each is valid.
            largest = float((np.abs(moves) + error * norms * step_norm)[self.used].max())
            reach = np.minimum(
                self.top * delta / np.sqrt(self.rest), largest + np.abs(change) * norms * self.top * (1.0 + FEW)
            )
            reach = self.constant * reach
            remainder = np.where(reach > 1e-4, (np.expm1(reach) - reach) / reach, reach * (0.5 + reach))
            nu = remainder * (1.0 + 1e-9) * delta + residual / np.sqrt(self.rest)
        return self._widened(
            np.arange(n_rows), self.solution.scores + shifts, nu, reach, shift_error + self.off, np.abs(shifts)
        )

    def refined(self, rows: Rows, decided: Callable[[Array, Array], NDArray[np.bool_]], n_steps: int) -> Bounds:
        """Bounds after Newton steps with the old Hessian, each written down in full and certified by its own gradient."""
        lower, upper = np.full(rows.size, -np.inf), np.full(rows.size, np.inf)
        if not self.usable:
            return lower, upper
        problem = self.problem
        block = problem.X[rows]
        block = block if isinstance(block, np.ndarray) else block.toarray()
        if problem.fit_intercept:
            block = np.column_stack([block, np.ones(rows.size)])
        images = self.metric.solve(block.T)
        start = np.append(self.solution.coef, self.solution.intercept) if problem.fit_intercept else self.solution.coef
        models = (start + self.step)[:, None] + images * self.change[rows]
        active = np.flatnonzero(self.rest[rows] > 0.0)
        before = np.full(rows.size, np.inf)
        for _ in range(n_steps):
            if not active.size:
                break
            here = rows[active]
            scores, gradient, nu, error = self._gradients(here, models[:, active])
            places = np.arange(here.size)
            center = scores[here, places]
            scores -= self.solution.scores[:, None]
            scores[here, places] = 0.0
            np.abs(scores, out=scores)
            reach = scores.max(axis=0) if self.used.all() else scores[self.used].max(axis=0)
            reach = self.constant * (reach + float(self.plain.max()) * error[0] + error[1] + float(self.off.max()))
            nu = nu / np.sqrt(self.rest[here])
            own = self.plain[here] * error[0] + error[1]
            low, high = self._widened(here, center, nu, reach, own, np.zeros(here.size))
            lower[active], upper[active] = np.maximum(lower[active], low), np.minimum(upper[active], high)
            going = ~decided(lower[active], upper[active]) & (nu < 0.9 * before[active])
            before[active] = nu
            # The Hessian without the row, by the Sherman-Morrison formula.
            solved = self.metric.solve(gradient)
            bend = (self.weights * self.bends)[here]
            fed = bend * np.einsum("ij,ij->j", block[active].T, solved) / (1.0 - self.leverage[here])
            models[:, active] -= solved + images[:, active] * fed
            active = active[going]
        return lower, upper

    def _gradients(self, rows: Rows, models: Array) -> tuple[Array, Array, Array, tuple[Array, Array]]:
        """Scores, gradients without each row, at least the gradients' norms in the inverse metric, and the scores' errors.

        The error of row ``k``'s score under model ``i`` is at most ``plain[k] * first[i] + second[i]``.
        """
        problem, weights = self.problem, self.weights
        coefs = models[:-1] if problem.fit_intercept else models
        shifts = models[-1] if problem.fit_intercept else np.zeros(rows.size)
        scores = problem.X @ coefs
        if problem.fit_intercept:
            scores += shifts
        unit = gamma(problem.n_columns + 3) * (1.0 + gamma(problem.n_columns + 8))
        first, second = unit * np.linalg.norm(coefs, axis=0), unit * np.abs(shifts)
        slopes = problem.loss.gradient(problem.y[:, None], scores)
        slopes[rows, np.arange(rows.size)] = 0.0
        size = np.sqrt(weights @ np.square(slopes)) * (1.0 + gamma(problem.n_rows + 4))
        slopes *= weights[:, None]
        lam = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))[:, None]
        gradient = problem.X.T @ slopes + lam * coefs
        # Errors: of the sums, of the slopes at scores that are off, of the slopes' own evaluation (Minkowski's inequality).
        wrong = problem.loss.smoothness * (first * self.plain_mass + second * np.sqrt(weights.sum())) + FEW * size
        spread = weight_error(problem) * size + wrong * (1.0 + FEW)
        if problem.fit_intercept:
            gradient = np.vstack([gradient, slopes.sum(axis=0)])
        outer = float(np.linalg.norm(self.metric.inverse)) * FEW * np.linalg.norm(lam * coefs, axis=0)
        solved = self.metric.inverse.T @ gradient
        norms = np.sqrt(np.einsum("ij,ij->j", solved, solved)) * (1.0 + self.metric.solve_error)
        return scores, gradient, (norms + spread * self.steady + outer) * (1.0 + FEW), (first, second)

    def _widened(self, rows: Rows, centers: Array, nu: Array, reach: Array, errors: Array, sizes: Array) -> Bounds:
        """Bounds from the gradients' norms at the candidates (in the metric without each row) and the scores' moves."""
        rest, norms = self.rest[rows], self.norms[rows]
        with np.errstate(all="ignore"):
            grown = nu * np.exp(reach) * (1.0 + FEW)
            product = self.constant * self.top / np.sqrt(rest) * grown * (1.0 + FEW)
            radius = grown * np.where(product > 1e-8, -np.log1p(-product) / product, 1.0 + product) * (1.0 + FEW)
            half = norms / np.sqrt(rest) * radius + errors + FEW * (np.abs(centers) + sizes)
        usable = (rest > 0.0) & (product < 1.0) & np.isfinite(half)
        return widened(np.where(usable, centers, 0.0), np.where(usable, half, np.inf))


def _base_gradient(solution: Solution, weights: Array, slopes: Array, off: Array) -> tuple[Array, Array]:
    """The gradient with the new weights on all rows (the intercept's entry last), and the error of each entry."""
    problem = solution.problem
    pulls = weights * slopes
    lam = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
    gradient = problem.X.T @ pulls + lam * solution.coef
    wrong = problem.loss.smoothness * off + FEW * np.abs(slopes)
    spread = weight_error(problem) * float(np.sqrt(weights @ slopes**2)) + float(np.sqrt(weights @ wrong**2))
    share = np.sqrt(weights.sum() / problem.weights.sum()) * (1.0 + gamma(problem.n_rows + 4))
    slack = spread * share * problem.column_norms + FEW * lam * np.abs(solution.coef)
    if problem.fit_intercept:
        gradient = np.append(gradient, pulls.sum())
        slack = np.append(slack, spread * np.sqrt(weights.sum()) * (1.0 + gamma(problem.n_rows)))
    return gradient, slack * (1.0 + FEW)


def _split(problem: Problem, step: Array) -> tuple[Array, float]:
    return (step[:-1], float(step[-1])) if problem.fit_intercept else (step, 0.0)
