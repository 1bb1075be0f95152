"""How a live model stands: the stored model, the changes since, the keys; every change makes a new one or an error."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np

from glru import _inputs
from glru.linalg import Array
from glru.live import digests
from glru.live.answers import Outlook
from glru.live.ledger import Ledger, Positions, Rows
from glru.live.roster import Roster
from glru.live.terms import Terms
from glru.solution import Solution


@final
@dataclass(frozen=True, eq=False)
class Standing:
    """A live model at one moment.

    Attributes
    ----------
    terms : Terms
        What is minimised, and the present column names.
    solution : Solution
        The stored model.
    ledger : Ledger
        The changes since it was trained.
    roster : Roster
        The keys of the rows.
    revision : int
        How many trainings led to the stored model.
    weighty : tuple of int
        Present rows of weight above 0, with negative targets and with others.
    digest : str
        The digest of the stored model.
    exhausted : bool
        Whether the stored model was trained as far as float64 goes.
    """

    terms: Terms
    solution: Solution
    ledger: Ledger
    roster: Roster
    revision: int
    weighty: tuple[int, int]
    digest: str
    exhausted: bool

    @classmethod
    def trained(cls, terms: Terms, solution: Solution, roster: Roster, revision: int, exhausted: bool) -> "Standing":
        """The standing just after a training."""
        ledger = Ledger(solution.problem)
        return cls.stored(terms, solution, ledger, roster, revision, exhausted)

    @classmethod
    def stored(
        cls, terms: Terms, solution: Solution, ledger: Ledger, roster: Roster, revision: int, exhausted: bool
    ) -> "Standing":
        """The standing with some changes since a training, counted and digested afresh."""
        digest = digests.of_model(terms.to_json(), solution.coef, solution.intercept)
        return cls(terms, solution, ledger, roster, revision, _present_weighty(ledger), digest, exhausted)

    @cached_property
    def outlook(self) -> Outlook:
        """What is proven of the retrained model."""
        return Outlook(self.solution, self.ledger)

    @property
    def is_fresh(self) -> bool:
        """Whether nothing changed since the training."""
        ledger = self.ledger
        return not (ledger.gone_rows.size or ledger.new_rows or ledger.moves_columns)

    @property
    def n_columns(self) -> int:
        """The user's columns there are now."""
        return self.ledger.n_columns - self.terms.offset

    @cached_property
    def stored_coef(self) -> Array:
        """The stored coefficients in the present columns; new columns have none yet."""
        kept = np.delete(self.solution.coef, self.ledger.gone_columns)
        return np.append(kept, np.zeros(self.ledger.n_columns - kept.size))

    def with_rows(self, X: Any, y: Any, sample_weight: Any, keys: Any) -> "Standing":
        """The standing with more rows."""
        matrix = self.terms.rows(X, self.ledger.n_columns, "new rows")
        target = self.terms.targets(y, matrix.shape[0])
        weight = self.terms.weights(target, sample_weight)
        low, high = count_weighty(target, weight)
        return replace(
            self,
            ledger=self.ledger.with_rows(Rows(matrix, target, weight)),
            roster=self.roster.with_rows(keys, target.size, self.ledger),
            weighty=(self.weighty[0] + low, self.weighty[1] + high),
        )

    def without_rows(self, positions: Positions, rows: Rows) -> "Standing":
        """The standing without some present rows, which are also given in full."""
        if positions.size == self.ledger.n_rows:
            raise ValueError(f"at least one row must be left; got the removal of all {positions.size}.")
        gone = count_weighty(rows.y, rows.weight)
        left = self.weighty[0] - gone[0], self.weighty[1] - gone[1]
        if sum(left) == 0:
            raise ValueError("a row of weight above 0 must be left; got the removal of all of them.")
        if self.terms.classes is not None:
            for k in range(2):
                if left[k] == 0:
                    raise ValueError(
                        f"both classes must be left; got the removal of every row of class {self.terms.classes.tolist()[k]!r} "
                        "that has a weight above 0. Add others of it first."
                    )
        return replace(
            self,
            ledger=self.ledger.without_rows(positions),
            roster=self.roster.without_rows(positions, self.ledger),
            weighty=left,
        )

    def with_columns(self, X: Any) -> "Standing":
        """The standing with more columns."""
        matrix, names = _inputs.as_matrix(X, "new columns")
        if matrix.shape[0] != self.ledger.n_rows:
            raise ValueError(
                f"new columns must have {self.ledger.n_rows} rows, as there are now; got {matrix.shape[0]}."
            )
        count = matrix.shape[1]
        penalty = self.terms.objective.penalty(count)
        return replace(
            self,
            terms=self.terms.with_columns(names, count, self.ledger.n_columns),
            ledger=self.ledger.with_columns(matrix, None if penalty.n_columns is None else penalty),
        )

    def without_columns(self, columns: Positions) -> "Standing":
        """The standing without some present columns of the problem."""
        if columns.size == self.n_columns:
            raise ValueError(f"at least one column must be left; got the removal of all {columns.size}.")
        return replace(self, terms=self.terms.without_columns(columns), ledger=self.ledger.without_columns(columns))

    def retrained(self, solution: Solution, exhausted: bool) -> "Standing":
        """The standing after a training of the present problem."""
        roster = Roster(self.roster.present(self.ledger))
        return Standing.trained(self.terms, solution, roster, self.revision + 1, exhausted)


def count_weighty(y: Array, weight: Array) -> tuple[int, int]:
    """Rows of weight above 0, with negative targets and with others."""
    used = weight > 0.0
    low = int(np.count_nonzero(used & (y < 0.0)))
    return low, int(np.count_nonzero(used)) - low


def _present_weighty(ledger: Ledger) -> tuple[int, int]:
    kept = np.delete(np.arange(ledger.base.n_rows), ledger.gone_rows)
    low, high = count_weighty(ledger.base.y[kept], ledger.base.sample_weight[kept])
    if ledger.arrived is None:
        return low, high
    more = count_weighty(ledger.arrived.y, ledger.arrived.weight)
    return low + more[0], high + more[1]
