"""Time to a relative duality gap of 1e-6, L2 logistic regression, against every solver of scikit-learn.

Each rival runs at the loosest ``tol`` (in steps of a half decade) whose model reaches the same gap; only that
run counts. Our time includes the validation of the input and the final certificate, as theirs includes validation.
"""

import warnings

import glru
from benchmarks.data import load
from benchmarks.timing import best_time, print_table
from glru.solution import solution_at

DATASETS = [
    ("arcene", "dense"),
    ("dexter", "dense"),
    ("a9a", "none"),
    ("w8a", "none"),
    ("covtype_binary", "dense"),
    ("dorothea", "sparse"),
    ("news20mc", "sparse"),
]
LOG2_LAMBDAS = [0, -5, -10]
TARGET = 1e-6
RIVALS = {
    "liblinear primal": {"solver": "liblinear"},
    "liblinear dual": {"solver": "liblinear", "dual": True},
    "lbfgs": {"solver": "lbfgs"},
    "newton-cg": {"solver": "newton-cg"},
    "newton-cholesky": {"solver": "newton-cholesky"},
}
PATIENCE = 20.0
"""A rival that needs longer than this many seconds for a run is out."""


def rival_time(X, y, problem, lam, options):
    """Seconds of a rival at its loosest sufficient ``tol``; None where it has none."""
    from sklearn.linear_model import LogisticRegression

    if options["solver"] == "newton-cholesky" and X.shape[1] > 5000:
        return None  # it forms a d x d matrix
    for half_decade in range(1, 21):
        model = LogisticRegression(
            C=1.0 / (X.shape[0] * lam), tol=10.0 ** (-half_decade / 2), fit_intercept=False, max_iter=10_000, **options
        )
        once = best_time(lambda model=model: model.fit(X, y), repeats=1)
        reached = solution_at(problem, glru.Point(model.coef_[0]), 0, "converged", "").relative_gap
        if reached <= TARGET:
            return min(once, best_time(lambda model=model: model.fit(X, y), repeats=2))
        if once > PATIENCE:
            return None
    return None


def run() -> None:
    """Print the table."""
    rows = []
    for name, normalisation in DATASETS:
        X, y = load(name, normalisation)
        for exponent in LOG2_LAMBDAS:
            lam = 2.0**exponent
            problem = glru.Problem(X, y, penalty=glru.L2(lam))
            ours = best_time(lambda: glru.solve(glru.Problem(X, y, penalty=glru.L2(lam)), tol=TARGET), repeats=5)
            solution = glru.solve(problem, tol=TARGET)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                times = {rival: rival_time(X, y, problem, lam, options) for rival, options in RIVALS.items()}
            times = {rival: seconds for rival, seconds in times.items() if seconds is not None}
            fastest = min(times, key=times.__getitem__)
            rows.append(
                [
                    name,
                    f"2^{exponent}",
                    f"{ours:.4f}",
                    solution.solver,
                    f"{solution.relative_gap:.0e}",
                    f"{times[fastest]:.4f}",
                    fastest,
                    f"{ours / times[fastest]:.2f}",
                ]
            )
            print(".", end="", flush=True)
        load.cache_clear()
    header = ["data", "lam", "glru s", "solver", "gap", "rival s", "fastest rival", "ratio"]
    print_table("Training to a relative gap of 1e-6, L2 logistic, no intercept", header, rows)
