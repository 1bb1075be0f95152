"""The search of a stepwise selection: step after step until none is better."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru._budget import Budget, OutOfTime
from glru.cascade import Report, reporter
from glru.changes.base import matched_columns
from glru.linalg import FEW, Array, Matrix, calm_blas
from glru.model_selection.cross_validation import splits_in_memory
from glru.point import Point
from glru.problem import Problem
from glru.selection.blocks import BlockJudge
from glru.selection.contest import Contest, decide
from glru.selection.criteria import Criterion, checked_criterion
from glru.selection.groups import column_groups, kept_columns
from glru.selection.judge import Judge, Model, Move, Screened, Worth
from glru.selection.panel import LeaveOneOutJudge, Panel
from glru.selection.result import Step, StepwiseResult
from glru.selection.validation import ValidationJudge
from glru.solution import Solution
from glru.solvers import solve
from glru.updates.local_rows import require_local

Columns = NDArray[np.intp]


@np.errstate(all="ignore")
def search(
    problem: Problem | Solution,
    X_val: Any = None,
    y_val: Any = None,
    direction: Literal["backward", "forward", "both"] = "backward",
    method: Literal["certified", "glru", "naive"] = "certified",
    criterion: Literal["error", "log_loss", "mse"] = "error",
    max_steps: int | None = None,
    min_features: int = 1,
    max_features: int | None = None,
    forced: bool = False,
    groups: Sequence[Any] | None = None,
    keep: Sequence[Any] = (),
    cv: Any = None,
    tol: float = 1e-6,
    progress: bool | Report = False,
    max_seconds: float | None = None,
) -> StepwiseResult:
    """The search itself; see :func:`glru.stepwise`."""
    solution = problem if isinstance(problem, Solution) else None
    problem = problem.problem if isinstance(problem, Solution) else problem
    _check(problem, direction, method, forced, min_features, max_features, max_steps)
    budget = Budget(max_seconds)
    signs = problem.in_memory and problem.loss.task == "regression" and bool(np.all(np.abs(problem.y) == 1.0))
    rule = checked_criterion(criterion, problem.loss, signs)
    sets = column_groups(problem, groups)
    kept = kept_columns(problem, keep)
    stays = np.isin(np.arange(problem.n_columns), kept)
    moving = [group for group in sets if not stays[group].any()]
    start = np.arange(problem.n_columns)
    if direction == "forward":
        start = np.setdiff1d(start, np.concatenate([np.empty(0, dtype=np.intp), *moving]))
    most = problem.n_columns if max_features is None else max_features
    removals = [Move(tuple(group.tolist()), add=False) for group in moving]
    additions = [Move(move.columns, add=True) for move in removals]
    steps: list[Step] = []
    interrupted = False
    with reporter(progress) as report, calm_blas(problem.work if problem.in_memory else 0.0):
        if problem.in_memory:
            judge = _judge(problem, solution, start, X_val, y_val, cv, rule, tol)
        else:
            judge = _judge_blocks(problem, solution, start, X_val, y_val, cv, rule, tol, method)
        value = judge.value()
        first_value, chosen, visited = value, start, {start.tobytes()}
        try:
            while max_steps is None or len(steps) < max_steps:
                moves = _moves(removals, additions, chosen, direction, min_features, most)
                if not moves:
                    break
                budget.check()
                step, move, known = _step(judge, moves, value, method, rule, forced, tol, budget)
                if move is None:
                    steps.append(step(problem, value, judge.n_rows, rule))
                    break
                changed = np.array(move.columns, dtype=np.intp)
                ahead = np.union1d(chosen, changed) if move.add else np.setdiff1d(chosen, changed)
                if ahead.tobytes() in visited:
                    # Every step makes the criterion less, so columns that come back were told apart by noise alone.
                    break
                visited.add(ahead.tobytes())
                chosen, judge = ahead, judge.after(move)
                value = judge.value() if known is None else known
                steps.append(step(problem, value, judge.n_rows, rule))
                report(
                    f"{rule.name} {_means(value.lower, value.upper, judge.n_rows, rule)[1]:.4g}",
                    len(steps),
                    chosen.size,
                )
        except (KeyboardInterrupt, OutOfTime):
            interrupted = True
            chosen = _replayed(start, steps)
    names = problem.column_names
    return StepwiseResult(
        selected=chosen,
        selected_names=None if names is None else tuple(names[j] for j in chosen),
        path=tuple(steps),
        start_value=_means(first_value.lower, first_value.upper, judge.n_rows, rule),
        direction=direction,
        method=method,
        criterion=criterion,
        interrupted=interrupted,
        n_rows=judge.n_rows,
    )


def _step(
    judge: Judge,
    moves: list[Move],
    value: Worth,
    method: str,
    rule: Criterion,
    forced: bool,
    tol: float,
    budget: Budget,
) -> tuple[Callable[..., Step], Move | None, Worth | None]:
    """Decide a step: how to record it once its value is known, the move (None: no move is best), and its worth if proven."""
    begin = time.perf_counter()
    screened = _unknown(len(moves)) if method == "naive" else judge.screen(moves, method, budget.check)
    stages = [screened.stage] * len(moves)
    offset = 0 if forced else 1
    resolution = rule.resolution * value.guess
    stay = (
        [value] * offset if method != "naive" else [Worth(value.guess, value.guess, "training", value.guess)] * offset
    )
    lower = np.concatenate([[worth.lower for worth in stay], screened.lower])
    upper = np.concatenate([[worth.upper for worth in stay], screened.upper])
    contest = Contest(lower, upper, resolution)

    def look(place: int) -> tuple[float, float, float]:
        budget.check()
        if place < offset:
            # The present model's bounds are as tight as they get.
            return value.lower, value.upper, value.guess

        def enough(low: float, high: float) -> bool:
            budget.check()
            return method != "naive" and contest.is_settled_by(place, low, high)

        worth = judge.look(moves[place - offset], enough, method, tol)
        stages[place - offset] = worth.stage
        return worth.lower, worth.upper, worth.guess

    if method == "naive":
        for place in range(offset, lower.size):
            contest.fix(place, look(place)[2])
    winner, vague = decide(contest, look, lambda: [0] * offset + judge.ties(moves, budget.check))
    move = moves[winner - offset] if winner >= offset else None
    seconds = time.perf_counter() - begin

    def record(problem: Problem, after: Worth, n_rows: int, rule: Criterion) -> Step:
        columns = () if move is None else move.columns
        low, high = _means(after.lower, after.upper, n_rows, rule)
        ends = _means(contest.lower[offset:], contest.upper[offset:], n_rows, rule)
        first = _means(screened.lower, screened.upper, n_rows, rule)
        return Step(
            action="stop" if move is None else _action(move),
            columns=columns,
            feature=_feature(problem, columns),
            value_lower=low,
            value_upper=high,
            n_candidates=len(moves),
            n_trainings=stages.count("training"),
            n_vague=vague,
            decided_by={stage: stages.count(stage) for stage in dict.fromkeys(stages)},
            seconds=seconds,
            candidates=tuple((_action(m), m.columns) for m in moves),
            lower=ends[0],
            upper=ends[1],
            first_lower=first[0],
            first_upper=first[1],
            first_certain=screened.certain,
        )

    low, high = float(contest.lower[winner]), float(contest.upper[winner])
    proven = method != "naive" and vague == 0 and high - low <= 0.1 * resolution
    return record, move, Worth(low, high, "newton", high) if proven else None


def _action(move: Move) -> str:
    return "add" if move.add else "remove"


def _feature(problem: Problem, columns: tuple[int, ...]) -> Any:
    names = columns if problem.column_names is None else tuple(problem.column_names[j] for j in columns)
    return names[0] if len(names) == 1 else names


def _unknown(n_moves: int) -> Screened:
    """Nothing known of any move."""
    return Screened(np.zeros(n_moves), np.full(n_moves, np.inf), np.zeros(n_moves), "training")


def _means(lower: Any, upper: Any, n_rows: int, rule: Criterion) -> tuple[Any, Any]:
    """Bounds of a criterion from bounds of its sum: themselves where it counts, else divided by the rows, rounded outward."""
    return (lower, upper) if rule.counts else (lower / n_rows * (1.0 - FEW), upper / n_rows * (1.0 + FEW))


def _moves(
    removals: list[Move], additions: list[Move], chosen: Columns, direction: str, min_features: int, max_features: int
) -> list[Move]:
    """All moves in the order in which ties are broken: by their lowest column."""
    found, members = [], set(chosen.tolist())
    for out, into in zip(removals, additions, strict=True):
        size = len(out.columns)
        if out.columns[0] in members:
            if direction != "forward" and chosen.size - size >= min_features:
                found.append(out)
        elif direction != "backward" and chosen.size + size <= max_features:
            found.append(into)
    return found


def _replayed(start: Columns, steps: list[Step]) -> Columns:
    chosen = start
    for step in steps:
        if step.action == "add":
            chosen = np.union1d(chosen, step.columns).astype(np.intp)
        elif step.action == "remove":
            chosen = np.setdiff1d(chosen, step.columns).astype(np.intp)
    return chosen


def _judge_blocks(
    problem: Problem,
    solution: Solution | None,
    chosen: Columns,
    X_val: Any,
    y_val: Any,
    cv: Any,
    rule: Criterion,
    tol: float,
    method: str,
) -> Judge:
    require_local(problem, "stepwise")
    if method != "certified" or cv is not None or X_val is None or y_val is None:
        raise ValueError(
            "stepwise of rows in blocks has method='certified' and judges on validation rows in memory; "
            f"got method={method!r}, cv={cv!r}, X_val={'None' if X_val is None else 'rows'}. Give X_val and y_val."
        )
    X, y = validation_rows(problem, X_val, y_val)
    start = Point(np.zeros(problem.n_columns))
    if chosen.size == problem.n_columns:
        start = (solve(problem, tol=tol) if solution is None else solution).point
    return BlockJudge(problem, chosen, X.dense(), y, rule, start)


def _judge(
    problem: Problem,
    solution: Solution | None,
    chosen: Columns,
    X_val: Any,
    y_val: Any,
    cv: Any,
    rule: Criterion,
    tol: float,
) -> Judge:
    if (X_val is None) != (y_val is None):
        raise ValueError("X_val and y_val go together; got only one of them.")
    if X_val is not None and cv is not None:
        raise ValueError("give validation rows or cv, not both.")
    start = solution.point if solution is not None and chosen.size == problem.n_columns else None
    if X_val is not None:
        X, y = validation_rows(problem, X_val, y_val)
        return ValidationJudge(Model(problem, chosen, tol, start), X, y, rule)
    if cv is None:
        return LeaveOneOutJudge(Model(problem, chosen, tol, start), rule)
    judges: list[Judge] = []
    for train, test in splits_in_memory(problem, cv, None):
        weight = np.zeros(problem.n_rows)
        np.add.at(weight, train, problem.sample_weight[train])
        fold = problem.derive(sample_weight=weight)
        judges.append(ValidationJudge(Model(fold, chosen, tol), problem.matrix[test], problem.y[test], rule))
    return Panel(judges, rule)


def validation_rows(problem: Problem, X_val: Any, y_val: Any) -> tuple[Matrix, Array]:
    """Validation rows in the columns of a problem, and their targets in its terms."""
    X, names = _inputs.as_matrix(X_val, "X_val")
    if X.shape[1] != problem.n_columns:
        raise ValueError(f"X_val must have the {problem.n_columns} columns of the problem; got {X.shape[1]}.")
    X = matched_columns(X, names, problem.column_names)
    X = problem.matrix.bring(X) if problem.in_memory else X
    if problem.loss.task == "regression":
        return X, _inputs.as_vector(y_val, X.shape[0], "y_val")
    labels = _inputs.as_array(y_val, "y_val")
    if labels.shape != (X.shape[0],):
        raise ValueError(f"y_val must have shape ({X.shape[0]},), one label a row of X_val; got {labels.shape}.")
    assert problem.classes is not None
    unknown = ~np.isin(labels, problem.classes)
    if unknown.any():
        raise ValueError(
            f"y_val must hold the classes of the problem, {problem.classes.tolist()}; got {labels[unknown][0]!r}."
        )
    return X, np.where(labels == problem.classes[1], 1.0, -1.0)


def _check(
    problem: Problem,
    direction: str,
    method: str,
    forced: bool,
    min_features: int,
    max_features: int | None,
    max_steps: int | None,
) -> None:
    if not isinstance(problem, Problem):
        raise TypeError(f"expected a glru.Problem; got {type(problem).__name__}.")
    if direction not in ("backward", "forward", "both"):
        raise ValueError(f"direction must be 'backward', 'forward' or 'both'; got {direction!r}.")
    if method not in ("certified", "glru", "naive"):
        raise ValueError(f"method must be 'certified', 'glru' or 'naive'; got {method!r}.")
    if forced and direction == "both":
        raise ValueError("forced=True goes on whatever the criterion says, which in both directions never ends.")
    if min_features < 1:
        raise ValueError(f"min_features must be at least 1; got {min_features!r}.")
    if max_features is not None and max_features < 1:
        raise ValueError(f"max_features must be at least 1; got {max_features!r}.")
    if max_steps is not None and max_steps < 0:
        raise ValueError(f"max_steps must be at least 0; got {max_steps!r}.")
