r"""The removal of any single row with one score per class, with refitted preprocessing or without: a Newton step in closed form, then steps written down in full.

The closed form is :mod:`glru.updates.class_removals`. Where it leaves a row open, its candidate is written down: the moves of all rows' scores are one product with the
data, its exact gradient another one, for all candidates of a batch.

A candidate is the exact sum of the stored base and the stored move, so that scores of the base, and their errors, are the same for all of them.

Where preprocessing is fitted again without each row (:class:`~glru.updates.refits.Refits`), candidates are certified in the same metric, of which the Hessians of their own problems
have at least a known share, as in :mod:`glru.updates.refitted_rows`. A fill that moves by ``f`` in column ``j`` moves the scores of a row by ``f W_j``, a vector over the classes. Its
variance under the row's probabilities is at most :math:`\min(\tfrac12, \operatorname{tr} h) |f W_j|^2`, and :math:`|W_j| \le (\sum_a \|e_{ja}\|^2)^{1/2} \|W\|_M`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, intersect
from glru.linalg import FEW, TINY, Array, Matrix, gamma, to_host
from glru.linalg.class_tables import table_loops
from glru.losses import Multinomial
from glru.losses.logistic import softmax
from glru.metric.classes import EXPONENTS, ClassMetric, pair_norms
from glru.problem import Point, Problem
from glru.regions.class_sums import ClassSums, ClassValues, loss_gradient, pack_classes, unpack_classes
from glru.regions.classes import count_unknowns, make_unbounded_queries, widen_queries
from glru.updates.batch import Certified, Decided, tighten
from glru.updates.carried_rows import removal_factors
from glru.updates.class_removals import ClassBase, ClassRemovals, Rows, curved, removal_radius, weight_share
from glru.updates.gradients import Descent
from glru.updates.local_rows import MAX_DRIFT, MAX_ETA, MAX_METRICS
from glru.updates.refits import Refits

MAX_OTHER = 0.1
"""Rows whose weight makes the others' grow by a factor that differs by more than this share from the usual one are left to later steps."""

CHUNK = 1 << 19
"""Numbers of a work array: forms of some rows."""

MAX_LOST = 0.5
"""Rows of large norm are not left out of the metric if they carry more than this share of it."""

MIN_SHARE = 1e-6
"""Rows without which refits leave less than this share of the metric without the row are left to steps of their own."""

DEVICE_ROWS = 1 << 12
"""Rows of which a device makes sums in one product; those of more are added, so that rounding does not grow with the number of rows."""

SMALL_CLOSED_FORM = 2e9
"""Operations, a tenth of a second: candidates of a problem whose closed form costs less may cost as much as those of one where it does not."""

CACHED, CACHED_SCORES = 1 << 16, 320
"""Scores of a part of the rows under the candidates that are measured together, and those of one row: they stay in the cache of a core."""


@final
@dataclass(frozen=True, eq=False)
class Home:
    """Where rows come from that were taken out of blocks: the problem, and the block and the place in it of each."""

    problem: Problem
    blocks: Rows
    positions: Rows

    @classmethod
    def of(cls, problem: Problem, numbers: Rows) -> "Home":
        """The home of rows with some numbers, which are sorted."""
        blocks, positions = np.zeros_like(numbers), np.zeros_like(numbers)
        for block, (here, places) in problem.locate(numbers).items():
            blocks[places], positions[places] = block, here
        return cls(problem, blocks, positions)

    def places(self, rows: Rows) -> dict[int, Rows]:
        """For every block that has some of the rows, their places in it; -1 for those of other blocks."""
        blocks, positions = self.blocks[rows], self.positions[rows]
        return {int(block): np.where(blocks == block, positions, -1) for block in np.unique(blocks)}


@final
class ClassRows:
    """The removal of single rows with one score per class.

    Parameters
    ----------
    problem : Problem
        Rows in memory.
    start : Point or ClassBase
        A model near the optimum; or the base, of which these are some of the rows.
    refits : Refits, default=None
        What else leaving out each row changes; losses are summed then, not averaged.

    Attributes
    ----------
    usable : bool
        Whether anything is proven.
    converged : bool
        Whether the Newton step of the base moved no score far.
    """

    base: ClassBase
    home: "Home | None" = None

    def __init__(self, problem: Problem, start: Point | ClassBase, refits: Refits | None = None) -> None:
        assert isinstance(problem.loss, Multinomial)
        self.problem, self.is_refitted = problem, refits is not None
        self.refits = Refits(alone=np.zeros(problem.n_rows, dtype=bool)) if refits is None else refits
        self.factors, self.converged, self.usable = removal_factors(problem), False, False
        if isinstance(start, ClassBase):
            self._cover(start.middle)
            self.covered &= (self.factors >= start.least) & (self.factors <= start.most)
            # Sums over all rows: those of a block may have no weight.
            self.totals, self.usable = start.totals, start.eta < MAX_ETA
            self._set(start, ClassValues.at(problem, unpack_classes(start.model, problem.fit_intercept)))
            return
        self.totals = problem.totals
        finite = self.factors[np.isfinite(self.factors) & (problem.weights > 0.0)]
        self._cover(float(np.median(finite)) if finite.size else 1.0)
        with np.errstate(all="ignore"):
            self._find_base(pack_classes(start, problem.fit_intercept))
        self.usable = hasattr(self, "base") and self.eta < MAX_ETA

    def _cover(self, middle: float) -> None:
        self.middle, self.covered = middle, np.abs(self.factors / middle - 1.0) <= MAX_OTHER

    def _set(self, base: ClassBase, values: ClassValues) -> None:
        self.base, self.values, self.slopes = base, values, values.slopes(self.problem)
        self.metric, self.model, self.eta = base.metric, base.model, base.eta

    def _find_base(self, model: Array) -> None:
        """Newton steps until one moves no score far; the metric is the one before the last."""
        problem, fit_intercept = self.problem, self.problem.fit_intercept
        values = ClassValues.at(problem, unpack_classes(model, fit_intercept))
        covered = self.factors[self.covered]
        factors = self.middle, float(covered.min(initial=self.middle)), float(covered.max(initial=self.middle))
        for _ in range(MAX_METRICS):
            metric = ClassMetric(problem, values.likely, self.middle)
            if not metric.eta < MAX_ETA:
                return
            losses = self.middle * loss_gradient(problem, values.slopes(problem))
            gradient = losses + metric.strengths * model + metric.gauge * model.sum(axis=0)
            step = metric.solve(gradient.ravel()).reshape(model.shape)
            model = model - (step - step.mean(axis=0))
            there = ClassValues.at(problem, unpack_classes(model, fit_intercept))
            moves = np.ptp(there.scores - values.scores, axis=1)[problem.weights > 0.0]
            drift, values = float(moves.max()), there
            here = ClassSums.of(problem, values, values.slopes(problem))
            self._set(ClassBase.at(problem, metric, model, here, factors, drift), values)
            self.converged = drift <= MAX_DRIFT
            if self.converged or not drift <= 1.0:
                return

    @property
    def point(self) -> Point:
        """The base as a point."""
        return unpack_classes(self.model, self.problem.fit_intercept)

    @cached_property
    def forms(self) -> Array:
        """``Q`` of every row."""
        return self.metric.all_forms(self.problem.matrix)

    @cached_property
    def row_norms(self) -> Array:
        """An upper bound of the largest norm of ``x_k (e_a - e_b)`` of every row that counts."""
        height, found = max(1, CHUNK // self.problem.n_scores**2), np.zeros(self.problem.n_rows)
        for start in range(0, found.size, height):
            here = slice(start, start + height)
            found[here] = pair_norms(self.forms[here], self.metric.unit).max(axis=(1, 2))
        return np.where(self.problem.weights > 0.0, found, 0.0)

    @cached_property
    def largest_norm(self) -> float:
        """An upper bound of the largest norm of ``x_k (e_a - e_b)`` of a row that counts."""
        return float(self.row_norms.max(initial=0.0))

    @cached_property
    def near(self) -> tuple[Array, float, float]:
        """The weights of the rows, zeros for those of large norms; the largest norm of the others; and at least the share of the metric that those carry.

        A row whose class is certain has a large norm and carries little of the Hessian. Along the way to an optimum it is enough to follow the curvatures of
        the others (:mod:`glru.updates.columns.one_step`).
        """
        if self.home is not None:
            return self.problem.weights, self.largest_norm, 0.0
        norms, weights = self.row_norms, self.problem.weights.copy()
        order = np.argsort(-norms, kind="stable")
        # Leverages are those under each row's own factor; eta covers what factors differ from the one in the middle.
        lost = np.cumsum(self.all_removals.leverages[order]) * (1.0 + self.eta) ** 2 * (1.0 + gamma(norms.size + 8))
        lost = np.append(0.0, lost[:-1])
        if not (np.all(np.isfinite(norms)) and np.all(np.isfinite(lost))):
            return weights, self.largest_norm, 0.0
        best = int(np.argmin(np.where(lost < MAX_LOST, norms[order] / (1.0 - lost), np.inf)))
        weights[order[:best]] = 0.0
        return weights, float(norms[order[best]]), float(lost[best])

    @cached_property
    def slope_norm(self) -> float:
        """The norm as a gradient that errors of size 1 in the slopes (in the metric of the weights) can have."""
        columns = np.tile(self.totals.column_norms, self.problem.n_scores)
        return self.metric.gradient_norm(np.zeros_like(columns), columns)

    @cached_property
    def all_removals(self) -> "ClassRemovals":
        """The Newton steps of every row's removal."""
        return ClassRemovals(self, np.arange(self.problem.n_rows))

    def affordable(self, times: float) -> int:
        """Rows whose candidates are expected to cost so many times what the closed form of all rows does, or what that of a small problem does."""
        n_rows, n_scores, size = self.problem.n_rows, self.problem.n_scores, count_unknowns(self.problem)
        # Operations, roughly: the Hessian and the forms, the factor; two products and what is done to every score, four triangular solves.
        closed = 1.5 * n_rows * float(size) ** 2 + float(size) ** 3
        return int(
            times * max(closed, SMALL_CLOSED_FORM) / (n_rows * (size + 25.0 * n_scores) + 4.0 * float(size) ** 2)
        )

    def precondition(self, vector: Array) -> Array:
        """The inverse of the metric times a gradient, one line per class."""
        return np.asarray(self.metric.solve(vector.ravel())).reshape(vector.shape)

    def removals(self, rows: Rows) -> "ClassRemovals":
        """The Newton steps of some rows' removals."""
        return self.all_removals.take(rows)

    def bounds(self, rows: Rows, reference: Rows) -> Bounds:
        """Bounds of the rows' queries under the models trained without them, from one Newton step in closed form."""
        if not self.usable:
            return make_unbounded_queries(rows.size, self.problem.n_scores)
        return self.removals(rows).closed_form(reference).bounds(self.largest_norm)

    def guesses(self, rows: Rows) -> Array:
        """The rows' scores after one Newton step without them."""
        removals = self.removals(rows)
        return removals.scores + removals.shifts

    def refined(self, rows: Rows, reference: Rows, decided: Decided, n_steps: int) -> Bounds:
        """Bounds after Newton steps, each written down in full and certified by its own gradient."""
        lower, upper = make_unbounded_queries(rows.size, self.problem.n_scores)
        if not self.usable:
            return lower, upper
        removals = self.removals(rows)
        proven = np.flatnonzero((removals.own_shares() > MIN_SHARE * removals.shares) & (removals.shares > 0.0))
        # On a device the models of as many rows as it keeps busy, on the host of all of them.
        height = max(1, proven.size if self.metric.arrays.stable else self.metric.arrays.batch // self.model.size)
        for start in range(0, proven.size, height):
            places = proven[start : start + height]
            first = ClassCandidates.first(self, self.removals(rows[places]), reference[places])
            found = tighten(first, lambda low, high: decided(low.T, high.T), n_steps)
            lower[places], upper[places] = found.lower.T, found.upper.T
        return lower, upper

    @cached_property
    def fills(self) -> Array:
        """The moves of the fills, a row per column with fills, a column per removal."""
        fills, columns = self.refits.fills, self.refits.filled_columns
        return np.zeros((0, self.problem.n_rows)) if fills is None else fills[:, columns].T

    @cached_property
    def fill_errors(self) -> Array:
        """How far a fill may be off, one entry per column with fills."""
        columns = self.problem.matrix.dense(self.refits.filled_columns)
        return self.refits.error * np.abs(columns).max(axis=0, initial=0.0)

    @cached_property
    def fill_norms(self) -> Array:
        """An upper bound of ``|f_j| (sum_a |e_ja|^2)^(1/2)``, a row per column with fills, a column per removal."""
        columns, n_scores = self.refits.filled_columns, self.problem.n_scores
        if not columns.size:
            return np.zeros(self.fills.shape)
        axes = np.sqrt(np.square(self.metric.axis_norms.reshape(n_scores, -1)[:, columns]).sum(axis=0))
        sizes = np.abs(self.fills) + self.fill_errors[:, None]
        return sizes * (axes * (1.0 + gamma(n_scores + 8)))[:, None]

    @cached_property
    def filled_spread(self) -> Array:
        """An upper bound of ``sqrt(sum_k s_k min(1/2, tr h_k) m_kj)``, one entry per column with fills."""
        likely, eta = self.values.likely, self.eta
        traces = np.minimum(np.sum(likely * (1.0 - likely), axis=1) * (1.0 + eta) + gamma(likely.shape[1] + 8), 0.5)
        return np.sqrt((self.problem.weights * traces) @ self.refits.mask * (1.0 + gamma(self.problem.n_rows + 8)))

    @cached_property
    def fill_sums(self) -> tuple[float, float]:
        """The norms as gradients that slopes of size 1 (in the metric of the weights) have through the moved fills and their errors."""
        columns = self.refits.filled_columns
        if not columns.size:
            return 0.0, 0.0
        spread = np.sqrt(self.problem.weights @ self.refits.mask) * (1.0 + gamma(self.problem.n_rows + 8))
        found = []
        for sizes in (np.abs(self.fills).max(axis=1), self.fill_errors):
            slack = np.zeros((self.problem.n_scores, self.metric.width))
            slack[:, columns] = sizes * spread * (1.0 + FEW)
            found.append(self.metric.gradient_norm(np.zeros(slack.size), slack.ravel()))
        return found[0] + found[1], found[1]

    @cached_property
    def group_gradients(self) -> Array:
        """The gradients of the losses of each group of rows at the base: groups, classes, columns."""
        assert self.refits.class_factors is not None
        groups = self.refits.list_groups(self.problem)[:, None]
        each = range(self.refits.class_factors.shape[1])
        return np.array([loss_gradient(self.problem, np.where(groups == k, self.slopes, 0.0)) for k in each])

    def refit_gradients(self, rows: Rows) -> Array:
        """What refitted strengths and weights add to the gradients at the base, a column per removal."""
        refits, found = self.refits, np.zeros((*self.model.shape, rows.size))
        if refits.strengths is not None:
            changes = self.problem.quadratic[:, None] * (refits.strengths[rows].T - 1.0)
            found[:, : self.problem.n_columns] += changes * self.point.coef[:, :, None]
        if refits.class_factors is not None:
            found += np.einsum("gaj,mg->ajm", self.group_gradients, refits.class_factors[rows] - 1.0)
        return found.reshape(-1, rows.size)

    def strengths(self, rows: Rows) -> Array:
        """The strengths of the penalty without each of some rows, one column each; one column where they stay."""
        strengths = self.metric.strengths[:, None]
        if self.refits.strengths is not None:
            strengths = np.repeat(strengths, rows.size, axis=1)
            strengths[: self.problem.n_columns] *= self.refits.strengths[rows].T
        return strengths


@final
class ClassCandidates:
    """Models without one row each, written down in full: the candidates of :func:`glru.updates.batch.tighten`.

    ``moves``: from the base, one column per candidate.
    """

    cost, contraction = 0.0, np.inf

    def __init__(
        self,
        family: ClassRows,
        removals: ClassRemovals,
        reference: Rows,
        moves: Array,
        descent: Descent | None = None,
    ) -> None:
        self.family, self.removals, self.reference, self.moves = family, removals, reference, moves
        self.descent = Descent(family.metric.arrays) if descent is None else descent
        self.gradients: Any = None
        self.corrections: Any = None

    @classmethod
    def first(cls, family: ClassRows, removals: ClassRemovals, reference: Rows) -> "ClassCandidates":
        """The candidates of the closed form, and of a step that refitted strengths and weights add."""
        put = family.metric.arrays.put
        steps = family.metric.solve(_spread(family, removals, removals.multipliers))
        steps += put(family.base.step.ravel())[:, None]
        if removals.extra.any():
            steps += put(family.base.loss_step.ravel())[:, None] * put(removals.extra)
        if family.is_refitted:
            steps = steps - solve_without(family, removals, family.refit_gradients(removals.rows))
        return cls(family, removals, reference, steps)

    def certify(self) -> Certified:
        """Bounds of the left-out rows' queries, from the gradients in the metric without the row."""
        family, removals, metric = self.family, self.removals, self.family.metric
        xp, put = metric.arrays.xp, metric.arrays.put
        models = xp.reshape(self.moves, (family.problem.n_scores, metric.width, -1)) + put(family.model)[:, :, None]
        losses, own, moved, near_moved, sizes = (
            self._measure(models) if metric.arrays.stable else self._device_measure()
        )
        strengths, gauge = put(family.strengths(removals.rows)), put(metric.gauge)[:, None]
        gradients = put(removals.factors) * losses + strengths * models + gauge * xp.sum(models, axis=0)
        self.gradients = xp.reshape(gradients, self.moves.shape)
        first, second = self._move_errors(models)
        wrong = 2.0 * (family.totals.largest_norm * first + second)
        rounding = self._rounding(models, losses, strengths, first, second, sizes, moved + wrong)
        with np.errstate(all="ignore"):
            gradients = (metric.columns.gradient_norms(self.gradients) + rounding) * (1.0 + FEW) + TINY
            _, largest, lost = family.near
            shares, near_shares = removals.own_shares(), removals.own_shares(lost * (1.0 + FEW))
            nu, floors = (norms / np.sqrt(shares) for norms in (gradients, rounding))
            radius = removal_radius(nu, moved + wrong, shares, family.largest_norm + removals.fill_sizes)
            if lost > 0.0:
                near_nu, largest_norms = gradients / np.sqrt(near_shares), largest + removals.fill_sizes
                near = removal_radius(near_nu, near_moved + wrong, near_shares, largest_norms)
                radius = np.minimum(radius, near)
        lengths = np.sqrt(family.problem.squared_row_norms[removals.rows]) * (1.0 + gamma(family.problem.n_columns + 4))
        scores = removals.scores + own
        errors = removals.errors + lengths * first + second + TINY + FEW * np.abs(scores).max(axis=1)
        lower, upper = self._bounds(scores, errors, nu, moved + wrong, radius, rounding)
        return Certified(lower.T, upper.T, nu, floors)

    @property
    def _together(self) -> int:
        """Candidates that are measured together."""
        return min(self.removals.rows.size, max(8, CACHED_SCORES // self.family.problem.n_scores))

    @property
    def _height(self) -> int:
        """Rows of a part of which the sums are made, and then added."""
        if not self.family.metric.arrays.stable:
            return DEVICE_ROWS
        return max(64, CACHED // (self.family.problem.n_scores * self._together))

    @property
    def _share(self) -> float:
        """Relative error of a row's new weight and of a sum over the rows as they are measured here, in parts."""
        family = self.family
        n_blocks = 0 if family.home is None else family.home.problem.n_blocks
        depth = self._height + family.totals.n_rows // self._height + n_blocks + 2
        return max(family.base.share, weight_share(family.problem, depth))

    def _measure(self, models: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Gradients of the losses, moves of the left-out rows' scores, the largest range of a move of another row and of one near, and the sizes of the slopes.

        The size is ``sqrt(sum_i s_i (1 - p_iy)^2)``, which no class's slopes exceed.
        """
        family, rows, columns = self.family, self.removals.rows, self.family.refits.filled_columns
        moves, own = self.moves.reshape(models.shape), _compute_own_scores(family, self.removals, self.moves)
        if family.home is None:
            near, _, lost = family.near
            refits = ClassFills(family.refits.mask, columns, family.fills[:, rows], models) if columns.size else None
            if refits is not None:
                own += refits.moves_of(rows)
            factors = family.refits.class_factors
            weights = None if factors is None else (factors[rows].T, family.refits.list_groups(family.problem))
            likely, cut = family.values.likely, near if lost > 0.0 else None
            found = measure(family.problem, rows, likely, moves, self._together, self._height, cut, refits, weights)
        else:
            found = family.home.problem.sum(
                _measure_block, family.point, moves, self._together, self._height, own=family.home.places(rows)
            )
        return found.gradients, own, found.moved, found.near, family.refits.largest_factor * np.sqrt(found.squares)

    def _move_errors(self, models: Any) -> tuple[Array, Array]:
        """A row's computed move is off by at most ``|x| first + second`` from that of the stored candidate."""
        family, problem = self.family, self.family.problem
        xp, columns = family.metric.arrays.xp, family.refits.filled_columns
        steps = xp.reshape(self.moves, models.shape)
        unit = gamma(problem.n_columns + 3) * (1.0 + gamma(problem.n_columns + 8))
        squares = to_host(xp.max(xp.sum(xp.square(steps[:, : problem.n_columns, :]), axis=1), axis=0))
        first = unit * np.sqrt(squares) * (1.0 + gamma(problem.n_columns + 8))
        second = unit * to_host(xp.max(xp.abs(steps[:, -1, :]), axis=0)) if problem.fit_intercept else 0.0 * first
        if columns.size:
            sizes, unit = np.abs(models[:, columns]), gamma(columns.size + problem.n_columns + 8)
            moved = np.einsum("jm,ajm->am", np.abs(family.fills[:, self.removals.rows]), sizes).max(axis=0)
            # The sum with the fills is rounded as well: by its parts, and by what the data alone gives.
            second = second + unit * moved + np.einsum("j,ajm->am", family.fill_errors, sizes).max(axis=0)
        return first * (1.0 + FEW), second * (1.0 + FEW)

    def _device_measure(self) -> tuple[Any, Array, Array, Array, Array]:
        """:meth:`_measure` on a device, where the moves and the gradients stay."""
        problem, family, rows = self.family.problem, self.family, self.removals.rows
        arrays, xp = family.metric.arrays, family.metric.arrays.xp
        n_rows, n_scores, width = problem.n_rows, problem.n_scores, family.metric.width
        moves = xp.reshape(self.moves, (n_scores, width, -1))
        own = _compute_own_scores(family, self.removals, self.moves)
        likely, weights = arrays.put(family.values.likely)[:, :, None], arrays.put(problem.weights)[:, None]
        is_own = arrays.put(np.arange(n_scores) == problem.y[:, None])[:, :, None]
        numbers, used = arrays.put(np.arange(n_rows))[:, None], arrays.put(problem.weights > 0.0)[:, None]
        is_near = arrays.put(family.near[0] > 0.0)[:, None]
        height, parts = max(1, arrays.batch // max(1, n_rows * n_scores)), _row_parts(problem, self._height)
        gradients, moved, near_moved, squares = [], [], [], []
        for start in range(0, rows.size, height):
            mine = rows[start : start + height]
            models = flatten_models(xp, moves[:, :, start : start + mine.size])
            scores = compute_batch_scores(problem.matrix, models, problem.fit_intercept)
            scores = xp.reshape(scores, (n_rows, n_scores, -1))
            counted = used & (numbers != arrays.put(mine)[None, :])
            ranges = xp.max(scores, axis=1) - xp.min(scores, axis=1)
            moved.append(to_host(xp.max(xp.where(counted, ranges, 0.0), axis=0)))
            near_moved.append(to_host(xp.max(xp.where(counted & is_near, ranges, 0.0), axis=0)))
            scores = xp.exp(xp.where(counted[:, None, :], scores, 0.0)) * likely
            own_share = xp.sum(xp.where(is_own, scores, 0.0), axis=1)
            scores = xp.where(is_own, 0.0, scores)
            # A row's own slope is minus the sum of the others.
            others = xp.sum(scores, axis=1)
            kept = own_share + others
            others, scale = others / kept, xp.where(counted, weights, 0.0) / kept
            weighted = xp.where(counted, weights, 0.0) * others
            squares.append(to_host(xp.sum(weighted * others, axis=0)))
            scores = xp.where(is_own, -weighted[:, None, :], scores * scale[:, None, :])
            scores = xp.reshape(scores, (n_rows, -1))
            found = sum(_compute_batch_gradients(X, scores[part, :], problem.fit_intercept) for part, X in parts)
            gradients.append(xp.permute_dims(xp.reshape(found, (width, n_scores, -1)), (1, 0, 2)))
        found, near = np.concatenate(moved), np.concatenate(near_moved)
        return xp.concat(gradients, axis=2), own, found, near, np.sqrt(np.concatenate(squares))

    def _rounding(
        self, models: Any, losses: Any, strengths: Any, first: Array, second: Array, size: Array, exponents: Array
    ) -> Array:
        """Upper bounds of the norms of the gradients' errors, and of what factors and fills within their errors change; ``exponents``: at least the largest range of a row's move."""
        family, problem, totals, refits = self.family, self.family.problem, self.family.totals, self.family.refits
        n_scores, high, rows = problem.n_scores, self.removals.factors, self.removals.rows
        size = size * (1.0 + gamma(totals.n_rows + 2 * n_scores + EXPONENTS))
        wrong = family.base.error_size + totals.norm * first + float(np.sqrt(totals.weight_sum)) * second
        share = self._share + FEW + 2.0 * gamma(2 * n_scores + EXPONENTS)
        through = family.slope_norm + family.fill_sums[0]
        # What the slopes' errors are worth through rows as they are, and through rows, fills and factors within their errors.
        spread = (share + refits.error) * size * through + size * family.fill_sums[1]
        # As ClassSums.score_error, at scores that have moved from those of the metric, for rows with moved fills and weights with factors.
        with np.errstate(over="ignore"):
            grown = np.exp((exponents + 4.0 * family.base.largest_error) * (1.0 + FEW)) * family.refits.largest_factor
        held = np.sqrt((1.0 + max(family.eta, 0.0)) / family.base.middle) + self.removals.spreads
        wrong = wrong * grown * held * (1.0 + FEW)
        xp, put, sizes = family.metric.arrays.xp, family.metric.arrays.put, abs(models)
        sizes = strengths * sizes + put(family.metric.gauge)[:, None] * xp.sum(sizes, axis=0)
        sizes += put(high) * abs(losses)
        axes = family.metric.axis_norms
        outer = gamma(n_scores + 16) * to_host(put(axes) @ xp.reshape(sizes, (axes.size, -1)))
        if refits.strengths is not None:
            # The metric is at least the penalty's: |Lam v| <= |Lam^(1/2) v| in its inverse; a factor errs by its error times max(1, rho).
            scaled = np.maximum(refits.strengths[rows].T, 1.0) * models[:, : problem.n_columns]
            lengths = np.sqrt(np.einsum("j,ajm->m", problem.quadratic, np.square(scaled)) * (1.0 + family.eta))
            outer = outer + refits.error * lengths * (1.0 + gamma(n_scores * problem.n_columns + 8))
        return (high * (spread + wrong) + outer) * (1.0 + FEW) + TINY

    def _bounds(
        self, scores: Array, errors: Array, nu: Array, exponents: Array, radius: Array, rounding: Array
    ) -> Bounds:
        """Bounds around the candidates, and around them after another Newton step, to first order.

        With ``M`` the Hessian without the row and ``g`` the gradient, the mean Hessian on the way to the optimum is within a factor ``e^rho``
        of ``M``, ``rho`` the exponent and ``kappa`` times the radius, and the computed ``M`` within a share ``theta`` of it: a query moves by
        what the step does to it up to ``(e^rho - 1 + 2 theta) |query| |g|``.
        """
        family, removals, metric = self.family, self.removals, self.family.metric
        norms = removals.norms(self.reference) + removals.fill_sizes[:, None]
        bounds = widen_queries(scores, norms * radius[:, None], errors, self.reference)
        if family.is_refitted:
            # The Hessian without the row is not that of the problem.
            return bounds
        solved = metric.solve(self.gradients)
        seen = _compute_own_scores(family, removals, solved)
        right = removals.weights[:, None] * curved(removals.curvatures, seen)
        self.corrections = removals.solve(right)
        steps = -(seen + curved(removals.forms, self.corrections))
        left = removals.missed(-self.corrections, np.zeros_like(seen), steps)
        with np.errstate(all="ignore"):
            root = np.sqrt(removals.shares)
            rho = exponents + family.largest_norm * radius
            theta = family.eta * (1.0 + removals.leverages) / removals.shares
            loose = np.expm1(rho * (1.0 + FEW)) * (1.0 + FEW) + 2.0 * theta
            # Two triangular solves, the forms in the small system, and what its solution misses.
            error = 8.0 * (metric.solve_error + metric.unit + FEW) / removals.shares
            half = loose * nu * (1.0 + FEW) + error * nu + (rounding + left + FEW * nu) / root
            half = norms * (half / root)[:, None] * (1.0 + FEW)
            off = errors + gamma(scores.shape[1] + 16) * np.abs(steps).max(axis=1)
            half = np.where((theta < 0.5) & np.isfinite(radius), 1.0, np.inf)[:, None] * half
        moved = scores + steps
        return intersect(bounds, widen_queries(moved, half, off, self.reference))

    def step(self, members: NDArray[np.bool_]) -> "ClassCandidates":
        """Some of the candidates after one more Newton step."""
        family, removals = self.family, self.removals.take(members)

        def newton(_: Any, gradients: Any) -> Any:
            return -family.metric.solve(gradients + _spread(family, removals, self.corrections[members]))

        # The first certificate has found what the row takes from the step.
        known = newton if self.descent.last is None and self.corrections is not None else None
        solve, noise = partial(solve_without, family, removals), np.zeros(members.size)
        moves, descent = self.descent.next(members, self.moves, self.gradients, noise, solve, known)
        return ClassCandidates(family, removals, self.reference[members], moves, descent)


def solve_without(family: ClassRows, removals: ClassRemovals, vectors: Any) -> Any:
    """The inverse of the metric without each row times its vector."""
    solved = family.metric.solve(vectors)
    seen = _compute_own_scores(family, removals, solved)
    more = removals.solve(removals.weights[:, None] * curved(removals.curvatures, seen))
    return family.metric.solve(vectors + _spread(family, removals, more))


@final
@dataclass(frozen=True, eq=False)
class ClassFills:
    """Fills that move without each row: ``mask`` tells which values of some columns, ``moves`` by how much (columns, models); ``models``: the models themselves."""

    mask: Array
    columns: Rows
    moves: Array
    models: Array

    @cached_property
    def shifts(self) -> Array:
        """What they do to the scores, by columns: columns, classes, models."""
        return self.moves[:, None, :] * np.swapaxes(self.models[:, self.columns], 0, 1)

    def moves_of(self, rows: Rows) -> Array:
        """What they do to the scores of the left-out rows, one line each."""
        return np.einsum("mc,cam->ma", self.mask[rows], self.shifts)

    def add_moves(self, table: Array, lines: slice, here: slice) -> None:
        """Add what they do to scores of some rows under some models."""
        shifts = self.shifts[:, :, here]
        table += (self.mask[lines] @ shifts.reshape(len(shifts), -1)).reshape(table.shape)

    def add_gradients(self, gradients: Array, table: Array, lines: slice, here: slice) -> None:
        """Add what weighted slopes give through the moved values."""
        found = (self.mask[lines].T @ table.reshape(len(table), -1)).reshape(-1, *table.shape[1:])
        gradients[:, self.columns, here] += self.moves[:, here] * np.swapaxes(found, 0, 1)


@final
@dataclass(frozen=True, eq=False)
class Measured:
    """What candidates do to the rows of a part."""

    gradients: Array  # shape (n_classes, n_unknowns, n_candidates): of the losses
    # Shape (n_candidates,): the largest range of a row's move, and that of the rows near.
    moved: Array
    near: Array
    squares: Array  # shape (n_candidates,): the sums of the squared sizes of the slopes

    def __add__(self, other: "Measured") -> "Measured":
        moved, near = np.maximum(self.moved, other.moved), np.maximum(self.near, other.near)
        return Measured(self.gradients + other.gradients, moved, near, self.squares + other.squares)


def measure(
    part: Problem,
    rows: Rows,
    likely: Array,
    moves: Array,
    size: int,
    height: int,
    near_weights: Array | None = None,
    fills: ClassFills | None = None,
    factors: tuple[Array, Rows] | None = None,
) -> Measured:
    """What candidates do to the rows of a part.

    ``rows``: the row that each candidate leaves out, a negative number where that is not in the part. ``likely``: the probabilities at the base.
    ``moves``: classes, columns, candidates. ``near_weights``: of the rows near, if not all are. ``factors``: of the weights of groups of rows, one column per
    candidate, and the rows' groups.
    """
    n_scores, width, n_models = moves.shape
    loops = table_loops(part.n_rows * n_scores * n_models)
    gradients, squares, moved = np.zeros(moves.shape), np.zeros(n_models), np.zeros(n_models)
    near = moved if near_weights is None else np.zeros(n_models)
    for here, lines, X, scores in _tables(part, rows, moves, size, height, fills):
        table = scores.reshape(scores.shape[0], n_scores, -1)
        loops.add_ranges(table, part.weights[lines], moved[here])
        if near_weights is not None:
            loops.add_ranges(table, near_weights[lines], near[here])
        np.exp(scores, out=scores)
        loops.class_slopes(
            table, likely[lines], part.y[lines], part.weights[lines], rows[here] - lines.start, squares[here]
        )
        if factors is not None:
            table *= factors[0][factors[1][lines]][:, None, here]
        found = _compute_batch_gradients(X, scores, part.fit_intercept)
        gradients[:, :, here] += np.swapaxes(found.reshape(width, n_scores, -1), 0, 1)
        if fills is not None:
            fills.add_gradients(gradients, table, lines, here)
    return Measured(gradients, moved, near, squares)


def _measure_block(part: Problem, places: Rows | None, base: Point, moves: Array, size: int, height: int) -> Measured:
    """:func:`measure` of a block, whose rows some of the candidates leave out at these places."""
    rows = np.full(moves.shape[2], -1) if places is None else places
    return measure(part, rows, softmax(part.scores(base.coef, base.intercept)), moves, size, height)


def _tables(
    part: Problem, rows: Rows, moves: Array, size: int, height: int, fills: ClassFills | None
) -> Iterator[tuple[slice, slice, Matrix, Array]]:
    """The moves of the rows' scores by groups of ``size`` candidates and ``height`` rows, a left-out row's as zeros."""
    n_scores, _, n_models = moves.shape
    parts = _row_parts(part, height)
    for start in range(0, n_models, size):
        here = slice(start, min(start + size, n_models))
        models, mine = flatten_models(np, moves[:, :, here]), rows[here]
        for lines, X in parts:
            scores = compute_batch_scores(X, models, part.fit_intercept)
            table = scores.reshape(scores.shape[0], n_scores, -1)
            if fills is not None:
                fills.add_moves(table, lines, here)
            owners = np.flatnonzero((mine >= lines.start) & (mine < lines.stop))
            table[mine[owners] - lines.start, :, owners] = 0.0
            yield here, lines, X, scores


def _row_parts(problem: Problem, height: int) -> list[tuple[slice, Matrix]]:
    """All rows in parts of at most ``height``."""
    ends = [slice(k, min(k + height, problem.n_rows)) for k in range(0, problem.n_rows, height)]
    return [(part, problem.matrix[part]) for part in ends]


def flatten_models(xp: Any, models: Any) -> Any:
    """Models (classes, columns, models) as a matrix: columns, and for every class a column per model."""
    return xp.reshape(xp.permute_dims(models, (1, 0, 2)), (models.shape[1], -1))


def compute_batch_scores(X: Matrix, models: Any, fit_intercept: bool) -> Any:
    """Scores of rows under models as :func:`flatten_models` gives them, the intercepts last."""
    if not fit_intercept:
        return X @ models
    scores = X @ models[:-1, :]
    scores += models[-1, :]
    return scores


def _compute_batch_gradients(X: Matrix, weighted: Any, fit_intercept: bool) -> Any:
    """``X^T v`` of several vectors, and their sums for an intercept."""
    found = X.T @ weighted
    return X.arrays.append_row(found, X.arrays.xp.sum(weighted, axis=0)) if fit_intercept else found


def _make_dense_rows(family: ClassRows, rows: Rows) -> Any:
    """Some rows, with a 1 for an intercept, where the metric is."""
    matrix, arrays = family.problem.matrix[rows], family.metric.arrays
    block = matrix.dense() if arrays.stable else matrix.block()
    return arrays.with_ones(block) if family.problem.fit_intercept else block


def _spread(family: ClassRows, removals: ClassRemovals, vectors: Array) -> Any:
    """``U c`` of every row, one column each."""
    block, arrays = _make_dense_rows(family, removals.rows), family.metric.arrays
    lines = arrays.put(vectors)[:, :, None] * block[:, None, :]
    return arrays.xp.matrix_transpose(arrays.xp.reshape(lines, (removals.rows.size, -1)))


def _compute_own_scores(family: ClassRows, removals: ClassRemovals, models: Any) -> Array:
    """Every row's scores under its own model, one line each."""
    block, arrays = _make_dense_rows(family, removals.rows), family.metric.arrays
    lines = arrays.xp.reshape(models, (family.problem.n_scores, family.metric.width, -1))
    if arrays.stable:
        return np.einsum("ajm,mj->ma", lines, block)
    return to_host(arrays.xp.sum(lines * arrays.xp.matrix_transpose(block), axis=1)).T
