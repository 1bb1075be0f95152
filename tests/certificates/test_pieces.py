"""Piecewise quadratic losses: leave-one-out between the kinks against precise retrainings, and where rows cross them."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.svm import LinearSVC

import glru
from glru.verify.retraining import retrain
from tests.core import LocalEllipsoid, LocalRows, Point, has_piece_rows, removal_factors

LOSSES = {"squared-hinge": glru.SquaredHinge(), "smoothed-hinge": glru.SmoothedHinge(0.5), "huber": glru.Huber(0.7)}


def problem(loss, n=26, d=3, lam=0.02, fit_intercept=True, seed=0, scaling="mean"):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d)) * 2.0 ** random.integers(-3, 4, d)
    z = (X / X.std(axis=0)) @ random.normal(size=d)
    y = z + random.standard_t(2, n) if loss == "huber" else np.where(z + random.logistic(size=n) > 0.0, 1, -1)
    return glru.Problem(X, y, LOSSES[loss], glru.L2(lam * np.square(X.std(axis=0))), fit_intercept, scaling)


def never(lower, upper):
    return np.zeros(len(lower), dtype=bool)


def scores_without_each_row(asked):
    found = [retrain(asked.without(np.array([row])), 40) for row in range(asked.n_rows)]
    return [truth.scores(asked.X[row : row + 1])[0][0] for row, truth in enumerate(found)]


def inside(lower, exact, upper):
    return all(low <= value <= high for low, value, high in zip(lower, exact, upper, strict=True))


@pytest.mark.parametrize("scaling", ["mean", "sum"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_closed_form_and_steps_hold_the_scores_of_precise_retrainings(loss, fit_intercept, scaling):
    asked = problem(loss, fit_intercept=fit_intercept, scaling=scaling)
    exact, rows = scores_without_each_row(asked), np.arange(asked.n_rows)
    assert has_piece_rows(asked)
    for tol in (1e-12, 1e-2):
        family = LocalRows(glru.solve(asked, tol=tol), float(removal_factors(asked)[0]))
        for bounds in (family.bounds(rows), *(family.refined(rows, never, n_steps) for n_steps in (1, 3, 30))):
            assert inside(bounds[0], exact, bounds[1])
        assert np.mean(bounds[1] - bounds[0] < 1e-9) > 0.3


@pytest.mark.parametrize("loss", LOSSES)
def test_one_step_errs_by_rounding_alone_where_no_row_crosses_a_kink(loss):
    """A closed form that is exact for most rows of many, although hundreds of rows are near kinks."""
    asked = problem(loss, n=4000, d=2, lam=0.1)
    solution = glru.solve(asked, tol=1e-12)
    rows = np.arange(asked.n_rows)
    family = LocalRows(solution, float(removal_factors(asked)[0]))
    lower, upper = family.bounds(rows)
    assert np.mean(upper - lower < 1e-3) > 0.9
    lower, upper = family.refined(rows[:50], never, 1)
    assert np.mean(upper - lower < 1e-9) > 0.3


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("loss", LOSSES)
def test_rows_that_cross_kinks_are_part_of_the_proof(loss, seed):
    """Few rows with much to say each: their removal moves others across kinks, in the closed form and afterwards."""
    asked = problem(loss, n=12, d=2, lam=0.3, fit_intercept=False, seed=seed)
    exact, rows = scores_without_each_row(asked), np.arange(asked.n_rows)
    family = LocalRows(glru.solve(asked, tol=1e-12), float(removal_factors(asked)[0]))
    for bounds in (family.bounds(rows), *(family.refined(rows, never, n_steps) for n_steps in (1, 2))):
        assert inside(bounds[0], exact, bounds[1])


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("shape", [(14, 2), (8, 12)], ids=["tall", "wide"])
@pytest.mark.parametrize("loss", LOSSES)
def test_ellipsoids_of_single_models_hold_the_optimum(loss, shape, fit_intercept):
    """At models near the optimum and at some from which rows cross kinks on the way there."""
    asked, random, proven = (
        problem(loss, *shape, lam=0.3, fit_intercept=fit_intercept, seed=2),
        np.random.default_rng(1),
        [],
    )
    truth = [score for score, _ in retrain(asked, 40).scores(asked.X)]
    point = glru.solve(asked, tol=1e-13).point
    for size in 10.0 ** np.linspace(-14, 0, 29):
        moved = Point(point.coef + size * random.normal(size=shape[1]), point.intercept + fit_intercept * size)
        region = LocalEllipsoid.at(asked, moved)
        lower, upper = region.score_bounds(asked.matrix)
        assert inside(lower, truth, upper)
        proven.append(np.isfinite(region.radius))
    assert 0.3 < np.mean(proven) < 1.0


def test_leave_one_out_of_linear_svc_takes_no_training():
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[::2] / X.std(axis=0), y[::2]
    model = LinearSVC(C=0.5, dual=False)
    result = glru.loocv(model, X, y)
    assert result.n_trainings == 0 and "undetermined" not in result.decided_by
    random = np.random.default_rng(0)
    for row in random.choice(y.size, 12, replace=False):
        kept = np.arange(y.size) != row
        fitted = LinearSVC(C=0.5, dual=False, tol=1e-10).fit(X[kept], y[kept])
        score = fitted.decision_function(X[row : row + 1])[0]
        assert result.score_lower[row] - 1e-3 <= score <= result.score_upper[row] + 1e-3
