"""A block of rows with its checksum, and the first pass over all blocks: it checks every number and sums what later passes need."""

import hashlib
from dataclasses import dataclass, fields, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru.linalg import Array, Matrix, dense_height
from glru.losses.base import Task
from glru.rows.sources import fetch, make_change_error, to_vector

Places = slice | NDArray[np.int64]
"""Some rows of a block, by their positions in it."""


@final
@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows."""

    X: Matrix
    y: NDArray[Any]  # targets as they were given
    weight: Array | None  # sample weights; None where all are 1
    column_names: tuple[str, ...] | None = None  # the names of the columns
    # Which block it is, and the number of its first row.
    number: int = 0
    start: int = 0

    @property
    def n_rows(self) -> int:
        return self.X.shape[0]

    @property
    def weights(self) -> Array:
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


SAMPLE_BYTES = 64 << 20
"""The largest size, in bytes, of the sample of rows that a training starts from."""

SAMPLE_ROWS = 20_000
"""The number of rows in the sample, or ``ROWS_PER_COLUMN`` per column if that is more."""

ROWS_PER_COLUMN = 50

MAX_CLASSES = 100
"""At most this many labels of a block are counted; more classes are refused anyway."""

MAX_COLUMNS = 3000
"""A Hessian is not summed over blocks in more dimensions than this."""


@final
@dataclass(frozen=True, eq=False)
class Sample:
    """Some rows as they are: data, targets and sample weights, block by block."""

    parts: tuple[tuple[Matrix, NDArray[Any], Array], ...]

    def __add__(self, other: "Sample") -> "Sample":
        return Sample(self.parts + other.parts)

    def concatenate(self) -> tuple[Matrix, NDArray[Any], Array]:
        X, y, weight = zip(*self.parts, strict=True)
        # Where some parts are sparse, all become so.
        first = next((part for part in X if not part.stores_zeros), X[0])
        return first.concatenate(X, axis=0), np.concatenate(y), np.concatenate(weight)


@final
@dataclass(frozen=True, eq=False)
class Max:
    """Max-reduction: combining two values keeps the larger."""

    value: float

    def __add__(self, other: "Max") -> "Max":
        return Max(max(self.value, other.value))


@final
@dataclass(frozen=True, eq=False)
class LabelCounts:
    """Different labels, each with the number of its rows that have weight."""

    counts: dict[Any, int]

    def __add__(self, other: "LabelCounts") -> "LabelCounts":
        joined = dict(self.counts)
        for label, number in other.counts.items():
            joined[label] = joined.get(label, 0) + number
        return LabelCounts(joined)


@final
@dataclass(frozen=True)
class BlockSummary:
    """What is known about one block."""

    n_rows: int
    n_columns: int
    fault: bool  # whether a check failed
    checksum: bytes


@final
@dataclass(frozen=True, eq=False)
class WeightSummary:
    """What is known about the sample weights."""

    total: float  # their sum
    n_used: int  # the number of rows whose weight is above 0
    # The largest weight, and the largest of the weights with their sign turned.
    largest: Max
    least: Max
    labels: LabelCounts  # the classes, each with the number of its rows whose weight is above 0; none for real targets

    def __add__(self, other: "WeightSummary") -> "WeightSummary":
        return WeightSummary(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


@final
@dataclass(frozen=True, eq=False)
class Summary:
    """What is known about all rows; the sum of two summaries is that of the rows of both."""

    blocks: dict[int, BlockSummary]  # what is known about each block, by its number
    weights: WeightSummary  # what is known about the weights
    # The largest target of a regression, and the largest of the targets with their sign turned.
    highest: Max
    lowest: Max
    squares: Array  # shape (n_columns,): ``sum_i s_i x_ij^2`` for sample weights ``s``
    n_filled: Array  # shape (n_columns,): in how many rows a column has a value; not counted in dense blocks
    largest_square: Max  # the largest squared norm of a row of weight above 0
    n_sparse: int  # the number of blocks that are sparse
    sample: Sample  # rows from every block

    def __add__(self, other: "Summary") -> "Summary":
        if self.squares.size != other.squares.size:
            # Refused once all blocks have been seen.
            return replace(self, blocks=self.blocks | other.blocks)
        sums = (getattr(self, field.name) + getattr(other, field.name) for field in fields(self)[1:])
        return Summary(self.blocks | other.blocks, *sums)

    @property
    def n_rows(self) -> int:
        return sum(block.n_rows for block in self.blocks.values())

    @property
    def shared_columns(self) -> NDArray[np.bool_] | None:
        """The columns with values in more than one row, where all blocks are sparse and there are others."""
        if not self.n_sparse or self.n_sparse < sum(block.n_rows > 0 for block in self.blocks.values()):
            return None
        shared = self.n_filled != 1.0
        return None if shared.all() else shared

    def select_columns(self, columns: NDArray[np.intp]) -> "Summary":
        """What is known about the rows with some of their columns; the largest norm and the sample are those of all columns."""
        return replace(self, squares=self.squares[columns], n_filled=self.n_filled[columns])


def summarize(block: Block, task: Task, n_blocks: int) -> Summary:
    """The summary of a block."""
    checksum = block.checksum()
    X, weight, number = block.X, block.weights, block.number
    highest = lowest = -np.inf
    fault = False
    try:
        found = check_block(block, task)
    except ValueError:
        fault = True
    else:
        if task == "regression" and block.n_rows:
            highest, lowest = float(found.max()), float((-found).max())
    norms, squares, counts = X.squared_row_norms(), X.squared_column_norms(weight), X.column_counts()
    chosen = np.random.default_rng(number).permutation(block.n_rows)[: _sample_size(X, n_blocks)]
    chosen.sort()
    sample = Sample(((X[chosen], block.y[chosen], weight[chosen]),))
    if block.checksum() != checksum:
        raise make_change_error(f"block {number}")
    return Summary(
        blocks={number: BlockSummary(*X.shape, fault, checksum)},
        weights=weigh(block, None if fault else task),
        highest=Max(highest),
        lowest=Max(lowest),
        squares=squares,
        n_filled=np.zeros(X.shape[1]) if counts is None else counts.astype(np.float64),
        largest_square=Max(float(norms[weight > 0.0].max(initial=0.0))),
        n_sparse=int(not X.stores_zeros),
        sample=sample,
    )


def weigh(block: Block, task: Task | None) -> WeightSummary:
    """What is known about a block's weights; labels are counted where the task is classification."""
    weight = block.weights
    used = weight > 0.0
    counts: dict[Any, int] = {}
    if task == "classification":
        classes = _inputs.find_classes(block.y)[:MAX_CLASSES].tolist()
        counts = {kind: int(np.sum(used[block.y == kind])) for kind in classes}
    return WeightSummary(
        total=sum_weights(weight),
        n_used=int(np.count_nonzero(used)),
        largest=Max(float(weight.max(initial=0.0))),
        least=Max(float((-weight).max(initial=-np.inf))),
        labels=LabelCounts(counts),
    )


def check_block(block: Block, task: Task) -> NDArray[Any]:
    """The classes or the targets; numbers that cannot be trained on are refused."""
    _inputs.require_finite(block.X, "X", block.column_names, block.start)
    if block.weight is not None:
        weight = _inputs.as_finite_vector(block.weight, "sample_weight", block.start)
        _inputs.require_non_negative(weight, block.start)
    if task == "classification":
        return _inputs.find_classes(block.y, block.start)
    return _inputs.as_finite_vector(block.y, "y", block.start)


def check_shapes(summary: Summary) -> None:
    """Refuse data without a row or a column, and blocks of different widths."""
    widths = sorted({block.n_columns for block in summary.blocks.values()})
    if len(widths) > 1:
        raise ValueError(f"all blocks of X must have the same number of columns; got {widths}.")
    _inputs.require_entries(summary.n_rows, summary.squares.size)


def _sample_size(X: Matrix, n_blocks: int) -> int:
    """Rows that a block gives to the sample; none where the columns are too many for a start."""
    n_columns = X.shape[1]
    if n_columns > MAX_COLUMNS:
        return 0
    wanted = max(SAMPLE_ROWS, ROWS_PER_COLUMN * n_columns)
    return -(-min(wanted, max(1, SAMPLE_BYTES // (8 * max(1, n_columns)))) // n_blocks)
