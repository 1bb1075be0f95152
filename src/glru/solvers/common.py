"""What every solver shares: the stopping rule, what ``until`` sees, and what a run returns."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from glru._numerics import Array
from glru.problem import Problem
from glru.solution import Point, Status


@final
@dataclass(frozen=True, eq=False)
class State:
    """What ``until`` is shown once an outer iteration: a feasible pair and its gap.

    Attributes
    ----------
    n_iter : int
        Outer iterations so far.
    primal_value, gap : float
        Objective and duality gap at this pair.
    scores, dual : array of shape (n_rows,)
        Scores and dual variables.
    """

    n_iter: int
    primal_value: float
    gap: float
    scores: Array
    dual: Array
    primal: Callable[[], tuple[Array, float]]

    @cached_property
    def coef(self) -> Array:
        """Coefficients, formed only if asked for."""
        return self.primal()[0]

    @cached_property
    def intercept(self) -> float:
        """The intercept."""
        return self.primal()[1]

    @property
    def point(self) -> Point:
        """The primal-dual point."""
        return Point(self.coef, self.intercept, self.dual)


Until = Callable[[State], bool]


@final
@dataclass(frozen=True)
class Stop:
    """When to stop: ``gap <= tol * primal_value``, ``until(state)``, or ``max_iter`` outer iterations."""

    tol: float
    until: Until | None
    max_iter: int

    # The gap is taken again from the data at the end; aim a little below the target so that rounding does not spoil it.
    margin = 0.9

    def target(self, primal_value: float) -> float:
        """The gap to reach."""
        return self.margin * self.tol * primal_value

    def check(self, state: State) -> Status | None:
        """The status to end with, or None to go on."""
        if state.gap <= self.target(state.primal_value):
            return "converged"
        if self.until is not None and self.until(state):
            return "stopped"
        return "max_iter" if state.n_iter >= self.max_iter else None


@final
@dataclass(frozen=True, eq=False)
class Run:
    """Where a solver ended."""

    point: Point
    n_iter: int
    status: Status


def end(state: State, status: Status) -> Run:
    """The run that ends at a state; a dual point without a finite gap is left to be found again."""
    point = state.point if np.isfinite(state.gap) else Point(state.coef, state.intercept)
    return Run(point, state.n_iter, status)


def step_length(objective: Callable[[float], float], start: float, slope: float) -> float:
    """A step along a Newton direction that decreases the objective as Armijo asks; 0 where none is found.

    The full step is the first choice. Where it shows that the objective is flatter than the quadratic
    model (which promises ``slope / 2``), longer steps are tried: nearly separable data need them.

    Parameters
    ----------
    objective : callable
        Objective along the direction.
    start : float
        Its value at step 0.
    slope : float
        Its derivative there, at most 0.
    """
    step, value = 1.0, objective(1.0)
    if value <= start + 0.55 * slope and slope < 0.0:
        while step < 1e3:
            longer = objective(2.0 * step)
            if not longer < value:
                return step
            step, value = 2.0 * step, longer
    for _ in range(60):
        if np.isfinite(value) and value <= start + 1e-4 * step * slope:
            return step
        step *= 0.5 if step > 0.1 else 0.2
        value = objective(step)
    return 0.0


def zero_point(problem: Problem) -> Point:
    """All coefficients zero."""
    return Point(np.zeros(problem.n_columns))
