"""A cluster of several processes: the same results, also when one of them is killed in the middle."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import glru
from tests.cases import make
from tests.rows.data import dask_blocks, mapped

distributed = pytest.importorskip("distributed")

PROBLEM = make(glru.Logistic(), glru.L2(0.02), 600, 4, seed=2, fit_intercept=True)


@pytest.fixture(scope="module")
def client():
    # Enough workers for all tests that kill one: dask does not always start a killed one again, and to wait for that may take for ever.
    with (
        distributed.LocalCluster(
            n_workers=4, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def memory():
    return glru.loocv(PROBLEM)


def assert_same(result, memory):
    assert result.n_undetermined == 0
    assert np.array_equal(result.bounds.signs, memory.bounds.signs)
    assert np.array_equal(result.rows.y, PROBLEM.y)
    assert np.all(result.score_lower <= memory.score_upper)
    assert np.all(memory.score_lower <= result.score_upper)


def test_a_cluster_gives_the_same(client, memory, tmp_path):
    assert_same(glru.loocv(dask_blocks(PROBLEM, (100,) * 6)), memory)
    place = mapped(tmp_path, PROBLEM.X)
    blocks = glru.Problem(place, PROBLEM.y, penalty=PROBLEM.penalty, fit_intercept=True, block_bytes=32 * 150)
    assert blocks.n_blocks == 4
    solution = glru.solve(blocks)
    assert_same(glru.loocv(solution), memory)
    written = glru.loocv(solution, output=tmp_path / "out")
    assert written.n_errors == memory.n_errors
    assert len(list((tmp_path / "out").glob("part-*.parquet"))) == 4


def worker_process(client):
    """The process of a worker that is alive."""
    found = client.run(os.getpid, on_error="ignore").values()
    assert len(found) >= 2
    return next(iter(found))


def killed_before(blocks, client, monkeypatch, name, number):
    """Let a worker be killed when the pass of that number is about to begin; returns the processes that were."""
    executor, gone, calls = blocks.rows.executor, [], []
    plain = getattr(type(executor), name)

    def kill_first(*args):
        calls.append(name)
        if len(calls) == number:
            victim = worker_process(client)
            os.kill(victim, signal.SIGKILL)
            gone.append(victim)
        return plain(*args)

    monkeypatch.setattr(type(executor), name, kill_first)
    return gone


@pytest.mark.parametrize(("name", "number"), [("sum", 2), ("map", 1)], ids=["training", "leave-one-out"])
def test_a_worker_is_killed(client, memory, monkeypatch, name, number):
    """Its blocks are made again from their sources: no row is lost and no result changes."""
    blocks = dask_blocks(PROBLEM, (60,) * 10)
    gone = killed_before(blocks, client, monkeypatch, name, number)
    solution = glru.solve(blocks)
    result = glru.loocv(solution)
    assert len(gone) == 1
    assert solution.relative_gap <= 1e-6
    assert_same(result, memory)


def test_a_worker_is_killed_while_it_reads(client, memory):
    """The blocks take their time to come; the worker dies with some of them read, one half-way and others waiting."""
    import dask.array as da

    def slowly(block):
        time.sleep(0.05)
        return block

    victim = worker_process(client)
    X = da.from_array(PROBLEM.X, chunks=(30, 4)).map_blocks(slowly, meta=np.empty((0, 0)))
    timer = threading.Timer(0.2, os.kill, (victim, signal.SIGKILL))
    timer.start()
    result = glru.loocv(glru.Problem(X, PROBLEM.y, penalty=PROBLEM.penalty, fit_intercept=True))
    timer.join()
    assert_same(result, memory)
