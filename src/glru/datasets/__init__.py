"""Datasets by name and from files, and the paper's normalisation."""

from glru.datasets.catalogue import Entry, list, load
from glru.datasets.contents import Contents, ReadOptions
from glru.datasets.dataset import Dataset
from glru.datasets.files import read
from glru.datasets.normalization import Normalization, normalize
from glru.datasets.preparation import Prepared, PrepareOptions, prepare

__all__ = [
    "Contents",
    "Dataset",
    "Entry",
    "Normalization",
    "PrepareOptions",
    "Prepared",
    "ReadOptions",
    "list",
    "load",
    "normalize",
    "prepare",
    "read",
]
