"""Random sequences of changes and queries, held against a model trained from scratch every time."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sklearn.base import is_regressor
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge, RidgeClassifier
from sklearn.svm import LinearSVC

import glru
from tests.cases import l1
from tests.live.truth import quietly, retrained, state

ESTIMATORS = {
    "logistic": LogisticRegression(C=2.0),
    "logistic-plain": LogisticRegression(C=0.5, fit_intercept=False, class_weight={"a": 3.0}),
    "logistic-elastic": LogisticRegression(**l1(0.3), solver="saga"),
    "svc": LinearSVC(C=0.7),
    "svc-hinge": LinearSVC(C=0.7, loss="hinge"),
    "ridge-classifier": RidgeClassifier(alpha=2.0),
    "ridge": Ridge(alpha=0.5),
    "ridge-plain": Ridge(alpha=0.5, fit_intercept=False),
    "elastic-net": ElasticNet(alpha=0.1, l1_ratio=0.5),
    "glru-classifier": glru.GLRUClassifier(loss="smoothed_hinge", lam=0.1, fit_intercept=False),
    "glru-regressor": glru.GLRURegressor(loss="huber", lam=0.1, kappa=0.02),
}

seeds = st.integers(0, 10**6)


class Sequences(RuleBasedStateMachine):
    """A live model beside plain arrays that are changed the obvious way."""

    estimator = None

    @initialize(seed=seeds, keyed=st.booleans(), sparse=st.booleans(), weighted=st.booleans())
    def start(self, seed, keyed, sparse, weighted):
        self.random = np.random.default_rng(seed)
        self.regression = is_regressor(self.estimator)
        self.sparse, self.weighted = sparse, weighted
        self.X, self.y, self.weight = self.new_rows(14, 3)
        self.y[:4] = self.y[:4] if self.regression else ["a", "b", "a", "b"]
        self.weight[:4] = 1.0
        self.keys = [f"first {k}" for k in range(14)] if keyed else None
        self.n_named = 0
        self.live = glru.LiveModel(self.estimator, width=1e-4)
        quietly(self.live.fit, self.stored(self.X), self.y, self.weight, self.keys)

    def stored(self, X):
        return sp.csr_array(X) if self.sparse else X

    def new_rows(self, count, n_columns):
        """Rows of a noisy linear model, with zeros in them."""
        X = self.random.normal(0.2, 1.0, (count, n_columns)) * (self.random.random((count, n_columns)) < 0.8)
        z = X @ np.linspace(1.0, -1.0, n_columns) + self.random.normal(0.3, 0.7, count)
        y = z if self.regression else np.where(z > 0.0, "b", "a")
        return X, y, self.random.uniform(0.2, 2.0, count) if self.weighted else np.ones(count)

    def queries(self):
        return np.vstack([self.new_rows(3, self.X.shape[1])[0], np.zeros(self.X.shape[1])])

    @rule(count=st.integers(1, 3), other_storage=st.booleans())
    def add_rows(self, count, other_storage):
        X, y, weight = self.new_rows(count, self.X.shape[1])
        keys = None
        if self.keys is not None:
            keys = [f"row {self.n_named + k}" for k in range(count)]
            self.keys += keys
            self.n_named += count
        given = sp.csr_array(X) if other_storage else X
        entry = self.live.add_rows(given, y, weight if self.weighted else None, keys=keys)
        assert entry.count == count and entry.keys == (None if keys is None else tuple(keys))
        self.X, self.y, self.weight = np.vstack([self.X, X]), np.append(self.y, y), np.append(self.weight, weight)

    @rule(seed=seeds, count=st.integers(1, 3), by_key=st.booleans())
    def remove_rows(self, seed, count, by_key):
        rows = np.random.default_rng(seed).permutation(len(self.y))[:count]
        kept = np.delete(np.arange(len(self.y)), rows)
        named = {"keys": [self.keys[row] for row in rows]} if by_key and self.keys is not None else {"rows": rows}
        if kept.size == 0 or (not self.regression and np.unique(self.y[kept]).size < 2):
            before = state(self.live)
            with pytest.raises(ValueError, match="must be left"):
                self.live.remove_rows(**named)
            assert state(self.live) == before
            return
        entry = self.live.remove_rows(**named)
        assert len(entry.digests) == rows.size
        self.X, self.y, self.weight = self.X[kept], self.y[kept], self.weight[kept]
        self.keys = None if self.keys is None else [self.keys[row] for row in kept]

    @precondition(lambda self: self.X.shape[1] < 5)
    @rule(count=st.integers(1, 2))
    def add_columns(self, count):
        new = self.random.normal(0.0, 1.0, (len(self.y), count))
        self.live.add_columns(self.stored(new))
        self.X = np.hstack([self.X, new])

    @precondition(lambda self: self.X.shape[1] > 1)
    @rule(seed=seeds)
    def remove_columns(self, seed):
        column = seed % self.X.shape[1]
        self.live.remove_columns([column])
        self.X = np.delete(self.X, column, axis=1)

    @rule()
    def refresh(self):
        quietly(self.live.refresh)
        assert self.live.pending is None

    @rule()
    def save_and_load(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "live.npz"
            self.live.save(path)
            loaded = glru.LiveModel.load(path)
        assert state(loaded) == state(self.live)
        assert loaded.history == self.live.history and loaded.keys == self.live.keys
        self.live = loaded

    @rule(which=st.integers(0, 7))
    def fail(self, which):
        """A change that does not fit is refused before anything happens."""
        width = self.X.shape[1]
        row, label = np.ones((1, width)), self.y[:1]
        keys = None if self.keys is None else ["new"]
        calls = [
            lambda: self.live.remove_rows([len(self.y)]),
            lambda: self.live.remove_rows([0, 0]),
            lambda: self.live.remove_rows(keys=["nobody"]),
            lambda: self.live.add_rows(np.ones((1, width + 1)), label, keys=keys),
            lambda: self.live.add_rows(np.full((1, width), np.nan), label, keys=keys),
            lambda: self.live.add_rows(row, ["c"], keys=keys),
            lambda: self.live.add_columns(np.ones((len(self.y) + 1, 1))),
            lambda: self.live.remove_columns(range(width)),
        ]
        before = state(self.live)
        with pytest.raises(ValueError, match=r"\S"):
            calls[which]()
        assert state(self.live) == before

    @rule()
    def bounds(self):
        queries = self.queries()
        scores, off = retrained(self.estimator, self.X, self.y, queries, self.weight)
        revision = self.live.revision
        lower, upper = self.live.decision_bounds(self.stored(queries))
        assert np.all(lower <= scores + off) and np.all(scores - off <= upper)
        assert self.live.revision == revision

    @rule(times=st.integers(1, 2))
    def predict(self, times):
        queries = self.queries()
        scores, off = retrained(self.estimator, self.X, self.y, queries, self.weight)
        before = self.live.needs_retraining(queries)
        stored = self.live._stored_scores(self.live._queries(queries))
        for _ in range(times):
            found = quietly(self.live.predict, self.stored(queries))
        if self.regression:
            assert np.all(np.abs(found - scores) <= off + 0.5e-4 + 1e-9)
            moved = np.abs(stored - scores)
            assert before.verdict != "no" or np.all(moved <= 1e-4 + off)
            assert np.all(moved[before.flips[before.proven]] >= 1e-4 - off[before.flips[before.proven]])
            return
        clear = np.abs(scores) > off
        assert np.array_equal(found[clear], np.where(scores > 0.0, "b", "a")[clear])
        flipped = (stored > 0.0) != (scores > 0.0)
        stays = np.setdiff1d(np.arange(scores.size), before.flips)
        assert not np.any(flipped[stays] & clear[stays])
        assert np.all(flipped[before.flips[before.proven]] | ~clear[before.flips[before.proven]])

    @invariant()
    def nothing_is_lost(self):
        if hasattr(self, "live"):
            assert (self.live.n_rows, self.live.n_columns) == self.X.shape
            assert self.live.keys == (None if self.keys is None else tuple(self.keys))
            ledger = self.live._state.pending
            rows = ledger.take_rows(np.arange(len(self.y)))
            X = rows.X.dense()
            np.testing.assert_array_equal(X[:, self.live._state.spec.offset :], self.X)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_certified_answer_is_that_of_a_model_trained_from_scratch(name):
    machine = type(name, (Sequences,), {"estimator": ESTIMATORS[name]})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=8, stateful_step_count=14, deadline=None, derandomize=True, database=None, print_blob=False
        ),
    )
