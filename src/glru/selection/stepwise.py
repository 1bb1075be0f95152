"""``stepwise``: of a problem, or of an estimator with its data."""

from dataclasses import replace
from typing import Any

import numpy as np

from glru import _inputs
from glru.adapters import Adapted, adapt, is_estimator
from glru.selection.result import Step, StepwiseResult
from glru.selection.search import search


def stepwise(model: Any, *args: Any, **options: Any) -> StepwiseResult:
    """Remove or add features one by one while that makes a model better on validation rows; every choice proven.

    All methods give the same path as training every candidate would: a step takes the move with the least criterion,
    no move before any, then the lowest column. Values of "log_loss" and "mse" that differ by less than 1e-9 of the present
    value count as equal. A validation score that is exactly zero is an error whatever its label.

    What no bound decides (a tie of different models, an optimum that is not unique, an L1 penalty alone) is decided by the
    trained models' values instead. Such a step is marked in the printed result, in ``proven`` and in reports.

    Two forms: ``stepwise(problem, X_val, y_val, ...)`` for a problem, and ``stepwise(estimator, X, y, X_val, y_val, ...)``
    for one of scikit-learn's linear models or one of this library's.

    Parameters
    ----------
    model : Problem, Solution or estimator
        The training problem with all columns, or its solution; or a linear model for two classes or a regression, fitted or not.
    X, y, sample_weight : array
        The data of an estimator.
    X_val, y_val : array of shape (n_validation, n_columns), array of shape (n_validation,), default=None
        The validation rows. Without them (and without ``cv``) the criterion is that of leave-one-out, which trains
        every candidate and validates it by :func:`glru.loocv`.
    direction : {"backward", "forward", "both"}, default="backward"
        Whether to start from all columns and remove, from ``keep`` and add, or to do either from all columns.
    method : {"certified", "glru", "naive"}, default="certified"
        ``"certified"``: all candidates of a step by Newton candidates under certificates, then more steps and trainings
        for those that matter and are still open. ``"glru"``: the paper's Algorithms 4 and 5: the old optimum's bounds,
        then trainings in the order of the lower bounds, with early stopping. ``"naive"``: Algorithm 3, one
        warm-started training a candidate.
    criterion : {"error", "log_loss", "mse"}, default="error"
        Number of wrong labels (classification), mean log-loss (the logistic loss), or mean squared error (regression) on
        the validation rows. A regression on -1 and +1 may be judged by its wrong labels, too.
    max_steps : int, default=None
        Most steps.
    min_features, max_features : int, default=1, None
        Where removing, and adding, ends.
    forced : bool, default=False
        Go on to ``min_features`` or ``max_features`` (or ``max_steps``) even where every move makes the criterion worse.
    groups : sequence, default=None
        One label a column: columns with the same label leave and come together. Or a list of lists of columns.
    keep : sequence of int or str, default=()
        Columns that always stay.
    cv : int, splitter or iterable of (train, test), default=None
        Instead of validation rows: the criterion over all folds of the problem's own rows.
    tol : float, default=1e-6
        Relative gap of the model of each step, and of the trainings of "naive".
    progress : bool or callable, default=False
        Show progress, or call ``progress(stage, n_steps, n_features_left)``.
    max_seconds : float, default=None
        End the search after so many seconds, in the midst of a step if need be: the path so far is returned.

    Returns
    -------
    StepwiseResult
        The columns chosen and the path. Ctrl-C ends the search and returns the path so far, as ``max_seconds`` does.

    Notes
    -----
    Rows in blocks are judged on validation rows in memory, by the method "certified": one to three passes over the data for
    every candidate.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> problem = glru.Problem(X[:400], y[:400], penalty=glru.L2(0.01))
    >>> result = glru.stepwise(problem, X[400:], y[400:])
    >>> result.n_trainings, result.start_value, result.path[0].action
    (0, (4.0, 4.0), 'remove')
    >>> from sklearn.linear_model import LogisticRegression
    >>> model = LogisticRegression(C=0.25, fit_intercept=False)
    >>> same = glru.stepwise(model, X[:400], y[:400], X[400:], y[400:])
    >>> same.selected.tolist() == result.selected.tolist()
    True
    """
    return of_estimator(model, *args, **options) if is_estimator(model) else search(model, *args, **options)


def of_estimator(
    estimator: Any,
    X: Any,
    y: Any,
    X_val: Any = None,
    y_val: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    keep: Any = (),
    **options: Any,
) -> StepwiseResult:
    """The search on an estimator's objective; its penalised intercept, if it has one, always stays."""
    adapted = adapt(estimator, X, y, sample_weight)
    _check(adapted, options.get("criterion"))
    problem, offset = adapted.problems[0], adapted.offset
    if X_val is not None and y_val is not None:
        X_val, y_val = adapted.rows(X_val), adapted.targets.values(0, _inputs.as_array(y_val, "y_val"))
    if offset:
        keep = [0, *(column if isinstance(column, str) else column + offset for column in keep)]
        names = problem.column_names
        keep = keep if names is None else [names[j] if isinstance(j, int) else j for j in keep]
        groups = None if groups is None else _shifted_groups(groups, offset)
        options["min_features"] = options.get("min_features", 1) + offset
        if options.get("max_features") is not None:
            options["max_features"] += offset
    result = search(problem, X_val, y_val, groups=groups, keep=keep, **options)
    return _shifted(result, offset) if offset else result


def _check(adapted: Adapted, criterion: Any) -> None:
    if adapted.classes is not None and criterion == "mse":
        raise ValueError(
            f"the criterion 'mse' is for regression; {type(adapted.estimator).__name__} is a classifier. Use 'error'."
        )
    if len(adapted.problems) > 1:
        raise ValueError(
            f"stepwise judges one model; got {len(adapted.problems)} classes, one model each. Choose the features of each "
            "class against the rest, with a problem of its own."
        )
    if adapted.scaler is not None:
        raise ValueError("stepwise takes the model alone; scale the data first and give the model behind the scaler.")


def _shifted_groups(groups: Any, offset: int) -> Any:
    if len(groups) and all(isinstance(group, (list, np.ndarray)) for group in groups):
        return [[j if isinstance(j, str) else j + offset for j in group] for group in groups]
    return [("constant", 0), *(("label", label) for label in groups)]


def _shifted(result: StepwiseResult, offset: int) -> StepwiseResult:
    """The result in the columns of the data, without the constant one."""
    names = None if result.selected_names is None else result.selected_names[offset:]
    path = tuple(_shifted_step(step, offset) for step in result.path)
    return replace(result, selected=result.selected[offset:] - offset, selected_names=names, path=path)


def _shifted_step(step: Step, offset: int) -> Step:
    def moved(columns: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(j - offset for j in columns)

    columns, feature = moved(step.columns), step.feature
    if feature == step.columns or feature in step.columns:
        feature = columns[0] if len(columns) == 1 else columns
    candidates = tuple((action, moved(which)) for action, which in step.candidates)
    return replace(step, columns=columns, feature=feature, candidates=candidates)
