"""Regions that hold the retrained optimum: primal ball, dual box, local ellipsoid."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, intersect, unbounded
from glru.certificate import Certificate
from glru.linalg import Matrix
from glru.metric.rows import uses_rows
from glru.problem import Point, Problem
from glru.regions.gap import DualBox, PrimalBall, Region
from glru.regions.local import LocalEllipsoid, has_local, has_pieces, has_support
from glru.regions.support import SupportEllipsoid


@final
@dataclass(frozen=True)
class Bound:
    """A kind of region that a certificate implies."""

    name: str
    needs: str  # what it asks of loss, penalty and data, in words
    applies: Callable[[Certificate], bool]  # whether a certificate has what it needs
    # The region of a certificate; the second argument: whether there is an intercept.
    make: Callable[[Certificate, bool], Region]
    # What it costs against the others once a certificate is known; the cheapest is asked first.
    price: Callable[[Certificate], float]


def _has_cheap_balls(problem: Problem) -> bool:
    """Whether the ball of the gap is asked before a Hessian is formed: without an intercept, for wide data or a loss with kinks."""
    return not problem.fit_intercept and (uses_rows(problem) or problem.loss.piecewise)


BOUNDS = (
    Bound(
        "local",
        "a self-concordant or piecewise quadratic loss, a smooth penalty, and a Hessian that is small enough to form on one side",
        lambda certificate: has_local(certificate.problem) or has_pieces(certificate.problem),
        lambda certificate, _: LocalEllipsoid.at(certificate.problem, Point(certificate.coef, certificate.intercept)),
        # Over the columns one Hessian, and much the tightest; over the rows or between kinks so only where the others search for an intercept.
        lambda certificate: 2.0 if _has_cheap_balls(certificate.problem) else 0.0,
    ),
    Bound(
        "local",
        "a smooth loss that is self-concordant or piecewise quadratic, absolute values in the penalty, and a support that is proven; memory",
        lambda certificate: has_support(certificate.problem),
        lambda certificate, _: SupportEllipsoid(certificate.problem, Point(certificate.coef, certificate.intercept)),
        lambda _: 0.0,
    ),
    Bound("primal", "nothing; it is bounded on strongly convex columns", lambda _: True, PrimalBall, lambda _: 1.0),
    Bound(
        "dual",
        "a smooth loss",
        lambda certificate: bool(np.isfinite(certificate.loss.smoothness)),
        DualBox,
        lambda _: 3.0,
    ),
)
"""Every bound of a single model. A new one is a new entry here; nobody else asks whether a bound applies."""

PAPER = ("primal", "dual")
"""The bounds that need no Hessian: those of the paper."""

EVERY = tuple(dict.fromkeys(bound.name for bound in BOUNDS))


def list_regions(certificate: Certificate, fit_intercept: bool, names: Collection[str] = EVERY) -> Iterator[Region]:
    """The regions of a certificate by name, as far as they apply, the most informative for their cost first."""
    if not set(names) <= set(EVERY):
        raise ValueError(f"bounds must be some of {', '.join(map(repr, EVERY))}; got {names!r}.")
    asked = [bound for bound in BOUNDS if bound.name in names]
    for bound in sorted(asked, key=lambda bound: bound.price(certificate)) if len(asked) > 1 else asked:
        if bound.applies(certificate):
            yield bound.make(certificate, fit_intercept)


def score_bounds(regions: Iterable[Region], X: Matrix, dead: NDArray[np.bool_] | None = None) -> Bounds:
    """The bounds of scores that all regions imply together.

    The optimal coefficient of a ``dead`` column is exactly 0, so its entries in the queries do not matter.
    """
    if dead is not None and dead.any():
        X = X.scale_columns(np.where(dead, 0.0, 1.0))
    bounds = unbounded(X.shape[0])
    for region in regions:
        bounds = intersect(bounds, region.score_bounds(X))
    return bounds
