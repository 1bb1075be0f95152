"""What the functions of `glru` return: classes that are not constructed by users, and therefore not in `glru` itself."""

from glru.after import After, Retraining
from glru.deletion import Influence, Jackknife, Ranking
from glru.live.queries import CertifiedPrediction
from glru.live.receipts import ReceiptCheck
from glru.model_selection import CrossValResult, LOOCVPath, LOOCVResult
from glru.selection import FeatureImportance, StepwiseResult
from glru.sklearn.questions import ModelCertificate
from glru.verify import Verification

__all__ = [
    "After",
    "CertifiedPrediction",
    "CrossValResult",
    "FeatureImportance",
    "Influence",
    "Jackknife",
    "LOOCVPath",
    "LOOCVResult",
    "ModelCertificate",
    "Ranking",
    "ReceiptCheck",
    "Retraining",
    "StepwiseResult",
    "Verification",
]
