"""The site: it builds without a warning, lists every public name, and its examples run."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import glru

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs(name, monkeypatch, capsys):
    """Every script of the gallery, and the tour of the terminal."""
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.close("all")
    plt.switch_backend("agg")
    monkeypatch.setattr(plt, "show", lambda: None)
    monkeypatch.setenv("GLRU_EXAMPLE_ROWS", "100_000")
    try:
        with plt.rc_context():
            runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
        assert plt.get_fignums() or name == "tour.py"
    finally:
        plt.close("all")
    capsys.readouterr()


def test_there_are_enough_examples():
    assert len(EXAMPLES) >= 13


def test_site(tmp_path):
    """One build, which takes half a minute, without the pictures of the gallery; warnings are errors."""
    for module in (
        "myst_parser",
        "numpydoc",
        "pydata_sphinx_theme",
        "sphinx_copybutton",
        "sphinx_design",
        "sphinx_gallery",
    ):
        pytest.importorskip(module)
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-D",
        "plot_gallery=0",
        "docs",
        str(tmp_path),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr[-3000:]
    pages = {
        path.resolve(): path.read_text(encoding="utf-8")
        for path in tmp_path.rglob("*.html")
        if "_static" not in path.relative_to(tmp_path).parts
    }
    assert names_without_a_page(tmp_path) == set()
    assert broken_links(pages) == []
    assert loaded_from_elsewhere(pages) == []


def names_without_a_page(folder):
    """Public names of the package and of its public modules that the reference leaves out."""
    modules = [glru, *(getattr(glru, name) for name in glru.__all__ if isinstance(getattr(glru, name), type(glru)))]
    public = {f"{module.__name__}.{name}" for module in modules for name in module.__all__}
    public -= {module.__name__ for module in modules}
    return {name for name in public if not (folder / "api" / f"{name}.html").exists()}


def broken_links(pages):
    """Relative links that lead to no file, or to no place in it."""
    anchors = {path: set(re.findall(r'id="([^"]+)"', text)) for path, text in pages.items()}
    broken = []
    for path, text in pages.items():
        for link in re.findall(r'(?:href|src)="([^"]+)"', text):
            if re.match(r"[a-z]+:|//|#", link):
                continue
            name, _, anchor = link.partition("#")
            target = (path.parent / name.partition("?")[0]).resolve()
            if not target.exists() or (anchor and anchor not in anchors.get(target, {anchor})):
                broken.append((path.name, link))
    return broken


def loaded_from_elsewhere(pages):
    """Scripts, styles and pictures that a page would fetch over a network."""
    pattern = r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"'
    return [(path.name, found) for path, text in pages.items() for found in re.findall(pattern, text)]
