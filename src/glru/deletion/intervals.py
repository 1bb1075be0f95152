"""Arithmetic of intervals, rounded outward: what certified quantities of deletions are made of."""

import numpy as np

from glru.bounds import Bounds, widen
from glru.linalg import FEW, Array


def around(center: Array, half: Array) -> Bounds:
    """``center -/+ half`` with the rounding of both."""
    return widen(center, half * (1.0 + FEW) + FEW * np.abs(center))


def middle(bounds: Bounds) -> Array:
    """The middles; not a number where an end is infinite."""
    lower, upper = bounds
    known = np.isfinite(lower) & np.isfinite(upper)
    with np.errstate(invalid="ignore"):
        return np.where(known, 0.5 * lower + 0.5 * upper, np.nan)


def enlarge(bounds: Bounds, share: float) -> Bounds:
    """Bounds of numbers that may differ by a relative error from those that are bounded; what is not a number proves nothing."""
    with np.errstate(invalid="ignore"):
        lower, upper = bounds[0] - share * np.abs(bounds[0]), bounds[1] + share * np.abs(bounds[1])
    return np.where(np.isnan(lower), -np.inf, lower), np.where(np.isnan(upper), np.inf, upper)


def negate(bounds: Bounds) -> Bounds:
    """Bounds of minus the numbers."""
    return -bounds[1], -bounds[0]


def absolute(bounds: Bounds) -> Bounds:
    """Bounds of the absolute values."""
    lower, upper = bounds
    inside = (lower <= 0.0) & (upper >= 0.0)
    sizes = np.abs(lower), np.abs(upper)
    return np.where(inside, 0.0, np.minimum(*sizes)), np.maximum(*sizes)


def divide(bounds: Bounds, by: Bounds) -> Bounds:
    """Bounds of quotients by positive numbers."""
    (lower, upper), (least, most) = bounds, by
    with np.errstate(all="ignore"):
        below = np.where(lower >= 0.0, lower / most, lower / least)
        above = np.where(upper >= 0.0, upper / least, upper / most)
    return enlarge((np.where(np.isnan(below), -np.inf, below), np.where(np.isnan(above), np.inf, above)), FEW)
