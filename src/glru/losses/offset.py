"""A loss of scores to which a fixed offset is added, row by row."""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from glru.linalg import FEW, Array
from glru.losses.base import Link, Loss, Task

TARGETS = np.dtype([("y", np.float64), ("offset", np.float64)])
"""Targets with their offsets: what is done to rows is done to both, and arithmetic on them is an error."""


@final
@dataclass(frozen=True)
class WithOffset(Loss):
    r"""A loss at :math:`z + o`, ``o`` the offset that comes with the target: everything else sees scores without it.

    * conjugate: that of the loss less :math:`g o`; derivatives, domain and constants are those of the loss

    Parameters
    ----------
    loss : Loss
        The loss of the shifted score.
    """

    task: ClassVar[Task] = "regression"
    loss: Loss

    def __repr__(self) -> str:
        return repr(self.loss)

    @property
    def link(self) -> Link:
        return self.loss.link

    @property
    def smoothness(self) -> float:
        return self.loss.smoothness

    @property
    def self_concordance(self) -> float | None:
        return self.loss.self_concordance

    @property
    def fourth_constant(self) -> float | None:
        return self.loss.fourth_constant

    @property
    def score_noise(self) -> float:
        return self.loss.score_noise

    def check_targets(self, y: Array) -> None:
        self.loss.check_targets(y)

    def noise_of(self, y: Any) -> float:
        # The sum of score and offset is rounded; the score's share of that is among its own errors.
        return self.loss.score_noise + FEW * float(np.abs(y["offset"]).max(initial=0.0))

    def target_size(self, y: Any) -> Array:
        size: Array = self.loss.target_size(y["y"]) + np.abs(y["offset"])
        return size

    def value(self, y: Any, z: ArrayLike) -> Array:
        return self.loss.value(y["y"], z + y["offset"])

    def derivative(self, y: Any, z: ArrayLike) -> tuple[Array, Array]:
        return self.loss.derivative(y["y"], z + y["offset"])

    def curvature(self, y: Any, z: ArrayLike) -> Array:
        return self.loss.curvature(y["y"], z + y["offset"])

    def third_derivative(self, y: Any, z: ArrayLike) -> Array:
        return self.loss.third_derivative(y["y"], z + y["offset"])

    def expand(self, y: Any, z: ArrayLike) -> tuple[Array, Array, Array]:
        return self.loss.expand(y["y"], z + y["offset"])

    def conjugate(self, y: Any, g: ArrayLike) -> Array:
        return self.loss.conjugate(y["y"], g) - g * y["offset"]

    def derivative_range(self, y: Any) -> tuple[Array, Array]:
        return self.loss.derivative_range(y["y"])

    def fenchel_young(self, y: Any, z: ArrayLike, g: ArrayLike) -> Array:
        return self.loss.fenchel_young(y["y"], z + y["offset"], g)


def join_targets(y: Array, offset: Array) -> NDArray[Any]:
    """Targets and offsets as one array."""
    joined = np.empty(y.shape, dtype=TARGETS)
    joined["y"], joined["offset"] = y, offset
    return joined
