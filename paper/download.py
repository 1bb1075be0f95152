"""Downloads: one file, its size shown, written in full or not at all."""

import os
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from glru._files import write_atomically

TIMEOUT = 30.0
"""Seconds without an answer before a download is given up."""


def user_cache() -> Path:
    """The folder of downloaded datasets: ``GLRU_CACHE``, or ``glru`` in the user's cache folder."""
    if os.environ.get("GLRU_CACHE"):
        return Path(os.environ["GLRU_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glru"


def download(url: str, target: Path) -> None:
    """Fetch an address into a file; an OSError where that fails, and then there is no file."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            expected = answer.headers.get("Content-Length")
            size = f"{int(expected) / 1e6:.1f} MB" if expected else "size unknown"
            sys.stderr.write(f"downloading {url} ({size})\n")
            write_atomically(target, lambda part: _copied(answer, part, expected), make_folder=True)
    except urllib.error.URLError as error:
        raise OSError(f"{url}: {error.reason}") from None
    except (TimeoutError, ConnectionError) as error:
        raise OSError(f"{url}: {error or 'no answer'}") from None


def _copied(answer: Any, part: Path, expected: str | None) -> None:
    with part.open("wb") as file:
        shutil.copyfileobj(answer, file)
    if expected is not None and part.stat().st_size != int(expected):
        raise ConnectionError(f"got {part.stat().st_size} of {expected} bytes")
