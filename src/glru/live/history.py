"""What happened to a live model: changes, trainings and certificates, as frozen entries."""

import math
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal, final

from glru.live.roster import Key

ChangeKind = Literal["add_rows", "remove_rows", "add_columns", "remove_columns"]
Reason = Literal["fit", "predict", "refresh"]
Query = Literal["predict", "decision_bounds", "needs_retraining"]


@final
@dataclass(frozen=True)
class ChangeEntry:
    """A change of the data.

    Attributes
    ----------
    number, at : int, str
        Place in the history, and the time in UTC.
    kind : {"add_rows", "remove_rows", "add_columns", "remove_columns"}
        What was done.
    count : int
        Rows or columns that came or went.
    keys : tuple or None
        The keys of the rows, where rows have keys.
    columns : tuple of str or None
        The names of the columns, where columns have names.
    digests : tuple of str
        One digest a removed row.
    n_trained : int
        How many of the removed rows the stored model had been trained on, with a weight above 0.
    revision, model : int, str
        Number and digest of the stored model at that time.
    """

    number: int
    at: str
    kind: ChangeKind
    count: int
    keys: tuple[Key, ...] | None
    columns: tuple[str, ...] | None
    digests: tuple[str, ...]
    n_trained: int
    revision: int
    model: str


@final
@dataclass(frozen=True)
class TrainingEntry:
    """A training.

    Attributes
    ----------
    number, at : int, str
        Place in the history, and the time in UTC.
    reason : {"fit", "predict", "refresh"}
        Who asked for it.
    revision, model : int, str
        Number and digest of the model it made.
    n_rows, n_columns : int
        The size of the data, the user's columns only.
    status, solver, n_iter : str, str, int
        As in :class:`glru.Solution`; ``"stopped"``: every queried label was proven before the tolerance was reached.
    gap, radius : float
        The certified gap, and how far the coefficients can be from the optimum; inf where that is unknown.
    """

    number: int
    at: str
    reason: Reason
    revision: int
    model: str
    n_rows: int
    n_columns: int
    status: str
    solver: str
    n_iter: int
    gap: float
    radius: float


@final
@dataclass(frozen=True)
class CertificateEntry:
    """A certificate that answered queries.

    Attributes
    ----------
    number, at : int, str
        Place in the history, and the time in UTC.
    query : {"predict", "decision_bounds", "needs_retraining"}
        What was asked.
    revision : int
        Number of the stored model that was carried.
    carry, newton, training : int
        How many queries each stage settled.
    n_open : int
        How many were left open.
    gap, radius : float
        Of the best candidate that was needed; inf where nothing is known.
    """

    number: int
    at: str
    query: Query
    revision: int
    carry: int
    newton: int
    training: int
    n_open: int
    gap: float
    radius: float


Entry = ChangeEntry | TrainingEntry | CertificateEntry

KINDS: dict[str, type[Entry]] = {
    "change": ChangeEntry,
    "training": TrainingEntry,
    "certificate": CertificateEntry,
}
"""Every kind of entry by the name it is stored under."""

_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "str": (str,),
    "float": (int, float, type(None)),
    "tuple": (list, type(None)),
}


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_json(entry: Entry) -> dict[str, Any]:
    """An entry as JSON values; infinity is null."""
    name = next(name for name, kind in KINDS.items() if isinstance(entry, kind))
    values = {key: None if value == math.inf else value for key, value in asdict(entry).items()}
    return {"entry": name, **values}


def from_json(value: Any) -> Entry:
    """The entry that :func:`to_json` wrote; an error where it is not that."""
    kind = KINDS.get(str(value.get("entry"))) if isinstance(value, dict) else None
    if kind is None or set(value) != {"entry", *(f.name for f in fields(kind))}:
        raise ValueError(f"an entry of the history cannot be read: {str(value)[:100]}.")
    found: dict[str, Any] = {}
    for f in fields(kind):
        given: Any = value[f.name]
        base = _base(f.type)
        if isinstance(given, bool) or not isinstance(given, _TYPES[base]):
            raise ValueError(f"an entry of the history cannot be read: {f.name} is {str(given)[:100]}.")
        found[f.name] = _value(base, given)
    return kind(**found)


def _value(base: str, given: Any) -> Any:
    if base == "float":
        return math.inf if given is None else float(given)
    return tuple(given) if isinstance(given, list) else given


def _base(annotation: Any) -> str:
    """The plain type behind an annotation: int, float, str or tuple."""
    if annotation in (int, float, str):
        return str(annotation.__name__)
    return "tuple" if "tuple" in str(annotation) else "str"
