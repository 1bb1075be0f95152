"""Newton steps, then a training, until what is asked about some queries is proven."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru import duality
from glru._budget import UNLIMITED, Budget
from glru.bounds import Bounds, intersect
from glru.candidates import newton_candidate
from glru.certificate import Certificate, certify
from glru.linalg import Array, Matrix
from glru.losses import Hinge
from glru.metric.rows import uses_rows
from glru.point import Point
from glru.problem import Problem
from glru.regions import LocalEllipsoid, Region, has_local, regions_of, score_bounds
from glru.regions.local import Plain
from glru.solution import dual_of
from glru.solvers import State, train
from glru.solvers.common import Until

REFINE_STEPS = 8
"""Newton steps of one problem before it is trained in full."""

TRAINED = 1e-13
"""Relative gap of a training in full."""

LOCAL_STEPS, HOPEFUL = 12, 0.2
"""Newton steps under the local certificate alone, and the norm of a gradient from which on it is asked for."""


@final
@dataclass(frozen=True, eq=False)
class Pursued:
    """Bounds of the queries' scores, the stage that settled them, and the best point found."""

    lower: Array
    upper: Array
    stage: str
    point: Point


def pursue(
    problem: Problem,
    point: Point,
    queries: Matrix,
    settled: Callable[[Array, Array], bool],
    newton: bool = True,
    certificate: Certificate | None = None,
    budget: Budget = UNLIMITED,
) -> Pursued:
    """Bounds of the scores of some queries under the optimum of a problem.

    Parameters
    ----------
    problem : Problem
        Whose optimum is asked about.
    point : Point
        Where to start, with a dual feasible point.
    queries : array or sparse array of shape (n_queries, n_columns)
        The rows whose scores are asked about.
    settled : callable
        ``settled(lower, upper)``: whether the bounds are good enough.
    newton : bool, default=True
        Whether to try Newton steps and the local certificate; otherwise the paper's bounds stop a training.
    certificate : Certificate, default=None
        The certificate of the point, where it is at hand: it is asked first.
    budget : Budget, default=UNLIMITED
        When it is spent, what is known by then is returned.
    """
    found = np.full(queries.shape[0], -np.inf), np.full(queries.shape[0], np.inf)

    def take_in(region: Region, dead: NDArray[np.bool_]) -> bool:
        nonlocal found
        found = intersect(found, score_bounds([region], queries, dead))
        return settled(*found) or budget.spent

    def take(certificate: Certificate, thorough: bool = True) -> bool:
        for region in regions_in_order(certificate, local=newton):
            if take_in(region, certificate.columns.dead):
                return True
            if not thorough:
                return False
        return False

    if newton and has_local_steps(problem):
        settled_at = local_steps(problem, point, take_in, budget)
        if settled_at is not None:
            return Pursued(found[0], found[1], *settled_at)
    # Where the ball is bounded and the local certificate is dearer than a step, another step is the better question.
    thorough = problem.fit_intercept or problem.penalty.strong_convexity == 0.0 or problem.n_rows >= problem.n_columns
    if certificate is not None and take(certificate, thorough):
        return Pursued(found[0], found[1], "carry", point)
    given, steppable = point, not isinstance(problem.loss, Hinge) and min(problem.matrix.shape) <= problem.largest
    if newton and steppable:
        before = np.inf
        for step in range(REFINE_STEPS):
            stepped = newton_candidate(problem, point)
            better = stepped.gap < 0.5 * before
            if take(stepped, thorough or not better):
                return Pursued(found[0], found[1], "newton" if step == 0 else "refine", stepped.point)
            if not better:
                break
            point, before = stepped.point, stepped.gap
    # Full Newton steps may end farther from the optimum than they began.
    point = min(given, point, key=lambda p: _gap(problem, p))
    until = ask_rarely(lambda state: take(certify(problem, state.point)), budget)
    last = train(problem, tol=TRAINED, start=point, until=until)
    trained = certify(problem, last.point)
    take(trained)
    # A gap that is small enough for a solver may still be large under the root of a radius: step on while it shrinks.
    for _ in range(REFINE_STEPS if steppable and not settled(*found) else 0):
        stepped = newton_candidate(problem, trained.point)
        if not stepped.gap < 0.5 * trained.gap:
            break
        trained = stepped
        if take(trained):
            break
    return Pursued(found[0], found[1], "training", trained.point)


def ask_rarely(ask: Callable[[State], bool], budget: Budget) -> Until:
    """A stopping rule that asks about a state only where its gap is a tenth of the last one asked about.

    Where a certificate costs more than an iteration, asking every time would cost more than the training.
    """
    last = np.inf

    def until(state: State) -> bool:
        nonlocal last
        if not state.gap < 0.1 * last:
            return budget.spent
        last = state.gap
        return ask(state)

    return until


def _gap(problem: Problem, point: Point) -> float:
    assert point.dual is not None
    value = duality.gap(problem, point.coef, point.intercept, point.dual).value
    return value if np.isfinite(value) else np.inf


def has_local_steps(problem: Problem) -> bool:
    """Whether :func:`local_steps` applies: the local certificate, with its metric over the columns."""
    return has_local(problem) and not uses_rows(problem)


def local_steps(
    problem: Problem,
    point: Point,
    take_in: Callable[[Region, NDArray[np.bool_]], bool],
    budget: Budget = UNLIMITED,
) -> tuple[str, Point] | None:
    """Newton steps under the local certificate alone, one Hessian each: the stage and the point that settled it.

    A point whose gradient is far too large for a certificate is stepped on from without asking for one.
    """
    coef, intercept, before = point.coef, point.intercept, np.inf
    for step in range(LOCAL_STEPS):
        region = LocalEllipsoid(Plain(problem, coef, intercept), problem.fit_intercept)
        if region.nu < HOPEFUL and take_in(region, problem.dead_columns):
            stage = ("carry", "newton")[step] if step < 2 else "refine"
            return stage, Point(coef, intercept, dual_of(problem, problem.scores(coef, intercept)))
        if not region.nu < before or budget.spent:
            return None
        before = region.nu
        coef, intercept = region.stepped()
    return None


def certified_bounds(certificate: Certificate, queries: Matrix) -> Bounds:
    """Everything that a certificate proves about the scores of some queries."""
    return score_bounds(list(regions_in_order(certificate)), queries, certificate.columns.dead)


def regions_in_order(certificate: Certificate, local: bool = True, bound: str = "auto") -> Iterator[Region]:
    """The regions of a certificate as far as ``bound`` names them, those that tell most for their price first.

    ``local``: also the local certificate's. The paper's regions bound an intercept by a search, which is dearer than the
    ellipsoid; over the columns the ellipsoid is one Hessian and much the tightest; over the rows the ball comes first.
    """
    problem = certificate.problem
    ellipsoid = [LocalEllipsoid(certificate, problem.fit_intercept)] if local and has_local(problem) else []
    late = uses_rows(problem) and not problem.fit_intercept
    if not late:
        yield from ellipsoid
    yield from regions_of(certificate, problem.fit_intercept, bound if bound == "dual" else "primal")
    if late:
        yield from ellipsoid
    if bound == "auto":
        yield from regions_of(certificate, problem.fit_intercept, "dual")
