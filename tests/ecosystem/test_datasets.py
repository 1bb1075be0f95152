"""Datasets by name: bundled, of the paper, from a folder, and downloaded from a server on this machine."""

import contextlib
import re
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine

import glru
from glru import datasets
from glru.datasets import paper
from glru.datasets.catalogue import save
from glru.datasets.download import download
from tests.cases import stored


def test_bundled():
    """What scikit-learn has, with the classes as +1 and -1."""
    cancer = datasets.load("breast_cancer")
    X, y = load_breast_cancer(return_X_y=True)
    assert np.array_equal(cancer.X, X) and np.array_equal(cancer.y, np.where(y == 1, 1.0, -1.0))
    assert cancer.classes == ("malignant", "benign") and cancer.feature_names[0] == "mean radius"
    digits = datasets.load("digits:3v8")
    X, y = load_digits(return_X_y=True)
    rows = (y == 3) | (y == 8)
    assert np.array_equal(digits.X, X[rows]) and np.array_equal(digits.y, np.where(y[rows] == 3, 1.0, -1.0))
    wine = datasets.load("wine:2vrest")
    assert wine.X.shape == (178, 13) and int((wine.y > 0).sum()) == int((load_wine().target == 2).sum())
    assert wine.classes == ("rest", "class_2")
    assert datasets.load("iris:0v1").X.shape == (100, 4)
    diabetes = datasets.load("diabetes")
    assert diabetes.task == "regression" and np.array_equal(diabetes.y, load_diabetes().target)


@pytest.mark.parametrize("name", ["wine", "wine:0", "wine:0v3", "wine:1v1", "iris:setosa", "digits:3v10"])
def test_classes_must_be_named(name):
    with pytest.raises(ValueError, match=r"classes, 0 to \d: name two different ones as"):
        datasets.load(name)


def test_unknown_names(monkeypatch):
    monkeypatch.delenv("GLRU_DATA", raising=False)
    with pytest.raises(
        ValueError, match=r"known by name \(breast_cancer, .*arcene.*got 'nothing'.*GLRU_DATA.* not set"
    ):
        datasets.load("nothing")
    with pytest.raises(ValueError, match="a regression and has no classes"):
        datasets.load("diabetes:0v1")


def test_the_papers_ten():
    """Tables 1 and 2."""
    assert {name: (entry.n_rows, entry.n_varying or entry.n_columns) for name, entry in paper.PAPER.items()} == {
        "arcene": (200, 9961),
        "dexter": (600, 11035),
        "gisette": (6000, 4955),
        "skin_nonskin": (245057, 3),
        "covtype": (581012, 54),
        "susy": (5000000, 18),
        "rcv1_train": (20242, 47236),
        "dorothea": (1150, 91598),
        "news20": (19996, 1355191),
        "url": (2396130, 3231961),
    }
    listed = {entry.name for entry in datasets.list()}
    assert listed.issuperset(paper.PAPER) and "breast_cancer" in listed


@pytest.mark.parametrize(("name", "file"), [("arcene", "arcene"), ("dexter", "dexter"), ("dorothea", "dorothea")])
def test_papers_data_in_the_folder(name, file):
    stored(file)
    data = datasets.load(name)
    entry = paper.PAPER[name]
    assert data.X.shape == (entry.n_rows, entry.n_columns)
    assert datasets.normalize(data.X, data.normalization).shape == (entry.n_rows, entry.n_varying)


TOY = {
    "rows": paper.PaperDataset("toy", 4, 2, "dense", "toy", "rows", ("a.data", "a.labels", "b.data", "b.labels")),
    "pairs": paper.PaperDataset("toy", 4, 2, "sparse", "toy", "pairs", ("a.data", "a.labels", "b.data", "b.labels")),
    "indices": paper.PaperDataset(
        "toy", 4, 2, "sparse", "toy", "indices", ("a.data", "a.labels", "b.data", "b.labels")
    ),
    "label-last": paper.PaperDataset("toy", 4, 2, "dense", "toy", "label-last", ("toy.txt",)),
    "label-first": paper.PaperDataset("toy", 4, 2, "dense", "toy", "label-first", ("toy.csv",)),
    "libsvm": paper.PaperDataset("toy", 4, 2, "sparse", "toy", "libsvm", ("toy.libsvm",)),
}
FILES = {
    "rows": {"a.data": "1 2\n0 1\n", "b.data": "1 0 \n0 0\n"},
    "pairs": {"a.data": "1:1 2:2\n2:1\n", "b.data": "1:1\n\n"},
    "indices": {"a.data": "1 2\n2\n", "b.data": "1\n\n"},
    "label-last": {"toy.txt": "1\t2\t2\n0\t1\t1\n1\t0\t1\n0\t0\t1\n"},
    "label-first": {"toy.csv": "1.0,1,2\n0,0,1\n0,1,0\n0,0,0\n"},
    "libsvm": {"toy.libsvm": "+1 1:1 2:2\n-1 2:1\n-1 1:1\n-1\n"},
}
VALUES = np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])


@contextlib.contextmanager
def served(folder):
    """A server of a folder on this machine, and its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """An empty server, cache and data folder, and a dataset to be found there."""
    for name in ("site", "cache", "data"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("GLRU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GLRU_DATA", str(tmp_path / "data"))

    def stock(layout, folder, **changes):
        files = FILES[layout] | {"a.labels": "1\n-1\n", "b.labels": "-1\n-1\n"}
        for name in TOY[layout].files:
            (tmp_path / folder / name).write_text(files[name])
        monkeypatch.setitem(paper.PAPER, "toy", replace(TOY[layout], **changes))
        return tmp_path

    with served(tmp_path / "site") as address:
        monkeypatch.setitem(paper.SITES, "toy", address)
        yield stock


@pytest.mark.parametrize("layout", TOY)
def test_download(shop, layout, capsys):
    """Fetched once, its size shown, parsed, checked, and read from the cache from then on."""
    folder = shop(layout, "site", n_positive=1, total=4 if layout == "indices" else 5, n_varying=2)
    data = datasets.load("toy")
    X = data.X.toarray() if sp.issparse(data.X) else data.X
    if layout == "indices":
        assert np.array_equal(X, VALUES > 0)
    else:
        assert np.array_equal(X, VALUES)
    assert data.y.tolist() == [1, -1, -1, -1]
    shown = capsys.readouterr().err
    assert shown.count("downloading http://127.0.0.1") == len(TOY[layout].files) and "MB)" in shown
    assert [path.name for path in (folder / "cache").iterdir()] == ["toy.npz"]
    again = datasets.load("toy")
    assert capsys.readouterr().err == "" and again.source.endswith("toy.npz")
    assert np.array_equal(again.y, data.y) and again.source == data.source


def test_distributed_files_in_the_folder(shop, capsys):
    folder = shop("libsvm", "data")
    assert datasets.load("toy").X.shape == (4, 2)
    assert capsys.readouterr().err == "" and (folder / "data" / "toy.libsvm").exists()


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"n_rows": 5}, "shape is (4, 2), not (5, 2)"),
        ({"n_positive": 2}, "number of rows of the class +1 is 1, not 2"),
        ({"total": 7}, "sum of all values is 5, not 7"),
        ({"n_varying": 1}, "number of columns that vary is 2, not 1"),
    ],
)
def test_other_data_is_not_taken_for_the_papers(shop, changes, what):
    folder = shop("libsvm", "site", **changes)
    with pytest.raises(ValueError, match=f"download of toy is not the paper's toy: its {re.escape(what)}"):
        datasets.load("toy")
    assert list((folder / "cache").iterdir()) == []
    save(folder / "data" / "toy.npz", VALUES, np.array([1.0, -1.0, -1.0, -1.0]))
    with pytest.raises(ValueError, match=f"toy.npz is not the paper's toy: its {re.escape(what)}"):
        datasets.load("toy")


def test_nothing_to_download(shop, tmp_path, monkeypatch):
    """No file at the site, and no server at all."""
    shop("libsvm", "data")
    (tmp_path / "data" / "toy.libsvm").unlink()
    with pytest.raises(
        ValueError, match=r"downloaded once, and that failed \(.*not found\).*put toy.npz or .*toy.libsvm"
    ):
        datasets.load("toy")
    monkeypatch.setitem(paper.SITES, "toy", "http://127.0.0.1:9/")
    monkeypatch.delenv("GLRU_DATA")
    with pytest.raises(ValueError, match=r"refused.*a folder named in GLRU_DATA \(it is not set\)"):
        datasets.load("toy")


def test_an_interrupted_download_leaves_nothing(tmp_path):
    class Short(QuietHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"only this")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Short)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        with pytest.raises(OSError, match="9 of 1000 bytes"):
            download(f"http://127.0.0.1:{server.server_address[1]}/file", tmp_path / "file")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert list(tmp_path.iterdir()) == []


def test_files_of_the_folder(shop, tmp_path):
    save(tmp_path / "data" / "mine.npz", sp.csr_array(VALUES), np.array([0.0, 1.0, 1.0, 0.0]))
    save(tmp_path / "data" / "real.npz", VALUES, np.array([0.0, 1.0, 2.0, 0.5]))
    mine, real = datasets.load("mine"), datasets.load("real")
    assert (mine.task, mine.normalization, mine.y.tolist()) == ("classification", "sparse", [-1, 1, 1, -1])
    assert (real.task, real.normalization, real.classes) == ("regression", "dense", None)
    assert {"mine", "real"} <= {entry.name for entry in datasets.list()}
    (tmp_path / "data" / "breast_cancer.npz").write_bytes(b"")
    assert datasets.load("breast_cancer").X.shape == (569, 30)


def test_normalize():
    random = np.random.default_rng(0)
    X = np.column_stack([random.normal(3.0, 2.0, 50), np.full(50, 0.1), random.integers(0, 2, 50), np.zeros(50)])
    dense = datasets.normalize(X, "dense")
    assert dense.shape == (50, 2)
    assert np.allclose(dense.mean(axis=0), 0.0) and np.allclose(dense.std(axis=0), 1.0)
    for matrix in (X, sp.csr_array(X), sp.csc_matrix(X)):
        scaled = datasets.normalize(matrix, "sparse")
        assert sp.issparse(scaled) == sp.issparse(matrix)
        values = scaled.toarray() if sp.issparse(scaled) else scaled
        assert np.allclose(np.linalg.norm(values, axis=0), np.sqrt(50))
        assert np.allclose(values[:, 1] == 0.0, X[:, 2] == 0.0)
        assert np.allclose(datasets.normalize(matrix, "dense"), dense)
    assert datasets.normalize(X, "none").shape == X.shape
    tiny = datasets.normalize(X * 1e-200, "sparse")
    assert np.allclose(tiny, datasets.normalize(X, "sparse"))


def test_normalize_refuses():
    with pytest.raises(ValueError, match="strategy must be 'dense', 'sparse' or 'none'; got 'both'"):
        datasets.normalize(np.eye(2), "both")
    with pytest.raises(ValueError, match="all 3 are constant"):
        datasets.normalize(np.ones((4, 3)), "dense")
    with pytest.raises(ValueError, match=r"fill 3000000 x 3000000 sparse data up to \d+ GiB"):
        datasets.normalize(sp.eye_array(3_000_000, format="csr"), "dense")
    with pytest.raises(ValueError, match="column 1 are too small"):
        datasets.normalize(np.array([[0.0, 1e-300], [1.0, 0.0], [2.0, 0.0]]), "dense")
    with pytest.raises(ValueError, match="two-dimensional"):
        datasets.normalize(np.ones(3), "dense")


def test_new_rows_are_normalised_as_the_old_ones():
    random = np.random.default_rng(1)
    X = random.normal(2.0, 3.0, (30, 4))
    fitted = datasets.Normalization.fit(X, "dense")
    assert np.array_equal(fitted.apply(X[:5]), datasets.normalize(X, "dense")[:5])


def test_the_library_has_them():
    assert glru.datasets is datasets


def test_libsvm_in_bounded_memory(tmp_path):
    """Besides the matrix itself, reading a long file takes next to no memory."""
    lines = [f"{k % 2} {1 + k % 7}:{k % 9 + 0.5} {10 + k % 90}:1 {100 + k % 50}:2.25\n" for k in range(1000)]
    (tmp_path / "long.libsvm").write_text("".join(lines) * 400)
    script = """
import resource, sys
import sklearn.datasets
from glru import datasets
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = datasets.read(sys.argv[1])
peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
size = sum(array.nbytes for array in (found.X.data, found.X.indices, found.X.indptr, found.y))
print(found.X.shape[0], found.X.nnz, peak / size)
"""
    line = [sys.executable, "-c", script, str(tmp_path / "long.libsvm")]
    rows, entries, ratio = subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()
    assert (int(rows), int(entries)) == (400_000, 1_200_000)
    assert float(ratio) < 2.5
