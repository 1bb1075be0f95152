"""The share of each stage's time that its rounding slack takes.

Every stage runs as it is, and once more with the computations that serve nothing but rounding replaced by zeros: errors of
scores, ``|X| |w|``, errors of correlations and gradients. The two take turns, so that a disturbance of the machine hits both.
Bounds made in the second way prove nothing; they are thrown away.
"""

import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

import glru
from benchmarks.timing import print_table
from glru.cascade import Cascade
from glru.certificate import certify
from glru.linalg import Array
from glru.linalg.dense import DenseMatrix
from glru.point import Point
from glru.problem import Problem
from glru.regions import LocalEllipsoid, PrimalBall
from glru.updates import newton_candidate
from glru.updates.carried_rows import carried_bounds, removal_factors
from glru.updates.local_rows import LocalRows
from glru.updates.wide_rows import WideRows

TARGET = 0.05
ROUNDS = 9
SEED = 0

SCORE_ERRORS = ("certificate", "regions.local", "families.local")


def no_product(X: DenseMatrix, v: Array) -> Array:
    """In place of ``|X| v``."""
    return np.zeros(X.shape[0])


def no_errors(problem: Problem, coef: Array, intercept: float, scores: Array | None = None) -> Array:
    """In place of the scores' errors."""
    return np.zeros(problem.n_rows)


def plain_terms(loss, y, scores, errors, dual, moves=None):
    """In place of the Fenchel-Young terms at both ends of their errors."""
    return loss.fenchel_young(y, scores, -dual)


def plain_penalty_terms(penalty, coef, correlations, errors):
    """The same of the penalty's terms."""
    return penalty.fenchel_young(coef, correlations)


def no_gradient_errors(family) -> Array:
    """In place of the errors of a gradient over the columns."""
    return np.zeros(family.problem.n_columns + int(family.problem.fit_intercept))


def plain_gradient(region, errors):
    """In place of a gradient and its errors."""
    problem, coef = region.candidate.problem, region.candidate.coef
    pull = problem.weights * problem.loss.gradient(problem.y, region._scores)
    gradient = problem.X.T @ pull + problem.penalty.quadratic * coef
    gradient = np.append(gradient, pull.sum()) if problem.fit_intercept else gradient
    return gradient, np.zeros_like(gradient)


@contextmanager
def without_slack() -> Iterator[None]:
    """What serves rounding alone, replaced while this lasts."""
    places = [(f"glru.{module}", "score_errors", no_errors) for module in SCORE_ERRORS]
    places += [(f"glru.{module}", "loss_terms", plain_terms) for module in ("certificate", "families.newton")]
    places += [("glru.certificate", "penalty_terms", plain_penalty_terms)]
    owners = [(importlib.import_module(module), name, new) for module, name, new in places]
    owners += [
        (DenseMatrix, "absolute_product", no_product),
        (LocalRows, "_gradient_errors", no_gradient_errors),
        (LocalEllipsoid, "_gradient", plain_gradient),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in owners]
    try:
        for owner, name, new in owners:
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, old in before:
            setattr(owner, name, old)


def problem_of(n: int, d: int) -> Problem:
    """Random rows and noisy labels."""
    random = np.random.default_rng(SEED)
    X = random.standard_normal((n, d))
    y = np.where(X @ random.standard_normal(d) / np.sqrt(d) + random.standard_normal(n) > 0.0, 1.0, -1.0)
    return Problem(X, y, penalty=glru.L2(0.01))


def fresh(solution: glru.Solution) -> glru.Solution:
    """The same solution, none of whose caches is filled."""
    point = Point(solution.coef.copy(), solution.intercept, solution.dual.copy())
    return glru.solve(solution.problem.derive(), start=point, until=lambda state: True)


def stages(tall: glru.Solution, wide: glru.Solution) -> dict[str, Callable[[], object]]:
    """The work of every stage, from a solution to bounds."""

    def one_pass(lower: Array, upper: Array) -> Array:
        # Whether a second pass is needed must not depend on the slack that is measured.
        return np.ones(lower.shape, dtype=bool)

    def certified(solution: glru.Solution) -> object:
        return certify(solution.problem.derive(), solution.point).gap

    def local(solution: glru.Solution) -> object:
        family = LocalRows(solution, float(removal_factors(solution.problem)[0]))
        return family.bounds(np.arange(solution.problem.n_rows), one_pass)

    def newton(solution: glru.Solution) -> object:
        return WideRows(solution).quick_bounds(np.arange(solution.problem.n_rows))

    def refine(solution: glru.Solution) -> object:
        problem, point = Cascade(solution).without(0)
        certificate = newton_candidate(problem, point)
        return PrimalBall(certificate, False).score_bounds(problem.matrix[:1])

    def training(solution: glru.Solution) -> object:
        return Cascade(solution).training(np.array([0]))

    return {
        "gap of a point, tall": lambda: certified(tall),
        "gap of a point, wide": lambda: certified(wide),
        "carry, all rows": lambda: carried_bounds(fresh(tall), "primal"),
        "newton + local, all rows": lambda: local(tall),
        "newton + gap, all rows": lambda: newton(wide),
        "refine, one row, tall": lambda: refine(tall),
        "refine, one row, wide": lambda: refine(wide),
        "training with early stop, tall": lambda: training(tall),
        "training with early stop, wide": lambda: training(wide),
    }


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """The shortest time of a stage as it is, and without its slack."""
    seconds = np.empty((ROUNDS, 2))
    for turn in range(-1, ROUNDS):  # the first turn warms up and does not count
        for place in range(2):
            begin = time.perf_counter()
            if place:
                with without_slack():
                    work()
            else:
                work()
            seconds[turn, place] = time.perf_counter() - begin
    return float(seconds[:, 0].min()), float(seconds[:, 1].min())


def run() -> None:
    """Print the table."""
    tall, wide = (glru.solve(problem_of(n, d), tol=1e-4) for n, d in ((100_000, 50), (600, 6_000)))
    rows = []
    with np.errstate(all="ignore"):
        for name, work in stages(tall, wide).items():
            whole, bare = measured(work)
            share = 1.0 - bare / whole
            verdict = "yes" if share <= TARGET else "no"
            rows.append([name, f"{1e3 * whole:.1f}", f"{1e3 * bare:.1f}", f"{100.0 * share:.1f} %", verdict])
    header = ["stage", "ms", "ms without", "share", f"within {TARGET:.0%}"]
    print_table("Time that rounding slack takes", header, rows)
