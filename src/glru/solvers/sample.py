"""A sample of the rows of tall data: its model is a start, its Hessian a preconditioner."""

import numpy as np

from glru.problem import Problem
from glru.rows import Block, Blocks

SHARE = 32
"""A sample holds one row in so many, but at least ``ROWS_PER_COLUMN`` rows a column."""

ROWS_PER_COLUMN = 10


def sample_of(problem: Problem) -> Problem | None:
    """The problem on a sample of its rows; None where that is not much smaller, or too small for the columns.

    The sample carries the weight of all rows, so that the penalty keeps its share of the objective.
    """
    n_rows, n_columns = problem.n_rows, problem.n_columns
    if isinstance(problem.rows, Blocks):
        return _sample_of_blocks(problem, problem.rows)
    if n_rows < 20_000 or n_rows < 5 * ROWS_PER_COLUMN * n_columns:
        return None
    size = max(n_rows // SHARE, ROWS_PER_COLUMN * n_columns)
    rows = np.sort(np.random.default_rng(0).choice(n_rows, size, replace=False))
    weight = problem.sample_weight[rows]
    if not weight.any():
        return None
    weight = weight * (problem.sample_weight.sum() / weight.sum())
    return problem.derive(X=problem.matrix[rows], y=problem.y[rows], sample_weight=weight)


def _sample_of_blocks(problem: Problem, blocks: Blocks) -> Problem | None:
    """The same from the rows that the first pass has kept; None also where only one class is among them."""
    X, y, weight = blocks.summary.sample.concatenate()
    if y.size < ROWS_PER_COLUMN * problem.n_columns or 4 * y.size > problem.n_rows or not weight.any():
        return None
    sample = problem.objective.part(Block(X, y, weight * (problem.total_weight / weight.sum())))
    return None if problem.classes is not None and np.unique(sample.y).size < 2 else sample
