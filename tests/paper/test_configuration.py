"""The files in experiments/ are complete and consistent, and mistakes in them are told."""

from typing import get_args, get_type_hints

import pytest

pytest.importorskip("paper", reason="the folder paper/ is not in this tree")

from glru.datasets.catalogue import BUNDLED
from paper import Catalogue
from paper.__main__ import run
from paper.configuration import FOLDER, Source
from paper.datasets import PAPER
from paper.fields import filled
from paper.rendering import PAGES
from paper.rendering.shown import shown
from paper.running import MEASURES, _checked

both = pytest.mark.parametrize("quick", [False, True])


@both
def test_every_experiment_can_run_and_is_shown(quick):
    catalogue = Catalogue(quick)
    for experiment in catalogue.experiments:
        assert experiment.name in PAGES
        if experiment.runs_of:
            assert experiment.runs_of in {other.name for other in catalogue.experiments}
        else:
            assert isinstance(_checked(experiment), MEASURES[experiment.measure].Settings)
            assert experiment.datasets


def test_commands_are_those_of_the_command_line():
    choices = get_args(get_args(get_type_hints(run, include_extras=True)["experiment"])[0])
    assert sorted(choices) == sorted([*Catalogue().commands, "all"])


def test_every_table_and_figure_of_the_paper_is_there():
    shows = {experiment.shows for experiment in Catalogue().experiments}
    assert {"Table 3", "Table 4", "Figure 3", "Figure 4", "Figure 5", "Figure 6"} <= shows


def test_all_runs_each_measurement_once():
    names = [experiment.name for experiment in Catalogue().chosen("all")]
    assert sorted(names) == sorted(set(names))
    assert [experiment.name for experiment in Catalogue().chosen("costs")] == ["loocv"]


def test_datasets_are_the_papers_or_say_what_they_are():
    for path in (FOLDER / "datasets").glob("*.yaml"):
        source = Catalogue()._part("datasets", path.stem, Source)
        if source.load in PAPER:
            assert source.normalize == PAPER[source.load].normalization
            assert not source.stands_in_for
        else:
            assert source.note
        if source.stands_in_for:
            assert source.stands_in_for in PAPER


def test_quick_runs_need_no_files():
    for experiment in Catalogue(quick=True).experiments:
        if experiment.measure:
            assert experiment.datasets[0].load.partition(":")[0] in BUNDLED


def test_published_figures_agree_with_their_own_ratios():
    """The printed shares are those of the printed (rounded) numbers, so nothing was copied wrongly."""
    catalogue = Catalogue()
    by_name = {experiment.name: experiment for experiment in catalogue.experiments}
    rows = {"arcene": 200, "dexter": 600, "gisette": 6000}
    table = shown(catalogue, by_name["loocv"], []).published
    assert len(table) == 33
    for (name, _), row in table.items():
        assert row["glru_exact_s"] / row["naive_exact_s"] == pytest.approx(row["glru_exact_ratio_pct"] / 100, abs=4e-3)
        assert row["glru_approx_s"] / row["naive_approx_s"] == pytest.approx(
            row["glru_approx_ratio_pct"] / 100, abs=4e-3
        )
        assert row["n_trainings"] / rows[name] == pytest.approx(row["trainings_pct"] / 100, abs=6e-4)
    columns = {"arcene": 9961, "dexter": 11035, "gisette": 4955}
    table = shown(catalogue, by_name["stepwise"], []).published
    assert len(table) == 33
    for (name, _), row in table.items():
        assert row["glru_s"] / row["naive_s"] == pytest.approx(row["glru_ratio_pct"] / 100, abs=6e-4)
        assert row["n_trainings"] / columns[name] == pytest.approx(row["trainings_pct"] / 100, abs=6e-4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"key": "a", "title": "a", "load": "a"}, "must give normalize"),
        ({"key": "a", "title": "a", "load": "a", "normalize": "dense", "colour": "red"}, "got 'colour'"),
        ({"key": "a", "title": "a", "load": 3, "normalize": "dense"}, "load must be text; got 3"),
    ],
)
def test_mistakes_in_a_file_are_told(values, message):
    with pytest.raises(ValueError, match=message):
        filled(Source, values, "a.yaml")


def test_settings_of_another_type_are_told():
    settings = MEASURES["loocv"].Settings
    good = {"log2_lam": [0], "tol": 1e-6, "seed": 0, "repeats": 1, "full": 0, "sample": 1}
    assert filled(settings, good, "x").log2_lam == (0,)
    for bad in ({"tol": "1e-6"}, {"log2_lam": 0}, {"seed": 0.5}, {"repeats": True}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            filled(settings, good | bad, "x")


def test_unknown_names_are_told(tmp_path):
    with pytest.raises(ValueError, match=r"one of .*loocv.*; got 'loo'"):
        Catalogue().chosen("loo")
    (tmp_path / "x.yaml").write_text("title: x\nshows: x\ncommand: x\nmeasure: loocv\ndatasets: [nowhere]\n")
    with pytest.raises(ValueError, match=r"no nowhere\.yaml"):
        _ = Catalogue(folder=tmp_path).experiments
    (tmp_path / "x.yaml").write_text("title: x\nshows: x\ncommand: x\nmeasure: guess\n")
    with pytest.raises(ValueError, match=r"measure must be one of .*; got 'guess'"):
        _checked(Catalogue(folder=tmp_path).experiments[0])
