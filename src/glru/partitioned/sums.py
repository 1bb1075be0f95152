"""What one pass sums over the rows at a model: value, gradient and Hessian of the losses, and products with it."""

from dataclasses import dataclass
from typing import final

import numpy as np

from glru.linalg import Array
from glru.partitioned.rows import chunks, total_of
from glru.problem import Problem
from glru.solvers.common import Floor


@final
@dataclass(frozen=True, eq=False)
class Model:
    """Coefficients and intercept."""

    coef: Array
    intercept: float = 0.0

    def packed(self, fit_intercept: bool) -> Array:
        """Both as one vector, the intercept last."""
        return np.append(self.coef, self.intercept) if fit_intercept else self.coef

    def moved(self, step: Array, length: float = 1.0) -> "Model":
        """The model after a step in its unknowns."""
        size = self.coef.size
        shift = float(step[size]) if step.size > size else 0.0
        return Model(self.coef + length * step[:size], self.intercept + length * shift)


@final
@dataclass(frozen=True, eq=False)
class Expansion:
    """Sums over the rows at a model.

    Attributes
    ----------
    value : float
        ``sum_i s_i l_i``.
    pull : array
        ``sum_i s_i l'_i x_i``, the intercept's entry last.
    mass : float
        ``sum_i s_i l'_i^2``.
    gram : array or None
        Upper triangle of ``sum_i s_i l''_i x_i x_i^T``; the lower one holds anything.
    """

    value: float
    pull: Array
    mass: float
    gram: Array | None

    def __add__(self, other: "Expansion") -> "Expansion":
        gram = None if self.gram is None or other.gram is None else self.gram + other.gram
        return Expansion(self.value + other.value, self.pull + other.pull, self.mass + other.mass, gram)


def expand(block: Problem, number: int, start: int, model: Model, floor: Floor | None) -> Expansion:
    """The expansion of a block; ``floor``: under the curvatures of the Hessian, which is left out without one."""
    size = block.n_columns + int(block.fit_intercept)
    pull, value, mass = np.zeros(size), 0.0, 0.0
    gram = None if floor is None else np.zeros((size, size))
    sparse = not block.matrix.stores_zeros
    bends = np.empty(block.n_rows if sparse and floor is not None else 0)
    for part, rows in chunks(block):
        scores = rows.scores(model.coef, model.intercept)
        values, slopes, curvatures = rows.loss.expand(rows.y, scores)
        value += float(rows.weights @ values)
        pulls = rows.weights * slopes
        mass += float(pulls @ slopes)
        add_pulls(pull, rows, pulls)
        if floor is not None:
            bend = rows.weights * floor.raised(curvatures, scores)
            if sparse:
                bends[part] = bend
            else:
                _add_gram(gram, rows, bend)
    if sparse and floor is not None:
        _add_gram(gram, block, bends)
    return Expansion(value, pull, mass, gram)


def add_pulls(pull: Array, rows: Problem, pulls: Array) -> None:
    """Add ``X^T pulls``, and their sum for the intercept."""
    pull[: rows.n_columns] += rows.matrix.T @ pulls
    if rows.fit_intercept:
        pull[-1] += pulls.sum()


def _add_gram(gram: Array | None, rows: Problem, bend: Array) -> None:
    assert gram is not None
    size = rows.n_columns
    gram[:size, :size] += rows.matrix.column_gram(bend)
    if rows.fit_intercept:
        gram[:size, size] += rows.matrix.T @ bend
        gram[size, size] += bend.sum()


def slopes_along(block: Problem, number: int, start: int, model: Model, step: Array, lengths: Array) -> Array:
    """The derivative of the losses along a step, at several lengths."""
    total, way = np.zeros(lengths.size), Model(np.zeros_like(model.coef)).moved(step)
    for _, rows in chunks(block):
        scores, moves = rows.scores(model.coef, model.intercept), rows.scores(way.coef, way.intercept)
        pulls = rows.weights * moves
        for k, length in enumerate(lengths):
            total[k] += float(pulls @ rows.loss.gradient(rows.y, scores + length * moves))
    return total


def hessian_product(block: Problem, number: int, start: int, model: Model, floor: Floor, vector: Array) -> Array:
    """The losses' Hessian at a model times a vector."""
    total, way = np.zeros_like(vector), Model(np.zeros_like(model.coef)).moved(vector)
    for _, rows in chunks(block):
        scores = rows.scores(model.coef, model.intercept)
        bends = floor.raised(rows.loss.curvature(rows.y, scores), scores)
        add_pulls(total, rows, rows.weights * bends * rows.scores(way.coef, way.intercept))
    return total


def weight_of(block: Problem, number: int, start: int) -> float:
    """The sum of a block's sample weights."""
    return total_of(block.sample_weight)
