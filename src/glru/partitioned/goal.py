"""When a training of partitioned rows is done."""

from typing import final

from glru.partitioned.gap import dual_gap, gradient
from glru.partitioned.problem import PartitionedProblem
from glru.partitioned.solution import certified_gap, objective
from glru.partitioned.sums import Expansion, Model
from glru.solvers.common import Stop


@final
class Goal:
    """Whether a training is done: proven where that costs no pass, otherwise asked for where the steps say it is near."""

    def __init__(self, problem: PartitionedProblem, stop: Stop) -> None:
        self.problem, self.stop, self.share = problem, stop, 1.0

    def reached(self, model: Model, here: Expansion, decrease: float) -> bool:
        """Whether the gap is at its target; ``decrease``: what a Newton step promises."""
        problem, target = self.problem, self.stop.target(objective(self.problem, model, here))
        if problem.loss.self_concordance is not None and here.gram is not None:
            return decrease <= target and certified_gap(problem, model, here) <= target
        if problem.is_plain:
            # The duality gap without the rows' terms, which vanish but for rounding.
            slope = gradient(problem, model, here.pull)
            return 0.5 * float(slope @ (slope / problem.quadratic)) <= target
        if decrease > self.share * target:
            return False
        self.share *= 0.1
        return dual_gap(problem, model).value <= target
