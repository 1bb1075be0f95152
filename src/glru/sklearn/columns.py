r"""Columns on their way through the steps of a pipeline, and their statistics without each row in closed form.

A column ``x`` of numbers, some of which may be missing, is on its way through scalers and imputers

.. math:: (\tilde x_i - m_i) / s_i, \qquad \tilde x_i = x \text{ where there is a value, } \varphi_i \text{ where it is missing,}

where the scale ``s_i``, the shift ``m_i`` and the filled value ``phi_i`` are those of the steps fitted without row ``i``. Statistics of scaled
values are scaled statistics, so that each step replaces some of the three by statistics of the other rows' :math:`\tilde x_i`, which are
sums without one term, or order statistics without one value.

With splits instead of single rows, ``i`` counts the splits, and each statistic is that of a split's train rows.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from glru.linalg import UNIT, Array, gamma, to_dense
from glru.sklearn.preprocessing import Rows, count_rows

Mask = NDArray[np.bool_]
Splits = list[tuple[Rows, Rows]]

SAFETY_FACTOR = 4.0
"""A comparison of scikit-learn with a threshold is certain where the quantity is this many times above or below it."""

MIN_VARIANCE_SHARE = 1e-9
"""A column whose variance is above this share of its squared range has more than one value, whatever the rounding."""

MAX_ENTRIES = 50_000_000
"""Sparse columns with more entries than this, zeros included, are not made dense."""

MAX_ROWS_AT_ONCE = 256
"""Rows up to which columns are summed without blocks, which have a cost of their own."""

CHUNK_ENTRIES = 1 << 14
"""Entries that are worked on at a time."""

STATISTICS = ("missing", "complete", "n_values", "n_filled", "value_range", "extremes", "constant", "moments", "_order")
"""What is computed once of the values and fills of some columns."""


class Unfollowed(Exception):
    """No closed form is known for some steps; the message says why."""


@final
@dataclass(frozen=True, eq=False)
class Columns:
    """Columns after some steps."""

    given: Any  # the columns as the steps fitted to all rows make them
    # Shape (n_rows, n_columns): ``x``, NaN where it is missing; None for columns that are the same without any row.
    values: Any = None
    splits: Splits | None = None  # train and test rows of every split; None: each row is left out
    # Shape (n_rows or n_splits or 1, n_columns): ``s``, ``m`` and ``phi``, by row that is left out or by split; ``phi`` is NaN while missing values are not
    # filled.
    scale: Array = field(default_factory=lambda: np.ones((1, 1)))
    shift: Array = field(default_factory=lambda: np.zeros((1, 1)))
    fill: Array = field(default_factory=lambda: np.full((1, 1), np.nan))
    # Shape (1, n_columns): those of the steps fitted to all rows.
    scale0: Array = field(default_factory=lambda: np.ones((1, 1)))
    shift0: Array = field(default_factory=lambda: np.zeros((1, 1)))
    fill0: Array = field(default_factory=lambda: np.full((1, 1), np.nan))
    # Shape (1, n_columns): at least the rounding errors of squared scales and of fills.
    scale_error: Array = field(default_factory=lambda: np.zeros((1, 1)))
    fill_error: Array = field(default_factory=lambda: np.zeros((1, 1)))

    PARTS = ("scale", "shift", "fill", "scale0", "shift0", "fill0", "scale_error", "fill_error")

    @property
    def steady(self) -> bool:
        """Whether leaving out a row has changed nothing so far."""
        pairs = ((self.scale, self.scale0), (self.shift, self.shift0), (self.fill, self.fill0))
        return self.values is None or all(
            np.array_equal(a, np.broadcast_to(b, a.shape), equal_nan=True) for a, b in pairs
        )

    @cached_property
    def missing(self) -> Mask:
        """Where the columns had no value."""
        return np.isnan(self.values)

    @cached_property
    def complete(self) -> bool:
        """Whether each row is left out and no value is missing: then counts are the same for all columns and rows."""
        return self.splits is None and not self.missing.any()

    @cached_property
    def n_values(self) -> Array:
        """How many values each column has without each row, or in each split; one number where :attr:`complete`."""
        return np.full((1, 1), self.missing.shape[0] - 1.0) if self.complete else self._sums(~self.missing)

    @cached_property
    def n_filled(self) -> Array:
        """How many filled values each column has without each row, or in each split; one number where :attr:`complete`."""
        if self.complete:
            return np.zeros((1, 1))
        return np.where(np.isnan(self.fill0), 0.0, self._sums(self.missing))

    def _sums(self, entries: NDArray[Any]) -> Array:
        """The sums of each column without each row, or over the train rows of each split."""
        if self.splits is None:
            return np.asarray(sum_columns(entries) - entries, dtype=np.float64)
        return sum_columns(entries, self._counts)

    @cached_property
    def _counts(self) -> Array:
        """How often each row is a train row of each split."""
        assert self.splits is not None
        n_rows = self.missing.shape[0]
        return np.array([np.bincount(train, minlength=n_rows) for train, _ in self.splits], dtype=np.float64)

    @cached_property
    def value_range(self) -> tuple[Array, Array]:
        """The least and the largest value of each column in all rows, filled ones apart."""
        least, most = (np.min, np.max) if self.complete else (np.fmin.reduce, np.fmax.reduce)
        return np.asarray(least(self.values, axis=0)), np.asarray(most(self.values, axis=0))

    @cached_property
    def extremes(self) -> tuple[Array, Array]:
        """The least and the largest value of each column without each row, filled ones included."""
        return (self._least(1.0), -self._least(-1.0)) if self.splits is None else self._ends(0)

    @property
    def held_out(self) -> tuple[Array, Array]:
        """The least and the largest of the values that are left out."""
        if self.splits is not None:
            return self._ends(1)
        value = np.where(self.missing, self.fill, self.values)
        return value, value

    def _ends(self, side: int) -> tuple[Array, Array]:
        parts = list(self._parts(side))
        least, most = ([end.reduce(part, axis=0) for part in parts] for end in (np.fmin, np.fmax))
        return np.array(least), np.array(most)

    def _parts(self, side: int) -> Iterator[Array]:
        """The values of the train rows (0) or of the test rows (1) of every split, missing ones as its steps fill them."""
        assert self.splits is not None
        fill = np.broadcast_to(self.fill, (len(self.splits), self.values.shape[1]))
        for own, split in zip(fill, self.splits, strict=True):
            yield np.where(self.missing[split[side]], own, self.values[split[side]])

    def _least(self, sign: float) -> Array:
        x = np.where(self.missing, np.inf, sign * self.values)
        first, second = np.partition(x, 1, axis=0)[:2]
        least = np.where(x == first, second, first)
        return np.minimum(least, np.where(self.n_filled > 0, sign * np.nan_to_num(self.fill), np.inf))

    @cached_property
    def constant(self) -> Mask:
        """Where a column has one value only without a row, a filled value's rounding apart."""
        _, variance, _, _ = self.moments
        size = self.value_range[1] - self.value_range[0]
        if np.all(variance.min(axis=0) > MIN_VARIANCE_SHARE * size * size):
            return np.zeros((1, variance.shape[1]), dtype=bool)
        low, high = self.extremes
        return np.asarray(high - low <= SAFETY_FACTOR * self.fill_error)

    @cached_property
    def moments(self) -> tuple[Array, Array, Array, Array]:
        """Mean and variance of each column without each row, and their largest rounding errors in each column."""
        shape = self.values.shape if self.complete else self.n_values.shape
        # In the order in which the values are stored.
        mean, variance = (np.empty_like(self.values, shape=shape) for _ in range(2))
        mean_error, error = np.empty((1, shape[1])), np.empty((1, shape[1]))
        if self.complete:
            return mean, variance, *_compute_moments(self.values, mean, variance)
        for part in split_columns(self.values):
            mean[:, part], variance[:, part], mean_error[:, part], error[:, part] = self._moments_of(part)
        return mean, variance, mean_error, error

    def _moments_of(self, columns: slice) -> tuple[Array, Array, Array, Array]:
        """The moments of some columns."""
        values, missing, fill_error = self.values[:, columns], self.missing[:, columns], self.fill_error[:, columns]
        depth = sum_depth(values.shape[0])
        q, counts = self.n_filled[:, columns], self.n_values[:, columns]
        centre = np.nanmean(values, axis=0, keepdims=True)
        c = np.where(missing, 0.0, values - centre)
        n = np.where(counts + q > 0, counts + q, np.nan)
        e = np.where(q > 0, np.nan_to_num(self.fill[:, columns] - centre), 0.0)
        mean, sums = (self._sums(c) + q * e) / n, self._sums(c * c) + q * e * e
        variance = np.maximum(sums / n - mean * mean, 0.0)
        # The sum of squares errs by gamma of it; so does the squared mean, since (sum |c|)^2 is at most n times the squares.
        squares = np.square(c).max(axis=0) + sums
        error = 4.0 * gamma(2 * depth + 8) * squares / n + 2.0 * fill_error * (np.abs(e) + np.abs(mean))
        size = np.abs(c).max(axis=0) + self._sums(np.abs(c)) + q * np.abs(e)
        mean_error = gamma(2 * depth + 8) * size / n + fill_error + UNIT * np.abs(centre + mean)
        return centre + mean, variance, find_largest(mean_error), find_largest(error)

    @cached_property
    def _order(self) -> tuple[Array, NDArray[np.intp]]:
        """Every column in order, missing values last, and the places of its entries there."""
        order = np.argsort(self.values, axis=0, kind="stable")
        places = np.empty_like(order)
        np.put_along_axis(places, order, np.arange(order.shape[0])[:, None], axis=0)
        return np.take_along_axis(self.values, order, axis=0), places

    def quantiles(self, shares: Sequence[float]) -> list[Array]:
        """Quantiles of each column without each row, by linear interpolation, filled values included."""
        if self.splits is not None:
            parts = [_compute_quantiles(np.sort(part, axis=0), shares) for part in self._parts(0)]
            return [np.array(found) for found in zip(*parts, strict=True)]
        last = (self.n_values + self.n_filled - 1.0).astype(np.intp)
        return [_interpolate(self._at, last, share) for share in shares]

    @cached_property
    def _n_below(self) -> NDArray[np.intp]:
        """How many values of each column without each row are below the filled one."""
        ordered, _ = self._order
        fill, counts = np.broadcast_to(self.fill, ordered.shape), (~self.missing).sum(axis=0)
        found = np.empty(ordered.shape, dtype=np.intp)
        for j, count in enumerate(counts):
            found[:, j] = np.searchsorted(ordered[:count, j], fill[:, j])
        return found - (~self.missing & (np.asarray(self.values) < fill))

    def _at(self, places: NDArray[np.intp]) -> Array:
        """The values at some places of the ordered columns, each without its row."""
        ordered, own = self._order

        def present(k: NDArray[np.intp]) -> Array:
            k = np.maximum(k, 0)
            k = k + (~self.missing & (k >= own))
            return np.take_along_axis(ordered, np.minimum(k, ordered.shape[0] - 1), axis=0)

        if not self.n_filled.any():
            return present(places)
        fill, below = np.broadcast_to(self.fill, ordered.shape), self._n_below
        n_filled = self.n_filled.astype(np.intp)
        after = present(np.where(places < below, places, places - n_filled))
        return np.where((places >= below) & (places < below + n_filled), fill, after)

    def numbers(self) -> "Columns":
        """The columns with numeric values, so that they can be followed through scalers and imputers."""
        if self.values is not None:
            return self
        values = as_numbers(self.given)
        if values is None:
            raise Unfollowed("a step for numbers got something else")
        return Columns(self.given, values, self.splits).full()

    def full(self) -> "Columns":
        """The columns with every part broadcast to the width of the values."""
        width = self.values.shape[1]
        parts: dict[str, Any] = {
            name: np.broadcast_to(part, (part.shape[0], width)) for name in self.PARTS for part in [getattr(self, name)]
        }
        return replace(self, **parts)

    def rescale(self, given: Any, **parts: Any) -> "Columns":
        """The columns with other scales and shifts; values, fills and their statistics stay."""
        new = replace(self, given=given, **parts)
        new.__dict__.update({name: self.__dict__[name] for name in STATISTICS if name in self.__dict__})
        return new

    def take(self, given: Any, columns: Any) -> "Columns":
        """Some of the columns."""
        if self.values is None:
            return replace(self, given=given)
        return replace(
            self, given=given, values=self.values[:, columns], **{n: getattr(self, n)[:, columns] for n in self.PARTS}
        )


def _interpolate(at: Callable[[NDArray[np.intp]], Array], last: NDArray[np.intp], share: float) -> Array:
    """A quantile of ordered values, of which ``at`` gives those at some places and ``last`` are the last places."""
    position = last * share
    low = np.floor(position).astype(np.intp)
    first, second = at(low), at(np.minimum(low + 1, last))
    return np.asarray(first + (position - low) * (second - first))


def _compute_quantiles(ordered: Array, shares: Sequence[float]) -> list[Array]:
    """Quantiles of ordered columns, whose missing values are last; NaN where there are no others."""
    last = ordered.shape[0] - 1 - np.isnan(ordered).sum(axis=0)
    columns = np.arange(ordered.shape[1])
    return [_interpolate(lambda places: ordered[places, columns], last, share) for share in shares]


def _compute_moments(values: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
    """The moments of columns without missing values, put into two arrays, and their errors as in :attr:`Columns.moments`."""
    n_rows = values.shape[0]
    centre = values.mean(axis=0, keepdims=True)
    np.subtract(values, centre, out=mean)
    np.multiply(mean, mean, out=variance)
    largest = np.maximum(mean.max(axis=0, keepdims=True), -mean.min(axis=0, keepdims=True))
    total, unit = sum_columns(variance)[None, :], gamma(2 * sum_depth(n_rows) + 8)
    error = 4.0 * unit * (largest * largest + total) / (n_rows - 1)
    # The sum of absolute values is at most the root of that of the squares times the number of rows.
    sizes = largest + np.sqrt(n_rows * total) * (1.0 + unit)
    mean_error = unit * sizes / (n_rows - 1) + UNIT * (np.abs(centre) + largest)
    for part, whole in ((mean, sum_columns(mean)), (variance, total[0])):
        np.subtract(whole, part, out=part)
        part /= n_rows - 1
    variance -= np.square(mean)
    np.maximum(variance, 0.0, out=variance)
    mean += centre
    return mean_error, error


def sum_columns(entries: NDArray[Any], counts: Array | None = None) -> NDArray[Any]:
    """The sums of columns, of many rows in blocks, so that each entry passes through :func:`sum_depth` additions at most.

    ``counts``: how often each row is part of each of several sums.
    """
    n_rows = entries.shape[0]
    starts = range(0, n_rows, n_rows if n_rows <= MAX_ROWS_AT_ONCE else math.isqrt(n_rows))
    if counts is not None:
        size = starts.step
        return np.sum([counts[:, k : k + size] @ entries[k : k + size] for k in starts], axis=0)
    if len(starts) == 1 or entries.dtype == bool:
        return np.asarray(entries.sum(axis=0))
    return np.asarray(np.add.reduceat(entries, starts, axis=0).sum(axis=0))


def sum_depth(n_rows: int) -> int:
    """An upper bound of the additions that an entry passes through in :func:`sum_columns`."""
    return n_rows if n_rows <= MAX_ROWS_AT_ONCE else 2 * math.isqrt(n_rows) + 3


def split_columns(array: Array) -> Iterator[slice]:
    """Slices of columns small enough to stay in the cache, because allocating memory takes longer than the arithmetic."""
    width = max(64, CHUNK_ENTRIES // max(array.shape[0], 1))
    return (slice(begin, begin + width) for begin in range(0, array.shape[1], width))


def find_largest(errors: Array) -> Array:
    """The largest error in each column that is a number."""
    found: Array = np.fmax.reduce(errors, axis=0, keepdims=True)
    return found


def join(given: Any, blocks: list[Columns]) -> Columns:
    """Blocks of columns side by side."""
    blocks = [block for block in blocks if block.values is not None or count_columns(block.given)]
    if all(block.values is None for block in blocks):
        return replace(blocks[0], given=given)
    blocks = [block.numbers() for block in blocks]

    def side_by_side(name: str) -> Array:
        parts = [getattr(block, name) for block in blocks]
        height = max(part.shape[0] for part in parts)
        return np.hstack([np.broadcast_to(part, (height, part.shape[1])) for part in parts])

    return Columns(
        given, side_by_side("values"), blocks[0].splits, **{name: side_by_side(name) for name in Columns.PARTS}
    )


def count_columns(given: Any) -> int:
    """The number of columns of an array, a sparse matrix or a frame."""
    return given.shape[1] if len(given.shape) > 1 else 1


def as_numbers(given: Any) -> Array | None:
    """Columns as float64 numbers, NaN where they are missing; None if some values are not numbers."""
    if sp.issparse(given) and count_columns(given) * count_rows(given) > MAX_ENTRIES:
        raise Unfollowed("sparse data has too many entries to be followed, zeros included")
    try:
        if sp.issparse(given):
            return np.asarray(to_dense(given), dtype=np.float64)
        if hasattr(given, "to_numpy") and hasattr(given, "iloc"):
            given = given.to_numpy(dtype=np.float64, na_value=np.nan)
        elif hasattr(given, "to_numpy"):
            given = given.to_numpy()
        found = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return found if found.ndim == 2 else None
