r"""The removal of single rows to second order: bounds without a pass over the data for each row.

With :math:`\delta_1` the Newton step of a removal (:mod:`glru.updates.local_rows`), :math:`t_1` the moves of the scores under it and
:math:`M` the Hessian without the row, let :math:`M \delta_2 = -\tfrac12 \sum_k s_k \ell'''_k t_{1k}^2 x_k`. The gradient after both steps is

.. math:: \sum_k s_k x_k \left(\tfrac12 \ell'''_k t_{2k} (2 t_{1k} + t_{2k}) + \rho_k\right), \qquad
          |\rho_k| \le \tfrac16 F h_k |t_k|^3 e^{M |t_k|}, \quad |\ell''''| \le F \ell'',

of third order in the moves, and its norm follows from the moments of :mod:`glru.updates.moments`: with
:math:`S_p(d)^2 = \sum_k s_k h_k \kappa_k^p (u_k^\top d)^2` it is at most
:math:`M (|d_1| + \tfrac12 |d_2|) S_2(d_2) + \tfrac16 F e^{M T} |d|^2 S_4(d)`, :math:`T = \max_k \kappa_k |d|`: of
the powers of a move all but the square are at most those of :math:`\kappa_k |d|`.
A row costs O(d^3), all rows together O(n d^3), where candidates written down in full cost O(n d) each.
"""

from typing import NamedTuple

import numpy as np

from glru.bounds import Bounds, unbounded
from glru.linalg import FEW, TINY, Array, gamma
from glru.updates.carried_rows import sum_error
from glru.updates.local_rows import LocalRows, Rows
from glru.updates.moments import coordinates


class SecondOrder(NamedTuple):
    """Removals after both steps, one entry per row."""

    # Both steps together in the coordinates of the metric, and at least their exact norms, of which they err by four solve errors
    directions: Array
    lengths: Array
    # What they do to the rows' own scores, and at least how far the scores after them may be off
    shifts: Array
    errors: Array
    # Upper bounds of the norms of the gradients there in the metric without each row; curvatures are within ``e^exponent`` of those at the base
    nu: Array
    exponents: Array


def bound_to_second_order(family: LocalRows, rows: Rows) -> Bounds:
    """Bounds of the rows' scores under the models trained without them; for what :meth:`LocalRows.has_second_order` holds of."""
    if not family.usable:
        return unbounded(rows.size)
    removals, found = family.removals(rows), second_order_steps(family, rows)
    centers = removals.scores + found.shifts
    return family.base.bound_by_ellipsoids(
        removals, family.largest_norm, centers, found.nu, found.exponents, found.errors
    )


def second_order_steps(family: LocalRows, rows: Rows) -> SecondOrder:
    """The candidates to second order and the norms of their gradients, of a usable family that has them."""
    base, removals, largest = family.base, family.removals(rows), family.largest_norm
    fourth = float(family.problem.loss.fourth_constant or 0.0)
    places = coordinates(family.problem.take(rows), base.metric)
    first, reach = family.directions(removals, places)
    steps, shares, own = base.steps(removals), removals.metric_shares, removals.weights * removals.curvatures
    with np.errstate(all="ignore"):
        half, error = family.second_order(first, rows, places, steps.shifts, rows.size), base.metric.solve_error
        back = own * _inner(places, half) / (1.0 - removals.leverages)
        second = -(half + back[:, None] * places)
        second = np.where(np.isfinite(second) & (shares > 0.0)[:, None], second, 0.0)
        shifts = _inner(places, second)
        length = np.sqrt(_inner(second, second)) * (1.0 + gamma(second.shape[1] + 8)) + TINY
        whole = (steps.lengths + length) * (1.0 + FEW)
        exponents = base.constant * largest * whole * (1.0 + FEW)
        # What is left of the second step's equation: as computed, by the metric, by the coordinates of the row's own share.
        left = second - (own * shifts)[:, None] * places + half
        residuals = np.sqrt(_inner(left, left)) + (base.eta + 16.0 * error) * (1.0 + removals.leverages) * length
        residuals = residuals * (1.0 + FEW) + half_errors(family, reach) + _own_half_errors(family, rows)
        moments = family.all_moments
        nu = base.constant * (steps.lengths + 0.5 * length) * moments.sizes(second, length)
        spreads = family.fourth_moments.sizes(first + second, reach + length)
        nu += fourth / 6.0 * np.exp(exponents) * (largest * whole) * whole * spreads
        nu = nu * (1.0 + FEW) + (steps.residuals + residuals) * (1.0 + FEW) / np.sqrt(shares)
    errors = steps.errors + (4.0 * error + FEW) * removals.norms * length
    return SecondOrder(first + second, (reach + length) * (1.0 + FEW), steps.shifts + shifts, errors, nu, exponents)


def half_errors(family: LocalRows, reach: Array) -> Array:
    """Upper bounds of the norms of the errors of the second-order terms of all rows, as gradients; ``reach``: at least the norms of the steps."""
    base, moments = family.base, family.all_moments
    error, squares, root = base.metric.solve_error, np.square(reach), float(np.sqrt(moments.total))
    depth = family.problem.totals.depth
    # Third derivatives at computed scores, relative to the curvatures: sum_k s h t^4 <= |d|^4 sum_k s h kappa^4.
    wrong = (2.0 * float(family.problem.loss.fourth_constant or 0.0) * family.largest_error + FEW) * squares * root
    # Moves that err by six solve errors of kappa_k |d|, squared, by half.
    wrong += 8.0 * error * squares * root
    # The rounding of the cubic form, of which the largest possible value is half the sum of s h kappa^3, and of its weights.
    wrong += (gamma(family.problem.n_rows + 2 * base.metric.size**2 + 32) + sum_error(depth)) * family.cubes * squares
    return wrong * (1.0 + FEW)


def _own_half_errors(family: LocalRows, rows: Rows) -> Array:
    """An upper bound of the norm of the error of a row's own share, which is taken out: its move errs as the others' do, and by the sum that it is made of."""
    base, removals = family.base, family.removals(rows)
    steps = base.steps(removals)
    sizes = np.abs(steps.shifts)
    own = removals.weights * removals.curvatures * removals.norms
    return own * (sizes + steps.errors) * (steps.errors + (8.0 * base.metric.solve_error + FEW) * sizes) * (1.0 + FEW)


def _inner(first: Array, second: Array) -> Array:
    """Inner products of the rows of two arrays."""
    found: Array = np.einsum("ij,ij->i", first, second)
    return found
