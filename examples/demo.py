"""A tour of glru in the terminal: train models, and show what proves that they are trained."""

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
    print(f"  gap            {solution.gap:<14.1e}   how far it can be from the optimum, up to rounding")
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
