"""Choosing features with proof."""

from glru.selection.result import Step, StepwiseResult
from glru.selection.stepwise import stepwise

__all__ = ["Step", "StepwiseResult", "stepwise"]
