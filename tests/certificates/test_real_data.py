"""Labels that are proven on real data are the labels of the retrained model."""

import numpy as np
import pytest

import glru
from glru.datasets import prepare
from tests.cases import stored
from tests.certificates.truth import trained


def load(name):
    """Standardised data with every fifth row set aside."""
    data = stored(name)
    X, y = prepare(data, normalize="dense").X, np.sign(data.y - data.y.mean())
    aside = np.arange(len(y)) % 5 == 0
    return X[~aside], y[~aside], X[aside], y[aside]


def changes(X, y, X_new, y_new):
    """Rows and columns, removed, added and edited; one and several."""
    d = X.shape[1]
    return {
        "remove": glru.RemoveRows([3]),
        "remove-ten": glru.RemoveRows(range(0, 100, 10)),
        "add": glru.AddRows(X_new[:5], y_new[:5]),
        "edit": glru.EditValues([7, 8], [0, d - 1], [[1.0, -1.0], [0.5, 2.0]]),
        "relabel": glru.Relabel([11], [-y[11]]),
        "reweight": glru.Reweight([1, 2], [0.0, 2.0]),
        "remove-column": glru.RemoveColumns([1]),
        "add-column": glru.AddColumns(np.sin(X[:, :1] * X[:, 1:2])),
        "mixed": glru.RemoveRows([3, 5]) + glru.RemoveColumns([0]) + glru.Relabel([6], [1.0]),
    }


def queries_for(name, X, X_new):
    """The rows set aside, with the columns of the changed problem."""
    match name:
        case "remove-column":
            return np.delete(X_new, 1, axis=1)
        case "add-column":
            return np.hstack([X_new, np.sin(X_new[:, :1] * X_new[:, 1:2])])
        case "mixed":
            return X_new[:, 1:]
    return X_new


@pytest.mark.parametrize("name", ["heart", "sonar", "ionosphere"])
@pytest.mark.parametrize("lam", [2.0**-3, 2.0**-10])
@pytest.mark.parametrize("fit_intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("loss", [glru.Logistic(), glru.SquaredHinge()], ids=["logistic", "squared-hinge"])
def test_proven_labels_are_the_retrained_ones(name, lam, fit_intercept, loss):
    """For every change and candidate; the Newton candidate proves nearly all where the change is small."""
    X, y, X_new, y_new = load(name)
    problem = glru.Problem(X, y, loss, glru.L2(lam), fit_intercept)
    solution = trained(problem, 1e-8)
    for kind, change in changes(X, y, X_new, y_new).items():
        queries = queries_for(kind, X, X_new)
        changed = change.apply(problem)
        new = trained(changed, 1e-13)
        scores = queries @ new.coef + new.intercept
        for candidate in ("carry", "newton"):
            out = glru.after(solution, change, candidate)
            labels = out.score_bounds(queries).signs
            assert np.all((labels == 0) | (labels == np.sign(scores))), (kind, candidate)
            lower, upper = out.score_bounds(queries)
            slack = 1e-6 * (1.0 + np.abs(scores))
            assert np.all(lower <= scores + slack) and np.all(scores - slack <= upper)
            if candidate == "newton" and (kind == "remove" or lam > 0.1):
                assert out.determination_rate(queries) >= 0.9
