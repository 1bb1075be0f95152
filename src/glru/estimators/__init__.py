"""Estimators for scikit-learn's pipelines and searches, with the answers of this library after the fit."""

from glru.estimators.classifier import GLRUClassifier
from glru.estimators.regressor import GLRURegressor
from glru.estimators.selector import StepwiseSelector
from glru.estimators.tuned import GLRUClassifierCV, GLRURegressorCV

__all__ = ["GLRUClassifier", "GLRUClassifierCV", "GLRURegressor", "GLRURegressorCV", "StepwiseSelector"]
