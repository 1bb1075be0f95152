"""``glru data`` and ``glru version``: the datasets that are known by name, and the installation."""

import json
import sys
from typing import Annotated

import typer

import glru
from glru import datasets
from glru._versions import list_versions
from glru.cli import inputs, output


def data(
    name: Annotated[str | None, typer.Argument(help="A dataset to describe; by default all are listed.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """List the datasets that are known by name, or describe one."""
    if name is None:
        _list(as_json)
    else:
        _describe(name, as_json)


def _list(as_json: bool) -> None:
    entries = datasets.list()
    if as_json:
        lines = [
            {"name": e.name, "shape": list(e.shape) if e.shape else None, "source": e.source, "where": e.where}
            for e in entries
        ]
        _print_json({"datasets": lines})
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Datasets", title_justify="left", box=None, pad_edge=False)
    for column in ("name", "rows", "columns", "source"):
        table.add_column(column, justify="right" if column in ("rows", "columns") else "left")
    for e in entries:
        shape = [f"{n:,}" for n in e.shape] if e.shape else ["", ""]
        table.add_row(e.name, *shape, e.source)
    Console().print(table)


def _describe(name: str, as_json: bool) -> None:
    found = datasets.load(name)
    prepared = datasets.prepare(found)
    several = found.classes is not None and len(found.classes) > 2
    facts = {
        "name": found.name,
        "rows": int(found.X.shape[0]),
        "columns": int(found.X.shape[1]),
        "varying_columns": len(prepared.names),
        "task": found.task,
        "positive": int((found.y > 0).sum()) if found.task == "classification" and not several else None,
        "classes": inputs.describe_classes(found.classes),
        "normalize": prepared.normalize,
        "source": found.source,
    }
    if as_json:
        _print_json({"dataset": facts})
        return
    named = found.classes or ()
    told = facts | {"classes": ", ".join(named) if several else f"{named[1]} against {named[0]}" if named else None}
    lines = [(key.replace("_", " "), str(value)) for key, value in told.items() if value is not None]
    output.show(f"Dataset {name}", lines)


def print_version(asked: bool) -> None:
    """Print the version and exit, if asked to."""
    if asked:
        sys.stdout.write(f"glru {glru.__version__}\n")
        raise typer.Exit


def version(
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Print the versions of glru and of its dependencies."""
    if as_json:
        _print_json({"versions": list_versions()}, "version")
    else:
        for name, value in list_versions().items():
            sys.stdout.write(f"{name:<14}{value}\n")


def _print_json(values: dict[str, object], command: str = "data") -> None:
    header = {"schema": output.SCHEMA, "command": command, "version": glru.__version__}
    sys.stdout.write(json.dumps(header | values, indent=2) + "\n")
