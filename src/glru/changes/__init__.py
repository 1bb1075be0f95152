"""Changes of the training data and of the penalty, as values that can be added up."""

from glru.changes.base import Change, Composite, Layout, layout_of
from glru.changes.columns import AddColumns, RemoveColumns
from glru.changes.penalty import Repenalise
from glru.changes.rows import AddRows, EditValues, Relabel, RemoveRows, Reweight

__all__ = [
    "AddColumns",
    "AddRows",
    "Change",
    "Composite",
    "EditValues",
    "Layout",
    "Relabel",
    "RemoveColumns",
    "RemoveRows",
    "Repenalise",
    "Reweight",
    "layout_of",
]
