"""Leave-one-out in passes over blocks, against retraining and against leave-one-out in memory."""

import numpy as np
import polars as pl
import pytest

import glru
from tests.cases import LOSSES, each
from tests.certificates.exact import optimum, outside
from tests.core import local_rows
from tests.core import removal_blocks as module
from tests.decisions.retraining import assert_inside, derived, held_out
from tests.rows.data import SHAPES, in_blocks, make, mapped

LOCAL = {name: LOSSES[name] for name in ("logistic", "squared")}
CARRIED = {name: LOSSES[name] for name in ("huber", "squared-hinge", "smoothed-hinge")}
PLAIN = {name: shape for name, shape in SHAPES.items() if not shape.get("fit_intercept")}


def assert_result(result, scores, off, n_rows):
    """Intervals hold the retrained scores; labels, counts and stages agree with them."""
    assert_inside(scores, off, result.score_lower, result.score_upper)
    assert sum(result.decided_by.values()) == n_rows
    for stage, number in result.decided_by.items():
        assert np.sum(result.stages == stage) == number
    if result.labels is not None:
        y = result.rows.y
        assert result.errors_lower == np.sum((result.bounds.signs != 0) & (result.bounds.signs != y))
        assert result.errors_upper == np.sum(result.bounds.signs != y)
        assert np.all(result.stages[result.bounds.signs == 0] == "undetermined")


@each(SHAPES, "shape")
@each(LOCAL, "loss")
def test_bounds_hold_the_retrained_scores(loss, shape, tmp_path):
    for lam, tol in ((0.3, 1e-8), (0.01, 1e-8), (0.05, 1e-2)):
        problem = make(loss, glru.L2(lam), seed=3, **shape)
        scores, off = held_out(glru.solve(problem, tol=1e-10))
        off = np.minimum(off, 1e-9 * (1.0 + np.abs(scores)))
        solution = glru.solve(in_blocks(tmp_path, problem), tol=tol)
        for width in (None, 1e-3, 1e-9):
            assert_result(glru.loocv(solution, width=width), scores, off, problem.n_rows)
        trained = glru.loocv(solution, width=1e-6, max_trainings=5)
        assert_result(trained, scores, off, problem.n_rows)
        assert trained.n_trainings <= 5


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("max_iter", [1, 2, 3])
def test_bounds_hold_where_the_base_is_several_steps_away(max_iter, tmp_path):
    """Curvatures fall from step to step here, so that no norm in the metric of one step bounds those of the next."""
    random = np.random.default_rng(0)
    X = random.choice([-1.0, 1.0], size=(300, 1)) * random.uniform(0.9, 1.1, size=(300, 1))
    y = X[:, 0] > 0.0
    y[[5, 100]] ^= True
    problem = glru.Problem(X, y, penalty=glru.L2(1e-4), fit_intercept=True)
    known = glru.loocv(glru.solve(problem, tol=1e-12), width=1e-6)
    found = glru.loocv(glru.solve(in_blocks(tmp_path, problem), max_iter=max_iter))
    assert np.all(found.score_lower <= known.score_upper)
    assert np.all(known.score_lower <= found.score_upper)


@each(SHAPES, "shape")
@each(LOCAL | CARRIED, "loss")
def test_bounds_against_60_digits(loss, shape, tmp_path):
    """Bounds as narrow as rounding allows, and the first pass's, which are of another make."""
    if loss.self_concordance is None and shape.get("fit_intercept"):
        pytest.skip("no leave-one-out of this loss with an intercept")
    problem = make(loss, glru.L2(0.02), seed=4, **shape)
    solution = glru.solve(in_blocks(tmp_path, problem), tol=1e-4)
    results = [glru.loocv(solution, width=width) for width in (np.inf, 1e-13)]
    for row in (2, 5, 11):
        weight = problem.sample_weight.copy()
        weight[row] = 0.0
        best = optimum(derived(problem, weight), solution.coef, solution.intercept, ideal_weights=True)
        assert best is not None
        for result in results:
            query = problem.X[row : row + 1]
            assert not outside(best.scores(query), result.score_lower[row], result.score_upper[row])


@each(PLAIN, "shape")
@each(CARRIED, "loss")
def test_carried_bounds_hold_the_retrained_scores(loss, shape, tmp_path):
    for tol in (1e-8, 1e-2):
        problem = make(loss, glru.L2(0.3), seed=3, **shape)
        scores, off = held_out(glru.solve(problem, tol=1e-10))
        result = glru.loocv(in_blocks(tmp_path, problem), tol=tol)
        assert_result(result, scores, off, problem.n_rows)
        assert set(result.decided_by) <= {"carry", "undetermined"}


@pytest.mark.parametrize("density", [1.0, 0.3])
def test_carried_bounds_are_those_of_memory(density, tmp_path, monkeypatch):
    """The same formulas; the dual point of the model's own derivatives is another than the solver's, hardly."""
    da = pytest.importorskip("dask.array")
    assert da is not None
    from tests.core import bound_carried
    from tests.rows.data import dask_blocks

    monkeypatch.setattr(local_rows, "MAX_COLUMNS", 0)
    problem = make(glru.Logistic(), glru.L2(0.1), 60, 8, density=density, seed=2)
    result = glru.loocv(dask_blocks(problem, (20, 25, 15)), tol=1e-12)
    assert set(result.decided_by) <= {"carry", "undetermined"}
    lower, upper = bound_carried(glru.solve(problem, tol=1e-15), "midpoint")
    np.testing.assert_allclose(result.score_lower, lower, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(result.score_upper, upper, rtol=1e-4, atol=1e-4)


@each(SHAPES, "shape")
@each(LOCAL, "loss")
def test_labels_are_those_of_memory(loss, shape, tmp_path):
    problem = make(loss, glru.L2(0.02), seed=5, **shape)
    ours = glru.loocv(in_blocks(tmp_path, problem), max_trainings=40)
    memory = glru.loocv(problem)
    assert np.all(ours.score_lower <= memory.score_upper)
    assert np.all(memory.score_lower <= ours.score_upper)
    if ours.labels is not None:
        known = ours.bounds.signs != 0
        assert np.array_equal(ours.bounds.signs[known], memory.bounds.signs[known])
        assert np.sum(~known) <= 1


def test_large_data_is_decided_by_the_first_pass(tmp_path):
    problem = make(glru.Logistic(), glru.L2(1e-3), 20_000, 5)
    blocks = in_blocks(tmp_path, problem, 7)
    solution = glru.solve(blocks)
    result = glru.loocv(solution)
    assert result.n_passes <= 3.0
    assert result.n_undetermined == 0
    assert result.decided_by["local"] >= 19_990
    memory = glru.loocv(problem)
    assert np.array_equal(result.bounds.signs, memory.bounds.signs)
    assert result.n_errors == memory.n_errors
    for name in ("accuracy", "log_loss"):
        low, high = result.metric_bounds(name)
        other = memory.metric_bounds(name)
        assert low <= other[1] and other[0] <= high


def test_open_rows_are_stepped_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MODELS_AT_ONCE", 3)
    problem = make(glru.Logistic(), glru.L2(0.05), 60, 3, seed=3, fit_intercept=True)
    result = glru.loocv(in_blocks(tmp_path, problem), width=1e-8)
    assert result.decided_by["newton"] > 50
    assert np.all((result.score_upper - result.score_lower)[result.stages == "newton"] <= 1e-8)
    scores, off = held_out(glru.solve(problem, tol=1e-12))
    assert_inside(scores, np.minimum(off, 1e-9), result.score_lower, result.score_upper)


def test_results_in_files(tmp_path):
    problem = make(glru.Logistic(), glru.L2(0.01), 200, 3, seed=3)
    blocks = in_blocks(tmp_path, problem, 5)
    solution = glru.solve(blocks)
    kept, written = glru.loocv(solution), glru.loocv(solution, output=tmp_path / "out")
    assert (written.errors_lower, written.errors_upper) == (kept.errors_lower, kept.errors_upper)
    assert written.decided_by == kept.decided_by
    frame = pl.read_parquet(tmp_path / "out" / "part-*.parquet").sort("row")
    assert len(list((tmp_path / "out").iterdir())) == 5
    assert np.array_equal(frame["row"], np.arange(200))
    assert np.array_equal(frame["y"], kept.rows.y)
    assert np.array_equal(frame["decided_by"], kept.stages)
    np.testing.assert_allclose(frame["score_lower"], kept.score_lower, rtol=1e-12)
    np.testing.assert_allclose(frame["score_upper"], kept.score_upper, rtol=1e-12)
    with pytest.raises(ValueError, match="not in memory"):
        _ = written.score_lower
    with pytest.raises(ValueError, match=r"holds 'part-000000\.parquet', results of an earlier run"):
        glru.loocv(solution, output=tmp_path / "out")
    assert "200 rows in 5 blocks" in repr(written)


def test_files_hold_what_later_stages_found(tmp_path):
    problem = make(glru.Squared(), glru.L2(0.01), 30, 3, seed=3)
    problem = problem.derive(loss=glru.Logistic(), y=np.where(problem.y > 0.0, 1.0, -1.0))
    solution = glru.solve(in_blocks(tmp_path, problem, 4))
    kept, written = (glru.loocv(solution, width=1e-7, output=place) for place in (None, tmp_path / "out"))
    frame = pl.read_parquet(tmp_path / "out" / "*.parquet").sort("row")
    assert kept.decided_by["newton"] > 0
    assert written.decided_by == kept.decided_by
    assert np.array_equal(frame["decided_by"], kept.stages)
    np.testing.assert_allclose(frame["score_lower"], kept.score_lower, rtol=1e-9)


def test_open_labels_in_files_are_counted(tmp_path):
    """Intervals may be as narrow as was asked for and leave their labels open all the same."""
    problem = make(glru.Logistic(), glru.L2(0.003), 60, 3, seed=3)
    solution = glru.solve(in_blocks(tmp_path, problem, 4))
    for k, width in enumerate((1.0, 1e-7)):
        kept, written = (glru.loocv(solution, width=width, output=place) for place in (None, tmp_path / f"out{k}"))
        assert written.n_undetermined == kept.n_undetermined
        assert (kept.n_undetermined > 0) == (width == 1.0)
        assert "undetermined" not in written.decided_by


def test_time_is_up(tmp_path):
    """The pass of bounds runs in any case; what it leaves open stays so."""
    problem = make(glru.Logistic(), glru.L2(0.01), 30, 3, seed=3)
    result = glru.loocv(in_blocks(tmp_path, problem), width=1e-9, max_seconds=1e-9, max_trainings=9)
    assert result.n_trainings == 0
    assert set(result.decided_by) <= {"local", "undetermined"}
    scores, off = held_out(glru.solve(problem, tol=1e-12))
    assert_inside(scores, off, result.score_lower, result.score_upper)


def test_progress_is_reported(tmp_path):
    calls = []
    problem = make(glru.Logistic(), glru.L2(0.01), 30, 3, seed=3)
    glru.loocv(in_blocks(tmp_path, problem), progress=lambda *call: calls.append(call))
    assert calls[0][0] == "local"
    assert all(total == 30 for _, _, total in calls)


def test_what_cannot_be_validated_is_refused(tmp_path):
    problem = make(glru.Huber(), glru.L2(0.1), 12, 2, fit_intercept=True)
    with pytest.raises(ValueError, match="logistic or squared loss"):
        glru.loocv(in_blocks(tmp_path, problem))
    problem = make(glru.Logistic(), glru.L2(0.1), 12, 2)
    blocks = in_blocks(tmp_path, problem)
    for options in ({"method": "naive"}, {"bound": "dual"}):
        with pytest.raises(ValueError, match="'certified'"):
            glru.loocv(blocks, **options)
    with pytest.raises(ValueError, match="width"):
        glru.loocv(blocks, width=0.0)
    with pytest.raises(ValueError, match="max_trainings"):
        glru.loocv(blocks, max_trainings=-1)
    with pytest.raises(TypeError, match="checkpoint"):
        glru.loocv(blocks, checkpoint="file")
    X = mapped(tmp_path, np.arange(8.0).reshape(4, 2), "few")
    with pytest.raises(ValueError, match=r"the class 1(\.0)? is gone"):
        glru.loocv(glru.Problem(X, [0, 0, 0, 1], fit_intercept=True))
    with pytest.raises(ValueError, match="at least two rows"):
        glru.loocv(glru.Problem(X, [0, 0, 1, 1], sample_weight=[1, 0, 0, 0]))
    regression = glru.loocv(glru.Problem(X, [0.5, 1.0, 2.0, 3.0], loss=glru.Squared()))
    with pytest.raises(ValueError, match="no error count"):
        _ = regression.n_errors


@pytest.mark.parametrize("fit_intercept", [False, True], ids=["", "intercept"])
def test_sums_that_cancel_against_60_digits(fit_intercept, tmp_path):
    """Large residuals that are all but orthogonal to the columns, those of one sign first: the gradient is rounding.

    The rows asked about have none, so that their removals move the model by no more than that.
    """
    random = np.random.default_rng(0)
    X, noise = random.normal(size=(4000, 3)), random.normal(size=4000)
    order = np.argsort(noise * X[:, 0])
    X, noise = X[order], noise[order]
    quiet = [5, 1000, 2000, 3500, 3990]
    basis = np.column_stack([X, np.ones(4000)])
    basis[quiet] = noise[quiet] = 0.0
    y = 1e8 * (noise - basis @ np.linalg.lstsq(basis, noise, rcond=None)[0]) + X[:, 0]
    problem = glru.Problem(X, y, glru.Squared(), glru.L2(1e-9), fit_intercept=fit_intercept)
    solution = glru.solve(in_blocks(tmp_path, problem, 4), tol=1e-22)
    result = glru.loocv(solution, width=np.inf)
    assert np.all(result.score_upper - result.score_lower < 1.0)
    for row in quiet:
        weight = problem.sample_weight.copy()
        weight[row] = 0.0
        best = optimum(derived(problem, weight), np.zeros(3), 0.0, ideal_weights=True)
        assert not outside(best.scores(X[row : row + 1]), result.score_lower[row], result.score_upper[row])
