"""What a loss is: a convex function of one score, with everything duality needs to know about it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, Literal, TypeVar, cast, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from glru.linalg import FEW, Array, floats, get_arrays, namespace

CHUNK_ENTRIES = 1 << 13
"""Entries of long arrays that are evaluated at a time."""

Method = TypeVar("Method", bound=Callable[..., Any])
Task = Literal["classification", "regression"]
Link = Literal["identity", "log", "logit"]


class Loss(ABC):
    r"""A convex loss :math:`\ell(y, z)` of a target ``y`` and a score ``z``.

    A loss is pointwise: it knows nothing of data matrices, weights or the number of rows. All
    methods broadcast over arrays and return float64, on the device of their arguments.

    Attributes
    ----------
    task : {"classification", "regression"}
        Whether targets are labels -1/+1 or real numbers.
    smoothness : float
        The smallest ``mu`` such that the derivative is ``mu``-Lipschitz; ``inf`` if there is none. Without one there is no dual
        ball, and what rounding does to slopes is bounded by curvatures (:meth:`slope_errors`).
    self_concordance : float or None
        The smallest ``M`` with ``|l'''| <= M l''``; None where no such constant exists.
    fourth_constant : float or None
        A constant ``F`` with ``|l^(4)| <= F l''``, of a loss that knows its third derivative; None otherwise.
    score_noise : float
        Slopes and curvatures are evaluated as if scores were off by this, in addition to a few units of themselves.
    probabilities : bool
        Whether scores are log-odds, so that there are probabilities, a log-loss and a Brier score.
    link : {"identity", "log", "logit"}
        What the score of a regression is of the mean that is predicted: the mean itself, its logarithm, or its log-odds.
    several : bool
        Whether a row has one score per class, along the last axis; targets are then places of classes.
    piecewise : bool
        Whether the curvature is :attr:`smoothness` on one interval of scores and 0 elsewhere; :meth:`piece_depth` tells where.

    Examples
    --------
    >>> import glru
    >>> isinstance(glru.Logistic(), glru.losses.Loss)
    True
    """

    task: ClassVar[Task]
    probabilities: ClassVar[bool] = False
    several: ClassVar[bool] = False
    piecewise: ClassVar[bool] = False

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """Lipschitz constant of the derivative, ``inf`` if there is none."""

    @property
    def link(self) -> Link:
        """What the score of a regression is of the mean that is predicted."""
        return "identity"

    @property
    def self_concordance(self) -> float | None:
        """The smallest ``M`` with ``|l'''| <= M l''``; None where no such constant exists."""
        return None

    @property
    def fourth_constant(self) -> float | None:
        """A constant ``F`` with ``|l^(4)| <= F l''``; None where the third derivative is not known."""
        return None

    @property
    def score_noise(self) -> float:
        """What evaluation does to slopes and curvatures, as an error of the score."""
        return 0.0

    def check_targets(self, y: Array) -> None:
        """Refuse finite targets that the loss is not made for."""
        return

    def target_size(self, y: Array) -> Array:
        """The size of the numbers that enter with the targets, for rounding errors."""
        return namespace(y).abs(y)

    def noise_of(self, y: Array) -> float:
        """The largest :attr:`score_noise` of some targets."""
        return self.score_noise

    def slope_errors(self, y: ArrayLike, z: ArrayLike, errors: Array) -> Array:
        """How far slopes may be off at scores that are off by at most ``errors``.

        At most the smoothness times the error; without smoothness the curvature at the score, which grows by at most
        ``e^(M t)`` on a way of length ``t``, times the error.
        """
        if np.isfinite(self.smoothness) or self.self_concordance is None:
            return self.smoothness * errors
        return self.curvature(y, z) * errors * (np.exp(self.self_concordance * errors) * (1.0 + FEW))

    @abstractmethod
    def value(self, y: ArrayLike, z: ArrayLike) -> Array:
        """The loss itself."""

    @abstractmethod
    def derivative(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        """Lower and upper end of the subdifferential with respect to ``z``."""

    @abstractmethod
    def curvature(self, y: ArrayLike, z: ArrayLike) -> Array:
        """Second derivative with respect to ``z``; at a kink, one of the two one-sided values."""

    def piece_depth(self, y: ArrayLike, z: ArrayLike) -> Array:
        """How far a score is inside the curved piece of a :attr:`piecewise` loss; negative outside, by as much as to the nearest kink."""
        raise NotImplementedError

    def third_derivative(self, y: ArrayLike, z: ArrayLike) -> Array:
        """Third derivative with respect to ``z``, up to a few units of the curvature, where :attr:`fourth_constant` is a number."""
        raise NotImplementedError

    @abstractmethod
    def conjugate(self, y: ArrayLike, g: ArrayLike) -> Array:
        """Convex conjugate ``sup_z g z - l(y, z)``; ``+inf`` off its domain, exact at the edges."""

    @abstractmethod
    def derivative_range(self, y: ArrayLike) -> tuple[Array, Array]:
        """Infimum and supremum of the derivative over all scores: the domain of the conjugate; what is rounded is rounded inward."""

    def outer_derivative_range(self, y: ArrayLike) -> tuple[Array, Array]:
        """:meth:`derivative_range`, rounded outward: an interval that holds every slope."""
        least, most = self.derivative_range(y)
        if self.link == "logit":
            # The slopes of a share y end at 1 - y, which is rounded where 1 minus it is not y again.
            most = np.where(1.0 - most == -least, most, np.nextafter(most, np.inf))
        return least, most

    @abstractmethod
    def fenchel_young(self, y: ArrayLike, z: ArrayLike, g: ArrayLike) -> Array:
        """``l(y, z) + l*(y, g) - g z``, evaluated without subtracting large numbers.

        Non-negative; zero iff ``g`` is a subgradient at ``z``; ``+inf`` off the conjugate's domain.
        """

    def fenchel_young_slope(self, y: ArrayLike, z: ArrayLike, g: ArrayLike) -> tuple[Array, Array]:
        """The Fenchel-Young value and ``|l'(z) - g|``, the size of its derivative in the score, for smooth losses.

        The size errs by a few units of ``1 + |g|``.
        """
        (slope,) = floats(g)
        return self.fenchel_young(y, z, g), namespace(slope).abs(self.gradient(y, z) - slope)

    def gradient(self, y: ArrayLike, z: ArrayLike) -> Array:
        """One subgradient: the middle of the subdifferential."""
        lower, upper = self.derivative(y, z)
        return lower if lower is upper else 0.5 * (lower + upper)

    def expand(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array, Array]:
        """Value, gradient and curvature together, for the cost of the most expensive of them."""
        return self.value(y, z), self.gradient(y, z), self.curvature(y, z)

    def expand_slope(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array]:
        """Gradient and curvature together: :meth:`expand` without the value."""
        return self.expand(y, z)[1:]

    def sum_constants(self, weights: Array, y: Array) -> float:
        """What the sum in :meth:`expand_sum` has whatever the scores are."""
        return 0.0

    def expand_sum(self, weights: Array, y: Array, z: Array, constant: float) -> tuple[float, float, Array, Array]:
        """The weighted sum of the values, the size of what it is made of, gradient and curvature; ``constant``: :meth:`sum_constants`."""
        values, slopes, curvatures = self.expand(y, z)
        total = float(weights @ values)
        return total, total, slopes, curvatures

    def majorant_curvature(self, z: ArrayLike) -> Array:
        """Curvature of a quadratic that touches the loss at ``z`` and lies above it everywhere; for smooth losses."""
        (z,) = floats(z)
        return namespace(z).full_like(z, self.smoothness)

    def project(self, y: ArrayLike, g: ArrayLike) -> Array:
        """The nearest point to ``g`` in the domain of the conjugate."""
        (g,) = floats(g)
        there = get_arrays(g)
        lower, upper = self.derivative_range(y)
        return there.xp.clip(g, there.put(lower), there.put(upper))


def in_chunks(method: Method) -> Method:
    """Evaluate long arrays of one shape some entries at a time: the dozen arrays on the way stay in the cache, and their memory is used again."""

    @wraps(method)
    def evaluate(self: Any, *arrays: Any) -> Any:
        first = arrays[-1]
        whole = type(first) is not np.ndarray or first.size <= CHUNK_ENTRIES
        if whole or not all(np.ndim(a) == first.ndim and len(a) == len(first) for a in arrays):
            return method(self, *arrays)
        height = 1 + CHUNK_ENTRIES * len(first) // first.size
        made: Any = None
        for start in range(0, len(first), height):
            part = slice(start, start + height)
            found = method(self, *(array[part] for array in arrays))
            several = isinstance(found, tuple)
            pieces = found if several else (found,)
            made = [np.empty((len(first), *piece.shape[1:])) for piece in pieces] if made is None else made
            for whole_array, piece in zip(made, pieces, strict=True):
                whole_array[part] = piece
        return tuple(made) if several else made[0]

    return cast(Method, evaluate)


def where_true(xp: Any, condition: Any, value: float) -> Array:
    """``value`` where a condition holds, else 0."""
    return np.where(condition, value, 0.0) if xp is np else value * xp.astype(condition, xp.float64)


def require_positive(owner: str, name: str, value: float) -> float:
    """A finite number above zero, or an error that says so."""
    number = float(value)
    if not (0.0 < number < np.inf):
        raise ValueError(f"{name} of {owner} must be a finite number above 0; got {value!r}.")
    return number


TARGETS = np.dtype([("y", np.float64), ("offset", np.float64)])
"""Targets with their offsets: what is done to rows is done to both, and arithmetic on them is an error."""


def _inherited(name: str) -> Any:
    """A property that is the loss's own."""
    return property(lambda self: getattr(self.loss, name))


def _shifted(name: str) -> Any:
    """A method that is the loss's own at the score plus the offset."""
    return lambda self, y, z, *rest: getattr(self.loss, name)(y["y"], z + y["offset"], *rest)


@final
@dataclass(frozen=True)
class WithOffset(Loss):
    r"""A loss at :math:`z + o`, ``o`` the offset that comes with the target: everything else sees scores without it.

    * conjugate: that of the loss less :math:`g o`; derivatives, domain and constants are those of the loss
    """

    task: ClassVar[Task] = "regression"
    loss: Loss  # the loss of the shifted score

    link, smoothness, self_concordance = _inherited("link"), _inherited("smoothness"), _inherited("self_concordance")
    fourth_constant, score_noise = _inherited("fourth_constant"), _inherited("score_noise")
    value, derivative, curvature = _shifted("value"), _shifted("derivative"), _shifted("curvature")
    expand_slope = _shifted("expand_slope")
    third_derivative, expand, fenchel_young = (
        _shifted("third_derivative"),
        _shifted("expand"),
        _shifted("fenchel_young"),
    )

    def __repr__(self) -> str:
        return repr(self.loss)

    def check_targets(self, y: Array) -> None:
        self.loss.check_targets(y)

    def sum_constants(self, weights: Array, y: Any) -> float:
        return self.loss.sum_constants(weights, y["y"])

    def expand_sum(self, weights: Array, y: Any, z: Array, constant: float) -> tuple[float, float, Array, Array]:
        return self.loss.expand_sum(weights, y["y"], z + y["offset"], constant)

    def noise_of(self, y: Any) -> float:
        # The sum of score and offset is rounded; the score's share of that is among its own errors.
        return self.loss.score_noise + FEW * float(np.abs(y["offset"]).max(initial=0.0))

    def target_size(self, y: Any) -> Array:
        size: Array = self.loss.target_size(y["y"]) + np.abs(y["offset"])
        return size

    def conjugate(self, y: Any, g: ArrayLike) -> Array:
        return self.loss.conjugate(y["y"], g) - g * y["offset"]

    def derivative_range(self, y: Any) -> tuple[Array, Array]:
        return self.loss.derivative_range(y["y"])


def join_targets(y: Array, offset: Array) -> NDArray[Any]:
    """Targets and offsets as one array."""
    joined = np.empty(y.shape, dtype=TARGETS)
    joined["y"], joined["offset"] = y, offset
    return joined
