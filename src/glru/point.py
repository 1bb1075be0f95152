"""A primal-dual point: where a training starts or a candidate stands."""

from dataclasses import dataclass
from typing import final

from glru.linalg import Array


@final
@dataclass(frozen=True, eq=False)
class Point:
    """A primal-dual point: where a training starts or a candidate stands.

    Parameters
    ----------
    coef : array of shape (n_columns,)
        Coefficients ``w``.
    intercept : float, default=0.0
        Intercept ``b``.
    dual : array of shape (n_rows,), default=None
        Dual variables ``a``; if not given, they follow from the coefficients.

    Examples
    --------
    >>> import numpy as np, glru
    >>> glru.Point(np.zeros(3)).intercept
    0.0
    """

    coef: Array
    intercept: float = 0.0
    dual: Array | None = None
