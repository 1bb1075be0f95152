"""Choosing features with proof."""

from glru.selection.importance import FeatureImportance, measure_importance
from glru.selection.result import Step, StepwiseResult
from glru.selection.search import Settings, search

__all__ = ["FeatureImportance", "Settings", "Step", "StepwiseResult", "measure_importance", "search"]
