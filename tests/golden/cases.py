"""What is asked: data sets, models and questions. Nothing here knows the library.

The data must be the same on every machine, to the last bit: rows and columns are drawn with a fixed seed, means and
scales are rounded to float32 before they are used, and what remains is elementwise arithmetic.
"""

import functools
import hashlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

STRENGTHS = (2.0**0, 2.0**-5, 2.0**-10)

N_ASIDE = 30
"""Rows that are not trained on: they are added, predicted and validated with."""

N_SAMPLED = 20
"""Rows whose score intervals are recorded; labels are recorded of all rows."""


N_SAMPLED_AFTER = 5
"""The same after each change, of the rows set aside."""

N_STEPS = 2
"""Steps of a stepwise search."""


@dataclass(frozen=True)
class Source:
    """A file in the folder ``GLRU_DATA``, or generated data (no file), and how much of it is used."""

    rows: int
    columns: int | None = None
    file: str | None = None
    density: float = 1.0
    task: str = "classification"
    intercepts: tuple[bool, ...] = (False, True)
    strengths: tuple[float, ...] = STRENGTHS
    path: bool = True
    """Whether leave-one-out is also asked along all strengths."""
    balanced: bool = False
    """Whether the two classes are drawn equally often."""
    blocks: bool = False
    """Whether the rows also come in blocks."""
    searches: tuple[str, ...] = ("backward",)
    """Directions in which features are selected; forward takes longer."""


def _wide(name: str, rows: int, **options: Any) -> dict[str, Source]:
    """Wide data: all columns without an intercept, and few rows and columns with one."""
    narrow = Source(24, 80, name, intercepts=(True,), strengths=STRENGTHS[::2], path=False, searches=(), balanced=True)
    return {name: Source(rows, file=name, intercepts=(False,), **options), f"{name}-narrow": narrow}


BOTH = ("backward", "forward")

SOURCES: dict[str, Source] = {
    # Generated: no file is needed. Tables of losses and penalties have few rows, as some pairs train every row.
    "table-tall": Source(14, 4),
    "table-tall-regression": Source(14, 4, task="regression"),
    "table-wide": Source(11, 16),
    "table-wide-regression": Source(11, 16, task="regression"),
    "table-sparse": Source(12, 5, density=0.4),
    "table-sparse-regression": Source(12, 5, density=0.4, task="regression"),
    "generated-tall": Source(200, 10, searches=BOTH, blocks=True),
    "generated-tall-regression": Source(200, 10, task="regression", searches=BOTH, blocks=True),
    "generated-wide": Source(40, 120),
    "generated-wide-regression": Source(40, 120, task="regression"),
    "generated-sparse": Source(120, 40, density=0.1),
    "generated-sparse-regression": Source(120, 40, density=0.1, task="regression"),
    # Two classes, more rows than columns.
    "a9a": Source(500, file="a9a"),
    "ada": Source(500, file="ada"),
    "australian": Source(500, file="australian"),
    "breast_cancer": Source(600, file="breast_cancer"),
    "covtype_binary": Source(800, file="covtype_binary"),
    "electricity": Source(800, file="electricity"),
    "heart": Source(240, file="heart", searches=BOTH),
    "ijcnn1": Source(800, file="ijcnn1"),
    "ionosphere": Source(320, file="ionosphere"),
    "madelon": Source(300, 100, file="madelon"),
    "mnist_test_4v9": Source(300, 200, file="mnist_test_4v9"),
    "skin_nonskin": Source(800, file="skin_nonskin"),
    "sonar": Source(170, file="sonar"),
    "spambase": Source(500, file="spambase"),
    "splice": Source(500, file="splice"),
    "susy_11k": Source(800, file="susy_11k"),
    "svmguide1": Source(800, file="svmguide1", searches=BOTH),
    "w8a": Source(100, file="w8a", strengths=STRENGTHS[::2], path=False, searches=()),
    "wdbc": Source(500, file="wdbc"),
    # Two classes, more columns than rows.
    **_wide("arcene", 60),
    **_wide("basehock", 120),
    **_wide("dexter", 120),
    # A score near zero leaves each of its 7129 columns to be decided by itself, which takes minutes.
    **_wide("dlbcl_shipp", 47, searches=()),
    **_wide("dorothea", 100),
    **_wide("gisette_valid", 80),
    **_wide("news20mc", 100),
    **_wide("pcmac", 120),
    **_wide("rcv1_sample1500", 120),
    **_wide("reuters_moneyfx", 120),
    # Regression.
    "reg_abalone_scale": Source(400, file="reg_abalone_scale", task="regression"),
    "reg_airfoil": Source(400, file="reg_airfoil", task="regression", searches=BOTH),
    "reg_bike": Source(400, file="reg_bike", task="regression"),
    "reg_cpu_act": Source(400, file="reg_cpu_act", task="regression"),
    "reg_cpusmall": Source(400, file="reg_cpusmall", task="regression"),
    "reg_diabetes_sklearn": Source(400, file="reg_diabetes_sklearn", task="regression"),
    "reg_energy": Source(400, file="reg_energy", task="regression", searches=BOTH),
    "reg_housing_scale": Source(400, file="reg_housing_scale", task="regression"),
    "reg_mg_scale": Source(400, file="reg_mg_scale", task="regression"),
    "reg_pumadyn32nm": Source(400, file="reg_pumadyn32nm", task="regression"),
    # Few rows of real data, for all losses.
    "table-heart": Source(16, file="heart"),
    "table-sonar": Source(12, file="sonar", searches=()),
    "table-housing": Source(16, file="reg_housing_scale", task="regression"),
}


@dataclass(frozen=True)
class Data:
    """Rows to train on, rows set aside, and a checksum of both."""

    X: Any
    y: np.ndarray
    X_aside: Any
    y_aside: np.ndarray
    checksum: str


@dataclass(frozen=True)
class Model:
    """A loss, a penalty and row weights by name and value."""

    loss: str
    penalty: str
    quadratic: Any
    absolute: Any
    fit_intercept: bool
    scaling: str
    sample_weight: np.ndarray | None

    def of(self, rows: np.ndarray, columns: np.ndarray | None = None) -> "Model":
        """The same model of some rows and columns."""
        chosen = {name: getattr(self, name) for name in ("quadratic", "absolute")}
        if columns is not None:
            chosen = {name: value[columns] if np.ndim(value) else value for name, value in chosen.items()}
        weight = None if self.sample_weight is None else self.sample_weight[rows]
        return replace(self, sample_weight=weight, **chosen)


@dataclass(frozen=True)
class Change:
    """What happens to the data, in this order; positions are those before the change."""

    edit: tuple[tuple[int, ...], int, tuple[float, ...]] | None = None
    """Rows, a column and the new values there."""
    flip: tuple[int, ...] = ()
    """Rows whose targets change their sign."""
    reweight: tuple[tuple[int, ...], tuple[float, ...]] | None = None
    """Rows and their new weights."""
    remove_rows: tuple[int, ...] = ()
    add_rows: tuple[int, ...] = ()
    """Of the rows set aside."""
    remove_columns: tuple[int, ...] = ()


@dataclass(frozen=True)
class Case:
    """A model of a data set, and what is asked of it."""

    data: str
    loss: str
    penalty: str = "l2"
    lam: float = 2.0**-5
    fit_intercept: bool = False
    weighted: bool = False
    questions: tuple[str, ...] = ("loocv", "folds", "changes")
    retrain_all: bool = field(default=False, compare=False)
    """Whether recording retrains every row; otherwise only those nearest to the threshold."""

    @property
    def name(self) -> str:
        parts = [self.loss, self.penalty, f"{self.lam:.3g}"]
        return "-".join(parts + ["intercept"] * self.fit_intercept + ["weighted"] * self.weighted)


LOSSES = {
    "classification": ("logistic", "squared-hinge", "smoothed-hinge", "hinge"),
    "regression": ("squared", "huber"),
}

FAST = ("logistic", "squared")
"""Losses that have every bound."""

PENALTIES = ("l2", "elastic-net", "l1", "l2-columns", "elastic-net-columns", "l1-columns")
"""Those "-columns" have a strength for each column, and one column without a penalty."""


def _grid(name: str, source: Source) -> list[Case]:
    """A data set of its own size: its natural loss, several strengths, with and without an intercept."""
    loss = "logistic" if source.task == "classification" else "squared"
    cases = []
    for intercept in source.intercepts:
        for lam in source.strengths:
            asked = ("loocv", "folds", "changes") + (("blocks",) if source.blocks else ())
            if source.path and lam == source.strengths[0]:
                asked += ("path",)
            if lam == source.strengths[1]:
                asked += source.searches
            cases.append(Case(name, loss, "l2", lam, intercept, questions=asked))
    return cases


def _table(name: str, source: Source) -> list[Case]:
    """A small data set: every loss with every penalty; with an intercept the rows have weights, too."""
    penalties = PENALTIES if name.startswith("table-tall") else ("l2",) if source.file else ("l2", "elastic-net")
    return [
        Case(name, loss, penalty, 2.0**-5, intercept, intercept, _asked(loss, penalty, intercept, source), True)
        for loss in LOSSES[source.task]
        for penalty in penalties
        for intercept in (False, True)
        # A column without a penalty is for most bounds what an intercept is: one of the two is enough.
        if not (intercept and penalty.endswith("-columns") and loss not in FAST)
    ]


def _asked(loss: str, penalty: str, intercept: bool, source: Source) -> tuple[str, ...]:
    """The questions of a table, less those that take seconds: nothing bounds a score under an L1 penalty."""
    asked = ("folds", "changes", "more-changes")
    if not (loss == "hinge" and penalty.startswith("l1")):
        asked = ("loocv", *asked)
    return asked + source.searches if loss in FAST or (penalty == "l2" and not intercept) else asked


def all_cases() -> list[Case]:
    """Every case, data set by data set."""
    found = []
    for name, source in SOURCES.items():
        found += _table(name, source) if name.startswith("table-") else _grid(name, source)
    return found


def missing(name: str) -> str | None:
    """Why a data set cannot be read; None where it can."""
    file = SOURCES[name].file
    if file is None:
        return None
    folder = os.environ.get("GLRU_DATA")
    if not folder:
        return "GLRU_DATA names no folder of data sets"
    return None if (Path(folder) / f"{file}.npz").exists() else f"{file}.npz is not in the folder GLRU_DATA"


@functools.cache
def load(name: str) -> Data:
    """The data of a source: the rows to train on first, then those set aside."""
    source = SOURCES[name]
    random = np.random.default_rng(20240229)
    X, y = _generate(source, random) if source.file is None else _read(source, random)
    n = y.size - N_ASIDE
    digest = hashlib.sha256()
    for array in (X.data, X.indices, X.indptr, y) if sp.issparse(X) else (X, y):
        digest.update(np.ascontiguousarray(array).tobytes())
    return Data(X[:n], y[:n], X[n:], y[n:], digest.hexdigest()[:16])


def _generate(source: Source, random: np.random.Generator) -> tuple[Any, np.ndarray]:
    """A noisy linear model; values of three decimals, so that no rounding depends on the machine."""
    shape = (source.rows + N_ASIDE, source.columns)
    X = np.round(random.normal(0.2, 1.0, shape), 3) * (random.random(shape) < source.density)
    slope = np.round(random.normal(0.0, 1.0, shape[1]), 1)
    z = np.round((X * slope).sum(axis=1) + random.normal(0.5, 1.0, shape[0]), 2)
    y = z / 2.0 if source.task == "regression" else np.where(z > np.median(z), 1.0, -1.0)
    return (sp.csr_array(X) if source.density < 1.0 else X), y


def _read(source: Source, random: np.random.Generator) -> tuple[Any, np.ndarray]:
    """Rows and columns of a file, drawn without replacement; columns scaled, and centred where they are dense."""
    path = Path(os.environ["GLRU_DATA"]) / f"{source.file}.npz"
    with np.load(path) as arrays:
        y = arrays["y"].astype(float)
        X = sp.csr_array(sp.load_npz(path)) if "indptr" in arrays else arrays["X"]
    rows = random.permutation(y.size)
    if source.balanced:
        # By turns from the two classes, so that few rows hold several of each.
        place = np.empty(y.size, dtype=int)
        for label in (-1.0, 1.0):
            place[y[rows] == label] = np.arange(np.sum(y == label))
        rows = rows[np.argsort(place, kind="stable")]
    rows = rows[: source.rows + N_ASIDE]
    X, y = X[rows].astype(float), y[rows]
    n = y.size - N_ASIDE
    if source.task == "regression":
        y = (y - _rounded(y[:n].mean())) / _rounded(y[:n].std())
    sparse = sp.issparse(X)
    size = np.sqrt((X[:n].multiply(X[:n]) if sparse else (X[:n] - X[:n].mean(axis=0)) ** 2).mean(axis=0))
    used = np.flatnonzero(np.asarray(size).ravel() > 1e-12)
    if source.columns is not None:
        used = np.sort(random.permutation(used)[: source.columns])
    X, scale = X[:, used], _rounded(np.asarray(size).ravel()[used])
    if sparse:
        X = sp.csr_array(X)
        X.sort_indices()
        X.data /= scale[X.indices]
        return X, y
    return (X - _rounded(X[:n].mean(axis=0))) / scale, y


def _rounded(values: Any) -> Any:
    return np.asarray(values, dtype=np.float32).astype(float)


def model_of(case: Case, n_rows: int, n_columns: int) -> Model:
    """The model that a case names."""
    weight = np.arange(n_rows) % 7 * 0.5 if case.weighted else None
    lam = case.lam * float(weight.sum()) if weight is not None else case.lam
    if case.penalty.endswith("-columns"):
        lam = lam * np.resize([1.0, 2.0, 0.5], n_columns)
        lam[1] = 0.0
    kind = case.penalty.removesuffix("-columns")
    share = {"l2": 0.0, "elastic-net": 0.4, "l1": 0.6}[kind]
    scaling = "sum" if case.weighted else "mean"
    return Model(case.loss, kind, lam, share * lam, case.fit_intercept, scaling, weight)


def folds(n_rows: int, n_folds: int = 5) -> list[tuple[np.ndarray, np.ndarray]]:
    """Shuffled folds, as pairs of train and test rows."""
    order = np.random.default_rng(5).permutation(n_rows)
    tests = [np.sort(order[k::n_folds]) for k in range(n_folds)]
    return [(np.setdiff1d(np.arange(n_rows), test), test) for test in tests]


def sampled(n: int, n_sampled: int = N_SAMPLED) -> np.ndarray:
    """The rows whose intervals are recorded."""
    return np.sort(np.random.default_rng(20).permutation(n)[:n_sampled])


def simple_changes(n_columns: int) -> dict[str, Change]:
    """Rows and columns that come and go."""
    return {
        "remove-row": Change(remove_rows=(3,)),
        "remove-rows": Change(remove_rows=(0, 4, 5, 9)),
        "add-row": Change(add_rows=(0,)),
        "remove-column": Change(remove_columns=(n_columns // 2,)),
    }


def more_changes(n_columns: int) -> dict[str, Change]:
    """Changes of values, targets and weights, and several changes at once."""
    return {
        "edit-values": Change(edit=((7, 8), 0, (1.0, -0.5))),
        "flip-target": Change(flip=(6,)),
        "reweight": Change(reweight=((1, 2), (0.25, 2.0))),
        "mixed": Change(flip=(6,), remove_rows=(3, 5), add_rows=(1, 2), remove_columns=(n_columns - 1,)),
    }
