"""Timing, and trainings that are timed on a random sample where all of them would take long."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import Array

Rows = NDArray[np.intp]
Result = TypeVar("Result")


def timed(work: Callable[[], Result], repeats: int = 1) -> tuple[float, Result]:
    """The shortest time of some runs, in seconds, and the last result."""
    best = np.inf
    for _ in range(repeats):
        begin = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - begin)
    return best, result


@final
@dataclass(frozen=True, eq=False)
class Trainings:
    """Trainings of which all, or a random sample, were done.

    Attributes
    ----------
    of : int
        How many there are to do.
    items : array of int
        Those that were done.
    seconds : array
        The time of each.
    scores : array
        The score that each gave the item it was about.
    """

    of: int
    items: Rows
    seconds: Array
    scores: Array

    @property
    def mean(self) -> float | None:
        """Mean seconds of a training; None where none was done."""
        return float(self.seconds.mean()) if self.items.size else None

    @property
    def total(self) -> float:
        """Seconds of all of them, scaled up from those that were done."""
        return self.of * self.mean if self.mean is not None else 0.0

    @property
    def facts(self) -> dict[str, Any]:
        """What a record says about them."""
        return {
            "trainings": self.of,
            "timed": int(self.items.size),
            "extrapolated": bool(self.items.size < self.of),
            "mean_seconds": self.mean,
        }


def trainings(items: Rows, size: int | None, seed: int, train: Callable[[int], float]) -> Trainings:
    """Train for all items, or for a random sample of some size."""
    chosen = items
    if size is not None and size < items.size:
        chosen = np.sort(np.random.default_rng(seed).choice(items, size, replace=False))
    seconds, scores = np.empty(chosen.size), np.empty(chosen.size)
    for k, item in enumerate(chosen):
        seconds[k], scores[k] = timed(partial(train, int(item)))
    return Trainings(int(items.size), chosen, seconds, scores)
