"""Cross-validation over any scikit-learn splitter: certified predictions of every held-out block."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru import duality
from glru._budget import UNLIMITED, Budget
from glru.linalg import Array, calm_blas
from glru.model_selection.loocv import check_width, trained
from glru.model_selection.progress import Report, reporter
from glru.model_selection.pursuit import pursue
from glru.model_selection.splits import Rows, split_rows
from glru.point import Point
from glru.problem import Problem
from glru.solution import Solution


@final
@dataclass(frozen=True, eq=False, repr=False)
class CrossValResult:
    """Held-out scores of every fold, one entry a held-out row in the order of the splits.

    Attributes
    ----------
    rows, folds : array of int
        Which row was held out, and in which fold.
    score_lower, score_upper : array of float
        Proven bounds of its score under the model trained without that fold.
    decided_by : dict
        How many folds each stage decided.
    n_trainings : int
        Folds that needed a training.
    train_rows : tuple of array
        The rows each fold's model is trained on.

    Examples
    --------
    >>> import numpy as np, glru
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> result = glru.cross_val_predict(glru.Problem(X, X[:, 0] > 0.3, penalty=glru.L2(0.1)), cv=4)
    >>> result.rows.size, result.n_trainings
    (40, 0)
    """

    problem: Problem
    rows: Rows
    folds: Rows
    score_lower: Array
    score_upper: Array
    decided_by: dict[str, int]
    n_trainings: int
    train_rows: tuple[Rows, ...]

    @property
    def scores(self) -> Array:
        """The middle of every interval."""
        with np.errstate(invalid="ignore"):
            return 0.5 * (self.score_lower + self.score_upper)

    @property
    def labels(self) -> NDArray[np.int8]:
        """+1 or -1 where the held-out label is proven, 0 where it is not."""
        return np.where(self.score_lower > 0.0, 1, np.where(self.score_upper < 0.0, -1, 0)).astype(np.int8)

    def __repr__(self) -> str:
        decided = ", ".join(f"{stage} {count}" for stage, count in self.decided_by.items())
        width = float(np.max(self.score_upper - self.score_lower))
        return f"CrossValResult({self.folds.max() + 1} folds, decided by {decided}; largest width {width:.2g})"


@np.errstate(all="ignore")
def held_out_blocks(
    problem: Problem | Solution,
    cv: Any = 5,
    groups: Any = None,
    width: float | None = None,
    tol: float = 1e-6,
    progress: bool | Report = False,
    max_seconds: float | None = None,
) -> CrossValResult:
    """Held-out scores of a problem or of its solution; the parameters are those of :func:`glru.cross_val_predict`."""
    budget = Budget(max_seconds)
    solution = trained(problem, tol, budget=budget)
    data = solution.problem
    check_width(width)
    if width is None and data.loss.task == "regression":
        width = 1e-6 * float(np.ptp(data.y) or 1.0)
    splits = splits_of(data, cv, groups)
    lower, upper, stages = [], [], []
    with reporter(progress) as report, calm_blas(data.work):
        for k, (train, test) in enumerate(splits):
            low, high, stage = fold_bounds(solution, _without(data, train), test, width, budget)
            lower.append(low)
            upper.append(high)
            stages.append(stage)
            report(stage, k + 1, len(splits))
    return CrossValResult(
        problem=data,
        rows=np.concatenate([test for _, test in splits]),
        folds=np.repeat(np.arange(len(splits)), [test.size for _, test in splits]),
        score_lower=np.concatenate(lower),
        score_upper=np.concatenate(upper),
        decided_by={stage: stages.count(stage) for stage in dict.fromkeys(stages)},
        n_trainings=stages.count("training"),
        train_rows=tuple(train for train, _ in splits),
    )


def splits_of(problem: Problem, cv: Any, groups: Any) -> list[tuple[Rows, Rows]]:
    """The rows of every split, checked."""
    splits = list(split_rows(cv, problem.y, groups, problem.loss.task == "classification"))
    if not splits:
        raise ValueError("cv must give at least one split; got none.")
    for k, (train, test) in enumerate(splits):
        if test.size == 0 or not problem.sample_weight[train].any():
            raise ValueError(f"every split needs test rows and train rows of weight above 0; split {k} has none.")
        if problem.loss.task == "classification" and problem.fit_intercept:
            used = train[problem.sample_weight[train] > 0.0]
            if np.unique(problem.y[used]).size < 2:
                raise ValueError(
                    f"with an intercept every split needs both classes in its train rows; split {k} has one."
                )
    return splits


def _without(data: Problem, train: Rows) -> Problem:
    """The problem in which only some rows have weight."""
    weight = np.zeros(data.n_rows)
    np.add.at(weight, train, data.sample_weight[train])
    return data.derive(sample_weight=weight)


def fold_bounds(
    solution: Solution, problem: Problem, test: Rows, width: float | None, budget: Budget = UNLIMITED
) -> tuple[Array, Array, str]:
    """Bounds of some rows' scores in a problem of the same rows and columns, and the stage that decided them."""
    if budget.spent:
        return np.full(test.size, -np.inf), np.full(test.size, np.inf), "undetermined"
    data = solution.problem
    point = Point(solution.coef, solution.intercept, duality.feasible_dual(problem, solution.dual))

    def settled(lower: Array, upper: Array) -> bool:
        if width is not None:
            return bool(np.all(upper - lower <= width))
        return bool(np.all((lower > 0.0) | (upper < 0.0)))

    found = pursue(problem, point, data.matrix[test], settled, budget=budget)
    late = budget.spent and not settled(found.lower, found.upper)
    return found.lower, found.upper, "undetermined" if late else found.stage
