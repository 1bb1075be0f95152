r"""Folds of tall data by chord steps from one model: scores of all folds for little more than the price of one training.

Rows that all folds weigh alike form a block. At a common model :math:`w_0`, that of the folds' mean weights, the gradients and Hessians of all folds
are weighted sums of those of the blocks: they cost as much as one. With :math:`V_k^\top \hat H_k V_k \approx I`, :math:`M_k = (V_k V_k^\top)^{-1}` is the metric of
fold :math:`k`, and its chord step from a model :math:`w` with the gradient :math:`g` is :math:`\delta = -V_k V_k^\top g`.

The step is proven without a look at the gradient at its end. Let :math:`\bar H` be the mean of the Hessians on the way from :math:`w` to the optimum
:math:`w^*`, so that :math:`w^* - w = -\bar H^{-1} g`. If curvatures at :math:`w` are within :math:`e^{\pm\rho}` of those of :math:`\hat H_k`,
and scores move by at most :math:`\tau / M` from there to the optimum (the local certificate, :mod:`glru.regions.local`), the eigenvalues of :math:`V_k^\top \bar H V_k` are between
:math:`e^{-\rho} (1 - e^{-\tau}) / \tau` and :math:`e^\rho (e^\tau - 1) / \tau`, and with :math:`\nu = \|V_k^\top g\|`

.. math:: \|w^* - w - \delta\|_{M_k} = \|(I - (V_k^\top \bar H V_k)^{-1}) V_k^\top g\|
          \le \Bigl(\frac{e^\rho \tau}{1 - e^{-\tau}} - 1\Bigr)\, \nu .

From the common model that takes no pass over the rows for each fold. Folds that it leaves open are evaluated where they stand, together, and step on. A fold whose steps
gain little takes the curvatures of its own model.

Piecewise quadratic losses take the same steps. Their curvatures change only in rows that cross a kink between the reference and the optimum. Let those that may leave their curved piece
within the radius carry at most a share :math:`\beta` of the metric, and those that may enter one :math:`\beta'`: the eigenvalues of :math:`V_k^\top \bar H V_k` are between
:math:`1 - \beta` and :math:`1 + \beta'`, so that the optimum is within :math:`\nu / (1 - \beta)` of :math:`w` (which has to be the radius) and

.. math:: \|w^* - w - \delta\|_{M_k} \le \max\Bigl(\frac{\beta}{1 - \beta},\; \frac{\beta'}{1 + \beta'}\Bigr)\, \nu .
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtri

from glru._options import UNLIMITED, Budget
from glru.bounds import Bounds, intersect, unbounded, widen
from glru.linalg import FEW, SMALLEST, TINY, Array, gamma, powers_of_two
from glru.problem import Problem
from glru.regions.local import piece_radius

Rows = NDArray[np.intp]
Decided = Callable[[Array, Array], NDArray[np.bool_]]

SMALL = 100
"""Columns whose Hessians are formed."""

TOGETHER = 1_200_000
"""Penalties are stepped together if the data times their number has at most this many entries; beyond it, starting each from the one before saves more than fewer calls do."""

MAX_STEPS, MAX_CENTRAL_STEPS = 30, 30
"""Steps of a fold, and of the common model."""

CLOSE = 0.5
"""The common model is close enough where a step of its own is at most this share of the folds' steps."""

CHUNK = 1 << 15
"""Scores handled at a time, so that temporaries stay in the cache."""

NEARER = 0.7
"""A model starts from that of another penalty if the gradient norm there is at most this share of the one at its own current model."""

SLOW, FAR_PIECES = 0.3, 0.1
"""A fold takes the curvatures of its own model where a step leaves more of a gradient's norm, nothing is provable in its metric, or rows that have crossed a kink carry more of it."""

CHORD, SAME_NORMS = 0.1, 1.1
"""The largest difference in the logarithm of curvatures from those of a common Hessian, and the largest factor by which norms may exceed the known ones used in their place."""

ROWS_PER_COLUMN = 4
"""The smallest number of rows per column for folds under a piecewise quadratic loss."""

CROSSED = 0.01
"""Steps keep a common Hessian while at most this share of the rows has crossed a kink."""


def has_chords(problem: Problem) -> bool:
    """Whether folds of a problem are found so: a self-concordant loss or, with an intercept, a piecewise quadratic one, a smooth penalty, and few columns."""
    loss, n_most = problem.loss, min(SMALL, problem.n_rows)
    if loss.self_concordance is None:
        # Without an intercept steps in the metric of the penalty cost less. Semismooth steps of many columns need exact searches, as trainings have them.
        n_most = min(SMALL, problem.n_rows // ROWS_PER_COLUMN) if loss.piecewise and problem.fit_intercept else 0
    few = 0 < problem.n_columns <= n_most and problem.penalty.smooth and not loss.several
    return few and problem.in_memory and problem.arrays.stable


def read_diagonals(matrices: Array) -> Array:
    """A view of the diagonals of some matrices, one row each."""
    return matrices.reshape(len(matrices), -1)[:, :: matrices.shape[1] + 1]


def frobenius(matrices: Array) -> Array:
    """The Frobenius norms of some matrices."""
    flat = matrices.reshape(len(matrices), -1)
    return np.asarray(np.sqrt(np.vecdot(flat, flat)))


@final
@dataclass(frozen=True, eq=False)
class Metrics:
    """Metrics of some Hessians, of which only products are assumed: ``V`` with ``V^T H V`` near the identity."""

    roots: Array  # shape (n_metrics, size, size): the matrices ``V``
    # Shape (n_metrics,): the eigenvalues of ``V^T H V`` differ from 1 by at most this, ``H`` the exact Hessian; infinite where nothing is known.
    eta: Array
    theta: Array  # shape (n_metrics,): relative error of the norm of a product with ``V``
    # Powers of two that bring the Hessians to a diagonal near 1, and the Frobenius norms of ``V`` in these units.
    scales: Array
    inverse_norms: Array

    @classmethod
    def of(cls, hessians: Array, depth: int) -> "Metrics":
        """Factor Hessians whose entries are sums of the given number of terms."""
        count, size = hessians.shape[:2]
        diagonals = read_diagonals(hessians)
        known = diagonals.min(axis=1) > 1e-280
        scales = powers_of_two(diagonals)
        scaled = hessians * scales[:, :, None] * scales[:, None, :]
        roots = np.empty_like(scaled)
        for k in range(count):
            factor, failed = dpotrf(scaled[k], lower=0, clean=1)
            roots[k], singular = dtrtri(factor, lower=0)
            if failed or singular or not known[k]:
                known[k], roots[k] = False, np.eye(size)
        rounded = 1.0 + gamma(size * size + 16)
        norms = frobenius(roots) * rounded
        traces = read_diagonals(scaled).sum(axis=1) * rounded
        left = roots.transpose(0, 2, 1) @ (scaled @ roots)
        read_diagonals(left)[:] -= 1.0
        # Two products err by 2 gamma |V|_F^2 |H|_F; forming H by gamma sqrt(h_ii h_jj) in each entry, in Frobenius norm gamma times the trace.
        eta = frobenius(left) * rounded + FEW
        eta += gamma(depth + 4 * size + 32) * traces * norms**2 * rounded
        # The metric is at most the trace over 1 - eta: |V^T x| >= |x| (1 - eta) / trace, of which the rounding of V^T x is a share.
        theta = gamma(size + 16) * norms * np.sqrt(traces / np.maximum(1.0 - eta, 1e-3)) * rounded
        known &= (eta < 0.1) & (theta < 0.1)
        return cls(roots * scales[:, :, None], np.where(known, eta, np.inf), 2.0 * theta, scales, norms)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Of which Hessians there is a metric."""
        return self.eta < 1.0

    def take(self, which: Any) -> "Metrics":
        """Some of the metrics."""
        return Metrics(*(values[which] for values in vars(self).values()))

    def put(self, which: Rows, other: "Metrics") -> None:
        """Take some of the metrics from elsewhere."""
        for name, values in vars(other).items():
            getattr(self, name)[which] = values


@final
@dataclass(frozen=True, eq=False)
class Blocks:
    """Rows in blocks, of which every fold takes a multiple of the common weights."""

    # The rows, block by block, and where the blocks begin and end.
    order: Rows
    edges: Rows
    shares: Array  # shape (n_blocks, n_folds): the multiples, with a relative error of at most 8e-16
    weights: Array  # shape (n_folds, n_rows): the weights of the folds


def split_blocks(problem: Problem, folds: Sequence[Problem], tests: Sequence[Rows]) -> Blocks | None:
    """The blocks that the tests tell, and the classes where folds weigh these apart; None where folds weigh the rows of such a block differently."""
    owners = np.full(problem.n_rows, len(tests), dtype=np.int16)
    for k, test in enumerate(tests):
        owners[test] = k
    common = problem.weights
    if not 1e-200 < common.max(initial=0.0) < 1e200 or np.any((common > 0.0) & (common < 1e-200)):
        return None
    weights = np.array([fold.weights for fold in folds])
    classes = 2 * owners + (problem.y > 0.0) if problem.loss.task == "classification" else owners
    return _share_blocks(common, weights, owners) or _share_blocks(common, weights, classes)


def _share_blocks(common: Array, weights: Array, owners: NDArray[np.int16]) -> Blocks | None:
    """The blocks of rows with the same owner, with the shares of the folds, of which these are the weights; None where shares differ."""
    order, sizes = np.argsort(owners, kind="stable"), np.bincount(owners)
    edges = np.append(0, np.cumsum(sizes[sizes > 0]))
    common, weights = common[order], weights[:, order]
    largest = [first + int(common[first:last].argmax()) for first, last in pairwise(edges)]
    shares = weights[:, largest] / np.maximum(common[largest], 1e-200)  # zeros of a block without weight
    expected = np.repeat(shares, np.diff(edges), axis=1) * common
    # A unit each for the totals, the quotients and this product.
    if not np.array_equal(weights, expected) and np.any(np.abs(weights - expected) > 8e-16 * weights):
        return None
    return Blocks(order, edges, shares.T, weights)


@final
class FoldRows:
    """Rows in blocks, of which every fold takes a multiple of the common weights.

    Attributes
    ----------
    data : array of shape (n_rows, size)
        The rows, block by block: columns centred where there is an intercept, and multiplied by powers of two; a column of ones last.
    edges, shares : array of int, array of shape (n_blocks, n_folds)
        Where blocks begin and end, and the multiples; ``multiples``: those of the folds, one line each, and their mean.
    weights : array of shape (n_folds, n_rows)
        The weights of the folds.
    """

    def __init__(self, problem: Problem, blocks: Blocks) -> None:
        self.loss, self.free = problem.loss, problem.fit_intercept
        self.has_curved_errors = not np.isfinite(problem.loss.smoothness)
        order, edges, shares = blocks.order, blocks.edges, blocks.shares
        self.order, self.edges, self.shares, self.weights = order, edges, shares, blocks.weights
        self.spans = [slice(first, last) for first, last in pairwise(edges)]
        self.multiples = np.vstack([shares.T, shares.mean(axis=1)])
        self.n_rows, self.n_columns = problem.matrix.shape
        self.size = self.n_columns + int(self.free)
        self.y, self.common = problem.y[order], problem.weights[order]
        # With an intercept the mean may be taken from every column: the same model but for its intercept, b + c . w. An entry is
        # rounded once more; powers of two are exact.
        self.mean = problem.matrix.mean_row() if self.free else None
        self.data, squares, dense = np.empty((self.n_rows, self.size)), np.zeros(self.size), problem.matrix.dense()
        height = max(64, CHUNK // self.size)
        for start in range(0, self.n_rows, height):
            part = slice(start, start + height)
            self.data[part, self.n_columns :] = 1.0
            own = self.data[part, : self.n_columns]
            own[:] = dense[order[part]]
            if self.mean is not None:
                own -= self.mean
            squares += self.common[part] @ np.square(self.data[part])
        self.scales = np.ones(self.size)
        self.scales[: self.n_columns] = powers_of_two(squares[: self.n_columns] / self.common.sum())
        if np.any(self.scales != 1.0):
            self.data *= self.scales
        rounded = 1.0 + gamma(2 * self.n_rows + self.size + 32)
        self.lengths = np.sqrt(np.vecdot(self.data, self.data)) * rounded + TINY
        self.longest, self.noise = float(self.lengths.max()), problem.score_noise
        # No fold has larger weights than these.
        most = float(shares.max()) * (1.0 + FEW)
        # What squares, and their products with weights, have lost to underflow.
        squares += self.n_rows * SMALLEST * (1.0 + float(self.common.max()))
        squares *= most * self.scales**2
        self.column_norms = np.sqrt(squares) * rounded + TINY
        self.weighted_length = float(np.sqrt(squares.sum())) * rounded + TINY
        self.weight_norm = float(np.sqrt(most * self.common.sum())) * rounded

    @classmethod
    def of(cls, problem: Problem, folds: Sequence[Problem], tests: Sequence[Rows]) -> "FoldRows | None":
        """The rows in blocks; None where there are too many for one Hessian's price."""
        blocks = split_blocks(problem, folds, tests)
        return None if blocks is None else cls(problem, blocks)

    def find_places(self, tests: Sequence[Rows]) -> "slice | Rows":
        """The places of the folds' tests, one fold after the other."""
        places = np.empty(self.n_rows, dtype=np.intp)
        places[self.order] = np.arange(self.n_rows)
        found: Rows = places[np.concatenate(tests)]
        consecutive = found.size > 0 and np.all(np.diff(found) == 1)
        return slice(int(found[0]), int(found[-1]) + 1) if consecutive else found

    def pack(self, model: Array) -> Array:
        """A model in the columns of the data."""
        model = model.copy()
        if self.mean is not None:
            model[-1] += self.mean @ model[:-1]
        return model / self.scales

    def unpack(self, model: Array) -> Array:
        """A model in the columns of the problem."""
        model = model * self.scales
        if self.mean is not None:
            model[-1] -= self.mean @ model[:-1]
        return model

    def read_strengths(self, problems: Sequence[Problem]) -> Array:
        """The strengths of penalties in the columns of the data."""
        found = np.zeros((len(problems), self.size))
        for mine, problem in zip(found, problems, strict=True):
            mine[: self.n_columns] = problem.penalty.quadratic
        return found * self.scales**2

    def score_error(self, models: Array) -> Array:
        """A score errs by at most the length of its row times this; the loss sees it with the noise of its evaluation beside that."""
        unit = gamma(self.size + 8)
        return unit * np.sqrt(np.vecdot(models, models)) * (1.0 + unit) + TINY

    def compute_slopes(self, model: Array) -> tuple[Array, Array, Array]:
        """Scores under one model, the squares of slopes and of curvatures under the weights and the losses' gradients, all block by block."""
        scores = self.data @ model
        slopes = self.loss.gradient(self.y, scores)
        weighted, squares = self.common * slopes, np.zeros((len(self.spans), 2))
        squares[:, 0] = np.add.reduceat(weighted * slopes, self.edges[:-1])
        if self.has_curved_errors:
            curved = self.common * np.square(self.loss.curvature(self.y, scores))
            squares[:, 1] = np.add.reduceat(curved, self.edges[:-1])
        return scores, squares, np.array([weighted[span] @ self.data[span] for span in self.spans])

    def gram(self, weights: Array, span: slice) -> Array:
        """``X^T diag(weights) X`` of some rows."""
        height, parts = max(64, CHUNK * 4 // self.size), []
        for start in range(span.start, span.stop, height):
            part = slice(start, min(start + height, span.stop))
            rows = self.data[part] * np.sqrt(weights[part])[:, None]
            parts.append(rows.T @ rows)
        return parts[0] if len(parts) == 1 else np.sum(parts, axis=0)

    def compute_grams(self, scores: Array) -> Array:
        """The losses' Hessians at scores under one model, block by block."""
        weighted = self.common * self.loss.curvature(self.y, scores)
        if self.data.size > 4 * CHUNK:
            return np.array([self.gram(weighted, span) for span in self.spans])
        rows = self.data * np.sqrt(weighted)[:, None]
        return np.array([rows[span].T @ rows[span] for span in self.spans])

    def has_moved(self, scores: Array, reference: Array) -> bool:
        """Whether curvatures at some scores differ too much from those at others for steps in the metric of these."""
        if self.loss.piecewise:
            crossed = self.loss.curvature(self.y, scores) != self.loss.curvature(self.y, reference)
            return bool(np.count_nonzero(crossed) > CROSSED * self.n_rows)
        return float(self.loss.self_concordance or 0.0) * float(np.abs(scores - reference).max()) > CHORD

    def hessians(self, scores: Array, folds: Rows) -> Array:
        """The losses' Hessians of some folds, each at scores of its own."""
        weighted = self.weights[folds] * self.loss.curvature(np.broadcast_to(self.y, scores.shape), scores)
        return np.array([self.gram(mine, slice(0, self.n_rows)) for mine in weighted])

    def at(self, models: Array, folds: Rows, references: Sequence[Array]) -> tuple[Array, Array, Array]:
        """Losses' gradients at some models, each of a fold, sums of squared slopes and curvatures, and the farthest scores from a reference.

        ``references``: scores of all rows for each of the models.
        """
        count = folds.size
        gradients, squares, farthest = np.zeros((count, self.size)), np.zeros((count, 2)), np.zeros(count)
        every = np.array_equal(folds, np.arange(self.weights.shape[0]))
        height = max(64, CHUNK // count)
        for start in range(0, self.n_rows, height):
            part = slice(start, start + height)
            rows = self.data[part]
            weights = self.weights[:, part] if every else self.weights[folds, part]
            scores = models @ rows.T
            y = np.broadcast_to(self.y[part], scores.shape)
            slopes = self.loss.gradient(y, scores)
            if self.has_curved_errors:
                squares[:, 1] += np.vecdot(weights, np.square(self.loss.curvature(y, scores)))
            for mine, reference in zip(scores, references, strict=True):
                mine -= reference[part]
            np.abs(scores, out=scores)
            scores *= weights > 0.0
            np.maximum(farthest, scores.max(axis=1), out=farthest)
            weighted = slopes * weights
            squares[:, 0] += np.vecdot(weighted, slopes)
            gradients += weighted @ rows
        return gradients, squares, farthest

    def find_margins(self, models: Array, references: Sequence[Array]) -> tuple[Array, NDArray[np.bool_]]:
        """A lower bound of how far the exact scores under some models have to move to change the piece of the loss that their references are in, negative where they have; and which of these are curved."""
        scores = models @ self.data.T
        curved = np.array([self.loss.curvature(self.y, reference) > 0.0 for reference in references])
        depths = self.loss.piece_depth(self.y[None], scores)
        # The evaluation of a depth is a product and one or two differences of numbers of these sizes.
        slack = self.score_error(models)[:, None] * self.lengths + self.noise
        slack += FEW * (np.abs(depths) + np.abs(scores) + self.loss.target_size(self.y))
        return np.where(curved, depths, -depths) - slack * (1.0 + FEW), curved

    def errors(self, models: Array, error: Array, squares: Array, strengths: Array) -> Array:
        """Upper bounds of the errors of gradients at some models, entry by entry; ``error``: :meth:`score_error` of these."""
        rounded = gamma(2 * self.n_rows + 64) + FEW
        # Slopes' own evaluation, their weights, which have the error of their total, and sums of them; slopes at scores that are off;
        # then the penalty's product.
        if self.has_curved_errors:
            # Curvatures grow by at most e^(M error) on the way, and are known as well as slopes are.
            largest, constant = self.longest * error + self.noise, float(self.loss.self_concordance or 0.0)
            off = np.sqrt(squares[:, 1] + TINY) * (1.0 + rounded) * largest * np.exp(constant * largest) * (1.0 + FEW)
        else:
            off = self.loss.smoothness * (self.weighted_length * error + self.weight_norm * self.noise)
        spread = rounded * np.sqrt(squares[:, 0]) + off
        return (spread[:, None] * self.column_norms + FEW * strengths * np.abs(models)) * (1.0 + FEW) + TINY


@final
@dataclass(frozen=True, eq=False)
class Norms:
    """Norms of all rows in some metrics."""

    # Shapes (n_metrics, size, size) and (n_metrics,): the Hessians, and what the eigenvalues of the exact ones differ by from 1 in their metrics.
    hessians: Array
    eta: Array
    # Shapes (n_metrics, n_rows) and (n_metrics,): at least the norms, and the largest of them.
    norms: Array
    largest: Array

    @classmethod
    def of(cls, rows: FoldRows, hessians: Array, metrics: Metrics) -> "Norms":
        """The norms in the metrics of some Hessians."""
        norms, height = np.empty((len(hessians), rows.n_rows)), max(64, CHUNK // (rows.size * len(hessians)))
        for start in range(0, rows.n_rows, height):
            solved = rows.data[start : start + height] @ metrics.roots
            norms[:, start : start + height] = np.vecdot(solved, solved)
        np.sqrt(norms, out=norms)
        norms *= 1.0 + metrics.theta[:, None] + gamma(rows.size + 16)
        norms += TINY
        return cls(hessians, metrics.eta, norms, norms.max(axis=1) * (1.0 + FEW))


def compute_growth(metrics: Metrics, known: Norms, which: Rows) -> Array:
    """By what factor norms in some metrics are larger at most than some that are known, in one metric for each."""
    size, roots, hessians = metrics.roots.shape[-1], metrics.roots, known.hessians[which]
    forms = roots.transpose(0, 2, 1) @ (hessians @ roots)
    read_diagonals(forms)[:] -= 1.0
    rounded = 1.0 + gamma(size * size + 16)
    whole = np.square(frobenius(forms)) * rounded
    # No eigenvalue of E is above the root of |E^2|_F.
    least = frobenius(forms @ forms) * rounded + gamma(2 * size + 16) * whole
    scaled = np.vecdot(np.square(metrics.scales), read_diagonals(hessians))
    slack = gamma(2 * size + 32) * scaled * metrics.inverse_norms**2
    largest = 1.0 + (np.sqrt(least) + slack) * (1.0 + FEW)
    return np.sqrt(largest / np.maximum(1.0 - known.eta[which], 0.0)) * (1.0 + FEW)


@final
@dataclass(frozen=True, eq=False)
class Common:
    """The common model of the folds under a penalty."""

    # The model and the scores of all rows.
    model: Array
    scores: Array
    # Of the blocks, as :meth:`FoldRows.compute_slopes` gives them.
    squares: Array
    gradients: Array
    # Scores nearby, and the losses' Hessians of the blocks there.
    reference: Array
    grams: Array

    def begin(self, shares: Array) -> tuple[Array, ...]:
        """The model for each fold, with what :meth:`FoldRows.at` knows of it."""
        moved = np.full(shares.shape[1], np.abs(self.scores - self.reference).max())
        models = np.broadcast_to(self.model, (moved.size, self.model.size))
        return models, shares.T @ self.gradients, shares.T @ self.squares, moved


@final
class PenaltyFolds:
    """The models of all folds under one or more penalties, and what is proven about the rows that they are asked about.

    Attributes
    ----------
    rows : FoldRows
        The rows.
    strengths : array of shape (n_models, size)
        Those of the penalties in every fold; models are numbered penalty by penalty, and those of a penalty fold by fold.
    fold_of, penalty_of : array of int
        Which fold and which of the penalties a model is of.
    models, gradients, slopes, squares : array
        Where the models stand, the gradients, those of the losses alone, and the sums of squared slopes and curvatures there.
    references, moved : list of array, array of shape (n_models,)
        The scores at which the curvatures of the metrics were taken, and the farthest score of a model from these.
    metrics, base, growth : Metrics, Norms, array of shape (n_models,)
        The metrics, the norms of all rows in one metric for each penalty, and by what factor norms are at most larger than these.
    lower, upper, left : array
        What is proven about the rows that the models are asked about, and the places of those that are open.
    """

    metrics: Metrics
    base: Norms

    def __init__(
        self, rows: FoldRows, strengths: Array, tests: Sequence[Rows], places: "slice | Rows", decided: Decided
    ) -> None:
        self.rows, self.strengths, self.decided, self.places = rows, strengths, decided, places
        self.constant = float(rows.loss.self_concordance or 0.0)
        self.count = len(strengths)
        self.penalty_of, self.fold_of = np.divmod(np.arange(self.count), len(tests))
        sizes = np.array([test.size for test in tests])[self.fold_of]
        self.owners, self.cuts = np.repeat(np.arange(self.count), sizes), [0, *np.cumsum(sizes).tolist()]
        self.lower, self.upper = unbounded(self.owners.size)
        self.left = np.arange(self.owners.size)

    def begin(
        self,
        commons: "Sequence[Common]",
        own: "dict[int, tuple[Array, Array]]",
        before: "PenaltyFolds | None",
    ) -> None:
        """Begin at the common model of each penalty, and prove what the models' first steps do.

        ``own``: the Hessian of the losses at scores of their own, and these, for models that have it; ``before``: the models under the penalty before, whose gradients
        are known under this one too, from which those go on that are nearer there.
        """
        rows, every = self.rows, np.arange(self.count)
        n_folds, blocks = len(rows.weights), np.array([common.grams for common in commons])
        sums = rows.multiples @ blocks.reshape(*blocks.shape[:2], -1)
        hessians = np.concatenate([*sums[:, :-1], sums[:, -1]]).reshape(-1, rows.size, rows.size)
        self.references = [common.reference for common in commons for _ in range(n_folds)]
        for k, (gram, reference) in own.items():
            hessians[k], self.references[k] = gram, reference
        means = self.strengths.reshape(-1, n_folds, rows.size).mean(axis=1)
        read_diagonals(hessians)[:] += np.concatenate([self.strengths, means])
        metrics = Metrics.of(hessians, 2 * rows.n_rows + rows.edges.size + 64)
        self.metrics, last = metrics.take(slice(0, self.count)), metrics.take(slice(self.count, None))
        known = None if before is None else before.base
        if known is None or not np.all(compute_growth(last, known, np.arange(len(commons))) < SAME_NORMS):
            known = Norms.of(rows, hessians[self.count :], last)
        self.base, self.growth = known, compute_growth(self.metrics, known, self.penalty_of)
        begun = zip(*(common.begin(rows.shares) for common in commons), strict=True)
        self.models, self.slopes, self.squares, self.moved = map(np.concatenate, begun)
        self.gradients = self.slopes + self.strengths * self.models
        near = every[:0] if before is None else self._move_to(before, every >= 0)
        rest = np.setdiff1d([*own], near) if own else near[:0]
        if rest.size:
            references = [self.references[k] for k in rest]
            _, self.squares[rest], self.moved[rest] = rows.at(self.models[rest], self.fold_of[rest], references)
        self.steps, self.ends = np.zeros_like(self.models), self.models.copy()
        self.nu, self.noise, self.radii, self.crossed = (np.full(self.count, np.inf) for _ in range(4))
        self._prove(slice(None))

    def count_open(self) -> Rows:
        """How many rows of each fold are not decided."""
        return np.bincount(self.owners[self.left], minlength=self.count)

    def _prove(self, columns: "slice | Rows") -> None:
        """Make the chord steps of some folds from where they stand, and take in what is proven about their ends."""
        rows, scales = self.rows, self.metrics.scales[columns]
        models, roots, theta = self.models[columns], self.metrics.roots[columns], self.metrics.theta[columns]
        ahead = (self.gradients[columns][:, None] @ roots)[:, 0]
        steps, off = -(roots @ ahead[:, :, None])[:, :, 0], rows.score_error(models)
        errors = rows.errors(models, off, self.squares[columns], self.strengths[columns])
        noise = frobenius(errors[:, None] @ np.abs(roots)) * (1.0 + gamma(2 * rows.size + 16))
        nu = np.sqrt(np.vecdot(ahead, ahead)) * (1.0 + theta + FEW * rows.size) + noise + TINY
        self.steps[columns], self.nu[columns], self.noise[columns] = steps, nu, noise
        piecewise = rows.loss.piecewise
        radii = self._bound_between_kinks(columns, nu) if piecewise else self._bound_smoothly(columns, nu, off)
        if np.any(radii < np.inf):
            radii += noise + 2.0 * theta * nu
            ends = models + steps
            # Adding the step rounds every entry once; a unit vector has at most the root of the trace in the metric.
            reach = np.sqrt(rows.size * 4.0) * (1.0 + FEW)
            radii = (radii + FEW * reach * frobenius(ends / scales)) * (1.0 + FEW)
            self.ends[columns], self.radii[columns] = ends, radii
            self._take(columns)
        else:
            self.radii[columns] = np.inf

    def _bound_smoothly(self, columns: "slice | Rows", nu: Array, off: Array) -> Array:
        """Upper bounds of the distances of the optima from the ends of some models' steps, in their metrics; ``nu``, ``off``: at least the norms of the gradients, and what scores err by per length of their row."""
        off = self.rows.longest * off + 2.0 * self.rows.noise
        rho = self.constant * (off + self.moved[columns]) * (1.0 + FEW) + FEW
        largest = self.base.largest[self.penalty_of[columns]] * self.growth[columns] * (1.0 + FEW)
        return step_radii(self.constant * largest, nu, rho, self.metrics.eta[columns])

    def _bound_between_kinks(self, columns: "slice | Rows", nu: Array) -> Array:
        """Upper bounds of the distances of the optima from the ends of some models' steps under a piecewise quadratic loss, in their metrics."""
        rows, eta = self.rows, self.metrics.eta[columns]
        references = [self.references[k] for k in np.arange(self.count)[columns]]
        margins, curved = rows.find_margins(self.models[columns], references)
        norms = self.base.norms[self.penalty_of[columns]] * (self.growth[columns, None] * (1.0 + FEW))
        shares = rows.weights[self.fold_of[columns]] * np.square(norms)
        shares *= rows.loss.smoothness * (1.0 + gamma(rows.n_rows + 16))
        self.crossed[columns] = np.vecdot(shares, margins <= 0.0)

        def add_crossing(radii: Array, side: NDArray[np.bool_]) -> Array:
            found: Array = np.vecdot(shares, side & ~(margins > radii[:, None] * norms))
            return found

        known = np.where(eta < 1.0, 1.0 - eta, np.nan)
        within = piece_radius(nu, known, lambda radii: add_crossing(radii, curved)) * (1.0 + FEW)
        lost, gained = (eta + add_crossing(within, side) * (1.0 + FEW) + FEW for side in (curved, ~curved))
        factor = np.maximum(lost / (1.0 - lost), gained / (1.0 + gained)) * (1.0 + FEW)
        return np.where(np.isfinite(within) & (lost < 1.0), factor * nu * (1.0 + FEW), np.inf)

    def _find_places(self, asked: Rows) -> "slice | Rows":
        """Where in the data some of the rows are that models are asked about."""
        if len(self.base.norms) > 1:
            asked = asked % (self.owners.size // len(self.base.norms))
        elif isinstance(self.places, slice) and asked.size and asked[-1] - asked[0] + 1 == asked.size:
            return slice(int(asked[0]) + self.places.start, int(asked[-1]) + 1 + self.places.start)
        return asked + self.places.start if isinstance(self.places, slice) else self.places[asked]

    def _find_norms(self, owners: Rows, places: "slice | Rows") -> Array:
        """Upper bounds of the norms of some rows in the metric that is common to the folds of a penalty."""
        norms = self.base.norms
        found: Array = norms[0, places] if len(norms) == 1 else norms[self.penalty_of[owners], places]
        return found

    def _take(self, columns: "slice | Rows") -> None:
        """Take in what radii around the steps' ends prove of open rows, by the common norms and then by their fold's own."""
        rows, metrics, ends = self.rows, self.metrics, self.ends
        asked = np.zeros(self.count, dtype=np.bool_)
        asked[columns] = np.isfinite(self.radii[columns])
        known = self.left[asked[self.owners[self.left]]]
        if not known.size:
            return
        errors, wide = rows.score_error(ends), self.radii * self.growth
        height = min(CHUNK // 2, self.owners.size)
        for start in range(0, known.size, height):
            part = known[start : start + height]
            left = slice(int(part[0]), int(part[-1]) + 1) if part[-1] - part[0] + 1 == part.size else part
            owners, places = self.owners[left], self._find_places(part)
            data = rows.data[places]
            if part.size * 8 > self.owners.size:
                cuts = np.searchsorted(owners, np.arange(self.count + 1))
                scores = np.concatenate([data[i:j] @ end for (i, j), end in zip(pairwise(cuts), ends, strict=True)])
            else:
                scores = np.vecdot(data, ends[owners])
            error = errors[owners] * rows.lengths[places]
            found = widen(scores, (wide[owners] * self._find_norms(owners, places) + error) * (1.0 + FEW))
            near = np.flatnonzero(~self.decided(*found))
            if 0 < near.size * rows.size <= 4 * rows.n_rows:
                mine = owners[near]
                solved = (data[near][:, None] @ metrics.roots[mine])[:, 0]
                norms = np.sqrt(np.vecdot(solved, solved)) * (1.0 + metrics.theta[mine] + FEW * rows.size)
                closer = widen(scores[near], (self.radii[mine] * norms + error[near]) * (1.0 + FEW) + TINY)
                found[0][near], found[1][near] = intersect((found[0][near], found[1][near]), closer)
            self.lower[left], self.upper[left] = intersect((self.lower[left], self.upper[left]), found)
        self.left = self.left[~self.decided(self.lower[self.left], self.upper[self.left])]

    def run(self, columns: Rows, own: "dict[int, tuple[Array, Array]]", spared: float, budget: Budget) -> None:
        """Step some models on until all but a share of their rows are decided, or no more is to be gained; ``own`` as in :meth:`begin`, for the next penalty."""
        most = np.floor(spared * np.diff(self.cuts))
        for _ in range(MAX_STEPS):
            columns = columns[self._goes_on(columns, most)]
            if not columns.size or budget.spent:
                return
            before = self.nu[columns]
            full = self._advance(columns)
            self._prove(columns)
            slow = self._goes_on(columns, most) & (~full | self._have_drifted(columns, self.nu[columns] / before))
            if slow.any():
                self._renew(columns[slow], own)
                self._prove(columns[slow])

    def _move_to(self, other: "PenaltyFolds", asked: NDArray[np.bool_]) -> Rows:
        """Stand where some models of another penalty do, if gradients are smaller there and moves are measured from the same scores; which of them do."""
        ahead = other.slopes + self.strengths * other.models
        sizes = [frobenius(part[:, None] @ self.metrics.roots) for part in (self.gradients, ahead)]
        same = [mine is theirs for mine, theirs in zip(self.references, other.references, strict=True)]
        columns = np.flatnonzero(asked & same & (sizes[1] < NEARER * sizes[0]))
        self.gradients[columns] = ahead[columns]
        for mine, theirs in zip(self.read_state(), other.read_state(), strict=True):
            mine[columns] = theirs[columns]
        return columns

    def go_on_from(self, other: "PenaltyFolds") -> None:
        """Go on from the models of another penalty where that is nearer, for models with open rows."""
        columns = self._move_to(other, self.count_open() > 0)
        if columns.size:
            self._prove(columns)

    def read_state(self) -> tuple[Array, ...]:
        """What is known of where the models stand whatever the penalty is."""
        return self.models, self.slopes, self.squares, self.moved

    def _goes_on(self, columns: Rows, most: Array) -> NDArray[np.bool_]:
        """Which of some models have more open rows than ``most``, and gradients above their rounding."""
        found = (self.count_open() > most) & (self.nu > 4.0 * self.noise) & (self.nu < np.inf) & self.metrics.known
        return found[columns]

    def _advance(self, columns: Rows) -> NDArray[np.bool_]:
        """Go to the end of steps, or less far where the objective rises there; which steps were made in full."""
        rows, begin, steps = self.rows, self.models[columns], self.steps[columns]
        descent = np.vecdot(self.gradients[columns], steps)
        lengths, asked = np.ones(columns.size), np.arange(columns.size)
        for _ in range(20):
            mine = columns[asked]
            models = begin[asked] + lengths[asked, None] * steps[asked]
            references = [self.references[k] for k in mine]
            slopes, squares, moved = rows.at(models, self.fold_of[mine], references)
            gradients = slopes + self.strengths[mine] * models
            self.models[mine], self.gradients[mine], self.slopes[mine] = models, gradients, slopes
            self.squares[mine], self.moved[mine] = squares, moved
            after = np.vecdot(gradients, steps[asked])
            # A descent this small is near the rounding of its own sum, and no guide to the length.
            far = ~(after <= -0.5 * descent[asked]) & (-descent[asked] > 1e-14 * squares[:, 0])
            asked, after = asked[far], after[far]
            if not asked.size:
                break
            guess = np.where(np.isfinite(after), descent[asked] / (descent[asked] - after), 0.1)
            lengths[asked] *= np.clip(guess, 0.1, 0.9)
        return lengths == 1.0

    def _renew(self, columns: Rows, own: "dict[int, tuple[Array, Array]]") -> None:
        """Take the curvatures of some models at their own scores."""
        rows, scores = self.rows, self.models[columns] @ self.rows.data.T
        hessians = rows.hessians(scores, self.fold_of[columns])
        for k, mine, hessian in zip(columns, scores, hessians, strict=True):
            self.references[k], own[int(k)] = mine, (hessian, mine)
        every = hessians.copy()
        read_diagonals(every)[:] += self.strengths[columns]
        metrics = Metrics.of(every, 2 * rows.n_rows + 64)
        self.metrics.put(columns, metrics)
        self.moved[columns] = 0.0
        self.growth[columns] = compute_growth(metrics, self.base, self.penalty_of[columns])

    def _have_drifted(self, columns: Rows, rates: Array) -> NDArray[np.bool_]:
        """Which models gain little by a step, or nothing is provable of in their metrics; ``rates``: what the last steps left of the gradients' norms."""
        lost: NDArray[np.bool_] = (rates > SLOW) | ~np.isfinite(self.radii[columns])
        # In the metric of other pieces steps may go round in circles; where no row has crossed a kink, there is no other metric.
        crossed = self.crossed[columns]
        return (crossed > FAR_PIECES) | ((crossed > 0.0) & lost) if self.rows.loss.piecewise else lost


@final
class ChordFolds:
    """The models of all folds under some penalties, which are stepped together where that saves more calls than it costs arithmetic, and one after the other elsewhere.

    Each penalty begins at its common model, or where that is the one of the penalty before at the models of this. Where it moves little from one penalty to the
    next, Hessians are those of the penalty before. Models are numbered penalty by penalty, and those of a penalty fold by fold.
    """

    def __init__(
        self, rows: FoldRows, folds: Sequence[Sequence[Problem]], tests: Sequence[Rows], decided: Decided
    ) -> None:
        self.rows, self.n_folds = rows, len(tests)
        self.together = len(folds) if rows.data.size * len(folds) <= TOGETHER else 1
        places = rows.find_places(tests)
        strengths = rows.read_strengths([fold for mine in folds for fold in mine])
        self.penalties = [
            PenaltyFolds(rows, part, tests, places, decided)
            for part in np.split(strengths, len(folds) // self.together)
        ]
        self.finished: set[int] = set()

    def bounds(self, k: int) -> Bounds:
        """What is proven about the rows that a model is asked about."""
        group, column = divmod(k, self.n_folds * self.together)
        found = self.penalties[group]
        mine = slice(*found.cuts[column : column + 2])
        return found.lower[mine], found.upper[mine]

    def model(self, k: int) -> Array:
        """Where a model stands, in the columns of the problem."""
        group, column = divmod(k, self.n_folds * self.together)
        return self.rows.unpack(self.penalties[group].models[column])

    def is_open(self) -> NDArray[np.bool_]:
        """Which models have rows that are not decided."""
        return np.concatenate([one.count_open() for one in self.penalties]) > 0

    @np.errstate(all="ignore")  # overflow ends in infinite bounds: nothing is proven then
    def start(self, model: Array, known: bool = False, spared: float = 1.0, budget: Budget = UNLIMITED) -> None:
        """Prove what the models' first steps do, and step on until all but a share of every fold's rows are decided.

        ``known``: the model that is given is the common one of the first penalty.
        """
        common: Common | None = None
        before: PenaltyFolds | None = None
        own: dict[int, tuple[Array, Array]] = {}
        for one in self.penalties:
            commons = []
            for strengths in one.strengths.reshape(-1, self.n_folds, self.rows.size):
                last, begin = common, self.rows.pack(model) if common is None else common
                common = self._find_common(strengths, begin, known and last is None)
                if last is None or last.reference is not common.reference:
                    own.clear()
                commons.append(common)
            one.begin(commons, own, before)
            if spared < 1.0:
                # Of small data what can be spared costs less than to come back to it.
                one.run(np.arange(one.count), own, spared if self.together == 1 else 0.0, budget)
            before = one

    def _find_common(self, strengths: Array, start: "Array | Common", known: bool) -> Common:
        """The common model of a penalty, from that of another one or from a model."""
        rows = self.rows
        means, strength = rows.multiples[-1], strengths.mean(axis=0)
        anywhere = known or rows.loss.self_concordance == 0.0
        if isinstance(start, Common):
            model, found = start.model, (start.scores, start.squares, start.gradients)
            reference, grams = start.reference, start.grams
        else:
            model = start
            found = rows.compute_slopes(model)
            reference, grams = found[0], rows.compute_grams(found[0])
        for step in range(MAX_CENTRAL_STEPS):
            if rows.has_moved(found[0], reference):
                reference, grams = found[0], rows.compute_grams(found[0])
            if anywhere or step + 1 == MAX_CENTRAL_STEPS:
                break
            hessian = means @ grams.reshape(means.size, -1)
            hessian[:: rows.size + 1] += strength
            slopes = rows.shares.T @ found[2] + strengths * model
            central = means @ found[2] + strength * model
            factor, failed = dpotrf(hessian.reshape(rows.size, -1), lower=0, clean=1)
            inverse = dtrtri(factor, lower=0)[0]
            along, sizes = inverse.T @ central, slopes @ inverse
            close = along @ along <= CLOSE**2 * np.vecdot(sizes, sizes).max()
            if failed or close or not np.all(np.isfinite(along)):
                break
            model, found = self._search(model, -inverse @ along, central, means, strength)
        return Common(model, *found, reference, grams)

    def _search(
        self, model: Array, step: Array, gradient: Array, means: Array, strength: Array
    ) -> tuple[Array, tuple[Array, Array, Array]]:
        """The common model after a step, shortened where the objective rises at its end, and its slopes."""
        descent, length = float(gradient @ step), 1.0
        for _ in range(20):
            after = model + length * step
            found = self.rows.compute_slopes(after)
            slope = float((means @ found[2] + strength * after) @ step)
            if slope <= -0.5 * descent:
                break
            length *= min(max(descent / (descent - slope), 0.1), 0.9) if np.isfinite(slope) else 0.1
        return after, found

    @np.errstate(all="ignore")
    def finish(self, penalties: Sequence[int], budget: Budget = UNLIMITED) -> None:
        """Step on until all models of some penalties are decided, or no more is to be gained: from those that are finished outwards."""
        known, asked = sorted(self.finished), set(penalties) - self.finished
        if self.together > 1 and asked:
            one = self.penalties[0]
            one.run(np.flatnonzero(np.isin(one.penalty_of, [*asked])), {}, 0.0, budget)
        else:
            for penalty in sorted(asked, key=lambda k: min((abs(k - other) for other in known), default=0)):
                one = self.penalties[penalty]
                if known:
                    one.go_on_from(self.penalties[min(known, key=lambda other: abs(penalty - other))])
                one.run(np.arange(one.count), {}, 0.0, budget)
                known.append(penalty)
        self.finished |= asked


def step_radii(largest: Array, nu: Array, rho: Array, eta: Array) -> Array:
    """The distances of chord steps' ends from the optima in their metrics, infinite where nothing is proven.

    ``largest``: at least the self-concordance constant times the largest norm of a row; ``nu``, ``rho``, ``eta``: at least the norms of the gradients,
    the logarithms of what curvatures differ by, and what eigenvalues of Hessians in the metrics differ from 1 by.
    """
    with np.errstate(all="ignore"):
        # Norms at the model are at most so much larger than in the metric.
        grown = np.where(eta < 1.0, np.exp(rho) / (1.0 - eta) * (1.0 + FEW), np.inf)
        product = largest * nu * grown * (1.0 + FEW)
        tau = np.where(product < 1.0, -np.log1p(-product), np.inf) * (1.0 + FEW)
        # x / (1 - e^-x) = x / 2 + (x / 2) coth(x / 2), and y coth y is at most 1 + y^2 / 3. The eigenvalues' other end takes no more:
        # with c = (x / 2) coth(x / 2) >= 1 and a >= 1, a (c + x / 2) - 1 is at least 1 - (c - x / 2) / a.
        share = grown * (1.0 + tau * (0.5 + tau / 12.0)) * (1.0 + FEW) - 1.0 + FEW
        return np.where(np.isfinite(share), share * nu * (1.0 + FEW), np.inf)
