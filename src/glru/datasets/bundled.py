"""Datasets that ship with scikit-learn: no file and no network are needed."""

import re
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from glru.datasets.dataset import Dataset, Task

SPEC = re.compile(r"(\d+)v(\d+|rest)")


@final
@dataclass(frozen=True)
class Bundled:
    """What is known of a dataset before it is loaded."""

    name: str
    n_rows: int
    n_columns: int
    n_classes: int
    task: Task = "classification"


BUNDLED = {
    entry.name: entry
    for entry in (
        Bundled("breast_cancer", 569, 30, 2),
        Bundled("digits", 1797, 64, 10),
        Bundled("wine", 178, 13, 3),
        Bundled("iris", 150, 4, 3),
        Bundled("diabetes", 442, 10, 0, "regression"),
    )
}


def load_bundled(name: str) -> Dataset:
    """A dataset such as ``breast_cancer``, ``digits:3v8`` (+1 is 3) or ``wine:0vrest``."""
    base, _, spec = name.partition(":")
    entry = BUNDLED[base]
    raw = _raw(base)
    X, target = np.ascontiguousarray(raw.data, dtype=np.float64), np.asarray(raw.target)
    names = tuple(str(feature) for feature in raw.feature_names)
    source = f"bundled with scikit-learn: {base}"
    if entry.task == "regression":
        if spec:
            raise ValueError(f"{base} is a regression and has no classes to choose; got {name!r}.")
        return Dataset(name, X, target.astype(np.float64), "regression", None, names, "dense", source)
    if entry.n_classes == 2 and not spec:
        spec = "1v0"
    first, second = _chosen(entry, name, spec)
    rows = np.full(target.size, True) if second is None else np.isin(target, (first, second))
    labels = [str(label) for label in raw.target_names]
    classes = ("rest" if second is None else labels[second], labels[first])
    y = np.where(target[rows] == first, 1.0, -1.0)
    return Dataset(name, X[rows], y, "classification", classes, names, "dense", source)


def _raw(base: str) -> Any:
    from sklearn import datasets

    return getattr(datasets, f"load_{base}")()


def _chosen(entry: Bundled, name: str, spec: str) -> tuple[int, int | None]:
    match = SPEC.fullmatch(spec)
    last = entry.n_classes - 1
    numbers = [int(part) for part in match.groups() if part != "rest"] if match else []
    if not match or max(numbers) > last or len(set(numbers)) < len(numbers):
        raise ValueError(
            f"{entry.name} has {entry.n_classes} classes, 0 to {last}: name two different ones as {entry.name}:0v1, or one "
            f"against the rest as {entry.name}:0vrest; got {name!r}."
        )
    return numbers[0], numbers[1] if len(numbers) == 2 else None
