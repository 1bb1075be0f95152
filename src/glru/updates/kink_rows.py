r"""Leave-one-out of losses with kinks: candidates that lie on the right pieces of the losses, proven by the duality gap.

A hinge, smoothed hinge, squared hinge or Huber loss is linear or quadratic between its kinks. On fixed pieces, the optimum solves one linear system, and a few rows change
pieces when one row leaves. Two ways to find which:

* The hinge loss has no curvature (:class:`HingePaths`): the optimum is followed while the dual variable of a row goes to zero. It has rows at the kink, whose margins are 1,
  rows before it, whose dual variables are at their upper ends, and rows beyond it, whose dual variables are 0. While these sets stay as they are, the optimum moves on a straight
  line, which takes one system of the size of the rows at the kink. Where a row comes to its kink or leaves it, the line bends.
* Losses with a curved piece (:class:`PieceSteps`) take semismooth Newton steps, for many rows at once: the Hessian of a model differs from that of all rows by the rows that
  have changed pieces, a correction of small rank.

Both only propose dual variables. What is proven is the duality gap of the model that these give, for many rows by a few products with X, and with
an intercept the interval of :math:`b^*` that follows from the ball: with :math:`\kappa_k` the norm of :math:`x_k - c` in the inverse metric of the penalty and
:math:`r` the radius, :math:`b^* + c^\top w^*` is below :math:`\hat b + c^\top \hat w + \delta` if the slopes at the scores
:math:`x_k^\top \hat w + \hat b + \delta - r \kappa_k` sum up to more than 0, for any :math:`c`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, intersect, is_decided, unbounded, widen
from glru.certificate import ball_radius, loss_terms
from glru.linalg import FEW, HOST, TINY, UNIT, Array, add_work, gamma, get_arrays, to_host
from glru.losses import Hinge
from glru.metric.rows import NewtonSystem, RowMetric, RowSide
from glru.problem import Problem
from glru.solution import Solution
from glru.updates.batch import Decided
from glru.updates.carried_rows import rounded_norms, row_norms, sum_error
from glru.updates.gradients import find_lengths
from glru.updates.refits import Refits

Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]

BEYOND, AT_KINK, BEFORE, NO_WEIGHT = 0, 1, 2, 3
"""The place of a row: beyond its kink, at it, or before it; or it has no weight."""

NEAR_AN_END = (1e-6, 1e-4, 1e-2)
"""Dual variables within this share of an end are taken to be at the end; the shares are tried in turn until the optimum is found."""

MISPLACED_BY = 1e-7
"""Margins and dual variables may be on the wrong side by this much at the start of the path."""

USUAL_PIECES = 50
"""A row is left to training after this many pieces of its path beyond four per column."""

MAX_KINKS = 120
"""With more rows than this at the kink, every piece of a path solves a system that costs about as much as training a model."""

ENTRIES_TOGETHER = 1 << 20
"""Entries of the arrays of dual points that are certified at once."""

INTERCEPT_WIDTHS = (1.5, 16.0)
"""Half-widths of the intercept's interval to try, in units of what the rows on curved pieces allow."""

MAX_ROWS, ROWS_PER_COLUMN = 2048, 10
"""Steps use matrices with one entry per pair of rows, for at most this many rows, and rows per column: of taller data so few rows cross kinks that Hessians over the columns cost less."""

MAX_STEPS = 40
"""Semismooth Newton steps of a model."""

NEGLIGIBLE_MOVE = 1e-8
"""A step that moves no score by more than this, as a share of scores and targets, is the last one."""

EXACT_GAP = 1e-12
"""Gap, as a share of the weights, below which a candidate is nearly as good as float64 allows."""

MAX_ROUNDS, USEFUL_ROUND = 12, 0.1
"""The largest number of sets of rows at the kink to try for a model; while its label is open, trying continues as long as each leaves less than this share of the gap: a training costs about as much as three."""

FREE_SCALE = 1e-2
"""Strength given to the intercept, as a share of that of the rows' coefficients, when the model nearest to another is searched for."""

SAME_ROW, DUAL_STEPS = 1e-14, 50
"""Share of its trace that is added to the diagonal of the Gram matrix of the rows at the kink, because rows may be repeated; and the number of steps that find their dual variables."""

LARGEST_CORRECTION = 256
"""A model in which more rows than this have changed pieces is left to training."""


def penalty_sums(
    problem: Problem, weights: Array, coefs: Any, correlations: Any, length: Array, moves: Array | float = 0.0
) -> Array:
    """Upper bounds of the penalty's Fenchel-Young sums, ``(lam w - v)^2 / (2 lam)`` with the largest ``v`` within its error.

    Parameters
    ----------
    problem, weights : Problem, array
        The data, and the new weights of the rows.
    coefs, correlations : array of shape (n_columns, n_models)
        The models and the computed ``v``.
    length : array of shape (n_models,)
        At least ``sqrt(sum_i s_i a_i^2)``.
    moves : array, default=0.0
        At least how far the exact ``v`` may be from what was to be computed, in the inverse metric of the penalty.
    """
    arrays = problem.arrays
    spread = np.sqrt(weights.sum() / problem.weights.sum()) * (1.0 + gamma(problem.n_rows + 8))
    slack = sum_error(problem.n_rows) * spread * problem.column_norms * (1.0 + FEW)
    lam = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
    scaled = arrays.put(lam)[:, None] * coefs
    off = arrays.xp.abs(scaled - correlations) + arrays.put(slack[: problem.n_columns])[:, None] * arrays.put(length)
    off += FEW * (arrays.xp.abs(scaled) + arrays.xp.abs(correlations))
    # Divided first: squares of small correlations may underflow where these terms do not.
    off *= arrays.put(np.sqrt(1.0 / lam))[:, None]
    return 0.5 * np.square(np.sqrt(arrays.inner(off, off)) + moves) * (1.0 + gamma(problem.n_columns + 8) + FEW)


def removal_gaps(
    problem: Problem, weights: Array, rows: Rows, scores: Any, errors: Any, dual: Any, penalty: Array, moves: Any = None
) -> Array:
    """Upper bounds of the gaps of candidates without one row each, from their scores and dual variables (one column each).

    ``penalty``: at least the penalty's part; ``moves``: at most how far feasible dual variables are from these.
    """
    arrays = get_arrays(scores)
    terms = loss_terms(problem.loss, arrays.put(problem.y)[:, None], scores, errors, dual, moves)
    terms = arrays.zero_out(terms, (rows, np.arange(rows.size)))
    if not weights.all():
        terms = arrays.without_rows(terms, weights == 0.0)
    losses = to_host(arrays.put(weights) @ terms) * (1.0 + sum_error(problem.n_rows))
    gaps = (losses + penalty) * (1.0 + FEW)
    return np.where(np.isfinite(gaps), gaps, np.inf)


def has_kinks(problem: Problem) -> bool:
    """Whether candidates are found: a loss with kinks, an L2 penalty on every column, an intercept or none, dense rows in memory."""
    penalised = problem.penalty.smooth and problem.penalty.strong_convexity > 0.0
    dense = problem.in_memory and problem.arrays is HOST and problem.matrix.stores_zeros
    if isinstance(problem.loss, Hinge):
        return penalised and dense and min(problem.matrix.shape) <= problem.largest
    most = min(MAX_ROWS, ROWS_PER_COLUMN * problem.n_columns, problem.largest)
    return penalised and dense and problem.loss.piecewise and problem.n_rows <= most


def _pseudo_inverse(rows: Array) -> Array:
    """Nearly the pseudo-inverses of matrices, by their smaller Gram matrices."""
    across = rows.transpose(0, 2, 1)
    gram = rows @ across if rows.shape[1] <= rows.shape[2] else across @ rows
    added = SAME_ROW * np.trace(gram, axis1=1, axis2=2)[:, None, None]
    inverse = np.linalg.inv(gram + added * np.eye(gram.shape[1]))
    return across @ inverse if rows.shape[1] <= rows.shape[2] else inverse @ across


class Proposals(NamedTuple):
    """Models without one row each, as the dual variables and intercepts that they are made from, one per column."""

    dual: Array  # shape (n_rows, n_models): dual variables
    curved: Mask  # shape (n_rows, n_models): the rows on curved pieces, or at the kink of a loss that has none
    intercepts: Array  # shape (n_models,): the intercepts; 0 where there is none


class _Base(NamedTuple):
    alpha: Array
    states: NDArray[np.int8]
    scores: Array


@final
class HingePaths:
    """Optima of the hinge loss without one row each, followed from that of all rows."""

    def __init__(self, solution: Solution, factor: float) -> None:
        problem = self.problem = solution.problem
        self.factor, self.weights = factor, factor * problem.weights
        root = np.sqrt(np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,)))
        rows = problem.matrix.dense() / root
        # Only inner products of the rows matter to a path.
        self.rows = np.ascontiguousarray(rows if problem.n_columns <= problem.n_rows else np.linalg.qr(rows.T)[1].T)
        self.base = self._find_base(np.clip(problem.y * solution.dual, 0.0, 1.0))

    @property
    def found(self) -> bool:
        """Whether the sets of rows at the optimum were found."""
        return self.base is not None

    @property
    def is_cheap(self) -> bool:
        """Whether a path costs less than training a row's model: its systems are as large as there are rows at the kink."""
        return self.base is not None and int(np.count_nonzero(self.base.states == AT_KINK)) <= MAX_KINKS

    def _find_base(self, slopes: Array) -> _Base | None:
        """The optimum in exact terms: rows at the kink, and dual variables of which the others are at their ends."""
        from glru.linalg import kernels

        problem, limits = self.problem, self.problem.weights
        for near in NEAR_AN_END:
            states = np.where(slopes < near, BEYOND, np.where(slopes > 1.0 - near, BEFORE, AT_KINK)).astype(np.int8)
            states[limits == 0.0] = NO_WEIGHT
            alpha, coef = np.where(states == BEFORE, limits, 0.0), np.empty(self.rows.shape[1])
            found, intercept = kernels.find_hinge_point(
                self.rows, problem.y, alpha, states, problem.fit_intercept, coef
            )
            if not found:
                continue
            scores = self.rows @ coef + intercept
            short, most = 1.0 - problem.y * scores, float(limits.max())
            wrong = np.where(states == BEYOND, short, np.where(states == BEFORE, -short, 0.0))
            outside = np.where(states == AT_KINK, np.maximum(-alpha, alpha - limits), 0.0) / most
            if max(float(wrong.max()), float(outside.max())) <= MISPLACED_BY:
                return _Base(np.clip(alpha, 0.0, limits), states, scores)
        return None

    def propose(self, rows: Rows) -> Proposals:
        """The ends of the paths, not numbers where one was not reached."""
        from glru.linalg import kernels

        assert self.base is not None
        problem, base, most = self.problem, self.base, USUAL_PIECES + 4 * min(self.rows.shape)
        dual, kinks = np.full((problem.n_rows, rows.size), np.nan), np.zeros((problem.n_rows, rows.size), dtype=bool)
        intercepts, coef, work = np.zeros(rows.size), np.empty(self.rows.shape[1]), np.zeros(1)
        inverse = np.divide(1.0, self.weights, out=np.zeros(problem.n_rows), where=self.weights > 0.0)
        for k, row in enumerate(rows):
            alpha, states, scores = base.alpha.copy(), base.states.copy(), base.scores.copy()
            ended, intercepts[k] = kernels.follow_hinge_path(
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
                work,
            )
            if ended:
                dual[:, k], kinks[:, k] = problem.y * alpha * inverse, states == AT_KINK
        add_work(0.3 * work[0])
        return Proposals(dual, kinks, intercepts)


@final
class PieceSteps:
    r"""Models of a piecewise quadratic loss without one row each, by semismooth Newton steps in the dimension of the rows.

    A model is a pair :math:`(b, \beta)` of :class:`~glru.metric.rows.RowSide`. With :math:`Q` the scores that forces cause in the metric of the model of
    all rows, :math:`P = I - D Q`, and :math:`E` the change of the curvatures of the rows ``S`` that are on other pieces, a step against forces ``e`` is

    .. math:: \delta z = -Q (e - x), \quad (E^{-1} + Q_{SS}) x_S = (Q e)_S .

    For rows that leave the curved piece, :math:`E = -D`, the line of that system is :math:`-D^{-1} P`, which is known without cancellation.
    """

    def __init__(self, solution: Solution, factor: float) -> None:
        problem = self.problem = solution.problem
        self.weights, self.side = factor * problem.weights, RowSide(problem)
        center, self._target_size = self.side.center, float(np.abs(problem.y).max(initial=0.0))
        self._shift = None if center is None else problem.matrix @ (self.side.inverse * center)
        duals = problem.weights * solution.dual
        free = np.array([self.side.intercept(solution.coef, solution.intercept)] if problem.fit_intercept else [])
        with np.errstate(all="ignore"):
            self.duals, self.free, self._converged = self._find_base(duals, free)
            scores = self.side.scores(self.duals[:, None], self.free[:, None])
            _, curvatures, _ = self._expand(self.duals[:, None], scores, self.weights[:, None])
            self.metric = RowMetric(self.side, curvatures[:, 0])
            self.known = self.metric.leverages

    @property
    def found(self) -> bool:
        """Whether the model of all rows was found, with a metric."""
        return self._converged and bool(np.isfinite(self.metric.free_norm))

    is_cheap = found

    def _find_base(self, duals: Array, free: Array) -> tuple[Array, Array, bool]:
        """The model of all rows with the new weights, near a given one, and whether steps have ended there."""
        b, beta, weights = duals[:, None], free[:, None], self.weights[:, None]
        for _ in range(MAX_STEPS):
            scores = self.side.scores(b, beta)
            forces, curvatures, _ = self._expand(b, scores, weights)
            system = NewtonSystem(self.side, curvatures[:, 0])
            change, steps = system.solve(forces, self.side.border.T @ b)
            moves = self.side.scores(steps, change)
            lengths = self._lengths(b, scores, weights, steps, change, moves)
            if not lengths[0] > 0.0:
                break
            b, beta = b + lengths * steps, beta + lengths * change
            if self._is_small(moves, scores)[0]:
                return b[:, 0], beta[:, 0], True
        return b[:, 0], beta[:, 0], False

    def _expand(self, duals: Array, scores: Array, weights: Array) -> tuple[Array, Array, Mask]:
        """Forces, weighted curvatures, and the models that have none, where an intercept needs one: their row that is nearest to its curved piece is taken to be there."""
        y = self.problem.y[:, None]
        slopes, curvatures = self.problem.loss.expand_slope(y, scores)
        forces, curvatures = weights * slopes + duals, weights * curvatures
        flat = np.logical_not(curvatures.any(axis=0)) & (self.side.n_free > 0)
        if flat.any():
            depths = np.where(weights[:, flat] > 0.0, self.problem.loss.piece_depth(y, scores[:, flat]), -np.inf)
            nearest, members = depths.argmax(axis=0), np.flatnonzero(flat)
            curvatures[nearest, members] = self.problem.loss.smoothness * weights[nearest, members]
        return forces, curvatures, flat

    def _is_small(self, moves: Array, scores: Array) -> Mask:
        """Whether steps are as small as rounding errors, for members one per column."""
        sizes = np.abs(scores).max(axis=0, initial=0.0) + self._target_size
        small: Mask = np.abs(moves).max(axis=0, initial=0.0) <= NEGLIGIBLE_MOVE * sizes
        return small

    def propose(self, rows: Rows) -> Proposals:
        """The models after steps until no row changes its piece."""
        n_rows = self.problem.n_rows
        dual, curved = np.full((n_rows, rows.size), np.nan), np.zeros((n_rows, rows.size), dtype=bool)
        intercepts = np.zeros(rows.size)
        members = np.arange(rows.size)
        b, beta = np.repeat(self.duals[:, None], rows.size, axis=1), np.repeat(self.free[:, None], rows.size, axis=1)
        weights = np.repeat(self.weights[:, None], rows.size, axis=1)
        weights[rows, members] = 0.0
        before = np.zeros((n_rows, rows.size), dtype=bool)
        inverse = np.divide(1.0, self.weights, out=np.zeros(n_rows), where=self.weights > 0.0)[:, None]
        with np.errstate(all="ignore"):
            for step in range(MAX_STEPS):
                scores = self.side.scores(b, beta)
                forces, curvatures, flat = self._expand(b, scores, weights)
                steps, change, moves = self._steps(forces, curvatures, b)
                lengths = self._lengths(b, scores, weights, steps, change, moves)
                b, beta = b + lengths * steps, beta + lengths * change
                now = (curvatures > 0.0) & ~flat
                same = (now == before).all(axis=0) & (lengths == 1.0) & ~flat
                leave = same | self._is_small(moves, scores) | ~(lengths > 0.0) | (step + 1 == MAX_STEPS)
                if leave.any():
                    here = members[leave]
                    curved[:, here] = now[:, leave]
                    # On flat pieces the dual variables are at their ends, exactly.
                    ends = -self.problem.loss.gradient(self.problem.y[:, None], scores[:, leave])
                    dual[:, here] = np.where(now[:, leave], inverse * b[:, leave], ends)
                    intercepts[here] = self._intercepts(b[:, leave], beta[:, leave])
                    stay = ~leave
                    b, beta, weights, members, now = (
                        b[:, stay],
                        beta[:, stay],
                        weights[:, stay],
                        members[stay],
                        now[:, stay],
                    )
                before = now
                if not members.size:
                    break
        return Proposals(dual, curved, intercepts)

    def _intercepts(self, duals: Array, free: Array) -> Array | float:
        """The intercepts of models of the rows as they are, not centred."""
        if not self.side.n_free:
            return 0.0
        return free[-1] if self._shift is None else free[-1] - self._shift @ duals

    def _steps(self, forces: Array, curvatures: Array, duals: Array) -> tuple[Array, Array, Array]:
        """Newton steps: the changes of ``b``, of ``beta`` and of the scores."""
        known, metric, side = self.known, self.metric, self.side
        sums = metric.solve_border(side.border.T @ duals)
        constant = metric.responses @ sums if side.n_free else 0.0
        extra = curvatures - metric.curvatures[:, None]
        sizes = np.count_nonzero(extra, axis=0)
        # What the rows that have changed pieces do; the changes of b are products with P, whose small entries are accurate.
        taken, first = np.zeros(forces.shape), -(known.duals @ forces) - constant
        seen = side.scores(first, sums - known.free @ forces) if np.any(extra > 0.0) else first
        most = 1
        while most // 2 < sizes.max(initial=0):
            members = np.flatnonzero((sizes > most // 2) & (sizes <= most))
            if members.size and most <= LARGEST_CORRECTION:
                self._correct(members, most, extra, np.where(extra < 0.0, -forces - first, -seen), taken)
            elif members.size:
                taken[:, members] = np.nan
            most *= 2
        rest = forces - taken
        change, steps = sums - known.free @ rest, -(known.duals @ rest) - constant
        return steps, change, side.scores(steps, change)

    def _correct(self, members: Rows, size: int, extra: Array, right: Array, taken: Array) -> None:
        """Fill in ``x`` for members in which at most ``size`` rows are on other pieces."""
        size, columns = min(size, extra.shape[0]), members[:, None]
        rows = np.argsort(extra[:, members] == 0.0, axis=0, kind="stable")[:size].T
        extra, right = extra[rows, columns], right[rows, columns]
        leaves, unused = extra < 0.0, extra == 0.0
        pairs = rows[:, :, None], rows[:, None, :]
        systems = np.where(leaves[:, :, None], self.known.duals[pairs], self.known.scores[pairs])
        systems[unused] = 0.0
        places = np.arange(size)
        systems[:, places, places] += np.where(leaves, 0.0, 1.0 / np.where(unused, 1.0, extra))
        try:
            found = np.linalg.solve(systems, np.where(unused, 0.0, right)[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError:
            found = np.full(right.shape, np.nan)
        taken[rows, columns] = np.where(unused, 0.0, found)

    def _lengths(self, duals: Array, scores: Array, weights: Array, steps: Array, change: Array, moves: Array) -> Array:
        """How far to go along steps: all the way, or to where the objective is lowest; 0 where that is not a number."""
        side, loss, y = self.side, self.problem.loss, self.problem.y[:, None]
        penalised = moves - side.border @ change if side.n_free else moves
        start, growth = np.einsum("ij,ij->j", duals, penalised), np.einsum("ij,ij->j", steps, penalised)
        # Near the optimum slopes are rounding errors, and a full step is right.
        small = self._is_small(moves, scores)
        return find_lengths(loss, y, scores, moves, weights, start, growth, small)


@final
class KinkRows:
    """The removal of single rows; ``factor``: the one of the rows that are asked about.

    ``refits``: factors of the strengths of the penalty and, without an intercept, moved values without each row. Bounds hold for these as they are stored.
    """

    def __init__(self, solution: Solution, factor: float, refits: Refits | None = None) -> None:
        self.problem, self.weights = solution.problem, factor * solution.problem.weights
        self._refits = refits
        self._solution = solution
        self._known = unbounded(self.problem.n_rows)
        self._asked = np.zeros(self.problem.n_rows, dtype=bool)
        self.finder = (HingePaths if isinstance(solution.problem.loss, Hinge) else PieceSteps)(solution, factor)

    @property
    def usable(self) -> bool:
        """Whether the model of all rows was found."""
        return self.finder.found

    def bounds(self, rows: Rows, decided: Decided) -> Bounds:
        """Bounds of the removed rows' scores, infinite where nothing is found or proven."""
        lower, upper = self._known
        size = max(1, ENTRIES_TOGETHER // max(self.problem.matrix.shape))
        new = rows[~self._asked[rows]]
        for first in range(0, new.size, size):
            here = new[first : first + size]
            if decided(lower[here], upper[here]).all():
                break  # the time is up
            self._asked[here] = True
            if self.finder.is_cheap:
                self._prove(here, self.finder.propose(here), decided)
            elif isinstance(self.problem.loss, Hinge):
                self._prove(here, self._carry(here), decided)
        return lower[rows], upper[rows]

    def prove_trained(self, rows: Rows, models: Sequence[Solution], decided: Decided) -> Bounds:
        """Bounds from models that were trained without one of the rows each, certified together."""
        problem, dual = self.problem, np.column_stack([model.dual for model in models])
        slopes = problem.y[:, None] * dual
        inside = (slopes > NEAR_AN_END[1]) & (slopes < 1.0 - NEAR_AN_END[1]) & (self.weights > 0.0)[:, None]
        inside[rows, np.arange(rows.size)] = False
        self._prove(rows, Proposals(dual, inside, np.array([model.intercept for model in models])), decided)
        lower, upper = self._known
        return lower[rows], upper[rows]

    def _carry(self, rows: Rows) -> Proposals:
        """The model of all rows as it is: where rows are repeated, others at the kink may take the part of one of them."""
        problem, known, shape = self.problem, self._solution, (self.problem.n_rows, rows.size)
        kinks = (np.abs(1.0 - problem.y * known.scores) <= MISPLACED_BY) & (self.weights > 0.0)
        kinks = np.repeat(kinks[:, None], rows.size, axis=1)
        kinks[rows, np.arange(rows.size)] = False
        return Proposals(np.broadcast_to(known.dual[:, None], shape), kinks, np.full(rows.size, known.intercept))

    def _prove(self, rows: Rows, proposals: Proposals, decided: Decided) -> None:
        """Take in what the gaps of candidates prove."""
        problem, (dual, kinks, intercepts) = self.problem, proposals
        places = np.flatnonzero(np.isfinite(dual).all(axis=0) & np.isfinite(intercepts))
        if not places.size:
            return
        rows, kinks, intercepts = rows[places], kinks[:, places], intercepts[places]
        dual = -problem.loss.project(problem.y[:, None], -dual[:, places])
        dual[rows, np.arange(rows.size)] = 0.0
        coefs = self._correlations(rows, self.weights[:, None] * dual) / self._strengths(rows)
        found, gaps = self._certified(rows, kinks, (coefs, intercepts, dual))
        rough = np.arange(rows.size if isinstance(problem.loss, Hinge) else 0)
        for _ in range(MAX_ROUNDS):
            rough = rough[gaps[rough] > EXACT_GAP * float(self.weights.sum())]
            rough = rough[~decided(found[0][rough], found[1][rough])]
            if not rough.size:
                break
            here = rows[rough]
            near = self._at_kinks(here, kinks[:, rough], (intercepts[rough], dual[:, rough]))
            before = gaps[rough]
            more, gaps[rough] = self._certified(here, kinks[:, rough], near)
            found[0][rough], found[1][rough] = intersect((found[0][rough], found[1][rough]), more)
            _, intercepts[rough], dual[:, rough] = near
            kinks[:, rough] = self._find_kinks(here, kinks[:, rough], near)
            known = is_decided(found[0][rough], found[1][rough], None)
            rough = rough[known | (gaps[rough] < USEFUL_ROUND * before)]
        lower, upper = self._known
        lower[rows], upper[rows] = intersect((lower[rows], upper[rows]), found)

    def _strengths(self, rows: Rows) -> Array:
        """The strengths of the penalty without each of some rows, one column each."""
        lam = np.broadcast_to(self.problem.penalty.quadratic, (self.problem.n_columns,))[:, None]
        if self._refits is None or self._refits.strengths is None:
            return np.broadcast_to(lam, (lam.size, rows.size))
        return lam * self._refits.strengths[rows].T

    def _fills(self, rows: Rows) -> tuple[Rows, Array, Array]:
        """The columns with moved values, how far these move without each of some rows, one column each, and which values they are."""
        if self._refits is None or self._refits.fills is None:
            return np.empty(0, dtype=np.intp), np.empty((0, rows.size)), np.empty((self.problem.n_rows, 0))
        columns = self._refits.filled_columns
        return columns, self._refits.fills[np.ix_(rows, columns)].T, self._refits.mask

    def _scores(self, rows: Rows, coefs: Array) -> Array:
        """Scores of all rows under models without each of some rows, but for the intercepts."""
        columns, fills, mask = self._fills(rows)
        scores: Array = self.problem.matrix @ coefs
        return scores + mask @ (fills * coefs[columns]) if columns.size else scores

    def _correlations(self, rows: Rows, weighted: Array) -> Array:
        """Correlations of weighted dual variables with the columns without each of some rows."""
        columns, fills, mask = self._fills(rows)
        found: Array = self.problem.matrix.T @ weighted
        found[columns] += fills * (mask.T @ weighted)
        return found

    def _find_kinks(self, rows: Rows, before: Mask, models: tuple[Array, Array, Array]) -> Mask:
        """The rows to take to be at the kink next: those whose dual variables stay between their ends, and others whose margins contradict theirs."""
        coefs, intercepts, dual = models
        y = self.problem.y[:, None]
        slopes, short = y * dual, 1.0 - y * (self._scores(rows, coefs) + intercepts)
        low, high = slopes <= NEAR_AN_END[0], slopes >= 1.0 - NEAR_AN_END[0]
        wrong = (low & (short > MISPLACED_BY)) | (high & (short < -MISPLACED_BY))
        kinks = np.where(before, ~(low | high), wrong) & (self.weights > 0.0)[:, None]
        kinks[rows, np.arange(rows.size)] = False
        return kinks

    def _at_kinks(self, left_out: Rows, kinks: Mask, near: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        """The models nearest to those of some intercepts and dual variables whose rows at the kink have the margin 1, and dual variables of these rows that belong to them.

        Margins that are off by rounding weigh in the gap as they are; what mends them weighs by its square. Where rows are repeated, or there are more of them
        than columns, their dual variables are not unique: any that have the right sums will do.
        """
        problem, (intercepts, dual), strengths = self.problem, near, self._strengths(left_out)
        coefs = self._correlations(left_out, self.weights[:, None] * dual) / strengths
        rows, scales, n_columns = problem.matrix.dense(), np.sqrt(strengths), problem.n_columns
        if problem.fit_intercept:
            rows = np.column_stack([rows, np.ones(rows.shape[0])])
            # Nearly free: what is nearest is measured in the coefficients.
            free = FREE_SCALE / np.sqrt(np.mean(np.square(rows[:, :-1]) @ (1.0 / strengths), axis=0))
            scales = np.vstack([scales, free])
        models = np.vstack([coefs, intercepts])[: rows.shape[1]]
        counts = kinks.sum(axis=0)
        for count in np.unique(counts[counts > 0]):
            members = np.flatnonzero(counts == count)
            at, scale = np.nonzero(kinks[:, members].T)[1].reshape(members.size, count), scales[:, members]
            columns, fills, mask = self._fills(left_out[members])
            own = rows[at]
            own[:, :, columns] += mask[at] * fills.T[:, None]
            add_work(0.2 * own.size * min(own.shape[1:]))
            inverse = _pseudo_inverse(own / scale.T[:, None])
            for _ in range(2):
                short = problem.y[at] - (own @ models[:, members].T[:, :, None])[:, :, 0]
                models[:, members] += (inverse @ short[:, :, None])[:, :, 0].T / scale
            wanted = strengths[:, members] * models[:n_columns, members]
            for _ in range(DUAL_STEPS):
                weighted = self.weights[:, None] * dual[:, members]
                missed = np.vstack([wanted - self._correlations(left_out[members], weighted), -weighted.sum(axis=0)])
                missed = missed[: scale.shape[0]] / scale
                add_work(own.size)
                left = np.square(missed).sum(axis=0) > EXACT_GAP * float(self.weights.sum())
                if not left.any():
                    break
                members, at, inverse, wanted, scale = (
                    members[left],
                    at[left],
                    inverse[left],
                    wanted[:, left],
                    scale[:, left],
                )
                moved = (missed[:, left].T[:, None] @ inverse)[:, 0] / self.weights[at]
                here = at, members[:, None]
                dual[here] = -problem.loss.project(problem.y[at], -dual[here] - moved)
        return models[:n_columns], models[-1] if problem.fit_intercept else intercepts, dual

    def _certified(self, rows: Rows, kinks: Mask, models: tuple[Array, Array, Array]) -> tuple[Bounds, Array]:
        """Bounds from the duality gaps of models, as coefficients, intercepts and dual variables; and the gaps."""
        problem, X, entries = self.problem, self.problem.matrix, (rows, np.arange(rows.size))
        coefs, intercepts, dual = models
        dual[entries] = 0.0  # whatever was proposed: the row does not count
        weighted = self.weights[:, None] * dual
        columns, fills, mask = self._fills(rows)
        correlations, scores = self._correlations(rows, weighted), self._scores(rows, coefs) + intercepts
        # Entry by entry, so that the units of the columns do not matter.
        sizes = abs(X) @ np.abs(coefs) + mask @ np.abs(fills * coefs[columns]) + np.abs(intercepts)
        errors = gamma(problem.n_columns + columns.size + 8) * (1.0 + FEW) * sizes + TINY
        spread = np.sqrt(self.weights @ np.square(dual)) * (1.0 + gamma(problem.n_rows + 4))
        moves, moved = self._repairs(rows, weighted, dual)
        root = np.sqrt(np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))[columns])[:, None]
        fill_norms = np.linalg.norm(fills / root, axis=0) * (1.0 + gamma(columns.size + 8))
        # Sums of weighted dual variables over moved values are rounded, as those over the others are, and so are their products with the moves.
        rounded = (sum_error(problem.n_rows) + FEW) * np.sqrt(self.weights @ mask)[:, None] * np.abs(fills) / root
        moved = moved + np.linalg.norm(rounded, axis=0) * spread * (1.0 + gamma(columns.size + 8))
        # Norms in the metric of strengths with a factor are at most those in the metric of all rows, divided by the root of the least factor.
        least, scaled = np.ones(rows.size), coefs
        if self._refits is not None and self._refits.strengths is not None:
            least, scaled = self._refits.smallest[rows], self._refits.strengths[rows].T * coefs
        penalty = penalty_sums(problem, self.weights, scaled, correlations, spread, moved) / least
        gaps = removal_gaps(problem, self.weights, rows, scores, errors, dual, penalty, moves)
        radii, norms = ball_radius(gaps) / np.sqrt(least) * (1.0 + FEW), self._norms(kinks)
        half = radii * (norms[rows] + fill_norms) + errors[entries]
        if problem.fit_intercept:
            half = half + self._intercepts(rows, scores, radii * norms[:, None] + errors, kinks)
        center = scores[entries]
        half = half * (1.0 + FEW) + FEW * np.abs(center)
        usable = np.isfinite(half)
        return widen(np.where(usable, center, 0.0), np.where(usable, half, np.inf)), gaps

    def _repairs(self, rows: Rows, weighted: Array, dual: Array) -> tuple[Array | None, Array | float]:
        """An upper bound of how far dual variables are from ones that an intercept allows, and the norms of what that does to correlations.

        With an intercept the dual variables must add up to 0. All are moved by the same share of their distances from the ends of their domain: those at an end stay
        there, which costs nothing to first order. Where that is not enough, those of the heavier sign are scaled down, by at most what the sum may be as a share of the
        lighter one.
        """
        problem = self.problem
        if not problem.fit_intercept:
            return None, 0.0
        sizes, error = np.abs(weighted), sum_error(problem.n_rows)
        classes = np.array([sizes.sum(axis=0, where=weighted > 0.0), sizes.sum(axis=0, where=weighted < 0.0)])
        total = np.abs(classes[0] - classes[1]) + 2.0 * error * classes.max(axis=0)
        low, high = (ends[:, None] for ends in problem.loss.derivative_range(problem.y))
        room = np.minimum(np.minimum(-dual - low, high + dual), 1.0) * (1.0 - FEW)
        room[rows, np.arange(rows.size)] = 0.0
        with np.errstate(all="ignore"):
            inside = np.where(total > 0.0, total / ((self.weights @ room) * (1.0 - 2.0 * error)), 0.0) * (1.0 + FEW)
            scaled = np.where(total > 0.0, total / (classes.min(axis=0) * (1.0 - 2.0 * error)), 0.0) * (1.0 + FEW)
            moves = np.where(inside <= 0.5, inside * room, scaled * np.abs(dual)) * (1.0 + FEW)
        norms = rounded_norms(row_norms(problem), problem)
        return moves, ((norms * self.weights) @ moves) * (1.0 + gamma(problem.n_rows + 8))

    def _norms(self, kinks: NDArray[np.bool_]) -> Array:
        """Upper bounds of the norms of the rows in the inverse metric of the penalty, with an intercept those of their distances from a mean row."""
        problem = self.problem
        if not problem.fit_intercept:
            return rounded_norms(row_norms(problem), problem)
        counts = kinks.sum(axis=1)
        mean = counts @ problem.matrix.dense() / max(int(counts.sum()), 1)
        away = problem.matrix.dense() - mean
        return rounded_norms(np.square(away) @ np.broadcast_to(1.0 / problem.penalty.quadratic, mean.shape), problem)

    def _intercepts(self, rows: Rows, scores: Array, half: Array, kinks: NDArray[np.bool_]) -> Array:
        """Upper bounds of the distances of the exact intercepts of centred rows from the candidates'; ``half``: how far scores may be off beside them."""
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
