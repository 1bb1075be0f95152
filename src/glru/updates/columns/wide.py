r"""Columns removed or added, many at once, in the dimension of the rows (a self-concordant loss with an L2 penalty).

Let :math:`(b, \beta)` be the model of all columns as :class:`~glru.metric.rows.RowSide` has it, :math:`H` its Hessian, :math:`D` the
weighted curvatures, :math:`Q = \tilde X H^{-1} \tilde X^\top` and :math:`\tau_j = (I - Q D) x_j`. A Newton step of the model without
column ``j`` (sign -) or with it (sign +) moves the scores by

.. math:: t = \delta_j \tau_j, \quad \delta_j = \pm \frac{x_j^\top b}{\lambda_j \pm x_j^\top D \tau_j},

and the score of a query ``q`` by :math:`\delta_j (q_j - q^\top H^{-1} \tilde X^\top D x_j)`: one product with ``I - Q D`` serves all columns.
At that candidate the linear part of the gradient vanishes. What is left is :math:`\tilde X^\top \epsilon` with
:math:`|\epsilon_i| \le d_i (e^{M |t_i|} - 1 - M |t_i|) / M`, whose norm in the inverse of the new Hessian is at most
:math:`(\sum_i \epsilon_i^2 / d_i)^{1/2}`, and what was left at the old model. Norms of rows are no larger without a column; with it they grow by
:math:`\tau_{kj}^2 / (\lambda_j + x_j^\top D \tau_j)` in the square.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, unbounded
from glru.linalg import FEW, TINY, Array, Matrix, gamma, length, to_host
from glru.metric.rows import RowMetric, RowSide, has_few_free
from glru.problem import Point, Problem
from glru.solution import Solution
from glru.updates.batch import FLOOR_FACTOR, Certified, Decided, tighten
from glru.updates.columns.models import Block, Blocks, ColumnModels
from glru.updates.columns.one_step import (
    FOLLOWED_MOVES,
    Moved,
    Moves,
    find_unit,
    least_radius,
    lost_shares,
    row_norm_cuts,
)
from glru.updates.gradients import Descent
from glru.updates.row_models import Errors, Retrained, has_row_models

BASE_STEPS = 4
"""The largest number of steps from the old model to the one that all candidates start from."""

METRIC_DRIFT, BASE_METRICS = 1e-4, 8
"""If scores moved further than this on the way, the metric is formed again; and the largest number of times."""

FAR_MOVE = 4.0
"""If a step moved a score further than this, the next ones start from the old model."""

MOST_CHANGES = 256
"""Columns that leave before ``K`` is formed again: each adds to its rounding."""

STALE = 16.0
"""``K`` is formed again once the rows' squared norms before columns left exceed those now by this factor."""


def has_wide_columns(problem: Problem) -> bool:
    """Whether :class:`WideColumns` applies: a self-concordant loss, and rows that are few enough for a matrix of their size."""
    return has_row_models(problem) and problem.loss.self_concordance is not None and has_few_free(problem)


@final
@dataclass(frozen=True, eq=False)
class Base:
    """The model that all candidates start from, one or a few Newton steps from the old one."""

    # ``b``, ``beta`` and the scores.
    duals: Array
    free: Array
    scores: Array
    errors: tuple[float, float]  # the error of row ``k``'s score is at most ``norms[k] first + second``
    nu: float  # at least the norm of the gradient
    residuals: Array  # shape (n_rows,): the part of its forces that no row's curvature answers
    # An upper bound of the length of the vector of the sizes of the forces' parts: what their rounding is a share of.
    size: float
    free_size: float  # at least the length of what the gradient and its rounding have in the unpenalised coordinates
    moved: float  # how far a score is at most from where the curvatures of the metric were taken, errors included


@final
class WideColumns(ColumnModels):
    """Columns removed from or added to a problem, in the dimension of its rows.

    ``solution``: the old model; ``queries`` (shape (n_queries, n_columns)): rows whose scores are asked about.
    """

    def __init__(self, solution: Solution, queries: Matrix) -> None:
        super().__init__(solution.problem, queries)
        self._begin(self.place(solution.point))

    def _begin(self, start: tuple[Array, Array, Array]) -> None:
        """Form the metric near a model."""
        self.used = self.weights > 0.0
        for _ in range(BASE_METRICS):
            self.metric = self._metric_at(start[2])
            self.base = self._settle(start)
            start = self.base.duals, self.base.free, self.base.scores
            if not (self.base.moved > METRIC_DRIFT and self.constant > 0.0):
                break
        self.known = self.metric.leverages
        carried = self.side.n_changes > 0
        self.answers = (
            self.metric.answer_queries_within(self.extended) if carried else self.metric.answers(self.queries)
        )
        side, answers = self.side, self.answers
        self.query_scores = answers.images.T @ self.base.duals + answers.border.T @ self.base.free
        norm_sum = float(side.norms @ np.abs(self.base.duals))
        self.query_errors = side.unit * (answers.lengths * norm_sum + np.abs(answers.border).T @ np.abs(self.base.free))
        self.norm_cuts = row_norm_cuts(self.known.norms[self.used], self.metric.curvatures[self.used])
        self.shares = np.where(self.used, self.metric.curvatures * np.square(self.known.norms), 0.0) * (1.0 + FEW)
        unit = gamma(self.weights.size + 8)
        self.total = float(np.sqrt(self.metric.curvatures.sum())) * (1.0 + unit)
        self.size = np.sqrt(float(self.arrays.inner(self.known.duals, self.known.duals)[self.used].max(initial=0.0)))
        self.residual_norm = float(self.known.residual_norms[self.used].max(initial=0.0))
        self.usable = bool(np.isfinite(self.metric.free_norm) and np.isfinite(self.base.nu) and self.norm_cuts)

    def present(self) -> Bounds:
        """Bounds of the queries' scores under the model of all columns."""
        if not self.usable:
            return unbounded(self.queries.shape[0])
        exponent = np.full(1, self.constant * self.base.moved + self.unit)
        half = self.answers.norms * self.radius(np.full(1, self.base.nu), exponent) + self.query_errors
        return self.widened(self.query_scores, half)

    def without(self, steps: "Steps", place: int) -> "WideColumns | None":
        """The family of the model without the one column of some steps, the ``place``-th; None where it should be formed again."""
        first = Candidates.first(steps)
        duals, free, scores = to_host(first.duals)[:, 0], first.free[:, 0], to_host(first.scores)[:, 0]
        moved = np.abs(scores - self.base.scores)[self.used].max(initial=0.0)
        column = np.append(to_host(steps.values)[:, 0], steps.block.asked[:, 0])
        extended = self.extended.without_column(place, column)
        squares = to_host(self.arrays.xp.linalg.diagonal(extended.gram.data))
        # Errors are shares of the norms there were.
        if not (moved < FAR_MOVE and float(extended.norms @ extended.norms) < STALE * float(squares.sum())):
            return None
        family = WideColumns.__new__(WideColumns)
        ColumnModels.__init__(family, self.problem, self.queries, extended)
        family._begin((duals, free, scores))
        return family if family.usable else None

    def form_again(self, problem: Problem, point: Point, queries: Matrix) -> "WideColumns":
        """The family of the columns that are left, with ``K`` summed over these anew."""
        family = WideColumns.__new__(WideColumns)
        ColumnModels.__init__(family, problem, queries, RowSide(problem, self.side.center).extend(queries))
        family._begin(family.place(point))
        return family if family.usable else self

    def _metric_at(self, scores: Array) -> RowMetric:
        _, curvatures = self.problem.loss.expand_slope(self.problem.y, scores)
        return RowMetric(self.side, self.weights * curvatures)

    def _settle(self, start: tuple[Array, Array, Array]) -> Base:
        """The model after Newton steps with the metric, as long as they shrink the gradient."""
        arrays, metric, side = self.arrays, self.metric, self.side
        (duals, free, scores), found, begin = start, None, start[2]
        for _ in range(BASE_STEPS):
            column = arrays.put(duals[:, None])
            forces, sizes = self.forces(arrays.put(self.weights[:, None]), column, arrays.put(scores[:, None]), None)
            change, moves = metric.step(forces, (side.border.T @ duals)[:, None])
            responses = arrays.put(metric.curvatures[:, None]) * moves
            norms, missed, residuals, _ = metric.force_norms(forces, responses, arrays.inner(responses, moves), column)
            errors = self.score_errors(column, free[:, None])
            moved = np.abs(scores - begin)[self.used].max(initial=0.0) * (1.0 + FEW)
            exponent = self.exponent(np.full(1, moved), errors, self.used)
            rounding = self.rounding(metric.spread(errors), self.norm_sums(sizes), exponent, metric.free_norm)
            nu = float(((norms + np.where(missed > 0.0, missed * metric.free_norm, 0.0) + rounding) * (1.0 + FEW))[0])
            if found is not None and not nu < 0.5 * found.nu:
                break
            residuals = to_host(residuals)[:, 0]
            moved += float(side.norms[self.used].max(initial=0.0) * errors[0][0] + errors[1][0])
            size = float(np.sqrt(arrays.inner(sizes, sizes))[0]) * (1.0 + gamma(residuals.size + 8))
            free_size = float((missed + self.unit * self.norm_sums(sizes)[1])[0]) * (1.0 + FEW)
            pair = float(errors[0][0]), float(errors[1][0])
            found = Base(duals, free, scores, pair, nu, residuals, size, free_size, moved)
            duals, free = duals - residuals, free + change[:, 0]
            scores = self.scores(duals, free)
        assert found is not None
        return found

    def bounds(
        self, make: Callable[[int, int], Blocks], lam: Array, sign: float, centers: Array | None = None
    ) -> Bounds:
        """Bounds of shape (n_queries, n_items) after one Newton step each, one column per candidate; see :meth:`show_steps`."""
        size = self.queries.shape[0]
        lower, upper = np.full((size, lam.size), -np.inf), np.full((size, lam.size), np.inf)

        def take(here: slice, steps: "Steps") -> None:
            lower[:, here], upper[:, here] = steps.bounds()

        if self.usable:
            self.show_steps(make, lam, sign, centers, take)
        return lower, upper

    def show_steps(
        self,
        make: Callable[[int, int], Blocks],
        lam: Array,
        sign: float,
        centers: Array | None,
        take: Callable[[slice, "Steps"], None],
    ) -> None:
        """Show one Newton step for every candidate, some at a time.

        ``make(start, stop)``: the candidates' columns in the data and in the queries; ``lam`` (shape (n_items,)): their penalties; ``sign``: -1 for
        removals, +1 for additions; ``centers`` (shape (n_items,)): what is taken from every column: for removals what the data is centred by;
        ``take(here, steps)``.
        """
        width = max(16, self.arrays.chunk // max(self.problem.n_rows, 1))

        def part(start: int, stop: int) -> None:
            for k in range(start, stop, width):
                here = slice(k, min(k + width, stop))
                blocks = make(here.start, here.stop)
                take(here, Steps(self, self.block(blocks, lam[here], sign, None if centers is None else centers[here])))

        self.arrays.run_in_parts(part, lam.size, width)

    def refined(self, block: Block, decided: Decided, n_steps: int) -> Bounds:
        """Bounds for some candidates, stepped on together until they are decided or no longer get better."""
        if not self.usable:
            size = self.queries.shape[0], block.lam.size
            return np.full(size, -np.inf), np.full(size, np.inf)
        found = tighten(Candidates.first(Steps(self, block)), decided, n_steps)
        return found.lower, found.upper

    def refine_one(self, block: Block, decided: Callable[[Array, Array], bool]) -> Retrained:
        """Bounds for the one candidate of a block, by Newton steps of its model alone, each with a factor of its own."""
        base = self.base.duals, self.base.free, self.base.scores
        if not self.usable:
            return self.retrain_with(block, base, decided)
        first = Candidates.first(Steps(self, block))
        scores = to_host(first.scores)[:, 0]
        moved = np.abs(scores - self.base.scores)[self.used].max(initial=0.0)
        start = (to_host(first.duals)[:, 0], first.free[:, 0], scores) if moved < FAR_MOVE else base
        return self.retrain_with(block, start, decided)

    def column_images(self, columns: Matrix) -> tuple[Any, Any]:
        """Columns as a dense batch, and ``(I - Q D) x`` of each."""
        values = columns.block()
        if columns.is_thin:
            return np.asfortranarray(values), (columns.T @ self.known.duals).T
        return values, self.arrays.xp.matrix_transpose(self.known.duals) @ values

    def column_sums(self, values: Any, tau: Any) -> tuple[Array, ...]:
        """For every column ``x``: ``x D tau``, the largest ``|tau|``, and the roots of ``x D x``, ``x x``, ``tau D tau`` and ``sum d tau^4``.

        Powers are taken in units of the largest entry, so that the units of a column do not matter.
        """
        arrays, d = self.arrays, self.arrays.put(self.metric.curvatures)
        inner, xp = to_host(d @ (values * tau)), arrays.xp
        scale = find_unit(to_host(xp.max(xp.abs(values), axis=0)))
        squares = values / arrays.put(scale)
        squares *= squares
        weighted, sizes = (scale * np.sqrt(to_host(found)) for found in (d @ squares, xp.sum(squares, axis=0)))
        squares = xp.abs(tau)
        most = arrays.find_largest(squares, self.used) * (1.0 + FEW)
        scale = find_unit(most)
        squares /= arrays.put(scale)
        squares *= squares
        second = scale * np.sqrt(to_host(d @ squares))
        squares *= squares
        return inner, most, weighted, sizes, second, scale * to_host(d @ squares) ** 0.25

    def radius(self, nu: Array, exponent: Array, added: Array | float = 0.0, more: Sequence[Moved] = ()) -> Array:
        """The radius of the local certificate; ``added``: what is added to the squared norms of rows.

        ``more``: other ways to count the curvatures that have changed.
        """
        return least_radius(self.norm_cuts, self.constant, nu, [(exponent, 0.0), *more], added)

    @property
    def base_exponent(self) -> float:
        """The logarithm of what the curvatures at the base may differ by from those of the metric."""
        return (self.constant * self.base.moved + self.unit) * (1.0 + FEW) + FEW

    def slope_errors(self, scores: Any, errors: Errors) -> Array:
        """Upper bounds of the norms of the gradients' errors that come from scores that are off, row by row.

        A slope is off by at most the curvature nearby times the score's error, and a unit on row ``k`` has the norm of the row.
        """
        problem = self.problem
        curvatures = to_host(problem.loss.curvature(self.arrays.put(problem.y)[:, None], scores))
        norms = np.where(self.used, self.weights * self.known.norms, 0.0)
        most = self.side.norms[self.used].max(initial=0.0) * errors[0] + errors[1]
        sums = (norms * self.side.norms) @ curvatures * errors[0] + norms @ curvatures * errors[1]
        return sums * np.exp(self.constant * most * (1.0 + FEW)) * (1.0 + gamma(norms.size + 8)) * (1.0 + FEW)


STEP_NUMBERS = (
    *("most", "second", "fourth", "seen", "tau_error", "system", "least", "delta", "delta_error", "size"),
    *("weighted", "lengths", "inner", "inner_error"),
)
"""What :class:`Steps` knows of each column."""


@final
class Steps:
    """One Newton step for every column of a block, and what it proves."""

    def __init__(self, family: WideColumns, block: Block) -> None:
        self.family, self.block = family, block
        base = family.base
        unit, root = gamma(family.problem.n_rows + 8), np.sqrt(block.lam)
        self.values, self.tau = family.column_images(block.columns)
        inner, self.most, *roots = family.column_sums(self.values, self.tau)
        weighted, lengths, self.second, self.fourth = (root * (1.0 + unit) for root in roots)
        lengths = lengths + TINY
        # An image misses ``residual_norm`` of its row, which e_j meets in the metric of the penalty, and X^T D x_j twice in D.
        seen = root if block.sign < 0.0 else 2.0 * weighted
        self.seen = seen * (1.0 + FEW) + TINY
        self.tau_error = (family.residual_norm * self.seen + unit * family.size * lengths + FEW * self.most) * (
            1.0 + FEW
        )
        # lam +- x^T D tau.
        off = family.total * self.tau_error + unit * self.second
        off = weighted * off * (1.0 + FEW) + FEW * (block.lam + np.abs(inner))
        self.system = block.lam + block.sign * inner
        self.least = np.where(self.system > off, (self.system - off) * (1.0 - FEW), np.nan)
        # x^T b.
        right = to_host(block.columns.T @ family.arrays.put(base.duals[:, None]))[:, 0]
        right_error = unit * lengths * length(base.duals) * (1.0 + FEW)
        with np.errstate(all="ignore"):
            self.delta = block.sign * right / self.system
            self.delta_error = (right_error + np.abs(self.delta) * off) / self.least * (1.0 + FEW)
        self.delta_error += FEW * np.abs(self.delta)
        self.size = np.abs(self.delta) + self.delta_error
        self.weighted, self.lengths = weighted, lengths
        self.inner, self.inner_error = inner, off

    @property
    def unit_moves(self) -> Moves:
        """Upper bounds of the norms of ``tau``."""
        sums = self.second, self.fourth, self.most
        return Moves.of(sums, np.ones_like(self.most), self.tau_error, self.family.total**2)

    @property
    def s_bounds(self) -> Bounds:
        """Bounds of ``x^T D tau``."""
        low, high = self.inner - self.inner_error, self.inner + self.inner_error
        return np.where(low > 0.0, low, 0.0), np.where(np.isfinite(high), high, np.inf)

    def _gradient_norms(self) -> tuple[Array, Array]:
        """Upper bounds of the norms of the candidates' gradients, and the logarithm of what the Hessian loses at most."""
        family, constant = self.family, self.family.constant
        error = self.size * self.tau_error + self.delta_error * self.most
        moves = Moves.of((self.second, self.fourth, self.most), np.abs(self.delta), error, family.total**2)
        exponent = family.base_exponent
        nu = moves.gradient_norms(constant, exponent) + self._base_norms()
        return nu * (1.0 + FEW) + TINY, (constant * moves.most + exponent) * (1.0 + FEW)

    def _base_norms(self) -> Array | float:
        """An upper bound of the norm of what the base leaves of the gradient.

        A new column meets what no curvature answers, and the rounding of all forces. Unpenalised coordinates that it resembles
        are longer beside it.
        """
        family, block, base = self.family, self.block, self.family.base
        if block.sign < 0.0:
            return base.nu
        met = np.abs(to_host(block.columns.T @ family.arrays.put(base.residuals[:, None]))[:, 0])
        sizes = float(np.hypot(base.size, length(base.residuals)))
        met = met + (family.unit + gamma(base.residuals.size + 8)) * self.lengths * sizes * (1.0 + FEW)
        nu = np.full(met.shape, base.nu)
        if family.side.n_free:
            nu = nu + base.free_size * family.metric.free_norm * (self.weighted / np.sqrt(self.least)) * (1.0 + FEW)
        return np.hypot(nu, met / np.sqrt(block.lam)) * (1.0 + FEW)

    @property
    def free(self) -> Array:
        """What a unit of each column brings to ``beta``."""
        metric = self.family.metric
        return -metric.solve_border(to_host(self.family.arrays.put(metric.responses.T) @ self.values))

    def take(self, members: NDArray[Any]) -> "Steps":
        """The steps of some columns."""
        found, take = Steps.__new__(Steps), self.family.arrays.take
        found.family, found.block = self.family, self.block.take(members)
        found.values, found.tau = take(self.values, members), take(self.tau, members)
        for name in STEP_NUMBERS:
            setattr(found, name, getattr(self, name)[members])
        return found

    def respond(self, forces: Any, change: Array) -> tuple[Any, Array]:
        """How a Newton step that answers forces moves the scores and ``beta``, which a given ``change`` is part of."""
        family, block = self.family, self.block
        arrays, metric, known = family.arrays, family.metric, family.known
        moves = -(known.scores @ forces)
        if family.side.n_free:
            moves = moves + arrays.put(metric.border_scores @ change)
            change = change - to_host(arrays.put(known.free) @ forces)
        # The metric with the column changed, by the Sherman-Morrison formula.
        answered = forces + arrays.put(metric.curvatures[:, None]) * moves
        multiples = -block.sign * arrays.inner(self.values, answered) / self.system
        return moves + self.tau * arrays.put(multiples), change + multiples * self.free

    def solve(self, gradients: Any) -> Any:
        """The inverse of each model's Hessian times gradients given by forces, which stand below ``b`` and ``beta`` in a column."""
        arrays, n_rows = self.family.arrays, self.family.problem.n_rows
        n_free = gradients.shape[0] - 2 * n_rows
        forces = gradients[n_rows + n_free :, :]
        moves, change = self.respond(forces, np.zeros((n_free, forces.shape[1])))
        taken = forces + arrays.put(self.family.metric.curvatures[:, None]) * moves
        return arrays.concatenate([taken, arrays.put(-change), -moves], axis=0)

    @cached_property
    def queries(self) -> tuple[Array, Array]:
        """``q_j - q^T H^-1 X^T D x_j`` for all queries, and how far it may be off."""
        family, block, answers = self.family, self.block, self.family.answers
        unit = gamma(family.problem.n_rows + 8)
        found = block.asked - to_host(block.columns.T @ family.arrays.put(answers.duals)).T
        sizes = length(answers.duals, axis=0) * (1.0 + FEW)
        off = np.outer(answers.residual_norms, self.seen) + unit * (np.abs(block.asked) + np.outer(sizes, self.lengths))
        return found, off * (1.0 + FEW) + FEW * np.abs(found)

    @cached_property
    def norms(self) -> tuple[Array, Array | float]:
        """Upper bounds of the norms of the queries in each new metric, and what is added to the squared norms of rows there."""
        norms = self.family.answers.norms[:, None]
        if self.block.sign < 0.0:
            return norms, 0.0
        met, off = self.queries
        added = np.square(self.most + self.tau_error) / self.least * (1.0 + FEW)
        return np.sqrt(norms**2 + np.square(np.abs(met) + off) / self.least) * (1.0 + FEW), added

    def bounds(self) -> Bounds:
        """Bounds of the queries' scores under every model."""
        family = self.family
        with np.errstate(all="ignore"):
            nu, exponent = self._gradient_norms()
            norms, added = self.norms
            met, off = self.queries
            radius = family.radius(nu, exponent, added)
            centers = family.query_scores[:, None] + self.delta * met
            half = norms * radius + np.abs(met) * self.delta_error + off * self.size + family.query_errors[:, None]
            half = half + FEW * (np.abs(self.delta * met) + np.abs(centers))
        return family.widened(centers, half * (1.0 + FEW))

    def bounds_to_second_order(self) -> Bounds:
        r"""Bounds of the queries' scores under every model without a column, from the gradient that its step leaves.

        With :math:`g = \tilde X^\top \epsilon` that gradient, :math:`u` the way from the candidate to the optimum, :math:`H_j` the metric and
        :math:`\bar H` the Hessian averaged on that way, which differs from it by :math:`\tilde X^\top (\bar D - D) \tilde X`,

        .. math:: q^\top u = -a^\top g + a^\top (H_j - \bar H) u, \quad a = H_j^{-1} q .

        The scores of ``a`` are those of the query's answer less :math:`\tau_j m_j / (\lambda_j - s_j)`. On the way a curvature changes by at most
        :math:`e^{\rho_i}`, :math:`\rho_i = M (|t_i| + \|x_i\| r)`, so the last part is at most
        :math:`r (\sum_i d_i (\tilde x_i^\top a)^2 (e^{\rho_i} - 1)^2)^{1/2}`: of third order, row by row.
        """
        family, base, answers = self.family, self.family.base, self.family.answers
        if not (family.constant > 0.0 and family.arrays.stable and self.block.sign < 0.0):
            return self.bounds()
        root, unit = family.metric.root[:, None], gamma(base.scores.size + 8)
        with np.errstate(all="ignore"):
            error, moves = self.size * self.tau_error + self.delta_error * self.most, self.tau * self.delta
            exponent = family.constant * (np.abs(self.delta) * self.most + error) + family.base_exponent
            exponent *= 1.0 + FEW
            forces, rounding = self._forces(moves, error, exponent)
            rounding = (rounding + base.nu) * (1.0 + FEW)
            scaled = np.divide(forces, root, out=np.zeros_like(forces), where=root > 0.0)
            size = length(scaled, axis=0) * (1.0 + unit)
            radius = family.radius((size + rounding) * (1.0 + FEW) + TINY, exponent)
            # The scores of the queries' answers times the roots of the curvatures: off by twice what the answers miss.
            seen = np.divide(answers.duals, root, out=np.zeros_like(answers.duals), where=root > 0.0)
            missed = 2.0 * answers.residual_norms + unit * length(seen, axis=0) * (1.0 + FEW)
            met, off = self.queries
            ratio, ratio_error = met / self.system, (off + np.abs(met) * (self.inner_error / self.least)) / self.least
            share = (np.abs(ratio) + ratio_error) * (1.0 + FEW)
            along = np.einsum("ij,ij->j", self.tau, forces)
            correction = ratio * along - seen.T @ scaled
            half = np.outer(missed, size) + share * (size * (unit * self.second + family.total * self.tau_error))
            half += ratio_error * np.abs(along) + answers.norms[:, None] * rounding
            half += self._third_order(np.abs(moves) + error, radius, seen, missed, share)
            # What first-order bounds are off by: see ``bounds``.
            half += np.abs(met) * self.delta_error + off * self.size + family.query_errors[:, None]
            centers = family.query_scores[:, None] + self.delta * met + correction
            half += FEW * (np.abs(self.delta * met) + np.abs(ratio * along) + np.abs(correction) + np.abs(centers))
        return family.widened(centers, half * (1.0 + FEW))

    def _third_order(self, moves: Array, radius: Array, seen: Array, missed: Array, share: Array) -> Array:
        """An upper bound of what the Hessian's change on the way to the optimum does to the queries' scores.

        ``moves``: at least those of the scores; ``seen``: the queries' answers, off by ``missed``; ``share``: what each column has of them.
        """
        family, unit = self.family, gamma(self.family.base.scores.size + 8)
        norms = np.where(family.used, family.known.norms, 0.0)
        changes = family.constant * (moves + np.outer(norms, radius)) + family.base_exponent
        changes = np.expm1(changes * (1.0 + FEW)) * (1.0 + FEW)
        largest = changes[family.used].max(axis=0, initial=0.0)
        changes *= changes
        own = np.sqrt(family.metric.curvatures @ (changes * np.square(self.tau)))
        own += family.total * self.tau_error * largest
        found = np.sqrt(np.square(seen).T @ changes) + np.outer(missed, largest) + share * own
        return found * radius * (1.0 + 2.0 * unit)

    def _forces(self, moves: Array, error: Array, exponent: Array) -> tuple[Array, Array]:
        """What the losses' slopes after some moves differ by from their linearisation, and at least the norm of its error.

        ``error``: of the moves; ``exponent``: the logarithm of what curvatures may differ by on the way. The derivatives of the difference by the score before
        and by the move are at most ``e^exponent - 1`` times the curvature. Slopes are off by what an error of the score would do, and by their evaluation.
        """
        family, base, loss, y = self.family, self.family.base, self.family.problem.loss, self.family.y
        before, after = loss.gradient(y, base.scores), loss.gradient(y[:, None], base.scores[:, None] + moves)
        forces = family.weights[:, None] * (after - before[:, None]) - family.metric.curvatures[:, None] * moves
        spread = family.metric.spread((np.array([base.errors[0]]), np.array([base.errors[1]])))
        parts = np.where(family.used, family.weights * family.known.norms, 0.0)
        sizes = parts @ np.abs(after) + parts @ np.abs(before) + FEW * self.second * self.size
        off = np.expm1(exponent) * (error * family.total + spread) + 2.0 * np.exp(exponent) * (
            spread + FEW * self.second * self.size
        )
        return forces, (off + family.unit * sizes) * (1.0 + gamma(parts.size + 8))


@final
@dataclass(frozen=True, eq=False)
class Candidates:
    """Models with one column less or more each, one per column: the candidates of :func:`glru.updates.batch.tighten`."""

    steps: Steps
    duals: Any
    free: Array
    descent: Descent

    contraction: ClassVar[float] = np.inf
    cost: ClassVar[float] = 0.0

    @classmethod
    def first(cls, steps: Steps) -> "Candidates":
        """The candidates of the closed form, written down in full."""
        family, base = steps.family, steps.family.base
        delta = np.where(np.isfinite(steps.delta), steps.delta, 0.0)
        slopes = family.weights * family.problem.loss.gradient(family.problem.y, base.scores)
        duals = -steps.tau * family.arrays.put(delta)
        duals = family.arrays.put(family.metric.curvatures[:, None]) * duals - family.arrays.put(slopes[:, None])
        return cls(steps, duals, base.free[:, None] + delta * steps.free, Descent(family.arrays))

    @property
    def scores(self) -> Any:
        """The scores of the training rows."""
        return self._models[0]

    @cached_property
    def _models(self) -> tuple[Any, Errors, Array, Array]:
        """Scores and their errors; scores of the queries, and theirs."""
        steps, family, block = self.steps, self.steps.family, self.steps.block
        arrays, side, answers = family.arrays, family.side, family.answers
        unit = gamma(family.problem.n_rows + 8)
        along = arrays.inner(steps.values, self.duals) * (block.sign / block.lam)
        scores = side.scores(self.duals, self.free) + steps.values * arrays.put(along)
        first, second = family.score_errors(self.duals, self.free)
        most = to_host(arrays.xp.max(arrays.xp.abs(steps.values), axis=0))
        length = steps.lengths * np.sqrt(arrays.inner(self.duals, self.duals)) / block.lam * (1.0 + FEW)
        second = second + 2.0 * unit * most * length
        asked = answers.images.T @ to_host(self.duals) + answers.border.T @ self.free + block.asked * along
        norm_sum = to_host(arrays.put(side.norms) @ arrays.xp.abs(self.duals))
        off = np.outer(answers.lengths, norm_sum) + np.abs(answers.border).T @ np.abs(self.free)
        off = side.unit * off + 2.0 * unit * np.abs(block.asked) * length
        return scores, (first, second), asked, off * (1.0 + FEW) + FEW * np.abs(asked)

    def certify(self) -> Certified:
        """Bounds of the queries' scores."""
        return self._certificate[0]

    @cached_property
    def _certificate(self) -> tuple[Certified, Any]:
        """What is proven, and the forces on the rows."""
        steps, family, block = self.steps, self.steps.family, self.steps.block
        arrays, metric, side = family.arrays, family.metric, family.side
        scores, errors, asked, off = self._models
        forces, sizes = family.forces(arrays.put(family.weights[:, None]), self.duals, scores, None)
        curvatures = arrays.put(metric.curvatures[:, None])
        with np.errstate(all="ignore"):
            change = metric.solve_border(to_host(arrays.put(side.border.T) @ self.duals))
            moves, _ = steps.respond(forces, change)
            responses = curvatures * moves
            norms, missed, residuals, _ = metric.force_norms(
                forces, responses, arrays.inner(responses, moves), self.duals
            )
            away = arrays.absolute(scores - arrays.put(family.base.scores)[:, None])
            moved = arrays.find_largest(away, family.used) + family.base.moved
            exponent = family.exponent(moved * (1.0 + FEW), errors, family.used)
            free = np.full(block.lam.size, metric.free_norm)
            if block.sign > 0.0:
                free = free * np.hypot(1.0, steps.weighted / np.sqrt(steps.least)) * (1.0 + FEW)
                own = np.abs(arrays.inner(steps.values, residuals)) + family.unit * steps.lengths * np.sqrt(
                    arrays.inner(sizes, sizes) + arrays.inner(residuals, residuals)
                )
                norms = np.hypot(norms, own / np.sqrt(block.lam)) * (1.0 + FEW)
            more: list[Moved] = []
            rounding = family.rounding(metric.spread(errors), family.norm_sums(sizes), exponent, free)
            if arrays.stable and block.sign < 0.0 and np.any(exponent > FOLLOWED_MOVES[0]):
                for most in FOLLOWED_MOVES:
                    followed = family.exponent(np.full(free.shape, most + family.base.moved), errors, family.used)
                    more.append((followed, lost_shares(family.shares, away, most)))
                parts = family.rounding(np.zeros(free.shape), family.norm_sums(sizes), exponent, free)
                rounding = np.fmin(rounding, parts + family.slope_errors(scores, errors))
            nu = (norms + np.where(missed > 0.0, missed * free, 0.0) + rounding) * (1.0 + FEW)
            query_norms, added = steps.norms
            half = query_norms * family.radius(nu, exponent, added, more) + off
        return Certified(*family.widened(asked, half), nu, rounding), forces

    def step(self, members: NDArray[np.bool_]) -> "Candidates":
        """Some of the candidates after one more step of L-BFGS: a column that moves scores far leaves a model with another Hessian."""
        certified, forces = self._certificate
        arrays, steps = self.steps.family.arrays, self.steps.take(members)
        # Models with their scores, and gradients as forces on these: their product is the slope of the objective.
        free, size = arrays.put(self.free), self.free.shape[0]
        models = arrays.concatenate([self.duals, free, self.scores], axis=0)
        gradients = arrays.concatenate([0.0 * self.duals, 0.0 * free, forces], axis=0)
        noise = FLOOR_FACTOR * np.asarray(certified.floors)
        models, descent = self.descent.next(members, models, gradients, noise, steps.solve)
        n_rows = forces.shape[0]
        return Candidates(steps, models[:n_rows, :], to_host(models[n_rows : n_rows + size, :]), descent)
