"""Keys of removed rows that a live model forgets: nothing it keeps or writes contains them, and receipts are valid still."""

import copy
import json
import pickle

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import glru
from tests.live.test_model import data
from tests.live.truth import state

SECRETS = ["person-4711", "person-0815", "newcomer-42"]


def keyed():
    """A live model from which two trained rows and an added one were removed."""
    X, y = data()
    keys = ["person-4711", "person-0815", *(f"k{i}" for i in range(58))]
    live = glru.LiveModel(LogisticRegression()).fit(X, y, keys=keys)
    live.add_rows(X[:2] + 1.0, y[:2], keys=["newcomer-42", "stays"])
    removals = [live.remove_rows(keys=[key]) for key in SECRETS]
    return live, removals, np.vstack([X[2:], X[1:2] + 1.0]), np.append(y[2:], y[1:2])


def traces(live, path):
    """Everything a live model gives away, as bytes: its pickle, its file, its history, what it prints, its attributes."""
    live.save(path, overwrite=True)
    printed = repr((live, live.history, live.keys, live.pending, state(live)))
    return pickle.dumps(live), path.read_bytes(), printed.encode(), repr(live._log.written).encode()


def found_in(live, path, key):
    return [key.encode() in text for text in traces(live, path)]


@pytest.mark.parametrize("trained", [False, True], ids=["before a training", "after a training"])
def test_no_trace_of_a_forgotten_key_is_left(tmp_path, trained):
    live, removals, X, y = keyed()
    if trained:
        live.refresh()
    path = tmp_path / "live.npz"
    assert all(all(found_in(live, path, key)) for key in SECRETS)  # otherwise the search would find nothing ever
    entry = live.forget(SECRETS)
    assert (entry.kind, entry.count, entry.keys) == ("forget_keys", 3, None)
    receipts = [live.refresh().receipt(removal, X[:2]) for removal in removals]
    for key in SECRETS:
        assert not any(found_in(live, path, key))
        assert key not in json.dumps(receipts)
        assert not any(found_in(glru.LiveModel.load(path), path, key))
        assert not any(found_in(copy.deepcopy(live), path, key))
        assert key not in (live._state.pending.keys.places, live._state.pending._new_places)
    for receipt in receipts:
        found = glru.verify_receipt(json.dumps(receipt), X, y, queries=X[:2])
        assert found and found.statement == "equals retraining to within r", found.reasons
    assert live.keys == (*(f"k{i}" for i in range(58)), "stays") and live.n_rows == 59


def test_the_data_does_not_change_when_keys_are_forgotten(tmp_path):
    live, removals, X, _ = keyed()
    bounds, keys = live.decision_bounds(X), live.keys
    live.forget(SECRETS[:1])
    assert np.array_equal(live.decision_bounds(X), bounds) and live.keys == keys
    assert live.history[removals[0].number].keys == () and live.history[removals[1].number].keys == (SECRETS[1],)
    assert live.history[removals[0].number].digests == removals[0].digests
    live.save(tmp_path / "live.npz")
    loaded = glru.LiveModel.load(tmp_path / "live.npz")
    assert state(loaded) == state(live) and loaded.forget().count == 2 and loaded.forget().count == 0
    # A key that nobody has any more is free again, and so is its row.
    loaded.add_rows(X[:1], ["yes"], keys=[SECRETS[0]])
    assert loaded.keys[-1] == SECRETS[0]


@pytest.mark.parametrize(
    ("keys", "match"),
    [
        (["k3"], "Remove the rows first"),
        (["nobody"], "must be those of removed rows"),
        (["person-4711", "nobody"], "must be those of removed rows"),
        ("person-4711", "must be a sequence"),
    ],
)
def test_only_keys_of_removed_rows_are_forgotten(keys, match):
    live, _, _, _ = keyed()
    before = state(live)
    with pytest.raises((ValueError, TypeError), match=match):
        live.forget(keys)
    assert state(live) == before


def test_rows_without_keys_have_nothing_to_forget():
    X, y = data()
    with pytest.raises(ValueError, match="rows have no keys"):
        glru.LiveModel(LogisticRegression()).fit(X, y).forget()
