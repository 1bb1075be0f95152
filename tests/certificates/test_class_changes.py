"""What ``after`` proves of multinomial models, against models retrained beyond float64."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

import glru
from tests.certificates.class_truth import LONG, retrain_classes
from tests.certificates.test_after import KINDS, make_change
from tests.certificates.test_multinomial import problems
from tests.core import ClassEllipsoid, Point


def retrained(problem):
    """Coefficients with the intercept last, one line per class, and scores of the problem's rows measured from their mean."""
    weight = np.array(problem.sample_weight, dtype=LONG)
    weight = weight / weight.sum() if problem.scaling == "mean" else weight
    X = problem.matrix.dense()
    free = problem.fit_intercept
    model, _ = retrain_classes(X, problem.y, weight, problem.quadratic, problem.n_scores, free)
    wide = np.column_stack([X, np.ones(len(X))]) if free else X
    return model, wide.astype(LONG) @ model.T


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1, 2, 5])
def test_bounds_hold_the_retrained_model(kind, seed):
    problem = problems(seed)
    solution = glru.solve(problem, tol=10.0 ** -(2 + 2 * seed))
    change = make_change(kind, problem, 1 + seed % 3, seed)
    changed = change.apply(problem)
    if changed.fit_intercept and np.unique(changed.y[changed.weights > 0.0]).size < changed.n_scores:
        assert glru.after(solution, change).decided(changed.X).sum() == 0
        return
    model, scores = retrained(changed)
    for options in ({}, {"candidate": "carry"}, {"max_steps": 0}, {"max_steps": 2}, {"bound": "local"}):
        out = glru.after(solution, change, **options)
        lower, upper = out.score_bounds(changed.X)
        assert np.all((lower <= scores) & (scores <= upper)), options
        lower, upper = out.coef_bounds()
        coef = model[:, : changed.n_columns]
        assert np.all((lower <= coef) & (coef <= upper)), options
        if changed.fit_intercept:
            lower, upper = out.intercept_bounds()
            assert np.all((lower <= model[:, -1]) & (model[:, -1] <= upper)), options
        likely = np.exp(scores - scores.max(axis=1, keepdims=True))
        likely /= likely.sum(axis=1, keepdims=True)
        lower, upper = out.probability_bounds(changed.X)
        assert np.all((lower <= likely) & (likely <= upper)), options
        lower, upper = out.dual_bounds()
        dual = np.eye(changed.n_scores)[changed.y] - likely
        assert np.all((lower <= dual) & (dual <= upper)), options
        lower, upper = out.lead_bounds(changed.X)
        leader = ((lower == 0.0) & (upper == 0.0)).argmax(axis=1)
        leads = scores[np.arange(len(scores)), leader][:, None] - scores
        assert np.all((lower <= leads) & (leads <= upper)), options
        decided = out.decided(changed.X)
        assert np.all(np.ma.getdata(out.labels(changed.X))[decided] == changed.classes[scores.argmax(axis=1)][decided])
    assert glru.after(solution, change).radius >= 0.0


def test_every_label_of_iris_is_proven_and_the_drop_in_agrees_with_a_refit():
    X, y = load_iris(return_X_y=True)
    estimator, change = (
        LogisticRegression(tol=1e-8, max_iter=10_000),
        glru.RemoveRows([0, 60, 110]) + glru.Relabel([5], [2]),
    )
    out = glru.after(estimator, change, X=X, y=y)
    assert out.decided_by(X) == {"newton": 150}
    kept = np.delete(np.arange(150), [0, 60, 110])
    labels = y[kept].copy()
    labels[5] = 2
    assert np.array_equal(out.labels(X), estimator.fit(X[kept], labels).predict(X))
    assert out.needs_retraining(X).verdict in ("yes", "no")
    sparse = glru.after(estimator, change, X=sp.csr_array(X), y=y)
    assert np.array_equal(sparse.labels(X), out.labels(X))


def test_limits_leave_labels_open_and_a_later_question_uses_what_an_earlier_one_found():
    X, y = load_iris(return_X_y=True)
    problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(1e-3), fit_intercept=True)
    solution, change = glru.solve(problem), glru.RemoveRows(np.arange(50, 90))
    none = glru.after(solution, change, max_steps=0)
    assert none.n_steps == 0
    assert none.decided_by(X) == {"undetermined": 150}
    assert isinstance(none.labels(X), np.ma.MaskedArray)
    few = glru.after(solution, change, max_steps=3)
    few.labels(X)
    assert few.n_steps <= 3
    out = glru.after(solution, change)
    assert out.decided_by(X) == {"newton": 150}
    steps = out.n_steps
    assert out.labels(X[:5]).size == 5
    assert out.n_steps == steps


def test_a_ball_around_the_carried_model_is_as_wide_as_it_must_be():
    """Under a strong penalty the carried model is off by the removed row's share, along that row."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 40)), np.arange(12) % 3
    problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(1e4), scaling="sum")
    change = glru.RemoveRows([4])
    out = glru.after(glru.solve(problem, tol=1e-12), change, candidate="carry", bound="primal")
    model, _ = retrained(change.apply(problem))
    lower, upper = out.score_bounds(X[4:5])
    assert np.all((lower[0] <= model @ X[4]) & (model @ X[4] <= upper[0]))
    assert np.all(upper - lower < 10.0 * np.abs(problem.scores(out.point.coef, 0.0)[4] - model @ X[4]).max())


def test_coefficients_are_off_by_as_much_as_they_may_be():
    """One column and a strong penalty: the old coefficients are off by what the removed row adds."""
    X, y = np.linspace(1.0, 2.0, 12)[:, None], np.arange(12) % 3
    problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(30.0), scaling="sum")
    change = glru.RemoveRows([4])
    out = glru.after(glru.solve(problem, tol=1e-12), change, candidate="carry")
    model, _ = retrained(change.apply(problem))
    lower, upper = out.coef_bounds()
    assert np.all((lower <= model) & (model <= upper))


def test_steps_in_one_metric_count_how_far_it_has_become_from_the_hessian():
    """Far out curvatures fall as scores grow: the metric of the start promises more than the Hessian of the end holds."""
    X, y = np.ones((2000, 1)), np.concatenate([np.zeros(1998, dtype=int), [1, 2]])
    problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(1e-3), scaling="sum")
    _, scores = retrained(problem)
    found = 0
    for distance in (0.2, 0.4, 0.6, 0.8):
        start = scores[0].astype(float) - distance * np.array([2.0, -1.0, -1.0]) / 3.0
        region = ClassEllipsoid.at(problem, Point(start[:, None], np.zeros(3)))
        for _ in range(3):
            region = region.take_step()
            lower, upper = region.queries(problem.matrix[:1], np.array([0]))
            exact = np.concatenate([scores[0], scores[0, 0] - scores[0]])
            found += int(np.isfinite(lower).all())
            assert np.all((lower[0] <= exact) & (exact <= upper[0])), distance
    assert found >= 4


@pytest.mark.parametrize("exponent", [-600, 600])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_an_objective_of_any_size(exponent, fit_intercept):
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 4
    found = []
    for unit in (1.0, 2.0**exponent):
        weight = np.full(40, unit)
        problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(0.3 * unit), fit_intercept, "sum", weight)
        change = glru.RemoveRows([1, 2]) + glru.Reweight([0], [2.0 * unit])
        found.append([glru.after(glru.solve(problem), change, candidate=c).score_bounds(X) for c in ("auto", "carry")])
    for plain, scaled in zip(*found, strict=True):
        assert np.allclose(plain.lower, scaled.lower, rtol=1e-6, atol=1e-6)
        assert np.allclose(plain.upper, scaled.upper, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("ask", "match"),
    [
        (lambda s: glru.after(s, glru.Relabel([0], ["d"])), "labels must be among"),
        (lambda s: glru.after(s, glru.RemoveRows([0]), bound="dual"), "for losses of one score"),
    ],
)
def test_what_does_not_fit_is_refused(ask, match):
    rng = np.random.default_rng(0)
    problem = glru.Problem(rng.normal(size=(12, 2)), ["a", "b", "c"] * 4, glru.Multinomial(), glru.L2(0.1), True)
    with pytest.raises(ValueError, match=match):
        ask(glru.solve(problem))


def test_what_is_for_several_classes_is_refused_of_two():
    problem = glru.Problem(np.eye(4), [0, 1, 0, 1], penalty=glru.L2(0.1))
    out = glru.after(problem, glru.RemoveRows([0]))
    with pytest.raises(ValueError, match="for a multinomial model"):
        out.lead_bounds(np.eye(4))
    hinge = glru.after(problem.derive(loss=glru.SquaredHinge()), glru.RemoveRows([0]))
    with pytest.raises(ValueError, match=r"'probability_bounds' needs probabilities.*SquaredHinge"):
        hinge.probability_bounds(np.eye(4))


def test_probabilities_of_two_classes_are_those_of_the_scores():
    X = np.random.default_rng(3).normal(size=(40, 3))
    out = glru.after(glru.Problem(X, X[:, 0] > 0.2, penalty=glru.L2(0.1)), glru.RemoveRows([0]))
    lower, upper = out.probability_bounds(X)
    for ends, scores in (
        (lower, (-out.score_bounds(X).upper, out.score_bounds(X).lower)),
        (upper, (-out.score_bounds(X).lower, out.score_bounds(X).upper)),
    ):
        assert np.allclose(ends, 1.0 / (1.0 + np.exp(-np.column_stack(scores))), rtol=1e-14, atol=0.0)
    assert np.all(lower <= upper) and np.all(lower.sum(axis=1) <= 1.0) and np.all(upper.sum(axis=1) >= 1.0)
