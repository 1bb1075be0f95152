"""A primal-dual point: where a training starts or a candidate stands."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from glru.linalg import Array


@final
@dataclass(frozen=True, eq=False)
class Point:
    """A primal-dual point: where a training starts or a candidate stands.

    Parameters
    ----------
    coef : array of shape (n_columns,) or (n_classes, n_columns)
        Coefficients ``w``; one line per class where there is one score per class.
    intercept : float or array of shape (n_classes,), default=0.0
        Intercept ``b``.
    dual : array of shape (n_rows,) or (n_rows, n_classes), default=None
        Dual variables ``a``; if not given, they follow from the coefficients.

    Examples
    --------
    >>> import numpy as np, glru
    >>> glru.Point(np.zeros(3)).intercept
    0.0
    """

    coef: Array
    intercept: Any = 0.0
    dual: Array | None = None

    def packed(self, fit_intercept: bool) -> Array:
        """Coefficients and intercept as one vector, the intercept last."""
        return np.append(self.coef, self.intercept) if fit_intercept else self.coef

    def moved(self, step: Array, length: float = 1.0) -> "Point":
        """The primal point after a step in its unknowns (the intercept's entry, if there is one, last)."""
        size = self.coef.size
        shift = float(step[size]) if step.size > size else 0.0
        return Point(self.coef + length * step[:size], self.intercept + length * shift)
