"""One pass that looks at every number: what is wrong is refused, the rest is counted for all later passes."""

from dataclasses import dataclass, fields, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru.linalg import Array, Matrix
from glru.losses.base import Task
from glru.partitioned.rows import Rows, total_of
from glru.partitioned.sources import data_changed

SAMPLE_BYTES = 64 << 20
"""A sample of the rows that a training starts from has at most this size."""

SAMPLE_ROWS = 20_000
"""It has so many rows, or ``ROWS_PER_COLUMN`` a column if that is more."""

ROWS_PER_COLUMN = 50

MOST_CLASSES = 100
"""So many different labels of a block are counted; more than two are refused in any case."""

MOST_COLUMNS = 3000
"""A Hessian is not formed in more dimensions than this."""


@final
@dataclass(frozen=True, eq=False)
class Sample:
    """Some rows as they are: data, targets and sample weights, block by block."""

    parts: tuple[tuple[Matrix, NDArray[Any], Array], ...]

    def __add__(self, other: "Sample") -> "Sample":
        return Sample(self.parts + other.parts)

    def joined(self) -> tuple[Matrix, NDArray[Any], Array]:
        """All of them as one."""
        X, y, weight = zip(*self.parts, strict=True)
        # Where some parts are sparse, all become so.
        first = next((part for part in X if not part.stores_zeros), X[0])
        return first.concatenate(X, axis=0), np.concatenate(y), np.concatenate(weight)


@final
@dataclass(frozen=True, eq=False)
class Most:
    """A number of which the sum is the largest one."""

    value: float

    def __add__(self, other: "Most") -> "Most":
        return Most(max(self.value, other.value))


@final
@dataclass(frozen=True, eq=False)
class Labels:
    """Different labels, each with the number of its rows that have weight."""

    counts: dict[Any, int]

    def __add__(self, other: "Labels") -> "Labels":
        joined = dict(self.counts)
        for label, number in other.counts.items():
            joined[label] = joined.get(label, 0) + number
        return Labels(joined)


@final
@dataclass(frozen=True, eq=False)
class Seen:
    """Facts about single blocks, by number."""

    facts: dict[int, Any]

    def __add__(self, other: "Seen") -> "Seen":
        return Seen(self.facts | other.facts)


@final
@dataclass(frozen=True, eq=False)
class Census:
    """What is known of all rows.

    Attributes
    ----------
    lengths, columns, faults, checksums : Seen
        For every block its rows, its columns and their names, whether a check failed, and the check-sum of its rows.
    labels : Labels
        The classes; none for real targets.
    highest, lowest : Most
        The largest target and the largest one with its sign turned.
    total_weight, n_used : float
        The sum of the sample weights, and the number of rows that have any.
    largest, least : Most
        The largest sample weight, and the least one with its sign turned.
    squares : array of shape (n_columns,)
        ``sum_i s_i x_ij^2`` for sample weights ``s``.
    filled : array of shape (n_columns,)
        In how many rows a column has a value; not counted in dense blocks.
    plain : Most
        The largest squared norm of a row of weight above 0.
    n_stored, n_sparse : float
        Stored entries, and blocks that are sparse.
    sample : Sample
        Rows from every block.
    """

    lengths: Seen
    columns: Seen
    faults: Seen
    checksums: Seen
    labels: Labels
    highest: Most
    lowest: Most
    total_weight: float
    n_used: float
    largest: Most
    least: Most
    squares: Array
    filled: Array
    plain: Most
    n_stored: float
    n_sparse: float
    sample: Sample

    def __add__(self, other: "Census") -> "Census":
        if self.squares.size != other.squares.size:
            # Refused once all blocks have been seen.
            return replace(self, lengths=self.lengths + other.lengths, columns=self.columns + other.columns)
        return Census(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(self.lengths.facts.values())


def count(rows: Rows, number: int, start: int, task: Task, n_blocks: int) -> Census:
    """The census of a block."""
    checksum = rows.checksum()
    X, weight = rows.X, np.ones(rows.n_rows) if rows.weight is None else rows.weight
    used = weight > 0.0
    labels: dict[Any, int] = {}
    highest = lowest = -np.inf
    fault = False
    try:
        found = check(rows, number, start, task)
    except ValueError:
        fault = True
    else:
        if task == "classification":
            labels = {kind: int(np.sum(used[rows.y == kind])) for kind in found[:MOST_CLASSES].tolist()}
        elif rows.n_rows:
            highest, lowest = float(found.max()), float((-found).max())
    norms, squares = X.squared_norms(weight)
    chosen = np.random.default_rng(number).permutation(rows.n_rows)[: _sample_size(X, n_blocks)]
    chosen.sort()
    sample = Sample(((X[chosen], rows.y[chosen], weight[chosen]),))
    if rows.checksum() != checksum:
        raise data_changed(f"block {number}")
    return Census(
        lengths=Seen({number: rows.n_rows}),
        columns=Seen({number: (X.shape[1], rows.column_names)}),
        faults=Seen({number: fault}),
        checksums=Seen({number: checksum}),
        labels=Labels(labels),
        highest=Most(highest),
        lowest=Most(lowest),
        total_weight=total_of(weight),
        n_used=float(np.count_nonzero(used)),
        largest=Most(float(weight.max(initial=0.0))),
        least=Most(float((-weight).max(initial=-np.inf))),
        squares=squares,
        filled=_filled(X),
        plain=Most(float(norms[used].max(initial=0.0))),
        n_stored=float(X.n_stored),
        n_sparse=float(not X.stores_zeros),
        sample=sample,
    )


def check(rows: Rows, number: int, start: int, task: Task) -> NDArray[Any]:
    """The classes or the targets; numbers that cannot be trained on are refused.

    ``start``: the number of the first row, for messages.
    """
    _inputs.require_finite(rows.X, "X", rows.column_names, start)
    if rows.weight is not None:
        _inputs.require_non_negative(_inputs.finite_vector(rows.weight, "sample_weight", start), start)
    if task == "classification":
        return _inputs.classes_of(rows.y, start)
    return _inputs.finite_vector(rows.y, "y", start)


def _filled(X: Matrix) -> Array:
    counts = X.column_counts()
    return np.zeros(X.shape[1]) if counts is None else counts.astype(np.float64)


def _sample_size(X: Matrix, n_blocks: int) -> int:
    """Rows that a block gives to the sample; none where the columns are too many for a start."""
    n_columns = X.shape[1]
    if n_columns > MOST_COLUMNS:
        return 0
    wanted = max(SAMPLE_ROWS, ROWS_PER_COLUMN * n_columns)
    return -(-min(wanted, max(1, SAMPLE_BYTES // (8 * max(1, n_columns)))) // n_blocks)
