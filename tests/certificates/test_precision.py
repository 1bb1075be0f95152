"""Bounds hold to the last digit where float64 is weakest: extreme strengths and scales, separable data, hardly any data.

The references have 40 digits and no tolerance is granted: each bound has to include its own rounding.
"""

import numpy as np
import pytest
import scipy.sparse as sp

import glru
from tests.cases import dense, each, targets
from tests.certificates.truth import answers, assert_holds, retrained, trained

SMOOTH = {"logistic": glru.Logistic(), "squared": glru.Squared(), "squared-hinge": glru.SquaredHinge()}


def separable(n, d):
    """Data with a wide gap between the classes."""
    X = dense(n, d)
    X[:, 0] = np.where(np.arange(n) % 2 == 0, 5.0, -5.0) + 0.1 * X[:, 0]
    return X


def repeated(n, d):
    """Three equal rows, two equal columns."""
    X = dense(n, d)
    X[1] = X[2] = X[0]
    X[:, -1] = X[:, 0]
    return X


def with_constant(n, d):
    """A column of ones and a column of zeros."""
    X = dense(n, d)
    X[:, 0], X[:, 1] = 1.0, 0.0
    return X


DATA = {
    "plain": lambda: dense(10, 3),
    "sparse": lambda: sp.csr_array(dense(10, 3) * (np.arange(30).reshape(10, 3) % 3 > 0)),
    "separable": lambda: separable(10, 3),
    "repeated": lambda: repeated(10, 4),
    "constant": lambda: with_constant(10, 4),
    "huge": lambda: dense(10, 3) * [1e8, 1.0, 1e4],
    "tiny": lambda: dense(10, 3) * [1e-8, 1.0, 1e-4],
    "huge-and-tiny": lambda: dense(10, 3) * [1e8, 1e-8, 1.0],
    "off-centre": lambda: dense(10, 3) + 1e4,
    "two-rows": lambda: dense(2, 3),
    "one-column": lambda: dense(10, 1),
    "two-rows-one-column": lambda: dense(2, 1),
    "wide": lambda: dense(4, 9),
}


def labels(X, loss):
    """Targets that have both classes, whatever the data."""
    if loss.task == "regression":
        return targets(np.asarray(X.toarray() if sp.issparse(X) else X) / np.abs(X).max(), loss)
    return np.where(np.arange(X.shape[0]) % 2 == 0, 1.0, -1.0)


def changes(X, loss):
    """One change of each kind that leaves two rows or more."""
    n, d = X.shape
    row = X[[0]].toarray() if sp.issparse(X) else X[:1]
    new = [0.7] if loss.task == "regression" else [-1.0]
    found = [
        glru.AddRows(1.5 * row[:, ::-1], new),
        glru.AddColumns(dense(n, 1, 3), None),
        glru.EditValues([0], [d - 1], 0.25 * row[:, -1:]),
        glru.Relabel([0], new),
        glru.Reweight([n - 1], 2.5),
    ]
    found += [glru.RemoveRows([n - 1])] if n > 2 else []
    return found + ([glru.RemoveColumns([d - 1]), glru.AddRows(row, new) + glru.RemoveColumns([0])] if d > 1 else [])


def assert_all_hold(problem, list_of_changes, tol=1e-12):
    """Every answer to every change; how many changes had a unique retrained model."""
    solution, known = trained(problem, tol), 0
    for change in list_of_changes:
        changed = change.apply(problem)
        truth = retrained(changed)
        if truth is None:
            continue
        known += 1
        queries = dense(3, changed.n_columns, 7)
        for out in [*answers(solution, change)][-1::-3]:
            assert_holds(out, changed, truth, queries)
    return known


@each(SMOOTH, "loss")
@each(DATA, "make_data")
@pytest.mark.parametrize("fit_intercept", [False, True], ids=["", "intercept"])
def test_strengths_from_tiny_to_huge(loss, make_data, fit_intercept):
    """lam from 1e-8 to 1e8 on every kind of data, one kind of change after the other."""
    X = make_data()
    y = labels(X, loss)
    every = changes(X, loss)
    known = 0
    for k, lam in enumerate((1e-8, 1e-4, 1.0, 1e8)):
        problem = glru.Problem(X, y, loss, glru.L2(lam), fit_intercept=fit_intercept, scaling=("mean", "sum")[k % 2])
        known += assert_all_hold(problem, every[k % 2 :: 2], (1e-12, 1e-3)[k // 2 % 2])
    # Two rows of a single class with an intercept have no model; everything else has one.
    assert known >= (1 if X.shape[0] == 2 else 10)


@each(SMOOTH, "loss")
@pytest.mark.parametrize("fit_intercept", [False, True], ids=["", "intercept"])
def test_unpenalised_columns(loss, fit_intercept):
    """Some columns, or all of them, without a penalty: no strong convexity there."""
    X = dense(14, 3)
    y = targets(X, loss, 3)
    if loss.task == "classification":
        y[::4] *= -1.0
    for lam in ([0.5, 0.0, 0.0], [0.0, 1e-6, 1e3], [0.0, 0.0, 0.0]):
        problem = glru.Problem(X, y, loss, glru.L2(lam), fit_intercept=fit_intercept)
        every = [c for c in changes(X, loss) if not isinstance(c, glru.AddColumns)]
        every += [glru.AddColumns(dense(14, 1, 3), glru.L2(0.1)), glru.AddColumns(dense(14, 1, 3), glru.L2([0.0]))]
        assert assert_all_hold(problem, every) >= 5


@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Squared()], ids=["logistic", "squared"])
@pytest.mark.parametrize("fit_intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_local_bound_without_a_penalty(loss, fit_intercept, layout):
    """lam = 0: the local bound is finite, tight, and holds; the others know nothing."""
    X = dense(40, 3)
    y = targets(X, loss)
    if loss.task == "classification":
        y[::5] *= -1.0
    problem = glru.Problem(layout(X), y, loss, glru.L2(np.zeros(3)), fit_intercept=fit_intercept)
    solution, change = trained(problem, 1e-12), glru.RemoveRows([3]) + glru.AddRows(X[[5]] + 0.1, y[[6]])
    changed = change.apply(problem)
    truth, queries = retrained(changed), dense(6, 3, 1)
    for candidate in ("carry", "newton"):
        out = glru.after(solution, change, candidate, "local")
        assert_holds(out, changed, truth, queries)
        lower, upper = out.score_bounds(queries)
        assert np.all(upper - lower < (10.0 if candidate == "carry" else 1e-3))
        assert out.radius == np.inf
    blind = glru.after(solution, change, "newton", "primal")
    assert np.all(np.isinf(blind.coef_bounds())) and np.all(np.isinf(blind.score_bounds(queries)))


@each(SMOOTH, "loss")
def test_a_bound_is_never_narrower_than_rounding(loss):
    """The interval around a large score is wider than the spacing of floats there, many digits before the radius is."""
    X = dense(30, 2) * [1e6, 1.0]
    problem = glru.Problem(X, labels(X, loss), loss, glru.L2(1e-3), scaling="sum")
    solution, change = trained(problem, 1e-13), glru.RemoveRows([])
    queries = dense(10, 2, 1) * [1e12, 1e9]
    for out in answers(solution, change):
        lower, upper = out.score_bounds(queries)
        assert np.all(upper - lower > 2.0 * np.spacing(np.abs(lower)))


@pytest.mark.parametrize("loss", [glru.SquaredHinge(), glru.SmoothedHinge(), glru.Hinge()])
def test_underflow_of_the_gap(loss):
    """The unpenalised columns separate the data, so the penalised coefficient is exactly 0 and no label is known."""
    X = np.array([[0.5, 0.0, 1.0], [0.0, 1.0, 0.0]])
    problem = glru.Problem(X, [-1, 1], loss, glru.L2([1.0, 0.0, 0.0]))
    solution = glru.solve(problem, start=glru.Point(np.array([1e-200, 3.0, -3.0])), until=lambda state: True)
    out = glru.after(solution, glru.RemoveRows([]), "carry", "primal")
    lower, upper = out.coef_bounds()
    assert lower[0] <= 0.0 <= upper[0]
    assert out.score_bounds([[1.0, 0.0, 0.0]]).signs.tolist() == [0]


@pytest.mark.parametrize("bound", ["primal", "dual", "auto"])
def test_underflow_of_norms(bound):
    """A column and a query of size 1e-170, whose squares are no float64."""
    X = np.array([[1.0, 1e-170], [2.0, -1e-170], [-1.0, 3e-170]])
    problem = glru.Problem(X, [1.0, 2.0, 5.0], glru.Squared(), glru.L2(1.0))
    change = glru.Relabel([0], [7.0])
    changed = change.apply(problem)
    out = glru.after(trained(problem, 1e-12), change, "carry", bound)
    assert_holds(out, changed, retrained(changed), np.array([[1e-170, 0.0], [1.0, 1.0]]))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Squared()], ids=["logistic", "squared"])
def test_overflow_proves_nothing(loss):
    """A row of size 1e160, whose squares overflow."""
    problem = glru.Problem([[1.0, 2.0], [3.0, -1.0], [2.0, 2.0]], [0, 1, 1], loss, glru.L2(1.0))
    change = glru.AddRows([[1e160, 2e160]], [1])
    for candidate in ("carry", "newton"):
        out = glru.after(trained(problem, 1e-12), change, candidate, "auto")
        assert out.gap == np.inf
        lower, upper = out.coef_bounds()
        assert np.all(lower < upper)


def test_rows_that_carried_almost_all_the_weight():
    """Removing a row of weight 1e7: the carried gap may not be short by the rounding of the weight that is left."""
    random = np.random.default_rng(0)
    for _ in range(20):
        weight = np.append(random.uniform(0.5, 2.0, 40), random.uniform(1e7, 1e9))
        y = np.append(random.normal(2e6, 1e6, 40), 0.0)
        problem = glru.Problem(np.full((41, 1), 1e-6), y, glru.Squared(), glru.L2(1.0), sample_weight=weight)
        change = glru.RemoveRows([40])
        changed = change.apply(problem)
        out = glru.after(trained(problem, 1e-13), change, "carry", "primal")
        assert_holds(out, changed, retrained(changed), np.ones((1, 1)))
