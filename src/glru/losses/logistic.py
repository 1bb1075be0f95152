"""The logistic loss."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr, expit, xlog1py, xlogy

from glru._numerics import Array
from glru.losses.base import Loss, Task, floats


@final
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
    chi_square: ClassVar[bool] = True

    @property
    def smoothness(self) -> float:
        return 0.25

    def value(self, y: ArrayLike, z: ArrayLike) -> Array:
        y, z = floats(y, z)
        return softplus(-y * z)

    def derivative(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        y, z = floats(y, z)
        slope = -y * expit(-y * z)
        return slope, slope

    def curvature(self, y: ArrayLike, z: ArrayLike) -> Array:
        y, z = floats(y, z)
        tail = np.exp(-np.abs(z))
        return tail / (1.0 + tail) ** 2

    def expand(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array, Array]:
        y, z = floats(y, z)
        margin = y * z
        tail = np.exp(-np.abs(margin))
        inverse = 1.0 / (1.0 + tail)
        small = tail * inverse
        miss = np.where(margin >= 0.0, small, inverse)
        return np.log1p(tail) + np.maximum(-margin, 0.0), -y * miss, small * inverse

    def conjugate(self, y: ArrayLike, g: ArrayLike) -> Array:
        y, g = floats(y, g)
        q = -y * g
        inside = (q >= 0.0) & (q <= 1.0)
        q = np.where(inside, q, 0.0)
        return np.where(inside, -entr(q) - entr(1.0 - q), np.inf)

    def derivative_range(self, y: ArrayLike) -> tuple[Array, Array]:
        (y,) = floats(y)
        return np.minimum(-y, 0.0), np.maximum(-y, 0.0)

    def fenchel_young(self, y: ArrayLike, z: ArrayLike, g: ArrayLike) -> Array:
        y, z, g = floats(y, z, g)
        margin, q = y * z, -y * g
        inside = (q >= 0.0) & (q <= 1.0)
        # The Kullback-Leibler divergence of (q, 1 - q) from (p, 1 - p), p = sigmoid(-margin), is the same with both
        # pairs swapped: swap so that p <= 1/2, where p and q - p have small relative errors.
        q = np.where(inside, np.where(margin < 0.0, 1.0 - q, q), 0.0)
        value = divergence(np.atleast_1d(q), np.atleast_1d(np.abs(margin)))
        return np.where(inside, value.reshape(q.shape), np.inf)


def softplus(x: Array) -> Array:
    """``log(1 + e^x)`` without overflow."""
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0.0)


def divergence(q: Array, margin: Array) -> Array:
    """``KL((q, 1 - q) || (p, 1 - p))`` for ``p = sigmoid(-margin)``, ``margin >= 0``, as two non-negative terms."""
    tail = np.exp(-margin)
    p = tail / (1.0 + tail)
    excess = q - p
    value = (1.0 - p) * entropy_excess(-excess / (1.0 - p))
    far = ~(np.abs(excess) < p)
    if not far.any():
        value += p * entropy_excess(excess / p)
        return value
    near = ~far
    value[near] += p[near] * entropy_excess(excess[near] / p[near])
    # Far from p nothing cancels, and log p = -softplus(margin) survives the underflow of p.
    q = q[far]
    value[far] += np.maximum(xlogy(q, q) + q * softplus(margin[far]) - excess[far], 0.0)
    return value


def entropy_excess(e: Array) -> Array:
    """``(1 + e) log(1 + e) - e`` on ``-1 <= e``, accurate near zero where it is ``e^2 / 2``."""
    # sum_k (-e)^k / ((k + 1)(k + 2)): ten terms leave a relative error below 0.03^10 / 66 < 1e-17.
    series = np.full_like(e, 1.0 / 110.0)
    for k in range(8, -1, -1):
        series *= -e
        series += 1.0 / ((k + 1) * (k + 2))
    value = e * e * series
    large = np.abs(e) >= 0.03
    if large.any():
        t = e[large]
        value[large] = xlog1py(1.0 + t, t) - t
    return value
