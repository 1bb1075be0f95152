"""Full disks and places that cannot be written to: the error says so, the old file stays, nothing is left behind."""

import errno
import io
import os
import urllib.request
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import glru
from tests.cases import make
from tests.cli.running import complaint, glru_command, sample, write
from tests.core import check_target, write_atomically
from tests.core import checkpoint as module
from tests.faults.moments import full_disk
from tests.live.test_model import data

PROBLEM = make(glru.Logistic(), glru.L2(0.02), 20, 4)


class Answered(io.BytesIO):
    """What a server sends."""

    headers = {"Content-Length": "5000"}  # noqa: RUF012


def _live(path):
    glru.LiveModel(LogisticRegression()).fit(*data(30)).save(path, overwrite=True)


def _download(path):
    import_module("paper.download").download("https://example.org/data", path)


def _record(path):
    import_module("paper.record").write_text(path, "x" * 5000)


def _cache(path):
    save = import_module("paper.sources").save
    write_atomically(path, lambda part: save(part, PROBLEM.X, PROBLEM.y), make_folder=True)


WRITERS = {"live model": _live}
"""What the library and the paper's experiments write, each to a place of its own choice of content."""

if find_spec("paper"):
    WRITERS |= {"download": _download, "cache": _cache, "record": _record}


@pytest.fixture(autouse=True)
def server(monkeypatch, capsys):
    """A server; what is printed stays in memory, away from limits of files."""
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: Answered(bytes(5000)))


@pytest.mark.parametrize("room", [0, 300])
@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk(tmp_path, name, room):
    """No room for a byte, or for some of them."""
    path = tmp_path / "file.npz"
    path.write_bytes(b"old")
    with full_disk(room), pytest.raises(OSError, match=r"file\.npz could not be written .*Free space") as caught:
        WRITERS[name](path)
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["file.npz"]
    WRITERS[name](path)
    assert path.read_bytes() != b"old" and [p.name for p in tmp_path.iterdir()] == ["file.npz"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("name", WRITERS)
def test_a_disk_that_is_full_in_the_end(tmp_path, monkeypatch, name, call):
    """Room may turn out to be missing only when the file is synchronised, or put in its place."""
    path = tmp_path / "file.npz"
    path.write_bytes(b"old")

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match=r"could not be written \(No space left on device") as caught:
        WRITERS[name](path)
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["file.npz"]


@pytest.mark.parametrize("name", WRITERS)
def test_places_without_a_file(tmp_path, name):
    """A folder in place of the file; a file in place of the folder."""
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match="folder could not be written"):
        WRITERS[name](tmp_path / "folder")
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises((NotADirectoryError, FileExistsError), match="below could not be written"):
        WRITERS[name](tmp_path / "file" / "below")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]
    assert (tmp_path / "file").read_bytes() == b"old" and not list((tmp_path / "folder").iterdir())


@pytest.mark.parametrize("name", WRITERS)
def test_a_folder_that_is_read_only(tmp_path, monkeypatch, name):
    """The system refuses to make a file."""
    path = tmp_path / "file.npz"
    path.write_bytes(b"old")
    opened, made = io.open, os.open

    def refused(file, *_):
        if ".part" in str(file):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))

    monkeypatch.setattr(io, "open", lambda file, *a, **k: refused(file) or opened(file, *a, **k))
    monkeypatch.setattr(os, "open", lambda file, *a, **k: refused(file) or made(file, *a, **k))
    with pytest.raises(PermissionError, match=r"file\.npz could not be written \(Permission denied"):
        WRITERS[name](path)
    assert path.read_bytes() == b"old"


def test_a_checkpoint_is_refused_before_any_work(tmp_path, monkeypatch):
    """A folder, a folder that is not there, one that is not ours."""
    monkeypatch.setattr(module, "make_solution", None)
    with pytest.raises(ValueError, match=r"a checkpoint must be a file; .* is a folder"):
        glru.loocv(PROBLEM, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"folder that exists; .* does not\. Make it first"):
        glru.loocv(PROBLEM, checkpoint=tmp_path / "none" / "file")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ValueError, match=r"folder that you may write to; .* is not\. Name another"):
        glru.loocv(PROBLEM, checkpoint=tmp_path / "file")


@pytest.mark.parametrize("room", [0, 2000])
def test_a_checkpoint_on_a_full_disk(tmp_path, monkeypatch, room):
    """What was kept before is still there, and a run with room goes on from it."""
    monkeypatch.setattr(module, "WRITE_INTERVAL", 0.0)
    monkeypatch.setattr(module, "WRITE_SHARE", 0.0)
    path = tmp_path / "run"
    with full_disk(room), pytest.raises(OSError, match="run could not be written"):
        glru.loocv(PROBLEM, method="naive", checkpoint=path)
    assert path.exists() == (room > 0)
    assert len(list(tmp_path.iterdir())) == (room > 0)
    resumed, whole = glru.loocv(PROBLEM, method="naive", checkpoint=path), glru.loocv(PROBLEM, method="naive")
    assert np.array_equal(resumed.scores, whole.scores)


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("--out", "a.csv"),
        ("--out", "a.parquet"),
        ("--plot", "a.png"),
        ("--plot", "a.svg"),
        ("--plot", "a.pdf"),
        ("--html", "a.html"),
    ],
)
def test_files_of_a_command(tmp_path, monkeypatch, option, name):
    """One line that names the file and what to do, exit code 1."""
    source, path = write(tmp_path / "data.npz", *sample()), tmp_path / name
    path.write_bytes(b"old")
    glru_command("loocv", source)  # what is written once, such as caches of fonts and compiled code
    with full_disk(100):
        message = complaint("loocv", source, option, path, "--quiet")
    assert f"{path} could not be written (File too large). Free space" in message
    assert path.read_bytes() == b"old" and sorted(p.name for p in tmp_path.iterdir()) == sorted([name, "data.npz"])
    path.unlink()
    path.mkdir()
    assert "must be a file" in complaint("loocv", source, option, path)
    assert "folder that exists" in complaint("loocv", source, option, tmp_path / "none" / name)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "that you may write to" in complaint("loocv", source, option, tmp_path / f"other{path.suffix}")


def test_a_target_is_checked(tmp_path):
    """Where a file can be written, nothing is said and nothing is made."""
    check_target(tmp_path / "file", "it")
    assert not list(tmp_path.iterdir())


def test_a_relative_target(tmp_path, monkeypatch):
    """A name alone lies in the present folder."""
    monkeypatch.chdir(tmp_path)
    check_target(Path("file"), "it")
    write_atomically(Path("file"), lambda part: part.write_bytes(b"new"))
    assert Path("file").read_bytes() == b"new"
