"""Influence and the jackknife against statsmodels: its closed forms of least squares, and exact refits of its bundled data."""

import numpy as np
import pytest

import glru

sm = pytest.importorskip("statsmodels.api")


def spector():
    found = sm.datasets.spector.load()
    return np.asarray(found.exog, dtype=float), np.asarray(found.endog, dtype=float)


def fair():
    found = sm.datasets.fair.load()
    return np.asarray(found.exog, dtype=float)[::8], (np.asarray(found.endog)[::8] > 0.0).astype(float)


def numbers(name, target):
    found = getattr(sm.datasets, name).load()
    return np.asarray(found.exog, dtype=float), np.asarray(found.endog, dtype=float).reshape(len(found.exog), -1)[
        :, target
    ]


DATA = {
    "scotland": lambda: numbers("scotland", 0),
    "cpunish": lambda: numbers("cpunish", 0),
    "star98": lambda: numbers("star98", 0),
}


def unpenalised(X, y, loss):
    # statsmodels' data sets bring no constant column, but for star98's.
    X = X[:, X.std(axis=0) > 0.0]
    return glru.Problem(X, y, loss, glru.L2(np.zeros(X.shape[1])), fit_intercept=True, scaling="sum")


@pytest.mark.parametrize("name", DATA)
def test_least_squares_of_bundled_data(name):
    """Columns of very different units: every value of OLSInfluence is within its interval, up to its own rounding."""
    X, y = DATA[name]()
    problem = unpenalised(X, y, glru.Squared())
    result = glru.influence(problem)
    fit = sm.OLS(y, np.column_stack([problem.X, np.ones(len(y))])).fit()
    known = fit.get_influence()
    pairs = {
        "cooks_distance": known.cooks_distance[0],
        "leverage": known.hat_matrix_diag,
        "dffits": known.dffits_internal[0],
        "deletion_residual": known.resid_press,
    }
    for quantity, values in pairs.items():
        lower, upper = result.measure_bounds(quantity)
        off = 1e-5 * np.abs(values).max()
        assert np.all(lower - off <= values) and np.all(values <= upper + off), quantity
        assert np.all(upper - lower <= off), quantity
    np.testing.assert_allclose(result.standard_errors, fit.bse, rtol=1e-5)


@pytest.mark.parametrize("load", [spector, fair])
def test_logit_of_bundled_data(load):
    """Refits by statsmodels are within the intervals, up to their own precision; one step is not."""
    X, y = load()
    problem = unpenalised(X, y, glru.Logistic())
    result = glru.influence(problem, width=1e-5)
    design = np.column_stack([problem.X, np.ones(len(y))])
    options = {"disp": 0, "method": "newton", "tol": 1e-12, "maxiter": 100}
    fit = sm.Logit(y, design).fit(**options)
    np.testing.assert_allclose(result.standard_errors, fit.bse, rtol=1e-5)
    top = result.top(5)
    assert top.certified
    lower, upper = result.dfbeta(top.rows)
    for k, row in enumerate(top.rows):
        kept = np.arange(len(y)) != row
        moved = fit.params - sm.Logit(y[kept], design[kept]).fit(start_params=fit.params, **options).params
        off = 1e-6 * result.standard_errors
        assert np.all(lower[k] - off <= moved) and np.all(moved <= upper[k] + off)
    step = np.asarray(fit.get_influence().d_params)[top.rows]
    assert np.any((step < lower) | (step > upper))
    assert result.n_trainings == 0


def test_the_cluster_jackknife_is_a_loop_of_fits():
    X, y = fair()
    problem, groups = unpenalised(X, y, glru.Logistic()), np.arange(len(y)) % 25
    result = glru.jackknife(problem, groups=groups, width=1e-5)
    design = np.column_stack([problem.X, np.ones(len(y))])
    options = {"disp": 0, "tol": 1e-12, "maxiter": 100}
    fit = sm.Logit(y, design).fit(**options)
    models = [sm.Logit(y[groups != g], design[groups != g]).fit(**options).params for g in range(25)]
    moves = np.array(models) - fit.params
    np.testing.assert_allclose(result.covariance, 24 / 25 * moves.T @ moves, rtol=1e-3, atol=1e-9)
    lower, upper = result.standard_error_bounds
    errors = np.sqrt(24 / 25 * (moves**2).sum(axis=0))
    assert np.all(lower <= errors * (1 + 1e-7)) and np.all(errors <= upper * (1 + 1e-7))


GLMS = {
    "scotland": (glru.Gamma(), lambda: sm.families.Gamma(sm.families.links.Log())),
    "cpunish": (glru.Poisson(), sm.families.Poisson),
    "star98": (glru.Poisson(), sm.families.Poisson),
}


@pytest.mark.parametrize("name", GLMS)
def test_generalised_linear_models_of_bundled_data(name):
    """Refits by statsmodels without the rows of largest Cook's distance are within the intervals, up to their own precision."""
    loss, family = GLMS[name]
    X, y = DATA[name]()
    X = X[:, X.std(axis=0) > 0.0]
    problem = unpenalised((X - X.mean(axis=0)) / X.std(axis=0), y, loss)
    result, design = glru.influence(problem, width=1e-5), np.column_stack([problem.X, np.ones(len(y))])
    fit = sm.GLM(y, design, family=family()).fit(tol=1e-12, maxiter=200)
    low, high = result.dispersion
    assert low * (1 - 1e-6) <= fit.scale <= high * (1 + 1e-6)
    # Standard errors of statsmodels are those of the expected information, which is the observed one for a canonical link.
    np.testing.assert_allclose(result.standard_errors, fit.bse, rtol=1e-5 if isinstance(loss, glru.Poisson) else 0.05)
    top = result.top(4)
    assert top.certified
    lower, upper = result.dfbeta(top.rows)
    for k, row in enumerate(top.rows):
        kept = np.arange(len(y)) != row
        found = sm.GLM(y[kept], design[kept], family=family()).fit(tol=1e-13, maxiter=300, start_params=fit.params)
        moved, off = fit.params - found.params, 1e-5 * result.standard_errors
        assert np.all(lower[k] - off <= moved) and np.all(moved <= upper[k] + off)
