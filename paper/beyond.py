"""Beyond the paper: the time of exact leave-one-out by every method, against the time of one fit."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np

from glru.linalg import calm_blas
from glru.model_selection.loocv import leave_one_out
from glru.solvers import solve
from paper.configuration import Method
from paper.loocv import Carried, retrainings
from paper.sources import Data
from paper.timing import timed, trainings


@final
@dataclass(frozen=True)
class Settings:
    """The numbers of a run: as for leave-one-out, at one strength of the penalty."""

    log2_lam: int
    tol: float
    seed: int
    repeats: int
    full: int
    sample: int


def measure(data: Data, methods: Sequence[Method], settings: Settings) -> Iterator[dict[str, Any]]:
    """One result: seconds of one fit, and of leave-one-out by each method."""
    leave_one_out(data.problem(settings.log2_lam))  # compiles
    fit, solution = timed(lambda: solve(data.problem(settings.log2_lam), tol=settings.tol), settings.repeats)
    size = None if data.y.size <= settings.full else settings.sample
    found: dict[str, Any] = {"log2_lam": settings.log2_lam, "fit_seconds": fit, "methods": {}}
    for method in methods:
        with calm_blas(solution.problem.work):
            if method.method == "certified":
                seconds, result = timed(lambda: leave_one_out(solution), settings.repeats)
                facts: dict[str, Any] = {"seconds": seconds, "trainings": result.n_trainings, "extrapolated": False}
                facts["errors"] = [result.errors_lower, result.errors_upper]
            elif method.method == "glru":
                carried = Carried.of(solution, method.bound)
                done = carried.stopped_early(size, settings.seed)
                facts = done.facts | {"seconds": carried.seconds + done.total}
            elif method.method == "naive":
                done = retrainings(solution, [np.arange(data.y.size)], size, settings.seed, settings.tol)[0]
                facts = done.facts | {"seconds": done.total}
            else:
                facts = _brute_force(data, method, settings)
        found["methods"][method.key] = facts
    yield found


def _brute_force(data: Data, method: Method, settings: Settings) -> dict[str, Any]:
    """scikit-learn's own fits without each row, by the solver that is fastest on all rows."""
    from sklearn.linear_model import LogisticRegression

    n_rows, n_columns = data.X.shape
    solvers = method.tall if n_rows >= n_columns else method.wide

    def model(solver: str, count: int) -> Any:
        strength = 1.0 / (2.0**settings.log2_lam * count)
        return LogisticRegression(C=strength, fit_intercept=False, tol=method.tol, solver=solver, max_iter=10_000)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        times = {solver: timed(partial(model(solver, n_rows).fit, data.X, data.y))[0] for solver in solvers}
        fastest = min(times, key=times.__getitem__)

        def train(row: int) -> float:
            kept = np.delete(np.arange(n_rows), row)
            fitted = model(fastest, n_rows - 1).fit(data.X[kept], data.y[kept])
            return float(fitted.decision_function(data.X[[row]])[0])

        done = trainings(np.arange(n_rows), settings.sample, settings.seed, train)
    return done.facts | {"seconds": done.total, "solver": fastest}
