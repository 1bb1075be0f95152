"""Held-out scores of folds of partitioned rows: Newton steps of each fold's problem under the local certificate."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru._budget import Budget
from glru.linalg import Array
from glru.model_selection.loocv import check_width
from glru.model_selection.progress import Report, reporter
from glru.model_selection.result import metric_interval
from glru.partitioned.gap import Ellipsoid
from glru.partitioned.loocv import require_local
from glru.partitioned.problem import PartitionedProblem
from glru.partitioned.removing import errors_of, is_decided
from glru.partitioned.retraining import pursue
from glru.partitioned.rows import Absent, at_rows, chunks
from glru.partitioned.solution import PartitionedSolution
from glru.partitioned.training import solve
from glru.problem import Problem
from glru.regions.base import Bounds


@final
@dataclass(frozen=True, eq=False, repr=False)
class PartitionedCrossValResult:
    """Held-out scores of every row, each under the model trained without the row's fold.

    Attributes
    ----------
    problem : PartitionedProblem
        What was validated.
    folds : array of shape (n_rows,)
        The fold of each row.
    y : array of shape (n_rows,)
        Targets; labels are -1/+1.
    score_lower, score_upper : array of shape (n_rows,)
        Proven bounds of the held-out scores.
    decided : array of bool of shape (n_folds,)
        Whether all of a fold's rows are decided.
    n_passes : float
        Passes over the data.

    Examples
    --------
    >>> import tempfile, numpy as np, glru
    >>> folder = tempfile.TemporaryDirectory()
    >>> X = np.memmap(folder.name + "/X.bin", dtype=float, mode="w+", shape=(400, 3))
    >>> X[:] = np.random.default_rng(0).normal(size=X.shape)
    >>> result = glru.cross_val_predict(glru.Problem(X, X[:, 0] > 0.3, penalty=glru.L2(0.1)), cv=4)
    >>> result
    PartitionedCrossValResult(4 folds, 400 rows, 0 undetermined)
    >>> del X, result; folder.cleanup()
    """

    problem: PartitionedProblem
    folds: NDArray[np.int64]
    y: Array
    score_lower: Array
    score_upper: Array
    decided: NDArray[np.bool_]
    n_passes: float

    @property
    def scores(self) -> Array:
        """The middle of every interval."""
        with np.errstate(invalid="ignore"):
            return 0.5 * (self.score_lower + self.score_upper)

    @property
    def labels(self) -> NDArray[np.int8]:
        """+1 or -1 where the held-out label is proven, 0 where it is not."""
        return np.where(self.score_lower > 0.0, 1, np.where(self.score_upper < 0.0, -1, 0)).astype(np.int8)

    @property
    def errors(self) -> tuple[int, int]:
        """The least and the largest number of held-out errors of a classification."""
        if self.problem.loss.task != "classification":
            raise ValueError(f"a regression has no error count; got {self.problem.loss!r}. Use metric_bounds.")
        return errors_of(self.y, self.score_lower, self.score_upper)

    def metric_bounds(self, name: str) -> tuple[float, float]:
        """A certified interval of a metric of the pooled held-out scores; names as in :class:`~glru.LOOCVResult`."""
        return metric_interval(name, self.problem.loss, self.y, self.score_lower, self.score_upper)

    def __repr__(self) -> str:
        known = (self.labels != 0) if self.problem.loss.task == "classification" else np.isfinite(self.scores)
        return f"PartitionedCrossValResult({self.decided.size} folds, {self.y.size} rows, {int(np.sum(~known))} undetermined)"


@np.errstate(all="ignore")  # overflow ends in infinite bounds: nothing is proven then
def cross_val_predict(
    model: PartitionedProblem | PartitionedSolution,
    cv: Any = 5,
    groups: Any = None,
    width: float | None = None,
    tol: float = 1e-6,
    progress: bool | Report = False,
    max_seconds: float | None = None,
) -> PartitionedCrossValResult:
    """Held-out scores of a problem or of its solution; see :func:`glru.cross_val_predict`.

    ``cv``: a number of folds of consecutive rows, or a scikit-learn splitter whose test rows are disjoint and whose train
    rows are all others; it is given the number of rows, and ``groups`` if there are any, but no targets.
    """
    problem = model if isinstance(model, PartitionedProblem) else model.problem
    require_local(problem, "cross_val_predict")
    check_width(width)
    budget, before = Budget(max_seconds), problem.traffic.passes
    tests = folds_of(problem.n_rows, cv, groups)
    solution = solve(model, tol=tol, budget=budget) if isinstance(model, PartitionedProblem) else model
    if width is None and problem.loss.task == "regression":
        width = 1e-6 * ((problem.census.highest.value + problem.census.lowest.value) or 1.0)
    lower, upper = np.full(problem.n_rows, -np.inf), np.full(problem.n_rows, np.inf)
    folds, decided = np.full(problem.n_rows, -1), np.zeros(len(tests), dtype=bool)
    with reporter(progress) as report:
        for k, rows in enumerate(tests):
            places = np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows
            folds[places] = k
            if not budget.spent:
                lower[places], upper[places] = _fold(solution, rows, places, width, budget)
            decided[k] = bool(np.all(is_decided(width, lower[places], upper[places])))
            report("newton" if decided[k] else "undetermined", k + 1, len(tests))
    y = np.concatenate(problem.blocks.map(_targets, problem.layout))
    return PartitionedCrossValResult(problem, folds, y, lower, upper, decided, problem.traffic.passes - before)


def folds_of(n_rows: int, cv: Any, groups: Any) -> list[range | NDArray[np.int64]]:
    """The test rows of every fold."""
    if isinstance(cv, int | np.integer):
        if not 2 <= cv <= n_rows:
            raise ValueError(f"cv must be a number of folds from 2 to {n_rows}, the rows; got {cv!r}.")
        edges = [k * (n_rows // cv) + min(k, n_rows % cv) for k in range(int(cv) + 1)]
        return [range(edges[k], edges[k + 1]) for k in range(int(cv))]
    if not hasattr(cv, "split"):
        raise TypeError(f"cv must be a number of folds or a scikit-learn splitter for partitioned data; got {cv!r}.")
    tests: list[range | NDArray[np.int64]] = []
    seen = np.zeros(n_rows, dtype=np.int64)
    for train, test in cv.split(np.empty((n_rows, 0)), None, groups):
        if len(train) + len(test) != n_rows:
            raise ValueError("every split of partitioned data must train on all rows that it does not test.")
        tests.append(np.sort(np.asarray(test, dtype=np.int64)))
        seen[tests[-1]] += 1
    if seen.size and not np.all(seen == 1):
        raise ValueError("the splits of partitioned data must test every row once; use leave-out folds such as KFold.")
    return tests


def _fold(
    solution: PartitionedSolution,
    rows: range | NDArray[np.int64],
    places: NDArray[np.int64],
    width: float | None,
    budget: Budget,
) -> Bounds:
    problem = solution.problem
    without = problem.changed(absent=Absent(rows))
    own = {k: here for k, (here, _) in problem.blocks.places(places).items()}

    def ask(region: Ellipsoid) -> Bounds:
        parts = problem.blocks.map_of(scored, problem.layout, own, region)
        return np.concatenate([low for low, _ in parts]), np.concatenate([high for _, high in parts])

    def settled(low: Array, high: Array) -> bool:
        return bool(np.all(is_decided(width, low, high)))

    return pursue(without, solution.model, places.size, ask, settled, budget)


def scored(block: Problem, number: int, start: int, places: NDArray[np.int64], region: Ellipsoid) -> Bounds:
    """Bounds of the scores of some of a block's rows."""
    rows = at_rows(block, places)
    lower, upper = np.empty(rows.n_rows), np.empty(rows.n_rows)
    for part, piece in chunks(rows):
        lower[part], upper[part] = region.score_bounds(piece.matrix)
    return lower, upper


def _targets(block: Problem, number: int, start: int) -> Array:
    return block.y
