"""The datasets of the benchmarks, normalised as in the paper's Appendix E.3."""

from functools import cache

from glru.datasets.catalogue import data_folder as folder
from paper import sources
from paper.normalization import normalize

__all__ = ["folder", "load"]


@cache
def load(name: str, normalisation: str):
    """``X, y`` of a dataset, normalised as ``"dense"``, ``"sparse"`` or ``"none"``."""
    X, y = sources.load(name)
    return normalize(X, normalisation), y
