"""Multinomial models of rows in blocks, against retraining in extended precision and against the same rows in memory."""

import numpy as np
import pytest
import scipy.sparse as sp

import glru
from tests.certificates.class_truth import retrain_classes, retrained_without
from tests.certificates.test_multinomial import problems
from tests.core import ClassBlocks, ClassEllipsoid
from tests.rows.data import dask_blocks, in_blocks, mapped

TABLE = np.random.default_rng(5)


def dense(problem):
    """The problem with dense rows, as a memory map holds them."""
    return problem.derive(X=problem.matrix.dense()) if sp.issparse(problem.X) else problem


def packed(solution):
    problem = solution.problem
    return np.column_stack([solution.coef, solution.intercept]) if problem.fit_intercept else solution.coef


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(300, 316))
def test_models_and_held_out_intervals_hold_the_retrained_ones(seed, tmp_path):
    problem, rng = dense(problems(seed)), np.random.default_rng(seed)
    blocks = in_blocks(tmp_path, problem, n_blocks=1 + seed % 4)
    solution = glru.solve(blocks, tol=10.0 ** -rng.uniform(2, 9))
    best, _ = retrain_classes(
        problem.X, problem.y, problem.weights, problem.quadratic, problem.n_scores, problem.fit_intercept
    )
    region = ClassEllipsoid.at(blocks, solution.point)
    for (lower, upper), truth in (
        (region.coef_bounds(), best[:, : problem.n_columns]),
        (region.intercept_bounds(), best[:, -1] if problem.fit_intercept else 0.0),
    ):
        assert np.all(lower <= truth)
        assert np.all(truth <= upper)
    result = glru.loocv(solution, width=(None, "labels", 1e-6)[seed % 3], max_trainings=(None, 3)[seed % 2])
    for row in rng.choice(problem.n_rows, 4, replace=False):
        _, scores, _ = retrained_without(problem, row, packed(solution))
        assert np.all(result.bounds.lower[row] <= scores), row
        assert np.all(scores <= result.bounds.upper[row]), row
        if result.decided[row]:
            assert result.labels[row] == problem.classes[int(np.argmax(scores))]


def test_a_block_without_weights(tmp_path):
    problem = dense(problems(300))
    weight = np.where(np.arange(problem.n_rows) < problem.n_rows // 2, 0.0, 1.0)
    problem = problem.derive(sample_weight=weight)
    result = glru.loocv(in_blocks(tmp_path, problem, n_blocks=4))
    for row in (0, problem.n_rows - 1):
        _, scores, _ = retrained_without(problem, row, packed(glru.solve(problem)))
        assert np.all((result.bounds.lower[row] <= scores) & (scores <= result.bounds.upper[row]))


@pytest.mark.parametrize("seed", range(320, 326))
def test_the_family_of_blocks_holds_scores_and_leads(seed, tmp_path):
    problem, rng = dense(problems(seed)), np.random.default_rng(seed)
    solution = glru.solve(in_blocks(tmp_path, problem), tol=1e-5)
    family, n_scores = ClassBlocks(solution.problem, solution.point), problem.n_scores
    if not family.usable:
        pytest.skip("nothing is proven of this problem in float64")
    numbers, y, reference, first = family.closed_form()
    assert np.array_equal(numbers, np.arange(problem.n_rows))
    assert np.array_equal(y, problem.y)
    rows = np.sort(rng.choice(problem.n_rows, 4, replace=False))
    found = [(first[0][rows], first[1][rows])]
    found += [
        family.refined(rows, reference[rows], lambda low, high: np.zeros(len(low), bool), steps) for steps in (1, 3)
    ]
    for place, row in enumerate(rows):
        _, scores, _ = retrained_without(problem, row)
        queries = np.concatenate([scores, scores[reference[row]] - scores])
        for lower, upper in found:
            assert lower.shape == (4, 2 * n_scores)
            assert np.all(lower[place] <= queries)
            assert np.all(queries <= upper[place])


def table(n_rows=240, n_columns=4, n_classes=4):
    X = TABLE.normal(size=(n_rows, n_columns))
    chances = X @ TABLE.normal(size=(n_columns, n_classes)) + TABLE.gumbel(size=(n_rows, n_classes))
    return X, np.array(list("abcdefgh"))[chances.argmax(axis=1)]


@pytest.mark.parametrize("kind", ["map", "dask", "sparse", "parquet"])
def test_every_source_gives_the_labels_of_rows_in_memory(kind, tmp_path):
    X, y = table()
    X = X * (np.abs(X) > 0.7) if kind == "sparse" else X
    settings = {"loss": glru.Multinomial(), "penalty": glru.L2(0.5), "fit_intercept": True, "scaling": "sum"}
    known = glru.Problem(X, y, **settings)
    if kind == "map":
        problem = glru.Problem(mapped(tmp_path, X), y, **settings, block_bytes=3000)
    elif kind == "parquet":
        polars = pytest.importorskip("polars")
        columns = {f"x{j}": X[:, j] for j in range(X.shape[1])} | {"y": y}
        polars.DataFrame(columns).write_parquet(tmp_path / "rows.parquet")
        problem = glru.Problem(str(tmp_path / "rows.parquet"), "y", **settings, block_bytes=3000)
    else:
        pytest.importorskip("dask.array")
        problem = dask_blocks(known.derive(X=sp.csr_matrix(X)) if kind == "sparse" else known, 70)
    result, expected = glru.loocv(problem), glru.loocv(known)
    names = result.labels if kind not in ("dask", "sparse") else known.classes[result.labels]
    assert np.array_equal(names, expected.labels)
    assert result.n_errors == expected.n_errors
    assert result.n_trainings == 0
    assert np.all(result.bounds.lower <= expected.bounds.upper)
    assert np.all(expected.bounds.lower <= result.bounds.upper)
    assert np.array_equal(result.confusion_matrix()[0], expected.confusion_matrix()[0])


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_folds_and_changes_of_blocks_are_those_of_rows_in_memory(fit_intercept, tmp_path):
    from sklearn.model_selection import KFold

    X, y = table()
    settings = {"loss": glru.Multinomial(), "penalty": glru.L2(0.5), "fit_intercept": fit_intercept}
    known = glru.Problem(X, y, **settings)
    problem = glru.Problem(mapped(tmp_path, X), y, **settings, block_bytes=3000)
    folds, expected = glru.cross_val_predict(problem, cv=4), glru.cross_val_predict(known, cv=KFold(4))
    assert np.array_equal(folds.labels, expected.labels)
    assert np.all(folds.bounds.lower <= expected.bounds.upper)
    assert np.all(expected.bounds.lower <= folds.bounds.upper)
    more = TABLE.normal(size=(3, X.shape[1]))
    for change in (glru.RemoveRows([3, 200]), glru.AddRows(more, ["a", "c", "b"])):
        here, there = (glru.after(glru.solve(one, tol=1e-8), change) for one in (problem, known))
        assert repr(here)
        for ask in (
            lambda a: a.probability_bounds(X[:30]),
            lambda a: a.coef_bounds(),
            lambda a: a.intercept_bounds(),
        ):
            (low, high), (least, most) = ask(here), ask(there)
            assert np.all(low <= most)
            assert np.all(least <= high)
        low, high = here.probability_bounds(X[:30])
        assert np.all(high - low < 1e-3)


def test_what_blocks_do_not_have_is_said(tmp_path):
    X, y = table()
    problem = glru.Problem(mapped(tmp_path, X), y, loss=glru.Multinomial())
    with pytest.raises(TypeError, match=r"stepwise with Multinomial.. needs all rows in memory"):
        glru.stepwise(problem, X_val=X[:20], y_val=y[:20])
    with pytest.raises(ValueError, match="output has one score per row"):
        glru.loocv(problem, output=tmp_path / "results")
    with pytest.raises(ValueError, match="trained by 'newton'; got 'newton-cg'"):
        glru.solve(problem, solver="newton-cg")
    wide = glru.Problem(mapped(tmp_path, np.zeros((60, 800)), "wide"), np.arange(60) % 4, loss=glru.Multinomial())
    with pytest.raises(ValueError, match="of at most 3000 unknowns; got 3200"):
        glru.solve(wide)
    with pytest.raises(ValueError, match="at least three classes"):
        glru.Problem(mapped(tmp_path, X), y < "b", loss=glru.Multinomial())
    with pytest.raises(ValueError, match="fewer than 100 classes"):
        glru.Problem(mapped(tmp_path, X), np.arange(240) % 120, loss=glru.Multinomial())
