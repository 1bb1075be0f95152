r"""All leave-one-out removals at once with one score per class, where preprocessing is fitted again without each row.

As in :mod:`glru.updates.refitted_rows`: candidates are written down in full and certified by the exact gradients of their own problems in the metric of
all rows (:class:`~glru.updates.class_rows.ClassRows`), of which the Hessians of those problems have at least a known share. A fill that moves
by ``f`` in column ``j`` moves the scores of a row by ``f W_j``, a vector over the classes. Its variance under the row's probabilities is at most
:math:`\min(\tfrac12, \operatorname{tr} h) |f W_j|^2`, and :math:`|W_j| \le (\sum_a \|e_{ja}\|^2)^{1/2} \|W\|_M`.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, final

import numpy as np

from glru.bounds import Bounds
from glru.linalg import FEW, TINY, Array, gamma
from glru.linalg.class_tables import table_loops
from glru.metric.classes import EXPONENTS
from glru.regions.classes import make_unbounded_queries, query_norms, widen_queries
from glru.regions.local import local_radius
from glru.updates.batch import SLOW, Certified, Decided, Mask, tighten
from glru.updates.class_removals import ClassRemovals, curved, weight_share
from glru.updates.class_rows import ClassRows
from glru.updates.refits import Refits
from glru.updates.row_models import Rows

MIN_SHARE = 1e-6
"""Rows without which less than this share of the metric is left are left to steps of their own."""

MAX_SCORES = 1 << 20
"""Scores of all rows and classes under the candidates that are measured together."""


@final
class ClassRefits:
    """The removal of single rows with refitted preprocessing and one score per class; the losses are summed, not averaged."""

    def __init__(self, family: ClassRows, refits: Refits) -> None:
        self.problem, self.refits, self.family = family.problem, refits, family

    def bounds(self, rows: Rows, reference: Rows, decided: Decided, n_steps: int) -> Bounds:
        """Bounds of the rows' queries under the models trained without them; rows leave as they are decided."""
        lower, upper = make_unbounded_queries(rows.size, self.problem.n_scores)
        if not self.family.usable:
            return lower, upper
        size = max(1, MAX_SCORES // (self.problem.n_rows * self.problem.n_scores))
        for start in range(0, rows.size, size):
            places = np.arange(start, min(start + size, rows.size))
            first = ClassRefitCandidates.first(self, rows[places], reference[places])
            usable = first.shares > MIN_SHARE * first.removals.shares
            if usable.any():
                found = tighten(first.take(usable), lambda low, high: decided(low.T, high.T), n_steps)
                lower[places[usable]], upper[places[usable]] = found.lower.T, found.upper.T
        return lower, upper

    @cached_property
    def axes(self) -> Array:
        """``(sum_a |e_ja|^2)^(1/2)`` of every column with fills."""
        norms = self.family.metric.axis_norms.reshape(self.problem.n_scores, -1)[:, self.refits.filled_columns]
        return np.sqrt(np.square(norms).sum(axis=0)) * (1.0 + gamma(self.problem.n_scores + 4))

    @cached_property
    def fill_errors(self) -> Array:
        """How far a fill may be off, one entry per column with fills."""
        columns = self.problem.matrix.dense(self.refits.filled_columns)
        return self.refits.error * np.abs(columns).max(axis=0, initial=0.0)

    def fills(self, rows: Rows) -> Array:
        """The moves of the fills, a column per removal."""
        fills, columns = self.refits.fills, self.refits.filled_columns
        return np.zeros((0, rows.size)) if fills is None else fills[np.ix_(rows, columns)].T

    def fill_norms(self, rows: Rows) -> Array:
        """At least ``|f_j| (sum_a |e_ja|^2)^(1/2)``, a column per removal."""
        sizes = np.abs(self.fills(rows)) + self.fill_errors[:, None]
        return np.asarray(sizes * self.axes[:, None] * (1.0 + FEW))

    @cached_property
    def filled_spread(self) -> Array:
        """At least ``sqrt(sum_k s_k min(1/2, tr h_k) m_kj)``."""
        likely, eta = self.family.values.likely, self.family.eta
        traces = np.minimum(np.sum(likely * (1.0 - likely), axis=1) * (1.0 + eta) + gamma(likely.shape[1] + 8), 0.5)
        return np.sqrt((self.problem.weights * traces) @ self.refits.mask * (1.0 + gamma(self.problem.n_rows + 8)))

    @cached_property
    def largest_factor(self) -> float:
        """At least the largest factor of a weight, and 1."""
        factors = self.refits.class_factors
        return 1.0 if factors is None else max(1.0, float(factors.max()) * (1.0 + FEW + self.refits.error))

    @cached_property
    def fill_sums(self) -> tuple[float, float]:
        """The norms as gradients that slopes of size 1 (in the metric of the weights) have through the moved fills and their errors."""
        columns, metric = self.refits.filled_columns, self.family.metric
        if not columns.size:
            return 0.0, 0.0
        assert self.refits.fills is not None
        spread = np.sqrt(self.problem.weights @ self.refits.mask) * (1.0 + gamma(self.problem.n_rows + 8))
        found = []
        for sizes in (np.abs(self.refits.fills[:, columns]).max(axis=0), self.fill_errors):
            slack = np.zeros((self.problem.n_scores, metric.width))
            slack[:, columns] = sizes * spread * (1.0 + FEW)
            found.append(metric.gradient_norm(np.zeros(slack.size), slack.ravel()))
        return found[0] + found[1], found[1]

    @cached_property
    def group_gradients(self) -> Array:
        """The gradients of the losses of each group of rows at the base: groups, classes, columns."""
        assert self.refits.class_factors is not None
        groups, X = self.refits.list_groups(self.problem), self.problem.matrix
        weighted, found = self.problem.weights[:, None] * self.family.slopes, []
        for group in range(self.refits.class_factors.shape[1]):
            mine = np.where((groups == group)[:, None], weighted, 0.0)
            part = (X.T @ mine).T
            found.append(np.column_stack([part, mine.sum(axis=0)]) if self.problem.fit_intercept else part)
        return np.array(found)


@final
@dataclass(frozen=True, eq=False)
class ClassRefitCandidates:
    """Models without one row each, under their own preprocessing; ``moves``: from the base (classes, columns, models)."""

    owner: ClassRefits
    removals: ClassRemovals
    reference: Rows
    shares: Array
    fill_sizes: Array
    moves: Array

    contraction: ClassVar[float] = SLOW
    cost: ClassVar[float] = 0.0

    @classmethod
    def first(cls, owner: ClassRefits, rows: Rows, reference: Rows) -> "ClassRefitCandidates":
        """The candidates one Newton step from the base, what moved fills add apart."""
        family, refits, removals = owner.family, owner.refits, owner.family.removals(rows)
        fills, shares = owner.fill_norms(rows), removals.shares
        with np.errstate(all="ignore"):
            thetas = (owner.filled_spread @ fills) / np.sqrt(shares) * (1.0 + gamma(fills.shape[0] + 16))
            found = refits.smallest[rows] * np.square(np.maximum(1.0 - thetas, 0.0)) * shares * (1.0 - FEW)
        usable = (shares > 0.0) & (refits.smallest[rows] > 0.0) & (thetas < 1.0) & refits.together[rows]
        # The norm of a difference of two classes: the sum of two norms is at most the root of two times that of their squares.
        sizes = np.sqrt(2.0) * fills.sum(axis=0) * (1.0 + gamma(fills.shape[0] + 8))
        moves = np.repeat(family.base.step[:, :, None], rows.size, axis=2)
        new = cls(owner, removals, reference, np.where(usable, found, 0.0), sizes, moves)
        gradients = np.zeros(moves.shape)
        if refits.strengths is not None:
            gradients[:, : owner.problem.n_columns] += (
                owner.problem.quadratic[:, None] * (refits.strengths[rows].T - 1.0) * family.point.coef[:, :, None]
            )
        if refits.class_factors is not None:
            gradients += np.einsum("gaj,mg->ajm", owner.group_gradients, refits.class_factors[rows] - 1.0)
        forced = moves + new.solve(new.spread(removals.multipliers))
        return replace(new, moves=forced - new.steps(gradients))

    @property
    def rows(self) -> Rows:
        """The rows that are left out."""
        return self.removals.rows

    @cached_property
    def block(self) -> Array:
        """The rows that are left out, the intercept's column last."""
        block = self.owner.problem.matrix[self.rows].dense()
        return np.column_stack([block, np.ones(len(block))]) if self.owner.problem.fit_intercept else block

    def solve(self, vectors: Array) -> Array:
        """The inverse of the metric times vectors (classes, columns, models)."""
        return self.owner.family.metric.solve(vectors.reshape(-1, vectors.shape[-1])).reshape(vectors.shape)

    def spread(self, vectors: Array) -> Array:
        """One vector over the classes per model, times the model's row: classes, columns, models."""
        return np.einsum("ma,mj->ajm", vectors, self.block)

    def steps(self, gradients: Array) -> Array:
        """The metric without each row, inverted, times gradients."""
        solved, removals = self.solve(gradients), self.removals
        seen = np.einsum("ajm,mj->ma", solved, self.block)
        more = removals.solve(removals.weights[:, None] * curved(removals.curvatures, seen))
        return solved + self.solve(self.spread(more))

    def certify(self) -> Certified:
        """Bounds of the left-out rows' queries."""
        return self._certificate[0]

    @cached_property
    def models(self) -> Array:
        """The models themselves."""
        return self.owner.family.model[:, :, None] + self.moves

    @cached_property
    def _certificate(self) -> tuple[Certified, Array]:
        """What is proven, and the gradients."""
        owner, family, problem, refits = self.owner, self.owner.family, self.owner.problem, self.owner.refits
        metric, removals, columns = family.metric, self.removals, refits.filled_columns
        weighted, own, moved, sizes = self._measure()
        flat = weighted.reshape(problem.n_rows, -1)
        shape = problem.n_scores, self.rows.size
        gradients = np.swapaxes(np.asarray(problem.matrix.T @ flat).reshape(-1, *shape), 0, 1)
        if columns.size:
            gradients[:, columns] += owner.fills(self.rows) * np.swapaxes(
                (refits.mask.T @ flat).reshape(-1, *shape), 0, 1
            )
        if problem.fit_intercept:
            gradients = np.concatenate([gradients, weighted.sum(axis=0)[:, None]], axis=1)
        losses = np.abs(gradients)
        strengths = metric.strengths[:, None]
        if refits.strengths is not None:
            strengths = np.repeat(strengths, self.rows.size, axis=1)
            strengths[: problem.n_columns] *= refits.strengths[self.rows].T
        gauge = metric.gauge[:, None]
        gradients += strengths * self.models + gauge * self.models.sum(axis=0)
        first, second = self._score_errors()
        exponents = moved + 2.0 * (problem.totals.largest_norm * first + second)
        rounding = self._rounding(losses, strengths, (first, second), sizes)
        with np.errstate(all="ignore"):
            flat = gradients.reshape(-1, self.rows.size)
            nu = (metric.columns.gradient_norms(flat) + rounding) * (1.0 + FEW) + TINY
            nu = nu / np.sqrt(self.shares)
            largest = (family.largest_norm + self.fill_sizes) / np.sqrt(self.shares)
            radius = local_radius(1.0, largest, nu, exponents)
            norms = query_norms(removals.forms, metric.unit, self.reference) + self.fill_sizes[:, None]
            half = norms / np.sqrt(self.shares)[:, None] * radius[:, None] * (1.0 + FEW)
        lengths = np.sqrt(problem.squared_row_norms[self.rows]) * (1.0 + gamma(problem.n_columns + 4))
        scores = removals.scores + own
        errors = removals.errors + lengths * first + second + TINY + FEW * np.abs(scores).max(axis=1)
        lower, upper = widen_queries(scores, half, errors, self.reference)
        return Certified(lower.T, upper.T, nu, np.zeros(nu.size)), gradients

    def _measure(self) -> tuple[Array, Array, Array, Array]:
        """Weighted slopes of all rows, moves of the left-out rows' scores, the largest range of a move of another row, sizes of the slopes."""
        problem, family, refits = self.owner.problem, self.owner.family, self.owner.refits
        rows, moves, columns = self.rows, self.moves, refits.filled_columns
        n_columns = problem.n_columns
        flat = np.swapaxes(moves[:, :n_columns], 0, 1).reshape(n_columns, -1)
        table: Array = np.asarray(problem.matrix @ flat).reshape(problem.n_rows, problem.n_scores, rows.size)
        if problem.fit_intercept:
            table += moves[:, -1]
        if columns.size:
            shifts = np.swapaxes(self.owner.fills(rows) * self.models[:, columns], 0, 1)
            table += (refits.mask @ shifts.reshape(columns.size, -1)).reshape(table.shape)
        each = np.arange(rows.size)
        own = table[rows, :, each].copy()
        table[rows, :, each] = 0.0
        moved, squares = np.zeros(rows.size), np.zeros(rows.size)
        loops = table_loops(table.size)
        loops.add_ranges(table, problem.weights, moved)
        with np.errstate(all="ignore"):
            np.exp(table, out=table)
            loops.class_slopes(table, family.values.likely, problem.y, problem.weights, rows, squares)
            if refits.class_factors is not None:
                table *= refits.weight_factors(problem, rows)[:, None, :]
        return table, own, moved, self.owner.largest_factor * np.sqrt(squares)

    def _score_errors(self) -> tuple[Array, Array]:
        """A row's move is off by at most ``|x| first + second``."""
        owner, problem, columns = self.owner, self.owner.problem, self.owner.refits.filled_columns
        unit = gamma(problem.n_columns + 3) * (1.0 + gamma(problem.n_columns + 8))
        steps = self.moves[:, : problem.n_columns]
        first = unit * np.sqrt(np.square(steps).sum(axis=1).max(axis=0)) * (1.0 + gamma(problem.n_columns + 8))
        second = unit * np.abs(self.moves[:, -1]).max(axis=0) if problem.fit_intercept else np.zeros_like(first)
        if columns.size:
            sizes = np.abs(self.models[:, columns])
            unit = gamma(columns.size + problem.n_columns + 8)
            moved = np.einsum("jm,ajm->am", np.abs(owner.fills(self.rows)), sizes).max(axis=0)
            wrong = np.einsum("j,ajm->am", owner.fill_errors, sizes).max(axis=0)
            # The sum with the fills is rounded as well: by its parts, and by what the data alone gives.
            second = second + unit * moved + wrong
        return first * (1.0 + FEW), second * (1.0 + FEW)

    def _rounding(self, losses: Array, strengths: Array, errors: tuple[Array, Array], size: Array) -> Array:
        """At least the norms of the gradients' errors, and of what factors and fills within their errors change."""
        owner, family, problem = self.owner, self.owner.family, self.owner.problem
        refits, totals, n_scores, metric = owner.refits, problem.totals, problem.n_scores, family.metric
        size = size * (1.0 + gamma(problem.n_rows + 2 * n_scores + EXPONENTS))
        wrong = family.base.error_size + totals.norm * errors[0] + float(np.sqrt(totals.weight_sum)) * errors[1]
        share = weight_share(family.problem, family.totals.depth) + FEW + 2.0 * gamma(2 * n_scores + EXPONENTS)
        spread = share * size + 0.5 * owner.largest_factor * wrong
        through = family.slope_norm + owner.fill_sums[0]
        sizes = np.abs(self.models)
        sizes = strengths * sizes + metric.gauge[:, None] * sizes.sum(axis=0) + losses
        axes = metric.axis_norms
        outer = gamma(n_scores + 16) * (axes @ sizes.reshape(axes.size, -1))
        slack = size * (owner.fill_sums[1] + refits.error * through)
        # The metric is at least the penalty's: |Lam v| <= |Lam^(1/2) v| in its inverse; a factor errs by its error times max(1, rho).
        factors = 1.0 if refits.strengths is None else np.maximum(refits.strengths[self.rows].T, 1.0)
        coefs = self.models[:, : problem.n_columns]
        held = np.sqrt(np.einsum("j,ajm->m", problem.quadratic, np.square(factors * coefs))) * np.sqrt(1.0 + family.eta)
        held = held * (1.0 + gamma(n_scores * problem.n_columns + 8))
        return (spread * through + outer + slack + refits.error * held) * (1.0 + FEW) + TINY

    def step(self, members: Mask) -> "ClassRefitCandidates":
        """Some of the candidates after one more step with the old Hessian."""
        mine = self.take(members)
        return replace(mine, moves=mine.moves - mine.steps(self._certificate[1][:, :, members]))

    def take(self, members: Mask) -> "ClassRefitCandidates":
        """Some of the candidates."""
        return ClassRefitCandidates(
            self.owner,
            self.removals.take(members),
            self.reference[members],
            self.shares[members],
            self.fill_sizes[members],
            self.moves[:, :, members],
        )
