"""All removals at once against one removal at a time."""

import numpy as np
import pytest
from scipy.special import expit, xlogy

import glru
from glru.families.carried import carried_bounds, has_carried, removal_factors
from glru.families.local import LocalRows, has_local_rows
from glru.families.newton import TallRows, has_newton_rows
from glru.families.wide import WideRows, has_wide_rows
from tests.attack.cases import left_out
from tests.cases import LOSSES, each, make
from tests.certificates.exact import optimum, outside
from tests.decisions.retraining import assert_inside, derived, held_out

SHAPES = {
    "tall": {"n": 16, "d": 3},
    "tall-sum": {"n": 16, "d": 3, "scaling": "sum"},
    "wide": {"n": 8, "d": 14},
    "sparse": {"n": 16, "d": 5, "density": 0.4},
    "weighted": {"n": 16, "d": 3, "sample_weight": 0.5 + np.arange(16) % 3},
    "heavy-row": {"n": 10, "d": 3, "sample_weight": np.where(np.arange(10) == 3, 8.0, 1.0)},
    "zero-weights": {"n": 16, "d": 3, "sample_weight": np.arange(16) % 3 * 1.0},
}
TALL = {name: shape for name, shape in SHAPES.items() if name != "wide"}
INTERCEPTS = {f"{name}-intercept": shape | {"fit_intercept": True} for name, shape in TALL.items()}
SMOOTH = {name: loss for name, loss in LOSSES.items() if name != "hinge"}
LOCAL = {name: LOSSES[name] for name in ("logistic", "squared")}


def never(lower, upper):
    """A decision that is never taken, so that every step is made."""
    return np.zeros(lower.shape, dtype=bool)


def family_bounds(solution, make_family, ask):
    """Bounds of every row from one family for each factor of the weights."""
    factors = removal_factors(solution.problem)
    lower, upper = np.full(factors.size, np.nan), np.full(factors.size, np.nan)
    for factor in np.unique(factors):
        rows = np.flatnonzero(factors == factor)
        lower[rows], upper[rows] = ask(make_family(solution, float(factor)), rows)
    return lower, upper


def always(lower, upper):
    """A decision that any bound is good enough for."""
    return np.ones(lower.shape, dtype=bool)


def one_by_one(family, rows, decided):
    pairs = [family.bounds(rows[k : k + 1], decided) for k in range(rows.size)]
    return np.concatenate([low for low, _ in pairs]), np.concatenate([high for _, high in pairs])


def test_removal_factors():
    weight = np.array([0.0, 1.0, 2.0, 3.0])
    problem = glru.Problem(np.ones((4, 1)), np.arange(4.0), loss=glru.Squared(), sample_weight=weight)
    assert np.allclose(removal_factors(problem), 6.0 / (6.0 - weight))
    for row, factor in enumerate(removal_factors(problem)):
        left = np.where(np.arange(4) == row, 0.0, weight)
        assert np.allclose(derived(problem, left).weights[left > 0.0], factor * problem.weights[left > 0.0])
    assert np.array_equal(removal_factors(problem.derive(scaling="sum")), np.ones(4))
    heavy = problem.derive(sample_weight=np.array([1.0, 1.0, 1.0, 4.0]))
    assert np.array_equal(np.isfinite(removal_factors(heavy)), [True, True, True, False])
    alone = problem.derive(sample_weight=np.array([0.0, 0.0, 3.0, 0.0]))
    assert np.array_equal(removal_factors(alone), [1.0, 1.0, np.inf, 1.0])


# The carried bound ----------------------------------------------------------------------------------------------------

CARRIED_PENALTIES = {
    "l2": lambda d: glru.L2(0.05),
    "l2-columns": lambda d: glru.L2(0.05 + 0.1 * np.arange(d)),
    "elastic-net": lambda d: glru.ElasticNet(0.05, 0.02),
    "elastic-net-columns": lambda d: glru.ElasticNet(0.05 + 0.1 * np.arange(d), 0.02),
}


def generic(solution, row, bound):
    """The carried bound of one removal by itself."""
    out = glru.after(solution, glru.RemoveRows([row]), candidate="carry", bound=bound)
    low, high = out.score_bounds(solution.problem.X[row : row + 1])
    return float(low[0]), float(high[0])


@each(SHAPES, "shape")
@each(CARRIED_PENALTIES, "penalty")
@each(LOSSES, "loss")
def test_carried_is_the_generic_path(loss, penalty, shape):
    problem = make(loss, penalty(shape["d"]), seed=1, **shape)
    assert has_carried(problem)
    solution = glru.solve(problem, tol=1e-3)
    lower, upper = carried_bounds(solution, "primal")
    for row in range(problem.n_rows):
        low, high = generic(solution, row, "primal")
        assert np.isfinite(low)
        assert np.allclose([lower[row], upper[row]], [low, high], rtol=1e-9, atol=1e-9 * (high - low)), row


@each(SHAPES, "shape")
@pytest.mark.parametrize("penalty", ["l2", "l2-columns"])
@each(SMOOTH, "loss")
def test_carried_dual_holds_the_generic_path(loss, penalty, shape):
    """The family keeps the removed row in the columns' norms and does without Remark 2, so it is a little wider."""
    problem = make(loss, CARRIED_PENALTIES[penalty](shape["d"]), seed=1, **shape)
    solution = glru.solve(problem, tol=1e-3)
    lower, upper = carried_bounds(solution, "dual")
    for row in range(problem.n_rows):
        low, high = generic(solution, row, "dual")
        slack = 1e-9 * (high - low + abs(low))
        assert lower[row] <= low + slack
        assert upper[row] >= high - slack
        if loss.task == "regression":
            # Where the score is exactly zero the generic path says so, and the family rounds outward.
            assert upper[row] - lower[row] <= 3.0 * (high - low) + slack + 1e-300


@each(SHAPES, "shape")
@pytest.mark.parametrize("loss", ["logistic", "squared-hinge", "huber"])
def test_carried_holds_the_retrained_score(loss, shape):
    for tol in (1e-2, 1e-8):
        solution = glru.solve(make(LOSSES[loss], glru.L2(0.3), seed=2, **shape), tol=tol)
        scores, off = held_out(solution)
        both = [carried_bounds(solution, bound) for bound in ("primal", "dual", "auto")]
        for bounds in both:
            assert_inside(scores, off, *bounds)
        assert np.array_equal(both[2][0], np.maximum(both[0][0], both[1][0]))
        assert np.array_equal(both[2][1], np.minimum(both[0][1], both[1][1]))


def test_carried_with_an_infinite_factor():
    """The only row of weight above 0: nothing is left, nothing is proven."""
    weight = np.array([0.0, 0.0, 3.0, 0.0])
    problem = glru.Problem(np.eye(4), [1, -1, 1, -1], penalty=glru.L2(0.3), sample_weight=weight)
    with np.errstate(all="ignore"):
        lower, upper = carried_bounds(glru.solve(problem), "primal")
    assert np.array_equal([lower[2], upper[2]], [-np.inf, np.inf])


def test_where_the_families_apply():
    assert not has_carried(make(glru.Logistic(), glru.L2(0.1), fit_intercept=True))
    assert not has_carried(make(glru.Logistic(), glru.L1(0.1)))
    assert has_carried(make(glru.Hinge(), glru.ElasticNet(0.1, 0.1)))
    assert has_local_rows(make(glru.Logistic(), glru.L2(0.1), fit_intercept=True))
    assert not has_local_rows(make(glru.Logistic(), glru.L2(0.1), 5, 6))
    assert not has_local_rows(make(glru.Huber(), glru.L2(0.1)))
    assert not has_local_rows(make(glru.Logistic(), glru.ElasticNet(0.1, 0.1)))
    assert has_newton_rows(make(glru.Huber(), glru.L2(0.1)))
    assert not has_newton_rows(make(glru.Huber(), glru.L2(0.1), fit_intercept=True))
    assert not has_newton_rows(make(glru.Hinge(), glru.L2(0.1)))
    assert not has_newton_rows(make(glru.Logistic(), glru.ElasticNet(0.1, 0.1)))
    assert not has_newton_rows(make(glru.Huber(), glru.L2(0.1), 5, 6))
    assert has_wide_rows(make(glru.Huber(), glru.L2(0.1), 5, 6))
    assert has_wide_rows(make(glru.Logistic(), glru.L2(0.1), 5, 6, fit_intercept=True))
    assert has_wide_rows(make(glru.Squared(), glru.L2([0.0] + [0.1] * 11), 10, 12, fit_intercept=True))
    assert not has_wide_rows(make(glru.Huber(), glru.L2(0.1), 5, 6, fit_intercept=True))
    assert not has_wide_rows(make(glru.Hinge(), glru.L2(0.1), 5, 6))
    assert not has_wide_rows(make(glru.Logistic(), glru.ElasticNet(0.1, 0.1), 5, 6))
    assert not has_wide_rows(make(glru.Logistic(), glru.L2(0.1), 6, 6))


# The local bound ------------------------------------------------------------------------------------------------------


@each(TALL | INTERCEPTS, "shape")
@each(LOCAL, "loss")
def test_local_rows_hold_the_retrained_score(loss, shape):
    for lam, tol in ((0.3, 1e-8), (0.01, 1e-8), (0.05, 1e-2)):
        solution = glru.solve(make(loss, glru.L2(lam), seed=3, **shape), tol=tol)
        scores, off = held_out(solution)
        off = np.minimum(off, 1e-9 * (1.0 + np.abs(scores)))
        closed = family_bounds(solution, LocalRows, lambda family, rows: family.bounds(rows, never))
        assert_inside(scores, off, *closed)
        # Row by row the largest norm is a rough one, unless that leaves the row open.
        for enough in (always, never):
            single = family_bounds(solution, LocalRows, lambda family, rows, e=enough: one_by_one(family, rows, e))
            assert_inside(scores, off, *single)
        np.testing.assert_allclose(single, closed, rtol=1e-9, atol=1e-12)
        for n_steps in (1, 2, 30):
            steps = family_bounds(solution, LocalRows, lambda family, rows, k=n_steps: family.refined(rows, never, k))
            assert_inside(scores, off, *steps)
        # Steps with the old Hessian converge in a line, quickly only where the removal is small.
        if lam == 0.3:
            assert np.all(steps[1] - steps[0] <= 1e-6 * (1.0 + np.abs(scores)))
        assert np.median(steps[1] - steps[0]) <= 1e-8


@each(TALL | INTERCEPTS, "shape")
def test_local_rows_are_exact_for_a_quadratic(shape):
    """One Newton step from any point: what is left of the width is rounding."""
    problem = make(glru.Squared(), glru.L2(0.05), seed=3, **shape)
    for solution in (glru.solve(problem), glru.solve(problem, tol=0.0, until=lambda state: True)):
        lower, upper = family_bounds(solution, LocalRows, lambda family, rows: family.bounds(rows, never))
        assert np.all(upper - lower <= 1e-9 * (1.0 + np.abs(lower)))


def test_local_rows_are_tight():
    """Widths are of second order in the size of the removal; they fall with its square."""
    small = glru.solve(make(glru.Logistic(), glru.L2(0.1), 100, 3, seed=1), tol=1e-14)
    large = glru.solve(make(glru.Logistic(), glru.L2(0.1), 800, 3, seed=1), tol=1e-14)
    widths = []
    for solution in (small, large):
        lower, upper = family_bounds(solution, LocalRows, lambda family, rows: family.bounds(rows, never))
        widths.append(np.median(upper - lower))
        scores = solution.scores
        assert np.median(upper - lower) < 0.05 * np.median(np.abs(scores))
    assert widths[1] < widths[0] / 40.0


@each(TALL | INTERCEPTS, "shape")
@each(LOCAL, "loss")
def test_local_rows_against_60_digits(loss, shape):
    problem = make(loss, glru.L2(0.02), seed=4, **shape)
    solution = glru.solve(problem)
    pairs = [
        family_bounds(solution, LocalRows, lambda family, rows: family.bounds(rows, never)),
        family_bounds(solution, LocalRows, lambda family, rows: family.refined(rows, never, 30)),
    ]
    assert_exactly_inside(solution, pairs, rows=(2, 5))


def test_local_rows_stop_where_they_are_decided():
    solution = glru.solve(make(glru.Logistic(), glru.L2(0.01), 40, 3, seed=3))
    family = LocalRows(solution, 40 / 39)
    rows = np.arange(40)
    calls = []

    def decided(lower, upper):
        calls.append(lower.size)
        return (lower > 0.0) | (upper < 0.0)

    lower, upper = family.refined(rows, decided, 30)
    assert np.all((lower > 0.0) | (upper < 0.0))
    assert calls == sorted(calls, reverse=True)
    assert len(calls) < 30
    assert calls[0] == 40


# Newton candidates ----------------------------------------------------------------------------------------------------


def assert_exactly_inside(solution, pairs, rows):
    """The held-out scores of a few rows, to 60 digits, lie between the bounds."""
    problem = solution.problem
    for row in rows:
        weight = problem.sample_weight.copy()
        weight[row] = 0.0
        best = optimum(derived(problem, weight), solution.coef, solution.intercept, ideal_weights=True)
        assert best is not None
        query = problem.X[row : row + 1]
        for lower, upper in pairs:
            assert not outside(best.scores(query), lower[row], upper[row])


@each(SHAPES, "shape")
@each(SMOOTH, "loss")
def test_newton_rows_hold_the_retrained_score(loss, shape):
    for lam, tol in ((0.05, 1e-8), (0.05, 1e-1)):
        solution = glru.solve(make(loss, glru.L2(lam), seed=5, **shape), tol=tol)
        scores, off = held_out(solution)
        for kind in (TallRows, WideRows):
            bounds = family_bounds(solution, kind, lambda family, rows: family.bounds(rows))
            assert_inside(scores, off, *bounds)
            assert_exactly_inside(solution, [bounds], rows=(3,))


@each(SHAPES, "shape")
@pytest.mark.parametrize("kind", [TallRows, WideRows])
def test_newton_rows_are_exact_for_a_quadratic(kind, shape):
    problem = make(glru.Squared(), glru.L2(0.05), seed=3, **shape)
    for solution in (glru.solve(problem), glru.solve(problem, tol=0.0, until=lambda state: True)):
        lower, upper = family_bounds(solution, kind, lambda family, rows: family.bounds(rows))
        assert np.all(upper - lower <= 1e-6 * (1.0 + np.abs(lower)))


@pytest.mark.parametrize("kind", [TallRows, WideRows])
@pytest.mark.parametrize("scaling", ["mean", "sum"])
def test_newton_rows_have_the_gap_of_their_candidate(kind, scaling):
    """Centre and half-width, written down from the definitions for each row by itself."""
    n, lam = 8, 0.5
    solution = glru.solve(make(glru.Logistic(), glru.L2(lam), n, 3, seed=2, scaling=scaling), tol=1e-3)
    problem, lam = solution.problem, float(solution.problem.penalty.quadratic)
    lower, upper = family_bounds(solution, kind, lambda family, rows: family.bounds(rows))
    for row in range(n):
        s = np.where(np.arange(n) == row, 0.0, 1.0 if scaling == "sum" else 1.0 / (n - 1))
        y, X, z = problem.y, problem.X, solution.scores
        miss = expit(-y * z)
        g, h = -y * miss, miss * (1.0 - miss)
        gradient = X.T @ (s * g) + lam * solution.coef
        move = -np.linalg.solve(X.T @ ((s * h)[:, None] * X) + lam * np.eye(3), gradient)
        q = np.clip(-y * (g + h * (X @ move)), 0.0, 1.0)
        v = X.T @ (s * y * q)
        w = solution.coef + move if kind is TallRows else v / lam
        primal = s @ np.logaddexp(0.0, -y * (X @ w)) + 0.5 * lam * w @ w
        dual = -s @ (xlogy(q, q) + xlogy(1.0 - q, 1.0 - q)) - 0.5 / lam * v @ v
        half = np.sqrt(2.0 * (primal - dual) / lam) * np.linalg.norm(X[row])
        assert np.allclose([lower[row], upper[row]], X[row] @ w + np.array([-half, half]), rtol=1e-5, atol=1e-5 * half)


@each(SHAPES, "shape")
def test_tall_and_wide_rows_agree(shape):
    """The same Newton step, written in the other dimension: the centres differ only as their dual points do."""
    solution = glru.solve(make(glru.Logistic(), glru.L2(0.2), seed=5, **shape), tol=1e-12)
    pairs = [family_bounds(solution, kind, lambda family, rows: family.bounds(rows)) for kind in (TallRows, WideRows)]
    scores, _ = held_out(solution)
    carried = np.subtract(*carried_bounds(solution, "primal")[::-1])
    used = solution.problem.weights > 0.0
    for lower, upper in pairs:
        assert np.all(upper - lower < 0.6 * carried + 1e-9)
        assert np.median((upper - lower)[used]) < 0.2 * np.median(carried[used])
        assert np.all(np.abs(0.5 * (lower + upper) - scores) <= 0.5 * (upper - lower) + 1e-12)


def test_columns_with_strengths_of_their_own():
    for shape in (SHAPES["tall"], SHAPES["wide"]):
        penalty = glru.L2(0.05 + 0.1 * np.arange(shape["d"]))
        solution = glru.solve(make(glru.Logistic(), penalty, seed=5, **shape))
        scores, off = held_out(solution)
        for kind in (TallRows, WideRows) + ((LocalRows,) if shape["n"] >= shape["d"] else ()):
            bounds = family_bounds(
                solution,
                kind,
                lambda family, rows: (
                    family.bounds(rows, never) if isinstance(family, LocalRows) else family.bounds(rows)
                ),
            )
            assert_inside(scores, off, *bounds)
            assert np.isfinite(bounds[0]).sum() >= scores.size - 2


@each(SHAPES, "shape")
@each(SMOOTH, "loss")
def test_refined_wide_rows(loss, shape):
    solution = glru.solve(make(loss, glru.L2(0.1), seed=6, **shape))
    scores, off = held_out(solution)
    factors = removal_factors(solution.problem)
    for row in range(0, scores.size, 3):
        lower, upper = WideRows(solution, float(factors[row])).refined(row, never, 12)
        assert_inside(scores[[row]], off[[row]], lower, upper)
        # Newton steps without a line search may circle around the kinks of the other losses.
        if loss.self_concordance is not None:
            assert upper[0] - lower[0] <= 1e-6


@pytest.mark.parametrize("loss", ["logistic", "squared-hinge"])
def test_exact_steps_of_wide_rows(loss):
    problem = make(LOSSES[loss], glru.L2(1e-3), 10, 24, seed=3)
    lower, upper = WideRows(glru.solve(problem), 10 / 9).stepped(np.arange(10), never, 12, exact=True)
    rows, exact = left_out(problem)
    for row, (score, doubt) in zip(rows, exact, strict=True):
        assert lower[row] <= score + doubt and score - doubt <= upper[row]
    assert rows.size == 10
    if loss == "logistic":
        assert np.all(upper - lower < 1e-6)
