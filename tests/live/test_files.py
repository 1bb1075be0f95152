"""Files of live models: everything survives, nothing damaged gets in, nothing is left half written."""

import io
import json
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

import glru
from tests.live.test_model import data
from tests.live.truth import state


def busy(sparse=False, keys=True):
    """A live model with everything pending."""
    X, y = data()
    store = sp.csr_array if sparse else np.asarray
    live = glru.LiveModel(LinearSVC(class_weight={"yes": 2.0}), tol=1e-5)
    live.fit(store(X), y, sample_weight=np.linspace(0.5, 1.5, 60), keys=[f"k{i}" for i in range(60)] if keys else None)
    live.remove_rows([3, 5])
    live.add_columns(store(X[:58, :2]))
    live.add_rows(np.ones((2, 5)), ["yes", "no"], keys=[1, None] if keys else None)
    live.remove_columns([1])
    live.decision_bounds(np.ones((3, 4)))
    live.remove_rows([7, 58])
    return live


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "live.npz"
    busy().save(path)
    return path


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("keys", [False, True])
def test_everything_survives(tmp_path, sparse, keys):
    live = busy(sparse, keys)
    live.save(tmp_path / "live.npz")
    loaded = glru.LiveModel.load(str(tmp_path / "live.npz"))
    assert state(loaded) == state(live)
    assert loaded.history == live.history and loaded.keys == live.keys and loaded.revision == live.revision
    queries = data(20, 4, seed=7)[0]
    np.testing.assert_array_equal(loaded.decision_bounds(queries), live.decision_bounds(queries))
    change = next(entry for entry in loaded.history if getattr(entry, "kind", "") == "remove_rows")
    assert loaded.refresh().receipt(change)["model"] == live.refresh().receipt(change)["model"]
    assert loaded.predict(queries).tolist() == live.predict(queries).tolist()


@pytest.mark.parametrize(
    "labels", [[False, True], [0, 1], [-1.5, 2.5], ["a", "bb"], np.array(["a", "bb"], dtype=object)]
)
def test_labels_survive(tmp_path, labels):
    X, y = data()
    live = glru.LiveModel(LogisticRegression()).fit(X, np.asarray(labels)[(y == "yes").astype(int)])
    live.save(tmp_path / "live.npz")
    loaded = glru.LiveModel.load(tmp_path / "live.npz")
    assert loaded.classes_.dtype == live.classes_.dtype and loaded.classes_.tolist() == live.classes_.tolist()
    assert loaded.predict(X).dtype == live.predict(X).dtype


def test_a_regression_keeps_its_width_and_a_loaded_model_is_not_fitted_again(tmp_path):
    X, _ = data()
    live = glru.LiveModel(Ridge()).fit(X, X[:, 0])
    live.save(tmp_path / "live.npz")
    loaded = glru.LiveModel.load(tmp_path / "live.npz")
    assert loaded._log.width == live._log.width
    with pytest.raises(ValueError, match="make a new"):
        loaded.fit(X, X[:, 0])
    loaded.save(tmp_path / "again.npz")
    assert state(glru.LiveModel.load(tmp_path / "again.npz")) == state(live)


def test_a_failed_save_leaves_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def fail(file, **arrays):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        busy().save(saved, overwrite=True)
    assert saved.read_bytes() == before and [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_a_damaged_file_is_refused_or_harmless(saved):
    """One byte changed anywhere: an error that says so, or, where the byte means nothing, the same model."""
    whole, expected = saved.read_bytes(), state(glru.LiveModel.load(saved))
    random, refused = np.random.default_rng(0), 0
    for place in random.integers(0, len(whole), 300):
        saved.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << random.integers(8))]) + whole[place + 1 :])
        loaded, error = None, ""
        try:
            loaded = glru.LiveModel.load(saved)
        except ValueError as found:
            error = str(found)
        refused += loaded is None
        assert "not a whole file of a live model" in error if loaded is None else state(loaded) == expected
    assert refused > 200


def test_a_cut_file_is_refused(saved):
    whole = saved.read_bytes()
    for size in [0, 1, 100, len(whole) // 2, len(whole) - 1]:
        saved.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="not a whole file"):
            glru.LiveModel.load(saved)


def rewritten(path, edit, compression=zipfile.ZIP_STORED):
    """The file with edited members: ``edit`` changes a dict of their bytes."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    edit(members)
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def npy(array, **options):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array), **options)
    return buffer.getvalue()


def huge(members):
    """A header that promises eight terabytes."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    members["y.npy"] = buffer.getvalue() + bytes(8)


def document(**changes):
    def edit(members):
        text = np.lib.format.read_array(io.BytesIO(members["document.npy"])).tobytes()
        found = json.loads(text)
        for path, value in changes.items():
            place = found
            for key in path.split("__")[:-1]:
                place = place[key]
            place[path.split("__")[-1]] = value
        members["document.npy"] = npy(np.frombuffer(json.dumps(found).encode(), dtype=np.uint8))

    return edit


def array(name, value, **options):
    return lambda members: members.__setitem__(f"{name}.npy", npy(value, **options))


EDITS = {
    "huge": huge,
    "pickle": array("y", np.array([{}], dtype=object), allow_pickle=True),
    "missing": lambda m: m.pop("coef.npy"),
    "no document": lambda m: m.pop("document.npy"),
    "document no JSON": array("document", np.frombuffer(b"{", dtype=np.uint8)),
    "document deep": array("document", np.frombuffer(b"[" * 200_000, dtype=np.uint8)),
    "document a list": array("document", np.frombuffer(b"[]", dtype=np.uint8)),
    "other member": lambda m: m.__setitem__("run.py", b"import os"),
    "schema": document(schema="glru-live/3"),
    "loss": document(terms__loss={"name": "Problem"}),
    "strength": document(terms__quadratic=-1.0),
    "strength nan": document(terms__quadratic=float("nan")),
    "scaling": document(terms__scaling="max"),
    "labels": document(terms__classes={"dtype": "<U1000000000", "values": ["a", "b"]}),
    "one label": document(terms__classes={"dtype": "str", "values": ["a"]}),
    "targets": document(terms__targets="numbers"),
    "names": document(terms__column_names=["a"]),
    "keys short": document(keys=["a"]),
    "keys twice": document(keys=["a"] * 60),
    "new keys": document(new_keys=[1, 2, 3]),
    "taken key": document(new_keys=["k0"]),
    "forgotten key of a present row": document(forgotten_keys=[1]),
    "forgotten key of no row": document(forgotten_keys=[-1]),
    "history": document(history=[{"entry": "change"}]),
    "history type": document(history=3),
    "status": document(solution__status="fine"),
    "intercept": document(solution__intercept=float("inf")),
    "tol": document(tol=-1.0),
    "blocks": document(n_column_blocks=10**9),
    "y": array("y", np.zeros(3)),
    "y values": array("y", np.full(60, 0.5)),
    "y nan": array("y", np.full(60, np.nan)),
    "y dtype": array("y", np.ones(60, dtype=np.float32)),
    "X": array("X", np.ones(3)),
    "X inf": array("X", np.full((60, 4), np.inf)),
    "weight": array("weight", -np.ones(60)),
    "gone": array("gone_rows", np.array([5, 3])),
    "gone far": array("gone_rows", np.array([60])),
    "gone float": array("gone_rows", np.array([1.0])),
    "all gone": lambda m: (array("gone_rows", np.arange(60))(m), document(has_new_rows=False, new_keys=[])(m)),
    "new rows": array("new_X", np.ones((1, 9))),
    "new weight": array("new_weight", -np.ones(1)),
    "columns": array("columns_0", np.ones((3, 1))),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_forged_file_is_refused(saved, name):
    rewritten(saved, EDITS[name])
    with pytest.raises(ValueError, match=r"not a whole file|tol must be"):
        glru.LiveModel.load(saved)


def test_a_compressed_member_is_refused_unread(saved):
    rewritten(saved, lambda members: members.__setitem__("y.npy", bytes(10**7)), zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match="not a stored NumPy array"):
        glru.LiveModel.load(saved)


def test_forged_sparse_data_is_refused(tmp_path):
    path = tmp_path / "live.npz"
    for name, value in {
        "X_indices": np.full(180, 99, dtype=np.int32),
        "X_indptr": np.arange(61, dtype=np.int32)[::-1].copy(),
        "X_shape": np.array([10**12, 4]),
        "X_data": np.full(180, np.nan),
    }.items():
        busy(sparse=True).save(path, overwrite=True)
        rewritten(path, array(name, value))
        with pytest.raises(ValueError, match="not a whole file"):
            glru.LiveModel.load(path)


def test_a_file_that_is_not_there_says_so(tmp_path):
    with pytest.raises(FileNotFoundError):
        glru.LiveModel.load(tmp_path / "nothing.npz")
    with pytest.raises(FileNotFoundError):
        busy().save(tmp_path / "no folder" / "live.npz")
