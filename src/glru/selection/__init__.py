"""Choosing features with proof."""

from glru.selection.result import Step, StepwiseResult
from glru.selection.search import search

__all__ = ["Step", "StepwiseResult", "search"]
