"""Limits of time and memory, and calls that share one solution."""

import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import numpy as np
import pytest

import glru
from glru.updates.columns import FoldColumns, Steps, SubsetRows
from tests.cases import make
from tests.core import (
    HostArrays,
    LocalColumns,
    LocalEllipsoid,
    RowRemovals,
    SingleRemovals,
    ValidationJudge,
    WideRows,
    _budget,
    cascade,
    judges,
    kink_rows,
    moves,
    refine,
    unbounded,
)
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
    assert whole.decided_by.get("undetermined", 0) == 0
    parts = [
        glru.loocv(solution, method=method, max_seconds=seconds) for seconds in (12.0, 25.0, 50.0, 100.0, 200.0, 400.0)
    ]
    assert any(0 < part.decided_by.get("undetermined", 0) < 30 for part in parts) or method == "approx"
    for part in parts:
        open_rows = part.stages == "undetermined"
        if part.certified:
            assert_proven(part, *held_out(solution))
            assert np.all(part.bounds.signs[~open_rows] == whole.bounds.signs[~open_rows])


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
    now, results = time.monotonic(), []
    for n_looks in (20, 40, 80, 160, 320):
        moments = iter([now] * n_looks + [now + 100.0] * 10**6)
        monkeypatch.setattr(_budget.time, "monotonic", lambda moments=moments: next(moments))
        results.append(glru.loocv(solution, method="glru", width=1e-5, max_seconds=10.0))
        assert_proven(results[-1], *held_out(solution))
    assert any(result.decided_by.get("undetermined") and result.n_trainings for result in results)


def test_folds_stop(clock):
    """Folds that time did not allow for are undetermined: some of those done one by one, all of those stepped together."""
    # With few rows per column.
    solution = glru.solve(make(glru.SquaredHinge(), glru.L2(0.01), 30, 9, fit_intercept=True))
    whole = glru.cross_val_predict(solution, cv=6)
    assert whole.decided_by.get("undetermined", 0) == 0
    parts = [glru.cross_val_predict(solution, cv=6, max_seconds=seconds) for seconds in (5.0, 10.0, 20.0, 40.0, 80.0)]
    assert any(0 < part.decided_by.get("undetermined", 0) < 30 for part in parts)
    for part in parts:
        known = part.bounds.signs != 0
        assert np.array_equal(part.bounds.signs[known], whole.bounds.signs[known])
    together = glru.solve(make(glru.Logistic(), glru.L2(0.01), 30, 5))
    assert glru.cross_val_predict(together, cv=6, max_seconds=1.0).decided_by == {"undetermined": 30}


@pytest.mark.parametrize("method", ["certified", "glru", "naive"])
def test_a_search_stops(clock, method):
    """The path so far is the beginning of the whole path."""
    problem, rows = make(glru.Logistic(), glru.L2(0.01), 40, 8), make(glru.Logistic(), glru.L2(0.01), 30, 8, seed=4)
    options = {"method": method, "forced": True, "criterion": "log_loss"}
    whole = glru.stepwise(problem, X_val=rows.X, y_val=rows.y, **options)
    part = glru.stepwise(problem, X_val=rows.X, y_val=rows.y, **options, max_seconds=4.0)
    assert part.interrupted and not whole.interrupted
    assert len(part.path) < len(whole.path)
    assert [step.columns for step in part.path] == [step.columns for step in whole.path[: len(part.path)]]
    assert set(part.selected) == set(range(8)) - {j for step in part.path for j in step.columns}


def test_a_search_stops_between_batches_of_left_out_rows(monkeypatch):
    """A leave-one-out judge asks for the time before each batch of models, not only between candidates of a step."""
    seen = []
    monkeypatch.setattr(import_module("glru.updates.columns.subset_rows"), "ENTRIES_TOGETHER", 1)
    bound = SubsetRows._bound

    def count(self, sets, *rest):
        seen.append(sets.size)
        return bound(self, sets, *rest)

    monkeypatch.setattr(SubsetRows, "_bound", count)
    problem = make(glru.Logistic(), glru.L2(0.01), 40, 8)
    glru.stepwise(problem, max_steps=1)
    whole = len(seen)
    seen.clear()
    # Time runs only while rows are bounded.
    monkeypatch.setattr(_budget.time, "monotonic", lambda: float(len(seen)))
    part = glru.stepwise(problem, max_steps=1, max_seconds=3.0)
    assert part.interrupted and len(seen) == 3 < whole


@pytest.mark.parametrize("search", [glru.loocv, glru.cross_val_predict])
@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_limits_are_checked(search, seconds):
    """A limit is above zero."""
    problem = make(glru.Logistic(), glru.L2(0.01), 20, 3)
    with pytest.raises(ValueError, match="max_seconds must be a number of seconds above 0"):
        search(problem, max_seconds=seconds)
    with pytest.raises(ValueError, match="max_seconds must be a number of seconds above 0"):
        glru.stepwise(problem, X_val=problem.X, y_val=problem.y, max_seconds=seconds)


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


@pytest.mark.parametrize(
    ("loss", "shape"),
    [(glru.Logistic(), (800, 8)), (glru.SquaredHinge(), (800, 8)), (glru.SquaredHinge(), (120, 300))],
    ids=["local", "tall", "wide"],
)
def test_memory(loss, shape):
    """What batches of more rows take beyond batches of one fits the limit, and the bounds do not depend on it."""
    solution = glru.solve(make(loss, glru.L2(0.05), *shape))
    one = 192 * shape[0]
    peaks, results = [], []
    for limit in (one, one, 4 * one, 16 * one, 96 * one):
        tracemalloc.start()
        results.append(glru.loocv(solution, width=1e-3, max_memory=limit))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # The first run also pays for what is made once.
    for limit, peak in zip((4 * one, 16 * one, 96 * one), peaks[2:], strict=True):
        assert peak - peaks[1] <= limit
    assert peaks[-1] > peaks[1]
    for result in results[1:]:
        assert np.all(
            np.maximum(result.score_lower, results[0].score_lower)
            <= np.minimum(result.score_upper, results[0].score_upper)
        )


def test_too_little_memory(monkeypatch):
    """Less than one row takes is refused before any work."""
    solution = glru.solve(make(glru.Logistic(), glru.L2(0.05), 50, 3))
    monkeypatch.setattr(cascade, "Cascade", None)
    with pytest.raises(ValueError, match=r"max_memory must hold .* 9600 bytes for 50 rows; got 9599\. Give at least"):
        glru.loocv(solution, max_memory=9599)


def _stepwise(problem, seconds):
    criterion = "log_loss" if problem.loss.probabilities else "error"
    return glru.stepwise(problem, X_val=problem.X, y_val=problem.y, criterion=criterion, max_seconds=seconds)


STEPS = {
    "batches of rows, local": (glru.Logistic(), (60, 4), {"width": 1e-13}, RowRemovals, "bound_by_ellipsoids", 3),
    "batches of rows, wide": (glru.Logistic(), (12, 30), {"width": 1e-13}, WideRows, "_certified", 2),
    "one row, wide": (glru.Logistic(), (12, 30), {"width": 1e-15}, WideRows, "images", 3),
    "one row, columns": (glru.Huber(0.5), (20, 4), {"width": 1e-15}, refine, "find_newton_candidate", 2),
    "local steps": (glru.Logistic(), (20, 4), {"width": 1e-15, "bound": "local"}, LocalEllipsoid, "take_step", 3),
    "training": (glru.Hinge(), (20, 4), {"width": 1e-15}, refine, "certify", 2),
    "folds": (glru.Logistic(), (20, 4), None, LocalEllipsoid, "take_step", 2),
    "columns that leave, tall": (glru.Logistic(), (40, 6), "stepwise", LocalColumns, "certified", 2),
    "columns that leave, few": (glru.Logistic(), (40, 6), "stepwise", FoldColumns, "_advance", 2),
    "columns that leave, wide": (glru.Logistic(), (12, 60), "stepwise", Steps, "bounds", 2),
    "candidates one by one": (glru.Hinge(), (20, 6), "stepwise", moves, "certify", 3),
}
"""Where the time goes in each stage: a loss, a shape, options, and what is called once a step; the call at which time is up."""


@pytest.mark.parametrize("name", STEPS)
def test_a_stage_under_way_ends_at_its_next_step(name, monkeypatch):
    """When the time is up in the midst of a stage, at most one more step of it is begun."""
    loss, shape, options, owner, attribute, last = STEPS[name]
    problem = make(loss, glru.L2(0.02), *shape)
    solution = glru.solve(problem, tol=1e-3)
    now, seen, step = [0.0], [0], getattr(owner, attribute)

    def counted(*arguments, **named):
        seen[0] += 1
        if seen[0] == last:
            now[0] = 1e9
        return step(*arguments, **named)

    monkeypatch.setattr(_budget.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(owner, attribute, counted)
    monkeypatch.setattr(HostArrays, "chunk", 1)
    if name == "training":  # paths of the hinge loss leave nothing to train here
        monkeypatch.setattr(kink_rows.KinkRows, "bounds", lambda family, rows, decided: unbounded(rows.size))
        monkeypatch.setattr(SingleRemovals, "has_kinks", lambda removals: False)
    if owner is LocalColumns:  # what so few columns are judged by otherwise
        monkeypatch.setattr(import_module("glru.selection.search"), "MOST_COLUMNS", 0)
    if options == "stepwise":
        assert _stepwise(problem, 10.0).interrupted
    elif options is None:
        result = glru.cross_val_predict(solution, cv=3, width=1e-15, max_seconds=10.0)
        assert result.decided_by["undetermined"] > 0
    else:
        result = glru.loocv(solution, max_seconds=10.0, **options)
        assert set(result.decided_by) & {"wide", "undetermined"}
        assert result.n_trainings <= 1
    assert last <= seen[0] <= last + 1


@pytest.mark.parametrize("method", ["certified", "glru"])
def test_work_that_was_cut_short_is_not_kept(tmp_path, monkeypatch, method):
    """A run that had no time is taken up by one that has, which ends as if nothing had been before."""
    problem = make(glru.Hinge(), glru.L2(0.05), 12, 3)
    whole = glru.loocv(problem, method=method)
    for allowed in (0, 1, 3, 8, 20, 50):
        path, ticks = tmp_path / f"{allowed}", iter(range(10**9))
        with monkeypatch.context() as patch:
            patch.setattr(_budget.time, "monotonic", lambda ticks=ticks: float(next(ticks)))
            glru.loocv(problem, method=method, checkpoint=path, max_seconds=allowed + 0.5)
        resumed = glru.loocv(problem, method=method, checkpoint=path)
        assert np.array_equal(resumed.score_lower, whole.score_lower)
        assert np.array_equal(resumed.stages, whole.stages) and resumed.n_trainings == whole.n_trainings


@pytest.mark.parametrize("judge", ["validation", "many columns", "folds", "leave-one-out", "leave-one-out by training"])
@pytest.mark.parametrize("until", ["training", "judging"])
def test_a_search_ends_in_its_first_training_or_judgement(judge, until, monkeypatch):
    """The limit holds before any step is begun: nothing but the start is known then."""
    loss = glru.SquaredHinge() if judge == "leave-one-out by training" else glru.Logistic()
    problem = make(loss, glru.L2(0.02), 40, 5)
    rows = {"X_val": problem.X[:9], "y_val": problem.y[:9]} if judge in ("validation", "many columns") else {}
    if judge == "many columns":
        monkeypatch.setattr(import_module("glru.selection.search"), "MOST_COLUMNS", 0)
    options = {"cv": 3} if judge == "folds" else {}
    now = [0.0]
    monkeypatch.setattr(_budget.time, "monotonic", lambda: now[0])
    owner, name = (moves, "train") if until == "training" else (ValidationJudge, "value")
    if until == "judging" and judge.startswith("leave-one-out"):
        owner, name = (judges.HeldOutSets, "narrow") if judge == "leave-one-out" else (judges, "leave_one_out")
    if judge in ("folds", "validation"):
        # The models of all folds are found together.
        owner, name = FoldColumns, "run"
    slow = getattr(owner, name)

    def last(*arguments, **named):
        now[0] = 1e9
        return slow(*arguments, **named)

    monkeypatch.setattr(owner, name, last)
    result = glru.stepwise(problem, **rows, **options, max_seconds=10.0, tol=1e-12)
    assert result.interrupted
    assert result.path == ()
    assert np.array_equal(result.selected, np.arange(5))
    lower, upper = result.start_value
    assert lower <= upper
