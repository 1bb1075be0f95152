"""Regions that hold the retrained optimum: primal ball, dual box, local ellipsoid."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, intersect, unbounded
from glru.certificate import Certificate
from glru.linalg import Matrix
from glru.regions.ball import PrimalBall
from glru.regions.base import Region
from glru.regions.box import DualBox
from glru.regions.local import LocalEllipsoid, has_local

__all__ = [
    "DualBox",
    "LocalEllipsoid",
    "PrimalBall",
    "Region",
    "has_local",
    "regions_of",
    "score_bounds",
]


def regions_of(certificate: Certificate, fit_intercept: bool, bound: str) -> list[Region]:
    """The primal ball and the dual box of a certificate, as far as ``bound`` ("primal", "dual", "auto") asks for them."""
    found: list[Region] = []
    if bound in ("primal", "auto"):
        found.append(PrimalBall(certificate, fit_intercept))
    if bound in ("dual", "auto") and np.isfinite(certificate.loss.smoothness):
        found.append(DualBox(certificate, fit_intercept))
    return found


def score_bounds(regions: Sequence[Region], X: Matrix, dead: NDArray[np.bool_] | None = None) -> Bounds:
    """The bounds of scores that all regions imply together.

    The optimal coefficient of a ``dead`` column is exactly 0, so its entries in the queries do not matter.
    """
    if dead is not None and dead.any():
        X = X.scale_columns(np.where(dead, 0.0, 1.0))
    bounds = unbounded(X.shape[0])
    for region in regions:
        bounds = intersect(bounds, region.score_bounds(X))
    return bounds
