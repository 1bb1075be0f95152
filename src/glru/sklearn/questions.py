"""Questions about one estimator and its data: how far it is from its optimum, what a change of the data does, and which features it needs."""

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru._results import find_display
from glru.after import After, Origin, ScoreProofs
from glru.bounds import ScoreBounds, convert_queries
from glru.certificate import Certificate, ball_radius
from glru.certificate import certify as certify_point
from glru.changed import change_model, has_newton
from glru.changes import (
    AddRows,
    Change,
    Composite,
    EditValues,
    Relabel,
    RemoveColumns,
    RemoveRows,
    Repenalise,
    Reweight,
    locate_rows,
    match_columns,
    prepend_constant,
)
from glru.duality import misses_class, primal_value
from glru.linalg import Array
from glru.model_selection.cross_validation import is_leave_one_out
from glru.problem import Point, Problem
from glru.regions import list_regions, score_bounds
from glru.regions.classes import ClassEllipsoid
from glru.selection import FeatureImportance, measure_importance
from glru.selection.criteria import INFORMATION
from glru.selection.result import Step, StepwiseResult
from glru.selection.search import Settings, search
from glru.sklearn.adapt import Adapted, adapt
from glru.sklearn.held_out import list_splits
from glru.sklearn.objectives import find_chosen_model, penalty_of
from glru.solution import Solution, find_dual, relative
from glru.solvers import solve
from glru.updates import MAX_STEPS, find_newton_candidate


@final
@dataclass(frozen=True, eq=False, repr=False)
class ModelCertificate(ScoreProofs):
    """How far a fitted estimator is from the optimum of its objective.

    Made by :func:`glru.certify`. All bounds hold for the exact optimum and include the rounding of their own computation.

    Attributes
    ----------
    adapted : Adapted
        The estimator's problems and classes.
    fitted : tuple of Certificate
        The fitted coefficients of each problem with the best dual point that was found.
    better : tuple of Certificate
        A point nearer to each optimum, from where scores are bounded more tightly.

    Examples
    --------
    >>> import numpy as np, glru
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> y = X[:, 0] > 0.3
    >>> certificate = glru.certify(LogisticRegression().fit(X, y), X, y)
    >>> certificate.gap < 0.1
    True
    """

    adapted: Adapted
    fitted: tuple[Certificate, ...]
    better: tuple[Certificate, ...]

    @property
    def objective(self) -> float:
        """The objective at the fitted coefficients, summed over the problems, in the scaling of :attr:`adapted`."""
        return sum(primal_value(c.problem, c.coef, c.problem.scores(c.coef, c.intercept)) for c in self.fitted)

    @property
    def gap(self) -> float:
        """Upper bound of how far the objective is above its optimum."""
        return sum(certificate.gap for certificate in self.fitted)

    @property
    def relative_gap(self) -> float:
        """The gap divided by the objective."""
        return relative(self.gap, self.objective)

    @property
    def radius(self) -> float:
        """No optimal coefficient vector is farther than this from the fitted one; inf where that is unknown."""
        strengths = [certificate.penalty.strong_convexity for certificate in self.fitted]
        if min(strengths) == 0.0:
            return np.inf
        return max(float(ball_radius(c.gap / lam)) for c, lam in zip(self.fitted, strengths, strict=True))

    def score_bounds(self, X: Any) -> ScoreBounds:
        """Lower and upper bounds of the scores at the optimum, shaped as ``decision_function``.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries.
        """
        rows = self.adapted.rows(X)
        if self.adapted.targets.joint:
            better = self.better[0]
            region = ClassEllipsoid.at(better.problem, Point(better.coef, better.intercept))
            return convert_queries(*region.queries(rows, self.scores(X).argmax(axis=1)))
        bounds = []
        for pair in zip(self.fitted, self.better, strict=True):
            regions = [region for one in pair for region in list_regions(one, one.problem.fit_intercept)]
            bounds.append(score_bounds(regions, rows, pair[0].columns.dead))
        return self.adapted.bounds(bounds)

    def scores(self, X: Any) -> Array:
        """The scores of the fitted estimator."""
        rows = self.adapted.rows(X)
        return self.adapted.stack([rows @ c.coef.T + c.intercept for c in self.fitted])

    @property
    def classes(self) -> NDArray[Any] | None:
        """The caller's classes in sorted order; None for a regression."""
        return self.adapted.classes

    def decided(self, X: Any) -> NDArray[np.bool_]:
        """Which of the fitted estimator's labels are proven to be those of the optimum; a classifier's only."""
        self._require_labels()
        _, stays = self.score_bounds(X).changes(self.scores(X))
        return stays

    def plot(self, X: Any, ax: Any = None) -> Any:
        """Draw by how much the optimum's scores differ from the fitted ones, with their certified intervals.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries.
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if not given.

        Returns
        -------
        glru.display.AfterDisplay
        """
        lower, upper = (np.ravel(end) for end in self.score_bounds(X))
        kind = find_display("AfterDisplay")
        display = kind(lower, upper, np.ravel(self.scores(X)), f"scores at the optimum, gap {self.gap:.3g}").plot(ax)
        display.ax_.set(xlabel="fitted score", ylabel="score at the optimum minus the fitted one")
        return display

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        lines = [("objective", f"{self.objective:.10g}"), ("gap", f"{self.gap:.3g}")]
        lines += [("relative gap", f"{self.relative_gap:.3g}"), ("radius", f"{self.radius:.3g}")]
        return f"ModelCertificate({type(self.adapted.estimator).__name__})", lines


def certify_estimator(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> ModelCertificate:
    """How far a fitted estimator is from the optimum of its objective; see :func:`glru.certify`."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(estimator)
    adapted = adapt(find_chosen_model(estimator), X, y, sample_weight, keep=True)
    points = adapted.points(estimator)
    pairs = [_certify_pair(problem, point) for problem, point in zip(adapted.problems, points, strict=True)]
    return ModelCertificate(adapted, tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))


def _certify_pair(problem: Problem, point: Point) -> tuple[Certificate, Certificate]:
    """The certificate of a point with the best dual point there is, and that of a better point."""
    own = Point(point.coef, point.intercept, find_dual(problem, problem.scores(point.coef, point.intercept)))
    if has_newton(problem) and not problem.loss.several:
        better = find_newton_candidate(problem, own, MAX_STEPS)
    else:
        better = certify_point(problem, solve(problem, tol=1e-9, start=own).point)
    shared = Point(own.coef, own.intercept, better.point.dual)
    fitted = min(certify_point(problem, own), certify_point(problem, shared), key=lambda c: c.gap)
    return fitted, better


def translate_change(adapted: Adapted, k: int, change: Change) -> Change:
    """Translate a change of the caller's data to the ``k``-th problem.

    Labels are those of the estimator, columns those of the caller's data, weights before any class weights.
    """
    if not isinstance(change, Change):
        raise TypeError(f"change must be a glru change such as glru.RemoveRows([3]); got {change!r}.")
    if adapted.shifts is not None:
        raise ValueError(
            f"when the data changes, {adapted.shifts} as well. Scale or weight the data first and give the model alone."
        )
    steps = change.steps if isinstance(change, Composite) else (change,)
    if len(steps) > 1 and adapted.targets.class_weight is not None:
        rows = any(isinstance(step, RemoveRows | AddRows) for step in steps)
        if rows and any(isinstance(step, Reweight | Relabel) for step in steps):
            raise ValueError(
                "with class weights a change may not both add or remove rows and reweight or relabel some: which classes "
                "those rows have is only known after the first part. Make two changes."
            )
    moved = []
    for step in steps:
        moved.append(_translate(step, adapted, k))
        adapted = _change_targets(adapted, step)
    return moved[0] if len(moved) == 1 else Composite(tuple(moved))


def _change_targets(adapted: Adapted, step: Change) -> Adapted:
    """The estimator with the labels and weights that a step leaves: the class weights of later steps go by these."""
    targets = adapted.targets
    if targets.class_weight is None or not isinstance(step, Relabel | Reweight):
        return adapted
    rows, y, weight = locate_rows(step.rows, targets.y.size), targets.y.copy(), targets.sample_weight.copy()
    if isinstance(step, Relabel):
        y[rows] = targets.check(step.y, rows.size)
    else:
        weight[rows] = step.new_weights(rows.size)
    return replace(adapted, targets=replace(targets, y=y, sample_weight=weight))


@singledispatch
def _translate(change: Change, adapted: Adapted, k: int) -> Change:
    return change


@_translate.register
def _(change: AddRows, adapted: Adapted, k: int) -> Change:
    count = change.matrix.shape[0]
    weight = _inputs.as_row_weights(change.sample_weight, count, "weights")
    y = adapted.targets.check(change.y, count)
    X, names = change.X, adapted.problems[0].column_names
    if adapted.objective.constant is not None:
        known = None if names is None else names[adapted.offset :]
        named = known is not None and change.names is not None and len(known) == len(change.names)
        matrix = match_columns(change.matrix, change.names, known) if named else change.matrix
        X = prepend_constant(matrix, adapted.objective.constant)
    return AddRows(X, adapted.targets.values(k, y), adapted.targets.apply_class_weights(k, y, weight))


@_translate.register
def _(change: Relabel, adapted: Adapted, k: int) -> Change:
    y = adapted.targets.check(change.y, np.size(change.rows))
    relabelled = Relabel(change.rows, adapted.targets.values(k, y))
    if adapted.targets.class_weight is None:
        return relabelled
    rows = locate_rows(change.rows, adapted.problems[0].n_rows)
    return relabelled + Reweight(rows, adapted.targets.apply_class_weights(k, y, adapted.targets.sample_weight[rows]))


@_translate.register
def _(change: Reweight, adapted: Adapted, k: int) -> Change:
    if adapted.targets.class_weight is None:
        return change
    rows = locate_rows(change.rows, adapted.problems[0].n_rows)
    weight = change.new_weights(rows.size)
    return Reweight(rows, adapted.targets.apply_class_weights(k, adapted.targets.y[rows], weight))


@_translate.register
def _(change: EditValues, adapted: Adapted, k: int) -> Change:
    return EditValues(change.rows, _columns(change.columns, adapted), change.values)


@_translate.register
def _(change: RemoveColumns, adapted: Adapted, k: int) -> Change:
    return RemoveColumns(_columns(change.columns, adapted))


@_translate.register
def _(change: Repenalise, adapted: Adapted, k: int) -> Change:
    if adapted.offset == 0 or getattr(change.penalty, "n_columns", None) is None:
        return change
    # The column of a penalised intercept comes first, and keeps the strength that it has.
    own, new = adapted.problems[k].penalty, change.penalty
    n_columns = adapted.problems[k].n_columns - adapted.offset
    quadratic, absolute = (
        np.append(np.ravel(mine)[:1], np.broadcast_to(theirs, (n_columns,)))
        for mine, theirs in ((own.quadratic, new.quadratic), (own.absolute, new.absolute))
    )
    return Repenalise(penalty_of(quadratic, absolute))


def _columns(columns: Any, adapted: Adapted) -> Any:
    """Columns of the data as columns of the problem; names stay."""
    places = np.atleast_1d(np.asarray(columns))
    if adapted.offset == 0 or places.dtype.kind not in "iu":
        return columns
    n_columns = adapted.problems[0].n_columns - adapted.offset
    if np.any(places < 0):
        raise ValueError(f"columns must be positions from 0 to {n_columns - 1}; got {places.min()}.")
    return places + adapted.offset


def change_models(adapted: Adapted, solutions: tuple[Solution, ...], change: Change, *how: Any) -> After:
    """What is proven about an estimator's problems after a change of the caller's data; ``how``: as :func:`change_model` takes it."""
    parts = tuple(
        change_model(solution, translate_change(adapted, k, change), *how) for k, solution in enumerate(solutions)
    )
    if adapted.classes is not None and any(misses_class(part.problem) for part in parts):
        raise ValueError(
            f"a change must leave rows of weight above 0 in every class, of which there are {adapted.classes.tolist()}: scikit-learn trains "
            f"no classifier without them. Remove fewer rows, or ask about a glru.Problem with fit_intercept=False; got {change!r}."
        )
    name, constant = type(adapted.estimator).__name__, adapted.objective.constant
    return After(Origin(change, adapted.classes, name, constant), parts)


def select_features(adapted: Adapted, X_val: Any, y_val: Any, settings: Settings) -> StepwiseResult:
    """Stepwise selection on an estimator's objective; a penalised intercept always stays.

    The steps in front of a pipeline's model are fitted to the rows that are trained on, in every fold again.
    """
    problem, rows, settings = prepare_search(adapted, X_val, y_val, settings)
    result = search(problem, *rows, settings)
    return _shift_result(result, adapted.offset) if adapted.offset else result


def measure_features(adapted: Adapted, X_val: Any, y_val: Any, settings: Settings) -> FeatureImportance:
    """The importance of each feature in an estimator's objective; a penalised intercept does not count as a feature."""
    problem, rows, settings = prepare_search(adapted, X_val, y_val, settings)
    result = measure_importance(problem, *rows, settings)
    if not adapted.offset:
        return result
    columns = tuple(tuple(j - adapted.offset for j in group) for group in result.columns)
    features = result.features
    if problem.column_names is None:
        features = tuple(group[0] if len(group) == 1 else group for group in columns)
    return replace(result, columns=columns, features=features)


def prepare_search(
    adapted: Adapted, X_val: Any, y_val: Any, settings: Settings
) -> tuple[Problem, tuple[Any, Any], Settings]:
    """The problem of an estimator, its validation rows, and the settings in its columns."""
    if settings.criterion is None and adapted.classes is not None and not adapted.problems[0].loss.probabilities:
        settings = replace(settings, criterion="error")
    _check(adapted, settings.criterion)
    if settings.cv is not None and (adapted.shifts is not None or not is_leave_one_out(settings.cv)):
        # Stratified for a classifier, whatever its loss.
        settings = replace(settings, cv=list_splits(adapted, settings.cv, None))
    if adapted.shifts is not None and X_val is None and settings.criterion not in INFORMATION:
        settings = _refit_folds(adapted, settings)
    problem = adapted.problems[0]
    if X_val is not None and y_val is not None:
        X_val, y_val = adapted.rows(X_val), adapted.targets.values(0, _inputs.as_array(y_val, "y_val"))
    if adapted.offset:
        settings = _shift_settings(settings, problem, adapted.offset)
    return problem, (X_val, y_val), settings


def _check(adapted: Adapted, criterion: Any) -> None:
    if adapted.classes is not None and criterion == "squared_error":
        raise ValueError(
            f"the criterion 'squared_error' is for regression; {type(adapted.estimator).__name__} is a classifier. Use 'error'."
        )
    if len(adapted.problems) > 1:
        raise ValueError(
            f"stepwise judges one model; got {len(adapted.problems)} classes, one model each. Choose the features of each "
            "class against the rest, with a problem of its own."
        )


def _refit_folds(adapted: Adapted, settings: Settings) -> Settings:
    """The settings with the problems of the folds, with steps and class weights fitted to their train rows."""
    if settings.cv is None:
        if adapted.preprocessing is None:
            return settings
        raise ValueError(
            f"without validation rows the steps in front of the model ({adapted.preprocessing.described}) would have to be fitted "
            "again for every row and every candidate. Give cv=5, or X_val and y_val."
        )
    folds = [(fold.problems[0], fold.test) for fold in adapted.folds(settings.cv)]
    n_columns = adapted.problems[0].n_columns
    if any(problem.n_columns != n_columns for problem, _ in folds):
        raise ValueError(
            "the steps in front of the model must make the same columns in every fold; got other numbers of columns. Give "
            "encoders all categories, or use X_val and y_val."
        )
    names = adapted.problems[0].column_names
    return replace(settings, folds=[(problem.derive(column_names=names), test) for problem, test in folds])


def _shift_settings(settings: Settings, problem: Problem, offset: int) -> Settings:
    """The settings in the columns of the problem, the first of which is constant."""
    keep = [0, *(column if isinstance(column, str) else column + offset for column in settings.keep)]
    names, most = problem.column_names, settings.max_features
    return replace(
        settings,
        groups=None if settings.groups is None else _shift_groups(settings.groups, offset),
        keep=keep if names is None else [names[j] if isinstance(j, int) else j for j in keep],
        min_features=settings.min_features + offset,
        max_features=None if most is None else most + offset,
    )


def _shift_groups(groups: Any, offset: int) -> Any:
    if len(groups) and all(isinstance(group, (list, np.ndarray)) for group in groups):
        return [[j if isinstance(j, str) else j + offset for j in group] for group in groups]
    return [("constant", 0), *(("label", label) for label in groups)]


def _shift_result(result: StepwiseResult, offset: int) -> StepwiseResult:
    """The result in the columns of the data, without the constant one."""
    names = None if result.names is None else result.names[offset:]
    path = tuple(_shift_step(step, offset) for step in result.path)
    return replace(result, selected=result.selected[offset:] - offset, names=names, path=path)


def _shift_step(step: Step, offset: int) -> Step:
    def shift(columns: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(j - offset for j in columns)

    columns, feature = shift(step.columns), step.feature
    if feature == step.columns or feature in step.columns:
        feature = columns[0] if len(columns) == 1 else columns
    candidates = tuple((action, shift(which)) for action, which in step.candidates)
    return replace(step, columns=columns, feature=feature, candidates=candidates)
