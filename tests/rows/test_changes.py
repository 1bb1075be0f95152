"""Folds of rows in blocks, and rows that leave or come, against retraining."""

import numpy as np
import pytest
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit

import glru
from tests.cases import LOSSES, each
from tests.core import Floor, dual_gap, expand
from tests.decisions.retraining import assert_inside, carefully, scores_after
from tests.rows.data import SHAPES, in_blocks, make, mapped

LOCAL = {name: LOSSES[name] for name in ("logistic", "squared")}
LIGHT = {name: shape for name, shape in SHAPES.items() if name != "heavy-row"}


def held_out_folds(problem, folds):
    """Every row's score under the model trained without its fold, and how far it may be from the truth."""
    scores, off = np.empty(problem.n_rows), np.empty(problem.n_rows)
    for fold in np.unique(folds):
        rows = np.flatnonzero(folds == fold)
        weight = np.where(folds == fold, 0.0, problem.sample_weight)
        scores[rows], off[rows] = scores_after(problem, weight, rows)
    return scores, np.minimum(off, 1e-8 * (1.0 + np.abs(scores)))


@each(LIGHT, "shape")
@each(LOCAL, "loss")
def test_folds_hold_the_retrained_scores(loss, shape, tmp_path):
    problem = make(loss, glru.L2(0.1), seed=4, **shape)
    blocks = in_blocks(tmp_path, problem, 3)
    for cv, groups in ((4, None), (KFold(3, shuffle=True, random_state=0), None), (GroupKFold(2), np.arange(40) // 7)):
        result = glru.cross_val_predict(blocks, cv=cv, groups=groups, width=1e-6)
        assert np.array_equal(np.sort(result.rows), np.arange(40))
        assert np.array_equal(result.y, problem.y[result.rows])
        scores, off = held_out_folds(problem, result.folds[np.argsort(result.rows)])
        assert_inside(scores[result.rows], off[result.rows], result.score_lower, result.score_upper)
        assert set(result.decided_by) <= {"carry", "newton", "refine"}
        assert np.all(result.score_upper - result.score_lower <= 1e-6)
    assert np.array_equal(np.bincount(glru.cross_val_predict(blocks, cv=3).folds), [14, 13, 13])


def test_folds_are_those_of_memory(tmp_path):
    problem = make(glru.Logistic(), glru.L2(0.01), 2000, 4, fit_intercept=True)
    ours = glru.cross_val_predict(in_blocks(tmp_path, problem, 4), cv=5)
    memory = glru.cross_val_predict(problem, cv=KFold(5))
    assert np.array_equal(ours.bounds.signs, memory.bounds.signs)
    wrong = int(np.sum(ours.bounds.signs != problem.y))
    assert ours.n_errors == memory.n_errors == wrong
    assert repr(ours).startswith("CrossValResult(2000 rows in 5 folds)")
    low, high = ours.metric_bounds("accuracy")
    assert low <= 1.0 - wrong / 2000 <= high


def test_folds_without_time(tmp_path):
    problem = make(glru.Logistic(), glru.L2(0.01), 60, 3)
    result = glru.cross_val_predict(glru.solve(in_blocks(tmp_path, problem)), max_seconds=1e-9)
    assert result.decided_by == {"undetermined": 60}
    assert np.all(np.isinf(result.score_lower))
    assert (result.errors_lower, result.errors_upper) == (0, 60)


@each(LIGHT, "shape")
@each(LOCAL, "loss")
def test_after_holds_the_retrained_model(loss, shape, tmp_path):
    problem = make(loss, glru.L2(0.1), seed=4, **shape)
    solution = glru.solve(in_blocks(tmp_path, problem), tol=1e-4)
    new = make(loss, glru.L2(0.1), 6, 3, seed=9)
    added = glru.AddRows(new.X, new.y, [1.0, 2.0, 0.0, 1.0, 0.5, 1.0])
    removed = glru.RemoveRows([7, 2, 30])
    for change in (removed, added, removed + added):
        out = glru.after(solution, change)
        exact = carefully(change.apply(problem))
        scores = exact.problem.scores(exact.coef, exact.intercept)
        lower, upper = out.score_bounds(exact.problem.X)
        slack = 1e-8 * (1.0 + np.abs(scores))
        assert_inside(scores, slack, lower, upper)
        assert np.all(upper - lower <= 1e-5 * (1.0 + np.abs(scores)))
        assert_inside(exact.coef, 1e-8, *out.coef_bounds())
        low, high = out.intercept_bounds()
        assert low - 1e-8 <= exact.intercept <= high + 1e-8
        assert out.score_bounds(new.X).decided.all()
        assert np.array_equal(out.score_bounds(new.X).signs, np.sign(new.X @ exact.coef + exact.intercept))
        assert out.n_passes <= 5.0


@pytest.mark.parametrize("scaling", ["mean", "sum"])
def test_a_changed_problem_is_a_problem(scaling, tmp_path):
    """It can be retrained, validated and changed again; rows that were removed before stay removed."""
    problem = make(glru.Logistic(), glru.L2(0.1), 40, 3, seed=4, fit_intercept=True, scaling=scaling)
    new = make(glru.Logistic(), glru.L2(0.1), 6, 3, seed=9)
    added = glru.AddRows(new.X, new.y)
    out = glru.after(glru.solve(in_blocks(tmp_path, problem)), glru.RemoveRows([2, 7, 30]) + added)
    retrained = out.retrain(tol=1e-10)
    weight = np.append(np.where(np.isin(np.arange(40), [2, 7, 30]), 0.0, 1.0), np.ones(6))
    memory = glru.AddRows(new.X, new.y).apply(problem).derive(sample_weight=weight)
    np.testing.assert_allclose(retrained.coef, carefully(memory).coef, atol=1e-4)
    assert retrained.problem.n_used == 43
    assert retrained.problem.total_weight == 43.0

    result, folds = glru.loocv(retrained, width=1e-6), glru.cross_val_predict(retrained, cv=4, width=1e-6)
    for rows, found in ((np.arange(46), result), (folds.rows, folds)):
        assert np.array_equal(found.y, memory.y[rows])
    for row in (0, 2, 30, 39, 40, 45):
        (score,), (off,) = scores_after(memory, np.where(np.arange(46) == row, 0.0, weight), np.array([row]))
        off = min(off, 1e-8 * (1.0 + abs(score)))
        assert_inside(np.array([score]), off, result.score_lower[[row]], result.score_upper[[row]])
    scores, off = held_out_folds(memory, folds.folds)
    assert_inside(scores, off, folds.score_lower, folds.score_upper)

    again = glru.after(retrained, glru.RemoveRows([5, 41]))
    exact = carefully(memory.derive(sample_weight=np.where(np.isin(np.arange(46), [5, 41]), 0.0, weight)))
    lower, upper = again.score_bounds(memory.X)
    scores = memory.scores(exact.coef, exact.intercept)
    assert_inside(scores, 1e-8 * (1.0 + np.abs(scores)), lower, upper)
    assert again.problem.n_used == 41


def test_weights_that_do_not_matter_any_more(tmp_path):
    """Factors of removals are those of the weights that are left: a removed row has none, whatever it had before."""
    weight = np.where(np.arange(40) == 11, 30.0, 2.0)
    problem = make(glru.Squared(), glru.L2(0.1), 40, 3, seed=5, sample_weight=weight)
    retrained = glru.after(glru.solve(in_blocks(tmp_path, problem)), glru.RemoveRows([11])).retrain(tol=1e-10)
    known = retrained.problem.weight_summary
    assert (known.n_used, known.total, known.largest.value, -known.least.value) == (39, 78.0, 2.0, 0.0)
    result = glru.loocv(retrained, width=1e-8)
    left = np.where(np.arange(40) == 11, 0.0, weight)
    for row in (3, 11):
        (score,), (off,) = scores_after(problem, np.where(np.arange(40) == row, 0.0, left), np.array([row]))
        off = min(off, 1e-8 * (1.0 + abs(score)))
        assert_inside(np.array([score]), off, result.score_lower[[row]], result.score_upper[[row]])


def test_paths_are_those_of_memory(tmp_path):
    problem = make(glru.Logistic(), glru.L2(0.1), 300, 3, fit_intercept=True)
    ours, memory = (glru.loocv_path(data, [1.0, 0.1, 0.01]) for data in (in_blocks(tmp_path, problem), problem))
    assert ours.best_lam == memory.best_lam and ours.certified
    assert np.array_equal(ours.lower, memory.lower)


def test_rows_in_memory_are_one_block(tmp_path):
    """What is summed over blocks is summed over rows in memory by the same code."""
    problem = make(glru.Logistic(), glru.L2(0.05), 60, 3, seed=3, fit_intercept=True, sample_weight=np.arange(60) % 4)
    blocks, point = in_blocks(tmp_path, problem), glru.Point(np.array([0.3, -0.2, 0.1]), 0.4)
    ours, memory = (expand(data, point, Floor.of(problem.loss)) for data in (blocks, problem))
    np.testing.assert_allclose(ours.gradient, memory.gradient, rtol=1e-12)
    np.testing.assert_allclose(np.triu(ours.hessian), np.triu(memory.hessian), rtol=1e-12)
    for name in ("weight_sum", "largest_norm", "column_norms", "norm"):
        np.testing.assert_allclose(getattr(blocks.totals, name), getattr(problem.totals, name), rtol=1e-9)
    assert blocks.weight_summary.n_used == problem.weight_summary.n_used == problem.n_used == 45
    assert dual_gap(blocks, point).value == pytest.approx(dual_gap(problem, point).value)
    numbers = np.array([2, 30, 59])
    for part in (blocks.take(numbers), problem.take(numbers)):
        assert np.array_equal(part.X, problem.X[numbers])
        assert np.array_equal(part.weights, problem.weights[numbers])
    for data in (blocks, problem):
        assert data.without(numbers).n_used == 42


def test_folds_and_changes_that_are_refused(tmp_path):
    problem = make(glru.Logistic(), glru.L2(0.1), 30, 3)
    blocks = in_blocks(tmp_path, problem)
    solution = glru.solve(blocks)
    for cv, error, message in (
        (1, ValueError, "at least 2"),
        (31, ValueError, "from 2 to 30"),
        (ShuffleSplit(3, test_size=0.2, random_state=0), ValueError, "test every row once"),
        ([(np.arange(20), np.arange(20, 30))], TypeError, "splitter"),
    ):
        with pytest.raises(error, match=message):
            glru.cross_val_predict(blocks, cv=cv)
    with pytest.raises(ValueError, match="removed, added"):
        glru.after(solution, glru.Relabel([3], [1]))
    with pytest.raises(ValueError, match="removed, added"):
        glru.after(solution, glru.AddRows(problem.X[:2], problem.y[:2]) + glru.RemoveRows([30]))
    with pytest.raises(ValueError, match="positions from 0 to 29"):
        glru.after(solution, glru.RemoveRows([30]))
    with pytest.raises(TypeError, match="change must be"):
        glru.after(solution, [3])
    with pytest.raises(ValueError, match="candidate='newton'"):
        glru.after(solution, glru.RemoveRows([3]), candidate="carry")
    with pytest.raises(ValueError, match="3 columns"):
        glru.after(solution, glru.RemoveRows([3])).score_bounds(np.ones((2, 4)))
    other = make(glru.Huber(), glru.L2(0.1), 30, 3)
    for ask in (
        lambda: glru.cross_val_predict(in_blocks(tmp_path, other)),
        lambda: glru.after(glru.solve(in_blocks(tmp_path, other)), glru.RemoveRows([3])),
    ):
        with pytest.raises(ValueError, match="logistic or squared loss"):
            ask()
    weight = np.where(np.arange(30) < 3, 1.0, 0.0)
    few = glru.Problem(mapped(tmp_path, problem.X), problem.y, sample_weight=weight)
    with pytest.raises(ValueError, match="leave a row of weight above 0"):
        glru.after(glru.solve(few), glru.RemoveRows([0, 1, 2]))


def test_after_in_blocks_within_limits(tmp_path):
    problem = make(glru.Logistic(), glru.L2(1e-4), 200, 4, fit_intercept=True)
    solution = glru.solve(in_blocks(tmp_path, problem, 3))
    change = glru.RemoveRows(range(60))
    out = glru.after(solution, change)
    assert out.decided_by(problem.X) == {"newton": 200}
    assert out.n_passes == out.n_steps + 1
    scores, off = scores_after(problem, np.where(np.arange(200) < 60, 0.0, problem.sample_weight), np.arange(200))
    for most in (0, 1):
        fewer = glru.after(solution, change, max_steps=most)
        assert fewer.n_steps == most
        assert np.all(fewer.score_bounds(problem.X).width >= out.score_bounds(problem.X).width)
        assert_inside(scores, off, *fewer.score_bounds(problem.X))
    assert_inside(scores, off, *out.score_bounds(problem.X))
    assert glru.after(solution, change, max_seconds=1e-9).n_passes == 1.0
