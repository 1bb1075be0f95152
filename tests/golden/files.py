"""The recorded answers: one file for each data set, one line for each kind of answer."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"


def read(data: str) -> dict[str, Any]:
    """What is recorded of a data set: a checksum and the answers of its cases; empty where nothing is."""
    path = FOLDER / f"{data}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def write(data: str, content: dict[str, Any]) -> None:
    """Record the answers of a data set."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{data}.json").write_text(_lines(content, 0, 3) + "\n")


def _lines(value: Any, depth: int, deepest: int) -> str:
    """JSON with a line for each entry down to some depth, so that a change of one answer is a change of one line."""
    if not isinstance(value, dict) or not value or depth > deepest:
        return json.dumps(value)
    margin = "  " * (depth + 1)
    entries = [f"{margin}{json.dumps(key)}: {_lines(item, depth + 1, deepest)}" for key, item in value.items()]
    return "{\n" + ",\n".join(entries) + "\n" + margin[2:] + "}"
