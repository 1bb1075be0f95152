"""The multinomial logistic loss: one score per class."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy

from glru._options import suggest_options
from glru.linalg import Array
from glru.losses.base import Loss, Task
from glru.losses.logistic import entropy_excess


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

    @property
    def smoothness(self) -> float:
        return 0.5

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
        return np.where(_in_simplex(q), divergence(np.maximum(q, 0.0), np.asarray(z, dtype=np.float64)), np.inf)

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


def divergence(q: Array, z: Array) -> Array:
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
    room = 4.0 * q.shape[-1] * np.finfo(np.float64).eps
    return (q >= -room).all(axis=-1) & (np.abs(q.sum(axis=-1) - 1.0) <= room)
