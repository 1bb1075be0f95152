"""Every solver reaches a certified optimum, the optimum is scikit-learn's, and nothing fails in silence."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import glru
from glru.datasets import prepare
from tests.cases import (
    COLUMN_PENALTIES,
    LOSSES,
    PENALTIES,
    PROBLEMS,
    SOLVERS,
    assert_same_model,
    dense,
    each,
    l1,
    make,
    stored,
    supports,
    targets,
)
from tests.core import duality, solve_shifted, solvers

CLASSIFIERS = {name: loss for name, loss in LOSSES.items() if loss.task == "classification"}


@each(LOSSES, "loss")
@each(PENALTIES, "penalty")
@each(PROBLEMS, "make_problem")
def test_auto_reaches_a_small_gap(loss, penalty, make_problem):
    """Every loss with every penalty on every kind of data, to a relative gap of 1e-10."""
    problem = make_problem(loss, penalty)
    solution = glru.solve(problem, tol=1e-10)
    assert solution.status == "converged"
    assert (solution.reached(1e-10) and not solution.reached(0.0)) or solution.solver_gap == 0.0
    difference = solution.primal_value - solution.dual_value
    assert solution.solver_gap == pytest.approx(difference, abs=1e-13 * solution.primal_value)
    assert solution.solver_gap <= solution.gap == solution.certificate.gap <= 2e-10 * solution.primal_value
    assert solution.relative_gap == solution.gap / solution.primal_value
    assert_consistent(solution)


def assert_consistent(solution):
    """All that a solution holds follows from its point."""
    problem = solution.problem
    gap = duality.gap(problem, solution.coef, solution.intercept, solution.dual)
    assert solution.solver_gap == gap.value
    np.testing.assert_array_equal(solution.scores, problem.scores(solution.coef, solution.intercept))
    np.testing.assert_array_equal(solution.row_terms, gap.row_terms)
    np.testing.assert_array_equal(solution.column_terms, gap.column_terms)
    assert problem.fit_intercept or solution.intercept == 0.0
    with pytest.raises(ValueError, match="read-only"):
        solution.coef[0] = 1.0


NAMED = {
    f"{solver}-{loss}-{penalty}-{shape}": (solver, PROBLEMS[shape](LOSSES[loss], PENALTIES[penalty]))
    for solver, loss, penalty, shape in itertools.product(SOLVERS, LOSSES, PENALTIES, PROBLEMS)
    if supports(solver, PROBLEMS[shape](LOSSES[loss], PENALTIES[penalty]))
}


@each(NAMED, "case")
def test_named_solvers_agree_with_auto(case):
    """Each solver on all that it supports."""
    solver, problem = case
    solution = glru.solve(problem, tol=1e-8, solver=solver)
    assert solution.solver == solver and solution.status == "converged"
    assert_same_model(solution, glru.solve(problem, tol=1e-10))


@pytest.mark.parametrize("solver", SOLVERS)
@each(LOSSES, "loss")
@each(PENALTIES, "penalty")
@pytest.mark.parametrize("shape", ["tall", "intercept"])
def test_unsupported_combinations_are_refused(solver, loss, penalty, shape):
    """The error names the solver and what it needs."""
    problem = PROBLEMS[shape](loss, penalty)
    if not supports(solver, problem):
        with pytest.raises(ValueError, match=f"solver '{solver}' needs .*[uU]se '"):
            glru.solve(problem, solver=solver)


BAD = {
    "solver": ({"solver": "sgd"}, "solver must be 'auto', 'newton'.*; got 'sgd'"),
    "negative-tol": ({"tol": -1.0}, "tol must be a finite number of at least 0; got -1.0"),
    "nan-tol": ({"tol": np.nan}, "tol must be a finite number of at least 0; got nan"),
    "max_iter": ({"max_iter": 0}, "max_iter must be a whole number of at least 1, or None; got 0"),
    "start-columns": ({"start": glru.Point(np.zeros(3))}, "start must have 8 coefficients and 40 dual variables"),
    "start-rows": ({"start": glru.Point(np.zeros(8), 0.0, np.zeros(3))}, "start must have 8 coefficients and 40"),
    "start-nan": ({"start": glru.Point(np.full(8, np.nan))}, "start must be finite"),
    "start-dual-nan": ({"start": glru.Point(np.zeros(8), 0.0, np.full(40, np.nan))}, "start must be finite"),
}


@each(BAD, "case")
def test_bad_arguments(case):
    """The error names the rule and the value."""
    arguments, message = case
    with pytest.raises(ValueError, match=message):
        glru.solve(make(glru.Logistic(), glru.L2(0.1)), **arguments)


def sklearn_cases():
    """Estimators of scikit-learn, each with the problem that has the same objective."""
    from sklearn import linear_model, svm

    X, C, alpha, ratio = dense(60, 5), 0.7, 0.05, 0.4
    y, labels = targets(X, glru.Squared()), targets(X, glru.Logistic())
    common = {"tol": 1e-12, "max_iter": 100_000}
    for intercept in (False, True):
        options, name = {"fit_intercept": intercept}, "-intercept" if intercept else ""
        for loss, penalty, estimator in (
            ("logistic-l2", glru.L2(1 / C), linear_model.LogisticRegression(C=C, **options, **common)),
            (
                "logistic-l1",
                glru.L1(1 / C),
                linear_model.LogisticRegression(C=C, **l1(1.0), solver="saga", **options, **common),
            ),
            (
                "logistic-elastic-net",
                glru.ElasticNet((1 - ratio) / C, ratio / C),
                linear_model.LogisticRegression(C=C, **l1(ratio), solver="saga", **options, **common),
            ),
        ):
            yield loss + name, estimator, glru.Problem(X, labels, glru.Logistic(), penalty, intercept, "sum")
        ridge = linear_model.Ridge(alpha, solver="cholesky", **options)
        yield "ridge" + name, ridge, glru.Problem(X, y, glru.Squared(), glru.L2(alpha), intercept, "sum")
        lasso = linear_model.Lasso(alpha, **options, **common)
        yield "lasso" + name, lasso, glru.Problem(X, y, glru.Squared(), glru.L1(alpha), intercept)
        net = linear_model.ElasticNet(alpha, l1_ratio=ratio, **options, **common)
        penalty = glru.ElasticNet(alpha * (1 - ratio), alpha * ratio)
        yield "elastic-net" + name, net, glru.Problem(X, y, glru.Squared(), penalty, intercept)
    for loss in ("squared_hinge", "hinge"):
        kind = glru.Hinge() if loss == "hinge" else glru.SquaredHinge()
        svc = svm.LinearSVC(C=C, loss=loss, dual=True, fit_intercept=False, random_state=0, tol=1e-9, max_iter=10**6)
        yield loss, svc, glru.Problem(X, labels, kind, glru.L2(1 / C), False, "sum")


SKLEARN = {name: (estimator, problem) for name, estimator, problem in sklearn_cases()}


@each(SKLEARN, "case")
def test_scikit_learn_agrees(case):
    """The same objective has the same optimum, and ours is not the worse one."""
    estimator, problem = case
    solution = glru.solve(problem, tol=1e-12)
    estimator.fit(problem.X, problem.y)
    coef, intercept = np.ravel(estimator.coef_), float(np.ravel(estimator.intercept_)[0])
    theirs = duality.primal_value(problem, coef, problem.scores(coef, intercept))
    assert solution.primal_value <= theirs * (1.0 + 1e-12)
    assert theirs == pytest.approx(solution.primal_value, rel=1e-8)
    np.testing.assert_allclose(solution.coef, coef, atol=2e-5)
    assert solution.intercept == pytest.approx(intercept if problem.fit_intercept else 0.0, abs=2e-5)


@pytest.mark.parametrize("loss", [glru.Hinge(), glru.SquaredHinge()], ids=["hinge", "squared-hinge"])
def test_liblinear_intercept_is_a_penalised_column(loss):
    """LinearSVC's intercept is the coefficient of a column of constants, penalised like the others."""
    from sklearn.svm import LinearSVC

    X, scale = dense(60, 5), 2.0
    y = targets(X, loss)
    name = "hinge" if isinstance(loss, glru.Hinge) else "squared_hinge"
    svc = LinearSVC(loss=name, dual=True, intercept_scaling=scale, random_state=0, tol=1e-9, max_iter=10**6).fit(X, y)
    solution = glru.solve(
        glru.Problem(np.column_stack([X, np.full(60, scale)]), y, loss, glru.L2(1.0), scaling="sum"), tol=1e-12
    )
    np.testing.assert_allclose(solution.coef, np.append(svc.coef_, svc.intercept_ / scale), atol=2e-5)


@each(LOSSES, "loss")
@each(PENALTIES, "penalty")
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_weights_equal_duplicated_rows(loss, penalty, fit_intercept):
    """A row of weight 2 is the row twice, a row of weight 0 is no row, in both scalings."""
    problem = make(loss, penalty, 30, 5)
    counts = np.arange(30) % 3
    for scaling in ("mean", "sum"):
        options = {"fit_intercept": fit_intercept, "scaling": scaling}
        weighted = glru.Problem(problem.X, problem.y, loss, penalty, sample_weight=counts, **options)
        repeated = glru.Problem(
            np.repeat(problem.X, counts, axis=0), np.repeat(problem.y, counts), loss, penalty, **options
        )
        first, second = glru.solve(weighted, tol=1e-11), glru.solve(repeated, tol=1e-11)
        assert first.primal_value == pytest.approx(second.primal_value, rel=1e-10)
        np.testing.assert_allclose(first.coef, second.coef, atol=1e-4)
        kept = counts > 0
        np.testing.assert_allclose(first.scores[kept], second.scores[np.cumsum(counts)[kept] - 1], atol=1e-4)


@pytest.mark.parametrize("loss", [glru.Huber(), glru.SquaredHinge(), glru.SmoothedHinge(), glru.Hinge()], ids=repr)
@pytest.mark.parametrize("seed", range(4))
def test_rows_without_weight_take_no_steps(loss, seed):
    rng = np.random.default_rng(seed)
    X, classifies = rng.standard_normal((40, 100)), loss.task == "classification"
    X *= 10.0 ** rng.integers(-2, 3, 100) if classifies else 1.0
    scores = X @ rng.standard_normal(100) / 20.0
    y = np.sign(scores) if classifies else scores + rng.standard_normal(40)
    weight = (rng.random(40) < 0.8).astype(float)
    problem = glru.Problem(X, y, loss, glru.L2(1e-5 if classifies else 1e-4), fit_intercept=True, sample_weight=weight)
    solution = glru.solve(problem, tol=1e-8)
    without = glru.solve(problem.take(np.flatnonzero(weight)), tol=1e-8)
    assert solution.status == "converged"
    assert solution.n_iter <= without.n_iter + 5


@pytest.mark.parametrize("seed", range(3))
def test_interior_points_end_where_rounding_keeps_the_gap_up(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((80, 120)) * 10.0 ** rng.integers(-3, 4, 120)
    y = np.sign(X / np.std(X, axis=0) @ rng.standard_normal(120))
    problem = glru.Problem(X, y, glru.Hinge(), glru.L2(0.1), fit_intercept=True)
    solution = glru.solvers.train(problem, tol=1e-15, solver="interior-point")
    assert solution.relative_gap < 1e-5
    assert solution.n_iter <= 40


@each(LOSSES, "loss")
@each(PENALTIES, "penalty")
@pytest.mark.parametrize("shape", ["tall", "sparse-wide"])
def test_permuting_permutes_the_answer(loss, penalty, shape):
    """The order of rows and of columns means nothing."""
    problem = PROBLEMS[shape](loss, penalty)
    random = np.random.default_rng(3)
    rows, columns = random.permutation(problem.n_rows), random.permutation(problem.n_columns)
    X = problem.X[rows][:, columns]
    other = glru.Problem(X, problem.y[rows], loss, problem.penalty, problem.fit_intercept, problem.scaling)
    other, solution = glru.solve(other, tol=1e-11), glru.solve(problem, tol=1e-11)
    assert other.primal_value == pytest.approx(solution.primal_value, rel=1e-10)
    if problem.penalty.strong_convexity > 0.0:
        np.testing.assert_allclose(other.coef, solution.coef[columns], atol=1e-4)


@each(LOSSES, "loss")
@each(PENALTIES, "penalty")
def test_scalings_have_one_optimum(loss, penalty):
    """A sum of n losses with n times the penalty is n times the mean."""
    mean, total = make(loss, penalty), make(loss, penalty, scaling="sum")
    first, second = glru.solve(mean, tol=1e-11), glru.solve(total, tol=1e-11)
    assert 40.0 * first.primal_value == pytest.approx(second.primal_value, rel=1e-10)
    np.testing.assert_allclose(first.coef, second.coef, atol=1e-4)


@each(NAMED, "case")
def test_warm_start(case):
    """From a solution nothing is left to do; from its point, or a point near it, hardly more than from zero at worst."""
    solver, problem = case
    cold = glru.solve(problem, tol=1e-7, solver=solver)
    again = glru.solve(problem, tol=1e-6, solver=solver, start=cold)
    assert again.status == "converged" and again.n_iter <= 1
    point = glru.solve(problem, tol=1e-6, solver=solver, start=cold.point)
    assert point.status == "converged" and point.n_iter <= 1
    bare = glru.Point(cold.coef * (1.0 + 1e-5), cold.intercept)
    near = glru.solve(problem, tol=1e-7, solver=solver, start=bare)
    assert near.status == "converged" and near.n_iter <= cold.n_iter + 5


ONE_EACH = {
    "newton": make(glru.Logistic(), glru.L2(1e-3)),
    "newton-wide": make(glru.Logistic(), glru.L2(1e-3), 15, 40, fit_intercept=True),
    "newton-cg": make(glru.Logistic(), glru.L2(1e-3), density=0.4, fit_intercept=True),
    "prox-newton": make(glru.Logistic(), glru.ElasticNet(1e-3, 1e-3), fit_intercept=True),
    "dual-cd": make(glru.Hinge(), glru.L2(1e-2)),
    "proximal-point": make(glru.Hinge(), glru.L2(1e-3), fit_intercept=True),
    "auto": make(glru.Logistic(), glru.L2(1e-4), 700, 1500, density=0.02),
}


@pytest.mark.parametrize("name", ONE_EACH)
def test_until_is_asked_once_an_iteration(name):
    """With a feasible pair and its true gap; the run ends when it says so, without a warning."""
    problem, states = ONE_EACH[name], []

    def until(state):
        states.append(state)
        return len(states) == 3

    solution = glru.solve(problem, tol=1e-14, solver=name.removesuffix("-wide"), until=until)
    assert solution.status == "stopped"
    assert [state.n_iter for state in states] == [0, 1, 2]
    assert solution.n_iter == 2
    for state in states:
        gap = duality.gap(problem, state.coef, state.intercept, state.dual)
        assert state.gap >= gap.value * (1.0 - 1e-6) - 1e-13
        assert state.primal_value == pytest.approx(
            duality.primal_value(problem, state.coef, problem.scores(state.coef, state.intercept)), rel=1e-10
        )
    np.testing.assert_allclose(solution.coef, states[-1].coef, rtol=1e-12)


@pytest.mark.parametrize("name", ONE_EACH)
def test_until_counts_every_iteration(name):
    """A run that is never stopped asks at every iteration but the last, and counts without a gap."""
    counts = []
    problem = ONE_EACH[name]
    solution = glru.solve(
        problem, tol=1e-6, solver=name.removesuffix("-wide"), until=lambda state: counts.append(state.n_iter)
    )
    assert solution.status == "converged"
    assert counts == list(range(solution.n_iter))


@pytest.mark.parametrize("name", ONE_EACH)
def test_too_few_iterations_warn(name):
    """The status says so, a warning says so, and the gap still bounds what is missing."""
    problem, solver = ONE_EACH[name], name.removesuffix("-wide")
    best = glru.solve(problem, tol=1e-8)
    with pytest.warns(ConvergenceWarning, match=r"relative gap of .* above tol=1e-14 after 2 iterations \(max_iter\)"):
        solution = glru.solve(problem, tol=1e-14, solver=solver, max_iter=2)
    assert solution.status == "max_iter" and solution.n_iter == 2
    assert np.isfinite(solution.gap)
    assert_consistent(solution)
    assert solution.primal_value - solution.gap <= best.primal_value
    assert solution.primal_value >= best.dual_value


@pytest.mark.parametrize("name", ONE_EACH)
def test_an_impossible_tolerance_ends(name):
    """Float64 stops somewhere: the run ends by itself with a tiny gap, and warns."""
    problem, solver = ONE_EACH[name], name.removesuffix("-wide")
    with pytest.warns(ConvergenceWarning, match="raise tol|Raise max_iter"):
        solution = glru.solve(problem, tol=0.0, solver=solver)
    assert solution.relative_gap < 1e-9


def test_products_end_without_a_goal_to_foresee():
    """Under a quadratic loss with tol=0 the steps to a goal are counted, which none lead to."""
    X = np.random.default_rng(0).standard_t(1.1, (100, 30))
    problem = glru.Problem(X, X[:, 0] + X[:, 1] ** 2, glru.Squared())
    with pytest.warns(ConvergenceWarning, match="raise tol|Raise max_iter"):
        assert glru.solve(problem, tol=0.0, solver="newton-cg").relative_gap < 1e-14
    assert glru.loocv(problem, width=1e-12).certified


def separable(loss, lam, shape, fit_intercept):
    """Data that a plane separates."""
    X = dense(*shape)
    return glru.Problem(X, np.where(X[:, 0] > 0.2, 1.0, -1.0), loss, glru.L2(lam), fit_intercept)


@each(CLASSIFIERS, "loss")
@pytest.mark.parametrize("lam", [1e-8, 1e-5, 1e-2, 1e2, 1e5, 1e8])
@pytest.mark.parametrize("shape", [(30, 3), (10, 25)], ids=["tall", "wide"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_separable_data(loss, lam, shape, fit_intercept):
    """From hardly any penalty (plain Newton diverges) to hardly anything else."""
    # At lam = 1e-8 the optimum is about 1e-9, and the margins are rounded to 1e-16: no hinge can be known to 1e-8.
    assert glru.solve(separable(loss, lam, shape, fit_intercept), tol=1e-6).status == "converged"


def test_unpenalised_data_that_a_plane_separates_but_for_rows_on_it():
    """There is no optimum, which the warning says; curvatures that vanish along the way overflow nothing that is shown."""
    rng = np.random.default_rng(0)
    for shape in ((60, 3), (60, 3), (200, 5)):  # the third problem has coefficients of 4e4 when its training stalls
        X = rng.normal(size=shape)
        y = np.where(X[:, 0] > 0.0, 1.0, -1.0)
        X[:10, 0], y[:10] = 0.0, np.sign(rng.normal(size=10))
    with pytest.warns(ConvergenceWarning, match="No optimum exists"):
        assert glru.solve(glru.Problem(X, y, glru.Logistic(), glru.L2(0.0), True)).status == "stalled"


@pytest.mark.parametrize("solver", SOLVERS)
@each(CLASSIFIERS, "loss")
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_every_solver_on_separable_data(solver, loss, fit_intercept):
    """With a small penalty the loss is nearly flat wherever it is small."""
    problem = separable(loss, 1e-3, (10, 25), fit_intercept)
    if supports(solver, problem):
        assert glru.solve(problem, tol=1e-6, solver=solver).status == "converged"


@each(LOSSES, "loss")
@pytest.mark.parametrize("strength", [1e-6, 1e-3, 10.0])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_lasso_path(loss, strength, fit_intercept):
    """L1 from nearly interpolating to all coefficients zero, where the answer is exactly zero."""
    problem = make(loss, glru.L1(strength), fit_intercept=fit_intercept)
    # The hinge's linear program has coefficients of about 1e2 here and an optimum of about 1e-4.
    extreme = isinstance(loss, glru.Hinge) and strength == 1e-6
    solution = glru.solve(problem, tol=1e-6 if extreme else 1e-8)
    assert solution.status == "converged"
    assert (strength < 10.0) == bool(solution.coef.any())


def odd_data():
    """Data with something degenerate in them."""
    X = dense(20, 4)
    signs = np.where(X[:, 0] + 0.3 * X[:, 1] > 0.2, 1.0, -1.0)
    yield "duplicate-rows", np.repeat(X[:5], 4, axis=0), np.tile([1.0, -1.0], 10)
    yield "constant-column", np.column_stack([X, np.ones(20)]), signs
    yield "zero-column", np.column_stack([X, np.zeros(20)]), signs
    yield "duplicate-column", np.column_stack([X, X[:, 0]]), signs
    yield "zero-row", np.vstack([X, np.zeros(4)]), np.append(signs, 1.0)
    yield "zero-data", np.zeros((6, 2)), np.array([1.0, -1.0] * 3)
    yield "two-rows", X[:2], np.array([1.0, -1.0])
    yield "two-rows-one-column", np.array([[1.0], [-2.0]]), np.array([1.0, -1.0])
    yield "one-column", X[:, :1], signs
    yield "float32", X.astype(np.float32), signs
    yield "unbalanced", X, np.where(np.arange(20) == 3, 1.0, -1.0)
    yield "badly-scaled", X * 10.0 ** np.array([-4, 0, 2, 4]), signs
    yield "sparse-empty-rows", sp.csr_array(np.where(np.arange(20)[:, None] % 3 == 0, 0.0, X)), signs


@each({name: (X, y) for name, X, y in odd_data()}, "data")
@each(LOSSES, "loss")
@each(PENALTIES, "penalty")
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_degenerate_data(data, loss, penalty, fit_intercept):
    """Duplicates, constants, zeros, tiny shapes."""
    X, y = data
    solution = glru.solve(glru.Problem(X, y, loss, penalty, fit_intercept), tol=1e-8)
    assert solution.status == "converged"


def test_a_perfect_fit_has_gap_zero():
    """Targets of zero: the optimum is zero, and so are both values."""
    solution = glru.solve(glru.Problem(dense(10, 3), np.zeros(10), glru.Squared(), glru.L2(0.1)))
    assert solution.primal_value == solution.solver_gap == 0.0 < solution.gap < 1e-28
    assert solution.relative_gap == np.inf and solution.status == "converged"


@each(LOSSES, "loss")
@each(COLUMN_PENALTIES, "penalty")
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("density", [1.0, 0.6], ids=["dense", "sparse"])
def test_strengths_per_column(loss, penalty, fit_intercept, density):
    """Columns with other strengths, some unpenalised."""
    problem = make(loss, penalty.scale(0.1), 50, 3, fit_intercept=fit_intercept, density=density)
    solution = glru.solve(problem, tol=1e-9)
    assert solution.status == "converged"
    np.testing.assert_allclose(solution.correlations[problem.unpenalised], 0.0, atol=1e-12)


@each({name: loss for name, loss in LOSSES.items() if name != "hinge"}, "loss")
def test_unpenalised_constant_column_is_an_intercept(loss):
    """A column of ones without a penalty and ``fit_intercept`` are one model."""
    plain = make(loss, glru.L2(0.1), 50, 3, fit_intercept=True)
    X = np.column_stack([plain.X, np.ones(50)])
    column = glru.Problem(X, plain.y, loss, glru.L2([0.1, 0.1, 0.1, 0.0]))
    for solver in ("newton", "newton-cg", "prox-newton"):
        first = glru.solve(plain, tol=1e-11, solver=solver)
        second = glru.solve(column, tol=1e-11, solver=solver)
        assert first.primal_value == pytest.approx(second.primal_value, rel=1e-10)
        np.testing.assert_allclose(np.append(first.coef, first.intercept), second.coef, atol=1e-4)


@pytest.mark.parametrize("solver", ["newton", "newton-cg", "dual-cd", "prox-newton"])
def test_wide_data_with_strengths_per_column(solver):
    """The Gram side divides by every strength."""
    problem = make(glru.Logistic(), glru.L2(np.linspace(0.01, 0.2, 40)), 15, 40)
    solution = glru.solve(problem, tol=1e-9, solver=solver)
    assert_same_model(solution, glru.solve(problem, tol=1e-11))


@each(LOSSES, "loss")
@each(PENALTIES, "penalty")
def test_dense_and_sparse_data_have_one_answer(loss, penalty):
    """Sparse is a matrix, not a second method."""
    problem = PROBLEMS["sparse"](loss, penalty)
    X = problem.X.toarray()
    other = glru.solve(problem.derive(X=X), tol=1e-10)
    solution = glru.solve(problem, tol=1e-10)
    assert_same_model(solution, other)


def test_repr_shows_the_certificate():
    """Primal value, dual value, gap, status."""
    text = repr(glru.solve(make(glru.Logistic(), glru.L2(0.1))))
    assert all(word in text for word in ("primal_value=", "dual_value=", "gap=", "status='converged'"))


@pytest.mark.parametrize("lam", [2.0**0, 2.0**-5, 2.0**-10])
def test_arcene(lam):
    """The paper's data with its dense normalisation, where plain Newton diverges."""
    data = stored("arcene")
    X, y = prepare(data, normalize="dense").X, data.y
    assert X.shape == (200, 9961)
    solution = glru.solve(glru.Problem(X, y, glru.Logistic(), glru.L2(lam)), tol=1e-10)
    assert solution.status == "converged" and solution.relative_gap <= 1e-10


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("shape", [(60, 8), (12, 30)])
def test_units_of_columns_do_not_matter(shape, fit_intercept):
    """Columns in units from 1e-8 to 1e8, with strengths in the squares of the same units, take the same steps to the same model."""
    random = np.random.default_rng(0)
    X, units = random.normal(size=shape), np.ldexp(1.0, random.integers(-27, 28, size=shape[1]))
    y = X[:, 0] + random.logistic(size=shape[0]) > 0.0
    plain, scaled = (
        glru.solve(glru.Problem(X * u, y, penalty=glru.L2(0.01 * u**2), fit_intercept=fit_intercept), tol=1e-9)
        for u in (np.ones(shape[1]), units)
    )
    assert plain.status == scaled.status == "converged" and plain.n_iter == scaled.n_iter
    np.testing.assert_allclose(scaled.coef * units, plain.coef, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Squared()], ids=repr)
def test_products_in_single_precision_reach_any_gap(loss, order, fit_intercept):
    """Columns whose squares single precision does not hold, far from zero, and one of zeros: only moves are rounded, never the gap."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(700, 200)) + 3.0
    y = targets(X - 3.0, loss)
    X[:, 7] = 0.0
    units = 10.0 ** np.linspace(-30.0, 30.0, 200)
    problem = glru.Problem(
        np.asarray(X * units, order=order), y, loss=loss, penalty=glru.L2(1e-2 * units**2), fit_intercept=fit_intercept
    )
    for tol in (1e-6, 1e-9):
        solution = glru.solve(problem, tol=tol, solver="newton-cg")
        assert solution.status == "converged" and solution.relative_gap <= tol


def test_singular_systems_are_shifted_in_the_units_of_their_columns():
    """The solution with a singular matrix changes with the units of its columns as coefficients do."""
    matrix, right, units = np.ones((3, 3)), np.array([1.0, 2.0, 3.0]), np.array([2.0**-30, 1.0, 2.0**30])
    solved = solve_shifted(matrix, right)
    assert np.all(np.isfinite(solved))
    np.testing.assert_array_equal(solve_shifted(matrix * units * units[:, None], right * units) * units, solved)
    assert not np.any(np.isfinite(solve_shifted(np.full((2, 2), np.nan), right[:2])))


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_slow_coordinate_ascent_gives_way(fit_intercept):
    """Sparse data is begun by coordinate ascent; where its gap falls slowly, conjugate gradients reach the target."""
    random = np.random.default_rng(0)
    X = sp.random_array((1500, 700), density=0.02, rng=random, format="csr")
    y = X @ random.normal(size=700) + random.normal(size=1500) > 0.0
    ended = {}
    for lam in (1e-2, 1e-8):
        problem = glru.Problem(X, y, penalty=glru.L2(lam), fit_intercept=fit_intercept)
        assert [name for name, _ in solvers.choose(problem)] == ["dual-cd", "newton-cg", "newton"]
        solution = glru.solve(problem, tol=1e-7)
        assert solution.status == "converged" and solution.reached(1e-7)
        ended[lam] = solution.solver
    assert ended[1e-2] == "dual-cd" and ended[1e-8] != "dual-cd"


@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Poisson(), glru.Gamma()])
def test_unpenalised_columns_take_one_hessian_per_step(loss, monkeypatch):
    """The linearised dual point is feasible, and the last Hessian proves that there is one optimum."""
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 4))
    scores = X @ np.array([0.5, -0.2, 0.1, 0.0])
    y = scores + random.logistic(size=300) > 0 if loss == glru.Logistic() else random.gamma(3.0, np.exp(scores) / 3.0)
    problem = glru.Problem(X, y, loss, glru.L2(np.zeros(4)), fit_intercept=True)
    kind, calls = type(problem.matrix), []
    inner = kind.column_gram

    def counted(self, weights):
        calls.append(weights)
        return inner(self, weights)

    monkeypatch.setattr(kind, "column_gram", counted)
    solution = glru.solve(problem)
    assert solution.status == "converged" and len(calls) == solution.n_iter
    assert solution.relative_gap <= 1e-6


@pytest.mark.parametrize("strength", [0.0, 1e-2])
@pytest.mark.parametrize("loss", [glru.Poisson(), glru.Gamma(), glru.Tweedie(1.5)], ids=repr)
def test_a_last_step_uses_the_hessian_at_hand(loss, strength, monkeypatch):
    """On tall data the Hessian of the step before serves for one more, and the gap is as asked for all the same."""
    random = np.random.default_rng(5)
    X = random.normal(size=(40_000, 16))
    mean = np.exp(X @ (0.15 * random.normal(size=16)))
    y = random.gamma(2.0, 0.5 * mean)
    problem = glru.Problem(X, y, loss, glru.L2(np.full(16, strength)), fit_intercept=True)
    gram, formed = type(problem.matrix).column_gram, []
    monkeypatch.setattr(
        type(problem.matrix), "column_gram", lambda self, weights: formed.append(self.shape[0]) or gram(self, weights)
    )
    solution = glru.solve(problem, tol=1e-6)
    assert solution.status == "converged" and solution.relative_gap <= 1e-6
    assert 0 < formed.count(problem.n_rows) < solution.n_iter
    closer = glru.solve(problem, tol=1e-12)
    assert np.abs(solution.coef - closer.coef).max() <= 1e-3


@pytest.mark.parametrize("loss", [glru.Logistic(), glru.SquaredHinge(), glru.SmoothedHinge(0.5)], ids=repr)
@pytest.mark.parametrize("lam", [1e-5, 1e-6])
def test_weak_penalties_of_dependent_wide_rows_converge(loss, lam):
    """Rounding leaves ``X X^T`` of centred or repeated rows negative eigenvalues, which a weak penalty multiplies."""
    random = np.random.default_rng(3)
    X = random.normal(size=(26, 112))
    y = random.normal(size=26) + X[:, 0] > 0.0
    X = np.stack([X - X.mean(axis=0), X[np.arange(26) % 13]])
    for rows, labels in zip(X, [y, y[np.arange(26) % 13]], strict=True):
        problem = glru.Problem(rows, labels, loss=loss, penalty=glru.L2(lam), scaling="sum")
        assert glru.solve(problem).status == "converged"


@pytest.mark.parametrize("loss", [glru.Poisson(), glru.Gamma(), glru.Tweedie(1.5)], ids=repr)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_log_links_converge_after_a_short_step(loss, fit_intercept):
    """The line search may shorten a step to a hundredth; no quadratic lies above an exponential, so that no floor can be raised under its curvature."""
    random = np.random.default_rng(0)
    X = random.normal(size=(30, 100))
    y = np.exp(np.clip(0.5 * X @ random.normal(size=100), -5.0, 5.0)) * random.gamma(2.0, 0.5, 30) + 1e-9
    problem = glru.Problem(X, y, loss=loss, penalty=glru.L2(1e-4), fit_intercept=fit_intercept)
    assert glru.solve(problem).status == "converged"


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", [glru.SquaredHinge(), glru.SmoothedHinge(), glru.Huber()], ids=repr)
def test_tall_pieces_take_few_steps(loss, fit_intercept):
    """With many rows per column Newton steps begin on the pieces of the loss: a quadratic above it costs two steps more."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(1000, 30))
    scores = X @ rng.normal(size=30) / 5.0
    y = (
        scores + 0.3 * rng.standard_t(2, size=1000)
        if isinstance(loss, glru.Huber)
        else scores > 0.3 * rng.normal(size=1000)
    )
    problem = glru.Problem(X, y, loss=loss, penalty=glru.L2(1e-2), fit_intercept=fit_intercept)
    assert glru.solve(problem, tol=1e-6).n_iter <= (4 if isinstance(loss, glru.Huber) else 5)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_pieces_that_few_rows_see_are_not_trusted(fit_intercept):
    """At zero no row is in the narrow curved piece of the loss: steps begin on a quadratic above it, and take half as many again from the pieces."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(600, 15)) * np.exp(rng.normal(size=15))
    y = X @ rng.normal(size=15) + 2.0 * rng.normal(size=600) > 0.0
    problem = glru.Problem(X, y, glru.SmoothedHinge(0.2), glru.L2(1e-3), fit_intercept=fit_intercept)
    assert glru.solve(problem, tol=1e-6).n_iter <= 8


@pytest.mark.parametrize(
    "penalty", [glru.L1(0.02), glru.ElasticNet(0.05, 0.02), glru.L1(1e-5)], ids=["lasso", "elastic net", "weak"]
)
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("shape", [(80, 15), (30, 90)], ids=["tall", "wide"])
def test_descent_on_columns(penalty, fit_intercept, shape):
    """Dense data under the squared loss is trained by sweeps over its columns, sparse data with a Gram matrix: to the same objective."""
    random = np.random.default_rng(3)
    X = random.normal(size=shape) * np.exp(random.normal(size=shape[1])) + 3.0
    y = X[:, :3].sum(axis=1) + random.normal(size=shape[0])
    for weight in (None, np.where(np.arange(shape[0]) % 5, random.uniform(0.5, 2.0, shape[0]), 0.0)):
        options = {"loss": glru.Squared(), "penalty": penalty, "fit_intercept": fit_intercept, "sample_weight": weight}
        first = glru.solve(glru.Problem(X, y, **options), tol=1e-8)
        second = glru.solve(glru.Problem(sp.csr_array(X), y, **options), tol=1e-8)
        assert first.status == second.status == "converged"
        assert first.primal_value == pytest.approx(second.primal_value, rel=2e-8)
        again = glru.solve(first.problem, tol=1e-8, start=glru.Point(first.coef, first.intercept))
        assert again.primal_value <= first.primal_value * (1.0 + 2e-8)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(("noise", "solver"), [(1.0, "newton-cg"), (1e-3, "newton")])
def test_ridge_by_products_first(noise, solver, fit_intercept):
    """Dense data of many columns is tried by products under the squared loss; where they fall slowly, a factor takes over from where they ended."""
    random = np.random.default_rng(5)
    X = random.normal(size=(600, 20)) @ random.normal(size=(20, 300)) * (noise < 1.0) + noise * random.normal(
        size=(600, 300)
    )
    y = X[:, 0] + random.normal(size=600)
    problem = glru.Problem(X, y, loss=glru.Squared(), penalty=glru.L2(noise**2), fit_intercept=fit_intercept)
    solution, exact = glru.solve(problem), glru.solve(problem, tol=1e-10, solver="newton")
    assert (solution.solver, solution.status) == (solver, "converged")
    assert solution.relative_gap <= 1e-6
    assert solution.primal_value == pytest.approx(exact.primal_value, rel=2e-6)
    assert solvers.train(problem, tol=0.0).relative_gap <= 1e-9
