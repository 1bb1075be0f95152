"""A block of rows: data, targets and weights, their checksum, and the rounding of sums over them."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru.linalg import Array, Matrix, dense_height
from glru.rows.sources import fetch, to_vector

Places = slice | NDArray[np.int64]
"""Some rows of a block, by their positions in it."""


@final
@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows.

    Attributes
    ----------
    X : Matrix
        The data.
    y : array
        Targets as they were given.
    weight : array or None
        Sample weights; None where all are 1.
    column_names : tuple of str or None
        The names of the columns.
    number, start : int
        Which block it is, and the number of its first row.
    """

    X: Matrix
    y: NDArray[Any]
    weight: Array | None
    column_names: tuple[str, ...] | None = None
    number: int = 0
    start: int = 0

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.X.shape[0]

    @property
    def weights(self) -> Array:
        """The sample weights."""
        return np.ones(self.n_rows) if self.weight is None else self.weight

    def without(self, places: Places | None) -> "Block":
        """The block in which some rows have weight 0."""
        if places is None:
            return self
        weight = np.array(self.weights)
        weight[places] = 0.0
        return replace(self, weight=weight)

    def checksum(self) -> bytes:
        """A checksum of all numbers and labels, computed in one sweep."""
        found = hashlib.blake2b(digest_size=16)
        for array in (*self.X.parts.values(), self.y, self.weight):
            if array is not None:
                found.update(repr((array.dtype.str, array.shape)).encode())
                found.update(_mix(array))
        return found.digest()


def _mix(array: NDArray[Any]) -> bytes:
    """A few bytes that depend on every bit of an array and its position."""
    from glru.linalg.kernels import mix_words

    if array.dtype.hasobject:
        entries = array.tolist()
        kinds = sorted(kind.__name__ for kind in set(map(type, entries)))
        return repr(kinds).encode() + _mix(np.array(entries, dtype=np.str_))
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = data.size - data.size % 8
    words = data[:whole].view(np.uint64)
    words = words if words.flags.aligned else words.copy()
    # One type of array for the kernel, whether it may be written to or not.
    words.setflags(write=False)
    return np.array(mix_words(words)).tobytes() + data[whole:].tobytes()


def read_block(X: Any, y: Any, weight: Any) -> Block:
    """The block made of parts, each of which is read if it has to be."""
    matrix, names = _inputs.convert_values(fetch(X))
    matrix = matrix.by_row()
    targets = to_vector(fetch(y), "y")
    weights = None if weight is None else to_vector(fetch(weight), "sample_weight")
    for name, values in (("y", targets), ("sample_weight", weights)):
        if values is not None and values.shape != (matrix.shape[0],):
            raise ValueError(
                f"{name} must have one entry per row of X; got shape {values.shape} for a block of {matrix.shape[0]} rows."
            )
    if weights is not None:
        weights = _inputs.as_numeric_vector(weights, "sample_weight")
    return Block(matrix, targets, weights, names)


WEIGHTS_AT_ONCE = 4096
"""Weights are summed in groups of this size; then the sums of the groups are added."""


def sum_weights(weights: Array) -> float:
    """The sum of weights, in an order in which each passes through few additions."""
    return float(np.add.reduceat(weights, np.arange(0, weights.size, WEIGHTS_AT_ONCE)).sum()) if weights.size else 0.0


def summation_depth(n_rows: int, n_columns: int, sparse: bool) -> int:
    """An upper bound of the number of additions that a row's share of a sum over a block passes through, in any order."""
    height = n_rows if sparse else min(n_rows, dense_height(n_columns))
    return max(height + n_rows // max(height, 1), WEIGHTS_AT_ONCE + n_rows // WEIGHTS_AT_ONCE) + 2
