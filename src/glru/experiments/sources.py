"""The data of the experiments: only what lies on this machine, nothing is downloaded."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from glru import datasets
from glru.datasets.bundled import BUNDLED
from glru.experiments.configuration import Source
from glru.linalg import Array, RawMatrix
from glru.losses import Logistic
from glru.penalties import L2
from glru.problem import Problem


@final
@dataclass(frozen=True, eq=False)
class Data:
    """A normalised dataset of two classes, -1 and +1."""

    X: RawMatrix
    y: Array

    @property
    def facts(self) -> dict[str, Any]:
        """Its shape, for people who read the record."""
        return {"rows": int(self.X.shape[0]), "columns": int(self.X.shape[1]), "positive": int(np.sum(self.y > 0.0))}

    def problem(self, log2_lam: int) -> Problem:
        """The paper's problem: logistic loss, L2 penalty, no intercept, mean of the losses."""
        return paper_problem(self.X, self.y, log2_lam)


def paper_problem(X: RawMatrix, y: Array, log2_lam: int) -> Problem:
    """The paper's problem on some rows and columns."""
    return Problem(X, y, Logistic(), L2(2.0**log2_lam))


def is_here(source: Source) -> bool:
    """Whether a dataset is bundled or lies on this machine."""
    if source.load.partition(":")[0] in BUNDLED:
        return True
    return any(entry.name == source.load and entry.where is not None for entry in datasets.list())


def loaded(source: Source) -> Data:
    """A dataset, normalised as the experiment says."""
    raw = datasets.load(source.load)
    return Data(datasets.normalize(raw.X, source.normalize), raw.y)  # type: ignore[arg-type]
