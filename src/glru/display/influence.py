"""The picture of influence: how far the model moves when a row is removed."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.after import after
from glru.changes import RemoveRows
from glru.display.intervals import BLUE, ORANGE, axes
from glru.linalg import Array, gamma
from glru.solution import Solution


@final
class InfluenceDisplay:
    r"""The rows whose removal moves the model most, with certified intervals of how far.

    The influence of row ``i`` is the distance :math:`\|w^{*(-i)} - w\|_2` between the coefficients retrained without
    it and the present coefficients.

    Parameters
    ----------
    rows : array of int
        The rows, the most influential one first.
    lower, upper : array
        Certified ends of their influence.
    signs : array
        Their labels, -1 or +1; zeros for a regression.
    n_rows : int
        How many rows there are in all.
    certified : bool
        Whether no other row can be more influential than these.
    names : sequence of str or None, default=None
        What the rows are called; their positions if not given.

    Examples
    --------
    >>> import glru
    >>> data = glru.datasets.load("breast_cancer")
    >>> X = glru.datasets.prepare(data).X
    >>> solution = glru.solve(glru.Problem(X, data.y, penalty=glru.L2(0.1)))
    >>> display = glru.display.InfluenceDisplay.from_solution(solution, top=3)
    >>> display.rows, display.certified
    (array([ 38, 297,  68]), True)
    """

    def __init__(
        self,
        rows: NDArray[np.intp],
        lower: Array,
        upper: Array,
        signs: Array,
        n_rows: int,
        certified: bool,
        names: Sequence[str] | None = None,
    ) -> None:
        self.rows, self.lower, self.upper, self.signs = rows, lower, upper, signs
        self.n_rows, self.certified, self.names = n_rows, certified, names

    @classmethod
    def from_solution(
        cls,
        solution: Solution,
        top: int = 20,
        rows: Sequence[int] | None = None,
        names: Sequence[str] | None = None,
    ) -> "InfluenceDisplay":
        """Find the most influential rows of a model.

        The old optimum's bound says for every row how far its removal can move the model at most. The rows are then
        bounded more tightly around the Newton candidate, in that order, until no other row can be among the first ``top``.

        Parameters
        ----------
        solution : Solution
            The model; its penalty must be strongly convex (L2 or elastic net).
        top : int, default=20
            How many rows to show.
        rows : sequence of int, default=None
            The rows to look at; all if not given. What is shown is then certified among these only.
        names : sequence of str, default=None
            What the rows of the data are called.
        """
        problem = solution.problem
        if not problem.penalty.strong_convexity > 0.0:
            raise ValueError(f"influence needs a strongly convex penalty (L2, ElasticNet); got {problem.penalty!r}.")
        if top < 1:
            raise ValueError(f"top must be at least 1; got {top}.")
        chosen = np.arange(problem.n_rows) if rows is None else np.asarray(rows, dtype=np.intp)
        most = np.array([after(solution, RemoveRows([row]), candidate="carry").radius for row in chosen])
        order = np.argsort(-most, kind="stable")
        lower, upper = np.full(chosen.size, -np.inf), most.copy()
        for place, k in enumerate(order):
            if place >= top and np.partition(lower, -top)[-top] >= most[k]:
                break
            lower[k], high = _distance(solution, int(chosen[k]))
            upper[k] = min(upper[k], high)
        first = np.argsort(-(np.where(np.isfinite(lower), 0.5 * (lower + upper), -np.inf)), kind="stable")[:top]
        others = np.delete(upper, first)
        certified = rows is None and (others.size == 0 or bool(others.max() <= lower[first].min()))
        signs = problem.y[chosen[first]] if problem.loss.task == "classification" else np.zeros(first.size)
        return cls(chosen[first], lower[first], upper[first], signs, problem.n_rows, certified, names)

    @property
    def title(self) -> str:
        """What is shown and whether it is proven."""
        proof = "proven" if self.certified else "not proven"
        return f"the {self.rows.size} most influential of {self.n_rows} rows ({proof})"

    def plot(self, ax: Any = None) -> "InfluenceDisplay":
        """Draw an interval for every row.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if not given.
        """
        ax = axes(ax, height=1.4 + 0.22 * self.rows.size)
        places = np.arange(self.rows.size)
        groups = {1.0: ("class +1", BLUE), -1.0: ("class -1", ORANGE), 0.0: ("rows", BLUE)}
        for sign, (name, color) in groups.items():
            mine = self.signs == sign
            if mine.any():
                middle = 0.5 * (self.lower + self.upper)[mine]
                ax.hlines(places[mine], 0.0, middle, color=color, alpha=0.35, linewidth=5)
                ax.hlines(places[mine], self.lower[mine], self.upper[mine], color=color, linewidth=2)
                ax.plot(middle, places[mine], "o", color=color, markersize=5, label=name)
        labels = [str(row) if self.names is None else str(self.names[row]) for row in self.rows]
        ax.set_yticks(places, labels)
        ax.invert_yaxis()
        ax.set_xlim(left=0.0)
        ax.set_ylabel("removed row")
        ax.set_xlabel("how far the coefficients move (Euclidean distance)")
        ax.set_title(self.title)
        if np.any(self.signs):
            ax.legend(loc="lower right", frameon=False)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _distance(solution: Solution, row: int) -> tuple[float, float]:
    """Certified ends of how far the removal of a row moves the coefficients."""
    out = after(solution, RemoveRows([row]))
    moved = float(np.linalg.norm(out.point.coef - solution.coef))
    slack = 4.0 * gamma(solution.coef.size + 8) * (moved + float(np.linalg.norm(solution.coef))) + out.radius
    return max(0.0, moved - slack), moved + slack
