"""The base that all removals of single rows start from, out of the sums of one expansion."""

import numpy as np

from glru.families.carried import sum_error
from glru.families.gradients import GradientNorms
from glru.families.removals import Base, rough_top
from glru.linalg import FEW, Array
from glru.partitioned.gap import gradient, hessian, largest_score_error, slope_spread
from glru.partitioned.problem import PartitionedProblem
from glru.partitioned.removing import LocalRemovals
from glru.partitioned.solution import PartitionedSolution
from glru.partitioned.sums import Expansion, Model
from glru.regions.local import gradient_slack
from glru.regions.metric import ColumnMetric
from glru.solvers.common import Floor

MOST_STEPS = 3
"""Newton steps to find the base."""

CLOSE = 4.0
"""The base is found when what is left of its Newton step is at most so many times as long as a removal's own step."""

TOO_SMALL = 1e-9
"""A step that moves no score by more than this (times the self-concordance constant) is not worth a pass."""


def factor_range(problem: PartitionedProblem) -> tuple[float, float]:
    """The least and the largest factor of a removal that anything is proven of."""
    if problem.scaling == "sum":
        return 1.0, 1.0
    total, census = problem.layout.total_weight, problem.census
    factors = [total / (total - w) if 2.0 * w < total else 2.0 for w in (-census.least.value, census.largest.value)]
    return factors[0], factors[1]


def settled(solution: PartitionedSolution) -> tuple[LocalRemovals, float] | None:
    """The removals of all rows and at least the largest norm of one; None where the local certificate proves nothing."""
    problem, model, here = solution.problem, solution.model, solution.expansion
    if here.gram is None:
        here = problem.expansion(model, Floor.of(problem.loss))
    n_steps = 0
    while True:
        found = _removals(problem, model, here)
        if found is None:
            return None
        top = rough_top(found.base.metric, problem.plain)
        # The step of a row of the largest weight and a slope of usual size.
        share = problem.census.largest.value / problem.layout.total_weight
        usual = share * float(np.sqrt(here.mass * problem.weight_sum)) * top
        reach = found.base.constant * top * found.step_norm
        if n_steps == MOST_STEPS or found.step_norm <= CLOSE * usual or reach < TOO_SMALL:
            return found, top
        model, n_steps = model.moved(found.step), n_steps + 1
        here = problem.expansion(model, Floor.of(problem.loss))


def _removals(problem: PartitionedProblem, model: Model, here: Expansion) -> LocalRemovals | None:
    assert here.gram is not None
    low, high = factor_range(problem)
    middle = 0.5 * (low + high)
    matrix = hessian(problem, here.gram, middle)
    metric = ColumnMetric.of_hessian(matrix, problem.fit_intercept, problem.depth, problem.least_curvature)
    constant = float(problem.loss.self_concordance or 0.0)
    weight_error = sum_error(problem.depth)
    # The metric is that of the middle factor, at computed scores.
    grown = (1.0 + metric.eta) * (1.0 + weight_error) * max(high / middle, middle / low) * (1.0 + FEW)
    eta = float(grown * np.exp(constant * largest_score_error(problem, model) * (1.0 + FEW))) - 1.0
    if not eta < 0.5:
        return None
    spread = high * slope_spread(problem, model, here.mass, weight_error) * (1.0 + FEW)
    slack = gradient_slack(spread, problem.column_norms, problem.quadratic, model.coef)
    slack_norm = metric.gradient_norm(np.zeros_like(slack), slack)
    whole = gradient(problem, model, middle * here.pull)
    return LocalRemovals(
        base=Base(metric, eta, constant, problem.loss.smoothness, slack_norm),
        model=model,
        middle=middle,
        step=metric.solve(-whole),
        step_norm=metric.gradient_norm(whole, np.zeros_like(whole)),
        drift=metric.solve(-here.pull),
        drift_norm=metric.gradient_norm(here.pull, np.zeros_like(whole)),
    )


def gradient_norms(problem: PartitionedProblem, metric: ColumnMetric) -> GradientNorms:
    """What bounds the norms of gradients without a row, whatever its factor."""
    _, high = factor_range(problem)
    root = float(np.sqrt(high)) * (1.0 + FEW)
    columns: Array = problem.column_norms * root
    return GradientNorms(
        metric=metric,
        depth=problem.depth,
        smoothness=problem.loss.smoothness,
        quadratic=problem.quadratic,
        total=problem.weight_sum * high * (1.0 + FEW),
        plain_mass=problem.plain_mass * root,
        columns=columns,
    )
