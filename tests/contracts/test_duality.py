"""The gap is the primal minus the dual value, its terms sum to it, and feasible points can always be found."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import glru
from tests.cases import COLUMN_PENALTIES, LOSSES, PENALTIES, PROBLEMS, each, make, uneven
from tests.core import duality


def random_point(problem, seed, size=1.0):
    """Coefficients, an intercept, and dual variables inside the domain of the conjugate loss."""
    random = np.random.default_rng(seed)
    dual = -problem.loss.project(problem.y, size * random.normal(size=problem.n_rows))
    return size * random.normal(size=problem.n_columns), size * float(random.normal()), dual


def values(problem, coef, intercept, dual):
    """Primal and dual value from their definitions."""
    scores = problem.X @ coef + (intercept if problem.fit_intercept else 0.0)
    correlations = duality.constrain_correlations(problem, dual)
    used = problem.weights > 0.0
    losses = problem.weights[used] @ problem.loss.value(problem.y, scores)[used]
    conjugates = problem.weights[used] @ problem.loss.conjugate(problem.y, -dual)[used]
    return (
        losses + problem.penalty.value(coef).sum(),
        -conjugates - problem.penalty.conjugate(correlations).sum(),
    )


@settings(deadline=None, max_examples=200)
@given(
    shape=st.sampled_from(sorted(PROBLEMS)),
    loss=st.sampled_from(sorted(LOSSES)),
    penalty=st.sampled_from(sorted(PENALTIES)),
    seed=st.integers(0, 10**6),
    size=st.sampled_from([1e-3, 1.0, 30.0]),
)
def test_gap_is_primal_minus_dual(shape, loss, penalty, seed, size):
    """At any feasible pair: weak duality, the sum of its terms, and the difference of the two values."""
    problem = PROBLEMS[shape](LOSSES[loss], PENALTIES[penalty])
    coef, intercept, dual = random_point(problem, seed, size)
    dual = duality.make_feasible_dual(problem, dual)
    gap = duality.gap(problem, coef, intercept, dual)
    primal, lower = values(problem, coef, intercept, dual)
    assert np.isfinite(gap.value)
    assert np.all(gap.row_terms >= 0.0) and np.all(gap.column_terms >= 0.0)
    assert gap.value == pytest.approx(gap.row_terms.sum() + gap.column_terms.sum(), rel=1e-14)
    assert gap.value == pytest.approx(primal - lower, rel=1e-9, abs=1e-12 * (abs(primal) + abs(lower)))
    assert duality.primal_value(problem, coef, gap.scores) == pytest.approx(primal, rel=1e-13)
    assert duality.dual_value(problem, dual, gap.correlations) == pytest.approx(lower, rel=1e-10, abs=1e-13 * primal)
    np.testing.assert_allclose(gap.scores, problem.scores(coef, intercept), rtol=1e-14)


@each(LOSSES, "loss")
@each(COLUMN_PENALTIES, "penalty")
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_feasible_dual_for_unpenalised_columns(loss, penalty, fit_intercept):
    """Near an optimum the constraints of free columns and the intercept are met, inside the domain."""
    problem = make(loss, penalty.scale(0.1), 50, 3, fit_intercept=fit_intercept)
    solution = glru.solve(problem, tol=1e-8)
    random = np.random.default_rng(0)
    near = -loss.project(problem.y, -solution.dual + 1e-3 * random.normal(size=50))
    dual = duality.make_feasible_dual(problem, near)
    assert np.all(np.isfinite(loss.conjugate(problem.y, -dual)))
    pull = problem.weights * dual
    free = problem.unpenalised
    np.testing.assert_allclose(problem.X[:, free].T @ pull, 0.0, atol=1e-14)
    if fit_intercept:
        assert abs(pull.sum()) < 1e-15
    assert duality.gap(problem, solution.coef, solution.intercept, dual).value < 0.1


@each(LOSSES, "loss")
def test_feasible_dual_leaves_a_feasible_point_alone(loss):
    """Nothing to repair, nothing changed."""
    problem = make(loss, glru.L2(0.1))
    dual = random_point(problem, 0)[2]
    np.testing.assert_array_equal(duality.make_feasible_dual(problem, dual), dual)


@each(LOSSES, "loss")
def test_feasible_dual_of_one_sign(loss):
    """With an intercept, dual variables of a single sign can only shrink; the gap stays finite."""
    problem = make(loss, glru.L2(0.1), fit_intercept=True)
    dual = np.where(problem.y > 0, 0.3, 0.0)
    gap = duality.gap(problem, np.zeros(8), 0.0, duality.make_feasible_dual(problem, dual))
    assert np.isfinite(gap.value)


@each(LOSSES, "loss")
@each(PENALTIES, "penalty")
def test_a_row_of_weight_zero_has_no_say(loss, penalty):
    """Neither its score nor its dual variable, not even one off the domain, reaches the gap."""
    problem = make(loss, penalty, sample_weight=uneven(40))
    coef, intercept, dual = random_point(problem, 1)
    dual = duality.make_feasible_dual(problem, dual)
    idle = problem.weights == 0.0
    gap = duality.gap(problem, coef, intercept, dual)
    other = duality.gap(problem, coef, intercept, np.where(idle, 1e3, dual))
    assert idle.any() and other.value == gap.value and np.all(other.row_terms[idle] == 0.0)
    assert np.isfinite(duality.dual_value(problem, np.where(idle, 1e3, dual), other.correlations))


@each({name: LOSSES[name] for name in LOSSES if name != "squared"}, "loss")
def test_off_the_domain_the_gap_is_infinite(loss):
    """One dual variable outside the domain of the conjugate is enough."""
    problem = make(loss, glru.L2(0.1))
    dual = duality.make_feasible_dual(problem, random_point(problem, 2)[2])
    lower, upper = loss.derivative_range(problem.y)
    dual[3] = -np.where(np.isfinite(upper), upper + 1e-3, lower - 1e-3)[3]
    gap = duality.gap(problem, np.zeros(8), 0.0, dual)
    assert gap.value == np.inf
    assert duality.dual_value(problem, dual, gap.correlations) == -np.inf


@pytest.mark.parametrize(
    ("penalty", "fit_intercept"), [(glru.L2(0.1), True), (glru.L1(1e-3), False), (glru.L2([0.0, 1.0, 1.0]), False)]
)
def test_violated_constraints_make_the_gap_infinite(penalty, fit_intercept):
    """An unbalanced intercept, a column outside its box, a free column that is not at zero."""
    problem = make(glru.Squared(), penalty, 30, 3, fit_intercept=fit_intercept)
    gap = duality.gap(problem, np.zeros(3), 0.0, problem.y)
    assert gap.value == np.inf
    assert duality.dual_value(problem, problem.y, gap.correlations) == -np.inf


@each(LOSSES, "loss")
def test_gap_does_not_cancel(loss):
    """Near the optimum the gap is far below the rounding error of the primal value, and still right."""
    problem = make(loss, glru.L2(0.5), 200, 3, scaling="sum")
    solution = glru.solve(problem, tol=1e-13)
    nudged = solution.coef + 1e-9
    gap = duality.gap(problem, nudged, 0.0, solution.dual).value
    bend = 3e-18 * problem.penalty.strong_convexity
    assert gap >= 0.5 * bend
    assert gap <= solution.gap + 1e3 * bend if loss.smoothness < np.inf else gap <= solution.gap + 1e-6


def test_gap_bounds_the_distance_to_the_optimum():
    """Theorem 1 (i-P): the optimum lies in the ball around any point, whatever its dual."""
    problem = make(glru.Logistic(), glru.L2(0.05))
    best = glru.solve(problem, tol=1e-13)
    for seed in range(20):
        coef, intercept, dual = random_point(problem, seed)
        gap = duality.gap(problem, coef, intercept, dual).value
        assert np.linalg.norm(coef - best.coef) <= np.sqrt(2.0 * gap / 0.05)
        row = problem.weights @ (dual - best.dual) ** 2
        assert row <= 2.0 * problem.loss.smoothness * gap


@pytest.mark.parametrize("exponent", [-600, 600])
def test_moves_that_meet_the_constraints_have_no_unit(exponent):
    """Residuals and weights times a power of two ask for the same moves, though the squares of residuals underflow."""
    unit = 2.0**exponent
    residual, sizes, gram = np.array([0.3, -0.1]), np.array([1.0, 2.0]), np.array([[2.0, 0.5], [0.5, 1.0]])
    plain = duality.move_sizes(residual, sizes, gram, 10)
    assert np.all(plain > 0.1)
    assert duality.move_sizes(unit * residual, unit * sizes, unit * gram, 10) == pytest.approx(plain, rel=1e-12)


def test_moves_that_meet_the_constraints_do_not_depend_on_the_units_of_columns():
    residual, sizes, gram = np.array([0.3, -0.1]), np.array([1.0, 2.0]), np.array([[2.0, 0.5], [0.5, 1.0]])
    plain, units = duality.move_sizes(residual, sizes, gram, 10), np.array([2.0**40, 2.0**-30])
    found = duality.move_sizes(units * residual, units * sizes, gram * units * units[:, None], 10)
    np.testing.assert_allclose(units * found, plain, rtol=1e-12)
