r"""Upper bounds of the duality gap that hold in exact arithmetic, for a primal-dual pair stored in float64.

The pair ``(w, b, a)`` is taken as it stands, digit by digit; what is rounded are the products made from it:

* a score ``x_i . w + b`` is off by at most ``eps_i = gamma(k + 3) (|x_i| . |w| + |b|)``, ``k`` the number of entries
  stored in row ``i``. The Fenchel-Young value of a loss is convex in the score, so its
  largest value on ``z_i -/+ eps_i`` is at an end. Evaluating it loses at most the effect of moving the score by
  a few units in the last place of the numbers involved, which is added to ``eps_i``, and a few units of its own.
* a correlation ``v_j = sum_i s_i a_i x_ij`` is off by at most ``gamma(n + 3) sqrt(sum s a^2) sqrt(sum s x_j^2)``, and
  the Fenchel-Young value of a penalty is convex in ``v_j``.
* the constraints of an intercept and of unpenalised columns hold only up to rounding. A correction
  ``a_i + room_i (C mu)_i`` that meets them exactly exists, with ``room_i <= 1`` the distance to the edge of the
  domain; its size is bounded and the largest Fenchel-Young value over it is taken (again at an end).

With one score per class the dual point is one of probabilities ``q_i``, the row's own 1 less the sum of the stored others, and the Fenchel-Young value is
``KL(q_i || p_i)``. In the scores it is convex with gradient ``p - q`` and a Hessian that is the variance of a move, so that an error of at
most ``e`` in every score costs ``|p - q|_1 e + e^2``. Probabilities that are multiplied by ``1 + m - q . m`` cost, by
``KL(q' || p) = KL(q' || q) + KL(q || p) + sum (q' - q) log(q / p)``, at most ``r S / 2 + r^2 / 4``, ``r`` the range of ``m`` and ``S^2 = sum q log^2(q / p)``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.duality import find_feasible_moves, list_class_constraints, stack_constraint_columns
from glru.linalg import FEW, TINY, UNIT, Array, Matrix, gamma, namespace, weighted_norm
from glru.losses import Loss, Multinomial
from glru.losses.logistic import class_divergence
from glru.penalties import Penalty
from glru.problem import Point, Problem

LOOSE_SCORE_ERRORS = 32.0
"""Errors of scores may be bounded by this multiple of their size: a digit and a half saves a pass over the data."""


@final
@dataclass(frozen=True, eq=False)
class Columns:
    """What a certificate knows of every column."""

    # Shape (n_columns,): ``X^T (s o a)`` and how far that may be from its exact value at the feasible point.
    correlations: Array
    errors: Array
    norms: Array  # shape (n_columns,): at least ``sqrt(sum_i s_i x_ij^2)``
    # Shape (n_columns,): penalised columns without a value in any row of positive weight: their optimal coefficient is exactly 0.
    dead: NDArray[np.bool_]


@final
@dataclass(frozen=True, eq=False)
class Certificate:
    """A primal-dual pair of a problem and an upper bound of its duality gap, but for terms that underflow (:func:`ball_radius` counts them)."""

    loss: Loss
    penalty: Penalty
    # Shape (n_columns,): the primal point.
    coef: Array
    intercept: Any
    # An upper bound of ``P(w, b) - D(a)`` for a dual feasible point within the stated errors of ``a``; ``inf`` if there is none.
    gap: float
    loss_terms: Array | None  # shape (n_rows,): at least ``F_l(y_i; z_i, -a_i)``, where they were computed row by row
    # What belongs to every column, the problem, the dual point and the range of the correlations; a carried certificate forms them only if asked.
    make_columns: Callable[[], Columns]
    make_problem: Callable[[], Problem]
    make_dual: Callable[[], Array]
    make_range: Callable[[], tuple[Array, Array]]
    known_score_errors: Array | None = None  # shape (n_rows,): the scores' errors, where they were computed for the gap

    @cached_property
    def columns(self) -> Columns:
        """What is known about every column."""
        return self.make_columns()

    @property
    def correlations(self) -> Array:
        """``X^T (s o a)``."""
        return self.columns.correlations

    @property
    def correlation_errors(self) -> Array:
        """How far the correlations may be from their exact values."""
        return self.columns.errors

    @property
    def column_norms(self) -> Array:
        """An upper bound of ``sqrt(sum_i s_i x_ij^2)``."""
        return self.columns.norms

    @cached_property
    def score_errors(self) -> Array:
        """How far each computed score may be from its exact value."""
        known = self.known_score_errors
        return score_errors(self.problem, self.coef, self.intercept) if known is None else known

    @cached_property
    def problem(self) -> Problem:
        """The problem the pair belongs to."""
        return self.make_problem()

    @cached_property
    def point(self) -> Point:
        """The pair."""
        return Point(self.coef, self.intercept, self.make_dual())

    @cached_property
    def row_total(self) -> float:
        """An upper bound of ``sum_i s_i F_l(y_i; z_i, -a_i)``."""
        assert self.loss_terms is not None
        return weighted_sum(self.problem.weights, self.loss_terms)

    @cached_property
    def column_total(self) -> float:
        """An upper bound of ``sum_j F_rho_j(w_j, v_j)``."""
        terms = penalty_terms(self.penalty, self.coef, self.correlations, self.correlation_errors)
        return float(terms.sum()) * (1.0 + gamma(terms.size))

    @cached_property
    def dual_norm(self) -> float:
        """An upper bound of ``sqrt(sum_i s_i a_i^2)``."""
        assert self.point.dual is not None
        return float(weighted_norm(self.problem.weights, self.point.dual)) * (1.0 + gamma(self.problem.n_rows + 8))

    @cached_property
    def correlation_range(self) -> tuple[Array, Array]:
        """The range of ``X_j^T (s o a)`` over the domain of the loss conjugate (Remark 2)."""
        return self.make_range()

    def __getstate__(self) -> dict[str, Any]:
        # Functions made in a call cannot be pickled: what they make is.
        made = {name: partial(_give, make()) for name, make in vars(self).items() if name.startswith("make_")}
        return {**vars(self), **made}


def _give(value: Any) -> Any:
    return value


def certify(
    problem: Problem, point: Point, scores: Array | None = None, correlations: Array | None = None
) -> Certificate:
    """The certificate of a point; ``X w + b`` and ``X^T (s o a)`` as computed are used if they are given."""
    coef, dual = point.coef, point.dual
    assert dual is not None
    if problem.loss.several:
        return _certify_classes(problem, point)
    norms = problem.column_norms * (1.0 + gamma(problem.n_rows + 4))
    moves = find_feasible_moves(problem, dual)
    terms, columns, off = np.full(problem.n_rows, np.inf), np.full(1, np.inf), None
    correlations = problem.correlations(dual) if correlations is None else correlations.copy()
    errors = gamma(problem.n_rows + 3) * float(weighted_norm(problem.weights, dual)) * norms * (1.0 + FEW)
    if np.all(np.isfinite(moves)):
        scores = problem.scores(coef, point.intercept) if scores is None else scores
        off = score_errors(problem, coef, point.intercept, scores)
        terms = loss_terms(problem.loss, problem.y, scores, off, dual, moves)
        errors = errors + float(weighted_norm(problem.weights, moves)) * norms * (1.0 + FEW)
        # The correction makes the correlations of unpenalised columns exactly zero.
        correlations[problem.unpenalised] = 0.0
        errors[problem.unpenalised] = 0.0
        columns = penalty_terms(problem.penalty, coef, correlations, errors)
    gap = (weighted_sum(problem.weights, terms) + float(columns.sum())) * (1.0 + gamma(problem.n_columns + 8))
    return Certificate(
        loss=problem.loss,
        penalty=problem.penalty,
        coef=coef,
        intercept=point.intercept,
        gap=bound_or_inf(gap),
        loss_terms=terms,
        make_columns=lambda: Columns(correlations, errors, norms, problem.dead_columns),
        make_problem=lambda: problem,
        make_dual=lambda: dual,
        make_range=lambda: correlation_range(problem.matrix, problem.loss, problem.y, problem.weights),
        known_score_errors=off,
    )


def _certify_classes(problem: Problem, point: Point) -> Certificate:
    """:func:`certify` with one score per class."""
    loss, coef, n_scores = problem.loss, point.coef, problem.n_scores
    assert isinstance(loss, Multinomial) and point.dual is not None
    norms = problem.column_norms * (1.0 + gamma(problem.n_rows + 4))
    # The probabilities of the other classes are taken as they stand, and the row's own is 1 less their exact sum.
    q = np.maximum(loss.probabilities_of(problem.y, -point.dual), 0.0)
    dual = -loss.slopes_of(problem.y, q)
    rows = np.arange(problem.n_rows)
    q[rows, problem.y] = 1.0 - dual[rows, problem.y]
    inside = bool(np.all(q >= 0.0))
    ranges = _find_class_moves(problem, dual, q) if inside else np.full(problem.n_rows, np.inf)
    terms, gap = np.full(problem.n_rows, np.inf), np.inf
    sizes = weighted_norm(problem.weights, dual) * gamma(problem.n_rows + n_scores + 8)
    # A move of scores of range r moves no probability by more than r / 4; a row without a weight moves nothing.
    counted = np.where(problem.weights > 0.0, ranges, 0.0)
    sizes = sizes + 0.25 * float(weighted_norm(problem.weights, counted)) * (1.0 + FEW)
    correlations, errors = problem.correlations(dual), np.outer(sizes, norms) * (1.0 + gamma(problem.n_rows + 8))
    if np.all(ranges < 0.5):
        scores = problem.scores(coef, point.intercept)
        terms = class_terms(q, problem.y, scores, class_score_errors(problem, point), ranges)
        correlations[:, problem.unpenalised] = 0.0
        errors[:, problem.unpenalised] = 0.0
        columns = penalty_terms(problem.penalty, coef, correlations, errors)
        gap = weighted_sum(problem.weights, terms) + float(columns.sum())
        gap *= 1.0 + gamma(coef.size + 8)
    return Certificate(
        loss=loss,
        penalty=problem.penalty,
        coef=coef,
        intercept=point.intercept,
        gap=bound_or_inf(gap),
        loss_terms=terms,
        make_columns=lambda: Columns(correlations, errors, norms, problem.dead_columns),
        make_problem=lambda: problem,
        make_dual=lambda: dual,
        make_range=lambda: (np.full(coef.shape, -np.inf), np.full(coef.shape, np.inf)),
    )


def _find_class_moves(problem: Problem, dual: Array, q: Array) -> Array:
    """The ranges of the moves of scores that make the constraints of every class hold exactly; inf if none is known."""
    if not problem.fit_intercept and not problem.unpenalised.size:
        return np.zeros(problem.n_rows)
    columns = stack_constraint_columns(problem)
    residual, sizes, matrix = list_class_constraints(problem, dual, q)
    if not np.all(np.isfinite(matrix)):
        return np.full(problem.n_rows, np.inf)
    # The row's own dual variable is a sum over the other classes.
    residual = np.abs(residual) + gamma(problem.n_rows + problem.n_scores + 8) * sizes
    size = len(matrix)
    # The entries err by units of s c^2, whose sum is part of the trace; those of the diagonal are differences of two sums.
    error = 2.0 * gamma(problem.n_rows + 10 * size + 4 * problem.n_scores + 32) * size
    least = float(np.linalg.eigvalsh(matrix)[0]) - error * float(np.trace(matrix))
    if not least > 0.0:
        return np.zeros(problem.n_rows) if not residual.any() else np.full(problem.n_rows, np.inf)
    # Residual and solution sum to zero over the classes; the range of such a vector is at most sqrt(2) times its norm.
    # Divided first: squares of residuals alone may underflow.
    length = float(np.linalg.norm(residual / least)) * (1.0 + gamma(residual.size + 16)) + TINY
    return np.sqrt(2.0) * length * np.linalg.norm(columns, axis=1) * (1.0 + FEW)


def class_terms(q: Array, y: Array, scores: Array, errors: Array, ranges: Array) -> Array:
    """An upper bound of ``KL(q' || p)`` for all scores within their errors and probabilities moved by at most ``ranges``."""
    top = scores.max(axis=1, keepdims=True)
    logs = scores - top
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
    # What evaluation loses is the effect of moving the scores by a few units of the numbers involved.
    wide = errors + gamma(2 * q.shape[1] + 32) * (1.0 + np.abs(top[:, 0]) + np.ptp(scores, axis=1))
    with np.errstate(all="ignore"):
        ratios = np.where(q > 0.0, np.abs(np.log(np.where(q > 0.0, q, 1.0)) - logs), 0.0) + wide[:, None]
    spread = np.sqrt(np.sum(q * np.square(ratios), axis=1))
    distance = np.abs(q - np.exp(logs)).sum(axis=1) + FEW
    grown = class_divergence(q, scores) + distance * wide + np.square(wide)
    grown += 0.5 * ranges * spread + 0.25 * np.square(ranges)
    # The row's own probability is off by a few units, and the divergence by its logarithm times that: 64 covers a number next to zero.
    rows = np.arange(len(q))
    own, ratio = q[rows, y], ratios[rows, y]
    grown += gamma(q.shape[1] + 8) * np.where(
        own > 1e-8, ratio + gamma(q.shape[1] + 8) / np.maximum(own, 1e-8), ratio + 64.0
    )
    return np.where(wide < 0.1, grown * (1.0 + gamma(q.shape[1] + 64)), np.inf)


def class_score_errors(problem: Problem, point: Point) -> Array:
    """How far each row's computed scores may be from their exact values, at most, with one score per class."""
    unit = problem.matrix.depths(3) * (1.0 + 2.0 * gamma(problem.n_columns + 8))
    largest = np.abs(point.coef).max(axis=0)
    shift = float(np.abs(point.intercept).max()) if problem.fit_intercept else 0.0
    errors = unit * (problem.matrix.absolute_product(largest) + shift)
    return errors if problem.matrix.noise is None else errors + problem.matrix.noise


def bound_or_inf(gap: float) -> float:
    """A gap, or infinity where overflow left no number: nothing is proven then."""
    return gap if np.isfinite(gap) else np.inf


def ball_radius(gap: Array | float) -> Array:
    """An upper bound of ``sqrt(2 gap)``, with room for terms of the gap that underflow."""
    return np.sqrt(2.0 * np.asarray(gap)) * (1.0 + FEW) + TINY


def weighted_sum(weights: Array, terms: Array) -> float:
    """An upper bound of ``sum_i s_i t_i`` for non-negative terms, which may be infinite where the weight is zero."""
    total = float(weights @ np.where(weights > 0.0, terms, 0.0))
    return total * (1.0 + gamma(weights.size + 2))


def score_errors(problem: Problem, coef: Array, intercept: float, scores: Array | None = None) -> Array:
    """How far each computed score may be from its exact value: ``gamma`` of a row's entries times ``|x| . |w| + |b|``.

    With it comes what the evaluation of the losses does to slopes, as an error of the score (``Problem.score_noise``).

    Where ``|x| |w|`` is not much more than the ``scores``, it is taken for ``|x| . |w|``, which would cost a pass over X.
    """
    unit = problem.matrix.depths(3) * (1.0 + 2.0 * gamma(problem.n_columns + 8))
    if scores is not None:
        length = float(np.linalg.norm(coef)) * (1.0 + FEW) + TINY
        sizes = (np.sqrt(problem.squared_row_norms) + TINY) * (length * (1.0 + gamma(problem.n_columns + 8)))
        if sizes.max(initial=0.0) <= LOOSE_SCORE_ERRORS * (1.0 + np.abs(scores).max(initial=0.0)):
            return unit * (sizes + abs(intercept)) + problem.score_noise
    return unit * (problem.matrix.absolute_product(np.abs(coef)) + abs(intercept)) + problem.score_noise


def loss_terms(loss: Loss, y: Array, scores: Array, errors: Array, dual: Array, moves: Array | None = None) -> Array:
    """An upper bound of ``F_l(y_i; z_i, -a_i)`` for all scores and dual variables within their errors."""
    xp = namespace(scores)
    wide = xp.abs(scores)
    wide += xp.abs(dual)
    wide += 1.0 + loss.target_size(y)
    wide *= 8.0 * UNIT
    wide += errors + loss.score_noise
    if np.isfinite(loss.smoothness) and (moves is None or not moves.any()):
        # F is convex in the score with a derivative of l'(z) + a that changes by at most the smoothness: second order.
        # The derivative itself errs by FEW (1 + |a|) at most, which is less than 2 wide.
        grown, slope = loss.fenchel_young_slope(y, scores, -dual)
        slope *= 1.0 + FEW
        slope += (loss.smoothness + 2.0) * wide
        slope *= wide
        grown += slope
        grown *= 1.0 + FEW
        return grown
    slopes = [-dual]
    if moves is not None and moves.any():
        longest = lengthen_moves(moves, dual)
        slopes = [loss.project(y, -dual - longest), loss.project(y, -dual + longest)]
    values = [loss.fenchel_young(y, z, g) for z in (scores - wide, scores + wide) for g in slopes]
    return np.maximum.reduce(values) * (1.0 + FEW)


def lengthen_moves(moves: Array, dual: Array) -> Array:
    """An upper bound of ``moves`` after they were added to the dual variables in float64.

    A move that is lost in the rounding of the sum may still be a share of the distance to the edge of the domain.
    """
    return np.where(moves > 0.0, moves * (1.0 + FEW) + 4.0 * UNIT * np.abs(dual), 0.0)


def penalty_terms(penalty: Penalty, coef: Array, correlations: Array, errors: Array) -> Array:
    """An upper bound of ``F_rho_j(w_j, v_j)`` for all correlations within their errors."""
    wide = errors + FEW * np.abs(correlations) + FEW * penalty.quadratic * np.abs(coef)
    _, edge = penalty.derivative_range()
    # Where the domain is bounded the dual point was scaled inside by more than its errors, not by these few more.
    wide = np.where(np.isfinite(edge), errors, wide)
    ends = [penalty.fenchel_young(coef, correlations + sign * wide) for sign in (-1.0, 1.0)]
    return np.maximum(*ends) * (1.0 + FEW)


def correlation_range(X: Matrix, loss: Loss, y: Array, weights: Array) -> tuple[Array, Array]:
    """Lower and upper end of ``X_j^T (s o a)`` over all ``a`` in the domain of the loss conjugate, rounded outward."""
    low, high = loss.derivative_range(y)
    if not (np.all(np.isfinite(low)) and np.all(np.isfinite(high))):
        return np.full(X.shape[1], -np.inf), np.full(X.shape[1], np.inf)
    middle = X.T @ (weights * (-0.5 * (low + high)))
    half = abs(X).T @ (weights * (0.5 * (high - low)))
    # Products of denormals err by more than their share; all of that is far below TINY.
    half = half * (1.0 + 2.0 * gamma(y.size + 4)) + gamma(y.size + 4) * np.abs(middle) + TINY
    return middle - half, middle + half
