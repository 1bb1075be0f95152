r"""Columns removed, many at once, under the local certificate (logistic or squared loss with an L2 penalty).

An intercept or ``lam = 0`` are covered. With :math:`A` the Hessian of all columns and :math:`q` its Newton step, the candidate
without column ``j`` is :math:`w + q - A^{-1}_{:j} (w_j + q_j) / A^{-1}_{jj}`. Its Hessian :math:`M_j` is :math:`A` without row and
column ``j``, so :math:`\|u\|_{M_j^{-1}} \le \|u\|_{A^{-1}}` for rows of the data (with any entry ``j``) and for gradients (with a
zero there): one metric serves all candidates.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, intersect, unbounded, widen
from glru.certificate import score_errors
from glru.linalg import FEW, TINY, Array, Entries, Matrix, gamma, to_host
from glru.metric.columns import make_column_metric
from glru.problem import Point, Problem
from glru.sums import Floor, assemble_gradient, assemble_hessian, expand, score_errors_of_rows
from glru.updates.batch import FLOOR_FACTOR, SLOW, Certified, Tightened, tighten
from glru.updates.carried_rows import sum_error
from glru.updates.columns.one_step import FOLLOWED_MOVES, Moves, find_unit, least_radius, lost_shares, row_norm_cuts
from glru.updates.gradients import (
    EXACT_STEPS,
    Descent,
    Gradients,
    Measured,
    compute_model_scores,
    newton_directions,
    split_models,
    split_rows,
)

Columns = NDArray[np.intp]

BASE_STEPS = 2
"""The largest number of steps, with one metric, from the model after the first Newton step to the one that all candidates start from."""

METRIC_DRIFT = 1e-2
"""If scores moved further than this on the way, the metric is formed again."""


def has_local_columns(problem: Problem) -> bool:
    """Whether :class:`LocalColumns` applies."""
    return (
        problem.loss.self_concordance is not None
        and problem.penalty.smooth
        and 1 < problem.n_columns <= problem.largest
    )


@final
class LocalColumns:
    """Columns removed from a problem, under the local certificate.

    Parameters
    ----------
    problem : Problem
        The problem with all columns.
    point : Point
        The old model, close to the optimum; a Newton step from it comes before everything.
    queries : array or sparse array of shape (n_queries, n_columns)
        Rows whose scores are asked about.
    """

    def __init__(self, problem: Problem, point: Point, queries: Matrix) -> None:
        self.problem, self.queries = problem, queries
        self.constant = float(problem.loss.self_concordance or 0.0)
        self._models: dict[int, tuple[Any, int, float]] = {}
        self._bound: Callable[[CandidateScores], tuple[Any, Any]] = CandidateScores.bounds
        self._place(point)
        if self.usable and self.base.moved[0] > METRIC_DRIFT and self.constant > 0.0:
            self._place(point.move(self.start - point.pack(problem.fit_intercept)))
        if not self.usable:
            return
        used = problem.weights > 0.0
        # Curvatures that do not change ask for no norms.
        norms = self.metric.norms(problem.matrix)[used] if self.constant > 0.0 else np.zeros(np.count_nonzero(used))
        self.largest_norm = float(norms.max())
        norms = norms / np.sqrt(1.0 - self.eta) * (1.0 + FEW)
        self.norm_cuts = row_norm_cuts(norms, self.curvatures[used]) if self.constant > 0.0 else [(0.0, 0.0)]
        self.shares = np.zeros(problem.n_rows)
        self.shares[used] = self.curvatures[used] * np.square(norms) * (1.0 + FEW)
        self.query_norms = self.metric.norms(queries)
        self.query_lengths = np.sqrt(queries.squared_row_norms()) * (1.0 + gamma(problem.n_columns + 4)) + TINY

    def _place(self, point: Point) -> None:
        """Form the metric at a model, and step from it to the one that all candidates start from."""
        problem, totals = self.problem, self.problem.totals
        here = expand(problem, point, Floor.of(problem.loss))
        assert here.rows is not None
        self.metric = make_column_metric(totals, assemble_hessian(totals, here.hessian))
        errors = score_errors(problem, point.coef, point.intercept, here.rows.scores)
        largest_error = score_errors_of_rows(problem, errors).largest
        # Curvatures were taken at computed scores.
        self.eta = self.metric.eta + 2.0 * self.constant * largest_error + sum_error(totals.depth)
        self.usable = self.eta < 0.5
        if not self.usable:
            return
        gradient = assemble_gradient(totals, point, here.gradient)
        self.start = point.pack(problem.fit_intercept) - self.metric.solve(gradient)
        self.gradients = Gradients(problem, self.metric, point, largest_error)
        self.origin_scores, self.curvatures = here.rows.scores, problem.weights * here.rows.curvatures
        self.base = self._measure(self.start)
        for _ in range(BASE_STEPS):
            start = self.start - to_host(self.metric.solve(self.base.gradients))[:, 0]
            base = self._measure(start)
            if not base.nu[0] < 0.5 * self.base.nu[0]:
                break
            self.start, self.base = start, base

    def _measure(self, model: Array) -> Measured:
        return self.gradients.at(self.problem.arrays.put(model[:, None]))

    def present(self) -> Bounds:
        """Bounds of the queries' scores under the model of all columns."""
        if not self.usable:
            return unbounded(self.queries.shape[0])
        models = self.problem.arrays.put(self.start[:, None])
        lower, upper = self.certified(models, None, self.base)[0].bounds()
        return to_host(lower)[:, 0], to_host(upper)[:, 0]

    def closed_form(self, columns: Columns) -> "CandidateScores":
        """What one Newton step per removal proves, from sums over the moves of the scores."""
        metric, constant = self.metric, self.constant
        images = metric.inverse @ metric.inverse[columns].T
        squares = images[columns, np.arange(columns.size)]
        met = compute_model_scores(self.queries, images, self.problem.fit_intercept)
        # x^T V V^T e_j for x^T R^-1 R^-T e_j: two errors of ``solve_error`` each and the rounding of the products, no larger. They are far
        # below 1, as tau <= gamma |R| |V| and eta >= gamma |R|^2 |V|^2: where the family is usable, tau^2 < gamma / 2.
        unit, axes = 4.0 * metric.solve_error, np.sqrt(squares) * (1.0 + 4.0 * metric.solve_error)
        with np.errstate(all="ignore"):
            delta = -self.start[columns] / squares
            delta_error = (unit / (1.0 - unit) + FEW) * np.abs(delta)
            size = np.abs(delta) + delta_error
            moves = self._bound_moves(images, axes, size, unit, delta_error)
            exponent = (constant * float(self.base.moved[0]) + sum_error(self.problem.totals.depth)) * (1.0 + FEW) + FEW
            # The step solves the equation of the factor, which is off by eta.
            root = float(np.sqrt(1.0 - self.eta))
            nu = moves.gradient_norms(constant, exponent)
            nu = (nu + (self.base.nu + metric.eta * size * axes) / root) * (1.0 + FEW) + TINY
            exponents = (constant * moves.most + exponent) * (1.0 + FEW)
            radius = least_radius(self.norm_cuts, constant, nu, [(exponents, 0.0)])
            centers, errors = self._centers(self.start[:, None])
            errors = (self.query_norms / root)[:, None] * (unit * axes * size) + np.abs(met) * delta_error + errors
            shifts = delta * met
            centers = centers + shifts
            errors = errors * (1.0 + FEW) + FEW * (np.abs(centers) + np.abs(shifts))
        return CandidateScores(self, centers, errors, radius)

    def _bound_moves(self, images: Array, axes: Array, size: Array, unit: float, delta_error: Array) -> Moves:
        """The moves of all rows' scores in steps of ``size`` along ``images``, whose norms are at most ``axes``."""
        problem, shape = self.problem, axes.shape
        used, sums = problem.weights > 0.0, np.zeros((2, *shape))
        if self.constant == 0.0:
            # The Hessian itself bounds the second moments, and nothing else is asked for.
            second = axes * float(np.sqrt((1.0 + self.metric.eta) / (1.0 - self.eta))) * (1.0 + FEW)
            return Moves(second * size * (1.0 + FEW), np.zeros(shape), np.zeros(shape))
        # The units of the objective and of the columns are in the moves, whose fourth powers may underflow.
        scale = find_unit(self.largest_norm * axes)
        images, most = images / scale, np.zeros(shape)
        for here, X in split_rows(problem, shape[0]):
            tau = compute_model_scores(X, images, problem.fit_intercept)
            if not used[here].all():
                tau[~used[here]] = 0.0
            np.square(tau, out=tau)
            most = np.maximum(most, tau.max(axis=0, initial=0.0))
            sums[0] += self.curvatures[here] @ tau
            np.square(tau, out=tau)
            sums[1] += self.curvatures[here] @ tau
        most, rounded = scale * np.sqrt(most) * (1.0 + FEW), 1.0 + gamma(problem.n_rows + 8)
        moments = scale * np.sqrt(sums[0]) * rounded, scale * sums[1] ** 0.25 * rounded, most
        tau_error, total = unit * self.largest_norm * axes, float(self.curvatures.sum()) * rounded
        return Moves.of(moments, size, size * tau_error + delta_error * most, total)

    def candidate(self, column: int) -> Point | None:
        """The best candidate without a column, if there is one."""
        found = self._models.get(column) if self.usable else None
        if found is None:
            return None
        model, size = to_host(found[0][:, found[1]]), self.problem.n_columns
        return Point(np.delete(model[:size], column), float(model[-1]) if self.problem.fit_intercept else 0.0)

    def bounds(
        self,
        columns: Columns,
        decided: Callable[[Any, Any], NDArray[np.bool_]],
        n_steps: int,
        bound: "Callable[[CandidateScores], tuple[Any, Any]] | None" = None,
        n_exact: int = EXACT_STEPS,
    ) -> tuple[Array, Array]:
        """Bounds of shape (n_queries, n_removals); each removal is stepped on until ``decided`` or no longer getting better.

        ``bound``: what bounds are asked for near candidates, of shape (n_removals,) if not those of the scores; ``decided`` is shown them where they live;
        ``n_exact``: the largest number of steps with Hessians of their own.
        """
        if not self.usable:
            shape = self.queries.shape[0], columns.size
            return np.full(shape, -np.inf), np.full(shape, np.inf)
        self._bound = CandidateScores.bounds if bound is None else bound
        width = max(16, self.problem.arrays.batch // self.problem.n_rows)
        parts = [self._bounds(columns[k : k + width], decided, n_steps) for k in range(0, columns.size, width)]
        lower, upper, exhausted = (
            np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in ("lower", "upper", "exhausted")
        )
        # The few that are left are stepped on together, with Hessians of their own.
        left = np.flatnonzero(~exhausted & (n_exact > 0))
        left = left[~decided(lower, upper)[left]] if left.size else left
        for k in range(0, left.size, width):
            mine = left[k : k + width]
            found = self._bounds(columns[mine], decided, n_exact, exact=True)
            known = lower[..., mine], upper[..., mine]
            lower[..., mine], upper[..., mine] = intersect(known, (found.lower, found.upper))
        return lower, upper

    def _bounds(
        self,
        columns: Columns,
        decided: Callable[[Any, Any], NDArray[np.bool_]],
        n_steps: int,
        exact: bool = False,
    ) -> Tightened:
        arrays, places = self.problem.arrays, np.arange(columns.size)
        images = self.metric.solve(arrays.units(self.metric.size, columns))
        images /= arrays.put(arrays.entries(images, (columns, places)))
        models = arrays.put(self.start)[:, None] - images * arrays.put(self.start[columns])
        if exact and all(column in self._models for column in columns.tolist()):
            kept = [self._models[column] for column in columns.tolist()]
            models = arrays.concatenate([model[:, place : place + 1] for model, place, _ in kept], axis=1)
        return tighten(ColumnCandidates(self, columns, models, images, exact), decided, n_steps)

    def keep(self, columns: Columns, models: Any, nu: Array) -> None:
        """Keep the candidates without some columns whose gradients, of norms ``nu``, are at most half of the smallest yet.

        A step that leaves more may have led astray.
        """
        for place, (column, norm) in enumerate(zip(columns.tolist(), nu.tolist(), strict=True)):
            if column not in self._models or norm < 0.5 * self._models[column][2]:
                self._models[column] = models, place, norm

    def solve(self, images: Any, entries: Entries, right: Any) -> Any:
        """The inverse of the Hessian without each column, times a matrix."""
        solved = self.metric.solve(right)
        return solved - images * self.problem.arrays.put(self.problem.arrays.entries(solved, entries))

    def certified(
        self, models: Any, entries: Entries | None, known: Measured | None = None
    ) -> tuple["CandidateScores", Any, Array, Array]:
        """What is known of the queries' scores, gradients, at least their norms in the metric without each column, and what of these is rounding."""
        arrays = self.problem.arrays
        found = self.gradients.at(models, fixed=entries) if known is None else known
        root = np.sqrt(1.0 - self.eta)
        nu = found.nu / root * (1.0 + FEW)
        radius = least_radius(self.norm_cuts, self.constant, nu, [(self.constant * found.moved * (1.0 + FEW), 0.0)])
        far = np.flatnonzero(self.constant * found.moved > FOLLOWED_MOVES[0])
        if far.size and arrays.stable:
            away, errors = self._measure_moves(arrays.take(models, far)), [part[far] for part in found.score_errors]
            off = self.problem.totals.largest_norm * errors[0] + errors[1] + self.gradients.origin_error
            ways = [
                (self.constant * (most + off) * (1.0 + FEW), lost_shares(self.shares, away, most))
                for most in FOLLOWED_MOVES
            ]
            radius[far] = np.minimum(radius[far], least_radius(self.norm_cuts, self.constant, nu[far], ways))
        scores = CandidateScores(self, *self._centers(models), radius)
        return scores, found.gradients, nu, found.rounding / root

    def _measure_moves(self, models: Any) -> Any:
        """How far the scores of all rows under some models are from where the curvatures of the metric were taken."""
        scores = compute_model_scores(self.problem.matrix, models, self.problem.fit_intercept)
        return np.abs(scores - self.origin_scores[:, None])

    def _centers(self, models: Any) -> tuple[Any, Any]:
        """Scores of the queries under several models, and the rounding error of each."""
        arrays, fit_intercept = self.problem.arrays, self.problem.fit_intercept
        coefs, shifts = split_models(models, fit_intercept)
        lengths = np.sqrt(arrays.inner(coefs, coefs)) * (1.0 + FEW)
        unit = gamma(self.problem.n_columns + 8) * (1.0 + FEW)
        errors = arrays.put(unit * self.query_lengths)[:, None] * arrays.put(lengths)
        if fit_intercept:
            errors = errors + unit * arrays.xp.abs(shifts)
        return compute_model_scores(self.queries, models, fit_intercept), errors


@final
@dataclass(frozen=True, eq=False)
class CandidateScores:
    """The scores of queries under some candidates, and how far those of the models are from them."""

    family: LocalColumns
    # Shape (n_queries, n_candidates): the scores, and bounds of their errors.
    centers: Any
    errors: Any
    radius: Array  # shape (n_candidates,): that of the models around the candidates, in the metric

    @cached_property
    def half(self) -> Any:
        """How far each score may be off."""
        arrays, norms = self.family.problem.arrays, self.family.query_norms / np.sqrt(1.0 - self.family.eta)
        with np.errstate(invalid="ignore"):
            return (arrays.put(norms)[:, None] * arrays.put(self.radius * (1.0 + FEW)) + self.errors) * (1.0 + FEW)

    def bounds(self) -> Bounds:
        """Bounds of the scores."""
        xp = self.family.problem.arrays.xp
        known = xp.isfinite(self.centers) & xp.isfinite(self.half)
        return widen(xp.where(known, self.centers, 0.0), xp.where(known, self.half, np.inf))

    def bound_sums(self, slopes: Array) -> Array:
        """How far the sums of the scores times some slopes may be off, for each candidate."""
        family, sizes = self.family, np.abs(slopes)
        totals, unit = family.problem.totals, gamma(len(slopes) + 8) + 8.0 * FEW
        sums = family.queries.T @ slopes
        if totals.fit_intercept:
            sums = np.append(sums, slopes.sum(axis=0)[None], axis=0)
        # Rounding, that of the slopes included, errs by a share of the lengths of all that is summed.
        rounding = unit * (family.query_lengths + 1.0) @ sizes * family.metric.largest
        norms = (family.metric.gradient_norms(sums) + rounding) / np.sqrt(1.0 - family.eta) + TINY
        found: Array = (norms * self.radius + (sizes * self.errors).sum(axis=0)) * (1.0 + unit) * (1.0 + FEW)
        return found


@final
class ColumnCandidates:
    """Models without one column each: the candidates of :func:`glru.updates.batch.tighten`."""

    contraction, cost = SLOW, 0.0

    def __init__(self, family: LocalColumns, columns: Columns, models: Any, images: Any, exact: bool) -> None:
        self.family, self.columns, self.images, self.exact_steps = family, columns, images, exact
        self.models = family.problem.arrays.zero_out(models, self.entries)
        self.gradients: Any = None
        self.noise: Array = np.empty(0)
        self.descent = Descent(family.problem.arrays)

    @property
    def entries(self) -> Entries:
        """The places of the columns in the models that do not have them."""
        return self.columns, np.arange(self.columns.size)

    def certify(self) -> Certified:
        """Bounds of the queries' scores, or of what is asked of these."""
        scores, self.gradients, nu, rounding = self.family.certified(self.models, self.entries)
        self.noise = FLOOR_FACTOR * np.asarray(rounding)
        self.family.keep(self.columns, self.models, nu)
        return Certified(*self.family._bound(scores), nu, rounding)

    def step(self, members: NDArray[np.bool_]) -> "ColumnCandidates":
        """Some of the candidates after one more Newton step."""
        family, columns, arrays = self.family, self.columns[members], self.family.problem.arrays
        images = arrays.take(self.images, members)
        solve, descent = partial(family.solve, images, (columns, np.arange(columns.size))), self.descent
        if self.exact_steps:
            models, gradients = arrays.take(self.models, members), arrays.take(self.gradients, members)
            models = models + newton_directions(family.problem, models, gradients, solve)
        else:
            models, descent = descent.next(members, self.models, self.gradients, self.noise, solve)
        new = ColumnCandidates(family, columns, models, images, self.exact_steps)
        new.descent = descent
        return new
