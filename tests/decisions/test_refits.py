"""Leave-one-out where leaving out a row changes more than that row: strengths, filled values and class weights of its own."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import glru
from tests.core import (
    ClassEllipsoid,
    Columns,
    Refits,
    TallRefits,
    WideRefits,
    bound_by_certificate,
    certify,
    leave_one_out,
    train,
)


def make_case(rng, wide, loss, scaling, fit_intercept):
    n = int(rng.integers(14, 30))
    d = int(rng.integers(n + 1, 3 * n)) if wide else int(rng.integers(2, n // 2))
    X = rng.normal(size=(n, d))
    X[:, 0] = np.exp(2.0 * X[:, 0])
    X[:, 1] = rng.random(n) < 0.2
    scores = X @ rng.normal(size=d) / np.sqrt(d)
    y = scores + rng.normal(size=n)
    if loss.task == "classification":
        y = np.where(y > np.median(y), 1.0, -1.0)
    weight = rng.choice([0.5, 1.0, 2.0], size=n)
    strengths = 10.0 ** rng.uniform(-3, 1) * rng.choice([1.0, 0.1], size=d)
    return glru.Problem(
        X, y, loss=loss, penalty=glru.L2(strengths), fit_intercept=fit_intercept, scaling=scaling, sample_weight=weight
    )


def make_refits(rng, problem, kinds):
    shape = problem.n_rows, problem.n_columns
    changes = {}
    if "strengths" in kinds:
        changes["strengths"] = rng.uniform(0.4, 1.2, size=shape)
    if "fills" in kinds:
        filled = rng.random(shape) < 0.15
        changes["filled"] = filled
        changes["fills"] = 0.02 * rng.normal(size=shape) * filled.any(axis=0)
    if "class_factors" in kinds:
        changes["class_factors"] = rng.uniform(0.8, 1.2, size=(problem.n_rows, 2))
    return Refits(**changes)


def optimal_bounds(problem, row):
    """What a training as far as float64 goes proves of a row's score."""
    solution = train(problem, tol=0.0)
    lower, upper = bound_by_certificate(certify(problem, solution.point), problem.matrix[row : row + 1])
    return lower[0], upper[0]


@pytest.mark.parametrize(
    "kinds",
    [
        ("strengths",),
        ("fills",),
        ("class_factors",),
        ("strengths", "class_factors"),
        ("strengths", "fills", "class_factors"),
    ],
)
@pytest.mark.parametrize("wide", [False, True], ids=["tall", "wide"])
@pytest.mark.parametrize(
    "loss", [glru.Logistic(), glru.Squared(), glru.SquaredHinge()], ids=lambda loss: type(loss).__name__
)
@pytest.mark.parametrize("scaling", ["sum", "mean"])
def test_bounds_hold_the_optimum_of_the_refitted_problem(kinds, wide, loss, scaling):
    if loss.task == "regression" and "class_factors" in kinds:
        kinds = tuple(kind for kind in kinds if kind != "class_factors") or ("strengths",)
    rng = np.random.default_rng([len(kinds), wide, len(scaling)])
    for fit_intercept in (False, True):
        problem = make_case(rng, wide, loss, scaling, fit_intercept)
        refits = make_refits(rng, problem, kinds)
        found = leave_one_out(glru.solve(problem, tol=1e-8), refits=refits, width=1e-5)
        assert found.certified
        for row in rng.choice(problem.n_rows, 4, replace=False):
            lower, upper = optimal_bounds(refits.problem(problem, int(row)), int(row))
            assert lower <= found.bounds.upper[row]
            assert upper >= found.bounds.lower[row]
            assert found.bounds.upper[row] - found.bounds.lower[row] <= max(1e-5, 2.0 * (upper - lower))


@pytest.mark.parametrize("wide", [False, True], ids=["tall", "wide"])
def test_small_changes_need_no_training(wide):
    rng = np.random.default_rng(3)
    problem = make_case(rng, wide, glru.Logistic(), "sum", True)
    problem = problem.derive(X=rng.normal(size=problem.matrix.shape), penalty=glru.L2(1.0))
    strengths = 1.0 + rng.uniform(-0.05, 0.05, size=(problem.n_rows, problem.n_columns))
    found = leave_one_out(glru.solve(problem), refits=Refits(strengths=strengths), aim=2e-6)
    assert found.decided.all()
    assert found.n_trainings == 0
    assert found.decided_by.keys() == {"newton"}


@pytest.mark.parametrize("kind", ["strengths", "fills", "class_factors"])
@pytest.mark.parametrize("power", [0, 300, -300])
def test_bounds_of_classes_hold_the_optimum_of_the_refitted_problem(kind, power):
    """At any size of the objective the batches decide most rows, and their bounds hold what a training proves."""
    rng = np.random.default_rng(9)
    X = rng.normal(size=(40, 3))
    y = np.argmax(X @ rng.normal(size=(3, 3)) + rng.normal(size=(40, 3)), axis=1)
    unit = 2.0**power
    problem = glru.Problem(
        X, y, loss=glru.Multinomial(), penalty=glru.L2(unit), scaling="sum", sample_weight=np.full(40, unit)
    )
    problem = problem.derive(fit_intercept=True)
    refits = {
        "strengths": Refits(strengths=rng.uniform(0.9, 1.1, size=(40, 3))),
        "fills": make_refits(rng, problem, ["fills"]),
        "class_factors": Refits(class_factors=rng.uniform(0.9, 1.1, size=(40, 3)), groups=y),
    }[kind]
    found = leave_one_out(glru.solve(problem, tol=1e-10), refits=refits, width=1e-6)
    assert found.certified and found.decided_by["newton"] > 30
    plain = leave_one_out(glru.solve(problem, tol=1e-10), width=1e-6)
    assert not np.any(
        (plain.bounds.lower <= found.bounds.upper) & (plain.bounds.upper >= found.bounds.lower), axis=1
    ).all()
    for row in (0, 7, 23):
        changed = refits.problem(problem, row)
        region = ClassEllipsoid.at(changed, train(changed, tol=0.0).point)
        best = region.score_bounds(changed.matrix[row : row + 1])
        assert np.all(best.lower[0] <= found.bounds.upper[row]) and np.all(best.upper[0] >= found.bounds.lower[row])
        assert np.all(best.upper - best.lower < 1e-7)


@pytest.mark.parametrize("kind", ["strengths", "fills", "class_factors", "nothing"])
@pytest.mark.parametrize("scaling", ["sum", "mean"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_bounds_of_classes_of_wide_data_hold_the_optimum(kind, scaling, fit_intercept):
    """Columns with heavy tails: single rows change what is refitted by much, and rows that are trained are trained over the rows."""
    rng = np.random.default_rng([len(kind), fit_intercept])
    n_rows, n_columns = 24, 60
    X = np.exp(1.2 * rng.normal(size=(n_rows, n_columns)))
    y = np.arange(n_rows) % 3
    problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(2.0), fit_intercept=fit_intercept, scaling=scaling)
    refits = {
        "strengths": Refits(strengths=rng.uniform(0.7, 1.1, size=X.shape)),
        "fills": replace(make_refits(rng, problem, ["fills"]), strengths=rng.uniform(0.9, 1.1, size=X.shape)),
        "class_factors": Refits(class_factors=rng.uniform(0.9, 1.1, size=(n_rows, 3)), groups=y),
        "nothing": None,
    }[kind]
    found = leave_one_out(glru.solve(problem, tol=1e-8), refits=refits, width=1e-5)
    # Moved fills are left to models of single rows.
    assert found.certified
    assert kind == "fills" or "newton" in found.decided_by
    for row in range(n_rows):
        changed = problem.without(np.array([row])) if refits is None else refits.problem(problem, row)
        region = ClassEllipsoid.at(changed.require_weight(), train(changed, tol=0.0).point)
        best = region.score_bounds(changed.matrix[row : row + 1])
        assert np.all(best.lower[0] <= found.bounds.upper[row]) and np.all(best.upper[0] >= found.bounds.lower[row])
        assert np.all(best.upper - best.lower < 1e-6)


def test_bounds_of_classes_cover_factors_that_are_off():
    rng, error = np.random.default_rng(10), 1e-4
    X = rng.normal(size=(200, 2))
    y = np.argmax(X @ rng.normal(size=(2, 3)) + rng.normal(size=(200, 3)), axis=1)
    problem = glru.Problem(X, y, loss=glru.Multinomial(), penalty=glru.L2(1e-2), scaling="sum", fit_intercept=True)
    ones, filled = np.ones((200, 2)), np.tile([True, False], (200, 1))
    stored = Refits(strengths=ones, class_factors=np.ones((200, 3)), groups=y, error=error)
    factors = np.tile([1.0, 1.0 + error, 1.0 - error], (200, 1))
    corners = [Refits(strengths=ones * (1.0 - error), class_factors=factors, groups=y)]
    moved = Refits(fills=np.full((200, 2), 1e-12), filled=filled, error=error)
    far = error * np.abs(X).max(axis=0)
    cases = [(stored, corners[0]), (moved, Refits(fills=np.tile(far, (200, 1)), filled=filled))]
    for known, true in cases:
        found = leave_one_out(glru.solve(problem, tol=1e-12), refits=known).bounds
        for row in (0, 7, 123):
            changed = true.problem(problem, row)
            region = ClassEllipsoid.at(changed, train(changed, tol=0.0).point)
            best = region.score_bounds(changed.matrix[row : row + 1])
            assert np.all(best.lower[0] <= found.upper[row]) and np.all(best.upper[0] >= found.lower[row])


def test_refits_matter():
    """The scores differ from those of the same removals without refits by far more than the intervals are wide."""
    rng = np.random.default_rng(4)
    problem = make_case(rng, False, glru.Logistic(), "sum", True)
    strengths = rng.uniform(0.4, 1.2, size=(problem.n_rows, problem.n_columns))
    solution = glru.solve(problem, tol=1e-10)
    with_refits = leave_one_out(solution, refits=Refits(strengths=strengths), width=1e-7).bounds
    without = leave_one_out(solution, width=1e-7).bounds
    apart = (with_refits.lower > without.upper) | (with_refits.upper < without.lower)
    assert apart.mean() > 0.9


def test_rows_with_a_problem_of_their_own():
    rng = np.random.default_rng(5)
    problem = make_case(rng, False, glru.Logistic(), "sum", True)
    extra = rng.normal(size=(problem.n_rows, 1))
    alone = np.zeros(problem.n_rows, dtype=bool)
    alone[2] = True

    def refit(row):
        weight = problem.sample_weight.copy()
        weight[row] = 0.0
        X = np.hstack([problem.matrix.dense(), extra])
        return problem.derive(X=X, penalty=glru.L2(1.0), sample_weight=weight)

    refits = Refits(strengths=np.ones((problem.n_rows, problem.n_columns)), alone=alone, refit=refit)
    found = leave_one_out(glru.solve(problem), refits=refits, width=1e-6)
    lower, upper = optimal_bounds(refit(2), 2)
    assert lower <= found.bounds.upper[2] and upper >= found.bounds.lower[2]
    plain = leave_one_out(glru.solve(problem), width=1e-6)
    assert plain.bounds.upper[3] >= found.bounds.lower[3] and plain.bounds.lower[3] <= found.bounds.upper[3]


def test_a_checkpoint_tells_refits_apart(tmp_path):
    rng = np.random.default_rng(6)
    problem = make_case(rng, False, glru.Logistic(), "sum", True)
    solution = glru.solve(problem)
    shape = problem.n_rows, problem.n_columns
    found = [
        leave_one_out(
            solution, refits=Refits(strengths=np.full(shape, factor)), width=1e-6, checkpoint=tmp_path / "run"
        )
        for factor in (2.0, 0.5, 2.0)
    ]
    assert np.array_equal(found[0].bounds.lower, found[2].bounds.lower)
    apart = (found[0].bounds.lower > found[1].bounds.upper) | (found[0].bounds.upper < found[1].bounds.lower)
    assert apart.any()


def test_what_refits_do_not_have_is_refused(tmp_path):
    rng = np.random.default_rng(7)
    problem = make_case(rng, False, glru.Logistic(), "sum", True)
    shape = problem.n_rows, problem.n_columns
    with pytest.raises(ValueError, match="does not follow preprocessing"):
        leave_one_out(problem, refits=Refits(strengths=np.ones(shape)), method="approx")
    alone = Refits(strengths=np.ones(shape), alone=np.ones(problem.n_rows, dtype=bool), refit=lambda row: problem)
    with pytest.raises(ValueError, match="a checkpoint cannot tell"):
        leave_one_out(problem, refits=alone, checkpoint=tmp_path / "run")


@pytest.mark.parametrize("power", [0, 600, -600])
@pytest.mark.parametrize("kinds", [("strengths",), ("fills",), ("class_factors",), ("strengths", "fills")])
def test_expansions_hold_the_optimum(power, kinds):
    """Bounds without a product of all rows with each model, at any size of the objective, are narrow and right."""
    rng = np.random.default_rng(11)
    X = rng.normal(size=(500, 3)) * [1.0, 1e3, 1e-3]
    y = np.where(X[:, 0] + rng.normal(size=500) > 0.0, 1.0, -1.0)
    unit = 2.0**power
    penalty = glru.L2(unit * np.array([1.0, 1e-6, 1e6]))
    weight = np.full(500, unit)
    problem = glru.Problem(X, y, penalty=penalty, scaling="sum", fit_intercept=True, sample_weight=weight)
    shape = problem.n_rows, problem.n_columns
    changes = {}
    if "strengths" in kinds:
        changes["strengths"] = 1.0 + 0.01 * rng.uniform(-1.0, 1.0, size=shape)
    if "fills" in kinds:
        changes["filled"] = rng.random(shape) < 0.1
        changes["fills"] = 0.01 * rng.normal(size=shape) * [1.0, 1e3, 1e-3]
    if "class_factors" in kinds:
        changes["class_factors"] = 1.0 + 1e-4 * rng.uniform(-1.0, 1.0, size=(500, 2))
    refits, rows = Refits(**changes), np.arange(500)
    family = TallRefits(glru.solve(problem, tol=1e-8), refits)
    first = family.bound_quickly(rows, lambda lower, _: np.ones(len(lower), dtype=bool))
    second = family.bound_quickly(rows, lambda lower, _: np.zeros(len(lower), dtype=bool))
    narrow = np.median(second[1] - second[0])
    assert narrow < 1e-4 < 10.0 * narrow or narrow < 0.1 * np.median(first[1] - first[0])
    for row in (3, 77, 123, 290, 411):
        lower, upper = optimal_bounds(refits.problem(problem, row), row)
        for found in (first, second):
            assert lower <= found[1][row] and upper >= found[0][row]


@pytest.mark.parametrize("error", [1e-3, 1e-5])
def test_bounds_cover_fills_that_are_off(error):
    rng = np.random.default_rng(12)
    X = rng.normal(size=(400, 2))
    y = np.where(X[:, 0] + rng.normal(size=400) > 0.0, 1.0, -1.0)
    problem = glru.Problem(X, y, penalty=glru.L2(1e-4), scaling="sum", fit_intercept=True)
    filled, far = rng.random((400, 2)) < 0.3, error * np.abs(X).max(axis=0)
    family = TallRefits(
        glru.solve(problem, tol=1e-12), Refits(fills=np.full((400, 2), 1e-9), filled=filled, error=error)
    )
    for asked in (np.ones, np.zeros):
        found = family.bound_quickly(np.arange(400), lambda lower, _, asked=asked: asked(len(lower), dtype=bool))
        for sign in (-1.0, 1.0):
            true = Refits(fills=np.tile(sign * far, (400, 1)), filled=filled)
            for row in (0, 7, 123):
                lower, upper = optimal_bounds(true.problem(problem, row), row)
                assert lower <= found[1][row] and upper >= found[0][row]


@pytest.mark.parametrize("error", [1e-3, 1e-5])
def test_bounds_cover_factors_factors_that_are_off(error):
    """Class factors and strengths at the corner of what is allowed, where the quick bounds decide."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(400, 2))
    y = np.where(X[:, 0] + rng.normal(size=400) > 0.0, 1.0, -1.0)
    problem = glru.Problem(X, y, penalty=glru.L2(1e-4), scaling="sum", fit_intercept=True)
    stored = Refits(strengths=np.ones((400, 2)), class_factors=np.ones((400, 2)), error=error)
    true = Refits(strengths=np.full((400, 2), 1.0 - error), class_factors=np.tile([1.0, 1.0 + error], (400, 1)))
    found = leave_one_out(glru.solve(problem, tol=1e-12), refits=stored).bounds
    for row in (0, 7, 123):
        lower, upper = optimal_bounds(true.problem(problem, row), row)
        assert lower <= found.upper[row] and upper >= found.lower[row]


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("n_rows", [20, 300, 2000])
def test_moments_without_a_row_err_by_no_more_than_they_say(n_rows, holes):
    """Sums of few rows, and sums of many rows in blocks, against rational arithmetic."""
    rng = np.random.default_rng(n_rows)
    X = np.exp(rng.normal(size=(n_rows, 3)) * [0.1, 1.0, 3.0])
    X[:, 1] += 100.0
    if holes:
        X[rng.random(X.shape) < 0.1] = np.nan
    mean, variance, mean_error, error = Columns(X, X).full().moments
    off = np.zeros(2)
    for column in range(3):
        known = [Fraction(x) for x in X[~np.isnan(X[:, column]), column]]
        total, squares = sum(known), sum(x * x for x in known)
        for row in rng.choice(n_rows, 20, replace=False):
            own = Fraction(0) if np.isnan(X[row, column]) else Fraction(X[row, column])
            count = len(known) - (not np.isnan(X[row, column]))
            exact = (total - own) / count
            spread = (squares - own * own) / count - exact * exact
            wrong = abs(Fraction(mean[row, column]) - exact), abs(Fraction(variance[row, column]) - spread)
            assert wrong[0] <= mean_error[0, column] and wrong[1] <= error[0, column]
            off = np.maximum(off, [float(wrong[1]) / float(spread), float(error[0, column]) / float(spread)])
    assert off[0] > 0.0 and off[1] < 2e-12


@pytest.mark.parametrize("n_rows", [20, 300, 5000])
def test_moments_of_splits_err_by_no_more_than_they_say(n_rows):
    """Train rows that are drawn more than once included, against rational arithmetic; the error grows with the root of the rows."""
    rng = np.random.default_rng(n_rows)
    X = np.exp(rng.normal(size=(n_rows, 3)) * [0.1, 1.0, 3.0])
    X[:, 1] += 100.0
    X[rng.random(X.shape) < 0.1] = np.nan
    splits = [(np.arange(n_rows // 5, n_rows), np.arange(n_rows // 5)), (rng.integers(0, n_rows, n_rows), np.arange(3))]
    mean, variance, mean_error, error = Columns(X, X, splits).full().moments
    off = 0.0
    for k, (rows, _) in enumerate(splits):
        for column in range(3):
            known = [Fraction(x) for x in X[rows, column] if not np.isnan(x)]
            exact = sum(known) / len(known)
            spread = sum(x * x for x in known) / len(known) - exact * exact
            assert abs(Fraction(mean[k, column]) - exact) <= mean_error[0, column]
            wrong = abs(Fraction(variance[k, column]) - spread)
            assert wrong <= error[0, column] < 4e-12 * spread
            off = max(off, float(wrong / spread))
    assert off > 0.0


@pytest.mark.parametrize("lam", [0.0, 0.05], ids=["lasso", "elastic net"])
def test_supports_hold_for_strengths_that_are_off(lam):
    """Strengths at the corners of what is allowed, under a penalty with absolute values."""
    rng, error = np.random.default_rng(4), 1e-8
    X = rng.normal(size=(30, 5))
    y = X @ [2.0, -1.0, 0.0, 0.0, 0.3] + rng.normal(size=30)
    penalty = glru.ElasticNet(lam, 0.3) if lam else glru.L1(0.3)
    problem = glru.Problem(X, y, glru.Squared(), penalty, fit_intercept=True)
    strengths = rng.uniform(0.25, 1.2, size=X.shape)
    stored = Refits(strengths=strengths, error=error, refit=lambda row: problem.without(np.array([row])))
    # Unknown work: no row is trained to compare, as the strengths are not those of its refit.
    found = leave_one_out(replace(glru.solve(problem, tol=1e-12), work=0), refits=stored, width=1e-3)
    assert found.n_trainings == 0 and found.decided_by == {"refine": 30}
    for sign in (-1.0, 1.0):
        true = Refits(strengths=strengths + sign * error * np.maximum(1.0, strengths))
        for row in range(30):
            lower, upper = optimal_bounds(true.described(problem, row), row)
            assert lower <= found.bounds.upper[row] and upper >= found.bounds.lower[row]


def make_shrunk(kind, rng):
    """A wide problem and strengths of which some nearly vanish without a row: of columns with one large value, or of any."""
    X = rng.normal(size=(16, 60))
    if kind == "scaler":
        X[np.arange(8), np.arange(8)] = 10.0 ** rng.uniform(1, 3, size=8)
    y = np.where(X[:, 20:].sum(axis=1) + 3.0 * rng.normal(size=16) > 0.0, 1.0, -1.0)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    strengths = np.array([np.delete(X, row, axis=0).var(axis=0) for row in range(16)])
    if kind == "any":
        strengths = np.where(rng.random(X.shape) < 0.02, 10.0 ** rng.uniform(-0.7, 0, size=X.shape), strengths)
    return glru.Problem(X, y, penalty=glru.L2(1.0), scaling="sum", fit_intercept=True), strengths


@pytest.mark.parametrize("kind", ["scaler", "any"])
@pytest.mark.parametrize("size", [0.0, 0.05])
@pytest.mark.parametrize("error", [0.0, 1e-5])
def test_wide_bounds_of_strengths_that_shrink(kind, error, size):
    """At every candidate on the way, and for all strengths and fills within their error."""
    rng = np.random.default_rng(len(kind))
    problem, strengths = make_shrunk(kind, rng)
    filled, fills = rng.random(strengths.shape) < 0.05, size * rng.normal(size=strengths.shape)
    family = WideRefits(
        glru.solve(problem, tol=1e-10), Refits(strengths=strengths, filled=filled, fills=fills, error=error)
    )
    off, far = error * np.maximum(1.0, strengths), (size > 0.0) * error * np.abs(problem.X).max(axis=0)
    true = [(strengths, fills)] if error == 0.0 else [(strengths - off, fills + far), (strengths + off, fills - far)]
    optima = [
        [
            optimal_bounds(Refits(strengths=one, filled=filled, fills=other).problem(problem, row), row)
            for one, other in true
        ]
        for row in range(16)
    ]
    narrow = []
    for n_steps in range(1, 12):
        with np.errstate(all="ignore"):
            lower, upper = family.bounds(np.arange(16), lambda low, _: np.zeros(low.size, dtype=bool), n_steps)
        for row, known in enumerate(optima):
            assert all(low <= upper[row] and high >= lower[row] for low, high in known)
        narrow.append(np.isfinite(upper - lower).sum())
    assert narrow[-1] >= 10 and narrow[0] < 16


@pytest.mark.parametrize("kinds", [("strengths",), ("fills",), ("strengths", "fills", "class_factors")])
@pytest.mark.parametrize("loss", [glru.SquaredHinge(), glru.SmoothedHinge(1.0)], ids=lambda loss: type(loss).__name__)
def test_bounds_between_kinks_hold_at_every_candidate(kinds, loss):
    rng = np.random.default_rng(len(kinds))
    known = 0
    for fit_intercept in (False, True):
        X = rng.normal(size=(40, 4))
        y = np.where(X[:, 0] + rng.normal(size=40) > 0.0, 1.0, -1.0)
        problem = glru.Problem(X, y, loss, glru.L2(1.0), scaling="sum", fit_intercept=fit_intercept)
        refits = make_refits(rng, problem, kinds)
        family = TallRefits(glru.solve(problem, tol=1e-10), refits)
        optima = [optimal_bounds(refits.problem(problem, row), row) for row in range(40)]
        for n_steps in (1, 2, 3, 8):
            with np.errstate(all="ignore"):
                lower, upper = family.bounds(np.arange(40), lambda low, _: np.zeros(low.size, dtype=bool), n_steps)
            assert all(low <= upper[row] and high >= lower[row] for row, (low, high) in enumerate(optima))
        known += np.count_nonzero(upper - lower < 1e-6)
    assert known > 5


@pytest.mark.parametrize("kinds", [("strengths",), ("strengths", "fills"), ("fills", "class_factors")])
def test_steps_over_kinks_end_at_the_optimum(kinds):
    """Rows of high leverage that cross many kinks: steps with their own Hessians, proven by the ball of the penalty."""
    rng = np.random.default_rng(len(kinds))
    X = rng.standard_t(2.0, size=(24, 8))
    y = np.where(X[:, 0] + rng.normal(size=24) > 0.0, 1.0, -1.0)
    problem = glru.Problem(X, y, glru.SquaredHinge(), glru.L2(0.05), scaling="sum")
    refits = make_refits(rng, problem, kinds)
    family = TallRefits(glru.solve(problem, tol=1e-10), refits)
    optima = [optimal_bounds(refits.problem(problem, row), row) for row in range(24)]
    narrow = []
    for n_steps in (1, 4, 8, 30):
        with np.errstate(all="ignore"):
            lower, upper = family.bounds(np.arange(24), lambda low, _: np.zeros(low.size, dtype=bool), n_steps)
        assert np.isfinite(upper - lower).all()
        assert all(low <= upper[row] and high >= lower[row] for row, (low, high) in enumerate(optima))
        narrow.append(np.count_nonzero(upper - lower < 1e-8))
    assert narrow[0] < 8 and narrow[-1] > 18, narrow
