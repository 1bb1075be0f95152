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
from dataclasses import dataclass, fields
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru._numerics import UNIT, Array, gamma
from glru.certificate import FEW, score_errors
from glru.families.carried import weight_error
from glru.families.gradients import SLOW, Gradients, local_radius
from glru.problem import Problem
from glru.regions.base import Bounds, intersected, widened
from glru.regions.metric import ColumnMetric
from glru.solution import Solution

Rows = NDArray[np.intp]
Decided = Callable[[Array, Array], NDArray[np.bool_]]

LARGEST = 6000
"""The factor is not formed in more dimensions than this."""

MOST_DRIFT = 0.05
"""The base is found when a Newton step moves no score by more than this (times the self-concordance constant)."""

SERIES = 1e-4
"""Up to here ``(e^t - 1 - t) / t`` is replaced by ``t (1/2 + t)``, which is more."""

LOST = 8.0 * UNIT / SERIES
"""Relative error of ``(e^t - 1) - t`` beyond: a few units of ``t`` in a difference of at least ``t^2 / 2``."""

MOST_STEPS = 4
"""Newton steps to find the base."""


def has_local_rows(problem: Problem) -> bool:
    """Whether the theory applies and the Hessian is formed over the columns."""
    return (
        problem.loss.self_concordance is not None
        and problem.penalty.smooth
        and problem.n_columns <= min(problem.n_rows, LARGEST)
    )


@final
@dataclass(frozen=True, eq=False)
class Removals:
    """Some rows and the Newton steps of their removals, in closed form.

    Attributes
    ----------
    rows : array of int
        The rows.
    norms : array
        At least their norms in the inverse metric.
    moves : array
        What the step that all removals share does to their scores.
    leverage, rest : array
        ``l_i``, and what the metric without the row keeps at least of the metric.
    change : array
        ``c_i``.
    """

    rows: Rows
    norms: Array
    moves: Array
    leverage: Array
    rest: Array
    change: Array

    def take(self, places: Rows) -> "Removals":
        """Some of them."""
        return Removals(*(getattr(self, field.name)[places] for field in fields(self)))


@final
class LocalRows:
    """The removal of single rows under the local certificate, for weights multiplied by one factor.

    The base of all candidates is a small Newton step away from the solution (``settled``), or a few where the first is
    not small: that takes out what training left, and the factor. The metric is the one before the last step; curvatures
    differ between the two by at most ``e^drift``, ``drift`` the largest move of a score, which is part of ``eta``.
    """

    def __init__(self, solution: Solution, factor: float) -> None:
        problem = self.problem = solution.problem
        self.weights = factor * problem.weights
        self.used = self.weights > 0.0
        self.constant = float(problem.loss.self_concordance or 0.0)
        self._settle(solution)
        self.usable = self.eta < 0.5
        if self.usable:
            self._prepare()

    def _settle(self, solution: Solution) -> None:
        """Find the base and the metric, and how far both and the scores may be off."""
        problem, drift = self.problem, np.inf
        self._base(solution.coef, solution.intercept, solution.scores)
        for _ in range(MOST_STEPS):
            before = self.scores
            self.metric = ColumnMetric(problem, self.weights * self.bends)
            if not self.metric.eta < 0.5:
                break
            step = self.metric.solve(-self._gradient())
            self._base(self.coef + step[: problem.n_columns], self.intercept + float(step[-1]))
            drift = self.constant * float(np.abs(self.scores - before)[self.used].max())
            if drift <= MOST_DRIFT or not drift <= 1.0:
                break
        self.settled = drift <= MOST_DRIFT
        self.off = score_errors(problem, self.coef, self.intercept)
        drift = (drift + self.constant * float(self.off[self.used].max())) * (1.0 + FEW)
        with np.errstate(over="ignore"):
            grown = (1.0 + self.metric.eta) * np.exp(drift) * (1.0 + weight_error(problem)) * (1.0 + FEW)
        self.eta = float(grown) - 1.0

    def _base(self, coef: Array, intercept: float, scores: Array | None = None) -> None:
        """Make a model the base."""
        problem = self.problem
        self.coef, self.intercept = coef, intercept if problem.fit_intercept else 0.0
        self.scores = problem.scores(self.coef, self.intercept) if scores is None else scores
        _, self.slopes, self.bends = problem.loss.expand(problem.y, self.scores)

    def _gradient(self) -> Array:
        """The gradient at the base with the new weights on all rows, the intercept's entry last."""
        problem, pulls = self.problem, self.weights * self.slopes
        lam = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
        gradient = problem.X.T @ pulls + lam * self.coef
        return np.append(gradient, pulls.sum()) if problem.fit_intercept else gradient

    def _prepare(self) -> None:
        problem, metric = self.problem, self.metric
        gradient = self._gradient()
        slack = self._gradient_errors()
        self.slack_norm = metric.gradient_norm(np.zeros_like(gradient), slack)
        self.step = metric.solve(-gradient)
        self.step_norm = metric.gradient_norm(gradient, np.zeros_like(gradient))
        self.gradients = Gradients(problem, self.weights, metric)

    def _gradient_errors(self) -> Array:
        """How far each entry of the gradient at the base may be off."""
        problem, weights, slopes = self.problem, self.weights, self.slopes
        wrong = problem.loss.smoothness * self.off + FEW * np.abs(slopes)
        spread = weight_error(problem) * float(np.sqrt(weights @ slopes**2)) + float(np.sqrt(weights @ wrong**2))
        share = np.sqrt(weights.sum() / problem.weights.sum()) * (1.0 + gamma(problem.n_rows + 4))
        slack = spread * share * problem.column_norms + FEW * problem.penalty.quadratic * np.abs(self.coef)
        if problem.fit_intercept:
            slack = np.append(slack, spread * np.sqrt(weights.sum()) * (1.0 + gamma(problem.n_rows)))
        return slack * (1.0 + FEW)

    @cached_property
    def norms(self) -> Array:
        """Norms of all rows in the inverse metric."""
        return self.metric.norms(self.problem.X)

    @cached_property
    def top(self) -> float:
        """At least the largest norm of a row that counts."""
        return float(self.norms[self.used].max())

    @cached_property
    def rough_top(self) -> float:
        """The same from the Euclidean norms, which costs nothing."""
        plain = float(self.gradients.plain[self.used].max())
        plain = np.hypot(plain, 1.0) if self.problem.fit_intercept else plain
        largest = float(np.linalg.norm(self.metric.inverse)) * (1.0 + self.metric.solve_error)
        least = self.problem.penalty.strong_convexity
        if least > 0.0 and not self.problem.fit_intercept:
            largest = min(largest, float(np.sqrt((1.0 + self.eta) / least)))
        return plain * largest * (1.0 + FEW)

    def removals(self, rows: Rows) -> Removals:
        """The removals of some rows."""
        X, many = self.problem.X, 4 * rows.size > self.problem.n_rows
        norms = self.norms[rows] if many else self.metric.norms(X[rows])
        coef, shift = _split(self.problem, self.step)
        moves = (X @ coef)[rows] + shift if many else X[rows] @ coef + shift
        weights, bends = self.weights[rows], self.bends[rows]
        leverage = weights * bends * norms**2
        rest = 1.0 - self.eta - leverage * (1.0 + self.eta)
        with np.errstate(all="ignore"):
            change = weights * (self.slopes[rows] + bends * moves) / (1.0 - leverage)
        change = np.where(np.isfinite(change) & (rest > 0.0), change, 0.0)
        return Removals(rows, norms, moves, leverage, rest, change)

    def bounds(self, rows: Rows, decided: Decided) -> Bounds:
        """Bounds of the rows' scores under the models trained without them, from one Newton step in closed form.

        The largest norm of a row enters only the remainder: it is found exactly where the rough one leaves rows open.
        """
        if not self.usable:
            return np.full(rows.size, -np.inf), np.full(rows.size, np.inf)
        removals = self.removals(rows)
        if "norms" in self.__dict__:
            return self._bounds(removals, self.top)
        bounds = self._bounds(removals, self.rough_top)
        if not np.all(decided(*bounds)):
            bounds = intersected(bounds, self._bounds(removals, min(self.top, self.rough_top)))
        return bounds

    def _bounds(self, removals: Removals, top: float) -> Bounds:
        problem, rows = self.problem, removals.rows
        norms, moves, change = removals.norms, removals.moves, removals.change
        weights, slopes, bends = self.weights[rows], self.slopes[rows], self.bends[rows]
        error, step_norm = self.metric.solve_error, self.step_norm
        squares = norms**2
        shifts = moves + change * squares
        # The step took two triangular solves and a product; the squares are those of norms that were rounded up, by a share
        # of themselves and by what covers underflow.
        shift_error = 2.0 * error * norms * step_norm + 5.0 * error * np.abs(change) * squares
        shift_error += 2.0 * np.abs(change) * norms * self.metric.tiny
        shift_error += FEW * (np.abs(moves) + np.abs(change) * squares)
        length = step_norm**2 + 2.0 * change * moves + change**2 * squares
        length = np.maximum(length, 0.0) + (8.0 * error + FEW) * (step_norm**2 + change**2 * squares)
        length = np.sqrt(length) * (1.0 + FEW)
        delta = length * np.sqrt(1.0 + self.eta) * (1.0 + FEW)
        left_over = np.abs(weights * (slopes + bends * shifts) - change) + FEW * np.abs(change)
        left_over += weights * (bends * shift_error + FEW * (np.abs(slopes) + np.abs(bends * shifts)))
        # The row's own slope and curvature were taken at a score that is off, too.
        left_over += weights * problem.loss.smoothness * self.off[rows] * (1.0 + 2.0 * self.constant * np.abs(shifts))
        residual = self.slack_norm + left_over * norms + self.eta * delta
        with np.errstate(all="ignore"):
            reach = self.constant * top * length * (1.0 + FEW)
            remainder = np.where(reach > SERIES, (np.expm1(reach) - reach) / reach, reach * (0.5 + reach))
            nu = remainder * (1.0 + LOST) * delta + residual / np.sqrt(removals.rest)
        centers = self.scores[rows] + shifts
        return self._widened(removals, top, centers, nu, reach, shift_error + self.off[rows], np.abs(shifts))

    def refined(self, rows: Rows, decided: Decided, n_steps: int) -> Bounds:
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
        start = np.append(self.coef, self.intercept) if problem.fit_intercept else self.coef
        removals = self.removals(rows)
        models = (start + self.step)[:, None] + images * removals.change
        active = np.flatnonzero(removals.rest > 0.0)
        before = np.full(rows.size, np.inf)
        for _ in range(n_steps):
            if not active.size:
                break
            here = rows[active]
            places = np.arange(here.size)
            scores, gradient, nu, error = self.gradients.at(models[:, active], without=(here, places))
            center = scores[here, places]
            scores -= self.scores[:, None]
            scores[here, places] = 0.0
            np.abs(scores, out=scores)
            reach = scores.max(axis=0) if self.used.all() else scores[self.used].max(axis=0)
            plain = self.gradients.plain
            reach = self.constant * (reach + float(plain.max()) * error[0] + error[1] + float(self.off.max()))
            left = removals.take(active)
            nu = nu / np.sqrt(left.rest)
            own = plain[here] * error[0] + error[1]
            low, high = self._widened(left, self.top, center, nu, reach, own, np.zeros(here.size))
            lower[active], upper[active] = np.maximum(lower[active], low), np.minimum(upper[active], high)
            going = ~decided(lower[active], upper[active]) & (nu < SLOW * before[active])
            before[active] = nu
            active = active[going]
            # The Hessian without the row, by the Sherman-Morrison formula.
            solved = self.metric.solve(gradient[:, going])
            bend = (self.weights * self.bends)[rows[active]]
            fed = bend * np.einsum("ij,ij->j", block[active].T, solved) / (1.0 - removals.leverage[active])
            models[:, active] -= solved + images[:, active] * fed
        return lower, upper

    def _widened(
        self, removals: Removals, top: float, centers: Array, nu: Array, reach: Array, errors: Array, sizes: Array
    ) -> Bounds:
        """Bounds from the gradients' norms at the candidates (in the metric without each row) and the scores' moves."""
        with np.errstate(invalid="ignore"):
            root = np.sqrt(removals.rest)
        radius = local_radius(self.constant, top / root, nu, reach)
        with np.errstate(invalid="ignore"):
            half = removals.norms / root * radius + errors + FEW * (np.abs(centers) + sizes)
        usable = (removals.rest > 0.0) & np.isfinite(half)
        return widened(np.where(usable, centers, 0.0), np.where(usable, half, np.inf))


def _split(problem: Problem, step: Array) -> tuple[Array, float]:
    return (step[:-1], float(step[-1])) if problem.fit_intercept else (step, 0.0)
