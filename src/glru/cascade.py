"""The cascade: cheapest proof first, each step only sees the rows the earlier ones left open.

A run asks for the score of every row under the model trained without it. How such scores are bounded depends on the problem, and is
in :mod:`glru.removals`: one class for each kind of problem, with a table of its steps. :class:`Cascade` takes these steps in order and owns
the bounds, the budget, the progress and what is recalled from a checkpoint.

**No run costs much more than training its rows.** Let ``T`` be the counted work (:func:`glru.linalg.counted`) of the first training, which is about that of a
training from the old optimum with its proof: it takes half the iterations, and the proof as much as the other half. A step that
has spent ``S`` on ``n`` rows and decided ``k`` of them has lost ``S - k T``. It ends once it has lost half of what is left of ``LOSSES n T`` and at least two trainings, and what it
leaves open is the next step's, in the end training's. All steps together lose at most ``LOSSES`` times the training of all rows, up to these two trainings and one batch of each.
Counts, not times, decide: every run of a question takes the same steps.
"""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from glru import duality
from glru._options import UNLIMITED, Budget
from glru.bounds import Bounds, convert_queries, is_decided, unbounded, widths_of_rows
from glru.certificate import certify
from glru.linalg import Array, counted, uncounted
from glru.losses import Hinge
from glru.problem import Point, Problem
from glru.refine import bound_by_certificate
from glru.regions.classes import make_unbounded_queries, query_centers
from glru.solution import Solution, find_dual
from glru.solvers import train
from glru.solvers.newton import zero_point
from glru.updates.carried_rows import removal_factors
from glru.updates.refits import Refits

STAGES = ("carry", "local", "newton", "refine", "training", "approx", "wide", "undetermined")
"""What may decide a row, in the order of the price; "approx" proves nothing. "wide": the label is proven, the interval wider than asked."""

WIDE, OPEN = STAGES.index("wide"), STAGES.index("undetermined")

BATCH_STEPS = 30
"""Steps with the old Hessian in a batch; each reduces the error by about the largest move of a score."""

COARSE = 1e-5
"""A solution with a relative gap above this is trained further before rows are removed from it."""

ACCURATE = 1e-12
"""A solution that one Newton step would move far is trained further, to this relative gap."""

NEAR_FINEST = 16.0
"""An interval within this factor of the narrowest that float64 allows is refined only if that decides its row."""

FEW_ROWS, MANY_ROWS = 4, 32
"""With at most this many open rows, training (the first) and refining (the second) start without checking whether they can help."""

LOSSES = 0.2
"""The most that all steps together may lose against training, as a share of training all rows; see the module docstring."""

MANY_TRAININGS = 16
"""A step that has spent as much as this many trainings may have one training measured for comparison."""

FIRST_ROWS = 8
"""A step that works on each row separately takes this many rows first, then ``MANY_ROWS`` at a time; what it has lost is checked after each part."""

TIGHTENED_SHARE = 8
"""At most one row in this many is narrowed on its own: more would approach the cost of training every row."""

MAX_FACTORS = 16
"""Families are used while the rows' weights give at most this number of different factors."""

USUAL_MEMORY = 2 << 30
"""Bytes for the work arrays of a batch where no limit is given."""

Rows = NDArray[np.intp]
Report = Callable[[str, int, int], None]
Found = tuple[Array, Array, NDArray[np.bool_], int]
"""Bounds of some rows, which of them are given up, and the counted work."""

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
        yield _report_nothing
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


def _report_nothing(stage: str, done: int, total: int) -> None:
    """Report nothing."""


def find_widest_rows(widths: Array, width: float, largest: float = np.inf) -> Rows:
    """The rows with the widest intervals, widest first, as many as keep the others narrow enough on average, and none wider than ``largest``."""
    wide = widths > min(width, largest)
    rows = np.flatnonzero(wide)
    rows = rows[np.argsort(-widths[rows], kind="stable")]
    # What each row and all narrower ones add up to.
    rest = np.sum(widths, where=~wide) + np.cumsum(widths[rows][::-1])[::-1]
    return rows[((rest > width * widths.size) & (widths[rows] > width)) | (widths[rows] > largest)]


def _work_on(rows: Rows, work: Callable[[Rows], Found]) -> Found:
    """Do the work: there is no checkpoint."""
    return work(rows)


def measure_smallest_batch(problem: Problem) -> int:
    """Bytes of the work arrays of a batch of one row: at most 24 vectors with one entry per row."""
    return 8 * 24 * problem.n_rows


class Output(Protocol):
    """Where the results of rows in blocks go instead of memory."""

    def write(
        self, number: int, start: int, y: Array | NDArray[np.int8], lower: Array, upper: Array, stages: NDArray[np.str_]
    ) -> None:
        """Write the rows of a block."""


@final
@dataclass(frozen=True)
class Written:
    """The rows of blocks that are in the output alone."""

    stage: str = "undetermined"  # the stage that decided them
    n_rows: int = 0  # how many there are
    errors: tuple[int, int] = (0, 0)  # the least and the largest number of held-out errors among them
    n_unlabelled: int = 0  # how many of them are narrow enough, but without a label


@final
class Account:
    """What steps spend, in counted work, and how many rows they decide; ``worth``: the work of a training with its proof, 0 where it is not known."""

    def __init__(self, worth: int, n_all: int) -> None:
        self.worth, self.n_all, self.measured, self.left = worth, n_all, False, LOSSES
        self.total = self.n_decided = 0
        self.open(np.inf)

    def open(self, n_rows: float) -> None:
        """Begin a step on some rows; infinitely many: it may spend what it likes."""
        self.n_rows, self.before = n_rows, (self.total, self.n_decided)
        self.begin(0)

    def begin(self, n_rows: int) -> None:
        """Begin the work on a batch."""
        self.mark, self.n_batch = counted(), n_rows

    @property
    def is_limited(self) -> bool:
        """Whether the step may not spend what it likes."""
        return self.worth > 0 and self.n_rows < np.inf

    @property
    def spent(self) -> int:
        """The work on the batch so far."""
        return counted() - self.mark

    def end(self, spent: int, n_decided: int) -> None:
        """End the work on a batch."""
        self.total, self.n_decided = self.total + spent, self.n_decided + n_decided
        self.begin(0)

    def is_lost(self, n_open: int = 0) -> bool:
        """Whether the step is to end, if so many rows of its batch are open; those that the batch no longer asks about count as decided."""
        # The steps of a single row are few.
        if not self.is_limited or self.n_batch == 1:
            return False
        # A batch that has ended is not taken up again: until the training of a row was seen, it is taken to cost twice as much as the first.
        certain = self.measured or (self.n_batch == 0 and self.total - self.before[0] > MANY_TRAININGS * self.worth)
        worth = self.worth if certain else 2 * self.worth
        decided = self.n_decided - self.before[1] + self.n_batch - n_open
        return self.total - self.before[0] + self.spent > (decided + max(0.5 * self.left * self.n_rows, 2.0)) * worth

    def has_spared(self) -> bool:
        """Whether the rows so far took less than half the work of training them, so that more may go into narrower intervals."""
        n_rows = min(self.n_decided + self.n_batch, self.n_all)
        return self.worth == 0 or self.total + self.spent < 0.5 * self.worth * n_rows

    def close(self) -> None:
        """End a step: what it has lost, the next ones cannot lose again."""
        if self.is_limited and self.n_rows > 0:
            lost = (self.total - self.before[0]) / self.worth - (self.n_decided - self.before[1])
            self.left -= min(max(lost / self.n_rows, 0.0), 0.5 * self.left)
        self.open(np.inf)


@final
class Cascade:
    """A leave-one-out run: bounds of every held-out score, and which stage decided it.

    The run knows nothing about how scores are bounded: that is the business of its :class:`Removals`, whose steps it takes in
    order. For rows in blocks, it holds those that the first pass has brought back: all of them, or, with an output, the open ones. Steps
    take and return the places of rows in the arrays that it holds; in memory these are the rows' numbers.
    """

    def __init__(
        self,
        removals: "Callable[[Cascade], Removals]",
        solution: Solution,  # the model of all rows
        width: float | None = None,  # how narrow intervals have to be; None: narrow enough for a label
        *,
        bound: str = "auto",
        max_memory: int = USUAL_MEMORY,  # bytes for the work arrays of a batch
        max_trainings: int | None = None,
        tol: float = 1e-6,  # relative gap of trainings without a proof
        report: Report = _report_nothing,
        budget: Budget = UNLIMITED,
        recall: Recall = _work_on,  # where finished work comes from
        output: Output | None = None,  # where the results of rows in blocks go
        aim: float | None = None,  # the width on average that :meth:`tighten` will be asked for
        largest: float = np.inf,  # the width that no interval is to exceed where :meth:`tighten` has the means
    ) -> None:
        self.solution, self.problem, self.width, self.bound = solution, solution.problem, width, bound
        self.max_memory, self.max_trainings, self.tol, self.aim = max_memory, max_trainings, tol, aim
        self.largest = largest
        self.report, self.budget, self.recall, self.output = report, budget, recall, output
        self.seconds: dict[str, float] = {}
        self.n_trainings, self.n_batched, self.tightening = 0, 0, False
        self._account, self._worked = Account(solution.work, self.problem.n_rows), False
        self._recalled: Callable[[], Bounds] | None = None
        self.written = Written()  # the rows that are in the output alone
        self.finest: Array | None = None
        held = self.problem.n_rows if self.problem.in_memory else 0
        several = self.problem.loss.several
        nothing = make_unbounded_queries(held, self.problem.n_scores) if several else unbounded(held)
        self.n_unseen = self.problem.n_rows - held  # rows in blocks that no step has bounded yet
        self.hold(np.arange(held), self.problem.targets if held else np.empty(0), nothing)
        self.removals = removals(self)

    def hold(self, numbers: Rows, y: NDArray[Any], bounds: Bounds) -> None:
        """Hold some rows from now on, all of them open."""
        self.numbers, self.y = numbers, y
        # Of the scores; of the queries where there is one score per class (:mod:`glru.bounds`).
        self.lower, self.upper = bounds
        # The stages that decided the rows, by their places in ``STAGES``.
        self.stage_codes = np.full(numbers.size, OPEN, dtype=np.int8)
        self.limited = np.zeros(numbers.size, dtype=bool)  # open rows that were given up

    def open_rows(self) -> Rows:
        """The rows that are not decided yet."""
        return np.flatnonzero(self.stage_codes == OPEN)

    @property
    def n_open(self) -> int:
        """How many rows are not decided yet."""
        return int(np.count_nonzero(self.stage_codes == OPEN))

    @property
    def only_labels(self) -> bool:
        """Whether labels are asked for, and no narrow intervals later: these need leverages, which then decide labels, too."""
        return self.width is None and self.aim is None

    def decided(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """Whether bounds are as tight as was asked for."""
        return self._reaches(lower, upper, self.width)

    def _reaches(self, lower: Array, upper: Array, width: float | None) -> NDArray[np.bool_]:
        if self.problem.loss.several:
            return convert_queries(lower, upper).enough(width)
        return is_decided(lower, upper, width)

    def enough(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """Whether a loop inside a stage may end: what it asks about is decided, the time is up, or the stage has lost too much."""
        found = self.decided(lower, upper)
        stops = self.budget.spent or self._account.is_lost(int(np.count_nonzero(~found)))
        return np.ones(len(lower), dtype=bool) if stops else found

    def narrow(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """Whether rows are decided, and so narrow that nothing is left to :meth:`tighten`, which would begin again."""
        found = self.enough(lower, upper)
        if self.aim is None or self.budget.spent or not self._may_narrow():
            return found
        return found & (widths_of_rows(lower, upper) <= 0.5 * self.aim)

    def _may_narrow(self) -> bool:
        """Whether work may go into intervals narrower than was asked for, beyond what a label takes: always, where no interval may be wider than some width."""
        return self.largest < np.inf or self._account.has_spared()

    def is_enough_on_average(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """As :meth:`enough`; where :meth:`tighten` asks, all rows of a batch but the widest, whose average is narrow enough."""
        found = self.enough(lower, upper)
        if self.tightening and self.width is not None and not found.all():
            found = np.ones(found.size, dtype=bool)
            found[find_widest_rows(widths_of_rows(lower, upper), 0.25 * self.width, self.largest)] = False
        return found

    @property
    def widths(self) -> Array:
        """The width of every row's interval, the largest where there is one score per class."""
        return widths_of_rows(self.lower, self.upper)

    def name_stages(self) -> NDArray[np.int8]:
        """The stage of every row, with those told apart whose label is proven and whose interval is wider than asked."""
        codes, rows = self.stage_codes.copy(), self.open_rows()
        if self.problem.loss.task == "classification":
            codes[rows[self._reaches(self.lower[rows], self.upper[rows], None)]] = WIDE
        return codes

    def follow(self, method: str) -> None:
        """Take all steps of a method in order, each on what the earlier ones left open."""
        for step in self.removals.steps[method]:
            n_left = self.n_unseen + self.n_open
            if n_left == 0:
                break
            if n_left < step.price or not step.applies(self.removals):
                continue
            if step.rows is None:
                self._sweep(step)
                continue
            # Training is what everything else is compared with.
            self._account.open(np.inf if step.stage in ("training", "approx") else self.n_open)
            for rows in step.rows(self.removals):
                if self.budget.spent or self._is_lost(method):
                    break
                self.run(step.stage, rows, partial(step.work, self.removals), step.proven)
            self._account.close()
        rows = self.open_rows()
        self.limited[rows] |= self.is_at_limit(rows)

    def _is_lost(self, method: str) -> bool:
        """Whether a step is to end before its next batch; before the first that does, a row is trained, to know what that takes."""
        account, sample = self._account, self.removals.sample_step(method)
        rows = self.open_rows()[:1]
        if account.is_lost() and not account.measured and rows.size and sample.applies(self.removals):
            before, account.measured = account.total, True
            self.run(sample.stage, rows, partial(sample.work, self.removals))
            account.worth = account.total - before
        return account.is_lost()

    def _sweep(self, step: "Step[Any]") -> None:
        """Bound all rows in one pass over the blocks."""
        begin = time.perf_counter()
        bounds = step.work(self.removals, self.open_rows())
        self.n_unseen = 0
        self.stage_codes[self.decided(*bounds)] = STAGES.index(step.stage)
        self._tell(step.stage, begin)

    def tighten(self, width: float) -> None:
        """Narrow intervals until they are ``width`` wide on average; which stage decided a row before stays as it is.

        This is done by the steps that take many rows at once and by Newton steps of a few single rows. What these leave wider is not
        worth a training of its own.
        """
        if self.budget.spent:
            return
        codes, limited, before = self.stage_codes.copy(), self.limited.copy(), self.width
        report, seconds, begin = self.report, dict(self.seconds), time.perf_counter()
        self.width, self.report, self.tightening = 0.5 * width, _report_nothing, True
        for step in self.removals.steps["certified"]:
            if step.tightens and step.applies(self.removals) and step.price < self._open_widest().size:
                for rows in step.rows(self.removals) if step.rows is not None else ():
                    if self._may_narrow():
                        self.run(step.stage, rows, partial(step.work, self.removals))
        self._tighten_few(width)
        self.stage_codes, self.limited, self.width, self.tightening = codes, limited, before, False
        rows = self.open_rows()
        codes[rows[self.decided(self.lower[rows], self.upper[rows])]] = STAGES.index("refine")
        self.report, self.seconds = report, seconds
        self._tell("tighten", begin)

    def _tighten_few(self, width: float) -> None:
        """Take Newton steps of the few widest rows, where these can bring the intervals to the width on average."""
        work = self.removals.single_steps()
        if work is None:
            return
        rows = self.open_rows()
        rows = rows[np.argsort(-self.widths[rows], kind="stable")]
        rows = rows[: min(MANY_ROWS, 1 + self.problem.n_rows // TIGHTENED_SHARE)]
        most = width * self.numbers.size
        if float(np.sum(self.widths) - np.sum(self.widths[rows])) > most:
            return
        for row in rows:
            if not self._may_narrow() or (float(np.sum(self.widths)) <= most and self.widths[row] <= self.largest):
                break
            self.run("refine", np.array([row]), work)

    def _open_widest(self) -> Rows:
        """Open the rows with the widest intervals, as many as keep the others narrow enough on average."""
        assert self.width is not None
        widths = self.widths
        rows = self.removals.select_affordable(find_widest_rows(widths, self.width, self.largest))
        self.stage_codes = np.zeros(widths.size, dtype=np.int8)
        self.stage_codes[rows] = OPEN
        return rows

    def run(self, stage: str, rows: Rows, work: Callable[[Rows], Bounds], proven: bool = True) -> None:
        """Run a stage on some rows and take in what it proves; not ``proven``: the scores that it gives, as they are."""
        if self.budget.spent:
            return
        begin = time.perf_counter()
        if rows.size:
            account = self._account
            account.begin(rows.size)
            lower, upper, self.limited[rows], spent = self.recall(rows, partial(self._work_counted, work))
            self._recalled = None if self._worked else partial(work, rows)
            if proven:
                self.lower[rows] = np.maximum(self.lower[rows], lower)
                self.upper[rows] = np.minimum(self.upper[rows], upper)
                done = rows[self.decided(self.lower[rows], self.upper[rows]) & (self.stage_codes[rows] == OPEN)]
            else:
                known = np.isfinite(lower) if lower.ndim == 1 else np.isfinite(lower).all(axis=1)
                done = rows[known]
                self.lower[done], self.upper[done] = lower[known], upper[known]
            self.stage_codes[done] = STAGES.index(stage)
            account.end(spent, int(np.count_nonzero((self.stage_codes[rows] != OPEN) | self.limited[rows])))
            self.n_trainings += rows.size if stage == "training" else 0
        self._tell(stage, begin)

    def _work_counted(self, work: Callable[[Rows], Bounds], rows: Rows) -> Found:
        """Do the work on some rows and count it, after what has come from a checkpoint: the last of that is done again, so that all it has left for later is there."""
        if self._recalled is not None and self._account.is_limited:
            with uncounted():
                self._recalled()
        self._recalled, self._worked = None, True
        lower, upper = work(rows)
        return lower, upper, self.limited[rows], self._account.spent

    def _tell(self, stage: str, begin: float) -> None:
        """Note the time of a stage and report what is done."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - begin
        self.report(stage, self.problem.n_rows - self.n_open, self.problem.n_rows)

    def find_resolvable_rows(self, few: int) -> Rows:
        """The open rows but those that refinement is not expected to decide, for the rounding of a perfect candidate.

        ``few``: up to this number of rows, working on them costs about as much as finding that out.
        """
        rows = self.open_rows()
        few_rows = rows.size <= few
        self.limited[rows] |= self.removals.are_at_floor(rows)
        rows = rows[~self.limited[rows]]
        if few_rows or self.budget.spent:
            return rows
        if self.finest is None:
            self.finest = self.upper - self.lower
            self.finest[rows] = self._measure_finest_widths(rows)
        lower, upper, finest = self.lower[rows], self.upper[rows], self.finest[rows]
        resolvable = np.abs(0.5 * (lower + upper)) > 0.25 * finest if self.width is None else finest <= self.width
        resolvable |= upper - lower > NEAR_FINEST * finest
        self.limited[rows] = ~resolvable
        return rows[resolvable]

    def _measure_finest_widths(self, rows: Rows) -> Array:
        """Widths of the intervals of some rows' scores at the optimum of all rows, trained as far as float64 goes.

        Leaving one row out changes these little, so that no interval of a held-out score can be much narrower.
        """
        if not np.all(np.isfinite(self.accurate_solution.coef)):
            return np.full(rows.size, np.inf)
        best = train(self.problem, tol=0.0, start=self.accurate_solution, until=lambda state: self.budget.spent)
        lower, upper = bound_by_certificate(certify(self.problem, best.point), self.problem.matrix[rows])
        return upper - lower

    def is_at_limit(self, rows: Rows) -> NDArray[np.bool_]:
        """Whether the intervals of some rows are nearly as narrow as float64 allows, as far as that is known."""
        if self.finest is None:
            return np.zeros(rows.size, dtype=bool)
        return self.upper[rows] - self.lower[rows] <= NEAR_FINEST * self.finest[rows]

    @cached_property
    def accurate_solution(self) -> Solution:
        """The solution, trained on where its error would weigh more than the removal of a row."""
        if self.solution.reached(ACCURATE):
            return self.solution
        return train(self.problem, tol=ACCURATE, start=self.solution, until=lambda state: self.budget.spent)

    @cached_property
    def converged_solution(self) -> Solution:
        """The solution, trained on where it is too coarse for removals to start from it."""
        return self.solution if self.solution.reached(COARSE) else self.accurate_solution

    @cached_property
    def factors(self) -> Array:
        """What the weights of the other rows are multiplied by when a row leaves."""
        return removal_factors(self.problem)

    @cached_property
    def uniform(self) -> bool:
        """Whether the rows' weights give few enough factors for families of removals that share one."""
        return self._known_factors.size <= MAX_FACTORS

    @cached_property
    def _known_factors(self) -> Array:
        """The different factors, in ascending order."""
        known = self.factors[np.isfinite(self.factors)]
        # Most data has one, which needs no sort.
        return known[:1] if known.size and known.min() == known.max() else np.unique(known)

    def group_by_factor(self, rows: Rows) -> list[Rows]:
        """Some rows of which the others' weights are known, in groups of one factor."""
        if self._known_factors.size == 1:
            rows = rows[np.isfinite(self.factors[rows])]
            return [rows] if rows.size else []
        groups = (rows[self.factors[rows] == factor] for factor in self._known_factors)
        return [group for group in groups if group.size]

    def batches(self, grouped: bool = True, rows: Rows | None = None) -> list[Rows]:
        """The open rows, or some, in batches whose n x m arrays fit the memory limit; ``grouped``: rows of one factor together."""
        size = max(1, self.max_memory // measure_smallest_batch(self.problem))
        rows = self.open_rows() if rows is None else rows
        groups = self.group_by_factor(rows)
        if not grouped and len(groups) > 1:
            groups = [rows[np.isfinite(self.factors[rows])]]
        self.n_batched = sum(group.size for group in groups)
        return [group[k : k + size] for group in groups for k in range(0, group.size, size)]


class Removals(ABC):
    """How the models without each row are bounded: the steps of a kind of problem, and what a run has to know about it.

    Parameters
    ----------
    run : Cascade
        The run that asks.
    refits : Refits or None, default=None
        What leaving out a row changes besides the row.
    """

    def __init__(self, run: Cascade, refits: Refits | None = None) -> None:
        self.run, self.solution, self.problem, self.refits = run, run.solution, run.problem, refits

    @property
    @abstractmethod
    def steps(self) -> "Mapping[str, tuple[Step[Any], ...]]":
        """The steps of every method, in the order of their price."""

    def sample_step(self, method: str) -> "Step[Any]":
        """The step whose work on one row tells what training a row takes."""
        return self.steps[method][-1]

    def without(self, place: int) -> tuple[Problem, Point]:
        """The problem in which a row has weight zero, and the old optimum as a point of it."""
        if self.refits is None:
            problem = self.problem.without(self.run.numbers[place : place + 1]).require_weight()
        else:
            problem = self.refits.problem(self.problem, place).require_weight()
        if problem.n_columns != self.problem.n_columns:
            start = zero_point(problem)
            if problem.loss.several:
                return problem, start
            return problem, replace(start, dual=find_dual(problem, problem.scores(start.coef, start.intercept)))
        # A dual point with one score per class follows from the coefficients when it is asked for.
        carried = problem.in_memory and not problem.loss.several
        dual = duality.make_feasible_dual(problem, self.solution.dual) if carried else None
        return problem, Point(self.solution.coef, self.solution.intercept, dual)

    def select_affordable(self, rows: Rows) -> Rows:
        """Those of some rows whose intervals :meth:`Cascade.tighten` is to narrow, widest first; here all."""
        return rows

    def single_steps(self) -> Callable[[Rows], Bounds] | None:
        """Newton steps of one row that narrow its interval; None: there are none."""
        return None

    def are_at_floor(self, rows: Rows) -> NDArray[np.bool_]:
        """Whether no work can narrow the intervals of some open rows, for a reason that is known beforehand."""
        return np.zeros(rows.size, dtype=bool)

    def slack(self, row: int) -> float:
        """At least by how much each end of a row's interval is moved outward once the work on it has ended; here not at all."""
        return 0.0

    def finished(self, row: int, lower: Array, upper: Array) -> bool:
        """Whether the work on a single row may end: its interval is narrow enough, or as narrow as float64 allows.

        The interval is the one before it is widened by :meth:`slack`.
        """
        run, slack = self.run, self.slack(row)
        # Steps towards the optimum of a loss with curvature cost little once they are near; the hinge's do not.
        enough = run.enough if isinstance(self.problem.loss, Hinge) else run.narrow
        if enough(lower - slack, upper + slack)[0]:
            return True
        if slack > 0.0 and widths_of_rows(lower, upper)[0] <= slack:
            return True
        return run.finest is not None and bool(widths_of_rows(lower, upper)[0] <= 2.0 * run.finest[row])

    def retrain(self, rows: Rows) -> Bounds:
        """The score of one row under its trained model (Algorithm 1, with a warm start), without proof."""
        problem, point = self.without(int(rows[0]))
        scores = train(problem, tol=self.run.tol, start=point).scores[rows]
        if problem.loss.several:
            scores = query_centers(scores, scores.argmax(axis=1))
        return scores, scores


Kind = TypeVar("Kind", bound=Removals)


@final
@dataclass(frozen=True)
class Step(Generic[Kind]):
    """A way to tighten the bounds of held-out rows."""

    stage: str  # what it is called in a result
    needs: str  # what it asks of loss, penalty, shape and place of the data, and what it costs, in words
    applies: Callable[[Kind], bool]  # whether a run has what it needs
    # The open rows it works on, in batches; None: all rows of the data, in one pass over the blocks.
    rows: Callable[[Kind], Iterable[Rows]] | None
    # Bounds of a batch; of a pass over the blocks those of the rows that it has given to the run (:meth:`Cascade.hold`).
    work: Callable[[Kind, Rows], Bounds]
    # What it costs before its first row, in trainings, at most: fewer open rows are left to what comes after it.
    price: int = 1
    proven: bool = True  # whether it proves bounds
    # Whether it takes all rows at once and makes intervals as narrow as is asked for, not only one step narrower.
    tightens: bool = False


def always(removals: Removals) -> bool:
    """For steps that need nothing."""
    return True


def open_rows(removals: Removals) -> list[Rows]:
    """All open rows in one batch."""
    return [removals.run.open_rows()]


def group_open(removals: Removals) -> list[Rows]:
    """The open rows in batches that fit the memory limit, rows of one factor together."""
    return removals.run.batches()


def split_open_rows(removals: Removals) -> list[Rows]:
    """The open rows in batches that fit the memory limit."""
    return removals.run.batches(grouped=False)


def one_by_one(removals: Removals) -> Iterator[Rows]:
    """Single rows that steps may decide."""
    return (np.array([row]) for row in removals.run.find_resolvable_rows(MANY_ROWS))


def in_parts(batches: Iterable[Rows]) -> Iterator[Rows]:
    """Batches of rows in parts of a few, for work on each row by itself."""
    for rows in batches:
        edges = [0, *range(FIRST_ROWS, rows.size, MANY_ROWS), rows.size]
        yield from (rows[first:last] for first, last in pairwise(edges))


def each(removals: Removals) -> Iterator[Rows]:
    """Single rows, all that are open."""
    return (np.array([row]) for row in removals.run.open_rows())


def to_train(removals: Removals) -> Iterator[Rows]:
    """Single rows that a training may decide, at most as many as may be trained."""
    run = removals.run
    rows = run.find_resolvable_rows(FEW_ROWS) if run.problem.in_memory else run.open_rows()
    return (np.array([row]) for row in rows[: run.max_trainings])


NAIVE = Step[Removals]("training", "memory", always, each, Removals.retrain, proven=False)
"""Training without a proof."""
