"""The data of the experiments: the paper's ten datasets, those bundled with scikit-learn, and files in ``GLRU_DATA``."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from glru import datasets
from glru._files import write_atomically
from glru.datasets.catalogue import BUNDLED, find_data_folder
from glru.linalg import Array, RawMatrix, as_matrix
from glru.losses import Logistic
from glru.penalties import L2
from glru.problem import Problem
from paper.configuration import Source
from paper.datasets import PAPER, SITES, PaperDataset
from paper.distribution import parse
from paper.download import download, user_cache
from paper.normalization import normalize


@final
@dataclass(frozen=True, eq=False)
class Data:
    """A normalised dataset of two classes, -1 and +1."""

    X: RawMatrix
    y: Array

    @property
    def facts(self) -> dict[str, Any]:
        """Its shape, for people who read the record."""
        return {"rows": int(self.X.shape[0]), "columns": int(self.X.shape[1]), "positive": int(np.sum(self.y > 0.0))}

    def problem(self, log2_lam: int) -> Problem:
        """The paper's problem: logistic loss, L2 penalty, no intercept, mean of the losses."""
        return paper_problem(self.X, self.y, log2_lam)


def paper_problem(X: RawMatrix, y: Array, log2_lam: int) -> Problem:
    """The paper's problem on some rows and columns."""
    return Problem(X, y, Logistic(), L2(2.0**log2_lam))


def is_here(source: Source) -> bool:
    """Whether a dataset is bundled or lies on this machine."""
    entry = PAPER.get(source.load)
    if entry is not None:
        return stored(entry) is not None
    folder = find_data_folder()
    in_folder = folder is not None and (folder / f"{source.load}.npz").exists()
    return source.load.partition(":")[0] in BUNDLED or in_folder


def load_normalized(source: Source) -> Data:
    """Load a dataset, normalised as the experiment says."""
    X, y = load(source.load)
    return Data(normalize(X, source.normalize), y)  # type: ignore[arg-type]


def load(name: str) -> tuple[RawMatrix, Array]:
    """Load a dataset by name, as its source has it.

    The paper's datasets are read from the folder ``GLRU_DATA``, from the user's cache, or downloaded into it, and checked
    against the paper's tables: shape, classes and check-sum. Any other name is one of :func:`glru.datasets.load`.
    """
    entry = PAPER.get(name.lower())
    if entry is None:
        other = datasets.load(name)
        return other.X, other.y
    path = stored(entry) or _fetch(entry)
    contents = datasets.read(path, format="npz")
    if contents.X is None or contents.y is None:
        raise ValueError(f"{path} must hold y; it has none.")
    return contents.X, entry.checked(contents.X, contents.y.astype(np.float64), str(path))


def stored(entry: PaperDataset) -> Path | None:
    """Where a dataset of the paper lies on this machine."""
    for folder in (find_data_folder(), user_cache()):
        for name in entry.stored_names:
            if folder is not None and (folder / f"{name}.npz").exists():
                return folder / f"{name}.npz"
    return None


def _fetch(entry: PaperDataset) -> Path:
    """Download, parse, check and store a dataset in the user's cache."""
    cache, folder = user_cache(), find_data_folder()
    paths = []
    for file in entry.files:
        name = file.rsplit("/", 1)[-1]
        path = folder / name if folder is not None and (folder / name).exists() else cache / name
        if not path.exists():
            try:
                download(SITES[entry.site] + file, path)
            except OSError as error:
                raise ValueError(_absent(entry, str(error))) from None
        paths.append(path)
    try:
        X, y = parse(entry, paths)
        y = entry.checked(X, y, f"the download of {entry.name}")
        target = cache / f"{entry.name}.npz"
        write_atomically(target, lambda part: save(part, X, y), make_folder=True)
    finally:
        for path in paths:
            if path.parent == cache:
                path.unlink()
    return target


def _absent(entry: PaperDataset, reason: str) -> str:
    folder = os.environ.get("GLRU_DATA")
    here = f"the folder GLRU_DATA ({folder})" if folder else "a folder named in GLRU_DATA (it is not set)"
    files = ", ".join(file.rsplit("/", 1)[-1] for file in entry.files)
    return (
        f"{entry.name} must be downloaded once, and that failed ({reason}). Try again with a network, or put "
        f"{entry.name}.npz or the distributed files ({files}, from {SITES[entry.site]}) into {here}."
    )


def save(path: Path, X: RawMatrix, y: Array) -> None:
    """Write data in the form that :func:`load` reads."""
    parts: dict[str, Any] = {name or "X": array for name, array in as_matrix(X).parts.items()}
    with path.open("wb") as file:
        np.savez_compressed(file, y=y, **parts)
