"""The judge of models by their own leave-one-out scores."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from glru._budget import Budget
from glru.bounds import Bounds, ScoreBounds, intersect, unbounded
from glru.linalg import Array, gamma
from glru.losses import Loss, WithOffset
from glru.model_selection.loocv import leave_one_out, require_rows
from glru.problem import Point, Problem
from glru.refine import TRAINED, Refinement, approach
from glru.regions.local import has_local
from glru.selection.contest import Contest, Goal
from glru.selection.criteria import Criterion
from glru.selection.judge import ROUGH, Judge, Screened, Value, same_columns
from glru.selection.moves import Model, Move
from glru.solution import Solution, dual_of
from glru.sums import Expansion
from glru.updates.gradients import EXACT_STEPS
from glru.updates.local_rows import LocalRows, Start, has_local_rows

Rows = NDArray[np.intp]

SHARES = (1e-1, 1e-2, 1e-3, 1e-5, 1e-7, 1e-9, 1e-11)
"""Shares of the sum that the rows' terms are to be known up to, one after the other."""

MOST_BASES = 3
"""Bases that are looked for, each from where the last one ended, before a model is trained."""

COARSE = 1e-3
"""Share of the sum up to which leave-one-out scores are narrowed before the contest is asked."""

CHORD_STEPS = 12
"""Steps of a row's model with the Hessian of all rows."""

FIRST_ROWS = 64
"""Rows of the first batch that is looked at more closely; each next one is twice as large."""

ALL_SHARED, OWN_HESSIAN, ALONE = range(3)
"""How a row's model is stepped on: with the Hessian of all rows, with its own, or on its own."""


class Stepped(NamedTuple):
    """A model of a problem, near its optimum."""

    problem: Problem
    point: Point
    expansion: Expansion | None = None


@final
class HeldOutRows:
    """Bounds of the leave-one-out scores of one model, row by row as narrow as is asked for.

    Parameters
    ----------
    start : Start
        The model, near its optimum; where it is not near enough for bounds of many rows at once, ``usable`` is False and rows are trained one at a time.
    criterion : Criterion
        What the scores are summed up to.
    """

    def __init__(self, start: Start, criterion: Criterion) -> None:
        self.criterion, self.problem = criterion, start.problem
        self.family = LocalRows(start)
        for _ in range(MOST_BASES):
            if self.family.converged or not np.all(np.isfinite(self.family.point.coef)):
                break
            self.family = LocalRows(self.family)
        self.usable = self.family.usable and self.family.converged
        if self.usable:
            self.near = self.family.point
            removals = self.family.removals(np.arange(self.problem.n_rows))
            self.lower, self.upper = self.family.base.closed_form(removals, self.family.largest_norm)
            scores = removals.scores + self.family.base.steps(removals).shifts
        else:
            self.near = start.point
            self.lower, self.upper = unbounded(self.problem.n_rows)
            scores = self.problem.scores(self.near.coef, self.near.intercept)
        self.guesses = criterion.terms(self.problem.y, scores, scores)[1]
        self.tried = np.full(self.problem.n_rows, -1)
        self.asked = np.full(self.problem.n_rows, np.inf)
        self._scale = self._score_scale(scores)

    def _score_scale(self, scores: Array) -> float:
        """How much a score may move where its term moves by one, about: a log-loss moves by less, a square by twice the residual."""
        if self.criterion.task == "classification":
            return 1.0
        size = float(np.sqrt(np.mean(np.square(scores - self.problem.y))))
        return 0.25 / size if size > 0.0 and np.isfinite(size) else 1.0

    @property
    def guess(self) -> float:
        """The sum after one Newton step per row, unproven."""
        return float(self.guesses.sum())

    @property
    def bounds(self) -> tuple[float, float]:
        """Bounds of the criterion's sum."""
        low, high = self.criterion.sum_bounds(self.problem.y, self.lower, self.upper)
        return float(low), float(high)

    def narrow(self, goal: Goal, precision: float) -> Value:
        """Narrow the intervals of those rows that matter most until the goal is reached, or the sum known up to ``precision``."""
        stage = "newton"
        for level, share in enumerate((0.0,) if self.criterion.counts else SHARES):
            width = share * self.guess / max(self.problem.n_rows, 1)
            if level and 10.0 * width * self.problem.n_rows < precision:
                break
            for kind in (ALL_SHARED, OWN_HESSIAN, ALONE) if self.usable else (ALONE,):
                size = FIRST_ROWS if kind != ALONE else 1
                # A model that is trained at all is trained once.
                own = width if kind != ALONE else min(width, 0.5 * precision / self.problem.n_rows)
                while True:
                    low, high = self.bounds
                    if high - low <= precision or goal.is_reached(low, high):
                        return Value(low, high, stage, self._middle)
                    rows = self._open_rows(3 * level + kind, width)
                    rows = rows[self.asked[rows] > own][:size]
                    if not rows.size:
                        break
                    stage = "refine"
                    self._look_at(np.sort(rows), kind, own * self._scale, goal)
                    self.tried[rows] = 3 * level + kind
                    if kind == ALONE:
                        self.asked[rows] = own
                    else:
                        size *= 2
        return Value(*self.bounds, stage, self._middle)

    @property
    def _middle(self) -> float:
        """The sum at the middle of the intervals, or the guess where they are not finite."""
        middle = 0.5 * (self.lower + self.upper)
        terms = self.criterion.terms(self.problem.y, middle, middle)[1]
        return float(np.where(np.isfinite(middle), terms, self.guesses).sum())

    def _open_rows(self, kind: int, width: float) -> Rows:
        """Rows whose term is not known up to ``width`` and that were not looked at like this, those first that add most to the lower end."""
        least, most = self.criterion.terms(self.problem.y, self.lower, self.upper)
        rows = np.flatnonzero((self.tried < kind) & ~(most - least <= width))
        return rows[np.argsort(least[rows] - self.guesses[rows], kind="stable")]

    def _look_at(self, rows: Rows, kind: int, width: float, goal: Goal) -> None:
        """Take in tighter bounds of some rows."""

        def enough(lower: Any, upper: Any) -> NDArray[np.bool_]:
            known: NDArray[np.bool_] = (
                (lower > 0.0) | (upper < 0.0) if self.criterion.counts else upper - lower <= width
            )
            return known

        if kind == ALL_SHARED:
            found = self.family.refined(rows, enough, CHORD_STEPS)
        elif kind == OWN_HESSIAN:
            found = self._closer.refined(rows, enough, EXACT_STEPS, exact=True)
        else:
            found = self._alone(int(rows[0]), enough, goal)
        self.lower[rows], self.upper[rows] = intersect((self.lower[rows], self.upper[rows]), found)

    @cached_property
    def _closer(self) -> LocalRows:
        """The family at a base one step closer."""
        return LocalRows(self.family)

    def _alone(self, row: int, enough: Any, goal: Goal) -> Bounds:
        """Bounds of one row, from the model without it trained as far as is needed."""
        problem, near = self.problem.without(np.array([row])).require_weight(), self.near
        query = self.problem.matrix[np.array([row])]
        work = Refinement(problem, query, lambda *ends: bool(enough(*ends).all()), budget=goal.budget)
        if has_local(problem):
            near = approach(problem, near)[0]
            done = work.local_steps(near, dual=False) is not None
            # Bounds that are finite are as narrow as the steps make them: a training gains what rounding leaves, if anything.
            if done or (goal.rough and not self.criterion.counts and np.isfinite(work.found).all()):
                return work.found
        dual = dual_of(problem, problem.scores(near.coef, near.intercept))
        work.train(Point(near.coef, near.intercept, dual), TRAINED, asked=True)
        return work.found


@final
class LeaveOneOutJudge(Judge):
    """A model judged by its own leave-one-out scores.

    Where the local certificate applies, a removed column is one Newton step from the present model, and the rows of each candidate are
    narrowed as far as the contest asks for; other moves are trained first. Where it does not, :func:`glru.loocv` judges trained models.
    """

    def __init__(
        self, model: Model, criterion: Criterion, method: str = "certified", known: HeldOutRows | None = None
    ) -> None:
        require_rows(model.whole)
        self.model, self.criterion, self.method = model, criterion, method
        self._found: dict[Move, HeldOutRows] = {}
        if known is not None:
            self.__dict__["_present"] = known

    @property
    def n_rows(self) -> int:
        return self.model.whole.n_rows

    @property
    def _is_local(self) -> bool:
        """Whether rows are narrowed one by one."""
        problem = self.model.problem
        loss = problem.loss
        plain = loss.link == "identity" and not loss.several and not isinstance(loss, WithOffset)
        return self.method == "certified" and plain and problem.arrays.stable and has_local_rows(problem)

    @cached_property
    def _present(self) -> HeldOutRows | None:
        """The rows of the present model."""
        return HeldOutRows(self.model.solution, self.criterion) if self._is_local else None

    def value(self, thorough: bool = False) -> Value:
        if self._present is None:
            return self._value_of(self.model.solution, "certified")
        goal = Goal(budget=self.model.budget, rough=not thorough)
        return self._present.narrow(goal, self._precision(goal, self._present))

    def _precision(self, goal: Goal, held_out: HeldOutRows) -> float:
        """A sum known up to this is known well enough."""
        share = ROUGH if goal.rough else 0.05 * self.criterion.resolution
        return self.criterion.width(share, held_out.guess)

    def screen(self, moves: Sequence[Move], budget: Budget, contest: Contest | None = None) -> Screened:
        if not self._is_local:
            return Screened.unknown(len(moves), "carry")
        found = Screened.unknown(len(moves), "newton")
        guesses = np.full(len(moves), np.inf)
        for k, move in enumerate(moves):
            budget.check()
            held_out = self._held_out(move)
            if held_out is not None:
                found.lower[k], found.upper[k] = held_out.bounds
                guesses[k] = held_out.guess
                known = self.criterion.terms(held_out.problem.y, held_out.lower, held_out.upper)
                found.certain[k] = np.count_nonzero(known[1] - known[0] <= self._precision(Goal(), held_out))
        if contest is None or np.isinf(contest.resolution) or not np.isfinite(guesses.min(initial=np.inf)):
            return found
        # The most promising one rules out many of the others.
        best, offset = int(guesses.argmin()), contest.lower.size - len(moves)
        contest.settle(slice(offset, None), found.lower, found.upper)
        held_out = self._found[moves[best]]
        value = held_out.narrow(Goal(contest, best + offset, budget), self._precision(Goal(rough=True), held_out))
        found.lower[best], found.upper[best] = value.lower, value.upper
        return found

    def _held_out(self, move: Move) -> HeldOutRows | None:
        """The rows of the model after a move; None where it is not near its optimum."""
        if move not in self._found:
            start = self._step(move)
            if start is None:
                return None
            held_out = HeldOutRows(start, self.criterion)
            if not held_out.usable:
                return None
            self._found[move] = held_out
        return self._found[move]

    def _step(self, move: Move) -> "Stepped | None":
        """The model after a column has left, one Newton step from the present one."""
        if move.add or len(move.columns) > 1 or self.model.chosen.size < 2:
            return None
        if self._present is None or not self._present.usable:
            return None
        base, column = self._present.family.base, int(np.searchsorted(self.model.chosen, move.columns[0]))
        inverse = base.metric.inverse
        image = inverse @ inverse[column]
        near = base.point.moved(-image * (base.point.coef[column] / image[column]))
        problem, point = self.model.whole.select_columns(move.apply(self.model.chosen)), np.delete(near.coef, column)
        if not np.all(np.isfinite(point)):
            return None
        return Stepped(problem, Point(point, near.intercept))

    def refine(self, move: Move, goal: Goal) -> Value:
        if not self._is_local:
            problem, point = self.model.trial(move)
            solution = self.model.train(problem, point)
            if self.method == "naive":
                return self._value_of(solution, "naive")
            value = self._value_of(solution, "certified", COARSE)
            known = self.criterion.counts or goal.is_reached(value.lower, value.upper)
            return value if known else self._value_of(solution, "certified")
        held_out, trained = self._held_out(move), False
        if held_out is None:
            solution, trained = self.model.train(*self.model.trial(move)), True
            held_out = self._found[move] = HeldOutRows(solution, self.criterion)
        value = held_out.narrow(goal, self._precision(goal, held_out))
        return Value(value.lower, value.upper, "training", value.guess) if trained else value

    def after(self, move: Move) -> "LeaveOneOutJudge":
        held_out = self._found.get(move)
        start = self.model.trial(move)[1] if held_out is None else held_out.family.point
        return LeaveOneOutJudge(self.model.after(move, start), self.criterion, self.method, held_out)

    def find_ties(self, moves: Sequence[Move], budget: Budget) -> list[int]:
        whole = self.model.whole
        if whole.matrix.only_products:
            return super().find_ties(moves, budget)
        return same_columns(moves, [whole.matrix], whole.penalty)

    def _value_of(self, solution: Solution, method: Literal["naive", "certified"], share: float | None = None) -> Value:
        """The value of a trained model, its sum known up to half a share of it: by default that of the criterion's resolution."""
        y, loss = solution.problem.targets, solution.problem.loss
        share = self.criterion.resolution if share is None else share
        width = None if self.criterion.counts or method == "naive" else 0.25 * share * self._scale_of(solution)
        budget = self.model.budget
        result = leave_one_out(
            solution, method=method, width=width, tol=self.model.tol, max_seconds=budget.seconds_left
        )
        budget.check()
        if loss.several:
            ends = self._class_sum(result.bounds, loss, y)
            middle = self._class_sum(ScoreBounds(result.scores, result.scores), loss, y)[1]
            return Value(*ends, "training" if method == "naive" else "loocv", middle)
        low, high = self.criterion.sum_bounds(y, result.score_lower, result.score_upper)
        guess = float(self.criterion.terms(y, result.scores, result.scores)[1].sum())
        return Value(float(low), float(high), "training" if method == "naive" else "loocv", guess)

    def _class_sum(self, bounds: ScoreBounds, loss: Loss, y: NDArray[Any]) -> tuple[float, float]:
        """Bounds of the sum with one score per class; its log-loss is known as a mean."""
        if self.criterion.counts:
            low, high = bounds.errors(y)
            return float(low), float(high)
        least, most = bounds.metric(self.criterion.name, loss, y)
        return least * y.size * (1.0 - gamma(4)), most * y.size * (1.0 + gamma(4))

    def _scale_of(self, solution: Solution) -> float:
        """By how much held-out scores may move, about, where the sum moves by as much as it is.

        A log-loss moves by less than its score times itself; a square by twice the residual, which is at least about as
        large held out as in training; a deviance by twice the slope.
        """
        problem = solution.problem
        if problem.loss.link != "identity":
            value, slope, _ = problem.loss.expand(problem.y, solution.scores)
            usual = float(np.sqrt(np.mean(slope**2)))
            return float(np.mean(value)) / usual if usual > 0.0 else 1.0
        if self.criterion.task != "regression":
            return 1.0
        return float(np.sqrt(np.mean((solution.scores - problem.y) ** 2))) or 1.0
