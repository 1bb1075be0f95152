"""Adapters: the optimum of the adapted problem is what scikit-learn's estimator converges to."""

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import linear_model
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import (
    ElasticNet,
    ElasticNetCV,
    HuberRegressor,
    LassoCV,
    LogisticRegression,
    LogisticRegressionCV,
    Ridge,
    RidgeClassifier,
    RidgeClassifierCV,
    RidgeCV,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

import glru
from tests.cases import SINCE_1_8, each, l1
from tests.core import adapt, translate_change
from tests.ecosystem.models import MODELS, SHIFTING, SPARSE, TIGHT, cancer, diabetes, iris, quietly, raw_cancer, wine

WEIGHTED = ["logistic", "logistic-liblinear", "svc", "ridge-classifier", "ridge", "elastic-net"]


def trained(adapted):
    return tuple(glru.solve(problem, tol=1e-12 if problem.penalty.smooth else 1e-11) for problem in adapted.problems)


def assert_same(adapted, fitted, atol=3e-5):
    solutions = trained(adapted)
    for point, solution in zip(adapted.points(fitted), solutions, strict=True):
        size = 1.0 + np.abs(solution.coef).max()
        assert np.allclose(point.coef, solution.coef, atol=atol * size)
        assert np.isclose(point.intercept, solution.intercept, atol=atol * (size + abs(solution.intercept)))
    return solutions


@each(MODELS | SHIFTING | SPARSE, "model")
def test_optimum(model):
    estimator, data = model
    X, y = data()
    adapted = adapt(estimator, X, y)
    fitted = quietly(lambda: clone(estimator).fit(X, y))
    solutions = assert_same(adapted, fitted)
    if adapted.preprocessing is None and not isinstance(fitted, OneVsRestClassifier):
        coef, intercept = adapted.coefficients([solution.point for solution in solutions])
        assert np.allclose(coef, np.atleast_2d(fitted.coef_), atol=1e-4 * (1.0 + np.abs(coef).max()))
        assert np.allclose(intercept, fitted.intercept_, atol=1e-4 * (1.0 + np.abs(intercept).max()))


@each(MODELS | SHIFTING, "model")
def test_scores_and_labels(model):
    estimator, data = model
    X, y = data()
    adapted = adapt(estimator, X, y)
    fitted = quietly(lambda: clone(estimator).fit(X, y))
    rows = adapted.rows(X)
    scores = adapted.stack([rows @ point.coef + point.intercept for point in adapted.points(fitted)])
    expected = fitted.predict(X) if adapted.classes is None else fitted.decision_function(X)
    assert scores.shape == expected.shape
    assert np.allclose(scores, expected, atol=1e-9 * (1.0 + np.abs(expected).max()))
    if adapted.classes is not None:
        assert np.array_equal(adapted.labels(expected), fitted.predict(X))
    if adapted.objective.probabilities:
        assert np.allclose(adapted.probabilities(expected), fitted.predict_proba(X), atol=1e-12)


@pytest.mark.parametrize("name", WEIGHTED)
def test_sample_weights(name):
    estimator, data = MODELS[name]
    X, y = data()
    weight = np.arange(len(y)) % 3 + 0.5
    fitted = quietly(lambda: clone(estimator).fit(X, y, sample_weight=weight))
    assert_same(adapt(estimator, X, y, weight), fitted)


@pytest.mark.skipif(not SINCE_1_8, reason="l1_ratio alone means nothing before scikit-learn 1.8")
def test_old_parameters_of_logistic_regression():
    """``penalty`` as it was before version 1.8 means what ``l1_ratio`` and ``C`` mean now."""
    X, y = cancer()
    for old, new in (
        ({"penalty": "l1"}, {"l1_ratio": 1.0}),
        ({"penalty": "l2"}, {"l1_ratio": 0.0}),
        ({"penalty": "elasticnet", "l1_ratio": 0.3}, {"l1_ratio": 0.3}),
        ({"penalty": None}, {"C": np.inf}),
    ):
        first, second = (adapt(LogisticRegression(**options), X, y).problems[0].penalty for options in (old, new))
        assert type(first) is type(second)
        assert np.array_equal(first.quadratic, second.quadratic)
        assert np.array_equal(first.absolute, second.absolute)


def test_frames_and_sparse_matrices():
    X, y = cancer()
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
    for estimator in (LogisticRegression(), LinearSVC()):
        dense = adapt(estimator, X, y)
        named, sparse = adapt(estimator, frame, y), adapt(estimator, sp.csr_matrix(X), y)
        assert named.problems[0].column_names[named.offset :] == tuple(frame.columns)
        assert sp.issparse(sparse.problems[0].X)
        assert np.array_equal(sparse.problems[0].X.toarray(), dense.problems[0].X)
        shuffled = frame[frame.columns[::-1]]
        assert np.array_equal(named.rows(shuffled).dense(), dense.rows(X).dense())


@pytest.mark.parametrize(
    "name", ["svc", "svc-class-weights", "ridge-classifier-classes", "one-vs-rest-weights", "ridge"]
)
def test_changes_are_translated(name):
    """The changed problem is the problem of the changed data."""
    estimator, data = MODELS[name]
    X, y = data()
    adapted = adapt(estimator, X[:100], y[:100])
    relabelled, edited = y[:100].copy(), X[:100].copy()
    relabelled[[3, 4]] = y[[50, 60]]
    edited[2, 1] = 9.0
    cases = [
        (glru.RemoveRows([0, 5]), np.delete(X[:100], [0, 5], axis=0), np.delete(y[:100], [0, 5]), None),
        (glru.AddRows(X[100:110], y[100:110]), X[:110], y[:110], None),
        (glru.Relabel([3, 4], y[[50, 60]]), X[:100], relabelled, None),
        (glru.Reweight([7], 2.0), X[:100], y[:100], np.where(np.arange(100) == 7, 2.0, 1.0)),
        (glru.RemoveColumns([1]), np.delete(X[:100], 1, axis=1), y[:100], None),
        (glru.EditValues([2], [1], 9.0), edited, y[:100], None),
        (
            glru.RemoveRows([0]) + glru.AddRows(X[100:110], y[100:110]) + glru.RemoveColumns([0]),
            X[1:110, 1:],
            y[1:110],
            None,
        ),
    ]
    for change, new_X, new_y, weight in cases:
        expected = adapt(estimator, new_X, new_y, weight)
        for k, problem in enumerate(adapted.problems):
            changed = translate_change(adapted, k, change).apply(problem)
            assert np.array_equal(changed.X, expected.problems[k].X)
            assert np.array_equal(changed.y, expected.problems[k].y)
            assert np.allclose(changed.weights, expected.problems[k].weights)


def test_refusals():
    X, y = cancer()
    Xi, yi = iris()
    Xd, yd = diabetes()
    refused = [
        (
            LogisticRegression(solver="liblinear"),
            Xi,
            yi,
            "one model per class.*Wrap the estimator in a OneVsRestClassifier",
        ),
        (LogisticRegression(**l1(0.5)), Xi, yi, "Multinomial.* needs an L2 penalty"),
        (LinearSVC(multi_class="crammer_singer"), Xi, yi, "couples the classes.*multi_class='ovr'"),
        (Ridge(positive=True), Xd, yd, "positive=True constrains"),
        (RidgeClassifier(positive=True), X, y, "positive=True constrains"),
        (ElasticNet(positive=True), Xd, yd, "positive=True constrains"),
        (Ridge(alpha=[1.0, 2.0]), Xd, yd, "alpha must be one number"),
        (Ridge(alpha=-1.0), Xd, yd, "alpha must be a finite number >= 0; got -1.0"),
        (LogisticRegression(C=0.0), X, y, "C must be above 0; got 0.0"),
        (LogisticRegression(**l1(2.0)), X, y, "l1_ratio must be between 0 and 1"),
        (LogisticRegression(class_weight={7: 1.0}), X, y, "class_weight must name classes of y"),
        (LogisticRegression(class_weight="even"), X, y, "must be a dict, 'balanced' or None; got 'even'"),
        (LogisticRegression(class_weight={1: -1.0}), X, y, r"a dict of finite numbers.*got \{1: -1.0\}"),
        (LogisticRegression(class_weight=[1, 2]), X, y, r"a dict of finite numbers.*got \[1, 2\]"),
        (LinearSVC(intercept_scaling=0.0), X, y, "intercept_scaling must be above 0; got 0.0"),
        (LogisticRegression(), X, np.zeros(len(y)), "at least two classes; got 1"),
    ]
    for estimator, data, target, message in refused:
        with pytest.raises(ValueError, match=f"(?s){message}"):
            adapt(estimator, data, target)
    with pytest.raises(TypeError, match=r"C must be one number; got 'a'\. Use C=1\.0"):
        adapt(LogisticRegression(C="a"), X, y)
    with pytest.raises(TypeError, match=r"whose objective is not known.*glru\.Problem"):
        adapt(PCA(), X, y)
    with pytest.raises(ValueError, match="Multiply the sample weights"):
        adapt(LogisticRegression(class_weight="balanced"), X, y, np.ones(len(y)))


def test_a_subclass_is_not_taken_for_its_parent():
    class Other(LogisticRegression):
        pass

    with pytest.raises(TypeError, match="objective is not known"):
        adapt(Other(), *cancer())


def test_changes_that_shift_other_rows_are_refused():
    for estimator, data in (SHIFTING["balanced"], SHIFTING["scaled"]):
        with pytest.raises(ValueError, match=r"when the data changes, .* as well.*give the model alone"):
            translate_change(adapt(estimator, *data()), 0, glru.RemoveRows([0]))


def test_a_model_of_other_data_is_refused():
    X, y = raw_cancer()
    with pytest.raises(ValueError, match="must have been fitted to this data"):
        adapt(Ridge(), X, y).points(Ridge().fit(X[:, :3], y))
    with pytest.raises(ValueError, match="rows must have 13 columns"):
        adapt(LinearSVC(), *wine()).rows(X)


CHOOSING = {
    "logistic": (LogisticRegressionCV(Cs=3, cv=3, **TIGHT), cancer, "LogisticRegression"),
    "ridge": (RidgeCV(alphas=[0.1, 1.0]), diabetes, "Ridge"),
    "ridge-classifier": (RidgeClassifierCV(alphas=[0.1, 1.0]), cancer, "RidgeClassifier"),
    "lasso": (LassoCV(cv=3, tol=1e-8, max_iter=100_000), diabetes, "Lasso"),
    "net": (ElasticNetCV(cv=3, tol=1e-8, max_iter=100_000), diabetes, "ElasticNet"),
}


@each(CHOOSING, "model")
def test_models_that_choose_their_strength(model):
    """Certified at the strength they chose; what they would choose from other rows is refused, with a remedy that works."""
    estimator, data, name = model
    X, y = data()
    with pytest.raises(TypeError, match=rf"again whenever its rows change.*Use {name}\((C|alpha)=\.\.\."):
        glru.loocv(estimator, X, y)
    fitted = quietly(lambda: clone(estimator).fit(X, y))
    assert glru.certify(fitted, X, y).relative_gap < 1e-6
    with pytest.raises(TypeError, match="again whenever its rows change") as refusal:
        glru.cross_val_predict(fitted, X, y)
    remedy = eval(re.search(r"Use (.*?\)) with", str(refusal.value))[1], vars(linear_model))
    assert not np.ma.is_masked(glru.cross_val_predict(remedy, X, y, cv=3))


def test_averaged_models_minimise_nothing():
    X, y = cancer()
    model = quietly(lambda: LogisticRegressionCV(Cs=2, cv=3, refit=False).fit(X, y))
    with pytest.raises(ValueError, match=r"averages the coefficients.*Use refit=True"):
        glru.certify(model, X, y)


def test_the_remedy_for_a_huber_regressor_is_its_model():
    X, y = diabetes()
    model = HuberRegressor(alpha=0.1, tol=1e-9, max_iter=10_000).fit(X, y)
    with pytest.raises(TypeError, match="over the scale of the residuals") as refusal:
        glru.loocv(model, X, y)
    remedy = eval(re.search(r"use (glru\..*\))\.$", str(refusal.value))[1], {"glru": glru})
    assert np.allclose(remedy.fit(X, y).predict(X), model.predict(X), atol=1e-3 * np.ptp(y))
    with pytest.raises(TypeError, match=r"Huber\(model\.epsilon \* model\.scale_\).* and an alpha above 0\."):
        glru.loocv(HuberRegressor(alpha=0.0), X, y)


def test_several_classes_are_accepted_everywhere():
    X, y = iris()
    for model in (LogisticRegression(), OneVsRestClassifier(LogisticRegression()), glru.GLRUClassifier()):
        assert glru.loocv(model, X, y).decided.all()
        assert glru.cross_val_score(model, X, y, cv=3).shape == (3,)
        assert glru.after(model, glru.RemoveRows([0]), X=X, y=y).determination_rate(X) > 0.9
        assert glru.certify(model.fit(X, y), X, y).relative_gap < 1e-3


@pytest.mark.parametrize(
    "model", [LogisticRegression(fit_intercept=False), LinearSVC(), LinearSVC(fit_intercept=False)]
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_no_class_is_trained_without_rows(model, n_classes):
    """The last row of a class leaves: scikit-learn trains no such model, and nothing is said about it."""
    X = np.random.default_rng(0).normal(size=(12, 3))
    y = np.array(["b", "c"])[np.arange(12) % (n_classes - 1)]
    y[5] = "a"
    if n_classes == 2:
        with pytest.raises(ValueError, match="class"):
            clone(model).fit(np.delete(X, 5, axis=0), np.delete(y, 5))
    with pytest.raises(ValueError, match="two rows of every class; class 'a' is gone"):
        glru.loocv(model, X, y)
    with pytest.raises(ValueError, match=r"in every class.*\['a', 'b'"):
        glru.after(model, glru.RemoveRows([5]), X=X, y=y)
    assert glru.after(model, glru.RemoveRows([4]), X=X, y=y).labels(X).size == 12
