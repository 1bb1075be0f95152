r"""What leaving out a row changes beside the row itself: preprocessing and class weights that are fitted to the other rows.

A pipeline's steps are fitted again without row ``i``. In the columns of the problem (the data as the steps fitted to *all* rows
transform it) that is a change of the penalty, of the filled values and of the weights: the model without row ``i`` minimises

.. math:: \sum_{k \ne i} u_{ik} s_k \ell(y_k, (x_k + m_k \circ f_i)^\top w + b) + \tfrac12 \sum_j \rho_{ij} \lambda_j w_j^2 .

With an unpenalised intercept a column-wise scaler is no more than that: its shift goes into the intercept, and a column that is
divided by ``t`` times what it was divided by has its coefficient multiplied by ``t``, so that the strength of the penalty is
:math:`\rho = t^2` times what it was.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import Array, gamma
from glru.penalties import L1, L2, ElasticNet, Penalty
from glru.problem import Problem

Mask = NDArray[np.bool_]


@final
@dataclass(frozen=True, eq=False)
class Refits:
    """What leaving out each row changes beside the row; one row of every array per row of the problem.

    Attributes
    ----------
    strengths : array of shape (n_rows, n_columns) or None
        ``rho``: factors of the strengths of the penalty.
    fills : array of shape (n_rows, n_columns) or None
        ``f``: what is added to every filled value of a column.
    filled : boolean array of shape (n_rows, n_columns) or None
        ``m``: which values were filled in because they were missing.
    class_factors : array of shape (n_rows, 2) or None
        ``u``: factors of the weights of the rows with ``y < 0`` and of those with ``y > 0``.
    error : float
        At least the relative error of a class factor, and the error of a strength's factor in units of ``max(1, rho)`` and of a fill in
        units of the largest absolute value in its column. Bounds made in batches hold for all factors within that error; rows that
        are worked on one by one, for the factors as they are stored.
    alone : boolean array of shape (n_rows,) or None
        Rows whose removal changes more than that: :attr:`refit` makes their problem.
    refit : callable or None
        ``refit(row)``: the problem without a row, in which it has weight zero, with the columns as its own preprocessing makes them.
    """

    strengths: Array | None = None
    fills: Array | None = None
    filled: Mask | None = None
    class_factors: Array | None = None
    error: float = 0.0
    alone: Mask | None = None
    refit: Callable[[int], Problem] | None = None

    @property
    def n_rows(self) -> int:
        """How many rows it is about."""
        known = (self.strengths, self.fills, self.class_factors, self.alone)
        return next(part.shape[0] for part in known if part is not None)

    @cached_property
    def together(self) -> Mask:
        """The rows whose removals the arrays describe."""
        return np.ones(self.n_rows, dtype=bool) if self.alone is None else ~self.alone

    @cached_property
    def filled_columns(self) -> NDArray[np.intp]:
        """The columns with filled values that move."""
        if self.fills is None or self.filled is None:
            return np.empty(0, dtype=np.intp)
        return np.flatnonzero(self.filled.any(axis=0) & self.fills.any(axis=0))

    @cached_property
    def mask(self) -> Array:
        """Which values of :attr:`filled_columns` are filled, as numbers."""
        columns = self.filled_columns
        return np.zeros((self.n_rows, 0)) if self.filled is None else self.filled[:, columns].astype(np.float64)

    @cached_property
    def smallest(self) -> Array:
        """At most the least factor of a strength or of a weight without each row, and 1."""
        least = np.ones(self.n_rows)
        for part in (self.strengths, self.class_factors):
            if part is not None and part.shape[1]:
                least = np.minimum(least, part.min(axis=1) - self.error * np.maximum(1.0, part.max(axis=1)))
        return least

    def parts(self) -> tuple[Any, ...]:
        """What tells refits apart."""
        names = ("strengths", "fills", "filled", "class_factors", "alone")
        return *((name, getattr(self, name)) for name in names if getattr(self, name) is not None), self.error

    def problem(self, problem: Problem, row: int) -> Problem:
        """The problem without a row, in which it has weight zero."""
        if self.alone is not None and self.alone[row]:
            assert self.refit is not None
            return self.refit(row)
        weight = problem.sample_weight.copy()
        weight[row] = 0.0
        changes: dict[str, Any] = {}
        if self.class_factors is not None:
            weight *= np.where(problem.y > 0.0, self.class_factors[row, 1], self.class_factors[row, 0])
        if self.strengths is not None:
            changes["penalty"] = rescaled(problem.penalty, self.strengths[row])
        if self.filled_columns.size:
            assert self.fills is not None and self.filled is not None
            places = self.filled_columns
            values = problem.matrix.dense(places) + self.filled[:, places] * self.fills[row, places]
            changes["X"] = problem.matrix.replace_columns(places, values)
        return problem.derive(sample_weight=weight, **changes)

    def summed(self, problem: Problem) -> "Refits":
        """The same for a problem under the mean of the losses, multiplied by its total weight; its penalty is smooth.

        Without a row the total weight is another one, and so are the strengths.
        """
        weight, above = problem.sample_weight, problem.y > 0.0
        if self.class_factors is None:
            kept = problem.total_weight - weight
        else:
            mine = np.where(above, self.class_factors[:, 1], self.class_factors[:, 0])
            totals = np.array([weight[~above].sum(), weight[above].sum()])
            kept = self.class_factors @ totals - mine * weight
        kept = np.maximum(kept / problem.total_weight, 0.0)[:, None]
        strengths = np.ones((problem.n_rows, problem.n_columns)) if self.strengths is None else self.strengths
        largest = max(1.0, float(kept.max())) * max(1.0, float(strengths.max(initial=1.0)))
        if self.class_factors is not None:
            largest *= max(1.0, float(self.class_factors.max()))
        error = (self.error * (2.0 + self.error) + 16.0 * gamma(problem.n_rows + 8)) * largest
        return replace(self, strengths=strengths * kept, error=error)


def rescaled(penalty: Penalty, factors: Array) -> Penalty:
    """A penalty whose columns were divided by the roots of some factors: squares have these, absolute values their roots."""
    quadratic, absolute = penalty.quadratic * factors, penalty.absolute * np.sqrt(factors)
    if not absolute.any():
        return L2(quadratic)
    return ElasticNet(quadratic, absolute) if quadratic.any() else L1(absolute)
