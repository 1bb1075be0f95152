"""Choosing features with proof."""

from glru.selection.result import Step, StepwiseResult
from glru.selection.search import Settings, search

__all__ = ["Settings", "Step", "StepwiseResult", "search"]
