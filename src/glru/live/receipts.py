"""Deletion receipts: what was removed, which model is stored, how far that is from retraining; and their verification.

The numbers are those anyone can compute again from the remaining data; docs/receipts.md documents every field.
"""

from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, final

import numpy as np

from glru._options import check_call
from glru._results import Drawable, find_display, make_frame
from glru.bounds import Bounds, intersect, unbounded
from glru.certificate import Certificate, certify
from glru.linalg import FEW, Array, Matrix
from glru.live.history import ChangeEntry
from glru.live.queries import bound_radius
from glru.live.state import ModelSpec, State, digest_data, digest_json, digest_model, digest_rows, parse_json
from glru.problem import Point, Problem
from glru.regions import Region, list_regions, score_bounds
from glru.regions.classes import ClassBall, ClassEllipsoid, has_classes
from glru.solution import find_dual

SCHEMA = "glru-receipt/1"

Statement = Literal[
    "equals retraining to within r", "model not yet updated", "model updated, distance to retraining unknown"
]

WORTHWHILE_FACTOR = 10.0
"""Dual variables are written down where they make the gap smaller by this factor than those the model itself implies."""


MARGIN = 1.1
"""The numbers of a receipt are those of its issuer times this.

Sums in another order, on another machine, give a verifier numbers that differ by up to 2% where a gap is nothing but
rounding: with this margin the receipt's are upper bounds of the verifier's too.
"""


@final
@dataclass(frozen=True, eq=False)
class Distance:
    """How far a model can be from the optimum on some data."""

    gap: float  # the certified duality gap
    radius: float  # the Euclidean distance of the coefficients is at most this; inf where nothing is known
    intercept_change: float  # the intercept is off by at most this
    largest_change: float | None  # no queried score is off by more; None without queries


def distance_of(certificate: Certificate, queries: Matrix | None) -> Distance:
    """How far the certificate's model can be from the optimum of its problem."""
    problem, coef = certificate.problem, certificate.coef
    if problem.loss.several:
        regions: list[Region] = [ClassBall(certificate)]
        if has_classes(problem):
            regions.append(ClassEllipsoid.at(problem, certificate.point))
    else:
        regions = list(list_regions(certificate, problem.fit_intercept))
    box = reduce(intersect, (region.coef_bounds() for region in regions), unbounded(coef.shape))
    radius = float(np.linalg.norm(_farthest(coef, box))) * (1.0 + FEW * coef.size)
    radius = min(bound_radius(certificate.gap, certificate.penalty), radius)
    ends = [tuple(np.atleast_1d(end) for end in region.intercept_bounds()) for region in regions]
    edge = np.maximum.reduce([low for low, _ in ends]), np.minimum.reduce([high for _, high in ends])
    shift = float(_farthest(np.atleast_1d(certificate.intercept), edge).max())
    largest = None
    if queries is not None:
        if problem.loss.several:
            bounds: Bounds = reduce(intersect, (region.score_bounds(queries) for region in regions))
        else:
            bounds = score_bounds(regions, queries, certificate.columns.dead)
        largest = float(_farthest(queries @ coef.T + certificate.intercept, bounds).max())
    return Distance(certificate.gap, radius, shift if problem.fit_intercept else 0.0, largest)


def _farthest(values: Array, bounds: tuple[Array, Array]) -> Array:
    """The largest distance of each value to anything within its bounds, rounded up."""
    away = np.maximum(bounds[1] - values, values - bounds[0])
    return np.nextafter(np.maximum(away, 0.0), np.inf)


def certificate_of(problem: Problem, coef: Array, intercept: Any, dual: Array | None) -> Certificate:
    """The certificate of a model, with dual variables that it implies itself where none are given."""
    if dual is None:
        dual = find_dual(problem, problem.scores(coef, intercept))
    return certify(problem, Point(coef, intercept, dual))


def make_statement(updated: bool, radius: float) -> Statement:
    """What may be said; a bound is not a deletion, so nothing but the first matters while the model is the old one."""
    if not updated:
        return "model not yet updated"
    if np.isfinite(radius):
        return "equals retraining to within r"
    return "model updated, distance to retraining unknown"


def issue(state: State, entry: ChangeEntry, queries: Matrix | None, at: str, identical: int) -> dict[str, Any]:
    """The receipt of a removal of rows, as the model stands now, with this number of remaining rows equal to removed ones."""
    solution, terms, problem = state.solution, state.spec.to_json(), state.proofs.after.problem
    rows = digest_rows(problem.matrix, problem.y, problem.sample_weight)
    found = count_identical(entry.digests, rows)
    if found != identical:
        raise ValueError(
            f"a receipt needs removed rows that are gone; {found} present rows are equal to removed ones, where n_identical="
            f"{identical} is allowed. Remove them too, or, if they are known to be other rows, pass n_identical={found}."
        )
    dual = state.proofs.after.carried.point.dual
    implied = certificate_of(problem, solution.coef, solution.intercept, None)
    kept = certificate_of(problem, solution.coef, solution.intercept, dual)
    written = bool(WORTHWHILE_FACTOR * kept.gap < implied.gap)
    distance = distance_of(kept if written else implied, queries)
    updated = state.digest != entry.model or entry.n_trained == 0
    receipt = {
        "schema": SCHEMA,
        "issued": at,
        "statement": make_statement(updated, distance.radius),
        "removal": {
            "number": entry.number,
            "at": entry.at,
            "rows": list(entry.digests),
            "n_trained": entry.n_trained,
            "n_identical": found,
        },
        "data": {"n_rows": problem.n_rows, "n_columns": state.n_columns, "digest": digest_data(rows)},
        "terms": terms,
        "model": {
            "before": entry.model,
            "after": state.digest,
            "coef": solution.coef.ravel().tolist(),
            "intercept": np.asarray(solution.intercept, dtype=np.float64).tolist(),
            "dual": dual.ravel().tolist() if written and dual is not None else None,
        },
        "certificate": {
            "gap": round_claim(distance.gap),
            "radius": round_claim(distance.radius),
            "intercept_change": round_claim(distance.intercept_change),
        },
        "queries": None
        if queries is None
        else {
            "n_rows": int(queries.shape[0]),
            "digest": digest_queries(queries),
            "largest_change": round_claim(distance.largest_change),
        },
    }
    return {**receipt, "digest": digest_json(receipt)}


def count_identical(removed: tuple[str, ...] | list[str], remaining: list[str]) -> int:
    """How many remaining rows are equal to a removed one."""
    gone = set(removed)
    return sum(digest in gone for digest in remaining)


def digest_queries(queries: Matrix) -> str:
    """The digest of queries: rows without a target, of weight zero."""
    nothing = np.zeros(queries.shape[0])
    return digest_data(digest_rows(queries, nothing, nothing))


def round_claim(value: float | None) -> float | None:
    """A number as a receipt states it: with a margin, and None where it is infinite."""
    return float(MARGIN * value) if value is not None and np.isfinite(MARGIN * value) else None


SHAPE: dict[str, Any] = {
    "schema": str,
    "issued": str,
    "statement": str,
    "removal": {"number": int, "at": str, "rows": list, "n_trained": int, "n_identical": int},
    "data": {"n_rows": int, "n_columns": int, "digest": str},
    "terms": dict,
    "model": {"before": str, "after": str, "coef": list, "intercept": (float, list), "dual": (list, None)},
    "certificate": {"gap": (float, None), "radius": (float, None), "intercept_change": (float, None)},
    "queries": (dict, None),
    "digest": str,
}
"""The fields of a receipt and their types."""

QUERIES: dict[str, Any] = {"n_rows": int, "digest": str, "largest_change": (float, None)}


@final
@dataclass(frozen=True, repr=False)
class ReceiptCheck(Drawable):
    """What of a receipt holds. True in a condition if and only if the receipt is valid.

    Attributes
    ----------
    valid : bool
        Whether everything the receipt says could be confirmed from the remaining data.
    statement : str
        What holds of the model in the receipt: ``"equals retraining to within r"``, ``"model not yet updated"``,
        ``"model updated, distance to retraining unknown"``, or ``"nothing"`` where the receipt is not valid.
    reasons : tuple of str
        Why it is not valid.
    gap, radius, largest_change : float or None
        The verifier's own numbers; None where they could not be computed or, for queries, were not asked for.

    Examples
    --------
    >>> import numpy as np, glru
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> live = glru.LiveModel(glru.GLRUClassifier()).fit(X, X[:, 0] > 0)
    >>> receipt = live.receipt(live.remove_rows([4]))
    >>> bool(glru.verify_receipt(receipt, np.delete(X, 4, axis=0), np.delete(X[:, 0] > 0, 4)))
    True
    """

    valid: bool
    statement: str
    reasons: tuple[str, ...]
    gap: float | None = None
    radius: float | None = None
    largest_change: float | None = None

    def __bool__(self) -> bool:
        return self.valid

    @property
    def _numbers(self) -> dict[str, float]:
        known = {"gap": self.gap, "radius": self.radius, "largest_change": self.largest_change}
        return {name: value for name, value in known.items() if value is not None}

    def to_frame(self) -> Any:
        """One line: whether the receipt is valid, what holds, and the verifier's numbers (a pandas or polars frame)."""
        columns = {"valid": self.valid, "statement": self.statement, **self._numbers}
        return make_frame({name: [value] for name, value in columns.items()})

    def _display(self) -> Any:
        known = {"length of the coefficients' change": self.radius, "largest change of a score": self.largest_change}
        ends = np.array([np.inf if value is None else value for value in known.values()])
        label = "how far retraining can move the model (x: not known)"
        return find_display("IntervalsDisplay")(-ends, ends, list(known), label)

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        lines = [("statement", self.statement), *(("not valid", reason) for reason in self.reasons)]
        lines += [(name.replace("_", " "), f"{value:.3g}") for name, value in self._numbers.items()]
        return f"ReceiptCheck({'valid' if self.valid else 'not valid'})", lines


@check_call
def verify_receipt(
    receipt: Any, X: Any, y: Any, sample_weight: Any = None, queries: Any = None, *, n_identical: int = 0
) -> ReceiptCheck:
    """Check a deletion receipt against the remaining data.

    Gap, radius and the largest change of a queried score are computed again from the data and the model in the receipt,
    and nothing is taken on trust that can be computed. What a stranger cannot know, such as whether the digests of the
    removed rows are of the right rows, is only checked for having been left alone since the receipt was issued.

    Parameters
    ----------
    receipt : dict or str
        What :meth:`glru.LiveModel.receipt` gave, or its JSON text.
    X, y, sample_weight : array
        The remaining data, with the columns as the model has them. The rows may come in any order, unless the receipt
        holds dual variables: then in the order of the live model.
    queries : array, default=None
        The queries the receipt was issued for, if it was for any.
    n_identical : int, default=0
        How many rows of X equal a removed one but are known to be different rows. A receipt with any other number is not valid,
        because a row that was never removed looks the same.

    Returns
    -------
    ReceiptCheck
        What holds, and why not more.

    Examples
    --------
    >>> import numpy as np, glru
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> live = glru.LiveModel(LogisticRegression()).fit(X, y)
    >>> removal = live.remove_rows([4])
    >>> X, y = np.delete(X, 4, axis=0), np.delete(y, 4)
    >>> glru.verify_receipt(live.receipt(removal), X, y).statement
    'model not yet updated'
    >>> glru.verify_receipt(live.refresh().receipt(removal), X, y).statement
    'equals retraining to within r'
    """
    try:
        found = _parse(receipt)
    except ValueError as error:
        return ReceiptCheck(False, "nothing", (str(error),))
    reasons = _check_consistency(found)
    try:
        spec = ModelSpec.from_json(found["terms"])
        matrix = spec.convert_rows(X, found["data"]["n_columns"] + spec.offset, "X")
        problem = spec.objective.problem(matrix, *spec.convert_targets(y, sample_weight, matrix.shape[0]))
        coef, intercept, dual = _read_model(found, problem, spec)
        rows = None
        if queries is not None:
            rows = spec.convert_rows(queries, problem.n_columns, "queries")
            if found["queries"] is None or found["queries"]["digest"] != digest_queries(rows):
                reasons.append("the receipt was not issued for these queries.")
    except (ValueError, TypeError) as error:
        return ReceiptCheck(False, "nothing", (*reasons, str(error)))
    reasons += _check_rows(found, problem, n_identical)
    distance = distance_of(certificate_of(problem, coef, intercept, dual), rows)
    reasons += _check_numbers(found, distance)
    updated = found["statement"] != "model not yet updated"
    return ReceiptCheck(
        not reasons,
        "nothing" if reasons else make_statement(updated, distance.radius),
        tuple(reasons),
        distance.gap,
        distance.radius,
        distance.largest_change,
    )


def _parse(receipt: Any) -> dict[str, Any]:
    """The receipt as a dict of the right shape."""
    if isinstance(receipt, str | bytes):
        try:
            receipt = parse_json(receipt)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the receipt is not JSON: {error}.") from None
    if isinstance(receipt, dict) and receipt.get("schema") != SCHEMA:
        raise ValueError(f"the receipt's schema must be {SCHEMA!r}; got {str(receipt.get('schema'))[:50]!r}.")
    _require(receipt, SHAPE, "the receipt")
    if receipt["queries"] is not None:
        _require(receipt["queries"], QUERIES, "queries of the receipt")
    lists = {"rows": (receipt["removal"]["rows"], str), "coef": (receipt["model"]["coef"], float)}
    for name, (values, kind) in {**lists, "dual": (receipt["model"]["dual"] or [], float)}.items():
        if not all(type(value) is kind for value in values):
            raise ValueError(f"{name} of the receipt must hold nothing but values of type {kind.__name__}.")
    return dict(receipt)


def _require(value: Any, shape: dict[str, Any], what: str) -> None:
    if not isinstance(value, dict) or set(value) != set(shape):
        raise ValueError(f"{what} must have the fields {', '.join(shape)}.")
    for name, kind in shape.items():
        given = value[name]
        if isinstance(kind, dict):
            _require(given, kind, f"{name} of {what}")
            continue
        kinds = kind if isinstance(kind, tuple) else (kind,)
        fits = (given is None and None in kinds) or (type(given) in kinds and given == given)
        if not fits:
            raise ValueError(f"{name} of {what} is not what it should be; got {str(given)[:50]!r}.")


def _check_consistency(found: dict[str, Any]) -> list[str]:
    """What the receipt alone shows."""
    reasons = []
    body = {key: value for key, value in found.items() if key != "digest"}
    model, removal = found["model"], found["removal"]
    try:
        if digest_json(body) != found["digest"]:
            reasons.append("the receipt was changed after it was issued: its digest does not fit.")
        own = digest_model(found["terms"], np.array(model["coef"], dtype=np.float64), model["intercept"])
    except (ValueError, TypeError, RecursionError):
        return [*reasons, "the receipt holds values that JSON does not have."]
    if own != model["after"]:
        reasons.append("the model in the receipt is not the one its digest names.")
    if not 0 <= removal["n_trained"] <= len(removal["rows"]) or not removal["rows"]:
        reasons.append("the receipt names no removed rows, or fewer than the model was trained on.")
    same = model["before"] == model["after"]
    if same and removal["n_trained"] and found["statement"] != "model not yet updated":
        reasons.append("the receipt says that the model was updated, but it is the one from before the removal.")
    return reasons


def _read_model(found: dict[str, Any], problem: Problem, spec: ModelSpec) -> tuple[Array, Any, Array | None]:
    """Coefficients, intercept and dual variables of the receipt's model; these, of several classes, class by class and row by row."""
    model, classes = found["model"], (spec.n_classes,) if problem.loss.several else ()
    if problem.loss.several and problem.n_scores != spec.n_classes:
        raise ValueError(f"the remaining rows must have all {spec.n_classes} classes; got {problem.n_scores}.")
    coef, intercept = (np.array(model[name], dtype=np.float64) for name in ("coef", "intercept"))
    dual = None if model["dual"] is None else np.array(model["dual"], dtype=np.float64)
    shapes = (*classes, problem.n_columns), (problem.n_rows, *classes)
    sizes = [int(np.prod(shape)) for shape in shapes]
    if coef.shape != (sizes[0],) or intercept.shape != classes or (dual is not None and dual.shape != (sizes[1],)):
        raise ValueError(
            f"the model must have {sizes[0]} coefficients and, if any, {sizes[1]} dual variables; got shapes "
            f"{coef.shape} and {None if dual is None else dual.shape}."
        )
    if not all(np.all(np.isfinite(part)) for part in (coef, intercept, 0.0 if dual is None else dual)):
        raise ValueError("the model in the receipt must be finite; got NaN or infinity.")
    found_dual = None if dual is None else dual.reshape(shapes[1])
    return coef.reshape(shapes[0]), intercept if classes else float(intercept), found_dual


def _check_rows(found: dict[str, Any], problem: Problem, allowed: int) -> list[str]:
    """Whether this is the data the receipt speaks of, without the removed rows."""
    rows = digest_rows(problem.matrix, problem.y, problem.sample_weight)
    reasons = []
    if found["data"]["n_rows"] != len(rows) or found["data"]["digest"] != digest_data(rows):
        reasons.append("X, y and the weights are not the remaining data of this receipt.")
    identical = count_identical(found["removal"]["rows"], rows)
    if found["removal"]["n_identical"] != identical:
        reasons.append("the remaining data holds another number of rows equal to removed ones than the receipt says.")
    if identical != allowed:
        reasons.append(
            f"{identical} remaining rows are equal to removed ones, where n_identical={allowed} is allowed: rows that were not "
            "removed, or copies of them."
        )
    return reasons


def _check_numbers(found: dict[str, Any], distance: Distance) -> list[str]:
    """Whether the receipt's numbers are valid bounds on this data and agree with the verifier's up to rounding."""
    claims = found["certificate"]
    checks = [
        ("gap", claims["gap"], distance.gap),
        ("radius", claims["radius"], distance.radius),
        ("intercept_change", claims["intercept_change"], distance.intercept_change),
    ]
    if distance.largest_change is not None and found["queries"] is not None:
        checks.append(("largest_change", found["queries"]["largest_change"], distance.largest_change))
    reasons = []
    for name, claimed, own in checks:
        given = np.inf if claimed is None else claimed
        if given != own and not (np.isfinite(own) and own <= given <= MARGIN**2 * own):
            reasons.append(
                f"the {name} is {own:.6g}, by the data, of which a receipt states between 1 and {MARGIN**2:.3g} times as much; "
                f"this one says {given:.6g}."
            )
    if found["statement"] != make_statement(found["statement"] != "model not yet updated", distance.radius):
        reasons.append("the receipt's statement is not what its numbers allow.")
    return reasons
