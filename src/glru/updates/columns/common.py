"""What the families of columns share."""

import numpy as np
from numpy.typing import NDArray

from glru.linalg import FEW, TINY, Array, gamma
from glru.problem import Problem
from glru.updates.carried_rows import scale

Columns = NDArray[np.intp]


def rounded_norms(squares: Array, problem: Problem) -> Array:
    """Norms in the metric of the penalty, rounded up, from their squares."""
    return np.sqrt(squares * (1.0 + gamma(problem.n_columns + 4))) * (1.0 + FEW) + TINY * scale(problem)
