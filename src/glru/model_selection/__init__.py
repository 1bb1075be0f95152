"""Choosing models by what they would have predicted for data they were not trained on."""

from glru.model_selection.api import cross_val_predict, loocv
from glru.model_selection.classes import ClassesLOOCVResult
from glru.model_selection.cross_validation import CrossValResult
from glru.model_selection.drop_ins import adapted_loocv, cross_val_score
from glru.model_selection.held_out import HeldOut, default_width, held_out
from glru.model_selection.path import LOOCVPath, loocv_path
from glru.model_selection.result import LOOCVResult

__all__ = [
    "ClassesLOOCVResult",
    "CrossValResult",
    "HeldOut",
    "LOOCVPath",
    "LOOCVResult",
    "adapted_loocv",
    "cross_val_predict",
    "cross_val_score",
    "default_width",
    "held_out",
    "loocv",
    "loocv_path",
]
