"""A training converges from any start from which it converges at all, and hinge losses converge on wide data."""

import itertools

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale

import glru
from tests.cases import each, make
from tests.core import Stop, newton
from tests.rows.data import in_blocks

SMOOTH = {
    "logistic": glru.Logistic(),
    "squared-hinge": glru.SquaredHinge(),
    "smoothed-hinge": glru.SmoothedHinge(),
    "squared": glru.Squared(),
    "huber": glru.Huber(),
}
HINGES = {"squared-hinge": glru.SquaredHinge(), "smoothed-hinge": glru.SmoothedHinge(), "hinge": glru.Hinge()}
SHAPES = {"tall": (40, 4), "square": (30, 30), "wide": (20, 60)}


def uneven(n, d, seed, spread=1.0):
    """Columns of unequal size, classes that overlap a little."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d)) * np.exp(spread * random.normal(size=d))
    y = X[:, 0] + random.normal(size=n) * X.std() > 0.0
    y[:2] = True, False
    return X, y


def problem_of(loss, penalty, shape, seed, **options):
    X, y = uneven(*SHAPES[shape], seed)
    target = y if loss.task == "classification" else X[:, 0] + np.random.default_rng(seed).normal(size=len(y))
    return glru.Problem(X, target, loss, penalty, **options)


def starts_of(solution, seed):
    """Points near and far, and multiples of the optimum, whose objective may still be below that of zero."""
    random = np.random.default_rng(seed)
    for size in (1.0, 100.0, 1e3, 1e6):
        yield glru.Point(size * random.normal(size=solution.coef.size), float(size * random.normal()))
    for size in (2.0, 10.0, 100.0, 1e4):
        yield glru.Point(size * solution.coef, size * solution.intercept)
    yield glru.Point(solution.coef, solution.intercept + 1e3)


@each(SMOOTH, "loss")
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_any_start(loss, fit_intercept, shape):
    for seed, lam in enumerate((10.0, 1e-2, 1e-5)):
        problem = problem_of(loss, glru.L2(lam), shape, seed, fit_intercept=fit_intercept)
        cold = glru.solve(problem)
        assert cold.status == "converged"
        for start in starts_of(cold, seed):
            assert glru.solve(problem, start=start).status == "converged"


@pytest.mark.parametrize("solver", ["newton", "newton-cg", "prox-newton"])
def test_any_start_of_a_named_solver(solver):
    problem = problem_of(glru.Logistic(), glru.L2(1e-2), "tall", 3, fit_intercept=True)
    cold = glru.solve(problem, solver=solver)
    for start in starts_of(cold, 3):
        assert glru.solve(problem, solver=solver, start=start).status == "converged"


def test_any_start_with_absolute_values():
    problem = problem_of(glru.Logistic(), glru.ElasticNet(1e-2, 1e-3), "wide", 4, fit_intercept=True)
    cold = glru.solve(problem)
    for start in starts_of(cold, 4):
        assert glru.solve(problem, start=start).status == "converged"


def test_any_start_in_blocks(tmp_path):
    X, y = uneven(400, 4, 5)
    for lam in (10.0, 1e-3):
        in_memory = glru.Problem(X, y, penalty=glru.L2(lam), fit_intercept=True)
        problem = in_blocks(tmp_path, in_memory)
        cold = glru.solve(problem)
        for size in (100.0, 1e4):
            start = glru.Point(size * np.ones(4), -size)
            assert glru.solve(problem, start=start).status == cold.status == "converged"


def test_a_start_worse_than_zero_is_not_taken():
    problem = make(glru.Logistic(), glru.L2(1.0), 30, 4, fit_intercept=True)
    far = glru.Point(np.full(4, 1e3), 1e3)
    assert glru.solve(problem, start=far).n_iter == glru.solve(problem).n_iter


@pytest.mark.parametrize("scaled", [True, False])
def test_retraining_after_added_columns(scaled):
    """A column of any size may come; what was trained before it is a start like any other."""
    X, y = load_breast_cancer(return_X_y=True)
    X, y = (scale(X) if scaled else X)[:200], y[:200]
    for lam, column in itertools.product((1e-3, 1e-5), range(6)):
        solution = glru.solve(glru.Problem(np.delete(X, column, axis=1), y, penalty=glru.L2(lam), fit_intercept=True))
        for size in (1.0, 100.0):
            out = glru.after(solution, glru.AddColumns(size * X[:, [column]]))
            assert out.retrain().status == "converged"


@each(HINGES, "loss")
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("lam", [1e-2, 1e-4, 1e-8])
@pytest.mark.parametrize("shape", [(62, 500), (40, 40), (75, 40)])
def test_hinge_losses_on_nearly_separable_data(loss, fit_intercept, lam, shape):
    """Which rows are at the kink is not guessed row by row."""
    for spread in (0.0, 2.0):
        X, y = uneven(*shape, seed=1, spread=spread)
        tol = 1e-7 if isinstance(loss, glru.Hinge) else 1e-10
        solution = glru.solve(glru.Problem(X, y, loss, glru.L2(lam), fit_intercept=fit_intercept), tol=tol)
        assert solution.status == "converged"


def test_the_interior_point_solver_by_name():
    for loss in HINGES.values():
        problem = make(loss, glru.L2(1e-3), 40, 4, fit_intercept=True)
        found = glru.solve(problem, solver="interior-point", tol=1e-9)
        assert found.status == "converged" and found.solver == "interior-point"
        assert found.primal_value == pytest.approx(glru.solve(problem, tol=1e-11).primal_value, rel=1e-8)
    with pytest.raises(ValueError, match="one of the hinge losses"):
        glru.solve(make(glru.Logistic(), glru.L2(1e-3), 40, 4), solver="interior-point")


def test_a_penalty_that_leaves_no_column():
    """No column is worth its price: there is no system to solve, in a training or in a candidate."""
    problem = make(glru.Logistic(), glru.ElasticNet(1.0, 100.0), 30, 4)
    solution = glru.solve(problem)
    assert solution.status == "converged" and not solution.coef.any()
    out = glru.after(solution, glru.RemoveRows([0]), candidate="newton")
    lower, upper = out.score_bounds(problem.X)
    assert np.all(lower <= 0.0) and np.all(upper >= 0.0)


@pytest.mark.parametrize("loss", [glru.Squared(), glru.Huber(), glru.Logistic()])
def test_elastic_nets_on_columns_of_unequal_size(loss):
    """Coordinate descent creeps there; an active set finds the signs."""
    for seed, (lam, kappa) in enumerate([(1e-3, 1e-4), (1e-5, 1e-4), (1e-6, 1e-8)]):
        X, y = uneven(30, 80, seed, spread=3.0)
        target = y if loss.task == "classification" else X[:, 0] + np.random.default_rng(seed).normal(size=30) * X.std()
        problem = glru.Problem(X, target, loss, glru.ElasticNet(lam, kappa), fit_intercept=seed == 1)
        assert glru.solve(problem, tol=1e-8).status == "converged"


@pytest.mark.parametrize("shape", SHAPES)
def test_vanished_curvatures_are_damped(shape):
    """A run gets away from any start by itself, without the training from zero that would follow it."""
    for seed, lam in enumerate((1.0, 1e-2, 1e-4)):
        problem = problem_of(glru.Logistic(), glru.L2(lam), shape, seed, fit_intercept=True)
        with np.errstate(all="ignore"):
            runs = [newton(problem, start, Stop(1e-6, None, 100)) for start in starts_of(glru.solve(problem), seed)]
        assert all(run.status == "converged" for run in runs)
