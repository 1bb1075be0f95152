"""Leave-one-out under a penalty with absolute values: the removals of the restricted problems, where their supports are proven.

Most rows leave the support as it is: one family of removals (:class:`~glru.updates.local_rows.LocalRows`) of one restricted problem
(:mod:`glru.regions.support`) serves them all. The models of the others tell which columns leave the support and which join it; rows that suppose the same
support share a family. Where that does not settle, steps of proximal Newton without the row look for its support, and Newton steps on it prove it. Rows
whose supports are not proven are left to other steps.
"""

from typing import final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, intersect, unbounded
from glru.problem import Point, Problem
from glru.regions.local import has_support
from glru.regions.support import Support, SupportEllipsoid, guess_support
from glru.solution import Solution
from glru.solvers.prox_newton import find_length, step_on_model
from glru.updates.batch import Decided
from glru.updates.local_rows import LocalRows, RowCandidates, Start

Rows = NDArray[np.intp]

MAX_ROUNDS = 4
"""Supports that the models of a row may suppose in turn."""

MAX_STEPS, MAX_SEARCHES, WORKING = 6, 16, 100
"""Steps that prove a support, and that look for one, and columns that may join it in each."""


NEAR = 1e-3
"""A step that moves no score by more than this, and changes no sign, is the last one."""


def finds_supports_anywhere(problem: Problem) -> bool:
    """Whether one step finds the support from any model: that of a quadratic objective is the objective, and all of few columns work on it."""
    return has_support(problem) and problem.loss.self_concordance == 0.0 and problem.n_columns <= WORKING


def find_support(problem: Problem, start: Point, share: float = 0.0) -> SupportEllipsoid:
    """The ellipsoid on the support after steps of proximal Newton from a model, taken until the support is proven or stays, or no step leads down.

    ``share``: it holds the optima of all penalties whose strengths are within this relative error.
    """
    coef, intercept = start.coef, start.intercept
    scores, found = problem.scores(coef, intercept), None
    quadratic, farthest = problem.loss.self_concordance == 0.0, np.inf
    slopes, curvatures = problem.loss.expand_slope(problem.y, scores)
    for _ in range(MAX_SEARCHES):
        before, (coef, shift, move) = coef, step_on_model(problem, coef, slopes, curvatures, WORKING)
        moved, length = float(np.abs(move).max()), 1.0
        if not (quadratic or moved < farthest):
            # A full step that leads farther than the one before may lead up, and so may all that follow.
            length, _ = find_length(problem, scores, slopes, before, coef, move)
            if length == 0.0:
                break
            coef, shift, move = before + length * (coef - before), length * shift, length * move
            moved = 0.0 if length < 1.0 else moved
        farthest = min(moved, farthest)
        scores, intercept, found = scores + move, intercept + shift, None
        slopes, curvatures = problem.loss.expand_slope(problem.y, scores)
        stays = np.array_equal(np.sign(coef), np.sign(before)) and np.abs(move).max() < NEAR
        # A proof costs about as much as a step: it is asked after full steps, where no column that is not used would join.
        seen = np.abs(problem.matrix.T @ (problem.weights * slopes))
        if stays or (length >= 1.0 and not np.any((seen > problem.penalty.absolute) & (coef == 0.0))):
            found = SupportEllipsoid(problem, Point(coef, intercept), share)
            if found.proven or stays:
                break
    return SupportEllipsoid(problem, Point(coef, intercept), share) if found is None else found


@final
class SupportRows:
    """The removal of single rows; ``factor``: the one of the rows that are asked about."""

    def __init__(self, solution: Solution, factor: float) -> None:
        self.problem, self.point, self.factor = solution.problem, solution.point, factor
        self.signs = np.tile(guess_support(self.problem, self.point), (self.problem.n_rows, 1))
        self.proven = np.zeros(self.problem.n_rows, dtype=bool)

    def bounds(self, rows: Rows, decided: Decided, n_steps: int) -> Bounds:
        """Bounds of the rows' scores under the models trained without them, infinite where no support is proven."""
        lower, upper = unbounded(rows.size)
        places = np.arange(rows.size)
        for k in range(MAX_ROUNDS):
            groups = self._groups(rows, places)
            # Where hardly two rows suppose the same support, proving each guess costs more than looking for it.
            if k and 2 * len(groups) > places.size:
                break
            for here in groups:
                support = Support(self.problem, self.signs[rows[here[0]]])
                if support.n_unknowns == 0:
                    self._prove_zeros(support, rows[here])
                    here = here[self.proven[rows[here]]]
                    lower[here] = upper[here] = 0.0
                    continue
                if support.n_unknowns > self.problem.largest:
                    continue
                family = LocalRows(Start(support.problem, support.restrict(self.point)), self.factor)
                self._prove(support, family, rows[here[~self.proven[rows[here]]]])
                here = here[self.proven[rows[here]]]
                lower[here], upper[here] = self._bounds(family, rows[here], decided, n_steps)
            places = places[~self.proven[rows[places]]]
        for place in places:
            # Asked about all rows, so that what is open of them counts against the work so far.
            if decided(lower, upper)[place]:
                break  # the time is up, or training is cheaper
            alone = slice(int(place), int(place) + 1)
            lower[alone], upper[alone] = self._alone(int(rows[place]))
        return lower, upper

    def _groups(self, rows: Rows, places: Rows) -> list[Rows]:
        """The places of rows that have, or suppose, the same support."""
        _, groups, sizes = np.unique(self.signs[rows[places]], axis=0, return_inverse=True, return_counts=True)
        return np.split(places[np.argsort(groups.ravel(), kind="stable")], np.cumsum(sizes)[:-1])

    @staticmethod
    def _bounds(family: LocalRows, rows: Rows, decided: Decided, n_steps: int) -> Bounds:
        """Bounds of rows whose support is proven."""
        bounds = family.bounds(rows)
        left = np.flatnonzero(~decided(*bounds))
        if left.size:
            more = family.refined(rows[left], decided, n_steps)
            bounds[0][left], bounds[1][left] = intersect((bounds[0][left], bounds[1][left]), more)
        return bounds

    def _alone(self, row: int) -> Bounds:
        """Bounds of a row's score, on the support after steps of proximal Newton without it."""
        problem = self.problem.without(np.array([row]))
        return find_support(problem, self.point).score_bounds(problem.matrix[row : row + 1])

    def _prove_zeros(self, support: Support, rows: Rows) -> None:
        """Note of which rows the models provably have no coefficients at all, and no intercept."""
        models, zeros = np.zeros((0, rows.size)), np.zeros(rows.size)
        left_out = rows, np.arange(rows.size)
        holds, signs = support.holds(models, zeros, zeros[:0], np.zeros(self.problem.n_rows), left_out, self.factor)
        self.proven[rows[holds]] = True
        self.signs[rows[~holds]] = signs.T[~holds]

    def _prove(self, support: Support, family: LocalRows, rows: Rows) -> None:
        """Note of which rows' models a support is proven, and what the others suppose."""
        if not (family.usable and rows.size):
            return
        part = support.problem.take(rows)
        removals = family.removals(rows, part)
        usable = np.flatnonzero(removals.metric_shares > 0.0)
        candidates = RowCandidates.first(family, rows[usable], part.take(usable), removals.take(usable), usable.size)
        metric, before = family.base.metric, np.full(usable.size, np.inf)
        axis_norms, row_norms = metric.axis_norms(), metric.norms(support.problem.matrix)
        for _ in range(MAX_STEPS if usable.size else 0):
            here, (radii, _, _) = candidates.rows, candidates.radii()
            left_out = here, np.arange(here.size)
            holds, signs = support.holds(candidates.models, radii, axis_norms, row_norms, left_out, candidates.factors)
            self.proven[here[holds]] = True
            same = np.all(self.signs[here] == signs.T, axis=1)
            self.signs[here[~holds]] = signs.T[~holds]
            going = same & ~holds & ~(radii >= 0.5 * before)
            if not going.any():
                break
            before, candidates = radii[going], candidates.step(going)
