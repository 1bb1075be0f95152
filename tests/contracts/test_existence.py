"""Problems without an optimum, or with many: it is said, and no number is returned in its place."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge

import glru


def separated(n=60, d=3, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, d))
    return X, X[:, 0] > 0.0


def test_separated_classes_without_a_penalty():
    X, y = separated()
    with pytest.warns(ConvergenceWarning, match="No optimum exists: unpenalised columns separate the classes"):
        glru.solve(glru.Problem(X, y, penalty=glru.L2(np.zeros(3))))


def test_quasi_separated_classes():
    """One binary column that is never 1 in one class: its coefficient has no best value."""
    X, _ = separated()
    y = np.random.default_rng(1).random(60) > 0.5
    X[:, 2] = y & (np.arange(60) % 3 == 0)
    with pytest.warns(ConvergenceWarning, match="No optimum exists"):
        glru.solve(glru.Problem(X, y, penalty=glru.L2(np.zeros(3)), fit_intercept=True))


def test_overlapping_classes_have_an_optimum():
    X, _ = separated()
    y = np.random.default_rng(2).random(60) > 0.5
    assert glru.solve(glru.Problem(X, y, penalty=glru.L2(np.zeros(3)), fit_intercept=True)).status == "converged"


@pytest.mark.parametrize("intercept", [False, True])
def test_three_separated_classes_without_a_penalty(intercept):
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = np.argmax(X @ [[1.0, -1.0, 0.0], [0.0, 0.5, -1.0]], axis=1)
    problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(np.zeros(2)), fit_intercept=intercept)
    with pytest.warns(ConvergenceWarning, match="No optimum exists: unpenalised columns separate the classes"):
        glru.solve(problem)
    y[:30] = np.random.default_rng(1).integers(3, size=30)
    assert (
        glru.solve(glru.Problem(X, y, glru.Multinomial(), glru.L2(np.zeros(2)), fit_intercept=intercept)).status
        == "converged"
    )


def test_held_out_predictions_of_separated_classes_are_masked():
    X, y = separated()
    model = LogisticRegression(C=np.inf)
    with pytest.warns(ConvergenceWarning), pytest.warns(UserWarning, match="in split 0 no optimum exists: unpenalised"):
        labels = glru.cross_val_predict(model, X, y, cv=5)
    assert np.ma.getmaskarray(labels).all()
    with pytest.warns(ConvergenceWarning), pytest.warns(UserWarning, match="not proven: in split 0"):
        assert np.isnan(glru.cross_val_score(model, X, y, cv=5)).all()
    with pytest.warns(ConvergenceWarning), pytest.warns(UserWarning, match="not proven"):
        chances = glru.cross_val_predict(model, X, y, cv=5, method="predict_proba")
    assert chances.shape == (60, 2) and np.ma.getmaskarray(chances).all()


def test_regression_on_dependent_columns():
    X, _ = separated()
    y = X[:, 0] + X[:, 1]
    predicted = glru.cross_val_predict(Ridge(alpha=0.0), np.column_stack([X, np.ones(60)]), y, cv=5)
    np.testing.assert_allclose(predicted, y, atol=1e-9)
    rounded = np.column_stack([X, 0.3 * X[:, 0] + 0.7 * X[:, 1]])
    with pytest.warns(UserWarning, match="in split 0 the optimum is not unique"):
        predicted = glru.cross_val_predict(Ridge(alpha=0.0), rounded, y, cv=5)
    assert np.ma.getmaskarray(predicted).all()


@pytest.mark.parametrize("loss", [glru.Logistic(), glru.SquaredHinge()])
def test_one_class_and_an_intercept(loss):
    X, _ = separated(8)
    solution = glru.solve(glru.Problem(X, [1, 0, 1, 1, 1, 1, 1, 1], loss, glru.L2(0.1), fit_intercept=True))
    out = glru.after(solution, glru.RemoveRows([1]))
    assert "all rows are of the class +1" in out.remark
    assert out.radius == np.inf
    assert not out.score_bounds(X).signs.any()
    lower, upper = out.score_bounds(X)
    assert np.isneginf(lower).all() and np.isposinf(upper).all()
    assert glru.after(solution, glru.RemoveRows([0])).remark is None


def test_a_remark_on_data_that_overflows():
    """Asking whether an optimum exists warns of nothing, whatever the data."""
    X, y = separated(20)
    with pytest.warns(ConvergenceWarning):
        solution = glru.solve(glru.Problem(1e200 * X, y, penalty=glru.L2([0.0, 1.0, 1.0])))
    assert glru.after(solution, glru.RemoveRows([0])).remark is not None
