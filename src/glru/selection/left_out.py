"""The judge of models by their own leave-one-out scores."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from glru._options import Budget
from glru.bounds import Bounds, ScoreBounds
from glru.linalg import Array, gamma
from glru.losses import Loss, WithOffset
from glru.model_selection.loocv import leave_one_out, require_rows
from glru.problem import Point
from glru.selection.contest import Contest, Goal
from glru.selection.criteria import Criterion
from glru.selection.judge import Judge, Screened, Value, label_equal_columns
from glru.selection.moves import Model, Move
from glru.solution import Solution
from glru.updates.carried_rows import factor_range
from glru.updates.columns import SubsetModels, SubsetRows, has_subsets

Places = NDArray[np.intp]

SHOWN = 1e-4
"""A sum known up to this share of itself is accurate enough to be shown, as in :func:`glru.loocv`; a contest that needs more asks for it."""

COARSE = 1e-3
"""Leave-one-out scores are narrowed until the sum is known up to this share of itself before the contest is asked."""

MAX_ENTRIES = 20_000_000
"""The largest number of entries in the Hessians of all candidates of a step; beyond it candidates are trained one at a time."""

MAX_COLUMNS = 8
"""Models with more columns than this multiple of the rows are trained one at a time."""

MAX_ROUNDS = 6
"""Rounds that narrow the rows that matter; each reduces what is open of a sum to about a thousandth."""


@final
class HeldOutSets:
    """Bounds of the leave-one-out sums of the models of several sets of columns, row by row as narrow as is asked for.

    Parameters
    ----------
    rows : SubsetRows
        The scores.
    y : array of shape (n_rows,)
        The targets.
    criterion : Criterion
        What the scores are summed up to.
    """

    def __init__(self, rows: SubsetRows, y: Array, criterion: Criterion) -> None:
        self.rows, self.y, self.criterion = rows, y, criterion

    def guesses(self, sets: Any = slice(None)) -> Array:
        """The terms at the candidates, unproven, of shape (n_sets, n_rows)."""
        centers = self.rows.centers[sets]
        found: Array = self.criterion.terms(self.y, centers, centers)[1]
        return np.where(np.isfinite(found), found, 0.0)

    def terms(self, sets: Any = slice(None)) -> Bounds:
        """Bounds of the terms of some sets, of shape (n_sets, n_rows)."""
        return self.criterion.terms(self.y, self.rows.lower[sets], self.rows.upper[sets])

    def sums(self, sets: Any = slice(None)) -> Bounds:
        """Bounds of the sums of some sets."""
        low, high = self.terms(sets)
        return self.criterion.add_terms(low.T, high.T)

    def value(self, place: int, stage: str) -> Value:
        """The value of one set."""
        (low,), (high,) = self.sums(slice(place, place + 1))
        return Value(float(low), float(high), stage, float(self.guesses(slice(place, place + 1)).sum()))

    def narrow(self, sets: Places, most: Array, precision: Array) -> bool:
        """Narrow those rows of some sets that matter for whether their sums are above ``most``; whether there were any.

        Where the guess says that a sum is, its lower end is to show it, and the rows that add most to it are taken. Of others all rows are known
        better until the sum is known up to ``precision``.
        """
        (low, high), guesses = self.terms(sets), self.guesses(sets)
        n_rows, widths = self.y.size, high - low
        chosen, targets = np.zeros(low.shape, dtype=bool), np.zeros(sets.size)
        for k, above in enumerate(guesses.sum(axis=1) - most):
            # What is open of a sum becomes a thousandth as large at a time.
            rough = min(1e-3 * float(widths[k].sum()), self.criterion.width(SHOWN, float(guesses[k].sum())))
            targets[k] = max(rough, 0.5 * precision[k]) / n_rows
            if above > 0.0:
                missing = np.maximum(guesses[k] - low[k], 0.0)
                order = np.argsort(-missing, kind="stable")
                # Nine tenths of the distance may be missing in the end, most of it by rows that are not narrowed: the others take about as many steps
                # for a fifth of it, half of their widths, as for more.
                rest = missing.sum() - np.cumsum(missing[order])
                n_chosen = int(np.count_nonzero(rest > 0.7 * above)) + 1
                targets[k] = max(targets[k], 0.4 * above / n_chosen)
                chosen[k, order[:n_chosen]] = True
                chosen[k] &= missing > targets[k]
            if not chosen[k].any():
                chosen[k] = ~(widths[k] <= targets[k]) if not self.criterion.counts else widths[k] > 0.0
        members, rows = np.nonzero(chosen)
        before = self.rows.lower[sets], self.rows.upper[sets]
        scales = self._score_scale(guesses)
        self.rows.narrow(sets[members], rows, targets[members] * scales[members], self.criterion.counts)
        after = self.rows.lower[sets], self.rows.upper[sets]
        return any(not np.array_equal(old, new) for old, new in zip(before, after, strict=True))

    def _score_scale(self, guesses: Array) -> Array:
        """How much a score may move where its term moves by one, about: a log-loss moves by less, a square by twice the residual."""
        if self.criterion.task == "classification":
            return np.ones(len(guesses))
        with np.errstate(divide="ignore"):
            return np.minimum(0.25 / np.sqrt(guesses.mean(axis=1)), 1e300)

    def known_rows(self, precision: Array) -> Array:
        """How many rows of each set have a term that is known well enough."""
        low, high = self.terms()
        found: Array = (high - low <= precision[:, None] / self.y.size).sum(axis=1)
        return found


@final
class LeaveOneOutJudge(Judge):
    """A model judged by its own leave-one-out scores.

    Where the local certificate applies, all candidates of a step are stepped on together, and their rows are narrowed as far as the contest asks for. Where it
    does not, :func:`glru.loocv` judges trained models.
    """

    def __init__(
        self,
        model: Model,
        criterion: Criterion,
        method: str = "certified",
        known: tuple[HeldOutSets, int] | None = None,
    ) -> None:
        require_rows(model.whole)
        self.model, self.criterion, self.method = model, criterion, method
        self._found: dict[Move, tuple[HeldOutSets, int]] = {}
        if known is not None:
            self.__dict__["_present"], self.__dict__["_family"] = known, known[0].rows.family

    @property
    def n_rows(self) -> int:
        return self.model.whole.n_rows

    @cached_property
    def _is_local(self) -> bool:
        """Whether rows are narrowed one by one."""
        whole, loss = self.model.whole, self.model.whole.loss
        plain = loss.link == "identity" and not loss.several and not isinstance(loss, WithOffset)
        if not (self.method == "certified" and plain and has_subsets(whole)):
            return False
        low, high = factor_range(whole)
        return low == high and bool(np.all(whole.weights > 0.0))

    def _has_sets(self, n_sets: int, n_columns: int) -> bool:
        """Whether models of a number of columns each are stepped on together."""
        size = n_columns + self.model.whole.fit_intercept
        return self._is_local and 0 < size <= MAX_COLUMNS * self.n_rows and n_sets * size**2 <= MAX_ENTRIES

    def _hold_out(self, columns: Places, present: tuple[HeldOutSets, int] | None = None) -> HeldOutSets:
        """The rows of the models of some sets of columns, from the present model; where columns leave, from the rows under it."""
        leave = present is not None and columns.shape[1] < self.model.chosen.size
        known = (present[0].rows, present[1]) if present is not None and leave else None
        factor = factor_range(self.model.whole)[0]
        rows = SubsetRows(self._family, columns, self.model.pack_sets(columns), factor, known)
        return HeldOutSets(rows, self.model.whole.y, self.criterion)

    @cached_property
    def _family(self) -> SubsetModels:
        return SubsetModels(self.model.whole, self.model.whole.matrix[np.arange(0)], self.model.budget)

    @cached_property
    def _present(self) -> tuple[HeldOutSets, int] | None:
        """The rows of the present model, and its place among the sets."""
        if not self._has_sets(1, self.model.chosen.size):
            return None
        return self._hold_out(self.model.chosen[None]), 0

    def value(self, thorough: bool = False) -> Value:
        if self._present is None:
            return self._value_of(self.model.solution, "certified")
        goal = Goal(budget=self.model.budget, rough=not thorough)
        value = self._narrow(*self._present, goal)
        if goal.rough or self.criterion.is_known(SHOWN, value.lower, value.upper):
            return value
        return self._value_of(self.model.solution, "certified")

    def _precision(self, rough: bool, guesses: Array) -> Array:
        """Sums known up to this are known well enough."""
        share = SHOWN if rough else 0.05 * self.criterion.resolution
        return np.zeros_like(guesses) + self.criterion.width(share, guesses)

    def _narrow(self, held_out: HeldOutSets, place: int, goal: Goal) -> Value:
        """Narrow the rows of one set until its value is known well enough, or as well as can be."""
        sets, value = np.array([place]), held_out.value(place, "newton")
        precision = self._precision(goal.rough, np.array([value.guess]))
        for _ in range(2 * MAX_ROUNDS):
            if value.upper - value.lower <= precision[0] or goal.is_reached(value.lower, value.upper):
                break
            if not held_out.narrow(sets, np.full(1, np.inf), precision):
                break
            value = held_out.value(place, "refine")
        return value

    def screen(self, moves: Sequence[Move], budget: Budget, contest: Contest | None = None) -> Screened:
        found = Screened.unknown(len(moves), "newton" if self._is_local else "carry")
        sizes = np.array([move.apply(self.model.chosen).size for move in moves])
        if contest is None:
            contest = Contest(np.zeros(len(moves)), np.full(len(moves), np.inf), 0.0)
        groups = []
        for size in np.unique(sizes):
            here = np.flatnonzero(sizes == size)
            if not self._has_sets(here.size, int(size)):
                continue
            budget.check()
            mine = [moves[int(k)] for k in here]
            columns = np.array([move.apply(self.model.chosen) for move in mine])
            held_out = self._hold_out(columns, self._present)
            self._found.update({move: (held_out, place) for place, move in enumerate(mine)})
            groups.append((here, held_out))
            guesses = held_out.guesses().sum(axis=1)
            found.certain[here] = held_out.known_rows(self._precision(False, guesses))
        for here, held_out in groups:
            self._decide(here, held_out, contest, contest.lower.size - len(moves), budget)
            found.lower[here], found.upper[here] = held_out.sums()
        return found

    def _decide(self, here: Places, held_out: HeldOutSets, contest: Contest, offset: int, budget: Budget) -> None:
        """Narrow the rows of the moves of one size as far as it takes to know the winner, or to show every value if nobody is to win."""
        places, every = here + offset, np.arange(here.size)
        contest.settle(places, *held_out.sums())
        guesses, best = held_out.guesses().sum(axis=1), np.inf
        first = guesses.copy()
        shown = np.isinf(contest.resolution)
        for round_ in range(MAX_ROUNDS):
            budget.check()
            low, high = contest.lower[places], contest.upper[places]
            precision = self._precision(shown or round_ == 0, guesses)
            going = contest.may_win[places] & (high - low > precision)
            if not shown:
                best = float(contest.upper.min()) + contest.resolution
                # The most promising one first: it rules out many of the others.
                going = (every == int(guesses.argmin())) & (high - low > precision) if round_ == 0 else going
                if round_ and contest.winner is not None:
                    return
            # Those of which much more is open than of others decide first.
            widths = np.where(going, high - low, 0.0)
            going &= ~(widths < 0.1 * widths.max())
            sets = np.flatnonzero(going)
            # Guesses of one step are too low by about as much in all sets.
            bias = np.where(guesses == first, max(float((guesses - first).max()), 0.0), 0.0)
            if sets.size and not held_out.narrow(sets, best - bias[sets], precision[sets]) and round_:
                return
            contest.settle(places[sets], *held_out.sums(sets))
            guesses[sets] = held_out.guesses(sets).sum(axis=1)

    def refine(self, move: Move, goal: Goal) -> Value:
        if move in self._found:
            value = self._narrow(*self._found[move], goal)
            precision = self._precision(goal.rough, np.array([value.guess]))
            if value.upper - value.lower <= precision[0] or goal.is_reached(value.lower, value.upper):
                return value
        problem, point = self.model.trial(move)
        solution = self.model.train(problem, point)
        if self.method == "naive":
            return self._value_of(solution, "naive")
        value = self._value_of(solution, "certified", COARSE)
        known = self.criterion.counts or goal.is_reached(value.lower, value.upper)
        return value if known else self._value_of(solution, "certified")

    def after(self, move: Move) -> "LeaveOneOutJudge":
        known = self._found.get(move)
        if known is None:
            return LeaveOneOutJudge(self.model.after(move, self.model.trial(move)[1]), self.criterion, self.method)
        coefs = known[0].rows.models[known[1]] * known[0].rows.scales[known[1]]
        point = Point(coefs[:-1], float(coefs[-1])) if self.model.whole.fit_intercept else Point(coefs)
        return LeaveOneOutJudge(self.model.after(move, point), self.criterion, self.method, known)

    def find_ties(self, moves: Sequence[Move], budget: Budget) -> list[int]:
        whole = self.model.whole
        if whole.matrix.only_products:
            return super().find_ties(moves, budget)
        return label_equal_columns(moves, whole)

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
