"""The command, end to end on bundled data, and its complaints."""

import json
from functools import partial

import pytest

pytest.importorskip("paper", reason="the folder paper/ is not in this tree")

from paper import Catalogue, read_records
from paper.__main__ import RESULTS, app
from paper.rendering import page
from paper.rendering.shown import shown
from tests.cli import running

command = partial(running.glru_command, app=app)
complaint = partial(running.complaint, app=app)


@pytest.fixture(autouse=True)
def no_data(monkeypatch, tmp_path):
    """Only what comes with scikit-learn is here."""
    monkeypatch.delenv("GLRU_DATA", raising=False)
    monkeypatch.setenv("GLRU_CACHE", str(tmp_path / "cache"))


def test_everything_end_to_end(tmp_path):
    told = command("run", "all", "--quick", "--out", tmp_path).stdout
    assert "loocv.md" in command("render", "--quick", "--out", tmp_path).stdout
    assert "loocv: arcene" in told and "not on this machine" in told
    catalogue = Catalogue(quick=True)
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
    assert command("render", "--quick", "--out", tmp_path, "--quiet").stdout == ""
    assert (tmp_path / "loocv.md").read_text() == before
    assert "quick runs" in complaint("render", "--out", tmp_path)


def test_nothing_to_do():
    assert "EXPERIMENT" in complaint("run", code=2)
    assert "loo" in complaint("run", "loo", code=2)


def test_nothing_to_render(tmp_path):
    assert "must hold runs" in complaint("render", "--out", tmp_path)


def test_data_must_exist(tmp_path):
    assert "does not" in complaint("run", "loocv", "--quick", "--data", tmp_path / "none", "--out", tmp_path)


def test_no_data_at_all(tmp_path):
    """Nothing is downloaded, and that is told."""
    assert "none of the datasets is on this machine" in complaint("run", "loocv", "--out", tmp_path)
    assert not list(tmp_path.glob("runs/*"))


def test_results_do_not_go_into_the_folder_of_the_data(tmp_path):
    """Nor into a folder that has it."""
    data = tmp_path / "all" / "data"
    data.mkdir(parents=True)
    for out in (data, data / "results", tmp_path / "all"):
        said = complaint("run", "costs", "--quick", "--data", data, "--out", out)
        assert "--out must leave the input alone" in said
    assert list(data.iterdir()) == []


def test_data_are_listed():
    told = command("data").stdout
    assert "url" in told and "2,396,130 x 3,231,961" in told and told.count("to download") == 10
    assert "must be one of arcene" in complaint("data", "nothing")


def test_committed_pages_are_those_of_the_committed_runs():
    """What is shown is what was measured."""
    catalogue = Catalogue()
    records = read_records(RESULTS)
    for experiment in catalogue.experiments:
        what = shown(catalogue, experiment, records)
        assert what.records, experiment.name
        assert (RESULTS / f"{experiment.name}.md").read_text(encoding="utf-8") == page(what)
