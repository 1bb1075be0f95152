r"""The Hessian's inverse metric with one score per class, over classes and columns.

The Hessian of row ``i`` is that of a graph between the classes, :math:`h = \sum_{a < b} p_a p_b (e_a - e_b)(e_a - e_b)^\top`, so that the Hessian of all rows
is made of one Gram matrix per pair of classes, and its diagonal blocks are sums without cancellation.

Adding one vector to the coefficients of all classes changes no loss, and the optimum (of an intercept: the one that is looked for) has coefficients
that sum to zero over the classes. The objective therefore gets :math:`\tfrac{c_j}{2} (\sum_k w_{kj})^2` for every column, the intercept's included: the
optimum stays what it is, and the Hessian becomes regular and well conditioned in those directions. ``c`` is called the gauge.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from glru.linalg import CHUNK_BYTES, FEW, TINY, Array, Matrix, add_work, gamma, powers_of_two, to_host
from glru.metric.columns import factor_hessian
from glru.problem import Problem

EXPONENTS = 1600
"""A probability that does not underflow is off by at most this many units: the exponent of its exponential is above -746."""


NARROW_COLUMNS = 128
"""Up to this many columns one product over all classes and columns beats a Gram matrix for each pair of classes, which has half the additions."""


def class_hessian(problem: Problem, likely: Array, factor: float = 1.0) -> tuple[Any, Array]:
    """The objective's Hessian at some probabilities (one line per row), with the gauge, and the gauge ``c``.

    Classes first: entry ``(a p + j, b p + k)`` belongs to column ``j`` of class ``a`` and column ``k`` of class ``b``, the intercept's column last. ``factor``:
    what the weights of the losses are multiplied by. Where the rows are on a device, so is the Hessian.
    """
    if not problem.arrays.stable:
        return _device_hessian(problem, likely, factor * problem.weights)
    return assemble_hessian(loss_hessian(problem, likely), read_strengths(problem), factor)


def loss_hessian(problem: Problem, likely: Array) -> Array:
    """The Hessian of the losses of rows in memory: classes, columns, classes, columns."""
    n_scores, width = likely.shape[1], problem.n_columns + int(problem.fit_intercept)
    blocks = np.zeros((n_scores, width, n_scores, width))
    narrow = _class_grams(problem, likely) if _has_class_grams(problem) else None
    for a in range(n_scores):
        for b in range(a + 1, n_scores):
            gram = (
                _pair_gram(problem, problem.weights * likely[:, a] * likely[:, b]) if narrow is None else narrow[a, b]
            )
            blocks[a, :, a, :] += gram
            blocks[b, :, b, :] += gram
            blocks[a, :, b, :] = -gram
            blocks[b, :, a, :] = -gram.T
    return blocks


def assemble_hessian(losses: Array, strengths: Array, factor: float = 1.0) -> tuple[Array, Array]:
    """The objective's Hessian from that of the losses, times a factor, and the gauge."""
    n_scores, width = losses.shape[:2]
    blocks = factor * losses
    gauge = _gauge(np.einsum("ajaj->j", blocks), strengths, n_scores)
    places = np.arange(width)
    for a in range(n_scores):
        blocks[a, places, a, places] += strengths
        for b in range(n_scores):
            blocks[a, places, b, places] += gauge
    # In the order of columns, which LAPACK reads without a copy.
    return blocks.reshape(n_scores * width, n_scores * width).T, gauge


def _device_hessian(problem: Problem, likely: Array, weights: Array) -> tuple[Any, Array]:
    """:func:`class_hessian` of rows on a device."""
    arrays, strengths, classes = problem.arrays, read_strengths(problem), range(likely.shape[1])
    grams = {
        (a, b): _pair_gram(problem, weights * likely[:, a] * likely[:, b]) for a in classes for b in classes if a < b
    }
    pairs = [[grams[min(a, b), max(a, b)] for b in classes if b != a] for a in classes]
    own = [sum(line[1:], start=line[0]) for line in pairs]
    diagonal = np.sum([to_host(arrays.xp.linalg.diagonal(block)) for block in own], axis=0)
    gauge = _gauge(diagonal, strengths, len(classes))
    lines = []
    for a in classes:
        line = [arrays.add_diagonal(-gram, gauge) for gram in pairs[a]]
        line.insert(a, arrays.add_diagonal(own[a], strengths + gauge))
        lines.append(arrays.concatenate(line, 1))
    return arrays.concatenate(lines, 0), gauge


def _gauge(diagonal: Array, strengths: Array, n_scores: int) -> Array:
    """The gauge: a power of two near the other entries of the diagonal, 1 where these are zero; ``diagonal``: summed over the classes."""
    return np.square(1.0 / powers_of_two(diagonal / n_scores + strengths)) / n_scores


def read_strengths(problem: Problem) -> Array:
    """The penalty's strengths, with a zero for an intercept."""
    return np.append(problem.quadratic, 0.0) if problem.fit_intercept else problem.quadratic


def _class_grams(problem: Problem, likely: Array) -> Array:
    """``X~^T diag(s o p_a o p_b) X~`` of all pairs of classes ``a < b``, of dense rows: one product of all classes and columns with themselves."""
    n_scores, n_columns = likely.shape[1], problem.n_columns
    width = n_columns + int(problem.fit_intercept)
    size, roots = n_scores * width, np.sqrt(problem.weights)[:, None] * likely
    height = _chunk_height(problem)
    gram, chunk = np.zeros((size, size), order="F"), np.empty((height, n_scores, width))
    add_work(0.1 * problem.n_rows * float(size) ** 2)
    for start in range(0, problem.n_rows, height):
        here = slice(start, min(start + height, problem.n_rows))
        part = chunk[: here.stop - start]
        np.multiply(roots[here][:, :, None], problem.matrix[here].dense()[:, None, :], out=part[:, :, :n_columns])
        part[:, :, n_columns:] = roots[here][:, :, None]
        # Added chunk by chunk, so that rounding does not grow with the number of rows.
        gram += dsyrk(1.0, part.reshape(len(part), size).T)
    return gram.T.reshape(n_scores, width, n_scores, width).transpose(2, 0, 3, 1)


def _chunk_height(problem: Problem) -> int:
    """Rows of which :func:`_class_grams` makes one product."""
    size = problem.n_scores * (problem.n_columns + int(problem.fit_intercept))
    return min(problem.n_rows, max(32, 2 * CHUNK_BYTES // (8 * size)))


def _has_class_grams(problem: Problem) -> bool:
    """Whether the Hessian is one product over all classes and columns."""
    width = problem.n_columns + int(problem.fit_intercept)
    return problem.in_memory and problem.arrays.stable and problem.matrix.stores_zeros and 0 < width <= NARROW_COLUMNS


def _pair_gram(problem: Problem, weights: Array) -> Any:
    """``X~^T diag(weights) X~`` in full."""
    gram = problem.matrix.column_gram(weights)
    if problem.fit_intercept:
        gram = problem.arrays.add_border(gram, problem.matrix.T @ weights, float(weights.sum()))
    if not problem.arrays.stable:
        return gram
    upper: Array = np.triu(gram)
    return upper + np.triu(upper, 1).T


@final
class ClassMetric:
    """Norms in the inverse of the Hessian with one score per class, rounded up.

    ``eta``: the exact Hessian at the exact probabilities is within ``1 -/+ eta`` times the metric; infinite where nothing is known.
    """

    def __init__(
        self,
        problem: Problem,
        likely: Array | None,  # shape (n_rows, n_classes): the probabilities where the Hessian is taken
        factor: float = 1.0,  # what the weights of the losses are multiplied by
        losses: Array | None = None,  # the Hessian of the losses, where it was summed over blocks of rows
    ) -> None:
        self.n_scores, self.fit_intercept = problem.n_scores, problem.fit_intercept
        self.strengths = read_strengths(problem)
        self.width = self.strengths.size
        if losses is not None:
            hessian, self.gauge = assemble_hessian(losses, self.strengths, factor)
        else:
            assert likely is not None
            hessian, self.gauge = class_hessian(problem, likely, factor)
        # An entry is a Gram matrix's, or a sum of one for each other class, and the penalty's and the gauge's share of it.
        depth = problem.totals.depth
        if losses is None and _has_class_grams(problem):
            height = _chunk_height(problem)
            depth = min(depth, height + problem.n_rows // height + 2)
        depth += self.n_scores + 16
        self.columns = factor_hessian(hessian, False, depth, 0.0)
        self.arrays = self.columns.arrays
        # A product of two probabilities, each off by a share of itself; what underflows is missing from the computed Hessian
        # alone, by less than the smallest normal number times a squared norm.
        share = 2.0 * gamma(2 * self.n_scores + EXPONENTS)
        self.eta = (self.columns.eta + share) * (1.0 + FEW) + TINY
        self._largest: float | None = None

    @property
    def solve_error(self) -> float:
        """Relative error of the norm of a product with the inverse factor, or of a triangular solve."""
        return self.columns.solve_error

    def solve(self, vectors: Any) -> Any:
        """The inverse of the metric times a vector or a matrix, which comes back where it was."""
        return self.columns.solve(vectors)

    def gradient_norm(self, gradient: Array, slack: Array) -> float:
        """Norm of a gradient whose entries are known up to ``slack``."""
        return self.columns.gradient_norm(gradient, slack)

    @cached_property
    def axis_norms(self) -> Array:
        """Norms of the unit vectors."""
        return self.columns.axis_norms()

    @property
    def unit(self) -> float:
        """An entry of :meth:`forms` is off by at most this share of the product of the norms of its two classes."""
        return 2.0 * self.solve_error + self.solve_error**2 + gamma(self.columns.size + 8)

    def largest_pair_norm(self, length: float) -> float:
        """An upper bound of the norm of ``x (e_a - e_b)`` for a row of Euclidean norm ``length`` and any two classes."""
        length = float(np.hypot(length, 1.0)) if self.fit_intercept else length
        return float(np.sqrt(2.0)) * length * self.columns.largest * (1.0 + FEW)

    def largest_norm(self, problem: Problem) -> float:
        """An upper bound of the largest norm of ``x (e_a - e_b)`` of a row that counts, of the problem of this metric."""
        if self._largest is None:
            self._largest = max(problem.map(_largest_pair_norm, self))
        return self._largest

    def forms(self, X: Matrix) -> Iterator[tuple[slice, Array]]:
        """``x^T (H^-1)_ab x`` for all pairs of classes, rows by chunks; see :attr:`unit` for their errors."""
        if not self.arrays.stable:
            yield from self._device_forms(X)
            return
        height = max(16, 4 * CHUNK_BYTES // (8 * max(self.columns.size, 1)))
        for start in range(0, X.shape[0], height):
            here = slice(start, min(start + height, X.shape[0]))
            block = X[here].dense()
            if self.fit_intercept:
                block = np.column_stack([block, np.ones(block.shape[0])])
            yield here, self._host_forms(block)

    def _device_forms(self, X: Matrix) -> Iterator[tuple[slice, Array]]:
        """Forms of rows on a device, from the inverse factor there."""
        xp, size = self.arrays.xp, self.columns.size
        inverse = xp.reshape(self.columns.inverse, (self.n_scores, self.width, size))
        height = max(16, self.arrays.batch // max(1, self.n_scores * size))
        for start in range(0, X.shape[0], height):
            here = slice(start, min(start + height, X.shape[0]))
            block = self.arrays.put(X[here].block())
            block = self.arrays.with_ones(block) if self.fit_intercept else block
            solved = xp.permute_dims(xp.matmul(block[None, :, :], inverse), (1, 0, 2))
            yield here, to_host(xp.matmul(solved, xp.matrix_transpose(solved)))

    def _host_forms(self, block: Array) -> Array:
        """Forms of some rows from the inverse factor, which is upper triangular."""
        width, inverse = self.width, self.columns.inverse
        solved = [block @ inverse[a * width : (a + 1) * width, a * width :] for a in range(self.n_scores)]
        found = np.empty((block.shape[0], self.n_scores, self.n_scores))
        for a in range(self.n_scores):
            for b in range(a, self.n_scores):
                tail = solved[a][:, (b - a) * width :]
                found[:, a, b] = found[:, b, a] = np.einsum("ij,ij->i", tail, solved[b])
        return found

    def all_forms(self, X: Matrix) -> Array:
        """:meth:`forms` of all rows in one array."""
        return np.concatenate([found for _, found in self.forms(X)])


def _largest_pair_norm(part: Problem, metric: ClassMetric) -> float:
    """An upper bound of the largest norm of ``x (e_a - e_b)`` of a row of a part that counts."""
    used = part.matrix[np.flatnonzero(part.weights > 0.0)]
    return max((float(pair_norms(forms, metric.unit).max()) for _, forms in metric.forms(used)), default=0.0)


def pair_norms(forms: Array, unit: float, reference: NDArray[np.intp] | None = None) -> Array:
    """Upper bounds of the norms of ``x (e_a - e_b)``, from forms whose entries are off by ``unit`` times the product of two norms.

    ``reference``: one class ``a`` per row; all pairs if not given.
    """
    own = np.einsum("iaa->ia", forms)
    first = own[:, :, None]
    others = own[:, None, :]
    if reference is not None:
        rows = np.arange(len(forms))
        first, others, forms = own[rows, reference][:, None], own, forms[rows, reference]
    slack = (unit + FEW) * np.square(np.sqrt(first) + np.sqrt(others))
    return np.sqrt(np.maximum(first + others - 2.0 * forms, 0.0) + slack) * (1.0 + FEW) + TINY


def score_norms(forms: Array, unit: float) -> Array:
    """Upper bounds of the norms of ``x (e_a - 1 / K)``: what a score that is measured from the mean of all classes sees."""
    n_scores = forms.shape[1]
    own, mean = np.einsum("iaa->ia", forms), forms.mean(axis=2)
    squares = own - 2.0 * mean + mean.mean(axis=1, keepdims=True)
    lengths = np.sqrt(own)
    slack = (unit + gamma(2 * n_scores + 16)) * np.square(lengths + lengths.mean(axis=1, keepdims=True))
    return np.sqrt(np.maximum(squares, 0.0) + slack) * (1.0 + FEW) + TINY
