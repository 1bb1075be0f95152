"""Multinomial leave-one-out, folds and metrics equal what training every model gives."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import metrics
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import LeaveOneOut, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale

import glru
from tests.certificates.class_truth import retrained_without
from tests.core import has_cheap_space

TIGHT = {"tol": 1e-10, "max_iter": 10_000}


def scaled(load):
    X, y = load(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def held_out(problem, rows):
    start = glru.solve(problem, tol=1e-9)
    first = np.column_stack([start.coef, start.intercept]) if problem.fit_intercept else start.coef
    return np.array([retrained_without(problem, row, first)[1] for row in rows], dtype=float)


@pytest.mark.parametrize("C", [1e-4, 1.0, 100.0, 1e6])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_labels_of_iris_are_those_of_retraining(C, fit_intercept):
    X, y = scaled(load_iris)
    penalty = glru.L2(1.0 / C)
    problem = glru.Problem(X, y, glru.Multinomial(), penalty, fit_intercept=fit_intercept, scaling="sum")
    result, rows = glru.loocv(problem), np.arange(int(C) % 4, y.size, 9)
    scores = held_out(problem, rows)
    assert result.decided.all()
    assert np.array_equal(result.labels[rows], scores.argmax(axis=1))
    assert np.all((result.bounds.lower[rows] <= scores) & (scores <= result.bounds.upper[rows]))
    assert C > 1e3 or result.n_trainings == 0


@pytest.mark.parametrize("scaling", ["mean", "sum"])
def test_labels_of_wine_are_those_of_retraining_with_weights(scaling):
    X, y = scaled(load_wine)
    weight = np.random.default_rng(0).integers(0, 4, y.size).astype(float)
    strength = 0.5 if scaling == "sum" else 0.01
    problem = glru.Problem(
        sp.csr_array(X), y, glru.Multinomial(), glru.L2(strength), True, scaling=scaling, sample_weight=weight
    )
    result, rows = glru.loocv(problem), np.arange(0, y.size, 3)
    assert result.n_trainings == 0 and result.n_undetermined == 0
    assert np.array_equal(result.labels[rows], held_out(problem, rows).argmax(axis=1))


def test_digits_without_a_training():
    X, y = load_digits(return_X_y=True)
    problem = glru.Problem(X / 16.0, y, glru.Multinomial(), glru.L2(1.0), fit_intercept=True, scaling="sum")
    solution = glru.solve(problem)
    result = glru.loocv(solution, width="labels")
    assert result.n_trainings == 0 and result.n_undetermined == 0
    ordered = np.sort(result.scores, axis=1)
    for row in [*np.argsort(ordered[:, -1] - ordered[:, -2])[:2], 1000]:
        others = np.arange(y.size) != row
        model = LogisticRegression(solver="newton-cholesky", tol=1e-9).fit(X[others] / 16.0, y[others])
        scores = model.decision_function(X[row : row + 1] / 16.0)[0]
        scores = scores - scores.mean()
        assert np.all((result.bounds.lower[row] - 1e-6 <= scores) & (scores <= result.bounds.upper[row] + 1e-6))
        assert result.labels[row] == int(np.argmax(scores))


def test_rows_that_move_far_are_refined_without_a_training():
    rng = np.random.default_rng(12)
    X, W = rng.normal(size=(200, 40)), rng.normal(size=(4, 40))
    X[:, :5] *= rng.standard_t(2, size=(200, 5))
    y = (X @ W.T + [-4.0, 0.0, 0.0, 0.0] + rng.gumbel(size=(200, 4))).argmax(axis=1)
    problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(0.1), True, scaling="sum")
    result = glru.loocv(problem, width="labels")
    rows = np.flatnonzero(result.stages == "refine")
    assert rows.size and result.n_trainings == 0 and result.decided.all()
    assert np.array_equal(result.labels[rows[:8]], held_out(problem, rows[:8]).argmax(axis=1))


def test_rows_of_wide_data_that_move_far_are_trained_however_many_they_are():
    """Intervals are proven of all rows, and a default call proves no fewer labels than one that asks for nothing else."""
    rng = np.random.default_rng(4)
    X, y = np.exp(3.0 * rng.normal(size=(30, 80))), rng.permutation(np.arange(30) % 3)
    model = make_pipeline(StandardScaler(), LogisticRegression(**TIGHT))
    result = glru.loocv(model, X, y)
    assert result.decided.all() and np.isfinite(result.bounds.width).all()
    assert result.n_trainings == result.decided_by["training"] > 15
    assert np.array_equal(result.labels, cross_val_predict(model, X, y, cv=LeaveOneOut()))


def test_folds_of_weights_of_very_different_sizes():
    """Steps by products that overflow leave the fold to a training."""
    rng = np.random.default_rng(56)
    X, y, weight = rng.normal(size=(21, 4)), np.arange(21) % 4, 10.0 ** rng.uniform(-6.0, 6.0, 21)
    problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(2.0), True, scaling="sum", sample_weight=weight)
    tests = np.array_split(np.arange(21), 3)
    found = glru.cross_val_predict(
        problem, cv=[(np.setdiff1d(np.arange(21), test), test) for test in tests], width=1e-6
    )
    assert np.all(found.bounds.width <= 1e-4)


def test_rounding_in_single_precision_ends_no_steps():
    """What the first certificate loses leaves a row to the next one, in double precision and in the same batch."""
    X, y = load_digits(return_X_y=True)
    problem = glru.Problem(scale(X), y, glru.Multinomial(), glru.L2(1.0), fit_intercept=True, scaling="sum")
    result = glru.loocv(problem, width="labels")
    assert set(result.decided_by) == {"local", "newton"} and result.n_trainings == 0


def test_metrics_are_those_of_scikit_learn_on_retrained_probabilities():
    X, y = scaled(load_wine)
    y = np.array(["x", "y", "z"])[y]
    result = glru.loocv(LogisticRegression(C=0.05), X, y)
    likely = cross_val_predict(LogisticRegression(C=0.05, **TIGHT), X, y, cv=LeaveOneOut(), method="predict_proba")
    labels = np.unique(y)[likely.argmax(axis=1)]
    lower, upper = result.probability_bounds()
    assert np.all((lower - 1e-7 <= likely) & (likely <= upper + 1e-7))
    for name, value in {
        "log_loss": metrics.log_loss(y, likely),
        "accuracy": metrics.accuracy_score(y, labels),
        "balanced_accuracy": metrics.balanced_accuracy_score(y, labels),
        "macro_f1": metrics.f1_score(y, labels, average="macro"),
        "roc_auc": metrics.roc_auc_score(y, likely, multi_class="ovr"),
        "brier": np.mean(np.sum((likely - (np.unique(y) == y[:, None])) ** 2, axis=1)),
    }.items():
        low, high = result.metric_bounds(name)
        assert low - 1e-7 <= value <= high + 1e-7, name
        assert high - low <= 1e-4, name
    least, most = result.confusion_matrix()
    assert np.array_equal(least, most)
    assert np.array_equal(least, metrics.confusion_matrix(y, labels))


def test_open_rows_leave_room_in_the_confusion_matrix():
    X, y = scaled(load_iris)
    problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(1.0), scaling="sum")
    result = glru.loocv(problem, max_seconds=1e-9)
    assert result.n_undetermined == y.size
    least, most = result.confusion_matrix()
    assert least.sum() == 0 and np.all(most == 50)
    for name in ("accuracy", "balanced_accuracy", "macro_f1", "log_loss", "brier", "roc_auc"):
        low, high = result.metric_bounds(name)
        assert low <= 0.0 and high >= 1.0


ESTIMATORS = {
    "lbfgs": LogisticRegression(**TIGHT),
    "no intercept": LogisticRegression(C=10.0, fit_intercept=False, solver="newton-cholesky", tol=1e-10),
    "class weights": LogisticRegression(class_weight={0: 2.0, 1: 0.5, 2: 1.0}, **TIGHT),
    "balanced": LogisticRegression(class_weight="balanced", **TIGHT),
    "scaler": make_pipeline(StandardScaler(), LogisticRegression(**TIGHT)),
    "projection": make_pipeline(PCA(2), LogisticRegression(**TIGHT)),
    "ours": glru.GLRUClassifier("multinomial", C=0.3, tol=1e-12),
}


@pytest.mark.filterwarnings("ignore:.*left out one at a time")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_drop_ins_give_what_scikit_learn_gives(name):
    model, (X, y) = ESTIMATORS[name], scaled(load_iris)
    keep = np.r_[0:9, 60:70, 100:111]
    X, y = X[keep] * 2.0, y[keep]
    for cv in (LeaveOneOut(), StratifiedKFold(3)):
        for method, within in {"predict": 0.0, "decision_function": 1e-4}.items():
            ours = glru.cross_val_predict(model, X, y, cv=cv, method=method)
            theirs = cross_val_predict(model, X, y, cv=cv, method=method)
            if method == "decision_function":
                theirs = theirs - theirs.mean(axis=1, keepdims=True)
            assert np.allclose(np.asarray(ours), theirs, rtol=0.0, atol=within)
    assert np.array_equal(glru.loocv(model, X, y).labels, cross_val_predict(model, X, y, cv=LeaveOneOut()))


def test_a_fitted_model_is_certified():
    X, y = scaled(load_wine)
    model = LogisticRegression().fit(X, y)
    proof = glru.certify(model, X, y)
    assert proof.relative_gap < 1e-3 and proof.decided(X).all()
    assert np.isfinite(proof.radius)


def test_models_of_our_own_have_probabilities_and_a_proof():
    X, y = scaled(load_iris)
    model = glru.GLRUClassifier("multinomial", C=1.0, tol=1e-10).fit(X, y)
    theirs = LogisticRegression(**TIGHT).fit(X, y)
    assert np.allclose(model.coef_, theirs.coef_, atol=1e-4)
    assert np.allclose(model.predict_proba(X), theirs.predict_proba(X), atol=1e-5)
    assert model.dual_gap_ < 1e-6
    assert model.loocv().n_errors == 7
    two = y < 2
    assert glru.GLRUClassifier("multinomial").fit(X[two], y[two]).coef_.shape == (1, 4)


def test_a_path_of_strengths():
    X, y = scaled(load_iris)
    path = glru.loocv_path(glru.Problem(X, y, glru.Multinomial(), fit_intercept=True), [1.0, 0.1, 0.01], "log_loss")
    assert path.best_lam == 0.01 and path.certified


def test_folds_of_a_problem():
    X, y = scaled(load_wine)
    problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(2.0), fit_intercept=True, scaling="sum")
    result = glru.cross_val_predict(problem, cv=StratifiedKFold(4))
    assert result.n_trainings == 0 and result.decided.all()
    theirs = cross_val_predict(LogisticRegression(C=0.5, **TIGHT), X, y, cv=StratifiedKFold(4))
    labels = np.empty_like(y)
    labels[result.rows] = result.labels
    assert np.array_equal(labels, theirs)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("spaced", [True, False])
def test_a_hessian_that_is_too_large_is_not_needed(sparse, fit_intercept, spaced, monkeypatch):
    """More unknowns than a Hessian may have: rows are bounded in the space of the rows, or stepped together as folds are, in a metric over the columns."""
    if not spaced:
        monkeypatch.setattr("glru.removals.classes.has_class_space", lambda problem, times=2: False)
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(36, 2100)) * (rng.random((36, 2100)) < 0.2), np.arange(36) % 3
    X[:, :40] += np.eye(3)[y][:, np.arange(40) % 3]
    problem = glru.Problem(
        sp.csr_array(X) if sparse else X, y, glru.Multinomial(), glru.L2(3.0), fit_intercept, scaling="sum"
    )
    result, rows = glru.loocv(problem), np.arange(0, 36, 5)
    assert result.decided.all() and result.n_trainings == 0
    model = LogisticRegression(C=1.0 / 3.0, fit_intercept=fit_intercept, solver="newton-cg", **TIGHT)
    for row in rows:
        scores = model.fit(np.delete(X, row, axis=0), np.delete(y, row)).decision_function(X[[row]])[0]
        scores -= scores.mean()
        assert result.labels[row] == scores.argmax()
        # scikit-learn's scores are off by a few 1e-6.
        assert np.all((result.bounds.lower[row] <= scores + 1e-5) & (scores - 1e-5 <= result.bounds.upper[row]))
    splits = list(StratifiedKFold(4).split(X, y))
    found = glru.cross_val_predict(model, X, y, cv=splits)
    assert np.array_equal(found, cross_val_predict(model, X, y, cv=splits))


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_wide_data_in_any_units_is_trained_in_the_space_of_its_rows(fit_intercept):
    rng = np.random.default_rng(7)
    y = np.arange(40) % 4
    X = rng.normal(size=(40, 900)) * 10.0 ** rng.uniform(-2, 2, 900)
    X[20:24] = X[:4]
    problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(1.0), fit_intercept=fit_intercept, scaling="sum")
    wide = glru.solve(problem, tol=1e-8)
    direct = glru.solve(problem, tol=1e-8, solver="newton")
    assert wide.status == "converged" and wide.solver == "newton-cg"
    assert wide.gap <= 1e-8 * wide.primal_value
    np.testing.assert_allclose(wide.coef @ X.T, direct.coef @ X.T, atol=1e-3)


def test_wide_data_of_zeros_is_trained():
    problem = glru.Problem(np.zeros((9, 800)), np.arange(9) % 3, glru.Multinomial(), glru.L2(1.0), fit_intercept=True)
    assert np.all(glru.solve(problem, solver="newton-cg").coef == 0.0)


@pytest.mark.parametrize("shape", ["wide sparse", "wide dense", "tall sparse", "tall dense"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_models_without_a_row_of_problems_too_large_for_a_hessian_are_stepped_together(
    monkeypatch, shape, fit_intercept
):
    rng = np.random.default_rng(len(shape) + fit_intercept)
    n_rows, n_columns = (40, 90) if shape.startswith("wide") else (70, 30)
    X = rng.normal(size=(n_rows, n_columns)) * (rng.random((n_rows, n_columns)) < 0.3)
    y = (X @ rng.normal(size=(n_columns, 4)) + 2.0 * rng.gumbel(size=(n_rows, 4))).argmax(axis=1)
    y[:8] = np.tile(np.arange(4), 2)
    strengths = glru.L2(10.0 ** rng.uniform(-1, 1, n_columns))
    data = X if shape.endswith("dense") else sp.csr_array(X)
    problem = glru.Problem(data, y, glru.Multinomial(), strengths, fit_intercept, scaling="sum")
    # As if no system of more than ten unknowns could be formed.
    monkeypatch.setattr(type(problem.matrix), "largest", 10)
    solution = glru.solve(problem)
    assert has_cheap_space(problem) == shape.startswith("wide")
    found, naive = glru.loocv(solution, width="labels"), glru.loocv(solution, method="naive", tol=1e-10)
    assert found.decided.all() and found.n_trainings == 0
    assert np.array_equal(found.labels, naive.labels)
    narrow = glru.loocv(solution, width=1e-6)
    assert np.all(narrow.bounds.upper - narrow.bounds.lower <= 1e-6)
    for row in (0, 7, 21):
        _, scores, _ = retrained_without(problem, row)
        assert np.all(found.bounds.lower[row] <= scores)
        assert np.all(scores <= found.bounds.upper[row])
        assert np.all((narrow.bounds.lower[row] <= scores) & (scores <= narrow.bounds.upper[row]))
