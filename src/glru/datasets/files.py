"""Reading files: tables (CSV, TSV, Parquet) and matrices (NPZ, LIBSVM), compressed or not. Nothing is unpickled."""

import bz2
import csv
import gzip
import io
import lzma
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Literal, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from glru._archives import RATIO, ROOM, Archive, open_archive, unpacked_limit
from glru._extras import require
from glru.linalg import RawMatrix, as_matrix

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

CSR_PARTS = ("data", "indices", "indptr", "shape")
MOST_COLUMNS = 10_000_000
"""Largest number of columns of a matrix file unless one is given; a damaged index may not ask for more."""

MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?"]
"""What stands for a missing value in a text file."""

GUESSES = {";": "a semicolon", "\t": "a tab", "|": "a bar", ",": "a comma"}


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
        """Open the file's bytes, decompressed; an error once they exceed the limit for a file of its size."""
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
    path = Path(path)
    form, opener = _format_of(path, format)
    place = Place(path, form, opener, delimiter, header, zero_based, n_columns)
    readers: dict[Format, Callable[[Place], Contents]] = {
        "csv": _read_text,
        "tsv": _read_text,
        "parquet": _read_parquet,
        "npz": _read_npz,
        "libsvm": _read_libsvm,
    }
    with explain_damage(path):
        return readers[form](place)


@contextmanager
def explain_damage(path: Path) -> Iterator[None]:
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
    """The decompressed bytes of a file, up to a limit."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file, self._path = file, path
        self._limit = unpacked_limit(path.stat().st_size)

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
                f"{self._path} must unpack to at most {RATIO} times its size or {ROOM >> 20} MiB; it is larger. If that is intended, "
                "unpack it first and read the unpacked file."
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def polars() -> Any:
    """Import polars, which reads tables."""
    return require("polars", "cli", "reading tables (CSV, TSV, Parquet)")


def _read_parquet(place: Place) -> Contents:
    """Read a Parquet file."""
    pl = polars()

    with place.open() as file:
        data = file.read()
    try:
        table = pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ValueError(f"{place.path} is not a Parquet file, or is cut short: {_first_line(error)}.") from None
    return _table_contents(place, table)


def _read_text(place: Place) -> Contents:
    """Read a CSV or TSV file with or without a header."""
    pl = polars()

    with place.open() as file:
        data = file.read()
    delimiter = _delimiter(place)
    n_fields = _check_lines(place, data, delimiter)
    try:
        table = pl.read_csv(
            data,
            separator=delimiter,
            has_header=place.header,
            infer_schema_length=None,
            null_values=MISSING,
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ValueError(f"{place.path} cannot be read: {_first_line(error)}.") from None
    if not place.header:
        table.columns = [f"x{k}" for k in range(n_fields)]
    if re.search(rb"\n[ \t]*\r?\n", data):
        table = table.filter(pl.any_horizontal(pl.all().is_not_null()))
    return _table_contents(place, _numbers_in_text(table))


def _delimiter(place: Place) -> str:
    """What separates the columns."""
    given = place.delimiter
    if given is None:
        return "\t" if place.format == "tsv" else ","
    if len(given) != 1 or not given.isascii() or given in '"\r\n':
        raise ValueError(
            f"the delimiter must be one ASCII character, not a quote or the end of a line; got {given!r}. Give for example "
            "',', ';', '|' or a tab."
        )
    return given


def _check_lines(place: Place, data: bytes, delimiter: str) -> int:
    """The number of fields of the first line; an error where the file is not a table with distinct names."""
    lines = data.strip().split(b"\n", 1)
    try:
        first = lines[0].decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{place.path} must be text in UTF-8; its first line is not.") from None
    if "\0" in first:
        raise ValueError(f"{place.path} must be text; its first line holds binary data.")
    try:
        names = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
    except csv.Error as error:
        raise ValueError(f"{place.path} must be a table; its first line is not one of its lines ({error}).") from None
    if len(names) < 2:
        other = next((mark for mark in GUESSES if mark != delimiter and mark in first), None)
        hint = f" It seems to be separated by {GUESSES[other]}: give delimiter={other!r}." if other else ""
        raise ValueError(f"{place.path} must have at least two columns; its first line has {len(names)}.{hint}")
    if place.header:
        _check_names(place, names)
    last = lines[-1].rsplit(b"\n", 1)[-1].decode("utf-8", "replace")
    found = last.count(delimiter) + 1
    if '"' not in last and found < len(names):
        raise ValueError(
            f"{place.path} seems to be cut short: its last line has {found} of {len(names)} columns. Copy it again."
        )
    return len(names)


def _check_names(place: Place, names: list[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        shown = ", ".join(map(repr, twice[:5])) + (", ..." if len(twice) > 5 else "")
        raise ValueError(f"{place.path} must have distinct column names; more than once: {shown}. Rename them.")
    if all(_is_number(name) for name in names):
        raise ValueError(
            f"the first line of {place.path} must hold the names of the columns; it holds numbers ({', '.join(names[:3])}, "
            "...). If there is no such line, give header=False."
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers_in_text(table: Any) -> Any:
    """Convert text columns that hold numbers with blanks around them."""
    pl = polars()

    found = []
    for column in table.get_columns():
        if column.dtype == pl.String:
            stripped = column.str.strip_chars()
            number = stripped.cast(pl.Float64, strict=False)
            found.append(number if number.null_count() == column.null_count() else stripped)
    return table.with_columns(found) if found else table


def _table_contents(place: Place, table: Any) -> Contents:
    if table.height == 0 or table.width == 0:
        raise ValueError(f"{place.path} must hold at least one row and one column; it has {table.height} rows.")
    return Contents(place.path, tuple(table.columns), table=table)


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")


def _read_npz(place: Place) -> Contents:
    """Read a dense ``X`` or the parts of a CSR matrix, and ``y`` if the file has it."""
    try:
        with place.open() as file:
            _refuse_single_array(file, place)
            with open_archive(file, packed=True) as archive:
                y = archive.read("y") if "y" in archive.names else None
                X = _read_matrix(archive)
            if y is not None and y.dtype.kind not in "fiubUS":
                raise ValueError(f"y must hold numbers or text; got dtype {y.dtype}.")
    except ValueError as error:
        raise ValueError(f"{place.path} cannot be read: {error}") from None
    return _matrix_contents(place, X, y)


def _refuse_single_array(file: IO[bytes], place: Place) -> None:
    if file.read(6) == np.lib.format.MAGIC_PREFIX:
        raise ValueError("it is a single array, not an NPZ file. Save it with numpy.savez(path, X=..., y=...).")


def _read_matrix(archive: Archive) -> RawMatrix:
    names = archive.names
    if "X" in names:
        X = archive.read("X")
        if X.ndim != 2:
            raise ValueError(f"X must be two-dimensional, rows by columns; got shape {X.shape}.")
        if X.dtype.kind not in "fiub":
            raise ValueError(f"X must hold real numbers; got dtype {X.dtype}.")
        return X.astype(np.float64)
    if not set(names).issuperset(CSR_PARTS):
        raise ValueError(f"it must hold X, or {', '.join(CSR_PARTS)}; it holds {', '.join(sorted(names))}.")
    data, indices, indptr, shape = (archive.read(name) for name in CSR_PARTS)
    if data.dtype.kind not in "fiub" or any(part.dtype.kind not in "iu" for part in (indices, indptr, shape)):
        raise ValueError(f"data must hold real numbers, {', '.join(CSR_PARTS[1:])} whole ones.")
    if shape.shape != (2,) or indptr.shape != (int(shape[0]) + 1,):
        raise ValueError(f"indptr must have n_rows + 1 entries for shape {shape.tolist()}; got {indptr.shape}.")
    matrix = sp.csr_array((data.astype(np.float64), indices, indptr), shape=(int(shape[0]), int(shape[1])))
    matrix.check_format(full_check=True)
    return matrix


def _read_libsvm(place: Place) -> Contents:
    """Read a sparse matrix and its targets, line by line."""
    from sklearn.datasets import load_svmlight_file

    try:
        with place.open() as file:
            X, y = load_svmlight_file(file, n_features=place.n_columns, zero_based=place.zero_based)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{place.path} is not a LIBSVM file{_locate_fault(place)}: {error}") from None
    return _matrix_contents(place, sp.csr_array(X), y)


def _matrix_contents(place: Place, X: RawMatrix, y: NDArray[Any] | None) -> Contents:
    """The contents of a matrix file; its columns are named by their positions."""
    if 0 in X.shape:
        raise ValueError(f"{place.path} must hold at least one row and one column; it has {X.shape[0]} x {X.shape[1]}.")
    if X.shape[1] > max(MOST_COLUMNS, place.n_columns or 0):
        raise ValueError(
            f"{place.path} must have at most {MOST_COLUMNS} columns; it has {X.shape[1]}. If that is meant, say so: "
            f"n_columns={X.shape[1]}."
        )
    if y is not None and y.shape != (X.shape[0],):
        raise ValueError(f"{place.path}: y must have one entry per row of X, shape ({X.shape[0]},); got {y.shape}.")
    return Contents(place.path, tuple(map(str, range(X.shape[1]))), X=as_matrix(X).data, y=y)


def _locate_fault(place: Place) -> str:
    """Describe the first line that cannot be read; empty if every line alone is valid."""
    lowest = 0 if place.zero_based else 1
    with place.open() as file:
        for number, line in enumerate(file, start=1):
            try:
                label, *pairs = line.split(b"#")[0].split() or [b"0"]
                float(label)
                places = []
                for pair in pairs:
                    index, value = pair.split(b":")
                    if index != b"qid":
                        places.append(int(index))
                        float(value)
            except ValueError:
                return f" (line {number}: {line[:40].decode('utf-8', 'replace').strip()!r})"
            if places and min(places) < lowest:
                return f" (line {number} has a column {min(places)}: give zero_based=True where columns are counted from 0)"
            if any(second <= first for first, second in pairwise(places)):
                return f" (line {number}: columns must be in rising order)"
    return ""
