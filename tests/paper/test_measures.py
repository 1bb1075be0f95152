"""What is measured is what the library does: counts, errors and times against its own results and brute force."""

import numpy as np
import pytest

pytest.importorskip("paper", reason="the folder paper/ is not in this tree")

import glru
from paper import Catalogue
from paper.behaviour import runs
from paper.loocv import Carried, retrainings
from paper.loocv import Settings as LOOCVSettings
from paper.loocv import measure as measure_loocv
from paper.normalization import normalize
from paper.rendering.behaviour import expanded
from paper.rendering.costs import costs
from paper.sources import Data, load
from paper.stepwise import FirstElimination, Split
from paper.tightness import Settings as TightnessSettings
from paper.tightness import case_of
from paper.tightness import measure as measure_tightness
from paper.timing import trainings

CATALOGUE = Catalogue()
METHODS = {experiment.name: experiment.methods for experiment in CATALOGUE.experiments}


@pytest.fixture(scope="module")
def data():
    """Bundled data, normalised as in the paper."""
    X, y = load("breast_cancer")
    return Data(normalize(X, "dense"), y)


@pytest.fixture(scope="module")
def few(data):
    """Some rows of it, for what trains a lot."""
    return Data(data.X[:120], data.y[:120])


def test_retrainings_are_those_of_the_naive_method(few):
    solution = glru.solve(few.problem(-6))
    naive = glru.loocv(solution, method="naive")
    every = retrainings(solution, [np.arange(120)], None, 0, 1e-6)[0]
    np.testing.assert_allclose(every.scores, naive.scores, atol=1e-5)
    assert not every.facts["extrapolated"]
    assert every.total == pytest.approx(every.seconds.sum())


def test_early_stopped_trainings_are_those_of_algorithm_2(few):
    solution = glru.solve(few.problem(-6))
    result = glru.loocv(solution, method="glru", bound="primal")
    carried = Carried.of(solution, "primal")
    still_open = carried.cascade.open_rows()
    done = carried.stopped_early(None, 0)
    assert done.of == result.n_trainings
    assert np.array_equal(done.items, still_open)
    assert np.array_equal(np.sign(done.scores), result.bounds.signs[still_open])


def test_samples_are_scaled_up():
    done = trainings(np.arange(50), 10, 3, float)
    assert done.items.size == 10
    assert done.total == pytest.approx(5.0 * done.seconds.sum())
    assert done.facts["extrapolated"] and done.facts["timed"] == 10 and done.facts["trainings"] == 50
    again = trainings(np.arange(50), 10, 3, float)
    assert np.array_equal(done.items, again.items)
    none = trainings(np.arange(0), 10, 3, float)
    assert none.mean is None and none.total == 0.0


@pytest.mark.parametrize("full", [0, 1000])
def test_leave_one_out(few, full):
    settings = LOOCVSettings(log2_lam=(-1, -6), tol=1e-6, seed=0, repeats=1, full=full, sample=5)
    for result in measure_loocv(few, METHODS["loocv"], settings):
        truth = glru.loocv(few.problem(result["log2_lam"]), method="naive")
        methods = result["methods"]
        assert methods["certified"]["errors"] == truth.n_errors
        assert methods["certified"]["trainings"] == 0
        assert methods["glru"]["trainings"] == glru.loocv(few.problem(result["log2_lam"]), method="glru").n_trainings
        for name in ("naive", "glru"):
            assert methods[name]["labels_that_differ"] == 0
            assert methods[name]["errors"] == (truth.n_errors if not methods[name]["extrapolated"] else None)
        assert methods["naive"]["extrapolated"] == (full == 0)
        lines = costs(result)
        parts = methods["glru"]["trainings"] / 120
        mixed = parts * lines["B2"] + (1 - parts) * lines["B1"]
        assert lines["B"] == pytest.approx(mixed)


def test_count_of_algorithm_4_is_that_of_its_own_loop(data):
    """Algorithm 4 written down with real trainings."""
    split = Split.of(data, 3)
    first = FirstElimination.of(split, -2, 1e-9)
    problem, best, count = first.solution.problem, first.start, 0
    for j in first.order:
        if first.bounds[j] >= best:
            break
        count += 1
        kept = np.delete(np.arange(problem.n_columns), j)
        model = glru.solve(glru.RemoveColumns([j]).apply(problem), tol=1e-9)
        errors = int(np.sum(split.y_val * (split.X_val[:, kept] @ model.coef) <= 0.0))
        assert errors >= first.bounds[j]
        assert first.step.lower[j] <= errors <= first.step.upper[j]
        best = min(best, errors)
    assert first.facts["glru_trainings"][0] <= count <= first.facts["glru_trainings"][1]
    assert count > 0


def test_split_takes_a_tenth(data):
    split = Split.of(data, 0)
    assert split.y_val.size == 56 and split.train.y.size == 513
    again = Split.of(data, 0)
    assert np.array_equal(split.X_val, again.X_val)


def test_runs_are_expanded_again():
    values = np.array([0, 0, 1, 3, 3, 3, 1])
    assert runs(values) == [[0, 2], [1, 1], [3, 3], [1, 1]]
    assert np.array_equal(expanded(runs(values)), values)


@pytest.mark.parametrize("axis", ["rows", "columns"])
def test_tightness(data, axis):
    """Rates fall with the strength and the number of changes; the paper's theory of widths holds where it is exact."""
    settings = TightnessSettings(
        axis=axis, log2_lam=(0, -8), tol=1e-9, seed=0, counts=(1, 4), training_rows=300, test_rows=100
    )
    strong, weak = measure_tightness(data, METHODS["tightness-rows"], settings)
    for result in (strong, weak):
        for kind in (f"{axis} removed", f"{axis} added"):
            rates = result[kind]["rates"]
            assert np.all(np.array(rates["newton"]) >= np.maximum(rates["primal"], rates["dual"]))
            for theory in result[kind]["theory"]:
                np.testing.assert_allclose(theory["primal"], 1.0, rtol=1e-6)
                assert theory["dual"][0] > 0.0
    one = strong[f"{axis} removed"]["rates"]["dual"][0]
    assert one >= weak[f"{axis} removed"]["rates"]["dual"][0]


def test_rates_are_those_of_after(data):
    settings = TightnessSettings("rows", (-8,), 1e-9, 0, (1, 4))
    result = next(measure_tightness(data, METHODS["tightness-rows"], settings))
    case = case_of(data, settings)
    solution = glru.solve(case.train.problem(-8), tol=1e-9)
    for k, (change, test) in enumerate(case.changes["rows removed"]):
        for bound in ("primal", "dual"):
            out = glru.after(solution, change, candidate="carry", bound=bound)
            assert result["rows removed"]["rates"][bound][k] == out.determination_rate(test)


def test_changes_bring_back_what_the_old_model_lacks(data):
    case = case_of(data, TightnessSettings("columns", (0,), 1e-9, 0, (1, 4), training_rows=300, test_rows=50))
    change, test = case.changes["columns added"][-1]
    solution = glru.solve(case.train.problem(0))
    assert glru.after(solution, change).problem.n_columns == data.X.shape[1] == test.shape[1]
    assert case.changes["columns removed"][-1][1].shape == (50, data.X.shape[1] - 8)
    with pytest.raises(ValueError, match="axis must be 'rows' or 'columns'; got 'both'"):
        case_of(data, TightnessSettings("both", (0,), 1e-9, 0, (1,)))
