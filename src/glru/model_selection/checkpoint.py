"""Finished work of a long run, kept in a file so that a killed run goes on where it was.

A run is a fixed sequence of calls, each of which proves bounds for some rows, or of the steps of a search; what it does next depends
only on what came before. So the file keeps the answers in order, and a run that finds them there takes them from the file
until it comes to the first that is missing. Answers are filed under a hash of the data, of all that decides them and of
the version of glru: a file can serve several runs, and never gives one the answers of another.
"""

import hashlib
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, final, get_args

import numpy as np
from numpy.typing import NDArray

from glru._files import check_target, open_archive, write_atomically
from glru._options import Budget
from glru.cascade import Found, Rows
from glru.linalg import Array
from glru.losses import Loss
from glru.penalties import Penalty
from glru.problem import Point, Problem
from glru.solution import Solution, Status, make_solution

WRITE_INTERVAL, WRITE_SHARE = 1.0, 10.0
"""Seconds between two writes, or this multiple of the time a write takes if that is longer."""

PARTS = ("rows", "lower", "upper", "limited")
"""What is kept for every row of an answer; for every answer, its number of rows and its counted work are kept as well."""

ENTRY = re.compile(r"[0-9a-f]+/(coef|dual|numbers|words|sizes|work|rows|lower|upper|limited|steps|tables)")
"""The names of the arrays in the file."""

PROBLEM = ("loss", "penalty", "fit_intercept", "scaling", "y", "sample_weight", "weights")
SOLUTION = ("problem", "coef", "intercept", "dual")
"""What distinguishes solutions, and problems in addition to their data."""

Work = Callable[[Rows], Found]
Journal = list[tuple[Rows, Array, Array, NDArray[np.bool_], int]]
Steps = list[tuple[Array, Array]]
"""Finished steps of a search: some numbers of each, and a table with one column per candidate."""


@final
class Checkpoint:
    """A file with the finished work of runs; it is made if it is not there."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._arrays: dict[str, Array] = {}
        self._journals: dict[str, Journal] = {}
        self._steps: dict[str, Steps] = {}
        self._written, self._pause = time.perf_counter(), WRITE_INTERVAL
        check_target(self.path, "a checkpoint")
        if self.path.exists():
            self._read()

    def __fspath__(self) -> str:
        return str(self.path)

    def solution(self, problem: Problem, tol: float, train: Callable[[], Solution]) -> Solution:
        """The trained model of a problem, from the file if it is there."""
        key = digest(problem, tol)
        if f"{key}/coef" not in self._arrays:
            found = train()
            if found.status == "stopped":
                return found  # by the clock: that is no finished work
            self._arrays[f"{key}/coef"], self._arrays[f"{key}/dual"] = found.coef, found.dual
            self._arrays[f"{key}/numbers"] = np.append(found.intercept, [float(found.n_iter), float(found.work)])
            self._arrays[f"{key}/words"] = np.array([found.status, found.solver])
            self.save()
            return found
        classes = (problem.n_scores,) if problem.loss.several else ()
        coef, dual, numbers = (
            self._array(f"{key}/{name}", shape)
            for name, shape in (
                ("coef", (*classes, problem.n_columns)),
                ("dual", (problem.n_rows, *classes)),
                ("numbers", (problem.n_scores + 2,)),
            )
        )
        status, solver = self._array(f"{key}/words", (2,), words=True).tolist()
        intercept = numbers[:-2] if classes else float(numbers[0])
        found = make_solution(problem, Point(coef, intercept, dual), int(numbers[-2]), status, solver)
        return replace(found, work=int(numbers[-1]))

    def _array(self, name: str, shape: tuple[int, ...], words: bool = False) -> NDArray[Any]:
        """An array of the file, as it must be: words, or finite numbers."""
        found: NDArray[Any] = self._arrays.get(name, np.empty(0))
        good = found.shape == shape
        if words:
            good = good and found.dtype.kind == "U" and str(found[0]) in get_args(Status)
        else:
            good = good and found.dtype == np.float64 and bool(np.all(np.isfinite(found)))
        if not good:
            raise ValueError(
                f"{self.path} is not a checkpoint of glru: {name} does not fit the problem. Remove it or name another file."
            )
        return found

    def recall(self, budget: Budget, *settings: Any) -> Callable[[Rows, Work], Found]:
        """A function that does work on rows once, and has it from the file in a later run of the same settings.

        What was under way when the time was up may have been cut short, and is not kept.
        """
        journal = self._journals.setdefault(digest(*settings), [])
        place = 0

        def done(rows: Rows, work: Work) -> Found:
            nonlocal place
            if place < len(journal):
                known, lower, upper, limited, counted = journal[place]
                if not np.array_equal(known, rows):
                    raise self.make_misfit_error()
            else:
                lower, upper, limited, counted = work(rows)
                if not budget.spent:
                    journal.append((rows.copy(), lower.copy(), upper.copy(), limited.copy(), counted))
                    self.save_in_time()
            place += 1
            return lower, upper, limited, counted

        return done

    def steps(self, *settings: Any) -> Steps:
        """The finished steps of a search of these settings, to which new ones are appended."""
        return self._steps.setdefault(digest(*settings), [])

    def make_misfit_error(self) -> ValueError:
        """The error of a file that holds something else under the key of this run."""
        return ValueError(f"the checkpoint {self.path} does not fit this run. Remove it and start again.")

    def save_in_time(self) -> None:
        """Write all finished work, unless that was done a moment ago."""
        if time.perf_counter() - self._written > self._pause:
            self.save()

    def save(self) -> None:
        begin = time.perf_counter()
        arrays: dict[str, Any] = dict(self._arrays)
        for key, journal in self._journals.items():
            if journal:
                arrays[f"{key}/sizes"] = np.array([rows.size for rows, *_ in journal])
                *answers, work = zip(*journal, strict=True)
                arrays[f"{key}/work"] = np.array(work)
                for name, parts in zip(PARTS, answers, strict=True):
                    arrays[f"{key}/{name}"] = np.concatenate(parts)
        for key, steps in self._steps.items():
            if steps:
                arrays[f"{key}/steps"] = np.array([numbers for numbers, _ in steps])
                arrays[f"{key}/tables"] = np.concatenate([table for _, table in steps], axis=1)

        def write(part: Path) -> None:
            with part.open("wb") as file:
                np.savez(file, **arrays)

        write_atomically(self.path, write)
        self._written = time.perf_counter()
        self._pause = max(WRITE_INTERVAL, WRITE_SHARE * (self._written - begin))

    def _read(self) -> None:
        try:
            with self.path.open("rb") as file, open_archive(file, packed=False) as archive:
                strange = [name for name in archive.names if not ENTRY.fullmatch(name)]
                if strange:
                    # Other archives, data among them, are not taken over: they would be overwritten.
                    raise ValueError(f"it holds {strange[0]!r}")
                arrays = {name: archive.read(name) for name in archive.names}
            for name in [name for name in arrays if name.endswith("/sizes")]:
                key = name.removesuffix("/sizes")
                parts = (arrays.pop(f"{key}/{part}") for part in ("work", *PARTS))
                self._journals[key] = _journal(arrays.pop(name), *parts)
            for name in [name for name in arrays if name.endswith("/steps")]:
                key = name.removesuffix("/steps")
                self._steps[key] = _steps(arrays.pop(name), arrays.pop(f"{key}/tables"))
            self._arrays = arrays
        except (ValueError, KeyError) as error:
            raise ValueError(
                f"{self.path} is not a checkpoint of glru ({error}). Remove it or name another file."
            ) from None


def _journal(sizes: Array, work: Array, *parts: NDArray[Any]) -> Journal:
    """The answers in their order, from arrays that hold all of them one after the other."""
    rows, *rest = parts
    kinds = sizes.dtype.kind + work.dtype.kind + rows.dtype.kind == "iii" and [part.dtype for part in rest] == [
        np.float64,
        np.float64,
        bool,
    ]
    # One score per class has lines of queries for ends.
    flat = all(part.ndim == 1 for part in (sizes, work, rows, rest[-1])) and rest[0].ndim in (1, 2)
    good = kinds and flat and work.shape == sizes.shape and not np.any(sizes < 0) and rest[0].shape == rest[1].shape
    if not (good and all(len(part) == sizes.sum(dtype=object) for part in parts)):
        raise ValueError("answers must be rows with two ends each.")
    edges = np.cumsum(sizes)[:-1]
    return list(zip(*(np.split(part, edges) for part in parts), work.tolist(), strict=True))


def _steps(numbers: NDArray[Any], tables: NDArray[Any]) -> Steps:
    """The steps of a search in their order; the first number of each is the number of its candidates."""
    if any(part.dtype != np.float64 or part.ndim != 2 for part in (numbers, tables)) or not numbers.size:
        raise ValueError("steps must be numbers and a table each.")
    sizes = numbers[:, 0]
    if not np.all((sizes >= 0) & (sizes == np.rint(sizes)) & (sizes < 2**53)) or sizes.sum() != tables.shape[1]:
        raise ValueError("the tables of steps must have one column per candidate.")
    edges = np.cumsum(sizes.astype(np.intp))[:-1]
    return list(zip(numbers, np.split(tables, edges, axis=1), strict=True))


def digest(*values: Any) -> str:
    """A hash of problems, solutions, settings and plain values; values that differ in anything differ in it."""
    # By the table of modules: importing the package from one of its lower layers would turn the layers round.
    return _hash(_describe((sys.modules["glru"].__version__, values)).encode())


def _hash(data: Any) -> str:
    return hashlib.blake2b(data, digest_size=24).hexdigest()


def _describe(value: Any) -> str:
    """A value as text: with its type, and the values of an object with the names of its fields, so that no two values have the same text."""
    if isinstance(value, tuple | list):
        return f"({','.join(map(_describe, value))})"
    if value is None or isinstance(value, bool | int | float | str | np.number | np.bool_):
        return f"{type(value).__qualname__} {value!r}"
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufUS":
        return f"array {value.dtype.str} {value.shape} {_hash(np.ascontiguousarray(value))}"
    if isinstance(value, np.ndarray) and value.dtype.names is not None:
        return _describe([(name, value[name]) for name in value.dtype.names])
    if isinstance(value, Problem):
        names: Sequence[str] = PROBLEM
    elif isinstance(value, Solution):
        names = SOLUTION
    elif isinstance(value, Loss | Penalty):
        names = [f.name for f in fields(value)] if is_dataclass(value) else sorted(vars(value))
    else:
        raise TypeError(f"a checkpoint cannot tell values of type {type(value).__name__} apart; got {value!r}.")
    kind, data = type(value), ""
    if isinstance(value, Problem):
        # Made once for all problems that share X.
        matrix = value.matrix
        if "digest" not in matrix.shared:
            matrix.shared["digest"] = _describe([matrix.shape, *matrix.parts.values()])
        data = matrix.shared["digest"]
    return f"{kind.__module__}.{kind.__qualname__}{_describe([(name, getattr(value, name)) for name in names])}{data}"
