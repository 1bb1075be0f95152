"""What a metric is: norms in the inverse of a Hessian, rounded up."""

from abc import ABC, abstractmethod

from glru.linalg import Array, Matrix


class Metric(ABC):
    """Norms in the inverse of the Hessian of a problem at some scores; everything is rounded up."""

    eta: float
    """The Hessian is at least ``1 - eta`` times the metric used; ``inf`` where nothing is known."""

    @abstractmethod
    def norms(self, X: Matrix) -> Array:
        """Norms of rows, with a 1 for the intercept."""

    @abstractmethod
    def gradient_norm(self, gradient: Array, slack: Array) -> float:
        """Norm of a gradient whose entries (the intercept's last) are known up to ``slack``."""

    @abstractmethod
    def axis_norms(self) -> Array:
        """Norms of the unit vectors (the intercept's last)."""
