"""Influence and the jackknife: every quantity holds its exact value, whatever data and objective are like."""

from unittest.mock import patch

import mpmath
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge

import glru
from glru.updates.local_rows import _with_hessian
from tests.attack.campaign import campaign
from tests.attack.deletions import Truth
from tests.cases import stored
from tests.core import (
    Deletions,
    LocalRows,
    OrthogonalMetric,
    find_contested_rows,
    rank,
    start_run,
    sum_closely,
    sum_error,
)
from tests.core import train as fit


def data(n=40, d=3, seed=0, loss="logistic"):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d))
    z = X @ random.normal(size=d) + random.normal(size=n)
    return X, (z > 0.0) if loss == "logistic" else z


def problem_of(kind, n=40, d=3, seed=0, **options):
    """A logistic or squared problem, without a penalty or with one."""
    loss, strength = kind
    X, y = data(n, d, seed, loss)
    penalty = glru.L2(np.zeros(d)) if strength == 0.0 else glru.L2(strength)
    losses = {"logistic": glru.Logistic(), "squared": glru.Squared(), "huber": glru.Huber(0.5)}
    return glru.Problem(X, y, losses[loss], penalty, **({"fit_intercept": True, "scaling": "sum"} | options))


KINDS = [("logistic", 0.0), ("logistic", 0.3), ("squared", 0.0), ("squared", 5.0)]


def refits(problem, groups):
    """Moves of the coefficients without each group, by Newton's method to the end."""
    full = packed(problem)
    return np.array([packed(problem.without(np.flatnonzero(groups == g))) - full for g in np.unique(groups)])


def packed(problem):
    """Coefficients and intercept of the optimum, by Newton steps as far as float64 goes."""
    found = fit(problem, tol=1e-13)
    X = np.column_stack([problem.X, np.ones(problem.n_rows)]) if problem.fit_intercept else problem.X
    w = np.append(found.coef, found.intercept) if problem.fit_intercept else found.coef.copy()
    lam = np.append(problem.quadratic, 0.0) if problem.fit_intercept else problem.quadratic
    for _ in range(3):
        _, g, h = problem.loss.expand(problem.y, X @ w)
        hessian = X.T @ ((problem.weights * h)[:, None] * X) + np.diag(lam)
        w = w - np.linalg.solve(hessian, X.T @ (problem.weights * g) + lam * w)
    return w


@pytest.mark.parametrize("scaling", ["sum", "mean"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_quantity_holds_the_exact_value(kind, scaling):
    """Moves in 40 digits, at widths that end in the closed form, in Newton steps and in what float64 allows."""
    problem = problem_of(kind, scaling=scaling)
    truth = Truth(problem)
    for width in (0.3, 1e-3, 1e-8):
        result = glru.influence(problem, width=width)
        for row in (0, 7, 31):
            move, doubts, without = truth.move(np.array([row]))
            lower, upper = result.dfbeta([row])
            assert all(
                low - off <= m <= high + off for m, off, low, high in zip(move, doubts, lower[0], upper[0], strict=True)
            )
            held_out, _ = without.scores(problem.X)[row]
            low, high = result.measure_bounds("held_out_score")
            assert low[row] <= held_out <= high[row]
        assert result.n_trainings == 0 and "open" not in result.decided_by


def nearly_dependent(loss, power, n=40):
    """The last column is the sum of the first two, up to a small noise."""
    X, y = data(n, 4, 1, loss)
    X[:, 3] = X[:, 0] + X[:, 1] + 10.0**-power * X[:, 3]
    losses = {"logistic": glru.Logistic(), "squared": glru.Squared()}
    return glru.Problem(X, y, losses[loss], glru.L2(np.zeros(4)), fit_intercept=True, scaling="sum")


@pytest.mark.parametrize("intercept", [True, False])
def test_an_error_names_the_columns_that_depend_on_each_other(intercept):
    X, y = data(40, 4, 2, "squared")
    X[:, 3] = X[:, 0] - X[:, 2]
    names = ("age", "height", "weight", "difference")
    problem = glru.Problem(
        pd.DataFrame(X, columns=names), y, glru.Squared(), glru.L2(np.zeros(4)), fit_intercept=intercept
    )
    with pytest.raises(ValueError, match=r"combination of age, weight, difference is at most \de-1\d of the length"):
        glru.influence(problem)


def exact_least_squares(problem, rows):
    """Coefficients, the intercept's last, and the inverse of the Hessian, of some rows in the digits of mpmath."""
    X = mpmath.matrix(np.column_stack([problem.X, np.ones(problem.n_rows)])[rows].tolist())
    inverse = (X.T * X) ** -1
    return inverse * (X.T * mpmath.matrix(problem.y[rows].tolist())), inverse


@pytest.mark.parametrize("power", [5, 8, 10, 12])
def test_columns_that_are_nearly_dependent(power):
    """Where a Hessian in float64 is singular, and its exact inverse is not: known to the digits that the condition leaves."""
    problem = nearly_dependent("squared", power)
    result, everything = glru.influence(problem), np.arange(40)
    with mpmath.workdps(80):
        full, inverse = exact_least_squares(problem, everything)
        X = mpmath.matrix(np.column_stack([problem.X, np.ones(40)]).tolist())
        left = X * full - mpmath.matrix(problem.y.tolist())
        dispersion = (left.T * left)[0] / 35
        lower, upper = result.standard_error_bounds
        assert all(lower[j] <= mpmath.sqrt(dispersion * inverse[j, j]) <= upper[j] for j in range(5))
        for row in (0, 7, 31):
            without, _ = exact_least_squares(problem, np.delete(everything, row))
            move, x = full - without, X[row, :]
            lower, upper = (ends[0] for ends in result.dfbeta([row]))
            assert all(lower[j] <= move[j] <= upper[j] for j in range(5))
            assert np.max(upper - lower) <= 10.0 ** (power - 11) * np.abs(lower).max()
            known = {
                "held_out_score": (x * without)[0],
                "leverage": (x * inverse * x.T)[0],
                "cooks_distance": (move.T * X.T * X * move)[0] / (5 * dispersion),
            }
            for name, exact in known.items():
                low, high = result.measure_bounds(name)
                assert low[row] <= exact <= high[row]


@pytest.mark.parametrize("power", [5, 7, 8])
def test_columns_that_are_nearly_dependent_of_a_curved_loss(power):
    """What batches leave open, models of single rows in a metric from their rows decide."""
    problem = nearly_dependent("logistic", power)
    truth, result = Truth(problem), glru.influence(problem)
    assert np.isfinite(result.standard_error_bounds).all()
    assert np.all(result.stages != "open") and result.n_trainings == 0
    for row in (0, 7, 31):
        move, _, without = truth.move(np.array([row]))
        lower, upper = result.dfbeta([row])
        assert all(low <= m <= high for m, low, high in zip(move, lower[0], upper[0], strict=True))
        held_out, _ = without.scores(problem.X)[row]
        low, high = result.measure_bounds("held_out_score")
        assert low[row] <= held_out <= high[row]


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_trainings_of_nearly_dependent_columns_converge(loss):
    """A warning is an error here."""
    assert glru.solve(nearly_dependent(loss, 6, n=2000)).status == "converged"


@pytest.mark.parametrize("power", [4, 7, 10])
def test_the_metric_of_a_decomposition_is_as_near_to_the_hessian_as_it_says(power):
    """Eigenvalues in 60 digits of the exact Hessian in the coordinates of the factor."""
    curvatures = np.linspace(0.1, 1.0, 12)
    for seed in range(30):
        random = np.random.default_rng(seed)
        X = random.normal(size=(12, 3))
        X[:, 2] = X[:, :2] @ random.choice([-1.0, 0.3, 1.0], 2) + 10.0**-power * random.normal(size=12)
        problem = glru.Problem(X, X[:, 0], glru.Squared(), glru.L2(np.zeros(3)), scaling="sum")
        metric = OrthogonalMetric(X, curvatures, problem.totals)
        with mpmath.workdps(60):
            rows, inverse = mpmath.matrix(X.tolist()), mpmath.matrix(metric.factor.tolist()) ** -1
            hessian = inverse.T * rows.T * mpmath.diag(curvatures.tolist()) * rows * inverse
            apart = max(abs(value - 1) for value in mpmath.eigsy(hessian, eigvals_only=True))
        assert 0.0 < apart <= metric.eta <= 1e5 * apart


@pytest.mark.filterwarnings("ignore:newton ended")
@pytest.mark.parametrize("power", [7, 10])
def test_the_gradient_of_nearly_dependent_columns_errs_by_no_more_than_it_says(power):
    """In 60 digits at the base; entry by entry its error would be taken for a million times as much."""
    problem = nearly_dependent("squared", power)
    family = LocalRows(glru.solve(problem), 1.0)
    assert isinstance(family.base.metric, OrthogonalMetric)
    near, share = float(np.sqrt(1.0 + family.middle_eta)), sum_error(problem.totals.depth)
    losses, bound = sum_closely(problem, family.point, family.values, family._errors, family.base.metric, near, share)
    with mpmath.workdps(60):
        X = mpmath.matrix(np.column_stack([problem.X, np.ones(40)]).tolist())
        model = mpmath.matrix(family.point.pack(True).tolist())
        off = X.T * (X * model - mpmath.matrix(problem.y.tolist())) - mpmath.matrix(losses.tolist())
        exact = mpmath.sqrt((off.T * (X.T * X) ** -1 * off)[0])
    assert 0.0 < exact <= bound <= 1e4 * exact
    assert family.base.error_norm == bound


@pytest.mark.parametrize("seeds", [0, 300, 600])
def test_short_attack_on_deletions(seeds):
    report = campaign(seeds, count=9, group="deletions")
    assert report.wrong == [] and report.crashes == []
    assert sum(report.decisions.values()) > 50


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_nothing_is_claimed_where_the_hessian_is_not_known(loss):
    result = glru.influence(problem_of((loss, 0.0)))
    known = {name: result.measure_bounds(name) for name in ("cooks_distance", "leverage", "dffits")}
    result.__dict__["_theta"] = np.inf
    for name, (lower, upper) in known.items():
        low, high = result.measure_bounds(name)
        assert np.all((low <= lower) & (upper <= high)), name


def test_least_squares_has_the_textbook_values():
    """Closed forms of linear regression: Cook's distance, DFFITS, leverages, residuals without the row."""
    problem = problem_of(("squared", 0.0))
    result = glru.influence(problem)
    X = np.column_stack([problem.X, np.ones(40)])
    inverse = np.linalg.inv(X.T @ X)
    h = np.einsum("ij,jk,ik->i", X, inverse, X)
    r = problem.y - X @ (inverse @ (X.T @ problem.y))
    variance = r @ r / 36
    np.testing.assert_allclose(result.leverage, h, rtol=1e-9)
    np.testing.assert_allclose(result.deletion_residual, r / (1.0 - h), rtol=1e-9)
    np.testing.assert_allclose(result.deviance_residual, r / (1.0 - h), rtol=1e-9)
    np.testing.assert_allclose(result.cooks_distance, r**2 * h / (1.0 - h) ** 2 / (4 * variance), rtol=1e-8)
    np.testing.assert_allclose(result.dffits, r * np.sqrt(h / variance) / (1.0 - h), rtol=1e-8)
    np.testing.assert_allclose(result.standard_errors, np.sqrt(variance * np.diag(inverse)), rtol=1e-9)
    assert all(upper - lower < 1e-9 for lower, upper in zip(*result.standard_error_bounds, strict=True))


@pytest.mark.parametrize("scaling", ["sum", "mean"])
def test_the_degrees_of_freedom_of_a_penalised_model(scaling):
    """The trace in 40 digits, what is divided by it, and the dispersion by what it leaves; weights count."""
    problem = problem_of(("squared", 0.3 if scaling == "mean" else 12.0), scaling=scaling)
    problem = problem.derive(sample_weight=np.linspace(0.5, 2.0, 40))
    result, truth = glru.influence(problem), Truth(problem)
    hessian, rows, weights = truth.hessian()
    mp, inverse, size = truth.mp, hessian**-1, len(rows[0])
    lines = [mp.matrix([row]) for row in rows]
    norms = [(x * inverse * x.T)[0] for x in lines]
    freedom = mp.fsum(s * norm for s, norm in zip(weights, norms, strict=True))
    assert 1.5 < freedom < size - 0.5
    low, high = result._freedom
    assert low <= freedom <= high <= low * (1.0 + 1e-9)
    scores = [z for z, _ in truth.full.scores(problem.X)]
    squares = mp.fsum(s * (float(y) - z) ** 2 for s, y, z in zip(weights, problem.y, scores, strict=True))
    dispersion = squares / (mp.fsum(weights) / 40) / (40 - freedom)
    assert result.dispersion[0] <= dispersion <= result.dispersion[1] <= result.dispersion[0] * (1.0 + 1e-8)
    for row in (0, 7, 31):
        move = mp.matrix(truth.move(np.array([row]))[0])
        cook = (move.T * hessian * move)[0] / (freedom * dispersion * mp.fsum(weights) / 40)
        lower, upper = result.measure_bounds("cooks_distance")
        assert lower[row] <= cook <= upper[row]


@pytest.mark.parametrize("exponent", [-600, -300, 300, 600])
@pytest.mark.parametrize("kind", KINDS)
def test_an_objective_of_any_size(kind, exponent):
    """Weights and strengths times a power of two: the same model, the same influence."""
    plain = problem_of(kind)
    scale = 2.0**exponent
    grown = plain.derive(sample_weight=plain.sample_weight * scale, penalty=plain.penalty.scale(scale))
    for width in (0.3, 1e-6):
        first, second = (glru.influence(problem, width=width) for problem in (plain, grown))
        for name in ("cooks_distance", "leverage", "dffits", "deviance_residual"):
            a, b = np.array(first.measure_bounds(name)), np.array(second.measure_bounds(name))
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)
            assert np.all(a[0] <= b[1]) and np.all(b[0] <= a[1])
        one, two = (glru.jackknife(problem, groups=np.arange(40) // 8, width=width) for problem in (plain, grown))
        np.testing.assert_allclose(one.standard_error_bounds, two.standard_error_bounds, rtol=1e-6)


@pytest.mark.parametrize("name", ["sparse", "float32", "weights", "unscaled", "duplicates", "wide"])
def test_data_of_many_kinds(name):
    """Intervals hold what refits give, up to the precision of these."""
    X, y = data(48, 4)
    options = {"fit_intercept": True, "scaling": "mean"}
    penalty = glru.L2(0.05)
    if name == "sparse":
        X = sp.csr_array(X * (np.abs(X) > 0.5))
    elif name == "float32":
        X = X.astype(np.float32)
    elif name == "weights":
        options["sample_weight"] = np.arange(48) % 3
    elif name == "unscaled":
        X = X * [1e6, 1.0, 1e-5, 3.0] + [1e7, 0.0, 0.0, 5.0]
        penalty = glru.L2(np.zeros(4))
    elif name == "duplicates":
        X[10:20] = X[10]
    elif name == "wide":
        X = np.random.default_rng(1).normal(size=(48, 70))
    problem = glru.Problem(X, y, penalty=penalty, **options)
    result = glru.influence(problem)
    lower, upper = result.dfbeta()
    dense = problem.derive(X=problem.matrix.dense())
    used = np.flatnonzero(problem.weights > 0.0)
    moves = -np.array([packed(dense.without(np.array([row]))) - packed(dense) for row in used])
    off = 1e-9 * np.abs(packed(dense)) + 1e-7 * np.abs(moves).max(axis=0)
    assert np.all(lower[used] - off <= moves) and np.all(moves <= upper[used] + off)
    assert np.all(upper - lower <= 0.1 * np.abs(moves).max(axis=0) + off)


@pytest.mark.parametrize("strength", [0.0, 1.0])
@pytest.mark.parametrize("name", ["reg_airfoil", "reg_cpu_act", "reg_housing_scale", "reg_pumadyn32nm"])
def test_regressions_in_their_own_units(name, strength):
    """Columns as they come: refits in float64 are within the intervals, up to a ten-millionth of a standard error."""
    source = stored(name)
    X = np.asarray(source.X, dtype=np.float64)
    penalty = glru.L2(strength) if strength else glru.L2(np.zeros(X.shape[1]))
    problem = glru.Problem(X, source.y.astype(float), glru.Squared(), penalty, fit_intercept=True, scaling="sum")
    result, rows, full = glru.influence(problem), [0, 17, 200], packed(problem)
    lower, upper = result.dfbeta(rows)
    for k, row in enumerate(rows):
        move, off = full - packed(problem.without(np.array([row]))), 1e-7 * result.standard_errors
        assert np.all(lower[k] - off <= move) and np.all(move <= upper[k] + off)
    assert result.top(5).certified and result.n_trainings == 0


@pytest.mark.parametrize(
    "loss",
    [glru.Poisson(), glru.Gamma(), glru.Tweedie(1.5), glru.NegativeBinomial(2.0), glru.losses.Binomial()],
    ids=repr,
)
@pytest.mark.parametrize("exposed", [False, True])
def test_generalised_linear_models(loss, exposed):
    """Log links, with and without an exposure: moves of coefficients in 40 digits, and the jackknife of groups."""
    random = np.random.default_rng(5)
    X, offset = random.normal(size=(40, 2)), random.uniform(-1.0, 1.0, 40)
    y = random.poisson(np.exp(0.5 * X[:, 0] + offset + 0.5)) + (0.5 if isinstance(loss, glru.Gamma) else 0.0)
    y = y / (y + random.integers(1, 6, 40)) if loss.link == "logit" else y
    options = {"offset": offset} if exposed else {}
    problem = glru.Problem(X, y, loss, glru.L2(np.zeros(2)), fit_intercept=True, scaling="sum", **options)
    truth = Truth(problem)
    for width in (1e-2, 1e-7):
        result = glru.influence(problem, width=width)
        for row in (3, 20):
            move, doubts, without = truth.move(np.array([row]))
            lower, upper = result.dfbeta([row])
            assert all(a - off <= m <= b + off for m, off, a, b in zip(move, doubts, lower[0], upper[0], strict=True))
            low, high = result.measure_bounds("held_out_score")
            assert low[row] <= without.scores(X)[row][0] <= high[row]
    assert "open" not in result.decided_by and len(result.to_frame()) == 40
    groups = np.arange(40) % 5
    jackknife = glru.jackknife(problem, groups=groups, width=1e-6)
    moves = np.array([[-float(m) for m in truth.move(np.flatnonzero(groups == g))[0]] for g in range(5)])
    errors, (lower, upper) = np.sqrt(0.8 * (moves**2).sum(axis=0)), jackknife.standard_error_bounds
    assert np.all(lower <= errors * (1 + 1e-12)) and np.all(errors <= upper * (1 + 1e-12))


def test_losses_and_penalties_without_a_local_certificate_are_trained():
    X, y = data(25, 2, loss="squared")
    for loss, penalty in ((glru.Huber(0.5), glru.L2(0.1)), (glru.Squared(), glru.ElasticNet(0.1, 0.05))):
        problem = glru.Problem(X, y, loss, penalty, fit_intercept=True, scaling="sum")
        result, truth = glru.influence(problem), Truth(problem)
        for row in (0, 11):
            move, doubts, _ = truth.move(np.array([row]))
            lower, upper = result.dfbeta([row])
            assert all(
                low - off <= m <= high + off for m, off, low, high in zip(move, doubts, lower[0], upper[0], strict=True)
            )
        assert result.n_trainings == 25


def test_a_row_that_carries_a_column_alone_is_unknown():
    """Without the only row of an unpenalised column there is no unique model: intervals are infinite, the others are not."""
    X, y = data(30, 2, loss="squared")
    X = np.column_stack([X, np.eye(30)[4]])
    problem = glru.Problem(X, y, glru.Squared(), glru.L2(np.zeros(3)), fit_intercept=True, scaling="sum")
    result = glru.influence(problem)
    assert np.isnan(result.cooks_distance[4]) and result.stages[4] == "open"
    assert np.isfinite(np.delete(result.cooks_distance, 4)).all()
    assert "nothing is known" in repr(result)
    assert np.isposinf(result.measure_bounds("cooks_distance")[1][4])
    assert result.top(1).rows[0] == 4 and not result.top(1).certified
    found = glru.jackknife(problem)
    assert found.unknown.tolist() == [4] and np.isinf(found.standard_error_bounds[1]).all()


def test_a_ranking_is_proven_and_only_contested_rows_are_refined():
    """The first rows are those of the exact moves, and of a coarse run only rows near the edge are narrowed."""
    problem = problem_of(("logistic", 0.1), n=400)
    result, exact = glru.influence(problem, width=0.5), glru.influence(problem, width=1e-7)
    before = result._deletions.radii.copy()
    for by, column in (("cooks_distance", None), ("dffits", None), ("dfbetas", "x1"), ("leverage", None)):
        top = result.top(8, by, column)
        sizes = np.abs(getattr(exact, by) if column is None else np.mean(exact.dfbetas(), axis=0)[:, 1])
        assert top.certified and top.ties == []
        np.testing.assert_array_equal(top.rows, np.argsort(-sizes)[:8])
        assert np.all(top.lower <= sizes[top.rows]) and np.all(sizes[top.rows] <= top.upper)
    narrowed = np.count_nonzero(result._deletions.radii < before)
    assert 0 < narrowed < 200


def test_equal_rows_tie():
    """The order of two equal rows is not proven, and said to be a tie; nor is it proven which of them is the first."""
    X, y = data(30, 2, loss="squared")
    X, y = np.vstack([X, X[:1] * 4.0, X[:1] * 4.0]), np.append(y, [30.0, 30.0])
    result = glru.influence(glru.Problem(X, y, glru.Squared(), penalty=glru.L2(0.1)))
    top = result.top(1)
    assert top.rows[0] in (30, 31) and not top.certified and sorted(top.ties[0]) == [30, 31]
    top = result.top(2)
    assert sorted(top.rows) == [30, 31] and top.certified and len(top.ties) == 1
    assert ("ties" in repr(top) and "30 and 31" in top._repr_html_()) or "31 and 30" in top._repr_html_()


def test_the_rules_of_a_ranking():
    """Membership needs every other upper end below; an order needs disjoint intervals."""
    lower, upper = np.array([5.0, 3.0, 1.0, 0.0]), np.array([6.0, 4.0, 2.0, 3.5])
    assert rank("x", lower, upper, 1).certified and rank("x", lower, upper, 1).ties == []
    found = rank("x", lower, upper, 2)
    assert not found.certified and found.rows.tolist() == [0, 1] and found.ties == [(1, 3)]
    assert sorted(find_contested_rows(lower, upper, 2)) == [1, 3]
    assert find_contested_rows(lower, upper, 1).size == 0
    # A row whose interval meets the edge exactly is contested.
    assert not rank("x", np.array([1.0, 0.0]), np.array([2.0, 1.0]), 1).certified


@pytest.mark.parametrize("center", ["estimate", "mean"])
@pytest.mark.parametrize("scaling", ["sum", "mean"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_jackknife_holds_what_refits_give(kind, scaling, center):
    problem = problem_of(kind, n=60, scaling=scaling)
    groups = np.array(["a", "b", "c", "d", "e"])[np.arange(60) % 5]
    for labels in (groups, None):
        result = glru.jackknife(problem, groups=labels, center=center, width=1e-5)
        moves = refits(problem, np.arange(60) if labels is None else groups)
        n = len(moves)
        bias = (n - 1) * moves.mean(axis=0)
        moves = moves - moves.mean(axis=0) if center == "mean" else moves
        covariance = (n - 1) / n * moves.T @ moves
        for values, (lower, upper) in (
            (covariance, result.covariance_bounds),
            (np.sqrt(np.diag(covariance)), result.standard_error_bounds),
            (bias, result.bias_bounds),
        ):
            off = 1e-10 * np.abs(values).max()
            assert np.all(lower - off <= values) and np.all(values <= upper + off)
        np.testing.assert_allclose(result.standard_errors, np.sqrt(np.diag(covariance)), rtol=1e-4)
        assert result.n_deletions == n and result.n_trainings == 0


@pytest.mark.parametrize("kind", [("logistic", 0.1), ("squared", 1.0)])
def test_one_base_serves_weights_of_all_sizes(kind):
    """With mean scaling every row has its own factor on the others' weights; none is worked on alone, and moves hold those in 40 digits."""
    problem = problem_of(kind, scaling="mean", sample_weight=np.random.default_rng(2).uniform(0.1, 3.0, 40))
    truth = Truth(problem)
    for width in (0.3, 1e-3, 1e-8):
        result = glru.influence(problem, width=width)
        assert result.n_trainings == 0 and "open" not in result.decided_by
        for row in (0, 7, 31):
            move, doubts, _ = truth.move(np.array([row]))
            ends = (end[0] for end in result.dfbeta([row]))
            assert all(low - off <= m <= high + off for m, off, low, high in zip(move, doubts, *ends, strict=True))
    # Rows of a tenth of the weight have a base of their own.
    weights = np.where(np.arange(40) == 3, 8.0, np.linspace(0.5, 1.5, 40))
    heavy = glru.influence(problem_of(("squared", 5.0), scaling="mean", sample_weight=weights), width=1e-6)
    assert heavy.n_trainings == 0 and "open" not in heavy.decided_by


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("loss", [glru.Squared(), glru.Huber(0.5), glru.Poisson()])
def test_prediction_intervals_hold_what_refits_give(loss, grouped):
    """Jackknife+ by its definition, from models of every row or group trained again."""
    X, z = data(40, 3, 3, "squared")
    rows, n = np.random.default_rng(4).normal(size=(6, 3)), 40
    counts = isinstance(loss, glru.Poisson)
    y, offset = (np.floor(np.exp(0.4 * z)), 0.3 * X[:, 1]) if counts else (z, None)
    shift = np.linspace(-0.5, 0.5, 6) if counts else None
    weights = np.where(np.arange(n) % 11 == 5, 0.0, np.linspace(0.5, 2.0, n))
    problem = glru.Problem(X, y, loss, glru.L2(0.3), True, "sum", weights, offset=offset)
    groups = np.arange(n) % 7 if grouped else np.arange(n)
    used = np.flatnonzero(weights)
    means, residuals = np.empty((n, 6)), np.empty(n)
    for group in np.unique(groups[used]):
        model = packed(problem.without(np.flatnonzero(groups == group)))
        mine = groups == group
        scores, new = X[mine] @ model[:-1] + model[-1], rows @ model[:-1] + model[-1]
        residuals[mine] = np.abs(y[mine] - (np.exp(scores + offset[mine]) if counts else scores))
        means[mine] = np.exp(new + shift) if counts else new
    means, residuals = means[used], residuals[used, None]
    result = glru.jackknife(problem, groups=groups if grouped else None, width=1e-6)
    for level, k in ((0.9, 34), (0.5, 19)):
        lower, upper = result.prediction_interval(rows, level, offset=shift)
        truth = np.sort(means - residuals, axis=0)[used.size - k], np.sort(means + residuals, axis=0)[k - 1]
        for ends, exact in zip((lower, upper), truth, strict=True):
            assert np.all(ends[0] - 1e-9 <= exact) and np.all(exact <= ends[1] + 1e-9)
            assert np.all(ends[1] - ends[0] < 1e-3 * (1.0 + np.abs(exact)))
    lower, upper = result.prediction_interval(rows, 0.99, offset=shift)
    assert np.all(lower[1] == -np.inf) and np.all(upper[0] == np.inf)


def test_what_prediction_intervals_refuse():
    result = glru.jackknife(problem_of(("squared", 5.0)))
    for arguments, match in (
        ({"X": np.ones((2, 4))}, "3 columns"),
        ({"X": np.ones((2, 3)), "level": 1.0}, "level"),
        ({"X": np.ones((2, 3)), "offset": np.ones(2)}, "offset"),
    ):
        with pytest.raises(ValueError, match=match):
            result.prediction_interval(**arguments)
    with pytest.raises(ValueError, match="regression"):
        glru.jackknife(problem_of(("logistic", 0.3))).prediction_interval(np.ones((2, 3)))


@pytest.mark.parametrize("strength", [0.0, 3.0])
@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Poisson(), glru.Gamma(), glru.NegativeBinomial(2.0)])
def test_many_groups_to_second_order(loss, strength):
    """Without a pass per group; every standard error, and the bias, hold what refits give, at widths that are met and at one that is not."""
    X, z = data(2400, 4, 5, "squared")
    random, groups = np.random.default_rng(6), np.arange(2400) % 80
    z = 0.3 * z + 0.2 * random.normal(size=80)[groups]
    offset = None if isinstance(loss, glru.Logistic) else 0.5 * X[:, 0]
    y = z > 0.0 if offset is None else random.gamma(2.0, np.exp(z)) + 0.01
    y = y if isinstance(loss, glru.Logistic | glru.Gamma) else np.floor(y)
    penalty = glru.L2(np.full(4, strength))
    problem = glru.Problem(X, y, loss, penalty, True, "sum", random.uniform(0.5, 2.0, 2400), offset=offset)
    moves = refits(problem, groups)
    errors, bias = np.sqrt(79 / 80 * np.square(moves).sum(axis=0)), 79 * moves.mean(axis=0)
    for width in (0.3, 3e-3, 1e-8):
        result = glru.jackknife(problem, groups=groups, width=width)
        assert result.n_trainings == 0 and (width < 3e-3 or "second order" in result.decided_by)
        for (low, high), exact in ((result.standard_error_bounds, errors), (result.bias_bounds, bias)):
            assert np.all(low - 1e-9 <= exact) and np.all(exact <= high + 1e-9)
            assert np.all(high - low <= 200.0 * width * errors)


def test_groups_are_checked_and_named():
    problem = problem_of(("logistic", 0.1))
    with pytest.raises(ValueError, match="one entry per row"):
        glru.jackknife(problem, groups=[1, 2])
    with pytest.raises(ValueError, match="at least two groups"):
        glru.jackknife(problem, groups=np.zeros(40))
    with pytest.raises(ValueError, match="center must be"):
        glru.jackknife(problem, center="median")
    weight = np.where(np.arange(40) < 10, 0.0, 1.0)
    groups = np.arange(40) // 10
    light = problem.derive(sample_weight=weight)
    result = glru.jackknife(light, groups=groups)
    assert result.n_deletions == 3 and result.groups.tolist() == [1, 2, 3]
    kept = problem.derive(X=problem.X[10:], y=problem.y[10:], sample_weight=weight[10:])
    np.testing.assert_allclose(
        result.standard_errors, glru.jackknife(kept, groups=groups[10:]).standard_errors, rtol=1e-6
    )


def test_estimators_and_problems_agree():
    X, y = data(60, 3)
    model = glru.influence(LogisticRegression(C=2.0), X, y)
    problem = glru.Problem(
        X, y, penalty=glru.L2(1.0), fit_intercept=True, scaling="sum", sample_weight=np.full(60, 2.0)
    )
    np.testing.assert_allclose(model.dfbeta(), glru.influence(problem).dfbeta(), rtol=1e-3, atol=1e-5)
    z = data(60, 3, loss="squared")[1]
    plain = glru.jackknife(LinearRegression(), X, z)
    assert plain.standard_errors.shape == (4,) and plain.coef_names[-1] == "intercept"
    assert glru.influence(Ridge(alpha=3.0), X, z).freedom < 4.0


def test_what_is_refused():
    X, y = data()
    problem = glru.Problem(X, y)
    for call in (glru.influence, glru.jackknife):
        with pytest.raises(ValueError, match="does not keep its data"):
            call(LogisticRegression())
        with pytest.raises(TypeError, match="holds its data"):
            call(problem, X, y)
        with pytest.raises(TypeError, match=r"expected a glru\.Problem"):
            call(3)
        with pytest.raises(ValueError, match="width must be a number above 0"):
            call(problem, width=0.0)
        with pytest.raises(ValueError, match="one score per"):
            call(LogisticRegression(), X, np.arange(40) % 3)
        with pytest.raises(ValueError, match="reweights every row"):
            call(LogisticRegression(class_weight="balanced"), X, y)
        with pytest.raises(TypeError, match="width must be a number"):
            call(problem, width="a")
        with pytest.raises(ValueError, match="max_memory must be"):
            call(problem, max_memory=-5)
        with pytest.raises(ValueError, match=r"regular Hessian|with a curvature"):
            call(glru.Problem(X, y, glru.Hinge(), fit_intercept=True))
    result = glru.influence(problem)
    for wrong in (
        lambda: result.measure_bounds("size"),
        lambda: result.top(0),
        lambda: result.top(2.5),
        lambda: result.top(True),
        lambda: result.top(3, by="dfbetas"),
        lambda: result.top(3, by="dfbetas", column=True),
    ):
        with pytest.raises(ValueError, match=r"must be|needs a column"):
            wrong()
    for rows in ([40], [1.5], [True] * 40, ["a"]):
        with pytest.raises(ValueError, match="rows must be whole numbers"):
            result.dfbetas(rows)
    with pytest.raises(ValueError, match="all numbers or all text"):
        glru.jackknife(problem, groups=[None] * 20 + ["a"] * 20)
    with pytest.raises(ValueError, match="level"):
        glru.jackknife(problem).confidence_interval(2.0)


def test_a_budget_leaves_intervals_that_hold():
    problem = problem_of(("logistic", 0.0), n=200)
    short, full = glru.influence(problem, max_seconds=1e-9, width=1e-9), glru.influence(problem, width=1e-6)
    lower, upper = short.measure_bounds("cooks_distance")
    middle = full.cooks_distance
    assert np.all(lower <= middle) and np.all(middle <= upper)
    assert short.decided_by.get("open", 0) > 0


def test_frames_and_summaries():
    problem = problem_of(("logistic", 0.1))
    result = glru.influence(problem)
    frame = result.to_frame(dfbetas=True)
    assert len(frame) == 40 and "dfbetas_lower_intercept" in frame.columns and "cooks_distance_upper" in frame.columns
    assert "Cook's distance" in repr(result) and "<table>" in result._repr_html_()
    seen = []
    glru.influence(problem, progress=lambda *told: seen.append(told))
    assert seen and seen[-1][1:] == (40, 40)
    table = glru.jackknife(problem).to_frame()
    assert list(table["coefficient"]) == ["x0", "x1", "x2", "intercept"]
    low, high = glru.jackknife(problem).confidence_interval()
    assert np.all(low < high)


def test_deletions_share_the_cascade_of_leave_one_out():
    """Held-out scores of both ways meet."""
    problem = problem_of(("logistic", 0.05), n=120)
    cascade = start_run(fit(problem, tol=1e-9), 1e-6)
    cascade.follow("certified")
    lower, upper = glru.influence(problem, width=1e-6).measure_bounds("held_out_score")
    assert np.all(lower <= cascade.upper) and np.all(cascade.lower <= upper)


def test_candidates_are_kept_only_where_they_are_better():
    problem = problem_of(("logistic", 0.1))
    result = glru.influence(problem, width=1e-8)
    deletions: Deletions = result._deletions
    before, moves = deletions.radii.copy(), deletions.directions(np.arange(40))
    deletions._closed(np.arange(40), 1e-8)
    np.testing.assert_array_equal(deletions.radii, before)
    np.testing.assert_array_equal(deletions.directions(np.arange(40)), moves)


def test_residuals_that_underflow():
    """The loss of a row with a score of 750 underflows; its deviance residual does not."""
    X = np.vstack([np.random.default_rng(0).normal(size=(20, 1)), [[640.0]]])
    y = np.append(np.where(X[:20, 0] > 0.0, 1.0, -1.0), 1.0)
    result = glru.influence(glru.Problem(X, y, penalty=glru.L2(0.01)))
    score = result.measure_bounds("held_out_score")[0][-1]
    assert score > 746.0
    lower, upper = result.measure_bounds("deviance_residual")
    assert lower[-1] < 1e-163 < upper[-1]
    assert np.all(np.subtract(*result.measure_bounds("deletion_residual")[::-1])[-1:] > 0.0)


@pytest.mark.parametrize(("n", "d", "scale", "lam"), [(150, 30, 4.0, 0.5), (220, 110, 2.0, 1.0), (60, 90, 2.0, 0.3)])
def test_few_large_groups_are_refitted_no_farther_than_intervals_say(n, d, scale, lam):
    """Nearly separable and wide data, where steps of all groups together are not worth their price."""
    random = np.random.default_rng(0)
    X, groups = random.normal(size=(n, d)), np.arange(n) % 4
    y = random.random(n) < 1.0 / (1.0 + np.exp(-scale * X @ random.normal(size=d) / np.sqrt(d)))
    problem = glru.Problem(X, y, penalty=glru.L2(lam), fit_intercept=True, scaling="sum")
    result = glru.jackknife(problem, groups=groups)
    assert set(result.decided_by) <= {"newton", "refine"}
    full = glru.solve(problem, tol=1e-14)
    moves = []
    for group in range(4):
        without = glru.solve(problem.without(np.flatnonzero(groups == group)), tol=1e-14)
        moves.append(np.append(without.coef - full.coef, without.intercept - full.intercept))
    lower, upper = result.standard_error_bounds
    errors = np.sqrt(0.75 * np.square(moves).sum(axis=0))
    assert np.all((lower <= errors * (1.0 + 1e-6)) & (errors * (1.0 - 1e-6) <= upper))
    assert np.all(upper - lower < 0.1 * upper)


def test_groups_without_which_classes_are_separable_are_not_trained():
    random = np.random.default_rng(2)
    X, groups = random.normal(size=(60, 3)), np.arange(60) % 6
    y = X[:, 0] > 0.0
    y[groups == 2] = random.random(10) < 0.5
    problem = glru.Problem(X, y, penalty=glru.L2(0.0), fit_intercept=True, scaling="sum")
    result = glru.jackknife(problem, groups=groups)
    assert result.unknown.tolist() == [2] and result.n_trainings == 0
    assert np.all(np.isinf(result.standard_error_bounds[1]))


def test_influence_forms_one_hessian_after_a_training():
    """The Hessian before the last step of a training leads so near the optimum that one more is enough."""
    random = np.random.default_rng(0)
    X = random.normal(size=(30_000, 4))
    y = random.random(30_000) < 1.0 / (1.0 + np.exp(-X[:, 0]))
    for strength in (0.0, 1.0):
        solution = glru.solve(glru.Problem(X, y, penalty=glru.L2(strength), fit_intercept=True, scaling="sum"))
        assert solution.before is not None
        with patch("glru.updates.local_rows._with_hessian", side_effect=_with_hessian) as formed:
            assert glru.influence(solution)._deletions.reference.theta < 1e-5
        assert formed.call_count == 1


def test_groups_have_no_gaps():
    problem = problem_of(("logistic", 0.1))
    with pytest.raises(ValueError, match="got 2 entries that are NaN"):
        glru.jackknife(problem, groups=np.where(np.arange(40) < 2, np.nan, np.arange(40) % 4))
