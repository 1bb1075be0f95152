"""Tables of rows, classes and models, changed in place by NumPy: small data need not wait until compiled code is loaded."""

from importlib import import_module
from typing import Any

import numpy as np

from glru.linalg.arrays import SMALL, Array


def table_loops(n_entries: int) -> Any:
    """The module of :func:`add_ranges` and :func:`class_slopes` for tables of so many entries together: this one, or that of compiled loops."""
    return import_module(__name__ if n_entries < SMALL else "glru.linalg.kernels")


def add_ranges(moves: Array, weights: Array, ranges: Array) -> None:
    """Raise ``ranges`` to the largest range over the classes of a row with a weight."""
    low, high = moves[:, 0], moves[:, 0]
    for a in range(1, moves.shape[1]):
        low, high = np.minimum(low, moves[:, a]), np.maximum(high, moves[:, a])
    with np.errstate(invalid="ignore"):
        np.maximum(ranges, (high - low)[weights > 0.0].max(axis=0, initial=0.0), out=ranges)


def class_slopes(factors: Array, likely: Array, y: Array, weights: Array, left_out: Array, squares: Array) -> None:
    """Turn factors of unnormalised probabilities into weighted slopes ``s (p - e_y)``, zeros for a row that a model leaves out.

    A row's own slope is minus the sum of the others; the squares of these sums, weighted, are added to ``squares``.
    """
    each = np.arange(len(y))
    with np.errstate(all="ignore"):  # where every factor underflows, slopes are not numbers
        factors *= likely[:, :, None]
        own = factors[each, y]
        factors[each, y] = 0.0
        others = factors.sum(axis=1)
        own += others
        others /= own
        counted = np.where(each[:, None] == left_out, 0.0, weights[:, None])
        factors *= (counted / own)[:, None]
        factors[each, y] = -counted * others
        squares += (counted * np.square(others)).sum(axis=0)
