"""Single columns removed or added, many at once: bounds of the scores of some queries under each retrained model."""

from glru.families.columns.carried import carried_columns
from glru.families.columns.local import LocalColumns, has_local_columns
from glru.families.columns.wide import WideColumns, has_wide_columns

__all__ = [
    "LocalColumns",
    "WideColumns",
    "carried_columns",
    "has_local_columns",
    "has_wide_columns",
]
