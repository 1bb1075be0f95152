"""Stepwise selection with one score per class: the choices of brute force, from bounds that hold."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import glru
from tests.certificates.class_truth import LONG, retrain_classes
from tests.core import ClassEllipsoid


def wine(n_rows=100, **options):
    X, y = load_wine(return_X_y=True)
    X, order = (X - X.mean(axis=0)) / X.std(axis=0), np.random.default_rng(0).permutation(178)
    train, rest = order[:n_rows], order[n_rows:]
    return (
        glru.Problem(X[train][:, :7], y[train], glru.Multinomial(), glru.L2(0.02), **options),
        X[rest][:, :7],
        y[rest],
    )


def leads_without(problem, chosen, X, y):
    """By how much the rows' own classes lead under the model of some columns, beyond float64."""
    here, free = problem.matrix.dense()[:, chosen], problem.fit_intercept
    strengths = np.broadcast_to(problem.quadratic, (problem.n_columns,))[chosen]
    weights = problem.weights.astype(LONG)
    model, _ = retrain_classes(here, problem.y, weights, strengths, problem.n_scores, free)
    wide = np.column_stack([X[:, chosen], np.ones(len(X))]) if free else X[:, chosen]
    scores = wide.astype(LONG) @ model.T
    return scores[np.arange(len(y)), y][:, None] - scores


def value_of(leads, y, criterion):
    others = np.arange(leads.shape[1]) != y[:, None]
    if criterion == "error":
        return float((others & (leads <= 0.0)).any(axis=1).sum())
    return float(np.log1p(np.where(others, np.exp(-leads), 0.0).sum(axis=1)).mean())


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("criterion", ["error", "log_loss"])
@pytest.mark.parametrize("direction", ["backward", "forward", "both"])
def test_choices_are_those_of_brute_force_and_values_hold(direction, criterion, fit_intercept):
    problem, X, y = wine(fit_intercept=fit_intercept)
    options = {"X_val": X, "y_val": y, "direction": direction, "criterion": criterion}
    found = glru.stepwise(problem, **options)
    naive = glru.stepwise(problem, method="naive", tol=1e-11, **options)
    assert found.selected.tolist() == naive.selected.tolist()
    assert [step.columns for step in found.path] == [step.columns for step in naive.path]
    assert sum(step.n_open for step in found.path) == 0
    chosen = set(range(7)) if direction != "forward" else set()
    for step in found.path:
        for k, (action, columns) in enumerate(step.candidates):
            after = np.array(sorted(chosen | set(columns) if action == "add" else chosen - set(columns)))
            value = value_of(leads_without(problem, after, X, y), y, criterion)
            assert step.lower[k] <= value <= step.upper[k]
        chosen ^= set(step.columns)


@pytest.mark.parametrize("seed", range(6))
def test_models_without_columns_are_within_the_metric_with_them(seed):
    rng = np.random.default_rng(seed)
    n_columns = int(rng.integers(2, 6))
    X = rng.normal(size=(40, n_columns)) * 10.0 ** rng.uniform(-2, 2, size=n_columns)
    y = np.argmax(X / X.std(axis=0) @ rng.normal(size=(n_columns, 4)) + rng.normal(size=(40, 4)), axis=1)
    y[:4] = np.arange(4)
    strength = 10.0 ** rng.uniform(-3, 1) * np.square(X).mean(axis=0)
    problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(strength), bool(seed % 2))
    region = ClassEllipsoid.at(problem, glru.solve(problem, tol=10.0 ** -rng.uniform(2, 8)).point)
    for j in range(n_columns):
        exact = leads_without(problem, np.delete(np.arange(n_columns), j), X, y)
        here = region.without(np.array([j]))
        for _ in range(4):
            lower, upper = here.queries(problem.matrix, y)
            assert np.all((lower[:, 4:] <= exact) & (exact <= upper[:, 4:]))
            here = here.take_step()


def test_removals_need_one_hessian_and_few_trainings():
    problem, X, y = wine(fit_intercept=True)
    found = glru.stepwise(problem, X_val=X, y_val=y, criterion="log_loss", max_steps=1)
    assert found.path[0].n_trainings <= 3


def test_leave_one_out_folds_groups_and_verification():
    problem, X, y = wine(fit_intercept=True)
    for options in ({}, {"cv": 4}, {"cv": 3, "groups": [[0, 1], [2, 3]]}):
        found = glru.stepwise(problem, max_steps=2, **options)
        naive = glru.stepwise(problem, max_steps=2, method="naive", tol=1e-10, **options)
        assert found.selected.tolist() == naive.selected.tolist()
    logarithmic = glru.stepwise(problem, max_steps=1, cv=4, criterion="log_loss")
    assert logarithmic.path[0].n_open == 0
    path = glru.stepwise(problem, X_val=X, y_val=y, criterion="log_loss", max_steps=1)
    checked = glru.verify(path, problem, sample=3, queries=X, targets=y)
    assert (checked.checked, checked.wrong) == (3, ())
    errors = glru.stepwise(problem, X_val=X, y_val=y, max_steps=1)
    checked = glru.verify(errors, problem, sample=3, queries=X, targets=y)
    assert (checked.checked, checked.wrong) == (3, ())


def test_log_loss_of_leave_one_out_is_that_of_training_every_row():
    problem, _, _ = wine(40)
    found, naive = (
        glru.stepwise(problem, criterion="log_loss", max_steps=2, method=method, tol=1e-10)
        for method in ("certified", "naive")
    )
    assert found.selected.tolist() == naive.selected.tolist() and found.certified
    for ours, theirs in zip(found.path, naive.path, strict=True):
        assert ours.columns == theirs.columns
        assert ours.value_lower - 1e-5 <= theirs.value_upper <= ours.value_upper + 1e-5
    importance = glru.feature_importance(problem)
    assert importance.certified and np.all(importance.lower <= importance.upper)


def test_rows_that_no_column_tells_apart_are_errors():
    """Without an intercept a row of zeros has equal scores: no class leads. With one, and no column, classes of equal weight are equal."""
    X = np.vstack([np.eye(3)] * 4 + [np.zeros((3, 3))])
    y = np.tile(np.arange(3), 5)
    problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(0.1))
    found = glru.stepwise(problem, X_val=X, y_val=y)
    assert found.start_value == (3.0, 3.0)
    empty = glru.stepwise(problem.derive(fit_intercept=True), X_val=X, y_val=y, direction="forward", max_steps=1)
    assert empty.start_value == (15.0, 15.0)


def test_estimators_and_the_selector():
    X, y = load_wine(return_X_y=True)
    X = X[:, :6]
    model = make_pipeline(StandardScaler(), LogisticRegression())
    found = glru.stepwise(model, X=X, y=y, cv=4, max_steps=2)
    selector = glru.StepwiseSelector(model, validation=4, max_steps=2).fit(X, y)
    assert selector.get_support(indices=True).tolist() == found.selected.tolist()
    assert selector.transform(X).shape == (178, found.selected.size)


@pytest.mark.parametrize(
    ("options", "match"),
    [({"method": "glru"}, "method='certified' or 'naive'"), ({"criterion": "squared_error"}, "is for regression")],
)
def test_what_is_for_one_score_is_refused(options, match):
    problem, X, y = wine()
    with pytest.raises(ValueError, match=match):
        glru.stepwise(problem, X_val=X, y_val=y, **options)
