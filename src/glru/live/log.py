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

    def copy(self) -> "Log":
        """The same log with a list of entries of its own."""
        return replace(self, written=list(self.entries))

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
