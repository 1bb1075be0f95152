"""Exact leave-one-out cross-validation of a problem."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from glru._extras import require
from glru._files import refuse_input, write_atomically
from glru._options import UNLIMITED, BoundName, Budget, HeldOutCriterion, LOOCVMethod, check_call
from glru._results import Drawable, find_display, make_frame, show_interval
from glru.bounds import ScoreBounds, convert_queries, require_probabilities, shift
from glru.cascade import OPEN, STAGES, USUAL_MEMORY, Cascade, Report, measure_smallest_batch, reporter
from glru.duality import penalise_dependent_columns
from glru.linalg import Array, calm_blas, to_host
from glru.losses import Hinge, Loss, WithOffset
from glru.model_selection.checkpoint import Checkpoint
from glru.model_selection.result import LOOCVResult, RowResults, WrittenRows, count_stages
from glru.penalties import L2
from glru.problem import Problem, make_memory_error, require_problem
from glru.regions.classes import require_classes
from glru.removals.blocks import BlockRemovals
from glru.removals.classes import ClassBlockRemovals, ClassRemovals
from glru.removals.refitted import RefittedRemovals
from glru.removals.single import SingleRemovals
from glru.rows import MAX_COLUMNS
from glru.solution import Solution, shift_columns
from glru.solvers import train, warn_if_short
from glru.updates.local_rows import has_local_rows
from glru.updates.refits import Refits


@final
@dataclass(frozen=True)
class Output:
    """A directory with one Parquet file per block: columns ``row``, ``y``, ``score_lower``, ``score_upper``, ``decided_by``.

    A file is written beside its place and then moved there, so that a task that is run twice leaves the same file.
    """

    folder: str

    def file(self, number: int) -> Path:
        return Path(self.folder) / f"part-{number:06d}.parquet"

    def write(
        self, number: int, start: int, y: Array | NDArray[np.int8], lower: Array, upper: Array, stages: NDArray[np.str_]
    ) -> None:
        pl = require("polars", "cli", "writing Parquet files")
        columns: dict[str, Any] = {"row": np.arange(start, start + y.size), "y": y}
        columns |= {"score_lower": lower, "score_upper": upper, "decided_by": stages}
        self._store(number, pl.DataFrame(columns))

    def amend(
        self, number: int, places: NDArray[np.int64], lower: Array, upper: Array, stages: NDArray[np.str_]
    ) -> None:
        """Put better bounds of some rows (by their positions in the block) into the file of a block."""
        pl = require("polars", "cli", "writing Parquet files")
        frame = pl.read_parquet(self.file(number))
        columns = {name: frame[name].to_numpy().copy() for name in frame.columns}
        columns["score_lower"][places], columns["score_upper"][places] = lower, upper
        columns["decided_by"][places] = stages
        self._store(number, pl.DataFrame(columns))

    def _store(self, number: int, frame: Any) -> None:
        write_atomically(self.file(number), frame.write_parquet)


def open_output(folder: str | Path, inputs: Iterable[str] = ()) -> Output:
    """The output in a folder, which is made if it is not there.

    A folder with anything in it is refused, results of an earlier run or data; and so is one that is, is in or holds any of the
    ``inputs``.
    """
    place = Path(folder).absolute()
    refuse_input(place, "output", inputs)
    if place.exists() and not place.is_dir():
        raise ValueError(f"output must be a directory; {str(folder)!r} is a file. Choose another.")
    place.mkdir(parents=True, exist_ok=True)
    held = next(iter(sorted(place.iterdir())), None)
    if held is not None:
        raise ValueError(
            f"output must be an empty or a new directory; {str(folder)!r} holds {held.name!r}, results of an earlier run or data. "
            "Choose another."
        )
    return Output(str(place))


Width = float | Literal["labels"] | None

AIM, FOUR_DIGITS = 2e-6, 1e-4
"""Width on average of the intervals of a classification where none is named, and what it may be as a share of the mean loss. A metric whose slope
in the scores is at most 1, as the log-loss, is then known to four digits where it is above 0.02."""

Aim = float | Literal["metrics"] | None
"""A width on average to go on to where that takes no training; ``"metrics"``: the one at which metrics are known to four digits."""


@np.errstate(all="ignore")  # overflow ends in infinite bounds: nothing is proven then
def leave_one_out(
    problem: Problem | Solution,
    method: LOOCVMethod = "certified",
    bound: BoundName = "auto",
    width: float | None = None,
    progress: bool | Report = False,
    max_memory: int | None = None,
    tol: float = 1e-6,
    checkpoint: str | Path | Checkpoint | None = None,
    max_seconds: float | None = None,
    output: str | Path | None = None,
    max_trainings: int | None = None,
    aim: Aim = None,
    refits: Refits | None = None,
    largest: float = np.inf,
) -> LOOCVResult:
    """Leave-one-out of a problem or of its solution; the parameters are those of :func:`glru.loocv`, but for four.

    ``width``: if not given, a classification is refined until its labels are decided. ``aim``: a width on average to go on
    to afterwards, as far as that costs no training, or ``"metrics"``. ``refits``: what leaving out a row changes besides the row.
    ``largest``: a width that no interval is to exceed, as far as that costs no training.
    """
    data = problem.problem if isinstance(problem, Solution) else problem
    require_problem(data)
    budget = Budget(max_seconds)
    _check(data, method)
    if data.loss.several:
        _check_classes(data, method, bound)
    _check_place(data, method, bound, max_memory, checkpoint, output, max_trainings)
    if refits is not None:
        _check_refits(refits, method, checkpoint)
    if isinstance(checkpoint, str | Path):
        checkpoint = Checkpoint(checkpoint)
    place = None if output is None else open_output(output, data.rows.inputs)
    before, begin = 0.0 if data.in_memory else data.traffic.passes, time.perf_counter()
    if isinstance(problem, Problem) or not np.isfinite(problem.solver_gap):
        unique = make_unique(data, refits)
        data, problem = unique, problem if unique is data else unique
    solution = ensure_trained(problem, tol, checkpoint, budget=budget)
    fitted = time.perf_counter() - begin
    if aim == "metrics":
        aim = choose_aim(solution)
    with reporter(progress) as report, calm_blas(data.work if data.in_memory else 0.0):
        cascade = start_run(
            shift_columns(solution) if refits is None and method == "certified" else solution,
            find_usual_width(data) if width is None else width,
            bound=bound,
            max_memory=max(USUAL_MEMORY, measure_smallest_batch(data)) if max_memory is None else max_memory,
            max_trainings=None if data.in_memory else max_trainings or 0,
            tol=tol,
            report=report,
            budget=budget,
            output=place,
            refits=refits,
            aim=aim if data.in_memory and method == "certified" else None,
            largest=largest,
        )
        if checkpoint is not None:
            # Bounds of differences mean nothing without the class that they are measured from.
            removals = cascade.removals
            reference = removals.reference if isinstance(removals, ClassRemovals) and method == "certified" else None
            settings = (method, bound, cascade.width, cascade.max_memory, tol, aim, reference, largest)
            cascade.recall = checkpoint.recall(budget, solution, *settings, *(() if refits is None else refits.parts()))
        cascade.follow(method)
        if aim is not None and data.in_memory and method == "certified":
            cascade.tighten(aim)
    if checkpoint is not None:
        checkpoint.save()
    seconds = cascade.seconds if data.in_memory else {"fit": fitted} | cascade.seconds
    n_passes = 0.0 if data.in_memory else data.traffic.passes - before
    return _result(cascade, data, method, place, seconds, n_passes, aim)


def start_run(
    solution: Solution, width: float | None = None, *, refits: Refits | None = None, **options: Any
) -> Cascade:
    """Begin a run of leave-one-out, with the removals of this kind of problem.

    ``refits``: what leaving out a row changes besides the row; the other parameters are those of :class:`glru.cascade.Cascade`.
    """
    problem = solution.problem
    if problem.loss.several:
        kind: Any = partial(ClassRemovals, refits=refits) if problem.in_memory else ClassBlockRemovals
    elif not problem.in_memory:
        kind = BlockRemovals
    else:
        kind = SingleRemovals if refits is None else partial(RefittedRemovals, refits=refits)
    return Cascade(kind, solution, width, **options)


def widths_of(problem: Problem | Solution, width: Width, aim: Aim = "metrics") -> dict[str, Any]:
    """The width that must be reached, and the one to go on to where that costs no training; ``"labels"`` asks for labels only.

    ``aim``: the one to go on to in a classification where no width is named.
    """
    problem = problem.problem if isinstance(problem, Solution) else problem
    labelled = isinstance(problem, Problem) and problem.loss.task == "classification"
    if width is None:
        return {"width": None, "aim": aim if labelled else None}
    if not isinstance(width, str):
        return {"width": width, "aim": None}
    if not labelled:
        raise ValueError("width='labels' is for a classification; a regression has no labels. Leave it out.")
    return {"width": None, "aim": None}


def choose_aim(solution: Solution) -> float:
    """The width on average at which metrics of a classification are known to four digits, judged by the losses of the rows in training."""
    problem = solution.problem
    if not problem.in_memory:
        return AIM
    losses = problem.loss.value(problem.y, solution.scores)
    return max(AIM, float(np.nan_to_num(FOUR_DIGITS * np.average(to_host(losses), weights=problem.weights))))


def find_usual_width(problem: Problem) -> float | None:
    """The width to refine to where none is asked for; None: until the labels are decided."""
    return 1e-6 * (problem.score_scale or 1.0) if problem.loss.task == "regression" else None


def ensure_trained(
    problem: Problem | Solution,
    tol: float,
    checkpoint: Checkpoint | None = None,
    start: Solution | None = None,
    budget: Budget = UNLIMITED,
) -> Solution:
    """A solution, trained if a problem was given (or read from a checkpoint)."""
    if isinstance(problem, Solution):
        return problem
    require_problem(problem)

    def fit() -> Solution:
        return warn_if_short(train(problem, tol=tol, start=start, budget=budget), tol)

    return fit() if checkpoint is None else checkpoint.solution(problem, tol, fit)


def make_unique(problem: Problem, refits: Refits | None) -> Problem:
    """The problem of :func:`~glru.duality.penalise_dependent_columns`; columns whose values move without a row stay as they are."""
    return penalise_dependent_columns(problem, () if refits is None else refits.filled_columns)


def _check(problem: Problem, method: str) -> None:
    if method in ("approx", "approx-glru") and isinstance(problem.loss, Hinge):
        raise ValueError(
            f"method={method!r} needs a smooth loss; the hinge has no curvature. Use method='certified', or glru.SmoothedHinge()."
        )
    require_rows(problem)


def require_rows(problem: Problem) -> None:
    """Refuse rows of which one cannot be left out."""
    if problem.n_used < 2:
        raise ValueError("leave-one-out needs at least two rows of weight above 0.")
    if problem.loss.task == "classification" and problem.fit_intercept:
        for label, number in problem.weight_summary.labels.counts.items():
            if number < 2:
                # Rows in blocks are counted by their own labels.
                classes = problem.classes if problem.in_memory and not problem.loss.several else None
                name = label if classes is None else classes[int(label == "+1")]
                raise ValueError(
                    "with an intercept each class needs at least two rows of weight above 0: without its only row "
                    f"the class {name} is gone and the intercept has no optimum. Use fit_intercept=False."
                )


def _check_classes(problem: Problem, method: str, bound: str) -> None:
    """Refuse what leave-one-out does not have with one score per class."""
    if method not in ("certified", "naive") or bound not in ("auto", "local"):
        raise ValueError(
            f"with {problem.loss!r}, method must be 'certified' or 'naive' and bound 'auto' or 'local'; got {method!r} and {bound!r}. "
            "Leave both out for the defaults."
        )
    if method == "certified":
        require_classes(problem)


def _check_place(
    problem: Problem,
    method: str,
    bound: str,
    max_memory: int | None,
    checkpoint: object,
    output: object,
    max_trainings: int | None,
) -> None:
    """Refuse what leave-one-out does not have where the rows are: in memory, or in blocks."""
    if problem.in_memory:
        if output is not None or max_trainings is not None:
            raise ValueError(
                "output and max_trainings are for rows in blocks; these are in memory. Use result.to_frame(), or max_seconds."
            )
        if max_memory is not None and max_memory < measure_smallest_batch(problem):
            raise ValueError(
                f"max_memory must hold the work arrays of one row, {measure_smallest_batch(problem)} bytes for {problem.n_rows} "
                f"rows; got {max_memory!r}. Give at least that."
            )
        return
    for name, value in {"max_memory": max_memory, "checkpoint": checkpoint}.items():
        if value is not None:
            raise make_memory_error(problem, name)
    if method != "certified" or bound not in ("auto", "local"):
        raise ValueError(
            f"leave-one-out supports only method='certified' and bound='auto' for rows in blocks; got {method!r} and {bound!r}."
        )
    if problem.loss.several:
        if output is not None:
            raise ValueError(f"output has one score per row; got {problem.loss!r}. Use result.to_frame().")
        return
    if not has_local_rows(problem) and not problem.is_strongly_convex:
        raise ValueError(
            "leave-one-out of rows in blocks needs the logistic or squared loss with an L2 penalty and at most "
            f"{MAX_COLUMNS} columns, or a penalty on every column and no intercept; got {problem!r}. "
            "Use fit_intercept=False, or a glru.Problem of data in memory."
        )


def _check_refits(refits: Refits, method: str, checkpoint: object) -> None:
    """Refuse what leave-one-out does not have where preprocessing is fitted again."""
    if method in ("approx", "approx-glru"):
        raise ValueError(
            f"method={method!r} does not follow preprocessing or class weights that are fitted again without each row. "
            "Use method='certified'."
        )
    if checkpoint is not None and refits.alone is not None and refits.alone.any():
        raise ValueError(
            "a checkpoint cannot tell steps of a pipeline apart that are fitted again on their own for some rows. "
            "Leave out checkpoint."
        )


def _result(
    cascade: Cascade,
    problem: Problem,
    method: str,
    output: Output | None,
    seconds: dict[str, float],
    n_passes: float,
    aim: float | None,
) -> LOOCVResult:
    limited = cascade.limited & (cascade.stage_codes == OPEN)
    finest = cascade.widths if cascade.finest is None else cascade.finest
    stages = cascade.name_stages()
    for array in (cascade.lower, cascade.upper, stages):
        array.setflags(write=False)
    several = cascade.problem.loss.several
    bounds = convert_queries(cascade.lower, cascade.upper) if several else ScoreBounds(cascade.lower, cascade.upper)
    if isinstance(cascade.problem.loss, WithOffset):
        bounds = shift(bounds, cascade.problem.offset)
    results: RowResults | WrittenRows = RowResults(cascade.y, bounds, stages, limited)
    return LOOCVResult(
        problem=problem,
        method=method,
        certified=method in ("certified", "glru"),
        results=results if output is None else _amend(cascade, bounds, stages, output),
        n_trainings=cascade.n_trainings,
        seconds=seconds,
        finest_width=float(finest[limited].min()) if limited.any() else None,
        n_passes=n_passes,
        aim=aim,
    )


def _amend(cascade: Cascade, bounds: ScoreBounds, stages: NDArray[np.int8], output: Output) -> WrittenRows:
    """Put what is known about the rows that the first pass left open into the files."""
    names = np.array(STAGES)[stages]
    for k, (here, places) in cascade.problem.locate(cascade.numbers).items():
        output.amend(k, here, bounds.lower[places], bounds.upper[places], names[places])
    low, high = cascade.written.errors
    n_open = cascade.open_rows().size
    if cascade.problem.loss.task == "classification":
        more = bounds.errors(cascade.y.astype(np.float64))
        low, high = low + int(more[0]), high + int(more[1])
        n_open = cascade.written.n_unlabelled + int(np.count_nonzero(~bounds.decided))
    counts = np.bincount(stages, minlength=len(STAGES))
    counts[STAGES.index(cascade.written.stage)] += cascade.written.n_rows
    return WrittenRows(output.folder, (low, high), count_stages(counts), n_open)


@final
@dataclass(frozen=True, eq=False, repr=False)
class LOOCVPath(Drawable):
    """Leave-one-out results along a grid of ``lam``.

    Attributes
    ----------
    lams : array of shape (n_lams,)
        The grid, from the strongest penalty to the weakest.
    results : tuple of LOOCVResult
        One result per strength.
    criterion : {"error", "log_loss", "squared_error", "deviance"}
        What decides.
    lower, upper : array of shape (n_lams,)
        Certified interval of the criterion at each strength.

    Examples
    --------
    >>> import numpy as np, glru
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> path = glru.loocv_path(glru.Problem(X, X[:, 0] > 0.3), [1.0, 0.1, 0.01])
    >>> len(path.results)
    3
    """

    lams: Array
    results: tuple[LOOCVResult, ...]
    criterion: HeldOutCriterion
    lower: Array
    upper: Array

    @property
    def best_index(self) -> int:
        """The strength with the smallest upper end; the stronger penalty wins a tie."""
        return int(np.argmin(self.upper))

    @property
    def best_lam(self) -> float:
        """The strength chosen."""
        return float(self.lams[self.best_index])

    @property
    def certified(self) -> bool:
        """Whether no other strength can be better than the one chosen."""
        return bool(np.all(np.delete(self.lower, self.best_index) >= self.upper[self.best_index]))

    @property
    def best(self) -> LOOCVResult:
        """The result at the strength chosen, with bounds, labels and metrics."""
        return self.results[self.best_index]

    @property
    def criterion_bounds(self) -> tuple[float, float]:
        """Proven bounds of the criterion at the strength chosen."""
        return float(self.lower[self.best_index]), float(self.upper[self.best_index])

    @property
    def n_trainings(self) -> int:
        """Rows that needed a training, at all strengths together."""
        return sum(result.n_trainings for result in self.results)

    def to_frame(self) -> Any:
        """One line per strength: both ends of the criterion, and how many rows needed a training (a pandas or polars frame)."""
        columns = {"lam": self.lams, f"{self.criterion}_lower": self.lower, f"{self.criterion}_upper": self.upper}
        return make_frame(columns | {"n_trainings": [result.n_trainings for result in self.results]})

    def _display(self) -> Any:
        return find_display("RegularizationPathDisplay").from_path(self)

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        proof = "" if self.certified else ", not certified"
        ends = zip(self.lams, self.lower, self.upper, strict=True)
        lines = [(f"{lam:.4g}", show_interval(float(low), float(high))) for lam, low, high in ends]
        return f"LOOCVPath({self.criterion}, best lam {self.best_lam:.4g}{proof})", lines


@check_call
def loocv_path(
    problem: Problem,
    lams: Sequence[float],
    criterion: HeldOutCriterion | None = None,
    width: float | None = None,
    tol: float = 1e-6,
    progress: bool | Report = False,
    checkpoint: str | Path | None = None,
) -> LOOCVPath:
    """Certified leave-one-out cross-validation for every strength of an L2 penalty, and the best of them.

    Each training starts from its neighbour's model; what depends on the data alone (the Gram matrix of wide data)
    is computed once.

    Parameters
    ----------
    problem : Problem
        What to validate, with an L2 penalty; its own strength is not used.
    lams : sequence of float
        The strengths.
    criterion : {"error", "log_loss", "squared_error", "deviance"}, default=None
        What to minimise; "error" for a classification, "deviance" for a loss with a log or logit link and "squared_error" for another
        regression if not given. Log-loss is for the logistic loss.
    width : float, default=None
        Largest interval of a held-out score; with ``criterion="log_loss"`` 1e-6 if not given.
    tol, progress, checkpoint
        As in :func:`glru.loocv`.

    Returns
    -------
    LOOCVPath

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> path = glru.loocv_path(glru.Problem(X, y, penalty=glru.L2(1.0)), [1.0, 0.1, 0.01, 0.001])
    >>> path.best_lam, path.certified
    (0.01, True)
    """
    require_problem(problem, "For an estimator use glru.GLRUClassifierCV or glru.GLRURegressorCV.")
    if not isinstance(problem.penalty, L2) or problem.penalty.n_columns is not None:
        raise ValueError(f"loocv_path needs an L2 penalty of one strength; got {problem.penalty!r}.")
    return validate_strengths(
        lambda lam: (problem.derive(penalty=L2(lam)), None), lams, criterion, width, tol, progress, checkpoint
    )


def validate_strengths(
    make: Callable[[float], tuple[Problem, Refits | None]],
    lams: Sequence[float],
    criterion: HeldOutCriterion | None,
    width: float | None,
    tol: float,
    progress: bool | Report,
    checkpoint: str | Path | None,
) -> LOOCVPath:
    """:func:`loocv_path`, where ``make`` gives the problem of a strength, and what leaving out a row changes besides the row."""
    try:
        grid = np.sort(np.array([*lams], dtype=np.float64))[::-1]
    except (TypeError, ValueError):
        raise TypeError(f"lams must be a list of numbers; got {lams!r}. Use [1.0, 0.1, 0.01].") from None
    if grid.size == 0:
        raise ValueError("lams must hold at least one strength; got none.")
    stored = Checkpoint(checkpoint) if checkpoint is not None else None
    results: list[LOOCVResult] = []
    solution: Solution | None = None
    for lam in grid:
        problem, refits = make(float(lam))
        if solution is None:
            criterion = _choose_criterion(problem.loss, criterion)
            width = 1e-6 if criterion == "log_loss" and width is None else width
        solution = ensure_trained(problem, tol, stored, start=solution)
        results.append(leave_one_out(solution, width=width, progress=progress, checkpoint=stored, refits=refits))
    assert criterion is not None
    counts = criterion == "error"
    ends = [(one.errors_lower, one.errors_upper) if counts else one.metric_bounds(criterion) for one in results]
    lower, upper = np.array(ends, dtype=np.float64).T
    return LOOCVPath(grid, tuple(results), criterion, lower, upper)


def _choose_criterion(loss: Loss, criterion: HeldOutCriterion | None) -> HeldOutCriterion:
    """The criterion asked for, or the first one that fits the loss."""
    known: tuple[HeldOutCriterion, ...] = ("error", "log_loss") if loss.task == "classification" else ("squared_error",)
    known = known if loss.link == "identity" else ("deviance", "squared_error")
    criterion = known[0] if criterion is None else criterion
    if criterion not in known:
        raise ValueError(
            f"criterion {criterion!r} does not fit a {loss.task} loss; got {loss!r}. Use {' or '.join(map(repr, known))}."
        )
    if criterion == "log_loss":
        require_probabilities(criterion, loss)
    return criterion
