r"""What one Newton step per column proves, from sums over its moves of the scores.

A candidate that solves the Newton equation moves the scores by ``t`` and has the gradient :math:`\tilde X^\top \epsilon` with
:math:`|\epsilon_i| \le d_i (e^{M |t_i|} - 1 - M |t_i|) / M`, whose norm in the inverse of the Hessian is at most
:math:`(\sum_i \epsilon_i^2 / d_i)^{1/2}`.

Rows with a large margin have hardly any curvature, and their norms are large. Along the way to the optimum the Hessian is at least
:math:`(1 - \beta) e^{-\tau \kappa r} H` with :math:`\kappa` the largest norm of the other rows only and
:math:`\beta = \sum_k d_k \|x_k\|^2` over the rows left out, since :math:`x x^\top \preceq \|x\|^2_{H^{-1}} H`: such rows cost what they carry.
So do the few rows whose scores a step has moved far, as where a column has a long tail: they are left out instead of making all
curvatures doubtful.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from glru.linalg import FEW, Array, gamma
from glru.regions.local import local_radius

LOST_SHARES = (0.0, 1e-6, 1e-3, 0.05)
"""Shares of the Hessian that rows of large norms may carry while their curvatures are not followed."""

FOLLOWED_MOVES = (0.1, 0.5, 2.0)
"""Moves of scores up to which the curvatures of rows are followed when other rows moved further."""

NormCuts = list[tuple[float, float]]
"""Pairs of a largest row norm and an upper bound of the share of the Hessian carried by rows of larger norms."""

Moved = tuple[Array | float, Array | float]
"""Upper bounds of the difference in the logarithm of curvatures, and of the share of the Hessian carried by the rows left out of that."""


def row_norm_cuts(norms: Array, curvatures: Array) -> NormCuts:
    """The largest norm of the rows, for every share in ``LOST_SHARES``; nothing where a norm is not known.

    ``norms``: at least the norms of the rows that count, with their weighted ``curvatures``.
    """
    if not (norms.size and np.all(np.isfinite(norms))):
        return []
    order = np.argsort(-norms)
    shares = np.cumsum((curvatures * np.square(norms))[order]) * (1.0 + gamma(norms.size + 8))
    places = {int(np.searchsorted(shares, most, side="right")) for most in LOST_SHARES}
    return [(float(norms[order[k]]), float(shares[k - 1]) if k else 0.0) for k in sorted(places) if k < norms.size]


def least_radius(
    norm_cuts: Sequence[Moved], constant: float, nu: Array, moves: Sequence[Moved], added: Array | float = 0.0
) -> Array:
    """The radius of the local certificate, the least of those that all ways to leave rows out give.

    ``norm_cuts``: as :data:`NormCuts`, with one entry per model where these have Hessians of their own. ``added``: what is added to the squared norms of
    rows; then no row is left out.
    """
    if not norm_cuts:
        return np.full(nu.shape, np.inf)
    # One axis of cuts, one of ways, and those of the models.
    norms, lost = (_stack(part, nu.shape)[:, None] for part in zip(*norm_cuts, strict=True))
    exponents, more = (_stack(part, nu.shape) for part in zip(*moves, strict=True))
    share = (lost + more) * (1.0 + FEW)
    kept = np.where(share < 1.0, 1.0 - share, np.nan) * (1.0 - FEW)
    if np.any(added):
        kept[share.any(axis=tuple(range(2, share.ndim)))] = np.nan
    largest_norm = np.sqrt(norms**2 + added) * (1.0 + FEW)
    radii = local_radius(constant, largest_norm, nu / kept * (1.0 + FEW), exponents)
    found: Array = radii.min(axis=(0, 1))
    return found


def _stack(parts: Sequence[Array | float], shape: tuple[int, ...]) -> Array:
    """Arrays of a shape, or numbers in their place, along a new first axis."""
    found = np.empty((len(parts), *shape))
    for k, part in enumerate(parts):
        found[k] = part
    return found


def lost_shares(shares: Array, away: Array, most: Array | float) -> Array:
    """An upper bound of the share of the Hessian that the rows carry whose scores have moved further than ``most``.

    ``shares``: at least ``d_k |x_k|^2``, one per row; ``away``: how far each score has moved, one column per model.
    """
    found: Array = shares @ (away > most)
    return found * (1.0 + gamma(shares.size + 4))


def exponential_remainders(x: Array) -> Array:
    """An upper bound of ``(e^x - 1 - x) / x^2``, which loses digits for small ``x``: there it is at most ``1/2 + x / 4``."""
    return np.where(x > 1e-3, (np.expm1(x) - x) / np.square(x) * (1.0 + 1e-12), 0.5 + 0.25 * x)


def find_unit(largest: Array) -> Array:
    """Powers of two near some sizes, 1 where there is none: powers of what is divided by them do not underflow or overflow."""
    _, exponents = np.frexp(np.where(np.isfinite(largest), largest, 0.0))
    return np.ldexp(1.0, np.clip(exponents, -1000, 1000))


@final
@dataclass(frozen=True, eq=False)
class Moves:
    """Sums over the moves ``t`` of the scores in some steps, one step each; all are rounded up."""

    # Shape (n_steps,): ``(sum d t^2)^(1/2)`` and ``(sum d t^4)^(1/4)``.
    second: Array
    fourth: Array
    most: Array  # shape (n_steps,): the largest ``|t|``

    @classmethod
    def of(cls, sums: tuple[Array, Array, Array], scale: Array, error: Array, total: float) -> "Moves":
        """Moves ``scale tau`` from sums over ``tau``, each off by at most ``error``.

        ``sums``: ``(sum d tau^2)^(1/2)``, ``(sum d tau^4)^(1/4)`` and the largest ``|tau|``; ``total``: ``sum d``.
        """
        second = scale * sums[0] + error * np.sqrt(total)
        fourth = scale * sums[1] + error * total**0.25
        return cls(*(part * (1.0 + FEW) for part in (second, fourth, scale * sums[2] + error)))

    def gradient_norms(self, constant: float, exponent: float) -> Array:
        """Upper bounds of the norms of the gradients after the steps.

        ``exponent``: the exact curvatures before the step are within ``e^exponent`` of ``d``.
        """
        remainder = constant * exponential_remainders(constant * self.most)
        nu = np.expm1(exponent) * self.second + np.exp(exponent) * remainder * np.square(self.fourth)
        return nu * (1.0 + FEW)
