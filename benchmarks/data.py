"""The data of the benchmarks: files normalised as in the paper's Appendix E.3, and generated shapes that are hostile to bounds."""

import zlib
from functools import cache, lru_cache

import numpy as np
import scipy.sparse as sp

from glru.datasets.catalogue import find_data_folder as folder
from paper import sources
from paper.normalization import normalize

__all__ = ["SHAPES", "folder", "labels", "load", "load_or_generate"]


@cache
def load(name: str, normalisation: str):
    """``X, y`` of a dataset, normalised as ``"dense"``, ``"sparse"`` or ``"none"``."""
    X, y = sources.load(name)
    return normalize(X, normalisation), y


def labels(z, rng, noise=0.5):
    """Signs of noisy scores, one half of each."""
    return np.where(z + noise * np.std(z) * rng.standard_normal(z.size) > np.median(z), 1.0, -1.0)


def _normal(rng, n, d):
    X = rng.standard_normal((n, d))
    return X, labels(X @ rng.standard_normal(d), rng)


def _log_normal(rng, n, d, numbers=False):
    X = np.exp(2.0 * rng.standard_normal((n, d)))
    z = np.log(X[:, :10]).sum(axis=1)
    return X, z + rng.standard_normal(n) if numbers else labels(z, rng)


def _huge_margins(rng):
    X, y = _normal(rng, 200, 30)
    X[:5] *= 1e3
    return X, y


def _outliers(rng):
    X = rng.standard_cauchy((500, 10))
    return X, labels(np.tanh(X).sum(axis=1), rng)


def _duplicates(rng):
    X, y = _normal(rng, 150, 30)
    return np.column_stack([X, X[:, :15], -2.0 * X[:, :5], np.ones(150)]), y


def _rare(rng):
    X = (rng.random((2000, 60)) < 0.003).astype(np.float64)
    return X, labels(X @ rng.standard_normal(60) + 0.1 * rng.standard_normal(2000), rng)


def _units(rng, numbers=False):
    X, y = _normal(rng, 300, 8)
    y = X[:, 0] - X[:, 7] + 0.3 * rng.standard_normal(300) if numbers else y
    return X * 10.0 ** np.array([-3, -2, -1, 0, 1, 2, 3, 7]), y


def _separable(rng):
    X, _ = _normal(rng, 200, 10)
    z = X @ rng.standard_normal(10)
    return X[np.abs(z) > 0.3], np.sign(z[np.abs(z) > 0.3])


def _text(rng):
    n, d = 1200, 4000
    words = np.minimum(rng.zipf(1.4, size=(n, 60)) - 1, d - 1)
    words = (words + rng.integers(0, d, size=(n, 60)) * (rng.random((n, 60)) < 0.5)) % d
    X = sp.csr_array((np.ones(words.size), (np.repeat(np.arange(n), 60), words.ravel())), shape=(n, d))
    X.sum_duplicates()
    return X, labels(X @ rng.standard_normal(d), rng)


SHAPES = {
    "gen 30 x 5": lambda rng: _normal(rng, 30, 5),
    "gen 100 x 5": lambda rng: _normal(rng, 100, 5),
    "gen 5000 x 3": lambda rng: _normal(rng, 5000, 3),
    "gen log-normal": lambda rng: _log_normal(rng, 300, 20),
    "gen genes": lambda rng: _log_normal(rng, 80, 4000),
    "gen genes, numbers": lambda rng: _log_normal(rng, 80, 2000, numbers=True),
    "gen huge margins": _huge_margins,
    "gen outliers": _outliers,
    "gen duplicates": _duplicates,
    "gen rare binary": _rare,
    "gen units": _units,
    "gen units, numbers": lambda rng: _units(rng, numbers=True),
    "gen separable": _separable,
    "gen text": _text,
}


@lru_cache(maxsize=1)
def load_or_generate(name: str, scaled: bool):
    """``X, y`` of a data set or of a generated shape, as they are or with columns of spread 1 (sparse data is not centred)."""
    if name not in SHAPES:
        X, y = load(name, "none")
        load.cache_clear()
    else:
        X, y = SHAPES[name](np.random.default_rng(zlib.crc32(name.encode())))
    X = X.astype(np.float64)
    if scaled and sp.issparse(X):
        spread = np.sqrt(np.asarray(X.multiply(X).mean(axis=0)).ravel())
        X = sp.csr_array(X @ sp.diags_array(1.0 / np.where(spread > 0.0, spread, 1.0)))
    elif scaled:
        spread = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(spread > 1e-12 * np.abs(X).max(axis=0), spread, 1.0)
    return X, y.astype(np.float64)
