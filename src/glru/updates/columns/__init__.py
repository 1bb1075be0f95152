"""Single columns removed or added, many at once: bounds of the scores of some queries under each retrained model."""

from glru.updates.carried_rows import carried_columns
from glru.updates.columns.folds import Evaluated, FoldColumns, FoldData, has_fold_columns
from glru.updates.columns.local import CandidateScores, LocalColumns, has_local_columns
from glru.updates.columns.models import Block
from glru.updates.columns.screen import RemovalScreen, Tangent
from glru.updates.columns.smooth import SmoothColumns, has_smooth_columns
from glru.updates.columns.subset_rows import SubsetRows
from glru.updates.columns.subsets import SubsetModels, has_subsets
from glru.updates.columns.wide import MOST_CHANGES, Steps, WideColumns, has_wide_columns
