"""The estimators: scikit-learn's own checks, its tools, its data types, and the answers after the fit."""

import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import ElasticNet, LogisticRegression, LogisticRegressionCV, Ridge, RidgeCV
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneOut, cross_val_predict, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import glru
from tests.core import ScoreBounds, adapt, bound_value
from tests.ecosystem.models import TIGHT, cancer, diabetes, quietly, raw_cancer, wine

ESTIMATORS = [
    glru.GLRUClassifier(),
    glru.GLRUClassifier("multinomial", tol=1e-12),
    glru.GLRUClassifier("squared_hinge", lam=0.1),
    glru.GLRUClassifier("smoothed_hinge"),
    glru.GLRUClassifier("hinge", tol=1e-10),
    glru.GLRUClassifier(kappa=0.01, tol=1e-13),
    glru.GLRURegressor(),
    glru.GLRURegressor("huber", lam=0.1, tol=1e-13),
    glru.GLRUClassifierCV(Cs=[0.1, 1.0]),
    glru.GLRURegressorCV(Cs=[0.1, 1.0]),
]


ANY_NAMESPACE = {
    "check_array_api_same_namespace": "coefficients are kept so that rows of any namespace can be predicted after any fit"
}


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda model: ANY_NAMESPACE)
def test_checks_of_scikit_learn(estimator, check, monkeypatch):
    # scikit-learn 1.6 asks for the array API standard of 2023.12; glru needs that of 2024.12, with scalars in ``where``.
    monkeypatch.setattr("array_api_strict.set_array_api_strict_flags", lambda **flags: None)
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_array_support_is_declared_where_devices_can_train(estimator):
    """Newton's method, which trains on devices, needs a smooth loss of one score and a smooth penalty."""
    smooth = estimator.loss not in ("hinge", "multinomial") and estimator.kappa == 0.0
    assert sklearn.utils.get_tags(estimator).array_api_support == smooth


PARENTS = {
    "logistic": (glru.GLRUClassifier(C=0.5, tol=1e-12), LogisticRegression(C=0.5, **TIGHT), cancer),
    "classes": (glru.GLRUClassifier(C=0.5, tol=1e-12), OneVsRestClassifier(LogisticRegression(C=0.5, **TIGHT)), wine),
    "squared-hinge": (
        glru.GLRUClassifier("squared_hinge", C=0.1, fit_intercept=False, tol=1e-13),
        LinearSVC(C=0.1, fit_intercept=False, tol=1e-10, max_iter=1_000_000),
        cancer,
    ),
    "ridge": (glru.GLRURegressor(C=2.0, tol=1e-13), Ridge(alpha=0.5), diabetes),
    "net": (
        glru.GLRURegressor(lam=0.2, kappa=0.3, tol=1e-13),
        ElasticNet(alpha=0.5, l1_ratio=0.6, tol=1e-13, max_iter=100_000),
        diabetes,
    ),
    "balanced": (
        glru.GLRUClassifier(class_weight="balanced", tol=1e-12),
        LogisticRegression(class_weight="balanced", **TIGHT),
        cancer,
    ),
}


@pytest.mark.parametrize("name", PARENTS)
def test_the_same_model_as_scikit_learn(name):
    ours, theirs, data = PARENTS[name]
    X, y = data()
    ours, theirs = clone(ours).fit(X, y), clone(theirs).fit(X, y)
    assert np.array_equal(ours.predict(X), theirs.predict(X)) or np.allclose(ours.predict(X), theirs.predict(X))
    if hasattr(theirs, "decision_function"):
        assert np.allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-5)
        assert np.array_equal(ours.classes_, theirs.classes_)
    if hasattr(theirs, "coef_"):
        assert ours.coef_.shape == theirs.coef_.shape
        assert not theirs.fit_intercept or np.shape(ours.intercept_) == np.shape(theirs.intercept_)
    if hasattr(theirs, "predict_proba"):
        assert np.allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5)
        assert np.allclose(ours.predict_log_proba(X), np.log(ours.predict_proba(X)))
    assert ours.n_iter_ >= 1
    assert 0.0 <= ours.dual_gap_ <= 1e-6 * sum(s.primal_value for s in ours.solutions_)


def test_certificates():
    model = glru.GLRUClassifier().fit(*cancer())
    assert model.solutions_[0].solver_gap <= model.dual_gap_ == model.certificate_.gap
    assert len(glru.GLRUClassifier().fit(*wine()).certificate_) == 3


def test_probabilities_need_the_logistic_loss():
    assert hasattr(glru.GLRUClassifier(glru.Logistic()), "predict_proba")
    model = glru.GLRUClassifier("hinge").fit(*cancer())
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError):
        model.predict_proba(cancer()[0])


def test_data_types():
    X, y = cancer()
    names = [f"c{j}" for j in range(X.shape[1])]
    expected = glru.GLRUClassifier().fit(X, y).decision_function(X)
    for data in (pd.DataFrame(X, columns=names), pl.DataFrame(X, schema=names), sp.csr_matrix(X), sp.csc_array(X)):
        model = glru.GLRUClassifier().fit(data, y)
        assert np.allclose(model.decision_function(data), expected, atol=1e-4)
        if hasattr(data, "columns"):
            assert list(model.feature_names_in_) == names
            out = model.after(glru.RemoveColumns(["c3"]))
            assert out.score_bounds(data.drop(columns=["c3"]) if isinstance(data, pd.DataFrame) else data.drop("c3"))


def test_tools():
    """Pipelines, searches, clones, pickles and ``set_output``."""
    X, y = raw_cancer()
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
    pipeline = make_pipeline(StandardScaler(), glru.GLRUClassifier()).set_output(transform="pandas")
    search = GridSearchCV(pipeline, {"glruclassifier__C": [0.01, 1.0]}, cv=3).fit(frame, y)
    assert search.best_score_ > 0.9
    model = search.best_estimator_[-1]
    assert clone(model).get_params() == model.get_params()
    model.after(glru.RemoveRows([0])).score_bounds(model.adapted_.problems[0].X)
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    assert np.array_equal(again.predict(frame), search.predict(frame))
    assert again[-1].loocv().n_errors == model.loocv().n_errors


def test_adapters_know_the_estimators():
    X, y = cancer()
    for estimator, data in ((glru.GLRUClassifier(C=0.5), (X, y)), (glru.GLRURegressor(C=0.5), diabetes())):
        assert len(adapt(estimator, *data).problems) == 1
        ours = glru.cross_val_predict(estimator, *data, cv=4)
        assert np.allclose(ours, cross_val_predict(clone(estimator).set_params(tol=1e-12), *data, cv=4), atol=1e-3)


@pytest.mark.parametrize("data", [cancer, wine])
def test_leave_one_out(data):
    X, y = data()
    model = glru.GLRUClassifier(C=0.5).fit(X, y)
    held = cross_val_predict(glru.GLRUClassifier(C=0.5, tol=1e-11), X, y, cv=LeaveOneOut())
    assert model.loocv().n_errors == np.sum(held != y)


@pytest.mark.parametrize("data", [cancer, wine])
def test_needs_retraining_tells_what_a_refit_would_do(data):
    X, y = data()
    model = glru.GLRUClassifier(C=0.1).fit(X[:80], y[:80])
    queries, present = X[80:], model.predict(X[80:])
    # A few rows at the query nearest to a boundary, with the label of another class, change what is said of it.
    scores = model.decision_function(queries)
    margins = np.abs(scores) if scores.ndim == 1 else np.diff(np.sort(scores, axis=1)[:, -2:])[:, 0]
    near = int(np.argmin(margins))
    pull = (np.repeat(queries[[near]], 4, axis=0), np.repeat(y[y != present[near]][0], 4))
    seen = set()
    for add, remove in ((None, [0, 1]), ((X[80:90], y[80:90]), None), (pull, [70]), (None, range(40))):
        answer = model.needs_retraining(queries, add=add, remove=None if remove is None else list(remove))
        kept = np.delete(np.arange(80), [] if remove is None else list(remove))
        new_X = X[kept] if add is None else np.vstack([X[kept], add[0]])
        new_y = y[kept] if add is None else np.append(y[kept], add[1])
        changed = glru.GLRUClassifier(C=0.1, tol=1e-11).fit(new_X, new_y).predict(queries) != present
        assert set(np.flatnonzero(changed)) <= set(answer.flips)
        assert changed[answer.flips[answer.proven]].all()
        assert (answer.verdict == "no") == (answer.flips.size == 0)
        assert (answer.verdict == "yes") == bool(answer.proven.any())
        seen.add(answer.verdict)
    assert {"no", "yes"} <= seen


def test_needs_retraining_of_a_regression():
    X, y = diabetes()
    model = glru.GLRURegressor(C=1.0).fit(X, y)
    moves = np.abs(glru.GLRURegressor(C=1.0, tol=1e-13).fit(X[1:], y[1:]).predict(X) - model.predict(X))
    for within in (0.5 * moves.max(), 2.0 * moves.max() + 0.1):
        answer = model.needs_retraining(X, within, remove=[0])
        assert set(np.flatnonzero(moves > within)) <= set(answer.flips)
        assert answer.verdict == ("yes" if within < moves.max() else "no")
    with pytest.raises(ValueError, match="within must be a number >= 0 for a regression"):
        model.needs_retraining(X, -1.0, remove=[0])
    with pytest.raises(ValueError, match="give rows to add, to remove, or both"):
        model.needs_retraining(X, 1.0)


@pytest.mark.parametrize("data", [cancer, wine])
def test_the_tuned_classifier_chooses_as_brute_force_does(data):
    X, y = data()
    model = glru.GLRUClassifierCV(Cs=[10.0, 0.01, 0.1, 1.0]).fit(X, y)
    errors = [
        np.sum(cross_val_predict(glru.GLRUClassifier(C=C, tol=1e-11), X, y, cv=LeaveOneOut()) != y) for C in model.grid_
    ]
    assert np.array_equal(model.criterion_lower_, errors)
    assert np.array_equal(model.criterion_upper_, errors)
    assert model.grid_[int(np.argmin(errors))] == model.C_
    assert model.certified_
    assert np.allclose(model.coef_, glru.GLRUClassifier(C=model.C_).fit(X, y).coef_, atol=1e-2)


def test_the_tuned_regression_chooses_as_ridge_does():
    X, y = diabetes()
    alphas = np.array([0.01, 0.1, 1.0, 10.0])
    ridge = RidgeCV(alphas).fit(X, y)
    model = glru.GLRURegressorCV(Cs=1.0 / alphas).fit(X, y)
    assert np.isclose(1.0 / model.C_, ridge.alpha_)
    assert np.isclose(-ridge.best_score_, model.criterion_upper_[model.best_index_], rtol=1e-5)


def test_tuned_by_folds_as_scikit_learn():
    X, y = load_breast_cancer(return_X_y=True)
    X, Cs = scale(X), np.logspace(-3, 2, 4)
    theirs = quietly(lambda: LogisticRegressionCV(Cs=Cs, cv=5, solver="newton-cholesky", tol=1e-8).fit(X, y))
    model = glru.GLRUClassifierCV(Cs=Cs, cv=5).fit(X, y)
    assert model.certified_ and np.ravel(theirs.C_)[0] == model.C_
    errors = 1.0 - np.squeeze(next(iter(theirs.scores_.values()))).mean(axis=0)
    assert np.all(model.criterion_lower_ <= errors + 1e-12) and np.all(errors <= model.criterion_upper_ + 1e-12)
    assert np.isclose(model.criterion_upper_[model.best_index_], errors.min())
    X, y = load_diabetes(return_X_y=True)
    ridge = glru.GLRURegressorCV(Cs=[0.1, 1.0, 10.0, 100.0], cv=KFold(4)).fit(X, y)
    means = [
        -cross_val_score(Ridge(1.0 / C), X, y, cv=KFold(4), scoring="neg_mean_squared_error").mean()
        for C in ridge.grid_
    ]
    assert np.allclose(ridge.criterion_upper_, means, rtol=1e-6) and ridge.best_index_ == np.argmin(means)


def rare_and_skewed():
    """Data on which weak penalties are hard to train, and data on which the strongest one is far from the best."""
    random = np.random.default_rng(5)
    X = (random.random((200, 12)) < 0.02).astype(float)
    z = X @ random.normal(size=12) + 0.3 * random.normal(size=200)
    yield scale(X), (z > np.median(z)).astype(int), np.logspace(-4, 6, 6), False
    random = np.random.default_rng(8)
    X = np.exp(random.normal(size=(300, 8)))
    z = X @ random.normal(size=8)
    yield X, (z - np.median(z) + 0.5 * random.normal(size=300) > 0.0).astype(int), np.logspace(-5, 3, 6), True


@pytest.mark.parametrize(("X", "y", "Cs", "left_open"), list(rare_and_skewed()))
def test_strengths_that_cannot_win_are_left_open(X, y, Cs, left_open, monkeypatch):
    # Of small data all strengths are decided together.
    monkeypatch.setattr("glru.updates.chord_folds.TOGETHER", 0)
    model = glru.GLRUClassifierCV(Cs=Cs, cv=4).fit(X, y)
    theirs = [1.0 - cross_val_score(glru.GLRUClassifier(C=C, tol=1e-13), X, y, cv=4).mean() for C in model.grid_]
    assert np.all(model.criterion_lower_ <= np.array(theirs) + 1e-12)
    assert np.all(model.criterion_upper_ >= np.array(theirs) - 1e-12)
    assert model.best_index_ == np.argmin(np.round(theirs, 12)) and model.certified_
    widths = model.criterion_upper_ - model.criterion_lower_
    assert widths[model.best_index_] == 0.0 and (widths.max() > 0.0) >= left_open


def test_grid_of_sparse_folds_against_scikit_learn():
    """Penalties are first stepped until most labels are known; the choice is that of training everything."""
    random = np.random.default_rng(1)
    X = sp.random(150, 400, density=0.05, random_state=1, format="csr")
    y = (X @ random.normal(size=400) + 0.1 * random.normal(size=150) > 0.0).astype(int)
    model = glru.GLRUClassifierCV(Cs=np.logspace(-2, 3, 5), cv=4).fit(X, y)
    theirs = [1.0 - cross_val_score(glru.GLRUClassifier(C=C, tol=1e-13), X, y, cv=4).mean() for C in model.grid_]
    assert np.all(model.criterion_lower_ <= np.array(theirs) + 1e-12)
    assert np.all(model.criterion_upper_ >= np.array(theirs) - 1e-12)
    assert model.best_index_ == np.argmin(np.round(theirs, 12)) and model.certified_


def test_tuned_by_lam_log_loss_and_groups():
    X, y = cancer()
    by_lam = glru.GLRUClassifierCV(lams=[0.001, 0.01, 0.1], criterion="log_loss").fit(X, y)
    assert by_lam.lam_ in (0.001, 0.01, 0.1)
    assert np.all(by_lam.criterion_lower_ <= by_lam.criterion_upper_)
    groups = np.arange(len(y)) // 20
    grouped = glru.GLRUClassifierCV(Cs=[0.1, 1.0]).fit(X, y, groups=groups)
    held = [glru.cross_val_score(glru.GLRUClassifier(C=C), X, y, cv=list(splits(groups))) for C in (0.1, 1.0)]
    errors = np.array([np.sum((1.0 - h) * 20) for h in held])
    assert np.all(grouped.criterion_lower_ <= errors + 1e-9) and np.all(errors <= grouped.criterion_upper_ + 1e-9)
    assert grouped.certified_ and np.isclose(grouped.criterion_upper_[grouped.best_index_], errors.min())


def splits(groups):
    for group in np.unique(groups):
        yield np.flatnonzero(groups != group), np.flatnonzero(groups == group)


def test_metadata_routing():
    X, y = cancer()
    weight, groups = np.arange(len(y)) % 2 + 1.0, np.arange(len(y)) // 20
    with sklearn.config_context(enable_metadata_routing=True):
        model = glru.GLRUClassifierCV(Cs=[0.1, 1.0]).set_fit_request(sample_weight=True, groups=True)
        routed = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model).fit(
            X, y, sample_weight=weight, groups=groups
        )
    direct = glru.GLRUClassifierCV(Cs=[0.1, 1.0]).fit(StandardScaler().fit_transform(X), y, weight, groups)
    assert np.array_equal(routed[-1].coef_, direct.coef_)
    assert np.array_equal(routed[-1].criterion_upper_, direct.criterion_upper_)


def test_errors():
    X, y = cancer()
    for model, message in (
        (glru.GLRUClassifier("squared"), "loss must be one for a classification"),
        (glru.GLRUClassifier(glru.Squared()), "loss must be one for a classification"),
        (glru.GLRUClassifier(C=2.0, lam=0.1), "give C or lam, not both"),
        (glru.GLRUClassifier(C=-1.0), "C must be above 0"),
        (glru.GLRUClassifierCV(Cs=[]), "Cs must hold at least one"),
        (glru.GLRUClassifierCV(criterion="squared_error"), "criterion must be 'error'"),
        (glru.GLRUClassifierCV("hinge", Cs=[0.1], criterion="log_loss"), "probabilities need the logistic loss"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(X, y)
    with pytest.raises(ValueError, match="is for two classes"):
        glru.GLRUClassifierCV(Cs=[0.1], criterion="log_loss").fit(*wine())


@pytest.mark.parametrize(
    "model",
    [glru.GLRUClassifier(), glru.GLRURegressor(), glru.GLRUClassifierCV(Cs=[1.0]), glru.GLRURegressorCV(Cs=[1.0])],
    ids=lambda model: type(model).__name__,
)
def test_models_without_data_hold_no_row(model):
    """No value of the data is in the pickle, and what needs the data says so with a remedy that works."""
    X, y = cancer() if isinstance(model, glru.GLRUClassifier | glru.GLRUClassifierCV) else diabetes()
    values = [value.tobytes() for value in np.unique(X[:, :3])]

    def count_values(fitted):
        stored = pickle.dumps(fitted)
        return sum(value in stored for value in values)

    kept = clone(model).fit(X, y)
    assert count_values(kept) == len(values)
    bare = clone(model).set_params(keep_data=False)
    for start in (bare, kept.set_params(keep_data=False)):
        fitted = start.fit(X, y)
        assert count_values(fitted) == 0
    again = pickle.loads(pickle.dumps(bare))
    assert np.array_equal(again.predict(X), clone(model).fit(X, y).predict(X)) and again.dual_gap_ == bare.dual_gap_
    for ask in (lambda: again.loocv(), lambda: again.after(glru.RemoveRows([0])), lambda: again.certificate_):
        with pytest.raises(
            ValueError, match=r"keep_data=False\)\. (Use glru\.\w+\(model.*or f|F)it with keep_data=True"
        ):
            ask()
    if not isinstance(model, glru.GLRUClassifierCV | glru.GLRURegressorCV):
        assert glru.loocv(again, X, y).decided.all()


def test_equal_shares_of_errors_are_equal():
    """Three errors in ten folds of ten rows are as many in one fold as in three, though the float means differ in the last digit."""
    folds, y, values = np.repeat(np.arange(10), 10), np.ones(100), []
    for wrong in ([0, 1, 2], [0, 10, 20]):
        scores = np.ones(100)
        scores[wrong] = -1.0
        targets = SimpleNamespace(targets=SimpleNamespace(y=y), targets_of=lambda signs: signs)
        found = SimpleNamespace(
            folds=folds,
            splits=[(None, np.arange(k, k + 10)) for k in range(0, 100, 10)],
            rows=np.arange(100),
            bounds=ScoreBounds(scores, scores),
            adapted=targets,
        )
        values.append(bound_value(found, "error", by_fold=True))
    assert values == [(0.03, 0.03)] * 2
