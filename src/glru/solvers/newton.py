r"""Direct Newton for smooth losses with an L2 penalty, globalised by a line search; and what all solvers share.

Each step solves the Newton system exactly, in the smaller of two spaces:

* :class:`ColumnSpace`: the unknowns are the coefficients; Cholesky of a d x d matrix.
* :class:`RowSpace` (n < d): :math:`w = \Lambda^{-1} X^\top \beta`; Cholesky of an n x n matrix, and X is touched
  only to form :math:`K = X \Lambda^{-1} X^\top` and, at the end, the coefficients.

In memory (:class:`InMemory`) scores are carried along, and a full step ends at :math:`w + \delta` with the *linearised* dual point
:math:`-a = g + h \circ t`, :math:`t = X \delta`. That point meets every equality constraint and makes the penalty's Fenchel-Young
terms vanish, so the gap after a step costs O(n) and no product with X. Rows in blocks (:class:`InPasses`) are summed over: one pass
gives value, gradient and Hessian at the next point, and the gap is that of the local ellipsoid there.

Piecewise quadratic losses make this a semismooth Newton method.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, final

import numpy as np

from glru import duality
from glru.linalg import UNIT, Array, as_matrix, gamma, to_host
from glru.linalg.factor import solve_shifted
from glru.metric.rows import NewtonSystem, RowSide
from glru.problem import Point, Problem
from glru.regions.class_sums import ClassSums
from glru.regions.local import LocalEllipsoid
from glru.rows import Block, Blocks
from glru.solution import Status, find_dual
from glru.sums import Expansion, Floor, assemble_gradient, assemble_hessian, dual_gap, expand, objective_value

SMALL_STEP = 1e-4
"""A step over rows in blocks is accepted if the objective falls by this share of what its slope promises."""

SAMPLED_SHARE = 32
"""A sample holds one row in this number, but at least ``ROWS_PER_COLUMN`` rows per coefficient."""

ROWS_PER_COLUMN = 10
"""Rows per coefficient from which a sample counts as large."""

CURVED_SHARE = 0.1
"""If at least this share of the rows is on curved pieces, Newton steps take the pieces of a piecewise quadratic loss as they are."""

CHORD_OVERHEAD = 3e5
"""If a Hessian takes at least this many nanoseconds, one more step with the same one is worth its overhead."""


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
    primal: Callable[[], tuple[Array, Any]]

    @cached_property
    def _model(self) -> tuple[Array, Any]:
        return self.primal()

    @property
    def coef(self) -> Array:
        """Coefficients, formed only if asked for."""
        return self._model[0]

    @property
    def intercept(self) -> Any:
        """The intercept."""
        return self._model[1]

    @property
    def point(self) -> Point:
        """The primal-dual point."""
        return Point(self.coef, self.intercept, self.dual)


Until = Callable[[State], bool]


@final
@dataclass(frozen=True)
class Stop:
    """When to stop: ``gap <= tol * primal_value``, ``until(state)``, or ``max_iter`` outer iterations.

    ``patience``: what a solver may take before it gives way to the next one of a plan, in its own unit.
    """

    tol: float
    until: Until | None
    max_iter: int
    patience: float = np.inf

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
    """Where a solver ended; ``expansion``, ``class_sums``: the sums there, of rows in blocks; ``before``: scores before the last step, and the Hessian there.

    ``scores``: those of the point, where they are a product with X and no sum of several.
    """

    point: Point
    n_iter: int
    status: Status
    expansion: Expansion | None = None
    class_sums: ClassSums | None = None
    before: tuple[Array, Array] | None = None
    scores: Array | None = None


def end(state: State, status: Status, n_iter: int) -> Run:
    """The run that ends at a state; a dual point without a finite gap is left to be found again."""
    point = state.point if np.isfinite(state.gap) else Point(state.coef, state.intercept)
    return Run(point, n_iter, status)


def state_at(problem: Problem, n_iter: int, coef: Array, intercept: float, dual: Array) -> State:
    """The state at a primal point and the feasible dual point nearest to ``dual``, from fresh products with X."""
    dual = duality.make_feasible_dual(problem, dual)
    gap = duality.gap(problem, coef, intercept, dual)
    value = duality.primal_value(problem, coef, gap.scores)
    return State(n_iter, value, gap.value, gap.scores, dual, lambda: (coef, intercept))


def step_length(
    derivative: Callable[[float], float],
    descent: float,
    noise: float,
    has_fallen: Callable[[float], bool] | None = None,
    share: float = 0.1,
) -> float:
    """A step to the neighbourhood of the minimum along a direction; 0 where there is none.

    Accepted is a step whose derivative is at most a share of the first one in size. The full step is
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
    has_fallen : callable, default=None
        Whether the objective at a step is below its start; if not given, the derivative at half the step tells.
    share : float, default=0.1
        The share of the first derivative; infinite where every derivative is expensive and any descent will do.
    """
    if not descent < -noise:
        return 1.0 if abs(descent) <= noise else 0.0
    close = -share * descent + noise
    low, low_slope, high, high_slope = 0.0, descent, np.inf, np.nan
    step = 1.0
    for _ in range(100):
        slope = derivative(step)
        # Past the minimum the objective may already be above its start; without its value, a falling first half that
        # outweighs the rising second one rules that out.
        if abs(slope) <= close and (
            slope <= 0.0 or (has_fallen(step) if has_fallen else slope <= max(-derivative(0.5 * step), noise))
        ):
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
    """All coefficients zero, and the best intercept then where the loss has a log link."""
    if problem.loss.several:
        return Point(np.zeros((problem.n_scores, problem.n_columns)), np.zeros(problem.n_scores))
    return Point(np.zeros(problem.n_columns), _mean_score(problem))


def _mean_score(problem: Problem) -> float:
    """The best intercept without any column under a log link: far from it exponentials are large or curvatures vanish."""
    if not (problem.loss.link == "log" and problem.fit_intercept):
        return 0.0
    total = float(problem.weights @ problem.targets)
    return float(np.log(total / (problem.weights @ np.exp(problem.offset)))) if total > 0.0 else 0.0


def has_sample(problem: Problem) -> bool:
    """Whether a sample of the rows in memory can be much smaller than all of them and still large enough for the columns."""
    return problem.n_rows >= 20_000 and problem.n_rows >= 5 * _count_fewest_sampled(problem)


def _count_fewest_sampled(problem: Problem) -> int:
    """Rows that a sample has at least; with one score per class a column has a coefficient less than there are classes."""
    return ROWS_PER_COLUMN * problem.n_columns * max(1, problem.n_scores - 1)


def sample_of(problem: Problem) -> Problem | None:
    """The problem on a sample of its rows; None where that is not much smaller, or too small for the columns.

    The sample carries the weight of all rows, so that the penalty keeps its share of the objective.
    """
    if isinstance(problem.rows, Blocks):
        return _sample_of_blocks(problem, problem.rows)
    if not has_sample(problem):
        return None
    size = max(problem.n_rows // SAMPLED_SHARE, _count_fewest_sampled(problem))
    # One random row of each stretch of the data, which takes no permutation of all rows.
    ends = np.arange(size + 1) * problem.n_rows // size
    rows = ends[:-1] + (np.random.default_rng(0).random(size) * np.diff(ends)).astype(np.intp)
    weight = problem.sample_weight[rows]
    if not weight.any():
        return None
    weight = weight * (problem.sample_weight.sum() / weight.sum())
    return problem.derive(X=problem.matrix[rows], y=problem.y[rows], sample_weight=weight)


def _sample_of_blocks(problem: Problem, blocks: Blocks) -> Problem | None:
    """A sample of rows in blocks, of those that the first pass has kept; None where there are too few, or only one class is among them."""
    X, y, weight = blocks.summary.sample.concatenate()
    if y.size < ROWS_PER_COLUMN * problem.n_columns or 4 * y.size > problem.n_rows or not weight.any():
        return None
    sample = problem.objective.part(Block(X, y, weight * (problem.total_weight / weight.sum())))
    return None if problem.classes is not None and np.unique(sample.y).size < 2 else sample


@final
@dataclass(frozen=True, eq=False)
class Chord:
    """The Hessian of an earlier place: its scores and curvatures there."""

    scores: Array
    curvature: Array
    hessian: Array


@final
@dataclass(frozen=True, eq=False)
class Step:
    """A Newton direction: ``move`` in the space's unknowns, ``scores`` in the scores.

    ``slope`` and ``curvature`` describe the penalty along it: ``penalty(step) = penalty + step slope + step^2 curvature / 2``.
    ``hessian``: what it was solved with, over the columns.
    """

    move: Array
    scores: Array
    slope: float
    curvature: float
    hessian: Array | None = None


class Space(ABC):
    """The unknowns a Newton system is solved in."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @abstractmethod
    def place(self, point: Point) -> Array:
        """The unknowns that stand for a point, or near it."""

    @abstractmethod
    def primal(self, unknowns: Array) -> tuple[Array, float]:
        """Coefficients and intercept."""

    @abstractmethod
    def scores(self, unknowns: Array) -> Array:
        """Scores of all rows."""

    @abstractmethod
    def penalty(self, unknowns: Array) -> float:
        """Value of the penalty."""

    @abstractmethod
    def step(self, unknowns: Array, gradient: Array, curvature: Array, hessian: Array | None = None) -> Step:
        """The Newton direction, from the loss derivatives at the current scores; ``hessian``: that of the curvatures, if known."""

    def linear_dual(self, unknowns: Array, gradient: Array, curvature: Array, step: Step) -> Array:
        """The linearised dual point of a full step from ``unknowns``."""
        return -(gradient + curvature * step.scores)


@final
class ColumnSpace(Space):
    """Unknowns: the coefficients, and the intercept behind them."""

    def place(self, point: Point) -> Array:
        return np.append(point.coef, point.intercept) if self.problem.fit_intercept else point.coef.copy()

    def primal(self, unknowns: Array) -> tuple[Array, float]:
        if self.problem.fit_intercept:
            return unknowns[:-1].copy(), float(unknowns[-1])
        return unknowns, 0.0

    def scores(self, unknowns: Array) -> Array:
        return self.problem.scores(*self.primal(unknowns))

    def penalty(self, unknowns: Array) -> float:
        return float(self.problem.penalty.value(self.primal(unknowns)[0]).sum())

    def step(self, unknowns: Array, gradient: Array, curvature: Array, hessian: Array | None = None) -> Step:
        problem = self.problem
        lam = problem.penalty.quadratic
        coef, _ = self.primal(unknowns)
        forces = problem.weights * gradient
        slope = problem.matrix.T @ forces + lam * coef
        if problem.fit_intercept:
            slope = np.append(slope, forces.sum())
        hessian = problem.hessian(problem.weights * curvature) if hessian is None else hessian
        move = -solve_shifted(hessian, slope)
        delta, shift = self.primal(move)
        return Step(move, problem.scores(delta, shift), float(lam * coef @ delta), float(lam * delta @ delta), hessian)


@final
class RowSpace(Space):
    r"""Unknowns: :math:`\beta`, one per row, then the unpenalised coefficients and the intercept.

    Needs a penalty above zero on all but a few columns. Rows of weight zero take no part.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.side = RowSide(problem)
        self.gram, self.border, self.raised = self.side.gram, self.side.border, False

    def _raise_gram(self) -> None:
        """Raise ``K`` where rounding has left dependent rows a direction in which it is negative: duals would grow along it, and the penalty fall.

        Entries that err independently have a norm of about the root of their number per row. No proof rests on it: gaps are taken from the data.
        """
        arrays, gram = self.side.arrays, self.side.gram.data
        share = 4.0 * UNIT * np.sqrt(self.problem.n_rows) * to_host(arrays.xp.linalg.diagonal(gram))
        self.gram = self.side.gram = as_matrix(arrays.add_diagonal(gram, share))
        self.raised = True

    def place(self, point: Point) -> Array:
        problem = self.problem
        if not point.coef.any():
            return np.zeros(problem.n_rows + self.border.shape[1])
        free = point.coef[problem.unpenalised]
        tail = np.append(free, self.side.intercept(point.coef, point.intercept)) if problem.fit_intercept else free
        duals = [find_dual(problem, problem.scores(point.coef, point.intercept)), np.zeros(problem.n_rows)]
        duals = duals if point.dual is None else [point.dual, *duals]
        # A dual point need not belong to its primal point: of the known ones, start where the objective is lowest.
        places = [np.concatenate([problem.weights * dual, tail]) for dual in duals]
        return min(places, key=self._objective)

    def _objective(self, unknowns: Array) -> float:
        losses = self.problem.loss.value(self.problem.y, self.scores(unknowns))
        return float(self.problem.weights @ losses) + self.penalty(unknowns)

    def primal(self, unknowns: Array) -> tuple[Array, float]:
        problem, n = self.problem, self.problem.n_rows
        coef = self.side.inverse * self.side.transposed_product(unknowns[:n])
        coef[problem.unpenalised] = unknowns[n : n + problem.unpenalised.size]
        return coef, self.side.intercept(coef, float(unknowns[-1]), -1.0) if problem.fit_intercept else 0.0

    def scores(self, unknowns: Array) -> Array:
        n = self.problem.n_rows
        return self.gram @ unknowns[:n] + self.border @ unknowns[n:]

    def penalty(self, unknowns: Array) -> float:
        beta = unknowns[: self.problem.n_rows]
        return 0.5 * float(beta @ (self.gram @ beta))

    def step(self, unknowns: Array, gradient: Array, curvature: Array, hessian: Array | None = None) -> Step:
        n, weights, arrays = self.problem.n_rows, self.problem.weights, self.problem.arrays
        beta = unknowns[:n]
        d, forces, sums = weights * curvature, weights * gradient + beta, self.border.T @ beta
        active = np.flatnonzero(d > 0.0)
        move, side, right = -forces, self.side, forces
        if active.size < n:
            # Rows without curvature take their whole step at once, and what that does to the others is part of their forces.
            rest = np.where(d > 0.0, 0.0, move)
            side, sums = side.restrict(active), sums + self.border.T @ rest
            right = (forces + d * (self.gram @ rest))[active]
        free, moves = NewtonSystem(side, d[active]).solve(arrays.put(right[:, None]), sums[:, None])
        move[active] = to_host(moves)[:, 0]
        move = np.concatenate([move, free[:, 0]])
        image = self.gram @ move[:n]
        if float(move[:n] @ image) < 0.0 and not self.raised:
            self._raise_gram()
            return self.step(unknowns, gradient, curvature, hessian)
        return Step(move, image + self.border @ move[n:], float(beta @ image), float(move[:n] @ image))

    def linear_dual(self, unknowns: Array, gradient: Array, curvature: Array, step: Step) -> Array:
        # In exact arithmetic s o a = beta. Taking beta leaves the rounding of the solve to the losses; the other form
        # would leave it to the penalty, which multiplies it by 1 / lam.
        problem = self.problem
        linear = super().linear_dual(unknowns, gradient, curvature, step)
        beta = (unknowns + step.move)[: problem.n_rows]
        dual = np.divide(beta, problem.weights, out=linear.copy(), where=problem.weights > 0.0)
        # A row without curvature keeps its derivative, which may stand on the edge of the domain.
        return np.where(curvature > 0.0, dual, linear)


def local_gap(problem: Problem, point: Point, here: Expansion) -> float:
    """The gap of the local ellipsoid, without a pass over the data; infinite where there is none."""
    if here.hessian is None or problem.loss.self_concordance is None:
        return np.inf
    return LocalEllipsoid.of_sums(problem.totals, point, here).gap


@final
class Goal:
    """The gap of a training over rows in blocks.

    The certified gap is computed where that costs no pass; otherwise only once the Newton decrement is small. ``by_products``: as in :func:`newton`.
    """

    def __init__(self, problem: Problem, stop: Stop, by_products: "ByProducts | None" = None) -> None:
        self.problem, self.stop, self.by_products, self.share = problem, stop, by_products, 1.0

    def gap(self, point: Point, here: Expansion, decrease: float) -> float:
        """The gap, infinite while it is not worth its price; ``decrease``: what a Newton step promises."""
        problem, totals = self.problem, self.problem.totals
        target = self.stop.target(objective_value(totals, point, here))
        if problem.loss.self_concordance is not None and here.hessian is not None:
            return local_gap(problem, point, here) if decrease <= target else np.inf
        if problem.is_strongly_convex:
            # The duality gap without the rows' terms, which vanish but for rounding.
            slope = assemble_gradient(totals, point, here.gradient)
            return 0.5 * float(slope @ (slope / problem.quadratic))
        if not decrease <= self.share * target:
            return np.inf
        self.share *= 0.1
        return dual_gap(problem, point).value


class Place(ABC):
    """Where a run stands: a point, and what a step from it is made of."""

    value: float
    """The objective."""

    patience: ClassVar[int]
    """After this many steps in a row whose descent is rounding, the next one ends the run."""

    share: ClassVar[float]
    """The share of the descent that the line search may leave."""

    @abstractmethod
    def state(self, n_iter: int, stop: Stop) -> State:
        """What the stopping rule sees."""

    @abstractmethod
    def step(self, floor: Floor) -> tuple[Step, float, float]:
        """The Newton direction, the objective's derivative along it, and the rounding error of that."""

    @abstractmethod
    def move(self, step: Step, length: float, floor: Floor) -> "tuple[Place, float]":
        """The place after a step of some length, and the objective's derivative along the step there."""

    @abstractmethod
    def again(self, floor: Floor) -> "Place":
        """The place with another floor under the curvatures, for a step."""

    @abstractmethod
    def has_fallen(self, there: "Place", expected: float) -> bool:
        """Whether the objective is lower at another place, where its slope has promised a fall."""

    def arrive(self, there: "Place", step: Step, length: float, stop: Stop) -> "Place":
        """The place that a step has led to."""
        return there

    def floor_after(self, floor: Floor, length: float) -> Floor:
        """The floor under the curvatures after a step of some length."""
        return floor.after(length)

    def end(self, state: State, status: Status) -> Run:
        """The run that ends at a state."""
        return end(state, status, state.n_iter)


@final
class InMemory(Place):
    """A place in a problem whose rows are in memory: scores are updated, and a trial costs O(n)."""

    patience, share = 5, 0.1

    def __init__(self, space: Space, unknowns: Array, scores: Array, penalty: float, asked: bool = False) -> None:
        self.space, self.unknowns, self.scores, self.penalty, self.asked = space, unknowns, scores, penalty, asked
        problem = space.problem
        total, self.size, self.gradient, self.curvature = problem.loss.expand_sum(
            problem.weights, problem.y, scores, problem.loss_constant
        )
        self.value = total + penalty
        self.linear: Array | None = None
        # The gap of the linear dual point to leading order, where it is trusted, and whether scores are one product with X.
        self.foreseen, self.fresh = np.inf, False
        self.before: tuple[Array, Array] | None = None
        # What the next step is solved with, where that saves a Hessian.
        self.chord: Chord | None = None

    @classmethod
    def of(cls, problem: Problem, start: Point) -> "InMemory":
        """The place of a point; a start with a dual point, which may be the end of another run, is asked for its gap."""
        space = RowSpace(problem) if uses_row_space(problem) else ColumnSpace(problem)
        unknowns = space.place(start)
        scores = space.scores(unknowns) if unknowns.any() else np.zeros(problem.n_rows)
        return cls(space, unknowns, scores, space.penalty(unknowns), start.dual is not None)

    def state(self, n_iter: int, stop: Stop) -> State:
        problem, linear = self.space.problem, self.linear
        if linear is None and (stop.until is not None or self.asked):
            linear = duality.make_feasible_dual(problem, -self.gradient)
            gap = duality.gap(problem, *self.space.primal(self.unknowns), linear).value
        else:
            # What is foreseen well below the target is computed once more at the end, in any case.
            trusted = self.foreseen <= 0.5 * stop.target(self.value)
            gap = np.inf if linear is None else self.foreseen if trusted else self._linear_gap(linear)
        dual = -self.gradient if linear is None else linear
        return State(n_iter, self.value, gap, self.scores, dual, partial(self.space.primal, self.unknowns))

    def _linear_gap(self, dual: Array) -> float:
        r"""An upper bound of the gap of a linearised dual point, before a step has raised curvatures.

        With :math:`\delta = |\ell'(z) + a|` curvatures between ``z`` and the score whose slope is ``-a`` are at least :math:`h - M \delta`, since
        :math:`|h'| \le M h` makes them change by at most ``M`` times the slope, so that :math:`F_\ell(y; z, -a) \le \delta^2 / (2 (h - M \delta))`.
        """
        problem = self.space.problem
        constant, used = problem.loss.self_concordance, problem.weights > 0.0
        if constant is None:
            return float(duality.row_terms(problem, self.scores, dual).sum())
        off = np.abs(self.gradient + dual)
        left = self.curvature - constant * off
        terms = problem.weights * np.square(off) / np.where(left > 0.5 * self.curvature, 2.0 * left, 1.0)
        far = np.flatnonzero(used & ~(left > 0.5 * self.curvature))
        if far.size:
            terms[far] = duality.row_terms(problem.take(far), self.scores[far], dual[far])
        return float(terms.sum(where=used))

    def step(self, floor: Floor) -> tuple[Step, float, float]:
        if self.chord is None:
            self.curvature = floor.raise_floor(self.curvature, self.scores)
            step = self.space.step(self.unknowns, self.gradient, self.curvature)
        else:
            self.curvature = self.chord.curvature
            step = self.space.step(self.unknowns, self.gradient, self.curvature, self.chord.hessian)
        if floor.share > 0.0:
            # With raised curvatures it is no Hessian.
            step = replace(step, hessian=None)
        weighted = self.space.problem.weights * self.gradient * step.scores
        noise = 8.0 * UNIT * (float(np.abs(weighted).sum()) + abs(step.slope))
        return step, float(weighted.sum()) + step.slope, noise

    def move(self, step: Step, length: float, floor: Floor) -> tuple[Place, float]:
        scores = self.scores + length * step.scores
        penalty = self.penalty + length * step.slope + 0.5 * length**2 * step.curvature
        there = InMemory(self.space, self.unknowns + length * step.move, scores, penalty)
        slope = float(self.space.problem.weights @ (there.gradient * step.scores))
        return there, slope + step.slope + length * step.curvature

    def has_fallen(self, there: Place, expected: float) -> bool:
        # A rise within the rounding of the two sums is none.
        return there.value <= self.value + 4.0 * UNIT * (abs(self.value) + self.size)

    def again(self, floor: Floor) -> Place:
        return InMemory(self.space, self.unknowns, self.scores, self.penalty)

    def arrive(self, there: Place, step: Step, length: float, stop: Stop) -> Place:
        assert isinstance(there, InMemory)
        # Where rounding keeps the objective from falling, the optimum may be reached whatever the length is.
        there.asked = not there.value < self.value
        if step.hessian is not None:
            where = self.scores if self.chord is None else self.chord.scores
            there.before = where, step.hessian
        if length == 1.0:
            there.fresh = not self.unknowns.any() and isinstance(self.space, ColumnSpace)
            gap, change = self._foresee(step)
            target = stop.target(self.value)
            # Far above the target, the exact sum is not worth its price.
            if self.chord is not None or stop.until is not None or not gap > 100.0 * target:
                there.linear = self._linear_dual(step)
            if self.chord is None and stop.until is None:
                there.foreseen = gap
            # Most of what curvatures change is no gradient over the columns: a step with the old ones leaves much less than that share.
            saves = self.chord is None and self.space.problem.matrix.gram_cost > CHORD_OVERHEAD
            if saves and step.hessian is not None and 0.1 * change * gap <= target:
                there.chord = Chord(self.scores, self.curvature, step.hessian)
        return there

    def _foresee(self, step: Step) -> tuple[float, float]:
        """To leading order the gap of a full Newton step's linearised dual point, and the share of it that one more step with the same Hessian leaves.

        The gap is the sum of ``F_l = (M t^2 h / 2)^2 / (2 h)``. Curvatures change by shares ``M t``, which is what a step with the old ones leaves of the distance.
        """
        problem, constant = self.space.problem, self.space.problem.loss.self_concordance
        if not constant:
            return (0.0, 0.0) if constant == 0.0 else (np.nan, np.inf)
        squares = np.square(step.scores)
        weighted = problem.weights * self.curvature * squares
        fourth, second = constant**2 * float(weighted @ squares), float(weighted.sum())
        return fourth / 8.0, fourth / second if second > 0.0 else 0.0

    def end(self, state: State, status: Status) -> Run:
        return replace(super().end(state, status), before=self.before, scores=self.scores if self.fresh else None)

    def _linear_dual(self, step: Step) -> Array | None:
        """The linearised dual point of a full step; None where it leaves the domain."""
        problem = self.space.problem
        dual = self.space.linear_dual(self.unknowns, self.gradient, self.curvature, step)
        if problem.loss.self_concordance == 0.0:
            return dual  # its domain has no edge
        projected, used = -problem.loss.project(problem.y, -dual), problem.weights > 0.0
        # Rounding may carry a dual variable over the edge of the domain; its price shows when the gap is taken afresh.
        moved = np.abs(projected - dual).max(where=used, initial=0.0)
        return projected if moved <= 1e-9 * np.abs(dual).max(where=used, initial=0.0) else None


@final
class InBlocks(Place):
    """A place in a problem whose rows are in blocks: a trial is a pass, whose sums are those of the next place."""

    patience, share = 0, np.inf

    def __init__(self, problem: Problem, point: Point, floor: Floor, goal: Goal) -> None:
        self.problem, self.point, self.floor, self.goal = problem, point, floor, goal
        self.here = expand(problem, point, floor if goal.by_products is None else None)
        self.value = objective_value(problem.totals, point, self.here)
        self.gradient = assemble_gradient(problem.totals, point, self.here.gradient)

    @cached_property
    def direction(self) -> Array:
        """The Newton direction, from the sums alone or by products with the Hessian."""
        if self.goal.by_products is not None:
            return self.goal.by_products[0](self.point, self.floor, self.gradient)
        assert self.here.hessian is not None
        return -solve_shifted(assemble_hessian(self.problem.totals, self.here.hessian), self.gradient)

    def state(self, n_iter: int, stop: Stop) -> State:
        known = self.goal.by_products
        promised = self.direction if known is None else -self.gradient / known[1]
        gap = self.goal.gap(self.point, self.here, -float(self.gradient @ promised))
        point, nothing = self.point, np.empty(0)
        return State(n_iter, self.value, gap, nothing, nothing, lambda: (point.coef, point.intercept))

    def step(self, floor: Floor) -> tuple[Step, float, float]:
        move = self.direction
        noise = 8.0 * UNIT * float(np.abs(self.gradient) @ np.abs(move)) + UNIT * self.value
        return Step(move, np.empty(0), 0.0, 0.0), float(self.gradient @ move), noise

    def move(self, step: Step, length: float, floor: Floor) -> tuple[Place, float]:
        there = InBlocks(self.problem, self.point.move(step.move, length), floor, self.goal)
        return there, float(there.gradient @ step.move)

    def again(self, floor: Floor) -> Place:
        return InBlocks(self.problem, self.point, floor, self.goal)

    def has_fallen(self, there: Place, expected: float) -> bool:
        return there.value <= self.value + SMALL_STEP * expected + gamma(self.problem.totals.depth) * self.value

    def floor_after(self, floor: Floor, length: float) -> Floor:
        # Under a self-concordant loss the Hessian is the metric of the certificate: no floor is raised under its curvatures.
        return floor if self.problem.loss.self_concordance is not None else floor.after(length)

    def end(self, state: State, status: Status) -> Run:
        return Run(self.point, state.n_iter, status, self.here)


ByProducts = tuple[Callable[[Point, Floor, Array], Array], Array]
"""How a Newton system is solved by products with the Hessian, from the point, the floor and the gradient there; and what its diagonal can be at most."""


def newton(problem: Problem, start: Point, stop: Stop, by_products: ByProducts | None = None) -> Run:
    """Train by direct Newton steps; see the module's text. ``by_products``: rows in blocks have too many columns for a Hessian."""
    floor, goal = Floor.of(problem.loss, pieces=by_products is not None), Goal(problem, stop, by_products)
    place: Place = InMemory.of(problem, start) if problem.in_memory else InBlocks(problem, start, floor, goal)
    floor = Floor.of(problem.loss, pieces=by_products is not None or _trusts_pieces(problem, place))
    best: tuple[State, Place] | None = None
    n_iter, quiet, warm = 0, 0, bool(start.coef.any()) or start.intercept != 0.0
    while True:
        state = place.state(n_iter, stop)
        best = (state, place) if best is None or state.gap <= best[0].gap else best
        status = stop.check(state) or ("max_iter" if n_iter >= stop.patience else None)
        if status is not None:
            return place.end(state, status)
        step, descent, noise = place.step(floor)
        # A descent smaller than the rounding of its own sum cannot be seen: a few such steps end the run.
        quiet = quiet + 1 if -descent <= noise else 0
        search = _Search(place, step, descent, floor)
        if n_iter == 0 and warm and not problem.in_memory and not search.has_fallen(1.0):
            # A sample misses rare columns, and a start may be far away: zero is a better place to begin.
            place, n_iter = InBlocks(problem, zero_point(problem), floor, goal), 1
            continue
        length = 0.0
        if quiet <= place.patience:
            length = step_length(search.derivative, descent, noise, search.has_fallen, place.share)
        ahead = place.floor_after(floor, length)
        if quiet > place.patience or (length == 0.0 and ahead.share == floor.share):
            better = quiet > 0 and best[0].primal_value <= state.primal_value + noise
            ended, where = best if better else (state, place)
            return where.end(replace(ended, n_iter=n_iter), "stalled")
        n_iter += 1
        # Without a length once more from here with more curvature: the step may hold no numbers, and is not added zero times.
        place = place.arrive(search.place_at(length), step, length, stop) if length else place.again(ahead)
        floor = Floor.of(problem.loss, pieces=True) if length > 0.0 and _trusts_pieces(problem, place) else ahead


def _trusts_pieces(problem: Problem, place: Place) -> bool:
    """Whether Newton steps take the pieces of a piecewise quadratic loss as they are: the curvature of many rows changes little on the way."""
    return (
        problem.loss.piecewise
        and isinstance(place, InMemory)
        and problem.n_rows >= ROWS_PER_COLUMN * problem.n_columns
        and int(np.count_nonzero(place.curvature)) >= CURVED_SHARE * problem.n_rows
    )


@final
class _Search:
    """The places along a step that were looked at: the one that is accepted is not computed again."""

    def __init__(self, place: Place, step: Step, descent: float, floor: Floor) -> None:
        self.place, self.step, self.descent, self.floor = place, step, descent, floor
        self.seen: dict[float, tuple[Place, float]] = {}

    def _look(self, length: float) -> tuple[Place, float]:
        if length not in self.seen:
            self.seen[length] = self.place.move(self.step, length, self.place.floor_after(self.floor, length))
        return self.seen[length]

    def derivative(self, length: float) -> float:
        """The objective's derivative along the step; of rows in memory the derivatives of the losses are enough for it."""
        here = self.place
        if length == 1.0 or not isinstance(here, InMemory):
            return self._look(length)[1]
        return _slope_along(here.space.problem, here.scores, self.step, length)

    def has_fallen(self, length: float) -> bool:
        """Whether the objective is lower at a length."""
        return self.place.has_fallen(self.place_at(length), length * self.descent)

    def place_at(self, length: float) -> Place:
        """The place at a length."""
        return self._look(length)[0]


def uses_row_space(problem: Problem) -> bool:
    """Whether the n x n system is the smaller one, and enough columns are penalised to use it."""
    return problem.n_rows < problem.n_columns and 4 * problem.unpenalised.size < problem.n_rows


def choose_length(problem: Problem, scores: Array, gradient: Array, step: Step) -> float:
    """How far to go along a Newton direction: all the way unless the objective rises; 0 where there is no descent."""
    values = [problem.loss.value(problem.y, scores + length * step.scores) for length in (0.0, 1.0)]
    if float(problem.weights @ (values[1] - values[0])) + step.slope + 0.5 * step.curvature <= 0.0:
        return 1.0
    terms = problem.weights * gradient * step.scores
    noise = 8.0 * UNIT * (float(np.abs(terms).sum()) + abs(step.slope))
    return step_length(partial(_slope_along, problem, scores, step), float(terms.sum()) + step.slope, noise)


def _slope_along(problem: Problem, scores: Array, step: Step, length: float) -> float:
    """The objective's derivative along a step."""
    slopes = problem.loss.gradient(problem.y, scores + length * step.scores)
    return float(problem.weights @ (slopes * step.scores)) + step.slope + length * step.curvature
