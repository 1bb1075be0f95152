"""A second opinion on proven bounds: retraining in arbitrary precision, by code that the proofs do not share."""

from glru.verify.report import Verification, verify

__all__ = ["Verification", "verify"]
