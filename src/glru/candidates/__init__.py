"""Candidates for the retrained model: the old optimum carried over, or Newton steps of the new problem from there."""

from glru.candidates.carry import carry
from glru.candidates.mapping import carried_point
from glru.candidates.newton import MAX_STEPS, best_candidate, newton_candidate

__all__ = ["MAX_STEPS", "best_candidate", "carried_point", "carry", "newton_candidate"]
