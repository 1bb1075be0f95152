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
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, widen
from glru.linalg import FEW, UNIT, Array, Matrix
from glru.metric.columns import ColumnMetric
from glru.regions.summed import local_radius
from glru.updates.gradients import SLOW

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
    gradient: Any
    nu: Array
    moved: Array
    errors: Array


Measure = Callable[[Any, NDArray[np.intp]], Measured]
"""Measures the models (a column each) of the removals at some places."""

Newton = Callable[[Any, Any, NDArray[np.intp]], Any]
"""Steps from models, given their gradients, of the removals at some places."""


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

    def bounds(self, rows: Removals, top: float) -> Bounds:
        """Bounds of the rows' scores under the models trained without them; ``top``: at least the largest norm."""
        norms, moves, change = rows.norms, rows.moves, rows.change
        error, step_norm = self.metric.solve_error, rows.lengths
        size = np.abs(change)
        own = change * norms
        push = own * norms
        shifts = moves + push
        far = np.abs(shifts)
        shift_error = self._shift_errors(rows, size, push)
        parts = step_norm**2 + own**2
        length = np.maximum(parts + 2.0 * change * moves, 0.0) + (8.0 * error + FEW) * parts
        length = np.sqrt(length) * (1.0 + FEW)
        delta = length * (np.sqrt(1.0 + self.eta) * (1.0 + FEW))
        residual = self._residuals(rows, size, shifts, far, shift_error, delta)
        with np.errstate(all="ignore"):
            reach = self.constant * top * length * (1.0 + FEW)
            nu = newton_remainders(reach) * delta + residual / np.sqrt(rows.rest)
        return self.widened(rows, top, rows.scores + shifts, nu, reach, shift_error + rows.off, far)

    def _shift_errors(self, rows: Removals, size: Array, push: Array) -> Array:
        """How far the computed moves of the rows' scores may be off; ``size`` is ``|c_i|``, ``push`` is ``c_i Q_ii``."""
        error = self.metric.solve_error
        # The step took two triangular solves and a product; the squares are those of norms that were rounded up, by a share
        # of themselves and by what covers underflow.
        errors = rows.norms * (2.0 * error * rows.lengths + (2.0 * self.metric.tiny) * size)
        errors += (5.0 * error + FEW) * np.abs(push) + FEW * np.abs(rows.moves)
        return errors

    def _residuals(
        self, rows: Removals, size: Array, shifts: Array, far: Array, shift_error: Array, delta: Array
    ) -> Array:
        """At least the norm of what the errors of ``r'``, of ``c_i`` and of the metric leave of the Newton equation."""
        # The row's own slope and curvature were taken at a score that is off, too.
        wrong = rows.bends * (shift_error + FEW * far) + FEW * np.abs(rows.slopes)
        wrong += self.smoothness * rows.off * (1.0 + (2.0 * self.constant) * far)
        left_over = np.abs(rows.weights * (rows.slopes + rows.bends * shifts) - rows.change)
        left_over = left_over + FEW * size + rows.weights * wrong
        return self.slack_norm + left_over * rows.norms + self.eta * delta

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
        return widen(np.where(usable, centers, 0.0), np.where(usable, half, np.inf))

    def stepped(
        self,
        rows: Removals,
        block: Any,
        start: Array,
        top: float,
        measure: Measure,
        decided: Decided,
        n_steps: int,
        newton: Newton | None = None,
    ) -> Bounds:
        """Bounds after Newton steps, each written down in full and certified by its own gradient.

        Parameters
        ----------
        rows : Removals
            Removals that leave something of the metric.
        block : array of shape (n_removals, n_unknowns)
            The rows' data, with a 1 for the intercept, where the metric lives.
        start : array of shape (n_unknowns,) or (n_removals, n_unknowns)
            The base after the step that all removals share, for all or for each.
        top : float
            At least the largest norm of a row.
        measure, decided : callable
            Measures models on all rows; says which bounds are good enough.
        n_steps : int
            Most steps.
        newton : callable, default=None
            Gives the steps; if not given they are those of the old Hessian without the row.
        """
        arrays, n_removals = self.metric.arrays, block.shape[0]
        lower, upper = np.full(n_removals, -np.inf), np.full(n_removals, np.inf)
        block = block.T
        images = self.metric.solve(block)
        models = arrays.put(np.atleast_2d(start).T) + images * arrays.put(rows.change)
        active, before = np.arange(n_removals), np.full(n_removals, np.inf)
        for _ in range(n_steps):
            if not active.size:
                break
            found, left = measure(models, active), rows.take(active)
            nu, sizes = found.nu / np.sqrt(left.rest), np.zeros(active.size)
            low, high = self.widened(left, top, found.centers, nu, self.constant * found.moved, found.errors, sizes)
            lower[active], upper[active] = np.maximum(lower[active], low), np.minimum(upper[active], high)
            going = ~decided(lower[active], upper[active]) & (nu < SLOW * before[active])
            before[active] = nu
            active = active[going]
            if not active.size:
                break
            block, images, models = (arrays.take(matrix, going) for matrix in (block, images, models))
            gradient = arrays.take(found.gradient, going)
            if newton is not None:
                models = models + newton(models, gradient, active)
                continue
            # The Hessian without the row, by the Sherman-Morrison formula.
            solved = self.metric.solve(gradient)
            bend = rows.weights[active] * rows.bends[active]
            fed = bend * arrays.inner(block, solved) / (1.0 - rows.leverage[active])
            models = models - (solved + images * arrays.put(fed))
        return lower, upper


def newton_remainders(reach: Array) -> Array:
    """At least ``(e^t - 1 - t) / t``."""
    remainders = np.where(reach > SERIES, (np.expm1(reach) - reach) / reach, reach * (0.5 + reach))
    return remainders * (1.0 + LOST)


def with_ones(X: Matrix, fit_intercept: bool) -> Any:
    """Rows as a dense array where they live, with a 1 for the intercept."""
    return X.arrays.with_ones(X.block()) if fit_intercept else X.block()
