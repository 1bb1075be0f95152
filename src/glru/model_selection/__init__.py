"""Choosing models by what they would have predicted for data they were not trained on."""

from glru.model_selection.cross_validation import CrossValResult, cross_val_predict
from glru.model_selection.loocv import loocv
from glru.model_selection.path import LOOCVPath, loocv_path
from glru.model_selection.result import LOOCVResult

__all__ = ["CrossValResult", "LOOCVPath", "LOOCVResult", "cross_val_predict", "loocv", "loocv_path"]
