"""The installed command in a process of its own: exit codes, signals, and runs that are killed and resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import sample, write

SCRIPT = Path(sys.executable).with_name("glru")
COMMAND = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-m", "glru"]


def start(*arguments):
    """A process of the command."""
    line = [*COMMAND, *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finished(process):
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def long_run(tmp_path_factory):
    """A file on which brute force takes several seconds, also on a quick machine."""
    X, y = sample(n=3000, d=30)
    return write(tmp_path_factory.mktemp("data") / "data.npz", X, y)


def test_a_warning_is_one_line():
    code, out, err = finished(start("loocv", "breast_cancer", "--tol", "0"))
    assert code == 0 and "held-out errors" in out
    assert err.startswith("warning: newton ended with a relative gap of") and err.count("\n") == 1


def test_runs_quickly_and_is_silent_about_progress(tmp_path):
    page = tmp_path / "page.html"
    code, out, err = finished(start("loocv", "breast_cancer", "--verify", 5, "--html", page))
    assert code == 0 and err == ""
    assert "13 of 569 rows" in out and "5 of 5 labels agree" in out and "\x1b" not in out
    assert f"glru loocv breast_cancer --verify 5 --html {page}" in page.read_text(encoding="utf-8")


def test_bad_input():
    code, out, err = finished(start("loocv", "absent.csv", "--json"))
    assert (code, out, err) == (1, "", "error: absent.csv must exist; there is no such file.\n")


def kept_rows(path):
    """How many rows a checkpoint holds."""
    if not path.exists():
        return 0
    with np.load(path) as file:
        return max((file[name].size for name in file.files if name.endswith("/rows")), default=0)


def killed_once_it_has_rows(path, process):
    """Kill a run as soon as its checkpoint holds finished rows."""
    end = time.monotonic() + 60.0
    while time.monotonic() < end:
        if process.poll() is not None:
            raise AssertionError(f"ended before it could be killed: {process.communicate()}")
        if kept_rows(path):
            process.send_signal(signal.SIGKILL)
            process.communicate()
            return
        time.sleep(0.02)
    raise AssertionError("no checkpoint appeared")


def test_killed_and_resumed(long_run, tmp_path):
    """A run that is killed in the midst of it goes on from there and ends with the identical result."""
    stored, whole, resumed = tmp_path / "run.npz", tmp_path / "whole.csv", tmp_path / "resumed.csv"
    options = ("loocv", long_run, "--method", "naive", "--json")
    process = start(*options, "--checkpoint", stored)
    killed_once_it_has_rows(stored, process)
    assert 0 < kept_rows(stored) < 3000
    again = start(*options, "--checkpoint", stored, "--out", resumed)
    other = start(*options, "--out", whole)
    (code, out, err), (_, expected, _) = finished(again), finished(other)
    assert (code, err) == (0, "")
    assert json.loads(out)["result"] == json.loads(expected)["result"]
    assert resumed.read_bytes() == whole.read_bytes()
    assert not [path for path in tmp_path.iterdir() if ".part" in path.name]


def test_interrupted(long_run, tmp_path):
    stored = tmp_path / "run.npz"
    process = start("loocv", long_run, "--method", "naive", "--checkpoint", stored)
    while not stored.exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert finished(process) == (130, "", "interrupted\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_the_result_cannot_be_printed(unbuffered):
    """A full disk behind the standard output is told of, once, and is no success."""
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [*COMMAND, "version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            check=False,
        )
    message = "error: the result could not be printed (No space left on device). Free space, or print it elsewhere.\n"
    assert (process.returncode, process.stderr) == (1, message)
