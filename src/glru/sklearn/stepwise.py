"""Stepwise selection on the objective of an estimator."""

from dataclasses import replace
from typing import Any

import numpy as np

from glru import _inputs
from glru.model_selection.splits import is_leave_one_out
from glru.problem import Problem
from glru.selection import FeatureImportance, measure_importance
from glru.selection.criteria import INFORMATION
from glru.selection.result import Step, StepwiseResult
from glru.selection.search import Settings, search
from glru.sklearn.adapt import adapt
from glru.sklearn.adapted import Adapted
from glru.sklearn.held_out import list_splits


def select_features(
    estimator: Any,
    X: Any,
    y: Any,
    X_val: Any,
    y_val: Any,
    sample_weight: Any,
    settings: Settings,
    keeps_columns: bool = False,
) -> StepwiseResult:
    """Stepwise selection on an estimator's objective; a penalised intercept always stays.

    The steps in front of a pipeline's model are fitted to the rows that are trained on, in every fold again. ``keeps_columns``: refuse
    steps that make another number of columns.
    """
    problem, rows, settings, offset = prepare(estimator, X, y, X_val, y_val, sample_weight, settings, keeps_columns)
    result = search(problem, *rows, settings)
    return _shift_result(result, offset) if offset else result


def measure_features(
    estimator: Any, X: Any, y: Any, X_val: Any, y_val: Any, sample_weight: Any, settings: Settings
) -> FeatureImportance:
    """The importance of each feature in an estimator's objective; a penalised intercept does not count as a feature."""
    problem, rows, settings, offset = prepare(estimator, X, y, X_val, y_val, sample_weight, settings)
    result = measure_importance(problem, *rows, settings)
    if not offset:
        return result
    columns = tuple(tuple(j - offset for j in group) for group in result.columns)
    features = result.features
    if problem.column_names is None:
        features = tuple(group[0] if len(group) == 1 else group for group in columns)
    return replace(result, columns=columns, features=features)


def prepare(
    estimator: Any,
    X: Any,
    y: Any,
    X_val: Any,
    y_val: Any,
    sample_weight: Any,
    settings: Settings,
    keeps_columns: bool = False,
) -> tuple[Problem, tuple[Any, Any], Settings, int]:
    """The problem of an estimator, its validation rows, the settings in its columns, and the number of columns before the features."""
    adapted = adapt(estimator, X, y, sample_weight)
    if settings.criterion is None and adapted.classes is not None and not adapted.problems[0].loss.probabilities:
        settings = replace(settings, criterion="error")
    _check(adapted, settings.criterion)
    n_columns = adapted.problems[0].n_columns - adapted.offset
    if keeps_columns and n_columns != X.shape[1]:
        raise ValueError(
            f"the steps in front of the model must keep the {X.shape[1]} columns, so that some of them can be chosen; they make "
            f"{n_columns}. Put such steps before the selector."
        )
    if settings.cv is not None and (adapted.shifts is not None or not is_leave_one_out(settings.cv)):
        # Stratified for a classifier, whatever its loss.
        settings = replace(settings, cv=list_splits(adapted, settings.cv, None))
    if adapted.shifts is not None and X_val is None and settings.criterion not in INFORMATION:
        settings = _refit_folds(adapted, settings)
    problem, offset = adapted.problems[0], adapted.offset
    if X_val is not None and y_val is not None:
        X_val, y_val = adapted.rows(X_val), adapted.targets.values(0, _inputs.as_array(y_val, "y_val"))
    if offset:
        settings = _shift_settings(settings, problem, offset)
    return problem, (X_val, y_val), settings, offset


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
