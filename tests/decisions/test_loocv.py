"""Leave-one-out: the certified answer is that of retraining, label by label and score by score."""

import contextlib
import copy

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn import metrics
from sklearn.datasets import load_breast_cancer, load_digits

import glru
from tests.cases import LOSSES, PENALTIES, dense, each, make, targets, with_bounds, with_open_rows
from tests.certificates.exact import optimum, outside
from tests.core import ScoreBounds, bound_carried, leave_one_out
from tests.decisions.retraining import assert_inside, assert_proven, derived, held_out, real, standardised

METHODS = ("certified", "glru", "naive", "approx", "approx-glru")


@pytest.fixture(scope="module")
def breast():
    X, y = load_breast_cancer(return_X_y=True)
    solution = glru.solve(glru.Problem(standardised(X), y, penalty=glru.L2(0.01)))
    return solution, *held_out(solution)


@pytest.fixture(scope="module")
def small():
    """A classification of 30 rows with its retrained scores."""
    solution = glru.solve(make(glru.Logistic(), glru.L2(0.02), 30, 4, seed=3))
    return solution, *held_out(solution)


@pytest.fixture(scope="module")
def line():
    """A regression of 30 rows with its retrained scores."""
    solution = glru.solve(make(glru.Squared(), glru.L2(0.02), 30, 4, seed=3))
    return solution, *held_out(solution)


def assert_label_by_label(solution, scores, off):
    certified = glru.loocv(solution)
    assert_proven(certified, scores, off)
    sure = np.abs(scores) > off
    assert sure.all()
    assert np.array_equal(certified.bounds.signs, np.sign(scores))
    naive = glru.loocv(solution, method="naive", tol=1e-12)
    assert np.array_equal(naive.bounds.signs, certified.bounds.signs)
    assert certified.n_errors == naive.n_errors == np.sum(np.sign(scores) != solution.problem.y)
    assert certified.n_trainings == 0
    assert naive.n_trainings == solution.problem.n_rows


def test_breast_cancer(breast):
    assert_label_by_label(*breast)


def test_breast_cancer_scores(breast):
    solution, scores, off = breast
    result = glru.loocv(solution, width=1e-6)
    assert np.all(result.score_upper - result.score_lower <= 1e-6)
    assert_proven(result, scores, off)
    assert result.n_trainings == 0
    assert np.abs(result.scores - scores).max() <= 5e-7 + off.max()


def test_breast_cancer_with_an_intercept():
    X, y = load_breast_cancer(return_X_y=True)
    solution = glru.solve(glru.Problem(standardised(X), y, penalty=glru.L2(1.0), fit_intercept=True, scaling="sum"))
    result = glru.loocv(solution, width=1e-6)
    rows = np.arange(0, y.size, 4)
    scores, off = held_out(solution, rows)
    assert_inside(scores, off, result.score_lower[rows], result.score_upper[rows])
    assert np.all(result.score_upper - result.score_lower <= 1e-6)
    labels = glru.loocv(solution)
    assert np.array_equal(labels.bounds.signs[rows], np.sign(scores))
    assert np.array_equal(labels.bounds.signs, result.bounds.signs)
    assert labels.n_trainings == result.n_trainings == 0


@pytest.mark.parametrize("name", ["heart", "sonar", "ionosphere"])
def test_real_data(name):
    X, y = real(name)
    solution = glru.solve(glru.Problem(X, y, penalty=glru.L2(2.0**-5)))
    assert_label_by_label(solution, *held_out(solution))


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_digits_pair(fit_intercept):
    X, y = load_digits(return_X_y=True)
    rows = np.flatnonzero((y == 3) | (y == 8))[:80]
    problem = glru.Problem(standardised(X[rows]), y[rows], penalty=glru.L2(1e-3), fit_intercept=fit_intercept)
    solution = glru.solve(problem)
    assert_label_by_label(solution, *held_out(solution))


def test_arcene_needs_no_training():
    X, y = real("arcene")
    solution = glru.solve(glru.Problem(X, y, penalty=glru.L2(2.0**-5)))
    result = glru.loocv(solution)
    assert result.n_trainings == 0
    assert result.errors_lower == result.errors_upper
    # Algorithm 2 trains what the carried bound leaves open: 92 in the paper's table.
    assert abs(glru.loocv(solution, method="approx-glru").decided_by["approx"] - 92) <= 4


def test_algorithm_2_trains_what_the_carried_bound_leaves_open(breast):
    solution, scores, off = breast
    result = glru.loocv(solution, method="glru")
    assert_proven(result, scores, off)
    assert np.array_equal(result.bounds.signs, np.sign(scores))
    open_rows = glru.loocv(solution, method="approx-glru").decided_by["approx"]
    assert result.n_trainings == result.decided_by["training"] == open_rows


# Adversarial data -----------------------------------------------------------------------------------------------------


def _labels(n):
    return np.where(np.arange(n) % 2 == 0, 1.0, -1.0)


def _duplicates():
    X = np.repeat(dense(5, 3, 1), 2, axis=0)
    return X, np.array([1, 1, -1, -1, 1, -1, 1, 1, -1, -1.0])


def _zero_rows():
    X = dense(8, 3, 2)
    X[[0, 5]] = 0.0
    return X, _labels(8)


def _constant_columns():
    X = dense(8, 4, 3)
    X[:, 1], X[:, 2] = 1.0, 0.0
    return X, _labels(8)


def _separable():
    X = dense(8, 2, 4)
    return X + 5.0 * _labels(8)[:, None], _labels(8)


def _lonely_column():
    """Each row is alone in one of its columns."""
    return np.hstack([np.eye(5), dense(5, 2, 5)]), _labels(5)


def _badly_scaled():
    return dense(8, 3, 6) * np.array([1e-4, 1.0, 1e4]), _labels(8)


def _outlier():
    X = dense(8, 2, 7)
    X[3] = 1e3
    return X, _labels(8)


ADVERSARIAL = {
    "duplicates": _duplicates,
    "opposites": lambda: (np.repeat(dense(4, 2, 1), 2, axis=0), _labels(8)),
    "separable": _separable,
    "zero-rows": _zero_rows,
    "constant-columns": _constant_columns,
    "two-rows": lambda: (dense(2, 2, 8), _labels(2)),
    "one-column": lambda: (dense(9, 1, 9), _labels(9)),
    "wide": lambda: (dense(5, 9, 10), _labels(5)),
    "lonely-columns": _lonely_column,
    "badly-scaled": _badly_scaled,
    "outlier": _outlier,
    "sparse": lambda: (sp.csr_array(np.where(dense(9, 4, 11) > 0.2, dense(9, 4, 12), 0.0)), _labels(9)),
}

LAMS = [1e-8, 1e-2, 1e8]


@pytest.mark.parametrize("lam", LAMS)
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_adversarial_data(name, lam):
    X, y = ADVERSARIAL[name]()
    for options in ({"scaling": "mean"}, {"scaling": "sum", "fit_intercept": True}):
        if name == "two-rows" and "fit_intercept" in options:
            continue
        solution = glru.solve(glru.Problem(X, y, penalty=glru.L2(lam), **options), tol=1e-8)
        scores, off = held_out(solution)
        naive = glru.loocv(solution, method="naive", tol=1e-12)
        for width in (None, 1e-6):
            result = glru.loocv(solution, width=width)
            assert_proven(result, scores, off)
            clear = (result.bounds.signs != 0) & (np.abs(scores) > off)
            assert np.array_equal(naive.bounds.signs[clear], result.bounds.signs[clear])
        assert result.certified


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("scaling", ["mean", "sum"])
@pytest.mark.parametrize("name", ["duplicates", "zero-rows", "constant-columns", "one-column", "separable", "wide"])
def test_against_60_digits(name, scaling, fit_intercept):
    """No tolerance here: the exact held-out score lies in the interval, whatever stage gave it."""
    X, y = ADVERSARIAL[name]()
    weight = 0.5 + np.arange(y.size) % 3
    for loss, lam in ((glru.Logistic(), 0.01), (glru.Squared(), 0.5)):
        problem = glru.Problem(
            X, y, loss=loss, penalty=glru.L2(lam), scaling=scaling, fit_intercept=fit_intercept, sample_weight=weight
        )
        solution = glru.solve(problem)
        results = [glru.loocv(solution, **options) for options in ({}, {"width": 1e-9})]
        for row in range(0, y.size, 2):
            left = weight.copy()
            left[row] = 0.0
            best = optimum(derived(problem, left), solution.coef, solution.intercept, ideal_weights=True)
            assert best is not None
            exact = best.scores(problem.X[row : row + 1])
            for result in results:
                assert not outside(exact, result.score_lower[row], result.score_upper[row])


@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Poisson(), glru.Gamma(), glru.Squared()], ids=repr)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_many_different_weights_share_one_base(loss, fit_intercept):
    """Under the mean of the losses every removal multiplies the other weights by a factor of its own: exposures, as of insurance policies."""
    rng = np.random.default_rng(7)
    X, weight = rng.normal(size=(60, 3)), rng.uniform(0.2, 5.0, 60)
    y = {"Logistic": X[:, 0] > 0.3, "Squared": X[:, 0] + rng.normal(size=60)}.get(
        type(loss).__name__, rng.poisson(np.exp(0.4 * X[:, 0])) + (0.5 if isinstance(loss, glru.Gamma) else 0.0)
    )
    problem = glru.Problem(X, y, loss, glru.L2(0.05), fit_intercept=fit_intercept, sample_weight=weight)
    solution = glru.solve(problem, tol=1e-3)
    result = glru.loocv(solution, width=1e-6)
    assert set(result.decided_by) <= {"carry", "local", "newton"} and result.n_trainings == 0
    assert_inside(*held_out(solution), result.score_lower, result.score_upper)


def test_weights_of_zero_and_others():
    X, y = dense(20, 3, 1), targets(dense(20, 3, 1), glru.Logistic(), 1)
    for weight in (np.arange(20) % 3 * 1.0, np.linspace(0.1, 3.0, 20), np.where(np.arange(20) < 10, 0.0, 1.0)):
        for options in ({"scaling": "mean"}, {"scaling": "sum", "fit_intercept": True}):
            problem = glru.Problem(X, y, penalty=glru.L2(0.05), sample_weight=weight, **options)
            solution = glru.solve(problem)
            scores, off = held_out(solution)
            result = glru.loocv(solution, width=1e-6)
            assert_proven(result, scores, off)
            assert np.all(result.score_upper - result.score_lower <= 1e-6)
            unused = weight == 0.0
            assert np.all(np.abs(result.scores - solution.scores)[unused] <= 1e-3 * (1.0 + np.abs(scores[unused])))


def test_weight_two_is_not_two_rows():
    """Leaving a row of weight 2 out removes both of its copies."""
    X, y = dense(12, 3, 1), targets(dense(12, 3, 1), glru.Logistic(), 1)
    weight = np.ones(12)
    weight[4] = 2.0
    once = glru.loocv(glru.Problem(X, y, penalty=glru.L2(0.3), scaling="sum", sample_weight=weight), width=1e-7)
    left = glru.Problem(np.delete(X, 4, 0), np.delete(y, 4), penalty=glru.L2(0.3), scaling="sum")
    assert np.isclose(once.scores[4], (X @ glru.solve(left, tol=1e-20).coef)[4], atol=1e-7)


def test_a_row_of_zeros_is_a_tie():
    X, y = _zero_rows()
    result = glru.loocv(glru.Problem(X, y, penalty=glru.L2(0.1)))
    assert np.array_equal(np.flatnonzero(result.bounds.signs == 0), [0, 5])
    assert np.array_equal(np.flatnonzero(result.bounds.ties), [0, 5])
    assert result.n_errors == np.sum(np.sign(result.scores) != y)
    assert result.bounds.decided.all() and "undetermined" not in result.decided_by and result.n_trainings == 0
    assert "2 rows: their scores are exactly 0" in repr(result).splitlines()[4]
    frame = result.to_frame()
    assert list(frame["correct"][[0, 5]]) == [False, False]


def test_open_labels_are_counted_at_one_end_only(small):
    vague = with_open_rows(glru.loocv(small[0]), [0, 5])
    assert np.array_equal(np.flatnonzero(vague.bounds.signs == 0), [0, 5])
    assert vague.errors_upper == vague.errors_lower + 2
    with pytest.raises(ValueError, match=r"2 held-out labels are undetermined.*errors_lower"):
        _ = vague.n_errors
    assert "to" in repr(vague).splitlines()[1]
    frame = vague.to_frame()
    assert list(frame.index[frame["correct"].isna()]) == [0, 5]


# All losses and penalties ---------------------------------------------------------------------------------------------

SHAPES = {
    "tall": {"n": 14, "d": 3},
    "wide-sum": {"n": 8, "d": 12, "scaling": "sum"},
    "sparse-intercept": {"n": 16, "d": 3, "density": 0.5, "fit_intercept": True},
    "weighted": {"n": 14, "d": 3, "sample_weight": np.arange(14) % 4 * 0.5},
}

COMBINATIONS = {
    f"{loss}-{penalty}-{shape}": (LOSSES[loss], PENALTIES[penalty], SHAPES[shape])
    for loss in LOSSES
    for penalty in PENALTIES
    for shape in SHAPES
    # The hinge and the L1 penalty are slow to train, and little is proven of them.
    if shape in ("tall", "sparse-intercept") or (loss != "hinge" and penalty != "l1")
}


@pytest.mark.parametrize(("loss", "penalty", "shape"), COMBINATIONS.values(), ids=COMBINATIONS.keys())
def test_every_loss_and_penalty(loss, penalty, shape):
    smooth = penalty.strong_convexity > 0.0 and np.isfinite(loss.smoothness)
    n = shape["n"] if smooth else 4
    weight = shape.get("sample_weight")
    problem = make(
        loss, penalty, seed=5, **shape | {"n": n, "sample_weight": np.ones(n) if weight is None else weight[:n]}
    )
    solution = glru.solve(problem)
    scores, off = held_out(solution)
    result = glru.loocv(solution, width=1e-5 if loss.task == "regression" else None)
    assert_proven(result, scores, off)
    if smooth:
        if loss.task == "regression":
            assert np.all(result.score_upper - result.score_lower <= 1e-5)
        else:
            assert np.array_equal(result.bounds.signs, np.sign(scores))
        assert set(result.decided_by) <= {"carry", "local", "newton", "refine", "training"}


@pytest.mark.parametrize("loss", ["logistic", "squared-hinge", "squared", "huber"])
@pytest.mark.parametrize("options", [{}, {"fit_intercept": True, "scaling": "sum"}], ids=["plain", "intercept-sum"])
def test_scores_to_a_width(loss, options):
    solution = glru.solve(make(LOSSES[loss], glru.ElasticNet(0.05, 0.01), 15, 5, seed=2, **options))
    scores, off = held_out(solution)
    result = glru.loocv(solution, width=1e-6)
    assert np.all(result.score_upper - result.score_lower <= 1e-6)
    assert_proven(result, scores, off)


@pytest.mark.parametrize("shape", [{"n": 20, "d": 4}, {"n": 8, "d": 3, "fit_intercept": True}, {"n": 8, "d": 12}])
@pytest.mark.parametrize("loss", ["logistic", "squared", "smoothed-hinge"])
def test_unconverged_solutions(loss, shape):
    problem = make(LOSSES[loss], glru.L2(0.02), seed=4, **shape)
    scores, off = held_out(glru.solve(problem))
    rough = glru.solve(problem, tol=1e-2)
    barely = glru.solve(problem, tol=1e-12, until=lambda state: state.n_iter >= 1)
    nothing = glru.solve(problem, tol=0.0, until=lambda state: True)
    assert nothing.relative_gap > 1e-2
    for bound in ("auto", "primal", "dual", "local")[:: 3 if loss in ("huber", "smoothed-hinge") else 1]:
        assert_proven(glru.loocv(rough, method="certified", bound=bound), scores, off)
        assert_proven(glru.loocv(barely, method="certified", bound=bound), scores, off)
    if problem.n_rows < 20:
        assert_proven(glru.loocv(rough, method="glru"), scores, off)
    assert_proven(glru.loocv(nothing), scores, off)


@pytest.mark.parametrize("bound", ["auto", "primal", "dual", "local"])
@pytest.mark.parametrize("method", ["certified", "glru"])
def test_bounds(small, line, bound, method):
    for solution, scores, off in (small, line):
        result = glru.loocv(solution, method=method, bound=bound)
        assert_proven(result, scores, off)
        assert "undetermined" not in result.decided_by
        if result.labels is not None:
            assert np.array_equal(result.bounds.signs, np.sign(scores))


# Methods --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", ["primal", "dual"])
def test_the_carried_stage_uses_the_bound_asked_for(small, bound):
    result = glru.loocv(small[0], method="approx-glru", bound=bound)
    lower, upper = bound_carried(small[0], bound)
    first = result.stages == "carry"
    assert np.array_equal(first, (lower > 0.0) | (upper < 0.0))
    assert np.array_equal(result.score_lower[first], lower[first])
    assert np.array_equal(result.score_upper[first], upper[first])


@pytest.mark.parametrize("method", METHODS)
def test_methods(small, line, method):
    solution, scores, off = small
    result = glru.loocv(solution, method=method, tol=1e-12)
    assert result.method == method
    assert result.certified == (method in ("certified", "glru"))
    assert sum(result.decided_by.values()) == 30
    assert np.array_equal(result.bounds.signs, np.sign(scores))
    assert result.n_trainings == {"naive": 30, "glru": result.decided_by.get("training", 0)}.get(method, 0)
    if method in ("naive", "approx"):
        assert np.array_equal(result.score_lower, result.score_upper)
    if method == "naive":
        assert np.abs(result.scores - scores).max() <= 1e-4
    solution, scores, off = line
    # One Newton step of a squared loss is the retrained model.
    result = glru.loocv(solution, method=method, tol=1e-14)
    assert result.labels is None
    atol = 1e-8 if method == "approx" else 1e-5
    assert np.abs(result.scores - scores).max() <= atol + off.max()


def test_approximate_is_one_newton_step_without_the_row(small):
    solution, _, _ = small
    problem = solution.problem
    result = glru.loocv(solution, method="approx")
    for row in range(problem.n_rows):
        weights = np.delete(np.ones(30), row) / 29.0
        X, y, z = np.delete(problem.X, row, 0), np.delete(problem.y, row), np.delete(solution.scores, row)
        miss = expit(-y * z)
        hessian = X.T @ ((weights * miss * (1.0 - miss))[:, None] * X) + 0.02 * np.eye(4)
        gradient = X.T @ (weights * -y * miss) + 0.02 * solution.coef
        w = solution.coef - np.linalg.solve(hessian, gradient)
        assert np.isclose(result.scores[row], problem.X[row] @ w, rtol=1e-9, atol=1e-10)


def test_a_problem_is_trained_first(small):
    solution, _, _ = small
    first, second = glru.loocv(solution.problem), glru.loocv(solution)
    assert np.array_equal(first.bounds.signs, second.bounds.signs)
    assert first.problem is solution.problem


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("single", [-1.0, 1.0])
def test_a_class_of_one_row_with_an_intercept(method, single):
    y = np.full(8, -single)
    y[3] = single
    problem = glru.Problem(dense(8, 2), y, fit_intercept=True)
    with pytest.raises(ValueError, match=rf"the class {single} is gone.*fit_intercept=False"):
        glru.loocv(problem, method=method)


def test_a_class_of_one_weighty_row_with_an_intercept():
    y = np.array([1, 1, -1, -1, -1, -1.0])
    problem = glru.Problem(dense(6, 2), y, fit_intercept=True, sample_weight=[1, 0, 1, 1, 1, 1])
    with pytest.raises(ValueError, match="each class needs at least two rows of weight above 0"):
        glru.loocv(problem)


def test_a_class_of_one_row_without_an_intercept():
    y = np.full(8, -1.0)
    y[3] = 1.0
    solution = glru.solve(glru.Problem(dense(8, 2), y, penalty=glru.L2(0.1)))
    scores, off = held_out(solution)
    result = glru.loocv(solution, width=1e-6)
    assert_proven(result, scores, off)
    assert np.all(result.score_upper - result.score_lower <= 1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "exact"}, "method must be 'certified', 'glru'.*'exact'"),
        ({"bound": "ball"}, "bound must be .*'ball'"),
        ({"width": 0.0}, "width must be a number above 0, 'labels' or None; got 0"),
        ({"width": -1.0}, "width must be a number above 0"),
        ({"width": np.nan}, "width must be a number above 0"),
    ],
)
def test_options_that_make_no_sense(small, options, message):
    with pytest.raises(ValueError, match=message):
        glru.loocv(small[0], **options)


def test_other_errors(line):
    with pytest.raises(TypeError, match=r"expected a glru.Problem; got ndarray"):
        glru.loocv(np.eye(3))
    with pytest.raises(ValueError, match="at least two rows of weight above 0"):
        glru.loocv(glru.Problem(np.eye(3), [1, -1, 1], sample_weight=[1, 0, 0]))
    with pytest.raises(ValueError, match="at least two rows"):
        glru.loocv(glru.Problem(np.ones((1, 1)), [1.0], loss=glru.Squared()))
    for method in ("approx", "approx-glru"):
        with pytest.raises(ValueError, match="smooth loss; the hinge"):
            glru.loocv(make(glru.Hinge(), glru.L2(1.0), 6, 2), method=method)
    result = glru.loocv(line[0])
    for name in ("n_errors", "errors_lower", "errors_upper"):
        with pytest.raises(ValueError, match="a regression has no error count"):
            getattr(result, name)


# Long runs ------------------------------------------------------------------------------------------------------------

RUNS = {
    "tall": {"n": 40, "d": 3},
    "tall-intercept": {"n": 20, "d": 3, "fit_intercept": True},
    "wide": {"n": 8, "d": 15},
    "weighted": {"n": 40, "d": 3, "sample_weight": 1.0 + np.arange(40) % 3},
}


@each(RUNS, "shape")
@pytest.mark.parametrize("loss", ["logistic", "squared-hinge"])
def test_chunked(loss, shape):
    solution = glru.solve(make(LOSSES[loss], glru.L2(0.01), seed=6, **shape))
    for width in (None, "labels", 1e-6):
        whole = glru.loocv(solution, width=width)
        # In batches of one row a step costs about as much as training the row, and may be compared with that.
        for size in (2, 7):
            parts = glru.loocv(solution, width=width, max_memory=8 * 24 * shape["n"] * size)
            assert np.array_equal(parts.bounds.signs, whole.bounds.signs)
            assert parts.decided_by == whole.decided_by
            if width is None:
                continue  # narrowed with what the labels have spared, which is less in small batches
            assert np.allclose(parts.score_lower, whole.score_lower, rtol=1e-9, atol=1e-9)
            assert np.allclose(parts.score_upper, whole.score_upper, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", ["certified", "glru", "naive"])
def test_progress(small, method):
    calls = []
    result = glru.loocv(small[0], method=method, progress=lambda *call: calls.append(call))
    stages, done, total = zip(*calls, strict=True)
    assert set(total) == {30}
    assert list(done) == sorted(done)
    assert done[-1] == 30
    assert set(result.decided_by) <= set(stages)
    assert set(result.seconds) == set(stages)


def test_progress_on_a_terminal_that_is_none(small, capsys):
    glru.loocv(small[0], progress=True)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [RUNS["tall-intercept"], RUNS["wide"]], ids=["tall", "wide"])
def test_interruption(method, shape):
    solution = glru.solve(make(glru.Logistic(), glru.L2(0.01), seed=6, **shape))
    problem = solution.problem
    names = ("coef", "dual", "scores")
    before = copy.deepcopy([getattr(solution, name) for name in names] + [problem.X, problem.weights, solution.gap])
    expected = glru.loocv(solution, method=method)
    for last in (1, 3):
        calls = 0

        def stop(stage, done, total, last=last):
            nonlocal calls
            calls += 1
            if calls == last:
                raise KeyboardInterrupt

        if method.startswith("approx"):
            with contextlib.suppress(KeyboardInterrupt):
                glru.loocv(solution, method=method, progress=stop)
        elif calls_of(solution, method) >= last:
            with pytest.raises(KeyboardInterrupt):
                glru.loocv(solution, method=method, progress=stop)
        after = [getattr(solution, name) for name in names] + [problem.X, problem.weights, solution.gap]
        assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
        again = glru.loocv(solution, method=method)
        assert np.array_equal(again.score_lower, expected.score_lower)
        assert np.array_equal(again.score_upper, expected.score_upper)


def calls_of(solution, method):
    """How often a run reports its progress."""
    calls = []
    glru.loocv(solution, method=method, progress=lambda *call: calls.append(call))
    return len(calls)


# Results --------------------------------------------------------------------------------------------------------------


def test_repr(small, line):
    lines = repr(glru.loocv(small[0])).splitlines()
    assert lines[0] == "LOOCVResult(certified, 30 rows)"
    assert lines[1].split() == ["errors", str(glru.loocv(small[0]).n_errors)]
    assert [name.split()[0] for name in lines[2:4]] == ["accuracy", "log"]
    assert lines[4].startswith("  decided by   local ")
    assert lines[5].split() == ["trainings", "0", "of", "30"]
    assert [line.split()[0] for line in lines[6:]] == ["widths", "seconds"]
    regression = glru.loocv(line[0])
    assert "errors" not in repr(regression) and repr(regression).splitlines()[1].startswith("  squared error ")
    assert regression._repr_html_().count("<tr>") == len(repr(regression).splitlines()) - 1


def test_to_frame(small, line):
    result = glru.loocv(small[0])
    frame = result.to_frame()
    assert list(frame.columns) == ["y", "label", "correct", "score_lower", "score_upper", "decided_by"]
    assert np.array_equal(frame["y"], small[0].problem.y)
    assert np.array_equal(frame["label"], result.labels)
    assert (frame["correct"] == False).sum() == result.n_errors  # noqa: E712
    assert np.array_equal(frame["score_lower"], result.score_lower)
    assert frame["decided_by"].value_counts().to_dict() == result.decided_by
    assert list(glru.loocv(line[0]).to_frame().columns) == ["y", "score_lower", "score_upper", "decided_by"]


def test_results_are_read_only(small):
    result = glru.loocv(small[0])
    for array in (result.score_lower, result.score_upper, result.scores):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0


EXACT_METRICS = {
    "log_loss": lambda y, z: metrics.log_loss(y, expit(z), labels=[-1, 1]),
    "accuracy": lambda y, z: metrics.accuracy_score(y, np.sign(z)),
    "brier": lambda y, z: metrics.brier_score_loss(y, expit(z), pos_label=1),
    "roc_auc": metrics.roc_auc_score,
    "squared_error": metrics.mean_squared_error,
    "absolute_error": metrics.mean_absolute_error,
    "r2": metrics.r2_score,
}


@pytest.mark.parametrize("name", EXACT_METRICS)
@pytest.mark.parametrize("width", [None, 1e-6, 3.0])
def test_metric_bounds(small, line, name, width):
    solution, scores, _ = line if name in ("squared_error", "absolute_error", "r2") else small
    y = solution.problem.y
    result = glru.loocv(solution, width=width)
    low, high = result.metric_bounds(name)
    exact = EXACT_METRICS[name](y, scores)
    assert low - 1e-9 <= exact <= high + 1e-9
    # The ends are reached: models at the ends of the intervals are worst and best.
    lower, upper = result.score_lower, result.score_upper
    if name in ("squared_error", "absolute_error", "r2"):
        ends = [np.where(np.abs(lower - y) > np.abs(upper - y), lower, upper), np.clip(y, lower, upper)]
    else:
        ends = [np.where(y > 0, lower, upper), np.where(y > 0, upper, lower)]
    values = sorted(EXACT_METRICS[name](y, z) for z in ends)
    assert np.allclose([low, high], values, rtol=1e-9, atol=1e-9)
    if width == 1e-6:
        assert high - low <= (1e-4 if name != "roc_auc" else 0.01)


@pytest.mark.parametrize("n", [7, 49, 50])
def test_metrics_of_known_counts_are_exact(n):
    """All labels and all pairs are decided: accuracy and AUC are quotients of integers, without a trace of slack."""
    X = dense(n, 2, 0)
    y = np.where(X[:, 0] + 0.3 * X[:, 1] > 0.1, 1.0, -1.0)
    result = glru.loocv(glru.Problem(X, y, penalty=glru.L2(1e-3)), width=1e-9)
    right = n - result.n_errors
    assert result.metric_bounds("accuracy") == (right / n, right / n)
    pairs = result.scores[y > 0][:, None] - result.scores[y < 0][None, :]
    assert np.abs(pairs).min() > 1e-8
    auc = int(np.sum(pairs > 0.0)) / pairs.size
    assert result.metric_bounds("roc_auc") == (auc, auc)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_metrics_stay_in_their_range(small, line, sign):
    """All right and all wrong: no AUC below 0, no accuracy, Brier score or R2 above 1, no negative mean."""
    result = glru.loocv(small[0])
    ends = 50.0 * sign * small[0].problem.y
    sure = with_bounds(result, ends - 1e-9, ends + 1e-9)
    share = 1.0 if sign > 0.0 else 0.0
    assert sure.metric_bounds("accuracy") == sure.metric_bounds("roc_auc") == (share, share)
    for low, high in (sure.metric_bounds("brier"), sure.metric_bounds("log_loss")):
        assert 0.0 <= low <= high
    assert sure.metric_bounds("brier")[1] <= 1.0
    y = line[0].problem.y
    exact = with_bounds(glru.loocv(line[0]), y, y)
    assert exact.metric_bounds("r2")[1] == 1.0
    for name in ("squared_error", "absolute_error"):
        low, high = exact.metric_bounds(name)
        assert low == 0.0 <= high <= 1e-100


def test_small_means_keep_their_digits(line):
    """Slack is relative to the metric, not to 1."""
    y = line[0].problem.y
    near = with_bounds(glru.loocv(line[0]), y + 1e-9, y + 1e-9)
    error = np.mean((near.score_lower - y) ** 2)
    low, high = near.metric_bounds("squared_error")
    assert low <= error <= high and high - low <= 1e-12 * error


@pytest.mark.parametrize("loss", [glru.Hinge(), glru.SquaredHinge(), glru.SmoothedHinge()], ids=str)
def test_metrics_of_probabilities_need_them(loss):
    result = glru.loocv(make(loss, glru.L2(0.1), 20, 2))
    for name in ("log_loss", "brier"):
        with pytest.raises(
            ValueError, match=rf"'{name}' needs probabilities.*{type(loss).__name__}.*use glru.Logistic"
        ):
            result.metric_bounds(name)
    assert result.metric_bounds("accuracy")[1] <= 1.0
    with pytest.raises(ValueError, match="'log_loss' needs probabilities"):
        glru.loocv_path(result.problem, [1.0, 0.1], criterion="log_loss")


def test_metric_bounds_of_what_is_unknown():
    problem = make(glru.Logistic(), glru.L1(0.02), 10, 3)
    result = glru.loocv(problem)
    assert result.metric_bounds("log_loss")[1] == np.inf or "undetermined" not in result.decided_by
    low, high = result.metric_bounds("accuracy")
    assert low <= 1.0 - result.errors_upper / 10 + 1e-9
    assert high >= 1.0 - result.errors_lower / 10 - 1e-9
    assert 0.0 - 1e-9 <= low <= high <= 1.0 + 1e-9
    low, high = result.metric_bounds("roc_auc")
    assert -1e-9 <= low <= high <= 1.0 + 1e-9


def test_a_bound_at_the_threshold_proves_an_error_but_no_label(small):
    result = glru.loocv(small[0])
    ends = np.where(small[0].problem.y > 0.0, 0.0, 1.0)
    touching = with_bounds(result, ends - 1.0, ends)
    assert not touching.bounds.signs.any()
    assert touching.metric_bounds("accuracy") == (0.0, 0.0) and touching.n_errors == ends.size


def test_metric_errors(small, line):
    with pytest.raises(
        ValueError,
        match=r"metric must be one of log_loss, brier, roc_auc, accuracy, balanced_accuracy, macro_f1 .*'squared_error'",
    ):
        glru.loocv(small[0]).metric_bounds("squared_error")
    with pytest.raises(ValueError, match=r"metric must be one of squared_error, absolute_error, r2 .*'accuracy'"):
        glru.loocv(line[0]).metric_bounds("accuracy")
    flat = glru.loocv(glru.Problem(dense(5, 2), np.ones(5), loss=glru.Squared()))
    with pytest.raises(ValueError, match="r2 needs targets that differ"):
        flat.metric_bounds("r2")


@pytest.mark.parametrize("shape", [(80, 5), (40, 90)], ids=["tall", "wide"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_metrics_of_a_default_call_have_four_digits(shape, fit_intercept):
    """The default narrows what labels alone leave wide; decisions and trainings are those of the labels, whose stages may be cheaper."""
    problem = make(glru.Logistic(), glru.L2(0.02), *shape, seed=8, fit_intercept=fit_intercept)
    solution = glru.solve(problem)
    result, labels = glru.loocv(solution), glru.loocv(solution, width="labels")
    low, high = result.metric_bounds("log_loss")
    assert high - low <= 1e-4 * low
    assert np.mean(result.bounds.width) <= result.aim < np.mean(labels.bounds.width) and labels.aim is None
    assert result.n_trainings == labels.n_trainings == 0
    assert {"undetermined", "wide"}.isdisjoint(result.decided_by | labels.decided_by)
    assert np.array_equal(result.labels, labels.labels)
    assert np.all(result.score_lower >= labels.score_lower) and np.all(result.score_upper <= labels.score_upper)
    assert_proven(result, *held_out(solution))


def test_rows_without_entries_are_ties():
    """Without an intercept their scores are exactly zero under every model; those of tiny rows, whose squares underflow, are not."""
    random = np.random.default_rng(3)
    X = random.normal(size=(60, 4))
    y = np.where(X[:, 0] + random.logistic(size=60) > 0.0, 1, -1)
    X[::3], X[1] = 0.0, 1e-200
    result = glru.loocv(glru.Problem(X, y, penalty=glru.L2(0.1)), width="labels")
    assert np.all(result.score_lower[::3] == 0.0) and np.all(result.score_upper[::3] == 0.0)
    assert result.score_lower[1] < result.score_upper[1]
    assert result.n_trainings == 0 and result.decided_by["local"] >= 20


def test_narrowing_ends_where_it_would_cost_too_much(monkeypatch):
    """A default call of many rows proves its labels and leaves the intervals as they are if narrowing them is too expensive."""
    solution = glru.solve(make(glru.Logistic(), glru.L2(0.02), 80, 5, seed=8))
    monkeypatch.setattr("glru.removals.single.NARROWING", 0.0)
    monkeypatch.setattr("glru.removals.single.NARROWING_TIME", 0.0)
    monkeypatch.setattr("glru.removals.single.FEW_ENTRIES", 0)
    result = glru.loocv(solution)
    assert np.all(result.decided) and np.mean(result.bounds.width) > result.aim
    assert "ask for a width" in repr(result)
    assert_proven(result, *held_out(solution))


def test_intervals_that_stay_wide_are_said_to(small):
    """The default trains no more rows than the labels need; losses with curvature are narrow then, and of others the result says what is left."""
    narrow, problem = (make(loss, glru.L2(0.02), 60, 5, seed=3) for loss in (glru.SquaredHinge(), glru.Hinge()))
    problem = problem.derive(fit_intercept=True)
    found = glru.loocv(narrow)
    assert found.bounds.width.mean() <= found.aim < glru.loocv(narrow, width="labels").bounds.width.mean()
    result, labels = leave_one_out(problem, aim=1e-6), glru.loocv(problem, width="labels")
    assert result.n_trainings == labels.n_trainings
    assert f"not {result.aim:.0e} on average, ask for a width" in repr(result) and "on average" not in repr(labels)
    for width, message in (("label", "'labels' or None; got 'label'"), ("labels", "a regression has no labels")):
        with pytest.raises(ValueError, match=message):
            glru.loocv(make(glru.Squared(), glru.L2(0.1), 20, 3), width=width)


def test_r2_in_every_unit():
    """A share of squares does not depend on the unit of the targets, however their squares overflow or underflow."""
    random = np.random.default_rng(4)
    y = random.normal(size=30)
    scores = y + 0.3 * random.normal(size=30)
    width = 1e-3 * np.abs(random.normal(size=30))
    expected = ScoreBounds(scores - width, scores + width).metric("r2", glru.Squared(), y, False)
    truth = 1.0 - np.sum((y - scores) ** 2) / np.sum((y - y.mean()) ** 2)
    assert expected[0] < truth < expected[1] < expected[0] + 0.1
    for unit in (2.0**600, 2.0**-300, 2.0**-530, 2.0**-600):
        bounds = ScoreBounds((scores - width) * unit, (scores + width) * unit)
        np.testing.assert_allclose(bounds.metric("r2", glru.Squared(), y * unit, False), expected, rtol=1e-12)


def test_columns_far_from_zero_cost_no_accuracy():
    """Means a million times the spread: without exact shifts the intervals are thousands of times as wide."""
    random = np.random.default_rng(1)
    spread = random.normal(size=(60, 5))
    y = np.where(spread @ [2.0, -1.0, 0.5, 0.0, 1.0] + random.logistic(size=60) > 0.0, 1, -1)
    penalty = glru.L2([1e-4, 1e-4, 1e-9, 1e-4, 1e-4])
    X = spread * [1.0, 1.0, 1e-3, 1.0, 1.0] + [1e6, -3e5, 1e3, 0.0, 2e6]
    result = glru.loocv(glru.Problem(X, y, penalty=penalty, fit_intercept=True), width=1e-6)
    assert result.n_trainings == 0
    assert np.median(result.score_upper - result.score_lower) < 1e-6
    assert result.problem.X is not None
    np.testing.assert_array_equal(result.problem.X, X)
    solution = glru.solve(result.problem, tol=1e-12)
    assert_inside(*held_out(solution, range(0, 60, 7)), result.score_lower[::7], result.score_upper[::7])


def test_rows_that_move_far_are_not_trained():
    """Heavy tails and nearly separated classes: full steps overshoot and would leave most rows to be refined one by one."""
    random = np.random.default_rng(5)
    X = np.exp(1.5 * random.normal(size=(80, 30)))
    y = np.where(np.log(X) @ random.normal(size=30) + random.logistic(size=80) > 0.0, 1, -1)
    result = glru.loocv(glru.Problem(X, y, penalty=glru.L2(1e-3), fit_intercept=True), width="labels")
    assert result.n_trainings == 0
    assert result.decided_by["newton"] > result.decided_by["refine"]
    naive = glru.loocv(result.problem, method="naive", tol=1e-10)
    np.testing.assert_array_equal(result.bounds.signs, naive.bounds.signs)
