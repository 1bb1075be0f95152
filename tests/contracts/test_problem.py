"""What a problem accepts, what it refuses and why, and that nothing changes it afterwards."""

import dataclasses

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

import glru
from tests.cases import dense, each

X = dense(6, 3)
Y = np.array([0, 1, 0, 1, 1, 0])
SPARSE = sp.random_array((6, 3), density=0.5, rng=np.random.default_rng(0))


def column(name, value):
    """A frame with one odd column."""
    return pd.DataFrame({"age": np.arange(6.0), name: value})


def with_entry(value, where=(4, 1)):
    """X with one odd entry."""
    changed = X.copy()
    changed[where] = value
    return changed


def test_dense_float64_is_not_copied():
    """Rows or columns first, the data are used as they are; the caller's array stays writable."""
    for data in (X.copy(), np.asfortranarray(X)):
        problem = glru.Problem(data, Y)
        assert np.shares_memory(problem.X, data)
        assert data.flags.writeable and not problem.X.flags.writeable


CONVERTED = {
    "float32": X.astype(np.float32),
    "int": (10 * X).astype(int),
    "uint8": np.arange(18, dtype=np.uint8).reshape(6, 3),
    "bool": X > 0,
    "list": X.tolist(),
    "strided": np.repeat(X, 2, axis=1)[:, ::2],
    "object": X.astype(object),
}


@each(CONVERTED, "data")
def test_other_dense_data_is_converted(data):
    """To contiguous float64, value by value."""
    problem = glru.Problem(data, Y)
    assert problem.X.dtype == np.float64 and problem.X.flags.forc
    np.testing.assert_array_equal(problem.X, np.asarray(data, dtype=np.float64))


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "lil"])
@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_sparse_data_stays_sparse(layout, kind, dtype):
    """Every layout becomes a canonical float64 CSR array."""
    data = getattr(sp, f"{layout}_{kind}")((3.0 * SPARSE).astype(dtype))
    problem = glru.Problem(data, Y)
    assert sp.issparse(problem.X) and isinstance(problem.X, sp.csr_array)
    assert problem.X.dtype == np.float64 and problem.X.has_canonical_format
    np.testing.assert_array_equal(problem.X.toarray(), data.toarray())
    np.testing.assert_array_equal(problem.matrix.by_column.toarray(), data.toarray())


def test_csr_is_not_copied():
    """Canonical CSR float64 data are used as they are; others leave the caller's arrays alone."""
    data = sp.csr_array(SPARSE)
    assert np.shares_memory(glru.Problem(data, Y).X.data, data.data)
    twice = sp.csr_array((np.ones(4), np.array([2, 0, 0, 1]), np.array([0, 3, 4])), shape=(2, 3))
    problem = glru.Problem(twice, [0, 1])
    assert problem.X.toarray().tolist() == [[2.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    assert twice.indices.tolist() == [2, 0, 0, 1]


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_frames_keep_their_column_names(library):
    """Numbers of several types in one frame, labels from a series."""
    frame = library.DataFrame({"age": X[:, 0], "count": [1, 2, 3, 4, 5, 6], "member": [True, False] * 3})
    problem = glru.Problem(frame, library.Series(["no", "yes", "no", "yes", "yes", "no"]))
    assert problem.column_names == ("age", "count", "member")
    np.testing.assert_array_equal(problem.X, frame.to_numpy().astype(float))
    assert problem.y.tolist() == [-1, 1, -1, 1, 1, -1]
    assert glru.Problem(X, Y).column_names is None


def test_nullable_frames():
    """Pandas' nullable numbers are numbers when nothing is missing."""
    problem = glru.Problem(column("count", pd.array([1, 2, 3, 4, 5, 6], dtype="Int64")), Y)
    assert problem.X[:, 1].tolist() == [1, 2, 3, 4, 5, 6]


def test_sparse_frame_stays_sparse():
    """A pandas frame of sparse columns is not densified."""
    frame = pd.DataFrame.sparse.from_spmatrix(sp.csr_array(SPARSE), columns=["a", "b", "c"])
    problem = glru.Problem(frame, Y)
    assert sp.issparse(problem.X) and problem.column_names == ("a", "b", "c")
    np.testing.assert_array_equal(problem.X.toarray(), SPARSE.toarray())


LABELS = {
    "signs": ([-1, 1, -1, 1, 1, -1], [-1, 1]),
    "zero-one": ([0, 1, 0, 1, 1, 0], [0, 1]),
    "bool": ([False, True, False, True, True, False], [False, True]),
    "text": (["ham", "spam", "ham", "spam", "spam", "ham"], ["ham", "spam"]),
    "floats": ([1.5, 2.5, 1.5, 2.5, 2.5, 1.5], [1.5, 2.5]),
    "column": (Y[:, None], [0, 1]),
    "categorical": (pd.Categorical(["a", "b", "a", "b", "b", "a"]), ["a", "b"]),
}


@each(LABELS, "case")
def test_labels_become_signs(case):
    """The larger class counts as +1."""
    labels, classes = case
    problem = glru.Problem(X, labels)
    assert problem.y.tolist() == [-1, 1, -1, 1, 1, -1]
    assert problem.y.dtype == np.float64
    assert problem.classes.tolist() == classes


def test_real_targets_stay():
    """A regression loss has no classes; integers become float64."""
    problem = glru.Problem(X, np.arange(6), loss=glru.Squared())
    assert problem.classes is None
    assert problem.y.dtype == np.float64 and problem.y.tolist() == [0, 1, 2, 3, 4, 5]


def test_weights():
    """With "mean" they sum to one, with "sum" they are the sample weights."""
    sample_weight = [1, 2, 0, 1, 3, 1]
    mean = glru.Problem(X, Y, sample_weight=sample_weight)
    np.testing.assert_allclose(mean.weights, np.array(sample_weight) / 8.0, rtol=1e-15)
    assert glru.Problem(X, Y, sample_weight=sample_weight, scaling="sum").weights.tolist() == sample_weight
    np.testing.assert_allclose(glru.Problem(X, Y).weights, 1.0 / 6.0, rtol=1e-15)
    assert glru.Problem(X, Y, scaling="sum").weights.tolist() == [1.0] * 6


def test_a_problem_is_immutable():
    """Neither its fields, nor its arrays, nor the vectors it was made from reach into it."""
    y, sample_weight = np.arange(6.0), np.ones(6)
    problem = glru.Problem(X, y, loss=glru.Squared(), sample_weight=sample_weight, scaling="sum")
    y[0] = sample_weight[0] = 99.0
    assert problem.y[0] == 0.0 and problem.weights[0] == 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        problem.scaling = "mean"
    for array in (problem.X, problem.y, problem.weights, problem.sample_weight):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0


def test_products():
    """Scores and correlations, dense and sparse, with and without an intercept."""
    w, a = np.array([1.0, -2.0, 0.5]), np.arange(6.0)
    for data in (X, sp.csr_array(SPARSE)):
        plain, shifted = glru.Problem(data, Y), glru.Problem(data, Y, fit_intercept=True)
        np.testing.assert_allclose(plain.scores(w, 3.0), data @ w, rtol=1e-15)
        np.testing.assert_allclose(shifted.scores(w, 3.0), data @ w + 3.0, rtol=1e-15)
        np.testing.assert_allclose(plain.correlations(a), data.T @ (a / 6.0), rtol=1e-14)
        np.testing.assert_allclose(plain.squared_row_norms, (data * data).sum(axis=1), rtol=1e-14)


def test_unpenalised_columns():
    """Columns without any strength."""
    assert glru.Problem(X, Y, penalty=glru.L2([1.0, 0.0, 2.0])).unpenalised.tolist() == [1]
    assert glru.Problem(X, Y, penalty=glru.ElasticNet([1.0, 0.0, 0.0], 1.0)).unpenalised.tolist() == []
    assert glru.Problem(X, Y, penalty=glru.L1([0.0, 1.0, 0.0])).unpenalised.tolist() == [0, 2]


def test_derive_changes_only_what_is_named():
    """Rows of one class are accepted, weights follow the scaling, data are shared."""
    problem = glru.Problem(X, Y, penalty=glru.L2(0.5), fit_intercept=True)
    other = problem.derive(penalty=glru.L1(0.5))
    assert other.X is problem.X and other.fit_intercept and other.loss is problem.loss
    ones = problem.derive(X=problem.X[:2], y=np.ones(2), sample_weight=np.array([1.0, 3.0]))
    assert ones.n_rows == 2 and ones.weights.tolist() == [0.25, 0.75]
    assert problem.n_rows == 6


def test_repr():
    """The shape, the loss, the penalty, the options."""
    assert repr(glru.Problem(X, Y, penalty=glru.L2(0.5), fit_intercept=True)) == (
        "Problem(6 rows x 3 columns, Logistic(), L2(lam=0.5), fit_intercept=True, scaling='mean')"
    )
    assert "(sparse)" in repr(glru.Problem(sp.csr_array(SPARSE), Y))


def infinite_sparse(value):
    """Sparse data with one odd entry at row 4, column 1."""
    changed = sp.lil_array(SPARSE)
    changed[4, 1] = value
    return changed.tocsr()


BAD = {
    "nan": ({"X": with_entry(np.nan)}, r"X must be finite; row 4, column 1 is nan \(1 such entries in all\)"),
    "inf": ({"X": with_entry(np.inf)}, "X must be finite; row 4, column 1 is inf"),
    "sparse-nan": ({"X": infinite_sparse(np.nan)}, "X must be finite; row 4, column 1 is nan"),
    "sparse-inf": ({"X": infinite_sparse(-np.inf)}, "X must be finite; row 4, column 1 is -inf"),
    "frame-nan": ({"X": column("height", [1, 2, np.nan, 4, 5, 6])}, "row 2, column 'height' is nan"),
    "empty": ({"X": np.empty((0, 3)), "y": []}, "at least one row and one column; got shape 0 x 3"),
    "no-columns": ({"X": np.empty((6, 0))}, "at least one row and one column; got shape 6 x 0"),
    "sparse-no-columns": ({"X": sp.csr_array((6, 0))}, "at least one row and one column; got shape 6 x 0"),
    "frame-no-columns": ({"X": pd.DataFrame(index=range(6))}, "at least one row and one column; got shape 6 x 0"),
    "one-dimension": ({"X": X[:, 0]}, r"two-dimensional, rows by columns; got 1 dimension\(s\). Reshape"),
    "three-dimensions": ({"X": X[None]}, r"two-dimensional, rows by columns; got 3 dimension\(s\)"),
    "series": ({"X": pd.Series(X[:, 0])}, "two-dimensional"),
    "sparse-series": ({"X": pd.Series(pd.arrays.SparseArray([0, 1, 0, 0, 2, 0]))}, "two-dimensional"),
    "text": ({"X": [["a", "b"]] * 6}, "X must be numeric; got dtype <U1"),
    "complex": ({"X": X * 1j}, "X must be real; got complex"),
    "sparse-complex": ({"X": sp.csr_array(SPARSE * 1j)}, "X must be real and numeric; got dtype complex128"),
    "frame-text": ({"X": column("city", list("abcdef"))}, "Not numeric: 'city'. Encode such columns first"),
    "polars-text": ({"X": pl.DataFrame({"n": [1.0] * 6, "city": list("abcdef")})}, "Not numeric: 'city'"),
    "frame-missing": ({"X": column("count", pd.array([1, None, 3, 4, 5, 6], dtype="Int64"))}, "X must be"),
    "short-y": ({"y": Y[:4]}, r"y must have one entry per row, shape \(6,\); got shape \(4,\)"),
    "wide-y": ({"y": np.zeros((6, 2))}, r"y must have one entry per row, shape \(6,\); got shape \(6, 2\)"),
    "short-target": ({"y": Y[:4], "loss": glru.Squared()}, r"y must have one entry per row, shape \(6,\)"),
    "one-class": ({"y": np.ones(6)}, r"exactly two classes for a classification loss; got 1 \(1.0\)"),
    "three-classes": ({"y": [0, 1, 2, 0, 1, 2]}, r"got 3 \(0, 1, 2\). Use glru.Multinomial"),
    "many-classes": ({"y": np.arange(6)}, r"got 6 \(0, 1, 2, 3, 4 and 1 more\)"),
    "label-nan": ({"y": [0, 1, np.nan, 1, 1, 0]}, "y must be finite; entry 2 is nan"),
    "label-missing": ({"y": np.array([np.nan, 1.0, 1.0, 1.0, 1.0, 1.0], dtype=object)}, "y must"),
    "label-none": ({"y": ["a", None, "a", "a", "a", "a"]}, "y must be finite; entry 1 is None"),
    "label-mixed": ({"y": np.array([0, "a", 0, 0, "a", "a"], dtype=object)}, "y must hold labels of one type"),
    "target-nan": ({"y": with_entry(np.nan)[:, 1], "loss": glru.Squared()}, "y must be finite; entry 4 is nan"),
    "target-inf": ({"y": with_entry(np.inf)[:, 1], "loss": glru.Huber()}, "y must be finite; entry 4 is inf"),
    "target-text": ({"y": list("abcdef"), "loss": glru.Squared()}, "y must be numeric; got dtype <U1"),
    "short-weight": ({"sample_weight": [1.0]}, r"sample_weight must have one entry per row, shape \(6,\)"),
    "negative-weight": ({"sample_weight": [1, 1, -2, 1, 1, 1]}, "sample_weight must be at least 0; entry 2 is -2.0"),
    "zero-weights": ({"sample_weight": np.zeros(6)}, "sample_weight must have an entry above 0; every weight is zero"),
    "nan-weight": ({"sample_weight": [1, np.nan, 1, 1, 1, 1]}, "sample_weight must be finite; entry 1 is nan"),
    "fit_intercept": ({"fit_intercept": "yes"}, "fit_intercept must be True or False; got 'yes'"),
    "scaling": ({"scaling": "average"}, "scaling must be 'mean' or 'sum'; got 'average'"),
    "penalty-length": ({"penalty": glru.L2([1.0, 2.0])}, "one entry per column of X; got 2 for 3 columns"),
}


@each(BAD, "case")
def test_bad_data(case):
    """The error names the rule, the value and where it stands."""
    arguments, message = case
    with pytest.raises(ValueError, match=message):
        glru.Problem(**{"X": X, "y": Y} | arguments)


@pytest.mark.parametrize(("name", "value"), [("loss", "logistic"), ("loss", glru.Logistic), ("penalty", 0.1)])
def test_wrong_types(name, value):
    """A loss or penalty that is none."""
    with pytest.raises(TypeError, match=f"{name} must be a glru {name} such as"):
        glru.Problem(X, Y, **{name: value})


def test_switches_of_numpy():
    """The booleans of NumPy are booleans."""
    assert glru.Problem(X, Y, fit_intercept=np.True_).fit_intercept


def test_large_finite_values_are_finite():
    """A sum that overflows does not make its terms infinite."""
    data = np.full((6, 3), 1e308)
    assert glru.Problem(data, Y).n_rows == 6
