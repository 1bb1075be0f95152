"""The carried certificate costs only the change, equals the one computed afresh, and is never below the exact gap."""

from decimal import Decimal

import numpy as np
import pytest
import scipy.sparse as sp

import glru
from tests.cases import LOSSES, PROBLEMS, dense, each, make, uneven
from tests.certificates import exact
from tests.certificates.test_after import KINDS, make_change
from tests.certificates.truth import trained
from tests.core import carry, carry_point, certify, correlation_range

STRONG = {
    "l2": glru.L2(0.05),
    "elastic-net": glru.ElasticNet(0.05, 0.02),
    "l2-columns": glru.L2(np.linspace(0.02, 0.3, 5)),
}


def carried(solution, change):
    """The fast certificate, which must not have formed the changed problem."""
    certificate = carry(solution, change)
    assert "problem" not in vars(certificate) and "point" not in vars(certificate)
    return certificate


@each(LOSSES, "loss")
@each(STRONG, "penalty")
@pytest.mark.parametrize("kind", KINDS)
def test_carried_equals_afresh(loss, penalty, kind):
    """Gap, correlations, column norms and reach, to 12 digits; dense and sparse, both scalings, weighted or not."""
    for case in range(4):
        scaling, density = ("mean", "sum")[case % 2], (1.0, 0.6)[case // 2]
        weight = uneven(30) + 0.5 if case in (1, 2) else np.ones(30)
        problem = make(loss, penalty, 30, 5, seed=case, scaling=scaling, density=density, sample_weight=weight)
        solution = trained(problem, (1e-10, 1e-2)[case % 2])
        change = make_change(kind, problem, 2, case)
        fast = carried(solution, change)
        slow = certify(change.apply(problem), fast.point)
        # The terms are squares of differences: relative to what cancels in them, a gap is known to half as many digits.
        size = solution.primal_value + float((slow.correlations**2 / problem.penalty.strong_convexity).sum())
        assert fast.gap == pytest.approx(slow.gap, rel=1e-12, abs=1e-12 * np.sqrt(slow.gap * size) + 1e-24 * size)
        np.testing.assert_array_equal(fast.coef, slow.coef)
        assert fast.problem.X.shape == slow.problem.X.shape
        np.testing.assert_allclose(fast.correlations, slow.correlations, rtol=0.0, atol=1e-12)
        np.testing.assert_allclose(fast.column_norms, slow.column_norms, rtol=1e-12)
        np.testing.assert_allclose(fast.correlation_range, slow.correlation_range, rtol=1e-12, atol=1e-12)
        assert np.all(slow.columns.dead | ~fast.columns.dead)


@each(LOSSES, "loss")
@each(STRONG, "penalty")
@pytest.mark.parametrize("kind", KINDS)
def test_carried_is_on_the_safe_side(loss, penalty, kind):
    """Against 80-digit arithmetic: the gap is an upper bound, correlations are within their errors, norms are not short."""
    for case in range(4):
        scaling = ("mean", "sum")[case % 2]
        weight = 10.0 ** np.random.default_rng(case).uniform(-2.0, 2.0, 12)
        problem = make(loss, penalty, 12, 5, seed=case, scaling=scaling, sample_weight=weight)
        solution = trained(problem, (1e-13, 1e-2)[case // 2])
        assert_safe(solution, make_change(kind, problem, 2, case))


@each(LOSSES, "loss")
def test_carried_is_safe_where_nothing_changes(loss):
    """The gap of a converged solution is nothing but rounding, which must not be lost."""
    for case in range(6):
        problem = make(loss, glru.L2((1e-6, 1e-2, 1e2)[case % 3]), 12, 4, seed=case, scaling=("mean", "sum")[case // 3])
        solution = trained(problem, 1e-15)
        rows, values = [1, 4], problem.X[[1, 4]]
        for change in (
            glru.RemoveRows([]),
            glru.EditValues(rows, range(4), values),
            glru.Relabel(rows, problem.y[rows]),
            glru.Reweight(rows, problem.sample_weight[rows]),
            glru.RemoveColumns([]),
            glru.AddColumns(np.zeros((12, 1))),
        ):
            assert_safe(solution, change)
            assert_safe(solution, change, certify)


@each(LOSSES, "loss")
def test_carried_is_safe_when_a_huge_row_leaves(loss):
    """What is left is a small difference of large sums: correlations, norms, reach and gap keep their errors."""
    for case in range(4):
        X = dense(12, 4, case)
        X[3] *= 1e7
        y = np.linspace(-1.0, 1.0, 12) if loss.task == "regression" else np.where(np.arange(12) % 2 == 0, 1.0, -1.0)
        problem = glru.Problem(X, y, loss, glru.L2(0.1), scaling=("mean", "sum")[case % 2])
        start = glru.Point(dense(1, 4, case)[0])
        solution = glru.solve(problem, start=start, until=lambda state: True)
        for change in (glru.RemoveRows([3]), glru.EditValues([3], range(4), 0.5), glru.Reweight([3], 1e-9)):
            assert_safe(solution, change)


def assert_safe(solution, change, afresh=None):
    certificate = carried(solution, change)
    problem = change.apply(solution.problem)
    if afresh is not None:
        certificate = afresh(problem, certificate.point)
    dual = certificate.point.dual
    assert Decimal(certificate.gap) >= exact.gap(problem, certificate.coef, dual)
    precise = exact.in_decimals(problem)
    correlations, squares = exact.sums(precise, exact.decimals(dual))
    assert not exact.outside(
        correlations,
        np.nextafter(certificate.correlations - certificate.correlation_errors, -np.inf),
        np.nextafter(certificate.correlations + certificate.correlation_errors, np.inf),
    )
    assert not exact.outside(squares, np.zeros(len(squares)), np.square(certificate.column_norms) * (1.0 + 1e-15))
    ends = exact.reach(precise)
    if ends is None:
        assert np.all(np.isinf(certificate.correlation_range))
        return
    lower, upper = certificate.correlation_range
    assert not exact.outside(ends[0], lower, np.full(lower.size, np.inf))
    assert not exact.outside(ends[1], np.full(upper.size, -np.inf), upper)


@each(
    {name: PROBLEMS[name] for name in ("tall", "wide", "sparse", "sparse-wide", "weighted", "intercept")},
    "make_problem",
)
@each(LOSSES, "loss")
def test_every_certificate_is_on_the_safe_side(make_problem, loss):
    """Afresh, at carried points of composite changes, also with an intercept that had to be repaired."""
    problem = make_problem(loss, glru.ElasticNet(0.05, 0.02))
    change = glru.RemoveRows([2, 5]) + glru.AddRows(dense(1, problem.n_columns, 4), [1.0])
    changed = change.apply(problem)
    point = carry_point(problem, trained(problem, 1e-6).point, change)
    certificate = certify(changed, point)
    gap = exact.gap(changed, point.coef, point.dual, point.intercept)
    # With an intercept the certificate speaks of a feasible point next to this one, whose gap differs in the last digits.
    slack = Decimal("1e-12") * abs(gap) + Decimal("1e-26") if problem.fit_intercept else Decimal(0)
    assert gap - slack <= Decimal(certificate.gap) <= gap * (1 + Decimal("1e-9")) + Decimal("1e-24")


def test_carried_point_of_every_row_and_column():
    """Kept ones keep their variables, new rows get the loss derivative, new columns follow from their correlation."""
    problem = make(glru.Logistic(), glru.L2(0.05), 12, 4)
    solution = trained(problem, 1e-10)
    rows = dense(2, 4, 5)
    change = glru.RemoveRows([0]) + glru.AddRows(rows, [1.0, -1.0]) + glru.RemoveColumns([1])
    point = carry_point(problem, solution.point, change)
    np.testing.assert_array_equal(point.coef, solution.coef[[0, 2, 3]])
    np.testing.assert_array_equal(point.dual[:11], solution.dual[1:])
    expected = -glru.Logistic().gradient([1.0, -1.0], rows @ solution.coef)
    np.testing.assert_allclose(point.dual[11:], expected, rtol=1e-14)
    Z = dense(12, 1, 6)
    more = carry_point(problem, solution.point, glru.AddColumns(Z))
    assert more.coef[4] == pytest.approx(float(Z[:, 0] @ (problem.weights * solution.dual)) / 0.05, rel=1e-13)


@pytest.mark.parametrize("fit_intercept", [False, True], ids=["", "intercept"])
def test_changed_rows_get_new_dual_variables(fit_intercept):
    """Relabelled and edited rows take the loss derivative at their new score, the others keep what they had."""
    problem = make(glru.Squared(), glru.L2(0.05), 12, 4, fit_intercept=fit_intercept)
    solution = trained(problem, 1e-10)
    for change in (glru.Relabel([2, 5], [9.0, -9.0]), glru.EditValues([5, 2], [0, 3], 4.0)):
        changed = change.apply(problem)
        point = carry_point(problem, solution.point, change)
        scores = changed.X @ solution.coef + solution.intercept
        expected = np.where(np.isin(np.arange(12), [2, 5]), changed.y - scores, solution.dual)
        # An intercept shifts all of them until they balance.
        expected = expected - (expected.mean() if fit_intercept else 0.0)
        np.testing.assert_allclose(point.dual, expected, rtol=1e-12, atol=1e-12)


@each(LOSSES, "loss")
def test_a_carried_intercept_is_repaired(loss):
    """The constraint of the intercept holds again after rows of one class left, and the gap stays finite."""
    problem = make(loss, glru.L2(0.05), 30, 3, fit_intercept=True)
    solution = trained(problem, 1e-8)
    heavy = np.flatnonzero(problem.y > 0.0)[:4]
    for change in (
        glru.RemoveRows(heavy),
        glru.Reweight(heavy, 5.0),
        glru.Relabel(heavy[:1], -np.abs(problem.y[heavy[:1]])),
    ):
        if loss.task == "classification" and isinstance(change, glru.Relabel):
            change = glru.Relabel(heavy[:1], [-1.0])
        certificate = carry(solution, change)
        terms = certificate.problem.weights * certificate.point.dual
        assert abs(terms.sum()) <= 1e-14 * np.abs(terms).sum()
        assert np.isfinite(certificate.gap)


def test_reach_is_remark_2():
    """The range of a correlation over the whole domain of the dual, for a loss with a bounded one; both ends attained."""
    problem = make(glru.Logistic(), glru.L2(0.1), 20, 3)
    lower, upper = correlation_range(problem.matrix, problem.loss, problem.y, problem.weights)
    pulls = problem.weights[:, None] * problem.X * problem.y[:, None]
    np.testing.assert_allclose(lower, np.minimum(pulls, 0.0).sum(axis=0), rtol=1e-13)
    np.testing.assert_allclose(upper, np.maximum(pulls, 0.0).sum(axis=0), rtol=1e-13)
    lower, upper = correlation_range(problem.matrix, glru.Squared(), problem.y, problem.weights)
    assert np.all(np.isneginf(lower)) and np.all(np.isposinf(upper))


def test_carry_works_with_zero_rows_and_explicit_zeros():
    """Stored zeros are no values: the same gap as without them."""
    X = sp.csr_array(dense(10, 3) * (dense(10, 3, 1) > 0.0))
    zeros = X.copy()
    zeros.data[::3] = 0.0
    clean = zeros.copy()
    clean.eliminate_zeros()
    y = np.where(np.arange(10) % 2 == 0, 1.0, -1.0)
    gaps = []
    for data in (zeros, clean, zeros.toarray()):
        solution = trained(glru.Problem(data, y, penalty=glru.L2(0.1)), 1e-10)
        gaps.append([carry(solution, c).gap for c in (glru.RemoveRows([1]), glru.RemoveColumns([0]))])
    np.testing.assert_allclose(gaps[0], gaps[1], rtol=1e-10)
    np.testing.assert_allclose(gaps[0], gaps[2], rtol=1e-10)
