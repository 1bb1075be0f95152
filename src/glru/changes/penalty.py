"""Changes of the penalty."""

from dataclasses import dataclass, replace
from typing import final

from glru.changes.base import Change, Layout, layout_of
from glru.penalties import Penalty
from glru.problem import Problem, check_strengths


@final
@dataclass(frozen=True, eq=False)
class Repenalise(Change):
    """Penalise the coefficients by another penalty: another strength, or strengths of their own for the columns.

    Parameters
    ----------
    penalty : Penalty
        The new penalty; strengths that differ by column have one entry per column.

    Examples
    --------
    >>> import numpy as np, glru
    >>> problem = glru.Problem(np.eye(2), [0.0, 1.0], loss=glru.Squared(), penalty=glru.L2(1.0))
    >>> glru.Repenalise(glru.L2([0.5, 2.0])).apply(problem).penalty
    L2(lam=array([0.5, 2. ]))

    A scaler that is fitted again without some rows divides column ``j`` by ``t_j`` times what it was divided by. In the old
    columns that is the removal of the rows and the strength ``t_j ** 2`` times what it was:

    >>> change = glru.RemoveRows([1]) + glru.Repenalise(glru.L2([1.0, 0.81]))
    >>> change.apply(problem).penalty
    L2(lam=array([1.  , 0.81]))
    """

    penalty: Penalty

    def check(self, layout: Layout) -> Layout:
        if not isinstance(self.penalty, Penalty):
            raise TypeError(f"penalty must be a glru penalty such as glru.L2(0.1); got {self.penalty!r}.")
        check_strengths(self.penalty, layout.n_columns)
        return replace(layout, penalty=self.penalty)

    def apply(self, problem: Problem) -> Problem:
        return problem.derive(penalty=self.check(layout_of(problem)).penalty)
