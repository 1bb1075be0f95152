"""Models whose data keeps changing: answered from certificates, trained when they must be, with receipts of deletions."""

from glru.live.history import CertificateEntry, ChangeEntry, TrainingEntry
from glru.live.model import LiveModel, UndeterminedWarning
from glru.live.verification import Verification, verify_receipt

__all__ = [
    "CertificateEntry",
    "ChangeEntry",
    "LiveModel",
    "TrainingEntry",
    "UndeterminedWarning",
    "Verification",
    "verify_receipt",
]
