"""``python -m tests.faults.killed_commands FOLDER``: commands that are killed while they write a file over an old one."""

import signal
import sys
from functools import partial
from pathlib import Path

from typer.testing import CliRunner

from glru.cli.app import app
from tests.faults.moments import dies_at_byte, dies_at_call, in_a_child

OPTIONS = {"--out": ".csv", "--html": ".html", "--plot": ".svg"}

COMMAND_DEATHS = [0, 500, ("fsync", 1, True), ("replace", 1, True), ("replace", 1, False)]
"""A number of bytes, or a function of ``os`` and the number of its call, and whether before it."""


def run(source: Path, option: str, target: Path, death: int | tuple[str, int, bool]) -> None:
    """Run a command that dies."""
    if isinstance(death, int):
        dies_at_byte(death)
    else:
        dies_at_call(*death)
    CliRunner().invoke(app, ["loocv", str(source), option, str(target)])


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for option, suffix in OPTIONS.items():
        for number, death in enumerate(COMMAND_DEATHS):
            target = folder / f"{number}{suffix}"
            target.write_bytes(b"old")
            killed = in_a_child(partial(run, folder / "data.csv", option, target, death))
            assert killed in (signal.SIGKILL, signal.SIGXFSZ), (option, death, killed)
