"""Parsing the files in which the paper's datasets are distributed."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from glru.datasets import read
from glru.linalg import Array, RawMatrix
from paper.datasets import PaperDataset


def parse(entry: PaperDataset, paths: list[Path]) -> tuple[RawMatrix, Array]:
    """``X`` and ``y`` from the distributed files, in the order of ``entry.files``."""
    if entry.layout == "libsvm":
        contents = read(paths[0], format="libsvm", n_columns=entry.n_columns)
        assert contents.X is not None and contents.y is not None
        return contents.X, contents.y
    if entry.layout in ("label-first", "label-last"):
        table = _table(paths[0])
        label = 0 if entry.layout == "label-first" else table.shape[1] - 1
        return np.delete(table, label, axis=1), table[:, label]
    blocks = [_block(entry, data) for data in paths[0::2]]
    y = np.concatenate([np.loadtxt(labels, dtype=np.float64) for labels in paths[1::2]])
    X: Any = np.vstack(blocks) if entry.layout == "rows" else sp.csr_array(sp.vstack(blocks))
    if X.shape[0] != y.size:
        raise ValueError(f"{paths[0].name} and its labels must have as many lines; got {X.shape[0]} and {y.size}.")
    return X, y


def _table(path: Path) -> Array:
    contents = read(path, format="tsv" if ".txt" in path.suffixes else "csv", header=False)
    return contents.table.to_numpy().astype(np.float64)


def _block(entry: PaperDataset, path: Path) -> Any:
    if entry.layout == "rows":
        return np.loadtxt(path, dtype=np.float64, ndmin=2)
    from sklearn.datasets import load_svmlight_file

    lines = [line.split() for line in path.read_bytes().splitlines()]
    if entry.layout == "indices":
        lines = [[index + b":1" for index in line] for line in lines]
    text = b"\n".join(b"0 " + b" ".join(line) for line in lines)
    return sp.csr_array(load_svmlight_file(io.BytesIO(text), n_features=entry.n_columns, zero_based=False)[0])
