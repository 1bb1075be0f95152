"""A receipt says what holds, and anyone with the remaining data can tell when it does not."""

import copy
import json
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.svm import LinearSVC

import glru
from glru.live.state import digest_json, digest_rows
from tests.core import as_matrix
from tests.live.test_files import array, rewritten
from tests.live.test_model import data
from tests.live.truth import quietly

NOT_YET, EQUALS = "model not yet updated", "equals retraining to within r"

DOCS = Path(__file__).parents[2] / "docs" / "receipts.md"

ESTIMATORS = {
    "logistic": LogisticRegression(),
    "logistic-weights": LogisticRegression(class_weight={"yes": 2.0}),
    "logistic-free": LogisticRegression(C=np.inf),
    "svc": LinearSVC(intercept_scaling=2.0),
    "hinge": LinearSVC(loss="hinge"),
    "ridge-classifier": RidgeClassifier(),
}


def removed(estimator, rows=(4, 9), **options):
    """A live model without some rows, the change, and what remains."""
    X, y = data()
    live = glru.LiveModel(estimator, **options).fit(X, y)
    change = live.remove_rows(list(rows))
    return live, change, np.delete(X, rows, axis=0), np.delete(y, rows)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_receipt_claims_no_more_than_holds(name):
    live, change, X, y = removed(ESTIMATORS[name])
    queries = data(10, seed=5)[0]
    early = live.receipt(change, queries)
    assert early["statement"] == NOT_YET and early["model"]["before"] == early["model"]["after"]
    found = glru.verify_receipt(early, X, y, queries=queries)
    assert found and found.statement == NOT_YET, found.reasons
    late = live.refresh().receipt(change, queries)
    assert late["statement"] == EQUALS and late["model"]["before"] != late["model"]["after"]
    found = glru.verify_receipt(json.dumps(late), X, y, queries=queries)
    assert found and found.statement == EQUALS, found.reasons
    assert found.radius <= early["certificate"]["radius"]
    assert found.largest_change <= early["queries"]["largest_change"]
    # The distance is true: the model trained as far as it goes is within it.
    problem = live._state.proofs.after.problem
    best = quietly(glru.solve, problem, tol=1e-11)
    for receipt in (early, late):
        coef = np.array(receipt["model"]["coef"])
        off = np.sqrt(2.0 * best.gap / max(problem.penalty.strong_convexity, 1e-3)) + 1e-9
        assert np.linalg.norm(coef - best.coef) <= receipt["certificate"]["radius"] + off
        rows = live._state.spec.convert_rows(queries, problem.n_columns, "queries")
        moved = rows @ (coef - best.coef) + receipt["model"]["intercept"] - best.intercept
        assert np.abs(moved).max() <= receipt["queries"]["largest_change"] + 100.0 * off


def test_a_lazy_training_updates_the_model_too():
    live, change, X, y = removed(LogisticRegression(), tol=1e-2)
    live.predict([[0.0, 0.0, 0.0]])
    live.add_rows(X[:1], y[:1])
    live.refresh()
    receipt = live.receipt(change)
    assert receipt["statement"] == EQUALS
    assert glru.verify_receipt(receipt, np.vstack([X, X[:1]]), np.append(y, y[0]))


def test_rows_that_were_never_trained_on_need_no_update():
    X, y = data()
    live = glru.LiveModel(LogisticRegression()).fit(X, y)
    live.add_rows(X[:1] + 1.0, y[:1])
    receipt = live.receipt(live.remove_rows([60]))
    assert receipt["removal"]["n_trained"] == 0 and receipt["statement"] == EQUALS
    assert glru.verify_receipt(receipt, X, y).statement == EQUALS


def test_there_is_no_receipt_while_an_equal_row_is_present_unless_it_is_known_to_be_another():
    X, y = data()
    X[10], y = X[4], np.arange(60.0)
    y[10] = y[4]
    live = glru.LiveModel(Ridge()).fit(X, y)
    change = live.remove_rows([4])
    with pytest.raises(ValueError, match=r"1 present rows are equal to removed ones.*pass n_identical=1"):
        live.receipt(change)
    with pytest.raises(ValueError, match="n_identical=2 is allowed"):
        live.receipt(change, n_identical=2)
    receipt, rest = live.refresh().receipt(change, n_identical=1), (np.delete(X, 4, axis=0), np.delete(y, 4))
    assert receipt["removal"]["n_identical"] == 1
    found = glru.verify_receipt(receipt, *rest)
    assert not found and found.statement == "nothing" and "1 remaining rows are equal" in found.reasons[0]
    assert glru.verify_receipt(receipt, *rest, n_identical=1).statement == EQUALS
    live.remove_rows([9])
    assert live.refresh().receipt(change)["removal"]["n_identical"] == 0


def test_a_receipt_made_up_for_a_row_that_is_present_is_not_valid():
    """Whatever is signed again, data that holds the removed row is not without it."""
    live, change, _, _ = removed(LogisticRegression())
    receipt = live.refresh().receipt(change)
    X, y = data()
    full = glru.LiveModel(LogisticRegression()).fit(X, y)
    full.add_rows(X[:1] + 1.0, y[:1])
    other = full.receipt(full.remove_rows([60]))
    assert glru.verify_receipt(other, X, y).statement == EQUALS
    forged = copy.deepcopy(other)
    forged["removal"] |= {"rows": receipt["removal"]["rows"], "n_trained": 2, "n_identical": 2}
    forged["model"]["before"] = receipt["model"]["before"][::-1]
    found = glru.verify_receipt(signed_again(forged), X, y)
    assert not found and "2 remaining rows are equal to removed ones" in found.reasons[0]


@pytest.mark.parametrize("keys", [False, True])
def test_there_is_no_receipt_of_a_removal_that_the_data_does_not_show(tmp_path, keys):
    """A file in which the history has a removal that the data has not, whichever columns came since."""
    X, y = data()
    live = glru.LiveModel(LogisticRegression()).fit(X, y, keys=range(60) if keys else None)
    change = live.remove_rows([4])
    live.save(tmp_path / "live.npz")
    rewritten(tmp_path / "live.npz", array("gone_rows", np.empty(0, dtype=np.int64)))
    damaged = glru.LiveModel.load(tmp_path / "live.npz")
    for _ in range(2):
        with pytest.raises(ValueError, match="by the history there are 59 rows, in the data 60"):
            damaged.receipt(change)
        damaged.add_columns(np.ones((60, 1)))
        damaged.refresh()


def test_a_key_that_is_still_there_has_no_receipt(tmp_path):
    """The number of rows is right, but another row went."""
    X, y = data()
    live = glru.LiveModel(LogisticRegression()).fit(X, y, keys=range(60))
    change = live.remove_rows(keys=[4])
    live.save(tmp_path / "live.npz")
    rewritten(tmp_path / "live.npz", array("gone_rows", np.array([5])))
    damaged = glru.LiveModel.load(tmp_path / "live.npz")
    damaged.remove_columns([0])
    damaged.refresh()
    with pytest.raises(ValueError, match="1 removed keys are present"):
        damaged.receipt(change)
    live.add_rows(X[:1] + 9.0, y[:1], keys=[4])
    assert live.receipt(change)["removal"]["n_identical"] == 0


def test_the_data_may_be_stored_otherwise_and_in_another_order():
    live, change, X, y = removed(LogisticRegression())
    receipt = live.refresh().receipt(change)
    order = np.random.default_rng(0).permutation(len(y))
    assert glru.verify_receipt(receipt, sp.csc_matrix(X[order]), y[order])


def test_dual_variables_are_written_only_where_they_are_needed():
    live, change, _, _ = removed(LogisticRegression())
    assert live.receipt(change)["model"]["dual"] is None
    live, change, X, y = removed(LinearSVC(loss="hinge"))
    receipt = live.refresh().receipt(change)
    assert len(receipt["model"]["dual"]) == len(y)
    assert glru.verify_receipt(receipt, X, y)


def test_a_model_that_retraining_would_leave_alone_is_trained_from_scratch():
    """Rows 4 and 9 do not touch the margin: the old model is still the best one, but the stored one must be new."""
    live, change, X, y = removed(LinearSVC(loss="hinge"))
    assert np.array_equal(live._state.proofs.after.retrain(tol=1e-6).coef, live.solution.coef)
    receipt = live.refresh().receipt(change)
    assert receipt["model"]["before"] != receipt["model"]["after"]
    assert glru.verify_receipt(receipt, X, y).statement == EQUALS


@pytest.mark.parametrize("updated", [False, True])
def test_other_data_or_queries_fail(updated):
    live, change, X, y = removed(LogisticRegression())
    queries = data(4, seed=5)[0]
    receipt = (live.refresh() if updated else live).receipt(change, queries)
    full = data()
    for arguments, words in [
        (full, "not the remaining data"),
        ((X[1:], y[1:]), "not the remaining data"),
        ((X, np.where(np.arange(len(y)) == 3, "yes", "no")), "not the remaining data"),
        ((X[:, :2], y), "must have 3 columns"),
        ((X, np.where(y == "yes", 1, 0)), "labels must be among"),
        ((X, y[1:]), "one entry per row"),
        ((X, y, np.full(len(y), 2.0)), "not the remaining data"),
        ((X, y, None, queries + 1.0), "not issued for these queries"),
    ]:
        found = glru.verify_receipt(receipt, *arguments)
        assert not found and found.statement == "nothing"
        assert any(words in reason for reason in found.reasons), found.reasons
    assert any("equal to removed ones" in reason for reason in glru.verify_receipt(receipt, *full).reasons)


def leaves(value, path=()):
    """Every place in a JSON value that holds no further values."""
    if isinstance(value, dict | list) and value:
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from leaves(value[key], (*path, key))
    else:
        yield path


def edits(value):
    """Other values for a place in a receipt: of its type, and of another."""
    match value:
        case bool():
            return [not value, 1]
        case int():
            return [value + 1, float(value), None]
        case float():
            return [value + 0.25, None, np.nan, "x"]
        case str():
            return [value + "x", 3]
    return [1.0, "x"]


def tampered(receipt, path, value):
    forged = copy.deepcopy(receipt)
    place = forged
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return forged


def signed_again(receipt):
    body = {key: value for key, value in receipt.items() if key != "digest"}
    return {**body, "digest": digest_json(body)}


@pytest.mark.parametrize("updated", [False, True])
def test_any_edit_of_a_receipt_fails(updated):
    live, change, X, y = removed(LogisticRegression())
    queries = data(4, seed=5)[0]
    receipt = (live.refresh() if updated else live).receipt(change, queries)
    assert glru.verify_receipt(receipt, X, y, queries=queries)
    for path in leaves(receipt):
        old = receipt
        for key in path:
            old = old[key]
        for value in edits(old):
            forged = tampered(receipt, path, value)
            assert not glru.verify_receipt(forged, X, y, queries=queries), (path, value)
    for key in receipt:
        cut = {name: value for name, value in receipt.items() if name != key}
        assert not glru.verify_receipt(cut, X, y)
    assert not glru.verify_receipt({**receipt, "more": 1}, X, y)


def test_a_forger_who_signs_again_still_fails_on_what_can_be_computed():
    live, change, X, y = removed(LinearSVC(loss="hinge"), rows=(3, 5, 10, 17))
    queries = data(4, seed=5)[0]
    early = live.receipt(change, queries)
    late = live.refresh().receipt(change, queries)
    for receipt in (early, late):
        assert glru.verify_receipt(signed_again(receipt), X, y, queries=queries)
        forgeries = [
            (("certificate", "gap"), 0.5 * receipt["certificate"]["gap"]),
            (("certificate", "gap"), 2.0 * receipt["certificate"]["gap"]),
            (("certificate", "radius"), 0.5 * receipt["certificate"]["radius"]),
            (("certificate", "intercept_change"), 0.5),
            (("queries", "largest_change"), 0.5 * receipt["queries"]["largest_change"]),
            (("model", "coef", 0), receipt["model"]["coef"][0] + 1e-3),
            (("model", "dual"), [0.5] * len(y)),
            (("model", "intercept"), 1e-3),
            (("model", "after"), "0" * 64),
            (("terms", "quadratic"), 2.0),
            (("terms", "intercept"), True),
            (("data", "n_rows"), 60),
            (("removal", "n_identical"), 1),
            (("removal", "n_trained"), 5),
            (("statement",), "erased"),
        ]
        for path, value in forgeries:
            found = glru.verify_receipt(signed_again(tampered(receipt, path, value)), X, y, queries=queries)
            assert not found, (path, found)
    # The model of before the removal cannot be passed off as updated.
    found = glru.verify_receipt(signed_again(tampered(early, ("statement",), EQUALS)), X, y)
    assert not found and any("from before the removal" in reason for reason in found.reasons)


@pytest.mark.parametrize("tol", [1e-6, 0.0])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_no_number_is_accepted_below_what_the_data_proves(name, tol):
    """Not even where the gap is nothing but rounding; and honest receipts hold in any order and storage of the data."""
    live, change, X, y = quietly(removed, ESTIMATORS[name], tol=tol)
    queries = data(4, seed=5)[0]
    receipt = quietly(live.refresh).receipt(change, queries)
    own = glru.verify_receipt(receipt, X, y, queries=queries)
    assert own, own.reasons
    order = np.arange(len(y)) if receipt["model"]["dual"] else np.random.default_rng(0).permutation(len(y))
    assert glru.verify_receipt(receipt, sp.csc_matrix(X[order]), y[order], queries=queries)
    places = [("certificate", "gap"), ("certificate", "radius"), ("queries", "largest_change")]
    for path in places:
        claimed = receipt[path[0]][path[1]]
        for value in (0.0, 0.5 * claimed, 0.88 * claimed, 1.4 * claimed, None) if claimed is not None else (0.0, 1.0):
            forged = signed_again(tampered(receipt, path, value))
            assert not glru.verify_receipt(forged, X, y, queries=queries), (path, value)


def test_a_key_that_is_there_twice_is_refused():
    """One reader takes the first value, another the last."""
    live, change, X, y = removed(LogisticRegression())
    text = json.dumps(live.refresh().receipt(change))
    assert glru.verify_receipt(text, X, y)
    for old, new in [
        ('"statement": ', '"statement": "erased for good", "statement": '),
        ('"radius": ', '"radius": 0.0, "radius": '),
        ('"name": ', '"name": "Hinge", "name": '),
    ]:
        found = glru.verify_receipt(text.replace(old, new, 1), X, y)
        assert not found and "must be there once" in found.reasons[0]


@pytest.mark.parametrize(
    "junk", ["", "[]", "{}", "nonsense", "[" * 100_000, '{"schema": "glru-receipt/2"}', None, 3, [], "null"]
)
def test_what_is_no_receipt_is_not_valid(junk):
    found = glru.verify_receipt(junk, np.eye(2), [0, 1])
    assert not found and found.reasons and found.gap is None


def test_receipts_are_for_removed_rows_of_this_model_in_its_columns():
    live, change, X, y = removed(LogisticRegression())
    with pytest.raises(ValueError, match="removed rows"):
        live.receipt(live.add_rows(X[:1], y[:1]))
    other = glru.LiveModel(LogisticRegression()).fit(X, y)
    with pytest.raises(ValueError, match="this model's history"):
        other.receipt(change)
    live.remove_columns([0])
    with pytest.raises(ValueError, match=r"Call refresh\(\) first"):
        live.receipt(change)
    assert live.refresh().receipt(change)["statement"] == EQUALS


def test_digests_do_not_depend_on_storage():
    X = np.array([[0.0, 1.5, -0.0], [2.0, 0.0, 3.0]])
    y, weight = np.array([1.0, -1.0]), np.array([1.0, 0.0])
    stored = sp.csr_array((np.array([1.5, 0.0, 2.0, 3.0]), np.array([1, 2, 0, 2]), np.array([0, 2, 4])), shape=(2, 3))
    assert (
        digest_rows(as_matrix(X), y, weight)
        == digest_rows(as_matrix(stored), y, weight)
        == digest_rows(as_matrix(np.asfortranarray(X)), y, weight)
    )
    other = digest_rows(as_matrix(X[:, [1, 0, 2]]), y, weight)
    assert len({*digest_rows(as_matrix(X), y, weight), *other}) == 4


def test_the_documented_example_runs_and_every_field_is_documented(capsys):
    text = DOCS.read_text(encoding="utf-8")
    for block in re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        exec(compile(block, str(DOCS), "exec"), {})
    assert capsys.readouterr().out.splitlines() == [NOT_YET, f"{EQUALS} True"]
    live, change, _, _ = removed(LogisticRegression())
    receipt = live.receipt(change, data(4)[0])
    for name, value in receipt.items():
        inner = value if isinstance(value, dict) and name != "terms" else {}
        assert f"`{name}`" in text or inner
        assert all(f"`{name}.{field}`" in text for field in inner)
    assert all(f"`{name}`" in text for name in receipt["terms"])
