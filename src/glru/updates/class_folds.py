r"""Models with one score per class of the same rows and columns under several weights and strengths at once: the folds of a cross-validation.

All models are stepped together, from one model near them: their scores are one product with the data, and so are their gradients. Newton steps are found by conjugate gradients in single
precision, in front of one block for each class.

What is certified is the gradient of a model that is written down in full, in a metric over the columns alone. The Hessian of row ``i`` is :math:`h = \operatorname{diag}(p) - p p^\top`. Its
smallest eigenvalue is 0, that of the vector of ones, and by Cauchy's interlacing the second one is at least :math:`q_i = \min_k p_{ik}`. For moves that sum to zero over the classes, which
the way to the optimum does, the Hessian of the objective is therefore at least :math:`I_K \otimes M`,

.. math:: M = \Lambda + \sum_i s_i q_i \tilde x_i \tilde x_i^\top .

A move of range ``r`` of a row's scores changes :math:`q_i` by a factor within :math:`e^{\pm r}`, and :math:`r \le \sqrt 2 \|\tilde x_i\|_{M^{-1}}` times the length of the move: the proof of
:mod:`glru.regions.local` holds with the norms :math:`\|g\|^2 = \sum_a \|g_a\|^2_{M^{-1}}` of gradients and :math:`\|u\| \|\tilde x\|_{M^{-1}}` of queries
:math:`u^\top W \tilde x`. ``M`` is smaller than the Hessian, by less than what one or two Newton steps gain, and costs a share of one Hessian over classes and columns.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import spotrf, spotri
from scipy.sparse import csr_array, hstack

from glru._options import UNLIMITED, Budget
from glru.bounds import Bounds
from glru.linalg import FEW, TINY, Array, Matrix, gamma
from glru.metric.classes import EXPONENTS
from glru.metric.columns import ColumnMetric, DiagonalMetric
from glru.problem import Point, Problem
from glru.regions.class_sums import pack_classes, unpack_classes
from glru.regions.classes import make_unbounded_queries, widen_queries
from glru.regions.local import bound_row_norm, local_radius
from glru.solvers.multinomial import class_conjugate_gradients
from glru.updates.class_removals import weight_share

Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
Decided = Callable[[Array, Array], Mask]

MAX_STEPS, MAX_PRODUCTS, MAX_TRIALS = 30, 100, 8
"""Newton steps of all models together, products with the Hessian in one of them, and lengths that are tried for one."""

INEXACT, MIN_INEXACT = 0.1, 1e-4
"""Shares of a gradient that any step may leave, and that every step may: single precision reaches no less."""

NEAR = 0.01
"""The common model is near enough where its gradient is at most this share of that at zero: the folds are about as far from each other."""

CONVERGING = 0.3
"""Metrics are made once a step has left no more than this share of the gradients."""

CHUNK, SPARSE_CHUNK = 1 << 16, 1 << 22
"""Scores that are worked on at a time, so that what is made of them stays in the cache; more of sparse data, for whose products models are transposed."""

FACTORED_COLUMNS = 600
"""Metrics of more columns than this are not factored, nor are blocks in front of a Newton system."""

SHARED_COLUMNS = 5000
"""One block for many folds and all classes may have as many columns."""

BLOCK_ROWS = 50
"""Blocks in front of a Newton system are sums over so many rows per column."""

STALE = 20
"""After so many products in one step the blocks are made again."""

MAX_ASKED_GRADIENT = 0.5
"""Bounds are asked for where the largest norm of a row times the gradient's norm is below this."""

SHARES = (0.1, 1e-2, 1e-3, 1e-4)
"""What gradients may have to be reduced to for bounds that are good enough."""

MAX_ALIKE = 0.9
"""Folds that share at least this much of all weight use one metric."""

N_HARDEST = 16
"""How many rows of a fold are looked at before all of them."""


def has_class_folds(problem: Problem, folds: Sequence[Problem]) -> bool:
    """Whether the models of folds with one score per class are stepped together: rows in memory on the host, every column penalised."""
    if not (problem.loss.several and problem.in_memory and problem.arrays.stable and problem.n_columns):
        return False
    return problem.penalty.strong_convexity > 0.0 and all(fold.matrix is problem.matrix for fold in folds)


@final
@dataclass(frozen=True, eq=False)
class Place:
    """Where the models of some folds stand; the first axis of every array is that of the folds."""

    # Shape (n_folds, n_classes, n_unknowns): coefficients with the intercepts last, and the objectives' gradients.
    models: Array
    gradients: Array
    likely: NDArray[np.float32]  # shape (n_folds, n_classes, n_rows): the probabilities, in single precision
    least: Array  # shape (n_folds, n_rows): the smallest probability of every row
    slopes: Array  # shape (n_folds,): the largest ``sqrt(sum_i s_i g_ia^2)`` of a class
    # Shape (n_folds, 2): ``sqrt(sum_i s_i t_i^2 |x_i|^2)`` and ``sqrt(sum_i s_i t_i^2)``, ``t_i`` at least every ``p (1 - p)`` of a row.
    curvatures: Array
    # Shape (n_folds,): at least the relative error of a computed probability, for the scores as they are stored.
    unit: Array

    def take(self, kept: Any) -> "Place":
        """The models of some of the folds."""
        return Place(*(getattr(self, field.name)[kept] for field in fields(self)))

    def put(self, places: Rows, other: "Place") -> None:
        """Replace the models of some of the folds."""
        for field in fields(self):
            getattr(self, field.name)[places] = getattr(other, field.name)


@final
@dataclass(frozen=True, eq=False)
class FoldMetric:
    """``M`` of a fold, the smallest probabilities that it was made with, of the rows that have weight in it, and at least the largest norm of a row."""

    metric: ColumnMetric | DiagonalMetric
    least: Array
    largest_norm: float

    @classmethod
    def of(cls, problem: Problem, weights: Array, least: Array, factored: bool) -> "FoldMetric":
        """The metric of a problem, or of smaller weights; ``factored``: or else bounded by the penalty's."""
        curvatures, least = weights * least, np.where(weights > 0.0, least, 0.0)
        if not factored:
            bounded = DiagonalMetric(problem, curvatures)
            known = np.isfinite(bounded.eta)
            return cls(bounded, least, float(bounded.norms(problem.matrix).max()) if known else np.inf)
        lowest = 0.0 if problem.fit_intercept else float(problem.quadratic.min())
        metric = ColumnMetric(problem.hessian(curvatures), problem.fit_intercept, problem.n_rows + 16, lowest)
        longest = float(np.sqrt(problem.squared_row_norms.max())) * (1.0 + gamma(problem.n_columns + 8)) + TINY
        return cls(metric, least, bound_row_norm(metric, longest))

    def ratio(self, least: Array) -> float:
        """A lower bound of what ``M`` at other smallest probabilities is, as a share of this one."""
        counted = self.least > 0.0
        return min(1.0, float(np.min(least[counted] / self.least[counted], initial=1.0)) * (1.0 - FEW))


@final
class ClassFolds:
    """Problems with one score per class that differ in the weights of the rows and in the strengths of the penalty.

    ``problem``: data, loss and intercept; ``folds``: the problems.
    """

    def __init__(self, problem: Problem, folds: Sequence[Problem]) -> None:
        self.problem, self.free = problem, problem.fit_intercept
        self.n_scores, self.n_columns = problem.n_scores, problem.n_columns
        self.size = self.n_columns + int(self.free)
        self.lengths = np.sqrt(problem.squared_row_norms) * (1.0 + gamma(self.n_columns + 8)) + TINY
        self.noise = 0.0 if problem.matrix.noise is None else float(problem.matrix.noise.max())
        chunk = CHUNK if problem.matrix.stores_zeros else SPARSE_CHUNK
        height = max(64, chunk // (len(folds) * self.n_scores))
        self.parts = [slice(k, min(k + height, problem.n_rows)) for k in range(0, problem.n_rows, height)]
        self.depth = height + len(self.parts) + 8
        matrices = [problem.matrix[part] for part in self.parts]
        self.blocks: list[Any] = [matrix.dense() if matrix.stores_zeros else matrix.data for matrix in matrices]
        self.is_factored = problem.matrix.stores_zeros and self.size <= min(FACTORED_COLUMNS, 0.05 * problem.n_rows)
        self.solve: Callable[[Any], Any] | None = None
        self.n_products, self.is_shared = 0, False
        self._weigh_folds(folds)

    def _weigh_folds(self, folds: Sequence[Problem]) -> None:
        """Weights and strengths, those of the common model last, and norms of the columns that hold for all folds."""
        problem, weights = self.problem, np.array([fold.weights for fold in folds])
        strengths = np.zeros((len(folds), self.size))
        strengths[:, : self.n_columns] = [fold.quadratic for fold in folds]
        self.folds, self.largest_weight = folds, float(weights.max())
        self.weights = np.vstack([weights, weights.mean(axis=0)])
        self.strengths = np.vstack([strengths, strengths.mean(axis=0)])
        most, norms = weights.max(axis=0), problem.totals.column_norms
        with np.errstate(all="ignore"):
            grown = float(np.max((most / problem.weights)[most > 0.0], initial=0.0))
        if not np.isfinite(grown):
            norms, grown = problem.derive(sample_weight=most, scaling="sum").totals.column_norms, 1.0
        rounded = 1.0 + gamma(2 * problem.n_rows + 16)
        self.column_norms = norms * (float(np.sqrt(grown)) * rounded) + TINY
        self.weight_norm = float(np.sqrt(most.sum())) * rounded

    def approach(self, point: Point) -> None:
        """Make what stands in front of the Newton systems of many folds near a model: of dense data one block for all classes, from their mean curvatures."""
        mean, model = np.array([len(self.folds)]), pack_classes(point, self.free)
        place = self.at((model - model.mean(axis=0))[None], mean)
        if not self.problem.matrix.stores_zeros or self.size > SHARED_COLUMNS:
            return self.renew_blocks(place, mean)
        weights, strengths = self._weigh(mean)
        curvatures = (place.likely[0] * (1.0 - place.likely[0])).mean(axis=0) * weights[0]
        inverse = _invert(np.concatenate(self.single) * np.sqrt(curvatures)[:, None], strengths[0])
        self.is_shared = True
        self.solve = lambda vectors: (vectors.reshape(-1, self.size) @ inverse).reshape(vectors.shape)
        return None

    def with_folds(self, folds: Sequence[Problem]) -> "ClassFolds":
        """The same data under other weights, in the same units and with the same blocks in front of the Newton systems."""
        assert self.units.size == self.size and self.single
        found = copy(self)
        found._weigh_folds(folds)
        return found

    @cached_property
    def center(self) -> Array:
        """What is taken from the columns in single precision."""
        mean = self.problem.matrix.mean_row() if self.free else None
        return np.zeros(self.n_columns) if mean is None else mean

    @cached_property
    def units(self) -> Array:
        """What columns are multiplied by in single precision, for norms near 1."""
        norms = self.column_norms / self.weight_norm
        return 1.0 / np.where((norms > 1e-150) & (norms < 1e150), norms, 1.0)

    @cached_property
    def single(self) -> list[Any]:
        """The blocks of rows in single precision, centred, with a 1 for an intercept, their columns times the units."""
        found, d = [], self.n_columns
        for block in self.blocks:
            if self.problem.matrix.stores_zeros:
                scaled = np.empty((len(block), self.size), dtype=np.float32)
                np.multiply(block - self.center, self.units[:d], out=scaled[:, :d], casting="unsafe")
                scaled[:, d:] = self.units[d:]
            else:
                ones = csr_array(np.ones((block.shape[0], self.size - d)))
                scaled = hstack([block, ones], format="csr").multiply(self.units).tocsr().astype(np.float32)
            found.append(scaled)
        return found

    def at(self, models: Array, active: Rows) -> Place:
        """The models of some folds, with gradients in double precision."""
        y, shape = self.problem.y, (active.size, self.n_scores, self.problem.n_rows)
        weights, lines = self.weights[active], models.reshape(-1, self.size)
        gradients, squares, curved = np.zeros((len(lines), self.size)), np.zeros(shape[:2]), np.zeros((active.size, 2))
        likely, least, lowest = np.empty(shape, dtype=np.float32), np.empty((shape[0], shape[2])), np.zeros(shape[0])
        for part, block in zip(self.parts, self.blocks, strict=True):
            scores = _forward(block, lines[:, : self.n_columns])
            if self.free:
                scores += lines[:, -1:]
            table = scores.reshape(*shape[:2], -1)
            table -= table.max(axis=1, keepdims=True)
            lowest = np.minimum(lowest, table.min(axis=(1, 2)))
            np.exp(table, out=table)
            table /= table.sum(axis=1, keepdims=True)
            likely[:, :, part], least[:, part] = table, table.min(axis=1)
            # A row's own slope is minus the sum of the others.
            own = slice(None), y[part], np.arange(part.stop - part.start)
            table[own] = 0.0
            table[own] = others = -table.sum(axis=1)
            # No p (1 - p) of a row is above 1 - p_y, or 1 / 4.
            others = weights[:, part] * np.square(np.maximum(others, -0.25))
            curved += np.column_stack([others @ np.square(self.lengths[part]), others.sum(axis=1)])
            weighted = table * weights[:, None, part]
            squares += np.einsum("fai,fai->fa", weighted, table)
            weighted = weighted.reshape(len(lines), -1)
            gradients[:, : self.n_columns] += _back(block, weighted)
            if self.free:
                gradients[:, -1] += weighted.sum(axis=1)
        gradients = gradients.reshape(models.shape) + self.strengths[active][:, None, :] * models
        # Near underflow a probability has no relative error; 0 makes the metric smaller only.
        least[least < 1e-290] = 0.0
        # The difference of two scores is rounded, and so is the exponential of a number that is off by a unit of itself.
        depths = 2 * self.n_scores + 24 + np.ceil(np.minimum(-2.0 * lowest, EXPONENTS))
        unit = np.array([gamma(int(depth)) if np.isfinite(depth) else np.inf for depth in depths])
        return Place(models, gradients, likely, least, np.sqrt(squares.max(axis=1)), np.sqrt(curved), unit)

    def scale(self, gradients: Array) -> Array:
        """Gradients in the columns that are used in single precision."""
        found = gradients.copy()
        if self.free:
            found[:, :, :-1] -= self.center * found[:, :, -1:]
        found *= self.units / self.largest_weight
        return found

    def _weigh(self, active: Rows) -> tuple[Any, Any]:
        """Weights and strengths of some folds in single precision, in units of the largest weight."""
        strengths = self.strengths[active] * self.units**2 / self.largest_weight
        return (self.weights[active] / self.largest_weight).astype(np.float32), strengths.astype(np.float32)

    def lengths_of(self, gradients: Array) -> Array:
        """Norms of gradients in what stands in front of the Newton systems, without proof."""
        assert self.solve is not None
        scaled = self.scale(gradients)
        most = np.abs(scaled).max(axis=(1, 2))
        most = np.where((most > 0.0) & np.isfinite(most), most, 1.0)
        scaled = (scaled / most[:, None, None]).astype(np.float32)
        return np.sqrt(np.einsum("fak,fak->f", scaled, self.solve(scaled))) * most

    def direction(self, place: Place, active: Rows, inexact: Array) -> Array:
        """Newton steps by conjugate gradients, without proof."""
        assert self.solve is not None
        weights, strengths = self._weigh(active)
        strengths, right = strengths[:, None, :], -self.scale(place.gradients)
        sizes = np.abs(right).max(axis=(1, 2))[:, None, None]
        sizes = np.where((sizes > 0.0) & np.isfinite(sizes), sizes, 1.0)

        def product(moves: Any) -> Any:
            lines = moves.reshape(-1, self.size)
            found = np.zeros_like(lines)
            for part, block in zip(self.parts, self.single, strict=True):
                table, likely = _forward(block, lines).reshape(*moves.shape[:2], -1), place.likely[:, :, part]
                table -= np.einsum("fai,fai->fi", table, likely)[:, None, :]
                table *= likely
                table *= weights[:, None, part]
                found += _back(block, table.reshape(len(lines), -1))
            return found.reshape(moves.shape) + strengths * moves

        right = (right / sizes).astype(np.float32)
        found, self.n_products = class_conjugate_gradients(product, self.solve, right, inexact, MAX_PRODUCTS)
        steps: Array = found.astype(np.float64) * (self.units * sizes)
        if self.free:
            steps[:, :, -1] -= steps[:, :, :-1] @ self.center
        return steps - steps.mean(axis=1, keepdims=True)

    def renew_blocks(self, place: Place, active: Rows) -> None:
        """Make what stands in front of the systems of some folds: one block per class, from some of the rows, or the diagonal."""
        dense, n_rows = self.problem.matrix.stores_zeros, self.problem.n_rows
        step = max(1, n_rows // (BLOCK_ROWS * self.size)) if self.is_factored else 1
        (weights, strengths), likely = self._weigh(active), place.likely[:, :, ::step]
        weights, strengths = weights[:, ::step] * (step / active.size), strengths.mean(axis=0)
        curvatures = np.einsum("fai,fi->ai", likely * (1.0 - likely), weights)
        if not self.is_factored:
            squares = [block**2 if dense else block.power(2) for block in self.single]
            diagonal = sum(_back(block, curvatures[:, part]) for part, block in zip(self.parts, squares, strict=True))
            diagonal = diagonal + strengths
            diagonal += 1e-6 * diagonal.max() + 1e-30
            self.solve = lambda vectors: vectors / diagonal
            return
        pairs = zip(self.parts, self.single, strict=True)
        rows = np.concatenate([block[-part.start % step :: step] for part, block in pairs])
        inverses = np.empty((self.n_scores, self.size, self.size), dtype=np.float32)
        for a, mine in enumerate(curvatures):
            inverses[a] = _invert(rows * np.sqrt(mine)[:, None], strengths)
        self.solve = lambda vectors: np.matmul(vectors.transpose(1, 0, 2), inverses).transpose(1, 0, 2)

    def advance(self, place: Place, active: Rows, inexact: Array) -> Place:
        """The models after a Newton step each, shortened where the objective rises at its end; those that no step leads down stay."""
        steps = self.direction(place, active, inexact)
        descents = np.einsum("fak,fak->f", place.gradients, steps)
        lengths = np.where(descents < 0.0, 1.0, 0.0)
        found = self.at(place.models + lengths[:, None, None] * steps, active)
        for _ in range(MAX_TRIALS):
            slopes = np.einsum("fak,fak->f", found.gradients, steps)
            # Near the optimum descents are no larger than the rounding of their sums.
            noise = 1e-12 * np.abs(found.models * found.gradients).sum(axis=(1, 2))
            long = np.flatnonzero(~(slopes <= np.maximum(0.5 * np.abs(descents), noise)) & (lengths > 0.0))
            if not long.size:
                break
            with np.errstate(all="ignore"):
                share = descents[long] / (descents[long] - slopes[long])
            lengths[long] *= np.clip(np.where(np.isfinite(share), share, 0.1), 0.1, 0.7)
            found.put(long, self.at(place.models[long] + lengths[long][:, None, None] * steps[long], active[long]))
        return found

    def _begin(self, models: Array) -> Place:
        """The folds at a model that they have in common; of folds that differ in few rows, by these rows' slopes, without proof."""
        apart = self.weights[:-1] - self.weights[-1]
        rows = np.flatnonzero(apart.any(axis=0))
        if self.solve is None or 2 * rows.size > self.problem.n_rows:
            return self.at(models, np.arange(len(models)))
        place, X = self.at(models[:1], np.array([len(models)])), self.problem.matrix[rows]
        slopes = place.likely[0][:, rows] - np.eye(self.n_scores)[self.problem.y[rows]].T
        forces = (apart[:, None, rows] * slopes).reshape(-1, rows.size)
        found = np.zeros((len(forces), self.size))
        found[:, : self.n_columns] = _back(X.dense() if X.stores_zeros else X.data, forces)
        found[:, self.n_columns :] = forces.sum(axis=1, keepdims=True)
        penalties = (self.strengths[:-1] - self.strengths[-1])[:, None, :] * models
        return replace(place, models=models.copy(), gradients=place.gradients + found.reshape(models.shape) + penalties)

    def find_common(self, budget: Budget = UNLIMITED) -> Point:
        """The model of the folds' mean weights, roughly."""
        mean = np.array([len(self.folds)])
        place = self.at(np.zeros((1, self.n_scores, self.size)), mean)
        self.renew_blocks(place, mean)
        first = self.lengths_of(place.gradients)[0]
        for _ in range(MAX_STEPS):
            if budget.spent or self.lengths_of(place.gradients)[0] <= NEAR * first:
                break
            ahead = self.advance(place, mean, np.full(1, INEXACT))
            if np.array_equal(ahead.models, place.models):
                break
            place = ahead
            if self.n_products > STALE:
                self.renew_blocks(place, mean)
        self.solve = None  # made anew near the folds
        return unpack_classes(place.models[0], self.free)

    def errors(self, models: Array) -> tuple[Array, Array]:
        """The error of a row's score under each of some models is at most its length times the first, and the second."""
        unit = float(np.max(self.problem.matrix.depths(3))) * (1.0 + 2.0 * gamma(self.n_columns + 8))
        lengths = np.linalg.norm(models[:, :, : self.n_columns], axis=2).max(axis=1) * (1.0 + gamma(self.size + 8))
        shifts = np.abs(models[:, :, -1]).max(axis=1) if self.free else np.zeros(len(models))
        return unit * lengths, unit * shifts + self.noise

    def make_metric(self, place: Place, k: int, fold: int) -> FoldMetric:
        """``M`` of a fold, which is model ``k`` of a place."""
        return FoldMetric.of(self.folds[fold], self.weights[fold], place.least[k], self.is_factored)

    def _shares_metric(self) -> bool:
        """Whether folds are so much alike that one metric serves all: the same strengths, and few rows that some fold leaves out."""
        weights = self.weights[:-1]
        alike = bool(np.all(self.strengths == self.strengths[0]))
        return alike and float(weights.min(axis=0).sum()) > MAX_ALIKE * float(weights.max(axis=0).sum())

    def share_metric(self, place: Place, active: Rows) -> FoldMetric:
        """What is at most ``M`` of every fold of a place, from the smallest weights and probabilities."""
        weights, least = self.weights[:-1].min(axis=0), place.least.min(axis=0)
        return FoldMetric.of(self.folds[active[0]], weights, least, self.is_factored)

    def measure(self, place: Place, k: int, fold: int, known: FoldMetric) -> tuple[float, float, float]:
        """Model ``k`` of a place, that of a fold: how far it is at most from the optimum in the metric, at least the gradient's norm, and about what of that is rounding."""
        metric, strengths, model = known.metric, self.strengths[fold], place.models[k]
        first, second = (float(part[0]) for part in self.errors(place.models[k : k + 1]))
        largest_error = float(self.lengths.max()) * first + second
        # Weights and sums, and the evaluation of a slope.
        spread = (weight_share(self.folds[fold], self.depth) + place.unit[k]) * float(place.slopes[k])
        # Scores that are off by e move a slope by p (1 - p) 2 e at most, at probabilities within e^(2 e).
        spread += 2.5 * (first * float(place.curvatures[k, 0]) + second * float(place.curvatures[k, 1]))
        spread *= 1.0 + gamma(self.problem.n_rows + 16) + 2.0 * place.unit[k]
        # The model is taken from its mean over the classes: the same losses, and a gradient that differs by the strengths times that mean.
        mean = np.abs(model.sum(axis=0)) / self.n_scores + gamma(self.n_scores + 4) * np.abs(model).sum(axis=0)
        slack = spread * self.column_norms * (1.0 + FEW) + strengths * mean
        nothing, gradient = np.zeros(self.size), place.gradients[k]
        slacks = slack + FEW * (strengths * np.abs(model) + np.abs(gradient))
        off = 2.0 * place.unit[k] + weight_share(self.folds[fold], self.depth) + FEW
        ratio = known.ratio(place.least[k]) * (1.0 - off)
        if not (metric.eta < 0.5 and ratio > 0.25 and largest_error < 0.1 and np.isfinite(gradient).all()):
            return np.inf, np.inf, 0.0
        loosening = float(np.exp(2.0 * largest_error)) / ((1.0 - metric.eta) * ratio) * (1.0 + FEW)
        norms = [metric.gradient_norm(line, more) for line, more in zip(gradient, slacks, strict=True)]
        nu = float(np.linalg.norm(norms)) * loosening * (1.0 + FEW)
        rounding = float(np.sqrt(self.n_scores)) * metric.gradient_norm(nothing, slacks.max(axis=0)) * loosening
        largest = float(np.sqrt(2.0)) * known.largest_norm * (1.0 + FEW)
        radius = float(local_radius(1.0, largest, np.asarray(nu), 0.0)) if largest * nu < MAX_ASKED_GRADIENT else np.inf
        return radius, nu, rounding

    def bounds(
        self, start: Point, tests: Sequence[Rows], decided: Decided, budget: Budget = UNLIMITED
    ) -> list[tuple[Bounds, Point]]:
        """Bounds of the queries of every fold's test rows, and its model.

        ``start``: a model near all of them; ``tests``: the rows that are asked about, fold by fold; ``decided(lower, upper)``: of which rows bounds
        are good enough.
        """
        active = np.arange(len(self.folds))
        queries = [self.problem.matrix[test] for test in tests]
        found: list[Bounds | None] = [None] * active.size
        models = np.repeat(pack_classes(start, self.free)[None], active.size, axis=0)
        models -= models.mean(axis=1, keepdims=True)
        metrics: dict[int, FoldMetric] = {}
        shared, place = self._shares_metric(), self._begin(models)
        if self.solve is None:
            self.renew_blocks(place, active)
        before, inexact = self.lengths_of(place.gradients), np.full(active.size, INEXACT)
        for _ in range(MAX_STEPS):
            if not active.size or budget.spent:
                break
            place = self.advance(place, active, inexact)
            now = self.lengths_of(place.gradients)
            rates = np.divide(now, before, out=np.zeros_like(now), where=before > 0.0)
            shares, kept = np.zeros(active.size), np.any(place.models != models[active], axis=(1, 2))
            models[active] = place.models
            for k in np.flatnonzero(rates < CONVERGING).tolist():
                fold = int(active[k])
                known = metrics.get(0 if shared else fold)
                if known is None or known.ratio(place.least[k]) < 0.5:
                    known = self.share_metric(place, active) if shared else self.make_metric(place, k, fold)
                    metrics[0 if shared else fold] = known
                radius, nu, rounding = self.measure(place, k, fold, known)
                if np.isfinite(radius):
                    exhausted = nu <= 2.0 * rounding
                    found[fold], shares[k] = self.ask(
                        place, k, tests[fold], queries[fold], known, radius, decided, exhausted
                    )
                    kept[k] &= shares[k] < 1.0 and not exhausted
            inexact = np.clip(np.maximum(0.5 * np.square(rates), 0.3 * shares), MIN_INEXACT, INEXACT)
            active, place, before, inexact = active[kept], place.take(kept), now[kept], inexact[kept]
            if self.n_products > STALE and active.size and not self.is_shared:
                self.renew_blocks(place, active)
        points = [unpack_classes(model, self.free) for model in models]
        nothing = [
            make_unbounded_queries(test.size, self.n_scores) if known is None else known
            for test, known in zip(tests, found, strict=True)
        ]
        return list(zip(nothing, points, strict=True))

    def ask(
        self,
        place: Place,
        k: int,
        rows: Rows,
        X: Matrix,
        known: FoldMetric,
        radius: float,
        decided: Decided,
        last: bool,
    ) -> tuple[Bounds | None, float]:
        """Bounds of the queries of some rows, where these are about to be good enough or no better ones will come, and what the gradient has to be reduced to for that, roughly; 1 where they are."""
        scores = X @ place.models[k][:, : self.n_columns].T
        scores = scores + place.models[k][:, -1] if self.free else scores
        (first, second), norms = self.errors(place.models[k : k + 1]), known.metric.norms(X)
        errors, reference = self.lengths[rows] * first + second, scores.argmax(axis=1)
        # A score is measured from the mean of all classes; a lead is a difference of two.
        directions = np.sqrt(np.repeat([1.0 - 1.0 / self.n_scores, 2.0], self.n_scores))

        def ask(some: Any, share: float = 1.0) -> Bounds:
            half = share * radius * np.outer(norms[some], directions) * (1.0 + FEW)
            return widen_queries(scores[some], half, errors[some], reference[some])

        # The rows that stand in the way: those of the smallest leads for their norms, and those of the largest norms.
        best = np.partition(scores, -2, axis=1)
        order = np.argsort((best[:, -1] - best[:, -2]) / norms)[:N_HARDEST], np.argsort(-norms)[:N_HARDEST]
        hardest = np.unique(np.concatenate(order))
        for share in (1.0, *SHARES):
            if decided(*ask(hardest, share)).all():
                break
        else:
            share = 0.0
        if share < 1.0 and not last:
            return None, share
        bounds = ask(slice(None))
        return bounds, 1.0 if decided(*bounds).all() else SHARES[0]


def _invert(rows: Any, strengths: Any) -> Any:
    """The inverse of ``R^T R`` and a diagonal, in single precision."""
    block = rows.T @ rows
    block[np.diag_indices(len(block))] += strengths + 1e-6 * np.trace(block) / len(block) + 1e-30
    inverse = spotri(spotrf(block.T, lower=1, clean=1, overwrite_a=1)[0], lower=1, overwrite_c=1)[0]
    return inverse + np.tril(inverse, -1).T


def _forward(block: Any, lines: Any) -> Any:
    """Scores of a block's rows, dense or sparse, under some models, one line each."""
    return np.ascontiguousarray(lines @ block.T)


def _back(block: Any, weights: Any) -> Any:
    """Sums of a block's rows, dense or sparse, under some weights, one line each."""
    return weights @ block
