"""glru: what a linear model becomes when its training data changes, without retraining it, and with proof."""

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
from glru.display import LOOCVDisplay
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
from glru.selection import StepwiseResult, stepwise
from glru.solution import Solution
from glru.solvers import State, solve
from glru.verify import Verification, verify

__version__ = "0.1.0"

__all__ = [
    "L1",
    "L2",
    "AddColumns",
    "AddRows",
    "After",
    "Change",
    "CrossValResult",
    "EditValues",
    "ElasticNet",
    "Hinge",
    "Huber",
    "LOOCVDisplay",
    "LOOCVPath",
    "LOOCVResult",
    "Logistic",
    "Loss",
    "Penalty",
    "Point",
    "Problem",
    "Relabel",
    "RemoveColumns",
    "RemoveRows",
    "Reweight",
    "SmoothedHinge",
    "Solution",
    "Squared",
    "SquaredHinge",
    "State",
    "StepwiseResult",
    "Verification",
    "after",
    "cross_val_predict",
    "loocv",
    "loocv_path",
    "solve",
    "stepwise",
    "verify",
]
