"""What is read in blocks of rows, and what is refused, with the number of the row in the whole."""

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import glru
from tests.rows.data import mapped

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(0.2, 1.0, (50, 3))
Y = np.where(X @ [1.0, -1.0, 0.5] + RANDOM.normal(size=50) > 0.1, 1, 0)
REFERENCE = glru.solve(glru.Problem(X, Y, penalty=glru.L2(0.1)), tol=1e-12)


def assert_same_model(problem):
    solution = glru.solve(problem, tol=1e-12)
    np.testing.assert_allclose(solution.coef, REFERENCE.coef, atol=1e-5)
    assert (problem.n_rows, problem.n_columns) == (50, 3)
    assert np.array_equal(problem.classes, np.unique(problem.classes))


def small(place, y, **options):
    """Blocks of seven rows."""
    return glru.Problem(place, y, penalty=glru.L2(0.1), block_bytes=7 * 24, **options)


# Memory maps ----------------------------------------------------------------------------------------------------------


def test_memory_maps(tmp_path):
    place = mapped(tmp_path, X)
    problem = glru.Problem(place, Y, penalty=glru.L2(0.1))
    assert isinstance(problem, glru.Problem)
    assert not problem.in_memory
    assert problem.n_blocks == 1
    assert_same_model(problem)
    assert small(place, Y).n_blocks == 8
    assert_same_model(small(place, Y))
    assert_same_model(small(place, mapped(tmp_path, Y.astype(float), "y")))
    assert_same_model(small(place, Y[:, None], sample_weight=np.ones(50)))
    assert_same_model(small(place, np.where(Y == 1, "yes", "no")))
    assert glru.Problem(np.asarray(place), Y).in_memory
    assert repr(small(place, Y)).startswith("Problem(50 rows x 3 columns in 8 blocks, Logistic()")


def test_parts_of_memory_maps(tmp_path):
    """A slice of a map keeps its parent's offset; columns, other types and other orders are read through the map."""
    bordered = np.zeros((60, 4))
    bordered[10:, 1:] = X
    whole = mapped(tmp_path, bordered)
    assert_same_model(small(whole[10:, 1:], Y))
    assert_same_model(small(mapped(tmp_path, bordered[:, 1:].copy(), "rows")[10:], Y))
    header = tmp_path / "header.bin"
    header.write_bytes(b"\0" * 16 + X.tobytes())
    assert_same_model(small(np.memmap(header, dtype=float, mode="r", offset=16, shape=(50, 3)), Y))
    np.save(tmp_path / "fortran.npy", np.asfortranarray(X))
    assert_same_model(small(np.load(tmp_path / "fortran.npy", mmap_mode="r"), Y))
    private = np.memmap(header, dtype=float, mode="c", offset=16, shape=(50, 3))
    private[:] = np.where(np.arange(50)[:, None] % 2 == 0, X, -X)
    changed = small(private, Y)
    direct = glru.solve(glru.Problem(np.array(private), Y, penalty=glru.L2(0.1)), tol=1e-12)
    np.testing.assert_allclose(glru.solve(changed, tol=1e-12).coef, direct.coef, atol=1e-5)


def test_numbers_of_other_types(tmp_path):
    place = np.memmap(tmp_path / "small.bin", dtype=np.float32, mode="w+", shape=X.shape)
    place[:] = X
    solution = glru.solve(small(place, Y), tol=1e-12)
    direct = glru.solve(glru.Problem(np.array(place), Y, penalty=glru.L2(0.1)), tol=1e-12)
    np.testing.assert_allclose(solution.coef, direct.coef, atol=1e-5)


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "y", "weight", "message"),
    [
        ({(33, 1): np.nan}, Y, None, "row 33, column 1 is nan"),
        ({(49, 2): np.inf, (16, 0): np.nan}, Y, None, "row 16, column 0 is nan"),
        ({}, np.where(np.arange(50) == 44, np.nan, Y), None, "y must be finite; entry 44 is nan"),
        ({}, Y, np.where(np.arange(50) == 21, -2.0, 1.0), "sample_weight must be at least 0; entry 21 is -2.0"),
        ({}, Y, np.where(np.arange(50) == 48, np.inf, 1.0), "sample_weight must be finite; entry 48 is inf"),
        ({}, Y, np.zeros(50), "every weight is zero"),
        ({}, np.zeros(50), None, r"exactly two classes for a classification loss; got 1 \(0.0\)"),
        ({}, np.arange(50) % 3, None, r"got 3 \(0, 1, 2\)"),
        ({}, Y[:49], None, r"shape \(50,\); got shape \(49,\)"),
        ({}, Y, np.ones(51), r"sample_weight must have one entry per row of X, shape \(50,\)"),
        ({}, "target", None, "X has no names"),
    ],
)
def test_bad_numbers_are_named(values, y, weight, message, tmp_path):
    data = X.copy()
    for entry, value in values.items():
        data[entry] = value
    with pytest.raises(ValueError, match=message):
        small(mapped(tmp_path, data), y, sample_weight=weight)


def test_bad_targets_of_a_regression(tmp_path):
    with pytest.raises(ValueError, match="y must be finite; entry 30 is inf"):
        small(mapped(tmp_path, X), np.where(np.arange(50) == 30, np.inf, 0.5), loss=glru.Squared())
    with pytest.raises(ValueError, match="y must be numeric"):
        small(mapped(tmp_path, X), np.array(["a"] * 50), loss=glru.Squared())


def test_bad_settings(tmp_path):
    place = mapped(tmp_path, X)
    with pytest.raises(ValueError, match="got 2 for 3 columns"):
        glru.Problem(place, Y, penalty=glru.L2([1.0, 2.0]))
    with pytest.raises(TypeError, match="loss must be"):
        glru.Problem(place, Y, loss="logistic")
    with pytest.raises(ValueError, match="two-dimensional"):
        glru.Problem(place[:, 0], Y)
    with pytest.raises(ValueError, match="block_bytes"):
        glru.Problem(place, Y, block_bytes=0)
    with pytest.raises(ValueError, match="found none at"):
        glru.Problem(tmp_path / "nothing", "y")


def test_what_does_not_take_blocks_says_so(tmp_path):
    problem = small(mapped(tmp_path, X), Y)
    solution = glru.solve(problem)
    for ask in (
        lambda: problem.X,
        lambda: problem.y,
        lambda: problem.weights,
        lambda: problem.scores(solution.coef),
        lambda: solution.dual,
        lambda: solution.certificate,
        lambda: glru.after(solution, glru.RemoveRows([3])).dual_bounds(),
        lambda: glru.loocv(solution, checkpoint="file"),
        lambda: glru.verify(glru.loocv(solution), problem),
    ):
        with pytest.raises(TypeError, match=r"needs all rows in memory; got Problem\(50 rows x 3 columns in 8 blocks"):
            ask()
    with pytest.raises(AttributeError, match="no attribute 'Z'"):
        _ = problem.Z


def test_problems_in_memory_are_what_they_were():
    problem = glru.Problem(X, Y)
    again = pickle.loads(pickle.dumps(problem))
    assert isinstance(again, glru.Problem)
    assert np.array_equal(again.X, X)


# Frames and dask ------------------------------------------------------------------------------------------------------


def frame(names=("a", "b", "c")):
    return pl.DataFrame({name: X[:, k] for k, name in enumerate(names)}).with_columns(
        target=pl.Series(np.where(Y == 1, "yes", "no")), weight=pl.Series(np.ones(50))
    )


def test_parquet(tmp_path):
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    whole = frame()
    whole[:20].write_parquet(folder / "deep" / "one.parquet")
    whole[20:20].write_parquet(folder / "empty.parquet")
    whole[20:].write_parquet(folder / "two.parquet", row_group_size=9)
    (folder / "_SUCCESS").touch()
    for height in (7, 1000):
        problem = glru.Problem(folder, "target", penalty=glru.L2(0.1), sample_weight="weight", block_bytes=height * 24)
        assert problem.column_names == ("a", "b", "c")
        assert problem.n_blocks == (3 + 5 if height == 7 else 2)
        assert list(problem.classes) == ["no", "yes"]
        assert_same_model(problem)
    both = whole.drop("target", "weight")
    both.write_parquet(tmp_path / "alone.parquet")
    assert_same_model(glru.Problem(str(tmp_path / "alone.parquet"), Y, penalty=glru.L2(0.1)))


def test_bad_parquet(tmp_path):
    frame().write_parquet(tmp_path / "one.parquet")
    with pytest.raises(ValueError, match="y must be a column of X; got 'label', not one of a, b, c, target, weight"):
        glru.Problem(tmp_path, "label")
    with pytest.raises(ValueError, match="Not numeric: 'target'"):
        glru.Problem(tmp_path, "weight", loss=glru.Squared())
    holes = frame().with_columns(a=pl.when(pl.int_range(50) == 17).then(None).otherwise(pl.col("a")))
    holes.write_parquet(tmp_path / "one.parquet")
    with pytest.raises(ValueError, match="row 17, column 'a' is nan"):
        glru.Problem(tmp_path, "target", sample_weight="weight", block_bytes=7 * 24)
    frame(("a", "b", "d")).write_parquet(tmp_path / "two.parquet")
    with pytest.raises(ValueError, match=r"the same columns; two\.parquet has"):
        glru.Problem(tmp_path, "target", sample_weight="weight")


def test_what_is_not_data(tmp_path):
    """Hidden files and folders, and those of unfinished work, are not read; partitions by value are, whatever their name."""
    whole, noise = frame().drop("weight"), frame().drop("weight").with_columns(pl.lit(0.5).alias("a"))
    whole[:20].write_parquet(tmp_path / "data" / "_kind=a" / "one.parquet", mkdir=True)
    whole[20:].write_parquet(tmp_path / "data" / "two.parquet")
    for place in (
        "_temporary/0/part.parquet",
        ".hidden/part.parquet",
        "deep/_delta_log/x.parquet",
        "_x.parquet",
        ".x.parquet",
    ):
        noise.write_parquet(tmp_path / "data" / place, mkdir=True)
    (tmp_path / "data" / "folder.parquet").mkdir()
    assert_same_model(glru.Problem(tmp_path / "data", "target", penalty=glru.L2(0.1)))
    above = tmp_path / "_mine" / ".data"
    whole.write_parquet(above / "_all.parquet", mkdir=True)
    assert_same_model(glru.Problem(above / "_all.parquet", "target", penalty=glru.L2(0.1)))
    whole.write_parquet(above / "all.parquet")
    assert_same_model(glru.Problem(above, "target", penalty=glru.L2(0.1)))


def test_damaged_parquet_files_are_named(tmp_path):
    for k in range(3):
        frame()[17 * k : 17 * k + 17].write_parquet(tmp_path / f"part-{k}.parquet", compression="uncompressed")
    whole = (tmp_path / "part-1.parquet").read_bytes()
    middle = bytes(255 - byte for byte in whole[4:200])
    for data in (whole[: len(whole) // 2], b"", b"no Parquet at all", b"PAR1" + middle + whole[200:]):
        (tmp_path / "part-1.parquet").write_bytes(data)
        with pytest.raises(ValueError, match=r"part-1\.parquet cannot be read: it is not a Parquet file, is damaged"):
            glru.Problem(tmp_path, "target", sample_weight="weight", block_bytes=7 * 24)


def test_dates_and_masks_in_blocks(tmp_path):
    days = np.datetime64("2021-01-01") + np.arange(50)
    dated = frame().with_columns(when=pl.Series(days), span=pl.Series((days - days[0]).astype("timedelta64[us]")))
    dated.write_parquet(tmp_path / "one.parquet")
    with pytest.raises(ValueError, match=r"dates or times are in 'when' \(.*\), 'span' \(.*Turn dates, times"):
        glru.Problem(tmp_path, "target", sample_weight="weight")
    dated.drop("target", "span").write_parquet(tmp_path / "one.parquet")
    with pytest.raises(ValueError, match="y must be numeric; got datetime64"):
        glru.Problem(tmp_path, "when", loss=glru.Squared())
    with pytest.raises(ValueError, match="sample_weight must be numeric; got datetime64"):
        glru.Problem(tmp_path, Y, sample_weight="when")
    hidden = np.ma.array(Y, mask=np.arange(50) == 30)
    with pytest.raises(ValueError, match="y must have no masked entries; 1 are masked"):
        small(mapped(tmp_path, X), hidden)
    da = pytest.importorskip("dask.array")
    with pytest.raises(ValueError, match="X must have no masked entries"):
        glru.Problem(da.ma.masked_greater(da.from_array(X, chunks=(7, 3)), 1.0), Y)
    with pytest.raises(ValueError, match="y must have no masked entries"):
        glru.Problem(da.from_array(X, chunks=(7, 3)), da.ma.masked_equal(da.from_array(Y, chunks=7), 1))


CHUNKINGS = {
    "one": (50,),
    "even": (10,) * 5,
    "uneven": (1, 30, 2, 17),
    "empty": (20, 0, 30),
    "single-rows": (1,) * 50,
}


@pytest.mark.parametrize("chunks", CHUNKINGS.values(), ids=CHUNKINGS)
def test_dask_arrays(chunks):
    da = pytest.importorskip("dask.array")
    data = da.from_array(X, chunks=(chunks, (2, 1)))
    targets = da.from_array(Y, chunks=(chunks,))
    assert_same_model(glru.Problem(data, targets, penalty=glru.L2(0.1)))
    assert_same_model(glru.Problem(data, Y, penalty=glru.L2(0.1)))
    assert_same_model(glru.Problem(data, targets.rechunk(7), penalty=glru.L2(0.1), sample_weight=da.ones(50)))
    for kind in (sp.csr_matrix, sp.csr_array):
        sparse = data.rechunk({1: -1}).map_blocks(kind)
        problem = glru.Problem(sparse, targets, penalty=glru.L2(0.1))
        assert problem.is_sparse
        assert_same_model(problem)


def test_blocks_of_both_kinds():
    """Some blocks sparse, others not: a sample of them, the Hessian and rows that are brought home."""
    dask, da = pytest.importorskip("dask"), pytest.importorskip("dask.array")
    parts = [sp.csr_matrix(X[:20]), X[20:30], sp.csr_matrix(X[30:])]
    blocks = [da.from_delayed(dask.delayed(part), part.shape, meta=np.empty((0, 0))) for part in parts]
    problem = glru.Problem(da.concatenate(blocks), Y, penalty=glru.L2(0.1))
    assert problem.is_sparse
    assert_same_model(problem)
    X_sample, y, _ = problem.rows.summary.sample.concatenate()
    assert np.array_equal(X_sample.dense(), X)
    assert np.array_equal(y, Y)
    memory = glru.loocv(glru.Problem(X, Y, penalty=glru.L2(0.1)), width=1e-6)
    ours = glru.loocv(problem, width=1e-6)
    assert np.all(ours.score_lower <= memory.score_upper)
    assert np.all(memory.score_lower <= ours.score_upper)


def test_dask_arrays_of_unknown_length():
    da = pytest.importorskip("dask.array")
    keep = da.from_array(np.ones(50, dtype=bool), chunks=12)
    data, targets = da.from_array(X, chunks=(12, 3))[keep], da.from_array(Y, chunks=12)[keep]
    assert np.isnan(data.shape[0])
    assert_same_model(glru.Problem(data, targets, penalty=glru.L2(0.1)))
    assert_same_model(glru.Problem(data, Y, penalty=glru.L2(0.1)))
    with pytest.raises(ValueError, match="partitions of X where their lengths are not known; got 10 for 5"):
        glru.Problem(data, da.from_array(Y, chunks=5), penalty=glru.L2(0.1))
    with pytest.raises(ValueError, match="got shape"):
        glru.Problem(data, da.from_array(Y, chunks=12)[da.from_array(Y == 1, chunks=12)])


def test_bad_dask_arrays():
    dask, da = pytest.importorskip("dask"), pytest.importorskip("dask.array")
    data = da.from_array(np.where(np.arange(150).reshape(50, 3) == 100, np.nan, X), chunks=(7, 3))
    with pytest.raises(ValueError, match="row 33, column 1 is nan"):
        glru.Problem(data, Y)
    with pytest.raises(ValueError, match=r"shape \(50,\); got shape \(49,\)"):
        glru.Problem(da.from_array(X), da.from_array(Y[:49]))
    with pytest.raises(ValueError, match="got 2 dimensions"):
        glru.Problem(da.from_array(X), da.from_array(X))
    with pytest.raises(ValueError, match="two-dimensional"):
        glru.Problem(da.from_array(Y), da.from_array(Y))
    with pytest.raises(ValueError, match="at least one row and one column; got shape 0 x 3"):
        glru.Problem(da.from_array(X[:0]), da.from_array(Y[:0]))
    ragged = [da.from_delayed(dask.delayed(np.ones)((4, d)), (4, 3), dtype=float) for d in (3, 2)]
    with pytest.raises(ValueError, match=r"the same number of columns; got \[2, 3\]"):
        glru.Problem(da.concatenate(ragged), Y[:8])
    words = da.from_array(X.astype(str), chunks=(10, 3))
    with pytest.raises(ValueError, match="must be numeric"):
        glru.Problem(words.map_blocks(lambda block: np.char.add("a", block)), Y)


def test_dask_frames():
    dd = pytest.importorskip("dask.dataframe")
    columns = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "target": np.where(Y == 1, "yes", "no"), "weight": 1.0}
    data = dd.from_pandas(pd.DataFrame(columns), npartitions=4)
    problem = glru.Problem(data, "target", penalty=glru.L2(0.1), sample_weight="weight")
    assert problem.column_names == ("a", "b", "c")
    assert problem.n_blocks == 4
    assert_same_model(problem)
    features = data[["a", "b", "c"]]
    assert_same_model(glru.Problem(features, data["target"], penalty=glru.L2(0.1)))
    assert_same_model(glru.Problem(features, Y, penalty=glru.L2(0.1)))
    with_empty = dd.concat([data, data[data["a"] > 100.0]])
    assert_same_model(glru.Problem(with_empty, "target", penalty=glru.L2(0.1), sample_weight="weight"))
    with pytest.raises(ValueError, match="y must be a column of X; got 'label'"):
        glru.Problem(data, "label")
    assert_same_model(glru.Problem(features, data[["target"]], penalty=glru.L2(0.1)))
    with pytest.raises(ValueError, match=r"y must have one entry per row of X; got shape \(1., 2\)"):
        glru.Problem(features, data[["a", "b"]])


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # dask's own use of pandas
def test_dask_frames_of_parquet_files(tmp_path):
    """Dask joins small files to partitions, of few columns more than of many; rows and targets stay together."""
    dd = pytest.importorskip("dask.dataframe")
    whole = frame()
    for k in range(16):
        whole[3 * k : 3 * k + 3 if k < 15 else 50].write_parquet(tmp_path / f"part-{k:02d}.parquet")
    data = dd.read_parquet(tmp_path)
    features, settings = data[["a", "b", "c"]], {"penalty": glru.L2(0.1)}
    assert len(data["target"].to_delayed()) < len(features.to_delayed())
    assert_same_model(glru.Problem(data, "target", sample_weight="weight", **settings))
    assert_same_model(glru.Problem(data.drop(columns="weight"), "target", **settings))
    assert_same_model(glru.Problem(features, data["target"], sample_weight=data["weight"], **settings))
    assert_same_model(glru.Problem(features, Y, sample_weight=data["weight"], **settings))
    assert_same_model(glru.Problem(data.drop(columns="weight"), "target", sample_weight=np.ones(50), **settings))
    assert_same_model(glru.Problem(features, Y, **settings))
    problem = glru.Problem(data, "target", sample_weight="weight", **settings)
    assert glru.loocv(problem).n_undetermined == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"X": [[1.0, 2.0], [3.0]]}, r"X must have rows of one length; got a list of unequal ones\. Fill"),
        ({"X": X + 1j}, r"X must be real; got complex numbers\. Use"),
        ({"X": {"a": Y}}, r"X must be two-dimensional.*got a dict\. Give an array"),
        ({"y": Y + 1j}, r"y must be real; got complex numbers\. Use"),
        ({"y": np.array(["a", 1] * 25, dtype=object)}, r"labels of one type.*Turn all of them into text"),
        ({"y": Y + 1j, "loss": glru.Squared()}, r"y must be real; got complex numbers\. Use"),
        ({"sample_weight": np.full(50, 1e308)}, r"must have a finite sum; the largest of 50 is 1e\+308\. Divide"),
        ({"sample_weight": ["a"] * 50}, r"sample_weight must be numeric; got dtype <U1\. Turn"),
    ],
)
def test_bad_arrays_are_answered_by_a_remedy(given, message):
    with pytest.raises(ValueError, match=message):
        glru.Problem(**{"X": X, "y": Y} | given)


def test_lazy_frames_are_refused_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"got a LazyFrame\. .*collect"):
            glru.Problem(pl.LazyFrame({"a": X[:, 0]}), Y)
        with pytest.raises(TypeError, match=r"got a LazyFrame\. Collect"):
            glru.loocv(make_pipeline(StandardScaler(), LogisticRegression()), pl.LazyFrame({"a": X[:, 0]}), Y)


def test_splits_and_strengths_that_are_none_are_shown():
    problem = glru.Problem(X, Y)
    with pytest.raises(ValueError, match=r"(?s)every split must be a pair.*Use cv=\[\(train, test\)\]"):
        glru.cross_val_predict(problem, cv=(np.arange(20), np.arange(20, 50)))
    for lams in (1.0, "abc"):
        with pytest.raises(TypeError, match=r"lams must be a list of numbers; got .*Use \[1"):
            glru.loocv_path(problem, lams)
    with pytest.raises(TypeError, match="lam of L2 must be a number"):
        glru.L2("strong")
