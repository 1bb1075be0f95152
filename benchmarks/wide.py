"""Wide data with an intercept, as people run it: leave-one-out against one fit, against ``RidgeCV``, and folds against scikit-learn.

All ratios come from one run, each time the shortest of a few. Labels are compared with retraining every row, which is not timed.
scikit-learn trains to ``tol=1e-8``: with its default its labels on such data are those of another model.
"""

import time
import warnings

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, RidgeCV
from sklearn.model_selection import cross_val_predict

import glru
from benchmarks.data import folder, load
from benchmarks.timing import best_time, print_table

NAMES = ("arcene", "dexter", "dlbcl_shipp")
STRENGTHS = (1.0, 0.01)
"""scikit-learn's ``C``."""


def run() -> None:
    """Print the tables."""
    sets = {"synthetic": _synthetic()}
    if folder() is None:
        print("\narcene, dexter, dlbcl_shipp: skipped; set GLRU_DATA to the folder with the datasets.")
    else:
        for name in NAMES:
            X, y = load(name, "none")
            sets[f"{name}, raw"], sets[f"{name}, scaled"] = (X, y), (_scaled(X), y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _against_one_fit(sets)
        _against_sklearn({name: data for name, data in sets.items() if not name.endswith("raw")})


def _synthetic():
    random = np.random.default_rng(0)
    X = random.normal(size=(100, 10_000))
    return X, np.where(X[:, :10].sum(axis=1) + 2.0 * random.normal(size=100) > 0.0, 1.0, -1.0)


def _scaled(X):
    """Columns of standard deviation 1; sparse data is not centred."""
    if sp.issparse(X):
        roots = np.sqrt(np.asarray(X.multiply(X).mean(axis=0)).ravel())
        return sp.csr_array(X @ sp.diags_array(1.0 / np.where(roots > 0.0, roots, 1.0)))
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)


def _against_one_fit(sets) -> None:
    rows = []
    for name, (X, y) in sets.items():
        for loss in (glru.Logistic(), glru.Squared()):
            for C in STRENGTHS:
                problem = glru.Problem(X, y, loss, glru.L2(1.0 / C), fit_intercept=True, scaling="sum")
                fit, after, result = _timed(problem)
                open_labels = int(np.count_nonzero(~result.bounds.decided))
                wrong = _wrong_labels(problem, result)
                row = (name, loss, C, f"{1e3 * fit:.1f}", f"{1e3 * after:.1f}", f"{after / fit:.2f}")
                rows.append([*map(str, row), str(result.n_trainings), str(open_labels), str(wrong)])
    header = ["data", "loss", "C", "fit ms", "after it ms", "ratio", "trainings", "open labels", "wrong labels"]
    print_table("leave-one-out with an intercept, after the fit", header, rows)


def _timed(problem, repeats: int = 5):
    fit = after = np.inf
    for _ in range(repeats):
        fresh = glru.Problem(problem.X, problem.y, problem.loss, problem.penalty, True, "sum")
        first = time.perf_counter()
        solution = glru.solve(fresh)
        second = time.perf_counter()
        result = glru.loocv(solution, width="labels" if problem.loss.task != "regression" else None, max_seconds=60.0)
        third = time.perf_counter()
        fit, after = min(fit, second - first), min(after, third - second)
        if third - first > 5.0:
            break
    return fit, after, result


def _wrong_labels(problem, result, most: int = 100) -> int:
    """Decided labels that differ from those of models retrained without the row, of at most some rows."""
    rows = np.flatnonzero(result.bounds.decided)
    rows = rows if rows.size <= most else np.random.default_rng(0).choice(rows, most, replace=False)
    wrong = 0
    for row in rows:
        weight = np.where(np.arange(problem.n_rows) == row, 0.0, 1.0)
        score = glru.solve(problem.derive(sample_weight=weight), tol=1e-12).scores[row]
        wrong += int(np.sign(score) != result.bounds.signs[row])
    return wrong


def _against_sklearn(sets) -> None:
    rows = []
    for name, (X, y) in sets.items():
        for C in STRENGTHS:
            model = LogisticRegression(C=C, tol=1e-8, max_iter=100_000)
            theirs = best_time(lambda: cross_val_predict(model, X, y, cv=5))
            ours = best_time(lambda: glru.cross_val_predict(model, X, y, cv=5))
            rows.append([name, f"5 folds, C={C}", f"{1e3 * theirs:.0f}", f"{1e3 * ours:.0f}", f"{theirs / ours:.2f}"])
        if sp.issparse(X):
            continue
        theirs = best_time(lambda: RidgeCV(alphas=[1.0], store_cv_results=True).fit(X, y))
        for model in (Ridge(alpha=1.0), RidgeClassifier(alpha=1.0)):
            ours = best_time(lambda: glru.loocv(model, X, y))
            name_of = f"{type(model).__name__} against RidgeCV"
            rows.append([name, name_of, f"{1e3 * theirs:.0f}", f"{1e3 * ours:.0f}", f"{theirs / ours:.2f}"])
    print_table("against scikit-learn", ["data", "what", "theirs ms", "ours ms", "times as fast"], rows)
