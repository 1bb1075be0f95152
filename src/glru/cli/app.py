"""The commands of the command line, put together."""

import typer

from glru.cli.about import version
from glru.cli.certify import certify
from glru.cli.commands import command
from glru.cli.data import data
from glru.cli.loocv import loocv
from glru.cli.select import select
from glru.cli.tune import tune
from glru.cli.whatif import whatif

app = typer.Typer(
    help="What a linear model becomes when its training data changes, without retraining it, and with proof.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for function in (loocv, select, whatif, tune, certify, data, version):
    command(app)(function)
