"""Exact leave-one-out cross-validation: against one fit, against a warm-started naive loop, against scikit-learn.

All ratios come from one run. "after the fit" is the time of ``glru.loocv(solution)``, the library's own fit being
timed beside it. The naive loop and the paper's Algorithm 2 are timed on a random sample of rows where all of them
would take long (the sample's size is printed), and scaled up.
"""

import csv
import io
import warnings

import numpy as np

import glru
from benchmarks.data import load
from benchmarks.timing import best_time, print_table

LAMBDAS = range(0, -11, -1)
PAPER = """dataset,0,-1,-2,-3,-4,-5,-6,-7,-8,-9,-10
arcene,86,91,93,92,92,92,93,96,96,96,97
dexter,42,43,44,44,44,44,44,44,43,43,43
"""
"""Number of trainings in Table 3 of Hanada et al., "Generalized Low-Rank Update", for log2(lam) = 0 to -10."""


def run() -> None:
    """Print the tables."""
    _paper_setting()
    _against_one_fit()
    _against_sklearn()


def _fresh(solution):
    """A copy without what an earlier run cached, but with the Gram matrix that the fit itself made."""
    return glru.solve(solution.problem, start=solution)


def _paper_setting() -> None:
    published = {row["dataset"]: row for row in csv.DictReader(io.StringIO(PAPER))}
    rows = []
    for name in ("arcene", "dexter"):
        X, y = load(name, "dense")
        for exponent in LAMBDAS:
            problem = glru.Problem(X, y, penalty=glru.L2(2.0**exponent))
            solution = glru.solve(problem)
            certified = glru.loocv(solution)
            ours = best_time(lambda: glru.loocv(_fresh(solution)), repeats=3)
            paper_method = glru.loocv(solution, method="glru")
            glru_time = best_time(lambda: glru.loocv(_fresh(solution), method="glru"), repeats=1)
            sample = np.random.default_rng(0).choice(len(y), 20, replace=False)
            naive, agree = _naive(solution, sample, certified)
            rows.append(
                [
                    name,
                    f"2^{exponent}",
                    str(certified.n_errors),
                    str(certified.n_trainings),
                    str(paper_method.n_trainings),
                    published[name][str(exponent)],
                    f"{ours * 1e3:.1f}",
                    f"{naive * len(y) / len(sample) / ours:.0f}",
                    f"{glru_time / ours:.1f}",
                    "yes" if agree and np.array_equal(certified.labels, paper_method.labels) else "NO",
                ]
            )
    header = ["data", "lam", "errors", "trainings", "glru", "paper", "ms", "naive/ours", "glru/ours", "same labels"]
    print_table("The paper's setting; naive on 20 random rows (seed 0), extrapolated", header, rows)


def _naive(solution, sample, certified) -> tuple[float, bool]:
    """Seconds of warm-started trainings for some rows, and whether their labels are the certified ones."""
    import time

    problem = solution.problem
    total, agree = 0.0, True
    for row in sample:
        weight = problem.sample_weight.copy()
        weight[row] = 0.0
        begin = time.perf_counter()
        model = glru.solve(problem.derive(sample_weight=weight), start=solution)
        total += time.perf_counter() - begin
        agree &= bool(np.sign(model.scores[row]) == certified.labels[row])
    return total, agree


def _against_one_fit() -> None:
    rows = []
    cases = [
        ("arcene", "dense", -5),
        ("dexter", "dense", -5),
        ("gisette_valid", "dense", -5),
        ("skin_nonskin", "dense", -10),
        ("ijcnn1", "none", -10),
        ("a9a", "none", -10),
        ("covtype_binary", "dense", -10),
        ("covtype_binary", "dense", -5),
    ]
    for name, normalisation, exponent in cases:
        X, y = load(name, normalisation)
        penalty = glru.L2(2.0**exponent)
        fit = best_time(lambda: glru.solve(glru.Problem(X, y, penalty=penalty)), repeats=3)
        solution = glru.solve(glru.Problem(X, y, penalty=penalty))
        ours = best_time(lambda: glru.loocv(_fresh(solution)), repeats=3)
        again = best_time(lambda: _fresh(solution), repeats=3)
        result = glru.loocv(solution)
        rows.append(
            [
                f"{name} {X.shape[0]} x {X.shape[1]}",
                f"2^{exponent}",
                f"{fit:.3f}",
                f"{ours - again:.3f}",
                f"{(ours - again) / fit:.2f}",
                str(result.n_trainings),
                ", ".join(f"{stage} {count}" for stage, count in result.decided_by.items()),
            ]
        )
        load.cache_clear()
    header = ["data", "lam", "fit s", "loocv s", "ratio", "trainings", "decided by"]
    print_table("Certified leave-one-out after the fit, against the fit", header, rows)


def _against_sklearn() -> None:
    from sklearn.datasets import load_breast_cancer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import LeaveOneOut, cross_val_predict

    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    times, scores = {}, {}
    for solver in ("lbfgs", "liblinear", "newton-cg", "newton-cholesky"):
        model = LogisticRegression(C=1.0, solver=solver, tol=1e-6 if solver != "lbfgs" else 1e-4)

        def brute(model=model, solver=solver):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scores[solver] = cross_val_predict(model, X, y, cv=LeaveOneOut(), method="decision_function")

        times[solver] = best_time(brute, repeats=2)
    fastest = min(times, key=times.__getitem__)

    def ours(width=None):
        problem = glru.Problem(X, y, penalty=glru.L2(1.0), fit_intercept=True, scaling="sum")
        return glru.loocv(problem, width=width)

    rows = []
    for what, width in (("labels", None), ("scores to 1e-6", 1e-6)):
        seconds = best_time(lambda width=width: ours(width), repeats=5)
        result = ours(width)
        same = bool(np.all(np.sign(scores["newton-cholesky"]) == result.labels))
        far = float(np.max(np.abs(scores["newton-cholesky"] - result.scores))) if width else np.nan
        rows.append(
            [
                what,
                f"{times[fastest]:.2f}",
                fastest,
                f"{seconds:.4f}",
                f"{times[fastest] / seconds:.0f}",
                str(same),
                f"{far:.1e}",
            ]
        )
    header = [
        "certified",
        "sklearn s",
        "its fastest solver",
        "glru s, fit included",
        "ratio",
        "same labels",
        "largest difference",
    ]
    print_table("breast_cancer, C = 1, intercept: cross_val_predict(LogisticRegression, LeaveOneOut())", header, rows)
