"""What is proven about the retrained model now: first from the carried model, then from Newton steps, then by training."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from glru._results import Drawable, find_display, list_some, make_frame
from glru.bounds import Bounds, ScoreBounds, convert_queries, unbounded
from glru.certificate import ball_radius
from glru.changed import ChangedModel, change_model, has_newton
from glru.changes import Change, Composite
from glru.linalg import Matrix
from glru.penalties import Penalty
from glru.problem import Point, Problem
from glru.refine import CLASS_TRAINED, MAX_ASKED_GRADIENT, Refinement, class_ellipsoids
from glru.regions import EVERY, PAPER, LocalEllipsoid, Region, has_local, list_regions, score_bounds
from glru.regions.classes import ClassEllipsoid, make_unbounded_queries, require_classes
from glru.solution import Solution
from glru.solvers import solve, train
from glru.updates import carry_point
from glru.updates.carry import is_plain
from glru.updates.row_models import RowEllipsoid

Decided = Callable[[Bounds], NDArray[np.bool_]]
"""Whether bounds of scores are as tight as an answer needs."""


@final
@dataclass(frozen=True, eq=False)
class Answer:
    """Bounds of queried scores under the retrained model, and how they were found."""

    bounds: ScoreBounds
    # Shape (n_queries,): which stage decided each query: "carry", "newton", "training", or "" where it is open.
    stage: NDArray[np.str_]
    # Of the best candidate that was needed; inf where nothing is known.
    gap: float
    radius: float

    @cached_property
    def open(self) -> NDArray[np.intp]:
        """The queries that are not decided."""
        return np.flatnonzero(self.stage == "")

    @property
    def open_bounds(self) -> ScoreBounds:
        return self.bounds.take(self.open)

    @classmethod
    def start(cls, size: int, n_scores: int = 1) -> "Answer":
        """No answer yet."""
        nothing = (
            ScoreBounds(*unbounded(size)) if n_scores == 1 else convert_queries(*make_unbounded_queries(size, n_scores))
        )
        return cls(nothing, np.full(size, "", dtype="<U8"), np.inf, np.inf)

    def merge(self, bounds: Bounds, decided: Decided, stage: str, gap: float, radius: float) -> "Answer":
        """The answer with what another stage proves about the queries that were open."""
        rows, stages, found = self.open, self.stage.copy(), self.open_bounds.intersect(bounds)
        stages[rows[decided(found)]] = stage
        return Answer(self.bounds.put(rows, found), stages, gap, radius)

    def count(self, stage: str) -> int:
        return int(np.count_nonzero(self.stage == stage))


class UndeterminedError(ValueError):
    """Predictions were asked for of which some could not be proven in float64.

    Attributes
    ----------
    rows : array of int
        The queries whose prediction is not determined.
    """

    def __init__(self, message: str, rows: NDArray[np.intp]) -> None:
        super().__init__(message, rows)
        self.rows = rows

    def __str__(self) -> str:
        return str(self.args[0])


@final
@dataclass(frozen=True, eq=False, repr=False)
class CertifiedPrediction(Drawable):
    """Predictions of a model retrained on the present data, and which of them are proven.

    Attributes
    ----------
    predictions : array of shape (n_queries,)
        Labels, or numbers in a regression. Where they are not determined, those of the stored model.
    bounds : ScoreBounds
        Proven bounds of the scores.
    stages : array of str of shape (n_queries,)
        What decided each query: "carry", "newton", "training", or "undetermined".
    classes : array or None
        The caller's classes in sorted order; None for a regression.
    n_trainings : int
        Trainings that the queries took: 0 or 1.

    Examples
    --------
    >>> import numpy as np, glru
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> live = glru.LiveModel(glru.GLRUClassifier()).fit(X, X[:, 0] > 0.1)
    >>> live.predict_certified(X[:3]).decided.tolist()
    [True, True, True]
    """

    predictions: NDArray[Any]
    bounds: ScoreBounds
    stages: NDArray[np.str_]
    classes: NDArray[Any] | None
    n_trainings: int
    certified: ClassVar[bool] = True
    """Whether everything stated is proven; here, always."""

    @property
    def decided(self) -> NDArray[np.bool_]:
        """Where a label is proven, or a number is known to within ``width``."""
        return self.stages != "undetermined"

    @property
    def labels(self) -> NDArray[Any] | None:
        """The labels, classes as the caller has them; masked where they are open, None for a regression."""
        return None if self.classes is None else self.bounds.labels(self.classes)

    @property
    def decided_by(self) -> dict[str, int]:
        """How many queries each stage decided, "undetermined" included."""
        return {
            str(stage): int(count) for stage, count in zip(*np.unique(self.stages, return_counts=True), strict=True)
        }

    def to_frame(self) -> Any:
        """One line per query: prediction, whether it is decided, bounds of the score (a pandas or polars frame)."""
        return make_frame({"prediction": self.predictions, "decided": self.decided} | self.bounds.columns(self.classes))

    def _display(self) -> Any:
        of = (
            [f", {name}" for name in self.classes] if self.classes is not None and self.bounds.lower.ndim == 2 else [""]
        )
        names = [f"query {k}{name}" for k in range(self.decided.size) for name in of]
        return find_display("IntervalsDisplay")(*map(np.ravel, self.bounds), names, "score after retraining")

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        widest = f"{self.bounds.width.max():.2g}" if self.decided.size else "none"
        lines = [("decided", f"{int(self.decided.sum())} of {self.decided.size}"), ("largest width", widest)]
        return f"CertifiedPrediction({self.decided.size} queries)", lines


@final
class Proofs:
    """What a stored model and the changes since prove about the model that retraining would give.

    A query is answered by the stored model where that costs no more than the change, then by Newton steps under the local
    certificate, each at the price of one iteration of a training, and then by a training. What was computed is kept:
    a second query costs only its own bounds.
    """

    def __init__(self, solution: Solution, change: Change, loses_rows: bool) -> None:
        self.solution, self.change, self.loses_rows = solution, change, loses_rows
        self.fresh = isinstance(change, Composite) and not change.steps
        self.plain = is_plain(solution.problem)
        self.several = solution.problem.loss.several
        self._kept: tuple[Region, ...] = ()

    @cached_property
    def after(self) -> ChangedModel:
        """What is proven after the pending changes without training."""
        return change_model(self.solution, self.change, trains=False)

    @cached_property
    def problem(self) -> Problem:
        return self.after.problem if self.plain or self.fresh else self.change.apply(self.solution.problem)

    @cached_property
    def _point(self) -> Point:
        """Where Newton steps and trainings start: the stored model, carried to the changed problem."""
        if self.plain or self.fresh:
            return self.after.carried.point
        return carry_point(self.solution.problem, self.solution.point, self.change)

    @cached_property
    def _carried(self) -> tuple[Region, ...]:
        """Regions around the stored model that cost no more than the change, or the model's own if nothing changed."""
        if not (self.plain or self.fresh):
            return ()
        names = PAPER if self.plain and not self.fresh else EVERY
        return tuple(list_regions(self.after.carried, self.solution.problem.fit_intercept, names))

    @np.errstate(all="ignore")  # overflow ends in infinite bounds: nothing is proven then
    def ask(self, X: Matrix, decided: Decided) -> Answer:
        """What is proven about each query without training, by the cheapest stage that decides it."""
        answer = self._ask_cheaply(X, decided)
        if not answer.open.size or self.several:
            return answer
        found = self.after.bound_untrained(X[answer.open])
        return answer.merge(
            self._with_zeros(X[answer.open], found), decided, "newton", self.after.gap, self.after.radius
        )

    @np.errstate(all="ignore")
    def ask_tightest(self, X: Matrix, decided: Decided) -> Answer:
        """The tightest bounds of all queries without training."""
        if self.several:
            answer = self._ask_classes(X, lambda bounds: np.zeros(len(bounds[0]), dtype=bool))
            stages = np.where(decided(answer.bounds), "newton", "").astype(answer.stage.dtype)
            return replace(answer, stage=stages)
        found = self.after.bound_untrained(X)
        stage = "newton" if has_newton(self.solution.problem) else "carry"
        everything = Answer.start(X.shape[0])
        return everything.merge(self._with_zeros(X, found), decided, stage, self.after.gap, self.after.radius)

    @np.errstate(all="ignore")
    def prove(self, X: Matrix, decided: Decided, may_train: bool) -> tuple[Answer, Solution | None]:
        """Bounds that decide all queries, and the model of a training, where it took one that was allowed.

        The training continues until every query is decided or float64 allows no more progress.
        """
        answer = self._ask_cheaply(X, decided)
        if not (answer.open.size and may_train):
            return answer, None
        queries = X[answer.open]
        if self.several:
            return self._train_classes(queries, decided, answer)
        work = self._refine(queries, decided, answer.open_bounds)
        # A gap of 0 is out of reach: the training ends by a proof, or where float64 allows no more progress.
        solution = work.train(self._point, 0.0, thorough=False, asked=True)
        found, best = self._with_zeros(queries, work.found), solution.certificate
        return answer.merge(found, decided, "training", best.gap, bound_radius(best.gap, best.penalty)), solution

    def _ask_cheaply(self, X: Matrix, decided: Decided) -> Answer:
        """What the stored model proves, then what Newton steps under the local certificate do."""
        if self.several:
            return self._ask_classes(X, decided)
        answer = Answer.start(X.shape[0])
        for stage, regions in (("carry", self._carried), ("newton", self._kept)):
            for region in regions:
                if answer.open.size:
                    queries = X[answer.open]
                    found = self._with_zeros(queries, score_bounds([region], queries, self._dead))
                    answer = answer.merge(found, decided, stage, *self._size(region))
        if answer.open.size and self.after.by_rows:
            region = self.after.row_ellipsoid
            self._kept, queries = (region,), X[answer.open]
            found = self._with_zeros(queries, region.score_bounds(queries))
            return answer.merge(found, decided, "newton" if self.after.n_steps else "carry", *self._size(region))
        if not answer.open.size or not has_local(self.problem):
            return answer
        queries = X[answer.open]
        work = self._refine(queries, decided, answer.open_bounds)
        stage = "carry" if work.step_locally(self._point) == "carry" else "newton"
        if isinstance(work.region, LocalEllipsoid):
            self._kept, self._point = (work.region,), work.region.point
            answer = answer.merge(self._with_zeros(queries, work.found), decided, stage, *self._size(work.region))
        return answer

    def _ask_classes(self, X: Matrix, decided: Decided, stage: str = "newton") -> Answer:
        """With one score per class: what the last ellipsoid proves, then those after Newton steps."""
        answer = Answer.start(X.shape[0], self.problem.n_scores)
        for region in self._kept:
            answer = answer.merge(region.score_bounds(X), decided, stage, *self._size(region))
        if not answer.open.size:
            return answer
        require_classes(self.problem)
        for region in class_ellipsoids(self.problem, self._point):
            if region.nu < MAX_ASKED_GRADIENT and answer.open.size:
                answer = answer.merge(region.score_bounds(X[answer.open]), decided, stage, *self._size(region))
                self._kept, self._point = (region,), region.point
            if not answer.open.size:
                break
        return answer

    def _train_classes(self, X: Matrix, decided: Decided, answer: Answer) -> tuple[Answer, Solution | None]:
        """The answer after training the changed problem to the limits of float64, with one score per class."""
        solution = train(self.problem, tol=CLASS_TRAINED, start=self._point)
        self._kept, self._point = (), solution.point
        found = self._ask_classes(X, decided, "training")
        return answer.merge(found.bounds, decided, "training", found.gap, found.radius), solution

    def _refine(self, X: Matrix, decided: Decided, known: Bounds) -> Refinement:
        return Refinement(self.problem, X, lambda *ends: bool(decided(ends).all()), found=known)

    @property
    def _dead(self) -> NDArray[np.bool_]:
        """Columns whose retrained coefficient is exactly 0; of a plain change without forming the changed problem."""
        return self.after.carried.columns.dead if self.plain or self.fresh else self.problem.dead_columns

    def _with_zeros(self, X: Matrix, known: Bounds) -> Bounds:
        """Bounds without an intercept: a query without an entry that counts has a score of exactly 0."""
        if self.solution.problem.fit_intercept:
            return known
        used = X.absolute_product((~self._dead).astype(np.float64)) > 0.0
        return np.where(used, known[0], 0.0), np.where(used, known[1], 0.0)

    def _size(self, region: Region) -> tuple[float, float]:
        """The gap of a region's centre, and how far it is at most from the retrained model."""
        if isinstance(region, RowEllipsoid):
            return region.gap, region.coef_radius
        if isinstance(region, LocalEllipsoid | ClassEllipsoid):
            return region.gap, bound_radius(region.gap, self.problem.penalty)
        return self.after.carried.gap, bound_radius(self.after.carried.gap, self.after.carried.penalty)

    def retrain(self, tol: float) -> Solution:
        """Train the present problem to a tolerance.

        Where rows went and the warm start was good enough to stay as it is, the training is done from scratch: a stored
        model must not be the old one when a model without these rows was asked for.
        """
        solution = solve(self.problem, tol=tol, start=self._point)
        here, there = solution, self.solution
        same = np.array_equal(here.coef, there.coef) and np.array_equal(here.intercept, there.intercept)
        if same and self.loses_rows:
            solution = solve(self.problem, tol=tol)
        return solution


def bound_radius(gap: float, penalty: Penalty) -> float:
    """How far the coefficients of a model with a gap are at most from the optimal ones; inf where that is unknown."""
    strength = penalty.strong_convexity
    return float(ball_radius(gap / strength)) if strength > 0.0 else np.inf


def make_undetermined_error(
    bounds: ScoreBounds, determined: NDArray[np.bool_], width: float | None
) -> UndeterminedError:
    """The error that says which queries are open, why, and what to do; ``width``: of numbers, None for labels."""
    rows = np.flatnonzero(~determined)
    widest = float(bounds.take(rows).width.max())
    what = "on which side of 0 their scores are" if bounds.lower.ndim == 1 else "which of their scores is the largest"
    why = (
        f"training to the limits of float64 did not prove {what} (intervals up to {widest:.2g} wide)"
        if width is None
        else f"no interval within width={width:.2g} could be proven in float64 (they are up to {widest:.2g} wide; allow for that)"
    )
    return UndeterminedError(
        f"every prediction must be proven; {rows.size} of {determined.size} are not, for queries {list_some(rows, most=10)}: {why}. "
        "predict_certified(X) returns all of them and says which are determined.",
        rows,
    )
