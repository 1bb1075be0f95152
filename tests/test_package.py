"""The package as a whole: a quick import and the public names."""

import inspect
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import glru

NAMES = [
    "Squared",
    "Huber",
    "Logistic",
    "SquaredHinge",
    "SmoothedHinge",
    "Hinge",
    "L2",
    "ElasticNet",
    "L1",
    "Problem",
    "Point",
    "Solution",
    "solve",
]


def test_import_is_light():
    """Neither numba nor scikit-learn nor an optional dependency is imported before it is needed."""
    heavy = {"numba", "sklearn", "pandas", "dask", "polars", "mpmath", "typer", "rich", "matplotlib"}
    script = f"import sys, glru; print(*sorted({heavy} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""


@pytest.mark.parametrize("name", NAMES)
def test_public_names(name):
    """What the contract promises is there, documented and listed."""
    assert getattr(glru, name).__doc__
    assert name in glru.__all__


def test_version():
    """Three numbers."""
    assert len(glru.__version__.split(".")) == 3


def test_every_public_object_has_an_example():
    """Examples run as doctests; a module's are those of its members."""
    silent = [
        name
        for module in (glru, glru.results)
        for name in module.__all__
        if not inspect.ismodule(getattr(module, name)) and ">>>" not in (inspect.getdoc(getattr(module, name)) or "")
    ]
    assert silent == []


def test_names_to_complete():
    """Completion shows the public names, the estimators among them, and nothing else; there are not too many."""
    assert set(dir(glru)) == {*glru.__all__, "__version__"}
    assert "GLRUClassifier" in dir(glru) and len(glru.__all__) <= 50


FUNCTIONS = [
    glru.loocv,
    glru.stepwise,
    glru.cross_val_predict,
    glru.cross_val_score,
    glru.cross_validate,
    glru.after,
    glru.certify,
    glru.solve,
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_signatures_are_explicit(function):
    """Every parameter is named, documented and has its default; a misspelt one is refused under the public name."""
    parameters = inspect.signature(function).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    described = inspect.getdoc(function).split("Returns\n")[0]
    listed = {name for line in described.splitlines() for name in line.split(" : ")[0].split(", ")}
    assert set(parameters) <= listed
    with pytest.raises(TypeError, match=rf"{function.__name__}\(\) got an unexpected keyword argument 'widht'"):
        function(None, None, None, widht=1.0)


@pytest.mark.parametrize(
    ("function", "given", "meant"), [(glru.loocv, "widht", "width"), (glru.after, "bonud", "bound")]
)
def test_a_misspelt_option_names_the_right_one(function, given, meant):
    with pytest.raises(TypeError, match=rf"{function.__name__}\(\) got .* '{given}'\. Did you mean '{meant}'\?"):
        function(None, None, **{given: 1.0})


def modules_visited(ask):
    """The modules of the package in which some function runs, in worker threads, too."""
    root, seen = str(Path(glru.__file__).parent), set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(root):
            seen.add(code.co_filename.removeprefix(root))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        ask()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return seen


def ask_loocv(shape, fit_intercept, width):
    random = np.random.default_rng(0)
    X = random.normal(size=shape)
    y = np.where(X[:, 0] + random.normal(size=shape[0]) > 0.0, 1.0, -1.0)
    problem = glru.Problem(X, y, penalty=glru.L2(1.0), fit_intercept=fit_intercept)
    return lambda: glru.loocv(problem, width=width)


def ask_stepwise():
    random = np.random.default_rng(0)
    X, queries = random.normal(size=(60, 6)), random.normal(size=(30, 6))
    y, targets = (np.where(A[:, 0] + random.normal(size=len(A)) > 0.0, 1.0, -1.0) for A in (X, queries))
    problem = glru.Problem(X, y, penalty=glru.L2(1.0))
    return lambda: glru.stepwise(problem, X_val=queries, y_val=targets)


WALKS = {
    "tall, labels": (lambda: ask_loocv((40, 4), False, "labels"), 28),
    "tall": (lambda: ask_loocv((40, 4), False, None), 30),
    "tall with an intercept": (lambda: ask_loocv((40, 4), True, None), 31),
    "wide with an intercept": (lambda: ask_loocv((20, 60), True, None), 27),
    "stepwise": (ask_stepwise, 34),
}


@pytest.mark.parametrize("name", WALKS)
def test_a_call_visits_few_modules(name):
    """Whoever follows a call in the source opens so many files; lower a limit when modules are merged, and do not raise it."""
    make, most = WALKS[name]
    seen = modules_visited(make())
    assert len(seen) <= most, sorted(seen)
