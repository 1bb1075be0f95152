"""Certificates of multinomial models against models retrained beyond float64."""

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

import glru
from tests.certificates.class_truth import LONG, retrain_classes, retrained_without
from tests.core import (
    ClassBall,
    ClassCandidates,
    ClassEllipsoid,
    ClassFolds,
    ClassMetric,
    ClassRows,
    Point,
    Refits,
    WideClasses,
    certify,
    class_space,
    has_class_space,
    summed,
    train,
    widen_queries,
)


def problems(seed):
    """Problems of all sizes of strengths, units and weights, some with copies of rows, constants and separated classes."""
    rng = np.random.default_rng(seed)
    n_classes, n_columns = int(rng.integers(3, 6)), int(rng.integers(1, 5))
    n_rows = int(rng.integers(3 * n_classes, 40))
    X = rng.normal(size=(n_rows, n_columns))
    if rng.random() < 0.4:
        X *= 10.0 ** rng.uniform(-2, 3, size=n_columns)
    if rng.random() < 0.2:
        X[:, 0] = 1.0
    if rng.random() < 0.3:
        X[n_rows // 2 :] = X[: n_rows - n_rows // 2]
    y = rng.integers(0, n_classes, n_rows)
    y[: 3 * n_classes] = np.tile(np.arange(n_classes), 3)
    if rng.random() < 0.3:
        y = np.argsort(np.argsort(X[:, 0], kind="stable"), kind="stable") * n_classes // n_rows
    strength = 10.0 ** rng.uniform(-6, 4)
    penalty = glru.L2(strength * 10.0 ** rng.uniform(-2, 2, size=n_columns) if rng.random() < 0.3 else strength)
    weight = rng.random(n_rows) * 5.0 if rng.random() < 0.3 else None
    return glru.Problem(
        X,
        y,
        loss=glru.Multinomial(),
        penalty=penalty,
        fit_intercept=bool(rng.random() < 0.6),
        scaling=("mean", "sum")[int(rng.integers(2))],
        sample_weight=weight,
    )


def objective(problem, model):
    X = problem.matrix.dense().astype(LONG)
    X = np.column_stack([X, np.ones(problem.n_rows)]) if problem.fit_intercept else X
    z = X @ model.T
    top = z.max(axis=1)
    losses = np.log(np.exp(z - top[:, None]).sum(axis=1)) + top - z[np.arange(problem.n_rows), problem.y]
    coef = model[:, : problem.n_columns]
    return problem.weights.astype(LONG) @ losses + 0.5 * np.sum(problem.quadratic * coef**2)


@pytest.mark.parametrize("seed", range(10))
def test_the_gap_is_at_least_the_distance_from_the_optimum(seed):
    problem = problems(seed)
    solution = glru.solve(problem, tol=10.0 ** -(2 + seed % 8))
    free = problem.fit_intercept
    here = np.column_stack([solution.coef, solution.intercept]) if free else solution.coef
    best, _ = retrain_classes(
        problem.matrix.dense(), problem.y, problem.weights, problem.quadratic, problem.n_scores, free, here
    )
    distance = objective(problem, here.astype(LONG)) - objective(problem, best)
    assert solution.gap >= distance - 1e-17 * objective(problem, best)
    assert ClassEllipsoid.at(problem, solution.point).gap >= distance - 1e-17 * objective(problem, best)
    # A dual point far from the best one proves as much, if less tightly.
    rng = np.random.default_rng(seed)
    other = problem.loss.slopes_of(problem.y, rng.dirichlet(np.ones(problem.n_scores), problem.n_rows))
    assert certify(problem, Point(solution.coef, solution.intercept, -other)).gap >= distance


@mpmath.workdps(40)
def test_slopes_are_off_by_more_than_their_scores():
    """Intercepts next to zero, whose scores are nearly exact: the interval holds the optimum by what the probabilities lose."""
    counts, rng = (33, 33, 35), np.random.default_rng(0)
    y = np.repeat(np.arange(3), counts)
    problem = glru.Problem(np.zeros((y.size, 1)), y, glru.Multinomial(), glru.L2(1.0), fit_intercept=True)
    logs = [mpmath.log(count) for count in counts]
    exact = [value - sum(logs) / 3 for value in logs]
    for move in rng.normal(size=(200, 3)) * 3e-16:
        point = Point(np.zeros((3, 1)), np.array([float(value) for value in exact]) + move)
        lower, upper = ClassEllipsoid.at(problem, point).intercept_bounds()
        assert all(low <= value <= high for value, low, high in zip(exact, lower, upper, strict=True))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_leave_one_out_without_a_metric():
    """Columns that are equal and hardly penalised: no family is proven, and intervals are narrowed as far as they go."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=30), np.arange(30) % 3
    problem = glru.Problem(np.column_stack([x, x]), y, glru.Multinomial(), glru.L2(1e-17), fit_intercept=True)
    assert not ClassRows(problem, glru.solve(problem).point).usable
    result = glru.loocv(problem, max_seconds=5.0)
    assert np.all(result.bounds.lower <= result.bounds.upper)


@pytest.mark.parametrize("seed", range(100, 115))
def test_held_out_intervals_hold_the_retrained_scores(seed):
    problem, rng = problems(seed), np.random.default_rng(seed)
    solution = glru.solve(problem, tol=10.0 ** -rng.uniform(2, 9))
    result = glru.loocv(solution, width=(None, "labels", 1e-6)[seed % 3])
    start = np.column_stack([solution.coef, solution.intercept]) if problem.fit_intercept else solution.coef
    for row in rng.choice(problem.n_rows, 4, replace=False):
        _, scores, _ = retrained_without(problem, row, start)
        assert np.all(result.bounds.lower[row] <= scores), row
        assert np.all(scores <= result.bounds.upper[row]), row
        if result.decided[row]:
            assert result.labels[row] == problem.classes[int(np.argmax(scores))]


def first_bounds(family, rows, reference):
    """Bounds around Newton steps, from the slopes of all rows."""
    found = ClassCandidates.first(family, family.removals(rows), reference).certify()
    return found.lower.T, found.upper.T


@pytest.mark.parametrize("seed", [240, 247, 326])
def test_steps_in_double_precision_hold_the_retrained_scores_as_far_as_rounding_goes(seed):
    problem, rng = problems(seed), np.random.default_rng(seed)
    family = ClassRows(problem, glru.solve(problem, tol=1e-9).point)
    rows = rng.choice(problem.n_rows, 3, replace=False)
    reference = rng.integers(0, problem.n_scores, rows.size)
    lower, upper = family.refined(rows, reference, lambda low, high: np.zeros(len(low), bool), 12)
    assert np.any(np.isfinite(lower))
    for place, row in enumerate(rows):
        _, scores, _ = retrained_without(problem, row)
        queries = np.concatenate([scores, scores[reference[place]] - scores])
        assert np.all(lower[place] <= queries) and np.all(queries <= upper[place])


@pytest.mark.parametrize("seed", range(200, 208))
def test_each_family_holds_the_retrained_scores_and_leads(seed):
    problem, rng = problems(seed), np.random.default_rng(seed)
    solution = glru.solve(problem, tol=10.0 ** -rng.uniform(3, 9))
    family, n_scores = ClassRows(problem, solution.point), problem.n_scores
    if not family.usable:
        pytest.skip("nothing is proven of this problem in float64")
    rows = rng.choice(problem.n_rows, 4, replace=False)
    reference = rng.integers(0, n_scores, rows.size)
    never = [family.bounds(rows, reference), first_bounds(family, rows, reference)]
    never += [family.refined(rows, reference, lambda low, high: np.zeros(len(low), bool), n) for n in (1, 3)]
    for place, row in enumerate(rows):
        _, scores, _ = retrained_without(problem, row)
        queries = np.concatenate([scores, scores[reference[place]] - scores])
        for lower, upper in never:
            assert np.all(lower[place] <= queries)
            assert np.all(queries <= upper[place])


def test_slopes_of_all_rows_give_narrower_bounds_than_their_norms():
    problem = problems(204)
    family, rows = ClassRows(problem, glru.solve(problem, tol=1e-9).point), np.arange(problem.n_rows)
    reference = np.zeros(rows.size, dtype=np.intp)
    wide, narrow = (
        np.subtract(*ends[::-1]) for ends in (family.bounds(rows, reference), first_bounds(family, rows, reference))
    )
    assert np.median(narrow[:, 0]) < 0.1 * np.median(wide[:, 0])


def test_rows_of_large_norms_carry_no_more_of_the_hessian_than_is_said():
    rng = np.random.default_rng(5)
    X = rng.standard_t(1.5, (300, 6))
    y = (X @ rng.normal(size=(6, 4)) + 3.0 * rng.gumbel(size=(300, 4))).argmax(axis=1)
    problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(1.0), fit_intercept=True, scaling="sum")
    family = ClassRows(problem, glru.solve(problem, tol=1e-9).point)
    weights, largest, lost = family.near
    assert largest < 0.5 * family.largest_norm
    full = np.linalg.inv(_hessian(problem, family.values.likely, problem.weights))
    far = _hessian(problem, family.values.likely, problem.weights - weights, penalty=False)
    found = float(np.linalg.eigvals(full @ far).real.max())
    assert 0.2 * lost < found <= lost
    rows = np.column_stack([X, np.ones(300)])[weights > 0.0]
    blocks = full.reshape(4, 7, 4, 7)
    forms = np.einsum("ij,ajbk,ik->iab", rows, blocks, rows)
    own = np.einsum("iaa->ia", forms)
    # The metric was taken one Newton step before.
    norms = np.sqrt((own[:, :, None] + own[:, None, :] - 2.0 * forms).max(axis=(1, 2)))
    assert norms.max() <= largest * (1.0 + family.eta)


@pytest.mark.parametrize("move", [-0.02, -0.05, 0.1])
def test_moved_fills_leave_at_least_the_share_of_the_metric_that_is_said(move):
    rng = np.random.default_rng(6)
    X, y, filled = rng.normal(size=(60, 3)), rng.integers(0, 3, 60), np.zeros((60, 3), dtype=bool)
    filled[:45, 1] = True
    X[filled] = 1.0
    problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(0.01), fit_intercept=True, scaling="sum")
    family = ClassRows(
        problem, glru.solve(problem).point, Refits(fills=move * filled.any(axis=0) * np.ones((60, 1)), filled=filled)
    )
    removals, likely, smallest = family.removals(np.arange(60)), family.values.likely, []
    metric = _hessian(problem, likely, problem.weights)
    for row in range(60):
        moved = problem.derive(X=X + move * filled)
        # The gauge is that of the metric: what moves is the data.
        without = _hessian(moved, likely, np.where(np.arange(60) == row, 0.0, problem.weights), penalty=False)
        hessian = metric - _hessian(problem, likely, problem.weights, penalty=False) + without
        smallest.append(float(np.linalg.eigvals(np.linalg.solve(metric, hessian)).real.min()))
    said = removals.own_shares()
    assert np.all(said > 0.0) and np.all(said <= smallest)
    if move < 0.0:
        assert np.any(removals.shares > smallest)


def _hessian(problem, likely, weights, penalty=True):
    """The Hessian over classes and columns, row by row; with the gauge of the metric where the penalty counts."""
    X = np.column_stack([problem.matrix.dense(), np.ones(problem.n_rows)])
    n_scores = likely.shape[1]
    h = np.einsum("ia,ab->iab", likely, np.eye(n_scores)) - likely[:, :, None] * likely[:, None, :]
    found = np.einsum("i,iab,ij,ik->ajbk", weights, h, X, X).reshape(n_scores * X.shape[1], -1)
    if penalty:
        gauge = ClassMetric(problem, likely).gauge
        found += np.kron(np.eye(n_scores), np.diag(np.append(problem.quadratic, 0.0)))
        found += np.kron(np.ones((n_scores, n_scores)), np.diag(gauge))
    return found


def test_a_dual_point_far_from_the_constraints_of_an_intercept_proves_nothing():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), np.repeat([0, 1, 2], [20, 5, 5])
    problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(0.1), fit_intercept=True)
    solution = glru.solve(problem, tol=1e-9)
    uniform = problem.loss.slopes_of(y, np.full((30, 3), 1.0 / 3.0))
    assert np.isinf(certify(problem, Point(solution.coef, solution.intercept, -uniform)).gap)
    free = problem.derive(fit_intercept=False)
    assert np.isfinite(certify(free, Point(solution.coef, solution.intercept, -uniform)).gap)


def test_queries_leave_room_for_errors_of_scores():
    rng = np.random.default_rng(1)
    scores, reference = 1e6 * rng.normal(size=(20, 4)), rng.integers(0, 4, 20)
    for errors in (np.zeros(20), np.full(20, 1e-3)):
        lower, upper = widen_queries(scores, np.zeros((20, 8)), errors, reference)
        for sign in (-1.0, 1.0):
            exact = scores.astype(LONG)
            exact[np.arange(20), reference] += sign * errors
            exact[np.arange(20), (reference + 1) % 4] -= sign * errors
            queries = np.hstack(
                [exact - exact.mean(axis=1, keepdims=True), exact[np.arange(20), reference][:, None] - exact]
            )
            assert np.all((lower <= queries) & (queries <= upper))


def test_coefficients_and_intercepts_sum_to_zero_over_the_classes():
    problem = problems(3)
    solution = glru.solve(problem, tol=1e-9)
    assert np.allclose(solution.coef.sum(axis=0), 0.0, atol=1e-9 * (1.0 + np.abs(solution.coef).max()))
    assert np.allclose(np.sum(solution.intercept), 0.0, atol=1e-9)


def test_both_solvers_reach_the_same_model():
    problem = problems(4)
    found = [glru.solve(problem, tol=1e-11, solver=solver) for solver in ("newton", "newton-cg")]
    assert np.allclose(found[0].scores, found[1].scores, atol=1e-4)
    assert all(solution.relative_gap <= 1e-10 for solution in found)


@pytest.mark.parametrize("exponent", [-600, 600])
def test_an_objective_of_any_size(exponent):
    """Weights and strengths times a power of two have the same optimum, whatever underflows on the way."""
    X, y = np.ones((60, 1)), np.arange(60) % 3
    X[0] = 60.0
    unit = 2.0**exponent
    made = [
        glru.Problem(X, y, glru.Multinomial(), glru.L2(1e-3 * f), scaling="sum", sample_weight=np.full(60, f))
        for f in (1.0, unit)
    ]
    plain, scaled = (glru.loocv(glru.solve(problem, tol=1e-9), width=1e-9).bounds for problem in made)
    assert np.all(scaled.lower <= scaled.upper)
    assert np.all((scaled.lower <= plain.upper) & (plain.lower <= scaled.upper))


def test_residuals_whose_squares_underflow_cost_what_they_cost():
    """The best coefficients beside a wrong intercept: only its constraint tells how far they are from the optimum, in any unit."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(30, 2)), np.where(np.arange(30) % 5 < 3, 0, np.arange(30) % 3)
    coef, own = np.zeros((3, 2)), np.eye(3)[y]
    for _ in range(3000):
        likely = np.exp(X @ coef.T)
        coef -= 0.05 * ((likely / likely.sum(axis=1, keepdims=True) - own).T @ X + 0.5 * coef)
    for unit in (1.0, 2.0**-600):
        options = {"scaling": "sum", "sample_weight": np.full(30, unit)}
        problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(0.5 * unit), True, **options)
        best = glru.solve(problem, tol=1e-10)
        start = glru.solve(problem, start=Point(coef, np.zeros(3)), until=lambda state: True)
        assert start.primal_value > 1.01 * best.primal_value
        assert start.gap >= start.primal_value - best.primal_value


def test_constraints_that_overflow_leave_a_gap_without_an_end():
    """Weights of 2^600 times the squares of a free column of 1e100 are not finite: nothing is certified, and nothing breaks."""
    X = np.random.default_rng(0).normal(size=(12, 2)) * [1.0, 1e100]
    unit = 2.0**600
    problem = glru.Problem(
        X, np.arange(12) % 3, glru.Multinomial(), glru.L2([unit, 0.0]), True, "sum", sample_weight=np.full(12, unit)
    )
    with pytest.warns(ConvergenceWarning):
        assert glru.solve(problem).gap == np.inf


@pytest.mark.parametrize("seed", range(12))
def test_the_ball_of_the_gap_holds_the_intercepts_too(seed):
    problem, finite = problems(100 + seed), 0
    X, free = problem.matrix.dense(), problem.fit_intercept
    exact, _ = retrain_classes(X, problem.y, problem.weights, problem.quadratic, problem.n_scores, free)
    exact = exact - exact.mean(axis=0)
    scores = (np.column_stack([X, np.ones(len(X))]) if free else X).astype(LONG) @ exact.T
    reference = np.zeros(problem.n_rows, dtype=np.intp)
    queries = np.hstack([scores, scores[:, :1] - scores])
    for tol in (1e-3, 1e-6, 1e-9, 1e-12):
        ball = ClassBall(certify(problem, glru.solve(problem, tol=tol).point))
        lower, upper = ball.queries(problem.matrix, reference)
        assert np.all((lower <= queries) & (queries <= upper))
        finite += int(np.isfinite(lower).all())
        if problem.fit_intercept:
            lower, upper = ball.intercept_bounds()
            assert np.all((lower <= exact[:, -1]) & (exact[:, -1] <= upper))
    assert finite > 0


@pytest.mark.parametrize("exponent", [-600, 600])
def test_the_ball_of_an_objective_of_any_size(exponent):
    rng = np.random.default_rng(3)
    X, y, found = rng.normal(size=(40, 3)), np.arange(40) % 4, []
    for unit in (1.0, 2.0**exponent):
        problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(0.3 * unit), True, "sum", np.full(40, unit))
        ball = ClassBall(certify(problem, glru.solve(problem, tol=1e-9).point))
        found.append(ball.queries(problem.matrix, np.zeros(40, dtype=np.intp)))
    assert np.isfinite(found[0][0]).all()
    for plain, scaled in zip(*found, strict=True):
        assert np.allclose(plain, scaled, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("exponent", [-400, 0, 400])
@pytest.mark.parametrize("apart", [1.0, 1e-3, 1e-6])
def test_forms_are_within_their_unit_of_those_of_the_factor(apart, exponent):
    # Columns that are nearly the same: large entries of the inverse cancel in the forms.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    X[:, 1] = X[:, 0] + apart * X[:, 1]
    y, size = np.arange(60) % 3, 2.0**exponent
    problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(1e-9 * size), True, "sum", np.full(60, size))
    metric = ClassMetric(problem, rng.dirichlet(np.ones(3), 60))
    assert metric.eta < 0.1
    factor, rows = metric.columns.factor.astype(LONG), np.column_stack([X, np.ones(60)])
    inverse = np.zeros_like(factor)
    for k in reversed(range(len(factor))):
        inverse[k] = (np.eye(len(factor), dtype=LONG)[k] - factor[k, k + 1 :] @ inverse[k + 1 :]) / factor[k, k]
    solved = np.einsum("ij,ajk->iak", rows.astype(LONG), inverse.reshape(3, 5, -1))
    exact = np.einsum("iak,ibk->iab", solved, solved)
    lengths = np.sqrt(np.einsum("iaa->ia", exact))
    error = np.abs(metric.all_forms(problem.matrix) - exact) / (lengths[:, :, None] * lengths[:, None, :])
    assert error.max() <= metric.unit < 1e-8


def wide_problems(seed):
    """A problem of more columns than rows, hostile in scales, shifts and copies of rows."""
    rng = np.random.default_rng(seed)
    n_classes = int(rng.integers(3, 5))
    n_rows = int(rng.integers(3 * n_classes, 16))
    n_columns = int(rng.integers(2 * n_rows, 3 * n_rows))
    X = rng.normal(size=(n_rows, n_columns)) * 10.0 ** rng.uniform(-3, 3)
    if rng.random() < 0.3:
        X += 10.0 ** rng.uniform(-2, 4)
    if rng.random() < 0.3:
        X *= 10.0 ** rng.uniform(-3, 3, size=n_columns)
    if rng.random() < 0.3:
        X[n_rows // 2 :] = X[: n_rows - n_rows // 2]
    y = np.tile(np.arange(n_classes), n_rows)[:n_rows]
    strength = float(np.square(X).sum() / n_rows) * 10.0 ** rng.uniform(-5, 2)
    penalty = glru.L2(strength * 10.0 ** rng.uniform(-2, 2, size=n_columns) if rng.random() < 0.3 else strength)
    return glru.Problem(
        X,
        y,
        loss=glru.Multinomial(),
        penalty=penalty,
        fit_intercept=bool(rng.random() < 0.6),
        scaling=("mean", "sum")[int(rng.integers(2))],
        sample_weight=rng.random(n_rows) * 5.0 if rng.random() < 0.3 else None,
    )


@pytest.mark.parametrize("seed", range(400, 416))
def test_wide_data_is_held_over_its_rows(seed):
    problem, rng = wide_problems(seed), np.random.default_rng(seed)
    assert has_class_space(problem)
    space, solution = class_space(problem), glru.solve(problem, tol=1e-8)
    nothing = Refits(alone=np.zeros(problem.n_rows, dtype=bool))
    mean = problem.scaling == "mean"
    family = WideClasses(summed(solution), nothing.summed(problem)) if mean else WideClasses(solution, nothing)
    rows = rng.choice(problem.n_rows, 3, replace=False)
    reference = rng.integers(0, problem.n_scores, rows.size)
    found = [family.bounds(rows, reference, lambda low, high: np.zeros(len(low), bool), n) for n in (1, 3)]
    result = glru.loocv(solution, width=(None, "labels", 1e-6)[seed % 3])
    for place, row in enumerate(rows):
        _, scores, _ = retrained_without(problem, row)
        queries = np.concatenate([scores, scores[reference[place]] - scores])
        alone = space.problem.without(np.array([row]))
        region = ClassEllipsoid.at(alone, train(alone, tol=1e-9).point)
        for lower, upper in [
            *found,
            [ends.repeat(3, axis=0) for ends in region.queries(space.problem.matrix[[row]], reference[[place]])],
        ]:
            assert np.all(lower[place] <= queries)
            assert np.all(queries <= upper[place])
        assert np.all((result.bounds.lower[row] <= scores) & (scores <= result.bounds.upper[row]))


@pytest.mark.parametrize("seed", range(420, 424))
def test_folds_of_wide_data_hold_the_retrained_scores(seed):
    problem = wide_problems(seed)
    problem = problem.derive(fit_intercept=False)
    rows = np.arange(problem.n_rows)
    folds = [(rows[rows % 3 != k], rows[rows % 3 == k]) for k in range(3)]
    result = glru.cross_val_predict(problem, cv=folds)
    assert np.isfinite(result.bounds.lower).all()
    for k, (_, test) in enumerate(folds):
        weight = np.where(rows % 3 == k, 0.0, problem.sample_weight).astype(LONG)
        weight = weight / weight.sum() if problem.scaling == "mean" else weight
        model, _ = retrain_classes(problem.X, problem.y, weight, problem.quadratic, problem.n_scores, False)
        scores, mine = problem.X[test].astype(LONG) @ model.T, np.flatnonzero(result.folds == k)
        assert np.array_equal(result.rows[mine], test)
        assert np.all((result.bounds.lower[mine] <= scores) & (scores <= result.bounds.upper[mine]))


def stepped_folds(seed):
    """A problem, three folds of it, their retrained models in extended precision, and the scores of the rows that they leave out."""
    problem = problems(seed) if seed % 3 else wide_problems(seed)
    rows = np.arange(problem.n_rows)
    tests = [np.flatnonzero(rows % 3 == k) for k in range(3)]
    folds = [problem.without(test) for test in tests]
    models = []
    for test in tests:
        weight = np.where(np.isin(rows, test), 0.0, problem.sample_weight).astype(LONG)
        weight = weight / weight.sum() if problem.scaling == "mean" else weight
        X, strengths = problem.matrix.dense(), problem.quadratic
        models.append(retrain_classes(X, problem.y, weight, strengths, problem.n_scores, problem.fit_intercept)[0])
    wide = np.column_stack([problem.matrix.dense(), np.ones(problem.n_rows)]).astype(LONG)[:, : models[0].shape[1]]
    return problem, folds, tests, models, [wide[test] @ model.T for test, model in zip(tests, models, strict=True)]


def holds(bounds, scores, reference):
    queries = np.hstack([scores, scores[np.arange(len(scores)), reference][:, None] - scores])
    return np.all((bounds[0] <= queries) & (queries <= bounds[1]))


@pytest.mark.parametrize("seed", range(600, 648, 6))
def test_folds_around_any_model_hold_the_retrained_scores(seed):
    """The metric of the smallest probabilities, which proves nothing of a few of these problems."""
    assert sum(count_bounds_around_models(near) for near in range(seed, seed + 6)) > 60


def count_bounds_around_models(seed):
    """Check bounds around models that are off by little and by much, in the metric of yet another model; how many there are."""
    problem, folds, tests, models, scores = stepped_folds(seed)
    family, rng = ClassFolds(problem, folds), np.random.default_rng(seed)
    found, active = 0, np.arange(3)
    for factored in (True, False):
        family.is_factored = factored
        for size in (0.0, 1e-10, 1e-6, 1e-3, 1e-2, 0.1):
            noise = np.array([size * rng.normal(size=model.shape) * np.abs(model).max(axis=0) for model in models])
            place = family.at(np.array(models, dtype=float) + noise.astype(float), active)
            other = family.at(np.array(models, dtype=float) + (0.5 * noise).astype(float), active)
            for k in active:
                known = family.make_metric(other, k, k)
                radius, _, _ = family.measure(place, k, k, known)
                if np.isfinite(radius):
                    X, never = problem.matrix[tests[k]], lambda lower, upper: np.zeros(len(lower), bool)
                    bounds, _ = family.ask(place, k, tests[k], X, known, radius, never, True)
                    reference = np.argmax(bounds[0][:, problem.n_scores :] == 0.0, axis=1)
                    assert holds(bounds, scores[k], reference)
                    found += 1
    return found


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_one_metric_of_many_folds_is_below_that_of_each(fit_intercept):
    """Models without one row each: what stands for all of their metrics has the smallest weights and probabilities of any."""
    rng = np.random.default_rng(8)
    X, y = rng.normal(size=(200, 3)) * np.append(20.0, np.ones(199))[:, None], np.arange(200) % 3
    problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(0.01), fit_intercept=fit_intercept)
    folds = [problem.without(np.array([row])) for row in (0, 7, 31)]
    family, active = ClassFolds(problem, folds), np.arange(3)
    assert family._shares_metric()
    place = family.at(rng.normal(size=(3, 3, 3 + fit_intercept)), active)
    shared = family.share_metric(place, active).metric.factor
    for k in active:
        own = family.make_metric(place, k, k).metric.factor
        assert np.linalg.eigvalsh(own.T @ own - shared.T @ shared).min() > -1e-12 * np.square(own).sum()


def test_probabilities_near_underflow_are_no_part_of_a_metric():
    """A number below 1e-308 has no relative error: the next smaller one may be half of it."""
    problem = glru.Problem(np.arange(4.0)[:, None], np.arange(4) % 3, glru.Multinomial(), glru.L2(1.0))
    family = ClassFolds(problem, [problem])
    least = family.at(np.array([[[0.0], [230.0], [240.0]]]), np.zeros(1, dtype=np.intp)).least[0]
    assert np.all(least[:3] > 0.0) and least[2] < 1e-200 and least[3] == 0.0


@pytest.mark.parametrize("seed", range(6))
def test_scores_of_folds_err_by_no_more_than_is_said(seed):
    problem, rng = problems(seed), np.random.default_rng(seed)
    family = ClassFolds(problem, [problem])
    models = rng.normal(size=(1, problem.n_scores, family.size)) * 10.0 ** rng.uniform(-3, 3)
    point = Point(
        models[0, :, : problem.n_columns], models[0, :, -1] if problem.fit_intercept else np.zeros(problem.n_scores)
    )
    exact = problem.X.astype(LONG) @ point.coef.T.astype(LONG) + point.intercept
    first, second = family.errors(models)
    errors = np.abs(problem.scores(point.coef, point.intercept) - exact).max(axis=1)
    assert np.all(errors <= family.lengths * first + second) and errors.max() > 0.0


@pytest.mark.parametrize("seed", range(600, 624))
def test_folds_stepped_together_hold_the_retrained_scores(seed):
    problem, folds, tests, _, scores = stepped_folds(seed)
    family = ClassFolds(problem, folds)
    found = family.bounds(family.find_common(), tests, lambda lower, upper: np.zeros(len(lower), bool))
    for (bounds, _), mine in zip(found, scores, strict=True):
        reference = np.argmax(bounds[0][:, problem.n_scores :] == 0.0, axis=1)
        if np.isfinite(bounds[0]).all():
            assert holds(bounds, mine, reference)


@pytest.mark.parametrize("seed", range(430, 434))
def test_a_factor_that_is_off_costs_width_and_no_proof(seed, monkeypatch):
    """Whatever rows stand for those of wide data, what their products miss is part of the bounds."""
    problem = wide_problems(seed)
    cholesky, rng = np.linalg.cholesky, np.random.default_rng(seed)
    monkeypatch.setattr(np.linalg, "cholesky", lambda K: cholesky(K) * (1.0 + 1e-8 * rng.normal(size=K.shape)))
    space = class_space(problem)
    monkeypatch.undo()
    for row in range(3):
        alone = space.problem.without(np.array([row]))
        region = ClassEllipsoid.at(alone, train(alone, tol=1e-12).point).take_step()
        _, scores, _ = retrained_without(problem, row)
        queries = np.concatenate([scores, scores[0] - scores])
        lower, upper = region.queries(space.problem.matrix[[row]], np.zeros(1, dtype=np.intp))
        assert np.all((lower[0] <= queries) & (queries <= upper[0]))


@pytest.mark.parametrize("seed", range(6))
def test_rows_whose_scores_are_off_move_the_optimum_within_the_region(seed):
    """Scores of rows that are off by as much as the noise of a matrix says, as if they had offsets: the optimum with these is in the region without."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 3
    offsets = 1e-3 * np.sign(rng.normal(size=(40, 3)))
    problem = glru.Problem(X, y, loss=glru.Multinomial(), penalty=glru.L2(0.01), scaling="sum")
    problem.matrix.noise = np.full(40, 1e-3)

    def objective_of(flat):
        scores = X @ flat.reshape(3, 3).T + offsets
        return float(problem.loss.value(y, scores).sum()) + 0.005 * float(flat @ flat)

    def gradient_of(flat):
        slopes = problem.loss.gradient(y, X @ flat.reshape(3, 3).T + offsets)
        return (slopes.T @ X).ravel() + 0.01 * flat

    best = minimize(objective_of, np.zeros(9), jac=gradient_of, method="BFGS", options={"gtol": 1e-9}).x.reshape(3, 3)
    region = ClassEllipsoid.at(problem, glru.solve(problem, tol=1e-12).point).take_step()
    lower, upper = region.coef_bounds()
    assert np.all((lower <= best) & (best <= upper))
    assert not np.allclose(best, region.point.coef, rtol=0.0, atol=1e-6)
