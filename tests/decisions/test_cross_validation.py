"""Cross-validation over splitters: held-out scores are those of retraining on the train rows."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneOut,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
    check_cv,
)

import glru
from tests.cases import LOSSES, PENALTIES, each, make
from tests.certificates import exact, truth
from tests.core import (
    ChordFolds,
    FoldRows,
    Folds,
    Products,
    bound_grid,
    duality,
    has_chords,
    has_folds,
    loss_hessian,
    quadratic_hessians,
    solvers,
    split_rows,
    step_radii,
)
from tests.decisions.retraining import assert_inside, scores_after

N = 24
GROUPS = np.arange(N) // 5
SPLITTERS = {
    "int": (4, None),
    "k-fold": (KFold(3), None),
    "shuffled": (KFold(5, shuffle=True, random_state=0), None),
    "stratified": (StratifiedKFold(4), None),
    "groups": (GroupKFold(3), GROUPS),
    "repeated": (RepeatedKFold(n_splits=3, n_repeats=2, random_state=0), None),
    "shuffle-split": (ShuffleSplit(3, test_size=0.3, random_state=0), None),
    "leave-one-out": (LeaveOneOut(), None),
    "explicit": ([(np.arange(2, N), [0, 1]), (np.arange(0, 12), [13, 20, 22])], None),
}


def splits_of(problem, cv, groups):
    if isinstance(cv, int):
        cv = StratifiedKFold(cv) if problem.loss.task == "classification" else KFold(cv)
    return cv if isinstance(cv, list) else list(cv.split(np.zeros((problem.n_rows, 1)), problem.y, groups))


def retrained(problem, splits):
    """Scores of every split's test rows under the model of its train rows."""
    scores, off = [], []
    for train, test in splits:
        weight = np.zeros(problem.n_rows)
        weight[train] = problem.sample_weight[train]
        score, slack = scores_after(problem, weight, np.asarray(test))
        scores.append(score)
        off.append(slack)
    return np.concatenate(scores), np.concatenate(off)


def assert_right(problem, result, splits):
    scores, off = retrained(problem, splits)
    assert np.array_equal(result.rows, np.concatenate([np.asarray(test) for _, test in splits]))
    assert np.array_equal(result.folds, np.concatenate([[k] * len(test) for k, (_, test) in enumerate(splits)]))
    assert_inside(scores, off, result.score_lower, result.score_upper)
    clear = np.abs(scores) > off
    signs = result.bounds.signs
    assert np.all((signs == 0) | (signs == np.sign(scores)) | ~clear)
    assert (result.labels is None) == (result.problem.loss.task == "regression")
    assert sum(result.decided_by.values()) == result.rows.size
    assert (result.n_trainings == 0) == ("training" not in result.decided_by)
    return scores, off


@each(SPLITTERS, "splitter")
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_splitters(loss, splitter):
    cv, groups = splitter
    if loss == "squared" and isinstance(cv, StratifiedKFold):
        cv = StratifiedKFold(4).split(np.zeros((N, 1)), np.arange(N) % 2)  # an iterator, as scikit-learn allows
        cv = list(cv)
    for options in ({}, {"scaling": "sum", "fit_intercept": True, "sample_weight": 1.0 + np.arange(N) % 2}):
        problem = make(LOSSES[loss], glru.L2(0.05), N, 3, seed=1, **options)
        result = glru.cross_val_predict(problem, cv=cv, groups=groups, width=1e-6)
        scores, off = assert_right(problem, result, splits_of(problem, cv, groups))
        assert np.all(result.score_upper - result.score_lower <= 1e-6)
        assert np.all(np.abs(result.scores - scores) <= 5e-7 + off)
        assert result.n_trainings == 0


def hostile(kind):
    """A problem of 40 rows whose folds are hard to step together."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(40, 5))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=40) > 0.0, 1.0, -1.0)
    options = {"penalty": glru.L2(1.0), "scaling": "sum", "fit_intercept": True}
    if kind == "units":
        X = X * 10.0 ** np.array([3, -3, 4, 0, 1]) + 100.0
    elif kind == "shifted":
        X = X + 1e4 * rng.normal(size=5)
    elif kind == "separable":
        y, options["penalty"] = np.where(X[:, 0] > 0.0, 1.0, -1.0), glru.L2(1e-4)
    elif kind == "huge row":
        X[3] *= 1e3
    elif kind == "duplicates":
        X[:, 1], X[20:] = X[:, 0], X[:20]
    elif kind == "sparse and wide":
        X = sp.csr_array(np.where(rng.random((40, 120)) < 0.1, rng.normal(size=(40, 120)), 0.0))
    elif kind == "dense and wide":
        X, options["penalty"] = rng.normal(size=(40, 120)) + np.arange(120.0), glru.L2(1e-2)
    elif kind == "strengths":
        options["penalty"] = glru.L2(np.array([0.1, 1.0, 10.0, 1.0, 1.0]))
    elif kind == "squared hinge":
        options.update(loss=glru.SquaredHinge(), fit_intercept=False)
    return glru.Problem(X, y, **options)


@pytest.mark.parametrize(
    "kind",
    ["units", "separable", "huge row", "duplicates", "sparse and wide", "dense and wide", "strengths", "squared hinge"],
)
def test_folds_stepped_together(kind):
    problem = hostile(kind)
    assert has_folds(problem)
    for cv in (KFold(4, shuffle=True, random_state=1), ShuffleSplit(3, test_size=0.2, random_state=1)):
        for width in (None, 1e-6):
            result = glru.cross_val_predict(problem, cv=cv, width=width)
            scores, off = assert_right(problem, result, splits_of(problem, cv, None))
            decided = result.bounds.decided if width is None else result.bounds.width <= width
            assert np.all(decided | (np.abs(scores) <= off))
            assert result.n_trainings == 0


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("price", [1e-9, 20.0, np.inf])
def test_folds_by_products(monkeypatch, price, sparse):
    """Columns too many for Hessians: conjugate gradients, with a factor each as their preconditioner, with one for all folds or without any."""
    monkeypatch.setattr(Folds, "factor_products", price)
    rng = np.random.default_rng(7)
    X = rng.normal(size=(240, 160)) * 10.0 ** rng.uniform(-2.0, 2.0, 160)
    y = X @ rng.normal(size=160) > 0.0
    X = sp.csr_array(X * (rng.random(X.shape) < 0.1)) if sparse else X
    problem = glru.Problem(X, y, penalty=glru.L2(1e-3), fit_intercept=True)
    result = glru.cross_val_predict(problem, cv=KFold(3), width=1e-6)
    assert_right(problem, result, splits_of(problem, KFold(3), None))
    assert np.all(result.bounds.width <= 1e-6)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("strengths", ["same", "multiples", "unlike"])
def test_steps_over_the_rows(strengths, fit_intercept):
    """Newton steps of wide data are those of the Hessians in the dimension of the columns."""
    rng = np.random.default_rng(11)
    X, y = rng.normal(size=(40, 150)) + 2.0, rng.random(40) > 0.5
    factors = {"same": np.ones(3), "multiples": np.array([1.0, 3.0, 9.0]), "unlike": rng.uniform(0.5, 2.0, (3, 150))}
    penalties = [glru.L2(0.1 * factor) for factor in factors[strengths]]
    problems = [glru.Problem(X, y, penalty=penalty, fit_intercept=fit_intercept) for penalty in penalties]
    folds, columns = Folds(problems[0], [one.without([k]) for k, one in enumerate(problems)], 3), np.arange(3)
    place = folds.at(rng.normal(size=(folds.size, 3)) * 0.05, columns)
    steps = Products(folds, place.scores, columns, 0.1)
    for k, step in enumerate(steps.direction(place.gradient).T):
        strength = np.broadcast_to(folds.strengths[:, -1 if folds.strengths.shape[1] == 1 else k], folds.size)
        hessian = folds.matrix.dense().T @ (steps.curvatures[:, [k]] * folds.matrix.dense()) + np.diag(strength)
        assert np.allclose(hessian @ step, -place.gradient[:, k], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("lam", "together"), [(1e-2, True), (1e-6, False)])
def test_folds_of_wide_least_squares(lam, together, fit_intercept):
    """One step each where rounding leaves narrow bounds in the metric of the penalty, and over the rows elsewhere; no model of all rows is trained."""
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(50, 200)) + 1.0, rng.normal(size=50)
    problem = glru.Problem(X, y, loss=glru.Squared(), penalty=glru.L2(lam), fit_intercept=fit_intercept)
    assert has_folds(problem) == together
    result = glru.cross_val_predict(problem, cv=KFold(5), width=1e-6)
    assert_right(problem, result, splits_of(problem, KFold(5), None))
    assert np.all(result.bounds.width <= 1e-6) and result.n_trainings == 0


def test_factors_of_folds(monkeypatch):
    """Where one factor for all folds has cost more products than one each, every fold gets that of its own Hessian, then and later."""
    rng = np.random.default_rng(7)
    X = sp.csr_array(np.where(rng.random((240, 160)) < 0.1, rng.normal(size=(240, 160)), 0.0))
    problem = glru.Problem(X, X @ rng.normal(size=160) > 0.0, penalty=glru.L2(1e-3), fit_intercept=True)
    problems = [problem.derive(sample_weight=np.where(np.arange(240) % 3 == k, 0.0, 1.0)) for k in range(3)]
    monkeypatch.setattr(Folds, "factor_products", 2.0)
    for n_products, n_factors in ((1, 0), (5, 1), (13, 3)):
        folds, columns = Folds(problem, problems), np.arange(3)
        folds.n_products[0] = n_products
        place = folds.at(np.zeros((folds.size, 1)), columns)
        Products(folds, np.repeat(place.scores, 3, axis=1), columns, 0.1)
        made = [factor for factor in folds.factors[:3] if factor is not None]
        assert len({id(factor) for factor in made}) == n_factors
    for n_products, renewed in ((5, False), (7, True)):
        folds.n_products[0] = n_products
        Products(folds, np.repeat(place.scores, 3, axis=1), columns, 0.1)
        assert [factor is not old for factor, old in zip(folds.factors, made, strict=False)] == 3 * [renewed]
    dense, weights = folds.matrix.dense() * folds.units, folds.weigh_curvatures(np.zeros((240, 3)), columns)
    for factor, weight in zip(made, weights.T, strict=True):
        lower = np.tril(factor.astype(float))
        hessian = dense.T @ (weight[:, None] * dense) + np.diag(folds.strengths[:, 0] * folds.units**2)
        assert np.allclose(lower @ lower.T, hessian, rtol=1e-4, atol=1e-5 * np.abs(hessian).max())


def test_gradients_of_folds_err_by_less_than_stated():
    """Scores that are differences of large numbers: in long doubles."""
    problem, rng = hostile("plain").derive(fit_intercept=False), np.random.default_rng(3)
    X = problem.X.copy()
    X[:, 1] = X[:, 0] * (1.0 + 1e-7 * rng.normal(size=40))
    problem = problem.derive(X=X)
    folds = Folds(problem, [problem])
    for size in (1.0, 1e3, 1e6):
        coef = np.array([size, -size, 1.0, -2.0, 0.5])[:, None]
        place, data = folds.at(coef, np.arange(1)), folds.matrix.dense().astype(np.longdouble)
        y, weights = folds.y[:, 0].astype(np.longdouble), folds.weights[:, 0].astype(np.longdouble)
        slopes = -y / (1.0 + np.exp(y * (data @ coef[:, 0].astype(np.longdouble))))
        exact = (weights * slopes) @ data + folds.strengths[:, 0] * coef[:, 0].astype(np.longdouble)
        off = np.abs(place.gradient[:, 0] - exact)
        assert np.all(off <= folds.gradient_errors(place, np.arange(1))[:, 0])
    # The errors of the slopes are what matters here.
    assert off.max() > 100.0 * np.finfo(float).eps * np.sqrt(place.square[0]) * folds.column_norms.max()


def never(lower, upper):
    return np.zeros(lower.shape, dtype=bool)


@pytest.mark.parametrize("kind", ["units", "separable", "duplicates", "strengths", "shifted"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_bounds_of_folds_far_from_their_models(kind, fit_intercept):
    """What the penalty proves at rough models, with curvatures taken elsewhere."""
    problem = hostile(kind).derive(fit_intercept=fit_intercept)
    rng, splits = np.random.default_rng(5), splits_of(problem, KFold(2, shuffle=True, random_state=1), None)
    problems = [problem.derive(sample_weight=np.isin(np.arange(40), train).astype(float)) for train, _ in splits]
    folds, columns, proven = Folds(problem, problems), np.arange(2), False
    solutions = [glru.solve(one, tol=1e-12) for one in problems]
    best = folds.pack(np.array([np.append(s.coef, [s.intercept] * fit_intercept) for s in solutions]).T)
    exact, off = retrained(problem, splits)
    rows, owners = np.concatenate([test for _, test in splits]), np.repeat(columns, 20)
    weighted = folds.weigh_curvatures(folds.matrix @ best, columns)
    spread = 1.0 / np.sqrt(np.square(folds.matrix.dense()).T @ weighted + folds.strengths)
    for distance in 10.0 ** np.arange(-14.0, 1.0):
        place = folds.at(best + distance * spread * rng.normal(size=best.shape), columns)
        for elsewhere in (place.scores + 30.0 * distance * rng.normal(size=place.scores.shape), 0.0 * place.scores):
            reference = folds.reference(elsewhere, folds.weigh_curvatures(elsewhere, columns))
            radii, exponents = (f(place, columns, reference) for f in (folds.radii, folds.exponents))
            lower, upper = folds.bound_by_penalty(place, radii, exponents, rows, owners)
            assert_inside(exact, off, lower, upper)
            proven |= bool(np.all(np.isfinite(upper)))
    assert proven


def test_curvatures_of_folds_that_were_taken_far_away():
    """A rare class, and curvatures of the model zero: these are ten times as large as at the optimum, where the intercept is all that moves."""
    rng = np.random.default_rng(0)
    X, y = 1e-3 * rng.normal(size=(40, 2)), np.arange(40) == 7
    problem = glru.Problem(X, y, penalty=glru.L2(1.0), fit_intercept=True)
    folds, columns = Folds(problem, [problem]), np.arange(1)
    best = glru.solve(problem, tol=1e-13)
    model = folds.pack(np.append(best.coef, best.intercept)[:, None])
    zero = np.zeros((40, 1))
    reference = folds.reference(zero, folds.weigh_curvatures(zero, columns))
    for distance in (1e-6, 1e-4, 1e-2):
        place = folds.at(model + np.array([0.0, 0.0, distance])[:, None], columns)
        radii, exponents = (f(place, columns, reference) for f in (folds.radii, folds.exponents))
        lower, upper = folds.bound_by_penalty(place, radii, exponents, np.arange(40), np.zeros(40, dtype=int))
        assert np.all((lower <= best.scores) & (best.scores <= upper))
        assert np.all(np.isfinite(upper)) or distance > 1e-4


@pytest.mark.parametrize("kind", ["units", "separable", "huge row", "duplicates", "strengths", "shifted", "plain"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_chord_steps_against_exact_folds(kind, fit_intercept):
    """Ends of steps from rough models, with curvatures taken elsewhere, down to the end of float64: without any tolerance."""
    problem = hostile(kind).derive(fit_intercept=fit_intercept)
    rng, splits = np.random.default_rng(5), splits_of(problem, KFold(4, shuffle=True, random_state=1), None)
    problems = [problem.derive(sample_weight=np.isin(np.arange(40), train).astype(float)) for train, _ in splits]
    tests = [test for _, test in splits]
    optima = [truth.retrained(one) for one in problems]
    assert has_chords(problem)
    rows = FoldRows.of(problem, problems, tests)
    scores = np.concatenate([best.scores(problem.X[test]) for best, test in zip(optima, tests, strict=True)])
    middle = np.mean([np.append(best.coef, [best.intercept] * fit_intercept).astype(float) for best in optima], axis=0)
    proven = []
    for distance in (0.0, 1e-6, 1e-3, 0.1, 1.0):
        folds = ChordFolds(rows, [problems], tests, never)
        folds.start(middle + distance * np.abs(middle) * rng.normal(size=middle.size), known=True)
        assert not exact.outside(scores, *chord_bounds(folds))
        folds.finish([0])
        lower, upper = chord_bounds(folds)
        assert not exact.outside(scores, lower, upper)
        proven.append((upper - lower).max())
    # Without an intercept shifted columns nearly cancel; a row that outweighs all others leaves the local certificate nothing.
    assert min(proven) <= {"huge row": np.inf, "shifted": 1e-4}.get(kind, 1e-6)


@pytest.mark.parametrize("kind", ["units", "separable", "huge row", "duplicates", "strengths", "shifted", "plain"])
@pytest.mark.parametrize(
    "loss", [glru.SquaredHinge(), glru.SmoothedHinge(), glru.Huber()], ids=lambda loss: type(loss).__name__
)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_chord_steps_between_kinks(kind, loss, fit_intercept):
    """Rows cross kinks on the way from rough models to the optima of the folds, and the metrics are those of other pieces: without any tolerance."""
    problem = hostile(kind)
    targets = (
        problem.y if loss.task == "classification" else 3.0 * problem.y + problem.X[:, 1] / np.ptp(problem.X[:, 1])
    )
    problem = glru.Problem(problem.X, targets, loss, problem.penalty, scaling="sum", fit_intercept=fit_intercept)
    rng, tests = np.random.default_rng(6), [np.arange(k, 40, 4) for k in range(4)]
    problems = [problem.derive(sample_weight=(~np.isin(np.arange(40), test)).astype(float)) for test in tests]
    optima = [truth.retrained(one) for one in problems]
    assert has_folds(problem) and has_chords(problem) == fit_intercept
    rows = FoldRows.of(problem, problems, tests)
    scores = np.concatenate([best.scores(problem.X[test]) for best, test in zip(optima, tests, strict=True)])
    middle = np.mean([np.append(best.coef, [best.intercept] * fit_intercept).astype(float) for best in optima], axis=0)
    proven = []
    for distance in (0.0, 1e-6, 1e-3, 0.1, 1.0):
        folds = ChordFolds(rows, [problems], tests, never)
        folds.start(middle + distance * np.abs(middle) * rng.normal(size=middle.size), known=True)
        assert not exact.outside(scores, *chord_bounds(folds))
        folds.finish([0])
        lower, upper = chord_bounds(folds)
        assert not exact.outside(scores, lower, upper)
        proven.append((upper - lower).max())
    # A row that outweighs all others, or rows that are all next to a kink, leave nothing between kinks.
    assert min(proven) <= {"huge row": np.inf, "separable": np.inf, "shifted": 1e-3}.get(kind, 1e-5)


@pytest.mark.parametrize("loss", [glru.SquaredHinge(), glru.SmoothedHinge()], ids=lambda loss: type(loss).__name__)
def test_folds_between_kinks(loss):
    """Folds of tall data with an intercept need no training; splits that weigh rows of a block apart are bounded one by one."""
    problem = hostile("plain").derive(loss=loss)
    for cv in (KFold(4, shuffle=True, random_state=1), ShuffleSplit(3, test_size=0.2, train_size=0.5, random_state=1)):
        result = glru.cross_val_predict(problem, cv=cv, width=1e-6)
        assert_right(problem, result, splits_of(problem, cv, None))
        assert np.all(result.bounds.width <= 1e-6)
        assert result.n_trainings == 0 or isinstance(cv, ShuffleSplit)


def test_folds_that_stall_are_left_to_steps_of_their_own(monkeypatch):
    """Columns in unlike units: steps whose products are made in single precision come to an end before the scores are narrow."""
    rng, lengths = np.random.default_rng(700), []
    X = rng.normal(size=(80, 600)) * 10.0 ** rng.uniform(-4.0, 4.0, 600)
    y = np.where((X / X.std(axis=0)) @ rng.normal(size=600) + 24.0 * rng.normal(size=80) > 0.0, 1.0, -1.0)
    problem = glru.Problem(X, y, penalty=glru.L2(1.0 / 80.0), fit_intercept=True)
    search = Folds.search
    monkeypatch.setattr(Folds, "search", lambda self, *args, **how: lengths.append(1) or search(self, *args, **how))
    result = glru.cross_val_predict(problem, cv=KFold(5), width=1e-6)
    assert_right(problem, result, splits_of(problem, KFold(5), None))
    assert len(lengths) <= 40


@pytest.mark.parametrize(("entries", "batches"), [(160, 1), (159, 2), (40, 4), (1, 4)])
def test_chord_steps_in_batches(entries, batches, monkeypatch):
    """As many folds as their scores leave room for are stepped together, with the same labels whatever that is."""
    problem, made, of = hostile("plain"), [], FoldRows.of
    labels = glru.cross_val_predict(problem, cv=KFold(4)).labels
    monkeypatch.setattr("glru.refine.CHORD_ENTRIES", entries)
    monkeypatch.setattr("glru.updates.chord_folds.FoldRows.of", lambda *args: made.append(args) or of(*args))
    assert np.array_equal(glru.cross_val_predict(problem, cv=KFold(4)).labels, labels)
    assert len(made) == batches


def chord_bounds(folds):
    """The bounds under all penalties, one after the other."""
    return [np.concatenate([getattr(one, end) for one in folds.penalties]) for end in ("lower", "upper")]


@pytest.mark.parametrize("loss", [glru.Poisson(), glru.Gamma(), glru.Tweedie(1.5)], ids=repr)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_chord_steps_of_log_links(loss, fit_intercept):
    """Losses without a Lipschitz constant: from an inexact start the bounds hold exact scores, and they get narrow."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 3)) * [1.0, 30.0, 0.01]
    y = 0.1 + rng.gamma(2.0, np.exp(0.5 * X[:, 0]))
    problem = glru.Problem(X, y, loss=loss, penalty=glru.L2(0.01), fit_intercept=fit_intercept)
    tests = [np.arange(k, 60, 3) for k in range(3)]
    problems = [problem.derive(sample_weight=(~np.isin(np.arange(60), test)).astype(float)) for test in tests]
    scores = np.concatenate([truth.retrained(one).scores(X[test]) for one, test in zip(problems, tests, strict=True)])
    folds = ChordFolds(FoldRows.of(problem, problems, tests), [problems], tests, never)
    folds.start(np.full(3 + fit_intercept, 0.01))
    assert not exact.outside(scores, *chord_bounds(folds))
    folds.finish([0])
    lower, upper = chord_bounds(folds)
    assert not exact.outside(scores, lower, upper)
    assert np.max(upper - lower) < 1e-8


def test_moves_are_measured_from_the_scores_of_a_folds_own_metric():
    """A fold that stands at the common model, with curvatures taken elsewhere: its scores are as far from there as they are."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 2))
    problem = glru.Problem(X, np.where(X[:, 0] + rng.normal(size=60) > 0.0, 1.0, -1.0), penalty=glru.L2(0.01))
    tests = [np.arange(k, 60, 3) for k in range(3)]
    problems = [problem.derive(sample_weight=(~np.isin(np.arange(60), test)).astype(float)) for test in tests]
    rows = FoldRows.of(problem, problems, tests)
    folds = ChordFolds(rows, [problems], tests, never)
    one, far = folds.penalties[0], rows.data @ np.full(2, 6.0)
    common = folds._find_common(one.strengths, np.zeros(2), known=False)
    one.begin([common], {1: (rows.hessians(far[None], np.array([1]))[0], far)}, None)
    moved = np.abs(rows.data @ one.models.T - np.column_stack(one.references))
    assert np.all(one.moved * (1.0 + 1e-12) + 1e-14 >= np.where(rows.weights.T > 0.0, moved, 0.0).max(axis=0))
    scores = np.concatenate([truth.retrained(part).scores(X[test]) for part, test in zip(problems, tests, strict=True)])
    assert not exact.outside(scores, *chord_bounds(folds))


@pytest.mark.parametrize("weight", [1.2e-45, 1.0, 1e37])
def test_norms_of_columns_whose_squares_underflow(weight):
    """Weights of any size times squares that are lost: the norms that rounding is measured by are no smaller than the exact ones."""
    X = np.random.default_rng(6).uniform(1.0, 1.5, (40, 3)) * [1e-162, 0.0, 1.0] + [0.0, 1e-139, 0.0]
    y = np.where(np.arange(40) % 2, 1.0, -1.0)
    problem = glru.Problem(X, y, penalty=glru.L2(weight), scaling="sum", sample_weight=np.full(40, weight))
    tests = [np.arange(k, 40, 2) for k in range(2)]
    problems = [problem.derive(sample_weight=weight * ~np.isin(np.arange(40), test)) for test in tests]
    norms = [np.sqrt(weight) * 1e-140 * np.linalg.norm(X[rows] * 1e140, axis=0) for rows in (slice(None), tests[1])]
    assert np.all(problem.column_norms * (1.0 + 1e-12) >= norms[0])
    assert np.all(Folds(problem, problems[:1]).column_norms * (1.0 + 1e-12) >= norms[1])
    rows = FoldRows.of(problem, problems, tests)
    assert np.all(rows.column_norms / rows.scales * (1.0 + 1e-12) >= norms[1])


def test_chord_steps_of_targets_that_no_column_explains():
    """Gradients are sums of huge slopes that cancel: all that is left of them is rounding."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 3)), 1e8 * rng.normal(size=400)
    tests = np.split(np.arange(400), 4)
    for test in tests:
        y[test] -= X[test] @ np.linalg.lstsq(X[test], y[test], rcond=None)[0]
    problem = glru.Problem(X, y, loss=glru.Squared(), penalty=glru.L2(1.0), scaling="sum")
    problems = [problem.derive(sample_weight=(~np.isin(np.arange(400), test)).astype(float)) for test in tests]
    folds = ChordFolds(FoldRows.of(problem, problems, tests), [problems], tests, never)
    folds.start(np.zeros(3))
    folds.finish([0])
    optima = [truth.retrained(one) for one in problems]
    scores = np.concatenate([best.scores(X[test]) for best, test in zip(optima, tests, strict=True)])
    lower, upper = chord_bounds(folds)
    assert not exact.outside(scores, lower, upper)
    assert np.max(upper - lower) < 1e-3


@pytest.mark.parametrize("size", [0.0, 1e-25])
@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Poisson()], ids=repr)
def test_steps_by_products_beside_a_column_of_next_to_nothing(loss, size):
    """The square of what such a column is multiplied by for a norm of 1 is no number in single precision."""
    X = np.random.default_rng(0).normal(size=(40, 80)) / 9.0
    y = np.where(X[:, 0] > 0.0, 1.0, 3.0 if loss.link == "log" else -1.0)
    X[:, 1] *= size
    problem = glru.Problem(X, y, loss=loss, penalty=glru.L2(1.0), fit_intercept=True)
    assert glru.cross_val_predict(problem, cv=5).decided_by == {"newton": 40}


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("spared", [0.3, 1.0])
def test_chord_steps_of_several_penalties(together, spared, monkeypatch):
    """Penalties are stepped together or one after the other: the bounds hold the same exact scores."""
    monkeypatch.setattr("glru.updates.chord_folds.TOGETHER", 1e9 if together else 0)
    problem = hostile("plain")
    splits = splits_of(problem, KFold(4), None)
    grid = [problem.derive(penalty=glru.L2(lam)) for lam in (10.0, 1.0, 0.1, 0.09, 0.0899)]
    folds = [
        [one.derive(sample_weight=np.isin(np.arange(40), train).astype(float)) for train, _ in splits] for one in grid
    ]
    tests = [test for _, test in splits]
    scores = [
        truth.retrained(fold).scores(problem.X[test]) for mine in folds for fold, test in zip(mine, tests, strict=True)
    ]
    rows = FoldRows.of(problem, folds[0], tests)
    for rounds in ([[0, 1, 2, 3, 4]], [[3], [0, 1, 4], [2]], [[4], [3], [2], [1], [0]]):
        work = ChordFolds(rows, folds, tests, lambda lower, upper: upper - lower <= 1e-8)
        work.start(np.zeros(problem.n_columns + 1), spared=spared)
        assert len(work.penalties) == (1 if together else 5)
        for penalties in rounds:
            work.finish(penalties)
            lower, upper = chord_bounds(work)
            assert not exact.outside(np.concatenate(scores), lower, upper)
        assert not work.is_open().any()
        assert np.all(upper - lower <= 1e-8)


def test_blocks_of_folds_have_equal_shares():
    """Rows of a block that a fold weighs differently are no block; rows without weight are in any."""
    problem = hostile("plain").derive(sample_weight=np.where(np.arange(40) % 7 == 0, 0.0, 1.0))
    tests = [np.arange(0, 20), np.arange(20, 40)]
    weights = [np.where(np.isin(np.arange(40), test), 0.0, problem.sample_weight) for test in tests]
    rows = FoldRows.of(problem, [problem.derive(sample_weight=weight) for weight in weights], tests)
    assert np.array_equal(rows.shares > 0.0, [[False, True], [True, False]])
    weights[0] = weights[0] * np.where(np.arange(40) == 30, 1.0 + 1e-12, 1.0)
    assert FoldRows.of(problem, [problem.derive(sample_weight=weight) for weight in weights], tests) is None


def test_blocks_of_folds_that_weigh_classes_apart():
    """Balanced classes: a fold multiplies the weights of each class by a number of its own."""
    problem = hostile("plain")
    tests, positive = [np.arange(0, 20), np.arange(20, 40)], problem.y > 0.0
    weights = [np.where(np.isin(np.arange(40), test), 0.0, np.where(positive, 1.5, 0.75)) for test in tests]
    folds = [problem.derive(sample_weight=weight) for weight in weights]
    rows = FoldRows.of(problem, folds, tests)
    assert rows.edges.size == 5
    places = np.repeat(np.arange(4), np.diff(rows.edges))
    for k, fold in enumerate(folds):
        assert np.allclose(rows.shares[places, k] * rows.common, fold.weights[rows.order], rtol=1e-15)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_folds_of_least_squares_with_many_columns(fit_intercept):
    """The Hessians of all folds from those of their tests: bounds hold the scores of long doubles."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 110)) * 10.0 ** rng.uniform(-3.0, 3.0, 110)
    options = {"loss": glru.Squared(), "penalty": glru.L2(1e-3), "fit_intercept": fit_intercept}
    problem = glru.Problem(X, rng.normal(size=300), sample_weight=rng.uniform(0.5, 2.0, 300), **options)
    assert not has_folds(problem)
    tests = [test for _, test in KFold(3).split(X)]
    folds = [
        problem.derive(sample_weight=np.where(np.isin(np.arange(300), t), 0.0, problem.sample_weight)) for t in tests
    ]
    for fold, hessian in zip(folds, quadratic_hessians(problem, folds, tests), strict=True):
        scale = np.sqrt(np.diagonal(hessian))
        assert np.all(np.abs(np.triu(hessian - loss_hessian(fold, fold.weights))) <= 1e-13 * scale * scale[:, None])
    result = glru.cross_val_predict(problem, cv=KFold(3), width=1e-8)
    ones = np.ones((300, int(fit_intercept)))
    data, strengths = np.hstack([X, ones]).astype(np.longdouble), np.append(np.full(110, 1e-3), 0.0 * ones[0])
    for k, (train, test) in enumerate(KFold(3).split(X)):
        weight = problem.sample_weight[train] / problem.sample_weight[train].sum()
        scaled = np.sqrt(weight)[:, None] * data[train]
        unit = 1.0 / np.sqrt(np.square(scaled).sum(axis=0) + strengths)
        hessian = (scaled * unit).T @ (scaled * unit) + np.diag(strengths * unit**2)
        force = unit * (data[train].T @ (weight * problem.y[train]))
        model = np.zeros(unit.size, dtype=np.longdouble)
        for _ in range(6):
            model += np.linalg.solve(hessian.astype(float), (force - hessian @ model).astype(float))
        mine, scores = result.folds == k, data[test] @ (unit * model)
        assert np.all((result.bounds.lower[mine] <= scores) & (scores <= result.bounds.upper[mine]))
    assert np.all(result.bounds.width <= 1e-8)


def test_radii_of_chord_steps():
    """For one row the distances are known: the bound holds them, and is nearly attained where it is small."""
    for nu in (1e-9, 1e-4, 0.1, 0.5):
        for rho in (0.0, 1e-6, 0.3):
            for sign in (-1.0, 1.0):
                # l'(t) = h (e^(M t) - 1) / M + g with M = sign and a curvature e^(+-rho) times that of the metric.
                for grown in (np.exp(rho), np.exp(-rho)):
                    gradient = nu
                    root = sign * np.log1p(-sign * gradient / grown) if sign * gradient / grown < 1.0 else np.nan
                    found = step_radii(np.ones(1), np.array([nu]), np.array([rho]), np.zeros(1))[0]
                    if np.isfinite(found):
                        assert abs(root + gradient) <= found
    assert step_radii(np.ones(1), np.array([1e-4]), np.zeros(1), np.zeros(1))[0] <= 6e-9
    for largest, nu, rho, eta in (
        (1.0, 1.0, 0.0, 0.0),
        (0.1, 0.1, 0.0, np.inf),
        (np.inf, 0.0, 0.0, 0.0),
        (0.1, 0.1, np.inf, 0.0),
    ):
        assert step_radii(*(np.array([value]) for value in (largest, nu, rho, eta)))[0] == np.inf


def test_nothing_is_proven_of_scores_that_are_sums_of_earlier_ones():
    problem = hostile("duplicates")
    folds = Folds(problem, [problem, problem])
    columns, rows = np.arange(2), np.arange(40)
    place = folds.at(np.zeros((folds.size, 2)), columns, np.zeros((40, 2)))
    reference = folds.reference(place.scores, folds.weigh_curvatures(place.scores, columns))
    radii = folds.radii(place, columns, reference)
    with pytest.raises(AssertionError, match="earlier"):
        folds.bound_by_penalty(place, radii, np.zeros(2), rows, 0 * rows)


def test_labels():
    problem = make(glru.Logistic(), glru.L2(0.05), 60, 4, seed=1)
    result = glru.cross_val_predict(problem)
    scores, _ = assert_right(problem, result, splits_of(problem, 5, None))
    assert np.array_equal(result.bounds.signs, np.sign(scores))
    solution = glru.solve(problem)
    assert np.array_equal(glru.cross_val_predict(solution).bounds.signs, result.bounds.signs)


def test_leave_one_out_is_loocv():
    problem = make(glru.Logistic(), glru.L2(0.05), N, 3, seed=1)
    result = glru.cross_val_predict(problem, cv=LeaveOneOut(), width=1e-8)
    assert np.allclose(result.scores, glru.loocv(problem, width=1e-8).scores, atol=1e-8)


@each(PENALTIES, "penalty")
@each(LOSSES, "loss")
def test_every_loss_and_penalty(loss, penalty):
    problem = make(loss, penalty, 8, 2, seed=3)
    result = glru.cross_val_predict(problem, cv=KFold(2))
    assert_right(problem, result, splits_of(problem, KFold(2), None))
    if loss.task == "regression" and penalty.strong_convexity > 0.0:
        assert np.all(result.score_upper - result.score_lower <= 1e-6 * np.ptp(problem.y))


def test_unconverged_start():
    problem = make(glru.Logistic(), glru.L2(0.05), N, 3, seed=1)
    rough = glru.solve(problem, tol=0.0, until=lambda state: True)
    assert_right(problem, glru.cross_val_predict(rough, cv=KFold(3)), splits_of(problem, KFold(3), None))


@pytest.mark.parametrize("loss", [glru.SquaredHinge(), glru.SmoothedHinge(), glru.Hinge()], ids=repr)
def test_folds_of_hinge_losses_with_few_rows_begin_at_zero(loss, monkeypatch):
    """They wait for no model of all rows, and take the steps of a training of their own."""
    steps, follow = [], solvers._follow

    def count(problem, plan, point, *rest):
        steps.append((point.coef.any(), follow(problem, plan, point, *rest)))
        return steps[-1][1]

    monkeypatch.setattr(solvers, "_follow", count)
    problem = make(loss, glru.L2(0.05), N, 40, seed=1, fit_intercept=True)
    result = glru.cross_val_predict(problem, cv=KFold(3))
    assert len(steps) == 3
    assert not any(warm for warm, _ in steps)
    assert_right(problem, result, splits_of(problem, KFold(3), None))


def test_rows_repeated_in_a_train_set_count_twice():
    problem = make(glru.Logistic(), glru.L2(0.5), N, 3, seed=1, scaling="sum")
    train = np.array([0, 1, 2, 3, 3, 4, 5, 6, 7, 8])
    result = glru.cross_val_predict(problem, cv=[(train, [20, 21])], width=1e-6)
    again = glru.Problem(problem.X[train], problem.y[train], penalty=problem.penalty, scaling="sum")
    assert np.allclose(result.scores, problem.X[[20, 21]] @ glru.solve(again, tol=1e-18).coef, atol=1e-6)


def test_progress_and_repr():
    calls = []
    problem = make(glru.Logistic(), glru.L2(0.05), N, 3, seed=1)
    result = glru.cross_val_predict(problem, cv=4, progress=lambda *call: calls.append(call))
    assert [call[1:] for call in calls] == [(k, 4) for k in (1, 2, 3, 4)]
    assert repr(result).startswith(f"CrossValResult({N} rows in 4 folds)\n  errors ")


def test_interruption():
    problem = make(glru.Logistic(), glru.L2(0.05), N, 3, seed=1)
    solution = glru.solve(problem)
    before = solution.coef.copy(), solution.dual.copy(), problem.weights.copy()

    def stop(stage, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        glru.cross_val_predict(solution, progress=stop)
    after = solution.coef, solution.dual, problem.weights
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_errors():
    problem = make(glru.Logistic(), glru.L2(0.05), N, 3, seed=1, fit_intercept=True)
    rows = np.arange(N)
    with pytest.raises(TypeError, match=r"expected a glru.Problem; got list"):
        glru.cross_val_predict([1, 2])
    with pytest.raises(ValueError, match="at least one split; got none"):
        glru.cross_val_predict(problem, cv=[])
    with pytest.raises(ValueError, match="needs test rows and train rows of weight above 0; split 1 has none"):
        glru.cross_val_predict(problem, cv=[(rows[2:], rows[:2]), (rows, [])])
    with pytest.raises(ValueError, match="split 0 has none"):
        glru.cross_val_predict(problem, cv=[([], rows)])
    with pytest.raises(ValueError, match="both classes in its train rows; split 0 has 1"):
        glru.cross_val_predict(problem, cv=[(np.flatnonzero(problem.y > 0), np.flatnonzero(problem.y < 0))])
    unweighted = problem.derive(fit_intercept=False, sample_weight=np.where(rows < 12, 0.0, 1.0))
    with pytest.raises(ValueError, match="train rows of weight above 0"):
        glru.cross_val_predict(unweighted, cv=[(rows[:12], rows[12:])])
    with pytest.raises(ValueError, match="cv must be a whole number of folds of at least 2"):
        glru.cross_val_predict(problem, cv=1)
    with pytest.raises(ValueError, match="groups"):
        glru.cross_val_predict(problem, cv=GroupKFold(3))
    for wrong in ([N], [-1], [0.5], [True, False]):
        with pytest.raises(ValueError, match=r"positions from 0 to|mask of rows must have shape"):
            glru.cross_val_predict(problem, cv=[(rows, wrong)])
    with pytest.raises(ValueError, match="width must be a number above 0"):
        glru.cross_val_predict(problem, width=-1.0)


def test_masks_are_splits():
    """A mask names the rows where it is true."""
    problem = make(glru.Logistic(), glru.L2(0.05), N, 3, seed=1)
    held = np.arange(N) % 3 == 0
    by_mask = glru.cross_val_predict(problem, cv=[(~held, held)])
    by_place = glru.cross_val_predict(problem, cv=[(np.flatnonzero(~held), np.flatnonzero(held))])
    assert np.array_equal(by_mask.rows, np.flatnonzero(held))
    assert np.array_equal(by_mask.score_lower, by_place.score_lower)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("exponent", [-900, -600, 600, 800])
def test_an_objective_of_any_size(fit_intercept, exponent):
    """Weights and strengths times a power of two have the same optimum, whatever underflows on the way."""
    random = np.random.default_rng(0)
    X = random.normal(size=(40, 6)) * 10.0 ** random.choice([-3, 0, 3], 6)
    y = np.where(random.random(40) < 0.5, 1.0, -1.0)
    cv = [(np.flatnonzero(np.arange(40) % 4 != k), np.flatnonzero(np.arange(40) % 4 == k)) for k in range(4)]
    plain, scaled = (
        glru.cross_val_predict(
            glru.Problem(
                X,
                y,
                penalty=glru.L2(1e-3 * f),
                fit_intercept=fit_intercept,
                scaling="sum",
                sample_weight=np.full(40, f),
            ),
            cv=cv,
            width=1e-6,
        )
        for f in (1.0, 2.0**exponent)
    )
    assert np.all((scaled.score_lower <= plain.score_upper) & (plain.score_lower <= scaled.score_upper))


@pytest.mark.parametrize("seed", range(20))
def test_numbers_of_folds_split_as_in_scikit_learn(seed):
    random = np.random.default_rng(seed)
    for _ in range(20):
        n_rows, n_folds = int(random.integers(12, 60)), int(random.integers(2, 6))
        labels = random.permutation(np.append(random.integers(0, 3, n_rows - 10), [7, 7, 7, 7, 7, -2, -2, -2, -2, -2]))
        counts = np.unique(labels, return_counts=True)[1]
        if counts.min() < n_folds:
            continue
        for y in (labels, labels.astype(float), labels > 0, np.char.add("class ", labels.astype(str)), labels + 0.25):
            classification = y.dtype.kind != "f" or bool(np.all(y == np.trunc(y)))
            found = list(split_rows(n_folds, y, None, classification))
            expected = check_cv(n_folds, y, classifier=classification).split(np.zeros((n_rows, 1)), y)
            for mine, theirs in zip(found, expected, strict=True):
                assert all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_penalties_of_a_grid_are_finished_one_at_a_time():
    """A penalty so weak that a duplicated column leaves nothing to prove does not spoil the next one."""
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 4))
    X = np.column_stack([X, X[:, 0]])
    y, tests = np.where(X[:, 0] + random.normal(size=60) > 0.0, 1, -1), [np.arange(k, 60, 3) for k in range(3)]
    problems = [glru.Problem(X, y, penalty=glru.L2(lam), fit_intercept=True, scaling="sum") for lam in (1e-18, 1.0)]
    held_out = [np.isin(np.arange(60), test) for test in tests]
    folds = [[problem.derive(sample_weight=np.where(out, 0.0, 1.0)) for out in held_out] for problem in problems]
    found = [(k, bounds, closer) for k, bounds, closer in bound_grid(problems, folds, tests, 1e-9)]
    assert any(closer is not None for _, _, closer in found)
    for k, bounds, closer in found:
        lower, upper = bounds if closer is None else closer()[0]
        assert k == 0 or np.max(upper - lower) <= 1e-9


@pytest.mark.parametrize("sparse", [True, False])
def test_folds_of_several_penalties_by_products(sparse):
    """Penalties of very different strengths are stepped together, each under norms of its own; closer bounds of one come with those of others."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(24, 40)) * (rng.random((24, 40)) < 0.3)
    y, tests = (
        np.where(X[:, :5].sum(axis=1) + rng.normal(size=24) > 0.0, 1, -1),
        [np.arange(k, 24, 3) for k in range(3)],
    )
    X = sp.csr_array(X) if sparse else X
    problems = [glru.Problem(X, y, penalty=glru.L2(lam), fit_intercept=True, scaling="sum") for lam in (1e3, 1.0, 1e-2)]
    folds = [
        [one.derive(sample_weight=(~np.isin(np.arange(24), test)).astype(float)) for test in tests] for one in problems
    ]
    for k, (place, bounds, closer) in enumerate(bound_grid(problems, folds, tests, 1e-7)):
        best, test = truth.retrained(folds[place][k % 3]), tests[k % 3]
        exact_scores = best.scores(X.toarray()[test] if sparse else X[test])
        assert not exact.outside(exact_scores, *bounds)
        if closer is not None:
            bounds = closer(others=[0, 1, 2])[0]
            assert not exact.outside(exact_scores, *bounds)
        assert np.max(bounds[1] - bounds[0]) <= 1e-7


def make_indicators(loss, seed, scale=1.0):
    """All indicators of two categories without a penalty, a column twice, one of zeros; and the problem without what is too much."""
    rng = np.random.default_rng(seed)
    first, second = np.arange(40) % 3, rng.permutation(40) % 2
    Z = rng.normal(size=(40, 2))
    X = np.column_stack([np.eye(3)[first], Z, scale * np.eye(2)[second], -2.0 * Z[:, 0], np.zeros(40)])
    scores = X @ rng.normal(size=9) / 2.0 + rng.normal(size=40)
    y = np.sign(scores) if loss.task == "classification" else rng.poisson(np.exp(scores / 2.0)).astype(float)
    problem = glru.Problem(X, y, loss, glru.L2(0.0), fit_intercept=True)
    return problem, glru.Problem(X[:, [1, 2, 3, 4, 6]], y, loss, glru.L2(0.0), fit_intercept=True)


@pytest.mark.parametrize("loss", [glru.Squared(), glru.Logistic(), glru.Poisson()], ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_columns_that_are_combinations_of_others_need_no_penalty(loss, seed):
    problem, reduced = make_indicators(loss, seed)
    for ask in (glru.loocv, lambda p, width: glru.cross_val_predict(p, cv=KFold(4), width=width)):
        found, expected = ask(problem, width=1e-6), ask(reduced, width=1e-6)
        assert np.all(found.bounds.width <= 1e-6)
        assert np.all(found.bounds.lower <= expected.bounds.upper)
        assert np.all(expected.bounds.lower <= found.bounds.upper)


def test_only_exact_combinations_are_penalised():
    problem, _ = make_indicators(glru.Squared(), 0)
    assert np.flatnonzero(duality.penalise_dependent_columns(problem).quadratic).tolist() == [2, 6, 7, 8]
    # A held-out row is scored by models of others, in which it has no weight: it counts as well.
    X = problem.X.copy()
    X[7, :3] = 0.0
    assert np.flatnonzero(duality.penalise_dependent_columns(problem.derive(X=X)).quadratic).tolist() == [6, 7, 8]
    first, second = problem.X[:, 3], problem.X[:, 4]
    for rounded in (first + second, 0.3 * first + 0.7 * second):
        X = np.column_stack([first, second, rounded])
        other = glru.Problem(X, problem.y, glru.Squared(), glru.L2(0.0))
        assert duality.penalise_dependent_columns(other) is other


def test_combinations_of_many_columns_are_not_looked_for(monkeypatch):
    problem, _ = make_indicators(glru.Squared(), 0)
    monkeypatch.setattr(duality, "MAX_ORTHOGONALISATION", 40 * 9**2 - 1)
    assert duality.penalise_dependent_columns(problem) is problem


def test_a_category_of_one_row_stays_open_in_that_row():
    problem, _ = make_indicators(glru.Squared(), 0)
    alone = np.eye(40)[:, [5]]
    problem = glru.Problem(
        np.column_stack([problem.X[:, :5] * (1.0 - alone), alone]), problem.y, glru.Squared(), glru.L2(0.0), True
    )
    width = glru.loocv(problem).bounds.width
    assert np.flatnonzero(np.isinf(width)).tolist() == [5]
