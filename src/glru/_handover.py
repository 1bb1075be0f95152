"""Problems whose rows are not held in this process: the library's functions hand their work over to them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class Handover(ABC):
    """A problem, or its model, that does the work of the library's functions itself."""

    @abstractmethod
    def perform(self, function: str, *args: Any, **options: Any) -> Any:
        """What the function of that name returns for this problem or model; an error where there is no such thing."""


Maker = Callable[..., Handover]

_makers: list[tuple[Callable[[Any], bool], Maker]] = []


def register(holds: Callable[[Any], bool], maker: Maker) -> None:
    """Let ``maker`` make the problems of data for which ``holds(X)``."""
    _makers.append((holds, maker))


def maker_of(X: Any) -> Maker | None:
    """What makes the problem of some data, if it is not held in this process."""
    return next((maker for holds, maker in _makers if holds(X)), None)
