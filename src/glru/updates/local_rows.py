r"""All leave-one-out removals at once, with Newton candidates and the local certificate: O(d^2) a row, no n x n matrix.

The closed form of one removal is that of :mod:`glru.updates.removals`; here the base that all removals start from is found,
and candidates that the closed form leaves open are written down in full and stepped on.
"""

from functools import cached_property
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, intersect
from glru.certificate import score_errors
from glru.linalg import FEW, Array, gamma
from glru.metric.device import column_metric
from glru.problem import Problem
from glru.regions.local import Candidate, gradient_slack
from glru.regions.summed import rough_top
from glru.updates.carried_rows import weight_error
from glru.updates.conjugate import newton_directions
from glru.updates.gradients import Gradients
from glru.updates.removals import Base, Decided, Measure, Measured, Newton, Removals, with_ones

Rows = NDArray[np.intp]

MOST_DRIFT = 0.05
"""The base is found when a Newton step moves no score by more than this (times the self-concordance constant)."""

MOST_STEPS = 4
"""Newton steps to find the base."""


def has_local_rows(problem: Problem) -> bool:
    """Whether the theory applies and the Hessian is formed over the columns."""
    return (
        problem.loss.self_concordance is not None
        and problem.penalty.smooth
        and problem.n_columns <= min(problem.n_rows, problem.largest)
    )


class Start(Candidate, Protocol):
    """Where the base is looked for: a solution, or the base of another family."""

    @property
    def scores(self) -> Array: ...


@final
class LocalRows:
    """The removal of single rows under the local certificate, for weights multiplied by one factor.

    The base of all candidates is a small Newton step away from the solution (``settled``), or a few where the first is
    not small: that takes out what training left, and the factor. The metric is the one before the last step; curvatures
    differ between the two by at most ``e^drift``, ``drift`` the largest move of a score, which is part of ``eta``.
    """

    def __init__(self, solution: Start, factor: float) -> None:
        problem = self.problem = solution.problem
        self.weights = factor * problem.weights
        self.used = self.weights > 0.0
        self.constant = float(problem.loss.self_concordance or 0.0)
        self._settle(solution)
        self.usable = self.eta < 0.5
        if self.usable:
            self._prepare()

    def _settle(self, solution: Start) -> None:
        """Find the base and the metric, and how far both and the scores may be off."""
        problem, drift = self.problem, np.inf
        self._base(solution.coef, solution.intercept, solution.scores)
        for _ in range(MOST_STEPS):
            before = self.scores
            self.metric = column_metric(problem, self.weights * self.bends)
            if not self.metric.eta < 0.5:
                break
            step = self.metric.solve(-self._gradient())
            self._base(self.coef + step[: problem.n_columns], self.intercept + float(step[-1]))
            drift = self.constant * float(np.abs(self.scores - before)[self.used].max())
            if drift <= MOST_DRIFT or not drift <= 1.0:
                break
        self.settled = drift <= MOST_DRIFT
        self.off = score_errors(problem, self.coef, self.intercept, self.scores)
        drift = (drift + self.constant * float(self.off[self.used].max())) * (1.0 + FEW)
        with np.errstate(over="ignore"):
            grown = (1.0 + self.metric.eta) * np.exp(drift) * (1.0 + weight_error(problem)) * (1.0 + FEW)
        self.eta = float(grown) - 1.0

    def _base(self, coef: Array, intercept: float, scores: Array | None = None) -> None:
        """Make a model the base."""
        problem = self.problem
        self.coef, self.intercept = coef, intercept if problem.fit_intercept else 0.0
        self.scores = problem.scores(self.coef, self.intercept) if scores is None else scores
        _, self.slopes, self.bends = problem.loss.expand(problem.y, self.scores)

    def _gradient(self) -> Array:
        """The gradient at the base with the new weights on all rows, the intercept's entry last."""
        problem, pulls = self.problem, self.weights * self.slopes
        lam = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
        gradient = problem.matrix.T @ pulls + lam * self.coef
        return np.append(gradient, pulls.sum()) if problem.fit_intercept else gradient

    def _prepare(self) -> None:
        metric = self.metric
        gradient = self._gradient()
        slack_norm = metric.gradient_norm(np.zeros_like(gradient), self._gradient_errors())
        self.base = Base(metric, self.eta, self.constant, self.problem.loss.smoothness, slack_norm)
        self.step = metric.solve(-gradient)
        self.step_norm = metric.gradient_norm(gradient, np.zeros_like(gradient))
        self.gradients = Gradients(self.problem, self.weights, metric)

    def _gradient_errors(self) -> Array:
        """How far each entry of the gradient at the base may be off."""
        problem, weights, slopes = self.problem, self.weights, self.slopes
        wrong = problem.loss.smoothness * self.off + FEW * np.abs(slopes)
        spread = weight_error(problem) * float(np.sqrt(weights @ slopes**2)) + float(np.sqrt(weights @ wrong**2))
        share = np.sqrt(weights.sum() / problem.weights.sum()) * (1.0 + gamma(problem.n_rows + 4))
        columns = share * problem.column_norms
        if problem.fit_intercept:
            columns = np.append(columns, np.sqrt(weights.sum()) * (1.0 + gamma(problem.n_rows)))
        return gradient_slack(spread, columns, problem.penalty.quadratic, self.coef)

    @cached_property
    def norms(self) -> Array:
        """Norms of all rows in the inverse metric."""
        return self.metric.norms(self.problem.matrix)

    @cached_property
    def top(self) -> float:
        """At least the largest norm of a row that counts."""
        return float(self.norms[self.used].max())

    @cached_property
    def rough_top(self) -> float:
        """The same from the Euclidean norms, which costs nothing."""
        plain = float(self.gradients.plain[self.used].max())
        return rough_top(self.metric, plain)

    def removals(self, rows: Rows) -> Removals:
        """The removals of some rows."""
        X, many = self.problem.matrix, 4 * rows.size > self.problem.n_rows
        norms = self.norms[rows] if many else self.metric.norms(X[rows])
        coef, shift = _split(self.problem, self.step)
        moves = (X @ coef)[rows] + shift if many else X[rows] @ coef + shift
        weights, slopes, bends = self.weights[rows], self.slopes[rows], self.bends[rows]
        return self.base.removals(
            weights, self.scores[rows], self.off[rows], slopes, bends, norms, moves, self.step_norm
        )

    def bounds(self, rows: Rows, decided: Decided) -> Bounds:
        """Bounds of the rows' scores under the models trained without them, from one Newton step in closed form.

        The largest norm of a row enters only the remainder: it is found exactly where the rough one leaves rows open.
        """
        if not self.usable:
            return np.full(rows.size, -np.inf), np.full(rows.size, np.inf)
        removals = self.removals(rows)
        if "norms" in self.__dict__:
            return self.base.bounds(removals, self.top)
        bounds = self.base.bounds(removals, self.rough_top)
        if not np.all(decided(*bounds)):
            bounds = intersect(bounds, self.base.bounds(removals, min(self.top, self.rough_top)))
        return bounds

    def refined(self, rows: Rows, decided: Decided, n_steps: int, exact: bool = False) -> Bounds:
        """Bounds after Newton steps, each written down in full and certified by its own gradient.

        The steps are those of the old Hessian, or ``exact``: each with the Hessian of its own model.
        """
        lower, upper = np.full(rows.size, -np.inf), np.full(rows.size, np.inf)
        if not self.usable:
            return lower, upper
        removals = self.removals(rows)
        places = np.flatnonzero(removals.rest > 0.0)
        rows = rows[places]
        block = with_ones(self.problem.matrix[rows], self.problem.fit_intercept)
        measure, more = self._measure(rows), self._newton(rows) if exact else None
        lower[places], upper[places] = self.base.stepped(
            removals.take(places), block, self._start, self.top, measure, decided, n_steps, more
        )
        return lower, upper

    @property
    def _start(self) -> Array:
        """The base after the step that all removals share."""
        start = np.append(self.coef, self.intercept) if self.problem.fit_intercept else self.coef
        return start + self.step

    def _newton(self, rows: Rows) -> Newton:
        """Newton steps of models without one row each, with their own Hessians."""

        def directions(models: Any, gradients: Any, active: Rows) -> Any:
            entries = rows[active], np.arange(active.size)
            return newton_directions(self.problem, self.weights, models, gradients, self.metric.solve, entries)

        return directions

    def _measure(self, rows: Rows) -> Measure:
        """Measures models without one row each."""

        def measure(models: Any, active: Rows) -> Measured:
            here, arrays = rows[active], self.problem.arrays
            entries = here, np.arange(active.size)
            scores, gradient, nu, error = self.gradients.at(models, without=entries)
            center = arrays.entries(scores, entries)
            scores -= arrays.put(self.scores)[:, None]
            moved = arrays.largest_of(arrays.absolute(arrays.zeroed(scores, entries)), self.used)
            plain = self.gradients.plain
            moved = moved + float(plain.max()) * error[0] + error[1] + float(self.off.max())
            return Measured(center, gradient, nu, moved, plain[here] * error[0] + error[1])

        return measure


def _split(problem: Problem, step: Array) -> tuple[Array, float]:
    return (step[:-1], float(step[-1])) if problem.fit_intercept else (step, 0.0)
