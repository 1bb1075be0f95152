"""What is known of a retrained problem when its data changes, without retraining it."""

from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru.bounds import ScoreBounds, intersect, unbounded
from glru.certificate import Certificate, ball_radius
from glru.changes import AddRows, Change, RemoveRows, layout_of
from glru.changes.base import Composite, matched_columns, row_positions
from glru.existence import lacks_class, missing_optimum
from glru.linalg import FEW, Array, Matrix
from glru.losses import Hinge
from glru.point import Point
from glru.problem import Problem, not_in_memory, require_one_score
from glru.refine import newton_ellipsoids
from glru.regions import EVERY, PAPER, LocalEllipsoid, Region, has_local, regions_of, score_bounds
from glru.solution import Solution, dual_of
from glru.solvers import solve
from glru.solvers.newton import Until
from glru.updates import best_candidate, carried_point, carry
from glru.updates.local_rows import require_local

CandidateName = Literal["carry", "newton", "auto"]
BoundName = Literal["primal", "dual", "local", "auto"]

Verdict = Literal["yes", "no", "undetermined"]

BLOCK_STEPS = 3
"""Newton steps of a candidate over rows in blocks; each is a pass over the data."""

LOCAL_ENOUGH = 1e-8
"""The share of the first gradient's norm below which Newton steps under the local certificate end."""

MUCH_NARROWER = 1e-3
"""Where an interval has this share of the carried ball's width, regions around the carried model are not asked: they are wider."""


@final
@dataclass(frozen=True, eq=False)
class Retraining:
    """Whether retraining would change what a model says of some queries.

    Attributes
    ----------
    verdict : {"yes", "no", "undetermined"}
        ``"no"``: it proves to change nothing. ``"yes"``: it proves to change at least one. ``"undetermined"``: neither
        is proven without training.
    flips : array of int
        The queries that would change or could.
    proven : array of bool
        Which of these are proven to change.

    Examples
    --------
    >>> import numpy as np, glru
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> model = glru.GLRUClassifier(C=0.1).fit(X, X[:, 0] > 0.3)
    >>> model.needs_retraining(X[:5], remove=[0, 1]).verdict
    'no'
    """

    verdict: Verdict
    flips: NDArray[np.intp]
    proven: NDArray[np.bool_]

    @classmethod
    def of(cls, bounds: ScoreBounds, present: Array, within: float | None) -> "Retraining":
        """Whether the scores after retraining change the labels of the present ones, or move by more than ``within``."""
        changes, stays = bounds.changes(present, within)
        flips = np.flatnonzero(~stays)
        return cls("yes" if changes.any() else "no" if stays.all() else "undetermined", flips, changes[flips])


@final
@dataclass(frozen=True, eq=False, repr=False)
class After:
    """What is proven of the model that retraining on the changed data would give.

    Made by :func:`glru.after`. Every bound holds for the exact optimum of the changed problem, whether or not
    the old training had converged, and includes the rounding of its own computation.

    Attributes
    ----------
    solution : Solution
        The old model.
    change : Change
        What happens to its data.
    candidate : {"carry", "newton", "auto"}
        Which candidates are used; "auto" intersects what both prove where Newton applies.
    bound : {"primal", "dual", "local", "auto"}
        Which bounds are used; "auto" intersects all that apply.

    Examples
    --------
    >>> import numpy as np, glru
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> solution = glru.solve(glru.Problem(X, X[:, 0] > 0.3, penalty=glru.L2(0.1)))
    >>> after = glru.after(solution, glru.RemoveRows([0]))
    >>> lower, upper = after.coef_bounds()
    >>> bool(np.all(lower <= after.retrain(tol=1e-12).coef) and np.all(after.retrain(tol=1e-12).coef <= upper))
    True
    """

    solution: Solution
    change: Change
    candidate: CandidateName
    bound: BoundName

    @cached_property
    def problem(self) -> Problem:
        """The changed problem."""
        before = self.solution.problem
        return self.carried.problem if before.in_memory else change_blocks(before, self.change)

    @cached_property
    @np.errstate(all="ignore")  # overflow ends in infinite bounds: nothing is proven then
    def _in_blocks(self) -> tuple[LocalEllipsoid, float]:
        """Of rows in blocks: the smallest ellipsoid after a few Newton steps, and the passes that it took."""
        traffic = self.solution.problem.traffic
        before = traffic.passes
        found = list(islice(newton_ellipsoids(self.problem, self.solution.point), BLOCK_STEPS + 1))
        return min(reversed(found), key=lambda region: region.radius), traffic.passes - before

    @property
    def _held(self) -> bool:
        """Whether the rows are in memory; the changed problem is formed only if asked for."""
        return self.solution.problem.in_memory

    @property
    def n_passes(self) -> float:
        """Passes over rows in blocks."""
        return 0.0 if self._held else self._in_blocks[1]

    @cached_property
    @np.errstate(all="ignore")  # overflow ends in infinite bounds: nothing is proven then
    def carried(self) -> Certificate:
        """The certificate of the carried candidate."""
        return carry(self.solution, self.change)

    @cached_property
    @np.errstate(all="ignore")
    def _local(self) -> LocalEllipsoid | None:
        """The smallest local ellipsoid of Newton steps from the carried model, one Hessian each; None where there is none.

        It needs no dual point, so that it costs what a training from the carried model would.
        """
        if self.candidate != "auto" or self.bound not in ("auto", "local"):
            return None
        problem = self.problem
        if not has_local(problem) or (problem.fit_intercept and lacks_class(problem)):
            return None
        before = first = np.inf
        for step, region in enumerate(newton_ellipsoids(problem, self.carried.point)):
            if not region.nu < before:  # full steps overshoot here; those of the certificates are damped
                return None
            first = region.nu if step == 0 else first
            # Newton steps converge quadratically where the radius is little more than nu: one that gains little has met rounding.
            stalled = region.nu > 0.5 * before and region.radius <= 1.1 * region.nu
            if np.isfinite(region.radius) and (region.nu <= LOCAL_ENOUGH * first or stalled):
                return region
            before = region.nu
        return None

    @cached_property
    @np.errstate(all="ignore")
    def certificates(self) -> tuple[Certificate, ...]:
        """The certificates of the candidates in use, the best one first."""
        if not self._held:
            raise not_in_memory(self.solution.problem, "a certificate with a dual point")
        found = []
        if self.candidate in ("carry", "auto"):
            found.append(self.carried)
        if self.candidate == "newton" or (self.candidate == "auto" and has_newton(self.solution.problem)):
            start = carried_point(self.solution.problem, self.solution.point, self.change)
            best = best_candidate(self.problem, start, self.carried)
            # Regions around both points are intersected, so that Newton steps never widen an interval.
            found = [self.carried] if best is self.carried else [self.carried, best]
        return tuple(sorted(found, key=lambda certificate: certificate.gap))

    @property
    def _ellipsoid(self) -> LocalEllipsoid | None:
        """The local ellipsoid that stands for the best candidate, if there is one."""
        return self._local if self._held else self._in_blocks[0]

    @property
    def gap(self) -> float:
        """Upper bound of how far the objective of the best candidate is above the optimum of the changed problem."""
        if self._ellipsoid is not None:
            return self._ellipsoid.gap
        return self.certificates[0].gap

    @property
    @np.errstate(all="ignore")
    def radius(self) -> float:
        """No retrained coefficient vector is farther than this from the best candidate's; inf where that is unknown."""
        strength = (self.carried if self._held else self.problem).penalty.strong_convexity
        return float(ball_radius(self.gap / strength)) if strength > 0.0 else np.inf

    @property
    def point(self) -> Point:
        """The best candidate."""
        if self._ellipsoid is None:
            return self.certificates[0].point
        model = self._ellipsoid.point
        if not self._held:
            return model
        dual = dual_of(self.problem, self.problem.scores(model.coef, model.intercept))
        return Point(model.coef, model.intercept, dual)

    @cached_property
    @np.errstate(all="ignore")
    def remark(self) -> str | None:
        """Why the changed problem has no optimum or more than one, in which case nothing can be proven; None otherwise."""
        return missing_optimum(self.problem)

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """Every region in use; the retrained optimum lies in all of them."""
        if not self._held:
            return (self._in_blocks[0],)
        fit_intercept = self.solution.problem.fit_intercept
        found: list[Region] = []
        if fit_intercept and lacks_class(self.problem):
            return ()
        if self._local is not None:
            return (self._local, *(regions_of(self.carried, fit_intercept, PAPER) if self.bound == "auto" else ()))
        names = EVERY if self.bound == "auto" else (self.bound,)
        if self.bound == "auto" and self.candidate == "carry":
            names = PAPER
        for certificate in self.certificates:
            found.extend(regions_of(certificate, fit_intercept, names))
            names = tuple(name for name in names if name in PAPER)
        return tuple(found)

    @np.errstate(all="ignore")
    def score_bounds(self, X: Any) -> ScoreBounds:
        """Lower and upper bounds of the retrained scores ``X w* + b*``.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries, with the columns of the changed problem.
        """
        queries = self._queries(X)
        if self._held and self._local is not None:
            found = self._local.score_bounds(queries)
            if np.all(found[1] - found[0] <= MUCH_NARROWER * self._carried_width(queries)):
                return ScoreBounds(*found)
        return ScoreBounds(*score_bounds(self.regions, queries, self._dead))

    def _carried_width(self, queries: Matrix) -> Array:
        """The widths of the intervals of the ball around the carried model; infinite where that is not bounded."""
        strength = self.carried.penalty.strong_convexity
        if not strength > 0.0:
            return np.full(queries.shape[0], np.inf)
        return 2.0 * float(ball_radius(self.carried.gap / strength)) * np.sqrt(queries.squared_row_norms())

    @property
    def _dead(self) -> NDArray[np.bool_] | None:
        """Columns whose retrained coefficient is exactly zero; a primal bound of one change does without them."""
        if self._ellipsoid is not None or (self.candidate == "carry" and self.bound == "primal"):
            return None
        return self.certificates[0].columns.dead

    @property
    def _n_columns(self) -> int:
        return self.carried.coef.size if self._held else self.problem.n_columns

    def labels(self, X: Any) -> NDArray[Any]:
        """The retrained labels, classes as the caller has them; masked where they are not proven."""
        classes = self.solution.problem.classes
        if classes is None:
            raise ValueError("a regression has no labels. Use score_bounds.")
        return self.score_bounds(X).labels(classes)

    def decided(self, X: Any) -> NDArray[np.bool_]:
        """Which of the retrained labels are proven."""
        return self.score_bounds(X).decided

    def determination_rate(self, X: Any) -> float:
        """The share of queries whose retrained label is proven (the paper's label determination rate)."""
        return float(np.mean(self.score_bounds(X).decided))

    @np.errstate(all="ignore")
    def coef_bounds(self) -> tuple[Array, Array]:
        """Lower and upper bounds of the retrained coefficients; infinite where nothing is known (Remark 1)."""
        bounds = unbounded(self._n_columns)
        for region in self.regions:
            bounds = intersect(bounds, region.coef_bounds())
        return bounds

    @np.errstate(all="ignore")
    def intercept_bounds(self) -> tuple[float, float]:
        """Lower and upper bound of the retrained intercept."""
        ends = [region.intercept_bounds() for region in self.regions]
        return max((low for low, _ in ends), default=-np.inf), min((high for _, high in ends), default=np.inf)

    @np.errstate(all="ignore")
    def dual_bounds(self) -> tuple[Array, Array]:
        """Lower and upper bounds of the retrained dual variables (Theorem 1 (i-D)), one per row of the changed problem."""
        problem = self.problem
        lower, upper = self.score_bounds(problem.matrix)
        finite = np.nan_to_num(lower, neginf=-1e300), np.nan_to_num(upper, posinf=1e300)
        low = -problem.loss.derivative(problem.y, finite[1])[1]
        high = -problem.loss.derivative(problem.y, finite[0])[0]
        # Of an unbounded score the derivative at a large number is not the end.
        low, high = np.where(np.isposinf(upper), -np.inf, low), np.where(np.isneginf(lower), np.inf, high)
        slack = FEW * (1.0 + np.maximum(np.abs(low), np.abs(high)))
        edge = problem.loss.derivative_range(problem.y)
        return np.maximum(low - slack, -edge[1]), np.minimum(high + slack, -edge[0])

    def retrain(self, tol: float = 1e-6, until: Until | None = None) -> Solution:
        """Train the changed problem, starting from the best candidate.

        Parameters
        ----------
        tol : float, default=1e-6
            Target for the relative duality gap.
        until : callable, default=None
            As in :func:`glru.solve`; lets a decision stop the training early.
        """
        return solve(self.problem, tol=tol, start=self.point, until=until)

    def _queries(self, X: Any) -> Matrix:
        matrix, names = _inputs.as_matrix(X, "the queries")
        size = self._n_columns
        if matrix.shape[1] != size:
            raise ValueError(f"queries must have {size} columns, as the changed problem has; got {matrix.shape[1]}.")
        expected = self.change.check(layout_of(self.solution.problem)).column_names
        return matched_columns(matrix, names, expected)

    def __repr__(self) -> str:
        return (
            f"After({self.change!r}, candidate={self.candidate!r}, bound={self.bound!r}, gap={self.gap:.3g}, "
            f"radius={self.radius:.3g})"
        )


def after(solution: Solution, change: Change, candidate: CandidateName = "auto", bound: BoundName = "auto") -> After:
    """What is proven of a trained problem after a change; the parameters are those of :func:`glru.after`."""
    if not isinstance(solution, Solution):
        raise TypeError(f"solution must come from glru.solve; got {type(solution).__name__}.")
    if not isinstance(change, Change):
        raise TypeError(f"change must be a glru change such as glru.RemoveRows([3]); got {change!r}.")
    if candidate not in ("auto", "carry", "newton"):
        raise ValueError(f"candidate must be 'auto', 'carry' or 'newton'; got {candidate!r}.")
    if bound not in ("auto", "primal", "dual", "local"):
        raise ValueError(f"bound must be 'auto', 'primal', 'dual' or 'local'; got {bound!r}.")
    require_one_score(solution.problem, "glru.after")
    change.check(layout_of(solution.problem))
    loss, penalty = solution.problem.loss, solution.problem.penalty
    if candidate == "newton" and isinstance(loss, Hinge):
        raise ValueError("candidate='newton' needs a smooth loss; the hinge has no curvature. Use 'carry'.")
    if bound == "dual" and not np.isfinite(loss.smoothness):
        raise ValueError(f"bound='dual' needs a smooth loss; got {loss!r}. Use 'primal'.")
    if bound == "local" and (loss.self_concordance is None or not penalty.smooth):
        raise ValueError(
            f"bound='local' needs a self-concordant loss (logistic, squared) and an L2 penalty; got {loss!r} and {penalty!r}."
        )
    found = After(solution, change, candidate, bound)
    if not solution.problem.in_memory:
        require_local(solution.problem, "after")
        if candidate == "carry" or bound not in ("auto", "local"):
            raise ValueError(
                f"after of rows in blocks has candidate='newton' and bound='local' only; got {candidate!r} and {bound!r}."
            )
        # The passes are made now, over the data as it is now.
        _ = found._in_blocks
    return found


def change_blocks(problem: Problem, change: Change) -> Problem:
    """The problem of rows in blocks after some were removed or added; any other change is refused."""
    layout = layout_of(problem)
    steps = change.steps if isinstance(change, Composite) else (change,)
    kinds = tuple(type(step) for step in steps)
    if kinds not in ((RemoveRows,), (AddRows,), (RemoveRows, AddRows)):
        raise ValueError(
            "rows in blocks can be removed, added, or removed and then added; "
            f"got {change!r}. Use a glru.Problem of data in memory for other changes."
        )
    for step in steps:
        if isinstance(step, RemoveRows):
            problem = problem.without(np.sort(row_positions(step.rows, problem.n_rows)).astype(np.int64))
        elif isinstance(step, AddRows):
            problem = problem.extended(*step.block(layout))
    return problem.require_weight()


def has_newton(problem: Problem) -> bool:
    """Whether a Newton candidate exists and is affordable: a smooth loss and a system that can be solved directly."""
    return not isinstance(problem.loss, Hinge) and min(problem.n_rows, problem.n_columns) <= problem.largest
