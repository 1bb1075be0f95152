"""The command, end to end on bundled data, and its complaints."""

import json

import pytest

from glru.experiments import Catalogue, read_records, source_tree
from glru.experiments.rendering import page
from glru.experiments.rendering.shown import shown
from tests.cli.running import complaint, glru_command


@pytest.fixture(autouse=True)
def no_data(monkeypatch, tmp_path):
    """Only what comes with scikit-learn is here."""
    monkeypatch.delenv("GLRU_DATA", raising=False)
    monkeypatch.setenv("GLRU_CACHE", str(tmp_path / "cache"))


def test_everything_end_to_end(tmp_path):
    told = glru_command("reproduce", "all", "--quick", "--render", "--out", tmp_path).stdout
    assert "loocv: arcene" in told and "not on this machine" in told
    catalogue = Catalogue(source_tree() / "experiments", quick=True)
    records = read_records(tmp_path)
    assert {record.experiment for record in records} == {e.name for e in catalogue.experiments if e.measure}
    for record in records:
        assert record.quick
        assert record.environment["versions"]["glru"] and record.environment["machine"]["cores"]
        assert str(tmp_path) not in json.dumps(record.environment)
    pages = {path.stem for path in tmp_path.glob("*.md")}
    assert pages == {experiment.name for experiment in catalogue.experiments}
    for path in (tmp_path / "figures").glob("*.png"):
        assert path.stat().st_size > 5000
    for experiment in catalogue.experiments:
        text = (tmp_path / f"{experiment.name}.md").read_text()
        for name in (part.partition(")")[0] for part in text.split("](figures/")[1:]):
            assert (tmp_path / "figures" / name).exists()
    before = (tmp_path / "loocv.md").read_text()
    glru_command("reproduce", "--render", "--quick", "--out", tmp_path, "--quiet")
    assert (tmp_path / "loocv.md").read_text() == before
    assert "quick runs" in complaint("reproduce", "--render", "--out", tmp_path)


def test_nothing_to_do():
    assert "say what to run" in complaint("reproduce", code=2)
    assert "loo" in complaint("reproduce", "loo", code=2)


def test_nothing_to_render(tmp_path):
    assert "must hold runs" in complaint("reproduce", "--render", "--out", tmp_path)


def test_data_must_exist(tmp_path):
    assert "does not" in complaint("reproduce", "loocv", "--quick", "--data", tmp_path / "none", "--out", tmp_path)


def test_no_data_at_all(tmp_path):
    """Nothing is downloaded, and that is told."""
    result = glru_command("reproduce", "loocv", "--out", tmp_path, code=1)
    assert "none of the datasets is on this machine" in result.stderr
    assert not list(tmp_path.glob("runs/*"))


def test_outside_a_source_tree(monkeypatch, tmp_path):
    monkeypatch.setattr("glru.__file__", str(tmp_path / "lib" / "python" / "glru" / "__init__.py"))
    assert "Get the source" in complaint("reproduce", "all")


def test_committed_pages_are_those_of_the_committed_runs():
    """What is shown is what was measured."""
    root = source_tree()
    catalogue, folder = Catalogue(root / "experiments"), root / "docs" / "results"
    records = read_records(folder)
    for experiment in catalogue.experiments:
        what = shown(catalogue, experiment, records)
        assert what.records, experiment.name
        assert (folder / f"{experiment.name}.md").read_text(encoding="utf-8") == page(what)
