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

import numpy as np

from glru._numerics import Array, gamma
from glru.certificate import FEW, score_errors
from glru.problem import Problem
from glru.regions.base import Bounds, widened
from glru.regions.metric import ColumnMetric
from glru.solution import Solution

LARGEST = 6000
"""The factor is not formed in more dimensions than this."""


def has_local_rows(problem: Problem) -> bool:
    """Whether the theory applies and the Hessian is formed over the columns."""
    return (
        problem.loss.self_concordance is not None
        and problem.penalty.smooth
        and problem.n_columns <= min(problem.n_rows, LARGEST)
    )


def local_bounds(solution: Solution, factor: float) -> Bounds:
    """Bounds of every row's score under the model trained without it, for weights multiplied by ``factor``."""
    problem = solution.problem
    weights = factor * problem.weights
    used = weights > 0.0
    constant = float(problem.loss.self_concordance or 0.0)
    slopes = problem.loss.gradient(problem.y, solution.scores)
    bends = problem.loss.curvature(problem.y, solution.scores)
    off = score_errors(problem, solution.coef, solution.intercept)
    metric = ColumnMetric(problem, weights * bends)
    # Slopes and curvatures were taken at computed scores; the exact curvature differs by at most this share.
    eta = metric.eta + 2.0 * constant * float(off[used].max()) + FEW
    if not eta < 0.5:
        return np.full(problem.n_rows, -np.inf), np.full(problem.n_rows, np.inf)
    norms = metric.norms(problem.X)
    gradient, slack = _base_gradient(solution, weights, slopes, off)
    step = metric.solve(-gradient)
    step_norm = metric.gradient_norm(gradient, np.zeros_like(gradient))
    moves = problem.scores(*_split(problem, step))
    error = metric.solve_error
    move_error = error * norms * step_norm

    squares = norms**2
    leverage = weights * bends * squares
    rest = 1.0 - eta - leverage
    with np.errstate(all="ignore"):
        change = weights * (slopes + bends * moves) / (1.0 - leverage)
        shifts = moves + change * squares
        shift_error = (
            move_error + 3.0 * error * np.abs(change) * squares + FEW * (np.abs(moves) + np.abs(change) * squares)
        )
        length = step_norm**2 + 2.0 * change * moves + change**2 * squares
        length = np.maximum(length, 0.0) + (8.0 * error + FEW) * (step_norm**2 + change**2 * squares)
        delta = np.sqrt(length * (1.0 + eta)) * (1.0 + FEW)
        left_over = np.abs(weights * (slopes + bends * shifts) - change)
        left_over += weights * (bends * shift_error + FEW * (np.abs(slopes) + np.abs(bends * shifts))) + FEW * np.abs(
            change
        )
        residual = metric.gradient_norm(np.zeros_like(gradient), slack) + left_over * norms + eta * delta
        top = float(norms[used].max())
        # Two bounds of the largest move of any score; each is valid.
        reach = (
            np.minimum(
                top * delta / np.sqrt(rest),
                float(np.abs(moves[used]).max() + move_error[used].max()) + np.abs(change) * norms * top,
            )
            * constant
        )
        remainder = np.where(reach > 1e-4, (np.expm1(reach) - reach) / reach, reach * (0.5 + reach))
        nu = (remainder * (1.0 + 1e-9) * delta + residual / np.sqrt(rest)) * np.exp(reach)
        kappa = constant * top / np.sqrt(rest)
        product = kappa * nu * (1.0 + FEW)
        radius = nu * np.where(product > 1e-8, -np.log1p(-product) / product, 1.0 + product) * (1.0 + FEW)
        half = norms / np.sqrt(rest) * radius + shift_error + off
    usable = (rest > 0.0) & (product < 1.0) & np.isfinite(half)
    center = solution.scores + shifts
    half = np.where(usable, half + FEW * (np.abs(solution.scores) + np.abs(shifts)), np.inf)
    return widened(np.where(usable, center, 0.0), half)


def _base_gradient(solution: Solution, weights: Array, slopes: Array, off: Array) -> tuple[Array, Array]:
    """The gradient with the new weights on all rows (the intercept's entry last), and the error of each entry."""
    problem = solution.problem
    pulls = weights * slopes
    lam = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
    gradient = problem.X.T @ pulls + lam * solution.coef
    wrong = problem.loss.smoothness * off + FEW * np.abs(slopes)
    spread = gamma(problem.n_rows + 4) * float(np.sqrt(weights @ slopes**2)) + float(np.sqrt(weights @ wrong**2))
    share = np.sqrt(weights.sum() / problem.weights.sum()) * (1.0 + gamma(problem.n_rows + 4))
    slack = spread * share * problem.column_norms + FEW * lam * np.abs(solution.coef)
    if problem.fit_intercept:
        gradient = np.append(gradient, pulls.sum())
        slack = np.append(slack, spread * np.sqrt(weights.sum()) * (1.0 + gamma(problem.n_rows)))
    return gradient, slack * (1.0 + FEW)


def _split(problem: Problem, step: Array) -> tuple[Array, float]:
    return (step[:-1], float(step[-1])) if problem.fit_intercept else (step, 0.0)
