"""No question may cost more than training its cases: leave-one-out and folds against trainings without proof, worst line first.

``python -m benchmarks floor [--quick] [--only TEXT] [--limit SECONDS]``

A line is a model and a generated kind of data. Times are processor time of one thread; each question is asked in turn with its rival, and the shortest of some runs counts.

labels, scores   ``loocv(method="naive")`` (a warm-started training for every row, to a gap of 1e-6, nothing proven) / ``loocv(width="labels")``, ``loocv()``.
folds            the trainings of five folds to a gap of 1e-6 by ``solve`` / ``cross_val_predict``. Of problems only, not of pipelines.

Above 1 is faster than training; ``trained`` and ``open`` are rows under "labels". A question that takes longer than the limit is cut off, ">" or "<" before its ratio.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

import glru
from benchmarks.timing import print_table

LIMIT = 20.0


def _net(n: int) -> Any:
    return glru.ElasticNet(0.5 / n, 1.0 / n)


PROBLEMS: dict[str, tuple[str, Callable[[int], Any], Callable[[], Any]]] = {
    "logistic": ("labels", lambda n: glru.L2(1.0 / n), glru.Logistic),
    "hinge": ("labels", lambda n: glru.L2(1.0 / n), glru.Hinge),
    "squared hinge": ("labels", lambda n: glru.L2(1.0 / n), glru.SquaredHinge),
    "smoothed hinge": ("labels", lambda n: glru.L2(1.0 / n), glru.SmoothedHinge),
    "huber": ("numbers", lambda n: glru.L2(1.0 / n), glru.Huber),
    "poisson": ("counts", lambda n: glru.L2(1.0 / n), glru.Poisson),
    "net logistic": ("labels", _net, glru.Logistic),
    "net smoothed hinge": ("labels", _net, glru.SmoothedHinge),
    "net squared hinge": ("labels", _net, glru.SquaredHinge),
    "net huber": ("numbers", _net, glru.Huber),
    "net squared": ("numbers", _net, glru.Squared),
    "multinomial": ("classes", lambda n: glru.L2(1.0 / n), glru.Multinomial),
}
"""Models of the library: the kind of targets, the penalty of a number of rows, and the loss."""

PIPELINES: dict[str, tuple[str, Callable[[], Any]]] = {
    "scaler + LogisticRegression": ("labels", lambda: LogisticRegression(max_iter=1000)),
    "scaler + LinearSVC(hinge)": ("labels", lambda: LinearSVC(loss="hinge", max_iter=10_000)),
    "scaler + LinearSVC": ("labels", lambda: LinearSVC(max_iter=10_000)),
    "scaler + ElasticNet": ("numbers", lambda: ElasticNet(alpha=0.1)),
    "scaler + Lasso": ("numbers", lambda: Lasso(alpha=0.1)),
}


def _normal(rng: Any, n: int, d: int) -> Any:
    return rng.standard_normal((n, d))


def _tied(rng: Any, n: int, d: int) -> Any:
    X = rng.standard_normal((n, d))
    X[n // 2 :] = X[: n - n // 2]
    return X


def _dummies(rng: Any, n: int, d: int) -> Any:
    codes = rng.integers(0, 4, (n, d // 4 + 1))
    return (codes[:, :, None] == np.arange(4)).reshape(n, -1)[:, :d].astype(np.float64)


KINDS: dict[str, tuple[int, int, Callable[[Any, int, int], Any]]] = {
    "60 x 4": (60, 4, _normal),
    "300 x 12": (300, 12, _normal),
    "300 x 12 units": (300, 12, lambda rng, n, d: _normal(rng, n, d) * 10.0 ** rng.uniform(-2, 2, d)),
    "300 x 12 dummies": (300, 12, _dummies),
    "60 x 300": (60, 300, _normal),
    "60 x 300 units": (60, 300, lambda rng, n, d: _normal(rng, n, d) * 10.0 ** rng.uniform(-2, 2, d)),
    "60 x 300 tied": (60, 300, _tied),
    "200 x 90 heavy": (200, 90, lambda rng, n, d: rng.standard_t(2, (n, d))),
    "200 x 90 correlated": (200, 90, lambda rng, n, d: _normal(rng, n, d) + 3.0 * _normal(rng, n, 1)),
    "200 x 90 tied": (200, 90, _tied),
}
QUICK = ("60 x 4", "300 x 12", "60 x 300", "60 x 300 tied", "200 x 90 heavy")


def make_data(kind: str, targets: str) -> tuple[Any, Any]:
    """The rows of a kind, and their targets."""
    n, d, make = KINDS[kind]
    rng = np.random.default_rng(sum(map(ord, kind)))
    X = make(rng, n, d)
    spread = np.where(X.std(axis=0) > 0.0, X.std(axis=0), 1.0)
    z = ((X / spread) @ rng.standard_normal(d)) / np.sqrt(d) + rng.standard_normal(n)
    if targets == "numbers":
        return X, z
    if targets == "counts":
        return X, rng.poisson(np.exp(0.5 * np.clip(z, -4.0, 4.0))).astype(np.float64)
    return X, np.digitize(z, [-0.7, 0.7]) if targets == "classes" else np.where(z > np.median(z), 1.0, -1.0)


def compare(questions: dict[str, Callable[[], Any]], limit: float, repeats: int = 5) -> dict[str, tuple[float, Any]]:
    """The shortest time of each question, asked in turn, and its answer, None where it was cut off."""
    found: dict[str, tuple[float, Any]] = dict.fromkeys(questions, (np.inf, None))
    for k in range(repeats):
        for name, ask in questions.items():
            # The first run may compile kernels.
            if k > 0 and (found[name][1] is None or (k > 1 and found[name][0] * repeats > 0.2 * limit)):
                continue
            begin, started = time.process_time(), time.perf_counter()
            answer = ask()
            if time.perf_counter() - started > limit:
                answer = None
            found[name] = (min(found[name][0], time.process_time() - begin), answer)
    return found


def measure(model: str, kind: str, limit: float) -> list[Any]:
    """One line: the ratios, and the rows that were trained or stay open."""
    if model in PROBLEMS:
        targets, penalty, loss = PROBLEMS[model]
        X, y = make_data(kind, targets)
        options = {"loss": loss(), "penalty": penalty(len(X)), "fit_intercept": True}

        def ask(**how: Any) -> Any:
            return glru.loocv(glru.Problem(X, y, **options), max_seconds=limit, **how)

        def train_folds() -> bool:
            problem = glru.Problem(X, y, **options)
            whole = glru.solve(problem)
            for _, test in KFold(5).split(X):
                glru.solve(problem.without(test), start=whole.point)
            return True

        def folds() -> Any:
            width = {} if targets in ("numbers", "counts") else {"width": "labels"}
            return glru.cross_val_predict(glru.Problem(X, y, **options), cv=KFold(5), max_seconds=limit, **width)

        more = {"train": train_folds, "folds": folds}
    else:
        targets, make = PIPELINES[model]
        X, y = make_data(kind, targets)
        pipeline, more = make_pipeline(StandardScaler(), make()), {}

        def ask(**how: Any) -> Any:
            return glru.loocv(pipeline, X, y, max_seconds=limit, **how)

    numbers = targets in ("numbers", "counts")
    labels = {} if numbers else {"width": "labels"}
    questions = {"naive": lambda: ask(method="naive"), "labels": lambda: ask(**labels)}
    if not numbers:
        questions["scores"] = lambda: ask()
    found = compare(questions | more, limit)

    def ratio(rival: str, ours: str) -> tuple[float, str]:
        if ours not in found:
            return np.inf, ""
        (theirs, known), (mine, answer) = found[rival], found[ours]
        cut = (
            "?"
            if known is answer is None and rival == "naive"
            else ""
            if answer is not None or rival != "naive"
            else "<"
        )
        cut = ">" if known is None and answer is not None and rival == "naive" else cut
        return theirs / mine, f"{cut}{theirs / mine:.2f}"

    result = found["labels"][1]
    ratios = [ratio("naive", "labels"), ratio("naive", "scores"), ratio("train", "folds")]
    shown = [text for _, text in ratios]
    counts = (
        ["-", "-"] if result is None else [str(result.n_trainings), str(int(np.sum(~result.results.bounds.decided)))]
    )
    return [min(value for value, _ in ratios), model, kind, f"{1e3 * found['naive'][0]:.0f}", *shown, *counts]


def run(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="benchmarks floor")
    parser.add_argument("--quick", action="store_true", help="five kinds of data")
    parser.add_argument("--only", default="", help="lines that hold this text")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of a question")
    options = parser.parse_args(arguments or [])
    lines = []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in QUICK if options.quick else KINDS:
            for model in (*PROBLEMS, *PIPELINES):
                if options.only in f"{model} {kind}":
                    lines.append(measure(model, kind, options.limit))
                    print(*lines[-1][1:], flush=True)
    header = ("model", "data", "naive ms", "labels", "scores", "folds", "trained", "open")
    print_table(
        "speed against trainings without proof", header, [line[1:] for line in sorted(lines, key=lambda x: x[0])]
    )
