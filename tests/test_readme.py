"""The code of the README and of the pages of the site runs as it is written: the blocks of a page one after the other."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OPTIONAL = {"docs/scale.md": "torch"}  # what a page needs beside the extras that the tests have

PAGES = {
    path.relative_to(ROOT).as_posix(): blocks
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if (
        blocks := re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    )
}


def test_pages_have_examples():
    assert {"README.md", "docs/index.md", "docs/get_started.md", "docs/pipelines.md", "docs/multiclass.md"} <= set(
        PAGES
    )
    assert sum(page.startswith("docs/guide/") for page in PAGES) >= 6


@pytest.mark.parametrize("page", PAGES)
def test_examples_of_a_page_run(page, capsys, tmp_path, monkeypatch):
    """Later blocks of a page may use the names of earlier ones, and files are written into an empty folder."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for block in PAGES[page]:
        if f"import {OPTIONAL.get(page, '-')}" in block and not installed(OPTIONAL[page]):
            continue
        exec(compile(block, page, "exec"), names)
    assert capsys.readouterr().out


def installed(module):
    try:
        __import__(module)
    except ImportError:
        return False
    return True


def test_links_between_files_lead_somewhere():
    """Pages are also read where they lie, so that relative links must hold without the site; pages of the site are made by its build."""
    broken = [
        (path.relative_to(ROOT).as_posix(), link)
        for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
        if "_build" not in path.parts
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
        if not re.match(r"[a-z]+:", link) and "gallery/" not in link and not (path.parent / link).exists()
    ]
    assert broken == []
