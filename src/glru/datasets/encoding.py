"""Columns of a table as numbers: categories one-hot, missing values imputed, or an error that names the columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from glru.linalg import Array

Imputation = Literal["mean", "median", "most-frequent"]
IMPUTATIONS = ("mean", "median", "most-frequent")


@final
@dataclass(frozen=True, eq=False)
class Encoder:
    """How the columns of a table become numbers: learnt from one table, applied to any with the same columns.

    Attributes
    ----------
    columns : tuple of str
        The columns that are used, in order.
    categories : dict
        The values of each text column, in order; each becomes a column of zeros and ones.
    fills : dict
        What stands in for a missing value, for the columns that have some.
    """

    columns: tuple[str, ...]
    categories: dict[str, tuple[str, ...]]
    fills: dict[str, float | str]

    @classmethod
    def fit(cls, table: Any, columns: Sequence[str], one_hot: bool, impute: Imputation | None) -> "Encoder":
        """The encoding of a table's own columns."""
        text = _text_columns(table, columns)
        if text and not one_hot:
            raise ValueError(_text_message(table, text))
        fills = _fills(table, columns, impute)
        categories = {}
        for name in text:
            values = {str(value) for value in table[name].unique().drop_nulls().to_list()}
            categories[name] = tuple(sorted(values))
        return cls(tuple(columns), categories, fills)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the encoded columns."""
        return tuple(f"{name}={value}" if value else name for name, value in self._cells())

    @property
    def origins(self) -> tuple[str, ...]:
        """The column of the table that each encoded column comes from."""
        return tuple(name for name, _ in self._cells())

    def _cells(self) -> list[tuple[str, str | None]]:
        return [(name, value) for name in self.columns for value in self.categories.get(name, (None,))]

    def apply(self, table: Any) -> Array:
        """The encoded columns of a table."""
        present = set(table.columns)
        absent = [name for name in self.columns if name not in present]
        if absent:
            raise ValueError(f"a table must have the columns of the training data; missing: {_listed(absent)}.")
        numbers = [name for name in self.columns if name not in self.categories]
        text = _text_columns(table, numbers)
        if text:
            raise ValueError(_text_message(table, text))
        block = _numbers(table, numbers)
        for place, name in enumerate(numbers):
            if name in self.fills:
                block[np.isnan(block[:, place]), place] = self.fills[name]
        _require_present(block, numbers)
        if not self.categories:
            return block
        found, place = [], 0
        for name in self.columns:
            if name in self.categories:
                found.append(self._dummies(table, name))
            else:
                found.append(block[:, place : place + 1])
                place += 1
        return np.hstack(found)

    def _dummies(self, table: Any, name: str) -> Array:
        values = np.array(
            [str(v) if v is not None else self.fills.get(name) for v in table[name].to_list()], dtype=object
        )
        if any(value is None for value in values):
            raise ValueError(_missing_message({name: [k for k, value in enumerate(values) if value is None]}))
        strange = sorted({str(value) for value in values} - set(self.categories[name]))
        if strange:
            raise ValueError(f"column {name!r} must have values of the training data; got {_listed(strange)}.")
        return (values[:, None] == np.array(self.categories[name], dtype=object)[None, :]).astype(np.float64)


def _text_columns(table: Any, columns: Sequence[str]) -> list[str]:
    """The columns of text; an error for those that are neither text nor numbers."""
    import polars as pl

    schema, text = dict(table.schema), []
    for name in columns:
        kind = schema[name]
        if kind in (pl.String, pl.Categorical, pl.Enum):
            text.append(name)
        elif not (kind.is_numeric() or kind == pl.Boolean or kind == pl.Null):
            raise ValueError(f"columns must hold numbers or text; {name!r} holds {kind}. Leave it out (--drop).")
    return text


def _text_message(table: Any, text: Sequence[str]) -> str:
    import polars as pl

    described = []
    for name in text[:5]:
        values = table[name].cast(pl.String)
        numbers = values.cast(pl.Float64, strict=False)
        row = int((values.is_not_null() & numbers.is_null()).arg_max() or 0)
        among = " among numbers" if 2 * (len(numbers) - numbers.null_count()) > len(numbers) else ""
        described.append(f"{name!r} ({values[row]!r}{among} in row {row})")
    more = f" and {len(text) - 5} more" if len(text) > 5 else ""
    return (
        f"columns must hold numbers; text is in {', '.join(described)}{more}. Encode categories (--one-hot), correct the "
        f"values, or leave the columns out (--drop)."
    )


def _numbers(table: Any, columns: Sequence[str]) -> Array:
    import polars as pl

    if not columns:
        return np.empty((table.height, 0))
    chosen = table.select(columns)
    if not all(kind.is_numeric() for kind in chosen.dtypes):
        chosen = chosen.cast(pl.Float64)
    return np.array(chosen.to_numpy(), dtype=np.float64, order="C")


def _fills(table: Any, columns: Sequence[str], impute: Imputation | None) -> dict[str, float | str]:
    """What stands in for missing values; an error where there are some and no imputation was asked for."""
    import polars as pl

    if impute is not None and impute not in IMPUTATIONS:
        raise ValueError(f"impute must be 'mean', 'median' or 'most-frequent'; got {impute!r}.")
    used, gaps = set(columns), {}
    for column in table.get_columns():
        if column.name in used:
            known = column.fill_nan(None) if column.dtype.is_float() else column
            if known.null_count():
                gaps[column.name] = known
    if gaps and impute is None:
        raise ValueError(
            _missing_message({n: np.flatnonzero(c.is_null().to_numpy()).tolist() for n, c in gaps.items()})
        )
    fills: dict[str, float | str] = {}
    for name, column in gaps.items():
        present = column.drop_nulls()
        if not len(present):
            raise ValueError(f"column {name!r} has no values at all. Leave it out (--drop).")
        text = column.dtype in (pl.String, pl.Categorical, pl.Enum)
        if text or impute == "most-frequent":
            value = present.cast(pl.String).mode().sort()[0] if text else float(present.mode().sort()[0])
        else:
            value = float(present.mean() if impute == "mean" else present.median())
        fills[name] = value
    return fills


def _require_present(block: Array, names: Sequence[str]) -> None:
    if np.isfinite(block.sum()):
        return
    bad = np.isnan(block)
    if bad.any():
        places = np.flatnonzero(bad.any(axis=0)).tolist()
        raise ValueError(_missing_message({names[k]: np.flatnonzero(bad[:, k]).tolist() for k in places}))
    infinite = np.argwhere(~np.isfinite(block))
    if infinite.size:
        row, place = (int(k) for k in infinite[0])
        raise ValueError(
            f"columns must be finite; {names[place]!r} is {block[row, place]} in row {row}. Correct the value, or leave the "
            "column out (--drop)."
        )


def _missing_message(gaps: dict[str, list[int]]) -> str:
    shown = [f"{name!r} ({len(rows)}, first in row {rows[0]})" for name, rows in list(gaps.items())[:5]]
    more = f" and {len(gaps) - 5} more columns" if len(gaps) > 5 else ""
    return (
        f"columns must have no missing values; missing are some of {', '.join(shown)}{more}. Fill them in "
        "(--impute median), or leave the columns out (--drop)."
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "")
