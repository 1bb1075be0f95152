r"""All leave-one-out removals at once from wide data with one score per class, over the rows; with refitted preprocessing or without.

A model is :math:`W = (\rho \Lambda)^{-1} X^\top B`, one column of ``B`` per class, and intercepts. Its gradient is :math:`X^\top E` with the forces
:math:`E = B + s \circ \ell'(z)`, which vanish at the optimum row by row: what rounding does to a score or a gradient is a share of the duals as they are, however long a row is.

Norms are taken in the space of rows ``L`` under a penalty of strength 1, :math:`L L^\top \succeq K = X \Lambda^{-1} X^\top`, in which
:class:`~glru.updates.class_rows.ClassRows` knows the metric ``M`` of the removals. For every gradient :math:`X^\top E`, and the sums of the slopes for the intercepts,

.. math:: \|X^\top E\|_{H^{-1}}^2 = \sup_{u = X v} \frac{\langle E, u \rangle^2}{\|v\|_\Lambda^2 + \|u\|_D^2} \le \|L^\top E\|_{M^{-1}}^2 ,

since scores ``u`` cost at least :math:`u^\top K^{-1} u \ge u^\top (L L^\top)^{-1} u`. Without a row :math:`K_i \preceq \gamma_i K` over the others
(:class:`~glru.updates.refitted_rows.RefittedSide`), so that squared norms are at most :math:`\gamma_i` times as large.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, final

import numpy as np

from glru.bounds import Bounds
from glru.linalg import FEW, TINY, Array, gamma, to_host
from glru.linalg.class_tables import table_loops
from glru.linalg.matrix import DenseMatrix
from glru.metric.classes import EXPONENTS
from glru.metric.rows import RowSide
from glru.penalties import L2
from glru.problem import Point
from glru.regions.classes import make_unbounded_queries, widen_queries
from glru.regions.local import local_radius
from glru.solution import Solution
from glru.updates.batch import SLOW, Certified, Decided, Mask, tighten
from glru.updates.class_removals import ClassRemovals, weight_share
from glru.updates.class_rows import ClassRows, compute_batch_scores, flatten_models, solve_without
from glru.updates.refits import Refits
from glru.updates.refitted_rows import LARGEST_MIX, MIN_SHARE, RefittedSide
from glru.updates.row_models import Rows

MAX_SCORES = 1 << 20
"""Scores of all rows and classes under the candidates that are measured together."""


@final
class WideClasses:
    """The removal of single rows; the losses are summed, not averaged."""

    def __init__(self, start: Solution, refits: Refits | None) -> None:
        problem = self.problem = start.problem
        self.side = RowSide(problem)
        self.refits = Refits(alone=np.zeros(problem.n_rows, dtype=bool)) if refits is None else refits
        self.sides = RefittedSide(self.side, self.refits)
        self.usable, rows = False, _factor_rows(self.side)
        if rows is None:
            return
        small = problem.derive(X=DenseMatrix(rows), penalty=L2(1.0), column_names=None)
        duals = problem.weights[:, None] * start.dual
        center = self.side.center
        intercept = start.intercept if center is None else start.intercept + start.coef @ center
        self.family = ClassRows(small, Point(duals.T @ rows, intercept))
        self.usable, self.rows = self.family.usable, rows

    def bounds(self, rows: Rows, reference: Rows, decided: Decided, n_steps: int) -> Bounds:
        """Bounds of the rows' queries under the models trained without them; rows leave as they are decided."""
        lower, upper = make_unbounded_queries(rows.size, self.problem.n_scores)
        if not self.usable:
            return lower, upper
        shares = self.shares(rows)
        proven = np.flatnonzero(shares > MIN_SHARE * self.family.removals(rows).shares)
        size = max(1, MAX_SCORES // (self.problem.n_rows * self.problem.n_scores))
        for start in range(0, proven.size, size):
            places = proven[start : start + size]
            first = WideClassCandidates.first(self, rows[places], reference[places], shares[places])
            found = tighten(first, lambda low, high: decided(low.T, high.T), n_steps)
            lower[places], upper[places] = found.lower.T, found.upper.T
        return lower, upper

    def guesses(self, rows: Rows) -> Array:
        """The rows' scores after one Newton step without them, in the metric of all rows."""
        return self.family.guesses(rows)

    def shares(self, rows: Rows) -> Array:
        """What share of the metric the Hessians without each row have at least, in the span of the other rows; 0 where nothing is proven."""
        refits, sides, shares = self.refits, self.sides, self.family.removals(rows).shares
        # What moved fills change is not counted, neither in the Hessian nor in certificates.
        if refits.filled_columns.size:
            return np.zeros(rows.size)
        with np.errstate(all="ignore"):
            found = shares / sides.growth[rows] * (1.0 - FEW)
        return np.where((shares > 0.0) & (refits.smallest[rows] > 0.0) & refits.together[rows], found, 0.0)

    @cached_property
    def lengths(self) -> Array:
        """Upper bounds of the norms of the rows in the metric."""
        lengths = np.sqrt(np.square(self.rows).sum(axis=1)) * (1.0 + gamma(len(self.rows) + 8)) + TINY
        # The penalty has at most 1 + eta of the metric.
        return np.asarray(lengths * np.sqrt(1.0 + self.family.eta) * (1.0 + FEW))

    @cached_property
    def free_norm(self) -> float:
        """An upper bound of the norm in the metric of a unit vector over the classes in the intercepts."""
        if not self.problem.fit_intercept:
            return 0.0
        axes = self.family.metric.axis_norms.reshape(self.problem.n_scores, -1)[:, -1]
        return float(np.sqrt(np.square(axes).sum())) * (1.0 + gamma(axes.size + 4))

    @cached_property
    def curved_lengths(self) -> tuple[float, float]:
        r"""An upper bound of ``(sum_k s_k v_k |x_k|^2)^(1/2)`` and ``(sum_k s_k v_k)^(1/2)`` at the base.

        ``v_k``: at least the variance of numbers within 1 of each other's mean under the row's probabilities: their range is at most 2, so that it is at
        most :math:`\min(1, 4 (1 - \max p))`.
        """
        problem, values = self.problem, self.family.values
        rest = values.likely.copy()
        rest[np.arange(len(rest)), rest.argmax(axis=1)] = 0.0
        unit = 2.0 * gamma(2 * problem.n_scores + EXPONENTS)
        variances = problem.weights * np.minimum(1.0, 4.0 * rest.sum(axis=1) * (1.0 + unit) + TINY)
        used = np.where(problem.weights > 0.0, self.side.norms, 0.0)
        up = np.exp(2.0 * self.family.base.largest_error) * (1.0 + gamma(problem.n_rows + 16))
        return float(np.sqrt(variances @ np.square(used))) * up, float(np.sqrt(variances.sum())) * up


def _factor_rows(side: RowSide) -> Array | None:
    """``L`` with ``L L^T >= K``; None where that has no factor."""
    gram = to_host(side.gram.data)
    # Entries are off by the unit times two norms, and so is what the stored factor misses; a matrix of these has at most n times that norm.
    raised = 4.0 * len(gram) * (side.unit + gamma(len(gram) + 8)) * np.square(side.norms) + TINY
    try:
        found = np.linalg.cholesky(gram + np.diag(raised))
    except np.linalg.LinAlgError:
        return None
    return found if np.all(np.isfinite(found)) else None


@final
@dataclass(frozen=True, eq=False)
class WideClassCandidates:
    """Models without one row each: ``duals`` (rows, classes, models) and ``free`` (classes, models), the intercepts."""

    owner: WideClasses
    removals: ClassRemovals
    reference: Rows
    shares: Array
    norms: Array
    duals: Array
    free: Array
    last: tuple[Array, Array, Array] | None = None
    """What the last plain step made of duals and intercepts, and what it took from the duals."""

    contraction: ClassVar[float] = SLOW
    cost: ClassVar[float] = 0.0

    @classmethod
    def first(cls, owner: WideClasses, rows: Rows, reference: Rows, shares: Array) -> "WideClassCandidates":
        """The candidates one Newton step from the base."""
        family, problem = owner.family, owner.problem
        duals = np.repeat((-problem.weights[:, None] * family.slopes)[:, :, None], rows.size, axis=2)
        free = family.model[:, -1] if problem.fit_intercept else np.zeros(problem.n_scores)
        start = cls(
            owner,
            family.removals(rows),
            reference,
            shares,
            owner.sides.norms(rows),
            duals,
            np.repeat(free[:, None], rows.size, axis=1),
        )
        return replace(start.step(np.ones(rows.size, dtype=bool)), last=None)

    @property
    def rows(self) -> Rows:
        """The rows that are left out."""
        return self.removals.rows

    @cached_property
    def _measured(self) -> tuple[Array, Array, Array, Array, Array]:
        """Scores of the left-out rows, weighted slopes of the others, forces, the largest ranges of moves from the base, the largest scores."""
        owner, problem, family, rows = self.owner, self.owner.problem, self.owner.family, self.rows
        each, shape = np.arange(rows.size), self.duals.shape
        free = self.free.reshape(1, -1) if problem.fit_intercept else np.zeros((0, self.free.size))
        flat = self.duals.reshape(problem.n_rows, -1)
        table = owner.sides.scores(np.tile(rows, problem.n_scores), flat, free).reshape(shape)
        own = table[rows, :, each].copy()
        table[rows, :, each] = 0.0
        largest = np.abs(table).max(axis=(0, 1))
        table -= family.values.scores[:, :, None]
        table[rows, :, each] = 0.0
        table[problem.weights == 0.0] = 0.0
        moved, squares = np.zeros(rows.size), np.zeros(rows.size)
        loops = table_loops(table.size)
        loops.add_ranges(table, problem.weights, moved)
        with np.errstate(all="ignore"):
            np.exp(table, out=table)
            loops.class_slopes(table, family.values.likely, problem.y, problem.weights, rows, squares)
            if owner.refits.class_factors is not None:
                table *= owner.refits.weight_factors(problem, rows)[:, None, :]
        forces = self.duals + table
        # One number added to the coefficients of all classes changes no loss: the model is the one whose duals sum to zero.
        forces -= forces.mean(axis=1, keepdims=True)
        return own, table, forces, moved, largest

    @cached_property
    def _gradients(self) -> Array:
        """The gradients in the space of the rows ``L``, the intercepts' last: unknowns, models."""
        owner, n_rows = self.owner, self.owner.problem.n_rows
        _, slopes, forces, _, _ = self._measured
        found = np.swapaxes((owner.rows.T @ forces.reshape(n_rows, -1)).reshape(forces.shape), 0, 1)
        if owner.problem.fit_intercept:
            found = np.concatenate([found, slopes.sum(axis=0)[:, None]], axis=1)
        return found.reshape(-1, self.rows.size)

    def certify(self) -> Certified:
        """Bounds of the left-out rows' queries."""
        owner, problem, family, rows = self.owner, self.owner.problem, self.owner.family, self.rows
        refits, sides, n_scores = owner.refits, owner.sides, problem.n_scores
        own, slopes, _, moved, largest = self._measured
        errors, own_errors = self._score_errors(largest)
        used = owner.side.norms[problem.weights > 0.0].max(initial=0.0)
        off = used * errors[0] + errors[1] + family.base.largest_error
        exponents = (moved + 2.0 * off) * (1.0 + FEW)
        sizes = (np.abs(self.duals) + np.abs(slopes)).sum(axis=1)
        unit = weight_share(problem, problem.totals.depth) + 2.0 * gamma(2 * n_scores + EXPONENTS)
        unit += 2.0 * gamma(problem.n_rows + n_scores + 16)
        if refits.class_factors is not None:
            unit += refits.error
        with np.errstate(all="ignore"):
            root = np.sqrt(self.shares)
            rounding = unit * (owner.lengths @ sizes + owner.free_norm * sizes.sum(axis=0)) * (1.0 + FEW) / root
            # Slopes at scores that are off are off by curvatures on the way, which have grown from those of the base; X^T D X is at most the Hessian.
            lengths, spread = owner.curved_lengths
            rounding += np.exp(exponents) * np.sqrt(refits.largest_factor) * (lengths * errors[0] + spread * errors[1])
            if refits.strengths is not None:
                rounding += self._strength_errors(sizes)
            nu = family.metric.columns.gradient_norms(self._gradients) / root
            nu = (nu + rounding) * (1.0 + FEW) + TINY
            norm = family.largest_norm / root * (1.0 + FEW)
            radius = local_radius(1.0, norm, nu, exponents)
            # The left-out row is not in the span of the others: its norm is at most that in the metric of the penalty, and what the intercepts add.
            mine = self.norms[rows, np.arange(rows.size)] * sides.own_growth[rows] + owner.free_norm / root
            directions = np.sqrt(np.repeat([1.0 - 1.0 / n_scores, 2.0], n_scores))
            half = np.outer(mine * radius, directions) * (1.0 + FEW)
        lower, upper = widen_queries(own, half, own_errors + FEW * np.abs(own).max(axis=1), self.reference)
        return Certified(lower.T, upper.T, nu, rounding)

    def _score_errors(self, largest: Array) -> tuple[tuple[Array, Array], Array]:
        """The error of row ``k``'s scores is at most ``norms[k] first + second``; that of the left-out row. ``largest``: the largest scores."""
        n_scores = self.owner.problem.n_scores
        rows, norms = np.tile(self.rows, n_scores), np.tile(self.norms, n_scores)
        free = self.free.reshape(1, -1) if self.owner.problem.fit_intercept else np.zeros((0, self.free.size))
        (first, second), own = self.owner.sides.score_errors(rows, norms, self.duals.reshape(len(norms), -1), free)
        first, second, own = (part.reshape(n_scores, -1).max(axis=0) for part in (first, second, own))
        # The classes' duals sum to zero up to a few times K units of themselves, which a score has at least n units of.
        own = own * (1.0 + 16.0 * (n_scores + 1) / self.owner.problem.n_rows)
        # The difference from the scores of the base is rounded.
        return (first, second + FEW * (largest + float(np.abs(self.owner.family.values.scores).max()))), own

    def _strength_errors(self, sizes: Array) -> Array:
        """Upper bounds of the norms of what factors of strengths within their errors change, in the metric of each row's own."""
        sides, rows = self.owner.sides, self.rows
        norm_sum = self.owner.side.norms @ sizes
        found = [sides.strength_errors(rows, part, norm_sum) for part in np.swapaxes(self.duals, 0, 1)]
        return np.asarray(np.sqrt(np.square(found).sum(axis=0)) * (1.0 + FEW))

    def step(self, members: Mask) -> "WideClassCandidates":
        """Some of the candidates after one more step with the old Hessian."""
        owner, problem, family, metric = self.owner, self.owner.problem, self.owner.family, self.owner.family.metric
        removals, gradients, forces = self.removals.take(members), self._gradients[:, members], self._measured[2]
        rows, each = removals.rows, np.arange(removals.rows.size)
        solved = solve_without(family, removals, gradients).reshape(problem.n_scores, metric.width, -1)
        small = family.problem
        seen = compute_batch_scores(small.matrix, flatten_models(np, solved), small.fit_intercept)
        seen = seen.reshape(problem.n_rows, problem.n_scores, -1)
        likely = family.values.likely
        seen -= np.einsum("ka,kam->km", likely, seen)[:, None, :]
        residuals = forces[:, :, members] - (problem.weights[:, None] * likely)[:, :, None] * seen
        # The left-out row's own duals are zero from now on.
        residuals[rows, :, each] = self.duals[:, :, members][rows, :, each]
        duals, free = self.duals[:, :, members] - residuals, self.free[:, members]
        duals -= duals.mean(axis=1, keepdims=True)
        if problem.fit_intercept:
            free = free - solved[:, -1]
        last = duals, free, residuals
        if self.last is not None:
            # Anderson's acceleration: the mix of two steps that leaves least of what they took.
            before = [part[..., members] for part in self.last]
            change = residuals - before[2]
            with np.errstate(all="ignore"):
                share = np.einsum("kam,kam->m", residuals, change) / np.einsum("kam,kam->m", change, change)
            share = np.where(np.abs(share) < LARGEST_MIX, share, 0.0)
            duals, free = duals - share * (duals - before[0]), free - share * (free - before[1])
        duals[rows, :, each] = 0.0
        return WideClassCandidates(
            owner, removals, self.reference[members], self.shares[members], self.norms[:, members], duals, free, last
        )
