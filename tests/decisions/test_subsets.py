"""Models of many sets of columns, each in its own metric: bounds hold the scores of optima to 80 digits, and are tight."""

from decimal import Decimal

import numpy as np
import pytest

import glru
from tests.certificates.exact import optimum
from tests.core import SubsetModels, has_subsets

SETS = np.array([[0, 1, 2], [0, 1, 3], [1, 2, 4], [0, 3, 4]])


def never(members, lower, upper):
    return np.zeros(members.size, dtype=bool)


def bounds_of(problem, queries, sets, decided=never):
    starts = np.zeros((len(sets), sets.shape[1] + problem.fit_intercept))
    return SubsetModels(problem, problem.matrix.bring(type(problem.matrix)(queries))).bounds(sets, starts, decided)


@pytest.mark.parametrize("size", [1.0, 2.0**600, 2.0**-600])
@pytest.mark.parametrize("kind", ["plain", "units", "duplicates", "heavy", "weak", "strong", "weights"])
@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Squared()], ids=str)
def test_bounds_hold_exact_scores(loss, kind, size):
    rng = np.random.default_rng(5)
    X, queries = rng.normal(size=(25, 5)), rng.normal(size=(6, 5))
    if kind == "units":
        X, queries = X * 10.0 ** np.arange(-3, 2), queries * 10.0 ** np.arange(-3, 2)
    if kind == "duplicates":
        X[:, 3], X[:, 4] = X[:, 0], 0.0
    if kind == "heavy":
        X = rng.standard_t(1.5, size=X.shape)
    y = np.sign(X[:, 0] + rng.normal(size=25))
    y[:2] = [-1.0, 1.0]
    weight = np.where(np.arange(25) % 6 == 0, 0.0, 1.0) if kind == "weights" else np.ones(25)
    lam = {"weak": 1e-8, "strong": 1e8}.get(kind, 0.05)
    for fit_intercept in (False, True):
        problem = glru.Problem(
            X, y, loss, glru.L2(lam * size), fit_intercept=fit_intercept, scaling="sum", sample_weight=weight * size
        )
        assert has_subsets(problem)
        lower, upper, models = bounds_of(problem, queries, SETS)
        for k, columns in enumerate(SETS):
            sub = problem.select_columns(columns)
            best = optimum(sub, models[k][:3], models[k][3] if fit_intercept else 0.0)
            assert best is not None
            for query, low, high in zip(queries[:, columns], lower[:, k], upper[:, k], strict=True):
                score = best.scores(query[None, :])[0]
                assert Decimal(float(low)) <= score <= Decimal(float(high))
                if kind not in ("weak", "heavy"):
                    assert high - low < 1e-9 * (1.0 + abs(high))


def test_members_leave_when_they_are_decided():
    """What is asked about are members of the family, and what is decided is not stepped on."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 5))
    problem = glru.Problem(X, X[:, 0] + rng.normal(size=40) > 0.0, penalty=glru.L2(0.1))
    seen = []

    def decided(members, lower, upper):
        assert lower.shape == upper.shape == (40, members.size)
        seen.append(members.tolist())
        return members < 2

    lower, upper, _ = bounds_of(problem, X, SETS, decided)
    assert seen[0] == [0, 1, 2, 3] and all(members == [2, 3] for members in seen[1:]) and len(seen) > 2
    assert np.all(lower <= upper)


def test_what_cannot_be_factored_is_not_bounded():
    X = np.column_stack([np.ones(12), np.ones(12), np.arange(12.0), np.arange(12.0) % 2, np.zeros(12)])
    problem = glru.Problem(X, np.arange(12.0), glru.Squared(), glru.L2(np.zeros(5)))
    lower, upper, _ = bounds_of(problem, X, np.array([[0, 1], [2, 3]]))
    assert np.all(np.isinf(lower[:, 0])) and np.all(np.isinf(upper[:, 0]))
    assert np.all(upper[:, 1] - lower[:, 1] < 1e-9)
