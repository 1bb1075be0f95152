"""What a bound is held against: the exact retrained model, or, where that is not unique, a certified neighbourhood of one."""

import warnings
from decimal import Decimal

import numpy as np

import glru
from tests.certificates import exact

CANDIDATES, BOUNDS = ("carry", "newton", "auto"), ("primal", "dual", "local", "auto")


def trained(problem, tol):
    """A solution, converged or not, without a word about it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return glru.solve(problem, tol=tol)


def retrained(problem):
    """The exact optimum; None where there is none, or several."""
    start = trained(problem, 1e-13)
    return exact.optimum(problem, start.coef, start.intercept)


def answers(solution, change):
    """Every candidate with every bound that the loss and the penalty allow."""
    loss, penalty = solution.problem.loss, solution.problem.penalty
    for candidate in CANDIDATES:
        for bound in BOUNDS:
            if isinstance(loss, glru.Hinge) and (candidate == "newton" or bound == "dual"):
                continue
            if bound == "local" and (loss.self_concordance is None or not penalty.smooth):
                continue
            yield glru.after(solution, change, candidate, bound)


def assert_holds(out, problem, truth, queries):
    """Every bound holds the exact value, without any tolerance."""
    weighty = np.flatnonzero(problem.weights > 0.0)
    lower, upper = out.dual_bounds()
    cases = {
        "scores": (truth.scores(queries), out.score_bounds(queries)),
        "training scores": (truth.scores(problem.X), out.score_bounds(problem.X)),
        "coefficients": (truth.coef, out.coef_bounds()),
        "intercept": ([truth.intercept], out.intercept_bounds()),
        "dual variables": (truth.dual[weighty], (lower[weighty], upper[weighty])),
    }
    for name, (values, bounds) in cases.items():
        wrong = exact.outside(values, *bounds)
        shown = [(float(values[k]), np.atleast_1d(bounds[0])[k], np.atleast_1d(bounds[1])[k]) for k in wrong]
        assert not wrong, f"{name} outside the bounds of {out!r} on {problem!r}: {shown}"
    signs = np.array([(score > 0) - (score < 0) for score in truth.scores(queries)])
    proven = out.score_bounds(queries).signs
    assert np.all((proven == 0) | (proven == signs))
    assert np.all(np.isin(proven[~np.isfinite(out.score_bounds(queries)).all(axis=0)], (-1, 0, 1)))
    distance = exact.norm(truth.coef - exact.decimals(out.point.coef))
    assert out.radius == np.inf or distance <= Decimal(out.radius)


def assert_meets(out, problem, queries):
    """Where the optimum is not to be had exactly: its certified neighbourhood and the bounds have a point in common."""
    reference = trained(problem, 1e-14)
    lam = problem.penalty.strong_convexity
    if lam == 0.0 or problem.fit_intercept:
        return
    # The gap sums about n + d terms of 15 digits, each of them at most of the size of the objective's own terms.
    rounding = 1e-30 * (1.0 + reference.primal_value)
    radius = np.sqrt(2.0 * (reference.gap * (1.0 + 1e-10) + rounding) / lam)
    scores = queries @ reference.coef
    reach = (radius + 1e-14 * np.linalg.norm(reference.coef)) * np.sqrt(np.square(queries).sum(axis=1)) * (1.0 + 1e-12)
    lower, upper = out.score_bounds(queries)
    assert np.all(lower <= scores + reach) and np.all(upper >= scores - reach)
    lower, upper = out.coef_bounds()
    near = radius + 1e-15
    assert np.all(lower <= reference.coef + near) and np.all(upper >= reference.coef - near)
