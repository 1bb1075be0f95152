"""The user's keys of the rows, and the way from keys or positions to present positions."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, final

import numpy as np

from glru.changes.base import row_positions
from glru.live.ledger import Ledger, Positions

Key = str | int | float | bool | None


@final
@dataclass(frozen=True, eq=False)
class Roster:
    """The keys of trained and of new rows; both None where the user gave none.

    Attributes
    ----------
    trained : tuple of keys or None
        One key a row of the last training, those gone since included.
    new : tuple of keys
        One key a row that came since.
    """

    trained: tuple[Key, ...] | None
    new: tuple[Key, ...] = field(default=())

    @cached_property
    def places(self) -> dict[Key, int]:
        """The place of every trained key; shared by all rosters of one training."""
        return {key: place for place, key in enumerate(self.trained or ())}

    @cached_property
    def new_places(self) -> dict[Key, int]:
        """The place of every new key."""
        return {key: place for place, key in enumerate(self.new)}

    def present(self, ledger: Ledger) -> tuple[Key, ...] | None:
        """The keys of the present rows in their order."""
        if self.trained is None:
            return None
        gone = set(ledger.gone_rows.tolist())
        return tuple(key for place, key in enumerate(self.trained) if place not in gone) + self.new

    def position(self, key: Key, ledger: Ledger) -> int | None:
        """The present position of a key; None where no present row has it."""
        if key in self.new_places:
            return ledger.n_kept_rows + self.new_places[key]
        place = self.places.get(key)
        if place is None:
            return None
        before = int(np.searchsorted(ledger.gone_rows, place))
        gone = before < ledger.gone_rows.size and ledger.gone_rows[before] == place
        return None if gone else place - before

    def positions(self, rows: Any, keys: Any, ledger: Ledger) -> Positions:
        """Present positions of rows named either by position or by key."""
        if (rows is None) == (keys is None):
            raise TypeError("name rows either by position, remove_rows([3]), or by key, remove_rows(keys=['a']).")
        if keys is None:
            return row_positions(rows, ledger.n_rows)
        if self.trained is None:
            raise ValueError("rows have no keys: the model was fitted without keys=. Name them by position.")
        named = as_keys(keys)
        found = [self.position(key, ledger) for key in named]
        unknown = [key for key, place in zip(named, found, strict=True) if place is None]
        if unknown:
            raise ValueError(f"keys must be those of present rows; got {_shown(unknown)}.")
        return np.array(found, dtype=np.intp)

    def named(self, positions: Positions, ledger: Ledger) -> tuple[Key, ...] | None:
        """The keys of some present rows; None where rows have none."""
        if self.trained is None:
            return None
        old = positions < ledger.n_kept_rows
        places = np.where(old, ledger.trained(positions), positions - ledger.n_kept_rows)
        return tuple(self.trained[p] if o else self.new[p] for p, o in zip(places.tolist(), old.tolist(), strict=True))

    def with_rows(self, keys: Any, count: int, ledger: Ledger) -> "Roster":
        """The roster with so many more rows; their keys must be new, and given if and only if the others have some."""
        if self.trained is None:
            if keys is not None:
                raise ValueError("new rows cannot have keys where the others have none: fit with keys= first.")
            return self
        if keys is None:
            raise ValueError("new rows need keys, as the others have them; give keys=.")
        named = as_keys(keys, count)
        taken = [key for key in named if self.position(key, ledger) is not None]
        if taken:
            raise ValueError(f"keys of new rows must be new; got {_shown(taken)} again.")
        return self._shared(self.new + named)

    def without_rows(self, positions: Positions, ledger: Ledger) -> "Roster":
        """The roster when some present rows of the ledger are gone."""
        new = set((positions[positions >= ledger.n_kept_rows] - ledger.n_kept_rows).tolist())
        if self.trained is None or not new:
            return self
        return self._shared(tuple(key for place, key in enumerate(self.new) if place not in new))

    def _shared(self, new: tuple[Key, ...]) -> "Roster":
        other = replace(self, new=new)
        other.__dict__["places"] = self.places
        return other


def as_keys(keys: Any, count: int | None = None) -> tuple[Key, ...]:
    """Keys as JSON scalars, distinct, and as many as there are rows."""
    if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
        raise TypeError(f"keys must be a sequence with one key a row; got {keys!r}.")
    named = tuple(key.item() if isinstance(key, np.generic) else key for key in keys)
    for key in named:
        if not (key is None or isinstance(key, str | int | float)) or key != key or key in (np.inf, -np.inf):
            raise TypeError(f"keys must be text, finite numbers, booleans or None; got {key!r}.")
    if count is not None and len(named) != count:
        raise ValueError(f"keys must have one entry a row, {count}; got {len(named)}.")
    if len(set(named)) != len(named):
        seen: set[Key] = set()
        twice = [key for key in named if key in seen or seen.add(key)]  # type: ignore[func-returns-value]
        raise ValueError(f"keys must be distinct; got {_shown(twice)} more than once.")
    return named


def _shown(keys: list[Key]) -> str:
    return ", ".join(map(repr, keys[:5])) + (", ..." if len(keys) > 5 else "")
