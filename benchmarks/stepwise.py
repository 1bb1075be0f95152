"""Stepwise selection: one certified elimination step against one fit, naive training and scikit-learn.

The paper's setting: standardised data, 90% of the rows to train, 10% to validate (its split is not published; seed 0
here), L2-regularised logistic regression without an intercept. Naive training is timed on a random sample of features and
scaled up. "glru" is the number of trainings of Algorithm 4, counted from its lower bounds and the certified errors.
"""

import time

import numpy as np

import glru
from benchmarks.data import folder, load
from benchmarks.timing import print_table
from glru.bounds import errors, margins
from glru.linalg import as_matrix
from glru.updates.columns import carried_columns

LAMBDAS = range(0, -11, -1)
PAPER = {
    "arcene": (7022, 3309, 1617, 3486, 7417, 760, 4378, 5737, 4748, 5621, 4893),
    "dexter": (9561, 535, 762, 1000, 1301, 1475, 1930, 2350, 2765, 10208, 10112),
}
"""Number of trainings in Table 4 of Hanada et al., "Generalized Low-Rank Update", for log2(lam) = 0 to -10."""

SAMPLE = 20


def run() -> None:
    """Print the tables."""
    if folder() is None:
        print("\nthe paper's setting and full paths: skipped; set GLRU_DATA to the folder with the datasets.")
    else:
        _first_step()
        _until_it_stops()
        _full_paths()
    _against_sklearn()


def split(name: str, normalisation: str = "dense", seed: int = 0):
    """Train and validation rows of a dataset."""
    X, y = load(name, normalisation)
    order = np.random.default_rng(seed).permutation(len(y))
    val, train = order[: len(y) // 10], order[len(y) // 10 :]
    return np.ascontiguousarray(X[train]), y[train], X[val], y[val]


def _first_step() -> None:
    rows = []
    for name in ("arcene", "dexter"):
        X, y, X_val, y_val = split(name)
        for exponent in LAMBDAS:
            penalty = glru.L2(2.0**exponent)
            fit = best = np.inf
            for _ in range(3):
                problem = glru.Problem(X, y, penalty=penalty)
                begin = time.perf_counter()
                solution = glru.solve(problem)
                fit = min(fit, time.perf_counter() - begin)
                result = glru.stepwise(problem, X_val=X_val, y_val=y_val, max_steps=1)
                best = min(best, result.path[0].seconds)
            step = result.path[0]
            naive, same = _naive(solution, X_val, y_val, step)
            rows.append(
                [
                    name,
                    f"2^{exponent}",
                    f"{result.start_value[0]:.0f} -> {step.value:.0f}",
                    str(step.n_trainings),
                    f"{fit * 1e3:.0f}",
                    f"{best * 1e3:.0f}",
                    f"{best / fit:.1f}",
                    f"{naive * problem.n_columns / best:.0f}",
                    "yes" if same else "NO",
                    str(_trainings_of_algorithm_4(solution, X_val, y_val, result)),
                    str(PAPER[name][-exponent]),
                ]
            )
    header = ["data", "lam", "errors", "trainings", "fit ms", "step ms", "step/fit"]
    header += ["naive/ours", "same errors", "glru", "paper"]
    print_table(f"First elimination; naive on {SAMPLE} random features (seed 0), extrapolated", header, rows)


def _naive(solution, X_val, y_val, step) -> tuple[float, bool]:
    """Seconds of a warm-started training a feature, and whether the errors lie within the certified bounds."""
    problem, same, total = solution.problem, True, 0.0
    for j in np.random.default_rng(0).choice(problem.n_columns, SAMPLE, replace=False):
        begin = time.perf_counter()
        changed = glru.RemoveColumns([j]).apply(problem)
        start = glru.Point(np.delete(solution.coef, j), 0.0, solution.dual)
        model = glru.solve(changed, start=start)
        total += time.perf_counter() - begin
        errors = np.sum(y_val * (np.delete(X_val, j, axis=1) @ model.coef) <= 0.0)
        same &= bool(step.lower[j] <= errors <= step.upper[j])
    return total / SAMPLE, same


def _trainings_of_algorithm_4(solution, X_val, y_val, result) -> int:
    """How many candidates Algorithm 4 trains: in ascending order of the lower bounds, until none can be better."""
    lower, upper = carried_columns(solution, as_matrix(X_val), np.arange(solution.problem.n_columns))
    wrong = errors(*margins(y_val[:, None], lower, upper))[0].sum(axis=0)
    most = result.path[0].upper
    best, count = result.start_value[0], 0
    for j in np.argsort(wrong, kind="stable"):
        if wrong[j] >= best:
            break
        count += 1
        best = min(best, most[j])
    return count


def _until_it_stops() -> None:
    X, y, X_val, y_val = split("arcene")
    problem = glru.Problem(X, y, penalty=glru.L2(2.0**-5))
    rows = []
    for criterion in ("error", "log_loss"):
        begin = time.perf_counter()
        result = glru.stepwise(problem, X_val=X_val, y_val=y_val, criterion=criterion, max_steps=100)
        seconds = time.perf_counter() - begin
        last = result.path[-1]
        values = f"{result.start_value[1]:.4g} -> {last.value:.4g}"
        stopped = "yes" if last.action == "stop" else "no (100 steps)"
        rows.append(
            [
                criterion,
                str(len(result.path)),
                stopped,
                values,
                str(result.n_trainings),
                str(result.certified),
                f"{seconds:.1f}",
            ]
        )
    header = ["criterion", "steps", "stopped by itself", "value", "trainings", "certified", "seconds"]
    print_table("Backward elimination on arcene, lam = 2^-5", header, rows)


def _full_paths() -> None:
    rows = []
    for name in ("spambase", "madelon"):
        X, y, X_val, y_val = split(name)
        problem = glru.Problem(X, y, penalty=glru.L2(2.0**-5))
        times, paths = {}, {}
        glru.stepwise(problem, X_val=X_val, y_val=y_val, max_steps=1)  # what is compiled on first use
        for method in ("certified", "naive"):
            begin = time.perf_counter()
            result = glru.stepwise(problem, X_val=X_val, y_val=y_val, method=method, tol=1e-9)
            times[method] = time.perf_counter() - begin
            paths[method] = [step.columns for step in result.path]
            if method == "certified":
                trainings = result.n_trainings
        same = "yes" if paths["certified"] == paths["naive"] else "NO"
        rows.append(
            [
                f"{name} {X.shape[0]} x {X.shape[1]}",
                str(len(paths["certified"])),
                str(trainings),
                f"{times['certified']:.2f}",
                f"{times['naive']:.2f}",
                f"{times['naive'] / times['certified']:.0f}",
                same,
            ]
        )
    header = ["data", "steps", "trainings", "certified s", "naive s", "ratio", "same path"]
    print_table("Backward elimination until it stops, lam = 2^-5", header, rows)


def _against_sklearn() -> None:
    from sklearn.datasets import load_breast_cancer, make_classification
    from sklearn.feature_selection import SequentialFeatureSelector
    from sklearn.linear_model import LogisticRegression

    data = {"breast_cancer": load_breast_cancer(return_X_y=True)}
    for n, d in ((300, 15), (5000, 20)):
        data[f"{n} x {d}"] = make_classification(n, d, n_informative=d // 2, random_state=0)
    rows = []
    for name, (X, y) in data.items():
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        for direction in ("forward", "backward"):
            for scoring in ("accuracy", "neg_log_loss"):
                options = {"direction": direction, "scoring": scoring, "cv": 5, "n_features_to_select": "auto"}
                times = {}
                for solver in ("lbfgs", "newton-cholesky"):
                    selector = SequentialFeatureSelector(LogisticRegression(solver=solver, tol=1e-6), **options)
                    begin = time.process_time()
                    chosen = selector.fit(X, y).get_support()
                    times[solver] = time.process_time() - begin
                ours = np.inf
                for _ in range(3):
                    begin = time.process_time()
                    found = glru.StepwiseSelector(LogisticRegression(), **options).fit(X, y)
                    ours = min(ours, time.process_time() - begin)
                fastest = min(times, key=times.__getitem__)
                same = "yes" if np.array_equal(found.support_, chosen) else "NO"
                ratio = f"{times[fastest] / ours:.0f}"
                rows.append([name, direction, scoring, f"{times[fastest]:.2f}", fastest, f"{ours:.3f}", ratio, same])
    header = ["data", "direction", "scoring", "sklearn s", "its fastest solver", "glru s", "ratio", "same features"]
    print_table("SequentialFeatureSelector(cv=5), half of the features; processor time", header, rows)
