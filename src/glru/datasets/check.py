"""Inspect a table before training: columns that are not features, and remarks for the reader."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru._results import list_some
from glru.datasets.files import UNNAMED, Contents, is_date, is_mostly_numbers, require_polars
from glru.linalg import Array

MAX_LEVELS = 30
"""A text column with more values than this, and fewer than ``ROWS_PER_LEVEL`` rows per value, is not categorical."""

ROWS_PER_LEVEL = 20.0

MIN_ROWS_FOR_IDS = 8
"""In shorter tables, distinct values do not suggest an id."""

ID_NAME = re.compile(
    r"(^|[_\W])(id|ids|nr|no|number|key|uuid|mrn|pid|index|rownames|row_names)$|(?<=[a-z])(ID|Id|Nr|No)$", re.IGNORECASE
)
INDEX_NAME = re.compile(rf"^({UNNAMED}\d+|Unnamed: \d+|index|rownames|row_names)$")

CHECKED_COLUMNS = 2000
"""At most this many columns are described; in wider tables, rows are not compared."""


@final
@dataclass(frozen=True)
class Check:
    """What was found in a table.

    Attributes
    ----------
    left_out : dict
        Columns that look like ids or dates, with the reason.
    id_column : str or None
        The one of them that names the rows.
    notes : list of (str, str)
        What else a reader should know: a heading and a sentence.
    """

    left_out: dict[str, str]
    id_column: str | None
    notes: list[tuple[str, str]]


def check_table(contents: Contents, target: str | None, keep: Sequence[str] = (), drop: Sequence[str] = ()) -> Check:
    """Find columns that are not features.

    Parameters
    ----------
    contents : Contents
        A table from :func:`glru.datasets.read`.
    target : str or None
        The column to predict.
    keep : sequence of str, default=()
        Columns that stay features whatever they look like.
    drop : sequence of str, default=()
        Columns that are not looked at.
    """
    pl = require_polars()
    table = contents.table.drop([name for name in {target, *drop} if name in contents.names])
    left_out: dict[str, str] = {}
    id_column = None
    for name in _find_suspects(table):
        reason, names_rows = _explain_exclusion(table[name])
        if reason is None or name in keep:
            continue
        left_out[name] = reason
        if names_rows and (id_column is None or INDEX_NAME.match(id_column)):
            id_column = name
    strange = [name for name in keep if name not in contents.names]
    if strange:
        raise ValueError(f"columns to keep must be in {contents.path}; got {list_some(strange, repr)}.")
    text_dates = [name for name in keep if contents.table.schema[name] == pl.String and is_date(contents.table[name])]
    if text_dates:
        raise ValueError(
            f"{contents.path}: dates must be written as 2024-12-31 to be kept; those in {list_some(text_dates, repr)} are not, and it is not known "
            "whether the day or the month comes first."
        )
    notes = [("read as", "; ".join(contents.notes))] if contents.notes else []
    return Check(left_out, id_column, notes)


def _find_suspects(table: Any) -> list[str]:
    """Columns of text and times, and those of whole numbers that are all different."""
    pl = require_polars()
    texts = (pl.String, pl.Categorical, pl.Enum)

    def is_suspect(column: Any) -> bool:
        kind = column.dtype
        return kind in texts or kind.is_temporal() or (kind.is_integer() and column.n_unique() == len(column))

    return [column.name for column in table.get_columns() if is_suspect(column)]


def _explain_exclusion(column: Any) -> tuple[str | None, bool]:
    """Why a column is not a feature (None if it is one), and whether it names the rows."""
    pl = require_polars()
    kind, n = column.dtype, len(column)
    if kind.is_temporal() or (kind == pl.String and is_date(column)):
        return ("durations" if kind == pl.Duration else "dates"), False
    if n < MIN_ROWS_FOR_IDS:
        return None, False
    if not kind.is_integer():
        known = column.drop_nulls()
        n_levels = known.n_unique()
        different = n_levels == n
        if is_mostly_numbers(known):
            return None, False  # A stray text among numbers is an error to be corrected, not an id.
        if different or (n_levels > MAX_LEVELS and len(known) < ROWS_PER_LEVEL * n_levels):
            return f"{n_levels:,} different texts in {n:,} rows", different
        return None, False
    if INDEX_NAME.match(column.name) or (column.diff().drop_nulls() == 1).all():
        return "counts the rows", True
    if ID_NAME.search(column.name) or int(column.max()) - int(column.min()) == n - 1:
        return f"{n:,} different whole numbers, like an id", True
    return None, False


def describe_features(table: Any, y: Array, classes: Sequence[str] | None) -> list[tuple[str, str]]:
    """What a reader should know about the columns that are used: missing values, copies, constants, leaks, balance.

    ``classes``: what the targets -1 and +1, or places of more classes, stand for; None for a regression.
    """
    n_rows, notes = y.size, []
    if classes is not None:
        places = (y > 0.0).astype(np.intp) if len(classes) == 2 else y.astype(np.intp)
        counts = np.bincount(places, minlength=len(classes))
        shown = list_some(
            range(len(classes)), lambda k: f"{classes[k]} {counts[k]:,} ({100.0 * counts[k] / n_rows:.3g} %)", 12
        )
        notes.append(("classes", shown))
    known = table[:, :CHECKED_COLUMNS].fill_nan(None)
    missing = {name: count for name, count in zip(known.columns, known.null_count().row(0), strict=True) if count}
    if missing:
        notes.append(
            ("missing values", list_some(missing, lambda name: f"{name!r} {100.0 * missing[name] / n_rows:.3g} %"))
        )
    columns = known.columns
    constant = [name for name in columns if known[name].min() == known[name].max()]
    copies = _find_copies(known, [name for name in columns if name not in set(constant)])
    doubtful = [
        (f"constant: {list_some(constant, repr)}" if constant else ""),
        (f"copies of other columns: {list_some(copies, repr)}" if copies else ""),
    ]
    if classes is not None:
        tell = [name for name in columns if name not in set(constant) and _separates(known[name], places)]
        doubtful.append(
            f"may be the answer in disguise, since each separates the classes by itself: {list_some(tell, repr)}"
            if tell
            else ""
        )
    if any(doubtful):
        notes.append(("columns to look at", "; ".join(part for part in doubtful if part)))
    n_copies = (
        n_rows - known.insert_column(0, require_polars().Series("", y)).n_unique() if known.width == table.width else 0
    )
    if n_copies:
        share = f"{n_copies:,} of {n_rows:,} are copies of other rows, target included"
        notes.append(("rows to look at", f"{share}: a copy that stays in training makes held-out errors look too good"))
    return notes


def _find_copies(table: Any, names: Sequence[str]) -> list[str]:
    """Columns that equal an earlier one."""
    seen: dict[tuple[Any, int], list[str]] = {}
    found = []
    for name in names:
        earlier = seen.setdefault((table[name].dtype, int(table[name].hash().sum())), [])
        if any(table[name].equals(table[other]) for other in earlier):
            found.append(name)
        earlier.append(name)
    return found


def _separates(column: Any, places: NDArray[np.intp]) -> bool:
    """Whether a column alone tells the classes apart: every text belongs to one class, or the classes' numbers lie side by side."""
    pl = require_polars()
    known = column.is_not_null()
    values, mine = column.filter(known), places[known.to_numpy()]
    present = np.unique(mine)
    if present.size < 2 or present.size < np.unique(places).size or len(values) < len(column) / 2:
        return False
    if values.dtype in (pl.String, pl.Categorical, pl.Enum):
        return bool(pl.DataFrame({"value": values, "class": mine}).n_unique() == values.n_unique())
    numbers = values.to_numpy()
    ends = sorted((numbers[mine == k].min(), numbers[mine == k].max()) for k in present)
    return all(first[1] < second[0] for first, second in pairwise(ends))
