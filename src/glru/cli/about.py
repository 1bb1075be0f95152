"""``glru version``: the installation."""

import json
import sys
from typing import Annotated

import typer

import glru
from glru._versions import versions
from glru.cli.output import SCHEMA


def print_version(asked: bool) -> None:
    """Print the version and end, where that is asked for."""
    if asked:
        sys.stdout.write(f"glru {glru.__version__}\n")
        raise typer.Exit


def version(
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """The versions of glru and of its dependencies."""
    if as_json:
        header = {"schema": SCHEMA, "command": "version", "version": glru.__version__}
        sys.stdout.write(json.dumps(header | {"versions": versions()}, indent=2) + "\n")
    else:
        for name, value in versions().items():
            sys.stdout.write(f"{name:<14}{value}\n")
