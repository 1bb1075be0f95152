"""Reading ``experiments/``: one YAML file per dataset, method, table or figure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, final

import yaml

from paper.fields import filled

FOLDER = Path(__file__).parent / "experiments"
"""The experiments of the paper."""

ALL = "all"
"""The command that runs every experiment."""


@final
@dataclass(frozen=True)
class Source:
    """A dataset of an experiment.

    Attributes
    ----------
    key : str
        The name of its file.
    title : str
        How it is called in tables.
    load : str
        What :func:`paper.sources.load` calls it.
    normalize : {"dense", "sparse", "none"}
        How it is normalised.
    stands_in_for : str
        The paper's dataset that it is a part of or resembles; empty where it is the paper's own, or none of it.
    note : str
        What else a reader must know.
    """

    key: str
    title: str
    load: str
    normalize: str
    stands_in_for: str = ""
    note: str = ""


@final
@dataclass(frozen=True)
class Method:
    """A method or bound of an experiment: its name, where it comes from, and the options it stands for."""

    key: str
    title: str
    source: str
    method: str = ""
    bound: str = "auto"
    candidate: str = ""
    regions: tuple[str, ...] = ()
    tol: float = 1e-6
    wide: tuple[str, ...] = ()
    tall: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Attributes
    ----------
    name : str
        The name of its file.
    title, shows : str
        What it is, and where the paper shows it.
    command : str
        The command that runs it; several figures may share one.
    measure : str
        What is measured; empty where ``runs_of`` names another experiment whose runs it shows.
    datasets, methods : tuple
        On what, and what.
    settings : dict
        All numbers.
    published : str
        The file with the published figures.
    """

    name: str
    title: str
    shows: str
    command: str
    measure: str = ""
    runs_of: str = ""
    datasets: tuple[Source, ...] = ()
    methods: tuple[Method, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    published: str = ""


@final
class Catalogue:
    """The experiments of a folder.

    Parameters
    ----------
    quick : bool, default=False
        Whether the small versions are wanted, which run in moments.
    folder : Path, default=FOLDER
        Where the experiments are.
    """

    def __init__(self, quick: bool = False, folder: Path = FOLDER) -> None:
        self.folder, self.quick = folder, quick

    @cached_property
    def experiments(self) -> tuple[Experiment, ...]:
        """All of them, in the order of their names."""
        return tuple(self._experiment(path) for path in sorted(self.folder.glob("*.yaml")))

    @property
    def commands(self) -> list[str]:
        """What can be run by name."""
        return sorted({experiment.command for experiment in self.experiments})

    def chosen(self, command: str) -> list[Experiment]:
        """The experiments that a command runs; one that shows the runs of another stands for that one."""
        if command not in (*self.commands, ALL):
            raise ValueError(f"an experiment must be one of {', '.join([*self.commands, ALL])}; got {command!r}.")
        by_name = {experiment.name: experiment for experiment in self.experiments}
        named = [experiment for experiment in self.experiments if command in (experiment.command, ALL)]
        found = {experiment.runs_of or experiment.name: experiment for experiment in named}
        return [by_name[name] for name in found]

    def _experiment(self, path: Path) -> Experiment:
        values = self._values(path)
        small = values.pop("quick", {})
        if self.quick:
            values |= small | {"settings": values.get("settings", {}) | small.get("settings", {})}
        values["datasets"] = tuple(self._part("datasets", key, Source) for key in values.get("datasets", ()))
        values["methods"] = tuple(self._part("methods", key, Method) for key in values.get("methods", ()))
        return filled(Experiment, {"name": path.stem} | values, str(path))

    def _part(self, folder: str, key: str, kind: Any) -> Any:
        path = self.folder / folder / f"{key}.yaml"
        if not path.exists():
            raise ValueError(f"an experiment's {folder} must be files in {folder}; there is no {key}.yaml.")
        return filled(kind, {"key": key} | self._values(path), str(path))

    def _values(self, path: Path) -> dict[str, Any]:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError(f"{path} must hold names and values; it holds {type(values).__name__}.")
        return values
