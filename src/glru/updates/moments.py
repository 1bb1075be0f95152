r"""Moments of all rows in the coordinates in which a metric is the identity: what many steps do to the scores of all rows at once.

With the metric :math:`\tilde A = R^\top R` a row is :math:`u = R^{-\top} x`, a step :math:`d = R \delta`, the move of a score
:math:`t = u^\top d`, and norms of gradients and steps are Euclidean, so that no bound depends on the units of a column. Two sums over
the rows then say of any number of steps what would take a pass over the data for each:

* :math:`\sum_k s_k h_k \kappa_k^2 t_k^2`, :math:`\kappa_k \ge |u_k|`, a quadratic form: since :math:`t_k^2 \le \kappa_k^2 |d|^2`, times
  :math:`|d|^2` it bounds :math:`\sum_k s_k h_k t_k^4`, where the largest :math:`\kappa` would count for all rows;
* :math:`\tfrac12 \sum_k s_k \ell'''_k t_k^2 u_k`, the second-order term of the gradient, a cubic form.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from glru.linalg import CHUNK_BYTES, FEW, Array, gamma
from glru.metric.columns import ColumnMetric
from glru.problem import Problem
from glru.sums import loss_hessian
from glru.updates.gradients import compute_model_scores


def coordinates(rows: Problem, metric: ColumnMetric) -> Array:
    """Rows in the coordinates of a metric on the host; each errs by ``metric.solve_error`` of its norm."""
    found: Array = compute_model_scores(rows.matrix, metric.inverse, rows.fit_intercept)
    return found


@final
@dataclass(frozen=True, eq=False)
class SecondMoments:
    """The root of ``sum_k w_k t_k^2`` for any steps."""

    form: Array  # shape (n_unknowns, n_unknowns): ``sum_k w_k u_k u_k^T``, computed
    error: float  # at least the spectral norm of its error
    total: float  # at least ``sum_k w_k |u_k|^2``
    solve_error: float  # of the metric

    @classmethod
    def of(cls, problem: Problem, metric: ColumnMetric, weights: Array, norms: Array) -> "SecondMoments":
        """The form of some weights; ``norms``: at least the norms of the rows in the inverse metric."""
        upper, inverse, size = np.triu(loss_hessian(problem, weights)), metric.inverse, metric.size
        whole = upper + np.triu(upper, 1).T
        form = inverse.T @ whole @ inverse
        # An entry of the sum errs by gamma sqrt(b_ii b_jj), and so does each product on its way into the coordinates. With the
        # rows of the inverse scaled to length 1 the norm of that is at most gamma times a trace, times the size.
        trace = float(np.sum(np.diag(whole) * np.square(inverse).sum(axis=1)))
        error = gamma(problem.totals.depth + 6 * size + 32) * size * trace
        total = float(np.sum(weights * np.square(norms))) * (1.0 + gamma(norms.size + 8))
        return cls(form, error * (1.0 + FEW), total, metric.solve_error)

    def sizes(self, steps: Array, lengths: Array) -> Array:
        """Upper bounds of the roots for steps, one per row; ``lengths``: at least their exact norms, of which they err by 4 solve errors."""
        squares = np.einsum("ij,ij->i", steps @ self.form, steps)
        slack = self.error + gamma(4 * self.form.shape[0] + 16) * self.total
        roots = np.sqrt(np.maximum(squares, 0.0) + slack * np.square(lengths))
        # The rows' coordinates err by a solve error of their norms, the steps by four, and the inverse factor by one.
        return (roots + 8.0 * self.solve_error * np.sqrt(self.total) * lengths) * (1.0 + FEW)


@final
@dataclass(frozen=True, eq=False)
class ThirdDerivatives:
    """Half the third derivative of a sum of losses, in the coordinates of a metric."""

    # The rows, which are in memory, and the metric.
    problem: Problem
    metric: ColumnMetric
    weighted: Array  # shape (n_rows,): ``s_k l'''_k``
    more: Array | None = None  # shape (n_rows, n_more): further coordinates of every row

    @property
    def _size(self) -> int:
        return self.metric.size + (0 if self.more is None else self.more.shape[1])

    def _blocks(self, width: int) -> Iterator[tuple[Array, Array]]:
        """The coordinates of some rows at a time, and these times ``weighted``; ``width``: the numbers per row that are to stay in the cache."""
        height = max(64, CHUNK_BYTES // (8 * max(1, width)))
        for start in range(0, self.problem.n_rows, height):
            here = np.arange(start, min(start + height, self.problem.n_rows))
            # A row without weight does not count, however long it is.
            here = here[self.weighted[here] != 0.0]
            block = coordinates(self.problem.take(here), self.metric)
            block = block if self.more is None else np.hstack([block, self.more[here]])
            yield block, self.weighted[here, None] * block

    @cached_property
    def _tensor(self) -> Array:
        """``sum_k s_k l'''_k u_k u_k u_k``, one row for each pair of coordinates, with the factor that a pair has in the half."""
        tensor = np.zeros((self._size * (self._size + 1) // 2, self._size))
        for block, weighted in self._blocks(tensor.shape[0] // 4):
            tensor += _pairs(block.T) @ weighted
        # Pairs of different coordinates count twice, and all of them by half.
        tensor[np.equal(*np.triu_indices(self._size))] *= 0.5
        return tensor

    def along(self, steps: Array, n_steps: int | None = None) -> Array:
        """``sum_k s_k l'''_k t_k^2 u_k / 2`` for steps, one per row; ``n_steps``: how many there are in all batches, if there may be few."""
        found = np.zeros_like(steps)
        if n_steps is not None and 2 * n_steps < self._size**2:
            # A product with the rows costs less than the tensor.
            for block, weighted in self._blocks(self._size + steps.shape[0]):
                found += np.square(block @ steps.T).T @ (0.5 * weighted)
            return found
        height = max(64, 4 * CHUNK_BYTES // (8 * max(1, self._tensor.shape[0])))
        for start in range(0, steps.shape[0], height):
            found[start : start + height] = _pairs(steps[start : start + height].T).T @ self._tensor
        return found


def _pairs(columns: Array) -> Array:
    """Products of all pairs of coordinates, in the order of ``np.triu_indices``; ``columns``: one row per coordinate."""
    columns, size = np.ascontiguousarray(columns), columns.shape[0]
    found, end = np.empty((size * (size + 1) // 2, columns.shape[1])), 0
    for k in range(size):
        start, end = end, end + size - k
        np.multiply(columns[k], columns[k:], out=found[start:end])
    return found
