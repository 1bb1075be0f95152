"""Every fast product equals the slow, obvious one, dense and sparse, on one thread and on several."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import glru
from tests.cases import dense
from tests.core import as_matrix, kernels, table_loops, threads


@pytest.fixture(params=[1, 3], ids=["one-thread", "three-threads"], autouse=True)
def n_threads(request, monkeypatch):
    """Run everything on one thread and on three."""
    monkeypatch.setattr(threads, "n_threads", lambda: request.param)
    return request.param


def layouts(n, d, seed=0):
    """The same kind of data by rows, by columns, and sparse."""
    X = dense(n, d, seed)
    X[np.random.default_rng(seed).random((n, d)) < 0.6] = 0.0
    return {"rows": X, "columns": np.asfortranarray(X), "sparse": sp.csr_array(X)}


def plain(X):
    """A dense copy."""
    return X.toarray() if sp.issparse(X) else np.array(X)


LAYOUTS = ("rows", "columns", "sparse")
SHAPES = [(1, 1), (7, 3), (300, 4), (5, 200), (150, 150)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [*SHAPES, (70_000, 3), (9, 0)])
def test_column_gram(layout, shape):
    """The upper triangle of ``X^T diag(weights) X``, zero weights included."""
    X = layouts(*shape)[layout]
    weights = np.arange(shape[0]) % 5.0
    upper = np.triu(as_matrix(X).column_gram(weights))
    np.testing.assert_allclose(upper, np.triu(plain(X).T @ (weights[:, None] * plain(X))), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(2, 1), *SHAPES[1:], (310, 20), (3, 200_000)])
@pytest.mark.parametrize("even", [True, False])
def test_row_gram(layout, shape, even):
    """All of ``X diag(weights) X^T``, with equal weights (no scaling of X) and others."""
    X = layouts(*shape)[layout]
    weights = np.full(shape[1], 2.0) if even else np.arange(shape[1]) % 5.0
    expected = plain(X) * weights @ plain(X).T
    np.testing.assert_allclose(as_matrix(X).row_gram(weights).data, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [*SHAPES, (70_000, 3)])
def test_curvature_product(layout, shape):
    """Forward and back in one pass."""
    X = layouts(*shape)[layout]
    weights, v = np.arange(shape[0]) % 5.0, np.linspace(-1.0, 1.0, shape[1])
    forward, back = as_matrix(X).curvature_product(weights)(v)
    np.testing.assert_allclose(forward, plain(X) @ v, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(back, plain(X).T @ (weights * (plain(X) @ v)), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_norms_and_columns(layout):
    """Weighted squared norms of rows and columns, and single columns made dense."""
    X = layouts(30, 8)[layout]
    c = np.arange(8.0)
    np.testing.assert_allclose(as_matrix(X).squared_row_norms(), (plain(X) ** 2).sum(axis=1))
    np.testing.assert_allclose(as_matrix(X).squared_row_norms(c), plain(X) ** 2 @ c)
    np.testing.assert_array_equal(as_matrix(X).dense(np.array([5, 2])), plain(X)[:, [5, 2]])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(1, 1), (30, 8), (3, 0), (70_000, 3), (4, 50_000)])
def test_sizes(layout, shape):
    """Squared norms and ``|X| v``, compiled and not."""
    X = layouts(*shape)[layout]
    s, v = np.arange(shape[0]) % 5.0, np.arange(shape[1]) % 7.0
    rows, columns = as_matrix(X).squared_row_norms(), as_matrix(X).squared_column_norms(s)
    np.testing.assert_allclose(rows, (plain(X) ** 2).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(columns, s @ plain(X) ** 2, rtol=1e-12)
    np.testing.assert_allclose(as_matrix(X).absolute_product(v), np.abs(plain(X)) @ v, rtol=1e-12)


@settings(deadline=None, max_examples=100)
@given(n_items=st.integers(1, 200), smallest=st.integers(0, 50), count=st.integers(1, 8))
def test_in_parts_covers_every_item_once(n_items, smallest, count):
    """Consecutive parts in order, none below the smallest size unless there is only one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "n_threads", lambda: count)
        parts = threads.run_in_parts(lambda start, stop: (start, stop), n_items, smallest)
    assert [k for part in parts for k in range(*part)] == list(range(n_items))
    assert len(parts) <= count
    assert len(parts) == 1 or min(stop - start for start, stop in parts) >= max(smallest, 1)


def test_in_parts_passes_errors_on():
    """An error in a thread is an error of the call."""

    def fail(start, stop):
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        threads.run_in_parts(fail, 10, 1)


def penalised_quadratic(seed):
    """A random positive definite form with absolute values, and data it comes from."""
    random = np.random.default_rng(seed)
    X, curvature = layouts(40, 12, seed)["rows"], random.random(40)
    lam, kappa = np.where(np.arange(12) % 3, 0.1, 0.0), np.where(np.arange(12) % 4, 2.0, 0.0)
    return X, curvature, lam, kappa, 5.0 * random.normal(size=12)


def assert_optimal(Q, linear, kappa, x):
    """The subgradient of the penalised quadratic holds zero."""
    slope = Q @ x + linear
    np.testing.assert_allclose(slope[x != 0.0], -kappa[x != 0.0] * np.sign(x[x != 0.0]), atol=1e-6)
    assert np.all(np.abs(slope[x == 0.0]) <= kappa[x == 0.0] + 1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_quadratic_descent(seed):
    """Coordinate descent on the matrix and on its columns both end at the optimum, with zeros in it."""
    X, curvature, lam, kappa, linear = penalised_quadratic(seed)
    Q = X.T @ (curvature[:, None] * X) + np.diag(lam)
    x = kernels.quadratic_descent(Q, linear, kappa, np.zeros(12), 10_000, 1e-18)
    assert_optimal(Q, linear, kappa, x)
    assert np.any(x == 0.0) and np.any(x != 0.0)
    columns, start = sp.csc_array(X), np.linspace(-1.0, 1.0, 12)
    fitted = X @ start
    other = kernels.csc_quadratic_descent(
        columns.indptr,
        columns.indices,
        columns.data,
        curvature,
        np.diag(Q) - lam,
        lam,
        linear,
        kappa,
        start,
        fitted,
        10_000,
        1e-18,
    )
    np.testing.assert_allclose(other, x, atol=1e-7)
    np.testing.assert_allclose(fitted, X @ other, atol=1e-10)
    scaled, start, scores = np.ascontiguousarray((np.sqrt(curvature)[:, None] * X).T), np.zeros(12), np.zeros(40)
    # The objective is about 1e3 at the optimum with this constant.
    visits = kernels.column_descent(scaled, linear, lam, kappa, start, scores, 1e3, 1e-15)
    assert visits > 0
    np.testing.assert_allclose(start, x, atol=1e-6)
    np.testing.assert_allclose(scores, scaled.T @ start, atol=1e-10)


def test_column_descent_gives_up():
    """Nearly equal columns take more sweeps than a Gram matrix costs: what was found until then is no worse than the start, with its scores."""
    random = np.random.default_rng(0)
    columns = random.normal(size=40) + 0.01 * random.normal(size=(12, 40))
    y, x, scores = columns[0] - columns[1] + 0.01 * random.normal(size=40), np.zeros(12), np.zeros(40)
    linear, none = -columns @ y, np.zeros(12)
    visits = kernels.column_descent(columns, linear, none, np.full(12, 1e-11), x, scores, 0.5 * float(y @ y), 1e-9)
    assert visits < 0
    np.testing.assert_allclose(scores, columns.T @ x, atol=1e-9)
    assert np.square(scores - y).sum() < np.square(y).sum()


@settings(deadline=None, max_examples=200)
@given(
    slope=st.floats(0.0, 1.0),
    curvature=st.floats(1e-8, 1e8),
    margin=st.floats(-1e4, 1e4) | st.floats(-1.0, 1.0),
    logistic=st.booleans(),
)
def test_best_slope_maximises_the_dual(slope, curvature, margin, logistic):
    """No other slope makes the dual in one variable larger."""
    loss = glru.Logistic() if logistic else glru.Hinge()
    best = kernels.find_best_slope(slope, curvature, margin, logistic)
    assert 0.0 <= best <= 1.0
    others = np.concatenate([np.linspace(0.0, 1.0, 101), best * np.linspace(0.5, 1.0, 11), [slope]])

    def fall(q):
        """What the negative dual is at ``q``, relative to the best."""
        moved = loss.conjugate(1.0, -q) - loss.conjugate(1.0, -best)
        return moved + (q - best) * (margin + curvature * (0.5 * (q + best) - slope))

    size = 1.0 + abs(margin) + curvature
    assert np.all(fall(others) >= -1e-12 * size)


@pytest.mark.parametrize("intercept", [0.0, 2.0])
@pytest.mark.parametrize("logistic", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dual_pass(layout, logistic, intercept):
    """One pass takes the dual as far as the loop one would write, keeps its sums, and leaves rows without curvature alone."""
    X = layouts(20, 6)[layout]
    random = np.random.default_rng(0)
    y, weights, scale = np.where(np.arange(20) % 2, 1.0, -1.0), np.arange(20) % 4 / 10.0, 3.0
    order, slopes = random.permutation(20), random.uniform(0.1, 0.9, 20)
    curvatures = weights * (scale * (plain(X) ** 2).sum(axis=1) + intercept)
    loss = glru.Logistic() if logistic else glru.Hinge()

    def dual(q):
        a = weights * y * q
        square = scale * float(np.square(plain(X).T @ a).sum()) + intercept * a.sum() ** 2
        return -float(weights @ loss.conjugate(y, -y * q)) - 0.5 * square - 0.3 * a.sum()

    first, expected, shares = slopes.copy(), slopes.copy(), np.zeros(20)
    for i in order:
        if curvatures[i] > 0.0:
            a = weights * y * expected
            score = scale * (plain(X)[i] @ (plain(X).T @ a)) + 0.3 + intercept * a.sum()
            shares[i] = weights[i] * float(loss.fenchel_young(y[i], score, -y[i] * expected[i]))
            expected[i] = kernels.find_best_slope(expected[i], curvatures[i], y[i] * score, logistic)
    v, shift = X.T @ (weights * y * slopes), np.array([0.3, intercept, float(weights @ (y * slopes))])
    found = np.zeros(20)
    as_matrix(X).dual_pass(y, weights, scale, curvatures, order, logistic, 0.0, slopes, v, shift, found)
    assert dual(slopes) - dual(first) >= 0.98 * (dual(expected) - dual(first))
    assert np.array_equal(slopes[curvatures == 0.0], first[curvatures == 0.0])
    np.testing.assert_allclose(found.sum(), shares.sum(), rtol=0.6 if logistic else 1e-9)
    np.testing.assert_allclose(v, X.T @ (weights * y * slopes), atol=1e-12)
    np.testing.assert_allclose(shift, [0.3, intercept, weights @ (y * slopes)], atol=1e-12)
    before = slopes.copy()
    as_matrix(X).dual_pass(y, weights, scale, curvatures, order, logistic, np.inf, slopes, v, shift, found)
    assert np.array_equal(slopes, before)


def test_calm_blas():
    """One thread inside, nested and from several threads; what was set before is back when the last one leaves."""
    limits = lambda: [library["num_threads"] for library in threads._blas().info()]  # noqa: E731
    with threads._blas().limit(limits=2):
        before = limits()
        with threads.calm_blas(1.0):
            assert set(limits()) == {1}
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(_calmly, range(40)))
            assert set(limits()) == {1}
        assert limits() == before
        with threads.calm_blas(1e12):
            assert limits() == before


def _calmly(_):
    with threads.calm_blas(1.0):
        return


def test_mixed_words():
    """The kernel of check-sums is its recurrence in whole numbers of any size."""
    words = np.random.default_rng(0).integers(0, 2**64, 23, dtype=np.uint64)
    for size in (0, 1, 3, 4, 9, 23):
        chains = [1, 2, 3, 4]
        for k, word in enumerate(words[:size].tolist()):
            place = k % 4 if k < size - size % 4 else 0
            mixed = chains[place] ^ word
            chains[place] = ((mixed << 31 | mixed >> 33) % 2**64 * 0x9E3779B97F4A7C15) % 2**64
        assert list(kernels.mix_words(words[:size])) == chains


@pytest.mark.parametrize("n_entries", [1, 1 << 30], ids=["numpy", "compiled"])
def test_ranges_and_slopes_of_many_models_are_those_of_one_at_a_time(n_entries):
    loops = table_loops(n_entries)
    rng = np.random.default_rng(8)
    moves, likely = rng.normal(size=(7, 4, 3)), rng.dirichlet(np.ones(4), size=7)
    y, weights, left_out = rng.integers(0, 4, 7), rng.random(7), np.array([2, 9, 5])
    weights[3] = 0.0
    ranges, squares = np.full(3, 0.5), np.zeros(3)
    loops.add_ranges(moves, weights, ranges)
    used = np.delete(moves, 3, axis=0)
    assert np.array_equal(ranges, np.ptp(used, axis=1).max(axis=0))
    factors = np.exp(moves)
    loops.class_slopes(factors, likely, y, weights, left_out, squares)
    for model in range(3):
        expected = likely * np.exp(moves[:, :, model])
        expected /= expected.sum(axis=1, keepdims=True)
        expected[np.arange(7), y] -= 1.0
        counted = np.where(np.arange(7) == left_out[model], 0.0, weights)
        assert np.allclose(factors[:, :, model], counted[:, None] * expected, rtol=0.0, atol=1e-15)
        assert np.isclose(squares[model], counted @ expected[np.arange(7), y] ** 2)


@pytest.mark.parametrize("n_entries", [1, 1 << 30], ids=["numpy", "compiled"])
def test_slopes_of_classes_that_all_underflow_are_not_numbers(n_entries):
    factors, squares = np.zeros((1, 3, 2)), np.zeros(2)
    with np.errstate(all="ignore"):  # without the compiler these are NumPy's quotients
        table_loops(n_entries).class_slopes(
            factors, np.full((1, 3), 1 / 3), np.array([1]), np.ones(1), np.array([5, 5]), squares
        )
    assert np.isnan(factors).all() and np.isnan(squares).all()
