"""The definitions for benchopt run: through benchopt's own classes where it is installed, else through the few lines they need."""

import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks" / "benchopt"


@pytest.fixture(autouse=True)
def benchopt(monkeypatch):
    """A module with the three base classes, which set parameters as attributes."""
    stand_in = ModuleType("benchopt")
    for name in ("BaseObjective", "BaseSolver", "BaseDataset"):
        setattr(stand_in, name, type(name, (), {"parameters": {}}))
    monkeypatch.setitem(sys.modules, "benchopt", stand_in)


def load(path):
    specification = importlib.util.spec_from_file_location(f"benchopt_{path.stem}", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def instances(kind):
    """One object for each combination of the parameters."""
    for values in itertools.product(*kind.parameters.values()):
        made = kind()
        for names, value in zip(kind.parameters, values, strict=True):
            parts = names.split(", ")
            for name, part in zip(parts, value if len(parts) > 1 else [value], strict=True):
                setattr(made, name, part)
        yield made


@pytest.mark.parametrize(("name", "loss"), [("logreg_l2_glru", "logistic"), ("ridge_glru", "squared")])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_training(name, loss, fit_intercept):
    """The solution is stationary for the objective of benchopt's own benchmarks."""
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 5))
    y = np.where(X[:, 0] + random.normal(size=60) > 0.0, 1.0, -1.0)
    for solver in instances(load(FOLDER / "solvers" / f"{name}.py").Solver):
        solver.set_objective(X, y, 0.1, fit_intercept)
        solver.run(1e-12)
        beta = solver.get_result()["beta"]
        design = np.column_stack([X, np.ones(60)]) if fit_intercept else X
        slopes = -y / (1.0 + np.exp(y * (design @ beta))) if loss == "logistic" else design @ beta - y
        penalty = 0.1 * np.where(np.arange(beta.size) < 5, beta, 0.0)
        assert np.abs(design.T @ slopes + penalty).max() < 1e-4


@pytest.mark.parametrize("shape", [(40, 5, "logistic"), (40, 5, "squared"), (25, 60, "logistic"), (25, 60, "squared")])
def test_leave_one_out(shape):
    """Ours are exact and inside their intervals; the approximation is exact for the squared loss only."""
    rows, columns, loss = shape
    place = FOLDER / "leave_one_out"
    dataset = next(instances(load(place / "datasets" / "simulated.py").Dataset))
    dataset.n_rows, dataset.n_columns, dataset.loss = rows, max(columns, 10), loss
    objective = next(instances(load(place / "objective.py").Objective))
    objective.set_data(**dataset.get_data())
    ran = set()
    for path in sorted((place / "solvers").glob("*.py")):
        for solver in instances(load(path).Solver):
            given = objective.get_objective()
            if getattr(solver, "skip", lambda **_: (False, None))(**given)[0]:
                continue
            solver.set_objective(**given)
            solver.run(None)
            found = objective.evaluate_result(**solver.get_result())
            ran.add(solver.name)
            if solver.name == "glru":
                assert found["outside"] == 0 and found.get("wrong_labels", 0) == 0
                assert found["value"] <= found["width"] + 1e-8
            elif solver.name == "newton-step" and loss == "logistic":
                assert 1e-6 < found["value"] < 5.0
            elif loss == "squared" or solver.tol <= 1e-10:
                assert found["value"] < 1e-4
    assert ran == {"glru", "newton-step", "sklearn-loop"} | ({"ridge-cv"} if loss == "squared" else set())
