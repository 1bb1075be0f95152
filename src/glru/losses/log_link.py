r"""Half deviances with a log link, whose mean is :math:`\mu = e^z`: Poisson, Gamma, Tweedie and negative binomial.

Each is convex in the score ``z``, zero at :math:`e^z = y` and has :math:`|\ell'''| \le M \ell''`, but no Lipschitz constant of its derivative:
what rounding does to a slope is bounded by the curvature where it was taken (:meth:`~glru.losses.Loss.slope_errors`).

Exponentials stop at ``LARGEST_EXPONENTIAL``: values, slopes and curvatures of any score are finite, and a step that leads so far is refused by the line
search. Fenchel-Young values, which certificates are made of, are infinite there.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlog1py, xlogy

from glru._options import suggest_options
from glru.linalg import FEW, Array, floats
from glru.losses.base import Link, Loss, Task, in_chunks, require_positive
from glru.losses.logistic import divergence, entropy_excess

LARGEST_EXPONENTIAL = 1e300
"""Exponentials are at most this: with weights and data their products have to stay numbers."""

CUT_OFF = 0.1 * LARGEST_EXPONENTIAL
"""What is larger than this may have been cut off on the way: as an end of an interval it stands for anything beyond it."""

LOG_LARGEST = float(np.log(LARGEST_EXPONENTIAL))

SERIES_RADIUS = 0.03
"""Distances from the best score below which values come from a series."""

CANCELLED = 1e-3
"""A sum of values that is a smaller share of its parts is not taken from these."""

LARGEST_TARGET = 1e100
"""Targets are at most this, so that no sum of them comes near an exponential that was cut off."""


class LogLink(Loss):
    """A half deviance of a mean ``e^z``."""

    task: ClassVar[Task] = "regression"
    positive: ClassVar[bool] = False
    """Whether targets have to be above 0."""
    link: ClassVar[Link] = "log"
    smoothness: ClassVar[float] = np.inf

    @property
    def score_noise(self) -> float:
        # An exponential is off by a few units of itself, as if its exponent were off by that.
        return FEW

    def check_targets(self, y: Array) -> None:
        bad = np.flatnonzero(~((y > 0.0 if self.positive else y >= 0.0) & (y <= LARGEST_TARGET)))
        if bad.size:
            rule = "above 0" if self.positive else "at least 0"
            remedy = (
                "glru.Poisson() and glru.Tweedie(1.5) accept zeros"
                if self.positive
                else "glru.Squared() accepts any number"
            )
            raise ValueError(
                f"y must be {rule} and at most {LARGEST_TARGET:g} for {self!r}; entry {bad[0]} is {y[bad[0]]}. Remove such rows, or use "
                f"another loss: {remedy}."
            )

    def value(self, y: ArrayLike, z: ArrayLike) -> Array:
        return self._expand(*floats(y, z))[0]

    def derivative(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        slope = self.expand_slope(y, z)[0]
        return slope, slope

    def curvature(self, y: ArrayLike, z: ArrayLike) -> Array:
        return self.expand_slope(y, z)[1]

    @in_chunks
    def expand(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array, Array]:
        return self._expand(*floats(y, z))

    @abstractmethod
    def _expand(self, y: Array, z: Array) -> tuple[Array, Array, Array]:
        """Value, first and second derivative, which share their exponentials."""

    @abstractmethod
    def expand_slope(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]: ...

    def expand_sum(self, weights: Array, y: Array, z: Array, constant: float) -> tuple[float, float, Array, Array]:
        slopes, curvatures = self.expand_slope(y, z)
        parts = (*self._sum_parts(weights, y, z, slopes, curvatures), constant)
        total, size = sum(parts), sum(map(abs, parts))
        # Where most of it cancels, the values themselves are summed.
        return (total, size, slopes, curvatures) if total > CANCELLED * size else super().expand_sum(weights, y, z, 0.0)

    def _sum_parts(self, weights: Array, y: Array, z: Array, slopes: Array, curvatures: Array) -> tuple[float, float]:
        """The weighted sum of the values but for :meth:`sum_constants`, in two parts; values are combinations of what is known and of scores."""
        return np.nan, np.nan


@final
@suggest_options
@dataclass(frozen=True)
class Poisson(LogLink):
    r"""Half Poisson deviance with a log link, :math:`\ell(y, z) = e^z - y z + y \log y - y`, for counts and rates :math:`y \ge 0`.

    * derivative: :math:`e^z - y`, with range :math:`(-y, \infty)`
    * conjugate: :math:`u \log u - u - y \log y + y` with :math:`u = g + y \ge 0`
    * no smoothness (``inf``), self-concordance 1: :math:`\ell''' = \ell'' = e^z`

    Examples
    --------
    >>> import glru
    >>> float(glru.Poisson().value(0.0, 0.0))
    1.0
    """

    self_concordance: ClassVar[float | None] = 1.0
    fourth_constant: ClassVar[float | None] = 1.0

    def _expand(self, y: Array, z: Array) -> tuple[Array, Array, Array]:
        slope, curvature = self.expand_slope(y, z)
        # y (e^t - 1 - t) with t the distance from the best score: a difference of what is known, but near it.
        t = np.asarray(z - np.log(np.where(y > 0.0, y, 1.0)))
        value = np.asarray(slope - y * t)
        near = (np.abs(t) < SERIES_RADIUS) & (y > 0.0)
        value[near] = _entries(y, near) * _bregman_series(t[near])
        return value, slope, curvature

    def expand_slope(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        y, z = floats(y, z)
        mean = exponential(z)
        return mean - y, mean

    def sum_constants(self, weights: Array, y: Array) -> float:
        return float((weights * y) @ (np.log(np.where(y > 0.0, y, 1.0)) - 1.0))

    def _sum_parts(self, weights: Array, y: Array, z: Array, slopes: Array, curvatures: Array) -> tuple[float, float]:
        return float(weights @ curvatures), -float((weights * y) @ z)

    def third_derivative(self, y: ArrayLike, z: ArrayLike) -> Array:
        return self.curvature(y, z)

    def conjugate(self, y: ArrayLike, g: ArrayLike) -> Array:
        y, g = floats(y, g)
        return _entropy(g + y, y)

    def derivative_range(self, y: ArrayLike) -> tuple[Array, Array]:
        (y,) = floats(y)
        return 0.0 - y, np.full_like(y, np.inf)

    @in_chunks
    def fenchel_young(self, y: ArrayLike, z: ArrayLike, g: ArrayLike) -> Array:
        y, z, g = floats(y, z, g)
        return mean_divergence(g + y, z)


@final
@suggest_options
@dataclass(frozen=True)
class Gamma(LogLink):
    r"""Half Gamma deviance with a log link, :math:`\ell(y, z) = y e^{-z} - 1 + z - \log y`, for targets :math:`y > 0`.

    * derivative: :math:`1 - y e^{-z}`, with range :math:`(-\infty, 1)`
    * conjugate: :math:`u \log u - u + 1 + g \log y` with :math:`u = 1 - g \ge 0`
    * no smoothness (``inf``), self-concordance 1: :math:`-\ell''' = \ell'' = y e^{-z}`

    Examples
    --------
    >>> import glru
    >>> float(glru.Gamma().value(1.0, 0.0))
    0.0
    """

    self_concordance: ClassVar[float | None] = 1.0
    fourth_constant: ClassVar[float | None] = 1.0
    positive: ClassVar[bool] = True

    def _expand(self, y: Array, z: Array) -> tuple[Array, Array, Array]:
        slope, curvature = self.expand_slope(y, z)
        # e^t - 1 - t with t the distance from the best score, and the derivative 1 - e^t.
        t = np.asarray(np.log(y) - z)
        value = np.asarray(-slope - t)
        near = np.abs(t) < SERIES_RADIUS
        value[near] = _bregman_series(t[near])
        return value, slope, curvature

    def expand_slope(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        y, z = floats(y, z)
        ratio = scale_exponential(y, -z)
        return 1.0 - ratio, ratio

    def sum_constants(self, weights: Array, y: Array) -> float:
        return -float(weights @ (1.0 + np.log(y)))

    def _sum_parts(self, weights: Array, y: Array, z: Array, slopes: Array, curvatures: Array) -> tuple[float, float]:
        return float(weights @ curvatures), float(weights @ z)

    def third_derivative(self, y: ArrayLike, z: ArrayLike) -> Array:
        return -self.curvature(y, z)

    def target_size(self, y: Array) -> Array:
        return np.abs(y) + np.abs(np.log(y))

    def conjugate(self, y: ArrayLike, g: ArrayLike) -> Array:
        y, g = floats(y, g)
        return _entropy(1.0 - g, np.ones_like(g)) + g * np.log(y)

    def derivative_range(self, y: ArrayLike) -> tuple[Array, Array]:
        (y,) = floats(y)
        return np.full_like(y, -np.inf), np.ones_like(y)

    @in_chunks
    def fenchel_young(self, y: ArrayLike, z: ArrayLike, g: ArrayLike) -> Array:
        y, z, g = floats(y, z, g)
        return mean_divergence(1.0 - g, np.log(y) - z)


@final
@suggest_options
@dataclass(frozen=True)
class Tweedie(LogLink):
    r"""Half Tweedie deviance of a power between 1 and 2 with a log link, for targets :math:`y \ge 0` that may be exactly zero.

    With :math:`a = 2 - p` and :math:`b = p - 1`, :math:`\ell(y, z) = e^{a z} / a + y e^{-b z} / b - y^a / (a b)`.

    * derivative: :math:`e^{a z} - y e^{-b z}`, with range :math:`(-\infty, \infty)`, or :math:`(0, \infty)` where :math:`y = 0`
    * conjugate: :math:`g \hat z - \ell(y, \hat z)` at the score :math:`\hat z` where the derivative is ``g``, found by Newton's method
    * no smoothness (``inf``), self-concordance :math:`\max(a, b)`

    Parameters
    ----------
    power : float, default=1.5
        The power ``p`` of the mean that the variance is proportional to, at least 1.01 and at most 1.99. Powers 1 and 2 are
        :class:`Poisson` and :class:`Gamma`.

    Examples
    --------
    >>> import glru
    >>> float(glru.Tweedie(1.5).value(0.0, 0.0))
    2.0
    """

    power: float = 1.5

    def __post_init__(self) -> None:
        if not 1.01 <= float(self.power) <= 1.99:
            raise ValueError(
                f"power of Tweedie must be at least 1.01 and at most 1.99; got {self.power!r}. Power 0 is glru.Squared(), 1 is "
                "glru.Poisson(), 2 is glru.Gamma()."
            )
        object.__setattr__(self, "power", float(self.power))

    @property
    def _exponents(self) -> tuple[float, float]:
        """``a`` and ``b``, both exact."""
        return 2.0 - self.power, self.power - 1.0

    @property
    def self_concordance(self) -> float:
        return max(self._exponents)

    @property
    def fourth_constant(self) -> float:
        return max(self._exponents) ** 2 * (1.0 + FEW)

    @property
    def score_noise(self) -> float:
        # A part of the slope that is off by a few units of itself is off as if its score were off by that over the exponent.
        return FEW / min(self._exponents)

    def target_size(self, y: Array) -> Array:
        return np.abs(y) + np.abs(np.log(np.where(y > 0.0, y, 1.0)))

    def _parts(self, y: Array, z: Array) -> tuple[Array, Array]:
        """``e^(a z)`` and ``y e^(-b z)``."""
        a, b = self._exponents
        return exponential(a * z), scale_exponential(y, -b * z)

    def _expand(self, y: Array, z: Array) -> tuple[Array, Array, Array]:
        up, down = self._parts(y, z)
        # The value from the two parts, and near the best score, where these cancel, from series.
        a, b = self._exponents
        with np.errstate(divide="ignore"):
            log_y = np.log(y)
        # y^a by the logarithm, which is quicker than a power: it errs by as much as units of the score do. Of no target it is 0.
        best = np.exp(a * log_y)
        value = np.asarray(up / a)
        value += down / b
        value -= best * (1.0 / (a * b))
        np.minimum(value, LARGEST_EXPONENTIAL, out=value)
        t = np.asarray(z - log_y)
        near = np.abs(t) < SERIES_RADIUS
        t = t[near]
        value[near] = _entries(best, near) * (_bregman_series(a * t) / a + _bregman_series(-b * t) / b)
        return value, up - down, a * up + b * down

    def expand_slope(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        (a, b), (up, down) = self._exponents, self._parts(*floats(y, z))
        return up - down, a * up + b * down

    def sum_constants(self, weights: Array, y: Array) -> float:
        a, b = self._exponents
        with np.errstate(divide="ignore"):
            return -float(weights @ np.exp(a * np.log(y))) / (a * b)

    def _sum_parts(self, weights: Array, y: Array, z: Array, slopes: Array, curvatures: Array) -> tuple[float, float]:
        # e^(a z) is h + b l', and y e^(-b z) is h - a l'.
        a, b = self._exponents
        return float(weights @ curvatures) / (a * b), (b - a) / (a * b) * float(weights @ slopes)

    def third_derivative(self, y: ArrayLike, z: ArrayLike) -> Array:
        a, b = self._exponents
        up, down = self._parts(*floats(y, z))
        return a * a * up - b * b * down

    def conjugate(self, y: ArrayLike, g: ArrayLike) -> Array:
        y, g = floats(y, g)
        a, b = self._exponents
        there = self._score_of(y, g)
        up, down = np.exp(a * there), y * np.exp(-b * there)
        positive = g * there - up / a - down / b + y**a / (a * b)
        with np.errstate(divide="ignore", invalid="ignore"):
            zero = np.where(g >= 0.0, (xlogy(g, g) - g) / a, np.inf)
        return np.where(y > 0.0, positive, zero)

    def derivative_range(self, y: ArrayLike) -> tuple[Array, Array]:
        (y,) = floats(y)
        return np.where(y > 0.0, -np.inf, 0.0), np.full_like(y, np.inf)

    @in_chunks
    def fenchel_young(self, y: ArrayLike, z: ArrayLike, g: ArrayLike) -> Array:
        # With A e^(a t) / a and B e^(-b t) / b around the score of g, t the distance from it: two non-negative terms.
        y, z, g = floats(y, z, g)
        a, b = self._exponents
        with np.errstate(all="ignore"):
            move, up, down = self._find_near_score(y, z, g)
            t = self._lengthen(z + move, z, -move)
            found = np.asarray(up * _bregman_series(a * t) / a + down * _bregman_series(-b * t) / b)
        far = ~(np.abs(t) < SERIES_RADIUS)
        if far.any():
            found[far] = self._far_fenchel_young(_entries(y, far), _entries(z, far), _entries(g, far))
        return found

    def _find_near_score(self, y: Array, z: Array, g: Array) -> tuple[Array, Array, Array]:
        """The move of a score to where the derivative is ``g``, not a number if it is long, and the parts ``A`` and ``B`` there."""
        a, b = self._exponents
        # Exponentials that overflow are not cut off: nothing is near there.
        up, down = np.exp(a * z), y * np.exp(-b * z)
        missing = g - (up - down)
        move = np.asarray(missing / (a * up + b * down))
        move[~(np.abs(move) < SERIES_RADIUS)] = np.nan
        for _ in range(6):
            # Both parts change the derivative in the same direction: nothing cancels but the difference that is to vanish.
            there, below = up + up * np.expm1(a * move), down + down * np.expm1(-b * move)
            step = (missing - ((there - up) - (below - down))) / (a * there + b * below)
            move += step
            # What a step leaves is at most its square, under a self-concordance constant of at most 1.
            if not np.fmax.reduce(np.abs(step), axis=None, initial=0.0) ** 2 > 1e-17:
                break
        return move, there * (1.0 + a * step), below * (1.0 - b * step)

    def _lengthen(self, there: Array, z: Array, t: Array) -> Array:
        """Distances from scores that are known up to some units: Fenchel-Young values grow with them, so that longer is on the safe side."""
        return t + np.copysign(FEW / min(self._exponents) * (1.0 + np.abs(there) + np.abs(z)), t)

    def _far_fenchel_young(self, y: Array, z: Array, g: Array) -> Array:
        """The Fenchel-Young values of scores far from that of the slope."""
        a, b = self._exponents
        there = self._score_of(y, g, z)
        t = self._lengthen(there, z, z - there)
        with np.errstate(over="ignore", invalid="ignore"):
            there = z - t
            found = np.exp(a * there) * bregman(a * t) / a + y * np.exp(-b * there) * bregman(-b * t) / b
        zero = np.where(g >= 0.0, mean_divergence(np.maximum(g, 0.0), a * z) / a, np.inf)
        far = np.isnan(found) | (np.abs(t) * max(a, b) > LOG_LARGEST)
        return np.where(y > 0.0, np.where(far, np.inf, found), zero)

    def _score_of(self, y: Array, g: Array, start: Array | None = None) -> Array:
        """The score at which the derivative is ``g``, for targets above 0; of others the logarithm of the mean there. ``start``: one that may be near."""
        a, b = self._exponents
        y = np.where(y > 0.0, y, 1.0)
        with np.errstate(all="ignore"):
            log_y = np.log(y)
            z = log_y if start is None else start
            for _ in range(60):
                up, down = np.exp(a * z), y * np.exp(-b * z)
                # Newton's method for log(up) = log(g + down) or log(down) = log(up - g): concave or convex with slopes from a or b to 1, so that it
                # converges from anywhere.
                over = np.where(g >= 0.0, a * z - np.log(g + down), np.log(up - g) - log_y + b * z)
                slope = np.where(g >= 0.0, a + b * down / (g + down), b + a * up / (up - g))
                step = over / slope
                z = z - np.where(np.isfinite(step), step, 0.0)
                if not np.any(np.abs(step) > 1e-15 * (1.0 + np.abs(z))):
                    break
        return z


@final
@suggest_options
@dataclass(frozen=True)
class NegativeBinomial(LogLink):
    r"""Half negative binomial deviance with a log link and a known dispersion, for counts :math:`y \ge 0` of variance :math:`\mu + \mu^2 / \theta`.

    Up to a constant :math:`\ell(y, z) = (y + \theta) \log(\theta + e^z) - y z`: the cross-entropy of
    :math:`y / (y + \theta)` and :math:`p = e^z / (\theta + e^z)`, times :math:`y + \theta`.

    * derivative: :math:`\theta (e^z - y) / (\theta + e^z)`, with range :math:`(-y, \theta)`
    * conjugate: :math:`(y + \theta)` times the negative entropy of :math:`q = (g + y) / (y + \theta) \in [0, 1]`, up to terms that are linear in ``g``
    * no common smoothness (``inf``; a row's is :math:`(y + \theta) / 4`), self-concordance 1

    Parameters
    ----------
    theta : float, default=1.0
        The size of the distribution, ``1 / alpha`` of statsmodels and ``theta`` of R's ``MASS``.

    Examples
    --------
    >>> import glru
    >>> round(float(glru.NegativeBinomial(1.0).value(0.0, 0.0)), 6)
    0.693147
    """

    theta: float = 1.0
    self_concordance: ClassVar[float | None] = 1.0
    fourth_constant: ClassVar[float | None] = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "theta", require_positive("NegativeBinomial", "theta", self.theta))

    @property
    def score_noise(self) -> float:
        return FEW * (1.0 + abs(float(np.log(self.theta))))

    def _margin(self, z: Array) -> Array:
        """``z - log theta``: the log-odds of ``p``."""
        return z - np.log(self.theta)

    def _expand(self, y: Array, z: Array) -> tuple[Array, Array, Array]:
        return self.fenchel_young(y, z, np.zeros_like(z)), *self.expand_slope(y, z)

    expand_sum = Loss.expand_sum

    def expand_slope(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        y, z = floats(y, z)
        margin = self._margin(z)
        tail = np.exp(-np.abs(margin))
        inverse = 1.0 / (1.0 + tail)
        p, rest = np.where(margin >= 0.0, inverse, tail * inverse), np.where(margin >= 0.0, tail * inverse, inverse)
        # theta (mu - y) / (theta + mu), from whichever of mu / theta and theta / mu is below 1.
        slope = np.where(margin >= 0.0, self.theta - y * tail, self.theta * tail - y) * inverse
        return slope, (y + self.theta) * p * rest

    def third_derivative(self, y: ArrayLike, z: ArrayLike) -> Array:
        y, z = floats(y, z)
        return -self.curvature(y, z) * np.tanh(0.5 * self._margin(z))

    def conjugate(self, y: ArrayLike, g: ArrayLike) -> Array:
        y, g = floats(y, g)
        up, down = g + y, self.theta - g
        inside = (up >= 0.0) & (down >= 0.0)
        up, down = np.where(inside, up, 0.0), np.where(inside, down, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            rest = xlog1py(down, np.where(inside, -g / self.theta, 0.0))
        return np.where(inside, xlogy(up, up) - xlogy(y, y) + rest, np.inf)

    def derivative_range(self, y: ArrayLike) -> tuple[Array, Array]:
        (y,) = floats(y)
        return 0.0 - y, np.full_like(y, self.theta)

    @in_chunks
    def fenchel_young(self, y: ArrayLike, z: ArrayLike, g: ArrayLike) -> Array:
        y, z, g = floats(y, z, g)
        margin, total = self._margin(z), y + self.theta
        up, down = g + y, self.theta - g
        inside = (up >= 0.0) & (down >= 0.0)
        # The divergence of (q, 1 - q) from (p, 1 - p), with whichever of q and 1 - q belongs to the smaller of p and 1 - p.
        q = np.where(inside, np.where(margin > 0.0, down, up) / total, 0.0)
        return np.where(inside, total * divergence(q, np.abs(margin))[0], np.inf)


def _entries(array: Array, chosen: NDArray[np.bool_]) -> Array:
    """The entries of an array that is broadcast to the shape of a choice."""
    return array[chosen] if array.shape == chosen.shape else np.broadcast_to(array, chosen.shape)[chosen]


def exponential(x: Array) -> Array:
    """``e^x``, at most ``LARGEST_EXPONENTIAL``."""
    return np.exp(np.minimum(x, LOG_LARGEST))


def scale_exponential(y: Array, x: Array) -> Array:
    """``y e^x``, at most ``LARGEST_EXPONENTIAL``: in two steps, so that a tiny ``y`` meets no exponential that was cut off."""
    half = exponential(0.5 * x)
    with np.errstate(over="ignore"):
        return np.minimum(y * half * half, LARGEST_EXPONENTIAL)


def bregman(t: Array) -> Array:
    """``e^t - 1 - t``, accurate near zero where it is ``t^2 / 2``, and at most ``LARGEST_EXPONENTIAL``."""
    small = np.abs(t) < SERIES_RADIUS
    found = np.asarray(np.expm1(np.minimum(t, LOG_LARGEST)) - t)
    found[small] = _bregman_series(np.asarray(t)[small])
    return found


def _bregman_series(t: Array) -> Array:
    """``e^t - 1 - t`` for small ``|t|``, by its series."""
    # Seven terms leave a relative error below 0.03^7 / 181440 < 1e-15 of the first.
    series = np.full_like(t, 1.0 / 40320.0)
    for k in (5040.0, 720.0, 120.0, 24.0, 6.0, 2.0):
        series = series * t + 1.0 / k
    return t * t * series


def mean_divergence(u: Array, log_mean: Array) -> Array:
    """``u log(u / m) - u + m`` for a mean given by its logarithm, without cancellation; infinite where ``u < 0`` or ``m`` is cut off."""
    inside = (u >= 0.0) & (log_mean < LOG_LARGEST)
    every = bool(np.all(inside))
    if not every:
        u, log_mean = np.where(inside, u, 0.0), np.where(inside, log_mean, 0.0)
    mean = np.exp(log_mean)
    excess = u - mean
    near = np.abs(excess) < mean
    found = mean * entropy_excess(np.where(near, excess, 0.0) / np.where(near, mean, 1.0))
    if not np.all(near):
        # Far from the mean nothing cancels, and its logarithm survives its underflow.
        far = np.maximum(u * np.log(np.where(u > 0.0, u, 1.0)) - u * log_mean - excess, 0.0)
        found = np.where(near, found, far)
    return found if every else np.where(inside, found, np.inf)


def _entropy(u: Array, y: Array) -> Array:
    """``u log u - u - y log y + y``, infinite where ``u < 0``."""
    inside = u >= 0.0
    u = np.where(inside, u, 0.0)
    return np.where(inside, xlogy(u, u) - u - xlogy(y, y) + y, np.inf)
