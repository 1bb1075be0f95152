"""Losses with a log link: offsets, no penalty at all, and hostile data, against retraining in 50 digits."""

import warnings
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import glru
from glru.verify.precise import precise, precise_problem
from glru.verify.retraining import retrain
from tests.cases import each
from tests.core import LocalEllipsoid, ScoreBounds

LOSSES = {
    "poisson": glru.Poisson(),
    "gamma": glru.Gamma(),
    "tweedie": glru.Tweedie(1.3),
    "negative-binomial": glru.NegativeBinomial(1.5),
    "binomial": glru.losses.Binomial(),
}

every_loss = each(LOSSES, "loss")


def data(loss, n=14, d=2, seed=0, scale=1.0, spread=0.5):
    """Rows, targets and offsets; some targets are zero where the loss accepts that."""
    random = np.random.default_rng(seed)
    X, offset = random.normal(size=(n, d)), spread * random.normal(size=n)
    y = random.poisson(scale * np.exp(0.5 * X[:, 0] + offset)).astype(float)
    if loss.link == "logit":
        y = y / (y + random.poisson(scale, n) + 1.0)
    return X, y + 0.5 if isinstance(loss, glru.Gamma) else y, offset


@every_loss
@pytest.mark.parametrize("lam", [0.0, 1e-3, 10.0])
@pytest.mark.parametrize("spread", [0.0, 0.5, 10.0])
def test_held_out_scores_hold_in_50_digits(loss, lam, spread):
    X, y, offset = data(loss, scale=3.0, spread=spread)
    problem = glru.Problem(X, y, loss, glru.L2(lam), fit_intercept=True, offset=offset if spread else None)
    result = glru.loocv(problem)
    found = glru.verify(result, problem, sample=3)
    assert (found.n_wrong, found.checked) == (0, 3)
    assert result.bounds.width.max() <= 1e-6


@every_loss
def test_folds_and_changes_hold_in_50_digits(loss):
    X, y, offset = data(loss, scale=3.0)
    problem = glru.Problem(X, y, loss, glru.L2(0.01), scaling="sum", offset=offset)
    folds, other = glru.cross_val_predict(problem, cv=3), 1.0 if loss.link == "logit" else 7.0
    assert glru.verify(folds, problem, sample=3).n_wrong == 0
    changes = (
        glru.RemoveRows([1, 5]),
        glru.AddRows(X[:2] + 1.0, np.minimum(y[:2] + 2.0, other), offset=[0.3, -2.0]),
        glru.Relabel([3], [other]),
        glru.Reweight([0], 4.0),
        glru.Repenalise(glru.L2(0.0)),
    )
    solution = glru.solve(problem, tol=1e-10)
    for change in changes:
        out = glru.after(solution, change)
        found = glru.verify(out, problem, queries=X[:2], sample=None)
        assert found.n_wrong == 0 and found.checked > 10
        lower, upper = out.score_bounds(X[:2])
        assert np.all(upper - lower < 1e-3)


@every_loss
@pytest.mark.parametrize("scale", [1e-3, 1e8])
def test_tiny_and_huge_means(loss, scale):
    """Counts of a hundred million, and all targets zero but a few."""
    X, y, offset = data(loss, 16, 2, seed=3, scale=scale)
    y[:2] = 1.0 if loss.link == "logit" else y[:2] + 1.0
    problem = glru.Problem(X, y, loss, glru.L2(0.1), fit_intercept=True, offset=offset)
    result = glru.loocv(problem)
    assert glru.verify(result, problem, sample=4).n_wrong == 0
    assert np.isfinite(result.bounds.width).mean() > 0.9


@every_loss
def test_scores_contain_offsets_and_offsets_are_added_to_scores(loss):
    """A constant offset is an intercept; the held-out score of a row contains it."""
    X, y, _ = data(loss, 20, 2, scale=4.0)
    plain = glru.Problem(X, y, loss, glru.L2(0.1), fit_intercept=True)
    moved = glru.Problem(X, y, loss, glru.L2(0.1), fit_intercept=True, offset=np.full(20, 0.75))
    first, second = glru.solve(plain, tol=1e-12), glru.solve(moved, tol=1e-12)
    np.testing.assert_allclose(first.coef, second.coef, atol=1e-5)
    assert first.intercept == pytest.approx(second.intercept + 0.75, abs=1e-5)
    np.testing.assert_allclose(glru.loocv(plain).bounds.middle, glru.loocv(moved).bounds.middle, atol=2e-6)
    np.testing.assert_array_equal(moved.targets, y)
    np.testing.assert_array_equal(moved.offset, 0.75)


@pytest.mark.parametrize("factor", [2.0**-600, 2.0**600])
def test_objectives_of_any_size(factor):
    """The same objective times a power of two has intervals of the same scores, as narrow."""
    X, y, offset = data(glru.Poisson(), 20, 3, scale=4.0)

    def bounds(times):
        penalty, weight = glru.L2(0.1 * times), np.full(20, times)
        return glru.loocv(
            glru.Problem(X, y, glru.Poisson(), penalty, True, "sum", sample_weight=weight, offset=offset)
        ).bounds

    (lower, upper), (least, most) = bounds(factor), bounds(1.0)
    assert np.all(lower <= most) and np.all(least <= upper)
    assert np.all(upper - lower <= 1e-6)


def test_a_group_without_a_count_has_no_optimum():
    """It is said, and no number is returned."""
    X, y, _ = data(glru.Poisson(), 20, 1, scale=4.0)
    group = np.repeat([0.0, 1.0], 10)
    y[10:] = 0.0
    problem = glru.Problem(np.column_stack([X, group]), y, glru.Poisson(), glru.L2(0.0), fit_intercept=True)
    with pytest.warns(ConvergenceWarning, match="No optimum exists: .* rows with y = 0 can move on for ever"):
        solution = glru.solve(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not np.isfinite(glru.loocv(solution).bounds.width).any()


def test_dependent_columns_without_a_penalty():
    X, y, _ = data(glru.Poisson(), 20, 2, scale=4.0)
    problem = glru.Problem(np.column_stack([X, X[:, 0] - X[:, 1]]), y, glru.Poisson(), glru.L2(0.0))
    with pytest.warns(ConvergenceWarning, match="The optimum is not unique"):
        solution = glru.solve(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not np.isfinite(glru.loocv(solution).bounds.width).any()


def test_offsets_are_refused_where_they_have_no_meaning():
    X, y, offset = data(glru.Poisson())
    with pytest.raises(ValueError, match=r"offset needs a loss with a log or logit link .* Subtract it from y"):
        glru.Problem(X, y, glru.Squared(), offset=offset)
    with pytest.raises(ValueError, match="offset must be at most 500 in size; entry 0 is 1000"):
        glru.Problem(X, y, glru.Poisson(), offset=offset + np.where(np.arange(14) == 0, 1000.0 - offset, 0.0))
    problem = glru.Problem(X, y, glru.Poisson(), offset=offset)
    with pytest.raises(ValueError, match="new rows must have an offset if the problem has one"):
        glru.after(glru.solve(problem), glru.AddRows(X[:1], y[:1]))
    with pytest.raises(ValueError, match=r"validation rows cannot have.* Use cv"):
        glru.stepwise(problem, X_val=X, y_val=y, criterion="deviance")


@pytest.mark.parametrize(
    ("loss", "size", "offsets"), [(glru.Poisson(), 18.0, 0.0), (glru.Gamma(), 0.0, 490.0)], ids=["counts", "offsets"]
)
def test_rounding_of_slopes_that_cancel(loss, size, offsets):
    """Where the model fits perfectly a slope is all rounding: of an exponential that is large, of a sum with a large offset."""
    for seed in range(12):
        random = np.random.default_rng(seed)
        X, offset = random.normal(size=(6, 2)), offsets * random.uniform(-1.0, 0.4, 6)
        y = np.exp(X @ [0.5, -0.25] + size + offset)
        problem = glru.Problem(X, y, loss, glru.L2(0.0), fit_intercept=True, offset=offset if offsets else None)
        point = glru.Point(np.array([0.5, -0.25]), size)
        exact = precise_problem(problem, 50)
        mp = exact.mp
        slopes, curvatures = exact.slopes(exact.scores(precise(mp, point.coef) / exact.scales, mp.mpf(size)))
        design = np.column_stack([exact.X, np.full(6, mp.one, dtype=object)])
        gradient = mp.matrix(list(design.T @ (exact.weights * slopes)))
        hessian = mp.matrix((design.T @ ((exact.weights * curvatures)[:, None] * design)).tolist())
        norm = mp.sqrt((gradient.T * mp.lu_solve(hessian, gradient))[0])
        nu = LocalEllipsoid.at(problem, point).nu
        assert norm <= nu <= 1e-8 * np.sqrt(float(problem.weights @ y if size else 1.0))


@pytest.mark.parametrize("loss", [glru.Gamma(), glru.Tweedie(1.99)])
def test_tiny_targets_beyond_the_largest_exponential(loss):
    """The exponential of a score of -700 is cut off; its product with a target of 1e-305 is an ordinary number."""
    rest = 2.0 - (loss.power if isinstance(loss, glru.Tweedie) else 2.0)
    target, score = mpmath.mpf(1e-305), -700
    with mpmath.workdps(40):
        lam = float((target * mpmath.exp(-(rest - 1) * score) - mpmath.exp(rest * score)) / score)

        def slope(w):
            return mpmath.mpf(lam) * w + mpmath.exp(rest * w) - target * mpmath.exp((rest - 1) * w)

        exact = mpmath.findroot(slope, (-690, -710), solver="anderson")
    problem = glru.Problem(np.ones((3, 1)), np.full(3, 1e-305), loss=loss, penalty=glru.L2(lam))
    lower, upper = glru.loocv(problem).bounds
    assert np.all(lower <= upper)
    assert lower[0] <= exact <= upper[0]


def test_deviance_near_the_best_score():
    """A score in the interval has a deviance in its bounds, also where the best score lies just outside."""
    y = np.array([1.0 + 1e-8])
    lower, upper = ScoreBounds(np.array([-1.0]), np.array([0.0])).metric("deviance", glru.Poisson(), y)
    with mpmath.workdps(40):
        target = mpmath.mpf(float(y[0]))
        deviance = 2 * (target * mpmath.log(target) - target + 1)
    assert lower <= deviance <= upper


def test_a_few_unpenalised_columns_that_depend_on_each_other():
    """Many optima: the training says that it has certified none of them."""
    random = np.random.default_rng(0)
    X = random.normal(size=(12, 2))
    y = random.poisson(2.0, 12).astype(float)
    with pytest.warns(ConvergenceWarning):
        solution = glru.solve(
            glru.Problem(np.column_stack([X, X[:, 0]]), y, loss=glru.Poisson(), penalty=glru.L2([0.0, 0.1, 0.0]))
        )
    assert solution.status != "converged"


@pytest.mark.parametrize(("targets", "weights"), [(0, 0), (-340, -430), (-300, -500)])
def test_squares_of_tiny_slopes_that_underflow_keep_their_rounding(targets, weights):
    """Means of 2^-340 next to weights of 2^-430: squares of weighted slopes are zero in float64, the errors of gradients are not."""
    wrong = 0
    for seed in range(3):
        random = np.random.default_rng(seed)
        offset = targets * np.log(2.0) + random.normal(size=30)
        problem = glru.Problem(
            random.normal(size=(30, 1)),
            random.poisson(np.exp(random.normal(size=30))) * 2.0**targets,
            glru.Poisson(),
            glru.L2(0.0),
            fit_intercept=False,
            scaling="sum",
            sample_weight=np.full(30, 2.0**weights),
            offset=offset,
        )
        solution = glru.solve(problem)
        for row in range(0, 30, 10):
            truth = retrain(problem.without(np.array([row])), 60)
            if truth is None:  # its Newton steps ended above its own tolerance
                continue
            lower, upper = glru.after(solution, glru.RemoveRows([row])).coef_bounds()
            wrong += not lower[0] <= truth.coef[0] <= upper[0]
            for units in range(-8, 9):
                place = glru.Point(np.array([float(truth.coef[0]) * (1.0 + units * 2.0**-52)]))
                lower, upper = LocalEllipsoid.at(problem.without(np.array([row])), place).coef_bounds()
                assert upper[0] - lower[0] < 1e-9
                wrong += not lower[0] <= truth.coef[0] <= upper[0]
    assert wrong == 0


@pytest.mark.parametrize(("loss", "sign"), [(glru.Poisson(), 1.0), (glru.Gamma(), -1.0)], ids=["poisson", "gamma"])
def test_exponentials_that_are_cut_off_are_no_ends(loss, sign):
    """A row without weight whose score is near 694: its derivative is e^694, beyond what exponentials are cut off at."""
    y = np.array([3.0, 2.5, 3.5, 1.0]) if sign > 0.0 else np.array([1.0 / 3.0, 0.3, 11.0 / 30.0, 1.0])
    X = np.array([[1.0], [1.0], [1.0], [632.0]])
    problem = glru.Problem(X, y, loss, glru.L2(1e-3), scaling="sum", sample_weight=[1.0, 1.0, 1.0, 0.0])
    out = glru.after(glru.solve(problem, tol=1e-14), glru.Reweight([0], 1.5))
    found = glru.verify(out, problem, queries=X, sample=None)
    assert found.n_wrong == 0
    lower, upper = out.dual_bounds()
    size = float(np.exp(692.0))
    assert lower[3] <= -size if sign > 0.0 else upper[3] >= size
    influence = glru.influence(problem)
    lower, upper = influence.measure_bounds("deletion_residual")
    assert lower[3] <= -size if sign > 0.0 else upper[3] >= size
    ends = np.sort(sign * np.array([694.0, 694.1]))
    lower, upper = ScoreBounds(ends[:1], ends[1:]).metric("deviance", loss, np.ones(1))
    assert lower <= 2.0 * np.exp(694.0) and 2.0 * np.exp(694.1) <= upper


@pytest.mark.parametrize("power", [1.99, 1.01])
@pytest.mark.parametrize("seed", range(6))
def test_the_proven_gap_is_honest_where_exponentials_are_far_apart(power, seed):
    """Offsets of -100 to 100: the solver's own gap ends the training, and the proven one, infinite if need be, is never below the true one."""
    random, mp = np.random.default_rng(seed), mpmath.mp
    mp.dps = 60
    X, offset = random.normal(size=(10, 1)), random.uniform(-100.0, 100.0, 10)
    y = np.where(random.random(10) < 0.3, 0.0, random.gamma(1.0, 1.0, 10))
    lam = float(random.choice([1e-6, 1e-3, 1.0]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = glru.solve(glru.Problem(X, y, glru.Tweedie(power), glru.L2(lam), scaling="sum", offset=offset))
    a, b = 2 - mp.mpf(power), mp.mpf(power) - 1
    rows = [tuple(map(mp.mpf, row)) for row in zip(X[:, 0].tolist(), y.tolist(), offset.tolist(), strict=True)]

    def value(w):
        parts = (
            mp.exp(a * (x * w + o)) / a + (t * mp.exp(-b * (x * w + o)) / b - t**a / (a * b) if t else 0)
            for x, t, o in rows
        )
        return sum(parts) + mp.mpf(lam) * w * w / 2

    def slope(w):
        return mp.mpf(lam) * w + sum(x * (mp.exp(a * (x * w + o)) - t * mp.exp(-b * (x * w + o))) for x, t, o in rows)

    low, high = mp.mpf(-1000), mp.mpf(1000)
    for _ in range(220):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    here = value(mp.mpf(float(solution.coef[0])))
    excess = here - value(low)
    assert excess <= solution.gap
    assert solution.status != "converged" or excess <= 2e-6 * here


def test_ends_of_dual_variables_of_shares_are_rounded_outward():
    """The dual variable of a share y is above y - 1, which float64 may round up."""
    random = np.random.default_rng(0)
    y = np.append(random.random(30) * 1e-6, [0.0, 1.0])
    X = random.normal(size=(y.size, 2))
    problem = glru.Problem(X, y, glru.losses.Binomial(), glru.L2(1e-9))
    solution = glru.solve(problem, max_iter=1, tol=0.5)
    lower, upper = glru.after(solution, glru.RemoveRows([31]), candidate="carry", bound="primal").dual_bounds()
    ends = [Fraction(share) - 1 for share in y[:31]]
    assert any(Fraction(low) < end for low, end in zip(lower, ends, strict=True))
    assert all(Fraction(low) <= end or low > float(end) + 1e-9 for low, end in zip(lower, ends, strict=True))
    assert np.all(upper <= y[:31])


@every_loss
def test_unpenalised_columns_of_any_units_have_a_proven_gap(loss):
    """The dual constraints of unpenalised columns are met whatever their units; one column belongs to a single row."""
    X, y, offset = data(loss, n=40, d=4, seed=3)
    X[:, 3], y[5] = np.arange(40) == 5, 0.5
    units = 10.0 ** np.array([-6.0, 3.0, 8.0, 0.0])
    for columns in (X, X * units):
        problem = glru.Problem(columns, y, loss=loss, penalty=glru.L2(0.0), fit_intercept=True, offset=offset)
        solution = glru.solve(problem, tol=1e-8)
        assert solution.status == "converged" and solution.gap <= 2e-8 * solution.primal_value


def test_a_model_that_is_refined_alone_is_not_trained():
    """Rows that move the others far: Newton steps with Hessians of their own are a stage before trainings."""
    random = np.random.default_rng(0)
    X = random.normal(size=(80, 4)) * 10.0 ** np.array([-5.0, 0.0, 3.0, 6.0])
    X[:6] *= 40.0
    y = random.poisson(np.exp(X @ (np.array([2.0, -1.6, 1.2, 0.8]) / np.abs(X).max(axis=0)))).astype(float)
    y[:3] = random.poisson(20.0, 3)
    problem = glru.Problem(X, y, loss=glru.Poisson(), penalty=glru.L2(0.0), fit_intercept=True, scaling="sum")
    result = glru.influence(problem)
    assert result.n_trainings == 0 and "open" not in result.decided_by and result.decided_by["refine"] > 1
    row = int(result.top(1).rows[0])
    lower, upper = result.dfbeta([row])
    whole, without = retrain(problem, 40), retrain(problem.without(np.array([row])), 40)
    for k in range(4):
        assert lower[0][k] <= whole.coef[k] - without.coef[k] <= upper[0][k]
