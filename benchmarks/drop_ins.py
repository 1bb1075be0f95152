"""The drop-ins against scikit-learn's brute force on the same objects: time ratios and largest differences.

All ratios come from one run, both sides timed alike (the shortest of some runs, after one that compiles). Where scikit-learn would take long it
retrains a random sample of the rows (seed 0; the sample's size is printed), and the median of a row's times is scaled up
to all of them. Differences from lbfgs at its default tolerance are mostly its own error; newton-cholesky is tight.
"""

import time
import warnings

import numpy as np
from sklearn import model_selection
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.model_selection import LeaveOneOut
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale
from sklearn.svm import LinearSVC

import glru
from benchmarks.data import folder, load
from benchmarks.timing import best_time, print_table

HEADER = ["data", "estimator", "method", "sklearn on", "ratio", "largest difference", "labels that differ"]


def run() -> None:
    """Print the tables."""
    rows = []
    for name, X, y, estimators, sample in _cases():
        for estimator, method in estimators:
            rows.append(_compared(name, X, y, estimator, method, sample))
    print_table("cross_val_predict(..., cv=LeaveOneOut()): scikit-learn's time in units of the drop-in's", HEADER, rows)
    print_table(
        "cross_val_predict(..., cv=5): the same for folds",
        ["data", "estimator", "ratio", "largest difference"],
        _folds(),
    )


def _cases():
    X, y = load_breast_cancer(return_X_y=True)
    logistic = LogisticRegression(C=0.5, tol=1e-8, solver="newton-cholesky")
    usual = LogisticRegression(C=0.5, max_iter=1000)
    yield (
        f"breast_cancer {X.shape[0]} x {X.shape[1]}",
        scale(X),
        y,
        [
            (logistic, "predict"),
            (logistic, "predict_proba"),
            (usual, "predict_proba"),
            (LinearSVC(C=0.1, tol=1e-8, max_iter=100_000), "decision_function"),
            (RidgeClassifier(), "decision_function"),
        ],
        None,
    )
    yield (
        f"breast_cancer {X.shape[0]} x {X.shape[1]}, unscaled",
        X,
        y,
        [(make_pipeline(StandardScaler(), logistic), "predict_proba")],
        100,
    )
    X, y = load_diabetes(return_X_y=True)
    yield f"diabetes {X.shape[0]} x {X.shape[1]}", X, y, [(Ridge(0.1), "predict")], None
    X, y = load_digits(return_X_y=True)
    digits = [(OneVsRestClassifier(LogisticRegression(C=0.01, tol=1e-8, solver="newton-cholesky")), "predict_proba")]
    yield f"digits {X.shape[0]} x {X.shape[1]}, ten classes", scale(X), y, digits, 20
    if folder() is None:
        print("\nspambase and a9a: skipped; set GLRU_DATA to the folder with the datasets.")
        return
    for name, normalisation, sample in (("spambase", "dense", 50), ("a9a", "none", 10)):
        X, y = load(name, normalisation)
        yield f"{name} {X.shape[0]} x {X.shape[1]}", X, y, [(logistic, "predict_proba"), (usual, "predict")], sample


def _compared(name, X, y, estimator, method, sample) -> list[str]:
    """One row of the table."""
    ours = glru.cross_val_predict(estimator, X, y, cv=LeaveOneOut(), method=method)
    seconds = best_time(lambda: glru.cross_val_predict(estimator, X, y, cv=LeaveOneOut(), method=method), repeats=3)
    rows = np.arange(len(y))
    if sample is not None:
        rows = np.sort(np.random.default_rng(0).choice(rows, sample, replace=False))
    theirs, spent = _brute_force(X, y, estimator, method, rows)
    differ = "-"
    if method == "predict" and is_classifier(estimator):
        far, differ = "-", str(int(np.sum(ours[rows] != theirs)))
    else:
        far = f"{np.max(np.abs(ours[rows] - theirs)):.1e}"
    shown = type(estimator[-1]).__name__ + " behind a scaler" if hasattr(estimator, "steps") else _name(estimator)
    count = "all rows" if sample is None else f"{sample} rows"
    return [name, shown, method, count, f"{spent / seconds:.3g}", far, differ]


def _name(estimator) -> str:
    solver = getattr(estimator, "solver", "")
    return type(estimator).__name__ + (f" ({solver})" if solver not in ("", "auto") else "")


def _brute_force(X, y, estimator, method, rows):
    """scikit-learn's predictions of some rows, each by a model trained without it, and the seconds that all rows take."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if len(rows) == len(y):
            found = {}

            def work():
                found["all"] = model_selection.cross_val_predict(estimator, X, y, cv=LeaveOneOut(), method=method)

            seconds = best_time(work)
            return found["all"], seconds
        held, times = [], []
        for row in rows:
            begin = time.perf_counter()
            kept = np.flatnonzero(np.arange(len(y)) != row)
            held.append(getattr(clone(estimator).fit(X[kept], y[kept]), method)(X[[row]])[0])
            times.append(time.perf_counter() - begin)
        return np.array(held), float(np.median(times)) * len(y)


def _folds() -> list[list[str]]:
    X, y = load_breast_cancer(return_X_y=True)
    cases = [("breast_cancer", scale(X), y, LogisticRegression(C=0.5, tol=1e-8, solver="newton-cholesky"))]
    if folder() is not None:
        both = (cases[0][3], LogisticRegression(C=0.5, max_iter=1000))
        cases += [("spambase", *load("spambase", "dense"), estimator) for estimator in both]
    rows = []
    for name, X, y, estimator in cases:
        results = {}

        def ours(X=X, y=y, estimator=estimator, results=results):
            results["ours"] = glru.cross_val_predict(estimator, X, y, cv=5, method="predict_proba")

        def theirs(X=X, y=y, estimator=estimator, results=results):
            results["theirs"] = model_selection.cross_val_predict(estimator, X, y, cv=5, method="predict_proba")

        ratio = best_time(theirs) / best_time(ours)
        far = np.max(np.abs(results["ours"] - results["theirs"]))
        rows.append([name, _name(estimator), f"{ratio:.2f}", f"{far:.1e}"])
    return rows
