"""Running experiments: each on every dataset that is here, one file per run."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paper import behaviour, beyond, loocv, stepwise, tightness
from paper.configuration import Catalogue, Experiment
from paper.fields import filled
from paper.record import environment, recorded
from paper.sources import is_here, load_normalized

Report = Callable[[str, int, int], None]


MEASURES: dict[str, Any] = {
    "loocv": loocv,
    "stepwise": stepwise,
    "behaviour": behaviour,
    "tightness": tightness,
    "beyond": beyond,
}
"""What can be measured: modules with a dataclass ``Settings`` and ``measure(data, methods, settings)``, one result after the other."""


def run(catalogue: Catalogue, command: str, out: Path, report: Report) -> tuple[list[Path], list[str]]:
    """Run a command's experiments and write their records.

    Parameters
    ----------
    catalogue : Catalogue
        The experiments.
    command : str
        Which of them.
    out : Path
        The folder of the results.
    report : callable
        Called with what is done, how many results of it there are, and how many there will be.

    Returns
    -------
    written : list of Path
        The records.
    absent : list of str
        ``experiment: dataset`` for each dataset that is not on this machine.
    """
    jobs = [(experiment, _checked(experiment)) for experiment in catalogue.chosen(command)]
    written, absent = [], []
    for experiment, settings in jobs:
        for source in experiment.datasets:
            if not is_here(source):
                absent.append(f"{experiment.name}: {source.key}")
                continue
            what, begun, data = f"{experiment.name}, {source.key}", environment(), load_normalized(source)
            results = []
            for result in MEASURES[experiment.measure].measure(data, experiment.methods, settings):
                results.append(result)
                report(what, len(results), _expected(settings))
            written.append(recorded(experiment, source, data, catalogue.quick, begun, results).write(out))
    return written, absent


def _checked(experiment: Experiment) -> Any:
    """The settings in the form that the experiment's measure understands."""
    if experiment.measure not in MEASURES:
        raise ValueError(
            f"{experiment.name}.yaml: measure must be one of {', '.join(MEASURES)}; got {experiment.measure!r}."
        )
    return filled(MEASURES[experiment.measure].Settings, experiment.settings, f"{experiment.name}.yaml, settings")


def _expected(settings: Any) -> int:
    return len(settings.log2_lam) if isinstance(settings.log2_lam, tuple) else 1


@contextmanager
def data_in(folder: Path | None) -> Iterator[None]:
    """Look for data in a folder, in place of ``GLRU_DATA``."""
    if folder is None:
        yield
        return
    if not folder.is_dir():
        raise ValueError(f"the folder of the data must exist; {folder} does not.")
    before = os.environ.get("GLRU_DATA")
    os.environ["GLRU_DATA"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["GLRU_DATA"]
        else:
            os.environ["GLRU_DATA"] = before
