"""Results of every row, written block by block to Parquet files as they are found."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru._extras import require
from glru._files import refuse_input
from glru.linalg import Array


@final
@dataclass(frozen=True)
class Output:
    """A directory with one Parquet file per block: columns ``row``, ``y``, ``score_lower``, ``score_upper``, ``decided_by``.

    A file is written beside its place and then moved there, so that a task that is run twice leaves the same file.
    """

    folder: str

    def file(self, number: int) -> Path:
        """The file of a block."""
        return Path(self.folder) / f"part-{number:06d}.parquet"

    def write(
        self, number: int, start: int, y: Array | NDArray[np.int8], lower: Array, upper: Array, stages: NDArray[np.str_]
    ) -> None:
        """Write the rows of a block."""
        pl = require("polars", "cli", "writing Parquet files")
        columns: dict[str, Any] = {"row": np.arange(start, start + y.size), "y": y}
        columns |= {"score_lower": lower, "score_upper": upper, "decided_by": stages}
        self._store(number, pl.DataFrame(columns))

    def amend(
        self, number: int, places: NDArray[np.int64], lower: Array, upper: Array, stages: NDArray[np.str_]
    ) -> None:
        """Put better bounds of some rows (by their positions in the block) into the file of a block."""
        pl = require("polars", "cli", "writing Parquet files")
        frame = pl.read_parquet(self.file(number))
        columns = {name: frame[name].to_numpy().copy() for name in frame.columns}
        columns["score_lower"][places], columns["score_upper"][places] = lower, upper
        columns["decided_by"][places] = stages
        self._store(number, pl.DataFrame(columns))

    def _store(self, number: int, frame: Any) -> None:
        place = self.file(number)
        draft = place.with_suffix(f".{os.getpid()}-{id(frame)}.draft")
        frame.write_parquet(draft)
        os.replace(draft, place)


def open_output(folder: str | Path, inputs: Iterable[str] = ()) -> Output:
    """The output in a folder, which is made if it is not there.

    A folder with anything in it is refused, results of an earlier run or data; and so is one that is, is in or holds any of the
    ``inputs``.
    """
    place = Path(folder).absolute()
    refuse_input(place, "output", inputs)
    if place.exists() and not place.is_dir():
        raise ValueError(f"output must be a directory; {str(folder)!r} is a file. Choose another.")
    place.mkdir(parents=True, exist_ok=True)
    held = next(iter(sorted(place.iterdir())), None)
    if held is not None:
        raise ValueError(
            f"output must be an empty or a new directory; {str(folder)!r} holds {held.name!r}, results of an earlier run or data. "
            "Choose another."
        )
    return Output(str(place))
