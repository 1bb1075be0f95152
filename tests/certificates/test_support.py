"""Penalties with absolute values: models on a proven support, the lasso among them, against scikit-learn and precise retrainings."""

from fractions import Fraction

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import StandardScaler

import glru
from glru.verify.retraining import retrain
from tests.core import Support, SupportEllipsoid, SupportRows, guess_support, refine, regions
from tests.ecosystem.models import l1

LOSSES = {"squared": glru.Squared(), "logistic": glru.Logistic()}
KINKED = {"huber": glru.Huber(), "squared hinge": glru.SquaredHinge(), "smoothed hinge": glru.SmoothedHinge()}
PENALTIES = {"lasso": glru.L1(0.08), "elastic net": glru.ElasticNet(0.02, 0.08)}


def problem(loss="squared", penalty="lasso", n=24, d=6, intercept=True, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d)) * 2.0 ** random.integers(-3, 4, d)
    z = (X / X.std(axis=0))[:, :3] @ [2.0, -1.0, 0.3]
    numbers = loss in ("squared", "huber")
    y = z + random.normal(size=n) if numbers else np.where(z + random.logistic(size=n) > 0, 1, -1)
    return glru.Problem(X, y, (LOSSES | KINKED)[loss], PENALTIES[penalty], intercept)


def inside(lower, exact, upper):
    return all(low <= value <= high for low, value, high in zip(lower, exact, upper, strict=True))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", [*LOSSES, *KINKED])
def test_leave_one_out_is_that_of_precise_retrainings(loss, penalty, intercept):
    asked = problem(loss, penalty, intercept=intercept)
    result = glru.loocv(glru.solve(asked), width=1e-6)
    # Between kinks few rows are left that move too far.
    assert result.n_trainings <= (asked.n_rows // 4 if loss in KINKED else 0)
    assert np.all(result.score_upper - result.score_lower <= 1e-6)
    for row in range(asked.n_rows):
        truth = retrain(asked.without(np.array([row])), 40)
        exact, _ = truth.scores(asked.X[row : row + 1])[0]
        assert result.score_lower[row] <= exact <= result.score_upper[row]


@pytest.mark.parametrize("shape", [(40, 8), (24, 60)], ids=["tall", "wide"])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", [*LOSSES, *KINKED])
def test_supports_that_change_without_a_row_are_followed(loss, penalty, shape):
    asked = problem(loss, penalty, *shape, seed=5)
    solution = glru.solve(asked, tol=1e-12)
    old = guess_support(asked, solution.point)
    changes = 0
    lower, upper = SupportRows(solution, float(asked.n_rows / (asked.n_rows - 1))).bounds(
        np.arange(asked.n_rows), lambda lower, upper: upper - lower <= 1e-6, 30
    )
    # Steps that lead over kinks and do not converge are left to a training.
    assert np.mean(np.isfinite(lower)) > (0.4 if loss in KINKED else 0.9)
    for row in range(asked.n_rows):
        without = glru.solve(asked.without(np.array([row])), tol=1e-11)
        changes += not np.array_equal(old, guess_support(without.problem, without.point))
        assert lower[row] - 1e-3 <= without.scores[row] <= upper[row] + 1e-3
    assert changes >= 3


@pytest.mark.parametrize("size", [2.0**-500, 2.0**-60, 1.0, 2.0**60, 2.0**400])
def test_the_size_of_the_objective_does_not_matter(size):
    asked = problem("logistic", "elastic net")
    asked = asked.derive(scaling="sum", penalty=asked.penalty.scale(24.0))
    scaled = asked.derive(sample_weight=size * asked.sample_weight, penalty=asked.penalty.scale(size))
    solution = glru.solve(asked, tol=1e-12)
    bounds = []
    for which in (asked, scaled):
        region = SupportEllipsoid(which, solution.point)
        assert region.proven
        bounds.append(region.score_bounds(which.matrix))
    np.testing.assert_allclose(bounds[0], bounds[1], rtol=0.0, atol=1e-12)


def region_of(asked, signs, point, monkeypatch):
    monkeypatch.setattr(regions.support, "guess_support", lambda *_: signs)
    return SupportEllipsoid(asked, point)


@pytest.mark.parametrize("loss", [*LOSSES, *KINKED])
def test_only_the_right_support_is_proven(loss, monkeypatch):
    asked = problem(loss)
    solution = glru.solve(asked, tol=1e-12)
    right = guess_support(asked, solution.point)
    used, unused = np.flatnonzero(right), np.flatnonzero(right == 0)
    assert used.size and unused.size
    assert region_of(asked, right, solution.point, monkeypatch).proven
    for column in used:
        for sign in (0, -right[column]):
            wrong = right.copy()
            wrong[column] = sign
            assert not region_of(asked, wrong, solution.point, monkeypatch).proven
    for column in unused:
        for sign in (-1, 1):
            wrong = right.copy()
            wrong[column] = sign
            assert not region_of(asked, wrong, solution.point, monkeypatch).proven


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", [*LOSSES, *KINKED])
def test_a_region_holds_the_optima_of_all_strengths_within_a_relative_error(loss, penalty):
    asked, share, random = problem(loss, penalty), 1e-3, np.random.default_rng(1)
    point = glru.solve(asked, tol=1e-12).point
    region = SupportEllipsoid(asked, point, share)
    assert region.proven
    lower, upper = region.coef_bounds()
    for _ in range(6):
        factors = 1.0 + share * random.choice([-1.0, 1.0], (2, asked.n_columns))
        quadratic, absolute = factors * np.broadcast_arrays(asked.penalty.quadratic, asked.penalty.absolute, lower)[:2]
        other = glru.L1(absolute) if penalty == "lasso" else glru.ElasticNet(quadratic, absolute)
        truth = retrain(asked.derive(penalty=other), 40)
        assert inside(lower, truth.coef, upper)
    # And it is not much wider than these optima are apart.
    assert np.all(upper - lower <= 0.1 * np.abs(lower).max())


def test_a_column_that_some_strengths_let_in_is_not_proven_to_be_off_the_support():
    asked, share = problem(), 1e-3
    point = glru.solve(asked, tol=1e-12).point
    seen = np.abs(asked.matrix.T @ (asked.weights * (asked.scores(point.coef, point.intercept) - asked.y)))
    column = int(np.flatnonzero(point.coef == 0.0)[0])
    limits = np.full(asked.n_columns, 0.08)
    limits[column] = seen[column] * (1.0 + 0.5 * share)
    near = asked.derive(penalty=glru.L1(limits))
    assert SupportEllipsoid(near, point).proven
    # A radius of almost nothing, so that it is the limit itself that decides.
    support = Support(near, guess_support(near, point))
    model, norms = support.restrict(point).pack(True)[:, None], (np.ones(asked.n_columns + 1), np.ones(asked.n_rows))
    assert support.holds(model, np.zeros(1), *norms).holds[0]
    assert not support.holds(model, np.zeros(1), *norms, share=share).holds[0]


def test_a_support_is_proven_of_the_optimum_and_not_of_the_model():
    """The model itself meets every condition; within its radius there are models that do not."""
    asked = problem("logistic")
    solution = glru.solve(asked, tol=1e-12)
    support = Support(asked, guess_support(asked, solution.point))
    model = support.restrict(solution.point).pack(True)[:, None]
    norms = np.ones(asked.n_columns + 1), np.ones(asked.n_rows)
    assert support.holds(model, np.zeros(1), *norms).holds[0]
    least = float(np.abs(model[: support.columns.size]).min())
    assert not support.holds(model, np.array([1.01 * least]), *norms).holds[0]
    # Of the columns off the support each alone may reach its limit, too.
    alone = np.zeros(asked.n_columns + 1)
    scores = asked.scores(solution.coef, solution.intercept)
    seen = asked.matrix.T @ (asked.weights * asked.loss.gradient(asked.y, scores))
    room = float((0.08 - np.abs(seen[support.others])).min())
    reach = 0.25 * float(np.max(np.abs(asked.X[:, support.others]).mean(axis=0)))
    assert not support.holds(model, np.array([room / reach * 100.0]), alone, norms[1]).holds[0]
    assert support.holds(model, np.array([0.01 * room / reach]), alone, norms[1]).holds[0]


def test_copies_of_a_column_prove_nothing_under_the_lasso():
    """Any split of a coefficient over the copies is optimal: no support is the only one."""
    asked = problem()
    twice = asked.derive(X=np.column_stack([asked.X, asked.X[:, :1]]), column_names=None)
    solution = glru.solve(twice, tol=1e-12)
    assert not SupportEllipsoid(twice, solution.point).proven


@pytest.mark.parametrize("intercept", [True, False])
def test_a_penalty_that_leaves_nothing(intercept):
    asked = problem(intercept=intercept).derive(penalty=glru.L1(1e6))
    result = glru.loocv(asked, width=1e-6)
    assert result.n_trainings == 0
    for row in range(asked.n_rows):
        mean = np.delete(asked.y, row).mean() if intercept else 0.0
        assert result.score_lower[row] <= mean + 1e-12
        assert result.score_upper[row] >= mean - 1e-12
        assert result.score_upper[row] - result.score_lower[row] <= 1e-6


def brute_force(estimator, X, y, method):
    from sklearn.base import clone

    rows = np.arange(len(y))
    return np.array([getattr(clone(estimator).fit(X[rows != i], y[rows != i]), method)(X[i : i + 1])[0] for i in rows])


def test_lasso_and_elastic_net_of_scikit_learn():
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:80], y[:80]
    for estimator in (
        Lasso(alpha=0.3, tol=1e-12, max_iter=10**6),
        ElasticNet(alpha=0.01, tol=1e-12, max_iter=10**6),
    ):
        result = glru.loocv(estimator, X, y)
        assert result.n_trainings == 0
        exact = brute_force(estimator, X, y, "predict")
        middle = 0.5 * (result.score_lower + result.score_upper)
        np.testing.assert_allclose(middle, exact, rtol=0.0, atol=1e-5)
        np.testing.assert_allclose(glru.cross_val_predict(estimator, X, y, cv=5).shape, exact.shape)


def test_logistic_lasso_of_scikit_learn():
    X, y = load_breast_cancer(return_X_y=True)
    X, y = StandardScaler().fit_transform(X)[:80], y[:80]
    estimator = LogisticRegression(C=0.2, **l1(1.0), solver="saga", tol=1e-10, max_iter=10**5)
    result = glru.loocv(estimator, X, y)
    assert result.n_trainings == 0
    np.testing.assert_array_equal(result.labels, brute_force(estimator, X, y, "predict"))


def test_after_bounds_the_lasso():
    asked = problem()
    after = glru.after(glru.solve(asked, tol=1e-12), glru.RemoveRows([3]))
    lower, upper = after.coef_bounds()
    truth = retrain(asked.without(np.array([3])), 40)
    assert np.all(np.isfinite(lower)) and inside(lower, truth.coef, upper)


def test_products_of_weights_and_slopes_that_underflow_prove_no_zeros():
    random = np.random.default_rng(1)
    for _ in range(40):
        x, y = random.normal(size=8) * 2.0**400, np.round(random.normal(size=8), 3) * 2.0**-460
        slope = abs(sum(Fraction(a) * Fraction(b) for a, b in zip(x.tolist(), y.tolist(), strict=True))) / 2**600
        kappa = float(slope) * (1.0 - 10.0 ** random.uniform(-6, -2))
        weight = np.full(8, 2.0**-600)
        asked = glru.Problem(x[:, None], y, glru.Squared(), glru.L1(kappa), False, scaling="sum", sample_weight=weight)
        region = SupportEllipsoid(asked, glru.Point(np.zeros(1), 0.0))
        lower, upper = region.coef_bounds()
        assert Fraction(kappa) < slope  # so that the coefficient is not 0
        assert not lower[0] == upper[0] == 0.0


@pytest.mark.parametrize(
    "model", [Lasso(0.05), ElasticNet(0.05), LinearRegression()], ids=["lasso", "elastic net", "ols"]
)
def test_folds_of_a_quadratic_loss_need_no_model_of_all_rows(model, monkeypatch):
    """One step finds the support, columns among it that zero coefficients give no reason to use: correlated ones of opposite signs."""
    random = np.random.default_rng(7)
    X = random.normal(size=(120, 8)) + 2.0 * random.normal(size=(120, 1))
    y = X @ [3.0, -2.0, 1.0, -1.0, 0.0, 0.0, 0.2, 0.0] + random.normal(size=120)
    model.set_params(**({} if isinstance(model, LinearRegression) else {"tol": 1e-12, "max_iter": 100_000}))
    monkeypatch.setattr(refine, "train", None)
    found = glru.cross_val_predict(model, X, y, cv=5)
    np.testing.assert_allclose(found, cross_val_predict(model, X, y, cv=5), atol=1e-6)
