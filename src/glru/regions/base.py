"""What a region is: a set that holds the retrained optimum, asked for bounds of scores and coefficients."""

from abc import ABC, abstractmethod

import numpy as np

from glru.bounds import Bounds
from glru.linalg import Array, Matrix, gamma


class Region(ABC):
    """A set of models that provably holds every optimum of a problem."""

    @abstractmethod
    def score_bounds(self, X: Matrix) -> Bounds:
        """Lower and upper bounds of ``X w* + b*``, possibly infinite."""

    @abstractmethod
    def coef_bounds(self) -> Bounds:
        """Lower and upper bounds of every coefficient, possibly infinite."""

    @abstractmethod
    def intercept_bounds(self) -> tuple[float, float]:
        """Lower and upper bound of the intercept."""


def spread(radius: float, norms: Array) -> Array:
    """``radius * norms``, where either may be infinite: then nothing is proven."""
    known = np.isfinite(norms) & np.isfinite(radius)
    return np.where(known, (radius if np.isfinite(radius) else 0.0) * np.where(known, norms, 0.0), np.inf)


def centers(X: Matrix, coef: Array, intercept: float) -> tuple[Array, Array]:
    """Scores of a model and the rounding error of each."""
    size = X.absolute_product(np.abs(coef)) + abs(intercept)
    return X @ coef + intercept, X.depths(4) * size * (1.0 + 2.0 * gamma(coef.size + 8))
