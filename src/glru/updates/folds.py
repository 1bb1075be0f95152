r"""Models of the same rows and columns under several weights at once: the folds of a cross-validation.

All models are stepped together, one column each: their scores are one product with the data and so are their gradients. Steps
are those of L-BFGS whose first metric is the Hessian of every fold. These Hessians cost one together: rows that all folds
weigh alike form a block, the blocks' Gram matrices are formed at the models' mean scores, and a fold's Hessian is a
weighted sum of them. They are formed again only where that is cheaper than the steps it saves.

What is certified is the gradient of a model that is written down in full. With :math:`c` the mean row under the weighted
curvatures :math:`d` at the model, the Hessian in the coordinates :math:`(w, b + c^\top w)` has no entry between :math:`w` and
the intercept, so that it is at least :math:`\mathrm{diag}(\Lambda, \sum_i d_i)` there, and

.. math:: \|g\|_{H^{-1}}^2 \le \|g_w - c\, g_b\|_{\Lambda^{-1}}^2 + g_b^2 / \textstyle\sum_i d_i, \qquad
          \|x\|_{H^{-1}}^2 \le \|x - c\|_{\Lambda^{-1}}^2 + 1 / \textstyle\sum_i d_i .

These are the norms that the local certificate (:mod:`glru.regions.local`) needs: no factor of a matrix is part of the proof.
Without an intercept :math:`H \ge \Lambda` is strong convexity, and the radius is the gradient's norm for any smooth loss.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs

from glru._budget import UNLIMITED, Budget
from glru.bounds import Bounds, intersect, unbounded, widen
from glru.linalg import FEW, TINY, Array, Matrix, as_matrix, gamma
from glru.point import Point
from glru.problem import Problem
from glru.regions.local import LocalEllipsoid, local_radius

Rows = NDArray[np.intp]
Decided = Callable[[Array, Array], NDArray[np.bool_]]

MOST_STEPS = 60
"""Steps of all models together; four times as many without Hessians."""

CLOSE = 1e-7
"""The norm of a gradient from which on the ellipsoid of a fold's own Hessian is small."""

LARGEST = 2000
"""Hessians of more columns are not formed."""

STEP_OVERHEAD, FACTOR_OVERHEAD = 1e5, 5e4
"""What calls cost beside their arithmetic, in nanoseconds: of a step, and of a factor of one fold."""

FLOPS, LOSS = 15.0, 12.0
"""Operations of matrix products in a nanosecond, and nanoseconds of a loss derivative."""


def has_folds(problem: Problem) -> bool:
    """Whether the models of several folds are found and certified together.

    A smooth loss, a penalty with squares on every column, and columns few enough for a Hessian; with an intercept a
    self-concordant loss.
    """
    if not (problem.in_memory and problem.arrays.stable and problem.penalty.smooth):
        return False
    certified = problem.loss.self_concordance is not None or not problem.fit_intercept
    # Hessians of sparse data are not needed, but models have to be written down.
    few = problem.n_columns <= (4 * problem.n_rows if problem.is_sparse else min(problem.n_rows, LARGEST))
    return certified and few and np.isfinite(problem.loss.smoothness) and problem.penalty.strong_convexity > 0.0


@final
@dataclass(frozen=True, eq=False)
class Blocks:
    """Rows in blocks, of which every fold takes a multiple of the common weights.

    Attributes
    ----------
    order : array of int
        The rows, block by block.
    edges : array of int
        Where the blocks begin and end.
    shares : array of shape (n_blocks, n_folds)
        The multiples.
    """

    order: Rows
    edges: Rows
    shares: Array

    @classmethod
    def of(cls, common: Array, weights: Array) -> "Blocks | None":
        """The blocks of folds with some weights; None where there are too many for one Hessian's price."""
        shares = np.divide(weights, common[:, None], out=np.zeros_like(weights), where=common[:, None] > 0.0)
        # Shares of one block differ by rounding; a row of them is told by a sum with factors that no others have in common.
        rounded = shares.astype(np.float32).astype(np.float64)
        keys = np.zeros(common.size)
        factors: Array = np.random.default_rng(0).uniform(1.0, 2.0, size=(weights.shape[1],))
        for fold, factor in enumerate(factors):
            keys += factor * rounded[:, fold]
        _, first, member, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        if first.size > 4 * weights.shape[1] + 4 or not np.array_equal(rounded, rounded[first][member]):
            return None
        return cls(np.argsort(member, kind="stable"), np.append(0, np.cumsum(counts)), shares[first])


@final
class Factors:
    """The Hessians of all folds, factored: the first metric of the steps.

    Attributes
    ----------
    centers, masses : array of shape (n_columns, n_folds), array of shape (n_folds,)
        The mean rows under the weighted curvatures, and the sums of these, where there is an intercept.
    """

    memory = 6

    def __init__(self, folds: "Folds", scores: Array, columns: Rows, own: bool) -> None:
        self.columns = columns
        hessians = folds.hessians(scores, columns, own)
        diagonal = np.arange(folds.size)
        hessians[:, diagonal, diagonal] += folds.strengths[:, columns].T
        self.masses = hessians[:, -1, -1].copy()
        self.centers = (hessians[:, : folds.n_columns, -1] / self.masses[:, None]).T
        self.factors, self.failed = [], False
        for hessian in hessians:
            factor, failed = dpotrf(hessian.T, lower=1, clean=0, overwrite_a=1)
            self.factors.append(factor)
            self.failed |= failed != 0

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Go on with some of the folds."""
        self.columns, self.masses, self.centers = self.columns[kept], self.masses[kept], self.centers[:, kept]
        self.factors = [factor for factor, stays in zip(self.factors, kept, strict=True) if stays]

    def solve(self, gradients: Array, pair: tuple[Array, Array] | None) -> Array:
        """``H^-1`` of each fold times its gradient."""
        solved = np.empty_like(gradients)
        for k, factor in enumerate(self.factors):
            solved[:, k] = dpotrs(factor, gradients[:, k], lower=1)[0]
        return solved


@final
class Diagonals:
    """The diagonals of all folds' Hessians, where these are too large to form: the first metric of the steps."""

    failed, memory = False, 12

    def __init__(self, folds: "Folds", scores: Array, columns: Rows) -> None:
        weighted = folds.weights[:, columns] * folds.loss.curvature(folds.y, scores)
        squares = [folds.matrix.squared_column_norms(weights) for weights in weighted.T]
        self.columns, self.diagonals = columns, np.column_stack(squares) + folds.strengths[:, columns]
        sums = folds.matrix.T @ weighted
        self.masses, self.centers = sums[-1], sums[: folds.n_columns] / sums[-1]

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Go on with some of the folds."""
        self.columns, self.masses, self.centers = self.columns[kept], self.masses[kept], self.centers[:, kept]
        self.diagonals = self.diagonals[:, kept]

    def solve(self, gradients: Array, pair: tuple[Array, Array] | None) -> Array:
        """The gradients divided by the diagonals, to the scale that the last pair of step and change of the gradient tells."""
        solved = gradients / self.diagonals
        if pair is None:
            return solved
        step, change = pair
        along, across = (np.einsum("ij,ij->j", change, other) for other in (step, change / self.diagonals))
        return solved * np.where(along > 0.0, along / across, 1.0)


@final
@dataclass(eq=False)
class Place:
    """Where the models of some folds stand, one column each."""

    coef: Array
    scores: Array
    slopes: Array
    gradient: Array

    def take(self, kept: Any) -> "Place":
        """The models of some of the folds."""
        return Place(*(part[:, kept] for part in (self.coef, self.scores, self.slopes, self.gradient)))


@final
class Folds:
    """Problems that differ from one in the weights of the rows and in the strengths of the penalty.

    Parameters
    ----------
    problem : Problem
        Data, loss and intercept, and the weights that the folds' are multiples of.
    folds : sequence of Problem
        The problems.
    """

    def __init__(self, problem: Problem, folds: Sequence[Problem]) -> None:
        self.folds = folds
        weights = np.column_stack([fold.weights for fold in folds])
        strengths = np.column_stack([fold.quadratic for fold in folds])
        self.problem, self.loss, self.free = problem, problem.loss, problem.fit_intercept
        self.n_rows, self.n_columns = problem.matrix.shape
        self.common = problem.weights if np.any(problem.weights) else weights.max(axis=1)
        self.blocks = Blocks.of(self.common, weights)
        order = np.arange(self.n_rows) if self.blocks is None else self.blocks.order
        self.place_of = np.empty(self.n_rows, dtype=np.intp)
        self.place_of[order] = np.arange(self.n_rows)
        self.matrix = _with_ones(problem.matrix[order]) if self.free else problem.matrix[order]
        self.y, self.common, self.weights = problem.y[order][:, None], self.common[order], weights[order]
        self.strengths = np.vstack([strengths, np.zeros((1, weights.shape[1]))]) if self.free else strengths
        self._measure(strengths, order)

    def _measure(self, strengths: Array, order: Rows) -> None:
        """Norms of rows and columns, rounded up."""
        problem, most = self.problem, self.weights.max(axis=1)
        self.inverse = (1.0 + FEW) / strengths.min(axis=1)
        self.lengths = np.sqrt(problem.squared_row_norms[order]) * (1.0 + gamma(self.n_columns + 8)) + TINY
        squares = self.matrix.squared_row_norms(np.append(self.inverse, 0.0) if self.free else self.inverse)
        self.norms = np.sqrt(squares) * (1.0 + gamma(self.n_columns + 8)) + TINY * (1.0 + np.sqrt(self.inverse.max()))
        self.column_norms = (np.sqrt(self.matrix.squared_column_norms(most)) + TINY) * (1.0 + gamma(self.n_rows + 8))
        self.data_norm = float(np.linalg.norm(self.column_norms[: self.n_columns])) * (1.0 + gamma(self.n_columns + 8))
        self.weight_norm = float(np.sqrt(most.sum())) * (1.0 + gamma(self.n_rows + 8))

    @property
    def is_direct(self) -> bool:
        """Whether Hessians over the columns are formed."""
        return self.n_columns <= min(self.n_rows, LARGEST)

    @property
    def size(self) -> int:
        """Unknowns of a model."""
        return self.n_columns + int(self.free)

    def at(self, coef: Array, columns: Rows, scores: Array | None = None) -> Place:
        """The models with some coefficients (the intercept last)."""
        scores = self.matrix @ coef if scores is None else scores
        slopes = self.loss.gradient(self.y, scores)
        gradient = self.matrix.T @ (self.weights[:, columns] * slopes)
        gradient += self.strengths[:, columns] * coef
        return Place(coef, scores, slopes, gradient)

    def hessians(self, scores: Array, columns: Rows, own: bool) -> Array:
        """Upper triangles of the losses' Hessians of some folds, with curvatures at the models' mean scores, or each at its ``own``."""
        found: Array
        if own:
            weighted = self.weights[:, columns] * self.loss.curvature(self.y, scores)
            found = np.array([self.matrix.column_gram(weights) for weights in weighted.T])
        else:
            curvatures = self.loss.curvature(self.y[:, 0], scores.mean(axis=1))
            if self.blocks is None:
                found = np.array([self.matrix.column_gram(curvatures * weights) for weights in self.weights.T[columns]])
            else:
                weighted, edges = self.common * curvatures, self.blocks.edges
                spans = [slice(first, last) for first, last in pairwise(edges)]
                grams = np.array([self.matrix[span].column_gram(weighted[span]) for span in spans])
                shares = self.blocks.shares[:, columns].T
                found = (shares @ grams.reshape(len(spans), -1)).reshape(-1, self.size, self.size)
        return found

    def bounds(
        self, start: Array, tests: Sequence[Rows], decided: Decided, budget: Budget = UNLIMITED
    ) -> tuple[list[Bounds], Array]:
        """Bounds of the scores of every fold's test rows, and the models.

        Parameters
        ----------
        start : array of shape (n_unknowns,) or (n_unknowns, n_folds)
            Where to start, the intercept last.
        tests : sequence of array
            The rows that are asked about, fold by fold.
        decided : callable
            ``decided(lower, upper)``: where bounds are good enough.
        """
        work = _Training(self, tests, decided)
        work.run(np.array(np.broadcast_to(start.reshape(self.size, -1), (self.size, self.weights.shape[1]))), budget)
        ends = np.cumsum([test.size for test in tests])[:-1]
        return list(zip(np.split(work.lower, ends), np.split(work.upper, ends), strict=True)), work.models

    def radii(self, place: Place, columns: Rows, centers: Array, masses: Array) -> "Radii":
        """The radii around models.

        ``centers``, ``masses``: the mean rows under the weighted curvatures there, and the sums of these.
        """
        n_rows, d, constant = self.n_rows, self.n_columns, self.loss.self_concordance
        most, spread = self.score_errors(place.coef)
        square = np.einsum("ij,ij->j", self.weights[:, columns] * place.slopes, place.slopes)
        size = np.sqrt(square) * (1.0 + gamma(n_rows + 4))
        # Slopes at scores that are off, their own evaluation, their weights (which a sum of all divides) and sums of them; then the
        # penalty's product.
        spread = ((gamma(2 * n_rows + 16) + FEW) * size + self.loss.smoothness * spread) * (1.0 + FEW)
        slack = self.column_norms[:, None] * spread
        slack[:d] += FEW * self.strengths[:d, columns] * np.abs(place.coef[:d])
        slack *= 1.0 + FEW
        nothing = np.zeros(columns.size)
        if not self.free:
            rounding = self._length(slack)
            nu = (self._length(place.gradient) + rounding) * (1.0 + FEW)
            radius = nu if constant is None else local_radius(constant, float(self.norms.max()), nu, 0.0)
            return Radii(radius, nothing, nothing, nu, rounding)
        assert constant is not None
        # Curvatures were taken at computed scores, and summed: at the exact ones they are within this factor.
        off = constant * most * (1.0 + FEW) + gamma(2 * n_rows + 64)
        least = np.where((off < 0.1) & (masses > 1e-200), masses * (1.0 - 2.0 * off), np.nan)
        # The exact centre differs by 4 off times the mean of |x_j|, which Cauchy-Schwarz bounds.
        shifts = self.column_norms[:d, None] * (4.0 * off * np.sqrt(self.loss.smoothness / least))
        own, last = place.gradient[:d] - centers * place.gradient[-1], np.abs(place.gradient[-1]) + slack[-1]
        slack[:d] += np.abs(centers) * slack[-1] + shifts * last
        slack[:d] += FEW * (np.abs(place.gradient[:d]) + np.abs(centers * place.gradient[-1]))
        intercept = (1.0 + FEW) / np.sqrt(least)
        rounding = self._length(slack[:d])
        nu = np.hypot(self._length(own) + rounding, last * intercept) * (1.0 + FEW)
        added = self._length(np.abs(centers) + shifts)
        top = np.hypot(float(self.norms.max()) + added, intercept) * (1.0 + FEW)
        known = np.isfinite(nu)
        radius = local_radius(constant, top, np.where(known, nu, 1.0), 0.0)
        return Radii(np.where(known, radius, np.inf), added, intercept, nu, rounding + slack[-1] * intercept)

    def certify(self, place: Place, columns: Rows) -> "Radii":
        """The radii around models, from the curvatures there."""
        if not self.free:
            return self.radii(place, columns, np.zeros((0, 0)), np.zeros(0))
        weighted = self.weights[:, columns] * self.loss.curvature(self.y, place.scores)
        sums = self.matrix.T @ weighted
        return self.radii(place, columns, sums[:-1] / sums[-1], sums[-1])

    def _length(self, vectors: Array) -> Array:
        """At least the norms in the inverse of the penalty's metric."""
        # Divided first: squares of small gradients may underflow where these norms do not.
        scaled = np.sqrt(self.inverse)[:, None] * vectors
        return np.sqrt(np.einsum("ij,ij->j", scaled, scaled)) * (1.0 + gamma(self.n_columns + 16)) + TINY

    def score_errors(self, coef: Array) -> tuple[Array, Array]:
        """At least the largest error of a score, and ``sqrt(sum_i s_i e_i^2)``, one entry per model."""
        lengths, shifts = self._error_parts(coef)
        largest = (float(self.lengths.max()) * lengths + shifts) * (1.0 + FEW)
        return largest, (self.data_norm * lengths + self.weight_norm * shifts) * (1.0 + FEW)

    def _error_parts(self, coef: Array) -> tuple[Array, Array]:
        """The error of a row's score is at most its length times the first, and the second."""
        unit = gamma(self.size + 3) * (1.0 + gamma(self.size + 8))
        lengths = unit * np.linalg.norm(coef[: self.n_columns], axis=0) * (1.0 + gamma(self.n_columns + 8))
        return lengths, unit * np.abs(coef[-1]) if self.free else np.zeros(lengths.size)

    def ellipsoid(self, place: Place, column: int, fold: int) -> LocalEllipsoid:
        """The local ellipsoid around one of the models, in the metric of its Hessian."""
        coef = place.coef[:, column]
        point = Point(coef[: self.n_columns], float(coef[-1]) if self.free else 0.0)
        return LocalEllipsoid.at(self.folds[fold], point)

    def half_widths(self, place: Place, rows: Rows, columns: Rows, radii: "Radii") -> tuple[Array, Array]:
        """Scores of some rows, each under one of the models, and at most how far they are from those of its optimum."""
        lengths, shifts = self._error_parts(place.coef)
        scores = place.scores[rows, columns]
        norms = np.hypot(self.norms[rows] + radii.added[columns], radii.intercept[columns])
        half = radii.radius[columns] * norms + self.lengths[rows] * lengths[columns] + shifts[columns]
        return scores, half * (1.0 + FEW) + FEW * np.abs(scores)


@final
@dataclass(frozen=True, eq=False)
class Radii:
    """How far optima are at most from models, one entry per model.

    Attributes
    ----------
    radius : array
        The radius in the metric of the Hessian.
    added, intercept : array
        The norm of a row is at most its norm in the metric of the penalty and ``added``, and ``intercept`` for the ones.
    nu, rounding : array
        At least the gradient's norm, and what of that is rounding.
    """

    radius: Array
    added: Array
    intercept: Array
    nu: Array
    rounding: Array

    def take(self, kept: Any) -> "Radii":
        """Those of some of the models."""
        return Radii(*(part[kept] for part in (self.radius, self.added, self.intercept, self.nu, self.rounding)))


@final
class _Training:
    """The models of all folds on their way, and what is proven of their test rows.

    Attributes
    ----------
    folds : Folds
        The folds.
    columns : array of int
        The folds that are still open.
    tests : array of int
        The test rows of all folds.
    asked, rows, owners : array of int
        Of every test row of an open fold: its place among all test rows and among the rows, and which of the open folds it is in.
    lower, upper : array
        What is proven of all test rows.
    """

    def __init__(self, folds: Folds, tests: Sequence[Rows], decided: Decided) -> None:
        self.folds, self.decided = folds, decided
        self.columns = np.arange(len(tests))
        self.tests = np.concatenate(tests)
        self.rows = folds.place_of[self.tests]
        self.asked = np.arange(self.rows.size)
        self.owners = np.repeat(self.columns, [test.size for test in tests])
        self.lower, self.upper = unbounded(self.rows.size)
        self.pairs: list[tuple[Array, Array]] = []

    def run(self, start: Array, budget: Budget) -> None:
        """Step until all folds are settled, or rounding allows no more."""
        folds, own = self.folds, False
        self.models, place = start, folds.at(start, self.columns)
        metric, before = self._metric(place, own), np.full(self.columns.size, np.inf)
        for _ in range(MOST_STEPS if folds.is_direct else 4 * MOST_STEPS):
            if metric.failed or budget.spent:
                break
            direction = self._direction(metric, place)
            descent = np.einsum("ij,ij->j", place.gradient, direction)
            if not np.all(descent <= 0.0):
                break
            after, full = self._search(place, direction, descent)
            self.pairs = [*self.pairs[1 - metric.memory :], (after.coef - place.coef, after.gradient - place.gradient)]
            place, columns = after, self.columns
            guess = folds.radii(place, metric.columns, metric.centers, metric.masses)
            near = folds.is_direct & (-descent <= CLOSE**2)
            kept = ~self._settle(place, guess, near) if full else np.ones(columns.size, dtype=np.bool_)
            self.models[:, columns] = place.coef
            if not kept.any():
                break
            if not kept.all():
                place, guess, before = place.take(kept), guess.take(kept), before[kept]
                self._keep(kept)
                metric.keep(kept)
            fresh, rate = not np.all(np.isfinite(before)), float((guess.nu / before).max())
            before = guess.nu
            # Steps that a new metric makes too long: the folds have little in common.
            own = own or (not full and fresh)
            if isinstance(metric, Factors) and (not full or self._refresh_pays(rate, place, guess, own)):
                metric, self.pairs, before = self._metric(place, own), [], np.full(before.size, np.inf)

    def _metric(self, place: Place, own: bool) -> "Factors | Diagonals":
        if self.folds.is_direct:
            return Factors(self.folds, place.scores, self.columns, own)
        return Diagonals(self.folds, place.scores, self.columns)

    def _keep(self, kept: NDArray[np.bool_]) -> None:
        """Go on with some of the folds."""
        self.columns = self.columns[kept]
        self.pairs = [(step[:, kept], change[:, kept]) for step, change in self.pairs]
        stay = kept[self.owners]
        self.asked, self.rows = self.asked[stay], self.rows[stay]
        self.owners = (np.cumsum(kept) - 1)[self.owners[stay]]

    def _direction(self, metric: Factors | Diagonals, place: Place) -> Array:
        """The step of L-BFGS, one column per fold."""
        vector = -place.gradient
        used = []
        for step, change in reversed(self.pairs):
            product = np.einsum("ij,ij->j", step, change)
            inverse = np.divide(1.0, product, out=np.zeros_like(product), where=product > 0.0)
            share = inverse * np.einsum("ij,ij->j", step, vector)
            vector = vector - share * change
            used.append((step, change, inverse, share))
        vector = metric.solve(vector, self.pairs[-1] if self.pairs else None)
        for step, change, inverse, share in reversed(used):
            vector = vector + (share - inverse * np.einsum("ij,ij->j", change, vector)) * step
        return vector

    def _search(self, place: Place, direction: Array, descent: Array) -> tuple[Place, bool]:
        """The models after a step, shortened where the objective rises at its end; and whether none was."""
        folds, columns = self.folds, self.columns
        after = folds.at(place.coef + direction, columns)
        moved, lengths = after.scores - place.scores, np.ones(columns.size)
        for trial in range(20):
            slopes = np.einsum("ij,ij->j", after.gradient, direction)
            # A descent this small is near the rounding of its own sum, and no guide to the length.
            far = ~(slopes <= -0.5 * descent) & ~(-descent <= CLOSE**2)
            if not far.any():
                return after, trial == 0
            # False position, kept away from the ends.
            guess = np.where(np.isfinite(slopes), descent / (descent - slopes), 0.1)
            lengths = np.where(far, lengths * np.clip(guess, 0.1, 0.9), lengths)
            after = folds.at(place.coef + lengths * direction, columns, place.scores + lengths * moved)
        return after, False

    def _are_settled(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """Which of the open folds have only test rows whose bounds are good enough."""
        return np.bincount(self.owners, ~self.decided(lower, upper), self.columns.size) == 0.0

    def _settle(self, place: Place, guess: Radii, near: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Certify the folds that look settled or as near as float64 comes; which ones are done.

        ``near``: folds that are near enough for the ellipsoid of their own Hessian, which is asked where rounding leaves nothing
        to be hoped for from the cheap certificate.
        """
        folds, nothing = self.folds, np.zeros(self.columns.size, dtype=np.bool_)
        exhausted = guess.nu <= 2.0 * guess.rounding
        if not (exhausted | self._look_settled(place, guess)).any() and not near.any():
            return nothing
        hopeless = (
            near & ~self._look_settled(place, replace(guess, radius=2.0 * guess.rounding)) if near.any() else nothing
        )
        radii = folds.certify(place, self.columns)
        self._take(widen(*folds.half_widths(place, self.rows, self.owners, radii)), slice(None))
        done = self._are_settled(self.lower[self.asked], self.upper[self.asked])
        if folds.loss.self_concordance is not None and folds.is_direct:
            for k in np.flatnonzero((exhausted | hopeless) & ~done):
                mine = np.flatnonzero(self.owners == k)
                region = folds.ellipsoid(place, int(k), int(self.columns[k]))
                self._take(region.score_bounds(folds.problem.matrix[self.tests[self.asked[mine]]]), mine)
        return exhausted | hopeless | done

    def _look_settled(self, place: Place, radii: Radii) -> NDArray[np.bool_]:
        """Which of the open folds would be settled with some radii, but for the last rounding."""
        scores, half = self.folds.half_widths(place, self.rows, self.owners, radii)
        return self._are_settled(scores - half, scores + half)

    def _take(self, bounds: Bounds, places: Any) -> None:
        """Take in bounds of some of the open folds' test rows."""
        asked = self.asked[places]
        self.lower[asked], self.upper[asked] = intersect((self.lower[asked], self.upper[asked]), bounds)

    def _refresh_pays(self, rate: float, place: Place, guess: Radii, own: bool) -> bool:
        """Whether new Hessians cost less than the steps that they save; ``rate``: what a step reduces gradients to."""
        folds, n_folds, stored = self.folds, self.columns.size, self.folds.matrix.n_stored
        step = STEP_OVERHEAD + 4.0 * stored * n_folds / FLOPS + LOSS * folds.n_rows * n_folds
        grams = n_folds if own or folds.blocks is None else 1
        renewal = (grams * stored * folds.size + n_folds * folds.size**3 / 3.0) / FLOPS + FACTOR_OVERHEAD * n_folds
        if not 0.0 < rate < 0.9:
            return not rate <= 0.0
        for share in (0.1, 1e-2, 1e-3, 1e-5, 1e-8):
            if self._look_settled(place, replace(guess, radius=share * guess.nu)).all():
                break
        return bool(np.log(share) / np.log(rate) * step > renewal + 2.5 * step)


def _with_ones(matrix: Matrix) -> Matrix:
    return matrix.concatenate([matrix, as_matrix(np.ones((matrix.shape[0], 1)))], axis=1)
