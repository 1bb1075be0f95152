"""The multinomial loss and its problem: derivatives, duality, and what is refused before any work."""

import numpy as np
import pytest

import glru
from glru.solvers.multinomial import _Products

LOSS = glru.Multinomial()
RNG = np.random.default_rng(0)


def problem_of(n_rows=30, n_classes=3, **options):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n_rows, 4))
    y = np.arange(n_rows) % n_classes
    return glru.Problem(X, y, loss=LOSS, penalty=options.pop("penalty", glru.L2(0.1)), **options)


def test_the_gradient_is_the_derivative_of_the_value():
    z, y, step = RNG.normal(size=(20, 4)) * 3.0, RNG.integers(0, 4, 20), 1e-6
    for k in range(4):
        move = step * (np.arange(4) == k)
        slope = (LOSS.value(y, z + move) - LOSS.value(y, z - move)) / (2.0 * step)
        assert np.allclose(LOSS.gradient(y, z)[:, k], slope, atol=1e-8)


def test_fenchel_young_is_the_sum_of_value_and_conjugate():
    z, y = RNG.normal(size=(50, 5)) * 2.0, RNG.integers(0, 5, 50)
    g = LOSS.slopes_of(y, RNG.dirichlet(np.ones(5), 50))
    direct = LOSS.value(y, z) + LOSS.conjugate(y, g) - np.sum(g * z, axis=1)
    assert np.allclose(LOSS.fenchel_young(y, z, g), direct, atol=1e-12)
    assert np.all(LOSS.fenchel_young(y, z, g) >= 0.0)
    assert np.all(LOSS.fenchel_young(y, z, LOSS.gradient(y, z)) < 1e-28)
    assert np.all(np.isinf(LOSS.fenchel_young(y, z, g + 0.5)))


def test_losses_far_out_keep_their_digits():
    z = np.array([[0.0, -40.0, -800.0], [0.0, 900.0, 0.0], [1e300, 0.0, 0.0]])
    assert np.allclose(LOSS.value([0, 0, 0], z), [np.exp(-40.0), 900.0, 0.0], rtol=1e-14)
    assert LOSS.gradient(0, z[0])[0] == pytest.approx(-np.exp(-40.0), rel=1e-14)


def test_moves_of_scores_leave_curvatures_within_the_exponential_of_their_range():
    def hessian(z):
        p = np.exp(z - z.max())
        p /= p.sum()
        return np.diag(p) - np.outer(p, p)

    for _ in range(200):
        z, t, v = RNG.normal(size=(3, 4)) * 2.0
        ratio = (v @ hessian(z + t) @ v) / (v @ hessian(z) @ v)
        assert abs(np.log(ratio)) <= np.ptp(t) * (1.0 + 1e-12)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda X: glru.Problem(X, [0, 1] * 3, loss=LOSS), r"at least three classes.*use glru.Logistic"),
        (lambda X: glru.Problem(X, [0, 1, 2] * 2, loss=LOSS, penalty=glru.L1(0.1)), "needs an L2 penalty"),
        (lambda X: glru.Problem(X, [0, 1, 2] * 2), "exactly two classes"),
    ],
)
def test_what_is_no_such_problem_is_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make(np.eye(6)[:, :3])


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"method": "glru"}, "method must be 'certified' or 'naive'"),
        ({"bound": "primal"}, "bound 'auto' or 'local'"),
    ],
)
def test_options_of_leave_one_out_that_are_for_one_score(options, match):
    with pytest.raises(ValueError, match=match):
        glru.loocv(problem_of(), **options)


def test_proofs_of_systems_too_large_to_form_with_a_free_column_are_refused_and_the_training_is_not():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 2500))
    problem = glru.Problem(X, np.arange(30) % 3, loss=LOSS, penalty=glru.L2(np.r_[0.0, np.ones(2499)]))
    assert glru.solve(problem).relative_gap <= 1e-6
    for ask in (glru.loocv, glru.cross_val_predict):
        with pytest.raises(ValueError, match="at most 6000 unknowns; got 7500"):
            ask(problem)


def test_a_class_that_vanishes_without_its_only_row_is_refused_with_an_intercept():
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(11, 2)), np.array(["a", "b"] * 5 + ["c"])
    with pytest.raises(ValueError, match="the class c is gone"):
        glru.loocv(glru.Problem(X, y, loss=LOSS, penalty=glru.L2(0.1), fit_intercept=True))
    # Without one the class keeps its coefficients, which the penalty determines.
    assert glru.loocv(glru.Problem(X, y, loss=LOSS, penalty=glru.L2(0.1))).n_undetermined == 0


def test_products_of_a_step_are_counted_so_that_stale_blocks_are_formed_anew():
    problem = problem_of(n_rows=60)
    solver, likely = _Products(problem), np.full((60, 3), 1.0 / 3.0)
    likely[:, 0], likely[:, 1] = np.linspace(0.1, 0.6, 60), np.linspace(0.5, 0.3, 60)
    likely[:, 2] = 1.0 - likely[:, 0] - likely[:, 1]
    solver.direction(likely, np.random.default_rng(2).normal(size=(3, 4)), 1e-8)
    assert solver.last == solver.n_products > 1
