"""The logistic loss, of labels and of shares."""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr, expit

from glru._options import suggest_options
from glru.linalg import FEW, Array, floats, namespace
from glru.losses.base import Link, Loss, Task, in_chunks

VECTORISED_FROM = 4096
"""From this number of scores on, slopes are made by NumPy's exponential, which is vectorised, instead of ``expit``."""


@final
@suggest_options
@dataclass(frozen=True)
class Logistic(Loss):
    r"""Logistic loss, :math:`\ell(y, z) = \log(1 + e^{-y z})`.

    * derivative: :math:`-y\,\sigma(-y z)`, with range :math:`-y\,(0, 1)`
    * conjugate: :math:`q \log q + (1 - q) \log(1 - q)` with :math:`q = -y g \in [0, 1]`
    * smoothness 1/4, self-concordance 1: :math:`|\ell'''| \le \ell''`

    Examples
    --------
    >>> import glru
    >>> round(float(glru.Logistic().value(1.0, 0.0)), 6)
    0.693147
    """

    task: ClassVar[Task] = "classification"
    self_concordance: ClassVar[float | None] = 1.0
    fourth_constant: ClassVar[float | None] = 1.0
    chi_square: ClassVar[bool] = True
    probabilities: ClassVar[bool] = True

    @property
    def smoothness(self) -> float:
        return 0.25

    def value(self, y: ArrayLike, z: ArrayLike) -> Array:
        y, z = floats(y, z)
        return softplus(-y * z)

    def derivative(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        y, z = floats(y, z)
        xp = namespace(z)
        if xp is not np or z.size < VECTORISED_FROM:
            slope = -y * (expit(-y * z) if xp is np else _tails(xp, y * z)[0])
            return slope, slope
        slope = y * z
        # -y / (1 + e^m) overflows where the slope is below 1e-308.
        with np.errstate(over="ignore"):
            np.exp(slope, out=slope)
        slope += 1.0
        np.divide(-y, slope, out=slope)
        return slope, slope

    def curvature(self, y: ArrayLike, z: ArrayLike) -> Array:
        y, z = floats(y, z)
        xp = namespace(z)
        tail = xp.exp(-xp.abs(z))
        return tail / (1.0 + tail) ** 2

    def third_derivative(self, y: ArrayLike, z: ArrayLike) -> Array:
        (z,) = floats(z)
        return -self.curvature(y, z) * namespace(z).tanh(0.5 * z)

    def majorant_curvature(self, z: ArrayLike) -> Array:
        # tanh(z / 2) / (2 z): it falls as 1 / |z| where the curvature itself falls as e^-|z|.
        (z,) = floats(z)
        xp = namespace(z)
        half = 0.5 * xp.maximum(xp.abs(z), 1e-8)
        return 0.25 * xp.tanh(half) / half

    def expand(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array, Array]:
        y, z = floats(y, z)
        xp = namespace(z)
        margin = y * z
        miss, curvature, tail = _tails(xp, margin)
        return xp.log1p(tail) + xp.maximum(-margin, 0.0), -y * miss, curvature

    def conjugate(self, y: ArrayLike, g: ArrayLike) -> Array:
        y, g = floats(y, g)
        xp = namespace(g)
        q = -y * g
        inside = (q >= 0.0) & (q <= 1.0)
        q = xp.where(inside, q, 0.0)
        return xp.where(inside, -entr(q) - entr(1.0 - q), np.inf)

    def derivative_range(self, y: ArrayLike) -> tuple[Array, Array]:
        (y,) = floats(y)
        xp = namespace(y)
        return xp.minimum(-y, 0.0), xp.maximum(-y, 0.0)

    def fenchel_young(self, y: ArrayLike, z: ArrayLike, g: ArrayLike) -> Array:
        return self.fenchel_young_slope(y, z, g)[0]

    @in_chunks
    def fenchel_young_slope(self, y: ArrayLike, z: ArrayLike, g: ArrayLike) -> tuple[Array, Array]:
        y, z, g = floats(y, z, g)
        xp = namespace(g)
        margin, q = y * z, -y * g
        inside = (q >= 0.0) & (q <= 1.0)
        # The Kullback-Leibler divergence of (q, 1 - q) from (p, 1 - p), p = sigmoid(-margin), is the same with both
        # pairs swapped: swap so that p <= 1/2, where p and q - p have small relative errors.
        q = xp.where(inside, xp.where(margin < 0.0, 1.0 - q, q), 0.0)
        value, excess = divergence(q, xp.abs(margin))
        return xp.where(inside, value, np.inf), xp.abs(excess)


@final
@dataclass(frozen=True)
class Binomial(Loss):
    r"""Half binomial deviance of a share with a logit link, :math:`\ell(y, z) = \log(1 + e^z) - y z + y \log y + (1 - y) \log(1 - y)`, for :math:`0 \le y \le 1`.

    The Kullback-Leibler divergence of :math:`(y, 1 - y)` from :math:`(p, 1 - p)`, :math:`p = 1 / (1 + e^{-z})`: ``k`` successes in ``n`` trials are the
    share ``k / n`` with the weight ``n``. Labels 0 and 1 are shares, too, of the same loss as :class:`Logistic`.

    * derivative: :math:`p - y`, with range :math:`(-y, 1 - y)`
    * conjugate: :math:`u \log u + (1 - u) \log(1 - u) - y \log y - (1 - y) \log(1 - y)` with :math:`u = g + y \in [0, 1]`
    * smoothness 1/4, self-concordance 1

    Examples
    --------
    >>> from glru.losses import Binomial
    >>> float(Binomial().value(0.5, 0.0)), round(float(Binomial().value(1.0, 0.0)), 6)
    (0.0, 0.693147)
    """

    task: ClassVar[Task] = "regression"
    self_concordance: ClassVar[float | None] = 1.0
    fourth_constant: ClassVar[float | None] = 1.0
    chi_square: ClassVar[bool] = True

    @property
    def link(self) -> Link:
        return "logit"

    @property
    def smoothness(self) -> float:
        return 0.25

    @property
    def score_noise(self) -> float:
        # p and 1 - p are off by a few units of the smaller one, as if the score were off by that.
        return FEW

    def check_targets(self, y: Array) -> None:
        bad = np.flatnonzero(~((y >= 0.0) & (y <= 1.0)))
        if bad.size:
            raise ValueError(
                f"y must be shares from 0 to 1 for {self!r}; entry {bad[0]} is {y[bad[0]]}. Divide successes by trials, and give the trials as sample_weight."
            )

    def value(self, y: ArrayLike, z: ArrayLike) -> Array:
        y, z = floats(y, z)
        return self.fenchel_young(y, z, np.zeros_like(z))

    def derivative(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        y, z = floats(y, z)
        tail = np.exp(-np.abs(z))
        # Of p - y whichever of p and 1 - p is below 1/2 is subtracted from: what cancels is small.
        slope = np.where(z >= 0.0, (1.0 - y) - y * tail, (1.0 - y) * tail - y) / (1.0 + tail)
        slope = np.minimum(slope, self.derivative_range(y)[1])
        return slope, slope

    def curvature(self, y: ArrayLike, z: ArrayLike) -> Array:
        y, z = floats(y, z)
        tail = np.exp(-np.abs(z))
        return tail / (1.0 + tail) ** 2

    def third_derivative(self, y: ArrayLike, z: ArrayLike) -> Array:
        y, z = floats(y, z)
        return -self.curvature(y, z) * np.tanh(0.5 * z)

    def majorant_curvature(self, z: ArrayLike) -> Array:
        return Logistic().majorant_curvature(z)

    def conjugate(self, y: ArrayLike, g: ArrayLike) -> Array:
        y, g = floats(y, g)
        up, down = _move_shares(y, g)
        inside = (up >= 0.0) & (down >= 0.0)
        up, down = np.where(inside, up, 0.0), np.where(inside, down, 0.0)
        return np.where(inside, entr(y) + entr(1.0 - y) - entr(up) - entr(down), np.inf)

    def derivative_range(self, y: ArrayLike) -> tuple[Array, Array]:
        (y,) = floats(y)
        rest = 1.0 - y
        # Rounded down: what is at most this is inside.
        return 0.0 - y, np.where(1.0 - rest < y, np.nextafter(rest, 0.0), rest)

    @in_chunks
    def fenchel_young(self, y: ArrayLike, z: ArrayLike, g: ArrayLike) -> Array:
        y, z, g = floats(y, z, g)
        up, down = _move_shares(y, g)
        inside = (up >= 0.0) & (down >= 0.0)
        # The share that belongs to the smaller of p and 1 - p.
        q = np.where(inside, np.where(z > 0.0, down, up), 0.0)
        return np.where(inside, divergence(q, np.broadcast_to(np.abs(z), q.shape))[0], np.inf)


def _move_shares(y: Array, g: Array) -> tuple[Array, Array]:
    """``y + g`` and ``1 - y - g``, each to a few units of itself."""
    rest = 1.0 - y
    # What rounding took from 1 - y comes back where the difference is small.
    return y + g, (rest - g) + ((1.0 - rest) - y)


def _tails(xp: Any, margin: Array) -> tuple[Array, Array, Array]:
    """The probability of the other class, the curvature, and ``e^-|margin|`` they are made of."""
    tail = xp.exp(-xp.abs(margin))
    inverse = 1.0 / (1.0 + tail)
    small = tail * inverse
    return xp.where(margin >= 0.0, small, inverse), small * inverse, tail


def softplus(x: Array) -> Array:
    """``log(1 + e^x)`` without overflow."""
    xp = namespace(x)
    return xp.log1p(xp.exp(-xp.abs(x))) + xp.maximum(x, 0.0)


def divergence(q: Array, margin: Array) -> tuple[Array, Array]:
    """``KL((q, 1 - q) || (p, 1 - p))`` for ``p = sigmoid(-margin)``, ``margin >= 0``, as two non-negative terms; and ``q - p``."""
    xp = namespace(q)
    tail = xp.exp(-margin)
    p = tail / (1.0 + tail)
    excess = q - p
    near = xp.abs(excess) < p
    value = (1.0 - p) * entropy_excess(-excess / (1.0 - p))
    close = p * entropy_excess(xp.where(near, excess, 0.0) / xp.where(near, p, 1.0))
    if xp is np and near.all():
        return value + close, excess
    # Far from p nothing cancels, and log p = -softplus(margin) survives the underflow of p. Both cases of every entry are computed: choosing the
    # entries of one costs more than its logarithms.
    far = xp.maximum(q * xp.log(xp.where(q > 0.0, q, 1.0)) + q * softplus(margin) - excess, 0.0)
    return value + xp.where(near, close, far), excess


def entropy_excess(e: Array) -> Array:
    """``(1 + e) log(1 + e) - e`` on ``-1 <= e``, accurate near zero where it is ``e^2 / 2``."""
    xp = namespace(e)
    series, large = _entropy_series(xp, e), xp.abs(e) >= 0.03
    if xp is np and not large.any():
        return series
    inside = xp.where(e > -1.0, e, 0.0)
    return xp.where(large, xp.where(e > -1.0, (1.0 + inside) * xp.log1p(inside) - inside, 1.0), series)


def _entropy_series(xp: Any, e: Array) -> Array:
    """``(1 + e) log(1 + e) - e`` for small ``|e|``, by its series."""
    # sum_k (-e)^k / ((k + 1)(k + 2)): ten terms leave a relative error below 0.03^10 / 66 < 1e-17.
    series = xp.full_like(e, 1.0 / 110.0)
    for k in range(8, -1, -1):
        series *= -e
        series += 1.0 / ((k + 1) * (k + 2))
    return e * e * series
