"""Stepwise selection of losses with a log or logit link: by deviance, AIC and BIC, against training every candidate and against 40 digits."""

import mpmath
import numpy as np
import pytest

import glru
from glru.selection.criteria import find_criterion

LOSSES = {
    "poisson": glru.Poisson(),
    "negative-binomial": glru.NegativeBinomial(1.5),
    "binomial": glru.losses.Binomial(),
    "gamma": glru.Gamma(),
    "tweedie": glru.Tweedie(1.4),
}
LIKELIHOODS = ["poisson", "negative-binomial", "binomial"]


def make(name, n=60, d=4, seed=0, scale=1.0, spread=0.4, **options):
    """Two columns that matter, two that do not; weights are trials of the shares and copies of the others."""
    random = np.random.default_rng(seed)
    X, offset = random.normal(size=(n, d)), spread * random.normal(size=n)
    weight = random.integers(1, 5, n).astype(float)
    mean = scale * np.exp(0.7 * X[:, 0] - 0.5 * X[:, 1] + offset)
    y = random.poisson(mean).astype(float)
    if name == "gamma":
        y = y + 0.5
    if name == "binomial":
        y = random.binomial(weight.astype(int), 1.0 / (1.0 + 1.0 / mean)) / weight
    settings = {"penalty": glru.L2(np.zeros(d)), "fit_intercept": True, "scaling": "sum"} | options
    return glru.Problem(X, y, LOSSES[name], sample_weight=weight, offset=offset if spread else None, **settings)


def likelihood_and_freedom(problem):
    """Twice minus the log-likelihood of the trained model and its degrees of freedom, by Newton's method in 40 digits from a trained model."""
    mpmath.mp.dps = 40
    start = glru.solve(problem, tol=1e-12)
    loss = problem.loss.loss if problem.offset.any() else problem.loss
    X = mpmath.matrix(np.column_stack([problem.X, np.ones(problem.n_rows)]).tolist())
    y, w, offset = (list(map(mpmath.mpf, part)) for part in (problem.targets, problem.sample_weight, problem.offset))
    beta = mpmath.matrix([*start.coef.tolist(), float(start.intercept)])
    strengths = mpmath.diag([*problem.quadratic.tolist(), 0.0])
    for _ in range(6):
        z = X * beta
        pairs = [slope_and_curvature(loss, a, b + c) for a, b, c in zip(y, z, offset, strict=True)]
        gradient = X.T * mpmath.matrix([a * g for a, (g, _) in zip(w, pairs, strict=True)])
        gradient += strengths * beta
        losses = X.T * mpmath.diag([a * h for a, (_, h) in zip(w, pairs, strict=True)]) * X
        beta = beta - mpmath.lu_solve(losses + strengths, gradient)
    assert mpmath.norm(gradient) < mpmath.mpf(10) ** -20
    hat = mpmath.inverse(losses + strengths) * losses
    value = 2 * sum(minus_log(loss, a, b + c, d) for a, b, c, d in zip(y, X * beta, offset, w, strict=True))
    return value, sum(hat[k, k] for k in range(hat.rows))


def slope_and_curvature(loss, y, z):
    mean = mpmath.exp(z)
    if isinstance(loss, glru.Poisson):
        return mean - y, mean
    theta, total = (mpmath.mpf(loss.theta), y + loss.theta) if isinstance(loss, glru.NegativeBinomial) else (1, 1)
    p = mean / (theta + mean)
    return total * p - y, total * p * (1 - p)


def minus_log(loss, y, z, weight):
    log, gamma = mpmath.log, mpmath.loggamma
    if isinstance(loss, glru.Poisson):
        return weight * (mpmath.exp(z) - y * z + gamma(y + 1))
    if isinstance(loss, glru.NegativeBinomial):
        theta = mpmath.mpf(loss.theta)
        choices = gamma(y + theta) - gamma(theta) - gamma(y + 1)
        return -weight * (choices + theta * log(theta) + y * z - (y + theta) * log(theta + mpmath.exp(z)))
    k = weight * y
    return weight * log(1 + mpmath.exp(z)) - k * z - gamma(weight + 1) + gamma(k + 1) + gamma(weight - k + 1)


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("lam", [0.0, 3.0])
@pytest.mark.parametrize(("scale", "spread"), [(1.0, 0.0), (3.0, 0.4), (1e6, 0.4), (2.0, 12.0)])
def test_information_criteria_in_40_digits(name, scale, spread, lam):
    """The value of all columns, with and without a penalty, counts of a million and offsets of a dozen included."""
    penalty = glru.L2(lam * np.array([0.0, 1.0, 4.0, 0.1]))
    problem = make(name, n=40, scale=scale if name != "binomial" else 1.0, spread=spread, penalty=penalty)
    truth, freedom = likelihood_and_freedom(problem)
    assert lam > 0.0 or abs(freedom - 5) < mpmath.mpf(10) ** -20
    for criterion, price in (("aic", mpmath.mpf(2)), ("bic", mpmath.log(mpmath.mpf(problem.sample_weight.sum())))):
        result = glru.stepwise(problem, criterion=criterion, max_steps=1)
        lower, upper = result.start_value
        assert lower <= truth + freedom * price <= upper
        assert upper - lower <= (1e-8 if spread < 12.0 else 1e-6) * (problem.sample_weight.sum() + abs(float(truth)))


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e6])
def test_the_saturated_likelihood_in_40_digits(name, scale):
    mpmath.mp.dps = 40
    for seed in range(8):
        problem = make(name, n=12, seed=seed, scale=scale, spread=0.0)
        lower, upper = find_criterion("aic", problem).constant
        truth = mpmath.mpf(0)
        for y, weight in zip(map(mpmath.mpf, problem.targets), map(mpmath.mpf, problem.sample_weight), strict=True):
            odds = y / (1 - y) if name == "binomial" and y < 1 else y
            if y > 0 and not (name == "binomial" and y == 1):
                truth += 2 * minus_log(problem.loss, y, mpmath.log(odds), weight)
        assert lower <= truth <= upper
        assert upper - lower <= 1e-8 * (problem.sample_weight.sum() + abs(float(truth)))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("lam", [0.0, 2.0])
@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_the_path_is_that_of_training_every_candidate(name, direction, lam):
    problem = make(name, n=50, d=5, seed=1, penalty=glru.L2(np.full(5, lam)))
    asked = [{"criterion": "deviance", "cv": 3}]
    asked += [{"criterion": criterion} for criterion in ("aic", "bic") if name in LIKELIHOODS]
    for options in asked:
        ours = glru.stepwise(problem, direction=direction, **options)
        naive = glru.stepwise(problem, direction=direction, method="naive", **options)
        assert [step.columns for step in ours.path] == [step.columns for step in naive.path]
        assert ours.certified and ours.n_trainings == 0 < naive.n_trainings
        low, high = ours.criterion_bounds
        assert low - 1e-6 * abs(low) <= naive.criterion_bounds[1] and naive.criterion_bounds[0] <= high + 1e-6 * abs(
            high
        )


@pytest.mark.parametrize("name", LOSSES)
def test_held_out_deviance_is_that_of_the_folds(name):
    """Leave-one-out and folds: the first value is the metric of the validated model, twice the loss with its offset."""
    problem = make(name, n=24, d=3, seed=2)
    for options, known in (
        ({}, glru.loocv(problem, width=1e-9).metric_bounds("deviance")),
        ({"cv": 4}, glru.cross_val_predict(problem, cv=4, width=1e-9).metric_bounds("deviance")),
    ):
        low, high = glru.stepwise(problem, criterion="deviance", max_steps=1, **options).start_value
        assert low <= known[1] and known[0] <= high and high - low <= 1e-5 * high
    kept = glru.feature_importance(problem, cv=4)
    assert kept.criterion == "deviance"


@pytest.mark.parametrize("factor", [2.0**-600, 2.0**600])
def test_an_objective_of_any_size(factor):
    problem = make("poisson", penalty=glru.L2(0.5))
    large = problem.derive(sample_weight=problem.sample_weight * factor, penalty=glru.L2(0.5 * factor))
    first, second = (glru.stepwise(one, criterion="deviance", cv=3) for one in (problem, large))
    assert [step.columns for step in first.path] == [step.columns for step in second.path]
    np.testing.assert_allclose(first.criterion_bounds, second.criterion_bounds, rtol=1e-8)
    assert second.certified


def test_validation_rows():
    problem = make("poisson", spread=0.0)
    result = glru.stepwise(problem, X_val=problem.X[:20], y_val=problem.y[:20], criterion="deviance")
    naive = glru.stepwise(problem, X_val=problem.X[:20], y_val=problem.y[:20], criterion="deviance", method="naive")
    assert [step.columns for step in result.path] == [step.columns for step in naive.path]
    with pytest.raises(ValueError, match="y must be at least 0"):
        glru.stepwise(problem, X_val=problem.X[:2], y_val=[1.0, -1.0], criterion="deviance")


def test_refused():
    with pytest.raises(ValueError, match=r"are judged by 'deviance', 'aic' or 'bic'.*got 'error'"):
        glru.stepwise(make("poisson"), cv=3, criterion="error")
    with pytest.raises(ValueError, match=r"losses with a log or logit link.*; got 'deviance' with Squared"):
        glru.stepwise(glru.Problem(np.eye(3), np.arange(3.0), glru.Squared()), cv=3, criterion="deviance")
    with pytest.raises(ValueError, match=r"needs a likelihood without a dispersion.*got Gamma"):
        glru.stepwise(make("gamma"), criterion="aic")


def test_strengths_are_chosen_by_deviance():
    path = glru.loocv_path(make("poisson", penalty=glru.L2(1.0)), [0.1, 1.0, 10.0])
    assert path.criterion == "deviance" and path.certified
