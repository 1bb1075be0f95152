"""What a page shows: an experiment, its runs, and the published figures."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import final

from paper.configuration import Catalogue, Experiment
from paper.record import Record

Published = dict[tuple[str, int], dict[str, float]]


@final
@dataclass(frozen=True, eq=False)
class Shown:
    """An experiment with its runs, in the order of its datasets.

    Attributes
    ----------
    experiment : Experiment
        What is shown.
    records : list of Record
        Its runs; those of another experiment where it shows these.
    absent : list of str
        Datasets that it should have run on, and did not.
    published : dict
        The paper's figures by dataset and power of two.
    """

    experiment: Experiment
    records: list[Record]
    absent: list[str]
    published: Published


def shown(catalogue: Catalogue, experiment: Experiment, records: list[Record]) -> Shown:
    """Choose the runs and the published figures of an experiment."""
    measured = next(e for e in catalogue.experiments if e.name == (experiment.runs_of or experiment.name))
    places = {source.key: k for k, source in enumerate(measured.datasets)}
    mine = [record for record in records if record.experiment == measured.name and record.dataset in places]
    mine.sort(key=lambda record: places[record.dataset])
    here = {record.dataset for record in mine}
    absent = [source.title for source in measured.datasets if source.key not in here]
    file = catalogue.folder / "published" / measured.published
    return Shown(experiment, mine, absent, _published(file) if measured.published else {})


def _published(path: Path) -> Published:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    keys = ("dataset", "log2_lam")
    return {
        (row["dataset"], int(row["log2_lam"])): {name: float(row[name]) for name in row if name not in keys}
        for row in rows
    }
