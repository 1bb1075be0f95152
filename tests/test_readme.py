"""The examples of the README and of the pages on pipelines and classes run as they are written."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/pipelines.md", "docs/multiclass.md")
BLOCKS = [
    block
    for page in PAGES
    for block in re.findall(
        r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
]


def test_pages_have_examples():
    assert len(BLOCKS) > len(PAGES)


@pytest.mark.parametrize("block", BLOCKS)
def test_example_runs(block, capsys):
    exec(compile(block, "example", "exec"), {})
    assert capsys.readouterr().out
