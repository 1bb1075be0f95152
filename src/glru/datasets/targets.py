"""Targets as numbers: two classes as -1 and +1, or real values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from glru.datasets.catalogue import Task
from glru.linalg import Array

OTHERS = "others"


@final
@dataclass(frozen=True, eq=False)
class Targets:
    """What the numbers of ``y`` stand for.

    Attributes
    ----------
    column : str or None
        The column of the table; None for a matrix.
    task : {"classification", "regression"}
        What is trained.
    classes : tuple of str or None
        What -1 and +1 stand for.
    """

    column: str | None
    task: Task
    classes: tuple[str, str] | None

    @classmethod
    def fit(cls, values: Sequence[Any], column: str | None, positive: str | None, task: Task | None) -> "Targets":
        """Learn what some targets stand for."""
        what = f"the target {column!r}" if column else "the target y"
        _require_known(values, what)
        names = sorted({class_name(value) for value in set(values)}, key=_order)
        if task == "regression":
            if positive is not None:
                raise ValueError(f"a positive class is for classification losses; got {positive!r} for a regression.")
            return cls(column, "regression", None)
        if positive is not None:
            if positive not in names:
                raise ValueError(f"the positive class must be a value of {what} ({_shown(names)}); got {positive!r}.")
            if len(names) < 2:
                raise ValueError(f"{what} must have two classes; all {len(values)} rows are {names[0]!r}.")
            others = next(name for name in names if name != positive) if len(names) == 2 else OTHERS
            return cls(column, "classification", (others, positive))
        if len(names) == 1:
            raise ValueError(f"{what} must have two classes; all {len(values)} rows are {names[0]!r}.")
        if len(names) > 2:
            raise ValueError(
                f"{what} must have two classes; it has {len(names)} values ({_shown(names)}). Single one out "
                "(positive=...), or train a regression (task='regression')."
            )
        return cls(column, "classification", (names[0], names[1]))

    def encode(self, values: Sequence[Any]) -> Array:
        """Return targets as -1/+1 or real numbers."""
        what = f"the target {self.column!r}" if self.column else "the target y"
        _require_known(values, what)
        if self.classes is None:
            return _numbers(values, what)
        known = {value: class_name(value) for value in set(values)}
        strange = sorted(set(known.values()) - set(self.classes))
        if strange and self.classes[0] != OTHERS:
            raise ValueError(
                f"{what} must be one of {_shown(self.classes)}, as in the training data; got {_shown(strange)}."
            )
        positive = {value for value, name in known.items() if name == self.classes[1]}
        return np.array([1.0 if value in positive else -1.0 for value in values])


def _require_known(values: Sequence[Any], what: str) -> None:
    if any(value is None or value != value for value in set(values)):
        bad = [k for k, value in enumerate(values) if value is None or value != value]
        raise ValueError(f"{what} must be known in every row; it is missing in {len(bad)}, first in row {bad[0]}.")


def _numbers(values: Sequence[Any], what: str) -> Array:
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        text = next(value for value in values if not isinstance(value, int | float))
        raise ValueError(f"{what} must hold numbers for a regression; got {str(text)!r}.") from None
    if not np.isfinite(numbers).all():
        raise ValueError(f"{what} must be finite; row {int(np.argmin(np.isfinite(numbers)))} is not.")
    return numbers


def class_name(value: Any) -> str:
    """Name a class: 1, 1.0 and "1" are one."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _order(name: str) -> tuple[int, float, str]:
    """Numbers by size, before text."""
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
