"""What is proven of the retrained model now: first from the carried model, then from Newton steps, then by training."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.after import After, after, has_newton
from glru.bounds import Bounds, ScoreBounds, intersect, unbounded
from glru.certificate import Certificate, ball_radius
from glru.changes import Change
from glru.linalg import Array, Matrix
from glru.refine import Refinement
from glru.regions import PAPER, Region, regions_of, score_bounds
from glru.solution import Solution
from glru.solvers import solve

SHOWN = 10
"""How many queries an error names."""

Decided = Callable[[Array, Array], NDArray[np.bool_]]
"""Whether bounds of scores are as tight as an answer needs."""


@final
@dataclass(frozen=True, eq=False)
class Answer:
    """Bounds of queried scores under the retrained model, and how they were found.

    Attributes
    ----------
    bounds : ScoreBounds
        The bounds.
    stage : array of str of shape (n_queries,)
        Which stage decided each query: "carry", "newton", "training", or "" where it is open.
    gap, radius : float
        Of the best candidate that was needed; inf where nothing is known.
    """

    bounds: ScoreBounds
    stage: NDArray[np.str_]
    gap: float
    radius: float

    @property
    def open(self) -> NDArray[np.intp]:
        """The queries that are not decided."""
        return np.flatnonzero(self.stage == "")

    @property
    def open_bounds(self) -> ScoreBounds:
        """What is known of these."""
        return self.bounds.take(self.open)

    def count(self, stage: str) -> int:
        """How many queries a stage decided."""
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
@dataclass(frozen=True, eq=False)
class CertifiedPrediction:
    """Predictions of a model retrained on the present data, and which of them are proven.

    Attributes
    ----------
    predictions : array of shape (n_queries,)
        Labels, or numbers in a regression. Where they are not determined, those of the stored model.
    determined : array of bool of shape (n_queries,)
        Whether a label is proven, or a number is known to within ``width``.
    bounds : ScoreBounds
        Proven bounds of the scores.
    """

    predictions: NDArray[Any]
    determined: NDArray[np.bool_]
    bounds: ScoreBounds

    @property
    def lower(self) -> Array:
        """Lower bounds of the scores."""
        return self.bounds.lower

    @property
    def upper(self) -> Array:
        """Upper bounds of the scores."""
        return self.bounds.upper


@final
@dataclass(frozen=True, eq=False)
class Proof:
    """A certificate and the regions that hold the retrained model, the most telling first."""

    certificate: Certificate
    regions: Sequence[Region]
    fit_intercept: bool

    def bounds(self, X: Matrix, decided: Decided | None, known: Bounds) -> Bounds:
        """Known bounds of queries made tighter, region by region until all are decided, or by all regions."""
        dead = self.certificate.columns.dead
        for region in self.regions:
            if decided is not None and decided(*known).all():
                break
            known = intersect(known, score_bounds([region], X, dead))
        return known if self.fit_intercept else _with_zeros(X, dead, known)


@final
class Proofs:
    """What a stored model and the changes since prove about the model that retraining would give.

    Everything is computed once and kept: a second query costs only its own bounds.
    """

    def __init__(self, solution: Solution, change: Change, loses_rows: bool) -> None:
        self.solution, self.change, self.loses_rows = solution, change, loses_rows
        self.fit_intercept = solution.problem.fit_intercept

    @cached_property
    def after(self) -> After:
        """The core's answer to the pending change."""
        return after(self.solution, self.change)

    @cached_property
    def carried(self) -> Proof:
        """What the stored model itself proves, at the cost of the change where the core has that."""
        regions = list(regions_of(self.after.carried, self.fit_intercept, PAPER))
        return Proof(self.after.carried, regions, self.fit_intercept)

    @cached_property
    def newton(self) -> Proof:
        """All that is proven without training."""
        return Proof(self.after.certificates[0], self.after.regions, self.fit_intercept)

    def ask(self, X: Matrix, decided: Decided) -> Answer:
        """The cheapest certificate that settles each query; what is open stays open."""
        bounds = ScoreBounds(*self.carried.bounds(X, decided, unbounded(X.shape[0])))
        stage = np.where(decided(*bounds), "carry", "").astype("<U8")
        answer = Answer(bounds, stage, self.after.carried.gap, radius_of(self.after.carried))
        if not answer.open.size or not has_newton(self.solution.problem):
            return answer
        tighter = self.newton.bounds(X[answer.open], decided, answer.open_bounds)
        return merge(answer, tighter, decided, "newton", self.newton.certificate)

    def tightest(self, X: Matrix, decided: Decided) -> Answer:
        """The tightest bounds there are without training, for all queries."""
        bounds = ScoreBounds(*self.newton.bounds(X, None, unbounded(X.shape[0])))
        name = "newton" if has_newton(self.solution.problem) else "carry"
        stage = np.where(decided(*bounds), name, "")
        best = self.newton.certificate
        return Answer(bounds, stage, best.gap, radius_of(best))

    def train(self, X: Matrix, decided: Decided, known: Bounds) -> tuple[Solution, Bounds]:
        """Train until every query is decided, or as far as float64 goes."""
        after, everything = self.after, lambda *ends: bool(decided(*ends).all())
        work = Refinement(after.problem, X, everything, found=known)
        # A gap of 0 is out of reach: the training ends by a proof, or where float64 allows no more progress.
        solution = work.train(after.point, 0.0)
        if self.fit_intercept:
            return solution, work.found
        return solution, _with_zeros(X, after.problem.dead_columns, work.found)

    def refreshed(self, tol: float) -> Solution:
        """Train the present problem to a tolerance.

        Where rows went and the warm start was good enough to stay as it is, the training is done from scratch: a stored
        model must not be the old one when somebody asked for one without these rows.
        """
        solution = self.after.retrain(tol=tol)
        same = np.array_equal(solution.coef, self.solution.coef) and solution.intercept == self.solution.intercept
        if same and self.loses_rows:
            solution = solve(self.after.problem, tol=tol)
        return solution


def _with_zeros(X: Matrix, dead: NDArray[np.bool_], known: Bounds) -> Bounds:
    """Bounds without an intercept: a query without an entry that counts has a score of exactly 0."""
    used = X.absolute_product((~dead).astype(np.float64)) > 0.0
    return np.where(used, known[0], 0.0), np.where(used, known[1], 0.0)


def merge(answer: Answer, bounds: Bounds, decided: Decided, stage: str, certificate: Certificate) -> Answer:
    """An answer with what a further stage proves of the queries that were open."""
    rows, stages = answer.open, answer.stage.copy()
    lower, upper = answer.bounds.lower.copy(), answer.bounds.upper.copy()
    lower[rows], upper[rows] = intersect(answer.open_bounds, bounds)
    stages[rows[decided(lower[rows], upper[rows])]] = stage
    return Answer(ScoreBounds(lower, upper), stages, certificate.gap, radius_of(certificate))


def radius_of(certificate: Certificate) -> float:
    """How far the optimal coefficients can be from the certificate's; inf where that is unknown."""
    strength = certificate.penalty.strong_convexity
    return float(ball_radius(certificate.gap / strength)) if strength > 0.0 else np.inf


def undetermined(bounds: ScoreBounds, determined: NDArray[np.bool_], width: float | None) -> UndeterminedError:
    """The error that says which queries are open, why, and what to do; ``width``: of numbers, None for labels."""
    rows = np.flatnonzero(~determined)
    named = ", ".join(map(str, rows[:SHOWN].tolist())) + (", ..." if rows.size > SHOWN else "")
    widest = float(bounds.take(rows).width.max())
    why = (
        f"training as far as float64 goes did not prove on which side of 0 their scores are (intervals up to {widest:.2g} wide)"
        if width is None
        else f"no interval within width={width:.2g} could be proven in float64 (they are up to {widest:.2g} wide; allow for that)"
    )
    return UndeterminedError(
        f"every prediction must be proven; {rows.size} of {determined.size} are not, for queries {named}: {why}. "
        "predict_certified(X) returns all of them and says which are determined.",
        rows,
    )
