r"""Models of the same rows and columns under several weights at once: the folds of a cross-validation.

All models are stepped together, one column each: their scores are one product with the data and so are their gradients. (With few columns and a self-concordant
loss that is done by :mod:`glru.updates.chord_folds`.) They start from one model, that of their mean weights (:meth:`Folds.find_common`). Newton steps are found by conjugate
gradients for all folds at once, in single precision (:class:`Products`); where these take many products, a factor of one Hessian preconditions all of them.

What is certified is the gradient of a model that is written down in full. Curvatures :math:`\hat d` that were computed at other
scores are within :math:`e^{\pm\rho}` of those at the model, :math:`\rho` the distance of the scores times the loss's constant: the
Hessian at the model is at least :math:`e^{-\rho} H`, :math:`H = \Lambda + \tilde X^\top \hat D \tilde X`. With :math:`c` the mean row
under :math:`\hat d`, that Hessian in the coordinates :math:`(w, b + c^\top w)` has no entry between :math:`w` and
the intercept, so that it is at least :math:`\mathrm{diag}(\Lambda, \sum_i \hat d_i)` there, and

.. math:: \|g\|_{H^{-1}}^2 \le \|g_w - c\, g_b\|_{\Lambda^{-1}}^2 + g_b^2 / \textstyle\sum_i \hat d_i, \qquad
          \|x\|_{H^{-1}}^2 \le \|x - c\|_{\Lambda^{-1}}^2 + 1 / \textstyle\sum_i \hat d_i .

These are the norms that the local certificate (:mod:`glru.regions.local`) needs.
Without an intercept :math:`H \ge \Lambda` is strong convexity, and the radius is the gradient's norm for any smooth loss.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv, spotrf, spotrs

from glru._options import UNLIMITED, Budget
from glru.bounds import Bounds, intersect, unbounded, widen
from glru.linalg import FEW, TINY, Array, Matrix, as_matrix, gamma
from glru.losses import Loss
from glru.problem import Problem
from glru.regions.local import local_radius
from glru.updates.chord_folds import SMALL, has_chords

Rows = NDArray[np.intp]
Decided = Callable[[Array, Array], NDArray[np.bool_]]
Mask = NDArray[np.bool_]

MAX_STEPS = 60
"""The largest number of steps of all models together."""

STEEP, MAX_TRIALS, LONGEST = 0.2, 12, 16.0
"""The share of the first slope that ends a search along a step, the lengths that are tried, and the longest one."""

NEAR = 0.3
"""The common model is near enough once its gradient is at most this share of the folds' gradients there."""

STALLED = 0.9
"""If a step near the optimum leaves more than this share of the gradient's norm, further steps would gain nothing."""

CLOSE = 1e-7
"""If a gradient's norm is below this share of the root of the losses' squared slopes, the descent along it is no guide to a step length."""

WIDEST, MAX_COLUMNS = 10, 700
"""Folds of dense data with more columns per row than the first number are handled over the rows; the second is the number of columns up to which Hessians cost less than conjugate gradients to the optimum of least
squares."""

STEEPEST = 1e5
"""Rounding leaves narrow bounds in the metric of the penalty where, for wide data with a quadratic loss, the squared norms of rows in that metric times their weights are below this."""

SHARES_APART = 1e-6
"""An upper bound of the difference in the logarithm between a block's weights and its share, the evaluation error of curvatures included."""

FAR = 1.0
"""A certificate forms new curvatures if their logarithm has changed by more than this."""

N_HARDEST, SHARES = 16, (0.1, 1e-2, 1e-3, 1e-5, 1e-8)
"""The number of a fold's open rows that are examined before all of them, and the shares to which gradients may have to be reduced."""

CHUNK = 1 << 13
"""Scores handled at a time, so that temporaries stay in the cache."""

FEW_MODELS, CACHED, PANEL = 6, 1 << 21, 1 << 18
"""Products of so many models with dense data are faster one by one where it has at most so many entries; and entries of rows that stay in the cache between
two of them."""

FACTOR_PRODUCTS = 0.1
"""The Gram matrix of all rows costs as much as this many products of one model per column; its factor costs that times the ratio of columns to rows."""

ROW_PRODUCTS, QUADRATIC_PRODUCTS = 60.0, 3000.0
"""A factor over the rows costs less than conjugate gradients if the cube of their number is at most this many times the number of entries; the second number is for wide least squares."""

INEXACT, MAX_PRODUCTS = 0.2, 200
"""The share of a gradient that conjugate gradients may leave, and the largest number of products they take."""


def has_folds(problem: Problem) -> bool:
    """Whether the models of several folds are found and certified together.

    A smooth loss and a penalty with squares on every column; with an intercept a self-concordant loss, or of few columns a piecewise quadratic one. Dense data may be wider than tall
    where the loss has third derivatives, and for least squares where rounding leaves narrow bounds in the metric of the penalty: other losses are left to the row side. Tall least squares with
    hundreds of columns are left to their Hessians, of which one step each ends.
    """
    if problem.loss.several or not (problem.in_memory and problem.arrays.stable and problem.penalty.smooth):
        return False
    certified = has_steps(problem) or has_chords(problem)
    loss, widest = problem.loss, WIDEST if problem.loss.self_concordance else 1
    few = problem.n_columns > 0 and (problem.is_sparse or problem.n_columns <= widest * problem.n_rows)
    if loss.self_concordance == 0.0 and problem.n_columns > problem.n_rows and problem.penalty.strong_convexity > 0.0:
        steep = float((problem.weights * problem.squared_row_norms).max())
        few = (few or factors_rows(loss, problem.matrix)) and steep < STEEPEST * problem.penalty.strong_convexity
    if problem.loss.self_concordance == 0.0 and SMALL < problem.n_columns <= min(MAX_COLUMNS, 0.5 * problem.n_rows):
        return False
    return certified and few and problem.penalty.strong_convexity > 0.0


def factors_rows(loss: Loss, matrix: Matrix) -> bool:
    """Whether factors over the rows cost less than conjugate gradients, which take many products for least squares."""
    most = QUADRATIC_PRODUCTS if loss.self_concordance == 0.0 else ROW_PRODUCTS
    return matrix.shape[0] ** 3 <= most * matrix.n_stored


def has_steps(problem: Problem) -> bool:
    """Whether models are certified in the metric of the penalty, of any number of columns."""
    return problem.loss.self_concordance is not None or not problem.fit_intercept


@final
@dataclass(eq=False)
class Place:
    """Where the models of some folds stand, one column each."""

    # The coefficients (the intercept last), the scores of all rows, and the gradients.
    coef: Array
    scores: Array
    gradient: Array
    square: Array  # shape (n_folds,): ``sum_i s_i l'_i^2``
    # Shape (n_folds,): the error of a row's score is at most its length times the first, and the second.
    lengths: Array
    shifts: Array
    # Shape (n_folds,): whether the scores are products of the data with the coefficients. Those of a shortened step are sums of earlier ones, whose error
    # is not known: nothing is proven there.
    fresh: Mask

    def take(self, kept: Mask) -> "Place":
        """The models of some of the folds."""
        vectors = (self.coef[:, kept], self.scores[:, kept], self.gradient[:, kept])
        return Place(*vectors, self.square[kept], self.lengths[kept], self.shifts[kept], self.fresh[kept])


@final
@dataclass(eq=False)
class Reference:
    """Weighted curvatures of all folds somewhere, in whose metric radii are measured."""

    scores: Array  # shape (n_rows, n_folds) or (n_rows, 1): where the curvatures were taken
    # Shapes (n_folds,) and (n_columns, n_folds): their sums and the mean rows under them, where there is an intercept.
    curvature_sums: Array
    centers: Array

    def take(self, kept: Mask) -> "Reference":
        """Those of some of the folds."""
        scores = self.scores if self.scores.shape[1] == 1 else self.scores[:, kept]
        return Reference(scores, self.curvature_sums[kept], self.centers[:, kept])


@final
class Products:
    """Newton steps of all folds by conjugate gradients, where there are too many columns for a Hessian.

    Nothing is proven of a step, so that its products are made in single precision, with columns of norm 1.
    """

    def __init__(
        self, folds: "Folds", scores: Array, columns: Rows, inexact: Array | float, left: Array | float = np.inf
    ) -> None:
        """``left``: roughly the number of decades by which gradients still have to be reduced."""
        self.folds, self.inexact, self.scores = folds, inexact, scores
        self.curvatures = weighted = folds.weigh_curvatures(scores, columns)
        strengths = folds.read_strengths(columns) * folds.units[:, None] ** 2
        self.columns, self.penalties = columns, folds.penalty_of[columns]
        self.strengths, self.diagonal = (
            np.asfortranarray(part.astype(np.float32)) for part in (strengths, self._diagonal(weighted) + strengths)
        )
        self.weighted = weighted.astype(np.float32)
        for penalty in np.unique(self.penalties):
            mine = np.flatnonzero(self.penalties == penalty)
            limit = folds.factor_products
            cost = mine.size * limit if folds.apart[penalty] else limit
            ahead = folds.n_per_decade * float(np.broadcast_to(left, self.penalties.shape)[mine].sum())
            if folds.n_products[penalty] <= cost or ahead <= cost:
                continue
            # One factor for all models of a penalty, until these have taken twice the products that one each costs; then one each.
            folds.n_shared[penalty] += folds.n_products[penalty]
            folds.n_products[penalty] = 0
            folds.apart[penalty] |= folds.n_shared[penalty] > 2 * mine.size * limit
            for group in np.split(mine, mine.size) if folds.apart[penalty] else [mine]:
                strength = (self.strengths if strengths.shape[1] == 1 else self.strengths[:, group]).mean(axis=1)
                folds.renew_factor(columns[group], self.weighted[:, group].mean(axis=1), strength)

    def _diagonal(self, weighted: Array) -> Array:
        """The diagonals of the losses' Hessians, roughly; of sparse data one per penalty."""
        folds = self.folds
        if folds.matrix.stores_zeros:
            # The mean curvature stands for all: a look at every entry would cost as much as a product.
            return weighted.sum(axis=0) / folds.common.sum()
        found, units = np.empty((folds.size, weighted.shape[1])), folds.units**2
        for penalty in np.unique(self.penalties):
            mine = self.penalties == penalty
            found[:, mine] = (units * folds.matrix.squared_column_norms(weighted[:, mine].mean(axis=1)))[:, None]
        return found

    @cached_property
    def reference(self) -> Reference:
        """The reference of the curvatures."""
        return self.folds.reference(self.scores, self.curvatures)

    def keep(self, kept: Mask) -> None:
        """Go on with some of the folds; the next step has curvatures of its own."""
        self.reference, self.diagonal = self.reference.take(kept), self.diagonal[:, kept]

    def lengths(self, gradients: Array) -> Array:
        """Norms of gradients in the inverse of the Hessian's diagonal."""
        scaled = gradients * self.folds.units[:, None]
        return np.sqrt(np.einsum("ij,ij->j", scaled, scaled / self.diagonal))

    def direction(self, gradient: Array) -> Array:
        """``-H^-1`` times the gradients, up to the share of them that is left."""
        if factors_rows(self.folds.loss, self.folds.matrix):
            return self._solve_over_rows(-gradient)
        units, sizes = self.folds.units[:, None], self.lengths(gradient)
        sizes = np.where((sizes > 0.0) & np.isfinite(sizes), sizes, 1.0)
        # One fold behind the other in memory: numbers per fold then meet long vectors.
        left = np.asfortranarray((-gradient * units / sizes).astype(np.float32))
        found: Array = self._solve(left) * (units * sizes)
        return found

    def _solve_over_rows(self, left: Array) -> Array:
        r"""``H^-1`` times some vectors by a factor in the dimension of the rows for each.

        With :math:`x_i` measured from the mean row :math:`c` under the curvatures, no entry is between ``w`` and the intercept, and
        :math:`(\Lambda + X^\top D X)^{-1} = \Lambda^{-1} - \Lambda^{-1} X^\top D^{1/2} (I + D^{1/2} K D^{1/2})^{-1} D^{1/2} X \Lambda^{-1}`.
        """
        folds, d = self.folds, self.folds.n_columns
        strengths, diagonal = folds.read_strengths(self.columns)[:d], np.arange(folds.n_rows)
        ahead = np.zeros(left.shape)
        ahead[:d] = left[:d] / strengths
        if folds.free:
            centers, sums = self.reference.centers, self.reference.curvature_sums
            ahead[:d] -= centers * (left[-1] / strengths)
            ahead[-1] = -np.einsum("ij,ij->j", centers, ahead[:d])
        roots, scores = np.sqrt(self.curvatures), folds.forward(ahead)
        for column, root, score in zip(self.columns, roots.T, scores.T, strict=True):
            system, factor = folds.row_gram(int(column))
            if folds.free:
                share = np.square(root) / np.square(root).sum()
                across = system @ share
                across -= 0.5 * (share @ across)
                system = system - across[:, None] - across
            system = factor * root[:, None] * system * root
            system[diagonal, diagonal] += 1.0
            score[:] = root * dposv(system, root * score)[1]
        found = folds.back(scores)
        if folds.free:
            found[:d] -= centers * found[-1]
        found[:d] = ahead[:d] - found[:d] / strengths
        if folds.free:
            found[-1] = left[-1] / sums - np.einsum("ij,ij->j", centers, found[:d])
        return found

    def _solve(self, left: Any) -> Any:
        """Conjugate gradients from zero; models that are done are left out once they are many."""
        diagonal, strengths, weighted, columns = self.diagonal, self.strengths, self.weighted, self.columns

        def condition(residual: Any) -> Any:
            found, factors = residual / diagonal, [self.folds.factors[column] for column in columns]
            for _, group in groupby(range(columns.size), lambda k: id(factors[k])):
                first, *others = group
                if factors[first] is not None:
                    mine = slice(first, first + 1 + len(others))
                    found[:, mine] = spotrs(factors[first], residual[:, mine], lower=1)[0]
            return found

        found, ahead, which = np.zeros_like(left), condition(left), np.arange(left.shape[1])
        size = np.einsum("ij,ij->j", left, ahead)
        step, goal = ahead.copy(order="F"), self.inexact**2 * size
        product = self.folds.curvature_product(weighted)
        for made in range(MAX_PRODUCTS):
            self.folds.n_per_decade = made / -np.log10(float(np.min(self.inexact)))
            going = size > goal
            if not going.any():
                break
            if 4 * np.count_nonzero(going) <= 3 * going.size:
                which, size, goal, weighted = which[going], size[going], goal[going], weighted[:, going]
                left, step, diagonal = (np.asfortranarray(part[:, going]) for part in (left, step, diagonal))
                strengths = strengths if strengths.shape[1] == 1 else strengths[:, going]
                columns = columns[going]
                product = self.folds.curvature_product(weighted)
                continue
            image = product(step)
            image += strengths * step
            curvature = np.einsum("ij,ij->j", step, image)
            length = np.divide(size, curvature, out=np.zeros_like(size), where=going & (curvature > 0.0))
            found[:, which] += length * step
            image *= length
            left -= image
            ahead = condition(left)
            self.folds.n_products += np.bincount(self.folds.penalty_of[columns], minlength=self.folds.n_penalties)
            before, size = size, np.where(length > 0.0, np.einsum("ij,ij->j", left, ahead), 0.0)
            step *= np.divide(size, before, out=np.zeros_like(size), where=before > 0.0)
            step += ahead
        return found


@final
class Folds:
    """Problems that differ from one in the weights of the rows and in the strengths of the penalty.

    ``problem``: data, loss and intercept, and the weights that the folds' are multiples of; ``folds``: the problems, penalty by penalty; ``n_penalties``:
    how many penalties there are, with as many problems each.
    """

    def __init__(self, problem: Problem, folds: Sequence[Problem], n_penalties: int = 1) -> None:
        self.n_models, self.n_penalties, n_each = len(folds), n_penalties, len(folds) // n_penalties
        # The means of the problems of each penalty come last.
        self.penalty_of = np.append(np.repeat(np.arange(n_penalties), n_each), np.arange(n_penalties))
        weights, strengths = (
            np.column_stack([*parts, *(np.mean(parts[k : k + n_each], axis=0) for k in range(0, len(parts), n_each))])
            for parts in ([fold.weights for fold in folds], [fold.quadratic for fold in folds])
        )
        if np.all(strengths[:, : self.n_models] == strengths[:, :1]):
            strengths = strengths[:, :1]
        self.problem, self.loss, self.free = problem, problem.loss, problem.fit_intercept
        matrix, self.used = problem.matrix, np.ones(problem.n_columns + int(self.free), dtype=np.bool_)
        if problem.is_sparse:
            # The coefficients of columns without a value are zero.
            used = self.used[: problem.n_columns]
            filled = matrix.filled_columns(np.ones(problem.n_rows, dtype=np.bool_))
            if filled.any() and not filled.all():
                used[:] = filled
                matrix, strengths = matrix[:, np.flatnonzero(used)], strengths[used]
        self.n_rows, self.n_columns = matrix.shape
        exponent, common = _exponent(weights, strengths), problem.weights
        if exponent:
            weights, strengths, common = (np.ldexp(part, exponent) for part in (weights, strengths, common))
        common = common if np.any(common) else weights.max(axis=1)
        # With an intercept the mean may be taken from every column, which keeps norms and rounding errors small: the same model but
        # for its intercept, b + c . w. An entry is rounded once more.
        self.mean = matrix.mean_row() if self.free else None
        if self.mean is not None:
            data = np.ones((self.n_rows, self.size))
            np.subtract(matrix.dense(), self.mean, out=data[:, :-1])
            self.matrix = as_matrix(data)
            squares = np.einsum("ij,ij->i", data[:, :-1], data[:, :-1])
        else:
            self.matrix = _with_ones(matrix) if self.free else matrix
            squares = problem.squared_row_norms
        self.y, self.common, self.weights = problem.y[:, None], common, weights
        self.strengths = np.vstack([strengths, np.zeros((1, strengths.shape[1]))]) if self.free else strengths
        self._chosen: tuple[Rows, Array] | None = None
        self.factors: list[Any] = [None] * self.penalty_of.size
        self.grams: dict[int, Array] = {}
        self.n_products, self.n_shared = np.zeros((2, n_penalties), dtype=np.intp)
        self.apart, self.n_per_decade = np.zeros(n_penalties, dtype=np.bool_), 0.0
        self._measure(strengths, squares)

    def _measure(self, strengths: Array, squares: Array) -> None:
        """Norms of rows and columns, rounded up; ``squares``: the squared lengths of the rows."""
        most = self.weights.max(axis=1)
        least = strengths.min(axis=1)
        self.inverse = (1.0 + FEW) / least
        # Norms in the metric of one penalty are at most so much of those in the metric of the smallest strengths.
        shrinks = (1.0 + FEW) / np.sqrt((strengths / least[:, None]).min(axis=0))
        self.shrinks = np.broadcast_to(shrinks, self.penalty_of.shape)
        self.lengths = np.sqrt(squares) * (1.0 + gamma(self.n_columns + 8)) + TINY
        if np.all(self.inverse == self.inverse[:1]):
            squares = self.inverse.max(initial=0.0) * squares
        else:
            squares = self.matrix.squared_row_norms(np.append(self.inverse, 0.0) if self.free else self.inverse)
        tiny = TINY * (1.0 + np.sqrt(self.inverse.max(initial=0.0)))
        self.norms = np.sqrt(squares) * (1.0 + gamma(self.n_columns + 10)) + tiny
        # Weights have the error of their total, and sums of them another one.
        rounded = 1.0 + gamma(2 * self.n_rows + 16)
        # Squares underflow, and so do their products with weights.
        tiny = TINY * (1.0 + float(np.sqrt(most.max())))
        self.column_norms = (np.sqrt(self.matrix.squared_column_norms(most)) + tiny) * rounded
        self.data_norm = float(np.linalg.norm(self.column_norms[: self.n_columns])) * (1.0 + gamma(self.n_columns + 8))
        self.weight_norm = float(np.sqrt(most.sum())) * rounded

    @property
    def size(self) -> int:
        """Unknowns of a model."""
        return self.n_columns + int(self.free)

    def pack(self, models: Array) -> Array:
        """Models in the centred columns that have values, one model per column."""
        if self.mean is not None:
            models = models.copy()
            models[-1] += self.mean @ models[:-1]
        return models if self.used.all() else models[self.used]

    def unpack(self, models: Array) -> Array:
        """Models in all columns as they were."""
        if self.mean is not None:
            models = models.copy()
            models[-1] -= self.mean @ models[:-1]
        if self.used.all():
            return models
        whole = np.zeros((self.used.size, models.shape[1]))
        whole[self.used] = models
        return whole

    def read_strengths(self, columns: Rows) -> Array:
        """The strengths of some folds; one column where they are all the same."""
        return self.strengths if self.strengths.shape[1] == 1 else self.strengths[:, columns]

    def get_weights(self, columns: Rows) -> Array:
        """The weights of some folds."""
        if self._chosen is None or self._chosen[0] is not columns:
            every = columns.size == self.n_models and columns[-1] < self.n_models
            self._chosen = columns, self.weights[:, : self.n_models] if every else self.weights[:, columns]
        return self._chosen[1]

    def forward(self, models: Array) -> Array:
        """The scores of all rows under some models, one per column."""
        if not self.matrix.stores_zeros:
            return self.matrix @ np.ascontiguousarray(models)
        data = self.matrix.dense()
        if models.shape[1] <= FEW_MODELS and data.size <= CACHED:
            return np.column_stack([data @ model for model in np.ascontiguousarray(models.T)])
        # A few rows times a large matrix is twice as fast as the matrix times a few columns.
        return np.ascontiguousarray((np.ascontiguousarray(models.T) @ data.T).T)

    def back(self, weights: Array) -> Array:
        """Sums of all rows under some weights, one column each."""
        if not self.matrix.stores_zeros:
            found: Array = self.matrix.T @ weights
            return found
        data, every = self.matrix.dense(), np.ascontiguousarray(weights.T)
        if len(every) <= FEW_MODELS and data.size <= CACHED:
            return np.array([mine @ data for mine in every]).T
        return (every @ data).T

    @cached_property
    def units(self) -> Array:
        """What columns are multiplied by for a norm of 1, but for limits: below the lower one the square overflows in single precision."""
        norms = self.column_norms / self.weight_norm
        return 1.0 / np.where((norms > 1e-18) & (norms < 1e150), norms, 1.0)

    def row_gram(self, column: int) -> tuple[Array, float]:
        """``X Lambda^-1 X^T`` of a fold as a matrix and what to multiply it by: strengths are often multiples of the first ones."""
        first = self.strengths[: self.n_columns, 0]
        own = self.read_strengths(np.array([column]))[: self.n_columns, 0]
        shared = np.allclose(own * first[0], first * own[0])
        key = 0 if shared else column
        if key not in self.grams:
            inverse = 1.0 / (first if shared else own)
            self.grams[key] = self.matrix.row_gram(np.append(inverse, 0.0) if self.free else inverse).data
        return self.grams[key], float(first[0] / own[0]) if shared else 1.0

    @cached_property
    def single(self) -> Any:
        """The data in single precision, with columns of norm 1."""
        if self.matrix.stores_zeros:
            return np.multiply(self.matrix.dense(), self.units, dtype=np.float32, casting="same_kind")
        return self.matrix.scale_columns(self.units).data.astype(np.float32)

    @cached_property
    def factor_products(self) -> float:
        """As many products of one model cost as much as the factor of a Hessian."""
        if self.matrix.stores_zeros:
            return FACTOR_PRODUCTS * self.size * (1.0 + self.size / self.n_rows)
        if self.size > MAX_COLUMNS:
            return np.inf
        return (self.matrix.gram_cost + 0.02 * float(self.size) ** 3) / self.matrix.product_cost

    def renew_factor(self, columns: Rows, weighted: Any, strengths: Any) -> None:
        """Factor a Hessian, as the preconditioner of some models from now on: that of a mean is one of its folds, too."""
        if self.matrix.stores_zeros:
            scaled = self.single * np.sqrt(weighted)[:, None]
            hessian = scaled.T @ scaled
        else:
            gram = self.matrix.column_gram(weighted.astype(np.float64))  # its upper triangle, which is all that is read
            hessian = (self.units[:, None] * gram * self.units).astype(np.float32)
        hessian[np.diag_indices(self.size)] += strengths + 1e-6 * np.diag(hessian)
        factor, failed = spotrf(hessian.T, lower=1, clean=0, overwrite_a=1)
        if failed:
            return
        if columns[0] >= self.n_models:
            columns = np.flatnonzero(self.penalty_of == self.penalty_of[columns[0]])
        for column in columns:
            self.factors[column] = factor

    def curvature_product(self, weighted: Any) -> Callable[[Any], Any]:
        """The map from some moves to the losses' Hessians times these, in single precision; ``weighted``: curvatures, one column per model."""
        data = self.single
        if not self.matrix.stores_zeros:
            transposed = data.T
            return lambda moves: np.asfortranarray(transposed @ (weighted * (data @ np.ascontiguousarray(moves))))
        curvatures, height = np.ascontiguousarray(weighted.T), max(64, PANEL // self.size)

        def product(moves: Any) -> Any:
            every, found = moves.T, np.zeros((moves.shape[1], self.size), dtype=np.float32)
            for start in range(0, self.n_rows, height):
                part = slice(start, start + height)
                rows = data[part]
                if len(every) <= FEW_MODELS:
                    for total, move, curvature in zip(found, every, curvatures, strict=True):
                        total += (curvature[part] * (rows @ move)) @ rows
                else:
                    found += (curvatures[:, part] * (every @ rows.T)) @ rows
            return found.T

        return product

    def _chunks(self, n_folds: int) -> list[slice]:
        height = max(1, CHUNK // max(n_folds, 1))
        return [slice(start, start + height) for start in range(0, self.n_rows, height)]

    def at(self, coef: Array, columns: Rows, scores: Array | None = None, fresh: Mask | None = None) -> Place:
        """The models with some coefficients (the intercept last), one for all folds or one each; ``fresh`` as in :class:`Place`."""
        weights, fresh = self.get_weights(columns), np.full(columns.size, scores is None) if fresh is None else fresh
        scores = self.forward(coef) if scores is None else scores
        weighted, square = np.empty(weights.shape), np.zeros(columns.size)
        for part in self._chunks(columns.size):
            slopes = self.loss.gradient(self.y[part], scores[part])
            np.multiply(weights[part], slopes, out=weighted[part])
            square += np.einsum("ij,ij->j", weighted[part], np.broadcast_to(slopes, weighted[part].shape))
        gradient = self.back(weighted)
        gradient += self.read_strengths(columns) * coef
        return Place(coef, scores, gradient, square, *self._error_parts(coef), fresh)

    def weigh_curvatures(self, scores: Array, columns: Rows) -> Array:
        """The curvatures at some scores times the weights of some folds."""
        weights = self.get_weights(columns)
        found = np.empty(weights.shape)
        for part in self._chunks(columns.size):
            np.multiply(weights[part], self.loss.curvature(self.y[part], scores[part]), out=found[part])
        return found

    def reference(self, scores: Array, weighted: Array) -> Reference:
        """The reference of weighted curvatures that were taken at some scores."""
        if not self.free:
            return Reference(scores, np.zeros(weighted.shape[1]), np.zeros((0, weighted.shape[1])))
        sums = self.matrix.T @ weighted
        return Reference(scores, sums[-1], sums[:-1] / sums[-1])

    def bounds(
        self,
        start: Array,
        tests: Sequence[Rows],
        decided: Decided,
        budget: Budget = UNLIMITED,
        spared: float = 0.0,
        columns: Rows | None = None,
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
        spared : float, default=0.0
            The share of a fold's rows that may stay open.
        columns : array of int, default=None
            The folds that are asked about; all if not given.
        """
        columns = np.arange(self.n_models) if columns is None else columns
        work = _Training(self, columns, tests, decided, spared)
        work.run(self.pack(start.reshape(start.shape[0], -1)), budget)
        ends = np.cumsum([test.size for test in tests])[:-1]
        bounds = list(zip(np.split(work.lower, ends), np.split(work.upper, ends), strict=True))
        return bounds, self.unpack(work.models)

    def find_common(self, start: Array, budget: Budget = UNLIMITED) -> Array:
        """The models of the folds' mean weights, one per penalty, each from the one before and roughly: no farther from it than the folds are."""
        place, found = self.pack(start), []
        for penalty in range(self.n_penalties):
            place = self._find_mean(place, penalty, budget)
            found.append(place)
        return self.unpack(np.hstack(found))

    def _find_mean(self, start: Array, penalty: int, budget: Budget) -> Array:
        """The model of the mean weights under a penalty, by Newton steps."""
        mean, every = np.array([self.n_models + penalty]), np.flatnonzero(self.penalty_of[: self.n_models] == penalty)
        apart = (self.weights[:, every] - self.weights[:, mean]).astype(np.float32)
        place = self.at(start, mean)
        for _ in range(MAX_STEPS):
            metric = Products(self, place.scores, mean, INEXACT)
            # The folds' gradients, roughly.
            forces = apart * self.loss.gradient(self.y, place.scores).astype(np.float32)
            others = place.gradient + (self.single.T @ forces) / self.units[:, None]
            if budget.spent or metric.lengths(place.gradient)[0] <= NEAR * metric.lengths(others).max():
                break
            direction = metric.direction(place.gradient)
            descent = np.einsum("ij,ij->j", place.gradient, direction)
            if not descent[0] < 0.0:
                break
            place, _ = self.search(place, direction, descent, mean, share=STEEP)
        return place.coef

    def search(
        self, place: Place, direction: Array, descent: Array, columns: Rows, share: float = 0.5
    ) -> tuple[Place, Array]:
        """The models after a step to near the minimum along a direction each, and the lengths of the steps; ``share``: of the slope, at which a full one is taken."""
        scores = self.forward(place.coef + direction)
        begin = np.broadcast_to(place.scores, scores.shape)
        # A quadratic objective has its minimum along a Newton step, or one of conjugate gradients, at the end.
        full = self.loss.self_concordance == 0.0
        lengths = (
            np.ones(columns.size) if full else self._step_lengths(place, direction, scores, descent, columns, share)
        )
        far = np.flatnonzero(lengths != 1.0)
        if far.size:
            scores[:, far] = begin[:, far] + lengths[far] * (scores[:, far] - begin[:, far])
        return self.at(place.coef + lengths * direction, columns, scores, lengths == 1.0), lengths

    def _step_lengths(
        self, place: Place, direction: Array, scores: Array, descent: Array, columns: Rows, share: float
    ) -> Array:
        """The lengths of steps: 1 where the objective's slope is at most a share of the first one there, otherwise where it is a fifth; ``scores``: at the full steps' ends.

        Scores are linear along a step, so that this takes no product with the data.
        """
        count = columns.size
        lengths, open_ = np.ones(count), np.arange(count)
        low, high, low_slope = np.zeros(count), np.full(count, np.inf), descent.copy()
        high_slope = np.full(count, np.nan)
        strengths = np.broadcast_to(self.read_strengths(columns), direction.shape)
        base, growth = (np.einsum("ij,ij->j", strengths * part, direction) for part in (place.coef, direction))
        begin, weights = np.broadcast_to(place.scores, scores.shape), self.get_weights(columns)
        for trial in range(MAX_TRIALS):
            slopes = base[open_] + lengths[open_] * growth[open_]
            for part in self._chunks(open_.size):
                here, moved = begin[part][:, open_], scores[part][:, open_] - begin[part][:, open_]
                forces = self.loss.gradient(self.y[part], here + lengths[open_] * moved)
                slopes += np.einsum("ij,ij,ij->j", weights[part][:, open_], forces, moved)
            size = -descent[open_]
            # A descent this small is near the rounding of its own sum, and no guide to the length.
            good = (np.abs(slopes) <= (STEEP if trial else share) * size) | (size <= CLOSE**2 * place.square[open_])
            open_, slopes = open_[~good], slopes[~good]
            if not open_.size:
                break
            ahead = slopes < 0.0
            low[open_[ahead]], low_slope[open_[ahead]] = lengths[open_[ahead]], slopes[ahead]
            high[open_[~ahead]], high_slope[open_[~ahead]] = lengths[open_[~ahead]], slopes[~ahead]
            first, last = low[open_], high[open_]
            with np.errstate(all="ignore"):
                # False position, kept away from the ends.
                guess = first - low_slope[open_] * (last - first) / (high_slope[open_] - low_slope[open_])
                guess = np.where(np.isfinite(high_slope[open_]), guess, 0.0)
                inner = np.clip(guess, 0.9 * first + 0.1 * last, 0.1 * first + 0.9 * last)
            lengths[open_] = np.where(last == np.inf, np.minimum(2.0 * first, LONGEST), inner)
        return lengths

    def exponents(self, place: Place, columns: Rows, reference: Reference) -> Array:
        """An upper bound of the logarithm of what the exact curvatures at models differ by from those of a reference."""
        constant, weights = self.loss.self_concordance, self.get_weights(columns)
        if not constant:
            return np.full(columns.size, SHARES_APART)
        farthest = np.zeros(columns.size)
        for part in self._chunks(columns.size):
            moved = np.abs(place.scores[part] - reference.scores[part])
            moved *= weights[part] > 0.0
            farthest = np.maximum(farthest, moved.max(axis=0))
        return constant * (farthest + self.score_errors(place)) * (1.0 + FEW) + SHARES_APART

    def gradient_errors(self, place: Place, columns: Rows) -> Array:
        """Upper bounds of the errors of the gradients, entry by entry."""
        n_rows, d = self.n_rows, self.n_columns
        size = np.sqrt(place.square) * (1.0 + gamma(2 * n_rows + 8))
        # Slopes at scores that are off, their own evaluation, their weights, which have the error of their total, and sums
        # of them; then the penalty's product.
        spread = ((gamma(2 * n_rows + 16) + FEW) * size + self._slope_errors(place, columns)) * (1.0 + FEW)
        slack = self.column_norms[:, None] * spread
        slack[:d] += FEW * self.read_strengths(columns)[:d] * np.abs(place.coef[:d])
        slack *= 1.0 + FEW
        return slack

    def _slope_errors(self, place: Place, columns: Rows) -> Array:
        """An upper bound of ``sqrt(sum_i s_i e_i^2)``, ``e_i`` what the error of a score does to its slope.

        That is at most the error times the largest curvature on the way: ``e^(M error)`` times the one at the score that is known.
        """
        constant, largest = self.loss.self_concordance, self.score_errors(place)
        if constant is None:
            return (
                self.loss.smoothness * (self.data_norm * place.lengths + self.weight_norm * place.shifts) * (1.0 + FEW)
            )
        weights, squares = self.get_weights(columns), np.zeros((2, columns.size))
        for part in self._chunks(columns.size):
            square = weights[part] * np.square(self.loss.curvature(self.y[part], place.scores[part]))
            squares += np.square(self.lengths[part]) @ square, square.sum(axis=0)
        # Curvatures err by less than SHARES_APART, relatively; TINY for squares that underflow.
        found = np.sqrt(squares + TINY) * (1.0 + gamma(2 * self.n_rows + 16))
        grown = np.where(constant * largest < 1.0, np.exp(constant * largest + SHARES_APART), np.inf)
        return (found[0] * place.lengths + found[1] * place.shifts) * grown * (1.0 + FEW)

    def radii(self, place: Place, columns: Rows, reference: Reference) -> "Radii":
        """The radii around models whose curvatures are those of a reference, which is a guess where there is an intercept."""
        n_rows, d, constant = self.n_rows, self.n_columns, self.loss.self_concordance
        errors, nothing, shrinks = self.gradient_errors(place, columns), np.zeros(columns.size), self.shrinks[columns]
        if not self.free:
            rounding = self._length(errors, shrinks)
            nu = (self._length(place.gradient, shrinks) + rounding) * (1.0 + FEW)
            largest = float(self.norms.max()) * shrinks * (1.0 + FEW)
            return Radii(nu, nothing, nothing, nu, rounding, largest, errors, shrinks)
        assert constant is not None
        # The relative error of the reference's sums.
        error, curvature_sums, centers = gamma(2 * n_rows + 64), reference.curvature_sums, reference.centers
        least = np.where(curvature_sums > 1e-200, curvature_sums * (1.0 - 2.0 * error), np.nan)
        # The exact centre differs by 4 errors times the mean of |x_j|, which Cauchy-Schwarz bounds, or the longest row.
        shifts = self.column_norms[:d, None] * np.sqrt(self.loss.smoothness / least)
        shifts = 4.0 * error * np.minimum(shifts, self.lengths.max())
        product, last = centers * place.gradient[-1], np.abs(place.gradient[-1]) + errors[-1]
        slack = errors[:d] + np.abs(centers) * errors[-1] + shifts * last
        slack += FEW * (np.abs(place.gradient[:d]) + np.abs(product))
        intercept = (1.0 + FEW) / np.sqrt(least)
        rounding = self._length(slack, shrinks)
        nu = np.hypot(self._length(place.gradient[:d] - product, shrinks) + rounding, last * intercept) * (1.0 + FEW)
        added = self._length(np.abs(centers) + shifts, shrinks)
        largest = np.hypot(float(self.norms.max()) * shrinks + added, intercept) * (1.0 + FEW)
        rounding += errors[-1] * intercept
        radius = local_radius(constant, largest, nu, 0.0)
        return Radii(radius, added, intercept, nu, rounding, largest, errors, shrinks)

    def prove(self, radii: "Radii", exponents: Array) -> "Radii":
        """The radii where curvatures differ from those of the reference by at most a factor of ``e^exponent``."""
        constant = self.loss.self_concordance
        if not self.free:
            return radii  # in the metric of the penalty, which has no curvatures
        assert constant is not None
        # Every norm at the model is at most so much larger.
        grown = np.exp(0.5 * exponents) * (1.0 + FEW)
        nu, largest = radii.nu * grown * (1.0 + FEW), radii.largest_norm * grown * (1.0 + FEW)
        known = np.isfinite(nu) & np.isfinite(grown)
        radius = np.where(known, local_radius(constant, largest, np.where(known, nu, 1.0), 0.0) * grown, np.inf)
        return replace(radii, radius=radius, nu=nu, rounding=radii.rounding * grown, largest_norm=largest)

    def bound_by_penalty(self, place: Place, radii: "Radii", exponents: Array, rows: Rows, owners: Rows) -> Bounds:
        """Bounds of some rows' scores, each in one of some folds, by the penalty's metric and the sums of a reference."""
        assert place.fresh[owners].all(), "scores that are sums of earlier ones have an error that is not known"
        proven = self.prove(radii, exponents)
        return widen(*self.half_widths(place, rows, owners, proven.radius, self.row_norms(rows, owners, proven)))

    def _length(self, vectors: Array, shrinks: Array) -> Array:
        """Upper bounds of the norms in the inverse of the penalties' metrics; ``shrinks``: of the models, one column each."""
        # Divided first: squares of small gradients may underflow where these norms do not.
        scaled = np.sqrt(self.inverse)[:, None] * vectors
        norms = np.sqrt(np.einsum("ij,ij->j", scaled, scaled)) * (1.0 + gamma(self.n_columns + 16))
        return (norms * shrinks + TINY) * (1.0 + FEW)

    def score_errors(self, place: Place) -> Array:
        """An upper bound of the largest error of a score, one entry per model."""
        return (float(self.lengths.max()) * place.lengths + place.shifts) * (1.0 + FEW)

    def _error_parts(self, coef: Array) -> tuple[Array, Array]:
        """The error of a row's score is at most its length times the first, and the second."""
        unit = gamma(self.size + 3) * (1.0 + gamma(self.size + 8))
        lengths = unit * np.linalg.norm(coef[: self.n_columns], axis=0) * (1.0 + gamma(self.n_columns + 8))
        shifts = unit * np.abs(coef[-1]) if self.free else np.zeros(lengths.size)
        return lengths, shifts + self.problem.score_noise

    def row_norms(self, rows: Rows, columns: Rows, radii: "Radii") -> Array:
        """Upper bounds of the norms of some rows, each under one of the models, in the metric of the reference."""
        norms = self.norms[rows] * radii.shrinks[columns] + radii.added[columns]
        return np.hypot(norms, radii.intercept[columns])

    def half_widths(self, place: Place, rows: Rows, columns: Rows, radius: Array, norms: Array) -> tuple[Array, Array]:
        """Scores of some rows, each under one of the models, and at most how far they are from those of its optimum."""
        scores = place.scores[rows, columns]
        half = radius[columns] * norms + self.lengths[rows] * place.lengths[columns] + place.shifts[columns]
        return scores, half * (1.0 + FEW) + FEW * np.abs(scores)


@final
@dataclass(frozen=True, eq=False)
class Radii:
    """How far optima are at most from models, one entry per model."""

    radius: Array  # at most the distance, to be multiplied by norms in the metric of the reference
    # The norm of a row is at most its norm in the metric of the penalty, and ``added``, and ``intercept`` for the ones.
    added: Array
    intercept: Array
    # An upper bound of the gradient's norm, and what of that is rounding.
    nu: Array
    rounding: Array
    largest_norm: Array  # at least the largest norm of a row
    errors: Array  # shape (n_unknowns, n_folds): at least the errors of the gradients, entry by entry
    # Norms of rows in the metric of the penalty are at most so much of those in the metric of the smallest strengths.
    shrinks: Array

    def take(self, kept: Mask) -> "Radii":
        """Those of some of the models."""
        names = ("radius", "added", "intercept", "nu", "rounding", "largest_norm", "errors", "shrinks")
        return Radii(*(getattr(self, name)[..., kept] for name in names))


@final
class _Training:
    """The models of all folds on their way, and what is proven about their test rows.

    Attributes
    ----------
    folds : Folds
        The folds.
    columns : array of int
        The folds that are still open.
    asked, rows, owners : array of int
        Of every test row of an open fold: its place among all test rows and among the rows, and which of the open folds it is in.
    lower, upper : array
        What is proven about all test rows.
    hardest : array of int
        Places, among the test rows of open folds, of rows that a fold waited for: they are looked at first.
    """

    def __init__(
        self, folds: Folds, columns: Rows, tests: Sequence[Rows], decided: Decided, spared: float = 0.0
    ) -> None:
        self.folds, self.columns, self.decided = folds, columns, decided
        self.spared = np.zeros(folds.n_models)
        self.spared[columns] = np.floor(spared * np.array([test.size for test in tests]))
        self.rows = np.concatenate(tests)
        self.asked = np.arange(self.rows.size)
        self.owners = np.repeat(np.arange(columns.size), [test.size for test in tests])
        self.lower, self.upper = unbounded(self.rows.size)
        self.hardest: Rows = np.zeros(0, dtype=np.intp)

    def run(self, start: Array, budget: Budget) -> None:
        """Step until all folds are decided, or rounding allows no more."""
        folds = self.folds
        self.models = np.array(np.broadcast_to(start, (folds.size, folds.n_models)))
        place = folds.at(start if start.shape[1] == 1 else start[:, self.columns], self.columns)
        metric = self._metric(place, INEXACT)
        before = metric.lengths(place.gradient)
        for _ in range(MAX_STEPS):
            if budget.spent:
                break
            direction = metric.direction(place.gradient)
            descent = np.einsum("ij,ij->j", place.gradient, direction)
            going = descent <= 0.0
            if not going.any() or not (going.all() or place.coef.shape[1] > 1):
                break
            if not going.all():
                place, direction = place.take(going), direction[:, going]
                descent, before = descent[going], before[going]
                self._keep(going)
                metric.keep(going)
            place, _ = folds.search(place, direction, descent, self.columns)
            self.models[:, self.columns] = place.coef
            guess = folds.radii(place, self.columns, metric.reference)
            now = metric.lengths(place.gradient)
            rates = np.divide(now, before, out=np.zeros_like(now), where=before > 0.0)
            # Near the optimum a step that leaves this much has met its rounding, in single precision or of columns in unlike units.
            stalled = (rates > STALLED) & (guess.largest_norm * guess.nu < 1.0)
            kept = ~(self._certify_open(place, metric, guess) | stalled)
            if not kept.any():
                break
            if not kept.all():
                place, guess, rates = place.take(kept), guess.take(kept), rates[kept]
                self._keep(kept)
            shares = self._shares_left(place, guess, guess.nu)
            inexact = np.clip(np.maximum(0.5 * rates.max() ** 2, 0.3 * shares), 1e-4, INEXACT)
            near = guess.largest_norm * guess.nu < 1.0
            metric = self._metric(place, inexact, np.where(near, 1.0 - np.log10(shares), np.inf))
            before = metric.lengths(place.gradient)

    def _metric(self, place: Place, inexact: Array | float, left: Array | float = np.inf) -> Products:
        scores = np.broadcast_to(place.scores, (self.folds.n_rows, self.columns.size))
        return Products(self.folds, scores, self.columns, inexact, left)

    def _keep(self, kept: Mask) -> None:
        """Go on with some of the folds."""
        self.columns = self.columns[kept]
        stay = kept[self.owners]
        seen = np.zeros(stay.size, dtype=np.bool_)
        seen[self.hardest] = True
        self.hardest = np.flatnonzero(seen[stay])
        self.asked, self.rows = self.asked[stay], self.rows[stay]
        self.owners = (np.cumsum(kept) - 1)[self.owners[stay]]

    def _certify_open(self, place: Place, metric: Products, guess: Radii) -> Mask:
        """Certify the folds that look decided or as near as float64 comes; which ones are done. ``guess``: the radii there, without proof."""
        exhausted = place.fresh & (guess.nu <= 2.0 * guess.rounding)
        asked = exhausted | self._look_decided(place, guess, guess.radius)
        return exhausted | self._certify(place, metric, guess, asked) if asked.any() else exhausted

    def _look_decided(self, place: Place, guess: Radii, radius: Array) -> Mask:
        """Which of the open folds would be decided with some radii, but for the last rounding."""

        def left(places: Rows) -> Rows:
            rows, owners = self.rows[places], self.owners[places]
            norms = self.folds.row_norms(rows, owners, guess)
            scores, half = self.folds.half_widths(place, rows, owners, radius, norms)
            return places[~self.decided(scores - half, scores + half)]

        return self._look(place, left, place.fresh)

    def _look(self, place: Place, left: Callable[[Rows], Rows], asked: Mask) -> Mask:
        """Which of some open folds have no test row left: first of the rows that stood in the way before."""
        if not asked.any():
            return asked
        asked, spared, count = asked.copy(), self.spared[self.columns], self.columns.size
        looked = self.hardest[asked[self.owners[self.hardest]]]
        # Where rows may stay open, the hardest are the first that may not, roughly: half of them may be wrongly chosen.
        allowed = np.where(spared > 0.0, 0.5 * np.bincount(self.owners[looked], minlength=count), 0.0)
        asked &= np.bincount(self.owners[left(looked)], minlength=count) <= allowed
        places = np.flatnonzero(asked[self.owners])
        if places.size:
            found = left(places)
            asked &= np.bincount(self.owners[found], minlength=count) <= spared
            found = found[np.lexsort((np.abs(place.scores[self.rows[found], self.owners[found]]), self.owners[found]))]
            rank = np.arange(found.size) - np.searchsorted(self.owners[found], self.owners[found])
            rank -= spared[self.owners[found]].astype(np.intp)
            self.hardest = np.union1d(self.hardest, found[(rank >= 0) & (rank < N_HARDEST)])
        return asked

    def _find_decided(self) -> Mask:
        """Which of the open folds have only test rows whose bounds are good enough."""
        open_ = ~self.decided(self.lower[self.asked], self.upper[self.asked])
        found: Mask = np.bincount(self.owners, open_, self.columns.size) <= self.spared[self.columns]
        return found

    def _certify(self, place: Place, metric: Products, guess: Radii, looks: Mask) -> Mask:
        """Take in what the penalty's metric proves of some open folds; which of all are decided."""
        folds, columns, mine = self.folds, self.columns[looks], np.flatnonzero(looks[self.owners])
        place, reference, radii = place.take(looks), metric.reference.take(looks), guess.take(looks)
        exponents = folds.exponents(place, columns, reference) if folds.free else np.zeros(columns.size)
        if np.any(exponents > FAR):
            reference = folds.reference(place.scores, folds.weigh_curvatures(place.scores, columns))
            exponents, radii = folds.exponents(place, columns, reference), folds.radii(place, columns, reference)
        owners = (np.cumsum(looks) - 1)[self.owners[mine]]
        self._take(folds.bound_by_penalty(place, radii, exponents, self.rows[mine], owners), mine)
        return self._find_decided()

    def _take(self, bounds: Bounds, places: Any) -> None:
        """Take in bounds of some of the open folds' test rows."""
        asked = self.asked[places]
        self.lower[asked], self.upper[asked] = intersect((self.lower[asked], self.upper[asked]), bounds)

    def _shares_left(self, place: Place, guess: Radii, size: Array) -> Array:
        """What the gradient of every open fold has to be reduced to, roughly, for it to be decided; ``size``: its norms now."""
        rows, owners = self.rows[self.hardest], self.owners[self.hardest]
        norms, shares = self.folds.row_norms(rows, owners, guess), np.ones(self.columns.size)
        for share in SHARES:
            scores, half = self.folds.half_widths(place, rows, owners, shares * size, norms)
            shares[owners[~self.decided(scores - half, scores + half)]] = share
        return shares


def _exponent(weights: Array, strengths: Array) -> int:
    """The power of two times which an objective of extreme size has weights near 1, and the same optimum; 0 where that rounds a number."""
    exponent = -int(np.frexp(weights.max())[1])
    if abs(exponent) < 128:
        return 0
    parts = [part[part > 0.0] for part in (weights, strengths)]
    smallest, largest = (np.ldexp([end(part) for part in parts], exponent) for end in (np.min, np.max))
    return exponent if smallest.min() > 1e-290 and np.isfinite(largest).all() else 0


def _with_ones(matrix: Matrix) -> Matrix:
    return matrix.concatenate([matrix, as_matrix(np.ones((matrix.shape[0], 1)))], axis=1)
