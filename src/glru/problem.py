"""The training problem: data, loss, penalty and row weights, validated once and immutable."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru._handover import maker_of
from glru.linalg import TINY, Array, Arrays, Matrix, as_matrix
from glru.losses import Logistic, Loss
from glru.penalties import L2, Penalty

Scaling = Literal["mean", "sum"]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    r"""Regularised empirical risk minimisation with a linear model.

    .. math:: P(w, b) = \sum_i s_i \, \ell(y_i, x_i^\top w + b) + \sum_j \rho_j(w_j)

    Parameters
    ----------
    X : array, sparse matrix or frame of shape (n_rows, n_columns)
        Data. Dense float64 and CSR data are used as they are, without a copy; other formats are converted. An array of
        another namespace (PyTorch, CuPy) stays on its device, and products with it are computed there. A dask array or
        dataframe, the path of a Parquet directory or file, and an ``np.memmap`` make a
        :class:`~glru.PartitionedProblem`, which never holds all rows in memory; ``np.asarray(X)`` of a memory map is
        treated like any other array.
    y : array of shape (n_rows,)
        Targets. For a classification loss any two classes; the larger one counts as +1.
    loss : Loss, default=Logistic()
        The loss of one row.
    penalty : Penalty, default=L2(1.0)
        The penalty of the coefficients.
    fit_intercept : bool, default=False
        Whether the model has an unpenalised intercept ``b``.
    scaling : {"mean", "sum"}, default="mean"
        ``"mean"``: the weights ``s`` sum to one, as in the paper (``s_i = 1/n``).
        ``"sum"``: ``s_i`` is the sample weight, as in scikit-learn.
    sample_weight : array of shape (n_rows,), default=None
        Non-negative weights; ones if not given.

    Attributes
    ----------
    weights : array of shape (n_rows,)
        The weights ``s`` of the objective.
    classes : array of shape (2,) or None
        The labels that -1 and +1 stand for.
    column_names : tuple of str or None
        The column names, where X was a frame.
    matrix : Matrix
        X with the products that everything else is made of (:mod:`glru.linalg`).

    Examples
    --------
    >>> import numpy as np, glru
    >>> problem = glru.Problem(np.eye(2), [0, 1], penalty=glru.L2(0.1))
    >>> problem
    Problem(2 rows x 2 columns, Logistic(), L2(lam=0.1), scaling='mean')
    >>> problem.y
    array([-1.,  1.])
    """

    X: Any
    y: Array
    loss: Loss = field(default_factory=Logistic)
    penalty: Penalty = field(default_factory=lambda: L2(1.0))
    fit_intercept: bool = False
    scaling: Scaling = "mean"
    sample_weight: Array = None  # type: ignore[assignment]
    classes: NDArray[Any] | None = field(init=False)
    column_names: tuple[str, ...] | None = field(init=False)
    weights: Array = field(init=False)
    matrix: Matrix = field(init=False)

    def __new__(
        cls,
        X: Any = None,
        y: Any = None,
        loss: Any = None,
        penalty: Any = None,
        fit_intercept: bool = False,
        scaling: Scaling = "mean",
        sample_weight: Any = None,
    ) -> Any:
        """A problem in memory, or what the maker for data that is not held there makes of it."""
        maker = maker_of(X)
        if maker is None:
            return object.__new__(cls)
        return maker(X, y, loss, penalty, fit_intercept, scaling, sample_weight)

    def __post_init__(self) -> None:
        check_types(self.loss, self.penalty, self.scaling)
        matrix, names = _inputs.as_matrix(self.X)
        n_rows, n_columns = matrix.shape
        if self.loss.task == "classification":
            y, classes = _inputs.as_labels(self.y, n_rows)
        else:
            y, classes = _inputs.as_vector(self.y, n_rows, "y"), None
        sample_weight = _inputs.as_weights(self.sample_weight, n_rows)
        check_strengths(self.penalty, n_columns)
        self._assign(matrix, y, sample_weight, classes, names)

    def _assign(
        self,
        matrix: Matrix,
        y: Array,
        sample_weight: Array,
        classes: NDArray[Any] | None,
        column_names: tuple[str, ...] | None,
        total_weight: float | None = None,
    ) -> None:
        total = sample_weight.sum() if total_weight is None else total_weight
        weights = sample_weight / total if self.scaling == "mean" else sample_weight
        for vector in (y, sample_weight, weights):
            vector.setflags(write=False)
        values = (matrix.data, matrix, y, sample_weight, classes, column_names, weights)
        names = ("X", "matrix", "y", "sample_weight", "classes", "column_names", "weights")
        for name, value in zip(names, values, strict=True):
            object.__setattr__(self, name, value)

    def derive(self, **changes: Any) -> "Problem":
        """A problem that differs in some validated fields, made without validating again.

        For callers that keep the invariants themselves: new data (``X``, a matrix or what one is made of) must be float64
        and finite, new labels -1/+1. Unlike the constructor it accepts rows of a single class. Problems with the same X
        share its matrix, and what was computed from it.
        """
        new = object.__new__(Problem)
        for name in ("loss", "penalty", "fit_intercept", "scaling"):
            object.__setattr__(new, name, changes.get(name, getattr(self, name)))
        X = changes.get("X", self.X)
        names = ("y", "sample_weight", "classes", "column_names")
        new._assign(
            self.matrix if X is self.X else as_matrix(X), *(changes.get(name, getattr(self, name)) for name in names)
        )
        return new

    @classmethod
    def of_rows(
        cls,
        matrix: Matrix,
        y: Array,
        sample_weight: Array,
        total_weight: float,
        loss: Loss,
        penalty: Penalty,
        fit_intercept: bool,
        scaling: Scaling,
    ) -> "Problem":
        """Some rows of a larger problem, already valid, with the weights they have there.

        ``total_weight``: the sum of all its sample weights.
        """
        new = object.__new__(cls)
        values = (loss, penalty, fit_intercept, scaling)
        for name, value in zip(("loss", "penalty", "fit_intercept", "scaling"), values, strict=True):
            object.__setattr__(new, name, value)
        new.__dict__["total_weight"] = total_weight
        new._assign(matrix, y, sample_weight, None, None, total_weight)
        return new

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def n_columns(self) -> int:
        """Number of columns, the intercept not counted."""
        return int(self.X.shape[1])

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
            shared["squared_row_norms"] = self._squared_norms[0]
        return shared["squared_row_norms"]

    @cached_property
    def total_weight(self) -> float:
        """Sum of the sample weights."""
        return float(self.sample_weight.sum())

    @cached_property
    def column_norms(self) -> Array:
        """``sqrt(sum_i s_i x_ij^2)`` for every column, with room for squares that underflow."""
        return np.sqrt(self._squared_norms[1]) + TINY

    @cached_property
    def _squared_norms(self) -> tuple[Array, Array]:
        return self.matrix.squared_norms(self.weights)

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

    def scores(self, coef: Array, intercept: float = 0.0) -> Array:
        """``X w + b``."""
        scores = self.matrix @ coef
        return scores + intercept if self.fit_intercept else scores

    def correlations(self, dual: Array) -> Array:
        """``X^T (s o a)``: what each column sees of the dual variables."""
        return self.matrix.T @ (self.weights * dual)

    def hessian(self, curvature: Array) -> Any:
        """Upper triangle of ``X^T diag(curvature) X + Lambda``, the intercept's row and column last; where X lives.

        ``curvature``: weighted loss curvatures, one per row. The lower triangle holds anything.
        """
        arrays = self.arrays
        matrix = arrays.add_diagonal(self.matrix.column_gram(curvature), self.penalty.quadratic)
        if not self.fit_intercept:
            return matrix
        return arrays.bordered(matrix, self.matrix.T @ curvature, float(curvature.sum()))

    def __repr__(self) -> str:
        intercept = ", fit_intercept=True" if self.fit_intercept else ""
        return (
            f"Problem({self.n_rows} rows x {self.n_columns} columns{self.matrix.layout}, {self.loss!r}, {self.penalty!r}"
            f"{intercept}, scaling={self.scaling!r})"
        )


def check_strengths(penalty: Penalty, n_columns: int) -> None:
    """Refuse a penalty for another number of columns."""
    expected = penalty.n_columns
    if expected is not None and expected != n_columns:
        raise ValueError(
            f"the penalty's strengths must have one entry a column of X; got {expected} for {n_columns} columns."
        )


def check_types(loss: object, penalty: object, scaling: object) -> None:
    """Refuse what is no loss, no penalty or no scaling."""
    if not isinstance(loss, Loss):
        raise TypeError(f"loss must be a glru loss such as glru.Logistic(); got {loss!r}.")
    if not isinstance(penalty, Penalty):
        raise TypeError(f"penalty must be a glru penalty such as glru.L2(0.1); got {penalty!r}.")
    if scaling not in ("mean", "sum"):
        raise ValueError(f"scaling must be 'mean' or 'sum'; got {scaling!r}.")
