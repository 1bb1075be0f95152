r"""Folds of tall data by chord steps from one model: scores of all folds for little more than the price of one training.

Rows that all folds weigh alike form a block. At a common model :math:`w_0`, that of the folds' mean weights, the gradients and Hessians of all folds
are weighted sums of those of the blocks: they cost as much as one. With :math:`V_k^\top \hat H_k V_k \approx I`, :math:`M_k = (V_k V_k^\top)^{-1}` is the metric of
fold :math:`k`, and its chord step from a model :math:`w` with the gradient :math:`g` is :math:`\delta = -V_k V_k^\top g`.

The step is proven without a look at the gradient at its end. Let :math:`\bar H` be the mean of the Hessians on the way from :math:`w` to the optimum
:math:`w^*`, so that :math:`w^* - w = -\bar H^{-1} g`. If curvatures at :math:`w` are within :math:`e^{\pm\rho}` of those of :math:`\hat H_k`,
and scores move by at most :math:`\tau / M` from there to the optimum (the local certificate, :mod:`glru.regions.local`), the eigenvalues of :math:`V_k^\top \bar H V_k` are between
:math:`e^{-\rho} (1 - e^{-\tau}) / \tau` and :math:`e^\rho (e^\tau - 1) / \tau`, and with :math:`\nu = \|V_k^\top g\|`

.. math:: \|w^* - w - \delta\|_{M_k} = \|(I - (V_k^\top \bar H V_k)^{-1}) V_k^\top g\|
          \le \max\Bigl(\frac{e^\rho \tau}{1 - e^{-\tau}} - 1,\; 1 - \frac{e^{-\rho} \tau}{e^\tau - 1}\Bigr)\, \nu .

From the common model that takes no pass over the rows for each fold. Folds that it leaves open are evaluated where they stand, together, and step on. A fold whose steps
gain little takes the curvatures of its own model.
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
from glru.linalg import FEW, TINY, Array, gamma, powers_of_two
from glru.problem import Problem

Rows = NDArray[np.intp]
Decided = Callable[[Array, Array], NDArray[np.bool_]]

SMALL = 100
"""Columns whose Hessians are formed."""

MOST_STEPS, MOST_CENTRAL_STEPS = 30, 30
"""Steps of a fold, and of the common model."""

SAMPLE = 50
"""Rows per unknown that tell where the common model begins."""

CLOSE = 0.5
"""The common model is close enough where a step of its own is at most this share of the folds' steps."""

CHUNK = 1 << 15
"""Scores that are worked on at a time, so that what is made of them stays in the cache."""

SHARES = (0.1, 1e-2, 1e-3, 1e-5, 1e-8)
"""What radii may have to be reduced to."""

STEP_CALLS, HESSIAN_CALLS, FLOPS, LOSS = 4e5, 6e4, 15.0, 10.0
"""What the calls of a step of all folds and of a Hessian cost beside their arithmetic, in nanoseconds; operations of products in a nanosecond, and
nanoseconds of a loss derivative."""


def has_chords(problem: Problem) -> bool:
    """Whether folds of a problem are found so: a self-concordant loss, a smooth penalty, and few columns."""
    certified = problem.loss.self_concordance is not None and problem.penalty.smooth and not problem.loss.several
    few = 0 < problem.n_columns <= min(SMALL, problem.n_rows)
    return certified and few and problem.in_memory and problem.arrays.stable and np.isfinite(problem.loss.smoothness)


@final
@dataclass(frozen=True, eq=False)
class Metrics:
    """Metrics of some Hessians, of which only products are assumed: ``V`` with ``V^T H V`` near the identity.

    Attributes
    ----------
    roots : array of shape (n_metrics, size, size)
        The matrices ``V``.
    eta : array of shape (n_metrics,)
        The eigenvalues of ``V^T H V`` differ from 1 by at most this, ``H`` the exact Hessian; infinite where nothing is known.
    theta : array of shape (n_metrics,)
        Relative error of the norm of a product with ``V``.
    scales, inverse_norms : array
        Powers of two that bring the Hessians to a diagonal near 1, and the Frobenius norms of ``V`` in these units.
    """

    roots: Array
    eta: Array
    theta: Array
    scales: Array
    inverse_norms: Array

    @classmethod
    def of(cls, hessians: Array, depth: int) -> "Metrics":
        """Factor Hessians whose entries are sums of the given number of terms."""
        count, size = hessians.shape[:2]
        diagonals = np.einsum("kii->ki", hessians)
        known = np.isfinite(hessians).all(axis=(1, 2)) & (diagonals > 1e-280).all(axis=1)
        scales = powers_of_two(diagonals)
        scaled = np.where(known[:, None, None], hessians * scales[:, :, None] * scales[:, None, :], np.eye(size))
        roots = np.empty_like(scaled)
        for k in range(count):
            factor, failed = dpotrf(scaled[k], lower=0, clean=1)
            inverse, singular = dtrtri(factor, lower=0)
            known[k] &= not (failed or singular)
            roots[k] = inverse if known[k] else np.eye(size)
        rounded = 1.0 + gamma(size * size + 16)
        norms = np.sqrt(np.einsum("kij,kij->k", roots, roots)) * rounded
        traces = np.einsum("kii->k", scaled) * rounded
        left = roots.transpose(0, 2, 1) @ (scaled @ roots)
        left[:, np.arange(size), np.arange(size)] -= 1.0
        # Two products err by 2 gamma |V|_F^2 |H|_F; forming H by gamma sqrt(h_ii h_jj) in each entry, in Frobenius norm gamma times the trace.
        eta = np.sqrt(np.einsum("kij,kij->k", left, left)) * rounded + FEW
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
        names = ("roots", "eta", "theta", "scales", "inverse_norms")
        return Metrics(*(getattr(self, name)[which] for name in names))

    def put(self, which: Rows, other: "Metrics") -> None:
        """Take some of the metrics from elsewhere."""
        for name in ("roots", "eta", "theta", "scales", "inverse_norms"):
            getattr(self, name)[which] = getattr(other, name)


@final
@dataclass(frozen=True, eq=False)
class Blocks:
    """Rows in blocks, of which every fold takes a multiple of the common weights.

    Attributes
    ----------
    order, edges : array of int
        The rows, block by block, and where the blocks begin and end.
    shares : array of shape (n_blocks, n_folds)
        The multiples, with a relative error of at most 8e-16.
    """

    order: Rows
    edges: Rows
    shares: Array


def split_blocks(problem: Problem, folds: Sequence[Problem], tests: Sequence[Rows]) -> Blocks | None:
    """The blocks that the tests tell, and the classes where folds weigh these apart; None where folds weigh the rows of such a block differently."""
    owners = np.full(problem.n_rows, len(tests), dtype=np.int16)
    for k, test in enumerate(tests):
        owners[test] = k
    common = problem.weights
    if not 1e-200 < common.max(initial=0.0) < 1e200 or np.any((common > 0.0) & (common < 1e-200)):
        return None
    classes = 2 * owners + (problem.y > 0.0) if problem.loss.task == "classification" else owners
    return _share_blocks(common, folds, owners) or _share_blocks(common, folds, classes)


def _share_blocks(common: Array, folds: Sequence[Problem], owners: NDArray[np.int16]) -> Blocks | None:
    """The blocks of rows with the same owner, with the shares of the folds; None where these differ."""
    order, sizes = np.argsort(owners, kind="stable"), np.bincount(owners)
    edges = np.append(0, np.cumsum(sizes[sizes > 0]))
    common, shares = common[order], np.empty((edges.size - 1, len(folds)))
    for k, fold in enumerate(folds):
        weights = fold.weights[order]
        for b, (first, last) in enumerate(pairwise(edges)):
            part, mine = weights[first:last], common[first:last]
            largest = int(np.argmax(mine))
            share = part[largest] / mine[largest] if mine[largest] > 0.0 else 0.0
            expected = share * mine
            # A unit each for the totals, the quotients and this product.
            if not np.array_equal(part, expected) and np.any(np.abs(part - expected) > 8e-16 * part):
                return None
            shares[b, k] = share
    return Blocks(order, edges, shares)


@final
class FoldRows:
    """Rows in blocks, of which every fold takes a multiple of the common weights.

    Attributes
    ----------
    data : array of shape (n_rows, size)
        The rows, block by block: columns centred where there is an intercept, and multiplied by powers of two; a column of ones last.
    edges, shares : array of int, array of shape (n_blocks, n_folds)
        Where blocks begin and end, and the multiples.
    weights : array of shape (n_folds, n_rows)
        The weights of the folds.
    """

    def __init__(self, problem: Problem, blocks: Blocks, weights: Array, common: Array) -> None:
        self.problem, self.loss, self.free = problem, problem.loss, problem.fit_intercept
        order, edges, shares = blocks.order, blocks.edges, blocks.shares
        self.order, self.edges, self.shares, self.weights = order, edges, shares, weights
        self.spans = [slice(first, last) for first, last in pairwise(edges)]
        self.n_rows, self.n_columns = problem.matrix.shape
        self.size = self.n_columns + int(self.free)
        self.y, self.common = problem.y[order], common
        # With an intercept the mean may be taken from every column: the same model but for its intercept, b + c . w. An entry is
        # rounded once more; powers of two are exact.
        self.mean = problem.matrix.mean_row() if self.free else None
        self.data, squares, dense = np.ones((self.n_rows, self.size)), np.zeros(self.size), problem.matrix.dense()
        height = max(64, CHUNK // self.size)
        for start in range(0, self.n_rows, height):
            part = slice(start, start + height)
            own = self.data[part, : self.n_columns]
            own[:] = dense[order[part]]
            if self.mean is not None:
                own -= self.mean
            squares += common[part] @ np.square(self.data[part])
        self.scales = np.ones(self.size)
        self.scales[: self.n_columns] = powers_of_two(squares[: self.n_columns] / common.sum())
        if np.any(self.scales != 1.0):
            self.data *= self.scales
        rounded = 1.0 + gamma(2 * self.n_rows + self.size + 32)
        self.lengths = np.sqrt(np.einsum("ij,ij->i", self.data, self.data)) * rounded + TINY
        self.longest, self.noise = float(self.lengths.max()), problem.score_noise
        # No fold has larger weights than these.
        most = float(shares.max()) * (1.0 + FEW)
        squares *= most * self.scales**2
        self.column_norms = np.sqrt(squares) * rounded + TINY
        self.weighted_length = float(np.sqrt(squares.sum())) * rounded + TINY
        self.weight_norm = float(np.sqrt(most * common.sum())) * rounded

    @classmethod
    def of(cls, problem: Problem, folds: Sequence[Problem], tests: Sequence[Rows]) -> "FoldRows | None":
        """The rows in blocks; None where there are too many for one Hessian's price."""
        blocks = split_blocks(problem, folds, tests)
        if blocks is None:
            return None
        weights = np.array([fold.weights[blocks.order] for fold in folds])
        return cls(problem, blocks, weights, problem.weights[blocks.order])

    def find_places(self, tests: Sequence[Rows]) -> "slice | Rows":
        """The places of the folds' tests, one fold after the other."""
        places = np.empty(self.n_rows, dtype=np.intp)
        places[self.order] = np.arange(self.n_rows)
        found: Rows = places[np.concatenate(tests)]
        consecutive = (
            found.size > 0 and int(found[-1]) - int(found[0]) + 1 == found.size and np.all(np.diff(found) == 1)
        )
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

    def read_strengths(self, problem: Problem) -> Array:
        """The strengths of a penalty in the columns of the data."""
        found = np.zeros(self.size)
        found[: self.n_columns] = problem.quadratic
        return found * self.scales**2

    def score_error(self, models: Array) -> Array:
        """A score errs by at most the length of its row times this; the loss sees it with the noise of its evaluation beside that."""
        unit = gamma(self.size + 8)
        return unit * np.sqrt(np.einsum("...i,...i->...", models, models)) * (1.0 + unit) + TINY

    def compute_slopes(self, model: Array) -> tuple[Array, Array, Array]:
        """Scores under one model, the squares of slopes under the weights and the losses' gradients, both block by block."""
        scores = self.data @ model
        slopes = self.loss.gradient(self.y, scores)
        weighted = self.common * slopes
        parts = [(weighted[span] @ slopes[span], weighted[span] @ self.data[span]) for span in self.spans]
        return scores, np.array([part[0] for part in parts]), np.array([part[1] for part in parts])

    def gram(self, weights: Array, span: slice) -> Array:
        """``X^T diag(weights) X`` of some rows."""
        height = max(64, CHUNK * 4 // self.size)
        found = np.zeros((self.size, self.size))
        for start in range(span.start, span.stop, height):
            part = slice(start, min(start + height, span.stop))
            rows = self.data[part] * np.sqrt(weights[part])[:, None]
            found += rows.T @ rows
        return found

    def compute_grams(self, scores: Array) -> Array:
        """The losses' Hessians at scores under one model, block by block."""
        weighted = self.common * self.loss.curvature(self.y, scores)
        return np.array([self.gram(weighted, span) for span in self.spans])

    def hessian(self, scores: Array, fold: int) -> Array:
        """The losses' Hessian of one fold at scores of its own."""
        return self.gram(self.weights[fold] * self.loss.curvature(self.y, scores), slice(0, self.n_rows))

    def at(self, models: Array, columns: Rows, references: Sequence[Array]) -> tuple[Array, Array, Array]:
        """Losses' gradients at some models, each of a fold, sums of squared slopes, and the farthest score from a reference.

        ``columns``: the folds; ``references``: scores of all rows for each of the models.
        """
        count = columns.size
        gradients, squares, farthest = np.zeros((count, self.size)), np.zeros(count), np.zeros(count)
        every = np.array_equal(columns, np.arange(self.weights.shape[0]))
        height = max(64, CHUNK // count)
        for start in range(0, self.n_rows, height):
            part = slice(start, start + height)
            rows = self.data[part]
            weights = self.weights[:, part] if every else self.weights[columns, part]
            scores = models @ rows.T
            slopes = self.loss.gradient(self.y[None, part], scores)
            for mine, reference in zip(scores, references, strict=True):
                mine -= reference[part]
            np.abs(scores, out=scores)
            scores *= weights > 0.0
            np.maximum(farthest, scores.max(axis=1), out=farthest)
            weighted = slopes * weights
            squares += np.einsum("ki,ki->k", weighted, slopes)
            gradients += weighted @ rows
        return gradients, squares, farthest

    def errors(self, models: Array, squares: Array, strengths: Array) -> Array:
        """At least the errors of gradients at some models, entry by entry."""
        rounded = gamma(2 * self.n_rows + 64) + FEW
        # Slopes' own evaluation, their weights, which have the error of their total, and sums of them; slopes at scores that are off;
        # then the penalty's product.
        off = self.weighted_length * self.score_error(models) + self.weight_norm * self.noise
        spread = rounded * np.sqrt(squares) + self.loss.smoothness * off
        return (spread[:, None] * self.column_norms + FEW * strengths * np.abs(models)) * (1.0 + FEW) + TINY


@final
class ChordFolds:
    """The models of all folds under some penalties, and what is proven about the rows that they are asked about.

    Models are numbered penalty by penalty, and those of a penalty fold by fold.

    Attributes
    ----------
    rows : FoldRows
        The rows.
    models : array of shape (n_models, size)
        Where the models stand.
    lower, upper, left : array
        What is proven about the rows that the models are asked about, model by model, and the places of those that are open.
    """

    def __init__(
        self, rows: FoldRows, folds: Sequence[Sequence[Problem]], tests: Sequence[Rows], decided: Decided
    ) -> None:
        self.rows, self.decided = rows, decided
        self.n_folds, self.n_penalties = len(tests), len(folds)
        self.count = self.n_folds * self.n_penalties
        self.penalty_of, self.fold_of = np.divmod(np.arange(self.count), self.n_folds)
        self.strengths = np.array([rows.read_strengths(fold) for mine in folds for fold in mine])
        constant = rows.loss.self_concordance
        assert constant is not None
        self.constant = constant
        self.edges = np.append(0, np.cumsum([test.size for test in tests] * self.n_penalties))
        self.owners = np.repeat(np.arange(self.count), np.diff(self.edges))
        self.places = rows.find_places(tests)
        self.n_tests = self.owners.size // self.n_penalties
        self.lower, self.upper = unbounded(self.owners.size)
        self.left = np.arange(self.owners.size)
        self.finished = np.zeros(self.count, dtype=np.bool_)

    def bounds(self, k: int) -> Bounds:
        """What is proven about the rows that a model is asked about."""
        mine = slice(self.edges[k], self.edges[k + 1])
        return self.lower[mine], self.upper[mine]

    def is_open(self) -> NDArray[np.bool_]:
        """Which models have rows that are not decided."""
        return np.bincount(self.owners[self.left], minlength=self.count) > 0

    def _find_places(self, asked: Rows) -> "slice | Rows":
        """Where in the data some of the rows are that models are asked about."""
        within = asked % self.n_tests if self.n_penalties > 1 else asked
        if not isinstance(self.places, slice):
            return self.places[within]
        first = self.places.start
        if within.size and within[-1] - within[0] + 1 == within.size == asked[-1] - asked[0] + 1:
            return slice(int(within[0]) + first, int(within[-1]) + 1 + first)
        return within + first

    def _compute_norms(self, owners: Rows, places: "slice | Rows") -> Array:
        """Norms of rows in the metric of the common model of a penalty each; consecutive places are of one penalty."""
        penalties = self.penalty_of[owners]
        found: Array = self.norms[penalties[0], places] if isinstance(places, slice) else self.norms[penalties, places]
        return found

    def _belongs(self, columns: Rows) -> NDArray[np.bool_]:
        """Which of the models are among some."""
        found = np.zeros(self.count, dtype=np.bool_)
        found[columns] = True
        return found

    @np.errstate(all="ignore")  # overflow ends in infinite bounds: nothing is proven then
    def start(self, model: Array, known: bool = False) -> None:
        """Find the common model of each penalty, each from the one before, and prove what the models' first steps from there do.

        ``known``: the model that is given is the common one of the first penalty.
        """
        rows, model = self.rows, self.rows.pack(model)
        begins: list[Array] = []
        slopes: list[Array] = []
        squares: list[Array] = []
        hessians: list[Array] = []
        self.references: list[Array] = []
        for penalty in range(self.n_penalties):
            found = self._find_common(self.strengths[self.penalty_of == penalty], model, known and penalty == 0)
            model = found[0]
            begins.append(model)
            self.references += [found[1]] * self.n_folds
            for parts, part in zip((slopes, squares, hessians), found[2:], strict=True):
                parts.append(part)
        self.models = np.repeat(begins, self.n_folds, axis=0)
        self.gradients, self.squares = np.concatenate(slopes), np.concatenate(squares)
        every = np.array(hessians)
        depth = 2 * rows.n_rows + rows.edges.size + 64
        metrics = Metrics.of(every.reshape(-1, rows.size, rows.size), depth)
        ours = np.arange(every.shape[0] * every.shape[1]).reshape(every.shape[:2])
        common = metrics.take(ours[:, -1])
        self.metrics = metrics.take(ours[:, :-1].ravel())
        # The norms of all rows in the metrics of the common models, and by what factor those in the others are larger at most.
        self.norms = np.empty((self.n_penalties, rows.n_rows))
        for norms, root, theta in zip(self.norms, common.roots, common.theta, strict=True):
            solved = rows.data @ root
            np.sqrt(np.einsum("ij,ij->i", solved, solved), out=norms)
            norms *= 1.0 + theta + gamma(rows.size + 16)
            norms += TINY
        self.hessians, self.root_errors = every[:, -1], common.eta
        self.largest_norms = self.norms.max(axis=1) * (1.0 + FEW)
        self.growth = self._growth(self.metrics, self.penalty_of)
        self.moved = np.zeros(self.count)
        self._prove(np.arange(self.count))

    def _find_common(self, strengths: Array, model: Array, known: bool) -> tuple[Array, Array, Array, Array, Array]:
        """The common model of a penalty, its scores, and the gradients, squared slopes and Hessians of the folds there, the common Hessian last."""
        rows = self.rows
        means, strength, diagonal = rows.shares.mean(axis=1), strengths.mean(axis=0), np.arange(rows.size)
        anywhere = known or self.constant == 0.0
        if not (anywhere or model.any()):
            model = self._from_sample(model, strength)
        scores, squares, gradients = rows.compute_slopes(model)
        for step in range(MOST_CENTRAL_STEPS):
            grams = rows.compute_grams(scores)
            hessian = np.tensordot(means, grams, 1)
            hessian[diagonal, diagonal] += strength
            slopes = rows.shares.T @ gradients + strengths * model
            central = means @ gradients + strength * model
            factor, failed = dpotrf(hessian, lower=0, clean=1)
            inverse = dtrtri(factor, lower=0)[0]
            along, sizes = inverse.T @ central, slopes @ inverse
            close = along @ along <= CLOSE**2 * np.einsum("ij,ij->i", sizes, sizes).max()
            if anywhere or failed or close or not np.all(np.isfinite(along)) or step + 1 == MOST_CENTRAL_STEPS:
                break
            model, scores, squares, gradients = self._search(model, -inverse @ along, central, means, strength)
        hessians = np.concatenate([np.tensordot(rows.shares.T, grams, 1), hessian[None]])
        hessians[:-1, diagonal, diagonal] += strengths
        return model, scores, slopes, rows.shares.T @ squares, hessians

    def _search(
        self, model: Array, step: Array, gradient: Array, means: Array, strength: Array
    ) -> tuple[Array, Array, Array, Array]:
        """The common model after a step, shortened where the objective rises at its end."""
        descent, length = float(gradient @ step), 1.0
        for _ in range(20):
            after = model + length * step
            scores, squares, gradients = self.rows.compute_slopes(after)
            slope = float((means @ gradients + strength * after) @ step)
            if slope <= -0.5 * descent:
                break
            length *= min(max(descent / (descent - slope), 0.1), 0.9) if np.isfinite(slope) else 0.1
        return after, scores, squares, gradients

    def _from_sample(self, model: Array, strength: Array) -> Array:
        """The model of a few rows, roughly."""
        rows = self.rows
        stride = rows.n_rows // (SAMPLE * rows.size)
        if stride < 2:
            return model
        data, y = np.ascontiguousarray(rows.data[::stride]), rows.y[::stride]
        weights = stride * rows.weights[:, ::stride].mean(axis=0)
        for _ in range(MOST_CENTRAL_STEPS):
            scores = data @ model
            gradient = (weights * rows.loss.gradient(y, scores)) @ data + strength * model
            hessian = data.T @ (data * (weights * rows.loss.curvature(y, scores))[:, None])
            hessian[np.diag_indices(rows.size)] += strength
            factor, failed = dpotrf(hessian, lower=0, clean=1)
            if failed:
                return np.zeros_like(model)
            step = -dtrtri(factor, lower=0)[0] @ (dtrtri(factor, lower=0)[0].T @ gradient)
            if not np.all(np.isfinite(step)) or np.abs(data @ step).max() > 30.0:
                return np.zeros_like(model)
            model = model + step
            if -(gradient @ step) <= 0.01 * rows.size:
                break
        return model

    def _growth(self, metrics: Metrics, penalties: Rows) -> Array:
        """By what factor norms in some metrics are larger at most than in those of their penalties' common models."""
        size, roots, hessians = self.rows.size, metrics.roots, self.hessians[penalties]
        forms = roots.transpose(0, 2, 1) @ (hessians @ roots)
        forms[:, np.arange(size), np.arange(size)] -= 1.0
        rounded = 1.0 + gamma(size * size + 16)
        whole = np.einsum("kij,kij->k", forms, forms) * rounded
        # No eigenvalue of E is above the root of |E^2|_F.
        squares = forms @ forms
        least = np.sqrt(np.einsum("kij,kij->k", squares, squares)) * rounded + gamma(2 * size + 16) * whole
        scaled = np.einsum("ki,kii->k", np.square(metrics.scales), hessians)
        slack = gamma(2 * size + 32) * scaled * metrics.inverse_norms**2
        largest = 1.0 + (np.sqrt(least) + slack) * (1.0 + FEW)
        return np.sqrt(largest / np.maximum(1.0 - self.root_errors[penalties], 0.0)) * (1.0 + FEW)

    def _prove(self, columns: Rows) -> None:
        """Make the chord steps of some folds from where they stand, and take in what is proven about their ends."""
        rows, metrics, constant = self.rows, self.metrics, self.constant
        gradients, models = self.gradients[columns], self.models[columns]
        roots = metrics.roots[columns]
        ahead = (gradients[:, None] @ roots)[:, 0]
        steps = -(roots @ ahead[:, :, None])[:, :, 0]
        errors = rows.errors(models, self.squares[columns], self.strengths[columns])
        noise = (errors[:, None] @ np.abs(roots))[:, 0]
        noise = np.sqrt(np.einsum("ki,ki->k", noise, noise)) * (1.0 + gamma(2 * rows.size + 16))
        eta, theta = metrics.eta[columns], metrics.theta[columns]
        nu = np.sqrt(np.einsum("ki,ki->k", ahead, ahead)) * (1.0 + theta + FEW * rows.size) + noise + TINY
        rho = rows.longest * rows.score_error(models) + 2.0 * rows.noise + self.moved[columns]
        rho = constant * rho * (1.0 + FEW) + FEW
        radii = step_radii(constant * self._largest(columns), nu, rho, eta)
        radii += noise + 2.0 * theta * nu
        self.stepped, self.noise, self.nu = columns, noise, nu
        ends = models + steps
        # Adding the step rounds every entry once; a unit vector has at most the root of the trace in the metric.
        reach = np.sqrt(rows.size * 4.0) * (1.0 + FEW)
        scaled = ends / metrics.scales[columns]
        radii += FEW * reach * np.sqrt(np.einsum("ki,ki->k", scaled, scaled))
        self.steps, self.ends, self.radii = steps, ends, radii * (1.0 + FEW)
        self._take(columns)

    def _largest(self, columns: Rows) -> Array:
        """At least the largest norms of rows in the metrics of some models."""
        found: Array = self.largest_norms[self.penalty_of[columns]] * self.growth[columns] * (1.0 + FEW)
        return found

    def _take(self, columns: Rows) -> None:
        """Take in what radii around the steps' ends prove of open rows, by the common norms and then by their fold's own."""
        rows, metrics = self.rows, self.metrics
        radii, ends = np.full(self.count, np.inf), np.zeros((self.count, rows.size))
        radii[columns], ends[columns] = self.radii, self.ends
        known = self.left[np.isfinite(radii)[self.owners[self.left]]]
        if not known.size:
            return
        errors, wide = rows.score_error(ends), radii * self.growth
        height = min(CHUNK // 2, self.n_tests)
        for start in range(0, known.size, height):
            left = known[start : start + height]
            owners = self.owners[left]
            places = self._find_places(left)
            data = rows.data[places]
            if left.size * 8 > self.owners.size:
                cuts = np.searchsorted(owners, np.arange(self.count + 1))
                scores = np.concatenate([data[i:j] @ end for (i, j), end in zip(pairwise(cuts), ends, strict=True)])
            else:
                scores = np.einsum("ij,ij->i", data, ends[owners])
            error = errors[owners] * rows.lengths[places]
            norms = self._compute_norms(owners, places)
            found = widen(scores, (wide[owners] * norms + error) * (1.0 + FEW))
            near = np.flatnonzero(~self.decided(*found))
            if 0 < near.size * rows.size <= 4 * rows.n_rows:
                mine = owners[near]
                solved = (data[near][:, None] @ metrics.roots[mine])[:, 0]
                norms = np.sqrt(np.einsum("ij,ij->i", solved, solved)) * (1.0 + metrics.theta[mine] + FEW * rows.size)
                closer = widen(scores[near], (radii[mine] * norms + error[near]) * (1.0 + FEW) + TINY)
                found[0][near], found[1][near] = intersect((found[0][near], found[1][near]), closer)
            self.lower[left], self.upper[left] = intersect((self.lower[left], self.upper[left]), found)
        self.left = self.left[~self.decided(self.lower[self.left], self.upper[self.left])]

    @np.errstate(all="ignore")
    def finish(self, penalties: Sequence[int], budget: Budget = UNLIMITED) -> None:
        """Step on until all models of some penalties are decided, or no more is to be gained."""
        asked = np.zeros(self.n_penalties, dtype=np.bool_)
        asked[list(penalties)] = True
        columns = np.flatnonzero(asked[self.penalty_of] & ~self.finished & self.is_open())
        self.finished[columns] = True
        if not columns.size:
            return
        if np.all(self._belongs(self.stepped)[columns]):
            mine, self.stepped = np.searchsorted(self.stepped, columns), columns
            self.steps, self.nu, self.noise = self.steps[mine], self.nu[mine], self.noise[mine]
        else:
            self._prove(columns)
        for _ in range(MOST_STEPS):
            kept = self._goes_on(columns)
            columns, steps, before = columns[kept], self.steps[kept], self.nu[kept]
            if not columns.size or budget.spent:
                return
            full = self._advance(columns, steps)
            self._prove(columns)
            slow = self._goes_on(columns) & (~full | self._renewals_pay(columns, self.nu / before))
            if slow.any():
                self._renew(columns[slow])
                self._prove(columns)

    def _goes_on(self, columns: Rows) -> NDArray[np.bool_]:
        """Which of the models that were stepped have open rows, and gradients above their rounding."""
        found: NDArray[np.bool_] = self.is_open()[columns] & (self.nu > 4.0 * self.noise)
        return found & self.metrics.known[columns] & np.isfinite(self.steps).all(axis=1)

    def _advance(self, columns: Rows, steps: Array) -> NDArray[np.bool_]:
        """Go to the end of steps, or less far where the objective rises there; which steps were made in full."""
        rows, begin = self.rows, self.models[columns]
        descent = np.einsum("ki,ki->k", self.gradients[columns], steps)
        lengths, asked = np.ones(columns.size), np.arange(columns.size)
        for _ in range(20):
            mine = columns[asked]
            models = begin[asked] + lengths[asked, None] * steps[asked]
            gradients, squares, moved = rows.at(models, self.fold_of[mine], [self.references[k] for k in mine])
            gradients += self.strengths[mine] * models
            self.models[mine], self.gradients[mine] = models, gradients
            self.squares[mine], self.moved[mine] = squares, moved
            after = np.einsum("ki,ki->k", gradients, steps[asked])
            # A descent this small is near the rounding of its own sum, and no guide to the length.
            far = ~(after <= -0.5 * descent[asked]) & (-descent[asked] > 1e-14 * squares)
            asked, after = asked[far], after[far]
            if not asked.size:
                break
            guess = np.where(np.isfinite(after), descent[asked] / (descent[asked] - after), 0.1)
            lengths[asked] *= np.clip(guess, 0.1, 0.9)
        return lengths == 1.0

    def _renew(self, columns: Rows) -> None:
        """Take the curvatures of some models at their own scores."""
        rows = self.rows
        hessians = []
        for k in columns:
            self.references[k] = rows.data @ self.models[k]
            hessians.append(rows.hessian(self.references[k], int(self.fold_of[k])))
        every = np.array(hessians)
        every[:, np.arange(rows.size), np.arange(rows.size)] += self.strengths[columns]
        metrics = Metrics.of(every, 2 * rows.n_rows + 64)
        self.metrics.put(columns, metrics)
        self.moved[columns] = 0.0
        self.growth[columns] = self._growth(metrics, self.penalty_of[columns])

    def _renewals_pay(self, columns: Rows, rates: Array) -> NDArray[np.bool_]:
        """Of which folds Hessians at their models cost less than the steps that they save."""
        rows = self.rows
        entries = rows.n_rows * rows.size
        step = STEP_CALLS / columns.size + 4.0 * entries / FLOPS + LOSS * rows.n_rows
        renewal = (entries * rows.size + 4.0 * rows.size**3) / FLOPS + HESSIAN_CALLS + LOSS * rows.n_rows
        # The radii that the open rows need, as shares of the gradients' norms.
        place = np.zeros(self.count, dtype=np.intp)
        place[columns] = np.arange(columns.size)
        left = self.left[self._belongs(columns)[self.owners[self.left]]]
        owners = self.owners[left]
        places = self._find_places(left)
        scores = np.einsum("ij,ij->i", rows.data[places], self.ends[place[owners]])
        unit = self.nu[place[owners]] * self.growth[owners] * self._compute_norms(owners, places)
        needed, nu = np.ones(self.count), self.nu
        for share in SHARES:
            half = needed[owners] * unit
            needed[owners[~self.decided(scores - half, scores + half)]] = share
        needed = needed[columns]
        chord = np.expm1(self.constant * self.moved[columns]) + TINY
        n_steps = np.maximum(np.log(needed / chord) / np.log(np.clip(rates, 1e-30, 0.9)), 0.0)
        own = np.minimum(self.constant * self._largest(columns) * nu, 1.0)
        n_own = np.where(own <= needed, 0.0, np.where(own**2 <= needed, 1.0, 2.0))
        pays: NDArray[np.bool_] = n_steps * step > renewal + n_own * step
        return pays


def step_radii(largest: Array, nu: Array, rho: Array, eta: Array) -> Array:
    """The distances of chord steps' ends from the optima in their metrics, infinite where nothing is proven.

    Parameters
    ----------
    largest : array
        At least the self-concordance constant times the largest norm of a row.
    nu, rho, eta : array
        At least the norms of the gradients, the logarithms of what curvatures differ by, and what eigenvalues of Hessians in the metrics differ
        from 1 by.
    """
    with np.errstate(all="ignore"):
        # Norms at the model are at most so much larger than in the metric.
        grown = np.where(eta < 1.0, np.exp(rho) / (1.0 - eta) * (1.0 + FEW), np.inf)
        product = largest * nu * grown * (1.0 + FEW)
        tau = np.where(product < 1.0, -np.log1p(-product), np.inf) * (1.0 + FEW)
        small = tau < 1e-8
        # Of small numbers the quotients to first order, and the next one as a slack.
        above = np.where(small, 1.0 + 0.5 * tau + tau**2, tau / -np.expm1(-tau)) * (1.0 + FEW)
        below = np.where(small, 1.0 - 0.5 * tau - tau**2, tau / np.expm1(tau)) * (1.0 - FEW)
        share = np.maximum(above * grown - 1.0, 1.0 - below / (np.exp(rho) * (1.0 + eta)) + FEW) + FEW
        return np.where(np.isfinite(share), share * nu * (1.0 + FEW), np.inf)
