"""The cascade: cheapest proof first, each step only sees the rows the earlier ones left open.

A run asks for the score of every row under the model trained without it. :data:`STEPS` lists the ways to bound such scores, with
what each needs and costs, for rows in memory and in blocks. :class:`Cascade` runs them in order, trains what they leave open, and owns
the budget, the progress and what is recalled from a checkpoint.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from glru import duality
from glru._budget import UNLIMITED, Budget
from glru.bounds import Bounds, ScoreBounds, from_queries, intersect, is_decided, unbounded, widths_of_rows
from glru.certificate import certify
from glru.linalg import Array, outward, to_host
from glru.losses import Hinge
from glru.problem import Point, Problem
from glru.refine import Refinement, approach, certified_bounds, class_bounds, class_training, has_products
from glru.regions import EVERY, has_support
from glru.regions.classes import has_class_ball, has_classes, query_centers, unbounded_queries
from glru.rows import Memory
from glru.solution import Solution, dual_of, solution_at
from glru.solvers import train
from glru.solvers.newton import ColumnSpace, RowSpace, uses_row_space, zero_point
from glru.sums import chunks
from glru.updates.ascent_rows import AscentRows, ascent_cost, has_ascent
from glru.updates.carried_rows import (
    CarriedRemovals,
    NoRemovals,
    carried_bounds,
    carried_removals,
    has_carried,
    removal_factors,
)
from glru.updates.centred_rows import centred_bounds, has_centred
from glru.updates.class_blocks import ClassBlocks
from glru.updates.class_rows import ClassRows
from glru.updates.class_space import ClassSpace, RowTrainer, class_space, has_class_space
from glru.updates.kink_rows import KinkRows, has_kinks
from glru.updates.local_rows import LocalRows, RowRemovals, has_local_rows, has_piece_rows
from glru.updates.refits import Refits
from glru.updates.refitted_classes import ClassRefits
from glru.updates.refitted_rows import TallRefits, WideRefits, has_refitted_rows
from glru.updates.row_models import RowModels, has_row_models, has_wide_rows
from glru.updates.second_order import second_order_bounds
from glru.updates.support_rows import SupportRows, find_support
from glru.updates.tall_rows import TallRows, has_newton_rows
from glru.updates.wide_rows import WideRows, leverage_cost

STAGES = ("carry", "local", "newton", "refine", "training", "approx", "wide", "undetermined")
"""What may decide a row, in the order of the price; "approx" proves nothing. "wide": the label is proven, the interval wider than asked."""

WIDE, OPEN = STAGES.index("wide"), STAGES.index("undetermined")

BATCH_STEPS = 30
"""Steps with the old Hessian in a batch; each reduces the error by about the largest move of a score."""

STEPS_BEFORE_KINKS = 8
"""Steps with the old Hessian where others follow rows over the kinks of their losses: models that few rows cross a kink for need no more."""

COARSE = 1e-5
"""Relative gap above which a solution is trained on before rows are removed from it."""

ACCURATE = 1e-12
"""Relative gap to which a solution is trained on that one Newton step would move far."""

NEAR_FINEST = 16.0
"""An interval within this factor of the narrowest that float64 allows is refined only if that decides its row."""

FEW_ROWS, MANY_ROWS = 4, 32
"""Up to this number of open rows, training them, and refining them, is not preceded by the question whether it can help."""

FEW_ENTRIES = 100_000
"""Scores of all rows under the models of the open rows: so few cost less than closer closed forms do."""

TRIED_ROWS = 8
"""After this number of rows, a step on single rows ends once it spares fewer than half a training: both together cost more."""

TIGHT_ETA = 1e-6
"""Where narrow intervals are asked for, a metric that is farther than this from the Hessian is formed again at a closer base."""

TIGHTENED_SHARE = 8
"""At most one row in this number is narrowed on its own, so that it costs far less than training every row."""

NARROWING = 32.0
"""With one score per class, products with the data narrow intervals while they are expected to cost at most this many times the closed form of all rows."""

SMALL_MATRIX = 300_000
"""Entries of a tall matrix below which the local step costs no more than the carried bound, and is taken first."""

STEPS_TOGETHER = 8
"""Steps of wide rows ask for each leverage about this often: so many times fewer rows are few then."""

LARGEST_SHARE = 1e-6
"""Relative error of refitted strengths up to which a support may be proven for all of them."""

TRAINING_PRODUCTS = 40.0
"""Products with X and its transpose that a training from the old optimum takes, certificates included."""

CENTRED_PRODUCTS = 400.0
"""The carried bound with an intercept, which leaves more rows open than leverages do, is asked first where these cost this many products."""

MOST_FACTORS = 16
"""Families are used while the rows' weights give at most this number of different factors."""

ROWS_AT_ONCE, MODELS_AT_ONCE = 10_000, 128
"""Rows in blocks that are brought into memory at once, and models that one pass measures."""

USUAL_MEMORY = 2 << 30
"""Bytes for the work arrays of a batch where no limit is given."""

Rows = NDArray[np.intp]
Report = Callable[[str, int, int], None]
Found = tuple[Array, Array, NDArray[np.bool_]]
"""Bounds of some rows, and which of them are given up."""

Recall = Callable[[Rows, Callable[[Rows], Found]], Found]
"""Does the work on some rows, or has it from a checkpoint."""


@contextmanager
def reporter(progress: bool | Report) -> Iterator[Report]:
    """A function to call with the stage, the number of rows decided and the number of rows.

    ``progress``: a callable of the user's; true for a line on the terminal, if there is one.
    """
    if callable(progress):
        yield progress
        return
    if not progress or not sys.stderr.isatty():
        yield _silent
        return
    begin = last = time.perf_counter()

    def show(stage: str, done: int, total: int) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - begin > 2.0 and now - last > 0.1:
            last = now
            sys.stderr.write(f"\r{stage}: {done} of {total}, {now - begin:.0f} s ")
            sys.stderr.flush()

    try:
        yield show
    finally:
        if last > begin:
            sys.stderr.write("\n")


def _silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""


def widest_rows(widths: Array, width: float) -> Rows:
    """The rows with the widest intervals, widest first, as many as keep the others narrow enough on average."""
    order = np.argsort(-widths, kind="stable")
    rest = np.cumsum(widths[order][::-1])[::-1]
    return order[(rest > width * widths.size) & (widths[order] > width)]


def _work_on(rows: Rows, work: Callable[[Rows], Found]) -> Found:
    """Do the work: there is no checkpoint."""
    return work(rows)


def smallest_batch(problem: Problem) -> int:
    """Bytes of the work arrays of a batch of one row: at most 24 vectors with one entry per row."""
    return 8 * 24 * problem.n_rows


AnyRemovals = RowRemovals | CarriedRemovals | NoRemovals


class Output(Protocol):
    """Where the results of rows in blocks go instead of memory."""

    def write(
        self, number: int, start: int, y: Array | NDArray[np.int8], lower: Array, upper: Array, stages: NDArray[np.str_]
    ) -> None:
        """Write the rows of a block."""


@final
@dataclass(frozen=True, eq=False)
class BlockBounds:
    """Bounds of a block's rows; with an output they are in its file, and only the open ones are here.

    Attributes
    ----------
    numbers : array of int
        The numbers of the rows.
    y, lower, upper : array
        Their targets and the bounds of their scores.
    n_written : int
        How many rows are in the file alone.
    errors : tuple of int
        The least and the largest number of held-out errors among these.
    n_unlabelled : int
        How many of these are narrow enough, but without a label.
    norm_bound : float
        At least the largest norm of a row of the block that counts.
    """

    numbers: Rows
    y: Array | NDArray[np.int8]
    lower: Array
    upper: Array
    n_written: int
    errors: tuple[int, int]
    n_unlabelled: int
    norm_bound: float


def bound_block(
    part: Problem, removals: AnyRemovals, norm_bound: float, width: float | None, stage: str, output: Output | None
) -> BlockBounds:
    """Bounds of all rows of a block."""
    lower, upper, highest = np.empty(part.n_rows), np.empty(part.n_rows), 0.0
    # Many short operations per chunk: higher ones leave threads less to wait for.
    for here, rows in chunks(part, times=4):
        lower[here], upper[here], norms = removals.bounds(rows, norm_bound)
        highest = max(highest, float(norms[rows.weights > 0.0].max(initial=0.0)) if norms.size else 0.0)
    assert isinstance(part.rows, Memory)
    start, classification = part.rows.start, part.loss.task == "classification"
    y = part.y.astype(np.int8) if classification else part.y
    numbers = np.arange(start, start + part.n_rows)
    if output is None:
        return BlockBounds(numbers, y, lower, upper, 0, (0, 0), 0, highest)
    done = is_decided(lower, upper, width)
    output.write(part.rows.number, start, y, lower, upper, np.where(done, stage, "undetermined"))
    written = ScoreBounds(lower[done], upper[done])
    wrong = written.errors(part.y[done]) if classification else (0, 0)
    unlabelled = int(np.count_nonzero(~written.decided)) if classification else 0
    return BlockBounds(numbers[~done], y[~done], lower[~done], upper[~done], written.n_rows, wrong, unlabelled, highest)


@final
class Cascade:
    """The state of a leave-one-out run: bounds of every held-out score, and which stage decided it.

    Of rows in blocks those are held that the first pass has brought back: all of them, or, with an output, the open ones. The
    methods that do the work take and give the places of rows in the arrays below; in memory these are the rows' numbers.

    Parameters
    ----------
    solution : Solution
        The model of all rows.
    width : float or None
        How narrow intervals have to be; None: narrow enough for a label.
    bound : str, default="auto"
        The bounds to use.
    max_memory : int, default=USUAL_MEMORY
        Bytes for the work arrays of a batch.
    max_trainings : int or None, default=None
        Most trainings; None: as many as are needed.
    tol : float, default=1e-6
        Relative gap of trainings without a proof.
    report, budget, recall
        Told of progress; when to end; where finished work comes from.
    output : Output or None, default=None
        Where the results of rows in blocks go.
    refits : Refits or None, default=None
        What leaving out a row changes beside the row.
    aim : float or None, default=None
        The width that :meth:`tighten` will be asked for.

    Attributes
    ----------
    numbers, y : array
        The numbers of the rows that are held, and their targets.
    lower, upper : array
        Bounds of their scores; of their queries where there is one score per class (:mod:`glru.bounds`).
    stage_codes : array of int
        The stages that decided them, by their places in ``STAGES``.
    limited : array of bool
        Open rows that were given up.
    n_written, written_by, written_errors, n_unlabelled : int, str, tuple of int, int
        How many rows are in the output alone, the stage that decided them, the least and largest number of errors among them, and
        how many of them are narrow enough, but without a label.
    seconds : dict
        Time spent in each stage.
    n_trainings : int
        Rows that were trained.
    """

    def __init__(
        self,
        solution: Solution,
        width: float | None = None,
        *,
        bound: str = "auto",
        max_memory: int = USUAL_MEMORY,
        max_trainings: int | None = None,
        tol: float = 1e-6,
        report: Report = _silent,
        budget: Budget = UNLIMITED,
        recall: Recall = _work_on,
        output: Output | None = None,
        refits: Refits | None = None,
        aim: float | None = None,
    ) -> None:
        self.solution, self.problem, self.width, self.bound = solution, solution.problem, width, bound
        self.refits, self.aim = refits, aim
        self.max_memory, self.max_trainings, self.tol = max_memory, max_trainings, tol
        self.report, self.budget, self.recall, self.output = report, budget, recall, output
        self.seconds: dict[str, float] = {}
        self.n_trainings = self.n_written = self.n_unlabelled = 0
        self.written_by, self.written_errors = "undetermined", (0, 0)
        self.finest: Array | None = None
        held = self.problem.n_rows if self.problem.in_memory else 0
        several = self.problem.loss.several
        nothing = unbounded_queries(held, self.problem.n_scores) if several else unbounded(held)
        self._hold(np.arange(held), self.problem.targets if held else np.empty(0), nothing)
        self._n_batched, self.tightening = 0, False
        self._families: dict[float, TallRows] = {}
        self._local: dict[float, LocalRows] = {}
        self._sharp: dict[float, LocalRows] = {}
        self._supports: dict[float, SupportRows] = {}
        self._paths: dict[float, KinkRows] = {}

    def _hold(self, numbers: Rows, y: NDArray[Any], bounds: Bounds) -> None:
        """Hold some rows from now on, all of them open."""
        self.numbers, self.y = numbers, y
        self.n_unseen = 0 if numbers.size or self.problem.in_memory else self.problem.n_rows
        self.lower, self.upper = bounds
        self.stage_codes = np.full(numbers.size, OPEN, dtype=np.int8)
        self.limited = np.zeros(numbers.size, dtype=bool)

    def open_rows(self) -> Rows:
        """The rows that are not decided yet."""
        return np.flatnonzero(self.stage_codes == OPEN)

    @property
    def n_open(self) -> int:
        """How many rows are not decided yet."""
        return int(np.count_nonzero(self.stage_codes == OPEN))

    def decided(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """Whether bounds are as tight as was asked for."""
        return self._enough(lower, upper, self.width)

    def _enough(self, lower: Array, upper: Array, width: float | None) -> NDArray[np.bool_]:
        if self.problem.loss.several:
            return from_queries(lower, upper).enough(width)
        return is_decided(lower, upper, width)

    @property
    def widths(self) -> Array:
        """The width of every row's interval, the largest where there is one score per class."""
        return widths_of_rows(self.lower, self.upper)

    def final_stages(self) -> NDArray[np.int8]:
        """The stage of every row, with those told apart whose label is proven and whose interval is wider than asked."""
        codes, rows = self.stage_codes.copy(), self.open_rows()
        if self.problem.loss.task == "classification":
            codes[rows[self._enough(self.lower[rows], self.upper[rows], None)]] = WIDE
        return codes

    def enough(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """Whether a loop inside a stage may end: what it asks about is decided, or the time is up."""
        return np.ones(len(lower), dtype=bool) if self.budget.spent else self.decided(lower, upper)

    def finished(self, row: int, lower: Array, upper: Array) -> bool:
        """Whether the work on a single row may end: its interval is narrow enough, or as narrow as float64 allows.

        The interval is the one under refitted scales as they are stored; :meth:`_for_all_factors` widens it afterwards.
        """
        slack = self._widening(row)
        # Steps towards the optimum of a loss with curvature cost little once they are near; the hinge's do not.
        enough = self.enough if isinstance(self.problem.loss, Hinge) else self._narrow
        if enough(lower - slack, upper + slack)[0]:
            return True
        if slack > 0.0 and widths_of_rows(lower, upper)[0] <= slack:
            return True
        return self.finest is not None and bool(widths_of_rows(lower, upper)[0] <= 2.0 * self.finest[row])

    def follow(self, method: str) -> None:
        """All steps of a method in order, each on what the earlier ones left open."""
        for step in METHODS[method]:
            n_left = self.n_unseen + self.n_open
            if n_left == 0:
                break
            if n_left < step.price or not self.has(step):
                continue
            if step.rows is None:
                self.sweep(step.stage)
                continue
            for rows in step.rows(self):
                if self.budget.spent:
                    break
                self.run(step.stage, rows, partial(step.work, self), step.proven)
        self._give_up()

    def tighten(self, width: float) -> None:
        """Narrow intervals until they are ``width`` wide on average; which stage decided a row before stays as it is.

        This is done by the steps that take many rows at once and by Newton steps of a few single rows. What these leave wider is not
        worth a training of its own.
        """
        if self.budget.spent:
            return
        codes, limited, before = self.stage_codes.copy(), self.limited.copy(), self.width
        report, seconds, begin = self.report, dict(self.seconds), time.perf_counter()
        self.width, self.report, self.tightening = 0.5 * width, _silent, True
        for step in STEPS:
            if step.tightens and self.has(step) and step.price < self._open_widest().size:
                for rows in step.rows(self) if step.rows is not None else ():
                    self.run(step.stage, rows, partial(step.work, self))
        several = _has_classes(self)
        if several or (not self.problem.loss.several and (_has_local(self) or _has_wide(self))):
            self._tighten_few(width, several)
        self.stage_codes, self.limited, self.width, self.tightening = codes, limited, before, False
        rows = self.open_rows()
        codes[rows[self.decided(self.lower[rows], self.upper[rows])]] = STAGES.index("refine")
        self.report, self.seconds = report, seconds
        self._tell("tighten", begin)

    def _tighten_few(self, width: float, several: bool) -> None:
        """Newton steps of the few widest rows, while the intervals are too wide on average; ``several``: where these can bring them there."""
        rows = self.open_rows()
        rows = rows[np.argsort(-self.widths[rows], kind="stable")]
        rows = rows[: min(MANY_ROWS, 1 + self.problem.n_rows // TIGHTENED_SHARE)]
        most = width * self.numbers.size
        if several and float(np.sum(self.widths) - np.sum(self.widths[rows])) > most:
            return
        for row in rows:
            if float(np.sum(self.widths)) <= most:
                break
            self.run("refine", np.array([row]), self.class_refine if several else self.refine)

    def has(self, step: "Step") -> bool:
        """Whether the run has what a step needs."""
        if step.several != self.problem.loss.several:
            return False
        return (self.refits is None or step.refits) and step.applies(self)

    def _open_widest(self) -> Rows:
        """Open the rows with the widest intervals, as many as keep the others narrow enough on average."""
        assert self.width is not None
        widths = self.widths
        rows = widest_rows(widths, self.width)
        if _has_classes(self):
            rows = rows[: self.class_rows.affordable(NARROWING)]
        self.stage_codes = np.zeros(widths.size, dtype=np.int8)
        self.stage_codes[rows] = OPEN
        return rows

    def run(self, stage: str, rows: Rows, work: Callable[[Rows], Bounds], proven: bool = True) -> None:
        """Run a stage on some rows and take in what it proves; not ``proven``: the scores that it gives, as they are."""
        if self.budget.spent:
            return
        begin = time.perf_counter()
        if rows.size:
            lower, upper, self.limited[rows] = self.recall(rows, lambda rows: (*work(rows), self.limited[rows]))
            if proven:
                self.lower[rows] = np.maximum(self.lower[rows], lower)
                self.upper[rows] = np.minimum(self.upper[rows], upper)
                done = rows[self.decided(self.lower[rows], self.upper[rows])]
            else:
                known = np.isfinite(lower) if lower.ndim == 1 else np.isfinite(lower).all(axis=1)
                done = rows[known]
                self.lower[done], self.upper[done] = lower[known], upper[known]
            self.stage_codes[done] = STAGES.index(stage)
            self.n_trainings += rows.size if stage == "training" else 0
        self._tell(stage, begin)

    def sweep(self, stage: str) -> None:
        """Bound all rows in one pass over the blocks, and hold what it brings back."""
        begin = time.perf_counter()
        if self.problem.loss.several:
            numbers, y, self.__dict__["reference"], bounds = self.class_blocks.closed_form()
            self._hold(numbers, y, bounds)
            self.n_unseen = 0
            self.stage_codes[self.decided(*bounds)] = STAGES.index(stage)
            self._tell(stage, begin)
            return
        removals, norm_bound = self._first_removals
        parts: list[BlockBounds] = self.problem.map(bound_block, removals, norm_bound, self.width, stage, self.output)
        numbers, y, lower, upper = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("numbers", "y", "lower", "upper")
        )
        self._hold(numbers, y, (lower, upper))
        self.n_unseen = 0
        self.stage_codes[self.decided(lower, upper)] = STAGES.index(stage)
        if self._block_family is not None:
            self._block_family.learn_norm(max(part.norm_bound for part in parts))
        self.n_written, self.written_by = sum(part.n_written for part in parts), stage
        low, high = np.sum([part.errors for part in parts], axis=0)
        self.written_errors = int(low), int(high)
        self.n_unlabelled = sum(part.n_unlabelled for part in parts)
        self._tell(stage, begin)

    def _tell(self, stage: str, begin: float) -> None:
        """Note the time of a stage and report what is done."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - begin
        self.report(stage, self.problem.n_rows - self.n_open, self.problem.n_rows)

    @cached_property
    def _first_removals(self) -> tuple[AnyRemovals, float]:
        """What the first pass over blocks proves bounds with, and at least the largest norm of a row."""
        if self._block_family is not None:
            return self._block_family.base, self._block_family.largest_norm
        return (carried_removals(self.solution) if self.problem.is_strongly_convex else NoRemovals()), np.inf

    @property
    def has_local_blocks(self) -> bool:
        """Whether rows are in blocks and the local certificate proves something of their removals."""
        return self._block_family is not None

    @cached_property
    def _block_family(self) -> LocalRows | None:
        """The removals of rows in blocks under the local certificate, if it proves anything."""
        if self.problem.in_memory or not has_local_rows(self.problem):
            return None
        family = LocalRows(self.solution)
        return family if family.usable else None

    def resolvable_rows(self, few: int) -> Rows:
        """The open rows but those that refinement is not expected to decide, for the rounding of a perfect candidate.

        ``few``: up to this number of rows, working on them costs about as much as finding that out.
        """
        rows = self.open_rows()
        few_rows = rows.size <= few
        if self.refits is not None and self.width is not None:
            # Refitted scales are known to within their rounding only, which no training changes.
            slack = 2.0 * np.array([self._widening(int(row)) for row in rows])
            self.limited[rows] |= (slack > self.width) & (self.widths[rows] <= NEAR_FINEST * slack)
        rows = rows[~self.limited[rows]]
        if few_rows or self.budget.spent:
            return rows
        if self.finest is None:
            self.finest = self.upper - self.lower
            self.finest[rows] = self._finest_widths(rows)
        lower, upper, finest = self.lower[rows], self.upper[rows], self.finest[rows]
        resolvable = np.abs(0.5 * (lower + upper)) > 0.25 * finest if self.width is None else finest <= self.width
        resolvable |= upper - lower > NEAR_FINEST * finest
        self.limited[rows] = ~resolvable
        return rows[resolvable]

    def _finest_widths(self, rows: Rows) -> Array:
        """Widths of the intervals of some rows' scores at the optimum of all rows, trained as far as float64 goes.

        Leaving one row out changes these little, so that no interval of a held-out score can be much narrower.
        """
        if not np.all(np.isfinite(self.accurate_solution.coef)):
            return np.full(rows.size, np.inf)
        best = train(self.problem, tol=0.0, start=self.accurate_solution, until=lambda state: self.budget.spent)
        lower, upper = certified_bounds(certify(self.problem, best.point), self.problem.matrix[rows])
        return upper - lower

    def _give_up(self) -> None:
        """Mark the open rows whose intervals are nearly as narrow as float64 allows."""
        rows = self.open_rows()
        self.limited[rows] |= self.at_limit(rows)

    def at_limit(self, rows: Rows) -> NDArray[np.bool_]:
        """Whether the intervals of some rows are nearly as narrow as float64 allows, as far as that is known."""
        if self.finest is None:
            return np.zeros(rows.size, dtype=bool)
        return self.upper[rows] - self.lower[rows] <= NEAR_FINEST * self.finest[rows]

    @cached_property
    def factors(self) -> Array:
        """What the weights of the other rows are multiplied by when a row leaves."""
        return removal_factors(self.problem)

    @cached_property
    def uniform(self) -> bool:
        """Whether the rows' weights give few enough factors for the families."""
        return np.unique(self.factors[np.isfinite(self.factors)]).size <= MOST_FACTORS

    @property
    def has_families(self) -> bool:
        """Whether Newton candidates are made in batches."""
        return self.uniform and has_newton_rows(self.problem)

    def carry(self, rows: Rows) -> Bounds:
        """The paper's bound, from the old optimum."""
        lower, upper = carried_bounds(self.solution, "primal" if self.bound in ("auto", "local") else self.bound)
        return lower[rows], upper[rows]

    def midpoint(self, rows: Rows) -> Bounds:
        """The smaller ball that an L2 penalty has around the old optimum, unless another bound was asked for."""
        if self.problem.fit_intercept:
            lower, upper = centred_bounds(self.solution)
            return lower[rows], upper[rows]
        lower, upper = carried_bounds(self.solution, "midpoint" if self.bound in ("auto", "local") else self.bound)
        return lower[rows], upper[rows]

    def local(self, rows: Rows) -> Bounds:
        """Newton candidates under the local certificate."""
        lower, upper = np.full(rows.size, -np.inf), np.full(rows.size, np.inf)
        for factor in np.unique(self.factors[rows][np.isfinite(self.factors[rows])]):
            mine = self.factors[rows] == factor
            family = self._local_family(float(factor))
            bounds = family.bounds(rows[mine], self.enough)
            for sharper in (LocalRows.sharp_bounds, self._second_order):
                left = np.flatnonzero(~self.enough(*bounds))
                if left.size > MANY_ROWS and left.size * self.problem.n_rows > FEW_ENTRIES:
                    family = self._tight_family(float(factor))
                    found = intersect((bounds[0][left], bounds[1][left]), sharper(family, rows[mine][left]))
                    bounds[0][left], bounds[1][left] = found
            lower[mine], upper[mine] = bounds
        return lower, upper

    def _second_order(self, family: LocalRows, rows: Rows) -> Bounds:
        """Bounds to second order, where they are cheap."""
        return second_order_bounds(family, rows) if family.has_second_order(rows.size) else unbounded(rows.size)

    def local_newton(self, rows: Rows) -> Bounds:
        """The candidates written down in full, and more steps where needed."""
        family = self._tight_family(float(self.factors[rows[0]]))
        n_steps = STEPS_BEFORE_KINKS if _has_kinks(self) else BATCH_STEPS
        return family.refined(rows, self.enough, n_steps, n_together=self._n_batched)

    def _tight_family(self, factor: float) -> LocalRows:
        """The family, with a closer base where narrow intervals are asked for and the error of the metric would weigh in them."""
        family = self._local_family(factor)
        return family if self.width is None or family.eta <= TIGHT_ETA else self._sharp_family(factor)

    def _sharp_family(self, factor: float) -> LocalRows:
        if self.problem.loss.piecewise:
            return self._local_family(factor)
        if factor not in self._sharp:
            self._sharp[factor] = LocalRows(self._local_family(factor), factor)
        return self._sharp[factor]

    def _local_family(self, factor: float) -> LocalRows:
        if factor not in self._local:
            # Between the kinks of a loss there is no telling how far a step from a rough solution leads.
            piecewise = self.problem.loss.piecewise
            family = LocalRows(self.accurate_solution if piecewise else self.solution, factor)
            if not family.converged:
                family = LocalRows(self.accurate_solution, factor)
            self._local[factor] = family
        return self._local[factor]

    def support(self, rows: Rows) -> Bounds:
        """Newton candidates on the supports that models with absolute values in the penalty have without the rows."""
        factor = float(self.factors[rows[0]])
        if factor not in self._supports:
            self._supports[factor] = SupportRows(self.accurate_solution, factor)
        return self._supports[factor].bounds(rows, self.enough, BATCH_STEPS)

    def paths(self, rows: Rows) -> Bounds:
        """Optima of the hinge loss, followed while the dual variables of the rows go to zero."""
        factor = float(self.factors[rows[0]])
        if factor not in self._paths:
            family = KinkRows(self.solution, factor)
            self._paths[factor] = family if family.usable else KinkRows(self.accurate_solution, factor)
        return self._paths[factor].bounds(rows, self.enough)

    @cached_property
    def class_rows(self) -> ClassRows:
        """All removals with one score per class."""
        problem, start = self.class_problem, self._class_start
        family = ClassRows(problem, start)
        if family.converged or self.space is None:
            return family if family.converged else ClassRows(problem, self.accurate_solution.point)
        return ClassRows(problem, train(problem, tol=ACCURATE, start=start, budget=self.budget).point)

    @cached_property
    def _sharp_classes(self) -> ClassRows:
        """The family in the metric at its own base, not at the model one Newton step before it."""
        family = ClassRows(self.class_problem, self.class_rows.point)
        return family if family.usable and family.eta < self.class_rows.eta else self.class_rows

    @property
    def _tight_classes(self) -> ClassRows:
        """The family, in a closer metric where narrow intervals are asked for and the error of the metric would weigh in them."""
        sharp = self.width is not None and self.class_rows.usable and self.class_rows.eta > TIGHT_ETA
        return self._sharp_classes if sharp else self.class_rows

    @cached_property
    def space(self) -> ClassSpace | None:
        """The space of the rows that models with one score per class are worked on in; None: that of the columns."""
        return class_space(self.problem) if self.refits is None and has_class_space(self.problem) else None

    @property
    def class_problem(self) -> Problem:
        """The problem that is worked on where there is one score per class."""
        return self.problem if self.space is None else self.space.problem

    @cached_property
    def _class_start(self) -> Point:
        return self.solution.point if self.space is None else self.space.place(self.solution)

    def _class_without(self, row: int) -> tuple[Problem, Point]:
        """:meth:`without` of :attr:`class_problem`."""
        if self.space is None:
            return self.without(row)
        return self.class_problem.without(np.array([row])).require_weight(), self._class_start

    @cached_property
    def class_blocks(self) -> ClassBlocks:
        """All removals of rows in blocks with one score per class."""
        return ClassBlocks(self.problem, self.solution.point, self.solution.class_sums)

    @cached_property
    def reference(self) -> Rows:
        """The class of every row whose lead over the others is bounded: the one that a Newton step without the row names."""
        found = self.solution.scores.argmax(axis=1)
        if has_classes(self.class_problem) and self.class_rows.usable:
            with np.errstate(all="ignore"):
                guesses = self.class_rows.guesses(np.arange(found.size))
            found = np.where(np.isfinite(guesses).all(axis=1), guesses.argmax(axis=1), found)
        return found

    def class_local(self, rows: Rows) -> Bounds:
        """Newton candidates under the local certificate, with one score per class."""
        return self.class_rows.bounds(rows, self.reference[rows])

    def class_block_newton(self, places: Rows) -> Bounds:
        """The candidates of rows of blocks written down in full, and more steps where needed, a pass over the data each."""
        numbers, reference = self.numbers[places], self.reference[places]
        return self.class_blocks.refined(numbers, reference, self.enough, BATCH_STEPS)

    def class_newton(self, rows: Rows) -> Bounds:
        """The candidates written down in full, and more steps where needed."""
        reference, narrow = self.reference[rows], self.width is not None
        return self._tight_classes.refined(rows, reference, self._enough_on_average, BATCH_STEPS, narrow)

    def _enough_on_average(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """As :meth:`enough`; where :meth:`tighten` asks, the narrowest rows of a batch are left that are narrow enough on average."""
        found = self.enough(lower, upper)
        if self.tightening and self.width is not None and not found.all():
            found = np.ones(found.size, dtype=bool)
            found[widest_rows(widths_of_rows(lower, upper), 0.5 * self.width)] = False
        return found

    @cached_property
    def _refitted_classes(self) -> ClassRefits:
        assert self.refits is not None
        if self.problem.scaling == "sum":
            return ClassRefits(self.class_rows, self.refits)
        start = summed(self.solution)
        return ClassRefits(ClassRows(start.problem, start.point), self.refits.summed(self.problem))

    def class_refitted(self, rows: Rows) -> Bounds:
        """Newton candidates with one score per class under preprocessing that is fitted again, and more steps where needed."""
        return self._refitted_classes.bounds(rows, self.reference[rows], self.enough, BATCH_STEPS)

    def class_refine(self, rows: Rows) -> Bounds:
        """Newton steps of one row's problem with one score per class, each followed by its certificate."""
        row = int(rows[0])
        problem, start = self._class_without(row)
        if not problem.in_memory:
            query = self.problem.take(self.numbers[rows]).matrix
        else:
            start = self.class_rows.point if self.refits is None and self.class_rows.usable else start
            query = problem.matrix[rows]
        found, _ = class_bounds(problem, start, query, self.reference[rows], partial(self.finished, row), self.budget)
        return found

    def class_training(self, rows: Rows) -> Bounds:
        """A training of one row's problem with one score per class, and Newton steps with certificates from there."""
        row = int(rows[0])
        problem, point = self._class_without(row)
        decided = partial(self.finished, row)
        if self._row_trainer is not None:
            point = self._row_trainer.without(row, problem) or point
        # Without a Hessian no step has told which class leads.
        reference = self.reference[rows] if has_classes(problem) else None
        found, _, _ = class_training(problem, point, problem.matrix[rows], reference, decided, self.budget)
        return found

    @cached_property
    def _row_trainer(self) -> RowTrainer | None:
        """Trains models without one row from that of all rows, where a Hessian of all classes is too large."""
        problem, plain = self.problem, self.refits is None and not has_classes(self.class_problem)
        return RowTrainer(self.solution) if plain and problem.arrays.stable and has_class_ball(problem) else None

    @cached_property
    def accurate_solution(self) -> Solution:
        """The solution, trained on where its error would weigh more than the removal of a row."""
        if self.solution.reached(ACCURATE):
            return self.solution
        return train(self.problem, tol=ACCURATE, start=self.solution, until=lambda state: self.budget.spent)

    def batches(self, grouped: bool = True) -> list[Rows]:
        """The open rows in batches whose n x m arrays fit the memory limit; ``grouped``: rows of one factor together."""
        size = max(1, self.max_memory // smallest_batch(self.problem))
        rows = self.open_rows()
        rows = rows[np.isfinite(self.factors[rows])]
        self._n_batched = rows.size
        groups = [rows]
        if grouped:
            groups = [rows[self.factors[rows] == factor] for factor in np.unique(self.factors[rows])]
        return [group[k : k + size] for group in groups for k in range(0, group.size, size)]

    def ascent(self, rows: Rows) -> Bounds:
        """Passes of dual coordinate ascent for each row, from its Newton candidate where there is one."""
        start = self._newton_duals if "wide" in self.__dict__ else None
        lower, upper = unbounded(rows.size)
        # Where passes do not decide half of the first rows, they are too slow for the others.
        for here in (slice(0, TRIED_ROWS), slice(TRIED_ROWS, None)):
            lower[here], upper[here] = self._ascent.bounds(rows[here], self.enough, start)
            if 2 * np.count_nonzero(self.enough(lower[here], upper[here])) < lower[here].size:
                break
        return lower, upper

    def _newton_duals(self, rows: Rows) -> tuple[Array, Array]:
        duals, free = self.wide.newton_models(rows)
        return to_host(duals), free

    @cached_property
    def _ascent(self) -> AscentRows:
        return AscentRows(self.solution if self.solution.reached(COARSE) else self.accurate_solution)

    def wide_newton(self, rows: Rows) -> Bounds:
        """Newton candidates in the dimension of the rows."""
        self.wide.n_together = self._n_batched
        if self.only_labels and self.wide.has_balls:
            return self.wide.ball_bounds(rows, self.enough)
        return self.wide.quick_bounds(rows)

    def wide_steps(self, rows: Rows) -> Bounds:
        """More steps from the same candidates, with the old Hessian."""
        self.wide.n_together = STEPS_TOGETHER * self._n_batched
        return self.wide.bounds(rows, self.enough, BATCH_STEPS)

    def newton(self, rows: Rows) -> Bounds:
        """Newton candidates under the Fenchel-Young gap."""
        return self._family(float(self.factors[rows[0]])).bounds(rows)

    @cached_property
    def wide(self) -> WideRows:
        """All removals in the dimension of the rows."""
        return WideRows(self.solution if self.solution.reached(COARSE) else self.accurate_solution)

    def guess(self, rows: Rows) -> Bounds:
        """Scores after one Newton step per row (Appendix E.2), without proof; rows of one factor, or a single one."""
        scores = self._guesses(rows)
        return scores, scores

    def _guesses(self, rows: Rows) -> Array:
        if rows.size > 1 and has_wide_rows(self.problem):
            return self.wide.guesses(rows)
        if self.has_families and rows.size > 1 and np.isfinite(self.factors[rows[0]]):
            return self._family(float(self.factors[rows[0]])).guesses(rows)
        problem, point = self.without(int(rows[0]))
        space = RowSpace(problem) if uses_row_space(problem) else ColumnSpace(problem)
        unknowns = space.place(point)
        _, gradient, curvature = problem.loss.expand(problem.y, space.scores(unknowns))
        step = space.step(unknowns, gradient, curvature)
        return (space.scores(unknowns) + step.scores)[rows]

    def _family(self, factor: float) -> TallRows:
        if factor not in self._families:
            self._families[factor] = TallRows(self.solution, factor)
        return self._families[factor]

    def refine(self, rows: Rows) -> Bounds:
        """More Newton steps for one row, each followed by its certificate."""
        found = self._refitted_support(int(rows[0])) if self.refits is not None else None
        return self._for_all_factors(rows, self._refine(rows)) if found is None else found

    def _refitted_support(self, row: int) -> Bounds | None:
        """Bounds of one row's score under refitted strengths and a penalty with absolute values, if its support is proven for all strengths within their rounding."""
        assert self.refits is not None
        asked = has_support(self.problem) and self.bound in ("auto", "local")
        share = self.refits.strength_error(row) if asked and self.refits.together[row] else np.inf
        if not share < LARGEST_SHARE:
            return None
        problem = self.refits.described(self.problem, row).require_weight()
        region = find_support(problem, self.solution.point, share)
        return region.score_bounds(problem.matrix[row : row + 1]) if region.proven else None

    def _refine(self, rows: Rows) -> Bounds:
        row = int(rows[0])
        if self._trains_by_products:
            work, point = self._refinement(row)
            if work.product_steps(point) is not None:
                return work.found
        if self.refits is None and _has_wide(self) and np.isfinite(self.factors[row]):
            found = self.wide.refine_one(row, lambda *ends: self.finished(row, *ends))
            self.limited[row] = found.exhausted
            return found.lower, found.upper
        if self.refits is not None and has_wide_rows(self.problem):
            problem, _ = self.without(row)
            if (
                problem.n_columns == self.problem.n_columns
                and problem.scaling == self.problem.scaling
                and has_row_models(problem)
            ):
                models = RowModels(problem)
                start = models.place(self.solution.point, self.problem.weights)
                found = models.retrained(problem.weights, start, rows, lambda *ends: self.finished(row, *ends))
                self.limited[row] = found.exhausted
                return found.lower, found.upper
        work, point = self._refinement(row)
        on_pieces = self._candidate_on_pieces(row, work.problem)
        if on_pieces is not None and work.newton(on_pieces) is not None:
            return work.found
        near = self._candidate(row)
        if near is None or work.local_steps(approach(work.problem, near)[0], dual=False) is None:
            work.newton(point)
        return work.found

    @cached_property
    def _trains_by_products(self) -> bool:
        """Whether one row's model is trained and its label proven by products with X, which are cheaper than a factor."""
        return self.only_labels and self.refits is None and self.bound == "auto" and has_products(self.problem)

    @property
    def only_labels(self) -> bool:
        """Whether labels are asked for, and no narrow intervals later: these need leverages, which then decide labels, too."""
        return self.width is None and self.aim is None

    def _candidate(self, row: int) -> Point | None:
        """Where steps of many rows at once have ended for one that they left open."""
        for family in (self._sharp.get(float(self.factors[row])), self._local.get(float(self.factors[row]))):
            if family is not None and row in family.candidates:
                return Point.unpacked(family.candidates[row], self.problem.fit_intercept)
        return None

    def _candidate_on_pieces(self, row: int, problem: Problem) -> Point | None:
        """The candidate of a row under a loss with kinks, where its gap has left the row open."""
        family = self._paths.get(float(self.factors[row])) if self.refits is None else None
        if family is None or row not in family.candidates:
            return None
        kept = family.candidates[row]
        assert kept.dual is not None
        return replace(kept, dual=duality.feasible_dual(problem, kept.dual))

    def training(self, rows: Rows) -> Bounds:
        """A full training of one row's problem, with the certificate as the stopping rule (Remark 3)."""
        work, point = self._refinement(int(rows[0]))
        if self.problem.in_memory:
            work.train(point, 0.0, thorough=False)
        else:
            work.newton(point)
        return self._for_all_factors(rows, work.found)

    def _for_all_factors(self, rows: Rows, found: Bounds) -> Bounds:
        """Bounds under refitted scales as they are stored, made to hold for all scales within their rounding."""
        if self.refits is None or not self._factor_slack[rows].any():
            return found
        lower, upper = found
        return outward(lower - self._factor_slack[rows], -np.inf), outward(upper + self._factor_slack[rows], np.inf)

    def _widening(self, row: int) -> float:
        """At least by how much :meth:`_for_all_factors` moves each end of a row's interval."""
        if self.refits is None or self.problem.loss.several:
            return 0.0
        return (1.0 + 1e-6) * float(self._factor_slack[row])

    @cached_property
    def _factor_slack(self) -> Array:
        assert self.refits is not None
        return self.refits.slack(self.problem)

    def retrain(self, rows: Rows) -> Bounds:
        """The score of one row under its trained model (Algorithm 1, with a warm start), without proof."""
        problem, point = self.without(int(rows[0]))
        scores = train(problem, tol=self.tol, start=point).scores[rows]
        if problem.loss.several:
            scores = query_centers(scores, scores.argmax(axis=1))
        return scores, scores

    def block_local(self, places: Rows) -> Bounds:
        """The closed form with the exact largest norm of a row, for rows of blocks."""
        assert self._block_family is not None
        return self._block_family.bounds(self.numbers[places], self.enough)

    def block_newton(self, places: Rows) -> Bounds:
        """Newton steps with the old Hessian for rows of blocks, a pass over the data each."""
        assert self._block_family is not None
        return self._block_family.refined(self.numbers[places], self.enough, BATCH_STEPS)

    @cached_property
    def _refitted(self) -> TallRefits | WideRefits:
        assert self.refits is not None
        start = self.solution if self.solution.reached(COARSE) else self.accurate_solution
        return self._refitted_at(start, self.refits)

    def _refitted_at(self, start: Solution, refits: Refits) -> TallRefits | WideRefits:
        """The removals around a solution with refitted preprocessing."""
        if start.problem.scaling == "mean":
            start, refits = summed(start), refits.summed(start.problem)
        return (WideRefits if has_wide_rows(start.problem) else TallRefits)(start, refits)

    def variant_rows(self) -> list[Rows]:
        """The open rows of each kind without which the columns are others."""
        assert self.refits is not None
        return [np.intersect1d(self.open_rows(), variant.rows) for variant in self.refits.variants]

    def refitted_variant(self, rows: Rows) -> Bounds:
        """As :meth:`refitted`, around a model that is trained in the columns that rows of one kind have in common."""
        assert self.refits is not None
        for variant in self.refits.variants:
            if rows.size and rows[0] in variant.rows:
                start = train(variant.problem, tol=COARSE, start=self.solution.point, budget=self.budget)
                return self._refitted_at(start, variant.refits).bounds(rows, self._narrow, BATCH_STEPS)
        return unbounded(rows.size)

    def refitted_quick(self, rows: Rows) -> Bounds:
        """Newton candidates under preprocessing that is fitted again, bounded without a product of all rows with each."""
        assert isinstance(self._refitted, TallRefits)
        return self._refitted.quick_bounds(rows, self.enough)

    def refitted(self, rows: Rows) -> Bounds:
        """Newton candidates under preprocessing that is fitted again, and more steps where needed."""
        return self._refitted.bounds(rows, self._narrow, BATCH_STEPS)

    def _narrow(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """Whether rows are decided, and so narrow that nothing is left to :meth:`tighten`, which would begin again."""
        found = self.enough(lower, upper)
        if self.aim is None or self.budget.spent:
            return found
        return found & (widths_of_rows(lower, upper) <= 0.5 * self.aim)

    def _refinement(self, place: int) -> tuple[Refinement, Point]:
        """What is to be proven of a row under the model without it, and where to start."""
        problem, point = self.without(place)
        names = EVERY if self.bound in ("auto", "local") else (self.bound,)
        here = slice(place, place + 1)
        query = problem.matrix[here] if self.problem.in_memory else self.problem.take(self.numbers[here]).matrix
        return Refinement(problem, query, lambda *ends: self.finished(place, *ends), names, self.budget), point

    def without(self, place: int) -> tuple[Problem, Point]:
        """The problem in which a row has weight zero, and the old optimum as a point of it."""
        solution = self.solution
        if self.refits is None:
            problem = self.problem.without(self.numbers[place : place + 1]).require_weight()
        else:
            problem = self.refits.problem(self.problem, place).require_weight()
        if problem.n_columns != self.problem.n_columns:
            if problem.loss.several:
                return problem, zero_point(problem)
            nothing = np.zeros(problem.n_columns)
            return problem, Point(nothing, 0.0, dual_of(problem, problem.scores(nothing)))
        # A dual point with one score per class follows from the coefficients when it is asked for.
        carried = problem.in_memory and not problem.loss.several
        dual = duality.feasible_dual(problem, solution.dual) if carried else None
        return problem, Point(solution.coef, solution.intercept, dual)


@final
@dataclass(frozen=True)
class Step:
    """A way to tighten the bounds of held-out rows.

    Attributes
    ----------
    stage : str
        What it is called in a result.
    needs : str
        What it asks of loss, penalty, shape and place of the data, and what it costs, in words.
    applies : callable
        Whether a run has what it needs.
    rows : callable or None
        The open rows it works on, in batches; None: all rows, in one pass over the blocks (:meth:`Cascade.sweep`).
    work : callable
        Bounds of a batch.
    price : int, default=1
        What it costs before its first row, in trainings, at most: fewer open rows are left to what comes after it.
    proven : bool, default=True
        Whether it proves bounds.
    tightens : bool, default=False
        Whether it takes all rows at once and makes intervals as narrow as is asked for, not only one step narrower.
    refits : bool, default=False
        Whether it follows preprocessing that is fitted again without each row.
    several : bool, default=False
        Whether it is for one score per class, or for one score.
    """

    stage: str
    needs: str
    applies: Callable[[Cascade], bool]
    rows: Callable[[Cascade], Iterable[Rows]] | None
    work: Callable[[Cascade, Rows], Bounds] = Cascade.carry
    price: int = 1
    proven: bool = True
    tightens: bool = False
    refits: bool = False
    several: bool = False


def summed(solution: Solution) -> Solution:
    """The solution for the objective multiplied by its total weight."""
    problem = solution.problem
    summed = problem.derive(scaling="sum", penalty=problem.penalty.scale(problem.total_weight))
    with np.errstate(over="ignore"):  # a gap that overflows is infinite
        return solution_at(summed, solution.point, solution.n_iter, solution.status, solution.solver)


def _has_classes(cascade: Cascade) -> bool:
    problem = cascade.problem
    return problem.loss.several and problem.in_memory and has_classes(cascade.class_problem)


def _has_class_blocks(cascade: Cascade) -> bool:
    return not cascade.problem.in_memory and cascade.class_blocks.usable


def _has_class_proof(cascade: Cascade) -> bool:
    return cascade.problem.in_memory and (has_classes(cascade.problem) or has_class_ball(cascade.problem))


def _has_refitted(cascade: Cascade) -> bool:
    return cascade.refits is not None and has_refitted_rows(cascade.problem)


def _described(cascade: Cascade) -> list[Rows]:
    """The open rows that refits describe, in batches."""
    assert cascade.refits is not None
    return [rows[cascade.refits.together[rows]] for rows in cascade.batches(grouped=False)]


def _all_open(cascade: Cascade) -> list[Rows]:
    return [cascade.open_rows()]


def _ungrouped(cascade: Cascade) -> list[Rows]:
    return cascade.batches(grouped=False)


def _at_once(cascade: Cascade, size: int) -> list[Rows]:
    places = cascade.open_rows()
    return [places[start : start + size] for start in range(0, places.size, size)]


def _one_by_one(cascade: Cascade) -> Iterator[Rows]:
    """Single rows, as long as it spares the training of half of them."""
    spared = 0
    for tried, row in enumerate(cascade.resolvable_rows(MANY_ROWS)):
        if tried >= TRIED_ROWS and 2 * spared < tried:
            return
        rows = np.array([row])
        yield rows
        spared += int(cascade.stage_codes[row] != OPEN or cascade.limited[row] or cascade.at_limit(rows)[0])


def _each(cascade: Cascade) -> Iterator[Rows]:
    return (np.array([row]) for row in cascade.open_rows())


def _to_train(cascade: Cascade) -> Iterator[Rows]:
    rows = cascade.resolvable_rows(FEW_ROWS) if cascade.problem.in_memory else cascade.open_rows()
    return (np.array([row]) for row in rows[: cascade.max_trainings])


def _has_carried(cascade: Cascade) -> bool:
    return cascade.problem.in_memory and has_carried(cascade.problem)


def _carries_first(cascade: Cascade) -> bool:
    problem = cascade.problem
    # Of a quadratic loss the local step is exact.
    small = problem.n_rows * problem.n_columns < SMALL_MATRIX or problem.loss.self_concordance == 0.0
    return (_has_carried(cascade) and not (small and _has_local(cascade))) or _has_centred(cascade)


def _has_centred(cascade: Cascade) -> bool:
    """Whether the carried bound with an intercept is far cheaper than a factor over the rows."""
    problem = cascade.problem
    if not (_has_wide(cascade) and has_centred(problem)):
        return False
    return CENTRED_PRODUCTS * problem.matrix.product_cost < leverage_cost(problem, problem.n_rows)


def _carries_later(cascade: Cascade) -> bool:
    return _has_carried(cascade) and not _carries_first(cascade)


def _has_local(cascade: Cascade) -> bool:
    problem = cascade.problem
    tall = problem.in_memory and problem.n_rows >= problem.n_columns
    return tall and (has_local_rows(problem) or has_piece_rows(problem)) and cascade.uniform


def _has_support(cascade: Cascade) -> bool:
    return has_support(cascade.problem) and cascade.uniform and cascade.bound in ("auto", "local")


def _has_kinks(cascade: Cascade) -> bool:
    problem = cascade.problem
    asked = cascade.bound in ("auto", "primal") and (problem.loss.piecewise or isinstance(problem.loss, Hinge))
    return asked and has_kinks(problem) and cascade.uniform


def _has_wide(cascade: Cascade) -> bool:
    return cascade.problem.in_memory and has_wide_rows(cascade.problem) and not _has_kinks(cascade)


def _has_wide_steps(cascade: Cascade) -> bool:
    """Whether steps of all open rows at once cost less than training these by products."""
    problem = cascade.problem
    if not _has_wide(cascade) or not cascade._trains_by_products:
        return _has_wide(cascade)
    trainings = TRAINING_PRODUCTS * cascade.n_open * problem.matrix.product_cost
    return leverage_cost(problem, min(problem.n_rows, STEPS_TOGETHER * cascade.n_open)) < trainings


def _has_ascent(cascade: Cascade) -> bool:
    """Whether passes are cheaper than what else there is: a factor over the rows, all leverages, or training for the hinge."""
    problem = cascade.problem
    if not (
        problem.in_memory and has_ascent(problem) and cascade.width is None and cascade.bound in ("auto", "primal")
    ):
        return False
    if not has_wide_rows(problem):
        # Of dense data a pass costs about as much as an iteration of the interior-point training, which needs fewer.
        return isinstance(problem.loss, Hinge) and not problem.matrix.stores_zeros
    if not cascade.only_labels:
        return False
    n_known = problem.n_rows if "wide" in cascade.__dict__ else cascade.n_open
    return ascent_cost(problem, cascade.n_open) < leverage_cost(problem, n_known)


def _has_newton(cascade: Cascade) -> bool:
    return cascade.problem.in_memory and cascade.has_families


def _has_curvature(cascade: Cascade) -> bool:
    problem = cascade.problem
    return problem.in_memory and not isinstance(problem.loss, Hinge) and min(problem.matrix.shape) <= problem.largest


def _has_guesses(cascade: Cascade) -> bool:
    return cascade.has_families or has_wide_rows(cascade.problem)


def _guessed(cascade: Cascade) -> list[Rows]:
    return cascade.batches(cascade.has_families)


CARRY = Step(
    "carry",
    "memory, a strongly convex penalty and no intercept; one product with X",
    _has_carried,
    _all_open,
    Cascade.carry,
)

ASCENT = Step(
    "refine",
    "memory, the logistic or the hinge loss, an L2 penalty, no intercept, cheap products; a few passes over X for each row",
    _has_ascent,
    _all_open,
    Cascade.ascent,
)

TRAINING = Step(
    "training",
    "memory, or what the local step needs of blocks; Newton steps of each row's own problem, the rest of a training in memory",
    lambda cascade: cascade.problem.in_memory or cascade.has_local_blocks,
    _to_train,
    Cascade.training,
    refits=True,
)

STEPS = (
    Step(
        "local",
        "blocks, a self-concordant loss, a smooth penalty, few columns; one pass, with a Hessian",
        lambda cascade: cascade.has_local_blocks,
        None,
    ),
    Step(
        "carry",
        "blocks of which the local step proves nothing; bounded under a strongly convex penalty without an intercept; one pass",
        lambda cascade: not cascade.problem.in_memory and not cascade.has_local_blocks,
        None,
    ),
    replace(CARRY, applies=_carries_first, work=Cascade.midpoint),
    Step(
        "local",
        "memory, a self-concordant or piecewise quadratic loss, a smooth penalty, few different weights, tall data; one Hessian",
        _has_local,
        _all_open,
        Cascade.local,
        tightens=True,
    ),
    replace(CARRY, applies=_carries_later, work=Cascade.midpoint),
    Step(
        "local",
        "as the local step of blocks; reads the open rows",
        lambda cascade: cascade.has_local_blocks,
        lambda cascade: _at_once(cascade, ROWS_AT_ONCE),
        Cascade.block_local,
    ),
    Step(
        "newton",
        "as the local step of blocks; a pass for each step",
        lambda cascade: cascade.has_local_blocks,
        lambda cascade: _at_once(cascade, MODELS_AT_ONCE),
        Cascade.block_newton,
    ),
    Step(
        "newton",
        "as the local step in memory; a product with X for each step",
        _has_local,
        Cascade.batches,
        Cascade.local_newton,
        tightens=True,
    ),
    Step(
        "newton",
        "memory, absolute values in the penalty, a self-concordant and smooth loss, few different weights; a Hessian for each support",
        _has_support,
        Cascade.batches,
        Cascade.support,
        tightens=True,
    ),
    Step(
        "refine",
        "memory, dense data, a loss with kinks, an L2 penalty on every column, few different weights; a few small systems for each row",
        _has_kinks,
        Cascade.batches,
        Cascade.paths,
        tightens=True,
    ),
    ASCENT,
    Step(
        "newton",
        "memory, wide data and a self-concordant loss, or a smooth one without an intercept; one factor and inverse over the rows",
        _has_wide,
        _ungrouped,
        Cascade.wide_newton,
        price=2,
        tightens=True,
    ),
    ASCENT,
    Step(
        "refine",
        "the same; products of the size of the rows for each step",
        _has_wide_steps,
        _ungrouped,
        Cascade.wide_steps,
        price=2,
        tightens=True,
    ),
    Step(
        "newton",
        "memory, tall data, a smooth loss, a strongly convex penalty, no intercept; one Hessian, two products with X",
        _has_newton,
        Cascade.batches,
        Cascade.newton,
    ),
    Step(
        "newton",
        "memory, tall data, refitted preprocessing, a self-concordant loss, a smooth penalty; one factor",
        lambda cascade: (
            _has_refitted(cascade) and not has_wide_rows(cascade.problem) and not cascade.problem.loss.piecewise
        ),
        lambda cascade: [rows[cascade.refits.together[rows]] for rows in _all_open(cascade)] if cascade.refits else [],
        Cascade.refitted_quick,
        tightens=True,
        refits=True,
    ),
    Step(
        "newton",
        "memory, refitted preprocessing, a self-concordant loss, a smooth penalty; one factor, and two products with X for each step",
        _has_refitted,
        _described,
        Cascade.refitted,
        tightens=True,
        refits=True,
    ),
    Step(
        "newton",
        "the same, rows without which the columns are others; a model of all rows for each kind of them",
        lambda cascade: _has_refitted(cascade) and cascade.refits is not None and bool(cascade.refits.variants),
        Cascade.variant_rows,
        Cascade.refitted_variant,
        tightens=True,
        refits=True,
    ),
    Step(
        "refine",
        "memory, a loss with a curvature; a factor for each step of each row",
        _has_curvature,
        _one_by_one,
        Cascade.refine,
        refits=True,
    ),
    TRAINING,
    Step(
        "local",
        "blocks, one score per class, a Hessian over classes and columns that is small enough to form; one pass",
        _has_class_blocks,
        None,
        several=True,
    ),
    Step(
        "newton",
        "the same; a pass for each step",
        _has_class_blocks,
        lambda cascade: _at_once(cascade, MODELS_AT_ONCE),
        Cascade.class_block_newton,
        several=True,
    ),
    Step(
        "training",
        "the same; Newton steps of each row's own problem, a pass each",
        _has_class_blocks,
        _to_train,
        Cascade.class_refine,
        several=True,
    ),
    Step(
        "local",
        "memory, one score per class, a Hessian over classes and columns that is small enough to form",
        _has_classes,
        _all_open,
        Cascade.class_local,
        several=True,
    ),
    Step(
        "newton",
        "the same; a product with X and one with its transpose for each step",
        _has_classes,
        _ungrouped,
        Cascade.class_newton,
        tightens=True,
        several=True,
    ),
    Step(
        "newton",
        "the same, refitted preprocessing and a smooth penalty",
        lambda cascade: cascade.refits is not None and _has_classes(cascade) and cascade.problem.penalty.smooth,
        _described,
        Cascade.class_refitted,
        tightens=True,
        refits=True,
        several=True,
    ),
    Step(
        "refine",
        "the same; a Hessian for each step of each row",
        _has_classes,
        _each,
        Cascade.class_refine,
        refits=True,
        several=True,
    ),
    Step(
        "training",
        "memory, one score per class; a training for each row, certified by a Hessian where one is small enough, or else by its gap",
        _has_class_proof,
        _each,
        Cascade.class_training,
        refits=True,
        several=True,
    ),
)
"""The steps of leave-one-out in the order of their price. A new bound of all rows is a new entry here."""

APPROXIMATIONS = (
    Step("approx", "a smooth loss, few different weights", _has_guesses, _guessed, Cascade.guess, proven=False),
    Step("approx", "a smooth loss; a factor for each row", lambda _: True, _each, Cascade.guess, proven=False),
)

METHODS = {
    "certified": STEPS,
    "glru": (CARRY, TRAINING),
    "naive": tuple(
        Step("training", "memory", lambda _: True, _each, Cascade.retrain, proven=False, refits=True, several=several)
        for several in (False, True)
    ),
    "approx": APPROXIMATIONS,
    "approx-glru": (CARRY, *APPROXIMATIONS),
}
"""The steps of every method of leave-one-out."""
