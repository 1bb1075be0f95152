"""The datasets of the benchmarks, normalised as in the paper's Appendix E.3."""

from functools import cache

from glru import datasets
from glru.datasets.catalogue import data_folder as folder

__all__ = ["folder", "load"]


@cache
def load(name: str, normalisation: str):
    """``X, y`` of a dataset, normalised as ``"dense"``, ``"sparse"`` or ``"none"``."""
    data = datasets.load(name)
    return datasets.normalize(data.X, normalisation), data.y
