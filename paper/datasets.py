"""The ten datasets of the paper's Tables 1 and 2: shapes, check-sums and where they are distributed."""

from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from glru.linalg import Array, RawMatrix
from paper.normalization import Normalization, Strategy

Layout = Literal["rows", "pairs", "indices", "label-last", "label-first", "libsvm"]

SITES = {
    "UCI": "https://archive.ics.uci.edu/ml/machine-learning-databases/",
    "LIBSVM": "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/",
}


@final
@dataclass(frozen=True)
class PaperDataset:
    """What a dataset must be to count as the paper's.

    Attributes
    ----------
    n_rows, n_columns : int
        Shape as distributed.
    n_varying : int or None
        Columns with more than one value, where the paper counts those.
    n_positive, total : int or None
        Rows of the class +1 and sum of all values, where they are known.
    layout : str
        How the files are written: "rows" of numbers, "pairs" or "indices" of non-zero values (labels in a file of
        their own); tables with the label first or last; or LIBSVM.
    files : tuple of str
        Paths at the site; for the first three layouts data and labels in turn.
    """

    name: str
    n_rows: int
    n_columns: int
    normalization: Strategy
    site: str
    layout: Layout
    files: tuple[str, ...]
    n_varying: int | None = None
    n_positive: int | None = None
    total: int | None = None

    @property
    def stored_names(self) -> tuple[str, ...]:
        """Names of prepared files that may hold it."""
        return (self.name, f"{self.name}_binary")

    def checked(self, X: RawMatrix, y: Array, origin: str) -> Array:
        """The labels as -1/+1; an error where the data is not the paper's."""
        self._require("shape", X.shape, (self.n_rows, self.n_columns), origin)
        classes = np.unique(y)
        self._require("number of classes", classes.size, 2, origin)
        signs = np.where(y == classes[1], 1.0, -1.0)
        if self.n_positive is not None:
            if int(np.sum(signs < 0)) == self.n_positive:
                signs = -signs
            self._require("number of rows of the class +1", int(np.sum(signs > 0)), self.n_positive, origin)
        if self.total is not None:
            self._require("sum of all values", int(X.sum(dtype=np.float64)), self.total, origin)
        if self.n_varying is not None:
            varying = Normalization.fit(X, "sparse").kept.size
            self._require("number of columns that vary", varying, self.n_varying, origin)
        return signs

    def _require(self, what: str, got: object, expected: object, origin: str) -> None:
        if got != expected:
            raise ValueError(
                f"{origin} is not the paper's {self.name}: its {what} is {got}, not {expected}. "
                "Replace it, or pass the file itself to use it under its own name."
            )


def _nips(name: str, *parts: str) -> tuple[str, ...]:
    """The files of a dataset of the NIPS 2003 challenge; the validation labels were published later, one folder up."""
    inner, files = f"{name}/{name.upper()}/{name}_", []
    for part in parts:
        labels = f"{inner}{part}.labels" if part == "train" else f"{name}/{name}_{part}.labels"
        files += [f"{inner}{part}.data", labels]
    return tuple(files)


PAPER = {
    entry.name: entry
    for entry in (
        PaperDataset(
            "arcene", 200, 10000, "dense", "UCI", "rows", _nips("arcene", "train", "valid"), 9961, 88, 142136852
        ),
        PaperDataset(
            "dexter", 600, 20000, "dense", "UCI", "pairs", _nips("dexter", "train", "valid"), 11035, 300, 5637480
        ),
        PaperDataset("gisette", 6000, 5000, "dense", "UCI", "rows", _nips("gisette", "train"), 4955, 3000, 3164568508),
        PaperDataset(
            "skin_nonskin",
            245057,
            3,
            "dense",
            "UCI",
            "label-last",
            ("00229/Skin_NonSkin.txt",),
            n_positive=50859,
            total=93305434,
        ),
        PaperDataset(
            "covtype",
            581012,
            54,
            "dense",
            "LIBSVM",
            "libsvm",
            ("covtype.libsvm.binary.bz2",),
            n_positive=283301,
            total=4854589843,
        ),
        PaperDataset("susy", 5000000, 18, "dense", "UCI", "label-first", ("00279/SUSY.csv.gz",)),
        PaperDataset("rcv1_train", 20242, 47236, "sparse", "LIBSVM", "libsvm", ("rcv1_train.binary.bz2",)),
        PaperDataset(
            "dorothea",
            1150,
            100000,
            "sparse",
            "UCI",
            "indices",
            _nips("dorothea", "train", "valid"),
            91598,
            112,
            1045512,
        ),
        PaperDataset("news20", 19996, 1355191, "sparse", "LIBSVM", "libsvm", ("news20.binary.bz2",)),
        PaperDataset("url", 2396130, 3231961, "sparse", "LIBSVM", "libsvm", ("url_combined.bz2",)),
    )
}
