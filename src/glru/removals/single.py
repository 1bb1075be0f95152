"""Leave-one-out of rows in memory with one score each."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, final

import numpy as np

from glru.bounds import Bounds, intersect, unbounded
from glru.cascade import (
    BATCH_STEPS,
    MANY_ROWS,
    NAIVE,
    Cascade,
    Removals,
    Rows,
    Step,
    always,
    each,
    find_widest_rows,
    group_open,
    in_parts,
    one_by_one,
    open_rows,
    split_open_rows,
    to_train,
)
from glru.linalg import UNIT, Array, to_host
from glru.linalg.factor import robust_cholesky, solve_cholesky
from glru.losses import Hinge
from glru.problem import Point
from glru.refine import Refinement, approach, has_products
from glru.regions import EVERY, has_support
from glru.solution import Solution
from glru.solvers import train
from glru.solvers.newton import ColumnSpace, RowSpace, uses_row_space
from glru.updates.ascent_rows import AscentRows, has_ascent
from glru.updates.carried_rows import bound_carried, factor_range, has_carried
from glru.updates.centred_rows import bound_centred, has_centred
from glru.updates.kink_rows import KinkRows, has_kinks
from glru.updates.local_rows import LocalRows, candidate_cost, has_local_rows, has_piece_rows
from glru.updates.product_rows import MIN_STEPS, USUAL_BASE_STEPS, ProductRows, estimate_product_cost, has_product_rows
from glru.updates.row_models import has_wide_rows
from glru.updates.second_order import bound_to_second_order
from glru.updates.support_rows import SupportRows
from glru.updates.wide_rows import WideRows, estimate_ball_cost, estimate_leverage_cost

STEPS_BEFORE_KINKS = 8
"""Steps with the old Hessian before steps that follow rows across the kinks of their losses: models in which few rows cross a kink need no more."""

FEW_ENTRIES = 250_000
"""Up to this many scores of all rows under the models of the open rows, computing them costs less than a closer closed form."""

NARROWING, NARROWING_TIME = 32.0, 1e10
"""If no width was asked for, intervals are narrowed while that is expected to cost at most this many Gram matrices, or this many nanoseconds."""

TIGHT_ETA = 1e-6
"""If narrow intervals are asked for, a metric farther than this from the Hessian is formed again at a closer base."""

MOVES_COST, MOVES_SHARE = 1500.0, 8.0
"""Nanoseconds per row of the bounds by moves, besides two Gram matrices; and how many times as much as these other interval bounds must cost for them to be tried."""

STEPS_TOGETHER = 8
"""Steps of wide rows ask for each leverage about this often; the number of rows that counts as few is smaller by this factor."""

TRAINING_PRODUCTS = 40.0
"""Products with X and its transpose in a training from the old optimum, certificates included."""

CARRIED_PRODUCTS = 4.0
"""The carried bound costs about as much as this many products with X."""

CENTRED_PRODUCTS = 400.0
"""The carried bound with an intercept is tried first where leverages, which leave fewer rows open, cost this many products."""

COLUMNS_PER_ROW, LOST_SCORES = 4.0, 1e-5
"""Wide data with at most this many columns per row is handled over its columns if rounding of scores computed as sums over the rows may exceed the second number."""

COVERED_FACTOR = 1.1
"""Up to this factor of the other weights one base serves rows of different weights: Hessians are then known up to it."""

COLUMNS_COST = 0.06
"""Nanoseconds of the local step per cube of the number of columns: a factor, its inverse and norms of rows in it."""


def loses_digits(solution: Solution) -> bool:
    """Whether wide data has rows so much longer than their scores, as with one long column, that sums over the rows lose too many digits."""
    problem, strength = solution.problem, solution.problem.penalty.strong_convexity
    if not has_local_rows(problem, COLUMNS_PER_ROW):
        return False
    norms = np.sqrt(problem.squared_row_norms / strength)
    size = float(norms @ np.abs(problem.weights * solution.dual)) * float(norms.max())
    return size * UNIT * problem.n_columns > LOST_SCORES


class OneScore(Removals):
    """What problems with one score per row have in common, in memory or in blocks."""

    def has_local(self) -> bool:
        """Whether the local certificate bounds removals in the space of the columns."""
        return self._is_local

    @cached_property
    def _is_local(self) -> bool:
        problem = self.problem
        if not (problem.in_memory and (self.run.uniform or self.covers_factors)):
            return False
        tall = problem.n_rows >= problem.n_columns
        return (tall and (has_local_rows(problem) or has_piece_rows(problem))) or loses_digits(self.solution)

    @property
    def covers_factors(self) -> bool:
        """Whether one family serves rows whose removals multiply the other weights by different factors."""
        return False

    def has_wide(self) -> bool:
        """Whether removals are bounded in the space of the rows."""
        wide = self.problem.in_memory and has_wide_rows(self.problem)
        return wide and not self.has_local() and not self.has_kinks()

    def has_kinks(self) -> bool:
        """Whether the pieces of the losses that rows are on are followed."""
        problem, run = self.problem, self.run
        asked = run.bound in ("auto", "primal") and (problem.loss.piecewise or isinstance(problem.loss, Hinge))
        return asked and has_kinks(problem) and run.uniform

    def has_curvature(self) -> bool:
        """Whether one row's model is refined by Newton steps; under absolute values in the penalty a training costs less."""
        problem = self.problem
        small = problem.in_memory and min(problem.matrix.shape) <= problem.largest
        return small and not isinstance(problem.loss, Hinge) and not has_support(problem)

    def refinement(self, place: int) -> tuple[Refinement, Point]:
        """What is to be proven of a row under the model without it, and where to start."""
        problem, point = self.without(place)
        names = EVERY if self.run.bound in ("auto", "local") else (self.run.bound,)
        here = slice(place, place + 1)
        query = problem.matrix[here] if self.problem.in_memory else self.problem.take(self.run.numbers[here]).matrix
        return Refinement(problem, query, lambda *ends: self.finished(place, *ends), names, self.run.budget), point

    def training(self, rows: Rows) -> Bounds:
        """A full training of one row's problem, with the certificate as the stopping rule (Remark 3)."""
        work, point = self.refinement(int(rows[0]))
        work.train(point, 0.0, thorough=False)
        return work.found

    def retrain_together(self, rows: Rows, family: KinkRows) -> Bounds:
        """Trainings of some rows' problems under the hinge loss, certified together: one by one, certificates cost nearly as much again."""
        run, models, found = self.run, [], unbounded(rows.size)
        for row in rows:
            if run.budget.spent:
                break
            problem, point = self.without(int(row))
            models.append(train(problem, tol=run.tol, start=point))
        n_trained = len(models)
        if n_trained:
            known = family.prove_trained(rows[:n_trained], models, run.narrow)
            found[0][:n_trained], found[1][:n_trained] = known
        # The run counts all rows of a batch.
        run.n_trainings -= rows.size - n_trained
        return found

    @abstractmethod
    def refine(self, rows: Rows) -> Bounds:
        """More Newton steps for one row, each followed by its certificate."""

    def single_steps(self) -> Callable[[Rows], Bounds] | None:
        return self.refine if self.has_local() or self.has_wide() else None


@final
class SingleRemovals(OneScore):
    """Removals of single rows in memory."""

    def __init__(self, run: Cascade) -> None:
        super().__init__(run)
        self._local: dict[float | None, LocalRows] = {}
        self._sharp: dict[float | None, LocalRows] = {}
        self._supports: dict[float, SupportRows] = {}
        self._paths: dict[float, KinkRows] = {}

    @property
    def steps(self) -> Mapping[str, tuple[Step[Any], ...]]:
        return STEPS

    @property
    def covers_factors(self) -> bool:
        return has_local_rows(self.problem) and factor_range(self.problem)[1] <= COVERED_FACTOR

    def _find_factor(self, rows: Rows) -> float | None:
        """The factor that some rows share; None where one family covers the factors of all rows."""
        return float(self.run.factors[rows[0]]) if self.run.uniform else None

    def has_carried(self) -> bool:
        """Whether the old optimum bounds removals, without an intercept."""
        return has_carried(self.problem)

    def carries_first(self) -> bool:
        """Whether the old optimum is asked before anything is factored: where that is cheaper than a factor over the columns, or than the leverages of wide data."""
        problem, cost = self.problem, np.inf
        if self.has_local():
            # Of dense rows the local step costs about as much and decides more; of a quadratic loss it is exact.
            exact = problem.loss.self_concordance == 0.0
            cost = 0.0 if exact or problem.matrix.stores_zeros else self._estimate_factor_cost()
        elif self.has_wide():
            # The training has formed the Gram matrix.
            cost = estimate_leverage_cost(problem, problem.n_rows) - problem.matrix.gram_cost
        products = CENTRED_PRODUCTS if problem.fit_intercept else CARRIED_PRODUCTS
        return products * problem.matrix.product_cost < cost and (has_carried(problem) or has_centred(problem))

    def has_support(self) -> bool:
        """Whether the penalty has absolute values, and removals are smooth on the columns in use."""
        return has_support(self.problem) and self.run.uniform and self.run.bound in ("auto", "local")

    def has_wide_newton(self) -> bool:
        """Whether a factor over the rows costs less than training the open rows by products; intervals of losses without a closed form are left to more steps."""
        asked = self.run.only_labels or not self.problem.loss.self_concordance
        return (
            asked and self.has_wide() and estimate_ball_cost(self.problem, self.run.n_open) < self._estimate_trainings()
        )

    def has_wide_steps(self) -> bool:
        """Whether steps of all open rows at once cost less than training these by products."""
        n_known = min(self.problem.n_rows, STEPS_TOGETHER * self.run.n_open)
        return self.has_wide() and estimate_leverage_cost(self.problem, n_known) < self._estimate_trainings()

    def _estimate_trainings(self) -> float:
        """What trainings of the open rows by products cost; infinite where these prove nothing."""
        cost = TRAINING_PRODUCTS * self.run.n_open * self.problem.matrix.product_cost
        return cost if self._trains_by_products else np.inf

    def has_ascent(self) -> bool:
        """Whether passes are cheaper than training: of dense data one costs about as much as an iteration of the interior-point training, which needs fewer."""
        problem, run = self.problem, self.run
        asked = run.width is None and run.bound in ("auto", "primal")
        return asked and not problem.matrix.stores_zeros and has_ascent(problem)

    def has_products(self) -> bool:
        """Whether steps by products with X decide labels, and cost less than a factor where there is one."""
        problem, run = self.problem, self.run
        asked = run.only_labels and run.bound in ("auto", "primal") and not problem.matrix.stores_zeros
        n_steps = MIN_STEPS * run.n_open + USUAL_BASE_STEPS
        if not asked or estimate_product_cost(problem, n_steps) > self._estimate_factor_cost():
            return False
        return has_product_rows(problem)

    def _estimate_factor_cost(self) -> float:
        """What the open rows cost with a factor over the columns or the rows; infinite where there is none."""
        problem = self.problem
        if self.has_local():
            return problem.matrix.gram_cost + COLUMNS_COST * float(problem.n_columns) ** 3
        return estimate_ball_cost(problem, self.run.n_open) if self.has_wide() else np.inf

    def products(self, rows: Rows) -> Bounds:
        """Steps of conjugate gradients for many rows at once."""
        return ProductRows(self.run.converged_solution).bounds(rows, self.run.enough, self._estimate_factor_cost())

    def has_guesses(self) -> bool:
        """Whether all rows' Newton steps are taken at once."""
        return self.guesses_together() or has_wide_rows(self.problem)

    def guesses_together(self) -> bool:
        """Whether rows of one factor share the Hessian of their Newton steps, over the columns."""
        return self.has_local() and self.has_carried() and self.run.uniform

    def carry(self, rows: Rows, usual: str = "primal") -> Bounds:
        """The paper's bound, from the old optimum; ``usual``: which one unless another was asked for."""
        lower, upper = bound_carried(self.solution, usual if self.run.bound in ("auto", "local") else self.run.bound)
        return lower[rows], upper[rows]

    def midpoint(self, rows: Rows) -> Bounds:
        """The smaller ball that an L2 penalty has around the old optimum, unless another bound was asked for."""
        if not self.problem.fit_intercept:
            return self.carry(rows, "midpoint")
        lower, upper = bound_centred(self.solution)
        return lower[rows], upper[rows]

    def local(self, rows: Rows) -> Bounds:
        """Newton candidates under the local certificate."""
        lower, upper = unbounded(rows.size)
        known = rows[np.isfinite(self.run.factors[rows])]
        for group in self.run.group_by_factor(rows) if self.run.uniform else [known]:
            mine = slice(None) if group.size == rows.size else np.searchsorted(rows, group)
            factor = self._find_factor(group)
            family = self._make_local_family(factor)
            bounds = family.bounds(group)
            for sharper in (self._bound_by_moves, self._bound_to_second_order):
                left = np.flatnonzero(~self.run.enough(*bounds))
                if left.size <= MANY_ROWS or left.size * self.problem.n_rows <= FEW_ENTRIES:
                    break
                family = self._make_tight_family(factor)
                found = intersect((bounds[0][left], bounds[1][left]), sharper(family, group[left]))
                bounds[0][left], bounds[1][left] = found
            lower[mine], upper[mine] = bounds
        if not self.problem.fit_intercept:
            # Under every model: a tie, which no interval with rounding in it shows. Squares of norms may underflow.
            empty = np.flatnonzero(self.problem.squared_row_norms[rows] == 0.0)
            sizes = self.problem.matrix[rows[empty]].absolute_product(np.ones(self.problem.n_columns))
            empty = empty[to_host(sizes) == 0.0]
            lower[empty] = upper[empty] = 0.0
        return lower, upper

    def _bound_by_moves(self, family: LocalRows, rows: Rows) -> Bounds:
        """Bounds by the moves of all rows: these decide labels, but narrow intervals by a small factor only, which pays where anything else costs far more."""
        cost = 2.0 * self.problem.matrix.gram_cost + MOVES_COST * rows.size
        others = candidate_cost(self.problem, rows.size)
        if family.knows_second_order:
            others = min(others, family.second_order_cost(rows.size))
        cheap = self.run.width is None or MOVES_SHARE * cost < others
        return family.bound_by_moves(rows) if cheap else unbounded(rows.size)

    def _bound_to_second_order(self, family: LocalRows, rows: Rows) -> Bounds:
        """Bounds of intervals to second order, where they are cheap."""
        if self.run.width is None or not family.has_second_order(rows.size):
            return unbounded(rows.size)
        cheap = self._is_affordable(family.second_order_cost(rows.size))
        return bound_to_second_order(family, rows) if cheap else unbounded(rows.size)

    def _is_affordable(self, cost: float) -> bool:
        """Whether bounds that only :meth:`Cascade.tighten` asks for may take some nanoseconds."""
        most = max(NARROWING_TIME, NARROWING * self.problem.matrix.gram_cost)
        return not self.run.tightening or cost <= most

    def narrow_batches(self) -> list[Rows]:
        """The open rows in batches, with those that :meth:`Cascade.tighten` would take next, where they are few: they step together.

        Rows that only :meth:`Cascade.tighten` asks about are left as they are where they cost too much.
        """
        run, rows = self.run, self.run.open_rows()
        if run.aim is not None and run.width is None:
            wide = np.union1d(rows, find_widest_rows(run.widths, 0.5 * run.aim, run.largest))
            rows = wide if wide.size * self.problem.n_rows <= FEW_ENTRIES else rows
        return run.batches(run.uniform, rows) if self._is_affordable(candidate_cost(self.problem, rows.size)) else []

    def local_newton(self, rows: Rows) -> Bounds:
        """The candidates written down in full, and more steps where needed."""
        family = self._make_tight_family(self._find_factor(rows))
        n_steps = STEPS_BEFORE_KINKS if self.has_kinks() else BATCH_STEPS
        return family.refined(rows, self.run.narrow, n_steps, n_together=self.run.n_batched)

    def _make_tight_family(self, factor: float | None) -> LocalRows:
        """The family, with a closer base where narrow intervals are asked for and the error of the metric would weigh in them."""
        family = self._make_local_family(factor)
        if self.run.only_labels or self.problem.loss.piecewise or family.eta <= TIGHT_ETA:
            return family
        if factor not in self._sharp:
            self._sharp[factor] = LocalRows(family, factor)
        return self._sharp[factor]

    def _make_local_family(self, factor: float | None) -> LocalRows:
        if factor not in self._local:
            # Between the kinks of a loss there is no telling how far a step from a rough solution leads.
            piecewise = self.problem.loss.piecewise
            family = LocalRows(self.run.accurate_solution if piecewise else self.solution, factor)
            if not family.converged:
                family = LocalRows(self.run.accurate_solution, factor)
            self._local[factor] = family
        return self._local[factor]

    def support(self, rows: Rows) -> Bounds:
        """Newton candidates on the supports that models with absolute values in the penalty have without the rows."""
        factor = float(self.run.factors[rows[0]])
        if factor not in self._supports:
            self._supports[factor] = SupportRows(self.run.accurate_solution, factor)
        return self._supports[factor].bounds(rows, self.run.enough, BATCH_STEPS)

    def paths(self, rows: Rows) -> Bounds:
        """Optima of the hinge loss, followed while the dual variables of the rows go to zero."""
        return self._kink_rows(rows).bounds(rows, self.run.narrow)

    def _kink_rows(self, rows: Rows) -> KinkRows:
        factor = float(self.run.factors[rows[0]])
        if factor not in self._paths:
            family = KinkRows(self.solution, factor)
            self._paths[factor] = family if family.usable else KinkRows(self.run.accurate_solution, factor)
        return self._paths[factor]

    def has_hinge(self) -> bool:
        """Whether trainings of the hinge loss are certified together."""
        return self.has_kinks() and isinstance(self.problem.loss, Hinge)

    def train_together(self, rows: Rows) -> Bounds:
        """Trainings of rows of one factor, certified together."""
        return self.retrain_together(rows, self._kink_rows(rows))

    def ascent(self, rows: Rows) -> Bounds:
        """Passes of dual coordinate ascent for each row."""
        return self._ascent_rows.bounds(rows, self.run.enough)

    @cached_property
    def _ascent_rows(self) -> AscentRows:
        return AscentRows(self.run.converged_solution)

    def wide_newton(self, rows: Rows) -> Bounds:
        """Newton candidates in the dimension of the rows."""
        self.wide.n_together = self.run.n_batched
        if self.run.only_labels and self.wide.has_balls:
            return self.wide.bound_by_balls(rows, self.run.enough)
        return self.wide.bound_quickly(rows)

    def wide_steps(self, rows: Rows) -> Bounds:
        """More steps from the same candidates, with the old Hessian."""
        run, family = self.run, self.wide
        family.n_together = STEPS_TOGETHER * run.n_batched
        lower, upper = family.bounds(rows, run.narrow, BATCH_STEPS)
        if not (run.only_labels or run.tightening):
            # Balls around the ends of a row's own steps decide its label, where an ellipsoid is as narrow as float64 allows.
            left = np.flatnonzero(~run.narrow(lower, upper))
            if run.aim is not None:
                left = np.intersect1d(left, find_widest_rows(upper - lower, 0.5 * run.aim, run.largest))
            for place in left:
                if int(rows[place]) in family.candidates and not run.budget.spent:
                    found = self.refine(rows[place : place + 1])
                    lower[place], upper[place] = max(lower[place], found[0][0]), min(upper[place], found[1][0])
        return lower, upper

    @cached_property
    def wide(self) -> WideRows:
        """All removals in the dimension of the rows."""
        return WideRows(self.run.converged_solution)

    def guess(self, rows: Rows) -> Bounds:
        """Scores after one Newton step per row (Appendix E.2), without proof; rows of one factor, or a single one."""
        scores = self._guesses(rows)
        return scores, scores

    def _guesses(self, rows: Rows) -> Array:
        if rows.size > 1 and has_wide_rows(self.problem):
            return self.wide.guesses(rows)
        if self.guesses_together() and rows.size > 1 and np.isfinite(self.run.factors[rows[0]]):
            return self._tall_guesses(rows)
        problem, point = self.without(int(rows[0]))
        space = RowSpace(problem) if uses_row_space(problem) else ColumnSpace(problem)
        unknowns = space.place(point)
        gradient, curvature = problem.loss.expand_slope(problem.y, space.scores(unknowns))
        step = space.step(unknowns, gradient, curvature)
        return (space.scores(unknowns) + step.scores)[rows]

    def _tall_guesses(self, rows: Rows) -> Array:
        """Scores of rows of one factor after one Newton step without each: a row's own curvature is taken out of the Hessian of all rows."""
        problem, part, arrays = self.problem, self.problem.matrix[rows], self.problem.arrays
        slopes, curvatures = problem.loss.expand_slope(problem.y, self.solution.scores)
        weights = self.run.factors[rows[0]] * problem.weights
        factor = robust_cholesky(problem.hessian(weights * curvatures))
        gradient = problem.matrix.T @ (weights * slopes) + problem.quadratic * self.solution.coef
        block = part.block().T
        norms = arrays.inner(block, solve_cholesky(factor, block))
        moves = part @ solve_cholesky(factor, -gradient)
        weights, slopes, curvatures = weights[rows], slopes[rows], curvatures[rows]
        with np.errstate(all="ignore"):
            multipliers = weights * (slopes + curvatures * moves) / (1.0 - weights * curvatures * norms)
        usable = np.isfinite(multipliers) & (weights * curvatures * norms < 1.0)
        return np.where(usable, self.solution.scores[rows] + moves + multipliers * norms, np.nan)

    def refine(self, rows: Rows) -> Bounds:
        row = int(rows[0])
        if self._trains_by_products:
            work, point = self.refinement(row)
            if work.step_by_products(point) is not None:
                return work.found
        if self.has_wide() and np.isfinite(self.run.factors[row]):
            found = self.wide.refine_one(row, lambda *ends: self.finished(row, *ends))
            self.run.limited[row] = found.exhausted
            return found.lower, found.upper
        work, point = self.refinement(row)
        near = self._candidate(row)
        if near is None or work.step_locally(approach(work.problem, near)[0], dual=False) is None:
            work.newton(point)
        return work.found

    def sample_step(self, method: str) -> Step[Any]:
        """The step that trains a row by products, where these are cheaper than a factor."""
        by_products = method == "certified" and self._trains_by_products and self.has_curvature()
        return REFINE if by_products else super().sample_step(method)

    @cached_property
    def _trains_by_products(self) -> bool:
        """Whether one row's model is trained and its label proven by products with X, which are cheaper than a factor."""
        return self.run.only_labels and self.run.bound == "auto" and has_products(self.problem)

    def _candidate(self, row: int) -> Point | None:
        """Where steps of many rows at once have ended for one that they left open."""
        factor = self._find_factor(np.array([row]))
        for family in (self._sharp.get(factor), self._local.get(factor)):
            if family is not None and row in family.candidates:
                return Point.unpack(family.candidates[row], self.problem.fit_intercept)
        return None


CARRY = Step(
    "carry",
    "a strongly convex penalty and no intercept; one product with X",
    SingleRemovals.has_carried,
    open_rows,
    SingleRemovals.carry,
)

PRODUCTS = Step(
    "refine",
    "sparse data with many rows and columns, a smooth loss, an L2 penalty on every column; a few products with X for each row",
    SingleRemovals.has_products,
    open_rows,
    SingleRemovals.products,
)

REFINE = Step(
    "refine",
    "a loss with a curvature; a factor for each step of each row",
    SingleRemovals.has_curvature,
    one_by_one,
    SingleRemovals.refine,
)

TRAINING = Step("training", "nothing; a training of each row's own problem", always, to_train, SingleRemovals.training)

APPROXIMATIONS = (
    Step(
        "approx",
        "a smooth loss, few different weights",
        SingleRemovals.has_guesses,
        lambda removals: removals.run.batches(removals.guesses_together()),
        SingleRemovals.guess,
        proven=False,
    ),
    Step("approx", "a smooth loss; a factor for each row", always, each, SingleRemovals.guess, proven=False),
)

STEPS: Mapping[str, tuple[Step[Any], ...]] = {
    "certified": (
        replace(CARRY, applies=SingleRemovals.carries_first, work=SingleRemovals.midpoint),
        PRODUCTS,
        Step(
            "local",
            "a self-concordant or piecewise quadratic loss, a smooth penalty, weights that differ little, tall data or rows far longer than their scores; one Hessian",
            SingleRemovals.has_local,
            open_rows,
            SingleRemovals.local,
            tightens=True,
        ),
        Step(
            "newton",
            "as the local step; a product with X for each step",
            SingleRemovals.has_local,
            SingleRemovals.narrow_batches,
            SingleRemovals.local_newton,
            tightens=True,
        ),
        Step(
            "newton",
            "absolute values in the penalty, a smooth loss that is self-concordant or piecewise quadratic, few different weights; a Hessian for each support",
            SingleRemovals.has_support,
            group_open,
            SingleRemovals.support,
            tightens=True,
        ),
        Step(
            "refine",
            "dense data, a loss with kinks, an L2 penalty on every column, few different weights; a few small systems for each row",
            SingleRemovals.has_kinks,
            lambda removals: in_parts(group_open(removals)),
            SingleRemovals.paths,
            tightens=True,
        ),
        Step(
            "refine",
            "the hinge loss, an L2 penalty, no intercept, sparse data; a few passes over X for each row",
            SingleRemovals.has_ascent,
            lambda removals: in_parts(open_rows(removals)),
            SingleRemovals.ascent,
        ),
        Step(
            "newton",
            "wide data and a self-concordant loss, or a smooth one without an intercept; one factor and inverse over the rows",
            SingleRemovals.has_wide_newton,
            split_open_rows,
            SingleRemovals.wide_newton,
            price=2,
            tightens=True,
        ),
        PRODUCTS,
        Step(
            "refine",
            "the same; products of the size of the rows for each step",
            SingleRemovals.has_wide_steps,
            split_open_rows,
            SingleRemovals.wide_steps,
            price=2,
            tightens=True,
        ),
        REFINE,
        Step(
            "training",
            "dense data, the hinge loss, an L2 penalty on every column, few different weights; a training of each row's own problem",
            SingleRemovals.has_hinge,
            lambda removals: in_parts(group_open(removals)),
            SingleRemovals.train_together,
        ),
        TRAINING,
    ),
    "glru": (CARRY, TRAINING),
    "naive": (NAIVE,),
    "approx": APPROXIMATIONS,
    "approx-glru": (CARRY, *APPROXIMATIONS),
}
"""The steps of every method, in the order of their price. A new bound of all rows in memory is a new entry here."""
