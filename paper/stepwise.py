"""Table 4: the first elimination of stepwise feature selection, for several splits into training and validation rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from glru.bounds import ScoreBounds, errors, margins
from glru.changes import RemoveColumns
from glru.linalg import Array, RawMatrix, as_matrix
from glru.problem import Point
from glru.selection import Settings as SearchSettings
from glru.selection import Step, search
from glru.solution import Solution
from glru.solvers import solve
from glru.updates.columns import carried_columns
from paper.configuration import Method
from paper.sources import Data
from paper.timing import Trainings, timed, trainings


@final
@dataclass(frozen=True)
class Settings:
    """The numbers of a run.

    Attributes
    ----------
    log2_lam : tuple of int
        Strengths of the penalty, as powers of two.
    tol : float
        Relative gap of every training.
    seeds : tuple of int
        Each shuffles the rows; the first tenth validates. Times are taken with the first seed.
    repeats : int
        Of how many runs the shortest time is taken.
    sample : int
        Columns whose trainings are timed.
    """

    log2_lam: tuple[int, ...]
    tol: float
    seeds: tuple[int, ...]
    repeats: int
    sample: int


@final
@dataclass(frozen=True, eq=False)
class Split:
    """Training and validation rows."""

    train: Data
    X_val: RawMatrix
    y_val: Array

    @classmethod
    def of(cls, data: Data, seed: int) -> "Split":
        """A tenth of the rows, rounded down, validates."""
        order = np.random.default_rng(seed).permutation(data.y.size)
        val, train = np.split(order, [data.y.size // 10])
        return cls(Data(data.X[train], data.y[train]), data.X[val], data.y[val])


@final
@dataclass(frozen=True, eq=False)
class FirstElimination:
    """The certified first step, and the lower bounds of Algorithm 5 beside it.

    Attributes
    ----------
    solution : Solution
        The model of all columns.
    step : Step
        The certified step.
    start : int
        Validation errors before it.
    bounds : array of int
        ``I`` of Algorithm 5: a lower bound of the validation errors without each column.
    bound_seconds : float
        Time of these.
    """

    solution: Solution
    step: Step
    start: int
    bounds: Array
    bound_seconds: float

    @classmethod
    def of(cls, split: Split, log2_lam: int, tol: float) -> "FirstElimination":
        """Certify the step, and bound every column's removal as the paper does."""
        solution = solve(split.train.problem(log2_lam), tol=tol)
        result = search(solution.problem, split.X_val, split.y_val, SearchSettings(max_steps=1, tol=tol))
        every = np.arange(solution.problem.n_columns)
        solution.certificate  # noqa: B018 - made once, as in the paper, before any bound
        seconds, (lower, upper) = timed(lambda: carried_columns(solution, as_matrix(split.X_val), every))
        wrong, _ = errors(*margins(split.y_val[:, None], lower, upper))
        return cls(solution, result.path[0], int(result.start_value[0]), wrong.sum(axis=0), seconds)

    @property
    def order(self) -> Any:
        """The columns as Algorithm 4 takes them: by lower bound, ties by their places."""
        return np.argsort(self.bounds, kind="stable")

    def trainings_of_algorithm_4(self, errors: Array) -> int:
        """How many columns Algorithm 4 trains for, if their removals have these errors."""
        best, count = float(self.start), 0
        for j in self.order:
            if self.bounds[j] >= best:
                break
            count += 1
            best = min(best, float(errors[j]))
        return count

    @property
    def facts(self) -> dict[str, Any]:
        """What is exact whatever the machine does; the count lies between its ends where some errors are bounds."""
        ends = [self.trainings_of_algorithm_4(errors) for errors in (self.step.lower, self.step.upper)]
        return {
            "errors_before": self.start,
            "errors_after": [int(self.step.value_lower), int(self.step.value_upper)],
            "certified_trainings": self.step.n_trainings,
            "glru_trainings": ends,
            "undecided_columns": int(np.sum(self.step.lower < self.step.upper)),
        }


def measure(data: Data, methods: Sequence[Method], settings: Settings) -> Iterator[dict[str, Any]]:
    """One strength of the penalty after the other, each for all seeds."""
    named = {method.method for method in methods}
    splits = {seed: Split.of(data, seed) for seed in settings.seeds}
    timed_split = splits[settings.seeds[0]]
    FirstElimination.of(timed_split, settings.log2_lam[0], settings.tol)  # compiles
    for log2_lam in settings.log2_lam:
        first = {seed: FirstElimination.of(split, log2_lam, settings.tol) for seed, split in splits.items()}
        found: dict[str, Any] = {"log2_lam": log2_lam, "validation_rows": int(timed_split.y_val.size)}
        found["seeds"] = [{"seed": seed} | elimination.facts for seed, elimination in first.items()]
        yield found | _times(first[settings.seeds[0]], timed_split, log2_lam, settings, "naive" in named)


def _times(first: FirstElimination, split: Split, log2_lam: int, settings: Settings, naive: bool) -> dict[str, Any]:
    fit, solution = timed(lambda: solve(split.train.problem(log2_lam), tol=settings.tol), settings.repeats)
    steps = [
        search(solution.problem, split.X_val, split.y_val, SearchSettings(max_steps=1, tol=settings.tol))
        .path[0]
        .seconds
        for _ in range(settings.repeats)
    ]
    found = {"fit_seconds": fit, "certified_seconds": min(steps), "glru_bound_seconds": first.bound_seconds}
    if not naive:
        return found
    done = _naive(solution, split, settings)
    inside = (first.step.lower[done.items] <= done.scores) & (done.scores <= first.step.upper[done.items])
    counted = first.trainings_of_algorithm_4(first.step.upper)
    return found | {
        "naive": done.facts | {"seconds": done.total, "errors_outside": int(np.sum(~inside))},
        "glru_seconds": first.bound_seconds + counted * (done.mean or 0.0),
    }


def _naive(solution: Solution, split: Split, settings: Settings) -> Trainings:
    """Warm-started trainings without some columns (Algorithm 3); their scores are validation errors."""
    problem = solution.problem

    def train(column: int) -> float:
        start = Point(np.delete(solution.coef, column), 0.0, solution.dual)
        model = solve(RemoveColumns([column]).apply(problem), tol=settings.tol, start=start)
        kept = np.delete(np.arange(problem.n_columns), column)
        scores = split.X_val[:, kept] @ model.coef
        return float(ScoreBounds(scores, scores).errors(split.y_val)[1])

    return trainings(np.arange(problem.n_columns), settings.sample, settings.seeds[0], train)
