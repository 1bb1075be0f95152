"""What is proven of the retrained model now: first from the carried model, then from Newton steps, then by training."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from glru._numerics import Array, Matrix
from glru.after import After, Retraining, after, has_newton
from glru.certificate import Certificate, absolute_product, ball_radius, certify
from glru.live.ledger import Ledger
from glru.regions import Bounds, LocalEllipsoid, Region, has_local, intersected, regions_of, score_bounds
from glru.solution import Solution
from glru.solvers import State, solve

LIMIT = 1e-13
"""The relative gap at which a training for open queries gives up: float64 hardly goes further."""

Settled = Callable[[Array, Array], NDArray[np.bool_]]
"""Whether bounds of scores are as tight as an answer needs."""


@final
@dataclass(frozen=True, eq=False)
class Answer:
    """Bounds of queried scores under the retrained model, and how they were found.

    Attributes
    ----------
    lower, upper : array of shape (n_queries,)
        The bounds.
    stage : array of str of shape (n_queries,)
        Which stage settled each query: "carry", "newton", "training", or "" where it is open.
    gap, radius : float
        Of the best candidate that was needed; inf where nothing is known.
    """

    lower: Array
    upper: Array
    stage: NDArray[np.str_]
    gap: float
    radius: float

    @property
    def open(self) -> NDArray[np.intp]:
        """The queries that are not settled."""
        return np.flatnonzero(self.stage == "")

    def settled_by(self, stage: str) -> int:
        """How many queries a stage settled."""
        return int(np.count_nonzero(self.stage == stage))


@final
class Outlook:
    """What a stored model and the changes since prove about the model that retraining would give.

    Everything is computed once and kept: a second query costs only its own bounds.
    """

    def __init__(self, solution: Solution, ledger: Ledger) -> None:
        self.solution, self.ledger = solution, ledger
        self.fit_intercept = solution.problem.fit_intercept

    @cached_property
    def after(self) -> After:
        """The core's answer to the pending change."""
        return after(self.solution, self.ledger.change)

    @cached_property
    def _carried(self) -> list[Region]:
        return regions_of(self.after.carried, self.fit_intercept, "auto")

    def carried(self, X: Matrix) -> Bounds:
        """Bounds from the stored model itself, at the cost of the change where the core has that."""
        dead = self.after.carried.columns.dead
        return self._exact(X, dead, score_bounds(self._carried, X, dead))

    def full(self, X: Matrix) -> Bounds:
        """The tightest bounds there are without training."""
        return self._exact(X, self.after.certificates[0].columns.dead, self.after.score_bounds(X))

    def _exact(self, X: Matrix, dead: NDArray[np.bool_], bounds: Bounds) -> Bounds:
        """The bounds, with an exact 0 where a query has no entry that counts and there is no intercept."""
        if self.fit_intercept:
            return bounds
        used = absolute_product(X, (~dead).astype(np.float64)) > 0.0
        return np.where(used, bounds[0], 0.0), np.where(used, bounds[1], 0.0)

    def ask(self, X: Matrix, settled: Settled) -> Answer:
        """The cheapest certificate that settles each query; what is open stays open."""
        lower, upper = self.carried(X)
        stage = np.where(settled(lower, upper), "carry", "").astype("<U8")
        answer = Answer(lower, upper, stage, self.after.carried.gap, radius_of(self.after.carried))
        if not answer.open.size or not has_newton(self.solution.problem):
            return answer
        best = self.after.certificates[0]
        return joined(answer, self.full(X[answer.open]), settled, "newton", best)

    def tightest(self, X: Matrix, settled: Settled) -> Answer:
        """The tightest bounds there are without training, for all queries."""
        lower, upper = self.full(X)
        name = "newton" if has_newton(self.solution.problem) else "carry"
        stage = np.where(settled(lower, upper), name, "")
        best = self.after.certificates[0]
        return Answer(lower, upper, stage, best.gap, radius_of(best))

    def train(self, X: Matrix, settled: Settled) -> tuple[Solution, Bounds]:
        """Train from the best candidate until every query is settled, or as far as float64 goes."""
        problem = self.after.problem
        found = self.full(X)

        def enough(state: State) -> bool:
            nonlocal found
            certificate = certify(problem, state.point)
            dead = certificate.columns.dead
            regions = regions_of(certificate, self.fit_intercept, "auto")
            found = intersected(found, self._exact(X, dead, score_bounds(regions, X, dead)))
            if not settled(*found).all() and has_local(problem):
                local = [LocalEllipsoid(certificate, self.fit_intercept)]
                found = intersected(found, self._exact(X, dead, score_bounds(local, X, dead)))
            return bool(settled(*found).all())

        with warnings.catch_warnings():
            # A query on the boundary cannot be settled; the solution's status says so.
            warnings.simplefilter("ignore")
            solution = self.after.retrain(tol=LIMIT, until=enough)
        return solution, found

    def refreshed(self, tol: float) -> Solution:
        """Train the present problem to a tolerance.

        Where rows went and the warm start was good enough to stay as it is, the training is done from scratch: a stored
        model must not be the old one when somebody asked for one without these rows.
        """
        solution = self.after.retrain(tol=tol)
        if self.ledger.gone_rows.size and np.array_equal(solution.coef, self.solution.coef):
            solution = solve(self.after.problem, tol=tol)
        return solution


def joined(answer: Answer, bounds: Bounds, settled: Settled, stage: str, certificate: Certificate) -> Answer:
    """An answer with what a further stage proves of the queries that were open."""
    rows = answer.open
    lower, upper, stages = answer.lower.copy(), answer.upper.copy(), answer.stage.copy()
    lower[rows], upper[rows] = intersected((lower[rows], upper[rows]), bounds)
    stages[rows[settled(lower[rows], upper[rows])]] = stage
    return Answer(lower, upper, stages, certificate.gap, radius_of(certificate))


def radius_of(certificate: Certificate) -> float:
    """How far the optimal coefficients can be from the certificate's; inf where that is unknown."""
    strength = certificate.penalty.strong_convexity
    return float(ball_radius(certificate.gap / strength)) if strength > 0.0 else np.inf


def signs_settled(lower: Array, upper: Array) -> NDArray[np.bool_]:
    """Whether the class is proven: the second one where the score is above 0, else the first, as in scikit-learn."""
    return (lower > 0.0) | (upper <= 0.0)


def width_settled(width: float) -> Settled:
    """Whether a score is known to within a width."""
    return lambda lower, upper: upper - lower <= width


def retraining(answer: Answer, stored: Array, width: float | None) -> Retraining:
    """Whether scores of the stored model change: in sign, or, where a width is given, by more than that."""
    lower, upper = answer.lower, answer.upper
    if width is None:
        settled = signs_settled(lower, upper)
        changes = settled & ((lower > 0.0) != (stored > 0.0))
        stays = settled & ~changes
    else:
        changes = (stored < lower - width) | (stored > upper + width)
        stays = np.maximum(upper - stored, stored - lower) <= width
    verdict: Literal["yes", "no", "undetermined"] = "yes" if changes.any() else "no" if stays.all() else "undetermined"
    flips = np.flatnonzero(~stays)
    return Retraining(verdict, flips, changes[flips])
