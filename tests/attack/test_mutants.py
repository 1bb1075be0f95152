"""The mutants fit the library as it is; ``python -m tests.attack.mutants`` runs them."""

import os
import subprocess
import sys
from types import ModuleType

import pytest

from tests.attack.mutants import MUTANTS, ROOT, VARIABLE, main
from tests.attack.mutation import Mutant, Unbound, always, become, inside, scaled


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_fits(name):
    """A redesign that moves what a mutant is bound to has to bind it again."""
    mutant = MUTANTS[name]
    assert mutant.make() is not None
    assert mutant.tests.split() and all((ROOT / "tests" / test).is_file() for test in mutant.tests.split())


@pytest.mark.parametrize(
    ("target", "change"),
    [
        ("glru.nowhere:score_errors", always(0.0)),
        ("glru.certificate:nowhere", always(0.0)),
        ("glru.certificate:Certificate.nowhere", always(0.0)),
        ("glru.certificate:weighted_sum", inside(nowhere=always(0.0))),
        ("glru.solution:Solution.certificate", always(None)),
    ],
    ids=["module", "name", "member", "name inside", "closure"],
)
def test_what_is_gone_is_named(target, change):
    with pytest.raises(Unbound, match=r"Bind the mutant to") as found:
        Mutant(target, change, "").make()
    assert target in str(found.value)


def test_unknown_mutants_are_refused():
    with pytest.raises(SystemExit, match="there is no mutant 'nobody'"):
        main(["nobody"])
    environment = dict(os.environ, **{VARIABLE: "nobody"})
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "tests.attack.mutants", "tests/test_package.py"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "there is no mutant 'nobody'" in done.stderr


@pytest.fixture
def library(monkeypatch):
    """A small library of two modules, the second of which imports names of the first."""
    first, second = ModuleType("small.first"), ModuleType("small.second")
    source = """
SLACK = 0.5

def widened(x, slack=SLACK):
    return x + slack

TABLE = {"widened": widened}

class Region:
    def __init__(self, x):
        self.x = x

    @property
    def radius(self):
        return widened(self.x)
"""
    exec(source, vars(first))
    vars(second).update(SLACK=first.SLACK, widened=first.widened)
    for module in (ModuleType("small"), first, second):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return first, second


def test_a_function_is_replaced_wherever_it_is_kept(library):
    first, second = library
    Mutant("small.first:widened", scaled(10.0), "").install()
    assert [f(1.0) for f in (first.widened, second.widened, first.TABLE["widened"])] == [15.0] * 3
    assert second.widened(1.0, slack=0.0) == 10.0
    assert first.Region(1.0).radius == 15.0


def test_a_name_means_something_else_in_one_function_only(library):
    first, second = library
    Mutant("small.first:Region.radius", inside(widened=always(3.0)), "").install()
    assert first.Region(1.0).radius == 3.0
    assert first.widened(1.0) == second.widened(1.0) == 1.5


def test_a_constant_is_replaced_in_every_module(library):
    first, second = library
    Mutant("small.first:SLACK", become(0.0), "").install()
    assert first.SLACK == second.SLACK == 0.0


def test_workers_run_the_mutant():
    """The processes that pytest-xdist starts install it, too."""
    environment = dict(os.environ, **{VARIABLE: "gap-rounded-down"})
    test = "tests/certificates/test_rounding.py"
    for n_workers in ("0", "1"):
        options = ("-q", "-n", n_workers, "-p", "tests.attack.mutants", "-p", "no:cacheprovider", "-k", "weighted_sums")
        command = [sys.executable, "-m", "pytest", *options, test]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
