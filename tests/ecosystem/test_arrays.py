"""Data in other array namespaces: the same answers, computed where the data lives, with bounds that hold there."""

import os
import subprocess
import sys
from itertools import product

import numpy as np
import pytest

import glru
from tests.cases import SINCE_1_8
from tests.core import HOST, as_matrix, conjugate_gradients, is_foreign, metrics, outward, to_host

strict = pytest.importorskip("array_api_strict")

LOSSES = [glru.Logistic(), glru.SquaredHinge(), glru.SmoothedHinge(0.5), glru.Squared(), glru.Huber(0.7)]


def _strict(array):
    # Not the device of the host: an array that is taken home without being asked to raises an error.
    return strict.asarray(np.array(array), device=strict.Device("device1"))


def _torch(array):
    return pytest.importorskip("torch").asarray(np.array(array))


def _torch_on_gpu(array):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    return torch.asarray(np.array(array), device="cuda")


def _cupy(array):
    return pytest.importorskip("cupy").asarray(np.array(array))


NAMESPACES = pytest.mark.parametrize("put", [_strict, _torch, _torch_on_gpu, _cupy])


def _data(seed, n_rows, n_columns, task="classification"):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n_rows, n_columns))
    score = X[:, 0] - X[:, 1] + 0.7 * random.normal(size=n_rows)
    return X, (score if task == "regression" else score > 0.1)


def _overlap(first, second):
    lower = np.maximum(first.score_lower, second.score_lower)
    return np.all(lower <= np.minimum(first.score_upper, second.score_upper))


@NAMESPACES
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_losses(put, loss):
    random = np.random.default_rng(0)
    y = random.choice([-1.0, 1.0], size=(40, 1))
    z = random.normal(size=(40, 7)) * np.geomspace(1e-3, 60.0, 7)
    slopes = loss.project(y, loss.gradient(y, z) + random.normal(size=z.shape) * np.geomspace(1e-6, 1.0, 7))
    for name in ("value", "gradient", "curvature"):
        there = getattr(loss, name)(put(y), put(z))
        np.testing.assert_allclose(to_host(there), getattr(loss, name)(y, z), rtol=1e-14, atol=1e-300)
    there = loss.fenchel_young(put(y), put(z), put(slopes))
    np.testing.assert_allclose(to_host(there), loss.fenchel_young(y, z, slopes), rtol=1e-6, atol=1e-20)
    outside = loss.fenchel_young(put(y), put(z), put(3.0 * slopes + y))
    np.testing.assert_array_equal(np.isinf(to_host(outside)), np.isinf(loss.fenchel_young(y, z, 3.0 * slopes + y)))
    np.testing.assert_array_equal(to_host(loss.project(y, put(3.0 * slopes))), loss.project(y, 3.0 * slopes))


@NAMESPACES
@pytest.mark.parametrize(("loss", "shape"), list(product(LOSSES, [(40, 6), (12, 20)])), ids=repr)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_leave_one_out(put, loss, shape, fit_intercept):
    X, y = _data(1, *shape, loss.task)
    options = {"loss": loss, "penalty": glru.L2(0.1), "fit_intercept": fit_intercept}
    ours, theirs = glru.Problem(X, y, **options), glru.Problem(put(X), put(y), **options)
    assert theirs.matrix.only_products and is_foreign(theirs.X)
    on_host, on_device = glru.loocv(ours), glru.loocv(theirs)
    assert _overlap(on_host, on_device)
    if loss.task == "classification":
        np.testing.assert_array_equal(on_host.bounds.signs, on_device.bounds.signs)
    assert not glru.verify(on_device, theirs, sample=3, digits=30).wrong


@NAMESPACES
@pytest.mark.parametrize("method", ["glru", "naive", "approx", "approx-glru"])
def test_methods_of_leave_one_out(put, method):
    X, y = _data(2, 30, 4)
    labels = [
        glru.loocv(glru.Problem(there, y, penalty=glru.L2(0.05)), method=method).bounds.signs for there in (X, put(X))
    ]
    np.testing.assert_array_equal(*labels)


@NAMESPACES
@pytest.mark.parametrize("scaling", ["mean", "sum"])
def test_weights_widths_and_strengths(put, scaling):
    X, y = _data(3, 40, 5)
    weight = np.random.default_rng(3).integers(0, 3, size=40)
    options = {"penalty": glru.L2(np.linspace(0.05, 0.5, 5)), "scaling": scaling}
    ours = glru.loocv(glru.Problem(X, y, sample_weight=weight, **options), width=1e-7)
    theirs = glru.loocv(glru.Problem(put(X), y, sample_weight=put(weight), **options), width=1e-7)
    assert np.all(theirs.score_upper - theirs.score_lower <= 1e-7)
    assert _overlap(ours, theirs)


@NAMESPACES
@pytest.mark.parametrize(
    ("shape", "direction", "criterion", "fit_intercept"),
    [
        ((50, 8), "backward", "error", False),
        ((50, 8), "backward", "log_loss", True),
        ((50, 8), "forward", "error", True),
        ((20, 30), "backward", "log_loss", False),
        ((20, 30), "forward", "log_loss", False),
    ],
)
def test_stepwise(put, shape, direction, criterion, fit_intercept):
    X, y = _data(4, shape[0] + 20, shape[1])
    options = {"direction": direction, "criterion": criterion, "max_steps": 3}
    found = []
    for move in (np.asarray, put):
        data = glru.Problem(move(X[20:]), y[20:], penalty=glru.L2(0.05), fit_intercept=fit_intercept)
        found.append(glru.stepwise(data, X_val=move(X[:20]), y_val=move(y[:20]), **options))
    assert [step.columns for step in found[0].path] == [step.columns for step in found[1].path]
    for ours, theirs in zip(found[0].path, found[1].path, strict=True):
        assert np.all(np.maximum(ours.lower, theirs.lower) <= np.minimum(ours.upper, theirs.upper))


@NAMESPACES
@pytest.mark.parametrize("method", ["glru", "naive"])
def test_other_methods_of_stepwise(put, method):
    X, y = _data(5, 40, 5)
    found = [
        glru.stepwise(
            glru.Problem(there[10:, :], y[10:], penalty=glru.L2(0.1)), X_val=there[:10, :], y_val=y[:10], method=method
        )
        for there in (X, put(X))
    ]
    np.testing.assert_array_equal(found[0].selected, found[1].selected)


@NAMESPACES
@pytest.mark.parametrize(
    "change",
    [
        glru.RemoveRows([3, 5]),
        glru.AddRows(np.eye(2, 6), [True, False]),
        glru.EditValues([1, 2], [0], [[0.5], [0.25]]),
        glru.RemoveColumns([2]),
        glru.AddColumns(np.linspace(-1.0, 1.0, 40)[:, None]),
    ],
    ids=lambda change: type(change).__name__,
)
@pytest.mark.parametrize("candidate", ["carry", "newton", "auto"])
def test_after(put, change, candidate):
    X, y = _data(6, 40, 6)
    bounds = []
    for there in (X, put(X)):
        solution = glru.solve(glru.Problem(there, y, penalty=glru.L2(0.1)), tol=1e-9)
        after = glru.after(solution, change, candidate=candidate)
        bounds.append(after.score_bounds(change.apply(glru.Problem(X, y, penalty=glru.L2(0.1))).X))
    assert np.all(np.maximum(bounds[0][0], bounds[1][0]) <= np.minimum(bounds[0][1], bounds[1][1]))
    np.testing.assert_allclose(bounds[0], bounds[1], rtol=1e-6, atol=1e-6)


@NAMESPACES
def test_folds_paths_and_checkpoints(put, tmp_path):
    X, y = _data(7, 40, 5)
    ours, theirs = (glru.Problem(there, y, penalty=glru.L2(0.05)) for there in (X, put(X)))
    np.testing.assert_array_equal(
        glru.cross_val_predict(ours, cv=4).bounds.signs, glru.cross_val_predict(theirs, cv=4).bounds.signs
    )
    paths = [glru.loocv_path(problem, [1.0, 0.1, 0.01]) for problem in (ours, theirs)]
    assert paths[0].best_lam == paths[1].best_lam
    first = glru.loocv(theirs, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(first.scores, glru.loocv(theirs, checkpoint=tmp_path / "run").scores)


@pytest.mark.parametrize("bad", ["cholesky", "solve_upper"])
def test_a_library_that_errs_widens_the_bounds(monkeypatch, bad):
    """What a device's library returns is checked by products: an inexact factor or solve costs width, not truth."""
    X, y = _data(8, 30, 5, "regression")
    problem = glru.Problem(_strict(X), y, loss=glru.Squared(), penalty=glru.L2(0.01), fit_intercept=True)
    solution = glru.solve(problem, tol=1e-10)
    good = glru.loocv(solution)
    right = getattr(metrics, bad)
    noise = 1.0 + 1e-5 * np.random.default_rng(8).uniform(-1.0, 1.0, size=(6, 6))
    monkeypatch.setattr(metrics, bad, lambda *args: right(*args) * _strict(noise))
    found = glru.updates.local_rows.LocalRows(solution, 30 / 29).bounds(np.arange(30))
    width = found[1] - found[0]
    assert np.all(width > 1e3 * (good.score_upper - good.score_lower))
    assert np.all(width < 0.1)
    assert np.all((found[0] <= good.score_lower) & (good.score_upper <= found[1]))


def _classes(seed, n_rows, n_columns, n_classes, units=1.0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n_rows, n_columns))
    scores = 1.5 * X @ random.normal(size=(n_columns, n_classes)) + random.gumbel(size=(n_rows, n_classes))
    return X * units, scores.argmax(axis=1)


@NAMESPACES
@pytest.mark.parametrize(
    ("shape", "units"), [((60, 4), 1.0), ((12, 20), 1.0), ((50, 3), np.array([1.0, 2.0**40, 2.0**-30]))]
)
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("scaling", ["mean", "sum"])
def test_leave_one_out_of_classes(put, shape, units, fit_intercept, scaling):
    X, y = _classes(3, *shape, 3, units)
    y[:6] = np.repeat(np.arange(3), 2)
    weights = np.where(np.arange(len(y)) % 7 == 3, 0.0, 1.0 + np.arange(len(y)) % 3)
    options = {"fit_intercept": fit_intercept, "scaling": scaling, "sample_weight": weights}
    options |= {"loss": glru.Multinomial(), "penalty": glru.L2(0.01 * np.square(units))}
    results = [
        glru.loocv(glru.Problem(data, y, **options), width=width) for data in (X, put(X)) for width in (1e-6, "labels")
    ]
    ours = glru.Problem(X, y, **options)
    naive = glru.loocv(ours, method="naive")
    for result in results:
        assert result.certified
        np.testing.assert_array_equal(result.labels, naive.labels)
        assert _overlap(result, results[0])
    assert np.max(results[2].bounds.width) <= 2e-6 * np.ptp(results[2].scores)


@NAMESPACES
def test_steps_with_hessians_of_their_own_for_classes(put):
    # Few rows and a weak penalty: a removal moves scores far, and the old Hessian serves badly.
    X, y = _classes(8, 24, 6, 3)
    options = {"loss": glru.Multinomial(), "penalty": glru.L2(1e-4), "fit_intercept": True}
    here, there = (glru.loocv(glru.Problem(data, y, **options), width="labels") for data in (X, put(X)))
    assert here.certified and there.certified and _overlap(here, there)
    np.testing.assert_array_equal(here.labels, there.labels)


@NAMESPACES
@pytest.mark.parametrize(
    "change", [glru.RemoveRows([1, 4]), glru.RemoveColumns([2]), glru.AddRows(np.eye(2, 4), [0, 2])]
)
def test_changes_of_classes(put, change):
    X, y = _classes(4, 50, 4, 3)
    options = {"loss": glru.Multinomial(), "penalty": glru.L2(0.01), "fit_intercept": True}
    queries = X[:9, :3] if isinstance(change, glru.RemoveColumns) else X[:9]
    here, there = (glru.after(glru.solve(glru.Problem(data, y, **options)), change) for data in (X, put(X)))
    np.testing.assert_array_equal(here.labels(queries), there.labels(queries))
    for ours, theirs in zip(here.coef_bounds(), there.coef_bounds(), strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-6)


@NAMESPACES
def test_folds_strengths_and_steps_of_classes(put):
    X, y = _classes(5, 60, 4, 3)
    options = {"loss": glru.Multinomial(), "penalty": glru.L2(0.01), "fit_intercept": True}
    here, there = (glru.Problem(data, y, **options) for data in (X, put(X)))
    assert len({glru.loocv_path(problem, [0.01, 0.1]).best_lam for problem in (here, there)}) == 1
    labels = [glru.cross_val_predict(problem, cv=3).labels for problem in (here, there)]
    np.testing.assert_array_equal(*labels)
    steps = [
        glru.stepwise(problem, X_val=problem.matrix.data, y_val=y, criterion="log_loss") for problem in (here, there)
    ]
    np.testing.assert_array_equal(*(result.selected for result in steps))


@pytest.mark.parametrize("bad", ["cholesky", "solve_upper"])
def test_a_library_that_errs_widens_the_bounds_of_classes(monkeypatch, bad):
    X, y = _classes(6, 40, 4, 3)
    solution = glru.solve(glru.Problem(_strict(X), y, loss=glru.Multinomial(), penalty=glru.L2(0.01)), tol=1e-10)
    good = glru.loocv(solution, width=1e-9)
    exact = glru.updates.class_rows.ClassRows(solution.problem, solution.point)
    right = getattr(metrics, bad)
    noise = 1.0 + 1e-5 * np.random.default_rng(8).uniform(-1.0, 1.0, size=(12, 12))
    monkeypatch.setattr(metrics, bad, lambda *args: right(*args) * _strict(noise))
    family = glru.updates.class_rows.ClassRows(solution.problem, solution.point)
    errors = [rows.metric.eta + rows.metric.solve_error for rows in (exact, family)]
    assert errors[0] < 1e-10 and errors[1] > 1e-7
    for steps in (0, 3):
        found = (
            family.refined(np.arange(40), y, lambda low, high: np.zeros(len(low), dtype=bool), steps)
            if steps
            else family.bounds(np.arange(40), y)
        )
        lower, upper = found[0][:, :3], found[1][:, :3]
        assert np.isfinite(lower).any() and np.all((lower <= good.score_upper) & (good.score_lower <= upper))


@NAMESPACES
def test_kernels_agree_with_the_array_path(put):
    random = np.random.default_rng(9)
    X, weights = random.normal(size=(3000, 50)), random.uniform(size=3000)
    v = random.uniform(size=50)
    here, there = as_matrix(X), as_matrix(put(X))
    np.testing.assert_allclose(here.squared_row_norms(), there.squared_row_norms(), rtol=1e-13)
    np.testing.assert_allclose(here.squared_column_norms(weights), there.squared_column_norms(weights), rtol=1e-13)
    np.testing.assert_allclose(here.absolute_product(v), there.absolute_product(v), rtol=1e-13)
    gram = to_host(there.column_gram(weights))
    np.testing.assert_allclose(np.triu(here.column_gram(weights)), np.triu(gram), rtol=1e-12, atol=1e-12)


def test_conjugate_gradients_solve():
    random = np.random.default_rng(10)
    root = random.normal(size=(6, 6))
    matrix, right = root.T @ root + np.eye(6), random.normal(size=(6, 3))
    right[:, 2] = 0.0
    found = conjugate_gradients(HOST, lambda v: matrix @ v, lambda v: v / np.diag(matrix)[:, None], right)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, right), rtol=1e-2, atol=1e-3)
    np.testing.assert_array_equal(found[:, 2], 0.0)


def test_steps_prove_what_the_closed_form_leaves_open():
    X, y = _data(11, 60, 12)
    solution = glru.solve(glru.Problem(X, y, penalty=glru.L2(1e-4)))
    family = glru.updates.local_rows.LocalRows(solution, 60 / 59)
    sharp = glru.updates.local_rows.LocalRows(family, 60 / 59)
    assert sharp.eta < family.eta
    rows = np.arange(60)
    never = lambda low, high: np.zeros(low.size, dtype=bool)  # noqa: E731
    lower, upper = sharp.refined(rows, never, 12)
    truth = glru.loocv(solution, width=1e-9)
    assert np.isfinite(lower).any()
    assert np.all((lower <= truth.score_upper) & (truth.score_lower <= upper))


@NAMESPACES
@pytest.mark.parametrize(
    ("problem", "rule"),
    [
        (lambda X, y: glru.Problem(X, y, loss=glru.Hinge()), "smooth loss"),
        (lambda X, y: glru.Problem(X, y, penalty=glru.L1(0.1)), "L2 penalty"),
    ],
)
def test_what_is_not_trained_on_a_device(put, problem, rule):
    X, y = _data(12, 20, 3)
    with pytest.raises(ValueError, match=rule):
        glru.solve(problem(put(X), y))


@NAMESPACES
def test_bad_data(put):
    X, y = _data(13, 20, 3)
    X[4, 1] = np.nan
    with pytest.raises(ValueError, match="row 4, column 1 is nan"):
        glru.Problem(put(X), y)
    with pytest.raises(ValueError, match="two-dimensional"):
        glru.Problem(put(X[:, 0]), y)
    with pytest.raises(ValueError, match="real"):
        glru.Problem(put(X + 1j), y)
    with pytest.raises(ValueError, match="host"):
        glru.LiveModel(glru.GLRUClassifier()).fit(put(np.nan_to_num(X)), y)


@NAMESPACES
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("shape", [(20, 3), (6, 12)])
def test_squares_that_overflow(put, shape):
    """No factor, no step, no proof, and no error."""
    X, y = _data(16, *shape)
    problem = glru.Problem(put(1e160 * X), y, penalty=glru.L2(1e-8))
    result = glru.loocv(problem, max_seconds=5.0)
    assert not np.isnan(result.score_lower).any()
    assert np.all(result.score_lower <= result.score_upper)


@NAMESPACES
def test_float32_is_converted(put):
    X, y = _data(14, 30, 4)
    X = X.astype(np.float32)
    labels = [glru.loocv(glru.Problem(there, y, penalty=glru.L2(0.1))).bounds.signs for there in (X, put(X))]
    np.testing.assert_array_equal(*labels)


def test_the_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "array_api_compat", None)
    with pytest.raises(ImportError, match="array-api-compat"):
        glru.Problem(_strict(np.eye(2)), [0, 1])


def test_numpy_needs_no_such_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "array_api_compat", None)
    for scalar in (np.float64(0.3), np.int64(2), np.bool_(True), 0.3):
        assert not is_foreign(scalar)
    assert glru.Logistic().fenchel_young(1.0, np.float64(0.3), -0.5) > 0.0
    X, y = _data(17, 30, 4)
    problem = glru.Problem(X, y, penalty=glru.L2(0.1), fit_intercept=True)
    solution = glru.solve(problem)
    assert glru.loocv(solution, width=1e-9).n_trainings == 0
    assert glru.after(solution, glru.RemoveRows([1])).determination_rate(X) > 0.5
    assert glru.stepwise(problem, X_val=X, y_val=y, max_steps=1).path


@NAMESPACES
def test_estimators_and_drop_ins_return_what_they_were_given(put):
    from sklearn.linear_model import LogisticRegression, RidgeClassifier

    X, y = _data(15, 40, 4)
    for model in (LogisticRegression(C=0.5), RidgeClassifier()):
        theirs = glru.cross_val_predict(model, put(X), put(y.astype(np.int64)), cv=4)
        assert is_foreign(theirs)
        np.testing.assert_array_equal(to_host(theirs), glru.cross_val_predict(model, X, y.astype(int), cv=4))


SCRIPT = """
import sys, numpy as np, sklearn, glru
from sklearn.utils.estimator_checks import check_array_api_input
import array_api_strict
from glru.linalg import is_foreign, to_host
for model in (glru.GLRUClassifier(), glru.GLRURegressor(), glru.GLRUClassifierCV(), glru.GLRURegressorCV()):
    check_array_api_input(type(model).__name__, model, "array_api_strict", None, "float64", check_values=True)
random = np.random.default_rng(0)
X = random.normal(size=(50, 4))
y = (X[:, 0] > 0.2).astype(np.int64)
with sklearn.config_context(array_api_dispatch=True):
    there = array_api_strict.asarray(X)
    model = glru.GLRUClassifier().fit(there, array_api_strict.asarray(y))
    for result in (model.coef_, model.classes_, model.predict(there), model.predict_log_proba(there)):
        assert is_foreign(result)
    assert np.array_equal(to_host(model.predict(there)), glru.GLRUClassifier().fit(X, y).predict(X))
    assert model.loocv().n_errors == glru.GLRUClassifier().fit(X, y).loocv().n_errors
    assert model.needs_retraining(there, remove=[3]).verdict in ("yes", "no", "undetermined")
"""


@pytest.mark.skipif(
    not SINCE_1_8, reason="scikit-learn before 1.8 checks by a standard of arrays without scalars in where"
)
def test_estimators_pass_the_array_checks_of_scikit_learn():
    """In a process of its own: SciPy reads the switch for array namespaces when it is imported."""
    pytest.importorskip("sklearn.utils.estimator_checks").check_array_api_input  # noqa: B018
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr


@NAMESPACES
def test_outward_is_at_least_the_next_number(put):
    values = np.array([0.0, 5e-324, -3e-310, 2.2e-308, 1.0, -1.0, 1.0 - 2**-53, 3.3, -1e300, 1.7e308])
    there = put(values)
    assert np.all(to_host(outward(there, np.inf)) >= np.nextafter(values, np.inf))
    assert np.all(to_host(outward(there, -np.inf)) <= np.nextafter(values, -np.inf))
    assert np.all(outward(values, np.inf) >= np.nextafter(values, np.inf))
    assert np.all(outward(values, -np.inf) <= np.nextafter(values, -np.inf))
