"""What certificates have to know of all rows: upper bounds of sums over them."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import TINY, Array, gamma
from glru.losses import Loss
from glru.penalties import Penalty
from glru.rows.passes import Blocks


@final
@dataclass(frozen=True, eq=False)
class Totals:
    """A problem's loss and penalty, and upper bounds of sums over its rows.

    Attributes
    ----------
    loss, penalty, fit_intercept : Loss, Penalty, bool
        As in the problem.
    n_rows, n_columns : int
        Sizes; the intercept is not counted.
    depth : int
        At least the additions that a row's share of any sum over all rows passes through.
    score_noise : float
        What the evaluation of the losses does to slopes, as an error of the scores.
    weight_sum : float
        At least the sum of the weights ``s``.
    column_norms : array
        At least ``sqrt(sum_i s_i x_ij^2)`` for every column, and ``sqrt(sum_i s_i)`` for an intercept.
    largest_norm : float
        At least the largest Euclidean norm of a row whose weight is above 0.
    """

    loss: Loss
    penalty: Penalty
    fit_intercept: bool
    n_rows: int
    n_columns: int
    depth: int
    score_noise: float
    weight_sum: float
    column_norms: Array
    largest_norm: float

    @cached_property
    def quadratic(self) -> Array:
        """The penalty's strengths, one per column."""
        return np.broadcast_to(self.penalty.quadratic, (self.n_columns,))

    @property
    def least_curvature(self) -> float:
        """A number that no eigenvalue of the Hessian is below, wherever it is taken."""
        return 0.0 if self.fit_intercept else self.penalty.strong_convexity

    @property
    def norm(self) -> float:
        """At least ``sqrt(sum_i s_i |x_i|^2)``."""
        return float(np.linalg.norm(self.column_norms[: self.n_columns])) * (1.0 + gamma(self.n_columns + 8))

    def select(self, columns: NDArray[np.intp]) -> "Totals":
        """The totals of a problem with some of the columns."""
        places = np.append(columns, [self.n_columns] if self.fit_intercept else []).astype(np.intp)
        return replace(
            self,
            penalty=self.penalty.select(columns),
            n_columns=int(columns.size),
            column_norms=self.column_norms[places],
        )


def totals_of_blocks(
    rows: Blocks, loss: Loss, penalty: Penalty, fit_intercept: bool, scaling: str, total_weight: float
) -> Totals:
    """The totals of rows in blocks, from the first pass over them."""
    summary = rows.summary
    n_rows, n_columns = summary.n_rows, int(summary.squares.size)
    weight_sum = (1.0 if scaling == "mean" else total_weight) * (1.0 + gamma(n_rows + 8))
    unit = total_weight if scaling == "mean" else 1.0
    norms = (np.sqrt(summary.squares / unit) + TINY) * (1.0 + gamma(n_rows + 8))
    return Totals(
        loss=loss,
        penalty=penalty,
        fit_intercept=fit_intercept,
        n_rows=n_rows,
        n_columns=n_columns,
        depth=rows.depth,
        score_noise=loss.score_noise,
        weight_sum=weight_sum,
        column_norms=np.append(norms, np.sqrt(weight_sum)) if fit_intercept else norms,
        largest_norm=float(np.sqrt(summary.largest_square.value)) * (1.0 + gamma(n_columns + 8)) + TINY,
    )
