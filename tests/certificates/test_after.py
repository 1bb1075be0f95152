"""The heart of the library: whatever is asked of ``after``, the retrained model lies within the bounds.

Loss x penalty x change x scaling x intercept x candidate x bound x dense or sparse x converged or not; the retrained
model is known to 40 digits, so there is no tolerance anywhere.
"""

import warnings

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, note, settings
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import glru
from tests.attack.generators import hostile_change, hostile_problem
from tests.cases import COLUMN_PENALTIES, LOSSES, PENALTIES, dense, each, make, uneven
from tests.certificates.truth import answers, assert_holds, assert_meets, retrained, trained
from tests.core import DiagonalMetric

ALL_PENALTIES = {**PENALTIES, **COLUMN_PENALTIES, "l2-strong": glru.L2(30.0), "l2-weak": glru.L2(1e-4)}
KINDS = (
    "remove-rows",
    "add-rows",
    "exchange-rows",
    "remove-columns",
    "add-columns",
    "edit",
    "relabel",
    "reweight",
    "repenalise",
)


def new_targets(problem, count, seed):
    """Targets as the problem's loss wants them."""
    random = np.random.default_rng(seed)
    if problem.loss.several:
        return random.choice(problem.classes, count)
    return random.normal(0.0, 2.0, count) if problem.loss.task == "regression" else random.choice([-1.0, 1.0], count)


def make_change(kind, problem, count, seed):
    """A change of a kind that fits the problem, of ``count`` rows or columns."""
    random = np.random.default_rng(seed)
    n, d = problem.n_rows, problem.n_columns
    rows, columns = random.permutation(n)[: min(count, n - 2)], random.permutation(d)[: min(count, d - 1)]
    match kind:
        case "remove-rows":
            return glru.RemoveRows(rows)
        case "add-rows":
            X = dense(count, d, seed) * (random.random((count, d)) < 0.8)
            weights = None if seed % 2 else random.uniform(0.0, 3.0, count)
            return glru.AddRows(sp.csr_array(X) if seed % 3 else X, new_targets(problem, count, seed), weights)
        case "exchange-rows":
            return make_change("add-rows", problem, count, seed + 1) + glru.RemoveRows(rows)
        case "remove-columns":
            return glru.RemoveColumns(columns)
        case "add-columns":
            Z = dense(n, count, seed) * (random.random((n, count)) < 0.8)
            own = None if problem.penalty.n_columns is None else problem.penalty.select([0])
            if own is not None:
                own = type(own)(
                    *(
                        float(getattr(own, name)[0]) if np.ndim(getattr(own, name)) else getattr(own, name)
                        for name in own.__dataclass_fields__
                    )
                )
            return glru.AddColumns(sp.csr_array(Z) if seed % 3 else Z, own)
        case "edit":
            return glru.EditValues(rows, columns, random.normal(0.0, 1.0, (rows.size, columns.size)))
        case "repenalise":
            old, factors = problem.penalty, random.choice([0.25, 0.9, 1.0, 3.0], d)
            if not old.smooth:
                return glru.Repenalise(old.scale(float(factors[0])))
            return glru.Repenalise(glru.L2(np.broadcast_to(old.quadratic, (d,)) * factors))
        case "relabel":
            return glru.Relabel(rows, new_targets(problem, rows.size, seed))
        case "reweight":
            return glru.Reweight(rows, random.uniform(0.0, 4.0, rows.size) * (random.random(rows.size) < 0.8))
    raise ValueError(kind)


@st.composite
def questions(draw, loss, penalty):
    """A solution of a small problem, a change of it, and the changed problem."""
    wide = penalty.n_columns is None and draw(st.booleans())
    n, d = (6, 9) if wide else (draw(st.sampled_from([8, 14])), 3)
    options = {
        "scaling": draw(st.sampled_from(["mean", "sum"])),
        "fit_intercept": draw(st.booleans()),
        "density": draw(st.sampled_from([1.0, 0.6])),
        "seed": draw(st.integers(0, 10**6)),
    }
    if draw(st.booleans()):
        options["sample_weight"] = uneven(n) + 0.25 * (np.arange(n) % 2)
    problem = make(loss, penalty, n, d, **options)
    solution = trained(problem, draw(st.sampled_from([1e-12, 1e-2])))
    change, changed = None, problem
    for kind in draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3)):
        step = make_change(kind, changed, draw(st.integers(1, 3)), draw(st.integers(0, 10**6)))
        change, changed = step if change is None else change + step, step.apply(changed)
    note(f"{problem!r} {options} {change!r}")
    return solution, change, changed


@each(LOSSES, "loss")
@each(ALL_PENALTIES, "penalty")
def test_the_retrained_model_lies_in_every_bound(loss, penalty):
    """Scores of new and of training rows, coefficients, intercept, dual variables, labels, radius."""

    @settings(max_examples=12, deadline=None, derandomize=True, database=None)
    @given(questions(loss, penalty), st.sampled_from(range(12)))
    def holds(question, pick):
        solution, change, changed = question
        queries = np.vstack([dense(4, changed.n_columns, 1), np.zeros(changed.n_columns)])
        truth = retrained(changed)
        # The last answer intersects all the others, so it fails if any of them does; one more is taken by itself.
        every = list(answers(solution, change))
        for out in (every[pick % len(every)], every[-1]):
            if truth is None:
                assert_meets(out, changed, queries)
            else:
                assert_holds(out, changed, truth, queries)

    holds()


@each(LOSSES, "loss")
@pytest.mark.parametrize("kind", KINDS)
def test_one_change_of_every_kind(loss, kind):
    """So that no kind, candidate or bound depends on luck: both scalings, with and without an intercept."""
    for case in range(4):
        penalty = (PENALTIES["elastic-net"], PENALTIES["l2"])[case % 2]
        scaling, intercept = ("mean", "sum")[case // 2], case in (0, 3)
        problem = make(loss, penalty, 12, 4, seed=case, scaling=scaling, fit_intercept=intercept)
        solution = trained(problem, 1e-12)
        change = make_change(kind, problem, 2, case)
        changed = change.apply(problem)
        truth = retrained(changed)
        assert truth is not None
        for out in answers(solution, change):
            assert_holds(out, changed, truth, dense(5, changed.n_columns, case))


@pytest.mark.parametrize("seed", [70000079, 70000351, 70000385, *range(70000000, 70000020)])
def test_newton_steps_never_widen_an_interval(seed):
    """Also where a step ends around another point, or has a finite gap and no finite interval."""
    random = np.random.default_rng(seed)
    problem = hostile_problem(random)
    change = hostile_change(random, problem)
    if problem.penalty.strong_convexity == 0.0 or isinstance(problem.loss, glru.Hinge):
        pytest.skip("the ball needs strong convexity, a Newton step a curvature")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = glru.solve(problem)
    queries = np.random.default_rng(0).normal(size=(5, change.apply(problem).n_columns))
    carry, newton = (glru.after(solution, change, candidate=name, bound="primal") for name in ("carry", "newton"))
    wide, narrow = (out.score_bounds(queries).width for out in (carry, newton))
    assert np.all(narrow <= wide)
    assert newton.gap <= carry.gap


def open_labels(loss, fit_intercept=True):
    """A solution, and a removal that leaves labels open where only the old model is asked."""
    random = np.random.default_rng(3)
    X = random.normal(size=(60, 4))
    y = X @ random.normal(size=4) + 0.7 * random.normal(size=60) > 0.2
    problem = glru.Problem(X, y, loss=loss, penalty=glru.L2(0.01), fit_intercept=fit_intercept)
    return trained(problem, 1e-6), glru.RemoveRows(range(12))


@pytest.mark.parametrize("fit_intercept", [False, True])
@each({name: loss for name, loss in LOSSES.items() if loss.task == "classification"}, "loss")
def test_every_label_is_decided_by_default(loss, fit_intercept):
    solution, change = open_labels(loss, fit_intercept)
    X, changed = solution.problem.X, change.apply(solution.problem)
    carried = glru.after(solution, change, max_steps=0)
    assert carried.decided_by(X)["undetermined"] > 0
    assert carried.n_steps == 0
    out = glru.after(solution, change)
    counts = out.decided_by(X)
    assert sum(counts.values()) == 60
    assert "undetermined" not in counts
    assert out.n_steps > 0
    truth = retrained(changed)
    assert_holds(out, changed, truth, X)
    assert np.array_equal(out.labels(X), [float(score) > 0.0 for score in truth.scores(X)])
    one, before = glru.after(solution, change, max_steps=1), out.n_steps
    assert_holds(one, changed, truth, X)
    assert one.n_steps <= 1
    for fewer in (carried, one):
        assert np.all(out.score_bounds(X).width <= fewer.score_bounds(X).width)
    assert glru.after(solution.problem, change).decided(X).all()
    # What was trained serves the next question.
    assert out.decided(X[:7]).all()
    assert out.n_steps == before


def test_a_training_ends_where_float64_does():
    """A score of zero: no training decides it, and none is tried twice."""
    solution, change = open_labels(glru.Hinge())
    out = glru.after(solution, change)
    coef, intercept = out.retrain(tol=1e-12).coef, out.retrain(tol=1e-12).intercept
    query = -intercept * coef[None, :] / (coef @ coef)
    assert out.decided_by(query) == {"undetermined": 1}
    steps = out.n_steps
    assert not out.decided(query).any()
    assert out.n_steps == steps


def test_after_within_a_time():
    solution, change = open_labels(glru.Hinge())
    out = glru.after(solution, change, max_seconds=1e-9)
    assert "undetermined" in out.decided_by(solution.problem.X)
    assert out.n_steps <= 1
    with pytest.raises(ValueError, match="max_seconds must be a number of seconds above 0"):
        glru.after(solution, change, max_seconds=0.0)
    with pytest.raises(ValueError, match="max_steps must be a whole number of at least 0"):
        glru.after(solution, change, max_steps=-1)


def test_an_overshooting_newton_step_is_shortened():
    """Nearly separable data: full steps from the old model diverge, where shorter ones decide all labels without a training."""
    random = np.random.default_rng(0)
    X = np.exp(2.0 * random.normal(size=(200, 6)))
    y = X[:, 0] + X[:, 1] > 6.0
    solution = trained(glru.Problem(X, y, penalty=glru.L2(1e-6), fit_intercept=True), 1e-6)
    assert glru.after(solution, glru.RemoveRows(range(40))).decided_by(X) == {"newton": 200}


@pytest.mark.parametrize("model", [LinearSVC(C=1.0, loss="hinge"), LogisticRegression(C=100.0)])
def test_every_label_of_an_estimator_is_decided(model):
    """Of one problem per class, too: a class has to beat all others."""
    X, y = load_iris(return_X_y=True)
    X = X + 0.01 * np.random.default_rng(0).normal(size=X.shape)
    if isinstance(model, LogisticRegression):
        y = y == 1
    change = glru.RemoveRows(range(0, 150, 7))
    out = glru.after(model, change, X=X, y=y)
    assert "undetermined" not in out.decided_by(X)
    assert out.n_steps > 0
    kept = np.delete(np.arange(150), change.rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = clone(model).set_params(tol=1e-10, max_iter=1_000_000).fit(X[kept], y[kept])
    assert np.array_equal(out.labels(X), theirs.predict(X))
    assert "undetermined" in glru.after(model, change, X=X, y=y, max_steps=0).decided_by(X)


def test_large_sparse_data_is_trained_by_products():
    """No factor of the size of the rows: the certificate is that of the penalty's metric, at the price of a training."""
    random = np.random.default_rng(1)
    X = sp.random_array(
        (800, 2500), density=0.01, rng=random, data_sampler=lambda size: random.poisson(2.0, size) + 1.0
    )
    y = X @ random.normal(size=2500) + random.normal(size=800) > 0.0
    problem = glru.Problem(sp.csr_array(X), y, penalty=glru.L2(1e-2), fit_intercept=True)
    solution = glru.solve(problem)
    for change in (glru.RemoveRows(range(10)), glru.RemoveColumns([3])):
        out, changed = glru.after(solution, change), change.apply(problem)
        Q = changed.X if isinstance(change, glru.RemoveColumns) else problem.X
        assert out.decided_by(Q) == {"newton": 800}
        theirs = trained(changed, 1e-13)
        lower, upper = out.score_bounds(Q)
        scores = Q @ theirs.coef + theirs.intercept
        assert np.all(lower <= scores + 1e-7) and np.all(scores - 1e-7 <= upper)
        assert isinstance(out.part.regions[0].metric, DiagonalMetric)


def test_a_training_takes_over_where_newton_steps_cycle_between_kinks():
    random = np.random.default_rng(0)
    X = random.normal(size=(40, 150))
    y = X[:, :5].sum(axis=1) + 0.5 * random.normal(size=40)
    solution = glru.solve(glru.Problem(X, y, glru.Huber(0.01), glru.L2(0.03)), tol=1e-10)
    change = glru.AddRows(1.1 * X[:1], y[:1])
    out = glru.after(solution, change)
    lower, upper = out.score_bounds(X)
    exact = X @ glru.solve(change.apply(solution.problem), tol=1e-13).coef
    assert np.all(upper - lower < 1e-3)
    assert np.all(lower <= exact + 1e-6) and np.all(upper >= exact - 1e-6)
    stepped = glru.after(solution, change, candidate="newton").score_bounds(X)
    assert np.max(stepped.upper - stepped.lower) > 1.0


def test_the_carried_model_is_not_certified_where_newton_steps_suffice(monkeypatch):
    """Its certificate costs as much as the steps, and its regions are wide beside the ellipsoid after these: also for a query without entries."""

    def refuse(*_):
        raise AssertionError("the carried model was certified")

    monkeypatch.setattr("glru.changed.certify", refuse)
    random = np.random.default_rng(3)
    X = (random.random((80, 6)) < 0.3) * 1.0
    y = np.where(X @ random.normal(size=6) + 0.5 * random.normal(size=80) > 0.3, 1, -1)
    solution = glru.solve(glru.Problem(X, y, penalty=glru.L2(0.05), fit_intercept=True))
    bounds = glru.after(solution, glru.RemoveRows([3])).score_bounds(np.vstack([X[:3], np.zeros(6)]))
    exact = glru.solve(solution.problem.without(np.array([3])), tol=1e-13).intercept
    assert bounds.upper[3] - bounds.lower[3] < 1e-9 and abs(bounds.lower[3] - exact) < 1e-6


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_steps_that_remove_rows_of_wide_data_count_those_that_are_left(fit_intercept):
    """The second step's positions are those after the first; the old rows keep their places without a weight."""
    random = np.random.default_rng(0)
    X, new, queries = (random.normal(size=(size, 40)) for size in (20, 3, 5))
    y = np.sign(X[:, 0] + random.normal(size=20))
    problem = glru.Problem(X, y, penalty=glru.L2(0.1), fit_intercept=fit_intercept)
    solution = glru.solve(problem)
    added = glru.AddRows(new, [-1.0, 1.0, 1.0])
    for change in (
        glru.RemoveRows([0, 1]) + glru.RemoveRows([3]),
        glru.RemoveRows([4]) + added + glru.RemoveRows([7, 20]),
        added + glru.RemoveRows([21, 2]) + glru.RemoveRows([20]),
    ):
        exact = glru.solve(change.apply(problem), tol=1e-14)
        lower, upper = glru.after(solution, change).score_bounds(queries)
        scores = queries @ exact.coef + exact.intercept
        assert np.all((lower - 1e-5 <= scores) & (scores <= upper + 1e-5))
        assert np.all(upper - lower < 1e-3)


@pytest.mark.parametrize("loss", [glru.Poisson(), glru.Logistic()], ids=repr)
def test_steps_start_at_zero_where_the_carried_model_is_worse(loss):
    """The carried coefficient of a new column is its correlation over the penalty, with scores of thousands."""
    random = np.random.default_rng(0)
    X, Z, queries = (random.normal(size=size) for size in ((40, 3), (40, 1), (5, 4)))
    y = random.poisson(np.exp(X[:, 0])).astype(float) if loss.link == "log" else np.sign(X[:, 0] + Z[:, 0])
    problem = glru.Problem(X, y, loss=loss, penalty=glru.L2(1e-5))
    lower, upper = glru.after(glru.solve(problem), glru.AddColumns(Z)).score_bounds(queries)
    assert np.all(upper - lower < 1e-4)


@pytest.mark.parametrize("relabels_first", [True, False])
def test_class_weights_go_by_the_labels_and_weights_of_earlier_steps(relabels_first):
    random = np.random.default_rng(0)
    X, y, weight, queries = random.normal(size=(30, 3)), np.arange(30) % 2, np.ones(30), random.normal(size=(3, 3))
    relabel, reweight = glru.Relabel([3], [0]), glru.Reweight([3], [2.0])
    change = relabel + reweight if relabels_first else reweight + relabel
    model = LogisticRegression(class_weight={0: 1.0, 1: 5.0}, solver="newton-cholesky", tol=1e-10)
    bounds = glru.after(model, change, X=X, y=y).score_bounds(queries)
    y[3], weight[3] = 0, 2.0
    scores = clone(model).fit(X, y, sample_weight=weight).decision_function(queries)
    np.testing.assert_allclose(bounds.middle, scores, atol=1e-6)


def test_steps_over_the_rows_keep_their_digits_under_a_weak_penalty():
    """Scores are sums of large products with tiny duals: the step of the duals is not what is left of the forces after the scores' moves."""
    random = np.random.default_rng(1)
    X = np.exp(random.normal(size=(30, 120)) + random.normal(0.0, 2.0, size=120) + 3.0)
    y = (X / X.std(axis=0)) @ random.normal(size=120)
    solution = glru.solve(glru.Problem(X, y, glru.Squared(), glru.L2(2.0**-20)))
    lower, upper = glru.after(solution, glru.RemoveColumns([3])).score_bounds(np.delete(X, 3, axis=1))
    assert np.all(upper - lower < 1e-6 * np.ptp(y))
