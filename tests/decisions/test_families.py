"""All removals at once against one removal at a time."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import glru
from tests.attack.cases import left_out
from tests.attack.generators import hostile_wide_problem
from tests.cases import LOSSES, dense, each, make
from tests.certificates.exact import optimum, outside
from tests.core import (
    AscentRows,
    Balls,
    LocalRows,
    ProductRows,
    RowModels,
    SecondMoments,
    ThirdDerivatives,
    WideRows,
    bound_carried,
    bound_centred,
    bound_to_second_order,
    coordinates,
    has_ascent,
    has_carried,
    has_centred,
    has_local_rows,
    has_product_rows,
    has_row_models,
    has_wide_rows,
    product_rows,
    removal_factors,
    wide_rows,
)
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


def one_by_one(family, rows):
    pairs = [family.bounds(rows[k : k + 1]) for k in range(rows.size)]
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
    lower, upper = bound_carried(solution, "primal")
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
    lower, upper = bound_carried(solution, "dual")
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
        both = [bound_carried(solution, bound) for bound in ("primal", "dual", "auto", "midpoint")]
        for bounds in both:
            assert_inside(scores, off, *bounds)
        # The smaller ball lies in the paper's one, and has half its radius where the model is trained well.
        (lower, upper), middle = both[0], both[3]
        slack = 1e-9 * (1.0 + np.abs(lower) + np.abs(upper))
        assert np.all((middle[0] >= lower - slack) & (middle[1] <= upper + slack))
        if tol == 1e-8:
            assert np.median((middle[1] - middle[0]) / (upper - lower)) < 0.51
        assert np.array_equal(both[2][0], np.maximum(both[0][0], both[1][0]))
        assert np.array_equal(both[2][1], np.minimum(both[0][1], both[1][1]))


def test_rows_without_values_score_exactly_zero():
    X = np.array([[1.0, 2.0], [0.0, 0.0], [-1.0, 0.5], [1e-200, 0.0], [0.3, -1.0]])
    problem = glru.Problem(X, [1, -1, 1, -1, -1], penalty=glru.L2(0.3))
    lower, upper = bound_carried(glru.solve(problem), "midpoint")
    assert np.array_equal((lower == 0.0) & (upper == 0.0), np.arange(5) == 1)
    result = glru.loocv(problem, width="labels")
    assert result.bounds.ties[1] and result.bounds.decided[1]


def test_carried_with_an_infinite_factor():
    """The only row of weight above 0: nothing is left, nothing is proven."""
    weight = np.array([0.0, 0.0, 3.0, 0.0])
    problem = glru.Problem(np.eye(4), [1, -1, 1, -1], penalty=glru.L2(0.3), sample_weight=weight)
    with np.errstate(all="ignore"):
        lower, upper = bound_carried(glru.solve(problem), "primal")
    assert np.array_equal([lower[2], upper[2]], [-np.inf, np.inf])


def test_where_the_families_apply():
    assert not has_carried(make(glru.Logistic(), glru.L2(0.1), fit_intercept=True))
    assert not has_carried(make(glru.Logistic(), glru.L1(0.1)))
    assert has_carried(make(glru.Hinge(), glru.ElasticNet(0.1, 0.1)))
    assert has_local_rows(make(glru.Logistic(), glru.L2(0.1), fit_intercept=True))
    assert not has_local_rows(make(glru.Logistic(), glru.L2(0.1), 5, 6))
    assert not has_local_rows(make(glru.Huber(), glru.L2(0.1)))
    assert not has_local_rows(make(glru.Logistic(), glru.ElasticNet(0.1, 0.1)))
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
        closed = family_bounds(solution, LocalRows, lambda family, rows: family.bounds(rows))
        assert_inside(scores, off, *closed)
        single = family_bounds(solution, LocalRows, one_by_one)
        np.testing.assert_allclose(single, closed, rtol=1e-9, atol=1e-12)
        for n_steps in (1, 2, 30):
            steps = family_bounds(solution, LocalRows, lambda family, rows, k=n_steps: family.refined(rows, never, k))
            assert_inside(scores, off, *steps)
        # Steps with the old Hessian converge in a line, quickly only where the removal is small; the last rows of a batch are left
        # to steps of their own.
        if lam == 0.3:
            assert np.count_nonzero(steps[1] - steps[0] > 1e-6 * (1.0 + np.abs(scores))) <= 1
        assert np.median(steps[1] - steps[0]) <= 1e-8


@each(TALL | INTERCEPTS, "shape")
def test_local_rows_are_exact_for_a_quadratic(shape):
    """One Newton step from any point: what is left of the width is rounding."""
    problem = make(glru.Squared(), glru.L2(0.05), seed=3, **shape)
    for solution in (glru.solve(problem), glru.solve(problem, tol=0.0, until=lambda state: True)):
        lower, upper = family_bounds(solution, LocalRows, lambda family, rows: family.bounds(rows))
        assert np.all(upper - lower <= 1e-9 * (1.0 + np.abs(lower)))


def test_local_rows_are_tight():
    """Widths are of second order in the size of the removal; they fall with its square."""
    small = glru.solve(make(glru.Logistic(), glru.L2(0.1), 100, 3, seed=1), tol=1e-14)
    large = glru.solve(make(glru.Logistic(), glru.L2(0.1), 800, 3, seed=1), tol=1e-14)
    widths = []
    for solution in (small, large):
        lower, upper = family_bounds(solution, LocalRows, lambda family, rows: family.bounds(rows))
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
        family_bounds(solution, LocalRows, lambda family, rows: family.bounds(rows)),
        family_bounds(solution, LocalRows, lambda family, rows: family.refined(rows, never, 30)),
    ]
    assert_exactly_inside(solution, pairs, rows=(2, 5))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_long_rows_count_by_their_own_moves(seed, fit_intercept):
    """A few rows far from the others: the norms of all that are left out are not those of the farthest."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(32, 2))
    X[:3] *= 6.0
    y = np.where(X[:, 0] + random.normal(size=32) > 0.0, 1.0, -1.0)
    y[:3] *= -1.0
    solution = glru.solve(glru.Problem(X, y, penalty=glru.L2(0.02), fit_intercept=fit_intercept), tol=1e-12)
    scores, off = held_out(solution)
    off = np.minimum(off, 1e-9 * (1.0 + np.abs(scores)))
    plain = family_bounds(solution, LocalRows, lambda family, rows: family.bounds(rows))
    sharp = family_bounds(solution, LocalRows, lambda family, rows: family.bound_by_moves(rows))
    assert_inside(scores, off, *sharp)
    with np.errstate(invalid="ignore"):
        narrower = (sharp[1] - sharp[0] < 0.9 * (plain[1] - plain[0])) | (np.isfinite(sharp[1]) & np.isinf(plain[1]))
    assert np.any(narrower)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_few_rows_that_move_far_leave_the_others_bounded(seed, fit_intercept):
    """Rows of huge margins move far under every removal; their curvatures carry nothing, and intervals stay finite without them."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(60, 4))
    X[:3] *= 1e3
    X[:3, 0] = np.copysign(3e3, X[:3, 0])
    y = np.where(X[:, 0] + random.normal(size=60) > 0.0, 1.0, -1.0)
    y[:3] = np.sign(X[:3, 0])
    solution = glru.solve(glru.Problem(X, y, penalty=glru.L2(0.01), fit_intercept=fit_intercept), tol=1e-12)
    factor = float(removal_factors(solution.problem)[0])
    family, rows = LocalRows(LocalRows(solution, factor), factor), np.arange(60)
    assert family.usable
    assert np.sum(family.shares[:3]) < 0.5
    scores, off = held_out(solution)
    off = np.minimum(off, 1e-8 * (1.0 + np.abs(scores)))
    first = family.refined(rows, never, 1)
    assert_inside(scores, off, *first)
    assert np.mean(np.isfinite(first[1])) > 0.7
    assert_inside(scores, off, *family.refined(rows, never, 12))


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_shares_of_rows_bound_what_their_curvatures_carry(fit_intercept):
    """No row's part of the Hessian is larger than its share of the metric."""
    problem = make(glru.Logistic(), glru.L2(0.05), n=40, d=3, fit_intercept=fit_intercept)
    family = LocalRows(glru.solve(problem), 40 / 39)
    places = coordinates(problem, family.base.metric)
    curvatures = family.factors[1] * problem.weights * family.values.curvatures
    assert np.all(curvatures * np.square(places).sum(axis=1) <= family.shares)
    assert np.all(family.shares <= 1.1 * curvatures * np.square(places).sum(axis=1))
    assert family.norm_cuts[0][1] == 0.0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("lam", [0.02, 1e-4])
def test_rows_to_second_order(seed, fit_intercept, lam):
    """Bounds of third order in the moves hold, also where the units of the columns differ, and are the narrower ones of small moves."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(240, 3)) * [1.0, 1e-4, 1e5]
    X[:2] *= 3.0
    y = np.where(X[:, 0] + random.normal(size=240) > 0.0, 1.0, -1.0)
    strengths = np.full(3, lam) * [1.0, 1e-8, 1e10]
    problem = glru.Problem(X, y, penalty=glru.L2(strengths), fit_intercept=fit_intercept)
    solution = glru.solve(problem, tol=1e-12)
    scores, off = held_out(solution)
    off = np.minimum(off, 1e-11 * (1.0 + np.abs(scores)))
    plain = family_bounds(solution, LocalRows, lambda family, rows: family.bounds(rows))
    sharp = family_bounds(solution, LocalRows, lambda family, rows: family.bound_by_moves(rows))
    second = family_bounds(solution, LocalRows, bound_to_second_order)
    assert_inside(scores, off, *sharp)
    assert_inside(scores, off, *second)
    assert np.median(sharp[1] - sharp[0]) < np.median(plain[1] - plain[0])
    assert np.median(second[1] - second[0]) < 0.6 * np.median(sharp[1] - sharp[0])


@pytest.mark.parametrize("seed", [12, 45])
def test_rows_to_second_order_with_few_long_rows(seed):
    """Here the fourth powers of the rows' norms are most of the bound."""
    random = np.random.default_rng(seed)
    X = np.exp(random.normal(size=(20, 1)))
    y = np.where(np.log(X[:, 0]) + random.logistic(size=20) > 0.0, 1.0, -1.0)
    solution = glru.solve(glru.Problem(X, y, penalty=glru.L2(2.0**-10), fit_intercept=True), tol=1e-12)
    scores, off = held_out(solution)
    bounds = family_bounds(solution, LocalRows, bound_to_second_order)
    assert np.isfinite(bounds).any()
    assert_inside(scores, np.minimum(off, 1e-11 * (1.0 + np.abs(scores))), *bounds)


@pytest.mark.parametrize("spoil", ["far", "twice", "unpenalised", "units"])
def test_more_than_a_few_open_rows_of_a_metric_that_cannot_be_formed(spoil):
    """No sharper bounds are asked for where there is no base."""
    random = np.random.default_rng(0)
    X, lam = random.normal(size=(40, 3)), 1e-6
    y = np.where(X[:, 0] + random.normal(size=40) > 0.0, 1.0, -1.0)
    if spoil == "far":
        X += 1e9
    elif spoil == "twice":
        X, lam = 100.0 * X[:, [0, 1, 1]], 1e-14
    elif spoil == "unpenalised":
        X, lam = X[:, [0, 1, 1]], np.zeros(3)
    else:
        X *= 1e160
    problem = glru.Problem(X, y, penalty=glru.L2(lam), fit_intercept=True)
    solution = glru.solve(problem, until=lambda state: True)
    assert not LocalRows(solution, 40 / 39).usable
    result = glru.loocv(solution, width=1e-3, max_seconds=0.2)
    assert np.all(result.score_lower <= result.score_upper)


@pytest.mark.parametrize("exponent", [-800, -600, -520, 520, 800])
@pytest.mark.parametrize("loss", [glru.Logistic(), glru.SquaredHinge()], ids=repr)
@each({"tall": (40, 3), "wide": (12, 30)}, "shape")
def test_an_objective_of_any_size(shape, loss, exponent):
    """Weights and strengths times a power of two have the same optimum, whatever underflows or overflows on the way."""
    random = np.random.default_rng(0)
    X = random.normal(size=shape)
    y = np.where(X[:, 0] + random.normal(size=shape[0]) > 0.0, 1.0, -1.0)
    scores, off = held_out(glru.solve(glru.Problem(X, y, loss, glru.L2(0.5), scaling="sum"), tol=1e-12))
    unit = 2.0**exponent
    problem = glru.Problem(X, y, loss, glru.L2(0.5 * unit), scaling="sum", sample_weight=np.full(shape[0], unit))
    solution, rows = glru.solve(problem), np.arange(shape[0])
    found = [bound_carried(solution, bound) for bound in ("primal", "dual", "midpoint")]
    if has_local_rows(problem):
        family = LocalRows(solution, 1.0)
        found += [family.bounds(rows), family.bound_by_moves(rows), bound_to_second_order(family, rows)]
    if has_row_models(problem):
        found += [WideRows(solution).bound_quickly(rows), WideRows(solution).bounds(rows, never, 3)]
    result = glru.loocv(solution, width=1e-6, max_seconds=5.0)
    for bounds in [*found, (result.score_lower, result.score_upper)]:
        assert_inside(scores, off, *bounds)


@pytest.mark.parametrize("seed", range(12))
def test_wide_objectives_of_any_size_with_an_intercept(seed):
    """What the free coordinates leave of the gradient counts, though its square underflows."""
    random = np.random.default_rng(seed)
    n, d = int(random.integers(8, 40)), int(random.choice([30, 60]))
    X, y = random.normal(size=(n, d)), np.where(random.random(n) < 0.3, 1.0, -1.0)
    y[:2], y[2:4] = 1.0, -1.0
    lam = 10.0 ** random.uniform(0.0, 6.0)

    def make_problem(unit):
        return glru.Problem(
            X, y, penalty=glru.L2(unit * lam), fit_intercept=True, scaling="sum", sample_weight=np.full(n, unit)
        )

    plain = glru.loocv(make_problem(1.0), width=1e-9)
    solution = glru.solve(make_problem(2.0**-600), tol=1e-4)
    family, rows = WideRows(solution), np.arange(n)
    for lower, upper in (family.bounds(rows, never, 4), family.bound_by_balls(rows, never)):
        assert np.all((lower <= plain.score_upper) & (plain.score_lower <= upper))


def test_a_row_without_weight_is_not_in_the_way():
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 2))
    y, weight = np.where(X[:, 0] + random.normal(size=60) > 0.0, 1.0, -1.0), np.ones(60)
    X[7], weight[7] = 1e154, 0.0
    solution = glru.solve(glru.Problem(X, y, penalty=glru.L2(0.1), sample_weight=weight, scaling="sum"))
    family, rows = LocalRows(solution, 1.0), np.delete(np.arange(60), 7)
    for lower, upper in (
        bound_to_second_order(family, rows),
        family.refined(rows, never, 2),
        family.bound_by_moves(rows),
    ):
        assert np.all(np.isfinite(upper - lower))


@pytest.mark.parametrize("exponent", [-600, 500, 700])
def test_rows_to_second_order_in_any_units(exponent):
    """Weights and strengths times a power of two leave the model as it is; norms in the metric shrink by its root."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = np.where(X[:, 0] + rng.logistic(size=40) > 0.0, 1.0, -1.0)
    widths = []
    for unit in (1.0, 2.0**exponent):
        problem = glru.Problem(X, y, penalty=glru.L2(unit), scaling="sum", sample_weight=np.full(40, unit))
        with np.errstate(all="ignore"):
            lower, upper = bound_to_second_order(LocalRows(glru.solve(problem, tol=1e-12)), np.arange(40))
        widths.append(upper - lower)
    np.testing.assert_allclose(*widths, rtol=1e-6)


@each(TALL | INTERCEPTS, "shape")
def test_rows_to_second_order_against_60_digits(shape):
    solution = glru.solve(make(glru.Logistic(), glru.L2(0.02), seed=4, **shape))
    pairs = [
        family_bounds(solution, LocalRows, bound_to_second_order),
        family_bounds(solution, LocalRows, lambda family, rows: family.bound_by_moves(rows)),
    ]
    assert_exactly_inside(solution, pairs, rows=(2, 5))


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_moments_are_those_of_a_loop_over_the_rows(fit_intercept):
    random = np.random.default_rng(0)
    problem = glru.Problem(random.normal(size=(50, 4)), np.sign(random.normal(size=50)), fit_intercept=fit_intercept)
    family = LocalRows(glru.solve(problem), 50 / 49)
    metric, weights = family.base.metric, random.random(50)
    places, steps = coordinates(problem, metric), random.normal(size=(6, metric.size))
    moves = places @ steps.T
    norms, lengths = np.linalg.norm(places, axis=1), np.linalg.norm(steps, axis=1)
    found = SecondMoments.of(problem, metric, weights, norms).sizes(steps, lengths)
    exact = np.sqrt(weights @ np.square(moves))
    assert np.all((found >= exact) & (found <= exact * (1.0 + 1e-9)))
    third = ThirdDerivatives(problem, metric, weights)
    for along in (third.along(steps), third.along(steps, n_steps=6)):
        np.testing.assert_allclose(along, 0.5 * (np.square(moves).T * weights) @ places, rtol=1e-12)


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


def test_columns_with_strengths_of_their_own():
    penalty = glru.L2(0.05 + 0.1 * np.arange(3))
    solution = glru.solve(make(glru.Logistic(), penalty, seed=5, **SHAPES["tall"]))
    scores, off = held_out(solution)
    bounds = family_bounds(solution, LocalRows, lambda family, rows: family.bounds(rows))
    assert_inside(scores, off, *bounds)
    assert np.isfinite(bounds[0]).sum() >= scores.size - 2


# The dimension of the rows --------------------------------------------------------------------------------------------

ROW_SHAPES = SHAPES | {
    "wide-weighted": {"n": 8, "d": 14, "sample_weight": 0.5 + np.arange(8) % 3},
    "sparse-wide": {"n": 9, "d": 20, "density": 0.3},
}
"""The row side holds for any shape; it is used where it is the smaller one."""

FREE = {f"{name}-intercept": shape | {"fit_intercept": True} for name, shape in ROW_SHAPES.items()}
ROW_PENALTIES = {
    "l2": lambda d: glru.L2(0.05),
    "l2-columns": lambda d: glru.L2(0.05 + 0.1 * np.arange(d)),
    "free-column": lambda d: glru.L2(np.where(np.arange(d) == 1, 0.0, 0.05)),
}


def wide_bounds(family, rows, n_steps=4):
    """What every way of asking the row side proves, by name."""
    found = {"quick": family.bound_quickly(rows), "steps": family.bounds(rows, never, n_steps)}
    if family.has_balls:
        found["balls"] = family.bound_by_balls(rows, never)
    ends = [np.full(rows.size, -np.inf), np.full(rows.size, np.inf)]
    for place in range(0, rows.size, 3):
        if np.isfinite(family.factors[rows[place]]):
            one = family.refine_one(int(rows[place]), lambda *bounds: False, 8)
            ends[0][place], ends[1][place] = one.lower[0], one.upper[0]
    return found | {"alone": tuple(ends)}


@each(ROW_SHAPES | FREE, "shape")
@each(ROW_PENALTIES, "penalty")
@each(SMOOTH, "loss")
@np.errstate(all="ignore")
def test_wide_rows_hold_the_retrained_score(loss, penalty, shape):
    """Weights, intercepts, free columns, sparse data: each bound against the exact optimum without a row."""
    problem = make(loss, penalty(shape["d"]), seed=5, **shape)
    if not has_row_models(problem):
        pytest.skip("the gap certifies models without free coordinates only")
    if problem.unpenalised.size and loss.task == "classification":
        pytest.skip("a free column that separates the few rows has no optimum")
    for tol in (1e-8, 1e-1):
        family = WideRows(glru.solve(problem, tol=tol))
        for lower, upper in wide_bounds(family, np.arange(problem.n_rows)).values():
            assert_exactly_inside(glru.solve(problem), [(lower, upper)], rows=(0, 3))


@each(ROW_SHAPES | FREE, "shape")
@np.errstate(all="ignore")
def test_wide_rows_are_exact_for_a_quadratic(shape):
    """One step ends at the optimum; the bounds are as narrow as rounding allows."""
    problem = make(glru.Squared(), glru.L2(0.05), seed=3, **shape)
    for solution in (glru.solve(problem), glru.solve(problem, tol=0.0, until=lambda state: True)):
        family = WideRows(solution)
        rows = np.flatnonzero(family.factors < 1.5)
        for name, (lower, upper) in wide_bounds(family, rows, 30).items():
            known = upper - lower if name != "alone" else (upper - lower)[::3]
            # Where weights differ, the steps are those of the median one.
            if name not in ("quick", "balls") or np.unique(family.factors[rows]).size == 1:
                assert np.all(known <= 1e-6), name


@each(ROW_SHAPES | FREE, "shape")
@np.errstate(all="ignore")
def test_newton_steps_of_wide_rows_converge(shape):
    problem = make(glru.Logistic(), glru.L2(0.1), seed=6, **shape)
    family = WideRows(glru.solve(problem))
    rows = np.flatnonzero(np.isfinite(family.factors))
    lower, upper = wide_bounds(family, rows)["alone"]
    assert np.all((upper - lower)[::3] <= 1e-8)
    assert np.median(np.subtract(*family.bounds(rows, never, 12)[::-1])) <= 1e-10


@each(ROW_SHAPES, "shape")
@np.errstate(all="ignore")
def test_few_leverages_prove_what_all_of_them_do(shape, monkeypatch):
    """Leverages of the asked rows alone: the same candidates, other norms."""
    solution = glru.solve(make(glru.Logistic(), glru.L2(0.03), seed=6, **shape))
    rows = np.arange(solution.problem.n_rows)
    whole = WideRows(solution).guesses(rows)
    monkeypatch.setattr(wide_rows, "MANY_SOLVES", 1)
    monkeypatch.setattr(wide_rows, "FEWEST_ROWS", 0)
    few = WideRows(solution)
    np.testing.assert_allclose(few.guesses(rows[1::3]), whole[1::3], rtol=1e-8, atol=1e-10)
    assert "leverages" not in few.metric.__dict__
    assert_exactly_inside(solution, [few.bound_quickly(rows), few.bounds(rows, never, 4)], rows=(0, 3))


@each({name: INTERCEPTS[name] for name in ("tall-intercept", "sparse-intercept", "heavy-row-intercept")}, "shape")
@np.errstate(all="ignore")
def test_carried_rows_with_an_intercept(shape):
    """The score moves to the other side, by at most what the row's distance from the mean and the intercept allow."""
    problem = make(glru.Logistic(), glru.L2(0.5), seed=4, **shape)
    assert has_centred(problem)
    bounds = [bound_centred(glru.solve(problem, tol=tol)) for tol in (1e-10, 1e-2)]
    assert np.isfinite(bounds[0][0][[0, 3]]).any()
    assert_exactly_inside(glru.solve(problem), bounds, rows=(0, 3, 5))


def test_carried_rows_with_an_intercept_reach_the_retrained_scores():
    """Where the penalty is nearly all of the Hessian, the ends of the bounds are nearly reached."""
    base = make(glru.Logistic(), glru.L2(1.0), 60, 40, seed=2, fit_intercept=True)
    solution = glru.solve(base.derive(matrix=base.matrix.scale_columns(np.full(40, 0.5))), tol=1e-10)
    lower, upper = bound_centred(solution)
    scores, off = held_out(solution)
    assert_inside(scores, off, lower, upper)
    moved = np.abs(scores - solution.scores)
    assert np.median(moved / np.maximum(upper - solution.scores, solution.scores - lower)) > 0.4


def test_half_widths_and_radii_are_those_of_the_same_rows_that_hold():
    """Their quotient is a norm of the row: mixed from two choices of rows it would be none."""
    problem = make(glru.Logistic(), glru.L2(0.5), 40, 20, seed=2, fit_intercept=True)
    solution, asked, rows = glru.solve(problem), [], np.arange(40)
    _, _, curvatures = problem.loss.expand(problem.y, solution.scores)
    balls = Balls(RowModels(problem), solution.scores, problem.weights * curvatures, removal_factors(problem), 0.8)

    def find_radii(border, reach):
        # Against the order of the norms, so that the least radius is not that of the least norm.
        asked.append((reach, 1e-4 / reach**0.5))
        return asked[-1][1]

    nothing = np.zeros(40)
    half, radii = balls.held(rows, None, (nothing, nothing), nothing, find_radii, (0.5, 2.0, 4.0))
    known = np.array([np.isclose(half, reach * size) & np.isclose(radii, size) for reach, size in asked])
    assert len(asked) == 6 and np.all(known.any(axis=0) | np.isinf(half)) and np.isfinite(half).any()


@each({"sparse-wide": ROW_SHAPES["sparse-wide"], "text": {"n": 40, "d": 90, "density": 0.1}}, "shape")
@pytest.mark.parametrize("fit_intercept", [False, True])
@np.errstate(all="ignore")
def test_balls_around_candidates_hold_the_exact_optimum(shape, fit_intercept):
    """The ball of the duality gap around each candidate holds the exact optimum."""
    problem = make(glru.Logistic(), glru.L2(0.02), seed=8, **shape, fit_intercept=fit_intercept)
    solution, rows = glru.solve(problem), np.arange(problem.n_rows)
    found = WideRows(solution).bound_by_balls(rows, never)
    assert_exactly_inside(solution, [found], rows=(0, 3, 7))
    assert np.count_nonzero(np.isfinite(found[1])) >= 0.8 * rows.size


def make_wide_problem(scales, C, **options):
    """A logistic problem with columns of some sizes, or any other loss."""
    random = np.random.default_rng(3)
    X = random.normal(size=(30, 45))
    y = np.sign(X @ random.normal(size=45) + random.normal(size=30))
    return glru.Problem(X * scales, y, penalty=glru.L2(1.0 / C), scaling="sum", **options)


UNITS = 10.0 ** np.linspace(-3.0, 3.0, 45)
LONG = np.where(np.arange(45) == 7, 1e5, 1.0)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("C", [1.0, 100.0])
def test_rows_of_wide_data_step_with_hessians_of_their_own(C, fit_intercept):
    """Models that leaving a row out changes much reach their optima together, none by itself."""
    problem = make_wide_problem(UNITS, C, fit_intercept=fit_intercept)
    solution, rows = glru.solve(problem), np.arange(30)
    family = WideRows(solution)
    models = family.begin_own_steps(rows)
    for _ in range(15):
        models = models.step(np.ones(30, dtype=bool))
    scores, off = held_out(solution)
    near = family.side.scores(models.duals, models.free)[rows, rows]
    assert np.all(np.abs(near - scores) <= off + 1e-6 * (1.0 + np.abs(scores)))
    assert sorted(family.candidates) == list(rows)
    found = family.bound_by_balls(rows, never)
    assert_inside(scores, off, *found)
    assert_exactly_inside(solution, [found], rows=(0, 7))
    result = glru.loocv(solution, width="labels")
    assert result.n_trainings == 0 and result.decided_by.get("refine", 0) <= 3
    assert np.array_equal(result.bounds.signs, np.sign(scores))


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Squared()], ids=["logistic", "squared"])
def test_wide_data_with_a_long_column_is_worked_on_over_its_columns(loss, fit_intercept):
    """As sums over the rows its scores lose the digits that tell their signs."""
    problem = make_wide_problem(LONG, 100.0, loss=loss, fit_intercept=fit_intercept)
    solution = glru.solve(problem)
    result, (family, rows) = glru.loocv(solution), (LocalRows(solution), np.arange(30))
    assert result.n_trainings <= 1
    assert result.bounds.decided.all() or loss.task == "regression"
    found = [(result.score_lower, result.score_upper), family.refined(rows, never, 8)]
    assert_exactly_inside(solution, found, rows=(0, 7, 13))


@np.errstate(all="ignore")
def test_steps_of_their_own_end_where_numbers_overflow():
    family = WideRows(glru.solve(make_wide_problem(UNITS, 1.0)))
    duals, free = np.full((30, 2), 1e308), np.zeros((0, 2))
    moves, change, descents = family.step_alone(np.array([1, 4]), duals, free)
    assert not moves.any() and not change.any() and not descents.any()


@pytest.mark.parametrize("shift", [-0.02, 0.0, 0.02])
@np.errstate(all="ignore")
def test_balls_around_models_with_a_wrong_intercept(shift):
    """At the optimum for a fixed intercept every Fenchel-Young term is zero, and the gradient but for one entry; what its duals miss of their constraint is the whole distance."""
    problem = make(glru.Logistic(), glru.L2(0.05), 30, 40, seed=9, fit_intercept=True, density=0.2)
    solution, X = glru.solve(problem, tol=1e-12), problem.matrix.dense()
    family, row = WideRows(solution), 4
    weights, w = family.factors[row] * problem.weights, solution.coef.copy()
    weights[row], intercept = 0.0, solution.intercept + shift
    for _ in range(20):
        _, slopes, curvatures = problem.loss.expand(problem.y, X @ w + intercept)
        hessian = 0.05 * np.eye(40) + X.T @ ((weights * curvatures)[:, None] * X)
        w -= np.linalg.solve(hessian, 0.05 * w + X.T @ (weights * slopes))
    duals = -(weights * problem.loss.gradient(problem.y, X @ w + intercept))[:, None]
    rows, free = np.array([row]), np.array([[intercept]])
    entries = rows, np.array([0])
    duals, scores, gaps = family.gaps(family._weights(rows), duals, entries, free)
    half, _ = family.balls.half_widths(rows, duals, scores, free, gaps)
    assert gaps[0] < 1e-12 and np.isfinite(half[0])
    missed = np.abs(weights @ problem.loss.gradient(problem.y, X @ w + intercept)) + np.full(1, 1e-12)
    errors = family.side.score_errors(duals, free)
    by_gradient = family.balls.half_widths_by_gradients(rows, scores, errors, np.full(1, 1e-12), missed)
    assert np.isfinite(by_gradient[0])
    for most in (half[0], by_gradient[0]):
        lower, upper = np.full(30, -np.inf), np.full(30, np.inf)
        lower[row], upper[row] = scores[row, 0] - most, scores[row, 0] + most
        assert_exactly_inside(solution, [(lower, upper)], rows=(row,))


@each({name: SHAPES[name] for name in ("wide", "sparse", "heavy-row")}, "shape")
@np.errstate(all="ignore")
def test_ascent_of_single_rows(shape):
    problem = make(LOSSES["hinge"], glru.L2(0.1), seed=5, **shape)
    assert has_ascent(problem)
    solution = glru.solve(problem)
    assert_inside(*held_out(solution), *AscentRows(solution).bounds(np.arange(problem.n_rows), never))


@each({name: ROW_SHAPES[name] for name in ("wide", "wide-weighted", "sparse", "heavy-row", "zero-weights")}, "shape")
@pytest.mark.parametrize("fit_intercept", [False, True])
@np.errstate(all="ignore")
def test_products_of_single_rows(fit_intercept, shape):
    problem = make(glru.Logistic(), glru.L2(0.1), seed=5, **shape, fit_intercept=fit_intercept)
    assert has_product_rows(problem)
    solution = glru.solve(problem)
    lower, upper = ProductRows(solution).bounds(np.arange(problem.n_rows), never)
    assert_inside(*held_out(solution), lower, upper)
    assert np.median(upper - lower) < (4.0 if fit_intercept else 1e-2)
    assert_exactly_inside(solution, [(lower, upper)], rows=(0, 4))


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_products_of_sparse_rows(fit_intercept):
    """Directions of the preconditioner, columns in one row only, and scores that follow from sums of many images."""
    problem = make(glru.Logistic(), glru.L2(0.02), 60, 90, seed=3, fit_intercept=fit_intercept, density=0.05)
    solution, rows = glru.solve(problem), np.arange(problem.n_rows)
    family = ProductRows(solution)
    assert np.count_nonzero(family.side.gram.own) > 5
    lower, upper = family.bounds(rows, never)
    assert family.directions.values.size == 3
    assert np.all(np.isfinite(upper)) and np.median(upper - lower) < 1e-3
    assert_exactly_inside(solution, [(lower, upper)], rows=(0, 7, 20))
    few, _ = family.bounds(rows, never, limit=0.0)
    assert np.isfinite(few).sum() == 8


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("shape", [(120, 40), (90, 150)], ids=["tall", "wide"])
def test_labels_of_sparse_data_that_is_too_large_for_a_hessian(monkeypatch, shape, fit_intercept):
    """No factor in either dimension: the carried bound and products with X decide all labels without a training."""
    problem = make(glru.Logistic(), glru.L2(0.01), *shape, seed=2, fit_intercept=fit_intercept, density=0.1)
    expected = glru.loocv(problem, width="labels")
    monkeypatch.setattr(type(problem.matrix), "largest", 10)
    found = glru.loocv(problem, width="labels")
    assert found.n_trainings == 0 and found.bounds.decided.all()
    assert np.count_nonzero(found.stages == "refine") > 5
    np.testing.assert_array_equal(found.bounds.signs, expected.bounds.signs)


@pytest.mark.parametrize("size", [10.0, 30.0, 100.0, 300.0])
@pytest.mark.parametrize("lam", [0.1, 1.0])
@np.errstate(all="ignore")
def test_rows_of_leverages_near_one(size, lam):
    """The only row with a value in a column, whose leverage is 1 up to 1e-6 to 1e-9: bounds around the ends of Newton steps hold the exact score."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(12, 2)), np.zeros(12)])
    y = rng.poisson(np.exp(0.5 * X[:, 0] + 1.0)).astype(float)
    X[0, 2], y[0] = size, 1000.0
    problem = glru.Problem(X, y, glru.Poisson(), glru.L2(lam), fit_intercept=True, scaling="sum")
    solution = glru.solve(problem, tol=1e-13)
    family = LocalRows(solution, 1.0)
    assert 0.0 < family.removals(np.array([0])).metric_shares[0] < 1e-4
    for n_steps in (1, 2, 3):
        lower, upper = family.refined(np.array([0]), never, n_steps)
        assert np.isfinite(upper[0] - lower[0])
        assert_exactly_inside(solution, [(lower, upper)], rows=(0,))


def test_products_of_rows_that_nothing_is_proven_of(monkeypatch):
    """A row of more than half the weight, and columns whose products overflow: no bound, and no error."""
    problem = make(glru.Logistic(), glru.L2(0.1), 20, 30, seed=4, density=0.3)
    heavy = problem.derive(sample_weight=np.append(100.0, np.ones(19)))
    lower, upper = ProductRows(glru.solve(heavy)).bounds(np.array([0]), never)
    assert np.isneginf(lower).all() and np.isposinf(upper).all()
    X = sp.csr_array(np.where(np.arange(7)[:, None] % 3 == 2, [[1.5e150, 0.0]], [[0.0, 1e-151]]))
    huge = glru.Problem(X, np.where(np.arange(7) % 2, 1.0, -1.0), glru.Logistic(), glru.L2(1e-9))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        family = ProductRows(glru.solve(huge))
        with monkeypatch.context() as patched:
            patched.setattr(product_rows, "ROWS_PER_DIRECTION", 1)
            lower, upper = family.bounds(np.arange(7), never)
    assert not np.isnan(lower).any() and not np.isnan(upper).any()


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_scores_of_product_steps_are_within_their_errors(fit_intercept):
    problem = make(glru.Logistic(), glru.L2(0.02), 60, 90, seed=3, fit_intercept=fit_intercept, density=0.05)
    family, rows = ProductRows(glru.solve(problem)), np.array([2, 5, 33])
    family.bounds(rows, never)
    X, here = problem.matrix.dense().astype(np.longdouble), product_rows.ProductSteps.first(family, rows)
    for _ in range(6):
        scores = X @ (X.T @ here.duals / np.longdouble(0.02)) + (here.free if fit_intercept else 0.0)
        assert np.all(here.duals[here.entries] == 0.0)
        errors = family.side.norms[:, None] * here.errors[0] + here.errors[1]
        assert np.all(np.abs(here.scores - scores) <= errors)
        assert errors.max() < 1e-9
        here = here.step(np.ones(3, dtype=bool))


@pytest.mark.parametrize("loss", ["logistic", "squared-hinge"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@np.errstate(all="ignore")
def test_weak_penalties_of_wide_rows(loss, fit_intercept):
    """Nearly separated data, where a removal moves scores far: single models with a line search get there."""
    problem = make(LOSSES[loss], glru.L2(1e-3), 10, 24, seed=3, fit_intercept=fit_intercept)
    if not has_row_models(problem):
        pytest.skip("the gap certifies models without free coordinates only")
    family = WideRows(glru.solve(problem))
    rows, exact = left_out(problem)
    for row, (score, doubt) in zip(rows, exact, strict=True):
        found = family.refine_one(int(row), lambda *ends: False)
        assert found.lower[0] <= score + doubt and score - doubt <= found.upper[0]
        assert found.upper[0] - found.lower[0] < 1e-5
    assert rows.size == 10


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("spread", [1.0, 30.0])
@np.errstate(all="ignore")
def test_steps_of_removals_that_move_far(fit_intercept, spread, monkeypatch):
    """Weak penalties, columns of other units, duplicated rows: bounds hold after every number of steps with the old Hessian, and no step widens them."""
    monkeypatch.setattr(WideRows, "begin_own_steps", lambda self, rows: None)
    reached = 0
    for seed, lam in enumerate((1e-5, 1e-2)):
        base = make(glru.Logistic(), glru.L2(lam), 7, 24, seed=seed, fit_intercept=fit_intercept)
        X = np.vstack([base.X, base.X[:1]]) * np.where(np.arange(24) % 3 == 0, spread, 1.0)
        problem = glru.Problem(X, np.append(base.y, base.y[0]), penalty=glru.L2(lam), fit_intercept=fit_intercept)
        family = WideRows(glru.solve(problem))
        rows, exact = left_out(problem)
        known = family.bounds(rows, never, 1)
        for n_steps in (2, 8):
            lower, upper = family.bounds(rows, never, n_steps)
            assert np.all(lower >= known[0]) and np.all(upper <= known[1])
            for (score, doubt), low, high in zip(exact, lower, upper, strict=True):
                assert low <= score + doubt and score - doubt <= high
        reached += int(np.count_nonzero(upper - lower < 1e-2 * (known[1] - known[0])))
    assert reached > 4


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_one_long_column_of_wide_data_trains_few_rows(fit_intercept):
    rng = np.random.default_rng(105)
    X = rng.standard_normal((80, 120))
    y = np.where(X[:, 1:60].sum(axis=1) + rng.standard_normal(80) > 0.0, 1.0, -1.0)
    X[:, 0] = 3e4 * X[:, 0] + 1e5
    problem = glru.Problem(X, y, glru.Logistic(), glru.L2(1.0), fit_intercept, scaling="sum")
    result = glru.loocv(problem, width="labels")
    assert result.n_trainings <= 8
    for row in (0, 41, 79):
        alone = glru.solve(problem.without(np.array([row])), tol=1e-9)
        score = X[row] @ alone.coef + alone.intercept
        assert result.bounds.lower[row] <= score <= result.bounds.upper[row]


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("lam", [1e-9, 1e-4, 1.0])
@np.errstate(all="ignore")
def test_closed_form_of_squared_wide_rows(fit_intercept, lam):
    """A quadratic loss takes no steps: leverages near 1, near copies and rows without weight are bounded up to rounding."""
    base = make(glru.Squared(), glru.L2(lam), 8, 24, seed=3, fit_intercept=fit_intercept)
    X = base.X * 10.0 ** np.linspace(-1.0, 2.0, 24)
    X[1] = X[0] * (1.0 + 1e-3 * np.cos(np.arange(24)))
    weight = np.where(np.arange(8) == 7, 0.0, 1.0 + np.arange(8) % 3)
    problem = glru.Problem(X, base.y, glru.Squared(), glru.L2(lam), fit_intercept, "sum", weight)
    family = WideRows(glru.solve(problem))
    assert family.has_closed_form
    rows, exact = left_out(problem)
    for lower, upper in (family.bound_quickly(rows), family.bounds(rows, never, 1)):
        for (score, doubt), low, high in zip(exact, lower, upper, strict=True):
            assert low <= score + doubt and score - doubt <= high
    assert rows.size == 8 and (lam < 1.0 or np.all(upper - lower < 1e-6))


def test_centred_rows_are_the_same_models():
    """Columns far from zero: the row side of dense data with an intercept centres them, and loses no digits."""
    problem = make(glru.Logistic(), glru.L2(0.05), 10, 24, seed=2, fit_intercept=True)
    moved = glru.Problem(problem.X + 1000.0, problem.y, penalty=glru.L2(0.05), fit_intercept=True)
    plain, shifted = (glru.loocv(p, width=1e-6) for p in (problem, moved))
    assert np.all(shifted.score_upper - shifted.score_lower <= 1e-6)
    np.testing.assert_allclose(plain.scores, shifted.scores, atol=2e-6)


@each({name: ROW_SHAPES[name] for name in ("wide", "wide-weighted", "sparse-wide")}, "shape")
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_wide_data_with_an_intercept_trains_nothing(loss, shape):
    problem = make(LOSSES[loss], glru.L2(0.05), seed=4, fit_intercept=True, **shape)
    result = glru.loocv(problem, width=1e-6)
    assert result.n_trainings == 0
    scores, off = held_out(glru.solve(problem))
    assert_inside(scores, off, result.score_lower, result.score_upper)


HEAVY = (2999, 3124, 3286, 3461, 4779, 5098)


@pytest.mark.parametrize("seed", HEAVY)
@np.errstate(all="ignore")
def test_a_heavy_row_of_the_other_class(seed):
    """Its removal turns the model round: steps that are shortened and raised prove nothing on the way."""
    random = np.random.default_rng(seed)
    n = int(random.integers(2, 5))
    d = n + int(random.integers(1, 4))
    X, along = np.zeros((n, d)), random.normal(size=d)
    along /= np.linalg.norm(along)
    X[0] = along
    X[1] = along * 10 ** random.uniform(-0.5, 0.5) + 0.05 * random.normal(size=d) * random.integers(0, 2)
    X[2:] = random.normal(size=(n - 2, d)) * 0.3
    y = np.where(random.random(n) < 0.5, 1.0, -1.0)
    y[:2] = -1.0, 1.0
    weight = np.ones(n)
    weight[1] = 10 ** random.uniform(2, 9)
    penalty = glru.L2(10 ** random.uniform(-8, -1))
    problem = glru.Problem(X, y, penalty=penalty, sample_weight=weight, scaling="sum")
    rows, exact = left_out(problem)
    (place,) = np.flatnonzero(rows == 1)
    score, doubt = exact[place]
    result = glru.loocv(problem, width=1e-6)
    folds = glru.cross_val_predict(glru.solve(problem), cv=[(np.delete(np.arange(n), 1), [1])], width=1e-6)
    for lower, upper in (
        (result.score_lower[1], result.score_upper[1]),
        (folds.score_lower[0], folds.score_upper[0]),
    ):
        assert lower <= score + doubt and score - doubt <= upper


@pytest.mark.parametrize("seed", [35, 48, 88, 157, 217, 238, 280, 365])
@np.errstate(all="ignore")
def test_candidates_that_cancel(seed):
    """A candidate's scores may be the small difference of two large models: their error is that of both."""
    random = np.random.default_rng(seed)
    problem = hostile_wide_problem(random)
    family = WideRows(glru.solve(problem, tol=1e-3))
    rows, exact = left_out(problem)
    for row, (score, doubt) in zip(rows, exact, strict=True):
        for n_steps in (1, 2):
            found = family.refine_one(int(row), lambda *ends: False, n_steps)
            assert found.lower[0] <= score + doubt and score - doubt <= found.upper[0]


def test_refined_leverages_never_widen():
    """Nearly equal columns: a step of iterative refinement loses more digits than it gains, and the bounds stay what they were."""
    X = dense(20, 4)
    X[:, -1] = X[:, 0] + 1e-6 * X[:, -1]
    problem = glru.Problem(X, dense(20, 1, 1)[:, 0], glru.Squared(), glru.L2(1e-10), False, "sum")
    family, rows = WideRows(glru.solve(problem)), np.arange(20)
    quick, refined = family.bound_quickly(rows), family.bounds(rows, never, 1)
    assert np.median(quick[1] - quick[0]) < 10.0
    assert np.all(quick[0] <= refined[0]) and np.all(refined[1] <= quick[1])


def test_retraining_stays_on_pieces():
    """Over wide rows in unlike units Newton steps on the pieces of a loss reach the optimum; under quadratics above it some do not."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 300)) * 10.0 ** rng.uniform(-2.0, 2.0, 300)
    y = X @ rng.normal(size=300) + rng.normal(size=60) * 500.0 > 0.0
    problem = glru.Problem(X, y, loss=glru.SquaredHinge(), penalty=glru.L2(0.1))
    models, point, n_steps = RowModels(problem), glru.solve(problem, tol=1e-9).point, 0
    for rows in np.split(np.arange(60), 5):
        left = problem.derive(sample_weight=np.where(np.isin(np.arange(60), rows), 0.0, 1.0))
        start = models.place(point, problem.weights)
        found = models.retrained(left.weights, start, rows, lambda lower, upper: bool(np.all(upper - lower < 1e-4)))
        assert np.all(found.upper - found.lower < 1e-4)
        best = glru.solve(left, tol=1e-13).point
        exact = left.scores(best.coef, best.intercept)[rows]
        assert np.all(found.lower - 1e-5 <= exact) and np.all(exact <= found.upper + 1e-5)
        n_steps += found.n_steps
    assert n_steps <= 45


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("lam", [2.0**-10, 2.0**-14])
def test_squared_wide_rows_keep_their_digits_under_a_weak_penalty(lam, fit_intercept):
    """Rows of large norm and tiny duals: iterative refinement gains digits only if its steps are those that were solved for."""
    random = np.random.default_rng(4)
    X = np.exp(random.normal(size=(8, 24))) * np.exp(2.0 * random.normal(size=24)) * 1e4
    y = (X / X.std(axis=0)) @ random.normal(size=24)
    problem = glru.Problem(X, y, glru.Squared(), glru.L2(lam), fit_intercept=fit_intercept)
    result = glru.loocv(glru.solve(problem), width=1e-6 * np.ptp(y))
    assert result.n_trainings == 0 and np.all(result.bounds.upper - result.bounds.lower <= 1e-6 * np.ptp(y))
    rows, exact = left_out(problem)
    for (score, doubt), low, high in zip(exact, result.bounds.lower[rows], result.bounds.upper[rows], strict=True):
        assert low <= score + doubt and score - doubt <= high
