"""A training problem in arbitrary precision: losses and penalties reimplemented from their definitions."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru._extras import require
from glru.losses import (
    Binomial,
    Gamma,
    Hinge,
    Huber,
    Logistic,
    NegativeBinomial,
    Poisson,
    SmoothedHinge,
    Squared,
    SquaredHinge,
    Tweedie,
    WithOffset,
)
from glru.problem import Problem

Objects = NDArray[np.object_]


def make_context(digits: int) -> Any:
    """A separate mpmath context, so that the global precision does not change."""
    arithmetic = require("mpmath", "verify", "glru.verify").MPContext()
    arithmetic.dps = digits
    return arithmetic


def precise(mp: Any, values: Any) -> Objects:
    """Convert float64 numbers exactly."""
    array = np.asarray(values, dtype=np.float64)
    out = np.empty(array.shape, dtype=object)
    out.ravel()[:] = [mp.mpf(float(v)) for v in array.ravel()]
    return out


@final
@dataclass(frozen=True, eq=False)
class Precise:
    """A problem whose columns are scaled by powers of two, which is exact, so that no column outweighs another."""

    mp: Any  # the arithmetic
    # The problem; rows of weight zero are left out.
    X: Objects
    y: Objects
    weights: Objects
    lam: Objects
    kappa: Objects
    scales: Objects  # the powers of two: a coefficient here is the problem's own one divided by its scale
    loss: Any  # for its kind and its parameter
    intercept: bool  # whether there is one
    offset: Objects  # what is added to every row's score before its loss is taken

    def scores(self, w: Objects, b: Any) -> Objects:
        """``X w + b``."""
        used = np.flatnonzero(w != 0)
        return as_objects([self.mp.fdot(row[used], w[used]) + b for row in self.X])

    def correlations(self, slopes: Objects) -> Objects:
        """``X^T (s o g)``."""
        weighted = self.weights * slopes
        used = np.flatnonzero(weighted != 0)
        return as_objects([self.mp.fdot(column[used], weighted[used]) for column in self.X.T])

    def slopes(self, scores: Objects) -> tuple[Objects, Objects]:
        """First and second derivatives of a loss that has them."""
        pairs = [self.slope(y, z) for y, z in zip(self.y, scores + self.offset, strict=True)]
        return as_objects([g for g, _ in pairs]), as_objects([h for _, h in pairs])

    def slope(self, y: Any, z: Any) -> tuple[Any, Any]:
        """First and second derivative of the loss of one row."""
        mp, loss, short = self.mp, self.loss, 1 - y * z
        if isinstance(loss, Squared):
            return z - y, mp.one
        if isinstance(loss, Huber):
            edge = mp.mpf(loss.gamma)
            return (z - y, mp.one) if abs(z - y) <= edge else (edge * mp.sign(z - y), mp.zero)
        if isinstance(loss, Logistic):
            # Both of e^m / (1 + e^m) and 1 / (1 + e^m) are formed: neither loses digits to the other.
            # Beyond 1e6 the tail is below 10^-400000 whatever the score: no digit asked for depends on it.
            tail = mp.exp(-min(abs(z), mp.mpf(10) ** 6))
            small, large = tail / (1 + tail), 1 / (1 + tail)
            return -y * (small if y * z >= 0 else large), small * large
        if isinstance(loss, Binomial):
            tail = mp.exp(-min(abs(z), mp.mpf(10) ** 6))
            # The slope from whichever of p and 1 - p is small: neither loses digits to the other.
            slope = (1 - y - y * tail) if z >= 0 else ((1 - y) * tail - y)
            return slope / (1 + tail), tail / (1 + tail) ** 2
        if isinstance(loss, SquaredHinge):
            return (-2 * y * short, mp.mpf(2)) if short > 0 else (mp.zero, mp.zero)
        if isinstance(loss, SmoothedHinge):
            edge = mp.mpf(loss.gamma)
            if short <= 0:
                return mp.zero, mp.zero
            return (-y * short / edge, 1 / edge) if short <= edge else (-y, mp.zero)
        # Beyond 1e6 an exponential has no digit that is asked for, and none that could be asked for.
        far = mp.mpf(10) ** 6
        mean = mp.exp(max(min(z, far), -far))
        if isinstance(loss, Poisson):
            return mean - y, mean
        if isinstance(loss, Gamma):
            return 1 - y / mean, y / mean
        if isinstance(loss, Tweedie):
            power = mp.mpf(loss.power)
            up, down = mean ** (2 - power), y * mean ** (1 - power)
            return up - down, (2 - power) * up + (power - 1) * down
        if isinstance(loss, NegativeBinomial):
            theta = mp.mpf(loss.theta)
            return theta * (mean - y) / (theta + mean), (y + theta) * theta * mean / (theta + mean) ** 2
        raise TypeError(f"no derivatives are known of {loss!r}.")

    @property
    def has_kink(self) -> bool:
        """Whether the loss itself has a kink."""
        return isinstance(self.loss, Hinge)


def precise_problem(problem: Problem, digits: int) -> Precise:
    """A stored problem in arbitrary precision: every float64 number, weights included, is converted exactly."""
    mp = make_context(digits)
    used = np.flatnonzero(problem.weights > 0.0)
    rows = problem.matrix[used].dense()
    weights = precise(mp, problem.weights[used])
    strengths = (
        np.broadcast_to(a, (problem.n_columns,)) for a in (problem.penalty.quadratic, problem.penalty.absolute)
    )
    lam, kappa = (precise(mp, strength) for strength in strengths)
    y, offset = precise(mp, problem.targets[used]), precise(mp, problem.offset[used])
    loss = problem.loss.loss if isinstance(problem.loss, WithOffset) else problem.loss
    return scale_columns(mp, precise(mp, rows), y, weights, lam, kappa, loss, problem.fit_intercept, offset)


def scale_columns(
    mp: Any,
    X: Objects,
    y: Objects,
    weights: Objects,
    lam: Objects,
    kappa: Objects,
    loss: Any,
    intercept: bool,
    offset: Objects | None = None,
) -> Precise:
    """A problem in the numbers of some arithmetic, with columns scaled by powers of two."""
    total = sum(weights, mp.zero)
    scales = []
    for j in range(len(lam)):
        size = max(mp.sqrt(total) * max(abs(X[:, j]), default=mp.zero), mp.sqrt(lam[j]))
        scales.append(mp.ldexp(1, -int(mp.frexp(size)[1])) if size > 0 else mp.one)
    factors = as_objects(scales)
    shift = np.full(len(y), mp.zero, dtype=object) if offset is None else offset
    strengths = lam * factors * factors, kappa * factors
    return Precise(mp, X * factors, y, weights, *strengths, factors, loss, intercept, shift)


def as_objects(values: list[Any]) -> Objects:
    """Numbers of some arithmetic as an array."""
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out
