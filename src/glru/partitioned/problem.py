"""A problem whose rows are in blocks that are never all in memory."""

from dataclasses import replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru._handover import Handover
from glru.linalg import TINY, Array, gamma
from glru.losses import Logistic, Loss
from glru.partitioned.blocks import Blocks, Traffic, crew_of
from glru.partitioned.census import Census, check, count
from glru.partitioned.rows import Absent, Layout, Rows, depth_of
from glru.partitioned.sources import BLOCK_BYTES, holds, sources_of
from glru.partitioned.sums import Expansion, Model, expand, weight_of
from glru.penalties import L2, Penalty
from glru.problem import Problem, Scaling, check_strengths, check_types
from glru.solvers.common import Floor


@final
class PartitionedProblem(Handover):
    r"""A :class:`~glru.Problem` whose rows are in blocks: larger than memory, or on the workers of a cluster.

    .. math:: P(w, b) = \sum_i s_i \, \ell(y_i, x_i^\top w + b) + \sum_j \rho_j(w_j)

    ``glru.Problem(X, y, ...)`` makes one where ``X`` is a dask array or dataframe, a Parquet path or a memory map.
    ``glru.solve``, ``glru.loocv``, ``glru.cross_val_predict``, ``glru.after`` and ``glru.stepwise`` accept it. The data is validated in one pass
    when the problem is made.

    Parameters
    ----------
    X : dask array or dataframe, path, or np.memmap
        Data in rows. A dask array may have dense or SciPy sparse blocks; all columns are brought into one block. A path
        names a Parquet file or a directory of them.
    y : dask array or series, array, or str
        Targets, with the rows of X; the name of a column where X has names.
    loss, penalty, fit_intercept, scaling
        As in :class:`~glru.Problem`.
    sample_weight : dask array or series, array, or str, default=None
        Non-negative weights; ones if not given.
    block_bytes : int, default=64 MiB
        Size of a block of a memory map or a Parquet file. Dask's blocks are taken as they are.

    Attributes
    ----------
    n_rows, n_columns, n_blocks : int
        Sizes.
    classes : array of shape (2,) or None
        The labels that -1 and +1 stand for.
    column_names : tuple of str or None
        The column names of a frame.
    traffic : Traffic
        Passes over the data and bytes moved so far.

    Examples
    --------
    >>> import tempfile, numpy as np, glru
    >>> folder = tempfile.TemporaryDirectory()
    >>> X = np.memmap(folder.name + "/X.bin", dtype=float, mode="w+", shape=(400, 3))
    >>> X[:] = np.random.default_rng(0).normal(size=X.shape)
    >>> problem = glru.Problem(X, X[:, 0] > 0.3, penalty=glru.L2(0.1))
    >>> problem
    PartitionedProblem(400 rows x 3 columns in 1 block, Logistic(), L2(lam=0.1), scaling='mean')
    >>> glru.loocv(problem).n_errors
    42
    >>> del X, problem; folder.cleanup()
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        loss: Loss | None = None,
        penalty: Penalty | None = None,
        fit_intercept: bool = False,
        scaling: Scaling = "mean",
        sample_weight: Any = None,
        *,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self.loss, self.penalty = Logistic() if loss is None else loss, L2(1.0) if penalty is None else penalty
        self.fit_intercept, self.scaling = fit_intercept, scaling
        check_types(self.loss, self.penalty, scaling)
        if not holds(X):
            raise TypeError(
                f"X must be a dask array or dataframe, a Parquet path or a memory map; got {type(X).__name__}. "
                "Use glru.Problem for data in memory."
            )
        if not block_bytes > 0:
            raise ValueError(f"block_bytes must be above 0; got {block_bytes!r}.")
        sources = sources_of(X, y, sample_weight, block_bytes)
        if not sources.X:
            raise ValueError("X must have at least one row and one column; got no blocks.")
        self.arrivals: Rows | None = None
        self.inputs = sources.inputs
        self.blocks = Blocks(crew_of(sources), len(sources.X))
        self.census = self._counted()
        self.column_names = sources.column_names
        self.classes = self._classes()
        self.layout = Layout(
            self.loss, self.penalty, fit_intercept, scaling, self.classes, float(self.census.total_weight)
        )

    def _counted(self) -> Census:
        """The census, or an error that names the first thing wrong."""
        task = self.loss.task
        census: Census = self.blocks.total(count, None, task, self.blocks.n_blocks)
        widths = sorted({width for width, _ in census.columns.facts.values()})
        if len(widths) > 1:
            raise ValueError(f"all blocks of X must have the same number of columns; got {widths}.")
        self.blocks.place(census.lengths.facts, census.checksums.facts)
        _inputs.require_entries(census.n_rows, census.squares.size)
        for k in sorted(k for k, fault in census.faults.facts.items() if fault):
            self.blocks.map_of(_checked, None, {k: task})
        check_strengths(self.penalty, census.squares.size)
        _inputs.require_weight(census.largest.value)
        return census

    def _classes(self) -> NDArray[Any] | None:
        if self.loss.task != "classification":
            return None
        classes = _inputs.classes_of(np.array(list(self.census.labels.counts)))
        _inputs.require_two(classes)
        return classes

    def perform(self, function: str, *args: Any, **options: Any) -> Any:
        from glru.partitioned.api import perform

        return perform(self, function, *args, **options)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.census.n_rows

    @property
    def n_columns(self) -> int:
        """Number of columns, the intercept not counted."""
        return int(self.census.squares.size)

    @cached_property
    def depth(self) -> int:
        """At least the additions that a row's share of any sum over all rows passes through, in whatever order.

        Sums are made chunk by chunk, block by block and then over the blocks, so that their rounding does not grow with the
        number of rows: this takes its place in ``gamma``.
        """
        deepest = max(depth_of(n, self.n_columns, self.is_sparse) for n in self.census.lengths.facts.values())
        return deepest + len(self.census.lengths.facts) + 8

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return self.blocks.n_blocks

    @property
    def traffic(self) -> Traffic:
        """Passes over the data and bytes moved so far."""
        return self.blocks.traffic

    @property
    def is_sparse(self) -> bool:
        """Whether blocks are stored sparsely."""
        return self.census.n_sparse > 0.0

    @property
    def is_plain(self) -> bool:
        """Whether every column is penalised and there is no intercept: every dual point is feasible."""
        return not self.fit_intercept and self.penalty.strong_convexity > 0.0

    @property
    def least_curvature(self) -> float:
        """A number that no eigenvalue of the Hessian is below, wherever it is taken."""
        return 0.0 if self.fit_intercept else self.penalty.strong_convexity

    @cached_property
    def quadratic(self) -> Array:
        """The penalty's strengths, one a column."""
        return np.broadcast_to(self.penalty.quadratic, (self.n_columns,))

    @cached_property
    def unpenalised(self) -> NDArray[np.intp]:
        """The columns whose penalty is zero."""
        free = (self.penalty.quadratic == 0.0) & (self.penalty.absolute == 0.0)
        return np.flatnonzero(np.broadcast_to(free, (self.n_columns,)))

    @cached_property
    def weight_sum(self) -> float:
        """At least the sum of the weights ``s``."""
        total = 1.0 if self.scaling == "mean" else self.layout.total_weight
        return total * (1.0 + gamma(self.n_rows + 8))

    @cached_property
    def column_norms(self) -> Array:
        """At least ``sqrt(sum_i s_i x_ij^2)`` for every column, and ``sqrt(sum_i s_i)`` for an intercept."""
        unit = self.layout.total_weight if self.scaling == "mean" else 1.0
        norms = (np.sqrt(self.census.squares / unit) + TINY) * (1.0 + gamma(self.n_rows + 8))
        return np.append(norms, np.sqrt(self.weight_sum)) if self.fit_intercept else norms

    @cached_property
    def plain(self) -> float:
        """At least the largest Euclidean norm of a row."""
        return float(np.sqrt(self.census.plain.value)) * (1.0 + gamma(self.n_columns + 8)) + TINY

    @cached_property
    def plain_mass(self) -> float:
        """At least ``sqrt(sum_i s_i |x_i|^2)``."""
        return float(np.linalg.norm(self.column_norms[: self.n_columns])) * (1.0 + gamma(self.n_columns + 8))

    @cached_property
    def shared(self) -> NDArray[np.bool_] | None:
        """The columns with values in more than one row, where sparse data has others."""
        if not self.is_sparse or self.census.n_sparse < sum(n > 0 for n in self.blocks.lengths.values()):
            return None
        shared = self.census.filled != 1.0
        return None if shared.all() else shared

    def sample(self) -> Problem | None:
        """A problem of a sample of the rows that carries the weight of all; None where that would be no start."""
        X, y, weight = self.census.sample.joined()
        if y.size < 10 * self.n_columns or 4 * y.size > self.n_rows or not weight.any():
            return None
        weight = weight * (self.layout.total_weight / weight.sum())
        rows = self.layout.problem(Rows(X, y, weight, None), 0)
        return None if self.classes is not None and np.unique(rows.y).size < 2 else rows

    def expansion(self, model: Model, floor: Floor | None = None) -> Expansion:
        """Value, gradient and (with a floor under the curvatures) Hessian of the losses at a model, in one pass."""
        found: Expansion = self.blocks.total(expand, self.layout, model, floor)
        if self.arrivals is not None:
            rows = replace(self.layout, classes=None, absent=None).problem(self.arrivals, 0)
            found = found + expand(rows, self.n_blocks, 0, model, floor)
        return found

    def changed(self, absent: Absent | None = None, arrivals: Rows | None = None) -> "PartitionedProblem":
        """The problem without some rows, or with some more that are in memory (labels -1/+1).

        What the census says of sizes stays an upper bound.
        """
        new = object.__new__(PartitionedProblem)
        for name in (
            "loss",
            "penalty",
            "fit_intercept",
            "scaling",
            "blocks",
            "census",
            "column_names",
            "classes",
            "inputs",
        ):
            setattr(new, name, getattr(self, name))
        new.arrivals, new.layout = arrivals, replace(self.layout, absent=absent)
        total = self.layout.total_weight if absent is None else float(self.blocks.total(weight_of, new.layout))
        if arrivals is not None:
            new.census = self.census + count(arrivals, self.n_blocks, self.n_rows, "regression", 1)
            total += new.census.total_weight - self.census.total_weight
        new.layout = replace(new.layout, total_weight=total)
        if not total > 0.0:
            raise ValueError("a change must leave a row of weight above 0; got the removal of all of them.")
        return new

    def __repr__(self) -> str:
        layout = " (sparse)" if self.is_sparse else ""
        intercept = ", fit_intercept=True" if self.fit_intercept else ""
        blocks = f"{self.n_blocks} block{'s' if self.n_blocks != 1 else ''}"
        return (
            f"PartitionedProblem({self.n_rows} rows x {self.n_columns} columns{layout} in {blocks}, {self.loss!r}, "
            f"{self.penalty!r}{intercept}, scaling={self.scaling!r})"
        )


def _checked(rows: Rows, number: int, start: int, task: Any) -> None:
    check(rows, number, start, task)
