"""Tables with named columns: reading CSV, TSV and Parquet, and what is wrong with a column."""

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glru._extras import require
from glru.datasets.files import Contents, Place

MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?"]
"""What stands for a missing value in a text file."""

GUESSES = {";": "a semicolon", "\t": "a tab", "|": "a bar", ",": "a comma"}


def polars() -> Any:
    """The library that reads tables."""
    return require("polars", "cli", "reading tables (CSV, TSV, Parquet)")


def read_parquet(place: Place) -> Contents:
    """A Parquet file."""
    pl = polars()

    with place.open() as file:
        data = file.read()
    try:
        table = pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ValueError(f"{place.path} is not a Parquet file, or is cut short: {_first_line(error)}.") from None
    return _contents(place, table)


def read_text(place: Place) -> Contents:
    """A CSV or TSV file with or without a header."""
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
    return _contents(place, _numbers_in_text(table))


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
    """Columns of numbers with blanks around them as numbers."""
    pl = polars()

    found = []
    for column in table.get_columns():
        if column.dtype == pl.String:
            stripped = column.str.strip_chars()
            number = stripped.cast(pl.Float64, strict=False)
            found.append(number if number.null_count() == column.null_count() else stripped)
    return table.with_columns(found) if found else table


def _contents(place: Place, table: Any) -> Contents:
    if table.height == 0 or table.width == 0:
        raise ValueError(f"{place.path} must hold at least one row and one column; it has {table.height} rows.")
    return Contents(place.path, tuple(table.columns), table=table)


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")


def check_kinds(table: Any, columns: Sequence[str], one_hot: bool) -> list[str]:
    """Return the columns of text; an error for those that are neither text nor numbers, and for text unless encoded."""
    pl = polars()
    schema, text = dict(table.schema), []
    for name in columns:
        kind = schema[name]
        if kind in (pl.String, pl.Categorical, pl.Enum):
            text.append(name)
        elif not (kind.is_numeric() or kind in (pl.Boolean, pl.Null)):
            raise ValueError(f"columns must hold numbers or text; {name!r} holds {kind}. Leave it out (drop=[...]).")
    if text and not one_hot:
        raise ValueError(_text_message(table, text))
    return text


def check_values(table: Any, most_missing: int) -> None:
    """Check that columns have finite values, and at most so many missing ones."""
    pl = polars()
    known = table.fill_nan(None)
    counts = dict(zip(known.columns, known.null_count().row(0), strict=True))
    gaps = {name: np.flatnonzero(known[name].is_null()) for name, count in counts.items() if count}
    if gaps and most_missing == 0:
        raise ValueError(_missing_message(gaps))
    empty = next((name for name, rows in gaps.items() if rows.size > most_missing), None)
    if empty is not None:
        raise ValueError(f"column {empty!r} has no values at all. Leave it out (drop=[...]).")
    numbers = [name for name, kind in table.schema.items() if kind == pl.Float64]
    infinite = np.argwhere(np.isinf(table.select(numbers).to_numpy())) if numbers else np.empty((0, 2))
    if infinite.size:
        row, place = (int(k) for k in infinite[0])
        value = table[numbers[place]][row]
        raise ValueError(
            f"columns must be finite; {numbers[place]!r} is {value} in row {row}. Correct the value, or leave the column out "
            "(drop=[...])."
        )


def _text_message(table: Any, text: Sequence[str]) -> str:
    pl = polars()
    described = []
    for name in text[:5]:
        values = table[name].cast(pl.String)
        numbers = values.cast(pl.Float64, strict=False)
        row = int((values.is_not_null() & numbers.is_null()).arg_max() or 0)
        among = " among numbers" if 2 * (len(numbers) - numbers.null_count()) > len(numbers) else ""
        described.append(f"{name!r} ({values[row]!r}{among} in row {row})")
    more = f" and {len(text) - 5} more" if len(text) > 5 else ""
    return (
        f"columns must hold numbers; text is in {', '.join(described)}{more}. Encode categories (one_hot=True), correct the "
        "values, or leave the columns out (drop=[...])."
    )


def _missing_message(gaps: Mapping[str, Any]) -> str:
    shown = [f"{name!r} ({len(rows)}, first in row {rows[0]})" for name, rows in list(gaps.items())[:5]]
    more = f" and {len(gaps) - 5} more columns" if len(gaps) > 5 else ""
    return (
        f"columns must have no missing values; missing are some of {', '.join(shown)}{more}. Fill them in "
        "(impute='median'), or leave the columns out (drop=[...])."
    )
