"""Folds: splits of the rows, and the held-out scores of every split."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from glru._options import Budget
from glru.bounds import ScoreBounds, concatenate, shift
from glru.cascade import Report, Rows, reporter
from glru.linalg import Array, calm_blas
from glru.losses import WithOffset
from glru.model_selection.loocv import ensure_trained, find_usual_width
from glru.model_selection.result import HeldOutScores, Refitted
from glru.problem import Problem, require_problem
from glru.refine import bound_folds
from glru.regions.classes import require_classes
from glru.solution import Solution
from glru.updates.local_rows import require_local

SMALL_RANGE = 64
"""Integer labels within a range of this size are distinguished without sorting."""


def is_leave_one_out(cv: Any) -> bool:
    """Whether ``cv`` leaves out every row in turn."""
    from sklearn.model_selection import LeaveOneOut

    return isinstance(cv, LeaveOneOut)


def split_rows(cv: Any, y: NDArray[Any], groups: Any, classification: bool) -> Iterator[tuple[Rows, Rows]]:
    """Train and test rows of every split, one split at a time."""
    from sklearn.model_selection import check_cv

    n_folds = 5 if cv is None else cv
    owners = _fold_of_rows(int(n_folds), y, classification) if isinstance(n_folds, int | np.integer) else None
    if owners is not None:
        for k in range(n_folds):
            mine = owners == k
            yield np.flatnonzero(~mine), np.flatnonzero(mine)
        return
    if isinstance(cv, Iterable) and not hasattr(cv, "split"):
        found = iter(cv)
    else:
        splitter = check_cv(cv, y, classifier=classification)
        found = splitter.split(np.zeros((y.size, 1)), y, groups)
    for pair in found:
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise ValueError(
                f"every split must be a pair of train and test rows; got {pair!r}. Use cv=[(train, test)] for one split."
            )
        train, test = pair
        yield _to_positions(train, y.size), _to_positions(test, y.size)


def _fold_of_rows(n_folds: int, y: NDArray[Any], classification: bool) -> Rows | None:
    """Which fold tests which row, as scikit-learn has it for a number of folds, without its checks; None where they have something to say."""
    if not 2 <= n_folds <= y.size or y.ndim != 1:
        return None
    if not classification:
        return np.repeat(np.arange(n_folds), y.size // n_folds + (np.arange(n_folds) < y.size % n_folds))
    if y.dtype.kind not in "biuf" or not np.array_equal(y, np.trunc(y)):
        return None
    if float(y.max()) - float(y.min()) < SMALL_RANGE:
        codes = y.astype(np.intp) - int(y.min())
        counts = np.bincount(codes)
        first = np.array([np.argmax(codes == k) if counts[k] else y.size for k in range(counts.size)])
    else:
        _, first, codes, counts = np.unique(y, return_index=True, return_inverse=True, return_counts=True)
    if counts[counts > 0].min() < n_folds:
        return None
    # Classes in the order in which they appear. Their rows, one class after the other, are dealt out to the folds in turn, which tells
    # how many of a class each fold gets: the first ones, the next ones, and so on.
    codes = np.argsort(np.argsort(first, kind="stable"))[codes]
    owners = np.empty(y.size, dtype=np.intp)
    # Short numbers are sorted in one pass.
    short = np.int16 if n_folds * counts.size < 1 << 15 else np.intp
    order = np.argsort(codes.astype(short), kind="stable")
    dealt = n_folds * codes[order] + np.arange(y.size) % n_folds
    owners[order] = np.sort(dealt.astype(short), kind="stable") % n_folds
    return owners


def _to_positions(rows: Any, n_rows: int) -> Rows:
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


Test = range | NDArray[np.int64]
"""The test rows of a fold: consecutive ones, or sorted numbers."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class CrossValResult(HeldOutScores):
    """Held-out scores of every fold, one entry per held-out row in the order of the splits.

    Attributes
    ----------
    problem : Problem
        What was validated.
    rows, folds : array of int
        Which row was held out, and in which fold.
    y : array of float
        The targets of the held-out rows; labels are -1/+1.
    bounds : ScoreBounds
        Proven bounds of its score under the model trained without that fold.
    decided_by : dict
        How many held-out rows are in the folds that each stage decided. A fold with one open row is "undetermined" as a whole;
        ``n_undetermined`` counts the open rows.
    n_trainings : int
        Folds that needed a training.
    train_rows : tuple of array
        The rows each fold's model is trained on; none for rows in blocks, where these are all that a fold does not test.
    n_passes : float
        Passes over rows in blocks.
    classes : array or None
        The classes as the caller has them, in sorted order; None for a regression. With more than two, ``y`` holds places among them, and
        there is one score per row and class.
    n_refits, refit_reason : int, str or None
        For how many splits the steps in front of a pipeline's model were fitted again, without a closed form, and why.
    refitted : callable or None
        Where a split changes more than the weights of the rows (a pipeline, balanced weights): ``refitted(fold)`` is the problem of
        the model of a fold, and the places of the fold's test rows there.

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
    y: Array
    bounds: ScoreBounds
    decided_by: dict[str, int]
    n_trainings: int
    train_rows: tuple[Rows, ...]
    n_passes: float = 0.0
    known_classes: NDArray[Any] | None = None
    n_refits: int = 0
    refit_reason: str | None = None
    refitted: Refitted | None = None
    certified: ClassVar[bool] = True
    """Whether what is stated is proven: here it always is."""

    def _held_out(self) -> tuple[ScoreBounds, Array]:
        return self.bounds, self.y

    def _columns(self) -> dict[str, Any]:
        return {"row": self.rows, "fold": self.folds} | super()._columns()

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        lines = self._show_metrics()
        lines.append(("decided by", ", ".join(f"{stage} {count}" for stage, count in self.decided_by.items())))
        lines.append(("trainings", f"{self.n_trainings} of {self.folds.max() + 1}"))
        if self.n_refits:
            lines.append(("refits", f"{self.n_refits}: {self.refit_reason}"))
        lines.append(self._show_widths())
        return f"CrossValResult({self.rows.size} rows in {self.folds.max() + 1} folds)", lines


@np.errstate(all="ignore")
def held_out_folds(
    problem: Problem | Solution,
    cv: Any = 5,
    groups: Any = None,
    width: float | None = None,
    tol: float = 1e-6,
    progress: bool | Report = False,
    max_seconds: float | None = None,
    aim: float | None = None,
) -> CrossValResult:
    """Held-out scores of a problem or of its solution; the parameters are those of :func:`glru.cross_val_predict`.

    ``aim``: a width to go on to where labels are decided, as far as a few Newton steps reach it.
    """
    budget = Budget(max_seconds)
    data = problem.problem if isinstance(problem, Solution) else problem
    require_problem(data)
    if data.loss.several:
        require_classes(data)
    before = data.traffic.passes
    # Of rows in blocks a fold is trained on all that it does not test.
    splits: Sequence[tuple[Rows | None, Test]] = (
        split_in_memory(data, cv, groups)
        if data.in_memory
        else [(None, test) for test in block_folds(data, cv, groups)]
    )
    width = find_usual_width(data) if width is None else width
    tests = [np.asarray(test, dtype=np.intp) for _, test in splits]
    folds = [
        data.without(test).require_weight()
        if train is None
        else data.derive(sample_weight=np.bincount(train, data.sample_weight[train], data.n_rows))
        for train, test in splits
    ]
    known = problem if isinstance(problem, Solution) else lambda: ensure_trained(data, tol, budget=budget)
    found, stages = [], []
    with reporter(progress) as report, calm_blas(data.work if data.in_memory else 0.0):
        for bounds, stage in bound_folds(data, folds, tests, known, width, budget, aim):
            found.append(bounds)
            stages.append(stage)
            report(stage, len(found), len(splits))
    rows = np.concatenate([np.asarray(test, dtype=np.intp) for _, test in splits])
    return CrossValResult(
        problem=data,
        rows=rows,
        folds=np.repeat(np.arange(len(splits)), [len(test) for _, test in splits]),
        y=np.concatenate(data.map(attrgetter("targets")))[rows],
        bounds=shift(concatenate(found), data.offset[rows])
        if isinstance(data.loss, WithOffset)
        else concatenate(found),
        decided_by=count_stages_of_rows(stages, [len(test) for _, test in splits]),
        n_trainings=stages.count("training"),
        train_rows=tuple(train for train, _ in splits if train is not None),
        n_passes=data.traffic.passes - before,
    )


def count_stages_of_rows(stages: list[str], sizes: list[int]) -> dict[str, int]:
    """How many held-out rows are in the folds that each stage decided."""
    counts: dict[str, int] = {}
    for stage, size in zip(stages, sizes, strict=True):
        counts[stage] = counts.get(stage, 0) + size
    return counts


def block_folds(problem: Problem, cv: Any, groups: Any) -> list[Test]:
    """The test rows of every fold of rows in blocks: consecutive ones, or those of a splitter that needs no targets."""
    if not problem.loss.several:
        require_local(problem, "cross_val_predict")
    n_rows = problem.n_rows
    if isinstance(cv, int | np.integer):
        if not 2 <= cv <= n_rows:
            raise ValueError(f"cv must be a number of folds from 2 to {n_rows}, the rows; got {cv!r}.")
        edges = [k * (n_rows // cv) + min(k, n_rows % cv) for k in range(int(cv) + 1)]
        return [range(edges[k], edges[k + 1]) for k in range(int(cv))]
    if not hasattr(cv, "split"):
        raise TypeError(f"cv must be a number of folds or a scikit-learn splitter for rows in blocks; got {cv!r}.")
    tests: list[Test] = []
    seen = np.zeros(n_rows, dtype=np.int64)
    for train, test in cv.split(np.empty((n_rows, 0)), None, groups):
        if len(train) + len(test) != n_rows:
            raise ValueError("every split of rows in blocks must train on all rows that it does not test.")
        tests.append(np.sort(np.asarray(test, dtype=np.int64)))
        seen[tests[-1]] += 1
    if seen.size and not np.all(seen == 1):
        raise ValueError("the splits of rows in blocks must test every row once; use leave-out folds such as KFold.")
    return tests


def split_in_memory(problem: Problem, cv: Any, groups: Any) -> list[tuple[Rows, Rows]]:
    """The train and test rows of every split of rows in memory, checked."""
    splits = list(split_rows(cv, problem.targets, groups, problem.loss.task == "classification"))
    if not splits:
        raise ValueError("cv must give at least one split; got none.")
    for k, (train, test) in enumerate(splits):
        if test.size == 0 or not problem.sample_weight[train].any():
            raise ValueError(f"every split needs test rows and train rows of weight above 0; split {k} has none.")
        if problem.loss.task == "classification" and problem.fit_intercept:
            used = train[problem.sample_weight[train] > 0.0]
            n_classes = np.unique(problem.y[used]).size
            if n_classes < max(problem.n_scores, 2):
                which = "all classes" if problem.loss.several else "both classes"
                raise ValueError(
                    f"with an intercept every split needs {which} in its train rows; split {k} has {n_classes}."
                )
    return splits
