"""A model of partitioned rows, with the bound that proves how good it is."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np

from glru._handover import Handover
from glru.linalg import Array
from glru.partitioned.gap import DualGap, Ellipsoid, dual_gap, ellipsoid, penalty_value
from glru.partitioned.problem import PartitionedProblem
from glru.partitioned.sums import Expansion, Model
from glru.solution import Status, relative


@final
@dataclass(frozen=True, eq=False, repr=False)
class PartitionedSolution(Handover):
    r"""A model of a :class:`~glru.PartitionedProblem`. For any model, converged or not, :math:`P(w, b) - P^* \le` ``gap``.

    Dual variables are not kept: a row's is minus the derivative of the loss at its score.

    Attributes
    ----------
    problem : PartitionedProblem
        What was trained.
    coef, intercept : array of shape (n_columns,), float
        The model.
    primal_value : float
        ``P(w, b)``.
    gap, relative_gap : float
        A proven bound of the distance from the optimum, and the same divided by ``P``.
    n_iter, n_passes : int, float
        Outer iterations of the solver, and passes over the data.
    status : {"converged", "max_iter", "stalled", "stopped"}
        Why the solver ended, as in :class:`~glru.Solution`.
    solver : str
        The solver's name.

    Examples
    --------
    >>> import tempfile, numpy as np, glru
    >>> folder = tempfile.TemporaryDirectory()
    >>> X = np.memmap(folder.name + "/X.bin", dtype=float, mode="w+", shape=(400, 3))
    >>> X[:] = np.random.default_rng(0).normal(size=X.shape)
    >>> solution = glru.solve(glru.Problem(X, X[:, 0] > 0.3, penalty=glru.L2(0.1)), tol=1e-9)
    >>> solution.status, solution.relative_gap <= 1e-9
    ('converged', True)
    >>> del X, solution; folder.cleanup()
    """

    problem: PartitionedProblem
    coef: Array
    intercept: float
    primal_value: float
    gap: float
    n_iter: int
    n_passes: float
    status: Status
    solver: str
    expansion: Expansion = field(repr=False)

    @property
    def relative_gap(self) -> float:
        """``gap / primal_value``; zero where both are zero."""
        return relative(self.gap, self.primal_value)

    @property
    def model(self) -> Model:
        """Coefficients and intercept."""
        return Model(self.coef, self.intercept)

    @cached_property
    def ellipsoid(self) -> Ellipsoid | None:
        """Where the optimum is, in the metric of the Hessian at the model; None where there is no Hessian."""
        return None if self.expansion.gram is None else ellipsoid(self.problem, self.model, self.expansion)

    @cached_property
    def dual_gap(self) -> DualGap:
        """The duality gap with the dual point of the model's own derivatives; a pass over the data, or two."""
        return dual_gap(self.problem, self.model)

    def perform(self, function: str, *args: Any, **options: Any) -> Any:
        from glru.partitioned.api import perform

        return perform(self, function, *args, **options)

    def __repr__(self) -> str:
        return (
            f"PartitionedSolution(primal_value={self.primal_value:.10g}, gap={self.gap:.3g}, "
            f"relative_gap={self.relative_gap:.3g}, n_iter={self.n_iter}, n_passes={self.n_passes:.3g}, "
            f"status={self.status!r}, solver={self.solver!r})"
        )


def objective(problem: PartitionedProblem, model: Model, here: Expansion) -> float:
    """``P`` at a model."""
    return here.value + penalty_value(problem, model)


def certified_gap(problem: PartitionedProblem, model: Model, here: Expansion) -> float:
    """The local bound where there is one; otherwise infinite, without a pass over the data."""
    if here.gram is None or problem.loss.self_concordance is None:
        return np.inf
    return ellipsoid(problem, model, here).gap
