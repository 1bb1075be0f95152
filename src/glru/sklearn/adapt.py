"""``adapt``: the problems of an estimator and its data."""

from dataclasses import replace
from typing import Any

import numpy as np

from glru import _inputs
from glru.changes import prepend_constant
from glru.problem import Problem
from glru.sklearn.adapted import CONSTANT, Adapted
from glru.sklearn.objectives import Objective, objective_of
from glru.sklearn.preprocessing import count_rows, fit_steps, is_a, keep_steps, steps_of
from glru.sklearn.targets import Seen, Targets, targets_of


def adapt(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    keep: bool = False,
    params: dict[str, Any] | None = None,
) -> Adapted:
    """An estimator's objective on its data, as problems of this library.

    Parameters
    ----------
    estimator : estimator
        A linear model of scikit-learn or of this library, fitted or not, or one in a ``OneVsRestClassifier``, or one of these
        at the end of a ``Pipeline``.
    X, y, sample_weight : array
        What it is fitted to; in a pipeline whatever its steps take.
    keep : bool, default=False
        Whether the steps of a fitted pipeline are kept as they are; otherwise copies of them are fitted to the data.
    params : dict, default=None
        Parameters of ``fit`` of the steps in front of the model, in scikit-learn's spelling.

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
    model, steps, wrapped = _unwrap(estimator)
    objective = objective_of(model)
    preprocessing = None
    if steps is None:
        matrix, names = _inputs.as_matrix(X)
        n_rows = matrix.shape[0]
    else:
        n_rows = count_rows(X)
    seen: Seen = "side" if wrapped else "positive" if is_a(model, "LinearSVC") else "class"
    targets = targets_of(y, n_rows, sample_weight, objective, seen)
    if targets.n_problems > 1 and objective.multinomial and not wrapped:
        objective, targets = objective.for_classes(), replace(targets, joint=True)
    elif targets.n_problems > 1 and not (objective.several or wrapped):
        raise ValueError(
            f"{type(model).__name__} with {targets.n_problems} classes and solver={getattr(model, 'solver', None)!r} is one model per class in some "
            "versions of scikit-learn and an error in others. Wrap the estimator in a OneVsRestClassifier, or use another solver."
        )
    if steps is not None:
        preprocessing = keep_steps(steps, X, targets.y) if keep else fit_steps(steps, X, targets.y, params)
        matrix, names = preprocessing.matrix, preprocessing.names
    problems = _problems(objective, targets, prepend_constant(matrix, objective.constant), names)
    return Adapted(model, objective, problems, targets, preprocessing)


def adapt_again(adapted: Adapted, model: Any) -> Adapted:
    """The data and preprocessing steps of an adapted estimator with a model of another strength."""
    objective = objective_of(model)
    problems = tuple(one.derive(penalty=objective.penalty(one.n_columns)) for one in adapted.problems)
    again = Adapted(model, objective, problems, adapted.targets, adapted.preprocessing)
    if "column_changes" in adapted.__dict__:
        again.__dict__["column_changes"] = adapted.column_changes
    return again


def _unwrap(estimator: Any) -> tuple[Any, Any, bool]:
    """The linear model, the steps before it, and whether it is wrapped in a OneVsRestClassifier."""
    if isinstance(estimator, type):
        raise TypeError(
            f"the estimator must be an instance; got the class {estimator.__name__}. Use {estimator.__name__}()."
        )
    steps = None
    if is_a(estimator, "Pipeline"):
        steps, estimator = steps_of(estimator)
    wrapped = is_a(estimator, "OneVsRestClassifier")
    return (estimator.estimator if wrapped else estimator), steps, wrapped


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
