"""What is proven about the optimum of a changed problem: from the old model, then by Newton steps, then by a training that stops at a proof."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru._options import BoundName, Budget, CandidateName
from glru.bounds import ScoreBounds, convert_queries, intersect, is_decided, unbounded
from glru.certificate import Certificate, ball_radius, certify
from glru.changes import AddRows, Change, Composite, RemoveRows, locate_rows, read_layout
from glru.duality import explain_missing_optimum, lacks_class, make_feasible_dual
from glru.linalg import FEW, Array, Matrix
from glru.losses import CUT_OFF, Hinge
from glru.metric.rows import RowSide
from glru.problem import Point, Problem, make_memory_error
from glru.refine import (
    CLASS_TRAINED,
    LOCAL_STEPS,
    MAX_ASKED_GRADIENT,
    AllDecided,
    Refinement,
    approach,
    column_ellipsoids,
    follows_rows,
    has_products,
    row_ellipsoids,
)
from glru.regions import EVERY, PAPER, LocalEllipsoid, Region, has_local, list_regions, score_bounds
from glru.regions.classes import ClassBall, ClassEllipsoid, has_classes, make_unbounded_queries, require_classes
from glru.solution import Solution, find_dual
from glru.solvers import solve, train
from glru.solvers.newton import Until
from glru.updates.carry import carry, find_best_candidate, is_plain, make_feasible, move_point
from glru.updates.local_rows import require_local
from glru.updates.row_models import MAX_STEPS, RowEllipsoid, RowModels

PRODUCT_TOL = 1e-13
"""Relative gap of a training by products: the radius of its certificate goes with the root."""

LOCAL_ENOUGH = 1e-8
"""The share of the first gradient's norm below which Newton steps under the local certificate end."""

CLOSE_GAP = 1e-6
"""The share of the carried model's gap from which on Newton steps are not followed by a training."""


@final
@dataclass
class Progress:
    """How far the work on a changed problem has gone for the questions asked so far."""

    n_steps: int = 0  # Newton steps and iterations of a training
    n_passes: float = 0.0  # passes over rows in blocks with one score per class
    ended: bool = False  # whether float64 allows no narrower bounds
    trained: Certificate | None = None  # the best certificate of a training


@final
@dataclass(frozen=True, eq=False, repr=False)
class ChangedModel:
    """What is proven about the optimum of one problem after a change of its data.

    Queries are matrices with the columns of the changed problem. Every bound holds for the exact optimum of the changed problem, whether or not
    the old training had converged, and includes the rounding of its own computation.
    """

    solution: Solution  # the old model
    change: Change  # what happens to its data
    candidate: CandidateName  # which candidates are used; "auto" intersects what both prove where Newton applies
    bound: BoundName  # which bounds are used; "auto" intersects all that apply
    max_steps: int | None = None  # most Newton steps and iterations of a training
    max_seconds: float | None = None  # seconds that a question may take
    trains: bool = True  # whether a training takes over where Newton steps under the duality gap end early
    _progress: Progress = field(default_factory=Progress, init=False)

    @cached_property
    def problem(self) -> Problem:
        """The changed problem."""
        return self._start[0] if self._held else change_blocks(self.solution.problem, self.change)

    @cached_property
    def _start(self) -> tuple[Problem, Point]:
        """The changed problem of rows in memory and the old model there, whose dual variables need not be feasible."""
        return move_point(self.solution.problem, self.solution.point, self.change)

    @property
    def _held(self) -> bool:
        """Whether the rows are in memory; the changed problem is formed only if asked for."""
        return self.solution.problem.in_memory

    @property
    def n_passes(self) -> float:
        """Passes over rows in blocks."""
        if self._held:
            return 0.0
        return self._progress.n_passes if self._several else self._stepped[1]

    @property
    def n_steps(self) -> int:
        """Newton steps and iterations of a training that the questions asked so far have taken."""
        return self._progress.n_steps

    @property
    def _steps_left(self) -> int | None:
        return None if self.max_steps is None else max(self.max_steps - self.n_steps, 0)

    @cached_property
    @np.errstate(all="ignore")  # overflow ends in infinite bounds: nothing is proven then
    def carried(self) -> Certificate:
        """The certificate of the carried candidate."""
        if is_plain(self.solution.problem):
            return replace(carry(self.solution, self.change), make_problem=lambda: self.problem)
        return certify(self.problem, make_feasible(*self._start))

    @property
    def _local(self) -> LocalEllipsoid | RowEllipsoid | ClassEllipsoid | None:
        """The local ellipsoid after Newton steps from the carried model; None where it is not asked for, or not bounded."""
        if self._several:
            found = self._class_region
            return found if isinstance(found, ClassEllipsoid) and np.isfinite(found.radius) else None
        if not self._held:
            return self._stepped[0]
        if self.candidate != "auto" or self.bound not in ("auto", "local"):
            return None
        problem = self.problem
        if not (has_local(problem) or has_products(problem)) or (problem.fit_intercept and lacks_class(problem)):
            return None
        region = self._stepped[0]
        return region if np.isfinite(region.radius) else None

    @cached_property
    @np.errstate(all="ignore")  # overflow ends in infinite bounds: nothing is proven then
    def _stepped(self) -> tuple[LocalEllipsoid | RowEllipsoid, float]:
        """The local ellipsoid after Newton steps, one Hessian each, and the passes that it took.

        It needs no dual point, so that it costs what a training from the carried model would.
        """
        if self.by_rows:
            return self.row_ellipsoid, 0.0
        budget = Budget(self.max_seconds)
        problem, traffic = self.problem, self.solution.problem.traffic
        if self._held and has_products(problem):
            return self._train_by_products(problem, self.carried.point, budget), 0.0
        start = self._start[1] if self._held else self.solution.point
        passes, region = traffic.passes, self._step_until_close(problem, start, budget)
        if not (self._held or np.isfinite(region.radius) or self._steps_left == 0 or budget.spent):
            # Full steps overshoot here, and a shorter one costs a pass to try: a training has its own ways.
            trained = train(problem, tol=LOCAL_ENOUGH, start=region.point, max_iter=self._steps_left, budget=budget)
            self._progress.n_steps += trained.n_iter
            region = self._step_until_close(problem, trained.point, budget)
        return region, traffic.passes - passes

    @property
    def _several(self) -> bool:
        """Whether there is one score per class."""
        return self.solution.problem.loss.several

    @cached_property
    @np.errstate(all="ignore")
    def _class_region(self) -> ClassEllipsoid | ClassBall | None:
        """With one score per class, what holds the optimum after a training from the carried model; None if nothing does.

        The Hessian over classes and columns costs far more than a step by conjugate gradients, so that one is formed, near the optimum.
        """
        traffic = self.solution.problem.traffic
        problem, budget, before = self.problem, Budget(self.max_seconds), traffic.passes
        if lacks_class(problem):
            return None
        ellipsoid = self.bound != "primal" and has_classes(problem)
        point = self.carried.point if self._held else self.solution.point
        if self.candidate != "carry" and self._steps_left != 0:
            # The radius of a ball goes with the root of the gap.
            tol = CLASS_TRAINED if ellipsoid else PRODUCT_TOL
            trained = train(problem, tol=tol, start=point, max_iter=self._steps_left, budget=budget)
            self._progress.n_steps += trained.n_iter
            point = trained.point
        region = ClassEllipsoid.at(problem, point) if ellipsoid else ClassBall(certify(problem, point))
        self._progress.n_passes += traffic.passes - before
        return region

    @property
    def _class_regions(self) -> tuple[ClassEllipsoid | ClassBall, ...]:
        """:attr:`regions` with one score per class: the ball of the gap where the ellipsoid is not bounded."""
        region = self._class_region
        if region is None:
            return ()
        if self.bound != "auto" or isinstance(region, ClassBall) or np.isfinite(region.radius) or not self._held:
            return (region,)
        point = region.point
        dual = find_dual(self.problem, self.problem.scores(point.coef, point.intercept))
        return (region, ClassBall(certify(self.problem, Point(point.coef, point.intercept, dual))))

    def _narrow_classes(self, queries: Matrix, known: ScoreBounds) -> ScoreBounds:
        """:meth:`narrow` with one score per class: Newton steps in the metric that is there."""
        region, progress, budget = self._class_region, self._progress, Budget(self.max_seconds)
        while isinstance(region, ClassEllipsoid) and not (progress.ended or self._steps_left == 0 or budget.spent):
            stepped = region.take_step()
            progress.n_steps += 1
            progress.ended = not stepped.nu < 0.5 * region.nu
            if stepped.nu < region.nu:
                # Later questions start here.
                self.__dict__["_class_region"] = region = stepped
                known = known.intersect(region.score_bounds(self._drop_zero_columns(queries)))
            if np.all(known.decided):
                break
        return known

    def _train_by_products(self, problem: Problem, start: Point, budget: Budget) -> LocalEllipsoid:
        """The ellipsoid, in the metric of the penalty, after a training that factors nothing: quicker where data is large and sparse."""
        most = self._steps_left
        if most == 0:
            return LocalEllipsoid.at(problem, start, diagonal=True)
        trained = train(problem, tol=PRODUCT_TOL, start=start, max_iter=most, budget=budget)
        self._progress.n_steps += trained.n_iter
        return LocalEllipsoid.at(problem, trained.point, diagonal=True)

    @cached_property
    def by_rows(self) -> bool:
        """Whether Newton steps are made in the dimension of the rows: wide data in memory, a self-concordant loss."""
        rows_only = self._held and changes_only_rows(self.change)
        problem = self.solution.problem if rows_only else self.problem
        if not follows_rows(problem) or has_products(problem):
            return False
        added = (
            sum(np.shape(step.X)[0] for step in steps_of(self.change) if isinstance(step, AddRows)) if rows_only else 0
        )
        return problem.n_rows + added < problem.n_columns and problem.n_rows + added <= problem.largest

    @cached_property
    def _row_models(self) -> tuple[RowModels, tuple[Array, Array, Array]]:
        """The changed problem of wide data in the dimension of the rows, and a model to start from.

        Where only rows came or went, those that are gone stay without a weight, and the products of all rows are those of the training.
        """
        problem = self.solution.problem
        if not changes_only_rows(self.change):
            models = RowModels(self.problem)
            return models, models.place(self.carried.point)
        side, present = RowSide(problem), np.arange(problem.n_rows)
        for step in steps_of(self.change):
            if isinstance(step, RemoveRows):
                # A step counts the rows that the steps before it have left.
                gone = locate_rows(step.rows, present.size)
                problem, present = problem.without(present[gone]), np.delete(present, gone)
            else:
                before, problem = problem.n_rows, step.apply(problem)
                side = side.extend(problem.matrix[before:], problem)
                present = np.append(present, np.arange(before, problem.n_rows))
        models = RowModels(problem, side)
        return models, models.place(self.solution.point, self.solution.problem.weights)

    @cached_property
    @np.errstate(all="ignore")
    def row_ellipsoid(self) -> RowEllipsoid:
        """For wide data: the ellipsoid after Newton steps in the dimension of the rows, as far as float64 goes."""
        (models, start), budget = self._row_models, Budget(self.max_seconds)
        most, best = MAX_STEPS if self.max_steps is None else self._steps_left or 0, None
        for step, region in enumerate(row_ellipsoids(models, start, most)):
            self._progress.n_steps += int(step > 0)
            if best is None or region.radius < best.radius or not np.isfinite(best.radius):
                best = region
            if budget.spent:
                break
        assert best is not None
        return best

    def _step_until_close(self, problem: Problem, start: Point, budget: Budget) -> LocalEllipsoid:
        """The ellipsoid after Newton steps until they gain no more."""
        most = (LOCAL_STEPS if self.max_steps is None else self._steps_left) or 0
        begin = best = LocalEllipsoid.at(problem, start)
        if problem.in_memory and most and not (begin.nu < MAX_ASKED_GRADIENT or budget.spent):
            # Too far for a certificate: steps without one come first.
            start, made = approach(problem, start, None if self.max_steps is None else most)
            self._progress.n_steps += made
            begin, most = LocalEllipsoid.at(problem, start), most if self.max_steps is None else most - made
        before, first = np.inf, begin.nu
        for step, region in enumerate(islice(column_ellipsoids(problem, begin), most + 1)):
            self._progress.n_steps += int(step > 0)
            best = best if region.nu > best.nu else region
            # Newton steps converge quadratically where the radius is little more than nu: one that gains little has met rounding.
            stalled = region.nu > 0.5 * before and region.radius <= 1.1 * region.nu
            if (region.nu <= LOCAL_ENOUGH * first and np.isfinite(region.radius)) or stalled or budget.spent:
                break
            before = region.nu
        return best

    @cached_property
    @np.errstate(all="ignore")
    def certificates(self) -> tuple[Certificate, ...]:
        """The certificates of the candidates in use, the best one first."""
        if not self._held:
            raise make_memory_error(self.solution.problem, "a certificate with a dual point")
        found = []
        if self._several:
            region = self._class_region
            return (self.carried, *([region.certificate] if isinstance(region, ClassBall) else []))
        if self.candidate in ("carry", "auto"):
            found.append(self.carried)
        if self.candidate == "newton" or (self.candidate == "auto" and has_newton(self.solution.problem)):
            best = self._find_best_candidate()
            # Regions around both points are intersected, so that Newton steps never widen an interval.
            found = [self.carried] if best is self.carried else [self.carried, best]
        return tuple(sorted(found, key=lambda certificate: certificate.gap))

    def _find_best_candidate(self) -> Certificate:
        """The best certificate of the carried model and of Newton steps from it."""
        if self._steps_left == 0 and "_stepped" in self.__dict__:
            # All steps were spent on an ellipsoid that is not bounded: the gap of its centre may be.
            here = self._stepped[0].point
            dual = find_dual(self.problem, self.problem.scores(here.coef, here.intercept))
            stepped = certify(self.problem, Point(here.coef, here.intercept, make_feasible_dual(self.problem, dual)))
            return min(self.carried, stepped, key=lambda certificate: certificate.gap)
        start, best = make_feasible(*self._start), self.carried
        # A step under absolute values is a training of its own; of wide data, one that costs more than the training of the problem.
        tall = self.problem.n_rows >= self.problem.n_columns
        steps_only = self.candidate == "newton" or not self.trains
        if steps_only or self.problem.penalty.smooth or tall:
            best, made = find_best_candidate(self.problem, start, self.carried, self._steps_left)
            self._progress.n_steps += made
        if steps_only or self._steps_left == 0 or best.gap <= CLOSE_GAP * self.carried.gap:
            return best
        budget = Budget(self.max_seconds)
        trained = train(self.problem, tol=PRODUCT_TOL, start=best.point, max_iter=self._steps_left, budget=budget)
        self._progress.n_steps += trained.n_iter
        return min(best, trained.certificate, key=lambda certificate: certificate.gap)

    @property
    def _best(self) -> Certificate:
        """The certificate of the smallest gap."""
        trained = self._progress.trained
        return min([*self.certificates, *([] if trained is None else [trained])], key=lambda one: one.gap)

    @property
    def gap(self) -> float:
        """Upper bound of how far the objective of the best candidate is above the optimum of the changed problem."""
        if self._local is not None:
            return self._local.gap
        return self._best.gap

    @property
    @np.errstate(all="ignore")
    def radius(self) -> float:
        """No retrained coefficient vector is farther than this from the best candidate's; inf where that is unknown."""
        if isinstance(self._local, RowEllipsoid):
            return self._local.coef_radius
        strength = self.problem.penalty.strong_convexity
        # Without an optimum there is nothing to be near to.
        known = strength > 0.0 and not lacks_class(self.problem)
        return float(ball_radius(self.gap / strength)) if known else np.inf

    @property
    def point(self) -> Point:
        """The best candidate."""
        if self._local is None:
            return self._best.point
        model = self._local.point
        if not self._held:
            return model
        dual = find_dual(self.problem, self.problem.scores(model.coef, model.intercept))
        return Point(model.coef, model.intercept, dual)

    @cached_property
    @np.errstate(all="ignore")
    def remark(self) -> str | None:
        """Why the changed problem has no optimum or more than one, in which case nothing can be proven; None otherwise."""
        return explain_missing_optimum(self.problem)

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """Every region in use; the retrained optimum lies in all of them."""
        if self._several:
            return self._class_regions
        if not self._held:
            return (self._stepped[0],)
        fit_intercept = self.solution.problem.fit_intercept
        found: list[Region] = []
        if fit_intercept and lacks_class(self.problem):
            return ()
        if self._local is not None:
            # Beside an ellipsoid that Newton steps have narrowed as far as they can, those around the carried model are wide.
            limited = self.bound == "auto" and not (self.max_steps is None and self.max_seconds is None)
            return (self._local, *(list_regions(self.carried, fit_intercept, PAPER) if limited else ()))
        names = EVERY if self.bound == "auto" else (self.bound,)
        if self.bound == "auto" and self.candidate == "carry":
            names = PAPER
        for certificate in self.certificates:
            found.extend(list_regions(certificate, fit_intercept, names))
            names = tuple(name for name in names if name in PAPER)
        return tuple(found)

    def score_bounds(self, queries: Matrix) -> ScoreBounds:
        """Bounds of the retrained scores, after a training where labels need one."""
        return self.narrow(queries, self.bound_untrained(queries), are_decided)

    @np.errstate(all="ignore")
    def bound_untrained(self, queries: Matrix) -> ScoreBounds:
        """Bounds of the retrained scores of some queries around the carried model and the best candidate: nothing is trained until labels are decided."""
        if self._several:
            return self._class_bounds(queries)
        return ScoreBounds(*score_bounds(self.regions, queries, self._dead))

    def _class_bounds(self, queries: Matrix) -> ScoreBounds:
        """:meth:`bound_untrained` with one score per class."""
        found = convert_queries(*make_unbounded_queries(queries.shape[0], self.problem.n_scores))
        for region in self._class_regions:
            found = found.intersect(region.score_bounds(self._drop_zero_columns(queries)))
        return found

    @np.errstate(all="ignore")
    def narrow(self, queries: Matrix, known: ScoreBounds, enough: AllDecided) -> ScoreBounds:
        """Bounds of scores that a training from the best candidate narrows until all are decided, or a limit or float64 ends it.

        What an earlier question has trained serves this one, too.
        """
        if self._several:
            done = not self.may_train or bool(np.all(known.decided))
            return known if done else self._narrow_classes(queries, known)
        if not self.may_train or enough(*known):
            return known
        progress, names = self._progress, EVERY if self.bound == "auto" else (self.bound,)
        budget = Budget(self.max_seconds)
        work = Refinement(self.problem, queries, enough, names, budget, (known.lower, known.upper))
        if progress.trained is not None and work.take(progress.trained):
            return ScoreBounds(*work.found)
        if progress.ended or self._steps_left == 0:
            return ScoreBounds(*work.found)
        # A gap of 0 is out of reach: the training ends by a proof, or where float64 allows no more progress.
        solution = work.train(self.point, 0.0, thorough=False, asked=True, max_iter=self._steps_left)
        progress.n_steps += solution.n_iter
        progress.ended = not (work.done or self._steps_left == 0)
        found = certify(self.problem, work.point)
        if progress.trained is None or found.gap < progress.trained.gap:
            progress.trained = found
        return ScoreBounds(*work.found)

    @property
    def may_train(self) -> bool:
        """Whether questions about labels may go on to a training; of rows in blocks Newton steps went as far when they were made."""
        if self.candidate != "auto" or not self._held or self.solution.problem.loss.task == "regression":
            return False
        return self.remark is None

    def count_stages(self, first: NDArray[np.bool_], last: NDArray[np.bool_]) -> dict[str, int]:
        """How many labels each stage decides, from those that are decided before a training and in the end."""
        stepped = self._local is not None or any(one is not self.carried for one in self.certificates)
        stepped = stepped and not (self._several and (self.candidate == "carry" or self.max_steps == 0))
        early = "newton" if stepped else "carry"
        counts = {early: int(first.sum()), "training": int((last & ~first).sum()), "undetermined": int((~last).sum())}
        return {stage: count for stage, count in counts.items() if count}

    @property
    def _dead(self) -> NDArray[np.bool_] | None:
        """Columns whose retrained coefficient is exactly zero; a primal bound of one change does without them."""
        if self._local is not None or (self.candidate == "carry" and self.bound == "primal"):
            return None
        return self.certificates[0].columns.dead

    def lead_bounds(self, queries: Matrix) -> tuple[Array, Array]:
        """With one score per class, by how much the leading class of each query leads every other one at least and at most."""
        self.score_bounds(queries)  # its steps serve this question, too
        queries, n_scores = self._drop_zero_columns(queries), self.problem.n_scores
        found, regions = make_unbounded_queries(queries.shape[0], n_scores), self._class_regions
        for region in regions:
            found = intersect(found, region.queries(queries, regions[0].leaders(queries)))
        return found[0][:, n_scores:], found[1][:, n_scores:]

    def _drop_zero_columns(self, queries: Matrix) -> Matrix:
        """Queries without the columns whose retrained coefficients are exactly zero, where these are looked for."""
        if not self._held:
            return queries
        dead = self.problem.dead_columns
        return queries.scale_columns(np.where(dead, 0.0, 1.0)) if dead.any() else queries

    @np.errstate(all="ignore")
    def coef_bounds(self) -> tuple[Array, Array]:
        """Lower and upper bounds of the retrained coefficients; infinite where nothing is known (Remark 1)."""
        classes = (self.problem.n_scores,) if self._several else ()
        bounds = unbounded((*classes, self.problem.n_columns))
        for region in self.regions:
            bounds = intersect(bounds, region.coef_bounds())
        return bounds

    @np.errstate(all="ignore")
    def intercept_bounds(self) -> tuple[Any, Any]:
        """Lower and upper bound of the retrained intercept, or of those of every class."""
        ends = [region.intercept_bounds() for region in self.regions]
        if self._several:
            found = np.full(self.problem.n_scores, -np.inf), np.full(self.problem.n_scores, np.inf)
            for end in ends:
                found = intersect(found, end)
            return found
        return max((low for low, _ in ends), default=-np.inf), min((high for _, high in ends), default=np.inf)

    @np.errstate(all="ignore")
    def dual_bounds(self) -> tuple[Array, Array]:
        """Lower and upper bounds of the retrained dual variables (Theorem 1 (i-D)), one per row of the changed problem."""
        problem = self.problem
        if self._several:
            least, most = self.score_bounds(problem.matrix).probabilities()
            own = np.arange(problem.n_scores) == problem.y[:, None]
            return np.where(own, 1.0 - most - FEW, -most), np.where(own, 1.0 - least + FEW, -least)
        lower, upper = self.score_bounds(problem.matrix)
        # The derivative is monotone: what its evaluation does as an error of the score moves the ends outward.
        noise = problem.score_noise * (
            1.0 + np.abs(np.nan_to_num(np.maximum(np.abs(lower), np.abs(upper)), posinf=0.0))
        )
        finite = np.nan_to_num(lower - noise, neginf=-1e300), np.nan_to_num(upper + noise, posinf=1e300)
        low = -problem.loss.derivative(problem.y, finite[1])[1]
        high = -problem.loss.derivative(problem.y, finite[0])[0]
        # Of an unbounded score the derivative at a large number is not the end.
        low = np.where(np.isposinf(upper) | (low < -CUT_OFF), -np.inf, low)
        high = np.where(np.isneginf(lower) | (high > CUT_OFF), np.inf, high)
        slack = FEW * (1.0 + np.maximum(np.abs(low), np.abs(high)))
        least, most = problem.loss.outer_derivative_range(problem.y)
        return np.maximum(low - slack, -most), np.minimum(high + slack, -least)

    def retrain(self, tol: float, until: Until | None = None) -> Solution:
        """Train the changed problem, starting from the best candidate."""
        return solve(self.problem, tol=tol, start=self.point, until=until)


def steps_of(change: Change) -> tuple[Change, ...]:
    """The steps of a change."""
    return change.steps if isinstance(change, Composite) else (change,)


def changes_only_rows(change: Change) -> bool:
    """Whether a change adds and removes rows and does nothing else."""
    return all(isinstance(step, AddRows | RemoveRows) for step in steps_of(change))


def are_decided(lower: Array, upper: Array) -> bool:
    """Whether all intervals exclude zero."""
    return bool(np.all(is_decided(lower, upper)))


def change_model(
    solution: Solution,
    change: Change,
    candidate: CandidateName = "auto",
    bound: BoundName = "auto",
    max_steps: int | None = None,
    max_seconds: float | None = None,
    trains: bool = True,
) -> ChangedModel:
    """What is proven of a trained problem after a change; refuses what does not apply to it.

    The parameters are those of :func:`glru.after`, and ``trains`` of :class:`ChangedModel`.
    """
    if not isinstance(solution, Solution):
        raise TypeError(f"model must be a problem, a solution or an estimator; got {type(solution).__name__}.")
    if not isinstance(change, Change):
        raise TypeError(f"change must be a glru change such as glru.RemoveRows([3]); got {change!r}.")
    change.check(read_layout(solution.problem))
    loss, penalty = solution.problem.loss, solution.problem.penalty
    if candidate == "newton" and isinstance(loss, Hinge):
        raise ValueError("candidate='newton' needs a smooth loss; the hinge has no curvature. Use 'carry'.")
    if bound == "dual" and loss.several:
        raise ValueError(f"bound='dual' is for losses of one score; got {loss!r}. Use 'local' or 'primal'.")
    if bound == "dual" and not np.isfinite(loss.smoothness):
        raise ValueError(f"bound='dual' needs a smooth loss; got {loss!r}. Use 'primal'.")
    if bound == "local" and (loss.self_concordance is None or not penalty.smooth):
        raise ValueError(
            f"bound='local' needs a self-concordant loss (logistic, multinomial, squared or with a log link) and an L2 penalty; "
            f"got {loss!r} and {penalty!r}. Use 'auto'."
        )
    found = ChangedModel(solution, change, candidate, bound, max_steps, max_seconds, trains)
    if not solution.problem.in_memory:
        if loss.several:
            require_classes(solution.problem)
        else:
            require_local(solution.problem, "after")
        if candidate == "carry" or bound not in ("auto", "local"):
            raise ValueError(
                f"glru.after supports only candidate='newton' and bound='local' for rows in blocks; got {candidate!r} and {bound!r}."
            )
        # The passes are made now, over the data as it is now.
        _ = found._class_region if loss.several else found._stepped
    return found


def change_blocks(problem: Problem, change: Change) -> Problem:
    """The problem of rows in blocks after some were removed or added; any other change is refused."""
    layout = read_layout(problem)
    steps = steps_of(change)
    kinds = tuple(type(step) for step in steps)
    if kinds not in ((RemoveRows,), (AddRows,), (RemoveRows, AddRows)):
        raise ValueError(
            "rows in blocks can be removed, added, or removed and then added; "
            f"got {change!r}. Use a glru.Problem of data in memory for other changes."
        )
    for step in steps:
        if isinstance(step, RemoveRows):
            problem = problem.without(np.sort(locate_rows(step.rows, problem.n_rows)).astype(np.int64))
        elif isinstance(step, AddRows):
            problem = problem.extend(*step.block(layout))
    return problem.require_weight()


def has_newton(problem: Problem) -> bool:
    """Whether a Newton candidate exists and is affordable: a smooth loss and a system that can be solved directly."""
    return not isinstance(problem.loss, Hinge) and min(problem.n_rows, problem.n_columns) <= problem.largest
