"""What leave-one-out and cross-validation found."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru._results import Drawable, find_display, make_frame, show_count, show_interval, unmask_column
from glru.bounds import ScoreBounds, require_exact_count, require_probabilities
from glru.cascade import OPEN, STAGES, WIDE
from glru.duality import explain_missing_optimum
from glru.linalg import Array
from glru.problem import Problem

Refitted = Callable[[int], tuple[Problem, NDArray[np.intp]]]
"""The problem of a row that is left out, or of a split, with everything fitted to its train rows; and the places of its test rows."""


class HeldOutScores(Drawable):
    """Scores of rows, each under a model that was trained without it, and what follows from their bounds."""

    problem: Problem
    n_trainings: int
    known_classes: NDArray[Any] | None = None

    @abstractmethod
    def _held_out(self) -> tuple[ScoreBounds, NDArray[Any]]:
        """Bounds of the held-out scores, one per row or one per row and class, and the targets of their rows.

        Targets are -1 and +1, places of classes where there is one score per class, or numbers.
        """

    @property
    def _bounds(self) -> ScoreBounds:
        return self._held_out()[0]

    @property
    def classes(self) -> NDArray[Any] | None:
        """The caller's classes in sorted order; None for a regression."""
        return self.problem.classes if self.known_classes is None else self.known_classes

    @property
    def score_lower(self) -> Array:
        """Lower bounds of the held-out scores."""
        return self._bounds.lower

    @property
    def score_upper(self) -> Array:
        """Upper bounds of the held-out scores."""
        return self._bounds.upper

    @cached_property
    def scores(self) -> Array:
        """The middle of each interval, NaN where that has no end."""
        scores = self._bounds.middle
        scores.setflags(write=False)
        return scores

    @property
    def labels(self) -> NDArray[Any] | None:
        """The held-out labels, classes as the caller has them; masked where they are open, None for a regression."""
        return None if self.classes is None else self._bounds.labels(self.classes)

    @property
    def decided(self) -> NDArray[np.bool_]:
        """Where the label is proven; for a regression, where the interval is as narrow as was asked for."""
        return self._bounds.decided

    @property
    def n_undetermined(self) -> int:
        """Rows that are not decided."""
        return int(np.count_nonzero(~self.decided))

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
        return require_exact_count(*self._errors())

    def metric_bounds(self, name: str) -> tuple[float, float]:
        """A certified interval of a metric of the pooled held-out scores.

        Parameters
        ----------
        name : {"deviance", "log_loss", "accuracy", "brier", "roc_auc", "squared_error", "absolute_error", "r2", "balanced_accuracy", "macro_f1"}
            The metric. Every row counts once, whatever its weight. Log-loss and Brier score are for the logistic and the multinomial
            loss; "deviance" is for losses with a log link, whose other metrics are those of the predicted means. For a multinomial model the Brier
            score is a sum over the classes, and "roc_auc" the mean over the classes, each against the rest. One-vs-rest models have no probabilities here.

        Returns
        -------
        tuple of float
            Lower and upper end, inside the range of the metric. Accuracy and ROC AUC are quotients of integers: both ends
            are correctly rounded quotients, and equal where all labels, or the order of all pairs, are proven.
        """
        return self._bounds.metric(name, self.problem.loss, self._held_out()[1], self.classes is not None)

    def confusion_matrix(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The least and the largest number of rows of each class that get each label.

        Returns
        -------
        tuple of array of shape (n_classes, n_classes)
            Lines are the rows' classes, columns their held-out labels, as in scikit-learn. Both are the same where all labels are proven.
        """
        if self.classes is None:
            raise ValueError(f"a regression has no labels to count; got {self.problem.loss!r}. Use metric_bounds.")
        return self._bounds.confusion(self._held_out()[1])

    def probability_bounds(self) -> tuple[Array, Array]:
        """Proven bounds of every row's held-out probabilities, of a logistic or a multinomial model.

        Returns
        -------
        tuple of array of shape (n_rows, n_classes)
            Lower and upper ends.
        """
        loss = self.problem.loss
        require_probabilities("probability_bounds", loss, not loss.several and self._bounds.lower.ndim == 2)
        return self._bounds.probabilities()

    def to_frame(self) -> Any:
        """One line per held-out row: target, label, whether it is right, bounds, and more (a pandas or polars frame).

        Labels and verdicts are missing where they are open.
        """
        return make_frame(self._columns())

    def _display(self) -> Any:
        name = "ConfusionDisplay" if self._bounds.lower.ndim == 2 else "LOOCVDisplay"
        return find_display(name).from_result(self)

    def _columns(self) -> dict[str, Any]:
        targets, classes = self._held_out()[1], self.classes
        if classes is None:
            columns: dict[str, Any] = {"y": targets}
        else:
            columns = {"y": classes[self._bounds.places(targets)], "label": unmask_column(self._bounds.labels(classes))}
            verdicts = self._bounds.verdicts(targets)
            columns["correct"] = unmask_column(np.ma.masked_array(verdicts > 0, mask=verdicts == 0))
        return columns | self._bounds.columns(classes)

    def _errors(self) -> tuple[int, int]:
        if self.classes is None:
            raise ValueError(f"a regression has no error count; got {self.problem.loss!r}. Use metric_bounds.")
        return self._count_errors()

    def _count_errors(self) -> tuple[int, int]:
        return self._bounds.errors(self._held_out()[1])

    def _show_metrics(self) -> list[tuple[str, str]]:
        """The lines of the usual metrics."""
        if self.classes is None:
            names = ["deviance"] if self.problem.loss.link != "identity" else ["squared_error", "absolute_error"]
        else:
            names = ["accuracy"]
            if self._bounds.lower.ndim == 1 or self.problem.loss.several:
                names += ["log_loss"] if self.problem.loss.probabilities else []
        lines = [(name.replace("_", " "), show_interval(*self.metric_bounds(name))) for name in names]
        if self.classes is None:
            return lines
        return [("errors", show_count(*self._errors())), *lines]

    def _show_widths(self) -> tuple[str, str]:
        widths = self._bounds.width
        return "widths", f"median {np.median(widths):.2g}, largest {widths.max():.2g}"


@final
@dataclass(frozen=True, eq=False)
class RowResults:
    """The results of single rows."""

    # Shape (n_rows,): targets: -1 and +1, places of classes where there is one score per class, or numbers.
    y: NDArray[Any]
    bounds: ScoreBounds  # bounds of the held-out scores
    stage_codes: NDArray[np.int8]  # the stage that decided each row, by its place in ``STAGES``
    limited: NDArray[np.bool_] | None = None  # rows that were given up; None where there are none

    @property
    def decided_by(self) -> dict[str, int]:
        """How many rows each stage decided."""
        return count_stages(np.bincount(self.stage_codes, minlength=len(STAGES)))


@final
@dataclass(frozen=True, eq=False)
class WrittenRows:
    """The results of single rows that were written to files, as far as they are known here."""

    folder: str  # the directory with one Parquet file per block
    errors: tuple[int, int]  # the least and the largest number of held-out errors
    decided_by: dict[str, int]  # how many rows each stage decided
    n_undetermined: int  # rows without a label; for a regression, rows that no stage decided


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
        What was validated; the first one of an estimator with one problem per class.
    classes : array or None
        The classes as the caller has them, in sorted order; None for a regression.
    method : str
        The method that was asked for.
    certified : bool
        Whether the bounds are proven; the methods "naive", "approx" and "approx-glru" prove nothing.
    y : array of shape (n_rows,)
        Targets: -1 and +1 for two classes, places in ``classes`` for more, or numbers.
    bounds : ScoreBounds
        Bounds of each held-out score; ``score_lower`` and ``score_upper`` are its ends. With more than two classes one score
        per row and class, as in ``decision_function``: a label is proven only where its class beats every other one.
    labels, decided : array
        The held-out labels, masked where they are open, and where they are not.
    stages : array of str
        The stage that decided each row; with several classes the most expensive one of them. "wide": the label is proven, but the
        interval is wider than the ``width`` that was asked for. "undetermined": not even the label is proven (in a regression: the
        interval is wider than asked).
    decided_by : dict
        How many rows each stage decided, "wide" and "undetermined" included.
    n_trainings : int
        Trainings beyond the first ones.
    limited : array of bool
        Rows that were given up: even at the optimum of all rows, trained to the limits of float64, the rounding of the
        certificate alone makes intervals wider than asked, and leaving out one row hardly changes that.
        This is an estimate that saves trainings, not a proof that no training could decide the row.
    finest_width : float or None
        The narrowest of those intervals; None where no row was given up.
    aim : float or None
        The average width that intervals were narrowed to where that cost no training; None if another width was asked for.
    seconds : dict
        Time spent in each stage.
    n_refits, refit_reason : int, str or None
        For how many rows the steps in front of a pipeline's model were fitted again one at a time, without a closed form, and why.
    refitted : callable or None
        Where leaving out a row changes more than that row (a pipeline, balanced weights): ``refitted(row)`` is the problem of the model
        without it, and the row's place there.
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
    >>> result.labels[:3]
    array([ True,  True,  True])
    """

    problem: Problem
    method: str
    certified: bool
    results: RowResults | WrittenRows
    n_trainings: int
    seconds: dict[str, float]
    finest_width: float | None = None
    n_passes: float = 0.0
    known_classes: NDArray[Any] | None = None
    aim: float | None = None
    n_refits: int = 0
    refit_reason: str | None = None
    refitted: Refitted | None = None

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
    def y(self) -> NDArray[Any]:
        """The targets: -1 and +1 for two classes, places of classes for more, or numbers."""
        y = self.rows.y
        return y if self.bounds.lower.ndim == 2 else np.asarray(y, dtype=np.float64)

    def _held_out(self) -> tuple[ScoreBounds, NDArray[Any]]:
        return self.bounds, self.y

    @property
    def bounds(self) -> ScoreBounds:
        """Bounds of each held-out score."""
        return self.rows.bounds

    @property
    def decided(self) -> NDArray[np.bool_]:
        """Where the label is proven; for a regression, where the interval is as narrow as was asked for."""
        return self.stages != "undetermined" if self.classes is None else self.bounds.decided

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
        """How many rows each stage decided, "wide" and "undetermined" included."""
        return self.results.decided_by

    @property
    def n_undetermined(self) -> int:
        """Rows that are not decided."""
        return self.results.n_undetermined if isinstance(self.results, WrittenRows) else super().n_undetermined

    @cached_property
    def stages(self) -> NDArray[np.str_]:
        """The name of the stage that decided each row."""
        return np.array(STAGES)[self.stage_codes]

    @property
    def unbounded(self) -> bool:
        """Whether no held-out score has a bound, so that nothing is proven: there is no unique optimum, or the time was up."""
        if isinstance(self.results, WrittenRows):
            return False
        return bool(np.isneginf(self.bounds.lower).all() and np.isposinf(self.bounds.upper).all())

    @cached_property
    def limit(self) -> str | None:
        """Why the ``limited`` rows were given up, in words; None where there are none."""
        if self.finest_width is None:
            return None
        if not np.isfinite(self.finest_width):
            reason = explain_missing_optimum(self.problem)
            return "no bound of their scores is known" + ("" if reason is None else f"; {reason.rstrip('.')}")
        return f"float64 resolves their scores to about {self.finest_width:.2g}"

    def _columns(self) -> dict[str, Any]:
        return super()._columns() | {"decided_by": self.stages}

    def _count_errors(self) -> tuple[int, int]:
        return self.results.errors if isinstance(self.results, WrittenRows) else super()._count_errors()

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        n_rows, kept = self.problem.n_rows, isinstance(self.results, RowResults)
        blocks = "" if self.problem.in_memory else f" in {self.problem.n_blocks} blocks"
        several = "" if not kept or self.bounds.lower.ndim == 1 else f", {self.bounds.lower.shape[1]} classes"
        lines = []
        if kept:
            lines += self._show_metrics()
            n_ties = np.count_nonzero(self.bounds.ties) if self.classes is not None and not several else 0
            if n_ties:
                lines.append(("ties", f"{n_ties} rows: their scores are exactly 0, an error for either label"))
        elif self.classes is not None:
            lines.append(("errors", show_count(*self._errors())))
        lines.append(("decided by", ", ".join(f"{stage} {count}" for stage, count in self.decided_by.items())))
        if self.limit is not None:
            lines.append(("limited", f"{int(self.limited.sum())} rows: {self.limit}"))
        lines.append(("trainings", f"{self.n_trainings} of {n_rows}"))
        if self.n_refits:
            lines.append(("refits", f"{self.n_refits} of {n_rows}, one at a time: {self.refit_reason}"))
        if kept:
            name, shown = self._show_widths()
            wide = self.aim is not None and not float(np.mean(self.bounds.width)) <= self.aim
            lines.append((name, f"{shown}; not {self.aim:.0e} on average, ask for a width" if wide else shown))
        if not self.problem.in_memory:
            lines.append(("passes", f"{self.n_passes:.3g}"))
        lines.append(("seconds", ", ".join(f"{stage} {time:.3g}" for stage, time in self.seconds.items())))
        method = "nothing proven" if self.unbounded else self.method
        return f"LOOCVResult({method}, {n_rows} rows{blocks}{several})", lines


def merge_classes(
    results: Sequence[LOOCVResult], bounds: ScoreBounds, y: NDArray[Any], classes: NDArray[Any]
) -> LOOCVResult:
    """The results of several models, one per class (or of one whose scores are labels' by sign), as the result of a classifier."""
    first = results[0]
    codes = np.array([result.stage_codes for result in results])
    # A label may be proven although the score of one class is wider than asked: the stages that did decide count.
    known = np.where(codes < WIDE, codes, -1).max(axis=0)
    stage_codes = np.where(bounds.decided, np.where(known < 0, WIDE, known), OPEN).astype(np.int8)
    limited = ~bounds.decided & np.any([result.limited for result in results], axis=0)
    seconds: dict[str, float] = {}
    for result in results:
        for stage, time in result.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + time
    finest = [result.finest_width for result in results if result.finest_width is not None]
    return LOOCVResult(
        problem=first.problem,
        method=first.method,
        certified=first.certified,
        results=RowResults(y, bounds, stage_codes, limited),
        n_trainings=sum(result.n_trainings for result in results),
        seconds=seconds,
        finest_width=min(finest) if finest and limited.any() else None,
        known_classes=classes,
        aim=first.aim,
    )
