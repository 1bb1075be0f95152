r"""Lower bounds of a convex sum after the removal of each column, carried from one model of a backward search to the next.

With :math:`s_j = x_j^\top D \tau_j` (:mod:`glru.updates.columns.wide`), the removal of column ``j`` moves the score of a query by
:math:`\delta_j m_j`, :math:`\delta_j = -x_j^\top b / (\lambda_j - s_j)`. A convex sum of losses of the queries is at least its tangent at
the present scores, so what it needs of all queries is one product with the data. What costs a product with ``I - Q D`` is :math:`s_j` alone, and
that is carried: it is the least value of a regression of :math:`x_j` on the other columns,

.. math:: s_j = \min_u \; (x_j - \tilde X u)^\top D (x_j - \tilde X u) + u^\top \Lambda u ,

so curvatures that become :math:`D' \le c D` with :math:`c \ge 1` make it at most ``c`` times as large, and the removal of column ``k`` adds
:math:`c_{jk}^2 / (\lambda_k - s_k)` with :math:`c_{jk} = x_j^\top D \tau_k`. The remainder takes norms of :math:`\tau_j`, which the removal
makes :math:`\tau_j + \tau_k c_{jk} / (\lambda_k - s_k)` and other curvatures :math:`\tau_j - Q' (D' - D) \tau_j`. The last vector is
:math:`\tilde X H'^{-1} g` with :math:`\|g\|_{H'^{-1}} \le \epsilon (\tau_j^\top D \tau_j)^{1/2}`,
:math:`\epsilon = \max_i |d'_i - d_i| / (d_i d'_i)^{1/2}`, so that its entries are at most :math:`\max_i \|x_i\|_{H'^{-1}}` times that.
"""

from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import FEW, TINY, Array, Matrix, gamma, length, to_host
from glru.updates.columns.one_step import Moves
from glru.updates.columns.wide import Steps, WideColumns

Columns = NDArray[np.intp]

STORED = 1.5
"""The data is copied without the columns that have left once it has this many times the columns that are left."""

Tangent = tuple[float, Array]
"""A lower end of a convex sum at the present scores of the queries, and its slopes there."""


class Gone(NamedTuple):
    """The column that has left: ``D tau``, its error in the metric of ``D``, bounds of ``lam - s``, and norms of ``tau``."""

    vector: Array
    error: float
    least: float
    most: float
    moves: Moves


@final
class RemovalScreen:
    r"""What is carried of every column of a problem.

    Attributes
    ----------
    s_lower, s_upper : array of shape (n_columns,)
        Bounds of ``s_j``.
    weighted, lengths, asked_lengths : array of shape (n_columns,)
        At least :math:`(x_j^\top D x_j)^{1/2}`, :math:`\|x_j\|`, and the length of the queries' entries.
    second, fourth, most : array of shape (n_columns,)
        Of :math:`\tau_j` as in :class:`~glru.updates.columns.one_step.Moves`.
    """

    def __init__(self, family: WideColumns, matrix: Matrix, queries: Matrix, chosen: Columns, lam: Array) -> None:
        size, self.lam = matrix.shape[1], lam
        self.s_lower, self.s_upper = np.zeros(size), np.array(lam)
        self.weighted, self.lengths, self.asked_lengths = np.full((3, size), np.inf)
        self.second, self.fourth, self.most = np.full((3, size), np.inf)
        self.curvatures = family.metric.curvatures
        self.matrix, self.queries, self.stored = matrix, queries, np.arange(size)
        self.center = np.zeros(size)
        if family.side.center is not None:
            self.center[chosen] = family.side.center
        self._gone: Gone | None = None

    def take(self, columns: Columns, steps: Steps) -> None:
        """Take in what steps of some columns have found in the metric of :attr:`curvatures`."""
        self.s_lower[columns], self.s_upper[columns] = steps.s_bounds
        self.weighted[columns], self.lengths[columns] = steps.weighted, steps.lengths
        moves = steps.unit_moves
        self.second[columns], self.fourth[columns], self.most[columns] = moves.second, moves.fourth, moves.most
        n_asked = len(steps.block.asked)
        self.asked_lengths[columns] = length(steps.block.asked, axis=0) * (1.0 + gamma(n_asked + 4))
        # The queries that are multiplied are not centred.
        self.asked_lengths[columns] += 2.0 * np.sqrt(n_asked) * np.abs(self.center[columns]) * (1.0 + FEW)

    def take_dead(self, columns: Columns) -> None:
        """Take in that some columns have no value in any row that counts: their coefficients are zero, with or without others."""
        self.s_upper[columns] = 0.0
        for part in (self.weighted, self.lengths, self.asked_lengths, self.second, self.fourth, self.most):
            part[columns] = 0.0

    def follow(self, family: WideColumns, steps: Steps) -> None:
        """Follow the removal of the one column that steps are about, in the metric of ``family``."""
        vector = family.metric.curvatures * to_host(steps.tau)[:, 0]
        error = family.total * float(steps.tau_error[0]) * (1.0 + FEW)
        low, lam = float(steps.s_bounds[0][0]), float(steps.block.lam[0])
        self._gone = Gone(vector, error, float(steps.least[0]), (lam - low) * (1.0 + FEW), steps.unit_moves)

    def bounds(self, family: WideColumns, chosen: Columns, tangent: Tangent) -> Array:
        """Lower bounds of the sum after the removal of each of the present columns."""
        value, slopes = tangent
        base, answers = family.base, family.answers
        combined = answers.duals @ slopes
        vectors = [base.duals, combined] if self._gone is None else [base.duals, combined, self._gone.vector]
        products, sizes = self._products(vectors, chosen)
        unit = gamma(base.duals.size + 8)
        with np.errstate(all="ignore"):
            if self._gone is not None:
                self._follow_column(self._gone, chosen, products[2], unit * sizes)
            self._gone = None
            self._follow_curvatures(family, chosen)
            right, right_error = products[0], unit * sizes * length(base.duals) * (1.0 + FEW)
            lam = self.lam[chosen]
            least = (lam - self.s_upper[chosen]) * (1.0 - FEW) - FEW * lam
            least = np.where(least > 0.0, least, np.nan)
            most = (lam - self.s_lower[chosen]) * (1.0 + FEW)
            largest = (np.abs(right) + right_error) / least * (1.0 + FEW)
            smallest = np.maximum(np.abs(right) - right_error, 0.0) / most * (1.0 - FEW)
            # The tangent's slope along the step, and how far it may be off: see ``Steps.queries``; slopes are off by a few units.
            size = np.abs(slopes)
            asked = self._asked(slopes, chosen) - products[1]
            sums = length(slopes) * self.asked_lengths[chosen] + sizes * float(size @ length(answers.duals, axis=0))
            off = float(size @ answers.residual_norms) * (np.sqrt(lam) * (1.0 + FEW) + TINY)
            off = (off + (unit + gamma(slopes.size + 8) + 4.0 * FEW) * sums) * (1.0 + FEW)
            rises = (right * asked < 0.0) & (np.abs(right) > right_error) & (np.abs(asked) > off)
            change = np.where(rises, smallest * (np.abs(asked) - off), -largest * (np.abs(asked) + off))
            radius = self._radius(family, chosen, largest)
            # Slopes are off by a few units, so that each query's own move counts with a share.
            norm = family.metric.bound_combined_norm(family.extended, slopes) + 8.0 * FEW * float(size @ answers.norms)
            half = radius * norm + float(size @ family.query_errors)
            low = value + change - half * (1.0 + gamma(slopes.size + 8)) - FEW * (abs(value) + np.abs(change) + half)
        return np.where(np.isnan(low), -np.inf, low)

    def _radius(self, family: WideColumns, chosen: Columns, size: Array) -> Array:
        """The radius of the local certificate at each Newton candidate, whose steps are at most ``size``."""
        constant, base = family.constant, family.base
        sums = self.second[chosen], self.fourth[chosen], self.most[chosen]
        moves = Moves.of(sums, size, np.zeros_like(size), family.total**2)
        exponent = family.base_exponent
        nu = (moves.gradient_norms(constant, exponent) + base.nu) * (1.0 + FEW) + TINY
        return family.radius(nu, (constant * moves.most + exponent) * (1.0 + FEW))

    def _follow_column(self, gone: Gone, chosen: Columns, along: Array, unit: Array) -> None:
        """Bring what is carried to the model without a column; ``along``: products with its vector, ``unit``: their error over its length."""
        off = (self.weighted[chosen] * gone.error + unit * length(gone.vector)) * (1.0 + FEW)
        met = np.abs(along)
        low = np.square(np.maximum(met - off, 0.0)) / gone.most * (1.0 - FEW)
        share = (met + off) / gone.least * (1.0 + FEW)
        self.s_lower[chosen] = (self.s_lower[chosen] + low) * (1.0 - FEW)
        self.s_upper[chosen] = (self.s_upper[chosen] + (met + off) * share) * (1.0 + FEW)
        for name in ("second", "fourth", "most"):
            part = getattr(self, name)
            part[chosen] = (part[chosen] + share * getattr(gone.moves, name)) * (1.0 + FEW)

    def _follow_curvatures(self, family: WideColumns, chosen: Columns) -> None:
        """Bring what is carried to the curvatures of the metric of ``family``."""
        old, new = self.curvatures, family.metric.curvatures
        ratios = np.where(old == new, 1.0, new / old)
        # Nothing is known any more where a curvature has come or gone.
        grown, shrunk = max(float(ratios.max(initial=1.0)), 1.0), min(float(ratios.min(initial=1.0)), 1.0)
        moved = float((np.abs(ratios - 1.0) / np.sqrt(ratios)).max(initial=0.0)) * (1.0 + FEW) + FEW
        norm = float(family.known.norms[family.used].max())
        extra = moved * self.second[chosen] * (1.0 + FEW)
        self.s_upper[chosen] *= grown * (1.0 + FEW)
        self.s_lower[chosen] *= shrunk * (1.0 - FEW)
        self.weighted[chosen] *= np.sqrt(grown) * (1.0 + FEW)
        self.second[chosen] = (self.second[chosen] * np.sqrt(grown) + extra) * (1.0 + FEW)
        self.fourth[chosen] = (self.fourth[chosen] * grown**0.25 + extra * np.sqrt(norm)) * (1.0 + FEW)
        self.most[chosen] = (self.most[chosen] + extra * norm) * (1.0 + FEW)
        self.curvatures = new

    def _products(self, vectors: list[Array], chosen: Columns) -> tuple[Array, Array]:
        """Products of centred columns with some vectors, and what their rounding errors are a share of, times the vectors' lengths."""
        if self.stored.size > STORED * chosen.size:
            left = np.flatnonzero(np.isin(self.stored, chosen))
            self.matrix, self.queries, self.stored = self.matrix[:, left], self.queries[:, left], self.stored[left]
        center, places, arrays = self.center[chosen], np.searchsorted(self.stored, chosen), self.matrix.arrays
        # One by one: each passes over the data once, at the speed of the memory.
        found = np.array(
            [to_host(self.matrix.T @ arrays.put(vector))[places] - center * vector.sum() for vector in vectors]
        )
        return found, self.lengths[chosen] + 2.0 * np.sqrt(vectors[0].size) * np.abs(center)

    def _asked(self, slopes: Array, chosen: Columns) -> Array:
        """The queries' centred entries in every column, summed with some slopes."""
        found: Array = to_host(self.queries.T @ slopes[:, None])[np.searchsorted(self.stored, chosen), 0]
        return found - self.center[chosen] * slopes.sum()
