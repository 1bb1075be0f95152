"""Leave-one-out along a grid of strengths: the same as one run a strength."""

from dataclasses import replace

import numpy as np
import pytest

import glru
from tests.cases import make
from tests.decisions.retraining import assert_proven, held_out

LAMS = [0.001, 1.0, 0.1, 0.01]


@pytest.fixture(scope="module")
def problem():
    return make(glru.Logistic(), glru.L2(7.0), 40, 6, seed=2)


@pytest.mark.parametrize("options", [{}, {"scaling": "sum"}, {"fit_intercept": True}])
def test_path_is_single_runs(options):
    problem = make(glru.Logistic(), glru.L2(7.0), 30, 4, seed=2, **options)
    path = glru.loocv_path(problem, LAMS)
    assert np.array_equal(path.lams, sorted(LAMS, reverse=True))
    assert path.criterion == "error"
    assert path.certified
    errors = []
    for lam, result, low, high in zip(path.lams, path.results, path.lower, path.upper, strict=True):
        single = problem.derive(penalty=glru.L2(lam))
        alone = glru.loocv(single)
        assert result.problem.penalty.lam == lam
        assert np.array_equal(result.bounds.signs, alone.bounds.signs)
        assert low == high == alone.n_errors
        errors.append(alone.n_errors)
    assert_proven(path.results[2], *held_out(glru.solve(problem.derive(penalty=glru.L2(path.lams[2])))))
    assert path.best_index == np.argmin(errors)
    assert path.best_lam == path.lams[np.argmin(errors)]


def test_the_stronger_penalty_wins_a_tie(problem):
    path = glru.loocv_path(problem, [1e4, 1e5, 1e6])
    assert len(set(path.upper)) == 1
    assert path.best_lam == 1e6
    assert path.certified


def test_log_loss(problem):
    path = glru.loocv_path(problem, LAMS, criterion="log_loss")
    values = []
    for lam, result in zip(path.lams, path.results, strict=True):
        scores, _ = held_out(glru.solve(problem.derive(penalty=glru.L2(lam))))
        assert np.all(result.score_upper - result.score_lower <= 1e-6)
        values.append(np.mean(np.logaddexp(0.0, -problem.y * scores)))
    assert np.all(path.lower <= np.array(values) + 1e-9)
    assert np.all(path.upper >= np.array(values) - 1e-9)
    assert np.all(path.upper - path.lower <= 1e-6)
    assert path.best_lam == path.lams[np.argmin(values)]
    assert path.certified
    wide = glru.loocv_path(problem, LAMS, criterion="log_loss", width=10.0)
    assert np.all(wide.lower <= values)
    assert np.all(wide.upper >= values)
    assert not wide.certified
    assert "not certified" in repr(wide)


def test_mse():
    problem = make(glru.Squared(), glru.L2(7.0), 30, 4, seed=2)
    path = glru.loocv_path(problem, LAMS)
    assert path.criterion == "squared_error"
    values = []
    for lam in path.lams:
        scores, _ = held_out(glru.solve(problem.derive(penalty=glru.L2(lam))))
        values.append(np.mean((problem.y - scores) ** 2))
    assert np.allclose(path.lower, values, rtol=1e-5)
    assert np.all(path.lower <= np.array(values) * (1 + 1e-9))
    assert np.all(path.upper >= np.array(values) * (1 - 1e-9))
    assert path.best_lam == path.lams[np.argmin(values)]


def test_what_makes_a_choice_certain(problem):
    path = glru.loocv_path(problem, [1.0, 0.1])
    for other, certain in ((3.0, True), (2.5, False), (2.0, False)):
        touched = replace(path, lower=np.array([2.0, other]), upper=np.array([3.0, 5.0]))
        assert touched.best_index == 0
        assert touched.certified == certain


def test_repr(problem):
    lines = repr(glru.loocv_path(problem, LAMS)).splitlines()
    assert lines[0].startswith("LOOCVPath(error, best lam ")
    assert [float(line.split()[0]) for line in lines[1:]] == sorted(LAMS, reverse=True)


def test_progress(problem):
    calls = []
    glru.loocv_path(problem, [1.0, 0.1], progress=lambda *call: calls.append(call))
    assert [done for _, done, total in calls].count(40) >= 2


def test_errors(problem):
    with pytest.raises(ValueError, match="L2 penalty of one strength; got ElasticNet"):
        glru.loocv_path(problem.derive(penalty=glru.ElasticNet(1.0, 1.0)), LAMS)
    with pytest.raises(ValueError, match="L2 penalty of one strength"):
        glru.loocv_path(problem.derive(penalty=glru.L2(np.ones(6))), LAMS)
    with pytest.raises(ValueError, match="criterion 'squared_error' does not fit a classification loss"):
        glru.loocv_path(problem, LAMS, criterion="squared_error")
    with pytest.raises(ValueError, match="criterion 'error' does not fit a regression loss"):
        glru.loocv_path(make(glru.Squared(), glru.L2(1.0), 8, 2), LAMS, criterion="error")
    with pytest.raises(ValueError, match="at least one strength; got none"):
        glru.loocv_path(problem, [])
    for lam in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="lam"):
            glru.loocv_path(problem, [1.0, lam])
