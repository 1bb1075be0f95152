"""The logistic loss, of labels and of shares."""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr, expit, xlogy

from glru._options import suggest_options
from glru.linalg import FEW, Array, floats, namespace, unify
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
    probabilities: ClassVar[bool] = True
    smoothness: ClassVar[float] = 0.25

    def value(self, y: ArrayLike, z: ArrayLike) -> Array:
        y, z = floats(y, z)
        return softplus(-y * z)

    def derivative(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        xp, y, z = unify(y, z)
        if xp is not np or z.size < VECTORISED_FROM:
            slope = -y * (expit(-y * z) if xp is np else _tails(xp, y * z)[0])
            return slope, slope
        slope = y * z
        # -y / (1 + e^m) overflows where the slope is below 1e-308.
        with np.errstate(over="ignore"):
            np.exp(slope, out=slope)
        np.subtract(-1.0, slope, out=slope)
        np.divide(y, slope, out=slope)
        return slope, slope

    def curvature(self, y: ArrayLike, z: ArrayLike) -> Array:
        xp, y, z = unify(y, z)
        tail = xp.exp(-xp.abs(z))
        return tail / (1.0 + tail) ** 2

    def third_derivative(self, y: ArrayLike, z: ArrayLike) -> Array:
        (z,) = floats(z)
        return -self.curvature(y, z) * namespace(z).tanh(0.5 * z)

    def majorant_curvature(self, z: ArrayLike) -> Array:
        # tanh(z / 2) / (2 z): it falls as 1 / |z| where the curvature itself falls as e^-|z|.
        xp, z = unify(z)
        half = 0.5 * xp.maximum(xp.abs(z), 1e-8)
        return 0.25 * xp.tanh(half) / half

    def expand(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array, Array]:
        xp, y, z = unify(y, z)
        margin = y * z
        miss, curvature, tail = _tails(xp, margin)
        return xp.log1p(tail) + xp.maximum(-margin, 0.0), -y * miss, curvature

    def expand_slope(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        xp, y, z = unify(y, z)
        miss, curvature, _ = _tails(xp, y * z)
        return -y * miss, curvature

    def conjugate(self, y: ArrayLike, g: ArrayLike) -> Array:
        xp, y, g = unify(y, g)
        q = -y * g
        inside = (q >= 0.0) & (q <= 1.0)
        q = xp.where(inside, q, 0.0)
        return xp.where(inside, -entr(q) - entr(1.0 - q), np.inf)

    def derivative_range(self, y: ArrayLike) -> tuple[Array, Array]:
        xp, y = unify(y)
        return xp.minimum(-y, 0.0), xp.maximum(-y, 0.0)

    def fenchel_young(self, y: ArrayLike, z: ArrayLike, g: ArrayLike) -> Array:
        return self.fenchel_young_slope(y, z, g)[0]

    @in_chunks
    def fenchel_young_slope(self, y: ArrayLike, z: ArrayLike, g: ArrayLike) -> tuple[Array, Array]:
        xp, y, z, g = unify(y, z, g)
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
    link: ClassVar[Link] = "logit"
    smoothness: ClassVar[float] = 0.25

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
    # sum_k (-e)^k / ((k + 1)(k + 2)): ten terms leave a relative error below 0.03^10 / 66 < 1e-17, six one below 0.001^6 / 28.
    few = xp is np and np.abs(e).max(initial=0.0) < 1e-3
    series = xp.full_like(e, 1.0 / 42.0 if few else 1.0 / 110.0)
    for k in range(4 if few else 8, -1, -1):
        series *= -e
        series += 1.0 / ((k + 1) * (k + 2))
    return e * e * series


@final
@suggest_options
@dataclass(frozen=True)
class Multinomial(Loss):
    r"""Multinomial logistic loss of three or more classes, :math:`\ell(y, z) = \log \sum_k e^{z_k} - z_y`.

    The last axis of scores, gradients and dual variables has one entry per class, and ``y`` holds places of classes. With
    :math:`p = \operatorname{softmax}(z)`:

    * gradient: :math:`p - e_y`, Hessian :math:`h = \operatorname{diag}(p) - p p^\top`
    * conjugate at :math:`g = q - e_y`: :math:`\sum_k q_k \log q_k` for :math:`q` in the simplex
    * Fenchel-Young value: the Kullback-Leibler divergence :math:`\mathrm{KL}(q \,\|\, p)`
    * smoothness 1/2; scores that move by ``t`` leave ``h`` within a factor :math:`e^{\max t - \min t}`, which is self-concordance
      with the range of a move in place of its size

    Adding one number to all scores changes nothing.

    Examples
    --------
    >>> import glru
    >>> round(float(glru.Multinomial().value(0, [0.0, 0.0, 0.0])), 6)
    1.098612
    """

    task: ClassVar[Task] = "classification"
    self_concordance: ClassVar[float | None] = 1.0
    probabilities: ClassVar[bool] = True
    several: ClassVar[bool] = True
    smoothness: ClassVar[float] = 0.5

    def value(self, y: ArrayLike, z: ArrayLike) -> Array:
        z = np.asarray(z, dtype=np.float64)
        top = z.max(axis=-1)
        own = np.take_along_axis(z, _places(y)[..., None], axis=-1)[..., 0]
        # The largest score counts by itself, so that the loss of a row that is far on the right side keeps its digits.
        others = np.exp(z - top[..., None]).sum(axis=-1) - 1.0
        return np.asarray((top - own) + np.log1p(np.maximum(others, 0.0)))

    def derivative(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        slope = self.slopes_of(y, softmax(np.asarray(z, dtype=np.float64)))
        return slope, slope

    def curvature(self, y: ArrayLike, z: ArrayLike) -> Array:
        """The diagonal of the Hessian, ``p (1 - p)``."""
        likely = softmax(np.asarray(z, dtype=np.float64))
        return likely * (1.0 - likely)

    def conjugate(self, y: ArrayLike, g: ArrayLike) -> Array:
        q = self.probabilities_of(y, g)
        value = xlogy(q, np.maximum(q, 0.0)).sum(axis=-1)
        return np.where(_in_simplex(q), value, np.inf)

    def derivative_range(self, y: ArrayLike) -> tuple[Array, Array]:
        """Not defined without the number of classes: the range is the simplex less the row's own corner."""
        raise NotImplementedError("the derivatives of the multinomial loss are in a simplex, not between two ends.")

    def fenchel_young(self, y: ArrayLike, z: ArrayLike, g: ArrayLike) -> Array:
        q = self.probabilities_of(y, g)
        return np.where(_in_simplex(q), class_divergence(np.maximum(q, 0.0), np.asarray(z, dtype=np.float64)), np.inf)

    def project(self, y: ArrayLike, g: ArrayLike) -> Array:
        """A point of the simplex near ``g``, as a gradient."""
        q = np.maximum(self.probabilities_of(y, g), 0.0)
        return self.slopes_of(y, q / q.sum(axis=-1, keepdims=True))

    def probabilities_of(self, y: ArrayLike, g: ArrayLike) -> Array:
        """``g + e_y``: the probabilities that a gradient stands for."""
        q = np.array(g, dtype=np.float64)
        places = _places(y)[..., None]
        np.put_along_axis(q, places, np.take_along_axis(q, places, axis=-1) + 1.0, axis=-1)
        return q

    def slopes_of(self, y: ArrayLike, q: Array) -> Array:
        """``q - e_y``: the gradient that probabilities stand for.

        The row's own entry is minus the sum of the others, which has a small relative error however near to 1 its probability is.
        """
        slope, places = np.array(q, dtype=np.float64), _places(y)[..., None]
        np.put_along_axis(slope, places, 0.0, axis=-1)
        np.put_along_axis(slope, places, -slope.sum(axis=-1, keepdims=True), axis=-1)
        return slope


def softmax(z: Array) -> Array:
    """``e^z`` over its sum along the last axis.

    Each entry has a relative error of ``gamma(K + 8)`` and of one unit times its distance from the largest score.
    """
    likely = np.exp(z - z.max(axis=-1, keepdims=True))
    likely /= likely.sum(axis=-1, keepdims=True)
    return likely


def class_divergence(q: Array, z: Array) -> Array:
    """``KL(q || softmax(z))`` along the last axis, a sum of non-negative terms ``p phi(q / p - 1)``."""
    top = z.max(axis=-1, keepdims=True)
    logs = z - top
    logs -= np.log(np.exp(logs).sum(axis=-1, keepdims=True))
    p = np.exp(logs)
    excess = q - p
    far = ~(np.abs(excess) < p)
    terms = p * entropy_excess(np.where(far, 0.0, excess) / np.where(far, 1.0, p))
    if far.any():
        # Far from p nothing cancels, and log p survives the underflow of p.
        terms[far] = np.maximum(xlogy(q[far], q[far]) - q[far] * logs[far] - excess[far], 0.0)
    total: Array = terms.sum(axis=-1)
    return total


def _places(y: ArrayLike) -> NDArray[np.intp]:
    return np.asarray(y, dtype=np.intp)


def _in_simplex(q: Array) -> NDArray[np.bool_]:
    """Whether entries are probabilities: not negative, and of sum 1 up to rounding."""
    slack = 4.0 * q.shape[-1] * np.finfo(np.float64).eps
    return (q >= -slack).all(axis=-1) & (np.abs(q.sum(axis=-1) - 1.0) <= slack)
