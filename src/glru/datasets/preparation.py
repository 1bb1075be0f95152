"""From a dataset or a file to the numbers of a training problem, and the same way again for new rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from glru.datasets.contents import Contents
from glru.datasets.dataset import Dataset, Task
from glru.datasets.encoding import Encoder, Imputation
from glru.datasets.normalization import Normalization, Strategy
from glru.datasets.targets import Targets
from glru.linalg import Array, RawMatrix, as_matrix

TARGETS = ("target", "label", "class", "y")
"""Names that a target column is recognised by, where none is given."""


@final
@dataclass(frozen=True)
class PrepareOptions:
    """What to make of the columns.

    Parameters
    ----------
    target : str, default=None
        The column to predict; one called target, label, class or y if not given.
    positive : str, default=None
        The class that counts as +1, all others being -1.
    drop : sequence of str, default=()
        Columns to leave out.
    ids : str, default=None
        A column that names the rows, left out of the model.
    one_hot : bool, default=False
        Turn text columns into columns of zeros and ones.
    impute : {"mean", "median", "most-frequent"}, default=None
        What stands in for missing values.
    normalize : {"auto", "dense", "sparse", "none"}, default="auto"
        As in :func:`normalize`; "auto" is the dataset's own strategy, dense for a table, sparse for sparse data.
    task : {"classification", "regression"}, default=None
        What is to be trained; by the targets if not given.
    """

    target: str | None = None
    positive: str | None = None
    drop: Sequence[str] = ()
    ids: str | None = None
    one_hot: bool = False
    impute: Imputation | None = None
    normalize: Literal["auto"] | Strategy = "auto"
    task: Task | None = None


@final
@dataclass(frozen=True, eq=False)
class Prepared:
    """Data ready for training, and how new rows are brought into the same form.

    Attributes
    ----------
    name, source : str
        What it is and where it comes from.
    X, y : matrix, array
        Normalised data; targets -1/+1 or real.
    names : tuple of str
        The columns of X.
    origins : tuple of str
        The column of the file that each of them comes from (several share one after one-hot encoding).
    ids : tuple of str or None
        Names of the rows.
    targets : Targets
        What the targets stand for.
    """

    name: str
    source: str
    X: RawMatrix
    y: Array
    names: tuple[str, ...]
    origins: tuple[str, ...]
    ids: tuple[str, ...] | None
    targets: Targets
    columns: NDArray[np.intp]
    encoder: Encoder | None
    normalization: Normalization

    def features(self, contents: Contents) -> RawMatrix:
        """The data of new rows in the terms of the training problem."""
        return self.normalization.apply(_encoded(contents, self.encoder, self.columns))

    def labelled(self, contents: Contents) -> tuple[RawMatrix, Array]:
        """The data and targets of new rows in the terms of the training problem."""
        return self.features(contents), self.targets.apply(_target_values(contents, self.targets.column))

    def columns_of(self, names: Sequence[str]) -> list[int]:
        """The positions of columns of X by their own names or those of the columns they come from."""
        found = []
        for name in names:
            places = [k for k, pair in enumerate(zip(self.names, self.origins, strict=True)) if name in pair]
            if not places:
                shown = ", ".join(self.names[:10]) + (", ..." if len(self.names) > 10 else "")
                raise ValueError(f"columns must be among those of the model ({shown}); got {name!r}.")
            found += places
        return sorted(set(found))


def prepare(data: Dataset | Contents, options: PrepareOptions | None = None) -> Prepared:
    """Encode, impute and normalise a dataset or the contents of a file.

    Parameters
    ----------
    data : Dataset or Contents
        From :func:`load` or :func:`read`.
    options : PrepareOptions, default=None
        What to make of the columns.

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
    options = options or PrepareOptions()
    if isinstance(data, Dataset):
        return _of_dataset(data, options)
    column = _target_column(data, options.target)
    targets = Targets.fit(_target_values(data, column), column, options.positive, options.task)
    used = _used(data.names, [column, options.ids, *options.drop], str(data.path))
    encoder = None
    if data.table is not None:
        encoder = Encoder.fit(data.table, [data.names[k] for k in used], options.one_hot, options.impute)
    elif options.impute or options.one_hot:
        raise ValueError(f"imputation and one-hot encoding need a table (CSV, TSV, Parquet); {data.path} is a matrix.")
    own: Strategy = "dense" if data.X is None or as_matrix(data.X).stores_zeros else "sparse"
    names = encoder.names if encoder else tuple(data.names[k] for k in used)
    origins = encoder.origins if encoder else names
    ids = None if options.ids is None else tuple(map(str, _column(data, options.ids).to_list()))
    X = _encoded(data, encoder, used)
    y = targets.apply(_target_values(data, column))
    normalization = Normalization.fit(X, own if options.normalize == "auto" else options.normalize)
    kept = normalization.kept
    return Prepared(
        name=data.path.name,
        source=str(data.path),
        X=normalization.apply(X),
        y=y,
        names=tuple(names[k] for k in kept),
        origins=tuple(origins[k] for k in kept),
        ids=ids,
        targets=targets,
        columns=used,
        encoder=encoder,
        normalization=normalization,
    )


def _of_dataset(data: Dataset, options: PrepareOptions) -> Prepared:
    given = {
        "--target": options.target,
        "--positive": options.positive,
        "--id": options.ids,
        "--impute": options.impute,
    }
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise ValueError(f"{', '.join(wrong)} is for files; {data.name} has its targets and rows as they are.")
    names = data.feature_names or tuple(map(str, range(data.X.shape[1])))
    used = _used(names, options.drop, data.name)
    X = _matrix(data.X, used)
    normalization = Normalization.fit(X, data.normalization if options.normalize == "auto" else options.normalize)
    names = tuple(names[used[k]] for k in normalization.kept)
    task = options.task or data.task
    targets = Targets("y", task, data.classes if task == "classification" else None, None)
    if task == "classification" and data.task == "regression":
        raise ValueError(f"{data.name} is a regression; use a regression loss (squared, huber).")
    return Prepared(
        data.name, data.source, normalization.apply(X), data.y, names, names, None, targets, used, None, normalization
    )


def _target_column(data: Contents, target: str | None) -> str | None:
    """The name of the target column; None for a matrix, which has its targets beside it."""
    if data.table is None:
        if data.y is None:
            raise ValueError(f"{data.path} must hold targets in y; it has none.")
        if target is not None:
            raise ValueError(f"{data.path} is a matrix with its targets in y; --target is for tables.")
        return None
    if target is not None:
        if target not in data.names:
            raise ValueError(f"the target must be a column of {data.path} ({_shown(data.names)}); got {target!r}.")
        return target
    found = [name for name in data.names if name.lower() in TARGETS]
    if len(found) != 1:
        raise ValueError(f"the target column must be named (--target); {data.path} has {_shown(data.names)}.")
    return found[0]


def _target_values(data: Contents, column: str | None) -> Any:
    if data.table is not None:
        return _column(data, column or "y").to_list()
    if data.y is None:
        raise ValueError(f"{data.path} must hold targets in y; it has none.")
    return data.y.tolist()


def _column(data: Contents, name: str) -> Any:
    if data.table is None or name not in data.names:
        raise ValueError(f"{data.path} must have a column {name!r}; it has {_shown(data.names)}.")
    return data.table[name]


def _used(names: Sequence[str], left_out: Sequence[str | None], origin: str) -> NDArray[np.intp]:
    """Positions of the columns that are not left out."""
    gone = {name for name in left_out if name is not None}
    strange = sorted(gone - set(names))
    if strange:
        raise ValueError(f"columns to leave out must be in {origin} ({_shown(names)}); got {_shown(strange)}.")
    used = np.flatnonzero([name not in gone for name in names])
    if used.size == 0:
        raise ValueError(f"{origin} must have a column besides those that are left out; it has none.")
    return used


def _encoded(data: Contents, encoder: Encoder | None, used: NDArray[np.intp]) -> RawMatrix:
    if encoder is not None:
        if data.table is None:
            raise ValueError(f"{data.path} must be a table with the columns {_shown(encoder.columns)}; it is a matrix.")
        return encoder.apply(data.table)
    if data.X is None:
        raise ValueError(f"{data.path} must be a matrix (NPZ or LIBSVM) as the training data is; it is a table.")
    if used[-1] >= data.X.shape[1]:
        raise ValueError(f"{data.path} must have at least {used[-1] + 1} columns; it has {data.X.shape[1]}.")
    missing = sum(int(np.isnan(part).sum()) for part in as_matrix(data.X).parts.values())
    if missing:
        raise ValueError(f"{data.path} must have no missing values; it has {missing} (NaN).")
    return _matrix(data.X, used)


def _matrix(X: RawMatrix, used: NDArray[np.intp]) -> RawMatrix:
    return X if used.size == X.shape[1] else X[:, used]


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
