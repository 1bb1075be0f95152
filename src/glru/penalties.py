r"""Separable penalties, :math:`\sum_j \rho_j(w_j)` with :math:`\rho_j(t) = \tfrac{\lambda_j}{2} t^2 + \kappa_j |t|`.

L2, elastic net and L1 are this one function with other strengths, so every formula stands here once.
A strength is a number, or an array with one entry per column; a column with both strengths zero is
unpenalised.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self, final

import numpy as np
from numpy.typing import ArrayLike

from glru._options import suggest_options
from glru.linalg import Array

Strength = float | Sequence[float] | Array


class Penalty(ABC):
    r"""A separable convex penalty :math:`\rho_j(t) = \tfrac{\lambda_j}{2} t^2 + \kappa_j |t|`.

    * conjugate: :math:`([|v| - \kappa]_+)^2 / (2 \lambda)`; for :math:`\lambda = 0`, 0 on
      :math:`|v| \le \kappa` and :math:`+\infty` elsewhere
    * strong convexity :math:`\lambda_j`

    All methods take one value per column (the last axis) and broadcast over the leading axes.

    Examples
    --------
    >>> import glru
    >>> isinstance(glru.L2(0.1), glru.penalties.Penalty)
    True
    """

    @property
    @abstractmethod
    def quadratic(self) -> Array:
        """The strengths ``lambda_j``: a scalar array or one entry per column."""

    @property
    @abstractmethod
    def absolute(self) -> Array:
        """The strengths ``kappa_j``: a scalar array or one entry per column."""

    def select(self, columns: ArrayLike) -> Self:
        """The penalty restricted to some columns, in the given order."""
        chosen = np.asarray(columns)
        return self._map(lambda name, strength: strength[chosen] if strength.ndim else float(strength))

    def extend(self, n_columns: int, other: "Penalty", n_other: int) -> Self:
        """The penalty on ``n_columns`` columns followed by another of the same kind on ``n_other`` more."""

        def join(name: str, own: Array) -> float | Array:
            more = np.asarray(getattr(other, name))
            if own.ndim == more.ndim == 0 and own == more:
                return float(own)
            return np.append(np.broadcast_to(own, (n_columns,)), np.broadcast_to(more, (n_other,)))

        return self._map(join)

    def scale(self, factor: float) -> Self:
        """The penalty multiplied by a positive number."""
        return self._map(lambda name, strength: strength * factor if strength.ndim else float(strength) * factor)

    def _map(self, work: Callable[[str, Array], float | Array]) -> Self:
        """The penalty with a function applied to each of its parameters, all of which are numbers or have one entry per column."""
        return replace(self, **{f.name: work(f.name, np.asarray(getattr(self, f.name))) for f in fields(self)})  # type: ignore[type-var, arg-type]

    @property
    def linear(self) -> Array:
        """Additional slopes; 0 except for :class:`Tilted`."""
        return np.asarray(0.0)

    @property
    def n_columns(self) -> int | None:
        """How many columns the strengths were given for; None if they fit any number."""
        sizes = [a.size for a in (self.quadratic, self.absolute) if a.ndim]
        return sizes[0] if sizes else None

    @property
    def strong_convexity(self) -> float:
        """The largest ``lam`` for which every column's penalty is ``lam``-strongly convex."""
        return float(self.quadratic.min(initial=np.inf))

    @property
    def smooth(self) -> bool:
        """Whether the penalty is differentiable everywhere (no absolute value in it)."""
        return not self.absolute.any()

    def value(self, w: ArrayLike) -> Array:
        """``rho_j(w_j)`` for every column."""
        w = np.asarray(w, dtype=np.float64)
        squares = 0.5 * self.quadratic * w**2
        return squares if self.smooth else squares + self.absolute * np.abs(w)

    def conjugate(self, v: ArrayLike) -> Array:
        """``rho_j*(v_j)`` for every column; ``+inf`` off the domain."""
        lam, excess = self._excess(v)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = 0.5 * ((excess / lam) * excess)
        return np.where(excess == 0.0, 0.0, value)

    def conjugate_derivative(self, v: ArrayLike) -> tuple[Array, Array]:
        """Lower and upper end of the subdifferential of ``rho_j*``, infinite as in Remark 1 of the paper."""
        v = np.asarray(v, dtype=np.float64)
        lam, excess = self._excess(v)
        with np.errstate(divide="ignore", invalid="ignore"):
            point = np.where(excess > 0.0, np.sign(v) * (excess / lam), 0.0)
        edge = (lam == 0.0) & (np.abs(v) == self.absolute)
        lower = np.where(edge & (v == -self.absolute), -np.inf, point)
        upper = np.where(edge & (v == self.absolute), np.inf, point)
        return lower, upper

    def derivative_range(self) -> tuple[Array, Array]:
        """Infimum and supremum of the derivative of ``rho_j``: the domain of the conjugate."""
        limit = np.where(self.quadratic > 0.0, np.inf, self.absolute)
        return -limit, limit

    def prox(self, w: ArrayLike, step: ArrayLike) -> Array:
        """The minimiser over ``t`` of ``(t - w_j)^2 / 2 + step_j rho_j(t)``."""
        w, step = np.asarray(w, dtype=np.float64), np.asarray(step, dtype=np.float64)
        shrunk = np.sign(w) * np.maximum(np.abs(w) - step * self.absolute, 0.0)
        return shrunk / (1.0 + step * self.quadratic)

    def fenchel_young(self, w: ArrayLike, v: ArrayLike) -> Array:
        """``rho_j(w_j) + rho_j*(v_j) - w_j v_j`` as a sum of non-negative terms; ``+inf`` off the domain."""
        w, v = np.asarray(w, dtype=np.float64), np.asarray(v, dtype=np.float64)
        if self.smooth:
            with np.errstate(divide="ignore", invalid="ignore"):
                square = 0.5 * self.quadratic * (w - v / self.quadratic) ** 2
            return np.where(self.quadratic > 0.0, square, np.where(v == 0.0, 0.0, np.inf))
        lam, excess = self._excess(v)
        with np.errstate(divide="ignore", invalid="ignore"):
            target = np.where(excess > 0.0, np.sign(v) * (excess / lam), 0.0)
            square = np.where((lam == 0.0) & (excess > 0.0), np.inf, 0.5 * lam * (w - target) ** 2)
        # kappa |w| - clip(v) w >= 0, because clip(v) stays within +-kappa.
        return square + np.abs(w) * (self.absolute - np.clip(v, -self.absolute, self.absolute) * np.sign(w))

    def _excess(self, v: ArrayLike) -> tuple[Array, Array]:
        v = np.asarray(v, dtype=np.float64)
        lam, excess = np.broadcast_arrays(self.quadratic, np.maximum(np.abs(v) - self.absolute, 0.0))
        return lam, excess


@final
@suggest_options
@dataclass(frozen=True, eq=False)
class L2(Penalty):
    r"""Ridge penalty, :math:`\rho_j(t) = \tfrac{\lambda_j}{2} t^2`.

    * conjugate: :math:`v^2 / (2 \lambda)`, with derivative :math:`v / \lambda`
    * strong convexity :math:`\lambda`

    Parameters
    ----------
    lam : float or array of shape (n_columns,)
        Strength, at least 0. ``L2(0.0)`` is no penalty at all; in an array, an entry of 0 leaves that column unpenalised.

    Examples
    --------
    >>> import glru
    >>> glru.L2(2.0).value([1.0, 3.0])
    array([1., 9.])
    """

    lam: Strength

    def __post_init__(self) -> None:
        object.__setattr__(self, "lam", _strength("L2", "lam", self.lam, zero=True))

    @property
    def quadratic(self) -> Array:
        return np.asarray(self.lam)

    @property
    def absolute(self) -> Array:
        return np.asarray(0.0)


@final
@suggest_options
@dataclass(frozen=True, eq=False)
class ElasticNet(Penalty):
    r"""Elastic net, :math:`\rho_j(t) = \tfrac{\lambda_j}{2} t^2 + \kappa_j |t|`.

    * conjugate: :math:`([|v| - \kappa]_+)^2 / (2 \lambda)`
    * strong convexity :math:`\lambda`

    Parameters
    ----------
    lam : float or array of shape (n_columns,)
        Strength of the squares, above 0. In an array, entries of 0 are allowed.
    kappa : float or array of shape (n_columns,)
        Strength of the absolute values, at least 0.

    Examples
    --------
    >>> import glru
    >>> glru.ElasticNet(2.0, 1.0).conjugate([0.5, 3.0])
    array([0., 1.])
    """

    lam: Strength
    kappa: Strength

    def __post_init__(self) -> None:
        object.__setattr__(self, "lam", _strength("ElasticNet", "lam", self.lam))
        object.__setattr__(self, "kappa", _strength("ElasticNet", "kappa", self.kappa, zero=True))
        sizes = {a.size for a in (self.quadratic, self.absolute) if a.ndim}
        if len(sizes) > 1:
            raise ValueError(
                "lam and kappa of ElasticNet must have one entry per column; "
                f"got {self.quadratic.size} and {self.absolute.size} entries."
            )

    @property
    def quadratic(self) -> Array:
        return np.asarray(self.lam)

    @property
    def absolute(self) -> Array:
        return np.asarray(self.kappa)


@final
@suggest_options
@dataclass(frozen=True, eq=False)
class L1(Penalty):
    r"""Lasso penalty, :math:`\rho_j(t) = \kappa_j |t|`.

    * conjugate: 0 on :math:`|v| \le \kappa`, :math:`+\infty` elsewhere
    * not strongly convex

    Parameters
    ----------
    kappa : float or array of shape (n_columns,)
        Strength, above 0. In an array, an entry of 0 leaves that column unpenalised.

    Examples
    --------
    >>> import glru
    >>> lower, upper = glru.L1(1.0).conjugate_derivative([0.5, 1.0])
    >>> upper
    array([ 0., inf])
    """

    kappa: Strength

    def __post_init__(self) -> None:
        object.__setattr__(self, "kappa", _strength("L1", "kappa", self.kappa))

    @property
    def quadratic(self) -> Array:
        return np.asarray(0.0)

    @property
    def absolute(self) -> Array:
        return np.asarray(self.kappa)


@final
@dataclass(frozen=True, eq=False)
class Tilted(Penalty):
    r"""An elastic net on one side of zero in each column, :math:`\rho_j(t) = \tfrac{\lambda_j}{2} t^2 + \sigma_j t`.

    Where no coefficient changes its sign, :math:`\sigma_j = \pm \kappa_j` makes it the same function, and a smooth one
    (:mod:`glru.regions.support`). No training asks for it.
    """

    lam: Array
    slopes: Array

    @property
    def quadratic(self) -> Array:
        return self.lam

    @property
    def absolute(self) -> Array:
        return np.asarray(0.0)

    @property
    def linear(self) -> Array:
        return self.slopes

    def value(self, w: ArrayLike) -> Array:
        return super().value(w) + self.slopes * np.asarray(w, dtype=np.float64)


def _strength(owner: str, name: str, value: Strength, zero: bool = False) -> float | Array:
    """A valid strength: a number above 0 (or at least 0 where ``zero``), or a read-only array of numbers >= 0."""
    try:
        numbers = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"{name} of {owner} must be a number, or one number for each column; got {value!r}. Use 1.0."
        ) from None
    if numbers.ndim == 0:
        number = float(numbers)
        if not (0.0 < number < np.inf or (zero and number == 0.0)):
            rule = "at least 0" if zero else "above 0"
            raise ValueError(
                f"{name} of {owner} must be a finite number {rule}; got {value!r}. "
                "Give an array with one entry per column to leave columns unpenalised."
            )
        return number
    if numbers.ndim != 1 or not np.all(np.isfinite(numbers)) or np.any(numbers < 0.0):
        raise ValueError(
            f"{name} of {owner} must hold one finite number >= 0 for each column; got an array of shape "
            f"{numbers.shape} with values from {numbers.min(initial=np.inf)} to {numbers.max(initial=-np.inf)}."
        )
    numbers.setflags(write=False)
    return numbers
