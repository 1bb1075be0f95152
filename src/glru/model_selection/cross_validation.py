"""Cross-validation over any scikit-learn splitter: certified predictions of every held-out block."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru import duality
from glru._budget import Budget
from glru._numerics import Array
from glru._threads import calm_blas
from glru.model_selection.loocv import check_width, trained
from glru.model_selection.progress import Report, reporter
from glru.model_selection.pursuit import pursue
from glru.point import Point
from glru.problem import Problem
from glru.solution import Solution

Rows = NDArray[np.intp]


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
def cross_val_predict(
    problem: Problem | Solution,
    cv: Any = 5,
    groups: Any = None,
    width: float | None = None,
    tol: float = 1e-6,
    progress: bool | Report = False,
    max_seconds: float | None = None,
) -> CrossValResult:
    """Certified held-out scores for any way of splitting the rows.

    Each fold starts from the model of all rows; Newton steps under a certificate follow until every held-out
    label (or, with ``width``, every score) is proven, and a training only where they do not suffice.

    Parameters
    ----------
    problem : Problem or Solution
        What to validate; a problem is trained on all rows first.
    cv : int, splitter or iterable of (train, test), default=5
        As in scikit-learn: k-fold, grouped, repeated, ...
    groups : array of shape (n_rows,), default=None
        Groups for splitters that need them.
    width : float, default=None
        Largest interval to accept; if not given, labels are decided (a regression: 1e-6 times the spread of y).
    tol : float, default=1e-6
        Relative gap of the first training.
    progress : bool or callable, default=False
        As in :func:`glru.loocv`.
    max_seconds : float, default=None
        Start no fold after so many seconds, and end the one under way: what is not decided by then stays
        "undetermined", with bounds that hold all the same.

    Returns
    -------
    CrossValResult

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> result = glru.cross_val_predict(glru.Problem(X, y, penalty=glru.L2(0.1)), cv=5)
    >>> bool((result.labels != 0).all())
    True
    """
    budget = Budget(max_seconds)
    solution = trained(problem, tol, budget)
    data = solution.problem
    check_width(width)
    if width is None and data.loss.task == "regression":
        width = 1e-6 * float(np.ptp(data.y) or 1.0)
    splits = splits_of(data, cv, groups)
    lower, upper, stages = [], [], []
    with reporter(progress) as report, calm_blas(data.work):
        for k, (train, test) in enumerate(splits):
            low, high, stage = _fold(solution, train, test, width, budget)
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
    from sklearn.model_selection import check_cv

    if isinstance(cv, Iterable) and not hasattr(cv, "split"):
        found = list(cv)
    else:
        splitter = check_cv(cv, problem.y, classifier=problem.loss.task == "classification")
        found = list(splitter.split(np.zeros((problem.n_rows, 1)), problem.y, groups))
    splits = [(_row_numbers(train, problem.n_rows), _row_numbers(test, problem.n_rows)) for train, test in found]
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


def _row_numbers(rows: Any, n_rows: int) -> Rows:
    """Rows of a split, given as a mask or as positions, as positions."""
    places = np.asarray(rows)
    if places.size == 0:
        return np.empty(0, dtype=np.intp)
    if places.dtype == np.bool_:
        if places.shape != (n_rows,):
            raise ValueError(f"a mask of rows must have shape ({n_rows},); got {places.shape}.")
        return np.flatnonzero(places)
    if places.dtype.kind not in "iu" or places.ndim != 1 or np.any((places < 0) | (places >= n_rows)):
        raise ValueError(f"the rows of a split must be a mask or positions from 0 to {n_rows - 1}; got {rows!r}.")
    return places.astype(np.intp)


def _fold(solution: Solution, train: Rows, test: Rows, width: float | None, budget: Budget) -> tuple[Array, Array, str]:
    """Bounds of a fold's held-out scores and the stage that decided them."""
    if budget.spent:
        return np.full(test.size, -np.inf), np.full(test.size, np.inf), "undetermined"
    data = solution.problem
    weight = np.zeros(data.n_rows)
    np.add.at(weight, train, data.sample_weight[train])
    problem = data.derive(sample_weight=weight)
    point = Point(solution.coef, solution.intercept, duality.feasible_dual(problem, solution.dual))

    def settled(lower: Array, upper: Array) -> bool:
        if width is not None:
            return bool(np.all(upper - lower <= width))
        return bool(np.all((lower > 0.0) | (upper < 0.0)))

    found = pursue(problem, point, data.X[test], lambda *bounds: settled(*bounds) or budget.spent)
    late = budget.spent and not settled(found.lower, found.upper)
    return found.lower, found.upper, "undetermined" if late else found.stage
