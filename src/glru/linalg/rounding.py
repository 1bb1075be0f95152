"""Float64 facts that every rounding bound is made of."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from glru.linalg.arrays import Array, namespace

UNIT = float(np.finfo(np.float64).eps) / 2
"""Unit roundoff of float64."""

FEW = 16.0 * UNIT
"""Relative error of a short chain of operations."""

TINY = 1e-150
"""Added to norms: squares of numbers below it underflow, and the root of all that is lost so is far smaller."""

SPACING, SMALLEST = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).smallest_subnormal)


def gamma(k: int) -> float:
    """Relative error of a sum of ``k`` rounded products in any order: ``k u / (1 - k u)``."""
    return k * UNIT / (1.0 - k * UNIT)


def gammas(counts: NDArray[np.integer[Any]]) -> Array:
    """:func:`gamma` of every entry of an array."""
    units = counts * UNIT
    return units / (1.0 - units)


def outward(array: Any, end: float) -> Any:
    """At least one float64 number further in the direction of an end, entry by entry."""
    xp = namespace(array)
    # Neighbours are at most SPACING times a number apart, or the smallest number where that underflows.
    step = xp.abs(array)
    step *= SPACING
    step += SMALLEST
    return array + step if end > 0.0 else array - step


def length(array: Any, axis: int | None = None) -> Any:
    """The Euclidean norm, of an array or along an axis, of numbers whose squares may underflow or overflow; on the host."""
    largest = np.abs(array).max(axis=axis, keepdims=True, initial=0.0)
    unit = np.where((largest > 0.0) & np.isfinite(largest), largest, 1.0)
    found = np.linalg.norm(array / unit, axis=axis) * (unit.item() if axis is None else unit.squeeze(axis))
    return float(found) if axis is None else found
