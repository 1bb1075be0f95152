"""Turn a dataset or a file into the numbers of a training problem, and new rows into the same form.

The columns are encoded, imputed and scaled by scikit-learn's transformers; this module chooses them, names what they
make, and says what is wrong with a column in terms of the file.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from glru._results import list_some
from glru.datasets.catalogue import Dataset, Task
from glru.datasets.files import STANDARD_INPUT, Contents, as_numbers, is_mostly_numbers, parse_numbers, require_polars
from glru.linalg import Array, RawMatrix, as_matrix

Imputation = Literal["mean", "median", "most-frequent"]
Scaling = Literal["dense", "sparse", "none"]

TARGETS = ("target", "label", "class", "y")
"""Column names that are taken for the target if none is given."""

MAX_CLASSES = 20
"""Targets of more different whole numbers are taken for a regression."""

OTHERS = "others"
"""The name of all classes but the positive one, where there are several."""

MAX_DENSE_BYTES = 16 << 30
"""Bytes of the largest dense array that is made of sparse data."""


@final
@dataclass(frozen=True, eq=False)
class TargetEncoding:
    """What the numbers of ``y`` stand for."""

    column: str | None  # the column of the table; None for a matrix
    task: Task  # what is trained
    # What -1 and +1 stand for; of more than two classes, what 0, 1, 2 and so on stand for.
    classes: tuple[str, ...] | None

    @classmethod
    def fit(
        cls, values: Sequence[Any], column: str | None, positive: str | None, task: Task | None
    ) -> "TargetEncoding":
        """Learn what some targets stand for."""
        what = f"the target {column!r}" if column else "the target y"
        _require_known(values, what)
        names = sorted({name_class(value) for value in set(values)}, key=_sort_key)
        if task == "regression":
            if positive is not None:
                raise ValueError(f"a positive class is for classification losses; got {positive!r} for a regression.")
            return cls(column, "regression", None)
        if positive is not None:
            if positive not in names:
                raise ValueError(
                    f"the positive class must be a value of {what} ({_list_names(names)}); got {positive!r}."
                )
            if len(names) < 2:
                raise ValueError(f"{what} must have two classes; all {len(values)} rows are {names[0]!r}.")
            others = next(name for name in names if name != positive) if len(names) == 2 else OTHERS
            return cls(column, "classification", (others, positive))
        if len(names) == 1:
            raise ValueError(f"{what} must have two classes; all {len(values)} rows are {names[0]!r}.")
        if task is None and _is_measured(set(values)):
            return cls(column, "regression", None)
        if 2 * len(names) > len(values) and len(names) > 2:
            raise ValueError(
                f"{what} must have classes of two rows or more; it has {len(names)} values ({_list_names(names)}) in {len(values)} rows. Single one "
                "out (positive=...), or train a regression (task='regression')."
            )
        return cls(column, "classification", tuple(names))

    def encode(self, values: Sequence[Any]) -> Array:
        """Return targets as -1/+1, places of more than two classes, or real numbers."""
        what = f"the target {self.column!r}" if self.column else "the target y"
        _require_known(values, what)
        if self.classes is None:
            return _to_numbers(values, what)
        known = {value: name_class(value) for value in set(values)}
        strange = sorted(set(known.values()) - set(self.classes))
        if strange and self.classes[0] != OTHERS:
            raise ValueError(
                f"{what} must be one of {_list_names(self.classes)}, as in the training data; got {_list_names(strange)}."
            )
        if len(self.classes) > 2:
            places = {name: float(place) for place, name in enumerate(self.classes)}
            return np.array([places[known[value]] for value in values])
        positive = {value for value, name in known.items() if name == self.classes[1]}
        return np.array([1.0 if value in positive else -1.0 for value in values])


@final
@dataclass(frozen=True, eq=False)
class Prepared:
    """Data ready for training, and how new rows are brought into the same form.

    Attributes
    ----------
    name, source : str
        What it is and where it comes from.
    X, y : matrix, array
        Scaled data; targets -1/+1, places of more than two classes, or real.
    names : tuple of str
        The columns of X.
    origins : tuple of str
        The column of the file that each of them comes from (several share one after one-hot encoding).
    ids : tuple of str or None
        Names of the rows.
    id_column : str or None
        The column that they come from.
    targets : TargetEncoding
        What the targets stand for.
    columns : array of int
        The columns of the source that are used.
    is_table : bool
        Whether the source is a table with named columns; new rows must be of the same kind.
    imputed : bool
        Whether missing values are filled in.
    has_comma : bool
        Whether the source writes fractions with a comma.
    normalize : {"dense", "sparse", "none"}
        How the columns are scaled.
    transformer : sklearn.pipeline.Pipeline
        Turns the used columns of the source into X.
    raw : frame or matrix
        These columns, as they are in the source.
    """

    name: str
    source: str
    X: RawMatrix
    y: Array
    names: tuple[str, ...]
    origins: tuple[str, ...]
    ids: tuple[str, ...] | None
    id_column: str | None
    targets: TargetEncoding
    columns: NDArray[np.intp]
    is_table: bool
    imputed: bool
    has_comma: bool
    normalize: Scaling
    transformer: Any
    raw: Any

    def transform(self, contents: Contents, known: bool = False) -> RawMatrix:
        """Return new rows in the columns of the training problem; ``known``: categories must be those of the training data."""
        return _to_array(self.transformer.transform(self._read_columns(contents, known)))

    def transform_labelled(self, contents: Contents) -> tuple[RawMatrix, Array]:
        """Return new rows and their targets in the form of the training problem."""
        return self.transform(contents, True), self.targets.encode(_read_targets(contents, self.targets.column))

    def find_unknown_values(self, contents: Contents) -> dict[str, list[str]]:
        """The categories of new rows that the training data does not have, by column; they are encoded as none of the known ones."""
        if not self.is_table or contents.table is None:
            return {}
        found = {}
        for name, values in _list_categories(self.transformer.named_steps["columns"]):
            texts = contents.table[name].cast(require_polars().String).drop_nulls().unique().to_list()
            strange = sorted(set(texts) - set(values))
            if strange:
                found[name] = strange
        return found

    def describe_reading(self, contents: Contents) -> list[str]:
        """How values of new rows were interpreted, including text in columns that are numeric in the training data."""
        if not self.is_table or contents.table is None:
            return list(contents.notes)
        encoder = self.transformer.named_steps["columns"]
        numbers = set(encoder.feature_names_in_.tolist()) - {name for name, _ in _list_categories(encoder)}
        return [*contents.notes, *_parse_numeric_columns(contents.table, sorted(numbers))[1]]

    @property
    def has_gaps(self) -> bool:
        """Whether values are missing in the columns that are used."""
        return self.is_table and has_gaps(self.raw)

    def fill_gaps(self) -> Any:
        """The columns as they are in the source, but with missing values filled in by what was learnt from all rows."""
        table = self.raw.fill_nan(None)
        for label, work, place in self.transformer.named_steps["columns"].transformers_:
            fill = work[0] if label.startswith("text") else work
            if hasattr(fill, "statistics_"):
                values = zip(table.columns[place], fill.statistics_.tolist(), strict=True)
                table = table.with_columns(table[name].fill_null(value) for name, value in values)
        return table

    def find_columns(self, names: Sequence[str]) -> list[int]:
        """Return the positions of columns of X by their own names or those of the columns they come from."""
        found = []
        for name in names:
            places = [k for k, pair in enumerate(zip(self.names, self.origins, strict=True)) if name in pair]
            if not places:
                raise ValueError(f"columns must be among those of the model ({_list_names(self.names)}); got {name!r}.")
            found += places
        return sorted(set(found))

    def _read_columns(self, contents: Contents, known: bool) -> Any:
        if not self.is_table:
            return _take_matrix_columns(contents, self.columns)
        if contents.table is None:
            raise ValueError(f"{contents.path} must be a table with the columns of the training data; it is a matrix.")
        encoder = self.transformer.named_steps["columns"]
        columns = encoder.feature_names_in_.tolist()
        absent = [name for name in columns if name not in set(contents.names)]
        if absent:
            raise ValueError(
                f"a table must have the columns of the training data; missing: {_list_names(absent, repr)}."
            )
        text = {name for name, _ in _list_categories(encoder)}
        with _name_file_in_errors(contents):
            table, _ = _parse_numeric_columns(contents.table, [name for name in columns if name not in text])
            table = _cast_columns(table, columns, text)
            _check_values(table, table.height if self.imputed else 0)
        strange = self.find_unknown_values(contents) if known else {}
        for name, values in strange.items():
            raise ValueError(
                f"column {name!r} of {contents.path} must have values of the training data; got {_list_names(values, repr)}."
            )
        return table


def prepare(
    data: Dataset | Contents,
    *,
    target: str | None = None,
    positive: str | None = None,
    drop: Sequence[str] = (),
    ids: str | None = None,
    one_hot: bool = False,
    impute: Imputation | None = None,
    normalize: Literal["auto", Scaling] = "auto",
    task: Task | None = None,
) -> Prepared:
    """Encode, impute and scale a dataset or the contents of a file.

    Parameters
    ----------
    data : Dataset or Contents
        From :func:`load` or :func:`read`.
    target : str, default=None
        The column to predict; one called target, label, class or y if not given.
    positive : str, default=None
        The class that counts as +1, all others being -1; if not given, two classes are -1 and +1, and more are 0, 1, 2 and so on.
    drop : sequence of str, default=()
        Columns to leave out.
    ids : str, default=None
        A column with the names of the rows; it is not used by the model.
    one_hot : bool, default=False
        Turn text columns into columns of zeros and ones.
    impute : {"mean", "median", "most-frequent"}, default=None
        What stands in for missing values; in text columns always the most frequent value.
    normalize : {"auto", "dense", "sparse", "none"}, default="auto"
        "dense": columns without variance are removed, the others get mean 0 and variance 1. "sparse": likewise, but zeros
        stay zeros (variance 1, not centred). "none": columns stay as they are. "auto": sparse for sparse data, else dense.
    task : {"classification", "regression"}, default=None
        What is to be trained; by the targets if not given: a regression where they are numbers with fractions or of more than 20 values.

    Returns
    -------
    Prepared

    Examples
    --------
    >>> import glru
    >>> prepared = glru.datasets.prepare(glru.datasets.load("wine:0v1"))
    >>> prepared.X.shape, prepared.names[0]
    ((130, 13), 'alcohol')
    """
    if normalize not in ("auto", "dense", "sparse", "none"):
        raise ValueError(f"normalize must be 'auto', 'dense', 'sparse' or 'none'; got {normalize!r}.")
    if impute not in (None, "mean", "median", "most-frequent"):
        raise ValueError(f"impute must be 'mean', 'median' or 'most-frequent'; got {impute!r}.")
    if isinstance(data, Dataset):
        given = {"target": target, "positive": positive, "ids": ids, "impute": impute, "one_hot": one_hot or None}
        if wrong := [f"{name}={value!r}" for name, value in given.items() if value is not None]:
            raise ValueError(f"{', '.join(wrong)} is for files; the targets and rows of {data.name} are fixed.")
        names = data.feature_names or tuple(map(str, range(data.X.shape[1])))
        contents, source = Contents(Path(data.name), names, X=data.X, y=data.y), data.source
        if task == "classification" and data.task == "regression":
            raise ValueError(f"{data.name} is a regression; use a regression loss (squared, huber).")
        task = task or data.task
        targets, y = TargetEncoding("y", task, data.classes if task == "classification" else None), data.y
    else:
        contents, source = data, str(data.path)
        column = find_target(data, target)
        values = _read_targets(data, column)
        targets = TargetEncoding.fit(values, column, positive, task)
        y = targets.encode(values)
    is_table = contents.table is not None
    used = _choose_columns(contents, [targets.column if is_table else None, ids, *drop])
    raw, steps = _select_columns(contents, used, one_hot, impute)
    dense = contents.X is None or as_matrix(contents.X).stores_zeros
    scaling: Scaling = ("dense" if dense else "sparse") if normalize == "auto" else normalize
    transformer = _make_pipeline(steps, scaling, is_table or as_matrix(raw).stores_zeros)
    X = _fit(transformer, raw)
    encoded = (
        list(_list_encoded_names(transformer[0]))
        if is_table
        else [(contents.names[k], contents.names[k]) for k in used]
    )
    kept = range(len(encoded)) if scaling == "none" else transformer.named_steps["varying"].get_support(indices=True)
    return Prepared(
        name="the standard input" if contents.path == STANDARD_INPUT else contents.path.name,
        source=source,
        X=X,
        y=y,
        names=tuple(encoded[k][0] for k in kept),
        origins=tuple(encoded[k][1] for k in kept),
        ids=None if ids is None else tuple(map(str, contents.table[ids].to_list())),
        id_column=ids,
        targets=targets,
        columns=used,
        is_table=is_table,
        imputed=impute is not None,
        has_comma=contents.has_comma,
        normalize=scaling,
        transformer=transformer,
        raw=raw,
    )


def has_gaps(table: Any) -> bool:
    """Whether values of a table are missing."""
    return any(
        column.null_count() or (column.dtype.is_float() and column.is_nan().any()) for column in table.get_columns()
    )


def find_target(data: Contents, target: str | None) -> str | None:
    """The name of the target column; None for a matrix, which has its targets beside it."""
    if data.table is None:
        if target is not None:
            raise ValueError(f"{data.path} is a matrix with its targets in y; target={target!r} is for tables.")
        return None
    if target is not None:
        if target not in data.names:
            near = get_close_matches(target, data.names, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"the target must be a column of {data.path} ({_list_names(data.names)}); got {target!r}.{hint}"
            )
        return target
    found = [name for name in data.names if name.lower() in TARGETS]
    if len(found) != 1:
        raise ValueError(f"the target column must be named (target=...); {data.path} has {_list_names(data.names)}.")
    return found[0]


def _read_targets(data: Contents, column: str | None) -> Any:
    if data.table is not None:
        if (column or "y") not in data.names:
            raise ValueError(f"{data.path} must have a column {column or 'y'!r}; it has {_list_names(data.names)}.")
        return data.table[column or "y"].to_list()
    if data.y is None:
        raise ValueError(f"{data.path} must hold targets in y; it has none.")
    return data.y.tolist()


def _choose_columns(contents: Contents, left_out: Sequence[str | None]) -> NDArray[np.intp]:
    """Positions of the columns that are not left out."""
    names, origin = contents.names, contents.path
    gone = {name for name in left_out if name is not None}
    strange = sorted(gone - set(names))
    if strange:
        raise ValueError(
            f"columns to leave out must be in {origin} ({_list_names(names)}); got {_list_names(strange)}."
        )
    used = np.flatnonzero([name not in gone for name in names])
    if used.size == 0:
        raise ValueError(f"{origin} must have a column besides those that are left out; it has none.")
    return used


def _select_columns(
    contents: Contents, used: NDArray[np.intp], one_hot: bool, impute: Imputation | None
) -> tuple[Any, list[tuple[str, Any]]]:
    """The used columns as they are, and the steps that turn them into numbers."""
    if contents.table is None:
        if impute or one_hot:
            raise ValueError(
                f"imputation and one-hot encoding need a table (CSV, TSV, Parquet); {contents.path} is a matrix."
            )
        return _take_matrix_columns(contents, used), []
    names = [contents.names[k] for k in used]
    with _name_file_in_errors(contents):
        text = set(_check_kinds(contents.table, names, one_hot))
        table = _cast_columns(contents.table, names, text)
        _check_values(table, table.height - 1 if impute else 0)
    return table, [("columns", _make_encoder(names, text, impute))]


def _take_matrix_columns(contents: Contents, used: NDArray[np.intp]) -> Any:
    X = contents.X
    if X is None:
        raise ValueError(f"{contents.path} must be a matrix (NPZ or LIBSVM) as the training data is; it is a table.")
    if used[-1] >= X.shape[1]:
        raise ValueError(f"{contents.path} must have at least {used[-1] + 1} columns; it has {X.shape[1]}.")
    parts = as_matrix(X).parts.values()
    missing = sum(int(np.isnan(part).sum()) for part in parts)
    if missing:
        raise ValueError(f"{contents.path} must have no missing values; it has {missing} (NaN).")
    if not all(np.isfinite(part).all() for part in parts):
        raise ValueError(f"{contents.path} must be finite; it has infinite values.")
    return X if used.size == X.shape[1] else X[:, used]


def _parse_numeric_columns(table: Any, names: Sequence[str]) -> tuple[Any, list[str]]:
    """A table whose columns of that name are numbers, and what was read so; an error where one holds text."""
    pl = require_polars()
    schema = dict(table.schema)
    notes: list[str] = []
    for name in names:
        if schema[name] == pl.String:
            values = table[name].str.strip_chars()
            ways = (parse_numbers(values, decimal_comma) for decimal_comma in (False, True))
            column, remarks = next((way for way in ways if way[0] is not None), (values, []))
            table, notes = table.with_columns(column), notes + remarks
    _check_kinds(table, names, one_hot=False)
    return table, notes


@contextmanager
def _name_file_in_errors(contents: Contents) -> Iterator[None]:
    """Name the file in errors about its columns."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{contents.path}: {error}") from None


def _cast_columns(table: Any, columns: Sequence[str], text: set[str]) -> Any:
    """Some columns of a table, as numbers or text; dates as days since 1970."""
    pl = require_polars()
    chosen = table.select(columns)
    days = [
        (chosen[name].cast(pl.Datetime("us")).dt.epoch("us") / 86_400e6).alias(name)
        for name, kind in chosen.schema.items()
        if kind in (pl.Date, pl.Datetime)
    ]
    return chosen.with_columns(days).cast({name: pl.String if name in text else pl.Float64 for name in columns})


def _make_encoder(columns: Sequence[str], text: set[str], impute: Imputation | None) -> Any:
    """One transformer for each run of columns of one kind, so that the columns keep their order."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    steps, place = [], 0
    for is_text, run in groupby(columns, key=text.__contains__):
        n_columns = len(list(run))
        work: Any = "passthrough"
        if is_text:
            fill = SimpleImputer(missing_values=None, strategy="most_frequent") if impute else "passthrough"
            work = make_pipeline(fill, OneHotEncoder(handle_unknown="ignore", sparse_output=False))
        elif impute:
            work = SimpleImputer(strategy=impute.replace("-", "_"))
        steps.append((f"{'text' if is_text else 'numbers'}-{place}", work, slice(place, place + n_columns)))
        place += n_columns
    return ColumnTransformer(steps, verbose_feature_names_out=False)


def _list_categories(encoder: Any) -> Iterator[tuple[str, Any]]:
    """The text columns of a fitted encoder, each with its values."""
    for label, work, place in encoder.transformers_:
        if label.startswith("text"):
            yield from zip(encoder.feature_names_in_[place].tolist(), work[-1].categories_, strict=True)


def _list_encoded_names(encoder: Any) -> Iterator[tuple[str, str]]:
    """The columns that an encoder makes, each with the column that it comes from."""
    values = dict(_list_categories(encoder))
    for name in encoder.feature_names_in_.tolist():
        if name in values:
            yield from ((f"{name}={value}", name) for value in values[name])
        else:
            yield name, name


def _make_pipeline(steps: list[tuple[str, Any]], scaling: Scaling, dense: bool) -> Any:
    from sklearn.feature_selection import VarianceThreshold
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    if scaling == "dense":
        filled = FunctionTransformer(np.ascontiguousarray if dense else _fill, accept_sparse=True)
        steps = [*steps, ("varying", VarianceThreshold()), ("filled", filled), ("scale", StandardScaler())]
    elif scaling == "sparse":
        steps = [*steps, ("varying", VarianceThreshold()), ("scale", StandardScaler(with_mean=False))]
    return Pipeline(steps or [("unchanged", "passthrough")])


def _fit(transformer: Any, raw: Any) -> RawMatrix:
    """Fit and apply a pipeline; an error where columns cannot be scaled."""
    n_columns = raw.shape[1]
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            X = transformer.fit_transform(raw)
    except ValueError as error:
        if "variance threshold" not in str(error):
            raise
        raise ValueError(f"at least one column must have more than one value; all {n_columns} are constant.") from None
    scaler = transformer.named_steps.get("scale")
    if scaler is not None and not np.isfinite(scaler.var_).all():
        column = transformer.named_steps["varying"].get_support(indices=True)[np.argmin(np.isfinite(scaler.var_))]
        raise ValueError(
            f"the values of column {column} are too large to be scaled in float64. Change its unit, or leave the columns as "
            "they are (normalize='none')."
        )
    return _to_array(X)


def _fill(X: Any) -> Array:
    """A dense array; an error where sparse data would fill the memory."""
    matrix = as_matrix(X)
    size = 8 * X.shape[0] * X.shape[1]
    if size > MAX_DENSE_BYTES and not matrix.stores_zeros:
        raise ValueError(
            f"normalize='dense' would fill {X.shape[0]} x {X.shape[1]} sparse data up to {size / 2**30:.0f} GiB. Use "
            "normalize='sparse'."
        )
    return np.ascontiguousarray(matrix.dense())


def _to_array(X: Any) -> RawMatrix:
    """Convert the output of a transformer to an array or a CSR array."""
    return as_matrix(np.ascontiguousarray(X) if isinstance(X, np.ndarray) or hasattr(X, "to_numpy") else X).data


def _require_known(values: Sequence[Any], what: str) -> None:
    if any(value is None or value != value for value in set(values)):
        bad = [k for k, value in enumerate(values) if value is None or value != value]
        raise ValueError(
            f"{what} must be known in every row; it is missing in {len(bad)}, first in row {bad[0]}. Take these rows out of the file."
        )


def _is_measured(values: set[Any]) -> bool:
    """Whether some targets are numbers that are measured or counted, not names of classes."""
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return False
    return len(values) > MAX_CLASSES or (len(values) > 2 and not all(float(value).is_integer() for value in values))


def _to_numbers(values: Sequence[Any], what: str) -> Array:
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        text = next(value for value in values if not isinstance(value, int | float))
        raise ValueError(f"{what} must hold numbers for a regression; got {str(text)!r}.") from None
    if not np.isfinite(numbers).all():
        raise ValueError(f"{what} must be finite; row {int(np.argmin(np.isfinite(numbers)))} is not.")
    return numbers


def name_class(value: Any) -> str:
    """Name a class; 1, 1.0 and "1" have the same name."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _sort_key(name: str) -> tuple[int, float, str]:
    """Sort key: numbers by size, then text."""
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name


def _check_kinds(table: Any, columns: Sequence[str], one_hot: bool) -> list[str]:
    """Return the columns of text; an error for those that are neither text nor numbers, and for text unless encoded."""
    pl = require_polars()
    schema, text = dict(table.schema), []
    for name in columns:
        kind = schema[name]
        if kind in (pl.String, pl.Categorical, pl.Enum):
            text.append(name)
        elif not (kind.is_numeric() or kind in (pl.Boolean, pl.Null, pl.Date, pl.Datetime)):
            raise ValueError(f"columns must hold numbers or text; {name!r} holds {kind}. Leave it out (drop=[...]).")
    wrong = [name for name in text if is_mostly_numbers(table[name])] if one_hot else text
    if wrong:
        raise ValueError(_describe_text(table, wrong))
    return text


def _check_values(table: Any, most_missing: int) -> None:
    """Check that columns have finite values, and at most ``most_missing`` missing ones each."""
    pl = require_polars()
    known = table.fill_nan(None)
    counts = dict(zip(known.columns, known.null_count().row(0), strict=True))
    gaps = {name: np.flatnonzero(known[name].is_null()) for name, count in counts.items() if count}
    if gaps and most_missing == 0:
        raise ValueError(_describe_gaps(gaps))
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


def _describe_text(table: Any, text: Sequence[str]) -> str:
    pl = require_polars()

    def describe(name: str) -> str:
        values = table[name].cast(pl.String)
        numbers = as_numbers(values)
        row = int((values.is_not_null() & numbers.is_null()).arg_max() or 0)
        among = " among numbers" if 2 * (len(numbers) - numbers.null_count()) > len(numbers) else ""
        return f"{name!r} ({values[row]!r}{among} in row {row})"

    return (
        f"columns must hold numbers; text is in {list_some(text, describe)}. Encode categories (one_hot=True), correct the "
        "values, call them missing (missing=[...]), or leave the columns out (drop=[...])."
    )


def _describe_gaps(gaps: Mapping[str, Any]) -> str:
    shown = list_some(gaps, lambda name: f"{name!r} ({len(gaps[name])}, first in row {gaps[name][0]})")
    return (
        f"columns must have no missing values; values are missing in {shown}. Fill them in "
        "(impute='median'), or leave the columns out (drop=[...])."
    )


def _list_names(names: Sequence[str], show: Any = str) -> str:
    # The target is often the last column.
    some = [*map(show, names[:9]), "...", show(names[-1])] if len(names) > 10 else map(show, names)
    return ", ".join(some)
