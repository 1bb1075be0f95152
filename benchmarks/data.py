"""The datasets of the benchmarks, read from the folder ``GLRU_DATA`` and normalised as in the paper's Appendix E.3."""

import os
from functools import cache
from pathlib import Path

import numpy as np
import scipy.sparse as sp


def folder() -> Path | None:
    """The folder with the datasets, if there is one."""
    name = os.environ.get("GLRU_DATA")
    return Path(name) if name and Path(name).is_dir() else None


@cache
def load(name: str, normalisation: str):
    """``X, y`` of a dataset, normalised as ``"dense"``, ``"sparse"`` or ``"none"``."""
    place = folder()
    if place is None or not (place / f"{name}.npz").exists():
        raise FileNotFoundError(f"{name}.npz is not in the folder GLRU_DATA ({place}).")
    with np.load(place / f"{name}.npz", allow_pickle=False) as file:
        y = file["y"].astype(np.float64)
        if "X" in file:
            X = file["X"].astype(np.float64)
        else:
            parts = (file["data"].astype(np.float64), file["indices"], file["indptr"])
            X = sp.csr_array(parts, shape=tuple(file["shape"]))
    return _normalised(X, normalisation), y


def _normalised(X, normalisation: str):
    if normalisation == "none":
        return X
    if normalisation == "dense":
        X = X.toarray() if sp.issparse(X) else X
        X = X[:, X.std(axis=0) > 0.0]
        return (X - X.mean(axis=0)) / X.std(axis=0)
    columns = sp.csc_array(X)
    norms = np.sqrt(columns.multiply(columns).sum(axis=0))
    kept = np.flatnonzero(norms > 0.0)
    return sp.csr_array(columns[:, kept].multiply(np.sqrt(X.shape[0]) / norms[kept]))
