"""Small problems in memory, and the same problems in blocks."""

import numpy as np
import scipy.sparse as sp

import glru
from tests.cases import make


def mapped(folder, X, name="X"):
    """An array in a file, mapped into memory."""
    place = np.memmap(folder / f"{name}.bin", dtype=np.float64, mode="w+", shape=X.shape)
    place[:] = X
    place.flush()
    return np.memmap(folder / f"{name}.bin", dtype=np.float64, mode="r", shape=X.shape)


def in_blocks(folder, problem, n_blocks=3):
    """A dense problem with its data in a file that is read in blocks."""
    X = mapped(folder, problem.X)
    height = -(-problem.n_rows // n_blocks)
    return glru.Problem(
        X,
        problem.y,
        problem.loss,
        problem.penalty,
        problem.fit_intercept,
        problem.scaling,
        problem.sample_weight,
        block_bytes=height * 8 * problem.n_columns,
    )


def dask_blocks(problem, chunks, **options):
    """A problem as a dask array with given chunks, its blocks dense or sparse as the data is."""
    import dask.array as da

    if sp.issparse(problem.X):
        X = da.from_array(problem.X.toarray(), chunks=(chunks, -1)).map_blocks(sp.csr_matrix)
    else:
        X = da.from_array(problem.X, chunks=(chunks, -1))
    y = da.from_array(problem.y, chunks=(chunks,))
    settings = {"loss": problem.loss, "penalty": problem.penalty, "scaling": problem.scaling}
    settings |= {"fit_intercept": problem.fit_intercept, "sample_weight": problem.sample_weight}
    return glru.Problem(X, y, **(settings | options))


SHAPES = {
    "tall": {"n": 40, "d": 3},
    "sum": {"n": 40, "d": 3, "scaling": "sum"},
    "intercept": {"n": 40, "d": 3, "fit_intercept": True},
    "weighted": {"n": 40, "d": 3, "sample_weight": 0.5 + np.arange(40) % 4},
    "zero-weights": {"n": 40, "d": 3, "sample_weight": np.arange(40) % 3 * 1.0},
    "weighted-intercept": {"n": 40, "d": 3, "sample_weight": np.arange(40) % 3 * 1.0, "fit_intercept": True},
    "heavy-row": {"n": 12, "d": 3, "sample_weight": np.where(np.arange(12) == 3, 14.0, 1.0)},
    "weighted-sum": {"n": 40, "d": 3, "scaling": "sum", "sample_weight": np.arange(40) % 3 * 1.0},
}
"""Shapes of problems with few columns."""

__all__ = ["SHAPES", "dask_blocks", "in_blocks", "make", "mapped"]
