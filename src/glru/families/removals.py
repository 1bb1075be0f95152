r"""The removal of any single row from a model, in closed form: a Newton step and its local certificate, row by row.

Let :math:`A` be the Hessian at the base model with the new weights :math:`s'` on all rows, :math:`r'` the gradient there,
:math:`Q = X A^{-1} X^\top`, :math:`p = -X A^{-1} r'`. Without row ``i`` a Newton step moves the model by
:math:`\delta = A^{-1}(c_i x_i - r')`, :math:`c_i = s'_i (g_i + h_i p_i) / (1 - \ell_i)`, :math:`\ell_i = s'_i h_i Q_{ii}`, and row ``i``'s score by
:math:`p_i + c_i Q_{ii}`. With :math:`M = A - s'_i h_i x_i x_i^\top \ge (1 - \ell_i) A`, :math:`T \ge \max_k |x_k^\top \delta|` and
:math:`\kappa \ge \max_k \|x_k\|_{M^{-1}}` (times the self-concordance constant),

.. math:: \nu = \tfrac{e^T - 1 - T}{T} \|\delta\|_M \ge \|\nabla P(\hat w)\|_{M^{-1}}, \qquad
          \|w^* - \hat w\|_M \le -\log(1 - \kappa \nu e^T) / \kappa .

Rounding: :math:`\delta` is defined by the computed factor :math:`\tilde A`, with :math:`(1 - \eta) \tilde A \le A \le (1 + \eta) \tilde A`, and by the
computed numbers :math:`c_i` and :math:`r'`. What that leaves of the Newton equation, the error of :math:`r'`, of :math:`c_i` and
:math:`(A - \tilde A) \delta`, is added to :math:`\nu`.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru._numerics import TINY, UNIT, Array, Matrix
from glru.certificate import FEW
from glru.families.gradients import SLOW, local_radius
from glru.regions.base import Bounds, widened
from glru.regions.metric import ColumnMetric

Decided = Callable[[Array, Array], NDArray[np.bool_]]

SERIES = 1e-4
"""Up to here ``(e^t - 1 - t) / t`` is replaced by ``t (1/2 + t)``, which is more."""

LOST = 8.0 * UNIT / SERIES
"""Relative error of ``(e^t - 1) - t`` beyond: a few units of ``t`` in a difference of at least ``t^2 / 2``."""


@final
@dataclass(frozen=True, eq=False)
class Removals:
    """Some rows and the Newton steps of their removals, an entry each.

    Attributes
    ----------
    weights : array
        Their new weights ``s'``.
    scores, off : array
        Their scores at the base and how far each may be from its exact value.
    slopes, bends : array
        The loss derivatives there.
    norms : array
        At least their norms in the inverse metric.
    moves, lengths : array
        What the step that all removals share does to their scores, and at least its norm in the metric.
    leverage, rest : array
        ``l_i``, and what the metric without the row keeps at least of the metric.
    change : array
        ``c_i``.
    """

    weights: Array
    scores: Array
    off: Array
    slopes: Array
    bends: Array
    norms: Array
    moves: Array
    lengths: Array
    leverage: Array
    rest: Array
    change: Array

    def take(self, places: NDArray[np.intp]) -> "Removals":
        """Some of them."""
        return Removals(*(getattr(self, field.name)[places] for field in fields(self)))


@final
@dataclass(frozen=True, eq=False)
class Measured:
    """Models without one row each, measured on all rows.

    Attributes
    ----------
    centers, errors : array of shape (n_models,)
        The left-out rows' scores and how far each may be from its exact value.
    gradient : array of shape (n_unknowns, n_models)
        The gradients of the objectives without the row.
    nu : array of shape (n_models,)
        At least their norms in the inverse metric.
    moved : array of shape (n_models,)
        At least the largest move of another row's score from where the metric was taken.
    """

    centers: Array
    gradient: Array
    nu: Array
    moved: Array
    errors: Array


Measure = Callable[[Array, NDArray[np.intp]], Measured]
"""Measures the models (a column each) of the removals at some places."""


@final
@dataclass(frozen=True, eq=False)
class Base:
    """The model that all removals start from: its metric, and what rounding and training left there.

    Attributes
    ----------
    metric : ColumnMetric
        The computed metric.
    eta : float
        The exact Hessian with the new weights is within ``1 -/+ eta`` times the metric.
    constant, smoothness : float
        Of the loss.
    slack_norm : float
        At least the norm of the gradient's error.
    """

    metric: ColumnMetric
    eta: float
    constant: float
    smoothness: float
    slack_norm: float

    def removals(
        self,
        weights: Array,
        scores: Array,
        off: Array,
        slopes: Array,
        bends: Array,
        norms: Array,
        moves: Array,
        lengths: Array | float,
    ) -> Removals:
        """The removals of rows; the arguments are attributes of :class:`Removals`."""
        leverage = weights * bends * norms**2
        rest = 1.0 - self.eta - leverage * (1.0 + self.eta)
        with np.errstate(all="ignore"):
            change = weights * (slopes + bends * moves) / (1.0 - leverage)
        change = np.where(np.isfinite(change) & (rest > 0.0), change, 0.0)
        lengths = np.broadcast_to(lengths, weights.shape)
        return Removals(weights, scores, off, slopes, bends, norms, moves, lengths, leverage, rest, change)

    @cached_property
    def _room(self) -> float:
        """What was added to every norm for squares that underflow."""
        return TINY * (1.0 + float(np.linalg.norm(self.metric.inverse))) * (1.0 + FEW)

    def bounds(self, rows: Removals, top: float) -> Bounds:
        """Bounds of the rows' scores under the models trained without them; ``top``: at least the largest norm."""
        weights, slopes, bends, norms, moves = rows.weights, rows.slopes, rows.bends, rows.norms, rows.moves
        change = rows.change
        error, step_norm = self.metric.solve_error, rows.lengths
        squares = norms**2
        shifts = moves + change * squares
        # The step took two triangular solves and a product; the squares are those of norms that were rounded up.
        shift_error = 2.0 * error * norms * step_norm + 5.0 * error * np.abs(change) * squares
        shift_error += FEW * (np.abs(moves) + np.abs(change) * squares)
        # The norms have room for squares that underflow; a centre must not be moved by that.
        shift_error += np.abs(change) * self._room * (2.0 * norms + self._room)
        length = step_norm**2 + 2.0 * change * moves + change**2 * squares
        length = np.maximum(length, 0.0) + (8.0 * error + FEW) * (step_norm**2 + change**2 * squares)
        length = np.sqrt(length) * (1.0 + FEW)
        delta = length * np.sqrt(1.0 + self.eta) * (1.0 + FEW)
        left_over = np.abs(weights * (slopes + bends * shifts) - change) + FEW * np.abs(change)
        left_over += weights * (bends * shift_error + FEW * (np.abs(slopes) + np.abs(bends * shifts)))
        # The row's own slope and curvature were taken at a score that is off, too.
        left_over += weights * self.smoothness * rows.off * (1.0 + 2.0 * self.constant * np.abs(shifts))
        residual = self.slack_norm + left_over * norms + self.eta * delta
        with np.errstate(all="ignore"):
            reach = self.constant * top * length * (1.0 + FEW)
            remainder = np.where(reach > SERIES, (np.expm1(reach) - reach) / reach, reach * (0.5 + reach))
            nu = remainder * (1.0 + LOST) * delta + residual / np.sqrt(rows.rest)
        return self.widened(rows, top, rows.scores + shifts, nu, reach, shift_error + rows.off, np.abs(shifts))

    def widened(
        self, rows: Removals, top: float, centers: Array, nu: Array, reach: Array, errors: Array, sizes: Array
    ) -> Bounds:
        """Bounds from the gradients' norms at the candidates (in the metric without each row) and the scores' moves."""
        with np.errstate(invalid="ignore"):
            root = np.sqrt(rows.rest)
        radius = local_radius(self.constant, top / root, nu, reach)
        with np.errstate(invalid="ignore"):
            half = rows.norms / root * radius + errors + FEW * (np.abs(centers) + sizes)
        usable = (rows.rest > 0.0) & np.isfinite(half)
        return widened(np.where(usable, centers, 0.0), np.where(usable, half, np.inf))

    def stepped(
        self, rows: Removals, block: Array, start: Array, top: float, measure: Measure, decided: Decided, n_steps: int
    ) -> Bounds:
        """Bounds after Newton steps with the old Hessian, each written down in full and certified by its own gradient.

        Parameters
        ----------
        rows : Removals
            Removals that leave something of the metric.
        block : array of shape (n_removals, n_unknowns)
            The rows' data, with a 1 for the intercept.
        start : array of shape (n_unknowns,) or (n_removals, n_unknowns)
            The base after the step that all removals share, for all or for each.
        top : float
            At least the largest norm of a row.
        measure, decided : callable
            Measures models on all rows; says which bounds are good enough.
        n_steps : int
            Most steps.
        """
        n_removals = block.shape[0]
        lower, upper = np.full(n_removals, -np.inf), np.full(n_removals, np.inf)
        images = self.metric.solve(block.T)
        models = np.atleast_2d(start).T + images * rows.change
        active, before = np.arange(n_removals), np.full(n_removals, np.inf)
        for _ in range(n_steps):
            if not active.size:
                break
            found, left = measure(models[:, active], active), rows.take(active)
            nu, sizes = found.nu / np.sqrt(left.rest), np.zeros(active.size)
            low, high = self.widened(left, top, found.centers, nu, self.constant * found.moved, found.errors, sizes)
            lower[active], upper[active] = np.maximum(lower[active], low), np.minimum(upper[active], high)
            going = ~decided(lower[active], upper[active]) & (nu < SLOW * before[active])
            before[active] = nu
            active = active[going]
            # The Hessian without the row, by the Sherman-Morrison formula.
            solved = self.metric.solve(found.gradient[:, going])
            bend = rows.weights[active] * rows.bends[active]
            fed = bend * np.einsum("ij,ij->j", block[active].T, solved) / (1.0 - rows.leverage[active])
            models[:, active] -= solved + images[:, active] * fed
        return lower, upper


def rough_top(metric: ColumnMetric, eta: float, plain: float, strength: float) -> float:
    """At least the largest norm of a row in the inverse metric, from the largest Euclidean one, which costs nothing.

    ``eta``: the exact Hessian is at most ``1 + eta`` times the metric; ``strength``: the least strength of the penalty.
    """
    plain = float(np.hypot(plain, 1.0)) if metric.fit_intercept else plain
    largest = float(np.linalg.norm(metric.inverse)) * (1.0 + metric.solve_error)
    if strength > 0.0 and not metric.fit_intercept:
        largest = min(largest, float(np.sqrt((1.0 + eta) / strength)))
    return plain * largest * (1.0 + FEW)


def with_ones(X: Matrix, fit_intercept: bool) -> Array:
    """Rows as a dense array, with a 1 for the intercept."""
    block = X if isinstance(X, np.ndarray) else X.toarray()
    return np.column_stack([block, np.ones(block.shape[0])]) if fit_intercept else block
