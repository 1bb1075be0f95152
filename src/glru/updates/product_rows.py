r"""Leave-one-out removals of sparse wide data by conjugate gradients, many rows at once: products with X, and no factor.

A model is a pair :math:`(b, \beta)` of :class:`~glru.metric.rows.RowSide` with ``K`` as products with X. At a candidate without row ``i``, whose
:math:`b_i` is 0, the gradient is :math:`G = (X^\top e, \sum_k s_k \ell'_k)` with the forces :math:`e = s \circ \ell'(z) + b`, and the objective is
strongly convex in the metric of the penalty. Without an intercept the optimum is therefore no farther than

.. math:: \|w^* - w\|_\Lambda \le \|X^\top e\|_{\Lambda^{-1}} ,

and with one as :class:`~glru.updates.centred_rows.Balls` says. What is proven rests on this gradient alone; the directions only propose models:
those of preconditioned conjugate gradients, in front of a Hessian that is known on the few directions in which the losses curve most. With
:math:`\Theta` the largest eigenvalues of :math:`D^{1/2} K D^{1/2}` (rows centred by ``D`` where there is an intercept), ``V`` their vectors
and :math:`F = D^{1/2} V`, the force ``e`` is met by :math:`e - F (1 + \Theta)^{-1} F^\top K e`.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, unbounded
from glru.linalg import FEW, TINY, UNIT, Array, Entries, gamma
from glru.metric.rows import RowSide
from glru.problem import Problem
from glru.solution import Solution
from glru.updates.batch import Certified, Decided, tighten
from glru.updates.carried_rows import removal_factors
from glru.updates.centred_rows import Balls
from glru.updates.row_models import Errors, RowModels, Rows

N_STEPS = 30
"""The largest number of certificates per row: if these do not decide it, a factor over the rows is cheaper."""

BATCH_ENTRIES, TRIED_ROWS = 1 << 19, 8
"""Entries in an array of models that are stepped together, so that it stays in the cache; and the number of first rows, whose cost predicts that of the others."""

N_DIRECTIONS, ROWS_PER_DIRECTION = 16, 16
"""The largest number of directions in the preconditioner, and the number of open rows that pays for one."""

BASE_STEPS, USUAL_BASE_STEPS, BASE_SHARE = 20, 10.0, 1e-2
"""The largest and the usual number of steps of the model of all rows; its gradient is brought below this share of that of a typical removal."""

MIN_STEPS = 3.0
"""The smallest number of steps per row, including the product that begins them."""

STORED_COST, ROW_COST, COLUMN_COST = 0.4, 35.0, 5.0
"""Nanoseconds of a step per stored entry of X, per row, and per column with values in several rows."""


def has_product_rows(problem: Problem) -> bool:
    """Whether the theory applies: a loss that is smooth and self-concordant, and not quadratic, and an L2 penalty on every column."""
    loss, penalty = problem.loss, problem.penalty
    smooth = bool(np.isfinite(loss.smoothness)) and bool(loss.self_concordance) and not loss.several
    penalised = penalty.smooth and penalty.strong_convexity > 0.0 and not penalty.linear.any()
    return smooth and penalised and problem.arrays.stable


def estimate_product_cost(problem: Problem, n_steps: float) -> float:
    """What some steps of single rows cost, in nanoseconds."""
    counts = problem.matrix.column_counts()
    n_shared = problem.n_columns if counts is None else np.count_nonzero(counts > 1)
    return n_steps * (STORED_COST * problem.matrix.n_stored + ROW_COST * problem.n_rows + COLUMN_COST * n_shared)


@final
class ProductRows(RowModels):
    """The removal of single rows by steps that take products with X alone.

    Attributes
    ----------
    factor, weights : float, array of shape (n_rows,)
        What the weights of the other rows are multiplied by when a usual row leaves, and all weights times that.
    base : ProductSteps
        The model of all rows under these weights.
    """

    def __init__(self, solution: Solution) -> None:
        problem = solution.problem
        super().__init__(problem, RowSide.of_products(problem))
        self.factors = removal_factors(problem)
        known = self.factors[np.isfinite(self.factors)]
        self.factor = float(np.partition(known, known.size // 2)[known.size // 2]) if known.size else 1.0
        self.weights = self.factor * problem.weights
        duals, free, scores = self.place(solution.point)
        slopes, curvatures = problem.loss.expand_slope(problem.y, scores)
        self.curvatures = self.weights * curvatures
        self.directions = Directions.none(problem.n_rows)
        errors = self.score_errors(duals[:, None], free[:, None])
        self.base = ProductSteps(
            self, np.zeros(0, dtype=np.intp), duals[:, None], free[:, None], scores[:, None], errors
        )
        typical = float(np.median(self.weights * np.abs(slopes) * self.side.norms))
        for _ in range(BASE_STEPS):
            if self.base.gradient.norms[0] <= BASE_SHARE * typical:
                break
            self.base = self.base.step(np.ones(1, dtype=bool))
        self.curvatures = self.weights * problem.loss.curvature(problem.y, self.base.scores[:, 0])
        self.balls = Balls(self, self.base.scores[:, 0], self.curvatures, self.factors / self.factor)

    def bounds(self, rows: Rows, decided: Decided, limit: float = np.inf) -> Bounds:
        """Bounds of the removed rows' scores; rows leave as they are decided.

        ``limit``: the nanoseconds that another way to bound all rows takes. Where the first rows tell that steps would take longer, no others
        are tried.
        """
        lower, upper = unbounded(rows.size)
        self.directions = Directions.of(self, min(N_DIRECTIONS, rows.size // ROWS_PER_DIRECTION))
        places = np.flatnonzero(np.isfinite(self.factors[rows]))
        if not places.size:
            return lower, upper
        size = max(16, BATCH_ENTRIES // max(self.side.gram.matrix.shape))
        for here in [places[:TRIED_ROWS], *np.split(places, range(TRIED_ROWS, places.size, size))[1:]]:
            found = tighten(ProductSteps.first(self, rows[here]), decided, N_STEPS)
            lower[here], upper[here] = found.lower, found.upper
            # Rows that are left open take about as many steps again.
            steps = np.where(decided(found.lower, found.upper), found.costs, 2.0 * N_STEPS * ProductSteps.cost)
            usual = 1.0 + float(steps.mean()) / ProductSteps.cost
            if estimate_product_cost(self.problem, usual * (places.size - here[-1])) > limit:
                break
        return lower, upper

    def find_shifts(self, slope_sums: Array, rows: Rows) -> Array:
        """The changes of the intercepts that take sums of slopes out, by the base's curvatures of the other rows."""
        with np.errstate(all="ignore"):
            shifts = -slope_sums / (self.curvatures.sum() - (self.curvatures[rows] if rows.size else 0.0))
        return np.where(np.isfinite(shifts), shifts, 0.0)

    def answer_by_intercept(self, image: Array, rows: Rows) -> tuple[Array, Array]:
        """The scores of a change with the intercept that answers it, and that intercept."""
        if not self.problem.fit_intercept:
            return image, np.zeros((0, image.shape[1]))
        sums = self.curvatures @ image
        if rows.size:
            sums = sums - self.curvatures[rows] * image[rows, np.arange(rows.size)]
        shifts = self.find_shifts(sums, rows)[None, :]
        return image + shifts, shifts


@final
@dataclass(frozen=True, eq=False)
class Directions:
    """The directions of the preconditioner: ``F``, ``K F``, the eigenvalues, and the rows' norms summed over each column of ``F``."""

    forces: Array
    images: Array
    values: Array
    norm_sums: Array

    @classmethod
    def none(cls, n_rows: int) -> "Directions":
        """No direction."""
        return cls(np.zeros((n_rows, 0)), np.zeros((n_rows, 0)), np.zeros(0), np.zeros(0))

    @classmethod
    def of(cls, family: ProductRows, size: int) -> "Directions":
        """About the largest eigenvalues and their vectors, by two steps of subspace iteration."""
        root, n_rows = np.sqrt(family.curvatures)[:, None], family.curvatures.size
        total = float(family.curvatures.sum())
        if not (size and np.isfinite(total) and total > 0.0):
            return cls.none(n_rows)

        def center(vectors: Array) -> Array:
            return vectors - root * ((root.T @ vectors) / total) if family.problem.fit_intercept else vectors

        vectors = np.random.default_rng(0).standard_normal((n_rows, size))
        for _ in range(2):
            vectors, _ = np.linalg.qr(center(root * (family.side.gram @ (root * center(vectors)))))
        images = center(root * (family.side.gram @ (root * vectors)))
        products = vectors.T @ images
        if not np.isfinite(products).all():
            return cls.none(n_rows)
        values, turn = np.linalg.eigh(products)
        forces = root * (vectors @ turn)
        return cls(forces, family.side.gram @ forces, np.maximum(values, 0.0), family.side.norms @ np.abs(forces))

    def meet(self, images: Array) -> Array:
        """The multiples of the directions that meet forces with some images."""
        return (self.forces.T @ images) / (1.0 + self.values)[:, None]


@final
@dataclass(frozen=True, eq=False)
class Change:
    """A direction of models: of ``b``, its image under ``K``, and at least the norms of the rows summed over its parts."""

    duals: Array
    image: Array
    sizes: Array
    # The directions that it was made from, one after the other: its image errs by no more than ``norms[k] 4 n_sums unit sizes``
    n_sums: int
    # The image of the forces it was made from, and its inner product with the direction
    image_before: Array
    product: Array

    def take(self, members: NDArray[np.bool_]) -> "Change":
        """The directions of some models."""
        parts = (self.duals, self.image, self.image_before)
        duals, image, before = (part[:, members] for part in parts)
        return Change(duals, image, self.sizes[members], self.n_sums, before, self.product[members])


@final
@dataclass(frozen=True, eq=False)
class Gradient:
    """Gradients of models: their forces with images under ``K``, the sums of the slopes, and bounds."""

    # Shape (n_rows, n_models): ``e`` and ``K e``.
    forces: Array
    image: Array
    norm_sums: Array  # shape (n_models,): the rows' norms summed over the forces
    # Shape (n_models,): at least the norms of ``X^T e`` in the metric of the penalty, the absolute sums of the slopes, and what of the norms is rounding.
    norms: Array
    missed: Array
    floors: Array
    slope_sums: Array  # shape (n_models,): the sums of the slopes


@final
@dataclass(frozen=True, eq=False)
class ProductSteps:
    """Models without one row each, one per column (or one model of all rows, where ``rows`` is empty)."""

    family: ProductRows
    rows: Rows
    duals: Array
    free: Array
    scores: Array
    errors: Errors
    before: Change | None = None
    own_images: Array | None = None

    contraction: ClassVar[float] = np.inf
    cost: ClassVar[float] = 1.0 / 32.0

    @classmethod
    def first(cls, family: ProductRows, rows: Rows) -> "ProductSteps":
        """The candidates that take the row's own ``b`` out and let the known directions answer."""
        base, entries = family.base, (rows, np.arange(rows.size))
        units = np.zeros((family.weights.size, rows.size))
        units[entries] = 1.0
        own = family.side.gram @ units
        duals, free, scores = (np.repeat(part, rows.size, axis=1) for part in (base.duals, base.free, base.scores))
        first, second = (np.repeat(part, rows.size) for part in base.errors)
        start = cls(family, rows, duals, free, scores, (first, second), own_images=own)
        taken, norms = base.duals[rows, 0], family.side.norms[rows]
        change = start._precondition(units * taken, own * taken, np.abs(taken) * norms)
        # Without the row, the slopes sum to its dual.
        moved = start._move(change, np.ones(rows.size), family.find_shifts(taken, rows))
        # Later directions leave the rows' own b at 0: none is conjugate to this one.
        return replace(moved, before=None)

    @property
    def entries(self) -> Entries:
        """The entries of the removed rows."""
        return self.rows, np.arange(self.rows.size)

    @property
    def weights(self) -> Array:
        """The weights of the models, one column each; the removed row's own is not set to zero."""
        return self.family.weights[:, None] * (
            self.family.factors[self.rows] / self.family.factor if self.rows.size else 1.0
        )

    @cached_property
    def gradient(self) -> Gradient:
        """The gradients at the models."""
        family, problem = self.family, self.family.problem
        weights, norms, smoothness = self.weights, family.side.norms, problem.loss.smoothness
        slopes = weights * problem.loss.gradient(problem.y[:, None], self.scores)
        slopes[self.entries] = 0.0
        forces = slopes + self.duals
        image = family.side.gram @ forces
        norm_sums, sizes, total = norms @ np.abs(forces), np.abs(slopes), norms @ np.abs(self.duals)
        # The square of the norm is e^T K e, whose parts cancel. Slopes err by the smoothness times the error of the score, and e by a share of its parts.
        first, second = self.errors
        most = weights.max(axis=0) / family.weights.max() * (1.0 + FEW)
        squares = float(family.weights @ np.square(norms)), float(family.weights @ norms), float(family.weights.sum())
        wrong = smoothness * most * (first * squares[0] + second * squares[1])
        floors = wrong + family.unit * (norms @ sizes + total)
        squares_off = 3.0 * family.side.unit * np.square(norm_sums)
        found = np.sqrt(np.maximum(np.einsum("ij,ij->j", forces, image), 0.0) + squares_off) + floors + family.side.tiny
        floors = floors + np.sqrt(squares_off)
        sums = slopes.sum(axis=0)
        missed = smoothness * most * (first * squares[1] + second * squares[2])
        missed = np.abs(sums) + missed + (family.unit + gamma(problem.n_rows + 8)) * sizes.sum(axis=0)
        return Gradient(forces, image, norm_sums, found * (1.0 + FEW), missed * (1.0 + FEW), floors, sums)

    def certify(self) -> Certified:
        """Bounds of the removed rows' scores."""
        found, balls = self.gradient, self.family.balls
        half = balls.half_widths_by_gradients(self.rows, self.scores, self.errors, found.norms, found.missed)
        bounds = self.family.widened(self.scores[self.entries], half)
        return Certified(*bounds, found.norms, found.floors)

    def _precondition(self, forces: Array, image: Array, norm_sums: Array, kept: Change | None = None) -> Change:
        """The direction against forces, conjugate to the last one; what the removed rows have of it is their own force."""
        known, family, entries = self.family.directions, self.family, self.entries
        multiples = known.meet(image)
        answer = known.forces @ multiples
        duals, moved = answer - forces, known.images @ multiples - image
        sizes = norm_sums + known.norm_sums @ np.abs(multiples)
        if self.own_images is not None:
            # No force of a known direction acts on the row itself.
            own = answer[entries]
            duals[entries] = -forces[entries]
            moved -= own * self.own_images
            sizes = sizes + 2.0 * np.abs(own) * family.side.norms[self.rows]
        product, n_sums = np.einsum("ij,ij->j", duals, image), 1
        if kept is not None:
            with np.errstate(all="ignore"):
                share = (product - np.einsum("ij,ij->j", duals, kept.image_before)) / kept.product
            share = np.where(np.isfinite(share) & (share > 0.0), share, 0.0)
            duals, moved = duals + share * kept.duals, moved + share * kept.image
            sizes, n_sums = sizes + share * kept.sizes, kept.n_sums + 1
        return Change(duals, moved, sizes, n_sums, image, product)

    def _move(self, change: Change, lengths: Array, shift: Array) -> "ProductSteps":
        """The models some lengths along their directions, and intercepts moved by ``shift`` beside."""
        family, side = self.family, self.family.side
        moved, answer = family.answer_by_intercept(change.image, self.rows)
        step = lengths * moved
        duals, free = self.duals + lengths * change.duals, self.free + lengths * answer
        scores = self.scores + step
        if free.shape[0]:
            free, scores = free + shift, scores + shift
        # Duals and scores were rounded, each by a few units of its parts.
        size = np.abs(scores).max(axis=0, initial=0.0) + np.abs(self.scores).max(axis=0, initial=0.0)
        size = size + 2.0 * np.abs(step).max(axis=0, initial=0.0)
        if free.shape[0]:
            size = size + (np.abs(free) + np.abs(self.free) + 2.0 * np.abs(lengths * answer)).sum(axis=0)
            size = size + 2.0 * np.abs(shift)
        parts = side.norms @ np.abs(duals) + np.abs(lengths) * change.sizes
        first = self.errors[0] + 4.0 * change.n_sums * side.unit * np.abs(lengths) * change.sizes + 8.0 * UNIT * parts
        errors = first * (1.0 + FEW) + TINY, (self.errors[1] + 8.0 * UNIT * size) * (1.0 + FEW) + TINY
        return ProductSteps(family, self.rows, duals, free, scores, errors, change, self.own_images)

    def take(self, members: NDArray[np.bool_]) -> "ProductSteps":
        """Some of the models."""
        family, (first, second) = self.family, self.errors
        before = None if self.before is None else self.before.take(members)
        own = None if self.own_images is None else self.own_images[:, members]
        rows = self.rows[members] if self.rows.size else self.rows
        duals, free, scores = (part[:, members] for part in (self.duals, self.free, self.scores))
        return ProductSteps(family, rows, duals, free, scores, (first[members], second[members]), before, own)

    def step(self, members: NDArray[np.bool_]) -> "ProductSteps":
        """The candidates of some rows after one more step, to about where the objective is lowest along it."""
        here, found, family = self.take(members), self.gradient, self.family
        forces, image = found.forces[:, members], found.image[:, members]
        change = here._precondition(forces, image, found.norm_sums[members], here.before)
        moved, _ = family.answer_by_intercept(change.image, here.rows)
        own_curvatures = here.weights * family.problem.loss.curvature(family.problem.y[:, None], here.scores)
        own_curvatures[here.entries] = 0.0
        curvatures = np.einsum("ij,ij,ij->j", own_curvatures, moved, moved)
        along = np.einsum("ij,ij->j", change.duals, image)
        with np.errstate(all="ignore"):
            lengths = -along / (np.einsum("ij,ij->j", change.duals, change.image) + curvatures)
        lengths = np.where(np.isfinite(lengths), lengths, 0.0)
        return here._move(change, lengths, family.find_shifts(found.slope_sums[members], here.rows))
