"""Data several times larger than the memory that a process may have."""

import os
import subprocess
import sys

import numpy as np
import pytest

SCRIPT = """
import resource, sys
import numpy as np, glru
from pathlib import Path

n, d = int(sys.argv[2]), 20
small = np.random.default_rng(0).normal(size=(4000, d))
place = np.memmap(sys.argv[1] + ".small", dtype=float, mode="w+", shape=small.shape)
place[:] = small
warm = glru.loocv(glru.Problem(place, small[:, 0] > 0.0, penalty=glru.L2(0.01)))

status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
held = int(status["VmData"].split()[0]) * 1024
limit = held + int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
try:
    np.ones((n, d))
except MemoryError:
    print("too large")
X = np.memmap(sys.argv[1], dtype=float, mode="r", shape=(n, d))
y = np.memmap(sys.argv[1] + ".y", dtype=float, mode="r", shape=(n,))
problem = glru.Problem(X, y, penalty=glru.L2(0.01), block_bytes=4 << 20)
result = glru.loocv(problem)
print(sum(result.decided_by.values()), result.n_undetermined)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of a process's memory are Linux's")
def test_a_process_with_little_memory(tmp_path):
    n, d = 1_000_000, 20
    X = np.memmap(tmp_path / "X", dtype=float, mode="w+", shape=(n, d))
    y = np.memmap(tmp_path / "X.y", dtype=float, mode="w+", shape=(n,))
    random = np.random.default_rng(1)
    for start in range(0, n, 100_000):
        part = random.standard_normal((100_000, d))
        X[start : start + 100_000] = part
        y[start : start + 100_000] = np.where(part[:, 0] + random.standard_normal(100_000) > 0.0, 1.0, -1.0)
    X.flush()
    y.flush()
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "X"), str(n), str(100 << 20)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # every thread has memory of its own
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split("\n")[:2] == ["too large", f"{n} 0"]


BLOCKS = """
import resource, sys
import numpy as np, glru
from pathlib import Path

X = np.memmap(sys.argv[1], dtype=np.float32, mode="r", shape=(1_000_000, 20))
y = np.arange(1_000_000) % 2
glru.Problem(X[:1000], y[:1000], block_bytes=1 << 20)
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
limit = int(status["VmData"].split()[0]) * 1024 + (100 << 20)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
try:
    glru.Problem(X, y, block_bytes=1 << 30)
except MemoryError as error:
    print(error)
print(glru.Problem(X, y, block_bytes=4 << 20).n_rows)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of a process's memory are Linux's")
def test_blocks_that_do_not_fit(tmp_path):
    """The error names what makes blocks smaller."""
    np.memmap(tmp_path / "X", dtype=np.float32, mode="w+", shape=(1_000_000, 20)).flush()
    run = subprocess.run(
        [sys.executable, "-c", BLOCKS, str(tmp_path / "X")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr
    said, n_rows = run.stdout.splitlines()
    assert "Unable to allocate" in said and "Make blocks smaller: block_bytes of glru.Problem" in said
    assert n_rows == "1000000"
