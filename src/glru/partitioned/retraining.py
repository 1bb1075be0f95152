"""Newton steps of a problem without some rows, from the model of all, until its held-out rows are decided."""

from collections.abc import Callable, Iterator

import numpy as np

from glru._budget import UNLIMITED, Budget
from glru.linalg import Array
from glru.partitioned.gap import Ellipsoid, ellipsoid, gradient
from glru.partitioned.problem import PartitionedProblem
from glru.partitioned.sums import Model
from glru.regions.base import Bounds, intersected
from glru.solvers.common import Floor

STEPS = 12
"""Newton steps at most."""


def pursue(
    problem: PartitionedProblem,
    model: Model,
    n_queries: int,
    ask: Callable[[Ellipsoid], Bounds],
    settled: Callable[[Array, Array], bool],
    budget: Budget = UNLIMITED,
) -> Bounds:
    """Bounds by the local certificate after each Newton step, until they are settled or no longer get better.

    Parameters
    ----------
    problem : PartitionedProblem
        Whose optimum is asked about.
    model : Model
        Where to start.
    n_queries, ask : int, callable
        How many scores are in question, and what an ellipsoid proves about them.
    settled : callable
        Whether bounds are good enough.
    budget : Budget
        When to give up.
    """
    found = np.full(n_queries, -np.inf), np.full(n_queries, np.inf)
    for region in regions(problem, model):
        if np.isfinite(region.radius):
            found = intersected(found, ask(region))
            if settled(*found):
                break
        if budget.spent:
            break
    return found


def regions(problem: PartitionedProblem, model: Model) -> Iterator[Ellipsoid]:
    """The ellipsoids at a model and after Newton steps from it, while they get smaller; a pass over the data each."""
    before = np.inf
    for _ in range(STEPS):
        here = problem.expansion(model, Floor.of(problem.loss))
        region = ellipsoid(problem, model, here)
        yield region
        if not region.nu < before:
            return
        before = region.nu
        model = model.moved(-region.metric.solve(gradient(problem, model, here.pull)))
