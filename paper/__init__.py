"""The paper's experiments: configured in ``experiments``, run and rendered here; ``python -m paper`` from a checkout."""

from paper.configuration import Catalogue, Experiment
from paper.record import Record, read_records
from paper.rendering import render
from paper.running import run

__all__ = ["Catalogue", "Experiment", "Record", "read_records", "render", "run"]
