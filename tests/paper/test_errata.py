"""The misprints of the paper, each shown by numbers: what is printed fails, what this library uses holds."""

import numpy as np
import pytest
from scipy.optimize import linprog

pytest.importorskip("paper", reason="the folder paper/ is not in this tree")

import glru
from paper.normalization import normalize
from paper.sources import Data, load
from paper.stepwise import FirstElimination, Split

GRID = np.linspace(-60.0, 60.0, 240_001)


def supremum(slope, values):
    """The conjugate by brute force."""
    return float(np.max(slope * GRID - values))


def soft(t, kappa):
    """Soft thresholding."""
    return np.sign(t) * np.maximum(np.abs(t) - kappa, 0.0)


@pytest.mark.parametrize("t", [-1.7, 0.4, 2.5])
def test_conjugate_of_l2(t):
    """Appendix A.3 prints t^2/2 and t; it is t^2/(2 lam) and t/lam."""
    lam = 0.3
    truth = supremum(t, 0.5 * lam * GRID**2)
    assert glru.L2(lam).conjugate(t) == pytest.approx(truth, abs=1e-6)
    assert abs(t**2 / 2.0 - truth) > 0.1
    best = GRID[np.argmax(t * GRID - 0.5 * lam * GRID**2)]
    assert glru.L2(lam).conjugate_derivative(np.array([t]))[0][0] == pytest.approx(best, abs=1e-3)
    assert abs(t - best) > 0.5


@pytest.mark.parametrize("t", [-1.7, 2.5])
def test_conjugate_of_the_elastic_net(t):
    """Appendix A.3 prints ([|t| - kappa]_+)^2 / 2 without an intercept, and with one the right 1/(2 lam)."""
    lam, kappa = 0.3, 0.5
    truth = supremum(t, 0.5 * lam * GRID**2 + kappa * np.abs(GRID))
    assert glru.ElasticNet(lam, kappa).conjugate(t) == pytest.approx(truth, abs=1e-6)
    assert abs(soft(t, kappa) ** 2 / 2.0 - truth) > 0.5


@pytest.mark.parametrize("t", [-0.8, 0.3, 1.9])
def test_derivative_of_the_logistic_loss(t):
    """Appendix A.2 prints it without the label: the sign is wrong for y = -1."""
    loss, y, step = glru.Logistic(), -1.0, 1e-6
    truth = (loss.value(y, t + step) - loss.value(y, t - step)) / (2.0 * step)
    assert loss.gradient(y, t) == pytest.approx(truth, abs=1e-8)
    assert -np.exp(-y * t) / (1.0 + np.exp(-y * t)) == pytest.approx(-truth, abs=1e-8)


def test_smoothness_of_the_smoothed_hinge():
    """Appendix A.2 prints gamma-smooth; it is (1/gamma)-smooth."""
    gamma = 0.25
    loss = glru.SmoothedHinge(gamma)
    z = np.linspace(-1.0, 2.0, 3001)
    steepest = np.max(np.abs(np.diff(loss.gradient(1.0, z)) / np.diff(z)))
    assert steepest == pytest.approx(1.0 / gamma, rel=1e-6)
    assert loss.smoothness == pytest.approx(1.0 / gamma)
    assert steepest > 10.0 * gamma


def test_first_case_of_the_smoothed_hinge():
    """Appendix A.2 prints 0 for t >= 1; it is y t >= 1, else a wrong label with a large score costs nothing."""
    assert glru.SmoothedHinge(0.5).value(-1.0, 3.0) == pytest.approx(1.0 + 3.0 - 0.25)
    assert glru.SmoothedHinge(0.5).value(-1.0, -3.0) == 0.0


@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_conjugate_of_the_smoothed_hinge(y):
    """Appendix A.2 prints ((gamma y t + y)^2 - 1)/(2 gamma), which is y t + gamma t^2/2 for y = +1 only."""
    gamma, g = 0.5, -0.6 * y
    loss = glru.SmoothedHinge(gamma)
    truth = supremum(g, loss.value(y, GRID))
    assert loss.conjugate(y, g) == pytest.approx(truth, abs=1e-6)
    assert y * g + 0.5 * gamma * g**2 == pytest.approx(truth, abs=1e-6)
    printed = ((gamma * y * g + y) ** 2 - 1.0) / (2.0 * gamma)
    assert (abs(printed - truth) < 1e-6) == (y > 0)


def test_box_of_dual_scb():
    """Corollary 1 divides d rho*(F) by n; the division belongs inside, as in Theorem 1 (the two agree for L2 only)."""
    lam, kappa = 0.1, 0.05
    random = np.random.default_rng(0)
    X = random.standard_normal((40, 3))
    y = np.where(X @ [1.0, -0.5, 0.2] + random.standard_normal(40) > 0.0, 1.0, -1.0)
    old = glru.solve(glru.Problem(X, y, penalty=glru.ElasticNet(lam, kappa)), tol=1e-10)
    out = glru.after(old, glru.RemoveRows([3]), candidate="carry", bound="dual")
    new = out.retrain(tol=1e-10)
    n, alpha = X.shape[0] - 1, np.delete(old.dual, 3)
    rest = np.delete(X, 3, axis=0)
    half = np.sqrt(2.0 * n * 0.25 * out.gap) * np.linalg.norm(rest, axis=0)
    low, high = rest.T @ alpha - half, rest.T @ alpha + half
    assert np.all((soft(low / n, kappa) / lam <= new.coef + 1e-9) & (new.coef <= soft(high / n, kappa) / lam + 1e-9))
    printed = soft(low, kappa) / lam / n, soft(high, kappa) / lam / n
    assert np.any((new.coef < printed[0] - 1e-3) | (new.coef > printed[1] + 1e-3))


def test_flat_part_of_the_l1_conjugate():
    """Appendix A.3 prints 0 for |t| <= kappa, and there is no kappa: it is |t| < lam, and at lam all of [0, inf]."""
    lam = 0.7
    for t in (-0.69, 0.0, 0.5, 0.69):
        best = t * GRID - lam * np.abs(GRID)
        assert np.flatnonzero(best == best.max()).tolist() == [GRID.size // 2]
        assert [float(end[0]) for end in glru.L1(lam).conjugate_derivative(np.array([t]))] == [0.0, 0.0]
    best = lam * GRID - lam * np.abs(GRID)
    assert np.all(best[GRID > 0.0] == best.max())
    assert [float(end[0]) for end in glru.L1(lam).conjugate_derivative(np.array([lam]))] == [0.0, np.inf]


@pytest.fixture(scope="module")
def trained():
    """A small problem with as many rows as columns, so that both printed formulas can be written down."""
    random = np.random.default_rng(0)
    X = random.standard_normal((12, 12))
    y = np.where(X[:, 0] + random.standard_normal(12) > 0.0, 1.0, -1.0)
    problem = glru.Problem(X, y, penalty=glru.L2(0.2))
    return problem, glru.solve(problem, tol=1e-13)


def test_gap_of_algorithm_5(trained):
    """It cites the gap of removed rows; that of removed columns is the gap of the problem without the column."""
    problem, old = trained
    X, y, lam, n, j = problem.X, problem.y, 0.2, 12, 4
    loss, w, a = problem.loss, old.coef, old.dual
    truth = glru.after(old, glru.RemoveColumns([j]), candidate="carry").gap
    v = X.T @ a / n
    dual = -np.mean(loss.conjugate(y, -a)) - np.sum(v**2) / (2.0 * lam)
    columns = -(lam / 2.0 * w[j] ** 2 + v[j] ** 2 / (2.0 * lam))
    columns += np.mean(loss.value(y, X @ w - w[j] * X[:, j])) + lam / 2.0 * w @ w - dual
    rows = -(loss.value(y[j], X[j] @ w) + loss.conjugate(y[j], -a[j])) + np.sum(loss.value(y, X @ w))
    rows += (n - 1) * lam / 2.0 * w @ w + np.sum(loss.conjugate(y, -a))
    rows += np.sum((X.T @ a - a[j] * X[j]) ** 2) / (2.0 * (n - 1) * lam)
    assert columns == pytest.approx(truth, rel=1e-6)
    assert abs(rows / (n - 1) - truth) > 0.01 * truth
    assert rows / (n - 1) == pytest.approx(glru.after(old, glru.RemoveRows([j]), candidate="carry").gap, rel=1e-6)


def test_difference_of_the_duals(trained):
    """Appendix C.3 subtracts the old penalty's conjugate; adding it gives the right-hand side that follows."""
    problem, old = trained
    lam, n, j = 0.2, 12, 4
    v = problem.X.T @ old.dual / n
    rest = np.delete(v, j)
    right = v[j] ** 2 / (2.0 * lam)
    assert -np.sum(rest**2) / (2.0 * lam) + np.sum(v**2) / (2.0 * lam) == pytest.approx(right)
    assert abs(-np.sum(rest**2) / (2.0 * lam) - np.sum(v**2) / (2.0 * lam) - right) > 1e-3


def test_domain_of_the_dual():
    """Appendix B.3 prints R^d; a dual point has an entry a row, and each has its own interval."""
    problem = glru.Problem(np.eye(5, 3), [0, 1, 0, 1, 1], penalty=glru.L2(0.1))
    dual = glru.solve(problem).dual
    assert dual.shape == (5,)
    for edge in (0.0, 1.0):
        assert np.isfinite(problem.loss.conjugate(problem.y, -edge * problem.y)).all()
    assert np.isinf(problem.loss.conjugate(problem.y, -1.01 * problem.y)).all()


def test_minimum_over_the_domain_of_the_dual():
    """Appendix B.3 splits the minimum over both constraints into two; that is a lower bound, not an equality."""
    random = np.random.default_rng(0)
    X, y, lam = random.standard_normal((6, 8)), np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0]), 0.05
    box = [(0.0, 1.0) if label > 0.0 else (-1.0, 0.0) for label in y]
    n = y.size
    both = linprog(X[:, 0], A_ub=np.vstack([X.T, -X.T]) / n, b_ub=np.full(16, lam), bounds=box)
    split = max(linprog(X[:, 0], bounds=box).fun, -n * lam)
    assert both.status == 0
    assert both.fun > split + 1e-3


def test_gradient_of_the_approximate_training(trained):
    """Appendix E.2 sums x l; the gradient sums x l'."""
    problem, old = trained
    i, lam, n = 3, 0.2, 12
    X, y = np.delete(problem.X, i, axis=0), np.delete(problem.y, i)
    step, w = 1e-6, old.coef

    def value(point):
        return np.mean(problem.loss.value(y, X @ point)) + lam / 2.0 * point @ point

    truth = np.array([(value(w + step * e) - value(w - step * e)) / (2.0 * step) for e in np.eye(12)])
    right = X.T @ problem.loss.gradient(y, X @ w) / (n - 1) + lam * w
    printed = X.T @ problem.loss.value(y, X @ w) / (n - 1) + lam * w
    np.testing.assert_allclose(right, truth, atol=1e-7)
    assert np.max(np.abs(printed - truth)) > 0.1


def test_algorithm_4_breaks_ties_in_its_own_way():
    """With ties Algorithm 4 may return another best column than Algorithm 3; all methods here return the latter's."""
    X, y = load("digits:3v8")
    split = Split.of(Data(normalize(X, "dense"), y), seed=0)
    first = FirstElimination.of(split, -4, 1e-9)
    problem = first.solution.problem
    options = {"X_val": split.X_val, "y_val": split.y_val, "max_steps": 1, "tol": 1e-9}
    # A certified search leaves candidates open that cannot win.
    errors = glru.stepwise(problem, method="naive", **options).path[0].upper
    assert np.all((first.step.lower <= errors) & (errors <= first.step.upper))
    assert errors.min() < first.start
    third = int(np.argmin(errors))
    fourth = next(int(j) for j in first.order if errors[j] == errors.min())
    assert third != fourth
    for method in ("certified", "glru", "naive"):
        found = glru.stepwise(problem, method=method, **options)
        assert found.path[0].columns == (third,)
