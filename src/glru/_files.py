"""Writing files in full or not at all."""

import os
from collections.abc import Callable
from pathlib import Path


def write_atomically(target: Path, write: Callable[[Path], None]) -> None:
    """Let a function write a file beside the target, and put it in the target's place once it is whole."""
    part = target.with_name(f".{target.stem}.{os.getpid()}.part{target.suffix}")
    try:
        write(part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
