"""A run that is stopped anywhere and started again gives the result of a run that was not."""

import contextlib
import sys

import numpy as np
import pytest

import glru
from tests.cases import make
from tests.core import Removals
from tests.core import checkpoint as module


def classes(**options):
    rng = np.random.default_rng(2)
    return glru.Problem(rng.normal(size=(24, 3)), np.arange(24) % 3, glru.Multinomial(), glru.L2(0.01), **options)


CASES = {
    "classes": (classes(fit_intercept=True), {}),
    "classes-width": (classes(), {"width": 1e-11}),
    "classes-naive": (classes(scaling="sum"), {"method": "naive"}),
    "certified": (make(glru.Logistic(), glru.L2(0.02), 30, 4, seed=3), {}),
    "open": (make(glru.Logistic(), glru.L1(0.02), 12, 3), {}),
    "hinge": (make(glru.Hinge(), glru.L2(0.05), 15, 3), {}),
    "weighted": (make(glru.SquaredHinge(), glru.ElasticNet(0.05, 0.02), 15, 3, sample_weight=np.arange(1.0, 16.0)), {}),
    "width": (make(glru.Logistic(), glru.L2(0.02), 20, 4), {"width": 1e-9}),
    "limited": (make(glru.Logistic(), glru.L2(0.1), 12, 30, fit_intercept=True), {"width": 1e-13}),
    "regression": (make(glru.Squared(), glru.L2(0.1), 15, 3), {}),
    "glru": (make(glru.Logistic(), glru.L2(0.001), 20, 4), {"method": "glru"}),
    "naive": (make(glru.Logistic(), glru.L2(0.02), 12, 4, density=0.5), {"method": "naive"}),
    "approx": (make(glru.Logistic(), glru.L2(0.02), 12, 4), {"method": "approx"}),
    "approx-glru": (make(glru.Logistic(), glru.L2(0.002), 12, 4), {"method": "approx-glru"}),
}


@pytest.fixture(autouse=True)
def written_at_once(monkeypatch):
    monkeypatch.setattr(module, "WRITE_INTERVAL", 0.0)
    monkeypatch.setattr(module, "WRITE_SHARE", 0.0)


def same(first, second):
    assert np.array_equal(first.score_lower, second.score_lower)
    assert np.array_equal(first.score_upper, second.score_upper)
    assert np.array_equal(first.scores, second.scores, equal_nan=True)
    assert np.array_equal(first.stages, second.stages)
    assert np.array_equal(first.limited, second.limited)
    assert first.n_trainings == second.n_trainings


class Stop(Exception):
    pass


def stopping(after):
    """A progress that stops the run at a report."""
    seen = 0

    def report(stage, done, total):
        nonlocal seen
        seen += 1
        if seen > after:
            raise Stop

    return report


@pytest.mark.parametrize("name", CASES)
def test_stopped_and_resumed(name, tmp_path):
    problem, options = CASES[name]
    expected = glru.loocv(problem, **options)
    same(glru.loocv(problem, checkpoint=tmp_path / "whole", **options), expected)
    for after in (0, 1, 2, 5, 9, 14, 100):
        path = tmp_path / f"{after}"
        try:
            same(glru.loocv(problem, progress=stopping(after), checkpoint=path, **options), expected)
            break
        except Stop:
            assert path.exists()
            same(glru.loocv(problem, checkpoint=path, **options), expected)
    assert after > 0 or name == "open"  # nothing can be proven there, so that there is only one stage


def test_finished_work_is_not_done_again(tmp_path, monkeypatch):
    problem, _ = CASES["naive"]
    path = tmp_path / "run"
    with pytest.raises(Stop):
        glru.loocv(problem, method="naive", progress=stopping(7), checkpoint=path)
    asked = []
    without = Removals.without
    monkeypatch.setattr(Removals, "without", lambda self, row: (asked.append(row), without(self, row))[1])
    first = glru.loocv(problem, method="naive", checkpoint=path)
    assert asked == list(range(8, 12))
    asked.clear()
    monkeypatch.setattr(sys.modules["glru.model_selection.loocv"], "train", None)
    same(glru.loocv(problem, method="naive", checkpoint=path), first)
    assert asked == []


def test_one_file_serves_several_runs(tmp_path):
    """Other data, another penalty or method never takes over answers."""
    path = tmp_path / "runs"
    for _ in range(2):
        for name in ("certified", "naive", "glru", "regression"):
            problem, options = CASES[name]
            same(glru.loocv(problem, checkpoint=path, **options), glru.loocv(problem, **options))
        problem = CASES["certified"][0]
        other = problem.derive(y=-problem.y)
        same(glru.loocv(other, checkpoint=path), glru.loocv(other))
        stronger = problem.derive(penalty=glru.L2(0.5))
        same(glru.loocv(stronger, checkpoint=path), glru.loocv(stronger))


def test_paths(tmp_path):
    problem, lams = CASES["certified"][0], [1.0, 0.1, 0.01]
    expected = glru.loocv_path(problem, lams)
    for after in range(0, 12, 2):
        path = tmp_path / f"{after}"
        try:
            glru.loocv_path(problem, lams, progress=stopping(after), checkpoint=path)
        except Stop:
            resumed = glru.loocv_path(problem, lams, checkpoint=path)
            assert np.array_equal(resumed.lower, expected.lower) and np.array_equal(resumed.upper, expected.upper)
            for first, second in zip(resumed.results, expected.results, strict=True):
                # Norms of the rows that are left are computed without those of the others, and may differ in their last digit.
                np.testing.assert_allclose(first.score_lower, second.score_lower, rtol=1e-12)
                np.testing.assert_allclose(first.score_upper, second.score_upper, rtol=1e-12)
                assert np.array_equal(first.stages, second.stages) and first.n_trainings == second.n_trainings


def searches():
    problem = make(glru.Logistic(), glru.L2(0.02), 40, 5, seed=3, fit_intercept=True)
    X_val, y_val = np.random.default_rng(1).normal(size=(20, 5)), np.arange(20) % 2 * 2 - 1
    rows = {"X_val": X_val, "y_val": y_val}
    return {
        "rows": (problem, rows | {"criterion": "log_loss", "forced": True}),
        "forward": (problem, rows | {"direction": "forward"}),
        "both": (problem, rows | {"direction": "both", "criterion": "log_loss"}),
        "folds": (problem, {"cv": 3, "forced": True}),
        "leave-one-out": (problem, {"criterion": "log_loss", "forced": True}),
        "information": (problem, {"criterion": "aic"}),
        "naive": (problem, rows | {"method": "naive", "forced": True}),
        "groups": (problem, rows | {"groups": [0, 0, 1, 1, 2], "keep": [4], "forced": True}),
        "classes": (classes(fit_intercept=True), {"cv": 2, "forced": True}),
    }


@pytest.mark.parametrize("name", searches())
def test_a_search_goes_on(name, tmp_path, monkeypatch):
    problem, options = searches()[name]
    expected = glru.stepwise(problem, **options)
    steps = [(step.action, step.columns) for step in expected.path]
    for after in range(len(steps)):
        path = tmp_path / f"{after}"
        with pytest.raises(Stop) if steps[after][0] != "stop" else contextlib.nullcontext():
            glru.stepwise(problem, checkpoint=path, progress=stopping(after), **options)
        shorter = glru.stepwise(problem, checkpoint=path, max_steps=after, **options)
        resumed = glru.stepwise(problem, checkpoint=path, **options)
        assert [(step.action, step.columns) for step in resumed.path] == steps
        assert [(step.action, step.columns) for step in shorter.path] == steps[:after]
        assert np.array_equal(resumed.selected, expected.selected) and resumed.certified == expected.certified
        for first, second in zip(resumed.path, expected.path, strict=True):
            assert first.value_lower <= second.value_upper and second.value_lower <= first.value_upper
            assert first.candidates == second.candidates and first.feature == second.feature
        for first, second in zip(resumed.path[: after + 1], expected.path, strict=False):
            assert first.decided_by == second.decided_by and first.n_open == second.n_open
            for part in ("lower", "upper", "first_lower", "first_upper", "first_certain"):
                assert np.array_equal(getattr(first, part), getattr(second, part))
    # A finished search trains nothing again.
    monkeypatch.setattr(sys.modules["glru.selection.moves"], "train", None)
    again = glru.stepwise(problem, checkpoint=path, **options)
    assert np.array_equal(again.selected, expected.selected)


def test_searches_share_no_steps(tmp_path):
    path, (problem, options) = tmp_path / "runs", searches()["rows"]
    others = [
        (problem, {"criterion": "error"}),
        (problem, {"min_features": 2}),
        (problem, {"y_val": -options["y_val"]}),
        (problem.derive(penalty=glru.L2(5.0)), {}),
        (problem, {"keep": [1]}),
        (problem, {"X_val": None, "y_val": None, "cv": 2}),
        (problem, {"X_val": None, "y_val": None, "cv": 3}),
    ]
    for _ in range(2):
        for other, more in others:
            first, second = (glru.stepwise(other, **options | more | {"checkpoint": c}) for c in (None, path))
            assert [step.columns for step in first.path] == [step.columns for step in second.path]
            assert np.allclose(first.path[0].lower, second.path[0].lower, rtol=1e-6)


@pytest.mark.parametrize("place", range(14))
def test_a_forged_search_is_refused(place, tmp_path):
    path, (problem, options) = tmp_path / "run", searches()["rows"]
    glru.stepwise(problem, checkpoint=path, **options)
    with np.load(path) as archive:
        arrays = dict(archive)
    steps = next(name for name in arrays if name.endswith("/steps"))
    tables = steps.replace("steps", "tables")
    forged = [
        {steps: arrays[steps][:, :-1]},
        {steps: arrays[steps][:-1]},
        {steps: arrays[steps].astype(np.float32)},
        {steps: arrays[steps][0]},
        {steps: np.where(np.arange(14) == 1, 77.0, arrays[steps])},
        {steps: np.where(np.arange(14) == 1, 0.5, arrays[steps])},
        {steps: np.where(np.arange(14) == 0, 1.0, arrays[steps])},
        {steps: np.where(np.arange(14) == 0, -1.0, arrays[steps])},
        {steps: np.where(np.arange(14) == 0, np.nan, arrays[steps])},
        {steps: np.where(np.arange(14) == 7, np.nan, arrays[steps])},
        {tables: arrays[tables][:-1]},
        {tables: arrays[tables][:, :-1]},
        {tables: arrays[tables].ravel()},
        {tables: None},
    ][place]
    changed = {name: array for name, array in (arrays | forged).items() if array is not None}
    with path.open("wb") as file:
        np.savez(file, **changed)
    with pytest.raises(ValueError, match="checkpoint"):
        glru.stepwise(problem, checkpoint=path, **options)


def test_what_is_not_a_checkpoint(tmp_path):
    problem = CASES["certified"][0]
    for k, content in enumerate((b"text", b"PK\x03\x04broken", b"")):
        path = tmp_path / f"{k}"
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is not a checkpoint of glru"):
            glru.loocv(problem, checkpoint=path)
        assert path.read_bytes() == content
    with pytest.raises(ValueError, match="folder that exists"):
        glru.loocv(problem, checkpoint=tmp_path / "none" / "file")


# Problems and settings that differ never share answers -----------------------------------------------------------------

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(60, 2))
Y = X @ [1.0, -1.0] + RANDOM.normal(size=60)
LABELS = np.where(Y > 0.0, 1, -1)
ONES = np.ones(60)


def regression(penalty=None, **options):
    return glru.Problem(X, Y, options.pop("loss", glru.Squared()), penalty or glru.L2(0.1), **options)


PAIRS = {
    "strengths": (regression(glru.ElasticNet([0.1, 5.0], 0.3)), regression(glru.ElasticNet(0.1, [5.0, 0.3]))),
    "kinds-of-strength": (regression(glru.ElasticNet(0.3, [0.1, 5.0])), regression(glru.ElasticNet([0.3, 0.1], 5.0))),
    "loss": (regression(loss=glru.Huber(0.1)), regression(loss=glru.Huber(0.2))),
    "loss-nearly": (regression(loss=glru.Huber(0.1)), regression(loss=glru.Huber(np.nextafter(0.1, 1.0)))),
    "intercept": (regression(), regression(fit_intercept=True)),
    "scaling": (regression(), regression(scaling="sum")),
    "weights": (regression(), regression(sample_weight=np.where(np.arange(60) == 7, 2.0, 1.0))),
    "weights-and-targets": (
        glru.Problem(X, Y, glru.Squared(), glru.L2(0.1), sample_weight=np.abs(Y) + 1.0),
        glru.Problem(X, np.abs(Y) + 1.0, glru.Squared(), glru.L2(0.1), sample_weight=np.abs(Y)),
    ),
    "offsets": tuple(
        glru.Problem(X, np.arange(60) % 4, glru.Poisson(), glru.L2(0.1), offset=np.linspace(0.0, end, 60))
        for end in (1.0, 2.0)
    ),
    "shape": (regression(), glru.Problem(X.reshape(30, 4), Y[:30], glru.Squared(), glru.L2(0.1))),
    "margin": (
        glru.Problem(X, LABELS, glru.SmoothedHinge(0.5), glru.L2(0.1)),
        glru.Problem(X, LABELS, glru.SmoothedHinge(1.0), glru.L2(0.1)),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_two_problems_never_share_answers(name, tmp_path):
    """The second of two runs in one file gives what it gives alone."""
    for first, second in (PAIRS[name], PAIRS[name][::-1]):
        path = tmp_path / f"{id(first)}"
        glru.loocv(first, checkpoint=path)
        same(glru.loocv(second, checkpoint=path), glru.loocv(second))


def test_every_setting_is_told_apart():
    """No two of many problems, and no two ways to ask about them, have one key."""
    problems = [pair[1] for pair in PAIRS.values()] + [PAIRS["strengths"][0], PAIRS["kinds-of-strength"][0]]
    problems += [regression(glru.L2(0.1)), regression(glru.L2([0.1, 0.1])), regression(glru.L1(0.1))]
    settings = (("a", "bc"), ("ab", "c"), ("abc",))
    keys = {module.digest(problem, *words) for problem in problems for words in settings}
    assert len(keys) == len(settings) * len(problems)
    values = [
        1,
        1.0,
        "1",
        True,
        None,
        "None",
        (1,),
        (1, ()),
        ((1,),),
        np.ones(1),
        np.ones((1, 1)),
        np.ones(1, dtype=int),
    ]
    assert len({module.digest(value) for value in values}) == len(values)
    assert module.digest(1.0, 2.0) != module.digest((1.0, 2.0)) != module.digest(1.02, 0)
    with pytest.raises(TypeError, match="cannot tell values of type object apart"):
        module.digest(object())


def test_other_archives_are_not_taken_over(tmp_path):
    """An NPZ file with data is not a checkpoint, and stays as it was."""
    path = tmp_path / "data.npz"
    np.savez(path, X=X, y=Y)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="is not a checkpoint of glru"):
        glru.loocv(regression(), checkpoint=path)
    assert path.read_bytes() == before
