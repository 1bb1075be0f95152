"""What a live model is held against: plain arrays, and a model trained from scratch on them."""

import warnings

import numpy as np

import glru
from glru.live import storage
from tests.core import adapt
from tests.decisions.retraining import carefully


def problem_of(estimator, X, y, sample_weight=None):
    """The estimator's problem on data."""
    return adapt(estimator, X, y, sample_weight).problems[0]


def retrained(estimator, X, y, queries, sample_weight=None):
    """Scores of queries under a model trained from scratch, and how far each may be from the truth."""
    adapted = adapt(estimator, X, y, sample_weight)
    problem = adapted.problems[0]
    solution = carefully(problem)
    rows = adapted.rows(queries).dense()
    scores, lam = rows @ solution.coef + solution.intercept, problem.penalty.strong_convexity
    size = np.linalg.norm(rows, axis=1)
    rounding = 1e-12 * (1.0 + np.abs(scores) + size * np.linalg.norm(solution.coef))
    if lam > 0.0 and not problem.fit_intercept:
        return scores, rounding + np.sqrt(2.0 * max(solution.gap, 0.0) / lam) * size
    return scores, rounding + (1e-3 if isinstance(problem.loss, glru.Hinge) else 1e-6) * (1.0 + np.abs(scores))


def state(live):
    """Everything a live model is, in comparable values."""
    arrays, document = storage._to_arrays(live._saved)
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}, document


def without_times(live):
    """The state of a live model but for the times in its history."""
    arrays, document = state(live)
    return arrays, document | {"history": [entry | {"at": ""} for entry in document["history"]]}


def quietly(call, *arguments, **named):
    """A call whose warnings do not matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*arguments, **named)
