"""Datasets by name: bundled with scikit-learn, or an NPZ file in the folder ``GLRU_DATA``."""

import builtins
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

import numpy as np

from glru.datasets.files import read
from glru.linalg import Array, RawMatrix

Task = Literal["classification", "regression"]

BUNDLED: dict[str, tuple[int, int, int]] = {
    "breast_cancer": (569, 30, 2),
    "digits": (1797, 64, 10),
    "wine": (178, 13, 3),
    "iris": (150, 4, 3),
    "diabetes": (442, 10, 0),
}
"""Rows, columns and classes (0 for a regression) of the datasets that ship with scikit-learn."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A dataset as its source has it, with targets -1/+1 (two classes), 0, 1, 2 and so on (more classes) or real (regression).

    Attributes
    ----------
    name : str
        What it is called.
    X : array or CSR array of shape (n_rows, n_columns)
        Values, as their source has them.
    y : array of shape (n_rows,)
        Targets.
    task : {"classification", "regression"}
        What the targets are.
    classes : tuple of str or None
        What -1 and +1 stand for; of more than two classes, what 0, 1, 2 and so on stand for.
    feature_names : tuple of str or None
        Names of the columns, where the source gives them.
    source : str
        Where it was found.
    """

    name: str
    X: RawMatrix
    y: Array
    task: Task
    classes: tuple[str, ...] | None
    feature_names: tuple[str, ...] | None
    source: str

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, {self.X.shape[0]} rows x {self.X.shape[1]} columns, {self.task}, {self.source})"


@final
@dataclass(frozen=True)
class Entry:
    """A line of the catalogue.

    Attributes
    ----------
    name : str
        What to pass to :func:`load`.
    shape : tuple of int or None
        Rows and columns, where they are known without reading the file.
    source : str
        Who provides it.
    where : str
        Where it is on this machine.
    """

    name: str
    shape: tuple[int, int] | None
    source: str
    where: str


def find_data_folder() -> Path | None:
    """The folder in ``GLRU_DATA``, if it is set and exists."""
    name = os.environ.get("GLRU_DATA")
    return Path(name) if name and Path(name).is_dir() else None


def list() -> builtins.list[Entry]:
    """List the datasets that :func:`load` knows by name.

    Returns
    -------
    list of Entry

    Examples
    --------
    >>> import glru
    >>> [entry.name for entry in glru.datasets.list()][:3]
    ['breast_cancer', 'digits', 'wine']
    """
    found = [
        Entry(name, (n_rows, n_columns), "scikit-learn", "bundled") for name, (n_rows, n_columns, _) in BUNDLED.items()
    ]
    folder = find_data_folder()
    files = sorted(path for path in folder.glob("*.npz") if path.stem not in BUNDLED) if folder else []
    return found + [Entry(path.stem, None, "GLRU_DATA", str(path)) for path in files]


def load(name: str) -> Dataset:
    """Load a dataset by name.

    The datasets bundled with scikit-learn come first, then ``NAME.npz`` in the folder ``GLRU_DATA``.

    Parameters
    ----------
    name : str
        ``breast_cancer``, ``diabetes``, ``digits``, ``wine``, ``iris``, two of the classes (``digits:3v8``, of which +1 is the
        first), one against the rest (``wine:0vrest``), or the name of a file in ``GLRU_DATA``; :func:`list` has them all.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> import glru
    >>> glru.datasets.load("digits:3v8")
    Dataset('digits:3v8', 357 rows x 64 columns, classification, bundled with scikit-learn: digits)
    """
    if name.partition(":")[0] in BUNDLED:
        return _load_bundled(name)
    folder = find_data_folder()
    if folder is not None and (folder / f"{name}.npz").exists():
        return _load_npz(name, folder / f"{name}.npz")
    names = ", ".join(entry.name for entry in list())
    place = (
        ""
        if folder
        else " The environment variable GLRU_DATA, a folder with more datasets, is not set or does not name a folder."
    )
    raise ValueError(f"a dataset must be known by name ({names}) or be a file; got {name!r}.{place}")


def _load_npz(name: str, path: Path) -> Dataset:
    contents = read(path, format="npz")
    if contents.X is None or contents.y is None:
        raise ValueError(f"{path} must hold y; it has none.")
    y = contents.y.astype(np.float64)
    if np.unique(y).size != 2:
        return Dataset(name, contents.X, y, "regression", None, None, str(path))
    return Dataset(name, contents.X, np.where(y == y.max(), 1.0, -1.0), "classification", ("-1", "+1"), None, str(path))


def _load_bundled(name: str) -> Dataset:
    from sklearn import datasets

    base, _, pair = name.partition(":")
    raw: Any = getattr(datasets, f"load_{base}")()
    X, target = np.ascontiguousarray(raw.data, dtype=np.float64), np.asarray(raw.target)
    names = tuple(map(str, raw.feature_names))
    source = f"bundled with scikit-learn: {base}"
    n_classes = BUNDLED[base][2]
    if n_classes == 0:
        if pair:
            raise ValueError(f"{base} is a regression and has no classes to choose; got {name!r}.")
        return Dataset(name, X, target.astype(np.float64), "regression", None, names, source)
    labels = [str(label) for label in raw.target_names]
    if n_classes > 2 and name == base:
        return Dataset(name, X, target.astype(np.float64), "classification", tuple(labels), names, source)
    first, second = _parse_classes(name, base, n_classes, pair or ("1v0" if n_classes == 2 and name == base else ""))
    rows = np.full(target.size, True) if second is None else np.isin(target, (first, second))
    classes = ("rest" if second is None else labels[second], labels[first])
    y = np.where(target[rows] == first, 1.0, -1.0)
    return Dataset(name, X[rows], y, "classification", classes, names, source)


def _parse_classes(name: str, base: str, n_classes: int, pair: str) -> tuple[int, int | None]:
    match = re.fullmatch(r"(\d+)v(\d+|rest)", pair)
    numbers = [int(part) for part in match.groups() if part != "rest"] if match else []
    if not match or max(numbers) >= n_classes or len(set(numbers)) < len(numbers):
        raise ValueError(
            f"{base} has {n_classes} classes, 0 to {n_classes - 1}: name two different ones as {base}:0v1, or one against "
            f"the rest as {base}:0vrest; got {name!r}."
        )
    return numbers[0], numbers[1] if len(numbers) == 2 else None
