"""A dataset: data, targets and where they come from."""

from dataclasses import dataclass
from typing import Literal, final

from glru.datasets.normalization import Strategy
from glru.linalg import Array, RawMatrix

Task = Literal["classification", "regression"]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Data as their source has them, with targets -1/+1 (classification) or real (regression).

    Attributes
    ----------
    name : str
        What it is called.
    X : array or CSR array of shape (n_rows, n_columns)
        Values, not normalised.
    y : array of shape (n_rows,)
        Targets.
    task : {"classification", "regression"}
        What the targets are.
    classes : tuple of str or None
        What -1 and +1 stand for.
    feature_names : tuple of str or None
        Names of the columns, where the source gives them.
    normalization : {"dense", "sparse"}
        The strategy that suits it; for the paper's datasets, the paper's.
    source : str
        Where it was found.
    """

    name: str
    X: RawMatrix
    y: Array
    task: Task
    classes: tuple[str, str] | None
    feature_names: tuple[str, ...] | None
    normalization: Strategy
    source: str

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, {self.X.shape[0]} rows x {self.X.shape[1]} columns, {self.task}, {self.source})"
