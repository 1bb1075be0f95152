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
from glru.model_selection import checkpoint as module
from tests.cases import make
from tests.cli.running import sample, write
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
    monkeypatch.setattr(module, "EVERY", 0.0)
    monkeypatch.setattr(module, "WRITES", 0.0)
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
    assert deaths >= 5 and kept == sorted(kept) and kept[-1] > 0
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
    found.save(path)


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
