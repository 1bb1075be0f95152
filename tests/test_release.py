"""What a release has to agree on: versions, the manifest, workflows, and the names of make targets."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import glru
from tests.attack.campaign import GROUPS

ROOT = Path(__file__).parent.parent


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_versions_agree():
    assert yaml.safe_load(text("CITATION.cff"))["version"] == glru.__version__
    assert f"## [{glru.__version__}]" in text("CHANGELOG.md")


def test_metadata():
    project = tomllib.loads(text("pyproject.toml"))["project"]
    assert project["urls"] and project["readme"] == "README.md"
    minors = {line.rsplit(" ", 1)[-1] for line in project["classifiers"] if ":: 3." in line}
    assert min(minors, key=lambda minor: int(minor.partition(".")[2])) == project["requires-python"].removeprefix(">=")


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / ".github" / "workflows").glob("*.yml")))
def test_workflows_call_targets_that_exist(name):
    """Every step has an action or a command, and every ``make`` a target."""
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), flags=re.MULTILINE))
    jobs = yaml.safe_load(text(f".github/workflows/{name}"))["jobs"].values()
    steps = [step for job in jobs for step in job["steps"]]
    assert steps and all("uses" in step or "run" in step for step in steps)
    called = {target for step in steps for target in re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))}
    assert called <= targets


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / ".github" / "workflows").glob("*.yml")))
def test_workflows_refer_to_what_is_there(name):
    """Triggers, runners, jobs that are waited for, keys of a matrix, ids of steps and versions of actions."""
    source = yaml.safe_load(text(f".github/workflows/{name}"))
    assert set(source[True]) <= {"push", "pull_request", "schedule", "workflow_dispatch"}  # YAML reads "on" as True
    jobs = source["jobs"]
    for job in jobs.values():
        needed = job.get("needs", [])
        assert set([needed] if isinstance(needed, str) else needed) <= set(jobs)
        matrix = job.get("strategy", {}).get("matrix", {})
        runners = matrix.get("os", [job["runs-on"]])
        assert set(runners) <= {"ubuntu-latest", "macos-latest", "windows-latest"}
        words = str(job)
        assert set(re.findall(r"matrix\.(\w+)", words)) == set(matrix)
        assert set(re.findall(r"steps\.(\w+)", words)) <= {step.get("id") for step in job["steps"]}
        assert all(re.fullmatch(r"[\w/-]+@v\d+", step["uses"]) for step in job["steps"] if "uses" in step)


def test_make_help_names_every_target():
    makefile = text("Makefile")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE).group(1).split()
    assert {f"make {target}" for target in phony if target != "help"} <= set(
        re.findall(r'@echo "(make [a-z-]+)', makefile)
    )


def test_every_kind_of_case_is_attacked_at_night():
    attack = yaml.safe_load(text(".github/workflows/attack.yml"))["jobs"]["attack"]
    assert attack["strategy"]["matrix"]["cases"] == list(GROUPS)
