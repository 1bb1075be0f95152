"""Data on a GPU: fit and certified leave-one-out at eleven strengths, and a first elimination, at gisette's size.

Needs PyTorch with a GPU. ``GLRU_DEVICE_HOST=1`` compares the labels with the same run on the host, which takes minutes.
"""

import os
import time

import numpy as np

import glru
from benchmarks.loocv import synthetic
from benchmarks.timing import print_table
from glru.linalg.factor import cholesky, solve_upper
from glru.metric.columns import DeviceMetric
from glru.updates.gradients import Gradients

N, D, QUERIES = 6000, 4955, 1000
LAMS = [2.0**-k for k in range(11)]


def run() -> None:
    """Print the tables, or why there are none."""
    try:
        import torch
    except ImportError:
        print("\ndevice: skipped; PyTorch is not installed.")
        return
    if not torch.cuda.is_available():
        print("\ndevice: skipped; PyTorch sees no GPU.")
        return
    print(f"\n{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    X, y = synthetic(N + QUERIES, D)
    on = torch.asarray(X, device="cuda")
    problem = glru.Problem(on[:N], y[:N])
    peak = _peak(torch)
    _loocv(torch, problem.derive(penalty=glru.L2(1.0)))
    _stages(torch, problem, peak)
    found = _path(torch, problem, peak)
    _elimination(torch, problem, on[N:], y[N:], peak)
    _tall(torch)
    _classes(torch, peak)
    if os.environ.get("GLRU_DEVICE_HOST") == "1":
        _compare(X, y, found)


def _timed(torch, work):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    return result, time.perf_counter() - begin


def _peak(torch) -> float:
    """Operations a second of a large float64 product."""
    A = torch.randn(8192, 8192, dtype=torch.float64, device="cuda")
    A @ A
    return 2 * 8192**3 / min(_timed(torch, lambda: A @ A)[1] for _ in range(5))


def _stages(torch, problem, peak) -> None:
    """What a step and a certificate are made of, each by itself."""
    curvatures = np.full(N, 0.2 / N)
    at = problem.derive(penalty=glru.L2(0.1))
    matrix = at.hessian(curvatures)
    factor = cholesky(matrix)
    unit = torch.eye(D, dtype=torch.float64, device="cuda")
    inverse = solve_upper(factor, unit)
    metric = DeviceMetric(matrix, at.fit_intercept, N, 0.1)
    models = torch.randn(D, 1000, dtype=torch.float64, device="cuda") / D
    gradients = Gradients(at, metric, glru.Point(np.zeros(D)), 0.0)
    stages = [
        ("Hessian", lambda: at.hessian(curvatures), 2 * N * D * D),
        ("Cholesky", lambda: cholesky(matrix), D**3 / 3),
        ("inverse factor", lambda: solve_upper(factor, unit), D**3),
        ("both residuals", lambda: metric._judge(N, matrix, factor, inverse), 4 * D**3),
        ("norms of all rows", lambda: metric.norms(at.matrix), 2 * N * D * D),
        ("gradients of 1000 models", lambda: gradients.at(models), 1000 * (4 * N * D + 2 * D * D)),
    ]
    rows = []
    for name, work, operations in stages:
        work()
        seconds = min(_timed(torch, work)[1] for _ in range(5))
        rows.append(
            [name, f"{1e3 * seconds:.1f}", f"{operations / seconds / 1e12:.1f}", f"{operations / seconds / peak:.2f}"]
        )
    print_table(
        f"Stages at {N} x {D}, float64; a large product runs at {peak / 1e12:.1f} TFlop/s",
        ["stage", "ms", "TFlop/s", "of that"],
        rows,
    )


def _loocv(torch, problem, start=None):
    solution, fit = _timed(torch, lambda: glru.solve(problem, start=start))
    result, loo = _timed(torch, lambda: glru.loocv(solution, width="labels"))
    return solution, result, fit, loo


def _path(torch, problem, peak):
    rows, found, start, total = [], [], None, 0.0
    gram, cholesky = 2 * N * D * D, D**3 / 3
    for lam in LAMS:
        start, result, fit, loo = _loocv(torch, problem.derive(penalty=glru.L2(lam)), start)
        found.append(result)
        total += fit + loo
        done = start.n_iter * (gram + cholesky)
        # Forming the Hessian, its factor, the factor's inverse, two residuals, and the norms of all rows.
        metric = gram + cholesky + D**3 + 2 * 2 * D**3 + gram
        stages = " ".join(f"{stage} {seconds:.3f}" for stage, seconds in result.seconds.items())
        rows.append(
            [
                f"{lam:.4g}",
                f"{fit:.3f}",
                start.n_iter,
                f"{done / fit / peak:.2f}",
                f"{loo:.3f}",
                f"{metric / loo / peak:.2f}",
                result.n_trainings,
                int((result.bounds.signs == 0).sum()),
                stages,
            ]
        )
    print_table(
        f"{N} x {D} on the device: {total:.2f} s in all; float64 product peak {peak / 1e12:.1f} TFlop/s",
        ["lam", "fit s", "steps", "of peak", "LOOCV s", "of peak", "trainings", "undetermined", "stages"],
        rows,
    )
    return found


def _elimination(torch, problem, X_val, y_val, peak) -> None:
    rows = []
    for lam in (1.0, 2.0**-5, 2.0**-10):
        at = problem.derive(penalty=glru.L2(lam))
        result, seconds = _timed(torch, lambda at=at: glru.stepwise(at, X_val=X_val, y_val=y_val, max_steps=1))
        step = result.path[0]
        rows.append([f"{lam:.4g}", f"{step.seconds:.3f}", f"{seconds:.3f}", step.n_trainings, str(step.decided_by)])
    print_table(
        f"First elimination among {D} columns, {QUERIES} validation rows",
        ["lam", "step s", "with the fit s", "trainings", "decided by"],
        rows,
    )


def _tall(torch) -> None:
    """Rows by the hundred thousand: vectors on the host weigh more, the fewer columns there are."""
    rows = []
    for n, d in ((1_000_000, 100), (200_000, 1000)):
        X, y = synthetic(n, d)
        on = torch.asarray(X, device="cuda")
        for name, data in (("device", on), ("host", X)):
            if name == "device" or os.environ.get("GLRU_DEVICE_HOST") == "1":
                problem = glru.Problem(data, y, penalty=glru.L2(1e-3))
                runs = [_loocv(torch, problem.derive()) for _ in range(2)]
                result, fit, loo = runs[-1][1:]
                rows.append([f"{n} x {d}", name, f"{fit:.2f}", f"{loo:.2f}", result.n_trainings])
    print_table("Tall data", ["data", "where", "fit s", "LOOCV s", "trainings"], rows)


def _classes(torch, peak) -> None:
    """Ten classes in the shape of MNIST: pixels, most of them dark, of rank far below their number."""
    n, d, n_classes, rows = 60_000, 784, 10, []
    random = np.random.default_rng(0)
    y = random.integers(n_classes, size=n)
    parts = np.maximum(random.normal(size=(40, d)), 0.8) - 0.8
    weights = np.maximum(random.normal(size=(n, 40)) + 0.35 * random.normal(size=(n_classes, 40))[y], 0.0)
    X = np.minimum(weights @ parts / 4.0 + 0.05 * np.maximum(random.normal(size=(n, d)) - 1.0, 0.0), 1.0)
    on = torch.asarray(X, device="cuda")
    size = n_classes * (d + 1)
    hessian = n_classes * (n_classes - 1) * n * (d + 1) ** 2 + size**3 / 3
    for lam in (1e-2, 1e-3, 1e-4):
        problem = glru.Problem(on, y, loss=glru.Multinomial(), penalty=glru.L2(lam), fit_intercept=True)
        solution, fit = _timed(torch, lambda problem=problem: glru.solve(problem))
        for width in ("labels", None):
            result, loo = _timed(torch, lambda solution=solution, width=width: glru.loocv(solution, width=width))
            # The Hessian and its factor, the factor's inverse, two residuals, the forms of all rows, and two products for every model that was written down.
            written = n - result.decided_by.get("local", 0)
            done = hessian + 5 * size**3 + 2 * n * size**2 + 4 * written * n * d * n_classes
            rows.append(
                [
                    f"{lam:g}",
                    f"{fit:.2f}",
                    solution.n_iter,
                    f"{solution.n_iter * hessian / fit / peak:.2f}",
                    "labels" if width else "metrics to four digits",
                    f"{loo:.2f}",
                    f"{done / loo / peak:.2f}",
                    f"{result.errors_lower} to {result.errors_upper}",
                    str(result.decided_by),
                    result.n_trainings,
                ]
            )
    print_table(
        f"{n} x {d}, {n_classes} classes, {size} unknowns",
        ["lam", "fit s", "steps", "of peak", "asked for", "LOOCV s", "of peak", "errors", "decided by", "trainings"],
        rows,
    )


def _compare(X, y, found) -> None:
    problem, start, rows = glru.Problem(X[:N], y[:N]), None, []
    for lam, theirs in zip(LAMS, found, strict=True):
        begin = time.perf_counter()
        start = glru.solve(problem.derive(penalty=glru.L2(lam)), start=start)
        ours = glru.loocv(start, width="labels")
        seconds = time.perf_counter() - begin
        same = np.array_equal(ours.bounds.signs, theirs.bounds.signs)
        apart = np.maximum(ours.score_lower, theirs.score_lower) > np.minimum(ours.score_upper, theirs.score_upper)
        rows.append([f"{lam:.4g}", f"{seconds:.2f}", "yes" if same else "NO", int(apart.sum())])
    print_table("The same on the host", ["lam", "fit and LOOCV s", "labels identical", "intervals apart"], rows)
