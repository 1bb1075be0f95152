"""The paper's datasets: from a folder, downloaded from a server on this machine, and normalised."""

import contextlib
import re
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("paper", reason="the folder paper/ is not in this tree")

from paper import datasets, sources
from paper.download import download
from paper.normalization import Normalization, normalize
from paper.sources import save
from tests.cases import stored


def test_the_papers_ten():
    """Tables 1 and 2."""
    assert {name: (entry.n_rows, entry.n_varying or entry.n_columns) for name, entry in datasets.PAPER.items()} == {
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


@pytest.mark.parametrize(("name", "file"), [("arcene", "arcene"), ("dexter", "dexter"), ("dorothea", "dorothea")])
def test_papers_data_in_the_folder(name, file):
    stored(file)
    X, _ = sources.load(name)
    entry = datasets.PAPER[name]
    assert X.shape == (entry.n_rows, entry.n_columns)
    assert normalize(X, entry.normalization).shape == (entry.n_rows, entry.n_varying)


TOY = {
    "rows": datasets.PaperDataset("toy", 4, 2, "dense", "toy", "rows", ("a.data", "a.labels", "b.data", "b.labels")),
    "pairs": datasets.PaperDataset("toy", 4, 2, "sparse", "toy", "pairs", ("a.data", "a.labels", "b.data", "b.labels")),
    "indices": datasets.PaperDataset(
        "toy", 4, 2, "sparse", "toy", "indices", ("a.data", "a.labels", "b.data", "b.labels")
    ),
    "label-last": datasets.PaperDataset("toy", 4, 2, "dense", "toy", "label-last", ("toy.txt",)),
    "label-first": datasets.PaperDataset("toy", 4, 2, "dense", "toy", "label-first", ("toy.csv",)),
    "libsvm": datasets.PaperDataset("toy", 4, 2, "sparse", "toy", "libsvm", ("toy.libsvm",)),
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
        monkeypatch.setitem(datasets.PAPER, "toy", replace(TOY[layout], **changes))
        return tmp_path

    with served(tmp_path / "site") as address:
        monkeypatch.setitem(datasets.SITES, "toy", address)
        yield stock


@pytest.mark.parametrize("layout", TOY)
def test_download(shop, layout, capsys):
    """Fetched once, its size shown, parsed, checked, and read from the cache from then on."""
    folder = shop(layout, "site", n_positive=1, total=4 if layout == "indices" else 5, n_varying=2)
    X, y = sources.load("toy")
    X = X.toarray() if sp.issparse(X) else X
    if layout == "indices":
        assert np.array_equal(X, VALUES > 0)
    else:
        assert np.array_equal(X, VALUES)
    assert y.tolist() == [1, -1, -1, -1]
    shown = capsys.readouterr().err
    assert shown.count("downloading http://127.0.0.1") == len(TOY[layout].files) and "MB)" in shown
    assert [path.name for path in (folder / "cache").iterdir()] == ["toy.npz"]
    assert np.array_equal(sources.load("toy")[1], y)
    assert capsys.readouterr().err == ""


def test_distributed_files_in_the_folder(shop, capsys):
    folder = shop("libsvm", "data")
    assert sources.load("toy")[0].shape == (4, 2)
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
        sources.load("toy")
    assert list((folder / "cache").iterdir()) == []
    save(folder / "data" / "toy.npz", VALUES, np.array([1.0, -1.0, -1.0, -1.0]))
    with pytest.raises(ValueError, match=f"toy.npz is not the paper's toy: its {re.escape(what)}"):
        sources.load("toy")


def test_nothing_to_download(shop, tmp_path, monkeypatch):
    """No file at the site, and no server at all."""
    shop("libsvm", "data")
    (tmp_path / "data" / "toy.libsvm").unlink()
    with pytest.raises(
        ValueError, match=r"downloaded once, and that failed \(.*not found\).*put toy.npz or .*toy.libsvm"
    ):
        sources.load("toy")
    monkeypatch.setitem(datasets.SITES, "toy", "http://127.0.0.1:9/")
    monkeypatch.delenv("GLRU_DATA")
    with pytest.raises(ValueError, match=r"refused.*a folder named in GLRU_DATA \(it is not set\)"):
        sources.load("toy")


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


def test_normalize():
    random = np.random.default_rng(0)
    X = np.column_stack([random.normal(3.0, 2.0, 50), np.full(50, 0.1), random.integers(0, 2, 50), np.zeros(50)])
    dense = normalize(X, "dense")
    assert dense.shape == (50, 2)
    assert np.allclose(dense.mean(axis=0), 0.0) and np.allclose(dense.std(axis=0), 1.0)
    for matrix in (X, sp.csr_array(X), sp.csc_matrix(X)):
        scaled = normalize(matrix, "sparse")
        assert sp.issparse(scaled) == sp.issparse(matrix)
        values = scaled.toarray() if sp.issparse(scaled) else scaled
        assert np.allclose(np.linalg.norm(values, axis=0), np.sqrt(50))
        assert np.allclose(values[:, 1] == 0.0, X[:, 2] == 0.0)
        assert np.allclose(normalize(matrix, "dense"), dense)
    assert normalize(X, "none").shape == X.shape
    tiny = normalize(X * 1e-200, "sparse")
    assert np.allclose(tiny, normalize(X, "sparse"))


def test_normalize_refuses():
    with pytest.raises(ValueError, match="strategy must be 'dense', 'sparse' or 'none'; got 'both'"):
        normalize(np.eye(2), "both")
    with pytest.raises(ValueError, match="all 3 are constant"):
        normalize(np.ones((4, 3)), "dense")
    with pytest.raises(ValueError, match=r"fill 3000000 x 3000000 sparse data up to \d+ GiB"):
        normalize(sp.eye_array(3_000_000, format="csr"), "dense")
    with pytest.raises(ValueError, match="column 1 are too small"):
        normalize(np.array([[0.0, 1e-300], [1.0, 0.0], [2.0, 0.0]]), "dense")
    with pytest.raises(ValueError, match="two-dimensional"):
        normalize(np.ones(3), "dense")


def test_new_rows_are_normalised_as_the_old_ones():
    random = np.random.default_rng(1)
    X = random.normal(2.0, 3.0, (30, 4))
    fitted = Normalization.fit(X, "dense")
    assert np.array_equal(fitted.apply(X[:5]), normalize(X, "dense")[:5])
