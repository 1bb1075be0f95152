"""Stepwise selection of rows in blocks: the path of the same rows in memory, and of naive retraining."""

import numpy as np
import pytest

import glru
from tests.rows.data import mapped

METHODS = ("certified", "naive")


def _split(seed, n_columns=6, task="classification"):
    random = np.random.default_rng(seed)
    X = random.normal(size=(260, n_columns))
    X[:, -1] *= 1e3
    score = X[:, 0] - X[:, 1] + 0.5 * random.normal(size=260)
    y = score if task == "regression" else score > 0.1
    return X[:200], y[:200], X[200:], y[200:]


@pytest.mark.parametrize("direction", ["backward", "forward", "both"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(
    ("loss", "criterion"),
    [(glru.Logistic(), "error"), (glru.Logistic(), "log_loss"), (glru.Squared(), "squared_error")],
    ids=["error", "log-loss", "squared_error"],
)
def test_the_path_of_memory_and_of_retraining(tmp_path, direction, fit_intercept, loss, criterion):
    X, y, X_val, y_val = _split(1, task=loss.task)
    options = {"loss": loss, "penalty": glru.L2(np.linspace(0.02, 0.1, 6)), "fit_intercept": fit_intercept}
    asked = {"direction": direction, "criterion": criterion, "max_steps": 4}
    blocks = glru.Problem(mapped(tmp_path, X), y, **options, block_bytes=70 * 48)
    found = glru.stepwise(blocks, X_val=X_val, y_val=y_val, **asked)
    problem = glru.Problem(X, y, **options)
    assert found.certified
    assert found.n_trainings == 0
    ours, naive = (
        glru.stepwise(problem, X_val=X_val, y_val=y_val, method=method, tol=1e-12, **asked) for method in METHODS
    )
    assert [step.columns for step in found.path] == [step.columns for step in ours.path]
    assert [step.columns for step in found.path] == [step.columns for step in naive.path]
    for mine, theirs in zip(found.path, ours.path, strict=True):
        assert np.all(np.maximum(mine.lower, theirs.lower) <= np.minimum(mine.upper, theirs.upper))


@pytest.mark.parametrize("criterion", ["error", "log_loss"])
@pytest.mark.parametrize("seed", range(3))
def test_a_first_elimination_takes_few_passes(tmp_path, criterion, seed):
    random = np.random.default_rng(seed)
    X, coef = random.normal(size=(21_000, 12)), random.normal(size=12) * np.where(np.arange(12) % 2, 0.02, 0.5)
    y = X @ coef + random.logistic(size=len(X)) > 0.0
    problem = glru.Problem(
        mapped(tmp_path, X[:20_000]), y[:20_000], penalty=glru.L2(1e-4), fit_intercept=True, block_bytes=2**20
    )
    solution = glru.solve(problem)
    before = problem.traffic.passes
    step = glru.stepwise(solution, X_val=X[20_000:], y_val=y[20_000:], criterion=criterion, forced=True, max_steps=1)
    assert step.certified
    assert problem.traffic.passes - before <= 5


def test_groups_kept_columns_and_solutions(tmp_path):
    X, y, X_val, y_val = _split(2)
    options = {"penalty": glru.L2(0.05)}
    asked = {"groups": [[0, 2], [3, 4]], "keep": [5], "forced": True, "max_steps": 3}
    solution = glru.solve(glru.Problem(mapped(tmp_path, X), y, **options), tol=1e-3)
    found = glru.stepwise(solution, X_val=X_val, y_val=y_val, **asked)
    other = glru.stepwise(glru.Problem(X, y, **options), X_val=X_val, y_val=y_val, **asked)
    assert [step.columns for step in found.path] == [step.columns for step in other.path]
    assert 5 in found.selected


def test_validation_rows_without_a_value(tmp_path):
    """A score that is exactly zero is an error, whatever the model."""
    X, y, X_val, y_val = _split(3)
    X_val[:5, 1:] = 0.0
    asked = {"forced": True, "max_steps": 5}
    found = glru.stepwise(
        glru.Problem(mapped(tmp_path, X), y, penalty=glru.L2(0.05)), X_val=X_val, y_val=y_val, **asked
    )
    other = glru.stepwise(glru.Problem(X, y, penalty=glru.L2(0.05)), X_val=X_val, y_val=y_val, **asked)
    assert [step.columns for step in found.path] == [step.columns for step in other.path]


@pytest.mark.parametrize(
    ("options", "rule"),
    [({"method": "naive"}, "method='certified'"), ({"cv": 3}, "validation rows"), ({"X_val": None}, "validation rows")],
)
def test_what_is_refused(tmp_path, options, rule):
    X, y, X_val, y_val = _split(4)
    problem = glru.Problem(mapped(tmp_path, X), y)
    with pytest.raises(ValueError, match=rule):
        glru.stepwise(problem, **({"X_val": X_val, "y_val": y_val} | options))


def test_losses_without_the_local_certificate(tmp_path):
    X, y, X_val, y_val = _split(5)
    with pytest.raises(ValueError, match="logistic or squared loss"):
        glru.stepwise(glru.Problem(mapped(tmp_path, X), y, loss=glru.SquaredHinge()), X_val=X_val, y_val=y_val)


@pytest.mark.parametrize("criterion", ["error", "log_loss"])
def test_all_candidates_of_a_step_in_a_few_passes(tmp_path, criterion):
    """The passes of a step do not grow with the number of candidates."""
    random = np.random.default_rng(5)
    X = random.normal(size=(2400, 12))
    y = X[:, :6].sum(axis=1) + random.normal(size=2400) > 0.0
    solution = glru.solve(
        glru.Problem(mapped(tmp_path, X[:2000]), y[:2000], penalty=glru.L2(0.01), block_bytes=70 * 96)
    )
    before = solution.problem.traffic.passes
    found = glru.stepwise(solution, X_val=X[2000:], y_val=y[2000:], criterion=criterion, max_steps=1, forced=True)
    # One pass for the sums that all candidates start from, up to two more for the present model's value, three for the candidates.
    assert solution.problem.traffic.passes - before <= {"error": 5, "log_loss": 6}[criterion]
    naive = glru.stepwise(
        glru.Problem(X[:2000], y[:2000], penalty=glru.L2(0.01)),
        X_val=X[2000:],
        y_val=y[2000:],
        criterion=criterion,
        max_steps=1,
        forced=True,
        method="naive",
        tol=1e-12,
    )
    assert found.path[0].columns == naive.path[0].columns and found.certified
