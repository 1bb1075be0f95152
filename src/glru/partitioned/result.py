"""What leave-one-out of partitioned rows found."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import Array
from glru.model_selection.result import STAGES, metric_interval
from glru.partitioned.problem import PartitionedProblem


@final
@dataclass(frozen=True, eq=False)
class RowResults:
    """Bounds of every row, brought home.

    Attributes
    ----------
    y : array of shape (n_rows,)
        Targets; labels are -1/+1.
    lower, upper : array of shape (n_rows,)
        Bounds of held-out scores.
    stage_codes : array of int
        The stage that decided each row, by its place in ``STAGES``.
    """

    y: NDArray[Any]
    lower: Array
    upper: Array
    stage_codes: NDArray[np.int8]


@final
@dataclass(frozen=True, eq=False, repr=False)
class PartitionedLOOCVResult:
    """Every row's score under the model trained without it, proven; the rows in memory or in files.

    Attributes
    ----------
    problem : PartitionedProblem
        What was validated.
    score_lower, score_upper : array of shape (n_rows,)
        Proven bounds of each held-out score.
    labels : array of shape (n_rows,) or None
        +1, -1, or 0 where undetermined; None for regression.
    errors_lower, errors_upper : int
        The least and the largest number of held-out errors.
    decided_by : dict
        How many rows each stage decided.
    n_trainings : int
        Rows that needed a training.
    n_passes : float
        Passes over the data, the training of all rows included where it was part of the run.
    seconds : dict
        Time spent in each stage.
    output : str or None
        The directory with one Parquet file a block, where results were written there instead of being kept.

    Examples
    --------
    >>> import tempfile, numpy as np, glru
    >>> folder = tempfile.TemporaryDirectory()
    >>> X = np.memmap(folder.name + "/X.bin", dtype=float, mode="w+", shape=(400, 3))
    >>> X[:] = np.random.default_rng(0).normal(size=X.shape)
    >>> result = glru.loocv(glru.Problem(X, X[:, 0] > 0.3, penalty=glru.L2(0.1)))
    >>> result.errors_lower == result.errors_upper == result.n_errors
    True
    >>> sum(result.decided_by.values())
    400
    >>> del X, result; folder.cleanup()
    """

    problem: PartitionedProblem
    rows: RowResults | None
    errors: tuple[int, int]
    decided_by: dict[str, int]
    n_trainings: int
    n_passes: float
    seconds: dict[str, float]
    output: str | None

    def _rows(self) -> RowResults:
        if self.rows is None:
            raise ValueError(
                f"the results of single rows are in the Parquet files of {self.output!r}, not in memory; read them with "
                "polars.scan_parquet or dask.dataframe.read_parquet."
            )
        return self.rows

    @property
    def score_lower(self) -> Array:
        """Lower bounds of the held-out scores."""
        return self._rows().lower

    @property
    def score_upper(self) -> Array:
        """Upper bounds of the held-out scores."""
        return self._rows().upper

    @property
    def scores(self) -> Array:
        """The middle of every interval; infinite intervals have none."""
        with np.errstate(invalid="ignore"):
            return 0.5 * (self.score_lower + self.score_upper)

    @property
    def labels(self) -> NDArray[np.int8] | None:
        """The held-out labels, 0 where undetermined."""
        if self.problem.loss.task != "classification":
            return None
        return np.where(self.score_lower > 0.0, 1, np.where(self.score_upper < 0.0, -1, 0)).astype(np.int8)

    @property
    def stages(self) -> NDArray[np.str_]:
        """The name of the stage that decided each row."""
        return np.array(STAGES)[self._rows().stage_codes]

    @property
    def errors_lower(self) -> int:
        """The least number of held-out errors."""
        return self._errors()[0]

    @property
    def errors_upper(self) -> int:
        """The largest number of held-out errors."""
        return self._errors()[1]

    @property
    def n_errors(self) -> int:
        """The number of held-out errors; an error where some labels are undetermined."""
        low, high = self._errors()
        if low != high:
            raise ValueError(
                f"{high - low} held-out labels are undetermined: the number of errors is between {low} and {high}. "
                "Use errors_lower and errors_upper, or loocv(..., max_trainings=...)."
            )
        return low

    @property
    def n_undetermined(self) -> int:
        """Rows that no stage decided."""
        return self.decided_by.get("undetermined", 0)

    def metric_bounds(self, name: str) -> tuple[float, float]:
        """A certified interval of a metric of the pooled held-out scores; names as in :class:`~glru.LOOCVResult`."""
        rows = self._rows()
        y = rows.y.astype(np.float64)
        return metric_interval(name, self.problem.loss, y, rows.lower, rows.upper)

    def _errors(self) -> tuple[int, int]:
        if self.problem.loss.task != "classification":
            raise ValueError(f"a regression has no error count; got {self.problem.loss!r}. Use metric_bounds.")
        return self.errors

    def __repr__(self) -> str:
        lines = [f"PartitionedLOOCVResult({self.problem.n_rows} rows in {self.problem.n_blocks} blocks)"]
        if self.problem.loss.task == "classification":
            low, high = self.errors
            lines.append(f"  errors       {low}" if low == high else f"  errors       {low} to {high}")
        lines.append("  decided by   " + ", ".join(f"{stage} {count}" for stage, count in self.decided_by.items()))
        lines.append(f"  trainings    {self.n_trainings}")
        lines.append(f"  passes       {self.n_passes:.3g}")
        lines.append("  seconds      " + ", ".join(f"{stage} {time:.3g}" for stage, time in self.seconds.items()))
        return "\n".join(lines)
