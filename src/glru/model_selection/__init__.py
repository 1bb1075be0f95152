"""Choosing models by what they would have predicted for data they were not trained on."""

from glru.model_selection.api import cross_val_predict, loocv
from glru.model_selection.classes import ClassesLOOCVResult
from glru.model_selection.cross_validation import CrossValResult
from glru.model_selection.drop_ins import cross_val_score
from glru.model_selection.path import LOOCVPath, loocv_path
from glru.model_selection.result import LOOCVResult

__all__ = [
    "ClassesLOOCVResult",
    "CrossValResult",
    "LOOCVPath",
    "LOOCVResult",
    "cross_val_predict",
    "cross_val_score",
    "loocv",
    "loocv_path",
]
