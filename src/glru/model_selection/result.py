"""What leave-one-out cross-validation found."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru._numerics import Array
from glru.bounds import ScoreBounds, exact_count
from glru.problem import Problem

STAGES = ("carry", "local", "newton", "refine", "training", "approx", "undetermined")


@final
@dataclass(frozen=True, eq=False, repr=False)
class LOOCVResult:
    """Every row's score under the model trained without it.

    Attributes
    ----------
    problem : Problem
        What was validated.
    method : str
        How.
    certified : bool
        Whether the bounds are proven; the methods "naive", "approx" and "approx-glru" prove nothing.
    bounds : ScoreBounds
        Bounds of each held-out score; ``score_lower`` and ``score_upper`` are its ends.
    stage_codes : array of int
        The stage that decided each row, by its place in ``STAGES``; ``stages`` gives the names.
    limited : array of bool
        Undetermined rows that were given up: at the optimum of all rows, trained as far as float64 goes, the rounding of the
        certificate alone leaves intervals wider than what was asked for, and leaving out one row changes that little.
        An estimate that saves trainings, not a proof that none could decide the row.
    finest_width : float or None
        The narrowest of those intervals; None where no row was given up.
    seconds : dict
        Time spent in each stage.

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
    bounds: ScoreBounds
    stage_codes: NDArray[np.int8]
    n_trainings: int
    seconds: dict[str, float]
    limited: NDArray[np.bool_]
    finest_width: float | None

    @property
    def score_lower(self) -> Array:
        """Lower bounds of the held-out scores."""
        return self.bounds.lower

    @property
    def score_upper(self) -> Array:
        """Upper bounds of the held-out scores."""
        return self.bounds.upper

    @cached_property
    def scores(self) -> Array:
        """The middle of each interval, NaN where that has no end."""
        scores = self.bounds.middle
        scores.setflags(write=False)
        return scores

    @property
    def labels(self) -> NDArray[np.int8] | None:
        """+1 or -1 where that label is proven, 0 for a tie or an open label; None for a regression."""
        return self.bounds.signs if self.problem.loss.task == "classification" else None

    @property
    def decided_by(self) -> dict[str, int]:
        """How many rows each stage decided."""
        counts = np.bincount(self.stage_codes, minlength=len(STAGES))
        return {stage: int(count) for stage, count in zip(STAGES, counts, strict=True) if count}

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
        return self.bounds.metric(name, self.problem.loss, self.problem.y)

    def to_frame(self) -> Any:
        """One row a held-out row: target, label, bounds, stage (a pandas DataFrame)."""
        import pandas as pd

        columns: dict[str, Any] = {"y": self.problem.y}
        if self.labels is not None:
            columns["label"] = self.labels
            verdicts = self.bounds.verdicts(self.problem.y)
            columns["correct"] = np.array([None, True, False])[verdicts]
        columns |= {"score_lower": self.score_lower, "score_upper": self.score_upper, "decided_by": self.stages}
        return pd.DataFrame(columns)

    def _errors(self) -> tuple[int, int]:
        if self.problem.loss.task != "classification":
            raise ValueError(f"a regression has no error count; got {self.problem.loss!r}. Use metric_bounds.")
        return self.bounds.errors(self.problem.y)

    def __repr__(self) -> str:
        lines = [f"LOOCVResult({self.method}, {self.problem.n_rows} rows)"]
        if self.problem.loss.task == "classification":
            low, high = self._errors()
            lines.append(f"  errors       {low}" if low == high else f"  errors       {low} to {high}")
            n_ties = np.count_nonzero(self.bounds.ties)
            if n_ties:
                lines.append(f"  ties         {n_ties} rows: their scores are exactly 0, an error for either label")
        lines.append("  decided by   " + ", ".join(f"{stage} {count}" for stage, count in self.decided_by.items()))
        if self.limit is not None:
            lines.append(f"  limited      {int(self.limited.sum())} rows: {self.limit}")
        lines.append(f"  trainings    {self.n_trainings}")
        widths = self.bounds.width
        lines.append(f"  widths       median {np.median(widths):.2g}, largest {widths.max():.2g}")
        lines.append("  seconds      " + ", ".join(f"{stage} {time:.3g}" for stage, time in self.seconds.items()))
        return "\n".join(lines)
