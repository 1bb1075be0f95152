r"""Lower bounds of a convex sum after the removal of each column, carried from one model of a backward search to the next.

With :math:`s_j = x_j^\top D \tau_j` (:mod:`glru.updates.columns.wide`), the removal of column ``j`` moves the score of a query by
:math:`\delta_j m_j`, :math:`\delta_j = -x_j^\top b / (\lambda_j - s_j)`. A convex sum of losses of the queries is at least its tangent at
the present scores, so what it needs of a column is :math:`x_j^\top b` and :math:`m_j` summed with the slopes, which is
:math:`q_j^\top \sigma - x_j^\top c`: two products. What costs a product with ``I - Q D`` is :math:`s_j`, the least value of a regression of
:math:`x_j` on the other columns, and norms of the vector :math:`\tau_j` that it leaves:

.. math:: s_j = \min_u \; (x_j - \tilde X u)^\top D (x_j - \tilde X u) + u^\top \Lambda u \ge \tau_j^\top D \tau_j .

These are carried. The removal of column ``k`` adds :math:`c_{jk}^2 / (\lambda_k - s_k)` to :math:`s_j` and
:math:`\tau_k c_{jk} / (\lambda_k - s_k)` to :math:`\tau_j`, :math:`c_{jk} = x_j^\top D \tau_k`: one product more. Curvatures that become
:math:`D' \le g D` with :math:`g \ge 1` make :math:`s_j` at most ``g`` times as large, and :math:`\tau_j` becomes :math:`\tau_j - Q' (D' - D) \tau_j`. That
difference is :math:`\tilde X H'^{-1} e` with :math:`\|e\|^2_{H'^{-1}} \le \sum_i \rho_i^2 d_i \tau_{ij}^2`, :math:`\rho_i = |d'_i - d_i| / (d_i d'_i)^{1/2}`, where
the few rows that have changed most count by the largest :math:`|\tau_{ij}|`. Its entries are at most :math:`\max_i \|x_i\|_{H'^{-1}}` times that norm.
"""

from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import FEW, TINY, Array, Matrix, gamma, length, to_host
from glru.updates.columns.one_step import Moves
from glru.updates.columns.wide import Steps, WideColumns

Columns = NDArray[np.intp]

STORED = 1.5
"""The data is copied without the removed columns once it has this many times as many columns as are left."""

NUMBERS = "s_lower", "s_upper", "weighted", "lengths", "asked_lengths", "second", "fourth", "most"
"""What :class:`RemovalScreen` carries of each column."""

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
    r"""What is carried of the columns of a problem.

    Attributes
    ----------
    columns : array of int
        The columns, of which some may have left.
    s_lower, s_upper : array of shape (n_columns,)
        Bounds of ``s_j``.
    weighted, lengths, sizes, asked_lengths : array of shape (n_columns,)
        At least :math:`(x_j^\top D x_j)^{1/2}`, :math:`\|x_j\|`, that before it was centred, and the length of the queries' entries.
    second, fourth, most : array of shape (n_columns,)
        Of :math:`\tau_j` as in :class:`~glru.updates.columns.one_step.Moves`.
    """

    def __init__(self, family: WideColumns, matrix: Matrix, queries: Matrix, columns: Columns, lam: Array) -> None:
        self.matrix, self.queries, self.stored = matrix, queries, np.arange(matrix.shape[1])
        self.columns, self.left, self.lam = columns, np.ones(columns.size, dtype=bool), lam[columns]
        center = family.side.center
        self.center = np.zeros(columns.size) if center is None else center
        self.s_lower, self.s_upper = np.zeros(columns.size), self.lam.copy()
        self.weighted, self.lengths, self.sizes, self.asked_lengths = np.full((4, columns.size), np.inf)
        self.second, self.fourth, self.most = np.full((3, columns.size), np.inf)
        self.curvatures = family.metric.curvatures
        self._gone: Gone | None = None

    def take(self, columns: Columns, steps: Steps) -> None:
        """Take in what steps of some columns have found in the metric of :attr:`curvatures`."""
        places, n_asked, moves = np.searchsorted(self.columns, columns), len(steps.block.asked), steps.unit_moves
        self.s_lower[places], self.s_upper[places] = steps.s_bounds
        self.weighted[places], self.lengths[places] = steps.weighted, steps.lengths
        self.second[places], self.fourth[places], self.most[places] = moves.second, moves.fourth, moves.most
        # The columns and the queries that are multiplied are not centred.
        away = 2.0 * np.abs(self.center[places]) * (1.0 + FEW)
        self.sizes[places] = steps.lengths + np.sqrt(steps.values.shape[0]) * away
        asked = length(steps.block.asked, axis=0) * (1.0 + gamma(n_asked + 4))
        self.asked_lengths[places] = asked + np.sqrt(n_asked) * away

    def take_dead(self, columns: Columns) -> None:
        """Take in that some columns have no value in any row that counts: their coefficients are zero, with or without others."""
        places = np.searchsorted(self.columns, columns)
        for name in NUMBERS:
            getattr(self, name)[places] = 0.0
        self.sizes[places] = 2.0 * np.sqrt(self.curvatures.size) * np.abs(self.center[places])

    def follow(self, family: WideColumns, steps: Steps) -> None:
        """Follow the removal of the one column that steps are about, in the metric of ``family``."""
        vector = family.metric.curvatures * to_host(steps.tau)[:, 0]
        error = family.total * float(steps.tau_error[0]) * (1.0 + FEW)
        low, lam = float(steps.s_bounds[0][0]), float(steps.block.lam[0])
        self._gone = Gone(vector, error, float(steps.least[0]), (lam - low) * (1.0 + FEW), steps.unit_moves)

    def bounds(self, family: WideColumns, chosen: Columns, tangent: Tangent) -> tuple[Array, Array]:
        """Lower bounds of the sum after the removal of each of some present columns, and about the most that it adds."""
        value, slopes = tangent
        self._leave_out(chosen)
        with np.errstate(all="ignore"):
            if self._gone is not None:
                self._follow_column(self._gone)
            self._gone = None
            self._follow_curvatures(family)
            changes, guesses = (found[self.left] for found in self._changes(family, slopes))
            low = value + changes - FEW * (abs(value) + np.abs(changes))
        return np.where(np.isnan(low), -np.inf, low), guesses

    def _leave_out(self, chosen: Columns) -> None:
        """Leave out the columns that are not among some."""
        places = np.flatnonzero(self.left)
        if places.size == chosen.size + 1:
            differ = self.columns[places[:-1]] != chosen
            self.left[places[int(np.argmax(differ)) if differ.any() else -1]] = False
        elif places.size != chosen.size:
            self.left = np.isin(self.columns, chosen)
        if self.columns.size > STORED * chosen.size:
            for name in ("lam", "center", "sizes", *NUMBERS):
                setattr(self, name, getattr(self, name)[self.left])
            self.columns, self.left = chosen, np.ones(chosen.size, dtype=bool)
        if self.stored.size > STORED * self.columns.size:
            kept = np.searchsorted(self.stored, self.columns)
            self.matrix, self.queries, self.stored = self.matrix[:, kept], self.queries[:, kept], self.columns

    def _follow_column(self, gone: Gone) -> None:
        """Bring what is carried to the model without a column."""
        met, unit = np.abs(self._product(gone.vector)), gamma(gone.vector.size + 8)
        off = (self.weighted * gone.error + unit * self.sizes * length(gone.vector)) * (1.0 + FEW)
        low = np.square(np.maximum(met - off, 0.0)) / gone.most * (1.0 - FEW)
        share = (met + off) / gone.least * (1.0 + FEW)
        self.s_lower = (self.s_lower + low) * (1.0 - FEW)
        self.s_upper = (self.s_upper + (met + off) * share) * (1.0 + FEW)
        for name in ("second", "fourth", "most"):
            setattr(self, name, (getattr(self, name) + share * getattr(gone.moves, name)) * (1.0 + FEW))

    def _follow_curvatures(self, family: WideColumns) -> None:
        """Bring what is carried to the curvatures of the metric of ``family``."""
        old, new = self.curvatures, family.metric.curvatures
        if new is old:
            return
        ratios = np.where(old == new, 1.0, new / old)
        # Nothing is known any more where a curvature has come or gone.
        grown, shrunk = max(float(ratios.max(initial=1.0)), 1.0), min(float(ratios.min(initial=1.0)), 1.0)
        away = np.abs(ratios - 1.0) / np.sqrt(ratios) * (1.0 + FEW) + FEW
        far = away > 0.25 * away.max(initial=0.0)
        rest, most = float(away[~far].max(initial=0.0)), length(away[far] * np.sqrt(old[far]))
        norm = float(family.known.norms[family.used].max())
        self.second = np.minimum(self.second, np.sqrt(self.s_upper) * (1.0 + FEW))
        extra = np.fmin(away.max(initial=0.0) * self.second, np.hypot(rest * self.second, most * self.most))
        extra *= 1.0 + gamma(old.size + 8)
        self.s_upper *= grown * (1.0 + FEW)
        self.s_lower *= shrunk * (1.0 - FEW)
        self.weighted *= np.sqrt(grown) * (1.0 + FEW)
        self.second = (self.second * np.sqrt(grown) + extra) * (1.0 + FEW)
        self.fourth = (self.fourth * grown**0.25 + extra * np.sqrt(norm)) * (1.0 + FEW)
        self.most = (self.most + extra * norm) * (1.0 + FEW)
        self.curvatures = new

    def _product(self, vector: Array) -> Array:
        """Products of all centred columns with a vector: one pass over the data, at the speed of the memory."""
        found = to_host(self.matrix.T @ self.matrix.arrays.put(vector))
        return found[np.searchsorted(self.stored, self.columns)] - self.center * vector.sum()

    def _changes(self, family: WideColumns, slopes: Array) -> tuple[Array, Array]:
        """An upper bound of what the removal of each column adds to the sum, and about the most that it adds."""
        base, answers, size, unit = family.base, family.answers, np.abs(slopes), gamma(family.base.duals.size + 8)
        lam, sizes, right = self.lam, self.sizes, self._product(base.duals)
        queries = to_host(self.queries.T @ slopes[:, None])[np.searchsorted(self.stored, self.columns), 0]
        asked = queries - self.center * slopes.sum() - self._product(answers.duals @ slopes)
        right_error = unit * sizes * length(base.duals) * (1.0 + FEW)
        least = (lam - self.s_upper) * (1.0 - FEW) - FEW * lam
        least = np.where(least > 0.0, least, np.nan)
        most = (lam - self.s_lower) * (1.0 + FEW)
        largest = (np.abs(right) + right_error) / least * (1.0 + FEW)
        smallest = np.maximum(np.abs(right) - right_error, 0.0) / most * (1.0 - FEW)
        # The tangent's slope along the step, and how far it may be off: see ``Steps.queries``; slopes are off by a few units.
        sums = length(slopes) * self.asked_lengths + sizes * float(size @ length(answers.duals, axis=0))
        off = float(size @ answers.residual_norms) * (np.sqrt(lam) * (1.0 + FEW) + TINY)
        off = (off + (unit + gamma(slopes.size + 8) + 4.0 * FEW) * sums) * (1.0 + FEW)
        rises = (right * asked < 0.0) & (np.abs(right) > right_error) & (np.abs(asked) > off)
        change = np.where(rises, smallest * (np.abs(asked) - off), -largest * (np.abs(asked) + off))
        # Slopes are off by a few units, so that each query's own move counts with a share.
        norm = family.metric.bound_combined_norm(family.extended, slopes) + 8.0 * FEW * float(size @ answers.norms)
        half = self._radius(family, largest) * norm + float(size @ family.query_errors)
        half *= 1.0 + gamma(slopes.size + 8)
        return change - half - FEW * (np.abs(change) + half), half - right * asked / least

    def _radius(self, family: WideColumns, size: Array) -> Array:
        """The radius of the local certificate at each Newton candidate, whose steps are at most ``size``."""
        constant, exponent = family.constant, family.base_exponent
        moves = Moves.of((self.second, self.fourth, self.most), size, np.zeros_like(size), family.total**2)
        nu = (moves.gradient_norms(constant, exponent) + family.base.nu) * (1.0 + FEW) + TINY
        return family.radius(nu, (constant * moves.most + exponent) * (1.0 + FEW))
