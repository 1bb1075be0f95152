"""The removal of any single row with one score per class, of rows in blocks: sums over the blocks for the base, one pass for the closed form of all rows, and one for each step of the candidates that it leaves open."""

from dataclasses import dataclass, fields
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds
from glru.linalg import Array
from glru.metric.classes import ClassMetric
from glru.problem import Point, Problem
from glru.regions.class_sums import ClassSums, pack_classes, sum_classes, unpack_classes
from glru.rows import Memory
from glru.sums import chunks
from glru.updates.batch import Decided
from glru.updates.carried_rows import factor_range
from glru.updates.class_removals import ClassBase, ClosedForm, Rows
from glru.updates.class_rows import ClassRows, Home
from glru.updates.local_rows import BASE_STEP_RATIO, MAX_ETA, MAX_METRICS, NEGLIGIBLE_MOVE


@final
@dataclass(frozen=True, eq=False)
class BlockForms:
    """The closed form of a block's rows, their numbers and targets, and at least the largest norm of one that counts."""

    numbers: Rows
    y: NDArray[np.intp]
    forms: ClosedForm
    largest_norm: float


@final
class ClassBlocks:
    """The removal of single rows of blocks.

    Parameters
    ----------
    problem : Problem
        Rows in blocks.
    start : Point
        A model near the optimum.
    here : ClassSums or None
        The sums there, with the Hessian, if they are known.

    Attributes
    ----------
    usable : bool
        Whether anything is proven.
    largest_norm : float
        At least the largest norm of a row that counts.
    """

    base: ClassBase

    def __init__(self, problem: Problem, start: Point, here: ClassSums | None = None) -> None:
        self.problem, self.usable = problem, False
        with np.errstate(all="ignore"):
            self._find_base(pack_classes(start, problem.fit_intercept), here)

    def _find_base(self, model: Array, here: ClassSums | None) -> None:
        """The start itself, or where its Newton step is long a model that a few of these lead to, one pass each."""
        problem, (least, most) = self.problem, factor_range(self.problem)
        factors = 0.5 * (least + most), least, most
        for _ in range(MAX_METRICS):
            if here is None:
                here = sum_classes(problem, unpack_classes(model, problem.fit_intercept))
            metric = ClassMetric(problem, None, factors[0], here.hessian)
            if not metric.eta < MAX_ETA:
                return
            self.base = ClassBase.at(problem, metric, model, here, factors, 0.0)
            self.largest_norm = metric.largest_pair_norm(problem.totals.largest_norm)
            self.usable = self.base.eta < MAX_ETA
            if not self.usable or self._is_close(here):
                return
            step = self.base.step
            model, here = model + (step - step.mean(axis=0)), None

    def _is_close(self, here: ClassSums) -> bool:
        """Whether what is left of the Newton step is not much longer than the step of a removal."""
        problem, norm = self.problem, self.base.step_norm
        # The step of a row of the largest weight and slopes of usual size.
        share = problem.weight_summary.largest.value / problem.total_weight
        usual = share * float(here.slope_norms.max()) * float(np.sqrt(problem.totals.weight_sum)) * self.largest_norm
        return norm <= BASE_STEP_RATIO * usual or self.largest_norm * norm < NEGLIGIBLE_MOVE

    def closed_form(self) -> tuple[Rows, NDArray[np.intp], Rows, Bounds]:
        """Numbers, targets, references and bounds of the queries of all rows, in one pass."""
        parts: list[BlockForms] = self.problem.map(_block_forms, self.base)
        self.largest_norm = min(self.largest_norm, max(part.largest_norm for part in parts))
        forms = _join_forms([part.forms for part in parts])
        numbers, y = np.concatenate([part.numbers for part in parts]), np.concatenate([part.y for part in parts])
        return numbers, y, forms.reference, forms.bounds(self.largest_norm)

    def refined(self, numbers: Rows, reference: Rows, decided: Decided, n_steps: int) -> Bounds:
        """Bounds of some rows after Newton steps, each written down in full and certified by its own gradient: one pass each."""
        family = ClassRows(self.problem.take(numbers), self.base)
        family.home = Home.of(self.problem, numbers)
        family.__dict__["largest_norm"] = self.largest_norm
        return family.refined(np.arange(numbers.size), reference, decided, n_steps)


def _block_forms(part: Problem, base: ClassBase) -> BlockForms:
    """The closed form of all rows of a block; the class that leads after the step is the reference."""
    found, largest = [], 0.0
    with np.errstate(all="ignore"):
        for _, rows in chunks(part):
            family = ClassRows(rows, base)
            guesses = family.guesses(np.arange(rows.n_rows))
            known = np.isfinite(guesses.sum(axis=1, keepdims=True))
            reference = np.where(known, guesses, family.values.scores).argmax(axis=1)
            found.append(family.all_removals.closed_form(reference))
            largest = max(largest, family.largest_norm)
    assert isinstance(part.rows, Memory)
    numbers = np.arange(part.rows.start, part.rows.start + part.n_rows)
    return BlockForms(numbers, part.y.astype(np.intp), _join_forms(found), largest)


def _join_forms(parts: list[ClosedForm]) -> ClosedForm:
    """Several closed forms as one."""
    return ClosedForm(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(ClosedForm)))
