"""What an answer of ``after`` offers: labels, rates, coefficients, dual variables, retraining, and clear refusals."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import glru
from tests.cases import LOSSES, PENALTIES, dense, each, make, uneven
from tests.certificates.truth import answers, assert_holds, retrained, trained

CHANGE = glru.RemoveRows([3])


@pytest.fixture(scope="module")
def solution():
    """A logistic regression without an intercept."""
    return trained(make(glru.Logistic(), glru.L2(0.05), 300, 4), 1e-10)


def test_labels_follow_the_score_bounds(solution):
    """+1 above zero, -1 below, 0 between; the rate counts the first two."""
    queries = dense(200, 4, 3)
    out = glru.after(solution, CHANGE, "carry")
    lower, upper = out.score_bounds(queries)
    labels = out.score_bounds(queries).signs
    assert labels.dtype == np.int8 and set(labels.tolist()) == {-1, 0, 1}
    np.testing.assert_array_equal(labels, np.where(lower > 0.0, 1, np.where(upper < 0.0, -1, 0)))
    assert out.determination_rate(queries) == np.mean(labels != 0)
    assert 0.5 < out.determination_rate(queries) < 1.0
    assert out.score_bounds(np.zeros((1, 4))).signs.tolist() == [0]


def test_better_candidates_are_tighter(solution):
    """Newton steps tighten every interval; by default they end where intervals are a negligible share of what they were."""
    queries = dense(50, 4, 3)
    widths = {}
    for candidate in ("carry", "newton", "auto"):
        lower, upper = glru.after(solution, CHANGE, candidate).score_bounds(queries)
        widths[candidate] = upper - lower
    assert np.all(widths["newton"] < 1e-3 * widths["carry"])
    # Steps end once the gradient is a share of 1e-8 of what it was at the carried model.
    assert np.all(widths["auto"] <= np.maximum(1e-8 * widths["carry"], widths["newton"]))
    assert np.median(widths["carry"]) < 0.5
    assert glru.after(solution, CHANGE).gap <= glru.after(solution, CHANGE, "newton").gap


def test_auto_is_the_intersection(solution):
    """The larger lower end and the smaller upper end of the primal, the dual and the local bound."""
    queries = dense(50, 4, 3)
    for candidate, parts in (("carry", ("primal", "dual")), ("newton", ("primal", "dual", "local"))):
        bounds = [glru.after(solution, CHANGE, candidate, bound).score_bounds(queries) for bound in parts]
        lower, upper = glru.after(solution, CHANGE, candidate, "auto").score_bounds(queries)
        np.testing.assert_array_equal(lower, np.max([low for low, _ in bounds], axis=0))
        np.testing.assert_array_equal(upper, np.min([high for _, high in bounds], axis=0))


def test_coming_and_going_changes_nothing(solution):
    """Rows that are added and removed again leave the bounds where the old solution was."""
    change = glru.AddRows(dense(2, 4, 8), [1.0, -1.0]) + glru.RemoveRows([300, 301])
    still = glru.after(solution, glru.RemoveRows([]), "carry")
    out = glru.after(solution, change, "carry")
    assert out.gap == pytest.approx(still.gap, rel=1e-9) and out.gap == pytest.approx(solution.gap, rel=1e-3)
    np.testing.assert_array_equal(out.point.coef, solution.coef)
    np.testing.assert_array_equal(out.point.dual, solution.dual)


@pytest.mark.parametrize("candidate", ["carry", "newton", "auto"])
def test_radius_is_theorem_1(solution, candidate):
    """``sqrt(2 G / lam)``."""
    out = glru.after(solution, CHANGE, candidate)
    assert out.radius == pytest.approx(np.sqrt(2.0 * out.gap / 0.05), rel=1e-12)
    assert f"gap          {out.gap:.3g}\n" in repr(out) and "RemoveRows" in repr(out)
    assert out.part.candidate == candidate and out.part.bound == "auto"


def test_primal_bound_is_theorem_1(solution):
    """The width of a score's interval is twice the radius times the row's norm, and of a coefficient's twice the radius."""
    queries = dense(5, 4, 3)
    out = glru.after(solution, CHANGE, "carry", "primal")
    lower, upper = out.score_bounds(queries)
    np.testing.assert_allclose(upper - lower, 2.0 * out.radius * np.linalg.norm(queries, axis=1), rtol=1e-9)
    np.testing.assert_allclose((upper + lower) / 2.0, queries @ solution.coef, rtol=1e-9)
    lower, upper = out.coef_bounds()
    np.testing.assert_allclose(upper - lower, 2.0 * out.radius, rtol=1e-9)


def test_dual_bound_is_theorem_1(solution):
    """``|v*_j - v_j| <= sqrt(2 mu G) sqrt(sum_i s_i x_ij^2)``, divided by lam; scores by the sums over that box."""
    out = glru.after(solution, CHANGE, "carry", "dual")
    changed = out.problem
    half = np.sqrt(2.0 * 0.25 * out.gap) * np.sqrt(changed.weights @ changed.X**2) / 0.05
    middle = changed.X.T @ (changed.weights * out.point.dual) / 0.05
    lower, upper = out.coef_bounds()
    np.testing.assert_allclose(lower, middle - half, rtol=1e-9)
    np.testing.assert_allclose(upper, middle + half, rtol=1e-9)
    queries = dense(5, 4, 3)
    least, most = out.score_bounds(queries)
    np.testing.assert_allclose(least, queries @ middle - np.abs(queries) @ half, rtol=1e-9)
    np.testing.assert_allclose(most, queries @ middle + np.abs(queries) @ half, rtol=1e-9)


def test_remark_2_tightens_the_dual_bound():
    """A correlation cannot leave the range that the domain of the dual allows, however large the gap is."""
    problem = make(glru.Logistic(), glru.L2(0.05), 30, 3)
    rough = glru.solve(problem, start=glru.Point(np.full(3, 50.0)), until=lambda state: True)
    out = glru.after(rough, CHANGE, "carry", "dual")
    pulls = out.problem.weights[:, None] * out.problem.X * out.problem.y[:, None] / 0.05
    lower, upper = out.coef_bounds()
    np.testing.assert_allclose(lower, np.minimum(pulls, 0.0).sum(axis=0), rtol=1e-9)
    np.testing.assert_allclose(upper, np.maximum(pulls, 0.0).sum(axis=0), rtol=1e-9)


@each(LOSSES, "loss")
def test_dual_bounds_are_i_d(loss):
    """Loss derivatives at the ends of the scores, inside the domain; close to the new solution's own."""
    problem = make(loss, glru.L2(0.05), 40, 4)
    out = glru.after(trained(problem, 1e-11), CHANGE)
    lower, upper = out.dual_bounds()
    assert lower.shape == upper.shape == (39,) and np.all(lower <= upper)
    low, high = out.score_bounds(out.problem.X)
    np.testing.assert_allclose(upper, -loss.derivative(out.problem.y, low)[0], atol=1e-12)
    np.testing.assert_allclose(lower, -loss.derivative(out.problem.y, high)[1], atol=1e-12)
    edges = loss.derivative_range(out.problem.y)
    assert np.all(lower >= -edges[1]) and np.all(upper <= -edges[0])


def test_coefficients_may_be_unbounded():
    """L1 (Remark 1): columns that may enter the model are unbounded, columns that cannot are zero."""
    problem = make(glru.Squared(), glru.L1(0.5), 40, 8)
    solution = trained(problem, 1e-12)
    change = glru.Reweight([3], 1.001)
    out = glru.after(solution, change, "carry")
    lower, upper = out.coef_bounds()
    zero, free = (lower == 0.0) & (upper == 0.0), np.isinf(lower) | np.isinf(upper)
    assert zero.any() and free.any() and np.all(zero | free)
    assert np.all(free[solution.coef != 0.0])
    truth = retrained(out.problem)
    assert_holds(out, out.problem, truth, dense(5, 8, 1))
    blind, seen = np.eye(8)[free], np.eye(8)[zero]
    assert not out.score_bounds(np.vstack([blind, -blind])).signs.any()
    assert np.all(np.isfinite(out.score_bounds(seen)))
    assert not out.score_bounds(dense(20, 8, 1)).decided.any()
    assert np.all(np.isinf(glru.after(solution, change, "carry", "primal").coef_bounds()))


@each(LOSSES, "loss")
@each(PENALTIES, "penalty")
def test_unconverged_solutions(loss, penalty):
    """Zero coefficients, never trained: wide bounds, true ones, and no NaN."""
    problem = make(loss, penalty, 20, 4, fit_intercept=True, sample_weight=uneven(20) + 0.5)
    start = glru.solve(problem, start=glru.Point(np.zeros(4)), until=lambda state: True)
    assert start.status == "stopped" and start.relative_gap > 1e-2
    change = glru.RemoveRows([3]) + glru.Relabel([0], problem.y[[5]])
    truth, changed = retrained(change.apply(problem)), change.apply(problem)
    for out in answers(start, change):
        assert not np.any(np.isnan(out.score_bounds(dense(5, 4))))
        assert_holds(out, changed, truth, dense(5, 4))


def test_no_label_from_an_infinite_bound():
    """One class and an intercept: the retrained model runs off to infinity, and nothing is said about it."""
    problem = make(glru.Logistic(), glru.L2(0.1), 20, 3, fit_intercept=True)
    change = glru.RemoveRows(np.flatnonzero(problem.y < 0.0))
    for out in answers(trained(problem, 1e-8), change):
        lower, upper = out.score_bounds(dense(10, 3))
        assert np.all(np.isneginf(lower) | (lower <= 0.0)) or np.all(np.isposinf(upper))
        assert np.all(out.score_bounds(dense(10, 3)).signs[np.isinf(lower) & np.isinf(upper)] == 0)
        low, high = out.intercept_bounds()
        assert high == np.inf and not np.isnan(low)


def test_retrain(solution):
    """Warm-started from the candidate: no iteration is needed where Newton was enough, and ``until`` stops it early."""
    out = glru.after(solution, CHANGE)
    again = out.retrain(tol=1e-10)
    assert again.status == "converged" and again.problem is out.problem
    cold = glru.solve(out.problem, tol=1e-10)
    assert again.n_iter < cold.n_iter
    np.testing.assert_allclose(again.coef, cold.coef, atol=1e-5)
    carried = glru.after(solution, CHANGE, "carry")
    seen = []
    stopped = carried.retrain(tol=1e-14, until=lambda state: seen.append(state.gap) or len(seen) == 2)
    assert stopped.status == "stopped" and len(seen) == 2
    assert glru.after(solution, CHANGE, "carry").retrain().relative_gap <= 1e-6


def test_queries(solution):
    """Arrays, lists, sparse matrices and frames give one answer; the changed problem's columns are expected."""
    queries = dense(6, 4, 3)
    out = glru.after(solution, CHANGE)
    lower, upper = out.score_bounds(queries)
    for other in (queries.tolist(), sp.coo_array(queries), pd.DataFrame(queries), np.asfortranarray(queries)):
        again = out.score_bounds(other)
        np.testing.assert_allclose(again[0], lower, rtol=1e-9)
        np.testing.assert_allclose(again[1], upper, rtol=1e-9)
    narrow = glru.after(solution, glru.RemoveColumns([0]))
    assert narrow.score_bounds(queries[:, 1:]).signs.shape == (6,)
    with pytest.raises(ValueError, match="queries must have 3 columns, as the model has; got 4"):
        narrow.score_bounds(queries)
    with pytest.raises(ValueError, match="queries must be finite; row 0, column 0 is nan"):
        out.score_bounds(np.where(queries == queries[0, 0], np.nan, queries))
    single = queries.astype(np.float32)
    np.testing.assert_array_equal(out.score_bounds(single), out.score_bounds(single.astype(np.float64)))


def test_queries_are_matched_by_name():
    """As rows of a change are: the order of a frame's columns does not matter, their names do."""
    frame = pd.DataFrame({"a": [1.0, 2.0, -1.0, -2.0], "b": [5.0, -5.0, 5.0, -5.0]})
    solution = glru.solve(glru.Problem(frame, [1, 1, 0, 0], penalty=glru.L2(0.1)))
    out = glru.after(solution, glru.RemoveRows([]))
    assert (
        out.score_bounds(frame[["b", "a"]]).signs.tolist() == out.score_bounds(frame).signs.tolist() == [1, 1, -1, -1]
    )
    with pytest.raises(ValueError, match="missing: a"):
        out.score_bounds(frame.rename(columns={"a": "c"}))


def test_hinge_with_an_intercept():
    """The intercept of a support vector machine is bounded by the rows on either side."""
    problem = make(glru.Hinge(), glru.L2(0.1), 200, 3, fit_intercept=True)
    out = glru.after(trained(problem, 1e-12), glru.RemoveRows([3]))
    assert np.all(np.isfinite(out.intercept_bounds()))
    assert out.determination_rate(dense(100, 3, 4)) > 0.5


@pytest.mark.parametrize(("rows", "weight"), [([2, 1, 0], [0.1, 0.2, 0.3, 0.0]), ([0], [2.0**54, 1.0, 1.0, 1.0])])
def test_whether_weight_is_left_is_judged_exactly(rows, weight):
    """The first change leaves no weight and is refused, the second leaves three rows."""
    problem = glru.Problem(dense(4, 2), [0.0, 1.0, 2.0, 3.0], glru.Squared(), sample_weight=weight)
    solution = trained(problem, 1e-8)
    if len(rows) == 3:
        with pytest.raises(ValueError, match="a change must leave a row of weight above 0"):
            glru.after(solution, glru.RemoveRows(rows), "carry").gap  # noqa: B018
    else:
        assert glru.after(solution, glru.RemoveRows(rows), "carry").gap > 0.0


REFUSED = {
    "solution": (lambda s: glru.after("model", CHANGE), TypeError, "model must be a problem, a solution or an"),
    "change": (lambda s: glru.after(s, [3]), TypeError, r"change must be a glru change .* got \[3\]"),
    "candidate": (
        lambda s: glru.after(s, CHANGE, "guess"),
        ValueError,
        "candidate must be 'auto', 'carry' or 'newton'",
    ),
    "bound": (
        lambda s: glru.after(s, CHANGE, "auto", "outer"),
        ValueError,
        "bound must be 'auto', 'primal', 'dual' or",
    ),
    "rows": (
        lambda s: glru.after(s, glru.RemoveRows([300])),
        ValueError,
        "rows must be positions from 0 to 299; got 300",
    ),
    "columns": (lambda s: glru.after(s, glru.RemoveColumns([4])), ValueError, "columns must be positions from 0 to 3"),
    "all": (lambda s: glru.after(s, glru.RemoveColumns(range(4))), ValueError, "must leave at least one column"),
    "width": (lambda s: glru.after(s, glru.AddRows(dense(1, 3), [1])), ValueError, "new rows must have 4 columns"),
    "height": (lambda s: glru.after(s, glru.AddColumns(dense(3, 1))), ValueError, "new columns must have 300 rows"),
}


@each(REFUSED, "case")
def test_refused_before_any_work(solution, case):
    """``after`` itself raises, with the rule and what was given."""
    ask, error, message = case
    with pytest.raises(error, match=message):
        ask(solution)


def test_refused_combinations():
    """Newton and the dual bound need a smooth loss, the local bound a self-concordant one and an L2 penalty."""
    hinge = trained(make(glru.Hinge(), glru.L2(0.1), 20, 3), 1e-6)
    with pytest.raises(ValueError, match="candidate='newton' needs a smooth loss"):
        glru.after(hinge, CHANGE, "newton")
    with pytest.raises(ValueError, match="bound='dual' needs a smooth loss; got Hinge"):
        glru.after(hinge, CHANGE, bound="dual")
    for loss, penalty in ((glru.Huber(), glru.L2(0.1)), (glru.Logistic(), glru.ElasticNet(0.1, 0.1))):
        with pytest.raises(ValueError, match="bound='local' needs a self-concordant loss"):
            glru.after(trained(make(loss, penalty, 20, 3), 1e-6), CHANGE, bound="local")
    assert np.all(np.isfinite(glru.after(hinge, CHANGE).coef_bounds()))


def test_dead_columns_do_not_widen_scores():
    """A penalised column without values has coefficient zero: what a query holds there does not matter."""
    X = dense(20, 3)
    X[:, 1] = 0.0
    y = np.where(np.arange(20) % 2 == 0, 1.0, -1.0)
    solution = trained(glru.Problem(X, y, penalty=glru.L2(0.1)), 1e-8)
    queries = dense(5, 3, 2)
    far = queries.copy()
    far[:, 1] = 1e6
    for change in (CHANGE, glru.Reweight([2], 3.0), glru.AddColumns(dense(20, 1, 1)) + glru.RemoveColumns([3])):
        out = glru.after(solution, change, "carry")
        np.testing.assert_array_equal(out.score_bounds(queries), out.score_bounds(far))
    arrived = glru.after(solution, glru.EditValues([0], [1], 2.0), "carry")
    assert np.all(arrived.score_bounds(far)[1] > out.score_bounds(far)[1])
    assert_holds(arrived, arrived.problem, retrained(arrived.problem), far)
