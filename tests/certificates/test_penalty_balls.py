"""Balls in the metric of the penalty around models without one row each, against precise retrainings, from any model."""

import numpy as np
import pytest

import glru
from glru.verify.retraining import retrain
from tests.core import LocalRows, removal_factors

LOSSES = {"logistic": glru.Logistic(), "poisson": glru.Poisson()}
N_ROWS, N_COLUMNS = 16, 3


def make(loss, fit_intercept, scaling, seed):
    """Columns in unlike units, far from the origin, some strengths far above others, rows without weight."""
    random = np.random.default_rng(seed)
    units = 10.0 ** random.uniform(-1.0, 1.0, N_COLUMNS)
    X = (random.normal(size=(N_ROWS, N_COLUMNS)) + random.normal(size=N_COLUMNS)) * units
    z = X / units @ random.normal(size=N_COLUMNS)
    y = random.poisson(np.exp(0.5 * z)) if loss == "poisson" else np.where(z + random.logistic(size=N_ROWS) > 0, 1, -1)
    if loss == "logistic":
        y[:6] = [-1, 1, -1, 1, -1, 1]
    strengths = 10.0 ** random.uniform(-2.0, 0.5, N_COLUMNS) * np.square(units)
    weights = np.append([1.0] * 6, random.choice([0.0, 0.5, 3.0], N_ROWS - 6)) if scaling == "sum" else np.ones(N_ROWS)
    return glru.Problem(X, y, LOSSES[loss], glru.L2(strengths), fit_intercept, scaling, sample_weight=weights)


def moved_models(problem, row, random, sizes):
    """Models near the one without a row, one per column: farther and farther away."""
    point = glru.solve(problem.without(np.array([row])), tol=1e-14).point
    model = point.pack(problem.fit_intercept)
    spread = np.append(1.0 / np.abs(problem.X).max(axis=0), 1.0)[: model.size]
    return model[:, None] + random.normal(size=(model.size, sizes.size)) * spread[:, None] * sizes


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scaling", ["mean", "sum"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_balls_hold_the_retrained_score(loss, fit_intercept, scaling, seed):
    """At models that rounding alone moves from the optimum, and at others up to where nothing is proven."""
    problem, random, sizes = (
        make(loss, fit_intercept, scaling, seed),
        np.random.default_rng(seed),
        10.0 ** np.arange(-17.0, 2.0),
    )
    factor = float(removal_factors(problem)[0])
    family, proven = LocalRows(glru.solve(problem, tol=1e-12), factor), []
    for row in range(0, N_ROWS, 3):
        models, rows = moved_models(problem, row, random, sizes), np.full(sizes.size, row)
        factors = np.full(sizes.size, factor)
        truth = retrain(problem.without(np.array([row])), 40).scores(problem.X[[row]])[0][0]
        half = np.empty(sizes.size)
        for k in range(sizes.size):  # one at a time: a row is left out of one model of a batch only
            one = slice(k, k + 1)
            found = family.gradients.at(models[:, one], rows[one], factors[one])
            half[one] = family.balls.half_widths(found, models[:, one], rows[one], factors[one])
            half[one] += np.sqrt(problem.squared_row_norms[row]) * found.score_errors[0] + found.score_errors[1]
        centers = problem.X[row] @ models[:N_COLUMNS] + (models[-1] if fit_intercept else 0.0)
        assert all(abs(truth - float(center)) <= width for center, width in zip(centers, half, strict=True))
        proven.append(np.isfinite(half))
    assert 0.3 < np.mean(proven) < 1.0 and np.all(np.array(proven)[:, :5])


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_errors_of_slopes_make_no_larger_gradients(fit_intercept):
    """What slopes that err do to gradients, in the metric of the Hessian and in that of the penalty, is at most what is said: the spectral norm."""
    random = np.random.default_rng(3)
    for noise in (1.0, 1e-3, 1e-6):
        X = random.normal(size=(40, 4)) * [1.0, 30.0, 0.01, 1.0]
        X[:, 3] = X[:, 0] + noise * X[:, 3]
        y = np.where(X[:, 0] + random.logistic(size=40) > 0.0, 1, -1)
        problem = glru.Problem(X, y, penalty=glru.L2([1.0, 1e-3, 1e-8, 0.1]), fit_intercept=fit_intercept)
        family = LocalRows(glru.solve(problem, tol=1e-12), 40 / 39)
        gradients = family.gradients
        rows = np.column_stack([X, np.ones(40)]) if fit_intercept else X
        weights = np.sqrt(problem.weights * 40 / 39)[:, None]
        spectral = np.linalg.norm(weights * np.linalg.solve(gradients.metric.factor.T, rows.T).T, 2)
        assert spectral <= gradients.slope_norm * (1.0 + 1e-9)
        penalty = np.linalg.norm(weights * X / np.sqrt(problem.quadratic), 2)
        assert penalty <= family.balls._spectral_norm * (1.0 + 1e-9) < 1.5 * penalty


def test_nearly_separable_rows_step_together():
    """Hundreds of columns and a weak penalty: removals move scores far, and every score is still proven in batches."""
    random = np.random.default_rng(11)
    X = random.normal(size=(90, 60))
    y = np.where(X[:, :5].sum(axis=1) + 2.0 * random.logistic(size=90) > 0.0, 1, -1)
    problem = glru.Problem(X, y, penalty=glru.L2(0.1), fit_intercept=True, scaling="sum")
    result = glru.loocv(problem, width=1e-6)
    assert result.decided_by["newton"] > 70
    naive = glru.loocv(problem, method="naive", tol=1e-14)
    assert np.array_equal(result.labels, naive.labels)
