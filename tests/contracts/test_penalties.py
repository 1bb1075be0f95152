"""What every penalty promises: conjugate, its derivative interval, prox, strong convexity, Fenchel-Young value."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import glru
from tests.cases import COLUMN_PENALTIES, PENALTIES, each

PENALTY = PENALTIES | {"elastic-net-strong": glru.ElasticNet(2.0, 1.5)} | COLUMN_PENALTIES
GRID = np.arange(-8_000, 8_001)[:, None] / 1000.0
STEP = 1e-5

every_penalty = each(PENALTY, "penalty")


def domain(penalty):
    """Points of the conjugate's domain, one row each: the middle, the edges of L1, the reach of the grid."""
    kappa = np.broadcast_to(penalty.absolute, (3,))
    reach = np.where(penalty.quadratic > 0.0, kappa + 5.0 * penalty.quadratic, kappa)
    return np.linspace(-1.0, 1.0, 9)[:, None] * reach


@every_penalty
def test_value(penalty):
    """Half the squares and the absolute values, column by column."""
    w = np.array([1.0, -2.0, 3.0])
    expected = 0.5 * penalty.quadratic * w * w + penalty.absolute * np.abs(w)
    np.testing.assert_allclose(penalty.value(w), expected, rtol=1e-15)
    np.testing.assert_array_equal(penalty.value(np.zeros(3)), 0.0)


@every_penalty
def test_conjugate_is_the_supremum(penalty):
    """Brute force over a grid of coefficients."""
    for v in domain(penalty):
        brute = np.max(GRID * v - penalty.value(GRID * np.ones(3)), axis=0)
        np.testing.assert_allclose(penalty.conjugate(v), brute, atol=1e-6)


@every_penalty
def test_derivative_range_is_the_domain_of_the_conjugate(penalty):
    """Finite up to the edge, infinite one float beyond it."""
    lower, upper = (np.broadcast_to(end, (3,)) for end in penalty.derivative_range())
    np.testing.assert_array_equal(lower, -upper)
    bounded = np.isfinite(upper)
    np.testing.assert_array_equal(bounded, np.broadcast_to(penalty.quadratic == 0.0, (3,)))
    assert np.all(np.isfinite(penalty.conjugate(np.where(bounded, upper, 1e4))))
    for beyond in (np.nextafter(upper, np.inf), np.nextafter(lower, -np.inf)):
        outside = np.where(bounded, beyond, 0.0)
        np.testing.assert_array_equal(np.isinf(penalty.conjugate(outside)), bounded)
        np.testing.assert_array_equal(np.isinf(penalty.fenchel_young(np.ones(3), outside)), bounded)


@every_penalty
def test_conjugate_derivative_is_the_set_of_maximisers(penalty):
    """Both ends by finite differences; infinite exactly at the edge of the domain (Remark 1)."""
    for v in domain(penalty):
        lower, upper = penalty.conjugate_derivative(v)
        assert np.all(lower <= upper)
        for end, step in ((upper, STEP), (lower, -STEP)):
            difference = (penalty.conjugate(v + step) - penalty.conjugate(v)) / step
            np.testing.assert_allclose(difference, end, atol=1.1 * STEP / 0.05)
        for w in (np.clip(lower, -9.0, 9.0), np.clip(upper, -9.0, 9.0)):
            np.testing.assert_allclose(penalty.fenchel_young(w, v), 0.0, atol=1e-14)


def test_remark_1():
    """L1: zero inside, a half line at the edge; an unpenalised column: everything at zero."""
    lower, upper = glru.L1([1.0, 1.0, 1.0, 0.0]).conjugate_derivative([0.5, 1.0, -1.0, 0.0])
    assert lower.tolist() == [0.0, 0.0, -np.inf, -np.inf]
    assert upper.tolist() == [0.0, np.inf, 0.0, np.inf]
    lower, upper = glru.L2([2.0, 0.0]).conjugate_derivative([3.0, 0.0])
    assert lower.tolist() == [1.5, -np.inf] and upper.tolist() == [1.5, np.inf]


@every_penalty
@pytest.mark.parametrize("step", [0.3, np.array([0.1, 1.0, 4.0])], ids=["scalar", "columns"])
def test_prox_is_the_minimiser(penalty, step):
    """Brute force over a grid of coefficients."""
    for w in (np.array([0.05, -0.5, 2.0]), np.array([-3.0, 0.0, 0.4])):
        brute = GRID[np.argmin(0.5 * (GRID - w) ** 2 + step * penalty.value(GRID * np.ones(3)), axis=0), 0]
        np.testing.assert_allclose(penalty.prox(w, step), brute, atol=6e-4)


@every_penalty
@settings(deadline=None, max_examples=50)
@given(w=st.tuples(*[st.floats(-1e4, 1e4)] * 3), u=st.tuples(*[st.floats(-1e4, 1e4)] * 3), t=st.floats(0.0, 1.0))
@example(w=(0.0, 0.0, 5e-324), u=(0.0, 0.0, 0.0), t=0.625)
def test_strong_convexity(penalty, w, u, t):
    """The value bends at least as much as the constant says."""
    w, u = np.array(w), np.array(u)
    between = t * penalty.value(w) + (1.0 - t) * penalty.value(u) - penalty.value(t * w + (1.0 - t) * u)
    # Products of subnormal numbers are rounded to multiples of the smallest one.
    rounding = 1e-13 * (penalty.value(w) + penalty.value(u)) + 1e-300
    assert np.all(between >= 0.5 * penalty.strong_convexity * t * (1.0 - t) * (w - u) ** 2 - rounding)


@every_penalty
def test_strong_convexity_is_tight(penalty):
    """Some column bends exactly as much as the constant says."""
    bends = penalty.value(np.full(3, 3.0)) - 2.0 * penalty.value(np.full(3, 2.0)) + penalty.value(np.ones(3))
    assert np.min(bends) == pytest.approx(penalty.strong_convexity, abs=1e-12)


@every_penalty
@settings(deadline=None, max_examples=50)
@given(w=st.tuples(*[st.floats(-1e4, 1e4)] * 3), share=st.floats(-1.0, 1.0))
def test_fenchel_young(penalty, w, share):
    """Never negative, and equal to its definition up to the rounding of that."""
    w = np.array(w)
    v = share * domain(penalty)[-1]
    stable, size = penalty.fenchel_young(w, v), penalty.value(w) + penalty.conjugate(v) + np.abs(w * v)
    assert np.all(stable >= 0.0)
    np.testing.assert_allclose(
        stable, penalty.value(w) + penalty.conjugate(v) - w * v, rtol=0, atol=1e-14 * size.sum() + 1e-300
    )


def test_fenchel_young_does_not_cancel():
    """A relative error of one part in 1e9 in a coefficient is seen, although its square is far below the value's rounding."""
    w = 1e4
    v = 0.5 * w * (1.0 + 1e-9)
    assert glru.L2(0.5).fenchel_young(w, v) == pytest.approx(0.25 * (w - v / 0.5) ** 2, rel=1e-9, abs=0.0)


@each(COLUMN_PENALTIES, "penalty")
def test_columns_are_separate(penalty):
    """One strength a column, in ``n_columns``, and ``select`` takes some of them in the given order."""
    assert penalty.n_columns == 3
    order, w = [2, 0], np.array([0.3, -0.2, 2.0])
    some = penalty.select(order)
    assert some.n_columns == 2 and type(some) is type(penalty)
    np.testing.assert_array_equal(some.value(w[order]), penalty.value(w)[order])
    mask = penalty.select(np.array([True, False, True]))
    np.testing.assert_array_equal(mask.value(w[[0, 2]]), penalty.value(w)[[0, 2]])


@each(PENALTIES, "penalty")
def test_scalar_strengths_fit_any_columns(penalty):
    """A scalar penalty has no number of columns, and broadcasts over leading axes."""
    assert penalty.n_columns is None
    assert penalty.value(np.ones((4, 5))).shape == (4, 5)
    np.testing.assert_array_equal(penalty.select([3, 1]).value([1.0, 2.0]), penalty.value([1.0, 2.0]))


@every_penalty
def test_scaled(penalty):
    """A multiple of the penalty: the value times c, the conjugate at v / c times c."""
    w, v = np.array([0.3, -0.2, 2.0]), domain(penalty)[6]
    bigger = penalty.scale(4.0)
    np.testing.assert_allclose(bigger.value(w), 4.0 * penalty.value(w), rtol=1e-15)
    np.testing.assert_allclose(bigger.conjugate(4.0 * v), 4.0 * penalty.conjugate(v), rtol=1e-15)


@every_penalty
def test_smooth_means_no_absolute_value(penalty):
    """Whether the two one-sided derivatives at zero agree in every column."""
    ahead, behind = penalty.value(np.full(3, 1e-9)), penalty.value(np.full(3, -1e-9))
    assert penalty.smooth == bool(np.all(ahead + behind < 1e-12))


BAD = {
    "negative": (lambda: glru.L2(-1.0), "lam of L2 must be a finite number at least 0; got -1.0"),
    "nan": (lambda: glru.L2(np.nan), "lam of L2 must be a finite number at least 0; got nan"),
    "inf": (lambda: glru.L2(np.inf), "lam of L2 must be a finite number at least 0; got inf"),
    "kappa": (lambda: glru.L1(0.0), "kappa of L1 must be a finite number above 0; got 0.0"),
    "net-lam": (lambda: glru.ElasticNet(0.0, 1.0), "lam of ElasticNet must be a finite number above 0; got 0.0"),
    "net-kappa": (lambda: glru.ElasticNet(1.0, -1.0), "kappa of ElasticNet must be a finite number at least 0"),
    "array": (lambda: glru.L2([1.0, -1.0]), "lam of L2 must hold one finite number >= 0 for each column"),
    "array-nan": (lambda: glru.L1([1.0, np.nan]), "kappa of L1 must hold one finite number >= 0 for each column"),
    "matrix": (
        lambda: glru.L2(np.ones((2, 2))),
        r"one finite number >= 0 for each column; got an array of shape \(2, 2\)",
    ),
    "lengths": (lambda: glru.ElasticNet([1.0, 1.0], [1.0, 1.0, 1.0]), "one entry per column; got 2 and 3 entries"),
}


@each(BAD, "case")
def test_bad_parameters(case):
    """The error names the rule and the value."""
    make, message = case
    with pytest.raises(ValueError, match=message):
        make()


def test_penalties_are_frozen():
    """Neither the field nor the array in it can be changed, and the caller's array is not used."""
    given_lam = np.array([1.0, 2.0])
    penalty = glru.L2(given_lam)
    given_lam[0] = 5.0
    assert penalty.value([1.0, 1.0]).tolist() == [0.5, 1.0]
    with pytest.raises(AttributeError):
        penalty.lam = 3.0
    with pytest.raises(ValueError, match="read-only"):
        penalty.quadratic[0] = 3.0


def test_zero_kappa_is_l2():
    """An elastic net without absolute values is the ridge penalty."""
    net, ridge = glru.ElasticNet(0.5, 0.0), glru.L2(0.5)
    w, v = np.linspace(-3.0, 3.0, 7), np.linspace(2.0, -2.0, 7)
    assert net.smooth
    np.testing.assert_array_equal(net.value(w), ridge.value(w))
    np.testing.assert_array_equal(net.conjugate(v), ridge.conjugate(v))
    np.testing.assert_array_equal(net.fenchel_young(w, v), ridge.fenchel_young(w, v))
