"""Leave-one-out of the hinge loss by paths: against precise retrainings, from exact and from poor candidates."""

import numpy as np
import pytest
from sklearn.svm import LinearSVC

import glru
from glru.verify.retraining import retrain
from tests.core import HingeRows, has_paths, removal_factors


def problem(n=24, d=3, lam=0.05, fit_intercept=True, seed=0, scaling="mean", repeated=False):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d)) * 2.0 ** random.integers(-2, 3, d)
    X = np.round(X) if repeated else X
    z = (X / X.std(axis=0)) @ random.normal(size=d)
    y = np.where(z + random.logistic(size=n) > 0.0, 1, -1)
    return glru.Problem(X, y, glru.Hinge(), glru.L2(lam), fit_intercept, scaling)


def never(lower, upper):
    return np.zeros(len(lower), dtype=bool)


def scores_without_each_row(asked):
    """Scores and their doubts; None where a retraining tells too little."""
    found = [retrain(asked.without(np.array([row])), 40) for row in range(asked.n_rows)]
    assert sum(truth is not None for truth in found) > 0.5 * asked.n_rows
    return [None if truth is None else truth.scores(asked.X[row : row + 1])[0] for row, truth in enumerate(found)]


def inside(lower, exact, upper):
    known = [place for place, truth in enumerate(exact) if truth is not None]
    return all(lower[k] - exact[k][1] <= exact[k][0] <= upper[k] + exact[k][1] for k in known)


@pytest.mark.parametrize("scaling", ["mean", "sum"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("shape", [(16, 3), (10, 20)], ids=["tall", "wide"])
def test_paths_end_at_precise_retrainings(shape, fit_intercept, scaling):
    asked = problem(*shape, fit_intercept=fit_intercept, scaling=scaling, seed=1)
    assert has_paths(asked)
    exact, rows = scores_without_each_row(asked), np.arange(asked.n_rows)
    family = HingeRows(glru.solve(asked, tol=1e-8), float(removal_factors(asked)[0]))
    lower, upper = family.bounds(rows, never)
    assert inside(lower, exact, upper)
    assert np.mean(upper - lower < 1e-3) > 0.9


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("seed", [1, 2])
def test_poor_candidates_have_wide_intervals(seed, fit_intercept):
    """Nothing but the gap is proven: of dual variables, intercepts and rows at the kink that are off, too."""
    asked = problem(12, 2, lam=0.5, fit_intercept=fit_intercept, seed=seed, scaling="sum")
    exact, rows = scores_without_each_row(asked), np.arange(asked.n_rows)
    family, random = HingeRows(glru.solve(asked, tol=1e-8), 1.0), np.random.default_rng(seed)
    others = [glru.solve(asked.without(np.array([row])), tol=1e-9) for row in rows]
    for noise in (1e-8, 1e-4, 1e-2, 0.1, 0.3):
        found = []
        for row, other in enumerate(others):
            slopes = np.clip(asked.y * other.dual + noise * random.normal(size=rows.size), 0.0, 1.0)
            slopes[row] = 0.0
            if fit_intercept:
                # As much of each class, but for rounding.
                up, down = slopes[asked.y > 0].sum(), slopes[asked.y < 0].sum()
                slopes[asked.y > 0] *= min(1.0, down / up)
                slopes[asked.y < 0] *= min(1.0, up / down)
            kinks = (slopes > 1e-3) & (slopes < 1.0 - 1e-3)
            intercept = np.array([other.intercept + noise * random.normal()]) if fit_intercept else np.zeros(1)
            found.append(family._certified(np.array([row]), slopes[:, None], kinks[:, None], intercept))
        lower, upper = (np.concatenate(ends) for ends in zip(*found, strict=True))
        assert inside(lower, exact, upper)
        assert np.isfinite(upper).mean() > 0.5


def test_rows_that_are_repeated_are_left_to_training():
    asked = problem(30, 1, repeated=True, scaling="sum", lam=1.0)
    result = glru.loocv(asked)
    naive = glru.loocv(asked, method="naive", tol=1e-10).score_lower
    assert result.n_trainings > 0 and "undetermined" not in result.decided_by
    assert np.all((result.score_lower - 1e-3 <= naive) & (naive <= result.score_upper + 1e-3))


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_linear_svc_takes_no_training(fit_intercept):
    random = np.random.default_rng(3)
    X = random.normal(size=(150, 6))
    y = (X @ random.normal(size=6) + random.normal(size=150) > 0).astype(int)
    model = LinearSVC(loss="hinge", C=0.3, fit_intercept=fit_intercept, tol=1e-8, max_iter=1_000_000)
    result = glru.loocv(model, X, y, width="labels")
    assert result.n_trainings == 0 and "undetermined" not in result.decided_by
    for row in range(0, 150, 15):
        kept = np.arange(150) != row
        score = model.fit(X[kept], y[kept]).decision_function(X[row : row + 1])[0]
        assert result.score_lower[row] - 1e-3 <= score <= result.score_upper[row] + 1e-3
