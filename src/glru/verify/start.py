"""A float64 model from which the retraining starts: it need not be good, since what follows is checked."""

from typing import final

import numpy as np
from numpy.typing import NDArray

from glru.losses import Binomial, Gamma, Hinge, Huber, Logistic, NegativeBinomial, SmoothedHinge, SquaredHinge, Tweedie
from glru.verify.precise import Precise

Floats = NDArray[np.float64]

WIDTHS = tuple(10.0**-k for k in range(-3, 9))
"""How far kinks are rounded off, coarse to fine."""


@final
class Start:
    """A damped Newton method in float64 on a problem whose kinks are rounded off, more and more finely."""

    def __init__(self, exact: Precise) -> None:
        self.exact = exact
        self.X, self.y, self.offset = (part.astype(np.float64) for part in (exact.X, exact.y, exact.offset))
        if exact.intercept:
            self.X = np.column_stack([self.X, np.ones(len(self.y))])
        pad = (0, int(exact.intercept))
        self.s, self.lam, self.kappa = (
            exact.weights.astype(np.float64),
            *(np.pad(a.astype(np.float64), pad) for a in (exact.lam, exact.kappa)),
        )

    def find(self) -> tuple[Floats | None, float, Floats]:
        """Coefficients, intercept and slopes ``-y g`` of the rows."""
        w = np.zeros(self.X.shape[1])
        if self.exact.loss.link == "log" and self.exact.intercept and self.s @ self.y > 0.0:
            w[-1] = np.log(self.s @ self.y / (self.s @ np.exp(self.offset)))
        for width in WIDTHS:
            for _ in range(100):
                moved = self._step(w, width)
                if moved is None:
                    break
                w = moved
        if not np.all(np.isfinite(w)):
            return None, 0.0, self.y
        slopes = -self.y * self._derivatives(self.X @ w, WIDTHS[-1])[0]
        return (w[:-1], float(w[-1]), slopes) if self.exact.intercept else (w, 0.0, slopes)

    def _gradient(self, w: Floats, width: float) -> tuple[Floats, Floats, Floats]:
        g, h = self._derivatives(self.X @ w, width)
        bent = np.abs(w) < width
        kink = self.kappa * np.where(bent, w / width, np.sign(w))
        return self.X.T @ (self.s * g) + self.lam * w + kink, h, self.kappa * bent / width

    def _step(self, w: Floats, width: float) -> Floats | None:
        gradient, h, curvature = self._gradient(w, width)
        hessian = self.X.T @ ((self.s * h)[:, None] * self.X) + np.diag(self.lam + curvature)
        # Where the loss is flat the largest curvature it may have sets the scale, so that no step is endless.
        size = np.sqrt(np.diag(hessian) + 1e-3 * (self.s @ self.X**2)) + 1e-30
        scaled = hessian / size[:, None] / size
        if not np.all(np.isfinite(scaled)):
            return None
        damping = 1e-14 + 1e-3 * min(1.0, float(np.abs(gradient / size).max()))
        move = -np.linalg.lstsq(scaled + damping * np.eye(size.size), gradient / size, rcond=None)[0] / size
        first, length = float(gradient @ move), 1.0
        if not first < 0.0 or not np.all(np.isfinite(move)):
            return None
        for _ in range(50):
            if self._gradient(w + length * move, width)[0] @ move <= 0.5 * abs(first):
                break
            length *= 0.5
        new = w + length * move
        return None if np.all(np.abs(new - w) <= 1e-13 * np.abs(w)) else new

    def _derivatives(self, z: Floats, width: float) -> tuple[Floats, Floats]:
        loss, short = self.exact.loss, 1.0 - self.y * z
        if isinstance(loss, Hinge | SmoothedHinge):
            edge = width if isinstance(loss, Hinge) else max(loss.gamma, width)
            bent = np.where((short > 0.0) & (short < edge), 1.0 / edge, 0.0)
            return -self.y * np.clip(short / edge, 0.0, 1.0), bent
        if isinstance(loss, SquaredHinge):
            return -2.0 * self.y * np.maximum(short, 0.0), np.where(short > 0.0, 2.0, 0.0)
        if isinstance(loss, Logistic):
            tail = np.exp(-np.abs(z))
            miss = np.where(self.y * z >= 0.0, tail, 1.0) / (1.0 + tail)
            return -self.y * miss, tail / (1.0 + tail) ** 2
        if isinstance(loss, Binomial):
            z = z + self.offset
            tail = np.exp(-np.abs(z))
            return (np.where(z >= 0.0, 1.0, tail) / (1.0 + tail)) - self.y, tail / (1.0 + tail) ** 2
        if loss.link == "log":
            return self._log_link(z + self.offset)
        edge = max(loss.gamma, width) if isinstance(loss, Huber) else np.inf
        return np.clip(z - self.y, -edge, edge), np.where(np.abs(z - self.y) <= edge, 1.0, 0.0)

    def _log_link(self, z: Floats) -> tuple[Floats, Floats]:
        """Slopes and curvatures of a loss of the mean ``e^z``."""
        loss, y = self.exact.loss, self.y
        if isinstance(loss, NegativeBinomial):
            p = 1.0 / (1.0 + loss.theta * np.exp(-z))
            return (y + loss.theta) * p - y, (y + loss.theta) * p * (1.0 - p)
        power = loss.power if isinstance(loss, Tweedie) else 2.0 if isinstance(loss, Gamma) else 1.0
        up, down = np.exp((2.0 - power) * z), y * np.exp((1.0 - power) * z)
        return up - down, (2.0 - power) * up + (power - 1.0) * down
