"""Choosing models by what they would have predicted for data they were not trained on."""

from glru.model_selection.cross_validation import CrossValResult, held_out_folds
from glru.model_selection.loocv import LOOCVPath, leave_one_out, loocv_path
from glru.model_selection.result import LOOCVResult

__all__ = ["CrossValResult", "LOOCVPath", "LOOCVResult", "held_out_folds", "leave_one_out", "loocv_path"]
