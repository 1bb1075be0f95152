"""Datasets by name: bundled with scikit-learn, of the paper, or a file in the folder ``GLRU_DATA``."""

import builtins
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from glru._files import write_atomically
from glru.datasets.bundled import BUNDLED, load_bundled
from glru.datasets.contents import ReadOptions
from glru.datasets.dataset import Dataset
from glru.datasets.download import download, user_cache
from glru.datasets.files import read
from glru.datasets.paper import PAPER, SITES, PaperDataset
from glru.linalg import Array, RawMatrix, as_matrix


@final
@dataclass(frozen=True)
class Entry:
    """A line of the catalogue.

    Attributes
    ----------
    name : str
        What to pass to :func:`load`.
    shape : tuple of int or None
        Rows and columns as distributed, where they are known without reading the file.
    source : str
        Who provides it.
    where : str or None
        Where it lies on this machine; None where it would have to be downloaded.
    """

    name: str
    shape: tuple[int, int] | None
    source: str
    where: str | None


def data_folder() -> Path | None:
    """The folder in ``GLRU_DATA``, if it is set and there."""
    name = os.environ.get("GLRU_DATA")
    return Path(name) if name and Path(name).is_dir() else None


def list() -> builtins.list[Entry]:
    """What :func:`load` knows by name.

    Returns
    -------
    list of Entry

    Examples
    --------
    >>> import glru
    >>> [entry.name for entry in glru.datasets.list()][:3]
    ['breast_cancer', 'digits:3v8', 'wine:0v1']
    """
    choices = {0: "", 2: "", 3: ":0v1", 10: ":3v8"}
    found = [
        Entry(b.name + choices[b.n_classes], (b.n_rows, b.n_columns), "scikit-learn", "bundled")
        for b in BUNDLED.values()
    ]
    for entry in PAPER.values():
        stored = _stored(entry)
        source = f"paper, {entry.site}"
        found.append(
            Entry(entry.name, (entry.n_rows, entry.n_columns), source, None if stored is None else str(stored))
        )
    folder = data_folder()
    known = {name for entry in PAPER.values() for name in entry.stored_names} | set(BUNDLED)
    others = sorted(path for path in folder.glob("*.npz") if path.stem not in known) if folder else []
    return found + [Entry(path.stem, None, "GLRU_DATA", str(path)) for path in others]


def load(name: str) -> Dataset:
    """A dataset by name.

    Looked for in this order: the datasets bundled with scikit-learn; the paper's, which are read from the folder
    ``GLRU_DATA``, from the user's cache, or downloaded, and checked against the paper's tables; ``NAME.npz`` in the
    folder ``GLRU_DATA``.

    Parameters
    ----------
    name : str
        ``breast_cancer``, ``diabetes``, ``digits:3v8``, ``wine:0vrest``, ``iris:0v1``, ``arcene``, ``dexter``, ...;
        :func:`list` has them all.

    Returns
    -------
    Dataset
        Values as the source has them; :func:`normalize` is separate.

    Examples
    --------
    >>> import glru
    >>> glru.datasets.load("digits:3v8")
    Dataset('digits:3v8', 357 rows x 64 columns, classification, bundled with scikit-learn: digits)
    """
    if name.partition(":")[0] in BUNDLED:
        return load_bundled(name)
    entry = PAPER.get(name.lower())
    if entry is not None:
        return _load_paper(entry)
    folder = data_folder()
    if folder is not None and (folder / f"{name}.npz").exists():
        return _load_npz(name, folder / f"{name}.npz")
    names = ", ".join(line.name for line in list())
    place = "" if folder else " The folder GLRU_DATA, for further ones, is not set or not there."
    raise ValueError(f"a dataset must be known by name ({names}) or be a file; got {name!r}.{place}")


def _load_npz(name: str, path: Path) -> Dataset:
    X, y = _matrix(path)
    classification = np.unique(y).size == 2
    if classification:
        y = np.where(y == y.max(), 1.0, -1.0)
    task = "classification" if classification else "regression"
    classes = ("-1", "+1") if classification else None
    return Dataset(name, X, y, task, classes, None, "dense" if as_matrix(X).stores_zeros else "sparse", str(path))  # type: ignore[arg-type]


def _matrix(path: Path) -> tuple[RawMatrix, Array]:
    contents = read(path, ReadOptions(format="npz"))
    if contents.X is None or contents.y is None:
        raise ValueError(f"{path} must hold y; it has none.")
    return contents.X, contents.y.astype(np.float64)


def _stored(entry: PaperDataset) -> Path | None:
    """Where a prepared file of a dataset of the paper lies."""
    for folder in (data_folder(), user_cache()):
        for name in entry.stored_names:
            if folder is not None and (folder / f"{name}.npz").exists():
                return folder / f"{name}.npz"
    return None


def _load_paper(entry: PaperDataset) -> Dataset:
    path = _stored(entry) or _fetched(entry)
    X, y = _matrix(path)
    y = entry.checked(X, y, str(path))
    return Dataset(entry.name, X, y, "classification", ("-1", "+1"), None, entry.normalization, str(path))


def _fetched(entry: PaperDataset) -> Path:
    """Download, parse, check and store a dataset in the user's cache."""
    from glru.datasets.distribution import parse

    cache, folder = user_cache(), data_folder()
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
