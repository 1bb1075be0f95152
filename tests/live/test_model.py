"""What a live model does, one thing at a time."""

from dataclasses import FrozenInstanceError

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import Lasso, LogisticRegression, Ridge, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import glru
from glru.live import CertificateEntry, ChangeEntry, TrainingEntry, UndeterminedError
from tests.live.truth import retrained, state

NAMES = ["age", "size", "price"]


def data(n=60, d=3, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(0.2, 1.0, (n, d))
    return X, np.where(X @ np.linspace(1.0, -1.0, d) + random.normal(0.2, 0.5, n) > 0.0, "yes", "no")


def fitted(estimator=None, n=60, keys=None, **options):
    X, y = data(n)
    return glru.LiveModel(estimator or LogisticRegression(), **options).fit(X, y, keys=keys), X, y


@pytest.mark.parametrize(
    "estimator", [LogisticRegression(C=3.0), LinearSVC(), RidgeClassifier()], ids=lambda e: type(e).__name__
)
def test_labels_are_those_of_scikit_learn_refitted(estimator):
    live, X, y = fitted(estimator)
    queries, more = data(40, seed=1)[0], data(10, seed=2)
    live.remove_rows([0, 5, 7])
    live.add_rows(*more)
    X, y = np.vstack([np.delete(X, [0, 5, 7], axis=0), more[0]]), np.append(np.delete(y, [0, 5, 7]), more[1])
    assert live.predict(queries).tolist() == estimator.fit(X, y).predict(queries).tolist()


def test_a_regression_is_known_to_within_the_width():
    X, _ = data()
    y = X @ [1.0, 2.0, 3.0] + 0.1 * X[:, 0] ** 2
    live = glru.LiveModel(Ridge(alpha=0.3), width=1e-8).fit(X, y)
    live.remove_rows([1, 2])
    queries = data(20, seed=3)[0]
    refitted = Ridge(alpha=0.3).fit(np.delete(X, [1, 2], axis=0), np.delete(y, [1, 2]))
    assert np.allclose(live.predict(queries), refitted.predict(queries), rtol=0.0, atol=1e-8)


def test_a_fitted_estimator_is_only_read():
    X, y = data()
    estimator = LogisticRegression().fit(X, y)
    before = estimator.coef_.copy()
    glru.LiveModel(estimator).fit(X[:40], y[:40]).remove_rows([3])
    np.testing.assert_array_equal(estimator.coef_, before)


def test_a_change_and_its_queries_do_not_touch_the_rest_of_the_data():
    """Without an intercept nothing of the size of the data is formed: the carried certificate settles clear queries."""
    live, X, _ = fitted(LogisticRegression(fit_intercept=False), n=400)
    live.remove_rows([3])
    live.add_rows(X[:2], ["yes", "no"])
    clear = np.array([[5.0, 0.0, -5.0], [-5.0, 0.0, 5.0]])
    assert live.predict(clear).tolist() == ["yes", "no"]
    assert live.history[-1].carry == 2
    out = live._state.proofs.after
    assert "certificates" not in vars(out) and "problem" not in vars(out.carried)


def near_the_boundary(live):
    """A query that the pending change leaves open: between what the stored and the retrained model say."""
    old, new = live.solution, live._state.proofs.after.retrain(tol=1e-12)
    coef = 0.5 * (old.coef + new.coef)
    base = np.array([1.0, 1.0, 1.0])
    return (base - (base @ coef) / (coef @ coef) * coef)[None, :]


def test_only_an_open_label_is_trained_for():
    live, _, y = fitted(LinearSVC(loss="hinge", fit_intercept=False), n=200, tol=1e-9)
    live.remove_rows(np.flatnonzero(y == "yes")[:40])
    query = near_the_boundary(live)
    assert live.needs_retraining(query).verdict != "no"
    assert live.revision == 1
    label = live.predict(query)
    assert live.revision == 2 and live.pending is None
    training, certificate = live.history[-2:]
    assert isinstance(training, TrainingEntry) and training.reason == "predict" and training.status == "stopped"
    assert isinstance(certificate, CertificateEntry) and certificate.training == 1 and certificate.n_open == 0
    # It stopped when the label was proven, before the tolerance, and is not trained again for the same query.
    assert live.solution.relative_gap > 1e-9
    assert live.predict(query).tolist() == label.tolist() and live.revision == 2
    live.refresh()
    assert live.solution.relative_gap <= 1e-9 and live.revision == 3
    assert live.refresh().revision == 3


def test_a_query_without_entries_has_the_first_label_and_needs_no_training():
    live, _, _ = fitted(LogisticRegression(fit_intercept=False))
    live.remove_rows([1])
    assert live.predict(sp.csr_array((2, 3))).tolist() == ["no", "no"]
    assert live.revision == 1


def test_a_query_on_the_boundary_gets_no_label_and_is_trained_for_once():
    X = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, 0.5], [-1.0, -0.5]])
    X = np.vstack([X, X[:, ::-1]])
    live = glru.LiveModel(LogisticRegression(fit_intercept=False)).fit(X, [1, 0, 1, 0, 1, 0, 1, 0])
    # The data is symmetric in the two columns, so the optimum is too, and the second query's score is exactly zero.
    queries = [[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]
    for _ in range(2):
        with pytest.raises(
            UndeterminedError, match=r"1 of 3 are not, for queries 1: .*predict_certified\(X\)"
        ) as caught:
            live.predict(queries)
        assert caught.value.rows.tolist() == [1]
    assert live.revision == 2 and live.history[-1].n_open == 1
    found = live.predict_certified(queries)
    assert found.decided.tolist() == [True, False, True] and found.predictions[[0, 2]].tolist() == [1, 0]
    assert found.bounds.lower[1] <= 0.0 <= found.bounds.upper[1] < 1e-10
    assert live.revision == 2


def test_a_regression_that_float64_cannot_answer_so_closely_says_how_closely_it_can():
    X, _ = data()
    live = glru.LiveModel(Ridge(), width=1e-18).fit(X, X[:, 0] + X[:, 1] ** 2)
    with pytest.raises(
        UndeterminedError,
        match=r"no interval within width=1e-18 could be proven in float64 \(they are up to .*allow for that",
    ):
        live.predict(X[:3])
    found = live.predict_certified(X[:3])
    assert not found.decided.any() and np.all(found.bounds.width < 1e-8)


@pytest.mark.parametrize("scaled", [False, True])
def test_labels_after_added_columns_are_those_of_a_training_from_scratch(scaled):
    """Where the warm start has scores so large that curvatures vanish, a training from there makes no progress."""
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0) if scaled else X
    for seed in range(3):
        X = X[:, np.random.default_rng(seed).permutation(X.shape[1])]
        live = glru.LiveModel(LogisticRegression(C=100.0)).fit(X[:, :15], y)
        live.add_columns(X[:, 15:])
        best = glru.solve(glru.Problem(X, y, penalty=glru.L2(0.01), fit_intercept=True, scaling="sum"), tol=1e-12)
        assert best.status == "converged"
        np.testing.assert_array_equal(live.predict(X), best.scores > 0.0)
        live.add_columns(X[:, :5] ** 2)
        assert live.refresh().solution.relative_gap <= 1e-6


def test_needs_retraining_says_yes_no_or_undetermined():
    live, X, y = fitted()
    clear = np.array([[9.0, 0.0, -9.0]])
    assert live.needs_retraining(clear).verdict == "no"
    live.remove_rows(np.flatnonzero(y == "yes")[:-1])
    answer = live.needs_retraining(np.vstack([clear, X[y == "yes"]]))
    assert answer.verdict == "yes" and answer.flips.size and answer.proven.any()
    hinge, X, y = fitted(LinearSVC(loss="hinge", fit_intercept=False), n=200)
    hinge.remove_rows(np.flatnonzero(y == "yes")[:40])
    answer = hinge.needs_retraining(near_the_boundary(hinge))
    assert answer.verdict == "undetermined" and answer.flips.tolist() == [0] and not answer.proven.any()


def test_frames_are_matched_by_name():
    X, y = data()
    frame = pd.DataFrame(X, columns=NAMES)
    live = glru.LiveModel(LinearSVC()).fit(frame, y)
    other = glru.LiveModel(LinearSVC()).fit(X, y)
    shuffled = frame[["price", "age", "size"]]
    assert live.add_rows(shuffled[:3], y[:3]).count == 3
    other.add_rows(X[:3], y[:3])
    live.remove_columns(["size"])
    other.remove_columns([1])
    entry = live.add_columns(pl.DataFrame({"new": np.linspace(0.0, 1.0, 63)}))
    other.add_columns(np.linspace(0.0, 1.0, 63)[:, None])
    assert entry.columns == ("new",)
    queries = pd.DataFrame({"new": [1.0], "price": [0.3], "age": [2.0]})
    np.testing.assert_allclose(live.decision_bounds(queries), other.decision_bounds([[2.0, 0.3, 1.0]]), rtol=1e-9)
    with pytest.raises(ValueError, match="missing: new"):
        live.predict(pd.DataFrame({"old": [1.0], "price": [0.3], "age": [2.0]}))


def test_keys_name_rows():
    live, X, _ = fitted(keys=range(60))
    entry = live.remove_rows(keys=[np.int64(7), 59])
    assert entry.keys == (7, 59) and 7 not in live.keys
    live.add_rows(X[:2], ["yes", "no"], keys=[7, "x"])
    assert live.keys[-2:] == (7, "x")
    live.remove_rows(keys=[7])
    assert live.keys[-1] == "x" and len(live.keys) == 59
    live.refresh()
    live.remove_rows(keys=["x"])
    assert live.n_rows == 58 and live.history[-1].n_trained == 1


def test_adding_and_removing_the_same_row_leaves_nothing_pending():
    live, X, y = fitted()
    live.add_rows(X[:1], y[:1])
    live.add_columns(np.ones((61, 1)))
    live.remove_columns([3])
    live.remove_rows([60])
    assert live.pending is None and live.n_rows == 60


def test_the_users_arrays_may_change_afterwards():
    X, _ = data()
    kept, new = X.copy(), X[:2].copy()
    live = glru.LiveModel(Ridge(fit_intercept=False)).fit(X, np.arange(60.0))
    live.add_rows(new, [1.0, 2.0])
    X[:], new[:] = 0.0, 0.0
    rows = live._state.pending.take_rows(np.arange(62))
    np.testing.assert_array_equal(rows.X.dense(), np.vstack([kept, kept[:2]]))


def test_all_trained_rows_may_go_if_others_came():
    live, X, y = fitted()
    more = data(30, seed=4)
    live.add_rows(*more)
    live.remove_rows(range(60))
    live.add_columns(more[0][:, :1] ** 2)
    X, y = np.hstack([more[0], more[0][:, :1] ** 2]), more[1]
    assert live.predict(X).tolist() == LogisticRegression(tol=1e-10).fit(X, y).predict(X).tolist()


def test_an_unpenalised_model_takes_new_columns():
    live, X, y = fitted(LogisticRegression(C=np.inf))
    live.add_columns(X[:, :1] ** 2)
    live.remove_rows([4])
    wide = np.delete(np.hstack([X, X[:, :1] ** 2]), 4, axis=0)
    refitted = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(wide, np.delete(y, 4))
    lower, upper = live.decision_bounds(wide)
    scores = refitted.decision_function(wide)
    assert np.all(lower <= scores + 1e-4) and np.all(scores - 1e-4 <= upper) and np.all(upper - lower < 1.0)


def test_the_history_tells_everything_and_cannot_be_edited():
    live, X, _ = fitted(keys=range(60))
    live.remove_rows(keys=[3])
    live.predict(X[:2])
    live.refresh()
    kinds = [type(entry) for entry in live.history]
    assert kinds == [TrainingEntry, ChangeEntry, CertificateEntry, TrainingEntry]
    assert [entry.number for entry in live.history] == [0, 1, 2, 3]
    assert live.history[0].model == live.history[1].model != live.history[3].model
    with pytest.raises(FrozenInstanceError):
        live.history[1].count = 5


BALANCED = LogisticRegression(class_weight="balanced")
PIPELINE = make_pipeline(StandardScaler(), LogisticRegression())


@pytest.mark.parametrize(
    ("estimator", "y", "words"),
    [
        (LinearSVC(), [0, 1, 2] * 20, "two classes"),
        (BALANCED, [0, 1] * 30, "balanced"),
        (PIPELINE, [0, 1] * 30, "StandardScaler"),
        (Lasso(), np.arange(60.0), "squares in it"),
        ("no estimator", [0, 1] * 30, "needs an estimator of scikit-learn or of this library; got str"),
        (LogisticRegression(), [0] * 60, "two classes"),
        (LogisticRegression(), np.array([1j, 2.0] * 30), "y must be real"),
        (LogisticRegression(), np.array(["2024-01-01", "2025-01-01"] * 30, dtype="M8[D]"), "text, numbers or booleans"),
    ],
)
def test_what_cannot_be_live_is_refused(estimator, y, words):
    with pytest.raises((ValueError, TypeError), match=words):
        glru.LiveModel(estimator).fit(data()[0], y)


def test_a_class_without_weight_is_refused():
    X, y = data()
    with pytest.raises(ValueError, match="weight above 0"):
        glru.LiveModel(LogisticRegression()).fit(X, y, sample_weight=(y == "yes").astype(float))


ROW = np.ones((1, 3))

FAILURES = {
    "unknown key": (lambda live: live.remove_rows(keys=[99]), "present rows; got 99"),
    "removed key": (lambda live: live.remove_rows(keys=[4]), "present rows; got 4"),
    "key twice": (lambda live: live.remove_rows(keys=[5, 5]), "distinct; got 5"),
    "no key": (lambda live: live.add_rows(ROW, ["yes"]), "need keys"),
    "taken key": (lambda live: live.add_rows(ROW, ["yes"], keys=[7]), "must be new; got 7"),
    "new keys twice": (lambda live: live.add_rows(ROW.repeat(2, 0), ["yes", "no"], keys=["a", "a"]), "distinct"),
    "too few keys": (lambda live: live.add_rows(ROW.repeat(2, 0), ["yes", "no"], keys=["a"]), "one entry per row, 2"),
    "key of no type": (lambda live: live.add_rows(ROW, ["yes"], keys=[(1, 2)]), "keys must be text"),
    "key nan": (lambda live: live.add_rows(ROW, ["yes"], keys=[np.nan]), "keys must be text"),
    "keys as text": (lambda live: live.remove_rows(keys="ab"), "sequence"),
    "nothing named": (lambda live: live.remove_rows(), "either by position"),
    "both named": (lambda live: live.remove_rows([1], keys=[1]), "either by position"),
    "no rows": (lambda live: live.remove_rows([]), "at least one row"),
    "row twice": (lambda live: live.remove_rows([5, 5]), "once each"),
    "row far off": (lambda live: live.remove_rows([59]), "from 0 to 58"),
    "all rows": (lambda live: live.remove_rows(range(59)), "at least one row must be left"),
    "a class": (
        lambda live: live.remove_rows(np.flatnonzero(live._state.pending.take_rows(np.arange(59)).y < 0)),
        "class 'no'",
    ),
    "unknown label": (lambda live: live.add_rows(ROW, ["maybe"], keys=["a"]), "got maybe"),
    "label of a type": (lambda live: live.add_rows(ROW, [1], keys=["a"]), "got 1"),
    "negative weight": (lambda live: live.add_rows(ROW, ["yes"], [-1.0], keys=["a"]), "at least 0"),
    "wrong columns": (lambda live: live.add_rows(np.ones((1, 4)), ["yes"], keys=["a"]), "must have 3 columns"),
    "nan": (lambda live: live.add_rows(np.full((1, 3), np.nan), ["yes"], keys=["a"]), "finite"),
    "short y": (lambda live: live.add_rows(ROW, [], keys=["a"]), "one entry per row"),
    "columns of wrong height": (lambda live: live.add_columns(np.ones((60, 1))), "must have 59 rows"),
    "column name again": (lambda live: live.add_columns(pd.DataFrame({"age": np.ones(59)})), "got age again"),
    "unknown column": (lambda live: live.remove_columns(["weight"]), "'weight'"),
    "no column": (lambda live: live.remove_columns([]), "at least one column"),
    "all columns": (lambda live: live.remove_columns(NAMES), "at least one column must be left"),
    "query": (lambda live: live.predict(np.ones((1, 2))), "must have 3 columns"),
    "receipt of nothing": (lambda live: live.receipt(live.history[0]), "entry of this model's history"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_change_leaves_the_model_as_it_was(name):
    call, words = FAILURES[name]
    X, y = data()
    live = glru.LiveModel(LogisticRegression()).fit(pd.DataFrame(X, columns=NAMES), y, keys=range(60))
    live.remove_rows(keys=[4])
    before = state(live)
    with pytest.raises((ValueError, TypeError), match=words):
        call(live)
    assert state(live) == before


def test_a_model_without_data_or_with_bad_settings_says_so():
    live = glru.LiveModel(Ridge())
    with pytest.raises(ValueError, match="call fit first"):
        live.predict(np.ones((1, 2)))
    for settings in ({"tol": -1.0}, {"tol": np.nan}, {"width": 0.0}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            glru.LiveModel(Ridge(), **settings)
    assert "Ridge" in repr(live)
    assert "revision 1" in repr(fitted()[0])


@pytest.mark.parametrize("width", [None, 1e-6])
@pytest.mark.parametrize("estimator", [LogisticRegression(C=3.0), LinearSVC(loss="hinge", C=0.5), RidgeClassifier()])
def test_scores_are_those_of_a_retrained_model_to_within_half_of_the_width(estimator, width):
    live, X, y = fitted(estimator, width=width)
    live.remove_rows(range(7))
    more = data(5, seed=3)
    live.add_rows(*more)
    X, y = np.vstack([X[7:], more[0]]), np.append(y[7:], more[1])
    exact, error = retrained(estimator, X, y, X)
    scores = live.decision_function(X)
    assert scores.shape == (X.shape[0],) and live.history[-1].query == "decision_function"
    assert np.all(np.abs(scores - exact) <= 0.5 * (width or 1e-3) * (1.0 + 1e-12) + error)
    assert live.classes_.tolist() == ["no", "yes"]
    assert np.array_equal(live.predict(X), live.classes_[(scores > 0.0).astype(int)])


def test_probabilities_are_those_of_a_retrained_model():
    live, X, y = fitted(LogisticRegression(C=3.0), width=0.08)
    live.remove_rows(range(7))
    exact, error = retrained(LogisticRegression(C=3.0), X[7:], y[7:], X)
    found = live.predict_proba(X)
    assert found.shape == (60, 2) and live.history[-1].query == "predict_proba"
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-15)
    assert np.all(np.abs(found[:, 1] - 1.0 / (1.0 + np.exp(-exact))) <= 0.01 + error)


def test_scores_and_probabilities_are_refused_where_there_are_none():
    live, X, _ = fitted(LinearSVC())
    with pytest.raises(AttributeError, match="predict_proba needs the logistic loss; got SquaredHinge"):
        live.predict_proba(X)
    regression = glru.LiveModel(Ridge()).fit(X, X[:, 0])
    for method in (regression.predict_proba, regression.decision_function):
        with pytest.raises(AttributeError, match=r"needs the logistic loss|needs a classifier"):
            method(X)
    narrow = glru.LiveModel(LogisticRegression(), width=1e-300).fit(X, X[:, 0] > 0.0)
    narrow.remove_rows([0])
    with pytest.raises(UndeterminedError, match="no interval within width=1e-300"):
        narrow.predict_proba(X)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    "estimator",
    [LogisticRegression(), LogisticRegression(fit_intercept=False), RidgeClassifier()],
    ids=["logistic", "no intercept", "ridge"],
)
def test_wide_data_is_answered_without_training(estimator, sparse):
    random = np.random.default_rng(4)
    X = random.normal(0.5, 1.0, (130, 150)) * (random.random((130, 150)) < (0.2 if sparse else 1.0))
    y = np.where(X[:, :5].sum(axis=1) + random.normal(0.0, 1.0, 130) > X[:, :5].sum(axis=1).mean(), "yes", "no")
    queries, kind = random.normal(0.0, 1.0, (90, 150)), sp.csr_array if sparse else np.asarray
    live = glru.LiveModel(estimator, width=1e-6).fit(kind(X[:40]), y[:40])
    live.remove_rows([3, 17])
    live.add_rows(kind(X[40:45]), y[40:45])
    X, y = np.vstack([np.delete(X[:40], [3, 17], axis=0), X[40:45]]), np.append(np.delete(y[:40], [3, 17]), y[40:45])
    for columns in ([], [7, 8]):
        if columns:
            live.remove_columns(columns)
            X, queries = np.delete(X, columns, axis=1), np.delete(queries, columns, axis=1)
        for some in (queries[:1], queries):  # more queries than rows, and a second question about the same state
            scores, doubt = retrained(estimator, X, y, some)
            assert np.all(np.abs(live.decision_function(some) - scores) <= 5e-7 + doubt)
            found = live.predict_certified(some).bounds
            assert np.all((found.lower <= scores + doubt) & (scores - doubt <= found.upper))
    assert live.revision == 1
