"""Reading files: tables (CSV, TSV, Parquet) and matrices (NPZ, LIBSVM), compressed or not. Nothing is unpickled."""

import bz2
import gzip
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from glru.datasets.contents import Contents, Format, Place, ReadOptions
from glru.datasets.matrices import read_libsvm, read_npz
from glru.datasets.tables import read_parquet, read_text

READERS: dict[Format, Callable[[Place], Contents]] = {
    "csv": read_text,
    "tsv": read_text,
    "parquet": read_parquet,
    "npz": read_npz,
    "libsvm": read_libsvm,
}
SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npz": "npz",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".svmlight": "libsvm",
    ".binary": "libsvm",
}
COMPRESSIONS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, zipfile.BadZipFile)


def read(path: str | Path, options: ReadOptions | None = None) -> Contents:
    r"""The contents of a file.

    Parameters
    ----------
    path : str or Path
        A CSV, TSV, Parquet, NPZ or LIBSVM (SVMlight) file; a further .gz, .bz2 or .xz says that it is compressed.
        An NPZ file holds ``X`` or the parts of a CSR matrix as ``scipy.sparse.save_npz`` writes them, and ``y``.
    options : ReadOptions, default=None
        What the file's name does not tell.

    Returns
    -------
    Contents

    Examples
    --------
    >>> import tempfile, pathlib, glru
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "data.csv"
    ...     _ = path.write_text("age,ill\n31,no\n65,yes\n")
    ...     glru.datasets.read(path).names
    ('age', 'ill')
    """
    place = _placed(Path(path), options or ReadOptions())
    with named_damage(place.path):
        return READERS[place.format](place)


@contextmanager
def named_damage(path: Path) -> Iterator[None]:
    """Turn what a damaged file raises into one clear error."""
    try:
        yield
    except DAMAGED as error:
        raise ValueError(f"{path} is damaged or cut short ({error}). Copy or download it again.") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise ValueError(f"{path} is damaged or not compressed as its name says ({error}).") from None


def _placed(path: Path, options: ReadOptions) -> Place:
    if path.is_dir():
        raise ValueError(f"{path} must be a file; it is a folder.")
    if not path.exists():
        raise ValueError(f"{path} must exist; there is no such file.")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} must hold data; it is empty.")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    opener: Callable[..., Any] = open
    if suffixes and suffixes[-1] in COMPRESSIONS:
        opener = COMPRESSIONS[suffixes.pop()]
    known = [SUFFIXES[suffix] for suffix in suffixes if suffix in SUFFIXES]
    form = options.format or (known[-1] if known else None)
    if form is None:
        raise ValueError(
            f"the format of {path.name!r} must be told by its suffix, one of {', '.join(SUFFIXES)} (and .gz, .bz2 or .xz); "
            "or give the format: csv, tsv, parquet, npz or libsvm."
        )
    return Place(path, form, options, opener)
