"""Models of a problem with one column less or more, in the dimension of its rows."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import Array, Matrix, as_matrix, to_host
from glru.metric.rows import RowSide
from glru.problem import Problem
from glru.updates.row_models import Retrained, RowModels

Blocks = tuple[Matrix, Matrix]
"""Some columns, of the training rows and of the queries."""


@final
@dataclass(frozen=True, eq=False)
class Block:
    """Columns that leave or come, one per column of the arrays, centred as the data is."""

    columns: Matrix  # shape (n_rows, n_items): their values
    asked: Array  # shape (n_queries, n_items): those of the queries
    lam: Array  # shape (n_items,): their penalties
    sign: float  # -1 for removals, +1 for additions

    @property
    def scales(self) -> Array:
        """What the products of the columns with themselves are multiplied by in ``K``."""
        return self.sign / self.lam

    def take(self, members: NDArray[Any]) -> "Block":
        """Some of the columns."""
        return Block(self.columns[:, members], self.asked[:, members], self.lam[members], self.sign)


class ColumnModels(RowModels):
    """Models with one column less or more than a problem.

    With ``K`` of the problem's columns, that of the new model is ``K +- x x^T / lam``.

    ``problem``: the problem; ``queries`` (shape (n_queries, n_columns)): rows whose scores are asked about; ``extended``: the side of the present
    columns, where these are no longer all of the problem's, with the queries behind the rows.
    """

    def __init__(self, problem: Problem, queries: Matrix, extended: RowSide | None = None) -> None:
        super().__init__(problem, None if extended is None else extended.restrict(np.arange(problem.n_rows)))
        self.queries, self.weights = queries, problem.weights
        if extended is not None:
            self.__dict__["extended"] = extended

    def block(self, blocks: Blocks, lam: Array, sign: float, centers: Array | None) -> Block:
        """Columns as they meet the data; ``centers``: what is taken from each."""
        columns, asked = blocks[0], to_host(blocks[1].dense())
        if centers is None:
            return Block(columns, asked, lam, sign)
        return Block(as_matrix(columns.dense() - centers), asked - centers, lam, sign)

    def retrain_with(
        self, block: Block, start: tuple[Array, Array, Array], decided: Callable[[Array, Array], bool]
    ) -> Retrained:
        """Bounds for the one candidate of a block, by Newton steps from a model of the training rows."""
        column = np.append(to_host(block.columns.dense())[:, 0], block.asked[:, 0])
        size, models = (
            self.queries.shape[0],
            RowModels(self.problem, self.extended.with_column(column, block.scales[0])),
        )
        duals = np.append(start[0], np.zeros(size))
        rows, weights = self.weights.size + np.arange(size), np.append(self.weights, np.zeros(size))
        return models.retrained(weights, (duals, start[1], models.scores(duals, start[1])), rows, decided)

    @cached_property
    def extended(self) -> RowSide:
        """The side with the queries as rows without a weight."""
        return self.side.extend(self.queries)
