"""What a file holds, where it is and how it is to be read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from glru._numerics import Matrix

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
    X: Matrix | None = None
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
        The number of columns of a LIBSVM file; the largest that occurs if not given.
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
        """The file's bytes, decompressed."""
        return self.opener(self.path, "rb")


def matrix_contents(path: Path, X: Matrix, y: NDArray[Any] | None) -> Contents:
    """The contents of a matrix file; its columns are named by their positions."""
    if 0 in X.shape:
        raise ValueError(f"{path} must hold at least one row and one column; it has {X.shape[0]} x {X.shape[1]}.")
    if y is not None and y.shape != (X.shape[0],):
        raise ValueError(f"{path}: y must have one entry a row of X, shape ({X.shape[0]},); got {y.shape}.")
    X = X if isinstance(X, np.ndarray) else sp.csr_array(X)
    return Contents(path, tuple(map(str, range(X.shape[1]))), X=X, y=y)
