"""Families of single columns hold the retrained scores, for every column, and agree with ``after``."""

import numpy as np
import pytest
import scipy.sparse as sp

import glru
from glru.updates.columns import Steps
from glru.updates.columns.wide import Candidates
from tests.cases import LOSSES, dense, each, make, uneven
from tests.core import (
    LocalColumns,
    PrimalBall,
    SmoothColumns,
    WideColumns,
    as_matrix,
    carried_columns,
    carry_point,
    find_newton_candidate,
    has_local_columns,
    has_smooth_columns,
    has_wide_columns,
    linalg,
)
from tests.decisions.retraining import carefully

SMOOTH = {name: loss for name, loss in LOSSES.items() if name != "hinge"}
LOCAL = {name: LOSSES[name] for name in ("logistic", "squared")}
SHAPES = {
    "tall": {"n": 40, "d": 6},
    "wide": {"n": 12, "d": 20, "scaling": "sum"},
    "sparse-wide": {"n": 15, "d": 24, "density": 0.3},
    "weighted": {"n": 14, "d": 16, "sample_weight": uneven(14)},
}


def queries(d, density=1.0):
    X = dense(5, d, seed=9)
    X[0] = 0.0
    return sp.csr_array(np.where(np.abs(X) > 0.7, X, 0.0)) if density < 1.0 else X


def never(lower, upper):
    return np.zeros(lower.shape[-1], dtype=bool)


def retrained(problem, change, Q):
    """Scores of a careful training of the changed problem, and how far they may be from the optimum's."""
    solution = carefully(change.apply(problem))
    certificate = solution.certificate
    radius = np.sqrt(2.0 * certificate.gap / max(solution.problem.penalty.strong_convexity, 1e-9))
    norms = np.sqrt(np.asarray((Q * Q).sum(axis=1)).ravel())
    return Q @ solution.coef + solution.intercept, radius * norms + 1e-12


def without(Q, j):
    kept = np.delete(np.arange(Q.shape[1]), j)
    return Q[:, kept]


def assert_inside(lower, upper, scores, off):
    assert np.all(lower <= scores + off) and np.all(scores - off <= upper)


def family_of(solution, Q):
    """The family of columns in the dimension of the rows that a loss has."""
    if has_wide_columns(solution.problem):
        return WideColumns(solution, as_matrix(Q))
    assert has_smooth_columns(solution.problem)
    return SmoothColumns(solution, as_matrix(Q))


def columns_of(X, Q):
    X, Q = as_matrix(X), as_matrix(Q)
    return lambda start, stop: (X[:, np.arange(start, stop)], Q[:, np.arange(start, stop)])


@each(SHAPES, "shape")
@each(SMOOTH, "loss")
def test_wide_removals(loss, shape):
    for lam, tol in ((0.3, 1e-9), (0.02, 1e-9), (0.1, 1e-2)):
        problem = make(loss, glru.L2(lam), seed=2, **shape)
        solution, Q = glru.solve(problem, tol=tol), queries(shape["d"], shape.get("density", 1.0))
        assert_removals_hold(solution, Q)


BORDERED = {
    "wide": {"n": 30, "d": 36, "scaling": "sum"},
    "sparse-wide": {"n": 40, "d": 44, "density": 0.3},
    "weighted": {"n": 34, "d": 36, "sample_weight": uneven(34)},
}


@pytest.mark.parametrize("free", [0, 2], ids=["", "unpenalised"])
@each(BORDERED, "shape")
@each(LOCAL, "loss")
def test_wide_removals_beside_free_coordinates(loss, shape, free):
    """An intercept, and columns without a penalty."""
    for lam, tol in ((0.3, 1e-9), (0.02, 1e-9), (0.1, 1e-2)):
        strengths = np.full(shape["d"], lam)
        strengths[:free] = 0.0
        problem = make(loss, glru.L2(strengths), seed=2, fit_intercept=True, **shape)
        solution, Q = glru.solve(problem, tol=tol), queries(shape["d"], shape.get("density", 1.0))
        assert_removals_hold(solution, Q, free)


def assert_removals_hold(solution, Q, free=0):
    problem = solution.problem
    every = np.arange(free, problem.n_columns)
    family, lam = family_of(solution, Q), problem.quadratic[every]
    local = problem.loss.self_concordance is not None
    X = problem.matrix[:, every]
    make_blocks = columns_of(X, as_matrix(Q)[:, every])
    centers = family.side.center if local else None
    centers = centers if centers is None else centers[every]
    extra = (centers,) if local else ()
    lower, upper = family.bounds(make_blocks, lam, -1.0, *extra)
    whole = family.block(make_blocks(0, every.size), lam, -1.0, centers)
    found = family.refined(whole, never, 30) if local else (lower, upper)
    for place, j in enumerate(every[:20]):
        scores, off = retrained(problem, glru.RemoveColumns([j]), without(Q, [j]))
        if problem.fit_intercept:
            off = 1e-7 * (1.0 + np.abs(scores))
        assert_inside(lower[:, place], upper[:, place], scores, off)
        assert_inside(found[0][:, place], found[1][:, place], scores, off)
        if place < 3:
            alone = family.refine_one(whole.take(np.array([place])), lambda *_: False)
            assert_inside(alone.lower, alone.upper, scores, off)
            if solution.relative_gap <= 1e-9 and local and lam[0] == 0.3:
                assert np.all(alone.upper - alone.lower <= 1e-6 * (1.0 + np.abs(scores)))
    if solution.relative_gap <= 1e-9 and local and lam[0] == 0.3:
        assert np.median(upper - lower) < 0.2
        assert np.median(found[1] - found[0]) < 1e-6


@pytest.mark.parametrize("fit_intercept", [False, True], ids=["", "intercept"])
@each(SHAPES, "shape")
@each(SMOOTH, "loss")
def test_wide_additions(loss, shape, fit_intercept):
    if fit_intercept and loss.self_concordance is None:
        pytest.skip("no family")
    problem = make(loss, glru.L2(0.1), seed=2, fit_intercept=fit_intercept, **shape)
    n_new = 5
    new = dense(problem.n_rows, n_new, seed=7)
    asked = dense(5, n_new, seed=8)
    Q = queries(shape["d"], shape.get("density", 1.0))
    solution = glru.solve(problem, tol=1e-9)
    family, lam = family_of(solution, Q), np.full(n_new, problem.quadratic[0])
    local = loss.self_concordance is not None
    centers = new.mean(axis=0) if local and family.side.center is not None else None
    extra = (centers,) if local else ()
    lower, upper = family.bounds(columns_of(new, asked), lam, 1.0, *extra)
    whole = family.block(columns_of(new, asked)(0, n_new), lam, 1.0, centers)
    found = family.refined(whole, never, 6) if local else (lower, upper)
    for j in range(n_new):
        change = glru.AddColumns(sp.csr_array(new[:, [j]]) if sp.issparse(problem.X) else new[:, [j]])
        stacked = (
            sp.csr_array(sp.hstack([Q, asked[:, [j]]])) if sp.issparse(problem.X) else np.column_stack([Q, asked[:, j]])
        )
        scores, off = retrained(problem, change, stacked)
        if fit_intercept:
            off = 1e-7 * (1.0 + np.abs(scores))
        alone = family.refine_one(whole.take(np.array([j])), lambda *_: False)
        for low, high in ((lower[:, j], upper[:, j]), (found[0][:, j], found[1][:, j]), (alone.lower, alone.upper)):
            assert_inside(low, high, scores, off)
        if local:
            assert np.all(alone.upper - alone.lower <= 1e-6 * (1.0 + np.abs(scores)))


@pytest.mark.parametrize("fit_intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("shape", [{"n": 40, "d": 6}, {"n": 12, "d": 20}, {"n": 50, "d": 8, "density": 0.4}], ids=str)
@each(LOCAL, "loss")
def test_local_removals(loss, shape, fit_intercept):
    for lam, tol in ((0.3, 1e-9), (0.02, 1e-9), (0.1, 1e-3)):
        problem = make(loss, glru.L2(lam), seed=3, fit_intercept=fit_intercept, **shape)
        assert has_local_columns(problem)
        solution, Q = glru.solve(problem, tol=tol), queries(shape["d"], shape.get("density", 1.0))
        family = LocalColumns(problem, solution.point, as_matrix(Q))
        every = np.arange(problem.n_columns)
        bounds = [family.bounds(every, never, n_steps) for n_steps in (1, 20)]
        one_step = family.closed_form(every)
        bounds.insert(0, one_step.bounds())
        slopes = np.random.default_rng(2).normal(size=(Q.shape[0], every.size))
        middles, sums = (slopes * one_step.centers).sum(axis=0), one_step.bound_sums(slopes)
        assert np.all(sums <= 1.01 * (np.abs(slopes) * one_step.half).sum(axis=0))
        for j in every:
            scores, off = retrained(problem, glru.RemoveColumns([j]), without(Q, [j]))
            off = np.minimum(off + 1e-8, 1e-7 * (1.0 + np.abs(scores)))
            assert abs(slopes[:, j] @ scores - middles[j]) <= sums[j] + np.abs(slopes[:, j]) @ off
            for lower, upper in bounds:
                assert_inside(lower[:, j], upper[:, j], scores, off)
        present = carefully(problem)
        assert_inside(*family.present(), Q @ present.coef + present.intercept, 1e-7)
        if lam == 0.3:
            lower, upper = bounds[2]
            assert np.all(upper - lower <= 1e-6 * (1.0 + np.abs(lower)))
            assert np.median(bounds[0][1] - bounds[0][0]) < (0.3 if loss.self_concordance else 1e-6)


def test_local_removals_without_a_penalty():
    """``lam = 0``: the local certificate needs no strong convexity."""
    problem = make(glru.Logistic(), glru.L2(np.zeros(3)), 80, 3, seed=3, fit_intercept=True)
    solution, Q = glru.solve(problem, tol=1e-10), queries(3)
    lower, upper = LocalColumns(problem, solution.point, as_matrix(Q)).bounds(np.arange(3), never, 20)
    for j in range(3):
        model = carefully(glru.RemoveColumns([j]).apply(problem))
        scores = without(Q, [j]) @ model.coef + model.intercept
        assert_inside(lower[:, j], upper[:, j], scores, 1e-7)
    assert np.all((upper - lower)[:, :2] < 1e-4)


@each(SHAPES, "shape")
@each(LOSSES, "loss")
def test_carried_removals_equal_after(loss, shape):
    """The family is the paper's bound for each column by itself, up to rounding."""
    problem = make(loss, glru.L2(0.1), seed=2, **shape)
    solution = glru.solve(problem, tol=1e-5)
    Q = queries(shape["d"], shape.get("density", 1.0))
    lower, upper = carried_columns(solution, as_matrix(Q), np.arange(problem.n_columns))
    for j in range(problem.n_columns):
        after = glru.after(solution, glru.RemoveColumns([j]), candidate="carry", bound="primal")
        low, high = after.score_bounds(as_matrix(without(Q, [j])))
        np.testing.assert_allclose(lower[:, j], low, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(upper[:, j], high, rtol=1e-6, atol=1e-9)


def test_one_system_for_all_is_tight():
    """It overlaps a Newton candidate of each column's own, and is far tighter than the carried bound."""
    problem = make(glru.Logistic(), glru.L2(0.2), 30, 40, seed=4)
    solution, Q = glru.solve(problem, tol=1e-10), queries(40)
    lower, upper = WideColumns(solution, as_matrix(Q)).bounds(columns_of(problem.X, Q), np.full(40, 0.2), -1.0)
    for j in range(40):
        change = glru.RemoveColumns([j])
        start = carry_point(problem, solution.point, change)
        certificate = find_newton_candidate(change.apply(problem), start)
        low, high = PrimalBall(certificate, False).score_bounds(as_matrix(without(Q, [j])))
        assert np.all(np.minimum(upper[:, j], high) >= np.maximum(lower[:, j], low))
    low, high = carried_columns(solution, as_matrix(Q), np.arange(40))
    share = (upper - lower)[1:] / (high - low)[1:]
    assert np.median(share) < 0.1 and np.max(share) < 2.0


def test_parts_equal_the_whole(monkeypatch):
    problem = make(glru.SquaredHinge(), glru.L2(0.1), 30, 50, seed=4, sample_weight=uneven(30))
    solution, Q = glru.solve(problem), queries(50)

    def bounds():
        return SmoothColumns(solution, as_matrix(Q)).bounds(columns_of(problem.X, Q), np.full(50, 0.1), -1.0)

    whole = bounds()
    monkeypatch.setattr(linalg.arrays.HostArrays, "chunk", 64)
    np.testing.assert_allclose(bounds(), whole, rtol=1e-10, atol=1e-12)


def long_tails(seed, wide):
    """Columns of unequal scales, one of them with a long tail, and a row of large values: removals move some scores far."""
    random = np.random.default_rng(seed)
    n = int(random.integers(3, 10))
    d = n + int(random.integers(1, 5)) if wide else int(random.integers(2, 5))
    X = random.normal(size=(n, d)) * 10.0 ** random.uniform(-1.0, 1.0, (1, d))
    X[:, random.integers(d)] *= np.exp(random.uniform(0.0, 3.0) * random.normal(size=n))
    X[random.integers(n)] *= 10.0 ** random.uniform(0.0, 2.0)
    y = np.arange(n) % 2 == 0
    lam, intercept = 10.0 ** random.uniform(-6.0, 0.0), bool(random.random() < 0.5)
    problem = glru.Problem(X, y, penalty=glru.L2(lam), fit_intercept=intercept)
    return carefully(problem), np.vstack([X[:3], random.normal(size=(3, d)) * np.abs(X).max(axis=0)])


@pytest.mark.parametrize("wide", [False, True])
def test_rows_that_move_far(wide):
    """The curvature that such rows lose is no longer there to hold the optimum."""
    n_bounded = 0
    for seed in range(40):
        solution, Q = long_tails(seed, wide)
        problem, d = solution.problem, Q.shape[1]
        if wide:
            family = WideColumns(solution, as_matrix(Q))
            lam = np.broadcast_to(problem.penalty.quadratic, (d,))
            block = family.block((problem.matrix, as_matrix(Q)), lam, -1.0, family.side.center)
            found = family.refined(block, never, 4)
        else:
            found = LocalColumns(problem, solution.point, as_matrix(Q)).bounds(np.arange(d), never, 3)
        n_bounded += int(np.isfinite(found[1] - found[0]).sum())
        for j in range(d):
            scores, _ = retrained(problem, glru.RemoveColumns([j]), without(Q, j))
            assert_inside(found[0][:, j], found[1][:, j], scores, 1e-7 * (1.0 + np.abs(scores)))
    assert n_bounded > 500


def test_columns_that_move_far_are_stepped_on_together():
    """Newton steps with the shared Hessian overshoot where a column takes most of the margins with it; steps that learn from earlier ones do not."""
    random = np.random.default_rng(0)
    X = random.normal(size=(40, 60))
    X[:, :6] *= 2.0
    y = np.where(X[:, :6].sum(axis=1) + random.normal(size=40) > 0.0, 1, -1)
    solution, Q = carefully(glru.Problem(X, y, penalty=glru.L2(0.03), fit_intercept=True)), random.normal(size=(4, 60))
    family, columns = WideColumns(solution, as_matrix(Q)), np.arange(60)
    block = family.block((solution.problem.matrix, as_matrix(Q)), np.full(60, 0.03), -1.0, family.side.center)
    first = Candidates.first(Steps(family, block))
    lower, upper = family.refined(block, never, 12)
    assert np.abs(np.asarray(first.scores) - family.base.scores[:, None]).max() > 2.0
    assert np.max(upper - lower) < 1e-3
    for j in columns[:12]:
        scores, off = retrained(solution.problem, glru.RemoveColumns([j]), without(Q, j))
        assert_inside(lower[:, j], upper[:, j], scores, off)


def _logistic_model(X, y, lam, fit_intercept):
    """Coefficients of a logistic regression to all digits, the intercept last."""
    X = np.column_stack([X, np.ones(len(X))]) if fit_intercept else X
    strengths, coef = np.full(X.shape[1], lam), np.zeros(X.shape[1])
    strengths[X.shape[1] - fit_intercept :] = 0.0
    for _ in range(40):
        p = 1.0 / (1.0 + np.exp(y * (X @ coef)))
        hessian = X.T @ ((p * (1.0 - p))[:, None] * X) + np.diag(strengths)
        coef = coef - np.linalg.solve(hessian, strengths * coef - X.T @ (y * p))
    return coef


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(("lam", "size"), [(3.0, 1.0), (1.0, 1.0), (3.0, 0.01)])
def test_second_order_bounds_hold_and_are_tight(lam, size, fit_intercept):
    """What a step leaves of the gradient is followed to the optimum: bounds are off by a share of it."""
    n, n_columns, shares = 24, 40, []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X, Q = rng.normal(size=(n, n_columns)), rng.normal(size=(4, n_columns))
        X[:, :8] *= size
        y = np.where(X[:, 10] + rng.normal(size=n) > 0.0, 1.0, -1.0)
        problem = glru.Problem(X, y, penalty=glru.L2(lam), fit_intercept=fit_intercept, scaling="sum")
        family = WideColumns(glru.solve(problem, tol=1e-13), as_matrix(Q))
        columns = np.arange(16)
        block = family.block(
            (as_matrix(X[:, columns]), as_matrix(Q[:, columns])),
            problem.quadratic[columns],
            -1.0,
            None if family.side.center is None else family.side.center[columns],
        )
        steps = Steps(family, block)
        (first_lower, first_upper), (lower, upper) = steps.bounds(), steps.bounds_to_second_order()
        for j in columns:
            coef = _logistic_model(np.delete(X, j, axis=1), y, lam, fit_intercept)
            scores = np.delete(Q, j, axis=1) @ coef[: n_columns - 1] + (coef[-1] if fit_intercept else 0.0)
            assert_inside(lower[:, j], upper[:, j], scores, 1e-12)
        known = np.isfinite(first_upper)
        shares.append(np.median((upper - lower)[known] / (first_upper - first_lower)[known]))
    assert max(shares) < 0.5
