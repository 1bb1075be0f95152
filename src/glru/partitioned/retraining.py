"""Newton steps of a problem without some rows, from the model of all, until its held-out rows are decided."""

from collections.abc import Callable

import numpy as np

from glru._budget import UNLIMITED, Budget
from glru._numerics import Array, Matrix
from glru.partitioned.gap import Ellipsoid, ellipsoid, gradient
from glru.partitioned.problem import PartitionedProblem
from glru.partitioned.sums import Model, expand
from glru.regions.base import Bounds, intersected
from glru.solvers.common import Floor

STEPS = 12
"""Newton steps at most."""

HOPEFUL = 0.2
"""The norm of a gradient from which on a certificate is asked for."""


def pursue(
    problem: PartitionedProblem,
    model: Model,
    ask: Callable[[Ellipsoid], Bounds],
    settled: Callable[[Array, Array], bool],
    budget: Budget = UNLIMITED,
) -> tuple[Bounds, Model]:
    """Bounds by the local certificate after each Newton step, until they are settled or no longer get better.

    Parameters
    ----------
    problem : PartitionedProblem
        Whose optimum is asked about.
    model : Model
        Where to start.
    ask : callable
        What an ellipsoid proves about the scores in question.
    settled : callable
        Whether bounds are good enough.
    budget : Budget
        When to give up.
    """
    found: Bounds | None = None
    before = np.inf
    for _ in range(STEPS):
        here = problem.blocks.total(expand, problem.layout, model, Floor(problem.loss))
        region = ellipsoid(problem, model, here)
        if region.nu < HOPEFUL or found is None:
            bounds = ask(region)
            found = bounds if found is None else intersected(found, bounds)
            if settled(*found):
                break
        if not region.nu < before or budget.spent:
            break
        before = region.nu
        model = model.moved(-region.metric.solve(gradient(problem, model, here.pull)))
    assert found is not None
    return found, model


def of_rows(X: Matrix) -> Callable[[Ellipsoid], Bounds]:
    """What an ellipsoid proves about rows in memory."""
    return lambda region: region.score_bounds(X)
