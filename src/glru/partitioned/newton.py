"""Newton over blocks: every iteration is one pass that brings home value, gradient and Hessian at the next model.

All of them are used: the Hessian at the last model is the metric of its certificate, and of leave-one-out.
"""

import numpy as np

from glru._budget import Budget
from glru.linalg import UNIT, Array, gamma
from glru.linalg.factor import solve_shifted
from glru.partitioned.gap import gradient, hessian
from glru.partitioned.goal import Goal
from glru.partitioned.problem import PartitionedProblem
from glru.partitioned.solution import objective
from glru.partitioned.sums import Expansion, Model, slopes_along
from glru.solution import Status
from glru.solvers.common import Floor, Stop

SMALL_STEP = 1e-4
"""A full step is taken where the objective falls by this share of what its slope promises."""

LENGTHS: Array = np.exp2(np.arange(-14.0, 2.0))
"""Lengths of a step that one pass looks at."""


def newton(
    problem: PartitionedProblem, model: Model, stop: Stop, budget: Budget
) -> tuple[Model, Expansion, int, Status]:
    """Newton steps, each with a line search where the full one does not do.

    If the very first step fails, the start was a bad one (a sample misses rare columns), and zero is a better place to
    begin.
    """
    # Under a self-concordant loss the Hessian is the metric of the certificate: no floor is raised under its curvatures.
    fixed = problem.loss.self_concordance is not None
    floor, goal = Floor.of(problem.loss), Goal(problem, stop)
    here = problem.expansion(model, floor)
    n_iter = 0
    while True:
        value, slope = objective(problem, model, here), gradient(problem, model, here.pull)
        assert here.gram is not None
        step = -solve_shifted(hessian(problem, here.gram), slope)
        descent = float(slope @ step)
        if goal.reached(model, here, -descent):
            return model, here, n_iter, "converged"
        if budget.spent:
            return model, here, n_iter, "stopped"
        if n_iter >= stop.max_iter:
            return model, here, n_iter, "max_iter"
        noise = 8.0 * UNIT * float(np.abs(slope) @ np.abs(step)) + UNIT * value
        if not np.all(np.isfinite(step)) or -descent <= noise:
            return model, here, n_iter, "stalled"
        floor, before = floor if fixed else floor.after(1.0), floor
        ahead = model.moved(step)
        there = problem.expansion(ahead, floor)
        if not objective(problem, ahead, there) <= value + SMALL_STEP * descent + gamma(problem.depth) * value:
            if n_iter == 0 and (model.coef.any() or model.intercept):
                ahead, floor = Model(np.zeros_like(model.coef)), before
            else:
                length = line_search(problem, model, step)
                if length == 0.0:
                    return model, here, n_iter, "stalled"
                ahead, floor = model.moved(step, length), before if fixed else before.after(length)
            there = problem.expansion(ahead, floor)
        model, here = ahead, there
        n_iter += 1


def line_search(problem: PartitionedProblem, model: Model, step: Array) -> float:
    """A length that takes a descent direction near the objective's minimum along it, in two passes; 0 where there is none."""
    slopes = _slopes(problem, model, step, LENGTHS)
    beyond = np.flatnonzero(~(slopes <= 0.0))
    if not beyond.size:
        return float(LENGTHS[-1])
    high = float(LENGTHS[beyond[0]])
    low = float(LENGTHS[beyond[0] - 1]) if beyond[0] else 0.0
    inside = np.linspace(low, high, LENGTHS.size + 2)[1:-1]
    slopes = _slopes(problem, model, step, inside)
    falling = inside[slopes <= 0.0]
    return float(falling[-1]) if falling.size else low


def _slopes(problem: PartitionedProblem, model: Model, step: Array, lengths: Array) -> Array:
    """The objective's derivative along a step, at several lengths."""
    move = step[: problem.n_columns]
    losses: Array = problem.blocks.total(slopes_along, problem.layout, model, step, lengths)
    return losses + float(problem.quadratic * model.coef @ move) + lengths * float(problem.quadratic * move @ move)
