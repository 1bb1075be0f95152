"""No command writes to a file that it reads, under whatever name."""

import os

import joblib
import pytest
from sklearn.linear_model import LogisticRegression

from tests.cli.running import complaint, glru_command, sample, write

KINDS = {
    "itself": lambda path, other: path,
    "another-way": lambda path, other: path.parent / "folder" / ".." / path.name,
    "link": lambda path, other: (other.symlink_to(path), other)[1],
    "hard-link": lambda path, other: (os.link(path, other), other)[1],
}


def alias(kind, path, suffix=".csv"):
    """Another name of a file."""
    (path.parent / "folder").mkdir(exist_ok=True)
    return KINDS[kind](path, path.parent / f"alias{suffix}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", ["loocv", "tune", "select", "whatif"])
def test_the_data(tmp_path, command, kind):
    path = write(tmp_path / "data.csv", *sample())
    before = path.read_bytes()
    more = ("--remove-rows", "1") if command == "whatif" else ()
    said = complaint(command, path, *more, "--out", alias(kind, path))
    assert "--out must leave the input alone" in said and "Name another place" in said
    assert path.read_bytes() == before


@pytest.mark.parametrize(("option", "suffix"), [("--plot", ".svg"), ("--html", ".html"), ("--checkpoint", ".run")])
def test_other_outputs(tmp_path, option, suffix):
    path = write(tmp_path / "data.csv", *sample())
    before = path.read_bytes()
    for kind in ("link", "hard-link"):
        place = alias(kind, path, suffix)
        assert f"{option} must leave the input alone" in complaint("loocv", path, option, place)
        place.unlink()
    assert path.read_bytes() == before


def test_checkpoints(tmp_path):
    """Neither is data overwritten by a checkpoint, nor a checkpoint by the result."""
    path = write(tmp_path / "data.npz", *sample())
    before = path.read_bytes()
    assert "--checkpoint must leave the input alone" in complaint("loocv", path, "--checkpoint", path)
    other = write(tmp_path / "other.npz", *sample(seed=1))
    assert "is not a checkpoint of glru" in complaint("loocv", path, "--checkpoint", other)
    assert path.read_bytes() == before
    kept = tmp_path / "rows.csv"
    glru_command("loocv", path, "--checkpoint", kept)
    assert "--out must leave the input alone" in complaint("loocv", path, "--checkpoint", kept, "--out", kept)


def test_further_inputs(tmp_path):
    X, y = sample()
    path, more = write(tmp_path / "data.csv", X, y), write(tmp_path / "more.csv", *sample(seed=1))
    before = more.read_bytes()
    for arguments in (
        ("whatif", path, "--add-rows", more),
        ("whatif", path, "--remove-rows", "1", "--query", more),
        ("select", path, "--validation", more),
    ):
        assert "--out must leave the input alone" in complaint(*arguments, "--out", more)
    assert more.read_bytes() == before
    model = tmp_path / "model.csv"
    joblib.dump(LogisticRegression().fit(X, y), model)
    assert "--out must leave the input alone" in complaint("certify", path, "--model", model, "--out", model)
