"""Limits of time, and calls that share one solution."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import glru
from glru import _budget
from tests.cases import make
from tests.decisions.retraining import assert_proven, held_out


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves on by a second whenever it is read."""
    ticks = iter(range(10**9))
    monkeypatch.setattr(_budget.time, "monotonic", lambda: float(next(ticks)))


@pytest.mark.parametrize("method", ["certified", "glru", "naive", "approx"])
def test_leave_one_out_stops(clock, method):
    """Rows that time did not allow for are undetermined; all others are what they would have been."""
    solution = glru.solve(make(glru.SquaredHinge(), glru.L2(0.01), 30, 5, fit_intercept=True))
    whole = glru.loocv(solution, method=method)
    part = glru.loocv(solution, method=method, max_seconds=12.0)
    assert 0 < part.decided_by["undetermined"] < 30 or method == "approx"
    assert whole.decided_by.get("undetermined", 0) == 0
    open_rows = part.stages == "undetermined"
    if part.certified:
        assert_proven(part, *held_out(solution))
        assert np.all(part.labels[~open_rows] == whole.labels[~open_rows])


def test_leave_one_out_without_time():
    """No time at all: nothing is decided, nothing is claimed."""
    problem = make(glru.Logistic(), glru.L2(0.01), 30, 5)
    result = glru.loocv(problem, max_seconds=1e-9)
    assert result.decided_by == {"undetermined": 30}
    assert np.all(np.isneginf(result.score_lower)) and np.all(np.isposinf(result.score_upper))
    assert result.errors_lower == 0 and result.errors_upper == 30


def test_a_training_is_stopped(monkeypatch):
    """A training under way ends with the bounds it has reached, and they hold."""
    solution = glru.solve(make(glru.Hinge(), glru.L2(0.01), 20, 5))
    now = time.monotonic()
    moments = iter([now, *[now] * 6, *[now + 100.0] * 10**6])
    monkeypatch.setattr(_budget.time, "monotonic", lambda: next(moments))
    result = glru.loocv(solution, method="glru", width=1e-14, max_seconds=10.0)
    assert result.decided_by["undetermined"] > 0 and result.n_trainings >= 1
    assert_proven(result, *held_out(solution))


def test_folds_stop(clock):
    """Folds that time did not allow for are undetermined."""
    problem = make(glru.Logistic(), glru.L2(0.01), 30, 5)
    solution = glru.solve(problem)
    result = glru.cross_val_predict(solution, cv=6, max_seconds=10.0)
    assert 0 < result.decided_by["undetermined"] < 6
    whole, known = glru.cross_val_predict(solution, cv=6), result.labels != 0
    assert 0 < known.sum() < 30
    assert np.array_equal(result.labels[known], whole.labels[known])


@pytest.mark.parametrize("method", ["certified", "glru", "naive"])
def test_a_search_stops(clock, method):
    """The path so far is the beginning of the whole path."""
    problem, rows = make(glru.Logistic(), glru.L2(0.01), 40, 8), make(glru.Logistic(), glru.L2(0.01), 30, 8, seed=4)
    options = {"method": method, "forced": True, "criterion": "log_loss"}
    whole = glru.stepwise(problem, rows.X, rows.y, **options)
    part = glru.stepwise(problem, rows.X, rows.y, **options, max_seconds=4.0)
    assert part.interrupted and not whole.interrupted
    assert len(part.path) < len(whole.path)
    assert [step.columns for step in part.path] == [step.columns for step in whole.path[: len(part.path)]]
    assert set(part.selected) == set(range(8)) - {j for step in part.path for j in step.columns}


@pytest.mark.parametrize("search", [glru.loocv, glru.cross_val_predict])
@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_limits_are_checked(search, seconds):
    """A limit is above zero."""
    problem = make(glru.Logistic(), glru.L2(0.01), 20, 3)
    with pytest.raises(ValueError, match="max_seconds must be above 0"):
        search(problem, max_seconds=seconds)
    with pytest.raises(ValueError, match="max_seconds must be above 0"):
        glru.stepwise(problem, problem.X, problem.y, max_seconds=seconds)


def test_calls_at_the_same_time():
    """Threads that share a solution, none of whose caches is filled yet, get what each alone would get."""
    tasks = [
        lambda solution: glru.loocv(solution, width=1e-8).score_lower,
        lambda solution: glru.cross_val_predict(solution, cv=4, width=1e-8).score_upper,
        lambda solution: glru.after(solution, glru.RemoveRows([1])).score_bounds(solution.problem.X)[0],
        lambda solution: glru.after(solution, glru.RemoveColumns([0])).coef_bounds()[1],
        lambda solution: glru.after(solution, glru.Reweight([2], 3.0), "carry").score_bounds(solution.problem.X)[1],
    ]
    for shape in ((60, 5), (15, 40)):
        alone = [task(glru.solve(make(glru.Logistic(), glru.L2(0.05), *shape))) for task in tasks]
        for _ in range(3):
            shared = glru.solve(make(glru.Logistic(), glru.L2(0.05), *shape))
            with ThreadPoolExecutor(8) as pool:
                together = list(pool.map(lambda task, s=shared: task(s), tasks * 4))
            for k, found in enumerate(together):
                np.testing.assert_array_equal(found, alone[k % len(tasks)])
