"""What every solver shares: the stopping rule, what ``until`` sees, and what a run returns."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from glru import duality
from glru.linalg import Array
from glru.point import Point
from glru.problem import Problem
from glru.solution import Status


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

    Examples
    --------
    >>> import numpy as np, glru
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> problem = glru.Problem(X, X[:, 0] > 0.3, penalty=glru.L2(0.1))
    >>> glru.solve(problem, until=lambda state: state.n_iter == 1).status
    'stopped'
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


def end(state: State, status: Status, n_iter: int) -> Run:
    """The run that ends at a state; a dual point without a finite gap is left to be found again."""
    point = state.point if np.isfinite(state.gap) else Point(state.coef, state.intercept)
    return Run(point, n_iter, status)


def state_at(problem: Problem, n_iter: int, coef: Array, intercept: float, dual: Array) -> State:
    """The state at a primal point and the feasible dual point nearest to ``dual``, from fresh products with X."""
    dual = duality.feasible_dual(problem, dual)
    gap = duality.gap(problem, coef, intercept, dual)
    value = duality.primal_value(problem, coef, gap.scores)
    return State(n_iter, value, gap.value, gap.scores, dual, lambda: (coef, intercept))


def step_length(derivative: Callable[[float], float], descent: float, noise: float) -> float:
    """A step to the neighbourhood of the minimum along a direction; 0 where there is none.

    Accepted is a step whose derivative is at most a tenth of the first one in size. The full step is
    the first choice, longer and shorter ones follow: nearly separable data need the former,
    piecewise quadratic losses the latter.

    Parameters
    ----------
    derivative : callable
        Derivative of the convex objective along the direction.
    descent : float
        Its value at step 0.
    noise : float
        Rounding error of the derivatives; a descent below it cannot be judged, so the full step is taken.
    """
    if not descent < -noise:
        return 1.0 if abs(descent) <= noise else 0.0
    close = -0.1 * descent + noise
    low, low_slope, high, high_slope = 0.0, descent, np.inf, np.nan
    step = 1.0
    for _ in range(100):
        slope = derivative(step)
        # Past the minimum the objective may already be above its start; a falling first half that outweighs the
        # rising second one rules that out.
        if abs(slope) <= close and (slope <= 0.0 or slope <= max(-derivative(0.5 * step), noise)):
            return step
        if slope < 0.0:
            low, low_slope = step, slope
            if step >= 1e6:
                return step
        else:
            high, high_slope = step, slope
        if high == np.inf:
            step *= 2.0
        elif not np.isfinite(high_slope):
            step = 0.9 * low + 0.1 * high
        else:
            # False position, kept away from the ends so that the bracket always shrinks.
            guess = low - low_slope * (high - low) / (high_slope - low_slope)
            step = min(max(guess, 0.9 * low + 0.1 * high), 0.1 * low + 0.9 * high)
            if high - low <= 1e-12 * high:
                return low
    return low


def zero_point(problem: Problem) -> Point:
    """All coefficients zero."""
    return Point(np.zeros(problem.n_columns))
