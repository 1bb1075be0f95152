"""Columns that leave or come in several folds at once: bounds hold the scores of optima to 80 digits after every step, and get tight."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
from sklearn.feature_selection import SequentialFeatureSelector
from sklearn.linear_model import LogisticRegression

import glru
from glru.bounds import widen
from tests.certificates.exact import loss_value, optimum
from tests.core import Evaluated, FoldColumns, FoldData, _budget, has_fold_columns

KINDS = ["plain", "units", "duplicates", "heavy", "weak", "strong", "weights"]


def make_folds(loss, kind, size, fit_intercept):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(24, 5))
    if kind == "units":
        X = X * 10.0 ** np.arange(-3, 2)
    if kind == "duplicates":
        X[:, 3], X[:, 4] = X[:, 0], 0.0
    if kind == "heavy":
        X = rng.standard_t(1.5, size=X.shape)
    y = np.sign(X[:, 0] + rng.normal(size=24))
    y[:4] = [-1.0, 1.0, -1.0, 1.0]
    lam = {"weak": 1e-8, "strong": 1e8}.get(kind, 0.05)
    tests = [np.arange(0, 24, 2), np.arange(1, 22, 2)]
    folds = []
    for test in tests:
        weight = np.where(np.isin(np.arange(24), test), 0.0, 1.0)
        weight *= rng.uniform(0.1, 3.0, size=24) if kind == "weights" else 1.0
        problem = glru.Problem(
            X, y, loss, glru.L2(lam * size), fit_intercept=fit_intercept, scaling="sum", sample_weight=weight * size
        )
        folds.append(problem)
    assert has_fold_columns(folds)
    return folds, tests


def steps_of(folds, tests, chosen, columns, add):
    """The family after all its steps, and the bounds after each."""
    data = FoldData(folds, tests)
    assert data.usable
    points = [glru.solve(fold.select_columns(chosen), tol=1e-6).point for fold in folds]
    family = FoldColumns(data, chosen, data.pack(points), columns, add)
    seen = []

    def settle(members, *known):
        seen.extend((members, *bounds_of(here), *sums_of(here)) for here in known)
        return np.ones(members.size, dtype=bool)

    family.run(settle)
    return family, seen


def bounds_of(here):
    """Bounds of the scores of the rows asked about."""
    return widen(here.asked_scores, here.half_widths + here.errors[:, :, None])


def sums_of(here):
    """The scores of the rows asked about, and how far the sum of their losses may be below and above the one at these."""
    data, scores = here.family.data, here.asked_scores
    slopes = np.where(data.asked[:, None, :], data.loss.gradient(data.answers[:, None, :], scores), 0.0)
    return scores, *here.bound_sums(slopes, data.loss.smoothness)


def losses(loss, y, scores):
    return sum(loss_value(loss, Decimal(float(t)), Decimal(z)) for t, z in zip(y, scores, strict=False))


@pytest.mark.parametrize("size", [1.0, 2.0**600, 2.0**-600])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Squared()], ids=str)
def test_bounds_hold_exact_scores(loss, kind, size):
    for fit_intercept, add in [(True, True), (True, False), (False, True), (False, False)]:
        folds, tests = make_folds(loss, kind, size, fit_intercept)
        chosen = np.array([0, 1]) if add else np.array([0, 1, 3, 4])
        columns = np.array([3, 4]) if add else np.array([1, 3])
        family, seen = steps_of(folds, tests, chosen, columns, add)
        for k, (fold, test) in enumerate(zip(folds, tests, strict=True)):
            for j, column in enumerate(columns):
                after = np.union1d(chosen, [column]) if add else np.setdiff1d(chosen, [column])
                found = family.points(j)[k] or glru.solve(fold.select_columns(after)).point
                best = optimum(fold.select_columns(after), found.coef, found.intercept)
                assert best is not None
                scores = best.scores(fold.matrix.dense()[test][:, after])
                widths = []
                exact = losses(loss, fold.y[test], scores)
                for members, lower, upper, middle, fall, rise in seen:
                    for place in np.flatnonzero(members == j):
                        ends = zip(scores, lower[k, place], upper[k, place], strict=False)
                        assert all(Decimal(float(low)) <= score <= Decimal(float(high)) for score, low, high in ends)
                        widths.append(float((upper - lower)[k, place].max()))
                        found = losses(loss, fold.y[test], middle[k, place].tolist())
                        assert -Decimal(float(fall[k, place])) <= exact - found <= Decimal(float(rise[k, place]))
                if kind not in ("weak", "heavy", "units"):
                    assert min(widths) < 1e-7


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("add", [False, True])
def test_bounds_hold_wherever_candidates_stand(add, fit_intercept, monkeypatch):
    """Candidates at random places near and far from the present model, few rows and columns: where bounds have little to spare."""
    # Both metrics are asked wherever a candidate stands, each alone.
    monkeypatch.setattr("glru.updates.columns.folds.MAX_EXPONENT", -1.0)
    rng, n_finite = np.random.default_rng(2), 0
    for _ in range(60):
        X = rng.normal(size=(8, 2)) * [1.0, rng.choice([0.3, 1.0, 5.0])]
        y = np.where(X[:, 1] + 0.3 * rng.normal(size=8) > 0.0, 1.0, -1.0)
        y[:2] = [-1.0, 1.0]
        weight = np.where(np.arange(8) < 6, 1.0, 0.0)
        lam = 10.0 ** rng.uniform(-3.0, 3.0)
        fold = glru.Problem(
            X, y, glru.Logistic(), glru.L2(lam), fit_intercept=fit_intercept, scaling="sum", sample_weight=weight
        )
        data, chosen, test = FoldData([fold], [np.array([6, 7])]), np.arange(1 if add else 2), np.array([6, 7])
        present = glru.solve(fold.select_columns(chosen), tol=1e-9).point
        family = FoldColumns(data, chosen, data.pack([present]), np.array([1]), add)
        family.metric.place(np.array([0]))
        after = glru.solve(fold.select_columns(np.arange(2 if add else 1)), tol=1e-14)
        best, place = data.pack([after.point])[0], np.array([0])
        for distance in (0.0, 0.03, 0.3, 1.0):
            move = distance * rng.normal(size=best.size)
            family.coefs[0, 0, 0], family.coefs[0, 0, 2 - add :] = (best + move)[0], (best + move)[1 + add :]
            family.own[0, 0] = (best + move)[1] if add else 0.0
            for thorough in (False, True):
                here = Evaluated(family, place)
                here.measure(thorough)
                here.radius = np.full_like(here.radius, np.inf) if thorough else here.radius
                lower, upper = bounds_of(here)
                exact = X[test][:, : after.coef.size] @ after.coef + after.intercept
                assert np.all(lower[0, 0] <= exact + 1e-7) and np.all(exact <= upper[0, 0] + 1e-7)
                middle, fall, rise = sums_of(here)
                excess = np.sum(fold.loss.value(y[test], exact) - fold.loss.value(y[test], middle[0, 0]))
                assert -fall[0, 0] - 1e-7 <= excess <= rise[0, 0] + 1e-7
                n_finite += bool(np.isfinite(upper).all())
    assert n_finite > 100


@pytest.mark.parametrize("move", [-0.5, 0.5])
def test_sums_of_squares_rise_by_their_curvature(move):
    """With one column left that is orthogonal to the other, squares of the rows asked about change by what the gradient says, and their own: no bound is smaller."""
    rng = np.random.default_rng(0)
    X, y, weight = rng.normal(size=(12, 2)), rng.normal(size=12), np.repeat([1.0, 0.0], [8, 4])
    X[:, 1] = np.concatenate([X[:8, 1] - X[:8, 0] * (X[:8, 0] @ X[:8, 1]) / (X[:8, 0] @ X[:8, 0]), np.zeros(4)])
    fold = glru.Problem(X, y, glru.Squared(), glru.L2(0.1), scaling="sum", sample_weight=weight)
    data, left = FoldData([fold], [np.arange(8, 12)]), np.array([0])
    family = FoldColumns(data, np.arange(2), data.pack([glru.solve(fold).point]), np.array([1]), False)
    family.metric.place(left)
    best = glru.solve(fold.select_columns(left), tol=1e-14).coef[0]
    family.coefs[0, 0] = [best + move, 0.0]
    here = Evaluated(family, left)
    here.measure(thorough=False)
    middle, fall, rise = sums_of(here)
    residuals = X[8:, 0] * best - y[8:], middle[0, 0] - y[8:]
    excess = 0.5 * float(np.sum(residuals[0] ** 2) - np.sum(residuals[1] ** 2))
    slope = -move * float(X[8:, 0] @ residuals[1])
    assert -fall[0, 0] <= excess <= rise[0, 0]
    assert fall[0, 0] == pytest.approx(abs(slope), rel=1e-9)
    assert 0.0 < excess - slope <= rise[0, 0] - fall[0, 0] <= (excess - slope) * (1.0 + 1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_paths_are_those_of_training_every_candidate(direction, seed):
    """Folds of different sizes, heavy tails, duplicates; every fold's mean counts the same."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(3, size=(75, 8))
    X[:, 5] = X[:, 2]
    y = X[:, 0] - X[:, 1] + rng.normal(size=75) > 0.0
    model = LogisticRegression(C=[1.0, 30.0, 0.01][seed])
    found = [
        glru.StepwiseSelector(
            model, direction=direction, n_features_to_select=4, scoring=scoring, cv=4, method=method
        ).fit(X, y)
        for scoring in ("accuracy", "neg_log_loss")
        for method in ("certified", "naive")
    ]
    for certified, naive in (found[:2], found[2:]):
        assert certified.result_.certified and certified.result_.n_trainings == 0
        assert [step.columns for step in certified.result_.path] == [step.columns for step in naive.result_.path]
    exact = LogisticRegression(C=model.C, tol=1e-10, max_iter=10_000)
    theirs = SequentialFeatureSelector(exact, direction=direction, n_features_to_select=4, scoring="neg_log_loss", cv=4)
    # Of columns that are the same, theirs takes the one that rounding prefers.
    supports = [np.flatnonzero(selector.get_support()) for selector in (theirs.fit(X, y), found[2])]
    ours, expected = ([5 if j == 2 else j for j in support] for support in supports)
    assert sorted(ours) == sorted(expected)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_what_first_steps_missed_brings_the_next_ones_closer(direction, monkeypatch):
    """Gradients begin smaller from the third step on; whatever is taken over, the path is the same."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 12))
    y = X @ rng.normal(size=12) + 2.0 * rng.normal(size=400) > 0.0
    started, correct, misled = [], FoldColumns._correct, [False]

    def note(family, before, lost):
        sizes = []
        for wanted in (False, True):
            if wanted:
                correct(family, before, lost)
            here = Evaluated(family, np.arange(family.columns.size))
            sizes.append(float(np.median(np.hypot(np.linalg.norm(here.gradients, axis=2), here.own_gradients))))
        started.append(sizes)
        if misled[0]:
            family.coefs[:, :, 1:] += rng.normal(size=family.coefs[:, :, 1:].shape) * (family.coefs[:, :, 1:] != 0.0)

    monkeypatch.setattr(FoldColumns, "_correct", note)
    paths = []
    for misled[0] in (False, True):
        selector = glru.StepwiseSelector(
            LogisticRegression(), direction=direction, n_features_to_select=5, scoring="neg_log_loss", cv=3
        )
        paths.append([step.columns for step in selector.fit(X, y).result_.path])
    ours = started[: len(started) // 2]
    assert len(ours) >= 4 and all(closer < first for first, closer in ours[1:])
    assert paths[0] == paths[1]


def test_columns_and_pipelines_of_every_fold():
    """Scalers make other columns in every fold; they are followed in the same products."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(7)
    X = rng.lognormal(size=(60, 6)) * 10.0 ** np.arange(6)
    y = np.log(X[:, 0]) + rng.normal(size=60) > 0.0
    model = make_pipeline(StandardScaler(), LogisticRegression())
    paths = [
        [step.columns for step in glru.stepwise(model, X, y, cv=3, method=method, forced=True, max_steps=3).path]
        for method in ("certified", "naive")
    ]
    assert paths[0] == paths[1]


def test_what_is_decided_is_not_stepped_on():
    folds, tests = make_folds(glru.Logistic(), "plain", 1.0, True)
    data, chosen = FoldData(folds, tests), np.array([0])
    points = [glru.solve(fold.select_columns(chosen)).point for fold in folds]
    family, seen = FoldColumns(data, chosen, data.pack(points), np.array([1, 2, 3]), True), []

    def settle(members, here):  # one part: no question without what is known
        assert here.asked_scores.shape == here.half_widths.shape == (2, members.size, 12)
        seen.append(sorted(members.tolist()))
        return members == 1

    family.run(settle)
    assert seen[0] == [0, 1, 2] and len(seen) > 1 and all(members == [1] for members in seen[1:])


def test_first_certificates_are_left_out_where_they_left_most_open():
    folds, tests = make_folds(glru.Logistic(), "strong", 1.0, True)
    data, chosen, columns = FoldData(folds, tests), np.array([0]), np.array([1, 2, 3])
    present = data.pack([glru.solve(fold.select_columns(chosen)).point for fold in folds])
    before = FoldColumns(data, chosen, present, columns, True)
    for longest, stays in ((np.inf, True), (0.0, False)):
        before.longest_move = longest
        family, seen = FoldColumns(data, chosen, present, columns, True, before), []
        first = family.coefs[:, family.order].copy()

        def settle(members, *known, seen=seen):
            seen.extend(here.coefs for here in known)
            return np.ones(members.size, dtype=bool)

        family.run(settle)
        assert np.array_equal(seen[0], first) == stays
        assert (family.longest_move == family.typical_move) == stays


def test_hessians_of_pairs_are_those_of_rows():
    folds, tests = make_folds(glru.Logistic(), "plain", 1.0, True)
    data, chosen = FoldData(folds, tests), np.array([1, 3, 4])
    present = data.pack([glru.solve(fold.select_columns(chosen)).point for fold in folds])
    family = FoldColumns(data, chosen, present, np.array([0]), True)
    curvatures, places = np.random.default_rng(0).uniform(size=(20, 24)), np.arange(20) % 2
    X = np.column_stack([folds[0].matrix.dense()[:, chosen], np.ones(24)])
    expected = [
        X.T @ (line[:, None] * X) + np.diag(np.append(data.strengths[k, chosen], 0.0))
        for line, k in zip(curvatures, places, strict=True)
    ]
    np.testing.assert_allclose(family.hessians(curvatures, places), expected, rtol=1e-12)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("criterion", ["error", "log_loss"])
def test_sparse_data_is_worked_on_as_dense_data(direction, criterion, monkeypatch):
    """Few columns of sparse data are dense columns; many are left to products with its entries, on the same path."""
    X = scipy.sparse.random(80, 12, density=0.1, random_state=0, format="csr")
    y = X.toarray()[:, :4].sum(axis=1) + 0.1 * np.random.default_rng(0).normal(size=80) > 0.1
    options = {"cv": 4, "direction": direction, "criterion": criterion, "forced": True, "max_steps": 6}
    paths = []
    for most in (200, 3):
        monkeypatch.setattr("glru.updates.columns.folds.MAX_THIN", most)
        found = glru.stepwise(LogisticRegression(C=30.0), X, y, **options)
        assert found.certified and found.n_trainings == 0
        paths.append([step.columns for step in found.path])
    naive = glru.stepwise(LogisticRegression(C=30.0), X, y, **options, method="naive")
    assert paths[0] == paths[1] == [step.columns for step in naive.path]


def test_columns_without_a_penalty_are_left_to_others():
    folds, _ = make_folds(glru.Logistic(), "plain", 1.0, True)
    free = [fold.derive(penalty=glru.L2(np.array([0.0, 1.0, 1.0, 1.0, 1.0]))) for fold in folds]
    assert has_fold_columns(folds) and not has_fold_columns(free)


def test_models_far_from_an_optimum_are_not_kept():
    """Where columns in other units all but separate the classes, a step from the model with them leads anywhere."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 3)) * [1.0, 1e3, 30.0]
    y = X[:, 1] > 0.0
    folds, tests = [], [np.arange(k, 30, 3) for k in range(3)]
    for test in tests:
        weight = np.where(np.isin(np.arange(30), test), 0.0, 1.0)
        folds.append(glru.Problem(X, y, glru.Logistic(), glru.L2(1e-6), fit_intercept=True, sample_weight=weight))
    family, seen = steps_of(folds, tests, np.arange(3), np.arange(3), False)
    for member in range(3):
        for k, point in enumerate(family.points(member)):
            last = next(ends[k, list(who).index(member)] for who, _, ends, *_ in reversed(seen) if member in who)
            assert (point is not None) == bool(np.isfinite(last[0]))
    assert not all(point is not None for member in range(3) for point in family.points(member))


def test_first_columns_without_an_intercept():
    """From no columns at all, with targets that a single one separates."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(40, 4))
    y = X[:, 2] > 0.0
    problem = glru.Problem(X, y, glru.Logistic(), glru.L2(1e-5), fit_intercept=False)
    paths = [
        [step.columns for step in glru.stepwise(problem, direction="forward", cv=4, tol=1e-12, method=method).path]
        for method in ("certified", "naive")
    ]
    assert paths[0] == paths[1] and paths[0][0] == (2,)


def test_nothing_is_known_without_an_upper_end():
    """An infinite interval is no share of an infinite value: a path once ended there."""
    from glru.selection.criteria import find_criterion

    problem = make_folds(glru.Logistic(), "plain", 1.0, True)[0][0]
    for name in ("error", "log_loss", "aic"):
        criterion = find_criterion(name, problem)
        assert not criterion.is_known(1.0, 0.0, np.inf) and criterion.is_known(1e-6, 2.0, 2.0)


def _fractions(values):
    return np.array([Fraction(float(v)) for v in np.ravel(values)], dtype=object).reshape(np.shape(values))


def _squared_norm(matrix, vector):
    """``v^T H^-1 v`` by elimination."""
    table, found = np.column_stack([matrix, vector]), Fraction(0)
    for k in range(len(table)):
        found += table[k, -1] ** 2 / table[k, k]
        for i in range(k + 1, len(table)):
            table[i] = table[i] - table[i, k] / table[k, k] * table[k]
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("apart", [1e-3, 1e-5])
def test_a_column_that_comes_is_held_apart_no_more_than_is_said(apart, seed):
    """What of a new column the present ones do not span, and what the metric loses by the rest, with exact sums."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(24, 3))
    X[:, 1] = X[:, 0] + apart * X[:, 1]
    X[:, 2] = X[:, 0] - 3.0 * X[:, 1] + apart * X[:, 2]
    problem = glru.Problem(X, rng.normal(size=24), glru.Squared(), glru.L2(1e-14), scaling="sum")
    data = FoldData([problem], [np.arange(24)])
    family = FoldColumns(data, np.array([0, 1]), np.zeros((1, 2)), np.array([2]), True)
    exact, images, lam = _fractions(X), _fractions(family.images[0, 0]), Fraction(float(data.strengths[0, 0]))
    # Both are in units in which the weights are about 1.
    products = exact.T @ exact * Fraction(float(data.weights[0, 0, 0]))
    for j in range(3):
        products[j, j] += lam
    H, c, q = products[:2, :2], products[:2, 2], products[2, 2]
    rest = c - H @ images
    system = q - (c + rest) @ images
    assert Fraction(float(family.metric.system[0, 0])) <= system
    bordered = float(family.metric.bordered[0, 0])
    if np.isfinite(bordered):
        assert (1 - Fraction(bordered) ** 2) ** 2 >= _squared_norm(H, rest) / system


@pytest.mark.parametrize("judged", ["folds", "rows"])
def test_constant_columns_are_ties(judged):
    """Columns that are constant in all rows change no model beside an intercept: of these the first leaves, whatever rounding makes of their values."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 6))
    X[:, 2], X[:, 4] = 1e3, 0.0
    y = X @ np.array([2.0, -1.0, 0.0, 1.0, 0.0, 1.5]) + rng.normal(size=60)
    problem = glru.Problem(X[:40], y[:40], glru.Squared(), glru.L2(0.01), fit_intercept=True, scaling="sum")
    options = {"folds": {"cv": 4}, "rows": {"X_val": X[40:], "y_val": y[40:]}}[judged]
    found = glru.stepwise(problem, criterion="squared_error", forced=True, max_steps=2, **options)
    assert found.certified and [step.columns for step in found.path] == [(2,), (4,)]


def test_hessians_of_folds_end_with_the_time():
    """Neither those of the present models nor those of candidates are formed once the time is up."""
    random = np.random.default_rng(0)
    problem = glru.Problem(random.normal(size=(24, 3)), random.choice([-1.0, 1.0], 24), penalty=glru.L2(0.1))
    data = FoldData([problem], [np.arange(24)], _budget.Budget(100.0))
    family = FoldColumns(data, np.arange(3), np.zeros((1, 3)), np.arange(3), False)
    here, every = Evaluated(family, np.arange(3)), np.ones((1, 3), dtype=bool)
    data.budget.end = 0.0
    with pytest.raises(_budget.OutOfTime):
        here.step(every, every[0])
    with pytest.raises(_budget.OutOfTime):
        FoldColumns(data, np.arange(3), np.zeros((1, 3)), np.arange(3), False)


@pytest.mark.parametrize("cv", [[(np.arange(18), np.arange(18, 24))], 3])
def test_wide_folds_are_not_factored_over_their_columns(cv, monkeypatch):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(24, 60))
    y = np.sign(X[:, 0] + rng.normal(size=24))
    expected = glru.stepwise(LogisticRegression(), X, y, cv=cv, max_steps=2, method="naive")
    sizes, made = [], FoldColumns.__init__

    def note(self, data, chosen, *rest):
        sizes.append(len(chosen))
        made(self, data, chosen, *rest)

    monkeypatch.setattr(FoldColumns, "__init__", note)
    found = glru.stepwise(LogisticRegression(), X, y, cv=cv, max_steps=2)
    assert [step.columns for step in found.path] == [step.columns for step in expected.path]
    assert max(sizes, default=0) <= 24


def test_far_steps_from_no_columns():
    """Without an intercept there is nothing beside the column that comes."""
    rng = np.random.default_rng(14)
    X, y = 3.0 * rng.normal(size=(12, 20)), np.where(np.arange(12) % 2, 1.0, -1.0)
    X[:, 0] = 10.0 * y
    problem = glru.Problem(X, y, penalty=glru.L2(1e-4))
    cv = [(np.delete(np.arange(12), [k, k + 1]), np.array([k, k + 1])) for k in (0, 4, 8)]
    asked = {"cv": cv, "criterion": "log_loss", "direction": "forward", "max_steps": 2}
    found, expected = glru.stepwise(problem, **asked), glru.stepwise(problem, method="naive", **asked)
    assert [step.columns for step in found.path] == [step.columns for step in expected.path]
