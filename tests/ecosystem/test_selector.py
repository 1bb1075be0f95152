"""The stepwise selector: scikit-learn's checks and tools, and the choices of its own selector."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.decomposition import PCA
from sklearn.feature_selection import RFECV, SequentialFeatureSelector
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge, RidgeClassifier
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    LeaveOneOut,
    cross_val_predict,
    cross_val_score,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import glru
from glru.selection.criteria import CRITERIA
from tests.ecosystem.models import TIGHT, cancer, diabetes, wine

RANDOM = "which rows judge is drawn among rows, and a row of weight two is one row"


def expected_failures(_):
    return {f"check_sample_weight_equivalence_on_{kind}_data": RANDOM for kind in ("dense", "sparse")}


@parametrize_with_checks(
    [glru.StepwiseSelector(Ridge(), validation=0.2, random_state=0, max_steps=2)],
    expected_failed_checks=expected_failures,
)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize(
    ("model", "data", "scoring"),
    [
        (LogisticRegression(C=0.5, **TIGHT), cancer, "accuracy"),
        (LogisticRegression(C=0.5, **TIGHT), cancer, "neg_log_loss"),
        (LinearSVC(C=0.1, tol=1e-10, max_iter=100_000), cancer, "accuracy"),
        (RidgeClassifier(alpha=2.0), cancer, "accuracy"),
        (Ridge(alpha=3.0), diabetes, "neg_mean_squared_error"),
    ],
    ids=["logistic", "logistic-log-loss", "linear-svc", "ridge-classifier", "ridge"],
)
def test_same_features_as_scikit_learn(model, data, scoring, direction):
    X, y = data()
    X = X[:, :7]
    train, val = train_test_split(np.arange(len(y)), test_size=0.3, random_state=1)
    theirs = SequentialFeatureSelector(
        model, n_features_to_select=4, direction=direction, scoring=scoring, cv=[(train, val)]
    ).fit(X, y)
    criterion = {"accuracy": "error", "neg_log_loss": "log_loss"}.get(scoring, "squared_error")
    ours = glru.StepwiseSelector(
        model,
        direction=direction,
        validation=(X[val], y[val]),
        criterion=criterion,
        forced=True,
        min_features=4,
        max_features=4,
        training_tol=1e-10,
    ).fit(X[train], y[train])
    np.testing.assert_array_equal(ours.get_support(), theirs.get_support())
    assert ours.result_.certified
    assert ours.transform(X).shape == (len(y), 4)


def test_every_kind_of_validation():
    X, y = cancer()
    X, y = X[:, :6], y
    half = len(y) // 2
    splits = [(np.arange(half), np.arange(half, len(y)))]
    for validation in (0.25, (X[half:], y[half:]), "loo", 3, KFold(3), splits):
        selector = glru.StepwiseSelector(LogisticRegression(), validation=validation, random_state=0, max_steps=2)
        selector.fit(X, y)
        assert selector.support_.sum() == selector.result_.selected.size >= 4
        assert selector.estimator_.coef_.shape == (1, selector.support_.sum())


def test_frames_names_groups_and_output():
    X, y = cancer()
    names = [f"feature {j}" for j in range(6)]
    frame = pd.DataFrame(X[:, :6], columns=names)
    selector = glru.StepwiseSelector(
        LogisticRegression(),
        validation=0.2,
        random_state=0,
        forced=True,
        keep=["feature 2"],
        groups=[["feature 0", "feature 1"], ["feature 3", "feature 5"]],
    )
    selector.set_output(transform="pandas").fit(frame, y)
    assert list(selector.get_feature_names_out()) == ["feature 2"]
    assert list(selector.transform(frame).columns) == ["feature 2"]
    assert {step.columns for step in selector.result_.path} == {(0, 1), (3, 5), (4,)}
    polars = clone(selector).set_output(transform="polars").fit(pl.DataFrame(X[:, :6], schema=names), y)
    assert polars.transform(pl.DataFrame(X[:, :6], schema=names)).columns == ["feature 2"]


def test_penalised_intercepts_stay():
    X, y = cancer()
    selector = glru.StepwiseSelector(LinearSVC(C=0.1), validation=0.2, random_state=0, forced=True, groups=[0, 0, 1])
    selector.fit(X[:, :3], y)
    assert selector.result_.selected.size in (1, 2)
    for step in selector.result_.path:
        assert step.columns in ((0, 1), (2,)) and step.feature in ((0, 1), 2)


def test_pipelines_searches_and_sparse_data():
    X, y = cancer()
    model = make_pipeline(
        StandardScaler(), glru.StepwiseSelector(LogisticRegression(), random_state=0), LogisticRegression()
    )
    search = GridSearchCV(model, {"stepwiseselector__max_steps": [0, 2]}, cv=2).fit(X[:200, :8], y[:200])
    assert search.best_score_ > 0.8
    sparse = sp.csr_array(np.where(np.abs(X) > 0.5, X, 0.0)[:, :8])
    selectors = [
        glru.StepwiseSelector(LogisticRegression(), random_state=0).fit(data, y) for data in (sparse, sparse.toarray())
    ]
    np.testing.assert_array_equal(selectors[0].support_, selectors[1].support_)


def test_what_is_refused():
    X, y = wine()
    with pytest.raises(ValueError, match="one model each"):
        glru.StepwiseSelector(LinearSVC()).fit(X, y)
    X, y = cancer()
    with pytest.raises(ValueError, match="without validation rows"):
        glru.stepwise(make_pipeline(StandardScaler(), LogisticRegression()), X, y)


def held_out_errors(pipeline, X, y, cv):
    return int(np.sum(cross_val_predict(clone(pipeline), X, y, cv=cv) != y))


@pytest.mark.parametrize("scaler", [StandardScaler(), make_pipeline(MinMaxScaler(), StandardScaler()), RobustScaler()])
def test_scalers_are_fitted_in_every_fold(scaler):
    """Behind a scaler in the estimator, each fold's scales are those of its train rows: the values of brute force."""
    X, y = load_breast_cancer(return_X_y=True)
    X, y, folds = X[:90, 10:16].copy(), y[:90], KFold(3)
    X[4, 1], X[40, 2] = 50.0, -9.0  # Rows that carry much of a scale.
    pipeline = make_pipeline(scaler, LogisticRegression(C=0.3, tol=1e-10, solver="newton-cholesky"))
    result = glru.stepwise(pipeline, X, y, cv=folds, max_steps=3, forced=True)
    columns = list(range(6))
    assert result.start_value == (held_out_errors(pipeline, X, y, folds),) * 2
    for step in result.path:
        values = [held_out_errors(pipeline, np.delete(X, j, axis=1), y, folds) for j in range(X.shape[1])]
        best = int(np.argmin(values))
        assert columns.pop(best) == step.columns[0]
        assert step.value_lower <= min(values) <= step.value_upper
        X = np.delete(X, best, axis=1)
    assert result.selected.tolist() == columns


def test_selector_of_a_pipeline():
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[:120, :8], y[:120]
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    for validation in (4, 0.3):
        selector = glru.StepwiseSelector(pipeline, validation=validation, max_steps=1, forced=True, random_state=0)
        selector.fit(X, y, sample_weight=np.ones(120))
        assert selector.transform(X).shape == (120, 7) and selector.estimator_[0].n_features_in_ == 7
    with pytest.raises(ValueError, match=r"must keep the 8 columns.*they make 2. Put such steps before"):
        glru.StepwiseSelector(make_pipeline(PCA(2), LogisticRegression()), validation=4).fit(X, y)
    with pytest.raises(ValueError, match=r"\(StandardScaler\) would have to be fitted.*Give cv=5"):
        glru.stepwise(pipeline, X, y)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(
    ("model", "data", "scoring"),
    [
        (LogisticRegression(C=0.5, **TIGHT), cancer, "accuracy"),
        (LogisticRegression(C=0.5, **TIGHT), cancer, "neg_log_loss"),
        (Ridge(alpha=3.0), diabetes, "neg_mean_squared_error"),
        (Ridge(alpha=3.0), diabetes, "r2"),
        (LogisticRegression(C=0.5, **TIGHT), wine, "accuracy"),
        (LogisticRegression(C=0.5, **TIGHT), wine, "neg_log_loss"),
    ],
    ids=["accuracy", "log-loss", "squared-error", "r2", "classes-accuracy", "classes-log-loss"],
)
def test_parameters_of_scikit_learn(model, data, scoring, direction):
    """The same call as SequentialFeatureSelector chooses the same features, folds of different sizes included."""
    X, y = data()
    X = X[:, :8]
    for n_features, tol in ((3, None), ("auto", None), (0.5, None), ("auto", 1e-3)):
        options = {"n_features_to_select": n_features, "tol": tol, "direction": direction, "scoring": scoring, "cv": 5}
        theirs = SequentialFeatureSelector(model, **options).fit(X, y)
        ours = glru.StepwiseSelector(model, **options, training_tol=1e-10).fit(X, y)
        assert ours.result_.certified
        np.testing.assert_array_equal(ours.get_support(), theirs.get_support())


def test_sums_over_folds_of_different_sizes_are_exact():
    """Accuracies are averaged over folds: the value is that of scikit-learn, to the last digit of a count."""
    X, y = cancer()
    ours = glru.StepwiseSelector(
        LogisticRegression(**TIGHT), n_features_to_select=3, direction="forward", scoring="accuracy", cv=5
    ).fit(X, y)
    chosen = X[:, ours.get_support()]
    score = cross_val_score(LogisticRegression(**TIGHT), chosen, y, cv=5).mean()
    low, high = ours.result_.criterion_bounds
    assert high - low < 1e-12 * high
    assert low / len(y) - 1e-12 <= 1.0 - score <= high / len(y) + 1e-12


def test_names_are_those_of_the_frame():
    """Results show the names of a frame, and unknown names are told so."""
    X, y = cancer()
    frame = pd.DataFrame(X[:, :4], columns=list("abcd"))
    options = {"cv": 3, "direction": "forward", "n_features_to_select": 2}
    found = glru.StepwiseSelector(LogisticRegression(), **options, keep="b").fit(frame, y)
    assert "b" in found.result_.names and found.result_.names == tuple(found.get_feature_names_out())
    assert [step.feature for step in found.result_.path] == [name for name in found.result_.names if name != "b"]
    with pytest.raises(ValueError, match="among those of X"):
        glru.StepwiseSelector(LogisticRegression(), **options, keep=["e"]).fit(frame, y)
    paired = glru.StepwiseSelector(LogisticRegression(), cv=3, groups=list("aabb"), max_steps=1, forced=True)
    assert paired.fit(frame, y).result_.path[0].feature in (("a", "b"), ("c", "d"))


def test_interrupted_selections_warn():
    X, y = cancer()
    with pytest.warns(UserWarning, match="ended after 0 steps, with 4 features. Raise max_seconds"):
        glru.StepwiseSelector(LogisticRegression(), cv=3, max_seconds=1e-9).fit(X[:, :4], y)


def test_losses_with_a_log_link_are_judged_by_deviance():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = rng.poisson(np.exp(0.5 * X[:, 1]))
    found = glru.StepwiseSelector(PoissonRegressor(), cv=4, direction="forward", n_features_to_select=1).fit(X, y)
    assert found.result_.criterion == "deviance" and found.get_support().tolist() == [False, True, False, False]


def test_information_criteria_need_no_validation():
    X, y = cancer()
    ours = glru.StepwiseSelector(LogisticRegression(), criterion="aic", max_steps=2).fit(X, y)
    assert ours.result_.certified and ours.result_.n_rows == len(y) and ours.get_support().sum() == X.shape[1] - 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_features_to_select": 0}, "must be 'auto'"),
        ({"n_features_to_select": 1.5}, "must be 'auto'"),
        ({"n_features_to_select": "all"}, "must be 'auto'"),
        ({"n_features_to_select": 2, "tol": 0.1}, "goes with n_features_to_select"),
        ({"scoring": "roc_auc"}, "scoring must be 'accuracy'"),
    ],
)
def test_bad_parameters(options, message):
    X, y = cancer()
    with pytest.raises(ValueError, match=message):
        glru.StepwiseSelector(LogisticRegression(), **options).fit(X[:, :4], y)


@parametrize_with_checks([glru.CertifiedRFECV(Ridge(), cv=3, min_features_to_select=2)])
def test_checks_of_the_elimination(estimator, check):
    check(estimator)


@pytest.mark.parametrize("step", [1, 3, 0.3])
@pytest.mark.parametrize(
    ("model", "data", "scoring"),
    [
        (LogisticRegression(C=0.5, **TIGHT), cancer, None),
        (LogisticRegression(C=0.5, **TIGHT), cancer, "neg_log_loss"),
        (LinearSVC(C=0.1, tol=1e-10, max_iter=100_000), cancer, "accuracy"),
        (RidgeClassifier(alpha=2.0), cancer, "accuracy"),
        (Ridge(alpha=3.0), diabetes, None),
        (Ridge(alpha=3.0, fit_intercept=False), diabetes, "neg_mean_squared_error"),
    ],
    ids=["logistic", "logistic-log-loss", "linear-svc", "ridge-classifier", "ridge", "ridge-squares"],
)
def test_eliminations_of_scikit_learn(model, data, scoring, step):
    X, y = data()
    X = X[:, :8]
    options = {"step": step, "min_features_to_select": 2, "cv": 3, "scoring": scoring}
    theirs, ours = (kind(model, **options).fit(X, y) for kind in (RFECV, glru.CertifiedRFECV))
    np.testing.assert_array_equal(ours.ranking_, theirs.ranking_)
    np.testing.assert_array_equal(ours.support_, theirs.support_)
    assert ours.n_features_ == theirs.n_features_ and ours.certified_
    assert set(ours.cv_results_) >= set(theirs.cv_results_)
    for name, values in theirs.cv_results_.items():
        np.testing.assert_allclose(ours.cv_results_[name], values, rtol=1e-6, atol=1e-9)
    for name in ("mean_test_score", *(f"split{k}_test_score" for k in range(3))):
        lower, upper = (ours.cv_results_[f"{name}_{end}"] for end in ("lower", "upper"))
        assert np.all(lower <= ours.cv_results_[name]) and np.all(ours.cv_results_[name] <= upper)
        assert np.all(upper - lower <= 1e-5)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-6)
    np.testing.assert_array_equal(ours.transform(X), theirs.transform(X))


def test_equal_coefficients_are_not_told_apart():
    X, y = cancer()
    X = np.column_stack([X[:, :3], X[:, 1]])
    selector = glru.CertifiedRFECV(LogisticRegression(), cv=3, min_features_to_select=2).fit(X, y)
    assert not selector.certified_
    assert not (selector.support_[1] and not selector.support_[3])


def test_what_an_elimination_refuses():
    X, y = cancer()
    with pytest.raises(ValueError, match="got a pipeline"):
        glru.CertifiedRFECV(make_pipeline(StandardScaler(), LogisticRegression())).fit(X, y)
    with pytest.raises(ValueError, match="importance_getter"):
        glru.CertifiedRFECV(LogisticRegression(), importance_getter="named_steps").fit(X, y)
    with pytest.raises(ValueError, match="scoring must be 'accuracy'"):
        glru.CertifiedRFECV(LogisticRegression(), scoring="roc_auc").fit(X, y)
    with pytest.raises(ValueError, match="more than two classes"):
        glru.CertifiedRFECV(LogisticRegression()).fit(*wine())


def exact_r2(X, y, train, test):
    """The score of the ridge model with alpha=1 and no intercept, in fractions."""
    X, y = [[Fraction(v) for v in row] for row in X.tolist()], [Fraction(v) for v in y.tolist()]
    size = len(X[0])
    lines = [
        [sum(X[i][a] * X[i][b] for i in train) + (a == b) for b in range(size)] + [sum(X[i][a] * y[i] for i in train)]
        for a in range(size)
    ]
    for a in range(size):
        lines[a] = [v / lines[a][a] for v in lines[a]]
        for b in range(size):
            if b != a:
                lines[b] = [u - lines[b][a] * v for u, v in zip(lines[b], lines[a], strict=True)]
    missed = sum((y[i] - sum(v * line[-1] for v, line in zip(X[i], lines, strict=True))) ** 2 for i in test)
    mean = sum(y[i] for i in test) / len(test)
    return 1 - missed / sum((y[i] - mean) ** 2 for i in test)


@pytest.mark.parametrize(("offset", "scale"), [(0.0, 1.0), (1e12, 1.0), (1e15, 1.0), (0.0, 2.0**600), (0.0, 2.0**-600)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_proven_scores_hold_the_exact_ones_in_all_units_of_the_targets(offset, scale):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(24, 3))
    y = (X[:, 0] + rng.normal(size=24) + offset) * scale
    found = glru.CertifiedRFECV(Ridge(alpha=1.0, fit_intercept=False), cv=KFold(3)).fit(X, y).cv_results_
    exact = [exact_r2(X, y, train, test) for train, test in KFold(3).split(X)]
    for name, value in [("mean", sum(exact) / 3), *((f"split{k}", value) for k, value in enumerate(exact))]:
        lower, upper = (found[f"{name}_test_score_{end}"][-1] for end in ("lower", "upper"))
        assert lower <= value <= upper


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": 1.5}, "step must be"),
        ({"step": np.inf}, "step must be"),
        ({"step": 0}, "step must be"),
        ({"min_features_to_select": 0}, "min_features_to_select must be"),
        ({"min_features_to_select": 2.5}, "min_features_to_select must be"),
        ({"cv": LeaveOneOut()}, "two rows in every fold"),
    ],
)
def test_options_that_an_elimination_refuses(options, message):
    X, y = diabetes()
    with pytest.raises(ValueError, match=message):
        glru.CertifiedRFECV(Ridge(), **options).fit(X[:20, :3], y[:20])


def test_an_elimination_that_takes_too_long_says_so():
    X, y = diabetes()
    with pytest.raises(TimeoutError, match="max_seconds"):
        glru.CertifiedRFECV(Ridge(), max_seconds=1e-9).fit(X, y)


def test_scores_of_folds_with_equal_targets_are_those_of_scikit_learn():
    X, y = diabetes()
    X, y = X[:30, :3], np.where(np.arange(30) < 10, 100.1, y[:30])
    options = {"cv": KFold(3), "min_features_to_select": 2}
    theirs, ours = (kind(Ridge(), **options).fit(X, y).cv_results_ for kind in (RFECV, glru.CertifiedRFECV))
    np.testing.assert_allclose(ours["split0_test_score"], theirs["split0_test_score"])
    np.testing.assert_array_equal(ours["split0_test_score_lower"], ours["split0_test_score_upper"])


@pytest.mark.parametrize("n_folds", [2, 3, 5, 8, 10, 13, 25])
def test_average_accuracies_are_those_of_numpy(n_folds):
    """The order of additions is that of ``scores.mean()``, on which the last digit depends."""
    rng = np.random.default_rng(n_folds)
    sizes = rng.integers(20, 60, n_folds)
    errors = rng.integers(0, 20, (n_folds, 200)).astype(float)
    criterion = replace(CRITERIA["error"], fold_sizes=tuple(sizes.tolist()))
    lower, upper = criterion.combine_folds(errors, errors + 1.0)
    for k in range(errors.shape[1]):
        score = np.array([(n - e) / n for n, e in zip(sizes, errors[:, k], strict=True)]).mean()
        assert -lower[k] == score == -criterion.combine_folds(errors[:, k], errors[:, k])[0]
    assert np.all(lower < upper)


@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize(("seed", "n_rows", "n_columns"), [(0, 400, 30), (1, 203, 15), (2, 300, 21), (3, 149, 12)])
def test_ties_are_those_of_scikit_learn(seed, n_rows, n_columns, direction):
    """Equal numbers of errors whose average accuracies differ by rounding; an odd number of columns is halved as scikit-learn does."""
    X, y = make_classification(n_rows, n_columns, n_informative=3, n_redundant=0, random_state=seed)
    options = {"direction": direction, "scoring": "accuracy", "cv": 5, "n_features_to_select": "auto"}
    theirs = SequentialFeatureSelector(LogisticRegression(**TIGHT), **options).fit(X, y)
    for method in ("certified", "naive"):
        ours = glru.StepwiseSelector(LogisticRegression(), method=method, training_tol=1e-10, **options).fit(X, y)
        np.testing.assert_array_equal(ours.support_, theirs.support_)
        assert method == "naive" or ours.result_.certified


def test_a_step_that_is_better_by_rounding_is_none():
    X, y = make_classification(400, 30, n_informative=3, n_redundant=0, random_state=0)
    result = glru.StepwiseSelector(LogisticRegression(), scoring="accuracy", cv=5).fit(X, y).result_
    values = [result.start_value[0], *(step.value_lower for step in result.path if step.action != "stop")]
    assert result.certified and np.all(np.diff(values) < -0.5)
