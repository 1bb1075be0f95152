"""Exact leave-one-out cross-validation: against one fit, against a warm-started naive loop, against scikit-learn.

All ratios come from one run. "after the fit" is the time of ``glru.loocv(solution)``, the library's own fit being
timed beside it. The naive loop is timed on a random sample of rows (its size is printed) and scaled up; the paper's
Algorithm 2 is timed for three strengths.
"""

import csv
import io
import subprocess
import sys
import time
import warnings

import numpy as np

import glru
from benchmarks.data import folder, load
from benchmarks.timing import best_time, print_table
from glru.bounds import is_decided
from glru.updates.carried_rows import bound_carried

LAMBDAS = range(0, -11, -1)
TIMED = (0, -5, -10)
"""Strengths for which all trainings of the paper's Algorithm 2 are done; they take minutes."""

PAPER = """dataset,0,-1,-2,-3,-4,-5,-6,-7,-8,-9,-10
arcene,86,91,93,92,92,92,93,96,96,96,97
dexter,42,43,44,44,44,44,44,44,43,43,43
"""
"""Number of trainings in Table 3 of Hanada et al., "Generalized Low-Rank Update", for log2(lam) = 0 to -10."""


def run() -> None:
    """Print the tables."""
    if folder() is None:
        print(
            "\nthe paper's setting, against one fit, sparse data: skipped; set GLRU_DATA to the folder with the datasets."
        )
    else:
        _paper_setting()
        _against_one_fit()
        _sparse_and_wide()
    _by_size()
    _against_sklearn()


def _timed(X, y, penalty, repeats: int = 5, enough: float = 20.0):
    """The shortest times of a fit from nothing and of the certified leave-one-out after it, and the last result."""
    fit = after = np.inf
    begin = time.perf_counter()
    for _ in range(repeats):
        first = time.perf_counter()
        solution = glru.solve(glru.Problem(X, y, penalty=penalty))
        second = time.perf_counter()
        result = glru.loocv(solution, width="labels")
        third = time.perf_counter()
        fit, after = min(fit, second - first), min(after, third - second)
        if third - begin > enough:
            break
    return fit, after, result


def _paper_setting() -> None:
    published = {row["dataset"]: row for row in csv.DictReader(io.StringIO(PAPER))}
    rows = []
    for name in ("arcene", "dexter"):
        X, y = load(name, "dense")
        for exponent in LAMBDAS:
            problem = glru.Problem(X, y, penalty=glru.L2(2.0**exponent))
            _, ours, certified = _timed(X, y, problem.penalty)
            solution = glru.solve(problem)
            # Algorithm 2 trains the rows that the carried bound leaves open.
            lower, upper = bound_carried(solution, "primal")
            trainings = int(np.sum(~is_decided(lower, upper)))
            sample = np.random.default_rng(0).choice(len(y), 20, replace=False)
            naive, agree = _naive(solution, sample, certified)
            glru_ratio = "-"
            if exponent in TIMED:
                begin = time.perf_counter()
                paper_method = glru.loocv(solution, method="glru")
                glru_ratio = f"{(time.perf_counter() - begin) / ours:.0f}"
                agree &= np.array_equal(certified.bounds.signs, paper_method.bounds.signs)
                agree &= paper_method.n_trainings == trainings
            rows.append(
                [
                    name,
                    f"2^{exponent}",
                    str(certified.n_errors),
                    str(certified.n_trainings),
                    str(trainings),
                    published[name][str(exponent)],
                    f"{ours * 1e3:.1f}",
                    f"{naive * len(y) / len(sample) / ours:.0f}",
                    glru_ratio,
                    "yes" if agree else "NO",
                ]
            )
    header = ["data", "lam", "errors", "trainings", "glru", "paper", "ms", "naive/ours", "glru/ours", "same labels"]
    print_table("The paper's setting; naive on 20 random rows (seed 0), extrapolated", header, rows)


def _naive(solution, sample, certified) -> tuple[float, bool]:
    """Seconds of warm-started trainings for some rows, and whether their labels are the certified ones."""
    problem = solution.problem
    total, agree = 0.0, True
    for row in sample:
        weight = problem.sample_weight.copy()
        weight[row] = 0.0
        begin = time.perf_counter()
        model = glru.solve(problem.derive(sample_weight=weight), start=solution)
        total += time.perf_counter() - begin
        agree &= bool(np.sign(model.scores[row]) == certified.bounds.signs[row])
    return total, agree


def _against_one_fit() -> None:
    wide = [("arcene", "dense"), ("dexter", "dense"), ("gisette_valid", "dense")]
    tall = [("skin_nonskin", "dense"), ("ijcnn1", "none"), ("a9a", "none"), ("covtype_binary", "dense")]
    rows = []
    for name, normalisation in wide + tall:
        X, y = load(name, normalisation)
        rows += [[name, *_ratio(X, y, exponent)] for exponent in (0, -5, -10)]
        load.cache_clear()
    X, y = synthetic(6000, 4955)
    rows.append(["synthetic", *_ratio(X, y, -5, repeats=1)])
    print_table("Certified leave-one-out after the fit, against the fit", HEADER, rows)


HEADER = ["data", "size", "lam", "fit s", "loocv s", "ratio", "trainings", "decided by"]


def _ratio(X, y, exponent: int, repeats: int = 5) -> list[str]:
    fit, after, result = _timed(X, y, glru.L2(2.0**exponent), repeats)
    decided = ", ".join(f"{stage} {count}" for stage, count in result.decided_by.items())
    size = f"{X.shape[0]} x {X.shape[1]}"
    times = [f"{fit:.3f}", f"{after:.3f}", f"{after / fit:.2f}"]
    return [size, f"2^{exponent}", *times, str(result.n_trainings), decided]


def _sparse_and_wide() -> None:
    """Sparse data with far more columns than rows, never made dense: each in a process of its own, for its memory."""
    rows = []
    for name in ("dorothea", "news20mc"):
        run = subprocess.run([sys.executable, "-c", SPARSE, name], capture_output=True, text=True, check=True)
        rows.append([name, *run.stdout.strip().split("\t")])
    print_table("Sparse wide data, peak memory of the process", [*HEADER, "GB"], rows)


SPARSE = """
import sys
from benchmarks.data import folder, load
from benchmarks.loocv import _ratio
from benchmarks.timing import peak_memory
X, y = load(sys.argv[1], "sparse")
print("\\t".join([*_ratio(X, y, -5, repeats=1), f"{peak_memory() / 1e9:.2f}"]))
"""


def _by_size() -> None:
    """Tall data of growing length: the price of a row, and the memory beside the data."""
    rows = []
    for n in (100_000, 200_000, 400_000, 800_000):
        run = subprocess.run([sys.executable, "-c", GROWING, str(n)], capture_output=True, text=True, check=True)
        rows.append([f"{n} x 20", *run.stdout.strip().split("\t")])
    header = ["data", "fit s", "loocv s", "ratio", "loocv ns a row", "peak memory / data"]
    print_table("Tall synthetic data, lam = 2^-10", header, rows)


GROWING = """
import sys, glru
from benchmarks.loocv import _timed, synthetic
from benchmarks.timing import peak_memory
X, y = synthetic(20000, 20)
_timed(X, y, glru.L2(2.0**-10))
before = peak_memory()
X, y = synthetic(int(sys.argv[1]), 20)
fit, after, _ = _timed(X, y, glru.L2(2.0**-10))
memory = (peak_memory() - before) / X.nbytes
print(f"{fit:.3f}\\t{after:.3f}\\t{after / fit:.2f}\\t{after / len(y) * 1e9:.0f}\\t{memory:.2f}")
"""


def synthetic(n: int, d: int):
    """Standard normal data, labels from a linear model and noise."""
    random = np.random.default_rng(0)
    X = random.standard_normal((n, d))
    score = X @ random.standard_normal(d) / np.sqrt(d) + random.standard_normal(n)
    return X, np.where(score > 0.0, 1.0, -1.0)


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

    def ours(width):
        problem = glru.Problem(X, y, penalty=glru.L2(1.0), fit_intercept=True, scaling="sum")
        return glru.loocv(problem, width=width)

    rows = []
    for what, width in (("labels", "labels"), ("scores to 1e-6", 1e-6)):
        seconds = best_time(lambda width=width: ours(width), repeats=5)
        result = ours(width)
        same = bool(np.all(np.sign(scores["newton-cholesky"]) == result.bounds.signs))
        far = float(np.max(np.abs(scores["newton-cholesky"] - result.scores))) if width != "labels" else np.nan
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
