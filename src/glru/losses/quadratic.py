"""Piecewise linear and quadratic losses: of the residual ``z - y`` (squared, Huber), and of the shortfall ``u = 1 - y z`` (the hinges).

All hinges are the best lower line ``q u`` minus a price of ``q``, the signed slope ``q = -y g``:

    l(u) = max_q  q u - price(q)      so      l*(g) = price(q) - q      and      F = l(u) + price(q) - q u
"""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from glru._options import suggest_options
from glru.linalg import Array, floats, namespace, unify
from glru.losses.base import Loss, Task, require_positive, where_true


@final
@suggest_options
@dataclass(frozen=True)
class Hinge(Loss):
    r"""Hinge loss, :math:`\ell(y, z) = [1 - y z]_+`.

    * derivative: :math:`-y` where :math:`y z < 1`, 0 where :math:`y z > 1`, the interval between at the kink
    * conjugate: :math:`y g` on :math:`-1 \le y g \le 0`
    * not smooth (``smoothness`` is inf), no self-concordance

    Examples
    --------
    >>> import glru
    >>> lower, upper = glru.Hinge().derivative(1.0, 1.0)
    >>> float(lower), float(upper)
    (-1.0, 0.0)
    """

    task: ClassVar[Task] = "classification"
    smoothness: ClassVar[float] = np.inf

    def value(self, y: ArrayLike, z: ArrayLike) -> Array:
        xp, y, z = unify(y, z)
        return xp.maximum(1.0 - y * z, 0.0)

    def derivative(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        xp, y, z = unify(y, z)
        short = 1.0 - y * z
        steep, flat = xp.where(short >= 0.0, -y, 0.0), xp.where(short <= 0.0, 0.0, -y)
        return xp.minimum(steep, flat), xp.maximum(steep, flat)

    def curvature(self, y: ArrayLike, z: ArrayLike) -> Array:
        xp, y, z = unify(y, z)
        return xp.zeros_like(z)

    def conjugate(self, y: ArrayLike, g: ArrayLike) -> Array:
        xp, y, g = unify(y, g)
        slope = -y * g
        return xp.where((slope >= 0.0) & (slope <= 1.0), -slope, np.inf)

    def derivative_range(self, y: ArrayLike) -> tuple[Array, Array]:
        xp, y = unify(y)
        return xp.minimum(-y, 0.0), xp.maximum(-y, 0.0)

    def fenchel_young(self, y: ArrayLike, z: ArrayLike, g: ArrayLike) -> Array:
        xp, y, z, g = unify(y, z, g)
        short, slope = 1.0 - y * z, -y * g
        value = xp.where(short > 0.0, (1.0 - slope) * short, -slope * short)
        return xp.where((slope >= 0.0) & (slope <= 1.0), value, np.inf)


@final
@suggest_options
@dataclass(frozen=True)
class SmoothedHinge(Loss):
    r"""Smoothed hinge: 0 for :math:`u \le 0`, :math:`u^2 / (2 \gamma)` up to :math:`u = \gamma`, then :math:`u - \gamma/2`, with :math:`u = 1 - y z`.

    * derivative: :math:`-y` times :math:`u / \gamma` clipped to :math:`[0, 1]`
    * conjugate: :math:`y g + \gamma g^2 / 2` on :math:`-1 \le y g \le 0`
    * smoothness :math:`1/\gamma`, no self-concordance (the curvature jumps)

    Parameters
    ----------
    gamma : float, default=1.0
        Width of the quadratic piece; above 0.

    Examples
    --------
    >>> import glru
    >>> float(glru.SmoothedHinge(gamma=1.0).value(1.0, 0.0))
    0.5
    """

    gamma: float = 1.0
    task: ClassVar[Task] = "classification"
    piecewise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", require_positive("SmoothedHinge", "gamma", self.gamma))

    @property
    def smoothness(self) -> float:
        return 1.0 / self.gamma

    def value(self, y: ArrayLike, z: ArrayLike) -> Array:
        xp, y, z = unify(y, z)
        short = xp.maximum(1.0 - y * z, 0.0)
        inner = xp.minimum(short, self.gamma)
        return inner / self.gamma * (short - 0.5 * inner)

    def derivative(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        xp, y, z = unify(y, z)
        slope = -y * xp.clip((1.0 - y * z) / self.gamma, 0.0, 1.0)
        return slope, slope

    def curvature(self, y: ArrayLike, z: ArrayLike) -> Array:
        xp, y, z = unify(y, z)
        short = 1.0 - y * z
        return where_true(xp, (short >= 0.0) & (short <= self.gamma), 1.0 / self.gamma)

    def piece_depth(self, y: ArrayLike, z: ArrayLike) -> Array:
        y, z = floats(y, z)
        short = 1.0 - y * z
        return namespace(z).minimum(short, self.gamma - short)

    def conjugate(self, y: ArrayLike, g: ArrayLike) -> Array:
        xp, y, g = unify(y, g)
        slope = -y * g
        value = slope * (0.5 * self.gamma * slope - 1.0)
        return xp.where((slope >= 0.0) & (slope <= 1.0), value, np.inf)

    def derivative_range(self, y: ArrayLike) -> tuple[Array, Array]:
        xp, y = unify(y)
        return xp.minimum(-y, 0.0), xp.maximum(-y, 0.0)

    def fenchel_young(self, y: ArrayLike, z: ArrayLike, g: ArrayLike) -> Array:
        y, z, g = floats(y, z, g)
        return proximal_gap(1.0 - y * z, -y * g, 0.0, self.gamma)


@final
@suggest_options
@dataclass(frozen=True)
class SquaredHinge(Loss):
    r"""Squared hinge, :math:`\ell(y, z) = ([1 - y z]_+)^2`.

    * derivative: :math:`-2 y [1 - y z]_+`, with range :math:`-y [0, \infty)`
    * conjugate: :math:`g^2/4 + y g` on :math:`y g \le 0`
    * smoothness 2, no self-concordance (the curvature jumps)

    Examples
    --------
    >>> import glru
    >>> float(glru.SquaredHinge().value(1.0, -1.0))
    4.0
    """

    task: ClassVar[Task] = "classification"
    piecewise: ClassVar[bool] = True
    smoothness: ClassVar[float] = 2.0

    def value(self, y: ArrayLike, z: ArrayLike) -> Array:
        xp, y, z = unify(y, z)
        return xp.maximum(1.0 - y * z, 0.0) ** 2

    def derivative(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        xp, y, z = unify(y, z)
        slope = -2.0 * y * xp.maximum(1.0 - y * z, 0.0)
        return slope, slope

    def curvature(self, y: ArrayLike, z: ArrayLike) -> Array:
        xp, y, z = unify(y, z)
        return where_true(xp, 1.0 - y * z >= 0.0, 2.0)

    def piece_depth(self, y: ArrayLike, z: ArrayLike) -> Array:
        y, z = floats(y, z)
        return 1.0 - y * z

    def conjugate(self, y: ArrayLike, g: ArrayLike) -> Array:
        xp, y, g = unify(y, g)
        slope = -y * g
        return xp.where(slope >= 0.0, slope * (0.25 * slope - 1.0), np.inf)

    def derivative_range(self, y: ArrayLike) -> tuple[Array, Array]:
        xp, y = unify(y)
        return xp.where(y > 0, xp.full_like(y, -np.inf), 0.0), xp.where(y > 0, 0.0, xp.full_like(y, np.inf))

    def fenchel_young(self, y: ArrayLike, z: ArrayLike, g: ArrayLike) -> Array:
        xp, y, z, g = unify(y, z, g)
        short, slope = 1.0 - y * z, -y * g
        value = xp.where(short >= 0.0, (short - 0.5 * slope) ** 2, slope * (0.25 * slope - short))
        return xp.where(slope >= 0.0, value, np.inf)


@final
@dataclass(frozen=True, eq=False)
class ProximalHinge(Loss):
    r"""The hinge seen by one step of the proximal-point method, :math:`\max_{0 \le q \le 1} q u - \tfrac{\gamma}{2}(q - c)^2`, :math:`u = 1 - y z`.

    A smoothed hinge whose quadratic piece is moved so that slope ``c`` costs nothing. It has one
    centre a row, so it is evaluated on all rows of its problem at once.
    """

    gamma: float  # width of the quadratic piece
    center: Array  # shape (n_rows,): the slope each row is drawn to, in [0, 1]
    task: ClassVar[Task] = "classification"

    @property
    def smoothness(self) -> float:
        return 1.0 / self.gamma

    def slope(self, y: ArrayLike, z: ArrayLike) -> Array:
        """The maximising ``q``."""
        xp, y, z = unify(y, z)
        return xp.clip(self.center + (1.0 - y * z) / self.gamma, 0.0, 1.0)

    def value(self, y: ArrayLike, z: ArrayLike) -> Array:
        y, z = floats(y, z)
        q = self.slope(y, z)
        return q * (1.0 - y * z) - 0.5 * self.gamma * (q - self.center) ** 2

    def derivative(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        y, z = floats(y, z)
        slope = -y * self.slope(y, z)
        return slope, slope

    def curvature(self, y: ArrayLike, z: ArrayLike) -> Array:
        xp, y, z = unify(y, z)
        free = self.center + (1.0 - y * z) / self.gamma
        return where_true(xp, (free >= 0.0) & (free <= 1.0), 1.0 / self.gamma)

    def conjugate(self, y: ArrayLike, g: ArrayLike) -> Array:
        xp, y, g = unify(y, g)
        q = -y * g
        value = 0.5 * self.gamma * (q - self.center) ** 2 - q
        return xp.where((q >= 0.0) & (q <= 1.0), value, np.inf)

    def derivative_range(self, y: ArrayLike) -> tuple[Array, Array]:
        xp, y = unify(y)
        return xp.minimum(-y, 0.0), xp.maximum(-y, 0.0)

    def fenchel_young(self, y: ArrayLike, z: ArrayLike, g: ArrayLike) -> Array:
        y, z, g = floats(y, z, g)
        return proximal_gap(1.0 - y * z, -y * g, self.center, self.gamma)


def proximal_gap(short: Array, slope: Array, center: Array | float, gamma: float) -> Array:
    """Fenchel-Young value of the hinge with price ``gamma/2 (q - center)^2``, as products of non-negative factors."""
    xp = namespace(short)
    offset = short + gamma * center
    below = slope * (0.5 * gamma * slope - offset)
    above = (1.0 - slope) * (offset - 0.5 * gamma * (1.0 + slope))
    inside = (offset - gamma * slope) ** 2 / (2.0 * gamma)
    value = xp.where(offset <= 0.0, below, xp.where(offset >= gamma, above, inside))
    return xp.where((slope >= 0.0) & (slope <= 1.0), value, np.inf)


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
    smoothness: ClassVar[float] = 1.0

    def value(self, y: ArrayLike, z: ArrayLike) -> Array:
        y, z = floats(y, z)
        return 0.5 * (z - y) ** 2

    def derivative(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        y, z = floats(y, z)
        slope = z - y
        return slope, slope

    def expand(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array, Array]:
        slope, _ = self.derivative(y, z)
        return 0.5 * slope**2, slope, namespace(slope).ones_like(slope)

    def curvature(self, y: ArrayLike, z: ArrayLike) -> Array:
        xp, y, z = unify(y, z)
        return xp.ones_like(z)

    def conjugate(self, y: ArrayLike, g: ArrayLike) -> Array:
        y, g = floats(y, g)
        return g * (0.5 * g + y)

    def derivative_range(self, y: ArrayLike) -> tuple[Array, Array]:
        xp, y = unify(y)
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
    piecewise: ClassVar[bool] = True
    smoothness: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", require_positive("Huber", "gamma", self.gamma))

    def value(self, y: ArrayLike, z: ArrayLike) -> Array:
        xp, y, z = unify(y, z)
        size = xp.abs(z - y)
        inner = xp.minimum(size, self.gamma)
        return inner * (size - 0.5 * inner)

    def derivative(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        xp, y, z = unify(y, z)
        slope = xp.clip(z - y, -self.gamma, self.gamma)
        return slope, slope

    def curvature(self, y: ArrayLike, z: ArrayLike) -> Array:
        xp, y, z = unify(y, z)
        return where_true(xp, xp.abs(z - y) <= self.gamma, 1.0)

    def piece_depth(self, y: ArrayLike, z: ArrayLike) -> Array:
        y, z = floats(y, z)
        return self.gamma - namespace(z).abs(z - y)

    def conjugate(self, y: ArrayLike, g: ArrayLike) -> Array:
        xp, y, g = unify(y, g)
        return xp.where(xp.abs(g) <= self.gamma, g * (0.5 * g + y), np.inf)

    def derivative_range(self, y: ArrayLike) -> tuple[Array, Array]:
        xp, y = unify(y)
        return xp.full_like(y, -self.gamma), xp.full_like(y, self.gamma)

    def fenchel_young(self, y: ArrayLike, z: ArrayLike, g: ArrayLike) -> Array:
        xp, y, z, g = unify(y, z, g)
        residual = z - y
        # Reflect to residual >= 0. Beyond gamma the value factors into two non-negative terms.
        size, slope = xp.abs(residual), xp.where(residual < 0, -g, g)
        inside = 0.5 * (size - slope) ** 2
        outside = (self.gamma - slope) * (size - 0.5 * (self.gamma + slope))
        value = xp.where(size <= self.gamma, inside, outside)
        return xp.where(xp.abs(g) <= self.gamma, value, np.inf)
