"""What features are worth: intervals hold what trainings without each feature give, for every judge and criterion."""

from decimal import Decimal

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.svm import LinearSVC

import glru
from tests.cases import dense, targets
from tests.decisions.exact_paths import exact_information, held_out_scores, judged_by, term


def exact_value(problem, chosen, criterion, X_val=None, y_val=None, splits=None):
    """The criterion of a model of some columns, to 40 digits."""
    if criterion in ("aic", "bic"):
        return exact_information(problem, chosen, criterion)
    total, n_rows = Decimal(0), 0
    for part, queries, y in judged_by(problem, X_val, y_val, splits):
        scores = held_out_scores(part, chosen, queries)
        total += sum(term(criterion, t, z) for t, z in zip(y, scores, strict=True))
        n_rows += len(y)
    return total if criterion == "error" else total / n_rows


def thirds(n_rows):
    place = np.arange(n_rows) % 3
    return [(np.flatnonzero(place != k), np.flatnonzero(place == k)) for k in range(3)]


@pytest.mark.parametrize("judge", ["rows", "folds"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Squared(), glru.SquaredHinge()], ids=str)
def test_increases_are_those_of_exact_trainings(loss, fit_intercept, judge):
    X = dense(36, 5, 4)
    X[:, 4] = X[:, 0]
    y = targets(X, loss, 4)
    problem = glru.Problem(X[:24], y[:24], loss, glru.L2(0.05), fit_intercept=fit_intercept)
    rows = {"X_val": X[24:], "y_val": y[24:]} if judge == "rows" else {"splits": thirds(24)}
    options = rows if judge == "rows" else {"cv": thirds(24)}
    criteria = ("squared_error",) if loss.task == "regression" else ("error", "log_loss")
    for criterion in criteria[: 2 if loss.probabilities else 1]:
        result = glru.feature_importance(problem, criterion=criterion, **options)
        present = exact_value(problem, list(range(5)), criterion, **rows)
        for j in range(5):
            increase = exact_value(problem, [k for k in range(5) if k != j], criterion, **rows) - present
            assert Decimal(float(result.lower[j])) <= increase <= Decimal(float(result.upper[j]))
        assert Decimal(result.value[0]) <= present <= Decimal(result.value[1])
        assert np.all(result.upper - result.lower <= (0.0 if criterion == "error" else 1e-5 * result.value[1]))
        assert result.columns == tuple((j,) for j in range(5)) and not result.interrupted
        best, worst = result.rank_bounds
        assert np.all(best <= worst) and np.all(best[result.order] <= np.arange(1, 6)) and np.all(worst >= 1)


@pytest.mark.parametrize("criterion", ["aic", "bic"])
def test_information(criterion):
    X = dense(30, 4, 1)
    problem = glru.Problem(X, targets(X, glru.Logistic(), 1), penalty=glru.L2(0.02), fit_intercept=True)
    result = glru.feature_importance(problem, criterion=criterion)
    present = exact_value(problem, [0, 1, 2, 3], criterion)
    for j in range(4):
        increase = exact_value(problem, [k for k in range(4) if k != j], criterion) - present
        assert Decimal(float(result.lower[j])) <= increase <= Decimal(float(result.upper[j]))
        assert result.upper[j] - result.lower[j] < 1e-2


def test_leave_one_out_judges_without_rows():
    X = dense(25, 3, 2)
    problem = glru.Problem(X, targets(X, glru.Logistic(), 2), penalty=glru.L2(0.1))
    result = glru.feature_importance(problem, criterion="error")
    whole = glru.loocv(problem).n_errors
    for j in range(3):
        less = glru.loocv(problem.select_columns(np.delete(np.arange(3), j))).n_errors
        assert result.lower[j] == result.upper[j] == less - whole


def test_groups_names_frames_and_what_stays():
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(dense(40, 4, 3), columns=list("abcd"))
    y = targets(X.to_numpy(), glru.Logistic(), 3)
    result = glru.feature_importance(LogisticRegression(), X, y, cv=4, groups=[["a", "c"]], keep=["d"])
    assert result.columns == ((0, 2), (1,)) and result.features == (("a", "c"), "b")
    frame = result.to_frame()
    assert list(frame["rank_best"]) == [1, 2] and list(frame["feature"]) == [
        "a, c" if isinstance(result.features[k], tuple) else result.features[k] for k in result.order
    ]
    assert "a, c" in repr(result)
    with pytest.raises(ValueError, match="no feature to leave out"):
        glru.feature_importance(LogisticRegression(), X, y, cv=4, keep=list("abcd"))


@pytest.mark.parametrize(
    "model", [LogisticRegression(), LinearSVC(), RidgeClassifier(), Ridge(), LinearRegression()], ids=str
)
def test_usual_criteria_of_estimators(model):
    X = dense(40, 3, 0)
    loss = glru.Squared() if isinstance(model, Ridge | LinearRegression) else glru.Logistic()
    result = glru.feature_importance(model, X, targets(X, loss, 0), cv=4)
    expected = "squared_error" if loss.task == "regression" else "error"
    assert result.criterion == ("log_loss" if isinstance(model, LogisticRegression) else expected)
    assert result.columns == ((0,), (1,), (2,)) and result.features == (0, 1, 2)


def test_time_is_kept():
    X = dense(60, 4, 0)
    problem = glru.Problem(X, targets(X, glru.Logistic(), 0), penalty=glru.L2(0.1))
    result = glru.feature_importance(problem, X_val=X, y_val=problem.y, max_seconds=1e-9)
    assert result.interrupted and np.all(result.lower == -np.inf) and np.all(result.upper == np.inf)
    assert np.all(result.increase == 0.0) and "interrupted" in repr(result)


def test_picture():
    pytest.importorskip("matplotlib").use("Agg")
    X = dense(30, 3, 0)
    problem = glru.Problem(X, targets(X, glru.Logistic(), 0), penalty=glru.L2(0.1))
    display = glru.feature_importance(problem, X_val=X, y_val=problem.y).plot()
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == list(display.names)
    assert "log loss" in display.ax_.get_xlabel()
