"""Results of statsmodels in place of a problem: refits by statsmodels itself are inside every interval, and what is not known is refused."""

import warnings

import numpy as np
import pytest

import glru
from glru.statsmodels import to_problem

sm = pytest.importorskip("statsmodels.api")
smf = pytest.importorskip("statsmodels.formula.api")
pd = pytest.importorskip("pandas")

N = 60
RANDOM = np.random.default_rng(3)
X = np.column_stack([np.ones(N), RANDOM.normal(size=(N, 2)), 1e3 * RANDOM.lognormal(size=N)])
SCORES = X @ [0.3, 0.6, -0.4, 2e-4]
LABELS = (RANDOM.uniform(size=N) < 1.0 / (1.0 + np.exp(-SCORES))).astype(float)
TRIALS = RANDOM.integers(1, 9, size=N).astype(float)
SUCCESSES = RANDOM.binomial(TRIALS.astype(int), 1.0 / (1.0 + np.exp(-SCORES))).astype(float)
SUCCESSES[:3] = TRIALS[:3]
COUNTS = RANDOM.poisson(np.exp(SCORES)).astype(float)
AMOUNTS = RANDOM.gamma(2.0, 0.5 * np.exp(SCORES))
NUMBERS = SCORES + RANDOM.normal(size=N)
EXPOSURE, OFFSET = RANDOM.uniform(0.5, 3.0, size=N), RANDOM.normal(0.0, 0.5, size=N)
WEIGHTS, COPIES = RANDOM.uniform(0.2, 4.0, size=N), RANDOM.integers(1, 4, size=N).astype(float)
log = sm.families.links.Log
TIGHT = {"tol": 1e-14, "maxiter": 500}
NEWTON = {"disp": 0, "method": "newton", "tol": 1e-13, "maxiter": 200}


def glm(y, family, **options):
    return lambda k: sm.GLM(y[k], X[k], family=family(), **{name: value[k] for name, value in options.items()}).fit(
        **TIGHT
    )


# Each fits the rows that are kept.
FITS = {
    "ols": lambda k: sm.OLS(NUMBERS[k], X[k]).fit(),
    "wls": lambda k: sm.WLS(NUMBERS[k], X[k], weights=WEIGHTS[k]).fit(),
    "logit": lambda k: sm.Logit(LABELS[k], X[k]).fit(**NEWTON),
    "logit-two-shares": lambda k: sm.Logit(0.2 + 0.6 * LABELS[k], X[k]).fit(**NEWTON),
    "logit-offset": lambda k: sm.Logit(LABELS[k], X[k], offset=OFFSET[k]).fit(**NEWTON),
    "poisson": lambda k: sm.Poisson(COUNTS[k], X[k], exposure=EXPOSURE[k], offset=OFFSET[k]).fit(**NEWTON),
    "glm-gaussian": glm(NUMBERS, sm.families.Gaussian, offset=OFFSET, var_weights=WEIGHTS, freq_weights=COPIES),
    "glm-binomial": glm(LABELS, sm.families.Binomial, freq_weights=COPIES),
    "glm-shares": glm(SUCCESSES / TRIALS, sm.families.Binomial, var_weights=TRIALS),
    "glm-counts": glm(
        np.column_stack([SUCCESSES, TRIALS - SUCCESSES]), sm.families.Binomial, offset=OFFSET, freq_weights=COPIES
    ),
    "glm-poisson": glm(COUNTS, sm.families.Poisson, exposure=EXPOSURE, offset=OFFSET, freq_weights=COPIES),
    "glm-gamma": glm(AMOUNTS, lambda: sm.families.Gamma(log()), var_weights=WEIGHTS),
    "glm-tweedie": glm(COUNTS, lambda: sm.families.Tweedie(var_power=1.6, link=log()), exposure=EXPOSURE),
    "glm-tweedie-1": glm(COUNTS + 1.0, lambda: sm.families.Tweedie(var_power=1.0, link=log()), exposure=EXPOSURE),
    "glm-tweedie-2": glm(AMOUNTS, lambda: sm.families.Tweedie(var_power=2.0, link=log())),
    "glm-negative-binomial": glm(COUNTS, lambda: sm.families.NegativeBinomial(alpha=0.7), exposure=EXPOSURE),
}
ALL = np.arange(N)


@pytest.fixture(scope="module", params=FITS)
def fitted(request):
    return request.param, FITS[request.param](ALL)


def test_influence(fitted):
    """Parameters and standard errors are those of the fit; without a row, those of another fit."""
    name, fit = fitted
    result = glru.influence(fit, width=1e-5)
    assert result.coef_names == fit.model.exog_names
    np.testing.assert_allclose(result.coef, fit.params, rtol=1e-6)
    # Of a link that is not canonical, statsmodels' information is the expected one, ours the observed one.
    canonical = not any(word in name for word in ("gamma", "tweedie", "negative"))
    np.testing.assert_allclose(result.standard_errors, fit.bse, rtol=1e-6 if canonical else 0.3)
    low, high = result.dispersion
    assert low * (1 - 1e-6) <= fit.scale <= high * (1 + 1e-6)
    rows = [0, 7, int(result.top(1).rows[0])]
    lower, upper = result.dfbeta(rows)
    for k, row in enumerate(rows):
        moved, off = fit.params - FITS[name](row != ALL).params, 1e-6 * fit.bse
        assert np.all(lower[k] - off <= moved) and np.all(moved <= upper[k] + off)
    assert np.all(upper - lower <= 1e-3 * fit.bse)


def test_jackknife(fitted):
    name, fit = fitted
    groups = ALL // 5
    result = glru.jackknife(fit, groups=groups, width=1e-6)
    moves = np.array([FITS[name](groups != g).params - fit.params for g in range(N // 5)])
    errors = np.sqrt((1 - 5 / N) * (moves**2).sum(axis=0))
    lower, upper = result.standard_error_bounds
    assert np.all(lower * (1 - 1e-6) <= errors) and np.all(errors <= upper * (1 + 1e-6))


def test_held_out_scores(fitted):
    """Leave-one-out, folds and a single change; the offset of a row is part of its score, but for least squares."""
    name, fit = fitted
    offset = to_problem(fit).offset
    known = glru.loocv(fit, width=1e-5)
    folds = glru.cross_val_predict(fit, cv=3, width=1e-5)
    for row in (0, 31):
        score = X[row] @ FITS[name](row != ALL).params + offset[row]
        assert known.bounds.lower[row] - 1e-6 <= score <= known.bounds.upper[row] + 1e-6
        out = glru.after(fit, glru.RemoveRows([row]))
        lower, upper = out.score_bounds(X[row : row + 1])
        assert lower[0] - 1e-6 <= score - offset[row] <= upper[0] + 1e-6 <= lower[0] + 1e-2
    for k in range(3):
        kept = np.ones(N, dtype=bool)
        kept[folds.rows[folds.folds == k]] = False
        scores = X[~kept] @ FITS[name](kept).params + offset[~kept]
        here = folds.folds == k
        order = np.argsort(folds.rows[here])
        assert np.all(folds.bounds.lower[here][order] - 1e-6 <= scores) and np.all(
            scores <= folds.bounds.upper[here][order] + 1e-6
        )


def test_formulas_and_missing_rows():
    """Names of the formula; rows are those that the model kept."""
    frame = pd.DataFrame({"y": COUNTS, "a": X[:, 1], "g": np.where(X[:, 2] > 0.0, "u", "v"), "t": EXPOSURE})
    frame.loc[4, "a"] = np.nan
    fit = smf.glm("y ~ a + C(g)", data=frame, family=sm.families.Poisson(), exposure=frame["t"])
    fit = fit.fit(**TIGHT)
    result = glru.influence(fit)
    assert result.coef_names == ["Intercept", "C(g)[T.v]", "a"] and result.n_rows == N - 1
    np.testing.assert_allclose(result.standard_errors, fit.bse, rtol=1e-6)
    with pytest.raises(ValueError, match="groups"):
        glru.jackknife(fit, groups=np.arange(N))


def test_aic_of_a_fit():
    """Stepwise selection by AIC starts at statsmodels' value, and keeps the constant by its name."""
    fit = smf.logit("y ~ a + b + c", pd.DataFrame({"y": LABELS, "a": X[:, 1], "b": X[:, 2], "c": X[:, 3]})).fit(disp=0)
    result = glru.stepwise(fit, criterion="aic", keep=["Intercept"])
    assert result.start_value[0] - 1e-6 <= fit.aic <= result.start_value[1] + 1e-6


def test_information_of_weighted_fits():
    """Values are statsmodels' where weights are copies of rows; weights that are none are refused."""
    counts = np.column_stack([SUCCESSES, TRIALS - SUCCESSES])
    poisson, binomial = sm.families.Poisson, sm.families.Binomial
    for fit in (glm(COUNTS, poisson, freq_weights=COPIES)(ALL), glm(LABELS, binomial, freq_weights=COPIES)(ALL)):
        for criterion, value in (("aic", fit.aic), ("bic", fit.bic_llf)):
            low, high = glru.stepwise(fit, criterion=criterion, max_steps=0).start_value
            assert low - 1e-5 <= value <= high + 1e-5
    low, high = glru.stepwise(glm(counts, binomial)(ALL), criterion="aic", max_steps=0).start_value
    assert low - 1e-5 <= glm(counts, binomial)(ALL).aic <= high + 1e-5
    for criterion, fit in (
        ("aic", FITS["wls"](ALL)),
        ("aic", glm(COUNTS, poisson, var_weights=WEIGHTS)(ALL)),
        ("aic", FITS["glm-counts"](ALL)),
        ("bic", glm(counts, binomial)(ALL)),
    ):
        for ask in (glru.stepwise, glru.feature_importance):
            with pytest.raises(ValueError, match=f"criterion '{criterion}' counts weights as repeated rows"):
                ask(fit, criterion=criterion)


def test_a_penalty_beside_the_likelihood():
    """The optimum of fit_regularized, which keeps no strength to be read from its results."""
    model = sm.GLM(COUNTS, X[:, :3], family=sm.families.Poisson())
    theirs = model.fit_regularized(alpha=0.1, L1_wt=0.0, cnvrg_tol=1e-14, maxiter=1000)
    ours = glru.solve(to_problem(model, glru.L2(0.1), "mean"), tol=1e-12)
    np.testing.assert_allclose(ours.coef, theirs.params, rtol=1e-4)


def constrained():
    return sm.GLM(COUNTS, X[:, :3], family=sm.families.Poisson()).fit_constrained(([[0.0, 1.0, 1.0]], [0.0]))


REFUSED = {
    "link": (
        lambda: sm.GLM(AMOUNTS, X[:, :1], family=sm.families.Gamma()).fit(),
        "Gamma is supported with the Log link; got InversePower",
    ),
    "probit": (lambda: sm.Probit(LABELS, X).fit(disp=0), r"got .*Probit\. Its loss has no proof"),
    "alpha": (lambda: sm.NegativeBinomial(COUNTS, X[:, :3]).fit(disp=0), r"estimates alpha .* fit sm\.GLM"),
    "gls": (lambda: sm.GLS(NUMBERS, X, sigma=WEIGHTS).fit(), r"Whiten the data"),
    "family": (
        lambda: sm.GLM(AMOUNTS, X, family=sm.families.InverseGaussian(log())).fit(),
        "got a GLM of the family InverseGaussian",
    ),
    "power": (
        lambda: sm.GLM(AMOUNTS, X, family=sm.families.Tweedie(var_power=3.0, link=log())).fit(),
        "power from 1 to 2; got var_power=3",
    ),
    "regularised": (
        lambda: sm.GLM(COUNTS, X[:, :3], family=sm.families.Poisson()).fit_regularized(alpha=0.1),
        r"got those of fit_regularized\(\)",
    ),
    "regularised-ols": (lambda: sm.OLS(NUMBERS, X).fit_regularized(alpha=0.1), r"got those of fit_regularized\(\)"),
    "regularised-logit": (
        lambda: sm.Logit(LABELS, X[:, :3]).fit_regularized(alpha=0.1, disp=0),
        r"got those of fit_regularized\(\)",
    ),
    "constrained": (constrained, r"got those of fit_constrained\(\)"),
    "model": (lambda: sm.OLS(NUMBERS, X), r"got OLS, a model\. Call its fit\(\)"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_refused(name):
    make, message = REFUSED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = make()
    for ask in (glru.influence, glru.jackknife, glru.loocv):
        with pytest.raises((TypeError, ValueError), match=message):
            ask(fit)


def test_data_beside_a_fit():
    with pytest.raises(TypeError, match=r"holds its data; glru\.influence also got X, y"):
        glru.influence(FITS["ols"](ALL), X, NUMBERS)


def test_no_optimum():
    """Two columns that depend on each other, which statsmodels fits by a pseudo-inverse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = sm.OLS(NUMBERS, np.column_stack([X, X[:, 1]])).fit()
    with pytest.raises(ValueError, match="unpenalised columns are linearly dependent"):
        glru.influence(fit)
    y = np.column_stack([np.where(X[:, 1] > 0.0, 5.0, 0.0), np.where(X[:, 1] > 0.0, 0.0, 5.0)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = sm.GLM(y, X[:, :2], family=sm.families.Binomial()).fit()
    with pytest.raises(ValueError, match="rows with y = 0 or 1 can move on for ever"):
        glru.influence(fit)
