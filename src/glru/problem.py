"""The training problem: rows, loss, penalty and weights, validated once and immutable."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru._options import check_options, suggest_options
from glru.linalg import TINY, Array, Arrays, Matrix, as_matrix, gamma
from glru.losses import Logistic, Loss, WithOffset, join_targets
from glru.penalties import L2, Penalty
from glru.rows import (
    BLOCK_BYTES,
    MAX_CLASSES,
    Absent,
    Block,
    Blocks,
    LabelCounts,
    Located,
    Memory,
    Rows,
    Sample,
    Totals,
    Traffic,
    WeightSummary,
    is_out_of_memory,
    read_rows,
    sum_totals,
    weigh,
)


@final
@suggest_options
@dataclass(frozen=True, eq=False)
class Point:
    """A primal-dual point: where a training starts or a candidate stands.

    Parameters
    ----------
    coef : array of shape (n_columns,) or (n_classes, n_columns)
        Coefficients ``w``; one line per class where there is one score per class.
    intercept : float or array of shape (n_classes,), default=0.0
        Intercept ``b``.
    dual : array of shape (n_rows,) or (n_rows, n_classes), default=None
        Dual variables ``a``; if not given, they follow from the coefficients.

    Examples
    --------
    >>> import numpy as np, glru
    >>> glru.Point(np.zeros(3)).intercept
    0.0
    """

    coef: Array
    intercept: Any = 0.0
    dual: Array | None = None

    def pack(self, fit_intercept: bool) -> Array:
        """Coefficients and intercept as one vector, the intercept last."""
        return np.append(self.coef, self.intercept) if fit_intercept else self.coef

    @classmethod
    def unpack(cls, vector: Array, fit_intercept: bool) -> "Point":
        """The primal point of a vector as :meth:`pack` makes it."""
        return cls(vector[:-1], float(vector[-1])) if fit_intercept else cls(vector)

    def move(self, step: Array, length: float = 1.0) -> "Point":
        """The primal point after a step in its unknowns (the intercept's entry, if there is one, last)."""
        size = self.coef.size
        shift = float(step[size]) if step.size > size else 0.0
        return Point(self.coef + length * step[:size], self.intercept + length * shift)


Scaling = Literal["mean", "sum"]

Work = Callable[..., Any]
"""Called with a part of a problem and arguments; a function of a module, which can be sent to another process."""

ALL = Memory()
"""The source of rows that are in memory and all there are."""

IN_MEMORY = ("X", "matrix", "y", "sample_weight", "weights")
"""What only a problem has whose rows are in memory."""


@final
@dataclass(frozen=True, eq=False)
class Objective:
    """A problem without its rows."""

    # As in the problem.
    loss: Loss
    penalty: Penalty
    fit_intercept: bool
    scaling: Scaling
    # The labels that -1 and +1 stand for, or those of all scores where there is one per class.
    classes: NDArray[Any] | None
    total_weight: float  # the sum of all sample weights
    columns: NDArray[np.intp] | None = None  # the columns of a block that the problem has; None: all of them

    def part(self, block: Block) -> "Problem":
        """A block of rows as a part of the problem."""
        y: Any
        if self.classes is None:
            y = np.asarray(block.y, dtype=np.float64)
        elif self.loss.several:
            y = np.searchsorted(self.classes, block.y)
        else:
            y = np.where(block.y == self.classes[1], 1.0, -1.0)
        X = block.X if self.columns is None else block.X[:, self.columns]
        return Problem.of_rows(self, X, y, block.weights, Memory(block.number, block.start))


@final
@dataclass(frozen=True, eq=False)
class PartWork:
    """Work on the parts of a problem, as a task for its blocks."""

    objective: Objective
    work: Work

    def __call__(self, block: Block, *args: Any) -> Any:
        """The work on the part that a block is."""
        return self.work(self.objective.part(block), *args)


@final
@dataclass(frozen=True, eq=False, repr=False, init=False)
class Problem:
    r"""Regularised empirical risk minimisation with a linear model.

    .. math:: P(w, b) = \sum_i s_i \, \ell(y_i, x_i^\top w + b) + \sum_j \rho_j(w_j)

    Parameters
    ----------
    X : array, sparse matrix or frame of shape (n_rows, n_columns)
        Data. Dense float64 and CSR data are used as they are, without a copy; other formats are converted. An array of
        another namespace (PyTorch, CuPy) stays on its device, and products with it are computed there. Rows of a dask array
        or dataframe, of a Parquet file or directory (its path) and of an ``np.memmap`` are never all in memory: they are
        read block by block, in passes. ``np.asarray(X)`` of a memory map is treated like any other array.
    y : array of shape (n_rows,), or str
        Targets. For a classification loss any two classes; the larger one counts as +1. For ``Multinomial()`` three classes or
        more. For rows in blocks also a dask array or series, or the name of a column where X has names.
    loss : Loss, default=Logistic()
        The loss of one row.
    penalty : Penalty, default=L2(1.0)
        The penalty of the coefficients.
    fit_intercept : bool, default=False
        Whether the model has an unpenalised intercept ``b``.
    scaling : {"mean", "sum"}, default="mean"
        ``"mean"``: the weights ``s`` sum to one, as in the paper (``s_i = 1/n``).
        ``"sum"``: ``s_i`` is the sample weight, as in scikit-learn.
    sample_weight : array of shape (n_rows,), or str, default=None
        Non-negative weights; ones if not given. For rows in blocks as for ``y``.
    offset : array of shape (n_rows,), default=None
        A fixed number per row that is added to its score, for losses with a log or logit link and rows in memory: the logarithm of the exposure. Scores
        of models are ``X w + b`` without it; held-out scores of leave-one-out contain that of their row.
    block_bytes : int, default=64 MiB
        Size of a block of a memory map or a Parquet file. Dask's blocks are taken as they are.

    Attributes
    ----------
    n_rows, n_columns, n_blocks : int
        Sizes; rows in memory are one block.
    weights : array of shape (n_rows,)
        The weights ``s`` of the objective. ``X``, ``y``, ``sample_weight`` and ``weights`` exist for rows in memory only.
    classes : array of shape (2,) or None
        The labels that -1 and +1 stand for; those that the places in ``y`` stand for where there is one score per class.
    targets, offset : array of shape (n_rows,)
        The targets as numbers, and the offsets (zeros where there are none). With an offset ``y`` holds both.
    n_scores : int
        Scores of a row: one, or one per class.
    column_names : tuple of str or None
        The column names, where X was a frame.
    matrix : Matrix
        X with the matrix products that all computations use (:mod:`glru.linalg`).
    traffic : Traffic
        Passes over rows in blocks so far.

    Examples
    --------
    >>> import numpy as np, glru
    >>> problem = glru.Problem(np.eye(2), [0, 1], penalty=glru.L2(0.1))
    >>> problem
    Problem(2 rows x 2 columns, Logistic(), L2(lam=0.1), scaling='mean')
    >>> problem.y
    array([-1.,  1.])

    Rows in a file:

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> X = np.memmap(folder.name + "/X.bin", dtype=float, mode="w+", shape=(400, 3))
    >>> X[:] = np.random.default_rng(0).normal(size=X.shape)
    >>> problem = glru.Problem(X, X[:, 0] > 0.3, penalty=glru.L2(0.1))
    >>> problem
    Problem(400 rows x 3 columns in 1 block, Logistic(), L2(lam=0.1), scaling='mean')
    >>> glru.loocv(problem).n_errors
    42
    >>> del X, problem; folder.cleanup()
    """

    X: Any
    y: Array
    loss: Loss
    penalty: Penalty
    fit_intercept: bool
    scaling: Scaling
    sample_weight: Array
    classes: NDArray[Any] | None
    column_names: tuple[str, ...] | None
    weights: Array
    matrix: Matrix
    rows: Rows = field(repr=False)
    n_rows: int
    n_columns: int

    @suggest_options
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
        offset: Any = None,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        loss, penalty = Logistic() if loss is None else loss, L2(1.0) if penalty is None else penalty
        check_types(loss, penalty, scaling)
        check_options("Problem", {"fit_intercept": fit_intercept})
        self.__dict__.update(loss=loss, penalty=penalty, fit_intercept=fit_intercept, scaling=scaling)
        if offset is not None:
            check_offset(loss, X)
        if is_out_of_memory(X):
            self._read(X, y, sample_weight, block_bytes)
            return
        matrix, names = _inputs.as_matrix(X)
        n_rows, n_columns = matrix.shape
        if loss.task == "classification":
            y, classes = _inputs.as_labels(y, n_rows, loss.several)
        else:
            y, classes = _inputs.as_vector(y, n_rows, "y"), None
            loss.check_targets(y)
        if loss.link != "identity":
            matrix.require_host(f"{loss!r} is trained on the host")
        if offset is not None:
            y = join_targets(y, as_offset(offset, n_rows))
            self.__dict__["loss"] = WithOffset(loss)
        sample_weight = _inputs.as_weights(sample_weight, n_rows)
        check_strengths(penalty, n_columns)
        self._assign(matrix, y, sample_weight, classes, names)

    def _read(self, X: Any, y: Any, sample_weight: Any, block_bytes: int) -> None:
        """Take in rows that are not held in memory."""
        if self.loss.link != "identity":
            raise ValueError(
                f"{self.loss!r} needs all rows in memory; got rows in blocks. Give rows that fit in memory, for example np.asarray(X)."
            )
        rows = read_rows(X, y, sample_weight, self.loss.task, block_bytes)
        known = rows.summary.weights
        check_strengths(self.penalty, rows.n_columns)
        _inputs.require_weight(known.largest.value)
        classes = None
        if self.loss.task == "classification":
            classes = _inputs.find_classes(np.array(list(known.labels.counts)))
            if self.loss.several and classes.size >= MAX_CLASSES:
                raise ValueError(
                    f"rows in blocks have fewer than {MAX_CLASSES} classes; got {classes.size} or more. Load the rows, or join classes."
                )
            _inputs.require_classes(classes, self.loss.several)
        self._assign_blocks(rows, classes)

    def _assign_blocks(self, rows: Blocks, classes: NDArray[Any] | None) -> None:
        self.__dict__.update(
            rows=rows, classes=classes, column_names=rows.column_names, n_rows=rows.n_rows, n_columns=rows.n_columns
        )

    def _assign(
        self,
        matrix: Matrix,
        y: Array,
        sample_weight: Array,
        classes: NDArray[Any] | None,
        column_names: tuple[str, ...] | None,
        total_weight: float | None = None,
        rows: Memory = ALL,
    ) -> None:
        total = sample_weight.sum() if total_weight is None else total_weight
        weights = sample_weight / total if self.scaling == "mean" else sample_weight
        for vector in (y, sample_weight, weights):
            vector.setflags(write=False)
        n_rows, n_columns = matrix.shape
        self.__dict__.update(
            X=matrix.data,
            matrix=matrix,
            y=y,
            sample_weight=sample_weight,
            classes=classes,
            column_names=column_names,
            weights=weights,
            rows=rows,
            n_rows=n_rows,
            n_columns=n_columns,
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Called for what is not there: for rows in blocks, whatever needs all of them at once.
            if name in IN_MEMORY and "rows" in self.__dict__:
                raise make_memory_error(self, f"problem.{name}")
            raise AttributeError(f"'Problem' object has no attribute {name!r}")

    def derive(self, **changes: Any) -> "Problem":
        """A problem that differs in some validated fields, made without validating again.

        For callers that keep the invariants themselves: new data (``X``, a matrix or what one is made of) must be float64
        and finite, new labels -1/+1. Unlike the constructor it accepts rows of a single class. Problems with the same X
        share its matrix, and what was computed from it. For rows in blocks, ``loss``, ``penalty``, ``fit_intercept``,
        ``scaling`` and ``rows`` can be changed.
        """
        new = object.__new__(Problem)
        new.__dict__.update(
            {name: changes.get(name, getattr(self, name)) for name in ("loss", "penalty", "fit_intercept", "scaling")}
        )
        if isinstance(self.rows, Blocks) and not any(name in changes for name in IN_MEMORY):
            new._assign_blocks(changes.get("rows", self.rows), self.classes)
            return new
        X = changes.get("X", self.X)
        names = ("y", "sample_weight", "classes", "column_names")
        new._assign(
            self.matrix if X is self.X else as_matrix(X), *(changes.get(name, getattr(self, name)) for name in names)
        )
        return new

    @classmethod
    def of_rows(
        cls, objective: Objective, matrix: Matrix, y: Array, sample_weight: Array, rows: Memory = ALL
    ) -> "Problem":
        """Some rows of a larger problem, already valid, with the weights they have there."""
        new = object.__new__(cls)
        new.__dict__.update(
            loss=objective.loss,
            penalty=objective.penalty,
            fit_intercept=objective.fit_intercept,
            scaling=objective.scaling,
            objective=objective,
            total_weight=objective.total_weight,
        )
        new._assign(matrix, y, sample_weight, None, None, objective.total_weight, rows)
        return new

    @property
    def in_memory(self) -> bool:
        """Whether all rows are in memory."""
        return isinstance(self.rows, Memory)

    @property
    def n_blocks(self) -> int:
        """Number of blocks of rows."""
        return self.rows.n_blocks

    @property
    def traffic(self) -> Traffic:
        """Passes over rows in blocks so far."""
        return self.rows.traffic

    @cached_property
    def objective(self) -> Objective:
        """The problem without its rows."""
        settings = (self.loss, self.penalty, self.fit_intercept, self.scaling)
        columns = self.rows.columns if isinstance(self.rows, Blocks) else None
        return Objective(*settings, self.classes, self.total_weight, columns)

    def sum(self, work: Work, *args: Any, own: Mapping[int, Any] | None = None) -> Any:
        """The sum of ``work(part, *args)`` over the blocks of rows; rows in memory are one part, the problem itself.

        ``own``: where it is given, ``work(part, own[number], *args)``, with None for blocks that are not in it.
        """
        if isinstance(self.rows, Blocks):
            return self.rows.sum(PartWork(self.objective, work), *args, own=own)
        return work(self, *args) if own is None else work(self, own.get(self.rows.number), *args)

    def map(self, work: Work, *args: Any, own: Mapping[int, Any] | None = None) -> list[Any]:
        """``work(part, *args)`` of every block in order, or ``work(part, own[number], *args)`` of those in ``own``."""
        if isinstance(self.rows, Blocks):
            return self.rows.map(PartWork(self.objective, work), *args, own=own)
        return [work(self, *args)] if own is None else [work(self, mine, *args) for mine in own.values()]

    def locate(self, numbers: NDArray[np.int64]) -> Located:
        """For every block that has some of the rows, their positions in it and in ``numbers`` (which are sorted)."""
        if isinstance(self.rows, Blocks):
            return self.rows.locate(numbers)
        return {self.rows.number: (numbers, np.arange(numbers.size))} if numbers.size else {}

    def take(self, numbers: NDArray[np.int64] | slice) -> "Problem":
        """Some rows (their numbers are sorted; of rows in memory also a slice) in memory, as a part of the problem."""
        if self.in_memory or isinstance(numbers, slice):
            return Problem.of_rows(self.objective, self.matrix[numbers], self.y[numbers], self.sample_weight[numbers])
        found = self.map(_take, own={k: places for k, (places, _) in self.locate(numbers).items()})
        return Problem.of_rows(self.objective, *Sample(tuple(found)).concatenate())

    def without(self, rows: range | NDArray[np.int64]) -> "Problem":
        """The problem in which some rows have weight 0."""
        if isinstance(self.rows, Blocks):
            return self.derive(rows=self.rows.without(Absent(rows), self.loss.task))
        weight = np.array(self.sample_weight)
        weight[rows] = 0.0
        return self.derive(sample_weight=weight)

    def select_columns(self, columns: NDArray[np.intp]) -> "Problem":
        """The problem with some of the columns, given in ascending order."""
        if columns.size == self.n_columns:
            return self
        penalty, names = self.penalty.select(columns), self.column_names
        if isinstance(self.rows, Blocks):
            return self.derive(rows=self.rows.select_columns(columns), penalty=penalty)
        kept = None if names is None else tuple(names[j] for j in columns)
        return self.derive(X=self.matrix[:, columns], penalty=penalty, column_names=kept)

    def extend(self, matrix: Matrix, y: Array, sample_weight: Array | None) -> "Problem":
        """The problem of rows in blocks and some more that are in memory, with labels -1/+1 or places of classes."""
        assert isinstance(self.rows, Blocks)
        if self.classes is not None:
            y = self.classes[y.astype(np.intp) if self.loss.several else (y > 0.0).astype(np.intp)]
        block = Block(matrix, y, sample_weight)
        return self.derive(rows=self.rows.extend(block, self.loss.task))

    def require_weight(self) -> "Problem":
        """The problem, or an error where a change has left no row of weight above 0."""
        if not self.total_weight > 0.0:
            raise ValueError("a change must leave a row of weight above 0; got the removal of all of them.")
        return self

    @cached_property
    def totals(self) -> Totals:
        """Upper bounds of sums over the rows."""
        if isinstance(self.rows, Blocks):
            settings = (self.loss, self.penalty, self.fit_intercept, self.scaling)
            return sum_totals(self.rows, *settings, self.total_weight)
        used, unit = self.weights > 0.0, 1.0 + gamma(self.n_rows + 8)
        weight_sum = float(self.weights.sum()) * unit
        norms = self.column_norms * unit
        return Totals(
            loss=self.loss,
            penalty=self.penalty,
            fit_intercept=self.fit_intercept,
            n_rows=self.n_rows,
            n_columns=self.n_columns,
            depth=self.n_rows,
            score_noise=self.score_noise,
            weight_sum=weight_sum,
            column_norms=np.append(norms, np.sqrt(weight_sum)) if self.fit_intercept else norms,
            largest_norm=float(np.sqrt(self.squared_row_norms[used].max())) * (1.0 + gamma(self.n_columns + 8)) + TINY,
        )

    @cached_property
    def weight_summary(self) -> WeightSummary:
        """The sum of the sample weights, their range, and the number of rows with weight, also of each class."""
        if isinstance(self.rows, Blocks):
            return self.rows.summary.weights
        known = weigh(Block(self.matrix, self.y, self.sample_weight), None)
        if self.loss.task == "regression":
            return known
        used = self.sample_weight > 0.0
        names = (
            {str(label): k for k, label in enumerate(self.labels_of_scores)}
            if self.loss.several
            else {"-1": -1, "+1": 1}
        )
        counts = {name: int(np.count_nonzero(used & (self.y == value))) for name, value in names.items()}
        return replace(known, labels=LabelCounts(counts))

    @property
    def n_used(self) -> int:
        """The number of rows whose weight is above 0."""
        if isinstance(self.rows, Blocks):
            return self.rows.summary.weights.n_used
        return int(np.count_nonzero(self.sample_weight))

    @cached_property
    def score_scale(self) -> float:
        """The size of differences of scores in a regression: the range of the targets; 1 where scores are logarithms or log-odds of means."""
        if self.loss.link != "identity":
            return 1.0
        if isinstance(self.rows, Blocks):
            return self.rows.summary.highest.value + self.rows.summary.lowest.value
        return float(np.ptp(self.targets))

    @property
    def targets(self) -> Array:
        """The targets as numbers."""
        y: Any = self.y
        return y["y"] if isinstance(self.loss, WithOffset) else y

    @property
    def offset(self) -> Array:
        """What is added to the score of each row; zeros where nothing is."""
        y: Any = self.y
        return y["offset"] if isinstance(self.loss, WithOffset) else np.zeros(self.n_rows)

    @cached_property
    def score_noise(self) -> float:
        """What the evaluation of the losses does to slopes and curvatures, as an error of the scores."""
        return self.loss.noise_of(self.y) if self.in_memory else self.loss.score_noise

    @property
    def labels_of_scores(self) -> NDArray[Any]:
        """The classes, where there is one score per class."""
        classes = self.objective.classes if self.classes is None else self.classes
        assert classes is not None
        return classes

    @property
    def n_scores(self) -> int:
        """Scores of a row: one, or one per class."""
        return int(self.labels_of_scores.size) if self.loss.several else 1

    @cached_property
    def quadratic(self) -> Array:
        """The penalty's strengths, one per column."""
        return np.broadcast_to(self.penalty.quadratic, (self.n_columns,))

    @cached_property
    def shared_columns(self) -> NDArray[np.bool_] | None:
        """The columns without those that have a value in one row only (looked for in sparse data); None: all of them.

        When that row leaves, the column is empty and its optimal coefficient exactly 0: it plays no part in the row's score.
        """
        if isinstance(self.rows, Blocks):
            return self.rows.summary.shared_columns
        counts = self.matrix.column_counts()
        return None if counts is None or np.all(counts != 1) else counts != 1

    @property
    def is_strongly_convex(self) -> bool:
        """Whether every coefficient is penalised by a square and there is no intercept: every dual point is feasible."""
        return not self.fit_intercept and self.penalty.strong_convexity > 0.0

    @property
    def is_sparse(self) -> bool:
        """Whether zeros are not stored, in X or in a block of it."""
        return self.rows.summary.n_sparse > 0 if isinstance(self.rows, Blocks) else not self.matrix.stores_zeros

    @property
    def arrays(self) -> Arrays:
        """Operations on dense batches where X lives."""
        return self.matrix.arrays

    @property
    def work(self) -> float:
        """Operations of the largest product in a direct solve."""
        return self.matrix.work

    @property
    def largest(self) -> int:
        """Dense systems in more unknowns than this are not formed where X lives."""
        return self.matrix.largest

    @cached_property
    def squared_row_norms(self) -> Array:
        """Squared Euclidean norm of every row."""
        shared = self.matrix.shared
        if "squared_row_norms" not in shared:
            with np.errstate(over="ignore"):  # a norm that overflows is infinite, and bounds made of it prove nothing
                shared["squared_row_norms"] = self.matrix.squared_row_norms()
        return shared["squared_row_norms"]

    @cached_property
    def total_weight(self) -> float:
        """Sum of the sample weights."""
        return self.rows.summary.weights.total if isinstance(self.rows, Blocks) else float(self.sample_weight.sum())

    @cached_property
    def column_norms(self) -> Array:
        """``sqrt(sum_i s_i x_ij^2)`` for every column, with room for squares that underflow, before and after the weights are multiplied to them."""
        with np.errstate(over="ignore"):
            squares = self.matrix.squared_column_norms(self.weights)
        return np.sqrt(squares) + TINY * (1.0 + np.sqrt(self.weights.max(initial=0.0)))

    @cached_property
    def dead_columns(self) -> NDArray[np.bool_]:
        """Penalised columns without a value in any row of positive weight: their optimal coefficient is exactly 0."""
        alive = self.matrix.filled_columns(self.weights > 0.0)
        alive[self.unpenalised] = True
        return ~alive

    @cached_property
    def unpenalised(self) -> NDArray[np.intp]:
        """The columns whose penalty is zero."""
        free = np.broadcast_to((self.penalty.quadratic == 0.0) & (self.penalty.absolute == 0.0), (self.n_columns,))
        return np.flatnonzero(free)

    @cached_property
    def loss_constant(self) -> float:
        """What the weighted sum of the losses has whatever the scores are (:meth:`glru.losses.Loss.sum_constants`)."""
        return self.loss.sum_constants(self.weights, self.y)

    def scores(self, coef: Array, intercept: Any = 0.0) -> Array:
        """``X w + b``, one column per class where there is one score per class.

        These columns are stored one after the other: what is done to the few scores of every row then runs along the rows.
        """
        scores = np.asfortranarray(self.matrix @ coef.T) if coef.ndim == 2 else self.matrix @ coef
        return scores + intercept if self.fit_intercept else scores

    def correlations(self, dual: Array) -> Array:
        """``X^T (s o a)``: what each column sees of the dual variables, in one line per class where there are several scores."""
        return (self.matrix.T @ per_row(self.weights, dual)).T

    def hessian(self, curvature: Array) -> Any:
        """Upper triangle of ``X^T diag(curvature) X + Lambda``, the intercept's row and column last; where X lives.

        ``curvature``: weighted loss curvatures, one per row. The lower triangle holds anything.
        """
        arrays = self.arrays
        matrix = arrays.add_diagonal(self.matrix.column_gram(curvature), self.penalty.quadratic)
        if not self.fit_intercept:
            return matrix
        return arrays.add_border(matrix, self.matrix.T @ curvature, float(curvature.sum()))

    def __repr__(self) -> str:
        intercept = ", fit_intercept=True" if self.fit_intercept else ""
        if isinstance(self.rows, Blocks):
            sparse = " (sparse)" if self.is_sparse else ""
            layout = f"{sparse} in {self.n_blocks} block{'s' if self.n_blocks != 1 else ''}"
        else:
            layout = self.matrix.layout
        return (
            f"Problem({self.n_rows} rows x {self.n_columns} columns{layout}, {self.loss!r}, {self.penalty!r}"
            f"{intercept}, scaling={self.scaling!r})"
        )


LARGEST_OFFSET = 500.0
"""Offsets are at most this in size: an exponential that is cut off then belongs to a score that is large by itself."""


def as_offset(values: Any, count: int) -> Array:
    """Offsets of some rows, checked."""
    offset = _inputs.as_vector(values, count, "offset")
    if offset.size and np.abs(offset).max() > LARGEST_OFFSET:
        worst = int(np.abs(offset).argmax())
        raise ValueError(
            f"offset must be at most {LARGEST_OFFSET:g} in size; entry {worst} is {offset[worst]}. It is the logarithm of an exposure, not the exposure."
        )
    return offset


def check_offset(loss: Loss, X: Any) -> None:
    """Refuse an offset where the loss or the source of rows has none."""
    if loss.link == "identity":
        remedy = (
            " Subtract it from y." if loss.task == "regression" else " glru.losses.Binomial() takes 0 and 1 as numbers."
        )
        raise ValueError(f"offset needs a loss with a log or logit link such as glru.Poisson(); got {loss!r}.{remedy}")
    if is_out_of_memory(X):
        raise ValueError("offset needs all rows in memory; got rows in blocks. Give np.asarray(X).")


def per_row(weights: Array, values: Array) -> Array:
    """Values of every row, one or one per class, times its weight."""
    return weights * values if values.ndim == 1 else weights[:, None] * values


def require_one_score(problem: Problem, what: str) -> None:
    """Refuse a problem with one score per class."""
    if problem.loss.several:
        raise ValueError(
            f"{what} is for models with one score per row; {problem.loss!r} has one per class. Ask about one class against the rest "
            "(y == label, with the logistic loss), or use glru.loocv, glru.cross_val_predict, glru.after or glru.stepwise, which take all classes."
        )


def _take(part: Problem, places: NDArray[np.int64]) -> tuple[Matrix, Array, Array]:
    """Data, targets and sample weights of some rows."""
    return part.matrix[places], part.y[places], part.sample_weight[places]


def require_problem(
    value: object, advice: str = "Give a glru.Problem, a glru.Solution, or an estimator with its data."
) -> None:
    """Refuse a model that is not a problem; the error ends with ``advice``."""
    if not isinstance(value, Problem):
        raise TypeError(f"expected a glru.Problem; got {type(value).__name__}. {advice}")


def make_memory_error(problem: Problem, what: str) -> TypeError:
    """The error of whatever needs all rows in memory, where they are in blocks."""
    return TypeError(
        f"{what} needs all rows in memory; got {problem!r}. Make a glru.Problem of rows that fit in memory, for example of "
        "X.compute() or np.asarray(X)."
    )


def check_strengths(penalty: Penalty, n_columns: int) -> None:
    """Refuse a penalty for another number of columns."""
    expected = penalty.n_columns
    if expected is not None and expected != n_columns:
        raise ValueError(
            f"the penalty's strengths must have one entry per column of X; got {expected} for {n_columns} columns."
        )


def check_types(loss: object, penalty: object, scaling: object) -> None:
    """Refuse a value that is not a loss, a penalty or a scaling."""
    if not isinstance(loss, Loss):
        raise TypeError(f"loss must be a glru loss such as glru.Logistic(); got {loss!r}.")
    if not isinstance(penalty, Penalty):
        raise TypeError(f"penalty must be a glru penalty such as glru.L2(0.1); got {penalty!r}.")
    if loss.several and not penalty.smooth:
        raise ValueError(f"{loss!r} needs an L2 penalty; got {penalty!r}. Use glru.L2(...), or one-vs-rest problems.")
    if scaling not in ("mean", "sum"):
        raise ValueError(f"scaling must be 'mean' or 'sum'; got {scaling!r}.")
