"""glru: what a linear model becomes when its training data changes, without retraining it, and with proof."""

from glru import datasets
from glru.after import After, after
from glru.changes import (
    AddColumns,
    AddRows,
    Change,
    EditValues,
    Relabel,
    RemoveColumns,
    RemoveRows,
    Reweight,
)
from glru.display import (
    AfterDisplay,
    DeterminationRateDisplay,
    InfluenceDisplay,
    LOOCVDisplay,
    RegularizationPathDisplay,
)
from glru.losses import Hinge, Huber, Logistic, Loss, SmoothedHinge, Squared, SquaredHinge
from glru.model_selection import (
    CrossValResult,
    LOOCVPath,
    LOOCVResult,
    cross_val_predict,
    loocv,
    loocv_path,
)
from glru.penalties import L1, L2, ElasticNet, Penalty
from glru.point import Point
from glru.problem import Problem
from glru.solution import Solution
from glru.solvers import State, solve

__version__ = "0.1.0"

__all__ = [
    "L1",
    "L2",
    "AddColumns",
    "AddRows",
    "After",
    "AfterDisplay",
    "Change",
    "CrossValResult",
    "DeterminationRateDisplay",
    "EditValues",
    "ElasticNet",
    "Hinge",
    "Huber",
    "InfluenceDisplay",
    "LOOCVDisplay",
    "LOOCVPath",
    "LOOCVResult",
    "Logistic",
    "Loss",
    "Penalty",
    "Point",
    "Problem",
    "RegularizationPathDisplay",
    "Relabel",
    "RemoveColumns",
    "RemoveRows",
    "Reweight",
    "SmoothedHinge",
    "Solution",
    "Squared",
    "SquaredHinge",
    "State",
    "after",
    "cross_val_predict",
    "datasets",
    "loocv",
    "loocv_path",
    "solve",
]
