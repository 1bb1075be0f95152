r"""Models of many sets of columns at once, each under the local certificate in the metric of its own Hessian.

Where sets are small, all their Hessians together cost little: for sets of ``t`` columns :math:`2 n t^2` operations each. Nothing is assumed of
how these are factored: with the computed :math:`R` and :math:`V \approx R^{-1}` the residuals :math:`R^\top R - H` and :math:`R V - I`
are formed by products, and their norms enter the bounds, as on a device.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.linalg import LinAlgError
from numpy.typing import NDArray

from glru._options import UNLIMITED, Budget
from glru.bounds import Bounds, intersect, widen
from glru.linalg import FEW, TINY, Array, Matrix, gamma, powers_of_two
from glru.problem import Problem
from glru.regions.local import local_radius
from glru.updates.carried_rows import sum_error

Places = NDArray[np.intp]

Decided = Callable[[Places, Array, Array], NDArray[np.bool_]]
"""Which of some members are decided: ``decided(members, lower, upper)``, with bounds of shape (n_queries, n_members)."""

ENTRIES_TOGETHER = 2_000_000
"""The largest number of entries in the data of the sets handled together."""

MAX_STEPS, FIRST_STEPS = 20, 2
"""The largest number of Newton steps, and the number before the first certificate, which costs about as much as one."""


FAR_MOVE, FLAT_SLOPE, MAX_HALVINGS = 1.0, 0.1, 16
"""If a step moves scores further than this (times the self-concordance constant), a part of it is searched for after which the slope of the objective along it is within this
share of its first value, by at most so many halvings."""


def has_subsets(problem: Problem) -> bool:
    """Whether :class:`SubsetModels` applies to sets of a problem's columns."""
    return (
        problem.in_memory
        and problem.arrays.stable
        and not problem.matrix.is_thin
        and problem.loss.self_concordance is not None
        and np.isfinite(problem.loss.smoothness)
        and problem.penalty.smooth
    )


@final
@dataclass(frozen=True, eq=False)
class Metrics:
    """Inverse factors of several Hessians, ``V`` of each, with what is proven about them."""

    # Shape (n_sets, n_unknowns, n_unknowns): ``V``, such that ``V V^T`` is near the inverse of the Hessian.
    inverse: Array
    eta: Array  # shape (n_sets,): a Hessian is at least ``1 - eta`` times the metric; infinite where nothing is known
    solve_error: Array  # shape (n_sets,): relative error of norms


def factor_all(hessians: Array, depth: int) -> Metrics:
    """Factor Hessians that are sums over rows of at most ``depth`` additions."""
    size = hessians.shape[1]
    scales = powers_of_two(np.diagonal(hessians, axis1=1, axis2=2))
    matrices = hessians * scales[:, :, None] * scales[:, None, :]
    unit = np.eye(size)
    factors = np.broadcast_to(unit, matrices.shape).copy()
    good = np.asarray(np.isfinite(matrices).all(axis=(1, 2)))
    try:
        factors[good] = np.linalg.cholesky(matrices[good])
    except LinAlgError:
        for k in np.flatnonzero(good):
            try:
                factors[k] = np.linalg.cholesky(matrices[k])
            except LinAlgError:
                good[k] = False
    factors = np.swapaxes(factors, 1, 2)
    inverse = np.asarray(np.linalg.inv(factors), dtype=np.float64)
    rounded = 1.0 + 2.0 * gamma(size * size + 8)
    norms = _frobenius(factors), _frobenius(inverse)
    tau = (_frobenius(factors @ inverse - unit) + gamma(size + 8) * norms[0] * norms[1]) * rounded
    # Products R^T R err by gamma |r_i| |r_j| in an entry; forming and summing a Hessian by gamma sqrt(h_ii h_jj).
    factored = _frobenius(np.swapaxes(factors, 1, 2) @ factors - matrices) + gamma(size + 8) * np.square(norms[0])
    trace = np.trace(matrices, axis1=1, axis2=2)
    known = good & (tau < 0.125)
    tau = np.where(known, tau, 0.0)
    eta = (factored + gamma(depth + 4 * size + 16) * trace) * rounded * np.square(norms[1] * rounded / (1.0 - tau))
    eta = np.where(known & np.isfinite(eta), eta, np.inf)
    return Metrics(inverse * scales[:, :, None], eta, 3.0 * tau / (1.0 - 3.0 * tau) + FEW)


def _frobenius(matrices: Array) -> Array:
    return np.sqrt(np.square(matrices).sum(axis=(1, 2)))


@final
class SubsetModels:
    """Sets of columns of a problem, and bounds of some queries' scores under the model of each.

    Parameters
    ----------
    problem : Problem
        The problem with all columns; its rows are in memory.
    queries : Matrix of shape (n_queries, n_columns)
        Rows whose scores are asked about, with all columns.
    budget : Budget, default=UNLIMITED
        Asked before each batch of models.
    """

    def __init__(self, problem: Problem, queries: Matrix, budget: Budget = UNLIMITED) -> None:
        self.problem, self.budget = problem, budget
        self.constant = float(problem.loss.self_concordance or 0.0)
        used = np.flatnonzero(problem.weights > 0.0)
        self.y, self.weights = problem.y[used], problem.weights[used]
        self.X = self._transposed(problem.matrix if used.size == problem.n_rows else problem.matrix[used])
        self.queries = self._transposed(queries)
        self.strengths = np.append(problem.quadratic, 0.0) if problem.fit_intercept else problem.quadratic

    def _transposed(self, X: Matrix) -> Array:
        dense = X.dense().T
        return (
            np.vstack([dense, np.ones(dense.shape[1])]) if self.problem.fit_intercept else np.ascontiguousarray(dense)
        )

    def places(self, columns: Places) -> Places:
        """The places of the unknowns of sets of columns, of shape (n_sets, n_unknowns)."""
        if not self.problem.fit_intercept:
            return columns
        last = np.full((len(columns), 1), self.problem.n_columns)
        return np.hstack([columns, last])

    def bounds(self, columns: Places, starts: Array, decided: Decided) -> tuple[Array, Array, Array]:
        """Bounds of shape (n_queries, n_sets), and the models they were found at, one per row.

        ``columns`` (shape (n_sets, n_columns)): the sets, all of one size, each sorted; ``starts`` (shape (n_sets, n_unknowns)): models to start
        from, the intercept last; ``decided(members, lower, upper)``: which members' bounds are good enough.
        """
        places, models = self.places(columns), starts.copy()
        n_sets, n_queries = len(places), self.queries.shape[1]
        lower, upper = np.full((n_queries, n_sets), -np.inf), np.full((n_queries, n_sets), np.inf)
        width = max(1, ENTRIES_TOGETHER // max(places.shape[1] * (self.y.size + n_queries), 1))
        for start in range(0, n_sets, width):
            self._bound(np.arange(start, min(start + width, n_sets)), places, models, (lower, upper), decided)
        return lower, upper, models

    def _bound(self, members: Places, places: Places, models: Array, found: Bounds, decided: Decided) -> None:
        A, Q, best = self.X[places[members]], self.queries[places[members]], np.full(members.size, np.inf)
        with np.errstate(all="ignore"):
            starts, zero = models[members], float(self.weights @ self.problem.loss.value(self.y, np.zeros(self.y.size)))
            losses = self.problem.loss.value(self.y, np.matmul(starts[:, None, :], A)[:, 0, :]) @ self.weights
            lower = losses + 0.5 * (self.strengths[places[members]] * np.square(starts)).sum(axis=1) <= zero
            models[members[~lower]] = 0.0
        lower, upper = found
        for step in range(MAX_STEPS):
            here = Step(self, A, models[members], self.strengths[places[members]])
            if step >= FIRST_STEPS:
                nu, ends = here.bounds(Q)
                lower[:, members], upper[:, members] = intersect((lower[:, members], upper[:, members]), ends)
                # A gradient that no longer shrinks is rounding, where steps have been small before.
                left = ~decided(members, lower[:, members], upper[:, members]) & ~((nu >= 0.5 * best) & (best < 1e-4))
                best = np.minimum(nu, best)
            else:
                left = np.ones(members.size, dtype=bool)
            if not left.any() or step + 1 == MAX_STEPS:
                return
            models[members[left]] = here.moved[left]
            if not left.all():
                members, A, Q, best = members[left], A[left], Q[left], best[left]


@final
class Step:
    """Models of several sets at one point each: their Hessians, what these prove, and the Newton steps; ``weights``: those of the rows, for each set where they differ."""

    def __init__(
        self, family: SubsetModels, A: Array, models: Array, strengths: Array, weights: Array | None = None
    ) -> None:
        self.family, self.A, self.models = family, A, models
        self.weights = family.weights if weights is None else weights
        problem, totals = family.problem, family.problem.totals
        self.scores = np.matmul(models[:, None, :], A)[:, 0, :]
        slopes, curvatures = problem.loss.expand_slope(family.y, self.scores)
        weighted = self.weights * slopes
        self.slopes, self.strengths = weighted, strengths
        self.gradients = np.matmul(A, weighted[:, :, None])[:, :, 0] + strengths * models
        hessians = np.matmul(A * (self.weights * curvatures)[:, None, :], np.swapaxes(A, 1, 2))
        size = np.arange(strengths.shape[1])
        hessians[:, size, size] += strengths
        self.metrics = factor_all(hessians, totals.depth)
        self.solved = np.matmul(self.gradients[:, None, :], self.metrics.inverse)[:, 0, :]

    @property
    def moved(self) -> Array:
        """The models after a Newton step; where scores would move far, after the part of it at which the objective hardly falls or rises any more."""
        directions = -np.matmul(self.metrics.inverse, self.solved[:, :, None])[:, :, 0]
        directions = np.where(np.isfinite(directions), directions, 0.0)
        moves = np.matmul(directions[:, None, :], self.A)[:, 0, :]
        lengths, reached = np.ones(len(moves)), np.zeros(len(moves))
        left = np.flatnonzero(self.family.constant * np.abs(moves).max(axis=1) > FAR_MOVE)
        steepest, upper = -(self.gradients * directions).sum(axis=1), np.ones(len(moves))
        for _ in range(MAX_HALVINGS):
            if not left.size:
                break
            slopes = self._slopes_along(left, lengths[left], directions[left], moves[left])
            rises = ~(slopes <= FLAT_SLOPE * steepest[left])
            done = ~rises & ((lengths[left] == upper[left]) | (slopes >= -FLAT_SLOPE * steepest[left]))
            upper[left[rises]], reached[left[~rises]] = lengths[left[rises]], lengths[left[~rises]]
            left = left[~done]
            lengths[left] = 0.5 * (reached[left] + upper[left])
        # A length at which it rises is too far.
        lengths[left] = np.where(reached[left] > 0.0, reached[left], lengths[left])
        return self.models + lengths[:, None] * directions

    def _slopes_along(self, sets: Places, lengths: Array, directions: Array, moves: Array) -> Array:
        """The slopes of the objectives of some sets along their steps, after parts of these."""
        scores, weights = self.scores[sets] + lengths[:, None] * moves, self.weights
        weights = weights if weights.ndim == 1 else weights[sets]
        losses = (weights * self.family.problem.loss.gradient(self.family.y, scores) * moves).sum(axis=1)
        penalty = self.strengths[sets] * (self.models[sets] + lengths[:, None] * directions)
        return np.asarray(losses + (penalty * directions).sum(axis=1))

    def bounds(self, Q: Array) -> tuple[Array, Bounds]:
        """Upper bounds of the norms of the gradients, and bounds of the queries' scores of shape (n_queries, n_sets)."""
        family, metrics, totals = self.family, self.metrics, self.family.problem.totals
        constant, smoothness = family.constant, totals.loss.smoothness
        size, n_rows = self.models.shape[1], family.y.size
        absolute, sizes = np.abs(self.models), np.abs(self.A)
        unit = gamma(size + 3) * (1.0 + gamma(size + 8))
        errors = unit * np.matmul(absolute[:, None, :], sizes)[:, 0, :]
        with np.errstate(all="ignore"):
            # Errors of the sums, of the slopes at scores that are off, and of the slopes' own evaluation.
            wrong = (sum_error(totals.depth) + FEW) * np.abs(self.slopes) + self.weights * smoothness * errors
            slack = np.matmul(sizes, wrong[:, :, None])[:, :, 0] + FEW * self.strengths * absolute
            slack *= (1.0 + gamma(n_rows + 8)) * (1.0 + FEW)
            outer = np.matmul(slack[:, None, :], np.abs(metrics.inverse))[:, 0, :]
            grown = 1.0 + metrics.solve_error
            nu = (_lengths(self.solved) + _lengths(outer)) * grown + TINY
            # Curvatures were taken at computed scores.
            eta = metrics.eta + 2.0 * constant * errors.max(axis=1) + sum_error(totals.depth)
            root = np.sqrt(np.where(eta < 0.5, 1.0 - eta, np.nan))
            tiny = TINY * (1.0 + _frobenius(metrics.inverse))
            norms, asked = (
                (_lengths(np.matmul(np.swapaxes(metrics.inverse, 1, 2), rows), axis=1) * grown[:, None] + tiny[:, None])
                / root[:, None]
                * (1.0 + FEW)
                for rows in (self.A, Q)
            )
            nu = nu / root * (1.0 + FEW)
            radius = local_radius(constant, norms.max(axis=1), nu, 0.0)
            centers = np.matmul(self.models[:, None, :], Q)[:, 0, :]
            off = unit * np.matmul(absolute[:, None, :], np.abs(Q))[:, 0, :]
            half = asked * (radius * (1.0 + FEW))[:, None] + off
        known = np.isfinite(centers) & np.isfinite(half)
        return nu, widen(np.where(known, centers, 0.0).T, np.where(known, half, np.inf).T)


def _lengths(vectors: Array, axis: int = -1) -> Any:
    return np.sqrt(np.square(vectors).sum(axis=axis)) * (1.0 + gamma(vectors.shape[axis] + 4))
