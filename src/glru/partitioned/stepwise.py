"""Stepwise selection of partitioned rows, judged on validation rows that are in memory.

One pass sums the Hessian over all columns. A model of some columns is a point of the whole problem with zeros elsewhere, so its own
gradient and Hessian are parts of those sums, and so are the Newton equations of every model a move away.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, solve

from glru.linalg import FEW, Array, as_matrix, gamma
from glru.losses import Loss
from glru.partitioned.gap import Ellipsoid, ellipsoid, gradient, penalty_value
from glru.partitioned.loocv import require_local
from glru.partitioned.problem import PartitionedProblem
from glru.partitioned.solution import PartitionedSolution
from glru.partitioned.sums import Expansion, Model
from glru.partitioned.training import solve as train
from glru.penalties import Penalty
from glru.regions.base import intersected
from glru.selection.criteria import Criterion
from glru.selection.judge import Enough, Judge, Move, Screened, Worth
from glru.selection.result import StepwiseResult
from glru.selection.search import search, validation_rows
from glru.solvers.common import Floor

Columns = NDArray[np.intp]

STEPS = 30
"""Passes for one model at most: Newton steps, shortened where the objective would rise."""


def stepwise(
    model: PartitionedProblem | PartitionedSolution,
    X_val: Any = None,
    y_val: Any = None,
    direction: str = "backward",
    method: str = "certified",
    cv: Any = None,
    tol: float = 1e-6,
    **options: Any,
) -> StepwiseResult:
    """Stepwise selection of a problem's columns; see :func:`glru.stepwise`."""
    problem = model if isinstance(model, PartitionedProblem) else model.problem
    require_local(problem, "stepwise")
    if method != "certified" or cv is not None or X_val is None or y_val is None:
        raise ValueError(
            "stepwise of partitioned data has method='certified' and judges on validation rows in memory; "
            f"got method={method!r}, cv={cv!r}, X_val={'None' if X_val is None else 'rows'}. Give X_val and y_val."
        )

    def judge(chosen: Columns, rule: Criterion) -> Judge:
        X, y = validation_rows(problem, X_val, y_val)
        start = Model(np.zeros(problem.n_columns))
        if chosen.size == problem.n_columns:
            start = (train(problem, tol=tol) if isinstance(model, PartitionedProblem) else model).model
        return BlocksJudge(problem, chosen, X.dense(), y, rule, start)

    return search(problem, direction=direction, make_judge=judge, **options)  # type: ignore[arg-type]


@final
@dataclass(frozen=True, eq=False)
class Part:
    """Some columns of a problem, with what the local certificate has to know of them."""

    whole: PartitionedProblem
    chosen: Columns

    @property
    def loss(self) -> Loss:
        """The loss."""
        return self.whole.loss

    @property
    def fit_intercept(self) -> bool:
        """Whether there is an intercept."""
        return self.whole.fit_intercept

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.whole.n_rows

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return int(self.chosen.size)

    @property
    def depth(self) -> int:
        """As of the whole: its sums are used."""
        return self.whole.depth

    @property
    def plain(self) -> float:
        """At least the largest Euclidean norm of a row."""
        return self.whole.plain

    @property
    def weight_sum(self) -> float:
        """At least the sum of the weights."""
        return self.whole.weight_sum

    @cached_property
    def penalty(self) -> Penalty:
        """The penalty of the columns."""
        return self.whole.penalty.select(self.chosen)

    @property
    def least_curvature(self) -> float:
        """A number that no eigenvalue of the Hessian is below."""
        return 0.0 if self.fit_intercept else self.penalty.strong_convexity

    @property
    def quadratic(self) -> Array:
        """The penalty's strengths, one a column."""
        return self.whole.quadratic[self.chosen]

    @cached_property
    def places(self) -> Columns:
        """The columns, and the intercept's place behind them."""
        last = [self.whole.n_columns] if self.fit_intercept else []
        return np.append(self.chosen, last).astype(np.intp)

    @property
    def column_norms(self) -> Array:
        """At least ``sqrt(sum_i s_i x_ij^2)``, and ``sqrt(sum_i s_i)`` for an intercept."""
        return self.whole.column_norms[self.places]

    @property
    def plain_mass(self) -> float:
        """At least ``sqrt(sum_i s_i |x_i|^2)``."""
        norms = self.whole.column_norms[self.chosen]
        return float(np.linalg.norm(norms)) * (1.0 + gamma(norms.size + 8))

    def of(self, here: Expansion) -> Expansion:
        """The part of an expansion of the whole."""
        assert here.gram is not None
        return replace(here, pull=here.pull[self.places], gram=here.gram[np.ix_(self.places, self.places)])

    def padded(self, model: Model) -> Model:
        """A model of the part as one of the whole."""
        coef = np.zeros(self.whole.n_columns)
        coef[self.chosen] = model.coef
        return Model(coef, model.intercept)


@final
class BlocksJudge(Judge):
    """The model of some columns, judged on validation rows; every model it looks at costs passes of its own, one to three as a rule."""

    def __init__(
        self, whole: PartitionedProblem, chosen: Columns, X: Array, y: Array, criterion: Criterion, start: Model
    ) -> None:
        self.whole, self.chosen, self.X, self.y, self.criterion = whole, chosen, X, y, criterion
        self.model, self.here = start, None
        self._starts: dict[Move, Model] = {}

    here: Expansion | None

    @property
    def n_rows(self) -> int:
        return int(self.y.size)

    def value(self) -> Worth:
        worth, self.model, self.here = self._pursued(self.chosen, self.model, lambda low, high: False, 0.0)
        return worth

    def screen(self, moves: list[Move], method: str, check: Callable[[], None]) -> Screened:
        """Nothing: a move is known once it is looked at."""
        count = len(moves)
        return Screened(np.zeros(count), np.full(count, np.inf), np.zeros(count), "newton")

    def look(self, move: Move, enough: Enough, method: str, tol: float) -> Worth:
        worth, self._starts[move], _ = self._pursued(self._after(move), self._started(move), enough, self._fine)
        return worth

    def after(self, move: Move) -> "BlocksJudge":
        start = self._starts[move] if move in self._starts else self._started(move)
        return BlocksJudge(self.whole, self._after(move), self.X, self.y, self.criterion, start)

    def _after(self, move: Move) -> Columns:
        changed = np.array(move.columns, dtype=np.intp)
        return np.union1d(self.chosen, changed) if move.add else np.setdiff1d(self.chosen, changed)

    @property
    def _fine(self) -> float:
        """A sum known up to this is known well enough; the present model's sum tells the scale."""
        if self.criterion.counts:
            return 0.0
        return 0.05 * self.criterion.resolution * self._guess(self.chosen, self.model)

    def _expanded(self) -> Expansion:
        if self.here is None:
            self.here = self.whole.expansion(self.model, Floor.of(self.whole.loss))
        return self.here

    def _started(self, move: Move) -> Model:
        """Where the quadratic model of the whole problem at the present model is least on the columns after a move."""
        part, here = Part(self.whole, self._after(move)), self._expanded()
        assert here.gram is not None
        full: Array = np.triu(here.gram) + np.triu(here.gram, 1).T
        full[np.diag_indices(self.whole.n_columns)] += self.whole.quadratic
        pull = gradient(self.whole, self.model, here.pull)
        gone = np.setdiff1d(self.chosen, part.chosen)
        right = full[np.ix_(part.places, gone)] @ self.model.coef[gone] - pull[part.places]
        step: Array
        try:
            step = solve(full[np.ix_(part.places, part.places)], right, assume_a="pos", check_finite=False)
        except (LinAlgError, ValueError):
            step = np.zeros(part.places.size)
        return part.padded(Model(self.model.coef[part.chosen], self.model.intercept).moved(step))

    def _pursued(self, chosen: Columns, model: Model, enough: Enough, fine: float) -> tuple[Worth, Model, Expansion]:
        """The worth of a model of some columns after Newton steps, where they ended and the sums there."""
        part, before, value, length = Part(self.whole, chosen), np.inf, np.inf, 1.0
        last, direction = Model(model.coef[chosen], model.intercept), np.zeros(part.places.size)
        queries, zero = as_matrix(self.X[:, chosen]), self._zero(chosen)
        found = np.full(self.n_rows, -np.inf), np.full(self.n_rows, np.inf)
        for step in range(STEPS):
            here = self.whole.expansion(model, Floor.of(self.whole.loss))
            if not part.places.size:
                found = np.zeros(self.n_rows), np.zeros(self.n_rows)
                break
            mine = Model(model.coef[chosen], model.intercept)
            now = here.value + _penalty_value(part, mine)
            if not now <= value + FEW * abs(value):
                length *= 0.25
                model = part.padded(last.moved(direction, length))
                continue
            region = _ellipsoid(part, mine, part.of(here))
            if np.isfinite(region.radius):
                found = intersected(found, region.score_bounds(queries))
                low, high = self._sums(*found, zero)
                if high - low <= fine * (1.0 - FEW) or enough(low, high):
                    break
            if (not region.nu < before and not now < value) or step == STEPS - 1:
                break
            before, value, last, length = region.nu, now, mine, 1.0
            direction = -region.metric.solve(_gradient(part, mine, part.of(here).pull))
            model = part.padded(mine.moved(direction))
        stage = "newton" if step == 0 else "refine"
        return Worth(*self._sums(*found, zero), stage, self._guess(chosen, model)), model, here

    def _zero(self, chosen: Columns) -> NDArray[np.bool_]:
        """Rows whose score is exactly zero whatever the coefficients."""
        if self.whole.fit_intercept:
            return np.zeros(self.n_rows, dtype=bool)
        return np.asarray(~(self.X[:, chosen] != 0.0).any(axis=1))

    def _sums(self, lower: Array, upper: Array, zero: NDArray[np.bool_]) -> tuple[float, float]:
        low, high = self.criterion.sums(self.y, np.where(zero, 0.0, lower), np.where(zero, 0.0, upper))
        return float(low), float(high)

    def _guess(self, chosen: Columns, model: Model) -> float:
        """The sum of a model as it is."""
        scores = self.X[:, chosen] @ model.coef[chosen] + model.intercept
        return self._sums(scores, scores, self._zero(chosen))[1]


def _ellipsoid(part: Any, model: Model, here: Expansion) -> Ellipsoid:
    return ellipsoid(part, model, here)


def _penalty_value(part: Any, model: Model) -> float:
    return penalty_value(part, model)


def _gradient(part: Any, model: Model, pull: Array) -> Array:
    return gradient(part, model, pull)
