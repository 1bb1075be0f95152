"""Processes that are killed while they write: what is on disk is the old state or the new one, and always whole."""

import os
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import glru
from tests.cases import make
from tests.cli.running import sample, write
from tests.core import checkpoint as module
from tests.faults.killed_commands import COMMAND_DEATHS, OPTIONS
from tests.faults.moments import dies_at_byte, dies_at_call, in_a_child
from tests.live.test_model import data
from tests.live.truth import without_times

KILLED = (signal.SIGKILL, signal.SIGXFSZ)

DEATHS = [
    *(partial(dies_at_byte, count) for count in (0, 1, 100, 1000)),
    *(partial(dies_at_call, "fsync", count, before) for count in (1, 2) for before in (True, False)),
    *(partial(dies_at_call, "replace", count, before) for count in (1, 2) for before in (True, False)),
]


@pytest.mark.parametrize("method", ["certified", "naive"])
def test_leave_one_out_killed_again_and_again(tmp_path, monkeypatch, method):
    """However often a run is killed, what is kept can be read, and the run that ends gives the identical result."""
    monkeypatch.setattr(module, "WRITE_INTERVAL", 0.0)
    monkeypatch.setattr(module, "WRITE_SHARE", 0.0)
    problem = make(glru.Logistic(), glru.L2(0.005), 14, 3)
    expected = glru.loocv(problem, method=method, width=1e-9)
    path, random, deaths, kept = tmp_path / "run", np.random.default_rng(0), 0, []

    def run(die):
        die()
        result = glru.loocv(problem, method=method, width=1e-9, checkpoint=path)
        np.savez(tmp_path / "result.npz", lower=result.score_lower, upper=result.score_upper, stages=result.stages)

    def death():
        size = path.stat().st_size if path.exists() else 1000
        if random.random() < 0.4:
            return partial(dies_at_byte, int(random.integers(size + 200)))
        name = str(random.choice(["fsync", "replace"]))
        return partial(dies_at_call, name, int(random.integers(1, 4)), bool(random.integers(2)))

    for _ in range(60):
        killed = in_a_child(partial(run, death()))
        if not killed:
            break
        assert killed in KILLED
        deaths += 1
        if path.exists():
            kept.append(sum(len(journal) for journal in module.Checkpoint(path)._journals.values()))
    else:
        assert in_a_child(partial(run, lambda: None)) == 0
    assert deaths >= 3 and kept == sorted(kept) and kept[-1] > 0
    with np.load(tmp_path / "result.npz") as found:
        assert np.array_equal(found["lower"], expected.score_lower)
        assert np.array_equal(found["upper"], expected.score_upper)
        assert np.array_equal(found["stages"], expected.stages)


@pytest.mark.parametrize("die", DEATHS)
def test_a_live_model_killed_while_it_is_saved(tmp_path, die):
    """The file is the model before the change or the one after it."""
    X, y = data(12)
    live = glru.LiveModel(LogisticRegression()).fit(X, y)
    path = tmp_path / "live.npz"
    live.save(path)
    states = [without_times(live)]
    for _ in range(2):
        live.remove_rows([0])
        states.append(without_times(live))

    def run():
        later = glru.LiveModel.load(path)
        die()
        for _ in range(2):
            later.remove_rows([0])
            later.save(path)

    assert in_a_child(run) in KILLED
    found = glru.LiveModel.load(path)
    assert without_times(found) in states
    # What was left of the training data is gone with the first call that may write here.
    assert not [p.name for p in tmp_path.iterdir() if ".part" in p.name]
    found.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["live.npz"]


@pytest.mark.parametrize("clean", ["load", "save", "save anew"])
def test_parts_of_a_killed_save_are_removed(tmp_path, clean):
    """Of this file only, whether or not it was ever whole."""
    live, path = glru.LiveModel(LogisticRegression()).fit(*data(12)), tmp_path / "live.npz"
    if clean != "save anew":
        live.save(path)

    def run():
        dies_at_call("replace", 1, True)
        live.save(path)

    assert in_a_child(run) in KILLED
    assert len([p for p in tmp_path.iterdir() if ".part" in p.name]) == 1
    others = {".other.12.34.part.npz", ".live.part.npz", ".live.12.34.part.txt", "notes.part.npz"}
    for name in others:
        (tmp_path / name).write_text("mine")
    if clean == "load":
        glru.LiveModel.load(path)
        assert not {p.name for p in tmp_path.iterdir()} - others - {"live.npz"}
    live.save(path)
    assert {p.name for p in tmp_path.iterdir()} == others | {"live.npz"}


def test_the_part_of_a_save_that_is_under_way_is_left_alone(tmp_path, monkeypatch):
    """A process that loads meanwhile goes on with the old file, one that saves waits and is told."""
    live, path = glru.LiveModel(LogisticRegression()).fit(*data(12)), tmp_path / "live.npz"
    live.save(path)
    later, synchronise, seen = glru.LiveModel.load(path), os.fsync, []
    later.remove_rows([0])

    def fsync(descriptor):
        synchronise(descriptor)
        if seen:
            return
        seen.append([p for p in tmp_path.iterdir() if ".part" in p.name])
        assert in_a_child(lambda: glru.LiveModel.load(path).predict([[1.0, 2.0, 3.0]])) == 0
        assert [p for p in tmp_path.iterdir() if ".part" in p.name] == seen[0]

    monkeypatch.setattr(os, "fsync", fsync)
    later.save(path)
    assert len(seen[0]) == 1 and glru.LiveModel.load(path).n_rows == 11
    with pytest.raises(FileExistsError, match="must be a new file"):
        live.save(path)


@pytest.fixture(scope="module")
def killed_commands(tmp_path_factory):
    """A folder with what commands left that were killed; polars does not survive a fork, so nobody here may have used it."""
    folder = tmp_path_factory.mktemp("killed")
    write(folder / "data.csv", *sample())
    line = [sys.executable, "-m", "tests.faults.killed_commands", str(folder)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(("option", "suffix"), OPTIONS.items())
@pytest.mark.parametrize("number", range(len(COMMAND_DEATHS)))
def test_a_command_killed_while_it_writes(killed_commands, option, suffix, number):
    """The old file, or the whole new one."""
    left = (killed_commands / f"{number}{suffix}").read_bytes()
    whole = left.rstrip().endswith((b"</html>", b"</svg>")) or left.count(b"\n") == 41
    assert whole if COMMAND_DEATHS[number] == ("replace", 1, False) else left == b"old"
