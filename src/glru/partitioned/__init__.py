"""Data larger than memory, and data on many machines: passes over blocks of rows, with the proofs of the library."""

from glru._handover import register
from glru.partitioned.after import PartitionedAfter
from glru.partitioned.folds import PartitionedCrossValResult
from glru.partitioned.problem import PartitionedProblem
from glru.partitioned.result import PartitionedLOOCVResult
from glru.partitioned.solution import PartitionedSolution
from glru.partitioned.sources import holds

__all__ = [
    "PartitionedAfter",
    "PartitionedCrossValResult",
    "PartitionedLOOCVResult",
    "PartitionedProblem",
    "PartitionedSolution",
]

register(holds, PartitionedProblem)
