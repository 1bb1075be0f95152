"""Table 3 and Figure 3: leave-one-out cross-validation by every method, timed, with the cost of its trainings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from glru.bounds import ScoreBounds
from glru.cascade import Cascade
from glru.linalg import calm_blas
from glru.model_selection.loocv import leave_one_out, start_run
from glru.model_selection.result import LOOCVResult
from glru.removals.single import SingleRemovals
from glru.solution import Solution
from glru.solvers import solve
from paper.configuration import Method
from paper.sources import Data
from paper.timing import Trainings, timed, trainings


@final
@dataclass(frozen=True)
class Settings:
    """The numbers of a run.

    Attributes
    ----------
    log2_lam : tuple of int
        Strengths of the penalty, as powers of two.
    tol : float
        Relative gap of every training.
    seed : int
        Chooses the rows whose trainings are timed.
    repeats : int
        Of how many runs the shortest time is taken, where a run trains nothing.
    full : int
        With at most this many rows all trainings are done.
    sample : int
        Otherwise, at most this many of the rows that the paper's bound decides, and as many of the others.
    """

    log2_lam: tuple[int, ...]
    tol: float
    seed: int
    repeats: int
    full: int
    sample: int


def _removals(cascade: Cascade) -> SingleRemovals:
    assert isinstance(cascade.removals, SingleRemovals)
    return cascade.removals


@final
@dataclass(frozen=True, eq=False)
class Carried:
    """What the paper's bound leaves open, and the state that its trainings go on from."""

    cascade: Cascade
    seconds: float

    @classmethod
    def of(cls, solution: Solution, bound: str) -> "Carried":
        """Carry the old optimum to every removal."""
        cascade = start_run(solution, bound=bound)
        cascade.run("carry", cascade.open_rows(), _removals(cascade).carry)
        return cls(cascade, cascade.seconds["carry"])

    def stopped_early(self, size: int | None, seed: int) -> Trainings:
        """The trainings of Algorithm 2, each stopped once its label is certain (Remark 3)."""

        def train(row: int) -> float:
            self.cascade.run("training", np.array([row]), _removals(self.cascade).training)
            ends = self.cascade.lower[row], self.cascade.upper[row]
            return float(0.5 * sum(ends)) if self.cascade.decided(*ends) else 0.0

        return trainings(self.cascade.open_rows(), size, seed, train)


def retrainings(solution: Solution, groups: Sequence[Any], size: int | None, seed: int, tol: float) -> list[Trainings]:
    """Warm-started trainings without each row (Algorithm 1), for some groups of rows."""
    problem = solution.problem

    def train(row: int) -> float:
        weight = problem.sample_weight.copy()
        weight[row] = 0.0
        return float(solve(problem.derive(sample_weight=weight), tol=tol, start=solution).scores[row])

    return [trainings(group, size, seed, train) for group in groups]


def measure(data: Data, methods: Sequence[Method], settings: Settings) -> Iterator[dict[str, Any]]:
    """One strength of the penalty after the other."""
    leave_one_out(data.problem(settings.log2_lam[0]))  # compiles
    for log2_lam in settings.log2_lam:
        yield _measured(data, log2_lam, methods, settings)


def _measured(data: Data, log2_lam: int, methods: Sequence[Method], settings: Settings) -> dict[str, Any]:
    fit, solution = timed(lambda: solve(data.problem(log2_lam), tol=settings.tol), settings.repeats)
    certified = leave_one_out(solution)
    size = None if data.y.size <= settings.full else settings.sample
    carried = Carried.of(solution, "primal")
    still_open = carried.cascade.open_rows()
    settled = np.setdiff1d(np.arange(data.y.size), still_open)
    found: dict[str, Any] = {"log2_lam": log2_lam, "fit_seconds": fit, "methods": {}}
    for method in methods:
        if method.method == "naive":
            with calm_blas(solution.problem.work):
                parts = retrainings(solution, (settled, still_open), size, settings.seed, settings.tol)
            found["methods"][method.key] = _naive(parts, certified)
        elif method.method == "glru":
            with calm_blas(solution.problem.work):
                done = Carried.of(solution, method.bound).stopped_early(size, settings.seed)
            found["methods"][method.key] = _glru(carried, done, certified)
        else:
            found["methods"][method.key] = _whole(solution, method, settings.repeats, certified)
    return found


def _naive(parts: list[Trainings], certified: LOOCVResult) -> dict[str, Any]:
    settled, still_open = parts
    rows = np.concatenate([part.items for part in parts])
    scores = np.concatenate([part.scores for part in parts])
    labels = ScoreBounds(scores, scores).signs
    total = sum(part.of for part in parts)
    complete = rows.size == total
    return {
        "seconds": sum(part.total for part in parts),
        "trainings": total,
        "timed": int(rows.size),
        "extrapolated": not complete,
        "errors": int(np.sum(labels != certified.problem.y[rows])) if complete else None,
        "labels_that_differ": _differ(labels, rows, certified),
        "mean_seconds_settled": settled.mean,
        "mean_seconds_open": still_open.mean,
    }


def _glru(carried: Carried, done: Trainings, certified: LOOCVResult) -> dict[str, Any]:
    cascade = carried.cascade
    rows = np.setdiff1d(np.arange(certified.problem.n_rows), cascade.open_rows())
    labels = ScoreBounds(np.append(cascade.lower[rows], done.scores), np.append(cascade.upper[rows], done.scores)).signs
    rows = np.concatenate([rows, done.items])
    complete = rows.size == certified.problem.n_rows
    return done.facts | {
        "seconds": carried.seconds + done.total,
        "bound_seconds": carried.seconds,
        "errors": int(np.sum(labels != certified.problem.y[rows])) if complete else None,
        "labels_that_differ": _differ(labels, rows, certified),
    }


def _whole(solution: Solution, method: Method, repeats: int, certified: LOOCVResult) -> dict[str, Any]:
    """A method that trains next to nothing, run as it is."""
    seconds, result = timed(lambda: leave_one_out(solution, method.method, method.bound), repeats)  # type: ignore[arg-type]
    return {
        "seconds": seconds,
        "trainings": result.n_trainings,
        "errors": result.errors_lower if result.errors_lower == result.errors_upper else None,
        "undetermined": result.errors_upper - result.errors_lower,
        "labels_that_differ": _differ(result.bounds.signs, np.arange(result.y.size), certified),
        "decided_by": result.decided_by,
    }


def _differ(labels: Any, rows: Any, certified: LOOCVResult) -> int:
    """How many labels are not the certified ones."""
    return int(np.sum(labels != certified.bounds.signs[rows]))
