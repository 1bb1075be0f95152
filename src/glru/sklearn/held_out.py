"""Certified held-out scores of an estimator, for any way of splitting the rows."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru._options import UNLIMITED, warn_caller
from glru.bounds import Bounds, ScoreBounds, concatenate, is_decided
from glru.cascade import Report, Rows, reporter
from glru.duality import explain_missing_optimum, penalise_dependent_columns
from glru.linalg import Array, calm_blas, outward
from glru.model_selection.cross_validation import count_stages_of_rows, split_rows
from glru.model_selection.loocv import leave_one_out, make_unique
from glru.refine import Closer, bound_folds, bound_grid, bound_single_fold
from glru.regions import has_local, has_support
from glru.regions.classes import require_classes
from glru.sklearn.adapt import Adapted, Fold
from glru.sklearn.column_maps import ColumnChanges
from glru.solution import Solution
from glru.solvers import solve
from glru.solvers.newton import zero_point
from glru.updates.folds import has_folds
from glru.updates.refits import LARGEST_SHARE, Refits, constant_loss, factor_radii, has_squares, strength_errors
from glru.updates.support_rows import find_support, finds_supports_anywhere

Split = tuple[Rows | None, Rows]

WIDTH = 1e-4
"""Default width of held-out scores: the accuracy that scikit-learn's solvers reach."""

AVERAGE_SHARE = 0.2
"""Leave-one-out narrows each interval to the width and the average to this share of it, so that metrics are known as well as scores."""

NARROW_WIDTH, NARROWEST_WIDTH = 1e-6, 1e-10
"""Scores are narrowed to this width, or to the estimator's ``tol`` if that is smaller, if a few steps without training suffice;
float64 resolves few scores much further."""

TIGHTER_FACTOR = 1e-4
"""Intervals are narrowed by this factor where the scores of several classes are too close to decide the label."""


@final
@dataclass(frozen=True, eq=False)
class HeldOut:
    """Scores of every test row under the model of its split's train rows."""

    adapted: Adapted
    # Train and test rows of every split; the train rows are None where they are all rows but the one in the test.
    splits: list[Split]
    bounds: ScoreBounds  # proven bounds of the scores of their test rows, one after the other, shaped as ``decision_function``
    # How many held-out rows each stage decided; with one model per class, summed over the models.
    decided_by: dict[str, int] = field(default_factory=dict)
    n_trainings: int = 0  # models that needed a training
    # For how many splits the steps in front of the model were fitted again, without a closed form, and why.
    n_refits: int = 0
    refit_reason: str | None = None

    @cached_property
    def rows(self) -> Rows:
        """Which row was held out."""
        return np.concatenate([test for _, test in self.splits])

    @cached_property
    def folds(self) -> Rows:
        """In which split it was."""
        return np.repeat(np.arange(len(self.splits)), [test.size for _, test in self.splits])

    @property
    def leaves_one_out(self) -> bool:
        """Whether every split leaves out one row."""
        return all(train is None for train, _ in self.splits)

    @property
    def reason(self) -> str:
        """Why some predictions are open: a split without an optimum, or the limits of float64."""
        bounded = self.bounds.bounded.reshape(self.rows.size, -1).all(axis=1)
        open_folds = np.unique(self.folds[~bounded])
        splits = add_train_rows(self.adapted, [self.splits[fold] for fold in open_folds])
        # A label may be open though its score has bounds: then there is no split to look at.
        for number, fold in zip(open_folds, self.adapted.folds(splits) if splits else (), strict=True):
            for problem in fold.problems:
                found = explain_missing_optimum(problem)
                if found is not None:
                    return f"in split {number} {found}"
        return "float64 does not bound their scores narrowly enough."

    @property
    def scores(self) -> Array:
        """The middle of every interval; a masked array where some intervals have no end, masked there."""
        middle, known = self.bounds.middle, self.bounds.bounded
        return middle if known.all() else np.ma.masked_array(np.where(known, middle, 0.0), mask=~known)

    @property
    def labels(self) -> NDArray[Any]:
        """The held-out labels; a masked array where some are not proven, masked there."""
        assert self.adapted.classes is not None
        return self.bounds.labels(self.adapted.classes)


@final
@dataclass(frozen=True)
class Request:
    """How closely held-out scores are to be known."""

    width: float | None  # the largest width; None: only as tight as labels need them
    tol: float  # relative gap of the training on all rows
    progress: bool | Report = False
    aim: float | None = None  # a smaller width, to reach where that takes no training


def bound_held_out(
    adapted: Adapted,
    cv: Any,
    groups: Any,
    request: Request,
    solutions: Sequence[Solution] | None = None,
    warn: bool = True,
    splits: list[Split] | None = None,
) -> HeldOut:
    """Held-out scores as closely as requested.

    ``warn``: about scores that are not proven to the width. ``splits``: the splits of ``cv``, where they are known.
    """
    width, tol, aim = request.width, request.tol, request.aim
    require_bounds(adapted)
    splits = _list_splits(adapted, cv, groups) if splits is None else splits
    if any(train is not None for train, _ in splits):
        found = _bound_folds(adapted, solutions, splits, request)
        return found.to_held_out(adapted, splits, width if warn else None)
    solutions = train_all(adapted, tol) if solutions is None else solutions
    narrow: dict[str, Any] = {} if aim is None else {"aim": AVERAGE_SHARE * aim, "largest": aim}
    results = [
        leave_one_out(own, width=choose_width(width, aim, refits), progress=request.progress, refits=refits, **narrow)
        for own, refits in zip(solutions, adapted.refits, strict=True)
    ]
    rows = np.concatenate([test for _, test in splits])
    counts = sum((Counter(result.decided_by) for result in results), Counter[str]())
    n_trainings, n_refits = sum(result.n_trainings for result in results), adapted.n_refits
    bounds = adapted.bounds([result.bounds.take(rows) for result in results])
    _warn_of_width(bounds.width, width if warn else None)
    return HeldOut(
        adapted, splits, bounds, dict(counts), n_trainings, n_refits, adapted.refit_reason if n_refits else None
    )


def train_all(adapted: Adapted, tol: float) -> list[Solution]:
    """The model of all rows of each problem."""
    pairs = zip(adapted.problems, adapted.refits, strict=True)
    return [solve(make_unique(problem, refits), tol=tol) for problem, refits in pairs]


def choose_width(width: float | None, aim: float | None, refits: Refits | None) -> float | None:
    """The width to ask for: the narrower one at once if every row's model is trained from scratch, which costs far more."""
    return aim if aim is not None and refits is not None and not refits.together.any() else width


def decide_held_out(adapted: Adapted, cv: Any, groups: Any, request: Request) -> HeldOut:
    """Held-out scores that are tight enough to tell the labels, or ties in float64."""
    if isinstance(cv, Iterator):
        cv = list(cv)
    if request.width is None and not decides_by_sign(adapted):
        width = choose_default_width(adapted)
        found = bound_held_out(adapted, cv, groups, replace(request, width=width))
        if found.bounds.decided.all():
            return found
        return bound_held_out(adapted, cv, groups, replace(request, width=TIGHTER_FACTOR * width, aim=None), warn=False)
    return bound_held_out(adapted, cv, groups, request)


def decides_by_sign(adapted: Adapted) -> bool:
    """Whether a label is the sign of one score of a classification, which is decided without a width."""
    return len(adapted.problems) == 1 and not adapted.targets.numeric


def choose_default_width(adapted: Adapted) -> float:
    """The default width; for a regression, relative to the spread of the targets."""
    spread = adapted.problems[0].score_scale if adapted.classes is None else 1.0
    return WIDTH * (spread or 1.0)


def choose_default_aim(adapted: Adapted) -> float:
    """The default width that scores are narrowed to where that is cheap: the estimator's own tolerance, or better."""
    tol = getattr(adapted.estimator, "tol", None)
    aim = max(min(NARROW_WIDTH, float(tol) if tol else NARROW_WIDTH), NARROWEST_WIDTH)
    spread = adapted.problems[0].score_scale if adapted.classes is None else 1.0
    return max(aim * min(spread or 1.0, 1.0), NARROWEST_WIDTH * spread)


def require_bounds(adapted: Adapted) -> None:
    """Refuse an objective for which no bound of held-out scores is known."""
    problem = adapted.problems[0]
    if problem.loss.several:
        require_classes(problem)
        return
    if problem.penalty.strong_convexity == 0.0 and not (has_local(problem) or has_support(problem)):
        raise ValueError(
            f"held-out scores of {adapted.estimator!r} cannot be proven: its penalty has no squares, and its loss, {problem.loss!r}, has no "
            "certificate on the columns in use. Use a penalty with squares (lam above 0), or a smooth loss: LinearSVC(penalty='l1', dual=False), "
            "Lasso, or LogisticRegression with l1_ratio=1."
        )


def list_splits(adapted: Adapted, cv: Any, groups: Any) -> list[tuple[Rows, Rows]]:
    """Train and test rows of every split."""
    return add_train_rows(adapted, _list_splits(adapted, cv, groups))


def _list_splits(adapted: Adapted, cv: Any, groups: Any) -> list[Split]:
    """All splits; the train rows are None where they are all rows but the one in the test."""
    from sklearn.model_selection import LeaveOneOut

    targets = adapted.targets
    n_rows = targets.y.size
    splits: list[Split] = []
    if isinstance(cv, LeaveOneOut):
        splits = [(None, np.array([row])) for row in range(n_rows)]
    else:
        for train, test in split_rows(cv, targets.y, groups, targets.classes is not None):
            others = (
                test.size == 1
                and train.size == n_rows - 1
                and np.bincount(np.append(train, test), minlength=n_rows).all()
            )
            splits.append((None if others else train, test))
            if not others:
                _check_split(adapted, train, test, len(splits) - 1)
    if not splits:
        raise ValueError("cv must give at least one split; got none.")
    if any(train is None for train, _ in splits):
        check_left_out(adapted)
    return splits


def _check_split(adapted: Adapted, train: Rows, test: Rows, k: int) -> None:
    targets = adapted.targets
    used = train[targets.sample_weight[train] > 0.0]
    if test.size == 0 or used.size == 0:
        raise ValueError(f"every split needs test rows and train rows of weight above 0; split {k} has none.")
    if targets.classes is not None:
        labels = targets.y[used]
        missing = [label for label in targets.classes.tolist() if not np.any(labels == label)]
        if missing:
            raise ValueError(
                f"every split needs rows of all classes to train on; split {k} has none of {missing}. "
                "Use a stratified splitter, or fewer splits."
            )


def check_left_out(adapted: Adapted) -> None:
    """Refuse data of which a row cannot be left out: scikit-learn trains no classifier on one class."""
    targets = adapted.targets
    used = targets.sample_weight > 0.0
    if np.count_nonzero(used) < 2:
        raise ValueError("leave-one-out needs at least two rows of weight above 0.")
    for label in [] if targets.classes is None else targets.classes.tolist():
        if np.count_nonzero(used & (targets.y == label)) < 2:
            raise ValueError(
                f"leave-one-out needs at least two rows of every class; class {label!r} is gone without its only row. "
                "Leave the row out of the data, or join the class with another."
            )


@final
@dataclass(frozen=True, eq=False)
class _Folds:
    """What is known about the splits: see :class:`HeldOut`; the stages of all splits for the first problem, then for the second, ..."""

    parts: list[ScoreBounds]
    stages: list[str]
    n_refits: int = 0
    refit_reason: str | None = None

    def widen(self, slacks: list[Array] | None) -> "_Folds":
        """Bounds under refitted scales as they are stored, made to hold for all scales within their rounding."""
        if slacks is None:
            return self
        widened = [
            ScoreBounds(outward(part.lower - slack, -np.inf), outward(part.upper + slack, np.inf))
            for part, slack in zip(self.parts, slacks, strict=True)
        ]
        return replace(self, parts=widened)

    def to_held_out(self, adapted: Adapted, splits: list[Split], width: float | None) -> HeldOut:
        """The held-out scores of all splits, with a warning of those that are wider than ``width``."""
        counts = count_stages_of_rows(self.stages, [test.size for _, test in splits] * len(self.parts))
        bounds = adapted.bounds(self.parts)
        _warn_of_width(bounds.width, width)
        why = self.refit_reason if self.n_refits else None
        return HeldOut(adapted, splits, bounds, counts, self.stages.count("training"), self.n_refits, why)


def _bound_folds(
    adapted: Adapted, solutions: Sequence[Solution] | None, splits: list[Split], request: Request
) -> _Folds:
    """Bounds of all test rows' scores for every problem; splits that differ in weights and strengths only are worked on together."""
    pairs = add_train_rows(adapted, splits)
    changes = adapted.find_changes(pairs)
    folds = adapted.folds(pairs, changes)
    same: list[Fold] = []
    shares = _bound_strength_errors(adapted, changes)
    with reporter(request.progress) as report, calm_blas(adapted.problems[0].work):
        for fold in folds:
            if shares is not None or not _has_data_of(adapted, fold):
                every = chain(same, [fold], folds)
                found = _bound_one_by_one(adapted, solutions, pairs, every, request, report, shares)
                found = replace(found, refit_reason=None if changes is None else changes.reason)
                break
            same.append(fold)
        else:
            found = _bound_together(adapted, solutions, same, request, report)
    return found.widen(_bound_factor_slacks(adapted, changes, pairs))


def _bound_factor_slacks(
    adapted: Adapted, changes: ColumnChanges | None, pairs: list[tuple[Rows, Rows]]
) -> list[Array] | None:
    """For each problem, how far each test row's score can be from its score under the refitted scales as stored; None: not at all."""
    if changes is None or changes.strengths is None or adapted.problems[0].loss.several:
        # With one score per class the bounds hold for the refitted scales as they are stored.
        return None
    if _bound_strength_errors(adapted, changes) is not None:
        return None  # supports are proven for all scales within their rounding
    return [_bound_factor_slack(adapted, changes, pairs, k) for k in range(len(adapted.problems))]


def _bound_strength_errors(adapted: Adapted, changes: ColumnChanges | None) -> Array | None:
    """For each split at least the relative error of refitted strengths, where only a proven support bounds what it does to the optimum; None elsewhere."""
    if changes is None or changes.strengths is None or has_squares(adapted.problems[0].penalty):
        return None
    return strength_errors(changes.strengths, changes.error)


def _bound_factor_slack(adapted: Adapted, changes: ColumnChanges, pairs: list[tuple[Rows, Rows]], k: int) -> Array:
    """The slacks of the ``k``-th problem."""
    assert changes.strengths is not None
    problem, first = adapted.problems[k], np.ones((len(pairs), adapted.offset))
    kept = []
    for train, _ in pairs:
        weight = np.bincount(train, adapted.targets.weights(k, train), problem.n_rows)
        share = 1.0 if problem.scaling == "sum" else problem.total_weight / weight.sum()
        with np.errstate(all="ignore"):
            grown = np.where(weight > 0.0, weight / problem.sample_weight, 0.0)
        kept.append(share * float(grown.max()))
    fills = None if changes.fills is None else np.hstack([0.0 * first, changes.fills])
    radii, norms = factor_radii(
        problem, np.hstack([first, changes.strengths]), changes.error, np.array(kept) * constant_loss(problem), fills
    )
    radii = np.where(changes.alone, 0.0, radii)
    sizes = [test.size for _, test in pairs]
    return np.repeat(radii, sizes) * norms[np.concatenate([test for _, test in pairs])]


def _has_data_of(adapted: Adapted, fold: Fold) -> bool:
    """Whether a split's problems have the same data as those of all rows, and differ in weights and strengths only."""
    return all(mine.matrix is whole.matrix for mine, whole in zip(fold.problems, adapted.problems, strict=True))


def _bound_together(
    adapted: Adapted, solutions: Sequence[Solution] | None, folds: list[Fold], request: Request, report: Report
) -> _Folds:
    """Bounds for splits that differ in weights and strengths only, whose models are stepped together where that is known."""
    found, stages = [], []
    tests = [fold.test for fold in folds]
    for k, problem in enumerate(adapted.problems):
        known = partial(solve, problem, tol=request.tol) if solutions is None else solutions[k]
        parts, mine = [], [fold.problems[k] for fold in folds]
        for bounds, stage in bound_folds(problem, mine, tests, known, request.width, aim=request.aim):
            parts.append(bounds)
            stages.append(stage)
            report(stage, len(stages), len(adapted.problems) * len(folds))
        found.append(concatenate(parts))
    return _Folds(found, stages)


def bound_held_out_grid(
    grid: Sequence[Adapted], cv: Any, groups: Any, request: Request, value_of: Callable[[HeldOut], tuple[float, float]]
) -> tuple[list[HeldOut], Array]:
    """Held-out scores of an estimator under several penalties, and the value of each penalty.

    Penalties that cannot have the smallest value are left where that is proven. ``grid``: the estimator under each penalty, on the same data, where of equal
    values the first one is the smallest; ``value_of``: the ends of the value of held-out scores.
    """
    first = grid[0]
    splits = _list_splits(first, cv, groups)
    pairs = add_train_rows(first, splits)
    together = all(train is not None for train, _ in splits) and all(map(has_folds, first.problems))
    changes = first.find_changes(pairs) if together else None
    if changes is not None and changes.alone.any():
        together = False
    parts = [list(first.folds(pairs, changes))] if together else []
    if not together or not all(_has_data_of(first, fold) for fold in parts[0]):
        results = [bound_held_out(one, cv, groups, request, splits=splits) for one in grid]
        return results, np.array([value_of(one) for one in results])
    for one in grid[1:]:
        # The weights are those under the first penalty.
        every = enumerate([problem.sample_weight for problem in fold.problems] for fold in parts[0])
        problems = [one.apply_changes(changes, k, weights) for k, weights in every]
        parts.append([Fold(mine, test, True) for mine, (_, test) in zip(problems, pairs, strict=True)])
    with reporter(request.progress) as report, calm_blas(first.problems[0].work):
        found = [_GridFolds(one, splits, _bound_factor_slacks(one, changes, pairs), request.width) for one in grid]
        for k in range(len(first.problems)):
            mine = [[fold.problems[k] for fold in folds] for folds in parts]
            tests = [test for _, test in splits]
            for place, bounds, closer in bound_grid([one.problems[k] for one in grid], mine, tests, request.width):
                found[place].bounds.append(bounds)
                found[place].closer.append(closer)
                report("folds", len(found[place].bounds), len(splits) * len(first.problems))
        results = [one.to_held_out() for one in found]
        values = np.array([value_of(one) for one in results])
        while True:
            lower, upper = values.T
            best = int(np.argmin(upper))
            may_win = (lower < upper[best]) | ((lower == upper[best]) & (np.arange(len(grid)) <= best))
            left = [int(place) for place in np.flatnonzero(may_win) if any(found[place].closer)]
            if not left:
                break
            # The one that looks best first: it may rule out all others.
            if any(found[best].closer):
                left = [best]
            # Penalties are stepped together: all that may win are.
            for place in left:
                found[place].finish(left)
                results[place] = found[place].to_held_out()
                values[place] = value_of(results[place])
    return results, values


@final
class _GridFolds:
    """What is known about the splits under one of several penalties: bounds of all splits for the first problem, then for the second, ..."""

    def __init__(self, adapted: Adapted, splits: list[Split], slacks: list[Array] | None, width: float | None) -> None:
        self.adapted, self.splits, self.slacks, self.width = adapted, splits, slacks, width
        self.bounds: list[Bounds] = []
        self.closer: list[Closer | None] = []
        self.stages: dict[int, str] = {}

    def finish(self, others: Sequence[int]) -> None:
        """Compute the closer bounds of all splits; ``others``: penalties for which these will be needed as well."""
        for k, closer in enumerate(self.closer):
            if closer is not None:
                self.bounds[k], self.stages[k] = closer(others=others)
                self.closer[k] = None

    def to_held_out(self) -> HeldOut:
        """The bounds as a :class:`HeldOut`."""
        n_splits, n_all = len(self.splits), len(self.bounds)
        parts = [concatenate(self.bounds[begin : begin + n_splits]) for begin in range(0, n_all, n_splits)]
        names = ["newton" if closer is None else "undetermined" for closer in self.closer]
        found = _Folds(parts, [self.stages.get(k, name) for k, name in enumerate(names)]).widen(self.slacks)
        # Nothing is said of widths that nobody needs.
        return found.to_held_out(self.adapted, self.splits, None if any(self.closer) else self.width)


def _bound_one_by_one(
    adapted: Adapted,
    solutions: Sequence[Solution] | None,
    pairs: list[tuple[Rows, Rows]],
    folds: Iterable[Fold],
    request: Request,
    report: Report,
    shares: Array | None,
) -> _Folds:
    """Bounds for splits with different data, one split at a time; ``shares`` as :func:`_bound_strength_errors` gives them."""
    tol, width = request.tol, request.width
    anywhere = shares is not None and finds_supports_anywhere(adapted.problems[0])
    known: list[Solution | None] = [None] * len(adapted.problems) if solutions is None else [*solutions]
    parts: list[list[Bounds]] = [[] for _ in known]
    stages: list[list[str]] = [[] for _ in known]
    n_refits = 0

    def bound(fold: Fold, k: int, done: int) -> tuple[Bounds, str] | None:
        """Bounds of a split's scores in one problem; None where it has to be refitted for them."""
        problem = penalise_dependent_columns(fold.problems[k])
        if shares is not None and fold.aligned and anywhere and known[k] is None:
            start = zero_point(problem)
        elif fold.aligned:
            known[k] = solution = known[k] or solve(penalise_dependent_columns(adapted.problems[k]), tol=tol)
            start = solution.point
        if shares is not None and fold.aligned:
            if not shares[done] < LARGEST_SHARE:
                return None
            found = find_support(problem, start, float(shares[done])).score_bounds(problem.matrix[fold.test])
            return (found, "newton") if np.all(is_decided(*found, width)) else None
        near = solution if fold.aligned else solve(problem, tol=tol)
        return bound_single_fold(problem, near.point, near, problem, fold.test, width, UNLIMITED, request.aim)

    for done, fold in enumerate(folds):
        mine = [bound(fold, k, done) for k in range(len(known))]
        if any(one is None for one in mine):
            fold = adapted.refit_split(*pairs[done])
            mine = [bound(fold, k, done) if one is None else one for k, one in enumerate(mine)]
        n_refits += not fold.aligned
        for k, (bounds, stage) in enumerate(filter(None, mine)):
            parts[k].append(bounds)
            stages[k].append(stage)
            report(stage, done * len(known) + k + 1, len(known) * len(pairs))
    return _Folds([concatenate(part) for part in parts], list(chain(*stages)), n_refits=n_refits)


def add_train_rows(adapted: Adapted, splits: list[Split]) -> list[tuple[Rows, Rows]]:
    """The splits, each with its train rows."""
    everything = np.arange(adapted.targets.y.size)
    return [(np.delete(everything, test) if train is None else train, test) for train, test in splits]


def _warn_of_width(widths: Array, width: float | None) -> None:
    wide = widths[:0] if width is None else widths[np.isfinite(widths) & (widths > width)]
    if wide.size:
        warn_caller(
            f"{wide.size} held-out score(s) are proven only to within {float(wide.max()):.2g}, not {width:.2g}: float64 "
            "allows no more. The middle of each interval was taken."
        )
