"""Judges of a step: what a model of some columns is worth, and what each move would make of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.duality import feasible_dual
from glru.linalg import Array, Matrix
from glru.losses import Hinge
from glru.penalties import Penalty
from glru.point import Point
from glru.problem import Problem
from glru.regions import DualBox
from glru.solution import Solution
from glru.solvers import solve
from glru.updates import newton_candidate
from glru.updates.mapping import new_coefficients

Columns = NDArray[np.intp]
Enough = Callable[[float, float], bool]
Check = Callable[[], None]


@final
@dataclass(frozen=True, eq=False)
class Move:
    """Columns of the whole problem that leave or come together."""

    columns: tuple[int, ...]
    add: bool


@final
@dataclass(frozen=True, eq=False)
class Screened:
    """What is known of every move before any is looked at on its own.

    Attributes
    ----------
    lower, upper : array of shape (n_moves,)
        Bounds of the criterion's sum.
    certain : array of shape (n_moves,)
        Rows whose part in it is certain (``C + I`` of Algorithm 5, where the criterion counts errors).
    stage : str
        What it was found by.
    """

    lower: Array
    upper: Array
    certain: Array
    stage: str


@final
@dataclass(frozen=True)
class Worth:
    """Bounds of the criterion's sum, the stage that gave them, and the sum of the model they were found at.

    ``guess`` is unproven: it stands in where the bounds stay open, as with a penalty that bounds no score (L1).
    """

    lower: float
    upper: float
    stage: str
    guess: float


class Judge(ABC):
    """The model of some columns of a problem, and its worth."""

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Number of rows that are judged."""

    @abstractmethod
    def value(self) -> Worth:
        """The worth of the present columns."""

    @abstractmethod
    def screen(self, moves: list[Move], method: str, check: Check) -> Screened:
        """First bounds for every move; ``check`` is called between parts of the work and may raise."""

    @abstractmethod
    def look(self, move: Move, enough: Enough, method: str, tol: float) -> Worth:
        """The worth after one move, its bounds tight enough or as tight as they get."""

    @abstractmethod
    def after(self, move: Move) -> "Judge":
        """The judge of the columns after a move."""

    def ties(self, moves: list[Move], check: Check) -> list[int]:
        """A label for each move: 0 where it provably leaves every score as it is, the same where scores are the same."""
        return list(range(1, len(moves) + 1))


class Model:
    """The model of some columns of a whole problem, and the problems a move away from it.

    ``start`` is a point close to the optimum, or where to train from; without it the training starts from nothing.
    """

    def __init__(self, whole: Problem, chosen: Columns, tol: float, start: Point | None = None) -> None:
        self.whole, self.chosen, self.tol, self.start = whole, chosen, tol, start
        self.problem = sub_problem(whole, chosen)

    @cached_property
    def solution(self) -> Solution:
        """The trained model; only trained if asked for."""
        return solve(self.problem, tol=self.tol, start=self.start)

    @property
    def near(self) -> Point:
        """The start, or the trained model where there is none or it is at hand."""
        if self.start is None or "solution" in self.__dict__:
            return self.solution.point
        return self.start

    def trial(self, move: Move, carried: bool = False) -> tuple[Problem, Point, Columns]:
        """The problem after a move, the present model as a point of it, and its columns.

        New coefficients are zero, or what the optimality condition makes of the old dual point (``carried``: the paper's
        candidate, which is far off where the penalty is weak).
        """
        changed, chosen = np.array(move.columns, dtype=np.intp), self.chosen_after(move)
        problem = sub_problem(self.whole, chosen)
        coef = np.zeros(self.whole.n_columns)
        coef[self.chosen] = self.solution.coef
        if move.add and carried:
            pulls = self.whole.weights * self.solution.dual
            correlations = self.whole.matrix.dense(changed).T @ pulls
            coef[changed] = new_coefficients(self.whole.penalty.select(changed), correlations)
        dual = feasible_dual(problem, self.solution.dual)
        return problem, Point(coef[chosen], self.solution.intercept, dual), chosen

    def after(self, move: Move, start: Point | None = None) -> "Model":
        """The model after a move, trained from a candidate or from the present one."""
        if start is None:
            _, start, _ = self.trial(move)
        return Model(self.whole, self.chosen_after(move), self.tol, start)

    def leaves_all_scores(self, move: Move) -> bool:
        """Whether the coefficients of the columns that leave or come are provably zero at the optimum with them."""
        if not move.add:
            return bool(self._zero_columns[np.isin(self.chosen, move.columns)].all())
        problem, point, chosen = self.trial(move)
        return bool(zero_columns(problem, point)[np.isin(chosen, move.columns)].all())

    @cached_property
    def _zero_columns(self) -> NDArray[np.bool_]:
        return zero_columns(self.problem, self.solution.point)

    def chosen_after(self, move: Move) -> Columns:
        """The columns after a move."""
        changed = np.array(move.columns, dtype=np.intp)
        return np.union1d(self.chosen, changed) if move.add else np.setdiff1d(self.chosen, changed)


def zero_columns(problem: Problem, point: Point) -> NDArray[np.bool_]:
    """Which coefficients are provably zero at the optimum, seen from a point near it; penalties of squares make none so."""
    if problem.penalty.smooth or isinstance(problem.loss, Hinge):
        return np.zeros(problem.n_columns, dtype=bool)
    lower, upper = DualBox(newton_candidate(problem, point, 3), problem.fit_intercept).coef_bounds()
    return (lower == 0.0) & (upper == 0.0)


def same_columns(moves: list[Move], matrices: Sequence[Matrix], penalty: Penalty) -> list[int]:
    """A label above 0 for each move, the same for moves of the same kind whose columns have the same entries."""

    def content(column: int) -> tuple[Any, ...]:
        entries = (matrix.dense(np.array([column])).tobytes() for matrix in matrices)
        part = penalty.select(np.array([column]))
        return (*entries, np.asarray(part.quadratic).tobytes(), np.asarray(part.absolute).tobytes())

    labels: dict[Any, int] = {}
    kinds = ((move.add, tuple(sorted(content(column) for column in move.columns))) for move in moves)
    return [labels.setdefault(kind, len(labels) + 1) for kind in kinds]


def sub_problem(whole: Problem, chosen: Columns) -> Problem:
    """The problem with some of the columns."""
    if chosen.size == whole.n_columns:
        return whole
    names = whole.column_names
    kept = None if names is None else tuple(names[j] for j in chosen)
    return whole.derive(X=whole.matrix[:, chosen], penalty=whole.penalty.select(chosen), column_names=kept)
