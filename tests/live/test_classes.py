"""Live multinomial models: predictions, intervals, receipts and files, against retraining in extended precision."""

import json
import pickle

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import glru
from tests.certificates.class_truth import retrain_classes

NAMES = np.array(["high", "low", "mid", "top"])


def table(seed, n_rows=120, n_columns=3):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n_rows, n_columns))
    chances = X @ random.normal(size=(n_columns, 4)) + random.gumbel(size=(n_rows, 4))
    return X, NAMES[chances.argmax(axis=1)], random.normal(size=(40, n_columns))


def scores_of(estimator, X, y, queries, weight=None):
    """The scores of queries under the retrained model, measured from the mean of all classes."""
    places = np.searchsorted(NAMES, y)
    weight = np.ones(len(y)) if weight is None else weight
    free = estimator.fit_intercept
    model, _ = retrain_classes(X, places, weight, 1.0 / estimator.C, 4, free)
    wide = np.column_stack([queries, np.ones(len(queries))]) if free else queries
    return (wide.astype(np.longdouble) @ model.T).astype(float)


@pytest.mark.parametrize("seed", range(6))
def test_answers_are_those_of_a_retrained_model(seed):
    X, y, queries = table(seed)
    estimator = LogisticRegression(C=10.0 ** (seed - 2), fit_intercept=seed % 2 == 0)
    live = glru.LiveModel(estimator).fit(X[:100], y[:100], keys=range(100))
    live.remove_rows(keys=[3, 40])
    live.add_rows(X[100:], y[100:], keys=range(100, 120))
    kept = np.delete(np.arange(120), [3, 40])
    scores = scores_of(estimator, X[kept], y[kept], queries)
    lower, upper = live.decision_bounds(queries)
    assert lower.shape == (40, 4)
    assert np.all((lower <= scores) & (scores <= upper))
    assert np.array_equal(live.predict(queries), NAMES[scores.argmax(axis=1)])
    assert np.abs(live.decision_function(queries) - scores).max() <= 0.5e-3
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    assert np.abs(live.predict_proba(queries) - chances).max() <= 0.25e-3
    stored = live.solution
    before = NAMES[(queries @ stored.coef.T + stored.intercept).argmax(axis=1)]
    changed = live.needs_retraining(queries)
    assert set(np.flatnonzero(before != NAMES[scores.argmax(axis=1)])) <= set(changed.flips)
    found = live.predict_certified(queries)
    assert found.to_frame().shape == (40, 10)
    assert found.decided.all()
    assert live.revision == 1


def test_class_weights_and_columns_that_come_and_go():
    X, y, queries = table(7)
    factors = dict(zip(NAMES.tolist(), (2.0, 1.0, 0.5, 1.0), strict=True))
    estimator = LogisticRegression(class_weight=factors)
    live = glru.LiveModel(estimator).fit(X, y)
    live.remove_columns([1])
    more = np.random.default_rng(8).normal(size=(120, 1))
    live.add_columns(more)
    asked = np.column_stack([queries[:, [0, 2]], queries[:, 1]])
    weight = np.array([factors[label] for label in y.tolist()])
    scores = scores_of(estimator, np.column_stack([X[:, [0, 2]], more]), y, asked, weight)
    lower, upper = live.decision_bounds(asked)
    assert np.all((lower <= scores) & (scores <= upper))
    assert np.array_equal(live.predict(asked), NAMES[scores.argmax(axis=1)])


def test_receipts_say_and_prove_what_they_do_of_two_classes():
    X, y, queries = table(9)
    live = glru.LiveModel(LogisticRegression()).fit(X, y)
    removal = live.remove_rows([4, 5])
    rest = np.delete(np.arange(120), [4, 5])
    early = live.receipt(removal, queries)
    assert glru.verify_receipt(early, X[rest], y[rest], queries=queries).statement == "model not yet updated"
    receipt = json.loads(json.dumps(live.refresh().receipt(removal, queries)))
    found = glru.verify_receipt(receipt, X[rest], y[rest], queries=queries)
    assert found, found.reasons
    assert found.statement == "equals retraining to within r"
    truth, _ = retrain_classes(X[rest], np.searchsorted(NAMES, y[rest]), np.ones(118), 1.0, 4, True)
    coef = np.reshape(receipt["model"]["coef"], (4, 3))
    assert np.linalg.norm(coef - truth[:, :3].astype(float)) <= receipt["certificate"]["radius"]
    moved = np.abs(np.array(receipt["model"]["intercept"]) - truth[:, 3].astype(float)).max()
    assert moved <= receipt["certificate"]["intercept_change"]
    scores = scores_of(LogisticRegression(), X[rest], y[rest], queries)
    stated = receipt["queries"]["largest_change"]
    assert np.abs(queries @ coef.T + receipt["model"]["intercept"] - scores).max() <= stated
    receipt["model"]["coef"][0] += 1e-3
    assert not glru.verify_receipt(receipt, X[rest], y[rest], queries=queries)
    one = y[rest] != "top"
    assert not glru.verify_receipt(early, X[rest][one], y[rest][one], queries=queries)


def test_files_and_copies_keep_the_model(tmp_path):
    X, y, queries = table(10)
    live = glru.LiveModel(LogisticRegression()).fit(X[:100], y[:100], keys=range(100))
    live.add_rows(X[100:], y[100:], keys=range(100, 120))
    live.remove_rows(keys=[1, 110])
    live.save(tmp_path / "live.npz")
    for other in (glru.LiveModel.load(tmp_path / "live.npz"), pickle.loads(pickle.dumps(live))):
        assert np.array_equal(other.predict(queries), live.predict(queries))
        assert np.array_equal(other.classes_, NAMES)
        assert other.keys == live.keys
        assert np.array_equal(other.refresh().solution.intercept.shape, (4,))


def test_what_a_live_model_of_classes_refuses():
    X, y, _ = table(11)
    live = glru.LiveModel(LogisticRegression()).fit(X, y)
    with pytest.raises(ValueError, match=r"all classes must be left; got the removal of every row of class 'mid'"):
        live.remove_rows(np.flatnonzero(y == "mid"))
    with pytest.raises(ValueError, match="labels must be among"):
        live.add_rows(X[:1], ["other"])
    with pytest.raises(ValueError, match="one problem for each of 4 classes"):
        glru.LiveModel(glru.GLRUClassifier()).fit(X, y)
    with pytest.raises(ValueError, match="forms a Hessian over classes and columns, of at most"):
        glru.LiveModel(LogisticRegression()).fit(np.zeros((8, 2000)), NAMES[np.arange(8) % 4])
