"""What a model becomes after a change: one candidate for one change, or all changes of one kind in a few matrix products."""

from glru.updates.carry import MAX_STEPS, carry, carry_point, find_best_candidate, find_newton_candidate

__all__ = ["MAX_STEPS", "carry", "carry_point", "find_best_candidate", "find_newton_candidate"]
