"""The search of a stepwise selection: step after step until none is better."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru._options import Budget, CriterionName, Direction, OutOfTime, SearchMethod
from glru.cascade import Report, reporter
from glru.changes import locate_columns, match_columns, read_layout
from glru.linalg import FEW, Array, Matrix, calm_blas, subtracts_exactly
from glru.losses import WithOffset
from glru.model_selection.checkpoint import Checkpoint, Steps
from glru.model_selection.cross_validation import is_leave_one_out, split_in_memory
from glru.problem import Point, Problem, make_memory_error, require_problem
from glru.selection.classes import ClassJudge, ClassRows, require_judge
from glru.selection.contest import Contest, Goal, decide
from glru.selection.criteria import Criterion, find_criterion
from glru.selection.judge import (
    ROUGH,
    FoldsJudge,
    Judge,
    Screened,
    ValidationJudge,
    ValidationRows,
    Value,
)
from glru.selection.left_out import LeaveOneOutJudge
from glru.selection.moves import Columns, Model, Move, MoveList
from glru.selection.result import Step, StepwiseResult
from glru.solution import Solution, find_exact_shifts
from glru.updates.columns import FoldData, has_fold_columns
from glru.updates.local_rows import require_local

MOST_COLUMNS = 100
"""Columns of problems up to which all moves are judged by validation rows as they are in folds; with more, Hessians of their own cost more than it saves."""

MOST_ENTRIES = 1_000_000, 5_000
"""The largest number of entries of such problems: with more, sums over the moves of the scores cost less; the second one where these need no pass over the rows."""

LARGEST_NORM = 100.0
"""Norm of rows in the inverse metric of the penalty up to which that is tried: beyond it rounding leaves so much open that the work is done twice."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Settings:
    """How to search; every option but one is that of :func:`glru.stepwise`, and checked as far as no data is needed.

    ``criterion``: None for the usual one of the loss. ``gain``: stop before a step, the first one excepted, that makes the criterion
    less by less than this. ``fold_means``: the criterion is the mean over folds of their means, as in scikit-learn, not that over all rows; accuracies tie where scikit-learn's averages in float64 are equal; with ``fold_means="r2"`` squared errors are divided by the sums of squares around the mean of each fold instead. ``folds``: the problems of the splits in ``cv`` and the places of their test rows, where they differ in more than weights.
    """

    direction: Direction = "backward"
    method: SearchMethod = "certified"
    criterion: CriterionName | None = None
    max_steps: int | None = None
    min_features: int = 1
    max_features: int | None = None
    forced: bool = False
    gain: float | None = None
    fold_means: bool | Literal["r2"] = False
    groups: Sequence[Any] | None = None
    keep: Sequence[Any] = ()
    cv: Any = None
    folds: Sequence[tuple[Problem, NDArray[np.intp]]] | None = None
    tol: float = 1e-6
    max_seconds: float | None = None
    checkpoint: str | Path | None = None
    progress: bool | Report = False

    def __post_init__(self) -> None:
        if self.forced and self.direction == "both":
            raise ValueError(
                "forced=True continues whatever the criterion says, which never ends with direction='both'."
            )


def start_of(problem: Any, X_val: Any, y_val: Any, settings: Settings) -> tuple[Problem, Point | None, Any]:
    """The problem that was given, if it can be judged, its model, if that was given, and the validation rows.

    From columns far from zero numbers near their means are subtracted, where float64 does so exactly: see :func:`glru.solution.shift_columns`.
    """
    start = problem.point if isinstance(problem, Solution) else None
    problem = problem.problem if isinstance(problem, Solution) else problem
    require_problem(problem)
    if problem.loss.several:
        require_judge(problem, settings.method)
    shifts = find_exact_shifts(problem) if settings.method == "certified" and settings.folds is None else None
    if shifts is None:
        return problem, start, X_val
    X = problem.matrix.dense()
    # A constant column of zeros would hide that it and the intercept are the same.
    shifts[np.ptp(X, axis=0) == 0.0] = 0.0
    if X_val is not None and y_val is not None:
        X_val = validation_rows(problem, X_val, y_val)[0].dense()
        shifts[~subtracts_exactly(X_val, shifts)] = 0.0
        X_val = X_val - shifts
    if start is not None:
        start = Point(start.coef, start.intercept + start.coef @ shifts, start.dual)
    return problem.derive(X=X - shifts), start, X_val


@np.errstate(all="ignore")
def search(problem: Problem | Solution, X_val: Any, y_val: Any, settings: Settings) -> StepwiseResult:
    """Search stepwise from a problem or its solution; see :func:`glru.stepwise`."""
    problem, near, X_val = start_of(problem, X_val, y_val, settings)
    budget = Budget(settings.max_seconds)
    usual = "error" if problem.loss.task == "classification" else None
    criterion = find_criterion(settings.criterion or usual, problem)
    if settings.checkpoint is not None and not problem.in_memory:
        raise make_memory_error(problem, "checkpoint")
    if settings.cv is not None and settings.folds is None and problem.in_memory and is_leave_one_out(settings.cv):
        settings = replace(settings, cv=None)
    if settings.cv is not None and problem.in_memory:
        settings = replace(settings, folds=folds_of(problem, settings))
    if settings.fold_means and settings.folds is not None:
        sizes = tuple(test.size for _, test in settings.folds)
        criterion = replace(criterion, fold_sizes=sizes) if criterion.counts else criterion
    moving = list_movable_groups(problem, settings)
    start = np.arange(problem.n_columns)
    if settings.direction == "forward":
        start = np.setdiff1d(start, np.concatenate([np.empty(0, dtype=np.intp), *moving]))
    with reporter(settings.progress) as report, calm_blas(problem.work if problem.in_memory else 0.0):
        judge = make_judge(problem, near, start, X_val, y_val, criterion, settings, budget)
        walk = Walk(problem, judge, start, moving, criterion, settings, budget)
        if settings.checkpoint is not None:
            walk.resume(Checkpoint(settings.checkpoint), _describe_search(problem, X_val, y_val, moving, settings))
            if walk.path:
                walk.judge = make_judge(problem, None, walk.chosen, X_val, y_val, criterion, settings, budget)
        walk.run(report)
    return walk.result()


def _describe_search(
    problem: Problem, X_val: Any, y_val: Any, moving: list[Columns], settings: Settings
) -> tuple[Any, ...]:
    """All that decides a path, but for where it ends."""
    rows: list[Any] = [] if settings.folds is None else [part for fold in settings.folds for part in fold]
    if X_val is not None and y_val is not None:
        X, y = validation_rows(problem, X_val, y_val)
        rows = [*X.parts.values(), y]
    names = ("direction", "method", "criterion", "min_features", "max_features", "forced", "gain", "fold_means", "tol")
    kind = "stepwise by average scores" if settings.fold_means else "stepwise"
    return (kind, problem, rows, moving, *(getattr(settings, name) for name in names))


@final
class Walk:
    """A search under way: the judge of the present columns and the path so far."""

    def __init__(
        self,
        problem: Problem,
        judge: Judge,
        start: Columns,
        moving: list[Columns],
        criterion: Criterion,
        settings: Settings,
        budget: Budget,
    ) -> None:
        self.problem, self.judge, self.start, self.n_rows = problem, judge, start, judge.n_rows
        self.criterion, self.settings, self.budget = criterion, settings, budget
        self._first = np.array([group[0] for group in moving], dtype=np.intp)
        self._sizes = np.array([group.size for group in moving], dtype=np.intp)
        columns = [tuple(group.tolist()) for group in moving]
        # Columns that leave, then those that come.
        self._every = MoveList(2 * columns, np.arange(2 * len(columns)) >= len(columns))
        self.value = self.first = Value(0.0, np.inf, "undetermined", np.inf)
        self.chosen, self.visited = start, {start.tobytes()}
        self.path: list[Step] = []
        self._n_kept = 0
        self.interrupted = False
        self.checkpoint: Checkpoint | None = None
        self.done: Steps = []

    def resume(self, checkpoint: Checkpoint, settings: tuple[Any, ...]) -> None:
        """Take the steps that a checkpoint holds; those to come are kept there."""
        self.checkpoint, self.done = checkpoint, checkpoint.steps(*settings)
        most = self.settings.max_steps
        for numbers, table in self.done[: None if most is None else most + 1]:
            if numbers.shape != (len(NUMBERS) + len(STAGES),) or len(table) != 1 + len(TABLE):
                raise checkpoint.make_misfit_error()
            known = dict(zip((*NUMBERS, *STAGES), numbers.tolist(), strict=True))
            if not all(known[name] >= 0.0 for name in ("n_open", *STAGES)):
                raise checkpoint.make_misfit_error()
            value = Value(known["lower"], known["upper"], "newton", known["guess"])
            if self.first.stage == "undetermined":
                self.value = self.first = value
                continue
            moves, place = self._moves(), known["place"]
            kept = table[0].astype(np.intp)
            if len(moves) != known["n_moves"] or place not in range(-1, len(moves)) or np.any(kept != table[0]):
                raise checkpoint.make_misfit_error()
            if np.any((kept < 0) | (kept >= len(moves)) | (np.diff(kept, prepend=-1) <= 0)):
                raise checkpoint.make_misfit_error()
            move = None if place < 0 else moves[int(place)]
            counts = {stage: int(known[stage]) for stage in STAGES if known[stage] > 0.0}
            step = _make_step(self.problem, moves, kept, move, known, counts, table[1:])
            self.path.append(step)
            if move is not None:
                self.value, self.chosen = value, move.apply(self.chosen)
                self._visit(self.chosen)

    def _keep(self, place: int, step: Step | None = None, kept: Columns | None = None) -> None:
        """Keep a step, or the value of the start, in the checkpoint; ``kept``: the candidates that the step has bounds of."""
        if self.checkpoint is None:
            return
        n_moves, value = 0 if step is None else step.n_candidates, self.value
        numbers = [n_moves, place, value.lower, value.upper, value.guess]
        table = np.empty((1 + len(TABLE), 0))
        if step is None:
            numbers += [0.0] * (len(NUMBERS) + len(STAGES) - len(numbers))
        else:
            numbers += [step.value_lower, step.value_upper, step.n_open, step.seconds]
            numbers += [step.decided_by.get(stage, 0) for stage in STAGES]
            table = np.array([kept, *(getattr(step, name) for name in TABLE)], dtype=np.float64)
        self.done.append((np.array(numbers, dtype=np.float64), table))
        self.checkpoint.save_in_time()

    def run(self, report: Report) -> None:
        """Make steps until no move is better, a limit is reached or somebody interrupts."""
        most, n_rows = self.settings.max_steps, self.n_rows
        ended = bool(self.path) and self.path[-1].action == "stop"
        try:
            if self.first.stage == "undetermined":
                self.value = self.first = self.judge.value()
                self._keep(-1)
            while not ended and (most is None or len(self.path) < most) and self._step():
                value = self.criterion.mean_bounds(self.value.lower, self.value.upper, n_rows)[1]
                report(f"{self.criterion.name} {value:.4g}", len(self.path), self.chosen.size)
        except (KeyboardInterrupt, OutOfTime):
            # In the midst of a step: what counts is the path.
            self.interrupted, self.chosen = True, self.start
            for step in self.path:
                if step.columns:
                    self.chosen = Move(step.columns, add=step.action == "add").apply(self.chosen)
        finally:
            if self.checkpoint is not None:
                self.checkpoint.save()

    def _step(self) -> bool:
        """Make one step; whether there may be another."""
        moves = self._moves()
        if not moves:
            return False
        self.budget.check()
        contest = StepContest(self.judge, moves, self.value, self.criterion, self.settings, self.budget)
        move, known = contest.decide()
        if move is None:
            self._take(contest, None)
            return False
        ahead = move.apply(self.chosen)
        if self.settings.direction == "both" and ahead.tobytes() in self.visited:
            # Every step makes the criterion less, so columns that come back were told apart by noise alone.
            return False
        is_last = len(self.path) + 1 == self.settings.max_steps and self.settings.method == "certified"
        # No further step needs the models that the last one leads to.
        judge = self.judge if is_last else self.judge.after(move)
        value = known or (judge.refine(move, Goal(budget=self.budget, rough=True)) if is_last else judge.value())
        if self.path and not self._is_worth(value, contest):
            self._take(contest, None)
            return False
        self._visit(ahead)
        self.chosen, self.judge, self.value = ahead, judge, value
        self._take(contest, move)
        return True

    def _visit(self, chosen: Columns) -> None:
        """Remember columns that the search may come back to."""
        if self.settings.direction == "both":
            self.visited.add(chosen.tobytes())

    def _take(self, contest: "StepContest", move: Move | None) -> None:
        """Take a step into the path, and keep it."""
        kept = np.arange(len(contest.moves))
        self._n_kept += kept.size
        if self._n_kept > MAX_KEPT:
            kept = contest.looked_into
        self.path.append(contest.record(self.problem, move, self.value, kept))
        self._keep(contest.place, self.path[-1], kept)

    def _is_worth(self, value: Value, contest: "StepContest") -> bool:
        """Whether a step makes the criterion less by what is asked for; where that is not proven, its values decide and it is marked."""
        if self.settings.gain is None:
            return True
        scale, gain = self.n_rows if self.criterion.counts else 1, self.settings.gain
        if (
            self.criterion.fold_sizes is not None
            and value.lower == value.upper
            and self.value.lower == self.value.upper
        ):
            # The comparison of scikit-learn, in its numbers.
            return self.value.lower - value.lower >= gain
        ends = [self.criterion.mean_bounds(one.lower, one.upper, self.n_rows) for one in (self.value, value)]
        (old_low, old_high), (low, high) = ends
        # Two roundings.
        least, most = (old_low - high) / scale, (old_high - low) / scale
        least, most = least - FEW * (abs(old_low) + abs(high)) / scale, most + FEW * (abs(old_high) + abs(low)) / scale
        if least >= gain or most < gain:
            return bool(least >= gain)
        if most - least > FEW * 4.0 * (abs(old_high) + abs(high)) / scale:
            contest.n_open += 1
        return bool(0.5 * (least + most) >= gain)

    def _moves(self) -> MoveList:
        """All moves in the order in which ties are broken: by their lowest column."""
        settings, size = self.settings, self.chosen.size
        here = np.zeros(self.problem.n_columns, dtype=bool)
        here[self.chosen] = True
        here = here[self._first]
        most = self.problem.n_columns if settings.max_features is None else settings.max_features
        leave = here & (settings.direction != "forward") & (size - self._sizes >= settings.min_features)
        come = ~here & (settings.direction != "backward") & (size + self._sizes <= most)
        places = np.flatnonzero(leave | come)
        return self._every.take(places + self._first.size * come[places])

    def result(self) -> StepwiseResult:
        """What was found."""
        chosen, names, n_rows = self.chosen, self.problem.column_names, self.n_rows
        return StepwiseResult(
            selected=chosen,
            names=None if names is None else tuple(names[j] for j in chosen),
            path=tuple(self.path),
            start_value=self.criterion.mean_bounds(self.first.lower, self.first.upper, n_rows),
            direction=self.settings.direction,
            method=self.settings.method,
            criterion=self.criterion.name,
            interrupted=self.interrupted,
            n_rows=n_rows,
        )


@final
class StepContest:
    """One step: its candidates, the present columns first unless a move is forced, and what is known about their values."""

    def __init__(
        self,
        judge: Judge,
        moves: MoveList,
        value: Value,
        criterion: Criterion,
        settings: Settings,
        budget: Budget,
    ) -> None:
        self.begin = time.perf_counter()
        self.judge, self.moves, self.value, self.criterion, self.budget = judge, moves, value, criterion, budget
        self.naive = settings.method == "naive"
        self.offset = 0 if settings.forced else 1
        ends = (value.guess, value.guess) if self.naive else (value.lower, value.upper)
        # A move that is better by the rounding of an average is not better.
        ends = ends[0] - criterion.noise, ends[1] - criterion.noise
        lower = np.concatenate([[ends[0]] * self.offset, np.full(len(moves), criterion.least)])
        upper = np.concatenate([[ends[1]] * self.offset, np.full(len(moves), np.inf)])
        self.contest = Contest(lower, upper, criterion.width(criterion.resolution, value.guess))
        self.screened = Screened.unknown(len(moves), "training", criterion.least)
        if not self.naive:
            self.screened = judge.screen(moves, budget, self.contest)
            self.contest.settle(slice(self.offset, None), self.screened.lower, self.screened.upper)
        self.stages: dict[int, str] = {}
        self.n_open = 0
        self.looked_at: set[int] = set()

    def decide(self) -> tuple[Move | None, Value | None]:
        """The best move (None: no move is better), and its value if that is proven."""
        if self.naive:
            for place in range(self.offset, self.offset + len(self.moves)):
                self.contest.fix(place, self._refine(place)[2])
        winner, self.n_open = decide(self.contest, self._refine, self._find_ties)
        self.seconds = time.perf_counter() - self.begin
        self.place = winner - self.offset
        low, high = float(self.contest.lower[winner]), float(self.contest.upper[winner])
        proven = not self.naive and self.n_open == 0 and self.criterion.is_known(ROUGH, low, high)
        move = self.moves[self.place] if self.place >= 0 else None
        return move, Value(low, high, "newton", high) if proven else None

    def _refine(self, place: int) -> tuple[float, float, float]:
        """Bounds of a candidate's value that decide whether it wins, or as tight as they get, and a guess."""
        self.budget.check()
        if place < self.offset:
            value = self.judge.value(thorough=True)
            noise = self.criterion.noise
            return value.lower - noise, value.upper - noise, value.guess - noise
        first = place not in self.looked_at
        self.looked_at.add(place)
        goal = Goal(None if self.naive else self.contest, place, self.budget, rough=first)
        value = self.judge.refine(self.moves[place - self.offset], goal)
        self.stages[place - self.offset] = value.stage
        return value.lower, value.upper, value.guess

    def _find_ties(self) -> list[int]:
        """Labels of equal values, of the candidates that may have the least one."""
        contest, labels = self.contest, np.arange(1, self.contest.lower.size + 1)
        here = np.flatnonzero(contest.lower <= contest.upper.min() + contest.resolution)
        here = here[here >= self.offset]
        labels[: self.offset] = 0
        ties = np.array(self.judge.find_ties([self.moves[k - self.offset] for k in here], self.budget), dtype=np.intp)
        labels[here] = np.where(ties > 0, ties + labels.size, 0)
        return labels.tolist()

    @property
    def looked_into(self) -> Columns:
        """The candidates whose values have an upper bound: those that first lower bounds did not rule out."""
        return np.flatnonzero(np.isfinite(self.contest.upper[self.offset :]))

    def record(self, problem: Problem, move: Move | None, value: Value, kept: Columns) -> Step:
        """The step for the path, with the bounds of some candidates; ``value``: after the move."""
        n_rows, bounds = self.judge.n_rows, self.criterion.mean_bounds
        low, high = bounds(value.lower, value.upper, n_rows)
        known = {"value_lower": low, "value_upper": high, "n_open": self.n_open, "seconds": self.seconds}
        first = Counter({self.screened.stage: len(self.moves) - len(self.stages)})
        counts = dict(first + Counter(self.stages.values()))
        ends = bounds(self.contest.lower[self.offset :], self.contest.upper[self.offset :], n_rows)
        screened = bounds(self.screened.lower, self.screened.upper, n_rows)
        table = [np.asarray(part)[kept] for part in (*ends, *screened, self.screened.certain)]
        return _make_step(problem, self.moves, kept, move, known, counts, table)


MAX_KEPT = 2_000_000
"""The largest number of candidates, over all steps of a path, whose bounds are kept; of later steps only those are kept that first lower bounds did not rule out."""

STAGES = ("carry", "newton", "refine", "loocv", "training")
"""What decides a candidate."""

NUMBERS = ("n_moves", "place", "lower", "upper", "guess", "value_lower", "value_upper", "n_open", "seconds")
TABLE = ("lower", "upper", "first_lower", "first_upper", "first_certain")
"""What a checkpoint keeps for a step: the index of its move (-1: none), the sum after it, and the indices of candidates with their bounds."""


def _make_step(
    problem: Problem,
    moves: MoveList,
    kept: Columns,
    move: Move | None,
    known: dict[str, float],
    counts: dict[str, int],
    table: Sequence[Array] | Array,
) -> Step:
    """One step for the path, from what is known about it and of its candidates."""
    columns = () if move is None else move.columns
    names: tuple[Any, ...] = columns
    if problem.column_names is not None:
        names = tuple(problem.column_names[j] for j in columns)
    lower, upper, first_lower, first_upper, first_certain = table
    return Step(
        action="stop" if move is None else move.action,
        columns=columns,
        feature=names[0] if len(names) == 1 else names,
        value_lower=known["value_lower"],
        value_upper=known["value_upper"],
        n_candidates=len(moves),
        n_trainings=counts.get("training", 0),
        n_open=int(known["n_open"]),
        decided_by=counts,
        seconds=known["seconds"],
        candidates=moves.show(kept),
        lower=lower,
        upper=upper,
        first_lower=first_lower,
        first_upper=first_upper,
        first_certain=first_certain,
    )


def make_judge(
    problem: Problem,
    near: Point | None,
    chosen: Columns,
    X_val: Any,
    y_val: Any,
    criterion: Criterion,
    settings: Settings,
    budget: Budget,
) -> Judge:
    """What judges some columns: validation rows, folds, or the rows themselves, all of them or one left out at a time."""
    method, tol = settings.method, settings.tol
    if not problem.in_memory:
        require_local(problem, "stepwise")
        if method != "certified" or settings.cv is not None or X_val is None or y_val is None:
            raise ValueError(
                "stepwise of rows in blocks has method='certified' and judges on validation rows in memory; "
                f"got method={method!r}, cv={settings.cv!r}, X_val={'None' if X_val is None else 'rows'}. "
                "Give X_val and y_val."
            )
    if (X_val is None) != (y_val is None):
        raise ValueError("X_val and y_val go together; got only one of them.")
    if X_val is not None and settings.cv is not None:
        raise ValueError("give validation rows or cv, not both.")
    if criterion.price is not None and (X_val is not None or settings.cv is not None):
        raise ValueError(f"the criterion {criterion.name!r} judges on the training rows; give neither X_val nor cv.")
    start = near if chosen.size == problem.n_columns else None
    if chosen.size == 0 and not problem.in_memory:
        start = Point(np.zeros(0))
    if criterion.price is not None:
        rows = ValidationRows(problem, problem.matrix, problem.y, criterion, problem.sample_weight)
        return ValidationJudge(Model(problem, chosen, tol, start, budget), rows, method)
    if X_val is not None:
        asked = validation_rows(problem, X_val, y_val)
        judge = _judge_rows(Model(problem, chosen, tol, start, budget), *asked, criterion, method)
        if not (method == "certified" and isinstance(judge, ValidationJudge) and asked[1].size):
            return judge
        many = problem.n_rows * problem.n_columns > MOST_ENTRIES[problem.loss.self_concordance == 0.0]
        too_wide = problem.n_columns > min(problem.n_rows, MOST_COLUMNS)
        if many or too_wide or not has_fold_columns([problem], chosen.size):
            return judge
        squares = np.square(problem.matrix.dense()) @ (problem.weights.max() / problem.quadratic)
        if not squares.max() <= LARGEST_NORM**2:
            return judge
        # Validation rows are the test rows of one fold, which the problem does not have.
        data = FoldData([problem], [problem.n_rows + np.arange(asked[1].size)], budget, asked)
        return FoldsJudge([judge], criterion, data) if data.usable else judge
    if settings.cv is None:
        return LeaveOneOutJudge(Model(problem, chosen, tol, start, budget), criterion, method)
    judges = []
    folds = folds_of(problem, settings)
    sizes = [test.size for _, test in folds]
    weighted = settings.fold_means == "r2" or (settings.fold_means and not criterion.counts and len(set(sizes)) > 1)
    own = replace(criterion, fold_sizes=None)
    for fold, test in folds:
        model = Model(fold, chosen, tol, budget=budget)
        divisor = (
            float(np.square(fold.y[test] - fold.y[test].mean()).sum()) if settings.fold_means == "r2" else test.size
        )
        if divisor == 0.0:
            raise ValueError("'r2' needs test rows with different targets in every fold. Use squared errors.")
        weights = np.full(test.size, sum(sizes) / (len(sizes) * divisor)) if weighted else None
        judges.append(_judge_rows(model, fold.matrix[test], fold.y[test], own, method, weights))
    problems, tests = [problem for problem, _ in folds], [test for _, test in folds]
    if not (method == "certified" and all(sizes) and has_fold_columns(problems, chosen.size)):
        return FoldsJudge(judges, criterion)
    data = FoldData(problems, tests, budget)
    return FoldsJudge(judges, criterion, data if data.usable else None)


def _judge_rows(
    model: Model, X: Matrix, y: Any, criterion: Criterion, method: str, weights: Array | None = None
) -> Judge:
    """The judge of validation rows, with one score or one per class."""
    if model.whole.loss.several:
        return ClassJudge(model, ClassRows(model.whole, X, y, criterion, weights), method)
    return ValidationJudge(model, ValidationRows(model.whole, X, y, criterion, weights), method)


def folds_of(problem: Problem, settings: Settings) -> list[tuple[Problem, NDArray[np.intp]]]:
    """The problems of all splits and their test rows."""
    return list(_split(problem, settings.cv) if settings.folds is None else settings.folds)


def _split(problem: Problem, cv: Any) -> Iterator[tuple[Problem, NDArray[np.intp]]]:
    """The problems of all splits, in which only the train rows have weight, and their test rows."""
    for train, test in split_in_memory(problem, cv, None):
        weight = np.zeros(problem.n_rows)
        np.add.at(weight, train, problem.sample_weight[train])
        yield problem.derive(sample_weight=weight), test


def validation_rows(problem: Problem, X_val: Any, y_val: Any) -> tuple[Matrix, Array]:
    """Validation rows in the columns of a problem, and their targets in its terms."""
    X, names = _inputs.as_matrix(X_val, "X_val")
    if X.shape[1] != problem.n_columns:
        raise ValueError(f"X_val must have the {problem.n_columns} columns of the problem; got {X.shape[1]}.")
    X = match_columns(X, names, problem.column_names)
    X = problem.matrix.bring(X) if problem.in_memory else X
    if isinstance(problem.loss, WithOffset):
        raise ValueError(
            "the problem has offsets, which validation rows cannot have. Use cv instead of X_val and y_val."
        )
    if problem.loss.task == "regression":
        y = _inputs.as_vector(y_val, X.shape[0], "y_val")
        problem.loss.check_targets(y)
        return X, y
    labels = _inputs.as_array(y_val, "y_val")
    if labels.shape != (X.shape[0],):
        raise ValueError(
            f"y_val must have one entry per row of X_val, shape ({X.shape[0]},); got shape {labels.shape}."
        )
    assert problem.classes is not None
    unknown = ~np.isin(labels, problem.classes)
    if unknown.any():
        raise ValueError(
            f"y_val must hold the classes of the problem, {problem.classes.tolist()}; got {labels[unknown][0]!r}."
        )
    if problem.loss.several:
        return X, np.searchsorted(problem.classes, labels)  # type: ignore[return-value]
    return X, np.where(labels == problem.classes[1], 1.0, -1.0)


def list_movable_groups(problem: Problem, settings: Settings) -> list[Columns]:
    """The groups of columns that leave and come together, in the order of their lowest column, without those that stay."""
    groups = list_column_groups(problem, settings.groups)
    if not len(settings.keep):
        return groups
    stays = np.isin(np.arange(problem.n_columns), locate_columns(settings.keep, read_layout(problem)))
    return [group for group in groups if not stays[group].any()]


def list_column_groups(problem: Problem, groups: Sequence[Any] | None) -> list[Columns]:
    """The groups in the order of their lowest column; every column is in exactly one."""
    n_columns = problem.n_columns
    if groups is None:
        return list(np.arange(n_columns)[:, None])
    if len(groups) and all(isinstance(group, (list, np.ndarray)) for group in groups):
        found = [np.sort(locate_columns(group, read_layout(problem))) for group in groups]
        named = np.concatenate(found)
        if np.unique(named).size != named.size:
            raise ValueError("a column can be in one group only; some are in several.")
        found += [np.array([j]) for j in np.setdiff1d(np.arange(n_columns), named)]
    else:
        labels = list(groups)
        if len(labels) != n_columns:
            raise ValueError(
                f"groups must have one label per column, {n_columns} of them, or be a list of lists of columns; "
                f"got {len(labels)} labels."
            )
        places: dict[Any, list[int]] = {}
        for column, label in enumerate(labels):
            places.setdefault(label, []).append(column)
        found = [np.array(columns) for columns in places.values()]
    return sorted(found, key=lambda group: int(group[0]))
