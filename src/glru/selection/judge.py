"""Judges of a step: the value of a criterion for the model of some columns, and after each move."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import fsum
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru._options import Budget
from glru.bounds import Bounds
from glru.certificate import Certificate
from glru.linalg import FEW, Array, Matrix, gamma, to_host
from glru.problem import Point, Problem
from glru.refine import refine
from glru.regions import EVERY, PAPER
from glru.regions.gap import centers
from glru.selection.contest import Contest, Goal
from glru.selection.criteria import Criterion
from glru.selection.dof import Freedom, bounds_nearby, count_freedom, count_parameters
from glru.selection.moves import Carried, ColumnFamilies, Columns, Model, Move, MoveList, Screening, SummedHessian
from glru.updates.columns import CandidateScores, Evaluated, FoldColumns, FoldData, Tangent

Zeros = NDArray[np.bool_]
"""A mask of the rows whose score is exactly zero."""


ROUGH = 1e-6
"""A sum known up to this share of itself is accurate enough to be shown and to begin a contest with."""


MAX_LEFT = 8
"""The largest number of candidates refined one by one where others were decided together."""


@final
@dataclass(frozen=True, eq=False)
class Screened:
    """What is known about every move before any is refined on its own."""

    # Shape (n_moves,): bounds of the criterion's sum.
    lower: Array
    upper: Array
    # Shape (n_moves,): rows whose part in it is certain (``C + I`` of Algorithm 5, if the criterion counts errors).
    certain: Array
    stage: str  # what it was found by

    @classmethod
    def unknown(cls, n_moves: int, stage: str, least: float = 0.0) -> "Screened":
        """Nothing known of any move but that no value is below ``least``."""
        return cls(np.full(n_moves, least), np.full(n_moves, np.inf), np.zeros(n_moves), stage)


@final
@dataclass(frozen=True)
class Value:
    """Bounds of the criterion's sum, the stage that gave them, and the sum of the model they were found at.

    ``guess`` is unproven: it stands in if the bounds stay open, as with a penalty that bounds no score (L1).
    """

    lower: float
    upper: float
    stage: str
    guess: float


class Judge(ABC):
    """The value of a criterion for the model of some columns of a problem."""

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Number of rows that are judged."""

    @abstractmethod
    def value(self, thorough: bool = False) -> Value:
        """The value of the present columns, to ``ROUGH``; ``thorough``: as exactly as can be."""

    @abstractmethod
    def screen(self, moves: Sequence[Move], budget: Budget, contest: Contest | None = None) -> Screened:
        """First bounds for every move; raises when the budget is spent.

        ``contest``: what the moves are last in; those that cannot win it are not bounded more tightly.
        """

    @abstractmethod
    def refine(self, move: Move, goal: Goal) -> Value:
        """The value after one move, its bounds tight enough or as tight as they get."""

    @abstractmethod
    def after(self, move: Move) -> "Judge":
        """The judge of the columns after a move."""

    def find_ties(self, moves: Sequence[Move], budget: Budget) -> list[int]:
        """A label for each move: 0 if it provably leaves every score as it is, the same if scores are the same."""
        return list(range(1, len(moves) + 1))


@final
class ValidationRows:
    """Rows that judge, in the columns of a whole problem; with weights, where they are its training rows."""

    def __init__(self, whole: Problem, X: Matrix, y: Array, criterion: Criterion, weights: Array | None = None) -> None:
        self.whole, self.X, self.y, self.criterion, self.weights = whole, X, y, criterion, weights

    @property
    def row_weight(self) -> float:
        """What a row counts, where all count the same."""
        return 1.0 if self.weights is None else float(self.weights[0])

    def of(self, chosen: Columns) -> "JudgedColumns":
        """The rows as models of some columns see them."""
        return JudgedColumns(self, chosen)

    def zeros(self, chosen: Columns) -> Zeros:
        """Rows whose score is exactly zero whatever the coefficients of some columns."""
        if self.whole.fit_intercept:
            return np.full(self.y.size, chosen.size == 0 and self._is_balanced)
        return np.asarray(~self._filled.take(chosen, axis=1).any(axis=1))

    def find_zeros_after(self, chosen: Columns, moves: MoveList) -> Zeros:
        """The rows whose score is exactly zero after each move from some columns, of shape (n_rows, n_moves)."""
        found = np.zeros((self.y.size, len(moves)), dtype=bool)
        if self.whole.fit_intercept:
            return found
        now = self._filled.take(chosen, axis=1).sum(axis=1)
        for row in np.flatnonzero(now <= moves.sizes.max(initial=0)):
            own = [np.count_nonzero(self._filled[row, list(move.columns)]) for move in moves]
            found[row] = now[row] + np.where(moves.add, 1, -1) * np.array(own) == 0
        return found

    @cached_property
    def _filled(self) -> NDArray[np.bool_]:
        """Which entries can contribute to a score."""
        filled: NDArray[np.bool_] = self.X.dense() != 0.0
        return filled & ~self.whole.dead_columns if self.whole.in_memory else filled

    @cached_property
    def _is_balanced(self) -> bool:
        """Whether the optimal intercept without any column is exactly zero: two classes of equal weight.

        The losses treat both classes alike, so the slopes at zero cancel; a curvature there makes the optimum unique.
        """
        problem = self.whole
        if not problem.in_memory or problem.loss.link != "identity" or float(problem.loss.curvature(1.0, 0.0)) == 0.0:
            return False
        return bool(np.all(np.abs(problem.y) == 1.0)) and fsum(problem.weights * problem.y) == 0.0


@final
class JudgedColumns:
    """The validation rows in some columns: the values of models of these."""

    def __init__(self, rows: ValidationRows, chosen: Columns) -> None:
        self.rows, self.chosen = rows, chosen
        self.zeros = rows.zeros(chosen)
        self._freedom: Freedom | None = None

    @cached_property
    def queries(self) -> Matrix:
        """The rows."""
        X = self.rows.X
        return X if self.chosen.size == X.shape[1] else X[:, self.chosen]

    def bounds(self, lower: Array, upper: Array) -> tuple[float, float]:
        """Bounds of the criterion's sum, or of the criterion where parameters have a price, from bounds of the scores."""
        rows, criterion = self.rows, self.rows.criterion
        lower, upper = np.where(self.zeros, 0.0, lower), np.where(self.zeros, 0.0, upper)
        low, high = criterion.sum_bounds(rows.y, lower, upper, rows.weights)
        if criterion.price is not None:
            return self._complete(low, high, lower, upper)
        return float(low), float(high)

    def _complete(self, low: Array, high: Array, lower: Array, upper: Array) -> tuple[float, float]:
        """Bounds of the criterion; degrees of freedom are computed once the likelihood is known to less than the price of one."""
        rows, criterion = self.rows, self.rows.criterion
        n_free, most = counts = count_parameters(rows.whole, self.chosen)
        least, largest = (float(end) for end in criterion.complete(low, high, counts))
        price = criterion.price or 0.0
        if n_free == most or not largest - least - price * (most - n_free) < price:
            return least, largest
        for _ in range(2):
            if self._freedom is None:
                self._freedom = count_freedom(rows.whole.select_columns(self.chosen), 0.5 * (lower + upper))
            dof = bounds_nearby(rows.whole, self._freedom, counts, (0, 0), lower, upper)
            ends = criterion.complete(low, high, dof)
            least, largest = max(least, float(ends[0])), min(largest, float(ends[1]))
            if dof[1] - dof[0] <= 2.0 * (self._freedom.upper - self._freedom.lower):
                break
            # From scores further away it was less well known.
            self._freedom = None
        return least, largest

    def at(self, point: Point) -> float:
        """The value of a model as it is; a score within its rounding error of zero counts as an error."""
        middle, off = centers(self.queries, point.coef, point.intercept)
        return self.bounds(middle - off, middle + off)[1]


@final
class ValidationJudge(Judge):
    """A model judged on validation rows, by one of the methods of :func:`glru.stepwise`."""

    def __init__(
        self, model: Model, rows: ValidationRows, method: str = "certified", carried: Carried | None = None
    ) -> None:
        self.model, self.rows, self.method = model, rows, method
        self.screening: Screening = (
            ColumnFamilies(model, rows.X, method, carried) if model.whole.in_memory else SummedHessian(model, rows.X)
        )
        self._points: dict[Move, Point] = {}

    @property
    def n_rows(self) -> int:
        return int(self.rows.y.size)

    def value(self, thorough: bool = False) -> Value:
        model, criterion = self.model, self.rows.criterion
        bounds = None if thorough else self.screening.present()
        # What follows may form a matrix as large as the data: degrees of freedom, or a certificate of its own.
        model.budget.check()
        if bounds is not None:
            low, high = self.present.bounds(*bounds)
            if criterion.is_known(ROUGH, low, high):
                return Value(low, high, "newton", high)
        certificate = model.solution.certificate if model.whole.in_memory else None
        goal = Goal(budget=model.budget, rough=not thorough)
        value, point = self._refine(model.problem, model.point, self.present, goal, EVERY, certificate)
        if not model.whole.in_memory:
            model.start = point
        return value

    @cached_property
    def present(self) -> JudgedColumns:
        """The rows in the present columns."""
        return self.rows.of(self.model.chosen)

    @cached_property
    def freedom(self) -> Freedom:
        """The degrees of freedom near the present model."""
        return count_freedom(self.model.problem, self.model.solution.scores)

    def screen(self, moves: Sequence[Move], budget: Budget, contest: Contest | None = None) -> Screened:
        if contest is None:
            contest = Contest(np.full(len(moves), self.rows.criterion.least), np.full(len(moves), np.inf), 0.0)
        moves = MoveList.of(moves)
        pending = Pending(self, moves, contest, budget)
        *_, stage = self.screening.bound(moves, pending)
        return Screened(pending.lower, pending.upper, pending.certain, stage)

    def refine(self, move: Move, goal: Goal) -> Value:
        judged = self.rows.of(move.apply(self.model.chosen))
        if self.method == "certified":
            found = self._refine_shared(move, judged, goal)
            if found is not None:
                return found
        problem, point = self.screening.trial(move)
        if self.method == "naive":
            trained = self.model.train(problem, point).point
            guess = judged.at(trained)
            return Value(guess, guess, "training", guess)
        names = EVERY if self.method == "certified" else PAPER
        value, point = self._refine(problem, point, judged, goal, names)
        if not problem.in_memory:
            # Worth a pass over the data if the move is made; in memory, where columns may be many, another start costs less.
            self._points[move] = point
        return value

    def _refine_shared(self, move: Move, judged: JudgedColumns, goal: Goal) -> Value | None:
        """The value after one move by what all moves share, if that is enough."""
        decided = partial(self._is_decided, judged, goal)
        bounds = self.screening.refine(move, decided)
        if bounds is None or not decided(*bounds):
            return None
        low, high = judged.bounds(*bounds)
        return Value(low, high, "refine", high)

    def _refine(
        self,
        problem: Problem,
        point: Point,
        judged: JudgedColumns,
        goal: Goal,
        names: Collection[str],
        certificate: Certificate | None = None,
    ) -> tuple[Value, Point]:
        """The value of the model of some columns, and the point it was found at."""
        if judged.zeros.all():
            sure = judged.at(point)
            return Value(sure, sure, "carry", sure), point
        decided = partial(self._is_decided, judged, goal)
        found = refine(problem, point, judged.queries, decided, names, certificate, goal.budget)
        return Value(*judged.bounds(found.lower, found.upper), found.stage, judged.at(found.point)), found.point

    def _is_decided(self, judged: JudgedColumns, goal: Goal, lower: Array, upper: Array) -> bool:
        """Whether bounds of the scores make the value known well enough."""
        low, high = judged.bounds(lower, upper)
        precision = self.precision
        if goal.rough and np.isfinite(high):
            precision = max(precision, self.rows.criterion.width(ROUGH, high))
        return high - low <= precision or goal.is_reached(low, high)

    @cached_property
    def precision(self) -> float:
        """A value known up to this is known well enough; the present model's tells the scale."""
        criterion = self.rows.criterion
        if criterion.counts or criterion.price is not None:
            return criterion.width(0.05 * criterion.resolution, 0.0)
        bounds = self.screening.present() if self.screening.is_carried else None
        if bounds is not None and np.all(np.isfinite(bounds)):
            scores = 0.5 * (bounds[0] + bounds[1])
        else:
            point = self.model.near
            scores = self.present.queries @ point.coef + point.intercept
        return criterion.width(
            0.05 * criterion.resolution, float(criterion.terms(self.rows.y, scores, scores)[1].sum())
        )

    def after(self, move: Move) -> "ValidationJudge":
        carried = self.screening.carry(move)
        if carried is not None:
            return ValidationJudge(self.model.after(move, carried.point), self.rows, self.method, carried)
        start = self._points.get(move) or self.screening.candidate(move) or self.screening.trial(move)[1]
        return ValidationJudge(self.model.after(move, start), self.rows, self.method)

    def find_ties(self, moves: Sequence[Move], budget: Budget) -> list[int]:
        whole = self.model.whole
        if not whole.in_memory or whole.matrix.only_products:
            return super().find_ties(moves, budget)
        labels = label_equal_columns(moves, whole, self.rows.X)
        for k, move in enumerate(moves):
            budget.check()
            labels[k] = 0 if self.model.leaves_all_scores(move) else labels[k]
        return labels


@final
class Pending:
    """The moves of a step and what is known about each; the contest tells which of them matter.

    Attributes
    ----------
    lower, upper, certain : array of shape (n_moves,)
        As in :class:`Screened`.
    folds : sequence of Pending
        The same moves in all folds, this one among them; empty: there are none.
    combine : callable
        ``combine(lower, upper)``: bounds of the values from those of all folds.
    ranks : array of int
        The places of the moves in the contest; None: they are its last.
    """

    def __init__(
        self,
        judge: ValidationJudge,
        moves: MoveList,
        contest: Contest,
        budget: Budget,
        combine: Callable[[Any, Any], Bounds] | None = None,
        ranks: Columns | None = None,
    ) -> None:
        self.judge, self.contest, self.budget, self.combine = judge, contest, budget, combine
        self.folds: Sequence[Pending] = ()
        self.size = len(moves)
        self.ranks = np.arange(contest.lower.size - len(moves), contest.lower.size) if ranks is None else ranks
        # A move that changes nothing comes before all others.
        self.offset = int(self.ranks[0]) if ranks is None else 0
        least = judge.rows.criterion.least
        self.lower, self.upper = np.full(len(moves), least), np.full(len(moves), np.inf)
        self.certain = np.zeros(len(moves))
        self.zeros = judge.rows.find_zeros_after(judge.model.chosen, moves)
        self._parameters = self._count_parameters(moves) if judge.rows.criterion.price is not None else None

    def _count_parameters(self, moves: MoveList) -> tuple[Columns, Columns, Columns]:
        """Of the models after every move: unpenalised columns, all columns, and how many there are more than now."""
        model = self.judge.model
        now, free = count_parameters(model.whole, model.chosen), model.whole.quadratic == 0.0
        changed, signs = moves.growth, np.where(moves.add, 1, -1)
        freed = signs * np.array([np.count_nonzero(free[list(move.columns)]) for move in moves])
        return now[0] + freed, now[1] + changed, changed

    def _complete(self, places: Columns, ends: Bounds, lower: Any, upper: Any) -> Bounds:
        """Bounds of the values, from bounds of the sums and of the scores."""
        if self._parameters is None:
            return ends
        judge, (n_free, most, more) = self.judge, (count[places] for count in self._parameters)
        changed = more, more
        if ends[0].shape != places.shape:
            # Some of the moves, and it is not known which: their numbers are between the extremes.
            n_free, most, changed = n_free.min(), most.max(), (more.min(), more.max())
        if np.array_equal(n_free, most):
            return judge.rows.criterion.complete(*ends, (most, most))
        scores = to_host(lower), to_host(upper)
        dof = bounds_nearby(judge.model.whole, judge.freedom, (n_free, most), changed, *scores)
        return judge.rows.criterion.complete(*ends, dof)

    def take(self, places: Columns, lower: Any, upper: Any) -> None:
        """Take in bounds of the rows' scores, of shape (n_rows, n_places), after some moves, or of the values themselves."""
        self.budget.check()
        low, high = lower, upper
        if lower.ndim > 1:
            rows, (lower, upper) = self.judge.rows, (to_host(lower), to_host(upper))
            zeros = self.zeros[:, places]
            if zeros.any():
                lower, upper = np.where(zeros, 0.0, lower), np.where(zeros, 0.0, upper)
            low, high = rows.criterion.terms(rows.y[:, None], lower, upper)
            with np.errstate(invalid="ignore"):
                self._count_certain(places, high - low)
            low, high = self._complete(places, rows.criterion.add_terms(low, high, rows.weights), lower, upper)
        self.upper[places] = np.minimum(self.upper[places], high)
        self.take_values(places, low)

    def _count_certain(self, places: Columns, widths: Array) -> None:
        certain = (widths <= self.judge.precision / max(self.judge.n_rows, 1)).sum(axis=0)
        self.certain[places] = np.maximum(self.certain[places], certain)

    def take_candidates(self, places: Columns, here: CandidateScores) -> None:
        """Take in what is known of the models after some moves near candidates."""
        slopes = self._slopes(here.centers)
        if slopes is not None:
            with np.errstate(all="ignore"):
                smoothness = self.judge.rows.criterion.smoothness
                self._count_certain(places, here.half * (2.0 * np.abs(slopes) + smoothness * here.half))
        self.take(places, *self.bound(here))

    def _slopes(self, scores: Array) -> Array | None:
        """The slopes of the terms at some scores; None where the value is not their sum, or not convex."""
        rows, criterion = self.judge.rows, self.judge.rows.criterion
        if criterion.slopes is None or criterion.price is not None or rows.weights is not None:
            return None
        return criterion.slopes(rows.y[:, None], scores)

    def bound(self, here: CandidateScores) -> Bounds:
        """Bounds of the values near candidates: of a convex sum by its tangents there; of others bounds of the rows' scores."""
        criterion, y, scores = self.judge.rows.criterion, self.judge.rows.y[:, None], here.centers
        slopes = self._slopes(scores) if self.judge.model.whole.arrays.stable else None
        if slopes is None:
            return here.bounds()
        with np.errstate(all="ignore"):
            low, high = criterion.sum_bounds(y, scores, scores)
            off = here.bound_sums(slopes)
            rest = 0.5 * criterion.smoothness * np.square(here.half).sum(axis=0) * (1.0 + gamma(len(scores) + 8))
            low, high = (low - off) * (1.0 - FEW), (high + off + rest) * (1.0 + FEW)
        # A sum that overflowed says nothing.
        return np.where(np.isnan(low), criterion.least, low), np.where(np.isnan(high), np.inf, high)

    def tangent(self, scores: Array) -> Tangent | None:
        """A lower end of the value at some scores of the rows, and its slopes there; None where it is not a convex sum over the rows."""
        rows, criterion = self.judge.rows, self.judge.rows.criterion
        if criterion.slopes is None or criterion.price is not None:
            return None
        slopes = criterion.slopes(rows.y, scores)
        low, _ = criterion.sum_bounds(rows.y, scores, scores, rows.weights)
        return float(low), slopes if rows.weights is None else slopes * rows.weights

    @property
    def is_settled(self) -> bool:
        """Whether the winner is known."""
        return bool(np.isfinite(self.contest.resolution)) and self.contest.winner is not None

    def take_values(self, places: Columns, lower: Array) -> None:
        """Take in lower ends of the values after some moves."""
        self.lower[places] = np.maximum(self.lower[places], lower)
        self.upper[places] = np.maximum(self.upper[places], self.lower[places])
        self.contest.settle(self.ranks[places], *self._whole(places, self.lower[places], self.upper[places]))

    def _whole(self, places: Columns, lower: Array, upper: Array) -> Bounds:
        """Bounds of the values over all folds, from those of this one."""
        if self.combine is None:
            return lower, upper
        if lower.shape != places.shape:
            ends = [(fold.lower[places].min(), fold.upper[places].max()) for fold in self.folds]
        else:
            ends = [(fold.lower[places], fold.upper[places]) for fold in self.folds]
        ends[self.folds.index(self)] = lower, upper
        return self.combine(*(np.array(np.broadcast_arrays(*parts)) for parts in zip(*ends, strict=True)))

    def open_places(self) -> Columns:
        """The moves that may still be the best and are not known well enough, the most promising first."""
        wide = self.upper - self.lower > self._is_enough(self.upper)
        open_ones = np.flatnonzero(self.contest.may_win[self.ranks] & wide)
        return open_ones[np.argsort(self.lower[open_ones], kind="stable")]

    def _is_enough(self, value: Array) -> Array | float:
        """Values near this one are known well enough up to this; to a few digits, where nobody is to win."""
        precision = self.judge.precision
        if np.isinf(self.contest.resolution):
            rough = self.judge.rows.criterion.width(ROUGH, 1.0)
            scale = value if self.judge.rows.criterion.price is None else np.ones_like(value)
            return np.fmax(precision, rough * np.where(np.isfinite(value), scale, 0.0))
        return precision

    def find_best_place(self) -> Columns:
        """The move that is best, as far as is known, unless its value is known well enough."""
        best = int(self.contest.upper[self.ranks].argmin())
        low, high = self.lower[best], self.upper[best]
        wide = high - low > self.judge.precision and not self.judge.rows.criterion.is_known(ROUGH, low, high)
        return np.array([best] if wide else [], dtype=np.intp)

    def decided(self, places: Columns, lower: Any, upper: Any) -> NDArray[np.bool_]:
        """Which of some moves are known well enough or cannot win, given bounds of the rows' scores after each, or of the values."""
        self.budget.check()
        rows = self.judge.rows
        low, high = lower, upper
        if lower.ndim > 1:
            zeros: Zeros = np.asarray(self.zeros[:, places].all(axis=1))
            if zeros.any():
                lower, upper = (np.where(zeros[:, None], 0.0, to_host(ends)) for ends in (lower, upper))
            low, high = rows.criterion.sum_bounds(rows.y[:, None], lower, upper, rows.weights)
            low, high = self._complete(places, (low, high), lower, upper)
        known = high - low <= self._is_enough(high)
        low, high = self._whole(places, low, high)
        least = min(float(self.contest.upper.min()), float(high.min(initial=np.inf)))
        known |= low > least + self.contest.resolution
        # What changes nothing comes first: no move as bad as that wins.
        known |= low >= (self.contest.upper[0] if self.offset else np.inf)
        return known


def label_equal_columns(moves: Sequence[Move], problem: Problem, asked: Matrix | None = None) -> list[int]:
    """A label for each move, the same for moves of the same kind whose columns have the same entries; 0 where scores provably stay.

    The coefficient of a penalised column that is constant in all rows with a weight is exactly zero: the intercept does without a penalty what it does. Without an intercept
    that holds for columns of zeros. ``asked``: rows that are judged, where they are others.
    """
    contents: dict[int, tuple[bytes, ...]] = {}
    used, matrices = problem.weights > 0.0, [problem.matrix, *([] if asked is None else [asked])]
    for column in (column for move in moves for column in move.columns):
        entries = [matrix.dense(np.array([column])) for matrix in matrices]
        part = problem.penalty.select(np.array([column]))
        values = to_host(entries[0])[used]
        usual = values[:1] if problem.fit_intercept else 0.0
        if np.all(values == usual) and np.any(part.quadratic + part.absolute > 0.0):
            contents[column] = ()
            continue
        texts = (to_host(part).tobytes() for part in entries)
        contents[column] = (*texts, np.asarray(part.quadratic).tobytes(), np.asarray(part.absolute).tobytes())
    labels: dict[Any, int] = {}
    found = []
    for move in moves:
        kind = move.add, tuple(sorted(contents[column] for column in move.columns))
        found.append(labels.setdefault(kind, len(labels) + 1) if any(kind[1]) else 0)
    return found


@final
class FoldSums:
    """Bounds of the criterion's sum in every fold for some candidates, of shape (n_folds, n_candidates), and the rows whose terms are known."""

    def __init__(self, folds: "FoldsJudge", n_candidates: int, share: float) -> None:
        assert folds.data is not None
        self.data, self.criterion, self.share = folds.data, folds.criterion, share
        weights = [judge.rows.row_weight for judge in folds.judges if isinstance(judge, ValidationJudge)]
        self.weights, shape = np.array(weights)[:, None], (len(weights), n_candidates)
        self.lower, self.upper, self.certain = np.zeros(shape), np.full(shape, np.inf), np.zeros(shape)

    def take(self, places: Columns, here: Evaluated, zeros: Zeros | None = None) -> None:
        """Take in what is known where candidates stand; ``zeros``: the test rows whose score is exactly zero, where that is known."""
        data, criterion = self.data, self.criterion
        y, asked, scores = data.answers[:, None, :], data.asked[:, None, :], here.asked_scores
        half = (here.half_widths + here.errors[:, :, None]) * (1.0 + FEW)
        if criterion.counts:
            margins = y * scores
            if zeros is not None:
                margins, half = (np.where(zeros[:, None, :], 0.0, part) for part in (margins, half))
            # No row is both.
            low, right = (np.count_nonzero(asked & part, axis=2) for part in (half <= -margins, half < margins))
            high, certain = data.n_asked - right, low + right
        else:
            assert criterion.slopes is not None
            # The log-loss is that of the model, whose slopes are known.
            slopes = here.take_asked(here.raw_slopes) if criterion.name == "log_loss" else criterion.slopes(y, scores)
            slopes, *ends = (np.where(asked, part, 0.0) for part in (slopes, *criterion.terms(y, scores, scores)))
            low, high = criterion.add_terms(*(np.moveaxis(end, 2, 0) for end in ends))
            fall, rise = here.bound_sums(slopes, criterion.smoothness)
            low, high = (low - fall) * (1.0 - FEW), (high + rise) * (1.0 + FEW)
            widths = half * (2.0 * np.abs(slopes) + criterion.smoothness * half)
            certain = np.count_nonzero(asked & (widths <= criterion.width(self.share, 1.0)), axis=2)
        error = 0.0 if criterion.counts else FEW
        # Sums are not negative; a lower end may be, and then says nothing.
        low, high = low * self.weights * (1.0 - error), high * self.weights * (1.0 + error)
        self.certain[:, places] = np.maximum(self.certain[:, places], certain)
        # What overflowed says nothing.
        self.lower[:, places] = np.fmax(self.lower[:, places], low)
        self.upper[:, places] = np.maximum(np.fmin(self.upper[:, places], high), self.lower[:, places])


@final
class FoldsJudge(Judge):
    """Several judges, one per fold, whose sums make the value."""

    def __init__(
        self,
        judges: Sequence[Judge],
        criterion: Criterion,
        data: FoldData | None = None,
        before: Sequence[FoldColumns] = (),
    ) -> None:
        self.judges, self.criterion, self.data, self._before = judges, criterion, data, before
        self._families: list[FoldColumns] = []
        self._screened: dict[Move, Sequence[tuple[float, float]]] = {}

    @property
    def n_rows(self) -> int:
        return sum(judge.n_rows for judge in self.judges)

    def value(self, thorough: bool = False) -> Value:
        known = None if thorough or self.data is None else self._value_at_once(self.data)
        return self._add([judge.value(thorough) for judge in self.judges]) if known is None else known

    def _value_at_once(self, data: FoldData) -> Value | None:
        """The value of the present columns, from models of all folds at once, which are kept; None where these do not tell it."""
        models, criterion, sums = self._models, self.criterion, FoldSums(self, 1, ROUGH)
        chosen, size = models[0].chosen, models[0].chosen.size + data.fit_intercept
        if size == 0 or chosen.size > min(data.max_columns, data.n_rows):
            return None
        zeros, present = np.zeros(data.tests.shape, dtype=bool), np.zeros((len(models), size))
        for judge, line in zip(self.judges, zeros, strict=True):
            assert isinstance(judge, ValidationJudge)
            line[: judge.n_rows] = judge.rows.zeros(chosen)
        if all(model.start is not None for model in models):
            present = data.pack([model.near for model in models])

        def settle(places: Columns, *known: Evaluated) -> Zeros:
            for here in known:
                sums.take(places, here, zeros)
            return ~np.asarray(criterion.is_known(ROUGH, *criterion.combine_folds(sums.lower, sums.upper)))[places]

        family = FoldColumns(data, chosen, present, np.array([data.zero]), True)
        family.run(settle)
        if settle(np.arange(1))[0]:
            return None
        for model, point in zip(models, family.points(0), strict=True):
            if point is not None:
                model.start = point
        low, high = (float(end[0]) for end in criterion.combine_folds(sums.lower, sums.upper))
        return Value(low, high, "newton", high)

    def screen(self, moves: Sequence[Move], budget: Budget, contest: Contest | None = None) -> Screened:
        own = [judge for judge in self.judges if isinstance(judge, ValidationJudge)]
        found: Sequence[Screened | Pending]
        at_once = self._screen_at_once(moves, budget, contest) if self.data is not None else None
        if at_once is not None:
            found, stage = at_once, "newton"
        elif len(own) < len(self.judges):
            found = screened = [judge.screen(moves, budget) for judge in self.judges]
            stage = screened[0].stage
        else:
            found, stage = self._screen_together(own, moves, budget, contest)
        ends = [zip(part.lower.tolist(), part.upper.tolist(), strict=True) for part in found]
        self._screened = dict(zip(moves, zip(*ends, strict=True), strict=True))
        lower, upper = self.criterion.combine_folds([s.lower for s in found], [s.upper for s in found])
        return Screened(lower, upper, np.sum([s.certain for s in found], axis=0), stage)

    def _screen_at_once(self, moves: Sequence[Move], budget: Budget, contest: Contest | None) -> list[Screened] | None:
        """The bounds of every fold, from steps of all candidates in all folds at once; None where these leave many open."""
        data, criterion = self.data, self.criterion
        assert data is not None
        chosen, moves = self._models[0].chosen, MoveList.of(moves)
        # Columns that leave wide data are followed in the dimension of its rows.
        is_wide = chosen.size > data.n_rows and not moves.add.all()
        single = moves.sizes == 1
        if chosen.size > data.max_columns or is_wide or not single.any():
            return None
        contest = self._contest(moves) if contest is None else contest
        offset, share = contest.lower.size - len(moves), 0.05 * criterion.resolution
        share = ROUGH if np.isinf(contest.resolution) else share
        sums = FoldSums(self, len(moves), share)

        def settle(places: Columns, *known: Evaluated) -> Zeros:
            budget.check()
            for here in known:
                sums.take(places, here)
                contest.settle(places + offset, *criterion.combine_folds(sums.lower[:, places], sums.upper[:, places]))
            low, high = contest.lower[places + offset], contest.upper[places + offset]
            open_ones = np.zeros(places.size, dtype=bool)
            if np.isinf(contest.resolution) or contest.winner is None:
                open_ones = contest.may_win[places + offset] & ~criterion.is_known(share, low, high)
            # The best one's value is shown, and is where the next step begins.
            best = places == int(contest.upper[offset:].argmin())
            return np.asarray(open_ones | (best & ~criterion.is_known(ROUGH, low, high)))

        present = data.pack([model.near for model in self._models])
        for add in (False, True):
            here = np.flatnonzero(single & (moves.add == add))
            if not here.size:
                continue
            before = next((family for family in self._before if family.add == add), None)
            family = FoldColumns(data, chosen, present, moves.first[here], add, before)
            family.run(lambda places, *known, here=here: settle(here[places], *known))
            self._families.append(family)
        known = contest.winner is not None
        if not known and not single.all():
            # Groups are bounded one after the other in the metric of the present model, once it is known what they have to beat.
            groups = np.flatnonzero(~single)
            judges = [judge for judge in self.judges if isinstance(judge, ValidationJudge)]
            found, _ = self._screen_together(judges, moves.take(groups), budget, contest, groups + offset)
            for k, part in enumerate(found):
                sums.lower[k, groups], sums.upper[k, groups] = part.lower, part.upper
                sums.certain[k, groups] = part.certain
            known = contest.winner is not None
        left = contest.may_win[offset:] & ~criterion.is_known(share, contest.lower[offset:], contest.upper[offset:])
        if not known and np.count_nonzero(left) > MAX_LEFT:
            return None
        return [Screened(*parts, "newton") for parts in zip(sums.lower, sums.upper, sums.certain, strict=True)]

    @property
    def _models(self) -> list[Model]:
        return [judge.model for judge in self.judges if isinstance(judge, ValidationJudge)]

    def _contest(self, moves: Sequence[Move]) -> Contest:
        return Contest(np.full(len(moves), self.criterion.least), np.full(len(moves), np.inf), 0.0)

    def _keep(self, move: Move) -> None:
        """Let the judges of the folds begin with the models that were found at once."""
        for family in self._families:
            is_here = len(move.columns) == 1 and family.add == move.add
            place = np.flatnonzero(family.columns == move.columns[0])[: int(is_here)]
            for judge, point in zip(self.judges, family.points(int(place[0])) if place.size else (), strict=False):
                assert isinstance(judge, ValidationJudge) and isinstance(judge.screening, ColumnFamilies)
                if point is not None:
                    judge.screening.keep(move, point)

    def _screen_together(
        self,
        judges: list[ValidationJudge],
        moves: Sequence[Move],
        budget: Budget,
        contest: Contest | None,
        ranks: Columns | None = None,
    ) -> tuple[list[Pending], str]:
        """The bounds of every fold; all are bounded once before any is bounded more tightly, so that it is known what matters."""
        contest, moves = self._contest(moves) if contest is None else contest, MoveList.of(moves)
        found = [Pending(judge, moves, contest, budget, self.criterion.combine_folds, ranks) for judge in judges]
        for pending in found:
            pending.folds = found
        working = [judge.screening.bound(moves, part) for judge, part in zip(judges, found, strict=True)]
        stages = [next(bounds) for bounds in working]
        for bounds in working:
            for _ in bounds:
                pass
        return found, stages[0]

    def refine(self, move: Move, goal: Goal) -> Value:
        self._keep(move)
        known = self._screened.get(move, [(0.0, np.inf)] * len(self.judges))
        parts = [Value(low, high, "carry", high) for low, high in known]
        for k, judge in enumerate(self.judges):
            if parts[k].upper <= parts[k].lower:
                continue
            parts[k] = judge.refine(move, replace(goal, combine=partial(self._combine, parts, k)))
            whole = self._add(parts)
            if goal.is_reached(whole.lower, whole.upper):
                break
        return self._add(parts)

    def find_ties(self, moves: Sequence[Move], budget: Budget) -> list[int]:
        labels = np.array([judge.find_ties(moves, budget) for judge in self.judges])
        # Equal sums are claimed only where all folds agree.
        agreed = np.all(labels == labels[0], axis=0)
        return np.where(agreed, labels[0], len(moves) + 1 + np.arange(len(moves))).tolist()

    def after(self, move: Move) -> "FoldsJudge":
        self._keep(move)
        return FoldsJudge([judge.after(move) for judge in self.judges], self.criterion, self.data, self._families)

    def _add(self, parts: list[Value]) -> Value:
        stages = ("training", "loocv", "refine", "newton", "carry")
        stage = min((part.stage for part in parts), key=stages.index)
        lower, upper, guesses = (
            np.array([getattr(part, name) for part in parts]) for name in ("lower", "upper", "guess")
        )
        low, high = self.criterion.combine_folds(lower, upper)
        return Value(float(low), float(high), stage, float(self.criterion.combine_folds(guesses, guesses)[1]))

    def _combine(self, parts: list[Value], k: int, lower: float, upper: float) -> tuple[float, float]:
        """Bounds of the value, with these bounds of fold ``k``."""
        lows, highs = [part.lower for part in parts], [part.upper for part in parts]
        lows[k], highs[k] = lower, upper
        return self.criterion.combine_folds(np.array(lows), np.array(highs))
