"""Models judged by their own leave-one-out scores, and by several judges together."""

from typing import Literal, final

import numpy as np

from glru.linalg import gamma
from glru.model_selection.loocv import leave_one_out
from glru.selection.criteria import Criterion
from glru.selection.judge import Check, Enough, Judge, Model, Move, Screened, Worth
from glru.solution import Solution
from glru.solvers import solve


@final
class LeaveOneOutJudge(Judge):
    """A model judged by its own leave-one-out scores: every move is trained and validated."""

    def __init__(self, model: Model, criterion: Criterion) -> None:
        self.model, self.criterion = model, criterion

    @property
    def n_rows(self) -> int:
        return self.model.whole.n_rows

    def value(self) -> Worth:
        return self._worth(self.model.solution, "certified")

    def screen(self, moves: list[Move], method: str, check: Check) -> Screened:
        none = np.zeros(len(moves))
        return Screened(none, np.full(len(moves), np.inf), none, "carry")

    def look(self, move: Move, enough: Enough, method: str, tol: float) -> Worth:
        problem, point, _ = self.model.trial(move)
        solution = solve(problem, tol=tol, start=point)
        return self._worth(solution, "naive" if method == "naive" else "certified")

    def after(self, move: Move) -> "LeaveOneOutJudge":
        return LeaveOneOutJudge(self.model.after(move), self.criterion)

    def _worth(self, solution: Solution, method: Literal["naive", "certified"]) -> Worth:
        y = solution.problem.y
        width = None if self.criterion.counts or method == "naive" else self._width(solution)
        result = leave_one_out(solution, method=method, width=width)
        low, high = self.criterion.sums(y, result.score_lower, result.score_upper)
        guess = float(self.criterion.terms(y, result.scores, result.scores)[1].sum())
        return Worth(float(low), float(high), "training" if method == "naive" else "loocv", guess)

    def _width(self, solution: Solution) -> float:
        """How well held-out scores have to be known for a sum to half the resolution.

        A log-loss moves by less than its score times itself; a square by twice the residual, which is at least about as
        large held out as in training.
        """
        residual = solution.scores - solution.problem.y
        scale = float(np.sqrt(np.mean(residual**2))) if self.criterion.name == "mse" else 1.0
        return 0.25 * self.criterion.resolution * (scale or 1.0)


@final
class Panel(Judge):
    """Several judges, one a fold; the sums add up."""

    def __init__(self, judges: list[Judge], criterion: Criterion) -> None:
        self.judges, self.criterion = judges, criterion
        self._screened: dict[tuple[int, ...], list[tuple[float, float]]] = {}
        # Numbers of rows are added without an error.
        self._off = 0.0 if criterion.counts else gamma(len(judges) + 2)

    @property
    def n_rows(self) -> int:
        return sum(judge.n_rows for judge in self.judges)

    def value(self) -> Worth:
        return self._added([judge.value() for judge in self.judges])

    def screen(self, moves: list[Move], method: str, check: Check) -> Screened:
        found = [judge.screen(moves, method, check) for judge in self.judges]
        self._screened = {move.columns: [(s.lower[k], s.upper[k]) for s in found] for k, move in enumerate(moves)}
        lower, upper = np.sum([s.lower for s in found], axis=0), np.sum([s.upper for s in found], axis=0)
        certain = np.sum([s.certain for s in found], axis=0)
        return Screened(lower * (1.0 - self._off), upper * (1.0 + self._off), certain, found[0].stage)

    def look(self, move: Move, enough: Enough, method: str, tol: float) -> Worth:
        known = self._screened.get(move.columns, [(0.0, np.inf)] * len(self.judges))
        parts = [Worth(float(low), float(high), "carry", float(high)) for low, high in known]
        for k, judge in enumerate(self.judges):
            if parts[k].upper <= parts[k].lower:
                continue
            rest = [part for other, part in enumerate(parts) if other != k]
            parts[k] = judge.look(move, _shifted(enough, rest), method, tol)
            whole = self._added(parts)
            if enough(whole.lower, whole.upper):
                break
        return self._added(parts)

    def ties(self, moves: list[Move], check: Check) -> list[int]:
        labels = np.array([judge.ties(moves, check) for judge in self.judges])
        # Equal sums are claimed only where all folds agree.
        agreed = np.all(labels == labels[0], axis=0)
        return np.where(agreed, labels[0], len(moves) + 1 + np.arange(len(moves))).tolist()

    def after(self, move: Move) -> "Panel":
        return Panel([judge.after(move) for judge in self.judges], self.criterion)

    def _added(self, parts: list[Worth]) -> Worth:
        stages = ("training", "loocv", "refine", "newton", "carry")
        stage = min((part.stage for part in parts), key=stages.index)
        lower, upper, guess = (sum(getattr(part, name) for part in parts) for name in ("lower", "upper", "guess"))
        return Worth(lower * (1.0 - self._off), upper * (1.0 + self._off), stage, guess)


def _shifted(enough: Enough, rest: list[Worth]) -> Enough:
    """The same question where the other folds add something."""
    low, high = sum(part.lower for part in rest), sum(part.upper for part in rest)
    return lambda lower, upper: enough(lower + low, upper + high)
