"""Reading files: tables (CSV, TSV, Parquet) and matrices (NPZ, LIBSVM), compressed or not. Nothing is unpickled."""

import bz2
import csv
import glob
import gzip
import io
import lzma
import re
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Literal, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from glru._extras import require
from glru._files import MIN_UNPACKED_LIMIT, RATIO, Archive, limit_unpacked_size, open_archive
from glru._results import list_some
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


def _open_zipped(path: Path, mode: str) -> IO[bytes]:
    return zipfile.ZipFile(path).open(_find_zipped_file(path))


def _find_zipped_file(path: Path) -> str:
    with explain_damage(path), zipfile.ZipFile(path) as archive:
        files = [info for info in archive.infolist() if not info.is_dir() and not info.filename.startswith("__MACOSX/")]
    if len(files) != 1:
        raise ValueError(f"{path} must hold one file; it holds {len(files)}. Unpack it and name the file.")
    if files[0].flag_bits & 1:
        raise ValueError(f"{path} must not be encrypted; it is. Unpack it first.")
    return files[0].filename


COMPRESSIONS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zip": _open_zipped,
}
DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, zipfile.BadZipFile)

CSR_PARTS = ("data", "indices", "indptr", "shape")
MAX_COLUMNS = 10_000_000
"""Largest number of columns of a matrix file unless one is given; a damaged index may not ask for more."""

MISSING = ["", "NA", "na", "N/A", "n/a", "n.a.", "N.A.", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "None", "?"]
"""What stands for a missing value in a text file."""

MISSING_NUMBERS = ["-", "--", ".", "*", "unknown", "Unknown", "missing", "Missing", "n.d.", "nd", "ND"]
"""What stands for a missing value among numbers."""

DELIMITERS = ";\t|"
"""What may separate columns instead of a comma."""

BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
STANDARD_INPUT = Path("-")
UNNAMED = "unnamed_"
"""Prefix of the names given to unnamed columns."""


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
    notes : tuple of str
        How values were interpreted where that is not obvious.
    has_comma : bool
        Whether fractions are written with a comma.
    """

    path: Path
    names: tuple[str, ...]
    table: Any = None
    X: RawMatrix | None = None
    y: NDArray[Any] | None = None
    notes: tuple[str, ...] = ()
    has_comma: bool = False

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.table.height if self.X is None else self.X.shape[0])


@final
@dataclass(frozen=True)
class FileSource:
    """A file, its format, and the options of :func:`read`."""

    path: Path
    format: Format
    opener: Callable[..., Any]
    delimiter: str | None
    header: bool
    zero_based: bool
    n_columns: int | None
    encoding: str | None
    decimal: str | None
    missing: tuple[str, ...]

    def open(self) -> IO[bytes]:
        """Open the file's bytes, decompressed; an error once they exceed the limit for a file of its size."""
        if self.path == STANDARD_INPUT:
            return io.BytesIO(read_standard_input())
        if self.opener is open:
            return self.path.open("rb")
        limit = limit_unpacked_size(self.path.stat().st_size)
        with self.opener(self.path, "rb") as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise ValueError(
                f"{self.path} must unpack to at most {RATIO} times its size or {MIN_UNPACKED_LIMIT >> 20} MiB; it is larger. If that is intended, "
                "unpack it first and read the unpacked file."
            )
        return io.BytesIO(data)


@cache
def read_standard_input() -> bytes:
    """The bytes of the standard input, which can be read once."""
    return sys.stdin.buffer.read()


def expand(path: Path) -> list[Path]:
    """The files that a path stands for: itself, those of a pattern such as ``part-*.csv``, or the Parquet files of a folder."""
    if path.is_dir():
        return sorted(file for suffix in ("parquet", "pq") for file in path.rglob(f"*.{suffix}"))
    if path == STANDARD_INPUT or path.exists() or not glob.has_magic(str(path)):
        return [path]
    return sorted(Path(name) for name in glob.glob(str(path), recursive=True))


def read(
    path: str | Path,
    *,
    format: Format | None = None,
    delimiter: str | None = None,
    header: bool = True,
    zero_based: bool = False,
    n_columns: int | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    missing: Sequence[str] = (),
) -> Contents:
    r"""Read a file.

    Parameters
    ----------
    path : str or Path
        A CSV, TSV, Parquet, NPZ or LIBSVM (SVMlight) file; an additional suffix .gz, .bz2, .xz or .zip marks it as compressed.
        A folder stands for the Parquet files in it, a pattern such as ``part-*.csv`` for the tables of that name, put one below the
        other, and ``-`` for the standard input. An NPZ file holds ``X`` or the parts of a CSR matrix as ``scipy.sparse.save_npz`` writes them, and ``y``.
    format : {"csv", "tsv", "parquet", "npz", "libsvm"}, default=None
        The format; by the file's suffix if not given.
    delimiter : str, default=None
        What separates the columns of a CSV file; a comma, semicolon, tab or bar is recognised if not given.
    header : bool, default=True
        Whether the first line of a CSV or TSV file holds the names of the columns.
    zero_based : bool, default=False
        Whether the columns of a LIBSVM file are counted from 0.
    n_columns : int, default=None
        The number of columns of a LIBSVM file; the largest that occurs, up to 10 million, if not given.
    encoding : str, default=None
        How the text of a CSV file is encoded; UTF-8, UTF-16 with a byte-order mark, or else Windows-1252 if not given.
    decimal : {".", ","}, default=None
        What separates whole numbers from fractions in a CSV file; recognised if not given.
    missing : sequence of str, default=()
        More words that mark a missing value in a CSV file, in addition to ``NA``, ``n/a``, ``?`` and the like.

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
    if decimal not in (None, ".", ","):
        raise ValueError(f"decimal must be '.' or ','; got {decimal!r}.")
    parts = expand(path)
    if parts != [path]:
        options: dict[str, Any] = {"format": format, "delimiter": delimiter, "header": header, "encoding": encoding}
        return _concatenate(path, [read(part, decimal=decimal, missing=missing, **options) for part in parts])
    form, opener = _format_of(path, format)
    source = FileSource(path, form, opener, delimiter, header, zero_based, n_columns, encoding, decimal, tuple(missing))
    readers: dict[Format, Callable[[FileSource], Contents]] = {
        "csv": _read_text,
        "tsv": _read_text,
        "parquet": _read_parquet,
        "npz": _read_npz,
        "libsvm": _read_libsvm,
    }
    with explain_damage(path):
        return readers[form](source)


def _concatenate(path: Path, parts: list[Contents]) -> Contents:
    """Put tables one below the other; folders called ``name=value`` give a column."""
    pl = require_polars()
    if not parts:
        what = "a file; it is a folder without Parquet files" if path.is_dir() else "a file or match one; it does not"
        raise ValueError(f"{path} must be {what}.")
    tables = []
    for part in parts:
        if part.table is None:
            raise ValueError(f"{part.path} must be a table to be read with others; it is a matrix.")
        pairs = [name.split("=", 1) for name in part.path.parent.parts if "=" in name]
        tables.append(part.table.with_columns(**{name: pl.lit(value) for name, value in pairs}))
    try:
        table = pl.concat(tables, how="vertical_relaxed")
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"the tables of {path} must have the same columns: {_first_line(error)}.") from None
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    has_comma = any(part.has_comma for part in parts)
    return Contents(path, tuple(table.columns), table=table, notes=notes, has_comma=has_comma)


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
    if path == STANDARD_INPUT:
        return given or "csv", open
    if not path.exists():
        raise ValueError(f"{path} must exist; there is no such file.")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} must hold data; it is empty.")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    opener: Callable[..., Any] = open
    if suffixes and suffixes[-1] in COMPRESSIONS:
        opener = COMPRESSIONS[suffixes.pop()]
        if opener is _open_zipped:
            suffixes += [suffix.lower() for suffix in Path(_find_zipped_file(path)).suffixes]
    known = [SUFFIXES[suffix] for suffix in suffixes if suffix in SUFFIXES]
    form = given or (known[-1] if known else None)
    if form is None:
        raise ValueError(
            f"the format of {path.name!r} must be given by its suffix, one of {', '.join(SUFFIXES)} (and .gz, .bz2, .xz or .zip); "
            "or give the format: csv, tsv, parquet, npz or libsvm."
        )
    return form, opener


def require_polars() -> Any:
    """Import polars, which reads tables."""
    return require("polars", "cli", "reading tables (CSV, TSV, Parquet)")


def _read_parquet(source: FileSource) -> Contents:
    pl = require_polars()

    with source.open() as file:
        data = file.read()
    try:
        table = pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ValueError(f"{source.path} is not a Parquet file, or is cut short: {_first_line(error)}.") from None
    return _wrap_table(source, table)


def _read_text(source: FileSource) -> Contents:
    pl = require_polars()

    with source.open() as file:
        data, notes = _decode(source, file.read())
    # Lines of blanks are empty ones.
    data = re.sub(rb"(?m)^[ \t]+(\r?)$", rb"\1", _strip_comments(data))
    delimiter = _find_delimiter(source, data)
    names = _check_lines(source, data, delimiter)

    def parse(decimal_comma: bool) -> Any:
        try:
            return pl.read_csv(
                data,
                separator=delimiter,
                has_header=source.header,
                infer_schema_length=None,
                null_values=[*MISSING, *source.missing],
                decimal_comma=decimal_comma,
            )
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise ValueError(f"{source.path} cannot be read: {_first_line(error)}.") from None

    table = parse(False)
    comma = _has_decimal_comma(table, delimiter) if source.decimal is None else source.decimal == ","
    if comma:
        # Otherwise 1.234, which is a thousand and more here, would already have been read as a fraction.
        table = parse(delimiter != ",")
        notes += ["decimal commas"] if source.decimal is None else []
    table.columns = names
    table = table.drop(
        [name for name in names if name.startswith(UNNAMED) and table[name].null_count() == table.height]
    )
    if re.search(rb"\n\r?\n", data):
        table = table.filter(pl.any_horizontal(pl.all().is_not_null()))
    table, read_as = _convert_numbers(_convert_dates(table), comma)
    return _wrap_table(source, table, (*notes, *read_as), comma)


def _decode(source: FileSource, data: bytes) -> tuple[bytes, list[str]]:
    """The text in UTF-8, and a note if its encoding was another one."""
    mark = next((name for start, name in BYTE_ORDER_MARKS.items() if data.startswith(start)), None)
    encoding = source.encoding or mark
    try:
        if encoding is not None:
            return data.decode(encoding).encode(), []
        data.decode()
    except LookupError:
        raise ValueError(f"the encoding of {source.path} must be known to Python; got {encoding!r}.") from None
    except UnicodeDecodeError as error:
        if encoding is not None:
            raise ValueError(f"{source.path} must be text in {encoding}; it is not ({error.reason}).") from None
        if b"\0" in data[:1000]:
            raise ValueError(f"{source.path} must be text; it holds binary data.") from None
        return data.decode("cp1252", "replace").encode(), ["text in Windows-1252, not UTF-8 (or give encoding='...')"]
    return data, []


def _strip_comments(data: bytes) -> bytes:
    """The text without comment lines (#), if the file begins with them and a header follows."""
    lines = data.lstrip().split(b"\n", 100)
    first = next((line for line in lines if not line.startswith(b"#")), b"")
    if not lines[0].startswith(b"#") or all(
        _is_number(field) for field in re.split(r"[,;\t|]", first.decode("utf-8", "replace"))
    ):
        return data
    return re.sub(rb"(?m)^#.*\n?", b"", data.lstrip())


def _find_delimiter(source: FileSource, data: bytes) -> str:
    """The column separator: as given, or the one that splits all of the first lines into the same number of fields."""
    given = source.delimiter
    if given is not None:
        if len(given) != 1 or not given.isascii() or given in '"\r\n':
            raise ValueError(
                f"the delimiter must be one ASCII character, not a quote or the end of a line; got {given!r}. Give for example "
                "',', ';', '|' or a tab."
            )
        return given
    usual = "\t" if source.format == "tsv" else ","
    lines = [line for line in data[:200_000].decode("utf-8", "ignore").split("\n")[:50] if line.strip()]
    # The last line may be cut off; quotes may hold line breaks.
    sample = lines[:-1] or lines
    for mark in DELIMITERS:
        try:
            counts = {len(row) for row in csv.reader(sample, delimiter=mark)}
        except csv.Error:
            continue
        if len(counts) == 1 and min(counts) > 1:
            return mark
    return usual


def _check_lines(source: FileSource, data: bytes, delimiter: str) -> list[str]:
    """The names of the columns; an error where the file is not a table with distinct names."""
    lines = data.strip().split(b"\n", 1)
    first = lines[0].decode("utf-8", "replace")
    if "\0" in first:
        raise ValueError(f"{source.path} must be text; its first line holds binary data.")
    try:
        names = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
    except csv.Error as error:
        raise ValueError(f"{source.path} must be a table; its first line is not one of its lines ({error}).") from None
    if len(names) < 2:
        raise ValueError(f"{source.path} must have at least two columns; its first line has {len(names)}.")
    if source.header:
        names = [name or f"{UNNAMED}{k}" for k, name in enumerate(names)]
        _check_names(source, names)
    last = lines[-1].rsplit(b"\n", 1)[-1].decode("utf-8", "replace")
    found = last.count(delimiter) + 1
    if '"' not in last and found < len(names):
        raise ValueError(
            f"{source.path} seems to be cut short: its last line has {found} of {len(names)} columns. Copy it again."
        )
    return names if source.header else [f"x{k}" for k in range(len(names))]


def _check_names(source: FileSource, names: list[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"{source.path} must have distinct column names; more than once: {list_some(twice, repr)}. Rename them."
        )
    if all(_is_number(name) for name in names):
        raise ValueError(
            f"the first line of {source.path} must hold the names of the columns; it holds numbers ({', '.join(names[:3])}, "
            "...). If there is no such line, give header=False."
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


NUMERIC = r"^[<>≤≥]?=?\s*[+-]?[.,]?\d"
"""How numbers and limits begin; a column without such text is left as it is."""

WITH_COMMA = r"^[+-]?(\d+|\d{1,3}([.'\u00a0\u202f ]\d{3})+),\d+$"
THOUSANDS = r"^[+-]?[1-9]\d{0,2}(,\d{3})+$"


def _has_decimal_comma(table: Any, delimiter: str) -> bool:
    """Whether a column of text holds numbers with a comma that does not separate thousands, or, without commas between columns, any comma."""
    pl = require_polars()
    for column in table.get_columns():
        if column.dtype != pl.String:
            continue
        values = column.drop_nulls().str.strip_chars()
        commas = values.filter(values.str.contains(WITH_COMMA))
        is_number = 2 * len(commas) > len(values) or (len(commas) > 0 and _parse(values, True).null_count() == 0)
        if is_number and (delimiter != "," or not commas.str.contains(THOUSANDS).all()):
            return True
    return False


DATE = r"^(\d{1,4})[-./](\d{1,2})[-./](\d{1,4})([ T]\d{1,2}:\d{2}.*)?$"


def _convert_dates(table: Any) -> Any:
    """The table with dates that begin with the year as dates; whether others begin with the day or the month is not guessed."""
    pl = require_polars()
    for column in table.get_columns():
        if column.dtype == pl.String and is_date(column) and column.drop_nulls().str.contains(r"^\s*\d{4}-").all():
            parsed = column.str.strip_chars().str.to_datetime(strict=False)
            table = table.with_columns(parsed) if parsed.null_count() == column.null_count() else table
    return table


def is_date(column: Any) -> bool:
    """Whether a column of text holds dates."""
    values = column.drop_nulls()
    return len(values) > 0 and bool(values.str.strip_chars().str.contains(DATE).all())


def _has_thousands(values: Any, decimal_comma: bool) -> tuple[Any, str]:
    """Where values have thousands separators, and the pattern of these."""
    separator, point = (r"[.'\u00a0\u202f ]", ",") if decimal_comma else (r"[,'\u00a0\u202f ]", r"\.")
    return values.str.contains(rf"^[+-]?\d{{1,3}}({separator}\d{{3}})+({point}\d+)?$"), separator


def _parse(values: Any, decimal_comma: bool) -> Any:
    """Text as numbers, with or without thousands separators; null where it is not a number."""
    pl = require_polars()
    name = values.name
    grouped, separator = _has_thousands(values, decimal_comma)
    plain = pl.select(pl.when(grouped).then(values.str.replace_all(separator, "")).otherwise(values)).to_series()
    if decimal_comma:
        whole = plain.str.contains(r"\.")
        plain = pl.select(pl.when(whole).then(None).otherwise(plain.str.replace(",", ".", literal=True))).to_series()
    return plain.cast(pl.Float64, strict=False).alias(name)


def _convert_numbers(table: Any, decimal_comma: bool) -> tuple[Any, list[str]]:
    """Convert text columns of numbers with surrounding blanks, thousands separators, limits such as <5, or words for a missing value."""
    pl = require_polars()

    found: list[Any] = []
    notes: list[str] = []
    for column in table.get_columns():
        if column.dtype != pl.String:
            continue
        stripped = column.str.strip_chars()
        if not stripped.str.contains(NUMERIC).any():
            found.append(stripped)
            continue
        number = _parse(stripped, decimal_comma)
        known, n_numbers = len(column) - column.null_count(), len(column) - number.null_count()
        if n_numbers < known:
            complete, remarks = parse_numbers(stripped, decimal_comma)
            # Among many limits such as <5 the plain numbers differ from each other; a few levels such as <18, 18 and >18 are text.
            if complete is None or number.n_unique() - 1 <= stripped.filter(number.is_null()).drop_nulls().n_unique():
                found.append(stripped)
                continue
            number, notes = complete, notes + remarks
        grouped = stripped.filter(_has_thousands(stripped, decimal_comma)[0])
        if len(grouped):
            notes.append(f"separated thousands in {column.name!r} such as {grouped[0]!r}")
        found.append(number)
    return (table.with_columns(found) if found else table), notes


def as_numbers(values: Any) -> Any:
    """Text as numbers, with a decimal point or comma; null where it is not a number."""
    return values.str.replace(",", ".", literal=True).cast(require_polars().Float64, strict=False)


def is_mostly_numbers(column: Any) -> bool:
    """Whether a column of text holds numbers in more than half of its rows, so that it is not categorical."""
    values = column.drop_nulls().cast(require_polars().String)
    return bool(2 * as_numbers(values).null_count() < len(values))


def parse_numbers(values: Any, decimal_comma: bool) -> tuple[Any, list[str]]:
    """Text as numbers, including limits such as <5 and words for a missing value, with notes on these; None if there is other text."""
    number = _parse(values, decimal_comma)
    limits = _parse(values.str.extract(r"^[<>≤≥]=?\s*(.+)$"), decimal_comma)
    absent = values.is_in(MISSING_NUMBERS)
    complete = number.fill_null(limits)
    if complete.null_count() > values.null_count() + int(absent.sum()):
        return None, []
    notes: list[str] = []
    for where, meaning in ((limits.is_not_null(), "the limit"), (absent, "missing")):
        if where.any():
            count = int(where.sum())
            what = f"{count:,} value{'s' if count > 1 else ''} of {values.name!r}"
            notes.append(f"{what} such as {values.filter(where)[0]!r} read as {meaning}")
    return complete, notes


def _wrap_table(source: FileSource, table: Any, notes: tuple[str, ...] = (), has_comma: bool = False) -> Contents:
    if table.height == 0 or table.width == 0:
        raise ValueError(f"{source.path} must hold at least one row and one column; it has {table.height} rows.")
    return Contents(source.path, tuple(table.columns), table=table, notes=notes, has_comma=has_comma)


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")


def _read_npz(source: FileSource) -> Contents:
    """Read a dense ``X`` or the parts of a CSR matrix, and ``y`` if the file has it."""
    try:
        with source.open() as file:
            if file.read(6) == np.lib.format.MAGIC_PREFIX:
                raise ValueError("it is a single array, not an NPZ file. Save it with numpy.savez(path, X=..., y=...).")
            with open_archive(file, packed=True) as archive:
                y = archive.read("y") if "y" in archive.names else None
                X = _read_matrix(archive)
            if y is not None and y.dtype.kind not in "fiubUS":
                raise ValueError(f"y must hold numbers or text; got dtype {y.dtype}.")
    except ValueError as error:
        raise ValueError(f"{source.path} cannot be read: {error}") from None
    return _wrap_matrix(source, X, y)


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


def _read_libsvm(source: FileSource) -> Contents:
    """Read a sparse matrix and its targets, line by line."""
    from sklearn.datasets import load_svmlight_file

    try:
        with source.open() as file:
            X, y = load_svmlight_file(file, n_features=source.n_columns, zero_based=source.zero_based)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{source.path} is not a LIBSVM file{_locate_fault(source)}: {error}") from None
    return _wrap_matrix(source, sp.csr_array(X), y)


def _wrap_matrix(source: FileSource, X: RawMatrix, y: NDArray[Any] | None) -> Contents:
    """The contents of a matrix file; its columns are named by their positions."""
    if 0 in X.shape:
        raise ValueError(
            f"{source.path} must hold at least one row and one column; it has {X.shape[0]} x {X.shape[1]}."
        )
    if X.shape[1] > max(MAX_COLUMNS, source.n_columns or 0):
        raise ValueError(
            f"{source.path} must have at most {MAX_COLUMNS} columns; it has {X.shape[1]}. If that is meant, say so: "
            f"n_columns={X.shape[1]}."
        )
    if y is not None and y.shape != (X.shape[0],):
        raise ValueError(f"{source.path}: y must have one entry per row of X, shape ({X.shape[0]},); got {y.shape}.")
    return Contents(source.path, tuple(map(str, range(X.shape[1]))), X=as_matrix(X).data, y=y)


def _locate_fault(source: FileSource) -> str:
    """Describe the first line that cannot be read; empty if every line alone is valid."""
    lowest = 0 if source.zero_based else 1
    with source.open() as file:
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
