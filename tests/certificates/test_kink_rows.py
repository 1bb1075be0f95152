"""Leave-one-out of losses with kinks: against precise retrainings, from exact and from poor candidates."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import glru
from glru.verify.retraining import retrain
from tests.core import KinkRows, Refits, has_kinks, removal_factors

LOSSES = [glru.Hinge(), glru.SquaredHinge(), glru.SmoothedHinge(0.01), glru.Huber(1.0), glru.Huber(0.01)]


def problem(n=24, d=3, lam=0.05, fit_intercept=True, seed=0, scaling="mean", repeated=False, loss=LOSSES[0]):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d)) * 2.0 ** random.integers(-2, 3, d)
    X = np.round(X) if repeated else X
    z = (X / X.std(axis=0)) @ random.normal(size=d)
    y = z + random.logistic(size=n)
    y = np.where(y > 0.0, 1, -1) if loss.task == "classification" else y
    return glru.Problem(X, y, loss, glru.L2(lam), fit_intercept, scaling)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_pieces_of_tall_data_are_left_to_hessians_over_the_columns(loss):
    assert has_kinks(problem(30, 3, loss=loss))
    assert has_kinks(problem(31, 3, loss=loss)) == isinstance(loss, glru.Hinge)


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
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_steps_and_paths_end_at_precise_retrainings(loss, shape, fit_intercept, scaling):
    asked = problem(*shape, fit_intercept=fit_intercept, scaling=scaling, seed=1, loss=loss)
    assert has_kinks(asked)
    exact, rows = scores_without_each_row(asked), np.arange(asked.n_rows)
    family = KinkRows(glru.solve(asked, tol=1e-8), float(removal_factors(asked)[0]))
    lower, upper = family.bounds(rows, never)
    assert inside(lower, exact, upper)
    assert np.mean(upper - lower < (1e-3 if isinstance(loss, glru.Hinge) else 1e-8)) > 0.9


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_poor_candidates_have_wide_intervals(loss, seed, fit_intercept):
    """Nothing but the gap is proven: of dual variables, intercepts and rows at the kink that are off, too."""
    asked = problem(12, 2, lam=0.5, fit_intercept=fit_intercept, seed=seed, scaling="sum", loss=loss)
    exact, rows = scores_without_each_row(asked), np.arange(asked.n_rows)
    family, random = KinkRows(glru.solve(asked, tol=1e-8), 1.0), np.random.default_rng(seed)
    others = [glru.solve(asked.without(np.array([row])), tol=1e-9) for row in rows]
    for noise in (1e-8, 1e-4, 1e-2, 0.1, 0.3):
        found = []
        for row, other in enumerate(others):
            dual = -loss.project(asked.y, -other.dual - noise * random.normal(size=rows.size))
            dual[row] = 0.0
            if fit_intercept:
                # About as much of each sign.
                up, down = dual[dual > 0].sum(), -dual[dual < 0].sum()
                dual = dual * np.where(dual > 0, min(1.0, down / up), (1.0 - 0.5 * noise) * min(1.0, up / down))
            low, high = (-end for end in reversed(loss.derivative_range(asked.y)))
            kinks = (dual > low + 1e-3) & (dual < high - 1e-3)
            intercept = np.array([other.intercept + noise * random.normal()]) if fit_intercept else np.zeros(1)
            coefs = asked.X.T @ (asked.weights * dual) / 0.5 + noise * random.normal(size=2)
            models = (coefs[:, None], intercept, dual[:, None])
            found.append(family._certified(np.array([row]), kinks[:, None], models)[0])
        lower, upper = (np.concatenate(ends) for ends in zip(*found, strict=True))
        assert inside(lower, exact, upper)
        assert np.isfinite(upper).mean() > 0.5


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("tol", [1e-2, 1e-6])
def test_models_that_were_trained_are_certified_together(tol, fit_intercept):
    asked = problem(16, 3, fit_intercept=fit_intercept, seed=1)
    exact, rows = scores_without_each_row(asked), np.arange(asked.n_rows)
    family = KinkRows(glru.solve(asked, tol=1e-8), float(removal_factors(asked)[0]))
    models = [glru.solve(asked.without(np.array([row])), tol=tol) for row in rows]
    lower, upper = family.prove_trained(rows, models, never)
    assert inside(lower, exact, upper)
    assert np.mean(upper - lower < (0.1 if tol == 1e-6 else np.inf)) > 0.5


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_repairs_reach_dual_variables_that_an_intercept_allows(loss):
    asked, random = problem(12, 2, seed=5, scaling="sum", loss=loss), np.random.default_rng(5)
    family, rows = KinkRows(glru.solve(asked, tol=1e-8), 1.0), np.arange(12)
    dual = -loss.project(asked.y[:, None], random.normal(size=(12, 12)) * 10.0 ** random.uniform(-3, 0, 12))
    dual[rows, rows] = 0.0
    moves, _ = family._repairs(rows, asked.weights[:, None] * dual, dual)
    assert np.all(asked.weights @ moves >= np.abs(asked.weights @ dual))
    assert np.all(moves[rows, rows] == 0.0)


@pytest.mark.parametrize("loss", LOSSES[1:], ids=repr)
@pytest.mark.parametrize("shape", [(40, 4), (25, 60)], ids=["tall", "wide"])
def test_steps_leave_nothing_to_training(loss, shape):
    asked = problem(*shape, loss=loss, lam=1e-3, seed=4)
    result = glru.loocv(asked, width=1e-6)
    assert result.n_trainings == 0 and "undetermined" not in result.decided_by
    scores = glru.loocv(asked, method="naive", tol=1e-13).score_lower
    assert np.all((result.score_lower - 1e-4 <= scores) & (scores <= result.score_upper + 1e-4))


def test_a_model_without_rows_on_curved_pieces_is_found():
    """Under a strong penalty an intercept is a median, and every slope at its end but that of one row."""
    asked = problem(20, 3, lam=50.0, loss=glru.Huber(1e-3), seed=3)
    family = KinkRows(glru.solve(asked, tol=1e-10), float(removal_factors(asked)[0]))
    lower, upper = family.bounds(np.arange(20), never)
    assert inside(lower, scores_without_each_row(asked), upper)
    assert np.mean(upper - lower < 1e-8) > 0.9


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("shape", [(30, 2), (40, 3)])
def test_rows_that_are_repeated_are_rarely_trained(shape, fit_intercept):
    """More rows are at the kink than there are columns, so that their dual variables are not unique and paths do not begin."""
    asked = problem(*shape, repeated=True, seed=2, scaling="sum", lam=1.0, fit_intercept=fit_intercept)
    result = glru.loocv(asked)
    assert result.n_trainings < 0.3 * shape[0]
    naive = glru.loocv(asked, method="naive", tol=1e-12).score_lower
    assert np.all((result.score_lower - 1e-4 <= naive) & (naive <= result.score_upper + 1e-4))


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_rows_in_different_units_take_no_training(fit_intercept):
    """Margins that the path leaves off by rounding would cost more of the gap than the label has."""
    random = np.random.default_rng(11)
    X = random.normal(size=(120, 8)) * 10.0 ** random.uniform(-2, 3, 8)
    y = np.where((X / X.std(axis=0)) @ random.normal(size=8) + random.normal(size=120) > 0.0, 1, -1)
    asked = glru.Problem(X, y, glru.Hinge(), glru.L2(1.0), fit_intercept, "sum")
    result = glru.loocv(asked)
    assert result.n_trainings == 0 and "undetermined" not in result.decided_by
    for row in range(0, 120, 24):
        score, doubt = retrain(asked.without(np.array([row])), 40).scores(X[row : row + 1])[0]
        assert result.score_lower[row] - doubt <= score <= result.score_upper[row] + doubt


def hinge_refits(asked, least, most, seed):
    """Strengths without each row, and without an intercept moved values; the problems that these make, and exact scores of the rows."""
    random, shape = np.random.default_rng(seed), (asked.n_rows, asked.n_columns)
    changes = {"strengths": random.uniform(least, most, shape)}
    if not asked.fit_intercept:
        changes |= {"filled": random.random(shape) < 0.7, "fills": random.normal(size=shape) * 0.01}
    refits = Refits(**changes)
    found = [(row, retrain(refits.described(asked, row), 40)) for row in range(asked.n_rows)]
    known = [(row, refits.described(asked, row).X[row : row + 1], truth) for row, truth in found if truth is not None]
    assert len(known) > 0.5 * asked.n_rows
    return refits, [row for row, _, _ in known], [truth.scores(x)[0] for _, x, truth in known]


@pytest.mark.parametrize("shape", [(24, 3), (12, 20)], ids=["tall", "wide"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("seed", [1, 2])
def test_strengths_and_values_that_change_without_a_row(shape, fit_intercept, seed):
    asked = problem(*shape, lam=1.0, fit_intercept=fit_intercept, seed=seed, scaling="sum")
    refits, rows, exact = hinge_refits(asked, 0.95, 1.1, seed)
    lower, upper = KinkRows(glru.solve(asked, tol=1e-10), 1.0, refits).bounds(np.arange(asked.n_rows), never)
    assert inside(lower[rows], exact, upper[rows])
    assert np.mean(upper - lower < 1e-3) > 0.6


@pytest.mark.parametrize(("lam", "most", "fit_intercept"), [(1.0, 1.1, True), (1.0, 1.1, False), (5e3, 0.05, False)])
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_poor_candidates_under_other_strengths_have_wide_intervals(lam, most, fit_intercept, seed):
    """Under a strong penalty every row is before its kink, and the penalty is all of the gap."""
    asked = problem(12, 2, lam=lam, fit_intercept=fit_intercept, seed=seed, scaling="sum")
    refits, rows, exact = hinge_refits(asked, 0.02, most, seed)
    family, random = KinkRows(glru.solve(asked, tol=1e-8), 1.0, refits), np.random.default_rng(seed)
    for noise in (1e-6, 1e-3, 1e-2, 0.1):
        found = []
        for row in rows:
            near = glru.solve(refits.described(asked, row), tol=1e-10)
            coefs = near.coef + noise * random.choice([-1.0, 1.0]) * asked.X[row]
            models = coefs[:, None], np.array([near.intercept]), near.dual[:, None].copy()
            models[2][row] = 0.0
            kinks = (near.dual * asked.y > 1e-3) & (near.dual * asked.y < 1.0 - 1e-3)
            found.append(family._certified(np.array([row]), kinks[:, None], models)[0])
        lower, upper = (np.concatenate(ends) for ends in zip(*found, strict=True))
        assert inside(lower, exact, upper)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_linear_svc_behind_a_scaler_has_narrow_scores(loss):
    """The intercept of LinearSVC is penalised, so that the means that are fitted again move every value."""
    random = np.random.default_rng(5)
    X = random.normal(size=(80, 4)) * [1.0, 10.0, 0.1, 3.0] + [5.0, 0.0, 1.0, -2.0]
    scores = X @ [1.0, 0.1, 3.0, -0.5] + random.normal(size=80)
    y = (scores > np.median(scores)).astype(int)
    svc = LinearSVC(loss=loss, tol=1e-10, max_iter=1_000_000)
    model = make_pipeline(StandardScaler(), svc)
    result = glru.loocv(model, X, y)
    assert result.n_trainings == 0 and np.mean(result.score_upper - result.score_lower) < 1e-5
    for row in range(0, 80, 16):
        kept = np.arange(80) != row
        score = model.fit(X[kept], y[kept]).decision_function(X[row : row + 1])[0]
        assert result.score_lower[row] - 1e-6 <= score <= result.score_upper[row] + 1e-6


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


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("loss", [glru.Hinge(), glru.SquaredHinge()], ids=repr)
def test_a_candidate_that_still_counts_its_row_is_certified_without_it(loss, fit_intercept):
    """The model of all rows, with the dual variables of all: whatever is proposed, the row that leaves is no part of the gap."""
    asked = problem(16, 3, fit_intercept=fit_intercept, seed=3, loss=loss)
    solution, rows = glru.solve(asked, tol=1e-10), np.arange(asked.n_rows)
    family = KinkRows(solution, float(removal_factors(asked)[0]))
    coefs, dual = (np.repeat(part[:, None], rows.size, axis=1) for part in (solution.coef, solution.dual))
    kinks = np.abs(1.0 - asked.y * solution.scores) < 1e-6
    kinks = np.repeat(kinks[:, None], rows.size, axis=1) & ~np.eye(rows.size, dtype=bool)
    (lower, upper), gaps = family._certified(rows, kinks, (coefs, np.full(rows.size, solution.intercept), dual))
    assert inside(lower, scores_without_each_row(asked), upper)
    # Rows with a part in the model leave a gap.
    assert np.all(gaps[np.abs(solution.dual) > 0.5] > 1e-4)
