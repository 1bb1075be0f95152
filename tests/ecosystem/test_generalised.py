"""scikit-learn's generalised linear models: the same coefficients, predictions and scores, proven."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import GammaRegressor, PoissonRegressor, TweedieRegressor
from sklearn.metrics import mean_poisson_deviance
from sklearn.model_selection import KFold, LeaveOneOut, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import glru
from tests.cases import each

TIGHT = {"solver": "newton-cholesky", "tol": 1e-12, "max_iter": 1000}
MODELS = {
    "poisson": PoissonRegressor(alpha=0.1, **TIGHT),
    "poisson-free": PoissonRegressor(alpha=0.0, fit_intercept=False, **TIGHT),
    "gamma": GammaRegressor(alpha=0.5, **TIGHT),
    "tweedie": TweedieRegressor(power=1.5, alpha=0.2, **TIGHT),
    "tweedie-poisson": TweedieRegressor(power=1, alpha=0.2, **TIGHT),
    "tweedie-normal": TweedieRegressor(power=0, alpha=0.2, **TIGHT),
}

every_model = each(MODELS, "model")


def data(model, n=60, d=3, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d))
    y = random.poisson(2.0 * np.exp(0.4 * X[:, 0])).astype(float)
    return X, y + 0.5 if isinstance(model, GammaRegressor) else y, random.integers(1, 4, size=n).astype(float)


@every_model
def test_the_objective_is_that_of_scikit_learn(model):
    X, y, weight = data(model)
    for used in (None, weight):
        model.fit(X, y, sample_weight=used)
        certificate = glru.certify(model, X, y, sample_weight=used)
        assert certificate.relative_gap < 1e-12
        lower, upper = certificate.score_bounds(X)
        scores = X @ model.coef_ + model.intercept_
        assert np.all(lower - 1e-7 <= scores) and np.all(scores <= upper + 1e-7)


@every_model
@pytest.mark.parametrize("cv", [KFold(4), LeaveOneOut()], ids=["folds", "rows"])
def test_predictions_are_means(model, cv):
    X, y, _ = data(model)
    for estimator in (model, make_pipeline(StandardScaler(), model)):
        np.testing.assert_allclose(
            glru.cross_val_predict(estimator, X, y, cv=cv), cross_val_predict(estimator, X, y, cv=cv), rtol=1e-5
        )


@every_model
def test_scores_are_shares_of_the_deviance(model):
    X, y, _ = data(model)
    np.testing.assert_allclose(glru.cross_val_score(model, X, y, cv=4), cross_val_score(model, X, y, cv=4), atol=1e-6)


def test_metrics_of_held_out_rows():
    X, y, _ = data(PoissonRegressor())
    model = MODELS["poisson"]
    means = cross_val_predict(model, X, y, cv=LeaveOneOut())
    result = glru.loocv(model, X, y)
    low, high = result.metric_bounds("deviance")
    assert low <= mean_poisson_deviance(y, means) + 1e-6 and mean_poisson_deviance(y, means) - 1e-6 <= high < low + 1e-5
    low, high = result.metric_bounds("squared_error")
    assert low - 1e-5 <= np.mean((y - means) ** 2) <= high + 1e-5
    assert "deviance" in repr(result)


def test_after_a_row_has_left():
    X, y, _ = data(PoissonRegressor())
    model = MODELS["poisson"].fit(X, y)
    lower, upper = glru.after(model, glru.RemoveRows([3]), X=X, y=y).score_bounds(X[:5])
    again = PoissonRegressor(alpha=0.1, **TIGHT).fit(np.delete(X, 3, axis=0), np.delete(y, 3))
    scores = X[:5] @ again.coef_ + again.intercept_
    assert np.all(lower - 1e-7 <= scores) and np.all(scores <= upper + 1e-7) and np.all(upper - lower < 1e-3)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (TweedieRegressor(power=3), "a power from 1 to 2 and the log link; got power=3"),
        (TweedieRegressor(power=1, link="identity"), "got power=1 and link='identity'"),
        (glru.GLRURegressor(glru.Poisson()), "has a log link, and predictions here are scores"),
    ],
    ids=["power", "link", "ours"],
)
def test_what_is_not_known_is_refused(model, message):
    X, y, _ = data(model)
    with pytest.raises(ValueError, match=message):
        glru.cross_val_predict(model, X, y)


@every_model
def test_live_models_predict_means(model):
    """Rows come and go, and every mean is within ``width`` of that of a model trained again, also after it was stored."""
    X, y, weight = data(model, n=80)
    live = glru.LiveModel(model, width=1e-4).fit(X[:60], y[:60], weight[:60], keys=range(60))
    live.add_rows(X[60:], y[60:], weight[60:], keys=range(60, 80))
    live.remove_rows(keys=[3, 7, 60])
    kept = np.setdiff1d(np.arange(80), [3, 7, 60])
    again = clone(model).set_params(**TIGHT).fit(X[kept], y[kept], sample_weight=weight[kept])
    found = live.predict_certified(X)
    assert found.decided.all() and np.abs(found.predictions - again.predict(X)).max() < 1e-4
    scores = X @ again.coef_ + again.intercept_
    assert np.all(found.bounds.lower - 1e-7 <= scores) and np.all(scores <= found.bounds.upper + 1e-7)
    assert live.needs_retraining(X).verdict == "yes"
    np.testing.assert_allclose(live.refresh().predict(X), again.predict(X), atol=1e-4)
    assert live.needs_retraining(X).verdict == "no"
    if getattr(model, "power", 1) > 0:
        with pytest.raises(ValueError, match="y must be"):
            live.add_rows(X[:1], [-1.0], keys=[99])


def test_a_stored_live_model_predicts_means(tmp_path):
    X, y, _ = data(PoissonRegressor())
    live = glru.LiveModel(PoissonRegressor(), width=1e-3).fit(X, y, keys=range(60))
    removal = live.remove_rows(keys=[5])
    live.refresh().save(tmp_path / "live")
    loaded = glru.LiveModel.load(tmp_path / "live")
    assert np.array_equal(loaded.predict(X), live.predict(X))
    receipt = live.receipt(removal)
    assert receipt["statement"] == "equals retraining to within r"


def test_whether_a_mean_moves():
    """Of a log link a prediction is a mean, not a score."""
    X, y, _ = data(PoissonRegressor())
    out = glru.after(MODELS["poisson"], glru.RemoveRows([3]), X=X, y=y)
    again = PoissonRegressor(alpha=0.1, **TIGHT).fit(np.delete(X, 3, axis=0), np.delete(y, 3))
    moves = np.abs(again.predict(X) - MODELS["poisson"].fit(X, y).predict(X))
    within = float(np.median(moves))
    found = out.needs_retraining(X, within=within)
    clear = np.abs(moves - within) > 1e-4
    assert found.verdict == "yes" and found.proven.all() and clear.sum() > 10
    assert np.array_equal(np.isin(np.arange(len(y)), found.flips)[clear], (moves > within)[clear])
