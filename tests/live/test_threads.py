"""Live models in a service: threads that share one, and processes that share its file. Nothing acknowledged is lost."""

import copy
import multiprocessing
import pickle
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import glru
from glru.live import CertificateEntry, ChangeEntry, TrainingEntry
from tests.live.test_model import data
from tests.live.truth import without_times

N, D = 400, 3
EQUALS = "equals retraining to within r"


@pytest.fixture(autouse=True)
def eager_threads():
    """Threads that take turns as often as they can, so that a missing lock is noticed."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*works):
    """Do all works at once, each in its thread; the first error of any is raised."""
    errors, gate = [], threading.Barrier(len(works))

    def run(work):
        gate.wait()
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=240)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def fitted():
    X, y = data(N, D)
    return glru.LiveModel(LogisticRegression(C=0.1)).fit(X, y, keys=range(N)), X, y


def test_removals_of_four_threads_are_all_there_and_every_receipt_is_true():
    live, X, y = fitted()
    entries = []

    def remover(first):
        return lambda: entries.extend(live.remove_rows(keys=[key]) for key in range(first, first + 50))

    together(*(remover(50 * k) for k in range(4)))
    assert live.n_rows == N - 200 and live.keys == tuple(range(200, N))
    assert [entry.number for entry in live.history] == list(range(201))
    live.refresh()
    rest = X[200:], y[200:]
    for entry in (entries[0], entries[77], entries[-1]):
        receipt = live.receipt(entry)
        assert receipt["removal"]["n_identical"] == 0
        assert glru.verify_receipt(receipt, *rest).statement == EQUALS


def consistent(live):
    """Whether what a model says of itself fits together."""
    change = {"add_rows": 1, "remove_rows": -1}
    expected = N
    for number, entry in enumerate(live.history):
        assert entry.number == number
        if isinstance(entry, ChangeEntry):
            expected += change[entry.kind] * entry.count
        elif isinstance(entry, TrainingEntry):
            assert entry.n_rows == expected
    assert live.n_rows == expected == len(live.keys) == len(set(live.keys))


def replayed(history, rows, queries):
    """A model to which the history happens again, one entry after the other, in one thread."""
    live, _, _ = fitted()
    for entry in history[1:]:
        if isinstance(entry, ChangeEntry) and entry.kind == "add_rows":
            live.add_rows(*rows[entry.keys[0]], keys=entry.keys)
        elif isinstance(entry, ChangeEntry):
            live.remove_rows(keys=entry.keys)
        elif isinstance(entry, CertificateEntry):
            getattr(live, entry.query)(queries)
        elif entry.reason == "refresh":
            live.refresh()
    return live


def test_a_service(tmp_path):
    """Adders, removers, readers, savers and ``refresh`` together leave what the same history leaves one by one."""
    live, _, _ = fitted()
    path, queries = tmp_path / "live.npz", data(20, D, seed=9)[0]
    rows = {f"{who} {k}": data(2, D, seed=1000 * who + k) for who in (1, 2) for k in range(25)}
    entries, labels, busy = [], [], threading.Event()

    def adder(who):
        def work():
            for k in range(25):
                live.add_rows(*rows[f"{who} {k}"], keys=[f"{who} {k}", f"{who} {k} b"])
                if k % 3 == 0:
                    entries.append(live.remove_rows(keys=[f"{who} {k} b"]))

        return work

    def remover(first):
        return lambda: entries.extend(live.remove_rows(keys=[key, key + 1]) for key in range(first, first + 50, 2))

    def predictor():
        for _ in range(10):
            labels.append(live.predict(queries))
            lower, upper = live.decision_bounds(queries)
            assert np.all(lower <= upper)
            live.needs_retraining(queries)

    def reader():
        while not busy.is_set():
            with live.lock:
                consistent(live)
            consistent(copy.deepcopy(live))
            keys = live.keys
            assert len(set(keys)) == len(keys) and "rows x 3 columns" in repr(live)
            assert live.pending is None or live.revision
            entry = entries[-1] if entries else None
            if entry is not None:
                assert live.receipt(entry)["removal"]["n_identical"] == 0

    def saver():
        for _ in range(15):
            live.save(path)
            consistent(glru.LiveModel.load(path))

    def refresher():
        for _ in range(8):
            live.refresh()

    def workers():
        together(adder(1), adder(2), remover(0), remover(100), predictor, saver, saver, refresher)
        busy.set()

    together(workers, reader)
    consistent(live)
    gone = {key for entry in entries for key in entry.keys}
    assert len(gone) == 100 + 18 and not gone & set(live.keys) and live.n_rows == N + 100 - len(gone)
    again = replayed(live.history, rows, queries)
    assert again.keys == live.keys
    assert without_times(again) == without_times(live)
    assert again.predict(queries).tolist() == live.predict(queries).tolist()
    live.save(path)
    assert without_times(glru.LiveModel.load(path)) == without_times(live)


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda live: pickle.loads(pickle.dumps(live))])
def test_a_copy_is_a_model_of_its_own(clone):
    live, X, _ = fitted()
    live.remove_rows(keys=[3])
    live.predict(X[:5])
    other = clone(live)
    assert without_times(other) == without_times(live) and other.lock is not live.lock
    before = without_times(live)
    removal = other.remove_rows(keys=[5])
    assert without_times(live) == before
    kept = live.remove_rows(keys=[7])
    assert live.history[-1] == kept and other.history[-1] == removal
    with live.lock:
        together(lambda: other.remove_rows(keys=[8]))
    assert glru.LiveModel(LogisticRegression()).lock is not clone(glru.LiveModel(LogisticRegression())).lock


def test_the_lock_makes_several_calls_one():
    live, _, _ = fitted()

    def work():
        for _ in range(20):
            with live.lock:
                # Positions are those of this moment: no other thread may move rows in between.
                key = live.keys[0]
                assert live.remove_rows([0]).keys == (key,)

    together(work, work, work)
    assert live.n_rows == N - 60


def test_a_file_that_another_model_saved_is_not_replaced(tmp_path):
    live, _, _ = fitted()
    path = tmp_path / "live.npz"
    live.save(path)
    other = glru.LiveModel.load(path)
    other.remove_rows(keys=[3])
    other.save(path)
    live.remove_rows(keys=[5])
    with pytest.raises(FileExistsError, match=r"as this model last loaded or saved it.*pass overwrite=True"):
        live.save(path)
    with pytest.raises(FileExistsError, match="must be a new file"):
        fitted()[0].save(path)
    assert 3 not in glru.LiveModel.load(path).keys
    other.remove_rows(keys=[4])
    other.save(path)
    live.save(tmp_path / "mine.npz")
    live.save(path, overwrite=True)
    live.save(path)
    assert without_times(glru.LiveModel.load(path)) == without_times(live)
    with pytest.raises(FileExistsError, match="must be a new file"):
        other.save(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["live.npz", "mine.npz"]


def test_a_file_is_known_by_any_name_of_its_folder_and_others_are_not_touched(tmp_path, monkeypatch):
    live, _, _ = fitted()
    monkeypatch.chdir(tmp_path)
    live.save("live.npz")
    (tmp_path / "link").symlink_to(tmp_path)
    live.save(tmp_path / "link" / "live.npz")
    notes = tmp_path / "notes.npz"
    notes.write_text("mine")
    with pytest.raises(FileExistsError, match="must be a new file"):
        live.save(notes)
    assert notes.read_text() == "mine"
    Path("live.npz").unlink()
    live.save("live.npz")


def _remove_in_turn(path, keys):
    """Remove keys one by one in the model of a file, and start over with what another process saved first."""
    for key in keys:
        while True:
            live = glru.LiveModel.load(path)
            live.remove_rows(keys=[key])
            try:
                live.save(path)
            except FileExistsError:
                continue
            break


def test_processes_that_share_a_file_lose_nothing(tmp_path):
    live, _, _ = fitted()
    path = tmp_path / "live.npz"
    live.save(path)
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_remove_in_turn, args=(path, range(10 * k, 10 * k + 10))) for k in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(timeout=240)
        assert child.exitcode == 0
    found = glru.LiveModel.load(path)
    consistent(found)
    assert found.keys == tuple(range(30, N)) and len(found.history) == 31
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
