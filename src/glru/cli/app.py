"""The command-line application with all of its commands."""

from typing import Annotated

import typer

from glru.cli.certify import certify
from glru.cli.commands import add_command
from glru.cli.data import data, print_version, version
from glru.cli.loocv import loocv
from glru.cli.select import select
from glru.cli.tune import tune
from glru.cli.verify import verify
from glru.cli.whatif import whatif

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def main(
    show: Annotated[
        bool, typer.Option("--version", is_eager=True, help="Print the version of glru.", callback=print_version)
    ] = False,
) -> None:
    """Compute and prove how a linear model changes when its training data changes, without retraining it."""


for function in (loocv, select, whatif, tune, certify, verify, data, version):
    add_command(app)(function)
