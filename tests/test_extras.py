"""What an installation without extras says: the missing package and the extra that brings it, once and without a traceback."""

import subprocess
import sys

import pytest

PROBLEM = "import glru, numpy as np; problem = glru.Problem(np.eye(4), [0, 1, 0, 1], penalty=glru.L2(0.1)); "

CASES = {
    "verify": (
        "mpmath",
        "glru.verify(glru.loocv(problem), problem)",
        "glru.verify needs mpmath: pip install 'glru[verify]'",
    ),
    "table": (
        "polars",
        "open('t.csv', 'w').write('a,y\\n1,0\\n2,1\\n'); glru.datasets.read('t.csv')",
        "reading tables (CSV, TSV, Parquet) needs polars: pip install 'glru[cli]'",
    ),
    "picture": (
        "matplotlib",
        "glru.loocv(problem).plot()",
        "a picture needs matplotlib: pip install 'glru[plot]'",
    ),
    "array": (
        "array_api_compat",
        "import array_api_strict as xp; glru.solve(glru.Problem(xp.asarray(np.eye(4)), [0, 1, 0, 1]))",
        "an array of PyTorch, CuPy or another namespace needs array-api-compat: pip install 'glru[arrays]'",
    ),
}


HIDE = """
import sys

class Hide:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {modules}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hide)
"""


def run_without(modules, script, folder):
    """A process in which some modules are not installed."""
    line = [sys.executable, "-c", HIDE.format(modules=modules) + script]
    return subprocess.run(line, capture_output=True, text=True, cwd=folder, check=False)


@pytest.mark.parametrize("name", CASES)
def test_a_missing_package_is_named_with_its_extra(name, tmp_path):
    module, script, message = CASES[name]
    found = run_without([module], PROBLEM + script, tmp_path)
    assert found.stderr.strip().splitlines()[-1] == f"ModuleNotFoundError: {message}"


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_the_command_without_its_extra(module, tmp_path):
    """One line, and the exit code of wrong usage."""
    found = run_without([module], "from glru.cli import main; main()", tmp_path)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr == f"error: the glru command needs {module}: pip install 'glru[cli]'\n"


def test_the_core_alone(tmp_path):
    """Neither training nor validation nor selection needs an extra."""
    extras = [
        "typer",
        "rich",
        "polars",
        "matplotlib",
        "mpmath",
        "array_api_compat",
        "array_api_extra",
        "dask",
        "pandas",
    ]
    script = """
result = glru.loocv(problem)
solution = glru.solve(problem)
bounds = glru.after(solution, glru.RemoveRows([0])).score_bounds(np.eye(4))
steps = glru.stepwise(problem, X_val=np.eye(4), y_val=[0, 1, 0, 1])
data = glru.datasets.prepare(glru.datasets.load("breast_cancer"))
model = glru.GLRUClassifier().fit(data.X, data.y)
print(result.n_trainings, bounds.lower.size, steps.selected.size, data.X.shape)
"""
    found = run_without(extras, PROBLEM + "\n" + script, tmp_path)
    assert found.stderr == "" and found.stdout.endswith("(569, 30)\n")
