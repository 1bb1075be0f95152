"""What leave-one-out and cross-validation found."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import ScoreBounds, exact_count
from glru.linalg import Array
from glru.problem import Problem

STAGES = ("carry", "local", "newton", "refine", "training", "approx", "undetermined")


class HeldOutScores(ABC):
    """Scores of rows, each under a model that was trained without it."""

    problem: Problem

    @abstractmethod
    def _held_out(self) -> tuple[ScoreBounds, Array]:
        """Bounds of the held-out scores, and the targets of their rows."""

    @property
    def score_lower(self) -> Array:
        """Lower bounds of the held-out scores."""
        return self._held_out()[0].lower

    @property
    def score_upper(self) -> Array:
        """Upper bounds of the held-out scores."""
        return self._held_out()[0].upper

    @cached_property
    def scores(self) -> Array:
        """The middle of each interval, NaN where that has no end."""
        scores = self._held_out()[0].middle
        scores.setflags(write=False)
        return scores

    @property
    def labels(self) -> NDArray[np.int8] | None:
        """+1 or -1 where that label is proven, 0 for a tie or an open label; None for a regression."""
        return self._held_out()[0].signs if self.problem.loss.task == "classification" else None

    @property
    def errors_lower(self) -> int:
        """The least number of held-out errors; a score of exactly zero is an error for either label."""
        return self._errors()[0]

    @property
    def errors_upper(self) -> int:
        """The largest number of held-out errors."""
        return self._errors()[1]

    @property
    def n_errors(self) -> int:
        """The number of held-out errors; an error where some labels are undetermined."""
        return exact_count(*self._errors())

    def metric_bounds(self, name: str) -> tuple[float, float]:
        """A certified interval of a metric of the pooled held-out scores.

        Parameters
        ----------
        name : {"log_loss", "accuracy", "brier", "roc_auc", "mse", "mae", "r2"}
            The metric. Every row counts once, whatever its weight. Log-loss and Brier score are for the logistic loss.

        Returns
        -------
        tuple of float
            Lower and upper end, inside the range of the metric. Accuracy and ROC AUC are quotients of integers: both ends
            are correctly rounded quotients, and equal where all labels, or the order of all pairs, are proven.
        """
        bounds, y = self._held_out()
        return bounds.metric(name, self.problem.loss, y)

    def _errors(self) -> tuple[int, int]:
        if self.problem.loss.task != "classification":
            raise ValueError(f"a regression has no error count; got {self.problem.loss!r}. Use metric_bounds.")
        return self._count_errors()

    def _count_errors(self) -> tuple[int, int]:
        bounds, y = self._held_out()
        return bounds.errors(y)


@final
@dataclass(frozen=True, eq=False)
class RowResults:
    """The results of single rows.

    Attributes
    ----------
    y : array of shape (n_rows,)
        Targets; labels are -1/+1.
    bounds : ScoreBounds
        Bounds of the held-out scores.
    stage_codes : array of int
        The stage that decided each row, by its place in ``STAGES``.
    limited : array of bool or None
        Rows that were given up; None where there are none.
    """

    y: NDArray[Any]
    bounds: ScoreBounds
    stage_codes: NDArray[np.int8]
    limited: NDArray[np.bool_] | None = None

    @property
    def decided_by(self) -> dict[str, int]:
        """How many rows each stage decided."""
        return count_stages(np.bincount(self.stage_codes, minlength=len(STAGES)))


@final
@dataclass(frozen=True, eq=False)
class WrittenRows:
    """The results of single rows that were written to files, as far as they are known here.

    Attributes
    ----------
    folder : str
        The directory with one Parquet file per block.
    errors : tuple of int
        The least and the largest number of held-out errors.
    decided_by : dict
        How many rows each stage decided.
    """

    folder: str
    errors: tuple[int, int]
    decided_by: dict[str, int]


def count_stages(counts: NDArray[np.intp]) -> dict[str, int]:
    """How many rows each stage decided, from one count per stage."""
    return {stage: int(count) for stage, count in zip(STAGES, counts, strict=True) if count}


@final
@dataclass(frozen=True, eq=False, repr=False)
class LOOCVResult(HeldOutScores):
    """Every row's score under the model trained without it.

    Attributes
    ----------
    problem : Problem
        What was validated.
    method : str
        How.
    certified : bool
        Whether the bounds are proven; the methods "naive", "approx" and "approx-glru" prove nothing.
    y : array of shape (n_rows,)
        Targets; labels are -1/+1.
    bounds : ScoreBounds
        Bounds of each held-out score; ``score_lower`` and ``score_upper`` are its ends.
    stage_codes : array of int
        The stage that decided each row, by its place in ``STAGES``; ``stages`` gives the names.
    decided_by : dict
        How many rows each stage decided.
    n_trainings : int
        Rows that needed a training.
    limited : array of bool
        Undetermined rows that were given up: at the optimum of all rows, trained as far as float64 goes, the rounding of the
        certificate alone leaves intervals wider than what was asked for, and leaving out one row changes that little.
        An estimate that saves trainings, not a proof that none could decide the row.
    finest_width : float or None
        The narrowest of those intervals; None where no row was given up.
    seconds : dict
        Time spent in each stage.
    n_passes : float
        Passes over rows in blocks, the training of all rows included where it was part of the run.
    output : str or None
        The directory with one Parquet file per block, where the results of single rows were written there instead of being
        kept: then there are counts, but no arrays.

    Examples
    --------
    >>> import numpy as np, glru
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> result = glru.loocv(glru.Problem(X, X[:, 0] > 0.3, penalty=glru.L2(0.1)))
    >>> result.errors_lower == result.errors_upper == result.n_errors
    True
    >>> sum(result.decided_by.values())
    40
    """

    problem: Problem
    method: str
    certified: bool
    results: RowResults | WrittenRows
    n_trainings: int
    seconds: dict[str, float]
    finest_width: float | None = None
    n_passes: float = 0.0

    @property
    def rows(self) -> RowResults:
        """The results of single rows, where they are in memory."""
        if isinstance(self.results, WrittenRows):
            raise ValueError(
                f"the results of single rows are in the Parquet files of {self.results.folder!r}, not in memory; read them "
                "with polars.scan_parquet or dask.dataframe.read_parquet."
            )
        return self.results

    @property
    def output(self) -> str | None:
        """Where the results of single rows were written, if they were."""
        return self.results.folder if isinstance(self.results, WrittenRows) else None

    @property
    def y(self) -> Array:
        """The targets; labels are -1/+1."""
        return np.asarray(self.rows.y, dtype=np.float64)

    @property
    def bounds(self) -> ScoreBounds:
        """Bounds of each held-out score."""
        return self.rows.bounds

    def _held_out(self) -> tuple[ScoreBounds, Array]:
        return self.bounds, self.y

    @property
    def stage_codes(self) -> NDArray[np.int8]:
        """The stage that decided each row, by its place in ``STAGES``."""
        return self.rows.stage_codes

    @property
    def limited(self) -> NDArray[np.bool_]:
        """Rows that were given up."""
        known = self.rows.limited
        return np.zeros(self.problem.n_rows, dtype=bool) if known is None else known

    @property
    def decided_by(self) -> dict[str, int]:
        """How many rows each stage decided."""
        return self.results.decided_by

    @property
    def n_undetermined(self) -> int:
        """Rows that no stage decided."""
        return self.decided_by.get("undetermined", 0)

    @cached_property
    def stages(self) -> NDArray[np.str_]:
        """The name of the stage that decided each row."""
        return np.array(STAGES)[self.stage_codes]

    @property
    def limit(self) -> str | None:
        """Why the ``limited`` rows were given up, in words; None where there are none."""
        if self.finest_width is None:
            return None
        if not np.isfinite(self.finest_width):
            return "no bound of their scores is known"
        return f"float64 resolves their scores to about {self.finest_width:.2g}"

    def to_frame(self) -> Any:
        """One row a held-out row: target, label, bounds, stage (a pandas DataFrame)."""
        import pandas as pd

        columns: dict[str, Any] = {"y": self.y}
        if self.labels is not None:
            columns["label"] = self.labels
            verdicts = self.bounds.verdicts(self.y)
            columns["correct"] = np.array([None, True, False])[verdicts]
        columns |= {"score_lower": self.score_lower, "score_upper": self.score_upper, "decided_by": self.stages}
        return pd.DataFrame(columns)

    def _count_errors(self) -> tuple[int, int]:
        return self.results.errors if isinstance(self.results, WrittenRows) else super()._count_errors()

    def __repr__(self) -> str:
        blocks = "" if self.problem.in_memory else f" in {self.problem.n_blocks} blocks"
        lines = [f"LOOCVResult({self.method}, {self.problem.n_rows} rows{blocks})"]
        kept = isinstance(self.results, RowResults)
        if self.problem.loss.task == "classification":
            low, high = self._errors()
            lines.append(f"  errors       {low}" if low == high else f"  errors       {low} to {high}")
            n_ties = np.count_nonzero(self.bounds.ties) if kept else 0
            if n_ties:
                lines.append(f"  ties         {n_ties} rows: their scores are exactly 0, an error for either label")
        lines.append("  decided by   " + ", ".join(f"{stage} {count}" for stage, count in self.decided_by.items()))
        if self.limit is not None:
            lines.append(f"  limited      {int(self.limited.sum())} rows: {self.limit}")
        lines.append(f"  trainings    {self.n_trainings}")
        if kept:
            widths = self.bounds.width
            lines.append(f"  widths       median {np.median(widths):.2g}, largest {widths.max():.2g}")
        if not self.problem.in_memory:
            lines.append(f"  passes       {self.n_passes:.3g}")
        lines.append("  seconds      " + ", ".join(f"{stage} {time:.3g}" for stage, time in self.seconds.items()))
        return "\n".join(lines)
