"""How the steps of a pipeline transform each column when they are fitted without one row, in closed form for all rows.

Each step that is followed has a function here, which takes :class:`~glru.sklearn.columns.Columns` as the steps before it make them and says what becomes
of their scales, shifts and fills. Whatever is made of values that stay the same (encodings, products of columns, functions) starts a
new column. Rows without which the steps would do something else are set apart: "alone".
"""

from collections import Counter, UserList
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from glru.linalg import UNIT, Array, Matrix, to_dense
from glru.sklearn.columns import (
    SAFETY_FACTOR,
    Columns,
    Mask,
    Splits,
    Unfollowed,
    as_numbers,
    count_columns,
    find_largest,
    join,
    split_columns,
)
from glru.sklearn.preprocessing import is_a

EPS = float(np.finfo(np.float64).eps)

MODES_CHANGE = "without a row another value is the most frequent one"
"""The reason for setting apart rows whose removal changes a filled value."""

OPERATIONS = 16.0
"""A value scaled by a chain of scalers has at most this many rounding errors, each relative to the largest intermediate number."""

LARGEST_ERROR = 1e-7
"""Relative error of a change above which nothing useful is proven about it."""

LARGEST_SCALE = 1e140
"""Columns with scales above this, or below its inverse, are not followed: squares and their rounding errors would overflow or underflow."""

Modes = list[tuple[Any, int, NDArray[np.object_]]]

SINGLE_ROWS = 32
"""Number of rows passed one by one to a user's function to test whether it treats rows independently."""


@final
class Walk:
    """The columns on their way through the steps, and the rows set apart so far."""

    def __init__(
        self, n_rows: int, splits: Splits | None = None, intercept: bool = True, last: Any = None, made: Any = None
    ) -> None:
        self.splits, self.intercept = splits, intercept  # as in :class:`Columns`; whether the intercept is unpenalised
        self.last, self.made = last, made  # the last step, and what it makes of its columns
        # Rows, or splits, without which the steps do something that is not followed, and why.
        self.alone = np.zeros(n_rows if splits is None else len(splits), dtype=bool)
        self.reasons: list[str] = []
        # Imputers, columns of theirs, and what they would fill the column with without each row, where that differs between rows.
        self.modes: Modes = []

    def set_apart(self, rows: Mask, reason: str) -> None:
        """Set rows apart; a mask of rows, or of rows (one line: all of them) and columns."""
        rows = np.broadcast_to(rows.any(axis=1), self.alone.shape) if rows.ndim == 2 else rows
        if rows.any() and reason not in self.reasons:
            self.reasons.append(reason)
        self.alone |= rows

    def transform(self, step: Any, given: Any) -> Any:
        """Transform columns by a fitted step."""
        return self.made if step is self.last else step.transform(given)

    def follow(self, step: Any, columns: Columns) -> Columns:
        """The columns after a fitted step."""
        if step is None or (isinstance(step, str) and step == "passthrough"):
            return columns
        if is_a(step, "Pipeline"):
            for _, part in step.steps:
                columns = self.follow(part, columns)
            return columns
        follow = FOLLOWED.get(type(step).__name__) if type(step).__module__.startswith("sklearn.") else None
        if follow is None:
            raise Unfollowed(f"{type(step).__name__} is fitted to all rows together")
        return follow(self, step, columns)


def _column_transformer(walk: Walk, step: Any, columns: Columns) -> Columns:
    from sklearn.utils import _safe_indexing

    blocks, weights = [], step.transformer_weights or {}
    for name, part, chosen in step.transformers_:
        # scikit-learn before 1.7 keeps the remainder in a list of its own that warns when it is read.
        chosen = chosen.data if isinstance(chosen, UserList) else chosen
        if (isinstance(part, str) and part == "drop") or _take_none(chosen):
            continue
        given = _safe_indexing(columns.given, chosen, axis=1)
        places = None if columns.values is None else _find_positions(columns.given, chosen)
        blocks.append(_multiply(walk.follow(part, columns.take(given, places)), weights.get(name)))
    return join(walk.transform(step, columns.given), blocks)


def _feature_union(walk: Walk, step: Any, columns: Columns) -> Columns:
    weights = step.transformer_weights or {}
    blocks = [
        _multiply(walk.follow(part, columns), weights.get(name))
        for name, part in step.transformer_list
        if not (isinstance(part, str) and part == "drop")
    ]
    return join(walk.transform(step, columns.given), blocks)


def _multiply(columns: Columns, weight: float | None) -> Columns:
    """Columns multiplied by their weight in a FeatureUnion."""
    if weight is None or weight == 1.0:
        return columns
    if not weight > 0.0:
        raise Unfollowed(f"columns are multiplied by {weight!r}")
    columns = columns.numbers()
    _require_squares(columns)
    return replace(
        columns,
        scale=columns.scale / weight,
        scale0=columns.scale0 / weight,
        scale_error=columns.scale_error / weight / weight,
    )


def _require_squares(columns: Columns) -> None:
    """Refuse columns whose squares or their errors overflow or underflow in float64."""
    if not np.all((columns.scale0 > 1.0 / LARGEST_SCALE) & (columns.scale0 < LARGEST_SCALE)):
        raise Unfollowed("the values of a column are too large or too small to be squared")


def _take_none(chosen: Any) -> bool:
    if isinstance(chosen, str | slice) or np.isscalar(chosen):
        return False
    chosen = np.asarray(chosen)
    return chosen.size == 0 or (chosen.dtype == np.bool_ and not chosen.any())


def _find_positions(given: Any, chosen: Any) -> NDArray[np.intp]:
    """The places of the columns that a column transformer chooses."""
    first = chosen.start if isinstance(chosen, slice) else np.ravel(np.asarray(chosen, dtype=object))[0]
    if isinstance(first, str):
        if isinstance(chosen, slice):
            raise Unfollowed("columns are chosen by a range of names")
        names = list(given.columns)
        return np.array([names.index(name) for name in np.ravel(np.asarray(chosen, dtype=object))])
    return np.arange(count_columns(given))[np.atleast_1d(chosen) if not isinstance(chosen, slice) else chosen]


def _standard_scaler(walk: Walk, step: Any, columns: Columns) -> Columns:
    columns = columns.numbers()
    given = walk.transform(step, columns.given)
    if not step.with_mean and not step.with_std:
        return columns.rescale(given)
    mean, variance, _, error = columns.moments
    changes: dict[str, Any] = {}
    if step.with_mean:
        changes = {"shift": mean, "shift0": columns.shift0 + columns.scale0 * step.mean_}
    if step.with_std:
        changes["scale"] = _scale_by_deviation(walk, columns, mean, variance, error)
        changes["scale0"] = columns.scale0 * step.scale_
        changes["scale_error"] = error
    return columns.rescale(given, **changes)


def _scale_by_deviation(walk: Walk, columns: Columns, mean: Array, variance: Array, error: Array) -> Array:
    """Standard deviations as scales; the previous scale where scikit-learn treats the column as constant."""
    # scikit-learn does not divide by a standard deviation that may be rounding only.
    count = columns.n_values + columns.n_filled
    if columns.scale.shape[0] == columns.shift.shape[0] == 1:
        # Far above that limit in every row, as columns usually are.
        apart = np.maximum(mean.max(axis=0) - columns.shift[0], columns.shift[0] - mean.min(axis=0))
        least, farthest = variance.min(axis=0), apart * count.max() * EPS
        limit = count.max() * EPS * variance.max(axis=0) + farthest * farthest
        if np.all((least > SAFETY_FACTOR * limit) & (least > SAFETY_FACTOR * error[0])) and not columns.constant.any():
            return np.sqrt(variance)
    own, middle = variance / columns.scale**2, (mean - columns.shift) / columns.scale
    limit = count * EPS * own + np.square(count * middle * EPS)
    flat = columns.constant | (SAFETY_FACTOR * own <= limit)
    walk.set_apart(
        ~flat & ((own <= SAFETY_FACTOR * limit) | (variance <= SAFETY_FACTOR * error)),
        "a column has next to no variance",
    )
    return np.where(flat, columns.scale, np.sqrt(variance))


def _scale_by_range(walk: Walk, columns: Columns, width: Array) -> Array:
    """A range of each column as its scale; the previous scale where scikit-learn treats the column as constant."""
    own, limit = width / columns.scale, 10.0 * EPS
    walk.set_apart((own > limit / SAFETY_FACTOR) & (own < SAFETY_FACTOR * limit), "a column has next to no spread")
    return np.where(own < limit, columns.scale, width)


def _bound_squared_error(scale: Array, size: Array) -> Array:
    """The largest error of a squared scale in each column whose scale errs by a few roundings of numbers of some size."""
    error = OPERATIONS * UNIT * size
    return find_largest(error * (2.0 * scale + error))


def _bound_size(columns: Columns) -> Array:
    """The largest number in each column, filled values and shifts included."""
    low, high = columns.value_range
    size = np.maximum(np.abs(low), np.abs(high))[None, :]
    for part in (columns.shift, columns.shift0, columns.fill, columns.fill0):
        for end in (np.fmin.reduce(part, axis=0), np.fmax.reduce(part, axis=0)):
            size = np.fmax(size, np.abs(np.nan_to_num(end)))
    return size


def _min_max_scaler(walk: Walk, step: Any, columns: Columns) -> Columns:
    columns = columns.numbers()
    low, high = columns.extremes
    start, end = step.feature_range
    scale = _scale_by_range(walk, columns, high - low) / (end - start)
    shift = low - start * scale
    scale0 = columns.scale0 / step.scale_
    shift0 = columns.shift0 - step.min_ * scale0
    if step.clip:
        least, most = columns.held_out
        walk.set_apart(
            (least < low) | (most > high), "a row has a value out of the range of the others, which is clipped"
        )
    if columns.steady:
        # Without a row inside the range nothing changes, not even by a rounding.
        least, most = np.nanmin(columns.values, axis=0), np.nanmax(columns.values, axis=0)
        if np.isfinite(columns.fill0).any():
            least, most = np.fmin(least, columns.fill0[0]), np.fmax(most, columns.fill0[0])
        same = (low == least) & (high == most)
        scale, shift = np.where(same, scale0, scale), np.where(same, shift0, shift)
    error = _bound_squared_error(scale, _bound_size(columns) + np.abs(shift)) + 4.0 * find_largest(
        scale
    ) * columns.fill_error / (end - start)
    return columns.rescale(
        walk.transform(step, columns.given), scale=scale, shift=shift, scale0=scale0, shift0=shift0, scale_error=error
    )


def _max_abs_scaler(walk: Walk, step: Any, columns: Columns) -> Columns:
    columns = columns.numbers()
    low, high = columns.extremes
    width = np.maximum(np.abs(low - columns.shift), np.abs(high - columns.shift))
    scale = _scale_by_range(walk, columns, width)
    if getattr(step, "clip", False):
        farthest = np.max([np.abs(value - columns.shift) for value in columns.held_out], axis=0)
        walk.set_apart(farthest > width, "a row has a value out of the range of the others, which is clipped")
    shift_error = columns.moments[2] if columns.shift.shape[0] > 1 else 0.0
    error = _bound_squared_error(scale, _bound_size(columns)) + 4.0 * find_largest(scale) * (
        columns.fill_error + shift_error
    )
    scale0 = columns.scale0 * step.scale_
    return columns.rescale(walk.transform(step, columns.given), scale=scale, scale0=scale0, scale_error=error)


def _robust_scaler(walk: Walk, step: Any, columns: Columns) -> Columns:
    columns = columns.numbers()
    changes: dict[str, Any] = {}
    low, middle, high = columns.quantiles([step.quantile_range[0] / 100.0, 0.5, step.quantile_range[1] / 100.0])
    if step.with_centering:
        changes = {"shift": middle, "shift0": columns.shift0 + columns.scale0 * step.center_}
    if step.with_scaling:
        adjust = 1.0
        if step.unit_variance:
            from scipy.stats import norm

            adjust = float(norm.ppf(step.quantile_range[1] / 100.0) - norm.ppf(step.quantile_range[0] / 100.0))
        scale = _scale_by_range(walk, columns, high - low) / adjust
        error = (
            _bound_squared_error(scale, _bound_size(columns) / adjust)
            + 4.0 * find_largest(scale) * columns.fill_error / adjust
        )
        changes |= {"scale": scale, "scale0": columns.scale0 * step.scale_, "scale_error": error}
    return columns.rescale(walk.transform(step, columns.given), **changes)


def _simple_imputer(walk: Walk, step: Any, columns: Columns) -> Columns:
    given = walk.transform(step, columns.given)
    if columns.values is None and as_numbers(columns.given) is None:
        return _impute_text(walk, step, columns, given)
    columns = columns.numbers()
    marker = step.missing_values
    if isinstance(marker, int | float | np.number) and not np.isnan(marker):
        if not columns.steady:
            raise Unfollowed(f"{step!r} looks for scaled values")
        values = np.where(columns.values == marker, np.nan, columns.values)
        columns = Columns(columns.given, values, columns.splits).full()
    if callable(step.strategy):
        raise Unfollowed(f"{step!r} fills in what a function says")
    missing = columns.missing
    empty = missing.all(axis=0)
    if empty.any() and step.keep_empty_features:
        raise Unfollowed("a column without values is kept")
    if empty.all():
        raise Unfollowed("no column has a value")
    kept = np.flatnonzero(~empty)
    filled = _fill(walk, step, columns.take(given, kept), step.statistics_[kept])
    if not step.add_indicator:
        return filled
    features = step.indicator_.features_
    return join(given, [filled, Columns(missing[:, features].astype(np.float64), None, columns.splits)])


def _fill(walk: Walk, step: Any, columns: Columns, statistics: Any) -> Columns:
    """Columns whose missing values are filled."""
    holes = columns.missing.any(axis=0) & np.isnan(columns.fill0[0])
    walk.set_apart((columns.n_values == 0) & holes, "a column has no value in any other row")
    at_once = np.asarray(statistics, dtype=np.float64)[None, :]
    fill0 = columns.shift0 + columns.scale0 * at_once
    error = OPERATIONS * UNIT * _bound_size(columns)
    if step.strategy == "mean":
        fill, _, error, _ = columns.moments
    elif step.strategy == "median":
        (fill,) = columns.quantiles([0.5])
    elif step.strategy == "constant":
        fill = columns.shift + columns.scale * at_once
    else:
        fill, fill0 = _find_modes(columns, holes)
    keep = ~holes[None, :]
    return replace(
        columns,
        fill=np.where(keep, columns.fill, fill),
        fill0=np.where(keep, columns.fill0, fill0),
        fill_error=np.where(keep, columns.fill_error, error),
    )


def _find_modes(columns: Columns, holes: Mask) -> tuple[Array, Array]:
    """The most frequent values (the smallest one in a tie) without each row or in each split, and of all rows."""

    def modes(values: Array) -> Array:
        found = np.full((1, values.shape[1]), np.nan)
        for j, column in enumerate(values.T):
            own, counts = np.unique(column[~np.isnan(column)], return_counts=True)
            if counts.size:
                found[0, j] = own[np.argmax(counts)]
        return found

    at_once = modes(columns.values)
    if columns.splits is not None:
        return np.vstack([modes(columns.values[train]) for train, _ in columns.splits]), at_once
    fill = at_once
    for j in np.flatnonzero(holes):
        column = columns.values[:, j]
        own, counts = np.unique(column[~np.isnan(column)], return_counts=True)
        if not counts.size:
            continue
        counts[np.argmax(counts)] -= 1
        next_one = own[np.argmax(counts)]
        if next_one != at_once[0, j]:
            fill = np.repeat(at_once, column.size, axis=0) if fill is at_once else fill
            fill[column == at_once[0, j], j] = next_one
    return fill, at_once


def _impute_text(walk: Walk, step: Any, columns: Columns, given: Any) -> Columns:
    """Text and categories with the most frequent one, or a constant, where they are missing."""
    if step.strategy == "most_frequent":
        table = columns.given.to_numpy() if hasattr(columns.given, "to_numpy") else np.asarray(columns.given)
        for j, column in enumerate(np.asarray(table, dtype=object).T):
            values = [None if _is_missing(value, step.missing_values) else value for value in column.tolist()]
            if None in values:
                walk.set_apart(_find_changed_modes(walk, step, j, values), MODES_CHANGE)
    elif step.strategy != "constant":
        raise Unfollowed(f"{step!r} got something else than numbers")
    if step.add_indicator:
        raise Unfollowed(f"{step!r} marks missing text")
    return replace(columns, given=given)


def _find_changed_modes(walk: Walk, step: Any, j: int, values: list[Any]) -> Mask:
    """Where the most frequent value, other than None, changes without a row, or may change in a split."""
    counts = Counter(value for value in values if value is not None)
    top = max(counts.values(), default=0)
    first = [value for value, count in counts.items() if count == top]
    if walk.splits is None:
        if top < 2:
            return np.array([value in first for value in values])
        # Of values that are as frequent the imputer takes the least. Without a row that has it another one may be the most frequent.
        usual = min(first)
        counts[usual] -= 1
        top = max(counts.values())
        without = min(value for value, count in counts.items() if count == top)
        modes = np.empty(len(values), dtype=object)
        modes[:] = [without if value == usual else usual for value in values]
        if without != usual:
            walk.modes.append((step, j, modes))
        return np.asarray(modes != step.statistics_[j], dtype=bool)
    found = []
    for train, _ in walk.splits:
        own = Counter(values[row] for row in train if values[row] is not None).most_common(2)
        sure = len(first) == 1 and len(own) > 0 and own[0][0] == first[0] and (len(own) == 1 or own[1][1] < own[0][1])
        found.append(not sure)
    return np.array(found)


def _is_missing(value: Any, marker: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return bool(value != value) or (isinstance(marker, str | int | float) and bool(value == marker))


def _encoder(walk: Walk, step: Any, columns: Columns) -> Columns:
    """One-hot and ordinal encoders."""
    given, one_hot = _transform_steady(walk, step, columns), is_a(step, "OneHotEncoder")
    if step.min_frequency is not None or step.max_categories is not None:
        _set_apart_regrouped(walk, step, columns.given)
    elif isinstance(step.categories, str):
        for j, codes in enumerate(_list_codes(step, given) if one_hot else to_dense(given).T):
            _set_apart_lost(walk, step, codes, columns.given, j, not one_hot or step.drop is not None)
    return replace(columns, given=given, values=None)


def _list_codes(step: Any, given: Any) -> Iterator[Array]:
    """A number for the category of every row, column by column, from one-hot columns; 0 for one that is dropped."""
    table, stop = sp.csr_array(given.to_numpy() if hasattr(given, "to_numpy") else given), 0
    for j, categories in enumerate(step.categories_):
        dropped = step.drop_idx_ is not None and step.drop_idx_[j] is not None
        start, stop = stop, stop + len(categories) - int(dropped)
        yield np.asarray(table[:, start:stop] @ np.arange(1.0, stop - start + 1.0))


def _set_apart_regrouped(walk: Walk, step: Any, given: Any) -> None:
    """Set apart rows (or splits) whose removal makes other categories rare, or one unknown."""
    table = np.asarray(given.to_numpy() if hasattr(given, "to_numpy") else given, dtype=object)
    learned = isinstance(step.categories, str)
    for known, rare_ones, column in zip(step.categories_, step.infrequent_categories_, table.T, strict=True):
        places = {_to_key(value): k for k, value in enumerate(known.tolist())}
        try:
            codes = np.array([places[_to_key(value)] for value in column.tolist()])
        except KeyError:
            raise Unfollowed(f"{type(step).__name__} puts rare categories together") from None
        counts = np.bincount(codes, minlength=len(known))
        # An ordinal encoder counts no NaN among the categories; None it counts.
        nans = [isinstance(value, float) and value != value for value in known.tolist()]
        counted = np.array([is_a(step, "OneHotEncoder") or not nan for nan in nans])
        rare = _find_rare(step, counts, counted)
        expected = [] if rare_ones is None else [places[_to_key(value)] for value in rare_ones.tolist()]
        if sorted(expected) != np.flatnonzero(rare).tolist():
            raise Unfollowed(f"{type(step).__name__} puts rare categories together")
        if walk.splits is None:
            others = [counts - (np.arange(counts.size) == k) for k in range(counts.size)]
        else:
            others = [np.bincount(codes[train], minlength=counts.size) for train, _ in walk.splits]
        lost = np.array(
            [
                (learned and not part.all()) or not np.array_equal(_find_rare(step, part, counted), rare)
                for part in others
            ]
        )
        walk.set_apart(lost[codes] if walk.splits is None else lost, "without a row other categories are rare")


def _to_key(value: Any) -> Any:
    """A category as a dictionary key; all kinds of NaN are equal."""
    return "nan", None if value is not None and _is_missing(value, None) else (value,)


def _find_rare(step: Any, counts: NDArray[np.intp], counted: Mask) -> Mask:
    """Which categories an encoder groups as rare, by their counts."""
    rare, part = np.zeros(counts.size, dtype=bool), counts[counted]
    least = step.min_frequency
    if least is None:
        own = np.zeros(part.size, dtype=bool)
    else:
        own = part < (least if isinstance(least, int | np.integer) else int(counts.sum()) * least)
    if step.max_categories is not None and step.max_categories < part.size - own.sum() + 1:
        kept = step.max_categories - 1
        own[np.argsort(part, kind="stable")[: part.size - kept]] = True
    rare[counted] = own
    return rare


def _set_apart_lost(walk: Walk, step: Any, codes: Array, given: Any, j: int, apart: bool) -> None:
    """Handle rows that are the only ones of a category, and splits whose train rows lack a category."""
    categories, places, counts = np.unique(codes, return_inverse=True, return_counts=True)
    if walk.splits is None:
        single = counts[places] == 1
    else:
        single = np.array([np.unique(places[train]).size < categories.size for train, _ in walk.splits])
    if not single.any():
        return
    if walk.splits is not None and step.handle_unknown == "error":
        # Fitting the steps to the split tells whether its test rows have the category.
        apart = True
    elif step.handle_unknown == "error":
        row, names = int(np.flatnonzero(single)[0]), getattr(given, "columns", None)
        where = f"column {names[j]!r}" if names is not None else f"column {j}"
        remedy = "'ignore'" if is_a(step, "OneHotEncoder") else "'use_encoded_value'"
        raise ValueError(
            f"every category needs at least two rows: without row {row} the {type(step).__name__} does not know that row's category "
            f"in {where} (nor those of {int(single.sum()) - 1} more rows). Use handle_unknown={remedy}, or give it all categories."
        )
    if apart:
        walk.set_apart(single, "a category is known from that row only")


def _transform_steady(walk: Walk, step: Any, columns: Columns) -> Any:
    """Transform columns that do not change when a row is left out."""
    if not columns.steady:
        raise Unfollowed(f"{type(step).__name__} comes behind a step that is fitted to the rows")
    return walk.transform(step, columns.given)


def _row_wise(walk: Walk, step: Any, columns: Columns) -> Columns:
    return replace(columns, given=_transform_steady(walk, step, columns), values=None)


def _missing_indicator(walk: Walk, step: Any, columns: Columns) -> Columns:
    made = _row_wise(walk, step, columns)
    if step.features == "missing-only":
        marks = to_dense(made.given) > 0
        left = marks.sum(axis=0) - marks
        if walk.splits is not None:
            left = np.array([marks[train].sum(axis=0) for train, _ in walk.splits])
        walk.set_apart(left == 0, "a column has missing values in that row only")
    return made


def _function_transformer(walk: Walk, step: Any, columns: Columns) -> Columns:
    if step.func in (None, np.asarray, np.ascontiguousarray):
        return replace(columns, given=walk.transform(step, columns.given))
    given = _transform_steady(walk, step, columns)
    if not isinstance(step.func, np.ufunc) and not _sees_single_rows(step, columns.given, given):
        raise Unfollowed("the function of a FunctionTransformer looks at more than one row at a time")
    return replace(columns, given=given, values=None)


def _sees_single_rows(step: Any, given: Any, made: Any) -> bool:
    """Whether a function treats rows independently, judged by parts of the data and single rows."""
    from sklearn.utils import _safe_indexing

    n_rows = made.shape[0]
    some = np.unique(np.linspace(0, n_rows - 1, SINGLE_ROWS).astype(np.intp))
    everything = np.arange(n_rows)
    for rows in [everything[::2], everything[1::2], *some[:, None]]:
        own, expected = step.transform(_safe_indexing(given, rows)), _safe_indexing(made, rows)
        first, second = to_dense(own), to_dense(expected)
        if not np.array_equal(first, second, equal_nan=first.dtype.kind == second.dtype.kind == "f"):
            return False
    return True


def _variance_threshold(walk: Walk, step: Any, columns: Columns) -> Columns:
    columns = columns.numbers()
    support = step.get_support()
    kept, given = np.flatnonzero(support), walk.transform(step, columns.given)
    if step.threshold > 0.0:
        variance = columns.moments[1] / columns.scale**2
        # Far more than rounding: a row whose removal brings a variance this near is not worth a closed form.
        near = np.abs(variance - step.threshold) <= 1e-9 * step.threshold
        walk.set_apart(near | ((variance > step.threshold) != support), "a column's variance crosses the threshold")
    elif not walk.intercept:
        # With an intercept, a constant column under a penalty is as good as none.
        walk.set_apart(columns.constant & support, "a column is constant without a row, and dropped")
    return columns.take(given, kept)


FOLLOWED: dict[str, Callable[[Walk, Any, Columns], Columns]] = {
    "ColumnTransformer": _column_transformer,
    "FeatureUnion": _feature_union,
    "StandardScaler": _standard_scaler,
    "MinMaxScaler": _min_max_scaler,
    "MaxAbsScaler": _max_abs_scaler,
    "RobustScaler": _robust_scaler,
    "SimpleImputer": _simple_imputer,
    "MissingIndicator": _missing_indicator,
    "OneHotEncoder": _encoder,
    "OrdinalEncoder": _encoder,
    "FunctionTransformer": _function_transformer,
    "Normalizer": _row_wise,
    "Binarizer": _row_wise,
    "PolynomialFeatures": _row_wise,
    "VarianceThreshold": _variance_threshold,
}
"""The function that follows each kind of step, by the name of the step."""


@final
@dataclass(frozen=True, eq=False)
class ColumnChanges:
    """What leaving out each row changes of the columns of a problem: see :class:`glru.updates.refits.Refits`."""

    # Shape (n_rows or n_splits, n_columns): factors of the penalty's strengths, and what is added to filled values.
    strengths: Array | None
    fills: Array | None
    # Shape (n_rows, n_columns): which values these are: those that were missing, or, in a column that is shifted without an intercept, all others.
    filled: Mask | None
    error: float  # as in ``Refits``
    alone: Mask  # rows that are set apart
    reason: str | None  # why
    modes: Modes = field(default_factory=list)  # as in :class:`Walk`

    def variants(self, least: int) -> Iterator[tuple[NDArray[np.intp], list[tuple[Any, int, Any]]]]:
        """Groups of at least ``least`` rows that are set apart together, and the values that imputers fill in without them."""
        rows = np.flatnonzero(self.alone)
        keys = [tuple(modes[row] for _, _, modes in self.modes) for row in rows] if self.modes else []
        for key, count in Counter(keys).items():
            if count >= least:
                chosen = rows[[own == key for own in keys]]
                yield chosen, [(step, j, value) for (step, j, _), value in zip(self.modes, key, strict=True)]


@np.errstate(all="ignore")  # columns without values give NaN, whose rows are set apart
def follow(
    fitted: Any, X: Any, matrix: Matrix, intercept: bool, penalised: bool, splits: Splits | None = None
) -> ColumnChanges:
    """How fitting the steps without each row, or to the train rows of each split, changes the columns that they make when fitted to all rows.

    ``matrix``: what the fitted steps make of ``X``. ``intercept``, ``penalised``: whether the model has an unpenalised intercept, which takes up
    shifts, and a penalty on every column.
    """
    last = fitted
    while is_a(last, "Pipeline"):
        last = last.steps[-1][1]
    walk = Walk(matrix.shape[0], splits, intercept, last, matrix.data)
    try:
        columns = walk.follow(fitted, Columns(X, None, splits))
        if columns.values is None:
            return ColumnChanges(None, None, None, 0.0, walk.alone, _to_list(walk), walk.modes)
        return _changes(walk, columns, matrix, intercept, penalised)
    except Unfollowed as found:
        return ColumnChanges(None, None, None, 0.0, np.ones_like(walk.alone), str(found))


def _to_list(walk: Walk) -> str | None:
    return "; ".join(walk.reasons) or None


def _changes(walk: Walk, columns: Columns, matrix: Matrix, intercept: bool, penalised: bool) -> ColumnChanges:
    _require_squares(columns)
    scale0, made = columns.scale0, matrix.dense()
    rounding = OPERATIONS * UNIT * _bound_size(columns) / scale0
    if not _agree(columns, made, 4.0 * rounding):
        raise Unfollowed("the steps do not compute in float64")
    constant = columns.constant
    ratio = columns.scale / scale0
    if intercept and constant.any():
        ratio = np.where(constant, 1.0, ratio)
        # As good as none, unless a filled value moves: its rounding is all that the column has then.
        rough = constant & columns.missing.any(axis=0) & (columns.fill != columns.fill0)
        walk.set_apart(rough, "a filled column is constant without a row")
    if not penalised:
        walk.set_apart(constant, "a column without a penalty is constant without a row")
    strengths = np.square(ratio, out=ratio)
    moves = _find_moves(walk, columns, rounding, intercept)
    fills = moves.sizes
    least, most = strengths.min(initial=np.inf), strengths.max(initial=0.0)
    if not (least > 0.0 and most < np.inf and np.isfinite(fills).all()):
        unknown = ~np.isfinite(strengths) | (strengths <= 0.0) | ~np.isfinite(fills)
        walk.set_apart(unknown, "a column has no value in any other row")
    # Against what the steps would make of the columns as they are in float64: each value errs by the rounding.
    rho_error = columns.scale_error / scale0**2 + 4.0 * rounding * (1.0 + rounding) + OPERATIONS * UNIT
    largest = np.maximum(np.maximum(made.max(axis=0), -made.min(axis=0)), np.finfo(np.float64).tiny)
    error = float(max(np.fmax.reduce(part, axis=None) for part in (rho_error, moves.errors / largest)))
    if not error <= LARGEST_ERROR:
        raise Unfollowed("the values of a column differ by little more than their rounding")
    # The error is one of 1: far below that a factor is known too badly.
    if not LARGEST_ERROR * least >= error:
        walk.set_apart(LARGEST_ERROR * strengths < error, "a column loses nearly all of its spread")
    if walk.alone.any() or strengths.shape[0] == 1:
        strengths = np.where(walk.alone[:, None], 1.0, strengths)
    moved, scales = bool(np.any(fills)), bool(np.any(strengths != 1.0))
    if moved:
        fills = np.where(walk.alone[:, None], 0.0, fills)
        moved = bool(np.any(fills))
    return ColumnChanges(
        strengths if scales else None,
        fills if moved else None,
        moves.mask if moved else None,
        error if moved or scales else 0.0,
        walk.alone,
        _to_list(walk),
        walk.modes,
    )


def _agree(columns: Columns, made: Array, errors: Array) -> bool:
    """Whether columns in their scales agree with what the steps make of them, to within errors of the columns and a few roundings."""
    if columns.values.shape != made.shape:
        return False
    for part in split_columns(made):
        own, known, most = columns.values[:, part], made[:, part], errors[:, part]
        if not columns.complete:
            own = np.where(columns.missing[:, part], columns.fill0[:, part], own)
        own = own - columns.shift0[:, part]
        own /= columns.scale0[:, part]
        own -= known
        np.abs(own, out=own)
        if not np.all(own <= most) and not np.all(own <= most + OPERATIONS * UNIT * np.abs(known)):
            return False
    return True


@final
@dataclass(frozen=True, eq=False)
class Moves:
    """How far values of each column move: by ``sizes`` (a row per change) where ``mask`` is true, each within ``errors``."""

    sizes: Array
    mask: Mask
    errors: Array


def _find_moves(walk: Walk, columns: Columns, rounding: Array, intercept: bool) -> Moves:
    """Moves in units of the scales of all rows: of filled values, and without an intercept of all values that are shifted."""
    holes, scale0 = columns.missing.any(axis=0), columns.scale0
    if intercept and not holes.any():
        nothing = np.zeros((1, holes.size))
        return Moves(nothing, columns.missing, nothing)
    filled = np.where(holes, (columns.fill - columns.fill0) / scale0, 0.0)
    fill_error = np.where(holes, columns.fill_error / scale0 + 2.0 * rounding, 0.0)
    shifts = np.zeros((1, 1)) if intercept else (columns.shift0 - columns.shift) / scale0
    if not shifts.any():
        return Moves(filled, columns.missing, fill_error)
    shift_error = columns.moments[2] / scale0 + fill_error + 4.0 * rounding
    # Filled means stay where they are behind a step that takes off the mean: then only the other values move.
    stay = ~holes | (np.abs(filled + shifts).max(axis=0) <= SAFETY_FACTOR * shift_error[0])
    walk.set_apart(
        (shifts != 0.0) & ~stay, "without an intercept, values and filled values of a column are shifted differently"
    )
    # Of other columns with holes only the filled values move, without the rows that are not set apart.
    shifted = (np.abs(shifts).max(axis=0) > 0.0) & stay
    errors = np.where(shifted, SAFETY_FACTOR * shift_error, fill_error)
    return Moves(np.where(shifted, shifts, filled), np.where(shifted, ~columns.missing, columns.missing), errors)
