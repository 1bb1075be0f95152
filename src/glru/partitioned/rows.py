"""A block of rows as workers see it, and as the part of a problem that it is."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru.linalg import Array, Matrix, dense_height
from glru.losses import Loss
from glru.partitioned.sources import fetched, vector
from glru.penalties import Penalty
from glru.problem import Problem, Scaling


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a block: float64 or CSR data, targets as they were given, weights (None: all 1)."""

    X: Matrix
    y: NDArray[Any]
    weight: Array | None
    column_names: tuple[str, ...] | None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    def checksum(self) -> bytes:
        """A check-sum of all numbers and labels, in one sweep over them."""
        found = hashlib.blake2b(digest_size=16)
        for array in (*self.X.parts.values(), self.y, self.weight):
            if array is not None:
                found.update(repr((array.dtype.str, array.shape)).encode())
                found.update(_mixed(array))
        return found.digest()


def _mixed(array: NDArray[Any]) -> bytes:
    """A few bytes that depend on every bit of an array and on its place."""
    from glru.linalg.kernels import mix_words

    if array.dtype.hasobject:
        entries = array.tolist()
        kinds = sorted(kind.__name__ for kind in set(map(type, entries)))
        return repr(kinds).encode() + _mixed(np.array(entries, dtype=np.str_))
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = data.size - data.size % 8
    words = data[:whole].view(np.uint64)
    words = words if words.flags.aligned else words.copy()
    # One type of array for the kernel, whether it may be written to or not.
    words.setflags(write=False)
    return np.array(mix_words(words)).tobytes() + data[whole:].tobytes()


def rows_of(X: Any, y: Any, weight: Any) -> Rows:
    """The rows of a block from its parts."""
    matrix, names = _inputs.converted(fetched(X))
    matrix = matrix.by_row()
    targets = vector(fetched(y), "y")
    weights = None if weight is None else vector(fetched(weight), "sample_weight")
    for name, values in (("y", targets), ("sample_weight", weights)):
        if values is not None and values.shape != (matrix.shape[0],):
            raise ValueError(
                f"{name} must have one entry a row of X; got shape {values.shape} for a block of {matrix.shape[0]} rows."
            )
    if weights is not None:
        weights = _inputs.numeric_vector(weights, "sample_weight")
    return Rows(matrix, targets, weights, names)


@final
@dataclass(frozen=True, eq=False)
class Absent:
    """Rows of the whole problem that are left out: a range of row numbers, or sorted numbers."""

    rows: range | NDArray[np.int64]

    def places(self, start: int, stop: int) -> NDArray[np.int64]:
        """The places of those rows in a block."""
        if isinstance(self.rows, range):
            return np.arange(max(self.rows.start, start), min(self.rows.stop, stop)) - start
        low, high = np.searchsorted(self.rows, [start, stop])
        return self.rows[low:high] - start


@final
@dataclass(frozen=True, eq=False)
class Layout:
    """What every block of a problem has in common.

    Attributes
    ----------
    classes : array of shape (2,) or None
        The labels that -1 and +1 stand for.
    total_weight : float
        The sum of all sample weights.
    absent : Absent or None
        Rows that have weight 0, whatever their own.
    """

    loss: Loss
    penalty: Penalty
    fit_intercept: bool
    scaling: Scaling
    classes: NDArray[Any] | None
    total_weight: float
    absent: Absent | None = None

    def problem(self, rows: Rows, start: int) -> Problem:
        """A block as a part of the problem; ``start``: the number of its first row."""
        if self.classes is None:
            y = np.asarray(rows.y, dtype=np.float64)
        else:
            y = np.where(rows.y == self.classes[1], 1.0, -1.0)
        weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
        if self.absent is not None:
            places = self.absent.places(start, start + rows.n_rows)
            if places.size:
                weight = weight.copy()
                weight[places] = 0.0
        return Problem.of_rows(
            rows.X, y, weight, self.total_weight, self.loss, self.penalty, self.fit_intercept, self.scaling
        )


WEIGHTS_AT_ONCE = 4096
"""Weights are summed so many at a time, and then the sums."""


def total_of(weights: Array) -> float:
    """The sum of weights, each of which passes through few additions."""
    return float(np.add.reduceat(weights, np.arange(0, weights.size, WEIGHTS_AT_ONCE)).sum()) if weights.size else 0.0


def depth_of(n_rows: int, n_columns: int, sparse: bool) -> int:
    """At least the additions that a row's share of any sum over a block passes through, in whatever order."""
    height = n_rows if sparse else min(n_rows, dense_height(n_columns))
    return max(height + n_rows // max(height, 1), WEIGHTS_AT_ONCE + n_rows // WEIGHTS_AT_ONCE) + 2


def chunks(block: Problem, times: int = 1) -> Iterator[tuple[slice, Problem]]:
    """A block in consecutive parts; ``times`` as high where nothing is summed over their rows."""
    height = block.matrix.chunk_height(times)
    for start in range(0, block.n_rows, height):
        part = slice(start, min(start + height, block.n_rows))
        yield part, piece(block, part)


def piece(block: Problem, part: slice) -> Problem:
    """Consecutive rows of a block."""
    if part.stop - part.start == block.n_rows:
        return block
    y, weight = block.y[part], block.sample_weight[part]
    settings = (block.loss, block.penalty, block.fit_intercept, block.scaling)
    return Problem.of_rows(block.matrix[part], y, weight, block.total_weight, *settings)


def at_rows(block: Problem, places: NDArray[np.int64]) -> Problem:
    """Some rows of a block."""
    settings = (block.loss, block.penalty, block.fit_intercept, block.scaling)
    return Problem.of_rows(
        block.matrix[places], block.y[places], block.sample_weight[places], block.total_weight, *settings
    )
