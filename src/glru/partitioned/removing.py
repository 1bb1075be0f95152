"""Work on one block for leave-one-out: bounds of its rows' held-out scores, and models without single rows measured."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.certificate import score_errors
from glru.families.carried import Carried, Kept, removal_factors
from glru.families.gradients import slope_sums
from glru.families.removals import Base, Removals
from glru.linalg import FEW, Array, Matrix
from glru.partitioned.output import Output
from glru.partitioned.rows import at_rows, chunks
from glru.partitioned.sums import Model
from glru.problem import Problem

Places = NDArray[np.int64]


@final
@dataclass(frozen=True, eq=False)
class LocalRemovals:
    """The removal of any row from a model, under the local certificate, for rows of any weight.

    Without row ``i`` the weights of the others are multiplied by ``phi_i``, so the gradient at the base is that of a middle
    factor and ``phi_i - middle`` times that of the losses alone: two steps serve all rows.

    Attributes
    ----------
    base : Base
        The metric with the middle factor; its ``eta`` and slack cover all others.
    model : Model
        The base model.
    middle : float
        The middle factor.
    step, step_norm : array, float
        Newton's step at the base with the middle factor, and at least its norm.
    drift, drift_norm : array, float
        The same for the gradient of the losses alone.
    """

    base: Base
    model: Model
    middle: float
    step: Array
    step_norm: float
    drift: Array
    drift_norm: float

    def removals(self, rows: Problem) -> tuple[Removals, NDArray[np.bool_]]:
        """The removals of some rows, and whether anything is known of each."""
        coef, intercept = self.model.coef, self.model.intercept
        factors = removal_factors(rows)
        known = np.isfinite(factors)
        factors = np.where(known, factors, self.middle)
        extra = factors - self.middle
        still = Model(np.zeros_like(coef))
        ways = [self.model, still.moved(self.step), still.moved(self.drift)][: 3 if extra.any() else 2]
        # One product reads the rows once.
        images = rows.matrix @ np.column_stack([way.coef for way in ways])
        if rows.fit_intercept:
            images = images + np.array([way.intercept for way in ways])
        scores, moves, lengths = images[:, 0].copy(), images[:, 1].copy(), np.full(rows.n_rows, self.step_norm)
        _, slopes, bends = rows.loss.expand(rows.y, scores)
        if len(ways) == 3:
            moves = moves + extra * images[:, 2]
            lengths = (lengths + np.abs(extra) * self.drift_norm) * (1.0 + FEW)
        weights, off = factors * rows.weights, score_errors(rows, coef, intercept)
        norms = self.base.metric.norms(rows.matrix)
        return self.base.removals(weights, scores, off, slopes, bends, norms, moves, lengths), known

    def bounds(self, rows: Problem, top: float) -> tuple[Array, Array, Array]:
        """Bounds of held-out scores, and the rows' norms."""
        removals, known = self.removals(rows)
        lower, upper = self.base.bounds(removals, top)
        return np.where(known, lower, -np.inf), np.where(known, upper, np.inf), removals.norms

    def starts(self, rows: Problem) -> Array:
        """The base after the step that a removal shares, one row a removal."""
        packed = self.model.packed(rows.fit_intercept)
        factors = removal_factors(rows)
        extra = np.where(np.isfinite(factors), factors, self.middle) - self.middle
        return packed + self.step + extra[:, None] * self.drift


@final
@dataclass(frozen=True, eq=False)
class CarriedRemovals:
    """The removal of any row with the old optimum as the candidate."""

    carried: Carried
    model: Model

    def bounds(self, rows: Problem, top: float) -> tuple[Array, Array, Array]:
        """Bounds of held-out scores; there are no norms."""
        scores = rows.scores(self.model.coef, self.model.intercept)
        off = score_errors(rows, self.model.coef, self.model.intercept)
        dual = -rows.loss.gradient(rows.y, scores)
        # The sums were made in an earlier pass, whose dual variables may have been others by their errors.
        again = 2.0 * rows.loss.smoothness * off + FEW * np.abs(dual)
        lower, upper = self.carried.bounds(Kept(rows, removal_factors(rows), dual, again, None, scores, off), "primal")
        return lower, upper, np.zeros(0)


@final
@dataclass(frozen=True)
class NoRemovals:
    """Where nothing is proven of any row."""

    def bounds(self, rows: Problem, top: float) -> tuple[Array, Array, Array]:
        """Infinite bounds; there are no norms."""
        return np.full(rows.n_rows, -np.inf), np.full(rows.n_rows, np.inf), np.zeros(0)


AnyRemovals = LocalRemovals | CarriedRemovals | NoRemovals


@final
@dataclass(frozen=True, eq=False)
class Found:
    """Bounds of a block's rows; with an output they are in its file, and only what is open is brought home.

    Attributes
    ----------
    start, n_rows : int
        The first row and the number of rows.
    lower, upper : array
        Bounds of all rows, or of the open ones.
    y : array
        Their targets.
    places : array of int or None
        The open rows' places in the block, where the others are in a file.
    errors : tuple of int
        The least and the largest number of held-out errors in the block.
    top : float
        At least the largest norm of a row that counts.
    """

    start: int
    n_rows: int
    lower: Array
    upper: Array
    y: Array | NDArray[np.int8]
    places: Places | None
    errors: tuple[int, int]
    top: float


def bounds_of(
    block: Problem,
    number: int,
    start: int,
    removals: AnyRemovals,
    top: float,
    width: float | None,
    stage: str,
    output: Output | None,
) -> Found:
    """Bounds of all rows of a block."""
    lower, upper, highest = np.empty(block.n_rows), np.empty(block.n_rows), 0.0
    # Many short operations a chunk: higher ones leave threads less to wait for.
    for part, rows in chunks(block, times=4):
        lower[part], upper[part], norms = removals.bounds(rows, top)
        highest = max(highest, float(norms[rows.weights > 0.0].max(initial=0.0)) if norms.size else 0.0)
    y = block.y.astype(np.int8) if block.loss.task == "classification" else block.y
    wrong = errors_of(block.y, lower, upper) if block.loss.task == "classification" else (0, 0)
    if output is None:
        return Found(start, block.n_rows, lower, upper, y, None, wrong, highest)
    decided = is_decided(width, lower, upper)
    output.write(number, start, y, lower, upper, np.where(decided, stage, "undetermined"))
    places = np.flatnonzero(~decided)
    return Found(start, block.n_rows, lower[places], upper[places], y[places], places, wrong, highest)


def errors_of(y: Array, lower: Array, upper: Array) -> tuple[int, int]:
    """The least and the largest number of labels that are wrong."""
    positive, above, below = y > 0.0, lower > 0.0, upper < 0.0
    wrong = np.count_nonzero(positive & below) + np.count_nonzero(~positive & above)
    right = np.count_nonzero(positive & above) + np.count_nonzero(~positive & below)
    return int(wrong), int(y.size - right)


def is_decided(width: float | None, lower: Array, upper: Array) -> NDArray[np.bool_]:
    """Whether bounds are as tight as was asked for: a width, or a sign."""
    return upper - lower <= width if width is not None else (lower > 0.0) | (upper < 0.0)


@final
@dataclass(frozen=True, eq=False)
class Taken:
    """Some rows brought home."""

    X: Matrix
    y: Array
    sample_weight: Array


def take(block: Problem, number: int, start: int, places: Places) -> Taken:
    """Some rows of a block."""
    rows = at_rows(block, places)
    return Taken(rows.matrix, rows.y, rows.sample_weight)


@final
@dataclass(frozen=True, eq=False)
class Slopes:
    """Sums over the rows at several models: pulls and masses of :func:`glru.families.gradients.slope_sums`, largest moves."""

    pulls: Array
    masses: Array
    moved: Array

    def __add__(self, other: "Slopes") -> "Slopes":
        moved = np.maximum(self.moved, other.moved)
        return Slopes(self.pulls + other.pulls, self.masses + other.masses, moved)


def slopes_of(block: Problem, number: int, start: int, own: Any, models: Array, base: Model) -> Slopes:
    """The sums of a block; ``own``: places in it, and the models that are trained without them."""
    n_models = models.shape[1]
    pulls, masses, moved = np.zeros(models.shape), np.zeros(n_models), np.zeros(n_models)
    places, owners = own or (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    for part, rows in chunks(block):
        mine = (places >= part.start) & (places < part.stop)
        without = places[mine] - part.start, owners[mine]
        scores, pull, mass = slope_sums(rows, rows.weights, models, without)
        scores -= rows.scores(base.coef, base.intercept)[:, None]
        scores[without] = 0.0
        if not rows.weights.all():
            scores[rows.weights == 0.0] = 0.0
        pulls, masses = pulls + pull, masses + mass
        moved = np.maximum(moved, np.abs(scores).max(axis=0))
    return Slopes(pulls, masses, moved)
