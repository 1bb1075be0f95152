"""Whole families of changes at once: every row removed in turn, with the cost of a few matrix products."""
