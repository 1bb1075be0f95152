"""Where rows come from: memory (one block), memory maps, Parquet files and dask, with ``map`` and ``sum`` over their blocks."""

from glru.rows.block import MAX_CLASSES, MAX_COLUMNS, Block, LabelCounts, Max, Sample, WeightSummary, weigh
from glru.rows.passes import Absent, Blocks, Located, Memory, Rows, Totals, Traffic, read_rows, sum_totals
from glru.rows.sources import BLOCK_BYTES, is_out_of_memory
