"""A trained model with its proof: primal and dual point, cached products, duality gap."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import numpy as np

from glru import duality
from glru.certificate import Certificate, certify
from glru.linalg import Array
from glru.point import Point
from glru.problem import Problem

Status = Literal["converged", "stopped", "max_iter", "stalled"]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    r"""A model of a problem, with the duality gap that proves how good it is.

    For any point, converged or not, :math:`P(w, b) - P^* \le` ``gap``.

    Attributes
    ----------
    problem : Problem
        What was trained.
    coef, intercept : array of shape (n_columns,), float
        The model.
    dual : array of shape (n_rows,)
        Dual variables ``a``; at the optimum ``-a_i`` is a derivative of the loss at score ``i``.
    scores : array of shape (n_rows,)
        ``X w + b``.
    correlations : array of shape (n_columns,)
        ``X^T (s o a)``.
    row_terms, column_terms : array
        The non-negative terms that sum to the gap.
    primal_value, dual_value : float
        ``P(w, b)`` and ``D(a)``.
    gap, relative_gap : float
        ``P - D``, and the same divided by ``P``.
    n_iter : int
        Outer iterations of the solver.
    status : {"converged", "stopped", "max_iter", "stalled"}
        Why the solver ended: the gap reached ``tol``; ``until`` was true; ``max_iter`` was reached;
        float64 allowed no more progress.
    solver : str
        The solver's name.

    Examples
    --------
    >>> import numpy as np, glru
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> solution = glru.solve(glru.Problem(X, X[:, 0] > 0.3, penalty=glru.L2(0.1)), tol=1e-8)
    >>> solution.status, solution.relative_gap <= 1e-8
    ('converged', True)
    """

    problem: Problem
    coef: Array
    intercept: float
    dual: Array
    scores: Array
    correlations: Array
    row_terms: Array
    column_terms: Array
    primal_value: float
    gap: float
    n_iter: int
    status: Status
    solver: str

    @cached_property
    def dual_value(self) -> float:
        """``D(a)``; ``-inf`` where the dual point is infeasible."""
        return duality.dual_value(self.problem, self.dual, self.correlations)

    @property
    def relative_gap(self) -> float:
        """``gap / primal_value``; zero where both are zero."""
        return relative(self.gap, self.primal_value)

    @property
    def point(self) -> Point:
        """The primal-dual point."""
        return Point(self.coef, self.intercept, self.dual)

    @cached_property
    @np.errstate(all="ignore")  # overflow ends in infinite bounds: nothing is proven then
    def certificate(self) -> Certificate:
        """The point with a gap that rounding cannot break, and the sums that data changes are carried through."""
        return certify(self.problem, self.point, self.scores, self.correlations)

    def __repr__(self) -> str:
        return (
            f"Solution(primal_value={self.primal_value:.10g}, dual_value={self.dual_value:.10g}, gap={self.gap:.3g}, "
            f"relative_gap={self.relative_gap:.3g}, n_iter={self.n_iter}, status={self.status!r}, "
            f"solver={self.solver!r})"
        )


def solution_at(problem: Problem, point: Point, n_iter: int, status: Status, solver: str) -> Solution:
    """The solution at a point, with all products and the gap computed afresh from the data."""
    dual = point.dual
    if dual is None:
        dual = dual_of(problem, problem.scores(point.coef, point.intercept))
    gap = duality.gap(problem, point.coef, point.intercept, dual)
    coef, dual = point.coef.view(), dual.view()
    for array in (coef, dual, gap.scores, gap.correlations, gap.row_terms, gap.column_terms):
        array.setflags(write=False)
    return Solution(
        problem=problem,
        coef=coef,
        intercept=float(point.intercept),
        dual=dual,
        scores=gap.scores,
        correlations=gap.correlations,
        row_terms=gap.row_terms,
        column_terms=gap.column_terms,
        primal_value=duality.primal_value(problem, coef, gap.scores),
        gap=gap.value,
        n_iter=n_iter,
        status=status,
        solver=solver,
    )


def dual_of(problem: Problem, scores: Array) -> Array:
    """A dual feasible point from the loss derivatives at the scores."""
    return duality.feasible_dual(problem, -problem.loss.gradient(problem.y, scores))


def relative(gap: float, primal_value: float) -> float:
    """``gap / primal_value``; zero where both are zero."""
    if gap == 0.0:
        return 0.0
    return gap / primal_value if primal_value > 0.0 else np.inf
