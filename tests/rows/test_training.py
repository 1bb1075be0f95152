"""Training in passes over blocks, against training in memory."""

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning

import glru
from tests.cases import LOSSES, each
from tests.core import assemble_gradient, dual_gap, duality, expand, sample_of, solvers, step_length
from tests.decisions.retraining import carefully
from tests.rows.data import SHAPES, in_blocks, make, mapped

SMOOTH = {name: loss for name, loss in LOSSES.items() if name != "hinge"}


def assert_certified(solution, problem):
    """The gap covers the distance from the best model that float64 can find, and is not idle."""
    best = carefully(problem)
    excess = solution.primal_value - best.primal_value
    assert excess <= solution.gap + 1e-13 * best.primal_value
    return excess


@each(SHAPES, "shape")
@each(SMOOTH, "loss")
@pytest.mark.parametrize("solver", ["newton", "newton-cg"])
def test_the_optimum_of_memory(loss, shape, solver, tmp_path):
    problem = make(loss, glru.L2(0.05), seed=1, **shape)
    solution = glru.solve(in_blocks(tmp_path, problem), tol=1e-9, solver=solver)
    assert solution.status == "converged"
    assert solution.relative_gap <= 1e-9
    assert solution.solver == solver
    assert_certified(solution, problem)
    best = carefully(problem)
    np.testing.assert_allclose(solution.coef, best.coef, atol=1e-3 * (1.0 + np.abs(best.coef).max()))


@each(SHAPES, "shape")
@each(SMOOTH, "loss")
def test_a_loose_training_is_certified(loss, shape, tmp_path):
    """Whatever the model, P - P* is at most either gap; both are near it where they exist."""
    problem = make(loss, glru.L2(0.05), seed=2, **shape)
    blocks = in_blocks(tmp_path, problem)
    for size in (0.0, 1e-3, 1e-6):
        best = carefully(problem)
        start = glru.Point(best.coef * (1.0 + size) + size, best.intercept + size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            solution = glru.solve(blocks, tol=1e30, start=start)
        assert solution.n_iter == 0
        excess = assert_certified(solution, problem)
        assert excess <= solution.dual_gap.value + 1e-13 * best.primal_value
        if loss.self_concordance is not None:
            assert excess <= solution.ellipsoid.gap + 1e-13 * best.primal_value
            assert solution.ellipsoid.gap <= 4.0 * excess + 1e-10 * best.primal_value


def test_unpenalised_columns(tmp_path):
    problem = make(glru.Logistic(), glru.L2([0.5, 0.0, 2.0]), 60, 3, fit_intercept=True)
    for loss in (glru.Logistic(), glru.SquaredHinge()):
        blocks = in_blocks(tmp_path, problem.derive(loss=loss))
        for solver in ("newton", "newton-cg"):
            solution = glru.solve(blocks, tol=1e-8, solver=solver)
            assert solution.status == "converged"
            assert_certified(solution, problem.derive(loss=loss))


def test_nearly_separable_data_needs_short_steps(tmp_path):
    """Full Newton steps from zero overshoot here; the line search comes in and training ends all the same."""
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 20)) * 10.0 ** random.integers(-2, 3, 20)
    problem = glru.Problem(X, X[:, 0] > 0.0, penalty=glru.L2(1e-6))
    solution = glru.solve(in_blocks(tmp_path, problem), tol=1e-8)
    assert solution.status == "converged"
    assert_certified(solution, problem)


@pytest.mark.parametrize("fit_intercept", [False, True], ids=["", "intercept"])
def test_the_line_search_comes_near_the_minimum(fit_intercept, tmp_path):
    problem = make(glru.Logistic(), glru.L2(0.01), 60, 3, fit_intercept=fit_intercept)
    blocks = in_blocks(tmp_path, problem)
    point, random = glru.Point(np.array([0.3, -0.2, 0.1]), 0.4 if fit_intercept else 0.0), np.random.default_rng(0)
    for size in (1e-3, 1e-1, 1.0, 10.0, 1e3):
        direction = random.normal(size=3 + fit_intercept)
        slope = assemble_gradient(blocks.totals, point, expand(blocks, point).gradient)
        step = -np.sign(slope @ direction) * size * direction

        def value(length, step=step):
            there = point.move(step, length)
            return duality.primal_value(problem, there.coef, problem.scores(there.coef, there.intercept))

        def derivative(length, step=step):
            there = point.move(step, length)
            return float(assemble_gradient(blocks.totals, there, expand(blocks, there).gradient) @ step)

        def has_fallen(length, value=value):
            return value(length) < value(0.0)

        for known in (None, has_fallen):
            found = step_length(derivative, derivative(0.0), 0.0, known)
            best = minimize_scalar(value, bounds=(0.0, 2.0 * found), method="bounded", options={"xatol": 1e-9 * found})
            assert value(found) <= value(0.0)
            assert value(found) - best.fun <= 0.05 * (value(0.0) - best.fun) + 1e-12
        # Where any descent will do, the full step is taken unless the objective rises.
        first = step_length(derivative, derivative(0.0), 0.0, has_fallen, np.inf)
        assert value(first) < value(0.0)
        assert first == 1.0 or value(1.0) >= value(0.0)
    assert step_length(derivative, 1.0, 0.0) == 0.0  # uphill


def test_a_far_start_and_a_bad_sample(tmp_path, monkeypatch):
    """Both end at the optimum; a first step that fails, from a start or from a sample's model, leads back to zero."""
    problem = make(glru.Logistic(), glru.L2(1e-3), 200, 3)
    blocks = in_blocks(tmp_path, problem)
    far = glru.solve(blocks, tol=1e-8, start=glru.Point(np.array([30.0, -40.0, 20.0])))
    assert far.status == "converged"
    assert_certified(far, problem)
    monkeypatch.setattr(solvers, "_start_in_passes", lambda problem, start: glru.Point(np.array([30.0, -40.0, 20.0])))
    bad = glru.solve(blocks, tol=1e-8)
    assert bad.status == "converged"
    monkeypatch.setattr(solvers, "_start_in_passes", lambda problem, start: glru.Point(np.zeros(3)))
    assert far.n_passes == bad.n_passes == glru.solve(blocks, tol=1e-8).n_passes + 2
    assert_certified(bad, problem)


@pytest.mark.parametrize("seed", range(4))
def test_gap_of_a_point_whose_slopes_do_not_add_up_to_zero(seed, tmp_path):
    """An intercept allows only dual points whose sum is zero: where the slopes have another, the gap is that of a point moved there."""
    problem = make(glru.Logistic(), glru.L2(0.05), n=60, d=4, seed=seed, fit_intercept=True)
    best = carefully(problem)
    coef, intercept = best.coef + 0.01 * np.random.default_rng(seed).normal(size=4), best.intercept + 0.3
    values = problem.loss.value(problem.y, problem.scores(coef, intercept))
    excess = problem.weights @ values + problem.penalty.value(coef).sum() - best.primal_value
    gap = dual_gap(in_blocks(tmp_path, problem), glru.Point(coef, intercept)).value
    assert 0.005 < excess <= gap < 1.0


def test_products_that_do_not_converge_end(tmp_path, monkeypatch):
    """One row is 1e5 times as long as the others: no system is solved."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(8, 38))
    X[3] *= 1e5
    problem = glru.Problem(X, rng.normal(size=8), glru.Squared(), glru.L2(1e-6), fit_intercept=True)
    monkeypatch.setattr("glru.solvers.newton_cg.MAX_PRODUCTS", 50)
    with pytest.warns(ConvergenceWarning):
        solution = glru.solve(in_blocks(tmp_path, problem), tol=1e-8, solver="newton-cg", max_iter=10)
    assert solution.n_passes <= 50 + 3 * 10


def test_a_sample_saves_passes(tmp_path, monkeypatch):
    from tests.core import summary

    problem = make(glru.Logistic(), glru.L2(0.01), 4000, 3)
    cold = glru.solve(in_blocks(tmp_path, problem))
    monkeypatch.setattr(summary, "SAMPLE_ROWS", 800)
    blocks = in_blocks(tmp_path, problem)
    assert 700 <= sample_of(blocks).n_rows <= 802
    assert sample_of(blocks).weights.sum() == pytest.approx(1.0)
    warm = glru.solve(blocks)
    assert warm.n_passes < cold.n_passes
    assert_certified(warm, problem)


def test_passes_are_counted(tmp_path):
    problem = make(glru.Logistic(), glru.L2(0.05), 60, 3)
    blocks = in_blocks(tmp_path, problem)
    assert blocks.traffic.passes == 1.0
    solution = glru.solve(blocks)
    assert solution.n_passes == blocks.traffic.passes - 1.0 == solution.n_iter + 1.0


def test_limits_are_told(tmp_path):
    blocks = in_blocks(tmp_path, make(glru.Logistic(), glru.L2(1e-4), 60, 3))
    with pytest.warns(ConvergenceWarning, match="1 iterations"):
        solution = glru.solve(blocks, tol=1e-12, max_iter=1)
    assert solution.status == "max_iter"
    assert np.isfinite(solution.gap)
    with pytest.warns(ConvergenceWarning, match="stalled"):
        assert glru.solve(blocks, tol=0.0).status == "stalled"
    again = glru.solve(blocks, start=glru.solve(blocks))
    assert again.n_iter == 0


def test_what_cannot_be_trained_is_refused(tmp_path):
    X = mapped(tmp_path, np.arange(12.0).reshape(6, 2))
    y = np.array([0, 1, 0, 1, 1, 0])
    for options in ({"loss": glru.Hinge()}, {"penalty": glru.L1(0.1)}, {"penalty": glru.ElasticNet(0.1, 0.1)}):
        with pytest.raises(ValueError, match="smooth loss and an L2 penalty"):
            glru.solve(glru.Problem(X, y, **options))
    problem = glru.Problem(X, y)
    with pytest.raises(ValueError, match="'auto', 'newton' or 'newton-cg'"):
        glru.solve(problem, solver="dual-cd")
    with pytest.raises(TypeError, match="until"):
        glru.solve(problem, until=lambda state: True)
    with pytest.raises(ValueError, match="tol"):
        glru.solve(problem, tol=-1.0)
    with pytest.raises(ValueError, match="max_iter"):
        glru.solve(problem, max_iter=0)
    with pytest.raises(ValueError, match="2 finite coefficients"):
        glru.solve(problem, start=glru.Point(np.zeros(3)))
    with pytest.raises(TypeError, match="start"):
        glru.solve(problem, start=np.zeros(2))


def test_a_point_moves_in_its_unknowns():
    point = glru.Point(np.array([1.0, 2.0]), 3.0)
    assert np.array_equal(point.pack(True), [1.0, 2.0, 3.0])
    moved = point.move(np.array([1.0, 1.0, 2.0]), 0.5)
    assert np.array_equal(moved.pack(True), [1.5, 2.5, 4.0])
