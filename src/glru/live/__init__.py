"""Models whose data keeps changing: answered from certificates, trained when they must be, with receipts of deletions."""

from glru.live.history import CertificateEntry, ChangeEntry, TrainingEntry
from glru.live.model import LiveModel
from glru.live.queries import CertifiedPrediction, UndeterminedError
from glru.live.receipts import ReceiptCheck, verify_receipt

__all__ = [
    "CertificateEntry",
    "CertifiedPrediction",
    "ChangeEntry",
    "LiveModel",
    "ReceiptCheck",
    "TrainingEntry",
    "UndeterminedError",
    "verify_receipt",
]
