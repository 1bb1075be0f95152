"""The changes since the last training, kept as their net effect: rows and columns gone, rows and columns come."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru.changes import AddColumns, AddRows, Change, Composite, RemoveColumns, RemoveRows
from glru.linalg import Array, Matrix, as_matrix
from glru.penalties import Penalty
from glru.problem import Problem

Positions = NDArray[np.intp]


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """Rows in the terms of the problem: data, targets, weights."""

    X: Matrix
    y: Array
    weight: Array

    def select(self, positions: Positions) -> "Rows":
        """Some of the rows."""
        return Rows(self.X[positions], self.y[positions], self.weight[positions])


def stacked(blocks: Sequence[Rows]) -> Rows:
    """Blocks of rows as one."""
    if len(blocks) == 1:
        return blocks[0]
    return Rows(
        blocks[0].X.concatenate([rows.X for rows in blocks], axis=0),
        np.concatenate([rows.y for rows in blocks]),
        np.concatenate([rows.weight for rows in blocks]),
    )


@final
@dataclass(frozen=True, eq=False)
class NewColumns:
    """Columns that came after the training: their values in those trained rows that were there then."""

    rows: Positions
    X: Matrix
    penalty: Penalty | None

    def select(self, columns: Positions) -> "NewColumns":
        """Some of the columns."""
        return NewColumns(self.rows, self.X[:, columns], None if self.penalty is None else self.penalty.select(columns))

    def values(self, rows: Positions) -> Matrix:
        """The values in some trained rows; zero in rows that were gone when the columns came."""
        there = np.isin(rows, self.rows)
        places = np.searchsorted(self.rows, rows[there])
        nothing = as_matrix(np.zeros((1, self.X.shape[1])))
        order = np.where(there, np.cumsum(there) - 1, places.size)
        return self.X.concatenate([self.X[places], nothing], axis=0)[order]


def _none() -> Positions:
    return np.empty(0, dtype=np.intp)


@final
@dataclass(frozen=True, eq=False)
class Ledger:
    """A trained problem and the net effect of the changes since.

    The present rows are the trained ones that are left, in their order, then the new ones; the same holds for columns.
    A change costs what it and the pending ones are in size, not what the data is.

    Attributes
    ----------
    base : Problem
        The problem of the last training.
    gone_rows, gone_columns : array of int
        Trained rows and columns that were removed, in order.
    new_rows : tuple of Rows
        Rows that came, in the present columns.
    new_columns : tuple of NewColumns
        Columns that came.
    """

    base: Problem
    gone_rows: Positions = field(default_factory=_none)
    gone_columns: Positions = field(default_factory=_none)
    new_rows: tuple[Rows, ...] = ()
    new_columns: tuple[NewColumns, ...] = ()

    @property
    def n_kept_rows(self) -> int:
        """Trained rows that are left."""
        return self.base.n_rows - self.gone_rows.size

    @property
    def n_kept_columns(self) -> int:
        """Trained columns that are left."""
        return self.base.n_columns - self.gone_columns.size

    @property
    def n_rows(self) -> int:
        """Rows there are now."""
        return self.n_kept_rows + sum(rows.y.size for rows in self.new_rows)

    @property
    def n_columns(self) -> int:
        """Columns there are now."""
        return self.n_kept_columns + sum(block.X.shape[1] for block in self.new_columns)

    @property
    def moves_columns(self) -> bool:
        """Whether columns came or went."""
        return bool(self.gone_columns.size or self.new_columns)

    @cached_property
    def arrived(self) -> Rows | None:
        """All new rows in one block; None if there are none."""
        return stacked(self.new_rows) if self.new_rows else None

    @cached_property
    def change(self) -> Change:
        """What happened to the trained problem, as one change in as few steps as there can be."""
        everything = np.arange(self.base.n_rows) if self.new_columns else _none()
        steps: list[Change] = [AddColumns(block.values(everything), block.penalty) for block in self.new_columns]
        if self.gone_columns.size:
            steps.append(RemoveColumns(self.gone_columns))
        if self.arrived is not None:
            steps.append(AddRows(self.arrived.X, self.arrived.y, self.arrived.weight))
        if self.gone_rows.size:
            steps.append(RemoveRows(self.gone_rows))
        return steps[0] if len(steps) == 1 else Composite(tuple(steps))

    def trained(self, positions: Positions) -> Positions:
        """Present positions of trained rows as positions in the training."""
        return _shifted(positions, self.gone_rows)

    def rows(self, positions: Positions) -> Rows:
        """Present rows, in the present columns, in the order asked for."""
        old, new = positions < self.n_kept_rows, positions >= self.n_kept_rows
        origin = self.trained(positions[old])
        X = self.base.matrix[origin]
        if self.moves_columns:
            kept = np.delete(np.arange(self.base.n_columns), self.gone_columns)
            X = X.concatenate([X[:, kept], *(block.values(origin) for block in self.new_columns)], axis=1)
        found = Rows(X, self.base.y[origin], self.base.sample_weight[origin])
        if self.arrived is not None and new.any():
            found = stacked([found, self.arrived.select(positions[new] - self.n_kept_rows)])
        order = np.concatenate([np.flatnonzero(old), np.flatnonzero(new)])
        return found.select(np.argsort(order))

    def without_rows(self, positions: Positions) -> "Ledger":
        """The ledger when some present rows are gone too."""
        new = positions[positions >= self.n_kept_rows] - self.n_kept_rows
        gone = np.union1d(self.gone_rows, self.trained(positions[positions < self.n_kept_rows])).astype(np.intp)
        rows = self.new_rows
        if new.size:
            assert self.arrived is not None
            kept = np.delete(np.arange(self.arrived.y.size), new)
            rows = (self.arrived.select(kept),) if kept.size else ()
        return replace(self, gone_rows=gone, new_rows=rows)

    def with_rows(self, rows: Rows) -> "Ledger":
        """The ledger with more rows."""
        return replace(self, new_rows=(*self.new_rows, Rows(self._stored(rows.X), rows.y, rows.weight)))

    def without_columns(self, columns: Positions) -> "Ledger":
        """The ledger when some present columns are gone too."""
        gone = _shifted(columns[columns < self.n_kept_columns], self.gone_columns)
        kept = np.delete(np.arange(self.n_columns), columns)
        blocks, start = [], self.n_kept_columns
        for block in self.new_columns:
            mine = kept[(kept >= start) & (kept < start + block.X.shape[1])] - start
            start += block.X.shape[1]
            if mine.size:
                blocks.append(block.select(mine))
        rows = () if self.arrived is None else (replace(self.arrived, X=self.arrived.X[:, kept]),)
        return replace(
            self,
            gone_columns=np.union1d(self.gone_columns, gone).astype(np.intp),
            new_rows=rows,
            new_columns=tuple(blocks),
        )

    def with_columns(self, X: Matrix, penalty: Penalty | None) -> "Ledger":
        """The ledger with more columns, given in all present rows."""
        X = self._stored(X)
        kept = np.delete(np.arange(self.base.n_rows), self.gone_rows)
        block = NewColumns(kept, X[: kept.size], penalty)
        rows = self.new_rows
        if self.arrived is not None:
            rows = (replace(self.arrived, X=X.concatenate([self.arrived.X, X[kept.size :]], axis=1)),)
        return replace(self, new_rows=rows, new_columns=(*self.new_columns, block))

    def _stored(self, X: Matrix) -> Matrix:
        """Data stored as the trained data is, and apart from what the user may still edit."""
        return self.base.matrix.convert(X).copy()


def _shifted(positions: Positions, gone: Positions) -> Positions:
    """Positions among what is left as positions before the ordered ``gone`` ones went."""
    return positions + np.searchsorted(gone - np.arange(gone.size), positions, side="right")
