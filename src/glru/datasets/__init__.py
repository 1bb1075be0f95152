"""Load datasets by name, read files, and prepare both for training."""

from glru.datasets.catalogue import Dataset, Entry, list, load
from glru.datasets.check import Check, check_table
from glru.datasets.files import Contents, read
from glru.datasets.preparation import Prepared, prepare

__all__ = ["Check", "Contents", "Dataset", "Entry", "Prepared", "check_table", "list", "load", "prepare", "read"]
