"""What the library's functions do with partitioned problems and their models."""

from collections.abc import Callable
from typing import Any

from glru.partitioned.after import after
from glru.partitioned.folds import cross_val_predict
from glru.partitioned.loocv import loocv
from glru.partitioned.problem import PartitionedProblem
from glru.partitioned.solution import PartitionedSolution
from glru.partitioned.stepwise import stepwise
from glru.partitioned.training import solve

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "solve": solve,
    "loocv": loocv,
    "cross_val_predict": cross_val_predict,
    "after": after,
    "stepwise": stepwise,
}


def perform(model: PartitionedProblem | PartitionedSolution, function: str, *args: Any, **options: Any) -> Any:
    """What the function of that name returns; an error where it does not take partitioned data."""
    if function not in FUNCTIONS:
        names = ", ".join(f"glru.{name}" for name in FUNCTIONS)
        raise TypeError(
            f"glru.{function} does not take partitioned data; {names} do. Make a glru.Problem of rows that fit in memory, "
            "for example of X.compute() or np.asarray(X)."
        )
    return FUNCTIONS[function](model, *args, **options)
