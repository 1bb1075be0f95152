"""Ridge regression has a closed form: one Newton step is the retrained model, as in the classical low-rank updates."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge

import glru
from tests.cases import dense, each, targets, uneven
from tests.certificates.truth import trained

N, D = 40, 6
X = dense(N, D)
Y = targets(X, glru.Squared())
CHANGES = {
    "remove-rows": glru.RemoveRows([0, 7, 11]),
    "add-rows": glru.AddRows(dense(3, D, 2), [1.0, -4.0, 2.0], [1.0, 0.5, 2.0]),
    "remove-columns": glru.RemoveColumns([5, 1]),
    "add-columns": glru.AddColumns(dense(N, 2, 3)),
    "edit": glru.EditValues([1, 3], [0, 2], 9.0),
    "relabel": glru.Relabel([4], [20.0]),
    "reweight": glru.Reweight([2, 9], [0.0, 5.0]),
    "mixed": glru.RemoveRows([3]) + glru.AddColumns(dense(N - 1, 1, 4)) + glru.RemoveColumns([0]),
}
SHAPES = {"tall": (N, D), "wide": (12, D)}


def refitted(problem):
    """scikit-learn's answer; its objective is twice ours."""
    data = problem.X.toarray() if sp.issparse(problem.X) else problem.X
    model = Ridge(alpha=problem.penalty.lam, fit_intercept=problem.fit_intercept, solver="svd")
    return model.fit(data, problem.y, sample_weight=problem.weights)


@each(CHANGES, "change")
@pytest.mark.parametrize("scaling", ["mean", "sum"])
@pytest.mark.parametrize("fit_intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("tol", [1e-10, 1e-1])
def test_newton_is_the_refit(change, scaling, fit_intercept, layout, tol):
    """Coefficients to 1e-10, a gap of nothing but rounding, from any old solution."""
    problem = glru.Problem(
        layout(X), Y, glru.Squared(), glru.L2(0.3), fit_intercept, scaling, sample_weight=uneven(N) + 0.5
    )
    out = glru.after(trained(problem, tol), change, "newton")
    model = refitted(out.problem)
    np.testing.assert_allclose(out.point.coef, model.coef_, rtol=1e-10, atol=1e-10)
    assert out.point.intercept == pytest.approx(model.intercept_, rel=1e-10, abs=1e-10)
    assert 0.0 < out.gap <= 1e-24 * float(out.problem.weights @ out.problem.y**2)
    for bounds in (out.coef_bounds(), out.score_bounds(np.eye(out.problem.n_columns))):
        assert np.all(bounds[1] - bounds[0] <= 1e-9)
    lower, upper = out.coef_bounds()
    assert np.all(lower - 1e-12 <= model.coef_) and np.all(model.coef_ <= upper + 1e-12)


@pytest.mark.parametrize("fit_intercept", [False, True], ids=["", "intercept"])
def test_wide_ridge(fit_intercept):
    """Fewer rows than columns: the step is taken in the dimension of the rows."""
    wide = dense(10, 60, 8)
    problem = glru.Problem(wide, wide[:, 0], glru.Squared(), glru.L2(0.3), fit_intercept)
    for change in (glru.RemoveRows([2]), glru.RemoveColumns(range(0, 60, 7)), glru.AddRows(dense(1, 60, 9), [1.0])):
        out = glru.after(trained(problem, 1e-8), change, "newton")
        model = refitted(out.problem)
        np.testing.assert_allclose(out.point.coef, model.coef_, rtol=1e-10, atol=1e-10)
        assert out.point.intercept == pytest.approx(model.intercept_, rel=1e-10, abs=1e-10)
        assert out.gap <= 1e-24


@pytest.mark.parametrize("i", [0, 13])
def test_one_removed_row_is_the_textbook_formula(i):
    """``w - A^-1 x_i e_i / (1 - h_ii)``, the leave-one-out update of every statistics course."""
    problem = glru.Problem(X, Y, glru.Squared(), glru.L2(2.0), scaling="sum")
    solution = trained(problem, 1e-14)
    inverse = np.linalg.inv(X.T @ X + 2.0 * np.eye(D))
    leverage = X[i] @ inverse @ X[i]
    expected = solution.coef - inverse @ X[i] * (Y[i] - X[i] @ solution.coef) / (1.0 - leverage)
    out = glru.after(solution, glru.RemoveRows([i]), "newton")
    np.testing.assert_allclose(out.point.coef, expected, rtol=1e-11)
