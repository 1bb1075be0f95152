"""Leave-one-out scores of many sets of columns at once: bounds hold the scores of optima to 80 digits, and are tight."""

from decimal import Decimal

import numpy as np
import pytest

import glru
from tests.certificates.exact import optimum
from tests.core import SubsetModels, SubsetRows, factor_range

SETS = np.array([[0, 1, 2], [0, 1, 3], [1, 2, 4], [0, 3, 4]])


def hold_out(problem, sets, present=None):
    family = SubsetModels(problem, problem.matrix[np.arange(0)]) if present is None else present.family
    starts = np.zeros((len(sets), sets.shape[1] + problem.fit_intercept))
    known = None if present is None else (present, 0)
    return SubsetRows(family, sets, starts, factor_range(problem)[0], known)


def narrow_all(rows):
    sets, places = (part.ravel() for part in np.indices(rows.lower.shape))
    rows.narrow(sets, places, np.zeros(sets.size), False)


def hostile_rows(rng, kind):
    """Data of 25 rows and 5 columns, and signs that follow the first column."""
    X = rng.standard_t(1.5, size=(25, 5)) if kind == "heavy" else rng.normal(size=(25, 5))
    if kind == "units":
        X = X * 10.0 ** np.arange(-3, 2)
    if kind == "duplicates":
        X[:, 3], X[:, 4] = X[:, 0], 0.0
    y = np.sign(X[:, 0] + rng.normal(size=25))
    return X, y


@pytest.mark.parametrize("size", [1.0, 2.0**600, 2.0**-600])
@pytest.mark.parametrize("kind", ["plain", "units", "duplicates", "heavy", "weak", "strong", "mean"])
@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Squared()], ids=str)
def test_bounds_hold_exact_scores(loss, kind, size):
    rng = np.random.default_rng(5)
    X, y = hostile_rows(rng, kind)
    y[:4] = [-1.0, 1.0, -1.0, 1.0]
    lam = {"weak": 1e-8, "strong": 1e8}.get(kind, 0.05) * (size if kind != "mean" else 1.0)
    scaling = "mean" if kind == "mean" else "sum"
    weight = np.full(25, size)
    for fit_intercept in (False, True):
        problem = glru.Problem(
            X, y, loss, glru.L2(lam), fit_intercept=fit_intercept, scaling=scaling, sample_weight=weight
        )
        rows = hold_out(problem, SETS)
        first = rows.lower.copy(), rows.upper.copy()
        narrow_all(rows)
        if kind not in ("weak", "heavy"):
            assert np.all(rows.upper - rows.lower < 1e-9 * (1.0 + np.abs(rows.upper)))
        for k, columns in enumerate(SETS):
            sub, model = problem.select_columns(columns), rows.models[k] * rows.scales[k]
            for i in range(0, 25, 4):
                best = optimum(glru.RemoveRows([i]).apply(sub), model[:3], model[3] if fit_intercept else 0.0)
                assert best is not None
                score = best.scores(X[i : i + 1, columns])[0]
                for low, high in ((first[0][k, i], first[1][k, i]), (rows.lower[k, i], rows.upper[k, i])):
                    assert Decimal(float(low)) <= score <= Decimal(float(high))


@pytest.mark.parametrize("apart", [1e-3, 1e-5])
@pytest.mark.parametrize("seed", [0, 3, 5])
def test_rounded_sums_count_in_every_direction(seed, apart):
    """Rounding of a gradient's entries points in the direction that similar columns hardly fix, though no row does."""
    rng = np.random.default_rng(seed)
    X = np.tile(rng.normal(size=(10, 3)) * 10.0 ** rng.uniform(-2, 2, (10, 1)), (2, 1))
    X = np.vstack([X, rng.normal(size=(3, 3))])
    size = np.abs(X).max(axis=1)
    X[:, 2] = X[:, 0] + apart * size * np.append(np.tile(rng.normal(size=10), 2), rng.normal(size=3))
    y = np.append(np.repeat([1.0, -1.0], 10), [1.0, -1.0, 1.0])
    # The rows of every pair pull equally: models and rounded scores are small, sums of slopes are not.
    weight = np.append(np.ones(20), np.full(3, 1e-9))
    order = rng.permutation(23)
    X, y, weight = X[order], y[order], weight[order]
    problem = glru.Problem(X, y, penalty=glru.L2(1e-3 * apart**2), scaling="sum", sample_weight=weight)
    rows = hold_out(problem, np.array([[0, 1, 2]]))
    narrow_all(rows)
    for i in np.flatnonzero(weight < 1.0):
        best = optimum(glru.RemoveRows([i]).apply(problem), np.zeros(3))
        assert best is not None and np.isfinite(rows.upper[0, i])
        score = best.scores(X[i : i + 1])[0]
        assert Decimal(float(rows.lower[0, i])) <= score <= Decimal(float(rows.upper[0, i]))


def test_pairs_with_hessians_of_their_own_hold_exact_scores(monkeypatch):
    """Without steps that share a Hessian, every pair is narrowed by steps of its own."""
    monkeypatch.setattr("glru.updates.columns.subset_rows.SHARED_STEPS", 2)
    rng = np.random.default_rng(2)
    X = rng.normal(size=(30, 5))
    y = np.sign(X[:, 0] + 0.2 * rng.normal(size=30))
    problem = glru.Problem(X, y, penalty=glru.L2(0.01), fit_intercept=True, scaling="sum")
    rows = hold_out(problem, SETS)
    assert not np.all(np.isfinite(rows.upper))
    narrow_all(rows)
    assert np.all(rows.upper - rows.lower < 1e-9 * (1.0 + np.abs(rows.upper)))
    for k, columns in enumerate(SETS):
        for i in range(0, 30, 3):
            best = optimum(glru.RemoveRows([i]).apply(problem.select_columns(columns)), np.zeros(3), 0.0)
            assert best is not None
            score = best.scores(X[i : i + 1, columns])[0]
            assert Decimal(float(rows.lower[k, i])) <= score <= Decimal(float(rows.upper[k, i]))


@pytest.mark.parametrize("kind", ["plain", "units", "duplicates", "heavy"])
@pytest.mark.parametrize("sets", [SETS, SETS[:, :2]], ids=["two leave", "three leave"])
def test_starts_from_other_columns_hold_exact_scores(sets, kind):
    """Pairs that begin where the same rows are under more columns."""
    rng = np.random.default_rng(8)
    X, y = hostile_rows(rng, kind)
    y[:2] = [-1.0, 1.0]
    problem = glru.Problem(X, y, penalty=glru.L2(0.05), fit_intercept=True, scaling="sum")
    present = hold_out(problem, np.array([[0, 1, 2, 3, 4]]))
    narrow_all(present)
    rows = hold_out(problem, sets, present)
    narrow_all(rows)
    assert kind == "heavy" or np.all(rows.upper - rows.lower < 1e-9 * (1.0 + np.abs(rows.upper)))
    for k, columns in enumerate(sets):
        for i in range(0, 25, 3):
            best = optimum(glru.RemoveRows([i]).apply(problem.select_columns(columns)), np.zeros(columns.size), 0.0)
            assert best is not None
            score = best.scores(X[i : i + 1, columns])[0]
            assert Decimal(float(rows.lower[k, i])) <= score <= Decimal(float(rows.upper[k, i]))


def test_models_under_other_columns_are_closer_starts():
    """What closed forms miss under the present columns is taken over: gradients are a fraction of what they are without."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 8))
    y = np.sign(X[:, 0] + X[:, 1] + rng.logistic(size=60))
    problem = glru.Problem(X, y, penalty=glru.L2(0.5), fit_intercept=True, scaling="sum")
    every = np.arange(8)
    present = hold_out(problem, every[None])
    narrow_all(present)
    sets = np.array([np.delete(every, k) for k in range(2, 8)])
    rows, missed = hold_out(problem, sets, present), []
    pairs = np.repeat(np.arange(len(sets)), 60), np.tile(np.arange(60), len(sets))
    for start in (rows.begin(*pairs), rows.models[pairs[0]]):
        images = np.array(
            [rows.X[rows.places[k], i] @ rows.inverse[k] @ rows.inverse[k].T for k, i in zip(*pairs, strict=True)]
        )
        models = start + rows.multipliers[pairs][:, None] * images
        missed.append(np.abs(rows.evaluate(pairs[0], models, pairs[1])[2]).sum())
    assert missed[0] < 0.3 * missed[1]


def test_models_without_an_optimum_prove_nothing():
    """Separable rows without a penalty: no bound has an end."""
    X = np.random.default_rng(0).normal(size=(20, 3))
    problem = glru.Problem(X, np.sign(X[:, 0]), penalty=glru.L2(0.0), scaling="sum")
    rows = hold_out(problem, np.array([[0, 1], [0, 2]]))
    narrow_all(rows)
    assert np.all(rows.upper == np.inf) and np.all(rows.lower == -np.inf)


@pytest.mark.parametrize("size", [1.0, 1e60, 1e-60])
def test_the_exact_optimum_depends_on_no_start(size):
    """The oracle of these tests, in columns of any unit."""
    X = np.random.default_rng(0).normal(size=(12, 3)) * size
    problem = glru.Problem(X, np.where(np.arange(12) % 2, 1.0, -1.0), penalty=glru.L2(0.1 * size * size), scaling="sum")
    first, second = (optimum(problem, np.full(3, start) / size) for start in (0.0, 0.3))
    scores = first.scores(X), second.scores(X)
    assert np.abs(scores[0]).max() > 0.1
    assert np.abs(scores[0] - scores[1]).max() < Decimal("1e-40")
