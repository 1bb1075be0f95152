"""The history of a live model while it is being written."""

from dataclasses import dataclass, field, replace
from typing import final

from glru.live.answers import Answer, radius_of
from glru.live.history import CertificateEntry, ChangeEntry, ChangeKind, Entry, Query, Reason, TrainingEntry, now
from glru.live.roster import Key
from glru.live.standing import Standing


@final
@dataclass(frozen=True, eq=False)
class Log:
    """How a live model stands and the entries that led there, as one value: whoever is interrupted keeps the one before.

    Attributes
    ----------
    standing : Standing
        How it stands.
    width : float or None
        To what width a regression is answered; None for a classifier.
    written : list of entries
        Shared by every log of a model, so that an entry costs no copy.
    length : int
        How many of these are this log's; what lies behind them was never taken over.
    """

    standing: Standing
    width: float | None
    written: list[Entry] = field(default_factory=list)
    length: int = 0

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries in the order they were made."""
        return tuple(self.written[: self.length])

    def entry(self, number: int) -> Entry | None:
        """One entry; None where there is none of that number."""
        return self.written[number] if 0 <= number < self.length else None

    def check_removal(self, removal: ChangeEntry) -> None:
        """Refuse a removal that the data does not show: by the number of rows, and by keys where rows have them."""
        counts = {"add_rows": 1, "remove_rows": -1}
        expected, later = 0, set[Key]()
        for entry in self.entries:
            if isinstance(entry, TrainingEntry) and entry.reason == "fit":
                expected = entry.n_rows
            if isinstance(entry, ChangeEntry):
                expected += counts.get(entry.kind, 0) * entry.count
                if entry.kind == "add_rows" and entry.number > removal.number:
                    later.update(entry.keys or ())
        ledger = self.standing.ledger
        still = {*(removal.keys or ())} & {*(self.standing.roster.present(ledger) or ())} - later
        if expected != ledger.n_rows or still:
            raise ValueError(
                f"a receipt needs data from which the rows are gone; by the history there are {expected} rows, in the data "
                f"{ledger.n_rows}, and {len(still)} removed keys are present. The model or its file was damaged: fit a new one."
            )

    def trained(self, standing: Standing, reason: Reason) -> "Log":
        """The log after a training, which is noted by what it led to."""
        solution = standing.solution
        return self._with(
            TrainingEntry(
                number=self.length,
                at=now(),
                reason=reason,
                revision=standing.revision,
                model=standing.digest,
                n_rows=solution.problem.n_rows,
                n_columns=standing.n_columns,
                status=solution.status,
                solver=solution.solver,
                n_iter=int(solution.n_iter),
                gap=float(solution.certificate.gap),
                radius=radius_of(solution.certificate),
            ),
            standing,
        )

    def changed(
        self,
        standing: Standing,
        kind: ChangeKind,
        count: int,
        keys: tuple[Key, ...] | None = None,
        columns: tuple[str, ...] | None = None,
        digests: tuple[str, ...] = (),
        n_trained: int = 0,
    ) -> tuple["Log", ChangeEntry]:
        """The log after a change of the data, and its entry."""
        entry = ChangeEntry(
            number=self.length,
            at=now(),
            kind=kind,
            count=int(count),
            keys=keys,
            columns=columns,
            digests=digests,
            n_trained=n_trained,
            revision=standing.revision,
            model=standing.digest,
        )
        return self._with(entry, standing), entry

    def certified(self, query: Query, answer: Answer) -> "Log":
        """The log after an answer to queries."""
        return self._with(
            CertificateEntry(
                number=self.length,
                at=now(),
                query=query,
                revision=self.standing.revision,
                carry=answer.settled_by("carry"),
                newton=answer.settled_by("newton"),
                training=answer.settled_by("training"),
                n_open=answer.settled_by(""),
                gap=float(answer.gap),
                radius=float(answer.radius),
            ),
            self.standing,
        )

    def _with(self, entry: Entry, standing: Standing) -> "Log":
        self.written[self.length :] = [entry]
        return replace(self, standing=standing, length=self.length + 1)
