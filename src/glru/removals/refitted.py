"""Leave-one-out where leaving out a row changes more than the row: scales, filled values and class weights that are fitted again."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, unbounded
from glru.cascade import (
    BATCH_STEPS,
    COARSE,
    NAIVE,
    NEAR_FINEST,
    Cascade,
    Rows,
    Step,
    always,
    in_parts,
    one_by_one,
    to_train,
)
from glru.linalg import Array, outward
from glru.losses import Hinge
from glru.regions import has_support
from glru.removals.single import OneScore
from glru.solution import Solution, make_solution
from glru.solvers import train
from glru.updates.kink_rows import KinkRows, has_kinks
from glru.updates.refits import LARGEST_SHARE, Refits
from glru.updates.refitted_rows import TallRefits, WideRefits, has_refitted_rows
from glru.updates.row_models import RowModels, has_row_models, has_wide_rows
from glru.updates.support_rows import find_support


def summed(solution: Solution) -> Solution:
    """The solution for the objective multiplied by its total weight."""
    problem = solution.problem
    summed = problem.derive(scaling="sum", penalty=problem.penalty.scale(problem.total_weight))
    with np.errstate(over="ignore"):  # a gap that overflows is infinite
        return make_solution(summed, solution.point, solution.n_iter, solution.status, solution.solver)


@final
class RefittedRemovals(OneScore):
    """Removals of rows in memory with preprocessing or class weights that are fitted again without each."""

    refits: Refits

    def __init__(self, run: Cascade, refits: Refits) -> None:
        super().__init__(run, refits)

    @property
    def steps(self) -> Mapping[str, tuple[Step[Any], ...]]:
        return STEPS

    def has_batches(self) -> bool:
        """Whether all rows are removed at once."""
        return has_refitted_rows(self.problem)

    def has_expansions(self) -> bool:
        """Whether the candidates are bounded without a product of all rows with each."""
        return self.has_batches() and not has_wide_rows(self.problem) and not self.problem.loss.piecewise

    def has_variants(self) -> bool:
        """Whether there are rows without which the columns are others."""
        return self.has_batches() and bool(self.refits.variants)

    def open_followed(self) -> list[Rows]:
        """The open rows whose refits are described by changes of the problem, in one batch."""
        rows = self.run.open_rows()
        return [rows[self.refits.together[rows]]]

    def batch_followed(self) -> list[Rows]:
        """The open rows whose refits are described by changes of the problem, in batches that fit the memory limit."""
        return [rows[self.refits.together[rows]] for rows in self.run.batches(grouped=False)]

    @cached_property
    def _refitted(self) -> TallRefits | WideRefits:
        start = self.run.converged_solution
        return self._make_refitted(start, self.refits)

    def _make_refitted(self, start: Solution, refits: Refits) -> TallRefits | WideRefits:
        """The removals around a solution with refitted preprocessing."""
        if start.problem.scaling == "mean":
            start, refits = summed(start), refits.summed(start.problem)
        return (WideRefits if has_wide_rows(start.problem) else TallRefits)(start, refits)

    def variant_rows(self) -> list[Rows]:
        """The open rows of each kind without which the columns are others."""
        return [np.intersect1d(self.run.open_rows(), variant.rows) for variant in self.refits.variants]

    def refitted_variant(self, rows: Rows) -> Bounds:
        """As :meth:`refitted`, around a model that is trained in the columns that rows of one kind have in common."""
        for variant in self.refits.variants:
            if rows.size and rows[0] in variant.rows:
                start = train(variant.problem, tol=COARSE, start=self.solution.point, budget=self.run.budget)
                return self._make_refitted(start, variant.refits).bounds(rows, self.run.narrow, BATCH_STEPS)
        return unbounded(rows.size)

    def refitted_quick(self, rows: Rows) -> Bounds:
        """Newton candidates under preprocessing that is fitted again, bounded without a product of all rows with each."""
        assert isinstance(self._refitted, TallRefits)
        return self._refitted.bound_quickly(rows, self.run.enough)

    def refitted(self, rows: Rows) -> Bounds:
        """Newton candidates under preprocessing that is fitted again, and more steps where needed."""
        return self._refitted.bounds(rows, self.run.narrow, BATCH_STEPS)

    def has_paths(self) -> bool:
        """Whether the loss is the hinge, and nothing but strengths of the penalty changes, and values where there is no intercept."""
        refits, problem = self.refits, self.problem
        plain = refits.class_factors is None and not (refits.filled_columns.size and problem.fit_intercept)
        return (
            plain
            and has_kinks(problem)
            and isinstance(self.problem.loss, Hinge)
            and self.run.bound in ("auto", "primal")
        )

    @cached_property
    def _kinks(self) -> KinkRows:
        start, refits = self.run.accurate_solution, self.refits
        if start.problem.scaling == "mean":
            start, refits = summed(start), refits.summed(start.problem)
        return KinkRows(start, 1.0, refits)

    def has_curvature(self) -> bool:
        # Rows that batches leave open cross many kinks: Newton steps between these cost more than a training.
        if has_support(self.problem) or (self.problem.loss.piecewise and self.has_batches()):
            return has_support(self.problem)
        return super().has_curvature()

    def paths(self, rows: Rows) -> Bounds:
        """Optima of the hinge loss without each row, from its path under the strengths of all rows."""
        return self._widen(rows, self._kinks.bounds(rows, self.run.narrow))

    def train_together(self, rows: Rows) -> Bounds:
        """Trainings of some rows, certified together."""
        return self._widen(rows, self.retrain_together(rows, self._kinks))

    def refine(self, rows: Rows) -> Bounds:
        row = int(rows[0])
        if has_support(self.problem):
            return self._prove_support(row)
        found = self._retrain_wide(row) if has_wide_rows(self.problem) else None
        if found is None:
            work, point = self.refinement(row)
            work.newton(point)
            found = work.found
        return self._widen(rows, found)

    def _retrain_wide(self, row: int) -> Bounds | None:
        """Bounds of one row's score by Newton steps in the space of the rows, where its problem has the same columns."""
        problem, _ = self.without(row)
        if (
            problem.n_columns != self.problem.n_columns
            or problem.scaling != self.problem.scaling
            or not has_row_models(problem)
        ):
            return None
        models = RowModels(problem)
        start = models.place(self.solution.point, self.problem.weights)
        rows = np.array([row])
        found = models.retrained(problem.weights, start, rows, lambda *ends: self.finished(row, *ends))
        self.run.limited[row] = found.exhausted
        return found.lower, found.upper

    def _prove_support(self, row: int) -> Bounds:
        """Bounds of one row's score under refitted strengths and a penalty with absolute values, if its support is proven for all strengths within their rounding."""
        asked = self.run.bound in ("auto", "local")
        share = self.refits.strength_error(row) if asked and self.refits.together[row] else np.inf
        if not share < LARGEST_SHARE:
            return unbounded(1)
        problem = self.refits.described(self.problem, row).require_weight()
        return find_support(problem, self.solution.point, share).score_bounds(problem.matrix[row : row + 1])

    def training(self, rows: Rows) -> Bounds:
        return self._widen(rows, super().training(rows))

    def _widen(self, rows: Rows, found: Bounds) -> Bounds:
        """Bounds under refitted scales as they are stored, made to hold for all scales within their rounding."""
        if not self._factor_slack[rows].any():
            return found
        lower, upper = found
        return outward(lower - self._factor_slack[rows], -np.inf), outward(upper + self._factor_slack[rows], np.inf)

    def slack(self, row: int) -> float:
        """An upper bound of how far :meth:`_widen` moves each end of a row's interval."""
        return (1.0 + 1e-6) * float(self._factor_slack[row])

    @cached_property
    def _factor_slack(self) -> Array:
        return self.refits.slack(self.problem)

    def are_at_floor(self, rows: Rows) -> NDArray[np.bool_]:
        if self.run.width is None:
            return super().are_at_floor(rows)
        # Refitted scales are known to within their rounding only, which no training changes.
        slack = 2.0 * np.array([self.slack(int(row)) for row in rows])
        return (slack > self.run.width) & (self.run.widths[rows] <= NEAR_FINEST * slack)


STEPS: Mapping[str, tuple[Step[Any], ...]] = {
    "certified": (
        Step(
            "newton",
            "tall data, a self-concordant loss, a smooth penalty; one factor",
            RefittedRemovals.has_expansions,
            RefittedRemovals.open_followed,
            RefittedRemovals.refitted_quick,
            tightens=True,
        ),
        Step(
            "newton",
            "a self-concordant loss, a smooth penalty; one factor, and two products with X for each step",
            RefittedRemovals.has_batches,
            RefittedRemovals.batch_followed,
            RefittedRemovals.refitted,
            tightens=True,
        ),
        Step(
            "newton",
            "the same, rows without which the columns are others; a model of all rows for each kind of them",
            RefittedRemovals.has_variants,
            RefittedRemovals.variant_rows,
            RefittedRemovals.refitted_variant,
            tightens=True,
        ),
        Step(
            "refine",
            "dense data, the hinge loss, an L2 penalty on every column, no class weights and, with an intercept, no values that are fitted again; a few small systems for each row",
            RefittedRemovals.has_paths,
            lambda removals: in_parts(removals.batch_followed()),
            RefittedRemovals.paths,
            tightens=True,
        ),
        Step(
            "refine",
            "a loss with a curvature; a factor for each step of each row",
            RefittedRemovals.has_curvature,
            one_by_one,
            RefittedRemovals.refine,
        ),
        Step(
            "training",
            "the same as for steps over kinks; a training of each row's own problem",
            RefittedRemovals.has_paths,
            lambda removals: in_parts(removals.batch_followed()),
            RefittedRemovals.train_together,
        ),
        Step("training", "nothing; a training of each row's own problem", always, to_train, RefittedRemovals.training),
    ),
    "naive": (NAIVE,),
}
"""The steps of every method, in the order of their price."""
