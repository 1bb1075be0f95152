"""Where blocks of rows come from: memory maps, Parquet files, dask arrays and dataframes; and their targets and weights."""

import mmap
import operator
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru._extras import require

BLOCK_BYTES = 64 << 20
"""Blocks of memory maps and Parquet files have about this size in memory."""

INDEX_COLUMNS = ("__index_level_", "__null_dask_index__")
"""The names of the index in Parquet files written by pandas and dask; the index is not data."""


HIDDEN = (".", "_")
"""Files and folders with these prefixes are not data: other programs use them for unfinished files, logs and indices."""


def make_change_error(what: str) -> RuntimeError:
    """The error for data that changed between two passes."""
    return RuntimeError(
        f"the data must stay as it is while it is used; {what} changed after the problem was made. Make the problem again "
        "from data that nothing writes to; persist dask data that comes out differently each time."
    )


class Reader(ABC):
    """Rows that are read when they are needed, in the process that needs them."""

    @abstractmethod
    def read(self) -> Any:
        """The rows: an array or a frame."""


@final
@dataclass(frozen=True)
class MappedRows(Reader):
    """Consecutive rows of a C-ordered array in a file."""

    filename: str
    dtype: str
    offset: int
    shape: tuple[int, ...]

    def read(self) -> Any:
        if 0 in self.shape:
            return np.empty(self.shape, dtype=self.dtype)
        # Rows beyond the end of a file would not be an error but the end of the process.
        end = self.offset + np.dtype(self.dtype).itemsize * int(np.prod(self.shape, dtype=np.int64))
        if Path(self.filename).stat().st_size < end:
            raise make_change_error(f"{self.filename}, which is shorter now,")
        return np.memmap(self.filename, dtype=self.dtype, mode="r", offset=self.offset, shape=self.shape)


@final
@dataclass(frozen=True)
class ParquetRows(Reader):
    """Consecutive rows of a Parquet file: some columns as a frame, or one as a series."""

    filename: str
    columns: tuple[str, ...] | str
    start: int
    n_rows: int
    size: int

    def read(self) -> Any:
        pl = require("polars", "cli", "reading Parquet files")
        if Path(self.filename).stat().st_size != self.size:
            raise make_change_error(f"{self.filename}, which has another size now,")
        one = isinstance(self.columns, str)
        names = [self.columns] if isinstance(self.columns, str) else list(self.columns)
        with _name_files(self.filename):
            frame = pl.scan_parquet(self.filename).select(names).slice(self.start, self.n_rows).collect()
        return frame[names[0]] if one else frame


@contextmanager
def _name_files(file: str | Path) -> Iterator[None]:
    """Errors of reading a Parquet file, with its name."""
    pl = require("polars", "cli", "reading Parquet files")
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise ValueError(
            f"{file} cannot be read: it is not a Parquet file, is damaged or cut short ({reason}). Write or copy it again."
        ) from None


@final
@dataclass(frozen=True, eq=False)
class Sources:
    """Blocks of rows: data, targets and weights, each read or computed when it is needed."""

    # One part per block: an array, a :class:`Reader`, or a dask object. ``weight``: None where all weights are 1.
    X: tuple[Any, ...]
    y: tuple[Any, ...]
    weight: tuple[Any, ...] | None
    column_names: tuple[str, ...] | None = None  # the names of the columns
    inputs: tuple[str, ...] = ()  # the files and folders that are known to be read


def is_out_of_memory(X: Any) -> bool:
    """Whether data is not held in memory: a memory map, a path, a dask array or dataframe."""
    return isinstance(X, np.memmap | str | Path) or _is_array(X) or _is_frame(X)


def open_sources(X: Any, y: Any, sample_weight: Any, block_bytes: int) -> Sources:
    """The blocks of data that is not held in memory."""
    if isinstance(X, str | Path):
        return _parquet(Path(X), y, sample_weight, block_bytes)
    if _is_frame(X):
        return _frame(X, y, sample_weight)
    if X.ndim != 2:
        raise ValueError(f"X must be two-dimensional, rows by columns; got {X.ndim} dimension(s).")
    if isinstance(X, np.memmap):
        height = max(1, block_bytes // max(1, X.dtype.itemsize * X.shape[1]))
        lengths = [min(height, X.shape[0] - start) for start in range(0, X.shape[0], height)]
        parts = _open_map(X, lengths)
    else:
        X = X if X.numblocks[1] == 1 else X.rechunk({1: -1})
        lengths, parts = list(X.chunks[0]), tuple(X.to_delayed()[:, 0])
    inputs = tuple(str(part.filename) for part in (X, y, sample_weight) if _is_mapped_file(part))
    weight = None if sample_weight is None else _split_parts(sample_weight, "sample_weight", parts, lengths)
    return Sources(parts, _split_parts(y, "y", parts, lengths), weight, inputs=inputs)


def _is_mapped_file(values: Any) -> bool:
    return isinstance(values, np.memmap) and values.filename is not None


def _open_map(X: np.memmap[Any, Any], lengths: Sequence[int]) -> tuple[Any, ...]:
    """Windows of a memory map; pieces of the map itself where the file alone does not tell its rows."""
    edges = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    ends = list(pairwise(edges.tolist()))
    if X.filename is None or X.mode == "c" or not X.flags.c_contiguous:
        return tuple(X[start:stop] for start, stop in ends)
    # A slice of a map keeps its parent's offset: its address tells where it begins.
    buffer = X._mmap  # type: ignore[attr-defined]
    begin = X.offset - X.offset % mmap.ALLOCATIONGRANULARITY
    begin += X.ctypes.data - np.frombuffer(buffer, dtype=np.uint8).ctypes.data
    width = X.dtype.itemsize * int(np.prod(X.shape[1:], dtype=np.int64))
    return tuple(
        MappedRows(str(X.filename), X.dtype.str, begin + start * width, (stop - start, *X.shape[1:]))
        for start, stop in ends
    )


def _parquet(path: Path, y: Any, sample_weight: Any, block_bytes: int) -> Sources:
    pl = require("polars", "cli", "reading Parquet files")
    files = [path] if path.is_file() else _list_data_files(path)
    if not files:
        raise ValueError(f"X must be a Parquet file or a directory of them (*.parquet); found none at {str(path)!r}.")
    names = _read_names(files[0])
    for file in files[1:]:
        other = _read_names(file)
        if other != names:
            raise ValueError(f"all Parquet files must have the same columns; {file.name} has {other}, not {names}.")
    features = _find_features(names, y, sample_weight)
    height = max(1, block_bytes // (8 * max(1, len(features))))
    windows = []
    for file in files:
        size = file.stat().st_size
        with _name_files(file):
            n_rows = int(pl.scan_parquet(file).select(pl.len()).collect().item())
        windows += [(str(file), start, min(height, n_rows - start), size) for start in range(0, n_rows, height)]
    lengths = [n_rows for _, _, n_rows, _ in windows]
    X = tuple(ParquetRows(file, features, *window) for file, *window in windows)

    def parts(values: Any, name: str) -> tuple[Any, ...]:
        if isinstance(values, str):
            return tuple(ParquetRows(file, values, *window) for file, *window in windows)
        return _split_parts(values, name, X, lengths)

    weight = None if sample_weight is None else parts(sample_weight, "sample_weight")
    inputs = (str(path), *(str(part.filename) for part in (y, sample_weight) if _is_mapped_file(part)))
    return Sources(X, parts(y, "y"), weight, features, inputs)


def _list_data_files(folder: Path) -> list[Path]:
    """The Parquet files in a folder and its subfolders, without hidden ones; ``_name=value`` is a part of the data."""
    found = []
    for file in sorted(folder.rglob("*.parquet")):
        *folders, name = file.relative_to(folder).parts
        hidden = any(part.startswith(HIDDEN) and (part[0] == "." or "=" not in part) for part in folders)
        if not hidden and not name.startswith(HIDDEN) and file.is_file():
            found.append(file)
    return found


def _read_names(file: Path) -> tuple[str, ...]:
    pl = require("polars", "cli", "reading Parquet files")
    with _name_files(file):
        return tuple(pl.scan_parquet(file).collect_schema().names())


def _frame(X: Any, y: Any, sample_weight: Any) -> Sources:
    features = _find_features(tuple(str(c) for c in X.columns), y, sample_weight)
    named = {str(c): c for c in X.columns}
    inputs = tuple(place for part in (X, y, sample_weight) for place in _find_files(part))
    # Dask joins small partitions of what it reads, of few columns more than of many: only the partitions of one graph go
    # together. Rows, targets and weights that are named come from one; others keep the partitions they were given in.
    given = any(_is_array(part) or _is_frame(part) for part in (y, sample_weight))
    blocks = _from_delayed(X, not given)
    lengths = [np.nan] * len(blocks)
    X = _pick_columns(blocks, [named[c] for c in features])

    def parts(values: Any, name: str) -> tuple[Any, ...]:
        return (
            _pick_columns(blocks, named[values]) if isinstance(values, str) else _split_parts(values, name, X, lengths)
        )

    weight = None if sample_weight is None else parts(sample_weight, "sample_weight")
    return Sources(X, parts(y, "y"), weight, features, inputs)


def _from_delayed(frame: Any, joined: bool) -> tuple[Any, ...]:
    """The partitions of a dask dataframe; ``joined``: small ones may be joined by dask."""
    if joined:
        return tuple(frame.to_delayed())
    # Only the columns that are asked for are read all the same.
    return tuple(frame.simplify().to_delayed(optimize_graph=False))


def _pick_columns(blocks: tuple[Any, ...], columns: Any) -> tuple[Any, ...]:
    import dask

    pick = dask.delayed(operator.getitem)
    return tuple(pick(block, columns) for block in blocks)


def _find_files(values: Any) -> list[str]:
    """The files and folders that a dask dataframe is read from, as far as they can be found out."""
    if not _is_frame(values):
        return [str(values.filename)] if _is_mapped_file(values) else []
    found: list[str] = []
    for step in values.expr.walk():
        if "path" in step._parameters:
            path = step.operand("path")
            found += [str(part) for part in (path if isinstance(path, list | tuple) else [path])]
    return found


def _find_features(names: tuple[str, ...], y: Any, sample_weight: Any) -> tuple[str, ...]:
    """The columns without those of the targets and the weights."""
    for role, name in (("y", y), ("sample_weight", sample_weight)):
        if isinstance(name, str) and name not in names:
            raise ValueError(f"{role} must be a column of X; got {name!r}, not one of {', '.join(names)}.")
    others = [name for name in (y, sample_weight) if isinstance(name, str)]
    return tuple(name for name in names if name not in others and not name.startswith(INDEX_COLUMNS))


def _split_parts(values: Any, name: str, X: tuple[Any, ...], lengths: Sequence[float]) -> tuple[Any, ...]:
    """Targets or weights, in the blocks of X; ``lengths`` may be unknown (NaN)."""
    if isinstance(values, str):
        raise ValueError(f"{name} must be an array; got the name {values!r}, and X has no names.")
    if _is_array(values) or _is_frame(values):
        return _split_dask(values, name, lengths)
    if np.isnan(lengths).any():
        lengths = _compute_lengths(X)
    counts = [int(length) for length in lengths]
    array = values if isinstance(values, np.memmap) else _inputs.as_array(values, name)
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if array.shape != (sum(counts),):
        raise ValueError(f"{name} must have one entry per row of X, shape ({sum(counts)},); got shape {array.shape}.")
    if isinstance(array, np.memmap):
        return _open_map(array, counts)
    edges = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    return tuple(array[start:stop] for start, stop in pairwise(edges))


def _split_dask(values: Any, name: str, lengths: Sequence[float]) -> tuple[Any, ...]:
    if _is_array(values):
        values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        if values.ndim != 1:
            raise ValueError(f"{name} must have one entry per row of X; got {values.ndim} dimensions.")
        known = not np.isnan(lengths).any() and not np.isnan(values.chunks[0]).any()
        if known and sum(lengths) != values.shape[0]:
            raise ValueError(
                f"{name} must have one entry per row of X, shape ({int(sum(lengths))},); got shape {values.shape}."
            )
        if known and list(values.chunks[0]) != list(lengths):
            values = values.rechunk((tuple(lengths),))
        parts = tuple(values.to_delayed().ravel())
    else:
        parts = _from_delayed(values, False)
    if len(parts) != len(lengths):
        raise ValueError(
            f"{name} must have the partitions of X where their lengths are not known; got {len(parts)} for "
            f"{len(lengths)}. Use compute_chunk_sizes() of both, or repartition; of a dataframe, "
            "name the column or give the series."
        )
    return parts


def _compute_lengths(X: tuple[Any, ...]) -> list[float]:
    import dask

    return [float(n) for n in dask.compute(*(part.shape[0] for part in X))]


def fetch(part: Any) -> Any:
    """A part, read if it has to be."""
    return part.read() if isinstance(part, Reader) else part


def _is_array(X: Any) -> bool:
    return _is_of(X, "dask.array", "Array")


def _is_frame(X: Any) -> bool:
    return _is_of(X, "dask.dataframe", "DataFrame", "Series")


def is_delayed(part: Any) -> bool:
    """Whether a part of the data is a dask object."""
    return _is_of(part, "dask.delayed", "Delayed")


def _is_of(value: Any, module: str, *kinds: str) -> bool:
    """Whether a value is of a class of a module, which whoever made the value has imported."""
    known = sys.modules.get(module)
    return known is not None and isinstance(value, tuple(getattr(known, kind) for kind in kinds))


def to_vector(values: Any, name: str) -> NDArray[Any]:
    """A part of the targets or weights as an array."""
    array = values.to_numpy() if hasattr(values, "to_numpy") else _inputs.as_array(values, name)
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
