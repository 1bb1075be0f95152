"""Trust-region Newton-CG over blocks: SciPy's ``trust-ncg``, a pass for every value and every product with the Hessian.

The columns are scaled by what the Hessian's diagonal can be at most, and the objective by the total weight.
"""

from typing import Any, final

import numpy as np

from glru._budget import Budget
from glru.linalg import Array
from glru.partitioned.gap import gradient, penalty_value
from glru.partitioned.goal import Goal
from glru.partitioned.problem import PartitionedProblem
from glru.partitioned.sums import Expansion, Model, hessian_product
from glru.solution import Status
from glru.solvers.common import Floor, Stop


def newton_cg(
    problem: PartitionedProblem, model: Model, stop: Stop, budget: Budget
) -> tuple[Model, Expansion, int, Status]:
    """Train by trust-region Newton-CG; see the module's text."""
    from scipy import optimize

    minimize: Any = optimize.minimize
    search = _Search(problem, stop, budget)
    begin = model.packed(problem.fit_intercept) * search.scales
    minimize(
        search.value,
        begin,
        jac=True,
        hessp=search.product,
        method="trust-ncg",
        callback=search.judge,
        options={"gtol": 0.0, "maxiter": stop.max_iter, "max_trust_radius": 1e6},
    )
    return search.model, search.here, search.n_iter, search.status


@final
class _Search:
    """What SciPy asks for, and the best model so far."""

    def __init__(self, problem: PartitionedProblem, stop: Stop, budget: Budget) -> None:
        self.problem, self.goal, self.budget = problem, Goal(problem, stop), budget
        norms = problem.column_norms
        unit = problem.loss.smoothness * norms**2
        unit[: problem.n_columns] += problem.quadratic
        self.total = problem.weight_sum
        self.scales = np.sqrt(np.where(unit > 0.0, unit, 1.0) / self.total)
        self.floor = Floor(problem.loss, 0.0)
        self.seen: list[tuple[Array, Model, Expansion]] = []
        self.n_iter = 0
        self.status: Status = "max_iter"

    def _model(self, unknowns: Array) -> Model:
        return Model(np.zeros(self.problem.n_columns)).moved(unknowns / self.scales)

    def value(self, unknowns: Array) -> tuple[float, Array]:
        """Objective and gradient."""
        model = self._model(unknowns)
        here: Expansion = self.problem.expansion(model, None)
        self.seen = [*self.seen[-2:], (unknowns.copy(), model, here)]
        if len(self.seen) == 1:
            self.model, self.here = model, here
        slope = gradient(self.problem, model, here.pull) / self.scales
        return (here.value + penalty_value(self.problem, model)) / self.total, slope / self.total

    def product(self, unknowns: Array, vector: Array) -> Array:
        """The Hessian times a vector."""
        problem, way = self.problem, vector / self.scales
        bent = problem.blocks.total(hessian_product, problem.layout, self._model(unknowns), self.floor, way)
        bent[: problem.n_columns] += problem.quadratic * way[: problem.n_columns]
        return bent / self.scales / self.total

    def judge(self, unknowns: Array) -> None:
        """Take in a model that SciPy has accepted; end where it is good enough."""
        self.n_iter += 1
        for place, model, here in self.seen:
            if np.array_equal(place, unknowns):
                self.model, self.here = model, here
        problem = self.problem
        slope = gradient(problem, self.model, self.here.pull)
        decrease = float(np.sum((slope / self.scales) ** 2)) / self.total
        if self.goal.reached(self.model, self.here, decrease):
            self.status = "converged"
            raise StopIteration
        if self.budget.spent:
            self.status = "stopped"
            raise StopIteration
