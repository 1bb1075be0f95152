r"""The removal of any single row with one score per class: a Newton step in closed form, then steps written down in full.

The closed form is :mod:`glru.updates.class_removals`. Where it leaves a row open, its candidate is written down: the moves of all rows' scores are one product with the
data, its exact gradient another one, for all candidates of a batch.

A candidate is the exact sum of the stored base and the stored move, so that scores of the base, and their errors, are the same for all of them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, intersect
from glru.linalg import FEW, TINY, Array, Matrix, gamma, powers_of_two, to_host
from glru.linalg.arrays import SMALL
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
from glru.updates.gradients import Descent, conjugate_gradients
from glru.updates.local_rows import MAX_DRIFT, MAX_ETA, MAX_METRICS

MAX_OTHER = 0.1
"""Rows whose weight makes the others' grow by a factor that differs by more than this share from the usual one are left to later steps."""

CHUNK = 1 << 19
"""Numbers of a work array: scores of all rows and classes under candidates that take exact steps together, or forms of some rows."""

MAX_LOST = 0.5
"""Rows of large norms that carry more than this share of the metric are not left out of it."""

DEVICE_ROWS = 1 << 12
"""Rows of which a device makes sums in one product; those of more are added, so that rounding does not grow with the number of rows."""

SINGLE_HEIGHT, SINGLE_TINY = 128, 1e-30
"""Rows of which sums are made in single precision, and then added in double: rounding does not grow with the number of rows. At most what underflow takes from a sum of so many."""

NARROW_UNIT = 0.01
"""Sums in single precision whose rounding may be a larger share of the sizes of their terms, as norms, do not make bounds narrow."""

SMALL_CLOSED_FORM = 2e9
"""Operations, a tenth of a second: candidates of a problem whose closed form costs less may cost as much as those of one where it does not."""

MAX_MOVED = 2.0
"""Ranges of moves up to which a series of 14 terms stands for the exponential."""

STEP_ACCURACY = 0.03
"""Share of a gradient that a Newton step with a model's own Hessian may leave; in a few steps that is enough."""

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

    Attributes
    ----------
    usable : bool
        Whether anything is proven.
    converged : bool
        Whether the Newton step of the base moved no score far.
    """

    base: ClassBase
    home: "Home | None" = None

    def __init__(self, problem: Problem, start: Point | ClassBase) -> None:
        assert isinstance(problem.loss, Multinomial)
        self.problem, self.loss = problem, problem.loss
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
        """At least the largest norm of ``x_k (e_a - e_b)`` of every row that counts."""
        height, found = max(1, CHUNK // self.problem.n_scores**2), np.zeros(self.problem.n_rows)
        for start in range(0, found.size, height):
            here = slice(start, start + height)
            found[here] = pair_norms(self.forms[here], self.metric.unit).max(axis=(1, 2))
        return np.where(self.problem.weights > 0.0, found, 0.0)

    @cached_property
    def largest_norm(self) -> float:
        """At least the largest norm of ``x_k (e_a - e_b)`` of a row that counts."""
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
    def single(self) -> "SingleRows | None":
        """The rows in single precision, if the base is one of dense rows in memory."""
        return SingleRows.of(self.problem, self.totals.column_norms) if self.home is None else None

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
        # Operations, roughly: the Hessian and the forms, the factor; two products in single precision and what is done to every score, four triangular solves.
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

    def refined(self, rows: Rows, reference: Rows, decided: Decided, n_steps: int, narrow: bool = False) -> Bounds:
        """Bounds after Newton steps, each written down in full and certified by its own gradient; ``narrow``: whether more than labels is asked for."""
        lower, upper = make_unbounded_queries(rows.size, self.problem.n_scores)
        if not self.usable:
            return lower, upper
        removals = self.removals(rows)
        proven = np.flatnonzero(removals.shares > 0.0)
        # On a device the models of as many rows as it keeps busy, on the host of all of them.
        height = max(1, proven.size if self.metric.arrays.stable else self.metric.arrays.batch // self.model.size)
        for start in range(0, proven.size, height):
            places = proven[start : start + height]
            first = ClassCandidates.first(self, self.removals(rows[places]), reference[places])
            # Single precision is made for many scores. In an ill-conditioned metric its rounding would weigh in narrow bounds.
            first.is_first &= places.size * self.problem.n_rows * self.problem.n_scores >= SMALL and (
                not narrow or (self.single is not None and self.single.unit * self.slope_norm < NARROW_UNIT)
            )
            found = tighten(first, lambda low, high: decided(low.T, high.T), n_steps, exact=first.exact)
            lower[places], upper[places] = found.lower.T, found.upper.T
        return lower, upper


@final
@dataclass(frozen=True, eq=False)
class SingleRows:
    """Dense rows in single precision, their columns scaled by powers of two."""

    rows: NDArray[np.float32]  # shape (n_rows, n_unknowns): the rows, with a 1 for an intercept, times the scales
    scales: Array  # shape (n_unknowns,): the scales, which bring the norm of a column near 1
    weights: Array  # shape (n_rows,): the weights as shares of the largest
    most: float  # the largest weight
    longest: float  # at least the largest norm of a scaled row that counts

    @classmethod
    def of(cls, problem: Problem, column_norms: Array) -> "SingleRows | None":
        """The rows of a problem; None where they are not dense, on a device, or not numbers in single precision."""
        if not (problem.in_memory and problem.arrays.stable and problem.matrix.stores_zeros):
            return None
        scales, width = powers_of_two(np.square(column_norms)), column_norms.size
        most, rows = float(problem.weights.max()), np.empty((problem.n_rows, width), dtype=np.float32)
        longest, used, small = 0.0, problem.weights > 0.0, ~(scales * column_norms > 0.5)
        for part, X in _row_parts(problem, max(64, CHUNK // width)):
            block = X.dense() if not problem.fit_intercept else np.column_stack([X.dense(), np.ones(X.shape[0])])
            block = block * scales
            if block[:, small].any():
                # Nothing is known of the share of a column that underflows but where its norm is near 1.
                return None
            rows[part] = block
            squares = np.einsum("ij,ij->i", block, block)[used[part]]
            longest = max(longest, float(np.sqrt(squares.max(initial=0.0))))
        if not (np.isfinite(rows).all() and np.isfinite(longest)):
            return None
        return cls(rows, scales, problem.weights / most, most, longest * (1.0 + gamma(width + 8)))

    @property
    def unit(self) -> float:
        """An entry of a gradient is off by at most this share of the product of the norms of its column and of the slopes: a part's rounding, that of both factors and of the sum of the parts."""
        return _single_gamma(SINGLE_HEIGHT + 4) * (1.0 + FEW) + gamma(len(self.rows) + 8)

    @property
    def tiny(self) -> float:
        """What numbers that underflow are missing from a gradient, as an error of the slopes."""
        return SINGLE_TINY * len(self.rows) * self.most * (1.0 + self.longest)

    def move_errors(self, moves: Array, n_scores: int) -> Array:
        """At least how far any score's move under each model is off."""
        scaled = moves.reshape(n_scores, self.scales.size, -1) / self.scales[:, None]
        lengths = np.sqrt(np.einsum("ajm,ajm->am", scaled, scaled).max(axis=0)) * (1.0 + gamma(self.scales.size + 8))
        # Both factors are rounded, then their product.
        return _single_gamma(self.scales.size + 4) * self.longest * lengths + SINGLE_TINY * (1.0 + self.longest) * (
            1.0 + lengths
        )

    def measure(self, family: ClassRows, left_out: Rows, moves: Array, size: int) -> tuple[Array, Array, Array, Array]:
        """What linearised slopes miss, as gradients of the losses, the largest ranges of moves, those of rows near, and the norms of what slopes miss."""
        from glru.linalg.kernels import class_remainders

        problem, width, n_models = family.problem, self.scales.size, left_out.size
        models = (moves.reshape(problem.n_scores, width, -1) / self.scales[:, None]).astype(np.float32)
        near, likely = (family.near[0] > 0.0).astype(np.float64), family.values.likely
        gradients = np.zeros((width, problem.n_scores, n_models))
        moved, near_moved, squares = np.zeros(n_models), np.zeros(n_models), np.zeros(n_models)
        for start in range(0, n_models, size):
            here = slice(start, min(start + size, n_models))
            flat, mine = _flatten(np, models[:, :, here]), left_out[here]
            found = gradients[:, :, here].reshape(width, -1)
            for top in range(0, problem.n_rows, SINGLE_HEIGHT):
                part = slice(top, min(top + SINGLE_HEIGHT, problem.n_rows))
                scores = self.rows[part] @ flat
                table = scores.reshape(part.stop - top, problem.n_scores, -1)
                owners = np.flatnonzero((mine >= top) & (mine < part.stop))
                table[mine[owners] - top, :, owners] = 0.0
                weights = self.weights[part]
                class_remainders(table, likely[part], weights, near[part], moved[here], near_moved[here], squares[here])
                found += self.rows[part].T @ scores
            gradients[:, :, here] = found.reshape(width, problem.n_scores, -1)
        gradients *= (self.most / self.scales)[:, None, None]
        return np.swapaxes(gradients, 0, 1), moved, near_moved, np.sqrt(self.most * squares)


@final
class ClassCandidates:
    """Models without one row each, written down in full: the candidates of :func:`glru.updates.batch.tighten`.

    ``moves``: from the base, one column per candidate.
    """

    cost = 0.0

    def __init__(
        self, family: ClassRows, removals: ClassRemovals, reference: Rows, moves: Array, exact: bool = False
    ) -> None:
        self.family, self.removals, self.reference, self.moves = family, removals, reference, moves
        self.exact_steps, self.contraction, self.is_first = exact, 1.0 if exact else np.inf, False
        self.descent = Descent(family.metric.arrays)
        self.gradients: Any = None
        self.corrections: Any = None

    @classmethod
    def first(cls, family: ClassRows, removals: ClassRemovals, reference: Rows) -> "ClassCandidates":
        """The candidates of the closed form."""
        put = family.metric.arrays.put
        steps = family.metric.solve(_spread(family, removals, removals.multipliers))
        steps += put(family.base.step.ravel())[:, None]
        if removals.extra.any():
            steps += put(family.base.loss_step.ravel())[:, None] * put(removals.extra)
        found = cls(family, removals, reference, steps)
        found.is_first = True
        return found

    def certify(self) -> Certified:
        """Bounds of the left-out rows' queries; of the first candidates in single precision, where these do not move far."""
        rows = self.family.single if self.is_first else None
        if rows is None:
            return self._certify()
        found = self._bound_first(rows)
        far = np.flatnonzero(~np.isfinite(found.norms))
        if far.size:
            alone = ClassCandidates(self.family, self.removals.take(far), self.reference[far], self.moves[:, far])
            more = alone._certify()
            for mine, theirs in zip(found, more, strict=True):
                mine[..., far] = theirs
            self.gradients[:, far], self.corrections[far] = alone.gradients, alone.corrections
        return found

    def _certify(self) -> Certified:
        """Bounds of the left-out rows' queries, from the gradients in the metric without the row."""
        family, removals, metric = self.family, self.removals, self.family.metric
        n_scores = family.problem.n_scores
        xp, put = metric.arrays.xp, metric.arrays.put
        losses, own, moved, near_moved, sizes = self._measure() if metric.arrays.stable else self._device_measure()
        models = xp.reshape(self.moves, (n_scores, metric.width, -1)) + put(family.model)[:, :, None]
        strengths, gauge = put(metric.strengths)[:, None], put(metric.gauge)[:, None]
        gradients = put(removals.factors) * losses + strengths * models + gauge * xp.sum(models, axis=0)
        self.gradients = xp.reshape(gradients, self.moves.shape)
        first, second = self._move_errors()
        wrong = 2.0 * (family.totals.largest_norm * first + second)
        rounding = self._rounding(models, losses, first, second, sizes, moved + wrong)
        with np.errstate(all="ignore"):
            gradients = (metric.columns.gradient_norms(self.gradients) + rounding) * (1.0 + FEW) + TINY
            nu, floors = (
                np.where(removals.shares > 0.0, norms / np.sqrt(removals.shares), np.inf)
                for norms in (gradients, rounding)
            )
            radius = removal_radius(nu, moved + wrong, removals.shares, family.largest_norm)
            _, largest, lost = family.near
            if lost > 0.0:
                shares = removals.shares - lost * (1.0 + FEW)
                near = removal_radius(gradients / np.sqrt(shares), near_moved + wrong, shares, largest)
                radius = np.minimum(radius, near)
        lengths = np.sqrt(family.problem.squared_row_norms[removals.rows]) * (1.0 + gamma(family.problem.n_columns + 4))
        scores = removals.scores + own
        errors = removals.errors + lengths * first + second + TINY + FEW * np.abs(scores).max(axis=1)
        lower, upper = self._bounds(scores, errors, nu, moved + wrong, radius, rounding)
        return Certified(lower.T, upper.T, nu, floors)

    def _bound_first(self, rows: "SingleRows") -> Certified:
        r"""Bounds around the first candidates, exact Newton steps, from what the linearised slopes of the other rows miss, in single precision.

        The gradient there is :math:`\sum_k s_k R_k \otimes x_k`, :math:`R = p(z + t) - p - h t`, and what is left of the Newton equation. An error ``u`` of the moves changes
        ``R`` by :math:`(\bar h - h) u` with :math:`|\bar h - h| \preceq (e^T - 1) h`, ``T`` at least the range of a move: by Cauchy's inequality, together by at most
        :math:`(e^T - 1) (\sum_k s_k u_k^\top h_k u_k)^{1/2}`, and so does an error of the scores, which changes ``h t`` in addition.
        """
        family, removals, problem = self.family, self.removals, self.family.problem
        _, largest, lost = family.near
        losses, moved, near_moved, sizes = rows.measure(family, removals.rows, self.moves, self._together)
        closed = removals.closed_form(self.reference)
        self.gradients = (removals.factors * losses).reshape(self.moves.shape)
        with np.errstate(all="ignore"):
            root = np.sqrt(removals.shares)
            single = rows.move_errors(self.moves, problem.n_scores)
            # The stored steps are off by what two triangular solves and a sum miss.
            missed = 4.0 * (family.metric.solve_error + FEW) * (removals.base_norms + removals.sizes)
            wrong = 2.0 * single + family.largest_norm * missed + FEW * moved
            exponents, near_moved = (moved + wrong) * (1.0 + FEW) + TINY, near_moved + wrong
            unit, total = gamma(4 * problem.n_scores + EXPONENTS + 64), float(np.sqrt(family.totals.weight_sum))
            # Errors of probabilities count as errors of the scores.
            scores, score = family.base.error_size + 2.0 * unit * total, family.base.largest_error + 2.0 * unit
            spread = np.sqrt(removals.factors) * (single * total + scores) + missed * np.sqrt(1.0 + family.eta)
            off = np.expm1(exponents) * spread + np.expm1(2.0 * score) * closed.deltas
            off = off * np.exp(4.0 * score) * (1.0 + FEW)
            # The tail of the series, and the rounding of a row's terms, by class at most the shares of p.
            tail = exponents**15 / math.factorial(15) * np.exp(exponents) + unit * exponents
            size = (
                sizes * (1.0 + unit) * (rows.unit + family.base.share)
                + 8.0 * np.exp(2.0 * exponents) * tail * total
                + rows.tiny
            )
            rounding = removals.factors * size * family.slope_norm + (off + closed.residuals) * root
            rounding = rounding * (1.0 + FEW) + TINY
            norms = (family.metric.columns.gradient_norms(self.gradients) + rounding) * (1.0 + FEW)
            nu = np.where((removals.shares > 0.0) & (exponents < MAX_MOVED), norms / root, np.inf)
            radius = removal_radius(nu, exponents, removals.shares, family.largest_norm)
            if lost > 0.0:
                shares = removals.shares - lost * (1.0 + FEW)
                # What is off in the metric of all other rows may be longer in that of those near.
                longer = nu * root + off * (np.sqrt(1.0 + family.eta) - root)
                near = removal_radius(longer / np.sqrt(shares) * (1.0 + FEW), near_moved, shares, largest)
                radius = np.minimum(radius, near)
            lower, upper = self._bounds(closed.scores, closed.errors, nu, exponents, radius, rounding)
        # What single precision loses is no floor: the next certificate is computed in double.
        return Certified(lower.T, upper.T, nu, np.zeros(nu.shape))

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

    def _tables(self) -> Iterator[tuple[slice, slice, Matrix, Array]]:
        """The moves of the rows' scores by groups of candidates and parts of the rows, a left-out row's as zeros."""
        n_scores, width = self.family.problem.n_scores, self.family.metric.width
        moves = self.moves.reshape(n_scores, width, -1)
        return _tables(self.family.problem, self.removals.rows, moves, self._together, self._height)

    def _measure(self) -> tuple[Array, Array, Array, Array, Array]:
        """Gradients of the losses, moves of the left-out rows' scores, the largest range of a move of another row and of one near, and the sizes of the slopes.

        The size is ``sqrt(sum_i s_i (1 - p_iy)^2)``, which no class's slopes exceed.
        """
        family, rows = self.family, self.removals.rows
        moves = self.moves.reshape(family.problem.n_scores, family.metric.width, -1)
        if family.home is None:
            near, _, lost = family.near
            likely, cut = family.values.likely, near if lost > 0.0 else None
            found = measure(family.problem, rows, likely, moves, self._together, self._height, cut)
        else:
            found = family.home.problem.sum(
                _measure_block, family.point, moves, self._together, self._height, own=family.home.places(rows)
            )
        own = _compute_own_scores(family, self.removals, self.moves)
        return found.gradients, own, found.moved, found.near, np.sqrt(found.squares)

    def _move_errors(self) -> tuple[Array, Array]:
        """A row's computed move is off by at most ``|x| first + second`` from that of the stored candidate."""
        problem = self.family.problem
        xp = self.family.metric.arrays.xp
        steps = xp.reshape(self.moves, (problem.n_scores, self.family.metric.width, -1))
        unit = gamma(problem.n_columns + 3) * (1.0 + gamma(problem.n_columns + 8))
        squares = to_host(xp.max(xp.sum(xp.square(steps[:, : problem.n_columns, :]), axis=1), axis=0))
        first = unit * np.sqrt(squares) * (1.0 + gamma(problem.n_columns + 8))
        if not problem.fit_intercept:
            return first, np.zeros_like(first)
        second = unit * to_host(xp.max(xp.abs(steps[:, -1, :]), axis=0))
        return first, second

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
            models = _flatten(xp, moves[:, :, start : start + mine.size])
            scores = _compute_batch_scores(problem.matrix, models, problem.fit_intercept)
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

    def _rounding(self, models: Any, losses: Any, first: Array, second: Array, size: Array, exponents: Array) -> Array:
        """At least the norms of the gradients' errors; ``exponents``: at least the largest range of a row's move."""
        family, problem, totals = self.family, self.family.problem, self.family.totals
        n_scores, high = problem.n_scores, self.removals.factors
        size = size * (1.0 + gamma(totals.n_rows + 2 * n_scores + EXPONENTS))
        wrong = family.base.error_size + totals.norm * first + float(np.sqrt(totals.weight_sum)) * second
        share = self._share + 2.0 * gamma(2 * n_scores + EXPONENTS)
        spread = share * size * (1.0 + FEW)
        # As ClassSums.score_error, at scores that have moved from those of the metric.
        with np.errstate(over="ignore"):
            grown = np.exp((exponents + 4.0 * family.base.largest_error) * (1.0 + FEW))
        wrong = wrong * grown * np.sqrt((1.0 + max(family.eta, 0.0)) / family.base.middle) * (1.0 + FEW)
        xp, put, sizes = family.metric.arrays.xp, family.metric.arrays.put, abs(models)
        sizes = put(family.metric.strengths)[:, None] * sizes + put(family.metric.gauge)[:, None] * xp.sum(
            sizes, axis=0
        )
        sizes += put(high) * abs(losses)
        axes = family.metric.axis_norms
        outer = gamma(n_scores + 16) * to_host(put(axes) @ xp.reshape(sizes, (axes.size, -1)))
        return (high * (spread * family.slope_norm + wrong) + outer) * (1.0 + FEW) + TINY

    def _bounds(
        self, scores: Array, errors: Array, nu: Array, exponents: Array, radius: Array, rounding: Array
    ) -> Bounds:
        """Bounds around the candidates, and around them after another Newton step, to first order.

        With ``M`` the Hessian without the row and ``g`` the gradient, the mean Hessian on the way to the optimum is within a factor ``e^rho``
        of ``M``, ``rho`` the exponent and ``kappa`` times the radius, and the computed ``M`` within a share ``theta`` of it: a query moves by
        what the step does to it up to ``(e^rho - 1 + 2 theta) |query| |g|``.
        """
        family, removals, metric = self.family, self.removals, self.family.metric
        norms = removals.norms(self.reference)
        bounds = widen_queries(scores, norms * radius[:, None], errors, self.reference)
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
        family, removals, corrections = self.family, self.removals.take(members), self.corrections[members]

        def newton(moves: Any, gradients: Any) -> Any:
            if self.exact_steps:
                return -_newton_directions(family, removals, moves, gradients)
            return -family.metric.solve(gradients + _spread(family, removals, corrections))

        known = newton if self.exact_steps or self.descent.last is None else None
        solve, noise = partial(_solve, family, removals), np.zeros(members.size)
        moves, descent = self.descent.next(members, self.moves, self.gradients, noise, solve, known)
        found = ClassCandidates(family, removals, self.reference[members], moves, self.exact_steps)
        found.descent = descent
        return found

    def exact(self, members: NDArray[np.bool_]) -> "ClassCandidates | None":
        """Some of the candidates as they are, for steps with the Hessian of each; None where each product is a pass over blocks."""
        if self.family.home is not None:
            return None
        removals, moves = self.removals.take(members), self.family.metric.arrays.take(self.moves, members)
        return ClassCandidates(self.family, removals, self.reference[members], moves, True)


def _newton_directions(family: ClassRows, removals: ClassRemovals, moves: Any, gradients: Any) -> Any:
    """The inverses of the models' own Hessians times their gradients, by conjugate gradients; without proof."""
    problem, metric, arrays = family.problem, family.metric, family.metric.arrays
    X, n_scores, xp, found = problem.matrix, problem.n_scores, arrays.xp, []
    size = min(64, max(8, (CHUNK if arrays.stable else arrays.batch) // max(1, n_scores * problem.n_rows)))
    strengths, gauge = arrays.put(metric.strengths)[:, None], arrays.put(metric.gauge)[:, None]
    base = arrays.put(family.values.likely)[:, :, None]
    for start in range(0, moves.shape[1], size):
        here = slice(start, min(start + size, moves.shape[1]))
        mine = removals.take(here)
        shape = problem.n_rows, n_scores, here.stop - start
        models = _flatten(xp, xp.reshape(moves[:, here], (n_scores, metric.width, -1)))
        likely = xp.reshape(xp.exp(_compute_batch_scores(X, models, problem.fit_intercept)), shape) * base
        likely /= xp.sum(likely, axis=1)[:, None, :]
        weights = problem.weights[:, None] * mine.factors
        weights[mine.rows, np.arange(mine.rows.size)] = 0.0
        weights = arrays.put(weights)

        def product(vectors: Any, likely: Any = likely, weights: Any = weights) -> Any:
            lines = xp.reshape(vectors, (n_scores, metric.width, -1))
            scores = xp.reshape(_compute_batch_scores(X, _flatten(xp, lines), problem.fit_intercept), likely.shape)
            scores -= xp.sum(likely * scores, axis=1)[:, None, :]
            scores *= likely
            scores *= weights[:, None, :]
            image = _compute_batch_gradients(X, xp.reshape(scores, (problem.n_rows, -1)), problem.fit_intercept)
            image = xp.permute_dims(xp.reshape(image, (metric.width, n_scores, -1)), (1, 0, 2))
            return xp.reshape(image + strengths * lines + gauge * xp.sum(lines, axis=0), vectors.shape)

        solve = partial(_solve, family, mine)
        found.append(conjugate_gradients(arrays, product, solve, gradients[:, here], STEP_ACCURACY))
    return arrays.concatenate(found, 1)


def _solve(family: ClassRows, removals: ClassRemovals, vectors: Any) -> Any:
    """The inverse of the metric without each row times its vector."""
    solved = family.metric.solve(vectors)
    seen = _compute_own_scores(family, removals, solved)
    more = removals.solve(removals.weights[:, None] * curved(removals.curvatures, seen))
    return family.metric.solve(vectors + _spread(family, removals, more))


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
    part: Problem, rows: Rows, likely: Array, moves: Array, size: int, height: int, near_weights: Array | None = None
) -> Measured:
    """What candidates do to the rows of a part.

    ``rows``: the row that each candidate leaves out, a negative number where that is not in the part. ``likely``: the probabilities at the base.
    ``moves``: classes, columns, candidates. ``near_weights``: of the rows near, if not all are.
    """
    n_scores, width, n_models = moves.shape
    loops = table_loops(part.n_rows * n_scores * n_models)
    gradients, squares, moved = np.zeros(moves.shape), np.zeros(n_models), np.zeros(n_models)
    near = moved if near_weights is None else np.zeros(n_models)
    for here, lines, X, scores in _tables(part, rows, moves, size, height):
        table = scores.reshape(scores.shape[0], n_scores, -1)
        loops.add_ranges(table, part.weights[lines], moved[here])
        if near_weights is not None:
            loops.add_ranges(table, near_weights[lines], near[here])
        np.exp(scores, out=scores)
        loops.class_slopes(
            table, likely[lines], part.y[lines], part.weights[lines], rows[here] - lines.start, squares[here]
        )
        found = _compute_batch_gradients(X, scores, part.fit_intercept)
        gradients[:, :, here] += np.swapaxes(found.reshape(width, n_scores, -1), 0, 1)
    return Measured(gradients, moved, near, squares)


def _measure_block(part: Problem, places: Rows | None, base: Point, moves: Array, size: int, height: int) -> Measured:
    """:func:`measure` of a block, whose rows some of the candidates leave out at these places."""
    rows = np.full(moves.shape[2], -1) if places is None else places
    return measure(part, rows, softmax(part.scores(base.coef, base.intercept)), moves, size, height)


def _tables(
    part: Problem, rows: Rows, moves: Array, size: int, height: int
) -> Iterator[tuple[slice, slice, Matrix, Array]]:
    """The moves of the rows' scores by groups of ``size`` candidates and ``height`` rows, a left-out row's as zeros."""
    n_scores, _, n_models = moves.shape
    parts = _row_parts(part, height)
    for start in range(0, n_models, size):
        here = slice(start, min(start + size, n_models))
        models, mine = _flatten(np, moves[:, :, here]), rows[here]
        for lines, X in parts:
            scores = _compute_batch_scores(X, models, part.fit_intercept)
            table = scores.reshape(scores.shape[0], n_scores, -1)
            owners = np.flatnonzero((mine >= lines.start) & (mine < lines.stop))
            table[mine[owners] - lines.start, :, owners] = 0.0
            yield here, lines, X, scores


def _row_parts(problem: Problem, height: int) -> list[tuple[slice, Matrix]]:
    """All rows in parts of at most ``height``."""
    ends = [slice(k, min(k + height, problem.n_rows)) for k in range(0, problem.n_rows, height)]
    return [(part, problem.matrix[part]) for part in ends]


def _single_gamma(n: int) -> float:
    """:func:`~glru.linalg.gamma` in single precision."""
    unit = n * 2.0**-24
    return unit / (1.0 - unit)


def _flatten(xp: Any, models: Any) -> Any:
    """Models (classes, columns, models) as a matrix: columns, and for every class a column per model."""
    return xp.reshape(xp.permute_dims(models, (1, 0, 2)), (models.shape[1], -1))


def _compute_batch_scores(X: Matrix, models: Any, fit_intercept: bool) -> Any:
    """Scores of rows under models as :func:`_flatten` gives them, the intercepts last."""
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
