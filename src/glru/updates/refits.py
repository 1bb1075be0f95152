r"""What leaving out a row changes beside the row itself: preprocessing and class weights that are fitted to the other rows.

A pipeline's steps are fitted again without row ``i``. In the columns of the problem (the data as the steps fitted to *all* rows
transform it) that is a change of the penalty, of the filled values and of the weights: the model without row ``i`` minimises

.. math:: \sum_{k \ne i} u_{ik} s_k \ell(y_k, (x_k + m_k \circ f_i)^\top w + b) + \tfrac12 \sum_j \rho_{ij} \lambda_j w_j^2 .

With an unpenalised intercept a column-wise scaler is no more than that: its shift goes into the intercept, and a column that is
divided by ``t`` times what it was divided by has its coefficient multiplied by ``t``, so that the strength of the penalty is
:math:`\rho = t^2` times what it was.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import Array, Matrix
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
        units of the largest absolute value in its column.
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
