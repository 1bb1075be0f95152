r"""The removal of groups of rows from tall data under the local certificate: all models written down in full and measured together.

The metric :math:`B` is that of the Hessian of all rows. In its coordinates row ``k`` is :math:`u_k`, and without a group :math:`g` the Hessian is at least
:math:`I - K_g`, :math:`K_g = \sum_{k \in g} s_k h_k u_k u_k^\top`, whatever the weights of the other rows are multiplied by: no factor of a group's own
Hessian is part of the proof. A Newton step is solved by any means; what it leaves of its equation is computed by products and counted. The gradients of
all models are one product with the data. Of a quadratic loss they follow from those at the base, and the data is not read again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import CHUNK_BYTES, FEW, TINY, Array, Entries, gamma, length
from glru.updates.batch import SLOW, Certified
from glru.updates.carried_rows import sum_error
from glru.updates.gradients import Gradients
from glru.updates.local_rows import HESSIANS_ALONE, LOSS_COST, LocalRows, removal_radii
from glru.updates.moments import coordinates
from glru.updates.second_order import half_errors

STEP_OVERHEAD, ALONE_OVERHEAD = 3e5, 1e6
"""Nanoseconds of the calls of a step of a batch of groups, and of the steps of one group's model alone."""

USUAL_STEPS, MAX_OF_ALONE = 3, 0.4
"""Steps that a batch of groups is expected to take, and the largest share of the cost of stepping each model alone that they may have."""

ASKED = 1e-8
"""Share of a gradient's norm that steps in a batch may leave at the price of single steps: if one leaves more, single steps are quicker."""

Rows = NDArray[np.intp]
Found = Callable[[Rows, Array, Array], None]
"""Takes in the numbers of some groups, their moves in the coordinates of the metric (one row each), and at least their distances from the optima."""


@final
class GroupRows:
    """The removals of groups of rows in memory.

    Parameters
    ----------
    family : LocalRows
        The base of all rows, with the factor 1; usable.
    codes : array of int of shape (n_rows,)
        The group of every row.
    factors : array of shape (n_groups,)
        What the weights of the other rows are multiplied by without each group; not finite where nothing is to be proven.
    """

    def __init__(self, family: LocalRows, codes: Rows, factors: Array) -> None:
        self.family, self.codes, self.factors = family, codes, factors
        self.order = np.argsort(codes, kind="stable")
        self.edges = np.searchsorted(codes[self.order], np.arange(factors.size + 1))
        finite = factors[np.isfinite(factors)]
        largest = float(finite.max(initial=1.0))
        base = family.base
        self.gradients = Gradients(family.problem, base.metric, base.point, family.largest_error, largest)
        problem = family.problem
        strengths = np.append(problem.quadratic, 0.0) if problem.fit_intercept else problem.quadratic
        self.strengths = strengths
        every = family.removals(np.arange(problem.n_rows))
        self.norms, self.slope_errors = every.norms, every.slope_errors
        # The penalty's Hessian in the coordinates of the metric.
        self.penalty = base.metric.inverse.T @ (strengths[:, None] * base.metric.inverse)

    def rows_of(self, group: int) -> Rows:
        """The rows of a group, in ascending order."""
        return self.order[self.edges[group] : self.edges[group + 1]]

    def _chunks(self, groups: Rows) -> Iterator[tuple[slice, Rows, Rows, Array]]:
        """Consecutive groups with their rows, the places where each group begins, and the rows in the coordinates of the metric."""
        counts, metric = self.edges[groups + 1] - self.edges[groups], self.family.base.metric
        ends = np.cumsum(counts)
        start = 0
        while start < groups.size:
            most = (ends[start - 1] if start else 0) + CHUNK_BYTES // (8 * metric.size)
            stop = max(start + 1, int(np.searchsorted(ends, most, side="right")))
            rows = np.concatenate([self.rows_of(int(group)) for group in groups[start:stop]])
            begins = np.append(0, np.cumsum(counts[start:stop])[:-1])
            yield slice(start, stop), rows, begins, coordinates(self.family.problem.take(rows), metric)
            start = stop

    def candidates(self, groups: Rows, found: Found) -> "GroupCandidates":
        """One Newton step without each of some groups, from the base."""
        family, base, problem = self.family, self.family.base, self.family.problem
        size, values = base.metric.size, family.values
        shrunk, pulls = np.empty((groups.size, size, size)), np.empty((groups.size, size))
        pull_errors = np.empty(groups.size)
        for here, rows, begins, places in self._chunks(groups):
            weights, slopes = problem.weights[rows], values.slopes[rows]
            curved = (weights * values.curvatures[rows])[:, None] * places
            for k, (first, last) in enumerate(pairwise((*begins, rows.size)), here.start):
                shrunk[k] = places[first:last].T @ curved[first:last]
            pulls[here] = np.add.reduceat((weights * slopes)[:, None] * places, begins)
            # Slopes at scores that are off, their weights, and sums of coordinates.
            unit = gamma(rows.size + size + 32) + 3.0 * base.metric.solve_error + sum_error(problem.totals.depth)
            off = weights * (self.slope_errors[rows] + unit * np.abs(slopes)) * self.norms[rows]
            pull_errors[here] = np.add.reduceat(off, begins) * (1.0 + gamma(rows.size + 16))
        shares, theta = self._shares(groups, shrunk)
        factors = np.where(shares > 0.0, self.factors[groups], 1.0)
        extra = (factors - 1.0)[:, None, None]
        systems = (1.0 + extra) * (np.eye(size) - shrunk) - extra * self.penalty
        # At the base the losses' gradient is what is left of the whole one, less the penalty's.
        whole = -(base.metric.factor @ base.step)
        penalty = base.metric.inverse.T @ (self.strengths * base.point.pack(problem.fit_intercept))
        gradients = factors[:, None] * (whole - pulls) - extra[:, 0] * penalty
        errors = base.error_norm + pull_errors + 4.0 * base.metric.solve_error * base.step_norm
        errors = factors * errors + extra[:, 0, 0] * 4.0 * (base.metric.solve_error + FEW) * float(length(penalty))
        # Factors other than 1 are quotients of sums.
        rounded = np.where(factors > 1.0, sum_error(problem.totals.depth), FEW)
        errors += rounded * factors * (length(pulls, axis=1) + base.step_norm + float(length(penalty)))
        new = GroupCandidates(self, groups, systems, shares, theta, factors, found, gradients, errors * (1.0 + FEW))
        start = base.point.pack(problem.fit_intercept)[:, None]
        new.models = start + base.metric.inverse @ new.solve(gradients).T
        return new

    @cached_property
    def costs(self) -> tuple[float, float]:
        """The start of a batch, and a step with its certificate: of each group, in units of the steps of its model alone, the calls of both counted."""
        problem, size, overhead = self.family.problem, self.family.base.metric.size, STEP_OVERHEAD / self.factors.size
        alone = ALONE_OVERHEAD + (1.0 + HESSIANS_ALONE) * problem.matrix.gram_cost
        # Products with many models at once cost a share of those with one.
        step = 0.3 * (problem.matrix.product_cost + LOSS_COST * problem.n_rows) + 4.0 * size**2 + overhead
        return (0.5 * size**3 + 2.0 * overhead) / alone, step / alone

    @property
    def is_worthwhile(self) -> bool:
        """Whether steps of all groups together are expected to cost much less than those of one group's model after the other."""
        start, step = self.costs
        return start + USUAL_STEPS * step < MAX_OF_ALONE

    @property
    def has_second_order(self) -> bool:
        """Whether :meth:`second_order` applies, and is expected to be cheaper than a pass for all groups."""
        plain = self.family.base.constant > 0.0 and bool(np.all(self.factors == 1.0))
        size = self.family.base.metric.size
        # Few groups are large ones, whose moves are too far for second order.
        many = self.factors.size * (2 * size + 30) > size**2 * (size + 4)
        return plain and many and self.family.knows_second_order

    def second_order(self, groups: Rows, found: Found) -> None:
        """Candidates to second order and their radii, without a pass over the data for each group (:mod:`glru.updates.second_order`)."""
        family, base, problem = self.family, self.family.base, self.family.problem
        start, moments = self.candidates(groups, found), family.all_moments
        shares, error = start.shares, base.metric.solve_error
        first = start.solve(start.base_gradients)
        half = family.third.along(first, self.factors.size)
        for here, rows, begins, places in self._chunks(groups):
            owners = np.repeat(np.arange(here.start, here.stop), np.diff(np.append(begins, rows.size)))
            moves = np.einsum("ij,ij->i", places, first[owners])
            half[here] -= np.add.reduceat(
                places * (0.5 * family.third.weighted[rows] * np.square(moves))[:, None], begins
            )
        second = start.solve(half)
        lengths, more = (np.linalg.norm(step, axis=1) * (1.0 + gamma(base.metric.size + 8)) for step in (first, second))
        whole = (lengths + more + TINY) * (1.0 + FEW)
        moved = family.largest_norm * whole * (1.0 + FEW)
        exponents, fourth = base.constant * moved, float(problem.loss.fourth_constant or 0.0)
        # What both steps leave of their equations, as computed, by what is known about the Hessians and by the right-hand sides.
        left = np.einsum("kij,kj->ki", start.systems, first + second) + start.base_gradients + half
        sizes = np.linalg.norm(start.systems, axis=(1, 2)) * whole + np.linalg.norm(half, axis=1)
        sizes += np.linalg.norm(start.base_gradients, axis=1)
        residuals = np.linalg.norm(left, axis=1) + (gamma(8 * base.metric.size + 32) + 4.0 * error) * sizes
        residuals += start.base_errors + start.theta * shares * whole
        # The terms of all rows and of the group's own, each as :func:`glru.updates.second_order.half_errors` has them.
        residuals += 2.0 * half_errors(family, lengths)
        nu = base.constant * (lengths + 0.5 * more) * moments.sizes(second, more)
        nu += fourth / 6.0 * np.exp(exponents) * moved * whole * moments.sizes(first + second, whole)
        nu = nu * (1.0 + FEW) + residuals * (1.0 + FEW) / np.sqrt(shares)
        radii, _ = removal_radii(base.constant, shares, family.largest_norm, nu, exponents, start.theta, 0.0, None)
        found(groups, first + second, np.where(np.isfinite(radii), radii, np.inf))

    def _shares(self, groups: Rows, shrunk: Array) -> tuple[Array, Array]:
        """The shares of the metric that the Hessians without groups have at least, and how far the computed ones may be off relative to these."""
        base, size = self.family.base, self.family.base.metric.size
        # The coordinates err by a solve error of their norms, the sums by gamma of their trace.
        counts = self.edges[groups + 1] - self.edges[groups]
        unit = 3.0 * base.metric.solve_error + gamma(int(counts.max(initial=0)) + 8 * size * size + 32)
        traces = np.trace(shrunk, axis1=1, axis2=2)
        finite = np.isfinite(traces) & np.isfinite(self.factors[groups])
        largest = np.full(groups.size, np.inf)
        if finite.any():
            largest[finite] = np.linalg.eigvalsh(shrunk[finite])[:, -1]
        off = (unit * traces + FEW) * (1.0 + base.eta)
        with np.errstate(invalid="ignore"):
            shares = np.where(finite, 1.0 - base.eta - (1.0 + base.eta) * largest - off, 0.0)
            factors = np.where(finite, self.factors[groups], 1.0)
            wrong = base.eta * (2.0 + largest) + off
            # A factor other than 1 is a quotient of sums, and the penalty's Hessian a product with the inverse.
            rescaled = 8.0 * base.metric.solve_error + gamma(size * size + 32) * size
            rescaled += sum_error(self.family.problem.totals.depth)
            wrong = wrong + np.where(factors > 1.0, rescaled, 0.0)
            theta = np.where(shares > 0.0, factors * wrong / shares, np.inf)
        return np.maximum(shares, 0.0), theta


@final
@dataclass(eq=False)
class GroupCandidates:
    """Models without one group of rows each: the candidates of :func:`glru.updates.batch.tighten`, whose bounds are radii."""

    family: GroupRows
    groups: Rows
    systems: Array
    shares: Array
    theta: Array
    factors: Array
    found: Found
    base_gradients: Array
    base_errors: Array
    models: Array = field(default_factory=lambda: np.empty(0))
    steps: Array = field(default_factory=lambda: np.empty(0))

    @property
    def cost(self) -> float:
        """A step and its certificate per group, in units of the steps of its model alone."""
        return self.family.costs[1]

    @property
    def contraction(self) -> float:
        """What a step may leave of a gradient's norm."""
        return min(SLOW, ASKED**self.cost)

    def solve(self, gradients: Array) -> Array:
        """Newton steps for gradients in the coordinates of the metric, one row each; 0 where there are none."""
        usable = (self.shares > 0.0) & np.isfinite(gradients).all(axis=1)
        steps = np.zeros_like(gradients)
        steps[usable] = -np.linalg.solve(self.systems[usable], gradients[usable][:, :, None])[:, :, 0]
        return steps

    @property
    def left_out(self) -> Entries:
        """The rows that are left out in ascending order, and the model of each."""
        rows = [self.family.rows_of(int(group)) for group in self.groups]
        places = np.concatenate(rows) if rows else np.empty(0, dtype=np.intp)
        owners = np.repeat(np.arange(self.groups.size), [len(mine) for mine in rows])
        order = np.argsort(places, kind="stable")
        return places[order], owners[order]

    def certify(self) -> Certified:
        """Radii around the candidates and the next ones, which are told to whoever keeps them."""
        base, shares = self.family.family.base, self.shares
        moves = (base.metric.factor @ (self.models - base.point.pack(base.metric.fit_intercept)[:, None])).T
        gradients, norms, rounding, moved = self._follow(moves) if base.constant == 0.0 else self._measure()
        self.steps = self.solve(gradients)
        # What the computed steps leave of their equations counts as an error of the gradient, and so does computing it.
        left = np.einsum("kij,kj->ki", self.systems, self.steps) + gradients
        sizes = np.linalg.norm(self.systems, axis=(1, 2)) * np.linalg.norm(self.steps, axis=1)
        sizes += np.linalg.norm(gradients, axis=1)
        unit = gamma(8 * base.metric.size + 32) + 2.0 * base.metric.solve_error
        rounding = rounding + (np.linalg.norm(left, axis=1) + unit * sizes) * (1.0 + FEW)
        with np.errstate(all="ignore"):
            nu = norms / np.sqrt(shares)
        exponents, slack = base.constant * moved, 4.0 * (base.metric.solve_error + FEW)
        here, ahead = removal_radii(
            base.constant, shares, self.family.family.largest_norm, nu, exponents, self.theta, slack, rounding
        )
        better = ahead < here
        self.found(self.groups, moves + np.where(better[:, None], self.steps, 0.0), np.where(better, ahead, here))
        radii = np.minimum(here, ahead)
        return Certified(-radii, radii, np.where(np.isfinite(nu), nu, np.inf), np.zeros(nu.size))

    def _measure(self) -> tuple[Array, Array, Array, Array]:
        """Gradients in the coordinates of the metric, at least their norms, their errors and the largest moves of a score, from the data."""
        found = self.family.gradients.at(self.models, self.left_out, self.factors)
        gradients = (self.family.family.base.metric.inverse.T @ found.gradients).T
        return gradients, found.nu, found.rounding, found.moved

    def _follow(self, moves: Array) -> tuple[Array, Array, Array, Array]:
        """What :meth:`_measure` gives, of a quadratic loss: the gradients at the base and the Hessians times the moves."""
        gradients = self.base_gradients + np.einsum("kij,kj->ki", self.systems, moves)
        sizes = np.linalg.norm(self.systems, axis=(1, 2)) * np.linalg.norm(moves, axis=1)
        unit = gamma(8 * moves.shape[1] + 32) + 4.0 * self.family.family.base.metric.solve_error
        off = np.where(self.shares > 0.0, self.theta * self.shares, 0.0) * np.linalg.norm(moves, axis=1) * (1.0 + FEW)
        rounding = (self.base_errors + off + unit * sizes + FEW * np.linalg.norm(self.base_gradients, axis=1)) * (
            1.0 + FEW
        )
        norms = (np.linalg.norm(gradients, axis=1) * (1.0 + unit) + rounding) * (1.0 + FEW) + TINY
        return gradients, norms, rounding, np.zeros(moves.shape[0])

    def step(self, members: NDArray[np.bool_]) -> "GroupCandidates":
        """Some of the candidates after one more Newton step."""
        names = ("groups", "systems", "shares", "theta", "factors", "base_gradients", "base_errors")
        models = self.models[:, members] + self.family.family.base.metric.inverse @ self.steps[members].T
        return replace(self, models=models, **{name: getattr(self, name)[members] for name in names})
