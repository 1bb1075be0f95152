"""Plots of results: the constructor stores the data, ``from_...`` computes it, ``plot`` draws it."""

from glru.display.after import AfterDisplay
from glru.display.classes import ConfusionDisplay
from glru.display.deletion import DeletionDisplay
from glru.display.loocv import LOOCVDisplay
from glru.display.named import IntervalsDisplay
from glru.display.path import RegularizationPathDisplay
from glru.display.stepwise import StepwiseDisplay

__all__ = [
    "AfterDisplay",
    "ConfusionDisplay",
    "DeletionDisplay",
    "IntervalsDisplay",
    "LOOCVDisplay",
    "RegularizationPathDisplay",
    "StepwiseDisplay",
]
