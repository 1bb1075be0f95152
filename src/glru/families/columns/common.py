"""What the families of columns share."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from glru._arrays import is_device, raw
from glru._numerics import TINY, Array, Matrix, dense, gamma
from glru.certificate import FEW
from glru.families.carried import scale
from glru.problem import Problem

Columns = NDArray[np.intp]

CHUNK = 1 << 18
"""Entries of the arrays that a thread works on at a time: they stay in the cache."""


DEVICE_CHUNK = 1 << 26
"""The same on a device, which large products keep busy."""


def dense_block(X: Matrix | sp.csc_array, columns: Columns) -> Any:
    """Some columns as a dense array where X lives."""
    block = X[:, columns]
    return raw(block) if is_device(block) else dense(block)


def rounded_norms(squares: Array, problem: Problem) -> Array:
    """Norms in the metric of the penalty, rounded up, from their squares."""
    return np.sqrt(squares * (1.0 + gamma(problem.n_columns + 4))) * (1.0 + FEW) + TINY * scale(problem)
