"""glru: what a linear model becomes when its training data changes, without retraining it, and with proof."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from glru import datasets, display, results
from glru.api import (
    after,
    certify,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    feature_importance,
    influence,
    jackknife,
    loocv,
    stepwise,
)
from glru.changes import (
    AddColumns,
    AddRows,
    Change,
    EditValues,
    Relabel,
    RemoveColumns,
    RemoveRows,
    Repenalise,
    Reweight,
)
from glru.live import LiveModel, verify_receipt
from glru.losses import (
    Gamma,
    Hinge,
    Huber,
    Logistic,
    Multinomial,
    NegativeBinomial,
    Poisson,
    SmoothedHinge,
    Squared,
    SquaredHinge,
    Tweedie,
)
from glru.model_selection import loocv_path
from glru.penalties import L1, L2, ElasticNet
from glru.problem import Point, Problem
from glru.solution import Solution
from glru.solvers import solve
from glru.verify import verify

if TYPE_CHECKING:
    from glru.sklearn.estimators import (
        CertifiedRFECV,
        GLRUClassifier,
        GLRUClassifierCV,
        GLRURegressor,
        GLRURegressorCV,
        StepwiseSelector,
    )

__version__ = "0.2.0"

__all__ = [
    "L1",
    "L2",
    "AddColumns",
    "AddRows",
    "CertifiedRFECV",
    "Change",
    "EditValues",
    "ElasticNet",
    "GLRUClassifier",
    "GLRUClassifierCV",
    "GLRURegressor",
    "GLRURegressorCV",
    "Gamma",
    "Hinge",
    "Huber",
    "LiveModel",
    "Logistic",
    "Multinomial",
    "NegativeBinomial",
    "Point",
    "Poisson",
    "Problem",
    "Relabel",
    "RemoveColumns",
    "RemoveRows",
    "Repenalise",
    "Reweight",
    "SmoothedHinge",
    "Solution",
    "Squared",
    "SquaredHinge",
    "StepwiseSelector",
    "Tweedie",
    "after",
    "certify",
    "cross_val_predict",
    "cross_val_score",
    "cross_validate",
    "datasets",
    "display",
    "feature_importance",
    "influence",
    "jackknife",
    "loocv",
    "loocv_path",
    "results",
    "solve",
    "stepwise",
    "verify",
    "verify_receipt",
]


def __getattr__(name: str) -> Any:
    # The estimators derive from scikit-learn's classes, which are imported only for those who use them.
    if name in __all__ and (name.startswith("GLRU") or name in ("CertifiedRFECV", "StepwiseSelector")):
        return getattr(import_module("glru.sklearn.estimators"), name)
    raise AttributeError(f"module 'glru' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
