"""Leave-one-out with one score per class, in memory and in blocks.

A row's bounds are *queries*: its scores, and the leads of a reference class over the others (:func:`glru.bounds.convert_queries`).
"""

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, final

import numpy as np

from glru.bounds import Bounds, intersect
from glru.cascade import (
    BATCH_STEPS,
    NAIVE,
    Removals,
    Rows,
    Step,
    each,
    open_rows,
    split_open_rows,
    to_train,
)
from glru.problem import Point
from glru.refine import bound_classes, train_classes
from glru.regions.classes import ClassBall, has_class_ball, has_classes, make_unbounded_queries
from glru.removals.blocks import MODELS_AT_ONCE, split_open
from glru.removals.refitted import summed
from glru.solution import Solution
from glru.solvers import train
from glru.solvers.multinomial import ROW_SPACE_TOL, approach_classes
from glru.solvers.newton import Stop
from glru.updates.class_blocks import ClassBlocks
from glru.updates.class_folds import ClassFolds, has_class_folds
from glru.updates.class_rows import ClassRows
from glru.updates.class_space import class_space, has_cheap_space, has_class_space
from glru.updates.refits import Refits
from glru.updates.wide_classes import WideClasses

NARROWING = 32.0
"""Intervals are narrowed by products with the data while these are expected to cost at most this many times the closed form of all rows."""

APPROACHED, MAX_STEPS = 1e-9, 20
"""Relative gap of a row's model before a Hessian is formed there: most rows need no second one; and the Newton steps to it."""

STEPPED = 1 << 22
"""Number of coefficients and scores of the models that are stepped together."""


@final
class ClassRemovals(Removals):
    """Removals of single rows in memory with one score per class, with refitted preprocessing or without."""

    @property
    def steps(self) -> Mapping[str, tuple[Step[Any], ...]]:
        return STEPS

    def has_wide(self) -> bool:
        """Whether data is wide, so that models are found over its rows."""
        return self.wide is not None

    def has_family(self) -> bool:
        """Whether a Hessian over classes and columns is small enough to form."""
        return self.wide is None and has_classes(self.problem)

    def has_plain_family(self) -> bool:
        """Whether the same holds and nothing but the row is removed."""
        return self.refits is None and self.has_family()

    def has_refitted(self) -> bool:
        """Whether the same holds and preprocessing is fitted again."""
        return self.refits is not None and self.problem.penalty.smooth and self.has_family()

    def has_proof(self) -> bool:
        """Whether trainings are certified, by a Hessian or by the gap."""
        # What a training over the rows leaves open, one over the columns decides rarely, at many times its cost.
        return self.wide is None and (has_classes(self.problem) or has_class_ball(self.problem))

    def batch_followed(self) -> list[Rows]:
        """The open rows whose refits are described by changes of the problem, in batches that fit the memory limit."""
        batches = self.run.batches(grouped=False)
        return batches if self.refits is None else [rows[self.refits.together[rows]] for rows in batches]

    def select_affordable(self, rows: Rows) -> Rows:
        return rows[: self.family.affordable(NARROWING)] if self.has_family() else rows

    def single_steps(self) -> Callable[[Rows], Bounds] | None:
        return self.train_wide if self.has_wide() else self.refine if self.has_family() else None

    @cached_property
    def family(self) -> ClassRows:
        """All removals with one score per class."""
        family = self._make_family(self.solution)
        return family if family.converged else self._make_family(self.run.accurate_solution)

    def _make_family(self, start: Solution) -> ClassRows:
        refits = self.refits
        if refits is not None and self.problem.scaling == "mean":
            start, refits = summed(start), refits.summed(self.problem)
        return ClassRows(start.problem, start.point, refits)

    @cached_property
    def wide(self) -> WideClasses | None:
        """All removals from wide data; None: of data that is not, or whose rows have no factor."""
        refits = self.refits
        # What moved fills share with the columns is known in the span of the rows: over the columns it proves far less.
        times = 1 if refits is not None and refits.filled_columns.size else 2
        if not (has_class_space(self.problem, times) and (refits is None or self.problem.penalty.smooth)):
            return None
        start = self.run.converged_solution
        if self.problem.scaling == "mean":
            refits = Refits(alone=np.zeros(self.problem.n_rows, dtype=bool)) if refits is None else refits
            start, refits = summed(start), refits.summed(self.problem)
        found = WideClasses(start, refits)
        return found if found.usable else None

    @cached_property
    def reference(self) -> Rows:
        """The class of every row whose lead over the others is bounded: the one that a Newton step without the row names."""
        found = self.solution.scores.argmax(axis=1)
        family = self.wide or (self.family if self.has_family() else None)
        if family is not None and family.usable:
            with np.errstate(all="ignore"):
                guesses = family.guesses(np.arange(found.size))
            found = np.where(np.isfinite(guesses).all(axis=1), guesses.argmax(axis=1), found)
        return found

    def local(self, rows: Rows) -> Bounds:
        """Newton candidates under the local certificate, with one score per class."""
        return self.family.bounds(rows, self.reference[rows])

    def newton(self, rows: Rows) -> Bounds:
        """The candidates written down in full, and more steps where needed."""
        return self.family.refined(rows, self.reference[rows], self.run.is_enough_on_average, BATCH_STEPS)

    def refitted(self, rows: Rows) -> Bounds:
        """Newton candidates with one score per class under preprocessing that is fitted again, and more steps where needed."""
        return self.family.refined(rows, self.reference[rows], self.run.enough, BATCH_STEPS)

    def over_rows(self, rows: Rows) -> Bounds:
        """Newton candidates over the rows of wide data, and more steps where needed."""
        assert self.wide is not None
        return self.wide.bounds(rows, self.reference[rows], self.run.is_enough_on_average, BATCH_STEPS)

    def train_wide(self, rows: Rows) -> Bounds:
        """A training of one row's problem over the rows of wide data: the ball of its gap, and where that is too wide candidates from there."""
        row = int(rows[0])
        problem, start = self.without(row)
        solution = train(problem, tol=ROW_SPACE_TOL, start=start, budget=self.run.budget)
        query = problem.matrix[rows]
        found = make_unbounded_queries(1, problem.n_scores)
        if has_class_ball(problem):
            found = ClassBall(solution.certificate).queries(query, self.reference[rows])
        if self.finished(row, *found):
            return found
        refits = Refits(alone=np.zeros(problem.n_rows, dtype=bool))
        closer = WideClasses(summed(solution) if problem.scaling == "mean" else solution, refits)
        more = closer.bounds(rows, self.reference[rows], self.run.enough, BATCH_STEPS)
        return intersect(found, more)

    def refine(self, rows: Rows) -> Bounds:
        """Newton steps of one row's problem, and then steps with certificates."""
        row = int(rows[0])
        problem, start = self.without(row)
        if self.family.usable:
            start = self.family.point if self.refits is None else start
            stop = Stop(APPROACHED, None, MAX_STEPS)
            start = approach_classes(problem, start, stop, self.family.precondition)
        decided = partial(self.finished, row)
        found, _ = bound_classes(problem, start, problem.matrix[rows], self.reference[rows], decided, self.run.budget)
        return found

    def training(self, rows: Rows) -> Bounds:
        """A training of one row's problem with one score per class, and Newton steps with certificates from there."""
        row = int(rows[0])
        problem, point = self.without(row)
        decided = partial(self.finished, row)
        # Without a Hessian no step has told which class leads.
        reference = self.reference[rows] if has_classes(problem) else None
        found, _, _ = train_classes(problem, point, problem.matrix[rows], reference, decided, self.run.budget)
        return found

    def is_stepped(self) -> bool:
        """Whether models without one row are stepped together: a Hessian of all classes is too large, and nothing but the row is removed."""
        return (
            self.refits is None and not self.has_wide() and not self.has_family() and has_class_folds(self.problem, [])
        )

    @cached_property
    def _stepped(self) -> tuple[ClassFolds, Point, int]:
        """The data in the space where products are cheaper, the model of all rows there, and rows that are stepped together."""
        space = class_space(self.problem) if has_cheap_space(self.problem) else None
        problem, start = self.problem, self.solution.point
        if space is not None:
            problem, start = space.problem, space.place(self.solution)
        count = int(np.clip(STEPPED // (problem.n_scores * (problem.n_columns + problem.n_rows)), 4, 32))
        family = ClassFolds(problem, [problem] * count)
        family.approach(start)
        return family, start, count

    def batch_stepped(self) -> list[Rows]:
        """The open rows, as many at a time as are stepped together."""
        return split_open(self, self._stepped[2])

    def step_together(self, rows: Rows) -> Bounds:
        """Newton steps of the models without each row, from that of all rows; bounds of the rows that this decides."""
        family, start, _ = self._stepped
        folds = [family.problem.without(rows[k : k + 1]).require_weight() for k in range(rows.size)]
        found = family.with_folds(folds).bounds(start, list(rows[:, None]), self.run.enough, self.run.budget)
        lower, upper = (np.concatenate(ends) for ends in zip(*(bounds for bounds, _ in found), strict=True))
        # Leads of another class say nothing to the steps that follow.
        left = ~self.run.decided(lower, upper)
        lower[left], upper[left] = -np.inf, np.inf
        return lower, upper


STEPS: Mapping[str, tuple[Step[Any], ...]] = {
    "certified": (
        Step(
            "local",
            "a Hessian over classes and columns that is small enough to form",
            ClassRemovals.has_plain_family,
            open_rows,
            ClassRemovals.local,
        ),
        Step(
            "newton",
            "the same; a product with X and one with its transpose for each step",
            ClassRemovals.has_plain_family,
            split_open_rows,
            ClassRemovals.newton,
            tightens=True,
        ),
        Step(
            "newton",
            "the same, refitted preprocessing and a smooth penalty",
            ClassRemovals.has_refitted,
            ClassRemovals.batch_followed,
            ClassRemovals.refitted,
            tightens=True,
        ),
        Step(
            "newton",
            "wide data, a Hessian over classes and rows that is small enough to form; with refitted preprocessing, two products with X for each step",
            ClassRemovals.has_wide,
            ClassRemovals.batch_followed,
            ClassRemovals.over_rows,
            tightens=True,
        ),
        Step(
            "training",
            "the same; a training of each row's problem over its rows",
            ClassRemovals.has_wide,
            each,
            ClassRemovals.train_wide,
        ),
        Step(
            "refine",
            "a Hessian over classes and columns that is small enough to form; one for each step of each row",
            ClassRemovals.has_family,
            each,
            ClassRemovals.refine,
        ),
        Step(
            "newton",
            "a Hessian that is too large, and every column penalised; products for rows that are stepped together",
            ClassRemovals.is_stepped,
            ClassRemovals.batch_stepped,
            ClassRemovals.step_together,
        ),
        Step(
            "training",
            "a training for each row, certified by a Hessian where one is small enough, or else by its gap",
            ClassRemovals.has_proof,
            each,
            ClassRemovals.training,
        ),
    ),
    "naive": (NAIVE,),
}
"""The steps of every method in memory, in the order of their price."""


@final
class ClassBlockRemovals(Removals):
    """Removals of single rows in blocks with one score per class."""

    @property
    def steps(self) -> Mapping[str, tuple[Step[Any], ...]]:
        return BLOCK_STEPS

    @cached_property
    def family(self) -> ClassBlocks:
        """All removals."""
        return ClassBlocks(self.problem, self.solution.point, self.solution.class_sums)

    def has_family(self) -> bool:
        """Whether a Hessian over classes and columns is small enough to form."""
        return self.family.usable

    def sweep(self, places: Rows) -> Bounds:
        """Bound all rows by the closed form; the class of every row whose lead over the others is bounded comes with it."""
        numbers, y, self.reference, bounds = self.family.closed_form()
        self.run.hold(numbers, y, bounds)
        return bounds

    def newton(self, places: Rows) -> Bounds:
        """The candidates written down in full, and more steps where needed, a pass over the data each."""
        numbers, reference = self.run.numbers[places], self.reference[places]
        return self.family.refined(numbers, reference, self.run.enough, BATCH_STEPS)

    def refine(self, rows: Rows) -> Bounds:
        """Newton steps of one row's problem, each followed by its certificate."""
        row = int(rows[0])
        problem, start = self.without(row)
        query = self.problem.take(self.run.numbers[rows]).matrix
        decided = partial(self.finished, row)
        found, _ = bound_classes(problem, start, query, self.reference[rows], decided, self.run.budget)
        return found


BLOCK_STEPS: Mapping[str, tuple[Step[Any], ...]] = {
    "certified": (
        Step(
            "local",
            "a Hessian over classes and columns that is small enough to form; one pass",
            ClassBlockRemovals.has_family,
            None,
            ClassBlockRemovals.sweep,
        ),
        Step(
            "newton",
            "the same; a pass for each step",
            ClassBlockRemovals.has_family,
            lambda removals: split_open(removals, MODELS_AT_ONCE),
            ClassBlockRemovals.newton,
        ),
        Step(
            "training",
            "the same; Newton steps of each row's own problem, one pass each",
            ClassBlockRemovals.has_family,
            to_train,
            ClassBlockRemovals.refine,
        ),
    ),
}
"""The steps in blocks, in the order of their price."""
