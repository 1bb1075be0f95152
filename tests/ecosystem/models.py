"""scikit-learn's linear models at tight tolerance with real data, for the tests of adapters and drop-ins."""

import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale
from sklearn.svm import LinearSVC

from tests.cases import l1


def some(X, y, count, seed=0):
    """A random sample of rows."""
    rows = np.random.default_rng(seed).choice(len(y), min(count, len(y)), replace=False)
    return X[rows], y[rows]


def cancer(count=120, columns=12):
    X, y = some(*load_breast_cancer(return_X_y=True), count)
    return scale(X)[:, :columns], y


def raw_cancer():
    X, y = some(*load_breast_cancer(return_X_y=True), 120)
    return X[:, :12], y


def wine():
    X, y = some(*load_wine(return_X_y=True), 120)
    return scale(X), np.array(["red", "rose", "white"])[y]


def iris():
    X, y = some(*load_iris(return_X_y=True), 150)
    return scale(X), y


def diabetes():
    X, y = some(*load_diabetes(return_X_y=True), 120)
    return 10.0 * X, y


def three_and_eight():
    """A pair of digits, with columns that are zero everywhere."""
    X, y = load_digits(return_X_y=True)
    pair = (y == 3) | (y == 8)
    return some(X[pair] / 16.0, y[pair], 100)


TIGHT = {"tol": 1e-11, "solver": "newton-cholesky"}
SVC = {"tol": 1e-10, "max_iter": 1_000_000, "random_state": 0}

MODELS = {
    "logistic": (LogisticRegression(C=0.5, **TIGHT), cancer),
    "logistic-digits": (LogisticRegression(C=0.1, **TIGHT), three_and_eight),
    "logistic-plain": (LogisticRegression(C=0.5, fit_intercept=False, **TIGHT), cancer),
    "logistic-weights": (LogisticRegression(C=0.5, class_weight={0: 3.0, 1: 0.5}, **TIGHT), cancer),
    "logistic-free": (LogisticRegression(C=np.inf, **TIGHT), lambda: cancer(columns=2)),
    "logistic-liblinear": (
        LogisticRegression(C=0.5, solver="liblinear", intercept_scaling=3.0, tol=1e-11, max_iter=10_000),
        cancer,
    ),
    "logistic-net": (LogisticRegression(C=0.2, **l1(0.5), solver="saga", tol=1e-10, max_iter=100_000), cancer),
    "svc": (LinearSVC(C=0.1, intercept_scaling=2.0, **SVC), cancer),
    "svc-hinge": (LinearSVC(C=0.01, loss="hinge", **SVC), cancer),
    "svc-classes": (LinearSVC(C=0.1, **SVC), iris),
    "svc-class-weights": (LinearSVC(C=0.1, class_weight={"red": 3.0, "rose": 0.5}, **SVC), wine),
    "ridge-classifier": (RidgeClassifier(alpha=2.0), cancer),
    "ridge-classifier-classes": (RidgeClassifier(alpha=2.0, class_weight={"red": 4.0}), wine),
    "ridge": (Ridge(alpha=0.5), diabetes),
    "linear": (LinearRegression(), diabetes),
    "ridge-free": (Ridge(alpha=0.0), diabetes),
    "elastic-net": (ElasticNet(alpha=0.3, l1_ratio=0.7, tol=1e-13, max_iter=100_000), diabetes),
    "one-vs-rest": (OneVsRestClassifier(LogisticRegression(C=0.3, **TIGHT)), wine),
    "one-vs-rest-weights": (OneVsRestClassifier(LogisticRegression(C=0.3, class_weight={1: 3.0}, **TIGHT)), iris),
}
"""Every estimator whose held-out scores can be proven, and its data."""

SHIFTING = {
    "balanced": (LogisticRegression(C=0.5, class_weight="balanced", **TIGHT), cancer),
    "scaled": (make_pipeline(StandardScaler(), LogisticRegression(C=0.3, **TIGHT)), raw_cancer),
    "scaled-classes": (make_pipeline(StandardScaler(), RidgeClassifier()), wine),
    "scaled-ridge": (make_pipeline(StandardScaler(), Ridge()), diabetes),
    "scaled-net": (make_pipeline(StandardScaler(), ElasticNet(alpha=2.0, tol=1e-13, max_iter=100_000)), diabetes),
    "stretched-svc": (make_pipeline(StandardScaler(with_mean=False), LinearSVC(C=0.1, **SVC)), raw_cancer),
    "centred": (make_pipeline(StandardScaler(with_std=False), LogisticRegression(C=0.3, **TIGHT)), cancer),
}
"""Estimators whose other rows change when one is left out."""

SPARSE = {
    "lasso": (Lasso(alpha=0.3, tol=1e-13, max_iter=100_000), diabetes),
    "logistic-l1": (LogisticRegression(C=0.5, **l1(1.0), solver="liblinear", tol=1e-10, max_iter=10_000), cancer),
    "svc-l1": (LinearSVC(C=0.1, penalty="l1", dual=False, **SVC), cancer),
}
"""Estimators without squares in their penalty."""


def quietly(work):
    """The result of scikit-learn's own work, whose warnings (deprecations, iterations) are not what is tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return work()
