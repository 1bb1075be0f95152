"""A short attack with fixed seeds, and what earlier attacks and the reading of the code have found."""

from fractions import Fraction

import numpy as np
import pytest

import glru
from glru.families.local import LocalRows
from glru.regions.metric import ColumnMetric
from glru.verify.retraining import retrained
from tests.attack.campaign import campaign
from tests.cases import dense, make


@pytest.mark.parametrize("first", [0, 1000])
def test_short_attack(first):
    """Nothing gives: no number outside its bounds, no crash, no warning."""
    report = campaign(first, count=12)
    assert report.wrong == [] and report.crashes == []
    assert sum(report.decisions.values()) > 50


def test_new_columns_whose_squares_underflow():
    """Entries of 1e-170: the norm of the column is not zero although its square is."""
    problem = make(glru.Logistic(), glru.L2(0.05), 12, 3)
    solution = glru.solve(problem, tol=1e-2)
    change = glru.AddColumns(1e-170 * dense(12, 1, 5), glru.L2(1e-300))
    out = glru.after(solution, change, candidate="carry", bound="dual")
    truth = retrained(change.apply(problem))
    lower, upper = out.coef_bounds()
    assert float(lower[-1]) < truth.coef[-1] < float(upper[-1])


def test_rows_whose_squares_underflow():
    """Entries of 1e-303: a norm has room for the square it lost, and a held-out score must not be moved by that room."""
    X = 1e-303 * dense(11, 2)
    problem = glru.Problem(X, np.linspace(-1.0, 2.5, 11), glru.Squared(), glru.L2(0.5), scaling="sum")
    family = LocalRows(glru.solve(problem), 1.0)
    lower, upper = family.bounds(np.arange(11), lambda low, high: np.zeros(low.shape, dtype=bool))
    for row in range(11):
        weight = np.where(np.arange(11) == row, 0.0, 1.0)
        ((score, off),) = retrained(problem.derive(sample_weight=weight)).scores(X[row : row + 1])
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
    result = glru.stepwise(problem, problem.X, problem.y, direction="forward")
    assert result.path


def test_inverse_of_an_ill_conditioned_factor():
    """What the metric's rounding bound rests on: the product of the factor with its inverse, in this order."""
    X = np.vander(np.linspace(0.5, 1.5, 30), 7)
    metric = ColumnMetric(make(glru.Squared(), glru.L2(1e-7), 30, 7).derive(X=X), np.full(30, 1.0 / 30))
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
