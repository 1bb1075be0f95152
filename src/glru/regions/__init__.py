"""Regions that hold the retrained optimum: primal ball, dual box, local ellipsoid."""

from glru.regions.ball import PrimalBall
from glru.regions.base import Everything, Region, intersected
from glru.regions.box import DualBox
from glru.regions.local import LocalEllipsoid, has_local

__all__ = ["DualBox", "Everything", "LocalEllipsoid", "PrimalBall", "Region", "has_local", "intersected"]
