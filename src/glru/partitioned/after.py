"""What a model of partitioned rows becomes when rows leave or come."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru.changes import AddRows, Change, Composite, RemoveRows
from glru.changes.base import Layout, matched_columns, row_positions
from glru.linalg import Array
from glru.partitioned.gap import Ellipsoid
from glru.partitioned.loocv import require_local
from glru.partitioned.problem import PartitionedProblem
from glru.partitioned.retraining import regions
from glru.partitioned.rows import Absent, Rows
from glru.partitioned.solution import PartitionedSolution
from glru.regions.base import widened

STEPS = 3
"""Newton steps of the changed problem."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class PartitionedAfter:
    """What is proven of the model that retraining on changed rows would give.

    Attributes
    ----------
    solution : PartitionedSolution
        The model before the change.
    change : Change
        What happened.
    region : Ellipsoid
        Where the retrained model is.
    n_passes : float
        Passes over the data.

    Examples
    --------
    >>> import tempfile, numpy as np, glru
    >>> folder = tempfile.TemporaryDirectory()
    >>> X = np.memmap(folder.name + "/X.bin", dtype=float, mode="w+", shape=(400, 3))
    >>> X[:] = np.random.default_rng(0).normal(size=X.shape)
    >>> solution = glru.solve(glru.Problem(X, X[:, 0] > 0.3, penalty=glru.L2(0.1)))
    >>> out = glru.after(solution, glru.RemoveRows([3, 17]))
    >>> out.determination_rate(np.asarray(X[:100]))
    1.0
    >>> del X, solution, out; folder.cleanup()
    """

    solution: PartitionedSolution
    change: Change
    region: Ellipsoid
    n_passes: float

    def score_bounds(self, X: Any) -> tuple[Array, Array]:
        """Lower and upper bounds of the retrained model's scores of rows in memory."""
        problem = self.solution.problem
        matrix, names = _inputs.as_matrix(X)
        if matrix.shape[1] != problem.n_columns:
            raise ValueError(f"X must have {problem.n_columns} columns, as the problem has; got {matrix.shape[1]}.")
        return self.region.score_bounds(matched_columns(matrix, names, problem.column_names))

    def labels(self, X: Any) -> NDArray[np.int8]:
        """+1 or -1 where the retrained label is proven, 0 where it is not."""
        lower, upper = self.score_bounds(X)
        return np.where(lower > 0.0, 1, np.where(upper < 0.0, -1, 0)).astype(np.int8)

    def determination_rate(self, X: Any) -> float:
        """The share of labels that are proven."""
        return float(np.mean(self.labels(X) != 0))

    def coef_bounds(self) -> tuple[Array, Array]:
        """Bounds of the retrained coefficients."""
        model, widths = self.region.model, self.region.axis_widths()
        return widened(model.coef, widths[: model.coef.size])

    def intercept_bounds(self) -> tuple[float, float]:
        """Bounds of the retrained intercept."""
        if not self.solution.problem.fit_intercept:
            return 0.0, 0.0
        lower, upper = widened(np.array([self.region.model.intercept]), self.region.axis_widths()[-1:])
        return float(lower[0]), float(upper[0])

    def __repr__(self) -> str:
        return f"PartitionedAfter({self.change!r}, radius={self.region.radius:.3g}, n_passes={self.n_passes:.3g})"


@np.errstate(all="ignore")  # overflow ends in infinite bounds: nothing is proven then
def after(
    solution: PartitionedProblem | PartitionedSolution, change: Change, candidate: str = "auto", bound: str = "auto"
) -> PartitionedAfter:
    """What is proven of the problem after a change; see :func:`glru.after`."""
    if not isinstance(solution, PartitionedSolution):
        raise TypeError("glru.after needs a model; got a problem. Use glru.after(glru.solve(problem), change).")
    problem = solution.problem
    require_local(problem, "after")
    if candidate not in ("auto", "newton") or bound not in ("auto", "local"):
        raise ValueError(
            f"after of partitioned data has candidate='newton' and bound='local' only; got {candidate!r} and {bound!r}."
        )
    if not isinstance(change, Change):
        raise TypeError(f"change must be a glru change such as glru.RemoveRows([3]); got {change!r}.")
    before = problem.traffic.passes
    changed = _changed(problem, change)
    best: Ellipsoid | None = None
    for step, region in enumerate(regions(changed, solution.model)):
        best = region if best is None or region.radius <= best.radius else best
        if step == STEPS:
            break
    assert best is not None
    return PartitionedAfter(solution, change, best, problem.traffic.passes - before)


def _changed(problem: PartitionedProblem, change: Change) -> PartitionedProblem:
    """The problem after rows were removed or added; any other change is refused."""
    layout = Layout(problem.n_rows, problem.n_columns, problem.column_names, problem.classes, problem.penalty)
    change.check(layout)
    steps = change.steps if isinstance(change, Composite) else (change,)
    gone: Absent | None = None
    arrivals: Rows | None = None
    for step in steps:
        if isinstance(step, RemoveRows) and gone is None and arrivals is None:
            gone = Absent(np.sort(row_positions(step.rows, problem.n_rows)).astype(np.int64))
        elif isinstance(step, AddRows) and arrivals is None:
            X, y, weight = step.block(layout)
            arrivals = Rows(X, y, weight, None)
        else:
            raise ValueError(
                "partitioned rows can be removed, added, or removed and then added; "
                f"got {change!r}. Use a glru.Problem of data in memory for other changes."
            )
    return problem.changed(gone, arrivals)
