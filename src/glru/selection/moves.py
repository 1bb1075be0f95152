"""The model of some columns of a problem, the models one move away from it, and bounds of all of these at once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError
from scipy.linalg import solve as solve_system

from glru._options import UNLIMITED, Budget
from glru.bounds import Bounds
from glru.certificate import certify
from glru.duality import make_feasible_dual
from glru.linalg import Array, Matrix
from glru.losses import Hinge
from glru.problem import Point, Problem
from glru.refine import AllDecided, bound_by_certificate, has_products
from glru.regions import DualBox, LocalEllipsoid
from glru.solution import Solution
from glru.solvers import train
from glru.solvers.api import warn_if_short
from glru.sums import Expansion, Floor, assemble_gradient, assemble_hessian, expand, expand_sets
from glru.updates import find_newton_candidate
from glru.updates.carried_rows import has_carried
from glru.updates.carry import compute_new_coefficients
from glru.updates.columns import (
    MOST_CHANGES,
    Block,
    LocalColumns,
    RemovalScreen,
    SmoothColumns,
    Steps,
    SubsetModels,
    Tangent,
    WideColumns,
    carried_columns,
    has_local_columns,
    has_smooth_columns,
    has_subsets,
    has_wide_columns,
)
from glru.updates.gradients import EXACT_STEPS

if TYPE_CHECKING:
    from glru.selection.judge import Pending

Columns = NDArray[np.intp]

MAX_ROWS = 1000
"""Additions are handled over the rows if there are at most this many, or at most as many as columns."""

FIRST_BATCH = 32
"""Candidates in the first batch that is stepped together; the best of them rule out many others. Each batch is larger than the one before."""

SETS_COST = 4
"""Models are bounded in their own metrics if all of these cost no more than this many factorisations over the rows."""

SMALL_HESSIAN = 2_000_000
"""Models are followed in their own metrics, too, if forming a Hessian takes at most this many multiplications."""

POLISHED = 1e-12
"""The columns of large sparse data are bounded from a model with this relative gap."""

MAX_PASSES = 3
"""Passes over blocks in which the candidates of a step are bounded together."""

BATCH_STEPS, WIDE_STEPS = 6, 12
"""Steps of removals that share one metric before steps with their own Hessians; the second number applies over the rows, where Hessians cost most."""


class Move(NamedTuple):
    """Columns of the whole problem that leave or come together."""

    columns: tuple[int, ...]
    add: bool

    @property
    def action(self) -> str:
        """What the move does."""
        return "add" if self.add else "remove"

    def apply(self, chosen: Columns) -> Columns:
        """The columns after the move."""
        changed = np.array(self.columns, dtype=np.intp)
        places = np.searchsorted(chosen, changed)
        return np.insert(chosen, places, changed) if self.add else np.delete(chosen, places)


@final
class MoveList(Sequence[Move]):
    """Moves in a fixed order, with what is asked of all of them as arrays.

    Attributes
    ----------
    add, sizes, first : array of shape (n_moves,)
        Whether columns come; how many columns there are; the lowest of them.
    """

    def __init__(self, columns: Sequence[tuple[int, ...]], add: Sequence[bool] | NDArray[np.bool_]) -> None:
        actions = ["add" if comes else "remove" for comes in add]
        self._shown = np.fromiter(zip(actions, columns, strict=True), dtype=object, count=len(columns))
        self.add = np.array(add, dtype=bool)
        self.sizes = np.array([len(one) for one in columns], dtype=np.intp)
        self.first = np.array([one[0] for one in columns], dtype=np.intp)

    @classmethod
    def of(cls, moves: Sequence[Move]) -> "MoveList":
        """The moves, which may be such a list already."""
        return moves if isinstance(moves, MoveList) else cls(*zip(*moves, strict=True)) if moves else cls([], [])

    def take(self, places: Columns) -> "MoveList":
        """Some of the moves."""
        found = MoveList.__new__(MoveList)
        found._shown = self._shown[places]
        found.add, found.sizes, found.first = self.add[places], self.sizes[places], self.first[places]
        return found

    def show(self, places: Columns) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """What some moves do, and to which columns."""
        return tuple(self._shown[places])

    def __len__(self) -> int:
        return int(self._shown.size)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return self.take(np.arange(len(self))[place])
        return Move(self._shown[place][1], bool(self.add[place]))

    def __iter__(self) -> Iterator[Move]:
        return (Move(columns, action == "add") for action, columns in self._shown.tolist())

    @property
    def growth(self) -> Columns:
        """How many more columns there are after each move."""
        return np.where(self.add, self.sizes, -self.sizes)


@final
class Model:
    """The model of some columns of a whole problem.

    ``start`` is a point close to the optimum, or where to train from, or what makes one; without it the training starts from nothing.
    ``budget``: of all trainings.
    """

    def __init__(
        self,
        whole: Problem,
        chosen: Columns,
        tol: float,
        start: Point | Callable[[], Point] | None = None,
        budget: Budget = UNLIMITED,
    ) -> None:
        self.whole, self.chosen, self.tol, self._start, self.budget = whole, chosen, tol, start, budget

    @property
    def start(self) -> Point | None:
        """Where a training starts."""
        if callable(self._start):
            self._start = self._start()
        return self._start

    @start.setter
    def start(self, point: Point) -> None:
        self._start = point

    @cached_property
    def problem(self) -> Problem:
        """The problem of the chosen columns."""
        return self.whole.select_columns(self.chosen)

    @cached_property
    def solution(self) -> Solution:
        """The trained model; only trained if asked for."""
        return self.train(self.problem, self.start)

    def train(self, problem: Problem, start: Point | None) -> Solution:
        """Train a problem; raises when the time is up before its target is reached."""
        solution = train(problem, tol=self.tol, start=start, budget=self.budget)
        if not solution.reached(self.tol):
            self.budget.check()
        return warn_if_short(solution, self.tol)

    @property
    def near(self) -> Point:
        """The start, or the trained model if there is no start or the training was done."""
        if self.start is None or "solution" in self.__dict__:
            return self.solution.point
        return self.start

    @property
    def point(self) -> Point:
        """The trained model; in blocks, where a training costs passes, a start is good enough."""
        return self.solution.point if self.whole.in_memory else self.near

    def trial(self, move: Move, carried: bool = False) -> tuple[Problem, Point]:
        """The problem after a move, and the present model as a point of it.

        New coefficients are zero, or what the optimality condition makes of the old dual point (``carried``: the paper's
        candidate, which is far off if the penalty is weak).
        """
        changed, chosen = np.array(move.columns, dtype=np.intp), move.apply(self.chosen)
        problem = self.whole.select_columns(chosen)
        coef = np.zeros((*self.solution.coef.shape[:-1], self.whole.n_columns))
        coef[..., self.chosen] = self.solution.coef
        if move.add and carried:
            correlations = self.whole.matrix.dense(changed).T @ (self.whole.weights * self.solution.dual)
            coef[changed] = compute_new_coefficients(self.whole.penalty.select(changed), correlations)
        # Newton steps with one score per class begin without a dual point.
        dual = None if problem.loss.several else make_feasible_dual(problem, self.solution.dual)
        return problem, Point(coef[..., chosen], self.solution.intercept, dual)

    def pack_sets(self, columns: Columns) -> Array:
        """The model as a start for models of other sets of columns, one per row, the intercept last."""
        coef = np.zeros(self.whole.n_columns)
        coef[self.chosen] = self.near.coef
        starts = coef[columns]
        return (
            np.column_stack([starts, np.full(len(columns), self.near.intercept)])
            if self.whole.fit_intercept
            else starts
        )

    def after(self, move: Move, start: Point | Callable[[], Point]) -> "Model":
        """The model after a move, trained from a candidate."""
        return Model(self.whole, move.apply(self.chosen), self.tol, start, self.budget)

    def leaves_all_scores(self, move: Move) -> bool:
        """Whether the coefficients of the columns that leave or come are provably zero at the optimum with them."""
        if self.whole.penalty.smooth:
            return False
        if not move.add:
            return bool(self._zero_columns[np.isin(self.chosen, move.columns)].all())
        problem, point = self.trial(move)
        return bool(_zero_columns(problem, point)[np.isin(move.apply(self.chosen), move.columns)].all())

    @cached_property
    def _zero_columns(self) -> NDArray[np.bool_]:
        return _zero_columns(self.problem, self.solution.point)


def _zero_columns(problem: Problem, point: Point) -> NDArray[np.bool_]:
    """Which coefficients are provably zero at the optimum, seen from a point near it; penalties of squares make none so."""
    if problem.penalty.smooth or isinstance(problem.loss, Hinge):
        return np.zeros(problem.n_columns, dtype=bool)
    lower, upper = DualBox(find_newton_candidate(problem, point, 3), problem.fit_intercept).coef_bounds()
    return (lower == 0.0) & (upper == 0.0)


class Screening(ABC):
    """What is found of all moves of a step together, from the present model, before any is refined on its own."""

    @abstractmethod
    def bound(self, moves: MoveList, pending: "Pending") -> Iterator[str]:
        """Bound the validation scores after every move.

        First bounds of all come with the first item, tighter ones of moves that may still be the best with the next; items are the
        stages that found them.
        """

    @abstractmethod
    def trial(self, move: Move) -> tuple[Problem, Point]:
        """The problem after a move, and where its refinement starts."""

    def candidate(self, move: Move) -> Point | None:
        """The model after a move that the bounds were found at, if there is one."""
        return None

    is_carried: bool = False
    """Whether what was found for the last model is used."""

    def carry(self, move: Move) -> "Carried | None":
        """What the screening of the model after a move takes over from this one."""
        return None

    def present(self) -> Bounds | None:
        """Bounds of the validation scores of the present model, where the moves' bounds need them anyway."""
        return None

    def refine(self, move: Move, decided: AllDecided) -> Bounds | None:
        """Tighter bounds of the validation scores after one move, by what all moves share; None if nothing is shared."""
        return None


@final
class ColumnFamilies(Screening):
    """Moves of rows in memory: single columns by their families, others by the certificate of the carried model."""

    def __init__(self, model: Model, X: Matrix, method: str, carried: "Carried | None" = None) -> None:
        self.model, self.X, self.method = model, X, method
        self._local: LocalColumns | None = None
        self._wide: WideColumns | SmoothColumns | None = None if carried is None else carried.family
        self._screen: RemovalScreen | None = None if carried is None else carried.screen
        self._subsets: SubsetModels | None = None
        self._found: dict[Move, Point] = {}
        self.is_carried = carried is not None

    def bound(self, moves: MoveList, pending: "Pending") -> Iterator[str]:
        alone, tighten = np.ones(len(moves), dtype=bool), []
        for add in (False, True):
            places = np.flatnonzero((moves.add == add) & (moves.sizes == 1))
            columns = moves.first[places]
            more = self._bound_family(places, columns, add, pending) if places.size else None
            if more is not None:
                tighten.append(more)
                alone[places] = False
                if self._local is not None and self._has_small_hessians:
                    tighten.append(partial(self._bound_sets, moves, places, pending))
        for places in self._sets(moves, np.flatnonzero(alone)):
            tighten.append(partial(self._bound_sets, moves, places, pending))
            alone[places] = False
        for k in np.flatnonzero(alone).tolist():
            pending.budget.check()
            problem, point = self.model.trial(moves[k], carried=True)
            queries = self._select(moves[k].apply(self.model.chosen))
            lower, upper = bound_by_certificate(certify(problem, point), queries)
            pending.take(np.array([k]), lower[:, None], upper[:, None])
        stage = "newton" if self.method == "certified" and not alone.all() else "carry"
        yield stage
        for more in tighten:
            more()
        yield stage

    def _sets(self, moves: MoveList, places: Columns) -> Iterator[Columns]:
        """Moves whose models are stepped on together, each in the metric of its own Hessian: those with as many columns."""
        model = self.model
        if self.method != "certified" or not has_subsets(model.whole):
            return
        sizes = model.chosen.size + moves.growth[places]
        for size in np.unique(sizes):
            here = places[sizes == size]
            if size + model.whole.fit_intercept > 0 and here.size * size**2 <= SETS_COST * model.whole.n_rows**2:
                yield here

    def _bound_sets(self, moves: MoveList, places: Columns, pending: "Pending") -> None:
        self._step_on(
            places,
            pending,
            lambda here, decided: self._set_bounds(
                [moves[k] for k in places[here]],
                lambda members, lower, upper: decided(places[here][members], lower, upper),
            ),
        )

    def _set_bounds(
        self, moves: Sequence[Move], decided: Callable[[Columns, Array, Array], Any]
    ) -> tuple[Array, Array]:
        """Bounds after moves to models of as many columns, from the present model; the models are kept."""
        model = self.model
        self._subsets = self._subsets or SubsetModels(model.whole, self.X, model.budget)
        columns = np.array([move.apply(model.chosen) for move in moves]).reshape(len(moves), -1)
        lower, upper, models = self._subsets.bounds(columns, model.pack_sets(columns), decided)
        size = columns.shape[1]
        for move, found in zip(moves, models, strict=True):
            self._found[move] = Point(found[:size], float(found[size]) if model.whole.fit_intercept else 0.0)
        return lower, upper

    def present(self) -> Bounds | None:
        if self.is_carried:
            return self._make_wide_family().present()
        problem = self.model.problem
        if self.method != "certified" or self.model.chosen.size == 0:
            return None
        if not self._rows_are_few(False):
            return self._make_local_family().present() if has_local_columns(problem) else None
        if not has_wide_columns(problem):
            return None
        return self._make_wide_family().present()

    def _make_wide_family(self) -> WideColumns:
        if self._wide is None:
            model, solution = self.model, self.model.solution
            if has_products(model.problem):
                # A few products: from further away the family would have to form its metric twice.
                solution = train(model.problem, tol=POLISHED, start=solution, budget=model.budget)
            model.budget.check()
            self._wide = WideColumns(solution, self.queries)
            model.budget.check()
        assert isinstance(self._wide, WideColumns)
        return self._wide

    def _select(self, chosen: Columns) -> Matrix:
        return self.X if chosen.size == self.X.shape[1] else self.X[:, chosen]

    @cached_property
    def queries(self) -> Matrix:
        """The validation rows in the present columns."""
        return self._select(self.model.chosen)

    def trial(self, move: Move) -> tuple[Problem, Point]:
        return self.model.trial(move)

    def keep(self, move: Move, point: Point) -> None:
        """Keep a model after a move, near its optimum."""
        self._found[move] = point

    def candidate(self, move: Move) -> Point | None:
        if move in self._found:
            return self._found[move]
        if self._local is None or len(move.columns) > 1 or move.add:
            return None
        return self._local.candidate(int(np.searchsorted(self.model.chosen, move.columns[0])))

    def refine(self, move: Move, decided: AllDecided) -> Bounds | None:
        """More Newton steps of one move in the dimension of the rows, if the moves of its kind were bounded there."""
        columns = np.array(move.columns, dtype=np.intp)
        if move in self._found:
            lower, upper = self._set_bounds(
                [move], lambda _, lower, upper: np.array([decided(lower[:, 0], upper[:, 0])])
            )
            return lower[:, 0], upper[:, 0]
        if self._wide is None or columns.size > 1:
            return None
        block = self._block(columns, move.add)
        if self.is_carried or not has_products(self.model.problem):
            found = self._wide.refine_one(block, decided)
            return found.lower, found.upper
        # A factor costs more than many steps.
        assert isinstance(self._wide, WideColumns)
        lower, upper = self._wide.refined(
            block, lambda *ends: np.array([decided(*(e[:, 0] for e in ends))]), WIDE_STEPS
        )
        return lower[:, 0], upper[:, 0]

    def _bound_family(
        self, places: Columns, columns: Columns, add: bool, pending: "Pending"
    ) -> Callable[[], None] | None:
        """Bound moves of single columns, if a family applies; what is returned bounds those more tightly that matter."""
        if self.is_carried and not add and self._has_squares(columns):
            return self._bound_wide(places, columns, add, pending)
        problem, own = self.model.problem, np.searchsorted(self.model.chosen, columns)
        if self.method != "certified":
            if self.method == "glru" and not add and has_carried(problem) and problem.penalty.smooth:
                pending.take(places, *carried_columns(self.model.solution, self.queries, own))
                return lambda: None
        elif add and self._prefers_sets(columns.size):
            return None
        elif self._rows_are_few(add) and self._has_squares(columns) and has_wide_columns(problem):
            return self._bound_wide(places, columns, add, pending)
        elif self._rows_are_few(add) and self._has_squares(columns) and has_smooth_columns(problem):
            self._wide = self._wide or SmoothColumns(self.model.solution, self.queries)
            assert isinstance(self._wide, SmoothColumns)
            make = partial(self._columns, columns, pending.budget)
            lam = self.model.whole.quadratic[columns]
            pending.take(places, *self._wide.bounds(make, lam, 1.0 if add else -1.0))
            return lambda: None
        elif not add and has_local_columns(problem):
            local = self._make_local_family()
            if local.usable and problem.arrays.stable:
                width = max(16, problem.arrays.batch // (4 * max(local.queries.shape[0], problem.n_columns)))
                for k in range(0, own.size, width):
                    pending.take_candidates(places[k : k + width], local.closed_form(own[k : k + width]))
            exact = 0 if self._has_small_hessians else EXACT_STEPS
            return lambda: self._step_on(
                places,
                pending,
                lambda here, decided: local.bounds(
                    own[here], partial(decided, places[here]), BATCH_STEPS, pending.bound, exact
                ),
            )
        return None

    def _bound_wide(self, places: Columns, columns: Columns, add: bool, pending: "Pending") -> Callable[[], None]:
        """Bound moves of single columns in the dimension of the rows: all by one step, then those that matter by more."""
        family, whole = self._make_wide_family(), self.model.whole
        tangent = None if add or not family.usable else pending.tangent(family.query_scores)
        if tangent is None or self._screen is None or not self._bound_carried(places, columns, tangent, pending):
            few = family.queries.shape[0] <= whole.n_rows and columns.size > 2 * FIRST_BATCH
            if tangent is not None and few and whole.arrays.stable:
                self._bound_screened(places, columns, tangent, pending)
            else:
                pending.take(places, *family.bounds(*self._list_columns(columns, add, pending.budget)))
            if not add and family.usable:
                self._bound_some(places, columns, self._find_open(places, pending), pending)
        return lambda: self._step_on(
            places,
            pending,
            lambda here, decided: family.refined(
                self._block(columns[here], add), partial(decided, places[here]), WIDE_STEPS
            ),
        )

    def _list_columns(self, columns: Columns, add: bool, budget: Budget) -> tuple[Any, Array, float, Array | None]:
        """Columns that leave or come, for one Newton step each."""
        make, lam = partial(self._columns, columns, budget), self.model.whole.quadratic[columns]
        return make, lam, 1.0 if add else -1.0, self._centers(columns, add)

    def _bound_screened(self, places: Columns, columns: Columns, tangent: Tangent, pending: "Pending") -> None:
        """Bound removals by the tangent of the value, and the scores of those that this leaves open."""
        family, whole = self._make_wide_family(), self.model.whole
        self._screen = screen = RemovalScreen(family, whole.matrix, self.X, self.model.chosen, whole.quadratic)
        dead = whole.dead_columns[columns]
        screen.take_dead(columns[dead])
        alive = columns[~dead]
        family.show_steps(
            *self._list_columns(alive, False, pending.budget), lambda here, steps: screen.take(alive[here], steps)
        )
        lower, guesses = screen.bounds(family, columns, tangent)
        pending.take_values(places, lower)
        self._bound_first(places, columns, guesses, pending)

    @staticmethod
    def _find_open(places: Columns, pending: "Pending") -> Columns:
        """Which of some moves, by their numbers, may still be the best and are not known well enough, the most promising first."""
        own = np.full(pending.size, -1)
        own[places] = np.arange(places.size)
        here = own[pending.open_places()]
        return here[here >= 0]

    def _bound_carried(self, places: Columns, columns: Columns, tangent: Tangent, pending: "Pending") -> bool:
        """Bound removals from what is carried from the last step; whether that leaves few enough open."""
        family, screen = self._make_wide_family(), self._screen
        assert screen is not None
        pending.budget.check()
        lower, guesses = screen.bounds(family, columns, tangent)
        pending.take_values(places, lower)
        most = max(2 * FIRST_BATCH, columns.size // 8)
        self._bound_first(places, columns, guesses, pending)
        here = self._find_open(places, pending)
        if here.size > most:
            return False
        self._bound_some(places, columns, here, pending)
        return True

    def _bound_first(self, places: Columns, columns: Columns, guesses: Array, pending: "Pending") -> None:
        """Bound the removals that seem best closely: they rule out many of the others."""
        width = min(FIRST_BATCH // 2, columns.size)
        here = np.argpartition(guesses, width - 1)[:width]
        pending.take(places[here], *self._make_steps(columns[here]).bounds_to_second_order())

    def _make_steps(self, columns: Columns) -> Steps:
        """One step each for some removals, which the screen takes in."""
        steps = Steps(self._make_wide_family(), self._block(columns, False))
        if self._screen is not None:
            self._screen.take(columns, steps)
        return steps

    def _bound_some(self, places: Columns, columns: Columns, here: Columns, pending: "Pending") -> None:
        """Bound some removals by one step each, and those that this leaves open to second order."""
        width = max(16, self.model.whole.arrays.chunk // self.model.whole.n_rows)
        for start in range(0, here.size, width):
            mine = here[start : start + width]
            steps = self._make_steps(columns[mine])
            pending.take(places[mine], *steps.bounds())
            left = np.flatnonzero(np.isin(mine, self._find_open(places, pending)))
            if left.size:
                pending.take(places[mine[left]], *steps.take(left).bounds_to_second_order())

    def carry(self, move: Move) -> "Carried | None":
        """The family of the model after a column has left, and the screen of its columns; the data is not touched."""
        family, screen, chosen = self._wide, self._screen, self.model.chosen
        if screen is None or move.add or len(move.columns) > 1 or chosen.size - 1 <= self.model.whole.n_rows:
            return None
        assert isinstance(family, WideColumns)
        columns = np.array(move.columns)
        steps = Steps(family, self._block(columns, False))
        place = int(np.searchsorted(chosen, columns[0]))
        after = family.without(steps, place)
        if after is None:
            return None
        screen.follow(family, steps)
        carried = Carried(after, screen, self.model.whole, np.delete(chosen, place))
        if after.side.n_changes < MOST_CHANGES:
            return carried
        problem, point = self.model.whole.select_columns(carried.chosen), carried.point()
        return replace(carried, family=after.form_again(problem, point, self._select(carried.chosen)))

    @property
    def _has_small_hessians(self) -> bool:
        """Whether a Hessian of a candidate's own costs little more than the calls that form it."""
        whole = self.model.whole
        return has_subsets(whole) and whole.n_rows * self.model.chosen.size**2 <= SMALL_HESSIAN

    def _prefers_sets(self, n_moves: int) -> bool:
        """Whether this number of additions of single columns is refined in their own metrics."""
        whole, size = self.model.whole, self.model.chosen.size + 1
        return has_subsets(whole) and n_moves * size**2 <= SETS_COST * whole.n_rows**2

    def _step_on(
        self, places: Columns, pending: "Pending", refine: Callable[[Columns, Any], tuple[Array, Array]]
    ) -> None:
        """Bound those moves of a family more tightly that may still be the best, in batches, and the best one in the end.

        ``refine(here, decided)``: bounds for some members of the family; ``decided(moves, lower, upper)``.
        """
        own, width = np.full(pending.size, -1), FIRST_BATCH
        own[places] = np.arange(places.size)
        while True:
            here = own[pending.open_places()]
            here = here[here >= 0][:width]
            if self._screen is not None and pending.is_settled:
                # The model after the move tells its own value.
                return
            if not here.size:
                here = own[pending.find_best_place()]
                here = here[here >= 0]
            if not here.size:
                return
            batch = places[here]
            pending.take(batch, *refine(here, pending.decided))
            # Each is asked once.
            own[batch] = -1
            width = min(2 * width, max(FIRST_BATCH, self.model.whole.arrays.batch // self.model.whole.n_rows))

    def _make_local_family(self) -> LocalColumns:
        if self._local is None:
            near = self.model.near
            self.model.budget.check()
            self._local = LocalColumns(self.model.problem, near, self.queries)
            self.model.budget.check()
        return self._local

    def _columns(self, columns: Columns, budget: Budget, start: int, stop: int) -> tuple[Matrix, Matrix]:
        """Some of the columns, of the training rows and of the validation rows."""
        budget.check()
        here: Any = columns[start:stop]
        if here[-1] - here[0] == here.size - 1 and np.all(np.diff(here) == 1):
            here = slice(int(here[0]), int(here[-1]) + 1)
        return self.model.whole.matrix[:, here], self.X[:, here]

    def _block(self, columns: Columns, add: bool) -> Block:
        """Columns that leave or come, as they meet the data in the dimension of the rows."""
        assert self._wide is not None
        blocks = self._columns(columns, UNLIMITED, 0, columns.size)
        centers, lam = self._centers(columns, add), self.model.whole.quadratic[columns]
        return self._wide.block(blocks, lam, 1.0 if add else -1.0, centers)

    def _centers(self, columns: Columns, add: bool) -> Array | None:
        """What is taken from each column: what the data was centred by, and the means of new ones."""
        assert self._wide is not None
        center = self._wide.side.center
        if center is None:
            return None
        if not add:
            return center[np.searchsorted(self.model.chosen, columns)]
        means = self.model.whole.matrix.mean_row()
        assert means is not None
        return means[columns]

    def _has_squares(self, columns: Columns) -> bool:
        """Whether columns that leave or come have a penalty of squares alone."""
        penalty = self.model.whole.penalty.select(columns)
        return penalty.smooth and penalty.strong_convexity > 0.0

    def _rows_are_few(self, add: bool) -> bool:
        n_rows = self.model.whole.n_rows
        if add:
            return n_rows <= max(MAX_ROWS, self.model.whole.n_columns)
        return n_rows < self.model.chosen.size or not has_local_columns(self.model.problem)


@final
@dataclass(frozen=True, eq=False)
class Carried:
    """What the search takes over from the model before a column left."""

    family: WideColumns
    screen: RemovalScreen
    whole: Problem
    chosen: Columns

    def point(self) -> Point:
        """The model, by its coefficients, near its optimum."""
        whole, family = self.whole, self.family
        lam, duals = whole.quadratic[self.chosen], family.base.duals
        right = (whole.matrix.T @ duals)[self.chosen]
        coef = np.divide(right, lam, out=np.zeros_like(right), where=lam > 0.0)
        free = np.flatnonzero(lam == 0.0)
        coef[free] = family.base.free[: free.size]
        intercept = family.side.intercept(coef, float(family.base.free[-1]), -1.0) if whole.fit_intercept else 0.0
        share = np.divide(duals, whole.weights, out=np.zeros_like(duals), where=whole.weights > 0.0)
        problem = whole.select_columns(self.chosen)
        return Point(coef, intercept, make_feasible_dual(problem, share))


@final
class SummedHessian(Screening):
    """Moves of rows in blocks: one pass sums the Hessian over all columns at the present model.

    That model is a point of the whole problem with zeros elsewhere, so the Newton equations of every model a move away are
    parts of these sums. They give candidates; each further pass expands the objectives of all candidates that may still be the best,
    bounds their scores and steps them on.
    """

    def __init__(self, model: Model, X: Matrix) -> None:
        self.model, self.X = model, X
        self._found: dict[Move, Point] = {}
        self._expansion: Expansion | None = None

    def bound(self, moves: MoveList, pending: "Pending") -> Iterator[str]:
        for k in range(MAX_PASSES):
            places = pending.open_places() if k else np.arange(len(moves))
            if not places.size:
                places = pending.find_best_place()
            if not places.size:
                break
            self._pass(moves, places, pending)
        yield "newton"

    def present(self) -> Bounds | None:
        """Bounds from the sums at the present model, of which its own are a part."""
        model, (point, _, _) = self.model, self._sums
        chosen = model.chosen
        if chosen.size == 0:
            return None
        places = np.append(chosen, [model.whole.n_columns] if model.whole.fit_intercept else []).astype(np.intp)
        here = self._expansion
        assert here is not None
        own = replace(here, gradient=here.gradient[places], hessian=here.hessian[np.ix_(places, places)])
        region = LocalEllipsoid.of_sums(model.problem.totals, Point(point.coef[chosen], point.intercept), own)
        if np.isfinite(region.nu):
            # Where these bounds are not enough, the next pass begins here.
            model.start = region.take_step()
        return region.score_bounds(self.X if chosen.size == self.X.shape[1] else self.X[:, chosen])

    def _pass(self, moves: MoveList, places: Columns, pending: "Pending") -> None:
        """Bound the scores after some moves in one pass over the rows, and step their models on."""
        pending.budget.check()
        whole = self.model.whole
        trials = [self.trial(moves[k]) for k in places]
        columns = [moves[k].apply(self.model.chosen) for k in places]
        points = [point for _, point in trials]
        found = expand_sets(whole, list(zip(columns, points, strict=True)), Floor.of(whole.loss))
        for k, chosen, (problem, point), here in zip(places, columns, trials, found, strict=True):
            region = LocalEllipsoid.of_sums(problem.totals, point, here)
            if np.isfinite(region.nu):
                self._found[moves[k]] = region.take_step()
            queries = self.X if chosen.size == self.X.shape[1] else self.X[:, chosen]
            lower, upper = region.score_bounds(queries)
            pending.take(np.array([k]), lower[:, None], upper[:, None])

    def candidate(self, move: Move) -> Point | None:
        return self._found.get(move)

    def trial(self, move: Move) -> tuple[Problem, Point]:
        """The problem after a move, and where the quadratic model of the whole problem is least on its columns."""
        whole, chosen = self.model.whole, move.apply(self.model.chosen)
        if move in self._found:
            return whole.select_columns(chosen), self._found[move]
        point, gradient, hessian = self._sums
        last = [whole.n_columns] if whole.fit_intercept else []
        places = np.append(chosen, last).astype(np.intp)
        gone = np.setdiff1d(self.model.chosen, chosen)
        right = hessian[np.ix_(places, gone)] @ point.coef[gone] - gradient[places]
        try:
            step: Array = solve_system(hessian[np.ix_(places, places)], right, assume_a="pos", check_finite=False)
        except (LinAlgError, ValueError):
            step = np.zeros(places.size)
        return whole.select_columns(chosen), Point(point.coef[chosen], point.intercept).move(step)

    @cached_property
    def _sums(self) -> tuple[Point, Array, Array]:
        """The present model as a point of the whole problem, and the objective's gradient and Hessian there."""
        whole, near = self.model.whole, self.model.near
        coef = np.zeros(whole.n_columns)
        coef[self.model.chosen] = near.coef
        point = Point(coef, near.intercept)
        here = self._expansion = expand(whole, point, Floor.of(whole.loss))
        assert here.hessian is not None
        upper = assemble_hessian(whole.totals, here.hessian)
        return point, assemble_gradient(whole.totals, point, here.gradient), np.triu(upper) + np.triu(upper, 1).T
