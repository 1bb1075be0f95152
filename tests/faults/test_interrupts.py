"""Ctrl-C at any moment: what is in memory stays as it was, and a second call gives what an undisturbed one gives."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

import glru
from tests.cases import make
from tests.faults.moments import calls, interrupted
from tests.live.test_model import data
from tests.live.truth import without_times


def moments(total, count=12):
    """Numbers of calls, spread over all of them."""
    return np.unique(np.geomspace(1, total, count).astype(int))


def path_of(result):
    return [(step.action, step.columns, step.value_lower, step.value_upper) for step in result.path]


@pytest.mark.parametrize(
    "options",
    [
        {"criterion": "log_loss", "forced": True},
        {"criterion": "error", "direction": "forward", "method": "glru"},
        {"criterion": "log_loss", "cv": 3},
    ],
    ids=["backward", "forward", "folds"],
)
@pytest.mark.parametrize("shape", [(30, 5), (12, 20)], ids=["tall", "wide"])
def test_a_search(options, shape):
    """The part of the path that is returned is the beginning of the whole; problem and caches serve a second search."""
    problem = make(glru.Logistic(), glru.L2(0.02), *shape)
    rows = () if "cv" in options else (problem.X[:10] + 0.1, problem.y[:10])
    options = options | {"max_steps": 3}
    whole = path_of(glru.stepwise(problem, None, None, *rows, **options))
    total, parts = calls(lambda: glru.stepwise(problem, None, None, *rows, **options)), []
    for count in moments(total):
        fresh = make(glru.Logistic(), glru.L2(0.02), *shape)
        assert interrupted(lambda fresh=fresh: parts.append(glru.stepwise(fresh, None, None, *rows, **options)), count)
        assert path_of(glru.stepwise(fresh, None, None, *rows, **options)) == whole
    assert parts and all(part.interrupted for part in parts)
    assert all(path_of(part) == whole[: len(part.path)] for part in parts)


@pytest.mark.parametrize(
    "task",
    [
        lambda solution: glru.loocv(solution, width=1e-8).score_lower,
        lambda solution: glru.cross_val_predict(solution, cv=3, width=1e-8).score_upper,
        lambda solution: glru.after(solution, glru.RemoveRows([1])).score_bounds(solution.problem.X)[0],
        lambda solution: glru.after(solution, glru.AddColumns(solution.problem.X[:, :1])).coef_bounds()[1],
    ],
    ids=["loocv", "folds", "rows", "columns"],
)
@pytest.mark.parametrize("options", [{}, {"fit_intercept": True}], ids=["plain", "intercept"])
def test_a_solution(task, options):
    """Whatever an interrupted call had begun to keep, the next one gives the same numbers."""

    def solved():
        return glru.solve(make(glru.Logistic(), glru.L2(0.02), 20, 4, **options))

    expected = task(solved())
    first = solved()
    for count in moments(calls(lambda: task(first)), 8):
        solution = solved()
        assert interrupted(lambda s=solution: task(s), count)
        np.testing.assert_array_equal(task(solution), expected)


CHANGES = {
    "add rows": lambda live, X, y: live.add_rows(X[:2], y[:2], keys=["new", "newer"]),
    "remove rows": lambda live, X, y: live.remove_rows(keys=[3, 5]),
    "add columns": lambda live, X, y: live.add_columns(X[1:, :1]),
    "remove columns": lambda live, X, y: live.remove_columns([0]),
    "refresh": lambda live, X, y: live.refresh(),
    "predict": lambda live, X, y: live.predict(X),
    "bounds": lambda live, X, y: live.decision_bounds(X),
    "needs": lambda live, X, y: live.needs_retraining(X),
    "fit": lambda live, X, y: live.fit(X[:40], y[:40]),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("estimator", [LogisticRegression(), Ridge()], ids=["classifier", "regression"])
def test_a_live_model(name, estimator, tmp_path):
    """A change and its entry in the history come together or not at all, and the model goes on from there."""
    X, y = data()
    y = y if isinstance(estimator, LogisticRegression) else X[:, 0] + 0.1 * X[:, 1] ** 2

    def made():
        live = glru.LiveModel(estimator).fit(X, y, keys=range(60))
        live.remove_rows(keys=[0])
        return live

    work = CHANGES[name]
    done, again = made(), made()
    work(done, X, y)
    # Looking at a state fills caches: look before counting, as below.
    assert without_times(again)
    total = calls(lambda: work(again, X, y))
    # Where a query needs a training, the model is first retrained and then the answer noted.
    steps = {str(without_times(live)) for live in (made(), done)}
    for count in moments(total):
        live = made()
        before, length = str(without_times(live)), len(live.history)
        assert interrupted(lambda live=live: work(live, X, y), count)
        now = str(without_times(live))
        if now not in steps:
            assert name == "predict" and len(live.history) == length + 1 and live.history[-1].reason == "predict"
        assert now != before or len(live.history) == length
        assert [entry.number for entry in live.history] == list(range(len(live.history)))
        live.save(tmp_path / "live.npz", overwrite=True)
        assert str(without_times(glru.LiveModel.load(tmp_path / "live.npz"))) == now
        if now == before:
            work(live, X, y)
            assert str(without_times(live)) in steps
