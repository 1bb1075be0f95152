"""``glru version`` and ``glru bench``: the installation, and how quick it is."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

import glru
from glru._versions import versions
from glru.cli.output import SCHEMA


def version(
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """The versions of glru and of what it stands on."""
    if as_json:
        header = {"schema": SCHEMA, "command": "version", "version": glru.__version__}
        sys.stdout.write(json.dumps(header | {"versions": versions()}, indent=2) + "\n")
    else:
        for name, value in versions().items():
            sys.stdout.write(f"{name:<14}{value}\n")


def bench(
    names: Annotated[list[str] | None, typer.Argument(help="The benchmarks to run; by default all.")] = None,
) -> None:
    """Run the benchmarks, which come with a source checkout."""
    root = Path(glru.__file__).parents[2]
    if not (root / "benchmarks" / "__main__.py").exists():
        raise ValueError(
            "the benchmarks come with a source checkout, and this glru is installed without one. Get the source, and run "
            "make bench or glru bench there."
        )
    code = subprocess.run([sys.executable, "-m", "benchmarks", *(names or [])], cwd=root, check=False).returncode
    if code:
        raise typer.Exit(code)
