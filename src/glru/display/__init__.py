"""Plots of results: the constructor stores the data, ``from_...`` computes it, ``plot`` draws it."""

from glru.display.deletion import DeletionDisplay
from glru.display.paths import IntervalsDisplay, RegularizationPathDisplay, StepwiseDisplay
from glru.display.scores import AfterDisplay, ConfusionDisplay, LOOCVDisplay

__all__ = [
    "AfterDisplay",
    "ConfusionDisplay",
    "DeletionDisplay",
    "IntervalsDisplay",
    "LOOCVDisplay",
    "RegularizationPathDisplay",
    "StepwiseDisplay",
]
