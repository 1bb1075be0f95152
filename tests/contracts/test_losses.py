"""What every loss promises: derivatives, conjugate, Fenchel-Young value, constants, domains."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import glru
from tests.cases import LOSSES, OTHER_LOSSES, each
from tests.core import entropy_excess

LOSS = LOSSES | OTHER_LOSSES
SCORES = np.arange(-80, 81) / 20.0  # holds every kink exactly
STEP = 1e-5
EPS = np.finfo(np.float64).eps

every_loss = each(LOSS, "loss")


def labels(loss):
    """A column of targets, to be broadcast against scores."""
    if loss.link == "log":
        return np.array([[0.25], [1.0], [3.0]]) if isinstance(loss, glru.Gamma) else np.array([[0.0], [1.0], [3.0]])
    if loss.link == "logit":
        return np.array([[0.0], [0.25], [1.0]])
    return np.array([[-1.0], [1.0]]) if loss.task == "classification" else np.array([[-1.25], [0.0], [2.0]])


def inside(loss, y, share):
    """Points of the conjugate's domain, an infinite side cut off at distance 3."""
    lower, upper = loss.derivative_range(y)
    low, high = np.maximum(lower, np.minimum(upper, 3.0) - 6.0), np.minimum(upper, np.maximum(lower, -3.0) + 6.0)
    return low + share * (high - low)


@every_loss
def test_derivative_is_the_limit_of_differences(loss):
    """Both ends of the interval, kinks included."""
    y = labels(loss)
    lower, upper = loss.derivative(y, SCORES)
    here = loss.value(y, SCORES)
    allowed = 3e-5 * (1.0 + loss.curvature(y, SCORES))
    assert np.all(np.abs((loss.value(y, SCORES + STEP) - here) / STEP - upper) <= allowed)
    assert np.all(np.abs((here - loss.value(y, SCORES - STEP)) / STEP - lower) <= allowed)
    middle = loss.gradient(y, SCORES)
    assert np.all((lower <= middle) & (middle <= upper))


@every_loss
def test_curvature_is_the_limit_of_differences(loss):
    """At a kink of the derivative, from one of the two sides."""
    y = labels(loss)
    lower, upper = loss.derivative(y, SCORES)
    ahead = (loss.derivative(y, SCORES + STEP)[0] - upper) / STEP
    behind = (lower - loss.derivative(y, SCORES - STEP)[1]) / STEP
    curvature = loss.curvature(y, SCORES)
    assert np.all(np.minimum(np.abs(ahead - curvature), np.abs(behind - curvature)) < 1e-5 * (1.0 + curvature))


@each({name: loss for name, loss in LOSS.items() if loss.piecewise}, "loss")
def test_the_curvature_stays_as_it_is_up_to_the_nearest_kink(loss):
    y = labels(loss)
    depth = loss.piece_depth(y, SCORES)
    assert np.array_equal(loss.curvature(y, SCORES), np.where(depth >= 0.0, loss.smoothness, 0.0))
    for way in (-1.0, 1.0):
        for share in (0.5, 1.0 - 1e-9):
            near = loss.curvature(y, SCORES + way * share * np.abs(depth))
            assert np.array_equal(near[depth != 0.0], loss.curvature(y, SCORES)[depth != 0.0])
    beyond = [loss.curvature(y, SCORES + way * (1.0 + 1e-9) * np.abs(depth)) for way in (-1.0, 1.0)]
    crossed = (beyond[0] != loss.curvature(y, SCORES)) | (beyond[1] != loss.curvature(y, SCORES))
    assert np.all(crossed[depth != 0.0])


@each({name: loss for name, loss in LOSS.items() if loss.fourth_constant is not None}, "loss")
def test_third_derivative_is_the_limit_of_differences(loss):
    """And the fourth one is bounded by the curvature."""
    y = labels(loss)
    ahead, here, behind = (loss.curvature(y, SCORES + step) for step in (STEP, 0.0, -STEP))
    np.testing.assert_allclose(loss.third_derivative(y, SCORES), (ahead - behind) / (2.0 * STEP), rtol=1e-9, atol=1e-9)
    step = 1e-3
    up, down = (loss.third_derivative(y, SCORES + k) for k in (step, -step))
    fourth = np.abs(up - down) / (2.0 * step)
    assert np.all(fourth <= loss.fourth_constant * here * (1.0 + 1e-5))
    assert np.any(fourth > 0.8 * loss.fourth_constant * here)


@every_loss
def test_conjugate_is_the_supremum(loss):
    """Brute force over a grid of scores, edges of the domain included."""
    # The mean of a Tweedie distribution of power 1.9 falls as slowly as e^(z / 10).
    z = np.arange(-40_000, 40_001) / (100.0 if loss.link == "log" else 1000.0)
    for y in labels(loss).ravel():
        values = loss.value(y, z)
        for share in (0.0, 1e-3, 0.2, 0.5, 0.7, 0.999, 1.0):
            g = inside(loss, y, share)
            assert loss.conjugate(y, g) == pytest.approx(
                np.max(g * z - values), abs=1e-4 if loss.link == "log" else 1e-6
            )


@every_loss
def test_derivative_range_is_the_domain_of_the_conjugate(loss):
    """Finite up to the very edge, infinite one float beyond it, where the supremum has no bound."""
    y = labels(loss)
    for edge, outward in zip(loss.derivative_range(y), (-np.inf, np.inf), strict=True):
        bounded = np.isfinite(edge)
        assert np.all(np.isfinite(loss.conjugate(y, np.where(bounded, edge, 0.0))))
        beyond = np.nextafter(edge[bounded], outward)
        assert np.all(loss.conjugate(y[bounded], beyond) == np.inf)
        assert np.all(loss.fenchel_young(y[bounded], 0.3, beyond) == np.inf)
        far = np.copysign(1e6, outward)
        slope = np.where(bounded, edge, 0.0) + np.copysign(0.1, outward)
        if loss.link == "log":
            # Exponentials are cut off: the derivative is as large as they are, or next to the edge.
            reach = loss.gradient(y, np.copysign(600.0, outward))
            assert np.all(np.abs(reach - edge)[bounded] <= 1e-12) and np.all(np.abs(reach[~bounded]) > 1e5)
            continue
        growth = slope * far / 2.0 - (loss.value(y, far) - loss.value(y, far / 2.0))
        assert np.all(growth[bounded] > 1e4)
        reach = loss.gradient(y, far)
        np.testing.assert_allclose(reach[bounded], edge[bounded], atol=1e-9)
        assert np.all(np.abs(reach[~bounded]) > 1e5)


@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_conjugate_is_exact_at_the_edges(y):
    """No 0 log 0: the value at an edge is a number one can write down."""
    assert glru.Logistic().conjugate(y, [0.0, -y]).tolist() == [0.0, 0.0]
    assert glru.Hinge().conjugate(y, [0.0, -y]).tolist() == [0.0, -1.0]
    assert glru.SmoothedHinge(0.5).conjugate(y, [0.0, -y]).tolist() == [0.0, -0.75]
    assert glru.SquaredHinge().conjugate(y, 0.0) == 0.0
    assert glru.Huber(0.5).conjugate(y, [-0.5, 0.5]).tolist() == [0.125 - 0.5 * y, 0.125 + 0.5 * y]


@every_loss
def test_fenchel_young_is_value_plus_conjugate_minus_product(loss):
    """Where nothing large is subtracted, the stable form equals its definition."""
    y = labels(loss)
    for share in (0.0, 0.1, 0.45, 0.8, 1.0):
        g = inside(loss, y, share)
        plain = loss.value(y, SCORES) + loss.conjugate(y, g) - g * SCORES
        np.testing.assert_allclose(loss.fenchel_young(y, SCORES, g), plain, rtol=1e-12, atol=1e-13)


@every_loss
@pytest.mark.parametrize("size", [1.0, 30.0, 2500.0])
def test_fenchel_young_is_zero_at_the_derivative_only(loss, size):
    """Zero on the whole subdifferential, non-negative everywhere, positive well away from it."""
    y, z = labels(loss), size * SCORES
    if loss.link == "log":
        z = z[np.abs(z) < 300.0]
    lower, upper = loss.derivative(y, z)
    # A slope is rounded to one part in 2^53, and the value grows with the square of that over the curvature.
    curvature = loss.curvature(y, z)
    rounding = EPS**2 * (1.0 + z**2) + EPS**2 * (1.0 + y**2) / np.maximum(curvature, EPS)
    # So does an exponential, and the score at which a slope is taken where that has to be found.
    rounding = rounding + curvature * (8.0 * (loss.score_noise + EPS) * (1.0 + np.abs(z))) ** 2
    for g in (lower, upper, 0.5 * (lower + upper)):
        assert np.all(loss.fenchel_young(y, z, g) <= rounding)
    low, high = loss.derivative_range(y)
    step = 0.01 * (1.0 + np.abs(lower)) if loss.link == "log" else 0.01
    for g in (lower - step, upper + step):
        allowed = (g >= low) & (g <= high)
        assert np.all((loss.fenchel_young(y, z, g) * (1.0 + curvature))[allowed] > 1e-6)


@every_loss
@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_fenchel_young_is_never_negative(loss, data):
    """Whatever the score and the slope."""
    y = data.draw(st.sampled_from([-1.0, 1.0])) if loss.task == "classification" else data.draw(st.floats(-9, 9))
    y = abs(y) + 0.125 if loss.link == "log" else abs(y) / 9.0 if loss.link == "logit" else y
    z = data.draw(st.floats(-1e4, 1e4))
    g = loss.project(y, data.draw(st.floats(-1e4, 1e4) | st.floats(-1, 1)))
    assert loss.fenchel_young(y, z, g) >= 0.0


@pytest.mark.parametrize("margin", [0.0, 0.3, 2.0, 8.0, 20.0, 37.0, 100.0, 800.0, 1e4])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_logistic_fenchel_young_against_50_digits(margin, sign, y):
    """A Kullback-Leibler divergence to full accuracy, however close q is to p or to the edges 0 and 1."""
    mpmath.mp.dps = 60 + int(margin)  # 50 digits behind those that 1 - p cancels
    loss, z = glru.Logistic(), y * sign * margin
    p = float(-y * loss.gradient(y, z))
    slopes = {0.0, 1.0, 0.5, 1e-300, 1e-9, 1.0 - 1e-9, np.nextafter(1.0, 0.0)}
    slopes |= {p * (1.0 + e) for e in (-0.5, -1e-2, -1e-5, -1e-8, 1e-8, 1e-5, 1e-2, 0.5)}
    slopes |= {1.0 - (1.0 - p) * (1.0 + e) for e in (-0.5, -1e-2, -1e-5, 1e-5, 1e-2, 0.5)}
    exact_p = 1 / (1 + mpmath.exp(mpmath.mpf(sign * margin)))
    for q in sorted(q for q in slopes if 0.0 <= q <= 1.0):
        exact = _divergence(mpmath.mpf(q), exact_p) + _divergence(1 - mpmath.mpf(q), 1 - exact_p)
        got = float(loss.fenchel_young(y, z, -y * q))
        # The value is quadratic in q - p, and p is known to one part in 2^53: no algorithm does better than this.
        distance = abs(mpmath.mpf(q) - exact_p) / min(exact_p, 1 - exact_p)
        accuracy = 1e-14 + 4e-16 / float(distance) if distance > 1e-15 else np.inf
        assert got >= 0.0
        assert abs(got - exact) <= min(accuracy, 1e6) * abs(exact) + 1e-300, (q, got, exact)


def _divergence(q, p):
    return q * mpmath.log(q / p) if q else mpmath.mpf(0)


def test_logistic_fenchel_young_of_a_long_vector_is_that_of_its_parts():
    random = np.random.default_rng(0)
    z, y = 20.0 * random.normal(size=20_000), np.where(random.normal(size=20_000) > 0.0, 1.0, -1.0)
    g = glru.Logistic().gradient(y, z + random.normal(size=z.size))
    g[::1000] = 2.0  # off the domain
    whole = glru.Logistic().fenchel_young_slope(y, z, g)
    for start in range(0, z.size, 3000):
        part = slice(start, start + 3000)
        for values, expected in zip(whole, glru.Logistic().fenchel_young_slope(y[part], z[part], g[part]), strict=True):
            np.testing.assert_array_equal(values[part], expected)


@every_loss
def test_smoothness_is_valid_and_tight(loss):
    """No two derivatives differ by more than it allows, and some curvature reaches it."""
    y, z = labels(loss), np.sort(np.append(SCORES, 0.0137 * np.arange(-300, 300)))
    slopes = np.diff(loss.gradient(y, z))
    assert np.all(slopes >= 0.0)
    if np.isinf(loss.smoothness):
        assert isinstance(loss, glru.Hinge) or loss.link == "log"
    else:
        assert np.all(slopes <= loss.smoothness * np.diff(z) + 1e-14)
        assert np.max(loss.curvature(y, z)) == pytest.approx(loss.smoothness, rel=1e-12)


@every_loss
def test_self_concordance(loss):
    """``|l'''| <= M l''`` with equality somewhere, or a derivative or curvature that jumps."""
    y, z = labels(loss), 5.0 * SCORES
    third = (loss.curvature(y, z + STEP) - loss.curvature(y, z - STEP)) / (2.0 * STEP)
    if loss.self_concordance is None:
        wide = loss.derivative(y, SCORES)[1] - loss.derivative(y, SCORES)[0]
        near = np.abs(np.diff(loss.curvature(y, 0.0123 * np.arange(-400, 400))))
        assert wide.max() > 0.5 or near.max() > 0.4
    else:
        bound = loss.self_concordance * loss.curvature(y, z)
        assert np.all(np.abs(third) <= bound + 1e-8 * (1.0 + bound))
        assert np.max(np.abs(third) - 0.999 * bound) >= 0.0


@every_loss
def test_slopes_and_curvatures_bound_the_fenchel_young_value(loss):
    """``F(y; z, g) <= d^2 / (2 (h - M d))``, ``d = |l'(z) - g|``: what a training stops by."""
    constant = loss.self_concordance
    if constant is None:
        return
    y, z = labels(loss), np.broadcast_to(SCORES, (labels(loss).shape[0], SCORES.size))
    slope, curvature = loss.gradient(y, z), loss.curvature(y, z)
    for share in (-0.99, -0.3, -1e-3, 1e-3, 0.3, 0.99):
        off = share * curvature / max(constant, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            bound = np.square(off) / (2.0 * (curvature - constant * np.abs(off)))
        assert np.all(loss.fenchel_young(y, z, slope + off) <= bound * (1.0 + 1e-9) + 1e-14)


@every_loss
def test_long_arrays_are_evaluated_as_short_ones(loss):
    random = np.random.default_rng(0)
    y, z = random.choice(labels(loss)[:, 0], 20_001), random.choice(SCORES, 20_001)
    g = loss.project(y, loss.gradient(y, z) + 0.01)
    long = (*loss.expand(y, z), loss.fenchel_young(y, z, g), loss.value(y, z))
    parts = [slice(start, start + 1000) for start in range(0, y.size, 1000)]
    short = [(*loss.expand(y[p], z[p]), loss.fenchel_young(y[p], z[p], g[p]), loss.value(y[p], z[p])) for p in parts]
    for whole, pieces in zip(long, zip(*short, strict=True), strict=True):
        np.testing.assert_allclose(whole, np.concatenate(pieces), rtol=1e-14, atol=1e-15)


@every_loss
def test_far_scores_are_finite(loss):
    """Nothing overflows (a warning is an error here), and nothing is NaN."""
    y, z = labels(loss), np.array([-1e4, -800.0, 800.0, 1e4])
    lower, upper = loss.derivative(y, z)
    everything = (loss.value(y, z), lower, upper, loss.curvature(y, z), *loss.expand(y, z), loss.conjugate(y, lower))
    if loss.link == "log":
        # Exponentials are cut off; the Fenchel-Young value is infinite there, or right.
        assert all(np.all(np.isfinite(array)) for array in (*everything[:4], *loss.expand(y, z)))
        assert not np.any(np.isnan(loss.fenchel_young(y, z, inside(loss, y, 0.5))))
        return
    for array in (*everything, loss.fenchel_young(y, z, lower), loss.fenchel_young(y, z, inside(loss, y, 0.5))):
        assert np.all(np.isfinite(array))
    np.testing.assert_allclose(np.diff(loss.value(y, np.array([9999.0, 1e4]))).ravel(), upper[:, -1], rtol=1e-3)


@every_loss
def test_expand_equals_its_parts(loss):
    """Value, gradient and curvature together are the three taken alone."""
    y, z = labels(loss), np.concatenate([SCORES, [-1e4, -40.0, 40.0, 1e4]])
    parts = (loss.value(y, z), loss.gradient(y, z), loss.curvature(y, z))
    for together, alone in zip((*loss.expand(y, z), *loss.expand_slope(y, z)), (*parts, *parts[1:]), strict=True):
        np.testing.assert_allclose(together, alone, rtol=1e-14, atol=1e-300)


@every_loss
@pytest.mark.parametrize("near", [1.0, 1e-3, 1e-8])
def test_sums_of_values_are_summed_values(loss, near):
    """With the part that is known before, also where almost all of it cancels."""
    random = np.random.default_rng(0)
    y = random.choice(labels(loss)[:, 0], 300)
    best = np.log(np.maximum(y, 1e-3)) if loss.link == "log" else y
    z, weights = best + near * random.normal(size=300), random.uniform(0.1, 2.0, 300)
    total, size, *rest = loss.expand_sum(weights, y, z, loss.sum_constants(weights, y))
    assert total == pytest.approx(weights @ loss.value(y, z), rel=1e-12) and size >= total
    for found, expected in zip(rest, loss.expand_slope(y, z), strict=True):
        np.testing.assert_array_equal(found, expected)
    offset = random.normal(size=300)
    if loss.link != "identity":
        shifted, joined = glru.losses.WithOffset(loss), glru.losses.join_targets(y, offset)
        found = shifted.expand_sum(weights, joined, z - offset, shifted.sum_constants(weights, joined))
        assert found[0] == pytest.approx(weights @ shifted.value(joined, z - offset), rel=1e-12)


@every_loss
def test_project_is_the_nearest_point_of_the_domain(loss):
    """It moves nothing inside, and outside stops at the nearer edge."""
    y, g = labels(loss), np.linspace(-4.0, 4.0, 33)
    lower, upper = loss.derivative_range(y)
    projected = loss.project(y, g)
    assert np.all(np.isfinite(loss.conjugate(y, projected)))
    within = (g >= lower) & (g <= upper)
    np.testing.assert_array_equal(projected, np.where(within, g, np.where(g > upper, upper, lower)))


@every_loss
def test_methods_broadcast_and_return_float64(loss):
    """A column of targets against a row of integer scores; lists and scalars as well."""
    y, z = labels(loss), [0, 1, 2, 3]
    shape = (len(y), 4)
    arrays = [loss.value(y, z), *loss.derivative(y, z), loss.curvature(y, z), loss.gradient(y, z), *loss.expand(y, z)]
    arrays += [loss.conjugate(y, z), loss.fenchel_young(y, z, 0), loss.project(y, z)]
    assert all(a.shape == shape and a.dtype == np.float64 for a in arrays)
    assert np.shape(loss.value(1, 2)) == () and float(loss.value(1, 2)) == loss.value([1.0], [2.0])[0]
    assert all(end.shape == y.shape for end in loss.derivative_range(y))


@pytest.mark.parametrize("kind", [glru.Huber, glru.SmoothedHinge])
@pytest.mark.parametrize("gamma", [0.0, -1.0, np.inf, np.nan])
def test_bad_gamma(kind, gamma):
    """The error names the rule and the value."""
    with pytest.raises(ValueError, match=rf"gamma of {kind.__name__} must be a finite number above 0; got {gamma}"):
        kind(gamma=gamma)


@every_loss
def test_losses_are_frozen(loss):
    """A loss is a value."""
    with pytest.raises(AttributeError):
        loss.gamma = 3.0


@pytest.mark.parametrize(
    ("loss", "other"),
    [
        (glru.Huber(gamma=1e9), glru.Squared()),
        (glru.SmoothedHinge(gamma=1e-9), glru.Hinge()),
        (OTHER_LOSSES["proximal-hinge"].__class__(0.5, np.asarray(0.0)), glru.SmoothedHinge(gamma=0.5)),
    ],
    ids=["huber-squared", "smoothed-hinge", "proximal-smoothed"],
)
def test_limits_meet(loss, other):
    """A loss with an extreme parameter is another loss."""
    y = labels(loss)
    np.testing.assert_allclose(loss.value(y, SCORES), other.value(y, SCORES), atol=1e-8)
    g = inside(other, y, 0.3)
    np.testing.assert_allclose(loss.fenchel_young(y, SCORES, g), other.fenchel_young(y, SCORES, g), atol=1e-8)


LOG_LINK = {name: loss for name, loss in LOSS.items() if loss.link == "log"}


@each(LOG_LINK, "loss")
def test_slopes_at_scores_that_are_off_stay_within_their_errors(loss):
    """The curvature at the score, grown by the third derivative, bounds what an error of the score does to the slope."""
    y, z = labels(loss), np.linspace(-9.0, 9.0, 181)
    for error in (1e-12, 1e-6, 1e-2, 0.7):
        allowed = loss.slope_errors(y, z, np.full(z.shape, error))
        for sign in (-1.0, 1.0):
            moved = np.abs(loss.gradient(y, z + sign * error) - loss.gradient(y, z))
            assert np.all(moved <= allowed + 1e-13 * (1.0 + np.abs(loss.gradient(y, z)) + loss.curvature(y, z)))
        if error < 1e-3:
            assert np.all(allowed <= 1.01 * error * loss.curvature(y, z))


@each(LOG_LINK, "loss")
@pytest.mark.parametrize("y", [1e-30, 1e-6, 1.0, 37.0, 1e8])
def test_evaluation_errs_as_a_score_that_is_off(loss, y):
    """Slopes and curvatures against 50 digits: what ``score_noise`` promises."""
    mpmath.mp.dps = 60
    random = np.random.default_rng(0)
    for z in np.concatenate(
        [np.log(y) + random.normal(size=8) * 10.0 ** -np.arange(0.0, 16.0, 2.0), 30.0 * random.normal(size=8)]
    ):
        slope, curvature = _exact_derivatives(loss, mpmath.mpf(float(y)), mpmath.mpf(float(z)))
        noise = loss.score_noise + 2.0 * EPS * abs(z)
        assert abs(loss.gradient(y, z) - slope) <= 8.0 * EPS * abs(slope) + curvature * noise
        assert abs(loss.curvature(y, z) - curvature) <= curvature * (8.0 * EPS + noise)


@pytest.mark.parametrize("size", [1e-12, 1e-5, 9.9e-4, 1.1e-3, 0.029])
def test_small_entropies_keep_their_digits(size):
    """By series with as many terms as the largest needs: what divergences of nearby means are made of."""
    mpmath.mp.dps = 60
    excess = size * np.array([-1.0, -0.3, 0.5, 1.0])
    for e, found in zip(excess, entropy_excess(excess), strict=True):
        exact = (1 + mpmath.mpf(float(e))) * mpmath.log1p(mpmath.mpf(float(e))) - mpmath.mpf(float(e))
        assert abs(found - exact) <= 8.0 * EPS * exact


@each(LOG_LINK, "loss")
@pytest.mark.parametrize("y", [1e-30, 1e-6, 1.0, 37.0, 1e8])
def test_log_link_fenchel_young_is_an_upper_bound(loss, y):
    """With the score moved by the units that certificates allow it is never below the exact value, and not far above."""
    mpmath.mp.dps = 60
    random = np.random.default_rng(1)
    for move in (0.0, 1e-12, 1e-6, 1e-2, 1.0, 20.0):
        z = float(np.log(y) + random.normal())
        near = z + move * random.normal()
        g = float(loss.gradient(y, near))
        lower, upper = loss.derivative_range(y)
        if not lower < g < upper:
            continue
        there = mpmath.findroot(
            lambda x, g=g: _exact_derivatives(loss, mpmath.mpf(float(y)), x)[0] - mpmath.mpf(g), mpmath.mpf(near)
        )
        exact = mpmath.quad(
            lambda x, g=g: _exact_derivatives(loss, mpmath.mpf(float(y)), x)[0] - mpmath.mpf(g), [there, mpmath.mpf(z)]
        )
        wide = 4.0 * EPS * (1.0 + abs(z) + abs(g) + float(loss.target_size(np.asarray(y)))) + loss.score_noise
        got = max(float(loss.fenchel_young(y, z + sign * wide, g)) for sign in (-1.0, 1.0)) * (1.0 + 8.0 * EPS)
        slope, curvature = abs(float(loss.gradient(y, z)) - g), float(loss.curvature(y, z))
        assert exact <= got <= 1.01 * exact + 8.0 * wide * (slope + 1e4 * curvature * wide) + 1e-300


@pytest.mark.parametrize("power", [1.05, 1.5, 1.95])
def test_tweedie_fenchel_young_errs_to_the_safe_side(power):
    """The score of a slope is found up to some units, near (by Newton steps on the distance) and far; the value pays for these."""
    mpmath.mp.dps = 60
    loss, random = glru.Tweedie(power), np.random.default_rng(2)
    a, b = 2.0 - mpmath.mpf(power), mpmath.mpf(power) - 1
    for move in (1e-14, 1e-12, 1e-9, 1e-6, 1e-3, 0.02, 0.04, 0.5):
        # Far from a slope without a target, the units that certificates widen scores by are needed.
        for y in (*np.exp(3.0 * random.normal(size=6)), *([0.0] if move < 0.03 else [])):
            z = float(random.normal() if y == 0.0 else np.log(y) + random.normal())
            g = float(loss.gradient(y, z + move * random.choice([-1.0, 1.0])))
            exact_y = mpmath.mpf(float(y))
            there = (
                mpmath.log(g) / a
                if y == 0.0
                else mpmath.findroot(lambda x, y=exact_y, g=g: mpmath.exp(a * x) - y * mpmath.exp(-b * x) - g, z)
            )
            t = mpmath.mpf(z) - there
            up, down = mpmath.exp(a * there), exact_y * mpmath.exp(-b * there)
            exact = up * (mpmath.expm1(a * t) - a * t) / a + down * (mpmath.expm1(-b * t) + b * t) / b
            got = float(loss.fenchel_young(y, z, g))
            assert exact <= got * (1.0 + 64.0 * EPS)
            assert got <= 1.001 * exact + float(a * up + b * down) * (1e-12 / min(a, b)) * (abs(t) + 1e-12 / min(a, b))


@pytest.mark.parametrize("power", [1.2, 1.5, 1.8])
def test_tweedie_fenchel_young_is_infinite_where_exponentials_are_cut_off(power):
    """A slope that was cut off is not the slope of a score beyond."""
    loss = glru.Tweedie(power)
    for y, z in ((1.0, 710.0 / (2.0 - power)), (1.0, -710.0 / (power - 1.0))):
        assert loss.fenchel_young(y, z, loss.gradient(y, z)) == np.inf


def _exact_derivatives(loss, y, z):
    mean = mpmath.exp(z)
    if isinstance(loss, glru.NegativeBinomial):
        theta = mpmath.mpf(loss.theta)
        return theta * (mean - y) / (theta + mean), (y + theta) * theta * mean / (theta + mean) ** 2
    power = {glru.Poisson: 1, glru.Gamma: 2}.get(type(loss)) or mpmath.mpf(loss.power)
    up, down = mean ** (2 - power), y * mean ** (1 - power)
    return up - down, (2 - power) * up + (power - 1) * down


@pytest.mark.parametrize("y", [0.0, 1e-9, 1 / 3, 0.3, 0.5, 0.7, 1 - 1e-9, 1.0])
def test_shares_against_many_digits(y):
    """Slopes are as if the score were off by a few units; the Fenchel-Young value is never below the exact one, and not far above."""
    loss, random = glru.losses.Binomial(), np.random.default_rng(0)
    mpmath.mp.dps = 320
    exact_y = mpmath.mpf(y)
    for z in np.concatenate([random.normal(0.0, 3.0, 40), random.normal(0.0, 20.0, 40), [-300.0, -40.0, 40.0, 300.0]]):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(z)))
        slope, curvature = float(loss.gradient(y, z)), float(loss.curvature(y, z))
        noise = (
            loss.score_noise * curvature
            + 8.0 * EPS * abs(slope)
            + (EPS if not 0.0 < y < 0.5 else 0.5 * EPS) * (z > 30.0)
        )
        assert abs(slope - (p - exact_y)) <= noise
        assert abs(curvature - p * (1 - p)) <= 8.0 * EPS * curvature
        for near in (z, z + 1e-12, z - 1e-6, z + 1e-2, z - 1.0, z + 20.0, -z):
            g = float(loss.gradient(y, near))
            u = exact_y + mpmath.mpf(g)
            assert 0 <= u <= 1
            exact = sum(a * mpmath.log(a / b) for a, b in ((u, p), (1 - u, 1 - p)) if a > 0)
            wide = 4.0 * EPS * (1.0 + abs(z) + abs(g) + y) + loss.score_noise
            got = max(float(loss.fenchel_young(y, z + sign * wide, g)) for sign in (-1.0, 1.0)) * (1.0 + 8.0 * EPS)
            off = abs(slope - g)
            assert exact <= got <= 1.01 * exact + 8.0 * wide * (off + 1e4 * curvature * wide) + 1e-300


def test_shares_of_labels_are_the_logistic_loss():
    z = np.linspace(-50.0, 50.0, 301)
    for y in (0.0, 1.0):
        ours, theirs = glru.losses.Binomial().expand(y, z), glru.Logistic().expand(2.0 * y - 1.0, z)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13)
    with pytest.raises(ValueError, match=r"shares from 0 to 1 .*; entry 1 is 1\.5\. Divide successes by trials"):
        glru.Problem(np.eye(2), [0.5, 1.5], loss=glru.losses.Binomial())


@each(LOG_LINK, "loss")
def test_targets_off_the_domain_are_refused(loss):
    """Rule, value and remedy."""
    for bad in (-1.0, 1e101) if not isinstance(loss, glru.Gamma) else (-1.0, 0.0):
        with pytest.raises(ValueError, match=r"y must be (at least|above) 0 .*; entry 1 is .*use another loss"):
            glru.Problem(np.eye(2), [1.0, bad], loss=loss)


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0, 3.0, np.nan])
def test_bad_power(power):
    with pytest.raises(ValueError, match=r"power of Tweedie must be at least 1\.01 and at most 1\.99"):
        glru.Tweedie(power)
