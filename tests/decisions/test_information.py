"""AIC and BIC: the paths of statsmodels and of trainings in 80 digits, and degrees of freedom with a penalty."""

from decimal import Decimal

import numpy as np
import pytest

import glru
from tests.certificates.exact import precise
from tests.core import (
    Contest,
    Freedom,
    Model,
    Move,
    MoveList,
    Pending,
    ValidationJudge,
    ValidationRows,
    _budget,
    bounds_nearby,
    count_freedom,
    find_criterion,
)
from tests.decisions.exact_paths import PI, degrees_of_freedom, exact_information, exact_path

NOTHING = glru.L2(np.zeros(5))


CLASSICAL = {
    "longley": glru.Squared(),
    "spector": glru.Logistic(),
    "fair": glru.Logistic(),
    "cpunish": glru.Poisson(),
    "randhie": glru.Poisson(),
}
"""Data sets of statsmodels, and the losses of their models."""


def classical(name):
    """A data set of statsmodels: columns and targets."""
    sm = pytest.importorskip("statsmodels.api")
    data = getattr(sm.datasets, name).load_pandas()
    y = data.endog.to_numpy() if name != "fair" else (data.endog > 0).to_numpy().astype(float)
    # Of the 20,190 visits to doctors every 20th.
    return (data.exog, y) if name != "randhie" else (data.exog[::20].reset_index(drop=True), y[::20].astype(float))


def reference_value(X, y, chosen, loss, criterion):
    sm = pytest.importorskip("statsmodels.api")
    design = np.column_stack([np.ones(len(y)), X[:, chosen]])
    if loss == glru.Squared():
        fit = sm.OLS(y, design).fit()
        return fit.aic if criterion == "aic" else fit.bic
    family = sm.families.Binomial() if loss == glru.Logistic() else sm.families.Poisson()
    fit = sm.GLM(y, design, family=family).fit(tol=1e-12, maxiter=100)
    return fit.aic if criterion == "aic" else fit.bic_llf


def reference_path(X, y, loss, criterion, direction):
    """R's step(), every candidate fitted by statsmodels."""
    chosen, path = set() if direction == "forward" else set(range(X.shape[1])), []
    now = reference_value(X, y, sorted(chosen), loss, criterion)
    while True:
        moves = [
            j
            for j in range(X.shape[1])
            if (direction != "forward" and len(chosen) > 1 if j in chosen else direction != "backward")
        ]
        if not moves:
            return path, now
        values = [reference_value(X, y, sorted(chosen ^ {j}), loss, criterion) for j in moves]
        best = int(np.argmin(values))
        if values[best] >= now:
            return path, now
        path.append((moves[best],))
        chosen ^= {moves[best]}
        now = values[best]


@pytest.mark.parametrize("direction", ["backward", "forward", "both"])
@pytest.mark.parametrize("criterion", ["aic", "bic"])
@pytest.mark.parametrize("name", CLASSICAL)
def test_paths_of_statsmodels(name, criterion, direction):
    (frame, y), loss = classical(name), CLASSICAL[name]
    X = frame.to_numpy()
    penalty = glru.L2(np.zeros(X.shape[1]))
    problem = glru.Problem(frame, y, loss=loss, penalty=penalty, fit_intercept=True)
    result = glru.stepwise(problem, criterion=criterion, direction=direction)
    expected, value = reference_path(X, y, loss, criterion, direction)
    assert [step.columns for step in result.path if step.action != "stop"] == expected
    assert result.certified and result.n_trainings == 0
    lower, upper = result.criterion_bounds
    assert lower - 1e-6 <= value <= upper + 1e-6 and upper - lower < 1e-3
    assert result.names == tuple(frame.columns[result.selected])


def hostile(kind, loss, seed=0):
    """Twenty rows and five columns that make trouble."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, 5))
    if kind == "duplicates":
        X[:, 3], X[:, 4] = X[:, 0], -2.0 * X[:, 1]
    if kind == "units":
        X *= 10.0 ** np.arange(-3, 2)
    if kind == "heavy":
        X = rng.standard_t(1.5, size=X.shape)
    if kind == "rare":
        X = (rng.random(X.shape) < 0.1).astype(float)
    if kind == "near-separable":
        X[:, 0] *= 6.0
    scores = X[:, 0] - 0.5 * X[:, 1] + 0.2
    noise = rng.logistic(size=20)
    y = np.sign(scores + noise) if loss.task == "classification" else scores + noise
    y[:2] = [-1.0, 1.0]
    return X, y


KINDS = ("plain", "duplicates", "units", "heavy", "rare", "near-separable")


@pytest.mark.parametrize("lam", [0.0, 0.01])
@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Squared()], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_paths_are_those_of_exact_trainings(kind, loss, lam):
    """Values of every candidate within their intervals, and the path of 80-digit trainings."""
    X, y = hostile(kind, loss)
    for criterion, direction, fit_intercept in (
        ("aic", "backward", True),
        ("bic", "both", False),
        ("aic", "forward", True),
    ):
        if lam == 0.0 and kind not in ("plain", "units"):
            continue
        penalty = glru.L2(lam) if lam else NOTHING
        weight = np.where(np.arange(20) % 7 == 0, 2.0, 1.0)
        problem = glru.Problem(X, y, loss, penalty, fit_intercept=fit_intercept, sample_weight=weight)
        expected = exact_path(problem, criterion=criterion, direction=direction)
        result = glru.stepwise(problem, criterion=criterion, direction=direction)
        assert [step.columns for step in result.path] == expected
        assert result.certified
        chosen = set() if direction == "forward" else set(range(5))
        for step in result.path:
            for k, (action, columns) in enumerate(step.candidates):
                after = sorted(chosen | set(columns) if action == "add" else chosen - set(columns))
                value = exact_information(problem, after, criterion)
                assert Decimal(float(step.lower[k])) <= value <= Decimal(float(step.upper[k]))
                assert Decimal(float(step.first_lower[k])) <= value <= Decimal(float(step.first_upper[k]))
            chosen ^= set(step.columns)


@pytest.mark.parametrize("size", [1.0, 2.0**600, 2.0**-600])
@pytest.mark.parametrize("lam", [1e-8, 1e-3, 1.0, 1e8])
@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Squared()], ids=str)
@pytest.mark.parametrize("shape", [(30, 5), (6, 9)])
def test_degrees_of_freedom(shape, loss, lam, size):
    """Intervals hold the exact trace, near by as well, whatever the size of the objective."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=shape) * 10.0 ** rng.integers(-2, 3, size=shape[1])
    y = np.sign(X[:, 0] + rng.normal(size=shape[0]))
    y[:2] = [-1.0, 1.0]
    weight = np.full(shape[0], size)
    for free in (0, 2):
        strengths = np.full(shape[1], lam * size)
        strengths[:free] = 0.0
        for fit_intercept in (False, True):
            problem = glru.Problem(
                X, y, loss, glru.L2(strengths), fit_intercept=fit_intercept, scaling="sum", sample_weight=weight
            )
            scores = rng.normal(size=shape[0])
            known = count_freedom(problem, scores)
            exact = degrees_of_freedom(problem, scores)
            assert Decimal(known.lower) <= exact <= Decimal(known.upper)
            assert known.upper - known.lower < 1e-6
            counts = free + fit_intercept, shape[1] + fit_intercept
            for move in (1e-3, 0.5):
                others = scores + move * rng.uniform(-1.0, 1.0, size=shape[0])
                low, high = bounds_nearby(problem, known, counts, (0, 0), scores - move, scores + move)
                assert Decimal(float(low)) <= degrees_of_freedom(problem, others) <= Decimal(float(high))
            for j in range(free, shape[1]):
                rest = np.delete(np.arange(shape[1]), j)
                less = problem.select_columns(rest)
                low, high = bounds_nearby(problem, known, (counts[0], counts[1] - 1), (-1, -1), scores, scores)
                exact = degrees_of_freedom(less, scores)
                assert Decimal(float(low)) <= exact <= Decimal(float(high))
                part = count_freedom(less, scores)
                low, high = bounds_nearby(problem, part, counts, (1, 1), scores, scores)
                assert Decimal(float(low)) <= Decimal(known.upper) and Decimal(known.lower) <= Decimal(float(high))


@pytest.mark.parametrize("distance", [2.0**-14, 2.0**-20, 2.0**-26])
@pytest.mark.parametrize("seed", range(4))
def test_degrees_of_freedom_beside_free_columns_that_are_alike(seed, distance):
    """A penalised column of which nearly all is a difference of two free columns: rounding of these is multiplied by their distance."""
    rng = np.random.default_rng(seed)
    moved = 1.0 + distance * rng.normal(size=15)
    X = np.column_stack([moved, 10.0 ** rng.uniform(3, 6) * ((moved - 1.0) / distance) + rng.normal(size=15)])
    problem = glru.Problem(X, rng.normal(size=15), glru.Squared(), glru.L2([0.0, 1.0]), True, "sum")
    known, exact = count_freedom(problem, np.zeros(15)), degrees_of_freedom(problem, np.zeros(15))
    assert Decimal(known.lower) <= exact <= Decimal(known.upper)


def test_dof_is_a_count_without_a_penalty():
    problem = glru.Problem(np.eye(5) + 0.1, [0, 1, 0, 1, 0], penalty=NOTHING, fit_intercept=True)
    known = count_freedom(problem, np.zeros(5))
    assert isinstance(known, Freedom) and known.lower == known.upper == 6.0


@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Squared()], ids=str)
def test_rounding_of_the_likelihood(loss):
    """The criterion of sums and degrees of freedom that are known exactly, against 80 digits."""
    rng = np.random.default_rng(0)
    y = np.where(np.arange(7) % 2 == 0, -1.0, 1.0)
    for _ in range(200):
        weight = 10.0 ** rng.uniform(0.0, 3.0) * rng.uniform(0.5, 1.0, size=7)
        problem = glru.Problem(np.eye(7), y, loss, sample_weight=weight)
        for name in ("aic", "bic"):
            criterion = find_criterion(name, problem)
            value, dof = 10.0 ** rng.uniform(-9.0, 3.0), rng.uniform(0.0, 7.0)
            low, high = criterion.complete(value, value, (dof, dof))
            assert Decimal(float(low)) <= exact_completion(criterion, value, dof) <= Decimal(float(high))
            assert high - low <= 1e-12 * (abs(low) + abs(high) + criterion.total)


@precise
def exact_completion(criterion, value, dof):
    total = Decimal(criterion.total)
    price = Decimal(2) if criterion.name == "aic" else total.ln()
    if criterion.task == "classification":
        return 2 * Decimal(value) + price * Decimal(dof)
    return total * ((2 * PI * Decimal(value) / total).ln() + 1) + price * Decimal(dof)


def test_what_is_refused():
    X, y = hostile("plain", glru.Logistic())
    problem = glru.Problem(X, y)
    with pytest.raises(ValueError, match="give neither X_val nor cv"):
        glru.stepwise(problem, criterion="aic", cv=3)
    with pytest.raises(ValueError, match="give neither X_val nor cv"):
        glru.stepwise(problem, X_val=X, y_val=y, criterion="bic")
    with pytest.raises(ValueError, match="needs a likelihood"):
        glru.stepwise(glru.Problem(X, y, loss=glru.SquaredHinge()), criterion="aic")
    with pytest.raises(ValueError, match="penalty of squares or none"):
        glru.stepwise(glru.Problem(X, y, penalty=glru.L1(0.1)), criterion="aic")
    with pytest.raises(ValueError, match="at least 1"):
        glru.stepwise(glru.Problem(X, y, sample_weight=np.full(20, 1e-3)), criterion="bic")


def test_moves_that_come_and_go_are_known_together_no_better_than_each():
    """What serves some of the moves, whichever they are, holds the degrees of freedom after every one of them."""
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 4))
    problem = glru.Problem(X, np.where(X[:, 0] + random.normal(size=60) > 0.0, 1.0, -1.0), penalty=glru.L2(0.05))
    criterion = find_criterion("aic", problem)
    judge = ValidationJudge(
        Model(problem, np.arange(3), 1e-9), ValidationRows(problem, problem.matrix, problem.y, criterion)
    )
    moves = MoveList.of([Move((0,), add=False), Move((3,), add=True)])
    pending = Pending(judge, moves, Contest(np.full(2, criterion.least), np.full(2, np.inf), 0.0), _budget.UNLIMITED)
    scores = np.repeat(judge.model.solution.scores[:, None], 2, axis=1)
    alone = pending._complete(np.arange(2), (np.zeros(2), np.zeros(2)), scores, scores)
    together = pending._complete(np.arange(2), (np.zeros(1), np.zeros(1)), scores[:, :1], scores[:, :1])
    assert together[0] <= alone[0].min() and alone[1].max() <= together[1]
