"""One run in a JSON file: what was measured, with every setting, the versions, the machine and the data."""

import json
import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

from threadpoolctl import threadpool_info

from glru._files import write_atomically
from glru.cli.output import list_versions
from glru.linalg import n_threads
from paper.configuration import Experiment, Method, Source
from paper.sources import Data

SCHEMA = "glru-run/1"
RUNS = "runs"
"""The folder of the runs beside the rendered pages."""


@final
@dataclass(frozen=True)
class Record:
    """A run of an experiment on a dataset.

    Attributes
    ----------
    experiment, dataset : str
        Which.
    quick : bool
        Whether it is the small version.
    settings, source, methods : dict
        As configured.
    data : dict
        Shape and classes of the data after normalisation.
    environment : dict
        Versions, machine, and when it began.
    results : list of dict
        What was measured.
    """

    experiment: str
    dataset: str
    quick: bool
    settings: dict[str, Any]
    source: dict[str, Any]
    methods: dict[str, dict[str, Any]]
    data: dict[str, Any]
    environment: dict[str, Any]
    results: list[dict[str, Any]]

    def write(self, folder: Path) -> Path:
        """Write the run into the folder of the runs."""
        path = folder / RUNS / f"{self.experiment}--{self.dataset}.json"
        text = json.dumps({"schema": SCHEMA} | asdict(self), indent=1, allow_nan=False) + "\n"
        write_text(path, text)
        return path


def write_text(path: Path, text: str) -> None:
    """Write a text in full or not at all."""

    def write(part: Path) -> None:
        part.write_text(text, encoding="utf-8")

    write_atomically(path, write, make_folder=True)


def recorded(
    experiment: Experiment,
    source: Source,
    data: Data,
    quick: bool,
    begun: dict[str, Any],
    results: list[dict[str, Any]],
) -> Record:
    """The record of a run that has just ended."""
    return Record(
        experiment.name,
        source.key,
        quick,
        dict(experiment.settings),
        asdict(source),
        {method.key: _given(method) for method in experiment.methods},
        data.facts,
        begun | {"ended": _now(), "load_average_at_end": _load()},
        results,
    )


def environment() -> dict[str, Any]:
    """Where and when a run begins; the load average tells how much else the machine was doing."""
    blas = [(i["internal_api"], i["version"], i["num_threads"]) for i in threadpool_info() if i["user_api"] == "blas"]
    return {
        "versions": list_versions(),
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": n_threads(),
            "memory_gib": _memory(),
            "blas": [" ".join(map(str, item)) for item in sorted(set(blas))],
        },
        "begun": _now(),
        "load_average_at_begin": _load(),
    }


def read_records(folder: Path) -> list[Record]:
    """All runs of a folder."""
    paths = sorted((folder / RUNS).glob("*.json"))
    if not paths:
        raise ValueError(f"{folder / RUNS} must hold runs; there are none. Make some with: python -m paper run all")
    found = []
    for path in paths:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values.pop("schema", None) != SCHEMA:
            raise ValueError(f"{path} must be a run of the schema {SCHEMA}. Make it again with: python -m paper run")
        found.append(Record(**values))
    return found


def _given(method: Method) -> dict[str, Any]:
    return {name: value for name, value in asdict(method).items() if value not in ("", (), None)}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _load() -> list[float] | None:
    return [round(value, 2) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> float | None:
    path = Path("/proc/meminfo")
    if not path.exists():
        return None
    sizes = dict(line.split(":", 1) for line in path.read_text(encoding="utf-8").splitlines())
    return round(int(sizes["MemTotal"].split()[0]) / 2**20, 1)
