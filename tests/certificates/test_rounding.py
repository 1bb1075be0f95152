"""Every slack by itself: terms of the gap, corrections of the dual and metrics are never short of their exact values."""

import pickle
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
import scipy.sparse as sp

import glru
from tests.cases import LOSSES, dense, each, make, targets
from tests.certificates import exact
from tests.certificates.exact import decimals, precise
from tests.certificates.truth import trained
from tests.core import (
    LocalEllipsoid,
    PrimalBall,
    RowMetric,
    RowSide,
    as_matrix,
    carry,
    centers,
    certify,
    find_feasible_moves,
    linear_range,
    loss_terms,
    make_column_metric,
    penalty_terms,
    score_errors,
    weighted_norm,
    weighted_sum,
)


def cancelling(n, d=4, seed=0):
    """Rows and coefficients of size 1e6 whose scores are of size one."""
    random = np.random.default_rng(seed)
    X = 1e6 * random.normal(0.0, 1.0, (n, d))
    coef = random.normal(0.0, 1.0, d)
    X[:, -1] = (random.normal(0.0, 2.0, n) - X[:, :-1] @ coef[:-1]) / coef[-1]
    return X, coef


def labels(loss, n):
    """Targets of a loss."""
    return np.linspace(-2.0, 2.0, n) if loss.task == "regression" else np.where(np.arange(n) % 2 == 0, 1.0, -1.0)


@precise
def exact_terms(loss, y, scores, dual):
    """``F_l(y_i; z_i, -a_i)`` with exact scores."""
    rows = zip(decimals(y), scores, -(dual if dual.dtype == object else decimals(dual)), strict=True)
    return [exact.loss_value(loss, t, z) + exact.loss_conjugate(loss, t, g) - g * z for t, z, g in rows]


def assert_at_least(computed, values):
    """Not below the exact values."""
    assert not exact.outside(values, np.full(len(values), -np.inf), computed)


@each(LOSSES, "loss")
def test_loss_terms_of_exact_scores(loss):
    """The evaluation alone, at, near and far from the minimum of a term, in the tails too."""
    random = np.random.default_rng(0)
    scores = np.concatenate([random.normal(0.0, 1.0, 100), random.normal(0.0, 30.0, 100), np.linspace(-2.0, 2.0, 41)])
    y = labels(loss, scores.size)
    near = -loss.gradient(y, scores)
    other = -loss.gradient(y, random.permutation(scores))
    nudged = -loss.project(y, -near * (1.0 + 1e-7 * random.normal(0.0, 1.0, scores.size)))
    for dual in (near, other, nudged):
        computed = loss_terms(loss, y, scores, np.zeros(scores.size), dual)
        assert_at_least(computed, exact_terms(loss, y, decimals(scores), dual))


@each(LOSSES, "loss")
@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_loss_terms_of_cancelling_scores(loss, layout):
    """Scores that lost ten digits: the certificate's terms hold the exact ones."""
    X, coef = cancelling(30)
    y = labels(loss, 30)
    problem = glru.Problem(layout(X), y, loss, glru.L2(1.0))
    scores = problem.scores(coef)
    dual = -loss.gradient(problem.y, scores)
    certificate = certify(problem, glru.Point(coef, 0.0, dual))
    true = exact.in_decimals(problem).scores(decimals(coef), Decimal(0))
    errors = score_errors(problem, coef, 0.0)
    assert not exact.outside(true, scores - errors, scores + errors)
    assert_at_least(certificate.loss_terms, exact_terms(loss, problem.y, true, dual))
    middle, errors = centers(problem.matrix, coef, 0.0)
    assert not exact.outside(true, middle - errors, middle + errors)


@each(LOSSES, "loss")
def test_carried_terms_of_cancelling_scores(loss):
    """Columns that leave and come, rows that come: the terms are made from scores that lost ten digits."""
    X, coef = cancelling(12, 4)
    y = labels(loss, 12)
    wide = np.hstack([1e9 * dense(12, 1, 3), X])
    start = glru.Point(np.append(1.0, coef))
    solution = glru.solve(glru.Problem(wide, y, loss, glru.L2(1.0)), start=start, until=lambda state: True)
    rows = wide[:3] * [0.0, 1.0, 1.0, 1.0, 1.0]
    for change in (glru.RemoveColumns([0]), glru.AddColumns(dense(12, 2, 4)), glru.AddRows(rows, y[:3])):
        certificate = carry(solution, change)
        changed = change.apply(solution.problem)
        assert Decimal(certificate.gap) >= exact.gap(changed, certificate.coef, certificate.point.dual)
        if certificate.loss_terms is not None:
            true = exact.in_decimals(changed).scores(decimals(certificate.coef), Decimal(0))
            terms = exact_terms(loss, changed.y, true, certificate.point.dual)
            assert_at_least(certificate.loss_terms, terms)


@pytest.mark.parametrize(
    "penalty", [glru.L2(0.3), glru.L2(1e-9), glru.ElasticNet(0.3, 0.7), glru.ElasticNet(1e-9, 0.7)]
)
def test_penalty_terms(penalty):
    """At the minimum of a term, near it, far from it, on both sides of the kink."""
    random = np.random.default_rng(0)
    v = np.concatenate([random.normal(0.0, 1.0, 100), random.normal(0.0, 1e-6, 50) + 0.7, [0.0, 0.7, -0.7]])
    middle = np.add(*penalty.conjugate_derivative(v)) / 2.0
    errors = 1e-12 * random.random(v.size)
    lam, kappa = Decimal(float(penalty.quadratic)), Decimal(float(penalty.absolute))

    @precise
    def term(w, u):
        return lam * w * w / 2 + kappa * abs(w) + max(abs(u) - kappa, Decimal(0)) ** 2 / (2 * lam) - w * u

    for coef in (middle, middle * (1.0 + 1e-8), random.permutation(middle), np.zeros(v.size)):
        computed = penalty_terms(penalty, coef, v, errors)
        for side in (-1, 0, 1):
            ends = [u + side * e for u, e in zip(decimals(v), decimals(errors), strict=True)]
            assert_at_least(computed, [term(w, u) for w, u in zip(decimals(coef), ends, strict=True)])


def test_weighted_sums():
    """Sums of many terms of all sizes."""
    random = np.random.default_rng(0)
    for n in (3, 1000, 5000):
        weights, terms = random.random(n), 10.0 ** random.uniform(-12.0, 0.0, n)
        total = sum((s * t for s, t in zip(decimals(weights), decimals(terms), strict=True)), Decimal(0))
        assert Decimal(weighted_sum(weights, terms)) >= total
    weights = np.full(10**5, 1.0 + 2.0**-52)
    assert Decimal(weighted_sum(weights, weights)) >= 10**5 * Decimal(float(weights[0])) ** 2
    assert weighted_sum(np.array([0.0, 1.0]), np.array([np.inf, 2.0])) == pytest.approx(2.0)


@precise
def corrected(problem, dual):
    """The dual point moved onto the equality constraints in proportion to its room, exactly."""
    model = exact.in_decimals(problem)
    ones = np.full((problem.n_rows, 1), Decimal(1), dtype=object)
    columns = np.hstack([model.X[:, problem.unpenalised], ones]) if model.intercept else model.X[:, problem.unpenalised]
    lower, upper = (decimals(end) for end in problem.loss.derivative_range(problem.y))
    a = decimals(dual)
    room = np.array(
        [min(max(min(u + t, -t - low), Decimal(0)), Decimal(1)) for low, u, t in zip(lower, upper, a, strict=True)],
        dtype=object,
    )
    residual = columns.T @ (model.weights * a)
    gram = columns.T @ ((model.weights * room)[:, None] * columns)
    return a - room * (columns @ exact.solved(gram, residual))


@each(LOSSES, "loss")
@pytest.mark.parametrize("lam", [[1.0, 1.0, 1.0], [0.0, 1.0, 1.0]], ids=["intercept", "free-column"])
@pytest.mark.parametrize("tilt", [0.0, 1e-13, 1e-7, 1e-4])
def test_the_correction_of_the_dual(loss, lam, tilt):
    """A dual point off its constraints by rounding, or by more: the moves hold the exact correction, the gap its gap."""
    random = np.random.default_rng(1)
    problem = make(loss, glru.L2(lam), 40, 3, fit_intercept=True, seed=2)
    solution = trained(problem, 1e-10)
    dual = solution.dual + tilt * random.random(40) * np.abs(solution.dual)
    dual = -loss.project(problem.y, -dual)
    point = glru.Point(solution.coef + 1e-3, solution.intercept, dual)
    certificate, moves = certify(problem, point), find_feasible_moves(problem, dual)
    if not np.all(np.isfinite(moves)):
        assert certificate.gap == np.inf and tilt > 1e-8
        return
    feasible = corrected(problem, dual)
    distance = [abs(m) for m in feasible - decimals(dual)]
    assert_at_least(moves, distance)
    true = exact.in_decimals(problem).scores(decimals(point.coef), Decimal(point.intercept))
    assert_at_least(certificate.loss_terms, exact_terms(loss, problem.y, true, feasible))
    free = problem.unpenalised
    assert Decimal(certificate.gap) >= exact.feasible_gap(problem, point.coef, point.intercept, feasible, free)
    correlations, _ = exact.sums(exact.in_decimals(problem), feasible)
    bounds = (
        certificate.correlations - certificate.correlation_errors,
        certificate.correlations + certificate.correlation_errors,
    )
    kept = [j for j in range(3) if j not in free]
    assert not exact.outside(correlations[kept], bounds[0][kept], bounds[1][kept])


def test_a_dual_that_cannot_be_corrected():
    """Off its constraint by more than its room: no feasible point is known, so nothing is proven."""
    problem = make(glru.Hinge(), glru.L2(0.1), 20, 3, fit_intercept=True)
    dual = np.where(problem.y > 0.0, 1.0, -0.2)
    assert certify(problem, glru.Point(np.zeros(3), 0.0, dual)).gap == np.inf


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_a_gap_of_zero_leaves_the_rounding_of_scores(layout):
    """With nothing left of the radius, intervals of cancelling scores still hold the candidate's exact ones."""
    X, coef = cancelling(40)
    problem = glru.Problem(layout(X), labels(glru.Squared(), 40), glru.Squared(), glru.L2(1.0))
    certificate = replace(certify(problem, glru.Point(coef, 0.0, np.zeros(40))), gap=0.0)
    true = exact.in_decimals(problem).scores(decimals(coef), Decimal(0))
    assert not exact.outside(true, *PrimalBall(certificate, False).score_bounds(problem.matrix))
    local = LocalEllipsoid.at(certificate.problem, certificate.point)
    vars(local)["radius"] = 0.0
    assert not exact.outside(true, *local.score_bounds(problem.matrix))


@precise
def exact_distances(X, center):
    """``|x_i - c|``."""
    return [exact.norm(row - center) for row in decimals(X)]


def test_distances_from_the_mean_row():
    """Rows far from the origin and near each other: their distances are small differences of large squares."""
    X = dense(20, 3) + 1e7
    problem = glru.Problem(X, labels(glru.Logistic(), 20), glru.Logistic(), glru.L2(1.0), fit_intercept=True)
    ball = PrimalBall(trained(problem, 1e-3).certificate, True)
    center = X.mean(axis=0)
    assert_at_least(ball._norms(problem.matrix, center), exact_distances(X, decimals(center)))


@precise
def corner_sums(X, lower, upper):
    """The least value of ``x . w`` over a box, for every row."""
    ends = list(zip(decimals(lower), decimals(upper), strict=True))
    return [sum(x * ends[j][0 if x > 0 else 1] for j, x in enumerate(row)) for row in decimals(X)]


def test_ranges_of_linear_functions():
    """MinLin and MaxLin over a box, attained at its corners, with ends that may be infinite."""
    X = np.array([[1.0, -2.0, 0.0], [1e8, 1.0, -1e8], [0.0, 0.0, 0.0], [-3.0, 0.1, 0.3]])
    lower, upper = np.array([-1.0, 0.1, 0.3]), np.array([2.0, 0.7, 0.3])
    for matrix in (X, sp.csr_array(X)):
        least, most = linear_range(as_matrix(matrix), lower, upper)
        low = corner_sums(X, lower, upper)
        high = [-v for v in corner_sums(-X, lower, upper)]
        assert not exact.outside(low, least, [float(v) + 1e-6 for v in low])
        assert not exact.outside(high, [float(v) - 1e-6 for v in high], most)
        least, most = linear_range(as_matrix(matrix), np.array([-np.inf, 0.1, 0.3]), np.array([2.0, 0.7, np.inf]))
        assert np.isneginf(least).tolist() == [True, True, False, False]
        assert np.isposinf(most).tolist() == [False, False, False, True]


@precise
def exact_norms(hessian, rows):
    """``sqrt(x^T H^-1 x)``."""
    return [(x @ exact.solved(hessian, x)).sqrt() for x in rows]


@pytest.mark.parametrize("fit_intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    "metric",
    [
        lambda problem, curvature: make_column_metric(problem.totals, problem.hessian(curvature)),
        lambda problem, curvature: RowMetric(RowSide(problem), curvature),
    ],
    ids=["columns", "rows"],
)
def test_norms_of_the_metric(metric, layout, fit_intercept):
    """Norms of rows, of axes and of a gradient, against exact inverses; a metric may be off by its own eta at most."""
    X = dense(6, 10) * (dense(6, 10, 2) > 0.9)
    X[:, 0] += 1.0
    problem = glru.Problem(layout(X), targets(X, glru.Squared()), glru.Squared(), glru.L2(1e-4), fit_intercept)
    curvature = problem.weights * np.linspace(0.1, 1.0, 6)
    found = metric(problem, curvature)
    assert found.eta < 1e-6
    size = 10 + fit_intercept
    with_ones = decimals(np.column_stack([X, np.ones(6)])[:, :size])
    hessian = with_ones.T @ (decimals(curvature)[:, None] * with_ones)
    for j in range(10):
        hessian[j, j] += decimals(problem.penalty.lam).item()
    share = 1.0 - found.eta
    norms = exact_norms(hessian, with_ones)
    assert not exact.outside(norms, np.zeros(6), found.norms(problem.matrix) / np.sqrt(share) * (1.0 + 1e-15))
    np.testing.assert_allclose(found.norms(problem.matrix), np.array(norms, dtype=float), rtol=1e-4)
    axes = exact_norms(hessian, decimals(np.eye(size)))
    assert not exact.outside(axes, np.zeros(size), found.axis_norms() / np.sqrt(share) * (1.0 + 1e-15))
    gradient = np.linspace(-1.0, 1.0, size)
    (true,) = exact_norms(hessian, [decimals(gradient)])
    assert Decimal(found.gradient_norm(gradient, np.zeros(size)) / np.sqrt(share) * (1.0 + 1e-15)) >= true


@pytest.mark.parametrize("neighbour", [1e-170, 1.0, np.nan, np.inf])
def test_a_norm_whose_squares_underflow_does_not_depend_on_other_columns(neighbour):
    weights, values = np.full(3, 1.0 / 3.0), np.full((3, 2), 1e-170)
    values[0, 1] = neighbour
    alone = weighted_norm(weights, values[:, 0])
    assert alone == pytest.approx(1e-170, rel=1e-9, abs=0.0)
    assert weighted_norm(weights, values)[0] == alone


def test_norms_of_rows_are_kept_for_these_rows_alone():
    """A metric answers the same question once, any other one anew, and takes no rows along when it is pickled."""
    problem = make(glru.Logistic(), glru.L2(0.1), 300, 4)
    metric = make_column_metric(problem.totals, problem.hessian(problem.weights))
    X, others = problem.matrix, as_matrix(2.0 * dense(300, 4))
    first = metric.norms(X)
    assert metric.norms(X) is first and not np.array_equal(metric.norms(others), first)
    np.testing.assert_array_equal(metric.norms(X), first)
    again = pickle.loads(pickle.dumps(metric))
    assert len(pickle.dumps(metric)) < X.dense().nbytes
    np.testing.assert_array_equal(again.norms(X), first)
