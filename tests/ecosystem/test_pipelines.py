"""Pipelines: every step is fitted again without the rows that are held out, as scikit-learn does by brute force."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import sklearn
from sklearn import model_selection
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest, VarianceThreshold, f_classif
from sklearn.impute import KNNImputer, MissingIndicator, SimpleImputer
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.model_selection import (
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    LeaveOneGroupOut,
    LeaveOneOut,
    LeavePGroupsOut,
    LeavePOut,
    PredefinedSplit,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedShuffleSplit,
    TimeSeriesSplit,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)
from sklearn.svm import LinearSVC

import glru
from tests.cases import each, l1
from tests.core import adapt
from tests.ecosystem.models import TIGHT, quietly

sklearn_version = tuple(int(part) for part in sklearn.__version__.split(".")[:2])


def numbers(n_rows=48, missing=0.0, seed=0):
    """Columns in units of their own: far from zero, heavy-tailed, rare, of few values, almost constant, binary."""
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [
            2000.0 + 5.0 * rng.normal(size=n_rows),
            np.exp(2.0 * rng.normal(size=n_rows)),
            (rng.random(n_rows) < 0.1) * 3.0,
            rng.integers(0, 4, n_rows).astype(float),
            1e-3 * rng.normal(size=n_rows),
            np.r_[1.0, np.zeros(n_rows - 1)],
        ]
    )
    y = (X[:, 0] - 2000.0 + X[:, 3] + rng.normal(size=n_rows) > 1.5).astype(int)
    hidden = rng.random(X.shape) < missing
    hidden[:2] = False
    X[hidden] = np.nan
    return X, y


def frame(n_rows=48, missing=0.15, seed=0):
    """Numbers, categories and text with missing values."""
    rng = np.random.default_rng(seed)
    X, y = numbers(n_rows, missing, seed)
    town = rng.choice(["Bern", "Oslo", "Rome"], n_rows).astype(object)
    town[rng.random(n_rows) < 0.5 * missing] = None
    town[5] = "Nuuk"
    table = pd.DataFrame(X[:, :4], columns=["year", "income", "rare", "children"])
    table["children"] = table["children"].astype("Int64")
    return table.assign(
        town=town, serial=np.arange(n_rows) % 7, size=pd.Categorical(rng.choice(["S", "M", "L"], n_rows))
    ), y


def double(X):
    return 2.0 * np.asarray(X)


def less_mean(X):
    return X - np.nanmean(np.asarray(X), axis=0)


def mixed(**options):
    text = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    return make_column_transformer(
        (make_pipeline(SimpleImputer(**options), StandardScaler()), make_column_selector(dtype_include="number")),
        (text, ["town", "size"]),
    )


ON_NUMBERS = {
    "standard": StandardScaler(),
    "standard-std": StandardScaler(with_mean=False),
    "standard-mean": StandardScaler(with_std=False),
    "min-max": MinMaxScaler(feature_range=(-1, 2)),
    "min-max-clip": MinMaxScaler(clip=True),
    "max-abs": MaxAbsScaler(),
    "robust": RobustScaler(),
    "robust-unit": RobustScaler(quantile_range=(10, 80), unit_variance=True, with_centering=False),
    "threshold": make_pipeline(VarianceThreshold(), StandardScaler()),
    "threshold-above": make_pipeline(VarianceThreshold(0.2), StandardScaler()),
    "functions": make_pipeline(FunctionTransformer(np.cbrt), FunctionTransformer(double), MinMaxScaler()),
    "union": FeatureUnion(
        [("a", StandardScaler()), ("b", MinMaxScaler()), ("c", "drop")], transformer_weights={"a": 3.0}
    ),
    "weighted": ColumnTransformer(
        [("a", StandardScaler(), [0, 1, 2]), ("b", "passthrough", [3, 4])], transformer_weights={"a": 0.5, "b": 2.0}
    ),
    "scaled-twice": make_pipeline(MinMaxScaler(), StandardScaler(with_std=False), MaxAbsScaler()),
}

WITHOUT_MISSING = {
    "normalizer": make_pipeline(Normalizer(), StandardScaler()),
    "polynomial": make_pipeline(PolynomialFeatures(include_bias=False), StandardScaler()),
    "nothing": FunctionTransformer(),
}

WITH_MISSING = {
    "mean": SimpleImputer(),
    "median": SimpleImputer(strategy="median"),
    "most-frequent": SimpleImputer(strategy="most_frequent"),
    "constant": SimpleImputer(strategy="constant", fill_value=-7.0),
    "indicator": make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()),
    "mean-standard": make_pipeline(SimpleImputer(), StandardScaler()),
    "median-robust": make_pipeline(SimpleImputer(strategy="median"), RobustScaler()),
    "mean-robust": make_pipeline(SimpleImputer(), RobustScaler()),
    "standard-mean": make_pipeline(StandardScaler(), SimpleImputer()),
    "standard-constant": make_pipeline(StandardScaler(), SimpleImputer(strategy="constant", fill_value=0.5)),
    "mean-min-max": make_pipeline(SimpleImputer(), MinMaxScaler()),
    "frequent-max-abs": make_pipeline(SimpleImputer(strategy="most_frequent"), MaxAbsScaler()),
    "marks": make_pipeline(make_union(SimpleImputer(), MissingIndicator()), StandardScaler()),
    "marked": make_pipeline(
        FunctionTransformer(np.nan_to_num, kw_args={"nan": -1.0}), SimpleImputer(missing_values=-1.0)
    ),
}

ON_FRAMES = {
    "mixed": mixed(),
    "mixed-median": mixed(strategy="median", add_indicator=True),
    "mixed-scaled": make_pipeline(mixed(), StandardScaler(with_mean=False)),
    "dropped-first": make_column_transformer(
        (OneHotEncoder(drop="first", handle_unknown="ignore"), ["town", "size"]),
        remainder=make_pipeline(SimpleImputer(), MaxAbsScaler()),
    ),
    "rare-categories": make_column_transformer(
        (OneHotEncoder(min_frequency=3, handle_unknown="infrequent_if_exist"), ["town", "size"]),
        (SimpleImputer(), ["year"]),
    ),
    "rare-share": make_column_transformer(
        (OneHotEncoder(min_frequency=0.2, drop="first", handle_unknown="ignore"), ["town", "size"]),
        (SimpleImputer(), ["year"]),
    ),
    "rare-codes": make_column_transformer(
        (
            OrdinalEncoder(
                handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2, max_categories=3
            ),
            ["town"],
        ),
        (SimpleImputer(), ["year"]),
    ),
    "ordinal": make_column_transformer(
        (
            OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2),
            ["size", "town"],
        ),
        (SimpleImputer(), ["year", "income", "rare"]),
    ),
    "passthrough": make_column_transformer(
        (OrdinalEncoder(), ["size"]), (SimpleImputer(), ["income"]), ("passthrough", ["serial"])
    ),
    "frames-inside": make_pipeline(
        make_column_transformer((SimpleImputer(), ["year", "income", "children"])).set_output(transform="pandas"),
        make_column_transformer((StandardScaler(), make_column_selector("year|income")), remainder=MinMaxScaler()),
    ),
}


def model_of(intercept=True):
    return LogisticRegression(C=0.3, fit_intercept=intercept, **TIGHT)


def assert_described(steps, X, y, model=None, at_most_alone=0.25, count=10):
    """The problems that ``Refits`` describes have the held-out scores of the pipeline fitted without the row."""
    pipeline = make_pipeline(clone(steps), model_of() if model is None else model)
    adapted = quietly(lambda: adapt(pipeline, X, y))
    n_rows = len(y)
    (refits,) = adapted.refits
    alone = refits.alone
    assert np.mean(alone) <= at_most_alone, adapted.refit_reason
    assert refits.error < 1e-9
    rng = np.random.default_rng(1)
    rows = np.r_[np.arange(6), rng.choice(np.arange(6, n_rows), count - 6, replace=False)]
    for row in rows:
        problem = quietly(lambda: refits.problem(adapted.problems[0], int(row)))  # noqa: B023
        assert problem.sample_weight[row] == 0.0
        own = quietly(lambda: glru.solve(problem, tol=1e-13))  # noqa: B023
        fold = quietly(lambda: adapted.without(0, int(row)))  # noqa: B023
        truth = quietly(lambda: glru.solve(fold, tol=1e-13))  # noqa: B023
        assert np.allclose(own.scores, truth.scores, rtol=1e-7, atol=1e-7 * (1.0 + np.abs(truth.scores).max())), row
        assert np.isclose(own.primal_value, truth.primal_value, rtol=1e-9)


@each(ON_NUMBERS | WITHOUT_MISSING, "steps")
def test_closed_forms(steps):
    assert_described(steps, *numbers())


@each(ON_NUMBERS | WITH_MISSING, "steps")
def test_closed_forms_with_missing_values(steps):
    X, y = numbers(missing=0.15)
    last = () if "SimpleImputer" in repr(steps) else (SimpleImputer(),)
    assert_described(make_pipeline(steps, *last), X, y)


@each(ON_FRAMES, "steps")
def test_closed_forms_of_frames(steps):
    assert_described(steps, *frame())


def test_rare_codes_beside_none():
    """An ordinal encoder counts None among the categories, as it does not count NaN; older versions of pandas keep None."""
    X, y = frame()
    assert_described(ON_FRAMES["rare-codes"], X.assign(town=X["town"].astype(object).where(X["town"].notna(), None)), y)


MODES = {"one-more": [3, 2, 2], "equal": [3, 3, 1], "single": [1, 1, 1], "only-one": [4]}


@each(MODES, "counts")
def test_modes_that_change_without_a_row(counts):
    """The least of the most frequent values of the other rows, as scikit-learn takes it; no row is fitted by itself."""
    X, y = numbers(24)
    X = X[:, [0, 3]]
    X[:, 1] = np.nan
    for rows in (np.arange(sum(counts)), np.arange(sum(counts))[::-1]):
        X[rows, 1] = np.repeat(np.arange(len(counts)) + 1.0, counts)
        steps = make_pipeline(SimpleImputer(strategy="most_frequent"), MaxAbsScaler())
        assert_described(steps, X, y, at_most_alone=0.0, count=20)


@pytest.mark.parametrize("balanced", [None, "balanced"])
@each(MODES, "counts")
def test_modes_of_text_that_change_without_a_row(counts, balanced):
    """Rows without which the same other category is filled in are bounded together, around a model of their own."""
    X, y = numbers(36)
    frame = pd.DataFrame(X[:, [0, 1]], columns=["a", "b"])
    names, counts = np.array(["k", "b", "z"])[: len(counts)], 4 * np.array(counts) - [3, 0, 0][: len(counts)]
    frame["c"] = np.append(np.repeat(names, counts), np.full(36 - sum(counts), None)).astype(object)
    frame["d"] = np.where(np.arange(36) % 5 == 0, None, np.array(["u", "v"])[(np.arange(36) // 5) % 2]).astype(object)
    # Whether None counts as missing depends on the version of scikit-learn.
    frame = frame.where(frame.notna(), np.nan)
    text = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    steps = make_column_transformer((text, ["c", "d"]), (StandardScaler(), ["a", "b"]))
    model = LogisticRegression(solver="newton-cholesky", tol=1e-10, class_weight=balanced)
    found = glru.loocv(make_pipeline(steps, model), frame, y, width=1e-7)
    expected = model_selection.cross_val_predict(
        make_pipeline(steps, model), frame, y, cv=LeaveOneOut(), method="decision_function"
    )
    np.testing.assert_allclose(found.scores, expected, atol=2e-7)
    assert np.all((found.bounds.lower <= expected + 1e-9) & (found.bounds.upper >= expected - 1e-9))
    assert found.n_refits <= 6 and found.n_trainings == 0


@pytest.mark.parametrize("strategy", ["mean", "median"])
@pytest.mark.parametrize(
    "scaler", [MinMaxScaler(), MaxAbsScaler(), StandardScaler(), RobustScaler()], ids=lambda s: type(s).__name__
)
def test_holes_without_an_intercept(scaler, strategy):
    """Filled values move with their means, the others only without a row at the end of a range, which is fitted by itself."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 3)) + 2.0
    y = (X.sum(axis=1) + rng.normal(size=40) > 6.0).astype(int)
    X[rng.random(X.shape) < 0.15] = np.nan
    pipeline = make_pipeline(SimpleImputer(strategy=strategy), scaler, model_of(intercept=False))
    found = quietly(lambda: glru.loocv(pipeline, X, y, width=1e-7))
    expected = quietly(
        lambda: model_selection.cross_val_predict(pipeline, X, y, cv=LeaveOneOut(), method="decision_function")
    )
    np.testing.assert_allclose(found.scores, expected, atol=1e-6)
    ours = quietly(lambda: glru.cross_val_predict(pipeline, X, y, cv=4, method="decision_function"))
    theirs = quietly(lambda: model_selection.cross_val_predict(pipeline, X, y, cv=4, method="decision_function"))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


UNFOLLOWED = {
    "pca": (make_pipeline(StandardScaler(), PCA(3)), "PCA is fitted to all rows together"),
    "best": (make_pipeline(StandardScaler(), SelectKBest(f_classif, k=2)), "SelectKBest is fitted to all rows"),
    "mixing": (make_pipeline(FunctionTransformer(less_mean), StandardScaler()), "looks at more than one row at a time"),
    "products": (make_pipeline(StandardScaler(), PolynomialFeatures()), "PolynomialFeatures comes behind a step"),
}


@each(UNFOLLOWED, "case")
def test_steps_without_a_closed_form_are_fitted_row_by_row(case):
    steps, reason = case
    X, y = numbers(30)
    X = X[:, [0, 1, 3, 4]]
    pipeline = make_pipeline(steps, model_of())
    found = glru.loocv(pipeline, X, y)
    assert found.n_refits == 30
    assert reason in found.refit_reason
    assert reason in repr(found)
    theirs = quietly(
        lambda: model_selection.cross_val_predict(pipeline, X, y, cv=LeaveOneOut(), method="decision_function")
    )
    assert np.allclose(found.scores, theirs, atol=1e-5 * (1.0 + np.abs(theirs).max()))


@pytest.mark.skipif(
    sklearn_version < (1, 9), reason="its folds are drawn at random, or by an option that is deprecated"
)
def test_supervised_steps_get_the_targets():
    """A target encoder fits the train rows otherwise than it transforms the test rows."""
    table, y = frame(60)
    steps = make_column_transformer(
        (TargetEncoder(cv=KFold(3)), ["town", "size"]), (KNNImputer(n_neighbors=3), ["year", "income"])
    )
    pipeline = make_pipeline(steps, StandardScaler(), model_of())
    for cv in (4, [(np.arange(1, 60), [0])] + [(np.delete(np.arange(60), i), [i]) for i in range(1, 60)]):
        ours = quietly(lambda: glru.cross_val_predict(pipeline, table, y, cv=cv, method="predict_proba"))  # noqa: B023
        theirs = model_selection.cross_val_predict(pipeline, table, y, cv=cv, method="predict_proba")
        assert np.allclose(ours, theirs, atol=1e-6)


def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return X[:90], y[:90]


def holes(X, seed=0):
    X = X.copy()
    X[np.random.default_rng(seed).random(X.shape) < 0.1] = np.nan
    return X


IMPUTED = make_pipeline(SimpleImputer(), StandardScaler())
WHOLE = {
    "scaled": (make_pipeline(StandardScaler(), model_of()), cancer),
    "imputed": (make_pipeline(IMPUTED, model_of()), lambda: (holes(cancer()[0]), cancer()[1])),
    "balanced": (make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", **TIGHT)), cancer),
    "frame": (make_pipeline(mixed(), model_of()), frame),
    "wide": (make_pipeline(StandardScaler(), model_of()), lambda: (cancer()[0][:24], cancer()[1][:24])),
    "ridge": (make_pipeline(IMPUTED, Ridge()), lambda: (holes(load_diabetes().data[:80]), load_diabetes().target[:80])),
    "net": (
        make_pipeline(IMPUTED, ElasticNet(alpha=2.0, tol=1e-13, max_iter=100_000)),
        lambda: (holes(load_diabetes().data[:40]), load_diabetes().target[:40]),
    ),
    "classes": (
        make_pipeline(MinMaxScaler(), RidgeClassifier(class_weight="balanced")),
        lambda: (load_wine().data[::3], load_wine().target[::3]),
    ),
    "one-vs-rest": (
        make_pipeline(RobustScaler(), OneVsRestClassifier(LogisticRegression(class_weight="balanced", **TIGHT))),
        lambda: (load_wine().data[::3], load_wine().target[::3]),
    ),
    "multinomial": (
        make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", **TIGHT)),
        lambda: (load_wine().data[::3], load_wine().target[::3]),
    ),
    "multinomial-imputed": (
        make_pipeline(IMPUTED, LogisticRegression(**TIGHT)),
        lambda: (holes(load_wine().data[::3]), load_wine().target[::3]),
    ),
    "multinomial-by-the-mean": (
        make_pipeline(
            StandardScaler(), glru.GLRUClassifier("multinomial", lam=0.05, class_weight="balanced", tol=1e-12)
        ),
        lambda: (load_wine().data[::3], load_wine().target[::3]),
    ),
    "svc": (
        make_pipeline(MaxAbsScaler(), LinearSVC(C=0.1, class_weight="balanced", tol=1e-10, max_iter=1_000_000)),
        lambda: (load_wine().data[::3], load_wine().target[::3]),
    ),
    "without-intercept": (
        make_pipeline(StandardScaler(), model_of(False)),
        lambda: (cancer()[0][:40], cancer()[1][:40]),
    ),
    "threshold-without-intercept": (
        make_pipeline(VarianceThreshold(), StandardScaler(with_mean=False), model_of(False)),
        lambda: (np.column_stack([numbers(30)[0], np.r_[np.ones(29), 0.0]]), numbers(30)[1]),
    ),
    "by-the-mean": (make_pipeline(StandardScaler(), glru.GLRUClassifier(lam=0.05, tol=1e-12)), cancer),
    "by-the-mean-balanced": (
        make_pipeline(StandardScaler(), glru.GLRUClassifier(lam=0.05, class_weight="balanced", tol=1e-12)),
        lambda: (cancer()[0][:40], cancer()[1][:40]),
    ),
    "balanced-alone": (LogisticRegression(C=1e-4, class_weight="balanced", **TIGHT), cancer),
}


@each(WHOLE, "model")
def test_leave_one_out_is_that_of_brute_force(model):
    pipeline, data = model
    X, y = data()
    method = "decision_function" if hasattr(pipeline, "decision_function") else "predict"
    theirs = quietly(lambda: model_selection.cross_val_predict(pipeline, X, y, cv=LeaveOneOut(), method=method))
    found = glru.loocv(pipeline, X, y)
    size = 1.0 + np.abs(theirs).max()
    assert np.all(found.score_lower <= theirs + 2e-6 * size)
    assert np.all(theirs - 2e-6 * size <= found.score_upper)
    ours = quietly(lambda: glru.cross_val_predict(pipeline, X, y, cv=LeaveOneOut(), method=method))
    assert np.allclose(ours, theirs, rtol=0.0, atol=1e-5 * size)
    if method == "decision_function":
        labels = quietly(lambda: model_selection.cross_val_predict(pipeline, X, y, cv=LeaveOneOut()))
        assert np.array_equal(found.labels, labels)
        ours = quietly(lambda: glru.cross_val_predict(pipeline, X, y, cv=LeaveOneOut()))
        assert np.array_equal(ours, labels)


def test_closed_forms_need_no_trainings():
    names = ["scaled", "imputed", "balanced", "frame", "ridge", "one-vs-rest", "by-the-mean", "classes"]
    for name in [*names, *(name for name in WHOLE if "multinomial" in name)]:
        pipeline, data = WHOLE[name]
        found = glru.loocv(pipeline, *data())
        assert found.n_trainings == 0
        assert found.decided_by["newton"] > 0.7 * sum(found.decided_by.values()), name
        assert found.n_refits <= (4 if name == "frame" else 0), (name, found.refit_reason)


@pytest.mark.parametrize("kind", ["pandas", "polars", "sparse"])
def test_kinds_of_data(kind):
    X, y = cancer()
    steps = StandardScaler(with_mean=False)
    data = {
        "pandas": pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])]),
        "polars": pl.DataFrame(X, schema=[f"c{j}" for j in range(X.shape[1])]),
        "sparse": sp.csr_array(X),
    }[kind]
    pipeline = make_pipeline(steps, model_of())
    expected = glru.loocv(pipeline, X, y)
    found = glru.loocv(pipeline, data, y)
    assert found.n_refits == 0
    assert np.allclose(found.scores, expected.scores, atol=1e-5)
    names = adapt(pipeline, data, y).problems[0].column_names
    assert names[:2] == (("x0", "x1") if kind == "sparse" else ("c0", "c1"))


SPLITTERS = {
    "folds": KFold(4, shuffle=True, random_state=0),
    "groups": GroupKFold(3),
    "group-shuffle": GroupShuffleSplit(3, random_state=0),
    "leave-groups": LeavePGroupsOut(2),
    "leave-one-group": LeaveOneGroupOut(),
    "leave-two": LeavePOut(2),
    "predefined": PredefinedSplit(np.r_[np.full(5, -1), np.arange(25) % 3]),
    "repeated": RepeatedKFold(n_splits=3, n_repeats=2, random_state=0),
    "repeated-stratified": RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0),
    "shuffled": ShuffleSplit(3, random_state=0),
    "stratified-groups": StratifiedGroupKFold(3),
    "stratified-shuffle": StratifiedShuffleSplit(3, random_state=0),
    "time": TimeSeriesSplit(3),
}


@each(SPLITTERS, "cv")
def test_every_splitter(cv):
    table, y = frame(30)
    groups = np.random.default_rng(0).integers(0, 5, 30)
    pipeline = make_pipeline(mixed(), model_of())
    scoring = ["accuracy", "neg_brier_score"]
    options = {"cv": cv, "groups": groups, "scoring": scoring, "return_indices": True}
    ours = quietly(lambda: glru.cross_validate(pipeline, table, y, **options))
    theirs = quietly(lambda: model_selection.cross_validate(pipeline, table, y, **options))
    for name in scoring:
        assert np.allclose(ours[f"test_{name}"], theirs[f"test_{name}"], atol=1e-5)
    result = quietly(lambda: glru.cross_val_predict(pipeline, table, y, cv=cv, groups=groups, return_result=True))
    tests = theirs["indices"]["test"]
    assert np.array_equal(result.rows, np.concatenate(tests))
    hits = result.labels == y[result.rows]
    assert np.allclose(np.bincount(result.folds, hits) / np.bincount(result.folds), theirs["test_accuracy"])


@pytest.mark.parametrize("scoring", ["neg_log_loss", "roc_auc", "f1"])
def test_scorers_of_a_pipeline(scoring):
    table, y = frame(80)
    pipeline = make_pipeline(mixed(), model_of())
    for cv in (RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0), ShuffleSplit(3, random_state=0)):
        ours = quietly(lambda: glru.cross_val_score(pipeline, table, y, cv=cv, scoring=scoring))  # noqa: B023
        theirs = quietly(lambda: model_selection.cross_val_score(pipeline, table, y, cv=cv, scoring=scoring))  # noqa: B023
        assert np.allclose(ours, theirs, atol=1e-5)


def test_weights_of_a_pipeline():
    X, y = cancer()
    pipeline = make_pipeline(StandardScaler(), model_of())
    params = {"logisticregression__sample_weight": np.arange(len(y)) % 3 + 0.5}
    for cv in (3, LeaveOneOut()):
        ours = glru.cross_val_predict(pipeline, X, y, cv=cv, params=params, method="decision_function")
        theirs = model_selection.cross_val_predict(pipeline, X, y, cv=cv, params=params, method="decision_function")
        assert np.allclose(ours, theirs, atol=1e-5 * (1.0 + np.abs(theirs).max()))


def test_parameters_of_the_steps_in_front():
    """Weights for a scaler, also in a pipeline that is the last step of another one: by scikit-learn's spelling."""
    X, y = numbers(30)
    weights = np.arange(30) % 3 + 0.5
    inner = make_pipeline(StandardScaler(), model_of())
    cases = [
        (inner, ""),
        (Pipeline([("first", MinMaxScaler()), ("rest", inner)]), "rest__"),
        (Pipeline([("first", "passthrough"), ("rest", inner)]), "rest__"),
    ]
    for pipeline, prefix in cases:
        params = {f"{prefix}standardscaler__sample_weight": weights}
        params[f"{prefix}logisticregression__sample_weight"] = weights[::-1]
        for cv in (3, LeaveOneOut()):
            options = {"cv": cv, "params": params, "method": "decision_function"}
            theirs = quietly(lambda: model_selection.cross_val_predict(pipeline, X, y, **options))  # noqa: B023
            ours = quietly(lambda: glru.cross_val_predict(pipeline, X, y, **options))  # noqa: B023
            assert np.allclose(ours, theirs, atol=1e-5 * (1.0 + np.abs(theirs).max()))
        found = glru.cross_val_predict(pipeline, X, y, cv=3, params=params, return_result=True)
        assert found.n_refits == 3 and "fitted with parameters" in found.refit_reason

    def reads(model, X, y):
        return model.score(X, y)

    ours = glru.cross_val_score(pipeline, X, y, cv=3, scoring=reads, params=params)
    assert np.allclose(ours, model_selection.cross_val_score(pipeline, X, y, cv=3, scoring=reads, params=params))
    for wrong in ("sample_weight", "rest__logisticregression__other"):
        with pytest.raises(ValueError, match=rf"params may hold 'rest__log.*got '{wrong}'"):
            glru.cross_val_predict(pipeline, X, y, params={wrong: weights})


def test_refits_are_told():
    X, y = numbers(30)
    pipeline = make_pipeline(StandardScaler(), PCA(2), model_of())
    with pytest.warns(UserWarning, match=r"30 of 30 rows were left out one at a time, not all at once: PCA is"):
        glru.cross_val_predict(pipeline, X, y, cv=LeaveOneOut())
    for cv, n_splits in ((3, 3), (LeaveOneOut(), 30)):
        found = glru.cross_val_predict(pipeline, X, y, cv=cv, return_result=True)
        assert found.n_refits == n_splits and "PCA is fitted to all rows together" in repr(found)
        assert np.array_equal(found.classes, [0, 1]) and found.to_frame().shape[0] == 30
    assert glru.cross_val_predict(make_pipeline(StandardScaler(), model_of()), X, y, return_result=True).n_refits == 0
    three = glru.cross_val_predict(
        make_pipeline(StandardScaler(), RidgeClassifier()), *load_wine(return_X_y=True), return_result=True
    )
    assert three.score_lower.shape == (178, 3)
    assert three.n_errors == np.sum(three.labels != load_wine().target[three.rows]) > 0


def test_steps_are_refitted_once_for_all_classes(monkeypatch):
    """One model per class: what the steps make without a row is the same for all of them."""
    X, y = load_wine(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), PCA(2), RidgeClassifier())
    fits, fit = [], PCA.fit_transform
    monkeypatch.setattr(PCA, "fit_transform", lambda self, X, y=None: fits.append(len(X)) or fit(self, X, y))
    found = glru.loocv(pipeline, X[::6], y[::6])
    assert found.n_refits == 30 == fits.count(29)
    assert np.array_equal(found.labels, model_selection.cross_val_predict(pipeline, X[::6], y[::6], cv=LeaveOneOut()))


def test_a_category_of_one_row_is_refused_before_any_work():
    table, y = frame()
    steps = make_column_transformer((OneHotEncoder(), ["town"]), (SimpleImputer(), ["year"]))
    with pytest.raises(ValueError, match=r"without row 5 the OneHotEncoder.*column 'town'.*handle_unknown='ignore'"):
        glru.loocv(make_pipeline(steps, model_of()), table, y)
    with pytest.raises(ValueError, match=r"cannot transform its test rows.*unknown categor.*handle_unknown='ignore'"):
        glru.cross_val_predict(make_pipeline(steps, model_of()), table, y, cv=4)


def test_what_a_pipeline_does_not_have():
    X, y = cancer()
    pipeline = make_pipeline(StandardScaler(), model_of())
    for method in ("glru", "approx"):
        with pytest.raises(ValueError, match=rf"StandardScaler\) are refitted; got '{method}'"):
            glru.loocv(pipeline, X, y, method=method)
    with pytest.raises(ValueError, match=r"and there are 90 \(PCA is fitted.*Leave checkpoint out"):
        glru.loocv(make_pipeline(PCA(2), model_of()), X, y, checkpoint="run.npz")
    with pytest.raises(ValueError, match="give other results when fitted to this data"):
        glru.certify(pipeline.fit(X, y), X[:50], y[:50])


def test_checkpoint_of_a_pipeline(tmp_path):
    """A run that ends in the middle goes on from its checkpoint; another pipeline has another one."""
    X, y = cancer()
    path = tmp_path / "run.npz"
    pipeline = make_pipeline(StandardScaler(), LinearSVC(C=0.1))
    expected = glru.loocv(pipeline, X, y)

    def stop(stage, done, total):
        if done > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        glru.loocv(pipeline, X, y, checkpoint=path, progress=stop)
    found = glru.loocv(pipeline, X, y, checkpoint=path)
    assert np.array_equal(found.score_lower, expected.score_lower) and found.decided_by == expected.decided_by
    # Another scaler with the same data for the model: the work of the first is not taken for its own.
    scaled = StandardScaler().fit_transform(X)
    for steps in (StandardScaler(), StandardScaler(with_std=False)):
        pipeline = make_pipeline(steps, LinearSVC(C=0.1))
        found = glru.loocv(pipeline, scaled, y, checkpoint=path)
        assert np.array_equal(found.score_lower, glru.loocv(pipeline, scaled, y).score_lower)


def test_steps_that_work_in_place_leave_the_data_alone():
    X, y = numbers(missing=0.15)
    before = X.copy()
    steps = make_pipeline(SimpleImputer(copy=False), StandardScaler(copy=False))
    found = glru.loocv(make_pipeline(steps, model_of()), X, y)
    assert found.n_refits == 1 and "filled column is constant" in found.refit_reason
    assert np.array_equal(X, before, equal_nan=True)


def test_single_precision_is_proven_in_double():
    X, y = cancer()
    pipeline = make_pipeline(StandardScaler(), model_of())
    single = X.astype(np.float32)
    found = glru.loocv(pipeline, single, y)
    assert found.n_refits == 0
    assert np.array_equal(found.scores, glru.loocv(pipeline, single.astype(np.float64), y).scores)
    # Columns of a frame are transformed as they are, in single precision: row by row.
    table = pd.DataFrame(single[:30, :3])
    assert "float64" in glru.loocv(pipeline, table, y[:30]).refit_reason


@each(ON_NUMBERS | WITH_MISSING, "steps")
def test_folds_of_numbers(steps):
    X, y = numbers(40, missing=0.15, seed=3)
    last = () if "SimpleImputer" in repr(steps) else (SimpleImputer(),)
    assert_same_folds(make_pipeline(steps, *last), X, y)


@each(ON_FRAMES, "steps")
def test_folds_of_frames(steps):
    assert_same_folds(steps, *frame(40, seed=3))


def assert_same_folds(steps, X, y):
    """Held-out scores are those of brute force; also where rows are trained on twice."""
    pipeline = make_pipeline(clone(steps), model_of())
    rng = np.random.default_rng(0)
    splits = [(rng.choice(np.delete(np.arange(40), rows), 50), rows) for rows in np.arange(40).reshape(4, 10)]
    for cv in (KFold(5), splits):
        ours = quietly(lambda: glru.cross_val_predict(pipeline, X, y, cv=cv, method="decision_function"))  # noqa: B023
        theirs = quietly(
            lambda: model_selection.cross_val_predict(pipeline, X, y, cv=cv, method="decision_function")  # noqa: B023
        )
        assert np.allclose(ours, theirs, rtol=0.0, atol=2e-6 * (1.0 + np.abs(theirs).max()))


def test_folds_are_followed_in_closed_form():
    X, y = numbers(60, missing=0.1)
    X = X[:, :5]  # not the column of which a fold may have nothing but what its mean fills in
    for steps in (IMPUTED, make_pipeline(StandardScaler(), SimpleImputer(strategy="median"))):
        adapted = adapt(make_pipeline(steps, model_of()), X, y)
        folds = list(adapted.folds(list(KFold(4).split(X))))
        assert all(fold.aligned for fold in folds)


@pytest.mark.parametrize("cv", [None, 4])
def test_strengths_are_chosen_with_the_steps_inside_the_folds(cv):
    """The criterion at each strength is that of scikit-learn's whole pipeline."""
    table, y = frame(40)
    model = glru.GLRUClassifierCV(Cs=[0.01, 0.1, 1.0], cv=cv, tol=1e-12, preprocessing=mixed()).fit(table, y)
    splits = LeaveOneOut() if cv is None else cv

    def errors(C):
        pipeline = make_pipeline(mixed(), LogisticRegression(C=C, **TIGHT))
        return 1.0 - np.mean(model_selection.cross_val_score(pipeline, table, y, cv=splits))

    values = [quietly(lambda: errors(C)) for C in model.grid_]  # noqa: B023
    assert np.allclose(model.criterion_lower_ / (1 if cv else 40), values)
    assert model.grid_[np.argmin(values)] == model.C_ and model.certified_
    fitted = make_pipeline(mixed(), LogisticRegression(C=model.C_, **TIGHT)).fit(table, y)
    assert np.allclose(model.decision_function(table), fitted.decision_function(table), atol=1e-4)
    assert np.array_equal(model.predict(table), fitted.predict(table))
    assert list(model.feature_names_in_) == list(table.columns)
    assert model.loocv().n_errors == glru.loocv(fitted, table, y).n_errors
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table[table.columns[::-1]])


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler()], ids=["standard", "range"])
@pytest.mark.parametrize("criterion", ["error", "log_loss"])
def test_strengths_are_compared_together_behind_a_scaler(scaler, criterion):
    """All strengths of all splits step together, each split with the scales of its train rows."""
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[::3], y[::3]
    Cs = np.logspace(-3, 3, 7)
    model = glru.GLRUClassifierCV(Cs=Cs, cv=5, criterion=criterion, preprocessing=scaler).fit(X, y)
    scoring = "accuracy" if criterion == "error" else "neg_log_loss"
    pipelines = [make_pipeline(scaler, LogisticRegression(C=C, **TIGHT)) for C in Cs]
    values = [
        -quietly(lambda: model_selection.cross_val_score(one, X, y, cv=5, scoring=scoring).mean())  # noqa: B023
        for one in pipelines
    ]
    values = np.array(values) + (1.0 if criterion == "error" else 0.0)
    assert np.all(model.criterion_lower_ <= values + 1e-9) and np.all(values - 1e-9 <= model.criterion_upper_)
    assert model.certified_ and model.n_refits_ == 0 and model.best_index_ == np.argmin(np.round(values, 9))
    assert model.criterion_upper_[model.best_index_] - model.criterion_lower_[model.best_index_] < 1e-4


def test_strengths_of_a_regression_with_steps():
    X, y = load_diabetes(return_X_y=True)
    X, y = holes(X[:60]), y[:60]
    model = glru.GLRURegressorCV(Cs=[0.1, 1.0, 10.0], preprocessing=IMPUTED).fit(X, y)
    values = [
        -model_selection.cross_val_score(
            make_pipeline(IMPUTED, Ridge(1.0 / C)), X, y, cv=LeaveOneOut(), scoring="neg_mean_squared_error"
        ).mean()
        for C in model.grid_
    ]
    assert np.all(model.criterion_lower_ <= np.array(values) * (1.0 + 1e-9))
    assert np.all(np.array(values) * (1.0 - 1e-9) <= model.criterion_upper_)
    assert model.n_refits_ == 0 and model.grid_[np.argmin(values)] == model.C_
    assert np.allclose(model.predict(X), make_pipeline(IMPUTED, Ridge(1.0 / model.C_)).fit(X, y).predict(X), atol=1e-3)


def test_no_training_can_know_a_scale_better():
    """Where the rounding of refitted scales is wider than what is asked for, rows are refined that far and not trained."""
    rng = np.random.default_rng(5)
    X = np.exp(3.0 * rng.normal(size=(30, 300)))
    y = (np.log(X[:, :5]).sum(axis=1) > 0.0).astype(int)
    pipeline = make_pipeline(StandardScaler(), model_of())
    found = glru.loocv(pipeline, X, y, width=1e-9)
    assert found.n_trainings <= 4
    assert found.decided_by.get("wide", 0) > 4
    for row in (0, 7, 19):
        kept = np.arange(30) != row
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.3, solver="newton-cg", tol=1e-11))
        truth = quietly(lambda: model.fit(X[kept], y[kept]).decision_function(X[[row]])[0])  # noqa: B023
        assert found.score_lower[row] - 1e-6 <= truth <= found.score_upper[row] + 1e-6


def test_labels_at_zero_are_masked_and_said():
    """A bounded score around zero: no split lacks an optimum, and the label is open all the same."""
    X = np.append(np.tile([-0.3, 0.3], 10), 0.0)[:, None] * [1.0, 0.7]
    y = np.append(np.tile([0, 1], 10), 1)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(fit_intercept=False))
    splits = [(np.arange(20), np.array([20])), (np.arange(10, 21), np.arange(10)), (np.arange(10), np.arange(10, 20))]
    with pytest.warns(UserWarning, match="row 20, and masked .*float64 does not bound"):
        found = glru.cross_val_predict(pipeline, X, y, cv=splits)
    assert np.flatnonzero(np.ma.getmaskarray(found)).tolist() == [20]


@pytest.mark.parametrize("unit", [1e-158, 1e-150, 1.0, 1e145])
@pytest.mark.filterwarnings("ignore")
def test_units_whose_squares_are_no_numbers(unit):
    """Scales are not followed where the errors of their squares would underflow: the scores are those of the refitted steps."""
    random = np.random.default_rng(0)
    X = random.normal(size=(20, 3)) * unit
    y = X[:, 0] / unit + random.normal(size=20)
    pipeline = make_pipeline(StandardScaler(), Ridge())
    expected = model_selection.cross_val_predict(pipeline, X, y, cv=LeaveOneOut())
    found = glru.loocv(pipeline, X, y, width=1e-6)
    assert found.n_refits == (0 if unit == 1.0 else 20)
    assert np.all(found.score_lower - 1e-9 <= expected) and np.all(expected <= found.score_upper + 1e-9)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore:overflow", "error:All-NaN:RuntimeWarning")
def test_columns_whose_squares_overflow():
    """Scales that are not numbers: nothing is proven, and NumPy warns of nothing."""
    X, y = 1e160 * np.random.default_rng(0).normal(size=(24, 3)), np.arange(24) % 2
    found = glru.cross_val_predict(make_pipeline(StandardScaler(), LogisticRegression()), X, y, cv=3)
    assert np.ma.getmaskarray(found).all()


@pytest.mark.filterwarnings("ignore")
def test_weights_beyond_squares():
    """Weights of transformers whose squares overflow end in no error."""
    random = np.random.default_rng(0)
    X = random.normal(size=(20, 2))
    union = FeatureUnion([("a", StandardScaler())], transformer_weights={"a": 1e160})
    assert glru.loocv(make_pipeline(union, Ridge()), X, X[:, 0]).n_refits == 20


@pytest.mark.parametrize("tol", [1e-4, 1e-8])
def test_held_out_predictions_are_as_near_as_the_estimator_asks(tol):
    """Every row, not the average of all: within 1e-6, or ``tol`` if that is smaller."""
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:120], y[:120]
    model = make_pipeline(StandardScaler(), Ridge(tol=tol, solver="cholesky"))
    exact = model_selection.cross_val_predict(model, X, y, cv=LeaveOneOut())
    found = glru.cross_val_predict(model, X, y, cv=LeaveOneOut())
    assert np.max(np.abs(found - exact)) <= max(min(1e-6, tol), 1e-9 * np.ptp(y))


@pytest.mark.parametrize(
    "model", [Lasso(0.05), LogisticRegression(**l1(1.0), solver="liblinear", C=0.5)], ids=["lasso", "logistic"]
)
def test_penalties_without_squares_are_proven_behind_steps(model):
    """Only a proven support bounds what the rounding of a scale does to their optimum; it is proven for all scales within it."""
    X, y = numbers(40)
    pipeline = make_pipeline(StandardScaler(), model)
    tight = clone(pipeline).set_params(**{f"{pipeline.steps[-1][0]}__tol": 1e-10})
    method = "predict" if isinstance(model, Lasso) else "decision_function"
    for cv in (LeaveOneOut(), KFold(4)):
        found = glru.cross_val_predict(pipeline, X, y, cv=cv, method=method, return_result=True)
        assert found.n_refits == 0 and found.refit_reason is None
        expected = model_selection.cross_val_predict(tight, X, y, cv=cv, method=method)
        assert found.bounds.width.max() < 1e-4 and np.abs(found.scores[np.argsort(found.rows)] - expected).max() < 1e-5


def test_folds_without_a_proven_support_are_refitted():
    """Of two equal columns no support is proven: these splits are fitted by scikit-learn, and their scores are those of its own fits."""
    X, y = numbers(40)
    X = np.hstack([X, X[:, :1]])
    pipeline = make_pipeline(StandardScaler(), Lasso(0.05, tol=1e-12))
    found = glru.cross_val_predict(pipeline, X, y, cv=KFold(4), return_result=True, width=1e-3)
    assert found.n_refits == 4
    expected = model_selection.cross_val_predict(pipeline, X, y, cv=KFold(4))
    known = found.bounds.bounded
    assert np.all(found.bounds.lower[known] <= expected[found.rows][known] + 1e-6)
    assert np.all(found.bounds.upper[known] >= expected[found.rows][known] - 1e-6)


@pytest.mark.parametrize("cv", [LeaveOneOut(), KFold(4)], ids=["loo", "folds"])
def test_all_indicators_of_a_category_without_a_penalty(cv):
    """Coefficients are not unique, held-out scores are: with values filled in, and where without a row another category is filled in."""
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"age": rng.normal(size=48), "town": np.array(["a", "b", None])[np.arange(48) % 16 // 7]})
    frame.loc[::9, "age"] = np.nan
    y = frame.age.fillna(0.3).to_numpy() + (frame.town == "a") + rng.normal(size=48)
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["age"]),
        (make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder()), ["town"]),
    )
    model = make_pipeline(columns, LinearRegression())
    found = glru.cross_val_predict(model, frame, y, cv=cv)
    np.testing.assert_allclose(found, model_selection.cross_val_predict(model, frame, y, cv=cv), atol=1e-5)
