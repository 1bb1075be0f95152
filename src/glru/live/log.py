"""The history of a live model while it is being written."""

from collections.abc import Iterable

from glru.live.answers import Answer, radius_of
from glru.live.history import CertificateEntry, ChangeEntry, ChangeKind, Entry, Query, Reason, TrainingEntry, now
from glru.live.roster import Key
from glru.live.standing import Standing


class Log:
    """Entries in the order they were made."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries = list(entries)

    def trained(self, standing: Standing, reason: Reason) -> None:
        """Note a training, by what it led to."""
        solution = standing.solution
        self.entries.append(
            TrainingEntry(
                number=len(self.entries),
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
            )
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
    ) -> ChangeEntry:
        """Note a change of the data, by the standing after it."""
        entry = ChangeEntry(
            number=len(self.entries),
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
        self.entries.append(entry)
        return entry

    def certified(self, query: Query, revision: int, answer: Answer) -> None:
        """Note an answer to queries."""
        self.entries.append(
            CertificateEntry(
                number=len(self.entries),
                at=now(),
                query=query,
                revision=revision,
                carry=answer.settled_by("carry"),
                newton=answer.settled_by("newton"),
                training=answer.settled_by("training"),
                n_open=answer.settled_by(""),
                gap=float(answer.gap),
                radius=float(answer.radius),
            )
        )
