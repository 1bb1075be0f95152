"""The picture of the paper's Figures 5 and 6: labels proven after more and more changes."""

from collections.abc import Sequence
from typing import Any, Literal, final

import numpy as np

from glru.after import after
from glru.changes import Change
from glru.display.intervals import axes
from glru.linalg import Array
from glru.penalties import L2
from glru.problem import Problem
from glru.solvers import solve

BOUNDS: dict[str, dict[str, Any]] = {
    "primal": {"candidate": "carry", "bound": "primal"},
    "dual": {"candidate": "carry", "bound": "dual"},
    "newton": {"candidate": "newton"},
}
STYLES: dict[str, tuple[str, Any, str]] = {
    "primal": ("Primal-SCB", "--", "o"),
    "dual": ("Dual-SCB", ":", "s"),
    "newton": ("Newton candidate", "-", "D"),
}
BoundName = Literal["primal", "dual", "newton"]


@final
class DeterminationRateDisplay:
    """The share of test labels that is proven without retraining, by the number of changes.

    Parameters
    ----------
    lams : sequence of float
        Strengths of the penalty, one colour each.
    bounds : sequence of {"primal", "dual", "newton"}
        What proves, one line style each: the paper's two bounds around the old optimum, or all bounds around the
        Newton candidate.
    rates : array of shape (n_lams, n_bounds, n_counts)
        Shares of proven labels, after 1, 2, ... changes.
    what : str
        What is changed.

    Examples
    --------
    >>> import glru
    >>> data = glru.datasets.load("breast_cancer")
    >>> X = glru.datasets.prepare(data).X
    >>> problem = glru.Problem(X[:500], data.y[:500], penalty=glru.L2(1.0))
    >>> changes = [(glru.RemoveRows(range(k)), X[500:]) for k in (1, 2, 3)]
    >>> display = glru.display.DeterminationRateDisplay.from_changes(problem, changes, [1.0, 0.1], "rows removed")
    >>> display.rates.shape
    (2, 3, 3)
    """

    def __init__(self, lams: Sequence[float], bounds: Sequence[BoundName], rates: Array, what: str) -> None:
        self.lams, self.bounds, self.rates, self.what = lams, bounds, rates, what

    @classmethod
    def from_changes(
        cls,
        problem: Problem,
        changes: Sequence[tuple[Change, Any]],
        lams: Sequence[float],
        what: str,
        bounds: Sequence[BoundName] = ("primal", "dual", "newton"),
        tol: float = 1e-9,
    ) -> "DeterminationRateDisplay":
        """Train a problem at every strength and count the labels that are proven after each change.

        Parameters
        ----------
        problem : Problem
            The old problem, of a classification; its penalty is replaced.
        changes : sequence of (Change, queries)
            The first, second, ... change and the test rows that fit it.
        lams : sequence of float
            The strengths of the L2 penalty.
        what : str
            What is changed, for the axis.
        bounds : sequence of {"primal", "dual", "newton"}, default=all
            What proves.
        tol : float, default=1e-9
            Relative gap of the trainings.
        """
        if problem.loss.task != "classification":
            raise ValueError("the determination rate is that of labels; got a regression loss.")
        rates = np.empty((len(lams), len(bounds), len(changes)))
        for i, lam in enumerate(lams):
            solution = solve(problem.derive(penalty=L2(float(lam))), tol=tol)
            for j, bound in enumerate(bounds):
                for k, (change, queries) in enumerate(changes):
                    rates[i, j, k] = after(solution, change, **BOUNDS[bound]).determination_rate(queries)
        return cls(lams, bounds, rates, what)

    def plot(self, ax: Any = None) -> "DeterminationRateDisplay":
        """Draw a line for every strength and bound.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if not given.
        """
        import matplotlib as mpl
        from matplotlib.lines import Line2D

        ax = axes(ax)
        counts = np.arange(1, self.rates.shape[2] + 1)
        colors = mpl.colormaps["viridis"](np.linspace(0.0, 0.85, len(self.lams)))
        for lam_rates, color in zip(self.rates, colors, strict=True):
            for bound, line in zip(self.bounds, lam_rates, strict=True):
                _, style, marker = STYLES[bound]
                ax.plot(counts, 100.0 * line, linestyle=style, marker=marker, markersize=4, color=color)
        handles = [
            Line2D([], [], color=color, label=f"lam = {lam:.3g}") for lam, color in zip(self.lams, colors, strict=True)
        ]
        for bound in self.bounds:
            name, style, marker = STYLES[bound]
            handles.append(Line2D([], [], color="black", linestyle=style, marker=marker, markersize=4, label=name))
        ax.legend(handles=handles, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        ax.set_ylim(-2.0, 102.0)
        ax.set_xticks(counts)
        ax.set_xlabel(f"number of {self.what}")
        ax.set_ylabel("labels proven (% of test rows)")
        ax.set_title("Label determination rate")
        self.ax_, self.figure_ = ax, ax.figure
        return self
