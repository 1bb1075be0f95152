"""Stepwise selection on the objective of an estimator."""

from dataclasses import replace
from typing import Any

import numpy as np

from glru import _inputs
from glru.problem import Problem
from glru.selection.result import Step, StepwiseResult
from glru.selection.search import Settings, search
from glru.sklearn.adapt import adapt
from glru.sklearn.adapted import Adapted


def estimator_stepwise(
    estimator: Any, X: Any, y: Any, X_val: Any, y_val: Any, sample_weight: Any, settings: Settings
) -> StepwiseResult:
    """The search on an estimator's objective; its penalised intercept, if it has one, always stays."""
    adapted = adapt(estimator, X, y, sample_weight)
    _check(adapted, settings.criterion)
    problem, offset = adapted.problems[0], adapted.offset
    if X_val is not None and y_val is not None:
        X_val, y_val = adapted.rows(X_val), adapted.targets.values(0, _inputs.as_array(y_val, "y_val"))
    if not offset:
        return search(problem, X_val, y_val, settings)
    return _shifted(search(problem, X_val, y_val, _shifted_settings(settings, problem, offset)), offset)


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
    if adapted.preprocessing is not None:
        raise ValueError(
            f"stepwise takes the model alone; got a pipeline with steps in front of it ({adapted.preprocessing.described}). "
            "Transform the data first and give the model."
        )


def _shifted_settings(settings: Settings, problem: Problem, offset: int) -> Settings:
    """The settings in the columns of the problem, of which the first is the constant one."""
    keep = [0, *(column if isinstance(column, str) else column + offset for column in settings.keep)]
    names, most = problem.column_names, settings.max_features
    return replace(
        settings,
        groups=None if settings.groups is None else _shifted_groups(settings.groups, offset),
        keep=keep if names is None else [names[j] if isinstance(j, int) else j for j in keep],
        min_features=settings.min_features + offset,
        max_features=None if most is None else most + offset,
    )


def _shifted_groups(groups: Any, offset: int) -> Any:
    if len(groups) and all(isinstance(group, (list, np.ndarray)) for group in groups):
        return [[j if isinstance(j, str) else j + offset for j in group] for group in groups]
    return [("constant", 0), *(("label", label) for label in groups)]


def _shifted(result: StepwiseResult, offset: int) -> StepwiseResult:
    """The result in the columns of the data, without the constant one."""
    names = None if result.names is None else result.names[offset:]
    path = tuple(_shifted_step(step, offset) for step in result.path)
    return replace(result, selected=result.selected[offset:] - offset, names=names, path=path)


def _shifted_step(step: Step, offset: int) -> Step:
    def moved(columns: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(j - offset for j in columns)

    columns, feature = moved(step.columns), step.feature
    if feature == step.columns or feature in step.columns:
        feature = columns[0] if len(columns) == 1 else columns
    candidates = tuple((action, moved(which)) for action, which in step.candidates)
    return replace(step, columns=columns, feature=feature, candidates=candidates)
