"""Reading files: tables (CSV, TSV, Parquet) and matrices (NPZ, LIBSVM), compressed or not. Nothing is unpickled."""

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, final

from numpy.typing import NDArray

from glru._archives import RATIO, ROOM, room_for
from glru.linalg import RawMatrix

Format = Literal["csv", "tsv", "parquet", "npz", "libsvm"]
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


@final
@dataclass(frozen=True, eq=False)
class Contents:
    """What a file holds: a table of named columns, or a matrix with or without targets.

    Attributes
    ----------
    path : Path
        The file.
    names : tuple of str
        The columns of the matrix; for a table, all of its columns.
    table : polars.DataFrame or None
        The table; None for a matrix.
    X, y : matrix, array or None
        The matrix and its targets; None for a table, and targets None where the file has none.
    """

    path: Path
    names: tuple[str, ...]
    table: Any = None
    X: RawMatrix | None = None
    y: NDArray[Any] | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.table.height if self.X is None else self.X.shape[0])


@final
@dataclass(frozen=True)
class Place:
    """A file, its format, and the options of :func:`read`."""

    path: Path
    format: Format
    opener: Callable[..., Any]
    delimiter: str | None
    header: bool
    zero_based: bool
    n_columns: int | None

    def open(self) -> IO[bytes]:
        """Open the file's bytes, decompressed; an error once they are far more than the file can be meant to hold."""
        file = self.opener(self.path, "rb")
        return file if self.opener is open else io.BufferedReader(_Unpacked(file, self.path))


def read(
    path: str | Path,
    *,
    format: Format | None = None,
    delimiter: str | None = None,
    header: bool = True,
    zero_based: bool = False,
    n_columns: int | None = None,
) -> Contents:
    r"""Read a file.

    Parameters
    ----------
    path : str or Path
        A CSV, TSV, Parquet, NPZ or LIBSVM (SVMlight) file; a further .gz, .bz2 or .xz says that it is compressed.
        An NPZ file holds ``X`` or the parts of a CSR matrix as ``scipy.sparse.save_npz`` writes them, and ``y``.
    format : {"csv", "tsv", "parquet", "npz", "libsvm"}, default=None
        The format; by the file's suffix if not given.
    delimiter : str, default=None
        What separates the columns of a CSV file.
    header : bool, default=True
        Whether the first line of a CSV or TSV file holds the names of the columns.
    zero_based : bool, default=False
        Whether the columns of a LIBSVM file are counted from 0.
    n_columns : int, default=None
        The number of columns of a LIBSVM file; the largest that occurs, up to 10 million, if not given.

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
    from glru.datasets import matrices, tables

    path = Path(path)
    form, opener = _format_of(path, format)
    place = Place(path, form, opener, delimiter, header, zero_based, n_columns)
    readers: dict[Format, Callable[[Place], Contents]] = {
        "csv": tables.read_text,
        "tsv": tables.read_text,
        "parquet": tables.read_parquet,
        "npz": matrices.read_npz,
        "libsvm": matrices.read_libsvm,
    }
    with named_damage(path):
        return readers[form](place)


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


def _format_of(path: Path, given: Format | None) -> tuple[Format, Callable[..., Any]]:
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
    form = given or (known[-1] if known else None)
    if form is None:
        raise ValueError(
            f"the format of {path.name!r} must be told by its suffix, one of {', '.join(SUFFIXES)} (and .gz, .bz2 or .xz); "
            "or give the format: csv, tsv, parquet, npz or libsvm."
        )
    return form, opener


class _Unpacked(io.RawIOBase):
    """What a compressed file unpacks to, up to a limit."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file, self._path = file, path
        self._limit = room_for(path.stat().st_size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._file.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_END:
            return self._file.seek(offset, whence)
        # The end is found by reading, within the limit.
        while self.read(io.DEFAULT_BUFFER_SIZE):
            pass
        return self._file.seek(offset + self._file.tell())

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        if self._file.tell() > self._limit:
            raise ValueError(
                f"{self._path} must unpack to at most {RATIO} times its size or {ROOM >> 20} MiB; it is more. If it is meant to "
                "be, unpack it first and read that file."
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()
