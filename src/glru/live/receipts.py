"""Deletion receipts: what was removed, which model is stored, and how far that is from retraining.

The numbers are those anyone can compute again from the remaining data; docs/receipts.md documents every field.
"""

from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from glru.bounds import intersect, unbounded
from glru.certificate import Certificate, certify
from glru.linalg import FEW, Array, Matrix
from glru.live import digests
from glru.live.answers import radius_of
from glru.live.history import ChangeEntry
from glru.live.standing import Standing
from glru.point import Point
from glru.problem import Problem
from glru.regions import regions_of, score_bounds
from glru.solution import dual_of

SCHEMA = "glru-receipt/1"

Statement = Literal[
    "equals retraining to within r",
    "model not yet updated",
    "model updated, distance to retraining unknown",
]

WORTH = 10.0
"""Dual variables are written down where they make the gap smaller by this factor than those the model itself implies."""


MARGIN = 1.1
"""The numbers of a receipt are those of its issuer times this.

Sums in another order, on another machine, give a verifier numbers that differ by up to 2% where a gap is nothing but
rounding: with this margin the receipt's are upper bounds of the verifier's too.
"""


@final
@dataclass(frozen=True, eq=False)
class Distance:
    """How far a model can be from the optimum on some data.

    Attributes
    ----------
    gap : float
        The certified duality gap.
    radius : float
        The Euclidean distance of the coefficients is at most this; inf where nothing is known.
    intercept_change : float
        The intercept is off by at most this.
    largest_change : float or None
        No queried score is off by more; None without queries.
    """

    gap: float
    radius: float
    intercept_change: float
    largest_change: float | None


def distance_of(certificate: Certificate, queries: Matrix | None) -> Distance:
    """How far the certificate's model can be from the optimum of its problem."""
    problem, coef = certificate.problem, certificate.coef
    regions = list(regions_of(certificate, problem.fit_intercept))
    box = unbounded(coef.size)
    for region in regions:
        box = intersect(box, region.coef_bounds())
    radius = min(radius_of(certificate), float(np.linalg.norm(_farthest(coef, box))) * (1.0 + FEW * coef.size))
    ends = [region.intercept_bounds() for region in regions]
    edge = np.array([max(low for low, _ in ends)]), np.array([min(high for _, high in ends)])
    shift = float(_farthest(np.array([certificate.intercept]), edge)[0])
    largest = None
    if queries is not None:
        bounds = score_bounds(regions, queries, certificate.columns.dead)
        largest = float(_farthest(queries @ coef + certificate.intercept, bounds).max())
    return Distance(certificate.gap, radius, shift if problem.fit_intercept else 0.0, largest)


def _farthest(values: Array, bounds: tuple[Array, Array]) -> Array:
    """The largest distance of each value to anything within its bounds, rounded up."""
    away = np.maximum(bounds[1] - values, values - bounds[0])
    return np.nextafter(np.maximum(away, 0.0), np.inf)


def certificate_of(problem: Problem, coef: Array, intercept: float, dual: Array | None) -> Certificate:
    """The certificate of a model, with dual variables that it implies itself where none are given."""
    if dual is None:
        dual = dual_of(problem, problem.scores(coef, intercept))
    return certify(problem, Point(coef, intercept, dual))


def statement_of(updated: bool, radius: float) -> Statement:
    """What may be said; a bound is not a deletion, so nothing but the first matters while the model is the old one."""
    if not updated:
        return "model not yet updated"
    if np.isfinite(radius):
        return "equals retraining to within r"
    return "model updated, distance to retraining unknown"


def issue(standing: Standing, entry: ChangeEntry, queries: Matrix | None, at: str, identical: int) -> dict[str, Any]:
    """The receipt of a removal of rows, as the model stands now, with so many remaining rows equal to removed ones."""
    solution, terms, problem = standing.solution, standing.terms.to_json(), standing.outlook.after.problem
    rows = digests.of_rows(problem.matrix, problem.y, problem.sample_weight)
    found = count_identical(entry.digests, rows)
    if found != identical:
        raise ValueError(
            f"a receipt needs removed rows that are gone; {found} present rows are equal to removed ones, where n_identical="
            f"{identical} is allowed. Remove them too, or, if they are known to be other rows, pass n_identical={found}."
        )
    dual = standing.outlook.after.carried.point.dual
    implied = certificate_of(problem, solution.coef, solution.intercept, None)
    kept = certificate_of(problem, solution.coef, solution.intercept, dual)
    written = bool(WORTH * kept.gap < implied.gap)
    distance = distance_of(kept if written else implied, queries)
    updated = standing.digest != entry.model or entry.n_trained == 0
    receipt = {
        "schema": SCHEMA,
        "issued": at,
        "statement": statement_of(updated, distance.radius),
        "removal": {
            "number": entry.number,
            "at": entry.at,
            "rows": list(entry.digests),
            "n_trained": entry.n_trained,
            "n_identical": found,
        },
        "data": {"n_rows": problem.n_rows, "n_columns": standing.n_columns, "digest": digests.of_data(rows)},
        "terms": terms,
        "model": {
            "before": entry.model,
            "after": standing.digest,
            "coef": solution.coef.tolist(),
            "intercept": float(solution.intercept),
            "dual": dual.tolist() if written and dual is not None else None,
        },
        "certificate": {
            "gap": claim(distance.gap),
            "radius": claim(distance.radius),
            "intercept_change": claim(distance.intercept_change),
        },
        "queries": None
        if queries is None
        else {
            "n_rows": int(queries.shape[0]),
            "digest": queries_digest(queries),
            "largest_change": claim(distance.largest_change),
        },
    }
    return {**receipt, "digest": digests.of_json(receipt)}


def count_identical(removed: tuple[str, ...] | list[str], remaining: list[str]) -> int:
    """How many remaining rows are equal to a removed one."""
    gone = set(removed)
    return sum(digest in gone for digest in remaining)


def queries_digest(queries: Matrix) -> str:
    """The digest of queries: rows without a target, of weight zero."""
    nothing = np.zeros(queries.shape[0])
    return digests.of_data(digests.of_rows(queries, nothing, nothing))


def claim(value: float | None) -> float | None:
    """A number as a receipt states it: with a margin, and None where it is infinite."""
    return float(MARGIN * value) if value is not None and np.isfinite(MARGIN * value) else None
