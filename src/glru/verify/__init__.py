"""A second opinion on proven bounds: retraining in arbitrary precision, by code that shares nothing with the proofs."""

from glru.verify.report import Verification, verify

__all__ = ["Verification", "verify"]
