"""Preconditioners for conjugate gradients on a Newton system: for the columns' scales, or from a sample of the rows."""

from abc import ABC, abstractmethod
from typing import final

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky

from glru.linalg import Array
from glru.point import Point
from glru.problem import Problem
from glru.solvers.sample import sample_of


class Preconditioner(ABC):
    """A positive definite approximation of the Hessian."""

    forcing: float
    """How far an inner iteration reduces the squared residual, unless the gap needs less."""

    @abstractmethod
    def solve(self, residual: Array) -> Array:
        """Its inverse times a vector."""

    @abstractmethod
    def product(self, move: Array) -> Array:
        """It times a vector."""

    @abstractmethod
    def at(self, curvature: Array) -> "Preconditioner":
        """The preconditioner for loss curvatures of some total weight."""


@final
class ColumnScales(Preconditioner):
    """The Hessian's diagonal if all rows had their mean curvature, for columns of unequal scale."""

    forcing = 0.1

    def __init__(self, problem: Problem, scales: Array | None = None, total: float = 1.0) -> None:
        self.problem = problem
        if scales is None:
            scales = problem.column_norms**2 / problem.weights.sum()
        self.scales = scales
        lam = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
        diagonal = total * scales + lam
        if problem.fit_intercept:
            diagonal = np.append(diagonal, total)
        self.diagonal = np.where(diagonal > 0.0, diagonal, 1.0)

    def solve(self, residual: Array) -> Array:
        return residual / self.diagonal

    def product(self, move: Array) -> Array:
        return self.diagonal * move

    def at(self, curvature: Array) -> "ColumnScales":
        return ColumnScales(self.problem, self.scales, float(self.problem.weights @ curvature))


@final
class SampleHessian(Preconditioner):
    """The Hessian of a sample of the rows at one point: a few inner iterations then suffice at any conditioning."""

    forcing = 1e-3

    def __init__(self, factor: Array) -> None:
        self.factor = factor

    def solve(self, residual: Array) -> Array:
        return cho_solve((self.factor, False), residual, check_finite=False)

    def product(self, move: Array) -> Array:
        return self.factor.T @ (self.factor @ move)

    def at(self, curvature: Array) -> "SampleHessian":
        return self


def prepare(problem: Problem, start: Point) -> Preconditioner:
    """The preconditioner for a training that starts at a point."""
    sample = sample_of(problem)
    if sample is None:
        return ColumnScales(problem)
    bend = sample.weights * sample.loss.curvature(sample.y, sample.scores(start.coef, start.intercept))
    try:
        return SampleHessian(np.triu(cholesky(sample.hessian(bend), check_finite=False)))
    except LinAlgError:
        return ColumnScales(problem)
