"""A short attack with fixed seeds, and what earlier attacks and the reading of the code have found."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import glru
from glru.verify.retraining import retrain
from tests.attack.campaign import campaign
from tests.attack.cases import left_out
from tests.attack.generators import unscaled_rows
from tests.cases import dense, make
from tests.core import LocalEllipsoid, LocalRows, Point, make_column_metric, removal_factors


@pytest.mark.parametrize("first", [0, 1000])
def test_short_attack(first):
    """Nothing gives: no number outside its bounds, no crash, no warning."""
    report = campaign(first, count=14)
    assert report.wrong == [] and report.crashes == []
    assert sum(report.decisions.values()) > 50


def test_short_attack_on_answers():
    """Trained models, labels, searches and live models, by one thread and by several: nothing that is returned is wrong."""
    report = campaign(96, count=12, group="answers")
    assert report.wrong == [] and report.crashes == []
    assert sum(report.decisions.values()) > 500


def test_short_attack_on_pipelines():
    """Steps fitted again in 40 digits; seed 1008 has rows worked on alone whose interval is narrower than a scale's rounding."""
    report = campaign(1006, count=5, group="pipelines")
    assert report.wrong == [] and report.crashes == []
    assert sum(report.decisions.values()) > 200


def test_moved_fills_of_wide_classes():
    """Fills that move without a row change the Hessian of the losses, too: bounds that left that out missed by up to 1e-3."""
    report = campaign(2130000110, count=1, group="refits")
    assert report.wrong == [] and report.crashes == []
    assert any("WideClasses" in name for name in report.decisions + report.open)


@pytest.mark.parametrize(
    ("seed", "shape", "strength"), [(50, (36, 5), 0.002), (180, (27, 24), 1.0), (216, (27, 24), 0.002)]
)
def test_unscaled_columns_train_to_tolerance(seed, shape, strength):
    """The gap of updated scores was below tol and that of fresh ones above: a step or two more, no "stalled"."""
    X, z = unscaled_rows(np.random.default_rng(seed), *shape)
    y = np.where(z > np.median(z), 1.0, -1.0)
    problem = glru.Problem(X, y, glru.Logistic(), glru.L2(strength), fit_intercept=True, scaling="sum")
    solution = glru.solve(problem, tol=1e-9)
    assert solution.status == "converged" and solution.reached(1e-9)


def test_steps_that_overflow_leave_a_model():
    """A row of 1e156 in two columns, sparse: no coefficient is NaN, and a training after a change has a start."""
    X = sp.csr_array(np.array([[2.369805181098841e156, 2.773843303842971e86], [0.0, 1.0]]))
    problem = glru.Problem(X, [-1.0, 1.0], glru.Logistic(), glru.L2(8.96691321784206))
    one = glru.RemoveRows([1]).apply(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = glru.solve(one, tol=1e-6)
        assert np.all(np.isfinite(solution.coef)) and not np.isnan(solution.gap)
        again = glru.after(solution, glru.RemoveColumns([0])).retrain()
    assert np.all(np.isfinite(again.coef))


def test_an_inverse_whose_square_overflows():
    """Unpenalised columns far from zero: on the way to no optimum the inverse of the Hessian overflows, and nothing fails."""
    first = "145 147 143 155 147 155 153 148 143 148 144 149 147 150 146 147 155 155 145 152"
    second = "891 2299 2041 1376 1800 2662 2374 1110 967 1657 1976 1229 2593 1098 2499 2167 368 1451 1280 1749"
    X = np.column_stack([28000.0 + np.fromstring(first, sep=" "), 103859000.0 + np.fromstring(second, sep=" ")])
    y = np.array(list("abababbaaaabbaabbbab"))
    test = [0, 1, 2, 3, 5, 7, 11, 14, 18, 19]
    rest = np.setdiff1d(np.arange(20), test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no convergence, labels that are not proven
        labels = glru.cross_val_predict(LogisticRegression(C=np.inf), X, y, cv=[(rest, test), (test, rest)])
    assert np.ma.getmaskarray(labels).any()


def test_new_columns_whose_squares_underflow():
    """Entries of 1e-170: the norm of the column is not zero although its square is."""
    problem = make(glru.Logistic(), glru.L2(0.05), 12, 3)
    solution = glru.solve(problem, tol=1e-2)
    change = glru.AddColumns(1e-170 * dense(12, 1, 5), glru.L2(1e-300))
    out = glru.after(solution, change, candidate="carry", bound="dual")
    truth = retrain(change.apply(problem))
    lower, upper = out.coef_bounds()
    assert float(lower[-1]) < truth.coef[-1] < float(upper[-1])


def test_rows_whose_squares_underflow():
    """Entries of 1e-303: a norm has room for the square it lost, and a held-out score must not be moved by that room."""
    X = 1e-303 * dense(11, 2)
    problem = glru.Problem(X, np.linspace(-1.0, 2.5, 11), glru.Squared(), glru.L2(0.5), scaling="sum")
    family = LocalRows(glru.solve(problem), 1.0)
    lower, upper = family.bounds(np.arange(11))
    for row in range(11):
        weight = np.where(np.arange(11) == row, 0.0, 1.0)
        ((score, off),) = retrain(problem.derive(sample_weight=weight)).scores(X[row : row + 1])
        assert float(lower[row]) <= score + off
        assert float(upper[row]) >= score - off


def test_targets_far_from_zero():
    """R^2 of targets around 1e8 that differ by 1e-7: the mean of the targets is rounded, too."""
    random = np.random.default_rng(0)
    y = 1e8 + 1e-7 * random.normal(0.0, 1.0, 9)
    problem = glru.Problem(random.normal(0.0, 1.0, (9, 2)), y, glru.Squared(), glru.L2(0.1), fit_intercept=True)
    solution = glru.solve(problem, until=lambda state: True)
    result = glru.loocv(solution)
    mean = sum(map(Fraction, y)) / 9
    spread = sum((Fraction(t) - mean) ** 2 for t in y)
    least, most = result.metric_bounds("r2")
    middle = [Fraction(t) for t in 0.5 * (result.score_lower + result.score_upper)]
    exact = 1 - sum((Fraction(t) - m) ** 2 for t, m in zip(y, middle, strict=True)) / spread
    assert least <= exact <= most


def test_forward_from_no_columns_with_a_strength_for_each():
    """A model without columns has a penalty without entries."""
    problem = make(glru.Logistic(), glru.L2([0.05, 0.1, 0.2]), 20, 3)
    result = glru.stepwise(problem, X_val=problem.X, y_val=problem.y, direction="forward")
    assert result.path


def test_inverse_of_an_ill_conditioned_factor():
    """What the metric's rounding bound rests on: the product of the factor with its inverse, in this order."""
    X = np.vander(np.linspace(0.5, 1.5, 30), 7)
    problem = make(glru.Squared(), glru.L2(1e-7), 30, 7).derive(X=X)
    metric = make_column_metric(problem.totals, problem.hessian(np.full(30, 1.0 / 30)))
    assert metric.eta < 1.0
    factor, inverse = ([[Fraction(v) for v in row] for row in part] for part in (metric.factor, metric.inverse))
    size = len(factor)
    rest = 0.0
    for i in range(size):
        for j in range(size):
            entry = sum((factor[i][k] * inverse[k][j] for k in range(size)), Fraction(0)) - (i == j)
            rest += float(entry) ** 2
    assert np.sqrt(rest) <= metric.tau


@pytest.mark.parametrize("loss", [glru.Logistic(), glru.SquaredHinge()], ids=["logistic", "squared-hinge"])
def test_unpenalised_columns_whose_squares_overflow(loss):
    """The equality constraints cannot be met in float64: nothing is proven, and nothing fails."""
    problem = make(loss, glru.L2([0.0, 0.05, 0.05]), 12, 3)
    huge = problem.derive(X=problem.X * np.array([1e160, 1.0, 1.0]))
    solution = glru.solve(huge, until=lambda state: True)
    lower, upper = glru.after(solution, glru.RemoveRows([0])).score_bounds(huge.X)
    assert np.all(lower <= upper)


def test_overflow_is_no_warning():
    """Columns of 1e160, whose squares overflow: bounds that say nothing, not a word on the terminal."""
    problem = make(glru.Logistic(), glru.L2(0.05), 12, 3)
    huge = problem.derive(X=problem.X * np.array([1e160, 1.0, 1e-160]))
    solution = glru.solve(huge, until=lambda state: True)
    glru.loocv(solution)
    glru.cross_val_predict(solution, cv=2)
    out = glru.after(solution, glru.RemoveRows([0]))
    for lower, upper in (out.score_bounds(huge.X), out.coef_bounds(), out.dual_bounds()):
        assert not np.isnan(lower).any() and not np.isnan(upper).any()


def test_a_gradient_whose_square_underflows():
    """Entries of 1e-309: the gradient's error bound of 1e-166 is not zero although its square is."""
    problem = glru.Problem(np.array([[9e-310], [1e-309], [1.1e-309]]), [-1, 1, -1], glru.Logistic(), glru.L2(15.3))
    for scaling in ("sum", "mean"):
        moved = problem.derive(scaling=scaling)
        truth = retrain(moved)
        coef = np.array([float(truth.coef[0]) + 1e-319])
        lower, upper = LocalEllipsoid.at(moved, Point(coef)).coef_bounds()
        assert float(lower[0]) <= truth.coef[0] <= float(upper[0])


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", [glru.Squared(), glru.Logistic(), glru.SquaredHinge(), glru.Hinge()], ids=repr)
def test_one_row(loss, fit_intercept):
    """A single row, in a classification what is left of more: every change is answered, rightly where an optimum is found."""
    whole = glru.Problem([[1.0, -2.0], [0.5, 3.0]], [1.0, -1.0], loss, glru.L2(0.1), fit_intercept=fit_intercept)
    problem = glru.RemoveRows([1]).apply(whole)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = glru.solve(problem)
    for change in (
        glru.AddRows([[0.3, 0.2]], [-1.0]),
        glru.EditValues([0], [1], 0.5),
        glru.Relabel([0], [-1.0]),
        glru.Reweight([0], 2.5),
        glru.RemoveColumns([0]),
        glru.AddColumns([[0.7]]),
    ):
        changed = change.apply(problem)
        truth = retrain(changed)
        lower, upper = glru.after(solution, change).score_bounds(changed.X)
        one_class = loss.task == "classification" and fit_intercept and changed.n_rows == 1
        assert (truth is None) == one_class
        assert np.all(lower <= upper)
        for (score, off), low, high in zip(
            truth.scores(changed.X) if truth else [], lower, upper, strict=truth is not None
        ):
            assert float(low) - off <= score <= float(high) + off
    with pytest.raises(ValueError, match="must leave at least one row"):
        glru.after(solution, glru.RemoveRows([0]))
    with pytest.raises(ValueError, match="leave-one-out needs at least two rows"):
        glru.loocv(solution)


def test_norms_that_are_all_underflow():
    """Rows of 1e-309: what keeps their norms above zero is no share of them, and moves their scores by nothing."""
    X = 1e-309 * np.arange(1.0, 12.0)[:, None]
    problem = glru.Problem(X, 1e4 * np.arange(-5.0, 6.0) - 3.0, glru.Squared(), glru.L2(0.03))
    solution = glru.solve(problem, tol=1e-1)
    rows, exact = left_out(problem)
    lower, upper = LocalRows(solution, float(removal_factors(problem)[0])).bounds(rows)
    for (score, _), low, high in zip(exact, lower, upper, strict=True):
        assert float(low) <= score <= float(high)


@pytest.mark.parametrize("penalty", [glru.ElasticNet(29.0, 0.01), glru.L2(29.0)], ids=["elastic-net", "l2"])
@pytest.mark.parametrize("shape", [(11, 3), (4, 9)], ids=["tall", "wide"])
def test_a_hessian_that_overflows_has_no_factor(penalty, shape):
    """Squares of 1e158, in a system that is solved: no step, no crash, a model whose gap says how good it is."""
    problem = make(glru.SquaredHinge(), penalty, *shape, fit_intercept=True)
    huge = problem.derive(X=3.7 * 10.0 ** np.linspace(158.0, 8.0, shape[1]) * (1.0 + 1e-9 * problem.X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = glru.solve(huge)
    assert np.all(np.isfinite(solution.coef)) and solution.gap >= 0.0
    lower, upper = glru.after(solution, glru.Reweight([0], 2.0)).score_bounds(huge.X)
    assert np.all(lower <= upper)


@pytest.mark.parametrize("seed", [508000009, 512000023])
def test_a_filled_column_that_is_constant_without_a_row(seed):
    """All that such a column has is the rounding of what is filled in, under a scale that is another one."""
    report = campaign(seed, count=1, group="pipelines")
    assert not report.wrong and report.decisions


@pytest.mark.parametrize("seed", [1301000080, 1300000060])
def test_bounds_of_rows_in_blocks_and_of_huge_coefficients(seed):
    """Rows in blocks that take more than a few steps, for which there is no Hessian product; and norms that overflow."""
    report = campaign(seed, count=1, group="bounds")
    assert report.cases == 1 and not report.wrong and not report.crashes


def test_a_residual_at_the_rounded_end_of_its_range():
    """The residuals of a share end at 1 minus it, which float64 rounds; a held-out score of 41 is within 1e-18 of that end."""
    report = campaign(2640000256, count=1, group="deletions")
    assert report.decisions["deletion residual"] and not report.wrong
