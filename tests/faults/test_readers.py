"""Files of any origin: an error that is ours, or data; never a crash, a hang, a huge allocation, or code that runs."""

import gzip
import io
import json
import tracemalloc
import zipfile
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

import glru
from glru import datasets
from glru.datasets import files
from tests.cases import make
from tests.cli.running import complaint, sample, write
from tests.core import _files
from tests.live.test_files import busy, npy, rewritten
from tests.live.test_model import data

FUZZ = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

PROBLEM = make(glru.Logistic(), glru.L2(0.02), 12, 3)

NUMBERS = (b"0", b"-1", b"1e308", b"nan", b"2147483648", b"1000000000000000000", b"99999999999999999999999")


@st.composite
def damaged(draw, whole):
    """Bytes that have to do with a whole file: cut, bits turned over, parts replaced, numbers made absurd."""
    content = bytearray(whole)
    for kind in draw(st.lists(st.sampled_from(["cut", "bit", "splice", "number"]), min_size=1, max_size=3)):
        place = draw(st.integers(0, max(len(content) - 1, 0)))
        if kind == "cut":
            content = content[:place]
        elif kind == "bit" and content:
            content[place] ^= 1 << draw(st.integers(0, 7))
        elif kind == "splice":
            content[place : place + draw(st.integers(0, 20))] = draw(st.binary(max_size=20))
        else:
            digits = [k for k, byte in enumerate(content) if chr(byte).isdigit()] or [0]
            at = digits[draw(st.integers(0, len(digits) - 1))]
            content[at : at + 1] = draw(st.sampled_from(NUMBERS))
    return bytes(content)


def bytes_like(whole):
    return st.one_of(st.binary(max_size=300), damaged(whole), st.binary(max_size=30).map(lambda tail: whole + tail))


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "npz", "libsvm", "csv.gz", "libsvm.bz2", "npz.xz"])
@FUZZ
@given(draw=st.data())
def test_data_files(tmp_path, suffix, draw):
    path = tmp_path / f"data.{suffix}"
    whole = tmp_path / f"whole.{suffix}"
    if not whole.exists():
        write(whole, *sample(n=12))
    path.write_bytes(draw.draw(bytes_like(whole.read_bytes())))
    with suppress(ValueError):
        found = datasets.read(path)
        assert found.n_rows > 0 and found.names


@FUZZ
@given(draw=st.data())
def test_live_models(tmp_path, draw):
    path, whole = tmp_path / "live.npz", tmp_path / "whole.npz"
    if not whole.exists():
        busy().save(whole)
    path.write_bytes(draw.draw(bytes_like(whole.read_bytes())))
    with suppress(ValueError):
        glru.LiveModel.load(path).predict(np.ones((1, 4)))


@FUZZ
@given(draw=st.data())
def test_checkpoints(tmp_path, draw):
    path, whole = tmp_path / "run", tmp_path / "whole"
    if not whole.exists():
        glru.loocv(PROBLEM, checkpoint=whole)
    path.write_bytes(draw.draw(bytes_like(whole.read_bytes())))
    with suppress(ValueError):
        # The checksums of a ZIP archive let no other answers pass.
        assert np.array_equal(glru.loocv(PROBLEM, checkpoint=path).score_lower, glru.loocv(PROBLEM).score_lower)


ARRAYS = (
    np.zeros(0),
    np.array(3.0),
    np.array([np.nan]),
    np.zeros((12, 3)),
    np.array(["a", "b"]),
    np.array([-1, 13]),
    np.array([10**18]),
    np.zeros(3, dtype=np.float32),
    np.zeros(2, dtype="V8"),
)


@FUZZ
@given(name=st.sampled_from(["coef", "dual", "numbers", "words", "sizes", "rows", "lower", "upper"]), draw=st.data())
def test_forged_checkpoints(tmp_path, name, draw):
    """A member that is whole, but something else than it should be."""
    path = tmp_path / "run"
    path.unlink(missing_ok=True)
    glru.loocv(PROBLEM, checkpoint=path)
    value = draw.draw(st.sampled_from(ARRAYS))

    def edit(members):
        for member in [m for m in members if m.endswith(f"/{name}.npy")]:
            members[member] = npy(value)

    rewritten(path, edit)
    with pytest.raises(ValueError, match=r"is not a checkpoint of glru|does not fit this run"):
        glru.loocv(PROBLEM, checkpoint=path)


def receipt():
    X, y = data(20)
    live = glru.LiveModel(LogisticRegression()).fit(X, y)
    removal = live.remove_rows([4])
    return live.refresh().receipt(removal, X[:2]), np.delete(X, 4, axis=0), np.delete(y, 4)


RECEIPT, LEFT_X, LEFT_Y = receipt()

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([10**400, "\ud800", -1, 1e308]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


def places(value, path=()):
    """The paths to all values in a document."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


@FUZZ
@given(draw=st.data())
def test_receipts(draw):
    """Whatever stands in a receipt, it is verified or it is not; a changed one is not."""
    changed = json.loads(json.dumps(RECEIPT))
    path = draw.draw(st.sampled_from([p for p in places(RECEIPT) if p]))
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    before, inner[path[-1]] = inner[path[-1]], draw.draw(JSON)
    found = glru.verify_receipt(changed, LEFT_X, LEFT_Y, queries=LEFT_X[:2])
    same = type(before) is type(inner[path[-1]]) and before == inner[path[-1]]
    assert not found or same


@FUZZ
@given(draw=st.data())
def test_texts_of_receipts(draw):
    text = draw.draw(bytes_like(json.dumps(RECEIPT).encode()))
    glru.verify_receipt(text, LEFT_X, LEFT_Y)
    glru.verify_receipt(text.decode("utf-8", "replace"), LEFT_X, LEFT_Y)


def test_receipts_that_are_too_deep_or_too_long():
    for text in ("[" * 200_000, '{"schema":' * 100_000, '{"schema": ' + "9" * 100_000 + "}", json.dumps(["x" * 10**6])):
        assert not glru.verify_receipt(text, LEFT_X, LEFT_Y)


def promised(shape, descr="<f8"):
    """An array whose header promises more than is there."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue() + bytes(8)


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


@pytest.fixture
def thrifty():
    """Far less memory is used than the 100 MB that a file pretends to hold."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20


@pytest.mark.parametrize("shape", [(10**15, 3), (10**15,), (2**62, 2**62), (10**9, 10**9, 10**9)])
@pytest.mark.parametrize("descr", ["<f8", "|S0", "|V1000000000"])
def test_absurd_headers(tmp_path, thrifty, shape, descr):
    path = zipped(tmp_path / "data.npz", {"X": promised(shape, descr), "y": npy(np.ones(3))})
    with pytest.raises(ValueError, match=r"cannot be read: member 'X\.npy' says it is"):
        datasets.read(path)


def test_a_sparse_matrix_of_absurd_shape(tmp_path, thrifty):
    parts = {"data": np.ones(1), "indices": np.zeros(1, dtype=np.int64), "y": np.ones(2)}
    for shape, indptr in (((2, 10**18), [0, 1, 1]), ((10**18, 2), [0, 1]), ((2, -1), [0, 1, 1]), ((2,), [0, 1, 1])):
        np.savez(tmp_path / "data.npz", shape=np.array(shape), indptr=np.array(indptr), **parts)
        with pytest.raises(ValueError, match=r"data\.npz"):
            datasets.read(tmp_path / "data.npz")


@pytest.mark.parametrize("index", [2**31 - 2, 2**31, 10**18, 10**30])
def test_an_absurd_index(tmp_path, thrifty, index):
    path = tmp_path / "data.libsvm"
    path.write_text(f"1 1:0.5 {index}:1\n-1 2:1\n")
    with pytest.raises(ValueError, match=r"data\.libsvm (must have at most 10000000 columns|is not a LIBSVM file)"):
        datasets.read(path)
    assert "data.libsvm" in complaint("loocv", path)


def test_many_columns_that_are_meant(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_COLUMNS", 10)
    path = tmp_path / "data.libsvm"
    path.write_text("1 1:0.5 12:1\n-1 2:1\n")
    with pytest.raises(ValueError, match="say so: n_columns=12"):
        datasets.read(path)
    assert datasets.read(path, n_columns=12).X.shape == (2, 12)


@pytest.fixture
def small_room(monkeypatch):
    for module in (_files, files):
        monkeypatch.setattr(module, "MIN_UNPACKED_LIMIT", 1 << 20)


def test_a_bomb_in_an_archive(tmp_path, thrifty, small_room):
    """A hundred megabytes of zeros in a hundred kilobytes."""
    zeros = npy(np.zeros(1))[:-8] + bytes(8)
    path = zipped(tmp_path / "data.npz", {"X": zeros[:-8], "y": npy(np.ones(3))})
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
        archive.open("X.npy", "w") as member,
    ):
        np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (10**7, 2)})
        for _ in range(160):
            member.write(bytes(10**6))
    assert path.stat().st_size < 200_000
    with pytest.raises(ValueError, match=r"unpack to more than 100 times its size.*numpy\.savez"):
        datasets.read(path)


@pytest.mark.parametrize("suffix", ["csv", "libsvm", "parquet", "npz"])
def test_a_bomb_that_is_one_file(tmp_path, thrifty, small_room, suffix):
    path = tmp_path / f"data.{suffix}.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(100):
            file.write(b"1" * 10**6)
    with pytest.raises(ValueError, match=r"must unpack to at most 100 times its size or 1 MiB; .* unpack it first"):
        datasets.read(path)


def test_long_fields(tmp_path):
    """A million characters in a name, and in a value."""
    path = tmp_path / "data.csv"
    path.write_text(f"{'a' * 10**6},y\n1,0\n2,1\n")
    with pytest.raises(ValueError, match="first line"):
        datasets.read(path)
    path.write_text(f"a,y\n{'1' * 10**6},0\n2,1\n")
    with suppress(ValueError):
        assert datasets.read(path).n_rows == 2
    path.write_text(f'a,y\n"{"x" * 10**6},0\n2,1\n')
    with suppress(ValueError):
        datasets.read(path)


def trap(path):
    """An array that makes a file when it is unpickled."""

    class Trap:
        def __reduce__(self):
            return (open, (str(path), "w"))

    array = np.empty(1, dtype=object)
    array[0] = Trap()
    return npy(array, allow_pickle=True)


def test_nothing_is_unpickled(tmp_path):
    """Neither from data nor from our own files."""
    sprung = tmp_path / "sprung"
    zipped(tmp_path / "data.npz", {"X": trap(sprung), "y": trap(sprung)})
    with pytest.raises(ValueError, match="pickled objects, which are not read"):
        datasets.read(tmp_path / "data.npz")
    busy().save(tmp_path / "live.npz")
    rewritten(tmp_path / "live.npz", lambda members: members.update({name: trap(sprung) for name in members}))
    with pytest.raises(ValueError, match="not a whole file of a live model"):
        glru.LiveModel.load(tmp_path / "live.npz")
    glru.loocv(PROBLEM, checkpoint=tmp_path / "run")
    rewritten(tmp_path / "run", lambda members: members.update({name: trap(sprung) for name in members}))
    with pytest.raises(ValueError, match="is not a checkpoint"):
        glru.loocv(PROBLEM, checkpoint=tmp_path / "run")
    assert not sprung.exists()
