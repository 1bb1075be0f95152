"""One thread of BLAS or two: sums are taken in another order, and nothing that is proven depends on it."""

import sys
import types

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import glru
from tests.cases import make
from tests.core import threads

SHAPES = {"tall": (400, 24), "wide": (60, 300)}


@pytest.fixture(params=SHAPES, name="problem")
def _problem(request, monkeypatch):
    """A problem whose products BLAS shares between threads; nothing is too small for them here."""
    monkeypatch.setattr(threads, "SMALL_WORK", -1.0)
    return make(glru.Logistic(), glru.L2(0.02), *SHAPES[request.param], seed=1)


def with_threads(count, task, problem):
    """What a task gives when BLAS has so many threads."""
    with threadpool_limits(count, user_api="blas"):
        if {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} != {count}:
            pytest.skip("this BLAS has one thread")
        return task(problem.derive())


def overlapping(first, second):
    """Two pairs of bounds of the same numbers, both of which hold them."""
    return np.all(np.maximum(first[0], second[0]) <= np.minimum(first[1], second[1]))


def test_leave_one_out(problem):
    one, two = (with_threads(k, lambda p: glru.loocv(p, width=1e-9), problem) for k in (1, 2))
    assert overlapping((one.score_lower, one.score_upper), (two.score_lower, two.score_upper))
    assert np.array_equal(one.bounds.signs, two.bounds.signs)
    for result in (one, two):
        found = glru.verify(result, problem, sample=2, digits=40)
        assert (found.checked, found.wrong) == (2, ())


@pytest.mark.parametrize("candidate", ["carry", "newton"])
def test_after_a_change(problem, candidate):
    change, queries = glru.RemoveRows([3, 5]) + glru.RemoveColumns([2]), np.delete(problem.X[:20], 2, axis=1) + 0.1
    one, two = (with_threads(k, lambda p: glru.after(glru.solve(p), change, candidate), problem) for k in (1, 2))
    for name in ("score_bounds", "coef_bounds", "dual_bounds"):
        arguments = (queries,) if name == "score_bounds" else ()
        assert overlapping(*(getattr(out, name)(*arguments) for out in (one, two)))
    assert np.array_equal(one.score_bounds(queries).signs, two.score_bounds(queries).signs)
    for result in (one, two):
        found = glru.verify(result, problem, sample=30, digits=40, queries=queries)
        assert (found.checked, found.wrong) == (30, ())


def test_a_search(problem):
    rows = make(glru.Logistic(), glru.L2(0.02), 30, problem.n_columns, seed=7)
    options = {"criterion": "log_loss", "max_steps": 2}
    one, two = (
        with_threads(k, lambda p: glru.stepwise(p, X_val=rows.X, y_val=rows.y, **options), problem) for k in (1, 2)
    )
    assert [step.columns for step in one.path] == [step.columns for step in two.path]
    for first, second in zip(one.path, two.path, strict=True):
        assert overlapping((first.lower, first.upper), (second.lower, second.upper))
    for result in (one, two):
        found = glru.verify(result, problem, sample=2, digits=40, queries=rows.X, targets=rows.y)
        assert (found.checked, found.wrong) == (2, ())


class Library:
    """Stands in for a library with threads."""

    def __init__(self):
        self.count = 8

    def get_num_threads(self):
        return self.count

    def set_num_threads(self, count):
        self.count = count


def test_threads_come_back_wherever_a_key_interrupts(monkeypatch):
    """Ctrl-C before every line on the way in and out."""
    libraries = [Library(), Library()]
    monkeypatch.setattr(threads, "_blas", lambda: types.SimpleNamespace(lib_controllers=libraries))
    monkeypatch.setattr(threads, "_calm", threads._Calm())

    def is_interrupted_before(line):
        """Whether there were that many lines."""
        seen = 0

        def trace(frame, event, arg):
            nonlocal seen
            if frame.f_code.co_filename != threads.__file__:
                return None
            if event == "line":
                seen += 1
                if seen == line:
                    raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        try:
            sys.settrace(trace)
            with threads.calm_blas(0.0):
                pass
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        assert [library.count for library in libraries] == [8, 8], line
        return seen == line

    line = 1
    while is_interrupted_before(line):
        line += 1
    assert line > 10
    with threads.calm_blas(0.0), threads.calm_blas(0.0):
        assert [library.count for library in libraries] == [1, 1]
