"""What each feature is worth: how much worse a model is without it, proven."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from glru._options import Budget, OutOfTime
from glru._results import Drawable, find_display, make_frame, show_interval
from glru.cascade import reporter
from glru.linalg import FEW, Array, calm_blas
from glru.problem import Problem
from glru.selection.contest import Contest, Goal
from glru.selection.criteria import Criterion, find_criterion
from glru.selection.judge import ROUGH, Judge
from glru.selection.moves import Move
from glru.selection.search import Settings, list_movable_groups, make_judge, start_of

MAX_PRINTED = 10
"""The largest number of features to print."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class FeatureImportance(Drawable):
    """The certified increase of a criterion when a feature, or a group of features, is left out.

    Attributes
    ----------
    columns : tuple of tuple of int
        The columns of each feature or group, by their places.
    features : tuple
        Their names, or their places if there are no names.
    lower, upper : array of shape (n_features,)
        Proven bounds of the increase: the criterion of the model trained without the feature, less that of the model with all.
    value : tuple of float
        Proven bounds of the criterion with all features.
    criterion : str
        As given.
    n_rows : int
        Rows the criterion counts over.
    n_trainings : int
        Features that needed a training.
    interrupted : bool
        Whether the time was up, or somebody interrupted, before all intervals were narrow.

    Examples
    --------
    >>> import numpy as np, glru
    >>> X = np.random.default_rng(0).normal(size=(90, 3))
    >>> y = X[:, 0] - 0.5 * X[:, 1] > 0.3
    >>> result = glru.feature_importance(glru.Problem(X[:60], y[:60], penalty=glru.L2(0.1)), X_val=X[60:], y_val=y[60:])
    >>> result.order, result.n_trainings
    (array([0, 1, 2]), 0)
    >>> result
    FeatureImportance(log loss 0.361944 with all 3 features)
      0            +0.2754
      1            +0.07662
      2            -0.001692
    """

    columns: tuple[tuple[int, ...], ...]
    features: tuple[Any, ...]
    lower: Array
    upper: Array
    value: tuple[float, float]
    criterion: str
    n_rows: int
    n_trainings: int
    interrupted: bool
    certified: ClassVar[bool] = True
    """Whether what is stated is proven: here it always is."""

    @property
    def increase(self) -> Array:
        """The middle of each interval; 0 where nothing is known."""
        known = np.isfinite(self.lower) & np.isfinite(self.upper)
        return 0.5 * (np.where(known, self.lower, 0.0) + np.where(known, self.upper, 0.0))

    @property
    def order(self) -> NDArray[np.intp]:
        """The features from the most to the least important one; those of the same value as they come."""
        return np.argsort(-self.increase, kind="stable")

    @property
    def rank_bounds(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The best and the worst rank that each feature may have, proven; 1 is the most important one."""
        best = 1 + (self.lower[None, :] > self.upper[:, None]).sum(axis=1)
        worst = self.lower.size - (self.upper[None, :] < self.lower[:, None]).sum(axis=1)
        return best, worst

    def to_frame(self) -> Any:
        """One row per feature, the most important one first: its name, the increase and the ranks (pandas or polars)."""
        best, worst = self.rank_bounds
        order = self.order
        columns: dict[str, list[Any]] = {
            "feature": [_label(self.features[k]) for k in order],
            "increase_lower": self.lower[order].tolist(),
            "increase_upper": self.upper[order].tolist(),
            "rank_best": best[order].tolist(),
            "rank_worst": worst[order].tolist(),
        }
        return make_frame(columns)

    def _display(self) -> Any:
        names, label = (
            [_label(self.features[k]) for k in self.order],
            f"increase without the feature: {self.criterion.replace('_', ' ')}",
        )
        kind = find_display("IntervalsDisplay")
        return kind(self.lower[self.order], self.upper[self.order], names, label)

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        state = " (interrupted)" if self.interrupted else ""
        lines = []
        for k in self.order[:MAX_PRINTED]:
            low, high = float(self.lower[k]), float(self.upper[k])
            close = high - low <= 2e-4 * abs(self.value[1])
            text = f"{0.5 * (low + high):+.4g}" if close else show_interval(low, high)
            lines.append((_label(self.features[k]), text))
        if len(self.features) > MAX_PRINTED:
            lines.append(("...", f"{len(self.features) - MAX_PRINTED} more"))
        shown = show_interval(*self.value)
        return (
            f"FeatureImportance({self.criterion.replace('_', ' ')} {shown} with all {len(self.features)} features){state}",
            lines,
        )


def _label(feature: Any) -> str:
    return ", ".join(map(str, feature)) if isinstance(feature, tuple) else str(feature)


@np.errstate(all="ignore")
def measure_importance(problem: Any, X_val: Any, y_val: Any, settings: Settings) -> FeatureImportance:
    """Bound the criterion without each feature; see :func:`glru.feature_importance`."""
    problem, near, X_val = start_of(problem, X_val, y_val, settings)
    criterion, budget = find_criterion(settings.criterion, problem), Budget(settings.max_seconds)
    groups = [tuple(group.tolist()) for group in list_movable_groups(problem, settings)]
    if not groups:
        raise ValueError("there is no feature to leave out: keep names all of them.")
    moves = [Move(columns, add=False) for columns in groups]
    # With an infinite resolution nobody wins: every value is wanted.
    contest = Contest(np.full(len(moves), criterion.least), np.full(len(moves), np.inf), np.inf)
    value, n_trainings, interrupted = (criterion.least, np.inf), 0, False
    with reporter(settings.progress) as report, calm_blas(problem.work if problem.in_memory else 0.0):
        judge = make_judge(problem, near, np.arange(problem.n_columns), X_val, y_val, criterion, settings, budget)
        try:
            present = judge.value(thorough=True)
            value = present.lower, present.upper
            n_trainings = _narrow(judge, moves, contest, criterion, budget, report)
        except (KeyboardInterrupt, OutOfTime):
            interrupted = True
    return _result(problem, criterion, groups, contest, value, judge.n_rows, n_trainings, interrupted)


def _narrow(
    judge: Judge, moves: Sequence[Move], contest: Contest, criterion: Criterion, budget: Budget, report: Any
) -> int:
    """Bound the values of all moves, together and then one by one where that is not enough; the number of trainings."""
    screened = judge.screen(moves, budget, contest)
    contest.settle(slice(None), screened.lower, screened.upper)
    n_trainings = 0
    for place, move in enumerate(moves):
        budget.check()
        if not criterion.is_known(ROUGH, contest.lower[place], contest.upper[place]):
            value = judge.refine(move, Goal(budget=budget, rough=True))
            n_trainings += value.stage == "training"
            contest.settle(place, value.lower, value.upper)
        report(criterion.name, place + 1, len(moves))
    return n_trainings


def _result(
    problem: Problem,
    criterion: Criterion,
    groups: list[tuple[int, ...]],
    contest: Contest,
    value: tuple[float, float],
    n_rows: int,
    n_trainings: int,
    interrupted: bool,
) -> FeatureImportance:
    least, most = (float(end) for end in criterion.mean_bounds(*value, n_rows))
    lower, upper = criterion.mean_bounds(contest.lower, contest.upper, n_rows)
    # One subtraction of two numbers.
    off = np.array([0.0 if criterion.counts else 1.0]) * FEW
    low, high = lower - most, upper - least
    low, high = low - off * (np.abs(lower) + abs(most)), high + off * (np.abs(upper) + abs(least))
    names = problem.column_names
    features = [group if names is None else tuple(names[j] for j in group) for group in groups]
    return FeatureImportance(
        columns=tuple(groups),
        features=tuple(feature[0] if len(feature) == 1 else feature for feature in features),
        lower=np.where(np.isnan(low), -np.inf, low),
        upper=np.where(np.isnan(high), np.inf, high),
        value=(least, most),
        criterion=criterion.name,
        n_rows=n_rows,
        n_trainings=n_trainings,
        interrupted=interrupted,
    )
