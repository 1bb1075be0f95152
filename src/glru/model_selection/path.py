"""Leave-one-out cross-validation over a grid of penalty strengths."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, final

import numpy as np

from glru._options import check_call
from glru._results import Shown, make_frame, show_interval
from glru.bounds import require_probabilities
from glru.cascade import Report
from glru.linalg import Array
from glru.model_selection.checkpoint import Checkpoint
from glru.model_selection.loocv import ensure_trained, leave_one_out
from glru.model_selection.result import LOOCVResult
from glru.penalties import L2
from glru.problem import Problem, require_problem
from glru.solution import Solution

Criterion = Literal["error", "log_loss", "squared_error", "deviance"]


@final
@dataclass(frozen=True, eq=False, repr=False)
class LOOCVPath(Shown):
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
    criterion: Criterion
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

    def plot(self, ax: Any = None) -> Any:
        """Draw the certified band of the criterion over the grid.

        Parameters
        ----------
        ax : sequence of matplotlib Axes, default=None
            One for each band; a new figure if not given.

        Returns
        -------
        glru.display.RegularizationPathDisplay
        """
        # Pictures are a layer above, and are loaded only for those who draw.
        return import_module("glru.display").RegularizationPathDisplay.from_path(self).plot(ax)

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        proof = "" if self.certified else ", not certified"
        ends = zip(self.lams, self.lower, self.upper, strict=True)
        lines = [(f"{lam:.4g}", show_interval(float(low), float(high))) for lam, low, high in ends]
        return f"LOOCVPath({self.criterion}, best lam {self.best_lam:.4g}{proof})", lines


@check_call
def loocv_path(
    problem: Problem,
    lams: Sequence[float],
    criterion: Criterion | None = None,
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
    task = problem.loss.task
    known: tuple[Criterion, ...] = ("error", "log_loss") if task == "classification" else ("squared_error",)
    known = known if problem.loss.link == "identity" else ("deviance", "squared_error")
    criterion = known[0] if criterion is None else criterion
    if criterion not in known:
        raise ValueError(
            f"criterion {criterion!r} does not fit a {task} loss; got {problem.loss!r}. Use {' or '.join(map(repr, known))}."
        )
    if criterion == "log_loss":
        require_probabilities(criterion, problem.loss)
    if criterion == "log_loss" and width is None:
        width = 1e-6
    grid = np.sort(np.asarray(lams, dtype=np.float64))[::-1]
    if grid.size == 0:
        raise ValueError("lams must hold at least one strength; got none.")
    stored = Checkpoint(checkpoint) if checkpoint is not None else None
    results: list[LOOCVResult] = []
    solution: Solution | None = None
    for lam in grid:
        solution = ensure_trained(problem.derive(penalty=L2(float(lam))), tol, stored, start=solution)
        results.append(leave_one_out(solution, width=width, progress=progress, checkpoint=stored))
    pairs = np.array([_value(result, criterion) for result in results])
    return LOOCVPath(grid, tuple(results), criterion, pairs[:, 0], pairs[:, 1])


def _value(result: LOOCVResult, criterion: Criterion) -> tuple[float, float]:
    if criterion == "error":
        return float(result.errors_lower), float(result.errors_upper)
    return result.metric_bounds(criterion)
