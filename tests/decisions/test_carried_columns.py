"""What a backward search carries from step to step: bounds that stay proven, and the path of a search that begins anew each time."""

from fractions import Fraction
from importlib import import_module

import numpy as np
import pytest
import scipy.sparse as sp

import glru
from glru import _options as _budget
from glru.linalg import as_matrix
from glru.metric.rows import RowSide
from glru.selection.criteria import CRITERIA
from glru.selection.judge import ValidationJudge, ValidationRows
from glru.selection.moves import Model, Move
from glru.updates.columns import RemovalScreen, Steps, WideColumns

N_ROWS, N_COLUMNS, N_QUERIES, N_STEPS = 16, 72, 5, 5


def _data(loss, fit_intercept, kind="dense", size=1.0, seed=0, n_rows=N_ROWS):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n_rows + N_QUERIES, N_COLUMNS)) * size + (2.0 if fit_intercept else 0.0)
    if kind == "sparse":
        X *= random.random(X.shape) < 0.3
        X[:n_rows, 20:24] = 0.0  # columns whose coefficients are zero, with values in the queries
    z = X[:, :4].sum(axis=1) - X[:, :4].sum(axis=1).mean() + random.normal(size=len(X))
    y = np.where(z > 0.0, 1.0, -1.0) if loss.task == "classification" else z
    # The column that leaves first, by the criterion, is one that the others resemble.
    X[:, 5] = X[:, 4] + 0.3 * random.normal(size=len(X))
    train = sp.csr_array(X[:n_rows]) if kind == "sparse" else X[:n_rows]
    lam = glru.L2(random.uniform(0.5, 1.5, N_COLUMNS) * 0.05 * size**2)
    weight = random.uniform(0.5, 2.0, n_rows)
    return glru.Problem(train, y[:n_rows], loss, lam, fit_intercept, sample_weight=weight), X[n_rows:], y[n_rows:]


def _value(problem, chosen, X, y):
    """The criterion's sum for some columns, by training."""
    solution = glru.solve(problem.select_columns(chosen), tol=1e-14)
    scores = X[:, chosen] @ solution.coef + solution.intercept
    return np.square(scores - y).sum() if problem.loss.task == "regression" else np.logaddexp(0.0, -y * scores).sum()


@pytest.mark.parametrize(
    ("loss", "fit_intercept", "kind", "size"),
    [
        (glru.Logistic(), False, "dense", 1.0),
        (glru.Logistic(), True, "dense", 3.0),
        (glru.Logistic(), True, "sparse", 1.0),
        (glru.Squared(), False, "sparse", 1.0),
        (glru.Squared(), True, "dense", 0.1),
    ],
)
def test_carried_bounds_hold(loss, fit_intercept, kind, size):
    """Every candidate's value, by training, is within what every step knows of it."""
    problem, X, y = _data(loss, fit_intercept, kind, size)
    criterion = CRITERIA["log_loss" if loss.task == "classification" else "squared_error"]
    rows, chosen = ValidationRows(problem, problem.matrix.bring(as_matrix(X)), y, criterion), np.arange(N_COLUMNS)
    judge, n_carried = ValidationJudge(Model(problem, chosen, 1e-10), rows), 0
    for step in range(N_STEPS):
        moves = [Move((int(j),), add=False) for j in chosen]
        screening = judge.screening
        known = judge.screen(moves, _budget.UNLIMITED)
        n_carried += screening.is_carried
        some = np.append(np.argsort(known.lower)[:4], np.arange(step, chosen.size, 6))
        exact = np.array([_value(problem, moves[k].apply(chosen), X, y) for k in some])
        assert np.all(known.lower[some] <= exact * (1.0 + 1e-7)) and np.all(known.upper[some] >= exact * (1.0 - 1e-7))
        # Also columns that are far from the best, which a search does not ask for, are followed.
        best = moves[some[int(np.argmin(exact) if step % 3 else np.argmax(exact))]]
        judge, chosen = judge.after(best), best.apply(chosen)
        value = judge.value()
        exact_one = _value(problem, chosen, X, y)
        assert value.lower <= exact_one * (1.0 + 1e-7) and value.upper >= exact_one * (1.0 - 1e-7)
    assert n_carried == N_STEPS - 1


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_norm_of_a_sum_of_queries_is_that_of_one_query(fit_intercept):
    """It is at least the norm in the inverse of the Hessian, and no more than rounding above it; also where the queries all but cancel."""
    for seed in range(6):
        problem, X, _ = _data(glru.Logistic(), fit_intercept, size=10.0 ** (seed - 3), seed=seed)
        X[1] = X[0]
        family = WideColumns(glru.solve(problem, tol=1e-12), as_matrix(X))
        factors = np.random.default_rng(seed).normal(size=N_QUERIES) if seed % 2 else np.array([1.0, -1.0, 0, 0, 1e-3])
        A = np.column_stack([problem.matrix.dense(), np.ones(N_ROWS)])[:, : N_COLUMNS + fit_intercept]
        H = (A.T * family.metric.curvatures) @ A + np.diag(np.append(problem.quadratic, 0.0)[: A.shape[1]])
        x = factors @ np.column_stack([X, np.ones(N_QUERIES)])[:, : A.shape[1]]
        exact, found = np.sqrt(x @ np.linalg.solve(H, x)), family.metric.bound_combined_norm(family.extended, factors)
        assert exact * (1.0 - 1e-9) <= found <= exact * (1.0 + 1e-3)


def test_carried_bounds_are_tight():
    """Most candidates are ruled out by what was carried, without a product of their own."""
    problem, X, y = _data(glru.Logistic(), fit_intercept=True)
    result = glru.stepwise(problem, X_val=X, y_val=y, criterion="log_loss", forced=True, max_steps=5)
    assert result.certified and result.n_trainings == 0
    unseen = [np.count_nonzero(np.isinf(step.upper)) for step in result.path[1:]]
    assert min(unseen) > 20


@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Squared()])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_paths_equal_training(loss, fit_intercept):
    """Down to fewer columns than rows, where the search goes on in the dimension of the columns."""
    problem, X, y = _data(loss, fit_intercept, seed=1, n_rows=64)
    criterion = "log_loss" if loss.task == "classification" else "squared_error"
    options = {"X_val": X, "y_val": y, "criterion": criterion, "forced": True, "min_features": 60}
    certified = glru.stepwise(problem, **options)
    naive = glru.stepwise(problem, method="naive", tol=1e-11, **options)
    assert [step.columns for step in certified.path] == [step.columns for step in naive.path]
    assert certified.certified


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_paths_whose_products_of_the_rows_are_formed_again(fit_intercept, monkeypatch):
    """After every fourth step, from the columns that are left."""
    monkeypatch.setattr(import_module("glru.selection.moves"), "MOST_CHANGES", 4)
    formed, form = [], WideColumns.form_again

    def counted(*arguments):
        formed.append(form(*arguments))
        return formed[-1]

    monkeypatch.setattr(WideColumns, "form_again", counted)
    problem, X, y = _data(glru.Logistic(), fit_intercept, seed=3, n_rows=48)
    options = {"X_val": X, "y_val": y, "criterion": "log_loss", "forced": True, "max_steps": 14}
    found = glru.stepwise(problem, **options)
    naive = glru.stepwise(problem, method="naive", tol=1e-11, **options)
    assert [step.columns for step in found.path] == [step.columns for step in naive.path]
    assert found.certified and found.n_trainings == 0
    assert len(formed) >= 3 and all(family.side.n_changes == 0 for family in formed)


def test_long_paths_keep_the_bounds_of_few(monkeypatch):
    """Of steps beyond a limit the candidates are kept that their first lower bound did not rule out, the winner among them."""
    monkeypatch.setattr(import_module("glru.selection.search"), "MAX_KEPT", 2 * N_COLUMNS)
    problem, X, y = _data(glru.Logistic(), fit_intercept=False)
    result = glru.stepwise(problem, X_val=X, y_val=y, criterion="log_loss", forced=True, max_steps=5)
    for place, step in enumerate(result.path):
        assert step.n_candidates == N_COLUMNS - place
        assert len(step.candidates) == step.lower.size == step.first_certain.size
        assert ("remove", step.columns) in step.candidates
    assert len(result.path[0].candidates) == N_COLUMNS
    assert all(len(step.candidates) < 60 for step in result.path[2:])


@pytest.mark.parametrize(("own", "value", "lam"), [(0.7, 0.7, 0.3), (0.29, 0.00013524349188300149, 1.0)])
def test_products_of_the_rows_after_many_removals(own, value, lam):
    """Each removal adds its rounding errors to ``K``, which the error of scores counts."""
    # Equal entries are rounded the same way again and again; the small ones by nearly half a unit of the sum each time.
    X, n_left = np.full((2, 6000), value), 20
    X[:, :n_left] = own
    side = RowSide(glru.Problem(X, [0, 1], penalty=glru.L2(lam), scaling="sum"))
    for j in range(X.shape[1] - 1, n_left - 1, -1):
        side = side.without_column(j, X[:, j])
    exact = sum(Fraction(x) * Fraction(z) for x, z in X[:, :n_left].T) / Fraction(lam)
    error = abs(float(Fraction(side.gram.data[0, 1]) - exact))
    least = 0.1 if lam == 1.0 else 0.01
    assert least * side.unit <= error / (side.norms[0] * side.norms[1]) <= side.unit


def _newton(X, y, lam):
    """Coefficients of a logistic regression, to all digits."""
    coef = np.zeros(X.shape[1])
    for _ in range(30):
        p = 1.0 / (1.0 + np.exp(y * (X @ coef)))
        hessian = X.T @ ((p * (1.0 - p))[:, None] * X) + lam * np.eye(coef.size)
        coef = coef - np.linalg.solve(hessian, lam * coef - X.T @ (y * p))
    return coef


@pytest.mark.parametrize(("lam", "noise"), [(1.0, 0.3), (10.0, 0.2)])
def test_carried_bounds_of_scores_hold(lam, noise):
    """Bounds of single scores, where no convexity helps: columns leave that the others resemble, and curvatures move."""
    random = np.random.default_rng(3)
    X = random.normal(size=(18, 3)) @ random.normal(size=(3, 30)) + noise * random.normal(size=(18, 30))
    y = np.where(X[:12, 0] + random.normal(size=12) > 0.0, 1.0, -1.0)
    problem = glru.Problem(X[:12], y, penalty=glru.L2(lam), scaling="sum")
    whole, queries, chosen = problem.matrix, as_matrix(X[12:]), np.arange(30)
    family = WideColumns(glru.solve(problem, tol=1e-13), queries)
    screen = RemovalScreen(family, whole, queries, chosen, problem.quadratic)

    def block(columns):
        return family.block((whole[:, columns], queries[:, columns]), problem.quadratic[columns], -1.0, None)

    screen.take(chosen, Steps(family, block(chosen)))
    for _ in range(4):
        place = int(np.argmax(np.abs(_newton(X[:12, chosen], y, lam))))
        steps = Steps(family, block(chosen[[place]]))
        screen.follow(family, steps)
        family, chosen = family.without(steps, place), np.delete(chosen, place)
        left = [np.delete(chosen, k) for k in range(chosen.size)]
        scores = np.array([X[12:, columns] @ _newton(X[:12, columns], y, lam) for columns in left])
        for query, sign in ((q, s) for q in range(6) for s in (-1.0, 1.0)):
            slopes = sign * (np.arange(6) == query)
            lower, _ = screen.bounds(family, chosen, (sign * float(family.query_scores[query]), slopes))
            assert np.all(lower <= sign * scores[:, query] + 1e-10)
            assert np.count_nonzero(np.isfinite(lower)) > 20


def test_a_column_that_moves_scores_far_leaves_a_family_near_its_optimum():
    """One metric is not enough on the way: a family further away proves nothing, and every candidate would be bounded alone."""
    problem, X, _ = _data(glru.Logistic(), True, seed=2)
    problem = problem.derive(X=problem.matrix.dense() * np.where(np.arange(N_COLUMNS) == 1, 10.0, 1.0))
    family = WideColumns(glru.solve(problem, tol=1e-12), as_matrix(X))
    columns, lam = np.array([1]), problem.penalty.quadratic[[1]]
    blocks = problem.matrix[:, columns], as_matrix(X[:, columns])
    after = family.without(Steps(family, family.block(blocks, lam, -1.0, family.side.center[columns])), 1)
    assert after is not None and np.abs(after.base.scores - family.base.scores).max() > 0.5
    assert after.base.nu < 1e-8


def test_candidates_that_nearly_tie_are_refined_from_what_is_carried():
    """Columns that are all but the same are told apart by steps of their own, in a metric that the search has changed."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 90))
    X[:, 7] = X[:, 3] + 1e-9 * rng.normal(size=30)
    y = np.where(X[:, 0] + rng.normal(size=30) > 0.0, 1, -1)
    y[:2] = [1, -1]
    X_val = rng.normal(size=(6, 90))
    X_val[:, 7] = X_val[:, 3]
    problem = glru.Problem(X, y, penalty=glru.L2(0.03))
    options = {"X_val": X_val, "y_val": np.where(X_val[:, 0] > 0.0, 1, -1), "criterion": "log_loss", "forced": True}
    found = glru.stepwise(problem, max_steps=8, **options)
    naive = glru.stepwise(problem, max_steps=8, method="naive", tol=1e-12, **options)
    assert found.certified and found.n_trainings == 0
    assert [step.columns for step in found.path] == [step.columns for step in naive.path]
