"""Single columns removed or added, many at once: bounds of the scores of some queries under each retrained model."""

from glru.updates.carried_rows import carried_columns
from glru.updates.columns.local import LocalColumns, has_local_columns
from glru.updates.columns.wide import WideColumns, has_wide_columns

__all__ = [
    "LocalColumns",
    "WideColumns",
    "carried_columns",
    "has_local_columns",
    "has_wide_columns",
]
