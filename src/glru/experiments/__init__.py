"""The paper's experiments: configured in ``experiments/`` of the source tree, run and rendered here."""

from glru.experiments.configuration import Catalogue, Experiment, source_tree
from glru.experiments.record import Record, read_records
from glru.experiments.rendering import render
from glru.experiments.running import run

__all__ = ["Catalogue", "Experiment", "Record", "read_records", "render", "run", "source_tree"]
