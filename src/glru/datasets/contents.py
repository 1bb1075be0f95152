"""What a file holds, where it is and how it is to be read."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, final

from numpy.typing import NDArray

from glru._archives import RATIO, ROOM, room_for
from glru.linalg import RawMatrix, as_matrix

MOST_COLUMNS = 10_000_000
"""Columns of a matrix file, where the number was not given: a damaged index is taken for no more."""

Format = Literal["csv", "tsv", "parquet", "npz", "libsvm"]


@final
@dataclass(frozen=True, eq=False)
class Contents:
    """What a file holds: a table of named columns, or a matrix with or without targets.

    Attributes
    ----------
    path : Path
        The file.
    table : polars.DataFrame or None
        The table; None for a matrix.
    X, y : matrix, array or None
        The matrix and its targets; None for a table, and targets None where the file has none.
    names : tuple of str
        The columns of the matrix; for a table, all of its columns.
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
class ReadOptions:
    """How to read a file where its name does not tell.

    Parameters
    ----------
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
    """

    format: Format | None = None
    delimiter: str | None = None
    header: bool = True
    zero_based: bool = False
    n_columns: int | None = None


@final
@dataclass(frozen=True)
class Place:
    """A file and how its bytes are opened."""

    path: Path
    format: Format
    options: ReadOptions
    opener: Callable[..., Any]

    def open(self) -> IO[bytes]:
        """The file's bytes, decompressed; an error once they are far more than the file can be meant to hold."""
        file = self.opener(self.path, "rb")
        return file if self.opener is open else io.BufferedReader(_Unpacked(file, self.path))


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


def matrix_contents(path: Path, X: RawMatrix, y: NDArray[Any] | None, declared: int | None = None) -> Contents:
    """The contents of a matrix file; its columns are named by their positions."""
    if 0 in X.shape:
        raise ValueError(f"{path} must hold at least one row and one column; it has {X.shape[0]} x {X.shape[1]}.")
    if X.shape[1] > max(MOST_COLUMNS, declared or 0):
        raise ValueError(
            f"{path} must have at most {MOST_COLUMNS} columns; it has {X.shape[1]}. If that is meant, say so: n_columns={X.shape[1]}."
        )
    if y is not None and y.shape != (X.shape[0],):
        raise ValueError(f"{path}: y must have one entry a row of X, shape ({X.shape[0]},); got {y.shape}.")
    return Contents(path, tuple(map(str, range(X.shape[1]))), X=as_matrix(X).data, y=y)
