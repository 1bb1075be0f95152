"""Losses of the residual ``z - y``: squared and Huber."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from glru._options import suggest_options
from glru.linalg import Array, floats, namespace
from glru.losses.base import Loss, Task, require_positive, where_true


@final
@suggest_options
@dataclass(frozen=True)
class Squared(Loss):
    r"""Squared loss, :math:`\ell(y, z) = (z - y)^2 / 2`.

    * derivative: :math:`z - y`, with range :math:`(-\infty, \infty)`
    * conjugate: :math:`g^2/2 + g y`
    * smoothness 1, self-concordance 0 (the third derivative vanishes)

    Examples
    --------
    >>> import glru
    >>> float(glru.Squared().value(1.0, 3.0))
    2.0
    """

    task: ClassVar[Task] = "regression"
    self_concordance: ClassVar[float | None] = 0.0
    chi_square: ClassVar[bool] = True

    @property
    def smoothness(self) -> float:
        return 1.0

    def value(self, y: ArrayLike, z: ArrayLike) -> Array:
        y, z = floats(y, z)
        return 0.5 * (z - y) ** 2

    def derivative(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        y, z = floats(y, z)
        slope = z - y
        return slope, slope

    def curvature(self, y: ArrayLike, z: ArrayLike) -> Array:
        y, z = floats(y, z)
        xp = namespace(z)
        return xp.ones_like(z)

    def conjugate(self, y: ArrayLike, g: ArrayLike) -> Array:
        y, g = floats(y, g)
        return g * (0.5 * g + y)

    def derivative_range(self, y: ArrayLike) -> tuple[Array, Array]:
        (y,) = floats(y)
        xp = namespace(y)
        return xp.full_like(y, -np.inf), xp.full_like(y, np.inf)

    def fenchel_young(self, y: ArrayLike, z: ArrayLike, g: ArrayLike) -> Array:
        y, z, g = floats(y, z, g)
        return 0.5 * (z - y - g) ** 2


@final
@suggest_options
@dataclass(frozen=True)
class Huber(Loss):
    r"""Huber loss: with :math:`r = z - y`, :math:`r^2/2` for :math:`|r| \le \gamma`, else :math:`\gamma |r| - \gamma^2/2`.

    * derivative: :math:`r` clipped to :math:`[-\gamma, \gamma]`, which is also its range
    * conjugate: :math:`g^2/2 + g y` on :math:`|g| \le \gamma`
    * smoothness 1, no self-concordance (the curvature jumps)

    Parameters
    ----------
    gamma : float, default=1.0
        Where the loss turns from quadratic to linear; above 0.

    Examples
    --------
    >>> import glru
    >>> float(glru.Huber(gamma=1.0).value(0.0, 3.0))
    2.5
    """

    gamma: float = 1.0
    task: ClassVar[Task] = "regression"
    self_concordance: ClassVar[float | None] = None
    piecewise: ClassVar[bool] = True

    @property
    def smoothness(self) -> float:
        return 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", require_positive("Huber", "gamma", self.gamma))

    def value(self, y: ArrayLike, z: ArrayLike) -> Array:
        y, z = floats(y, z)
        xp = namespace(z)
        size = xp.abs(z - y)
        inner = xp.minimum(size, self.gamma)
        return inner * (size - 0.5 * inner)

    def derivative(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        y, z = floats(y, z)
        xp = namespace(z)
        slope = xp.clip(z - y, -self.gamma, self.gamma)
        return slope, slope

    def curvature(self, y: ArrayLike, z: ArrayLike) -> Array:
        y, z = floats(y, z)
        xp = namespace(z)
        return where_true(xp, xp.abs(z - y) <= self.gamma, 1.0)

    def piece_depth(self, y: ArrayLike, z: ArrayLike) -> Array:
        y, z = floats(y, z)
        return self.gamma - namespace(z).abs(z - y)

    def conjugate(self, y: ArrayLike, g: ArrayLike) -> Array:
        y, g = floats(y, g)
        xp = namespace(g)
        return xp.where(xp.abs(g) <= self.gamma, g * (0.5 * g + y), np.inf)

    def derivative_range(self, y: ArrayLike) -> tuple[Array, Array]:
        (y,) = floats(y)
        xp = namespace(y)
        return xp.full_like(y, -self.gamma), xp.full_like(y, self.gamma)

    def fenchel_young(self, y: ArrayLike, z: ArrayLike, g: ArrayLike) -> Array:
        y, z, g = floats(y, z, g)
        xp = namespace(g)
        residual = z - y
        # Reflect to residual >= 0. Beyond gamma the value factors into two non-negative terms.
        size, slope = xp.abs(residual), xp.where(residual < 0, -g, g)
        inside = 0.5 * (size - slope) ** 2
        outside = (self.gamma - slope) * (size - 0.5 * (self.gamma + slope))
        value = xp.where(size <= self.gamma, inside, outside)
        return xp.where(xp.abs(g) <= self.gamma, value, np.inf)
