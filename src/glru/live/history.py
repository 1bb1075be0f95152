"""The history of a live model: changes, trainings and certificates as frozen entries, and the log that they are written to."""

import math
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from types import UnionType
from typing import Any, Literal, final, get_args, get_origin

from glru._results import list_some
from glru.live.queries import Answer, bound_radius
from glru.live.state import Key, State

ChangeKind = Literal["add_rows", "remove_rows", "add_columns", "remove_columns", "forget_keys"]
Reason = Literal["fit", "predict", "refresh"]
Query = Literal["predict", "decision_function", "predict_proba", "decision_bounds", "needs_retraining"]


@final
@dataclass(frozen=True)
class ChangeEntry:
    """A change of the data."""

    number: int  # its place in the history
    at: str  # the time in UTC
    kind: ChangeKind
    count: int  # rows or columns that came or went, or keys that were forgotten
    keys: tuple[Key, ...] | None  # the keys of the rows, without those forgotten since; None if rows have no keys
    columns: tuple[str, ...] | None  # the names of the columns, where columns have names
    digests: tuple[str, ...]  # one digest per removed row
    n_trained: int  # how many of the removed rows the stored model had been trained on, with a weight above 0
    # Number and digest of the stored model at that time.
    revision: int
    model: str


@final
@dataclass(frozen=True)
class TrainingEntry:
    """A training."""

    number: int  # its place in the history
    at: str  # the time in UTC
    reason: Reason  # which method asked for it
    # Number and digest of the model it made.
    revision: int
    model: str
    # The size of the data, the user's columns only.
    n_rows: int
    n_columns: int
    # As in :class:`glru.Solution`; the status "stopped": every queried label was proven before the tolerance was reached.
    status: str
    solver: str
    n_iter: int
    gap: float  # certified
    radius: float  # how far the coefficients can be from the optimum; inf where that is unknown


@final
@dataclass(frozen=True)
class CertificateEntry:
    """A certificate that answered queries."""

    number: int  # its place in the history
    at: str  # the time in UTC
    query: Query  # which method asked
    revision: int  # number of the stored model that was carried
    # How many queries each stage decided.
    carry: int
    newton: int
    training: int
    n_open: int  # how many were left open
    # Of the best candidate that was needed; inf where nothing is known.
    gap: float
    radius: float


Entry = ChangeEntry | TrainingEntry | CertificateEntry

KINDS: dict[str, type[Entry]] = {"change": ChangeEntry, "training": TrainingEntry, "certificate": CertificateEntry}
"""Every kind of entry by the name it is stored under."""


def _drop_keys(entry: Entry, keys: set[Key]) -> Entry:
    if not isinstance(entry, ChangeEntry) or not keys.intersection(entry.keys or ()):
        return entry
    return replace(entry, keys=tuple(key for key in entry.keys or () if key not in keys))


def current_time() -> str:
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
    return kind(**{f.name: _read_field(f.name, f.type, value[f.name]) for f in fields(kind)})


def _read_field(name: str, kind: Any, given: Any) -> Any:
    """The value of a field of some type, from JSON: a list is a tuple, and null an infinite number."""
    parts = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if kind is float and (given is None or type(given) in (int, float)):
        return math.inf if given is None else float(given)
    if isinstance(given, list) and any(get_origin(part) is tuple for part in parts):
        return tuple(given)
    if type(given) in parts or given in get_args(kind):
        return given
    raise ValueError(f"an entry of the history cannot be read: {name} is {str(given)[:100]}.")


@final
@dataclass(frozen=True, eq=False)
class Log:
    """The state of a live model and the entries that led there, as one value: an interrupted call leaves the previous one."""

    state: State
    width: float  # how wide the proven interval of a prediction or a score may be
    written: list[Entry] = field(default_factory=list)  # shared by the logs of a model, so that an entry costs no copy
    length: int = 0  # how many of these are this log's; entries behind them belong to calls that were interrupted

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self.written[: self.length])

    def find_removal(self, change: ChangeEntry) -> ChangeEntry:
        """The removal of rows that a change is, as the history has it: of its keys only those that are not forgotten.

        An error if it is not such an entry, or if the number of rows or the keys contradict the removal.
        """
        here = isinstance(change, ChangeEntry) and 0 <= change.number < self.length
        known = self.written[change.number] if here else None
        if not isinstance(known, ChangeEntry) or replace(change, keys=None) != replace(known, keys=None):
            raise ValueError(
                f"change must be an entry of this model's history, as remove_rows returns it; got {change!r}."
            )
        if known.kind != "remove_rows":
            raise ValueError(f"a receipt is for removed rows; got a change of kind {known.kind!r}.")
        expected, later = 0, set[Key]()
        for entry in self.entries:
            if isinstance(entry, TrainingEntry) and entry.reason == "fit":
                expected = entry.n_rows
            if isinstance(entry, ChangeEntry):
                expected += {"add_rows": 1, "remove_rows": -1}.get(entry.kind, 0) * entry.count
                if entry.kind == "add_rows" and entry.number > known.number:
                    later.update(entry.keys or ())
        pending = self.state.pending
        still = {*(known.keys or ())} & {*(pending.present_keys or ())} - later
        if expected != pending.n_rows or still:
            raise ValueError(
                f"a receipt needs data from which the rows are gone; by the history there are {expected} rows, in the data "
                f"{pending.n_rows}, and {len(still)} removed keys are present. The model or its file was damaged: fit a new one."
            )
        return known

    def forget(self, keys: Collection[Key] | None) -> tuple["Log", ChangeEntry]:
        """The log without some keys of removed rows, or without all of them, and the entry that says how many."""
        pending = self.state.pending
        if pending.keys is None:
            raise ValueError("rows have no keys: the model was fitted without keys=. There is nothing to forget.")
        present = {*(pending.present_keys or ())}
        removed = {
            key
            for entry in self.entries
            if isinstance(entry, ChangeEntry) and entry.kind == "remove_rows"
            for key in entry.keys or ()
        } - present
        lost = removed if keys is None else {*keys}
        if lost & present:
            raise ValueError(
                f"keys of present rows are needed; got {list_some(lost & present, repr)}. Remove the rows first."
            )
        if lost - removed:
            raise ValueError(f"keys must be those of removed rows; got {list_some(lost - removed, repr)}.")
        # Not in place: the list is shared with logs that readers without the lock may hold.
        log = replace(self, state=self.state.forget_keys(), written=[_drop_keys(entry, lost) for entry in self.entries])
        return log.record_change(log.state, "forget_keys", len(lost))

    def record_training(self, state: State, reason: Reason) -> "Log":
        """The log after a training, which is noted by what it led to."""
        solution = state.solution
        return self._append(
            state,
            TrainingEntry,
            reason=reason,
            model=state.digest,
            n_rows=solution.problem.n_rows,
            n_columns=state.n_columns,
            status=solution.status,
            solver=solution.solver,
            n_iter=int(solution.n_iter),
            gap=float(solution.certificate.gap),
            radius=bound_radius(solution.certificate.gap, solution.problem.penalty),
        )[0]

    def record_change(self, state: State, kind: ChangeKind, count: int, **details: Any) -> tuple["Log", ChangeEntry]:
        """The log after a change of the data, and its entry; ``details``: keys, columns, digests and ``n_trained``."""
        nothing = {"keys": None, "columns": None, "digests": (), "n_trained": 0}
        return self._append(state, ChangeEntry, kind=kind, count=int(count), model=state.digest, **(nothing | details))

    def record_certificate(self, query: Query, answer: Answer) -> "Log":
        found: dict[str, Any] = {stage: answer.count(stage) for stage in ("carry", "newton", "training")}
        found |= {"n_open": answer.count(""), "gap": float(answer.gap), "radius": float(answer.radius)}
        return self._append(self.state, CertificateEntry, query=query, **found)[0]

    def _append(self, state: State, make: Any, /, **values: Any) -> tuple["Log", Any]:
        """The log with a new entry of a kind, and the entry."""
        entry = make(number=self.length, at=current_time(), revision=state.revision, **values)
        self.written[self.length :] = [entry]
        return replace(self, state=state, length=self.length + 1), entry
