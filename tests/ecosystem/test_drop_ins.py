"""Drop-ins: the arrays of scikit-learn's brute force on the same object."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import model_selection
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import (
    explained_variance_score,
    f1_score,
    get_scorer,
    get_scorer_names,
    log_loss,
    make_scorer,
    recall_score,
    roc_auc_score,
)
from sklearn.model_selection import GroupKFold, KFold, LeaveOneOut, RepeatedKFold, ShuffleSplit, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale
from sklearn.svm import LinearSVC

import glru
from tests.cases import each
from tests.decisions.retraining import real
from tests.ecosystem.models import MODELS, SHIFTING, SPARSE, TIGHT, cancer, diabetes, iris, quietly, wine

SPLITTERS = {"leave-one-out": LeaveOneOut(), "folds": 4, "shuffled": KFold(3, shuffle=True, random_state=0)}


def methods_of(estimator):
    return [m for m in ("predict", "decision_function", "predict_proba", "predict_log_proba") if hasattr(estimator, m)]


def assert_same(ours, theirs, atol):
    assert ours.shape == theirs.shape
    if theirs.dtype.kind != "f":
        assert ours.dtype == theirs.dtype
        assert np.array_equal(ours, theirs)
    else:
        assert np.allclose(ours, theirs, rtol=0.0, atol=atol * (1.0 + np.abs(theirs).max()))


def compared(estimator, X, y, cv, methods, atol=2e-5):
    for method in methods:
        ours = glru.cross_val_predict(estimator, X, y, cv=cv, method=method)
        theirs = quietly(lambda: model_selection.cross_val_predict(estimator, X, y, cv=cv, method=method))  # noqa: B023
        assert_same(ours, theirs, atol)


@each(SPLITTERS, "cv")
@each(MODELS, "model")
def test_cross_val_predict(model, cv):
    estimator, data = model
    X, y = data()
    # scikit-learn numbers the classes where it is asked for scores, and does not find class weights by name then.
    named_weights = isinstance(getattr(estimator, "class_weight", None), dict) and y.dtype.kind == "U"
    methods = ["predict"] if named_weights else methods_of(estimator)
    compared(estimator, X, y, cv, methods if cv == 4 else methods[:2])


@each(SHIFTING, "model")
def test_rows_that_shift_others(model):
    """A scaler or balanced weights follow the fold, exactly."""
    estimator, data = model
    X, y = data()
    compared(estimator, X, y, 4, methods_of(estimator))
    rows = np.r_[np.flatnonzero(y == y[0])[:8], np.flatnonzero(y != y[0])[:22]]
    compared(estimator, X[rows], y[rows], KFold(10), methods_of(estimator)[:2])


def test_leave_one_out_behind_a_scaler():
    estimator, data = SHIFTING["scaled"]
    X, y = data()
    compared(estimator, X[:60], y[:60], LeaveOneOut(), ["predict", "predict_proba"])


def test_a_fitted_estimator_is_as_good_and_stays_as_it_is():
    X, y = cancer()
    fitted = LogisticRegression(C=0.5).fit(X, y)
    before = fitted.coef_.copy()
    ours = glru.cross_val_predict(fitted, X, y, cv=LeaveOneOut(), method="decision_function")
    fresh = glru.cross_val_predict(LogisticRegression(C=0.5), X, y, cv=LeaveOneOut(), method="decision_function")
    assert np.array_equal(ours, fresh)
    assert np.array_equal(fitted.coef_, before)


def test_sample_weights():
    X, y = cancer()
    weight = np.arange(len(y)) % 3 + 0.5
    for estimator in (LogisticRegression(C=0.5, **TIGHT), Ridge()):
        ours = glru.cross_val_predict(estimator, X, y, cv=KFold(3), sample_weight=weight)
        params = {"sample_weight": weight}
        theirs = model_selection.cross_val_predict(estimator, X, y, cv=KFold(3), params=params)
        assert_same(ours, theirs, 1e-6)


@pytest.mark.parametrize("form", ["coo", "csc", "dia", "lil", "dok", "bsr"])
@pytest.mark.parametrize("kind", [sp.coo_array, sp.coo_matrix])
def test_sparse_formats(kind, form):
    """Formats whose rows cannot be taken, and duplicate entries that add up."""
    X = np.random.default_rng(3).normal(size=(30, 3))
    places = np.nonzero(np.ones_like(X))
    doubled = kind((np.tile(0.5 * X.ravel(), 2), tuple(np.tile(part, 2) for part in places)), shape=X.shape)
    scaled = make_pipeline(StandardScaler(with_mean=False), Ridge())
    for model, y in ((Ridge(), X[:, 0]), (scaled, X[:, 1]), (LogisticRegression(), X[:, 0] > 0.0)):
        found, expected = (
            glru.cross_validate(model, data, y, cv=3)["test_score"]
            for data in (doubled.asformat(form), sp.csr_array(X))
        )
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_frames_and_sparse_matrices():
    X, y = cancer()
    estimator = LogisticRegression(C=0.5)
    expected = glru.cross_val_predict(estimator, X, y, cv=3, method="predict_proba")
    for data in (pd.DataFrame(X), sp.csr_matrix(X)):
        ours = glru.cross_val_predict(estimator, data, y, cv=3, method="predict_proba")
        assert np.allclose(ours, expected, atol=1e-6)


@pytest.mark.parametrize("unit", [1.0, 100.0])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_metrics_of_folds_of_losses_with_kinks_have_four_digits(loss, unit):
    X, y = cancer()
    X = np.hstack([unit * X[:, :4], X[:, 4:8] / unit])
    for model in (
        LinearSVC(loss=loss),
        make_pipeline(StandardScaler(), LinearSVC(loss=loss)),
        glru.GLRUClassifier(loss),
    ):
        result = glru.cross_val_predict(model, X, y, return_result=True)
        low, high = result.metric_bounds("roc_auc")
        assert high - low <= 1e-4 * high


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("shape", [(300, 12), (60, 200)], ids=["tall", "wide"])
def test_every_left_out_score_is_as_close_as_promised(scaled, shape):
    """Not only on average: no interval is wider than 1e-6."""
    random = np.random.default_rng(3)
    X = random.normal(size=shape)
    y = (X[:, 0] + random.normal(size=shape[0]) > 0).astype(int)
    model = make_pipeline(StandardScaler(), LogisticRegression()) if scaled else LogisticRegression(C=0.1)
    result = glru.cross_val_predict(model, X, y, cv=LeaveOneOut(), method="decision_function", return_result=True)
    assert result.bounds.width.max() <= 1e-6 and result.n_trainings == 0


def test_splits_of_single_rows_take_the_cascade():
    """Any splitter that leaves out one row at a time gives what LeaveOneOut gives."""
    X, y = cancer(40)
    estimator = LogisticRegression(C=0.5)
    expected = glru.cross_val_predict(estimator, X, y, cv=LeaveOneOut(), method="decision_function")
    calls = []
    for cv in (KFold(40), KFold(40, shuffle=True, random_state=1), [(np.arange(40) != i, [i]) for i in range(40)]):
        ours = glru.cross_val_predict(
            estimator, X, y, cv=cv, method="decision_function", progress=lambda *call: calls.append(call)
        )
        assert np.array_equal(ours, expected)
    assert {stage for stage, _, _ in calls} <= {"carry", "local", "newton", "refine", "training", "tighten"}
    assert len(calls) < 3 * 40


SCORINGS = {
    "logistic": (None, "accuracy", "roc_auc", "neg_log_loss", "f1", "neg_brier_score"),
    "svc-classes": (None, "balanced_accuracy"),
    "one-vs-rest": (None, "neg_log_loss", "roc_auc_ovr"),
    "ridge-classifier": (None, "roc_auc"),
    "ridge": (None, "neg_mean_squared_error", "neg_median_absolute_error"),
    "elastic-net": (None, "r2"),
}


@pytest.mark.parametrize("name", SCORINGS)
def test_cross_val_score(name):
    estimator, data = MODELS[name]
    X, y = data()
    for scoring in SCORINGS[name]:
        for cv in (4, RepeatedKFold(n_splits=3, n_repeats=2, random_state=0)):
            ours = glru.cross_val_score(estimator, X, y, cv=cv, scoring=scoring)
            theirs = quietly(lambda: model_selection.cross_val_score(estimator, X, y, cv=cv, scoring=scoring))  # noqa: B023
            assert np.allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_scores_of_other_splitters():
    X, y = cancer()
    estimator, blocks = LogisticRegression(C=0.5, **TIGHT), np.arange(len(y)) // 10
    for cv in (GroupKFold(3), ShuffleSplit(4, random_state=0), LeaveOneOut(), StratifiedKFold(3)):
        groups = blocks if isinstance(cv, GroupKFold) else None
        ours = glru.cross_val_score(estimator, X, y, cv=cv, groups=groups)
        assert np.array_equal(ours, model_selection.cross_val_score(estimator, X, y, cv=cv, groups=groups))
    own = glru.cross_val_score(estimator, X, y, cv=3, scoring=lambda model, X, y: float(model.predict(X).sum()))
    assert own.sum() == glru.cross_val_predict(estimator, X, y, cv=3).sum()


def recall_of_a_part(model, X, y):
    """A score of some of the rows."""
    positive = y[::2] == model.classes_[1]
    return np.mean(model.predict(X[::2])[positive] == model.classes_[1])


def shuffled_hits(model, X, y):
    order = np.random.default_rng(0).permutation(len(y))
    return np.mean(model.predict(X[order]) == y[order])


def sparsity(model, X, y):
    """A score of the coefficients."""
    return float(np.abs(model.coef_).sum() + model.intercept_.sum() + model.n_features_in_)


def sureness(model, X, y):
    return float(model.predict_proba(X[::2]).max(axis=1).mean())


def perturbed(model, X, y):
    return float(np.mean(model.decision_function(X + 0.1) - model.decision_function(X)))


@pytest.mark.parametrize("scoring", [recall_of_a_part, shuffled_hits, sparsity, sureness, perturbed])
def test_callables_get_what_scikit_learn_gives_them(scoring):
    X, y = cancer()
    estimator = LogisticRegression(C=0.5, **TIGHT)
    for cv in (3, ShuffleSplit(3, random_state=1)):
        ours = glru.cross_val_score(estimator, X, y, cv=cv, scoring=scoring)
        theirs = model_selection.cross_val_score(estimator, X, y, cv=cv, scoring=scoring)
        assert np.allclose(ours, theirs, rtol=1e-12, atol=0.0)


def test_callables_of_pipelines_weights_and_regressions():
    X, y = cancer()
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(**TIGHT))

    def scale_and_size(model, X, y):
        return float(np.abs(model[-1].coef_).sum() + model[0].scale_.sum() + model.score(X[:20], y[:20]))

    ours = glru.cross_val_score(pipeline, X, y, cv=3, scoring=scale_and_size)
    assert np.allclose(ours, model_selection.cross_val_score(pipeline, X, y, cv=3, scoring=scale_and_size))
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    (train, test), *_ = StratifiedKFold(3).split(X, y)
    for estimator in (pipeline, LogisticRegression(**TIGHT)):
        name = "logisticregression__sample_weight" if estimator is pipeline else "sample_weight"
        fitted = clone(estimator).fit(X[train], y[train], **{name: weights[train]})
        found = glru.cross_val_score(
            estimator, X, y, cv=3, sample_weight=weights, scoring=lambda model, X, y: model.score(X + 0.2, y)
        )
        assert found[0] == fitted.score(X[test] + 0.2, y[test])
    X, y = diabetes()
    frame, target = pd.DataFrame(X), pd.Series(y)

    def middle(model, X, y):
        assert isinstance(X, pd.DataFrame) and isinstance(y, pd.Series)
        return float(np.median(np.abs(model.predict(X.iloc[::-1]) - y.iloc[::-1])))

    ours = glru.cross_val_score(Ridge(0.5), frame, target, cv=4, scoring=middle)
    assert np.allclose(ours, model_selection.cross_val_score(Ridge(0.5), frame, target, cv=4, scoring=middle))


def test_scorers_of_predictions_are_certified_ones():
    """``make_scorer`` asks for predictions of the test rows alone, so nothing is trained for it."""
    X, y = cancer()
    estimator = LogisticRegression(C=0.5, **TIGHT)
    scorer = make_scorer(recall_score, pos_label=0)
    ours = glru.cross_val_score(estimator, X, y, cv=3, scoring=scorer)
    assert np.allclose(ours, model_selection.cross_val_score(estimator, X, y, cv=3, scoring=scorer))


@pytest.mark.parametrize(
    ("scoring", "message"),
    [
        ({"f1": "f1", "recall": "recall"}, "got dict. For several scores, use glru.cross_validate"),
        (["f1"], "got list. For several scores"),
        (recall_score, "Please use `make_scorer`"),
        (lambda model, X, y: model.predict(X), "scoring must return a number"),
    ],
)
def test_scorings_that_are_refused(scoring, message):
    with pytest.raises(ValueError, match=message):
        glru.cross_val_score(LogisticRegression(), *cancer(), cv=3, scoring=scoring)


def scored(function, *args, **options):
    """Scores with their warnings: the names of undefined metrics."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        return function(*args, **options), " ".join(str(warning.message) for warning in seen)


@pytest.mark.parametrize("name", ["logistic", "one-vs-rest", "ridge"])
def test_every_scorer_of_scikit_learn(name):
    """By name, all at once, in folds: the numbers of scikit-learn, NaN where a metric does not go with the model."""
    estimator, data = MODELS[name]
    X, y = data()
    X, y = X[:60], y[:60]
    cv, names = KFold(3), get_scorer_names()
    if name == "ridge":
        names = [name for name in names if get_scorer(name)._response_method == "predict"]
    ours, _ = scored(glru.cross_validate, estimator, X, y, cv=cv, scoring=names)
    theirs, _ = scored(model_selection.cross_validate, estimator, X, y, cv=cv, scoring=names)
    assert set(ours) == set(theirs) == {"fit_time", "score_time", *(f"test_{name}" for name in names)}
    for key in set(ours) - {"fit_time", "score_time"}:
        assert np.allclose(ours[key], theirs[key], rtol=1e-4, atol=1e-5, equal_nan=True), key
    assert sum(np.isfinite(ours[f"test_{name}"]).all() for name in names) >= (14 if name == "ridge" else 25)
    assert all(ours[key].shape == (3,) and np.all(ours[key] >= 0.0) for key in ("fit_time", "score_time"))


def test_metrics_of_leave_one_out_that_a_row_does_not_have():
    X, y = cancer(40)
    estimator = LogisticRegression(C=0.5, **TIGHT)
    likely = model_selection.cross_val_predict(estimator, X, y, cv=LeaveOneOut(), method="predict_proba")
    labels = likely[:, 1] > 0.5
    pooled = {
        "roc_auc": roc_auc_score(y, likely[:, 1]),
        "neg_log_loss": -log_loss(y, likely),
        "f1": f1_score(y, labels),
        "explained_variance": explained_variance_score(y, labels),
    }
    for name, value in pooled.items():
        ours, said = scored(glru.cross_val_score, estimator, X, y, cv=LeaveOneOut(), scoring=name)
        assert ours.shape == (40,) and np.allclose(ours, value, atol=1e-6)
        assert f"{name} is not defined on a single row" in said and "all held-out predictions together" in said
    for name in ("accuracy", "neg_brier_score"):
        ours, said = scored(glru.cross_val_score, estimator, X, y, cv=LeaveOneOut(), scoring=name)
        theirs = model_selection.cross_val_score(estimator, X, y, cv=LeaveOneOut(), scoring=name)
        assert np.allclose(ours, theirs, atol=1e-6) and not said


def test_shape_of_cross_validate():
    X, y = cancer(60)
    estimator = LogisticRegression(C=0.5, **TIGHT)

    def two(model, X, y):
        return {"right": model.score(X, y), "size": float(np.abs(model.coef_).sum())}

    for scoring in (None, "f1", two, {"auc": "roc_auc", "own": shuffled_hits}, ("recall", "precision")):
        ours = glru.cross_validate(estimator, X, y, cv=3, scoring=scoring, return_indices=True)
        theirs = model_selection.cross_validate(estimator, X, y, cv=3, scoring=scoring, return_indices=True)
        assert set(ours) == set(theirs)
        for key in set(ours) - {"fit_time", "score_time", "indices"}:
            assert np.allclose(ours[key], theirs[key], atol=1e-6)
        for part in ("train", "test"):
            assert all(map(np.array_equal, ours["indices"][part], theirs["indices"][part]))
    for option in ("return_train_score", "return_estimator"):
        with pytest.raises(ValueError, match=rf"{option}=True needs.*Use sklearn.model_selection.cross_validate"):
            glru.cross_validate(estimator, X, y, **{option: True})


def test_scorers_that_fail():
    def broken(model, X, y):
        raise RuntimeError("no score today")

    def strange(y, found):
        raise RuntimeError("no metric today")

    for scoring in (broken, make_scorer(strange)):
        ours, said = scored(glru.cross_val_score, LogisticRegression(), *cancer(60), cv=3, scoring=scoring)
        assert np.isnan(ours).all() and "today" in said
        ours, _ = scored(glru.cross_val_score, LogisticRegression(), *cancer(60), scoring=scoring, error_score=-1.0)
        assert np.array_equal(ours, -np.ones(5))
        with pytest.raises(RuntimeError, match="today"):
            glru.cross_val_score(LogisticRegression(), *cancer(60), cv=3, scoring=scoring, error_score="raise")


def test_callables_with_weights_of_one_vs_rest():
    X, y = iris()
    with pytest.raises(ValueError, match="OneVsRestClassifier takes no sample_weight"):
        glru.cross_val_score(
            OneVsRestClassifier(LogisticRegression()), X, y, sample_weight=np.ones(len(y)), scoring=shuffled_hits
        )


@pytest.mark.parametrize("name", ["logistic", "svc", "svc-classes", "ridge-classifier", "one-vs-rest"])
def test_loocv_counts_the_errors(name):
    estimator, data = MODELS[name]
    X, y = data()
    held = quietly(lambda: model_selection.cross_val_predict(estimator, X, y, cv=LeaveOneOut()))
    result = glru.loocv(estimator, X, y)
    assert result.n_errors == np.sum(held != y)
    assert np.array_equal(result.labels, held)
    assert result.decided.all() and sum(result.decided_by.values()) == len(y)
    assert np.all(result.score_lower <= result.scores)
    assert np.all(result.scores <= result.score_upper)
    assert repr(result).splitlines()[1].split() == ["errors", str(result.n_errors)]
    low, high = result.metric_bounds("accuracy")
    assert low == high == np.mean(held == y)
    frame = result.to_frame()
    assert np.array_equal(frame["y"], y) and np.array_equal(frame["label"], held)
    assert np.array_equal(frame["correct"], held == y)
    assert frame.shape[1] == 4 + 2 * (1 if result.bounds.lower.ndim == 1 else result.classes.size)


def test_loocv_of_a_regression():
    X, y = diabetes()
    held = model_selection.cross_val_predict(Ridge(0.5), X, y, cv=LeaveOneOut())
    low, high = glru.loocv(Ridge(0.5), X, y).metric_bounds("squared_error")
    assert low <= np.mean((held - y) ** 2) <= high


@each(MODELS, "model")
def test_after_holds_the_refitted_scores(model):
    estimator, data = model
    X, y = data()
    kept = np.delete(np.arange(len(y)), [2, 30])
    out = glru.after(estimator, glru.RemoveRows([2, 30]), X=X, y=y, tol=1e-9)
    lower, upper = out.score_bounds(X[:30])
    fitted = quietly(lambda: clone(estimator).fit(X[kept], y[kept]))
    regression = out.classes is None
    scores = fitted.predict(X[:30]) if regression else fitted.decision_function(X[:30])
    slack = 2e-5 * (1.0 + np.abs(scores))
    assert np.all(lower - slack <= scores)
    assert np.all(scores <= upper + slack)
    if not regression:
        proven = out.decided(X[:30])
        assert np.array_equal(out.labels(X[:30])[proven], fitted.predict(X[:30])[proven])
        assert proven.mean() > 0.5


def test_after_with_new_rows_of_a_frame():
    X, y = wine()
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
    new = frame[frame.columns[::-1]].iloc[100:]
    out = glru.after(LinearSVC(C=0.1), glru.AddRows(new, y[100:]), X=frame[:100], y=y[:100])
    again = glru.after(LinearSVC(C=0.1), glru.AddRows(X[100:], y[100:]), X=X[:100], y=y[:100])
    assert np.allclose(out.score_bounds(frame), again.score_bounds(X))


def test_after_needs_the_data():
    with pytest.raises(ValueError, match=r"does not keep its data.*X=X, y=y"):
        glru.after(LogisticRegression(), glru.RemoveRows([0]))


@each(MODELS | SHIFTING | SPARSE, "model")
def test_certify(model):
    """The certified gap is at least the distance to the optimum's value, and not much more for a loose fit."""
    estimator, data = model
    X, y = data()
    fitted = quietly(lambda: clone(estimator).fit(X, y))
    proof = glru.certify(fitted, X, y)
    best = [glru.solve(problem, tol=1e-11) for problem in proof.adapted.problems]
    excess = proof.objective - sum(solution.primal_value for solution in best)
    assert proof.gap >= excess - 1e-12 * proof.objective
    assert proof.relative_gap <= 1e-6
    lower, upper = proof.score_bounds(X)
    rows = proof.adapted.rows(X)
    scores = proof.adapted.stack([rows @ solution.coef + solution.intercept for solution in best])
    slack = 1e-5 * (1.0 + np.abs(scores))
    assert np.all((lower - slack <= scores) & (scores <= upper + slack))
    assert "relative gap" in repr(proof)


def test_certify_of_a_loose_fit():
    X, y = load_breast_cancer(return_X_y=True)
    X = scale(X)
    fitted = quietly(lambda: LogisticRegression(max_iter=4).fit(X, y))
    proof = glru.certify(fitted, X, y)
    best = glru.solve(proof.adapted.problems[0], tol=1e-12)
    excess = proof.objective - best.primal_value
    assert excess <= proof.gap <= 1.5 * excess
    assert np.linalg.norm(fitted.coef_[0] - best.coef) <= proof.radius
    decided = proof.decided(X)
    assert np.array_equal(fitted.predict(X)[decided], (best.scores > 0.0).astype(int)[decided])
    differ = fitted.predict(X) != (best.scores > 0.0)
    assert not decided[differ].any()
    assert decided.mean() > 0.9


def test_certify_needs_a_fit():
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        glru.certify(LogisticRegression(), *cancer())
    with pytest.raises(ValueError, match="no labels"):
        glru.certify(Ridge().fit(*diabetes()), *diabetes()).decided(diabetes()[0])


@each(SPLITTERS, "cv")
@each(SPARSE, "model")
def test_penalties_without_squares(model, cv):
    """Proven on the columns in use."""
    estimator, data = model
    X, y = data()
    compared(estimator, X[:90], y[:90], cv, ["predict" if hasattr(estimator, "alpha") else "decision_function"])


def test_refusals():
    X, y = cancer()
    for work in (glru.loocv, glru.cross_val_predict, glru.cross_val_score):
        with pytest.raises(ValueError, match=r"no squares.*Hinge\(\).*LinearSVC\(penalty='l1'"):
            work(glru.GLRUClassifier("hinge", lam=0.0, kappa=0.1), X, y)
    with pytest.raises(ValueError, match="a partition"):
        glru.cross_val_predict(LogisticRegression(), X, y, cv=ShuffleSplit(3, random_state=0))
    with pytest.raises(ValueError, match="probabilities need the logistic loss"):
        glru.cross_val_predict(LinearSVC(), X, y, method="predict_proba")
    with pytest.raises(ValueError, match="method must be 'predict' for a regression"):
        glru.cross_val_predict(Ridge(), X, y, method="decision_function")
    with pytest.raises(ValueError, match="split 0 has none of"):
        glru.cross_val_predict(LogisticRegression(), X, y, cv=[(np.flatnonzero(y == 0), np.flatnonzero(y == 1))])
    Xi, yi = iris()
    rows = np.append(np.flatnonzero(yi != 0), np.flatnonzero(yi == 0)[0])
    with pytest.raises(ValueError, match="at least two rows of every class"):
        glru.cross_val_predict(OneVsRestClassifier(LogisticRegression()), Xi[rows], yi[rows], cv=LeaveOneOut())
    with pytest.raises(ValueError, match="width must be a number above 0"):
        glru.cross_val_predict(LogisticRegression(), X, y, width=0.0)
    with pytest.raises(ValueError, match="at least one split"):
        glru.cross_val_predict(LogisticRegression(), X, y, cv=[])


def test_a_score_of_exactly_zero_gets_the_first_class():
    """Two rows of each class that mirror one another: the score at the origin is zero."""
    X = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0], [2.0, 0.0], [-2.0, 0.0], [0.0, 0.0]])
    y = np.array([1, 0, 1, 1, 0, 0])
    model = LogisticRegression(fit_intercept=False)
    labels = glru.cross_val_predict(model, X, y, cv=LeaveOneOut())
    assert (
        labels.tolist()
        == model_selection.cross_val_predict(model, X, y, cv=LeaveOneOut()).tolist()
        == [1, 0, 0, 1, 0, 0]
    )


@pytest.mark.parametrize("train", [[0, 0, 1, 2, 3], [1, 2, 3, 4, 4], [0, 0, 1, 2, 5]])
def test_train_rows_that_are_repeated_are_not_all_others(train):
    """As many as leave-one-out has, and one of them twice; a row that is in neither part may be the last one."""
    rng = np.random.default_rng(0)
    X, y, test = rng.normal(size=(6, 2)), rng.normal(size=6), np.setdiff1d(np.arange(5), train)
    ours = glru.cross_val_predict(Ridge(), X, y, cv=[(np.array(train), test[:1])], return_result=True)
    theirs = Ridge().fit(X[train], y[train]).predict(X[test[:1]])
    assert ours.scores == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize(("name", "count"), [("spambase", 4601), ("a9a", 6000)])
def test_real_data(name, count):
    """Held-out labels of all rows; scikit-learn's own on a sample of them."""
    X, y = real(name)
    X, y = X[:count], y[:count]
    estimator = LogisticRegression(C=0.01, **TIGHT)
    ours = glru.cross_val_predict(estimator, X, y, cv=LeaveOneOut(), method="decision_function")
    for row in np.random.default_rng(0).choice(count, 8, replace=False):
        kept = np.arange(count) != row
        theirs = estimator.fit(X[kept], y[kept]).decision_function(X[[row]])[0]
        assert abs(ours[row] - theirs) <= 0.5e-4 + 1e-6 * abs(theirs)  # half the default width, and the solver's error
