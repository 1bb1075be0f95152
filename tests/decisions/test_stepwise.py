"""Stepwise selection: every method takes the path of training all candidates, ties included."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge, RidgeClassifier
from sklearn.model_selection import LeaveOneOut
from sklearn.svm import LinearSVC

import glru
from tests.cases import LOSSES, dense, each, make, targets, uneven
from tests.core import CRITERIA, Contest, Goal, Model, Move, ValidationJudge, ValidationRows, _budget, decide
from tests.decisions.exact_paths import exact_path
from tests.decisions.retraining import carefully, real

METHODS = ("certified", "glru", "naive")


def split(loss, penalty, n=30, d=6, m=12, seed=0, **options):
    """A problem and validation rows from the same model."""
    X = dense(n + m, d, seed)
    y = targets(X, loss, seed)
    return glru.Problem(X[:n], y[:n], loss=loss, penalty=penalty, **options), X[n:], y[n:]


def brute_force(problem, X_val, y_val, criterion, direction="backward", forced=False, groups=None):
    """The path by careful trainings of every candidate, written down as plainly as it goes."""
    groups = groups or [(j,) for j in range(problem.n_columns)]
    chosen = set(range(problem.n_columns)) if direction != "forward" else set()

    def value(columns):
        columns = sorted(columns)
        if not columns:
            scores = np.zeros(len(y_val))
            if problem.fit_intercept:
                raise NotImplementedError
        else:
            sub = problem.derive(X=problem.X[:, columns], penalty=problem.penalty.select(np.array(columns)))
            model = carefully(sub)
            scores = X_val[:, columns] @ model.coef + model.intercept
        if criterion == "error":
            return float(np.sum(y_val * scores <= 1e-12))
        if criterion == "log_loss":
            return float(np.mean(np.logaddexp(0.0, -y_val * scores)))
        return float(np.mean((y_val - scores) ** 2))

    path, now = [], value(chosen)
    while True:
        moves = []
        for group in groups:
            inside = group[0] in chosen
            if inside and direction != "forward" and len(chosen) - len(group) >= 1:
                moves.append((group, chosen - set(group)))
            if not inside and direction != "backward":
                moves.append((group, chosen | set(group)))
        if not moves:
            return path
        values = [value(columns) for _, columns in moves]
        least = min(values) if forced else min([now, *values])
        near = 1e-9 * now if criterion != "error" else 0.0
        if not forced and now <= least + near:
            return path
        k = next(k for k, v in enumerate(values) if v <= least + near)
        path.append(moves[k][0])
        chosen, now = moves[k][1], values[k]


def steps(result):
    return [step.columns for step in result.path if step.action != "stop"]


CASES = {
    "tall": {},
    "intercept": {"fit_intercept": True},
    "wide": {"n": 10, "d": 16},
    "weighted-sum": {"sample_weight": uneven(30), "scaling": "sum"},
}


@each(CASES, "case")
@each(LOSSES, "loss")
def test_all_methods_take_the_same_path(loss, case):
    penalty = glru.L2(0.05 if case.get("scaling") != "sum" else 1.0)
    problem, X_val, y_val = split(loss, penalty, **case)
    criterion = "squared_error" if loss.task == "regression" else "error"
    expected = brute_force(problem, X_val, y_val, criterion)
    for method in METHODS:
        result = glru.stepwise(problem, X_val=X_val, y_val=y_val, method=method, criterion=criterion, tol=1e-10)
        assert steps(result) == expected, method
        assert np.array_equal(result.selected, np.setdiff1d(np.arange(problem.n_columns), sum(expected, ())))
        if method == "naive":
            assert not result.certified


@pytest.mark.parametrize("penalty", [glru.ElasticNet(0.05, 0.02), glru.L1(0.03)], ids=["elastic-net", "l1"])
@pytest.mark.parametrize("loss", [glru.Logistic(), glru.SquaredHinge(), glru.Squared()], ids=str)
def test_other_penalties(loss, penalty):
    problem, X_val, y_val = split(loss, penalty, d=5)
    criterion = "squared_error" if loss.task == "regression" else "error"
    expected = brute_force(problem, X_val, y_val, criterion)
    for method in METHODS:
        result = glru.stepwise(problem, X_val=X_val, y_val=y_val, method=method, criterion=criterion, tol=1e-10)
        assert steps(result) == expected, method
        # Under L1 alone the gap bounds no score, but the columns in use prove a path.
        if method != "glru" or not isinstance(penalty, glru.L1):
            assert result.certified == (method != "naive")


@pytest.mark.parametrize("direction", ["forward", "both"])
@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Squared(), glru.SmoothedHinge()], ids=str)
def test_other_directions(loss, direction):
    problem, X_val, y_val = split(loss, glru.L2(0.02), seed=3)
    criteria = {"Logistic": ("error", "log_loss"), "SmoothedHinge": ("error",), "Squared": ("squared_error",)}
    for criterion in criteria[type(loss).__name__]:
        expected = brute_force(problem, X_val, y_val, criterion, direction)
        assert expected or direction == "both"
        for method in METHODS:
            result = glru.stepwise(
                problem, X_val=X_val, y_val=y_val, direction=direction, method=method, criterion=criterion, tol=1e-11
            )
            assert steps(result) == expected, method


def test_forward_with_an_intercept_starts_from_the_intercept():
    problem, X_val, y_val = split(glru.Logistic(), glru.L2(0.02), seed=3, fit_intercept=True)
    paths = [
        steps(glru.stepwise(problem, X_val=X_val, y_val=y_val, direction="forward", method=m, tol=1e-10))
        for m in METHODS
    ]
    assert paths[0] == paths[1] == paths[2]
    assert paths[0]


def test_ties_are_broken_by_the_lowest_column():
    """Duplicate and constant columns make exact ties, in a count and in a mean."""
    X = dense(40, 4, 1)
    X = np.column_stack([X, X[:, 2], X[:, 0], np.zeros(40), np.ones(40)])
    y = targets(X, glru.Logistic(), 1)
    problem = glru.Problem(X[:28], y[:28], penalty=glru.L2(0.05))
    for criterion, forced in itertools.product(("error", "log_loss"), (False, True)):
        expected = brute_force(problem, X[28:], y[28:], criterion, forced=forced)
        for method in METHODS:
            result = glru.stepwise(
                problem, X_val=X[28:], y_val=y[28:], method=method, criterion=criterion, forced=forced, tol=1e-12
            )
            assert steps(result) == expected, (criterion, forced, method)


def test_scores_that_are_exactly_zero_are_errors():
    X = np.diag([1.0, 2.0, 3.0, 1.0, 2.0])
    y = np.array([1, -1, 1, 1, -1])
    X_val = np.vstack([np.zeros(5), np.eye(5)])
    y_val = np.array([1, 1, -1, 1, 1, -1])
    problem = glru.Problem(X, y, penalty=glru.L2(0.1))
    for method in METHODS:
        result = glru.stepwise(problem, X_val=X_val, y_val=y_val, method=method, forced=True)
        assert result.start_value == (1.0, 1.0)
        # Every removal loses one row more; the first column goes first.
        assert steps(result) == [(0,), (1,), (2,), (3,)]
        assert [step.value for step in result.path] == [2.0, 3.0, 4.0, 5.0]
        assert result.path[0].n_open == 0


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_one_column_and_more_columns_than_rows(layout):
    for n, d in ((8, 1), (5, 30)):
        problem, X_val, y_val = split(glru.Logistic(), glru.L2(0.1), n=n, d=d)
        if layout == "sparse":
            problem = glru.Problem(sp.csr_array(problem.X), problem.y, penalty=problem.penalty)
            X_val = sp.csr_array(X_val)
        results = [glru.stepwise(problem, X_val=X_val, y_val=y_val, method=m, tol=1e-10, max_steps=3) for m in METHODS]
        assert steps(results[0]) == steps(results[1]) == steps(results[2])
        if d == 1:
            assert steps(results[0]) == [] and results[0].path == ()


def test_groups_and_kept_columns():
    pd = pytest.importorskip("pandas")
    problem, X_val, y_val = split(glru.Logistic(), glru.L2(0.05), d=6)
    names = list("abcdef")
    frame = pd.DataFrame(problem.X, columns=names)
    named = glru.Problem(frame, problem.y, penalty=problem.penalty)
    groups = [["a", "b"], ["c", "d", "e"]]
    expected = brute_force(named, X_val, y_val, "log_loss", groups=[(0, 1), (2, 3, 4), (5,)], forced=False)
    queries = pd.DataFrame(X_val, columns=names)[names[::-1]]
    for method in METHODS:
        result = glru.stepwise(
            named, X_val=queries, y_val=y_val, criterion="log_loss", groups=groups, method=method, tol=1e-10
        )
        assert steps(result) == expected
        assert result.names == tuple(names[j] for j in result.selected)
    same = glru.stepwise(named, X_val=queries, y_val=y_val, criterion="log_loss", groups=[0, 0, 1, 1, 1, 2], tol=1e-10)
    assert steps(same) == expected
    kept = glru.stepwise(named, X_val=queries, y_val=y_val, forced=True, keep=["b", "d"])
    assert kept.selected.tolist() == [1, 3] and kept.names == ("b", "d")
    assert all(step.feature in names for step in kept.path)
    forward = glru.stepwise(
        named, X_val=queries, y_val=y_val, direction="forward", keep=["b"], forced=True, max_features=3
    )
    assert forward.selected.size == 3 and 1 in forward.selected


def test_columns_without_a_penalty_may_come():
    """A column of strength zero among the candidates: no system over the rows, the same path."""
    problem, X_val, y_val = split(glru.Logistic(), glru.L2([0.1, 0.0, 0.2, 0.1]), n=30, d=4)
    for direction in ("forward", "both"):
        paths = [
            steps(
                glru.stepwise(
                    problem, X_val=X_val, y_val=y_val, direction=direction, method=m, criterion="log_loss", tol=1e-11
                )
            )
            for m in METHODS
        ]
        assert paths[0] == paths[1] == paths[2]


def test_limits():
    problem, X_val, y_val = split(glru.Logistic(), glru.L2(0.05), d=6)
    assert len(steps(glru.stepwise(problem, X_val=X_val, y_val=y_val, forced=True, max_steps=2))) == 2
    assert glru.stepwise(problem, X_val=X_val, y_val=y_val, forced=True, min_features=4).selected.size == 4
    assert glru.stepwise(problem, X_val=X_val, y_val=y_val, max_steps=0).path == ()


@pytest.mark.parametrize("criterion", ["error", "log_loss"])
def test_cross_validated_criterion(criterion):
    """The folds' sums add up: the same as naive training of every fold."""
    X, y = load_breast_cancer(return_X_y=True)
    X = ((X - X.mean(axis=0)) / X.std(axis=0))[:, :7]
    problem = glru.Problem(X[:150], y[:150], penalty=glru.L2(0.02), fit_intercept=True)
    results = [glru.stepwise(problem, cv=4, method=m, criterion=criterion, tol=1e-10, max_steps=3) for m in METHODS]
    assert steps(results[0]) == steps(results[1]) == steps(results[2])
    assert results[0].n_rows == 150


def test_leave_one_out_criterion():
    """Without validation rows: the leave-one-out errors of every candidate."""
    problem, _, _ = split(glru.Logistic(), glru.L2(0.05), n=25, d=5)
    certified = glru.stepwise(problem)
    naive = glru.stepwise(problem, method="naive", tol=1e-10)
    assert steps(certified) == steps(naive)
    assert certified.start_value[0] == glru.loocv(problem).n_errors
    chosen = certified.selected
    sub = problem.derive(X=problem.X[:, chosen])
    assert certified.path[-1].value == glru.loocv(sub).n_errors


def test_regression_on_real_data():
    X, y = load_diabetes(return_X_y=True)
    X = X / X.std(axis=0)
    problem = glru.Problem(X[:300], y[:300] - 150.0, loss=glru.Squared(), penalty=glru.L2(0.01), fit_intercept=True)
    paths = []
    for method in METHODS:
        result = glru.stepwise(
            problem, X_val=X[300:], y_val=y[300:] - 150.0, criterion="squared_error", method=method, tol=1e-10
        )
        paths.append(steps(result))
    assert paths[0] == paths[1] == paths[2]


@pytest.mark.parametrize(("name", "rows", "columns"), [("spambase", 250, 20), ("sonar", 150, 25), ("madelon", 200, 60)])
def test_real_data(name, rows, columns):
    X, y = real(name)
    order = np.random.default_rng(0).permutation(len(y))[: rows + 50]
    X, y = X[order][:, :columns], y[order]
    problem = glru.Problem(X[:rows], y[:rows], penalty=glru.L2(2.0**-5))
    results = [glru.stepwise(problem, X_val=X[rows:], y_val=y[rows:], method=m, tol=1e-9) for m in METHODS]
    assert steps(results[0]) == steps(results[1]) == steps(results[2])
    assert results[0].n_trainings == 0
    assert results[1].n_trainings <= results[2].n_trainings


@pytest.mark.parametrize("name", ["arcene", "dexter"])
def test_first_elimination_needs_no_training(name):
    X, y = real(name)
    order = np.random.default_rng(0).permutation(len(y))
    val, train = order[: len(y) // 10], order[len(y) // 10 :]
    problem = glru.Problem(X[train], y[train], penalty=glru.L2(2.0**-5))
    result = glru.stepwise(problem, X_val=X[val], y_val=y[val], max_steps=1)
    assert result.n_trainings == 0 and result.certified
    step = result.path[0]
    rng = np.random.default_rng(1)
    for j in rng.choice(problem.n_columns, 5, replace=False):
        model = glru.solve(glru.RemoveColumns([j]).apply(problem), tol=1e-10)
        errors = np.sum(y[val] * (np.delete(X[val], j, axis=1) @ model.coef) <= 0.0)
        assert step.lower[j] <= errors <= step.upper[j]


def test_algorithm_5_counts():
    """``C``, ``I`` and ``Z`` of the first stage add up to the validation rows."""
    problem, X_val, y_val = split(glru.Logistic(), glru.L2(0.05))
    step = glru.stepwise(problem, X_val=X_val, y_val=y_val, method="glru", max_steps=1).path[0]
    correct = step.first_certain - step.first_lower
    undetermined = len(y_val) - step.first_certain
    assert np.all(correct >= 0.0)
    np.testing.assert_array_equal(step.first_upper, step.first_lower + undetermined)
    assert step.candidates == tuple(("remove", (j,)) for j in range(6))
    assert step.n_trainings <= step.n_candidates


def test_interrupting_returns_the_path_so_far():
    problem, X_val, y_val = split(glru.Logistic(), glru.L2(0.05))
    calls = []

    def interrupt(stage, done, left):
        calls.append((stage, done, left))
        if done == 2:
            raise KeyboardInterrupt

    result = glru.stepwise(problem, X_val=X_val, y_val=y_val, forced=True, progress=interrupt)
    whole = glru.stepwise(problem, X_val=X_val, y_val=y_val, forced=True)
    assert result.interrupted and not whole.interrupted
    assert steps(result) == steps(whole)[:2]
    assert result.selected.size == 4
    assert calls[0][0].startswith("error") and calls[0][1:] == (1, 5)


def test_result_prints_and_tabulates():
    problem, X_val, y_val = split(glru.Logistic(), glru.L2(0.05))
    result = glru.stepwise(problem, X_val=X_val, y_val=y_val, forced=True)
    assert "5 steps, 0 trainings" in repr(result) and "remove" in repr(result)
    frame = result.to_frame()
    assert list(frame["action"]) == ["remove"] * 5
    assert frame["n_trainings"].sum() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"direction": "up"}, "direction must be"),
        ({"method": "fast"}, "method must be"),
        ({"criterion": "auc"}, "criterion must be"),
        ({"min_features": 0}, "min_features must be a whole number of at least 1"),
        ({"max_features": 0}, "max_features must be a whole number of at least 1"),
        ({"max_steps": -1}, "max_steps must be a whole number of at least 0"),
        ({"direction": "both", "forced": True}, "never ends"),
        ({"groups": [0, 1]}, "one label per column"),
        ({"groups": [[0, 1], [1, 2]]}, "one group only"),
        ({"keep": [17]}, "17"),
        ({"y_val": None}, "go together"),
        ({"cv": 3}, "not both"),
        ({"X_val": np.ones((3, 2)), "y_val": [1, -1, 1]}, "columns of the problem"),
        ({"y_val": [1, -1]}, "one entry per row"),
        ({"y_val": [7] * 12}, "classes of the problem"),
        ({"X_val": np.full((12, 6), np.nan)}, "X_val"),
    ],
)
def test_bad_input(options, message):
    problem, X_val, y_val = split(glru.Logistic(), glru.L2(0.05))
    arguments = {"X_val": X_val, "y_val": y_val} | options
    with pytest.raises(ValueError, match=message):
        glru.stepwise(problem, **arguments)


HUBER = glru.Huber(0.2)


def random_search(seed, loss):
    """A small search as users run them: columns of several scales, an intercept, large targets, folds or groups."""
    rng = np.random.default_rng(seed)
    n, d, m = int(rng.integers(14, 30)), int(rng.integers(3, 5)), 8
    X = rng.normal(size=(n + m, d)) * 10.0 ** rng.uniform(-1, 1, size=d) + 3.0 * rng.normal(size=d)
    z = X @ (rng.normal(size=d) / X.std(axis=0)) + rng.normal(size=n + m)
    y = 10.0 * z + 100.0 if loss.task == "regression" else np.where(z > np.median(z), 1.0, -1.0)
    problem = glru.Problem(X[:n], y[:n], loss=loss, penalty=glru.L2(10.0 ** rng.uniform(-4, -1)), fit_intercept=True)
    options = {"direction": str(rng.choice(["backward", "forward", "both"]))}
    labels = rng.integers(0, 2, size=d)
    groups = sorted(tuple(np.flatnonzero(labels == label).tolist()) for label in set(labels.tolist()))
    if rng.random() < 0.5:
        options["groups"] = [list(group) for group in groups]
    if rng.random() < 0.5:
        options["cv"] = [
            (np.flatnonzero(np.arange(n) % 3 != k), np.flatnonzero(np.arange(n) % 3 == k)) for k in range(3)
        ]
        return problem, (), options
    return problem, (X[n:], y[n:]), options


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("loss", [glru.Squared(), HUBER, glru.SmoothedHinge(0.5), glru.SquaredHinge()], ids=str)
def test_paths_are_those_of_exact_trainings(loss, seed):
    """With an intercept, over folds and with groups: the path of 40-digit trainings, and every choice proven."""
    problem, rows, options = random_search(seed, loss)
    criterion = "squared_error" if loss.task == "regression" else "error"
    groups = [tuple(group) for group in options["groups"]] if "groups" in options else None
    expected = exact_path(
        problem, *rows, splits=options.get("cv"), criterion=criterion, direction=options["direction"], groups=groups
    )
    result = glru.stepwise(problem, None, None, *rows, criterion=criterion, **options)
    if expected is None:
        # The optimum is not unique: a choice that depends on it is marked.
        assert result.certified or "not proven" in repr(result)
    else:
        assert [step.columns for step in result.path] == expected
        assert result.certified and "not proven" not in repr(result)


def test_a_wide_interval_of_the_present_value_leaves_a_clear_choice_proven():
    """Targets far from zero: the value before a step is known to fewer digits than ties are broken by."""
    X = dense(50, 4, 2)
    y = 1e6 + X[:, 0] + 0.01 * X[:, 1]
    problem = glru.Problem(X[:35], y[:35], loss=glru.Squared(), penalty=glru.L2(1e-3), fit_intercept=True)
    result = glru.stepwise(problem, X_val=X[35:], y_val=y[35:], criterion="squared_error", direction="forward")
    assert steps(result)[0] == (0,)
    assert result.certified


@pytest.mark.parametrize("loss", [glru.Logistic(), glru.SquaredHinge()], ids=str)
def test_forward_from_two_classes_of_equal_weight(loss):
    """The intercept of the empty model is exactly zero: every validation row is an error, which a symmetry proves."""
    X = dense(40, 3, 5)
    y = np.where(np.arange(40) % 2 == 0, 1.0, -1.0)
    X[:, 1] += 2.0 * y
    problem = glru.Problem(X[:30], y[:30], loss=loss, penalty=glru.L2(0.01), fit_intercept=True)
    result = glru.stepwise(problem, X_val=X[30:], y_val=y[30:], direction="forward")
    assert result.start_value == (10.0, 10.0)
    assert steps(result)[0] == (1,) and result.certified


def test_coefficients_that_are_all_zero_are_proven():
    """Under a strong elastic net every score is exactly zero, and so every row an error."""
    problem, X_val, y_val = split(glru.Logistic(), glru.ElasticNet(0.1, 5.0))
    result = glru.stepwise(problem, X_val=X_val, y_val=y_val)
    assert result.start_value == (12.0, 12.0)
    assert steps(result) == [] and result.certified


def test_ties_that_no_interval_shows_are_proven():
    """Columns that are equal, or whose coefficient is zero, make values equal: known from the columns, not from bounds.

    Targets of 1e6 leave the intervals wider than the difference that counts as a tie.
    """
    X = dense(60, 3, 2)
    y = 1e6 + 1e3 * X[:, 0] + 10.0 * dense(60, 1, 7)[:, 0]
    options = {"loss": glru.Huber(30.0), "fit_intercept": True}
    Z = X[:, [0, 2, 2]]
    twins = glru.Problem(Z[:40], y[:40], penalty=glru.L2(1e-4), **options)
    removed = glru.stepwise(twins, X_val=Z[40:], y_val=y[40:], criterion="squared_error", forced=True, max_steps=1)
    step = removed.path[0]
    assert np.all(step.upper[1:] - step.lower[1:] > 1e-9 * step.upper[1:])
    assert steps(removed) == [(1,)] and removed.certified
    sparse = glru.Problem(X[:40], y[:40], penalty=glru.ElasticNet(1e-4, 20.0), **options)
    stopped = glru.stepwise(sparse, X_val=X[40:], y_val=y[40:], criterion="squared_error")
    assert steps(stopped) == [] and stopped.certified


def test_choices_that_are_not_proven_are_marked():
    """An L1 penalty bounds no score of a hinge: the path says so step by step, and no guess passes for a bound."""
    problem, X_val, y_val = split(glru.Hinge(), glru.L1(0.03), d=5)
    result = glru.stepwise(problem, X_val=X_val, y_val=y_val, forced=True, min_features=2)
    assert result.proven == (False,) * 3 and not result.certified and result.n_unproven == 3
    first, *lines = repr(result).splitlines()
    assert "3 of 3 choices not proven" in first
    assert sum("not proven: " in line for line in lines) == 3
    assert result.to_frame()["proven"].tolist() == [False] * 3
    for step in result.path:
        assert step.n_open > 0 and np.all(step.upper == len(y_val))
    other, *rows = split(glru.Squared(), glru.L2(0.03), d=5)
    proven = glru.stepwise(other, None, None, *rows, criterion="squared_error", forced=True)
    assert all(proven.proven) and "not proven" not in repr(proven)
    naive = glru.stepwise(problem, X_val=X_val, y_val=y_val, method="naive", max_steps=1)
    assert naive.proven == (False,) and "not proven: trained, without bounds" in repr(naive)


@pytest.mark.parametrize(
    ("loss", "criterion", "remedy"),
    [
        (glru.Logistic(), "squared_error", "'squared_error' is for regression.*Use 'error'"),
        (glru.SquaredHinge(), "squared_error", "'squared_error' is for regression.*Use 'error'"),
        (glru.SquaredHinge(), "log_loss", "needs probabilities.*SquaredHinge.*Use 'error'"),
        (glru.Hinge(), "log_loss", "needs probabilities.*Hinge.*Use 'error'"),
        (glru.Squared(), "log_loss", "needs probabilities.*Squared.*Use 'squared_error'"),
        (glru.Huber(), "error", "'error' is for classification.*Use 'squared_error'"),
    ],
)
def test_criteria_need_their_loss(loss, criterion, remedy):
    problem, X_val, y_val = split(loss, glru.L2(0.05))
    with pytest.raises(ValueError, match=remedy):
        glru.stepwise(problem, X_val=X_val, y_val=y_val, criterion=criterion)


def test_criteria_need_their_estimator():
    X = dense(30, 4, 1)
    y = X[:, 0] > 0.0
    for model in (RidgeClassifier(), LogisticRegression()):
        with pytest.raises(ValueError, match=r"'squared_error' is for regression.*is a classifier. Use 'error'"):
            glru.stepwise(model, X, y, cv=3, criterion="squared_error")
    with pytest.raises(ValueError, match="'log_loss' needs probabilities"):
        glru.stepwise(RidgeClassifier(), X, y, cv=3, criterion="log_loss")
    with pytest.raises(ValueError, match="is a classifier"):
        glru.StepwiseSelector(LinearSVC(), criterion="squared_error").fit(X, y)
    # A regression on -1 and +1 may be judged either way.
    signs = glru.Problem(X, np.where(y, 1.0, -1.0), loss=glru.Squared(), penalty=glru.L2(0.1))
    for criterion in ("error", "squared_error"):
        assert glru.stepwise(signs, cv=3, criterion=criterion, max_steps=1).criterion == criterion


def test_criteria_need_their_task():
    problem, X_val, y_val = split(glru.Squared(), glru.L2(0.05))
    with pytest.raises(ValueError, match="Use 'squared_error'"):
        glru.stepwise(problem, X_val=X_val, y_val=y_val, criterion="error")
    with pytest.raises(TypeError, match=r"glru\.Problem"):
        glru.stepwise(X_val, X_val=X_val, y_val=y_val)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_contest_finds_the_first_of_the_least(data):
    """Whatever is known at first and in whatever way it is refined, the winner is the first of the least values."""
    values = np.array(data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=7)), dtype=float)
    below = np.array(data.draw(st.lists(st.integers(0, 3), min_size=values.size, max_size=values.size)))
    above = np.array(data.draw(st.lists(st.integers(0, 3), min_size=values.size, max_size=values.size)))
    contest = Contest(values - below, values + above, 0.0)

    def look(place):
        # Refinement may stop early where the candidate is out.
        for lower in np.arange(values[place] - below[place], values[place] + 1.0):
            if contest.is_out(place, lower):
                return lower, values[place] + above[place], np.nan
        return values[place], values[place], values[place]

    winner, vague = decide(contest, look)
    assert winner == int(np.argmin(values)) and vague == 0


@settings(deadline=None, max_examples=300)
@given(
    name=st.sampled_from(sorted(CRITERIA)),
    y=st.sampled_from([-1.0, 1.0]),
    ends=st.tuples(st.floats(-50, 50), st.floats(-50, 50)),
    share=st.floats(0.0, 1.0),
)
def test_terms_hold_every_score_inside(name, y, ends, share):
    low, high = min(ends), max(ends)
    score = min(max(low + share * (high - low), low), high)
    criterion = CRITERIA[name]
    bounds = criterion.terms(np.array([y]), np.array([low]), np.array([high]))
    value = {
        "error": float(y * score <= 0.0),
        "log_loss": np.logaddexp(0.0, -y * score),
        "squared_error": (y - score) ** 2,
    }[name]
    assert bounds[0][0] <= value * (1 + 1e-15) and value * (1 - 1e-15) <= bounds[1][0]


@pytest.mark.parametrize("criterion", ["error", "log_loss"])
def test_columns_with_an_absolute_value_among_others(criterion):
    """Columns whose penalty has none are judged together; one that has it, and comes to them, is not one of them."""
    kappa = np.array([0.0, 0.0, 0.0, 0.2, 0.2, 0.0, 0.2, 0.0])
    problem = make(glru.Logistic(), glru.ElasticNet(np.full(8, 0.02), kappa), 30, 8, seed=2)
    rows = make(glru.Logistic(), glru.L2(0.05), 40, 8, seed=5)
    options = {"direction": "forward", "criterion": criterion}
    certified, naive = (
        glru.stepwise(problem, X_val=rows.X, y_val=rows.y, method=m, **options) for m in ("certified", "naive")
    )
    assert [step.columns for step in certified.path] == [step.columns for step in naive.path]
    found = glru.verify(certified, problem, sample=None, queries=rows.X, targets=rows.y, digits=30)
    assert found.checked >= 7 and found.wrong == ()


def test_a_column_that_comes_is_looked_at_by_its_own_penalty():
    """Also where removals of the same step, of columns with squares alone, are judged together."""
    problem = make(glru.Logistic(), glru.ElasticNet(np.full(4, 0.02), np.array([0.0, 0.0, 0.0, 0.3])), 6, 4)
    rows = ValidationRows(problem, problem.matrix, problem.y, CRITERIA["log_loss"])
    judge = ValidationJudge(Model(problem, np.arange(3), 1e-9), rows)
    moves = [Move((0,), add=False), Move((3,), add=True)]
    screened = judge.screen(moves, _budget.UNLIMITED)
    value = judge.refine(moves[1], Goal())
    trained = glru.solve(problem, tol=1e-13)
    exact = float(np.logaddexp(0.0, -problem.y * trained.scores).sum())
    for low, high in ((screened.lower[1], screened.upper[1]), (value.lower, value.upper)):
        assert low <= exact * (1.0 + 1e-9) and exact * (1.0 - 1e-9) <= high


def test_columns_that_come_and_go_by_noise_alone():
    """The coefficient of a column is zero with it and without it: trainings tell the two apart, and again, but not for ever."""
    problem = make(glru.Logistic(), glru.ElasticNet(np.full(4, 0.02), np.array([0.0, 0.0, 0.0, 0.3])), 6, 4, seed=3)
    rows = make(glru.Logistic(), glru.L2(0.05), 40, 4, seed=103)
    options = {"direction": "both", "criterion": "log_loss", "max_seconds": 20.0}
    naive, certified = (
        glru.stepwise(problem, X_val=rows.X, y_val=rows.y, method=m, **options) for m in ("naive", "certified")
    )
    assert not naive.interrupted and len(naive.path) < 4
    assert set(naive.selected) - {3} == set(certified.selected) - {3}


@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize(("column", "objective"), [(0, 300), (-330, 0), (330, 0), (0, -600), (-200, 300)])
def test_columns_and_objectives_of_any_size(direction, column, objective):
    """The same models in other units have the same bounds, whatever powers of moves underflow on the way."""
    random = np.random.default_rng(1)
    X = random.normal(size=(30, 3))
    y = np.where(X[:, 0] + random.normal(size=30) > 0.0, 1.0, -1.0)
    found = []
    for c, s in ((1.0, 1.0), (2.0**column, 2.0**objective)):
        problem = glru.Problem(X * c, y, penalty=glru.L2(c * c * s), sample_weight=np.full(30, s), scaling="sum")
        step = glru.stepwise(
            problem, X_val=X * c, y_val=y, criterion="log_loss", direction=direction, max_steps=1
        ).path[0]
        found.append((step.first_lower, step.first_upper))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)


def test_leave_one_out_of_a_single_row_of_a_class_is_refused():
    X = np.random.default_rng(0).normal(size=(9, 2))
    problem = glru.Problem(X, np.arange(9) == 0, penalty=glru.L2(0.1), fit_intercept=True)
    with pytest.raises(ValueError, match="each class needs at least two rows"):
        glru.stepwise(problem)


@pytest.mark.parametrize("criterion", ["error", "log_loss"])
def test_leave_one_out_trains_no_candidate(criterion):
    """Every column that leaves is one Newton step away, and rows are narrowed from there; splitters of single rows are the same."""
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    problem = glru.Problem(X[:150, :8], y[:150], penalty=glru.L2(0.01), fit_intercept=True)
    found = glru.stepwise(problem, criterion=criterion, forced=True)
    assert found.n_trainings == 0 and found.certified
    naive = glru.stepwise(problem, criterion=criterion, forced=True, method="naive", tol=1e-11, max_steps=2)
    assert [step.columns for step in naive.path] == [step.columns for step in found.path[:2]]
    split = glru.stepwise(problem, criterion=criterion, forced=True, cv=LeaveOneOut(), max_steps=2)
    assert [step.columns for step in split.path] == [step.columns for step in found.path[:2]]


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_units_of_columns_and_objectives_do_not_matter(fit_intercept, direction):
    """Columns times a power of two, strengths times its square, or the whole objective: the same values, as narrow."""
    random = np.random.default_rng(1)
    X, queries = random.normal(size=(40, 4)), random.normal(size=(30, 4))
    y, targets = (np.where(A[:, 0] + random.normal(size=len(A)) > 0.0, 1.0, -1.0) for A in (X, queries))
    found = []
    for unit, size in ((0, 0), (30, 0), (300, 0), (-300, 0), (0, 600), (0, -600)):
        scale, weight = 2.0**unit, 2.0**size
        problem = glru.Problem(
            X * scale,
            y,
            penalty=glru.L2(0.5 * weight * scale * scale),
            fit_intercept=fit_intercept,
            scaling="sum",
            sample_weight=np.full(40, weight),
        )
        options = {"direction": direction, "criterion": "log_loss"}
        found.append(glru.stepwise(problem, X_val=queries * scale, y_val=targets, **options))
    for result in found:
        assert result.certified
        assert [step.columns for step in result.path] == [step.columns for step in found[0].path]
        np.testing.assert_allclose(result.criterion_bounds, found[0].criterion_bounds, rtol=1e-10)


@pytest.mark.parametrize("judge", ["loo", "cv", "validation", "aic"])
def test_sums_of_squares_that_overflow_decide_nothing(judge):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4))
    y = (X[:, 0] + 0.1 * X[:, 1] + rng.normal(size=40)) * 2.0**510
    rows = slice(0, 40) if judge != "validation" else slice(0, 20)
    problem = glru.Problem(X[rows], y[rows], loss=glru.Squared(), penalty=glru.L2(0.1))
    options = {"cv": {"cv": 3}, "validation": {"X_val": X, "y_val": y}}.get(judge, {})
    result = glru.stepwise(problem, criterion="aic" if judge == "aic" else "squared_error", **options)
    assert np.isfinite(result.start_value[0]) and result.start_value[1] == np.inf
    assert not result.certified


def test_forward_selection_by_leave_one_out_from_no_column_and_no_intercept():
    """The empty model has no unknowns, and every row is at the threshold."""
    random = np.random.default_rng(1)
    X, y = random.normal(size=(30, 3)), np.where(random.normal(size=30) > 0.0, 1, -1)
    problem = glru.Problem(X, y, penalty=glru.L2(0.01))
    options = {"cv": LeaveOneOut(), "direction": "forward", "criterion": "error"}
    found, naive = glru.stepwise(problem, **options), glru.stepwise(problem, method="naive", tol=1e-10, **options)
    np.testing.assert_array_equal(found.selected, naive.selected)
    assert found.path[0].columns == naive.path[0].columns == (1,)


@pytest.mark.parametrize("criterion", ["error", "log_loss"])
@pytest.mark.parametrize("strength", [1e-9, 1e-6])
@pytest.mark.parametrize(("n_rows", "n_columns"), [(25, 4), (12, 14)])
def test_leave_one_out_of_nearly_separable_rows_with_weights_over_eight_decades(n_rows, n_columns, strength, criterion):
    """No metric proves anything of many rows at once: rows are trained one at a time, as far as the contest asks."""
    random = np.random.default_rng(3)
    X = random.normal(size=(n_rows, n_columns))
    scores = X @ random.normal(size=n_columns)
    y = np.where(scores > 0.0, 1, -1)
    y[np.argsort(np.abs(scores))[:2]] *= -1
    weight = 10.0 ** random.uniform(-4.0, 4.0, n_rows)
    problem = glru.Problem(X, y, penalty=glru.L2(strength), fit_intercept=True, sample_weight=weight)
    found = glru.stepwise(problem, criterion=criterion, forced=True, max_steps=1)
    naive = glru.stepwise(problem, criterion=criterion, forced=True, max_steps=1, method="naive", tol=1e-12)
    assert found.certified and found.path[0].columns == naive.path[0].columns
    values = naive.path[0].lower
    slack = 1e-6 * np.abs(values)
    assert np.all(found.path[0].lower <= values + slack) and np.all(values <= found.path[0].upper + slack)


def test_every_task_has_a_criterion_by_default():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    tasks = {
        "error": (LogisticRegression(), X[:, 0] > 0.0),
        "squared_error": (Ridge(), X[:, 0]),
        "deviance": (PoissonRegressor(), rng.poisson(np.exp(X[:, 0]))),
    }
    for name, (model, y) in tasks.items():
        assert glru.stepwise(model, X, y, cv=3, max_steps=1).criterion == name
    assert glru.stepwise(RidgeClassifier(), X, X[:, 0] > 0.0, cv=3, max_steps=1).criterion == "error"


@pytest.mark.parametrize("validated", [False, True])
def test_columns_far_from_zero_are_bounded_as_narrowly_as_centred_ones(validated):
    """Numbers near the means are subtracted from columns far from zero, of validation rows too; a constant column stays."""
    random = np.random.default_rng(4)
    X = np.round(random.normal(size=(40, 4)), 3)
    y = X[:, 0] + 0.5 * X[:, 1] + random.normal(size=40)
    far = np.column_stack([X[:, :3] + [1e5, -3e6, 7e4], np.round(X[:, 3], 0), np.full(40, 5.0)])
    found = []
    for data in (np.column_stack([X[:, :3], far[:, 3:]]), far):
        problem = glru.Problem(data[:25], y[:25], glru.Squared(), glru.L2(0.01), fit_intercept=True)
        rows = (
            {"X_val": data[25:], "y_val": y[25:], "criterion": "squared_error"} if validated else {"criterion": "aic"}
        )
        found.append(glru.stepwise(problem, **rows))
        assert found[-1].certified
        naive = glru.stepwise(problem, method="naive", tol=1e-12, **rows)
        assert [step.columns for step in naive.path] == [step.columns for step in found[-1].path]
    widths = [np.max(result.path[0].first_upper - result.path[0].first_lower) for result in found]
    assert widths[1] < 1e3 * widths[0]


def test_leave_one_out_paths_equal_brute_force_on_hostile_rows():
    """Heavy tails, unscaled columns, duplicates, both scalings and directions, more columns than rows: the same steps as training every model."""
    for seed, (n_rows, n_columns) in enumerate([(40, 5), (25, 8), (16, 20)]):
        random = np.random.default_rng(seed)
        X = random.standard_t(2.0, size=(n_rows, n_columns)) * 10.0 ** random.uniform(-2.0, 2.0, n_columns)
        X[:, 1] = X[:, 0]
        y = np.where(X[:, 2] / X[:, 2].std() + random.normal(size=n_rows) > 0.0, 1, -1)
        y[:4] = [1, -1, 1, -1]
        for scaling, direction in (("sum", "backward"), ("mean", "forward")):
            problem = glru.Problem(X, y, penalty=glru.L2(0.1), fit_intercept=seed != 1, scaling=scaling)
            for criterion in ("error", "log_loss"):
                options = {"criterion": criterion, "direction": direction, "forced": True, "max_steps": 2}
                found = glru.stepwise(problem, **options)
                naive = glru.stepwise(problem, method="naive", tol=1e-11, **options)
                assert [step.columns for step in naive.path] == [step.columns for step in found.path]
                assert found.certified


@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Squared()], ids=str)
def test_values_after_every_removal_lie_within_their_first_bounds(loss):
    """Rows of huge margins, outliers and weak penalties, judged by sums of losses."""
    criterion = "squared_error" if isinstance(loss, glru.Squared) else "log_loss"
    for seed in range(12):
        random = np.random.default_rng(seed)
        X = random.standard_normal((60, 6)) if seed % 3 else random.standard_cauchy((60, 6))
        X[: seed % 4] *= 1e3
        y = X[:, 0] + 0.5 * random.standard_normal(60)
        y = y if criterion == "squared_error" else np.where(y > np.median(y), 1.0, -1.0)
        # Columns in a small unit: what is tried first for few columns leaves too much open.
        problem = glru.Problem(1e4 * X[:50], y[:50], loss, glru.L2(10.0 ** -(seed % 5)), fit_intercept=bool(seed % 2))
        Q, answers = 1e4 * X[50:], y[50:]
        (step,) = glru.stepwise(problem, X_val=Q, y_val=answers, criterion=criterion, max_steps=1).path
        for j in range(6):
            model = carefully(glru.RemoveColumns([j]).apply(problem))
            scores = np.delete(Q, j, axis=1) @ model.coef + model.intercept
            terms = (
                np.square(scores - answers) if criterion == "squared_error" else np.logaddexp(0.0, -answers * scores)
            )
            slack = 1e-6 * (1e-6 + terms.mean())
            for low, high in ((step.lower, step.upper), (step.first_lower, step.first_upper)):
                assert low[j] - slack <= terms.mean() <= high[j] + slack
