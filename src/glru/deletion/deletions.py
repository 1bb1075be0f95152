r"""Models without some rows, each as a candidate and a radius in one metric: what case deletion and the jackknife are made of.

Let :math:`w` be the optimum of all rows, :math:`H` the Hessian there and :math:`B = R^\top R` what is computed of it. For every deletion, of a row or of a
group of rows, a candidate move :math:`d` in the coordinates of :math:`B` and a radius :math:`\rho` are kept with

.. math:: \|R (w_{-} - w) - d\| \le \rho, \qquad \text{so that} \qquad |v^\top (w_{-} - w) - (R^{-\top} v)^\top d| \le \|v\|_{B^{-1}} \rho

for every direction :math:`v`: a unit vector for a coefficient, a row for a fitted value; and :math:`\|w_{-} - w\|_B` is within :math:`\rho` of
:math:`\|d\|`. So one radius serves every question about a deletion, and one search makes radii smaller: the closed form, what it does to the other
rows, second order, Newton steps of many models together, Newton steps of one model with Hessians of its own, and a training.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru._options import Budget
from glru.bounds import intersect
from glru.cascade import (
    ACCURATE,
    BATCH_STEPS,
    MANY_ROWS,
    MAX_FACTORS,
    USUAL_MEMORY,
    Report,
    Rows,
    measure_smallest_batch,
    reporter,
)
from glru.certificate import certify, score_errors
from glru.duality import explain_missing_optimum, lacks_class
from glru.linalg import FEW, Array, calm_blas, gamma, length
from glru.metric.columns import ColumnMetric, make_column_metric
from glru.problem import Point, Problem, make_memory_error, require_one_score, require_problem
from glru.refine import APPROACH_STEPS, TRAINED, approach, newton_ellipsoids
from glru.regions import has_local, list_regions
from glru.regions.local import local_radius
from glru.solution import Solution, find_dual
from glru.solvers import train
from glru.solvers.api import choose
from glru.sums import RowValues, assemble_gradient, expand
from glru.updates.batch import Certified, tighten
from glru.updates.carried_rows import removal_factors, sum_error
from glru.updates.gradients import compute_model_scores
from glru.updates.group_rows import GroupRows
from glru.updates.local_rows import LocalRows, Removals, RowCandidates, RowMoves
from glru.updates.moments import coordinates
from glru.updates.second_order import second_order_steps

STAGES = ("closed form", "second order", "newton", "refine", "training", "open")
"""What gave a deletion its radius, in the order of the price; "open": wider than was asked for."""

OPEN = STAGES.index("open")

TIGHT_ETA = 1e-5
"""A metric farther than this from the Hessian is formed again at a closer base, since standard errors cannot be known better than that."""

CHORD_STEPS = 3
"""Steps with the Hessian that training has kept; each costs a share of a Hessian."""

NEAR_FACTOR, COVERED_FACTOR = 1.0 + 5e-5, 1.1
"""Without a row the weights of the others are multiplied by a factor. Up to the first, or up to the second where there are many of them, one base serves
all: Hessians are then known up to the factor, which a closed form errs by and a Newton step contracts by."""

NEARLY_DEPENDENT = 1e-6
"""Columns of length 1 with a combination as short as this are named where a Hessian is singular."""

WORTH_A_STAGE = 1e6
"""A stage before Newton steps is worth its overhead if these would take more operations than this."""

STEPS_ALONE = 16
"""Newton steps of one model without a penalty after which it is taken to have no optimum."""

MANY_COLUMNS, ALONE_TOL = 100, 1e-9
"""From this number of columns on a training may cost less than Newton steps; its relative gap."""

TRIED_DELETIONS = 8
"""Deletions trained one by one without making a radius half as large, after which the rest is left as it is."""

CHUNK_ENTRIES = 1 << 16
"""Arrays of a chunk of deletions have about this number of entries: a few of them stay in the cache of a core, and their memory is used again."""

SHORT_ROWS = 8
"""Entries that are counted for a deletion where arrays have one entry each, of which there are many."""


@final
@dataclass(frozen=True, eq=False)
class Reference:
    """The model of all rows, as far as it is known."""

    problem: Problem  # what was trained
    point: Point  # a model near its optimum
    metric: ColumnMetric  # the metric of the Hessian there
    theta: float  # the Hessian at the optimum is within ``1 -/+ theta`` times the metric
    radius: float  # at least the distance from the point to the optimum, in the metric
    # Scores, slopes and curvatures at the point, and how far the scores may be from its exact ones.
    values: RowValues
    errors: Array

    @cached_property
    def norms(self) -> Array:
        """Upper bounds of the norms of all rows in the inverse metric."""
        return self.metric.norms(self.problem.matrix)

    @cached_property
    def axis_norms(self) -> Array:
        """Upper bounds of the norms of the unit vectors (the intercept's last) in the inverse metric."""
        return self.metric.axis_norms()

    @property
    def size(self) -> int:
        """Number of coefficients, the intercept counted."""
        return self.metric.size

    def bound_radius(self, lower: Array, upper: Array) -> tuple[Array, float]:
        """The middle of bounds of every coefficient (the intercept last), and at least its distance in the metric from what they hold."""
        if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
            return self.point.pack(self.problem.fit_intercept), np.inf
        middle = 0.5 * lower + 0.5 * upper
        half = np.maximum(upper - middle, middle - lower) * (1.0 + FEW)
        far = float(length(np.abs(self.metric.factor) @ half))
        return middle, far * (1.0 + gamma(2 * half.size + 16))


def _step_closer(solution: Solution) -> Solution:
    """The model after steps with the Hessian before the last one, where training has kept that: so near the optimum that one more Hessian is enough.

    It is a place to start from: its objective and its gap are those before the steps.
    """
    problem, point, here = solution.problem, solution.point, solution.expansion
    constant = problem.loss.self_concordance
    if solution.before is None or not constant:
        return solution
    base, hessian = solution.before
    here = expand(problem, point) if here is None else here
    metric = make_column_metric(problem.totals, hessian)
    for _ in range(CHORD_STEPS if metric.eta < 1.0 else 0):
        assert here.rows is not None
        ahead = point.move(-metric.solve(assemble_gradient(problem.totals, point, here.gradient)))
        scores = problem.scores(ahead.coef, ahead.intercept)
        moved, drift = (constant * float(np.abs(scores - before).max()) for before in (here.rows.scores, base))
        # The step that follows is exact, and leaves hardly more than its square.
        if moved < 0.5 * TIGHT_ETA or not drift < 1.0:
            break
        point, here = ahead, expand(problem, ahead)
        if moved * drift < 0.5 * TIGHT_ETA:
            break
    return replace(solution, coef=point.coef, intercept=point.intercept, known_pair=None, expansion=here)


def make_local_base(solution: Solution, highest: float | None = None) -> LocalRows:
    """The base of all deletions under the local certificate, at most a few Newton steps from a solution; ``highest``: of the factors that it covers."""
    problem = solution.problem
    family = LocalRows(_step_closer(solution), 1.0, highest)
    if not family.converged:
        family = LocalRows(train(problem, tol=ACCURATE, start=solution), 1.0, highest)
    if family.usable and family.middle_eta > TIGHT_ETA:
        closer = LocalRows(family, 1.0, highest)
        family = closer if closer.usable and closer.eta < family.eta else family
    return family


def _make_local_reference(family: LocalRows) -> Reference:
    base = family.base
    root = float(np.sqrt(1.0 - family.middle_eta))
    nu = np.asarray((base.step_norm + base.error_norm) / root * (1.0 + FEW))
    radius = float(local_radius(base.constant, family.largest_norm / root, nu, 0.0)) / root * (1.0 + FEW)
    # Curvatures at the optimum differ from those at the base by the exponential of the largest move of a score.
    moved = base.constant * family.largest_norm * radius
    theta = float((1.0 + family.middle_eta) * np.exp(moved * (1.0 + FEW))) - 1.0 + FEW
    problem = family.problem
    errors = score_errors(problem, base.point.coef, base.point.intercept, family.values.scores)
    found = Reference(problem, base.point, base.metric, theta, radius, family.values, errors)
    found.__dict__["norms"] = family.every.norms
    return found


def _make_trained_reference(solution: Solution, budget: Budget) -> Reference:
    """The reference of a loss or a penalty without a local certificate; Hessians are those at the trained model itself."""
    problem = solution.problem
    best = train(problem, tol=TRAINED, start=solution, until=lambda state: budget.spent)
    slopes, curvatures = problem.loss.expand_slope(problem.y, best.scores)
    metric = make_column_metric(problem.totals, problem.hessian(problem.weights * curvatures))
    if not metric.eta < 0.5:
        reason = explain_missing_optimum(problem)
        raise ValueError(
            f"deleting rows needs one optimum: {reason}{_name_dependent(problem)}"
            if reason is not None
            else f"deleting rows needs a regular Hessian at the model, which {problem!r} does not have. Use a loss with a curvature "
            f"(glru.Squared(), glru.Logistic()), an L2 penalty, or remove columns that depend on others.{_name_dependent(problem)}"
        )
    values = RowValues(best.scores, slopes, curvatures)
    errors = score_errors(problem, best.coef, best.intercept, best.scores)
    found = Reference(problem, best.point, metric, metric.eta + FEW, 0.0, values, errors)
    middle, radius = found.bound_radius(*_bound_coefs(problem, best.point))
    # The model itself is the centre; the middle of the bounds differs from it by their asymmetry.
    apart = float(length(np.abs(metric.factor) @ np.abs(middle - best.point.pack(problem.fit_intercept))))
    radius = (radius + apart) * (1.0 + FEW)
    # Curvatures at the optimum are those at the computed scores up to their moves; where they may jump, the computed ones are meant.
    used = problem.weights > 0.0
    moved = float((found.norms[used] * radius + errors[used]).max()) if problem.loss.self_concordance else 0.0
    theta = (1.0 + metric.eta) * float(np.exp((problem.loss.self_concordance or 0.0) * moved * (1.0 + FEW))) - 1.0
    return Reference(problem, best.point, metric, theta + FEW, radius, values, errors)


def _name_dependent(problem: Problem) -> str:
    """A sentence that names the unpenalised columns of the combination that is shortest against its parts; empty where that is not short."""
    free = np.flatnonzero(problem.quadratic == 0.0)
    names = [str(problem.column_names[j]) if problem.column_names else f"x{j}" for j in free]
    columns = np.sqrt(problem.weights)[:, None] * problem.matrix.dense(free)
    if problem.fit_intercept:
        columns, names = np.column_stack([columns, np.sqrt(problem.weights)]), [*names, "the intercept"]
    with np.errstate(all="ignore"):
        columns = columns / length(columns, axis=0)
    if not names or not np.isfinite(columns).all():
        return ""
    _, sizes, combinations = np.linalg.svd(columns, full_matrices=True)
    shortest = sizes[-1] if sizes.size == len(names) else 0.0
    if not shortest < NEARLY_DEPENDENT:
        return ""
    parts = np.abs(combinations[-1])
    found = [name for name, part in zip(names, parts, strict=True) if part > 0.1 * parts.max()]
    return f" A combination of {', '.join(found)} is at most {shortest + 1e-15:.0e} of the length of its parts."


def _bound_coefs(problem: Problem, point: Point) -> tuple[Array, Array]:
    """Bounds of every coefficient (the intercept last) of the optimum, by all regions around a point."""
    size = problem.n_columns + int(problem.fit_intercept)
    found = np.full(size, -np.inf), np.full(size, np.inf)
    if point.dual is None:
        scores = problem.scores(point.coef, point.intercept)
        point = Point(point.coef, point.intercept, find_dual(problem, scores))
    for region in list_regions(certify(problem, point), problem.fit_intercept):
        lower, upper = region.coef_bounds()
        if problem.fit_intercept:
            ends = region.intercept_bounds()
            lower, upper = np.append(lower, ends[0]), np.append(upper, ends[1])
        found = intersect(found, (lower, upper))
    return found


@final
class Deletions:
    """All deletions of single rows, or of the groups of rows."""

    def __init__(
        self,
        solution: Solution,  # the model of all rows
        codes: Rows | None,  # the group of every row, numbers from 0 on; None: every row is a group
        budget: Budget,
        report: Report,
        max_memory: int,  # bytes for the work arrays of a batch
    ) -> None:
        self.problem, self.codes, self.budget, self.report = solution.problem, codes, budget, report
        self.max_memory, self.n_trainings = max_memory, 0
        self.seconds: dict[str, float] = {}
        begin = time.perf_counter()
        problem = self.problem
        self.family: LocalRows | None = None
        if problem.loss.self_concordance is not None and problem.penalty.smooth:
            family = make_local_base(solution, self._find_highest_factor())
            self.family = family if family.usable and family.converged else None
        self.reference = (
            _make_trained_reference(solution, budget) if self.family is None else _make_local_reference(self.family)
        )
        if not np.isfinite(self.reference.radius):
            reason = explain_missing_optimum(problem)
            if reason is not None:
                raise ValueError(reason[0].upper() + reason[1:])
        self.n_deletions = problem.n_rows if codes is None else int(codes.max()) + 1
        # Upper bounds of the distances of the candidates from the optima in the metric, counted from the optimum of all rows; the lengths of the candidates' moves.
        self.radii, self.lengths = np.full(self.n_deletions, np.inf), np.zeros(self.n_deletions)
        # What gave each radius, by its place in ``STAGES``.
        self.stage_codes = np.full(self.n_deletions, OPEN, dtype=np.int8)
        self._families: dict[float, LocalRows] = {}
        # Where the closed form is as good as anything known, moves are not stored, and take no memory.
        self._stored = np.zeros(self.n_deletions, dtype=bool)
        self._moves = np.empty((self.n_deletions, self.reference.size))
        self.seconds["base"] = time.perf_counter() - begin

    @cached_property
    def factors(self) -> Array:
        """What the weights of the other rows are multiplied by without each row or group; infinite where that loses digits."""
        problem = self.problem
        if self.codes is None:
            return removal_factors(problem)
        if problem.scaling == "sum":
            return np.ones(self.n_deletions)
        left = problem.total_weight - np.bincount(self.codes, problem.sample_weight, self.n_deletions)
        factors = np.divide(problem.total_weight, left, out=np.full(left.size, np.inf), where=left > 0.0)
        return np.where(factors <= 2.0, factors, np.inf)

    def _find_highest_factor(self) -> float | None:
        """The highest factor of single rows that is left to the base of all rows, if any."""
        if self.codes is not None or self.problem.scaling == "sum":
            return None
        factors = self.factors[np.isfinite(self.factors)]
        if factors.max(initial=1.0) > NEAR_FACTOR and np.unique(factors).size <= MAX_FACTORS:
            return None
        return float(factors[factors <= COVERED_FACTOR].max(initial=1.0))

    @property
    def _usual(self) -> float:
        """The root mean square of the lengths of all moves that are known."""
        known = self.lengths[np.isfinite(self.radii)]
        return float(length(known)) / np.sqrt(max(known.size, 1))

    @property
    def scale(self) -> Array:
        """What radii are compared with: the length of each move, or the root mean square of all where that is more."""
        return np.maximum(self.lengths, self._usual)

    def open(self, width: float) -> Rows:
        """The deletions whose radius is more than a share of :attr:`scale`."""
        return np.flatnonzero(~(self.radii <= width * self.scale))

    def run(self, width: float) -> None:
        """All stages in order, each on the deletions that are not known well enough yet."""
        left = self.narrow(np.arange(self.n_deletions), width)
        # Moves that became known better are shorter, and so is the scale: radii that were small enough may not be so any more.
        again = left[self.stage_codes[left] < STAGES.index("refine")]
        self.stage_codes[self.narrow(again, width) if again.size else left] = OPEN

    def narrow(self, members: Rows, width: float) -> Rows:
        """Make the radii of some deletions at most a share of their scale, as far as stages and budget allow; returns all that are open then."""
        chosen = np.zeros(self.n_deletions, dtype=bool)
        chosen[members] = True
        stages: list[tuple[str, Callable[[Rows, float], None]]] = [
            ("refine" if has_local(self.problem) else "training", self._work_one_by_one)
        ]
        if self.family is not None and self.codes is not None:
            stages = [("second order", self._group_second_order), ("newton", self._groups), *stages]
        elif self.family is not None:
            stages = [
                ("closed form", self._closed),
                ("closed form", self._sharp),
                ("second order", self._second_order),
                ("newton", self._newton),
                *stages,
            ]
        left = self.open(width)
        for stage, work in stages:
            mine = left[chosen[left]]
            if not mine.size or self.budget.spent:
                break
            begin = time.perf_counter()
            work(mine, width)
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - begin
            left = self.open(width)
            self.report(stage, self.n_deletions - left.size, self.n_deletions)
        return left

    def directions(self, members: Rows | slice) -> Array:
        """The candidates' moves in the coordinates of the metric, one row each; what they are is not said where nothing is known of a deletion."""
        stored = self._stored[members]
        found = np.where(stored[:, None], self._moves[members], 0.0)
        if self.family is not None and self.codes is None:
            rest = np.arange(self.n_deletions)[members][~stored]
            found[~stored] = self.family.directions(self.family.every.take(rest), self.place_rows(rest))[0]
        return found

    def project_moves(self, members: Rows | slice, axes: Array) -> Array:
        """The inner products of the candidates' moves with some vectors in the coordinates of the metric, one per column of ``axes``."""
        if self.family is None or self.codes is not None or self._stored[members].any():
            return self.directions(members) @ axes
        problem, base, every = self.problem, self.family.base, self.family.every
        # With R V = I the rows are x = (x V) R, so that a product with V axes errs by no more than one with V and one with the axes do: gamma |x| |V|
        # is at most the solve error times |x V|. So this is within the four solve errors of directions.
        found: Array = compute_model_scores(problem.matrix[members], base.metric.inverse @ axes, problem.fit_intercept)
        found *= every.multipliers[members, None]
        found += (base.metric.factor @ base.step) @ axes
        if base.factors[0] < base.factors[1]:
            extra = every.factors[members] - base.middle_factor
            found += extra[:, None] * ((base.metric.factor @ base.loss_step) @ axes)
        return found

    def own_moves(self, rows: slice) -> Array:
        """What the candidates without each of some rows do to its own score."""
        stored = np.flatnonzero(self._stored[rows])
        found = np.zeros(self.radii[rows].size)
        if self.family is not None:
            every = self.family.every
            found = every.multipliers[rows] * np.square(every.norms[rows]) + every.base_moves[rows]
        if stored.size:
            mine = stored + rows.start
            found[stored] = np.einsum("ij,ij->i", self.place_rows(mine), self._moves[mine])
        return found

    def place_rows(self, rows: Rows | slice) -> Array:
        """Some rows in the coordinates of the metric."""
        problem = self.problem
        found: Array = compute_model_scores(problem.matrix[rows], self.reference.metric.inverse, problem.fit_intercept)
        return found

    def chunks(self, size: int, width: int | None = None) -> Iterator[slice]:
        """Some deletions in consecutive chunks with few entries, ``width`` of each deletion; as many as there are coefficients, if not given."""
        height = max(64, CHUNK_ENTRIES // (width or self.reference.size))
        for start in range(0, size, height):
            yield slice(start, min(start + height, size))

    def _take_in(self, members: Rows, moves: Array, radii: Array, stage: str) -> None:
        """Take in candidates where they are better than what is known; ``radii``: counted from the base, in the metric."""
        better = self._take_radii(members, np.sqrt(np.einsum("ij,ij->i", moves, moves)), radii, stage)
        self._stored[members[better]], self._moves[members[better]] = True, moves[better]

    def _take_radii(self, members: Rows, lengths: Array, radii: Array, stage: str) -> Rows:
        """Take in what is known about candidates where it is better, and say of which of them."""
        reference, solve_error = self.reference, self.reference.metric.solve_error
        # A product of a candidate with the factor or its inverse errs by a few solve errors of its length.
        radii = (radii + reference.radius + 12.0 * solve_error * lengths) * (1.0 + FEW)
        better = np.flatnonzero((radii < self.radii[members]) & np.isfinite(lengths))
        mine = members[better]
        self.radii[mine], self.lengths[mine] = radii[better], lengths[better]
        self.stage_codes[mine] = STAGES.index(stage)
        return better

    def _group(self, rows: Rows) -> Iterator[tuple[LocalRows, Rows]]:
        """The families of some rows, by what the others' weights are multiplied by, and the places of their rows."""
        assert self.family is not None
        factors = self.factors[rows]
        covered = factors <= self.family.factors[1]
        if covered.any():
            yield self.family, np.flatnonzero(covered)
        for factor in np.unique(factors[~covered & np.isfinite(factors)]):
            yield self._family(float(factor)), np.flatnonzero(factors == factor)

    def _family(self, factor: float) -> LocalRows:
        """The family of one factor, at a base of its own."""
        if factor not in self._families:
            assert self.family is not None
            known = self.family.factors == (factor, factor)
            self._families[factor] = self.family if known else LocalRows(self.family, factor)
        return self._families[factor]

    def _to_metric(self, family: LocalRows, moves: Array) -> Array:
        """Moves from a family's base in the coordinates of its metric, as moves from the reference in those of its metric."""
        if family is self.family:
            return moves
        reference, fit_intercept = self.reference, self.problem.fit_intercept
        apart = family.point.pack(fit_intercept) - reference.point.pack(fit_intercept)
        across = reference.metric.factor @ family.base.metric.inverse
        return moves @ across.T + reference.metric.factor @ apart

    def _growth(self, family: LocalRows) -> float:
        """An upper bound of the norm in the metric of a vector whose norm in a family's metric is 1."""
        if family is self.family:
            return 1.0
        # The family's Hessian has larger weights, and curvatures at its own base.
        reference, fit_intercept = self.reference, self.problem.fit_intercept
        apart = family.point.pack(fit_intercept) - reference.point.pack(fit_intercept)
        moved = family.base.constant * float(self.reference.norms[self.problem.weights > 0.0].max())
        moved *= float(length(reference.metric.factor @ apart)) * (1.0 + reference.metric.solve_error)
        squared = (1.0 + family.eta) / max(1.0 - reference.theta, 1e-3) * float(np.exp(moved))
        return float(np.sqrt(squared)) * (1.0 + FEW)

    def _closed(self, rows: Rows, width: float) -> None:
        """The closed form with the largest norm of a row."""
        for family, mine in self._group(rows):
            if family is self.family and mine.size == self.n_deletions:
                for here in self.chunks(self.n_deletions, SHORT_ROWS):
                    self._take_closed(family, np.arange(here.start, here.stop), family.every.take(here))
            elif family.usable:
                self._take_closed(family, rows[mine], family.removals(rows[mine]))

    def _sharp(self, rows: Rows, width: float) -> None:
        """The closed form with what it does to the other rows: a Gram matrix against the scores and slopes of all rows under each model."""
        size = self.reference.size
        spared = float(self.problem.n_rows) * (rows.size * (2 * size + 30) - size**2)
        for family, mine in self._group(rows) if rows.size > MANY_ROWS or spared > WORTH_A_STAGE else ():
            if family.has_moves:
                removals = family.removals(rows[mine])
                self._take_closed(family, rows[mine], removals, family.bound_row_moves(rows[mine], removals))

    def _take_closed(self, family: LocalRows, rows: Rows, removals: Removals, others: RowMoves | None = None) -> None:
        """Take in the closed form of some rows; ``others``: what it does to other rows, where that is known."""
        base = family.base
        _, nu, exponents = base.remainders(removals, family.largest_norm, others)
        radii, _ = base.radii(removals, family.largest_norm, nu, exponents)
        norm_bounds = np.abs(removals.multipliers) * removals.norms + removals.base_norms
        # Directions err by four solve errors of their parts, what they do to the row's own score by five.
        radii = (radii + 5.0 * base.metric.solve_error * norm_bounds) * self._growth(family)
        # Where nothing better is stored, the closed form is computed again when it is asked for.
        kept = self._stored[rows]
        here = np.flatnonzero(kept) if family is self.family else np.arange(rows.size)
        if here.size:
            places = coordinates(self.problem.take(rows[here]), base.metric)
            moves = self._to_metric(family, family.directions(removals.take(here), places)[0])
            self._take_in(rows[here], moves, radii[here], "closed form")
        if family is self.family and not kept.all():
            lengths, errors = self._measure_closed_moves(removals, norm_bounds)
            rest = np.flatnonzero(~kept)
            self._take_radii(rows[rest], lengths[rest], (radii + errors)[rest], "closed form")

    def _measure_closed_moves(self, removals: Removals, norm_bounds: Array) -> tuple[Array, Array]:
        """The lengths of the moves of the closed form at the base of all rows, and at least their errors; ``norm_bounds``: at least the lengths of their parts."""
        assert self.family is not None
        base = self.family.base
        step, loss_step = base.metric.factor @ base.step, base.metric.factor @ base.loss_step
        extra = removals.factors - base.middle_factor
        squares = step @ step + extra * (2.0 * (step @ loss_step) + extra * (loss_step @ loss_step))
        own = removals.multipliers * removals.norms
        squares += np.square(own) + 2.0 * removals.multipliers * removals.base_moves
        lengths = np.sqrt(np.maximum(squares, 0.0))
        # Norms were rounded up by a solve error, moves and steps err by a few of these. A root errs by at most that of the error, and by the error over itself.
        error = np.sqrt(16.0 * base.metric.solve_error + 8.0 * FEW) * norm_bounds
        with np.errstate(all="ignore"):
            error = np.fmin(error, error * (error / lengths))
        return lengths, error + 4.0 * base.metric.tiny * np.abs(removals.multipliers)

    def _second_order(self, rows: Rows, width: float) -> None:
        for family, mine in self._group(rows):
            factors = np.unique(self.factors[rows[mine]])
            if family is self.family and factors.size == 1:
                family = self._family(float(factors[0]))
            # Operations for the scores and slopes of all rows under all models.
            spared = float(self.problem.n_rows * mine.size * (2 * self.reference.size + 30))
            if not (family.knows_second_order and spared > WORTH_A_STAGE):
                continue
            base, removals = family.base, family.removals(rows[mine])
            found = second_order_steps(family, rows[mine])
            radii, _ = base.radii(removals, family.largest_norm, found.nu, found.exponents)
            radii = (radii + 4.0 * base.metric.solve_error * found.lengths) * self._growth(family)
            self._take_in(rows[mine], self._to_metric(family, found.directions), radii, "second order")

    def _newton(self, rows: Rows, width: float) -> None:
        """Newton steps of many models together, each measured by a product with the data."""
        batch = max(1, self.max_memory // measure_smallest_batch(self.problem))
        for family, mine in self._group(rows):
            chosen = rows[mine]
            for start in range(0, chosen.size, batch):
                here = chosen[start : start + batch]
                if self.budget.spent or not family.usable:
                    return
                part = self.problem.take(here)
                removals = family.removals(here, part)
                usable = np.flatnonzero(removals.metric_shares > 0.0)
                if usable.size:
                    first = RowCandidates.first(
                        family, here[usable], part.take(usable), removals.take(usable), chosen.size
                    )
                    measured = _MeasuredRows(self, first, width)
                    tighten(measured, measured.decided, BATCH_STEPS)

    def _group_batches(self, groups: Rows) -> Iterator[Rows]:
        """Groups whose systems fit into memory together, until the time is up."""
        batch = max(1, self.max_memory // (32 * self.reference.size**2 + measure_smallest_batch(self.problem) // 8))
        for start in range(0, groups.size, batch):
            if self.budget.spent:
                return
            yield groups[start : start + batch]

    def _group_second_order(self, groups: Rows, width: float) -> None:
        if groups.size > MANY_ROWS and self._group_rows.has_second_order:
            for here in self._group_batches(groups):
                self._group_rows.second_order(here, partial(self._take_in, stage="second order"))

    def _groups(self, groups: Rows, width: float) -> None:
        for here in self._group_batches(groups) if self._group_rows.is_worthwhile else ():
            candidates = self._group_rows.candidates(here, partial(self._take_in, stage="newton"))
            tighten(candidates, lambda lower, upper: self._is_enough(upper, width), BATCH_STEPS)

    @cached_property
    def _group_rows(self) -> GroupRows:
        assert self.family is not None and self.codes is not None
        return GroupRows(self.family, self.codes, self.factors)

    def _is_enough(self, radii: Array, width: float) -> NDArray[np.bool_]:
        """Whether radii are small against what moves usually are, or the time is up."""
        if self.budget.spent:
            return np.ones(radii.size, dtype=bool)
        return radii + self.reference.radius <= width * self._usual

    def _work_one_by_one(self, members: Rows, width: float) -> None:
        """Find one model at a time, those of which nothing is known first; ends where that does not help any more."""
        order = members[np.argsort(~np.isinf(self.radii[members]), kind="stable")]
        failed = 0
        for member in order:
            if self.budget.spent or failed >= TRIED_DELETIONS:
                return
            rows = np.array([member]) if self.codes is None else np.flatnonzero(self.codes == member)
            problem, before = self.problem.without(rows), self.radii[member]
            if not problem.weights.any() or lacks_class(problem):
                continue
            with np.errstate(all="ignore"):
                if has_local(problem):
                    self._refine(problem, int(member), width)
                # Where Newton steps prove nothing, and a penalty leaves no doubt about the optimum, the duality gap of a training may.
                if not (has_local(problem) and (problem.unpenalised.size or np.isfinite(self.radii[member]))):
                    self._train(problem, int(member), width)
            failed = 0 if self.radii[member] < 0.5 * before else failed + 1

    def _take_model(self, member: int, model: Array, radius: float, stage: str) -> None:
        reference = self.reference
        moves = reference.metric.factor @ (model - reference.point.pack(self.problem.fit_intercept))
        self._take_in(np.array([member]), moves[None, :], np.array([radius]), stage)

    def _refine(self, problem: Problem, member: int, width: float) -> None:
        """Newton steps of one model with Hessians of its own, and ellipsoids where they end."""
        reference = self.reference
        if problem.n_columns >= MANY_COLUMNS and choose(problem, reference.point)[0][0] != "newton":
            point = train(problem, tol=ALONE_TOL, start=reference.point).point
            self.n_trainings += 1
        else:
            most = STEPS_ALONE if problem.unpenalised.size else APPROACH_STEPS
            point, n_steps = approach(problem, reference.point, most)
            if n_steps == most:
                return
        for region in newton_ellipsoids(problem, point):
            if not np.isfinite(region.radius) or not isinstance(region.metric, ColumnMetric):
                continue
            across = reference.metric.factor @ region.metric.inverse
            # The norm of all entries may be large enough, and costs nothing beside the spectral one.
            for norm in ("fro", 2):
                ratio = float(np.linalg.norm(across, norm))
                ratio *= 1.0 + 4.0 * (region.metric.solve_error + reference.metric.solve_error)
                self._take_model(member, region.point.pack(problem.fit_intercept), region.radius * ratio, "refine")
                if self.radii[member] <= width * self.scale[member]:
                    return
        # What is nearly known is limited by rounding, and other regions would not know it better.
        if not self.radii[member] <= 10.0 * width * self.scale[member]:
            bounds = _bound_coefs(problem, Point(region.point.coef, region.point.intercept))
            self._take_model(member, *reference.bound_radius(*bounds), "refine")

    def _train(self, problem: Problem, member: int, width: float) -> None:
        """Train one model until float64 allows no more."""
        if explain_missing_optimum(problem) is None:
            best = train(problem, tol=0.0, start=self.reference.point, until=lambda state: self.budget.spent)
            self._take_model(member, *self.reference.bound_radius(*_bound_coefs(problem, best.point)), "training")
            self.n_trainings += 1


@final
class _MeasuredRows:
    """Candidates of rows whose bounds are radii, which are told to the deletions they belong to."""

    def __init__(self, deletions: Deletions, inner: RowCandidates, width: float) -> None:
        self.deletions, self.inner, self.width = deletions, inner, width
        self.contraction, self.cost = inner.contraction, inner.cost

    def decided(self, lower: Any, upper: Any) -> NDArray[np.bool_]:
        """Which radii are small enough."""
        return self.deletions._is_enough(np.asarray(upper), self.width)

    def certify(self) -> Certified:
        """Radii around the candidates and the next ones."""
        inner, deletions, family = self.inner, self.deletions, self.inner.family
        here, ahead, nu = inner.radii()
        better = ahead < here
        origin = family.point.pack(deletions.problem.fit_intercept)[:, None]
        moves = (inner.models - origin) + np.where(better, inner.steps, 0.0)
        radii = np.minimum(here, ahead)
        grown = radii * deletions._growth(family)
        deletions._take_in(
            inner.rows, deletions._to_metric(family, (family.base.metric.factor @ moves).T), grown, "newton"
        )
        return Certified(-grown, grown, nu, np.zeros(nu.size))

    def step(self, members: NDArray[np.bool_]) -> "_MeasuredRows":
        """Some of the candidates after one more Newton step."""
        return _MeasuredRows(self.deletions, self.inner.step(members), self.width)


def delete(
    model: Problem | Solution,
    codes: Rows | None,
    width: float,
    tol: float,
    max_seconds: float | None,
    max_memory: int | None,
    progress: bool | Report,
) -> Deletions:
    """The deletions of a problem or of its solution, as well known as was asked for."""
    problem, budget = model.problem if isinstance(model, Solution) else model, Budget(max_seconds)
    solution = model if isinstance(model, Solution) else train(model, tol=tol, budget=budget)
    with reporter(progress) as report, calm_blas(problem.work):
        memory = max(USUAL_MEMORY, measure_smallest_batch(problem)) if max_memory is None else max_memory
        deletions = Deletions(solution, codes, budget, report, memory)
        deletions.run(width)
    return deletions


def require_deletions(problem: Problem, function: str) -> None:
    """Refuse what deletions have no proof for."""
    require_problem(problem)
    if not problem.in_memory:
        raise make_memory_error(problem, f"glru.{function}")
    require_one_score(problem, f"glru.{function}")
    problem.matrix.require_host(f"glru.{function} works on the host")
    if problem.n_columns > problem.largest:
        raise ValueError(
            f"glru.{function} factors a Hessian over the columns, of which there are {problem.n_columns}, at most {problem.largest}. "
            "Use fewer columns, or glru.loocv for held-out scores."
        )
    if problem.n_used < 2:
        raise ValueError(f"glru.{function} needs at least two rows of weight above 0.")


def weight_slack(problem: Problem) -> float:
    """An upper bound of the relative error of a row's weight and of a sum of such weights."""
    return sum_error(problem.totals.depth)
