"""A trained model with its proof: primal and dual point, cached products, duality gap."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, final

import numpy as np

from glru import duality
from glru.certificate import Certificate, certify
from glru.linalg import Array
from glru.problem import Point, Problem, make_memory_error
from glru.regions.class_sums import ClassSums
from glru.regions.local import LocalEllipsoid
from glru.sums import DualGap, Expansion, dual_gap, expand

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
        The model. With one score per class the coefficients have one line, the intercepts one entry per class; intercepts
        and coefficients of a column sum to zero over the classes.
    dual : array of shape (n_rows,)
        Dual variables ``a``; at the optimum ``-a_i`` is a derivative of the loss at score ``i``. One column per class where
        there is one score per class.
    scores : array of shape (n_rows,)
        ``X w + b``, likewise.
    correlations : array of shape (n_columns,)
        ``X^T (s o a)``, shaped as the coefficients.
    row_terms, column_terms : array
        The non-negative terms of the gap, one per row and one per column.
    primal_value, dual_value : float
        ``P(w, b)`` and ``D(a)``.
    gap, relative_gap : float
        At least ``P - P*``, proven: the rounding errors of its own computation are included. And the same divided by ``P``,
        infinite where that is zero. Computed when first asked for.
    solver_gap : float
        ``P - D`` as summed in float64, which the solver compares with ``tol``; the proven gap is larger by the rounding errors.
    n_iter, n_passes : int, float
        Outer iterations of the solver, and passes over rows in blocks.
    status : {"converged", "stopped", "max_iter", "stalled"}
        Why the solver ended: ``solver_gap`` reached ``tol``; ``until`` was true; ``max_iter`` was reached;
        float64 allowed no more progress.
    solver : str
        The solver's name.
    work : int
        Counted work of the training (:func:`glru.linalg.counted`); 0 where the model was not trained here.
    before : tuple of array or None
        The scores before the last step of a direct Newton training over the columns, and the upper triangle of the Hessian there.

    Notes
    -----
    For rows in blocks there are no dual variables and no terms: a row's dual variable is minus the derivative of the loss at
    its score.

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
    intercept: Any
    primal_value: float
    solver_gap: float
    n_iter: int
    status: Status
    solver: str
    known_pair: duality.Gap | None = None
    before: tuple[Array, Array] | None = None
    expansion: Expansion | None = None
    class_sums: ClassSums | None = None
    n_passes: float = 0.0
    work: int = 0

    @property
    def pair(self) -> duality.Gap:
        """The gap of rows in memory, with the dual point and its products."""
        if self.known_pair is None:
            raise make_memory_error(self.problem, "a solution's dual point")
        return self.known_pair

    @property
    def dual(self) -> Array:
        """Dual variables."""
        return self.pair.dual

    @property
    def scores(self) -> Array:
        """``X w + b``."""
        return self.pair.scores

    @property
    def correlations(self) -> Array:
        """``X^T (s o a)``."""
        return self.pair.correlations

    @property
    def row_terms(self) -> Array:
        """The rows' terms of the gap, in float64."""
        return self.pair.row_terms

    @property
    def column_terms(self) -> Array:
        """The columns' terms of the gap, in float64."""
        return self.pair.column_terms

    @cached_property
    def dual_value(self) -> float:
        """``D(a)``; ``-inf`` where the dual point is infeasible."""
        return duality.dual_value(self.problem, self.dual, self.correlations)

    @property
    def gap(self) -> float:
        """The objective is above its optimum by at most this much; proven."""
        # Rows in blocks are trained under a proven gap in the first place.
        return self.solver_gap if self.known_pair is None else self.certificate.gap

    def reached(self, tol: float) -> bool:
        """Whether the solver's gap is at most ``tol`` times the objective; the proven gap, where the solver has none."""
        # A dual point that misses an equality constraint by its rounding has no gap; the certificate moves it until it has one.
        gap = self.solver_gap if np.isfinite(self.solver_gap) else self.gap
        return relative(gap, self.primal_value) <= tol

    @property
    def relative_gap(self) -> float:
        """``gap / primal_value``; zero where both are zero, infinite where the objective alone is."""
        return relative(self.gap, self.primal_value)

    @property
    def point(self) -> Point:
        """The primal-dual point."""
        return Point(self.coef, self.intercept, None if self.known_pair is None else self.known_pair.dual)

    @cached_property
    def ellipsoid(self) -> LocalEllipsoid | None:
        """Where the optimum is, in the metric of the Hessian at the model; None where no Hessian was summed."""
        here = self.expansion
        if here is None or here.hessian is None:
            return None
        return LocalEllipsoid.of_sums(self.problem.totals, self.point, here)

    @cached_property
    def dual_gap(self) -> DualGap:
        """The duality gap with the dual point of the model's own derivatives; a pass over the data, or two."""
        return dual_gap(self.problem, self.point)

    @cached_property
    @np.errstate(all="ignore")  # overflow ends in infinite bounds: nothing is proven then
    def certificate(self) -> Certificate:
        """The point with a gap that rounding cannot break, and the sums that data changes are carried through."""
        return certify(self.problem, self.point, self.scores, self.correlations)

    def __repr__(self) -> str:
        dual = "" if self.known_pair is None else f"dual_value={self.dual_value:.10g}, "
        passes = "" if self.problem.in_memory else f"n_passes={self.n_passes:.3g}, "
        return (
            f"Solution(primal_value={self.primal_value:.10g}, {dual}gap={self.gap:.3g}, "
            f"relative_gap={self.relative_gap:.3g}, n_iter={self.n_iter}, {passes}status={self.status!r}, "
            f"solver={self.solver!r})"
        )


def make_solution(
    problem: Problem,
    point: Point,
    n_iter: int,
    status: Status,
    solver: str,
    before: tuple[Array, Array] | None = None,
    scores: Array | None = None,
) -> Solution:
    """The solution at a point, with all products and the gap computed afresh from the data.

    ``before``: kept, and with it the expansion there; ``scores``: the product of X with the coefficients, where it is known.
    """
    dual = point.dual
    here = None if before is None or not problem.unpenalised.size else expand(problem, point)
    scores = scores if here is None or here.rows is None else here.rows.scores
    if dual is None:
        scores = problem.scores(point.coef, point.intercept) if scores is None else scores
        dual = find_dual(problem, scores)
    gap = duality.gap(problem, point.coef, point.intercept, dual, scores)
    coef, dual = point.coef.view(), dual.view()
    for array in (coef, dual, gap.scores, gap.correlations, gap.row_terms, gap.column_terms):
        array.setflags(write=False)
    return Solution(
        problem=problem,
        coef=coef,
        intercept=np.asarray(point.intercept) if problem.loss.several else float(point.intercept),
        primal_value=(
            duality.primal_value(problem, coef, gap.scores)
            if here is None
            else here.value + float(problem.penalty.value(coef).sum())
        ),
        solver_gap=gap.value,
        n_iter=n_iter,
        status=status,
        solver=solver,
        known_pair=replace(gap, dual=dual),
        before=before,
        expansion=here,
    )


def shift_columns(solution: Solution) -> Solution:
    """The model after subtracting numbers near their means from columns far from zero, exactly (:meth:`glru.linalg.Matrix.find_exact_shifts`).

    As ``x . w + b = (x - c) . w + (b + c . w)``, the optimum is the same but for its intercept. Columns whose mean is large relative to their spread
    resemble the intercept, and rounding errors grow with that ratio; here they do not. The solution is returned as it is without an intercept, where no
    shift matters, and for wide data, which :class:`~glru.metric.rows.RowSide` centres.
    """
    problem, shifts = solution.problem, find_exact_shifts(solution.problem)
    if shifts is None:
        return solution
    shifted = problem.derive(X=problem.matrix.dense() - shifts)
    with np.errstate(over="ignore"):  # a gap that overflows is infinite
        point = Point(solution.coef, solution.intercept + solution.coef @ shifts, solution.dual)
        moved = make_solution(shifted, point, solution.n_iter, solution.status, solution.solver)
        return replace(moved, work=solution.work)


def find_exact_shifts(problem: Problem) -> Array | None:
    """What :func:`shift_columns` subtracts from the columns of a problem; None where no shift matters."""
    tall = problem.in_memory and problem.n_columns <= problem.n_rows
    return problem.matrix.find_exact_shifts() if problem.fit_intercept and tall else None


def find_dual(problem: Problem, scores: Array) -> Array:
    """A dual feasible point from the loss derivatives at the scores."""
    return duality.make_feasible_dual(problem, -problem.loss.gradient(problem.y, scores))


def relative(gap: float, primal_value: float) -> float:
    """``gap / primal_value``; zero where both are zero."""
    if gap == 0.0:
        return 0.0
    return gap / primal_value if primal_value > 0.0 else np.inf
