"""Candidates for the retrained model: the old optimum carried over, or one Newton step of the new problem from there."""

from glru.candidates.carry import carried_point, carry
from glru.candidates.newton import newton_candidate

__all__ = ["carried_point", "carry", "newton_candidate"]
