"""Figure 4: lower bounds and true errors of the first elimination in the order in which Algorithm 4 takes the columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, final

from glru.linalg import Array
from paper.configuration import Method
from paper.sources import Data
from paper.stepwise import FirstElimination, Split


@final
@dataclass(frozen=True)
class Settings:
    """The numbers of a run: strengths of the penalty as powers of two, relative gap, and the seed of the split."""

    log2_lam: tuple[int, ...]
    tol: float
    seed: int


def measure(data: Data, methods: Sequence[Method], settings: Settings) -> Iterator[dict[str, Any]]:
    """One strength of the penalty after the other."""
    split = Split.of(data, settings.seed)
    for log2_lam in settings.log2_lam:
        first = FirstElimination.of(split, log2_lam, settings.tol)
        order = first.order
        yield (
            {"log2_lam": log2_lam, "seed": settings.seed, "columns": int(order.size)}
            | first.facts
            | {
                "lower_bounds": runs(first.bounds[order]),
                "errors_lower": runs(first.step.lower[order]),
                "errors_upper": runs(first.step.upper[order]),
            }
        )


def runs(values: Array) -> list[list[int]]:
    """Whole numbers as pairs of a value and how often it follows itself."""
    return [[int(value), len(list(group))] for value, group in groupby(values)]
