"""Datasets by name, and the preparation of tables and matrices, which is scikit-learn's."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.preprocessing import StandardScaler, scale

import glru
from glru import datasets


def test_bundled():
    """What scikit-learn has, with the classes as +1 and -1."""
    cancer = datasets.load("breast_cancer")
    X, y = load_breast_cancer(return_X_y=True)
    assert np.array_equal(cancer.X, X) and np.array_equal(cancer.y, np.where(y == 1, 1.0, -1.0))
    assert cancer.classes == ("malignant", "benign") and cancer.feature_names[0] == "mean radius"
    digits = datasets.load("digits:3v8")
    X, y = load_digits(return_X_y=True)
    rows = (y == 3) | (y == 8)
    assert np.array_equal(digits.X, X[rows]) and np.array_equal(digits.y, np.where(y[rows] == 3, 1.0, -1.0))
    wine = datasets.load("wine:2vrest")
    assert wine.X.shape == (178, 13) and int((wine.y > 0).sum()) == int((load_wine().target == 2).sum())
    assert wine.classes == ("rest", "class_2")
    assert datasets.load("iris:0v1").X.shape == (100, 4)
    wine = datasets.load("wine")
    assert wine.classes == ("class_0", "class_1", "class_2") and np.array_equal(wine.y, load_wine().target)
    diabetes = datasets.load("diabetes")
    assert diabetes.task == "regression" and np.array_equal(diabetes.y, load_diabetes().target)


@pytest.mark.parametrize("name", ["wine:", "wine:0", "wine:0v3", "wine:1v1", "iris:setosa", "digits:3v10"])
def test_classes_must_be_named(name):
    with pytest.raises(ValueError, match=r"classes, 0 to \d: name two different ones as"):
        datasets.load(name)


def test_unknown_names(monkeypatch):
    monkeypatch.delenv("GLRU_DATA", raising=False)
    with pytest.raises(
        ValueError, match=r"known by name \(breast_cancer, .*diabetes.*got 'nothing'.*GLRU_DATA.* not set"
    ):
        datasets.load("nothing")
    with pytest.raises(ValueError, match="a regression and has no classes"):
        datasets.load("diabetes:0v1")


VALUES = np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])


def test_files_of_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GLRU_DATA", str(tmp_path))
    sparse = sp.csr_array(VALUES)
    parts = {"data": sparse.data, "indices": sparse.indices, "indptr": sparse.indptr, "shape": sparse.shape}
    np.savez(tmp_path / "mine.npz", y=np.array([0.0, 1.0, 1.0, 0.0]), **parts)
    np.savez(tmp_path / "real.npz", X=VALUES, y=np.array([0.0, 1.0, 2.0, 0.5]))
    mine, real = datasets.load("mine"), datasets.load("real")
    assert (mine.task, mine.y.tolist()) == ("classification", [-1, 1, 1, -1])
    assert (real.task, real.classes) == ("regression", None)
    assert datasets.prepare(mine).normalize == "sparse" and datasets.prepare(real).normalize == "dense"
    assert {"mine", "real"} <= {entry.name for entry in datasets.list()}
    (tmp_path / "breast_cancer.npz").write_bytes(b"")
    assert datasets.load("breast_cancer").X.shape == (569, 30)


def matrix(tmp_path, X):
    """The contents of a file with some data and two classes."""
    if sp.issparse(X):
        sp.save_npz(tmp_path / "data.npz", sp.csr_matrix(X))
        with np.load(tmp_path / "data.npz") as parts:
            arrays = dict(parts)
    else:
        arrays = {"X": X}
    np.savez(tmp_path / "data.npz", y=np.arange(X.shape[0]) % 2, **arrays)
    return datasets.read(tmp_path / "data.npz")


def test_scaling(tmp_path):
    random = np.random.default_rng(0)
    X = np.column_stack([random.normal(3.0, 2.0, 50), np.full(50, 0.1), random.integers(0, 2, 50), np.zeros(50)])
    for values in (X, sp.csr_array(X)):
        contents = matrix(tmp_path, values)
        dense = datasets.prepare(contents, normalize="dense")
        assert dense.names == ("0", "2")
        np.testing.assert_allclose(dense.X, scale(X[:, [0, 2]]), atol=1e-12)
        sparse = datasets.prepare(contents, normalize="sparse")
        assert sp.issparse(sparse.X) == sp.issparse(values)
        found = sparse.X.toarray() if sp.issparse(values) else sparse.X
        np.testing.assert_allclose(found, X[:, [0, 2]] / X[:, [0, 2]].std(axis=0), atol=1e-12)
        assert datasets.prepare(contents, normalize="none").X.shape == X.shape
        np.testing.assert_allclose(dense.transform(contents), dense.X, atol=1e-12)


def test_scaling_refuses(tmp_path):
    with pytest.raises(ValueError, match="normalize must be 'auto', 'dense', 'sparse' or 'none'; got 'both'"):
        datasets.prepare(datasets.load("breast_cancer"), normalize="both")
    with pytest.raises(ValueError, match="all 3 are constant"):
        datasets.prepare(matrix(tmp_path, np.ones((4, 3))))
    large = matrix(tmp_path, np.array([[1e300, 1.0], [-1e300, 2.0], [1e300, 0.0]]))
    with pytest.raises(ValueError, match="column 0 are too large to be scaled"):
        datasets.prepare(large)
    wide = matrix(tmp_path, sp.eye_array(3_000_000, format="csr"))
    with pytest.raises(ValueError, match=r"fill 3000000 x 3000000 sparse data up to \d+ GiB"):
        datasets.prepare(wide, normalize="dense")
    with pytest.raises(ValueError, match=r"target='mean radius', one_hot=True is for files"):
        datasets.prepare(datasets.load("breast_cancer"), target="mean radius", one_hot=True)


@pytest.fixture
def table(tmp_path):
    """A table with numbers, text in between, and gaps in both."""
    frame = pl.DataFrame(
        {
            "city": ["oslo", "rome", None, "oslo", "york", "rome"],
            "age": [30.0, None, 50.0, 40.0, 20.0, 60.0],
            "job": ["a", "b", "a", "b", "a", "b"],
            "ill": [True, False, True, False, True, True],
            "y": ["no", "yes", "no", "yes", "yes", "no"],
        }
    )
    frame.write_parquet(tmp_path / "table.parquet")
    return frame, datasets.read(tmp_path / "table.parquet")


def test_tables(table, tmp_path):
    """Columns keep their order; gaps are filled, and new rows go the way of the old ones."""
    _, contents = table
    prepared = datasets.prepare(contents, one_hot=True, impute="median", normalize="none")
    assert prepared.names == ("city=oslo", "city=rome", "city=york", "age", "job=a", "job=b", "ill")
    assert prepared.origins == ("city", "city", "city", "age", "job", "job", "ill")
    expected = [[1, 0, 0, 30, 1, 0, 1], [0, 1, 0, 40, 0, 1, 0], [1, 0, 0, 50, 1, 0, 1]]
    assert np.array_equal(prepared.X[:3], expected) and prepared.X.dtype == np.float64
    assert prepared.y.tolist() == [-1, 1, -1, 1, 1, -1] and prepared.targets.classes == ("no", "yes")
    assert prepared.find_columns(["city", "age"]) == [0, 1, 2, 3]
    scaled = datasets.prepare(contents, one_hot=True, impute="median")
    np.testing.assert_allclose(scaled.X, StandardScaler().fit_transform(prepared.X), atol=1e-12)
    new = pl.DataFrame({"ill": [False], "job": ["b"], "age": [None], "city": ["york"]}, schema_overrides={"age": float})
    new.write_csv(tmp_path / "new.csv")
    assert prepared.transform(datasets.read(tmp_path / "new.csv")).tolist() == [[0, 0, 1, 40, 0, 1, 0]]


def test_errors_name_parameters_of_the_library(table):
    _, contents = table
    with pytest.raises(ValueError, match=r"text is in 'city' \('oslo' in row 0\).*Encode categories \(one_hot=True\)"):
        datasets.prepare(contents)
    with pytest.raises(
        ValueError, match=r"'city' \(1, first in row 2\), 'age' \(1, first in row 1\).*\(impute='median'\)"
    ):
        datasets.prepare(contents, one_hot=True)
    with pytest.raises(
        ValueError, match=r"classes of two rows or more; it has 6 values.*\(positive=...\).*task='regression'"
    ):
        datasets.prepare(replace(contents, table=contents.table.with_columns(y=pl.int_range(6))))


def test_imputation_is_learnt_once(table, tmp_path):
    """Without imputation new rows must be complete, whatever the training rows were."""
    frame, contents = table
    prepared = datasets.prepare(contents, drop=["city", "age", "job"], normalize="none")
    frame[:1].with_columns(ill=pl.lit(None)).write_parquet(tmp_path / "new.parquet")
    with pytest.raises(ValueError, match="no missing values; values are missing in 'ill'"):
        prepared.transform(datasets.read(tmp_path / "new.parquet"))


def test_the_library_has_them():
    assert glru.datasets is datasets


def test_libsvm_in_bounded_memory(tmp_path):
    """Besides the matrix itself, reading a long file takes next to no memory."""
    lines = [f"{k % 2} {1 + k % 7}:{k % 9 + 0.5} {10 + k % 90}:1 {100 + k % 50}:2.25\n" for k in range(1000)]
    (tmp_path / "long.libsvm").write_text("".join(lines) * 400)
    script = """
import resource, sys
import sklearn.datasets
from glru import datasets
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = datasets.read(sys.argv[1])
peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
size = sum(array.nbytes for array in (found.X.data, found.X.indices, found.X.indptr, found.y))
print(found.X.shape[0], found.X.nnz, peak / size)
"""
    line = [sys.executable, "-c", script, str(tmp_path / "long.libsvm")]
    rows, entries, ratio = subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()
    assert (int(rows), int(entries)) == (400_000, 1_200_000)
    assert float(ratio) < 2.5
