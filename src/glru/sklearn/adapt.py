"""``adapt``: from an estimator and data to problems."""

from typing import Any

import numpy as np

from glru import _inputs
from glru.problem import Problem
from glru.sklearn.adapted import CONSTANT, Adapted, is_a, prepared, scaler_of
from glru.sklearn.objectives import Objective, objective_of
from glru.sklearn.targets import Seen, Targets, targets_of


def is_estimator(value: object) -> bool:
    """Whether a value is a scikit-learn estimator rather than something of this library's core."""
    return callable(getattr(value, "fit", None)) and callable(getattr(value, "get_params", None))


def adapt(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> Adapted:
    """An estimator's objective on its data, as problems of this library.

    Parameters
    ----------
    estimator : estimator
        A linear model of scikit-learn or of this library, fitted or not, or one in a ``OneVsRestClassifier``, or one behind
        a ``StandardScaler`` in a ``Pipeline``.
    X, y, sample_weight : array
        What it is fitted to.

    Returns
    -------
    Adapted
        Its problems, and the way back to its labels and coefficients.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from glru.sklearn import adapt
    >>> adapt(Ridge(alpha=2.0), np.eye(3), [1.0, 2.0, 3.0]).problems[0]
    Problem(3 rows x 3 columns, Squared(), L2(lam=2.0), fit_intercept=True, scaling='sum')
    """
    model, scaler, wrapped = _unwrapped(estimator)
    objective = objective_of(model)
    matrix, names = _inputs.as_matrix(X)
    seen: Seen = "side" if wrapped else "positive" if is_a(model, "LinearSVC") else "class"
    targets = targets_of(y, matrix.shape[0], sample_weight, objective, seen)
    if targets.n_problems > 1 and not (objective.several or wrapped):
        raise ValueError(
            f"{type(model).__name__} with {targets.n_problems} classes is multinomial: one objective couples all classes, "
            "which is not a glru.Problem. Wrap the estimator in a OneVsRestClassifier, or use glru.GLRUClassifier, which is one-vs-rest."
        )
    if scaler is not None:
        from sklearn.base import clone

        matrix.require_host("behind a scaler X must be on the host")
        scaler = clone(scaler).fit(matrix.data)
        _check_scaler(scaler, model, objective)
    data = prepared(matrix, scaler, objective.constant)
    problems = _problems(objective, targets, data, names)
    return Adapted(model, objective, problems, targets, scaler, None if scaler is None else matrix.data)


def _unwrapped(estimator: Any) -> tuple[Any, Any, bool]:
    """The linear model, the scaler in front of it, and whether a one-vs-rest wrapper is around it."""
    scaler = None
    if is_a(estimator, "Pipeline"):
        scaler, estimator = scaler_of(estimator), estimator.steps[-1][1]
    wrapped = is_a(estimator, "OneVsRestClassifier")
    return (estimator.estimator if wrapped else estimator), scaler, wrapped


def _check_scaler(scaler: Any, model: Any, objective: Objective) -> None:
    if scaler.with_mean and not objective.intercept:
        raise ValueError(
            f"a StandardScaler that shifts the columns needs an unpenalised intercept behind it, which {model!r} does not "
            "have. Use with_mean=False, or scale the data first and give the model alone."
        )


def _problems(objective: Objective, targets: Targets, X: Any, names: tuple[str, ...] | None) -> tuple[Problem, ...]:
    everything = np.arange(X.shape[0])
    if objective.constant is not None and names is not None:
        names = (CONSTANT, *names)
    first = objective.problem(X, targets.values(0, targets.y), targets.weights(0, everything)).derive(
        column_names=names
    )
    others = (
        first.derive(y=targets.values(k, targets.y), sample_weight=targets.weights(k, everything))
        for k in range(1, targets.n_problems)
    )
    return first, *others
