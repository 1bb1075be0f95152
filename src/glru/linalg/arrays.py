"""Dense batches in NumPy or in another namespace (PyTorch, CuPy, ...): what the array API standard lacks, once for either.

Vectors with one number per row or column live on the host, in NumPy. Matrices and batches of models, one per column, stay where
the data is. Code for batches is written once against :class:`Arrays`; on the host its methods do nothing but call NumPy.
Float64 facts that every rounding bound is made of are at the end.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from typing import Any, TypeVar, final, overload

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from glru._extras import require

SMALL_WORK = 1e9
"""Below this number of operations in the largest product, waking the threads of BLAS costs more than they save."""

Result = TypeVar("Result")


_asked: ContextVar[int | None] = ContextVar("_asked", default=None)
"""The number of threads that the current call asked for."""


def n_threads() -> int:
    """Threads to use: as many as were asked for, otherwise one per core or ``OMP_NUM_THREADS``."""
    return _asked.get() or _count_usual_threads()


@contextmanager
def use_threads(n_jobs: int | None) -> Iterator[None]:
    """Work on n_jobs threads inside, BLAS included; negative numbers count back from the cores, None changes nothing."""
    if n_jobs is None:
        yield
        return
    count = int(n_jobs) if n_jobs > 0 else max(1, _cores() + 1 + int(n_jobs))
    token = _asked.set(count)
    try:
        with _blas().limit(limits=count):
            yield
    finally:
        _asked.reset(token)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _count_usual_threads() -> int:
    """Cores this process may use, at most ``OMP_NUM_THREADS`` where that is set."""
    cores = _cores()
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores, int(limit))) if limit.isdigit() else cores


def run_in_parts(work: Callable[[int, int], Result], n_items: int, smallest: int) -> list[Result]:
    """``work(start, stop)`` over consecutive parts of ``range(n_items)``, at least ``smallest`` items each."""
    n_parts = max(1, min(n_threads(), n_items // max(smallest, 1)))
    if n_parts == 1:
        return [work(0, n_items)]
    edges = [k * n_items // n_parts for k in range(n_parts + 1)]
    # Each part in a copy of the caller's context, where NumPy keeps what to do about overflow.
    contexts = [copy_context() for _ in edges[1:]]
    return list(_pool().map(lambda context, *ends: context.run(work, *ends), contexts, edges[:-1], edges[1:]))


def total(parts: list[Any]) -> Any:
    """The sum of arrays, in the first of them."""
    for other in parts[1:]:
        parts[0] += other
    return parts[0]


@contextmanager
def calm_blas(work: float) -> Iterator[None]:
    """BLAS on one thread inside, where the largest product is small; nested and concurrent uses share one limit."""
    if work > SMALL_WORK:
        yield
        return
    use = object()
    try:
        try:
            _calm.enter(use)
            yield
        finally:
            _calm.leave(use)
    finally:
        # Where Ctrl-C came on the way out.
        _calm.leave(use)


class _Calm:
    """The limit, set by whoever comes first and lifted by whoever leaves last; both may be interrupted anywhere and leaving be repeated."""

    def __init__(self) -> None:
        # A garbage collection inside may end another use in the same thread.
        self._lock, self._uses = threading.RLock(), set[object]()
        self._lowered: list[tuple[Any, int]] = []  # libraries that had more threads, and how many

    def enter(self, use: object) -> None:
        with self._lock:
            self._uses.add(use)
            if len(self._uses) > 1:
                return
            for library in _blas().lib_controllers:
                count = library.get_num_threads()
                if count is not None and count > 1:
                    self._lowered.append((library, count))
                    library.set_num_threads(1)

    def leave(self, use: object) -> None:
        with self._lock:
            self._uses.discard(use)
            while self._lowered and not self._uses:
                library, count = self._lowered[-1]
                library.set_num_threads(count)
                self._lowered.pop()


_calm = _Calm()


# Counted work: what products, Gram matrices and factors cost by their sizes, the same on every machine and in every run. By a clock a run would
# decide differently each time. Counts are of one thread: that of the run, whatever other threads the products themselves use.

CALL = 20_000
"""Nanoseconds of a product of tiny operands, including the statements around it."""


class _Counter(threading.local):
    total = 0


_COUNTER = _Counter()


def add_work(operations: float) -> None:
    """Note a call that takes about as many nanoseconds as it has ``operations``, in addition to what every call takes."""
    _COUNTER.total += CALL + int(operations)


def add_product(entries: int, n_results: int, n_vectors: int) -> None:
    """Note a product of a matrix of some entries with one vector or several; every result is worked on afterwards."""
    # One vector waits for the entries to come from memory, several share them.
    _COUNTER.total += CALL + entries // 2 + entries * n_vectors // 10 + 10 * n_results * n_vectors


@contextmanager
def uncounted() -> Iterator[None]:
    """Leave work out of the count."""
    before = _COUNTER.total
    try:
        yield
    finally:
        _COUNTER.total = before


def counted() -> int:
    """The nanoseconds that this thread has counted so far."""
    return _COUNTER.total


@cache
def _blas() -> Any:
    return ThreadpoolController().select(user_api="blas")


@cache
def _pool() -> ThreadPoolExecutor:
    # Threads are started only as parts wait for them, so that the limit may be generous.
    return ThreadPoolExecutor(max(_cores(), _count_usual_threads()), thread_name_prefix="glru")


# Threads do not survive a fork; a child starts its own on first use.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


Array = NDArray[np.float64]
Entries = tuple[NDArray[np.intp], NDArray[np.intp]]

PURPOSE = "an array of PyTorch, CuPy or another namespace"

SMALL = 1 << 17
"""Data with fewer entries is left to NumPy and SciPy: compiled loops would not pay for their loading."""


def is_foreign(X: object) -> bool:
    """Whether an object is an array of a namespace other than NumPy's."""
    if isinstance(X, (np.ndarray, np.generic)) or sp.issparse(X):
        return False
    return hasattr(X, "__array_namespace__") or _library(X) in ("torch", "cupy")


def namespace(*arrays: Any) -> Any:
    """The namespace that some arrays have in common: NumPy, or that of the first which is not NumPy's."""
    for array in arrays:
        if is_foreign(array):
            return _compat().array_namespace(array)
    return np


def to_host(array: Any) -> Any:
    """An array as NumPy's, on the host; anything that is not foreign as it is."""
    if not is_foreign(array):
        return array
    if _library(array) == "torch":
        return array.detach().cpu().numpy()
    if _library(array) == "cupy":
        return _compat().to_device(array, "cpu")
    return np.asarray(_compat().to_device(array, _host_device(array)))


def to_dense(array: Any) -> NDArray[Any]:
    """Any array as a dense one of NumPy's, on the host."""
    dense = array.toarray() if sp.issparse(array) else to_host(array)  # type: ignore[attr-defined]
    return np.asarray(dense)


def move_like(values: Any, like: Any) -> Any:
    """Values where another array lives; names of classes and masked values, which only NumPy has, stay on the host."""
    if not is_foreign(like):
        return to_host(values)
    stays = not is_foreign(values) and (values.dtype.kind not in "fiub" or isinstance(values, np.ma.MaskedArray))
    return values if stays else get_arrays(like).put(values)


def floats(*arrays: Any) -> tuple[Array, ...]:
    """Float64 arrays of one common shape, on the device of those that are on one."""
    for a in arrays:
        if not (type(a) is np.ndarray and a.dtype == np.float64 and a.shape == arrays[0].shape):
            break
    else:
        return arrays
    foreign = next((a for a in arrays if is_foreign(a)), None)
    if foreign is None:
        return tuple(np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in arrays)))
    there = get_arrays(foreign)
    moved = (a if is_foreign(a) else there.put(np.asarray(a, dtype=np.float64)) for a in arrays)
    return tuple(there.xp.broadcast_arrays(*moved))


@overload
def unify(y: Any, /) -> tuple[Any, Array]: ...
@overload
def unify(y: Any, z: Any, /) -> tuple[Any, Array, Array]: ...
@overload
def unify(y: Any, z: Any, g: Any, /) -> tuple[Any, Array, Array, Array]: ...
def unify(*arrays: Any) -> Any:
    """The namespace of :func:`floats` of some arrays, and these."""
    arrays = floats(*arrays)
    return namespace(arrays[0]), *arrays


def _library(array: object) -> str:
    return type(array).__module__.partition(".")[0]


def _host_device(array: Any) -> Any:
    devices = namespace(array).__array_namespace_info__().devices()
    return next((device for device in devices if device is not None and "cpu" in str(device).lower()), devices[0])


def _compat() -> Any:
    return require("array_api_compat", "arrays", PURPOSE)


def _extra() -> Any:
    return require("array_api_extra", "arrays", PURPOSE)


class Arrays(ABC):
    """Operations on dense batches in one namespace and on one device."""

    xp: Any
    """The namespace."""

    device: Any = None
    """The device; None on the host."""

    chunk: int
    """Entries of the arrays that a thread works on at a time: they stay in the cache, or keep a device busy."""

    batch: int
    """Entries of the arrays that one product makes at a time."""

    stable: bool
    """Whether factors and solves are LAPACK's, whose backward errors are known; otherwise only products are."""

    @abstractmethod
    def put(self, array: Any) -> Any:
        """A host array in this namespace, on this device."""

    @abstractmethod
    def zero_out(self, matrix: Any, entries: Entries) -> Any:
        """A matrix with some entries, at most one per column, set to zero; in place where that can be."""

    @abstractmethod
    def add_entries(self, matrix: Any, values: Array, entries: Entries) -> Any:
        """A copy of a matrix with values added to some entries, at most one per column."""

    @abstractmethod
    def replace_columns(self, matrix: Any, columns: Any, places: NDArray[np.intp]) -> Any:
        """A matrix with some columns replaced; in place where that can be."""

    @abstractmethod
    def without_rows(self, matrix: Any, rows: NDArray[np.bool_]) -> Any:
        """A matrix with some rows set to zero; in place where that can be."""

    @abstractmethod
    def entries(self, matrix: Any, entries: Entries) -> Array:
        """One entry of every column, as a host vector; exact."""

    @abstractmethod
    def units(self, size: int, places: NDArray[np.intp]) -> Any:
        """Unit vectors as columns."""

    @abstractmethod
    def take(self, matrix: Any, columns: NDArray[Any]) -> Any:
        """Some columns, by number or by mask."""

    @abstractmethod
    def inner(self, first: Any, second: Any) -> Array:
        """The inner products of the columns of two matrices, as a host vector; each errs by ``gamma(n_rows)``."""

    @abstractmethod
    def absolute(self, matrix: Any) -> Any:
        """Absolute values, in place where that can be."""

    @abstractmethod
    def concatenate(self, parts: Sequence[Any], axis: int) -> Any:
        """Matrices on top of each other (axis 0) or side by side (axis 1)."""

    def append_row(self, matrix: Any, row: Any) -> Any:
        """A matrix with one row more."""
        return self.concatenate([matrix, row[None, :]], 0)

    def with_ones(self, matrix: Any) -> Any:
        """A matrix with a column of ones behind it."""
        return self.concatenate([matrix, self.put(np.ones((matrix.shape[0], 1)))], 1)

    @abstractmethod
    def add_diagonal(self, matrix: Any, values: Array) -> Any:
        """A square matrix with some values, or one, added to its diagonal; in place where that can be."""

    def add_border(self, matrix: Any, border: Array, corner: float) -> Any:
        """A symmetric matrix with one row and column more."""
        side = self.put(np.append(border, corner))
        return self.append_row(self.concatenate([matrix, side[:-1, None]], 1), side)

    @abstractmethod
    def size(self, matrix: Any) -> float:
        """The largest absolute value."""

    @abstractmethod
    def find_largest(self, matrix: Any, used: NDArray[np.bool_]) -> Array:
        """The largest entry of every column over some rows of a non-negative matrix, as a host vector."""

    @abstractmethod
    def run_in_parts(self, work: Callable[[int, int], None], n_items: int, smallest: int) -> None:
        """``work(start, stop)`` over parts of ``range(n_items)``, in threads of our own where BLAS runs."""


@final
class HostArrays(Arrays):
    """NumPy's arrays."""

    xp = np
    chunk, batch = 1 << 18, 1 << 23
    stable = True

    def put(self, array: Any) -> Any:
        return array

    def zero_out(self, matrix: Any, entries: Entries) -> Any:
        matrix[entries] = 0.0
        return matrix

    def add_entries(self, matrix: Any, values: Array, entries: Entries) -> Any:
        matrix = matrix.copy()
        matrix[entries] += values
        return matrix

    def replace_columns(self, matrix: Any, columns: Any, places: NDArray[np.intp]) -> Any:
        matrix[:, places] = columns
        return matrix

    def without_rows(self, matrix: Any, rows: NDArray[np.bool_]) -> Any:
        matrix[rows] = 0.0
        return matrix

    def entries(self, matrix: Any, entries: Entries) -> Array:
        return matrix[entries]

    def units(self, size: int, places: NDArray[np.intp]) -> Any:
        units = np.zeros((size, places.size))
        units[places, np.arange(places.size)] = 1.0
        return units

    def take(self, matrix: Any, columns: NDArray[Any]) -> Any:
        return matrix[:, columns]

    def inner(self, first: Any, second: Any) -> Array:
        return np.einsum("ij,ij->j", first, second)

    def absolute(self, matrix: Any) -> Any:
        return np.abs(matrix, out=matrix)

    def concatenate(self, parts: Sequence[Any], axis: int) -> Any:
        return np.concatenate(parts, axis=axis)

    def add_diagonal(self, matrix: Any, values: Array) -> Any:
        diagonal = np.einsum("ii->i", matrix)
        diagonal += values
        return matrix

    def size(self, matrix: Any) -> float:
        return float(np.abs(matrix).max(initial=0.0))

    def find_largest(self, matrix: Any, used: NDArray[np.bool_]) -> Array:
        return matrix.max(axis=0) if used.all() else matrix[used].max(axis=0)

    def run_in_parts(self, work: Callable[[int, int], None], n_items: int, smallest: int) -> None:
        with calm_blas(0.0):
            run_in_parts(work, n_items, smallest)


HOST = HostArrays()


@final
class DeviceArrays(Arrays):
    """Arrays of another namespace, all on the device of one of them."""

    chunk, batch = 1 << 26, 1 << 26
    stable = False

    def __init__(self, like: Any) -> None:
        self.xp, self.device = namespace(like), _compat().device(like)

    def put(self, array: Any) -> Any:
        if is_foreign(array):
            return array
        # PyTorch warns of NumPy arrays that must not be written to; a copy may be.
        return self.xp.asarray(np.array(array), device=self.device)

    def zero_out(self, matrix: Any, entries: Entries) -> Any:
        return self.xp.where(self._marks(matrix, entries), 0.0, matrix)

    def add_entries(self, matrix: Any, values: Array, entries: Entries) -> Any:
        spread = np.zeros(matrix.shape[1])
        spread[entries[1]] = values
        return matrix + self.xp.where(self._marks(matrix, entries), self.put(spread)[None, :], 0.0)

    def replace_columns(self, matrix: Any, columns: Any, places: NDArray[np.intp]) -> Any:
        order, marks = np.zeros(matrix.shape[1], dtype=np.int64), np.zeros(matrix.shape[1], dtype=bool)
        order[places], marks[places] = np.arange(places.size), True
        return self.xp.where(self.put(marks)[None, :], self.take(columns, order), matrix)

    def without_rows(self, matrix: Any, rows: NDArray[np.bool_]) -> Any:
        return self.xp.where(self.put(rows)[:, None], 0.0, matrix)

    def entries(self, matrix: Any, entries: Entries) -> Array:
        return to_host(self.xp.sum(self.xp.where(self._marks(matrix, entries), matrix, 0.0), axis=0))

    def _marks(self, matrix: Any, entries: Entries) -> Any:
        rows, columns = entries
        where = np.full(matrix.shape[1], -1)
        where[columns] = rows
        return self.xp.arange(matrix.shape[0], device=self.device)[:, None] == self.put(where)[None, :]

    def units(self, size: int, places: NDArray[np.intp]) -> Any:
        return _extra().one_hot(self.put(places), size, dtype=self.xp.float64, axis=0, xp=self.xp)

    def take(self, matrix: Any, columns: NDArray[Any]) -> Any:
        places = np.flatnonzero(columns) if columns.dtype == bool else columns
        return self.xp.take(matrix, self.put(places), axis=1)

    def inner(self, first: Any, second: Any) -> Array:
        return to_host(self.xp.sum(first * second, axis=0))

    def absolute(self, matrix: Any) -> Any:
        return self.xp.abs(matrix)

    def concatenate(self, parts: Sequence[Any], axis: int) -> Any:
        return self.xp.concat(list(parts), axis=axis)

    def add_diagonal(self, matrix: Any, values: Array) -> Any:
        return matrix + _extra().create_diagonal(self.put(np.broadcast_to(values, matrix.shape[:1])), xp=self.xp)

    def size(self, matrix: Any) -> float:
        return float(self.xp.max(self.xp.abs(matrix)))

    def find_largest(self, matrix: Any, used: NDArray[np.bool_]) -> Array:
        if not used.all():
            matrix = self.xp.where(self.put(used)[:, None], matrix, 0.0)
        return to_host(self.xp.max(matrix, axis=0))

    def run_in_parts(self, work: Callable[[int, int], None], n_items: int, smallest: int) -> None:
        work(0, n_items)


def get_arrays(array: Any) -> Arrays:
    """The operations of an array's own namespace."""
    return DeviceArrays(array) if is_foreign(array) else HOST


UNIT = float(np.finfo(np.float64).eps) / 2
"""Unit roundoff of float64."""

FEW = 16.0 * UNIT
"""Relative error of a short chain of operations."""

TINY = 1e-150
"""Added to norms: squares of numbers below it underflow, and the root of everything lost that way is far smaller."""

SPACING, SMALLEST = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).smallest_subnormal)


def gamma(k: int) -> float:
    """Relative error of a sum of ``k`` rounded products in any order: ``k u / (1 - k u)``."""
    return k * UNIT / (1.0 - k * UNIT)


def gammas(counts: NDArray[np.integer[Any]]) -> Array:
    """:func:`gamma` of every entry of an array."""
    units = counts * UNIT
    return units / (1.0 - units)


def outward(array: Any, end: float) -> Any:
    """At least one float64 number further in the direction of an end, entry by entry."""
    xp = namespace(array)
    # Neighbours are at most SPACING times a number apart, or the smallest number where that underflows.
    step = xp.abs(array)
    step *= SPACING
    step += SMALLEST
    return array + step if end > 0.0 else array - step


def powers_of_two(diagonal: Array) -> Array:
    """Powers of two that, multiplied to rows and columns, bring a positive diagonal near 1.

    An entry so small that the products in its sum may have underflowed keeps its scale: its relative error is unknown.
    """
    known = (diagonal > 1e-280) & np.isfinite(diagonal)
    return np.ldexp(1.0, -np.round(0.5 * np.log2(np.where(known, diagonal, 1.0))).astype(np.intc))


def round_to_bits(values: Array, n_bits: int) -> Array:
    """Values rounded to a number of significant bits."""
    fractions, exponents = np.frexp(values)
    rounded: Array = np.ldexp(np.round(np.ldexp(fractions, n_bits)), exponents - n_bits)
    return rounded


def subtracts_exactly(columns: Array, numbers: Array) -> NDArray[np.bool_]:
    """From which columns a number each is subtracted without rounding any entry."""
    moved = columns - numbers
    back = moved - columns
    # What a subtraction rounds off is a float64 number itself (Knuth's two-sum).
    lost = (columns - (moved - back)) - (numbers + back)
    exact: NDArray[np.bool_] = np.all(np.isfinite(moved) & (lost == 0.0), axis=0)
    return exact


UNDERFLOWS = 1e-280
"""What sums of at most ``2^60`` products lose to underflow is less than a unit of any number above this."""


def weighted_norm(weights: Any, values: Any, products: Any = None) -> Any:
    """``sqrt(sum_i s_i v_i^2)`` of a vector, or of each column of a matrix as a host vector; it errs by ``gamma(n + 8)``.

    Where products of weights and squares may have underflowed, the values are divided by the largest first, and what is still lost is added.
    ``products``: ``s o v``, if they are known.
    """
    arrays, n_rows = get_arrays(values), values.shape[0]
    along = weights if values.ndim == 1 else weights[:, None]

    def squares(values: Any, products: Any) -> Any:
        return values @ products if values.ndim == 1 else arrays.inner(values, products)

    found = squares(values, along * values if products is None else products)
    if not (np.any(found < UNDERFLOWS) and n_rows):
        return np.sqrt(found)
    # Column by column: what is known about one does not depend on the others.
    every = np.ones(n_rows, dtype=bool)
    largest = arrays.size(values) if values.ndim == 1 else arrays.find_largest(abs(values), every)
    lost = (found < UNDERFLOWS) & (largest > 0.0) & np.isfinite(largest)
    unit = np.where(lost, largest, 1.0)
    scaled = values / (float(unit) if values.ndim == 1 else arrays.put(unit))
    return unit * np.sqrt(np.where(lost, squares(scaled, along * scaled) + n_rows * SMALLEST, found))


def length(array: Any, axis: int | None = None) -> Any:
    """The Euclidean norm, of an array or along an axis, of numbers whose squares may underflow or overflow; on the host."""
    largest = np.abs(array).max(axis=axis, keepdims=True, initial=0.0)
    unit = np.where((largest > 0.0) & np.isfinite(largest), largest, 1.0)
    found = np.linalg.norm(array / unit, axis=axis) * (unit.item() if axis is None else unit.squeeze(axis))
    return float(found) if axis is None else found


# glibc maps an array above a threshold afresh, one page fault at a time, and returns freed memory above another one; both grow with the largest array below
# 32 MiB that is freed. After this one, temporary arrays find their memory where the last ones left it.
np.empty(31 * 2**17)
