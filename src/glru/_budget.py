"""Limits of computing time."""

import time
from typing import final


class OutOfTime(Exception):
    """The time is up; the caller that set the limit returns what has been found."""


@final
class Budget:
    """A limit in seconds, counted from now; None for no limit."""

    def __init__(self, seconds: float | None) -> None:
        self.end = None if seconds is None else time.monotonic() + seconds

    @property
    def seconds_left(self) -> float | None:
        """The seconds that are left, above 0; None: no limit. Raises :class:`OutOfTime` when the time is up."""
        if self.end is None:
            return None
        left = self.end - time.monotonic()
        if not left > 0.0:
            raise OutOfTime
        return left

    @property
    def spent(self) -> bool:
        """Whether the time is up."""
        return self.end is not None and time.monotonic() >= self.end

    def check(self) -> None:
        """Raise :class:`OutOfTime` when the time is up."""
        if self.spent:
            raise OutOfTime


UNLIMITED = Budget(None)
"""No limit."""
