"""Every kind of matrix does what NumPy does with the same numbers in a dense array."""

import pickle
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

import glru
from tests.core import as_matrix, gamma, to_host

strict = pytest.importorskip("array_api_strict")

KINDS = {
    "rows": np.array,
    "columns": np.asfortranarray,
    "sparse": sp.csr_array,
    "device": lambda X: strict.asarray(np.array(X), device=strict.Device("device1")),
}
each_kind = pytest.mark.parametrize("kind", KINDS)
SHAPES = [(7, 4), (4, 9), (1, 1), (0, 3), (5, 0)]


def numbers(shape=(7, 4), seed=0):
    """Dense numbers with zeros, a column of zeros among them."""
    random = np.random.default_rng(seed)
    X = np.where(random.random(shape) < 0.4, 0.0, random.normal(size=shape))
    X[:, 2:3] = 0.0
    return X


def made(kind, X):
    return as_matrix(KINDS[kind](X))


def same(matrix, expected):
    np.testing.assert_array_equal(matrix.dense(), expected)


def close(found, expected):
    np.testing.assert_allclose(to_host(found), expected, rtol=1e-13, atol=1e-14)


@each_kind
@pytest.mark.parametrize("shape", SHAPES)
def test_products(kind, shape):
    X = numbers(shape)
    matrix, (n, d) = made(kind, X), shape
    v, w, s = np.linspace(-1.0, 2.0, d), np.linspace(0.5, 1.5, n), np.arange(n) % 3.0
    batch = np.outer(v, [1.0, -2.0])
    assert matrix.shape == shape
    close(matrix @ v, X @ v)
    close(matrix @ batch, X @ batch)
    close(matrix.T @ w, X.T @ w)
    close(matrix.T @ np.outer(w, [1.0, 2.0]), X.T @ np.outer(w, [1.0, 2.0]))
    close(matrix @ matrix.arrays.put(batch), X @ batch)
    close(matrix.absolute_product(np.abs(v)), np.abs(X) @ np.abs(v))
    forward, back = matrix.curvature_product(s)(v)
    close(forward, X @ v)
    close(back, X.T @ (s * (X @ v)))
    close(np.triu(to_host(matrix.column_gram(s))), np.triu(X.T @ (s[:, None] * X)))
    if n:
        symmetric = np.add.outer(v, v)
        close(matrix.quadratic_forms(symmetric), np.einsum("ij,jk,ik->i", X, symmetric, X))
        for weights in (np.full(d, 2.0), np.arange(d) % 3.0):
            close(matrix.row_gram(weights).dense(), X * weights @ X.T)


@each_kind
@pytest.mark.parametrize("other", KINDS)
def test_cross_gram(kind, other):
    if (kind == "device") != (other == "device") and kind != "device":
        pytest.skip("queries are brought to the device first")
    X, Y, weights = numbers((5, 4), 1), numbers((3, 4), 2), np.arange(4.0)
    close(made(kind, X).cross_gram(made(other, Y), weights).dense(), X * weights @ Y.T)


@each_kind
@pytest.mark.parametrize("shape", SHAPES[:4])
def test_norms_and_counts(kind, shape):
    X = numbers(shape)
    matrix, (n, d) = made(kind, X), shape
    s, c = np.arange(n) % 3.0, np.arange(d) % 4.0
    close(matrix.squared_row_norms(), (X**2).sum(axis=1))
    close(matrix.squared_row_norms(c), X**2 @ c)
    close(matrix.squared_row_norms(np.full(d, 3.0)), 3.0 * (X**2).sum(axis=1))
    close(matrix.squared_column_norms(s), s @ X**2)
    np.testing.assert_array_equal(matrix.filled_columns(s > 0.0), (X[s > 0.0] != 0.0).any(axis=0))
    counts = matrix.column_counts()
    assert (counts is None) == matrix.stores_zeros
    assert counts is None or np.array_equal(counts, (X != 0.0).sum(axis=0))
    stored = np.full(n, d) if matrix.stores_zeros else (X != 0.0).sum(axis=1)
    np.testing.assert_array_equal(np.broadcast_to(matrix.depths(3), n), [gamma(int(k) + 3) for k in stored])
    assert matrix.n_stored == stored.sum()
    for (columns, values), row in zip(matrix.nonzeros(), X, strict=True):
        np.testing.assert_array_equal(columns, np.flatnonzero(row))
        np.testing.assert_array_equal(values, row[row != 0.0])


@each_kind
def test_entries(kind):
    X = numbers()
    matrix, scales = made(kind, X), np.array([2.0, 0.0, 3.0, -1.0])
    same(abs(matrix), np.abs(X))
    same(-matrix, -X)
    same(matrix.positive_part(), np.maximum(X, 0.0))
    same(matrix.scale_columns(scales), X * scales)


@each_kind
def test_parts(kind):
    X = numbers()
    matrix = made(kind, X)
    rows, columns, mask = np.array([5, 0, 5]), np.array([3, 1]), np.arange(7) % 2 == 0
    same(matrix[rows], X[rows])
    same(matrix[mask], X[mask])
    same(matrix[2:5], X[2:5])
    same(matrix[:0], X[:0])
    same(matrix[6:9], X[6:])
    same(matrix[:, columns], X[:, columns])
    same(matrix[:, [2, 0]], X[:, [2, 0]])
    same(matrix[:, np.array([True, False, True, False])], X[:, [0, 2]])
    np.testing.assert_array_equal(matrix.dense(columns), X[:, columns])
    np.testing.assert_array_equal(matrix.dense(np.empty(0, dtype=np.intp)), X[:, :0])
    np.testing.assert_array_equal(to_host(matrix.block(columns)), X[:, columns])
    np.testing.assert_array_equal(matrix.to_csc(columns).toarray(), X[:, columns])
    same(matrix.replace_columns(columns, np.ones((7, 2))), np.where(np.isin(np.arange(4), columns), 1.0, X))
    same(matrix, X)


@each_kind
@pytest.mark.parametrize("other", KINDS)
def test_concatenation_and_conversion(kind, other):
    X, Y, Z = numbers(), numbers((2, 4), 1), numbers((7, 3), 2)
    matrix = made(kind, X)
    for found, expected in (
        (matrix.concatenate([matrix, made(other, Y)], axis=0), np.vstack([X, Y])),
        (matrix.concatenate([made(other, Z), matrix], axis=1), np.hstack([Z, X])),
        (matrix.convert(made(other, Y)), Y),
    ):
        same(found, expected)
        assert type(found) is type(matrix)
    assert matrix.bring(made(other, Y)).arrays.device == (
        matrix.arrays.device if kind == "device" else made(other, Y).arrays.device
    )


@each_kind
def test_numbers_that_are_not_finite(kind):
    X = numbers()
    assert made(kind, X).find_infinite() is None
    assert made(kind, np.full((4, 2), 1e308)).find_infinite() is None
    X[3, 1] = X[4, 0] = np.inf
    assert made(kind, X).find_infinite() == (3, 1, np.inf, 2)


@each_kind
def test_copies_share_nothing_but_the_numbers(kind):
    X = numbers()
    matrix = made(kind, X)
    matrix.shared["something"] = 1
    copies = [matrix.copy()] if kind == "device" else [matrix.copy(), pickle.loads(pickle.dumps(matrix))]
    for copy in copies:
        same(copy, X)
        assert not copy.shared
    for own, theirs in zip(matrix.parts.values(), copies[-1].parts.values(), strict=True):
        np.testing.assert_array_equal(own, theirs)
        assert not np.shares_memory(own, theirs)


@each_kind
def test_a_matrix_is_no_array(kind):
    matrix = made(kind, numbers())
    with pytest.raises(TypeError, match="dense"):
        np.asarray(matrix)
    with pytest.raises(TypeError):
        np.ones(7) @ matrix
    with pytest.raises(TypeError, match="got list"):
        as_matrix([[1.0]])
    assert as_matrix(matrix) is matrix


def test_problems_of_the_same_data_share_its_matrix():
    problem = glru.Problem(numbers(), np.arange(7.0), loss=glru.Squared())
    other = problem.derive(penalty=glru.L2(2.0))
    assert other.matrix is problem.matrix and other.X is problem.X
    assert other.squared_row_norms is problem.squared_row_norms
    assert problem.derive(X=problem.matrix[:3], y=problem.y[:3], sample_weight=np.ones(3)).matrix is not problem.matrix


def test_gram_matrices_without_columns(capfd):
    """BLAS refuses a matrix without columns aloud; it is not asked."""
    for center in (None, np.zeros(0)):
        assert not as_matrix(np.zeros((3, 0))).row_gram(np.zeros(0), center).dense().any()
    assert capfd.readouterr() == ("", "")


def test_shifts_are_exact_and_near_the_means():
    random = np.random.default_rng(0)
    spread = random.normal(size=(50, 6))
    X = spread * [1e-3, 1.0, 1.0, 2.0**-310, 1.0, 1e-8] + [7.3, 0.5, 1e6, 2.0**-300, 8.0, -1e5]
    X[3, 4] = 0.1
    shifts = as_matrix(X).find_exact_shifts()
    for column, shift in zip(X.T, shifts, strict=True):
        assert all(Fraction(float(x - shift)) == Fraction(float(x)) - Fraction(float(shift)) for x in column)
    far = np.array([0, 2, 3, 5])
    moved = X[:, far] - shifts[far]
    assert np.all(np.abs(moved.mean(axis=0)) < moved.std(axis=0))
    # A column whose mean is within its spread stays as it is, and so does one that float64 cannot shift without rounding.
    assert shifts[1] == 0.0
    assert shifts[4] == 0.0
    assert as_matrix(spread).find_exact_shifts() is None
    assert as_matrix(sp.csr_array(X)).find_exact_shifts() is None


def test_large_weights_of_small_columns_lose_nothing():
    """Squares of 1e-160 underflow, their products with weights of 1e100 do not."""
    unscaled = np.random.default_rng(4).normal(size=(30, 3))
    gram = as_matrix(np.ldexp(unscaled, -530)).column_gram(np.full(30, 2.0**332))
    assert np.allclose(np.triu(np.ldexp(gram, 2 * 530 - 332)), np.triu(unscaled.T @ unscaled), rtol=1e-12, atol=1e-12)
