"""The examples of docs/scale.md run as they are written, each in a process and a folder of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "scale.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_the_page_has_examples():
    assert len(BLOCKS) == 6


@pytest.mark.parametrize("block", BLOCKS, ids=["gpu", "memmap", "parquet", "array", "frame", "cluster"])
def test_example_runs(block, tmp_path):
    for optional, package in (("torch", "torch"), ("dask", "distributed")):
        if f"import {optional}" in block or f"from {optional}" in block:
            pytest.importorskip(package)
    (tmp_path / "example.py").write_text(block)
    run = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout
