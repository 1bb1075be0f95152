"""Data that changes between two passes is an error, whatever was asked for: nothing is proven of data that is not there."""

import os

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp

import glru
from tests.rows.data import mapped

RANDOM = np.random.default_rng(0)
N = 400
X = RANDOM.normal(size=(N, 3))
Y = np.where(X @ [1.0, -1.0, 0.5] + RANDOM.normal(size=N) > 0.1, 1, 0)
WORDS = np.where(Y == 1, "yes", "no")
HEIGHT = 50
CHANGED = "the data must stay as it is while it is used"

QUESTIONS = {
    "solve": lambda problem, solution: glru.solve(problem),
    "loocv": lambda problem, solution: glru.loocv(solution),
    "folds": lambda problem, solution: glru.cross_val_predict(solution, cv=4),
    "after": lambda problem, solution: glru.after(solution, glru.RemoveRows([3])).score_bounds(X[:5]),
    "stepwise": lambda problem, solution: glru.stepwise(
        problem, X_val=X[:50], y_val=problem.classes[Y[:50]], max_steps=1
    ),
}

CHANGES = {
    "all": lambda data: RANDOM.normal(size=data.shape),
    "signs": lambda data: -data,
    "one-bit": lambda data: np.where(np.arange(data.size).reshape(data.shape) == 1001, np.nextafter(data, 9.0), data),
    "two-rows": lambda data: data[[1, 0, *range(2, N)]],
    "two-blocks": lambda data: np.roll(data, HEIGHT, axis=0),
    "zeros": np.zeros_like,
}


def in_map(folder, data=X, y=Y):
    return glru.Problem(mapped(folder, data), y, penalty=glru.L2(0.1), block_bytes=HEIGHT * 24)


def write_parquet(folder, data=X, y=WORDS):
    folder.mkdir(exist_ok=True)
    frame = pl.DataFrame(data, schema=["a", "b", "c"]).with_columns(y=pl.Series(y))
    for k in range(4):
        frame[100 * k : 100 * k + 100].write_parquet(folder / f"part-{k}.parquet", compression="uncompressed")


def in_parquet(folder):
    write_parquet(folder / "data")
    return glru.Problem(folder / "data", "y", penalty=glru.L2(0.1), block_bytes=HEIGHT * 24)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_memory_map(question, tmp_path):
    problem = in_map(tmp_path)
    solution = glru.solve(problem)
    QUESTIONS[question](problem, solution)
    np.memmap(tmp_path / "X.bin", dtype=float, mode="r+", shape=X.shape)[:] = RANDOM.normal(size=X.shape)
    with pytest.raises(RuntimeError, match=CHANGED):
        QUESTIONS[question](problem, solution)


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_every_size(change, tmp_path):
    problem = in_map(tmp_path)
    solution = glru.solve(problem)
    place = np.memmap(tmp_path / "X.bin", dtype=float, mode="r+", shape=X.shape)
    place[:] = CHANGES[change](X)
    with pytest.raises(RuntimeError, match=f"{CHANGED}; block ., which begins with row"):
        glru.loocv(solution)
    place[:] = X
    assert glru.loocv(solution).n_undetermined == 0


def test_a_shorter_file(tmp_path):
    """Reading a map beyond the end of its file would end the process."""
    solution = glru.solve(in_map(tmp_path))
    os.truncate(tmp_path / "X.bin", 8 * X.size // 2)
    with pytest.raises(RuntimeError, match=r"X\.bin, which is shorter now, changed"):
        glru.loocv(solution)


def test_targets_and_weights(tmp_path):
    y, weight = Y.copy(), np.ones(N)
    problem = glru.Problem(mapped(tmp_path, X), y, penalty=glru.L2(0.1), sample_weight=weight)
    solution = glru.solve(problem)
    for values in (y, weight):
        before = values.copy()
        values[17] = 1 - values[17]
        with pytest.raises(RuntimeError, match=CHANGED):
            glru.loocv(solution)
        values[:] = before
    glru.loocv(solution)


@pytest.mark.parametrize("question", QUESTIONS)
def test_parquet(question, tmp_path):
    problem = in_parquet(tmp_path)
    solution = glru.solve(problem)
    QUESTIONS[question](problem, solution)
    write_parquet(tmp_path / "data", RANDOM.normal(size=X.shape))
    with pytest.raises(RuntimeError, match=CHANGED):
        QUESTIONS[question](problem, solution)


def test_labels_sizes_and_files_of_parquet(tmp_path):
    problem = in_parquet(tmp_path)
    solution = glru.solve(problem)
    write_parquet(tmp_path / "data", y=np.where(np.arange(N) == 333, np.where(Y == 1, "no", "yes"), WORDS))
    with pytest.raises(RuntimeError, match=CHANGED):
        glru.loocv(solution)
    write_parquet(tmp_path / "data")
    assert glru.loocv(solution).n_undetermined == 0
    os.utime(tmp_path / "data" / "part-1.parquet")
    assert glru.loocv(solution).n_undetermined == 0
    write_parquet(tmp_path / "data", np.vstack([X, X])[:, [0, 0, 0]][:N], y=np.full(N, "perhaps"))
    with pytest.raises(RuntimeError, match=r"part-.\.parquet, which has another size now, changed"):
        glru.loocv(solution)
    write_parquet(tmp_path / "data")
    (tmp_path / "data" / "part-2.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"part-2\.parquet"):
        glru.loocv(solution)


def test_dask_data_that_comes_out_differently():
    dask, da = pytest.importorskip("dask"), pytest.importorskip("dask.array")
    calls = []

    def made():
        calls.append(None)
        return X + 1e-9 * len(calls)

    data = da.from_delayed(dask.delayed(made)(), X.shape, dtype=float)
    problem = glru.Problem(data, Y, penalty=glru.L2(0.1))
    with pytest.raises(RuntimeError, match=r"persist dask data"):
        glru.loocv(problem)


def test_sparse_blocks():
    """Columns that change places have the same numbers in the same order."""
    dask, da = pytest.importorskip("dask"), pytest.importorskip("dask.array")
    order = [0, 1, 2]

    def made():
        return sp.csr_matrix(np.where(X > 0.5, X, 0.0)[:, order])

    data = da.from_delayed(dask.delayed(made)(), X.shape, meta=np.empty((0, 0)))
    solution = glru.solve(glru.Problem(data, Y, penalty=glru.L2(0.1)))
    assert glru.loocv(solution).problem.is_sparse
    order[:] = [1, 0, 2]
    with pytest.raises(RuntimeError, match=CHANGED):
        glru.loocv(solution)


# Output ---------------------------------------------------------------------------------------------------------------


def refused(solution, place, said="output must leave the input alone"):
    with pytest.raises(ValueError, match=said):
        glru.loocv(solution, output=place)


def test_output_never_goes_to_the_data(tmp_path):
    """Not into the folder of the data, not into one in it or around it, under no other name."""
    solution = glru.solve(in_parquet(tmp_path))
    data = tmp_path / "data"
    before = {file: file.read_bytes() for file in data.iterdir()}
    (tmp_path / "link").symlink_to(data)
    places = (data, data / "results", data / "deep" / "results", tmp_path, tmp_path / "link", tmp_path / "link" / "new")
    for place in (*places, data / ".." / "data" / "new", data / "part-0.parquet"):
        refused(solution, place)
    assert {file: file.read_bytes() for file in data.iterdir()} == before
    glru.loocv(solution, output=tmp_path / "results")


def test_output_beside_a_memory_map(tmp_path):
    (tmp_path / "maps").mkdir()
    solution = glru.solve(in_map(tmp_path / "maps", y=mapped(tmp_path, Y.astype(float), "y")))
    refused(solution, tmp_path / "maps")
    refused(solution, tmp_path)
    refused(solution, tmp_path / "maps" / "X.bin")
    glru.loocv(solution, output=tmp_path / "maps" / "results")


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # dask's own use of pandas
def test_output_and_dask_dataframes(tmp_path):
    dd = pytest.importorskip("dask.dataframe")
    write_parquet(tmp_path / "data")
    solution = glru.solve(glru.Problem(dd.read_parquet(tmp_path / "data"), "y", penalty=glru.L2(0.1)))
    refused(solution, tmp_path / "data")
    refused(solution, tmp_path / "data" / "results")
    glru.loocv(solution, output=tmp_path / "results")


def test_output_folders_are_empty(tmp_path):
    """Whatever is in a folder is not mixed with results, be it data that is not known to be an input."""
    solution = glru.solve(in_map(tmp_path))
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "a.parquet").write_bytes(b"data")
    refused(solution, folder, r"an empty or a new directory; '.*' holds 'a\.parquet'")
    refused(solution, folder / "a.parquet", "output must be a directory")
    (folder / "a.parquet").unlink()
    glru.loocv(solution, output=folder)
