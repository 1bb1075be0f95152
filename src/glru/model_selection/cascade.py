"""The cascade: cheapest proof first, each stage only sees the rows the earlier ones left open."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru import duality
from glru._budget import UNLIMITED, Budget
from glru.bounds import Bounds, is_decided
from glru.certificate import certify
from glru.linalg import SMALL_WORK, Array
from glru.losses import Hinge
from glru.model_selection.result import STAGES
from glru.point import Point
from glru.problem import Problem
from glru.refine import Refinement, certified_bounds
from glru.regions import EVERY
from glru.solution import Solution
from glru.solvers import train
from glru.solvers.newton import ColumnSpace, RowSpace, uses_row_space
from glru.updates.carried_rows import carried_bounds, has_carried, removal_factors
from glru.updates.conjugate import EXACT_STEPS
from glru.updates.local_rows import LocalRows, has_local_rows
from glru.updates.tall_rows import TallRows, has_newton_rows
from glru.updates.wide_rows import WideRows, has_wide_rows

BATCH_STEPS = 30
"""Steps with the old Hessian in a batch; each reduces the error by about the largest move of a score."""

COARSE = 1e-5
"""Relative gap above which a solution is trained on before rows are removed from it."""

POLISHED = 1e-12
"""Relative gap to which a solution is trained on that one Newton step would move far."""

NEAR_FINEST = 16.0
"""An interval within this factor of the narrowest that float64 allows is refined only if that decides its row."""

FEW_ROWS, MANY_ROWS = 4, 32
"""Up to this number of open rows, training them, and refining them, is not preceded by the question whether it can help."""

MOST_FACTORS = 16
"""Families are used while the rows' weights give at most so many different factors."""

Rows = NDArray[np.intp]
Report = Callable[[str, int, int], None]
Recall = Callable[[Rows, Callable[[Rows], Bounds]], Bounds]
"""Does the work on some rows, or has it from a checkpoint."""


def smallest_batch(problem: Problem) -> int:
    """Bytes of the work arrays of a batch of one row: at most 24 vectors of one entry a row."""
    return 8 * 24 * problem.n_rows


@final
class Cascade:
    """The state of a leave-one-out run: bounds of every held-out score, and who decided it."""

    def __init__(
        self,
        solution: Solution,
        bound: str,
        width: float | None,
        max_memory: int,
        report: Report,
        budget: Budget = UNLIMITED,
    ) -> None:
        self.solution, self.problem = solution, solution.problem
        self.bound, self.width, self.max_memory, self.report = bound, width, max_memory, report
        self.recall: Recall = lambda rows, work: work(rows)
        self.budget = budget
        n_rows = self.problem.n_rows
        self.lower, self.upper = np.full(n_rows, -np.inf), np.full(n_rows, np.inf)
        self.stage_codes = np.full(n_rows, STAGES.index("undetermined"), dtype=np.int8)
        self.seconds: dict[str, float] = {}
        self.n_trainings = 0
        self.limited = np.zeros(n_rows, dtype=bool)
        self.finest: Array | None = None
        self.factors = removal_factors(self.problem)
        self._families: dict[float, TallRows] = {}
        self._local: dict[float, LocalRows] = {}
        self._sharp: dict[float, LocalRows] = {}

    def open_rows(self) -> Rows:
        """The rows that are not decided yet."""
        return np.flatnonzero(self.stage_codes == STAGES.index("undetermined"))

    def decided(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """Whether bounds are as tight as was asked for."""
        return is_decided(lower, upper, self.width)

    def enough(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """Whether a loop inside a stage may end: what it asks about is decided, or the time is up."""
        return np.ones(lower.shape, dtype=bool) if self.budget.spent else self.decided(lower, upper)

    def finished(self, row: int, lower: Array, upper: Array) -> bool:
        """Whether the work on a single row may end: :meth:`enough`, or its interval is as narrow as float64 allows."""
        if self.enough(lower, upper)[0]:
            return True
        return self.finest is not None and bool(upper[0] - lower[0] <= 2.0 * self.finest[row])

    def run(self, stage: str, rows: Rows, work: Callable[[Rows], Bounds]) -> None:
        """Run a stage on some rows and take in what it proves."""
        if self.budget.spent:
            return
        begin = time.perf_counter()
        if rows.size:
            lower, upper = self.recall(rows, work)
            self.lower[rows] = np.maximum(self.lower[rows], lower)
            self.upper[rows] = np.minimum(self.upper[rows], upper)
            done = rows[self.decided(self.lower[rows], self.upper[rows])]
            self.stage_codes[done] = STAGES.index(stage)
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - begin
        self.report(stage, self.problem.n_rows - self.open_rows().size, self.problem.n_rows)

    def certified(self) -> None:
        """All steps in order, each on what the earlier ones left open; then training."""
        for step in STEPS:
            if step.applies(self):
                for rows in step.rows(self):
                    self.run(step.stage, rows, partial(step.work, self))
        self.train()

    def resolvable_rows(self, few: int) -> Rows:
        """The open rows but those that refinement is not expected to decide, for the rounding of a perfect candidate.

        ``few``: up to this number of rows, working on them costs about as much as finding that out.
        """
        rows = self.open_rows()
        few_rows = rows.size <= few
        rows = rows[~self.limited[rows]]
        if few_rows or self.budget.spent:
            return rows
        if self.finest is None:
            self.finest = self.upper - self.lower
            self.finest[rows] = self._finest_widths(rows)
        lower, upper, finest = self.lower[rows], self.upper[rows], self.finest[rows]
        resolvable = np.abs(0.5 * (lower + upper)) > 0.25 * finest if self.width is None else finest <= self.width
        resolvable |= upper - lower > NEAR_FINEST * finest
        self.limited[rows] = ~resolvable
        return rows[resolvable]

    def _finest_widths(self, rows: Rows) -> Array:
        """Widths of the intervals of some rows' scores at the optimum of all rows, trained as far as float64 goes.

        Leaving one row out changes these little, so that no interval of a held-out score can be much narrower.
        """
        if not np.all(np.isfinite(self.polished.coef)):
            return np.full(rows.size, np.inf)
        best = train(self.problem, tol=0.0, start=self.polished, until=lambda state: self.budget.spent)
        lower, upper = certified_bounds(certify(self.problem, best.point), self.problem.matrix[rows])
        return upper - lower

    def train(self) -> None:
        """Train every open row, stopped as soon as it is decided."""
        for row in self.resolvable_rows(FEW_ROWS):
            if self.budget.spent:
                break
            self.run("training", np.array([row]), self.training)
            self.n_trainings += 1
        if self.finest is not None:
            rows = self.open_rows()
            self.limited[rows] |= (self.upper - self.lower)[rows] <= NEAR_FINEST * self.finest[rows]

    @property
    def uniform(self) -> bool:
        """Whether the rows' weights give few enough factors for the families."""
        return np.unique(self.factors[np.isfinite(self.factors)]).size <= MOST_FACTORS

    @property
    def has_families(self) -> bool:
        """Whether Newton candidates are made in batches."""
        return self.uniform and has_newton_rows(self.problem)

    def carry(self, rows: Rows) -> Bounds:
        """The paper's bound, from the old optimum."""
        lower, upper = carried_bounds(self.solution, "primal" if self.bound in ("auto", "local") else self.bound)
        return lower[rows], upper[rows]

    def local(self, rows: Rows) -> Bounds:
        """Newton candidates under the local certificate."""
        lower, upper = np.full(rows.size, -np.inf), np.full(rows.size, np.inf)
        for factor in np.unique(self.factors[rows][np.isfinite(self.factors[rows])]):
            mine = self.factors[rows] == factor
            lower[mine], upper[mine] = self._local_family(float(factor)).bounds(rows[mine], self.enough)
        return lower, upper

    def local_newton(self, rows: Rows) -> Bounds:
        """The same candidates written down in full, and more steps where needed."""
        return self._local_family(float(self.factors[rows[0]])).refined(rows, self.enough, BATCH_STEPS)

    def local_exact(self, rows: Rows) -> Bounds:
        """Candidates stepped on with their own Hessians, from a base that a further step has brought closer.

        Rows of leverage near 1 ask for a metric that is nearly exact. Where forming a Hessian takes long, this one is
        formed for all of them.
        """
        factor = float(self.factors[rows[0]])
        if factor not in self._sharp:
            self._sharp[factor] = LocalRows(self._local_family(factor), factor)
        return self._sharp[factor].refined(rows, self.enough, EXACT_STEPS, exact=True)

    def _local_family(self, factor: float) -> LocalRows:
        if factor not in self._local:
            family = LocalRows(self.solution, factor)
            if not family.settled:
                family = LocalRows(self.polished, factor)
            self._local[factor] = family
        return self._local[factor]

    @cached_property
    def polished(self) -> Solution:
        """The solution, trained on where its error would weigh more than the removal of a row."""
        if self.solution.relative_gap <= POLISHED:
            return self.solution
        return train(self.problem, tol=POLISHED, start=self.solution, until=lambda state: self.budget.spent)

    def batches(self, grouped: bool = True) -> list[Rows]:
        """The open rows in batches whose n x m arrays fit the memory limit; ``grouped``: rows of one factor together."""
        size = max(1, self.max_memory // smallest_batch(self.problem))
        rows = self.open_rows()
        rows = rows[np.isfinite(self.factors[rows])]
        groups = [rows]
        if grouped:
            groups = [rows[self.factors[rows] == factor] for factor in np.unique(self.factors[rows])]
        return [group[k : k + size] for group in groups for k in range(0, group.size, size)]

    def wide_newton(self, rows: Rows) -> Bounds:
        """Newton candidates in the dimension of the rows."""
        return self.wide.quick_bounds(rows)

    def wide_steps(self, rows: Rows) -> Bounds:
        """More steps from the same candidates, with the old Hessian."""
        return self.wide.bounds(rows, self.enough, BATCH_STEPS)

    def newton(self, rows: Rows) -> Bounds:
        """Newton candidates under the Fenchel-Young gap."""
        return self._family(float(self.factors[rows[0]])).bounds(rows)

    @cached_property
    def wide(self) -> WideRows:
        """All removals in the dimension of the rows."""
        return WideRows(self.polished if self.solution.relative_gap > COARSE else self.solution)

    def guesses(self, rows: Rows) -> Array:
        """Scores after one Newton step a row, without proof; rows of one factor, or a single one."""
        if rows.size > 1 and has_wide_rows(self.problem):
            return self.wide.guesses(rows)
        if self.has_families and rows.size > 1 and np.isfinite(self.factors[rows[0]]):
            return self._family(float(self.factors[rows[0]])).guesses(rows)
        problem, point = self.without(int(rows[0]))
        space = RowSpace(problem) if uses_row_space(problem) else ColumnSpace(problem)
        unknowns = space.place(point)
        _, gradient, curvature = problem.loss.expand(problem.y, space.scores(unknowns))
        step = space.step(unknowns, gradient, curvature)
        return (space.scores(unknowns) + step.scores)[rows]

    def _family(self, factor: float) -> TallRows:
        if factor not in self._families:
            self._families[factor] = TallRows(self.solution, factor)
        return self._families[factor]

    def refine(self, rows: Rows) -> Bounds:
        """More Newton steps for one row, each followed by its certificate."""
        row = int(rows[0])
        if has_wide_rows(self.problem) and np.isfinite(self.factors[row]):
            found = self.wide.alone(row, lambda *ends: self.finished(row, *ends))
            self.limited[row] = found.exhausted
            return found.lower, found.upper
        work, point = self._refinement(row)
        work.newton(point)
        return work.found

    def training(self, rows: Rows) -> Bounds:
        """A full training of one row's problem, with the certificate as the stopping rule (Remark 3)."""
        work, point = self._refinement(int(rows[0]))
        work.train(point, 0.0, thorough=False)
        return work.found

    def _refinement(self, row: int) -> tuple[Refinement, Point]:
        """What is to be proven of a row under the model without it, and where to start."""
        problem, point = self.without(row)
        names = EVERY if self.bound in ("auto", "local") else (self.bound,)
        query = self.problem.matrix[row : row + 1]
        return Refinement(problem, query, lambda *ends: self.finished(row, *ends), names, self.budget), point

    def without(self, row: int) -> tuple[Problem, Point]:
        """The problem in which a row has weight zero, and the old optimum as a point of it."""
        weight = self.problem.sample_weight.copy()
        weight[row] = 0.0
        problem = self.problem.derive(sample_weight=weight)
        dual = duality.feasible_dual(problem, self.solution.dual)
        return problem, Point(self.solution.coef, self.solution.intercept, dual)


@final
@dataclass(frozen=True)
class Step:
    """A way to tighten the bounds of held-out rows.

    Attributes
    ----------
    stage : str
        What it is called in a result.
    needs : str
        What it asks of loss, penalty and data, in words.
    applies : callable
        Whether a run has what it needs.
    rows : callable
        The open rows it works on, in batches.
    work : callable
        Bounds of a batch.
    """

    stage: str
    needs: str
    applies: Callable[[Cascade], bool]
    rows: Callable[[Cascade], Iterable[Rows]]
    work: Callable[[Cascade, Rows], Bounds]


def _one_by_one(cascade: Cascade) -> Iterator[Rows]:
    return (np.array([row]) for row in cascade.resolvable_rows(MANY_ROWS))


def _has_local(cascade: Cascade) -> bool:
    return cascade.uniform and has_local_rows(cascade.problem)


def _has_wide(cascade: Cascade) -> bool:
    return has_wide_rows(cascade.problem)


def _has_curvature(cascade: Cascade) -> bool:
    problem = cascade.problem
    return not isinstance(problem.loss, Hinge) and min(problem.matrix.shape) <= problem.largest


STEPS = (
    Step(
        "carry",
        "a strongly convex penalty and no intercept; one product with X",
        lambda cascade: has_carried(cascade.problem),
        lambda cascade: [cascade.open_rows()],
        Cascade.carry,
    ),
    Step(
        "local",
        "a self-concordant loss, a smooth penalty, few different weights, tall data; one Hessian",
        _has_local,
        lambda cascade: [cascade.open_rows()],
        Cascade.local,
    ),
    Step("newton", "the same; a product with X for each step", _has_local, Cascade.batches, Cascade.local_newton),
    Step(
        "newton",
        "wide data and a self-concordant loss, or a smooth one without an intercept; one factor over the rows",
        _has_wide,
        lambda cascade: cascade.batches(grouped=False),
        Cascade.wide_newton,
    ),
    Step(
        "refine",
        "the same; products of the size of the rows for each step",
        _has_wide,
        lambda cascade: cascade.batches(grouped=False),
        Cascade.wide_steps,
    ),
    Step(
        "newton",
        "tall data, a smooth loss, a strongly convex penalty, no intercept; two products with X",
        lambda cascade: cascade.has_families,
        Cascade.batches,
        Cascade.newton,
    ),
    Step(
        "refine",
        "as the local step, where forming a Hessian takes long; conjugate gradients for each step",
        lambda cascade: _has_local(cascade) and cascade.problem.work > SMALL_WORK,
        Cascade.batches,
        Cascade.local_exact,
    ),
    Step(
        "refine",
        "a loss with a curvature; a factor for each step of each row",
        _has_curvature,
        _one_by_one,
        Cascade.refine,
    ),
)
"""The steps of leave-one-out in the order of their price. A new bound of all rows is a new entry here."""
