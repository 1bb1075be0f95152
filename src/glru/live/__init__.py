"""Models whose data keeps changing: answered from certificates, trained when they must be, with receipts of deletions."""

from glru.live.answers import CertifiedPrediction, UndeterminedError
from glru.live.history import CertificateEntry, ChangeEntry, TrainingEntry
from glru.live.model import LiveModel
from glru.live.verification import Verification, verify_receipt

__all__ = [
    "CertificateEntry",
    "CertifiedPrediction",
    "ChangeEntry",
    "LiveModel",
    "TrainingEntry",
    "UndeterminedError",
    "Verification",
    "verify_receipt",
]
