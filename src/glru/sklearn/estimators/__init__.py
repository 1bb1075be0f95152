"""Estimators for scikit-learn's pipelines and searches, with the answers of this library after the fit."""

from glru.sklearn.estimators.linear import GLRUClassifier, GLRURegressor
from glru.sklearn.estimators.selection import CertifiedRFECV, StepwiseSelector
from glru.sklearn.estimators.tuned import GLRUClassifierCV, GLRURegressorCV

__all__ = [
    "CertifiedRFECV",
    "GLRUClassifier",
    "GLRUClassifierCV",
    "GLRURegressor",
    "GLRURegressorCV",
    "StepwiseSelector",
]
