"""The committed runs prove what docs/results/README.md says of them."""

import pytest

pytest.importorskip("paper", reason="the folder paper/ is not in this tree")

from paper import Catalogue, read_records
from paper.__main__ import RESULTS
from paper.rendering.shown import shown

CATALOGUE = Catalogue()
RECORDS = {(record.experiment, record.dataset): record for record in read_records(RESULTS)}
PUBLISHED = {
    experiment.name: shown(CATALOGUE, experiment, []).published
    for experiment in CATALOGUE.experiments
    if experiment.published
}
STRENGTHS = list(range(0, -11, -1))


@pytest.mark.parametrize(("name", "most"), [("arcene", 4), ("dexter", 1)])
def test_trainings_of_leave_one_out_are_the_papers(name, most):
    results = RECORDS["loocv", name].results
    assert [result["log2_lam"] for result in results] == STRENGTHS
    for result in results:
        paper = PUBLISHED["loocv"][name, result["log2_lam"]]["n_trainings"]
        assert abs(result["methods"]["glru"]["trainings"] - paper) <= most


@pytest.mark.parametrize("name", ["arcene", "dexter"])
def test_certified_trains_nothing_and_counts_what_naive_counts(name):
    for result in RECORDS["loocv", name].results:
        methods = result["methods"]
        assert methods["certified"]["trainings"] == 0
        assert methods["certified"]["undetermined"] == 0
        assert not methods["naive"]["extrapolated"]
        assert methods["certified"]["errors"] == methods["naive"]["errors"] == methods["glru"]["errors"]
        assert methods["naive"]["labels_that_differ"] == methods["glru"]["labels_that_differ"] == 0


def test_the_part_of_gisette_agrees_where_it_was_trained():
    for result in RECORDS["loocv", "gisette_valid"].results:
        methods = result["methods"]
        assert methods["certified"]["trainings"] == methods["certified"]["undetermined"] == 0
        assert methods["naive"]["labels_that_differ"] == methods["glru"]["labels_that_differ"] == 0


@pytest.mark.parametrize("name", ["arcene", "dexter", "gisette_valid"])
def test_first_eliminations_need_no_training(name):
    results = RECORDS["stepwise", name].results
    assert [result["log2_lam"] for result in results] == STRENGTHS
    for result in results:
        assert result["naive"]["errors_outside"] == 0
        for run in result["seeds"]:
            assert run["certified_trainings"] == 0
            assert run["errors_after"][0] == run["errors_after"][1] <= run["errors_before"]


def test_committed_runs_are_the_full_ones():
    for record in RECORDS.values():
        experiment = next(e for e in CATALOGUE.experiments if e.name == record.experiment)
        assert not record.quick
        assert {key: _listed(value) for key, value in experiment.settings.items()} == record.settings


def _listed(value):
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("key", [key for key in RECORDS if key[0].startswith("tightness")])
def test_widths_are_those_of_the_theory(key):
    """Section 7.3.3 is exact for Primal-SCB; rounding makes the measured widths a little larger."""
    for result in RECORDS[key].results:
        for kind in (name for name, value in result.items() if isinstance(value, dict)):
            for theory in result[kind]["theory"]:
                if theory["primal"] is not None:
                    assert theory["primal"] == pytest.approx([1.0, 1.0, 1.0], rel=1e-3)
