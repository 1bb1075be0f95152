"""Where float64 ends: what it can decide is decided whatever the units, what it cannot is said and not trained in vain."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict, cross_val_score
from sklearn.multiclass import OneVsRestClassifier

import glru
from tests.cases import make
from tests.decisions.retraining import assert_inside, carefully, held_out


def raw_table(n, seed=0):
    """Columns in units of their own, as tables come: prices, counts, shares, years."""
    random = np.random.default_rng(seed)
    sizes, means = np.array([1e4, 1e3, 1e2, 1.0, 1e-2, 1e6]), np.array([1e5, 3e3, 0.0, 5.0, 0.0, 1e7])
    X = random.lognormal(size=(n, 6)) * sizes + means
    return X, 1e-3 * X[:, 0] + X[:, 3] + 100.0 * random.normal(size=n)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_regression_on_raw_columns(fit_intercept):
    X, y = raw_table(120)
    problem = glru.Problem(X, y, glru.Squared(), glru.L2(1e-3), fit_intercept=fit_intercept)
    solution = glru.solve(problem)
    result = glru.loocv(solution)
    assert "undetermined" not in result.decided_by and result.n_trainings == 0
    scaled = glru.Problem(X / np.exp2(np.round(np.log2(X.std(axis=0)))), y, glru.Squared(), glru.L2(1e-12))
    assert "undetermined" not in glru.loocv(scaled).decided_by


@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Squared()], ids=["logistic", "squared"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("shape", [(60, 5), (20, 40)])
def test_units_do_not_matter(loss, fit_intercept, shape):
    """Columns times powers of two, strengths times their squares: the same model in other units."""
    random = np.random.default_rng(1)
    X = random.normal(size=shape)
    y = X[:, 0] + random.normal(size=shape[0])
    units = np.exp2(random.integers(-24, 25, size=shape[1]))
    target = y > 0.0 if loss.task == "classification" else y
    plain = glru.Problem(X, target, loss, glru.L2(np.full(shape[1], 0.05)), fit_intercept=fit_intercept)
    other = glru.Problem(X * units, target, loss, glru.L2(0.05 * units**2), fit_intercept=fit_intercept)
    first, second = glru.loocv(plain), glru.loocv(other)
    assert first.labels is None or np.array_equal(first.labels, second.labels)
    assert np.all(
        np.maximum(first.score_lower, second.score_lower) <= np.minimum(first.score_upper, second.score_upper)
    )
    assert first.decided_by.get("undetermined", 0) == second.decided_by.get("undetermined", 0) == 0
    folds = [glru.cross_val_predict(problem, cv=4, width=1e-5) for problem in (plain, other)]
    np.testing.assert_allclose(folds[0].scores, folds[1].scores, atol=2e-5)
    removed = [glru.after(glru.solve(problem, tol=1e-10), glru.RemoveRows([0])) for problem in (plain, other)]
    bounds = [out.score_bounds(problem.X) for out, problem in zip(removed, (plain, other), strict=True)]
    assert np.all(np.maximum(bounds[0][0], bounds[1][0]) <= np.minimum(bounds[0][1], bounds[1][1]))


@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Squared(), glru.SquaredHinge()])
@pytest.mark.parametrize("shape", [(60, 4), (20, 40)])
@pytest.mark.parametrize("width", [1e-15, 1e-18])
def test_widths_beyond_float64(loss, shape, width):
    """No row is trained for a width that no training can reach, and the result says so."""
    solution = glru.solve(make(loss, glru.L2(1e-2), *shape, fit_intercept=True))
    result = glru.loocv(solution, width=width)
    # Rows that Newton steps leave far from the limit are trained once, and only these: on tall data a few whose limit is measured too low.
    assert result.n_trainings <= 0.05 * shape[0] or shape == (20, 40)
    # Labels are proven all the same, and counted as such.
    open_rows = result.stages == ("wide" if result.classes is not None else "undetermined")
    assert open_rows.mean() > 0.9 and result.limited.any() and not result.limited[~open_rows].any()
    assert (
        result.decided_by.get("undetermined", 0) == result.n_undetermined
        and sum(result.decided_by.values()) == shape[0]
    )
    assert result.finest_width > width
    assert "float64 resolves their scores to about" in repr(result)
    assert np.all(result.score_upper - result.score_lower < 1e-6)
    assert_inside(*held_out(solution), result.score_lower, result.score_upper)


def test_a_width_within_reach_is_reached():
    solution = glru.solve(make(glru.Logistic(), glru.L2(1e-2), 60, 4, fit_intercept=True))
    result = glru.loocv(solution, width=1e-9)
    assert "undetermined" not in result.decided_by and not result.limited.any() and result.finest_width is None


def test_stages_agree_with_the_labels():
    """Whatever tightening proves later: a row is counted as undetermined exactly where its label is open."""
    random = np.random.default_rng(0)
    X = random.normal(size=(30, 12)) * 10.0 ** random.uniform(-3, 3, 12)
    y = random.integers(3, size=30)
    for model, target in ((LogisticRegression(C=1e4), y > 0), (OneVsRestClassifier(LogisticRegression(C=1e4)), y)):
        for options in ({}, {"width": 1e-15}, {"width": "labels"}, {"max_seconds": 1e-9}):
            result = glru.loocv(model, X, target, **options)
            assert np.array_equal(result.stages == "undetermined", ~result.decided), (model, options)


def test_scores_without_a_theorem_are_not_guessed():
    """L1 alone bounds no score of a hinge: nothing is trained for it, nothing returned in its place."""
    result = glru.loocv(make(glru.Hinge(), glru.L1(0.02), 30, 3, fit_intercept=True))
    unbounded = ~np.isfinite(result.score_lower) | ~np.isfinite(result.score_upper)
    assert unbounded.any() and np.isnan(result.scores[unbounded]).all()
    assert not result.bounds.signs[unbounded & (result.score_lower <= 0.0) & (result.score_upper >= 0.0)].any()
    assert "no bound of their scores is known" in repr(result)


@pytest.mark.parametrize("loss", [glru.SquaredHinge(), glru.SmoothedHinge()], ids=["squared", "smoothed"])
def test_hinges_with_hardly_any_penalty(loss):
    random = np.random.default_rng(1)
    X = random.normal(size=(40, 20))
    problem = glru.Problem(X, X[:, 0] + random.normal(size=40) > 0.0, loss, glru.L2(1e-8), fit_intercept=True)
    result = glru.loocv(problem)
    assert "undetermined" not in result.decided_by
    for row in range(0, 40, 5):
        weight = np.ones(40)
        weight[row] = 0.0
        assert result.bounds.signs[row] == np.sign(carefully(problem.derive(sample_weight=weight)).scores[row])


def genes(n, d, seed):
    """Expression levels: positive, log-normal, unscaled, more columns than rows."""
    random = np.random.default_rng(seed)
    X = 100.0 * np.exp(random.normal(size=(n, d)) + 1.5 * random.normal(size=d))
    y = np.arange(n) % 3 == 0
    X[y, : d // 20] *= 1.5
    return X, y


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_labels_of_folds_on_unscaled_wide_data(C, fit_intercept):
    """The labels of five trainings from zero, each as far as float64 goes."""
    for seed in range(3):
        X, y = genes(45, 400, seed)
        model = LogisticRegression(C=C, fit_intercept=fit_intercept)
        labels = glru.cross_val_predict(model, X, y, cv=5)
        assert not isinstance(labels, np.ma.MaskedArray)
        for train, test in StratifiedKFold(5).split(X, y):
            penalty = glru.L2(1.0)
            fold = glru.Problem(
                X[train], y[train], penalty=penalty, fit_intercept=fit_intercept, scaling="sum",
                sample_weight=np.full(train.size, C),
            )  # fmt: skip
            best = carefully(fold)
            assert np.array_equal(labels[test], X[test] @ best.coef + best.intercept > 0.0)


def tied():
    """Mirrored rows of opposite classes: without an intercept every held-out score of the pair's middle is exactly zero."""
    random = np.random.default_rng(2)
    half = random.normal(size=(12, 3))
    X = np.vstack([half, -half, np.zeros((4, 3))])
    return X, np.array([True] * 12 + [False] * 12 + [True, False] * 2)


def test_ties_are_called_ties():
    X, y = tied()
    result = glru.loocv(glru.Problem(X, y, penalty=glru.L2(0.1)))
    assert np.array_equal(np.flatnonzero(result.bounds.signs == 0), np.arange(24, 28))
    more = glru.loocv(glru.Problem(np.vstack([X, np.zeros((4, 3))]), np.append(y, y[-4:]), penalty=glru.L2(0.1)))
    assert more.bounds.ties.sum() == 8 and "ties         8 rows" in repr(more)
    assert not more.limited.any() and result.n_trainings == more.n_trainings == 0


def test_ties_that_are_proven_get_the_first_class_as_in_scikit_learn():
    X, y = tied()
    model = LogisticRegression(C=1.0, fit_intercept=False)
    labels = glru.cross_val_predict(model, X, y, cv=4)
    assert not np.ma.isMaskedArray(labels) and not labels[24:].any()
    assert np.array_equal(labels, cross_val_predict(model, X, y, cv=4))
    assert np.array_equal(glru.cross_val_score(model, X, y, cv=4), cross_val_score(model, X, y, cv=4))


def test_ties_that_are_not_proven_are_masked_not_guessed():
    """Columns that mirror each other: the score of their difference is exactly zero, which no interval shows."""
    half = np.random.default_rng(2).normal(size=(12, 2))
    X = np.vstack([half, half[:, ::-1], -half, -half[:, ::-1], [[1.0, -1.0], [2.0, -2.0]]])
    y = np.array([True] * 24 + [False] * 24 + [True, False])
    folds = [(np.arange(48), np.array([48, 49])), (np.arange(48), np.arange(48))]
    model = LogisticRegression(C=1.0, fit_intercept=False)
    with pytest.warns(UserWarning, match="the score of 1 split"):
        scores = glru.cross_val_score(model, X, y, cv=folds)
    assert np.array_equal(np.isnan(scores), [True, False])
    after = glru.GLRUClassifier(fit_intercept=False).fit(X[:48], y[:48]).after(glru.Reweight([0], [1.0]))
    assert np.array_equal(after.labels(X).mask, np.arange(50) >= 48)


@pytest.mark.parametrize(
    "loss", [glru.Squared(), glru.Logistic(), glru.Poisson()], ids=["squared", "logistic", "poisson"]
)
def test_dependent_columns_without_a_penalty_are_said_to_prove_nothing(loss):
    """Infinite intervals are not shown under the word "certified", and the reason and a remedy come with them."""
    random = np.random.default_rng(0)
    X = random.normal(size=(40, 3))
    X = np.column_stack([X, X[:, 0] + X[:, 1]])
    y = random.poisson(1.0, 40).astype(float)
    problem = glru.Problem(X, y > 0 if isinstance(loss, glru.Logistic) else y, loss, glru.L2(0.0), fit_intercept=True)
    with pytest.warns(ConvergenceWarning, match="The optimum is not unique"):
        result = glru.loocv(problem)
    assert result.unbounded
    assert "nothing proven" in repr(result) and "(certified" not in repr(result) and "or penalise them" in repr(result)
    assert not glru.loocv(problem.derive(penalty=glru.L2(0.1))).unbounded
