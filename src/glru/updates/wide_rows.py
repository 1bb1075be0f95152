r"""All leave-one-out removals from wide data at once, in the dimension of the rows.

Without row ``i`` the Newton step from the old model is :math:`\delta + c_i H^{-1} x_i`, with :math:`\delta` the step that all
removals share, :math:`c_i = s'_i (g_i + h_i \delta z_i) / (1 - \ell_i)` and :math:`\ell_i = s'_i h_i Q_{ii}`. Every candidate is
written down in full as a pair :math:`(b, \beta)`, one per column, and certified by its own gradient.

Candidates step on with the old Hessian (:class:`ChordSteps`), whose curvatures differ from those at the candidate by at most :math:`e^T`, ``T`` the largest
move of a score times the self-concordance constant. Of rows that this leaves open the models step together with Hessians of their own
(:class:`OwnSteps`), under balls of the duality gap; what these do not decide is refined one by one from there.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, intersect
from glru.linalg import FEW, TINY, UNIT, Array, Entries, add_work, gamma, length, to_host
from glru.metric.rows import MANY_SOLVES, Leverages, RowMetric
from glru.problem import Problem
from glru.solution import Solution
from glru.updates.batch import Certified, Decided, Tightened, tighten
from glru.updates.carried_rows import removal_factors
from glru.updates.centred_rows import Balls
from glru.updates.gradients import find_lengths
from glru.updates.row_models import MAX_STEPS, Errors, Images, Retrained, RowModels, Rows

FEWEST_ROWS = 256
"""With fewer rows than this the leverages of all rows are computed, however few are asked for."""

BALL_STEPS = 4
"""The largest number of certificates of a candidate by balls: if these do not decide a row, ellipsoids may."""

CHEAP_ROWS = 128
"""With fewer rows than this, the overhead of a batch step and of a training differ by more than their arithmetic."""


MOST_OWN_ROWS, OWN_ENTRIES = 384, 1 << 18
"""The largest number of rows of data whose models take steps together with their own Hessians, and the entries of these Hessians formed at once."""

OWN_COST, OWN_SEARCH, LEAST_DESCENT = 0.08, 0.1, 1e-8
"""For such a step: its cost in units of training the row, the share of the slope that its line search may leave, and the root of a decrease of the objective that counts as rounding."""


def estimate_leverage_cost(problem: Problem, n_rows: int) -> float:
    """What the leverages of some rows cost, with all that is formed for them, as a product with X costs."""
    size = float(problem.n_rows)
    return (
        problem.matrix.gram_cost + 0.03 * size**3 + 0.3 * size**2 * (n_rows if MANY_SOLVES * n_rows <= size else size)
    )


def estimate_ball_cost(problem: Problem, n_rows: int) -> float:
    """What balls around the Newton candidates of some rows cost, with the factor that these are solved with."""
    size = float(problem.n_rows)
    return problem.matrix.gram_cost + 0.012 * size**3 + 0.1 * size**2 * n_rows


@final
class WideRows(RowModels):
    """The removal of single rows, many at once, with the old Hessian.

    Attributes
    ----------
    n_together : int
        The number of rows that are asked about in batches, so that what is formed for them does not depend on the batches.
    """

    def __init__(self, solution: Solution) -> None:
        super().__init__(solution.problem)
        problem = solution.problem
        self.start = self.duals, self.free, self.base = self.place(solution.point)
        self.slopes, self.curvatures = problem.loss.expand_slope(problem.y, self.base)
        self.factors = removal_factors(problem)
        known = self.factors[np.isfinite(self.factors)]
        self.factor = float(np.partition(known, known.size // 2)[known.size // 2]) if known.size else 1.0
        self.weights = self.factor * problem.weights
        self.used = self.weights > 0.0
        self.n_together = 0
        self._few: Leverages | None = None
        # ``b``, ``beta`` and the last fall of the objective of rows that steps of their own were taken for.
        self.candidates: dict[int, tuple[Array, Array, float]] = {}

    @property
    def has_closed_form(self) -> bool:
        """Whether the Hessian is the same everywhere, and the other rows' weights whichever row leaves."""
        return (
            self.local and self.constant == 0.0 and bool(np.all(self.factors[np.isfinite(self.factors)] == self.factor))
        )

    def refine_one(self, row: int, decided: Callable[[Array, Array], bool], n_steps: int = MAX_STEPS) -> Retrained:
        """Bounds of a row's score under the model without it, by Newton steps of that model alone."""
        weights, rows = self.factors[row] * self.problem.weights, np.array([row])
        weights[row] = 0.0
        start = self.start
        if row in self.candidates:
            duals, free, _ = self.candidates[row]
            start = duals, free, self.scores(duals, free)
        return self.retrained(weights, start, rows, decided, n_steps)

    @cached_property
    def metric(self) -> RowMetric:
        """The metric at the old scores with the new weights on all rows."""
        return RowMetric(self.side, self.weights * self.curvatures)

    def known(self, rows: Rows) -> Leverages:
        """Leverages that have those of some rows: of all rows, or of these where they are few."""
        metric, n_asked, n_rows = self.metric, max(self.n_together, rows.size), self.used.size
        many = MANY_SOLVES * n_asked > n_rows or n_rows < FEWEST_ROWS or bool(np.any(np.diff(rows) < 0))
        if many or "leverages" in metric.__dict__:
            return metric.leverages
        if self._few is None or not np.all(np.isin(rows, self._few.rows)):
            self._few = metric.compute_leverages(rows)
        return self._few

    @property
    def row_norms(self) -> Array:
        """An upper bound of the norm of every row: where not all leverages are known, from ``H >= Lambda`` and ``H >= d x x^T``."""
        metric, side = self.metric, self.side
        if "leverages" in metric.__dict__:
            return metric.leverages.norms
        with np.errstate(divide="ignore"):
            return np.fmin(side.norms + side.border_norms * metric.free_norm, 1.0 / metric.root) * (1.0 + FEW)

    @property
    def largest_norm(self) -> float:
        """An upper bound of the largest norm of a row that counts."""
        return float(self.row_norms[self.used].max(initial=0.0))

    def remove_row(self, rows: Rows, known: Leverages) -> Images:
        """The images of some rows, each in the metric without itself."""
        at = known.places(rows)
        scale = 1.0 / known.complements[at]
        # No force acts on the row itself: its own score does not matter.
        scores = self.arrays.take(known.scores, at) * self.arrays.put(scale)
        scores = self.arrays.zero_out(scores, (rows, np.arange(rows.size)))
        errors = known.errors[0][at] * scale, known.errors[1][at] * scale
        return Images(
            scores, known.free[:, at] * scale, errors, known.norms_without[at], known.residual_norms_without[at]
        )

    @cached_property
    def balls(self) -> Balls:
        """The balls of the duality gap around candidates."""
        return Balls(self, self.base, self.weights * self.curvatures, self.factors / self.factor)

    def guesses(self, rows: Rows) -> Array:
        """The removed rows' scores after one Newton step each, without proof."""
        _, _, scores, _ = self.first(rows)
        return self.arrays.entries(scores, (rows, np.arange(rows.size)))

    def bound_quickly(self, rows: Rows) -> Bounds:
        """Bounds of the removed rows' scores after one Newton step each, in closed form or by a ball; infinite where neither applies."""
        lower, upper = np.full(rows.size, -np.inf), np.full(rows.size, np.inf)
        if self.has_closed_form:
            places = self.usable(rows)
            lower[places], upper[places] = self._closed_form(rows[places], self.metric.leverages)
        elif self.has_balls:
            return self.bound_by_balls(rows, lambda lower, _: np.zeros(lower.shape, dtype=bool), 1)
        return lower, upper

    @property
    def has_balls(self) -> bool:
        """Whether the duality gap bounds the distance of a candidate: every column is penalised, and the loss holds an intercept."""
        problem = self.problem
        return problem.unpenalised.size == 0 and (self.local or not problem.fit_intercept) and not self.has_closed_form

    def bound_by_balls(self, rows: Rows, decided: Decided, n_steps: int = BALL_STEPS) -> Bounds:
        """Bounds of the removed rows' scores by balls around Newton candidates, which need no leverages; rows leave as they are decided."""
        lower, upper = np.full(rows.size, -np.inf), np.full(rows.size, np.inf)
        places = np.flatnonzero(np.isfinite(self.factors[rows]))
        if places.size:
            found = self._tighten(BallSteps.first(self, rows[places]), decided, n_steps)
            lower[places], upper[places] = found.lower, found.upper
        return lower, upper

    def _closed_form(self, rows: Rows, known: Leverages) -> Bounds:
        """Bounds of the removed rows' scores under a quadratic loss, from the model of all rows: no step is left to be taken.

        With ``b`` the stored duals of that model, ``e`` its forces and ``a_i`` the norm of row ``i`` in the metric ``M`` without it, the
        gradient without the row is ``b_i x_i + g``, ``g`` that of the other rows' forces. The row's score is that of the stored model less
        ``b_i a_i^2 + x_i^T M^-1 g``.
        """
        arrays, side = self.arrays, self.side
        duals, _, scores, errors = self._shared_step
        column = arrays.put(duals[:, None])
        forces, sizes = self.forces(arrays.put(self.weights[:, None]), column, arrays.put(scores[:, None]), None)
        rho = self.exponent(np.zeros(1), errors, self.used)
        # The trial vector is the force itself, whose support is that of the weights.
        scaled = np.divide(1.0, self.metric.curvatures, out=np.zeros(self.used.size), where=self.used)
        nu = np.sqrt(scaled @ np.square(to_host(forces))) + self.unit * np.sqrt(scaled @ np.square(to_host(sizes)))
        nu = nu * (1.0 + gamma(self.used.size + 8)) + np.exp(rho) * self.metric.spread(errors)
        if side.n_free:
            nu = nu + self.border_gradients(column, self.metric.free_norm * known.growth[rows])
        nu = nu * (1.0 + FEW) + TINY
        images = self.remove_row(rows, known)
        moved, off = self.corrected(images, forces, column, sizes, errors, rho, self.metric.curvatures)
        growth = np.expm1(rho) * (1.0 + FEW)
        off = off + (growth * images.norms + images.residual_norms) * nu + side.norms[rows] * errors[0] + errors[1]
        least, most = np.square(known.least_norms_without[rows]), np.square(known.norms_without[rows])
        taken = duals[rows] * (0.5 * (least + most))
        off = off + np.abs(duals[rows]) * (0.5 * (most - least) + (growth + FEW) * most)
        off = off + FEW * (np.abs(scores[rows]) + np.abs(moved) + np.abs(taken))
        return self.widened(scores[rows] - taken - moved, off)

    def usable(self, rows: Rows) -> Rows:
        """The places of the rows whose removal leaves something of the metric."""
        usable = np.isfinite(self.factors[rows]) & np.isfinite(self.metric.free_norm)
        known = self.known(rows)
        return np.flatnonzero(usable & np.isfinite(known.norms_without[known.places(rows)]))

    def _weights(self, rows: Rows) -> Any:
        """The weights of the models without each row, one column each; their own is not set to zero."""
        ratios = self.factors[rows] / self.factor
        if np.all(ratios == 1.0):
            return self.arrays.put(self.weights)[:, None]
        return self.arrays.put(self.weights)[:, None] * self.arrays.put(ratios)

    def bounds(self, rows: Rows, decided: Decided, n_steps: int) -> Bounds:
        """Bounds of the removed rows' scores after Newton steps; rows leave as they are decided.

        A quadratic loss takes no steps: its leverages get one of iterative refinement.
        """
        lower, upper = np.full(rows.size, -np.inf), np.full(rows.size, np.inf)
        places = self.usable(rows)
        if self.has_closed_form:
            # A step of refinement helps only where the factor has digits to give: the better of both is kept.
            found = (self.metric.leverages, self.metric.leverages.refined)
            lower[places], upper[places] = intersect(*(self._closed_form(rows[places], known) for known in found))
        elif places.size:
            first = ChordSteps(self, rows[places], *self.first(rows[places]))
            tightened = self._tighten(first, decided, n_steps)
            lower[places], upper[places] = tightened.lower, tightened.upper
        return lower, upper

    def summed_errors(
        self, errors: Errors, members: NDArray[np.bool_], duals: Any, free: Array, scores: Any, more: Errors
    ) -> Errors:
        """The errors of some models' scores after a step: they add up, and the sums were rounded."""
        arrays = self.arrays
        norm_sum = to_host(arrays.put(self.side.norms) @ arrays.xp.abs(duals))
        size = to_host(arrays.xp.max(arrays.xp.abs(scores), axis=0))
        size = size + (np.abs(self.side.border) @ np.abs(free)).max(axis=0, initial=0.0)
        first = errors[0][members] + more[0] + 8.0 * UNIT * norm_sum
        return first * (1.0 + FEW), (errors[1][members] + more[1] + 8.0 * UNIT * size) * (1.0 + FEW)

    @cached_property
    def _shared_step(self) -> tuple[Array, Array, Array, Errors]:
        """The model after the step that all removals share, its scores, and their errors."""
        arrays, side = self.arrays, self.side
        force = self.weights * self.slopes + self.duals
        change, moves = self.metric.solve(arrays.put(force[:, None]), (side.border.T @ self.duals)[:, None])
        duals, free = self.duals + to_host(moves)[:, 0], self.free + change[:, 0]
        duals = np.where(self.metric.curvatures > 0.0, duals, -self.weights * self.slopes)
        scores = self.scores(duals, free)
        return duals, free, scores, self.score_errors(arrays.put(duals[:, None]), free[:, None])

    def first(self, rows: Rows) -> tuple[Any, Array, Any, Errors]:
        """The candidates one Newton step from the old model, their scores, and the errors of these."""
        arrays, known = self.arrays, self.known(rows)
        at = known.places(rows)
        duals, free, scores, errors = self._shared_step
        multiples = -duals[rows] / known.complements[at]
        multiples = np.where(np.isfinite(multiples), multiples, 0.0)
        models = arrays.put(duals)[:, None] + arrays.take(known.duals, at) * arrays.put(multiples)
        moved = arrays.put(scores)[:, None] + arrays.take(known.scores, at) * arrays.put(multiples)
        # The removed row's own entry is zero but for its rounding.
        own = 8.0 * UNIT * np.abs(duals[rows]) * self.side.norms[rows]
        sizes = self.side.norms.max(initial=0.0) * (errors[0] + np.abs(multiples) * known.errors[0][at])
        first = errors[0] + np.abs(multiples) * known.errors[0][at] + own
        second = (
            errors[1]
            + np.abs(multiples) * known.errors[1][at]
            + FEW * (sizes + arrays.find_largest(arrays.absolute(moved * 1.0), self.used))
        )
        models = arrays.zero_out(models, (rows, np.arange(rows.size)))
        return (
            models,
            free[:, None] + known.free[:, at] * multiples,
            moved,
            (first * (1.0 + FEW), second * (1.0 + FEW)),
        )

    def _forces(self, entries: Entries, duals: Any, scores: Any, errors: Errors) -> tuple[Any, Any, Array]:
        """The forces of models without one row each, the sizes of their parts, and how far the curvatures may be off."""
        arrays, rows = self.arrays, entries[0]
        forces, sizes = self.forces(self._weights(rows), duals, scores, entries)
        away = arrays.zero_out(arrays.absolute(scores - arrays.put(self.base)[:, None]), entries)
        exponent = self.exponent(arrays.find_largest(away, self.used), errors, self.used)
        return forces, sizes, exponent + np.abs(np.log(self.factors[rows] / self.factor)) * (1.0 + FEW)

    def _certified(self, entries: Entries, duals: Any, scores: Any, errors: Errors) -> tuple[Any, Certified]:
        """The forces of models without one row each, and bounds of the row's score."""
        arrays, side, metric, rows = self.arrays, self.side, self.metric, entries[0]
        known = self.known(rows)
        growth = known.growth[known.places(rows)]
        forces, sizes, exponent = self._forces(entries, duals, scores, errors)
        free_norms = metric.free_norm * growth if side.n_free else np.zeros(rows.size)
        nu = self.gradient_norms(entries, forces) + self.border_gradients(duals, free_norms)
        rounding = self.rounding(metric.spread(errors), self.norm_sums(sizes), exponent, free_norms)
        nu = (nu + rounding) * (1.0 + FEW)
        images = self.remove_row(rows, known)
        moved = self.corrected(images, forces, duals, sizes, errors, exponent, metric.curvatures)
        off = side.norms[rows] * errors[0] + errors[1]
        center, largest_norm = arrays.entries(scores, entries), self.largest_norm * growth
        bounds = self.ellipsoid(images, center, off, moved, nu, exponent, largest_norm)
        # Where scores moved far, steps of the row alone have a metric in which the same errors are smaller.
        return forces, Certified(*bounds, nu, np.where(exponent < 1.0, rounding, 0.0))

    def border_gradients(self, duals: Any, free_norms: Array) -> Array:
        """Upper bounds of the norms of what ``U^T b`` leaves of the gradient."""
        arrays, side = self.arrays, self.side
        if not side.n_free:
            return free_norms
        off = np.abs(to_host(arrays.put(side.border.T) @ duals))
        off += gamma(self.weights.size + 8) * to_host(arrays.put(np.abs(side.border.T)) @ arrays.xp.abs(duals))
        found: Array = length(off, axis=0) * free_norms * (1.0 + FEW)
        return found

    def gradient_norms(self, entries: Entries, forces: Any) -> Array:
        """Upper bounds of the norms of gradients in the metrics without one row each, from the leverages of all rows or from a step."""
        arrays, side, metric, rows = self.arrays, self.side, self.metric, entries[0]
        known = self.known(rows)
        if known is self._few:
            _, moves = metric.step(forces, np.zeros((side.n_free, rows.size)))
            pulls = arrays.put(metric.curvatures)[:, None] * moves
            norms, missed, _, _ = metric.force_norms(forces, pulls, arrays.inner(pulls, moves))
            norms = norms + missed * metric.free_norm if side.n_free else norms
            # The metric without row i is at least 1 - l_i times that of all rows, and its growth at least the root of 1 / (1 - l_i).
            return norms * known.growth[known.places(rows)] * (1.0 + FEW)
        image, sizes = known.scores @ forces, arrays.xp.abs(forces)
        norm_sum, total = to_host(arrays.put(side.norms) @ sizes), to_host(arrays.xp.sum(sizes, axis=0))
        first, second, residual = (to_host(arrays.put(v) @ sizes) for v in (*known.errors, known.residual_norms))
        rounding = gamma(self.weights.size + 8) * arrays.inner(sizes, arrays.xp.abs(image))
        # Twice: the entries of Q are off, and so are its products with the forces, by a share of the same sums.
        square = np.abs(arrays.inner(forces, image)) + 2.0 * (norm_sum * first + total * second) + rounding
        norms = (np.sqrt(square) + residual) * (1.0 + FEW) + TINY
        # In the metric without row i: |g|^2 + d_i (x_i^T H^-1 g)^2 / (1 - l_i).
        summed = residual + gamma(self.weights.size + 8) * self.largest_norm * total
        own = np.abs(arrays.entries(image, entries)) + known.norms[rows] * summed + side.norms[rows] * first + second
        return np.hypot(norms, metric.root[rows] * known.growth[rows] * own) * (1.0 + FEW)

    def take_next_step(self, entries: Entries, forces: Any, duals: Any) -> tuple[Any, Array]:
        """The next Newton steps: what they take from ``b``, and what they add to ``beta``."""
        arrays, metric, rows = self.arrays, self.metric, entries[0]
        known = self.known(rows)
        at = known.places(rows)
        change, moves = metric.solve(forces, to_host(arrays.put(self.side.border.T) @ duals))
        # A row without curvature takes its own force and no rounding.
        moves = arrays.xp.where(arrays.put(metric.curvatures)[:, None] > 0.0, moves, -forces)
        # The metric without the row, by the Sherman-Morrison formula. Forces and curvatures times the moves of scores cancel where rows are long.
        multiples = -arrays.entries(moves, entries) / known.complements[at]
        moves = arrays.zero_out(moves + arrays.take(known.duals, at) * arrays.put(multiples), entries)
        return -moves, change + known.free[:, at] * multiples

    def certify_by_balls(self, rows: Rows, duals: Any, free: Array) -> tuple[Certified, Any, Any]:
        """What the duality gaps of models without one row each prove, their duals in the domain and the scores of these."""
        entries = rows, np.arange(rows.size)
        duals, scores, gaps = self.gaps(self._weights(rows), duals, entries, free)
        half, radii = self.balls.half_widths(rows, duals, scores, free, gaps)
        bounds = self.widened(self.arrays.entries(scores, entries), half)
        return Certified(*bounds, radii, np.zeros(radii.size)), duals, scores

    def _tighten(self, first: "BallSteps | ChordSteps", decided: Decided, n_steps: int) -> Tightened:
        """Steps with the old Hessian and then, of rows that these leave open, with Hessians of their own."""
        return tighten(first, decided, n_steps, None, lambda some: self.begin_own_steps(first.rows[some]), MAX_STEPS)

    def begin_own_steps(self, rows: Rows) -> "OwnSteps | None":
        """First steps of some rows' models with Hessians of their own, from the old model or where others have ended; None where there are none."""
        if not (self.has_balls and self.arrays.stable and self.used.size <= MOST_OWN_ROWS):
            return None
        # Where leaving a row out changes much, a full step with the old Hessian may end farther from the optimum than the old model is.
        known = [self.candidates.get(int(row), (self.duals, self.free, np.inf)) for row in rows]
        duals, free, descents = (np.column_stack(parts) for parts in zip(*known, strict=True))
        return OwnSteps(self, rows, duals, free, descents[0]).step(np.ones(rows.size, dtype=bool))

    def step_alone(self, rows: Rows, duals: Array, free: Array) -> tuple[Array, Array, Array]:
        """Newton steps of models without one row each, each with its own Hessian and line search: changes of ``b`` and ``beta``, and roughly how far the objectives fall."""
        side, loss, y = self.side, self.problem.loss, self.y[:, None]
        scores, weights = side.scores(duals, free), np.zeros(duals.shape) + self._weights(rows)
        weights[rows, np.arange(rows.size)] = 0.0
        with np.errstate(all="ignore"):
            slopes, curvatures = (weights * part for part in loss.expand_slope(y, scores))
            moves, change = self._solve_alone(curvatures, slopes + duals, duals)
            image, moved = side.gram @ moves, side.scores(moves, change)
            start, growth = self.arrays.inner(duals, image), self.arrays.inner(moves, image)
            full = np.zeros(rows.size, dtype=bool)
            lengths = find_lengths(loss, y, scores, moved, weights, start, growth, full, OWN_SEARCH)
            descents = -lengths * (self.arrays.inner(slopes, moved) + start)
        taken = np.isfinite(descents) & (descents > 0.0)
        moves, change = np.where(taken, lengths * moves, 0.0), np.where(taken, lengths * change, 0.0)
        return moves, change, np.where(taken, descents, 0.0)

    def _solve_alone(self, curvatures: Array, forces: Array, duals: Array) -> tuple[Array, Array]:
        """Newton steps of models with curvatures of their own, one per column: changes of ``b`` and of ``beta``; not numbers where there are none."""
        side, size = self.side, self.used.size
        right = np.stack([-forces, *(-curvatures * column[:, None] for column in side.border.T)], axis=2)
        moves, change = np.full(duals.shape, np.nan), np.zeros((side.n_free, duals.shape[1]))
        height, diagonal = max(1, OWN_ENTRIES // size**2), np.arange(size)
        for begin in range(0, duals.shape[1], height):
            here = slice(begin, begin + height)
            systems = curvatures.T[here, :, None] * side.gram.data
            systems[:, diagonal, diagonal] += 1.0
            add_work(0.04 * systems.size * size)
            try:
                found = np.linalg.solve(systems, right[:, here].swapaxes(0, 1))
            except np.linalg.LinAlgError:
                continue
            moves[:, here] = found[:, :, 0].T
            if side.n_free:
                change[:, here] = -(duals[:, here] + moves[:, here]).sum(axis=0) / found[:, :, 1].sum(axis=1)
                moves[:, here] += found[:, :, 1].T * change[:, here]
        return moves, change


@final
@dataclass(frozen=True, eq=False)
class OwnSteps:
    """Models without one row each, one per column, which step with Hessians and line searches of their own under balls of the duality gap."""

    family: WideRows
    rows: Rows
    duals: Array
    free: Array
    descents: Array  # shape (n_models,): how far the objectives fell along the last step, roughly

    contraction: ClassVar[float] = np.inf
    cost: ClassVar[float] = OWN_COST

    def certify(self) -> Certified:
        """Bounds of the removed rows' scores."""
        # Unlike the gaps, these fall from the first step on.
        floors = np.full(self.rows.size, LEAST_DESCENT)
        return self.family.certify_by_balls(self.rows, self.duals, self.free)[0]._replace(
            norms=np.sqrt(self.descents), floors=floors
        )

    def step(self, members: NDArray[np.bool_]) -> "OwnSteps":
        """Some of the models after one more step."""
        family, rows, descents = self.family, self.rows[members], self.descents[members]
        duals, free, going = self.duals[:, members], self.free[:, members], descents > LEAST_DESCENT**2
        if going.any():
            moves, change, descents[going] = family.step_alone(rows[going], duals[:, going], free[:, going])
            duals[:, going] += moves
            free[:, going] += change
        family.candidates.update(
            (int(row), (duals[:, k], free[:, k], float(descents[k]))) for k, row in enumerate(rows)
        )
        return OwnSteps(family, rows, duals, free, descents)


@final
@dataclass(frozen=True, eq=False)
class BallSteps:
    """Models without one row each, one per column, which step with the old Hessian under balls of the duality gap."""

    family: WideRows
    rows: Rows
    duals: Any
    free: Array
    images: tuple[Any, Array]

    contraction: ClassVar[float] = 0.5

    @classmethod
    def first(cls, family: WideRows, rows: Rows) -> "BallSteps":
        """The candidates one Newton step from the old model."""
        arrays, images = family.arrays, family.metric.row_images(rows)
        duals, free, _, _ = family._shared_step
        models = arrays.put(duals)[:, None] + arrays.xp.zeros_like(images[0])
        return cls(family, rows, models, np.repeat(free[:, None], rows.size, axis=1), images)._remove_row()

    def _remove_row(self) -> "BallSteps":
        """The models plus multiples of the rows' images that leave nothing of their own ``b``: the metric without the row."""
        arrays, entries = self.family.arrays, (self.rows, np.arange(self.rows.size))
        images, free = self.images
        with np.errstate(all="ignore"):
            multiples = -arrays.entries(self.duals, entries) / arrays.entries(images, entries)
        multiples = np.where(np.isfinite(multiples), multiples, 0.0)
        duals = arrays.zero_out(self.duals + images * arrays.put(multiples), entries)
        return replace(self, duals=duals, free=self.free + free * multiples)

    @property
    def cost(self) -> float:
        """A step takes a few products of the size of the rows, a training factors of that size."""
        return 4.0 / max(self.family.problem.n_rows, CHEAP_ROWS)

    def certify(self) -> Certified:
        """Bounds of the removed rows' scores."""
        return self._certificate[0]

    @cached_property
    def _certificate(self) -> tuple[Certified, Any, Any]:
        """What is proven, the duals in the domain and their scores."""
        return self.family.certify_by_balls(self.rows, self.duals, self.free)

    def step(self, members: NDArray[np.bool_]) -> "BallSteps":
        """The candidates of some rows after one more step."""
        family, arrays, rows = self.family, self.family.arrays, self.rows[members]
        duals, scores, images = (arrays.take(part, members) for part in (*self._certificate[1:], self.images[0]))
        free, border = self.free[:, members], arrays.put(family.side.border.T)
        forces, _ = family.forces(family._weights(rows), duals, scores, (rows, np.arange(rows.size)))
        change, moves = family.metric.solve(forces, to_host(border @ duals))
        return BallSteps(family, rows, duals + moves, free + change, (images, self.images[1][:, members]))._remove_row()


@final
@dataclass(frozen=True, eq=False)
class ChordSteps:
    """Models without one row each, one per column, which step with the old Hessian."""

    family: WideRows
    rows: Rows
    duals: Any
    free: Array
    scores: Any
    errors: Errors

    contraction: ClassVar[float] = 0.5

    @property
    def cost(self) -> float:
        """A step takes a few products of the size of the rows, a training factors of that size."""
        return 4.0 / max(self.family.problem.n_rows, CHEAP_ROWS)

    def certify(self) -> Certified:
        """Bounds of the removed rows' scores."""
        return self._certificate[1]

    @cached_property
    def _certificate(self) -> tuple[Any, Certified, "ChordSteps"]:
        """The forces at the candidates, and what they prove."""
        family, entries = self.family, (self.rows, np.arange(self.rows.size))
        if family.local:
            return *family._certified(entries, self.duals, self.scores, self.errors), self
        duals, scores, gaps = family.gaps(family._weights(self.rows), self.duals, entries)
        errors = family.side.score_errors(duals, self.free)
        forces, found = family._certified(entries, duals, scores, errors)
        half, _ = family.balls.half_widths(self.rows, duals, scores, self.free, gaps)
        lower, upper = family.widened(family.arrays.entries(scores, entries), half)
        return (
            forces,
            found._replace(lower=lower, upper=upper),
            replace(self, duals=duals, scores=scores, errors=errors),
        )

    def step(self, members: NDArray[np.bool_]) -> "ChordSteps":
        """The candidates of some rows after one more step."""
        forces, _, here = self._certificate
        family, side, arrays = self.family, self.family.side, self.family.arrays
        entries = self.rows[members], np.arange(np.count_nonzero(members))
        duals, scores, forces = (arrays.take(matrix, members) for matrix in (here.duals, here.scores, forces))
        residuals, change = family.take_next_step(entries, forces, duals)
        duals, scores = arrays.zero_out(duals - residuals, entries), scores - side.scores(residuals, -change)
        free = self.free[:, members] + change
        errors = family.summed_errors(here.errors, members, duals, free, scores, side.score_errors(residuals, change))
        return ChordSteps(family, entries[0], duals, free, scores, errors)
