r"""The local ellipsoid of a piecewise quadratic loss: the Hessian without the rows that may cross a kink.

The curvature of such a loss is :math:`c` on one interval of scores, its curved piece, and 0 elsewhere: the loss has no self-concordance, but between
its kinks it is quadratic. Let :math:`M` be a metric, :math:`\nu = \|\nabla P(\hat w)\|_{M^{-1}}` and :math:`\rho` a radius. A row :math:`k` whose score at
:math:`\hat w` is deeper than :math:`\rho \|x_k\|_{M^{-1}}` inside its curved piece keeps its curvature in the whole ellipsoid
:math:`\|w - \hat w\|_M \le \rho`. If the Hessian of these rows and of the penalty is at least :math:`\theta M`, then on the boundary of the ellipsoid
:math:`\nabla P(w)^\top (w - \hat w) \ge \theta \rho^2 - \nu \rho`. Where :math:`\nu / \theta < \rho` that is above 0, so that there is an optimum inside, only
one, and

.. math:: \|w^* - \hat w\|_M \le \nu / \theta .

:math:`\theta` is what :math:`M` is worth less the shares :math:`s_k c \|x_k\|^2_{M^{-1}}` of the rows that are not deep enough. It needs no strong
convexity: an intercept without a penalty is a column like any other. Where no row is near a kink, :math:`\hat w` errs by rounding alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import FEW, Array, gamma
from glru.losses import Loss

RADII = (1.25, 3.0, 16.0)
"""Radii of ellipsoids that are tried, in units of what the radius would be if no row were near a kink."""


def piece_radius(nu: Array, shares: Array, lost: Callable[[Array], Array]) -> Array:
    """At least the distances to the optima in the metric; infinite where nothing is proven.

    Parameters
    ----------
    nu : array
        At least the gradients' norms in the inverse metric.
    shares : array
        The Hessians of the rows in their curved pieces, all of them, are at least these shares of the metric.
    lost : callable
        ``lost(radii)``: at least the share of the metric of the rows that may leave their curved pieces within the radii.
    """
    found = np.full(nu.size, np.inf)
    with np.errstate(all="ignore"):
        for times in RADII:
            tried = times * nu / shares * (1.0 + FEW)
            kept = shares - lost(tried) * (1.0 + FEW)
            radius = nu / kept * (1.0 + FEW)
            found = np.where((kept > 0.0) & (radius < tried), np.minimum(found, radius), found)
    return found


def measure_piece_depths(loss: Loss, y: Array, scores: Array, errors: Array) -> Array:
    """At most the depths of the exact scores inside the curved pieces, for scores that are off by at most ``errors``."""
    depths = loss.piece_depth(y, scores)
    # The evaluation is a product and one or two differences of numbers of these sizes.
    return depths - errors - FEW * (np.abs(depths) + np.abs(scores) + loss.target_size(y))


def measure_kink_distances(loss: Loss, y: Array, scores: Array, errors: Array) -> Array:
    """At most the distances of the exact scores from the nearest kinks, for scores that are off by at most ``errors``."""
    depths = np.abs(loss.piece_depth(y, scores))
    return np.maximum(depths * (1.0 - FEW) - errors - FEW * (np.abs(scores) + loss.target_size(y)), 0.0)


@final
@dataclass(frozen=True, eq=False)
class Kinks:
    """The rows in the order of their distances from a kink at one model, as multiples of their norms; cumulative sums of them.

    A model at the distance ``D`` from that one (in the metric) moves the score of row ``k`` by at most ``D |x_k|``.

    Attributes
    ----------
    distances : array of shape (n_rows,)
        At most the distances over the norms, in ascending order.
    curved, carried, moments : array of shape (n_rows + 1,)
        At least the sums over the first rows: of the shares ``s c |x|^2`` of those in their curved pieces, of the shares of all of them, and at most
        that of the shares times the distances.
    """

    distances: Array
    curved: Array
    carried: Array
    moments: Array

    @classmethod
    def of(cls, distances: Array, norms: Array, curvatures: Array, is_curved: NDArray[np.bool_]) -> "Kinks":
        """``curvatures``: at least the rows' weighted curvatures where they are curved, 0 for rows that do not count."""
        counted = (curvatures > 0.0) & (norms > 0.0)
        relative = distances[counted] / norms[counted] * (1.0 - FEW)
        order = np.argsort(relative, kind="stable")
        shares = (curvatures[counted] * np.square(norms[counted]))[order] * (1.0 + FEW)
        relative, up = relative[order], 1.0 + gamma(order.size + 4)
        return cls(
            relative,
            _cumulative(np.where(is_curved[counted][order], shares, 0.0)) * up,
            _cumulative(shares) * up,
            _cumulative(shares * relative) * (2.0 - up),
        )

    def lost(self, reach: Array) -> Array:
        """At least the share of the metric of the curved rows that a model within ``reach`` may see cross a kink."""
        return self.curved[np.searchsorted(self.distances, reach, side="right")]

    def remainders(self, lengths: Array) -> Array:
        """At least the norms of what steps of these lengths leave of the Newton equation: ``sum_k s c |x_k| (D |x_k| - distance)_+``.

        Beyond a kink a slope differs from its linearisation by at most ``c`` times the way beyond it.
        """
        places = np.searchsorted(self.distances, lengths)
        sizes = lengths * self.carried[places]
        return np.maximum(sizes * (1.0 + FEW) - self.moments[places], 0.0) + FEW * sizes


def _cumulative(values: Array) -> Array:
    return np.concatenate([[0.0], np.cumsum(values)])
