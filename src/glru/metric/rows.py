r"""The Hessian's inverse metric in the dimension of the rows, for wide data: unpenalised columns and the intercept are a border.

With :math:`K = X_P \Lambda_P^{-1} X_P^\top` over the penalised columns, :math:`U` the unpenalised ones (the intercept's ones last) and
:math:`D` the weighted curvatures, the Hessian is :math:`H = \Lambda + \tilde X^\top D \tilde X`. A model is kept as
:math:`w_P = \Lambda_P^{-1} X_P^\top b` and :math:`\beta`; its scores are :math:`z = K b + U \beta`. A force ``e`` on the rows stands for
the gradient :math:`\tilde X^\top e`, and the Newton step against it solves

.. math:: \delta b = -e - D \delta z, \quad \delta z = K \delta b + U \delta\beta, \quad U^\top (b + \delta b) = 0 .

No proof rests on the accuracy of that solve. For any ``v`` whose support is that of ``D`` and with :math:`U^\top v = U^\top e`,

.. math:: \|\tilde X^\top e\|^2_{H^{-1}} \le (e - v)^\top K (e - v) + v^\top D^{-1} v ,

with equality at the solution, so that an approximate :math:`v = -D \delta z` costs only the square of its error. What is left of the
constraint is charged at the norm of the unpenalised coordinates.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq

from glru.duality import stack_constraint_columns
from glru.linalg import CHUNK_BYTES, FEW, TINY, UNIT, Array, Matrix, as_matrix, gamma, length, to_host
from glru.linalg.factor import factor_core, invert_factor, solve_cholesky
from glru.metric.columns import Metric
from glru.problem import Problem

MAX_FREE = 32
"""The largest number of unpenalised coordinates in a border."""

MANY_SOLVES = 4
"""Images of at most one row in this many are solved for one by one; with more rows they come from the inverse of the factor."""


def uses_rows(problem: Problem) -> bool:
    """Whether the metric is formed in the dimension of the rows: wide data, with few unpenalised coordinates."""
    return problem.n_rows < problem.n_columns and problem.penalty.smooth and has_few_free(problem)


def has_few_free(problem: Problem) -> bool:
    """Whether the unpenalised coordinates are few enough to be a border."""
    n_free = problem.unpenalised.size + int(problem.fit_intercept)
    return problem.unpenalised.size == 0 or (n_free <= MAX_FREE and 4 * n_free < problem.n_rows)


@final
@dataclass(frozen=True, eq=False)
class GramProduct:
    """``K = X diag(inverse) X^T`` that is not formed: a product errs by no more than if it were."""

    # The columns with values in several rows.
    matrix: Matrix
    inverse: Array
    own: Array  # shape (n_rows,): what the other columns have in ``K``: entries of its diagonal

    @classmethod
    def of(cls, matrix: Matrix, inverse: Array) -> "GramProduct":
        """The product of a matrix."""
        counts = matrix.column_counts()
        if counts is None or np.all(counts > 1):
            return cls(matrix, inverse, np.zeros(matrix.shape[0]))
        shared = np.flatnonzero(counts > 1)
        return cls(matrix[:, shared], inverse[shared], matrix.squared_row_norms(np.where(counts > 1, 0.0, inverse)))

    def __matmul__(self, duals: Array) -> Any:
        sums = self.matrix.T @ duals
        sums *= self.inverse[:, None]
        found = self.matrix @ sums
        found += self.own[:, None] * duals
        return found


@final
class RowSide:
    """What the dimension of the rows knows of the data and the penalty, whatever the weights."""

    gram: Any  # ``K``: a matrix of shape (n_rows, n_rows), or a :class:`GramProduct`
    border: Array  # ``U``, of shape (n_rows, n_free)
    norms: Array  # shape (n_rows,): at least ``sqrt(K_kk)``, the norms of the rows in the metric of the penalty
    center: Array | None  # what is taken from every row, ``c``; the intercept of such a model is ``b + c . w``
    n_changes: int = 0

    def __init__(self, problem: Problem, center: Array | None = None) -> None:
        self.problem, self.arrays = problem, problem.arrays
        lam = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
        self.inverse = np.divide(1.0, lam, out=np.zeros(problem.n_columns), where=lam > 0.0)
        self.center = problem.matrix.mean_row() if problem.fit_intercept and center is None else center
        if self.center is not None and problem.unpenalised.size:
            self.center = np.where(lam > 0.0, self.center, 0.0)
        self._take(problem.matrix.row_gram(self.inverse, self.center), stack_constraint_columns(problem))

    @classmethod
    def of_products(cls, problem: Problem) -> "RowSide":
        """The side of a problem that penalises all columns, with ``K`` as products with X; rows are not centred."""
        side = cls.__new__(cls)
        side.problem, side.arrays, side.center = problem, problem.arrays, None
        side.inverse = 1.0 / np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
        side.gram, side.border = GramProduct.of(problem.matrix, side.inverse), stack_constraint_columns(problem)
        squares = problem.matrix.squared_row_norms(side.inverse)
        side.norms = np.sqrt(squares * (1.0 + gamma(side.inverse.size + 8))) * (1.0 + FEW) + side.tiny
        return side

    def _take(self, gram: Matrix, border: Array) -> None:
        self.gram, self.border = gram, border
        squares = to_host(self.arrays.xp.linalg.diagonal(gram.data))
        self.norms = np.sqrt(squares * (1.0 + gamma(self.inverse.size + 8))) * (1.0 + FEW) + self.tiny

    def extend(self, rows: Matrix, problem: Problem | None = None) -> "RowSide":
        """The side with more rows appended, from their products alone; the centre stays as it is.

        ``problem``: that of all rows. Without it the new rows are queries, and :meth:`images` and :meth:`transposed_product` leave them out.
        """
        side = RowSide.__new__(RowSide)
        side.problem, side.arrays = problem or self.problem, self.arrays
        side.inverse, side.center, side.n_changes = self.inverse, self.center, self.n_changes
        centred = self.rows(rows)
        arrays, across = self.arrays, self.arrays.put(self.images(centred))
        right = arrays.concatenate([across, centred.row_gram(self.inverse).data], 0)
        left = arrays.concatenate([self.gram.data, arrays.xp.matrix_transpose(across)], 0)
        gram = arrays.concatenate([left, right], 1)
        side._take(as_matrix(gram), np.concatenate([self.border, self.free_part(rows)]))
        return side

    def restrict(self, rows: NDArray[np.intp]) -> "RowSide":
        """The side of some rows, for a Newton system; the problem stays that of all."""
        side = RowSide.__new__(RowSide)
        side.problem, side.arrays = self.problem, self.arrays
        side.inverse, side.center, side.n_changes = self.inverse, self.center, self.n_changes
        side.gram, side.border, side.norms = self.gram[rows][:, rows], self.border[rows], self.norms[rows]
        return side

    def with_column(self, column: Array, scale: float) -> "RowSide":
        """The side with ``scale x x^T`` added to ``K``: a column more, or one less where the scale is negative.

        Norms are not lowered, so that the errors of ``K`` stay within their bounds.
        """
        side = RowSide.__new__(RowSide)
        side.problem, side.arrays, side.border = self.problem, self.arrays, self.border
        side.inverse, side.center, side.n_changes = self.inverse, self.center, self.n_changes + 1
        side.gram = as_matrix(
            self.gram.data + self.arrays.put(scale * column)[:, None] * self.arrays.put(column)[None, :]
        )
        side.norms = np.sqrt(self.norms**2 + max(scale, 0.0) * column**2) * (1.0 + FEW)
        return side

    def without_column(self, place: int, column: Array) -> "RowSide":
        """The side of the columns but one; images of other rows are no longer formed, as ``problem`` keeps that column."""
        side = self.with_column(column, -float(self.inverse[place]))
        side.inverse = np.delete(self.inverse, place)
        side.center = None if self.center is None else np.delete(self.center, place)
        return side

    @property
    def tiny(self) -> float:
        """What norms are raised by, for squares that underflow."""
        return TINY * (1.0 + float(np.sqrt(self.inverse.max(initial=0.0))))

    def rows(self, X: Matrix) -> Matrix:
        """Queries as they meet the centred data."""
        return X if self.center is None else as_matrix(X.dense() - self.center)

    def images(self, rows: Matrix) -> Array:
        """``X Lambda^-1 x`` for queries, one column each."""
        if self.center is None:
            return to_host(rows.cross_gram(self.problem.matrix, self.inverse).data).T
        scaled, total = rows.dense() * self.inverse, np.zeros((self.problem.n_rows, rows.shape[0]))
        for part, block in self.problem.matrix.centre_chunks(self.center):
            total += block @ scaled[:, part].T
        return total

    def transposed_product(self, duals: Array) -> Array:
        """``X^T v``."""
        if self.center is None:
            return self.problem.matrix.T @ duals
        return np.concatenate([block.T @ duals for _, block in self.problem.matrix.centre_chunks(self.center)])

    def intercept(self, coef: Array, intercept: float, sign: float = 1.0) -> float:
        """The intercept of the centred model from that of the model; with ``sign`` -1 the other way round."""
        return intercept if self.center is None else intercept + sign * float(self.center @ coef)

    @property
    def n_free(self) -> int:
        """Number of unpenalised coordinates."""
        return int(self.border.shape[1])

    @cached_property
    def unit(self) -> float:
        """Relative error of a score: of a sum over the columns, then over the rows and the border.

        A column that has come or gone since costs a rounding of the sum, one for being no longer among the columns, and five roundings of its own part.
        By Cauchy's inequality all such parts together are at most twice the norms, which are not lowered.
        """
        return gamma(self.inverse.size + 3 * self.n_changes + self.norms.size + self.n_free + 28) * (1.0 + FEW)

    @cached_property
    def border_norms(self) -> Array:
        """Upper bounds of the lengths of the border's rows."""
        return np.linalg.norm(self.border, axis=1) * (1.0 + gamma(self.n_free + 4))

    def scores(self, duals: Any, free: Array) -> Any:
        """``K b + U beta`` of models, one column each."""
        scores = self.gram @ duals
        return scores + self.arrays.put(self.border @ free) if self.n_free else scores

    def score_errors(self, duals: Any, free: Array) -> tuple[Array, Array]:
        """The error of row ``k``'s score under model ``j`` is at most ``norms[k] first[j] + second[j]``."""
        # |K_kl| and its rounding error are at most |x_k| |x_l| and gamma(d) of that; the sum over l adds gamma(n).
        norm_sum = to_host(self.arrays.put(self.norms) @ self.arrays.xp.abs(duals))
        size = (
            (np.abs(self.border) @ np.abs(free)).max(axis=0, initial=0.0) if self.n_free else np.zeros(norm_sum.shape)
        )
        return self.unit * norm_sum * (1.0 + FEW), self.unit * size * (1.0 + FEW)

    def free_part(self, X: Matrix) -> Array:
        """The entries of queries in the unpenalised coordinates."""
        part = X.dense(self.problem.unpenalised)
        return np.column_stack([part, np.ones(X.shape[0])]) if self.problem.fit_intercept else part


class NewtonSystem:
    """The Newton system of weighted curvatures ``D`` in the dimension of the rows, bordered by the unpenalised coordinates."""

    def __init__(self, side: RowSide, curvatures: Array) -> None:
        self.side, self.curvatures = side, curvatures
        self.root = np.sqrt(curvatures)
        self.factor = factor_core(side.gram, self.root)
        self.border_spread = self.responses = side.border
        if side.n_free:
            # D (I + K D)^-1 U, in a form without cancellation.
            scale = side.arrays.put(self.root)[:, None]
            self.border_spread = to_host(solve_cholesky(self.factor, scale * side.arrays.put(side.border)))
            self.responses = self.root[:, None] * self.border_spread

    @cached_property
    def corner(self) -> Array:
        """``U^T D (I + K D)^-1 U``."""
        return self.side.border.T @ self.responses

    @cached_property
    def strong(self) -> NDArray[np.bool_]:
        """The rows that the losses hold, if ever so little: ``d_k K_kk > 1e-4``."""
        return self.curvatures * np.square(self.side.norms) > 1e-4

    def through(self, forces: Any) -> Any:
        """``(I + D K)^-1`` times forces (one column each), in forms that keep small results accurate on strong rows."""
        root, inverse, weak = self._scales
        if weak is None:
            return root * solve_cholesky(self.factor, forces * inverse)
        kept = forces * weak
        return kept + root * solve_cholesky(self.factor, forces * inverse - root * (self.side.gram @ kept))

    @cached_property
    def _scales(self) -> tuple[Any, Any, Any]:
        """``D^(1/2)``, its inverse on strong rows and 0 on the others, and 1 on these (None where there are none), as columns."""
        put, strong = self.side.arrays.put, self.strong
        inverse = np.divide(1.0, self.root, out=np.zeros(self.root.size), where=strong)
        weak = None if strong.all() else put((~strong).astype(np.float64)[:, None])
        return put(self.root[:, None]), put(inverse[:, None]), weak

    @cached_property
    def border_scores(self) -> Array:
        """``(I + K D)^-1 U``: the scores that a unit of each unpenalised coordinate brings once the others have answered."""
        side, strong = self.side, self.strong[:, None]
        plain = side.border - to_host(side.gram @ side.arrays.put(self.responses))
        return np.where(strong, self.responses / np.where(strong, self.curvatures[:, None], 1.0), plain)

    def solve_border(self, border_sums: Array) -> Array:
        """The change of ``beta`` that takes ``U^T b`` out; not a number where the border overflowed."""
        if not self.side.n_free:
            return np.zeros((0, *border_sums.shape[1:]))
        if not (np.all(np.isfinite(self.corner)) and np.all(np.isfinite(border_sums))):
            return np.full(border_sums.shape, np.nan)
        if self.side.n_free == 1:
            return border_sums / self.corner if self.corner[0, 0] > 0.0 else np.zeros(border_sums.shape)
        return lstsq(self.corner, border_sums, check_finite=False)[0]

    def solve(self, forces: Any, border_sums: Array) -> tuple[Array, Any]:
        """Newton steps against forces (one column each), given ``U^T b``: changes of ``beta`` and of ``b``."""
        side, arrays = self.side, self.side.arrays
        moves = -self.through(forces)
        if not side.n_free:
            return np.zeros((0, moves.shape[1])), moves
        border, total = arrays.put(side.border.T), np.zeros(border_sums.shape)
        # Twice, the second time with what rounding left of the constraint: a dual that misses it has to be repaired.
        for _ in range(2):
            free = self.solve_border(border_sums + to_host(border @ moves))
            moves = moves - arrays.put(self.responses @ free)
            total += free
        return total, moves

    def step(self, forces: Any, border_sums: Array) -> tuple[Array, Any]:
        """Newton steps against forces (one column each), given ``U^T b``: changes of ``beta`` and of the scores.

        The change of ``b`` follows: ``-e - D`` times that of the scores.
        """
        free, moves = self.solve(forces, border_sums)
        return free, self.side.scores(moves, free)


@final
class RowMetric(NewtonSystem, Metric):
    """The metric of ``H = Lambda + X^T D X`` from a Cholesky factor in the dimension of the rows."""

    def __init__(self, side: RowSide, curvatures: Array) -> None:
        super().__init__(side, curvatures)
        self.eta = 0.0 if np.isfinite(self.free_norm) else np.inf

    @cached_property
    def free_norm(self) -> float:
        """An upper bound of the norm of any unit vector in the unpenalised coordinates."""
        if not self.side.n_free:
            return 0.0
        # v = V a with a = (U^T V)^-1 r meets U^T v = r exactly; V^T D^-1 V = Y^T Y with V = D^(1/2) Y.
        spread, duals = self.border_spread, self.responses
        norm_sum = (self.side.norms @ np.abs(duals)) * (1.0 + FEW)
        gram = duals.T @ to_host(self.side.gram @ self.side.arrays.put(duals)) + spread.T @ spread
        size = float(np.trace(gram)) + 2.0 * self.side.unit * float(norm_sum @ norm_sum)
        size = (size + gamma(self.root.size + 8) * float((spread**2).sum())) * (1.0 + FEW)
        system = self.side.border.T @ duals
        if not (np.isfinite(size) and np.all(np.isfinite(system))):
            return np.inf
        off = gamma(self.root.size + 8) * length(np.abs(self.side.border).T @ np.abs(duals))
        smallest = float(np.linalg.svd(system, compute_uv=False)[-1])
        least = smallest - off - gamma(40 * self.side.n_free) * length(system)
        return float(np.sqrt(size)) / least * (1.0 + FEW) if least > 0.0 else np.inf

    @cached_property
    def free_leverages(self) -> Array:
        """What a unit of force on each row does to ``beta``, without proof."""
        return self.solve_border(self.border_scores.T)

    @cached_property
    def leverages(self) -> "Leverages":
        """``H^-1 x`` of all rows."""
        return self.compute_leverages(np.arange(self.root.size))

    def compute_leverages(self, rows: NDArray[np.intp]) -> "Leverages":
        """``H^-1 x`` of some rows, with proof."""
        return Leverages(self, rows, *self._row_spreads(rows))

    def row_images(self, rows: NDArray[np.intp]) -> tuple[Any, Array]:
        """``H^-1 x`` of some rows as models, ``b`` and ``beta``, without proof."""
        spread, free = self._row_spreads(rows)
        return self.compute_duals(rows, spread), free

    def compute_duals(self, rows: NDArray[np.intp], spread: Any) -> Any:
        """``b`` of rows' images: ``D^(1/2) Y`` on strong rows and ``I + D^(1/2) Y`` on weak ones, so that no small number is a difference."""
        arrays, strong = self.side.arrays, self.strong[rows]
        duals = arrays.put(self.root)[:, None] * spread
        if strong.all():
            return duals
        return arrays.add_entries(duals, np.where(strong, 0.0, 1.0), (rows, np.arange(rows.size)))

    def _row_spreads(self, rows: NDArray[np.intp]) -> tuple[Any, Array]:
        """``Y`` of :meth:`compute_duals`, and the images' unpenalised parts."""
        arrays, strong, n_rows = self.side.arrays, self.strong[rows], self.root.size
        scale = arrays.put(np.where(strong, self.root[rows], 1.0))
        if MANY_SOLVES * rows.size <= n_rows:
            spread = solve_cholesky(self.factor, arrays.units(n_rows, rows) / scale)
        else:
            inverse = invert_factor(self.factor)
            spread = (inverse if rows.size == n_rows else arrays.take(inverse, rows)) / scale
        if not strong.all():
            weak = np.flatnonzero(~strong)
            spread = arrays.replace_columns(spread, self._weak_spread(rows[weak]), weak)
        free = self.free_leverages[:, rows]
        if self.side.n_free:
            spread -= arrays.put(self.border_spread @ free)
        return spread, free

    def _weak_spread(self, rows: NDArray[np.intp]) -> Any:
        arrays = self.side.arrays
        return -solve_cholesky(self.factor, arrays.put(self.root)[:, None] * arrays.take(self.side.gram.data, rows))

    def force_norms(
        self, forces: Any, responses: Any, moves: Array, taken: Any = None
    ) -> tuple[Array, Array, Any, Any]:
        """Upper bounds of the norms of gradients given by forces on the rows (one column each), ``missed``, ``e - v`` and ``K (e - v)``.

        ``forces``: ``e``; ``responses``: ``-v = D dz`` for any changes ``dz`` of the scores; ``moves``: ``v^T D^-1 v``, as computed; ``taken``: the gradients' part
        in the unpenalised coordinates is ``U^T (e - taken)``. The norm of a free coordinate times ``missed`` is to be added to the norms.
        """
        side, arrays = self.side, self.side.arrays
        xp = arrays.xp
        residuals = forces + responses
        image = side.gram @ residuals
        sizes = xp.abs(residuals)
        norm_sum, summands = to_host(arrays.put(side.norms) @ sizes), to_host(arrays.put(side.norms) @ xp.abs(forces))
        squares = np.maximum(arrays.inner(residuals, image) + moves, 0.0) * (1.0 + gamma(self.root.size + 16))
        # The quadratic form is off by as much as a score for each entry of e - v, which was rounded itself.
        norms = np.sqrt(squares + 2.0 * side.unit * np.square(norm_sum)) * (1.0 + FEW) + TINY
        norms = norms + 4.0 * UNIT * (summands + norm_sum)
        missed = np.zeros(norms.shape)
        if side.n_free:
            sizes += xp.abs(forces)
            if taken is not None:
                sizes += xp.abs(taken)
            off = np.abs(to_host(arrays.put(side.border.T) @ (residuals if taken is None else residuals - taken)))
            off += gamma(self.root.size + 8) * to_host(arrays.put(np.abs(side.border.T)) @ sizes)
            missed = length(off, axis=0) * (1.0 + FEW)
        return norms, missed, residuals, image

    def spread(self, errors: tuple[Array, Array]) -> Array:
        """An upper bound of ``sqrt(sum_k d_k e_k^2)`` for errors ``norms[k] first + second`` of the scores."""
        first, second = np.sqrt(float(self.curvatures @ self.side.norms**2)), np.sqrt(float(self.curvatures.sum()))
        return (errors[0] * first + errors[1] * second) * (1.0 + gamma(self.curvatures.size + 8))

    def norms(self, X: Matrix) -> Array:
        out = np.empty(X.shape[0])
        height = max(64, 16 * CHUNK_BYTES // (8 * self.root.size))
        for start in range(0, X.shape[0], height):
            rows = X[start : start + height]
            out[start : start + rows.shape[0]] = self._norms(rows)
        return out

    def _norms(self, rows: Matrix) -> Array:
        rows = self.side.rows(rows)
        images = self.side.images(rows)
        spread, duals, _, missed = self._answer(images, self.side.free_part(rows).T)
        lengths = self._lengths(rows)
        return self._answer_norms(lengths, images, spread, duals, self.side.gram @ duals) + missed + self.side.tiny

    def _lengths(self, rows: Matrix) -> tuple[Array, Array]:
        """The squares of queries in the metric of the penalty, and at least their roots."""
        squares = rows.squared_row_norms(self.side.inverse)
        return squares, np.sqrt(squares) * (1.0 + gamma(rows.shape[1] + 4)) + self.side.tiny

    def _answer_norms(
        self, lengths: tuple[Array, Array], images: Array, spread: Array, duals: Array, scores: Array
    ) -> Array:
        """Upper bounds of the norms of queries whose answers miss nothing of the border; ``scores``: ``K v``."""
        side, (squares, roots) = self.side, lengths
        norm_sum = side.norms @ np.abs(duals)
        own = np.einsum("ij,ij->j", spread, spread)
        parts = squares - 2.0 * np.einsum("ij,ij->j", duals, images)
        parts += np.einsum("ij,ij->j", duals, scores) + own
        # The parts cancel; each is off by a share of (|x| + sum_k |v_k| |x_k|)^2, the last by a share of itself.
        sizes = np.square(roots + norm_sum) + own
        parts = np.maximum(parts, 0.0) + 4.0 * side.unit * sizes
        return np.sqrt(parts) * (1.0 + FEW)

    def answers(self, rows: Matrix) -> "Answers":
        """``H^-1 x`` of queries."""
        rows = self.side.rows(rows)
        return self._answers(self.side.images(rows), self.side.free_part(rows).T, self._lengths(rows))

    def answer_queries_within(self, extended: RowSide) -> "Answers":
        """``H^-1 x`` of the queries that a side of the same columns has behind the rows."""
        here, there = slice(0, self.root.size), slice(self.root.size, None)
        gram = to_host(extended.gram.data)
        return self._answers(gram[here, there], extended.border[there].T, (np.diag(gram)[there], extended.norms[there]))

    def bound_combined_norm(self, extended: RowSide, factors: Array) -> float:
        """An upper bound of the norm of the sum of the queries that a side has behind the rows, each times a factor."""
        here, there = slice(0, self.root.size), slice(self.root.size, None)
        gram, border = to_host(extended.gram.data)[:, there], extended.border[there]
        images, right = gram[here] @ factors, factors @ border
        size = float(np.abs(factors) @ extended.norms[there])
        square = np.array([max(float(factors @ gram[there] @ factors), 0.0)])
        found = self._answers(images[:, None], right[:, None], (square, np.array([size])))
        # The sums over the queries add a share of what entries of K are off by a share of, see ``_answer_norms``, and of the border.
        unit, norm_sum = gamma(2 * factors.size + 8), float(self.side.norms @ np.abs(found.duals[:, 0]))
        outer = unit * length(np.abs(factors) @ np.abs(border)) * self.free_norm if self.side.n_free else 0.0
        norm = np.hypot(found.norms[0], 2.0 * np.sqrt(unit) * (size + norm_sum)) + outer
        return float(norm) * (1.0 + FEW)

    def _answers(self, images: Array, border: Array, sizes_of: tuple[Array, Array]) -> "Answers":
        side, root, lengths = self.side, self.root[:, None], sizes_of[1]
        spread, duals, free, missed = self._answer(images, border)
        scores = side.gram @ duals
        norms = self._answer_norms(sizes_of, images, spread, duals, scores) + missed + side.tiny
        # The image is Lambda^-1 (x - X^T v) and beta; it misses X^T (v - D z) of x, z its scores.
        sizes = np.abs(side.border) @ np.abs(free) if side.n_free else np.zeros((1, lengths.size))
        errors = side.unit * (lengths + side.norms @ np.abs(duals)), side.unit * sizes.max(axis=0, initial=0.0)
        wrong = spread - root * (images - scores + side.border @ free)
        residual_norms = length(wrong, axis=0) + FEW * length(spread, axis=0) + self.spread(errors) + missed
        return Answers(images, border, duals, norms, residual_norms * (1.0 + gamma(self.root.size + 8)), lengths)

    def _answer(self, images: Array, right: Array) -> tuple[Array, Array, Array, Array]:
        """``D^(-1/2) v``, ``v``, ``beta`` and the norm of what ``v`` misses of its constraint, for vectors of the columns' dimension.

        ``images``: their products ``X Lambda^-1 x``; ``right``: their entries in the unpenalised coordinates.
        """
        side, root = self.side, self.root[:, None]
        inner = solve_cholesky(self.factor, root * images)
        if not side.n_free:
            return inner, root * inner, np.zeros((0, images.shape[1])), np.zeros(images.shape[1])
        free = self.solve_border(right - side.border.T @ (root * inner))
        spread = inner + solve_cholesky(self.factor, root * (side.border @ free))
        duals = root * spread
        missed = np.abs(right - side.border.T @ duals)
        missed += gamma(self.root.size + 8) * (np.abs(right) + np.abs(side.border).T @ np.abs(duals))
        return spread, duals, free, length(missed, axis=0) * self.free_norm * (1.0 + FEW)

    def gradient_norm(self, gradient: Array, slack: Array) -> float:
        side, n_columns = self.side, self.side.inverse.size
        places = side.problem.unpenalised
        own, free = gradient[:n_columns], np.append(gradient[places], gradient[n_columns:])
        if side.center is not None:
            slack = slack + FEW * np.append(np.abs(own) + np.abs(side.center) * np.abs(gradient[-1]), 0.0)
            slack[:n_columns] += np.abs(side.center) * slack[-1]
            own = own - side.center * gradient[-1]
        spread, duals, _, missed = self._answer(side.images(as_matrix(own[None, :])), free[:, None])
        residual = own - side.transposed_product(duals[:, 0])
        size = float(np.sqrt(residual @ (side.inverse * residual) + spread[:, 0] @ spread[:, 0]))
        # X^T v is off by gamma(n) |X|^T |v|, in the metric of the penalty by at most gamma(n) sum_k |x_k| |v_k|.
        rounding = 2.0 * gamma(self.root.size + 8) * float(side.norms @ np.abs(duals[:, 0]))
        rounding += FEW * float(np.sqrt(own @ (side.inverse * own)))
        off = float(np.sqrt(slack[:n_columns] @ (side.inverse * slack[:n_columns])))
        outer = length(np.append(slack[places], slack[n_columns:])) * self.free_norm if side.n_free else 0.0
        norm = size * (1.0 + gamma(n_columns + self.root.size + 8)) + rounding + float(missed[0])
        return (norm + off * (1.0 + gamma(n_columns + 4)) + outer) * (1.0 + FEW) + TINY

    def axis_norms(self) -> Array:
        side = self.side
        # A penalised coordinate is met with v = 0.
        axes = np.sqrt(side.inverse) * (1.0 + FEW)
        axes[side.problem.unpenalised] = self.free_norm
        if not side.problem.fit_intercept:
            return axes
        # The intercept is the score of a row of zeros.
        return np.append(axes, self._norms(as_matrix(np.zeros((1, axes.size)))))


@final
@dataclass(frozen=True, eq=False)
class Answers:
    r"""``H^-1 x`` of queries: on the penalised columns :math:`\Lambda^{-1} (x - X^\top v)`."""

    images: Array  # shape (n_rows, n_queries): ``X Lambda^-1 x``
    border: Array  # shape (n_free, n_queries): the queries' entries in the unpenalised coordinates
    duals: Array  # shape (n_rows, n_queries): ``v``
    # Shape (n_queries,): at least the norms of the queries in the inverse metric, and of what the images miss of them.
    norms: Array
    residual_norms: Array
    lengths: Array  # shape (n_queries,): at least the norms of the queries in the metric of the penalty


@final
class Leverages:
    r"""``H^-1 x`` of some rows: as ``b`` (``duals``), as scores ``Q``, and how well these are known.

    With ``r_i`` what the image of row ``i`` misses of the row, a gradient :math:`g = \tilde X^\top e` has
    :math:`\|g\|^2 = e^\top Q e + (\sum_i e_i r_i)^\top H^{-1} g`: its norm is at most :math:`\sqrt{e^\top Q e} + \sum_i |e_i| \|r_i\|`.

    Of the ``rows``, in ascending order: ``duals`` and ``scores`` are columns of ``(I + D K)^-1`` (with the border) and of ``Q``, ``complements`` are
    ``1 - d_i Q_ii``, ``free`` the images' unpenalised parts. The error of ``Q_ki`` is at most ``norms[k] first[i] + second[i]`` with the norms of
    :class:`RowSide` and ``errors = (first, second)``. ``norms`` and ``norms_without`` are at least those in the metric, and in the metric without the
    row (infinite where nothing is known), ``growth`` at least the factor by which norms grow there.
    """

    def __init__(self, metric: RowMetric, rows: NDArray[np.intp], spread: Any, free: Array) -> None:
        side, arrays = metric.side, metric.side.arrays
        self.metric, self.rows, self.free = metric, rows, free
        self._diagonal = rows, np.arange(rows.size)
        self._strong = metric.strong[rows]
        root, curvatures = metric.root[rows], metric.curvatures[rows]
        self.duals = metric.compute_duals(rows, spread)
        self.complements = arrays.entries(self.duals, self._diagonal)
        self.scores = side.gram @ self.duals
        forms = arrays.inner(self.duals, self.scores)
        if side.n_free:
            self.scores += arrays.put(side.border @ self.free)
        self._norm_sums, self._missed, self.errors = self._sizes()
        self._own, self._spread = arrays.entries(spread, self._diagonal), arrays.zero_out(spread, self._diagonal)
        # Without row i, v = -D^(1/2) Y but for v_i = 0, all divided by 1 - d_i Q_ii.
        self._scale = np.where(self.complements > 0.0, 1.0 / self.complements, np.nan)
        self._squares = np.maximum(forms + arrays.inner(self._spread, self._spread), 0.0)
        self._square_errors = gamma(metric.root.size + 16) * self._squares + 2.0 * side.unit * np.square(
            self._norm_sums
        )
        self._square_errors += 8.0 * UNIT * side.norms[rows] * np.abs(self.complements) * self._norm_sums
        norms = np.sqrt(self._squares + self._square_errors) + 8.0 * UNIT * self._norm_sums
        norms = self._scale * norms * (1.0 + FEW) + TINY
        # Without row i the norm of a free coordinate grows by sqrt(1 + d_i |x_i|^2) <= 1 + sqrt(d_i) |x_i|.
        self._off = self._scale * self._missed * (1.0 + FEW)
        kept = 1.0 - self._off * root * (1.0 + FEW)
        norms_without = np.where(kept > 0.0, (norms + self._off) / kept * (1.0 + FEW), np.inf)
        self.norms_without = np.where(np.isfinite(norms_without), norms_without, np.inf)
        self.growth = np.sqrt(1.0 + curvatures * self.norms_without**2) * (1.0 + FEW)
        # |x|^2 = a^2 / (1 + d a^2), a the norm without the row.
        norms = self.norms_without / np.sqrt(1.0 + curvatures * self.norms_without**2) * (1.0 + FEW)
        self.norms = np.where(np.isfinite(self.norms_without), norms, np.inf)

    @cached_property
    def least_norms_without(self) -> Array:
        """A lower bound of the norm of every row in the metric without it.

        The bound by a trial vector exceeds the square of the norm by at most the square of what the image misses.
        """
        norms = (
            np.sqrt(np.maximum(self._squares - self._square_errors, 0.0)) * (1.0 - FEW) - 8.0 * UNIT * self._norm_sums
        )
        norms = self._scale * np.maximum(norms, 0.0) * (1.0 - FEW)
        squares = np.square(norms) * (1.0 - FEW) - np.square(self.residual_norms_without) * (1.0 + FEW)
        norms = np.sqrt(np.maximum(squares, 0.0)) * (1.0 - FEW) - self._off * self.growth * (1.0 + FEW)
        return np.where(norms > 0.0, norms, 0.0)

    def places(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Where some of the rows are among the columns."""
        return rows if self.rows.size == self.metric.root.size else np.searchsorted(self.rows, rows)

    def _sizes(self) -> tuple[Array, Array, tuple[Array, Array]]:
        """The rows' norms summed over the images, the norms of what these miss of the border, and the scores' errors."""
        metric, side, arrays = self.metric, self.metric.side, self.metric.side.arrays
        sizes = arrays.xp.abs(self.duals)
        norm_sum, size = to_host(arrays.put(side.norms) @ sizes), metric.root.size
        if not side.n_free:
            nothing = np.zeros(norm_sum.size)
            return norm_sum, nothing, (side.unit * norm_sum * (1.0 + FEW), nothing)
        off = np.abs(to_host(arrays.put(side.border.T) @ self.duals))
        off += gamma(size + 8) * to_host(arrays.put(np.abs(side.border.T)) @ sizes)
        second = (np.abs(side.border) @ np.abs(self.free)).max(axis=0, initial=0.0)
        missed = length(off, axis=0) * metric.free_norm * (1.0 + FEW)
        return norm_sum, missed, (side.unit * norm_sum * (1.0 + FEW), side.unit * second * (1.0 + FEW))

    def _residuals(self) -> tuple[Any, Array]:
        """``D^(1/2) Q + Y`` but for ``Y_ii``, and what the rows' own entries are to be: in exact arithmetic ``Q = -D^(-1/2) Y``, but for the 1 of strong rows."""
        metric = self.metric
        residuals = metric.side.arrays.put(metric.root)[:, None] * self.scores
        residuals += self._spread
        strong = self._strong
        return residuals, np.where(strong, -1.0 / np.where(strong, metric.root[self.rows], 1.0), 0.0)

    @cached_property
    def refined(self) -> "Leverages":
        """The images after one more Newton step each: a step of iterative refinement."""
        metric, arrays = self.metric, self.metric.side.arrays
        root = arrays.put(metric.root)[:, None]
        residuals, strong = self._residuals()
        residuals = arrays.add_entries(residuals, self._own + strong, self._diagonal)
        border = to_host(arrays.put(metric.side.border.T) @ self.duals)
        change, step = metric.solve(root * residuals, border)
        _, inverse, weak = metric._scales
        # As in :meth:`RowModels.follow`: what the scores' moves leave of the residuals has lost digits where ``K`` is large.
        spread = arrays.add_entries(self._spread, self._own, self._diagonal) + inverse * step
        if weak is not None:
            spread -= weak * (residuals + root * metric.side.scores(step, change))
        return Leverages(metric, self.rows, spread, self.free + change)

    @cached_property
    def _residual_norms(self) -> tuple[Array, Array]:
        metric, arrays = self.metric, self.metric.side.arrays
        wrong, strong = self._residuals()
        seen = arrays.entries(wrong, self._diagonal)
        own = np.abs(seen + (self._own + strong)) + 8.0 * UNIT * (np.abs(seen) + np.abs(self._own) + np.abs(strong))
        others = arrays.zero_out(wrong, self._diagonal)
        squares = arrays.inner(others, others) * (1.0 + gamma(metric.root.size + 16))
        rounding = metric.spread(self.errors) + 8.0 * UNIT * self._norm_sums
        residual_norms = (np.sqrt(squares + np.square(own)) + rounding + self._missed) * (1.0 + FEW)
        # The image without the row misses what the image misses, but for its own entry, and more of the border.
        without = (self._scale * (np.sqrt(squares) + rounding) + self._off * self.growth) * (1.0 + FEW)
        return residual_norms, without

    @property
    def residual_norms(self) -> Array:
        """An upper bound of ``|r_i|``."""
        return self._residual_norms[0]

    @property
    def residual_norms_without(self) -> Array:
        """An upper bound of ``|r_i|`` in the metric without row ``i``."""
        return self._residual_norms[1]
