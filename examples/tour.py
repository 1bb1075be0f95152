"""A tour of glru in the terminal: train models, show what proves that they are trained, and change their data."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.preprocessing import StandardScaler

import glru

Data = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class Timed:
    """A solution and the seconds it took."""

    solution: glru.Solution
    seconds: float


def main() -> None:
    cancer, diabetes = standardised(load_breast_cancer), standardised(load_diabetes)
    show_certificate(cancer)
    show_problems(cancer, diabetes)
    show_changes(cancer)
    show_leave_one_out(cancer)


def show_certificate(cancer: Data) -> None:
    """One logistic model, and the two numbers that enclose the best possible objective."""
    problem = glru.Problem(*cancer, loss=glru.Logistic(), penalty=glru.L2(0.1))
    timed = train(problem, tol=1e-9)
    solution = timed.solution
    heading(
        f"Breast cancer: {problem.loss!r} + {problem.penalty!r}, {problem.n_rows} rows x {problem.n_columns} columns"
    )
    print(f"  primal value   {solution.primal_value:.12f}   what the model attains")
    print(f"  dual value     {solution.dual_value:.12f}   what no model can go below")
    print(f"  gap            {solution.gap:<14.1e}   how far the objective can be above its optimum, proven")
    print(f"  relative gap   {solution.relative_gap:<14.1e}   the target was 1e-09")
    print(f"  solver         {solution.solver}, {solution.n_iter} iterations, {1000 * timed.seconds:.1f} ms")


def show_problems(cancer: Data, diabetes: Data) -> None:
    """Other losses and penalties: the same call, the same certificate."""
    X, target = diabetes
    scaled = (X, (target - target.mean()) / target.std())
    problems = {
        "cancer: hinge, L2, intercept": glru.Problem(
            *cancer, loss=glru.Hinge(), penalty=glru.L2(0.1), fit_intercept=True
        ),
        "cancer: squared hinge, L2, intercept": glru.Problem(
            *cancer, loss=glru.SquaredHinge(), penalty=glru.L2(0.1), fit_intercept=True
        ),
        "cancer: logistic, elastic net": glru.Problem(
            *cancer, loss=glru.Logistic(), penalty=glru.ElasticNet(0.01, 0.02)
        ),
        "diabetes: squared, L1 (lasso)": glru.Problem(*scaled, loss=glru.Squared(), penalty=glru.L1(0.05)),
        "diabetes: Huber, L2": glru.Problem(*scaled, loss=glru.Huber(gamma=1.0), penalty=glru.L2(0.1)),
    }
    heading("Any loss with any penalty, one certificate")
    rows = [[name, *certificate(glru.solve(problem, tol=1e-9))] for name, problem in problems.items()]
    table(["problem", "primal value", "dual value", "relative gap", "iterations", "solver"], rows)


def show_changes(cancer: Data) -> None:
    """Change the training data, and compare what is proven of the retrained model with retraining it."""
    X, y = cancer
    X_train, y_train, X_test = X[:300], y[:300], X[310:]
    solution = glru.solve(glru.Problem(X_train, y_train, penalty=glru.L2(0.1)), tol=1e-9)
    without_texture = np.delete(X_test, 1, axis=1)
    changes: list[tuple[str, glru.Change, NDArray[np.float64]]] = [
        ("remove 1 row", glru.RemoveRows([3]), X_test),
        ("remove 10 rows", glru.RemoveRows(range(10)), X_test),
        ("add 10 rows", glru.AddRows(X[300:310], y[300:310]), X_test),
        ("edit 1 value", glru.EditValues([3], [0], 0.0), X_test),
        ("relabel 1 row", glru.Relabel([3], [1]), X_test),
        ("remove 1 column", glru.RemoveColumns([1]), without_texture),
        ("remove a row and a column", glru.RemoveRows([3]) + glru.RemoveColumns([1]), without_texture),
    ]
    old_labels = np.where(X_test @ solution.coef > 0.0, 1, -1)
    heading(f"After a change of the data: the labels of {len(X_test)} test rows, proven without retraining")
    rows = [
        cells for name, change, queries in changes for cells in outcome(name, solution, change, queries, old_labels)
    ]
    table(["change", "candidate", "gap", "radius", "unchanged", "changed", "open", "retraining agrees"], rows)
    print(
        "\n  unchanged: the retrained label is proven to be the old one; changed: proven to be the other one (which rows)"
    )


def show_leave_one_out(cancer: Data) -> None:
    """Exact leave-one-out cross-validation, and a few rows of it by retraining."""
    X, y = cancer
    problem = glru.Problem(X, y, penalty=glru.L2(0.01))
    solution = glru.solve(problem)
    start = time.perf_counter()
    result = glru.loocv(solution)
    seconds = time.perf_counter() - start
    heading(f"Leave-one-out cross-validation of {problem.n_rows} rows, each label proven")
    print(result)
    rows = np.linspace(0, problem.n_rows - 1, 20).astype(int)
    start = time.perf_counter()
    old = glru.Point(solution.coef)
    retrained = [glru.solve(glru.RemoveRows([row]).apply(problem), tol=1e-9, start=old) for row in rows]
    brute = (time.perf_counter() - start) / len(rows) * problem.n_rows
    inside = sum(
        bool(result.score_lower[row] <= X[row] @ model.coef <= result.score_upper[row])
        for row, model in zip(rows, retrained, strict=True)
    )
    print(f"  retrained    {len(rows)} rows as a check: {inside} of {len(rows)} scores inside their intervals")
    print(f"  time         {1000 * seconds:.0f} ms; retraining every row would take about {1000 * brute:.0f} ms")


def outcome(
    name: str, solution: glru.Solution, change: glru.Change, queries: NDArray[np.float64], old_labels: NDArray[np.int_]
) -> list[list[str]]:
    """What each candidate proves after a change, beside the labels of the retrained model."""
    retrained = glru.after(solution, change).retrain(tol=1e-9)
    new_labels = np.where(queries @ retrained.coef > 0.0, 1, -1)
    rows = []
    for candidate in ("carry", "newton"):
        out = glru.after(solution, change, candidate=candidate)
        labels = out.score_bounds(queries).signs
        proven = labels != 0
        changed = np.flatnonzero(proven & (labels != old_labels))
        counts = [str(np.sum(labels == old_labels)), named(changed), str(np.sum(~proven))]
        agrees = f"{np.sum(labels[proven] == new_labels[proven])} of {np.sum(proven)}"
        rows.append([name, candidate, f"{out.gap:.1e}", f"{out.radius:.1e}", *counts, agrees])
    return rows


def named(rows: NDArray[np.intp]) -> str:
    """How many rows, and which."""
    return f"{rows.size} ({', '.join(map(str, rows))})" if rows.size else "0"


def certificate(solution: glru.Solution) -> list[str]:
    """The cells of a solution in a table."""
    return [
        f"{solution.primal_value:.10f}",
        f"{solution.dual_value:.10f}",
        f"{solution.relative_gap:.1e}",
        str(solution.n_iter),
        solution.solver,
    ]


def standardised(load: Callable[..., Data]) -> Data:
    """A dataset of scikit-learn with columns of mean 0 and variance 1."""
    X, y = load(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def train(problem: glru.Problem, tol: float) -> Timed:
    """Train and time a problem."""
    start = time.perf_counter()
    solution = glru.solve(problem, tol=tol)
    return Timed(solution, time.perf_counter() - start)


def heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


def table(header: list[str], rows: list[list[str]]) -> None:
    """Print aligned columns."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for line in [header, *rows]:
        print("  " + "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
