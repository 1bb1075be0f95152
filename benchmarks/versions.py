"""Two versions of glru side by side: the same questions in alternation, as ratios of the shortest times.

``GLRU_OTHER=../older/src python -m benchmarks versions`` compares this checkout with the sources in that folder. Each version runs in a
process of its own and the two take turns, so that a busy moment of the machine hits both. Only public names that both versions have are used.
"""

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

ROUNDS = 7  # the shortest of this many turns counts
TURN = 0.15  # seconds of work per turn: long enough for the clock, short enough for many turns
SLOWER = 1.1  # ratios above this are marked

Question = Callable[[], object]


def _binary(n: int, d: int, seed: int = 0, density: float = 1.0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    if density < 1:
        X = sp.random(n, d, density, random_state=seed, format="csr")
        w = rng.normal(size=d)
        z = X @ w
        return X, z > np.median(z)
    X = rng.normal(size=(n, d))
    return X, X[:, 0] + rng.normal(size=n) > 0


def questions() -> dict[str, Question]:
    """Each question as a function without arguments; data and first trainings are made here, outside the clock."""
    import glru

    found: dict[str, Question] = {}
    labels = labels_only(glru.loocv)
    shapes = [(100, 5, 1.0), (600, 20, 1.0), (5000, 30, 1.0), (60, 500, 1.0), (100, 4000, 1.0), (300, 200, 0.05)]
    for n, d, density in shapes:
        X, y = _binary(n, d, density=density)
        for intercept in (False, True):
            name = f"{n} x {d}{' sparse' if density < 1 else ''}{', intercept' if intercept else ''}"
            problem = glru.Problem(X, y, penalty=glru.L2(0.1), fit_intercept=intercept)
            solution = glru.solve(problem)
            found[f"solve, {name}"] = lambda p=problem: glru.solve(p)
            found[f"leave-one-out labels, {name}"] = lambda s=solution: glru.loocv(s, **labels)
            found[f"after one row, {name}"] = lambda s=solution, Q=X[:5]: glru.after(
                s, glru.RemoveRows([3])
            ).score_bounds(Q)
        squared = glru.Problem(X, np.where(y, 1.0, -1.0), loss=glru.Squared(), penalty=glru.L2(0.1))
        found[f"solve, squared loss, {n} x {d}"] = lambda p=squared: glru.solve(p)
        half = n // 2
        fitted = glru.Problem(X[:half], y[:half], penalty=glru.L2(0.1))
        if d <= 500:
            found[f"two eliminations, {n} x {d}"] = lambda p=fitted, A=X[half:], b=y[half:]: glru.stepwise(
                p, X_val=A, y_val=b, max_steps=2
            )
    X, y = _binary(100, 5)
    found["Problem, 100 x 5"] = lambda: glru.Problem(X, y)
    small = glru.solve(glru.Problem(X, y, penalty=glru.L2(0.1)))
    found["carried bound, 100 x 5"] = lambda: glru.after(
        small, glru.RemoveRows([3]), candidate="carry", bound="primal"
    ).score_bounds(X[:1])
    W, v = _binary(60, 500)
    found["solve, L1, 60 x 500"] = lambda: glru.solve(glru.Problem(W, v, penalty=glru.L1(0.05)))
    hinge = glru.Problem(X, y, loss=glru.Hinge(), penalty=glru.L2(0.1))
    found["leave-one-out labels, hinge, 100 x 5"] = lambda: glru.loocv(hinge, **labels)
    from sklearn.linear_model import LogisticRegression, Ridge

    for n, d in [(600, 20), (100, 4000)]:
        A, b = _binary(n, d)
        found[f"5 folds, LogisticRegression, {n} x {d}"] = lambda A=A, b=b: glru.cross_val_predict(
            LogisticRegression(), A, b, cv=5
        )
        found[f"leave-one-out, Ridge, {n} x {d}"] = lambda A=A, b=b: glru.loocv(Ridge(), A, np.where(b, 1.0, -1.0))
    return found


def labels_only(function: Callable[..., object]) -> dict[str, Any]:
    """The option with which this version's ``loocv`` decides labels and nothing more; older versions need none."""
    import glru

    try:
        function(glru.Problem([[1.0], [-2.0], [3.0]], [1, -1, 1]), width="labels")
    except (TypeError, ValueError):
        return {}
    return {"width": "labels"}


def work() -> None:
    """Answer, line by line, with the shortest time of one turn of the question that was named."""
    warnings.simplefilter("ignore")
    known = questions()
    print(json.dumps(list(known)), flush=True)
    for line in sys.stdin:
        question = known[json.loads(line)]
        best, begin = np.inf, time.perf_counter()
        while time.perf_counter() - begin < TURN or not np.isfinite(best):
            start = time.perf_counter()
            question()
            best = min(best, time.perf_counter() - start)
        print(json.dumps(best), flush=True)


def _start(source: Path) -> subprocess.Popen[str]:
    root = Path(__file__).parent.parent
    path = os.pathsep.join([str(source), str(root), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", "from benchmarks.versions import work; work()"]
    return subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _ask(process: subprocess.Popen[str], name: str) -> float:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(name) + "\n")
    process.stdin.flush()
    return float(json.loads(process.stdout.readline()))


def run() -> None:
    """Print this version's time over the other's for every question."""
    from benchmarks.timing import print_table

    other = os.environ.get("GLRU_OTHER")
    if other is None:
        print("\nversions: skipped; set GLRU_OTHER to the src folder of another version.")
        return
    workers = [_start(Path(other)), _start(Path(__file__).parent.parent / "src")]
    names = [json.loads(worker.stdout.readline()) for worker in workers]  # type: ignore[union-attr]
    best = {name: [np.inf, np.inf] for name in names[1] if name in names[0]}
    for _ in range(ROUNDS):
        for name, times in best.items():
            for k, worker in enumerate(workers):
                times[k] = min(times[k], _ask(worker, name))
    for worker in workers:
        worker.stdin.close()  # type: ignore[union-attr]
        worker.wait()
    rows = [
        [name, f"{1e3 * old:.3f}", f"{1e3 * new:.3f}", f"{new / old:.2f}", "slower" if new > SLOWER * old else ""]
        for name, (old, new) in best.items()
    ]
    ratios = np.array([new / old for old, new in best.values()])
    print_table("This version beside the other", ["question", "other, ms", "this, ms", "ratio", ""], rows)
    print(f"median {np.median(ratios):.2f}, worst {ratios.max():.2f}, above {SLOWER}: {int((ratios > SLOWER).sum())}")
