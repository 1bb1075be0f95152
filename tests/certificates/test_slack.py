"""Bounds with nothing in them but rounding: what they are made of is taken to be exact, and they still hold it."""

from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import glru
from glru.verify.retraining import retrain
from tests.attack.cases import left_out, never
from tests.cases import dense, with_bounds
from tests.certificates.exact import outside
from tests.certificates.truth import retrained
from tests.core import (
    CRITERIA,
    UNIT,
    DiagonalMetric,
    DualBox,
    FoldsJudge,
    Goal,
    Judge,
    LocalEllipsoid,
    LocalRows,
    Move,
    Point,
    RowCandidates,
    RowMetric,
    RowModels,
    RowSide,
    Screened,
    Steps,
    Value,
    WideColumns,
    WideRows,
    _budget,
    as_matrix,
    carried_of,
    certify,
    least_radius,
    make_column_metric,
    removal_factors,
    row_ellipsoids,
    row_norm_cuts,
    slope_error_norm,
)


def fractions(values):
    """Numbers as they are stored."""
    return [Fraction(float(v)) for v in values]


def assert_within(exact, lower, upper):
    for value, low, high in zip(exact, lower, upper, strict=True):
        assert Fraction(float(low)) <= value <= Fraction(float(high))


def cancelling(n, d, seed=0):
    """Rows whose sums with each other lose most of their digits."""
    X = dense(n, d, seed) * 10.0 ** np.random.default_rng(seed).uniform(0.0, 6.0, d)
    X[:, d // 2 :] = -X[:, : d - d // 2] * (1.0 + 1e-13 * dense(n, d - d // 2, seed + 1))
    return X


@pytest.mark.parametrize("scaling", ["mean", "sum"])
def test_the_dual_bound_of_leave_one_out(scaling):
    """Without a gap it is the score of the model that the carried dual point implies, row by row."""
    X = cancelling(9, 60)
    y = np.where(np.arange(9) % 2, 1.0, -1.0)
    problem = glru.Problem(X, y, glru.Logistic(), glru.L2(np.linspace(0.1, 3.0, 60)), scaling=scaling)
    solution = glru.solve(problem, until=lambda state: True)
    carried, rows = carried_of(solution)
    lower, upper = carried._bound_dual(rows, np.zeros(9))
    rows, lam = [fractions(row) for row in X], fractions(problem.penalty.quadratic)
    dual, exact = fractions(solution.dual), []
    for i in range(9):
        weights = fractions(problem.derive(sample_weight=np.where(np.arange(9) == i, 0.0, 1.0)).weights)
        pulls = [s * a for s, a in zip(weights, dual, strict=True)]
        coef = [sum(p * row[j] for p, row in zip(pulls, rows, strict=True)) / lam[j] for j in range(60)]
        exact.append(sum(x * w for x, w in zip(rows[i], coef, strict=True)))
    assert_within(exact, lower, upper)


@pytest.mark.parametrize("penalty", [glru.L2(0.7), glru.ElasticNet(0.7, 0.05)], ids=["l2", "elastic-net"])
def test_the_box(penalty):
    """Without a gap it holds the coefficients that the dual point implies, and their scores."""
    X = cancelling(60, 9).T.copy().T
    X[30:] = -X[:30] * (1.0 + 1e-13 * dense(30, 9, 3))
    problem = glru.Problem(X, np.where(np.arange(60) % 2, 1.0, -1.0), glru.Logistic(), penalty)
    dual = np.random.default_rng(5).uniform(0.2, 0.8, 60) * problem.y
    dual[30:] = dual[:30] * problem.y[30:] * problem.y[:30]
    dual = np.where(dual * problem.y > 0.0, dual, -dual)
    certificate = replace(certify(problem, Point(np.zeros(9), 0.0, dual)), gap=0.0)
    box = DualBox(certificate, fit_intercept=False)
    pulls = [s * a for s, a in zip(fractions(problem.weights), fractions(dual), strict=True)]
    rows = [fractions(row) for row in X]
    lam, kappa = Fraction(float(penalty.quadratic)), Fraction(float(penalty.absolute))
    exact = []
    for j in range(9):
        v = sum(p * row[j] for p, row in zip(pulls, rows, strict=True))
        exact.append((abs(v) - kappa) * (1 if v > 0 else -1) / lam if abs(v) > kappa else Fraction(0))
    assert_within(exact, *box.coef_bounds())
    scores = [sum(x * w for x, w in zip(row, exact, strict=True)) for row in rows]
    assert_within(scores, *box.score_bounds(problem.matrix))


def test_the_box_and_the_intercept():
    """The sum of two ends is rounded outward."""
    problem = glru.Problem(dense(40, 1), np.where(np.arange(40) % 2, 1, 0), penalty=glru.L2(0.1), fit_intercept=True)
    box = DualBox(glru.solve(problem).certificate, fit_intercept=True)
    vars(box)["_box"] = np.array([0.1]), np.array([0.3])
    for b in (0.7, 1.1, -0.3, 1e8):
        vars(box)["_intercept"] = (b, b)
        lower, upper = box.score_bounds(problem.matrix)
        for row, low, high in zip(problem.X[:, 0], lower, upper, strict=True):
            ends = sorted(Fraction(float(row)) * Fraction(w) for w in (0.1, 0.3))
            assert Fraction(float(low)) <= ends[0] + Fraction(b) and ends[1] + Fraction(b) <= Fraction(float(high))


class Told(Judge):
    """A judge that knows the value after every move."""

    def __init__(self, value):
        self.known = value

    @property
    def n_rows(self):
        return 1

    def value(self, thorough=False):
        return Value(self.known, self.known, "newton", self.known)

    def screen(self, moves, budget, contest=None):
        sure = np.full(len(moves), self.known)
        return Screened(sure, sure, np.zeros(len(moves)), "newton")

    def refine(self, move, goal):
        return self.value()

    def after(self, move):
        return self


@pytest.mark.parametrize("seed", range(5))
def test_sums_over_folds(seed):
    """Exact values of folds, added: the sum lies between its ends."""
    values = np.random.default_rng(seed).uniform(0.0, 1.0, 9) * 10.0 ** np.arange(9)
    judge = FoldsJudge([Told(float(value)) for value in values], CRITERIA["log_loss"])
    exact, move = sum(fractions(values)), Move((0,), add=False)
    screened = judge.screen([move], _budget.UNLIMITED)
    refined = judge.refine(move, Goal())
    for low, high in ((screened.lower[0], screened.upper[0]), *((w.lower, w.upper) for w in (judge.value(), refined))):
        assert Fraction(float(low)) <= exact <= Fraction(float(high))
        assert high - low <= 64.0 * UNIT * high
    counted = FoldsJudge([Told(float(round(value))) for value in values], CRITERIA["error"])
    assert counted.value().lower == counted.value().upper == float(sum(round(v) for v in values.tolist()))


def test_sums_over_rows():
    """A hundred thousand equal squares, added one by one for several candidates: every addition errs to the same side."""
    for target in (0.3, 0.7, 1.1):
        y = np.full(100_000, target)
        low, high = CRITERIA["squared_error"].sum_bounds(y[:, None], np.zeros((y.size, 2)), np.zeros((y.size, 2)))
        exact = y.size * Fraction(target) ** 2
        assert_within([exact, exact], low, high)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("powers", [3, 5])
def test_local_rows_of_a_squared_loss(fit_intercept, powers):
    """No curvature changes, so one step is exact: the bounds hold rounding alone, of an ill-conditioned system."""
    X = np.vander(np.linspace(0.6, 1.4, 12), powers)
    X = X[:, :-1] if fit_intercept else X
    y = np.sin(7.0 * X[:, -2]) + 1e3
    problem = glru.Problem(X, y, glru.Squared(), glru.L2(1e-9), fit_intercept=fit_intercept)
    rows, exact = left_out(problem)
    solution = glru.solve(problem, tol=1e-12, until=lambda state: False)
    local = LocalRows(solution, float(removal_factors(problem)[0]))
    assert local.usable
    for lower, upper in (local.bounds(rows), local.refined(rows, never, 3)):
        assert np.all(upper - lower < 1.0)
        for (score, off), low, high in zip(exact, lower, upper, strict=True):
            assert float(low) - off <= score <= float(high) + off


@pytest.mark.parametrize("underflow", [False, True], ids=["", "underflow"])
def test_the_metric_is_as_near_to_the_hessian_as_it_says(underflow):
    """Columns in units of their own, and one whose squares underflow: the exact Hessian is within ``eta`` of the factor."""
    X = np.vander(np.linspace(0.5, 1.5, 20), 5) * np.exp2([-30, 20, 0, 7, -3])
    lam = np.full(5, 1e-7)
    if underflow:
        X[:, 1], lam[1] = 1e-160 * dense(20, 1, 2)[:, 0], 0.0
    problem = glru.Problem(X, np.zeros(20), glru.Squared(), glru.L2(lam))
    curvatures = problem.weights
    with np.errstate(over="ignore"):  # as the callers of a metric do
        metric = make_column_metric(problem.totals, problem.hessian(curvatures))
    assert underflow or metric.eta < 1e-3
    if not metric.eta < 1.0:
        return
    rows, factor = [fractions(row) for row in X], [fractions(row) for row in metric.factor]
    for direction in [*np.eye(5), *metric.inverse.T]:
        u = fractions(direction)
        images = [sum(x * v for x, v in zip(row, u, strict=True)) ** 2 for row in rows]
        exact = sum(s * image for s, image in zip(fractions(curvatures), images, strict=True))
        exact += sum(strength * v**2 for strength, v in zip(fractions(lam), u, strict=True))
        made = sum(sum(r * v for r, v in zip(row, u, strict=True)) ** 2 for row in factor)
        assert abs(exact - made) <= Fraction(metric.eta) * made


def test_norms_in_the_metric():
    """Never below the norms that the stored factor implies."""
    X = np.vander(np.linspace(0.5, 1.5, 20), 5)
    problem = glru.Problem(X, np.zeros(20), glru.Squared(), glru.L2(1e-7))
    metric = make_column_metric(problem.totals, problem.hessian(problem.weights))
    factor = [fractions(row) for row in metric.factor]
    for row, norm in zip(X, metric.norms(problem.matrix), strict=True):
        solved: list[Fraction] = []
        for k, x in enumerate(fractions(row)):
            solved.append((x - sum(factor[j][k] * solved[j] for j in range(k))) / factor[k][k])
        assert Fraction(float(norm)) ** 2 >= sum(v**2 for v in solved)


def known(y, loss, scores):
    """A leave-one-out result whose scores are known exactly."""
    found = glru.loocv(glru.Problem(dense(y.size, 1), y, loss, glru.L2(0.1)))
    return with_bounds(found, scores, scores)


@pytest.mark.parametrize("name", ["squared_error", "absolute_error", "r2"])
@pytest.mark.parametrize("far", [0.0, 1e8])
def test_metrics_of_exact_scores(name, far):
    """What is left is the rounding of the metric itself; targets far from zero have a mean that is rounded, too."""
    random = np.random.default_rng(3)
    for _ in range(5):
        y = far + 1e-5 * random.normal(size=37)
        scores = y + 1e-5 * random.normal(size=37)
        low, high = known(y, glru.Squared(), scores).metric_bounds(name)
        off = [t - z for t, z in zip(fractions(y), fractions(scores), strict=True)]
        square, mean = sum(v**2 for v in off) / 37, sum(fractions(y)) / 37
        spread = sum((t - mean) ** 2 for t in fractions(y)) / 37
        exact = {"squared_error": square, "absolute_error": sum(map(abs, off)) / 37, "r2": 1 - square / spread}[name]
        assert_within([exact], [low], [high])


@pytest.mark.parametrize("name", ["log_loss", "brier"])
def test_metrics_of_exact_log_odds(name):
    random = np.random.default_rng(3)
    y = np.where(np.arange(37) % 2, 1.0, -1.0)
    for _ in range(5):
        scores = 3.0 * random.normal(size=37)
        low, high = known(y, glru.Logistic(), scores).metric_bounds(name)
        with mpmath.workdps(40):
            margins = [mpmath.mpf(float(v)) for v in y * scores]
            if name == "log_loss":
                exact = sum(mpmath.log1p(mpmath.exp(-m)) for m in margins) / 37
            else:
                exact = sum((1 / (1 + mpmath.exp(m))) ** 2 for m in margins) / 37
            assert low <= exact <= high


# The dimension of the rows --------------------------------------------------------------------------------------------


def wide_problem(loss=None, fit_intercept=False, lam=0.3, n=7, d=40):
    X = cancelling(n, d, 3)
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    return glru.Problem(X, y, loss or glru.Logistic(), glru.L2(lam * np.linspace(1.0, 9.0, d)), fit_intercept, "sum")


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_scores_of_the_row_side(fit_intercept):
    """Scores of stored pairs: sums over columns, then over rows, each of which loses digits."""
    problem = wide_problem(fit_intercept=fit_intercept)
    side, random = RowSide(problem), np.random.default_rng(0)
    duals, free = random.normal(size=(7, 5)), random.normal(size=(side.n_free, 5)) * 1e6
    center = np.zeros(40) if side.center is None else side.center
    rows = [[x - c for x, c in zip(fractions(row), fractions(center), strict=True)] for row in problem.X]
    lam = fractions(problem.penalty.quadratic)
    gram = [[sum(a * b / v for a, b, v in zip(r, s, lam, strict=True)) for s in rows] for r in rows]
    scores, errors = side.scores(duals, free), side.score_errors(duals, free)
    for model in range(5):
        pulls = fractions(duals[:, model])
        shift = Fraction(float(free[0, model])) if fit_intercept else Fraction(0)
        exact = [sum(k * b for k, b in zip(line, pulls, strict=True)) + shift for line in gram]
        off = side.norms * errors[0][model] + errors[1][model]
        assert_within(
            exact, np.nextafter(scores[:, model] - off, -np.inf), np.nextafter(scores[:, model] + off, np.inf)
        )


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_norms_of_forces(fit_intercept):
    """Whatever the step that a norm is taken from, the norm is never short."""
    problem = wide_problem(fit_intercept=fit_intercept)
    side, random = RowSide(problem), np.random.default_rng(1)
    metric = RowMetric(side, random.uniform(1e-6, 1.0, 7))
    exact = exact_inverse(problem, metric.curvatures)
    for _ in range(5):
        forces = random.normal(size=(7, 1)) * 10.0 ** random.uniform(-6.0, 0.0, (7, 1))
        taken = random.normal(size=(7, 1)) * 1e-6
        _, right = metric.step(forces, side.border.T @ taken)
        with mpmath.workdps(50):
            ones = [[mpmath.mpf(1)] * 7] if fit_intercept else []
            columns = [[mpmath.mpf(float(v)) for v in column] for column in problem.X.T] + ones
            gradient = [mpmath.fdot(zip(column, forces[:, 0].tolist(), strict=True)) for column in columns]
            if fit_intercept:
                # The rows are centred, so what is taken from the intercept's entry takes the mean row along.
                total = mpmath.fsum(taken[:, 0].tolist())
                shift = [*side.center.tolist(), 1.0]
                gradient = [entry - mpmath.mpf(c) * total for entry, c in zip(gradient, shift, strict=True)]
            true = mpmath.sqrt((mpmath.matrix([gradient]) * exact * mpmath.matrix(gradient))[0])
        for moves in (right, right * (1.0 + 1e-3 * random.normal(size=right.shape)), 0.0 * right):
            responses = metric.curvatures[:, None] * moves
            norms, missed, _, _ = metric.force_norms(forces, responses, np.einsum("ij,ij->j", responses, moves), taken)
            found = norms[0] + missed[0] * metric.free_norm
            assert found >= true
            if moves is right and not fit_intercept:
                assert found <= 4.0 * float(true)


def test_what_a_force_misses_of_the_border_counts():
    """With ``v = e`` nothing is left of the force, and what is taken from the intercept's entry is the whole norm but for ``v``."""
    problem = wide_problem(fit_intercept=True)
    side = RowSide(problem)
    metric = RowMetric(side, np.linspace(0.2, 1.0, 7))
    exact = exact_inverse(problem, metric.curvatures)
    forces = np.full((7, 1), 1e-9)
    taken = np.linspace(1.0, 7.0, 7)[:, None]
    norms, missed, _, _ = metric.force_norms(
        forces, -forces, np.sum(forces**2 / metric.curvatures[:, None], axis=0), taken
    )
    with mpmath.workdps(50):
        total = mpmath.fsum(taken[:, 0].tolist()) - mpmath.fsum(forces[:, 0].tolist())
        # In the coordinates of the data the intercept's entry takes the mean row along.
        gradient = [-mpmath.mpf(c) * total for c in [*side.center.tolist(), 1.0]]
        true = mpmath.sqrt((mpmath.matrix([gradient]) * exact * mpmath.matrix(gradient))[0])
    assert true > 1.0
    assert norms[0] + missed[0] * metric.free_norm >= true * (1 - mpmath.mpf(10) ** -6)
    assert norms[0] + missed[0] * metric.free_norm <= 10.0 * float(true)


def exact_inverse(problem, curvatures):
    """The inverse of the Hessian, the intercept last."""
    with mpmath.workdps(50):
        X = [[mpmath.mpf(float(v)) for v in row] + [mpmath.mpf(1)] * problem.fit_intercept for row in problem.X]
        size = len(X[0])
        hessian = mpmath.matrix(size, size)
        for row, curvature in zip(X, curvatures, strict=True):
            for i in range(size):
                for j in range(size):
                    hessian[i, j] += row[i] * row[j] * mpmath.mpf(float(curvature))
        for j, lam in enumerate(np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))):
            hessian[j, j] += mpmath.mpf(float(lam))
        return hessian**-1


def base_norm(family, column, lam):
    """The norm of the base's gradient in the metric with one more column, as exact weights and stored models have it; squared loss."""
    problem, base = family.problem, family.base
    n, d, free = problem.n_rows, problem.n_columns, problem.fit_intercept
    with mpmath.workdps(60):
        X, added = mpmath.matrix(problem.X.tolist()), mpmath.matrix(column.tolist())
        if free:
            X -= mpmath.ones(n, 1) * mpmath.matrix(family.side.center.tolist()).T
        b, weight = (
            mpmath.matrix(base.duals.tolist()),
            mpmath.mpf(1) / n if problem.scaling == "mean" else mpmath.mpf(1),
        )
        old = mpmath.mpf(float(problem.quadratic[0]))
        scores = X * (X.T * b) / old + mpmath.ones(n, 1) * (float(base.free[0]) if free else 0)
        forces = weight * (scores - mpmath.matrix(problem.y.tolist())) + b
        rows = mpmath.matrix(n, d + free + 1)
        rows[:, :d], rows[:, d + free] = X, added
        if free:
            rows[:, d] = mpmath.ones(n, 1)
        gradient, hessian = rows.T * forces, weight * rows.T * rows
        if free:
            gradient[d] -= mpmath.fsum(b)
        for j in range(d):
            hessian[j, j] += old
        hessian[d + free, d + free] += lam
        return mpmath.sqrt((gradient.T * mpmath.lu_solve(hessian, gradient))[0])


def test_the_intercept_is_longer_beside_a_column_that_resembles_it():
    """A base whose duals do not add up to zero: what it leaves of the gradient is measured beside the new column."""
    X, y = dense(6, 2), 10.0 * dense(6, 1, 1)[:, 0]
    family = WideColumns(glru.solve(glru.Problem(X, y, glru.Squared(), glru.L2(2.0), True, "sum")), as_matrix(X[:1]))
    # The best model with an intercept that is off by 1: no force is left, and only the constraint is missed.
    free = family.base.free + 1.0
    duals = np.linalg.solve(family.side.gram.dense() + np.eye(6), y - free)
    assert abs(duals.sum()) > 1.0
    step, family.metric.step = family.metric.step, lambda forces, sums: (0.0 * sums, 0.0 * forces)
    family.base = family._settle((duals, free, family.scores(duals, free)))
    family.metric.step = step
    for spread, lam in ((1e-3, 1e-6), (1.0, 1e-3), (0.1, 1e3)):
        column = 1e3 + spread * dense(6, 1, 2)[:, 0]
        block = family.block((as_matrix(column[:, None]), as_matrix(column[:1, None])), np.array([lam]), 1.0, None)
        true, found = base_norm(family, column, lam), float(Steps(family, block)._base_norms()[0])
        assert np.isfinite(found) and found >= true * (1 - mpmath.mpf(10) ** -9)
        # In the metric without the column it is far shorter.
        assert true > 1.5 * family.base.nu or lam > 1.0


def test_a_new_column_meets_the_rounding_of_the_forces():
    """Weights of a third are rounded, and behind a strong penalty only the new column sees what that does to the gradient."""
    y = np.array([1.0, -2.0, 3.0])
    problem = glru.Problem(dense(3, 4), y, glru.Squared(), glru.L2(1e9), False, "mean")
    family = WideColumns(glru.solve(problem), as_matrix(problem.X[:1]))
    block = family.block((as_matrix(y[:, None]), as_matrix(y[:1, None])), np.array([1e-3]), 1.0, None)
    true, found = base_norm(family, y, 1e-3), float(Steps(family, block)._base_norms()[0])
    assert found >= true
    assert true > 2.0 * family.base.nu


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_what_the_images_of_queries_miss_counts(fit_intercept):
    """Images from a solve that is off by a thousandth: scores without a column are off by as much, and within their bounds."""
    X, y = dense(8, 12, 5), dense(8, 1, 6)[:, 0]
    problem = glru.Problem(X, y, glru.Squared(), glru.L2(0.5), fit_intercept, "sum")
    family, columns, lam = WideColumns(glru.solve(problem), as_matrix(X)), np.arange(12), np.full(12, 0.5)
    factor, family.metric.factor = family.metric.factor, 1.0005 * family.metric.factor
    family.answers = family.metric.answers(as_matrix(X))
    family.metric.factor = factor
    block = family.block((as_matrix(X), as_matrix(X)), lam, -1.0, family.side.center)
    lower, upper = Steps(family, block).bounds()
    for j in columns:
        exact = retrain(glru.RemoveColumns([int(j)]).apply(problem), 40).scores(np.delete(X, j, axis=1))
        assert all(low <= value <= high for (value, _), low, high in zip(exact, lower[:, j], upper[:, j], strict=True))
    assert np.median(upper - lower) < 0.05


def test_rows_that_are_not_followed_count_by_what_they_carry():
    """A light row far out holds a twentieth of the Hessian at first and nothing later: the optimum is further by as much."""
    x, weights, slope = np.array([1e6, 1.0]), np.array([2e-13, 0.4]), -0.199
    curvatures = 0.25 * weights
    hessian = 1.0 + float(curvatures @ x**2)
    norms = np.abs(x) / np.sqrt(hessian) * (1.0 + 1e-15)
    cuts = row_norm_cuts(norms, curvatures)
    assert [norm for norm, _ in cuts] == sorted(norms, reverse=True)

    def gradient(w):
        """Of ``w^2 / 2 - slope w`` and the logistic losses of two rows."""
        return w - slope - sum(s * v / (1 + mpmath.exp(v * w)) for s, v in zip(weights, x, strict=True))

    with mpmath.workdps(50):
        optimum = mpmath.findroot(gradient, (0, 1), solver="anderson", tol=1e-40)
        distance, nu = optimum * mpmath.sqrt(hessian), -gradient(mpmath.mpf(0)) / mpmath.sqrt(hessian)
    radius = float(least_radius(cuts, 1.0, np.array([float(nu) * (1.0 + 1e-15)]), [(0.0, 0.0)])[0])
    assert 1.04 * nu < distance <= radius < 1.02 * distance


def test_long_rows_that_removals_do_not_follow_count_by_what_they_carry():
    """A row far out holds a fiftieth of the Hessian at the candidate and hardly any of it on the way to the optimum."""
    X = np.append(np.ones(1200), 2000.0)[:, None]
    problem = glru.Problem(X, np.where(np.arange(1201) < 598, -1, 1), penalty=glru.L2(1e-3), scaling="sum")
    family, row = LocalRows(glru.solve(problem, tol=1e-13), 1.0), np.array([0])
    candidates = RowCandidates.first(family, row, problem.take(row), family.removals(row), 1)
    # The candidate is the base itself.
    base = family.base.point.coef
    candidates.models = base[:, None]
    (radius,), _, (nu,) = candidates.radii()
    optimum = float(retrain(problem.without(row), 40).coef[0])
    assert 1.01 * nu < (optimum - base[0]) * family.base.metric.factor[0, 0] <= radius


@pytest.mark.parametrize("loss", [glru.Squared(), glru.Logistic()], ids=str)
@pytest.mark.parametrize("fit_intercept", [False, True])
@np.errstate(all="ignore")
def test_wide_rows_that_lose_their_digits(loss, fit_intercept):
    """Leave-one-out on the row side where the bounds are rounding and little else."""
    for lam in (1e-6, 0.3, 1e4):
        problem = wide_problem(loss, fit_intercept, lam, 6, 16)
        family = WideRows(glru.solve(problem))
        rows, exact = left_out(problem)
        pairs = [family.bound_quickly(rows), family.bounds(rows, never, 6)]
        single = [family.refine_one(int(row), lambda *ends: False) for row in rows]
        pairs.append((np.concatenate([one.lower for one in single]), np.concatenate([one.upper for one in single])))
        for lower, upper in pairs:
            for (score, doubt), low, high in zip(exact, lower, upper, strict=True):
                assert low <= score + doubt and score - doubt <= high


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_norms_of_the_penalty(fit_intercept):
    """Norms of rows, queries, gradients and axes are at least the exact ones, on data far from the origin, too."""
    random = np.random.default_rng(5)
    for case in range(12):
        X = random.normal(10.0 ** random.uniform(-1.0, 2.0), 1.0, (7, 3)) * 10.0 ** random.uniform(-2.0, 2.0, 3)
        penalty = glru.L2(10.0 ** random.uniform(-6.0, 1.0, 3))
        problem = glru.Problem(X, np.arange(7) % 2, penalty=penalty, fit_intercept=fit_intercept)
        metric = DiagonalMetric(problem, 10.0 ** random.uniform(-4.0, 0.0, 7))
        exact = exact_inverse(problem, metric.curvatures)
        queries = np.vstack([X, random.normal(size=(3, 3)) * np.abs(X).max(axis=0)])
        gradient = random.normal(size=3 + int(fit_intercept))
        with mpmath.workdps(50):
            norms = [_norm(exact, [*row.tolist(), *[1.0] * fit_intercept]) for row in queries]
            axes = [_norm(exact, unit.tolist()) for unit in np.eye(gradient.size)]
            true = _norm(exact, gradient.tolist())
        found = metric.norms(as_matrix(queries))
        assert all(mine >= norm for mine, norm in zip(found, norms, strict=True))
        assert all(mine >= norm for mine, norm in zip(metric.row_norms(), norms, strict=False))
        assert all(mine >= norm for mine, norm in zip(metric.axis_norms(), axes, strict=True))
        assert metric.gradient_norm(gradient, np.zeros(gradient.size)) >= true
        # Nothing is lost where the losses have no curvature but along the intercept.
        if case == 0:
            metric = DiagonalMetric(problem, np.full(7, 1e-12))
            assert np.all(metric.norms(as_matrix(queries)) <= 1.01 * _norms_of_penalty(problem, queries, 7e-12))


def _norm(inverse, vector):
    return mpmath.sqrt((mpmath.matrix([vector]) * inverse * mpmath.matrix(vector))[0])


def _norms_of_penalty(problem, queries, total):
    """Norms of queries in the metric of the penalty, and beside it of an intercept of some curvature."""
    if not problem.fit_intercept:
        return np.sqrt(np.square(queries) @ (1.0 / problem.quadratic))
    away = queries - problem.X.mean(axis=0)
    return np.sqrt(np.square(away) @ (1.0 / problem.quadratic) + 1.0 / total)


def unlike_units(n, seed):
    """Rows of 30 columns in units of 1 to 100."""
    return dense(n, 30, seed) * 10.0 ** np.random.default_rng(7).uniform(0.0, 2.0, 30)


def wide_model(X, seed, fit_intercept=True, free=False, strength=1.0):
    """A problem of wide data; ``free``: with an unpenalised column."""
    random = np.random.default_rng(seed)
    y = random.choice([-1.0, 1.0], 12)
    lam = np.full(30, strength * 10.0 ** random.uniform(-3.0, 1.0))
    lam[3] = 0.0 if free else lam[3]
    return glru.Problem(X, y, glru.Logistic(), glru.L2(lam), fit_intercept=fit_intercept)


WIDE = [(seed, fit_intercept, free) for seed in range(3) for fit_intercept in (True, False) for free in (True, False)]


@pytest.mark.parametrize(("seed", "fit_intercept", "free"), WIDE)
def test_row_ellipsoids_hold_the_optimum(seed, fit_intercept, free):
    """From a start that is not converged, every ellipsoid on the way holds the exact optimum: scores, coefficients, intercept."""
    problem = wide_model(unlike_units(12, seed), seed, fit_intercept, free)
    queries = unlike_units(5, seed + 50)
    truth = retrained(problem)
    models, finite = RowModels(problem), 0
    for region in row_ellipsoids(models, models.place(glru.Point(np.zeros(30), 0.0))):
        assert not outside(truth.scores(problem.X), *region.score_bounds(problem.matrix))
        assert not outside(truth.scores(queries), *region.score_bounds(as_matrix(queries)))
        assert not outside(truth.coef, *region.coef_bounds())
        assert not outside([truth.intercept], *region.intercept_bounds())
        finite += np.isfinite(region.radius)
    assert finite


@pytest.mark.parametrize("seed", range(3))
def test_gradients_of_row_ellipsoids_err_by_no_more_than_their_rounding(seed):
    """At the last model, where hardly more than rounding is left: its forces, and the moves of scores that they stand for."""
    problem = wide_model(unlike_units(12, seed), seed, fit_intercept=False)
    models = RowModels(problem)
    *_, region = row_ellipsoids(models, models.place(glru.Point(np.zeros(30), 0.0)))
    images = models.images(region.metric, np.arange(12))
    state = region.forces, region.duals[:, None], region.sizes, region.errors
    moved, off = models.corrected(images, *state, np.array([region.exponent]), region.metric.curvatures)
    inverse = exact_inverse(problem, region.metric.curvatures)
    with mpmath.workdps(50):
        X, lam = mpmath.matrix(problem.X.tolist()), [mpmath.mpf(float(strength)) for strength in problem.quadratic]
        b, s = (mpmath.matrix([mpmath.mpf(float(v)) for v in values]) for values in (region.duals, problem.weights))
        w = X.T * b
        z = X * mpmath.matrix([v / strength for v, strength in zip(w, lam, strict=True)])
        exact = [v - k * y / (1 + mpmath.exp(y * u)) for v, k, y, u in zip(b, s, map(float, problem.y), z, strict=True)]
        gradient = X.T * mpmath.matrix(exact)
        error = X.T * mpmath.matrix([float(e) - v for e, v in zip(region.forces[:, 0], exact, strict=True)])
        assert 0 < mpmath.sqrt((error.T * inverse * error)[0]) <= region.rounding
        true = X * (inverse * gradient)
        limits = off + images.residual_norms * region.nu
        assert all(abs(mine - v) <= limit for mine, v, limit in zip(map(float, moved), true, limits, strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_gaps_of_row_ellipsoids_are_those_of_stored_models(seed):
    """Behind columns far from zero an intercept is rounded by much more than what the model of centred rows is off."""
    problem = wide_model(unlike_units(12, seed) + 1e6, seed)
    out = glru.after(glru.solve(problem), glru.RemoveRows([0]))
    changed, point = out.problem, out.point
    truth = retrain(changed, 40)
    with mpmath.workdps(50):

        def objective(coef, intercept):
            coef, lam = [mpmath.mpf(w) for w in coef], [mpmath.mpf(float(v)) for v in changed.quadratic]
            scores = [mpmath.fdot(map(float, row), coef) + intercept for row in changed.X]
            losses = [mpmath.log1p(mpmath.exp(-float(y) * z)) for y, z in zip(changed.y, scores, strict=True)]
            return mpmath.fdot(map(float, changed.weights), losses) + mpmath.fdot(lam, [w * w for w in coef]) / 2

        distance = objective(point.coef, point.intercept) - objective(truth.coef, truth.intercept)
        assert 0 < distance <= out.gap < 1e-12
        far = mpmath.norm([w - v for w, v in zip(map(mpmath.mpf, point.coef), truth.coef, strict=True)])
        assert far <= out.radius < 1e-9


@pytest.mark.parametrize(("seed", "fit_intercept", "free"), WIDE)
def test_queries_of_row_ellipsoids_round_outward(seed, fit_intercept, free):
    """With a radius of zero, intervals still hold the exact scores and coefficients of the model that the dual variables stand for."""
    problem = wide_model(cancelling(12, 30, seed), seed, fit_intercept, free, 1e10)
    queries = cancelling(5, 30, seed + 50)
    models = RowModels(problem)
    *_, region = row_ellipsoids(models, models.place(glru.Point(np.zeros(30), 0.0)), 3)
    vars(region)["radius"] = 0.0
    center = fractions(np.zeros(30) if region.models.side.center is None else region.models.side.center)
    lam, rows = fractions(problem.penalty.quadratic), [fractions(row) for row in problem.X]
    coef = [
        sum(b * (row[j] - center[j]) for b, row in zip(fractions(region.duals), rows, strict=True)) / lam[j]
        if lam[j]
        else Fraction(float(region.free[0]))
        for j in range(30)
    ]
    last = Fraction(float(region.free[-1])) if fit_intercept else Fraction(0)
    scores = [
        sum((q - c) * w for q, c, w in zip(fractions(query), center, coef, strict=True)) + last for query in queries
    ]
    assert_within(scores, *region.score_bounds(as_matrix(queries)))
    assert_within(coef, *region.coef_bounds())


@pytest.mark.parametrize("seed", range(6))
def test_an_ellipsoid_in_a_metric_from_far_away_holds_the_optimum(seed):
    """The metric is that of the zero model, where all curvatures are largest, the centre lies near an optimum with large scores."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(40, 3))
    problem = glru.Problem(X, X @ [1.5, -1.0, 0.5] + random.normal(size=40) > 0.0, penalty=glru.L2(0.2))
    truth = retrained(problem)
    near = glru.Point(np.array([float(w) for w in truth.coef]) + 3e-3 * random.normal(size=3), 0.0)
    region = LocalEllipsoid.at(problem, glru.Point(np.zeros(3), 0.0)).carry_to(near)
    assert region.exponent > 1.0 and np.isfinite(region.radius)
    assert not outside(truth.scores(X), *region.score_bounds(problem.matrix))
    assert not outside(truth.coef, *region.coef_bounds())


@pytest.mark.parametrize("moved", [-0.02, 0.02])
@pytest.mark.parametrize("carried", [False, True])
def test_a_newton_step_misses_the_optimum_by_a_term_of_second_order(moved, carried):
    """Curvatures of the Poisson loss grow as fast as they may, and a single column follows them: the bound is attained up to third order."""
    problem = glru.Problem(np.ones((12, 1)), np.full(12, 3.0), glru.Poisson(), glru.L2(1e-12))
    truth = retrained(problem)
    region = LocalEllipsoid.at(problem, glru.Point(np.array([float(truth.coef[0]) + moved]), 0.0))
    if carried:
        further = glru.Point(region.point.coef + moved, 0.0)
        region = LocalEllipsoid.at(problem, further).carry_to(region.point)
    query = as_matrix(np.ones((1, 1)))
    lower, upper = region.score_bounds(query)
    assert not outside(truth.scores(query.data), lower, upper)
    off = abs(float(truth.coef[0]) - float(region.take_step().coef[0]))
    assert 0.5 * (upper - lower)[0] <= (1.0 if carried else 0.0) * 0.1 * abs(moved) + 1.1 * off


@pytest.mark.parametrize("seed", range(6))
def test_second_order_bounds_of_nearly_dependent_columns(seed):
    """In a metric that is off by a good share, and in one from a decomposition of the rows."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(30, 4))
    X[:, 3] = X[:, 2] + 10.0 ** random.integers(-8, -3) * random.normal(size=30)
    problem = glru.Problem(X, X[:, 0] + random.normal(size=30) > 0.2, penalty=glru.L2(1e-10), fit_intercept=True)
    truth = retrained(problem)
    near = glru.Point(np.array([float(w) for w in truth.coef]) + 1e-3 * random.normal(size=4), float(truth.intercept))
    region = LocalEllipsoid.at(problem, near)
    for query in (X, random.normal(size=(5, 4))):
        assert not outside(truth.scores(query), *region.score_bounds(as_matrix(query)))


@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Squared()])
@pytest.mark.parametrize("moved", [0.0, 1.0, 4.0])
def test_errors_of_scores_in_the_inverse_hessian(loss, moved):
    """As many rows as columns, next to no penalty, and curvatures that have grown since the Hessian was taken: nothing else makes it larger."""
    random = np.random.default_rng(7)
    X, y, base = random.normal(size=(6, 6)) * 10.0 ** random.integers(-3, 4, 6), np.ones(6), np.full(6, 8.0)
    weights, errors = random.uniform(0.1, 2.0, 6), random.uniform(0.5, 1.0, 6) * 1e-6
    off = loss.gradient(y, base - moved) - loss.gradient(y, base - moved + errors)
    with mpmath.workdps(60):
        rows = mpmath.matrix(X.tolist())
        hessian = rows.T * mpmath.diag((weights * loss.curvature(y, base)).tolist()) * rows
        gradient = rows.T * mpmath.matrix((weights * off).tolist())
        exact = float(mpmath.sqrt((gradient.T * hessian**-1 * gradient)[0]))
    bound = slope_error_norm(loss, np.sqrt(weights @ errors**2), moved + errors.max())
    assert exact <= bound
    # Of the logistic loss half as much would be too little once its curvatures have grown; of the squared one anything less.
    assert bound <= {0.0: 40.0, 1.0: 20.0, 4.0: 4.0}[moved] * exact if isinstance(loss, glru.Logistic) else 1.1 * exact


@pytest.mark.parametrize("seed", range(4))
def test_gradients_of_long_rows_with_tiny_curvatures(seed):
    """In 60 digits; by the norms of the columns their errors would be taken for a hundred times as much."""
    random = np.random.default_rng(seed)
    X = 1e3 * random.normal(size=(30, 6))
    y = np.where(X @ random.normal(size=6) > 0.0, 1.0, -1.0)
    problem = glru.Problem(X, y, glru.Logistic(), glru.L2(1e-6), scaling="sum")
    family = LocalRows(glru.solve(problem), 1.0)
    step = family.base.metric.solve(X[0])
    model = family.point.coef + step / np.abs(X @ step).max()
    found = family.gradients.at(model[:, None], np.array([0]), np.ones(1))
    weights = np.where(np.arange(30) == 0, 0.0, problem.weights).tolist()
    with mpmath.workdps(60):
        scores = mpmath.matrix(X.tolist()) * mpmath.matrix(model.tolist())
        slopes = [-s * t / (1 + mpmath.exp(t * z)) for s, t, z in zip(weights, y.tolist(), scores, strict=True)]
        exact = mpmath.matrix(X.tolist()).T * mpmath.matrix(slopes) + mpmath.mpf(1e-6) * mpmath.matrix(model.tolist())
        off = np.array([float(value) for value in mpmath.matrix(found.gradients[:, 0].tolist()) - exact])
    length = family.base.metric.gradient_norm(off, np.zeros(6))
    errors = problem.totals.norm * found.score_errors[0] + found.score_errors[1]
    assert 0.0 < length <= found.rounding[0] <= 0.01 * 0.25 * errors * family.gradients.slope_norm


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_errors_of_slopes_count_for_every_penalty_within_a_share(share):
    """A gradient that is all errors of slopes, with rows of huge norms: its norm grows by what the Hessian of another penalty is smaller."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 2))
    y = np.where(X[:, 0] + rng.normal(size=60) > 0.0, 1.0, -1.0)
    X[:4] = 1e7 * y[:4, None] * [1.0, 0.1]
    problem = glru.Problem(X, y, penalty=glru.L2(1e-9), scaling="sum")
    solution = glru.solve(problem, tol=1e-13)
    one, other = (LocalEllipsoid.at(problem, solution.point, share=part).nu for part in (0.0, share))
    assert other * (1.0 + 1e-12) >= one / (1.0 - share)
