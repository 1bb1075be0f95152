"""Tighten until decided: Newton steps of one problem, each followed by its certificate, then a training that stops by proof."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru import duality
from glru._options import UNLIMITED, Budget
from glru.bounds import Bounds, Decisions, concatenate, convert_queries, intersect, is_decided, unbounded
from glru.certificate import Certificate, certify
from glru.linalg import Array, Matrix
from glru.losses import Hinge
from glru.metric.classes import ClassMetric
from glru.metric.columns import ColumnMetric
from glru.metric.rows import uses_rows
from glru.penalties import L2
from glru.problem import Point, Problem
from glru.regions import EVERY, LocalEllipsoid, Region, has_local, has_support, list_regions, score_bounds
from glru.regions.classes import (
    ClassBall,
    ClassEllipsoid,
    compute_scores_with_errors,
    has_class_ball,
    has_classes,
    make_unbounded_queries,
    query_bounds,
)
from glru.regions.local import has_pieces
from glru.solution import Solution, find_dual, make_solution
from glru.solvers import State, train
from glru.solvers.api import prefers_products, starts_anywhere
from glru.solvers.multinomial import class_newton_cg, direct_is_cheaper
from glru.solvers.newton import Stop, Until, zero_point
from glru.sums import chunks, loss_hessian
from glru.updates import find_newton_candidate
from glru.updates.carry import choose_length_along, newton_step
from glru.updates.chord_folds import ChordFolds, FoldRows, has_chords, split_blocks
from glru.updates.class_folds import ClassFolds, has_class_folds
from glru.updates.folds import Folds, has_folds, has_steps
from glru.updates.row_models import MAX_STEPS, RowEllipsoid, RowModels, has_wide_rows
from glru.updates.support_rows import find_support, finds_supports_anywhere

NEWTON_STEPS = 8
"""Newton steps of one problem before it is trained in full."""

TRAINED = 1e-13
"""Relative gap of a training in full."""

CLASS_TRAINED, BALL_TOLS = 1e-9, (1e-11, 1e-14)
"""Relative gap of a training with one score per class, from which one or two Newton steps reach the limit of float64; and the gaps at which balls are tried before a Hessian is formed, since training further costs a fraction of it."""

SHORT_ROW = 0.005
"""Rows whose norm in the inverse metric is below this are rare: it is about the root of the columns' share of the rows."""

CHORDS = 2
"""Steps of models with one score per class that always share a Hessian; further ones share it while they leave less than ``CONVERGING``."""

STALLED = 0.9
"""A full Newton step near the optimum that leaves more than this share of the gradient's norm has reached the limit of rounding."""

CONVERGING = 0.1
"""After a Newton step that left less than this share of the gradient's norm, the next one is taken in full without evaluating the objective."""

SMALL_GRADIENT = 1e-4
"""With one score per class, bounds are computed at the cost of all rows' norms once the gradient's norm is below this."""

LOCAL_STEPS, MAX_ASKED_GRADIENT = 12, 0.2
"""Number of Newton steps under the local certificate alone, and the gradient norm below which it is tried."""

PRODUCT_TOLS = (1e-9, 1e-12, 0.0)
"""Relative gaps of successive trainings by products, each followed by bounds; 0: as far as float64 goes."""

TRAINED_FIRST = 1e-6
"""A training that starts where nothing more can be proven is first asked for bounds at this relative gap, the usual one of a training."""

SHRUNK = 0.01
"""A training is asked for bounds again once its gap has shrunk to this share: intervals shrink with its root."""

FOLD_START = 1e-3
"""Relative gap of the model of all rows, from which the models of the folds start."""

HESSIAN_COLUMNS, HESSIAN_ENTRIES = 64, 300_000
"""Columns and entries of dense data from which on Hessians take most of the time of chord steps."""

SPARED = 0.1
"""The share of a fold's labels that may stay open under penalties that are unlikely to win."""

HESSIAN_PRODUCTS = 30.0
"""If a Hessian costs no more than this many products, Newton steps of one fold form it even where cold trainings would not."""

FOLD_ENTRIES, CHORD_ENTRIES = 4_000_000, 16_000_000
"""The largest number of scores, of all rows under the models of the folds that are stepped together; by chord steps, which keep one array of that size, the weights."""

CHORD_EXPONENT = 0.1
"""The largest change in the logarithm of curvatures at which steps share a Hessian."""

APPROACH_STEPS, APPROACHED = 30, 0.1
"""The largest number of Newton steps without a certificate, and the move of scores (times the self-concordance constant) that ends them."""

AllDecided = Callable[[Array, Array], bool]
Closer = Callable[..., tuple[Bounds, str]]
Rows = NDArray[np.intp]


@final
@dataclass(frozen=True, eq=False)
class BlockRows:
    """Rows in blocks whose scores are asked about; ``numbers`` are sorted."""

    problem: Problem
    numbers: Rows

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows, and of columns."""
        return self.numbers.size, self.problem.n_columns

    def bounds(self, region: Region) -> Bounds:
        """Bounds of the rows' scores, in a pass over the blocks that hold them."""
        own = {k: here for k, (here, _) in self.problem.locate(self.numbers).items()}
        return concatenate(self.problem.map(_bound_rows, region, own=own))


def _bound_rows(part: Problem, places: Rows, region: Region) -> Bounds:
    """Bounds of the scores of some of a block's rows."""
    rows = part.take(places)
    lower, upper = np.empty(rows.n_rows), np.empty(rows.n_rows)
    for here, chunk in chunks(rows):
        lower[here], upper[here] = region.score_bounds(chunk.matrix)
    return lower, upper


@final
@dataclass(frozen=True, eq=False)
class Refined:
    """Bounds of the queries' scores, the stage that decided them, and the best point found."""

    lower: Array
    upper: Array
    stage: str
    point: Point


def refine(
    problem: Problem,
    point: Point,
    queries: Matrix,
    decided: AllDecided,
    names: Collection[str] = EVERY,
    certificate: Certificate | None = None,
    budget: Budget = UNLIMITED,
    stepped: bool = False,
) -> Refined:
    """Bounds of the scores of some queries under the optimum of a problem.

    ``point``: where to start, with a dual feasible point if the rows are in memory; ``decided(lower, upper)``: whether bounds are good enough; ``names``: the
    bounds to use, where without "local" no Newton step is made and the paper's bounds stop a training; ``certificate``: that of the point, if it is known,
    which is asked first; ``stepped``: whether steps under the local certificate alone were made from the point already. When the budget is spent, what is
    known by then is returned.
    """
    work = Refinement(problem, queries, decided, names, budget)
    # Under absolute values in the penalty a training costs less than Newton steps that fix the signs.
    steps = "local" in names and not has_support(problem)
    stage = work.newton(point, certificate, stepped) if steps else work.carry(point, certificate)
    if stage is None and not problem.in_memory:
        # The steps went on while bounds got better: a training in passes would prove no more.
        stage = "refine"
    if stage is None:
        stage = "training"
        work.train(work.point, TRAINED)
    return Refined(*work.found, stage, work.point)


@final
class Refinement:
    """Bounds of queries under the optimum of one problem, made tighter step by step until they are decided."""

    found: Bounds  # proven so far
    point: Point  # the best one so far
    region: Region | None = None  # the last one that was taken in

    def __init__(
        self,
        problem: Problem,
        queries: Matrix | BlockRows,
        decided: AllDecided,
        names: Collection[str] = EVERY,
        budget: Budget = UNLIMITED,
        found: Bounds | None = None,
    ) -> None:
        self.problem, self.queries, self.names, self.budget = problem, queries, names, budget
        self.decided = decided
        self.found = unbounded(queries.shape[0]) if found is None else found

    @property
    def done(self) -> bool:
        """Whether the bounds are good enough, or the time is up."""
        return self.decided(*self.found) or self.budget.spent

    @property
    def steppable(self) -> bool:
        """Whether Newton steps are made: the loss has a curvature, and the smaller system is formed."""
        return not isinstance(self.problem.loss, Hinge) and min(self.problem.matrix.shape) <= self.problem.largest

    def take_in(self, region: Region, dead: NDArray[np.bool_] | None) -> bool:
        """Take in what a region proves."""
        self.region, queries = region, self.queries
        proven = queries.bounds(region) if isinstance(queries, BlockRows) else score_bounds([region], queries, dead)
        self.found = intersect(self.found, proven)
        return self.done

    def take(self, certificate: Certificate, thorough: bool = True) -> bool:
        """Take in what a certificate proves, region by region until the bounds are decided; not ``thorough``: by the first that proves something."""
        for region in list_regions(certificate, self.problem.fit_intercept, self.names):
            if self.take_in(region, certificate.columns.dead):
                return True
            if not thorough and not (isinstance(region, LocalEllipsoid) and np.isinf(region.radius)):
                return False
        return False

    def carry(self, point: Point, certificate: Certificate | None = None) -> str | None:
        """Ask the certificate of a point; the stage if that settles the bounds."""
        self.point = point
        return "carry" if certificate is not None and self.take(certificate, self._thorough) else None

    @property
    def _thorough(self) -> bool:
        # If the ball is bounded and the local certificate costs more than a step, another step is the better choice.
        problem = self.problem
        return problem.fit_intercept or problem.penalty.strong_convexity == 0.0 or problem.n_rows >= problem.n_columns

    def newton(self, point: Point, certificate: Certificate | None = None, stepped: bool = False) -> str | None:
        """Newton steps from a point, each followed by its certificate; the stage that decided the bounds, or None.

        ``stepped``: those under the local certificate alone were made before. For rows in blocks there is only the local certificate, and each step is a pass over the data.
        """
        problem = self.problem
        if not problem.in_memory:
            return self.step_locally(point)
        if "local" in self.names and has_products(problem):
            stage = self.step_by_products(point)
            if stage is not None:
                return stage
        elif "local" in self.names and has_local(problem) and not stepped:
            stage = self.step_locally(point)
            if stage is not None:
                return stage
        if self.carry(point, certificate) is not None:
            return "carry"
        before, here = np.inf, point
        for step in range(NEWTON_STEPS if self.steppable else 0):
            candidate = find_newton_candidate(problem, here)
            better = candidate.gap < 0.5 * before
            last = step + 1 == NEWTON_STEPS
            if self.take(candidate, self._thorough or last or not better):
                self.point = candidate.point
                return "newton" if step == 0 else "refine"
            if not better:
                break
            here, before = candidate.point, candidate.gap
        # Full Newton steps may end farther from the optimum than they began.
        self.point = min(point, here, key=lambda p: _gap(problem, p))
        return None

    def step_locally(self, point: Point | LocalEllipsoid, dual: bool = True) -> str | None:
        """Newton steps under the local certificate alone, one Hessian each; the stage that decided the bounds, or None.

        A point whose gradient is far too large for a certificate is stepped on from without asking for one. ``dual``: whether the point that is
        kept has dual variables, of rows in memory.
        """
        problem = self.problem
        dead = problem.dead_columns if problem.in_memory else None
        for step, region in enumerate(newton_ellipsoids(problem, point)):
            if not problem.in_memory:
                self.point = region.point
            if region.nu < MAX_ASKED_GRADIENT and self.take_in(region, dead):
                here = region.point
                asked = dual and problem.in_memory
                found = find_dual(problem, problem.scores(here.coef, here.intercept)) if asked else None
                self.point = Point(here.coef, here.intercept, found)
                return ("carry", "newton")[step] if step < 2 else "refine"
            if self.budget.spent:
                break
        return None

    def step_by_products(self, point: Point) -> str | None:
        """Trainings by products alone, each sharper than the last, under the local certificate in the metric of the penalty."""
        problem = self.problem
        for tol in PRODUCT_TOLS:
            point = train(problem, tol=tol, start=point, budget=self.budget).point
            self.point = point
            if self.take_in(LocalEllipsoid.at(problem, point, diagonal=True), problem.dead_columns):
                return "refine"
        return None

    def tighten(self, point: Point) -> None:
        """Narrow the bounds by Newton steps under the local certificate, where there is one; no training."""
        if not self.done and has_local(self.problem):
            self.step_locally(point)

    def train(
        self,
        point: Point,
        tol: float,
        thorough: bool = True,
        asked: bool = False,
        max_iter: int | None = None,
    ) -> Solution:
        """Train from a point until the bounds are decided, or to a relative gap; ``thorough``: by all regions each time.

        ``asked``: the bounds hold what can be proven at the point already, so that the training goes on before it is asked.
        A gap that is small enough for a solver may still be large under the root of a radius: Newton steps go on from
        there while it shrinks.
        """
        problem = self.problem
        until = ask_rarely(
            lambda state: self.take(certify(problem, state.point), thorough),
            self.budget,
            asked,
        )
        last = train(problem, tol=tol, start=point, until=until, max_iter=max_iter)
        if self.done:
            self.point = last.point
            return last
        best = last.certificate
        self.take(best)
        left = NEWTON_STEPS if max_iter is None else min(NEWTON_STEPS, max_iter - last.n_iter)
        for _ in range(left if self.steppable and not self.done else 0):
            stepped = find_newton_candidate(problem, best.point)
            if not stepped.gap < 0.5 * best.gap:
                break
            best = stepped
            if self.take(best):
                break
        self.point = best.point
        return last


def ask_rarely(ask: Callable[[State], bool], budget: Budget, asked: bool) -> Until:
    """A stopping rule that asks about a state only where its gap makes an answer likely.

    Where a certificate costs more than an iteration, asking every time would cost more than the training. ``asked``: the bounds hold what the
    starting point proves, so that the gap has to shrink before a question.
    """
    goal: float | None = None

    def until(state: State) -> bool:
        nonlocal goal
        if goal is None:
            goal = TRAINED_FIRST * abs(state.primal_value)
            goal = min(SHRUNK * state.gap, goal) if asked else goal
        if not state.gap < goal:
            return budget.spent
        goal = SHRUNK * state.gap
        return ask(state)

    return until


def _gap(problem: Problem, point: Point) -> float:
    assert point.dual is not None
    value = duality.gap(problem, point.coef, point.intercept, point.dual).value
    return value if np.isfinite(value) else np.inf


def bound_by_certificate(certificate: Certificate, queries: Matrix) -> Bounds:
    """Everything that a certificate proves about the scores of some queries."""
    regions = list_regions(certificate, certificate.problem.fit_intercept)
    return score_bounds(regions, queries, certificate.columns.dead)


def has_products(problem: Problem) -> bool:
    """Whether a model is trained by products and certified in the metric of the penalty, which needs no factor."""
    local = problem.loss.self_concordance is not None and problem.penalty.smooth
    return local and problem.unpenalised.size == 0 and prefers_products(problem)


def follows_rows(problem: Problem) -> bool:
    """Whether Newton steps under the local certificate are made in the dimension of the rows: wide data in memory."""
    local = problem.loss.self_concordance is not None and not problem.loss.several
    return local and problem.in_memory and problem.arrays.stable and has_wide_rows(problem)


def row_ellipsoids(
    models: RowModels, start: tuple[Array, Array, Array], n_steps: int = MAX_STEPS
) -> Iterator[RowEllipsoid]:
    """The ellipsoids of wide data at a model (see :meth:`RowModels.place`) and after Newton steps from it, as far as float64 goes."""
    before = np.inf
    for region in models.follow(models.problem.weights, start, n_steps + 1):
        yield region
        limited = region.nu <= 2.0 * region.rounding or region.nu > 0.5 * before
        if limited and np.isfinite(region.radius):
            return
        before = region.nu


def newton_ellipsoids(problem: Problem, start: Point | LocalEllipsoid) -> Iterator[LocalEllipsoid | RowEllipsoid]:
    """The local ellipsoids at a point and after Newton steps from it, until steps near the optimum do not reduce the gradient's norm.

    Those of wide data are found in the dimension of the rows. ``start``: the point, or the ellipsoid there, if it is known.
    """
    if follows_rows(problem):
        models = RowModels(problem)
        return row_ellipsoids(models, models.place(start if isinstance(start, Point) else start.point))
    return column_ellipsoids(problem, start)


def column_ellipsoids(problem: Problem, start: Point | LocalEllipsoid) -> Iterator[LocalEllipsoid]:
    """The ellipsoids in the dimension of the columns, until a full step near the optimum does not reduce the gradient's norm.

    For rows in blocks, steps are made from sums. Rows in memory tell for the price of a product where the objective would rise: there a
    step is shortened.
    """
    before, length = np.inf, 1.0
    region = LocalEllipsoid.at(problem, start) if isinstance(start, Point) else start
    for _ in range(LOCAL_STEPS):
        yield region
        if not np.isfinite(region.nu):
            return
        # Far from the optimum the norm may rise, in a metric that changes, while the objective falls.
        risen = length == 1.0 and not region.nu < STALLED * before
        if risen and (not problem.in_memory or np.isfinite(region.radius)):
            return
        # Where a step has left a tenth, the next one converges quadratically.
        converging = region.nu < CONVERGING * before < np.inf or not problem.loss.self_concordance
        point, length = _step_on(problem, region, full=converging or not problem.in_memory)
        if length == 0.0:
            return
        before, region = region.nu, _make_next_ellipsoid(problem, region, point)


def _make_next_ellipsoid(problem: Problem, region: LocalEllipsoid, point: Point) -> LocalEllipsoid:
    """The ellipsoid at the end of a step: in the metric that is there, where the step was short or the loss is quadratic."""
    constant = problem.loss.self_concordance
    if region.base is not None and isinstance(region.metric, ColumnMetric) and constant is not None:
        carried = region.carry_to(point)
        if constant == 0.0 or (carried.exponent <= CHORD_EXPONENT and carried.nu < CONVERGING * region.nu):
            return carried
    return LocalEllipsoid.at(problem, point)


def approach(problem: Problem, point: Point, most: int | None = None) -> tuple[Point, int]:
    """The point after Newton steps without certificates, until a full step moves no score far or their limit is reached; and their number.

    The rows are in memory and the penalty is smooth. Such a step costs a fraction of one with a certificate. From a point above the zero model
    they start there: under exponentials of large scores a full step lowers these by one.
    """
    constant, scores = problem.loss.self_concordance or 0.0, problem.scores(point.coef, point.intercept)
    zero = zero_point(problem)
    at_zero = np.full(problem.n_rows, zero.intercept)
    if not duality.primal_value(problem, point.coef, scores) <= duality.primal_value(problem, zero.coef, at_zero):
        point, scores = zero, at_zero
    n_steps, most = 0, APPROACH_STEPS if most is None else min(most, APPROACH_STEPS)
    while n_steps < most:
        point, length = newton_step(problem, point, damped=True)
        n_steps += 1
        before, scores = scores, problem.scores(point.coef, point.intercept)
        if length == 0.0 or (length == 1.0 and constant * float(np.abs(scores - before).max()) < APPROACHED):
            break
    return point, n_steps


def _step_on(problem: Problem, region: LocalEllipsoid, full: bool) -> tuple[Point, float]:
    """The point after a Newton step from the centre of an ellipsoid, and the length of the step: 1 for a full one."""
    if problem.in_memory and uses_rows(problem):
        return newton_step(problem, region.point, damped=not full)
    length = 1.0 if full else choose_length_along(problem, region.point, region.step)
    return region.take_step(length), length


def bound_classes(
    problem: Problem,
    point: Point,
    queries: Matrix,
    reference: Rows | None,
    decided: AllDecided,
    budget: Budget = UNLIMITED,
    hopeful: float = MAX_ASKED_GRADIENT,
) -> tuple[Bounds, Point]:
    """Bounds of the queries of some rows under the optimum of a problem with one score per class.

    Newton steps are made from a point, each followed by its certificate, until the bounds are decided or a step does not halve the gradient's norm.
    The references, if none are given, are the labels of the model that the bounds are proven at. ``hopeful``: the gradient's norm from which on bounds
    are asked for.
    """
    found, asked = make_unbounded_queries(queries.shape[0], problem.n_scores), True

    def ask(region: ClassEllipsoid) -> Bounds:
        if not region.nu < hopeful:
            return found
        # Bounds of differences from one class say nothing of those from another.
        proven = region.queries(queries, region.leaders(queries) if reference is None else reference)
        return proven if reference is None else intersect(found, proven)

    for region in class_ellipsoids(problem, point):
        # Rows in unlike units are close by no bound that costs nothing, however small the gradient is.
        asked = region.is_close or region.nu < SMALL_GRADIENT
        if asked:
            found = ask(region)
        if budget.spent or (asked and decided(*found)):
            break
    return found if asked else ask(region), region.point


def class_ellipsoids(problem: Problem, point: Point) -> Iterator[ClassEllipsoid]:
    """Ellipsoids with one score per class after Newton steps from a point, as long as one halves the gradient's norm.

    Steps share a Hessian as long as they converge fast.
    """
    before, n_chords, region = np.inf, 0, ClassEllipsoid.at(problem, point)
    for _ in range(LOCAL_STEPS):
        yield region
        renewed = n_chords > 0 and not region.nu < (0.5 if n_chords < CHORDS else CONVERGING) * before
        if renewed:
            region, n_chords = ClassEllipsoid.at(problem, region.point), 0
        if not region.nu < 0.5 * before:
            if renewed:
                yield region
            return
        before, region, n_chords = region.nu, region.take_step(), n_chords + 1


def train_classes(
    problem: Problem,
    point: Point,
    queries: Matrix,
    reference: Rows | None,
    decided: AllDecided,
    budget: Budget = UNLIMITED,
) -> tuple[Bounds, Rows, Point]:
    """Bounds from the trained model, the references, which are its labels if none are given, and the model.

    The ball of the training's own gap is asked first, and before that one of a start with a dual point, which was trained elsewhere; where these decide too little and
    the Hessian is small enough to form, :func:`bound_classes`.
    """
    found = make_unbounded_queries(queries.shape[0], problem.n_scores)
    leaders: Rows = np.zeros(queries.shape[0], dtype=np.intp) if reference is None else reference
    formed, has_ball = has_classes(problem), has_class_ball(problem)
    first = TRAINED_FIRST if point.dual is None or not has_ball else None
    for tol in (BALL_TOLS if has_ball else (CLASS_TRAINED,)) if formed else (first, *PRODUCT_TOLS):
        best = None if tol is None else train(problem, tol=tol, start=point, budget=budget)
        point = point if best is None else best.point
        if reference is None:
            # Bounds of differences from one class say nothing of those from another.
            leaders = (queries @ point.coef.T + point.intercept).argmax(axis=1)
            found = make_unbounded_queries(queries.shape[0], problem.n_scores)
        if has_ball:
            ball = ClassBall(certify(problem, point) if best is None else best.certificate)
            found = intersect(found, ball.queries(queries, leaders))
        if decided(*found) or budget.spent:
            return found, leaders, point
    if formed:
        closer, point = bound_classes(problem, point, queries, leaders, decided, budget)
        found = intersect(found, closer)
    return found, leaders, point


def _bound_class_fold(
    fold: Problem, test: Rows, start: Point, width: float | None, budget: Budget, aim: float | None
) -> tuple[Bounds, str]:
    """:func:`bound_single_fold` with one score per class: Newton steps from the model of all rows, those with certificates where they have converged, or a training where they do not."""
    if budget.spent:
        return convert_queries(*make_unbounded_queries(test.size, fold.n_scores)), "undetermined"

    def decided(lower: Array, upper: Array) -> bool:
        known = convert_queries(lower, upper)
        return bool(np.all(known.enough(width))) and (aim is None or bool(np.all(known.enough(aim))))

    if not fold.in_memory:
        return _bound_class_block_fold(fold, test, start, decided, budget)
    queries = fold.matrix[test]
    # Where no more than labels is asked of a large Hessian, the ball of a training by products is cheaper.
    if has_classes(fold) and (width is not None or aim is not None or direct_is_cheaper(fold)):
        # Half the width of an interval is the norm of its row times the gradient's.
        asked = min(MAX_ASKED_GRADIENT, (aim or width or 1.0) / SHORT_ROW)
        if not direct_is_cheaper(fold):
            start = class_newton_cg(fold, start, Stop(CLASS_TRAINED, None, NEWTON_STEPS)).point
        bounds = convert_queries(*bound_classes(fold, start, queries, None, decided, budget, asked)[0])
        if np.all(bounds.enough(width)):
            return bounds, "refine"
    bounds = convert_queries(*train_classes(fold, start, queries, None, decided, budget)[0])
    return bounds, "training" if np.all(bounds.enough(width)) else "undetermined"


def _bound_class_folds(
    problem: Problem,
    folds: Sequence[Problem],
    tests: Sequence[Rows],
    solution: Solution | Callable[[], Solution],
    width: float | None,
    budget: Budget,
    aim: float | None,
) -> Iterator[tuple[Bounds, str]]:
    """:func:`bound_folds` with one score per class, all models stepped together; those that this leaves open one by one."""

    def enough(lower: Array, upper: Array, asked: float | None) -> Decisions:
        return convert_queries(lower, upper).enough(asked)

    def decided(lower: Array, upper: Array) -> Decisions:
        good = enough(lower, upper, width)
        return good if aim is None else good & enough(lower, upper, aim)

    family = ClassFolds(problem, folds)
    start = solution.point if isinstance(solution, Solution) else family.find_common(budget)
    for fold, test, (queries, point) in zip(folds, tests, family.bounds(start, tests, decided, budget), strict=True):
        bounds = convert_queries(*queries)
        if np.all(bounds.enough(width)):
            yield bounds, "newton"
        else:
            # Under weights of very different sizes steps may overflow.
            known = np.isfinite(point.coef).all() and np.isfinite(point.intercept).all()
            yield _bound_class_fold(fold, test, point if known else zero_point(fold), width, budget, aim)


def _bound_class_block_fold(
    fold: Problem, test: Rows, start: Point, decided: AllDecided, budget: Budget
) -> tuple[Bounds, str]:
    """:func:`_bound_class_fold` of rows in blocks: Newton steps, one pass each, and one over the tested rows where bounds are worth asking for."""
    found = make_unbounded_queries(test.size, fold.n_scores)
    place = {k: own for k, (own, _) in fold.locate(test).items()}
    for region in class_ellipsoids(fold, start):
        if region.nu < MAX_ASKED_GRADIENT:
            parts = fold.map(_bound_class_queries, region.point, region.metric, region.radius, own=place)
            found = concatenate(parts)
        if budget.spent or decided(*found):
            break
    bounds = convert_queries(*found)
    return bounds, "refine" if decided(*found) else "undetermined"


def _bound_class_queries(part: Problem, places: Rows, point: Point, metric: ClassMetric, radius: float) -> Bounds:
    """Bounds of the queries of some rows of a block, from an ellipsoid around a point."""
    X = part.matrix[places]
    scores, errors = compute_scores_with_errors(X, point, part.fit_intercept)
    if not np.isfinite(radius):
        return make_unbounded_queries(*scores.shape)
    radii = np.full(len(scores), radius)
    return query_bounds(scores, metric.all_forms(X), metric.unit, radii, errors, scores.argmax(axis=1))


def bound_folds(
    problem: Problem,
    folds: Sequence[Problem],
    tests: Sequence[Rows],
    solution: Solution | Callable[[], Solution],
    width: float | None,
    budget: Budget = UNLIMITED,
    aim: float | None = None,
) -> Iterator[tuple[Bounds, str]]:
    """Bounds of some rows' scores in every one of some problems of the same rows and columns, and the stages that decided them.

    ``folds``: the problems, with the data of ``problem``, that of all rows, under other weights and strengths; ``tests``: the rows that are asked about, problem
    by problem; ``solution``: the model of all rows, or how it is found where the folds are not stepped together; ``width``, ``aim``: the widths to reach, the
    second one as far as a few Newton steps under the local certificate do. When the budget is spent, what is known by then is returned.
    """
    unique = duality.penalise_dependent_columns(problem)
    if unique is not problem:
        pinned = unique.quadratic > problem.quadratic
        folds = [fold.derive(penalty=L2(np.where(pinned, unique.quadratic, fold.quadratic))) for fold in folds]
        problem, solution = unique, partial(train, unique, budget=budget)
    if problem.loss.several:
        if has_class_folds(problem, folds):
            yield from _bound_class_folds(problem, folds, tests, solution, width, budget, aim)
            return
        start = solution.point if isinstance(solution, Solution) else train(problem, FOLD_START, budget=budget).point
        for fold, test in zip(folds, tests, strict=True):
            yield _bound_class_fold(fold, test, start, width, budget, aim)
        return
    if not has_folds(problem):
        hessians: Sequence[Any] = [None] * len(folds)
        known: Solution | None = None
        if problem.in_memory and _is_quadratic(problem):
            hessians = quadratic_hessians(problem, folds, tests)
        elif problem.in_memory and starts_anywhere(problem):
            pass
        elif isinstance(solution, Solution):
            known = solution
        elif problem.in_memory and problem.loss.self_concordance == 0.0 and has_wide_rows(problem):
            # A Newton step ends at the optimum, wherever it begins.
            known = make_solution(problem, zero_point(problem), 0, "stopped", "newton")
        elif not (problem.in_memory and finds_supports_anywhere(problem)):
            known = solution()
        point = zero_point(problem) if known is None else known.point
        for fold, test, hessian in zip(folds, tests, hessians, strict=True):
            yield bound_single_fold(problem, point, known, fold, test, width, budget, aim, hessian)
        return
    known_start = solution.point if isinstance(solution, Solution) else None
    for _, bounds, more in bound_grid([problem], [folds], tests, width, budget, aim, known_start):
        yield (bounds, "newton") if more is None else more()


def _is_quadratic(problem: Problem) -> bool:
    """Whether one Newton step over the columns ends at the optimum, wherever it begins."""
    return problem.loss.self_concordance == 0.0 and has_local(problem) and not uses_rows(problem)


def quadratic_hessians(problem: Problem, folds: Sequence[Problem], tests: Sequence[Rows]) -> Sequence[Any]:
    """The losses' Hessians of folds with a quadratic loss, which cost as much as one; None for each where folds weigh rows differently."""
    blocks = split_blocks(problem, folds, tests) if problem.arrays.stable else None
    if blocks is None:
        return [None] * len(folds)
    curvatures = problem.weights * problem.loss.curvature(problem.y, np.zeros(problem.n_rows))
    spans = [blocks.order[first:last] for first, last in pairwise(blocks.edges)]
    grams = [loss_hessian(problem.take(rows), curvatures[rows]) for rows in spans]
    return [
        sum(float(share) * gram for share, gram in zip(shares, grams, strict=True) if share)
        for shares in blocks.shares.T
    ]


def bound_grid(
    problems: Sequence[Problem],
    folds: Sequence[Sequence[Problem]],
    tests: Sequence[Rows],
    width: float | None,
    budget: Budget = UNLIMITED,
    aim: float | None = None,
    start: Point | None = None,
) -> Iterator[tuple[int, Bounds, Closer | None]]:
    """The bounds of :func:`bound_folds` under several penalties, where :func:`~glru.updates.folds.has_folds` of them.

    Yields the place of a penalty, bounds, and where these are not narrow enough how to get closer ones, alone and at more expense; those of
    one penalty in the order of its folds. The data and the weights, also those of the folds, are the same under all penalties; ``start``: the model of
    all rows under the first one, if it is known.
    """
    first, n_most = problems[0], CHORD_ENTRIES if has_chords(problems[0]) else FOLD_ENTRIES
    for batch in _batches(tests, first.n_rows, max(1, n_most // first.n_rows)):
        grid = _Grid(problems, [one[batch] for one in folds], tests[batch], width, budget, aim, start)
        rows = FoldRows.of(first, grid.folds[0], grid.tests) if has_chords(first) else None
        if rows is not None:
            yield from _bound_by_chords(grid, rows)
        else:
            yield from _bound_by_steps(grid) if has_steps(first) else _bound_singly(grid)


@final
@dataclass(frozen=True, eq=False)
class _Grid:
    """What is asked about folds under some penalties: the problem of all rows and those of the folds under each, the folds' test rows, and how closely; ``start`` as in :func:`bound_grid`."""

    problems: Sequence[Problem]
    folds: Sequence[Sequence[Problem]]
    tests: Sequence[Rows]
    width: float | None
    budget: Budget
    aim: float | None
    start: Point | None

    @property
    def start_model(self) -> Array:
        """The start as one array, the intercept last."""
        return (zero_point(self.problems[0]) if self.start is None else self.start).pack(self.problems[0].fit_intercept)

    def decided(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """Where bounds are as narrow as they are asked for."""
        found = is_decided(lower, upper, self.width)
        return found if self.aim is None else found & is_decided(lower, upper, self.aim)

    def bound_alone(
        self, place: int, k: int, start: Array | Point, known: Bounds, others: Sequence[int] = ()
    ) -> tuple[Bounds, str]:
        """Closer bounds of a fold under a penalty than those that are known, on its own, from a model near it."""
        problem = self.problems[place]
        if not isinstance(start, Point):
            start = start if np.all(np.isfinite(start)) else np.zeros(start.size)
            start = Point.unpack(start, problem.fit_intercept)
        fold, test = self.folds[place][k], self.tests[k]
        more, stage = bound_single_fold(problem, start, None, fold, test, self.width, self.budget, self.aim)
        return intersect(known, more), stage


def _bound_singly(grid: _Grid) -> Iterator[tuple[int, Bounds, Closer | None]]:
    """:func:`bound_grid` where nothing is known about the folds before each is asked for alone."""
    for place, problem in enumerate(grid.problems):
        start = train(problem, FOLD_START, budget=grid.budget).point
        for k, test in enumerate(grid.tests):
            yield place, unbounded(test.size), partial(grid.bound_alone, place, k, start, unbounded(test.size))


def _bound_by_steps(grid: _Grid) -> Iterator[tuple[int, Bounds, Closer | None]]:
    """:func:`bound_grid` by :class:`~glru.updates.folds.Folds`, as many penalties together as their scores leave room for."""
    first, n_folds, model = grid.problems[0], len(grid.tests), grid.start_model[:, None]
    together = max(1, FOLD_ENTRIES // (first.n_rows * n_folds))
    for begin in range(0, len(grid.problems), together):
        mine = [fold for one in grid.folds[begin : begin + together] for fold in one]
        family = Folds(first, mine, len(mine) // n_folds)
        # Newton steps find the models of a quadratic objective from anywhere; others start at the model of all rows.
        if first.loss.self_concordance != 0.0 and (grid.start is None or begin > 0):
            common = family.find_common(model, grid.budget)
            model, common = common[:, -1:], np.repeat(common, n_folds, axis=1)
        else:
            common = model
        steps = _Steps(grid, family, begin)
        steps.run(common, range(family.n_penalties), 0.0 if len(grid.problems) == 1 else SPARED)
        for k, bounds in enumerate(steps.found):
            yield begin + k // n_folds, bounds, None if steps.is_narrow(k) else partial(steps.closer, k)


@final
class _Steps:
    """Folds of some penalties that were stepped together, the first of them at ``begin``: what is known about them, and where they stand."""

    def __init__(self, grid: _Grid, family: Folds, begin: int) -> None:
        self.grid, self.family, self.begin = grid, family, begin
        self.tests = [*grid.tests] * family.n_penalties
        self.found = [unbounded(test.size) for test in self.tests]
        self.finished: set[int] = set()

    def run(self, start: Array, penalties: Iterable[int], spared: float) -> None:
        """Step the folds of some penalties, until all but a share of their rows are decided."""
        family = self.family
        columns = np.flatnonzero(np.isin(family.penalty_of[: family.n_models], list(penalties)))
        if not columns.size:
            return
        tests = [self.tests[k] for k in columns]
        found, models = family.bounds(start, tests, self.grid.decided, self.grid.budget, spared, columns)
        self.models = np.where(np.isfinite(models), models, 0.0)
        for k, bounds in zip(columns, found, strict=True):
            self.found[k] = intersect(self.found[k], bounds)

    def is_narrow(self, k: int) -> bool:
        """Whether a fold needs no closer bounds: of losses with kinks, whose steps may end early, narrow ones are asked for."""
        bounds, (place, fold) = self.found[k], divmod(k, len(self.grid.tests))
        local = has_local(self.grid.folds[self.begin + place][fold])
        return bool(np.all(is_decided(*bounds, self.grid.width) if local else self.grid.decided(*bounds)))

    def closer(self, k: int, others: Sequence[int] = ()) -> tuple[Bounds, str]:
        """Closer bounds of a fold: by further steps of all folds of its penalty and of others, where there are more, then alone."""
        penalty = int(self.family.penalty_of[k])
        if len(self.grid.problems) > 1 and penalty not in self.finished:
            places = {penalty, *(other - self.begin for other in others)} - self.finished
            self.finished |= places
            self.run(self.models, places, 0.0)
        if self.is_narrow(k):
            return self.found[k], "newton"
        place, fold = self.begin + penalty, k % len(self.grid.tests)
        return self.grid.bound_alone(place, fold, self.models[:, k], self.found[k])


def _bound_by_chords(grid: _Grid, rows: FoldRows) -> Iterator[tuple[int, Bounds, Closer | None]]:
    """:func:`bound_grid` by :class:`~glru.updates.chord_folds.ChordFolds`. With several penalties by a fold's first step alone: the others come at more expense."""
    first, columns = grid.problems[0], grid.problems[0].n_columns
    if grid.start is None and (
        first.loss.piecewise or (columns >= HESSIAN_COLUMNS and rows.data.size >= HESSIAN_ENTRIES)
    ):
        # There may be no curvature at all at zero, and a training may form fewer Hessians than there are steps.
        grid = replace(grid, start=train(first, FOLD_START, budget=grid.budget).point)
    alone = len(grid.problems) == 1
    work = ChordFolds(rows, grid.folds, grid.tests, grid.decided)
    work.start(grid.start_model, grid.start is not None, 1.0 if alone else SPARED, grid.budget)
    if alone:
        work.finish([0], grid.budget)
    for k, is_open in enumerate(work.is_open()):
        yield k // work.n_folds, work.bounds(k), partial(_finish_chords, grid, work, k) if is_open else None


def _finish_chords(grid: _Grid, work: ChordFolds, k: int, others: Sequence[int] = ()) -> tuple[Bounds, str]:
    """Closer bounds of a fold: by the chord steps of all folds of its penalty and of others, then alone."""
    place, fold = divmod(k, work.n_folds)
    work.finish([place, *others], grid.budget)
    bounds = work.bounds(k)
    if np.all(is_decided(*bounds, grid.width)):
        return bounds, "newton"
    return grid.bound_alone(place, fold, work.model(k), bounds)


def _batches(tests: Sequence[Rows], n_rows: int, n_most: int) -> Iterator[slice]:
    """At most some consecutive folds each, whose tests have no row in common."""
    begin, seen = 0, np.zeros(n_rows, dtype=np.bool_)
    for k, test in enumerate(tests):
        if k > begin and (k - begin >= n_most or seen[test].any()):
            yield slice(begin, k)
            begin, seen = k, np.zeros(n_rows, dtype=np.bool_)
        seen[test] = True
    yield slice(begin, len(tests))


def bound_single_fold(
    data: Problem,
    start: Point,
    solution: Solution | None,
    problem: Problem,
    test: Rows,
    width: float | None,
    budget: Budget,
    aim: float | None,
    hessian: Any = None,
) -> tuple[Bounds, str]:
    """Bounds of some rows' scores in one problem, and the stage that decided them.

    ``solution``: of all rows, for wide data; ``hessian``: of the losses, if it is known.
    """
    if problem.loss.several:
        return _bound_class_fold(problem, test, start, width, budget, aim)
    if budget.spent or duality.has_spare_columns(problem):
        return unbounded(test.size), "undetermined"

    def decided(lower: Array, upper: Array) -> bool:
        return bool(np.all(is_decided(lower, upper, width)))

    def narrow(lower: Array, upper: Array) -> bool:
        return decided(lower, upper) and (aim is None or bool(np.all(is_decided(lower, upper, aim))))

    if not problem.in_memory:
        work = Refinement(problem, BlockRows(data, test), decided, budget=budget)
        stage = work.newton(start)
        return work.found, stage if stage is not None and decided(*work.found) else "undetermined"
    if solution is not None and has_wide_rows(problem):
        models = RowModels(problem)
        near = models.retrained(
            problem.weights,
            models.place(solution.point, solution.problem.weights),
            test,
            lambda *ends: budget.spent or narrow(*ends),
        )
        if near.exhausted or budget.spent or decided(near.lower, near.upper):
            done = decided(near.lower, near.upper) or not budget.spent
            return (near.lower, near.upper), "refine" if done else "undetermined"
    queries = problem.matrix[test]
    formed = problem.matrix.gram_cost + 0.02 * float(problem.n_columns) ** 3
    cheap = formed <= HESSIAN_PRODUCTS * problem.matrix.product_cost
    stepped = has_local(problem) and not uses_rows(problem) and (cheap or not has_products(problem))
    if stepped:
        steps = Refinement(problem, queries, narrow, budget=budget)
        begin = start if hessian is None else LocalEllipsoid.at(problem, start, hessian=hessian)
        stage = steps.step_locally(begin, dual=False)
        if decided(*steps.found):
            return steps.found, stage or "refine"
    if has_support(problem):
        proven = find_support(problem, start).score_bounds(queries)
        if decided(*proven):
            return proven, "newton"
    if has_pieces(problem):
        # Between kinks a training ends at the optimum but for rounding.
        start = train(problem, TRAINED, start=start, budget=budget).point
        proven = LocalEllipsoid.at(problem, start).score_bounds(queries)
        if narrow(*proven):
            return proven, "training"
    dual = find_dual(problem, problem.scores(start.coef, start.intercept)) if start.dual is None else start.dual
    point = Point(start.coef, start.intercept, duality.make_feasible_dual(problem, dual))
    # Where the loss has kinks nothing is tightened below: a step or a training that goes on costs little more.
    found = refine(problem, point, queries, decided if has_local(problem) else narrow, budget=budget, stepped=stepped)
    if budget.spent and not decided(found.lower, found.upper):
        return (found.lower, found.upper), "undetermined"
    closer = Refinement(problem, queries, narrow, budget=budget, found=(found.lower, found.upper))
    closer.tighten(found.point)
    return closer.found, found.stage
