"""Fits, folds and grids against scikit-learn on files and on generated shapes.

``python -m benchmarks folds [--only TEXT] [--what fit,folds,grid] [--exponents=-5,-12] [--limit SECONDS]``

The questions are those of ``zoo``, asked in this process: processor time of one thread, theirs and ours in turn, the shortest of a few runs.
"""

import argparse
import signal
import warnings
import zlib
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from benchmarks.data import SHAPES, folder, labels
from benchmarks.timing import print_table
from benchmarks.zoo import Line, number, stop

FILES = [
    "a9a",
    "ada",
    "arcene",
    "australian",
    "basehock",
    "breast_cancer",
    "dexter",
    "dlbcl_shipp",
    "electricity",
    "heart",
    "ionosphere",
    "madelon",
    "mnist_test_4v9",
    "pcmac",
    "skin_nonskin",
    "sonar",
    "spambase",
    "splice",
    "svmguide1",
    "w8a",
    "wdbc",
]


def _normal(n: int, d: int):
    def draw(rng):
        X = rng.standard_normal((n, d))
        return X, labels(X @ (rng.standard_normal(d) * (rng.random(d) < 0.3)), rng)

    return draw


def _mixed(n: int, d: int, rank: int):
    """Columns that share a few factors."""

    def draw(rng):
        X = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d)) + 0.5 * rng.standard_normal((n, d))
        return X, labels(X @ rng.standard_normal(d), rng)

    return draw


def _smooth(rng):
    """Columns that change slowly from one to the next, as those of a spectrum."""
    X = np.cumsum(rng.standard_normal((1500, 400)), axis=1) / 20.0
    return X, labels(X @ rng.standard_normal(400), rng)


def _heavy(rng):
    X = rng.standard_t(2.0, size=(3000, 60))
    return X, labels(np.tanh(X) @ rng.standard_normal(60), rng)


def _unlike(rng):
    X = rng.standard_normal((5000, 40))
    return X * 10.0 ** rng.uniform(-3.0, 3.0, 40), labels(X @ rng.standard_normal(40), rng)


def _binary(n: int, d: int, share: float):
    def draw(rng):
        X = (rng.random((n, d)) < share * rng.random(d) * 2.0).astype(np.float64)
        return X, labels(X @ rng.standard_normal(d), rng)

    return draw


def _one_hot(rng):
    levels = np.arange(10) * 20 + rng.integers(0, 20, size=(4000, 10))
    X = np.zeros((4000, 200))
    X[np.arange(4000)[:, None], levels] = 1.0
    return X, labels(X @ rng.standard_normal(200), rng)


def _sparse(n: int, d: int, per_row: int):
    def draw(rng):
        columns = np.minimum(rng.zipf(1.3, size=(n, per_row)) - 1, 10**9) % d
        places = np.repeat(np.arange(n), per_row), columns.ravel()
        X = sp.csr_array((rng.random(columns.size), places), shape=(n, d))
        X.sum_duplicates()
        return X, labels(X @ rng.standard_normal(d), rng)

    return draw


DRAWN = {
    "normal 20000 x 20": _normal(20000, 20),
    "normal 5000 x 100": _normal(5000, 100),
    "normal 2000 x 300": _normal(2000, 300),
    "normal 2000 x 800": _normal(2000, 800),
    "normal 1000 x 2000": _normal(1000, 2000),
    "normal 100 x 3000": _normal(100, 3000),
    "factors 1500 x 900": _mixed(1500, 900, 30),
    "factors 4000 x 150": _mixed(4000, 150, 10),
    "factors 300 x 1500": _mixed(300, 1500, 20),
    "smooth 1500 x 400": _smooth,
    "heavy tails 3000 x 60": _heavy,
    "unlike units 5000 x 40": _unlike,
    "rare binary 3000 x 150": _binary(3000, 150, 0.02),
    "one-hot 4000 x 200": _one_hot,
    "sparse 3000 x 8000": _sparse(3000, 8000, 40),
    "sparse 20000 x 300": _sparse(20000, 300, 12),
    "small 80 x 6": _normal(80, 6),
}
QUESTIONS = {"fit": ("fit",), "folds": ("fold5", "fold10"), "grid": ("grid",)}


def draw(name: str):
    """A generated shape, the same one in every run."""
    return DRAWN[name](np.random.default_rng(zlib.crc32(name.encode())))


def run(options: Sequence[str] = ()) -> None:
    """Ask all questions of all data sets; print every line, then the medians and the worst lines."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks folds")
    parser.add_argument("--only", default="", help="data sets whose name has one of these in it, separated by ;")
    parser.add_argument("--what", default=",".join(QUESTIONS))
    parser.add_argument("--exponents", default="-5,-12")
    parser.add_argument("--limit", type=float, default=60.0)
    arguments = parser.parse_args(options)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, stop)
    SHAPES.update(DRAWN)
    names = [*DRAWN, *(name for name in FILES if folder() is not None)]
    found: dict[str, list[tuple[float, str]]] = {}
    with threadpool_limits(1):
        for name in names:
            if not any(part in name for part in arguments.only.split(";")):
                continue
            for exponent in map(int, arguments.exponents.split(",")):
                line, row = Line(name, name not in DRAWN, exponent, True, arguments.limit), {}
                for question in arguments.what.split(","):
                    line.known = row
                    row |= getattr(line, question)()
                print(name, *line.X.shape, f"2^{exponent}", row, flush=True)
                for column in sum(map(QUESTIONS.get, arguments.what.split(",")), ()):
                    if row.get(column):
                        # Of fits ours over theirs, of the others their time over ours.
                        value = number(row[column])
                        found.setdefault(column, []).append((1.0 / value if column == "fit" else value, name))
    table = []
    for column, every in found.items():
        values, worst = [value for value, _ in every], [f"{name} {value:.2g}" for value, name in sorted(every)[:8]]
        table.append([column, f"{np.median(values):.3g}", sum(v < 1.0 for v in values), len(values), ", ".join(worst)])
    print_table("Times as fast as scikit-learn", ["question", "median", "below 1", "of", "worst"], table)
