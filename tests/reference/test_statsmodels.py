"""Influence and the jackknife against statsmodels: its closed forms of least squares, and exact refits of its bundled data."""

import mpmath
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


def generalised(name):
    """A fit of statsmodels to bundled data in their own units."""
    found = getattr(sm.datasets, name).load()
    y, design, families = np.asarray(found.endog, dtype=float), sm.add_constant(found.exog), sm.families
    if name in ("spector", "fair"):
        return sm.Logit((y > 0.0).astype(float), design).fit(disp=0, method="newton", tol=1e-12)
    family = {"scotland": families.Gamma(families.links.Log()), "cpunish": families.Poisson()}.get(name)
    return sm.GLM(y, design, family=family or families.Binomial()).fit(tol=1e-12)


class Refits:
    """Models without a row in 50 digits: Newton's method with gradients in these and Hessians in float64, which gain their digits at every step."""

    def __init__(self, problem):
        mpmath.mp.dps = 50
        self.loss, self.X = type(problem.loss).__name__, decimals(problem.X)
        self.y, self.weights, self.numbers = decimals(problem.targets), decimals(problem.weights), problem.X

    def derivatives(self, scores):
        exp, y = np.frompyfunc(mpmath.exp, 1, 1), self.y
        if self.loss == "Gamma":
            ratio = y * exp(-scores)
            return 1 - ratio, ratio
        if self.loss == "Poisson":
            return exp(scores) - y, exp(scores)
        p = 1 / (1 + exp(-scores))
        return p - (y > 0 if self.loss == "Logistic" else y), p * (1 - p)

    def fit(self, start, left_out=None):
        weights = self.weights.copy()
        if left_out is not None:
            weights[left_out] = mpmath.mpf(0)
        model = decimals(start)
        for _ in range(60):
            slopes, curvatures = self.derivatives(self.X @ model)
            scale = np.sqrt((weights * curvatures).astype(float))[:, None] * self.numbers
            units = np.linalg.norm(scale, axis=0)
            gradient = (self.X.T @ (weights * slopes)).astype(float) / units
            step = np.linalg.lstsq((scale / units).T @ (scale / units), gradient, rcond=None)[0] / units
            model = model - decimals(step)
            if np.all(np.abs(step) <= 1e-30 * np.abs(model.astype(float))):
                return model
        raise AssertionError("the refit has not converged")


def decimals(values):
    return np.frompyfunc(mpmath.mpf, 1, 1)(np.asarray(values, dtype=float)).astype(object)


def quantities(refits, start, rows):
    """Every quantity of some rows by its definition."""
    full = refits.fit(start)
    slopes, curvatures = refits.derivatives(refits.X @ full)
    hessian = (refits.X.T * (refits.weights * curvatures)) @ refits.X
    inverse = np.array((mpmath.matrix(hessian.tolist()) ** -1).tolist(), dtype=object)
    n, size = refits.X.shape
    dispersion = np.sum(slopes**2) / (n - size) if refits.loss == "Gamma" else mpmath.mpf(1)
    errors = np.array([mpmath.sqrt(dispersion * inverse[j, j]) for j in range(size)], dtype=object)
    for row in rows:
        model = refits.fit(full.astype(float), row)
        x, move = refits.X[row], full - model
        norm = mpmath.sqrt(x @ inverse @ x)
        yield (
            row,
            {
                "leverage": refits.weights[row] * curvatures[row] * norm**2,
                "cooks_distance": move @ hessian @ move / (size * dispersion),
                "score_change": x @ move,
                "dffits": x @ move / (mpmath.sqrt(dispersion) * norm),
                "held_out_score": x @ model,
                "deletion_residual": -refits.derivatives(refits.X @ model)[0][row],
                "dfbeta": move,
                "dfbetas": move / errors,
            },
        )


@pytest.mark.parametrize("name", ["spector", "scotland", "cpunish", "star98", "fair"])
@pytest.mark.filterwarnings("ignore")
def test_every_quantity_of_generalised_models_of_bundled_data(name):
    """Against refits in 50 digits, in the units of the data: nothing is outside its interval, and nothing was trained."""
    fit = generalised(name)
    result = glru.influence(fit)
    n = result.n_rows
    assert result.n_trainings == 0 and "open" not in result.decided_by
    rows = range(n) if n <= 40 else [n // 2, *result.top(1).rows]
    ends = {key: result.measure_bounds(key) for key in ("leverage", "cooks_distance", "score_change", "dffits")}
    ends |= {key: result.measure_bounds(key) for key in ("held_out_score", "deletion_residual")}
    ends |= {"dfbeta": result.dfbeta(), "dfbetas": result.dfbetas()}
    for row, values in quantities(Refits(result.problem), result.coef, [int(row) for row in rows]):
        for key, value in values.items():
            lower, upper = (part[row] for part in ends[key])
            assert np.all(lower <= value) and np.all(value <= upper), (key, row)
