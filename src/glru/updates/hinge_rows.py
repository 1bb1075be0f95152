r"""Leave-one-out of the hinge loss: the optimum is followed while the dual variable of a row goes to zero, and proven where that ends.

An optimum has rows at the kink, whose margins are 1, rows before it, whose dual variables are at their upper ends, and rows beyond it, whose dual
variables are 0. While these sets stay as they are, the optimum moves on a straight line, which takes one system of the size of the rows at the kink. Where a row comes to
its kink or leaves it, the line bends. A few such pieces lead from the model of all rows to the model without one.

The path only proposes dual variables. What is proven is the duality gap of the model that these give, for many rows by a few products with X, and with
an intercept the interval of :math:`b^*` that follows from the ball: with :math:`\kappa_k` the norm of :math:`x_k - c` in the inverse metric of the penalty and
:math:`r` the radius, :math:`b^* + c^\top w^*` is below :math:`\hat b + c^\top \hat w + \delta` if the slopes at the scores
:math:`x_k^\top \hat w + \hat b + \delta - r \kappa_k` sum up to more than 0, for any :math:`c`.
"""

from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, unbounded, widen
from glru.certificate import ball_radius
from glru.linalg import FEW, HOST, TINY, UNIT, Array, gamma
from glru.losses import Hinge
from glru.problem import Problem
from glru.solution import Solution
from glru.updates.batch import Decided
from glru.updates.carried_rows import rounded_norms, row_norms, sum_error
from glru.updates.tall_rows import penalty_sums, removal_gaps

Rows = NDArray[np.intp]

BEYOND, AT_KINK, BEFORE, NO_WEIGHT = 0, 1, 2, 3
"""Where a row is: beyond its kink, at it, before it; or it does not count."""

NEAR_AN_END = (1e-6, 1e-4, 1e-2)
"""Dual variables nearer than this share to an end are taken to be there, in turn until the optimum is found."""

MISPLACED_BY = 1e-7
"""Margins and dual variables may be on the wrong side by this much where the path begins."""

USUAL_PIECES = 50
"""Pieces of a path beyond four per column, after which a row is left to training."""

MOST_KINKS = 120
"""With more rows than this at the kink every piece of a path solves a system that costs about as much as training a model."""

ENTRIES_TOGETHER = 1 << 20
"""Entries of the arrays of dual points that are certified at once."""

INTERCEPT_WIDTHS = (1.5, 16.0)
"""Half-widths of the intercept's interval that are tried, in units of what the rows at the kink allow."""


def has_paths(problem: Problem) -> bool:
    """Whether there are paths: the hinge loss, an L2 penalty on every column, an intercept or none, dense rows in memory."""
    penalised = problem.penalty.smooth and problem.penalty.strong_convexity > 0.0
    dense = problem.in_memory and problem.arrays is HOST and problem.matrix.stores_zeros
    return isinstance(problem.loss, Hinge) and penalised and dense and min(problem.matrix.shape) <= problem.largest


class _Base(NamedTuple):
    alpha: Array
    states: NDArray[np.int8]
    scores: Array


@final
class HingeRows:
    """The removal of single rows; ``factor``: the one of the rows that are asked about."""

    def __init__(self, solution: Solution, factor: float) -> None:
        problem = self.problem = solution.problem
        self.factor, self.weights = factor, factor * problem.weights
        root = np.sqrt(np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,)))
        rows = problem.matrix.dense() / root
        # Only inner products of the rows matter to a path.
        self.rows = np.ascontiguousarray(rows if problem.n_columns <= problem.n_rows else np.linalg.qr(rows.T)[1].T)
        self.base = self._find_base(np.clip(problem.y * solution.dual, 0.0, 1.0))

    @property
    def usable(self) -> bool:
        """Whether the sets of rows at the optimum were found."""
        return self.base is not None

    @property
    def is_short(self) -> bool:
        """Whether a path costs less than training a row's model: its systems are as large as there are rows at the kink."""
        return self.base is not None and int(np.count_nonzero(self.base.states == AT_KINK)) <= MOST_KINKS

    def _find_base(self, slopes: Array) -> _Base | None:
        """The optimum in exact terms: rows at the kink, and dual variables of which the others are at their ends."""
        from glru.linalg import kernels

        problem, limits = self.problem, self.problem.weights
        for near in NEAR_AN_END:
            states = np.where(slopes < near, BEYOND, np.where(slopes > 1.0 - near, BEFORE, AT_KINK)).astype(np.int8)
            states[limits == 0.0] = NO_WEIGHT
            alpha, coef = np.where(states == BEFORE, limits, 0.0), np.empty(self.rows.shape[1])
            found, intercept = kernels.hinge_point(self.rows, problem.y, alpha, states, problem.fit_intercept, coef)
            if not found:
                continue
            scores = self.rows @ coef + intercept
            short, most = 1.0 - problem.y * scores, float(limits.max())
            wrong = np.where(states == BEYOND, short, np.where(states == BEFORE, -short, 0.0))
            outside = np.where(states == AT_KINK, np.maximum(-alpha, alpha - limits), 0.0) / most
            if max(float(wrong.max()), float(outside.max())) <= MISPLACED_BY:
                return _Base(np.clip(alpha, 0.0, limits), states, scores)
        return None

    def bounds(self, rows: Rows, decided: Decided) -> Bounds:
        """Bounds of the removed rows' scores, infinite where a path does not end or nothing is proven."""
        lower, upper = unbounded(rows.size)
        size = max(1, ENTRIES_TOGETHER // self.problem.n_rows)
        for first in range(0, rows.size if self.is_short else 0, size):
            here = slice(first, first + size)
            if decided(lower[here], upper[here]).all():
                break  # the time is up
            lower[here], upper[here] = self._together(rows[here])
        return lower, upper

    def _together(self, rows: Rows) -> Bounds:
        from glru.linalg import kernels

        assert self.base is not None
        problem, base, most = self.problem, self.base, USUAL_PIECES + 4 * min(self.rows.shape)
        slopes, kinks = np.zeros((rows.size, problem.n_rows)), np.zeros((rows.size, problem.n_rows), dtype=bool)
        ended, intercepts = np.zeros(rows.size, dtype=bool), np.zeros(rows.size)
        coef = np.empty(self.rows.shape[1])
        inverse = np.divide(1.0, self.weights, out=np.zeros(problem.n_rows), where=self.weights > 0.0)
        for k, row in enumerate(rows):
            alpha, states, scores = base.alpha.copy(), base.states.copy(), base.scores.copy()
            ended[k], intercepts[k] = kernels.hinge_path(
                self.rows,
                problem.y,
                problem.weights,
                self.factor - 1.0,
                int(row),
                most,
                problem.fit_intercept,
                alpha,
                states,
                scores,
                coef,
            )
            slopes[k], kinks[k] = alpha * inverse, states == AT_KINK
        places = np.flatnonzero(ended & np.isfinite(slopes).all(axis=1) & np.isfinite(intercepts))
        lower, upper = unbounded(rows.size)
        if places.size:
            found = self._certified(rows[places], slopes[places].T, kinks[places].T, intercepts[places])
            lower[places], upper[places] = found
        return lower, upper

    def _certified(self, rows: Rows, slopes: Array, kinks: NDArray[np.bool_], intercepts: Array) -> Bounds:
        """Bounds from the duality gaps of candidates, one column each: dual variables times labels, rows at the kink, intercepts."""
        problem, X, entries = self.problem, self.problem.matrix, (rows, np.arange(rows.size))
        dual = problem.y[:, None] * np.clip(slopes, 0.0, 1.0)
        dual[entries] = 0.0
        weighted = self.weights[:, None] * dual
        correlations = X.T @ weighted
        coefs = correlations / np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))[:, None]
        scores = X @ coefs + intercepts
        # Entry by entry, so that the units of the columns do not matter.
        errors = gamma(problem.n_columns + 4) * (1.0 + FEW) * (abs(X) @ np.abs(coefs) + np.abs(intercepts)) + TINY
        spread = np.sqrt(self.weights @ np.square(dual)) * (1.0 + gamma(problem.n_rows + 4))
        moves, moved = self._repairs(weighted, dual)
        penalty = penalty_sums(problem, self.weights, coefs, correlations, spread, moved)
        gaps = removal_gaps(problem, self.weights, rows, scores, errors, dual, penalty, moves)
        radii, norms = ball_radius(gaps), self._norms(kinks)
        half = radii * norms[rows] + errors[entries]
        if problem.fit_intercept:
            half = half + self._intercepts(rows, scores, radii * norms[:, None] + errors, kinks)
        center = scores[entries]
        half = half * (1.0 + FEW) + FEW * np.abs(center)
        usable = np.isfinite(half)
        return widen(np.where(usable, center, 0.0), np.where(usable, half, np.inf))

    def _repairs(self, weighted: Array, dual: Array) -> tuple[Array | None, Array | float]:
        """At least how far dual variables are from ones that an intercept allows, and the norms of what that does to correlations.

        With an intercept the dual variables must add up to 0. Those of the heavier class are scaled down until they do: by at most what the sum may be,
        as a share of the lighter class.
        """
        problem = self.problem
        if not problem.fit_intercept:
            return None, 0.0
        sizes, error = np.abs(weighted), sum_error(problem.n_rows)
        classes = np.array([sizes[problem.y > 0.0].sum(axis=0), sizes[problem.y < 0.0].sum(axis=0)])
        total = np.abs(classes[0] - classes[1]) + 2.0 * error * classes.max(axis=0)
        with np.errstate(all="ignore"):
            shares = np.where(total > 0.0, total / (classes.min(axis=0) * (1.0 - 2.0 * error)), 0.0) * (1.0 + FEW)
        norms = rounded_norms(row_norms(problem), problem)
        return shares * np.abs(dual), shares * (norms @ sizes) * (1.0 + gamma(problem.n_rows + 8))

    def _norms(self, kinks: NDArray[np.bool_]) -> Array:
        """At least the norms of the rows in the inverse metric of the penalty, with an intercept those of their distances from a mean row."""
        problem = self.problem
        if not problem.fit_intercept:
            return rounded_norms(row_norms(problem), problem)
        counts = kinks.sum(axis=1)
        mean = counts @ problem.matrix.dense() / max(int(counts.sum()), 1)
        away = problem.matrix.dense() - mean
        return rounded_norms(np.square(away) @ np.broadcast_to(1.0 / problem.penalty.quadratic, mean.shape), problem)

    def _intercepts(self, rows: Rows, scores: Array, half: Array, kinks: NDArray[np.bool_]) -> Array:
        """At least the distances of the exact intercepts of centred rows from the candidates'; ``half``: how far scores may be off beside them."""
        problem, y = self.problem, self.problem.y[:, None]
        found = np.full(rows.size, np.inf)
        allowed = np.where(kinks, half, 0.0).max(axis=0) + 32.0 * UNIT * (1.0 + np.abs(scores).max(axis=0))
        weights = self.weights.copy()
        for times in INTERCEPT_WIDTHS:
            tried, beyond = times * allowed, np.ones(rows.size, dtype=bool)
            for side in (1.0, -1.0):
                off = half + 8.0 * UNIT * (1.0 + np.abs(scores) + tried)
                low, high = problem.loss.derivative(y, scores + side * (tried - off))
                terms = weights[:, None] * (low if side > 0.0 else high)
                terms[rows, np.arange(rows.size)] = 0.0
                slack = (sum_error(problem.n_rows) + 8.0 * UNIT) * np.abs(terms).sum(axis=0) * (1.0 + FEW)
                beyond &= side * terms.sum(axis=0) > slack
            found = np.where(beyond, np.minimum(found, tried), found)
        return found * (1.0 + FEW)
